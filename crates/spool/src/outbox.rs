//! What a stage makes of a parcel, before anybody else can see it.
//!
//! Everything is written under the worker's own `out/`, hashed as it is written. Nothing of it is
//! visible until the receipt is durable; a worker that dies before that leaves only rubbish.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::depths::{WorkerNote, write_note};
use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, RealFs, SeekRead, if_there};
use crate::name::ParcelId;
use crate::new_parcel::{NewParcel, OutFile, check_payload_name};
use crate::parcel::{FileEntry, HISTORY, ParcelManifest, birth_mark, digest};
use crate::receipt::{Receipt, find_in_sheet};
use crate::worker::{Seen, Signs};

/// A claimed parcel, as a stage sees it.
pub struct Parcel {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) manifest: ParcelManifest,
    pub(crate) digest: String,
    pub(crate) attempt: u32,
    pub(crate) claimed: String,
    pub(crate) seen: Seen,
    /// Where its files and receipts come from when they do not lie in its directory.
    pub(crate) source: Option<Arc<dyn ParcelSource>>,
    pub(crate) signs: Signs,
}

/// Where the files and the receipts of a parcel come from that an engine claimed elsewhere.
pub trait ParcelSource: Send + Sync {
    /// Sees to it that a file of the parcel lies at `path`, whole and with the right digest.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] when there is no such file any more, or another one.
    fn fetch(&self, file: &FileEntry, path: &Path) -> Result<()>;

    /// Returns the receipt of a stage that the parcel has passed; the last, where there are several.
    ///
    /// # Errors
    /// When it cannot be read.
    fn receipt_of(&self, stage: &str) -> Result<Option<Receipt>>;

    /// Fails when the parcel is another worker's by now, or what its stage works on another host's.
    ///
    /// # Errors
    /// [`SpoolError::Fenced`]; when that cannot be asked.
    fn must_be_in_hand(&self) -> Result<()> {
        Ok(())
    }
}

impl Parcel {
    /// Returns a parcel that another engine than the directories has claimed. Its files come to lie in `dir` when they are
    /// opened.
    pub fn claimed_elsewhere(
        dir: PathBuf,
        manifest: ParcelManifest,
        attempt: u32,
        claimed: String,
        source: Arc<dyn ParcelSource>,
        signs: &Signs,
    ) -> Self {
        Self {
            fs: Arc::new(RealFs),
            path: dir,
            digest: digest(&manifest.to_bytes()),
            manifest,
            attempt,
            claimed,
            seen: Seen::default(),
            source: Some(source),
            signs: signs.clone(),
        }
    }

    /// Fails when this worker was taken for dead: asked just before something is shown that cannot be taken back.
    ///
    /// # Errors
    /// The parcel is no longer where it was claimed, or another host owns what the stage works on.
    pub fn must_be_in_hand(&self) -> Result<()> {
        if let Some(source) = &self.source {
            return source.must_be_in_hand();
        }
        match self.manifest.files.first() {
            Some(file) => self.open(&file.name).map(drop),
            None => Ok(()),
        }
    }

    /// Returns its name.
    pub fn id(&self) -> &ParcelId {
        &self.manifest.id
    }

    /// Returns what `parcel.json` says of it.
    pub fn manifest(&self) -> &ParcelManifest {
        &self.manifest
    }

    /// Returns which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Opens one of its files for reading.
    pub fn open(&self, name: &str) -> Result<Box<dyn SeekRead>> {
        let Some(file) = self.manifest.file(name) else {
            return Err(self.damaged(format!("it has no file {name:?}")));
        };
        let path = self.path.join(name);
        if let Some(source) = &self.source {
            source.fetch(file, &path)?;
        }
        match self.fs.open(&path) {
            Ok(source) => Ok(Box::new(Ticking::new(source, &self.signs))),
            Err(e) if is_at_fault(&e) => Err(self.damaged(format!("cannot open {name}: {e}"))),
            Err(e) => Err(e).at("open", &path),
        }
    }

    /// Returns the only file of the parcel.
    pub fn only_file(&self) -> Result<&FileEntry> {
        match self.manifest.files.as_slice() {
            [file] => Ok(file),
            files => Err(self.damaged(format!("expected one file, found {}", files.len()))),
        }
    }

