//! The one way to build a parcel: in a directory that nobody scans, its files hashed, its manifest last.
//!
//! A stage builds one in its outbox, and the commit hands it over. What comes from outside is built by [`WorkTree::put`]:
//! a file that somebody gives, and a small one that stands for something elsewhere. A dropped file is moved, not written:
//! adoption builds around it.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, RealFs, SeekRead, Sink, if_there};
use crate::name::{ParcelEntry, ParcelId, hex, is_payload_name};
use crate::parcel::{FileEntry, HISTORY, MANIFEST, ParcelManifest, given_mark};
use crate::place::Placed;
use crate::tree::{StageDir, WorkTree};
use crate::worker::Signs;

/// How much is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A parcel under construction.
pub struct NewParcel {
    fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) manifest: ParcelManifest,
    signs: Signs,
}

impl NewParcel {
    /// Makes the directory of a parcel without files.
    pub(crate) fn make(
        fs: &Arc<dyn Fs>,
        dir: PathBuf,
        manifest: ParcelManifest,
        signs: &Signs,
    ) -> Result<Self> {
        fs.mkdir(&dir).at("make", &dir)?;
        Ok(Self::at(fs, dir, manifest, signs))
    }

    /// Makes a parcel without files in a directory of an engine that keeps its parcels elsewhere.
    ///
    /// # Errors
    /// When the directory is there or cannot be made.
    pub fn draft(dir: PathBuf, id: &ParcelId, kind: &str, random: u64) -> Result<Self> {
        let manifest = ParcelManifest::new(id.clone(), kind, given_mark(random));
        Self::make(
            &(Arc::new(RealFs) as Arc<dyn Fs>),
            dir,
            manifest,
            &Signs::default(),
        )
    }

    /// Returns where its files lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Goes on with a parcel whose directory is there.
    pub(crate) fn at(
        fs: &Arc<dyn Fs>,
        dir: PathBuf,
        manifest: ParcelManifest,
        signs: &Signs,
    ) -> Self {
        Self {
            fs: Arc::clone(fs),
            dir,
            manifest,
            signs: signs.clone(),
        }
    }

    /// Returns its manifest, to set harvest, job and the like.
    pub fn manifest(&mut self) -> &mut ParcelManifest {
        &mut self.manifest
    }

    /// Starts a file; see [`NewParcel::add`].
    pub fn create(&mut self, name: &str) -> Result<OutFile> {
        check_payload_name(name)?;
        OutFile::create(&*self.fs, &self.dir, name, self.signs.clone())
    }

    /// Adds a finished file.
    pub fn add(&mut self, file: OutFile) -> Result<()> {
        self.manifest.put(file.finish()?);
        Ok(())
    }

    /// Adds a small file.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut file = self.create(name)?;
        file.write_all(bytes).at("write", &self.dir.join(name))?;
        self.add(file)
    }

    /// Adds a plain file from outside: linked where the file system allows it, else copied; hashed
    /// in either case. Tells whether it was linked.
    ///
    /// # Errors
    /// When it is not a plain file, or cannot be read.
    pub fn bring(&mut self, from: &Path, name: &str) -> Result<bool> {
        self.bring_seen(from, name, &mut |_| {})
    }

    /// The same, and shows every piece of it, so that another digest costs no second read.
    ///
    /// # Errors
    /// As [`NewParcel::bring`].
    pub fn bring_seen(
        &mut self,
        from: &Path,
        name: &str,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        check_payload_name(name)?;
        let to = self.dir.join(name);
        if self.fs.link(from, &to).is_ok() {
            let (bytes, sha256) = hash_seen(&*self.fs, &to, &self.signs, see).at("read", from)?;
            self.enter(name, bytes, sha256);
            return Ok(true);
        }
        // Another file system, or one without links: whatever else is wrong shows in the copy.
        let source = self.fs.open(from).at("open", from)?;
        self.copy(Shown { source, see }, from, name)?;
        Ok(false)
    }

    /// Adds a copy of what `source` reads.
    pub(crate) fn copy(&mut self, mut source: impl Read, from: &Path, name: &str) -> Result<()> {
        let mut file = self.create(name)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = match source.read(&mut buffer) {
                Ok(0) => return self.add(file),
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e).at("read", from),
            };
            file.write_all(&buffer[..read])
                .at("write", &self.dir.join(name))?;
        }
    }

    /// Enters a file that lies at `path` as one of its own.
    pub(crate) fn describe(&mut self, path: &Path, name: &str) -> Result<()> {
        let (bytes, sha256) = hash(&*self.fs, path, &self.signs).at("read", path)?;
        self.enter(name, bytes, sha256);
        Ok(())
    }

    fn enter(&mut self, name: &str, bytes: u64, sha256: String) {
        self.manifest.put(FileEntry {
            name: name.to_owned(),
            bytes,
            sha256,
        });
    }

    /// Names the parcel after its only file, which came as `name`: that may be anything a file system allows.
    pub(crate) fn name_after(&mut self, name: &OsStr) {
        let file = &self.manifest.files[0];
        self.manifest.id = ParcelId::for_file(name, &file.sha256);
        if name != file.name.as_str() {
            self.manifest.original = Some(name.as_bytes().escape_ascii().to_string());
        }
    }

    /// Writes the manifest, and gives it the history of the parcel it came from.
    pub(crate) fn seal(&self, parent_history: Option<&Path>) -> Result<()> {
        let path = self.dir.join(MANIFEST);
        self.fs
            .write_new(&path, &self.manifest.to_bytes())
            .at("write", &path)?;
        let history = self.dir.join(HISTORY);
        self.fs.mkdir(&history).at("make", &history)?;
        if let Some(parent) = parent_history {
            let pages = if_there(self.fs.list(parent)).at("list", parent)?;
            for (name, _) in pages.unwrap_or_default() {
                let to = history.join(&name);
                self.fs.link(&parent.join(&name), &to).at("link", &to)?;
            }
        }
        Ok(())
    }

    /// Makes a sealed parcel durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let files = self.manifest.files.iter().map(|file| file.name.as_str());
        for name in files.chain([MANIFEST]) {
            let path = self.dir.join(name);
            self.fs.sync_file(&path).at("sync", &path)?;
        }
        self.fs.sync_dir(&self.dir).at("sync", &self.dir)
    }
}

