//! Queues whose settings change while parcels wait in them, on a real cluster.

use ecluse_config::{Pipeline, Span};
use ecluse_spool::{ClusterView, Engine, ParcelId, SpoolError, WorkerLimits, WorkerTerms};
use ecluse_testkit::nats_cluster::NatsCluster;
use ecluse_testkit::root::until;
use ecluse_testkit::servers::EngineServers;

use super::*;
use crate::JetstreamEngine;

fn put(engine: &JetstreamEngine, name: &str) -> Result<ParcelId> {
    let engine: &dyn Engine = engine;
    let id = ParcelId::new(name).unwrap();
    engine.put::<SpoolError>("one", &id, "test", |parcel| parcel.write("data", b"text"))
}

fn looked_at(engine: &JetstreamEngine) -> ClusterView {
    Engine::cluster(engine, &["one".to_owned()]).unwrap()
}

/// A queue on one server of three comes to lie on all when the setting says so: then the server that had it may die.
#[test]
fn a_changed_setting_reaches_queues_that_are_there() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start(&nats, &weed);
    let root = tempfile::tempdir().unwrap();
    let mut cluster = NatsCluster::start(&nats, root.path(), 3);
    let text = cluster.settings(&servers.settings("grown"));
    let three = EngineSettings {
        ack_wait: Span(Duration::from_secs(2)),
        ..Pipeline::parse(&text, "test").unwrap().engine
    };
    let one = EngineSettings {
        replicas: 1,
        ack_wait: Span(Duration::from_secs(7)),
        ..three.clone()
    };
    let open = |settings: &EngineSettings| {
        JetstreamEngine::open(settings, &root.path().join("alpha"), Some("alpha")).unwrap()
    };
    let engine = open(&one);
    until("a leader of the cluster", || put(&engine, "a").ok());
    drop(engine);

    // Whoever only looks changes nothing, and tells of it.
    let engine = open(&three);
    let view = looked_at(&engine);
    let told = "the queues of one lie on 1 server, and 'engine.replicas' is 3";
    assert!(
        view.troubles.iter().any(|trouble| trouble.what == told),
        "{view:?}"
    );
    assert!(!view.hides_stages());
    let had_it = view.queues[0].leader.clone().unwrap();
    Engine::depths(&engine, "one").unwrap();
    assert!(
        looked_at(&engine)
            .troubles
            .iter()
            .any(|trouble| trouble.what == told)
    );

    // A stage that starts does.
    Engine::init(&engine, "one").unwrap();
    let is_whole = |cluster: &Option<ClusterInfo>| {
        let copies = cluster.as_ref().map(|cluster| cluster.replicas.as_slice());
        copies.is_some_and(|copies| copies.len() == 2 && copies.iter().all(|copy| copy.current))
    };
    let queue = engine
        .inner
        .wait(engine.inner.queue.of("one"))
        .expect("it is there");
    until("copies on all servers, of what is in hands too", || {
        let (stream, consumer) = engine.inner.wait(future::join(
            queue.stream.get_info(),
            queue.consumer.get_info(),
        ));
        let (stream, consumer) = (stream.ok()?, consumer.ok()?);
        assert_eq!(stream.config.num_replicas, 3);
        assert_eq!(consumer.config.ack_wait, Duration::from_secs(2));
        (is_whole(&stream.cluster) && is_whole(&consumer.cluster)).then_some(())
    });
    assert_eq!(looked_at(&engine).troubles, []);
    cluster.kill(&had_it);
    let limits = WorkerLimits::default();
    let terms = WorkerTerms {
        stage: "one",
        next: &[],
        limits: &limits,
        version: "0",
    };
    let mut worker = until("a worker", || engine.open_worker(&terms).ok());
    let parcel = until("the parcel that waited", || {
        let waiting = worker.scan().ok()?.waiting.pop()?;
        worker.claim(&waiting).ok()?
    });
    assert_eq!(parcel.id().as_str(), "a");
}

/// A setting that the servers cannot follow stops nothing: the queue goes on as it is, and that is told.
#[test]
fn a_setting_that_servers_cannot_follow_stops_nothing() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start(&nats, &weed);
    let root = tempfile::tempdir().unwrap();
    let settings = Pipeline::parse(&servers.settings("stays"), "test")
        .unwrap()
        .engine;
    let open = |replicas| {
        let settings = EngineSettings {
            replicas,
            ..settings.clone()
        };
        JetstreamEngine::open(&settings, &root.path().join("alpha"), Some("alpha")).unwrap()
    };
    put(&open(1), "a").unwrap();
    let engine = open(3);
    put(&engine, "b").unwrap();
    let messages = engine.inner.wait(engine.inner.queue.depth("one"));
    assert_eq!(messages.unwrap().messages, 2);
    let troubles = looked_at(&engine).troubles;
    let told = "the queues of one lie on 1 server, and 'engine.replicas' is 3";
    assert!(
        troubles.iter().any(|trouble| trouble.what == told),
        "{troubles:?}"
    );
}
