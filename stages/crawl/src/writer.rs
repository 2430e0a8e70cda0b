//! The thread that writes and syncs, so that the one that fetches never waits for a disk.
//!
//! Whatever it is given is done in that order: a sync makes everything durable that was given before it, and a file gets its
//! name after the commit that counts it, and none before. So nobody need wait for any of it. After a failure nothing more is
//! written, made or named, and every further sync fails.

use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::place::{publish, sync_dir_of};

/// Records go to the thread together, when they are so many bytes or something else follows them: to wake it for each
/// would cost more than to write it.
const BATCH: u64 = 256 * 1024;
/// So much of a large record is written between two syncs: a disk that has more to write makes all others wait for it.
const STEP: u64 = 8 << 20;
/// With so much of large records unwritten the thread is busy for a while.
const BUSY: u64 = 16 << 20;

/// A piece of packed records.
#[derive(Debug)]
pub(crate) enum Part {
    /// Most.
    Bytes(Vec<u8>),
    /// A record that is too large for memory, in a nameless file.
    File(File, u64),
}

impl Part {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }

    fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::File(..) => None,
        }
    }

    fn is_in_memory(&self) -> bool {
        self.in_memory().is_some()
    }
}

/// The thread.
pub(crate) struct Writer {
    tasks: Option<Sender<Task>>,
    /// Records that the thread does not have yet.
    batch: Vec<Part>,
    batch_bytes: u64,
    unwritten: Arc<Unwritten>,
    thread: Option<JoinHandle<()>>,
}

/// What was given and is not written yet, in bytes.
#[derive(Default)]
struct Unwritten {
    in_memory: AtomicU64,
    in_files: AtomicU64,
    /// Nobody waits for it any more.
    is_left: AtomicBool,
}

impl Unwritten {
    fn of(&self, part: &Part) -> &AtomicU64 {
        match part {
            Part::Bytes(_) => &self.in_memory,
            Part::File(..) => &self.in_files,
        }
    }

    fn count_off(&self, part: &Part) {
        self.of(part).fetch_sub(part.bytes(), Ordering::Relaxed);
    }
}

enum Task {
    /// Writes to this file from now on.
    Open(File),
    /// Makes a file and writes to it from now on.
    Create(PathBuf),
    Write(Vec<Part>),
    /// Syncs the file being written and these, and then does what counts only if that went well.
    Sync(Vec<File>, Then, oneshot::Sender<io::Result<()>>),
    /// Writes to no file any more, and gives the file its name.
    Publish(PathBuf, PathBuf),
}

/// What is done when everything before it is durable.
pub(crate) type Then = Box<dyn FnOnce() -> io::Result<()> + Send>;

impl Writer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (tasks, queue) = channel();
        let unwritten = Arc::new(Unwritten::default());
        let shared = Arc::clone(&unwritten);
        let thread = std::thread::Builder::new()
            .name("write".to_owned())
            .spawn(move || toil(&queue, &shared))?;
        Ok(Self {
            tasks: Some(tasks),
            batch: Vec::new(),
            batch_bytes: 0,
            unwritten,
            thread: Some(thread),
        })
    }

    /// Writes to this file from now on.
    pub(crate) fn open(&mut self, file: File) {
        self.give(Task::Open(file));
    }

    /// Makes a file, over what may lie there, and writes to it from now on.
    pub(crate) fn create(&mut self, path: PathBuf) {
        self.give(Task::Create(path));
    }

    /// Lets go of the file and gives it its name, unless it has it already.
    pub(crate) fn publish(&mut self, from: PathBuf, to: PathBuf) {
        self.give(Task::Publish(from, to));
    }

    /// Appends records; whether that went well is told by the next sync.
    pub(crate) fn append(&mut self, parts: Vec<Part>) {
        for part in &parts {
            let count = self.unwritten.of(part);
            count.fetch_add(part.bytes(), Ordering::Relaxed);
            self.batch_bytes += part.bytes();
        }
        self.batch.extend(parts);
        if self.batch_bytes >= BATCH {
            self.hand_over();
        }
    }

    /// Makes durable what was appended and what these files hold, and then does this. The answer tells whether all that, and
    /// everything before it, went well.
    pub(crate) fn sync(
        &mut self,
        others: Vec<File>,
        then: Then,
    ) -> oneshot::Receiver<io::Result<()>> {
        let (done, answer) = oneshot::channel();
        self.give(Task::Sync(others, then, done));
        answer
    }

    /// Tells whether large records will keep it busy for a while.
    pub(crate) fn is_busy(&self) -> bool {
        self.unwritten.in_files.load(Ordering::Relaxed) >= BUSY
    }

    /// What waits in memory to be written, in bytes.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        self.unwritten.in_memory.load(Ordering::Relaxed)
    }

    /// Gives the thread something to do, behind everything that was given before.
    fn give(&mut self, task: Task) {
        if !self.batch.is_empty() {
            self.hand_over();
        }
        self.send(task);
    }

    fn hand_over(&mut self) {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.send(Task::Write(batch));
    }

    fn send(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // The thread lives as long as this; if it died, the next sync says so.
            let _ = tasks.send(task);
        }
    }
}

