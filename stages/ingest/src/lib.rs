//! Takes in every new (W)ARC file of the harvested directories.
//!
//! * **Reads** the harvested directories and, for each file at rest, a parcel that it has put before itself; and parcels with
//!   a (W)ARC file from other hosts.
//! * **Writes** a parcel with the file, hard-linked where it can, to the index machine with the fewest parcels; and a row in
//!   the manifest. What came from another host it writes into the first harvested directory, where it finds it.
//!   A copy, such as `ingest@beta`, has no manifest: it sends each file of its host to ingest.
//! * **Never** changes or removes a harvested file, takes one twice, or takes one still being written.
//! * **Defers** a file that changed while it was read, or may not be read. **Holds** a name that is known with other bytes,
//!   a name no pattern knows (when the settings say so), and whatever is no plain file.
//! * **Again**: the same parcel worked on twice gives the same parcel and the same row.

mod harvested;
mod harvested_file;
mod name;
mod travel;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ecluse_manifest::{Ingested, Manifest, NewFile};
use ecluse_stage::{
    Failure, HarvestCollection, Home, Inbox, Outbox, Parcel, SettingsCheck, ShortestQueue, Stage,
};
use ecluse_telemetry::ArchiveFigures;
use serde::Deserialize;
use sha2::{Digest, Sha512};

use crate::harvested::Harvested;
use crate::harvested_file::{HarvestedFile, HarvestedState};
use crate::name::Names;

pub use crate::name::OtherNames;

/// What `[stage.ingest]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Files that end so are somebody's unfinished work.
    pub ignore: Vec<String>,
    /// What archive files are called: patterns with the groups `job` and `harvest`.
    pub names: Vec<String>,
    /// What a job's metadata files are called.
    pub metadata_names: Vec<String>,
    /// What becomes of a file whose name no pattern knows.
    pub other_names: OtherNames,
    /// Harvests with an index of their own.
    pub collections: Vec<HarvestCollection>,
}

/// The stage.
pub struct Ingest {
    home: Home,
    names: Names,
    harvested: Harvested,
    /// None has a copy, which sends the files of its host to ingest.
    manifest: Option<Manifest>,
    queues: ShortestQueue,
    /// What dead workers left half received was swept.
    swept: bool,
}

impl Stage for Ingest {
    const NAME: &'static str = "ingest";
    const ABOUT: &'static str = "Takes in every new (W)ARC file of the harvested directories";
    const SPREADS: bool = true;
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.harvested(home);
        if home.next.is_empty() {
            check.error("stage.ingest.next", "ingest has no stage after it");
        }
        for (key, fault) in Names::read(settings).err().unwrap_or_default() {
            check.error(&key, fault);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let names = Names::read(&settings).map_err(|faults| {
            let faults = faults.into_iter();
            let lines: Vec<String> = faults
                .map(|(key, fault)| format!("{key}: {fault}"))
                .collect();
            Failure::config(lines.join("\n"))
        })?;
        let directories = home.harvested();
        for directory in &directories {
            // The one under the root is ours to make; any other that is missing may not be mounted.
            if directory.starts_with(&home.root) {
                std::fs::create_dir_all(directory)?;
            }
        }
        let is_copy = home.stage.contains('@');
        let manifest = match is_copy {
            true => None,
            false => Some(open_manifest(home)?),
        };
        Ok(Self {
            names,
            harvested: Harvested::new(directories, settings.ignore.clone(), &home.shell),
            manifest,
            home: home.clone(),
            queues: ShortestQueue::default(),
            swept: false,
        })
    }

    fn watched(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        home.harvested()
    }

    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        let (news, deaf) = (inbox.take_news(), inbox.is_deaf());
        let look = self.harvested.look(&news, deaf, Instant::now())?;
        for file in look.found {
            let (id, bytes) = file.parcel();
            inbox.put(&id, HarvestedFile::KIND, (HarvestedFile::NAME, &bytes))?;
            self.harvested.remember(file);
        }
        Ok(look.settling)
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        // A harvested file is linked into its parcel, which cannot be done from another mount.
        let mut paths = home.harvested();
        paths.push(home.manifest_directory());
        paths
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        let mut text = String::new();
        let name = parcel.only_file()?.name.clone();
        if name != HarvestedFile::NAME {
            return self.receive(parcel, outbox);
        }
        parcel.open(&name)?.read_to_string(&mut text)?;
        let file = HarvestedFile::parse(&text).map_err(Failure::hold)?;
        if let Some(problem) = &file.problem {
            return Err(Failure::hold(format!("{}: {problem}", file.shown)));
        }
        let state = file.state().map_err(|error| unread(&file, &error))?;
        let Some(manifest) = &mut self.manifest else {
            return self.send(parcel, &file, &state, outbox);
        };
        if state == HarvestedState::AsFound {
            return self.take_in(parcel, &file, outbox);
        }
        // Killed after it told the manifest and before it handed the file over, this parcel may have kept another from it.
        // What cannot be looked at may well be there.
        let is_there = |path: &str| !matches!(HarvestedFile::now(Path::new(path)), Ok(None));
        let id = parcel.id().as_str();
        let elsewhere = manifest.forgo(&file.name, id, is_there);
        if let Some(path) = elsewhere.map_err(Failure::halt)? {
            let twin = HarvestedFile::now(Path::new(&path));
            let twin = twin.map_err(|error| unread(&file, &error))?;
            let twin = twin.ok_or_else(|| Failure::defer(format!("{path} has just gone")))?;
            return self.take_in(parcel, &twin, outbox);
        }
        match state {
            HarvestedState::Gone => Err(Failure::hold(format!(
                "{} vanished before it was taken in",
                file.shown
            ))),
            // It has a parcel of its own as what it has become.
            HarvestedState::AsFound | HarvestedState::Changed => {
                outbox.fact("changed", file.shown.as_str());
                Ok(())
            }
        }
    }
}

