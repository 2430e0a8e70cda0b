//! A broker that lost everything, and one that lost nothing: how long until every parcel is told of again, and in how much
//! memory?

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use ecluse_engine::JetstreamEngine;
use ecluse_spool::ReconcileExtent;
use ecluse_testkit::servers::BUCKET;

use crate::page::Page;
use crate::{Clock, END, Options, STAGES, Servers, worker};

const PREFIX: &str = "many";

/// Reconciles a tenth of the parcels, then all of them.
pub(crate) fn measure(page: &mut Page, options: &Options, dir: &Path) {
    let servers = Servers::start(dir);
    page.say("Reconcile; the tickets lie in the store and the queue is empty, then it is whole (at most 2 minutes for 1,000,000, memory flat)\n");
    page.say("| parcels | | s | CPU-s | its servers' | peak memory, MiB |");
    page.say("|--:|---|--:|--:|--:|--:|");
    for tickets in [options.tickets / 10, options.tickets] {
        let prefix = format!("{PREFIX}-{tickets}");
        fill(&servers, &prefix, tickets);
        let engine = servers.open(&prefix, &dir.join(&prefix), "host");
        for (what, extent) in [
            ("the broker lost all", ReconcileExtent::Missing),
            ("the broker lost nothing", ReconcileExtent::Missing),
        ] {
            let told = one(page, &engine, extent, what, tickets);
            assert!(told == 0 || told == tickets as u64, "{told} were told of");
        }
        must_be_tickets(&engine);
    }
    page.say("");
}

fn one(
    page: &mut Page,
    engine: &JetstreamEngine,
    extent: ReconcileExtent,
    what: &str,
    tickets: usize,
) -> u64 {
    forget_peak();
    let clock = Clock::start();
    let reconciled = engine.reconcile_stage(STAGES[0], extent).unwrap();
    assert_eq!(reconciled.parcels, tickets as u64);
    page.say(format!(
        "| {tickets} | {what}: {} told of | {:.1} | {:.1} | {:.1} | {:.0} |",
        reconciled.told,
        clock.elapsed().as_secs_f64(),
        clock.ours().as_secs_f64(),
        clock.servers().as_secs_f64(),
        peak()
    ));
    reconciled.told
}

/// Claims some of what was told of: what the bench put are tickets that workers take.
fn must_be_tickets(engine: &JetstreamEngine) {
    let mut worker = worker(engine, STAGES[0], END, 10);
    let waiting = worker.scan().unwrap().waiting;
    assert_eq!(waiting.len(), 10);
    for waiting in &waiting {
        assert!(worker.claim(waiting).unwrap().is_some());
    }
    worker.close().unwrap();
}

/// Puts tickets into the store by its own door, which is quicker than asking the S3 service for each.
fn fill(servers: &Servers, prefix: &str, tickets: usize) {
    let port = servers.store.own_door();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                let mut door = Door::open(port);
                for number in (thread..tickets).step_by(16) {
                    let born = format!("{number:016x}");
                    let mark = ecluse_spool::digest(born.as_bytes());
                    let key = format!(
                        "/buckets/{BUCKET}/{prefix}/stages/{}/in/p{number:07}={}",
                        STAGES[0],
                        &mark[..12]
                    );
                    let ticket = format!(
                        r#"{{"schema":1,"turn":0,"state":{{"is":"ready"}},"attempts":0,"manifest":{{"schema":1,"id":"p{number:07}","kind":"bench","born":"{born}","files":[]}}}}"#
                    );
                    door.put(&key, &ticket);
                }
            });
        }
    });
}

struct Door {
    stream: BufReader<TcpStream>,
}

impl Door {
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    fn put(&mut self, key: &str, body: &str) {
        let request = format!(
            "PUT {key} HTTP/1.1\r\nHost: store\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.contains(" 201 "), "{key}: {line}");
        let mut bytes = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; bytes];
        self.stream.read_exact(&mut answer).unwrap();
    }
}

/// Lets the kernel count the peak of this process's memory anew.
fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The most memory that this process has had, in MiB.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes: f64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap()
        .parse()
        .unwrap();
    kilobytes / 1024.0
}
