//! Packs the files of a finished job into one preservation package.
//!
//! * **Reads** the manifest, the receipts of the job's files, the packing list in its metadata file, and a stored copy whose
//!   digest is not fresh or whose SHA-512 is not known.
//! * **Writes** a package, or several parts of one: a BagIt bag that holds a CSIP package, as its profile has it; its row in
//!   the manifest; and a parcel of kind `package` for the next stage, if there is one. With a storage root, the package as
//!   an OCFL object too, and the receipts of a package that was handed over as the next version of that.
//! * **Never** packs a file that is not stored, backed up and in the index with the digest taken at ingest, replaces a
//!   package, or writes outside its directory, whatever a job or a file is called.
//! * **Defers** a job whose files are still on their way, and while a disk is missing. **Holds** a job whose files and list
//!   disagree, with both sides, and one that has no list and that nobody has closed.
//!   A file that comes after its job was packed goes into a supplement, if a list of the job has it; otherwise the supplement
//!   is held until the job is closed once more.
//! * **Again**: the same job gives the same bytes; a package that is there is left as it is.

mod ark;
mod building;
mod events;
mod facts;
mod finished_job;
mod gather;
mod history;
mod ocfl;
mod profile;
mod receipts;
mod repairing;
mod rows;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ecluse_bag::{InfoField, SOFTWARE};
use ecluse_config::{Bytes, Span};
use ecluse_holding::{Fixity, Going, ReadFault, open_plain, read_both};
use ecluse_manifest::{FileState, JobFile, Manifest, PackageRow};
use ecluse_ocfl::{NewVersion, VersionNote};
use ecluse_stage::{Failure, Home, Inbox, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ark::Minter;
use crate::building::{PackageDirectory, PackageDraft, Packed};
use crate::events::events_of;
use crate::facts::{
    FileFacts, HarvestFacts, JobFacts, PackageFacts, PartFacts, Totals, name_of, uri_of,
};
use crate::gather::{GatheredFile, GatheredJob, gather};
use crate::history::{Deed, FileHistory, FileReceipts};
use crate::ocfl::NewObject;
use crate::profile::Profile;
use crate::receipts::HandedOver;

pub use crate::ark::{Ark, CheckZone};
pub use crate::building::adopt;
pub use crate::finished_job::{FILE, FinishedJob, JobClosing, KIND};
pub use crate::profile::escape as escape_xml;
pub use crate::repairing::{put_right, set_aside};
pub use crate::rows::{PackageHeading, PackageRows, PackedRow, ROWS, RowsError};

/// What `[stage.package]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Which documents a package has: `eark`, or a directory of templates.
    pub profile: String,
    /// How large the archive files of one part may be together.
    pub part_bytes: Bytes,
    /// How many archive files one part may have.
    pub part_files: NonZeroUsize,
    /// When a file may be packed.
    pub when: PackWhen,
    /// How old the last read of a stored copy may be for it to be packed unread.
    pub fresh: Span,
    /// Where the files come from, as the package says.
    pub channel: String,
    /// Whose identifiers are minted.
    pub naan: String,
    /// What the names of minted identifiers begin with.
    pub shoulder: String,
    /// What their check character is computed over.
    pub check_zone: CheckZone,
    /// A directory that is, or becomes, an OCFL storage root: each package is an object there too. Empty for none.
    pub ocfl: PathBuf,
}

/// When a file may be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackWhen {
    /// It is in the index, and its working copy is gone.
    Published,
    /// It is stored and backed up: for a chain that keeps working copies until the repository has given receipts.
    BackedUp,
}

impl PackWhen {
    /// Tells whether a package tells of a deed: of none that comes after it.
    fn covers(self, deed: Deed) -> bool {
        match self {
            Self::Published => true,
            Self::BackedUp => deed != Deed::Deletion,
        }
    }

    fn state(self) -> FileState {
        match self {
            Self::Published => FileState::Published,
            Self::BackedUp => FileState::BackedUp,
        }
    }
}

/// The stage.
pub struct Package {
    settings: Settings,
    home: Home,
    manifest: Manifest,
    profile: Profile,
    minter: Minter,
    /// Jobs whose metadata was in the index before this have been seen.
    since: String,
    looked_whole: Option<Instant>,
    /// Packages that were handed over before this have been seen.
    receipts_since: String,
}

