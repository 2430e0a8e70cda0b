//! Every listed file is read once, on all cores, and hashed for every manifest that lists it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{Advice, Mode, OFlags};

use crate::algorithm::{DigestAlgorithm, Hasher};
use crate::fault::ValidateError;

/// How much is read at a time: it stays in the processor's own memory while it is hashed.
const PIECE_BYTES: usize = 64 << 10;

/// A file to be read.
pub(crate) struct Reading<'a> {
    pub(crate) path: &'a str,
    pub(crate) bytes: u64,
    /// The digests asked for, in order.
    pub(crate) algorithms: Vec<DigestAlgorithm>,
}

/// Reads the files and returns their digests, in the order of both lists.
///
/// `going` is told how many bytes were read so far, and says whether to go on.
pub(crate) fn read_all(
    bag: &Path,
    readings: &[Reading<'_>],
    threads: usize,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<Vec<String>>, ValidateError> {
    // The largest first: otherwise one core hashes it alone at the end.
    let mut order: Vec<usize> = (0..readings.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(readings[at].bytes));
    let work = Work {
        bag,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        failed: Mutex::new(None),
        going,
    };
    let digests: Vec<Mutex<Vec<String>>> = readings.iter().map(|_| Mutex::default()).collect();
    let labour = || {
        while let Some(&at) = order.get(work.next.fetch_add(1, Ordering::Relaxed)) {
            match work.read(&readings[at]) {
                Ok(found) => {
                    let mut slot = digests[at].lock().unwrap_or_else(|lock| lock.into_inner());
                    *slot = found;
                }
                Err(error) => return work.fail(error),
            }
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

struct Work<'a> {
    bag: &'a Path,
    next: AtomicUsize,
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

    fn read(&self, reading: &Reading<'_>) -> Result<Vec<String>, ValidateError> {
        let path = self.bag.join(reading.path);
        let at = |source: io::Error| ValidateError::Io {
            path: path.clone(),
            source,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = rustix::fs::open(&path, flags, Mode::empty())
            .map(File::from)
            .map_err(|error| at(error.into()))?;
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        let algorithms = reading.algorithms.iter();
        let mut hashers: Vec<Hasher> = algorithms.map(|name| Hasher::new(*name)).collect();
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(at(error)),
            };
            for hasher in &mut hashers {
                hasher.update(&buffer[..read]);
            }
            let read = read as u64;
            let done = self.done.fetch_add(read, Ordering::Relaxed) + read;
            if self.is_over.load(Ordering::Relaxed) || !(self.going)(done) {
                return Err(ValidateError::Stopped);
            }
        }
        Ok(hashers.into_iter().map(Hasher::finish).collect())
    }
}
