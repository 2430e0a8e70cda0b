//! `ecluse repair`: puts a bad or missing copy back from a good one.
//!
//! A copy is good when it was read just now and has the digest taken at ingest. What is put back is read back before it
//! counts, and the bad bytes are set aside, never removed. When no bad copy is left, removals go on. A package that has the
//! file, or that is bad itself, is put right too, or made again.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_backup::{BackupService, ServiceCopy, ServiceFinding, Target};
use ecluse_config::Free;
use ecluse_holding::{CopyDirectory, CopyFault, Fixity, open_plain};
use ecluse_manifest::{CheckOutcome, Copy, CopyKind, CopyRow, Manifest, PackageRow};
use ecluse_stage::Exit;
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RepairOptions;
use crate::context::{DriverContext, Trouble};
use crate::packages::{self, PackageRepair};
use crate::verify;

pub(crate) fn repair(
    context: &DriverContext,
    options: &RepairOptions,
) -> Result<ExitCode, Trouble> {
    let mut manifest = verify::open(context)?;
    let (names, mut packages) = meant(context, &manifest, options)?;
    let homes = homes(context)?;
    let services = services(context)?;
    let mut exit = Exit::Done;
    let mut told = Vec::new();
    for name in &names {
        let mut mender = Mender {
            context,
            options,
            homes: &homes,
            services: &services,
            manifest: &mut manifest,
            mended: 0,
        };
        match mender.mend(name) {
            Ok(()) => told.push(json!({ "file": name, "mended": mender.mended })),
            Err(trouble) => {
                told.push(json!({
                    "file": name, "mended": mender.mended, "trouble": trouble.line,
                }));
                if !context.json {
                    context.say_to_all(&trouble.line)?;
                }
                // That nothing good is left of a file is the worst there is.
                if exit != Exit::Held {
                    exit = trouble.exit;
                }
            }
        }
    }
    // A package has links to the stored copies: where one was put back, the package still has the bad bytes.
    for name in &names {
        packages.extend(manifest.packages_with(name)?);
    }
    packages.sort_by(|one, other| one.package.cmp(&other.package));
    packages.dedup();
    let mut awaited = Vec::new();
    for row in &packages {
        let package = &row.package;
        match packages::repair(context, &mut manifest, row, options.act.dry_run) {
            Ok(None) => {}
            Ok(Some(PackageRepair { line, is_awaited })) => {
                if is_awaited {
                    awaited.push(package.as_str());
                }
                told.push(json!({ "package": package, "outcome": line }));
                if !options.act.dry_run {
                    note(context, options, row, &line)?;
                }
                if !context.json {
                    context.say(&line)?;
                }
            }
            Err(trouble) => {
                told.push(json!({ "package": package, "trouble": trouble.line }));
                if !context.json {
                    context.say(&trouble.line)?;
                }
                if exit != Exit::Held {
                    exit = trouble.exit;
                }
            }
        }
    }
    if !awaited.is_empty() && exit == Exit::Done {
        exit = Exit::Deferred;
    }
    let frozen = lift(context, &mut manifest, options)?;
    if !awaited.is_empty() && !context.json {
        let make = context.command("run --once package");
        let read = context.command(&format!("repair {}", awaited.join(" ")));
        context.say(&format!(
            "until what is made again is there and good: `{make}`, then `{read}`"
        ))?;
    }
    if context.json {
        context.print_json(json!({ "files": told, "frozen": frozen }))?;
    } else if names.is_empty() && packages.is_empty() {
        context.say("no copy and no package is known to be bad; `ecluse verify` reads them")?;
    }
    Ok(exit.into())
}

/// Returns the files and the packages that are to be mended.
fn meant(
    context: &DriverContext,
    manifest: &Manifest,
    options: &RepairOptions,
) -> Result<(Vec<String>, Vec<PackageRow>), Trouble> {
    let known = manifest.packages()?;
    if options.all {
        let failing = manifest.failing(usize::MAX)?;
        let mut names: Vec<String> = failing.into_iter().map(|copy| copy.file).collect();
        names.dedup();
        let failing = manifest.failing_packages()?.into_iter();
        let mut bad: BTreeSet<String> = failing.map(|check| check.row.package).collect();
        let lost = context.lost_packages(manifest).into_iter();
        bad.extend(lost.map(|(package, _)| package));
        let packages = known.into_iter().filter(|row| bad.contains(&row.package));
        return Ok((names, packages.collect()));
    }
    let (mut names, mut packages) = (Vec::new(), Vec::new());
    for word in &options.files {
        let name = file_name(word);
        match known.iter().find(|row| row.package == name) {
            Some(row) => packages.push(row.clone()),
            None => names.push(name),
        }
    }
    names.dedup();
    Ok((names, packages))
}

