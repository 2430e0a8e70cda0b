//! The protocol on a real file system, one step at a time: what each verb leaves on disk.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test plays the operator and the reaper by hand"
)]

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ecluse_spool::{
    Blocked, Finish, Floor, Gift, Host, Marks, Outbox, Parcel, ParcelEntry, ParcelId, ParcelState,
    RealFs, SpoolError, Waiting, Why, Work, WorkTree, Worker, WorkerLimits,
};

fn limits() -> WorkerLimits {
    WorkerLimits {
        settle: Duration::ZERO,
        ..WorkerLimits::default()
    }
}

fn worker(tree: &WorkTree, stage: &str, next: &[&str]) -> Worker {
    let next: Vec<String> = next.iter().map(|s| (*s).to_owned()).collect();
    Worker::open(tree, stage, &next, limits(), "test").unwrap()
}

fn give(tree: &WorkTree, stage: &str, root: &Path, name: &str, text: &str) -> ParcelId {
    let file = root.join(name);
    fs::write(&file, text).unwrap();
    tree.give(stage, &file, &Gift::default()).unwrap()
}

fn claim_one(worker: &mut Worker) -> Parcel {
    let scan = worker.scan().unwrap();
    assert_eq!(scan.waiting.len(), 1, "{scan:?}");
    worker.claim(&scan.waiting[0]).unwrap().unwrap()
}

fn commit(worker: &mut Worker, parcel: Parcel, outbox: Outbox) -> Finish {
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    worker.finish(&mut works).unwrap()[0]
}

/// Returns why a parcel of a stage is held or was discarded.
fn why(tree: &WorkTree, stage: &str, id: &ParcelId) -> Option<Why> {
    let places = tree.locate(&[stage.to_owned()], id).unwrap();
    places.iter().find_map(|place| tree.why(place).unwrap())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_parcel_passes_on_with_a_file_attached_and_its_history() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let mut one = worker(&tree, "one", &["two"]);
    let parcel = claim_one(&mut one);
    let mut text = String::new();
    parcel
        .open("a.txt")
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello");
    let mut outbox = one.outbox(std::slice::from_ref(&parcel));
    let mut file = outbox.create("a.len").unwrap();
    write!(file, "{}", text.len()).unwrap();
    outbox.attach(file).unwrap();
    outbox.fact("length", 5);
    assert_eq!(commit(&mut one, parcel, outbox), Finish::Committed);

    let ready = tree.stage("two").ready().join(format!("{id}~0"));
    assert_eq!(names(&ready), ["a.len", "a.txt", "history", "parcel.json"]);
    assert_eq!(names(&ready.join("history")), ["01-one.json"]);
    let receipt = tree.receipt("one", &id).unwrap().unwrap().receipt;
    assert_eq!(receipt.facts["length"], 5);

    let mut two = worker(&tree, "two", &[]);
    let parcel = claim_one(&mut two);
    assert_eq!(parcel.manifest().file("a.len").unwrap().bytes, 1);
    assert_eq!(parcel.receipt_of("one").unwrap(), Some(receipt));
    assert_eq!(parcel.receipt_of("on").unwrap(), None);
    let outbox = two.outbox(std::slice::from_ref(&parcel));
    // How far it is stands where others look for what a worker does.
    outbox.say("half of it");
    let seen = tree.workers("two", Duration::from_secs(60)).unwrap();
    assert_eq!(
        (seen[0].note.why.as_str(), seen[0].note.parcel.as_str()),
        ("half of it", id.as_str())
    );
    commit(&mut two, parcel, outbox);
    assert!(two.scan().unwrap().waiting.is_empty());
    assert!(names(&two.stage().claim().join(two.id().as_str()).join("in")).is_empty());
    one.close().unwrap();
    two.close().unwrap();
    assert!(names(&tree.stage("one").claim()).is_empty());
    assert!(names(&tree.stage("two").claim()).is_empty());
}

#[test]
fn fan_out_and_gather_name_everything_in_one_receipt() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let parent = give(&tree, "split", root.path(), "a.txt", "x y z");
    let mut split = worker(&tree, "split", &["gather"]);
    let parcel = claim_one(&mut split);
    let mut outbox = split.outbox(std::slice::from_ref(&parcel));
    for word in ["x", "y", "z"] {
        let mut output = outbox.parcel(ParcelId::new(word).unwrap(), "word").unwrap();
        let mut file = output.create("word").unwrap();
        file.write_all(word.as_bytes()).unwrap();
        output.add(file).unwrap();
        outbox.emit(output).unwrap();
    }
    assert!(outbox.parcel(ParcelId::new("x").unwrap(), "word").is_err());
    outbox.consume();
    commit(&mut split, parcel, outbox);
    let receipt = tree.receipt("split", &parent).unwrap().unwrap().receipt;
    assert_eq!(receipt.outputs.len(), 3);

    let mut gather = worker(&tree, "gather", &["end"]);
    let scan = gather.scan().unwrap();
    let parcels: Vec<Parcel> = scan
        .waiting
        .iter()
        .map(|w| gather.claim(w).unwrap().unwrap())
        .collect();
    assert_eq!(parcels.len(), 3);
    let mut outbox = gather.outbox(&parcels);
    let mut output = outbox
        .parcel(ParcelId::new("all").unwrap(), "words")
        .unwrap();
    for parcel in &parcels {
        let mut file = output.create(parcel.id().as_str()).unwrap();
        std::io::copy(&mut parcel.open("word").unwrap(), &mut file).unwrap();
        output.add(file).unwrap();
    }
    outbox.emit(output).unwrap();
    gather.finish(&mut vec![Work { parcels, outbox }]).unwrap();
    let all = tree.stage("end").ready().join("all~0");
    assert_eq!(names(&all), ["history", "parcel.json", "x", "y", "z"]);
    // Each member finds the batch's receipt under its own name.
    let receipt = tree
        .receipt("gather", &ParcelId::new("y").unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(receipt.receipt.inputs.len(), 3);
}