/// So many jobs are looked at in one go.
const JOBS: usize = 10_000;
/// How often every job is looked at, and not only those since the last look.
const LOOK_WHOLE: Duration = Duration::from_secs(3600);
/// How far back a look goes: clocks of several hosts wrote the times.
const MARGIN: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

impl Stage for Package {
    const NAME: &'static str = "package";
    const ABOUT: &'static str = "Packs the files of a finished job into one preservation package";
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.directory("archive.packages", &home.archive.packages);
        if let Err(why) = Profile::load(&settings.profile, &home.root) {
            check.error("stage.package.profile", why);
        }
        let example = format!("ark:/{}/{}x", settings.naan, settings.shoulder);
        if Ark::parse(&example).is_none() {
            let message = format_args!("{example} is no ARK");
            check.error("stage.package.naan", message);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let profile = Profile::load(&settings.profile, &home.root).map_err(Failure::config)?;
        Ok(Self {
            manifest: Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?,
            minter: Minter {
                naan: settings.naan.clone(),
                shoulder: settings.shoulder.clone(),
                zone: settings.check_zone,
            },
            home: home.clone(),
            profile,
            settings,
            since: String::new(),
            looked_whole: None,
            receipts_since: String::new(),
        })
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        // Stored files are linked into a package, which cannot be done from another mount.
        let mut paths = vec![home.packages(), home.manifest_directory()];
        let stored = home.archive.repository.iter();
        paths.extend(stored.map(|location| home.path(&location.path)));
        if !settings.ocfl.as_os_str().is_empty() {
            paths.push(home.path(&settings.ocfl));
        }
        paths
    }

    /// Asks for a package of each job whose metadata file is in the index.
    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        let is_due = self
            .looked_whole
            .is_none_or(|at| at.elapsed() >= LOOK_WHOLE);
        if is_due {
            self.since.clear();
            self.receipts_since.clear();
        }
        self.collect_receipts(inbox)?;
        let state = self.settings.when.state();
        let finished = self.manifest.finished_jobs(state, &self.since, JOBS);
        let finished = finished.map_err(Failure::halt)?;
        let late = self.manifest.late_jobs(state, &self.since, JOBS);
        let late = late.map_err(Failure::halt)?;
        let times = finished.iter().chain(&late);
        let last = times
            .filter_map(|(_, at)| at.parse::<Timestamp>().ok())
            .max();
        for (name, _) in finished.iter().chain(&late) {
            let packages = self.manifest.packages_of_job(name).map_err(Failure::halt)?;
            let job = FinishedJob::next_of(name, &packages);
            inbox.put(&job.parcel_id(), KIND, (FILE, &job.to_bytes()))?;
        }
        if finished.len() < JOBS && late.len() < JOBS {
            if is_due {
                self.looked_whole = Some(Instant::now());
            }
            if let Some(since) = last.and_then(before) {
                self.since = since;
            }
        }
        Ok(0)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        if parcel.manifest().kind == receipts::KIND {
            return self.keep_receipts(&HandedOver::read(parcel)?, outbox);
        }
        let finished = FinishedJob::read(parcel)?;
        let parts = match self.packed_before(&finished)? {
            Some(parts) => parts,
            None => {
                let job = gather(&self.manifest, &finished, self.settings.when.state())?;
                let parts = self.pack(&finished, &job, outbox)?;
                self.manifest.packaged(&parts).map_err(Failure::halt)?;
                parts
            }
        };
        outbox.fact("job", finished.job.as_str());
        outbox.fact("harvest", finished.harvest.as_deref());
        // Whoever has to make a lost package again asks for it.
        let closed = serde_json::to_value(&finished.closed).map_err(Failure::halt)?;
        outbox.fact("closed", closed);
        let parts = parts.into_iter().map(|(row, names)| {
            let mut part = serde_json::to_value(row)?;
            part["names"] = names.into();
            Ok(part)
        });
        let parts: serde_json::Result<serde_json::Value> = parts.collect();
        let parts = parts.map_err(Failure::halt)?;
        if !self.home.next.is_empty() {
            let id = ParcelId::try_from(format!("{}.package", parcel.id()));
            let mut package = outbox.parcel(id.map_err(Failure::halt)?, "package")?;
            package.manifest().job = Some(finished.job.clone());
            package.manifest().harvest.clone_from(&finished.harvest);
            let mut file = package.create("package.json")?;
            serde_json::to_writer_pretty(&mut file, &parts).map_err(Failure::halt)?;
            package.add(file)?;
            outbox.emit(package)?;
        }
        outbox.fact("parts", parts);
        Ok(())
    }
}

