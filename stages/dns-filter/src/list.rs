//! The names of a parcel, as preload gives them.

use std::io::{BufRead, BufReader, Read};

use ecluse_names::{MOST_NAMES, NameLine};
use ecluse_stage::{Failure, Parcel};

/// The file with the names.
pub(crate) const NAMES: &str = "names.tsv";
/// A longer line is none of preload's.
const LINE_BYTES: u64 = 64 << 10;
/// The source of what redirects lead to.
const REDIRECTS: &str = "redirects";

/// A name of the list.
#[derive(Debug, Clone)]
pub(crate) struct ListedName {
    pub(crate) name: String,
    pub(crate) site: String,
    /// Nobody gave it but a redirect, or it is asked again: it is not followed.
    pub(crate) is_not_followed: bool,
}

/// The list of a parcel: read as often as it is needed, never held in memory.
pub(crate) struct NameList<'a> {
    parcel: &'a Parcel,
    /// How many names it has.
    pub(crate) names: usize,
}

/// A list being read.
pub(crate) struct NameReader<'a> {
    parcel: &'a Parcel,
    reader: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    last_key: String,
    /// Lines that were read.
    number: usize,
}

impl<'a> NameList<'a> {
    /// Reads the names of a parcel once.
    ///
    /// # Errors
    /// Holds a parcel with a line that is none, and says which, and one with too many.
    pub(crate) fn open(parcel: &'a Parcel) -> Result<Self, Failure> {
        if parcel.manifest().file(NAMES).is_none() {
            return Err(Failure::hold(format!(
                "{} has no {NAMES}: give lists of names to preload",
                parcel.id()
            )));
        }
        let mut list = Self { parcel, names: 0 };
        let mut reader = list.reader()?;
        while reader.next()?.is_some() {
            list.names += 1;
            if list.names > MOST_NAMES as usize {
                return Err(Failure::hold(format!(
                    "{NAMES} of {} has more than {MOST_NAMES} names: cut it into several parcels, as preload does",
                    parcel.id()
                )));
            }
        }
        Ok(list)
    }

    /// Reads it from the beginning.
    pub(crate) fn reader(&self) -> Result<NameReader<'a>, Failure> {
        let file = self.parcel.open(NAMES)?;
        Ok(NameReader {
            parcel: self.parcel,
            reader: BufReader::with_capacity(256 << 10, Box::new(file)),
            line: Vec::new(),
            last_key: String::new(),
            number: 0,
        })
    }
}

impl NameReader<'_> {
    /// Returns the next name with its number, from 0.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, ListedName)>, Failure> {
        self.line.clear();
        let mut reader = self.reader.by_ref().take(LINE_BYTES);
        if reader.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let bad = |what: &str| {
            let (number, id) = (self.number, self.parcel.id());
            Failure::hold(format!("line {number} of {NAMES} of {id}: {what}"))
        };
        let text = self.line.strip_suffix(b"\n");
        let text = text.ok_or_else(|| bad("it has no end"))?;
        let text = std::str::from_utf8(text).map_err(|_| bad("it is no UTF-8"))?;
        let listed = NameLine::parse(text).map_err(|error| bad(&error.to_string()))?;
        if listed.key <= self.last_key.as_str() {
            return Err(bad("it is out of order"));
        }
        self.last_key.clear();
        self.last_key.push_str(listed.key);
        let mut sources = listed.sources.split(',');
        let is_redirect = |source: &str| source.split(':').next() == Some(REDIRECTS);
        let name = ListedName {
            name: listed.name.to_owned(),
            site: listed.site.to_owned(),
            is_not_followed: listed.is_asked_again() || sources.all(is_redirect),
        };
        Ok(Some((self.number - 1, name)))
    }
}