/// Puts a parcel into `ready/` with a birth mark of its own.
fn put(tree: &WorkTree, stage: &str, entry: &str, born: &str) {
    let name = entry.rsplit('/').next().unwrap();
    let id = name.split('~').next().unwrap();
    let dir = tree.init(stage).unwrap().ready().join(entry);
    fs::create_dir(&dir).unwrap();
    let manifest = format!(r#"{{"schema":1,"id":"{id}","kind":"k","born":"{born}","files":[]}}"#);
    fs::write(dir.join("parcel.json"), manifest).unwrap();
}

fn claim_entry(worker: &mut Worker, entry: &str) -> Parcel {
    let waiting = Waiting {
        entry: ParcelEntry::parse(entry.as_ref()).unwrap(),
    };
    worker.claim(&waiting).unwrap().unwrap()
}

fn batch(worker: &Worker, parcels: Vec<Parcel>, output: &str) -> Work {
    let mut outbox = worker.outbox(&parcels);
    let output = outbox.parcel(ParcelId::new(output).unwrap(), "sheet");
    outbox.emit(output.unwrap()).unwrap();
    Work { parcels, outbox }
}

#[test]
fn of_two_batches_with_a_copy_of_one_parcel_one_comes_out() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for (entry, born) in [("x~0", "1"), ("y~0", "2"), ("x~1", "3"), ("z~0", "4")] {
        put(&tree, "gather", entry, born);
    }
    let mut one = worker(&tree, "gather", &["next"]);
    let mut two = worker(&tree, "gather", &["next"]);
    let first = vec![claim_entry(&mut one, "x~0"), claim_entry(&mut one, "y~0")];
    let second = vec![claim_entry(&mut two, "z~0"), claim_entry(&mut two, "x~1")];
    let mut first = vec![batch(&one, first, "first")];
    let mut second = vec![batch(&two, second, "second")];
    assert_eq!(one.finish(&mut first).unwrap(), [Finish::Committed]);
    let finish = two.finish(&mut second).unwrap();
    assert_eq!(finish, [Finish::AlreadyCommitted]);
    assert_eq!(names(&tree.stage("next").ready()), ["first~0"]);
    assert_eq!(names(&tree.stage("gather").ready()), ["x~1", "z~0"]);
    let z = ParcelId::new("z").unwrap();
    assert!(tree.receipt("gather", &z).unwrap().is_none());

    // The copy is dropped, and its neighbour comes out with another batch.
    let scan = two.scan().unwrap();
    let claimed = scan.waiting.iter().map(|w| two.claim(w).unwrap());
    let parcels: Vec<Parcel> = claimed.flatten().collect();
    assert_eq!(parcels.len(), 1);
    let outbox = two.outbox(&parcels);
    let mut works = vec![Work { parcels, outbox }];
    assert_eq!(two.finish(&mut works).unwrap(), [Finish::Committed]);
    assert!(names(&tree.stage("gather").ready()).is_empty());
}

#[test]
fn members_filed_for_a_batch_that_was_never_committed_are_free_again() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for (entry, born) in [("x~0", "1"), ("y~0", "2"), ("x~1", "3")] {
        put(&tree, "gather", entry, born);
    }
    let mut dead = worker(&tree, "gather", &["next"]);
    let parcels = vec![claim_entry(&mut dead, "x~0"), claim_entry(&mut dead, "y~0")];
    // It dies when the first member is filed and the batch is not.
    let (x, stage) = (ParcelId::new("x").unwrap(), tree.stage("gather"));
    let input = |id: &str, born: &str| {
        format!(r#"{{"parcel":"{id}","born":"{born}","content":"c","digest":"d"}}"#)
    };
    let line = format!(
        r#"{{"work":"gather-b","schema":1,"stage":"gather","version":"0","worker":"w","attempt":1,"claimed":"c","finished":"f","inputs":[{},{}],"fate":{{"do":"consume"}}}}"#,
        input("x", "1"),
        input("y", "2")
    );
    let sheet = stage.home(dead.id()).join("out/.sheet-9");
    fs::write(&sheet, line + "\n").unwrap();
    fs::create_dir_all(stage.receipt(&x).parent().unwrap()).unwrap();
    fs::hard_link(&sheet, stage.receipt(&x)).unwrap();
    assert!(tree.receipt("gather", &x).unwrap().is_none());
    assert_eq!(
        ecluse_spool::fold(&tree, "gather", Duration::ZERO).unwrap(),
        0,
        "what is not committed is not folded"
    );

    // A copy waits until somebody has settled the dead.
    let mut heir = worker(&tree, "gather", &["next"]);
    let waiting = heir.scan().unwrap().waiting.remove(0);
    assert!(heir.claim(&waiting).unwrap().is_none());
    assert_eq!(names(&stage.deferred()).len(), 1);
    drop((parcels, dead));
    heir.recover().unwrap();
    assert!(!stage.receipt(&x).exists());
    assert_eq!(names(&stage.ready()), ["x~1", "y~1"]);
    let parcel = claim_entry(&mut heir, "x~1");
    let outbox = heir.outbox(std::slice::from_ref(&parcel));
    assert_eq!(commit(&mut heir, parcel, outbox), Finish::Committed);
}

