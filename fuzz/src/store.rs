//! A frontier whose files were altered in any way opens at some state or is refused; it never panics, and what it hands out
//! can be finished and committed.
//!
//! The input is a list of changes to the files of a small frontier: a byte for the file, two for the place, one for the
//! length, then what stands there instead; a length of 255 cuts the file at that place.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use ecluse_frontier::{Candidate, Frontier, Manners, Memory, Millis, Next, Outcome, Settings};

/// A file's name and bytes.
type File = (String, Vec<u8>);

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    let mut files = FILES.get_or_init(small_frontier).clone();
    alter(&mut files, bytes);
    let dir = tempfile::tempdir().expect("a directory can be made");
    for (name, bytes) in &files {
        fs::write(dir.path().join(name), bytes).expect("a file can be written");
    }
    // What is damaged is refused at any of these steps.
    let outcome = crawl(dir.path(), 300);
    if bytes.is_empty() {
        outcome.expect("files that were not altered are whole");
    }
}

fn crawl(dir: &Path, most: usize) -> ecluse_frontier::Result<()> {
    let mut frontier = Frontier::open(dir, settings())?;
    for _ in 0..most {
        match frontier.next(Millis(1_000_000_000), |_| None)? {
            Next::Fetch(item) => {
                let outcome = Outcome::done(200, 1000, Duration::ZERO);
                frontier.finish(Millis(1_000_000_000), item.id, &outcome)?;
            }
            Next::Missing(_) | Next::Wait(_) | Next::Idle | Next::Empty => break,
        }
    }
    frontier.add(&Candidate::new("http://new.example/", "new.example"))?;
    frontier.commit(b"checkpoint")
}

fn alter(files: &mut [File], mut changes: &[u8]) {
    while let [file, high, low, length, rest @ ..] = changes {
        let number = usize::from(*file) % files.len();
        let bytes = &mut files[number].1;
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
        let count = usize::from(*length).min(rest.len());
        if *length == 255 {
            bytes.truncate(at);
        } else {
            let end = (at + count).min(bytes.len());
            bytes.splice(at..end, rest[..count].iter().copied());
        }
        changes = &rest[count..];
    }
}

/// Returns the files of a frontier with some URLs done, some waiting and a commit between.
fn small_frontier() -> Vec<File> {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let mut frontier = Frontier::open(dir.path(), settings()).expect("an empty one opens");
    for number in 0..60 {
        let host = format!("h{}.example", number % 5);
        let url = format!("http://{host}/{number}");
        let added = frontier.add(&Candidate::new(&url, &host));
        added.expect("a URL can be added");
        if number == 30 {
            frontier.commit(b"half").expect("it can be committed");
        }
    }
    frontier.pause(b"whole").expect("it can be closed");
    drop(frontier);
    crawl(dir.path(), 20).expect("it is whole");
    let entries = fs::read_dir(dir.path()).expect("it can be listed");
    let mut files: Vec<File> = entries
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let bytes = fs::read(entry.path()).expect("it can be read");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort();
    assert!(files.iter().any(|(_, bytes)| bytes.len() > 100));
    files
}

fn settings() -> Settings {
    Settings {
        manners: Manners {
            min_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            ..Manners::default()
        },
        memory: Memory {
            filters: 1 << 20,
            ..Memory::default()
        },
        ..Settings::default()
    }
}

/// No change, a byte, a cut, and one in each of the first files.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![Vec::new(), vec![0, 0, 9, 1, 0xff], vec![1, 0, 40, 255]];
    seeds.extend((0..6).map(|file| vec![file, 0, 16, 4, 0xff, 0xff, 0xff, 0x7f]));
    seeds
}
