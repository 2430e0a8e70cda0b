//! `ecluse rebuild --from PACKAGES`: an archive of which nothing is left but its packages.
//!
//! Every package is read whole and must be valid, before anything is written. Its archive files go back to where their copies were, its lines into a new
//! manifest, the papers of its job into the job's directory; the index is made last, from the files. What is there already is
//! left alone, so that the work can be begun again after a kill.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_holding::{CopyDirectory, Fixity, Proof, open_plain};
use ecluse_manifest::{
    CheckOutcome, CopyKind, CopyRecord, FileRecord, PackageRow, PlaceRoot, Rebuild,
};
use ecluse_package::{PackageHeading, PackageRows, PackedRow};
use ecluse_spool::{Fs, RealFs};
use ecluse_stage::Exit;
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::job_papers;
use crate::rebuild::{UNKNOWN, beside, must_be_stopped};
use crate::show;

/// The file that fixes a package.
pub(crate) const SEAL: &str = "tagmanifest-sha512.txt";

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
    from: &Path,
) -> Result<ExitCode, Trouble> {
    must_be_stopped(context)?;
    let path = crate::verify::manifest_path(context);
    if path.exists() {
        return Err(Trouble::usage(format!(
            "there is a manifest, {}: this is no lost archive; `ecluse rebuild manifest` and `ecluse rebuild index` mend one",
            path.display()
        )));
    }
    let packages = packages_in(from)?;
    if packages.is_empty() {
        let line = format!("there is no package in {}", from.display());
        return Err(Trouble::usage(line));
    }
    let (good, bad) = sorted_out(context, &packages)?;
    if bad > 0 && !options.leave_out_bad && !options.act.dry_run {
        let count = show::count(bad, "package", "packages");
        let line = format!(
            "{count} cannot be taken up, so nothing was begun: mend what is named and run this again, or go without it for good (--leave-out-bad)"
        );
        return Err(Trouble::new(Exit::Held, line));
    }
    fs::create_dir_all(&context.root)?;
    let root = std::path::absolute(&context.root)?;
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%S%3fZ")
        .to_string();
    let mut restoring = Restoring {
        context,
        is_dry: options.act.dry_run,
        places: PlaceRoot::new(&root),
        rebuild: Rebuild::begin(&beside(&path, &format!(".new-{time}")), &root)?,
        root,
        files: 0,
        faults: bad,
    };
    for package in good {
        restoring.take(package)?;
    }
    let outcome = format!(
        "{} of {}; {} could not be taken up",
        show::count(restoring.files, "file", "files"),
        show::count(packages.len() as u64, "package", "packages"),
        show::count(restoring.faults, "thing", "things"),
    );
    let exit = match restoring.faults {
        0 => Exit::Done,
        _ => Exit::Held,
    };
    let told =
        json!({ "files": restoring.files, "packages": packages.len(), "faults": restoring.faults });
    if options.act.dry_run {
        restoring.rebuild.discard()?;
        context.tell(&format!("would rebuild the archive from {outcome}"), told)?;
        return Ok(exit.into());
    }
    restoring.rebuild.freeze(UNKNOWN)?;
    let old = beside(&path, &format!(".old-{time}"));
    restoring.rebuild.publish(&path, &old)?;
    let line = Line {
        verb: "rebuild --from",
        stage: "",
        parcel: None,
        why: options.act.why.as_deref(),
        outcome: &outcome,
    };
    audit::write(context, &line)?;
    context.tell(&format!("rebuilt the archive from {outcome}"), told)?;
    let indexed = crate::rebuild_index::rebuild(context, options)?;
    Ok(match exit {
        Exit::Done => indexed,
        exit => exit.into(),
    })
}

/// Returns the directories of bags in a directory, or it itself, in order of name.
pub(crate) fn packages_in(from: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let is_bag = |path: &Path| path.join("bagit.txt").is_file();
    if is_bag(from) {
        return Ok(vec![from.to_owned()]);
    }
    let unread = |error: io::Error| {
        let line = format!("cannot list {}: {error}", from.display());
        Trouble::new(Exit::Usage, line)
    };
    let mut packages = Vec::new();
    for entry in fs::read_dir(from).map_err(unread)? {
        let path = entry?.path();
        let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        if !path.file_name().is_some_and(is_hidden) && is_bag(&path) {
            packages.push(path);
        }
    }
    packages.sort();
    Ok(packages)
}

