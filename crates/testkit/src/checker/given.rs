//! The log of what was given: kept by the giver, outside what is killed or cut.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::sha256;

/// One file given to a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The stage.
    pub stage: String,
    /// The file's name: letters, digits and dots, so that it is its own safe form.
    pub name: String,
    /// Its content.
    pub text: String,
    /// Whether the giver was told that it has arrived.
    #[serde(default)]
    pub acknowledged: bool,
}

impl Given {
    /// Returns the id its parcel must have.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name, &sha256(self.text.as_bytes())[..12])
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Give(Given),
    Acknowledged(String),
}

/// Writes the log.
pub struct GivenLog {
    file: File,
}

impl GivenLog {
    /// Starts a log.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self { file })
    }

    /// Notes that a file is about to be given.
    pub fn give(&mut self, given: &Given) -> io::Result<()> {
        self.write(&Line::Give(given.clone()))
    }

    /// Notes that the file has arrived: from now on it must not be lost.
    pub fn acknowledge(&mut self, name: &str) -> io::Result<()> {
        self.write(&Line::Acknowledged(name.to_owned()))
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
}

/// Reads a log back.
pub(super) fn read(path: &Path) -> io::Result<Vec<Given>> {
    let mut gifts: Vec<Given> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?)? {
            Line::Give(given) => {
                places.insert(given.name.clone(), gifts.len());
                gifts.push(given);
            }
            Line::Acknowledged(name) => match places.get(&name) {
                Some(&at) => gifts[at].acknowledged = true,
                None => {
                    return Err(io::Error::other(format!(
                        "{name} arrived but was not given"
                    )));
                }
            },
        }
    }
    Ok(gifts)
}
