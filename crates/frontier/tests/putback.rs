//! What is put back: nothing is counted, nobody waits for what was not asked, and the URL comes again, in its
//! queue's new group if it has one, whatever was killed in between.

#![expect(clippy::unwrap_used, reason = "a test may die")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ecluse_frontier::{
    Candidate, Disposition, Finished, Frontier, Item, Manners, Millis, Next, Outcome, Overrides,
    Precedence, QueueState, QueueStatus, Settings, UrlState,
};

fn settings() -> Settings {
    Settings {
        manners: Manners {
            min_delay: Duration::from_millis(100),
            max_delay: Duration::from_millis(100),
            ..Manners::default()
        },
        active_queues: 3,
        group_queues: 2,
        session_balance: 4,
        ..Settings::default()
    }
}

fn open(dir: &Path) -> Frontier {
    Frontier::open(dir, settings()).unwrap()
}

fn add(frontier: &mut Frontier, queue: &str, paths: std::ops::Range<u32>) {
    for path in paths {
        let url = format!("http://{queue}/{path}");
        frontier.add(&Candidate::new(&url, queue)).unwrap();
    }
}

/// How a queue is.
fn queue(frontier: &mut Frontier, name: &str) -> QueueStatus {
    let mut found = None;
    let walked = frontier.queues(|queue| {
        found = Some(queue).filter(|queue| queue.name == name);
        found.is_none()
    });
    walked.unwrap();
    found.unwrap()
}

fn fetch(frontier: &mut Frontier, now: u64) -> Item {
    match frontier.next(Millis(now), |_| None).unwrap() {
        Next::Fetch(item) => item,
        other => panic!("{other:?} at {now}"),
    }
}

fn put_back(frontier: &mut Frontier, now: u64, item: &Item, after: u64) {
    let outcome = Outcome::put_back(Duration::from_millis(after));
    let finished = frontier.finish(Millis(now), item.id, &outcome).unwrap();
    assert_eq!(finished, Finished::PutBack);
}

fn done(frontier: &mut Frontier, now: u64, item: &Item) {
    let outcome = Outcome::done(200, 10, Duration::ZERO);
    frontier.finish(Millis(now), item.id, &outcome).unwrap();
}

#[test]
fn nothing_is_counted_and_it_comes_behind_its_equals() {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = open(dir.path());
    add(&mut frontier, "a", 0..3);
    for _ in 0..50 {
        let item = fetch(&mut frontier, 1000);
        put_back(&mut frontier, 1000, &item, 0);
    }
    let item = fetch(&mut frontier, 1000);
    assert_eq!((item.url.as_str(), item.attempts), ("http://a/2", 0));
    assert_eq!(item.precedence, Precedence::NORMAL);
    put_back(&mut frontier, 1000, &item, 0);
    let queue = queue(&mut frontier, "a");
    assert_eq!((queue.state, queue.queued), (QueueState::Ready, 3));
    assert_eq!((queue.spent, queue.bytes, queue.last_status), (0, 0, 0));
    let counts = frontier.counts();
    assert_eq!((counts.queued, counts.done, counts.failed), (3, 0, 0));
    assert_eq!((counts.bytes, counts.retrying), (0, 0));
    let known = frontier.lookup(b"http://a/2").unwrap().unwrap();
    assert_eq!(known.state, UrlState::Queued { status: 0 });
    assert_eq!(known.attempts, 0);
}

#[test]
fn it_sleeps_as_long_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = open(dir.path());
    add(&mut frontier, "a", 0..1);
    let item = fetch(&mut frontier, 1000);
    put_back(&mut frontier, 1000, &item, 5000);
    let queue = queue(&mut frontier, "a");
    assert_eq!((queue.state, queue.queued), (QueueState::Retrying, 1));
    assert_eq!(
        frontier.next(Millis(1000), |_| None).unwrap(),
        Next::Wait(Millis(6000))
    );
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = open(dir.path());
    assert_eq!(
        frontier.next(Millis(1000), |_| None).unwrap(),
        Next::Wait(Millis(6000))
    );
    assert_eq!(fetch(&mut frontier, 6000).attempts, 0);
}

#[test]
fn who_was_asked_rests_and_who_was_not_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = open(dir.path());
    let wide = Overrides {
        connections: Some(2),
        ..Overrides::default()
    };
    frontier.set_overrides("a", wide).unwrap();
    add(&mut frontier, "a", 0..4);
    let first = fetch(&mut frontier, 1000);
    let second = fetch(&mut frontier, 1100);
    // As if only the first had been handed out.
    put_back(&mut frontier, 1120, &second, 0);
    let second = fetch(&mut frontier, 1120);
    // As if nothing had been handed out at 1000; what was handed out at 1120 still counts.
    put_back(&mut frontier, 1150, &first, 0);
    assert_eq!(
        frontier.next(Millis(1150), |_| None).unwrap(),
        Next::Wait(Millis(1220))
    );
    put_back(&mut frontier, 1150, &second, 0);
    let item = fetch(&mut frontier, 1150);
    let asked = Outcome {
        disposition: Disposition::PutBack {
            after: Duration::ZERO,
        },
        ..Outcome::done(200, 77, Duration::from_millis(10))
    };
    frontier.finish(Millis(1160), item.id, &asked).unwrap();
    assert_eq!(
        frontier.next(Millis(1160), |_| None).unwrap(),
        Next::Wait(Millis(1250))
    );
    assert_eq!(frontier.counts().bytes, 0);
}

