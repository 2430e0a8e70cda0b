//! Writing: a storage root, an object around a directory, and further versions of it.
//!
//! The object of a directory is built where the directory lies, and takes its place by one rename of the caller. A further
//! version is there when the inventory in its own directory and that one's sidecar are: should the process die before the
//! object's own inventory says so too, the next call puts that right.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ecluse_bag::DigestAlgorithm;
use serde_json::{Map, Value, json};

use crate::layout::{self, LAYOUT};
use crate::{INVENTORY, OBJECT, ROOT};

/// The version that is written.
const SPEC: &str = "1.1";
/// Where the object's next inventory lies until it takes its name: nobody judges what is in there.
const LOGS: &str = "logs";

/// What is said of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionNote {
    /// When it was made, RFC 3339.
    pub created: String,
    /// Why.
    pub message: String,
    /// By whom.
    pub name: String,
    /// Their address, a URI.
    pub address: String,
}

/// A file of an object, by its logical path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFile {
    /// Its path.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What became of files that were to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewVersion {
    /// They are in this version now.
    Made(u64),
    /// The object has them, in its head.
    Known(u64),
}

/// Why nothing could be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OcflError {
    /// The disk failed.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// What.
        path: PathBuf,
        /// Why not.
        what: String,
    },
}

/// A storage root.
#[derive(Debug, Clone)]
pub struct StorageRoot {
    path: PathBuf,
}

impl StorageRoot {
    /// Opens a storage root; an empty directory becomes one.
    ///
    /// # Errors
    /// When there is something else, a root of another version or layout, or the disk fails.
    pub fn open(path: &Path) -> Result<Self, OcflError> {
        let root = Self {
            path: path.to_owned(),
        };
        let declared = path.join(format!("0={ROOT}{SPEC}"));
        let layout = path.join("ocfl_layout.json");
        if !declared.exists() {
            let mut entries = fs::read_dir(path).map_err(failed("list", path))?;
            let is_ours = |name: &[u8]| {
                name.starts_with(b".") || name == b"extensions" || name == b"ocfl_layout.json"
            };
            let other = entries.find_map(|entry| {
                let name = entry.ok()?.file_name();
                (!is_ours(name.as_encoded_bytes())).then_some(name)
            });
            if let Some(other) = other {
                return Err(OcflError::Unfit {
                    path: path.to_owned(),
                    what: format!("no OCFL {SPEC} storage root, and not empty: it has {other:?}"),
                });
            }
            let extension = path.join("extensions").join(LAYOUT);
            fs::create_dir_all(&extension).map_err(failed("make", &extension))?;
            put(&extension.join("config.json"), &pretty(&layout::config()))?;
            let says = json!({
                "extension": LAYOUT,
                "description": "Hashed n-tuple trees, with the identifier of an object as the name of its directory",
            });
            put(&layout, &pretty(&says))?;
            sync(&extension)?;
            sync(&path.join("extensions"))?;
            put(&declared, format!("{ROOT}{SPEC}\n").as_bytes())?;
            sync(path)?;
        }
        let says = fs::read(&layout).map_err(failed("read", &layout))?;
        let says: Value = serde_json::from_slice(&says).unwrap_or_default();
        match says["extension"].as_str() {
            Some(LAYOUT) => Ok(root),
            other => Err(OcflError::Unfit {
                path: layout,
                what: format!("its layout is {other:?}, not {LAYOUT}"),
            }),
        }
    }

    /// Returns where an object has its place, and makes the directories above it.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn place_of(&self, id: &str) -> Result<PathBuf, OcflError> {
        let place = self.path.join(layout::object_path(id));
        let mut made = self.path.clone();
        let steps = layout::object_path(id);
        let (above, _) = steps.rsplit_once('/').unwrap_or(("", &steps));
        for step in above.split('/') {
            let parent = made.clone();
            made.push(step);
            match fs::create_dir(&made) {
                Ok(()) => sync(&parent)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make", &made)(error)),
            }
        }
        Ok(place)
    }
}

