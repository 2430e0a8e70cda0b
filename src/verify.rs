//! `ecluse verify`: reads stored copies and packages again, the one whose last check is oldest first.
//!
//! The first mismatch freezes `delete` and `clean` until a person lifts that: what is wrong with one
//! copy may be wrong with many, and the last good one must not go meanwhile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_holding::{ReadFault, open_plain, read_afresh};
use ecluse_manifest::{CheckOutcome, Due, Manifest, ManifestError, PackageCheck};
use ecluse_stage::Exit;

use crate::audit::{self, Line};
use crate::cli::VerifyOptions;
use crate::context::{DriverContext, Trouble};
use crate::packages;

pub(crate) fn verify(
    context: &DriverContext,
    options: &VerifyOptions,
) -> Result<ExitCode, Trouble> {
    let mut manifest = open(context)?;
    if options.release {
        return release(context, &mut manifest, options);
    }
    if options.act.dry_run {
        return tell_due(context, &manifest, &manifest.due(options.budget.0)?);
    }
    let mut sums = Sums::default();
    // Packages have half of the budget at most; linked as they mostly are, they cost little.
    let packages = packages::verify(context, &mut manifest, options.budget.0 / 2)?;
    for (package, found, bytes) in &packages {
        sums.count(*bytes, found);
        if !matches!(found, CheckOutcome::Good) && !context.json {
            let name = &package.row.package;
            context.say(&format!("package {name}: {}", words(found)))?;
        }
    }
    let due = manifest.due(options.budget.0.saturating_sub(sums.bytes))?;
    for copy in &due {
        let found = check(copy);
        manifest.checked(copy, &found)?;
        sums.count(copy.bytes, &found);
        if !matches!(found, CheckOutcome::Good) && !context.json {
            context.say_to_all(&format!("{}: {}", copy.place, words(&found)))?;
        }
    }
    let frozen = manifest.frozen()?;
    if context.json {
        context.print_json(serde_json::json!({
            "good": sums.good,
            "bad": sums.bad,
            "unread": sums.unread,
            "bytes": sums.bytes,
            "packages": packages.len(),
            "frozen": frozen,
        }))?;
    } else {
        context.say(&format!(
            "{}{} read again: {} good, {} bad, {} could not be read; {} bytes",
            crate::show::count(due.len(), "copy", "copies"),
            match packages.len() {
                0 => String::new(),
                count => format!(" and {}", crate::show::count(count, "package", "packages")),
            },
            sums.good,
            sums.bad,
            sums.unread,
            sums.bytes
        ))?;
        if let Some(frozen) = &frozen {
            context.say_to_all(&format!(
                "delete and clean are frozen since {}: {}",
                frozen.since, frozen.why
            ))?;
            let repair = context.command("repair --all");
            let release = context.command("verify --release --why \"…\"");
            context.say(&format!("{repair}   puts bad copies back from good ones"))?;
            context.say(&format!("{release}   lets them go on as it is"))?;
        }
    }
    Ok(match (sums.bad, sums.unread) {
        (0, 0) => Exit::Done.into(),
        (0, _) => Exit::Deferred.into(),
        (_, _) => Exit::Held.into(),
    })
}

#[derive(Default)]
struct Sums {
    good: u64,
    bad: u64,
    unread: u64,
    bytes: u64,
}

impl Sums {
    fn count(&mut self, bytes: u64, found: &CheckOutcome) {
        match found {
            CheckOutcome::Good => self.good += 1,
            CheckOutcome::Bad(_) => self.bad += 1,
            CheckOutcome::Unread(_) => self.unread += 1,
        }
        self.bytes += bytes;
    }
}

