//! What each part of the frontier promises: order, fairness, prerequisites, budgets, retries, groups, limits.

#![expect(clippy::unwrap_used, reason = "a test may die")]

use std::collections::BTreeMap;
use std::time::Duration;

use ecluse_frontier::{
    Added, Budget, Candidate, Disposition, Finished, Frontier, FrontierError, Item, Manners,
    Millis, Next, NoteKind, Outcome, Precedence, Prerequisite, QueueState, QueueStatus, Retired,
    Settings, UrlState,
};

/// No waiting, so that a test sees the order alone.
fn eager() -> Settings {
    Settings {
        manners: Manners {
            min_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            ..Manners::default()
        },
        ..Settings::default()
    }
}

fn open(settings: Settings) -> (tempfile::TempDir, Frontier) {
    let dir = tempfile::tempdir().unwrap();
    let frontier = Frontier::open(dir.path(), settings).unwrap();
    (dir, frontier)
}

fn add(frontier: &mut Frontier, queue: &str, paths: std::ops::Range<u32>) {
    for path in paths {
        let url = format!("http://{queue}/{path}");
        assert_eq!(
            frontier.add(&Candidate::new(&url, queue)).unwrap(),
            Added::New
        );
    }
}

fn try_fetch(frontier: &mut Frontier, now: u64) -> Option<Item> {
    match frontier.next(Millis(now), |_| None).unwrap() {
        Next::Fetch(item) => Some(item),
        Next::Missing(_) | Next::Wait(_) | Next::Idle | Next::Empty => None,
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

fn good() -> Outcome {
    Outcome::done(200, 1000, Duration::ZERO)
}

/// Fetches up to `count` URLs one by one and says from which queues.
fn crawl(frontier: &mut Frontier, now: u64, count: usize) -> Vec<String> {
    let mut queues = Vec::new();
    while queues.len() < count
        && let Some(item) = try_fetch(frontier, now)
    {
        frontier.finish(Millis(now), item.id, &good()).unwrap();
        queues.push(item.queue);
    }
    queues
}

fn tally(queues: &[String]) -> BTreeMap<&str, usize> {
    let mut tally = BTreeMap::new();
    for queue in queues {
        *tally.entry(queue.as_str()).or_default() += 1;
    }
    tally
}

#[test]
fn precedence_first_then_first_come() {
    let (_dir, mut frontier) = open(eager());
    let precedences = [
        Precedence::NORMAL,
        Precedence::REQUISITE,
        Precedence::SEED,
        Precedence::NORMAL,
    ];
    for (number, precedence) in precedences.into_iter().enumerate() {
        let url = format!("http://a/{number}");
        let candidate = Candidate {
            precedence,
            ..Candidate::new(&url, "a")
        };
        frontier.add(&candidate).unwrap();
    }
    let mut order = Vec::new();
    while let Some(item) = try_fetch(&mut frontier, 1) {
        if order.is_empty() {
            // Found on the way: goes before the links that wait.
            let candidate = Candidate {
                precedence: Precedence::REDIRECT,
                ..Candidate::new("http://a/4", "a")
            };
            frontier.add(&candidate).unwrap();
        }
        frontier.finish(Millis(1), item.id, &good()).unwrap();
        order.push(item.url.chars().next_back().unwrap());
    }
    assert_eq!(order, ['2', '4', '1', '0', '3']);
    assert_eq!(frontier.next(Millis(1), |_| None).unwrap(), Next::Empty);
}

#[test]
fn queues_take_turns_and_sessions_give_everyone_a_place() {
    let settings = Settings {
        active_queues: 2,
        session_balance: 10,
        ..eager()
    };
    let (_dir, mut frontier) = open(settings);
    for queue in ["a", "b", "c", "d", "e"] {
        add(&mut frontier, queue, 0..100);
    }
    let queues = crawl(&mut frontier, 1, 20);
    assert_eq!(queues[..4], ["a", "b", "a", "b"]);
    assert_eq!(tally(&queues), BTreeMap::from([("a", 10), ("b", 10)]));
    let queues = crawl(&mut frontier, 1, 230);
    let shares = tally(&queues);
    assert_eq!(shares.len(), 5);
    assert!(
        shares.values().all(|share| (30..=60).contains(share)),
        "{shares:?}"
    );
    crawl(&mut frontier, 1, 1000);
    assert_eq!(frontier.counts().done, 500);
    assert_eq!(frontier.counts().active_queues, 0);
}

#[test]
fn a_url_that_waits_goes_forward_when_it_is_raised() {
    let low = Precedence(Precedence::NORMAL.0 + 8);
    let dir = tempfile::tempdir().unwrap();
    let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
    let mut numbers = Vec::new();
    for path in 0..5 {
        let url = format!("http://a/{path}");
        let candidate = Candidate {
            precedence: low,
            ..Candidate::new(&url, "a")
        };
        numbers.push(frontier.add_numbered(&candidate).unwrap().unwrap());
        assert_eq!(frontier.add_numbered(&candidate).unwrap(), None);
    }
    // Not yet in memory; then one in flight and one that waits in memory; then one before a reopening.
    let high = Precedence::NORMAL;
    assert!(frontier.raise("a", numbers[3], low, high).unwrap());
    assert!(!frontier.raise("a", numbers[3], low, high).unwrap());
    let flying = try_fetch(&mut frontier, 1).unwrap();
    assert_eq!(flying.url, "http://a/3");
    assert!(
        !frontier
            .raise("a", numbers[3], high, Precedence::SEED)
            .unwrap()
    );
    assert!(frontier.raise("a", numbers[4], low, high).unwrap());
    assert!(!frontier.raise("a", numbers[0], low, low).unwrap());
    assert!(!frontier.raise("b", numbers[0], low, high).unwrap());
    frontier.finish(Millis(1), flying.id, &good()).unwrap();
    assert!(frontier.raise("a", numbers[2], low, high).unwrap());
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
    let mut order = Vec::new();
    while let Some(item) = try_fetch(&mut frontier, 2) {
        frontier.finish(Millis(2), item.id, &good()).unwrap();
        order.push(item.url);
    }
    assert_eq!(
        order,
        ["http://a/2", "http://a/4", "http://a/0", "http://a/1"]
    );
    assert_eq!(frontier.counts().queued, 0);
}

#[test]
fn a_url_is_handed_out_once_and_not_before_its_prerequisites() {
    let (_dir, mut frontier) = open(eager());
    let add_at = |frontier: &mut Frontier, url: &str, precedence| {
        let candidate = Candidate {
            precedence,
            ..Candidate::new(url, "a")
        };
        assert_eq!(frontier.add(&candidate).unwrap(), Added::New);
    };
    add_at(&mut frontier, "http://a/", Precedence::SEED);
    add(&mut frontier, "b", 0..1);
    let until = Millis(60_000);
    let needs = |name: &'static str| {
        move |item: &Item| {
            let is_page = item.url == "http://a/";
            is_page.then(|| Prerequisite {
                name: name.to_owned(),
                until,
            })
        }
    };
    // The address is not known yet: others go on meanwhile, and nobody is asked twice.
    let next = frontier.next(Millis(1), needs("address")).unwrap();
    assert!(matches!(next, Next::Missing(item) if item.url == "http://a/"));
    assert_eq!(queue(&mut frontier, "a").state, QueueState::Missing);
    assert_eq!(crawl(&mut frontier, 1, 9), ["b"]);
    let next = frontier.next(Millis(1), |_| unreachable!("nothing may be asked"));
    assert_eq!(next.unwrap(), Next::Wait(until));
    // It is known now, and that robots.txt is missing: that one goes first.
    frontier.fulfil("another address");
    frontier.fulfil("address");
    let next = frontier.next(Millis(1), needs("robots")).unwrap();
    assert!(matches!(next, Next::Missing(_)));
    add_at(
        &mut frontier,
        "http://a/robots.txt",
        Precedence::PREREQUISITE,
    );
    let next = frontier.next(Millis(1), needs("robots")).unwrap();
    let Next::Fetch(robots) = next else {
        unreachable!("{next:?}");
    };
    assert_eq!(robots.url, "http://a/robots.txt");
    frontier.finish(Millis(1), robots.id, &good()).unwrap();
    assert_eq!(
        frontier.next(Millis(1), needs("robots")).unwrap(),
        Next::Wait(until)
    );
    frontier.fulfil("robots");
    assert_eq!(crawl(&mut frontier, 1, 9), ["a"]);
    // Two pages and a robots.txt.
    assert_eq!(frontier.counts().handed_out, 3);
    assert_eq!(frontier.next(Millis(1), |_| None).unwrap(), Next::Empty);
}

#[test]
fn what_never_comes_is_asked_for_again_when_its_time_is_over() {
    let (_dir, mut frontier) = open(eager());
    add(&mut frontier, "a", 0..2);
    let mut needs = |until| {
        frontier.next(Millis(until - 100), |_| {
            Some(Prerequisite {
                name: "address".to_owned(),
                until: Millis(until),
            })
        })
    };
    assert!(matches!(needs(100).unwrap(), Next::Missing(_)));
    assert_eq!(needs(199).unwrap(), Next::Wait(Millis(100)));
    assert!(matches!(needs(200).unwrap(), Next::Missing(_)));
    // A queue in another group is asked at once.
    frontier.set_group("a", "b").unwrap();
    assert_eq!(crawl(&mut frontier, 100, 9), ["a", "a"]);
}

#[test]
fn a_group_of_many_queues_takes_its_share_and_no_more() {
    let settings = Settings {
        active_queues: 4,
        group_queues: 2,
        session_balance: 5,
        ..eager()
    };
    let (_dir, mut frontier) = open(settings);
    for number in 0..50 {
        let queue = format!("shop{number:02}");
        for path in 0..10 {
            let url = format!("http://{queue}/{path}");
            let candidate = Candidate {
                group: "provider",
                ..Candidate::new(&url, &queue)
            };
            frontier.add(&candidate).unwrap();
        }
    }
    add(&mut frontier, "alone", 0..100);
    let counts = frontier.counts();
    assert_eq!((counts.inactive_queues, counts.parked_queues), (3, 48));
    let queues = crawl(&mut frontier, 1, 60);
    let alone = queues.iter().filter(|queue| *queue == "alone").count();
    assert!(alone >= 20, "{alone} of 60 for a queue of its own group");
    assert!(
        tally(&queues).len() > 6,
        "the group's queues take turns: {queues:?}"
    );
    assert_eq!(queue(&mut frontier, "shop49").state, QueueState::Parked);
    assert_eq!(frontier.group("provider").unwrap().unwrap().queues, 2);
    crawl(&mut frontier, 1, 10_000);
    assert_eq!(frontier.counts().done, 600);
    assert_eq!(frontier.counts().parked_queues, 0);
}

#[test]
fn a_spent_budget_retires_and_a_raised_one_brings_back() {
    let budget = Budget {
        urls: Some(5),
        ..Budget::default()
    };
    let (dir, mut frontier) = open(Settings { budget, ..eager() });
    add(&mut frontier, "a", 0..20);
    add(&mut frontier, "b", 0..3);
    assert_eq!(crawl(&mut frontier, 1, 100).len(), 8);
    let status = queue(&mut frontier, "a");
    assert_eq!(status.state, QueueState::Retired(Retired::Urls));
    assert_eq!((status.queued, status.done, status.spent), (15, 5, 5));
    assert_eq!(frontier.counts().retired_urls, 15);
    assert!(frontier.report(10).unwrap().contains("\"a\" 15 queued"));
    // What is found for it later is kept as well, and all of it over a restart.
    add(&mut frontier, "a", 20..22);
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), Settings { budget, ..eager() }).unwrap();
    assert_eq!(frontier.next(Millis(1), |_| None).unwrap(), Next::Empty);
    frontier
        .set_budget(
            "a",
            Some(Budget {
                urls: Some(7),
                ..Budget::default()
            }),
        )
        .unwrap();
    assert_eq!(crawl(&mut frontier, 1, 100).len(), 2);
    frontier.set_budget("a", None).unwrap();
    assert_eq!(crawl(&mut frontier, 1, 100).len(), 0);
    // Bytes count as well: 7,000 are spent.
    let budget = Budget {
        bytes: Some(9500),
        ..Budget::default()
    };
    frontier
        .set_settings(Settings { budget, ..eager() })
        .unwrap();
    assert_eq!(crawl(&mut frontier, 1, 100).len(), 3);
    let status = queue(&mut frontier, "a");
    assert_eq!(status.state, QueueState::Retired(Retired::Bytes));
    frontier.set_settings(eager()).unwrap();
    assert_eq!(crawl(&mut frontier, 1, 100).len(), 12);
    assert_eq!(frontier.counts().retired_queues, 0);
}

