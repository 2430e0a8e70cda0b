//! Hosts whose clocks and names are not what they should be, on one disk.

use std::time::Duration;

use ecluse_spool::{ParcelId, ParcelState, Setback, Verdict, WorkTree, Worker, WorkerLimits};
use proptest::prelude::*;

use super::chain::{tree, tree_ahead};
use super::disk::Disk;
use super::fs::Process;

const STAGE: &str = "one";
const DAY_MS: i64 = 86_400_000;

fn pass(process: &Process, time: Duration) {
    process.disk().outside.clock_ms += time.as_millis() as u64;
}

fn seconds(process: &Process) -> u64 {
    process.disk().outside.clock_ms / 1000
}

fn worker(tree: &WorkTree) -> Worker {
    let limits = WorkerLimits {
        settle: Duration::ZERO,
        ..WorkerLimits::default()
    };
    Worker::open(tree, STAGE, &[], limits, "test").unwrap()
}

fn put(tree: &WorkTree, id: &str) -> ParcelId {
    let id = ParcelId::new(id).unwrap();
    tree.init(STAGE).unwrap();
    tree.put(STAGE, &id, "text", |parcel| parcel.write("text", b"a"))
        .unwrap();
    id
}

/// Tries what is due and defers it; returns the new due time, if there was any.
fn attempt(worker: &mut Worker) -> Option<Setback> {
    worker.undefer().unwrap();
    let waiting = worker.scan().unwrap().waiting.pop()?;
    let parcel = worker.claim(&waiting).unwrap()?;
    let verdict = Verdict::Defer {
        reason: "503".into(),
    };
    Some(worker.fail(parcel, &verdict).unwrap())
}

