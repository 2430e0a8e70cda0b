//! In which country an address is, by a file in the format of MaxMind.

use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;

/// A file of countries, in memory.
#[derive(Debug)]
pub struct Countries {
    reader: maxminddb::Reader<Vec<u8>>,
}

impl Countries {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, with its path.
    pub fn open(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path);
        let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let reader = maxminddb::Reader::from_source(bytes);
        let reader = reader.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { reader })
    }

    /// Returns the country of an address, two letters; none where the file does not know it.
    pub fn of(&self, address: IpAddr) -> Option<String> {
        // Files of several makers have the country in one of two places.
        #[derive(Deserialize)]
        struct Entry {
            country: Option<Country>,
            country_code: Option<String>,
        }
        #[derive(Deserialize)]
        struct Country {
            iso_code: Option<String>,
        }
        let entry: Entry = self.reader.lookup(address).ok()?.decode().ok()??;
        entry
            .country
            .and_then(|country| country.iso_code)
            .or(entry.country_code)
    }
}
