//! Makes two parcels of one.
//!
//! * **Reads** a parcel with any files.
//! * **Writes** two new parcels, `<parcel>.a` and `<parcel>.b`, with the first file's bytes at even
//!   and at odd places; the parcel itself is consumed.
//! * **Never** keeps the parcel.
//! * **Holds** a parcel without files.
//! * **Again**: splitting the same parcel twice gives the same bytes.

use std::io::{Read, Write};
use std::path::PathBuf;

use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId, Stage};
use serde::Deserialize;

/// The fan-out sample.
pub struct Split;

/// `[stage.split]` has no keys of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

impl Stage for Split {
    const NAME: &'static str = "split";
    const ABOUT: &'static str = "Makes two parcels of one (a sample stage)";
    type Settings = Settings;

    fn open(_settings: Settings, _home: &Home) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn writes(_settings: &Settings, _home: &Home) -> Vec<PathBuf> {
        Vec::new()
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let Some(file) = parcel.manifest().files.first() else {
            return Err(Failure::hold(format!("{} has no files", parcel.id())));
        };
        let mut bytes = Vec::new();
        parcel.open(&file.name)?.read_to_end(&mut bytes)?;
        for (half, start) in [("a", 0), ("b", 1)] {
            let id = ParcelId::new(&format!("{}.{half}", parcel.id())).map_err(Failure::hold)?;
            let mut output = outbox.parcel(id, "half")?;
            let mut out = output.create("half")?;
            let part: Vec<u8> = bytes.iter().copied().skip(start).step_by(2).collect();
            out.write_all(&part)?;
            output.add(out)?;
            outbox.emit(output)?;
        }
        outbox.consume();
        Ok(())
    }
}
