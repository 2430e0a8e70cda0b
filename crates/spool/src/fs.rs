//! The few file-system calls the protocol is made of.
//!
//! They stand behind a trait so that a model file system, which keeps volatile and durable state
//! apart, can run the whole protocol and crash it between any two calls. Every call takes a path:
//! a worker whose directory was renamed away by a reaper gets `ENOENT`, which is how it is fenced.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What a directory entry is, without following links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link: refused everywhere in a work directory.
    Symlink,
    /// A socket, pipe or device: refused as well.
    Other,
}

/// What a look at one path tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Inode number: two names of one file share it.
    pub inode: u64,
    /// The device it lies on.
    pub device: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Time of the last change of the entry itself, a move included, in nanoseconds since 1970.
    pub ctime_ns: i128,
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes an ordinary user may still write.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
    /// Free inodes; zero total inodes means the file system does not count them.
    pub free_inodes: Option<u64>,
}

/// A file of a parcel opened for reading.
pub trait Source: Read + Seek + Send {}
impl<Any: Read + Seek + Send> Source for Any {}

/// A file being written.
pub trait Sink: Write + Send {}
impl<Any: Write + Send> Sink for Any {}

/// A held lease; dropping it, or dying, lets go of it.
pub trait Lease: Send {}
impl Lease for File {}

/// The calls the protocol is made of.
pub trait Fs: Send + Sync + 'static {
    /// Makes a directory; its parent must exist.
    fn mkdir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &Path) -> io::Result<()>;
    /// Removes one name of a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Moves a file or directory in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name; fails when the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Opens a file to write at its end, creating it if need be.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Opens a file for reading, refusing symbolic links.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Source>>;
    /// Looks at a path without following links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Calls `visit` for each entry, in the order the directory gives them, without a stat.
    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, Kind) -> ControlFlow<()>,
    ) -> io::Result<()>;
    /// Makes a file's bytes durable.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the file system of `path` durable: one call for a large group.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Moves a file's modification time forward: a heartbeat.
    fn touch(&self, path: &Path) -> io::Result<()>;
    /// Takes the lock of a file for the life of the returned value; `None` when another holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>>;
    /// Tells the room left on the file system of `path`.
    fn room(&self, path: &Path) -> io::Result<Room>;

    /// Writes a small file that must not exist yet.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(bytes)?;
        file.flush()
    }

    /// Writes a small file again in place, so that it can be done on a full disk.
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        gone(self.unlink(path))?;
        self.write_new(path, bytes)
    }

    /// Reads a small file whole, up to `limit` bytes.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {limit} bytes"),
            ));
        }
        Ok(bytes)
    }

    /// Lists a directory's names with their kinds.
    fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        self.visit(dir, &mut |name, kind| {
            entries.push((name.to_owned(), kind));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Tells whether something is there. A disk that fails is an error, not an absence.
    fn is_there(&self, path: &Path) -> io::Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Makes a directory unless it is there, and says whether it was made.
    fn ensure_dir(&self, path: &Path) -> io::Result<bool> {
        match self.mkdir(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes a file or a whole tree; what is already gone is no error.
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let kind = match self.stat(path) {
            Ok(stat) => stat.kind,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        if kind == Kind::Dir {
            for (name, _) in self.list(path)? {
                self.remove_tree(&path.join(name))?;
            }
            return gone(self.rmdir(path));
        }
        gone(self.unlink(path))
    }
}

/// Takes "not there" for done.
pub(crate) fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Tells whether a rename failed because something lies at its target: another parcel, or a file
/// or link that is no parcel.
pub(crate) fn is_taken(fs: &dyn Fs, error: &io::Error, target: &Path) -> bool {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => true,
        // What XFS says of a directory that is not empty.
        io::ErrorKind::AlreadyExists => true,
        // Said of the target, or of a directory on the way to it.
        io::ErrorKind::NotADirectory => fs.stat(target).is_ok_and(|stat| stat.kind != Kind::Dir),
        _ => false,
    }
}

/// The machine's own file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that moves and removes"
)]
impl Fs for RealFs {
    fn mkdir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn rmdir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(file))
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.open(path)?.write_all(bytes)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Source>> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Box::new(File::from(fd)))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Stat {
            kind: kind_of(meta.file_type()),
            inode: meta.ino(),
            device: meta.dev(),
            bytes: meta.len(),
            mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            ctime_ns: i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec()),
        })
    }

    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, Kind) -> ControlFlow<()>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = kind_of(entry.file_type()?);
            if visit(&entry.file_name(), kind).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // Opened for reading: a file that somebody else dropped need not be ours to write.
        File::open(path)?.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>> {
        let file = File::options().read(true).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        let s = rustix::fs::statvfs(path)?;
        Ok(Room {
            free: s.f_bavail * s.f_frsize,
            total: s.f_blocks * s.f_frsize,
            free_inodes: (s.f_files > 0).then_some(s.f_favail),
        })
    }
}

fn kind_of(kind: fs::FileType) -> Kind {
    if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Dir
    } else if kind.is_symlink() {
        Kind::Symlink
    } else {
        debug_assert!(
            kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
        );
        Kind::Other
    }
}
