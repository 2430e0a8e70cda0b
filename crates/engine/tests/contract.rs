//! The engine on NATS JetStream and an S3 store, asked of real servers: it keeps the contract of engines, and what its own
//! parts may do to it costs delay and nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ecluse_config::{Bytes, EngineSettings, Pipeline};
use ecluse_engine::JetstreamEngine;
use ecluse_spool::{
    Blocked, Engine, Finish, Floor, Marks, Parcel, ParcelId, ParcelState, ReconcileExtent,
    ServerState, Spool, SpoolError, Work, WorkerLimits, WorkerTerms,
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

fn settings(servers: &EngineServers, prefix: &str) -> EngineSettings {
    Pipeline::parse(&servers.settings(prefix), "test")
        .unwrap()
        .engine
}

/// Opens an engine as a host of this name does, which has a scratch directory of its own.
fn open(servers: &EngineServers, prefix: &str, root: &Path, host: &str) -> JetstreamEngine {
    let settings = settings(servers, prefix);
    JetstreamEngine::open(&settings, &root.join(host), Some(host)).unwrap()
}

fn worker(engine: &JetstreamEngine) -> Box<dyn Spool> {
    let limits = WorkerLimits {
        lease: Duration::from_millis(1500),
        ..WorkerLimits::default()
    };
    let terms = WorkerTerms {
        stage: "one",
        next: &["two".to_owned()],
        limits: &limits,
        version: "0",
    };
    engine.open_worker(&terms).unwrap()
}

fn put(engine: &JetstreamEngine, name: &str) {
    let engine: &dyn Engine = engine;
    let id = ParcelId::new(name).unwrap();
    let put = engine.put::<SpoolError>("one", &id, "test", |parcel| parcel.write("data", b"text"));
    put.unwrap();
}

fn try_claim(worker: &mut dyn Spool) -> Option<Parcel> {
    let waiting = worker.scan().unwrap().waiting.pop()?;
    worker.claim(&waiting).unwrap()
}

fn finish(worker: &mut dyn Spool, parcels: Vec<Parcel>) -> Finish {
    let outbox = worker.outbox(&parcels);
    let mut works = vec![Work { parcels, outbox }];
    worker.finish(&mut works).unwrap()[0]
}

fn states(engine: &JetstreamEngine, stage: &str) -> Vec<(String, ParcelState)> {
    let mut states = Vec::new();
    let mut see =
        |place: ecluse_spool::ParcelPlace| states.push((place.parcel.to_string(), place.state));
    engine.each_place(stage, &mut see).unwrap();
    states.sort();
    states
}

#[test]
fn jetstream_keeps_the_contract() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let mut number = 0;
    engine_contract(|| {
        number += 1;
        let prefix = format!("clause-{number}");
        Arc::new(open(&servers, &prefix, root.path(), &prefix))
    });
}

/// Says to this test, when it runs in a process whose clock is off, where the servers are.
const OFF_CLOCK: &str = "ECLUSE_TEST_OFF_CLOCK";