    /// Returns the receipt of a stage that it has passed, on whatever machine; the last, where there are several.
    ///
    /// # Errors
    /// When its history cannot be read.
    pub fn receipt_of(&self, stage: &str) -> Result<Option<Receipt>> {
        if let Some(source) = &self.source {
            return source.receipt_of(stage);
        }
        let dir = self.path.join(HISTORY);
        let listed = if_there(self.fs.list(&dir)).at("list", &dir)?;
        let names = listed.into_iter().flatten().map(|(name, _)| name);
        let mut pages: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        pages.retain(|name| {
            let of = name.split_once('-').map_or("", |(_, of)| of);
            let of = of.strip_suffix(".json").unwrap_or_default();
            of.split('@').next() == Some(stage)
        });
        pages.sort();
        let Some(page) = pages.pop() else {
            return Ok(None);
        };
        let path = dir.join(page);
        let bytes = self.fs.read(&path, 1 << 30).at("read", &path)?;
        Ok(find_in_sheet(&bytes, self.id()).map(|filed| filed.receipt))
    }

    fn damaged(&self, reason: String) -> SpoolError {
        SpoolError::Damaged {
            parcel: self.manifest.id.clone(),
            reason,
        }
    }
}

/// A source that tells the watchdog of every read.
pub(crate) struct Ticking {
    source: Box<dyn SeekRead>,
    signs: Signs,
}

impl Ticking {
    pub(crate) fn new(source: Box<dyn SeekRead>, signs: &Signs) -> Self {
        Self {
            source,
            signs: signs.clone(),
        }
    }
}

impl io::Read for Ticking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.signs.tick();
        self.source.read(buffer)
    }
}

impl io::Seek for Ticking {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}

/// Returns the name of the work on these parcels.
pub fn work_id(stage: &str, parcels: &[Parcel]) -> ParcelId {
    match parcels {
        [one] => one.id().clone(),
        many => {
            let members: Vec<ParcelId> = many.iter().map(|p| p.id().clone()).collect();
            ParcelId::of_batch(stage, &members)
        }
    }
}

/// Missing, a symbolic link, not a file or far too large: the parcel's fault, not the machine's.
pub(crate) fn is_at_fault(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::FileTooLarge
    ) || e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// What becomes of the parcel once the work is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    PassOn(String),
    Consume,
}

/// What a stage makes of one piece of work.
pub struct Outbox {
    fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) made: bool,
    stage: String,
    work: ParcelId,
    pub(crate) parent_born: String,
    next: Option<String>,
    pub(crate) outputs: Vec<(NewParcel, String)>,
    pub(crate) attached: Vec<FileEntry>,
    pub(crate) detached: Vec<String>,
    pub(crate) choice: Choice,
    pub(crate) facts: serde_json::Map<String, Value>,
    pub(crate) signs: Signs,
    said: AtomicBool,
}

/// The directory of files to attach; no parcel id starts with `+.`.
pub(crate) const ATTACHED: &str = ".attached";
/// The manifest a passing parcel leaves with.
pub(crate) const NEW_MANIFEST: &str = ".parcel.json";

impl Outbox {
    /// Returns an empty outbox for one parcel, or for a batch, whose outputs lie below `out`.
    pub(crate) fn for_work(
        fs: &Arc<dyn Fs>,
        out: &Path,
        stage: &str,
        parcels: &[Parcel],
        next: &[String],
        signs: &Signs,
    ) -> Self {
        let work = work_id(stage, parcels);
        let born = match parcels {
            [one] => one.manifest.born.clone(),
            _ => work.to_string(),
        };
        let next = next.first().cloned();
        let mut outbox = Self::new(Arc::clone(fs), out, stage, work, born, next);
        outbox.signs = signs.clone();
        if parcels.len() != 1 {
            outbox.consume();
        }
        outbox
    }

    /// The same for an engine that keeps its parcels elsewhere: what is made lies below `out` until it is committed.
    pub fn elsewhere(
        out: &Path,
        stage: &str,
        parcels: &[Parcel],
        next: &[String],
        signs: &Signs,
    ) -> Self {
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        Self::for_work(&fs, out, stage, parcels, next, signs)
    }

    /// Returns the new parcels: where each lies, what it is, and where it goes.
    pub fn outputs(&self) -> impl Iterator<Item = (&Path, &ParcelManifest, &str)> {
        let outputs = self.outputs.iter();
        outputs.map(|(parcel, to)| (parcel.dir.as_path(), &parcel.manifest, to.as_str()))
    }