fn deferred(setback: Option<Setback>) -> u64 {
    match setback {
        Some(Setback::DeferredUntil(due)) => due,
        other => panic!("not deferred: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two hosts at one root, each with a clock of its own opinion: a due time holds for both.
    #[test]
    fn hosts_with_other_clocks_wait_as_one(
        ahead in proptest::collection::vec(-250 * DAY_MS..250 * DAY_MS, 2),
        steps in proptest::collection::vec(1_u64..200, 60),
    ) {
        let process = Process::new(Disk::new(None));
        let hosts: Vec<WorkTree> = ahead
            .iter()
            .zip(["alpha", "beta"])
            .map(|(ahead, name)| tree_ahead(&process, name, *ahead))
            .collect();
        put(&hosts[0], "a");
        let mut workers: Vec<Worker> = hosts.iter().map(worker).collect();
        let mut due = 0;
        let (mut tries, start) = (0, seconds(&process));
        for step in steps {
            for worker in &mut workers {
                if let Some(setback) = attempt(worker) {
                    prop_assert!(seconds(&process) >= due, "tried before it was due");
                    tries += 1;
                    due = deferred(Some(setback));
                    prop_assert!(due > seconds(&process));
                }
            }
            pass(&process, Duration::from_secs(step));
        }
        // Each wait is longer than the one before, with a jitter of a quarter: 22.5 s, 45 s, …
        let passed = seconds(&process) - start;
        prop_assert!(tries <= 2 + (passed / 22).ilog2(), "{tries} tries in {passed} s");
    }
}

#[test]
fn two_hosts_three_hours_and_200_days_off_do_not_take_a_parcel_from_each_other() {
    let process = Process::new(Disk::new(None));
    let alpha = tree_ahead(&process, "alpha", 3 * 3_600_000);
    let beta = tree_ahead(&process, "beta", -200 * DAY_MS);
    put(&alpha, "a");
    let mut workers = [worker(&alpha), worker(&beta)];
    let mut tries = 0;
    for _ in 0..600 {
        for worker in &mut workers {
            tries += u32::from(attempt(worker).is_some());
        }
        pass(&process, Duration::from_millis(100));
    }
    assert!((1..=3).contains(&tries), "{tries} tries in a minute");
}

#[test]
fn a_deferral_waits_longer_each_time_and_is_held_in_the_end() {
    let process = Process::new(Disk::new(None));
    let tree = tree(&process, "alpha");
    let id = put(&tree, "a");
    let mut one = worker(&tree);
    let due = deferred(attempt(&mut one));
    let first = due - seconds(&process);
    assert!((22..=38).contains(&first), "{first}");
    assert_eq!(one.undefer().unwrap(), Some(due));
    assert!(one.scan().unwrap().waiting.is_empty());
    pass(&process, Duration::from_secs(first));
    let due = deferred(attempt(&mut one));
    let second = due - seconds(&process);
    assert!((45..=75).contains(&second), "{second}");

    // Deferred for longer than the limit: a person must look.
    pass(&process, WorkerLimits::default().retry_limit);
    assert_eq!(attempt(&mut one), Some(Setback::Held));
    let places = tree.locate(&[STAGE.into()], &id).unwrap();
    assert_eq!(places[0].state, ParcelState::Held);
}

/// Somebody asked for patience: as long as it takes, and that is nobody's fault.
#[test]
fn a_pause_is_as_long_as_was_asked_for_and_never_counted() {
    let process = Process::new(Disk::new(None));
    let tree = tree(&process, "alpha");
    let id = put(&tree, "a");
    let mut one = worker(&tree);
    let limits = WorkerLimits::default();
    let mut pause = |wait: Duration| {
        let waiting = one.scan().unwrap().waiting.pop().unwrap();
        let parcel = one.claim(&waiting).unwrap().unwrap();
        let reason = "a busy track".to_owned();
        let due = deferred(Some(
            one.fail(parcel, &Verdict::Wait { reason, wait }).unwrap(),
        ));
        let wait = due - seconds(&process);
        pass(&process, Duration::from_secs(wait));
        one.undefer().unwrap();
        wait
    };
    assert_eq!(pause(Duration::from_secs(100)), 100);
    assert_eq!(pause(Duration::from_secs(100)), 100, "not longer each time");
    let longest = limits.retry_longest;
    assert_eq!(pause(longest * 9), longest.as_secs());
    for _ in 0..=limits.retry_limit.as_secs() / longest.as_secs() {
        pause(longest);
    }
    let places = tree.locate(&[STAGE.into()], &id).unwrap();
    assert_eq!(
        places[0].state,
        ParcelState::Ready,
        "it is never held for that"
    );
    assert_eq!(places[0].attempts, 0);
}

/// A clock that was wrong is set right: nothing waits for the day it named.
#[test]
fn a_parcel_deferred_by_a_wrong_clock_waits_the_longest_wait_and_no_more() {
    let process = Process::new(Disk::new(None));
    let mut one = worker(&tree(&process, "alpha"));
    put(&tree(&process, "alpha"), "a");
    process.disk().outside.clock_ms += 200 * DAY_MS as u64;
    assert!(deferred(attempt(&mut one)) > 0);
    process.disk().outside.clock_ms -= 200 * DAY_MS as u64;

    let mut one = worker(&tree(&process, "beta"));
    assert!(one.undefer().unwrap().is_some());
    pass(&process, WorkerLimits::default().retry_longest);
    assert_eq!(one.undefer().unwrap(), None);
    assert!(attempt(&mut one).is_some());
}

#[test]
fn a_host_says_how_far_its_clock_is_off() {
    let process = Process::new(Disk::new(None));
    let host = tree_ahead(&process, "alpha", -200 * DAY_MS);
    assert_eq!(
        host.clock_skew(STAGE),
        None,
        "nothing can be made there yet"
    );
    host.init(STAGE).unwrap();
    assert_eq!(host.clock_skew(STAGE), Some(-200 * DAY_MS / 1000));
}

/// One rename moves a parcel to the next stage: where it could not, no stage starts.
#[test]
fn a_stage_on_a_file_system_of_its_own_is_refused() {
    let apart = std::path::Path::new(super::chain::WORK).join(STAGE);
    let process = Process::new(Disk::new(Some(&apart)));
    let tree = tree(&process, "alpha");
    tree.init("other").unwrap();
    let refused = tree.init(STAGE).unwrap_err().to_string();
    assert!(
        refused.contains("/work/one lies on another file system than /work"),
        "{refused}"
    );
}

/// Machines copied from one image, or without a machine-id, on a file system that does not carry
/// locks from one to the other.
#[test]
fn a_living_worker_of_a_host_of_the_same_name_is_not_reaped() {
    for machine in ["", "copied"] {
        let process = Process::new(Disk::new(None)).on_network();
        let host = |boot: &str, pid: u32| {
            let mut tree = tree_ahead(&process, "crawler", 0);
            tree.host.boot = boot.into();
            tree.host.machine = machine.into();
            tree.host.pid = pid;
            tree
        };
        let (ours, theirs) = (host("b1", 1), host("b2", 2));
        put(&ours, "a");
        let mut one = worker(&ours);
        let waiting = one.scan().unwrap().waiting.pop().unwrap();
        let parcel = one.claim(&waiting).unwrap().unwrap();
        let mut other = worker(&theirs);
        let lease = WorkerLimits::default().lease;
        for _ in 0..30 {
            assert_eq!(
                other.recover().unwrap().workers,
                0,
                "machine-id {machine:?}"
            );
            one.pulse().beat().unwrap();
            pass(&process, lease / 3);
        }
        one.check_fence().unwrap();
        // Silent for the lease: now it is dead.
        drop(parcel);
        assert_eq!(other.recover().unwrap().workers, 0);
        pass(&process, lease);
        assert_eq!(other.recover().unwrap().workers, 1);
    }
}

#[test]
fn after_a_reboot_a_host_settles_its_own_dead_at_once() {
    let process = Process::new(Disk::new(None));
    let before = tree(&process, "alpha");
    put(&before, "a");
    let mut one = worker(&before);
    let waiting = one.scan().unwrap().waiting.pop().unwrap();
    let parcel = one.claim(&waiting).unwrap().unwrap();
    let mut after = tree(&process, "alpha");
    after.host.boot = "another".into();
    let mut heir = worker(&after);
    assert_eq!(heir.recover().unwrap().workers, 0, "its lock is taken");
    drop((one, parcel));
    assert_eq!(heir.recover().unwrap().workers, 1);
    assert_eq!(heir.scan().unwrap().total, 1);
}

/// The lock is asked for by opening the lease to write: who may not, has learned nothing.
#[test]
fn a_reader_without_rights_does_not_take_the_living_for_dead() {
    let process = Process::new(Disk::new(None));
    let host = tree(&process, "alpha");
    host.init(STAGE).unwrap();
    let one = worker(&host);
    let reader = tree(&process.clone().reading_only(), "alpha");
    // Files of the model carry no time: a lease longer than any silence.
    let lease = Duration::from_secs(u64::from(u32::MAX));
    let alive = |reader: &WorkTree| reader.workers(STAGE, lease).unwrap()[0].alive;
    assert!(alive(&reader));
    assert!(alive(&host));
    drop(one);
    assert!(!alive(&host), "its lock is free");
}