#[test]
fn a_queue_that_changes_its_group_in_flight_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = open(dir.path());
    add(&mut frontier, "a", 0..2);
    add(&mut frontier, "b", 0..1);
    let mut moved = Vec::new();
    for _ in 0..2 {
        let item = fetch(&mut frontier, 1000);
        frontier.set_group(&item.queue, "ip:192.0.2.1").unwrap();
        put_back(&mut frontier, 1000, &item, 0);
        moved.push(item.queue);
    }
    assert_eq!(moved, ["a", "b"]);
    for (now, queue) in [(1000, "a"), (1100, "b"), (1200, "a")] {
        if now > 1000 {
            let next = frontier.next(Millis(now - 1), |_| None).unwrap();
            assert_eq!(next, Next::Wait(Millis(now)));
        }
        let item = fetch(&mut frontier, now);
        assert_eq!(
            (item.queue.as_str(), item.group.as_str()),
            (queue, "ip:192.0.2.1")
        );
        done(&mut frontier, now, &item);
    }
    assert_eq!(frontier.next(Millis(1200), |_| None).unwrap(), Next::Empty);
    assert_eq!(frontier.group("a").unwrap().unwrap().queues, 0);
    assert_eq!(frontier.group("ip:192.0.2.1").unwrap().unwrap().queues, 0);
}

/// Dice that fall the same way each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// An engine that learns addresses as it goes: the first URL of each queue is put back once its server is known.
/// It is killed at any moment, and every URL is done once after the last commit that says otherwise.
#[test]
fn addresses_are_learnt_under_kills() {
    const QUEUES: u32 = 12;
    const PATHS: u32 = 6;
    for seed in 1..40 {
        let dir = tempfile::tempdir().unwrap();
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed << 20));
        let mut frontier = open(dir.path());
        for queue in 0..QUEUES {
            add(&mut frontier, &format!("h{queue}"), 0..PATHS);
        }
        frontier.commit(b"").unwrap();
        let (mut done_now, mut done_then) = (BTreeSet::new(), BTreeSet::new());
        let mut flying: Vec<Item> = Vec::new();
        let (mut now, mut kills) = (1000, 0);
        loop {
            match dice.roll(40) {
                0 if kills < 20 => {
                    kills += 1;
                    drop(frontier);
                    frontier = open(dir.path());
                    flying.clear();
                    done_now.clone_from(&done_then);
                    continue;
                }
                1..4 => {
                    frontier.commit(b"").unwrap();
                    done_then.clone_from(&done_now);
                }
                4..20 if !flying.is_empty() => {
                    let item = flying.swap_remove(dice.roll(flying.len() as u64) as usize);
                    if item.group.starts_with("ip:") && dice.roll(4) > 0 {
                        assert!(done_now.insert(item.url.clone()), "{} twice", item.url);
                        done(&mut frontier, now, &item);
                    } else {
                        let number: u64 = item.queue[1..].parse().unwrap();
                        let address = format!("ip:{}", number % 4);
                        frontier.set_group(&item.queue, &address).unwrap();
                        let after = [0, 0, 30][dice.roll(3) as usize];
                        put_back(&mut frontier, now, &item, after);
                    }
                    continue;
                }
                _ => {}
            }
            match frontier.next(Millis(now), |_| None).unwrap() {
                Next::Fetch(item) => flying.push(item),
                Next::Wait(until) => now = until.0,
                Next::Missing(_) | Next::Idle => assert!(!flying.is_empty()),
                Next::Empty if flying.is_empty() => break,
                Next::Empty => panic!("empty with {} in flight", flying.len()),
            }
        }
        assert_eq!(done_now.len() as u32, QUEUES * PATHS);
        let counts = frontier.counts();
        assert_eq!((counts.queued, counts.done), (0, u64::from(QUEUES * PATHS)));
        assert_eq!((counts.retrying, counts.parked_queues), (0, 0));
        assert_eq!((counts.inactive_queues, counts.snoozed_queues), (0, 0));
        for group in (0..4).map(|number| format!("ip:{number}")) {
            let group = frontier.group(&group).unwrap().unwrap();
            assert_eq!(
                (group.queues, group.parked_queues, group.in_flight),
                (0, 0, 0)
            );
        }
    }
}