impl Ingest {
    fn take_in(
        &mut self,
        parcel: &Parcel,
        file: &HarvestedFile,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let Some(book) = &mut self.manifest else {
            return Err(Failure::config("a copy of ingest takes nothing in"));
        };
        let path = Path::new(&file.path);
        let mut taken = outbox.parcel(parcel.id().clone(), "warc")?;
        let manifest = taken.manifest();
        self.names
            .tell(&file.name, manifest)
            .map_err(Failure::hold)?;
        // Whose crawler keeps a file to itself does not stop the others: it is tried again later.
        File::open(path).map_err(|error| unread(file, &error))?;
        // Packages need this one too, and the bytes are at hand now.
        let mut sha512 = Sha512::new();
        let linked = taken.bring_seen(path, &file.name, &mut |piece| sha512.update(piece))?;
        let sha512: String = sha512
            .finalize()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if file.state()? != HarvestedState::AsFound {
            return Err(Failure::defer(format!(
                "{} changed while it was read",
                file.shown
            )));
        }
        let manifest = taken.manifest();
        let entry = &manifest.files[0];
        let new = NewFile {
            name: &entry.name,
            bytes: entry.bytes,
            sha256: &entry.sha256,
            kind: &manifest.kind,
            job: manifest.job.as_deref(),
            harvest: manifest.harvest.as_deref(),
            collection: manifest.collection.as_deref(),
            source: &file.path,
            parcel: parcel.id().as_str(),
        };
        let ingested = book.ingest_hashed(&new, Some(&sha512));
        // What the manifest is made of again, should it be lost.
        outbox.fact("source", &*book.places().short(&file.path));
        outbox.fact("bytes", entry.bytes);
        outbox.fact("sha256", entry.sha256.as_str());
        outbox.fact("sha512", sha512.as_str());
        outbox.fact("kind", manifest.kind.as_str());
        for (key, value) in [
            ("job", &manifest.job),
            ("harvest", &manifest.harvest),
            ("collection", &manifest.collection),
        ] {
            if let Some(value) = value {
                outbox.fact(key, value.as_str());
            }
        }
        match ingested.map_err(Failure::halt)? {
            Ingested::New => {
                outbox.fact("linked", linked);
                let to = self.queues.of(&self.home)?;
                let to = to.ok_or_else(|| Failure::config("ingest has no next stage"))?;
                outbox.emit_to(taken, &to);
                Ok(())
            }
            Ingested::Same => {
                tracing::info!(file = file.shown, "known already: skipped");
                outbox.fact("skipped", "a file of this name and digest is known");
                Ok(())
            }
            Ingested::Differs { bytes, sha256 } => Err(Failure::hold(format!(
                "{} is known with other bytes: here {} bytes, sha256 {}; known {bytes} bytes, sha256 {sha256}; to keep both, give this one another name",
                file.shown, entry.bytes, entry.sha256
            ))),
        }
    }
}

/// Opens the manifest, and asks it for the figures.
fn open_manifest(home: &Home) -> Result<Manifest, Failure> {
    let (manifest, root) = (home.manifest(), home.root.clone());
    home.metrics
        .archive(move || archive_figures(&manifest, &root));
    Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)
}

/// Asks the manifest what the alerts are about.
fn archive_figures(manifest: &Path, root: &Path) -> Option<ArchiveFigures> {
    let health = Manifest::open_to_read(manifest, root).and_then(|manifest| manifest.health());
    let health = health.ok()?;
    Some(ArchiveFigures {
        frozen: health.frozen.is_some(),
        bad: health.bad,
        unread: health.unread,
    })
}

/// A harvested file that cannot be looked at or opened: its owner's fault, not this machine's.
fn unread(file: &HarvestedFile, error: &io::Error) -> Failure {
    Failure::defer(format!("cannot read {}: {error}", file.shown))
}
