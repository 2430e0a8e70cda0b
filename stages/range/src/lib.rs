//! Builds one range of the next generation of the big index.
//!
//! * **Reads** a parcel with `range.json`: a plan of bigmerge and a range of it; that range of the last generation and of the new
//!   lines, from the directory of the index.
//! * **Writes** the part into `index/.building`: the lines of the range, its shard of ZipNum and piece of the summary; the parcel
//!   is consumed.
//! * **Never** changes a generation, and never shows half a part.
//! * **Defers** nothing. **Holds** a parcel that asks for no range. The stage stops where the index cannot be reached, and where
//!   the last generation is not what was written.
//! * **Again**: a range built twice gives the same bytes; a part that is there is left, and a plan that is gone is no longer needed.

use std::fs::File;
use std::path::{Path, PathBuf};

use ecluse_cdx::zipnum::{self, ZipNumOptions, ZipNumWriteError};
use ecluse_cdx::{LineShape, LineSource, MergeError, MergeOptions, ReadError, check, merge_into};
use ecluse_config::Bytes;
use ecluse_generation::{
    AskedToStop, CheckedSlice, DESCRIPTION, FLAT, FileSum, IndexDirectory, IndexError, IndexFile,
    NEW_LINES, PartShard, RangeOrder, RangePart, RangePlan, SUMMARY, SummedFile, WatchedReader,
    ZIPNUM, entry_of,
};
use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use serde::Deserialize;

/// The stage.
pub struct RangeStage {
    settings: Settings,
    index: PathBuf,
}

/// What `[stage.range]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// How much memory the buffers of a merge take.
    pub memory: Bytes,
}

impl Settings {
    fn options(&self) -> MergeOptions {
        MergeOptions {
            shape: LineShape::Capture,
            memory_bytes: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            ..MergeOptions::default()
        }
    }
}

impl Stage for RangeStage {
    const NAME: &'static str = "range";
    const ABOUT: &'static str = "Builds one range of the next generation of the big index";
    /// Bigmerge puts parts together in their order.
    const BY_URGENCY: bool = true;
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("archive.index", &home.archive.index);
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            settings,
            index: home.index(),
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.index()]
    }

    fn urgency(&mut self, parcel: &ParcelId, _path: &Path) -> u8 {
        let name = parcel.as_str().split('+').next().unwrap_or_default();
        let range = name
            .rsplit('-')
            .next()
            .and_then(|digits| digits.parse().ok());
        u8::MAX - range.unwrap_or(u8::MAX)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        let order = read_order(parcel)?;
        let index = IndexDirectory::of(&self.index, order.collection.as_deref());
        let index = index.map_err(Failure::hold)?;
        outbox.fact("plan", order.plan.as_str());
        outbox.fact("range", order.range as u64);
        let Some(plan) = index.plan(&order.plan).map_err(blame)? else {
            must_be_reached(&index)?;
            let plan = order.plan.as_str();
            tracing::info!(plan, range = order.range, "no longer needed");
            return Ok(());
        };
        let is_there = index.part(&order.plan, order.range).map_err(blame)?;
        if order.range >= plan.ranges() || is_there.is_some() {
            return Ok(());
        }
        let work = RangeWork {
            index: &index,
            plan: &plan,
            order: &order,
            options: self.settings.options(),
            outbox,
        };
        work.build()
    }
}

fn read_order(parcel: &Parcel) -> Result<RangeOrder, Failure> {
    let file = parcel.open(RangeOrder::FILE)?;
    let order = serde_json::from_reader(std::io::BufReader::new(file));
    order.map_err(|error| {
        let (id, file) = (parcel.id(), RangeOrder::FILE);
        Failure::hold(format!("{file} of {id} is damaged: {error}"))
    })
}

/// Fails where there is no index at all: a plan that is not there may be there for others.
fn must_be_reached(index: &IndexDirectory) -> Result<(), Failure> {
    if index.current_number().map_err(blame)?.is_some() {
        return Ok(());
    }
    Err(Failure::halt(format!(
        "there is no index in {}: a machine that builds ranges must reach archive.index",
        index.root().display()
    )))
}

/// One range to be built.
struct RangeWork<'a> {
    index: &'a IndexDirectory,
    plan: &'a RangePlan,
    order: &'a RangeOrder,
    options: MergeOptions,
    outbox: &'a Outbox,
}

