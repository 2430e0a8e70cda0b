//! Each stage under its own rights, on the real servers: the rights that `ecluse units --rights` writes are enough, and no more.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::servers::{BUCKET, EngineServers, ServerUsers};
use nkeys::KeyPair;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use serde_json::{Value, json};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const PREFIX: &str = "rights";
/// In their order.
const STAGES: [&str; 8] = [
    "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean",
];
const SETTINGS: &str = r#"
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean"]
[defaults]
scan = "200ms"
settle = "100ms"
heartbeat = "1s"
lease = "5s"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
back = []
[stage.merge]
back = []
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
"#;

/// An archive on servers that know a user for each stage.
struct Guarded {
    dir: tempfile::TempDir,
    servers: EngineServers,
}

impl Guarded {
    fn new() -> Self {
        // Not below /tmp: a unit sees a private one.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("harvested")).unwrap();
        let nowhere = "[engine]\nkind = \"jetstream\"\nservers = [\"nats://127.0.0.1:1\"]\nendpoint = \"http://127.0.0.1:1\"\n";
        let own = format!("bucket = \"{BUCKET}\"\nprefix = \"{PREFIX}\"\n{SETTINGS}");
        fs::write(
            dir.path().join("pipeline.toml"),
            format!("{nowhere}{}{own}", keys(dir.path())),
        )
        .unwrap();
        let written = ecluse(dir.path(), &["units", "--rights", "--out", "units"]);
        assert!(written.status.success(), "{}", said(&written));
        let users = users(dir.path());
        let servers = EngineServers::start_for(
            &ecluse_peers::server("nats-server"),
            &ecluse_peers::server("weed"),
            &users,
        );
        let common = servers.settings(PREFIX);
        let is_common =
            |line: &&str| !line.starts_with("key-file") && !line.starts_with("secret-file");
        let common: Vec<&str> = common.lines().filter(is_common).collect();
        let settings = format!("{}\n{}{SETTINGS}", common.join("\n"), keys(dir.path()));
        fs::write(dir.path().join("pipeline.toml"), settings).unwrap();
        Self { dir, servers }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn store_as(&self, user: &str) -> AmazonS3 {
        let settings = fs::read_to_string(self.path().join("pipeline.toml")).unwrap();
        let endpoint = settings.lines().find(|line| line.starts_with("endpoint"));
        let endpoint = endpoint.unwrap().split('"').nth(1).unwrap().to_owned();
        let read = |name: &str| {
            fs::read_to_string(self.path().join(format!("keys/{user}/{name}"))).unwrap()
        };
        AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_access_key_id(read("key"))
            .with_secret_access_key(read("secret"))
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .build()
            .unwrap()
    }
}

/// The settings that give each user its own files.
fn keys(root: &Path) -> String {
    let keys = root.join("keys").display().to_string();
    format!(
        "credentials = \"{keys}/{{stage}}/nats.creds\"\nkey-file = \"{keys}/{{stage}}/key\"\nsecret-file = \"{keys}/{{stage}}/secret\"\n"
    )
}

fn ecluse(root: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(ECLUSE);
    settle_environment(&mut command);
    command.current_dir(root).arg("--root").arg(root);
    command.args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Makes a key for each user that the written rights name, and gives the servers what was written.
fn users(root: &Path) -> ServerUsers {
    let rights = root.join("units/rights");
    let read = |name: &str| fs::read_to_string(rights.join(name)).unwrap();
    let mut store: Value = serde_json::from_str(&read("store-seaweedfs.json")).unwrap();
    for identity in store["identities"].as_array_mut().unwrap() {
        let name = identity["name"].as_str().unwrap().to_owned();
        let user = name.strip_prefix("ecluse-").unwrap();
        let (dir, secret) = (root.join("keys").join(user), format!("secret-of-{user}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("key"), &name).unwrap();
        fs::write(dir.join("secret"), &secret).unwrap();
        identity["credentials"][0]["secretKey"] = json!(secret);
        // What AWS and Ceph would be given is the same.
        let policies = store_policy(&rights, user);
        assert!(read("store-seaweedfs.json").contains(&json!(policies).to_string()));
    }
    must_have_reasons(&rights);
    let text = read("nats-users.conf");
    let users = text.split_once("users: ").unwrap().1;
    let users: Vec<Value> = serde_json::from_str(users).unwrap();
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    for user in &users {
        let name = user["user"].as_str().unwrap();
        let dir = root
            .join("keys")
            .join(name.strip_prefix("ecluse-").unwrap());
        let own = KeyPair::new_user();
        let permissions = &user["permissions"];
        let token = token(
            &account,
            &own,
            name,
            json!({
                "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
                "pub": permissions["publish"], "sub": permissions["subscribe"],
            }),
        );
        let seed = own.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(dir.join("nats.creds"), text).unwrap();
    }
    let of_operator = json!({ "type": "operator", "version": 2 });
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_account = json!({ "type": "account", "version": 2, "limits": limits });
    let of_operator = token(&operator, &operator, "operator", of_operator);
    let of_account = token(&operator, &account, "archive", of_account);
    // JetStream wants one for the servers themselves.
    let system = KeyPair::new_account();
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "conn": -1 });
    let of_system = json!({ "type": "account", "version": 2, "limits": limits });
    let of_system = token(&operator, &system, "system", of_system);
    let (account, system) = (account.public_key(), system.public_key());
    ServerUsers {
        store: store.to_string(),
        nats: format!(
            "operator: \"{of_operator}\"\nsystem_account: {system}\nresolver: MEMORY\n\
             resolver_preload: {{ {account}: \"{of_account}\", {system}: \"{of_system}\" }}\n"
        ),
    }
}

/// Every right is given with its reason.
fn must_have_reasons(rights: &Path) {
    let why = fs::read_to_string(rights.join("why.txt")).unwrap();
    let policy: Value = serde_json::from_str(&store_policy(rights, "index")).unwrap();
    let lists = policy["Statement"].as_array().unwrap().iter();
    let keys = lists.flat_map(|statement| statement["Resource"].as_array().unwrap());
    let prefix = format!("arn:aws:s3:::{BUCKET}/{PREFIX}/");
    let keys = keys.filter_map(|key| key.as_str().unwrap().strip_prefix(&prefix));
    let mut count = 0;
    for key in keys {
        count += 1;
        let is_it = |line: &str| line.split_whitespace().next() == Some(key) && line.len() > 60;
        assert!(why.lines().any(is_it), "{key}: {why}");
    }
    assert!(count > 20);
}

/// The policy of a user as it stands in the list for SeaweedFS: the same document, on one line.
fn store_policy(rights: &Path, user: &str) -> String {
    let text = fs::read_to_string(rights.join(format!("store/{user}.json"))).unwrap();
    let policy: Value = serde_json::from_str(&text).unwrap();
    policy.to_string()
}

/// A token as nsc makes it.
fn token(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: Value) -> String {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" }).to_string();
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": name,
        "sub": subject.public_key(), "nats": nats,
    });
    let text = [header, claims.to_string()].map(|part| BASE64URL_NOPAD.encode(part.as_bytes()));
    let text = text.join(".");
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

fn warc(number: usize) -> String {
    let body = format!("<p>text {number}</p>");
    let http = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number:08x}-0000-4000-8000-000000000000>\r\n\
         WARC-Date: 2026-03-12T10:15:00Z\r\nWARC-Target-URI: http://h{number}.example.org/\r\n\
         Content-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n{http}\r\n\r\n",
        http.len()
    )
}