#[test]
fn a_queue_has_its_time_from_its_first_fetch_on() {
    let budget = Budget {
        time: Some(Duration::from_secs(10)),
        ..Budget::default()
    };
    let (dir, mut frontier) = open(Settings { budget, ..eager() });
    add(&mut frontier, "a", 0..9);
    // Waiting costs nothing, nor does being put back.
    let item = try_fetch(&mut frontier, 1000).unwrap();
    let back = Outcome::put_back(Duration::ZERO);
    frontier.finish(Millis(1000), item.id, &back).unwrap();
    let item = try_fetch(&mut frontier, 50_000).unwrap();
    let slow = Outcome::done(200, 1, Duration::from_secs(2));
    frontier.finish(Millis(52_000), item.id, &slow).unwrap();
    let status = queue(&mut frontier, "a");
    assert_eq!(status.first_fetch, Some(Millis(50_000)));
    assert_eq!(crawl(&mut frontier, 59_999, 2).len(), 2);
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), Settings { budget, ..eager() }).unwrap();
    assert_eq!(crawl(&mut frontier, 60_000, 2).len(), 0);
    let status = queue(&mut frontier, "a");
    assert_eq!(status.state, QueueState::Retired(Retired::Time));
    assert!(frontier.report(1).unwrap().contains("its time is over"));
    let more = Budget {
        time: Some(Duration::from_secs(11)),
        ..budget
    };
    frontier.set_budget("a", Some(more)).unwrap();
    assert_eq!(crawl(&mut frontier, 60_001, 2).len(), 2);
    assert_eq!(crawl(&mut frontier, 61_000, 2).len(), 0);
    frontier.set_budget("a", None).unwrap();
    frontier.set_settings(eager()).unwrap();
    assert_eq!(crawl(&mut frontier, 61_000, 9).len(), 4);
}