#[test]
fn a_dead_workers_parcels_go_back_or_go_on_by_their_receipts() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let mut dead = worker(&tree, "one", &["two"]);
    let parcel = claim_one(&mut dead);
    assert_eq!(parcel.attempt(), 1);
    drop(parcel);
    drop(dead); // its lease is free: as dead as after a kill

    let mut heir = worker(&tree, "one", &["two"]);
    let recovered = heir.recover().unwrap();
    assert_eq!((recovered.workers, recovered.parcels), (1, 1));
    let parcel = claim_one(&mut heir);
    assert_eq!((parcel.id(), parcel.attempt()), (&id, 2));
    assert!(names(&tree.stage("one").reap()).is_empty());
}

#[test]
fn a_parcel_that_kills_five_workers_is_held() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "deadly");
    for _ in 0..5 {
        let mut victim = worker(&tree, "one", &["two"]);
        victim.recover().unwrap();
        claim_one(&mut victim);
    }
    let mut heir = worker(&tree, "one", &["two"]);
    heir.recover().unwrap();
    assert_eq!(names(&tree.stage("one").held()), [format!("{id}~5")]);
    let why = why(&tree, "one", &id).unwrap();
    assert_eq!(why.reason, "its worker died, 5 times");
}

#[test]
fn a_worker_taken_for_dead_is_fenced() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    give(&tree, "one", root.path(), "a.txt", "hello");
    let mut zombie = worker(&tree, "one", &["two"]);
    let parcel = claim_one(&mut zombie);
    let mut outbox = zombie.outbox(std::slice::from_ref(&parcel));
    let mut file = outbox.create("late").unwrap();
    file.write_all(b"late").unwrap();
    outbox.attach(file).unwrap();
    // What a reaper does, from a host that saw the lease stand still.
    let dead = tree.stage("one").reap().join(format!("{}@r", zombie.id()));
    fs::rename(tree.stage("one").claim().join(zombie.id().as_str()), &dead).unwrap();
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    let error = zombie.finish(&mut works).unwrap_err();
    assert!(
        matches!(error, SpoolError::Fenced { .. } | SpoolError::Io { .. }),
        "{error}"
    );
    assert!(matches!(
        zombie.check_fence(),
        Err(SpoolError::Fenced { .. })
    ));
    assert!(matches!(
        zombie.pulse().beat(),
        Err(SpoolError::Fenced { .. })
    ));
    assert!(zombie.reset().is_err());
    let mut heir = worker(&tree, "one", &["two"]);
    heir.recover().unwrap();
    let parcel = claim_one(&mut heir);
    assert!(parcel.manifest().file("late").is_none());
}

#[test]
fn a_late_copy_is_dropped_and_another_content_of_that_name_is_held() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let mut one = worker(&tree, "one", &["two"]);
    let parcel = claim_one(&mut one);
    let outbox = one.outbox(std::slice::from_ref(&parcel));
    commit(&mut one, parcel, outbox);
    assert_eq!(give(&tree, "one", root.path(), "a.txt", "hello"), id);
    let scan = one.scan().unwrap();
    assert!(one.claim(&scan.waiting[0]).unwrap().is_none());
    assert!(names(&tree.stage("one").held()).is_empty());

    // The same name with other bytes: made by hand, since an id holds the digest of its file.
    let again = tree.stage("one").ready().join(format!("{id}~0"));
    fs::create_dir(&again).unwrap();
    let manifest = format!(r#"{{"schema":1,"id":"{id}","kind":"file","born":"x","files":[]}}"#);
    fs::write(again.join("parcel.json"), manifest).unwrap();
    let scan = one.scan().unwrap();
    assert!(one.claim(&scan.waiting[0]).unwrap().is_none());
    let why = why(&tree, "one", &id).unwrap();
    assert!(why.reason.contains("with other content"), "{}", why.reason);

    // On purpose it is another id, and its receipt says what it replaces.
    let gift = Gift {
        again: true,
        ..Gift::default()
    };
    let second = tree.give("one", &root.path().join("a.txt"), &gift).unwrap();
    assert_eq!(second.as_str(), format!("{id}+2"));
}

