//! A gathering stage and one bad parcel in its batch.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ecluse_config::Pipeline;
use ecluse_spool::WorkTree;
use ecluse_stage::{
    Control, Exit, Failure, Home, Intake, Outbox, Parcel, ParcelId, Progress, RunEnd, RunPlan,
    Stage, StageEntry, supervise,
};

/// Gathers the first bytes of its parcels; refuses a batch with a bad one in it.
struct Gather;

impl Stage for Gather {
    const NAME: &'static str = "gather";
    const INTAKE: Intake = Intake::Batch;
    const ABOUT: &'static str = "Gathers, for a test";
    type Settings = Settings;

    fn open(_settings: Settings, _home: &Home) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn writes(_settings: &Settings, _home: &Home) -> Vec<PathBuf> {
        Vec::new()
    }

    fn process(&mut self, parcel: &Parcel, _outbox: &mut Outbox) -> Result<(), Failure> {
        Err(Failure::config(format!("{} came alone", parcel.id())))
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let members: Vec<ParcelId> = batch.iter().map(|parcel| parcel.id().clone()).collect();
        let mut output = outbox.parcel(ParcelId::of_batch("sheet", &members), "sheet")?;
        let mut sheet = output.create("sheet")?;
        for parcel in batch {
            let mut text = String::new();
            parcel.open("data")?.read_to_string(&mut text)?;
            match text.as_str() {
                "name" => return Err(Failure::hold("bad").of_member(parcel.id())),
                "config" => return Err(Failure::config("no such target")),
                "hold" => return Err(Failure::hold(format!("{} is bad", parcel.id()))),
                "panic" => panic!("{} crashes", parcel.id()),
                "defer" => return Err(Failure::defer("later")),
                _ => writeln!(sheet, "{}", parcel.id())?,
            }
        }
        output.add(sheet)?;
        outbox.emit(output)?;
        Ok(())
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

fn put(tree: &WorkTree, id: &str, bytes: &[u8]) {
    let id = ParcelId::new(id).unwrap();
    tree.put("gather", &id, "test", |parcel| parcel.write("data", bytes))
        .unwrap();
}

/// Runs until nothing is left to do.
fn run(root: &Path) -> RunEnd {
    run_until(root, None)
}

/// Runs until so many parcels are done.
fn run_until(root: &Path, done: Option<u64>) -> RunEnd {
    let config = root.join("pipeline.toml");
    let text = "[defaults]\nmin-free = \"0 B\"\n[chain]\nstages = [\"gather\", \"sink\"]\n\
                [stage.gather]\nattempts = 3\nretry.first = \"1h\"\n\
                batch = { parcels = 9, wait = \"1h\" }\n";
    std::fs::write(&config, text).unwrap();
    let control = Arc::new(Control::new(Pipeline::load(Some(&config)).unwrap()));
    let to_stop = Arc::clone(&control);
    let stop: Progress = Box::new(move |pools| {
        let tally = &pools[0].tally;
        if done.is_some_and(|done| tally.done.load(Ordering::SeqCst) >= done) {
            to_stop.stop();
        }
    });
    let plan = RunPlan {
        root: root.to_owned(),
        config: Some(config.clone()),
        once: done.is_none(),
        version: "test",
        progress: Some(stop),
        log: None,
    };
    supervise(plan, &control, &[StageEntry::of::<Gather>()], None, None).unwrap()
}

fn members(tree: &WorkTree) -> Vec<String> {
    let mut members = Vec::new();
    tree.each_receipt("gather", &mut |filed| {
        let inputs = filed.receipt.inputs.iter();
        members.extend(inputs.map(|input| input.parcel.to_string()));
    })
    .unwrap();
    members.sort();
    members
}

#[test]
fn one_bad_parcel_is_held_and_the_rest_of_its_batch_passes() {
    for (word, reason) in [("hold", "bad is bad"), ("panic", "bad crashes")] {
        let root = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(&root.path().join("work"));
        for id in ["a", "b", "c", "d"] {
            put(&tree, id, b"fine");
        }
        put(&tree, "bad", word.as_bytes());
        let ended = run(root.path());
        assert_eq!(ended.exit(), Exit::Held, "{word}: {ended:?}");
        assert_eq!(ended.held, 1, "{word}: {ended:?}");
        assert_eq!(members(&tree), ["a", "b", "c", "d"], "{word}");
        let bad = ParcelId::new("bad").unwrap();
        let places = tree.locate(&["gather".into()], &bad).unwrap();
        let why = tree.why(&places[0]).unwrap().unwrap().reason;
        assert!(why.contains(reason), "{word}: {why}");
        let depths = tree.depths("gather").unwrap();
        assert_eq!((depths.ready, depths.working, depths.held), (0, 0, 1));
    }
}

#[test]
fn the_neighbours_of_a_bad_parcel_do_not_wait_for_another_batch() {
    for (word, named) in [("hold", false), ("panic", false), ("name", true)] {
        let root = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(&root.path().join("work"));
        for id in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            put(&tree, id, b"fine");
        }
        put(&tree, "bad", word.as_bytes());
        run_until(root.path(), Some(8));
        let sheets = tree.depths("sink").unwrap().ready;
        if named {
            assert_eq!(sheets, 1, "{word}: all in one go");
        } else {
            assert!(sheets <= 4, "{word}: {sheets} batches, no more than halves");
        }
        let depths = tree.depths("gather").unwrap();
        let is_left = usize::from(word == "panic");
        assert_eq!((depths.ready, depths.held), (is_left, 1 - is_left));
    }
}

#[test]
fn a_stage_that_blames_the_settings_ends_with_their_code_and_its_own_words() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    put(&tree, "a", b"config");
    let ended = run(root.path());
    assert_eq!(ended.exit(), Exit::Config, "{ended:?}");
    assert_eq!(ended.halted.as_deref(), Some("gather: no such target"));
    assert_eq!(tree.depths("gather").unwrap().ready, 1, "nothing is lost");
}

#[test]
fn a_batch_that_waits_leaves_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for id in ["a", "b", "c"] {
        put(&tree, id, b"defer");
    }
    let ended = run(root.path());
    assert_eq!(ended.exit(), Exit::Deferred, "{ended:?}");
    assert_eq!(ended.deferred, 3);
    assert_eq!(ended.halted, None);
    assert_eq!(tree.depths("gather").unwrap().workers, 0);
}
