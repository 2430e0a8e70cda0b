//! One inventory: what it says, and what is wrong with that alone.

use std::collections::{BTreeMap, BTreeSet};

use ecluse_bag::DigestAlgorithm;
use serde_json::{Map, Value};

use crate::SPECS;
use crate::fault::OcflReport;

/// What an inventory says, as far as it makes sense.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) id: Option<String>,
    /// Its place in [`SPECS`].
    pub(crate) spec: usize,
    /// The digest that files are named by; none where it is no allowed one.
    pub(crate) algorithm: Option<DigestAlgorithm>,
    pub(crate) content_directory: String,
    pub(crate) says_content_directory: bool,
    /// The versions, in order.
    pub(crate) versions: Vec<String>,
    /// Content paths and their digests, in lower case.
    pub(crate) manifest: BTreeMap<String, String>,
    /// Digests as they stand in the manifest.
    pub(crate) digests: BTreeSet<String>,
    /// Logical paths and their digests, of each version.
    pub(crate) states: Vec<BTreeMap<String, String>>,
    /// What else is said of each version.
    pub(crate) notes: Vec<[Value; 3]>,
    /// Content paths with further digests.
    pub(crate) fixity: Vec<(String, DigestAlgorithm, String)>,
}

/// How versions are numbered.
const PADDINGS: std::ops::RangeInclusive<usize> = 2..=10;

/// Reads an inventory; `at` says which, for people.
pub(crate) fn read(value: &Value, at: &str, spec: usize, report: &mut OcflReport) -> Inventory {
    let mut reading = Reading {
        at,
        report,
        inventory: Inventory {
            spec,
            content_directory: "content".to_owned(),
            ..Inventory::default()
        },
    };
    match value.as_object() {
        Some(fields) => reading.read(fields),
        None => reading.fault("E034", "it is no JSON object"),
    }
    reading.inventory
}

struct Reading<'a> {
    at: &'a str,
    report: &'a mut OcflReport,
    inventory: Inventory,
}

