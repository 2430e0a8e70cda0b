//! Collecting, asked of real servers: what killed workers left goes, and nothing that lives, whatever is done beside it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ecluse_config::{Pipeline, Span};
use ecluse_spool::{
    Engine, Finish, Parcel, ParcelState, ReconcileExtent, Signs, Spool, Work, WorkerLimits,
    WorkerTerms,
};
use ecluse_testkit::root::until;
use ecluse_testkit::servers::EngineServers;

use super::*;
use crate::JetstreamEngine;
use crate::hand_over::Repeat;
use crate::worker::JetstreamWorker;

/// How far a worker comes before it dies.
const DEATHS: [&str; 4] = ["files", "committed", "handed-over", "half-removed"];

fn servers() -> EngineServers {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    EngineServers::start(&nats, &weed)
}

fn open(servers: &EngineServers, prefix: &str, root: &Path, host: &str) -> JetstreamEngine {
    let settings = Pipeline::parse(&servers.settings(prefix), "test").unwrap();
    JetstreamEngine::open(&settings.engine, &root.join(host), Some(host)).unwrap()
}

/// Opens an engine to which everything is old.
fn collector(servers: &EngineServers, prefix: &str, root: &Path) -> JetstreamEngine {
    let mut settings = Pipeline::parse(&servers.settings(prefix), "test").unwrap();
    settings.engine.collect_after = Span(Duration::ZERO);
    JetstreamEngine::open(&settings.engine, &root.join("collector"), Some("collector")).unwrap()
}

fn worker(engine: &JetstreamEngine, stage: &str) -> JetstreamWorker {
    let limits = WorkerLimits {
        lease: Duration::from_millis(1500),
        attempts: 1000,
        ..WorkerLimits::default()
    };
    let next = match stage {
        "one" => vec!["two".to_owned()],
        _ => Vec::new(),
    };
    let terms = WorkerTerms {
        stage,
        next: &next,
        limits: &limits,
        version: "0",
    };
    JetstreamWorker::open(engine, &terms).unwrap()
}

fn put(engine: &JetstreamEngine, name: &str) {
    let engine: &dyn Engine = engine;
    let id = ParcelId::new(name).unwrap();
    let put = engine.put::<SpoolError>("one", &id, "test", |parcel| parcel.write("data", b"text"));
    put.unwrap();
}

fn try_claim(worker: &mut JetstreamWorker) -> Option<Parcel> {
    let waiting = worker.scan().unwrap().waiting.pop()?;
    worker.claim(&waiting).unwrap()
}

/// Attaches a note to a parcel and makes two others of it, one of which is of this try alone.
fn work(worker: &JetstreamWorker, parcel: Parcel, by: &str) -> Work {
    let id = parcel.id().clone();
    let parcels = vec![parcel];
    let mut outbox = worker.outbox(&parcels);
    let mut note = outbox.create("note").unwrap();
    write!(note, "a note by {by}").unwrap();
    outbox.attach(note).unwrap();
    for name in [format!("{id}-both"), format!("{id}-of-{by}")] {
        let name = ParcelId::new(&name).unwrap();
        let mut made = outbox.parcel(name, "test").unwrap();
        made.write("made", format!("made by {by}").as_bytes())
            .unwrap();
        outbox.emit(made).unwrap();
    }
    Work { parcels, outbox }
}

fn finish(worker: &mut JetstreamWorker, work: Work) -> Finish {
    worker.finish(&mut vec![work]).unwrap()[0]
}

/// Reads every file of what waits in the second stage, and consumes it; returns the names.
fn consume_all(worker: &mut JetstreamWorker) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    while let Some(parcel) = try_claim(worker) {
        for file in &parcel.manifest().files {
            let mut text = String::new();
            let mut opened = parcel.open(&file.name).unwrap();
            opened.read_to_string(&mut text).unwrap();
            assert_eq!(digest(text.as_bytes()), file.sha256);
        }
        names.insert(parcel.id().to_string());
        let parcels = vec![parcel];
        let mut outbox = worker.outbox(&parcels);
        outbox.consume();
        finish(worker, Work { parcels, outbox });
    }
    names
}

fn keys(engine: &JetstreamEngine, directory: &str) -> Vec<String> {
    let inner = &engine.inner;
    let listed: Vec<Listed> = inner
        .wait(inner.store.list(directory, "").try_collect())
        .unwrap();
    listed.into_iter().map(|listed| listed.name).collect()
}

fn collect(engine: &JetstreamEngine, extent: CollectExtent) -> Collected {
    engine.collect(extent).unwrap().unwrap()
}