/// Makes a directory whose `v1/content` is complete and durable an object; `known` has the SHA-512 of files in it that need not
/// be read.
///
/// # Errors
/// When the content cannot be read, or the object cannot be written.
pub fn write_object(
    object: &Path,
    id: &str,
    known: &BTreeMap<String, String>,
    note: &VersionNote,
) -> Result<(), OcflError> {
    let content = object.join("v1/content");
    let mut manifest: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut state: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files_below(&content)? {
        let digest = match known.get(&path) {
            Some(digest) => digest.clone(),
            None => sha512(
                &fs::read(content.join(&path)).map_err(failed("read", &content.join(&path)))?,
            ),
        };
        manifest
            .entry(digest.clone())
            .or_default()
            .push(format!("v1/content/{path}"));
        state.entry(digest).or_default().push(path);
    }
    let inventory = json!({
        "id": id,
        "type": format!("https://ocfl.io/{SPEC}/spec/#inventory"),
        "digestAlgorithm": "sha512",
        "head": "v1",
        "manifest": manifest,
        "versions": { "v1": version_of(note, json!(state)) },
    });
    let text = pretty(&inventory);
    for directory in [object.join("v1"), object.to_owned()] {
        put(&directory.join(INVENTORY), &text)?;
        put(&directory.join(SIDECAR), sidecar(&text).as_bytes())?;
    }
    let declaration = object.join(format!("0={OBJECT}{SPEC}"));
    put(&declaration, format!("{OBJECT}{SPEC}\n").as_bytes())?;
    sync(&object.join("v1"))?;
    sync(object)
}

/// Adds small files to an object, as its next version; one that has them already stays as it is.
///
/// # Errors
/// When the object cannot be read, or the version cannot be written; it can be done again.
pub fn add_files(
    object: &Path,
    files: &[ObjectFile],
    note: &VersionNote,
) -> Result<NewVersion, OcflError> {
    let unfit = |what: String| OcflError::Unfit {
        path: object.to_owned(),
        what,
    };
    let mut inventory = settle(object)?;
    let head = inventory["head"].as_str().unwrap_or_default().to_owned();
    let number: u64 = match head.strip_prefix('v').map(str::parse) {
        Some(Ok(number)) if head == format!("v{number}") => number,
        _ => return Err(unfit(format!("its head is {head:?}"))),
    };
    let state = inventory["versions"][&head]["state"].clone();
    let Value::Object(mut state) = state else {
        return Err(unfit(format!("{head} has no state")));
    };
    let has = |state: &Map<String, Value>, path: &str, digest: &str| {
        let paths = state.get(digest).and_then(Value::as_array);
        paths.is_some_and(|paths| paths.iter().any(|known| known == path))
    };
    let with_digests = files.iter().map(|file| (file, sha512(&file.bytes)));
    let new: Vec<(&ObjectFile, String)> = with_digests
        .filter(|(file, digest)| !has(&state, &file.path, digest))
        .collect();
    if new.is_empty() {
        return Ok(NewVersion::Known(number));
    }
    let next = format!("v{}", number + 1);
    let directory = object.join(&next);
    for (file, digest) in &new {
        let is_plain = |step: &str| !["", ".", ".."].contains(&step);
        if !file.path.split('/').all(is_plain) {
            return Err(unfit(format!("{:?} is no path in it", file.path)));
        }
        let path = directory.join("content").join(&file.path);
        let folder = path.parent().unwrap_or(&directory);
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        put(&path, &file.bytes)?;
        sync(folder)?;
        for paths in state.values_mut() {
            if let Some(paths) = paths.as_array_mut() {
                paths.retain(|known| known != &file.path);
            }
        }
        state.retain(|_, paths| paths.as_array().is_some_and(|paths| !paths.is_empty()));
        push(&mut state, digest, &file.path);
        if let Some(manifest) = inventory["manifest"].as_object_mut() {
            push(manifest, digest, &format!("{next}/content/{}", file.path));
        }
    }
    inventory["head"] = json!(next);
    inventory["versions"][&next] = version_of(note, Value::Object(state));
    let text = pretty(&inventory);
    put(&directory.join(INVENTORY), &text)?;
    put(&directory.join(SIDECAR), sidecar(&text).as_bytes())?;
    sync(&directory.join("content"))?;
    sync(&directory)?;
    sync(object)?;
    publish(object, &text)?;
    Ok(NewVersion::Made(number + 1))
}

