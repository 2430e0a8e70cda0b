//! The frontier beside a model in memory: whatever is added, fetched, finished, changed and dropped without a
//! commit, both agree on every URL; and at the end every URL that may be fetched is fetched once.

#![expect(clippy::unwrap_used, reason = "a test may die")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ecluse_frontier::{
    Budget, Candidate, Disposition, Finished, Frontier, Item, ItemId, Manners, Memory, Millis,
    Next, NoteKind, Outcome, Overrides, Precedence, Prerequisite, Settings, UrlState,
};
use proptest::prelude::*;

const HOSTS: u8 = 6;
const RETRIES: u32 = 2;
const PUT_BACK: u8 = 6;
const PUT_BACK_LATER: u8 = 7;

fn settings() -> Settings {
    Settings {
        manners: Manners {
            min_delay: Duration::from_millis(50),
            max_delay: Duration::from_millis(200),
            backoff: Duration::from_millis(100),
            backoff_limit: Duration::from_millis(800),
            ..Manners::default()
        },
        error_penalty: 1,
        session_balance: 3,
        retries: RETRIES,
        long_snooze: Duration::from_millis(150),
        active_queues: 3,
        group_queues: 2,
        // Everything small, so that everything spills, is cut and is read again.
        memory: Memory {
            changes: 4096,
            filters: 4096,
            heads: 600,
            records: 4,
            blocks: 2,
        },
        ..Settings::default()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Add {
        host: u8,
        path: u8,
        precedence: u8,
        force: bool,
    },
    /// A URL that may wait is to go before others.
    Raise {
        host: u8,
        path: u8,
        by: u8,
    },
    Next {
        later: u16,
    },
    Finish {
        which: u8,
        how: u8,
    },
    /// Put what is in flight into another group, then back: as when the server's address becomes known.
    Learn {
        which: u8,
        group: u8,
        at_once: bool,
    },
    /// Take a queue's budget away, or give it back.
    Retire(u8),
    Unretire(u8),
    Regroup(u8, u8),
    /// Something is missing that all URLs of a host need, or is there again.
    Miss(u8),
    Fulfil(u8),
    /// A value of so many bytes; a few are longer than what a block's offsets reach.
    Note(u8, u32),
    Commit,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        30 => (0..HOSTS, 0..40_u8, 0..4_u8, prop::bool::weighted(0.1))
            .prop_map(|(host, path, precedence, force)| Act::Add { host, path, precedence, force }),
        10 => (0..HOSTS, 0..40_u8, 0..3_u8).prop_map(|(host, path, by)| Act::Raise { host, path, by }),
        20 => (0..200_u16).prop_map(|later| Act::Next { later }),
        20 => (any::<u8>(), 0..9_u8).prop_map(|(which, how)| Act::Finish { which, how }),
        6 => (any::<u8>(), 0..3_u8, any::<bool>()).prop_map(|(which, group, at_once)| Act::Learn { which, group, at_once }),
        1 => (0..HOSTS).prop_map(Act::Retire),
        2 => (0..HOSTS).prop_map(Act::Unretire),
        1 => (0..HOSTS, 0..3_u8).prop_map(|(host, group)| Act::Regroup(host, group)),
        3 => (0..HOSTS).prop_map(Act::Miss),
        4 => (0..HOSTS).prop_map(Act::Fulfil),
        8 => (0..60_u8, prop_oneof![9 => 0..200_u32, 1 => 60_000..70_000_u32])
            .prop_map(|(key, bytes)| Act::Note(key, bytes)),
        4 => Just(Act::Commit),
        1 => Just(Act::Reopen),
    ]
}

#[derive(Clone, PartialEq, Debug)]
enum State {
    Queued {
        precedence: u8,
        attempts: u32,
        order: u64,
    },
    /// Waits for its retry.
    Sleeping {
        precedence: u8,
        attempts: u32,
        until: u64,
    },
    Finished {
        status: i32,
        good: bool,
    },
}

#[derive(Clone, Default)]
struct Model {
    urls: BTreeMap<(u8, u8), State>,
    /// The group of each queue.
    queues: BTreeMap<u8, String>,
    retired: BTreeSet<u8>,
    notes: BTreeMap<(NoteKind, Vec<u8>), Vec<u8>>,
    /// Number and precedence of each URL when it was added or raised.
    numbers: BTreeMap<(u8, u8), (ItemId, u8)>,
    order: u64,
}

