//! What is done already: a file of lines that only grows, so that whoever is killed goes on.
//!
//! A line counts when it has its line feed; what was being written when the process died is cut off. It survives a kill and not a
//! power cut: it says under which boot it was written, and under another one the work begins again.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::error::RankError;

/// The lines of what is done.
pub struct StateLog {
    file: File,
    path: PathBuf,
    lines: Vec<String>,
}

impl StateLog {
    /// Opens the file, or makes it; lines that another `epoch` wrote are forgotten.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(path: &Path, epoch: &str) -> Result<Self, RankError> {
        let failed = |error| RankError::io("read", path)(error);
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path);
        let mut file = file.map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(whole.map_or(0, |feed| feed + 1));
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let head = format!("epoch {epoch}");
        let is_ours = lines.first() == Some(&head);
        if !is_ours {
            lines.clear();
            bytes.clear();
        }
        file.set_len(bytes.len() as u64).map_err(failed)?;
        let mut log = Self {
            file,
            path: path.to_owned(),
            lines,
        };
        if !is_ours {
            log.add(&head)?;
        }
        Ok(log)
    }

    /// Adds a line, with one call.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, line: &str) -> Result<(), RankError> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(RankError::io("write", &self.path))?;
        self.lines.push(line.to_owned());
        Ok(())
    }

    /// Returns what follows a word in the last line that begins with it.
    pub fn last<'a>(&'a self, word: &'a str) -> Option<&'a str> {
        self.all(word).last()
    }

    /// Returns what follows a word in every line that begins with it.
    pub fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let rest = move |line: &'a String| line.strip_prefix(word)?.strip_prefix(' ');
        self.lines.iter().filter_map(rest)
    }
}

/// Returns the boot of this machine; where it cannot be told, nothing is ever gone on with.
pub fn boot() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    told.map_or_else(
        |_| format!("process-{}", std::process::id()),
        |id| id.trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_and_another_boot_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let mut log = StateLog::open(&path, "1").unwrap();
        log.add("step a 5").unwrap();
        log.add("step b").unwrap();
        drop(log);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"step hal").unwrap();
        let mut log = StateLog::open(&path, "1").unwrap();
        assert_eq!(log.all("step").collect::<Vec<_>>(), ["a 5", "b"]);
        log.add("step c").unwrap();
        let log = StateLog::open(&path, "1").unwrap();
        assert_eq!(log.last("step"), Some("c"));
        assert_eq!(StateLog::open(&path, "2").unwrap().last("step"), None);
        assert_eq!(StateLog::open(&path, "1").unwrap().last("step"), None);
    }
}
