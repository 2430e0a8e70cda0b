//! The check of a whole bag.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use unicode_normalization::UnicodeNormalization;

use crate::algorithm::DigestAlgorithm;
use crate::declaration::{self, BagVersion, DECLARATION, Declaration, shown};
use crate::fault::{BagFault, BagWarning, ValidateError};
use crate::fetch::{self, FETCH};
use crate::info::{self, InfoField};
use crate::manifest::{self, DigestList, Findings, Listed, kind_of};
use crate::path::PAYLOAD;
use crate::reading::{FileReading, read_digests};
use crate::tree::files_of;
use crate::write::SOFTWARE;

/// How a bag is checked.
#[derive(Debug, Clone, Copy)]
pub struct ValidateOptions {
    /// Warnings count as faults.
    pub is_strict: bool,
    /// How many files are read at once.
    pub threads: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct BagReport {
    /// The version of BagIt, such as `1.0`; empty where that could not be read.
    pub version: String,
    /// The fields of `bag-info.txt`.
    pub info: Vec<InfoField>,
    /// How many files the payload has.
    pub payload_files: u64,
    /// Their size.
    pub payload_bytes: u64,
    /// Why it is not valid; empty when it is.
    pub faults: Vec<BagFault>,
    /// What is advised against.
    pub warnings: Vec<BagWarning>,
}

impl BagReport {
    /// Tells whether the bag is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Checks a bag: its form, that it is complete, and every digest.
///
/// `going` is told how many bytes were read so far, by several threads, and says whether to go on.
///
/// # Errors
/// When the disk fails or `going` says to stop: nothing is known of the bag then.
pub fn validate(
    bag: &Path,
    options: ValidateOptions,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<BagReport, ValidateError> {
    validate_knowing(bag, options, &|_| None, going)
}

/// The same, without reading files whose SHA-512 is known by other means: `known` is asked for each path in the bag.
///
/// # Errors
/// As [`validate`].
pub fn validate_knowing(
    bag: &Path,
    options: ValidateOptions,
    known: &dyn Fn(&str) -> Option<String>,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<BagReport, ValidateError> {
    let mut report = BagReport::default();
    if !bag.is_dir() {
        report.faults.push(BagFault::NoDirectory);
        return Ok(report);
    }
    let bytes = match read_tag(bag, DECLARATION)? {
        Some(bytes) => bytes,
        None => {
            report.faults.push(BagFault::Absent(DECLARATION));
            return Ok(report);
        }
    };
    let declaration = match declaration::parse(&bytes) {
        Ok(declaration) => declaration,
        Err(fault) => {
            report.faults.push(fault);
            return Ok(report);
        }
    };
    let BagVersion { major, minor } = declaration.version;
    report.version = format!("{major}.{minor}");
    let mut check = Check::open(bag, declaration)?;
    check.read_tag_files()?;
    check.compare_names();
    check.compare_digests(options.threads, known, going)?;
    check.finish(report, options.is_strict)
}

/// A check under way.
struct Check<'a> {
    bag: &'a Path,
    version: BagVersion,
    declaration: Declaration,
    files: BTreeMap<String, u64>,
    lists: Vec<DigestList>,
    info: Vec<InfoField>,
    findings: Findings,
}

impl<'a> Check<'a> {
    fn open(bag: &'a Path, declaration: Declaration) -> Result<Self, ValidateError> {
        let mut findings = Findings::default();
        let files = files_of(bag, &mut findings.faults)?;
        if !bag.join(PAYLOAD).is_dir() {
            findings.faults.push(BagFault::Absent(PAYLOAD));
        }
        Ok(Self {
            bag,
            version: declaration.version,
            declaration,
            files,
            lists: Vec::new(),
            info: Vec::new(),
            findings,
        })
    }

    fn read_tag_files(&mut self) -> Result<(), ValidateError> {
        let names = self.files.keys().filter(|name| !name.contains('/'));
        let names: Vec<String> = names.cloned().collect();
        for name in names {
            let Some((listed, algorithm)) = kind_of(&name) else {
                continue;
            };
            let Some(algorithm) = DigestAlgorithm::named(algorithm) else {
                let fault = BagFault::UnknownAlgorithm(shown(&name));
                self.findings.faults.push(fault);
                continue;
            };
            let Some(text) = self.text(&name)? else {
                continue;
            };
            let (version, findings) = (self.version, &mut self.findings);
            let list = manifest::parse(&text, &name, listed, algorithm, version, findings);
            self.lists.push(list);
        }
        let name = self.version.info_name();
        if let Some(text) = self.text(name)? {
            self.info = info::parse(&text, name, self.version, &mut self.findings.faults);
        }
        Ok(())
    }

    /// Reads a tag file; none when there is none, or it is not in its encoding.
    fn text(&mut self, name: &str) -> Result<Option<String>, ValidateError> {
        let Some(bytes) = read_tag(self.bag, name)? else {
            return Ok(None);
        };
        let (text, _, is_broken) = self.declaration.encoding.decode(&bytes);
        if is_broken {
            self.findings.faults.push(BagFault::Encoding {
                file: name.to_owned(),
                encoding: self.declaration.encoding.name().to_owned(),
            });
            return Ok(None);
        }
        Ok(Some(text.into_owned()))
    }

    /// Everything listed must be there, and everything there must be listed.
    fn compare_names(&mut self) {
        let payload = |list: &&DigestList| list.listed == Listed::Payload;
        let tags = |list: &&DigestList| list.listed == Listed::Tags;
        if self.lists.iter().find(payload).is_none() {
            self.findings.faults.push(BagFault::NoManifest);
        }
        for list in &self.lists {
            let absent = list
                .digests
                .keys()
                .filter(|path| !self.files.contains_key(*path));
            let missing = absent.map(|path| BagFault::Missing {
                path: shown(path),
                manifest: list.name.clone(),
            });
            self.findings.faults.extend(missing);
        }
        for path in self.files.keys() {
            let unlisted = |list: &&DigestList| !list.digests.contains_key(path);
            if path.starts_with(PAYLOAD) {
                let lists: Vec<&DigestList> = self.lists.iter().filter(payload).collect();
                let without: Vec<&&DigestList> = lists.iter().filter(|l| unlisted(l)).collect();
                // In the drafts it is enough when one manifest has it.
                let is_enough = self.version < BagVersion::V1_0 && without.len() < lists.len();
                let without = without.into_iter().filter(|_| !is_enough);
                self.findings
                    .faults
                    .extend(without.map(|list| BagFault::Unlisted {
                        path: shown(path),
                        manifest: list.name.clone(),
                    }));
                continue;
            }
            let kind = kind_of(path).map(|(listed, _)| listed);
            if kind == Some(Listed::Tags) {
                continue;
            }
            for list in self.lists.iter().filter(tags).filter(unlisted) {
                let (path, manifest) = (shown(path), list.name.clone());
                if kind == Some(Listed::Payload) && self.version >= BagVersion::V1_0 {
                    let fault = BagFault::Unlisted { path, manifest };
                    self.findings.faults.push(fault);
                } else {
                    let warning = BagWarning::UnlistedTag { path, manifest };
                    self.findings.warnings.push(warning);
                }
            }
        }
        if self.lists.iter().find(tags).is_none() {
            self.findings.warnings.push(BagWarning::NoTagManifest);
        }
        self.look_for_likenesses();
    }

    /// Names that do not travel well.
    fn look_for_likenesses(&mut self) {
        let mut folded: BTreeMap<String, &str> = BTreeMap::new();
        let payload = self.files.keys().filter(|path| path.starts_with(PAYLOAD));
        for path in payload {
            let composed: String = path.nfc().collect();
            let name = path.rsplit('/').next().unwrap_or(path);
            if [".DS_Store", "Thumbs.db", "desktop.ini"].contains(&name) {
                self.findings
                    .warnings
                    .push(BagWarning::Leftover(shown(path)));
            }
            if let Some(other) = folded.insert(composed.to_lowercase(), path) {
                let is_composed_alike = other.nfc().eq(path.nfc());
                self.findings.warnings.push(BagWarning::Alike {
                    path: shown(other),
                    other: shown(path),
                    how: match is_composed_alike {
                        true => "how accents are written",
                        false => "upper and lower case",
                    },
                });
            }
        }
    }

    fn compare_digests(
        &mut self,
        threads: usize,
        known: &dyn Fn(&str) -> Option<String>,
        going: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<(), ValidateError> {
        let mut wanted: BTreeMap<&str, Vec<(&DigestList, &str)>> = BTreeMap::new();
        for list in &self.lists {
            for (path, digest) in &list.digests {
                if self.files.contains_key(path) {
                    wanted.entry(path).or_default().push((list, digest));
                }
            }
        }
        // A file that only SHA-512 is asked of need not be read when that is known.
        wanted.retain(|path, lists| {
            let is_sha512 =
                |(list, _): &(&DigestList, &str)| list.algorithm == DigestAlgorithm::Sha512;
            let digest = lists.iter().all(is_sha512).then(|| known(path)).flatten();
            digest.is_none_or(|digest| lists.iter().any(|(_, listed)| *listed != digest))
        });
        let readings: Vec<FileReading<'_>> = wanted
            .iter()
            .map(|(path, lists)| FileReading {
                path,
                bytes: self.files[*path],
                algorithms: lists.iter().map(|(list, _)| list.algorithm).collect(),
            })
            .collect();
        let digests = read_digests(self.bag, &readings, threads, going)?;
        for ((path, lists), found) in wanted.iter().zip(digests) {
            for ((list, listed), found) in lists.iter().zip(found) {
                if found != **listed {
                    self.findings.faults.push(BagFault::Differs {
                        path: shown(path),
                        manifest: list.name.clone(),
                        algorithm: list.algorithm,
                        listed: (*listed).to_owned(),
                        found,
                    });
                }
            }
        }
        Ok(())
    }

    fn finish(
        mut self,
        mut report: BagReport,
        is_strict: bool,
    ) -> Result<BagReport, ValidateError> {
        let payload = self
            .files
            .iter()
            .filter(|(path, _)| path.starts_with(PAYLOAD));
        for (_, bytes) in payload {
            report.payload_files += 1;
            report.payload_bytes += bytes;
        }
        let found = format!("{}.{}", report.payload_bytes, report.payload_files);
        for field in &self.info {
            if field.label.eq_ignore_ascii_case("Payload-Oxum") && field.value != found {
                let stated = shown(&field.value);
                let found = found.clone();
                self.findings.faults.push(BagFault::Oxum { stated, found });
            }
        }
        self.compare_fetch()?;
        let Findings {
            mut faults,
            mut warnings,
        } = self.findings;
        let is_ours = self
            .info
            .iter()
            .any(|field| field.label == "Bag-Software-Agent" && field.value.starts_with(SOFTWARE));
        if is_strict || is_ours {
            faults.extend(warnings.drain(..).map(BagFault::Advised));
        }
        report.info = self.info;
        report.faults = faults;
        report.warnings = warnings;
        Ok(report)
    }

    fn compare_fetch(&mut self) -> Result<(), ValidateError> {
        let Some(text) = self.text(FETCH)? else {
            return Ok(());
        };
        let paths = fetch::parse(&text, self.version, &mut self.findings.faults);
        let lists = self.lists.iter().filter(|l| l.listed == Listed::Payload);
        for list in lists {
            let unlisted = paths
                .iter()
                .filter(|path| !list.digests.contains_key(*path));
            let faults = unlisted.map(|path| BagFault::FetchUnlisted {
                path: shown(path),
                manifest: list.name.clone(),
            });
            self.findings.faults.extend(faults);
        }
        Ok(())
    }
}

/// Reads a tag file whole; none when there is none. A bag of a million files has manifests of 200 MB.
fn read_tag(bag: &Path, name: &str) -> Result<Option<Vec<u8>>, ValidateError> {
    let path = bag.join(name);
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => {}
        // The walk says what else it is.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ValidateError::Io { path, source }),
    }
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(source) => Err(ValidateError::Io { path, source }),
    }
}
