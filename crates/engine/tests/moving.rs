//! Stages moved between work directories and servers, there and back: everything they hold comes along as it was, whoever dies on the
//! way and after whichever step, and a chain with a stage on each engine loses nothing and does nothing twice.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ecluse_config::Pipeline;
use ecluse_engine::{JetstreamEngine, MixedEngine};
use ecluse_spool::{
    Blocked, Engine, EngineSide, Finish, Floor, Marks, Movable, MoveRound, Parcel, ParcelId,
    ParcelState, Result, Signs, Spool, SpoolError, Verdict, Waiting, Work, WorkTree, WorkerLimits,
    WorkerTerms,
};
use ecluse_testkit::engine::engine_contract;
use ecluse_testkit::root::until;
use ecluse_testkit::servers::EngineServers;

fn servers() -> EngineServers {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    EngineServers::start(&nats, &weed)
}

fn mixed(servers: &EngineServers, prefix: &str, root: &Path, kind: &str) -> MixedEngine {
    let text = servers.settings(prefix).replace(
        "kind = \"jetstream\"",
        &format!("kind = \"{kind}\"\nmoving = true"),
    );
    let settings = Pipeline::parse(&text, "test").unwrap().engine;
    let tree = WorkTree::open(&root.join("work"));
    MixedEngine::open(&settings, root, None, tree).unwrap()
}

fn limits() -> WorkerLimits {
    WorkerLimits {
        attempts: 3,
        retry_first: Duration::from_secs(3600),
        retry_longest: Duration::from_secs(3600),
        lease: Duration::from_secs(2),
        ..WorkerLimits::default()
    }
}

fn next_of(stage: &str) -> Vec<String> {
    match stage {
        "one" => vec!["two".to_owned()],
        "two" => vec!["three".to_owned()],
        _ => Vec::new(),
    }
}

fn open(engine: &dyn Engine, stage: &str) -> Box<dyn Spool> {
    let terms = WorkerTerms {
        stage,
        next: &next_of(stage),
        limits: &limits(),
        version: "0",
    };
    engine.open_worker(&terms).unwrap()
}

fn id(name: &str) -> ParcelId {
    ParcelId::new(name).unwrap()
}

fn put(engine: &dyn Engine, stage: &str, name: &str, bytes: &[u8]) {
    let put = engine.put::<SpoolError>(stage, &id(name), "test", |parcel| {
        parcel.write("data", bytes)?;
        parcel.write("empty", b"")
    });
    put.unwrap();
}

fn try_claim(worker: &mut dyn Spool, name: &str) -> Option<Parcel> {
    let scan = worker.scan().unwrap();
    let found = scan
        .waiting
        .into_iter()
        .find(|waiting| waiting.entry.id == id(name))?;
    worker.claim(&found).unwrap()
}

fn claim(worker: &mut dyn Spool, name: &str) -> Parcel {
    until(&format!("{name} to be had"), || try_claim(worker, name))
}

fn finish(worker: &mut dyn Spool, parcel: Parcel) -> Finish {
    let mut outbox = worker.outbox(std::slice::from_ref(&parcel));
    let name = format!("by-{}", parcel.manifest().files.len());
    let mut file = outbox.create(&name).unwrap();
    file.write_all(parcel.id().as_str().as_bytes()).unwrap();
    outbox.attach(file).unwrap();
    outbox.fact("learned", 7);
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    worker.finish(&mut works).unwrap()[0]
}

/// Gives stage `two` parcels in every state, and receipts.
fn fill(engine: &dyn Engine) {
    let names = ["ready", "again", "deferred", "held", "discarded", "done"];
    for name in names {
        put(
            engine,
            "one",
            name,
            format!("text of {name}").repeat(9).as_bytes(),
        );
    }
    // Larger than one request takes.
    let large: Vec<u8> = (0..9 << 20).map(|at: u32| (at % 251) as u8).collect();
    put(engine, "one", "large", &large);
    let mut first = open(engine, "one");
    for name in names.into_iter().chain(["large"]) {
        let parcel = claim(&mut *first, name);
        assert_eq!(finish(&mut *first, parcel), Finish::Committed);
    }
    let mut second = open(engine, "two");
    let parcel = claim(&mut *second, "done");
    finish(&mut *second, parcel);
    let parcel = claim(&mut *second, "again");
    second.give_back_crashed(parcel, "a bug").unwrap();
    let parcel = claim(&mut *second, "deferred");
    let reason = "the world".to_owned();
    second.fail(parcel, &Verdict::Defer { reason }).unwrap();
    let parcel = claim(&mut *second, "held");
    let reason = "its fault: café".to_owned();
    second.fail(parcel, &Verdict::Hold { reason }).unwrap();
    let stages = ["two".to_owned()];
    let place = engine.locate(&stages, &id("discarded")).unwrap();
    engine.discard(&place[0], "a person said so", "me").unwrap();
    engine.pause("two", "me", "a test").unwrap();
    for worker in [first, second] {
        worker.close().unwrap();
    }
    gather(engine);
}