impl Model {
    /// What may be fetched now: retries whose time has come are queued behind what was added before.
    fn wake(&mut self, now: u64) {
        // The order among those that wake together is the frontier's affair.
        self.order += 1;
        let order = self.order;
        for state in self.urls.values_mut() {
            if let State::Sleeping {
                precedence,
                attempts,
                until,
            } = *state
                && until <= now
            {
                *state = State::Queued {
                    precedence,
                    attempts,
                    order,
                };
            }
        }
    }

    fn waits(&self, host: u8) -> bool {
        !self.retired.contains(&host)
    }
}

/// One group may be asked three things at once.
fn widen(frontier: &mut Frontier) {
    let overrides = Overrides {
        connections: Some(3),
        ..Overrides::default()
    };
    frontier.set_overrides("g1", overrides).unwrap();
}

struct Pair<'a> {
    dir: &'a Path,
    frontier: Option<Frontier>,
    model: Model,
    committed: Model,
    commits: u32,
    flying: BTreeMap<(u8, u8), ItemId>,
    /// Hosts whose URLs miss something.
    missing: BTreeSet<u8>,
    now: u64,
}

fn url(host: u8, path: u8) -> String {
    format!(
        "http://h{host}.example/{path}/{}",
        "long".repeat(usize::from(path % 7) * 5)
    )
}

fn host(number: u8) -> String {
    format!("h{number}.example")
}

fn parse(url: &str) -> (u8, u8) {
    let rest = url.strip_prefix("http://h").unwrap();
    let (host, rest) = rest.split_once(".example/").unwrap();
    (
        host.parse().unwrap(),
        rest.split_once('/').unwrap().0.parse().unwrap(),
    )
}

/// Notes of three kinds, with keys of every length; some begin as others do.
fn note_name(number: u8) -> (NoteKind, Vec<u8>) {
    let length = usize::from(number) * 7 % (NoteKind::KEY_BYTES + 1);
    let first = if number.is_multiple_of(5) {
        0xff
    } else {
        number
    };
    let mut name = vec![0xff; length];
    if let Some(byte) = name.first_mut() {
        *byte = first;
    }
    (NoteKind([0, 7, 255][usize::from(number % 3)]), name)
}

