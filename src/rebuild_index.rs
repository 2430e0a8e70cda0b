//! `ecluse rebuild index`: an index that was lost, made anew from the archive's files.
//!
//! Every file that the manifest has as published is read from a copy that is what ingest took, and indexed as the stage does it; lines are sorted within
//! the memory that `stage.index.sort-memory` allows. What is left of the lost index is put aside, never removed.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_cdx::path::{PathLine, write};
use ecluse_cdx::{Duplicates, MergeError, SortOptions, Sorter};
use ecluse_generation::{FLAT, IndexDirectory, NewList, PATHS};
use ecluse_index::{Format, Index};
use ecluse_manifest::{CopyKind, FileRow, FileState, Manifest};
use ecluse_stage::{Exit, Stage};
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::rebuild::must_be_stopped;

/// So many files are asked of the manifest at a time.
const PAGE: usize = 1000;

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    must_be_stopped(context)?;
    let manifest = crate::verify::open(context)?;
    let root = std::path::absolute(&context.root)?.join(&context.pipeline.archive.index);
    let mut collections = BTreeSet::new();
    each_published(&manifest, |row| {
        collections.insert(row.collection);
        Ok(())
    })?;
    let mut exit = Exit::Done;
    for collection in collections {
        let index = IndexDirectory::of(&root, collection.as_deref())?;
        let shown = index.root().display().to_string();
        if is_whole(&index) {
            let told = json!({ "index": shown, "outcome": "is whole" });
            context.tell(&format!("{shown} is whole: nothing was done"), told)?;
            continue;
        }
        if options.act.dry_run {
            let told = json!({ "index": shown, "outcome": "dry run" });
            context.tell(&format!("would make {shown} anew"), told)?;
            continue;
        }
        let rebuilt = Rebuilt::new(context, &manifest, collection)?.publish(&index)?;
        let outcome = format!(
            "{} lines of {} files; {} lines are missing, {} files have no good copy",
            rebuilt.lines, rebuilt.files, rebuilt.missing, rebuilt.unread
        );
        let line = Line {
            verb: "rebuild index",
            stage: "bigmerge",
            parcel: None,
            why: options.act.why.as_deref(),
            outcome: &outcome,
        };
        audit::write(context, &line)?;
        let told = json!({
            "index": shown, "generation": rebuilt.number, "lines": rebuilt.lines,
            "files": rebuilt.files, "missing": rebuilt.missing, "unread": rebuilt.unread,
        });
        context.tell(
            &format!(
                "made {shown} anew, as generation {}: {outcome}",
                rebuilt.number
            ),
            told,
        )?;
        if rebuilt.missing > 0 || rebuilt.unread > 0 {
            exit = Exit::Held;
        }
    }
    Ok(exit.into())
}

fn is_whole(index: &IndexDirectory) -> bool {
    matches!(index.current_number(), Ok(Some(number)) if index.whole(number).is_ok())
}

/// Calls `see` for each file that is said to be in an index.
pub(crate) fn each_published(
    manifest: &Manifest,
    mut see: impl FnMut(FileRow) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    for state in [FileState::Published, FileState::Cleaned] {
        let mut after = String::new();
        loop {
            let rows = manifest.in_state(state, &after, PAGE)?;
            let Some(last) = rows.last() else {
                break;
            };
            after.clone_from(&last.name);
            rows.into_iter().try_for_each(&mut see)?;
        }
    }
    Ok(())
}

/// The index of one collection, made anew.
struct Rebuilt<'a> {
    context: &'a DriverContext,
    manifest: &'a Manifest,
    collection: Option<String>,
    settings: ecluse_index::Settings,
    number: u64,
    files: u64,
    lines: u64,
    /// Lines that the manifest counted and that no copy gave.
    missing: u64,
    /// Files of which there is no good copy.
    unread: u64,
}

impl<'a> Rebuilt<'a> {
    fn new(
        context: &'a DriverContext,
        manifest: &'a Manifest,
        collection: Option<String>,
    ) -> Result<Self, Trouble> {
        let settings: Result<ecluse_index::Settings, _> =
            context.pipeline.stage_settings(Index::NAME);
        let mut settings =
            settings.map_err(|error| Trouble::new(Exit::Config, error.to_string()))?;
        settings.format = Format::Cdxj;
        Ok(Self {
            context,
            manifest,
            collection,
            settings,
            number: 0,
            files: 0,
            lines: 0,
            missing: 0,
            unread: 0,
        })
    }