/// Two parcels of stage `three` become one: their receipt is a batch's.
fn gather(engine: &dyn Engine) {
    for name in ["x", "y"] {
        put(engine, "three", name, name.as_bytes());
    }
    let mut worker = open(engine, "three");
    let parcels: Vec<Parcel> = ["x", "y"].map(|name| claim(&mut *worker, name)).into();
    let mut outbox = worker.outbox(&parcels);
    outbox.consume();
    let mut works = vec![Work { parcels, outbox }];
    assert_eq!(worker.finish(&mut works).unwrap(), [Finish::Committed]);
    worker.close().unwrap();
}

const STAGES: [&str; 3] = ["one", "two", "three"];

/// Everything that can be asked of the stages, as text.
fn all_of(engine: &dyn Engine) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for stage in STAGES {
        let mut places = Vec::new();
        engine
            .each_place(stage, &mut |place| places.push(place))
            .unwrap();
        for place in places {
            let manifest = engine.manifest(&place).unwrap();
            let history = engine.history(&place).unwrap();
            // A page may be a sheet, with other work on it.
            let lines = history
                .iter()
                .filter(|filed| filed.receipt.input(&place.parcel).is_some());
            let lines: Vec<String> = lines
                .map(|filed| format!("{} {}", filed.digest, line(&filed.receipt)))
                .collect();
            let text = format!(
                "{:?} {} {:?} {} {:?} {:?} {lines:?}",
                place.state,
                place.attempts,
                place.due,
                String::from_utf8(manifest.to_bytes()).unwrap(),
                engine.trouble(&place),
                engine.why(&place).unwrap(),
            );
            let before = all.insert(format!("{stage}/{}", place.parcel), text);
            assert_eq!(before, None, "twice: {}", place.parcel);
        }
        let mut see = |filed: ecluse_spool::Filed| {
            let text = format!("{} {}", filed.digest, line(&filed.receipt));
            all.insert(format!("{stage} receipt {}", filed.receipt.work), text);
        };
        engine.each_receipt_ever(stage, &mut see).unwrap();
        for name in ["x", "y", "done"] {
            let filed = engine.receipt(stage, &id(name)).unwrap();
            let text = filed.map(|filed| filed.digest);
            all.insert(format!("{stage} of {name}"), format!("{text:?}"));
        }
        all.insert(
            format!("{stage} paused"),
            format!("{:?}", engine.paused(stage).unwrap()),
        );
    }
    all
}

fn line(receipt: &ecluse_spool::Receipt) -> String {
    String::from_utf8(receipt.to_line()).unwrap()
}

fn same(found: &BTreeMap<String, String>, expected: &BTreeMap<String, String>) {
    for (key, text) in expected {
        assert_eq!(found.get(key), Some(text), "{key}");
    }
    let more: Vec<&String> = found
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .collect();
    assert!(more.is_empty(), "{more:?}");
}