#[test]
fn what_a_rule_forbids_costs_nothing() {
    let (_dir, mut frontier) = open(eager());
    add(&mut frontier, "a", 0..5);
    let mut spent = Vec::new();
    for status in [-9998, -5000, -5001, -4001, -61] {
        let item = try_fetch(&mut frontier, 1).unwrap();
        let mut outcome = good();
        (outcome.status, outcome.fetch_duration) = (status, None);
        outcome.disposition = Disposition::Failed;
        frontier.finish(Millis(1), item.id, &outcome).unwrap();
        spent.push(queue(&mut frontier, "a").spent);
    }
    assert_eq!(spent, [0, 0, 0, 0, 101]);
}

#[test]
fn errors_cost_a_penalty_and_several_in_flight_do_not_overspend() {
    let budget = Budget {
        urls: Some(105),
        ..Budget::default()
    };
    let (_dir, mut frontier) = open(Settings { budget, ..eager() });
    add(&mut frontier, "a", 0..20);
    let item = try_fetch(&mut frontier, 1).unwrap();
    let mut outcome = good();
    outcome.disposition = Disposition::Failed;
    outcome.status = 404;
    assert_eq!(
        frontier.finish(Millis(1), item.id, &outcome).unwrap(),
        Finished::Failed
    );
    assert_eq!(queue(&mut frontier, "a").spent, 101);
    let wide = ecluse_frontier::Overrides {
        connections: Some(10),
        ..Default::default()
    };
    frontier.set_overrides("a", wide).unwrap();
    let mut flying = Vec::new();
    while let Some(item) = try_fetch(&mut frontier, 1) {
        flying.push(item);
    }
    assert_eq!(flying.len(), 4);
    for item in flying {
        frontier.finish(Millis(1), item.id, &good()).unwrap();
    }
    assert_eq!(frontier.next(Millis(1), |_| None).unwrap(), Next::Empty);
    assert_eq!(queue(&mut frontier, "a").spent, 105);
}