/// Reads all packages before anything is written; returns those that can be taken up, and how many cannot: these are told.
fn sorted_out<'p>(
    context: &DriverContext,
    packages: &'p [PathBuf],
) -> Result<(Vec<&'p Path>, u64), Trouble> {
    let (mut good, mut bad) = (Vec::new(), 0);
    for package in packages {
        let why = match what_is_wrong(package)? {
            Some(why) => Some(format!("not valid: {why}")),
            None => what_it_lacks(package).err(),
        };
        match why {
            None => good.push(package.as_path()),
            Some(why) => {
                bad += 1;
                tell_fault(context, &format!("{}: {why}", package.display()))?;
            }
        }
    }
    Ok((good, bad))
}

/// Reads the rows of a package: each must make sense, and its file be there.
fn what_it_lacks(package: &Path) -> Result<(), String> {
    let (_, mut rows) = PackageRows::open(package).map_err(|error| error.to_string())?;
    while let Some(packed) = rows.next_file().map_err(|error| error.to_string())? {
        if !package.join(packed.path).is_file() {
            return Err(format!("it lists {} and lacks it", packed.row.name));
        }
    }
    Ok(())
}

fn tell_fault(context: &DriverContext, line: &str) -> Result<(), Trouble> {
    let line = ecluse_telemetry::printable(line.as_bytes());
    match context.json {
        true => Ok(()),
        false => context.print(&format!("{line}\n")),
    }
}

/// An archive on its way back.
struct Restoring<'a> {
    context: &'a DriverContext,
    is_dry: bool,
    root: PathBuf,
    places: PlaceRoot,
    rebuild: Rebuild,
    files: u64,
    /// What could not be taken up, and was told.
    faults: u64,
}

