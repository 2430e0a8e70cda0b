//! One resolver: its sockets, how fast it may be asked, whether it answers, and what came of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde::Serialize;

/// Sockets of a resolver: so many source ports are guessed by whoever wants to answer in its place.
const SOCKETS: usize = 4;
/// A socket that has asked so often makes way for one with another port.
const RENEWED_AFTER: u32 = 50_000;
/// Questions in flight on a socket: most ids stay free, so that one is found at once and guessed by nobody.
pub(crate) const SOCKET_QUESTIONS: usize = 16_384;
/// Room for answers that come while we do something else.
const BUFFER_BYTES: usize = 4 << 20;
/// So many questions without an answer between them, and a resolver is taken to be down.
const DOWN_AFTER: u32 = 20;
/// How often one that is down is asked.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The most that is asked at once, as a part of a second.
const BURST: f64 = 0.02;
/// An id that nobody has.
const FREE: u32 = u32::MAX;

/// What came of a resolver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ResolverCounts {
    /// Questions sent.
    pub(crate) asked: u64,
    /// Those it answered, in whatever way.
    pub(crate) answered: u64,
    /// Those it did not answer in time.
    pub(crate) silent: u64,
    /// Those it answered with a failure.
    pub(crate) failed: u64,
    /// Those that were asked by TCP.
    pub(crate) by_tcp: u64,
    /// What came and was no answer to a question.
    pub(crate) unfit: u64,
    /// Names it denied that another resolver knows.
    pub(crate) wrongly_denied: u64,
}

/// A resolver.
pub(crate) struct Resolver {
    pub(crate) address: SocketAddr,
    pub(crate) lanes: Vec<UdpLane>,
    pub(crate) counts: ResolverCounts,
    pub(crate) in_flight: usize,
    next_lane: usize,
    pace: Pace,
    health: Health,
}

/// A socket and the questions that are on their way on it.
pub(crate) struct UdpLane {
    pub(crate) socket: UdpSocket,
    /// The question of each id.
    ids: Box<[u32]>,
    in_flight: usize,
    sent: u32,
}

struct Pace {
    /// Questions a second; none for as many as there are.
    rate: Option<f64>,
    allowed: f64,
    filled: Instant,
}

struct Health {
    is_up: bool,
    /// Questions without an answer since the last one with.
    silent: u32,
    answered: Option<Instant>,
    probe_at: Instant,
    /// Since when it is down, and why.
    down_since: Option<Instant>,
    why: String,
}

impl Resolver {
    /// Opens its sockets.
    pub(crate) fn open(address: SocketAddr, rate: Option<u32>, now: Instant) -> io::Result<Self> {
        let lanes: io::Result<Vec<UdpLane>> =
            (0..SOCKETS).map(|_| UdpLane::open(address)).collect();
        Ok(Self {
            address,
            lanes: lanes?,
            counts: ResolverCounts::default(),
            in_flight: 0,
            next_lane: 0,
            pace: Pace {
                rate: rate.map(f64::from),
                allowed: 1.0,
                filled: now,
            },
            health: Health {
                is_up: true,
                silent: 0,
                answered: None,
                probe_at: now,
                down_since: None,
                why: String::new(),
            },
        })
    }

    /// Tells whether it is expected to answer.
    pub(crate) fn is_up(&self) -> bool {
        self.health.is_up
    }

    /// Returns since when it is taken to be down.
    pub(crate) fn down_since(&self) -> Option<Instant> {
        self.health.down_since
    }

    /// Returns why it is taken to be down.
    pub(crate) fn why_down(&self) -> &str {
        &self.health.why
    }

    /// Tells whether it is down and may be tried; it is not again for a while then.
    pub(crate) fn take_probe(&mut self, now: Instant) -> bool {
        let is_due = !self.health.is_up && self.health.probe_at <= now;
        if is_due {
            self.health.probe_at = now + PROBE_EVERY;
        }
        is_due
    }

    /// It said something.
    pub(crate) fn has_answered(&mut self, now: Instant) {
        self.health.silent = 0;
        self.health.answered = Some(now);
        if !self.health.is_up {
            self.health.is_up = true;
            self.health.down_since = None;
            tracing::info!(resolver = %self.address, "resolver answers again");
        }
    }

    /// It did not answer in time. Tells whether it is taken to be down now.
    pub(crate) fn was_silent(&mut self, now: Instant, timeout: Duration) -> bool {
        self.counts.silent += 1;
        self.health.silent = self.health.silent.saturating_add(1);
        let answered = self.health.answered;
        // A busy machine, ours or theirs, may be silent for a while.
        let patience = (timeout * 2).max(Duration::from_secs(2));
        let is_fresh = answered.is_some_and(|at| now.saturating_duration_since(at) < patience);
        let is_down = self.health.is_up && self.health.silent >= DOWN_AFTER && !is_fresh;
        if is_down {
            self.goes_down(now, "it does not answer".to_owned());
        }
        is_down
    }

    /// It cannot be reached. Tells whether it is taken to be down now.
    pub(crate) fn was_unreachable(&mut self, now: Instant, error: &io::Error) -> bool {
        let answered = self.health.answered;
        let is_fresh =
            answered.is_some_and(|at| now.saturating_duration_since(at) < Duration::from_secs(1));
        let is_down = self.health.is_up && !is_fresh;
        if is_down {
            self.goes_down(now, error.to_string());
        }
        is_down
    }