#[test]
fn retries_come_back_later_and_end() {
    let (dir, mut frontier) = open(Settings {
        retries: 2,
        ..eager()
    });
    frontier.add(&Candidate::new("http://a/", "a")).unwrap();
    let mut outcome = good();
    outcome.status = -1;
    outcome.fetch_duration = None;
    outcome.disposition = Disposition::Retry {
        after: Duration::from_secs(900),
    };
    let item = try_fetch(&mut frontier, 1000).unwrap();
    let finished = frontier.finish(Millis(1000), item.id, &outcome).unwrap();
    assert_eq!(
        finished,
        Finished::Retrying {
            at: Millis(901_000),
            attempts: 1
        }
    );
    assert_eq!(
        frontier.next(Millis(2000), |_| None).unwrap(),
        Next::Wait(Millis(901_000))
    );
    let known = frontier.lookup(b"http://a/").unwrap().unwrap();
    assert_eq!(
        (known.state, known.attempts),
        (UrlState::Queued { status: -1 }, 1)
    );
    assert_eq!(known.queue.unwrap().state, QueueState::Retrying);
    assert_eq!(frontier.counts().retrying, 1);
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(
        dir.path(),
        Settings {
            retries: 2,
            ..eager()
        },
    )
    .unwrap();
    assert_eq!(
        frontier.next(Millis(2000), |_| None).unwrap(),
        Next::Wait(Millis(901_000))
    );
    let item = try_fetch(&mut frontier, 901_000).unwrap();
    assert_eq!(item.attempts, 1);
    frontier.finish(Millis(901_000), item.id, &outcome).unwrap();
    let item = try_fetch(&mut frontier, 1_801_000).unwrap();
    let finished = frontier
        .finish(Millis(1_801_000), item.id, &outcome)
        .unwrap();
    assert_eq!(finished, Finished::GivenUp);
    assert_eq!(
        frontier.next(Millis(1_801_000), |_| None).unwrap(),
        Next::Empty
    );
    let known = frontier.lookup(b"http://a/").unwrap().unwrap();
    assert_eq!(known.state, UrlState::Failed { status: -1 });
}

