//! A generation that is built in ranges of keys, by machines that reach the directory of the index.
//!
//! ```text
//! .building/8-days-5c0f/            the plan of generation 8; whoever has the lock makes and removes it
//! .building/8-days-5c0f/plan.json   where the last generation and the new lines are cut
//! .building/8-days-5c0f/new.cdxj    the new lines
//! .building/8-days-5c0f/00003/      a part: the lines of a range, its shard, its piece of the summary, `part.json`
//! .building/8-days-5c0f/.tmp-3-X/   a part being built; X is its builder's own
//! ```
//!
//! A plan and a part appear whole, by one rename, and never change. A part follows from its plan and the last generation alone:
//! of two builders of one range the first wins, and the other has made the same. Whose plan is gone is no longer needed.

#![expect(
    clippy::disallowed_methods,
    reason = "plans and parts are made and removed here alone"
)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ecluse_spool::ParcelId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::directory::{
    BUILDING, BuilderLock, IndexDirectory, IndexError, failed, nobodys_name, sync,
};
use crate::generation::IndexFile;

/// The new lines of a plan.
pub const NEW_LINES: &str = "new.cdxj";

/// The directory of all plans.
const PLANS: &str = ".building";
const PLAN: &str = "plan.json";
const PART: &str = "part.json";

/// What a generation is built of, and where it is cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RangePlan {
    /// The generation that it becomes.
    pub number: u64,
    /// The last generation.
    pub previous: u64,
    /// The parcel with the new lines.
    pub parcel: ParcelId,
    /// The flat list of the last generation; the sums of its blocks stand in `generation.json`.
    pub last: IndexFile,
    /// Where each range begins in it, and where the last one ends.
    pub last_cuts: Vec<u64>,
    /// The new lines.
    pub new: IndexFile,
    /// Where each range begins in them, and where the last one ends.
    pub new_cuts: Vec<u64>,
    /// How many lines a gzip member of ZipNum has; none: there is no ZipNum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zipnum_lines: Option<NonZeroU32>,
    /// Every line of a part is read again.
    pub recheck: bool,
}

impl RangePlan {
    /// Returns what it is called.
    ///
    /// # Errors
    /// When the name of its parcel is too long.
    pub fn name(&self) -> Result<ParcelId, ecluse_spool::BadName> {
        ParcelId::new(&format!("{}-{}", self.number, self.parcel))
    }

    /// Returns how many ranges it has.
    pub fn ranges(&self) -> usize {
        self.last_cuts
            .len()
            .min(self.new_cuts.len())
            .saturating_sub(1)
    }

    /// Returns where a range lies in the last generation.
    pub fn of_last(&self, range: usize) -> Range<u64> {
        self.last_cuts[range]..self.last_cuts[range + 1]
    }

    /// Returns where a range lies in the new lines.
    pub fn of_new(&self, range: usize) -> Range<u64> {
        self.new_cuts[range]..self.new_cuts[range + 1]
    }
}

/// The file of a parcel that asks for one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RangeOrder {
    /// The collection, where it has an index of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// The plan.
    pub plan: ParcelId,
    /// The range, from 0.
    pub range: usize,
}

impl RangeOrder {
    /// What its parcels are.
    pub const KIND: &str = "range";
    /// The file it stands in.
    pub const FILE: &str = "range.json";
}

/// What was made of one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RangePart {
    /// The range, from 0.
    pub range: usize,
    /// Lines of the last generation and new ones together.
    pub lines_read: u64,
    /// Lines that were left out: they were there already.
    pub duplicates: u64,
    /// The part of the flat list.
    pub flat: IndexFile,
    /// Its shard of ZipNum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zipnum: Option<PartShard>,
}

/// A shard of ZipNum, and its piece of the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PartShard {
    /// The shard.
    pub shard: IndexFile,
    /// Its piece of the summary, the members counted from 1.
    pub summary: IndexFile,
    /// Its gzip members.
    pub members: u64,
}

impl IndexDirectory {
    /// Returns the directory of a plan.
    pub fn plan_directory(&self, plan: &ParcelId) -> PathBuf {
        self.root().join(PLANS).join(plan.as_str())
    }

