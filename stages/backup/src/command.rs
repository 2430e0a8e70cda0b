//! An operator's command, that takes a file away or brings it back.

use std::io::{self, Read};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ecluse_holding::{
    PayloadSource, end_command, last_lines, run_command, start_command, tail_of, with_words,
};
use ecluse_stage::Failure;

use crate::settings::Command;
use crate::{BackupTask, Made, ServiceCopy};

/// A command that brings a file back says with this exit code, EX_NOINPUT, that it does not have it.
const NOT_THERE: i32 = 66;
/// So much of a file that is fetched is read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// So many pieces of it wait to be taken.
const PIECES: usize = 4;
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long output may come after the end: a grandchild may hold the pipe for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the command for a file whose stored copy was read from the disk just before.
pub(crate) fn run(command: &Command, task: &BackupTask<'_>) -> Result<Made, Failure> {
    let PayloadSource::Stored(path) = task.source else {
        return Err(Failure::hold(format!(
            "a command needs the stored copy of {0}, and {0}.path names none",
            task.name
        )));
    };
    task.source.verify(task.wanted, task.going)?;
    let path = path
        .to_str()
        .ok_or_else(|| Failure::hold("the path is not UTF-8"))?;
    let arguments: Vec<String> = command
        .command
        .iter()
        .map(|word| fill(word, path, task))
        .collect();
    let program = &arguments[0];
    let end = run_command(&arguments, command.timeout, task.going)?;
    if !end.status.success() {
        let failure = Failure::defer(format!("{program} failed: {}", end.status));
        return Err(with_words(failure, &end.complained));
    }
    Ok(Made {
        place: if end.said.is_empty() {
            program.clone()
        } else {
            end.said
        },
        how: "taken by the command, after the stored copy was read",
    })
}

/// Starts the command that brings a file back: what it writes on standard output are the bytes.
pub(crate) fn fetch(command: &Command, copy: &ServiceCopy<'_>) -> Result<Box<dyn Read>, Failure> {
    let words = command.fetch.iter();
    let arguments: Vec<String> = words
        .map(|word| {
            word.replace("{sha256}", &copy.wanted.sha256)
                .replace("{name}", copy.name)
                .replace("{place}", copy.place)
        })
        .collect();
    let mut child = start_command(&arguments)?;
    let (sender, pieces) = mpsc::sync_channel(PIECES);
    let mut pipe = child.stdout.take();
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Some(pipe) = &mut pipe {
            let piece = pipe.read(&mut buffer);
            let is_last = !matches!(piece, Ok(read) if read > 0);
            let sent = sender.send(piece.map(|read| buffer[..read].to_vec()));
            if is_last || sent.is_err() {
                return;
            }
        }
    });
    Ok(Box::new(FetchedFile {
        complaints: tail_of(child.stderr.take()),
        child,
        pieces,
        piece: io::Cursor::default(),
        until: Instant::now() + command.timeout,
        is_over: false,
    }))
}

/// A file as a command brings it; its end counts only when the command ended well, in time.
struct FetchedFile {
    child: Child,
    complaints: Receiver<Vec<u8>>,
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    until: Instant,
    is_over: bool,
}

impl Read for FetchedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.is_over {
                return Ok(read);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            let piece = self.pieces.recv_timeout(left);
            let piece = piece.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            if piece.is_empty() {
                self.must_end_well()?;
            }
            self.piece = io::Cursor::new(piece);
        }
    }
}

impl FetchedFile {
    fn must_end_well(&mut self) -> io::Result<()> {
        while Instant::now() < self.until {
            let Some(status) = self.child.try_wait()? else {
                std::thread::sleep(LOOK);
                continue;
            };
            self.is_over = true;
            if status.success() {
                return Ok(());
            }
            let complained = self.complaints.recv_timeout(LAST_WORDS).unwrap_or_default();
            let words = format!("fetch failed: {status}: {}", last_lines(&complained));
            return Err(match status.code() {
                Some(NOT_THERE) => io::Error::new(io::ErrorKind::NotFound, words),
                _ => io::Error::other(words),
            });
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for FetchedFile {
    fn drop(&mut self) {
        if !self.is_over {
            end_command(&mut self.child);
        }
    }
}

fn fill(word: &str, path: &str, task: &BackupTask<'_>) -> String {
    // Names and digests hold no braces, and a path that does is put in last.
    word.replace("{sha256}", &task.wanted.sha256)
        .replace("{name}", task.name)
        .replace("{path}", path)
}