/// A document that was written, as the templates after it see it.
#[derive(Debug, Serialize)]
struct MadeDocument {
    path: String,
    href: String,
    bytes: u64,
    sha256: String,
    sha512: String,
    media_type: String,
}

/// A part, with the names of its archive files.
type PackedPart = (PackageRow, Vec<String>);

impl Package {
    /// Asks for a version of its object for each package that was handed over.
    fn collect_receipts(&mut self, inbox: &mut Inbox<'_>) -> Result<(), Failure> {
        if self.settings.ocfl.as_os_str().is_empty() {
            return Ok(());
        }
        let packages = self.manifest.handed_over_since(&self.receipts_since, JOBS);
        let packages = packages.map_err(Failure::halt)?;
        for (row, _) in &packages {
            let order = HandedOver::of(row);
            let bytes = serde_json::to_vec(&order).map_err(Failure::halt)?;
            inbox.put(&order.parcel_id(), receipts::KIND, (receipts::FILE, &bytes))?;
        }
        let last = packages.last().and_then(|(_, at)| at.parse().ok());
        // Where there are more, the next look begins at the last of these.
        let since = match packages.len() < JOBS {
            true => last.and_then(before),
            false => packages.last().map(|(_, at)| at.clone()),
        };
        self.receipts_since = since.unwrap_or_default();
        Ok(())
    }

    /// Writes the receipts of a package into its object.
    fn keep_receipts(&self, order: &HandedOver, outbox: &mut Outbox) -> Result<(), Failure> {
        let row = self.manifest.package(&order.package);
        let row = row.map_err(Failure::halt)?;
        let Some(row) = row.filter(|row| row.sha512 == order.sha512) else {
            // It was made again meanwhile, and is handed over again.
            outbox.fact("replaced", order.package.as_str());
            return Ok(());
        };
        outbox.fact("package", row.package.as_str());
        let files = self.manifest.receipts_of(&row).map_err(Failure::halt)?;
        let (text, last) = receipts::lines(&files)?;
        let version = env!("CARGO_PKG_VERSION");
        let note = VersionNote {
            created: last,
            message: format!("receipts of the repository for package {}", row.package),
            name: format!("ecluse {version}"),
            address: address(&self.home.site.contact),
        };
        let storage = self.home.path(&self.settings.ocfl);
        match ocfl::add_receipts(&storage, &row.ark, text, &note)? {
            Some(NewVersion::Made(version) | NewVersion::Known(version)) => {
                outbox.fact("receipts", files.len() as u64);
                outbox.fact("version", version);
            }
            // It was packed before there was a storage root.
            None => outbox.fact("object", "none"),
        }
        Ok(())
    }

    /// Returns the package if it was made before this worker's predecessor died, and told the manifest.
    fn packed_before(&self, finished: &FinishedJob) -> Result<Option<Vec<PackedPart>>, Failure> {
        if finished.again.is_some() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let rows = self.manifest.packages_of_job(&finished.name());
        for row in rows.map_err(Failure::halt)? {
            if row.supplement == finished.supplement {
                let names = self.manifest.files_of_package(&row.package);
                parts.push((row, names.map_err(Failure::halt)?));
            }
        }
        Ok((!parts.is_empty()).then_some(parts))
    }

