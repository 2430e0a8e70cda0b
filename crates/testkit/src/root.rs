//! Temporary roots, the programs that run in them, and waiting for what they do.
//!
//! Nothing here sleeps for a fixed time: [`until`] asks again and again, and its limit is only
//! reached when the test has failed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ecluse_spool::{NewParcel, ParcelId, WorkTree, WorkerNote};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` gives something; `what` is told when it never does.
pub fn until<Value>(what: &str, mut condition: impl FnMut() -> Option<Value>) -> Value {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `condition` holds.
pub fn until_so(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}

/// A root of its own for one test.
pub struct Root {
    path: PathBuf,
    _dir: Option<TempDir>,
}

/// What the settings of most tests begin with: little patience, logs that can be read.
const SETTINGS: &str = r#"
[log]
format = "json"
[defaults]
min-free = "0 B"
settle = "50ms"
"#;

impl Root {
    /// Makes an empty root.
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("ecluse-").expect("a temporary directory can be made");
        Self {
            path: dir.path().to_owned(),
            _dir: Some(dir),
        }
    }

    /// Takes a directory that is there, on a file system of its own for instance.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            _dir: None,
        }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a part of a stage's work directory.
    pub fn part(&self, stage: &str, part: &str) -> PathBuf {
        self.path.join("work").join(stage).join(part)
    }

    /// Returns its tree.
    pub fn tree(&self) -> WorkTree {
        WorkTree::open(&self.path.join("work"))
    }

    /// Writes `pipeline.toml`: the stages in order, and what else it says.
    pub fn settings(&self, stages: &[&str], more: &str) {
        let text = format!("{SETTINGS}{more}\n[chain]\nstages = {stages:?}\n");
        fs::write(self.path.join("pipeline.toml"), text).expect("a root takes its settings");
    }

    /// Puts a parcel with one file, `data`, into a stage's `ready/`.
    pub fn put(&self, stage: &str, id: &str, bytes: &[u8]) {
        self.put_files(stage, id, &[("data", bytes)]);
    }

    /// Puts a parcel with these files into a stage's `ready/`; the same files, the same parcel.
    pub fn put_files(&self, stage: &str, id: &str, files: &[(&str, &[u8])]) {
        self.put_with(stage, id, "test", |parcel| {
            for (name, bytes) in files {
                parcel.write(name, bytes)?;
            }
            Ok(())
        });
    }

    /// Puts a parcel into a stage's `ready/` that `build` makes; built the same way, it is the same parcel.
    pub fn put_with(
        &self,
        stage: &str,
        id: &str,
        kind: &str,
        build: impl FnOnce(&mut NewParcel) -> ecluse_spool::Result<()>,
    ) {
        let id = ParcelId::new(id).expect("a test names its parcels well");
        let put = self.tree().put(stage, &id, kind, |parcel| {
            parcel.manifest().born = "0000000000000000".into();
            build(parcel)
        });
        put.expect("a parcel can be put");
    }

    /// Puts a directory into `ready/` that is no parcel, though it is named like one.
    pub fn put_damaged(&self, stage: &str, id: &str) {
        let dir = self
            .tree()
            .init(stage)
            .expect("a stage can be made")
            .ready()
            .join(format!("{id}~0"));
        fs::create_dir(&dir).expect("ready/ takes directories");
        fs::write(dir.join("parcel.json"), b"{\"schema\":").expect("a directory takes files");
    }

    /// Drops a plain file.
    pub fn drop_file(&self, stage: &str, name: impl AsRef<OsStr>, bytes: &[u8]) {
        let dir = self.tree().init(stage).expect("a stage can be made").drop();
        fs::write(dir.join(name.as_ref()), bytes).expect("drop/ takes files");
    }

    /// Lists what lies in a part of a stage: parcels and other entries, sorted; the directories of `receipts/` are entered.
    pub fn list(&self, stage: &str, part: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut dirs = vec![self.part(stage, part)];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit()) {
                    dirs.push(entry.path());
                } else {
                    names.push(name);
                }
            }
        }
        names.sort();
        names
    }

    /// Lists the parcels some worker of a stage has claimed.
    pub fn claimed(&self, stage: &str) -> Vec<String> {
        let mut names = Vec::new();
        for worker in fs::read_dir(self.part(stage, "claim"))
            .into_iter()
            .flatten()
            .flatten()
        {
            for entry in fs::read_dir(worker.path().join("in"))
                .into_iter()
                .flatten()
                .flatten()
            {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        names
    }

    /// Counts the receipts of a stage.
    pub fn receipts(&self, stage: &str) -> usize {
        self.list(stage, "receipts").len()
    }

    /// Returns why a parcel is held.
    pub fn why(&self, stage: &str, id: &str) -> String {
        let id = ParcelId::new(id).expect("a test names its parcels well");
        let tree = self.tree();
        let places = tree.locate(&[stage.to_owned()], &id);
        let places = places.expect("the stage can be read");
        let why = |place| tree.why(place).expect("held/ can be read");
        let why = places.iter().find_map(why);
        why.map(|why| why.reason).unwrap_or_default()
    }

    /// Returns what the workers of a stage say of themselves.
    pub fn notes(&self, stage: &str) -> Vec<WorkerNote> {
        let notes = self.tree().notes(stage).unwrap_or_default();
        notes.into_iter().map(|(_, note)| note).collect()
    }

    /// Waits until a worker says it is in this state, and returns why.
    pub fn await_note(&self, stage: &str, state: &str) -> String {
        until(&format!("a worker of {stage} that is {state}"), || {
            let mut notes = self.notes(stage).into_iter();
            notes.find(|note| note.state == state).map(|note| note.why)
        })
    }

    /// Waits until a part of a stage holds so many entries.
    pub fn await_count(&self, stage: &str, part: &str, count: usize) {
        let mut seen = 0;
        let began = Instant::now();
        loop {
            let now = self.list(stage, part).len();
            if now == count {
                return;
            }
            // As long as something moves there is hope, however slow the machine.
            let patience = if now == seen { PATIENCE } else { PATIENCE * 2 };
            seen = now;
            assert!(
                began.elapsed() < patience,
                "{stage}/{part} has {now} entries, not {count}: {:?}",
                self.list(stage, part).iter().take(20).collect::<Vec<_>>()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns a program ready to be started in this root.
    pub fn program(&self, binary: impl AsRef<Path>) -> Command {
        let mut command = Command::new(binary.as_ref());
        settle_environment(&mut command);
        command.arg("--root").arg(&self.path);
        command
    }

    /// Starts a program in this root.
    pub fn start(&self, binary: impl AsRef<Path>, arguments: &[&str]) -> Program {
        let mut command = self.program(binary);
        command.args(arguments);
        Program::start(command)
    }

    /// Starts a program and waits until its first scan is over.
    pub fn start_ready(
        &self,
        binary: impl AsRef<Path>,
        stage: &str,
        arguments: &[&str],
    ) -> Program {
        let program = self.start(binary, arguments);
        until("the first scan", || {
            program.must_live();
            (!self.notes(stage).is_empty()).then_some(())
        });
        program
    }

    /// Runs a program to its end; returns its exit code and what it wrote to stderr.
    pub fn run(&self, binary: impl AsRef<Path>, arguments: &[&str]) -> (i32, String) {
        let mut program = self.start(binary, arguments);
        let code = program.wait();
        (code, program.log())
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes away what the caller's environment would tell a program.
pub fn settle_environment(command: &mut Command) {
    for name in [
        "ECLUSE_ROOT",
        "ECLUSE_CONFIG",
        "ECLUSE_LOG",
        "ECLUSE_HOST",
        "ECLUSE_FAILPOINTS",
        "ECLUSE_MUTANT",
        "JOURNAL_STREAM",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
    ] {
        command.env_remove(name);
    }
}

/// A running program, killed when the test lets go of it.
pub struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    ended: Option<i32>,
}

impl Program {
    /// Starts it and gathers what it writes to stderr.
    pub fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = child.stderr.take().expect("stderr is piped");
        let log = Arc::new(Mutex::new(String::new()));
        let gathered = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            while stderr
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                gathered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self {
            child,
            log,
            reader: Some(reader),
            ended: None,
        }
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, signal).expect("a child that was not waited for can be signalled");
        }
    }

    /// Returns what it has written to stderr so far.
    pub fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until it has written this.
    pub fn await_log(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(
                began.elapsed() < PATIENCE,
                "never said {text:?}, but:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Counts the lines it has written that hold this.
    pub fn lines_with(&self, text: &str) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }

    /// Fails when it has ended.
    pub fn must_live(&self) {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(path).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        assert!(
            !state.is_empty() && !state.starts_with('Z'),
            "it ended early:\n{}",
            self.log()
        );
    }

    /// Waits for its end; returns its exit code, or the signal that killed it as a negative number.
    pub fn wait(&mut self) -> i32 {
        if let Some(code) = self.ended {
            return code;
        }
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if began.elapsed() >= PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("did not end within {PATIENCE:?}:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let code = status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or_default());
        self.ended = Some(code);
        code
    }

    /// Asks it to stop in good order and waits for its end.
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- its log:\n{}", self.log());
        }
    }
}

/// What a tree looks like from outside: kind, size, modification and change time of every entry.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
        let look = format!(
            "{:o} {} {}.{:09} {}.{:09}",
            meta.mode(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec()
        );
        seen.insert(path, look);
    }
    seen
}

/// The bytes of every plain file under a directory, `history/` left out: it tells who and when.
pub fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        // Links are not followed, and a pipe would wait for ever.
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() && path.file_name() != Some(OsStr::new("history")) {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            paths.extend(entries.map(|entry| entry.path()));
        } else if meta.is_file() {
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            files.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
    files
}
