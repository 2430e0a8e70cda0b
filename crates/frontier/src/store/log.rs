//! The log: frames with a checksum each, of which only those before the last commit count.
//!
//! A log begins with a head (the runs it stands on), then come changes and commits. What a power cut
//! leaves behind the last commit is cut off when the log is opened; damage before it is an error, since
//! a commit was promised to be durable.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::error::{Result, damaged, io_error};

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The runs the log stands on.
    Head = 1,
    /// Changes.
    Changes = 2,
    /// Everything before it counts from here on.
    Commit = 3,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Head, Self::Changes, Self::Commit]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

const MAGIC: [u8; 4] = *b"\xecFr1";
/// Magic, sequence, kind, length, checksum.
const HEADER_BYTES: usize = 4 + 8 + 1 + 4 + 8;

fn check(sequence: u64, kind: u8, body: &[u8]) -> u64 {
    XxHash3_128::oneshot_with_seed(sequence ^ u64::from(kind) << 56, body) as u64
}

/// A log being written.
pub(super) struct Log {
    file: Arc<File>,
    path: PathBuf,
    sequence: u64,
    bytes: u64,
}

/// Frames with their place in a log.
pub(super) struct Frames {
    file: Arc<File>,
    path: PathBuf,
    at: u64,
    bytes: Vec<u8>,
}

impl Frames {
    /// Writes them; not durable yet.
    pub(super) fn write(&self) -> Result<()> {
        let written = self.file.write_all_at(&self.bytes, self.at);
        written.map_err(io_error("write", &self.path))
    }

    /// Makes the log durable, these included.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(io_error("fsync", &self.path))
    }
}

impl Log {
    /// Makes a new, empty log.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(io_error("create", path))?;
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            sequence: 0,
            bytes: 0,
        })
    }

    /// Goes on with a log behind its last commit, cutting off what follows.
    pub(super) fn resume(path: &Path, extent: &Extent) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(io_error("open", path))?;
        if extent.file_bytes > extent.committed_bytes {
            file.set_len(extent.committed_bytes)
                .map_err(io_error("truncate", path))?;
            file.sync_all().map_err(io_error("fsync", path))?;
        }
        Ok(Self::behind(file, path, extent))
    }

    /// Stands behind the last commit of a log to which nothing can be appended.
    pub(super) fn read_only(path: &Path, extent: &Extent) -> Result<Self> {
        let file = File::open(path).map_err(io_error("open", path))?;
        Ok(Self::behind(file, path, extent))
    }

    fn behind(file: File, path: &Path, extent: &Extent) -> Self {
        Self {
            file: Arc::new(file),
            path: path.to_owned(),
            sequence: extent.committed_frames,
            bytes: extent.committed_bytes,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives frames their place behind all others, where somebody is to write them in one go.
    pub(super) fn frame(&mut self, frames: &[(Kind, &[u8])]) -> Frames {
        let bodies: usize = frames.iter().map(|(_, body)| body.len()).sum();
        let mut bytes = Vec::with_capacity(bodies + frames.len() * HEADER_BYTES);
        for (kind, body) in frames {
            let kind = *kind as u8;
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&self.sequence.to_le_bytes());
            bytes.push(kind);
            bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&check(self.sequence, kind, body).to_le_bytes());
            bytes.extend_from_slice(body);
            self.sequence += 1;
        }
        let at = self.bytes;
        self.bytes += bytes.len() as u64;
        Frames {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
            at,
            bytes,
        }
    }

    /// Appends frames in one write; not durable yet.
    pub(super) fn append(&mut self, frames: &[(Kind, &[u8])]) -> Result<()> {
        self.frame(frames).write()
    }
}

/// How far a log goes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Extent {
    /// Up to the end of the last commit.
    pub(super) committed_bytes: u64,
    /// Frames up to there.
    pub(super) committed_frames: u64,
    /// The file's length.
    pub(super) file_bytes: u64,
}

/// Finds the last commit of a log; `None` if it has none, or no head.
///
/// # Errors
/// When a frame is damaged though two commits follow it: one may stand behind a torn write, since the
/// pages of the last write reach the disk in any order, but two prove that a durable frame was hurt.
pub(super) fn extent(path: &Path) -> Result<Option<Extent>> {
    let mut extent = Extent::default();
    let mut headed = false;
    let mut good = FrameReader::open(path)?;
    extent.file_bytes = good.file_bytes;
    while let Some((kind, _)) = good.next_frame()? {
        if good.sequence == 1 {
            headed = kind == Kind::Head;
        }
        if kind == Kind::Commit && headed {
            extent.committed_bytes = good.at;
            extent.committed_frames = good.sequence;
        }
    }
    if good.at < extent.file_bytes && commits_after(path, good.at)? >= 2 {
        return Err(damaged(path, good.at, "a frame before a commit"));
    }
    Ok((extent.committed_frames > 0).then_some(extent))
}

/// Gives each frame up to the last commit to `each`.
pub(super) fn replay(
    path: &Path,
    extent: &Extent,
    mut each: impl FnMut(Kind, &[u8]) -> Option<()>,
) -> Result<()> {
    let mut frames = FrameReader::open(path)?;
    while frames.at < extent.committed_bytes {
        let at = frames.at;
        let Some((kind, body)) = frames.next_frame()? else {
            return Err(damaged(path, at, "a frame that was whole before"));
        };
        each(kind, body).ok_or_else(|| damaged(path, at, "a frame that makes no sense"))?;
    }
    Ok(())
}