/// Waits until what was put before is old by the store's clock, which counts seconds.
fn be_old(collector: &JetstreamEngine) {
    let inner = &collector.inner;
    let probe = format!("probes/{:016x}", crate::cluster::dice());
    inner.wait(inner.store.put(&probe, b"")).unwrap();
    until("a probe to be old", || {
        let probes = inner.store.list("probes/", "");
        let probes: Vec<Listed> = inner.wait(probes.try_collect()).unwrap();
        let now = inner.now_ms();
        probes
            .iter()
            .all(|listed| listed.written_ms < now)
            .then_some(())
    });
    inner.wait(inner.store.remove(&probe)).unwrap();
}

#[test]
fn what_a_try_left_that_did_not_count_is_collected() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let (alpha, beta) = (
        open(&servers, "tries", root.path(), "alpha"),
        open(&servers, "tries", root.path(), "beta"),
    );
    let collector = collector(&servers, "tries", root.path());
    put(&alpha, "a");
    let mut zombie = worker(&alpha, "one");
    let his = until("a parcel", || try_claim(&mut zombie));
    let his = work(&zombie, his, "zombie");
    let mut heir = worker(&beta, "one");
    let ours = until("the dead worker's parcel", || try_claim(&mut heir));
    let ours = work(&heir, ours, "heir");
    assert_eq!(finish(&mut heir, ours), Finish::Committed);
    assert_eq!(finish(&mut zombie, his), Finish::AlreadyCommitted);
    let before = keys(&alpha, "payloads/");
    assert_eq!(before.len(), 7, "{before:?}");

    // Nothing is old to those who work.
    assert_eq!(collect(&alpha, CollectExtent::All), Collected::default());
    let expected = Collected {
        files: 1,
        bytes: "made by zombie".len() as u64,
        sheets: 1,
        ..Collected::default()
    };
    be_old(&collector);
    assert_eq!(collect(&collector, CollectExtent::Count), expected);
    assert_eq!(keys(&alpha, "payloads/"), before);
    assert_eq!(collect(&collector, CollectExtent::All), expected);
    let after = keys(&alpha, "payloads/");
    let gone: Vec<&String> = before.iter().filter(|key| !after.contains(key)).collect();
    assert_eq!(gone.len(), 1);
    assert!(gone[0].contains("/a-of-zombie="), "{gone:?}");
    assert_eq!(keys(&alpha, "stages/one/sheets/"), Vec::<String>::new());

    // The other files of that try go with the parcels that they were for.
    let mut second = worker(&beta, "two");
    let mut names = BTreeSet::new();
    until("all to arrive", || {
        names.extend(consume_all(&mut second));
        (names.len() == 3).then_some(())
    });
    assert_eq!(keys(&alpha, "payloads/").len(), 2);
    assert_eq!(collect(&collector, CollectExtent::All).files, 2);
    assert_eq!(keys(&alpha, "payloads/"), Vec::<String>::new());
    for worker in [zombie, heir, second] {
        Box::new(worker).close().unwrap();
    }
}

/// A worker dies after each of its steps; collected at once, the next one finishes what was begun, with all its files.
#[test]
fn wherever_a_worker_dies_nothing_that_lives_is_collected() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let (alpha, beta) = (
        open(&servers, "deaths", root.path(), "alpha"),
        open(&servers, "deaths", root.path(), "beta"),
    );
    let collector = collector(&servers, "deaths", root.path());
    let mut dead = worker(&alpha, "one");
    let inner = &alpha.inner;
    for death in DEATHS {
        put(&alpha, death);
        let parcel = until("a parcel", || try_claim(&mut dead));
        let work = work(&dead, parcel, "dead");
        let (deed, inputs) = dead.deed_of(&work, "2026-01-01T00:00:00Z").unwrap();
        let line = deed.receipt.to_line();
        inner.wait(async {
            let signs = Signs::default();
            if death == "files" {
                return inner.send_files("one", &deed, &line, &signs).await.unwrap();
            }
            let finish = inner.commit("one", &deed, &signs).await.unwrap();
            assert_eq!(finish, Finish::Committed);
            if death == "committed" {
                return;
            }
            let sent = Some(deed.sheet.sent.as_slice());
            let left = inner.hand_over("one", &deed.receipt, &inputs, sent, Repeat::No);
            drop(left.await.unwrap());
            if death == "half-removed" {
                let sheet = StageKeys("one").sheet(&deed.receipt.work, &line);
                inner.store.remove(&sheet).await.unwrap();
            }
        });
        be_old(&collector);
        let collected = collect(&collector, CollectExtent::All);
        assert_eq!(collected, Collected::default(), "{death}");
    }
    let mut heir = worker(&beta, "one");
    until("all to be finished", || {
        if let Some(parcel) = try_claim(&mut heir) {
            let work = work(&heir, parcel, "heir");
            finish(&mut heir, work);
        }
        keys(&beta, "stages/one/in/").is_empty().then_some(())
    });
    be_old(&collector);
    // The files that the first one put before it was committed are of nobody now, but for what the heir made too.
    let collected = collect(&collector, CollectExtent::All);
    assert_eq!((collected.files, collected.sheets), (1, 1));
    let mut second = worker(&beta, "two");
    let mut names = BTreeSet::new();
    until("all to arrive", || {
        // Who died before he told of a parcel told nobody.
        beta.reconcile("two", ReconcileExtent::All).unwrap();
        names.extend(consume_all(&mut second));
        (names.len() == 3 * DEATHS.len()).then_some(())
    });
    be_old(&collector);
    collect(&collector, CollectExtent::All);
    assert_eq!(keys(&beta, "payloads/"), Vec::<String>::new());
    assert_eq!(keys(&beta, "stages/one/sheets/"), Vec::<String>::new());
    for worker in [dead, heir, second] {
        Box::new(worker).close().unwrap();
    }
}