#[test]
fn hostile_names_are_adopted_under_safe_ones_and_links_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let mut one = worker(&tree, "one", &["two"]);
    let drop = tree.stage("one").drop();
    let mut hostile: Vec<OsString> = [
        "new\nline",
        "\u{1b}[31mred",
        "..a",
        "sp ace",
        "-rf",
        "parcel.json",
        "history",
        "~1",
        "a@b",
        "é",
    ]
    .iter()
    .map(OsString::from)
    .collect();
    hostile.push(OsString::from_vec(vec![0xff, 0xfe, b'x']));
    hostile.push(OsString::from("y".repeat(255)));
    let plain = |name: &OsString| !name.to_string_lossy().starts_with('.');
    for (i, name) in hostile.iter().enumerate() {
        fs::write(drop.join(name), format!("content {i}")).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", drop.join("link")).unwrap();
    fs::create_dir(drop.join("dir")).unwrap();
    fs::write(drop.join("half.warc.gz.open"), "half").unwrap();
    let adopted = one.adopt(&[]).unwrap();
    let expected = hostile.iter().filter(|name| plain(name)).count();
    assert_eq!(adopted.parcels.len(), expected);
    assert_eq!(adopted.refused.len(), 2);
    assert_eq!(names(&drop), ["..a", "dir", "half.warc.gz.open", "link"]);
    let scan = one.scan().unwrap();
    assert_eq!(scan.waiting.len(), expected);
    for waiting in &scan.waiting {
        let parcel = one.claim(waiting).unwrap().unwrap();
        let file = parcel.only_file().unwrap().name.clone();
        let mut text = String::new();
        parcel
            .open(&file)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(text.starts_with("content "), "{text}");
        one.give_back(parcel).unwrap();
    }

    // Symbolic links where parcels lie, and inside a parcel.
    let ready = tree.stage("one").ready();
    std::os::unix::fs::symlink("/etc", ready.join("evil~0")).unwrap();
    let scan = one.scan().unwrap();
    assert_eq!(scan.refused, ["evil~0"]);
    fs::remove_file(ready.join("evil~0")).unwrap();
    let bad = ready.join("bad~0");
    fs::create_dir(&bad).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", bad.join("f")).unwrap();
    fs::write(
        bad.join("parcel.json"),
        r#"{"schema":1,"id":"bad","kind":"k","born":"b","files":[{"name":"f","bytes":1,"sha256":""}]}"#,
    )
    .unwrap();
    let bad = one.scan().unwrap();
    let bad = bad.waiting.iter().find(|w| w.entry.id.as_str() == "bad");
    let parcel = one.claim(bad.unwrap()).unwrap().unwrap();
    assert!(matches!(parcel.open("f"), Err(SpoolError::Damaged { .. })));
    assert!(parcel.open("../../parcel.json").is_err());
}

#[test]
fn a_manifest_that_points_outside_is_held() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let mut one = worker(&tree, "one", &["two"]);
    for (name, manifest) in [
        (
            "a",
            r#"{"schema":1,"id":"a","kind":"k","born":"b","files":[{"name":"../../x","bytes":1,"sha256":""}]}"#,
        ),
        (
            "b",
            r#"{"schema":1,"id":"other","kind":"k","born":"b","files":[]}"#,
        ),
        ("c", "not json"),
        ("d", ""),
    ] {
        let dir = tree.stage("one").ready().join(format!("{name}~0"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("parcel.json"), manifest).unwrap();
    }
    fs::create_dir(tree.stage("one").ready().join("e~0")).unwrap();
    for waiting in one.scan().unwrap().waiting {
        assert!(one.claim(&waiting).unwrap().is_none());
    }
    assert_eq!(tree.depths("one").unwrap().held, 5);
    let why = why(&tree, "one", &ParcelId::new("a").unwrap()).unwrap();
    assert_eq!(why.reason, "parcel.json names a file \"../../x\"");
}

#[test]
fn a_reason_counts_while_the_parcel_is_held() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let mut dead = worker(&tree, "one", &["two"]);
    let parcel = claim_one(&mut dead);
    // It died after it wrote down why, before it held the parcel.
    let stage = tree.stage("one");
    let reason = format!(
        r#"{{"parcel":"{id}","stage":"one","reason":"odd","attempts":1,"when":"now","by":"{}"}}"#,
        dead.id()
    );
    let inside = format!(r#"{{"stage":"one","held":{reason}}}"#);
    let claimed = stage.home(dead.id()).join("in").join(format!("{id}~1"));
    fs::write(claimed.join("trouble.json"), inside).unwrap();
    drop((parcel, dead));
    let mut heir = worker(&tree, "one", &["two"]);
    heir.recover().unwrap();
    assert!(why(&tree, "one", &id).is_none(), "it waits again");
    // What it was once held for stays with the stage that held it.
    let parcel = claim_one(&mut heir);
    let outbox = heir.outbox(std::slice::from_ref(&parcel));
    commit(&mut heir, parcel, outbox);
    let passed = tree.stage("two").ready().join(format!("{id}~0"));
    assert!(!passed.join("trouble.json").exists());

    // An earlier version put it beside the parcel.
    let held = stage.held();
    fs::create_dir(held.join("old~7")).unwrap();
    fs::write(held.join("old.why.json"), &reason).unwrap();
    let old = ParcelId::new("old").unwrap();
    assert_eq!(why(&tree, "one", &old).unwrap().reason, "odd");
    let place = tree.locate(&["one".to_owned()], &old).unwrap().remove(0);
    tree.release(&place).unwrap();
    assert!(names(&held).is_empty());
}