#[test]
fn each_stage_does_its_work_under_its_own_rights_and_touches_nothing_else() {
    let guarded = Guarded::new();
    let name = |number: usize| format!("1-1-2026031210150{number:04}-{number:05}-h.warc");
    for number in 0..3 {
        let path = guarded.path().join("harvested").join(name(number));
        fs::write(path, warc(number)).unwrap();
    }
    // Each is a process of its own, with its own files of credentials.
    for stage in STAGES {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.args(["stage", stage, "--once", "--root"]);
        let output = command.arg(guarded.path()).output().unwrap();
        let said = said(&output);
        assert!(output.status.success(), "{stage}: {said}");
        for word in ["AccessDenied", "privileges", "ermissions"] {
            assert!(!said.contains(word), "{stage}: {said}");
        }
    }
    let index = fs::read_to_string(guarded.path().join("index/current/index.cdxj")).unwrap();
    assert_eq!(index.lines().count(), 3, "{index}");
    let log = guarded.servers.nats_log();
    assert!(!log.contains("Violation"), "{log}");
    let status = ecluse(guarded.path(), &["status"]);
    assert!(
        said(&status).contains("Nothing needs you"),
        "{}",
        said(&status)
    );
    // What nobody needs any more is for the operator to collect.
    let collected = ecluse(guarded.path(), &["reconcile", "--collect"]);
    assert!(collected.status.success(), "{}", said(&collected));

    // The client of the store wants to know whose cryptography it takes.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        the_store_keeps_index_to_its_own(&guarded).await;
        the_queues_keep_index_to_its_own(&guarded).await;
    });
    let log = guarded.servers.nats_log();
    assert!(log.contains("Violation"), "the log tells of none: {log}");
}