impl Restoring<'_> {
    /// Says what cannot be taken up. The others go on.
    fn fault(&mut self, line: &str) -> Result<(), Trouble> {
        self.faults += 1;
        tell_fault(self.context, line)
    }

    /// Takes up a package that was found good.
    fn take(&mut self, package: &Path) -> Result<(), Trouble> {
        let shown = package.display();
        let (heading, mut rows) = match PackageRows::open(package) {
            Ok(opened) => opened,
            Err(error) => return self.fault(&format!("{shown}: {error}")),
        };
        let package = match self.bring(package, &heading.row.package)? {
            Some(package) => package,
            None => return Ok(()),
        };
        let mut names = Vec::new();
        loop {
            match rows.next_file() {
                Ok(Some(packed)) => {
                    names.push(packed.row.name.clone());
                    self.take_file(&package, packed, &heading.row)?;
                }
                Ok(None) => break,
                Err(error) => return self.fault(&format!("{shown}: {error}")),
            }
        }
        restore_package(&mut self.rebuild, &package, heading, &names)
    }

    /// Brings a package among those of the archive, unless it is there.
    fn bring(&mut self, package: &Path, name: &str) -> Result<Option<PathBuf>, Trouble> {
        let packages = &self.context.pipeline.archive.packages;
        let there = self.root.join(packages).join(name);
        let is_there = |one: &Path, other: &Path| {
            let (one, other) = (fs::canonicalize(one), fs::canonicalize(other));
            one.is_ok() && one.ok() == other.ok()
        };
        if self.is_dry || is_there(package, &there) {
            return Ok(Some(package.to_owned()));
        }
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_plain {
            let shown = package.display();
            self.fault(&format!("{shown}: {name:?} is no name of a package"))?;
            return Ok(None);
        }
        let brought = match ecluse_package::adopt(&self.root, packages, package, name) {
            Ok(brought) => brought,
            Err(failure) if failure.blame == ecluse_stage::Blame::Parcel => {
                self.fault(&format!("{}: {failure}", package.display()))?;
                return Ok(None);
            }
            Err(failure) => return Err(failure.into()),
        };
        // A copy counts once it was read.
        match what_is_wrong(&brought)? {
            None => Ok(Some(brought)),
            Some(why) => {
                self.fault(&format!("{}: not valid: {why}", brought.display()))?;
                Ok(None)
            }
        }
    }

    fn take_file(
        &mut self,
        package: &Path,
        packed: PackedRow,
        row: &PackageRow,
    ) -> Result<(), Trouble> {
        let PackedRow {
            path,
            row: record,
            history,
        } = packed;
        let file = package.join(path);
        if !file.is_file() {
            let shown = package.display();
            return self.fault(&format!("{shown}: it lists {} and lacks it", record.name));
        }
        self.files += 1;
        let mut missing = Vec::new();
        if !self.is_dry {
            for copy in &record.copies {
                if let Some(found) = self.put_copy(&file, &record, copy)? {
                    missing.push((copy, found));
                }
            }
            if record.kind.as_deref() == Some("metadata") {
                let jobs = self.context.jobs_dir()?;
                let name = job_papers::directory_name(row);
                if let Err(why) = job_papers::restore(&file, &jobs, &name) {
                    self.fault(&format!("{}: {why}", record.name))?;
                }
            }
        }
        let history = history.map(|history| history.to_string());
        self.rebuild.restore(&record, history.as_deref())?;
        for (copy, found) in missing {
            let target = &copy.target;
            self.rebuild
                .checked(&record.name, copy.kind, target, &found)?;
        }
        Ok(())
    }

    /// Puts a copy where it was; returns what is there instead when that cannot be. What is no file of this machine stays as it is
    /// told: a store has it, or `repair` will say.
    fn put_copy(
        &mut self,
        file: &Path,
        record: &FileRecord,
        copy: &CopyRecord,
    ) -> Result<Option<CheckOutcome>, Trouble> {
        if copy.kind == CopyKind::Backup {
            let proof = copy.proof.as_deref().unwrap_or_default();
            let proof: Option<Proof> = serde_json::from_str(proof).ok();
            if proof.is_none_or(|proof| proof.kind != "directory") {
                return Ok(None);
            }
        }
        let place = self.places.whole(&copy.place).into_owned();
        let place = Path::new(&place);
        let Err(why) = self.put_at(file, place, copy) else {
            return Ok(None);
        };
        let (name, target) = (&record.name, &copy.target);
        self.fault(&format!("{name}: no copy in {target}: {why}"))?;
        Ok(Some(match place.symlink_metadata() {
            Ok(_) => CheckOutcome::Bad(why),
            Err(_) => CheckOutcome::Unread(why),
        }))
    }

    fn put_at(&self, file: &Path, place: &Path, copy: &CopyRecord) -> Result<(), String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let (Some(directory), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(format!("{} is no place of a file", place.display()));
        };
        let name = name.to_str().ok_or("its name is not UTF-8")?;
        let copies = match directory.strip_prefix(&self.root) {
            Ok(below) => CopyDirectory::make(&self.root, below, "rebuild"),
            Err(_) => CopyDirectory::open(directory, "rebuild"),
        };
        let copies = copies.map_err(|error| told(&error))?;
        // The package was read just now: a link has the same bytes.
        if copy.kind == CopyKind::Stored && RealFs.link(file, place).is_ok() {
            return RealFs.sync_dir(directory).map_err(|error| told(&error));
        }
        let wanted = Fixity {
            bytes: copy.bytes,
            sha256: copy.sha256.clone(),
        };
        let mut open = || -> io::Result<Box<dyn io::Read>> { Ok(Box::new(open_plain(file)?)) };
        let kept = copies.keep(name, &wanted, 0, &mut open, &|| true);
        kept.map(drop).map_err(|error| told(&error))
    }
}

/// Tells a manifest of a package, as it says of itself.
pub(crate) fn restore_package(
    rebuild: &mut Rebuild,
    package: &Path,
    heading: PackageHeading,
    names: &[String],
) -> Result<(), Trouble> {
    let row = PackageRow {
        sha512: sha512_of(&package.join(SEAL))?,
        ..heading.row
    };
    let closing = heading
        .closed
        .and_then(|closed| serde_json::to_string(&closed).ok());
    Ok(rebuild.restore_package(&row, names, &heading.made, closing.as_deref())?)
}

/// Reads a whole package, and says what is wrong with it.
fn what_is_wrong(package: &Path) -> Result<Option<String>, Trouble> {
    let options = ecluse_bag::ValidateOptions {
        is_strict: false,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let report = ecluse_bag::validate(package, options, &|_| true);
    let report = report.map_err(|error| Trouble::new(Exit::Machine, error))?;
    Ok(report.faults.first().map(ToString::to_string))
}

pub(crate) fn sha512_of(path: &Path) -> Result<String, Trouble> {
    let read = ecluse_holding::read_both(&mut open_plain(path)?, &|| true);
    let (_, sha512) = read.map_err(|fault| Trouble::new(Exit::Machine, fault))?;
    Ok(sha512)
}

/// Writes a file that must not be there, and makes it durable.
pub(crate) fn write_new(path: &Path, source: &mut dyn io::Read) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
    io::copy(source, &mut file)?;
    file.flush()?;
    file.sync_all()
}
