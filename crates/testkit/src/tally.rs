//! Gathers parcels into one sheet.
//!
//! * **Reads** a batch of parcels.
//! * **Writes** one new parcel named after the batch with `sheet`: a line for each member, its name
//!   and the SHA-256 of its first file, sorted; the members are consumed.
//! * **Never** leaves a member out.
//! * **Holds** nothing by itself: a member without files has an empty digest. It obeys the first word
//!   of a member's file, as the other samples do.
//! * **Again**: the same batch gives the same bytes.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ecluse_stage::{Failure, Home, Intake, Outbox, Parcel, ParcelId, Stage};
use serde::Deserialize;

use crate::words::obey;

/// The gathering sample.
pub struct Tally;

/// `[stage.tally]` has no keys of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Stage for Tally {
    const NAME: &'static str = "tally";
    const ABOUT: &'static str = "Gathers parcels into one sheet (a sample stage)";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;

    fn open(_settings: Settings, _home: &Home) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn writes(_settings: &Settings, _home: &Home) -> Vec<PathBuf> {
        Vec::new()
    }

    fn process(&mut self, parcel: &Parcel, _outbox: &mut Outbox) -> Result<(), Failure> {
        Err(Failure::config(format!("{} came alone", parcel.id())))
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let mut lines = Vec::with_capacity(batch.len());
        let mut members = Vec::with_capacity(batch.len());
        for parcel in batch {
            let mut bytes = Vec::new();
            if let Some(file) = parcel.manifest().files.first() {
                parcel.open(&file.name)?.read_to_end(&mut bytes)?;
                obey(&bytes, parcel, outbox, Path::new(""))?;
            }
            lines.push(format!(
                "{} {}\n",
                parcel.id(),
                ecluse_spool::digest(&bytes)
            ));
            members.push(parcel.id().clone());
        }
        lines.sort();
        let id = ParcelId::of_batch("sheet", &members);
        let mut output = outbox.parcel(id, "sheet")?;
        let mut sheet = output.create("sheet")?;
        for line in lines {
            sheet.write_all(line.as_bytes())?;
        }
        output.add(sheet)?;
        outbox.emit(output)?;
        Ok(())
    }
}