async fn the_store_keeps_index_to_its_own(guarded: &Guarded) {
    let (operator, index) = (guarded.store_as("operator"), guarded.store_as("index"));
    // What may be done with objects: read, write, remove.
    for (key, may) in [
        ("stages/index/in/x", "rwd"),
        ("stages/index/deferred/x", "rwd"),
        ("stages/index/receipts/00/x.json", "rw"),
        ("stages/index/paused.json", "r"),
        ("stages/transfer/in/x", "rw"),
        ("stages/transfer/receipts/00/x.json", "r"),
        ("stages/transfer/held/x", ""),
        ("stages/ingest/receipts/00/x.json", "r"),
        ("stages/ingest/in/x", ""),
        ("stages/backup/in/x", ""),
        ("stages/backup/receipts/00/x.json", ""),
        ("payloads/index/00/x/y", "rwd"),
        ("payloads/ingest/00/x/y", "rd"),
        ("payloads/given/00/x/y", "rd"),
        ("payloads/transfer/00/x/y", ""),
        ("owners/manifest", ""),
        ("collected.json", ""),
        ("clocks/host", "rw"),
        ("../other/stages/index/in/x", ""),
    ] {
        let key = Key::from(match key.strip_prefix("../") {
            Some(other) => other.to_owned(),
            None => format!("{PREFIX}/{key}"),
        });
        let missing = index.get(&key).await.err().map(|error| error.to_string());
        let is_ours = !key.as_ref().starts_with("other");
        if is_ours {
            operator.put(&key, "theirs".into()).await.unwrap();
        }
        let read = index.get(&key).await.is_ok();
        let written = index.put(&key, "mine".into()).await.is_ok();
        let removed = index.delete(&key).await.is_ok();
        let found: String = [(read, 'r'), (written, 'w'), (removed, 'd')]
            .iter()
            .filter_map(|(may, letter)| may.then_some(*letter))
            .collect();
        assert_eq!(found, may, "{key}");
        // What may be read and is not there is missing, and not forbidden: the engine takes it so.
        if read && !key.as_ref().contains("owners") && !key.as_ref().contains("clocks") {
            let missing = missing.unwrap_or_default();
            assert!(missing.contains("not found"), "{key}: {missing}");
        }
        if is_ours {
            operator.delete(&key).await.unwrap();
        }
    }
    for (directory, may) in [
        ("stages/index/in", true),
        ("stages/transfer/in", false),
        ("stages", false),
        ("payloads", false),
    ] {
        let directory = Key::from(format!("{PREFIX}/{directory}"));
        let listed = index.list_with_delimiter(Some(&directory)).await;
        assert_eq!(listed.is_ok(), may, "{directory}: {listed:?}");
    }
}

async fn the_queues_keep_index_to_its_own(guarded: &Guarded) {
    let errors = Arc::new(Mutex::new(Vec::<String>::new()));
    let heard = Arc::clone(&errors);
    let settings = guarded.servers.settings(PREFIX);
    let server = settings.lines().find(|line| line.starts_with("servers"));
    let server = server.unwrap().split('"').nth(1).unwrap();
    let credentials = guarded.path().join("keys/index/nats.creds");
    let options = async_nats::ConnectOptions::with_credentials_file(credentials).await;
    let options = options.unwrap().event_callback(move |event| {
        heard.lock().unwrap().push(event.to_string());
        async {}
    });
    let client = options.connect(server).await.unwrap();
    for (subject, may) in [
        (format!("$JS.API.STREAM.INFO.{PREFIX}_index"), true),
        (format!("$JS.API.STREAM.INFO.{PREFIX}_transfer"), true),
        (format!("$JS.API.STREAM.INFO.{PREFIX}_backup"), false),
        (format!("$JS.API.STREAM.DELETE.{PREFIX}_index"), false),
        (format!("$JS.API.STREAM.PURGE.{PREFIX}_transfer"), false),
        ("$JS.API.STREAM.NAMES".to_owned(), false),
        (
            format!("$JS.API.CONSUMER.MSG.NEXT.{PREFIX}_transfer.workers"),
            false,
        ),
        (format!("{PREFIX}.backup.x"), false),
        (format!("{PREFIX}.index.x"), true),
    ] {
        let asked = client.request(subject.clone(), "{}".into());
        let refused = async {
            // The server says so by itself, and answers nobody.
            loop {
                let is_told = |error: &String| {
                    error.to_lowercase().contains("permissions violation")
                        && error.contains(&subject)
                };
                if errors.lock().unwrap().iter().any(is_told) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let answered = tokio::select! {
            answer = asked => answer.is_ok(),
            () = refused => false,
        };
        assert_eq!(answered, may, "{subject}: {:?}", errors.lock().unwrap());
    }
    // Nor does it hear what is told to others.
    let _other = client
        .subscribe(format!("{PREFIX}.backup.*"))
        .await
        .unwrap();
    client.flush().await.unwrap();
    let is_refused = |error: &String| error.to_lowercase().contains("subscription to");
    // The server says so by itself, whenever it comes to it.
    let told = async {
        while !errors.lock().unwrap().iter().any(is_refused) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    told.unwrap_or_else(|_| panic!("nobody was refused: {:?}", errors.lock().unwrap()));
}