    fn goes_down(&mut self, now: Instant, why: String) {
        tracing::warn!(resolver = %self.address, why, "resolver is taken to be down");
        self.health.is_up = false;
        self.health.down_since = Some(now);
        self.health.probe_at = now + PROBE_EVERY;
        self.health.why = why;
    }

    /// Tells whether a question may be sent now; it counts.
    pub(crate) fn take_turn(&mut self, now: Instant) -> bool {
        self.pace.take(now)
    }

    /// Returns when the next question may be sent, if not now.
    pub(crate) fn next_turn(&self, now: Instant) -> Option<Duration> {
        self.pace.wait(now)
    }

    /// Returns a socket with room, if there is one, making new those that have served.
    pub(crate) fn lane(&mut self) -> io::Result<Option<(usize, Renewed)>> {
        for _ in 0..self.lanes.len() {
            self.next_lane = (self.next_lane + 1) % self.lanes.len();
            let at = self.next_lane;
            let lane = &mut self.lanes[at];
            if lane.sent >= RENEWED_AFTER {
                if lane.in_flight > 0 {
                    continue;
                }
                *lane = UdpLane::open(self.address)?;
                return Ok(Some((at, Renewed::Yes)));
            }
            if lane.in_flight < SOCKET_QUESTIONS {
                return Ok(Some((at, Renewed::No)));
            }
        }
        Ok(None)
    }
}

/// Whether a socket is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    No,
}

impl UdpLane {
    /// Opens a socket on a port that the kernel chooses. It is connected: what does not come from there does not come in,
    /// and a closed port is told at once.
    fn open(address: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        // The kernel gives what it allows.
        let _ = set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        Ok(Self {
            socket,
            ids: vec![FREE; 1 << 16].into(),
            in_flight: 0,
            sent: 0,
        })
    }

    /// Gives a question an id that nobody has; `random` is asked until there is one.
    pub(crate) fn take_id(&mut self, question: u32, mut random: impl FnMut() -> u16) -> u16 {
        loop {
            let id = random();
            let of = &mut self.ids[usize::from(id)];
            if *of == FREE {
                *of = question;
                self.in_flight += 1;
                self.sent += 1;
                return id;
            }
        }
    }

    /// Returns whose id this is.
    pub(crate) fn question(&self, id: u16) -> Option<u32> {
        Some(self.ids[usize::from(id)]).filter(|question| *question != FREE)
    }

    /// Gives an id back.
    pub(crate) fn release(&mut self, id: u16) {
        let of = &mut self.ids[usize::from(id)];
        if *of != FREE {
            *of = FREE;
            self.in_flight -= 1;
        }
    }
}

impl Pace {
    fn take(&mut self, now: Instant) -> bool {
        let Some(rate) = self.rate else { return true };
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.allowed = (self.allowed + since * rate).min((rate * BURST).max(1.0));
        self.filled = now;
        if self.allowed < 1.0 {
            return false;
        }
        self.allowed -= 1.0;
        true
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        let rate = self.rate?;
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        let missing = 1.0 - (self.allowed + since * rate);
        (missing > 0.0).then(|| Duration::from_secs_f64(missing / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_asked_than_the_rate_allows() {
        let begun = Instant::now();
        let mut pace = Pace {
            rate: Some(1000.0),
            allowed: 1.0,
            filled: begun,
        };
        let mut taken = 0;
        // Looked at every 3 ms for a second, and once after a pause of ten.
        for at in (0..1000).step_by(3).chain([11_000]) {
            let now = begun + Duration::from_millis(at);
            while pace.take(now) {
                taken += 1;
            }
            assert!(pace.wait(now).is_some());
        }
        assert!((980..=1021).contains(&taken), "{taken}");
    }

    #[test]
    fn a_silent_resolver_goes_down_and_is_tried_now_and_then() {
        let now = Instant::now();
        let timeout = Duration::from_secs(3);
        let address = (Ipv4Addr::LOCALHOST, 9).into();
        let mut resolver = Resolver::open(address, None, now).unwrap();
        for _ in 1..DOWN_AFTER {
            assert!(!resolver.was_silent(now, timeout));
        }
        assert!(resolver.was_silent(now, timeout));
        assert!(!resolver.is_up());
        assert!(!resolver.take_probe(now));
        let later = now + PROBE_EVERY;
        assert!(resolver.take_probe(later));
        assert!(!resolver.take_probe(later));
        resolver.has_answered(later);
        assert!(resolver.is_up());
        // Losses beside answers take nobody down.
        for _ in 0..100 {
            assert!(!resolver.was_silent(later + Duration::from_secs(1), timeout));
        }
    }

    #[test]
    fn ids_are_given_once_and_ports_change() {
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
        let mut lane = UdpLane::open(address).unwrap();
        let mut numbers = [7, 7, 7, 8].into_iter();
        assert_eq!(lane.take_id(1, || numbers.next().unwrap()), 7);
        assert_eq!(lane.take_id(2, || numbers.next().unwrap()), 8);
        assert_eq!((lane.question(7), lane.question(8)), (Some(1), Some(2)));
        lane.release(7);
        assert_eq!(lane.question(7), None);
        let mut resolver = Resolver::open(address, None, Instant::now()).unwrap();
        let port = |resolver: &Resolver| resolver.lanes[1].socket.local_addr().unwrap().port();
        let before = port(&resolver);
        resolver.lanes[1].sent = RENEWED_AFTER;
        assert_eq!(resolver.lane().unwrap(), Some((1, Renewed::Yes)));
        assert_ne!(port(&resolver), before);
    }
}
