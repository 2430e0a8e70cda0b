//! The files of a job, and whether they are all there and agree with the job's own list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ecluse_holding::{PackingList, is_packing_list, open_plain, read_packing_list};
use ecluse_manifest::{CopyKind, CopyRow, FileState, JobFile, JobName, Manifest};
use ecluse_stage::Failure;
use ecluse_warc::{ReaderLimits, WarcReader};

use crate::finished_job::{FinishedJob, JobClosing};

/// A job of which every file is stored, backed up and in the index.
pub(crate) struct GatheredJob {
    pub(crate) name: JobName,
    pub(crate) closed: Option<JobClosing>,
    /// The metadata files, then the others in the order of the list.
    pub(crate) files: Vec<GatheredFile>,
}

/// A file that can be packed.
pub(crate) struct GatheredFile {
    pub(crate) file: JobFile,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) stored: CopyRow,
    pub(crate) is_metadata: bool,
}

/// So many names are told on each side; all are counted.
const TOLD: usize = 5;

/// Gathers the files of a job: all of them, those that no package has for a supplement, or those of a package that is made
/// again.
///
/// # Errors
/// Defers while files of its list are on their way. Holds a job whose list and files disagree, with both sides, and one
/// without a list that nobody has closed.
pub(crate) fn gather(
    manifest: &Manifest,
    finished: &FinishedJob,
    least: FileState,
) -> Result<GatheredJob, Failure> {
    let mut name = finished.name();
    let known = manifest.files_of_job(&name).map_err(Failure::halt)?;
    let (metadata, data): (Vec<JobFile>, Vec<JobFile>) = known
        .into_iter()
        .partition(|file| file.row.kind.as_deref() == Some("metadata"));
    let job = &finished.job;
    let chosen = FileChoice::of(manifest, finished)?;
    let mut ready = Vec::new();
    let mut awaited = Vec::new();
    for file in metadata {
        let is_awaited =
            !matches!(&chosen, FileChoice::Again(names) if !names.contains(&file.row.name));
        match must_be_kept(manifest, file, true, least)? {
            Ok(file) => ready.push(file),
            Err(why) if is_awaited => awaited.push(why),
            Err(_) => {}
        }
    }
    if let Some(why) = awaited.first() {
        return Err(Failure::defer(format!("job {job} waits: {why}")));
    }
    let list = packing_list(&ready)?;
    if name.harvest.is_none() {
        name.harvest = list.as_ref().and_then(|list| list.harvest.clone());
    }
    let data = match (&list, &finished.closed, &chosen) {
        // It was compared when the package was made first.
        (list, closed, FileChoice::Again(names)) => {
            let mut data = data;
            data.retain(|file| names.contains(&file.row.name));
            if let (Some(list), None) = (list, closed) {
                let place = |file: &JobFile| {
                    let mut listed = list.files.iter();
                    listed.position(|packed| packed.name == file.row.name)
                };
                data.sort_by_cached_key(place);
            }
            data
        }
        (_, Some(_), _) => data,
        (Some(list), None, _) => compare(job, list, data).map_err(|failure| match chosen {
            FileChoice::Late => after_packing(job, failure),
            _ => failure,
        })?,
        (None, None, FileChoice::Late) => {
            let failure = Failure::hold("it has no packing list");
            return Err(after_packing(job, failure));
        }
        (None, None, FileChoice::All) => {
            let names: Vec<&str> = ready.iter().map(|f| f.file.row.name.as_str()).collect();
            return Err(Failure::hold(format!(
                "job {job} has no packing list (archivefiles-report.txt) in {}, so nobody knows whether it is complete: \
                 `ecluse job close {job} --why …` says that it is",
                if names.is_empty() {
                    "any file".to_owned()
                } else {
                    names.join(", ")
                }
            )));
        }
    };
    for file in data {
        match must_be_kept(manifest, file, false, least)? {
            Ok(file) => ready.push(file),
            Err(why) => awaited.push(why),
        }
    }
    if let Some(first) = awaited.first() {
        let count = awaited.len();
        return Err(Failure::defer(format!(
            "job {job} waits for {count} of its files: {first}"
        )));
    }
    match &chosen {
        FileChoice::All => {}
        FileChoice::Again(names) => ready.retain(|file| names.contains(&file.file.row.name)),
        FileChoice::Late => {
            let mut late = Vec::new();
            for file in ready {
                let packages = manifest.packages_with(&file.file.row.name);
                if packages.map_err(Failure::halt)?.is_empty() {
                    late.push(file);
                }
            }
            ready = late;
        }
    }
    if ready.is_empty() {
        return Err(Failure::hold(format!("job {job} has no files to pack")));
    }
    Ok(GatheredJob {
        name,
        closed: finished.closed.clone(),
        files: ready,
    })
}

/// Which files of a job are packed.
enum FileChoice {
    All,
    /// Those that no package has.
    Late,
    /// Those of a package and of the parts that were made with it.
    Again(BTreeSet<String>),
}