    /// Returns a plan; none where it is not there, or no longer.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn plan(&self, plan: &ParcelId) -> Result<Option<RangePlan>, IndexError> {
        read(&self.plan_directory(plan).join(PLAN))
    }

    /// Returns all plans.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn plans(&self) -> Result<Vec<RangePlan>, IndexError> {
        let mut plans = Vec::new();
        for name in self.names_of_plans()? {
            if let Ok(name) = ParcelId::new(&name) {
                plans.extend(self.plan(&name)?);
            }
        }
        Ok(plans)
    }

    /// Returns what lies beside plans, whole or not.
    fn names_of_plans(&self) -> Result<Vec<String>, IndexError> {
        let path = self.root().join(PLANS);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("read", &path))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    /// Makes the directory of a plan of generation `number`, which nobody sees yet.
    ///
    /// # Errors
    /// When the lock is lost, or it cannot be made.
    pub fn begin_plan(&self, lock: &BuilderLock, number: u64) -> Result<PathBuf, IndexError> {
        self.must_be_locked(lock)?;
        let path = self.root().join(PLANS).join(nobodys_name(number));
        fs::create_dir_all(&path).map_err(failed("make", &path))?;
        sync(self.root())?;
        Ok(path)
    }

    /// Shows a plan whose new lines are there and synced.
    ///
    /// # Errors
    /// When the lock is lost, or it cannot be written.
    pub fn show_plan(
        &self,
        lock: &BuilderLock,
        begun: &Path,
        name: &ParcelId,
        plan: &RangePlan,
    ) -> Result<(), IndexError> {
        write(&begun.join(PLAN), plan)?;
        sync(begun)?;
        self.must_be_locked(lock)?;
        let path = self.plan_directory(name);
        fs::rename(begun, &path).map_err(failed("show", &path))?;
        sync(&self.root().join(PLANS))
    }

    /// Removes every plan but those that `keep` says, and what a dead builder left of others.
    ///
    /// # Errors
    /// When the lock is lost, or one cannot be removed.
    pub fn drop_plans(
        &self,
        lock: &BuilderLock,
        keep: impl Fn(&RangePlan) -> bool,
    ) -> Result<(), IndexError> {
        self.must_be_locked(lock)?;
        for name in self.names_of_plans()? {
            let mut path = self.root().join(PLANS).join(&name);
            if let Ok(id) = ParcelId::new(&name) {
                match self.plan(&id) {
                    Ok(Some(plan)) if keep(&plan) => continue,
                    Err(error @ IndexError::Io { .. }) => return Err(error),
                    _ => {}
                }
                // Renamed first: half a plan must not look like one.
                let old = self.root().join(PLANS).join(nobodys_name("old"));
                fs::rename(&path, &old).map_err(failed("retire", &path))?;
                path = old;
            }
            match fs::remove_dir_all(&path) {
                // A builder that came too late may have put something there: the next one removes it.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => removed.map_err(failed("remove", &path))?,
            }
        }
        Ok(())
    }

    fn part_directory(&self, plan: &ParcelId, range: usize) -> PathBuf {
        self.plan_directory(plan).join(format!("{range:05}"))
    }

    /// Returns a part and its directory; none where it is not there yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn part(
        &self,
        plan: &ParcelId,
        range: usize,
    ) -> Result<Option<(PathBuf, RangePart)>, IndexError> {
        let path = self.part_directory(plan, range);
        let part: Option<RangePart> = read(&path.join(PART))?;
        let part = part.filter(|part| part.range == range);
        Ok(part.map(|part| (path, part)))
    }

    /// Returns the ranges that have no part yet.
    ///
    /// # Errors
    /// When it cannot be looked.
    pub fn missing_parts(&self, plan: &ParcelId, ranges: usize) -> Result<Vec<usize>, IndexError> {
        let mut missing = Vec::new();
        for range in 0..ranges {
            let path = self.part_directory(plan, range).join(PART);
            if !fs::exists(&path).map_err(failed("look at", &path))? {
                missing.push(range);
            }
        }
        Ok(missing)
    }

    /// Makes the directory a part is built in, and removes what a dead builder of it left. Nobody else has its name. None
    /// where the plan is gone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin_part(&self, plan: &ParcelId, range: usize) -> Result<Option<PathBuf>, IndexError> {
        let directory = self.plan_directory(plan);
        let of_range = format!("{BUILDING}{range}-");
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&of_range) {
                // What is left is removed with the plan.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = directory.join(nobodys_name(range));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("make", &path)(error)),
        }
    }

    /// Shows a part whose files are synced, unless it is there: then it is the same.
    ///
    /// # Errors
    /// When it cannot be written or shown.
    pub fn show_part(
        &self,
        plan: &ParcelId,
        begun: &Path,
        part: &RangePart,
    ) -> Result<(), IndexError> {
        write(&begun.join(PART), part)?;
        sync(begun)?;
        let path = self.part_directory(plan, part.range);
        match fs::rename(begun, &path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                self.abandon(begun)?;
            }
            shown => shown.map_err(failed("show", &path))?,
        }
        sync(&self.plan_directory(plan))
    }

    /// Brings a file of a part into the directory of the generation, under a name of its own.
    ///
    /// # Errors
    /// When it cannot be linked.
    pub fn take_from_part(&self, file: &Path, to: &Path) -> Result<(), IndexError> {
        fs::hard_link(file, to).map_err(failed("link", to))
    }
}

