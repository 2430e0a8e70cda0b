//! Reading a copy from the disk, not from memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ecluse_spool::hex;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256, Sha512};

/// How much is copied at a time: it stays in the processor's own memory between read and write.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// Asked before every piece: `false` means that the work is to stop.
pub type Going<'a> = &'a dyn Fn() -> bool;

/// What fixes the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixity {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, in lower-case hex.
    pub sha256: String,
}

impl fmt::Display for Fixity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256 {} ({} bytes)", self.sha256, self.bytes)
    }
}

/// Why a copy was not read to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFault {
    /// The disk failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The work was asked to stop.
    #[error("asked to stop")]
    Stopped,
}

/// Opens a plain file for reading; a symbolic link, directory, pipe or device is refused.
///
/// # Errors
/// As opening; `InvalidInput` for what is no plain file.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::LOOP) => return Err(not_plain("a symbolic link")),
        Err(error) => return Err(error.into()),
    };
    must_be_plain(file)
}

/// Tells whether two paths lead to one file, by whatever names: then one of them is no copy of the other.
///
/// # Errors
/// When one cannot be looked at.
pub fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (rustix::fs::stat(one)?, rustix::fs::stat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

pub(crate) fn must_be_plain(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(not_plain("not a plain file"))
}

pub(crate) fn not_plain(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}"))
}

/// Asks the kernel to forget what it holds of a file, so that the next read comes from the disk.
///
/// Dirty pages stay: sync first. A file system that keeps everything in memory ignores it.
pub fn drop_cached(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Reads a file from the disk and returns what it holds.
///
/// # Errors
/// When the disk fails, or `going` says to stop.
pub fn read_afresh(file: &mut File, going: Going<'_>) -> Result<Fixity, ReadFault> {
    let mut hash = Sha256::new();
    let bytes = each_piece(file, going, &mut |piece| hash.update(piece))?;
    let sha256 = hex(&hash.finalize());
    Ok(Fixity { bytes, sha256 })
}

/// Reads a file from the disk once and returns what it holds, with its SHA-512.
///
/// # Errors
/// As [`read_afresh`].
pub fn read_both(file: &mut File, going: Going<'_>) -> Result<(Fixity, String), ReadFault> {
    let (mut hash, mut longer) = (Sha256::new(), Sha512::new());
    let bytes = each_piece(file, going, &mut |piece| {
        // In small steps the second hash finds the bytes where the first left them.
        for step in piece.chunks(STEP_BYTES) {
            hash.update(step);
            longer.update(step);
        }
    })?;
    let sha256 = hex(&hash.finalize());
    Ok((Fixity { bytes, sha256 }, hex(&longer.finalize())))
}

/// How much two hashes take in turn.
const STEP_BYTES: usize = 16 << 10;

fn each_piece(
    file: &mut File,
    going: Going<'_>,
    see: &mut dyn FnMut(&[u8]),
) -> Result<u64, ReadFault> {
    let mut direct = Direct::new(file);
    let mut bytes = 0;
    loop {
        if !going() {
            return Err(ReadFault::Stopped);
        }
        let piece = direct.next_piece()?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        see(piece);
        bytes += piece.len() as u64;
    }
}

/// How direct reads must lie in memory and in the file; no disk asks for more.
const ALIGNMENT: usize = 4096;
/// How much is read from the disk at a time.
const DIRECT_BYTES: usize = 1 << 20;

/// Reads past the kernel's memory, from the disk straight into ours: what is read is what is stored,
/// and half the work is spared. Where that cannot be had it reads as everybody does.
struct Direct<'a> {
    file: &'a mut File,
    /// The flags to go back to, while reads are direct.
    before: Option<OFlags>,
    buffer: Vec<u8>,
}

impl<'a> Direct<'a> {
    fn new(file: &'a mut File) -> Self {
        let flags = rustix::fs::fcntl_getfl(&*file).ok();
        let is_direct =
            |flags: &OFlags| rustix::fs::fcntl_setfl(&*file, *flags | OFlags::DIRECT).is_ok();
        let before = flags.filter(is_direct);
        let direct = Self {
            file,
            before,
            buffer: vec![0; DIRECT_BYTES + ALIGNMENT],
        };
        if direct.before.is_none() {
            direct.forget();
        }
        direct
    }

    /// Without direct reads, what the kernel remembers must go first.
    fn forget(&self) {
        drop_cached(self.file);
        let _ = rustix::fs::fadvise(&*self.file, 0, None, Advice::Sequential);
    }

    /// Returns the next bytes; none at the end.
    fn next_piece(&mut self) -> io::Result<&[u8]> {
        // An address that cannot be aligned makes the read fail, and the next one is not direct.
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let mut read = read_piece(self.file, &mut self.buffer[start..start + DIRECT_BYTES]);
        let refused = |e: &io::Error| e.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        if self.before.is_some() && read.as_ref().is_err_and(refused) {
            self.end_direct();
            self.forget();
            read = read_piece(self.file, &mut self.buffer[start..start + DIRECT_BYTES]);
        }
        let read = read?;
        if read < DIRECT_BYTES {
            // The rest, if any, begins where no direct read may.
            self.end_direct();
        }
        Ok(&self.buffer[start..start + read])
    }

    fn end_direct(&mut self) {
        if let Some(flags) = self.before.take() {
            let _ = rustix::fs::fcntl_setfl(&*self.file, flags);
        }
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.end_direct();
    }
}

/// Reads a source to its end and returns what it holds.
///
/// # Errors
/// When it cannot be read, or `going` says to stop.
pub fn digest_of(source: &mut dyn Read, going: Going<'_>) -> Result<Fixity, ReadFault> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut hash = Sha256::new();
    let mut bytes = 0;
    loop {
        if !going() {
            return Err(ReadFault::Stopped);
        }
        let read = read_piece(source, &mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
    let sha256 = hex(&hash.finalize());
    Ok(Fixity { bytes, sha256 })
}

/// Reads once, again when a signal came between.
pub(crate) fn read_piece(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use ecluse_spool::{Fs, RealFs};

    use super::*;

    #[test]
    fn one_file_under_two_names_is_no_copy() {
        let dir = tempfile::tempdir().unwrap();
        let [one, linked, copied] = ["one", "linked", "copied"].map(|name| dir.path().join(name));
        std::fs::write(&one, "x").unwrap();
        RealFs.link(&one, &linked).unwrap();
        std::fs::copy(&one, &copied).unwrap();
        assert!(is_same_file(&one, &one).unwrap());
        assert!(is_same_file(&one, &linked).unwrap());
        assert!(!is_same_file(&one, &copied).unwrap());
        assert!(is_same_file(&one, &dir.path().join("none")).is_err());
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, b"abc").unwrap();
        let fixity = read_afresh(&mut open_plain(&path).unwrap(), &|| true).unwrap();
        assert_eq!(fixity.bytes, 3);
        assert!(fixity.sha256.starts_with("ba7816bf8f01cfea"));
        let (same, sha512) = read_both(&mut open_plain(&path).unwrap(), &|| true).unwrap();
        assert_eq!(same, fixity);
        assert!(sha512.starts_with("ddaf35a193617aba"));
        let stopped = read_afresh(&mut open_plain(&path).unwrap(), &|| false);
        assert!(matches!(stopped, Err(ReadFault::Stopped)));
    }

    #[test]
    fn only_plain_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        for path in [&link, dir.path()] {
            let error = open_plain(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }
}