#[test]
fn a_host_whose_clock_is_years_ahead_sweeps_nothing_early() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let tmp = tree.init("two").unwrap().tmp();
    fs::create_dir(tmp.join("give-00000000000000ab")).unwrap();
    let years_later = Arc::new(|| 4_000_000_000_000);
    let tree = WorkTree::with(
        Arc::new(RealFs),
        tree.work(),
        tree.host.clone(),
        years_later,
        Arc::new(|| 7),
    );
    assert_eq!(tree.sweep("two", limits().tmp_age).unwrap(), 0);
    assert_eq!(tree.depths("two").unwrap().ready, 0);
    assert_eq!(tree.sweep("two", Duration::ZERO).unwrap(), 1);
}

#[test]
fn pressure_says_what_blocks() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    tree.init("one").unwrap();
    for i in 0..5 {
        give(&tree, "two", root.path(), &format!("{i}"), &format!("{i}"));
    }
    let marks = |high, low, floor| Marks { high, low, floor };
    let next = ["two".to_owned()];
    let free = marks(10, 8, Floor::Bytes(1));
    assert_eq!(tree.pressure("one", &next, &free, None).unwrap(), None);
    let tight = marks(4, 2, Floor::Bytes(1));
    let blocked = tree.pressure("one", &next, &tight, None).unwrap();
    assert!(matches!(&blocked, Some(Blocked::HighMark { stage, .. }) if stage == "two"));
    // Between the marks it stays blocked, and does not begin to be.
    let between = marks(5, 3, Floor::Bytes(1));
    assert!(
        tree.pressure("one", &next, &between, blocked.as_ref())
            .unwrap()
            .is_some()
    );
    assert!(
        tree.pressure("one", &next, &between, None)
            .unwrap()
            .is_none()
    );
    let full = marks(10, 8, Floor::Bytes(u64::MAX));
    let blocked = tree.pressure("one", &next, &full, None).unwrap();
    assert!(matches!(blocked, Some(Blocked::Space { .. })));
    tree.pause("one", "amel", "disk swap").unwrap();
    let Some(Blocked::Paused(paused)) = tree.pressure("one", &next, &free, None).unwrap() else {
        panic!("not paused");
    };
    assert_eq!(
        (paused.who.as_str(), paused.why.as_str()),
        ("amel", "disk swap")
    );
    assert!(tree.resume("one").unwrap());
    assert!(!tree.resume("one").unwrap());
}

#[test]
fn a_scan_counts_all_and_names_the_most_urgent_of_all() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let ids: Vec<ParcelId> = (0..40)
        .map(|i| give(&tree, "one", root.path(), &format!("p{i}"), "x"))
        .collect();
    let few = WorkerLimits {
        names: 3,
        ..limits()
    };
    let mut one = Worker::open(&tree, "one", &[], few, "test").unwrap();
    let scan = one.scan().unwrap();
    assert_eq!((scan.total, scan.waiting.len()), (40, 3));
    // Wherever in the directory they stand: in any order of forty, some come after the first three.
    for urgent in &ids {
        let mut looked = 0;
        let scan = one.scan_urgent(&mut |parcel, path| {
            looked += 1;
            assert!(path.join("parcel.json").exists(), "{parcel}");
            2 + u8::from(parcel == urgent)
        });
        let scan = scan.unwrap();
        assert_eq!((scan.total, looked), (40, 40));
        let named: Vec<&ParcelId> = scan.waiting.iter().map(|w| &w.entry.id).collect();
        assert_eq!(named, [urgent]);
    }
}

#[test]
fn the_age_of_what_waits_is_told_by_the_file_system_and_no_other_clock() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    let wrong = Arc::new(|| 86_400_000);
    let tree = WorkTree::with(Arc::new(RealFs), &work, Host::this(), wrong, Arc::new(|| 7));
    let mut one = worker(&tree, "one", &[]);
    assert_eq!(one.oldest(&[]).unwrap(), None);
    let [_, old, gone] =
        ["young", "old", "gone"].map(|name| give(&tree, "one", root.path(), name, "x"));
    let waiting = one.scan().unwrap().waiting;
    let (_, age) = one.oldest(&waiting).unwrap().unwrap();
    assert!(age < Duration::from_secs(3600), "{age:?}");
    let day = Duration::from_secs(86_400);
    let place = |id: &ParcelId| tree.stage("one").ready().join(format!("{id}~0"));
    let dir = fs::File::open(place(&old)).unwrap();
    let written = dir.metadata().unwrap().modified().unwrap();
    dir.set_modified(written - day).unwrap();
    fs::remove_dir_all(place(&gone)).unwrap();
    let (id, age) = one.oldest(&waiting).unwrap().unwrap();
    assert_eq!(id, old);
    assert!(age >= day && age < day * 2, "{age:?}");
}

