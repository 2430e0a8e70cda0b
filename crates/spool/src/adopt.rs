//! Adoption: a plain file in `drop/` becomes a parcel once it is at rest.
//!
//! The file is first moved into the worker's own directory, so that one worker has it and a
//! reaper finds it; then it is hashed, described, and shown in `ready/`. Its name may be anything
//! a file system allows; only a safe form of it goes on, with the original kept escaped.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{At, Result};
use crate::fs::{FileKind, gone, if_there};
use crate::name::{ParcelEntry, ParcelId, safe_file_name};
use crate::new_parcel::{NewParcel, hash};
use crate::outbox::NEW_MANIFEST;
use crate::parcel::{HISTORY, MANIFEST, MANIFEST_BYTES, ParcelManifest, given_mark};
use crate::place::Placed;
use crate::worker::{Worker, read_manifest};

/// Endings of files that somebody is still writing.
const UNFINISHED: [&[u8]; 4] = [b".part", b".open", b".lck", b".tmp"];

/// Where a file just taken lies under the name it came with, whatever that is.
const TAKEN: &str = ".taken";

/// How a dropped file looks: size, time of its last change, inode.
pub(crate) type DropLook = (u64, i128, u64);

/// What a look into `drop/` came to.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Parcels made.
    pub parcels: Vec<ParcelId>,
    /// Files that are not at rest yet.
    pub settling: usize,
    /// Entries that are no plain files. They stay where they are. Never more than 20.
    pub refused: Vec<String>,
}

impl Worker {
    /// Adopts the dropped files that are at rest. `closed` names those a bell said are complete:
    /// closed by their writer, or renamed in.
    pub fn adopt(&mut self, closed: &[OsString]) -> Result<Adopted> {
        let drop = self.stage.drop();
        let mut adopted = Adopted::default();
        for (name, kind) in self.fs.list(&drop).at("list", &drop)? {
            if is_unfinished(&name) {
                continue;
            }
            if kind != FileKind::File {
                if adopted.refused.len() < 20 {
                    adopted
                        .refused
                        .push(name.as_bytes().escape_ascii().to_string());
                }
                continue;
            }
            if self.signs.stop_asked() {
                break;
            }
            if closed.contains(&name) || self.is_at_rest(&name)? {
                adopted.parcels.extend(self.adopt_one(&name)?);
            } else {
                adopted.settling += 1;
            }
        }
        self.seen_drops.end_round();
        Ok(adopted)
    }

    fn is_at_rest(&mut self, name: &OsStr) -> Result<bool> {
        let path = self.stage.drop().join(name);
        let Some(stat) = if_there(self.fs.stat(&path)).at("look at", &path)? else {
            // Another worker took it: so will this one find.
            return Ok(true);
        };
        let look = (stat.bytes, stat.mtime_ns, stat.inode);
        let now = (self.tree.monotonic)();
        let rest = self.limits.settle;
        Ok(self.seen_drops.is_at_rest(name, look, rest, now))
    }

    fn adopt_one(&mut self, name: &OsStr) -> Result<Option<ParcelId>> {
        let draft = self
            .home
            .join("adopt")
            .join(format!("{:08x}", (self.tree.dice)() as u32));
        let taken_dir = draft.join(TAKEN);
        self.fs.mkdir(&draft).at("make", &draft)?;
        self.fs.mkdir(&taken_dir).at("make", &taken_dir)?;
        let (from, taken) = (self.stage.drop().join(name), taken_dir.join(name));
        let moved = if_there(self.fs.rename(&from, &taken)).at("adopt", &from)?;
        if moved.is_none() {
            self.fs.remove_tree(&draft).at("remove", &draft)?;
            self.check_fence()?;
            return Ok(None);
        }
        let safe = safe_file_name(name);
        let born = given_mark((self.tree.dice)());
        let manifest = ParcelManifest::new(ParcelId::for_file(name, ""), "file", born);
        let mut parcel = NewParcel::at(&self.fs, draft, manifest, &self.signs);
        parcel.describe(&taken, &safe)?;
        parcel.name_after(name);
        parcel.seal(None)?;
        // Durable before the file loses the name it came with: a power cut that kept the move and
        // not the description would leave nobody who knows that name.
        self.fs.sync_file(&taken).at("sync", &taken)?;
        let path = parcel.dir.join(MANIFEST);
        self.fs.sync_file(&path).at("sync", &path)?;
        let file = parcel.dir.join(&safe);
        self.fs.rename(&taken, &file).at("move", &taken)?;
        gone(self.fs.rmdir(&taken_dir)).at("remove", &taken_dir)?;
        self.fs.sync_dir(&parcel.dir).at("sync", &parcel.dir)?;
        self.show(&parcel)
    }

