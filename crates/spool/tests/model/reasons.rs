//! A person and a worker, or two persons, at one parcel at the same time: nothing is ever held or
//! discarded without a reason, and no newer reason is lost.

use std::sync::{Arc, Mutex};

use ecluse_spool::{
    ParcelId, ParcelPlace, ParcelState, Result, SpoolError, Verdict, WorkTree, Worker, WorkerLimits,
};

use super::chain::tree;
use super::disk::Disk;
use super::fs::{Process, Shared, Turns};

const STAGE: &str = "one";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Hold,
    Release,
    Discard,
    /// A worker claims what waits and holds it.
    Work,
}

fn id() -> ParcelId {
    ParcelId::new("a").unwrap()
}

fn place(tree: &WorkTree) -> ParcelPlace {
    let places = tree.locate(&[STAGE.to_owned()], &id()).unwrap();
    assert_eq!(places.len(), 1, "{places:?}");
    places.into_iter().next().unwrap()
}

fn act(tree: &WorkTree, place: &ParcelPlace, act: Act) -> Result<()> {
    match act {
        Act::Hold => tree.hold(place, "a person holds", "amel"),
        Act::Release => tree.release(place),
        Act::Discard => tree.discard(place, "a person discards", "amel").map(drop),
        Act::Work => {
            let mut worker = Worker::open(tree, STAGE, &[], WorkerLimits::default(), "test")?;
            worker.undefer()?;
            for waiting in worker.scan()?.waiting {
                if let Some(parcel) = worker.claim(&waiting)? {
                    let reason = "a worker holds".into();
                    worker.fail(parcel, &Verdict::Hold { reason })?;
                }
            }
            worker.close()
        }
    }
}

/// Returns a disk with a parcel in one of the states.
fn disk(state: ParcelState) -> Disk {
    let process = Process::new(Disk::new(None));
    let tree = tree(&process, "setup");
    tree.init(STAGE).unwrap();
    tree.put(STAGE, &id(), "text", |parcel| parcel.write("text", b"a"))
        .unwrap();
    match state {
        ParcelState::Held => act(&tree, &place(&tree), Act::Work).unwrap(),
        ParcelState::Deferred => {
            let mut worker =
                Worker::open(&tree, STAGE, &[], WorkerLimits::default(), "test").unwrap();
            let waiting = worker.scan().unwrap().waiting.remove(0);
            let parcel = worker.claim(&waiting).unwrap().unwrap();
            let reason = "503".into();
            worker.fail(parcel, &Verdict::Defer { reason }).unwrap();
            worker.close().unwrap();
        }
        _ => {}
    }
    process.disk().clone()
}

/// Lets two act, the first paused before its call `stops[0]`, the second before `stops[1]`.
fn race(before: &Disk, acts: [Act; 2], stops: [Option<usize>; 2]) {
    let shared: Shared = Arc::new(Mutex::new(before.clone()));
    let seen = place(&tree(&Process::on(&shared), "look"));
    let turns = Turns::new(stops);
    std::thread::scope(|scope| {
        for (me, host) in ["alpha", "beta"].into_iter().enumerate() {
            let process = Process::on(&shared).taking_turns(&turns, me);
            let (turns, seen) = (Arc::clone(&turns), &seen);
            scope.spawn(move || {
                turns.begin(me);
                let done = act(&tree(&process, host), seen, acts[me]);
                turns.end(me);
                match done {
                    Ok(()) | Err(SpoolError::Refused(_)) => {}
                    Err(e) => panic!("{acts:?} {stops:?}: {e}"),
                }
            });
        }
    });
    let tree = tree(&Process::on(&shared), "look");
    let place = place(&tree);
    let why = tree.why(&place).unwrap();
    let told = format!("{acts:?} {stops:?} {} {why:?}", place.state.word());
    match place.state {
        ParcelState::Held | ParcelState::Discarded => {
            assert!(why.is_some(), "without a reason: {told}");
        }
        _ => assert_eq!(why, None, "{told}"),
    }
    let reason = why.map(|why| (why.reason, why.held_for));
    if acts == [Act::Release, Act::Work] && place.state == ParcelState::Held {
        assert_eq!(reason, Some(("a worker holds".into(), None)), "{told}");
    }
    if acts == [Act::Discard, Act::Work] && place.state == ParcelState::Discarded {
        let held_for = (seen.state == ParcelState::Held).then(|| "a worker holds".to_owned());
        assert_eq!(
            reason,
            Some(("a person discards".into(), held_for)),
            "{told}"
        );
    }
}

#[test]
fn no_two_acts_leave_a_parcel_aside_without_its_reason() {
    for (state, acts) in [
        (ParcelState::Held, [Act::Release, Act::Work]),
        (ParcelState::Held, [Act::Discard, Act::Work]),
        (ParcelState::Held, [Act::Release, Act::Discard]),
        (ParcelState::Held, [Act::Release, Act::Release]),
        (ParcelState::Ready, [Act::Hold, Act::Work]),
        (ParcelState::Ready, [Act::Discard, Act::Work]),
        (ParcelState::Ready, [Act::Hold, Act::Discard]),
        (ParcelState::Deferred, [Act::Hold, Act::Release]),
    ] {
        let before = disk(state);
        for first in 0..30 {
            race(&before, acts, [Some(first), None]);
            for second in (0..30).step_by(2) {
                race(&before, acts, [Some(first), Some(second)]);
            }
        }
    }
}
