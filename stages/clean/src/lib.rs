//! Removes from `harvested/` what is provably safe elsewhere; as shipped it only says what it would remove.
//!
//! * **Reads** the manifest, the stored copies, the PATH file of the current index, and the harvested files.
//! * **Writes** one line on standard output for each file it removes or would remove, and its row in the
//!   manifest.
//! * **Never** removes a file without a fresh read of it and of a stored copy, a backup's proof, the
//!   delete of its working copy and its line in the current index; nor anything outside the harvested
//!   directories, nor anything while the manifest is frozen.
//! * **Defers** while the manifest is frozen. **Holds** nothing: what is not proven stays, with the reason.
//! * **Again**: what was removed stays removed. A process says once of each file that it would remove it; another says the
//!   same.

mod proof;

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ecluse_config::Span;
use ecluse_holding::must_not_be_frozen;
use ecluse_manifest::{FileRow, Manifest, State};
use ecluse_stage::{
    Collected, Doorstep, Failure, Home, Intake, Outbox, Parcel, ParcelId, SettingsCheck, Stage,
    Ticket,
};
use ecluse_telemetry::printable;
use serde::Deserialize;

use crate::proof::{Published, missing_proof};

/// What `[stage.clean]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Remove; without it only say what would be removed.
    pub remove: bool,
    /// How many backups must have proved their copy.
    pub backups: NonZeroUsize,
    /// How often to sweep, beside the sweep after each new generation of the index; zero for never.
    pub every: Span,
}

/// The stage.
pub struct Clean {
    settings: Settings,
    home: Home,
    manifest: Manifest,
    /// What this process has said it would remove. Its copies were read for that; they are not read again, nor is it
    /// said again, at every sweep for as long as nobody lets the stage remove.
    said: HashSet<String>,
}

/// So many files are in memory at once.
const ROWS: usize = 20_000;

/// What a sweep did.
#[derive(Debug, Default)]
struct Sweep {
    files: u64,
    bytes: u64,
    kept: u64,
}

