//! Places: those below the root are written relative to it and made whole when they are read.
//!
//! So an archive that was moved or copied is judged by its own files, and nothing has to be told. `./repository/a.warc.gz`
//! begins at the root; what begins otherwise is an absolute path, a URL, or what a command said, and stays as it is.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

/// How a place begins that is below the root.
const BELOW: &str = "./";

/// The root that places begin at.
#[derive(Debug, Clone)]
pub struct PlaceRoot(PathBuf);

impl PlaceRoot {
    /// Returns the root of an archive.
    pub fn new(root: &Path) -> Self {
        // A current directory that cannot be asked for leaves every place as it is.
        Self(std::path::absolute(root).unwrap_or_else(|_| root.to_owned()))
    }

    /// Returns a place as it is written: relative when it is below the root.
    pub fn short<'a>(&self, place: &'a str) -> Cow<'a, str> {
        let below = Path::new(place).strip_prefix(&self.0).ok();
        match below.and_then(Path::to_str) {
            Some(rest) if !rest.is_empty() => Cow::Owned(format!("{BELOW}{rest}")),
            _ => Cow::Borrowed(place),
        }
    }

    /// Returns where a place is that was written so.
    pub fn whole<'a>(&self, place: &'a str) -> Cow<'a, str> {
        match place.strip_prefix(BELOW) {
            Some(rest) => Cow::Owned(self.0.join(rest).to_string_lossy().into_owned()),
            None => Cow::Borrowed(place),
        }
    }

    /// Writes the places of an earlier version, which are all absolute, as they are written now.
    pub(crate) fn shorten_all(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(root) = self.0.to_str() else {
            return Ok(());
        };
        let prefix = format!("{root}/");
        for (table, column) in [
            ("copy", "place"),
            ("file", "source"),
            ("skipped", "source"),
            ("harvested", "path"),
        ] {
            let also = match table {
                "copy" => {
                    ", proof = json_set(proof, '$.place', './' || substr(place, length(?1) + 1))"
                }
                _ => "",
            };
            let sql = format!(
                "UPDATE {table} SET {column} = './' || substr({column}, length(?1) + 1){also} \
                 WHERE substr({column}, 1, length(?1)) = ?1"
            );
            connection.execute(&sql, params![prefix])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_root_is_relative() {
        let root = PlaceRoot::new(Path::new("/srv/a"));
        for (whole, short) in [
            ("/srv/a/repository/x", "./repository/x"),
            ("/srv/ab/x", "/srv/ab/x"),
            ("/srv/a", "/srv/a"),
            ("s3://b/x", "s3://b/x"),
            ("tape 7", "tape 7"),
        ] {
            assert_eq!(root.short(whole), short);
            assert_eq!(root.whole(short), whole);
        }
        let copied = PlaceRoot::new(Path::new("/srv/b"));
        assert_eq!(copied.whole("./repository/x"), "/srv/b/repository/x");
    }
}
