//! `ecluse rebuild manifest`: the database of archive files made anew from what is true: receipts, packages and stored files.
//!
//! The new one is written beside the old and takes its name in one step when it is whole; the old one stays beside it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_bigmerge::GATHERED_DAYS;
use ecluse_holding::{Proof, open_plain, read_afresh};
use ecluse_manifest::{
    Copy, CopyKind, DepositFile, IndexFacts, ManifestError, NewFile, PackageRow, Rebuild,
};
use ecluse_package::{PackageHeading, PackageRows, ROWS};
use ecluse_spool::{Fate, Receipt};
use ecluse_stage::Exit;
use serde_json::{Value, json};

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::rebuild_from::{SEAL, packages_in, restore_package, sha512_of};

/// The stages whose receipts tell of files, in the order of the chain.
const TELLING: [&str; 9] = [
    "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "package", "deposit",
];

/// Why nothing is removed after the old manifest could not be asked.
pub(crate) const UNKNOWN: &str = "the manifest was rebuilt and the old one could not be read, so whether a copy was bad is not known: run `ecluse verify`, then release";

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    must_be_stopped(context)?;
    let path = crate::verify::manifest_path(context);
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%S%3fZ")
        .to_string();
    let (new, old) = (
        beside(&path, &format!(".new-{time}")),
        beside(&path, &format!(".old-{time}")),
    );
    let mut rebuild = Rebuild::begin(&new, &context.root)?;
    let receipts = replay(context, &mut rebuild)?;
    let unknown = stored_without_receipt(context, &mut rebuild)?;
    let cleaned = rebuild.cleaned(is_gone)?;
    if rebuild.take_checks(&path).is_err() {
        rebuild.freeze(UNKNOWN)?;
    }
    let files = rebuild.count()?;
    let outcome = format!(
        "{} from {}; {} without a receipt; {cleaned} gone from harvested",
        crate::show::count(files, "file", "files"),
        crate::show::count(receipts, "receipt", "receipts"),
        crate::show::count(unknown, "stored file", "stored files"),
    );
    if options.act.dry_run {
        rebuild.discard()?;
        context.say(&format!("would rebuild {}: {outcome}", path.display()))?;
        return Ok(Exit::Done.into());
    }
    rebuild.publish(&path, &old)?;
    audit::write(
        context,
        &Line {
            verb: "rebuild manifest",
            stage: "",
            parcel: None,
            why: options.act.why.as_deref(),
            outcome: &outcome,
        },
    )?;
    if context.json {
        context.print_json(json!({
            "files": files, "receipts": receipts, "without_receipt": unknown, "cleaned": cleaned,
            "old": old.exists().then_some(&old),
        }))?;
        return Ok(Exit::Done.into());
    }
    context.say(&format!("rebuilt {}: {outcome}", path.display()))?;
    if old.exists() {
        context.say(&format!("the old one is {}", old.display()))?;
    }
    Ok(Exit::Done.into())
}

