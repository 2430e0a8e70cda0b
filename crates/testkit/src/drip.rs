//! Sends one parcel's lines on as parcels of their own, part by part.
//!
//! * **Reads** a parcel with any files.
//! * **Writes** a new parcel for each line of the first file, `<parcel>.1` and so on, each committed
//!   before the next is begun; the parcel itself is consumed at the end.
//! * **Never** sends a line twice: a later attempt begins after the parts that are committed.
//! * **Defers**, **holds**, halts, crashes or dies when the file begins with that word: tests ask
//!   for it so. Holds a parcel without files.
//! * **Again**: each line gives the same parcel.

use std::io::{Read, Write};
use std::path::Path;

use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId, Stage};
use serde::Deserialize;

use crate::words::obey;

/// The sample that commits in parts.
pub struct Drip;

/// `[stage.drip]` has no keys of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Stage for Drip {
    const NAME: &'static str = "drip";
    const ABOUT: &'static str = "Sends lines on as parcels, part by part (a sample stage)";
    type Settings = Settings;

    fn open(_settings: Settings, _home: &Home) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let Some(file) = parcel.manifest().files.first() else {
            return Err(Failure::hold(format!("{} has no files", parcel.id())));
        };
        let mut bytes = Vec::new();
        parcel.open(&file.name)?.read_to_end(&mut bytes)?;
        obey(&bytes, parcel, outbox, Path::new(""))?;
        let lines = bytes.split_inclusive(|&b| b == b'\n').enumerate();
        for (at, line) in lines.skip(parcel.parts() as usize) {
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            let id =
                ParcelId::new(&format!("{}.{}", parcel.id(), at + 1)).map_err(Failure::hold)?;
            let mut output = outbox.parcel(id, "line")?;
            let mut out = output.create("line")?;
            out.write_all(line)?;
            output.add(out)?;
            outbox.emit(output)?;
            outbox.commit_part(parcel)?;
        }
        outbox.consume();
        Ok(())
    }
}
