//! One sweep: the rows that are published, then whatever else lies in the harvested directories.

use std::io::{self, Write};
use std::path::{Component, Path};

use ecluse_config::Bytes;
use ecluse_holding::{is_archive, is_same_file, must_not_be_frozen};
use ecluse_manifest::{FileRow, FileState, Finding};
use ecluse_stage::{Failure, Outbox};
use ecluse_telemetry::printable;
use walkdir::{DirEntry, WalkDir};

use crate::original::Original;
use crate::proof::{Published, Unproven, not_read, not_recorded};
use crate::{Candidate, Clean};

/// So many files are in memory at once, and for so many the index is read once.
const ROWS: usize = 20_000;

/// What a sweep did.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Files that were removed, or would be.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) kept: u64,
    /// Files in the harvested directories that no row accounts for.
    pub(crate) unaccounted: u64,
}

impl Swept {
    fn count(&mut self, original: &Original) {
        self.files += 1;
        self.bytes += original.bytes;
    }
}

impl Clean {
    pub(crate) fn sweep(&mut self, outbox: &Outbox) -> Result<Swept, Failure> {
        let mut swept = Swept::default();
        self.sweep_rows(outbox, &mut swept)?;
        self.sweep_leftovers(outbox, &mut swept)?;
        self.forget_gone(outbox)?;
        Ok(swept)
    }

    /// Says what a sweep did: in a dry run one line for all of it.
    pub(crate) fn tell(&self, swept: &Swept) {
        let (files, bytes) = (swept.files, swept.bytes);
        let verb = match self.settings.remove {
            true => "removed",
            false => "would remove (dry run: stage.clean.remove is false)",
        };
        let (kept, unaccounted) = (swept.kept, swept.unaccounted);
        tracing::info!(files, bytes, kept, unaccounted, "{verb}");
        if self.settings.remove || files == 0 {
            return;
        }
        let line = format!(
            "would remove {files} {} of {} from the harvested directories once stage.clean.remove = true; to list them: \
             sqlite3 -readonly {} \"SELECT path FROM harvested WHERE finding = 'removable'\"\n",
            if files == 1 { "file" } else { "files" },
            Bytes(bytes),
            self.home.manifest().display()
        );
        let _ = io::stdout().write_all(line.as_bytes());
    }

    fn sweep_rows(&mut self, outbox: &Outbox, swept: &mut Swept) -> Result<(), Failure> {
        let mut after = String::new();
        loop {
            let rows = self.manifest.in_state(FileState::Published, &after, ROWS);
            let rows = rows.map_err(Failure::halt)?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after.clone_from(&last.name);
            let mut candidates = Vec::new();
            for row in rows {
                match self.originals_of(&row)? {
                    Ok(originals) => candidates.push(self.candidate(row, originals, false)?),
                    Err(reason) => keep(&row, &reason, swept),
                }
            }
            self.judge(candidates, outbox, swept)?;
        }
    }

