//! Places that changed because the archive was moved.

use rusqlite::params;

use crate::error::Result;
use crate::row::{self, CopyKind, CopyRow, FileRow};
use crate::{Manifest, during, signed};

/// Something of a file that lies elsewhere now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedPlace {
    /// The file.
    pub file: String,
    /// What of it.
    pub what: MovedThing,
    /// Where it is now.
    pub place: String,
}

/// What of a file lies elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MovedThing {
    /// A copy.
    Copy(CopyKind, String),
    /// The harvested file.
    Source,
    /// The same file, found once more at this place.
    Skipped(String),
}

pub(crate) const SOME_COPIES: &str = "SELECT file, kind, target, place, bytes, sha256, proof, checked, found \
     FROM copy WHERE file > '' ORDER BY file LIMIT ?1";

impl Manifest {
    /// Returns so many files in order of name, from the first behind `after`.
    pub fn files_after(&self, after: &str, most: usize) -> Result<Vec<FileRow>> {
        let read = || {
            let sql = format!("{} WHERE name > ?1 ORDER BY name LIMIT ?2", row::SELECT);
            let mut statement = self.connection().prepare_cached(&sql)?;
            let rows = statement.query_map(params![after, signed(most as u64)], |row| {
                row::file(row, self.places())
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "files"))
    }

    /// Returns the first copies, in order of name.
    pub fn some_copies(&self, most: usize) -> Result<Vec<CopyRow>> {
        let read = || {
            let mut statement = self.connection().prepare(SOME_COPIES)?;
            let rows =
                statement.query_map([signed(most as u64)], |row| row::copy(row, self.places()))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "copies"))
    }

    /// Says where these are now, all or none of them. A copy that could not be read where it was counts as not checked.
    pub fn moved(&mut self, moved: &[MovedPlace]) -> Result<()> {
        let places = self.places().clone();
        let transaction = self.begin("move", "places")?;
        for MovedPlace { file, what, place } in moved {
            let place = places.short(place);
            let done = match what {
                MovedThing::Copy(kind, target) => transaction.execute(
                    "UPDATE copy SET place = ?4, proof = json_set(proof, '$.place', ?4), \
                     found = CASE WHEN found LIKE 'unread%' THEN NULL ELSE found END \
                     WHERE file = ?1 AND kind = ?2 AND target = ?3",
                    params![file, kind.word(), target, place],
                ),
                MovedThing::Source => {
                    let sql = "UPDATE file SET source = ?2 WHERE name = ?1";
                    transaction.execute(sql, params![file, place])
                }
                MovedThing::Skipped(before) => {
                    let sql = "UPDATE skipped SET source = ?3 WHERE file = ?1 AND source = ?2";
                    transaction.execute(sql, params![file, places.short(before), place])
                }
            };
            done.map_err(during("move", file))?;
        }
        transaction.commit().map_err(during("move", "places"))
    }
}
