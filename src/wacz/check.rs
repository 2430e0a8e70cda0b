//! The check of a WACZ file, whoever made it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ecluse_bag::DigestAlgorithm;
use ecluse_stage::Exit;
use serde_json::Value;
use sha2::{Digest, Sha256};
use zip::{CompressionMethod, ZipArchive};

use crate::context::Trouble;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct WaczReport {
    pub(crate) version: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) faults: Vec<String>,
}

const VERSIONS: [&str; 4] = ["1.0.0", "1.1.0", "1.1.1", "1.2.0"];
const PACKAGE: &str = "datapackage.json";
const DIGEST: &str = "datapackage-digest.json";
const PAGES: &str = "pages/pages.jsonl";
/// No description is larger.
const DESCRIPTION: u64 = 256 << 20;

/// Checks a file: its form, and every digest; `going` is told how many bytes were read.
pub(crate) fn validate(path: &Path, going: &dyn Fn(u64) -> bool) -> Result<WaczReport, Trouble> {
    let mut report = WaczReport::default();
    let zip = match ZipArchive::new(io::BufReader::new(File::open(path)?)) {
        Ok(zip) => zip,
        Err(zip::result::ZipError::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(error.into());
        }
        Err(error) => {
            report.faults.push(format!("no ZIP file: {error}"));
            return Ok(report);
        }
    };
    let mut check = Check {
        zip,
        report,
        going,
        read: 0,
    };
    check.entries()?;
    if let Some(resources) = check.package()? {
        check.resources(&resources)?;
    }
    check.pages()?;
    Ok(check.report)
}

struct Check<'a> {
    zip: ZipArchive<io::BufReader<File>>,
    report: WaczReport,
    going: &'a dyn Fn(u64) -> bool,
    read: u64,
}

/// What the description says of a file.
struct Resource {
    hash: String,
    bytes: Option<u64>,
}