/// Refuses while a stage runs: what it told the manifest meanwhile would be lost.
pub(crate) fn must_be_stopped(context: &DriverContext) -> Result<(), Trouble> {
    for stage in context.stages()? {
        let lease = context.pipeline.shell(&stage).lease.0;
        if context
            .engine
            .workers(&stage, lease)?
            .iter()
            .any(|worker| worker.alive)
        {
            return Err(Trouble::usage(format!(
                "{stage} is running: stop the stages first (systemctl stop ecluse.target)"
            )));
        }
    }
    Ok(())
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Tells whether a harvested file is gone; a directory that is gone as well may not be mounted.
fn is_gone(source: &str) -> bool {
    let source = Path::new(source);
    let looked = source.symlink_metadata();
    source.parent().is_some_and(Path::is_dir)
        && looked.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Tells the new manifest every receipt, and returns how many there were.
fn replay(context: &DriverContext, rebuild: &mut Rebuild) -> Result<u64, Trouble> {
    let mut count = 0;
    for telling in TELLING {
        for stage in context.stages()? {
            if ecluse_config::base_of(&stage) != telling {
                continue;
            }
            let mut told = Ok(());
            context.engine.each_receipt_ever(&stage, &mut |filed| {
                if told.is_ok() {
                    count += 1;
                    told = tell(telling, &filed.receipt, rebuild);
                }
            })?;
            told?;
        }
        match telling {
            "ingest" => each_package(context, rebuild, take_files)?,
            "package" => each_package(context, rebuild, take_package)?,
            _ => {}
        }
    }
    Ok(count)
}

/// Calls `take` for each package of the archive. An archive that came back from its packages has no receipts of what was before:
/// its packages tell what they would.
fn each_package(
    context: &DriverContext,
    rebuild: &mut Rebuild,
    take: fn(&Path, PackageRows, PackageHeading, &mut Rebuild) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let directory = context.packages();
    if !directory.is_dir() {
        return Ok(());
    }
    for package in packages_in(&directory)? {
        // A bag that somebody put there has no such lines, and a bad one is not believed: `verify` tells of it.
        if !package.join(ROWS).is_file() || !has_its_rows(&package) {
            continue;
        }
        let opened = PackageRows::open(&package);
        let (heading, rows) = opened.map_err(|error| unread(&package, &error))?;
        take(&package, rows, heading, rebuild)?;
    }
    Ok(())
}

/// Tells whether the rows of a package are those that its tag manifest lists.
fn has_its_rows(package: &Path) -> bool {
    let listed = std::fs::read_to_string(package.join(SEAL)).unwrap_or_default();
    let line = sha512_of(&package.join(ROWS)).map(|sha512| format!("{sha512}  {ROWS}"));
    line.is_ok_and(|line| listed.lines().any(|listed| listed == line))
}

fn unread(package: &Path, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(Exit::Held, format!("{}: {error}", package.display()))
}

/// Takes up the files of a package that no receipt of ingest tells of.
fn take_files(
    package: &Path,
    mut rows: PackageRows,
    _heading: PackageHeading,
    rebuild: &mut Rebuild,
) -> Result<(), Trouble> {
    while let Some(packed) = rows.next_file().map_err(|error| unread(package, &error))? {
        let history = packed.history.map(|history| history.to_string());
        rebuild.restore(&packed.row, history.as_deref())?;
    }
    Ok(())
}

/// Takes up a package that no receipt tells of.
fn take_package(
    package: &Path,
    mut rows: PackageRows,
    heading: PackageHeading,
    rebuild: &mut Rebuild,
) -> Result<(), Trouble> {
    let mut names = Vec::new();
    while let Some(packed) = rows.next_file().map_err(|error| unread(package, &error))? {
        names.push(packed.row.name);
    }
    restore_package(rebuild, package, heading, &names)
}

fn tell(stage: &str, receipt: &Receipt, rebuild: &mut Rebuild) -> Result<(), ManifestError> {
    // A time of the manifest has no fractions.
    let at = match receipt.finished.get(..19) {
        Some(time) => format!("{time}Z"),
        None => receipt.finished.clone(),
    };
    let at = at.as_str();
    match stage {
        "ingest" => tell_ingested(receipt, at, rebuild),
        "index" => tell_indexed(receipt, at, rebuild),
        "transfer" => tell_copies(receipt, at, CopyKind::Stored, "copies", rebuild),
        "backup" => tell_copies(receipt, at, CopyKind::Backup, "proofs", rebuild),
        "delete" => match &receipt.fate {
            Fate::PassOn { detached, .. } => {
                let mut names = detached.iter();
                names.try_for_each(|name| rebuild.deleted(name, at))
            }
            _ => Ok(()),
        },
        "merge" => {
            let mut outputs = receipt.outputs.iter();
            outputs.try_for_each(|day| {
                let members = receipt.inputs.iter().map(|input| input.parcel.as_str());
                rebuild.gathered(day.parcel.as_str(), members)
            })
        }
        "package" => tell_packaged(receipt, at, rebuild),
        "deposit" => tell_handed_over(receipt, at, rebuild),
        _ => tell_published(receipt, at, rebuild),
    }
}

fn tell_packaged(receipt: &Receipt, at: &str, rebuild: &mut Rebuild) -> Result<(), ManifestError> {
    let text = |fact: &Value, key: &str| fact.get(key).and_then(Value::as_str).map(str::to_owned);
    let facts = Value::Object(receipt.facts.clone());
    let parts = receipt.facts.get("parts").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        let number = |key: &str| part.get(key).and_then(Value::as_u64).unwrap_or(0);
        let (Some(job), Some(package)) = (text(&facts, "job"), text(part, "package")) else {
            continue;
        };
        let row = PackageRow {
            job,
            harvest: text(&facts, "harvest").unwrap_or_default(),
            part: number("part"),
            parts: number("parts"),
            supplement: number("supplement"),
            ark: text(part, "ark").unwrap_or_default(),
            package,
            files: number("files"),
            bytes: number("bytes"),
            sha512: text(part, "sha512").unwrap_or_default(),
        };
        let names = part.get("names").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<String> = names.map(str::to_owned).collect();
        rebuild.packaged(&row, &names, at)?;
    }
    Ok(())
}

fn tell_handed_over(
    receipt: &Receipt,
    at: &str,
    rebuild: &mut Rebuild,
) -> Result<(), ManifestError> {
    let text = |key: &str| receipt.facts.get(key).and_then(Value::as_str);
    let files = receipt.facts.get("files").cloned().unwrap_or_default();
    let files: Vec<DepositFile> = serde_json::from_value(files).unwrap_or_default();
    match (text("package"), text("sha512")) {
        (Some(package), Some(sha512)) => rebuild.handed_over((package, sha512), &files, at),
        _ => Ok(()),
    }
}

fn tell_ingested(receipt: &Receipt, at: &str, rebuild: &mut Rebuild) -> Result<(), ManifestError> {
    let text = |key: &str| receipt.facts.get(key).and_then(Value::as_str);
    let (Some(source), Some(sha256)) = (text("source"), text("sha256")) else {
        return Ok(());
    };
    let name = source.rsplit('/').next().unwrap_or(source);
    let parcel = receipt.work.as_str();
    if receipt.facts.contains_key("skipped") {
        return rebuild.skipped(parcel, name, source, at);
    }
    let bytes = receipt.facts.get("bytes").and_then(Value::as_u64);
    let file = NewFile {
        name,
        bytes: bytes.unwrap_or_default(),
        sha256,
        kind: text("kind").unwrap_or("warc"),
        job: text("job"),
        harvest: text("harvest"),
        collection: text("collection"),
        source,
        parcel,
    };
    rebuild.ingested(&file, at)?;
    match text("sha512") {
        Some(sha512) => rebuild.hashed(name, sha256, sha512),
        None => Ok(()),
    }
}

fn tell_indexed(receipt: &Receipt, at: &str, rebuild: &mut Rebuild) -> Result<(), ManifestError> {
    let Some(name) = attached(receipt, ".cdxj") else {
        return Ok(());
    };
    let found = IndexFacts::of(&receipt.facts);
    rebuild.indexed(receipt.work.as_str(), name, &found, at)
}

fn tell_copies(
    receipt: &Receipt,
    at: &str,
    kind: CopyKind,
    key: &str,
    rebuild: &mut Rebuild,
) -> Result<(), ManifestError> {
    let ending = match kind {
        CopyKind::Stored => ".path",
        CopyKind::Backup => ".backup.json",
    };
    let Some(name) = attached(receipt, ending) else {
        return Ok(());
    };
    let copies = receipt.facts.get(key).and_then(Value::as_array);
    for fact in copies.into_iter().flatten() {
        let text = |key: &str| fact.get(key).and_then(Value::as_str);
        let (Some(target), Some(place), Some(sha256)) =
            (text("target"), text("place"), text("sha256"))
        else {
            continue;
        };
        let copy = Copy {
            target,
            place,
            bytes: fact.get("bytes").and_then(Value::as_u64).unwrap_or(0),
            sha256,
        };
        // As the stage writes it, so that both say the same.
        let proof = match kind {
            CopyKind::Stored => None,
            CopyKind::Backup => serde_json::from_value::<Proof>(fact.clone())
                .ok()
                .and_then(|proof| serde_json::to_value(proof).ok()),
        };
        rebuild.copied(receipt.work.as_str(), name, kind, &copy, proof.as_ref(), at)?;
    }
    Ok(())
}

fn tell_published(receipt: &Receipt, at: &str, rebuild: &mut Rebuild) -> Result<(), ManifestError> {
    for (key, value) in &receipt.facts {
        let Some(number) = value.as_u64() else {
            continue;
        };
        let collection = match key.as_str() {
            "generation" => None,
            other => match other.strip_prefix("generation ") {
                Some(collection) => Some(collection),
                None => continue,
            },
        };
        for day in &receipt.inputs {
            rebuild.published(day.parcel.as_str(), collection, number, at)?;
        }
        for day in gathered_days(receipt) {
            rebuild.published(day, collection, number, at)?;
        }
    }
    Ok(())
}

/// Returns the days that were gathered in the parcels of a batch of bigmerge.
fn gathered_days(receipt: &Receipt) -> impl Iterator<Item = &str> {
    let gathered = receipt.facts.iter();
    let gathered = gathered.filter(|(key, _)| key.starts_with(GATHERED_DAYS));
    let days = gathered.filter_map(|(_, days)| days.as_array());
    days.flatten().filter_map(Value::as_str)
}

/// Returns the archive file that a file beside it is named after.
fn attached<'a>(receipt: &'a Receipt, ending: &str) -> Option<&'a str> {
    match &receipt.fate {
        Fate::PassOn { attached, .. } => attached
            .iter()
            .find_map(|file| file.name.strip_suffix(ending)),
        _ => None,
    }
}