fn round(
    engine: &MixedEngine,
    stage: &str,
    step: &mut dyn FnMut(&'static str) -> Result<()>,
) -> Result<MoveRound> {
    let terms = WorkerTerms {
        stage,
        next: &next_of(stage),
        limits: &limits(),
        version: "0",
    };
    engine.move_on(&terms, &Signs::default(), step)
}

fn move_all(engine: &MixedEngine, stage: &str, to: EngineSide) {
    engine.begin_move(stage, to, "me", "a test").unwrap();
    until("the stage to have moved", || {
        let round = round(engine, stage, &mut |_| Ok(())).unwrap();
        assert_eq!(round.left, []);
        round.is_done.then_some(())
    });
}

/// Reads every file of every parcel by way of the directories, where it lies.
fn must_have_its_files(root: &Path) {
    let mut files = 0;
    for state in ["ready", "held", "deferred", "discarded"] {
        for entry in fs::read_dir(root.join("work/two").join(state)).unwrap() {
            let dir = entry.unwrap().path();
            let manifest = fs::read(dir.join("parcel.json")).unwrap();
            let manifest: ecluse_spool::ParcelManifest = serde_json::from_slice(&manifest).unwrap();
            for file in &manifest.files {
                let bytes = fs::read(dir.join(&file.name)).unwrap();
                assert_eq!(ecluse_spool::digest(&bytes), file.sha256, "{}", file.name);
                files += 1;
            }
        }
    }
    assert!(files > 0);
}

#[test]
fn everything_comes_along_there_and_back() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "there", root.path(), "directories");
    fill(&engine);
    // Old receipts lie in the ledger.
    let tree = WorkTree::open(&root.path().join("work"));
    assert!(ecluse_spool::fold(&tree, "one", Duration::ZERO).unwrap() > 0);
    let before = all_of(&engine);
    for stage in STAGES {
        move_all(&engine, stage, EngineSide::Jetstream);
        // The others are where they were, and all of it is still there.
        same(&all_of(&engine), &before);
    }
    for stage in STAGES {
        assert_eq!(engine.count(stage, EngineSide::Directories).unwrap(), 0);
    }
    // What nobody tells of both engines sees the same in the store alone.
    let settings = Pipeline::parse(&servers.settings("there"), "test").unwrap();
    let store = JetstreamEngine::open(&settings.engine, root.path(), None).unwrap();
    same(&all_of(&store), &before);
    drop(store);
    for stage in STAGES.into_iter().rev() {
        move_all(&engine, stage, EngineSide::Directories);
        same(&all_of(&engine), &before);
    }
    same(&all_of(&tree), &before);
    must_have_its_files(root.path());
    // Nothing is left behind in the store but receipts, and what says that the parcels have gone.
    let left = root.path().join("left");
    servers.mirror("there", &left).unwrap();
    for stage in STAGES {
        for kind in ["in", "held", "deferred", "discarded", "moving", "workers"] {
            let dir = left.join("stages").join(stage).join(kind);
            let names: Vec<_> = fs::read_dir(dir).into_iter().flatten().collect();
            assert!(names.is_empty(), "{stage}/{kind}: {names:?}");
        }
    }
    let files = below(&left.join("payloads"));
    assert_eq!(files, 0, "files without an owner");
}

fn below(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => below(&entry.path()),
        false => 1,
    });
    counts.sum()
}

#[test]
fn whoever_dies_after_whichever_step_nothing_is_lost_and_nothing_twice() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "dies", root.path(), "directories");
    fill(&engine);
    let before = all_of(&engine);
    let there = [
        "taken-out",
        "uploaded",
        "mark-put",
        "ticket-put",
        "not-gone",
        "shown",
        "departed",
        "receipts",
        "ready-to-switch",
        "switched",
    ];
    let back = [
        "mark-put",
        "taken-out",
        "received",
        "gone",
        "shown",
        "ticket-removed",
        "departed",
        "receipts",
        "ready-to-switch",
        "switched",
    ];
    let ways = [
        (EngineSide::Jetstream, there),
        (EngineSide::Directories, back),
    ];
    for (to, steps) in ways.into_iter().chain(ways) {
        engine.begin_move("two", to, "me", "a test").unwrap();
        for end in steps {
            // Each begins as a process of its own.
            let carrier = mixed(&servers, "dies", root.path(), "directories");
            let mut died = false;
            let moved = round(&carrier, "two", &mut |step| {
                died = step == end;
                match died {
                    true => Err(SpoolError::Refused("killed".into())),
                    false => Ok(()),
                }
            });
            assert!(died, "nobody died after {end}: {moved:?}");
        }
        let standing = engine.standing("two").unwrap();
        assert_eq!((standing.home, standing.is_moving), (to, false));
        move_all(&engine, "two", to);
        same(&all_of(&engine), &before);
    }
    must_have_its_files(root.path());
}