/// Version 0.1 spread what waits over 256 directories once there was a crowd.
#[test]
fn parcels_in_shards_of_an_older_version_are_moved_up() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let ready = tree.init("one").unwrap().ready();
    for shard in 0..=255u8 {
        fs::create_dir(ready.join(format!("{shard:02x}"))).unwrap();
    }
    put(&tree, "one", "a~0", "1");
    put(&tree, "one", "07/b~2", "2");
    put(&tree, "one", "ff/c~0", "3");
    // Of one name, and another parcel: both are kept.
    put(&tree, "one", "07/a~0", "4");
    fs::write(ready.join("ff/stranger"), "").unwrap();

    let mut one = worker(&tree, "one", &[]);
    let scan = one.scan().unwrap();
    let mut found: Vec<String> = scan.waiting.iter().map(|w| w.entry.file_name()).collect();
    found.sort();
    assert_eq!(found, ["a~0", "b~2", "c~0"], "at once, each name once");
    assert_eq!(names(&ready), ["a~0", "a~1", "b~2", "c~0", "ff"]);
    assert_eq!(names(&ready.join("ff")), ["stranger"]);
    assert_eq!(tree.depths("one").unwrap().ready, 4);
    assert_eq!(one.scan().unwrap().total, 4);
}

#[test]
fn old_receipts_are_found_in_the_ledger() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let mut one = worker(&tree, "one", &[]);
    let mut ids = Vec::new();
    for i in 0..600 {
        let dir = tree.stage("one").ready().join(format!("p{i}~0"));
        fs::create_dir(&dir).unwrap();
        let manifest = format!(r#"{{"schema":1,"id":"p{i}","kind":"k","born":"b{i}","files":[]}}"#);
        fs::write(dir.join("parcel.json"), manifest).unwrap();
        ids.push(ParcelId::new(&format!("p{i}")).unwrap());
    }
    let mut works = Vec::new();
    for waiting in one.scan().unwrap().waiting {
        let parcels = vec![one.claim(&waiting).unwrap().unwrap()];
        let outbox = one.outbox(&parcels);
        works.push(Work { parcels, outbox });
    }
    one.finish(&mut works).unwrap();
    assert_eq!(
        ecluse_spool::fold(&tree, "one", Duration::from_secs(3600)).unwrap(),
        0
    );
    assert_eq!(
        ecluse_spool::fold(&tree, "one", Duration::ZERO).unwrap(),
        600
    );
    for id in &ids {
        let filed = tree.receipt("one", id).unwrap().expect("folded");
        assert_eq!(&filed.receipt.work, id);
    }
    assert!(
        tree.receipt("one", &ParcelId::new("p600").unwrap())
            .unwrap()
            .is_none()
    );
    // A late copy is still known.
    let dir = tree.stage("one").ready().join("p7~0");
    fs::create_dir(&dir).unwrap();
    fs::write(
        dir.join("parcel.json"),
        r#"{"schema":1,"id":"p7","kind":"k","born":"z","files":[]}"#,
    )
    .unwrap();
    let scan = one.scan().unwrap();
    assert!(one.claim(&scan.waiting[0]).unwrap().is_none());
    assert_eq!(tree.depths("one").unwrap().held, 0);
    assert_eq!(ecluse_spool::fold(&tree, "one", Duration::ZERO).unwrap(), 0);
}

fn done(tree: &WorkTree, worker: &mut Worker, names: &[&str]) -> Vec<ParcelId> {
    let mut works = Vec::new();
    for (number, name) in names.iter().enumerate() {
        put(tree, "one", &format!("{name}~0"), &format!("b{number}"));
        let parcels = vec![claim_entry(worker, &format!("{name}~0"))];
        let outbox = worker.outbox(&parcels);
        works.push(Work { parcels, outbox });
    }
    worker.finish(&mut works).unwrap();
    names.iter().map(|n| ParcelId::new(n).unwrap()).collect()
}