#[test]
fn a_host_whose_clock_is_an_hour_off_keeps_the_contract() {
    let Ok(settings) = std::env::var(OFF_CLOCK) else {
        let servers = servers();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("a_host_whose_clock_is_an_hour_off_keeps_the_contract")
            .env(OFF_CLOCK, servers.settings("PREFIX"))
            .env("LD_PRELOAD", ecluse_peers::libfaketime())
            .env("FAKETIME", "+1h")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{errors}");
        assert!(said.contains("1 passed"), "{said}");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let open = |prefix: &str| {
        let settings = Pipeline::parse(&settings.replace("PREFIX", prefix), "test").unwrap();
        JetstreamEngine::open(&settings.engine, &root.path().join(prefix), Some(prefix)).unwrap()
    };
    let engine = open("skewed");
    let skew = Engine::clock_skew(&engine, "one").unwrap();
    assert!((3500..3700).contains(&skew), "{skew}");
    // Sent and brought in parts.
    let bytes: Vec<u8> = (0..20u32 << 20)
        .map(|at| (at >> 8) as u8 ^ at as u8)
        .collect();
    let id = ParcelId::new("large").unwrap();
    let dynamic: &dyn Engine = &engine;
    let put = dynamic.put::<SpoolError>("one", &id, "test", |parcel| parcel.write("data", &bytes));
    put.unwrap();
    let mut worker = worker(&engine);
    let parcel = until("a parcel", || try_claim(&mut *worker));
    let mut found = Vec::new();
    parcel
        .open("data")
        .unwrap()
        .read_to_end(&mut found)
        .unwrap();
    assert!(found == bytes, "the bytes are the same");
    assert_eq!(finish(&mut *worker, vec![parcel]), Finish::Committed);
    let mut number = 0;
    engine_contract(|| {
        number += 1;
        Arc::new(open(&format!("off-{number}")))
    });
}

/// A worker of another host is silent for longer than its lease and is taken for dead; then it wakes up. Both do the work, and
/// one of them has done it.
#[test]
fn of_a_zombie_and_its_heir_one_commits() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let (alpha, beta) = (
        open(&servers, "zombie", root.path(), "alpha"),
        open(&servers, "zombie", root.path(), "beta"),
    );
    for (number, is_zombie_first) in [(1, true), (2, false)] {
        let name = format!("a{number}");
        put(&alpha, &name);
        let mut zombie = worker(&alpha);
        let his = until("a parcel", || try_claim(&mut *zombie));
        let mut heir = worker(&beta);
        let ours = until("the dead worker's parcel", || try_claim(&mut *heir));
        assert_eq!(ours.attempt(), 2);
        let finishes = if is_zombie_first {
            [
                finish(&mut *zombie, vec![his]),
                finish(&mut *heir, vec![ours]),
            ]
        } else {
            let heirs = finish(&mut *heir, vec![ours]);
            [heirs, finish(&mut *zombie, vec![his])]
        };
        assert_eq!(finishes, [Finish::Committed, Finish::AlreadyCommitted]);
        assert_eq!(states(&alpha, "one"), []);
        zombie.close().unwrap();
        heir.close().unwrap();
    }
    let ready = |name: &str| (name.to_owned(), ParcelState::Ready);
    assert_eq!(states(&beta, "two"), [ready("a1"), ready("a2")]);
}

/// Two batches that have a parcel in common, one of a worker taken for dead: one of them has it.
#[test]
fn of_two_batches_with_a_common_parcel_one_commits() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let (alpha, beta) = (
        open(&servers, "batches", root.path(), "alpha"),
        open(&servers, "batches", root.path(), "beta"),
    );
    put(&alpha, "a");
    put(&alpha, "b");
    let mut zombie = worker(&alpha);
    let claim_two = |worker: &mut dyn Spool| {
        let one = until("one", || try_claim(worker));
        let other = until("another", || try_claim(worker));
        let mut two = vec![one, other];
        two.sort_by(|one, other| one.id().cmp(other.id()));
        two
    };
    let his = claim_two(&mut *zombie);
    let mut heir = worker(&beta);
    let mut ours = claim_two(&mut *heir);
    put(&beta, "c");
    ours.push(until("a third", || try_claim(&mut *heir)));
    assert_eq!(finish(&mut *zombie, his), Finish::Committed);
    assert_eq!(finish(&mut *heir, ours), Finish::AlreadyCommitted);
    // What was in the batch that lost and in no other goes back.
    until("the third to wait", || {
        (states(&beta, "one") == [("c".to_owned(), ParcelState::Ready)]).then_some(())
    });
    let third = until("the third", || try_claim(&mut *heir));
    assert_eq!(finish(&mut *heir, vec![third]), Finish::Committed);
    assert_eq!(states(&beta, "one"), []);
    let mut inputs = Vec::new();
    let mut see = |filed: ecluse_spool::Filed| {
        inputs.extend(
            filed
                .receipt
                .inputs
                .iter()
                .map(|input| input.parcel.to_string()),
        );
    };
    beta.each_receipt("one", &mut see).unwrap();
    inputs.sort();
    assert_eq!(inputs, ["a", "b", "c"]);
}