#[test]
fn what_is_not_understood_stays_and_marks_that_mean_nothing_go() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let alpha = open(&servers, "marks", root.path(), "alpha");
    let collector = collector(&servers, "marks", root.path());
    for name in ["held", "discarded", "ready"] {
        put(&alpha, name);
    }
    let mut places = Vec::new();
    alpha
        .each_place("one", &mut |place| places.push(place))
        .unwrap();
    for place in places {
        match place.parcel.as_str() {
            "held" => alpha.hold(&place, "a test", "test").unwrap(),
            "discarded" => drop(alpha.discard(&place, "a test", "test").unwrap()),
            _ => {}
        }
    }
    let living = keys(&alpha, "payloads/");
    let id = ParcelId::new("left").unwrap();
    let file = format!(
        "{}/{id}=0123456789ab/{}-89abcdef",
        id.shard(),
        "0".repeat(64)
    );
    let nobody = format!("{id}=0123456789ab");
    let inner = &alpha.inner;
    let left = [
        format!("payloads/given/{file}"),
        "probes/race-1".to_owned(),
        format!("stages/one/held/{nobody}"),
        format!("stages/one/discarded/{nobody}"),
        format!("stages/one/moving/{nobody}"),
        format!("stages/one/deferred/000000000099={nobody}"),
    ];
    let unclear = [
        format!("payloads/one/{file}"),
        format!("payloads/moved/{file}"),
        "payloads/given/readme".to_owned(),
        "stages/one/held/readme".to_owned(),
    ];
    let kept = format!("stages/one/gone/{nobody}");
    inner.wait(async {
        for key in left.iter().chain(&unclear).chain([&kept]) {
            inner.store.put(key, b"").await.unwrap();
        }
    });
    let expected = Collected {
        files: 1,
        marks: 5,
        unclear: 4,
        ..Collected::default()
    };
    be_old(&collector);
    assert_eq!(collect(&collector, CollectExtent::Count), expected);
    assert_eq!(collect(&collector, CollectExtent::All), expected);
    inner.wait(async {
        for key in &left {
            assert!(inner.store.get(key).await.unwrap().is_none(), "{key}");
        }
        for key in unclear.iter().chain([&kept]) {
            assert!(inner.store.get(key).await.unwrap().is_some(), "{key}");
        }
    });
    for key in &living {
        assert!(keys(&alpha, "payloads/").contains(key), "{key}");
    }
    assert_eq!(keys(&alpha, "stages/one/held/").len(), 2);
    let again = collect(&collector, CollectExtent::All);
    assert_eq!((again.files, again.marks), (0, 0));

    // A sheet that makes no sense keeps all that its stage made.
    inner.wait(async {
        inner
            .store
            .put("stages/one/sheets/a=b", b"?")
            .await
            .unwrap();
    });
    assert_eq!(collect(&collector, CollectExtent::All).unclear, 4);
    let read = inner
        .wait(inner.store.get("stages/one/sheets/a=b"))
        .unwrap();
    assert!(read.is_some());
}