    /// Writes the package of a job; returns what is said of each part. Of one that is made again only the part that is asked
    /// for is written.
    fn pack(
        &mut self,
        finished: &FinishedJob,
        job: &GatheredJob,
        outbox: &mut Outbox,
    ) -> Result<Vec<PackedPart>, Failure> {
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let engine = Arc::clone(&self.home.engine);
        let receipts = FileReceipts::of(&*engine)?;
        let (mut files, mut histories) = (Vec::new(), Vec::new());
        for (number, file) in job.files.iter().enumerate() {
            if !going() {
                return Err(Failure::give_back());
            }
            let mut history = self.history_of(&file.file, &receipts)?;
            // Made again later, the package must say the same.
            history
                .steps
                .retain(|step| self.settings.when.covers(step.deed));
            let sha512 = self.digest(file, &going)?;
            let archive = &self.profile.archive;
            let facts = FileFacts::of(file, number, sha512, archive, &history, &self.minter);
            files.push(facts);
            histories.push(history);
        }
        let created = created(job, &histories, self.settings.when);
        let parts = split(
            &files,
            self.settings.part_bytes.0,
            self.settings.part_files.get(),
        );
        let job_facts = JobFacts::of(job, &files, &self.minter, &self.settings.channel);
        let harvest = HarvestFacts::of(job, &self.minter);
        let packages = PackageDirectory::open(&self.home.root, &self.home.archive.packages)?;
        let known = self.manifest.packages_of_job(&finished.name());
        let known = known.map_err(Failure::halt)?;
        let before = known
            .iter()
            .filter(|row| row.supplement < finished.supplement);
        let before = before.map(|row| row.part).max().unwrap_or(0);
        let mut rows = Vec::new();
        let mut replaced = None;
        let mut how: BTreeMap<Packed, u64> = BTreeMap::new();
        for (number, range) in parts.iter().enumerate() {
            let name = directory_name(job, finished.supplement, number + 1, parts.len());
            if finished.again.as_ref().is_some_and(|again| *again != name) {
                continue;
            }
            let part_files = files[range.clone()].to_vec();
            let version = env!("CARGO_PKG_VERSION");
            let (events, agents) = events_of(
                &job_facts,
                &part_files,
                &histories[range.clone()],
                &created,
                version,
            );
            let facts = PackageFacts {
                package: PartFacts {
                    id: part_id(&job_facts.ark, finished.supplement, number + 1, parts.len()),
                    part: number + 1,
                    parts: parts.len(),
                    supplement: finished.supplement,
                    created: created.clone(),
                    version: version.to_owned(),
                },
                site: self.home.site.clone(),
                job: job_facts.clone(),
                harvest: harvest.clone(),
                totals: Totals::of(&part_files),
                files: part_files,
                events,
                agents,
            };
            let mut row = PackageRow {
                job: finished.job.clone(),
                harvest: finished.harvest.clone().unwrap_or_default(),
                part: before + facts.package.part as u64,
                parts: parts.len() as u64,
                supplement: finished.supplement,
                ark: facts.package.id.clone(),
                package: name,
                files: facts.totals.files,
                bytes: facts.totals.bytes,
                sha512: String::new(),
            };
            let own = rows::write(&self.manifest, &row, &facts, &histories[range.clone()])?;
            let mut draft = packages.begin(&row.package)?;
            let built = self.fill(&mut draft, &facts, &job.files[range.clone()], &going);
            row.sha512 = match built {
                Ok(counts) => {
                    counts
                        .into_iter()
                        .for_each(|(packed, count)| *how.entry(packed).or_default() += count);
                    draft.seal(&row.package, &info(&facts), &[own])?
                }
                Err(failure) => {
                    draft.discard()?;
                    return Err(failure);
                }
            };
            let old = known.iter().find(|old| old.package == row.package);
            if let Some(old) = old.filter(|old| old.sha512 != row.sha512) {
                let package = &row.package;
                tracing::warn!(package, "made again, with other bytes than before");
                replaced = Some(old.sha512.clone());
            }
            // One that is made again has its object.
            if finished.again.is_none() {
                self.store(&row, &facts)?;
            }
            let names = facts.files.into_iter().map(|file| file.name);
            rows.push((row, names.collect()));
        }
        if rows.is_empty() {
            let again = finished.again.as_deref().unwrap_or_default();
            return Err(Failure::hold(format!(
                "package {again} cannot be made again: with part-bytes and part-files as they are now, the job has no such part"
            )));
        }
        if let Some(sha512) = replaced {
            outbox.fact("replaced", sha512);
        }
        for (packed, count) in how {
            let key = match packed {
                Packed::Linked => "linked",
                Packed::Cloned => "cloned",
                Packed::Copied => "copied",
            };
            outbox.fact(key, count);
        }
        Ok(rows)
    }

    /// Returns what the receipts of a file tell, or told: those of an archive that came back from its packages are lost.
    fn history_of(
        &self,
        file: &JobFile,
        receipts: &FileReceipts<'_>,
    ) -> Result<FileHistory, Failure> {
        if let Some(parcel) = &file.parcel {
            let history = receipts.of_parcel(parcel)?;
            if !history.steps.is_empty() {
                return Ok(history);
            }
        }
        let name = &file.row.name;
        let Some(text) = self.manifest.history(name).map_err(Failure::halt)? else {
            return Ok(FileHistory::default());
        };
        serde_json::from_str(&text).map_err(|error| {
            Failure::halt(format!("the history of {name} in the manifest: {error}"))
        })
    }