#[test]
fn servers_that_lose_every_message_cost_delay_only() {
    let mut servers = servers();
    let root = tempfile::tempdir().unwrap();
    let engine = open(&servers, "lost", root.path(), "alpha");
    for number in 0..20 {
        put(&engine, &format!("a{number}"));
    }
    let mut first = worker(&engine);
    let mut parcels: Vec<Parcel> = (0..3)
        .map(|_| until("one", || try_claim(&mut *first)))
        .collect();
    servers.lose_all_messages();
    // What is in hand goes on without them.
    let done = parcels.pop().unwrap();
    let done_id = done.id().clone();
    until("the servers", || {
        engine.reconcile("one", ReconcileExtent::Missing).ok()
    });
    assert_eq!(finish(&mut *first, vec![done]), Finish::Committed);
    // The others go back with the worker's end.
    drop(parcels);
    first.close().unwrap();
    // An answer to a message of the old queue may have met one of the new.
    engine.reconcile("one", ReconcileExtent::All).unwrap();
    let again = engine.reconcile("one", ReconcileExtent::All).unwrap();
    assert_eq!(again, 0, "all that waits has its message");
    let mut second = worker(&engine);
    let mut finished = vec![done_id];
    while finished.len() < 20 {
        let parcel = until("another", || try_claim(&mut *second));
        finished.push(parcel.id().clone());
        finish(&mut *second, vec![parcel]);
    }
    finished.sort();
    finished.dedup();
    assert_eq!(finished.len(), 20);
    assert_eq!(states(&engine, "one"), []);
    assert_eq!(states(&engine, "two").len(), 20);
    // All that waits is told of: nothing is missing.
    assert_eq!(
        engine.reconcile("two", ReconcileExtent::Missing).unwrap(),
        0
    );
    second.close().unwrap();
}

#[test]
fn of_several_servers_one_is_enough_and_the_other_is_told_of() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let mut settings = settings(&servers, "several");
    settings.servers.insert(0, "nats://127.0.0.1:1".into());
    let engine = JetstreamEngine::open(&settings, root.path(), None).unwrap();
    put(&engine, "a");
    let view = engine.cluster(&["one".to_owned()]).unwrap();
    let states: Vec<ServerState> = view.servers.iter().map(|server| server.state).collect();
    assert_eq!(states, [ServerState::CutOff, ServerState::Ok]);
    assert!(!view.hides_stages(), "{view:?}");
    let [trouble] = view.troubles.as_slice() else {
        panic!("one thing is wrong: {view:?}");
    };
    assert!(
        trouble
            .what
            .contains("nats://127.0.0.1:1 is cut off from here"),
        "{trouble:?}"
    );
    assert!(view.store.read_ms.is_some() && view.store.write_ms.is_some());

    settings.servers = vec!["nats://127.0.0.1:1".into()];
    let away = JetstreamEngine::open(&settings, root.path(), None).err();
    assert!(away.is_some_and(|error| error.is_away));
    settings.servers = vec!["nats://127.0.0.1:none".into()];
    let wrong = JetstreamEngine::open(&settings, root.path(), None).err();
    assert!(wrong.is_some_and(|error| !error.is_away && error.key == "servers"));
}

