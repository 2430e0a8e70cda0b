//! The files of a package in the order in which they are handed over.
//!
//! First the metadata files of the job, wherever they were packed: what the repository knows the job by. Then the documents of the
//! package, the METS first; then the data files in order of their names; then the tag files, the tag manifest last, which
//! says that the package is whole.

use std::path::{Path, PathBuf};

use ecluse_holding::{Fixity, ReadFault, open_plain, read_afresh};
use ecluse_manifest::{DepositFile, DepositKey, DepositState, JobName, Manifest, PackageRow};
use ecluse_stage::{Failure, hex};
use sha2::{Digest, Sha512};
use walkdir::WalkDir;

/// The file that fixes a whole package.
const SEAL: &str = "tagmanifest-sha512.txt";
const INFO: &str = "bag-info.txt";

/// A file that is to be handed over.
pub(crate) struct ListedFile {
    pub(crate) file: DepositFile,
    pub(crate) path: PathBuf,
    pub(crate) below: String,
}

/// What a file is, in the order of the hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Metadata,
    Document,
    Data,
    Tag,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Metadata => "metadata",
            Role::Document => "document",
            Role::Data => "data",
            Role::Tag => "tag",
        }
    }
}

/// Lists the files of a package.
///
/// # Errors
/// Defers when the package is not there, holds when it is not what was made.
pub(crate) fn list(
    manifest: &Manifest,
    packages: &Path,
    row: &PackageRow,
) -> Result<Vec<ListedFile>, Failure> {
    let package = packages.join(&row.package);
    must_be_sealed(&package, row)?;
    let lister = Lister {
        channel: channel_of(&package),
        manifest,
        row,
    };
    let mut listed: Vec<(Role, bool, ListedFile)> = Vec::new();
    let mut is_there = std::collections::BTreeSet::new();
    for entry in WalkDir::new(&package) {
        let entry = entry.map_err(|error| Failure::defer(format!("cannot read: {error}")))?;
        if !entry.file_type().is_file() {
            continue;
        }
        let below = entry
            .path()
            .strip_prefix(&package)
            .ok()
            .and_then(Path::to_str);
        let below = below
            .ok_or_else(|| Failure::hold(format!("{} is not UTF-8", entry.path().display())))?;
        let (role, file) = lister.describe(entry.path(), below)?;
        let is_last =
            matches!(below, SEAL) || (role == Role::Document && !below.ends_with("METS.xml"));
        is_there.insert(file.file.key.file.clone());
        listed.push((role, is_last, file));
    }
    // A part of a job has not its metadata files; the first part has.
    let mut first = lister.metadata_elsewhere(packages, &is_there)?;
    listed.sort_by(|one, other| {
        let key = |(role, is_last, file): &(Role, bool, ListedFile)| {
            (*role, *is_last, file.below.clone())
        };
        key(one).cmp(&key(other))
    });
    first.extend(listed.into_iter().map(|(_, _, file)| file));
    Ok(first)
}

fn must_be_sealed(package: &Path, row: &PackageRow) -> Result<(), Failure> {
    let name = &row.package;
    let repair = format!("`ecluse repair {name}`");
    let seal = std::fs::read(package.join(SEAL)).map_err(|error| {
        Failure::defer(format!("package {name} cannot be read: {error}; {repair}"))
    })?;
    match hex(&Sha512::digest(seal)) == row.sha512 {
        true => Ok(()),
        false => Err(Failure::hold(format!(
            "package {name} is not what was made: {SEAL} differs; {repair}"
        ))),
    }
}

/// Returns where the files come from, as the package says.
fn channel_of(package: &Path) -> String {
    let info = std::fs::read_to_string(package.join(INFO)).unwrap_or_default();
    let mut lines = info.lines();
    let channel = lines.find_map(|line| line.strip_prefix("Channel: "));
    channel.unwrap_or_default().to_owned()
}

struct Lister<'a> {
    manifest: &'a Manifest,
    row: &'a PackageRow,
    channel: String,
}

impl Lister<'_> {
    fn describe(&self, path: &Path, below: &str) -> Result<(Role, ListedFile), Failure> {
        let name = below.rsplit('/').next().unwrap_or(below);
        let archive = match below.starts_with("data/") {
            true => self.manifest.file(name).map_err(Failure::halt)?,
            false => None,
        };
        if let Some(file) = archive
            && let (Some(bytes), Some(sha256)) = (file.bytes, file.sha256)
        {
            let role = match file.kind.as_deref() {
                Some("metadata") => Role::Metadata,
                _ => Role::Data,
            };
            let wanted = Fixity { bytes, sha256 };
            let file = self.listed(path, below, name.to_owned(), role, wanted);
            return Ok((role, file));
        }
        let role = match below.starts_with("data/") {
            true => Role::Document,
            false => Role::Tag,
        };
        let unread =
            |fault: ReadFault| Failure::defer(format!("cannot read {}: {fault}", path.display()));
        let mut file = open_plain(path).map_err(|error| unread(error.into()))?;
        let wanted = read_afresh(&mut file, &|| true).map_err(unread)?;
        let name = format!("{}/{below}", self.row.package);
        Ok((role, self.listed(path, below, name, role, wanted)))
    }

    fn listed(
        &self,
        path: &Path,
        below: &str,
        file: String,
        role: Role,
        wanted: Fixity,
    ) -> ListedFile {
        ListedFile {
            file: DepositFile {
                key: DepositKey {
                    job: self.row.job.clone(),
                    harvest: self.row.harvest.clone(),
                    file,
                    sha256: wanted.sha256,
                },
                package: self.row.package.clone(),
                channel: self.channel.clone(),
                role: role.word().to_owned(),
                bytes: wanted.bytes,
                state: DepositState::Built,
                tries: 0,
                sent: None,
                receipted: None,
                identifier: None,
                receipt: None,
                said: None,
            },
            path: path.to_owned(),
            below: below.to_owned(),
        }
    }

    /// Lists the metadata files of the job that are in other packages of it.
    fn metadata_elsewhere(
        &self,
        packages: &Path,
        is_there: &std::collections::BTreeSet<String>,
    ) -> Result<Vec<ListedFile>, Failure> {
        let harvest = (!self.row.harvest.is_empty()).then(|| self.row.harvest.clone());
        let job = JobName {
            job: self.row.job.clone(),
            harvest,
        };
        let mut listed = Vec::new();
        for file in self.manifest.files_of_job(&job).map_err(Failure::halt)? {
            let name = &file.row.name;
            let is_metadata = file.row.kind.as_deref() == Some("metadata");
            if !is_metadata || is_there.contains(name) {
                continue;
            }
            let others = self.manifest.packages_with(name).map_err(Failure::halt)?;
            let Some(other) = others.iter().find(|other| other.job == self.row.job) else {
                continue;
            };
            let package = packages.join(&other.package);
            let entries = WalkDir::new(&package).into_iter().flatten();
            let mut paths = entries.filter(|entry| entry.file_name() == name.as_str());
            let Some(path) = paths.next().map(walkdir::DirEntry::into_path) else {
                return Err(Failure::defer(format!(
                    "package {} has not its file {name}: `ecluse repair {}`",
                    other.package, other.package
                )));
            };
            let below = path.strip_prefix(&package).ok().and_then(Path::to_str);
            let below = below.unwrap_or(name).to_owned();
            let (_, mut file) = self.describe(&path, &below)?;
            file.file.package.clone_from(&other.package);
            listed.push(file);
        }
        Ok(listed)
    }
}
