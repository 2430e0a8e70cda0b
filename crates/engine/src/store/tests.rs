//! Removals of many objects: of a real store in few requests, of one that does not know such requests one by one. Uploads in
//! parts: how large these are, and what becomes of an upload without an end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ecluse_config::{EngineSettings, Pipeline};
use ecluse_testkit::servers::EngineServers;
use futures_util::TryStreamExt;

use object_store::multipart::MultipartStore;

use super::{BULK, Listed, MOST_PARTS, PART_BYTES, Store, part_bytes};

fn settings(text: &str) -> EngineSettings {
    Pipeline::parse(text, "test").unwrap().engine
}

fn wait<Value>(future: impl Future<Output = Value>) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

#[test]
fn a_store_removes_thousands_at_once_and_what_is_not_there_does_no_harm() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start(&nats, &weed);
    let store = Store::open(&settings(&servers.settings("bulk")), Path::new("/")).unwrap();
    let keys: Vec<String> = (0..BULK + 20)
        .map(|number| format!("heap/{number:05}+a=b"))
        .collect();
    wait(async {
        for key in keys.iter().step_by(50).chain([&"heap/other".to_owned()]) {
            store.put(key, b"").await.unwrap();
        }
        store.remove_all(&keys).await.unwrap();
        let left: Vec<Listed> = store.list("heap/", "").try_collect().await.unwrap();
        let left: Vec<&str> = left.iter().map(|listed| listed.name.as_str()).collect();
        assert_eq!(left, ["other"]);
        store.remove_all(&[]).await.unwrap();
    });
}

/// Answers as a store that knows no request to remove many, and refuses to remove some keys; notes what it is asked.
fn poor_store() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            answer(connection.unwrap(), &notes);
        }
    });
    (port, asked)
}

fn answer(connection: TcpStream, notes: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(&connection);
    let (mut first, mut bytes) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let lower = line.to_ascii_lowercase();
        if let Some(length) = lower.strip_prefix("content-length:") {
            bytes = length.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).unwrap();
    let asked: Vec<&str> = first.split_whitespace().take(2).collect();
    let asked = asked.join(" ");
    let status = match asked.as_str() {
        asked if asked.starts_with("POST") => "501 Not Implemented",
        asked if asked.ends_with("kept") => "403 Forbidden",
        _ => "204 No Content",
    };
    notes.lock().unwrap().push(asked);
    let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    (&connection).write_all(answer.as_bytes()).unwrap();
}

#[test]
fn a_store_that_takes_one_at_a_time_is_asked_so_and_each_key_that_stays_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "word").unwrap();
    let (port, asked) = poor_store();
    let text = format!(
        "[engine]\nkind = \"jetstream\"\nservers = [\"nats://127.0.0.1:1\"]\nendpoint = \"http://127.0.0.1:{port}\"\n\
         bucket = \"b\"\nprefix = \"p\"\nkey-file = \"{0}\"\nsecret-file = \"{0}\"\n",
        secret.display()
    );
    let store = Store::open(&settings(&text), dir.path()).unwrap();
    let keys = ["one", "kept", "two"].map(String::from);
    let error = wait(store.remove_all(&keys)).unwrap_err();
    assert!(error.to_string().contains("p/kept"), "{error}");
    wait(store.remove_all(&["three".to_owned(), "four".to_owned()])).unwrap();
    let mut asked = asked.lock().unwrap().clone();
    asked.retain(|asked| asked.starts_with("DELETE"));
    asked.sort();
    let expected = ["four", "kept", "one", "three", "two"].map(|key| format!("DELETE /b/p/{key}"));
    assert_eq!(asked, expected);
}

#[test]
fn parts_grow_with_the_file() {
    let parts = |bytes: u64| bytes.div_ceil(part_bytes(bytes));
    assert_eq!(part_bytes(PART_BYTES + 1), PART_BYTES);
    assert_eq!(part_bytes(PART_BYTES * MOST_PARTS), PART_BYTES);
    assert_eq!(part_bytes(PART_BYTES * MOST_PARTS + 1), 9 << 20);
    for bytes in [80 << 30, (80 << 30) + 1, 1 << 40, 5 << 40] {
        assert!(parts(bytes) <= MOST_PARTS, "{bytes}");
        // What a store refuses as too large, and memory does not bear.
        assert!(part_bytes(bytes) <= 1 << 30, "{bytes}");
    }
}

#[test]
fn an_upload_without_an_end_is_found_by_its_age_and_ended() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start(&nats, &weed);
    let open =
        |prefix: &str| Store::open(&settings(&servers.settings(prefix)), Path::new("/")).unwrap();
    let (store, other) = (open("ends"), open("ends-not"));
    wait(async {
        for (store, key) in [
            (&store, "payloads/one/00/a=b/left"),
            (&store, "payloads/one/00/a=b/ended"),
            (&store, "probes/elsewhere"),
            (&other, "payloads/one/00/a=b/left"),
        ] {
            let key = store.key(key).unwrap();
            let upload = store.bucket.create_multipart(&key).await.unwrap();
            let part = vec![7; 5 << 20];
            let part = store.bucket.put_part(&key, &upload, 0, part.into());
            let part = part.await.unwrap();
            if key.as_ref().ends_with("ended") {
                let parts = vec![part];
                let done = store.bucket.complete_multipart(&key, &upload, parts);
                done.await.unwrap();
            }
        }
        let all = store.unfinished_uploads(i64::MAX).await.unwrap().unwrap();
        let [upload] = all.as_slice() else {
            panic!("one has no end: {all:?}");
        };
        assert_eq!(upload.key, "ends/payloads/one/00/a=b/left");
        let begun = upload.begun.unwrap().as_millisecond();
        let younger = store.unfinished_uploads(begun).await.unwrap().unwrap();
        assert_eq!(younger, []);
        store.abort(upload).await.unwrap();
        // Somebody else was first.
        store.abort(upload).await.unwrap();
        let left = store.unfinished_uploads(i64::MAX).await.unwrap().unwrap();
        assert_eq!(left, []);
        let theirs = other.unfinished_uploads(i64::MAX).await.unwrap().unwrap();
        assert_eq!(theirs.len(), 1, "another archive's is its own");
    });
}