#[test]
fn servers_that_cannot_carry_an_archive_are_refused() {
    let mut servers = servers();
    let root = tempfile::tempdir().unwrap();
    let good = settings(&servers, "refused");
    let faults = |settings: &EngineSettings| {
        let faults = JetstreamEngine::faults(settings, root.path());
        faults
            .into_iter()
            .map(|fault| (fault.key, fault.reason))
            .collect::<Vec<_>>()
    };
    assert_eq!(faults(&good), []);
    let no_bucket = EngineSettings {
        bucket: "elsewhere".into(),
        ..good.clone()
    };
    let wrong = root.path().join("wrong");
    fs::write(&wrong, "not-it").unwrap();
    let wrong_key = EngineSettings {
        secret_file: wrong.clone(),
        ..good.clone()
    };
    let no_file = EngineSettings {
        key_file: root.path().join("missing"),
        ..good.clone()
    };
    let no_server = EngineSettings {
        servers: vec!["nats://127.0.0.1:1".into()],
        ..good.clone()
    };
    let no_store = EngineSettings {
        endpoint: "http://127.0.0.1:1".into(),
        ..good.clone()
    };
    let three = EngineSettings {
        replicas: 3,
        ..good.clone()
    };
    for (settings, key, remedy) in [
        (no_bucket, "bucket", "make the bucket"),
        (wrong_key, "key-file", "refuses these keys"),
        (no_file, "key-file", "missing"),
        (no_server, "servers", "cannot reach"),
        (no_store, "endpoint", "start the store"),
        (three, "replicas", "set fewer"),
    ] {
        let faults = faults(&settings);
        let is_it = |(found, reason): &(&str, String)| *found == key && reason.contains(remedy);
        assert!(faults.iter().any(is_it), "{key}: {faults:?}");
    }
    servers.be_without_streams();
    let faults = faults(&good);
    assert!(
        faults
            .iter()
            .any(|(key, reason)| *key == "servers" && reason.contains("no JetStream")),
        "{faults:?}"
    );
}