fn read<Content: DeserializeOwned>(path: &Path) -> Result<Option<Content>, IndexError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let content = serde_json::from_slice(&bytes);
    content.map(Some).map_err(|error| IndexError::Damaged {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn write(path: &Path, content: &impl Serialize) -> Result<(), IndexError> {
    let written = || {
        let mut text = serde_json::to_vec_pretty(content)?;
        text.push(b'\n');
        let mut file = File::create_new(path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    written().map_err(failed("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: u64) -> IndexFile {
        IndexFile {
            name: "x".into(),
            bytes,
            lines: Some(1),
            xxh128: String::new(),
            blocks: None,
        }
    }

    fn plan(number: u64) -> RangePlan {
        RangePlan {
            number,
            previous: number - 1,
            parcel: ParcelId::new("days-1").unwrap(),
            last: entry(9),
            last_cuts: vec![0, 4, 9],
            new: entry(3),
            new_cuts: vec![0, 0, 3],
            zipnum_lines: None,
            recheck: false,
        }
    }

    fn part(range: usize) -> RangePart {
        RangePart {
            range,
            lines_read: 2,
            duplicates: 0,
            flat: entry(5),
            zipnum: None,
        }
    }

    #[test]
    fn plans_and_parts_appear_whole_and_the_first_part_stays() {
        let dir = tempfile::tempdir().unwrap();
        let index = IndexDirectory::of(dir.path(), None).unwrap();
        index.prepare().unwrap();
        let lock = index.try_lock().unwrap().unwrap();
        assert_eq!(index.plans().unwrap(), []);
        let (eight, nine) = (plan(8), plan(9));
        for plan in [&eight, &nine] {
            let begun = index.begin_plan(&lock, plan.number).unwrap();
            let name = plan.name().unwrap();
            assert_eq!(index.plan(&name).unwrap(), None);
            index.show_plan(&lock, &begun, &name, plan).unwrap();
            assert_eq!(index.plan(&name).unwrap().as_ref(), Some(plan));
        }
        let name = eight.name().unwrap();
        assert_eq!(
            (eight.ranges(), eight.of_last(1), eight.of_new(0)),
            (2, 4..9, 0..0)
        );
        let builders = [(), ()].map(|()| index.begin_part(&name, 1).unwrap().unwrap());
        assert!(
            !builders[0].exists(),
            "of two builders of a range the later lives"
        );
        let twin = builders[1].with_extension("twin");
        fs::create_dir(&twin).unwrap();
        assert_eq!(index.missing_parts(&name, 2).unwrap(), [0, 1]);
        for builder in [&builders[1], &twin] {
            index.show_part(&name, builder, &part(1)).unwrap();
            assert!(!builder.exists());
        }
        assert_eq!(index.missing_parts(&name, 2).unwrap(), [0]);
        assert_eq!(index.part(&name, 0).unwrap(), None);
        assert_eq!(index.part(&name, 1).unwrap().unwrap().1, part(1));

        // What a dead builder left goes with the plans that nobody needs.
        index.begin_plan(&lock, 10).unwrap();
        index.drop_plans(&lock, |plan| plan.number == 9).unwrap();
        assert_eq!(index.plans().unwrap(), [nine]);
        assert_eq!(index.begin_part(&name, 0).unwrap(), None);
        assert_eq!(index.names_of_plans().unwrap(), ["9-days-1"]);
    }
}