#[test]
fn a_long_snooze_gives_the_place_to_others() {
    let settings = Settings {
        active_queues: 1,
        long_snooze: Duration::from_secs(10),
        ..eager()
    };
    let (_dir, mut frontier) = open(settings);
    add(&mut frontier, "slow", 0..5);
    add(&mut frontier, "b", 0..5);
    let item = try_fetch(&mut frontier, 1000).unwrap();
    assert_eq!(item.queue, "slow");
    let mut outcome = good();
    outcome.retry_after = Some(Duration::from_secs(60));
    frontier.finish(Millis(1000), item.id, &outcome).unwrap();
    assert_eq!(frontier.counts().snoozed_queues, 1);
    assert_eq!(crawl(&mut frontier, 1000, 100), ["b"; 5]);
    assert_eq!(
        frontier.next(Millis(1000), |_| None).unwrap(),
        Next::Wait(Millis(61_000))
    );
    assert_eq!(crawl(&mut frontier, 61_000, 100), ["slow"; 4]);
}

#[test]
fn a_waiting_url_says_where_it_comes_from() {
    let (dir, mut frontier) = open(eager());
    add(&mut frontier, "a", 0..3);
    let candidate = Candidate {
        key: b"b",
        via: "http://a/0",
        hops: "LE",
        source: "press",
        precedence: Precedence::REQUISITE,
        ..Candidate::new("http://b/", "b")
    };
    frontier.add(&candidate).unwrap();
    let origin = |frontier: &mut Frontier| frontier.lookup(b"b").unwrap().unwrap().origin;
    let waiting = origin(&mut frontier).unwrap();
    assert_eq!(
        (waiting.url.as_str(), waiting.hops.as_str()),
        ("http://b/", "LE")
    );
    assert_eq!(
        (waiting.via.as_str(), waiting.source.as_str()),
        ("http://a/0", "press")
    );
    assert_eq!(waiting.precedence, Precedence::REQUISITE);
    let item = loop {
        let item = try_fetch(&mut frontier, 1).unwrap();
        if item.queue == "b" {
            break item;
        }
        frontier.finish(Millis(1), item.id, &good()).unwrap();
    };
    assert_eq!(origin(&mut frontier), Some(waiting.clone()));
    let back = Outcome::put_back(Duration::from_secs(9));
    frontier.finish(Millis(1), item.id, &back).unwrap();
    assert_eq!(origin(&mut frontier), Some(waiting.clone()));
    frontier.commit(b"").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
    assert_eq!(origin(&mut frontier), Some(waiting));
    crawl(&mut frontier, 100_000, 9);
    assert_eq!(origin(&mut frontier), None);
}

