//! The directory of runs: what became of each run of each harvest, and since when a harvest is known.
//!
//! `runs/HARVEST/since` is when the definition was first seen; `runs/HARVEST/TIME.json` a run that waits or was ordered. Only
//! plan writes there. Each file is written whole, so that a reader sees the old one or the new one.

#![expect(
    clippy::disallowed_methods,
    reason = "runs are no parcels: their files are for people, and are made here alone"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ecluse_stage::Failure;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::planning::{CheckProgress, HarvestPlan};
use crate::refreshing::RefreshSummary;

/// The directory of runs.
#[derive(Debug, Clone)]
pub struct RunDirectory(PathBuf);

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunRecord {
    /// The harvest.
    pub harvest: String,
    /// When it was due.
    #[serde(with = "time_text")]
    pub due: Timestamp,
    /// Whether it waits or was ordered.
    pub state: RunState,
    /// When that was written.
    #[serde(with = "time_text")]
    pub at: Timestamp,
    /// Runs before it that were missed, and are not made up for.
    pub missed: u64,
    /// Domains that DNS was asked about in time, of how many: while it waits for them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<(u64, u64)>,
    /// Of the others, domains that DNS denied once, and is asked about again.
    #[serde(skip_serializing_if = "is_none", default)]
    pub denied: u64,
    /// Its jobs.
    #[serde(default)]
    pub jobs: u64,
    /// Domains in them.
    #[serde(default)]
    pub domains: u64,
    /// Objects expected of them.
    #[serde(default)]
    pub objects: u64,
    /// Bytes expected of them.
    #[serde(default)]
    pub bytes: u64,
    /// How full the jobs are on average.
    #[serde(default)]
    pub fill: f64,
    /// Domains that were not taken, by reason.
    #[serde(default)]
    pub left_out: BTreeMap<String, u64>,
    /// The generation of the register it was made from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generation: Option<u64>,
    /// What it visits of what the archive knows, where it does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refresh: Option<RefreshSummary>,
}

/// Whether a run waits or was ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// For DNS.
    Waiting,
    /// It waited until the next one was due, and is not made up for.
    Missed,
    /// Its orders are made, or will be at once.
    Due,
    /// Its orders are made.
    Ordered,
}

/// A time in a file: `2026-11-20T06:00:00Z`.
pub(crate) mod time_text {
    use jiff::Timestamp;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(time)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// What became of asking DNS again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RecheckRecord {
    /// The day, `YYYYMMDD`.
    pub(crate) day: String,
    /// Parcels of names that were given to dns-filter; none while they are being made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) parcels: Option<u32>,
    /// Names in them.
    #[serde(default)]
    pub(crate) names: u64,
    /// The answers are in the register.
    #[serde(default)]
    pub(crate) is_over: bool,
}

/// A run was late if it begins so long after it was due.
const LATE_SECONDS: i64 = 600;

impl RunRecord {
    /// Returns the record of a run of which nothing is done yet.
    pub fn new(harvest: &str, due: Timestamp, at: Timestamp, missed: u64) -> Self {
        Self {
            harvest: harvest.to_owned(),
            due,
            state: RunState::Due,
            at,
            missed,
            checked: None,
            denied: 0,
            jobs: 0,
            domains: 0,
            objects: 0,
            bytes: 0,
            fill: 0.0,
            left_out: BTreeMap::new(),
            generation: None,
            refresh: None,
        }
    }

    /// Says that it waits.
    pub fn waits(mut self, progress: CheckProgress) -> Self {
        self.state = RunState::Waiting;
        self.checked = Some((progress.checked, progress.of));
        self.denied = progress.denied;
        self
    }

    /// Says what was ordered.
    pub fn ordered(mut self, plan: &HarvestPlan) -> Self {
        self.state = RunState::Ordered;
        self.checked = None;
        self.denied = 0;
        self.jobs = plan.jobs.len() as u64;
        self.domains = plan.domains;
        self.objects = plan.objects;
        self.bytes = plan.bytes;
        self.fill = (plan.fill() * 1000.0).round() / 1000.0;
        let left_out = plan.left_out.iter();
        self.left_out = left_out
            .map(|(reason, count)| ((*reason).to_owned(), *count))
            .collect();
        self.generation = plan.generation;
        self.refresh.clone_from(&plan.refresh);
        self
    }

    /// Returns by how much it was late, in seconds; none where it was not.
    pub fn late_seconds(&self) -> Option<i64> {
        Some(self.at.as_second() - self.due.as_second()).filter(|late| *late >= LATE_SECONDS)
    }
}