    /// Returns the files that the parcel takes along, and where each lies.
    pub fn attached(&self) -> impl Iterator<Item = (PathBuf, &FileEntry)> {
        let dir = self.dir.join(ATTACHED);
        self.attached
            .iter()
            .map(move |file| (dir.join(&file.name), file))
    }

    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        out: &Path,
        stage: &str,
        work: ParcelId,
        parent_born: String,
        next: Option<String>,
    ) -> Self {
        let choice = next.clone().map_or(Choice::Consume, Choice::PassOn);
        Self {
            fs,
            dir: out.join(work.as_str()),
            made: false,
            stage: stage.to_owned(),
            work,
            parent_born,
            next,
            outputs: Vec::new(),
            attached: Vec::new(),
            detached: Vec::new(),
            choice,
            facts: serde_json::Map::new(),
            signs: Signs::default(),
            said: AtomicBool::new(false),
        }
    }

    /// Tells whether the stage was asked to stop: long work should then be given back.
    pub fn stop_asked(&self) -> bool {
        self.signs.stop_asked()
    }

    /// Says that work goes forward, where it neither reads nor writes for long.
    pub fn tick(&self) {
        self.signs.tick();
    }

    /// Returns what says both of these, for whoever reads and writes on behalf of the stage.
    pub fn signs(&self) -> &Signs {
        &self.signs
    }

    /// Says how far long work is, for `status`. Best effort, and not for every step: it is written to disk.
    pub fn say(&self, how_far: &str) {
        let work = self.dir.file_name().unwrap_or_default();
        if let Some(home) = self.dir.parent().and_then(Path::parent) {
            let note = WorkerNote {
                state: "working".to_owned(),
                why: how_far.to_owned(),
                parcel: work.to_string_lossy().into_owned(),
                since: 0,
            };
            write_note(&*self.fs, home, &note);
            self.said.store(true, Ordering::Relaxed);
        }
    }

    /// Tells whether the stage said how far it is.
    pub fn has_said(&self) -> bool {
        self.said.load(Ordering::Relaxed)
    }

    /// Starts a file that the parcel will carry on with it; see [`Outbox::attach`].
    pub fn create(&mut self, name: &str) -> Result<OutFile> {
        check_payload_name(name)?;
        let dir = self.dir.join(ATTACHED);
        self.make_dir()?;
        self.fs.ensure_dir(&dir).at("make", &dir)?;
        let file = OutFile::create(&*self.fs, &dir, name, self.signs.clone())?;
        Ok(file)
    }

    /// Adds a finished file to the parcel, in place of one of that name.
    pub fn attach(&mut self, file: OutFile) -> Result<&FileEntry> {
        self.attached.push(file.finish()?);
        Ok(self.attached.last().expect("pushed on the line before"))
    }

    /// Takes a file out of the parcel.
    pub fn detach(&mut self, name: &str) {
        self.detached.push(name.to_owned());
    }

    /// Starts a new parcel; see [`Outbox::emit`].
    pub fn parcel(&mut self, id: ParcelId, kind: &str) -> Result<NewParcel> {
        if self
            .outputs
            .iter()
            .any(|(output, _)| output.manifest.id == id)
        {
            return Err(SpoolError::Refused(format!("two outputs are named {id}")));
        }
        self.make_dir()?;
        let born = birth_mark(&self.stage, &self.work, &self.parent_born, &id);
        let dir = self.dir.join(id.as_str());
        let manifest = ParcelManifest::new(id, kind, born);
        NewParcel::make(&self.fs, dir, manifest, &self.signs)
    }

    /// Sends a finished parcel to the next stage.
    pub fn emit(&mut self, parcel: NewParcel) -> Result<()> {
        let Some(next) = self.next.clone() else {
            return Err(SpoolError::Refused(format!(
                "stage {} has no next stage to send {} to",
                self.stage, parcel.manifest.id
            )));
        };
        self.emit_to(parcel, &next);
        Ok(())
    }

    /// Sends a finished parcel to another stage.
    pub fn emit_to(&mut self, parcel: NewParcel, stage: &str) {
        self.outputs.push((parcel, stage.to_owned()));
    }

    /// Removes the parcel once the work is committed.
    pub fn consume(&mut self) {
        self.choice = Choice::Consume;
    }

    /// Writes something the stage learned into the receipt.
    pub fn fact(&mut self, key: &str, value: impl Into<Value>) {
        self.facts.insert(key.to_owned(), value.into());
    }

    /// Removes everything in it: the work was refused.
    pub fn discard(self) -> Result<()> {
        if self.made {
            self.fs.remove_tree(&self.dir).at("remove", &self.dir)?;
        }
        Ok(())
    }

    fn make_dir(&mut self) -> Result<()> {
        if !self.made {
            // What a refused batch left behind under this name is nobody's.
            self.fs.remove_tree(&self.dir).at("remove", &self.dir)?;
            self.fs.mkdir(&self.dir).at("make", &self.dir)?;
            self.made = true;
        }
        Ok(())
    }
}