#[test]
fn a_move_that_turns_round_half_way_loses_nothing() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "round", root.path(), "directories");
    fill(&engine);
    let before = all_of(&engine);
    let sides = [EngineSide::Jetstream, EngineSide::Directories];
    for limit in 1..40 {
        let to = sides[limit % 2];
        engine.begin_move("two", to, "me", "a test").unwrap();
        let mut taken = 0;
        let _ = round(&engine, "two", &mut |_| {
            taken += 1;
            match taken > limit {
                true => Err(SpoolError::Refused("killed".into())),
                false => Ok(()),
            }
        });
    }
    move_all(&engine, "two", EngineSide::Directories);
    same(&all_of(&engine), &before);
    must_have_its_files(root.path());
}

#[test]
fn while_a_stage_moves_nobody_claims_and_what_is_in_hand_is_finished_first() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "hand", root.path(), "directories");
    for name in ["a", "b"] {
        put(&engine, "one", name, b"text");
    }
    let mut old = open(&engine, "one");
    let in_hand = claim(&mut *old, "a");
    engine
        .begin_move("one", EngineSide::Jetstream, "me", "a test")
        .unwrap();
    let first = round(&engine, "one", &mut |_| Ok(())).unwrap();
    assert_eq!(
        (first.is_done, first.parcels, first.remaining),
        (false, 1, 1)
    );
    // Who has not heard of it yet claims in vain, on either engine.
    let waiting = Waiting {
        entry: ecluse_spool::ParcelEntry::new(&id("b"), 0),
    };
    assert!(old.claim(&waiting).unwrap().is_none());
    let marks = Marks {
        high: 100,
        low: 10,
        floor: Floor::Bytes(0),
    };
    let blocked = engine.pressure("one", &[], &marks, None).unwrap();
    assert!(
        matches!(&blocked, Some(Blocked::Paused(paused)) if paused.why.contains("moves to jetstream")),
        "{blocked:?}"
    );
    let store = Pipeline::parse(&servers.settings("hand"), "test").unwrap();
    let store = JetstreamEngine::open(&store.engine, root.path(), Some("other")).unwrap();
    assert_eq!(
        store.locate(&["one".to_owned()], &id("b")).unwrap().len(),
        1
    );

    assert_eq!(finish(&mut *old, in_hand), Finish::Committed);
    let last = round(&engine, "one", &mut |_| Ok(())).unwrap();
    assert!(last.is_done, "{last:?}");
    // The old worker ends by itself, and its successor works in the store.
    let ended = until("the old worker to end", || old.scan().err());
    assert!(matches!(ended, SpoolError::Fenced { .. }), "{ended}");
    let mut new = open(&engine, "one");
    let parcel = claim(&mut *new, "b");
    assert_eq!(finish(&mut *new, parcel), Finish::Committed);
    // A copy of what was done before the move is known for one.
    put(&engine, "one", "a", b"text");
    until("the copy to be dropped", || {
        assert!(try_claim(&mut *new, "a").is_none(), "it was done");
        let left = engine.locate(&["one".to_owned()], &id("a")).unwrap();
        left.is_empty().then_some(())
    });
    new.close().unwrap();
}

#[test]
fn workers_go_on_with_a_move_whose_command_was_killed() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "alone", root.path(), "directories");
    put(&engine, "one", "a", b"text");
    let mut worker = open(&engine, "one");
    engine
        .begin_move("one", EngineSide::Jetstream, "me", "a test")
        .unwrap();
    let killed = round(&engine, "one", &mut |step| match step {
        "uploaded" => Err(SpoolError::Refused("killed".into())),
        _ => Ok(()),
    });
    assert!(killed.is_err(), "{killed:?}");
    until("the worker to have moved the stage", || {
        worker.recover().unwrap();
        let standing = engine.standing("one").unwrap();
        (standing.home == EngineSide::Jetstream && !standing.is_moving).then_some(())
    });
    assert_eq!(engine.count("one", EngineSide::Jetstream).unwrap(), 1);
    assert_eq!(engine.count("one", EngineSide::Directories).unwrap(), 0);
}

#[test]
fn a_dead_worker_keeps_no_stage_from_moving() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "dead", root.path(), "directories");
    put(&engine, "one", "a", b"text");
    for to in [EngineSide::Jetstream, EngineSide::Directories] {
        let mut dead = open(&engine, "one");
        let parcel = claim(&mut *dead, "a");
        drop((parcel, dead));
        move_all(&engine, "one", to);
    }
    let place = engine.locate(&["one".to_owned()], &id("a")).unwrap();
    assert_eq!(place.len(), 1);
    assert_eq!((place[0].state, place[0].attempts), (ParcelState::Ready, 2));
}

