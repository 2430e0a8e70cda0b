//! What goes into the frontier and comes out of it.

use std::time::Duration;

/// Milliseconds since 1970. Passed in by the caller, and never going back while a frontier is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This moment and a while later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(wait)))
    }

    /// The time from `earlier` to this moment; none if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) fn whole_millis(wait: Duration) -> u64 {
    wait.as_millis().try_into().unwrap_or(u64::MAX)
}

/// How soon a URL is fetched within its queue: the lowest number first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Precedence(pub u8);

impl Precedence {
    /// What all others of the queue may wait for: robots.txt.
    pub const PREREQUISITE: Self = Self(0);
    /// Where the crawl begins.
    pub const SEED: Self = Self(1);
    /// Where a page redirects to.
    pub const REDIRECT: Self = Self(2);
    /// What a page needs to be shown.
    pub const REQUISITE: Self = Self(3);
    /// A link.
    pub const NORMAL: Self = Self(4);
}

/// A URL that was found.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The URL as it is to be fetched.
    pub url: &'a str,
    /// Its canonical form, by which it is known again.
    pub key: &'a [u8],
    /// The queue it belongs to: an authority or a registered domain.
    pub queue: &'a str,
    /// The group whose manners it shares; the queue's name if it has none. Counts when the queue is new.
    pub group: &'a str,
    /// Its place among the URLs of its queue.
    pub precedence: Precedence,
    /// Where it was found.
    pub via: &'a str,
    /// The path of hops from the seed, as Heritrix writes it.
    pub hops: &'a str,
    /// The tag of the seed it descends from.
    pub source: &'a str,
    /// What it costs its queue.
    pub cost: u32,
    /// Whether it is queued again though it was fetched before.
    pub force: bool,
}

impl<'a> Candidate<'a> {
    /// A link of cost 1 that is its own key, in a queue that is its own group.
    #[must_use]
    pub fn new(url: &'a str, queue: &'a str) -> Self {
        Self {
            url,
            key: url.as_bytes(),
            queue,
            group: queue,
            precedence: Precedence::NORMAL,
            via: "",
            hops: "",
            source: "",
            cost: 1,
            force: false,
        }
    }
}

/// What became of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// It was queued.
    New,
    /// It is queued, in flight, or was finished before.
    Seen,
}

/// The number of a URL's stay in its queue; a retry gets another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ItemId(pub u64);

/// A URL handed out to be fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// To finish it with.
    pub id: ItemId,
    /// The URL.
    pub url: String,
    /// Where it was found.
    pub via: String,
    /// The path of hops from the seed.
    pub hops: String,
    /// The tag of its seed.
    pub source: String,
    /// Its queue.
    pub queue: String,
    /// Its group.
    pub group: String,
    /// Its place among the URLs of its queue.
    pub precedence: Precedence,
    /// What it costs its queue.
    pub cost: u32,
    /// How often it was tried before.
    pub attempts: u32,
    /// Whether it was queued though seen.
    pub force: bool,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Fetch this now.
    Fetch(Item),
    /// This could be fetched now, but for the prerequisite that the caller named. It is not handed out, and its queue waits.
    Missing(Item),
    /// Nothing may be fetched before this moment, unless something finishes or is added.
    Wait(Millis),
    /// Everything there is to do is in flight.
    Idle,
    /// Nothing is queued, but in retired queues.
    Empty,
}

/// What became of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The status as Heritrix counts it: of HTTP, or below zero.
    pub status: i32,
    /// The bytes that came over the wire.
    pub bytes: u64,
    /// How long the server was asked; none if it was not.
    pub fetch_duration: Option<Duration>,
    /// Whether it says that the server has too much to do.
    pub overloaded: bool,
    /// What the server asked for by Retry-After.
    pub retry_after: Option<Duration>,
    /// What the server's robots.txt asks for.
    pub crawl_delay: Option<Duration>,
    /// What becomes of the URL.
    pub disposition: Disposition,
}

impl Outcome {
    /// A fetch that gave `status` after `duration`; 429 and 503 mean that the server is overloaded.
    #[must_use]
    pub fn done(status: i32, bytes: u64, duration: Duration) -> Self {
        Self {
            status,
            bytes,
            fetch_duration: Some(duration),
            overloaded: matches!(status, 429 | 503),
            retry_after: None,
            crawl_delay: None,
            disposition: Disposition::Done,
        }
    }

    /// Tells whether the server is overloaded or could not be had.
    pub(crate) fn is_trouble(&self) -> bool {
        self.overloaded || matches!(self.status, -4..=-2)
    }

    /// The same without what only concerns the queue that was told.
    pub(crate) fn without_trouble(&self) -> Self {
        Self {
            status: if self.is_trouble() { 0 } else { self.status },
            overloaded: false,
            retry_after: None,
            ..*self
        }
    }

    /// Nobody was asked, and the URL goes back into its queue for so long.
    #[must_use]
    pub fn put_back(after: Duration) -> Self {
        Self {
            fetch_duration: None,
            disposition: Disposition::PutBack { after },
            ..Self::done(0, 0, Duration::ZERO)
        }
    }
}

/// What becomes of a URL after a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// It is done.
    Done,
    /// It is tried again, after a while, unless it was tried too often.
    Retry {
        /// The while.
        after: Duration,
    },
    /// It is given up.
    Failed,
    /// It goes back into its queue as if it had not been handed out: behind what has the same precedence, with
    /// nothing counted, spent or remembered of the outcome. Where a server was asked, it rests as after any
    /// fetch; where `fetch_duration` is none, nobody has to wait.
    PutBack {
        /// How long it waits there.
        after: Duration,
    },
}

/// What the frontier made of an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The URL is done.
    Done,
    /// It comes again at this moment, at the earliest.
    Retrying {
        /// The moment.
        at: Millis,
        /// How often it was tried by now.
        attempts: u32,
    },
    /// It is given up, as the outcome said.
    Failed,
    /// It is given up, since it was tried as often as the settings allow.
    GivenUp,
    /// It is back in its queue, as the outcome said.
    PutBack,
}
