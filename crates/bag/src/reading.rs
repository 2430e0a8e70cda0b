//! Every listed file is read once, on all cores, and hashed for every manifest that lists it. Where only SHA-512 is asked for and
//! the processor can, a core hashes several files at a time.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{Advice, Mode, OFlags};

use crate::algorithm::{DigestAlgorithm, Hasher};
use crate::fault::ValidateError;
use crate::lanes::{BLOCK_BYTES, LANES, Lanes, padding};

/// How much is read at a time: it stays in the processor's own memory while it is hashed.
const PIECE_BYTES: usize = 64 << 10;

/// A file to be read.
#[derive(Debug, Clone)]
pub struct FileReading<'a> {
    /// Its path below the directory.
    pub path: &'a str,
    /// Its size.
    pub bytes: u64,
    /// The digests asked for, in order.
    pub algorithms: Vec<DigestAlgorithm>,
}

/// Reads the files and returns their digests, in the order of both lists.
///
/// `going` is told how many bytes were read so far, and says whether to go on.
///
/// # Errors
/// When a file cannot be read, or `going` says to stop.
pub fn read_digests(
    bag: &Path,
    readings: &[FileReading<'_>],
    threads: usize,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Vec<String>>, ValidateError> {
    // The largest first: otherwise one core hashes it alone at the end.
    let mut order: Vec<usize> = (0..readings.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(readings[at].bytes));
    // A file that is a large part of all is not to wait for the others of its lanes.
    let all: u64 = readings.iter().map(|reading| reading.bytes).sum();
    let share = all / 2 / threads.max(1) as u64;
    let (together, alone) = order.into_iter().partition(|&at| {
        let reading = &readings[at];
        reading.algorithms == [DigestAlgorithm::Sha512] && reading.bytes <= share
    });
    let work = Work {
        bag,
        alone: FileQueue::new(alone),
        together: FileQueue::new(together),
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        failed: Mutex::new(None),
        going,
    };
    let digests: Vec<Mutex<Vec<String>>> = readings.iter().map(|_| Mutex::default()).collect();
    let put = |at: usize, found: Vec<String>| {
        let mut slot = digests[at].lock().unwrap_or_else(|lock| lock.into_inner());
        *slot = found;
    };
    let labour = || {
        while let Some(at) = work.alone.next() {
            match work.read(&readings[at]) {
                Ok(found) => put(at, found),
                Err(error) => return work.fail(error),
            }
        }
        let read = match Lanes::new() {
            Some(lanes) => work.read_together(lanes, readings, &put),
            None => work.read_rest(readings, &put),
        };
        if let Err(error) = read {
            work.fail(error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(readings.len()) {
            scope.spawn(labour);
        }
        labour();
    });
    let failed = work.failed.into_inner();
    match failed.unwrap_or_else(|lock| lock.into_inner()) {
        Some(error) => Err(error),
        None => Ok(digests
            .into_iter()
            .map(|slot| slot.into_inner().unwrap_or_else(|lock| lock.into_inner()))
            .collect()),
    }
}

/// Files that wait for somebody to read them.
struct FileQueue {
    files: Vec<usize>,
    next: AtomicUsize,
}

impl FileQueue {
    fn new(files: Vec<usize>) -> Self {
        Self {
            files,
            next: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> Option<usize> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.get(at).copied()
    }
}

/// A file in a lane.
struct LaneFile {
    at: usize,
    path: PathBuf,
    file: File,
    /// So many bytes came of it.
    length: u64,
    /// What is to be hashed.
    buffer: Vec<u8>,
    /// So much of that is hashed.
    begin: usize,
    /// Its last bytes and what follows them are in the buffer.
    is_last: bool,
}

impl LaneFile {
    fn waiting(&self) -> &[u8] {
        &self.buffer[self.begin..]
    }

    /// Reads on, until there is a block.
    fn fill(&mut self) -> io::Result<u64> {
        let mut read = 0;
        while !self.is_last && self.waiting().len() < BLOCK_BYTES {
            self.buffer.drain(..self.begin);
            self.begin = 0;
            let before = self.buffer.len();
            self.buffer.resize(before + PIECE_BYTES, 0);
            let count = match self.file.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                count => count?,
            };
            self.buffer.truncate(before + count);
            self.length += count as u64;
            read += count as u64;
            if count == 0 {
                self.buffer.extend(padding(self.length));
                self.is_last = true;
            }
        }
        Ok(read)
    }
}

/// Takes the digests of a file.
type Put<'a> = &'a dyn Fn(usize, Vec<String>);

struct Work<'a> {
    bag: &'a Path,
    /// Read one at a time, for any digests.
    alone: FileQueue,
    /// May share the lanes of a core, for SHA-512.
    together: FileQueue,
    done: AtomicU64,
    is_over: AtomicBool,
    failed: Mutex<Option<ValidateError>>,
    going: &'a (dyn Fn(u64) -> bool + Sync),
}

impl Work<'_> {
    fn fail(&self, error: ValidateError) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut failed = self.failed.lock().unwrap_or_else(|lock| lock.into_inner());
        failed.get_or_insert(error);
    }

    /// Reads what is left one after the other, where there are no lanes.
    fn read_rest(&self, readings: &[FileReading<'_>], put: Put<'_>) -> Result<(), ValidateError> {
        while let Some(at) = self.together.next() {
            put(at, self.read(&readings[at])?);
        }
        Ok(())
    }

    /// Reads several files at a time, each in a lane.
    fn read_together(
        &self,
        mut lanes: Lanes,
        readings: &[FileReading<'_>],
        put: Put<'_>,
    ) -> Result<(), ValidateError> {
        let mut files: [Option<LaneFile>; LANES] = Default::default();
        loop {
            for (lane, slot) in files.iter_mut().enumerate() {
                if slot.is_none() {
                    *slot = self.next_in_lane(readings)?;
                    lanes.begin(lane);
                }
                if let Some(file) = slot {
                    let read = file.fill().map_err(at_path(&file.path))?;
                    self.must_go_on(read)?;
                }
            }
            let waiting = files.iter().flatten().map(LaneFile::waiting);
            let Some(shortest) = waiting.min_by_key(|bytes| bytes.len()) else {
                return Ok(());
            };
            let blocks = shortest.len() / BLOCK_BYTES;
            let data = std::array::from_fn(|lane| {
                let file = files[lane].as_ref();
                file.map_or(shortest, LaneFile::waiting)
            });
            lanes.update(&data, blocks);
            for (lane, slot) in files.iter_mut().enumerate() {
                if let Some(file) = slot {
                    file.begin += blocks * BLOCK_BYTES;
                    if file.is_last && file.waiting().is_empty() {
                        put(file.at, vec![lanes.finish(lane)]);
                        *slot = None;
                    }
                }
            }
        }
    }

    fn next_in_lane(
        &self,
        readings: &[FileReading<'_>],
    ) -> Result<Option<LaneFile>, ValidateError> {
        let Some(at) = self.together.next() else {
            return Ok(None);
        };
        let path = self.bag.join(readings[at].path);
        Ok(Some(LaneFile {
            at,
            file: open(&path).map_err(at_path(&path))?,
            path,
            length: 0,
            buffer: Vec::new(),
            begin: 0,
            is_last: false,
        }))
    }

    /// Counts what was read; stops where somebody says so.
    fn must_go_on(&self, read: u64) -> Result<(), ValidateError> {
        if read == 0 {
            return Ok(());
        }
        let done = self.done.fetch_add(read, Ordering::Relaxed) + read;
        match self.is_over.load(Ordering::Relaxed) || !(self.going)(done) {
            true => Err(ValidateError::Stopped),
            false => Ok(()),
        }
    }

    fn read(&self, reading: &FileReading<'_>) -> Result<Vec<String>, ValidateError> {
        let path = self.bag.join(reading.path);
        let mut file = open(&path).map_err(at_path(&path))?;
        let algorithms = reading.algorithms.iter();
        let mut hashers: Vec<Hasher> = algorithms.map(|name| Hasher::new(*name)).collect();
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(at_path(&path)(error)),
            };
            for hasher in &mut hashers {
                hasher.update(&buffer[..read]);
            }
            self.must_go_on(read as u64)?;
        }
        Ok(hashers.into_iter().map(Hasher::finish).collect())
    }
}

fn at_path(path: &Path) -> impl Fn(io::Error) -> ValidateError {
    let path = path.to_owned();
    move |source| ValidateError::Io {
        path: path.clone(),
        source,
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // What cannot be told ahead is read all the same.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
    Ok(File::from(file))
}