impl RangeWork<'_> {
    fn build(&self) -> Result<(), Failure> {
        let last = self.last_flat()?;
        let range = self.order.range;
        let Some(begun) = self
            .index
            .begin_part(&self.order.plan, range)
            .map_err(blame)?
        else {
            return Ok(());
        };
        let built = self.write_part(&last, &begun).and_then(|part| {
            let shown = self.index.show_part(&self.order.plan, &begun, &part);
            shown.map_err(blame)?;
            Ok(part)
        });
        match built {
            Ok(part) => {
                let lines = part.flat.lines.unwrap_or_default();
                let plan = self.order.plan.as_str();
                tracing::info!(plan, range, lines, "range built");
                Ok(())
            }
            Err(failure) => {
                // What is left all the same goes with the plan.
                let _ = self.index.abandon(&begun);
                // Files of a plan that was dropped are gone: nobody is at fault.
                match self.index.plan(&self.order.plan) {
                    Ok(None) => must_be_reached(self.index),
                    _ => Err(failure),
                }
            }
        }
    }

    /// Returns what is known of the flat list of the last generation, which must be the one that the plan was made of.
    fn last_flat(&self) -> Result<IndexFile, Failure> {
        let number = self.plan.previous;
        let path = self.index.generation(number).join(DESCRIPTION);
        let described = self.index.describe(number).map_err(blame)?;
        let Some(described) = described else {
            return Err(Failure::halt(format!(
                "{} is not there: a machine that builds ranges must reach archive.index",
                path.display()
            )));
        };
        let of_plan = &self.plan.last;
        match described.file(FLAT) {
            Some(flat) if (flat.bytes, &flat.xxh128) == (of_plan.bytes, &of_plan.xxh128) => {
                Ok(flat.clone())
            }
            _ => Err(Failure::halt(format!(
                "{} tells of another {FLAT} than generation {} is built of",
                path.display(),
                self.plan.number
            ))),
        }
    }

    fn write_part(&self, last: &IndexFile, begun: &Path) -> Result<RangePart, Failure> {
        let range = self.order.range;
        let generation = self.index.generation(self.plan.previous);
        let plan = self.index.plan_directory(&self.order.plan);
        let last = self.slice(&generation.join(FLAT), last, self.plan.of_last(range))?;
        let new = self.slice(
            &plan.join(NEW_LINES),
            &self.plan.new,
            self.plan.of_new(range),
        )?;
        let path = begun.join(FLAT);
        let mut out = SummedFile::create(&path, FileSum::default(), self.outbox.signs())
            .map_err(|error| cannot("make", &path, &error))?;
        let stats = merge_into(last, vec![new], &mut out, &self.options);
        let stats = stats.map_err(|error| blame_merge(&error))?;
        let mut flat = out
            .finish(FLAT)
            .map_err(|error| cannot("sync", &path, &error))?;
        let counted = match self.plan.recheck {
            true => check(self.watched(&path)?, &self.options),
            false => Ok(stats),
        };
        let counted = counted.map_err(|error| blame_merge(&error))?;
        let expected = stats.lines_read - stats.duplicates;
        if (counted.lines_written, flat.bytes) != (expected, stats.bytes_written) {
            return Err(Failure::halt(format!(
                "{}: {} lines in {} bytes, expected {expected} in {}",
                path.display(),
                counted.lines_written,
                flat.bytes,
                stats.bytes_written
            )));
        }
        flat.lines = Some(counted.lines_written);
        Ok(RangePart {
            range,
            lines_read: stats.lines_read,
            duplicates: stats.duplicates,
            flat,
            zipnum: self.write_shard(begun)?,
        })
    }

    /// Opens a range of a list, every block of which is vouched for.
    fn slice(
        &self,
        path: &Path,
        described: &IndexFile,
        wanted: std::ops::Range<u64>,
    ) -> Result<LineSource, Failure> {
        let from = wanted.start;
        let slice = CheckedSlice::open(path, described, wanted)
            .map_err(|error| cannot("open", path, &error))?;
        let name = format!("{} from offset {from}", path.display());
        let reader = WatchedReader::new(slice, self.outbox.signs());
        Ok(LineSource::new(name, reader))
    }

    fn watched(&self, path: &Path) -> Result<LineSource, Failure> {
        let file = File::open(path).map_err(|error| cannot("open", path, &error))?;
        let reader = WatchedReader::new(file, self.outbox.signs());
        Ok(LineSource::new(path.display().to_string(), reader))
    }

    fn write_shard(&self, begun: &Path) -> Result<Option<PartShard>, Failure> {
        let Some(lines) = self.plan.zipnum_lines else {
            return Ok(None);
        };
        let options = ZipNumOptions {
            lines_per_member: lines.get() as usize,
            ..ZipNumOptions::default()
        };
        let source = self.watched(&begun.join(FLAT))?;
        let written = zipnum::write_shard(source, begun, ZIPNUM, self.order.range, &options);
        let mut written = written.map_err(|error| match &error {
            ZipNumWriteError::Read(ReadError::Read { source, .. }) if AskedToStop::is(source) => {
                Failure::give_back()
            }
            _ => Failure::halt(with_cause(&error)),
        })?;
        let path = begun.join(SUMMARY);
        let summary = (|| {
            let mut summary = File::create_new(&path)?;
            written.copy_summary_to(&mut summary)?;
            summary.sync_all()?;
            entry_of(&path, SUMMARY)
        })();
        let summary = summary.map_err(|error| cannot("write", &path, &error))?;
        let Some(shard) = &written.shard else {
            let problem = format!("{} has no line that ZipNum takes", begun.display());
            return Err(Failure::halt(problem));
        };
        let name = shard.path.file_name().unwrap_or_default().to_string_lossy();
        let entry = entry_of(&shard.path, &name);
        let mut entry = entry.map_err(|error| cannot("read", &shard.path, &error))?;
        entry.lines = Some(shard.lines);
        Ok(Some(PartShard {
            shard: entry,
            summary,
            members: written.members,
        }))
    }
}

/// Says who is at fault: never the parcel, which holds no lines.
fn blame_merge(error: &MergeError) -> Failure {
    match error {
        MergeError::Write { source, .. } | MergeError::Read(ReadError::Read { source, .. })
            if AskedToStop::is(source) =>
        {
            Failure::give_back()
        }
        _ => Failure::halt(with_cause(error)),
    }
}

fn blame(error: IndexError) -> Failure {
    Failure::halt(error)
}

/// Says what the machine would not do.
fn cannot(step: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::halt(format!("cannot {step} {}: {error}", path.display()))
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_merge() {
        let text = "[stage.range]\nmemory = \"3 MiB\"\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("range").unwrap();
        assert_eq!(settings.options().memory_bytes, 3 << 20);
    }
}