    /// Shows a described parcel in `ready/`, unless the same content waits there already.
    fn show(&mut self, parcel: &NewParcel) -> Result<Option<ParcelId>> {
        let id = &parcel.manifest.id;
        match self.tree.show(parcel, &self.stage)? {
            Placed::There => Ok(Some(id.clone())),
            Placed::Taken => {
                let slot = self.tree.ready_slot(&self.stage, &ParcelEntry::new(id, 0));
                if read_manifest(&*self.fs, &slot, id).is_err() {
                    // Something else lies there under its name: it waits beside it.
                    self.put_back(&parcel.dir, &slot)?;
                    self.sync_touched()?;
                    return Ok(Some(id.clone()));
                }
                // The id holds the digest of the content: what waits there is the same file.
                tracing::warn!(parcel = %id, "dropping a copy of a file that waits already");
                self.fs.remove_tree(&parcel.dir).at("remove", &parcel.dir)?;
                Ok(None)
            }
            Placed::Gone => self.check_fence().map(|()| None),
        }
    }

    /// Finishes or takes back what a worker was adopting.
    pub(crate) fn settle_adoptions(&mut self, adopt: &Path) -> Result<()> {
        for (name, _) in self.tree.list(adopt)? {
            let draft = adopt.join(&name);
            let manifest: Option<ParcelManifest> = self
                .fs
                .read(&draft.join(MANIFEST), MANIFEST_BYTES)
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let entries = self.tree.list(&draft)?;
            // After a power cut the manifest may be there and the bytes it speaks of not.
            let complete = manifest.filter(|manifest| {
                manifest.files.iter().all(|file| {
                    entries.iter().any(|(name, _)| name == file.name.as_str())
                        && hash(&*self.fs, &draft.join(&file.name), &self.signs)
                            .is_ok_and(|(_, sha256)| sha256 == file.sha256)
                })
            });
            match complete {
                // Described but perhaps not durable: make it so before it is shown.
                Some(manifest) => {
                    // Written again: a sync of the old one may have failed, and a second sync of
                    // it would say nothing.
                    let (new, path) = (draft.join(NEW_MANIFEST), draft.join(MANIFEST));
                    gone(self.fs.unlink(&new)).at("remove", &new)?;
                    let bytes = manifest.to_bytes();
                    self.fs.write_durable(&new, &bytes).at("write", &new)?;
                    self.fs.rename(&new, &path).at("write", &path)?;
                    let taken_dir = draft.join(TAKEN);
                    gone(self.fs.rmdir(&taken_dir)).at("remove", &taken_dir)?;
                    let history = draft.join(HISTORY);
                    self.fs.ensure_dir(&history).at("make", &history)?;
                    let parcel = NewParcel::at(&self.fs, draft, manifest, &self.signs);
                    parcel.sync()?;
                    self.show(&parcel)?;
                }
                None => {
                    self.return_to_drop(&draft.join(TAKEN))?;
                    self.return_to_drop(&draft)?;
                    self.fs.remove_tree(&draft).at("remove", &draft)?;
                }
            }
        }
        Ok(())
    }