impl WorkTree {
    /// Builds a parcel and shows it in the `ready/` of a stage, durably. What fails leaves nothing behind.
    ///
    /// # Errors
    /// [`SpoolError::Waits`] when a parcel of that name waits there.
    pub fn put<Error: From<SpoolError>>(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: impl FnOnce(&mut NewParcel) -> std::result::Result<(), Error>,
    ) -> std::result::Result<ParcelId, Error> {
        let dir = self.init(stage)?;
        let draft = dir.tmp().join(format!("new-{:016x}", (self.dice)()));
        let manifest = ParcelManifest::new(id.clone(), kind, given_mark((self.dice)()));
        let mut parcel = NewParcel::make(&self.fs, draft, manifest, &Signs::default())?;
        let shown = build(&mut parcel).and_then(|()| {
            parcel.seal(None)?;
            parcel.sync()?;
            match self.show(&parcel, &dir)? {
                Placed::There => Ok(()),
                Placed::Taken => Err(SpoolError::Waits {
                    parcel: parcel.manifest.id.clone(),
                    stage: stage.to_owned(),
                }),
                Placed::Gone => {
                    Err(io::Error::from(io::ErrorKind::NotFound)).at("show", &parcel.dir)
                }
            }?;
            Ok(())
        });
        if shown.is_err() {
            let _ = self.fs.remove_tree(&parcel.dir);
        }
        shown.map(|()| parcel.manifest.id)
    }

    /// Shows a durable parcel in the `ready/` of a stage.
    pub(crate) fn show(&self, parcel: &NewParcel, stage: &StageDir) -> Result<Placed> {
        let entry = ParcelEntry::new(&parcel.manifest.id, 0);
        let placed = self.place(&parcel.dir, stage, &self.ready_slot(stage, &entry))?;
        if placed == Placed::There {
            let ready = stage.ready();
            self.fs.sync_dir(&ready).at("sync", &ready)?;
        }
        Ok(placed)
    }
}

/// Reads a file to its end and returns its size and SHA-256.
/// It takes as long as the file is large, so it shows that it goes forward.
pub(crate) fn hash(fs: &dyn Fs, path: &Path, signs: &Signs) -> io::Result<(u64, String)> {
    hash_seen(fs, path, signs, &mut |_| {})
}

/// The same, and shows every piece to somebody who wants more of it.
fn hash_seen(
    fs: &dyn Fs,
    path: &Path,
    signs: &Signs,
    see: &mut dyn FnMut(&[u8]),
) -> io::Result<(u64, String)> {
    let mut file = fs.open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        signs.tick();
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok((bytes, hex(&hash.finalize()))),
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hash.update(&buffer[..read]);
        see(&buffer[..read]);
        bytes += read as u64;
    }
}

/// A source whose bytes are shown as they are read.
struct Shown<'a> {
    source: Box<dyn SeekRead>,
    see: &'a mut dyn FnMut(&[u8]),
}

impl Read for Shown<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        (self.see)(&buffer[..read]);
        Ok(read)
    }
}

/// A file under construction: counted and hashed as it is written.
pub struct OutFile {
    sink: BufWriter<Box<dyn Sink>>,
    hash: Sha256,
    entry: FileEntry,
    path: PathBuf,
    signs: Signs,
}

impl OutFile {
    pub(crate) fn create(fs: &dyn Fs, dir: &Path, name: &str, signs: Signs) -> Result<Self> {
        let path = dir.join(name);
        let sink = fs.create(&path).at("create", &path)?;
        Ok(Self {
            sink: BufWriter::with_capacity(64 << 10, sink),
            hash: Sha256::new(),
            entry: FileEntry {
                name: name.to_owned(),
                bytes: 0,
                sha256: String::new(),
            },
            path,
            signs,
        })
    }

    pub(crate) fn finish(mut self) -> Result<FileEntry> {
        self.sink.flush().at("write", &self.path)?;
        self.entry.sha256 = hex(&self.hash.finalize());
        Ok(self.entry)
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.signs.tick();
        let written = self.sink.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.entry.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

pub(crate) fn check_payload_name(name: &str) -> Result<()> {
    if is_payload_name(name) {
        return Ok(());
    }
    Err(SpoolError::Refused(format!(
        "{name:?} cannot name a file in a parcel"
    )))
}
