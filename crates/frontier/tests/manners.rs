//! Manners, seen from the server: requests of one group are never closer than its delay, and never more than
//! its connections at once, under any schedule and across restarts; 429 and Retry-After are kept.

#![expect(clippy::unwrap_used, reason = "a test may die")]

use std::collections::BTreeMap;
use std::time::Duration;

use ecluse_frontier::{
    Candidate, Disposition, Frontier, Item, Manners, Millis, Next, Outcome, Overrides, QueueStatus,
    RestReason, Settings,
};
use proptest::prelude::*;

const MIN_DELAY: u64 = 100;

fn settings() -> Settings {
    Settings {
        manners: Manners {
            delay_factor: 2.0,
            min_delay: Duration::from_millis(MIN_DELAY),
            max_delay: Duration::from_millis(1000),
            backoff: Duration::from_millis(500),
            backoff_limit: Duration::from_secs(5),
            ..Manners::default()
        },
        session_balance: 5,
        active_queues: 4,
        group_queues: 2,
        long_snooze: Duration::from_millis(700),
        ..Settings::default()
    }
}

/// A server's log of one group.
#[derive(Default)]
struct Log {
    last_start: Option<u64>,
    /// From the end of the last request on, with one connection.
    not_before: u64,
    in_flight: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u16),
    /// Finish the n-th in flight: duration, status, Retry-After, Crawl-delay.
    Finish(u8, u16, i32, Option<u16>, Option<u16>),
    Commit,
    Restart(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let status =
        prop_oneof![6 => Just(200), 1 => Just(429), 1 => Just(503), 1 => Just(-2), 1 => Just(404)];
    let rare = || prop::option::weighted(0.1, 0..2000_u16);
    prop_oneof![
        10 => (0..400_u16).prop_map(Step::Wait),
        10 => (any::<u8>(), 0..600_u16, status, rare(), rare())
            .prop_map(|(which, duration, status, retry, crawl)| Step::Finish(which, duration, status, retry, crawl)),
        3 => Just(Step::Commit),
        1 => (0..150_u16).prop_map(Step::Restart),
    ]
}

fn connections(group: &str) -> u32 {
    if group == "g0" { 3 } else { 1 }
}