    /// Writes a part as an OCFL object too, if there is a storage root.
    fn store(&self, row: &PackageRow, facts: &PackageFacts) -> Result<(), Failure> {
        let storage = &self.settings.ocfl;
        if storage.as_os_str().is_empty() {
            return Ok(());
        }
        let files = facts.files.iter();
        let known = files.map(|file| (format!("data/{}", file.path), file.sha512.clone()));
        let object = NewObject {
            id: &row.ark,
            package: &self.home.packages().join(&row.package),
            known: known.collect(),
            note: VersionNote {
                created: facts.package.created.clone(),
                message: format!("package {} of crawl job {}", row.package, facts.job.name),
                name: format!("ecluse {}", facts.package.version),
                address: address(&facts.site.contact),
            },
        };
        ocfl::store(&self.home.root, storage, &object)
    }

    /// Returns the SHA-512 of a file. It is read when that is not known, or its last read is too old.
    fn digest(&mut self, file: &GatheredFile, going: Going<'_>) -> Result<String, Failure> {
        if let Some(sha512) = &file.file.sha512
            && self.is_fresh(file)
        {
            return Ok(sha512.clone());
        }
        let place = Path::new(&file.stored.place);
        let unread = |error: &dyn std::fmt::Display| {
            Failure::defer(format!(
                "cannot read the stored copy {}: {error}",
                place.display()
            ))
        };
        let mut source = open_plain(place).map_err(|error| unread(&error))?;
        let (found, sha512) = read_both(&mut source, going).map_err(|fault| match fault {
            ReadFault::Stopped => Failure::give_back(),
            fault => unread(&fault),
        })?;
        let wanted = Fixity {
            bytes: file.bytes,
            sha256: file.sha256.clone(),
        };
        if found != wanted {
            return Err(Failure::hold(format!(
                "the stored copy {} has {found}, ingest took {wanted}",
                place.display()
            )));
        }
        if let Some(known) = &file.file.sha512
            && *known != sha512
        {
            return Err(Failure::hold(format!(
                "the stored copy {} has sha512 {sha512}, ingest took {known}",
                place.display()
            )));
        }
        let name = &file.file.row.name;
        let noted = self.manifest.note_sha512(name, &file.sha256, &sha512);
        noted.map_err(Failure::halt)?;
        Ok(sha512)
    }

    /// Tells whether the stored copy was read not long ago: by delete, or by verify since.
    fn is_fresh(&self, file: &GatheredFile) -> bool {
        let read = [
            file.stored.checked.as_deref(),
            file.file.row.deleted.as_deref(),
        ];
        let read = read.into_iter().flatten();
        let last = read.filter_map(|at| at.parse::<Timestamp>().ok()).max();
        let age = |at: Timestamp| Timestamp::now().duration_since(at).unsigned_abs();
        last.is_some_and(|at| age(at) < self.settings.fresh.0)
    }

    /// Fills a part: the archive files, then the documents, each of which may tell of those before it.
    fn fill(
        &self,
        draft: &mut PackageDraft,
        facts: &PackageFacts,
        files: &[GatheredFile],
        going: Going<'_>,
    ) -> Result<BTreeMap<Packed, u64>, Failure> {
        let mut how = BTreeMap::new();
        for (file, source) in facts.files.iter().zip(files) {
            if !going() {
                return Err(Failure::give_back());
            }
            let wanted = Fixity {
                bytes: file.bytes,
                sha256: file.sha256.clone(),
            };
            let from = Path::new(&source.stored.place);
            let packed = draft.take(from, &file.path, &wanted, &file.sha512, going)?;
            *how.entry(packed).or_default() += 1;
        }
        let names: Vec<&str> = facts.files.iter().map(|file| file.name.as_str()).collect();
        let told = minijinja::Value::from_serialize(facts);
        let mut made: BTreeMap<String, MadeDocument> = BTreeMap::new();
        for document in self.profile.documents(&names) {
            let known = minijinja::Value::from_serialize(&made);
            let text = self.profile.render(&document, &told, &known);
            let text =
                text.map_err(|why| Failure::config(format!("stage.package.profile: {why}")))?;
            let (bytes, sha256, sha512) = draft.write(&document.path, &text)?;
            let document = MadeDocument {
                href: uri_of(&document.path),
                path: document.path,
                bytes,
                sha256,
                sha512,
                media_type: document.media_type.to_owned(),
            };
            made.insert(document.path.clone(), document);
        }
        Ok(how)
    }
}