pub(crate) fn check(copy: &Due) -> CheckOutcome {
    let path = Path::new(&copy.place);
    let read = open_plain(path)
        .map_err(ReadFault::from)
        .and_then(|mut file| read_afresh(&mut file, &|| true));
    match read {
        Ok(fixity) if fixity.sha256 == copy.sha256 => CheckOutcome::Good,
        Ok(fixity) => CheckOutcome::Bad(format!(
            "sha256 is {} ({} bytes), it was {} ({} bytes)",
            fixity.sha256, fixity.bytes, copy.sha256, copy.bytes
        )),
        // Its directory is there and it is not: it is lost. Otherwise nothing may be mounted there.
        Err(ReadFault::Io(error))
            if error.kind() == std::io::ErrorKind::NotFound
                && path.parent().is_some_and(has_neighbours) =>
        {
            CheckOutcome::Bad("it is not there any more".into())
        }
        Err(error) => CheckOutcome::Unread(error.to_string()),
    }
}

/// An empty directory may be the place where a disk is not mounted.
pub(crate) fn has_neighbours(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

pub(crate) fn words(found: &CheckOutcome) -> String {
    match found {
        CheckOutcome::Good => "good".into(),
        CheckOutcome::Bad(what) => format!("BAD: {what}"),
        CheckOutcome::Unread(what) => format!("cannot be read: {what}"),
    }
}

fn tell_due(
    context: &DriverContext,
    manifest: &Manifest,
    due: &[Due],
) -> Result<ExitCode, Trouble> {
    let packages = manifest.packages_to_check()?;
    if context.json {
        context.print_json(serde_json::json!({ "due": due, "packages": packages }))?;
        return Ok(Exit::Done.into());
    }
    for PackageCheck { row, checked, .. } in packages {
        let last = checked.as_deref().unwrap_or("never");
        context.say(&format!(
            "would read package {} (last: {last})",
            row.package
        ))?;
    }
    for copy in due {
        let last = copy.checked.as_deref().unwrap_or("never");
        context.say(&format!("would read {} (last: {last})", copy.place))?;
    }
    Ok(Exit::Done.into())
}

fn release(
    context: &DriverContext,
    manifest: &mut Manifest,
    options: &VerifyOptions,
) -> Result<ExitCode, Trouble> {
    let Some(why) = options.act.why.as_deref() else {
        return Err(Trouble::usage("verify --release needs --why \"…\""));
    };
    let Some(frozen) = manifest.frozen()? else {
        context.say("nothing is frozen")?;
        return Ok(Exit::Done.into());
    };
    if options.act.dry_run {
        context.say(&format!("would release: {}", frozen.why))?;
        return Ok(Exit::Done.into());
    }
    manifest.thaw()?;
    let outcome = format!("released: {}", frozen.why);
    audit::write(
        context,
        &Line {
            verb: "verify --release",
            stage: "delete, clean",
            parcel: None,
            why: Some(why),
            outcome: &outcome,
        },
    )?;
    context.say(&format!("delete and clean go on; {outcome}"))?;
    Ok(Exit::Done.into())
}

/// Returns where the manifest of this chain lies.
pub(crate) fn manifest_path(context: &DriverContext) -> PathBuf {
    context.root.join(&context.pipeline.archive.manifest)
}

pub(crate) fn open(context: &DriverContext) -> Result<Manifest, Trouble> {
    let path = there(context)?;
    Ok(Manifest::open(&path, &context.root)?)
}

/// Opens it for somebody who may only read.
pub(crate) fn open_to_read(context: &DriverContext) -> Result<Manifest, Trouble> {
    let path = there(context)?;
    Ok(Manifest::open_to_read(&path, &context.root)?)
}

/// Returns where the manifest is that must be there.
fn there(context: &DriverContext) -> Result<PathBuf, Trouble> {
    let path = manifest_path(context);
    if let Some(lost) = Manifest::lost(&path) {
        return Err(lost.into());
    }
    if !path.exists() {
        return Err(Trouble::usage(format!(
            "there is no manifest {} yet: nothing was taken in",
            path.display()
        )));
    }
    Ok(path)
}

impl From<ManifestError> for Trouble {
    fn from(error: ManifestError) -> Self {
        Self::new(Exit::Machine, error)
    }
}