/// With certificates and credentials of our own all goes its way; what refuses us is told from what is away, and points at what
/// to mend.
#[test]
fn who_is_refused_is_told_what_to_mend_and_who_is_let_in_works() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start_guarded(&nats, &weed);
    let root = tempfile::tempdir().unwrap();
    let good = settings(&servers, "guarded");
    let open = |settings: &EngineSettings| {
        let opened = JetstreamEngine::open(settings, root.path(), Some("alpha"));
        opened.map_err(|error| (error.key, error.is_away, error.reason))
    };
    let engine = open(&good).unwrap();
    put(&engine, "a");
    let mut worker = worker(&engine);
    let parcel = until("a parcel", || try_claim(&mut *worker));
    assert_eq!(finish(&mut *worker, vec![parcel]), Finish::Committed);
    assert_eq!(JetstreamEngine::faults(&good, root.path()), []);

    let no_pem = root.path().join("no.pem");
    fs::write(&no_pem, "not a certificate").unwrap();
    let missing = root.path().join("missing");
    let wrong = root.path().join("wrong");
    fs::write(&wrong, "not-it").unwrap();
    let with = |change: &dyn Fn(&mut EngineSettings)| {
        let mut settings = good.clone();
        change(&mut settings);
        settings
    };
    let file = |name: &str| servers.file(name);
    let url = |scheme: &str, host: &str| {
        let port = good.servers[0].rsplit(':').next().unwrap();
        vec![format!("{scheme}://{host}:{port}")]
    };
    let plain_servers = self::servers();
    let plain = settings(&plain_servers, "plain");
    let cases: [(EngineSettings, &str, &str); 16] = [
        (
            with(&|settings| settings.credentials = file("other-user.creds")),
            "credentials",
            "refuse the user in this file",
        ),
        (
            with(&|settings| settings.credentials = "".into()),
            "credentials",
            "name the file",
        ),
        (
            with(&|settings| settings.credentials = missing.clone()),
            "credentials",
            "missing",
        ),
        (
            with(&|settings| settings.credentials = wrong.clone()),
            "credentials",
            "cannot parse",
        ),
        (
            with(&|settings| settings.servers_ca = file("other-ca.pem")),
            "servers-ca",
            "name the file with the authority",
        ),
        (
            with(&|settings| settings.servers_ca = "".into()),
            "servers-ca",
            "name the file with the authority",
        ),
        (
            with(&|settings| settings.servers_ca = missing.clone()),
            "servers-ca",
            "missing",
        ),
        (
            with(&|settings| settings.servers_ca = no_pem.clone()),
            "servers-ca",
            "holds no certificate",
        ),
        (
            with(&|settings| settings.servers = url("tls", "localhost")),
            "servers",
            "write the name that stands in its certificate",
        ),
        (
            with(&|settings| settings.store_ca = file("other-ca.pem")),
            "store-ca",
            "name the file with the authority",
        ),
        (
            with(&|settings| settings.store_ca = missing.clone()),
            "store-ca",
            "missing",
        ),
        (
            with(&|settings| settings.store_ca = no_pem.clone()),
            "store-ca",
            "holds no certificate",
        ),
        (
            with(&|settings| settings.endpoint = settings.endpoint.replace("https", "http")),
            "endpoint",
            "write https://",
        ),
        (
            with(&|settings| {
                settings.endpoint = settings.endpoint.replace("127.0.0.1", "localhost");
            }),
            "endpoint",
            "write the name that stands in its certificate",
        ),
        (
            with(&|settings| settings.secret_file = wrong.clone()),
            "key-file",
            "refuses these keys",
        ),
        (
            with(&|settings| settings.bucket = "elsewhere".into()),
            "bucket",
            "make the bucket",
        ),
    ];
    for (settings, key, remedy) in cases {
        let Err((found, is_away, reason)) = open(&settings) else {
            panic!("{key} is accepted, and should be refused: {remedy}");
        };
        assert_eq!((found, is_away), (key, false), "{reason}");
        assert!(reason.contains(remedy), "{key}: {reason}");
        // The check says the same.
        let faults = JetstreamEngine::faults(&settings, root.path());
        let is_it = |fault: &ecluse_engine::EngineFault| fault.key == key;
        assert!(faults.iter().any(is_it), "{key}: {faults:?}");
    }
    // TLS is asked of those who do not speak it.
    let no_tls = EngineSettings {
        servers: vec![plain.servers[0].replace("nats://", "tls://")],
        ..plain.clone()
    };
    let error = open(&no_tls).err().unwrap();
    assert_eq!((error.0, error.1), ("servers", false), "{error:?}");
    let no_tls = EngineSettings {
        endpoint: plain.endpoint.replace("http://", "https://"),
        ..plain.clone()
    };
    let error = open(&no_tls).err().unwrap();
    assert_eq!((error.0, error.1), ("endpoint", false), "{error:?}");
    // Who is away may be right.
    for (servers, endpoint) in [
        (vec!["tls://127.0.0.1:1".to_owned()], good.endpoint.clone()),
        (url("tls", "no-such-host.invalid"), good.endpoint.clone()),
    ] {
        let away = with(&|settings| {
            settings.servers.clone_from(&servers);
            settings.endpoint.clone_from(&endpoint);
        });
        let error = open(&away).err().unwrap();
        assert!(error.0 == "servers" && error.1, "{error:?}");
    }
    let no_store = with(&|settings| settings.endpoint = "https://127.0.0.1:1".into());
    assert!(
        open(&no_store).is_ok(),
        "a store that is away is waited for"
    );
}

/// A store that is in another region says so; and what is signed names the region of the settings.
#[test]
fn requests_are_signed_for_the_region_of_the_settings() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let store = RegionalStore::start("lake-1");
    let regional = |region: &str| EngineSettings {
        endpoint: store.address.clone(),
        region: region.into(),
        ..settings(&servers, "regional")
    };
    let error = JetstreamEngine::open(&regional("us-east-1"), root.path(), None).err();
    let error = error.unwrap();
    assert_eq!((error.key, error.is_away), ("region", false), "{error}");
    assert!(error.reason.contains("expecting 'lake-1'"), "{error}");
    JetstreamEngine::open(&regional("lake-1"), root.path(), None).unwrap();
}