impl Drop for Writer {
    /// Waits for the thread: whoever opens the file next is alone with it.
    fn drop(&mut self) {
        self.unwritten.is_left.store(true, Ordering::Relaxed);
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn toil(tasks: &Receiver<Task>, unwritten: &Unwritten) {
    let mut file: Option<File> = None;
    let mut failed: Option<io::Error> = None;
    while let Ok(task) = tasks.recv() {
        if unwritten.is_left.load(Ordering::Relaxed) {
            return;
        }
        let done = match (&failed, task) {
            (None, task) => act(&mut file, task, unwritten),
            (Some(error), Task::Sync(_, _, done)) => {
                let _ = done.send(Err(again(error)));
                continue;
            }
            (Some(_), Task::Write(parts)) => {
                parts.iter().for_each(|part| unwritten.count_off(part));
                continue;
            }
            (Some(_), Task::Open(_) | Task::Create(_) | Task::Publish(..)) => continue,
        };
        failed = done.err();
    }
}

fn act(file: &mut Option<File>, task: Task, unwritten: &Unwritten) -> io::Result<()> {
    match task {
        Task::Open(new) => *file = Some(new),
        Task::Create(path) => *file = Some(create(&path)?),
        Task::Write(parts) => {
            let written = write(file.as_ref(), &parts, &unwritten.is_left);
            parts.iter().for_each(|part| unwritten.count_off(part));
            return written;
        }
        Task::Sync(others, then, done) => {
            let mut files = file.iter().chain(&others);
            let synced = files.try_for_each(File::sync_data).and_then(|()| then());
            let _ = done.send(synced.as_ref().map_err(again).copied());
            return synced;
        }
        Task::Publish(from, to) => {
            *file = None;
            return name(&from, &to);
        }
    }
    Ok(())
}

fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

fn create(path: &Path) -> io::Result<File> {
    let named = |error: io::Error| {
        let text = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), text)
    };
    let file = File::create(path).map_err(named)?;
    sync_dir_of(path)?;
    Ok(file)
}