impl Pair<'_> {
    fn frontier(&mut self) -> &mut Frontier {
        self.frontier.as_mut().unwrap()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Add {
                host,
                path,
                precedence,
                force,
            } => self.add(host, path, precedence, force),
            Act::Raise { host, path, by } => self.raise((host, path), by),
            Act::Next { later } => {
                self.now += u64::from(later);
                self.next();
            }
            Act::Finish { which, how } => self.finish(which, how),
            Act::Retire(number) if self.model.queues.contains_key(&number) => {
                let none = Budget {
                    urls: Some(0),
                    ..Budget::default()
                };
                let taken = self.frontier().set_budget(&host(number), Some(none));
                taken.unwrap();
                self.model.retired.insert(number);
            }
            Act::Unretire(number) if self.model.queues.contains_key(&number) => {
                self.frontier().set_budget(&host(number), None).unwrap();
                self.model.retired.remove(&number);
            }
            Act::Regroup(number, group) if self.model.queues.contains_key(&number) => {
                self.regroup(number, group);
            }
            Act::Learn {
                which,
                group,
                at_once,
            } => {
                let flying: Vec<u8> = self.flying.keys().map(|(host, _)| *host).collect();
                if !flying.is_empty() {
                    self.regroup(flying[usize::from(which) % flying.len()], group);
                    self.agree();
                    self.finish(which, if at_once { PUT_BACK } else { PUT_BACK_LATER });
                }
            }
            Act::Miss(number) => {
                self.missing.insert(number);
            }
            Act::Fulfil(number) => self.fulfil(number),
            Act::Retire(number) | Act::Unretire(number) | Act::Regroup(number, _) => {
                assert!(self.frontier().set_budget(&host(number), None).is_err());
            }
            Act::Note(key, bytes) => {
                let (kind, name) = note_name(key);
                let value = vec![key; bytes as usize];
                self.frontier().note(kind, &name, &value).unwrap();
                self.model.notes.insert((kind, name), value);
            }
            Act::Commit => {
                self.commits += 1;
                let checkpoint = self.commits.to_le_bytes();
                self.frontier().commit(&checkpoint).unwrap();
                self.committed = self.model.clone();
            }
            Act::Reopen => self.reopen(),
        }
        self.agree();
    }

    fn fulfil(&mut self, number: u8) {
        self.missing.remove(&number);
        self.frontier().fulfil(&host(number));
    }

    fn regroup(&mut self, number: u8, group: u8) {
        let group = format!("g{group}");
        self.frontier().set_group(&host(number), &group).unwrap();
        self.model.queues.insert(number, group);
    }

    fn reopen(&mut self) {
        self.frontier = None;
        let frontier = Frontier::open(self.dir, settings()).unwrap();
        let expected = (self.commits > 0).then(|| self.commits.to_le_bytes());
        assert_eq!(
            frontier.checkpoint(),
            expected.as_ref().map(|bytes| &bytes[..])
        );
        self.frontier = Some(frontier);
        widen(self.frontier());
        self.model = self.committed.clone();
        self.flying.clear();
    }

    fn add(&mut self, number: u8, path: u8, precedence: u8, force: bool) {
        let (url, queue) = (url(number, path), host(number));
        let group = format!("g{}", number / 3);
        let candidate = Candidate {
            group: &group,
            precedence: Precedence(precedence),
            via: "http://h0.example/via",
            hops: "LE",
            source: "tag",
            force,
            ..Candidate::new(&url, &queue)
        };
        let added = self.frontier().add_numbered(&candidate).unwrap();
        let known = self.model.urls.get(&(number, path));
        let is_new = match known {
            None => true,
            Some(State::Finished { .. }) if force => true,
            Some(_) => false,
        };
        assert_eq!(added.is_some(), is_new);
        if let Some(item) = added {
            let at = (number, path);
            self.model.numbers.insert(at, (item, precedence));
            self.model.order += 1;
            let order = self.model.order;
            let state = State::Queued {
                precedence,
                attempts: 0,
                order,
            };
            self.model.urls.insert((number, path), state);
            self.model.queues.entry(number).or_insert(group);
        }
    }

    /// What waits at its first place goes forward; anything else is left as it is.
    fn raise(&mut self, at: (u8, u8), by: u8) {
        let Some((item, from)) = self.model.numbers.get(&at).copied() else {
            return;
        };
        let to = from.saturating_sub(by);
        let (old, new) = (Precedence(from), Precedence(to));
        let is_raised = self.frontier().raise(&host(at.0), item, old, new);
        if !is_raised.unwrap() {
            return;
        }
        assert!(to < from && !self.flying.contains_key(&at));
        let State::Queued { precedence, .. } = self.model.urls.get_mut(&at).unwrap() else {
            panic!("{at:?} does not wait");
        };
        assert_eq!(*precedence, from);
        *precedence = to;
        self.model.numbers.insert(at, (item, to));
    }

    fn next(&mut self) {
        let now = self.now;
        self.model.wake(now);
        let (model, flying) = (&self.model, &self.flying);
        let waiting = |(at, state): &(&(u8, u8), &State)| {
            model.waits(at.0)
                && !flying.contains_key(at)
                && matches!(state, State::Queued { .. } | State::Sleeping { .. })
        };
        let waiting = model.urls.iter().filter(waiting).count();
        let missing = |item: &Item| {
            let is_missing = self.missing.contains(&parse(&item.url).0);
            is_missing.then(|| Prerequisite {
                name: item.queue.clone(),
                until: Millis(now + 500),
            })
        };
        let next = self.frontier.as_mut().unwrap().next(Millis(now), missing);
        match next.unwrap() {
            Next::Missing(item) => {
                let at = parse(&item.url);
                assert!(self.missing.contains(&at.0) && self.model.waits(at.0));
                assert!(!self.flying.contains_key(&at), "{} twice", item.url);
            }
            Next::Empty => assert_eq!((waiting, self.flying.len()), (0, 0)),
            Next::Idle => assert!(!self.flying.is_empty()),
            Next::Wait(until) => {
                // A URL that sleeps wakes at its time, even if its queue is retired meanwhile.
                let asleep = |state: &State| matches!(state, State::Sleeping { .. });
                let asleep = self.model.urls.values().any(asleep);
                let retired = !self.model.retired.is_empty();
                assert!(until > Millis(now) && (waiting > 0 || asleep || retired));
            }
            Next::Fetch(item) => {
                let at = parse(&item.url);
                let State::Queued {
                    precedence,
                    attempts,
                    order,
                } = self.model.urls[&at]
                else {
                    panic!("{} is {:?}", item.url, self.model.urls[&at]);
                };
                assert!(self.model.waits(at.0), "{} is in a retired queue", item.url);
                assert!(
                    !self.missing.contains(&at.0),
                    "{} misses something",
                    item.url
                );
                assert_eq!((item.precedence.0, item.attempts), (precedence, attempts));
                assert_eq!(item.group, self.model.queues[&at.0]);
                assert_eq!(
                    (item.via.as_str(), item.hops.as_str()),
                    ("http://h0.example/via", "LE")
                );
                let better = self.model.urls.iter().find(|(other, state)| {
                    other.0 == at.0
                        && !self.flying.contains_key(other)
                        && matches!(state, State::Queued { precedence: p, order: o, .. } if (*p, *o) < (precedence, order))
                });
                assert_eq!(better, None, "before {}", item.url);
                assert_eq!(self.flying.insert(at, item.id), None, "{} twice", item.url);
            }
        }
    }

    fn finish(&mut self, which: u8, how: u8) {
        assert!(
            self.frontier()
                .finish(
                    Millis(0),
                    ItemId(u64::MAX),
                    &Outcome::done(200, 1, Duration::ZERO)
                )
                .is_err()
        );
        let count = self.flying.len();
        if count == 0 {
            return;
        }
        let (at, id) = self
            .flying
            .iter()
            .nth(usize::from(which) % count)
            .map(|(at, id)| (*at, *id))
            .unwrap();
        self.flying.remove(&at);
        let mut outcome = Outcome::done(200, 10, Duration::from_millis(20));
        match how {
            0 => outcome.disposition = Disposition::Failed,
            1 => {
                outcome = Outcome::done(503, 10, Duration::from_millis(20));
                outcome.retry_after = Some(Duration::from_millis(300));
                outcome.disposition = Disposition::Retry {
                    after: Duration::from_millis(120),
                };
            }
            2 => outcome = Outcome::done(429, 10, Duration::from_millis(20)),
            PUT_BACK => outcome = Outcome::put_back(Duration::ZERO),
            PUT_BACK_LATER => outcome = Outcome::put_back(Duration::from_millis(60)),
            // Somebody was asked, and the URL is to be fetched all the same.
            8 => {
                outcome.disposition = Disposition::PutBack {
                    after: Duration::ZERO,
                };
            }
            _ => {}
        }
        let now = Millis(self.now);
        let bytes = self.frontier().counts().bytes;
        let finished = self.frontier().finish(now, id, &outcome).unwrap();
        assert!(
            self.frontier().finish(now, id, &outcome).is_err(),
            "finished twice"
        );
        let State::Queued {
            precedence,
            attempts,
            ..
        } = self.model.urls[&at]
        else {
            panic!("a URL in flight is queued");
        };
        let state = match finished {
            Finished::Done => State::Finished {
                status: outcome.status,
                good: true,
            },
            Finished::Failed => State::Finished {
                status: outcome.status,
                good: false,
            },
            Finished::GivenUp => {
                assert_eq!(attempts, RETRIES);
                State::Finished {
                    status: outcome.status,
                    good: false,
                }
            }
            Finished::Retrying { at, attempts } => State::Sleeping {
                precedence,
                attempts,
                until: at.0,
            },
            Finished::PutBack => {
                assert_eq!(self.frontier().counts().bytes, bytes);
                self.model.order += 1;
                let order = self.model.order;
                match how {
                    PUT_BACK_LATER => State::Sleeping {
                        precedence,
                        attempts,
                        until: now.0 + 60,
                    },
                    _ => State::Queued {
                        precedence,
                        attempts,
                        order,
                    },
                }
            }
        };
        self.model.urls.insert(at, state);
    }

    fn agree(&mut self) {
        let counts = self.frontier().counts();
        assert_eq!(counts.known, self.model.urls.len() as u64);
        assert_eq!(counts.in_flight, self.flying.len() as u64);
        assert_eq!(counts.queues, self.model.queues.len() as u64);
        // A queue without budget is retired when its turn comes.
        assert!(counts.retired_queues <= self.model.retired.len() as u64);
        let open = |state: &&State| !matches!(state, State::Finished { .. });
        let open = self.model.urls.values().filter(open).count();
        assert_eq!(counts.queued + counts.in_flight, open as u64);
        let held = self.model.urls.iter().filter(|(at, state)| {
            !self.model.waits(at.0) && !matches!(state, State::Finished { .. })
        });
        assert!(counts.retired_urls <= held.count() as u64);
    }

    /// Every URL is what the model says it is.
    fn agree_on_urls(&mut self) {
        for (at, state) in self.model.urls.clone() {
            let known = self
                .frontier()
                .lookup(url(at.0, at.1).as_bytes())
                .unwrap()
                .unwrap();
            assert_eq!(known.queue.unwrap().name, host(at.0));
            match (known.state, state) {
                (UrlState::InFlight { .. }, State::Queued { .. }) => {
                    assert!(self.flying.contains_key(&at));
                }
                (UrlState::Queued { .. }, State::Queued { .. } | State::Sleeping { .. }) => {}
                (
                    UrlState::Done { status },
                    State::Finished {
                        status: expected,
                        good: true,
                    },
                )
                | (
                    UrlState::Failed { status },
                    State::Finished {
                        status: expected,
                        good: false,
                    },
                ) => {
                    assert_eq!(status, expected);
                }
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        }
        self.agree_on_notes();
        assert_eq!(
            self.frontier()
                .lookup(b"http://elsewhere.example/")
                .unwrap(),
            None
        );
    }

    fn agree_on_notes(&mut self) {
        let mut found = BTreeMap::new();
        for kind in [0, 7, 255].map(NoteKind) {
            let mut last: Option<Vec<u8>> = None;
            let each = |key: &[u8], value: &[u8]| {
                assert!(last.as_deref() < Some(key));
                last = Some(key.to_vec());
                found.insert((kind, key.to_vec()), value.to_vec());
                true
            };
            self.frontier.as_ref().unwrap().notes(kind, each).unwrap();
        }
        assert_eq!(found, self.model.notes);
        for number in 0..60 {
            let (kind, name) = note_name(number);
            let noted = self.frontier().noted(kind, &name).unwrap();
            assert_eq!(noted.as_ref(), found.get(&(kind, name)));
        }
    }

    /// Fetches what is left, but for retired queues.
    fn drain(&mut self) {
        for number in 0..HOSTS {
            self.fulfil(number);
        }
        for _ in 0..100_000 {
            while !self.flying.is_empty() {
                self.finish(0, 5);
            }
            self.now += 40;
            self.next();
            let left = self.model.urls.iter().any(|(at, state)| {
                self.model.waits(at.0) && !matches!(state, State::Finished { .. })
            });
            if !left {
                return;
            }
        }
        panic!("URLs are never handed out");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_frontier_is_its_model(acts in prop::collection::vec(act(), 1..500)) {
        let dir = tempfile::tempdir().unwrap();
        let mut pair = Pair {
            dir: dir.path(),
            frontier: Some(Frontier::open(dir.path(), settings()).unwrap()),
            model: Model::default(),
            committed: Model::default(),
            commits: 0,
            flying: BTreeMap::new(),
            missing: BTreeSet::new(),
            now: 1_000_000,
        };
        widen(pair.frontier());
        for act in acts {
            pair.act(act);
        }
        pair.agree_on_urls();
        pair.act(Act::Commit);
        pair.act(Act::Reopen);
        pair.agree_on_notes();
        pair.drain();
        pair.agree();
        pair.act(Act::Commit);
        pair.act(Act::Reopen);
        pair.agree_on_urls();
    }
}