#[test]
fn a_fold_cut_short_leaves_nothing_twice_in_the_ledger() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let mut one = worker(&tree, "one", &[]);
    let stage = tree.stage("one");
    let first = done(&tree, &mut one, &["a"]).remove(0);
    let receipt = stage.receipt(&first);
    let kept = fs::read(&receipt).unwrap();
    let fold = || ecluse_spool::fold(&tree, "one", Duration::ZERO).unwrap();
    assert_eq!(fold(), 1);
    let shard = first.shard();
    let (index, ledger) = (
        stage.ledger().join(format!("{shard}.index")),
        stage.ledger().join(format!("{shard}.jsonl.gz")),
    );
    let before = (fs::read(&index).unwrap(), fs::read(&ledger).unwrap());
    // Cut short before the receipts were removed: the next fold removes them and writes nothing.
    fs::write(&receipt, &kept).unwrap();
    assert_eq!(fold(), 1);
    assert!(!receipt.exists());
    assert_eq!(
        (fs::read(&index).unwrap(), fs::read(&ledger).unwrap()),
        before
    );
    // Cut short before the index was replaced: what was appended goes.
    let torn: Vec<u8> = before.1.repeat(9);
    fs::write(&ledger, &torn).unwrap();
    fs::write(&receipt, &kept).unwrap();
    assert_eq!(fold(), 1);
    assert_eq!(
        (fs::read(&index).unwrap(), fs::read(&ledger).unwrap()),
        before
    );
    assert!(tree.receipt("one", &first).unwrap().is_some());
}

/// A worker killed while it handed a batch over, then a host that folds everything at once: its
/// clock is wrong, `keep-receipts` is short, or the root is started elsewhere a season later.
#[test]
fn what_a_dead_worker_has_still_to_hand_over_is_not_folded() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for (entry, born) in [("x~0", "1"), ("y~0", "2"), ("z~0", "3")] {
        put(&tree, "gather", entry, born);
    }
    let mut dead = worker(&tree, "gather", &["next"]);
    let alone = vec![claim_entry(&mut dead, "z~0")];
    let outbox = dead.outbox(&alone);
    let parcels = vec![claim_entry(&mut dead, "x~0"), claim_entry(&mut dead, "y~0")];
    // A directory in the way of the output: it is committed and not handed over.
    let stage = tree.stage("gather");
    let next = tree.init("next").unwrap();
    fs::remove_dir(next.ready()).unwrap();
    fs::write(next.ready(), "in the way").unwrap();
    let mut works = vec![batch(&dead, parcels, "sum")];
    assert!(dead.finish(&mut works).is_err());
    drop((dead, works));
    fs::remove_file(next.ready()).unwrap();
    fs::create_dir(next.ready()).unwrap();

    // On another host: the dead is settled when its lease has run out, and not before.
    let mut elsewhere = WorkTree::open(&root.path().join("work"));
    elsewhere.host = Host {
        name: "elsewhere".into(),
        ..elsewhere.host.clone()
    };
    let mut heir = worker(&elsewhere, "gather", &["next"]);
    assert_eq!(heir.recover().unwrap().workers, 0);
    assert_eq!(
        ecluse_spool::fold(&elsewhere, "gather", Duration::ZERO).unwrap(),
        0
    );
    drop((alone, outbox));
    heir.set_limits(WorkerLimits {
        lease: Duration::ZERO,
        ..limits()
    });
    assert_eq!(heir.recover().unwrap().workers, 1);
    assert_eq!(names(&next.ready()), ["sum~0"]);
    assert_eq!(names(&stage.ready()), ["z~1"]);
    // Settled: now all three may go, the members as a word about their batch.
    assert_eq!(
        ecluse_spool::fold(&elsewhere, "gather", Duration::ZERO).unwrap(),
        3
    );
    let x = tree
        .receipt("gather", &ParcelId::new("x").unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(x.receipt.inputs.len(), 2);
    let late = claim_entry(&mut heir, "z~1");
    heir.give_back(late).unwrap();
    put(&tree, "gather", "x~0", "9");
    let waiting = Waiting {
        entry: ParcelEntry::parse("x~0".as_ref()).unwrap(),
    };
    assert!(
        heir.claim(&waiting).unwrap().is_none(),
        "a late copy is known"
    );
    assert!(names(&stage.held()).is_empty());
}

/// Folded between the look of a reaper and its hand-over: the ledger has it.
#[test]
fn a_hand_over_goes_on_when_its_receipt_was_folded_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for (entry, born) in [("x~0", "1"), ("y~0", "2")] {
        put(&tree, "gather", entry, born);
    }
    let stage = tree.stage("gather");
    let mut dead = worker(&tree, "gather", &["next"]);
    let parcels = vec![claim_entry(&mut dead, "x~0"), claim_entry(&mut dead, "y~0")];
    let next = tree.init("next").unwrap();
    fs::remove_dir(next.ready()).unwrap();
    fs::write(next.ready(), "in the way").unwrap();
    let mut works = vec![batch(&dead, parcels, "sum")];
    assert!(dead.finish(&mut works).is_err());
    let home = stage.home(dead.id());
    drop((dead, works));
    fs::remove_file(next.ready()).unwrap();
    fs::create_dir(next.ready()).unwrap();
    // As a fold does that saw nothing of this worker.
    let hidden = root.path().join("hidden");
    fs::rename(&home, &hidden).unwrap();
    assert_eq!(
        ecluse_spool::fold(&tree, "gather", Duration::ZERO).unwrap(),
        3
    );
    fs::rename(&hidden, &home).unwrap();
    let mut heir = worker(&tree, "gather", &["next"]);
    assert_eq!(heir.recover().unwrap().workers, 1);
    assert_eq!(names(&next.ready()), ["sum~0"]);
    assert_eq!(
        names(&next.ready().join("sum~0/history")),
        ["01-gather.json"]
    );
    assert!(names(&stage.ready()).is_empty(), "nothing is done twice");
}

