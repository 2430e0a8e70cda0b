//! Owners, asked of real servers: one at a time, taken over when it is silent, and what it does afterwards is refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ecluse_config::{Owned, Pipeline};
use ecluse_spool::{
    Engine, Finish, NotOwned, Parcel, ParcelId, Spool, SpoolError, Work, WorkerLimits, WorkerTerms,
};
use ecluse_testkit::root::until;
use ecluse_testkit::servers::EngineServers;

use super::OwnerSheet;
use crate::JetstreamEngine;
use crate::store::Put;
use crate::ticket::StageKeys;

const STAGE: &str = "ingest";
/// Nobody waits for this one in a test.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(400);

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

fn thing() -> Owned {
    Owned::by_stage(STAGE).unwrap()
}

/// One that has stopped without knowing it: it renews nothing, and does not learn of what others do.
fn be_deaf(engine: &JetstreamEngine) {
    let holding = engine.inner.owners.holding(&thing());
    holding.is_kept.store(true, Ordering::SeqCst);
}

fn owner(engine: &JetstreamEngine) -> OwnerSheet {
    let read = engine.inner.wait(engine.inner.store.get("owners/manifest"));
    serde_json::from_slice(&read.unwrap().unwrap().bytes).unwrap()
}

fn worker(engine: &JetstreamEngine) -> Box<dyn Spool> {
    let limits = WorkerLimits {
        lease: SHORT,
        ..WorkerLimits::default()
    };
    let opened = engine.open_worker(&WorkerTerms {
        stage: STAGE,
        next: &["index".to_owned()],
        limits: &limits,
        version: "0",
    });
    opened.unwrap()
}

fn put(engine: &dyn Engine, names: &[&str]) {
    for name in names {
        let id = ParcelId::new(name).unwrap();
        let put = engine.put::<SpoolError>(STAGE, &id, "test", |parcel| parcel.write("data", b"x"));
        put.unwrap();
    }
}

fn claim(worker: &mut dyn Spool, name: &str) -> Parcel {
    until(&format!("{name} to be had"), || {
        let scan = worker.scan().unwrap();
        let mut waiting = scan.waiting.into_iter();
        let found = waiting.find(|waiting| waiting.entry.id.as_str() == name)?;
        worker.claim(&found).unwrap()
    })
}

fn finish(worker: &mut dyn Spool, parcels: Vec<Parcel>) -> Result<Finish, SpoolError> {
    let outbox = worker.outbox(&parcels);
    let mut works = vec![Work { parcels, outbox }];
    worker.finish(&mut works).map(|finishes| finishes[0])
}

#[test]
fn one_host_owns_a_thing_and_another_takes_it_over() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("archive");
    let alpha = open(&servers, "owners", root.path(), "alpha");
    let beta = open(&servers, "owners", root.path(), "beta");
    // A stage that needs nothing of the kind asks nobody.
    assert_eq!(alpha.own("index", LONG, &place).unwrap(), None);
    assert!(!place.exists());

    assert_eq!(alpha.own(STAGE, LONG, &place).unwrap(), None);
    assert_eq!(alpha.own("bigmerge", LONG, &place).unwrap(), None);
    let other = beta.own(STAGE, LONG, &place).unwrap().unwrap();
    assert_eq!(other.to_string(), "stands by: alpha owns the manifest");
    // Another thing has an owner of its own.
    assert_eq!(beta.own("plan", LONG, &place).unwrap(), None);
    let mut idle = worker(&beta);
    put(&beta, &["a"]);
    let refused = until("a to be told of", || {
        let waiting = idle.scan().unwrap().waiting.pop()?;
        Some(idle.claim(&waiting))
    });
    assert!(matches!(refused, Err(SpoolError::Fenced { .. })));
    idle.close().unwrap();

    // Two processes of one host share it, and the last one gives it up: nobody waits for the lease then.
    let second = open(&servers, "owners", root.path(), "alpha");
    assert_eq!(second.own("transfer", LONG, &place).unwrap(), None);
    assert_eq!(owner(&beta).fence, 1);
    alpha.disown();
    let other = beta.own(STAGE, LONG, &place).unwrap().unwrap();
    assert!(matches!(other.why, NotOwned::By { .. }), "{other}");
    second.disown();
    assert_eq!(beta.own(STAGE, LONG, &place).unwrap(), None);
    let sheet = owner(&beta);
    assert_eq!((sheet.host.as_str(), sheet.fence), ("beta", 2));

    // Where the thing is not, nobody owns it, until somebody says that it is there.
    beta.disown();
    let empty = root.path().join("empty");
    let other = alpha.own(STAGE, LONG, &empty).unwrap().unwrap();
    let NotOwned::Elsewhere { host, mark, state } = &other.why else {
        panic!("{other}");
    };
    assert_eq!((host.as_str(), state), ("beta", &sheet.state));
    assert!(!empty.exists());
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(mark, format!("{state}\n")).unwrap();
    assert_eq!(alpha.own(STAGE, LONG, &empty).unwrap(), None);
    assert_eq!(owner(&beta).fence, 3);
}

