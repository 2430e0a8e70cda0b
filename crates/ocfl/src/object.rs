//! The check of a whole object.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use ecluse_bag::{DigestAlgorithm, FileReading, ValidateError, ValidateOptions, read_digests};
use serde_json::Value;

use crate::fault::OcflReport;
use crate::inventory::{self, Inventory};
use crate::{INVENTORY, OBJECT, SPECS, states};

/// Checks an object: its form, its history, and every digest that is stated of a file.
///
/// `going` is told how many bytes were read so far, by several threads, and says whether to go on.
///
/// # Errors
/// When the disk fails or `going` says to stop: nothing is known of the object then.
pub fn validate_object(
    object: &Path,
    options: ValidateOptions,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<OcflReport, ValidateError> {
    let mut check = Check {
        object,
        report: OcflReport::default(),
        digests: BTreeMap::new(),
        sidecars: BTreeMap::new(),
        spec: SPECS.len() - 1,
    };
    if !object.is_dir() {
        check.report.fault("E003", "there is no such directory");
        return Ok(check.report);
    }
    check.read_declarations()?;
    if let Some(root) = check.read_inventory("", "the inventory of the object")? {
        // Content is looked for where the inventory says: a bad one leads nowhere.
        let is_sound = check.report.faults.is_empty();
        check.read_object_root(&root)?;
        check.read_versions(&root)?;
        if is_sound {
            check.read_content(&root, options, going)?;
        }
        check.report.id = root.id.unwrap_or_default();
        check.report.versions = root.versions.len();
    }
    let mut report = check.report;
    if options.is_strict {
        report.faults.append(&mut report.warnings);
    }
    Ok(report)
}

/// A check under way.
struct Check<'a> {
    object: &'a Path,
    report: OcflReport,
    /// What every inventory states of a content path, with the code of a mismatch.
    digests: BTreeMap<String, BTreeSet<(DigestAlgorithm, String, &'static str)>>,
    /// The names of sidecars, by version.
    sidecars: BTreeMap<String, String>,
    /// The version of the specification, by its place in [`SPECS`].
    spec: usize,
}

impl Check<'_> {
    fn read_declarations(&mut self) -> Result<(), ValidateError> {
        let mut found = Vec::new();
        for (name, _) in self.list("")? {
            let Some(declared) = name.strip_prefix("0=") else {
                continue;
            };
            let spec = declared.strip_prefix(OBJECT);
            let spec = SPECS.iter().position(|known| spec == Some(known));
            let Some(spec) = spec else {
                self.report
                    .fault("E006", format!("{name} declares nothing that is known"));
                continue;
            };
            if self.read(&name)? != Some(format!("{declared}\n").into_bytes()) {
                self.report
                    .fault("E007", format!("{name} says something else than its name"));
            }
            found.push(spec);
        }
        match found.as_slice() {
            [] => self
                .report
                .fault("E003", "there is no declaration, 0=ocfl_object_…"),
            [_] => {}
            _ => self.report.fault("E003", "there are several declarations"),
        }
        if let Some(spec) = found.iter().max() {
            self.spec = *spec;
            self.report.spec = SPECS[*spec].to_owned();
        }
        Ok(())
    }

    /// Reads the inventory of the object or of a version, and its sidecar.
    fn read_inventory(
        &mut self,
        below: &str,
        at: &str,
    ) -> Result<Option<Inventory>, ValidateError> {
        let path = format!("{below}{INVENTORY}");
        let Some(bytes) = self.read(&path)? else {
            self.report.fault("E063", format!("{path} is missing"));
            return Ok(None);
        };
        let value: Value = match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(error) => {
                self.report
                    .fault("E033", format!("{path} is no JSON: {error}"));
                return Ok(None);
            }
        };
        let inventory = inventory::read(&value, at, self.spec, &mut self.report);
        if let Some(algorithm) = inventory.algorithm {
            self.read_sidecar(&path, &bytes, algorithm)?;
            let version = below.trim_end_matches('/').to_owned();
            let sidecar = format!("{INVENTORY}.{}", algorithm.name());
            self.sidecars.insert(version, sidecar);
            for (content, digest) in &inventory.manifest {
                let stated = (algorithm, digest.clone(), "E092");
                self.digests
                    .entry(content.clone())
                    .or_default()
                    .insert(stated);
            }
        }
        for (content, algorithm, digest) in &inventory.fixity {
            let stated = (*algorithm, digest.clone(), "E093");
            self.digests
                .entry(content.clone())
                .or_default()
                .insert(stated);
        }
        Ok(Some(inventory))
    }

    fn read_sidecar(
        &mut self,
        path: &str,
        inventory: &[u8],
        algorithm: DigestAlgorithm,
    ) -> Result<(), ValidateError> {
        let sidecar = format!("{path}.{}", algorithm.name());
        let Some(text) = self.read(&sidecar)? else {
            self.report.fault("E058", format!("{sidecar} is missing"));
            return Ok(());
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(digest), Some(INVENTORY), None) => {
                if !digest.eq_ignore_ascii_case(&algorithm.digest(inventory)) {
                    self.report
                        .fault("E060", format!("{path} has not the digest in {sidecar}"));
                }
            }
            _ => self.report.fault(
                "E061",
                format!("{sidecar} is not of the form DIGEST {INVENTORY}"),
            ),
        }
        Ok(())
    }

    fn read_object_root(&mut self, root: &Inventory) -> Result<(), ValidateError> {
        let sidecar = self.sidecars.get("").cloned().unwrap_or_default();
        for (name, is_dir) in self.list("")? {
            let is_version = root.versions.contains(&name);
            match is_dir {
                Some(false) if name.starts_with("0=") || name == INVENTORY || name == sidecar => {}
                Some(true) if is_version || name == "logs" => {}
                Some(true) if name == "extensions" => self.read_extensions()?,
                Some(true) if is_version_name(&name) => {
                    self.report
                        .fault("E046", format!("the directory {name} is in no inventory"));
                }
                _ => self
                    .report
                    .fault("E001", format!("{name} does not belong into an object")),
            }
        }
        Ok(())
    }

    fn read_extensions(&mut self) -> Result<(), ValidateError> {
        for (name, is_dir) in self.list("extensions")? {
            if is_dir != Some(true) {
                self.report
                    .fault("E067", format!("extensions/{name} is no directory"));
            } else if !REGISTERED.contains(&name.as_str()) {
                self.report
                    .warn("W013", format!("the extension {name} is not registered"));
            }
        }
        Ok(())
    }

    fn read_versions(&mut self, root: &Inventory) -> Result<(), ValidateError> {
        let mut before: BTreeSet<String> = BTreeSet::new();
        let mut spec = 0;
        let (last, earlier) = match root.versions.split_last() {
            Some(split) => split,
            None => return Ok(()),
        };
        for version in earlier {
            if self.read(&format!("{version}/{INVENTORY}"))?.is_none() {
                self.report
                    .warn("W010", format!("{version} has no inventory"));
                continue;
            }
            let at = format!("the inventory of {version}");
            let Some(inventory) = self.read_inventory(&format!("{version}/"), &at)? else {
                continue;
            };
            if inventory.spec < spec {
                self.report.fault(
                    "E103",
                    format!("{at} is of an earlier specification than the one before it"),
                );
            }
            spec = inventory.spec;
            if let Some(lost) = before
                .iter()
                .find(|path| !inventory.manifest.contains_key(*path))
            {
                self.report.fault(
                    "E023",
                    format!("{at} lacks {lost:?}, which an earlier one has"),
                );
            }
            before.extend(inventory.manifest.keys().cloned());
            states::compare(&at, &inventory, root, &mut self.report);
        }
        if root.spec < spec {
            self.report.fault(
                "E103",
                "the object is of an earlier specification than a version of it",
            );
        }
        match self.read(&format!("{last}/{INVENTORY}"))? {
            None => self.report.warn("W010", format!("{last} has no inventory")),
            Some(bytes) if Some(&bytes) != self.read(INVENTORY)?.as_ref() => {
                self.report.fault(
                    "E064",
                    format!("the inventory of {last} is not that of the object"),
                );
                self.sidecars.insert(
                    last.clone(),
                    self.sidecars.get("").cloned().unwrap_or_default(),
                );
            }
            Some(bytes) => {
                if let Some(algorithm) = root.algorithm {
                    self.read_sidecar(&format!("{last}/{INVENTORY}"), &bytes, algorithm)?;
                }
                self.sidecars.insert(
                    last.clone(),
                    self.sidecars.get("").cloned().unwrap_or_default(),
                );
            }
        }
        Ok(())
    }

    fn read_content(
        &mut self,
        root: &Inventory,
        options: ValidateOptions,
        going: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<(), ValidateError> {
        let mut found = BTreeMap::new();
        for version in &root.versions {
            if !self.object.join(version).is_dir() {
                self.report
                    .fault("E046", format!("the directory {version} is missing"));
                continue;
            }
            self.read_version(version, &root.content_directory, &mut found)?;
        }
        self.report.files = found.len() as u64;
        self.report.bytes = found.values().sum();
        for path in found
            .keys()
            .filter(|path| !root.manifest.contains_key(*path))
        {
            self.report
                .fault("E023", format!("{path} is not in the manifest"));
        }
        for path in root
            .manifest
            .keys()
            .filter(|path| !found.contains_key(*path))
        {
            self.report.fault("E092", format!("{path} is missing"));
        }
        let wanted: Vec<(&String, &BTreeSet<_>)> = self
            .digests
            .iter()
            .filter(|(path, _)| found.contains_key(*path))
            .collect();
        let readings: Vec<FileReading<'_>> = wanted
            .iter()
            .map(|(path, stated)| FileReading {
                path,
                bytes: found[*path],
                algorithms: stated.iter().map(|(algorithm, ..)| *algorithm).collect(),
            })
            .collect();
        let digests = read_digests(self.object, &readings, options.threads, going)?;
        for ((path, stated), found) in wanted.iter().zip(digests) {
            for ((algorithm, digest, code), found) in stated.iter().zip(found) {
                if *digest != found {
                    let text = format!(
                        "{path} has {} {found}, stated is {digest}",
                        algorithm.name()
                    );
                    self.report.faults.push(crate::OcflFault { code, text });
                }
            }
        }
        Ok(())
    }

    fn read_version(
        &mut self,
        version: &str,
        content: &str,
        found: &mut BTreeMap<String, u64>,
    ) -> Result<(), ValidateError> {
        let sidecar = self.sidecars.get(version).cloned();
        for (name, is_dir) in self.list(version)? {
            let path = format!("{version}/{name}");
            match is_dir {
                Some(false) if name == INVENTORY || Some(&name) == sidecar.as_ref() => {}
                Some(true) if name == content => {
                    let before = found.len();
                    self.walk(&path, found)?;
                    if found.len() == before {
                        self.report.warn("W003", format!("{path} is empty"));
                    }
                }
                Some(true) => self
                    .report
                    .warn("W002", format!("{path} does not belong into a version")),
                _ => self
                    .report
                    .fault("E015", format!("{path} is not in the content directory")),
            }
        }
        Ok(())
    }

    /// Finds the files below a directory.
    fn walk(&mut self, path: &str, found: &mut BTreeMap<String, u64>) -> Result<(), ValidateError> {
        let mut directories = vec![path.to_owned()];
        while let Some(directory) = directories.pop() {
            let entries = self.list(&directory)?;
            if entries.is_empty() && directory != path {
                self.report.fault("E024", format!("{directory} is empty"));
            }
            for (name, is_dir) in entries {
                let below = format!("{directory}/{name}");
                match is_dir {
                    Some(true) => directories.push(below),
                    Some(false) => {
                        let bytes = self.object.join(&below).symlink_metadata();
                        let bytes = bytes.map_err(|error| self.io(&below, error))?.len();
                        found.insert(below, bytes);
                    }
                    None => self
                        .report
                        .fault("E090", format!("{below} is neither file nor directory")),
                }
            }
        }
        Ok(())
    }

    fn io(&self, path: &str, source: io::Error) -> ValidateError {
        ValidateError::Io {
            path: self.object.join(path),
            source,
        }
    }

    /// Returns the names in a directory, sorted, and whether each is a directory; none for what is neither.
    fn list(&mut self, below: &str) -> Result<Vec<(String, Option<bool>)>, ValidateError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.object.join(below)).map_err(|error| self.io(below, error))? {
            let entry = entry.map_err(|error| self.io(below, error))?;
            let kind = entry.file_type().map_err(|error| self.io(below, error))?;
            let is_dir = match () {
                () if kind.is_dir() => Some(true),
                () if kind.is_file() => Some(false),
                () => None,
            };
            match entry.file_name().into_string() {
                Ok(name) => entries.push((name, is_dir)),
                Err(name) => {
                    let shown = name.to_string_lossy().into_owned();
                    self.report
                        .fault("E023", format!("{below}/{shown:?} is not named in UTF-8"));
                }
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Reads a small file; none when it is not there, or is no file.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ValidateError> {
        let whole = self.object.join(path);
        match whole.symlink_metadata() {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(path, error)),
        }
        fs::read(whole)
            .map(Some)
            .map_err(|error| self.io(path, error))
    }
}

/// The extensions of an object that are registered.
const REGISTERED: [&str; 3] = [
    "0001-digest-algorithms",
    "0005-mutable-head",
    "0010-differential-n-tuple-omit-prefix-storage-layout",
];

fn is_version_name(name: &str) -> bool {
    let digits = name.strip_prefix('v').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