/// Answers as a store that has nothing, and hears only what is signed for its region.
struct RegionalStore {
    address: String,
}

impl RegionalStore {
    fn start(region: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                answer_for_region(client, region);
            }
        });
        Self { address }
    }
}

fn answer_for_region(mut client: TcpStream, region: &str) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut is_for_us = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
            break;
        }
        is_for_us |= line.contains(&format!("/{region}/s3/aws4_request"));
    }
    let (status, body) = match is_for_us {
        true => (
            "404 Not Found",
            "<Error><Code>NoSuchKey</Code></Error>".to_owned(),
        ),
        false => (
            "400 Bad Request",
            format!(
                "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong; expecting '{region}'</Message></Error>"
            ),
        ),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
}

/// A parcel whose file finds no room in the scratch directory waits, and its stage is told the setting and the numbers; it goes on
/// when there is room. The directory is the one of the settings.
#[test]
fn a_file_that_finds_no_room_in_the_scratch_directory_waits() {
    let servers = servers();
    let root = tempfile::tempdir().unwrap();
    let settings = EngineSettings {
        scratch: "elsewhere/scratch".into(),
        scratch_limit: Bytes(2048),
        ..settings(&servers, "scratch")
    };
    let engine = JetstreamEngine::open(&settings, root.path(), Some("alpha")).unwrap();
    for (name, bytes) in [("a", 1500), ("b", 1400), ("huge", 3000)] {
        let id = ParcelId::new(name).unwrap();
        let bytes = vec![b'.'; bytes];
        let dynamic: &dyn Engine = &engine;
        let put = dynamic.put::<SpoolError>("one", &id, "test", |new| new.write("data", &bytes));
        put.unwrap();
    }
    let mut first = worker(&engine);
    let mut second = worker(&engine);
    let mut parcels = Vec::new();
    for number in 0..3 {
        let worker = if number == 1 { &mut second } else { &mut first };
        parcels.push(until("a parcel", || try_claim(&mut **worker)));
    }
    parcels.sort_by(|one, other| one.id().cmp(other.id()));
    let [one, other, huge] = parcels.as_slice() else {
        unreachable!("there are three")
    };
    let below = root.path().join("elsewhere/scratch/one/workers");
    one.open("data").unwrap();
    assert!(below.exists(), "the directory of the settings is used");
    let why = |parcel: &Parcel| match parcel.open("data") {
        Err(SpoolError::NoRoom(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{} found room", parcel.id()),
    };
    let told = "b/data has 1400 bytes, ";
    assert!(why(other).starts_with(told), "{}", why(other));
    assert!(why(other).contains("'engine.scratch-limit' is 2 KiB"));
    let marks = Marks {
        high: 100,
        low: 50,
        floor: Floor::Bytes(0),
    };
    match Engine::pressure(&engine, "one", &[], &marks, None).unwrap() {
        Some(Blocked::Scratch {
            used,
            wanted: 1400,
            limit: 2048,
        }) => assert!((1500..2048).contains(&used), "{used}"),
        other => panic!("{other:?}"),
    }
    assert!(why(huge).contains("it never finds room; raise the limit"));
    // What lies there twice is brought once: an open file needs no more room.
    one.open("data").unwrap();
    drop(parcels);
    first.close().unwrap();
    second.close().unwrap();
    // What goes back leaves its room to others.
    let mut third = worker(&engine);
    let parcel = until("the other parcel", || {
        let parcel = try_claim(&mut *third)?;
        (parcel.id().as_str() == "b").then_some(parcel)
    });
    let mut text = Vec::new();
    parcel.open("data").unwrap().read_to_end(&mut text).unwrap();
    assert_eq!(text.len(), 1400);
}
