//! The few file-system calls the protocol is made of.
//!
//! They stand behind a trait so that a model file system, which keeps volatile and durable state
//! apart, can run the whole protocol and crash it between any two calls. Every call takes a path:
//! a worker whose directory was renamed away by a reaper gets `ENOENT`, which is how it is fenced.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

/// Above so many files and directories one `syncfs` costs less than an `fsync` of each.
pub(crate) const SYNC_ALL_ABOVE: usize = 8;

/// What a directory entry is, without following links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
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
    pub kind: FileKind,
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
pub trait SeekRead: Read + Seek + Send {}
impl<Any: Read + Seek + Send> SeekRead for Any {}

/// A file being written.
pub trait Sink: Write + Send {}
impl<Any: Write + Send> Sink for Any {}

/// A directory opened to look inside, its path walked once.
///
/// For looking only: whoever changes something goes by path, or a worker taken for dead would not
/// be fenced.
pub trait Inside {
    /// Reads a small file whole, up to `limit` bytes, refusing symbolic links.
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>>;
    /// Calls `visit` for each name in a directory that lies inside.
    fn visit(&self, name: &str, visit: &mut dyn FnMut(&OsStr)) -> io::Result<()>;
    /// Tells whether something of that name is there.
    fn is_there(&self, name: &str) -> io::Result<bool>;
}

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
    /// Cuts a file off after so many bytes.
    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()>;
    /// Opens a file for reading, refusing symbolic links.
    fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>>;
    /// Looks at a path without following links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Calls `visit` for each entry, in the order the directory gives them, without a stat.
    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
    ) -> io::Result<()>;
    /// Opens a directory to look inside; anything else, a link to one too, is `NotADirectory`.
    fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>>;
    /// Makes a file's bytes durable.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of directories of one file system durable, given in the order in which
    /// they were last changed.
    fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()>;
    /// Makes everything on the file system of `path` durable: one call for a large group.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Moves a file's modification time forward: a heartbeat.
    fn touch(&self, path: &Path) -> io::Result<()>;
    /// Takes the lock of a file for the life of the returned value; `None` when another holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>>;
    /// Tells the room left on the file system of `path`.
    fn room(&self, path: &Path) -> io::Result<Room>;
    /// Tells whether the file system of `path` is known to be used by one machine at a time, which
    /// then knows of every lock.
    fn is_one_machines(&self, path: &Path) -> bool;

    /// Tells how many names a file has, where that can be told.
    fn link_count(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Writes a small file that must not exist yet.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(bytes)?;
        file.flush()
    }

    /// Writes a small file that must not exist yet, and makes its bytes durable.
    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_new(path, bytes)?;
        self.sync_file(path)
    }

    /// Writes a small file again in place, so that it can be done on a full disk.
    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        gone(self.unlink(path))?;
        self.write_new(path, bytes)
    }

    /// Reads a small file whole, up to `limit` bytes.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        read_whole(self.open(path)?, limit)
    }

    /// Lists a directory's names with their kinds.
    fn list(&self, dir: &Path) -> io::Result<Vec<(OsString, FileKind)>> {
        let mut entries = Vec::new();
        self.visit(dir, &mut |name, kind| {
            entries.push((name.to_owned(), kind));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Tells whether something is there. A disk that fails is an error, not an absence.
    fn is_there(&self, path: &Path) -> io::Result<bool> {
        Ok(if_there(self.stat(path))?.is_some())
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
        let Some(stat) = if_there(self.stat(path))? else {
            return Ok(());
        };
        if stat.kind == FileKind::Dir {
            for (name, _) in self.list(path)? {
                self.remove_tree(&path.join(name))?;
            }
            return gone(self.rmdir(path));
        }
        gone(self.unlink(path))
    }
}

fn read_whole(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    // Room for a manifest or a receipt, or it would be read in ever larger pieces.
    let mut bytes = Vec::with_capacity(4096);
    source.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

/// Looks inside a directory with calls by path: for a file system without handles.
pub struct InsideByPath<'fs> {
    fs: &'fs dyn Fs,
    dir: &'fs Path,
}

impl<'fs> InsideByPath<'fs> {
    /// Looks at the directory.
    pub fn open(fs: &'fs dyn Fs, dir: &'fs Path) -> io::Result<Self> {
        check_dir(fs, dir)?;
        Ok(Self { fs, dir })
    }
}

fn check_dir(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    match fs.stat(dir)?.kind {
        FileKind::Dir => Ok(()),
        FileKind::File | FileKind::Symlink | FileKind::Other => {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }
}

impl Inside for InsideByPath<'_> {
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        self.fs.read(&self.dir.join(name), limit)
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        let dir = self.dir.join(name);
        check_dir(self.fs, &dir)?;
        self.fs.visit(&dir, &mut |name, _| {
            visit(name);
            ControlFlow::Continue(())
        })
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        self.fs.is_there(&self.dir.join(name))
    }
}

/// Takes "not there" for an answer.
pub(crate) fn if_there<Found>(result: io::Result<Found>) -> io::Result<Option<Found>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Takes "not there" for done.
pub(crate) fn gone(result: io::Result<()>) -> io::Result<()> {
    if_there(result).map(|_| ())
}

/// Tells whether a rename failed because something lies at its target: another parcel, or a file
/// or link that is no parcel.
pub(crate) fn is_taken(fs: &dyn Fs, error: &io::Error, target: &Path) -> bool {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => true,
        // What XFS says of a directory that is not empty.
        io::ErrorKind::AlreadyExists => true,
        // Said of the target, or of a directory on the way to it.
        io::ErrorKind::NotADirectory => {
            fs.stat(target).is_ok_and(|stat| stat.kind != FileKind::Dir)
        }
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

    fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(Some(fs::symlink_metadata(path)?.nlink()))
    }

    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
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

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.set_len(bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>> {
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
        visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
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

    fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        Ok(Box::new(InsideByHandle { dir }))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        // Opened for reading: a file that somebody else dropped need not be ours to write.
        File::open(path)?.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()> {
        let Some(last) = dirs.last() else {
            return Ok(());
        };
        let handle = File::open(last)?;
        // Their journals keep the order of changes: once the last is durable, all before it are.
        if dirs.len() == 1 || keeps_order(&handle)? {
            return handle.sync_all();
        }
        if dirs.len() > SYNC_ALL_ABOVE {
            return Ok(rustix::fs::syncfs(handle)?);
        }
        dirs.iter().try_for_each(|dir| self.sync_dir(dir))
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
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

    fn is_one_machines(&self, path: &Path) -> bool {
        const LOCAL: [u64; 7] = [
            0xef53,      // ext4
            0x5846_5342, // XFS
            0x9123_683e, // btrfs
            0x2fc1_2fc1, // ZFS
            0xf2f5_2010, // F2FS
            0x0102_1994, // tmpfs
            0x794c_7630, // overlay, whose upper layer lies on one of these
        ];
        rustix::fs::statfs(path)
            .is_ok_and(|stat| LOCAL.contains(&((stat.f_type as u64) & 0xffff_ffff)))
    }
}

struct InsideByHandle {
    dir: OwnedFd,
}

impl InsideByHandle {
    fn open(&self, name: &str, also: OFlags) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | also;
        // A look that is noted in the inode is one more block in the next commit.
        match openat(&self.dir, name, flags | OFlags::NOATIME, Mode::empty()) {
            // Somebody else's file: only its owner may look unnoticed.
            Err(Errno::PERM) => Ok(openat(&self.dir, name, flags, Mode::empty())?),
            other => Ok(other?),
        }
    }
}

impl Inside for InsideByHandle {
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        read_whole(File::from(self.open(name, OFlags::NONBLOCK)?), limit)
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        let dir = self.open(name, OFlags::DIRECTORY)?;
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                visit(OsStr::from_bytes(name));
            }
        }
        Ok(())
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        match statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// Tells whether a file system is known to make directory changes durable in their order, so that
/// an fsync of the directory changed last is one of all.
fn keeps_order(handle: &File) -> io::Result<bool> {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    let kind = rustix::fs::fstatfs(handle)?.f_type;
    Ok(matches!(kind, EXT4 | XFS))
}

fn kind_of(kind: fs::FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Dir
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        debug_assert!(
            kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
        );
        FileKind::Other
    }
}
