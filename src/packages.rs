//! Packages as `verify`, `repair`, `status` and `check` see them.
//!
//! A package is good when its tag manifest is the one that was made and every file is as listed. An archive file in it that is the
//! stored copy itself, by a hard link, is read when that copy is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ecluse_bag::{ValidateOptions, validate_knowing};
use ecluse_holding::{Fixity, is_same_file, open_plain, read_afresh};
use ecluse_manifest::{CheckOutcome, CopyKind, JobName, Manifest, PackageCheck, PackageRow};
use ecluse_package::{FILE, FinishedJob, JobClosing, KIND, Package, put_right, set_aside};
use ecluse_spool::ParcelState;
use ecluse_stage::{Exit, Stage};
use serde::Serialize;
use sha2::{Digest, Sha512};
use walkdir::WalkDir;

use crate::context::{DriverContext, Trouble};

/// The file that fixes a whole package.
const SEAL: &str = "tagmanifest-sha512.txt";

impl DriverContext {
    /// Returns the directory of the packages.
    pub(crate) fn packages(&self) -> PathBuf {
        self.root.join(&self.pipeline.archive.packages)
    }

    /// Returns the packages that are lost or were not good when they were last read, with what is wrong.
    pub(crate) fn bad_packages(&self, manifest: &Manifest) -> Vec<BadPackage> {
        let lost = self.lost_packages(manifest);
        let failing = manifest.failing_packages().unwrap_or_default();
        let failing = failing.into_iter().filter(|check| {
            let is_lost = |(package, _): &(String, String)| *package == check.row.package;
            !lost.iter().any(is_lost)
        });
        let failing = failing.map(|check| (check.row.package, check.found.unwrap_or_default()));
        let mut bad: Vec<BadPackage> = lost
            .iter()
            .cloned()
            .chain(failing)
            .map(|(package, what)| BadPackage { package, what })
            .collect();
        bad.sort();
        bad
    }

    /// Names the packages that are not there any more. Where none is, a disk may not be mounted: then that is told.
    pub(crate) fn lost_packages(&self, manifest: &Manifest) -> Vec<(String, String)> {
        let rows = manifest.packages().unwrap_or_default();
        let directory = self.packages();
        let entries = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten();
        let there: BTreeSet<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        if there.is_empty() && !rows.is_empty() {
            let what = format!("{} holds nothing", directory.display());
            return vec![(rows[0].package.clone(), what)];
        }
        let lost = rows.into_iter().filter(|row| !there.contains(&row.package));
        lost.map(|row| (row.package, GONE.to_owned())).collect()
    }
}

/// A package that is lost, or was not good when it was last read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct BadPackage {
    pub(crate) package: String,
    pub(crate) what: String,
}

/// What is said of a package that was lost.
const GONE: &str = "it is not there any more";