#[test]
fn of_many_that_see_a_dead_owner_one_wins() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("archive");
    let dead = open(&servers, "race", root.path(), "alpha");
    be_deaf(&dead);
    assert_eq!(dead.own(STAGE, SHORT, &place).unwrap(), None);
    let names = ["beta", "gamma", "delta"];
    let racers: Vec<Arc<JetstreamEngine>> = names
        .iter()
        .map(|name| Arc::new(open(&servers, "race", root.path(), name)))
        .collect();
    let winners: usize = std::thread::scope(|scope| {
        let races: Vec<_> = racers
            .iter()
            .map(|racer| {
                let place = &place;
                scope.spawn(move || {
                    until("a host other than the dead one", || {
                        match racer.own(STAGE, SHORT, place).unwrap() {
                            None => Some(1),
                            Some(other) if other.to_string().contains("alpha") => None,
                            Some(_) => Some(0),
                        }
                    })
                })
            })
            .collect();
        races.into_iter().map(|race| race.join().unwrap()).sum()
    });
    let sheet = owner(&dead);
    // On a slow machine the winner may be taken for dead in turn: then there was one winner each time.
    assert!(winners >= 1 && sheet.fence >= 2, "{winners} {sheet:?}");
    assert!((winners as u64) < sheet.fence, "{winners} {sheet:?}");
    assert!(names.contains(&sheet.host.as_str()), "{sheet:?}");
}

#[test]
fn an_owner_that_wakes_up_commits_nothing() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("archive");
    let alpha = open(&servers, "wakes", root.path(), "alpha");
    let beta = open(&servers, "wakes", root.path(), "beta");
    be_deaf(&alpha);
    assert_eq!(alpha.own(STAGE, SHORT, &place).unwrap(), None);
    put(&alpha, &["a", "b", "c"]);
    let mut sleeper = worker(&alpha);
    let (a, b, c) = (
        claim(&mut *sleeper, "a"),
        claim(&mut *sleeper, "b"),
        claim(&mut *sleeper, "c"),
    );
    let mut stopped = worker(&alpha);
    // It sleeps here, for longer than its lease. What it has in hand is another's then.
    until("beta to take over", || {
        beta.own(STAGE, SHORT, &place)
            .unwrap()
            .is_none()
            .then_some(())
    });
    let mut heir = worker(&beta);
    let taken = claim(&mut *heir, "a");
    assert_eq!(taken.attempt(), 2);
    // A put that was on its way when it fell asleep comes too late.
    let inner = &alpha.inner;
    let receipt = |name: &str| StageKeys(STAGE).receipt(&ParcelId::new(name).unwrap());
    let late = inner
        .wait(inner.store.put_new(&receipt("a"), b"late"))
        .unwrap();
    assert_eq!(late, Put::Taken);
    // It wakes up and goes on as if nothing had happened: alone, and with parcels that nobody has taken yet.
    let signs = sleeper.signs().clone();
    assert!(!signs.stop_asked());
    for parcels in [vec![a], vec![b, c]] {
        let ended = finish(&mut *sleeper, parcels);
        assert!(matches!(ended, Err(SpoolError::Fenced { .. })), "{ended:?}");
    }
    assert!(signs.stop_asked(), "what it has in hand is asked to stop");
    assert!(matches!(
        sleeper.check_fence(),
        Err(SpoolError::Fenced { .. })
    ));
    assert!(matches!(stopped.reset(), Err(SpoolError::Fenced { .. })));
    for name in ["b", "c"] {
        let filed = inner.wait(inner.store.get(&receipt(name))).unwrap();
        assert!(filed.is_none(), "{name} has no receipt");
    }
    let other = alpha.own(STAGE, SHORT, &place).unwrap();
    // Unless beta is taken for dead itself on a slow machine, and then under another fence.
    assert!(other.is_some() || owner(&beta).fence > 2);

    // The next owner does everything, once.
    until("beta to own it", || {
        beta.own(STAGE, SHORT, &place)
            .unwrap()
            .is_none()
            .then_some(())
    });
    drop((taken, heir));
    let mut heir = worker(&beta);
    heir.recover().unwrap();
    let ended = until("beta to finish under its fence", || {
        beta.own(STAGE, SHORT, &place)
            .unwrap()
            .is_none()
            .then_some(())?;
        let mut heir = worker(&beta);
        heir.recover().unwrap();
        let parcels = ["a", "b", "c"].map(|name| claim(&mut *heir, name));
        let ended = finish(&mut *heir, parcels.into());
        drop(heir);
        ended.ok()
    });
    assert_eq!(ended, Finish::Committed);
    let mut receipts = Vec::new();
    let mut see = |filed: ecluse_spool::Filed| receipts.push(filed.receipt);
    beta.each_receipt(STAGE, &mut see).unwrap();
    assert_eq!(receipts.len(), 1, "{receipts:?}");
    assert_eq!(receipts[0].inputs.len(), 3);
    assert!(receipts[0].worker.starts_with("beta-"), "{receipts:?}");
    let depths = beta.depths(STAGE).unwrap();
    assert_eq!((depths.ready, depths.working, depths.held), (0, 0, 0));
}