impl Stage for Clean {
    const NAME: &'static str = "clean";
    const ABOUT: &'static str =
        "Removes from harvested/ what is provably safe elsewhere; as shipped it only says so";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.harvested(home);
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let manifest = Manifest::open(&home.manifest()).map_err(Failure::halt)?;
        Ok(Self {
            settings,
            home: home.clone(),
            manifest,
            said: HashSet::new(),
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let mut paths = home.harvested();
        paths.push(home.manifest_directory());
        paths
    }

    /// A sweep is due: its ticket is named after the time it is for, so that it is put down once.
    fn collect(&mut self, doorstep: &mut Doorstep<'_>) -> Result<Collected, Failure> {
        let every = self.settings.every.0.as_secs();
        if every == 0 {
            return Ok(Collected::default());
        }
        let now = jiff::Timestamp::now().as_second().max(0).unsigned_abs();
        let begun = jiff::Timestamp::from_second(i64::try_from(now / every * every).unwrap_or(0));
        let mode = if self.settings.remove {
            "remove"
        } else {
            "say"
        };
        let name = match begun {
            Ok(time) => format!("sweep-{}-{mode}", time.strftime("%Y%m%dT%H%M%SZ")),
            Err(_) => format!("sweep-{mode}"),
        };
        let id = ParcelId::try_from(name).map_err(Failure::halt)?;
        let tickets = doorstep.put(vec![Ticket {
            id,
            kind: "ticket",
            name: "sweep",
            bytes: b"\n".to_vec(),
        }])?;
        Ok(Collected {
            tickets,
            settling: 0,
        })
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    /// One sweep, however many generations and tickets ask for it.
    fn process_batch(&mut self, _batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        must_not_be_frozen(&self.manifest)?;
        let sweep = self.sweep(outbox)?;
        outbox.fact("removed", self.settings.remove);
        outbox.fact("files", sweep.files);
        outbox.fact("bytes", sweep.bytes);
        outbox.fact("kept", sweep.kept);
        let verb = if self.settings.remove {
            "removed"
        } else {
            "would remove (dry run: stage.clean.remove is false)"
        };
        tracing::info!(
            files = sweep.files,
            bytes = sweep.bytes,
            kept = sweep.kept,
            "{verb}"
        );
        Ok(())
    }
}

impl Clean {
    fn sweep(&mut self, outbox: &Outbox) -> Result<Sweep, Failure> {
        let mut sweep = Sweep::default();
        let mut after = String::new();
        loop {
            let rows = self.manifest.in_state(State::Published, &after, ROWS);
            let rows = rows.map_err(Failure::halt)?;
            let Some(last) = rows.last() else {
                return Ok(sweep);
            };
            after.clone_from(&last.name);
            self.sweep_some(rows, outbox, &mut sweep)?;
        }
    }

    fn sweep_some(
        &mut self,
        mut rows: Vec<FileRow>,
        outbox: &Outbox,
        sweep: &mut Sweep,
    ) -> Result<(), Failure> {
        if !self.settings.remove {
            rows.retain(|row| !self.said.contains(&row.name));
        }
        let published = Published::read(&self.home.index(), &rows).map_err(Failure::halt)?;
        for row in rows {
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            match self.judge(&row, &published, outbox)? {
                Ok(sources) => {
                    // Long reads lie between: a check may have found something since.
                    must_not_be_frozen(&self.manifest)?;
                    self.act(&row, &sources, sweep)?;
                }
                Err(reason) => {
                    sweep.kept += 1;
                    tracing::info!(file = row.name, reason, "kept");
                }
            }
        }
        Ok(())
    }

    /// Returns the harvested files that are provably safe elsewhere, or what is not proven.
    fn judge(
        &self,
        row: &FileRow,
        published: &Published,
        outbox: &Outbox,
    ) -> Result<Result<Vec<Source>, String>, Failure> {
        let mut sources: Vec<String> = row.source.iter().cloned().collect();
        sources.extend(self.manifest.skipped(&row.name).map_err(Failure::halt)?);
        // A file that was touched, and nothing else, was found twice at one place.
        sources.sort();
        sources.dedup();
        let mut present = Vec::new();
        for source in sources {
            let path = PathBuf::from(source);
            if !self.is_harvested(&path) {
                return Ok(Err(format!(
                    "{} is outside the harvested directories",
                    path.display()
                )));
            }
            match path.symlink_metadata() {
                Ok(metadata) => present.push(Source {
                    stamp: Stamp::of(&metadata),
                    path,
                }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Ok(Err(format!("{}: {error}", path.display()))),
            }
        }
        let copies = self.manifest.copies(&row.name).map_err(Failure::halt)?;
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let missing = missing_proof(
            row,
            &copies,
            published,
            self.settings.backups.get(),
            &present,
            &going,
        );
        Ok(match missing {
            Some(reason) => Err(reason),
            None => Ok(present),
        })
    }

    fn act(&mut self, row: &FileRow, sources: &[Source], sweep: &mut Sweep) -> Result<(), Failure> {
        for source in sources {
            let verb = if self.settings.remove {
                match remove(source) {
                    Ok(true) => {}
                    Ok(false) => {
                        sweep.kept += 1;
                        let reason = "it changed after it was read";
                        tracing::info!(file = row.name, reason, "kept");
                        return Ok(());
                    }
                    // Somebody else was faster.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    // Somebody else's directory: that is no reason to leave the others.
                    Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                        sweep.kept += 1;
                        tracing::warn!(file = row.name, reason = %error, "may not be removed: kept");
                        return Ok(());
                    }
                    Err(error) => {
                        let shown = source.path.display();
                        return Err(Failure::halt(format!("cannot remove {shown}: {error}")));
                    }
                }
                "removed"
            } else {
                "would remove"
            };
            sweep.files += 1;
            sweep.bytes += row.bytes.unwrap_or_default();
            let shown = source.path.display().to_string();
            let line = format!("{verb} {}\n", printable(shown.as_bytes()));
            let _ = std::io::stdout().write_all(line.as_bytes());
        }
        if self.settings.remove {
            self.manifest.cleaned(&row.name).map_err(Failure::halt)?;
        } else {
            self.said.insert(row.name.clone());
        }
        Ok(())
    }

    /// Tells whether a path lies under a harvested directory, with no way out of it.
    fn is_harvested(&self, path: &Path) -> bool {
        let plain = path
            .components()
            .all(|part| !matches!(part, std::path::Component::ParentDir));
        let Some(Ok(parent)) = path.parent().map(Path::canonicalize) else {
            // A directory that is gone holds nothing to remove.
            return plain;
        };
        plain
            && self.home.harvested().iter().any(|directory| {
                let directory = directory.canonicalize();
                directory.is_ok_and(|directory| parent.starts_with(directory))
            })
    }
}

/// A harvested file, as it was before it was read.
struct Source {
    path: PathBuf,
    stamp: Stamp,
}

/// What tells one state of a file from another.
#[derive(PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Removes a file that is as it was; tells whether it was.
#[expect(
    clippy::disallowed_methods,
    reason = "this stage is the one that removes harvested files"
)]
fn remove(source: &Source) -> std::io::Result<bool> {
    let path = &source.path;
    // Long reads lie between: another file may have taken its place, which nobody has taken in.
    if Stamp::of(&path.symlink_metadata()?) != source.stamp {
        return Ok(false);
    }
    std::fs::remove_file(path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_the_place_of_a_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.warc.gz");
        let source = || Source {
            stamp: Stamp::of(&path.symlink_metadata().unwrap()),
            path: path.clone(),
        };
        std::fs::write(&path, "read").unwrap();
        let read = source();
        std::fs::write(&path, "another").unwrap();
        assert!(!remove(&read).unwrap());
        assert!(path.exists());
        assert!(remove(&source()).unwrap());
        assert!(!path.exists());
    }
}