impl Check<'_> {
    fn fault(&mut self, text: impl Into<String>) {
        self.report.faults.push(text.into());
    }

    /// What must be there, and how.
    fn entries(&mut self) -> Result<(), Trouble> {
        let mut names = BTreeSet::new();
        for at in 0..self.zip.len() {
            let entry = self.zip.by_index_raw(at).map_err(damaged)?;
            let name = entry.name().map(|name| name.into_owned());
            let method = entry.compression();
            let is_inside = entry.enclosed_name().is_some();
            drop(entry);
            let Ok(name) = name else {
                self.fault(format!("entry {at} has no name that can be read"));
                continue;
            };
            if !is_inside {
                self.fault(format!("{name:?} leads out of the file"));
            }
            let is_packed = name.starts_with("archive/") || name.ends_with(".gz");
            if is_packed && method != CompressionMethod::Stored {
                self.fault(format!(
                    "{name:?} is compressed by ZIP: nobody can seek in it"
                ));
            }
            if !names.insert(name.clone()) {
                self.fault(format!("{name:?} is there twice"));
            }
        }
        let has = |begin: &str, ends: &[&str]| {
            let mut names = names.iter().filter(|name| name.starts_with(begin));
            names.any(|name| ends.iter().any(|end| name.ends_with(end)))
        };
        let missing = [
            (!has("archive/", &[".warc", ".warc.gz"])).then_some("a WARC file in archive/"),
            (!has("indexes/", &[".cdx", ".cdxj", ".cdx.gz", ".idx"]))
                .then_some("an index in indexes/"),
            (!names.contains(PAGES)).then_some(PAGES),
        ];
        for missing in missing.into_iter().flatten() {
            self.fault(format!("there is no {missing}"));
        }
        Ok(())
    }

    /// Reads the description and holds it against its digest.
    fn package(&mut self) -> Result<Option<BTreeMap<String, Resource>>, Trouble> {
        let Some(text) = self.small(PACKAGE)? else {
            self.fault(format!("there is no {PACKAGE}"));
            return Ok(None);
        };
        let sha256: String = Sha256::digest(&text)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if let Some(digest) = self.small(DIGEST)? {
            let digest: Value = serde_json::from_slice(&digest).unwrap_or_default();
            if digest["hash"].as_str() != Some(&format!("sha256:{sha256}")) {
                self.fault(format!("{PACKAGE} has not the digest in {DIGEST}"));
            }
        }
        let Ok(package) = serde_json::from_slice::<Value>(&text) else {
            self.fault(format!("{PACKAGE} is no JSON"));
            return Ok(None);
        };
        if package["profile"] != "data-package" {
            self.fault(format!("the profile of {PACKAGE} is not data-package"));
        }
        match package["wacz_version"].as_str() {
            Some(version) if VERSIONS.contains(&version) => {
                version.clone_into(&mut self.report.version);
            }
            version => self.fault(format!("the version is {version:?}")),
        }
        let mut resources = BTreeMap::new();
        for resource in package["resources"].as_array().into_iter().flatten() {
            let (Some(path), Some(hash)) = (resource["path"].as_str(), resource["hash"].as_str())
            else {
                self.fault(format!("a resource of {PACKAGE} has no path or no hash"));
                continue;
            };
            let known = Resource {
                hash: hash.to_owned(),
                bytes: resource["bytes"].as_u64(),
            };
            resources.insert(path.to_owned(), known);
        }
        Ok(Some(resources))
    }

    fn resources(&mut self, resources: &BTreeMap<String, Resource>) -> Result<(), Trouble> {
        let names: BTreeSet<String> = self
            .zip
            .file_names()
            .filter_map(|name| Some(name.ok()?.into_owned()))
            .collect();
        for name in &names {
            let is_listed =
                [PACKAGE, DIGEST].contains(&name.as_str()) || resources.contains_key(name);
            if !is_listed && !name.ends_with('/') {
                self.fault(format!("{name:?} is not in {PACKAGE}"));
            }
        }
        for (path, resource) in resources {
            if !names.contains(path) {
                self.fault(format!("{path:?} is in {PACKAGE} and missing"));
                continue;
            }
            let algorithm = match resource.hash.split_once(':') {
                Some(("sha256", _)) => DigestAlgorithm::Sha256,
                Some(("md5", _)) => DigestAlgorithm::Md5,
                _ => {
                    self.fault(format!("the hash of {path:?} is neither sha256 nor md5"));
                    continue;
                }
            };
            match self.digest(path, algorithm)? {
                Ok((digest, bytes)) => {
                    self.report.files += 1;
                    self.report.bytes += bytes;
                    if resource.hash.split_once(':').map(|(_, hash)| hash) != Some(&digest) {
                        self.fault(format!(
                            "{path:?} has {digest}, {PACKAGE} says {}",
                            resource.hash
                        ));
                    }
                    if resource.bytes.is_some_and(|stated| stated != bytes) {
                        self.fault(format!(
                            "{path:?} has {bytes} bytes, {PACKAGE} says otherwise"
                        ));
                    }
                }
                Err(why) => self.fault(format!("{path:?} cannot be read: {why}")),
            }
        }
        Ok(())
    }

    fn digest(
        &mut self,
        path: &str,
        algorithm: DigestAlgorithm,
    ) -> Result<Result<(String, u64), String>, Trouble> {
        let mut entry = match self.zip.by_name(path) {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut hasher = algorithm.hasher();
        let mut buffer = vec![0; 64 << 10];
        let mut bytes = 0;
        loop {
            let read = match entry.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => return Ok(Err(error.to_string())),
            };
            hasher.update(&buffer[..read]);
            bytes += read as u64;
            self.read += read as u64;
            if !(self.going)(self.read) {
                return Err(Trouble::new(Exit::Deferred, "stopped"));
            }
        }
        Ok(Ok((hasher.finish(), bytes)))
    }

    fn pages(&mut self) -> Result<(), Trouble> {
        let Some(pages) = self.small(PAGES)? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&pages).into_owned();
        for (number, line) in text.lines().enumerate() {
            let page: Value = serde_json::from_str(line).unwrap_or_default();
            let wanted = match number {
                0 => ["format", "id"],
                _ => ["url", "ts"],
            };
            if let Some(missing) = wanted.iter().find(|key| !page[**key].is_string()) {
                self.fault(format!("line {} of {PAGES} has no {missing}", number + 1));
                return Ok(());
            }
        }
        Ok(())
    }

    fn small(&mut self, path: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let Ok(entry) = self.zip.by_name(path) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = entry.take(DESCRIPTION).read_to_end(&mut bytes);
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) => {
                self.fault(format!("{path:?} cannot be read: {error}"));
                Ok(None)
            }
        }
    }
}

fn damaged(error: zip::result::ZipError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}
