//! The settings of a frontier: manners, budgets, limits and memory. All of them may change while it runs.

use std::time::Duration;

/// The settings of a frontier.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// How a group is treated unless it has overrides.
    pub manners: Manners,
    /// What a queue may spend unless it has a budget of its own.
    pub budget: Budget,
    /// Added to a queue's spending for a URL that failed.
    pub error_penalty: u32,
    /// What a queue may spend before the next waiting queue gets its place.
    pub session_balance: u32,
    /// A URL is tried again at most so many times.
    pub retries: u32,
    /// A queue that must wait longer than this gives its place to another.
    pub long_snooze: Duration,
    /// Queues in memory at one time.
    pub active_queues: usize,
    /// Queues of one group that take part at one time; the others of the group wait behind them.
    pub group_queues: u32,
    /// The longest URL, via, queue name or other string that is taken.
    pub longest_string: usize,
    /// The memory the frontier may take.
    pub memory: Memory,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            manners: Manners::default(),
            budget: Budget::default(),
            error_penalty: 100,
            session_balance: 3000,
            retries: 30,
            long_snooze: Duration::from_secs(300),
            active_queues: 1000,
            group_queues: 4,
            longest_string: 16 * 1024,
            memory: Memory::default(),
        }
    }
}

/// The manners towards a group: Heritrix's formula, connections, and what happens when it complains.
///
/// After a fetch the group rests for `delay_factor × duration ÷ connections`, at least `min_delay` and
/// at most `max_delay`; a Crawl-delay up to `crawl_delay_limit` may make it longer. With one connection
/// the rest begins when the fetch ends, with several when the last one began.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Manners {
    /// Times the duration of the last fetch.
    pub delay_factor: f64,
    /// The shortest rest.
    pub min_delay: Duration,
    /// The longest rest, robots.txt and back-off apart.
    pub max_delay: Duration,
    /// The rest of a group by address when several of its queues take part: each of these rests by the rules above, and
    /// their address only for so long, or for `min_delay` if that is shorter.
    pub address_delay: Duration,
    /// A longer Crawl-delay counts as this.
    pub crawl_delay_limit: Duration,
    /// Requests at one time.
    pub connections: u32,
    /// The rest when a group is first overloaded: by its own word, or after `backoff_failures`.
    pub backoff: Duration,
    /// By how much that rest grows each time; less than 1 counts as 1.
    pub backoff_factor: f64,
    /// The longest such rest.
    pub backoff_limit: Duration,
    /// So many failed connections in a row mean that it is overloaded, and so does each one after them.
    pub backoff_failures: u32,
    /// A longer Retry-After counts as this.
    pub retry_after_limit: Duration,
    /// What may come from the group in a second: after a fetch it rests until its bytes are paid for, counted from
    /// when the fetch began.
    pub bytes_per_second: Option<u64>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            delay_factor: 5.0,
            min_delay: Duration::from_secs(3),
            max_delay: Duration::from_secs(30),
            address_delay: Duration::from_secs(1),
            crawl_delay_limit: Duration::from_secs(300),
            connections: 1,
            backoff: Duration::from_secs(10),
            backoff_factor: 2.0,
            backoff_limit: Duration::from_secs(3600),
            backoff_failures: 2,
            retry_after_limit: Duration::from_secs(24 * 3600),
            bytes_per_second: None,
        }
    }
}

impl Manners {
    /// The manners towards an address that several queues share.
    pub(crate) fn of_address(&self) -> Self {
        let delay = self.address_delay.min(self.min_delay);
        Self {
            delay_factor: 0.0,
            min_delay: delay,
            max_delay: delay,
            crawl_delay_limit: Duration::ZERO,
            ..*self
        }
    }

    /// The manners towards one queue of several in a group by address.
    pub(crate) fn of_host(&self) -> Self {
        Self {
            connections: 1,
            bytes_per_second: None,
            ..*self
        }
    }

    /// The manners towards one queue of several where the group has the delay: it rests alone when it is overloaded.
    pub(crate) fn of_member(&self) -> Self {
        Self {
            delay_factor: 0.0,
            min_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            crawl_delay_limit: Duration::ZERO,
            ..self.of_host()
        }
    }
}

/// What differs for one group.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Overrides {
    /// Instead of the settings' factor.
    pub delay_factor: Option<f64>,
    /// Instead of the settings' shortest rest.
    pub min_delay: Option<Duration>,
    /// Instead of the settings' longest rest.
    pub max_delay: Option<Duration>,
    /// Instead of the settings' connections.
    pub connections: Option<u32>,
    /// Instead of the settings' rate; the greatest number is none.
    pub bytes_per_second: Option<u64>,
}

impl Overrides {
    /// The manners with these overrides.
    pub(crate) fn over(&self, manners: &Manners) -> Manners {
        Manners {
            delay_factor: self.delay_factor.unwrap_or(manners.delay_factor),
            min_delay: self.min_delay.unwrap_or(manners.min_delay),
            max_delay: self.max_delay.unwrap_or(manners.max_delay),
            connections: self.connections.unwrap_or(manners.connections),
            bytes_per_second: self.bytes_per_second.or(manners.bytes_per_second),
            ..*manners
        }
    }
}

/// What a queue may spend; without a number, as much as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// Costs of URLs with the penalties for errors; a URL that costs 1 counts 1.
    pub urls: Option<u64>,
    /// Bytes that came over the wire.
    pub bytes: Option<u64>,
    /// Time since its first fetch began.
    pub time: Option<Duration>,
}

/// The memory a frontier may take, in bytes unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Changes that wait to be written into a sorted file.
    pub changes: usize,
    /// Filters that spare a look at files which do not know a URL.
    pub filters: u64,
    /// The first URLs of all active queues together.
    pub heads: usize,
    /// Records of queues and groups that are not active, a number each.
    pub records: usize,
    /// Blocks of 2 or 4 KiB kept at hand, a number.
    pub blocks: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            changes: 12 << 20,
            filters: 48 << 20,
            heads: 8 << 20,
            records: 16 * 1024,
            blocks: 1024,
        }
    }
}
