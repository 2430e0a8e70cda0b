//! What an S3 store holds of the stages, laid out as work directories, so that the same judge can read it.
//!
//! It shares no code with the engine that wrote it: `docs/formats/object-store.md` is all it knows.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::list;
use super::sha256;

#[derive(Deserialize)]
struct Ticket {
    state: State,
    attempts: u32,
    manifest: Manifest,
    #[serde(default)]
    makers: BTreeMap<String, String>,
    #[serde(default)]
    history: Vec<Page>,
    trouble: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
enum State {
    Ready,
    Working { worker: String },
    Deferred { due: u64 },
    Held,
    Discarded,
    Moving {},
}

/// `parcel.json`, in the order of its keys.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    schema: u32,
    id: String,
    kind: String,
    born: String,
    files: Vec<File>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    bytes: u64,
    sha256: String,
}

#[derive(Deserialize)]
struct Page {
    stage: String,
    work: String,
}

/// Lays out under `work` what the objects under `objects`, named by their keys, say. A ticket is a parcel where its state says; a file
/// that is not in the store is not in the parcel.
///
/// # Errors
/// When something cannot be read or written, or makes no sense.
pub fn lay_out(objects: &Path, work: &Path) -> io::Result<()> {
    let payloads = payloads(&objects.join("payloads"))?;
    let stages = objects.join("stages");
    for (stage, dir) in list(&stages)? {
        let to = work.join(&stage);
        fs::create_dir_all(to.join("ready"))?;
        for (shard, receipts) in list(&dir.join("receipts"))? {
            let shard = to.join("receipts").join(shard);
            fs::create_dir_all(&shard)?;
            for (name, path) in list(&receipts)? {
                let bytes = fs::read(&path)?;
                // A batch that was given up has no receipt.
                if !bytes.starts_with(b"{\"given-up\"") {
                    fs::write(shard.join(name), bytes)?;
                }
            }
        }
        for (_, path) in list(&dir.join("in"))? {
            let bytes = fs::read(&path)?;
            let ticket: Ticket = serde_json::from_slice(&bytes)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            lay_parcel(&ticket, &to, &stages, &payloads)?;
        }
        for (name, _) in list(&dir.join("sheets"))? {
            // Those of tries that did not count stay until they are collected; where work is done, its own may not be left.
            let (work, digest) = name.split_once('=').unwrap_or_default();
            let receipt = format!("{work}.json");
            for (_, shard) in list(&to.join("receipts"))? {
                let path = shard.join(&receipt);
                if path.exists() && sha256(&fs::read(&path)?).starts_with(digest) {
                    fs::create_dir_all(to.join("tmp").join(format!("sheet-{name}")))?;
                }
            }
        }
    }
    Ok(())
}

/// Finds the files of parcels, by the end of their keys: the owner and the file.
fn payloads(dir: &Path) -> io::Result<HashMap<(String, String, String), PathBuf>> {
    let mut found = HashMap::new();
    for (maker, dir) in list(dir)? {
        for (_, shard) in list(&dir)? {
            for (owner, files) in list(&shard)? {
                for (file, path) in list(&files)? {
                    found.insert((maker.clone(), owner.clone(), file), path);
                }
            }
        }
    }
    Ok(found)
}

fn lay_parcel(
    ticket: &Ticket,
    stage: &Path,
    stages: &Path,
    payloads: &HashMap<(String, String, String), PathBuf>,
) -> io::Result<()> {
    let manifest = &ticket.manifest;
    let entry = format!("{}~{}", manifest.id, ticket.attempts);
    let dir = match &ticket.state {
        State::Ready => stage.join("ready").join(entry),
        State::Working { worker } => stage.join("claim").join(worker).join("in").join(entry),
        State::Deferred { due } => stage.join("deferred").join(format!("{due}~{entry}")),
        State::Held => stage.join("held").join(entry),
        State::Discarded => stage.join("drop").join(format!("discarded-{entry}")),
        // Nobody may be left half way.
        State::Moving {} => stage.join("tmp").join(format!("moving-{entry}")),
    };
    fs::create_dir_all(&dir)?;
    let mut text = serde_json::to_vec(manifest)?;
    text.push(b'\n');
    fs::write(dir.join("parcel.json"), text)?;
    let owner = format!(
        "{}={}",
        manifest.id,
        &sha256(manifest.born.as_bytes())[..12]
    );
    for file in &manifest.files {
        let maker = ticket.makers.get(&file.name).cloned().unwrap_or_default();
        let name = format!("{}-{}", file.sha256, &sha256(file.name.as_bytes())[..8]);
        if let Some(path) = payloads.get(&(maker, owner.clone(), name)) {
            fs::copy(path, dir.join(&file.name))?;
        }
    }
    if let Some(trouble) = &ticket.trouble {
        fs::write(dir.join("trouble.json"), serde_json::to_vec(trouble)?)?;
    }
    let history = dir.join("history");
    fs::create_dir_all(&history)?;
    for (number, page) in ticket.history.iter().enumerate() {
        let receipt = format!("{}.json", page.work);
        let shards = list(&stages.join(&page.stage).join("receipts"))?;
        let mut shards = shards.iter().map(|(_, shard)| shard.join(&receipt));
        if let Some(path) = shards.find(|path| path.exists()) {
            fs::copy(
                path,
                history.join(format!("{number:02}-{}.json", page.stage)),
            )?;
        }
    }
    Ok(())
}