fn note(
    context: &DriverContext,
    options: &RepairOptions,
    row: &PackageRow,
    outcome: &str,
) -> Result<(), Trouble> {
    audit::write(
        context,
        &Line {
            verb: "repair",
            stage: "package",
            parcel: Some(&row.package),
            why: options.act.why.as_deref(),
            outcome,
        },
    )
}

/// Lets removals go on when nothing bad is left; tells whether they are still frozen.
fn lift(
    context: &DriverContext,
    manifest: &mut Manifest,
    options: &RepairOptions,
) -> Result<bool, Trouble> {
    let health = manifest.health()?;
    let Some(frozen) = health.frozen else {
        return Ok(false);
    };
    let bad = health.bad + health.bad_packages;
    if options.act.dry_run || bad > 0 {
        if !context.json {
            context.say_to_all(&format!(
                "delete and clean stay frozen: {bad} bad copies or packages are left"
            ))?;
        }
        return Ok(true);
    }
    // That no copy is known to be bad says nothing when none was read since.
    if frozen.why == crate::rebuild::UNKNOWN {
        if !context.json {
            context.say_to_all(&format!(
                "delete and clean stay frozen: {}: `{}`",
                frozen.why,
                context.command("verify --release --why …")
            ))?;
        }
        return Ok(true);
    }
    manifest.thaw()?;
    let outcome = format!("released, nothing bad is left: {}", frozen.why);
    audit::write(
        context,
        &Line {
            verb: "repair",
            stage: "delete, clean",
            parcel: None,
            why: options.act.why.as_deref(),
            outcome: &outcome,
        },
    )?;
    if !context.json {
        context.say(&format!("delete and clean go on; {outcome}"))?;
    }
    Ok(false)
}

/// Whoever types a path means its file.
fn file_name(word: &str) -> String {
    let word = word.trim_end_matches('/');
    word.rsplit('/').next().unwrap_or(word).to_owned()
}

/// A directory of copies, as pipeline.toml has it.
pub(crate) struct CopyHome {
    pub(crate) kind: CopyKind,
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    leave: Free,
}

/// Returns the locations and the backup directories.
pub(crate) fn homes(context: &DriverContext) -> Result<Vec<CopyHome>, Trouble> {
    let wrong = |error| Trouble::new(Exit::Config, error);
    let root = std::path::absolute(&context.root)?;
    let mut homes = Vec::new();
    let transfer: ecluse_transfer::Settings = context
        .pipeline
        .stage_settings("transfer")
        .map_err(|e| wrong(e.to_string()))?;
    for location in &context.pipeline.archive.repository {
        homes.push(CopyHome {
            kind: CopyKind::Stored,
            target: location.name.clone(),
            path: root.join(&location.path),
            leave: location.leave_free.unwrap_or(transfer.leave_free),
        });
    }
    for target in backup_targets(context)? {
        if let ecluse_backup::TargetKind::Directory(directory) = target.kind {
            homes.push(CopyHome {
                kind: CopyKind::Backup,
                target: target.name,
                path: root.join(directory.path),
                leave: directory.leave_free,
            });
        }
    }
    Ok(homes)
}

fn backup_targets(context: &DriverContext) -> Result<Vec<Target>, Trouble> {
    let backup: Result<ecluse_backup::Settings, _> = context.pipeline.stage_settings("backup");
    let backup = backup.map_err(|error| Trouble::new(Exit::Config, error.to_string()))?;
    Ok(backup.targets.into_vec())
}

/// Returns the backups that are no directories and can be read.
fn services(context: &DriverContext) -> Result<Vec<BackupService>, Trouble> {
    let mut services = Vec::new();
    for target in backup_targets(context)? {
        services.extend(BackupService::open(target, &context.root)?);
    }
    Ok(services)
}

/// Mends the copies of one file.
struct Mender<'a> {
    context: &'a DriverContext,
    options: &'a RepairOptions,
    homes: &'a [CopyHome],
    services: &'a [BackupService],
    manifest: &'a mut Manifest,
    mended: u64,
}