    /// Looks at every archive file in the harvested directories for those that the rows did not lead to.
    fn sweep_leftovers(&mut self, outbox: &Outbox, swept: &mut Swept) -> Result<(), Failure> {
        let mut candidates = Vec::new();
        for directory in self.home.harvested() {
            let is_shown = |entry: &DirEntry| {
                entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".")
            };
            for entry in WalkDir::new(directory).into_iter().filter_entry(is_shown) {
                outbox.tick();
                if outbox.stop_asked() {
                    return Err(Failure::give_back());
                }
                // Ingest says what cannot be read; a file may go while its directory is read.
                let Ok(entry) = entry else { continue };
                if !entry.file_type().is_file() || !is_archive(entry.file_name()) {
                    continue;
                }
                candidates.extend(self.leftover(entry.path(), swept)?);
                if candidates.len() == ROWS {
                    self.judge(std::mem::take(&mut candidates), outbox, swept)?;
                }
            }
        }
        self.judge(candidates, outbox, swept)
    }

    /// Returns a file that a row of its name may account for though the row does not lead there.
    fn leftover(&mut self, path: &Path, swept: &mut Swept) -> Result<Option<Candidate>, Failure> {
        let Ok(Some(original)) = Original::look(path) else {
            return Ok(None);
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(row) = self.manifest.file(&name).map_err(Failure::halt)? else {
            let reason = "the manifest has no file of this name";
            self.note_unaccounted(&original, reason, swept)?;
            return Ok(None);
        };
        let is_leftover = match row.state {
            FileState::Ingested
            | FileState::Indexed
            | FileState::Stored
            | FileState::BackedUp
            | FileState::Deleted => {
                self.forget(&original)?;
                false
            }
            FileState::Published => {
                let known = self.places_of(&row)?;
                let is_there = |place: &String| {
                    Path::new(place) == path
                        || is_same_file(Path::new(place), path).unwrap_or(false)
                };
                !known.iter().any(is_there)
            }
            FileState::Cleaned => true,
        };
        match is_leftover {
            true => Ok(Some(self.candidate(row, vec![original], true)?)),
            false => Ok(None),
        }
    }

    /// Removes what is provably safe elsewhere, or remembers it; what costs a read comes last.
    fn judge(
        &mut self,
        candidates: Vec<Candidate>,
        outbox: &Outbox,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let mut unread = Vec::new();
        for candidate in candidates {
            let mut reason = not_recorded(&candidate, self.settings.backups.get());
            if reason.is_none() && !self.is_handed_over(&candidate)? {
                let text = "the preservation repository has given no receipt (requires-deposit)";
                reason = Some(text.to_owned());
            }
            if let Some(reason) = reason {
                self.leave(&candidate, &Unproven::Archive(reason), swept)?;
            } else if !self.settings.remove && self.is_remembered(&candidate)? {
                let originals = candidate.originals.iter();
                originals.for_each(|original| swept.count(original));
            } else {
                unread.push(candidate);
            }
        }
        if unread.is_empty() {
            return Ok(());
        }
        let rows = unread.iter().map(|candidate| &candidate.row);
        let published = Published::read(&self.home.index(), rows, &going)?;
        for candidate in unread {
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            let missing = published.missing(&candidate.row);
            match missing
                .map(Unproven::Archive)
                .or_else(|| not_read(&candidate, &going))
            {
                Some(_) if outbox.stop_asked() => return Err(Failure::give_back()),
                Some(unproven) => self.leave(&candidate, &unproven, swept)?,
                None => {
                    // Long reads lie between: a check may have found something since.
                    must_not_be_frozen(&self.manifest)?;
                    self.act(&candidate, swept)?;
                }
            }
        }
        Ok(())
    }

    /// Tells whether the preservation repository has the file, where that is asked for.
    fn is_handed_over(&self, candidate: &Candidate) -> Result<bool, Failure> {
        let row = &candidate.row;
        match (&row.sha256, self.settings.requires_deposit) {
            (_, false) => Ok(true),
            (None, true) => Ok(false),
            (Some(sha256), true) => {
                let asked = self.manifest.is_receipted(&row.name, sha256);
                asked.map_err(Failure::halt)
            }
        }
    }

    /// Tells whether a dry run has nothing to read: every file was found removable before, and is as it was.
    fn is_remembered(&self, candidate: &Candidate) -> Result<bool, Failure> {
        for original in &candidate.originals {
            let noted = self.manifest.harvested(&original.key());
            let is_same = noted.map_err(Failure::halt)?.is_some_and(|noted| {
                noted.finding == Finding::Removable && noted.stamp == original.stamp
            });
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Leaves a file where it is, and says why.
    fn leave(
        &mut self,
        candidate: &Candidate,
        unproven: &Unproven,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        let reason = unproven.reason();
        keep(&candidate.row, reason, swept);
        for original in &candidate.originals {
            match unproven {
                _ if candidate.is_leftover => {
                    swept.unaccounted += 1;
                    self.note(original, Finding::Unaccounted, reason)?;
                }
                Unproven::Original(path, _) if *path == original.path => {
                    self.note_unaccounted(original, reason, swept)?;
                }
                _ => self.forget(original)?,
            }
        }
        Ok(())
    }

    /// Notes a file that no row accounts for; at first sight ingest may be about to take it.
    fn note_unaccounted(
        &mut self,
        original: &Original,
        reason: &str,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        let noted = self.manifest.harvested(&original.key());
        let noted = noted.map_err(Failure::halt)?;
        let is_known = noted.is_some_and(|noted| noted.stamp == original.stamp);
        let finding = match is_known {
            true => Finding::Unaccounted,
            false => Finding::New,
        };
        swept.unaccounted += u64::from(is_known);
        self.note(original, finding, reason)
    }

    fn note(&mut self, original: &Original, finding: Finding, why: &str) -> Result<(), Failure> {
        let found = original.found(finding, why);
        self.manifest.note_harvested(&found).map_err(Failure::halt)
    }

    fn act(&mut self, candidate: &Candidate, swept: &mut Swept) -> Result<(), Failure> {
        for original in &candidate.originals {
            if !self.settings.remove {
                self.note(original, Finding::Removable, "")?;
                swept.count(original);
                continue;
            }
            match original.remove() {
                Ok(true) => {}
                Ok(false) => {
                    let changed = Unproven::Archive("it changed after it was read".into());
                    return self.leave(candidate, &changed, swept);
                }
                // Somebody else was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // Somebody else's directory: that is no reason to leave the others.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::warn!(file = candidate.row.name, reason = %error, "may not be removed: kept");
                    let refused = Unproven::Archive(format!("may not be removed: {error}"));
                    return self.leave(candidate, &refused, swept);
                }
                Err(error) => {
                    let shown = original.path.display();
                    return Err(Failure::halt(format!("cannot remove {shown}: {error}")));
                }
            }
            self.forget(original)?;
            swept.count(original);
            let shown = original.key();
            let line = format!("removed {}\n", printable(shown.as_bytes()));
            let _ = io::stdout().write_all(line.as_bytes());
        }
        if self.settings.remove && !candidate.is_leftover {
            let name = &candidate.row.name;
            self.manifest.cleaned(name).map_err(Failure::halt)?;
        }
        Ok(())
    }

    /// Forgets what was found of a file, if anything was.
    fn forget(&mut self, original: &Original) -> Result<(), Failure> {
        let key = original.key();
        if self
            .manifest
            .harvested(&key)
            .map_err(Failure::halt)?
            .is_some()
        {
            self.manifest
                .forget_harvested(&key)
                .map_err(Failure::halt)?;
        }
        Ok(())
    }

    /// Forgets what was found of files that are no longer there.
    fn forget_gone(&mut self, outbox: &Outbox) -> Result<(), Failure> {
        let mut after = String::new();
        loop {
            let noted = self.manifest.harvested_after(&after, ROWS);
            let noted = noted.map_err(Failure::halt)?;
            let Some(last) = noted.last() else {
                return Ok(());
            };
            after.clone_from(&last.path);
            for file in &noted {
                outbox.tick();
                if matches!(Original::look(Path::new(&file.path)), Ok(None)) {
                    let forgotten = self.manifest.forget_harvested(&file.path);
                    forgotten.map_err(Failure::halt)?;
                }
            }
        }
    }

    fn candidate(
        &self,
        row: FileRow,
        originals: Vec<Original>,
        is_leftover: bool,
    ) -> Result<Candidate, Failure> {
        Ok(Candidate {
            copies: self.manifest.copies(&row.name).map_err(Failure::halt)?,
            row,
            originals,
            is_leftover,
        })
    }

    /// Returns where a file was found, each place once: one that was touched, and nothing else, was found twice at one.
    fn places_of(&self, row: &FileRow) -> Result<Vec<String>, Failure> {
        let mut places: Vec<String> = row.source.iter().cloned().collect();
        places.extend(self.manifest.skipped(&row.name).map_err(Failure::halt)?);
        places.sort();
        places.dedup();
        Ok(places)
    }

    /// Returns the harvested files that a row leads to and that are still there, or why they may not be looked at.
    fn originals_of(&self, row: &FileRow) -> Result<Result<Vec<Original>, String>, Failure> {
        let mut originals = Vec::new();
        for place in self.places_of(row)? {
            let path = Path::new(&place);
            if !self.is_harvested(path) {
                return Ok(Err(format!("{place} is outside the harvested directories")));
            }
            match Original::look(path) {
                Ok(original) => originals.extend(original),
                Err(error) => return Ok(Err(format!("{place}: {error}"))),
            }
        }
        Ok(Ok(originals))
    }

    /// Tells whether a path lies under a harvested directory, with no way out of it.
    fn is_harvested(&self, path: &Path) -> bool {
        let plain = path
            .components()
            .all(|part| !matches!(part, Component::ParentDir));
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

/// Counts a file that stays, and says why.
fn keep(row: &FileRow, reason: &str, swept: &mut Swept) {
    swept.kept += 1;
    tracing::info!(file = row.name, reason, "kept");
}