const SIDECAR: &str = "inventory.json.sha512";

/// Returns the inventory of an object, after what a killed writer left undone is done.
fn settle(object: &Path) -> Result<Value, OcflError> {
    let read = |directory: &Path| -> Option<Vec<u8>> {
        let text = fs::read(directory.join(INVENTORY)).ok()?;
        let says = fs::read_to_string(directory.join(SIDECAR)).ok()?;
        (says == sidecar(&text)).then_some(text)
    };
    let path = object.join(INVENTORY);
    let text = fs::read(&path).map_err(failed("read", &path))?;
    let inventory: Value = serde_json::from_slice(&text).unwrap_or_default();
    let head = inventory["head"].as_str().unwrap_or_default();
    let number = head
        .strip_prefix('v')
        .and_then(|digits| digits.parse::<u64>().ok());
    let next = number.map(|number| object.join(format!("v{}", number + 1)));
    // The version is whole, and the object does not know of it yet.
    if let Some(text) = next.and_then(|next| read(&next)) {
        publish(object, &text)?;
        return Ok(serde_json::from_slice(&text).unwrap_or_default());
    }
    // The object knows of it, its sidecar does not.
    if read(object).is_none() {
        match read(&object.join(head)) {
            Some(of_head) if of_head == text => publish(object, &text)?,
            _ => {
                return Err(OcflError::Unfit {
                    path,
                    what: "it has not the digest in its sidecar".to_owned(),
                });
            }
        }
    }
    Ok(inventory)
}

/// Puts an inventory and its sidecar in the place of the object's.
#[expect(
    clippy::disallowed_methods,
    reason = "the one file of an object that a version replaces, in one step"
)]
fn publish(object: &Path, text: &[u8]) -> Result<(), OcflError> {
    let logs = object.join(LOGS);
    fs::create_dir_all(&logs).map_err(failed("make", &logs))?;
    for (name, bytes) in [(INVENTORY, text), (SIDECAR, sidecar(text).as_bytes())] {
        let temporary = logs.join(format!(".{name}"));
        put(&temporary, bytes)?;
        let path = object.join(name);
        fs::rename(&temporary, &path).map_err(failed("name", &path))?;
        sync(object)?;
    }
    Ok(())
}

fn version_of(note: &VersionNote, state: Value) -> Value {
    json!({
        "created": note.created,
        "message": note.message,
        "user": { "name": note.name, "address": note.address },
        "state": state,
    })
}

fn push(digests: &mut Map<String, Value>, digest: &str, path: &str) {
    let paths = digests.entry(digest).or_insert_with(|| json!([]));
    if let Some(paths) = paths.as_array_mut() {
        paths.push(json!(path));
    }
}

/// Returns the files below a directory, by their paths in it, sorted.
fn files_below(top: &Path) -> Result<Vec<String>, OcflError> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = top.join(&folder);
        for entry in fs::read_dir(&path).map_err(failed("list", &path))? {
            let entry = entry.map_err(failed("list", &path))?;
            let kind = entry.file_type().map_err(failed("look at", &path))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(OcflError::Unfit {
                    path: entry.path(),
                    what: "it is not named in UTF-8".to_owned(),
                });
            };
            let below = format!("{folder}{name}");
            match kind.is_dir() {
                true => folders.push(below + "/"),
                false => files.push(below),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn sha512(bytes: &[u8]) -> String {
    DigestAlgorithm::Sha512.digest(bytes)
}

fn sidecar(inventory: &[u8]) -> String {
    format!("{} {INVENTORY}\n", sha512(inventory))
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("it holds texts, lists and maps");
    text.push(b'\n');
    text
}

/// Writes a file, in place of one that a killed writer left.
fn put(path: &Path, bytes: &[u8]) -> Result<(), OcflError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(failed("write", path))
}

fn sync(directory: &Path) -> Result<(), OcflError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("sync", directory))
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OcflError {
    let path = path.to_owned();
    move |source| OcflError::Io { step, path, source }
}
