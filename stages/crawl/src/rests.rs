//! The rests that groups and queues were given since the last commit, where a kill must not shorten them.
//!
//! After a kill the frontier lets every group rest for its delay of the last commit. A fetch that took long, or a server that
//! asks for patience, may have made that longer since. These are written here at once and not synced: a process that
//! dies leaves them to the next one, and after a power cut a machine is not back before most of them are over.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// More than this is not read: a file between two commits is never so long.
const LONGEST: u64 = 64 << 20;

/// A rest: whose, and until when, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) of: RestOf,
    pub(crate) until: u64,
}

/// Whose rest it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestOf {
    /// That of a group: a blank stands before its name.
    Group(String),
    /// That of one queue: a tab does.
    Queue(String),
}

/// The file with the rests.
pub(crate) struct RestFile {
    file: File,
    is_empty: bool,
}

impl RestFile {
    /// Opens the file, and says what stands in it.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<Rest>)> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        let mut bytes = Vec::new();
        (&mut file).take(LONGEST).read_to_end(&mut bytes)?;
        // A full disk may have cut the last line: the next one would go on with its figures.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(whole.map_or(0, |end| end + 1));
        file.set_len(bytes.len() as u64)?;
        file.seek(SeekFrom::End(0))?;
        let rests = Self {
            file,
            is_empty: bytes.is_empty(),
        };
        Ok((rests, parse(&String::from_utf8_lossy(&bytes))))
    }

    /// Writes a rest down.
    pub(crate) fn note(&mut self, rest: &Rest) -> io::Result<()> {
        self.is_empty = false;
        let until = rest.until;
        let line = match &rest.of {
            RestOf::Group(group) => format!("{until} {group}\n"),
            RestOf::Queue(queue) => format!("{until}\t{queue}\n"),
        };
        self.file.write_all(line.as_bytes())
    }

    /// Forgets everything: a commit knows it.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if !self.is_empty {
            self.file.set_len(0)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.is_empty = true;
        }
        Ok(())
    }
}

/// Reads lines; what is none of ours is left out.
fn parse(text: &str) -> Vec<Rest> {
    let rests = text.lines().filter_map(|line| {
        let at = line.find([' ', '\t'])?;
        let (until, name) = (&line[..at], line[at + 1..].to_owned());
        Some(Rest {
            of: match &line[at..=at] {
                " " => RestOf::Group(name),
                _ => RestOf::Queue(name),
            },
            until: until.parse().ok()?,
        })
    });
    rests.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(group: &str, until: u64) -> Rest {
        Rest {
            of: RestOf::Group(group.to_owned()),
            until,
        }
    }

    #[test]
    fn what_was_noted_since_the_last_commit_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paces");
        let (mut file, found) = RestFile::open(&path).unwrap();
        assert_eq!(found, []);
        file.note(&rest("ip:192.0.2.1", 7)).unwrap();
        file.clear().unwrap();
        file.note(&rest("a group", 8)).unwrap();
        drop(file);
        let (mut file, found) = RestFile::open(&path).unwrap();
        assert_eq!(found, [rest("a group", 8)]);
        let queue = Rest {
            of: RestOf::Queue("a queue".to_owned()),
            until: 9,
        };
        file.note(&queue).unwrap();
        let (mut file, found) = RestFile::open(&path).unwrap();
        assert_eq!(found, [rest("a group", 8), queue]);
        file.clear().unwrap();
        assert_eq!(RestFile::open(&path).unwrap().1, []);
    }

    #[test]
    fn half_a_line_is_none_and_the_next_one_does_not_go_on_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paces");
        std::fs::write(&path, "12 a\nx b\n99").unwrap();
        let (mut file, found) = RestFile::open(&path).unwrap();
        assert_eq!(found, [rest("a", 12)]);
        file.note(&rest("b", 13)).unwrap();
        assert_eq!(
            RestFile::open(&path).unwrap().1,
            [rest("a", 12), rest("b", 13)]
        );
        std::fs::write(&path, "99 a").unwrap();
        assert_eq!(RestFile::open(&path).unwrap().1, []);
    }
}