#[test]
fn by_themselves_the_hosts_collect_once_a_day() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let collector = collector(&servers, "days", root.path());
    let other = open(&servers, "days", root.path(), "other");
    let probe = "probes/race-1";
    let inner = &collector.inner;
    inner.wait(inner.store.put(probe, b"")).unwrap();
    until("it to be old", || {
        (collect(&collector, CollectExtent::Count).marks == 1).then_some(())
    });
    assert_eq!(collector.collect(CollectExtent::IfDue).unwrap(), None);
    until("it to be collected", || {
        let read = inner.wait(inner.store.get(probe)).unwrap();
        read.is_none().then_some(())
    });
    let note = || inner.wait(inner.store.get(NOTE)).unwrap().unwrap().bytes;
    let first = note();
    for engine in [&collector, &other] {
        assert_eq!(engine.collect(CollectExtent::IfDue).unwrap(), None);
    }
    assert_eq!(note(), first);
}

/// A chain at work, with workers that die and wake up, and a collector to which everything is old: all arrives, whole.
#[test]
fn beside_a_chain_at_work_nothing_that_lives_is_collected() {
    const PARCELS: usize = 24;
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engines = ["alpha", "beta"].map(|host| open(&servers, "beside", root.path(), host));
    let collector = collector(&servers, "beside", root.path());
    // Before it begins: what is being given is too young for any collector but this one.
    for number in 0..PARCELS {
        put(&engines[0], &format!("p{number}"));
    }
    let is_over = AtomicBool::new(false);
    let mut arrived = BTreeSet::new();
    let sleepers = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::SeqCst) {
                collect(&collector, CollectExtent::All);
                rounds += 1;
            }
            rounds
        });
        let makers: Vec<_> = engines
            .iter()
            .map(|engine| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut sleepers = Vec::new();
                    let mut maker = worker(engine, "one");
                    let mut count = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let Some(parcel) = try_claim(&mut maker) else {
                            continue;
                        };
                        count += 1;
                        let by = format!("{}{count}", engine.inner.host.name);
                        let work = work(&maker, parcel, &by);
                        if count % 4 == 0 && sleepers.len() < 3 {
                            // This one shows no sign of life any more, with work in its hands.
                            let sleeper = std::mem::replace(&mut maker, worker(engine, "one"));
                            sleepers.push((sleeper, work));
                        } else {
                            finish(&mut maker, work);
                        }
                    }
                    Box::new(maker).close().unwrap();
                    sleepers
                })
            })
            .collect();
        let mut second = worker(&engines[1], "two");
        until("all to arrive", || {
            arrived.extend(consume_all(&mut second));
            let is_empty = keys(&engines[0], "stages/one/in/").is_empty();
            (is_empty && keys(&engines[0], "stages/two/in/").is_empty()).then_some(())
        });
        Box::new(second).close().unwrap();
        is_over.store(true, Ordering::SeqCst);
        assert!(collecting.join().unwrap() > 0);
        let joined = makers.into_iter().map(|maker| maker.join().unwrap());
        joined.flatten().collect::<Vec<_>>()
    });
    assert_eq!(arrived.len(), 3 * PARCELS);
    // They wake up, and find that another was first.
    let slept = sleepers.len() as u64;
    for (mut sleeper, work) in sleepers {
        assert_eq!(finish(&mut sleeper, work), Finish::AlreadyCommitted);
        Box::new(sleeper).close().unwrap();
    }
    be_old(&collector);
    let collected = collect(&collector, CollectExtent::All);
    assert!(slept > 0 && collected.sheets >= slept, "{collected:?}");
    assert_eq!(keys(&engines[0], "payloads/"), Vec::<String>::new());
    let mut held = 0;
    let mut see =
        |place: ecluse_spool::ParcelPlace| held += u64::from(place.state == ParcelState::Held);
    engines[0].each_place("one", &mut see).unwrap();
    assert_eq!(held, 0);
}

#[test]
fn only_keys_of_files_are_taken_for_such() {
    let id = ParcelId::new("a.warc").unwrap();
    let (owner, shard) = (format!("{id}=0123456789ab"), id.shard());
    let file = format!("{}-89abcdef", "0".repeat(64));
    let good = format!("{shard}/{owner}/{file}");
    let (number, found, parcel) = parse_file(&good).unwrap();
    assert_eq!((found, parcel), (owner.as_str(), id));
    assert_eq!(format!("{number:02x}"), shard);
    let other_shard = format!("{:02x}", (number + 1) % 256);
    for bad in [
        format!("{other_shard}/{owner}/{file}"),
        format!("{shard}/a.warc/{file}"),
        format!("{shard}/{owner}/{file}/more"),
        format!("{shard}/{owner}/readme"),
        format!("{shard}/{owner}"),
        String::new(),
    ] {
        assert!(parse_file(&bad).is_none(), "{bad}");
    }
}
