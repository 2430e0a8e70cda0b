//! What `ecluse give` refuses: what the stage would only hold.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ecluse_crawl::Crawl;
use ecluse_manifest::{FileRow, Manifest};
use ecluse_scope::Order;
use ecluse_stage::Stage;

use crate::context::{DriverContext, Trouble};

/// No order is longer.
const ORDER_BYTES: u64 = 16 << 20;

/// Fails if a stage could do nothing with a file; returns what the manifest knows of a file of the archive.
pub(crate) fn must_fit(
    context: &DriverContext,
    stage: &str,
    file: &Path,
) -> Result<Option<FileRow>, Trouble> {
    let opened = must_be_plain(file)?;
    let base = ecluse_config::base_of(stage);
    if base == Crawl::NAME {
        return must_be_order(context, file, opened).map(|()| None);
    }
    if base == ecluse_ingest::Ingest::NAME {
        return Err(refused(file, &new_files(context)));
    }
    if base == ecluse_deposit::Deposit::NAME {
        let why = "deposit takes packages from the manifest, not files";
        return Err(refused(file, why));
    }
    if base == ecluse_package::Package::NAME {
        let why = "package takes finished jobs, not files; `ecluse job close JOB --why …` lets a job be packed";
        return Err(refused(file, why));
    }
    let chain = [
        ecluse_index::Index::NAME,
        ecluse_transfer::Transfer::NAME,
        ecluse_backup::Backup::NAME,
        ecluse_delete::Delete::NAME,
    ];
    match chain.contains(&base) {
        true => must_be_known(context, file).map(Some),
        false => Ok(None),
    }
}

fn refused(file: &Path, why: &str) -> Trouble {
    Trouble::usage(format!("cannot give {}: {why}", file.display()))
}

fn new_files(context: &DriverContext) -> String {
    let harvested = context.root.join(context.pipeline.archive.crawled());
    format!(
        "new files are taken in by ingest: put it into {}",
        harvested.display()
    )
}

/// Refuses what has no end or no bytes of its own, or cannot be read: a pipe would be waited for, a device would fill the disk.
fn must_be_plain(file: &Path) -> Result<File, Trouble> {
    match std::fs::metadata(file) {
        Ok(meta) if meta.is_file() => {}
        Ok(meta) if meta.is_dir() => {
            return Err(refused(file, "it is a directory; name the files in it"));
        }
        Ok(_) => return Err(refused(file, "it is no plain file")),
        Err(error) => return Err(refused(file, &error.to_string())),
    }
    File::open(file).map_err(|error| refused(file, &error.to_string()))
}

/// An order must make sense, need no other file, and be the first or the same of its job and harvest.
fn must_be_order(context: &DriverContext, file: &Path, opened: File) -> Result<(), Trouble> {
    if file.extension().is_none_or(|end| end != "toml") {
        return Err(refused(file, "the crawl takes orders, *.toml"));
    }
    let mut text = String::new();
    let read = opened.take(ORDER_BYTES).read_to_string(&mut text);
    read.map_err(|error| refused(file, &error.to_string()))?;
    let contact = &context.pipeline.site.contact;
    let name = file.display().to_string();
    let order = Order::parse(&text, &name, contact)
        .map_err(Trouble::usage)?
        .order;
    if let Some(seeds) = order.seeds.iter().find_map(|seeds| seeds.file.as_ref()) {
        let why =
            format!("its seed file {seeds:?} cannot come with it; put the seeds into the order");
        return Err(refused(file, &why));
    }
    if order.seed_list().seeds.is_empty() {
        return Err(refused(file, "it has no seed that can be crawled"));
    }
    let job = format!("{}-{}", order.job, order.harvest);
    let begun = context.jobs_dir()?.join(&job).join("order-given.toml");
    match std::fs::read(&begun) {
        Ok(before) if before != text.as_bytes() => {
            let why = format!("{job} was begun with another order; give this one another harvest");
            Err(refused(file, &why))
        }
        _ => Ok(()),
    }
}

/// A file of the archive must be the one that ingest took in under its name: another would be held before anything is removed.
fn must_be_known(context: &DriverContext, file: &Path) -> Result<FileRow, Trouble> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let path = crate::verify::manifest_path(context);
    let row = match path.exists() {
        true => Manifest::open_to_read(&path, &context.root)?.file(&name)?,
        false => None,
    };
    let Some(row) = row else {
        return Err(refused(file, &new_files(context)));
    };
    let taken = || {
        let why = format!(
            "{name} is in the archive with other bytes; give it another name and put it into {}",
            context
                .root
                .join(context.pipeline.archive.crawled())
                .display()
        );
        Err(refused(file, &why))
    };
    if row
        .bytes
        .is_some_and(|bytes| std::fs::metadata(file).is_ok_and(|meta| meta.len() != bytes))
    {
        return taken();
    }
    let fixity = ecluse_holding::open_plain(file)
        .map_err(Into::into)
        .and_then(|mut opened| ecluse_holding::read_afresh(&mut opened, &|| true))
        .map_err(|error| refused(file, &error.to_string()))?;
    match row.sha256.as_ref() {
        Some(known) if *known != fixity.sha256 => taken(),
        _ => Ok(row),
    }
}