#[test]
fn what_is_damaged_stays_and_is_told_of() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "damaged", root.path(), "directories");
    for name in ["good", "bad"] {
        put(&engine, "one", name, b"text");
    }
    fs::write(root.path().join("work/one/ready/bad~0/data"), b"other").unwrap();
    engine
        .begin_move("one", EngineSide::Jetstream, "me", "a test")
        .unwrap();
    let moved = round(&engine, "one", &mut |_| Ok(())).unwrap();
    assert!(moved.is_done, "{moved:?}");
    assert_eq!((moved.parcels, moved.left.len()), (1, 1));
    assert!(moved.left[0].1.contains("digest"), "{:?}", moved.left);
    let places = engine.locate(&["one".to_owned()], &id("bad")).unwrap();
    assert_eq!(places.len(), 1);
    assert_eq!(places[0].state, ParcelState::Held);
    let why = engine.why(&places[0]).unwrap().unwrap();
    assert!(why.reason.contains("digest"), "{}", why.reason);
}

#[test]
fn work_directories_of_another_machine_are_refused() {
    let servers = servers();
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = mixed(&servers, "trees", ours.path(), "directories");
    engine
        .begin_move("one", EngineSide::Jetstream, "me", "a test")
        .unwrap();
    let other = mixed(&servers, "trees", theirs.path(), "directories");
    let refused = other.begin_move("one", EngineSide::Jetstream, "me", "a test");
    assert!(
        matches!(refused, Err(SpoolError::Refused(_))),
        "{refused:?}"
    );
    assert!(round(&other, "one", &mut |_| Ok(())).unwrap().is_busy);
    assert!(round(&engine, "one", &mut |_| Ok(())).unwrap().is_done);
}

/// A chain whose stages are on different engines: each parcel passes all of them once.
#[test]
fn parcels_pass_between_engines() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = mixed(&servers, "pass", root.path(), "directories");
    move_all(&engine, "two", EngineSide::Jetstream);
    let names: Vec<String> = (0..5).map(|number| format!("p{number}")).collect();
    for name in &names {
        put(&engine, "one", name, name.as_bytes());
    }
    for stage in STAGES {
        let mut worker = open(&engine, stage);
        for name in &names {
            let parcel = claim(&mut *worker, name);
            assert_eq!(parcel.attempt(), 1);
            let passed = parcel.receipt_of("one").unwrap();
            assert_eq!(passed.is_some(), stage != "one", "{stage}");
            if stage == "three" {
                let mut works = vec![Work {
                    outbox: worker.outbox(std::slice::from_ref(&parcel)),
                    parcels: vec![parcel],
                }];
                works[0].outbox.consume();
                assert_eq!(worker.finish(&mut works).unwrap(), [Finish::Committed]);
            } else {
                assert_eq!(finish(&mut *worker, parcel), Finish::Committed);
            }
        }
        worker.close().unwrap();
    }
    for stage in STAGES {
        for side in [EngineSide::Directories, EngineSide::Jetstream] {
            assert_eq!(engine.count(stage, side).unwrap(), 0, "{stage} {side:?}");
        }
        let mut receipts = 0;
        engine.each_receipt(stage, &mut |_| receipts += 1).unwrap();
        assert_eq!(receipts, names.len(), "{stage}");
    }
}

#[test]
fn both_engines_together_keep_the_contract() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let mut number = 0;
    // The two stages of the contract: both here, both there, and one on each.
    let homes = [
        ("directories", Vec::new()),
        ("jetstream", Vec::new()),
        ("directories", vec!["two"]),
        ("jetstream", vec!["two"]),
    ];
    for (kind, moved) in homes {
        engine_contract(|| {
            number += 1;
            let dir = root.path().join(number.to_string());
            fs::create_dir(&dir).unwrap();
            let engine = mixed(&servers, &format!("contract{number}"), &dir, kind);
            for stage in &moved {
                let to = match kind {
                    "directories" => EngineSide::Jetstream,
                    _ => EngineSide::Directories,
                };
                move_all(&engine, stage, to);
            }
            std::sync::Arc::new(engine)
        });
    }
}