/// Takes up what lies in the locations and no receipt tells of, with the digest it has now.
fn stored_without_receipt(context: &DriverContext, rebuild: &mut Rebuild) -> Result<u64, Trouble> {
    let root = std::path::absolute(&context.root)?;
    let at = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let mut count = 0;
    for location in &context.pipeline.archive.repository {
        let mut directories = vec![root.join(&location.path)];
        while let Some(directory) = directories.pop() {
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                if name.starts_with('.') {
                    continue;
                }
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    directories.push(entry.path());
                } else if kind.is_file() && !rebuild.is_stored(&name)? {
                    let place = entry.path();
                    // A digest taken at ingest is what `verify` will hold it to.
                    let (bytes, sha256) = match rebuild.digest(&name)? {
                        Some(known) => known,
                        None => {
                            let found = read_afresh(&mut open_plain(&place)?, &|| true);
                            let found =
                                found.map_err(|fault| Trouble::new(Exit::Machine, fault))?;
                            (found.bytes, found.sha256)
                        }
                    };
                    let copy = Copy {
                        target: &location.name,
                        place: &place.to_string_lossy(),
                        bytes,
                        sha256: &sha256,
                    };
                    rebuild.copied(&name, &name, CopyKind::Stored, &copy, None, &at)?;
                    count += 1;
                }
            }
        }
    }
    Ok(count)
}