/// Gives a whole file its name, unless it has it already.
pub(crate) fn name(from: &Path, to: &Path) -> io::Result<()> {
    match publish(from, to) {
        // Killed between the rename and the next commit.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write(file: Option<&File>, parts: &[Part], is_left: &AtomicBool) -> io::Result<()> {
    let file = file.ok_or_else(|| io::Error::other("no file is open"))?;
    // Records in memory that follow each other are written together.
    for group in parts.chunk_by(|part, next| part.is_in_memory() && next.is_in_memory()) {
        match group {
            [Part::File(source, bytes)] => copy(file, source, *bytes, is_left)?,
            group => write_together(file, group.iter().filter_map(Part::in_memory))?,
        }
    }
    Ok(())
}

fn write_together<'p>(mut file: &File, parts: impl Iterator<Item = &'p [u8]>) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy(mut file: &File, mut source: &File, bytes: u64, is_left: &AtomicBool) -> io::Result<()> {
    source.seek(SeekFrom::Start(0))?;
    let mut left = bytes;
    while left > 0 {
        if is_left.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let copied = io::copy(&mut source.take(left.min(STEP)), &mut file)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= copied;
        if bytes > STEP {
            file.sync_data()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(writer: &mut Writer, others: Vec<File>) -> io::Result<()> {
        writer
            .sync(others, Box::new(|| Ok(())))
            .blocking_recv()
            .unwrap()
    }

    fn large(text: &str, times: usize) -> Part {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = text.repeat(times).into_bytes();
        file.write_all(&bytes).unwrap();
        Part::File(file, bytes.len() as u64)
    }

    fn text(text: &str) -> Vec<Part> {
        vec![Part::Bytes(text.as_bytes().to_vec())]
    }

    #[test]
    fn what_is_given_is_done_in_order_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("a"), dir.path().join("log"));
        let mut writer = Writer::start().unwrap();
        writer.open(File::create(&path).unwrap());
        writer.append(vec![Part::Bytes(b"one ".to_vec()), large("two ", 3)]);
        writer.append(vec![large("0123456789abcdef", 1 << 20)]);
        writer.append(text("end"));
        sync(&mut writer, vec![File::create(log).unwrap()]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"one two two two 0123"));
        assert!(bytes.ends_with(b"cdefend"));
        assert_eq!(bytes.len(), 4 + 12 + (16 << 20) + 3);
        assert!(!writer.is_busy());
        assert_eq!(writer.bytes_in_memory(), 0);
        let (open, named, next) = (path, dir.path().join("b"), dir.path().join("c"));
        let seen = (named.clone(), next.clone());
        // Nothing has its name before what stands before it is durable.
        let answer = writer.sync(
            Vec::new(),
            Box::new(move || {
                assert!(!seen.0.exists() && !seen.1.exists());
                Ok(())
            }),
        );
        writer.publish(open.clone(), named.clone());
        writer.create(next.clone());
        writer.append(text("next"));
        sync(&mut writer, Vec::new()).unwrap();
        answer.blocking_recv().unwrap().unwrap();
        assert!(named.exists() && !open.exists());
        assert_eq!(std::fs::read(&next).unwrap(), b"next");
        writer.publish(next, dir.path().join("d"));
        writer.append(text("lost"));
        let error = sync(&mut writer, Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "no file is open");
    }

    #[test]
    fn after_a_failure_nothing_is_written_or_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, named) = (dir.path().join("a"), dir.path().join("b"));
        let mut writer = Writer::start().unwrap();
        writer.open(File::create(&path).unwrap());
        let Part::File(short, bytes) = large("x", 10) else {
            unreachable!("it is a file");
        };
        writer.append(text("one "));
        writer.append(vec![Part::File(short, bytes + 1)]);
        writer.append(text("two "));
        writer.publish(path.clone(), named.clone());
        for _ in 0..2 {
            let then = Box::new(|| unreachable!("what is before it is not durable"));
            let answer = writer.sync(Vec::new(), then).blocking_recv().unwrap();
            assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!(writer.bytes_in_memory(), 0);
        drop(writer);
        assert_eq!(std::fs::read(&path).unwrap(), b"one xxxxxxxxxx");
        assert!(!named.exists());
    }

    #[test]
    fn a_commit_that_fails_is_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let (open, named) = (dir.path().join("a"), dir.path().join("b"));
        let mut writer = Writer::start().unwrap();
        writer.create(open.clone());
        let failing = Box::new(|| Err(io::Error::other("no room")));
        let answer = writer.sync(Vec::new(), failing);
        writer.publish(open, named.clone());
        assert!(answer.blocking_recv().unwrap().is_err());
        let error = sync(&mut writer, Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "no room");
        assert!(!named.exists());
    }
}