/// Counts the whole commits behind `from`, wherever they begin.
fn commits_after(path: &Path, from: u64) -> Result<usize> {
    let file = File::open(path).map_err(io_error("open", path))?;
    let file_bytes = file.metadata().map_err(io_error("stat", path))?.len();
    let mut rest = vec![0; (file_bytes - from) as usize];
    file.read_exact_at(&mut rest, from)
        .map_err(io_error("read", path))?;
    let whole_commit = |frame: &[u8]| {
        let (header, body) = frame.split_at_checked(HEADER_BYTES)?;
        let header = Header::parse(header.try_into().ok()?)?;
        let body = body.get(..header.bytes)?;
        (header.kind == Kind::Commit && header.fits(body)).then_some(())
    };
    let starts = 0..rest.len().saturating_sub(HEADER_BYTES);
    Ok(starts
        .filter(|at| rest[*at..].starts_with(&MAGIC) && whole_commit(&rest[*at..]).is_some())
        .count())
}

struct Header {
    sequence: u64,
    kind: Kind,
    bytes: usize,
    check: u64,
}

impl Header {
    fn parse(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut fields = crate::codec::Reader::new(header);
        (fields.array()? == MAGIC).then_some(())?;
        Some(Self {
            sequence: u64::from_le_bytes(fields.array()?),
            kind: Kind::from_byte(fields.byte()?)?,
            bytes: u32::from_le_bytes(fields.array()?) as usize,
            check: u64::from_le_bytes(fields.array()?),
        })
    }

    fn fits(&self, body: &[u8]) -> bool {
        check(self.sequence, self.kind as u8, body) == self.check
    }
}

/// Reads frames until one is not whole.
struct FrameReader {
    input: BufReader<File>,
    path: PathBuf,
    file_bytes: u64,
    at: u64,
    sequence: u64,
    body: Vec<u8>,
}

impl FrameReader {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(io_error("open", path))?;
        let file_bytes = file.metadata().map_err(io_error("stat", path))?.len();
        Ok(Self {
            input: BufReader::with_capacity(1 << 16, file),
            path: path.to_owned(),
            file_bytes,
            at: 0,
            sequence: 0,
            body: Vec::new(),
        })
    }

    fn next_frame(&mut self) -> Result<Option<(Kind, &[u8])>> {
        let left = self.file_bytes - self.at;
        if left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(|input| input.read_exact(&mut header))?;
        let Some(header) = Header::parse(&header) else {
            return Ok(None);
        };
        let frame_bytes = (HEADER_BYTES + header.bytes) as u64;
        if header.sequence != self.sequence || frame_bytes > left {
            return Ok(None);
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(header.bytes, 0);
        self.read(|input| input.read_exact(&mut body))?;
        self.body = body;
        if !header.fits(&self.body) {
            return Ok(None);
        }
        self.at += frame_bytes;
        self.sequence += 1;
        Ok(Some((header.kind, &self.body)))
    }

    fn read(
        &mut self,
        act: impl FnOnce(&mut BufReader<File>) -> std::io::Result<()>,
    ) -> Result<()> {
        act(&mut self.input).map_err(io_error("read", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn three_commits(path: &Path) -> Vec<u64> {
        let mut log = Log::create(path).unwrap();
        log.append(&[(Kind::Head, b"runs")]).unwrap();
        let mut ends = Vec::new();
        for body in [&b"one"[..], b"two", b"three"] {
            log.append(&[(Kind::Changes, body), (Kind::Commit, b"c")])
                .unwrap();
            ends.push(log.bytes());
        }
        ends
    }

    fn changes(path: &Path, extent: &Extent) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        replay(path, extent, |kind, body| {
            if kind == Kind::Changes {
                found.push(body.to_vec());
            }
            Some(())
        })
        .unwrap();
        found
    }

    #[test]
    fn cut_at_every_byte_the_log_ends_with_a_whole_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let ends = three_commits(&path);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let commits = ends.iter().filter(|end| **end <= cut as u64).count();
            let found = extent(&path).unwrap();
            assert_eq!(found.is_some(), commits > 0);
            if let Some(extent) = found {
                assert_eq!(extent.committed_bytes, ends[commits - 1]);
                assert_eq!(changes(&path, &extent).len(), commits);
                let mut log = Log::resume(&path, &extent).unwrap();
                log.append(&[(Kind::Changes, b"more"), (Kind::Commit, b"")])
                    .unwrap();
                let extent = super::extent(&path).unwrap().unwrap();
                assert_eq!(changes(&path, &extent).last().unwrap(), b"more");
            }
        }
    }

    #[test]
    fn a_torn_last_write_is_cut_off_and_earlier_damage_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let ends = three_commits(&path);
        let whole = fs::read(&path).unwrap();
        for hurt in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[hurt] ^= 0x20;
            fs::write(&path, &bytes).unwrap();
            let after = ends.iter().filter(|end| hurt as u64 >= **end).count();
            match extent(&path) {
                // Two commits stand behind the damage, or at its end: nothing is cut off silently.
                Err(_) => assert!(after <= 1, "byte {hurt}"),
                Ok(found) => {
                    assert!(after >= 1, "byte {hurt}");
                    let extent = found.unwrap();
                    assert_eq!(extent.committed_bytes, ends[after - 1]);
                }
            }
        }
    }
}