    fn publish(mut self, index: &IndexDirectory) -> Result<Self, Trouble> {
        index.prepare()?;
        let Some(lock) = index.try_lock()? else {
            let line = format!("another is at work on {}", index.root().display());
            return Err(Trouble::new(Exit::Deferred, line));
        };
        let (flat, paths) = self.read(index.root())?;
        let aside = jiff::Timestamp::now().strftime("old-%Y%m%dT%H%M%S%3fZ");
        let lists: Vec<NewList<'_, Trouble>> = vec![
            (FLAT, Box::new(|out| written(flat, out))),
            (PATHS, Box::new(|out| written(paths, out))),
        ];
        self.number = index.publish_anew(&lock, &aside.to_string(), lists)?;
        let described = index.describe(self.number)?;
        self.lines = described.map_or(0, |generation| generation.lines);
        Ok(self)
    }

    /// Reads every file, and returns its lines and where it is, to be sorted.
    fn read(&mut self, temporary: &Path) -> Result<(Sorter, Sorter), Trouble> {
        let sorter = || {
            Sorter::new(SortOptions {
                duplicates: Duplicates::Remove,
                memory_bytes: usize::try_from(self.settings.sort_memory.0).unwrap_or(usize::MAX),
                temporary: temporary.to_owned(),
            })
        };
        let mut lines = LineSplitter::new(sorter());
        let mut paths = sorter();
        let manifest = self.manifest;
        each_published(manifest, |row| {
            if row.collection != self.collection {
                return Ok(());
            }
            self.files += 1;
            let wanted = row.captures.unwrap_or(0);
            let before = lines.count;
            match self.context.good_copy(manifest, &row) {
                Ok(copy) => self.index(copy, &mut lines)?,
                Err(trouble) => {
                    // Of a file without lines nothing would be missing, and still nobody has read it.
                    self.unread += 1;
                    self.tell(&format!("{}: {}", row.name, trouble.line))?;
                }
            }
            let found = lines.count - before;
            if found < wanted {
                self.missing += wanted - found;
                self.tell(&format!("{}: {found} of its {wanted} lines", row.name))?;
            }
            for copy in manifest.copies(&row.name)? {
                if copy.kind == CopyKind::Stored {
                    let mut line = Vec::new();
                    let entry = PathLine {
                        filename: &row.name,
                        location: &copy.place,
                    };
                    write(entry, &mut line).map_err(|fault| unsorted(&fault))?;
                    paths.push(&line).map_err(|error| unsorted(&error))?;
                }
            }
            Ok(())
        })?;
        Ok((lines.sorter, paths))
    }

    fn index(&self, copy: PathBuf, lines: &mut LineSplitter) -> Result<(), Trouble> {
        // A damaged file has the lines that it had.
        Index::filter(self.settings.clone(), &[copy], lines)?;
        Ok(())
    }

    fn tell(&self, line: &str) -> Result<(), Trouble> {
        match self.context.json {
            true => Ok(()),
            false => self.context.say(line),
        }
    }
}

fn written(sorter: Sorter, mut out: &mut dyn Write) -> Result<u64, Trouble> {
    let stats = sorter.finish(&mut out).map_err(|error| unsorted(&error))?;
    Ok(stats.lines_written)
}

fn unsorted(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(Exit::Machine, error)
}

/// Takes whole lines out of what is written to it.
struct LineSplitter {
    sorter: Sorter,
    line: Vec<u8>,
    count: u64,
}

impl LineSplitter {
    fn new(sorter: Sorter) -> Self {
        Self {
            sorter,
            line: Vec::new(),
            count: 0,
        }
    }
}

impl Write for LineSplitter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.ends_with(b"\n") {
                let pushed: Result<(), MergeError> = self.sorter.push(&self.line);
                pushed.map_err(io::Error::other)?;
                self.line.clear();
                self.count += 1;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
