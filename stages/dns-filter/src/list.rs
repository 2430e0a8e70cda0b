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
    /// Nobody gave it but a redirect: it is not followed further.
    pub(crate) is_from_redirects: bool,
}

/// Reads the names of a parcel.
///
/// # Errors
/// Holds a parcel with a line that is none, and says which.
pub(crate) fn read_names(parcel: &Parcel) -> Result<Vec<ListedName>, Failure> {
    if parcel.manifest().file(NAMES).is_none() {
        return Err(Failure::hold(format!(
            "{} has no {NAMES}: give lists of names to preload",
            parcel.id()
        )));
    }
    let mut reader = BufReader::with_capacity(256 << 10, parcel.open(NAMES)?);
    let mut names: Vec<ListedName> = Vec::new();
    let mut last_key = String::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        if names.len() > MOST_NAMES as usize {
            return Err(Failure::hold(format!(
                "{NAMES} of {} has more than {MOST_NAMES} names: cut it into several parcels, as preload does",
                parcel.id()
            )));
        }
        line.clear();
        if reader
            .by_ref()
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            break;
        }
        let bad = |what: &str| {
            let id = parcel.id();
            Failure::hold(format!("line {number} of {NAMES} of {id}: {what}"))
        };
        let text = line
            .strip_suffix(b"\n")
            .ok_or_else(|| bad("it has no end"))?;
        let text = std::str::from_utf8(text).map_err(|_| bad("it is no UTF-8"))?;
        let listed = NameLine::parse(text).map_err(|error| bad(&error.to_string()))?;
        if listed.key <= last_key.as_str() {
            return Err(bad("it is out of order"));
        }
        last_key.clear();
        last_key.push_str(listed.key);
        let mut sources = listed.sources.split(',');
        let is_redirect = |source: &str| source.split(':').next() == Some(REDIRECTS);
        names.push(ListedName {
            name: listed.name.to_owned(),
            site: listed.site.to_owned(),
            is_from_redirects: sources.all(is_redirect),
        });
    }
    Ok(names)
}
