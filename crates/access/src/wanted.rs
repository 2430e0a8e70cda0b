//! The URLs that a curator met while browsing and that the archive does not have: a list for preload.
//!
//! One URL a line, each once, no more than so many; it is only ever appended to. Taken away or emptied, it begins anew.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// A longer URL is not put down.
const LONGEST: usize = 2_048;

/// What became of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Added,
    Known,
    /// The list is as long as it may be, or the URL is too long.
    Full,
}

/// The list.
pub(crate) struct WantedList {
    path: PathBuf,
    most: usize,
    /// The first half of the digest of each: a million of them take 16 MB.
    known: Mutex<HashSet<[u8; 16]>>,
}

impl WantedList {
    /// Opens a list; what is in it already is known.
    pub(crate) fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut known = HashSet::new();
        match fs::File::open(&path) {
            Ok(file) => {
                for line in BufReader::new(file).split(b'\n').take(most) {
                    known.insert(digest_of(&line?));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Said now, and not when the first URL is met.
                let directory = path
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                if let Some(directory) = directory {
                    fs::read_dir(directory)?;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(Self {
            path,
            most,
            known: Mutex::new(known),
        })
    }

    /// Puts down a URL.
    pub(crate) fn add(&self, url: &str) -> io::Result<Wanted> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_begun = fs::metadata(&self.path).is_ok_and(|found| found.len() > 0);
        if !is_begun {
            known.clear();
        }
        let digest = digest_of(url.as_bytes());
        if known.contains(&digest) {
            return Ok(Wanted::Known);
        }
        let is_line = url.len() <= LONGEST && !url.chars().any(char::is_control);
        if known.len() >= self.most || !is_line {
            return Ok(Wanted::Full);
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.path)?;
        file.write_all(format!("{url}\n").as_bytes())?;
        known.insert(digest);
        Ok(Wanted::Added)
    }

    /// Returns how many URLs are on it.
    pub(crate) fn count(&self) -> usize {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

fn digest_of(line: &[u8]) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(line).into();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_url_is_there_once_and_no_more_than_so_many() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wanted.txt");
        fs::write(&path, "http://a.example/\n").unwrap();
        let list = WantedList::open(path.clone(), 3).unwrap();
        assert_eq!(list.add("http://a.example/").unwrap(), Wanted::Known);
        assert_eq!(list.add("http://b.example/").unwrap(), Wanted::Added);
        assert_eq!(list.add("http://b.example/").unwrap(), Wanted::Known);
        let long = format!("http://c.example/{}", "x".repeat(LONGEST));
        assert_eq!(list.add(&long).unwrap(), Wanted::Full);
        assert_eq!(
            list.add("http://c.example/\nhttp://d").unwrap(),
            Wanted::Full
        );
        assert_eq!(list.add("http://c.example/").unwrap(), Wanted::Added);
        assert_eq!(list.add("http://d.example/").unwrap(), Wanted::Full);
        assert_eq!(list.count(), 3);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "http://a.example/\nhttp://b.example/\nhttp://c.example/\n"
        );
        // Emptied by hand, it begins anew.
        fs::write(&path, "").unwrap();
        assert_eq!(list.add("http://d.example/").unwrap(), Wanted::Added);
        assert_eq!(fs::read_to_string(&path).unwrap(), "http://d.example/\n");
        let nowhere = WantedList::open(directory.path().join("no/wanted.txt"), 3);
        assert!(nowhere.is_err());
    }
}
