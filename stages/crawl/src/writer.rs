//! The thread that writes and syncs, so that the one that fetches never waits for a disk.
//!
//! Whatever it is given is written in that order, so a sync makes everything durable that was given before it. After a
//! failed write or sync nothing more is written, and every further sync fails.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

const BUFFER: usize = 256 * 1024;
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
}

/// The thread.
pub(crate) struct Writer {
    tasks: Option<Sender<Task>>,
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
}

enum Task {
    /// Writes to this file from now on.
    Open(File),
    Write(Vec<Part>),
    /// Syncs the file being written, and these.
    Sync(Vec<File>, oneshot::Sender<io::Result<()>>),
    /// Writes to no file any more.
    Close,
}

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
            unwritten,
            thread: Some(thread),
        })
    }

    /// Writes to this file from now on.
    pub(crate) fn open(&self, file: File) {
        self.give(Task::Open(file));
    }

    /// Lets go of the file.
    pub(crate) fn close(&self) {
        self.give(Task::Close);
    }

    /// Appends records; whether that went well is told by the next sync.
    pub(crate) fn append(&self, parts: Vec<Part>) {
        for part in &parts {
            let count = self.unwritten.of(part);
            count.fetch_add(part.bytes(), Ordering::Relaxed);
        }
        self.give(Task::Write(parts));
    }

    /// Makes durable what was appended, and what these files hold.
    pub(crate) async fn sync(&self, others: Vec<File>) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        self.give(Task::Sync(others, done));
        answer
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the thread that writes is gone")))
    }

    /// Tells whether large records will keep it busy for a while.
    pub(crate) fn is_busy(&self) -> bool {
        self.unwritten.in_files.load(Ordering::Relaxed) >= BUSY
    }

    /// What waits in memory to be written, in bytes.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        self.unwritten.in_memory.load(Ordering::Relaxed)
    }

    fn give(&self, task: Task) {
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
    let mut file: Option<BufWriter<File>> = None;
    let mut failed: Option<io::Error> = None;
    while let Ok(task) = tasks.recv() {
        if unwritten.is_left.load(Ordering::Relaxed) {
            return;
        }
        match task {
            Task::Open(new) => file = Some(BufWriter::with_capacity(BUFFER, new)),
            Task::Close => file = None,
            Task::Write(parts) => {
                for part in parts {
                    let (count, bytes) = (unwritten.of(&part), part.bytes());
                    if failed.is_none() {
                        failed = write(file.as_mut(), part, &unwritten.is_left).err();
                    }
                    count.fetch_sub(bytes, Ordering::Relaxed);
                }
            }
            Task::Sync(others, done) => {
                let synced = match &failed {
                    None => sync(file.as_mut(), &others),
                    Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                if let Err(error) = &synced {
                    failed = Some(io::Error::new(error.kind(), error.to_string()));
                }
                let _ = done.send(synced);
            }
        }
        if failed.is_some() {
            // What is left in the buffer is not written either.
            file.take().map(BufWriter::into_parts);
        }
    }
}

fn write(file: Option<&mut BufWriter<File>>, part: Part, is_left: &AtomicBool) -> io::Result<()> {
    let file = file.ok_or_else(|| io::Error::other("no file is open"))?;
    let (mut source, bytes) = match part {
        Part::Bytes(bytes) => return file.write_all(&bytes),
        Part::File(source, bytes) => (source, bytes),
    };
    source.seek(SeekFrom::Start(0))?;
    file.flush()?;
    let file = file.get_mut();
    let mut left = bytes;
    while left > 0 {
        if is_left.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let copied = io::copy(&mut (&mut source).take(left.min(STEP)), file)?;
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

fn sync(file: Option<&mut BufWriter<File>>, others: &[File]) -> io::Result<()> {
    if let Some(file) = file {
        file.flush()?;
        file.get_ref().sync_data()?;
    }
    others.iter().try_for_each(File::sync_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<Output>(future: impl Future<Output = Output>) -> Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    fn large(text: &str, times: usize) -> Part {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = text.repeat(times).into_bytes();
        file.write_all(&bytes).unwrap();
        Part::File(file, bytes.len() as u64)
    }

    #[test]
    fn what_is_given_is_written_in_order_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("a"), dir.path().join("log"));
        let writer = Writer::start().unwrap();
        writer.open(File::create(&path).unwrap());
        writer.append(vec![Part::Bytes(b"one ".to_vec()), large("two ", 3)]);
        writer.append(vec![large("0123456789abcdef", 1 << 20)]);
        writer.append(vec![Part::Bytes(b"end".to_vec())]);
        wait(writer.sync(vec![File::create(log).unwrap()])).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"one two two two 0123"));
        assert!(bytes.ends_with(b"cdefend"));
        assert_eq!(bytes.len(), 4 + 12 + (16 << 20) + 3);
        assert!(!writer.is_busy());
        assert_eq!(writer.bytes_in_memory(), 0);
        writer.close();
        writer.append(vec![Part::Bytes(b"lost".to_vec())]);
        let error = wait(writer.sync(Vec::new())).unwrap_err();
        assert_eq!(error.to_string(), "no file is open");
    }

    #[test]
    fn after_a_failure_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let writer = Writer::start().unwrap();
        writer.open(File::create(&path).unwrap());
        let Part::File(short, bytes) = large("x", 10) else {
            unreachable!("it is a file");
        };
        writer.append(vec![Part::Bytes(b"one ".to_vec())]);
        writer.append(vec![Part::File(short, bytes + 1)]);
        writer.append(vec![Part::Bytes(b"two ".to_vec())]);
        for _ in 0..2 {
            let error = wait(writer.sync(Vec::new())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        drop(writer);
        assert_eq!(std::fs::read(&path).unwrap(), b"one xxxxxxxxxx");
    }
}
