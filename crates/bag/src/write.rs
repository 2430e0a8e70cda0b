//! The tag files of a new bag.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::algorithm::DigestAlgorithm;
use crate::declaration::DECLARATION;
use crate::info::{InfoField, to_text};
use crate::path::{PAYLOAD, encode, problem_of};

/// What our bags say they were made by. Such a bag is checked strictly: it lists every tag file, each digest in
/// lower case.
pub const SOFTWARE: &str = "ecluse ";

/// A file of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadEntry {
    /// Its path in the bag, which begins with `data/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-512, in lower-case hex.
    pub sha512: String,
}

/// A tag file of one's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFile {
    /// Its name in the bag.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Why the tag files could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BagWriteError {
    /// A path that no bag may list.
    #[error("the payload cannot hold {0}")]
    Path(String),
    /// The disk failed.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// What was written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Writes `manifest-sha512.txt`, `bag-info.txt`, `bagit.txt`, `tagmanifest-sha512.txt` and the tag files of one's own for the
/// payload in `bag/data/`.
///
/// `Payload-Oxum` is added to the fields. When this returns these files and their names are durable; the payload
/// must have been before. Returns the digest of the tag manifest, which fixes the whole bag.
///
/// # Errors
/// When a path leads out of the payload, a file is there already, or the disk fails.
pub fn write_tags(
    bag: &Path,
    info: &[InfoField],
    payload: &[PayloadEntry],
    own: &[TagFile],
) -> Result<String, BagWriteError> {
    let mut sorted: Vec<&PayloadEntry> = payload.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let mut manifest = String::new();
    for entry in &sorted {
        let problem = problem_of(&entry.path)
            .or_else(|| (!entry.path.starts_with(PAYLOAD)).then(|| entry.path.clone()));
        if let Some(problem) = problem {
            return Err(BagWriteError::Path(problem));
        }
        manifest.push_str(&format!("{}  {}\n", entry.sha512, encode(&entry.path)));
    }
    let bytes: u64 = payload.iter().map(|entry| entry.bytes).sum();
    let mut fields = info.to_vec();
    let oxum = format!("{bytes}.{}", payload.len());
    fields.push(InfoField::new("Payload-Oxum", oxum));
    let declaration = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
    let info = to_text(&fields);
    let mut files = vec![
        ("bag-info.txt", info.as_str()),
        (DECLARATION, declaration),
        ("manifest-sha512.txt", &manifest),
    ];
    for file in own {
        if file.name.contains('/') || problem_of(&file.name).is_some() {
            return Err(BagWriteError::Path(file.name.clone()));
        }
        files.push((&file.name, &file.text));
    }
    files.sort_unstable();
    let mut tags = String::new();
    for (name, text) in files {
        put(bag, name, text)?;
        tags.push_str(&format!(
            "{}  {}\n",
            DigestAlgorithm::Sha512.digest(text.as_bytes()),
            encode(name)
        ));
    }
    put(bag, "tagmanifest-sha512.txt", &tags)?;
    let synced = File::open(bag).and_then(|directory| directory.sync_all());
    synced.map_err(|source| BagWriteError::Io {
        path: bag.to_owned(),
        source,
    })?;
    Ok(DigestAlgorithm::Sha512.digest(tags.as_bytes()))
}

fn put(bag: &Path, name: &str, text: &str) -> Result<(), BagWriteError> {
    let path = bag.join(name);
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| BagWriteError::Io {
        path: path.clone(),
        source,
    })
}
