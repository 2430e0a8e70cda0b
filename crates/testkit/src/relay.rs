//! Passes a parcel on with a note of its length.
//!
//! * **Reads** a parcel with any files.
//! * **Writes** `relayed` into the parcel: one line for each file, name and length as read.
//! * **Never** changes another file.
//! * **Defers**, **holds**, halts, crashes or wedges when the first file begins with that word:
//!   tests ask for it so.
//! * **Again**: relaying the same parcel twice gives the same bytes.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use ecluse_stage::{Failure, Outbox, Parcel, Site, Stage};
use serde::Deserialize;

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

    fn open(settings: Settings, _site: &Site) -> Result<Self, Failure> {
        Ok(Self { settings })
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let mut note = String::new();
        for file in &parcel.manifest().files {
            let mut bytes = Vec::new();
            parcel.open(&file.name)?.read_to_end(&mut bytes)?;
            if note.is_empty() {
                self.obey(&bytes, parcel, outbox)?;
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

impl Relay {
    /// Does what the first word of a test's file asks for.
    fn obey(&self, bytes: &[u8], parcel: &Parcel, outbox: &Outbox) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        let mut words = text.split_whitespace();
        match words.next() {
            Some("hold") => Err(Failure::hold(format!("{} asks to be held", parcel.id()))),
            Some("defer") => Err(Failure::defer(format!("{} asks to wait", parcel.id()))),
            Some("halt") => Err(Failure::halt(format!("{} breaks the machine", parcel.id()))),
            Some("panic") => panic!("{} asks for a crash", parcel.id()),
            Some("sleep") => {
                let millis = words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(1000);
                sleep(Duration::from_millis(millis), outbox)
            }
            Some("wedge") => {
                while !self.settings.wedge_until.exists() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Sleeps as long work would: saying that it goes forward, and stopping when asked.
fn sleep(mut left: Duration, outbox: &Outbox) -> Result<(), Failure> {
    let step = Duration::from_millis(10);
    while !left.is_zero() {
        if outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        outbox.tick();
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
    }
    Ok(())
}
