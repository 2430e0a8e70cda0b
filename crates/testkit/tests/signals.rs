//! Signals, settings read again, and what systemd hears.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use ecluse_testkit::machine::sh;
use ecluse_testkit::root::{Program, Root, until, until_so};
use rustix::process::Signal;

const RELAY: &str = env!("CARGO_BIN_EXE_ecluse-relay");
const TALLY: &str = env!("CARGO_BIN_EXE_ecluse-tally");

fn relay_root(more: &str) -> Root {
    let root = Root::new();
    let wedge = root.path().join("go-on");
    let table = format!("[stage.relay]\nwedge-until = {wedge:?}\n{more}\n");
    root.settings(&["relay", "sink"], &table);
    root
}

fn unwedge(root: &Root) {
    std::fs::write(root.path().join("go-on"), "").unwrap();
}

fn await_claimed(root: &Root, program: &Program, name: &str) {
    until_so(&format!("{name} in hand"), || {
        program.must_live();
        root.claimed("relay").iter().any(|claimed| claimed == name)
    });
}

#[test]
fn a_term_lets_the_work_in_hand_finish() {
    let root = relay_root("");
    root.put("relay", "slow", b"wedge");
    let mut program = root.start(RELAY, &[]);
    await_claimed(&root, &program, "slow~1");
    program.signal(Signal::TERM);
    program.await_log("stopping");
    root.put("relay", "late", b"not claimed any more");
    unwedge(&root);
    assert_eq!(program.wait(), 0, "{}", program.log());
    assert_eq!(root.list("sink", "ready"), ["slow~0"]);
    assert_eq!(root.list("relay", "ready"), ["late~0"]);
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

#[test]
fn long_work_that_looks_is_given_back_at_once() {
    let root = relay_root("grace = \"10m\"");
    root.put("relay", "long", b"sleep 600000");
    let mut program = root.start(RELAY, &[]);
    await_claimed(&root, &program, "long~1");
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(
        root.list("relay", "ready"),
        ["long~0"],
        "the attempt does not count"
    );
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

#[test]
fn work_that_outlasts_the_grace_is_given_back_untouched() {
    let root = relay_root("grace = \"200ms\"");
    root.put("relay", "wedged", b"wedge");
    root.put("relay", "other", b"fine");
    let mut program = root.start(RELAY, &[]);
    await_claimed(&root, &program, "wedged~1");
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert!(
        program.log().contains("outlasted the grace"),
        "{}",
        program.log()
    );
    let ready = root.list("relay", "ready");
    assert!(ready.contains(&"wedged~0".to_owned()), "{ready:?}");
    assert_eq!(root.list("relay", "claim"), [""; 0]);
    assert_eq!(root.list("relay", "reap"), [""; 0]);
    unwedge(&root);
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready"), ["other~0", "wedged~0"]);
}

#[test]
fn a_second_term_ends_at_once_and_the_next_start_settles() {
    let root = relay_root("grace = \"10m\"");
    root.put("relay", "wedged", b"wedge");
    let mut program = root.start(RELAY, &[]);
    await_claimed(&root, &program, "wedged~1");
    program.signal(Signal::TERM);
    program.await_log("stopping");
    program.signal(Signal::TERM);
    assert_eq!(program.wait(), 75, "{}", program.log());
    assert_eq!(root.claimed("relay"), ["wedged~1"], "left where it was");
    unwedge(&root);
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("settling a dead worker"), "{said}");
    assert_eq!(root.list("sink", "ready"), ["wedged~0"]);
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

#[test]
fn an_interrupt_at_the_terminal_is_a_term() {
    let root = relay_root("");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    program.signal(Signal::INT);
    assert_eq!(program.wait(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

#[test]
fn a_killed_stage_loses_nothing() {
    let root = relay_root("");
    root.put("relay", "wedged", b"wedge");
    for number in 0..5 {
        root.put("relay", &format!("good-{number}"), b"fine");
    }
    let mut program = root.start(RELAY, &["--workers", "2"]);
    await_claimed(&root, &program, "wedged~1");
    program.signal(Signal::KILL);
    assert_eq!(program.wait(), -9);
    unwedge(&root);
    let (code, said) = root.run(RELAY, &["--once", "--workers", "2"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready").len(), 6);
    for part in ["ready", "claim", "reap", "held"] {
        assert_eq!(root.list("relay", part), [""; 0], "{part}");
    }
    let mut attempts = Vec::new();
    let tree = root.tree();
    tree.each_receipt("relay", &mut |filed| {
        if filed.receipt.work.as_str() == "wedged" {
            attempts.push(filed.receipt.attempt);
        }
    })
    .unwrap();
    assert_eq!(attempts, [2], "a death is an attempt");
}

#[test]
fn a_hangup_takes_up_new_settings_and_refuses_bad_ones() {
    let root = relay_root("attempts = 5");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.put("relay", "one", b"panic");
    root.await_count("relay", "held", 1);
    assert!(root.list("relay", "held").contains(&"one~5".to_owned()));

    // The shell's settings and the stage's own.
    root.settings(
        &["relay", "sink"],
        "[stage.relay]\nattempts = 2\nplain = true\n",
    );
    program.signal(Signal::HUP);
    program.await_log("settings read again");
    root.put("relay", "two", b"panic");
    root.await_count("relay", "held", 2);
    assert!(root.list("relay", "held").contains(&"two~2".to_owned()));
    root.put("relay", "plain", b"fine");
    root.await_count("sink", "ready", 1);
    assert!(!root.part("sink", "ready/plain~0/relayed").exists());

    // A mistake in the shell's keys, then in the stage's own: all of it is kept as it was.
    for (round, wrong) in ["attempts = \"many\"", "attempts = 1\nplainn = true"]
        .into_iter()
        .enumerate()
    {
        root.settings(&["relay", "sink"], &format!("[stage.relay]\n{wrong}\n"));
        program.signal(Signal::HUP);
        until_so("a line about it", || {
            program.lines_with("keeping the settings as they were") == round + 1
        });
        root.put("relay", &format!("three-{round}"), b"panic");
        root.await_count("relay", "held", 3 + round);
        let held = format!("three-{round}~2");
        assert!(
            root.list("relay", "held").contains(&held),
            "{}",
            program.log()
        );
        root.put("relay", &format!("plain-{round}"), b"fine");
        root.await_count("sink", "ready", 2 + round);
        let note = format!("ready/plain-{round}~0/relayed");
        assert!(!root.part("sink", &note).exists());
    }

    // Another destination.
    root.settings(&["relay", "elsewhere"], "");
    program.signal(Signal::HUP);
    until_so("the settings read again", || {
        program.lines_with("settings read again") == 2
    });
    root.put("relay", "moved", b"fine");
    root.await_count("elsewhere", "ready", 1);
    assert_eq!(program.stop(), 0);
}

#[test]
fn a_hangup_changes_how_a_gathering_stage_gathers() {
    let root = Root::new();
    let tally = |batch: &str| {
        root.settings(
            &["tally", "sink"],
            &format!("[stage.tally]\nbatch = {batch}\n"),
        );
    };
    tally("{ parcels = 100, wait = \"1h\" }");
    let mut program = root.start_ready(TALLY, "tally", &[]);
    for number in 0..3 {
        root.put("tally", &format!("m-{number}"), b"member");
    }
    tally("{ parcels = 3, wait = \"1h\" }");
    program.signal(Signal::HUP);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
}

#[test]
fn a_hangup_changes_the_number_of_workers() {
    let root = relay_root("workers = 1");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.await_count("relay", "claim", 1);
    for workers in [3, 2, 3, 1] {
        let table = format!("[stage.relay]\nworkers = {workers}\n");
        root.settings(&["relay", "sink"], &table);
        program.signal(Signal::HUP);
        root.await_count("relay", "claim", workers);
    }
    // At once, before the one that is too many has gone.
    for (round, workers) in [2, 1, 3].into_iter().enumerate() {
        let table = format!("[stage.relay]\nworkers = {workers}\n");
        root.settings(&["relay", "sink"], &table);
        program.signal(Signal::HUP);
        until_so("the settings read again", || {
            program.lines_with("settings read again") == 5 + round
        });
    }
    root.await_count("relay", "claim", 3);
    root.put("relay", "one", b"fine");
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

/// Asks a program whether it is ready; returns what it answers.
fn readiness(address: SocketAddr) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return String::new();
    };
    let request = "GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    answer
}

#[test]
fn a_program_that_has_halted_or_has_no_worker_is_not_ready() {
    let root = Root::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let metrics = format!("[metrics]\nlisten = \"{address}\"\n");
    root.settings(&["relay", "sink"], &metrics);
    let mut program = root.start_ready(RELAY, "relay", &[]);
    let until_it_says = |status: &str, why: &str| {
        until_so(why, || {
            let answer = readiness(address);
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(why)
        });
    };
    until_it_says("200", "ready");
    // A machine that stays unwell: nothing new can be made.
    let tmp = root.part("relay", "tmp");
    root.put("relay", "breaker", b"halt");
    sh("rm -r \"$1\" && echo in the way > \"$1\"", &tmp);
    until_it_says("503", "halted: ");
    until_it_says("503", "not a directory");
    sh("rm -r \"$1\"", &root.part("relay", "ready/breaker~0"));
    sh("rm \"$1\"", &tmp);
    until_it_says("200", "ready");
    root.await_note("relay", "idle");
    // The worker is fenced, and no other can be born.
    sh("rm -r \"$1\"/*", &root.part("relay", "claim"));
    sh("rm -r \"$1\" && echo in the way > \"$1\"", &tmp);
    fs::create_dir(root.part("relay", "ready/two~0")).unwrap();
    until_it_says("503", "no worker lives");
    sh("rm \"$1\" && mkdir \"$1\"", &tmp);
    until_it_says("200", "ready");
    root.await_count("relay", "held", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
}

/// What systemd would hear.
struct Systemd {
    socket: UnixDatagram,
    heard: Vec<(Instant, String)>,
}

impl Systemd {
    fn start(root: &Root, arguments: &[&str], watchdog: Option<Duration>) -> (Self, Program) {
        let path = root.path().join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut command = root.program(RELAY);
        command.args(arguments).env("NOTIFY_SOCKET", &path);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        let heard = Vec::new();
        (Self { socket, heard }, Program::start(command))
    }

    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(read) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
            for line in text.lines() {
                self.heard.push((Instant::now(), line.to_owned()));
            }
        }
    }

    fn await_line(&mut self, begins: &str) -> String {
        until(&format!("a message {begins}"), || {
            self.listen();
            let mut lines = self.heard.iter().map(|(_, line)| line);
            lines.find(|line| line.starts_with(begins)).cloned()
        })
    }

    fn count(&mut self, message: &str) -> usize {
        self.listen();
        self.heard
            .iter()
            .filter(|(_, line)| line == message)
            .count()
    }

    /// The longest time between two feedings so far, the time since the last included.
    fn longest_fast(&mut self) -> Duration {
        self.listen();
        let mut fed: Vec<Instant> = self
            .heard
            .iter()
            .filter(|(_, line)| line == "WATCHDOG=1")
            .map(|(at, _)| *at)
            .collect();
        fed.push(Instant::now());
        fed.windows(2)
            .map(|two| two[1] - two[0])
            .max()
            .unwrap_or_default()
    }
}

#[test]
fn systemd_hears_ready_after_the_first_scan_then_the_status_and_the_end() {
    let root = relay_root("");
    root.put("relay", "held", b"hold");
    // A worker that died: settled before the stage calls itself ready.
    let mut dead = root.start(RELAY, &[]);
    root.await_count("relay", "held", 1);
    root.put("relay", "wedged", b"wedge");
    await_claimed(&root, &dead, "wedged~1");
    dead.signal(Signal::KILL);
    dead.wait();
    unwedge(&root);
    let (mut systemd, mut program) = Systemd::start(&root, &[], None);
    until_so("any message", || {
        systemd.listen();
        !systemd.heard.is_empty()
    });
    assert_eq!(systemd.heard[0].1, "READY=1", "the first message");
    assert_eq!(
        root.list("relay", "reap"),
        [""; 0],
        "the dead were settled before"
    );
    assert_eq!(root.list("relay", "claim").len(), 1);
    let status = systemd.await_line("STATUS=");
    assert!(status.contains("held 1"), "{status}");
    assert_eq!(systemd.count("STOPPING=1"), 0);
    assert_eq!(program.stop(), 0);
    systemd.await_line("STOPPING=1");
    assert_eq!(systemd.count("WATCHDOG=1"), 0, "nobody asked for it");
}

#[test]
fn the_status_says_what_blocks() {
    let root = relay_root("");
    root.tree()
        .pause("relay", "anna", "the disk is being changed")
        .unwrap();
    let (mut systemd, mut program) = Systemd::start(&root, &[], None);
    let status = until("a status that says so", || {
        systemd.listen();
        let mut lines = systemd.heard.iter().map(|(_, line)| line);
        lines.find(|line| line.contains("anna")).cloned()
    });
    assert!(
        status.contains("paused by anna: the disk is being changed"),
        "{status}"
    );
    assert_eq!(program.stop(), 0);
}

#[test]
fn the_watchdog_is_fed_when_idle_and_when_working_and_not_when_wedged() {
    let root = relay_root("grace = \"100ms\"");
    let limit = Duration::from_secs(2);
    let (mut systemd, mut program) = Systemd::start(&root, &["--workers", "2"], Some(limit));
    systemd.await_line("READY=1");
    // Idle, one and a half times the limit long.
    until_so("six feedings", || systemd.count("WATCHDOG=1") >= 6);
    assert!(
        systemd.longest_fast() < limit,
        "{:?}",
        systemd.longest_fast()
    );
    // Working on something long that shows itself.
    root.put("relay", "long", b"sleep 3000");
    until_so("its end", || {
        systemd.listen();
        root.list("sink", "ready").len() == 1
    });
    assert!(
        systemd.longest_fast() < limit,
        "{:?}",
        systemd.longest_fast()
    );
    // One of the two workers stands still: within two rounds nothing is fed any more.
    root.put("relay", "wedged", b"wedge");
    await_claimed(&root, &program, "wedged~1");
    program.await_log("a worker stands still");
    let fed = systemd.count("WATCHDOG=1");
    until_so("the limit to pass unfed", || {
        systemd.longest_fast() >= limit
    });
    assert_eq!(systemd.count("WATCHDOG=1"), fed, "not fed again");
    // It moves on: fed again.
    unwedge(&root);
    until_so("another feeding", || systemd.count("WATCHDOG=1") > fed);
    assert_eq!(program.stop(), 0);
}

#[test]
fn a_large_dropped_file_shows_that_it_goes_forward() {
    let root = relay_root("");
    root.drop_file("relay", "large", &vec![b'x'; 8 << 20]);
    let tree = root.tree();
    let limits = ecluse_spool::WorkerLimits::default();
    let mut worker = ecluse_spool::Worker::open(&tree, "relay", &[], limits, "test").unwrap();
    let before = worker.signs().ticks();
    let adopted = worker.adopt(&["large".into()]).unwrap();
    assert_eq!(adopted.parcels.len(), 1);
    assert!(
        worker.signs().ticks() - before >= 16,
        "{}",
        worker.signs().ticks()
    );
    // And no further file is begun once the stage is to stop.
    root.drop_file("relay", "another", b"small");
    worker.signs().ask_to_stop();
    let adopted = worker.adopt(&["another".into()]).unwrap();
    assert_eq!(adopted.parcels, []);
    worker.close().unwrap();
    assert_eq!(root.list("relay", "drop"), ["another"]);
}

/// A worker of another host that is stopped past its lease and wakes up again.
#[test]
fn a_paused_worker_that_wakes_up_is_fenced() {
    let root = relay_root("heartbeat = \"100ms\"\nlease = \"600ms\"\nscan = \"200ms\"");
    root.put("relay", "slow", b"wedge");
    let mut paused = root.start(RELAY, &["--host", "one"]);
    await_claimed(&root, &paused, "slow~1");
    paused.signal(Signal::STOP);
    let mut other = root.start(RELAY, &["--host", "two"]);
    await_claimed(&root, &other, "slow~2");
    unwedge(&root);
    root.await_count("sink", "ready", 1);
    // The one that was paused finishes its work too, and finds that nobody waits for it.
    paused.signal(Signal::CONT);
    paused.await_log("taken for dead and fenced");
    root.put("relay", "after", b"fine");
    root.await_count("sink", "ready", 2);
    assert_eq!(paused.stop(), 0, "{}", paused.log());
    assert_eq!(other.stop(), 0, "{}", other.log());
    assert_eq!(root.list("sink", "ready"), ["after~0", "slow~0"]);
    assert_eq!(root.receipts("relay"), 2, "nothing twice");
    for part in ["ready", "claim", "reap", "held"] {
        assert_eq!(root.list("relay", part), [""; 0], "{part}");
    }
}
