//! A generation that differs from the one before it in one list only.

#![expect(
    clippy::disallowed_methods,
    reason = "a generation is made here, of files of the one before it that never change"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::directory::{BuilderLock, IndexDirectory, IndexError, LastGeneration, failed};
use crate::generation::{DESCRIPTION, IndexFile, IndexGeneration};
use crate::sum::FileSum;

impl IndexDirectory {
    /// Publishes a generation that is the last one but for one list, which `write` writes, returning its lines. All other
    /// files are the same files, by another name. Returns its number.
    ///
    /// # Errors
    /// When a person put the last one there, the list has fewer lines than before, another builder came between, or what
    /// `write` says. Nothing is left of it then.
    pub fn replace<Stop: From<IndexError>>(
        &self,
        lock: &BuilderLock,
        last: &LastGeneration,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        let Some(described) = &last.described else {
            let problem = format!("{DESCRIPTION} is not there: mend {name} by hand");
            return Err(self.not_whole(last.number, problem).into());
        };
        let number = last.number + 1;
        let building = self.begin(lock, number)?;
        let built = (|| {
            let entry = write_list(&building, name, write)?;
            let mut files = described.files.clone();
            for file in &mut files {
                if file.name == name {
                    *file = entry.clone();
                    continue;
                }
                let (from, to) = (self.generation(last.number), building.join(&file.name));
                fs::hard_link(from.join(&file.name), &to).map_err(failed("link", &to))?;
            }
            let generation = IndexGeneration {
                schema: IndexGeneration::schema_of(&files),
                number,
                previous: Some(last.number),
                lines: described.lines,
                duplicates: 0,
                files,
                members: Vec::new(),
            };
            let path = building.join(DESCRIPTION);
            generation
                .write(&building)
                .map_err(failed("write", &path))?;
            Ok(self.publish(lock, &building, &generation, Some(last))?)
        })();
        if built.is_err() {
            // What is left all the same is swept by the next builder.
            let _ = self.abandon(&building);
        }
        built.map(|()| number)
    }
}

pub(crate) fn write_list<Stop: From<IndexError>>(
    directory: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> Result<u64, Stop>,
) -> Result<IndexFile, Stop> {
    let path = directory.join(name);
    let file = File::create_new(&path).map_err(failed("make", &path))?;
    let mut out = SummedList {
        file: BufWriter::new(file),
        sum: FileSum::default(),
    };
    let lines = write(&mut out)?;
    let file = out
        .file
        .into_inner()
        .map_err(io::IntoInnerError::into_error);
    file.and_then(|file| file.sync_all())
        .map_err(failed("sync", &path))?;
    let mut entry = out.sum.entry(name);
    entry.lines = Some(lines);
    Ok(entry)
}

struct SummedList {
    file: BufWriter<File>,
    sum: FileSum,
}

impl Write for SummedList {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::SCHEMA;
    use crate::sum::entry_of;

    #[test]
    fn one_list_is_another_and_the_rest_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let index = IndexDirectory::of(dir.path(), None).unwrap();
        index.prepare().unwrap();
        let lock = index.try_lock().unwrap().unwrap();
        let building = index.begin(&lock, 1).unwrap();
        let mut files = Vec::new();
        for (name, text) in [("a", "1\n2\n"), ("b", "x\ny\n")] {
            fs::write(building.join(name), text).unwrap();
            let mut entry = entry_of(&building.join(name), name).unwrap();
            entry.lines = Some(2);
            files.push(entry);
        }
        let first = IndexGeneration {
            schema: SCHEMA,
            number: 1,
            previous: None,
            lines: 2,
            duplicates: 0,
            files,
            members: Vec::new(),
        };
        first.write(&building).unwrap();
        index.publish(&lock, &building, &first, None).unwrap();
        let last = index.settle(&lock).unwrap().unwrap();
        let put = |text: &'static str, lines| {
            index.replace(&lock, &last, "b", |out| -> Result<u64, IndexError> {
                out.write_all(text.as_bytes()).unwrap();
                Ok(lines)
            })
        };
        // Never fewer lines than before, and nothing is left of the attempt.
        assert!(matches!(put("z\n", 1), Err(IndexError::Fewer { .. })));
        assert_eq!(
            fs::read_dir(dir.path().join("generations"))
                .unwrap()
                .count(),
            1
        );
        assert_eq!(put("y\nz\n", 2).unwrap(), 2);
        let current = index.current().unwrap().unwrap();
        assert_eq!(fs::read(current.join("a")).unwrap(), b"1\n2\n");
        assert_eq!(fs::read(current.join("b")).unwrap(), b"y\nz\n");
        let last = index.settle(&lock).unwrap().unwrap();
        let described = last.described.unwrap();
        assert_eq!((last.number, described.previous), (2, Some(1)));
        let found = entry_of(&current.join("b"), "b").unwrap();
        assert_eq!(described.file("b").unwrap().xxh128, found.xxh128);
    }
}