#[test]
fn an_operator_moves_parcels_by_verb_or_by_hand() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let stages = ["one".to_owned()];
    let place = || tree.locate(&stages, &id).unwrap().remove(0);
    tree.hold(&place(), "looks odd", "amel").unwrap();
    assert_eq!(place().state, ParcelState::Held);
    assert!(tree.hold(&place(), "again", "amel").is_err());
    tree.release(&place()).unwrap();
    assert_eq!(place().state, ParcelState::Ready);
    assert!(why(&tree, "one", &id).is_none());
    fs::rename(
        place().path,
        tree.stage("one").held().join(format!("{id}~0")),
    )
    .unwrap();
    assert_eq!(place().state, ParcelState::Held);
    let to = tree.discard(&place(), "not ours", "amel").unwrap();
    assert!(to.join("parcel.json").exists());
    assert_eq!(place().state, ParcelState::Discarded);
    let reason = tree.why(&place()).unwrap().unwrap();
    assert_eq!((&*reason.reason, &*reason.by), ("not ours", "amel"));
    tree.release(&place()).unwrap();
    assert!(tree.why(&place()).unwrap().is_none());
    let mut one = worker(&tree, "one", &["two"]);
    let before = place();
    let parcel = claim_one(&mut one);
    assert!(tree.hold(&before, "too late", "amel").is_err());
    one.give_back(parcel).unwrap();
}

#[test]
fn a_copy_set_aside_again_takes_nothing_from_the_first() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    let mut bins = Vec::new();
    for _ in 0..3 {
        let id = give(&tree, "one", root.path(), "a.txt", "hello");
        let places = tree.locate(&["one".to_owned()], &id).unwrap();
        let waiting = places
            .iter()
            .find(|place| place.state == ParcelState::Ready);
        bins.push(tree.discard(waiting.unwrap(), "again", "amel").unwrap());
    }
    bins.sort();
    bins.dedup();
    assert_eq!(bins.len(), 3);
    assert!(bins.iter().all(|bin| bin.join("a.txt").exists()));
    // Only one can be let back at a time, and the other says why it cannot.
    let id = give(&tree, "one", root.path(), "a.txt", "hello");
    let places = tree.locate(&["one".to_owned()], &id).unwrap();
    let discarded = places
        .iter()
        .find(|place| place.state == ParcelState::Discarded);
    let refused = tree.release(discarded.unwrap()).unwrap_err().to_string();
    assert!(refused.contains("is there already"), "{refused}");
}

#[test]
fn finished_work_is_known_by_name_and_makers_by_the_mark_of_what_they_made() {
    let root = tempfile::tempdir().unwrap();
    let tree = WorkTree::open(&root.path().join("work"));
    for (entry, born) in [("x~0", "1"), ("y~0", "2"), ("z~0", "3")] {
        put(&tree, "one", entry, born);
    }
    let mut one = worker(&tree, "one", &["two"]);
    let members = vec![claim_entry(&mut one, "x~0"), claim_entry(&mut one, "y~0")];
    let mut works = vec![batch(&one, members, "made")];
    assert_eq!(one.finish(&mut works).unwrap(), [Finish::Committed]);
    let z = claim_entry(&mut one, "z~0");
    let outbox = one.outbox(std::slice::from_ref(&z));
    commit(&mut one, z, outbox);

    let mut finished = Vec::new();
    let stages = ["one".to_owned(), "two".to_owned(), "one".to_owned()];
    tree.each_finished(&stages, &mut |stage, name| {
        assert_eq!(stage, "one");
        finished.push(name.to_owned());
    })
    .unwrap();
    let count = finished.len();
    finished.sort();
    finished.dedup();
    assert_eq!(finished.len(), count, "each once");
    for name in ["x", "y", "z"] {
        assert!(finished.iter().any(|known| known == name), "{finished:?}");
    }
    // Through the next stage and gone: its receipt there still says who made it.
    let mut two = worker(&tree, "two", &[]);
    let made = claim_entry(&mut two, "made~0");
    let outbox = two.outbox(std::slice::from_ref(&made));
    let id = made.id().clone();
    commit(&mut two, made, outbox);
    let input = tree.receipt("two", &id).unwrap().unwrap().receipt.inputs[0].clone();
    let (stage, work) = ecluse_spool::maker_of(&input.born).unwrap();
    let maker = tree.receipt(stage, &work).unwrap().unwrap().receipt;
    assert_eq!(maker.outputs[0].parcel, id);
    assert_eq!(maker.outputs[0].digest, input.digest);
    // Who has no maker of another name says none, and neither does what is no name.
    for born in ["1", "given-0000000000000000", "0 one ../x", "0 one"] {
        assert_eq!(ecluse_spool::maker_of(born), None, "{born}");
    }
}