    fn return_to_drop(&mut self, dir: &Path) -> Result<()> {
        for (name, kind) in self.tree.list(dir)? {
            let ours = name == MANIFEST || name == NEW_MANIFEST;
            if ours && dir.file_name() != Some(OsStr::new(TAKEN)) || kind == FileKind::Dir {
                continue;
            }
            let (drop, from) = (self.stage.drop(), dir.join(&name));
            let mut to = drop.join(&name);
            if self.fs.is_there(&to).at("look at", &to)? {
                if self.is_same_file(&from, &to)? {
                    // Dropped again meanwhile. Under another name it would be another parcel.
                    self.fs.sync_file(&to).at("sync", &to)?;
                    self.fs.sync_dir(&drop).at("sync", &drop)?;
                    gone(self.fs.unlink(&from)).at("remove", &from)?;
                    continue;
                }
                // Cut, so that a name of full length has room for what tells the two apart.
                let bytes = name.as_bytes();
                let mut other = OsStr::from_bytes(&bytes[..bytes.len().min(240)]).to_owned();
                other.push(format!(".{:08x}", (self.tree.dice)() as u32));
                to = drop.join(other);
            }
            gone(self.fs.rename(&from, &to)).at("return", &to)?;
        }
        Ok(())
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> Result<bool> {
        let other = if_there(hash(&*self.fs, other, &self.signs)).at("read", other)?;
        Ok(other == Some(hash(&*self.fs, one, &self.signs).at("read", one)?))
    }
}

pub(crate) fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") || UNFINISHED.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant, SystemTime};

    use super::*;
    use crate::tree::WorkTree;
    use crate::worker::WorkerLimits;

    /// A file server's clock tells nothing: only that the file looks the same, and for how long.
    #[test]
    fn a_file_being_written_is_not_taken_whatever_its_times_say() {
        for (ahead, behind) in [(0, 60), (60, 0), (0, 0)] {
            let root = tempfile::tempdir().unwrap();
            let start = Instant::now();
            let passed = Arc::new(Mutex::new(Duration::ZERO));
            let clock = Arc::clone(&passed);
            let tree = WorkTree::open(&root.path().join("work"))
                .with_monotonic(Arc::new(move || start + *clock.lock().unwrap()));
            let limits = WorkerLimits::default();
            let settle = limits.settle;
            let mut worker = Worker::open(&tree, "stage", &[], limits, "0").unwrap();
            let path = tree.stage("stage").drop().join("a.warc");
            let mut file = std::fs::File::create(&path).unwrap();
            for _ in 0..20 {
                file.write_all(b"more").unwrap();
                let server =
                    SystemTime::now() + Duration::from_secs(ahead) - Duration::from_secs(behind);
                file.set_modified(server).unwrap();
                let adopted = worker.adopt(&[]).unwrap();
                assert_eq!((adopted.parcels.len(), adopted.settling), (0, 1));
                *passed.lock().unwrap() += settle / 2;
            }
            // Unchanged since half the time ago.
            assert_eq!(worker.adopt(&[]).unwrap().settling, 1);
            *passed.lock().unwrap() += settle / 2;
            assert_eq!(worker.adopt(&[]).unwrap().parcels.len(), 1);
        }
    }

    #[test]
    fn an_adoption_cut_short_shows_nothing_of_how_it_was_made() {
        let root = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(&root.path().join("work"));
        let next = ["next".to_owned()];
        let worker = Worker::open(&tree, "stage", &next, WorkerLimits::default(), "0").unwrap();
        // Died after the file was moved beside its description, before its taken_dir was removed.
        let draft = worker.home.join("adopt/cafe");
        std::fs::create_dir_all(draft.join(TAKEN)).unwrap();
        std::fs::write(draft.join("a"), "text").unwrap();
        let name = OsStr::new("a");
        let manifest = ParcelManifest::new(ParcelId::for_file(name, ""), "file", "b".into());
        let mut parcel = NewParcel::at(&worker.fs, draft.clone(), manifest, &worker.signs);
        parcel.describe(&draft.join("a"), "a").unwrap();
        parcel.name_after(name);
        std::fs::write(draft.join(MANIFEST), parcel.manifest.to_bytes()).unwrap();
        drop(worker);

        let mut heir = Worker::open(&tree, "stage", &next, WorkerLimits::default(), "0").unwrap();
        heir.recover().unwrap();
        let scan = heir.scan().unwrap();
        assert_eq!(scan.total, 1);
        let path = heir.tree.ready_slot(&heir.stage, &scan.waiting[0].entry);
        assert!(path.join("a").exists());
        assert!(!path.join(TAKEN).exists());
    }
}
