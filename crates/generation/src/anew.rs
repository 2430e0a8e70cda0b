//! An index that is made anew, of nothing that was there before.

#![expect(
    clippy::disallowed_methods,
    reason = "what was there before is put aside here, whole, and never removed"
)]

use std::fs;
use std::io::{self, Write};

use crate::directory::{BuilderLock, IndexDirectory, IndexError, failed};
use crate::generation::{DESCRIPTION, FLAT, IndexGeneration, SCHEMA};
use crate::replace::write_list;

/// A list of a generation, and what writes it and returns its lines.
pub type NewList<'a, Stop> = (
    &'static str,
    Box<dyn FnOnce(&mut dyn Write) -> Result<u64, Stop> + 'a>,
);

impl IndexDirectory {
    /// Puts all generations aside, as `generations.<aside>`. Returns the number of one that follows none of them: it is above theirs.
    ///
    /// # Errors
    /// When the lock is lost, or they cannot be put aside.
    pub fn put_aside(&self, lock: &BuilderLock, aside: &str) -> Result<u64, IndexError> {
        self.must_be_locked(lock)?;
        let number = self.numbers()?.pop().unwrap_or(0) + 1;
        let before = self.root().join("generations");
        let path = self.root().join(format!("generations.{aside}"));
        match fs::rename(&before, &path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("put aside", &before)(error));
            }
            _ => self.prepare()?,
        }
        Ok(number)
    }

    /// Publishes a generation that follows none, of these lists. What was there before is put aside as `generations.<aside>`.
    /// Returns its number, which is above those of before.
    ///
    /// # Errors
    /// When something cannot be written, another builder came between, or what a list says. Nothing is left of it then, and
    /// what was there before stays aside.
    pub fn publish_anew<Stop: From<IndexError>>(
        &self,
        lock: &BuilderLock,
        aside: &str,
        lists: Vec<NewList<'_, Stop>>,
    ) -> Result<u64, Stop> {
        let number = self.put_aside(lock, aside)?;
        let building = self.begin(lock, number)?;
        let built = (|| {
            let mut files = Vec::new();
            for (name, write) in lists {
                files.push(write_list(&building, name, write)?);
            }
            let lines = files
                .iter()
                .find(|file| file.name == FLAT)
                .or(files.first());
            let generation = IndexGeneration {
                schema: SCHEMA,
                number,
                previous: None,
                lines: lines.and_then(|file| file.lines).unwrap_or(0),
                duplicates: 0,
                files,
                members: Vec::new(),
            };
            let path = building.join(DESCRIPTION);
            let written = generation.write(&building);
            written.map_err(failed("write", &path))?;
            Ok(self.publish(lock, &building, &generation, None)?)
        })();
        if built.is_err() {
            // What is left all the same is swept by the next builder.
            let _ = self.abandon(&building);
        }
        built.map(|()| number)
    }
}