/// Reads a package again. Returns what was found, and what that cost: the bytes read, and something for each file.
pub(crate) fn check(
    context: &DriverContext,
    manifest: &Manifest,
    row: &PackageRow,
) -> Result<(CheckOutcome, u64), Trouble> {
    let packages = context.packages();
    let path = packages.join(&row.package);
    if !path.is_dir() {
        let found = match crate::verify::has_neighbours(&packages) {
            true => CheckOutcome::Bad(GONE.to_owned()),
            false => CheckOutcome::Unread(format!("{} holds nothing", packages.display())),
        };
        return Ok((found, 0));
    }
    let seal = match std::fs::read(path.join(SEAL)) {
        Ok(bytes) => ecluse_stage::hex(&Sha512::digest(bytes)),
        Err(error) => {
            let found = CheckOutcome::Bad(format!("{SEAL}: {error}"));
            return Ok((found, 0));
        }
    };
    if seal != row.sha512 {
        let what = format!(
            "{SEAL} has sha512 {seal}, it had {} when the package was made",
            row.sha512
        );
        return Ok((CheckOutcome::Bad(what), 0));
    }
    let linked = linked(context, manifest, row)?;
    let options = ValidateOptions {
        is_strict: true,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let bytes = AtomicU64::new(0);
    let report = validate_knowing(&path, options, &|path| linked.get(path).cloned(), &|read| {
        bytes.fetch_max(read, Ordering::Relaxed);
        true
    });
    let found = match report {
        Ok(report) => match report.faults.first() {
            None => CheckOutcome::Good,
            Some(fault) => CheckOutcome::Bad(fault.to_string()),
        },
        Err(error) => CheckOutcome::Unread(error.to_string()),
    };
    Ok((found, bytes.into_inner()))
}

/// Returns the paths in a package that are stored copies by a hard link, with the SHA-512 of these: they are read with those.
fn linked(
    context: &DriverContext,
    manifest: &Manifest,
    row: &PackageRow,
) -> Result<BTreeMap<String, String>, Trouble> {
    let package = context.packages().join(&row.package);
    let harvest = (!row.harvest.is_empty()).then(|| row.harvest.clone());
    let job = JobName {
        job: row.job.clone(),
        harvest,
    };
    let files = manifest.files_of_job(&job)?.into_iter();
    let digests: BTreeMap<String, Option<String>> = files
        .map(|file| (file.row.name.clone(), file.sha512))
        .collect();
    let mut linked = BTreeMap::new();
    for (name, path) in files_in(&package) {
        let Some(Some(sha512)) = digests.get(&name) else {
            continue;
        };
        let copies = manifest.copies(&name)?;
        let stored = copies.iter().filter(|copy| copy.kind == CopyKind::Stored);
        let is_linked = stored.filter(|copy| !copy.is_bad()).any(|copy| {
            let place = Path::new(&copy.place);
            is_same_file(place, &path).unwrap_or(false)
        });
        let below = path.strip_prefix(&package).ok().and_then(Path::to_str);
        if let (true, Some(below)) = (is_linked, below) {
            linked.insert(below.to_owned(), sha512.clone());
        }
    }
    Ok(linked)
}

/// Returns the payload files of a package, by their names.
pub(crate) fn files_in(package: &Path) -> BTreeMap<String, PathBuf> {
    let entries = WalkDir::new(package.join("data")).into_iter().flatten();
    let files = entries.filter(|entry| entry.file_type().is_file());
    let named = files.map(|entry| {
        (
            entry.file_name().to_string_lossy().into_owned(),
            entry.into_path(),
        )
    });
    named.collect()
}

/// Charged for each file of a package, beside the bytes read of it: many small files take their time too.
const FILE_BYTES: u64 = 1 << 20;

/// Reads packages again, the oldest check first, until that has cost so much; at least one. Tells each that is not good.
pub(crate) fn verify(
    context: &DriverContext,
    manifest: &mut Manifest,
    budget: u64,
) -> Result<Vec<(PackageCheck, CheckOutcome, u64)>, Trouble> {
    let mut seen = Vec::new();
    let mut cost = 0_u64;
    for package in manifest.packages_to_check()? {
        if cost >= budget && !seen.is_empty() {
            break;
        }
        let (found, bytes) = check(context, manifest, &package.row)?;
        manifest.package_checked(&package.row.package, &found)?;
        cost = cost.saturating_add(bytes + FILE_BYTES * (package.row.files + 10));
        seen.push((package, found, bytes));
    }
    Ok(seen)
}

/// What was done about a package that is not good.
pub(crate) struct PackageRepair {
    pub(crate) line: String,
    /// It is not there before the stage package has made it.
    pub(crate) is_awaited: bool,
}

/// Puts a package right: archive files from their stored copies; if that is not enough, all of it is made again. Returns what
/// was done; `None` when nothing was wrong.
pub(crate) fn repair(
    context: &DriverContext,
    manifest: &mut Manifest,
    row: &PackageRow,
    is_dry_run: bool,
) -> Result<Option<PackageRepair>, Trouble> {
    let done = |line: String| PackageRepair {
        line,
        is_awaited: false,
    };
    let (found, _) = check(context, manifest, row)?;
    let what = match &found {
        CheckOutcome::Good => {
            if !is_dry_run {
                manifest.package_checked(&row.package, &found)?;
            }
            return Ok(None);
        }
        CheckOutcome::Unread(why) => {
            let line = format!("package {}: {why}", row.package);
            return Err(Trouble::new(Exit::Deferred, line));
        }
        CheckOutcome::Bad(what) => what.clone(),
    };
    if is_dry_run {
        return Ok(Some(done(format!(
            "would put package {} right: {what}",
            row.package
        ))));
    }
    let mut mended = Vec::new();
    for name in manifest.files_of_package(&row.package)? {
        if put_file_right(context, manifest, row, &name)? {
            mended.push(name);
        }
    }
    let (found, _) = check(context, manifest, row)?;
    if found == CheckOutcome::Good {
        manifest.package_checked(&row.package, &found)?;
        let files = mended.join(", ");
        return Ok(Some(done(format!(
            "package {} is right again: {what}; put back from the stored copy: {files}",
            row.package
        ))));
    }
    let line = make_again(context, manifest, row, &what)?;
    // It is bad until it is there and was read: nothing is removed before.
    manifest.package_checked(&row.package, &CheckOutcome::Bad(what))?;
    Ok(Some(PackageRepair {
        line,
        is_awaited: true,
    }))
}

/// Puts an archive file of a package right from a good stored copy; tells whether there was anything to do.
pub(crate) fn put_file_right(
    context: &DriverContext,
    manifest: &Manifest,
    row: &PackageRow,
    name: &str,
) -> Result<bool, Trouble> {
    let packages = context.packages();
    let package = packages.join(&row.package);
    if !package.is_dir() {
        return Ok(false);
    }
    let copies = manifest.copies(name)?;
    let mut stored = copies.iter().filter(|copy| copy.kind == CopyKind::Stored);
    let Some(stored) = stored.find(|copy| crate::verify::check(copy) == CheckOutcome::Good) else {
        return Ok(false);
    };
    let wanted = Fixity {
        bytes: stored.bytes,
        sha256: stored.sha256.clone(),
    };
    let place = Path::new(&stored.place);
    let path = match files_in(&package).remove(name) {
        Some(path) => path,
        // It is gone: its neighbours tell where it was.
        None => match neighbour_of(manifest, row, &package)? {
            Some(folder) => folder.join(name),
            None => return Ok(false),
        },
    };
    let is_good = is_same_file(place, &path).unwrap_or(false)
        || open_plain(&path)
            .ok()
            .and_then(|mut file| read_afresh(&mut file, &|| true).ok())
            .is_some_and(|found| found == wanted);
    if is_good {
        return Ok(false);
    }
    put_right(&packages, &path, place, &wanted)
        .map_err(|fault| Trouble::new(Exit::Machine, fault))?;
    Ok(true)
}

/// Returns the folder of the other archive files of a package.
fn neighbour_of(
    manifest: &Manifest,
    row: &PackageRow,
    package: &Path,
) -> Result<Option<PathBuf>, Trouble> {
    let files = files_in(package);
    let names = manifest.files_of_package(&row.package)?;
    let paths = names.iter().filter_map(|name| files.get(name));
    let mut folders = paths.filter_map(|path| path.parent());
    Ok(folders.next().map(Path::to_owned))
}

/// Moves what there is of a package aside and asks for it to be made again.
fn make_again(
    context: &DriverContext,
    manifest: &Manifest,
    row: &PackageRow,
    what: &str,
) -> Result<String, Trouble> {
    context.known_stage(Package::NAME)?;
    let name = JobName {
        job: row.job.clone(),
        harvest: (!row.harvest.is_empty()).then(|| row.harvest.clone()),
    };
    let mut finished = FinishedJob::next_of(&name, &[]);
    finished.supplement = row.supplement;
    let mut id = finished.parcel_id();
    // Who closed the job stands in the receipt, and must stand in the package again.
    while let Some(filed) = context.engine.receipt(Package::NAME, &id)? {
        if let Some(closed) = filed.receipt.facts.get("closed").cloned() {
            let closed: Option<JobClosing> = serde_json::from_value(closed).unwrap_or_default();
            finished.closed = closed.or(finished.closed);
        }
        id = id.again();
    }
    if finished.closed.is_none() {
        let closing = manifest.closing(&row.package)?;
        finished.closed = closing.and_then(|text| serde_json::from_str(&text).ok());
    }
    finished.again = Some(row.package.clone());
    for place in context.engine.locate(&[Package::NAME.to_owned()], &id)? {
        if place.state != ParcelState::Discarded {
            let state = place.state.word();
            let line = format!(
                "package {}: to make it again is {state} already, as {id}",
                row.package
            );
            return Ok(line);
        }
    }
    if manifest.files_of_package(&row.package)?.is_empty() {
        let line = format!(
            "package {}: {what}; the manifest does not know which files it had, so it cannot be made again",
            row.package
        );
        return Err(Trouble::new(Exit::Held, line));
    }
    let aside = set_aside(&context.packages(), &row.package)?;
    context.engine.put(Package::NAME, &id, KIND, |parcel| {
        parcel.write(FILE, &finished.to_bytes())
    })?;
    let mut line = format!(
        "package {} is made again by the stage package: {what}",
        row.package
    );
    if let Some(aside) = aside {
        line.push_str(&format!("; what lay there is now {}", aside.display()));
    }
    Ok(line)
}
