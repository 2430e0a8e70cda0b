//! Stores a file at its final place and proves the copy.
//!
//! * **Reads** a parcel with one archive file.
//! * **Writes** the file into one of the locations, and `<file>.path` into the parcel: where it is.
//! * **Never** fills a disk, never gives a name that another file has, and never calls a copy stored
//!   that was not read back from the disk.
//! * **Defers** when no location has room or is well. **Holds** a file that is not the one ingest
//!   took, and one whose name another file has.
//! * **Again**: a copy that is there is read again and counts; there is never a second one.

mod layout;
mod settings;
mod task;

use std::io::Write;
use std::path::{Path, PathBuf};

use ecluse_cdx::path::{self, PathLine};
use ecluse_config::{Free, Location};
use ecluse_holding::{CopyDirectory, CopyFault, CopyRoom, Fixity, PayloadSource, payload};
use ecluse_manifest::{Copy, IndexFacts, Manifest, PlaceRoot};
use ecluse_stage::{Failure, Home, Outbox, Parcel, SettingsCheck, Stage};
use serde_json::{Value, json};

pub use layout::{FolderLayout, Words};
pub use settings::{Choose, Settings};
use task::{Open, Stored, TransferTask, order};

/// The stage.
pub struct Transfer {
    settings: Settings,
    locations: Vec<Location>,
    root: PathBuf,
    manifest: Manifest,
    /// Which locations this worker has swept.
    swept: Vec<bool>,
    turn: usize,
}

impl Stage for Transfer {
    const NAME: &'static str = "transfer";
    const ABOUT: &'static str = "Stores a file at its final place and proves the copy";
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        for (number, location) in home.archive.repository.iter().enumerate() {
            let key = format!("archive.repository[{number}].path");
            check.directory(&key, &location.path);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let locations = home.archive.repository.clone();
        Ok(Self {
            settings,
            swept: vec![false; locations.len()],
            locations,
            manifest: Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?,
            root: std::path::absolute(&home.root)?,
            turn: 0,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let locations = home.archive.repository.iter();
        let locations = locations.map(|location| home.path(&location.path));
        locations.chain([home.manifest_directory()]).collect()
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let manifest = parcel.manifest();
        let file = payload(manifest)?;
        let wanted = Fixity::from(file);
        let folder = self.settings.layout.folder(Words {
            job: manifest.job.as_deref(),
            harvest: manifest.harvest.as_deref(),
            collection: manifest.collection.as_deref(),
        })?;
        let task = TransferTask {
            name: &file.name,
            folder: &folder,
            wanted: &wanted,
            source: PayloadSource::Working(parcel, &file.name),
        };
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let mut complaints = Vec::new();
        let open = open_locations(
            &self.locations,
            self.settings.leave_free,
            &self.root,
            &mut self.swept,
            &mut complaints,
        );
        let mut copies = task.copies(&open, None, &mut complaints, &going)?;
        if copies.is_empty() {
            let order = order(self.settings.choose, &mut self.turn, &open);
            let at = task.store(&open, &order, &mut complaints, &going)?;
            // Another worker may have stored the same name elsewhere at the same moment.
            copies = task.copies(&open, Some(at), &mut complaints, &going)?;
        }
        let lines = path_lines(&file.name, &copies, self.manifest.places())?;
        self.tell_indexed(parcel, &file.name)?;
        for copy in &copies {
            let stored = Copy {
                target: &copy.location,
                place: &copy.place.to_string_lossy(),
                bytes: wanted.bytes,
                sha256: &wanted.sha256,
            };
            let noted = self.manifest.stored(&file.name, &stored);
            noted.map_err(Failure::halt)?;
        }
        let mut out = outbox.create(&format!("{}.path", file.name))?;
        out.write_all(&lines)?;
        outbox.attach(out)?;
        let facts: Vec<Value> = copies
            .iter()
            .map(|copy| {
                let place = copy.place.to_string_lossy();
                json!({
                    "target": copy.location, "place": self.manifest.places().short(&place),
                    "bytes": wanted.bytes, "sha256": wanted.sha256,
                })
            })
            .collect();
        // What the manifest is made of again, should it be lost.
        outbox.fact("copies", facts);
        let names: Vec<String> = copies.into_iter().map(|copy| copy.location).collect();
        outbox.fact("locations", names);
        Ok(())
    }
}

impl Transfer {
    /// Tells the manifest what index found, by its receipt: index may run on other hosts than the one that writes the
    /// manifest. A parcel that came without one tells nothing.
    fn tell_indexed(&mut self, parcel: &Parcel, name: &str) -> Result<(), Failure> {
        let Some(receipt) = parcel.receipt_of("index")? else {
            return Ok(());
        };
        let IndexFacts {
            lines,
            damages,
            told,
        } = IndexFacts::of(&receipt.facts);
        let noted = self.manifest.indexed(name, lines, damages, &told);
        noted.map_err(Failure::halt)
    }
}

/// Opens the locations that are well, and says what is wrong with the others.
fn open_locations<'a>(
    locations: &'a [Location],
    leave_free: Free,
    root: &Path,
    swept: &mut [bool],
    complaints: &mut Vec<String>,
) -> Vec<Open<'a>> {
    let mut open = Vec::new();
    for (location, swept) in locations.iter().zip(swept) {
        match open_location(root, location, swept) {
            Ok((copies, room)) => open.push(Open {
                location,
                copies,
                free: room.free,
                leave: location
                    .leave_free
                    .unwrap_or(leave_free)
                    .bytes_of(room.total),
            }),
            Err(fault) => {
                tracing::warn!(location = location.name, %fault, "location skipped");
                complaints.push(format!("{}: {fault}", location.name));
            }
        }
    }
    open
}

fn open_location(
    root: &Path,
    location: &Location,
    swept: &mut bool,
) -> Result<(CopyDirectory, CopyRoom), CopyFault> {
    let copies = CopyDirectory::open_swept(root, &location.path, Transfer::NAME, swept)?;
    let room = copies.room()?;
    Ok((copies, room))
}

fn path_lines(name: &str, copies: &[Stored], root: &PlaceRoot) -> Result<Vec<u8>, Failure> {
    let mut places = Vec::new();
    for copy in copies {
        let place = copy.place.to_str().ok_or_else(|| {
            Failure::config(format!("location {} has no UTF-8 path", copy.location))
        })?;
        places.push(root.short(place));
    }
    places.sort_unstable();
    let mut lines = Vec::new();
    for location in &places {
        let line = PathLine {
            filename: name,
            location,
        };
        path::write(line, &mut lines)
            .map_err(|fault| Failure::config(format!("cannot write {location:?}: {fault}")))?;
    }
    Ok(lines)
}
