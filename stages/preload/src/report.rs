//! The directory of a run's reports: built beside the others, and shown by one rename.
//!
//! A run that is done again finds its directory there, with the same bytes, and leaves it.

#![expect(
    clippy::disallowed_methods,
    reason = "reports are no parcels: they are for people, and their directories are made here alone"
)]

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ecluse_names::NameLine;
use ecluse_stage::Failure;

use crate::run::NameSink;
use crate::statistics::Statistics;

/// What the directory of reports being written is called, before the run.
const BUILDING: &str = ".tmp-";

/// The reports of a run, being written.
pub(crate) struct RunReport {
    root: PathBuf,
    run: String,
    building: BuildingDirectory,
    rejects: zstd::Encoder<'static, BufWriter<File>>,
}

/// A directory that goes with what is in it unless it was shown.
struct BuildingDirectory(PathBuf);

impl Drop for BuildingDirectory {
    fn drop(&mut self) {
        // It may be shown by now, under another name; what cannot be removed is removed by the same run done again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl RunReport {
    /// Begins the reports of a run, in place of what a dead worker left of it.
    pub(crate) fn begin(root: &Path, run: &str) -> Result<Self, Failure> {
        fs::create_dir_all(root).map_err(cannot("make", root))?;
        let begin = format!("{BUILDING}{run}-");
        for entry in fs::read_dir(root).map_err(cannot("read", root))? {
            let entry = entry.map_err(cannot("read", root))?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(begin.as_bytes())
            {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(cannot("remove", &path))?;
            }
        }
        let builder = RandomState::new().hash_one(std::process::id());
        let building = root.join(format!("{begin}{builder:016x}"));
        fs::create_dir(&building).map_err(cannot("make", &building))?;
        let building = BuildingDirectory(building);
        let path = building.0.join("rejects.tsv.zst");
        let file = BufWriter::with_capacity(
            256 << 10,
            File::create_new(&path).map_err(cannot("make", &path))?,
        );
        Ok(Self {
            root: root.to_owned(),
            run: run.to_owned(),
            rejects: zstd::Encoder::new(file, 1).map_err(cannot("write", &path))?,
            building,
        })
    }

    /// Where rejected lines are written.
    pub(crate) fn rejects(&mut self) -> &mut dyn Write {
        &mut self.rejects
    }

    /// Begins the list of names, for a run whose names go nowhere else.
    pub(crate) fn names(&self) -> Result<ReportedNames, Failure> {
        let names = new_file(&self.building.0.join("names.tsv"))?;
        let building = self.building.0.clone();
        Ok(ReportedNames {
            names,
            seeds: None,
            building,
        })
    }

    /// Makes the reports durable and shows them.
    pub(crate) fn publish(self, figures: &Statistics) -> Result<(), Failure> {
        let Self {
            root,
            run,
            building,
            rejects,
        } = self;
        let path = building.0.join("rejects.tsv.zst");
        let finished = rejects.finish().and_then(sync);
        finished.map_err(cannot("write", &path))?;
        let mut json = serde_json::to_string_pretty(&figures.json())
            .expect("it holds only strings and numbers");
        json.push('\n');
        for (name, text) in [
            ("statistics.txt", figures.text()),
            ("statistics.csv", figures.csv()),
            ("statistics.json", json),
        ] {
            let path = building.0.join(name);
            let mut file = new_file(&path)?;
            let written = file.write_all(text.as_bytes()).and_then(|()| sync(file));
            written.map_err(cannot("write", &path))?;
        }
        sync_directory(&building.0)?;
        let path = root.join(&run);
        match fs::rename(&building.0, &path) {
            Ok(()) => {}
            // Done before, with the same bytes: this one goes.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) => {}
            Err(error) => return Err(cannot("show", &path)(error)),
        }
        sync_directory(&root)
    }
}

/// The list of names in a report.
pub(crate) struct ReportedNames {
    names: BufWriter<File>,
    seeds: Option<BufWriter<File>>,
    building: PathBuf,
}

impl ReportedNames {
    /// Makes the list durable.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        sync(self.names).map_err(cannot("write", &self.building))?;
        self.seeds
            .map_or(Ok(()), sync)
            .map_err(cannot("write", &self.building))
    }
}

impl NameSink for ReportedNames {
    fn name(&mut self, line: &NameLine<'_>) -> io::Result<()> {
        line.write(&mut self.names)
    }

    fn seed(&mut self, name: &str, source: &str, url: &str) -> io::Result<()> {
        if self.seeds.is_none() {
            let file = File::create_new(self.building.join("seeds.tsv"))?;
            self.seeds = Some(BufWriter::new(file));
        }
        let seeds = self.seeds.as_mut().expect("it was made just now");
        writeln!(seeds, "{name}\t{source}\t{url}")
    }
}

fn new_file(path: &Path) -> Result<BufWriter<File>, Failure> {
    let file = File::create_new(path).map_err(cannot("make", path))?;
    Ok(BufWriter::with_capacity(256 << 10, file))
}

fn sync(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

fn sync_directory(path: &Path) -> Result<(), Failure> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(cannot("sync", path))
}

fn cannot(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::halt(format!("cannot {step} {}: {error}", path.display()))
}