impl RunDirectory {
    /// Returns the directory at a path; nothing is made.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns since when a harvest is known.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn since(&self, harvest: &str) -> Result<Option<Timestamp>, Failure> {
        let path = self.0.join(harvest).join("since");
        let text = read(&path)?;
        let time = text.map(|text| text.trim().parse().map_err(|_| broken(&path)));
        time.transpose()
    }

    /// Puts down that a harvest is known from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_since(&self, harvest: &str, now: Timestamp) -> Result<(), Failure> {
        write_whole(
            &self.0.join(harvest).join("since"),
            format!("{now}\n").as_bytes(),
        )
    }

    /// Returns the record of a run.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn run(&self, harvest: &str, due: Timestamp) -> Result<Option<RunRecord>, Failure> {
        read_run(&self.path(harvest, due))
    }

    /// Returns the last run of a harvest.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn last_run(&self, harvest: &str) -> Result<Option<RunRecord>, Failure> {
        let last = self.run_files(harvest)?.pop();
        last.map_or(Ok(None), |path| read_run(&path))
    }

    /// Returns the last run before a time whose orders were made, and puts down that those after it, which waited until then, are missed.
    ///
    /// # Errors
    /// When one cannot be read or written.
    pub(crate) fn last_begun(
        &self,
        harvest: &str,
        before: Timestamp,
    ) -> Result<Option<RunRecord>, Failure> {
        for path in self.run_files(harvest)?.iter().rev() {
            let Some(mut run) = read_run(path)?.filter(|run| run.due < before) else {
                continue;
            };
            match run.state {
                RunState::Due | RunState::Ordered => return Ok(Some(run)),
                RunState::Waiting => {
                    run.state = RunState::Missed;
                    self.write(&run)?;
                }
                RunState::Missed => {}
            }
        }
        Ok(None)
    }

    /// Returns the records of the runs of a harvest, in order.
    fn run_files(&self, harvest: &str) -> Result<Vec<PathBuf>, Failure> {
        let directory = self.0.join(harvest);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(cannot("read", &directory, &error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry
                .map_err(|error| cannot("read", &directory, &error))?
                .path();
            if path.extension().is_some_and(|end| end == "json") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Writes the record of a run, unless it says so already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, record: &RunRecord) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(record).map_err(Failure::halt)?;
        text.push('\n');
        write_whole(&self.path(&record.harvest, record.due), text.as_bytes())
    }

    /// Returns what was last heard of librarians' rules: the digest of the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn forced(&self) -> Result<String, Failure> {
        Ok(read(&self.0.join(".forced"))?
            .unwrap_or_default()
            .trim()
            .to_owned())
    }

    /// Puts down that they are in the register.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn set_forced(&self, digest: &str) -> Result<(), Failure> {
        write_whole(&self.0.join(".forced"), format!("{digest}\n").as_bytes())
    }

    /// Returns what became of asking DNS again, the last time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn recheck(&self) -> Result<Option<RecheckRecord>, Failure> {
        let path = self.0.join(".recheck");
        let record =
            read(&path)?.map(|text| serde_json::from_str(&text).map_err(|_| broken(&path)));
        record.transpose()
    }

    /// Puts that down.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn set_recheck(&self, record: &RecheckRecord) -> Result<(), Failure> {
        let mut text = serde_json::to_string(record).map_err(Failure::halt)?;
        text.push('\n');
        write_whole(&self.0.join(".recheck"), text.as_bytes())
    }

    /// Returns where the visits of a run are.
    pub fn visits(&self, harvest: &str, due: Timestamp) -> PathBuf {
        let name = format!("{}.visits.tsv.zst", stamp(due));
        self.0.join(harvest).join(name)
    }

    /// Returns the visits of all runs of all harvests: harvest, time of the run, and file; the newest first.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn all_visits(&self) -> Result<Vec<(String, String, PathBuf)>, Failure> {
        let mut found = Vec::new();
        let entries = |path: &Path| match fs::read_dir(path) {
            Ok(entries) => entries
                .collect::<io::Result<Vec<_>>>()
                .map_err(|error| cannot("read", path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(cannot("read", path, &error)),
        };
        for harvest in entries(&self.0)?
            .into_iter()
            .filter(|entry| entry.path().is_dir())
        {
            for entry in entries(&harvest.path())? {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(time) = name.strip_suffix(".visits.tsv.zst") {
                    let harvest = harvest.file_name().to_string_lossy().into_owned();
                    found.push((harvest, time.to_owned(), entry.path()));
                }
            }
        }
        found.sort_by(|one, other| (&other.1, &one.0).cmp(&(&one.1, &other.0)));
        Ok(found)
    }

    /// Keeps the visits of a run.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn keep_visits(
        &self,
        harvest: &str,
        due: Timestamp,
        visits: &mut File,
    ) -> Result<(), Failure> {
        let path = self.visits(harvest, due);
        let part = path.with_file_name(format!(".{}.visits.part", stamp(due)));
        let mut written = || -> io::Result<()> {
            let directory = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(directory)?;
            let mut file = File::create(&part)?;
            io::copy(visits, &mut file)?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(directory)?.sync_all()
        };
        written().map_err(|error| cannot("write", &path, &error))
    }

    fn path(&self, harvest: &str, due: Timestamp) -> PathBuf {
        self.0.join(harvest).join(format!("{}.json", stamp(due)))
    }
}

/// A time as it stands in names.
pub(crate) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y%m%d%H%M%S").to_string()
}

fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

fn read_run(path: &Path) -> Result<Option<RunRecord>, Failure> {
    let record = read(path)?.map(|text| serde_json::from_str(&text).map_err(|_| broken(path)));
    record.transpose()
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let part = path.with_file_name(format!(
        ".{}.part",
        path.file_name().unwrap_or_default().to_string_lossy()
    ));
    if fs::read(path).is_ok_and(|known| known == bytes) {
        // A kill may have left it, before or after.
        let _ = fs::remove_file(&part);
        return Ok(());
    }
    let written = || -> io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        File::open(directory)?.sync_all()
    };
    written().map_err(|error| cannot("write", path, &error))
}

fn cannot(step: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::halt(format!("cannot {step} {}: {error}", path.display()))
}

fn broken(path: &Path) -> Failure {
    Failure::halt(format!(
        "{} is not as it was written; if nobody needs it, remove it",
        path.display()
    ))
}