/// Returns a time so long before this one as a look goes back.
fn before(last: Timestamp) -> Option<String> {
    let back = last.checked_sub(MARGIN).ok()?;
    Some(back.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns an address of people as a URI.
fn address(contact: &str) -> String {
    match contact.contains(':') {
        true => contact.to_owned(),
        false => format!("mailto:{contact}"),
    }
}

/// When the last file of a job was ready, or it was closed: what the package was made after, and the same whenever it is
/// made.
fn created(job: &GatheredJob, histories: &[FileHistory], when: PackWhen) -> String {
    let steps = histories.iter().flat_map(|history| &history.steps);
    let times = steps.map(|step| step.at.as_str());
    let deleted = job
        .files
        .iter()
        .filter_map(|file| file.file.row.deleted.as_deref())
        .filter(|_| when.covers(Deed::Deletion));
    let closed = job.closed.iter().map(|closed| closed.at.as_str());
    let times = times.chain(deleted).chain(closed);
    let last = times.filter_map(|at| at.parse::<Timestamp>().ok()).max();
    let last = last.unwrap_or(Timestamp::UNIX_EPOCH);
    last.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Splits the files into parts that are small enough, in order; a file that is larger has one of its own.
fn split(files: &[FileFacts], bytes: u64, count: usize) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let (mut begin, mut size) = (0, 0_u64);
    for (at, file) in files.iter().enumerate() {
        if at > begin && (at - begin == count || size.saturating_add(file.bytes) > bytes) {
            parts.push(begin..at);
            (begin, size) = (at, 0);
        }
        size = size.saturating_add(file.bytes);
    }
    parts.push(begin..files.len());
    parts
}

/// Returns the identifier of a part: the job's, with what tells it from the other packages of the job.
fn part_id(job: &str, supplement: u64, part: usize, parts: usize) -> String {
    let mut id = job.to_owned();
    if supplement > 0 {
        id.push_str(&format!("/s{supplement}"));
    }
    if parts > 1 {
        id.push_str(&format!("/{part}"));
    }
    id
}

/// Returns the name of a part's directory: of plain letters, never hidden, told apart by a digest where that folds two
/// names into one.
fn directory_name(job: &GatheredJob, supplement: u64, part: usize, parts: usize) -> String {
    let plain = |text: &str| -> String {
        let fold = |character: char| match character {
            '.' | '_' | '-' => character,
            _ if character.is_ascii_alphanumeric() => character,
            _ => '_',
        };
        text.chars().take(80).map(fold).collect()
    };
    let harvest = job.name.harvest.as_deref().unwrap_or_default();
    let (job_plain, harvest_plain) = (plain(&job.name.job), plain(harvest));
    let mut name = match harvest_plain.is_empty() {
        true => job_plain.clone(),
        false => format!("{job_plain}-{harvest_plain}"),
    };
    // A hyphen in one of them could be taken for the one between them.
    let is_folded =
        job_plain != job.name.job || harvest_plain != harvest || job_plain.contains('-');
    if is_folded || name.starts_with(['.', '-']) || name.is_empty() {
        let digest = ecluse_spool::digest(name_of(job).as_bytes());
        name = format!("job-{name}-{}", &digest[..12]);
    }
    if supplement > 0 {
        name.push_str(&format!(".supplement-{supplement}"));
    }
    match parts {
        1 => name,
        _ => format!("{name}.{part}"),
    }
}

/// Returns the fields of `bag-info.txt`.
fn info(facts: &PackageFacts) -> Vec<InfoField> {
    let mut fields = Vec::new();
    let mut put = |label: &str, value: &str| {
        if !value.is_empty() {
            fields.push(InfoField::new(label, value));
        }
    };
    put("Source-Organization", &facts.site.organization);
    put("Contact-Email", &facts.site.contact);
    put("External-Identifier", &facts.package.id);
    put("Bag-Group-Identifier", &facts.harvest.ark);
    put(
        "Bag-Count",
        &format!("{} of {}", facts.package.part, facts.package.parts),
    );
    if facts.package.supplement > 0 {
        put("Supplement", &facts.package.supplement.to_string());
    }
    put(
        "Bagging-Date",
        facts.package.created.get(..10).unwrap_or_default(),
    );
    put(
        "Bag-Software-Agent",
        &format!("{SOFTWARE}{}", facts.package.version),
    );
    put("Crawl-Job", &facts.job.name);
    put("Harvest-Definition", &facts.harvest.name);
    put("Channel", &facts.job.channel);
    fields
}