impl Reading<'_> {
    fn fault(&mut self, code: &'static str, text: &str) {
        self.report.fault(code, format!("{}: {text}", self.at));
    }

    fn warn(&mut self, code: &'static str, text: &str) {
        self.report.warn(code, format!("{}: {text}", self.at));
    }

    fn read(&mut self, fields: &Map<String, Value>) {
        self.read_id(fields.get("id"));
        self.read_type(fields.get("type"));
        self.read_algorithm(fields.get("digestAlgorithm"));
        self.read_content_directory(fields.get("contentDirectory"));
        match fields.get("manifest") {
            Some(manifest) => self.read_manifest(manifest),
            None => self.fault("E041", "no manifest"),
        }
        let mut used = BTreeSet::new();
        match fields.get("versions") {
            Some(versions) => used = self.read_versions(versions),
            None => self.fault("E041", "no versions"),
        }
        let head = fields.get("head");
        match (head, self.inventory.versions.last()) {
            (None, _) => self.fault("E036", "no head"),
            (Some(head), Some(last)) if head.as_str() != Some(last) => {
                let text = format!("the head is {head}, the last version is {last}");
                self.fault("E040", &text);
            }
            _ => {}
        }
        if self.inventory.versions.is_empty() {
            return;
        }
        self.compare(&used);
        if let Some(fixity) = fields.get("fixity") {
            self.read_fixity(fixity);
        }
    }

    fn read_id(&mut self, id: Option<&Value>) {
        match id.map(|id| id.as_str().unwrap_or_default()) {
            None => self.fault("E036", "no id"),
            Some("") => self.fault("E037", "its id is no text"),
            Some(id) => {
                let scheme = id.split_once(':').map(|(scheme, _)| scheme);
                let is_scheme = |scheme: &str| {
                    let mut bytes = scheme.bytes();
                    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
                        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
                };
                if !scheme.is_some_and(is_scheme) {
                    self.warn("W005", "its id is no URI");
                }
                self.inventory.id = Some(id.to_owned());
            }
        }
    }

    fn read_type(&mut self, kind: Option<&Value>) {
        let Some(kind) = kind else {
            return self.fault("E036", "no type");
        };
        let of = |spec: &&str| format!("https://ocfl.io/{spec}/spec/#inventory");
        let known = SPECS
            .iter()
            .position(|spec| kind.as_str() == Some(&of(spec)));
        match known {
            Some(known) => self.inventory.spec = known,
            None => self.fault("E038", "its type is that of no specification"),
        }
    }

    fn read_algorithm(&mut self, algorithm: Option<&Value>) {
        let Some(algorithm) = algorithm else {
            return self.fault("E036", "no digestAlgorithm");
        };
        self.inventory.algorithm = match algorithm.as_str() {
            Some("sha512") => Some(DigestAlgorithm::Sha512),
            Some("sha256") => {
                self.warn("W004", "it uses sha256, not sha512");
                Some(DigestAlgorithm::Sha256)
            }
            _ => {
                self.fault("E025", "its digestAlgorithm is neither sha512 nor sha256");
                None
            }
        };
    }

    fn read_content_directory(&mut self, directory: Option<&Value>) {
        let Some(directory) = directory else {
            return;
        };
        match directory.as_str() {
            Some("." | "..") => self.fault("E018", "its contentDirectory leads elsewhere"),
            Some(name) if !name.contains('/') && !name.is_empty() => {
                self.inventory.content_directory = name.to_owned();
                self.inventory.says_content_directory = true;
            }
            _ => self.fault("E017", "its contentDirectory is no name"),
        }
    }

    fn is_digest(&self, digest: &str) -> bool {
        let digits = self.inventory.algorithm.map_or(0, DigestAlgorithm::digits);
        digest.len() == digits && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    fn read_manifest(&mut self, manifest: &Value) {
        let Some(manifest) = manifest.as_object() else {
            return self.fault("E041", "its manifest is no JSON object");
        };
        if self.inventory.algorithm.is_none() {
            return;
        }
        let mut normal = BTreeSet::new();
        let mut directories = BTreeSet::new();
        for (digest, paths) in manifest {
            if !self.is_digest(digest) {
                self.fault("E025", &format!("{digest:?} in the manifest is no digest"));
                continue;
            }
            let Some(paths) = paths_of(paths) else {
                self.fault(
                    "E092",
                    &format!("the paths of {digest} are no list of texts"),
                );
                continue;
            };
            self.inventory.digests.insert(digest.clone());
            let digest = digest.to_ascii_lowercase();
            if !normal.insert(digest.clone()) {
                self.fault("E096", &format!("{digest} stands twice in the manifest"));
            }
            for path in paths {
                self.read_content_path(path, &digest, &mut directories);
            }
        }
        let both = directories
            .iter()
            .find(|path| self.inventory.manifest.contains_key(*path));
        if let Some(path) = both.cloned() {
            self.fault("E101", &format!("{path:?} is a file and a directory"));
        }
    }

    fn read_content_path(&mut self, path: &str, digest: &str, directories: &mut BTreeSet<String>) {
        if path.starts_with('/') || path.ends_with('/') {
            return self.fault(
                "E100",
                &format!("the content path {path:?} begins or ends with a slash"),
            );
        }
        let mut steps = path.splitn(3, '/');
        let (version, directory, rest) = (steps.next(), steps.next(), steps.next());
        let is_version = |version: &str| {
            let digits = version.strip_prefix('v').unwrap_or_default();
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_inside = version.is_some_and(is_version)
            && directory == Some(&self.inventory.content_directory)
            && rest.is_some();
        if path.split('/').any(|step| ["", ".", ".."].contains(&step)) {
            return self.fault(
                "E099",
                &format!("the content path {path:?} leads elsewhere"),
            );
        }
        if !is_inside {
            return self.fault(
                "E042",
                &format!("{path:?} is not in the content of a version"),
            );
        }
        let known = self
            .inventory
            .manifest
            .insert(path.to_owned(), digest.to_owned());
        if known.is_some() {
            self.fault("E101", &format!("the content path {path:?} stands twice"));
        }
        directories.extend(parents_of(path).map(str::to_owned));
    }

    fn read_versions(&mut self, versions: &Value) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let Some(versions) = versions.as_object() else {
            self.fault("E044", "its versions are no JSON object");
            return used;
        };
        self.inventory.versions = self.order(versions);
        for name in self.inventory.versions.clone() {
            let version = &versions[&name];
            self.read_note(&name, version);
            let state = match version.get("state") {
                Some(state) => self.read_state(&name, state, &mut used),
                None => {
                    self.fault("E048", &format!("{name} has no state"));
                    BTreeMap::new()
                }
            };
            self.inventory.states.push(state);
        }
        used
    }

    /// Returns the versions from the first to the last, as far as they follow each other.
    fn order(&mut self, versions: &Map<String, Value>) -> Vec<String> {
        if versions.is_empty() {
            self.fault("E008", "no version");
            return Vec::new();
        }
        let padding = match versions.contains_key("v1") {
            true => 0,
            false => {
                let mut paddings = PADDINGS;
                let found =
                    paddings.find(|width| versions.contains_key(&format!("v{:0width$}", 1)));
                let Some(found) = found else {
                    self.fault("E009", "no first version");
                    return Vec::new();
                };
                self.warn("W001", "its versions are padded with zeros");
                found
            }
        };
        let most = match padding {
            0 => usize::MAX,
            width => 10_usize.pow(width as u32 - 1) - 1,
        };
        let mut names = Vec::new();
        while names.len() < most {
            let name = format!("v{:0padding$}", names.len() + 1);
            if !versions.contains_key(&name) {
                break;
            }
            names.push(name);
        }
        if names.len() < versions.len() {
            let code = if names.len() == most { "E011" } else { "E010" };
            self.fault(code, "its versions are no sequence");
        }
        names
    }

    fn read_note(&mut self, name: &str, version: &Value) {
        match version.get("created") {
            None => self.fault("E048", &format!("{name} has no time")),
            Some(created) if !created.as_str().is_some_and(is_time) => {
                let text = format!("the time of {name} is none, or has no seconds or no zone");
                self.fault("E049", &text);
            }
            Some(_) => {}
        }
        match version.get("message") {
            None => self.warn("W007", &format!("{name} has no message")),
            Some(message) if !message.is_string() => {
                self.fault("E094", &format!("the message of {name} is no text"));
            }
            Some(_) => {}
        }
        match version.get("user") {
            None => self.warn("W007", &format!("{name} has no user")),
            Some(user) => self.read_user(name, user),
        }
        let notes = ["created", "message", "user"];
        let notes = notes.map(|key| version.get(key).cloned().unwrap_or_default());
        self.inventory.notes.push(notes);
    }

    fn read_user(&mut self, name: &str, user: &Value) {
        if !user.get("name").is_some_and(Value::is_string) {
            self.fault("E054", &format!("the user of {name} has no name"));
        }
        match user.get("address").map(Value::as_str) {
            None => self.warn("W008", &format!("the user of {name} has no address")),
            Some(None) => self.fault(
                "E054",
                &format!("the address of the user of {name} is no text"),
            ),
            Some(Some(address)) if !address.contains(':') => {
                self.warn(
                    "W009",
                    &format!("the address of the user of {name} is no URI"),
                );
            }
            Some(Some(_)) => {}
        }
    }

    fn read_state(
        &mut self,
        name: &str,
        state: &Value,
        used: &mut BTreeSet<String>,
    ) -> BTreeMap<String, String> {
        let mut logical = BTreeMap::new();
        let mut directories = BTreeSet::new();
        let Some(state) = state.as_object() else {
            self.fault("E050", &format!("the state of {name} is no JSON object"));
            return logical;
        };
        for (digest, paths) in state {
            let paths = paths_of(paths).filter(|_| self.is_digest(digest));
            let Some(paths) = paths else {
                let text =
                    format!("the state of {name} has {digest:?}, no digest with a list of paths");
                self.fault("E050", &text);
                continue;
            };
            if !self.inventory.digests.contains(digest) {
                let text = format!("the state of {name} has {digest}, the manifest has not");
                self.fault("E050", &text);
            }
            let digest = digest.to_ascii_lowercase();
            for path in paths {
                let code = match path {
                    _ if path.starts_with('/') || path.ends_with('/') => Some("E053"),
                    _ if path.split('/').any(|step| ["", ".", ".."].contains(&step)) => {
                        Some("E052")
                    }
                    _ => None,
                };
                if let Some(code) = code {
                    self.fault(
                        code,
                        &format!("the logical path {path:?} of {name} leads elsewhere"),
                    );
                    continue;
                }
                if logical.insert(path.to_owned(), digest.clone()).is_some() {
                    self.fault(
                        "E095",
                        &format!("the logical path {path:?} of {name} stands twice"),
                    );
                }
                directories.extend(parents_of(path).map(str::to_owned));
            }
            used.insert(digest);
        }
        if let Some(path) = directories.iter().find(|path| logical.contains_key(*path)) {
            self.fault(
                "E095",
                &format!("{path:?} of {name} is a file and a directory"),
            );
        }
        logical
    }

    /// Holds the manifest against the versions.
    fn compare(&mut self, used: &BTreeSet<String>) {
        let manifest = self.inventory.manifest.clone();
        for (path, digest) in &manifest {
            let version = path.split('/').next().unwrap_or_default();
            if !self.inventory.versions.iter().any(|known| known == version) {
                self.fault("E042", &format!("{path:?} is in no version there is"));
            }
            if !used.contains(digest) {
                self.fault("E107", &format!("no state has the digest of {path:?}"));
            }
        }
    }

    fn read_fixity(&mut self, fixity: &Value) {
        let Some(fixity) = fixity.as_object() else {
            let code = if self.inventory.spec == 0 {
                "E056"
            } else {
                "E111"
            };
            return self.fault(code, "its fixity is no JSON object");
        };
        for (name, digests) in fixity {
            let Some(digests) = digests.as_object() else {
                self.fault("E057", &format!("the digests of {name} are no JSON object"));
                continue;
            };
            let known = DigestAlgorithm::ALL
                .into_iter()
                .find(|known| known.name() == name);
            let mut normal = BTreeSet::new();
            for (digest, paths) in digests {
                let Some(paths) = paths_of(paths) else {
                    self.fault(
                        "E057",
                        &format!("the paths of {digest} are no list of texts"),
                    );
                    continue;
                };
                let digest = digest.to_ascii_lowercase();
                if !normal.insert(digest.clone()) {
                    self.fault(
                        "E097",
                        &format!("{digest} stands twice in the fixity of {name}"),
                    );
                }
                for path in paths {
                    if !self.inventory.manifest.contains_key(path) {
                        self.fault(
                            "E057",
                            &format!("the fixity of {name} has {path:?}, the manifest has not"),
                        );
                        continue;
                    }
                    if let Some(known) = known {
                        let entry = (path.to_owned(), known, digest.clone());
                        self.inventory.fixity.push(entry);
                    }
                }
            }
        }
    }
}

fn paths_of(paths: &Value) -> Option<Vec<&str>> {
    paths.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns the directories above a path.
fn parents_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Tells whether a text is a time of RFC 3339: to the second, with a zone.
fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok() && text.as_bytes().get(16) == Some(&b':')
}