/// Takes all there is to fetch now and checks each against the server's log.
fn fetch_all(
    frontier: &mut Frontier,
    now: u64,
    logs: &mut BTreeMap<String, Log>,
    flying: &mut Vec<(Item, u64)>,
) {
    while let Next::Fetch(item) = frontier.next(Millis(now), |_| None).unwrap() {
        let told = logs.entry(item.queue.clone()).or_default().not_before;
        assert!(
            now >= told,
            "{} was asked at {now}, before {told}",
            item.queue
        );
        let log = logs.entry(item.group.clone()).or_default();
        assert!(
            now >= log.not_before,
            "{} was asked at {now}, before {}",
            item.group,
            log.not_before
        );
        if let Some(last) = log.last_start {
            assert!(
                now >= last + MIN_DELAY,
                "{} was asked at {last} and {now}",
                item.group
            );
        }
        log.last_start = Some(now);
        log.in_flight += 1;
        assert!(
            log.in_flight <= connections(&item.group),
            "{} is asked too often at once",
            item.group
        );
        flying.push((item, now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_group_is_asked_too_soon_or_too_often(steps in prop::collection::vec(step(), 1..200)) {
        let dir = tempfile::tempdir().unwrap();
        let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
        let wide = Overrides { connections: Some(3), ..Overrides::default() };
        frontier.set_overrides("g0", wide).unwrap();
        for number in 0..400 {
            let queue = format!("h{}", number % 9);
            let url = format!("http://{queue}/{number}");
            let group = format!("g{}", number % 3);
            let candidate = Candidate { group: &group, ..Candidate::new(&url, &queue) };
            frontier.add(&candidate).unwrap();
        }
        frontier.commit(b"").unwrap();
        let mut now = 1_000_000;
        let mut logs: BTreeMap<String, Log> = BTreeMap::new();
        let mut flying: Vec<(Item, u64)> = Vec::new();
        for step in steps {
            fetch_all(&mut frontier, now, &mut logs, &mut flying);
            match step {
                Step::Wait(wait) => now += u64::from(wait),
                Step::Commit => frontier.commit(b"").unwrap(),
                Step::Restart(pause) => {
                    drop(frontier);
                    now += u64::from(pause);
                    frontier = Frontier::open(dir.path(), settings()).unwrap();
                    flying.clear();
                    // The connections died with the process; what rests was asked for since the commit is lost,
                    // but for the shortest.
                    for log in logs.values_mut() {
                        log.in_flight = 0;
                        log.not_before = 0;
                    }
                }
                Step::Finish(which, duration, status, retry_after, crawl_delay) => {
                    if flying.is_empty() {
                        continue;
                    }
                    let (item, since) = flying.remove(usize::from(which) % flying.len());
                    now = now.max(since + u64::from(duration));
                    let duration = now - since;
                    let millis = |value: Option<u16>| value.map(|value| Duration::from_millis(value.into()));
                    let outcome = Outcome {
                        status,
                        bytes: 100,
                        fetch_duration: Some(Duration::from_millis(duration)),
                        overloaded: status == 429 || status == 503,
                        retry_after: millis(retry_after),
                        crawl_delay: millis(crawl_delay),
                        disposition: Disposition::Done,
                    };
                    frontier.finish(Millis(now), item.id, &outcome).unwrap();
                    let log = logs.get_mut(&item.group).unwrap();
                    log.in_flight -= 1;
                    if connections(&item.group) == 1 {
                        let rest = (2 * duration).clamp(MIN_DELAY, 1000).max(crawl_delay.unwrap_or(0).into());
                        log.not_before = log.not_before.max(now + rest);
                    }
                    // Who complains rests; its neighbours need not.
                    let told = &mut logs.get_mut(&item.queue).unwrap().not_before;
                    let overloaded = if outcome.overloaded { 500 } else { 0 };
                    *told = now + retry_after.map_or(overloaded, u64::from);
                }
            }
        }
    }
}

fn one_host(settings: Settings) -> (tempfile::TempDir, Frontier) {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = Frontier::open(dir.path(), settings).unwrap();
    for number in 0..50 {
        let url = format!("http://a/{number}");
        frontier.add(&Candidate::new(&url, "a")).unwrap();
    }
    (dir, frontier)
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

#[test]
fn retry_after_and_backoff_are_told_and_kept() {
    let (_dir, mut frontier) = one_host(settings());
    let item = fetch(&mut frontier, 1000);
    let mut outcome = Outcome::done(429, 0, Duration::from_millis(10));
    outcome.retry_after = Some(Duration::from_secs(7));
    outcome.disposition = Disposition::Retry {
        after: Duration::ZERO,
    };
    frontier.finish(Millis(1010), item.id, &outcome).unwrap();
    assert_eq!(
        frontier.next(Millis(1010), |_| None).unwrap(),
        Next::Wait(Millis(8010))
    );
    let group = frontier.slowest_group().unwrap();
    assert_eq!(
        (group.name.as_str(), group.why, group.backoff_level),
        ("a", RestReason::RetryAfter, 1)
    );
    assert_eq!(group.last_status, 429);
    // Without Retry-After the rest doubles.
    for (at, rest) in [(8010, 1000), (9010, 2000), (11_010, 4000), (15_010, 5000)] {
        let item = fetch(&mut frontier, at);
        let outcome = Outcome::done(503, 0, Duration::ZERO);
        frontier.finish(Millis(at), item.id, &outcome).unwrap();
        assert_eq!(
            frontier.next(Millis(at), |_| None).unwrap(),
            Next::Wait(Millis(at + rest))
        );
    }
    let status = queue(&mut frontier, "a");
    assert_eq!(
        status.state,
        ecluse_frontier::QueueState::Snoozed {
            until: Millis(20_010),
            why: RestReason::Backoff
        }
    );
}

#[test]
fn what_was_never_asked_for_costs_no_rest() {
    let (_dir, mut frontier) = one_host(settings());
    for _ in 0..10 {
        let item = fetch(&mut frontier, 1000);
        let mut outcome = Outcome::done(-9998, 0, Duration::ZERO);
        outcome.fetch_duration = None;
        frontier.finish(Millis(1000), item.id, &outcome).unwrap();
    }
    assert_eq!(frontier.counts().done, 10);
}

#[test]
fn the_rest_is_kept_across_a_restart_even_of_what_no_commit_knows() {
    let (dir, mut frontier) = one_host(settings());
    frontier.commit(b"").unwrap();
    let item = fetch(&mut frontier, 1000);
    frontier
        .finish(
            Millis(1000),
            item.id,
            &Outcome::done(200, 1, Duration::ZERO),
        )
        .unwrap();
    // Killed: the commit knows of no request at all.
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    assert_eq!(
        frontier.next(Millis(1050), |_| None).unwrap(),
        Next::Wait(Millis(1150))
    );
    let item = fetch(&mut frontier, 1150);
    frontier
        .finish(
            Millis(1150),
            item.id,
            &Outcome::done(200, 1, Duration::ZERO),
        )
        .unwrap();
    // Closed in good order: only what is left of the rest counts.
    frontier.pause(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    assert_eq!(
        frontier.next(Millis(1160), |_| None).unwrap(),
        Next::Wait(Millis(1250))
    );
    fetch(&mut frontier, 1250);
    frontier.commit(b"").unwrap();
    drop(frontier);
    // The clock was set back: nobody waits for the time to come again.
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    assert_eq!(
        frontier.next(Millis(200), |_| None).unwrap(),
        Next::Wait(Millis(300))
    );
    fetch(&mut frontier, 300);
}

#[test]
fn a_pause_is_a_good_order_until_somebody_is_asked() {
    let (dir, mut frontier) = one_host(settings());
    frontier.pause(b"mark").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    // Nobody was asked, nobody has to wait.
    let item = fetch(&mut frontier, 1000);
    let outcome = Outcome::done(200, 1, Duration::ZERO);
    frontier.finish(Millis(1000), item.id, &outcome).unwrap();
    frontier.pause(b"mark").unwrap();
    fetch(&mut frontier, 1100);
    // Killed: that somebody was asked since is known though nothing was committed.
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    assert_eq!(frontier.checkpoint(), Some(&b"mark"[..]));
    assert_eq!(
        frontier.next(Millis(1150), |_| None).unwrap(),
        Next::Wait(Millis(1250))
    );
}

#[test]
fn a_rest_that_no_commit_knows_can_be_told_after_a_crash() {
    let (dir, mut frontier) = one_host(settings());
    frontier.commit(b"").unwrap();
    let item = fetch(&mut frontier, 1000);
    let mut outcome = Outcome::done(200, 1, Duration::ZERO);
    outcome.retry_after = Some(Duration::from_secs(5));
    frontier.finish(Millis(1000), item.id, &outcome).unwrap();
    let rests = frontier.rests(&item.queue, &item.group).unwrap();
    assert_eq!(rests.group, Duration::from_secs(5));
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), settings()).unwrap();
    frontier
        .hold_group(Millis(1050), &item.group, Millis(6000), RestReason::Restart)
        .unwrap();
    assert_eq!(
        frontier.next(Millis(1050), |_| None).unwrap(),
        Next::Wait(Millis(6000))
    );
    let item = fetch(&mut frontier, 6000);
    let outcome = Outcome::done(200, 1, Duration::ZERO);
    frontier.finish(Millis(6000), item.id, &outcome).unwrap();
    let nobody = frontier.rests("nobody", "nobody").unwrap();
    assert_eq!(
        (nobody.queue, nobody.group),
        (Duration::ZERO, Duration::ZERO)
    );
    frontier
        .hold_queue(Millis(6000), "a", Millis(9000), RestReason::OtherJob)
        .unwrap();
    assert_eq!(
        frontier.next(Millis(6500), |_| None).unwrap(),
        Next::Wait(Millis(9000))
    );
    fetch(&mut frontier, 9000);
}

/// Two hosts of one address, with 50 URLs each.
fn two_hosts() -> (tempfile::TempDir, Frontier) {
    let mut settings = settings();
    settings.manners.address_delay = Duration::from_millis(30);
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = Frontier::open(dir.path(), settings).unwrap();
    for number in 0..50 {
        for queue in ["a", "b"] {
            let url = format!("http://{queue}/{number}");
            let candidate = Candidate {
                group: "ip:192.0.2.1",
                ..Candidate::new(&url, queue)
            };
            frontier.add(&candidate).unwrap();
        }
    }
    (dir, frontier)
}

#[test]
fn a_host_rests_by_its_manners_and_its_address_shorter() {
    let (_dir, mut frontier) = two_hosts();
    let first = fetch(&mut frontier, 1000);
    assert_eq!(frontier.next(Millis(1000), |_| None).unwrap(), Next::Idle);
    let outcome = Outcome::done(200, 1, Duration::from_millis(200));
    frontier.finish(Millis(1200), first.id, &outcome).unwrap();
    assert_eq!(
        frontier.next(Millis(1200), |_| None).unwrap(),
        Next::Wait(Millis(1230))
    );
    let second = fetch(&mut frontier, 1230);
    assert_ne!(first.queue, second.queue);
    let outcome = Outcome::done(200, 1, Duration::from_millis(10));
    frontier.finish(Millis(1240), second.id, &outcome).unwrap();
    // Twice the duration for the first, the shortest for the second.
    assert_eq!(
        frontier.next(Millis(1270), |_| None).unwrap(),
        Next::Wait(Millis(1340))
    );
    assert_eq!(fetch(&mut frontier, 1340).queue, second.queue);
}

#[test]
fn an_address_rests_for_a_complaint_when_a_second_host_makes_it() {
    let (_dir, mut frontier) = two_hosts();
    let complain = |frontier: &mut Frontier, now, item: &Item| {
        let mut outcome = Outcome::done(503, 1, Duration::ZERO);
        outcome.retry_after = Some(Duration::from_secs(60));
        frontier.finish(Millis(now), item.id, &outcome).unwrap();
    };
    let first = fetch(&mut frontier, 1000);
    complain(&mut frontier, 1000, &first);
    let mut now = 1030;
    for _ in 0..5 {
        let other = fetch(&mut frontier, now);
        assert_ne!(other.queue, first.queue);
        let outcome = Outcome::done(200, 1, Duration::ZERO);
        frontier.finish(Millis(now), other.id, &outcome).unwrap();
        now += MIN_DELAY;
    }
    let group = |frontier: &mut Frontier| frontier.group("ip:192.0.2.1").unwrap().unwrap();
    assert_eq!(group(&mut frontier).backoff_level, 0);
    let other = fetch(&mut frontier, now);
    complain(&mut frontier, now, &other);
    let group = group(&mut frontier);
    assert_eq!(group.next_allowed, Millis(now + 60_000));
    assert_eq!(group.why, RestReason::RetryAfter);
}

#[test]
fn a_group_with_room_has_several_requests_at_once() {
    let (_dir, mut frontier) = one_host(settings());
    let wide = Overrides {
        min_delay: Some(Duration::from_millis(10)),
        connections: Some(3),
        ..Overrides::default()
    };
    frontier.set_overrides("a", wide).unwrap();
    let first = fetch(&mut frontier, 1000);
    assert_eq!(
        frontier.next(Millis(1000), |_| None).unwrap(),
        Next::Wait(Millis(1010))
    );
    fetch(&mut frontier, 1010);
    fetch(&mut frontier, 1020);
    assert_eq!(frontier.next(Millis(1500), |_| None).unwrap(), Next::Idle);
    frontier
        .finish(
            Millis(1500),
            first.id,
            &Outcome::done(200, 1, Duration::from_millis(30)),
        )
        .unwrap();
    fetch(&mut frontier, 1500);
}

#[test]
fn a_group_gives_no_more_bytes_than_it_may() {
    let (_dir, mut frontier) = one_host(settings());
    let narrow = Overrides {
        bytes_per_second: Some(1000),
        ..Overrides::default()
    };
    frontier.set_overrides("a", narrow).unwrap();
    let item = fetch(&mut frontier, 1000);
    let outcome = Outcome::done(200, 5000, Duration::from_millis(200));
    frontier.finish(Millis(1200), item.id, &outcome).unwrap();
    let group = frontier.group("a").unwrap().unwrap();
    assert_eq!(group.next_allowed, Millis(6000));
    assert_eq!(group.why, RestReason::Bandwidth);
    assert_eq!(
        frontier.next(Millis(1200), |_| None).unwrap(),
        Next::Wait(Millis(6000))
    );
    // A group may be told that it has no limit.
    let free = Overrides {
        bytes_per_second: Some(u64::MAX),
        ..Overrides::default()
    };
    frontier.set_overrides("a", free).unwrap();
    let item = fetch(&mut frontier, 6000);
    let outcome = Outcome::done(200, u64::MAX, Duration::from_millis(50));
    frontier.finish(Millis(6050), item.id, &outcome).unwrap();
    assert_eq!(
        frontier.next(Millis(6050), |_| None).unwrap(),
        Next::Wait(Millis(6150))
    );
}

#[test]
fn what_is_left_is_told_apart_by_why_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = Frontier::open(dir.path(), Settings::default()).unwrap();
    for url in ["http://a/1", "http://a/2", "http://b/1"] {
        let queue = &url[7..8];
        frontier.add(&Candidate::new(url, queue)).unwrap();
    }
    let mut ends = |status, disposition| {
        let Next::Fetch(item) = frontier.next(Millis(1), |_| None).unwrap() else {
            panic!("there is something to fetch");
        };
        let outcome = Outcome {
            disposition,
            ..Outcome::done(status, 1, Duration::from_millis(1))
        };
        frontier.finish(Millis(1), item.id, &outcome).unwrap();
        frontier.is_left_with_failures()
    };
    let later = Disposition::Retry {
        after: Duration::from_secs(900),
    };
    // The other group was not asked yet; then the first rests as it always does.
    assert!(!ends(200, Disposition::Done));
    assert!(!ends(-2, later));
    let mut frontier = Frontier::open(&dir.path().join("other"), Settings::default()).unwrap();
    for url in ["http://a/1", "http://a/2"] {
        frontier.add(&Candidate::new(url, "a")).unwrap();
    }
    let Next::Fetch(item) = frontier.next(Millis(1), |_| None).unwrap() else {
        panic!("there is something to fetch");
    };
    let outcome = Outcome::done(503, 1, Duration::from_millis(1));
    frontier.finish(Millis(1), item.id, &outcome).unwrap();
    assert!(frontier.is_left_with_failures());
}