#[test]
fn forced_urls_come_again_once_they_are_finished() {
    let (_dir, mut frontier) = open(eager());
    let plain = Candidate::new("http://a/robots.txt", "a");
    let forced = Candidate {
        force: true,
        ..plain
    };
    assert_eq!(frontier.add(&plain).unwrap(), Added::New);
    assert_eq!(frontier.add(&forced).unwrap(), Added::Seen);
    let item = try_fetch(&mut frontier, 1).unwrap();
    assert_eq!(frontier.add(&forced).unwrap(), Added::Seen);
    frontier.finish(Millis(1), item.id, &good()).unwrap();
    assert_eq!(frontier.add(&plain).unwrap(), Added::Seen);
    assert_eq!(frontier.add(&forced).unwrap(), Added::New);
    assert!(try_fetch(&mut frontier, 1).unwrap().force);
    assert_eq!(frontier.counts().known, 1);
}

#[test]
fn the_key_alone_says_whether_a_url_is_known() {
    let (_dir, mut frontier) = open(eager());
    let one = Candidate {
        key: b"(org,a,)/",
        ..Candidate::new("http://www.a.org/", "www.a.org")
    };
    let other = Candidate {
        key: b"(org,a,)/",
        ..Candidate::new("http://a.org/", "a.org")
    };
    assert_eq!(frontier.add(&one).unwrap(), Added::New);
    assert_eq!(frontier.add(&other).unwrap(), Added::Seen);
    assert_eq!(frontier.counts().queues, 1);
}

#[test]
fn what_is_too_long_or_unknown_is_refused_by_name() {
    let (_dir, mut frontier) = open(Settings {
        longest_string: 30,
        ..eager()
    });
    let url = format!("http://a/{}", "x".repeat(30));
    let refused = frontier.add(&Candidate::new(&url, "a"));
    assert!(matches!(
        refused,
        Err(FrontierError::TooLong {
            what: "URL",
            bytes: 39,
            limit: 30
        })
    ));
    assert!(
        matches!(frontier.set_budget("nobody", None), Err(FrontierError::NoQueue { name }) if name == "nobody")
    );
    assert_eq!(frontier.counts().known, 0);
}

