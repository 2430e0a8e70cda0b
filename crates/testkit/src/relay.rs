//! Passes a parcel on with a note of its length.
//!
//! * **Reads** a parcel with any files.
//! * **Writes** `relayed` into the parcel: one line for each file, name and length as read.
//! * **Never** changes another file.
//! * **Defers**, **holds**, halts, crashes, dies or wedges when the first file begins with that word:
//!   tests ask for it so.
//! * **Again**: relaying the same parcel twice gives the same bytes.

use std::io::{Read, Write};
use std::path::PathBuf;

use ecluse_stage::{Failure, Home, Outbox, Parcel, Stage};
use serde::Deserialize;

use crate::words::obey;

/// The one-to-one sample.
pub struct Relay {
    settings: Settings,
}

/// What `[stage.relay]` may say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// A parcel that says `wedge` stands still until this file exists.
    pub wedge_until: PathBuf,
    /// Attach the note; without it the parcel passes on unchanged.
    pub plain: bool,
}

impl Stage for Relay {
    const NAME: &'static str = "relay";
    const ABOUT: &'static str = "Passes a parcel on with a note of its length (a sample stage)";
    type Settings = Settings;

    fn open(settings: Settings, _home: &Home) -> Result<Self, Failure> {
        Ok(Self { settings })
    }

    fn writes(_settings: &Settings, _home: &Home) -> Vec<PathBuf> {
        Vec::new()
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let mut note = String::new();
        for file in &parcel.manifest().files {
            let mut bytes = Vec::new();
            parcel.open(&file.name)?.read_to_end(&mut bytes)?;
            if note.is_empty() {
                obey(&bytes, parcel, outbox, &self.settings.wedge_until)?;
            }
            note.push_str(&format!("{} {}\n", file.name, bytes.len()));
        }
        if self.settings.plain {
            return Ok(());
        }
        let mut file = outbox.create("relayed")?;
        file.write_all(note.as_bytes())?;
        outbox.attach(file)?;
        Ok(())
    }
}