impl Mender<'_> {
    fn mend(&mut self, name: &str) -> Result<(), Trouble> {
        let copies = self.manifest.copies(name)?;
        if copies.is_empty() {
            return Err(Trouble::usage(format!(
                "{name}: the manifest knows no copy of it; `ecluse find {name}` tells what there is"
            )));
        }
        let (here, away): (Vec<_>, Vec<_>) = copies.into_iter().partition(is_in_a_directory);
        let here = here.into_iter().map(|copy| {
            let found = verify::check(&copy);
            (copy, found)
        });
        let mut read: Vec<(CopyRow, CheckOutcome)> = here.collect();
        let is_good = |(_, found): &&(CopyRow, CheckOutcome)| *found == CheckOutcome::Good;
        // What lies in a service costs a long way: it is read for whoever asks for this file, and where nothing else is good.
        if !self.options.all || !read.iter().any(|copy| is_good(&copy)) {
            let away = away.into_iter();
            read.extend(away.filter_map(|copy| {
                let found = check_in(self.service_of(&copy)?, &copy);
                Some((copy, found))
            }));
        }
        let Some((good, _)) = read.iter().find(is_good) else {
            let all = read.iter().map(|(copy, found)| {
                let words = verify::words(found);
                format!("{}: {words}", copy.place)
            });
            let all: Vec<String> = all.collect();
            return Err(Trouble::new(
                Exit::Held,
                format!("{name}: no good copy can be read: {}", all.join("; ")),
            ));
        };
        // Directories come first: what is put into a service is read from one.
        let mut away = None;
        let mut local = is_in_a_directory(good).then_some(good);
        for (copy, found) in &read {
            if let (CheckOutcome::Unread(why), Some(_)) = (found, self.service_of(copy)) {
                // It may well be good: nothing is put over it.
                away = Some(format!("{}: {why}", copy.place));
            } else if *found != CheckOutcome::Good {
                self.put_back(copy, local.unwrap_or(good), found)?;
                local = local.or(is_in_a_directory(copy).then_some(copy));
            } else if copy.found.as_deref().is_some_and(|found| found != "good")
                && !self.options.act.dry_run
            {
                // It was not mounted, or somebody mended it.
                self.manifest.checked(copy, &CheckOutcome::Good)?;
                self.tell(&format!("{} is good", copy.place))?;
            }
        }
        match away {
            Some(line) => Err(Trouble::new(Exit::Deferred, line)),
            None => Ok(()),
        }
    }

    fn put_back(
        &mut self,
        copy: &CopyRow,
        good: &CopyRow,
        found: &CheckOutcome,
    ) -> Result<(), Trouble> {
        let (from, words) = (&good.place, verify::words(found));
        if self.options.act.dry_run {
            return self.tell(&format!(
                "would put back {} from {from}: {words}",
                copy.place
            ));
        }
        let aside = match self.service_of(copy) {
            Some(service) => {
                let wanted = fixity_of(copy);
                let proof = service.put_back(&service_copy(copy, &wanted), Path::new(from))?;
                let value = serde_json::to_value(&proof).map_err(io::Error::from)?;
                let made = Copy {
                    target: &copy.target,
                    place: &proof.place,
                    bytes: proof.bytes,
                    sha256: &proof.sha256,
                };
                self.manifest.backed_up(&copy.file, &made, &value)?;
                None
            }
            None => self.replace(copy, good)?,
        };
        self.manifest.checked(copy, &CheckOutcome::Good)?;
        self.mended += 1;
        let mut outcome = format!("put back {} from {from}: {words}", copy.place);
        if let Some(aside) = aside {
            outcome.push_str(&format!("; what lay there is now {}", aside.display()));
        }
        audit::write(
            self.context,
            &Line {
                verb: "repair",
                stage: &copy.target,
                parcel: Some(&copy.file),
                why: self.options.act.why.as_deref(),
                outcome: &outcome,
            },
        )?;
        self.tell(&outcome)
    }

    fn replace(&self, copy: &CopyRow, good: &CopyRow) -> Result<Option<PathBuf>, Trouble> {
        let home = self
            .homes
            .iter()
            .find(|home| home.kind == copy.kind && home.target == copy.target);
        let Some(home) = home else {
            return Err(Trouble::new(
                Exit::Config,
                format!(
                    "{}: pipeline.toml names no {} any more",
                    copy.place, copy.target
                ),
            ));
        };
        let place = Path::new(&copy.place);
        let folder = place
            .parent()
            .and_then(|dir| dir.strip_prefix(&home.path).ok());
        let folder = folder.and_then(Path::to_str).ok_or_else(|| {
            let path = home.path.display();
            Trouble::new(
                Exit::Config,
                format!(
                    "{} is not in {}, which is {path} now",
                    copy.place, home.target
                ),
            )
        })?;
        self.must_be_mounted(home)?;
        if self.options.new_disk {
            // Who says so knows that nothing is there yet.
            std::fs::create_dir_all(&home.path)?;
        }
        let copies = CopyDirectory::open(&home.path, "repair").map_err(trouble)?;
        let leave = home.leave.bytes_of(copies.room().map_err(trouble)?.total);
        let wanted = fixity_of(copy);
        let mut open = || -> io::Result<Box<dyn Read>> {
            match self.service_of(good) {
                Some(service) => service
                    .open_copy(&service_copy(good, &wanted))
                    .map_err(|failure| io::Error::other(failure.reason)),
                None => Ok(Box::new(open_plain(Path::new(&good.place))?)),
            }
        };
        copies
            .folder(folder)
            .and_then(|copies| copies.replace(&copy.file, &wanted, leave, &mut open, &|| true))
            .map_err(trouble)
    }

    /// Refuses an empty directory where many copies should be: a disk may not be mounted there.
    fn must_be_mounted(&self, home: &CopyHome) -> Result<(), Trouble> {
        if self.options.new_disk
            || verify::has_neighbours(&home.path)
            || !self.manifest.holds_many(home.kind, &home.target)?
        {
            return Ok(());
        }
        Err(Trouble::new(
            Exit::Deferred,
            format!(
                "{} holds nothing, and the copies of {} should be there: mount it; where it is a new, empty disk, say --new-disk",
                home.path.display(),
                home.target
            ),
        ))
    }

    /// Returns the service that a copy is in; none for one in a directory.
    fn service_of(&self, copy: &CopyRow) -> Option<&BackupService> {
        let is_its = |service: &&BackupService| {
            copy.kind == CopyKind::Backup && copy.target == service.target()
        };
        self.services.iter().find(is_its)
    }

    fn tell(&self, line: &str) -> Result<(), Trouble> {
        match self.context.json {
            true => Ok(()),
            false => self.context.say(line),
        }
    }
}