#[test]
fn what_is_in_flight_at_the_commit_is_handed_out_again() {
    let (dir, mut frontier) = open(eager());
    add(&mut frontier, "a", 0..3);
    let first = try_fetch(&mut frontier, 1).unwrap();
    frontier.commit(b"warc 1 at 0").unwrap();
    frontier.finish(Millis(1), first.id, &good()).unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
    assert_eq!(frontier.checkpoint(), Some(&b"warc 1 at 0"[..]));
    assert_eq!(frontier.counts().queued, 3);
    assert_eq!(try_fetch(&mut frontier, 2).unwrap().url, first.url);
}

/// The one log of a frontier that is closed.
#[test]
fn notes_have_limits_and_come_back_after_the_commit_only() {
    let (dir, mut frontier) = open(eager());
    let kind = NoteKind(3);
    let long = vec![9; NoteKind::VALUE_BYTES];
    frontier.note(kind, &[0xff; 24], &long).unwrap();
    frontier.note(kind, b"", b"").unwrap();
    frontier.note(NoteKind(4), b"other", b"kind").unwrap();
    assert!(matches!(
        frontier.note(kind, &[1; 25], b""),
        Err(FrontierError::TooLong {
            bytes: 25,
            limit: 24,
            ..
        })
    ));
    assert!(frontier.noted(kind, &[1; 25]).is_err());
    let longer = vec![9; NoteKind::VALUE_BYTES + 1];
    let refused = frontier.note(kind, b"a", &longer).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "value of a note of 1048577 bytes is longer than 1048576"
    );
    frontier.commit(b"").unwrap();
    frontier.note(kind, b"lost", b"with the process").unwrap();
    drop(frontier);
    let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
    assert_eq!(frontier.noted(kind, b"lost").unwrap(), None);
    let mut found = Vec::new();
    let each = |key: &[u8], value: &[u8]| {
        found.push((key.len(), value.len()));
        true
    };
    frontier.notes(kind, each).unwrap();
    assert_eq!(found, [(0, 0), (24, NoteKind::VALUE_BYTES)]);
    let mut first = 0;
    frontier
        .notes(kind, |_, _| {
            first += 1;
            false
        })
        .unwrap();
    assert_eq!(first, 1);
}

fn log_of(dir: &std::path::Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_log = |path: &std::path::PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("log-")
    };
    paths.find(is_log).unwrap()
}

#[test]
fn a_torn_tail_is_cut_off_at_the_last_commit() {
    let (dir, mut frontier) = open(eager());
    add(&mut frontier, "a", 0..10);
    frontier.commit(b"one").unwrap();
    let log = log_of(dir.path());
    let one = std::fs::metadata(&log).unwrap().len();
    add(&mut frontier, "a", 10..20);
    frontier.commit(b"two").unwrap();
    drop(frontier);
    let whole = std::fs::read(&log).unwrap();
    let after_one = usize::try_from(one).unwrap();
    // Cut anywhere in the second commit, with garbage behind, or with a hole where a page never arrived.
    for cut in (after_one..whole.len()).step_by(97) {
        let mut torn = whole[..cut].to_vec();
        torn.extend_from_slice(&[0xec; 300]);
        let mut holed = whole.clone();
        let end = (cut + 64).min(whole.len());
        holed[cut..end].fill(0);
        for bytes in [&whole[..cut], &torn, &holed] {
            std::fs::write(&log, bytes).unwrap();
            let mut frontier = Frontier::open(dir.path(), eager()).unwrap();
            assert_eq!(frontier.checkpoint(), Some(&b"one"[..]));
            assert_eq!(frontier.counts().known, 10);
            // It goes on from there.
            add(&mut frontier, "a", 10..11);
            assert_eq!(crawl(&mut frontier, 1, 100).len(), 11);
        }
    }
    // Damage before durable commits is not cut off, but named.
    let mut hurt = whole;
    hurt[60] ^= 1;
    std::fs::write(&log, &hurt).unwrap();
    let refused = Frontier::open(dir.path(), eager()).err();
    assert!(matches!(refused, Some(FrontierError::Damaged { path, .. }) if path == log));
}