impl FileChoice {
    fn of(manifest: &Manifest, finished: &FinishedJob) -> Result<Self, Failure> {
        let Some(package) = &finished.again else {
            return Ok(match finished.supplement {
                0 => Self::All,
                _ => Self::Late,
            });
        };
        let mut names = BTreeSet::new();
        let rows = manifest.packages_of_job(&finished.name());
        for row in rows.map_err(Failure::halt)? {
            if row.supplement == finished.supplement {
                let files = manifest.files_of_package(&row.package);
                names.extend(files.map_err(Failure::halt)?);
            }
        }
        match names.is_empty() {
            true => Err(Failure::hold(format!(
                "the manifest does not know which files package {package} had"
            ))),
            false => Ok(Self::Again(names)),
        }
    }
}

/// Files that came after the package, and that no list vouches for.
fn after_packing(job: &str, failure: Failure) -> Failure {
    Failure {
        reason: format!(
            "files came after job {job} was packed: {}; `ecluse job close {job} --why …` packs them as a supplement",
            failure.reason
        ),
        ..failure
    }
}

/// Returns the files of a list in its order.
fn compare(job: &str, list: &PackingList, data: Vec<JobFile>) -> Result<Vec<JobFile>, Failure> {
    if list.count > list.files.len() as u64 {
        return Err(Failure::hold(format!(
            "the list of job {job} has {} files, more than can be compared",
            list.count
        )));
    }
    let came = data.len();
    let mut by_name: BTreeMap<String, JobFile> = BTreeMap::new();
    for file in data {
        by_name.insert(file.row.name.clone(), file);
    }
    let mut listed = BTreeSet::new();
    let (mut found, mut missing, mut differs) = (Vec::new(), Vec::new(), Vec::new());
    for packed in &list.files {
        if !listed.insert(packed.name.as_str()) {
            continue;
        }
        let Some(file) = by_name.remove(&packed.name) else {
            missing.push(packed.name.as_str());
            continue;
        };
        match (packed.bytes, file.row.bytes) {
            (Some(listed), Some(came)) if listed != came => differs.push(format!(
                "{} is listed with {listed} bytes and came with {came}, sha256 {}",
                packed.name,
                file.row.sha256.as_deref().unwrap_or("not known")
            )),
            _ => found.push(file),
        }
    }
    let extra: Vec<&str> = by_name.keys().map(String::as_str).collect();
    let sides = format!(
        "the list of job {job} has {} files, {came} came",
        listed.len()
    );
    if !differs.is_empty() {
        return Err(Failure::hold(format!("{sides}: {}", some(&differs))));
    }
    if !missing.is_empty() {
        let mut text = format!("{sides}; listed and not here: {}", some(&missing));
        if !extra.is_empty() {
            text.push_str(&format!("; here and not listed: {}", some(&extra)));
        }
        return Err(Failure::defer(text));
    }
    if !extra.is_empty() {
        let text = format!("{sides}; here and not listed: {}", some(&extra));
        return Err(Failure::hold(text));
    }
    Ok(found)
}

fn some<Text: AsRef<str>>(names: &[Text]) -> String {
    let told: Vec<&str> = names.iter().take(TOLD).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// Returns a file with its stored copy, or why it cannot be packed yet.
fn must_be_kept(
    manifest: &Manifest,
    file: JobFile,
    is_metadata: bool,
    least: FileState,
) -> Result<Result<GatheredFile, String>, Failure> {
    let name = &file.row.name;
    if file.row.state < least {
        let state = file.row.state.word();
        let wanted = match least {
            FileState::Published => "in the index",
            least => least.word(),
        };
        return Ok(Err(format!("{name} is {state}, not {wanted}")));
    }
    let (Some(bytes), Some(sha256)) = (file.row.bytes, file.row.sha256.clone()) else {
        return Ok(Err(format!("no digest of {name} was taken at ingest")));
    };
    let copies = manifest.copies(name).map_err(Failure::halt)?;
    let is_good = |copy: &&CopyRow| copy.sha256 == sha256 && copy.bytes == bytes && !copy.is_bad();
    let mut stored = copies.iter().filter(|copy| copy.kind == CopyKind::Stored);
    let mut backups = copies.iter().filter(|copy| copy.kind == CopyKind::Backup);
    let Some(stored) = stored.find(is_good).cloned() else {
        return Ok(Err(format!(
            "{name} has no stored copy of the digest taken at ingest"
        )));
    };
    if backups.find(is_good).is_none() {
        return Ok(Err(format!(
            "{name} has no backup of the digest taken at ingest"
        )));
    }
    Ok(Ok(GatheredFile {
        file,
        bytes,
        sha256,
        stored,
        is_metadata,
    }))
}

/// Reads the list in the metadata files: those of all of them together.
fn packing_list(metadata: &[GatheredFile]) -> Result<Option<PackingList>, Failure> {
    let mut whole: Option<PackingList> = None;
    for file in metadata {
        let path = Path::new(&file.stored.place);
        let unread = |error: &dyn std::fmt::Display| {
            Failure::defer(format!("cannot read {}: {error}", path.display()))
        };
        let source = open_plain(path).map_err(|error| unread(&error))?;
        let mut reader = WarcReader::seekable(source, ReaderLimits::default());
        while let Some(mut record) = reader.next().map_err(|error| unread(&error))? {
            if !record.target_uri().is_some_and(|uri| is_packing_list(&uri)) {
                continue;
            }
            let list = read_packing_list(&mut record).map_err(|error| unread(&error))?;
            match &mut whole {
                None => whole = Some(list),
                Some(whole) => {
                    whole.count += list.count;
                    whole.files.extend(list.files);
                }
            }
        }
    }
    Ok(whole)
}