fn fixity_of(copy: &CopyRow) -> Fixity {
    Fixity {
        bytes: copy.bytes,
        sha256: copy.sha256.clone(),
    }
}

fn service_copy<'a>(copy: &'a CopyRow, wanted: &'a Fixity) -> ServiceCopy<'a> {
    ServiceCopy {
        name: &copy.file,
        place: &copy.place,
        wanted,
    }
}

/// Reads a copy in a service.
fn check_in(service: &BackupService, copy: &CopyRow) -> CheckOutcome {
    let wanted = fixity_of(copy);
    match service.read(&service_copy(copy, &wanted)) {
        Ok(ServiceFinding::Bytes(found)) if found == wanted => CheckOutcome::Good,
        Ok(ServiceFinding::Bytes(found)) => {
            CheckOutcome::Bad(format!("it has {found}, it had {wanted}"))
        }
        Ok(ServiceFinding::Missing) => CheckOutcome::Bad("it is not there any more".into()),
        Err(failure) => CheckOutcome::Unread(failure.reason),
    }
}

pub(crate) fn is_in_a_directory(copy: &CopyRow) -> bool {
    let is_directory = |proof: &str| {
        let proof: Result<ecluse_holding::Proof, _> = serde_json::from_str(proof);
        proof.is_ok_and(|proof| proof.kind == "directory")
    };
    copy.kind == CopyKind::Stored || copy.proof.as_deref().is_some_and(is_directory)
}

fn trouble(fault: CopyFault) -> Trouble {
    let exit = match &fault {
        CopyFault::NoRoom { .. } => Exit::Deferred,
        CopyFault::Place { error, .. } if error.kind() == io::ErrorKind::NotFound => Exit::Deferred,
        _ => Exit::Machine,
    };
    Trouble::new(exit, fault)
}
