//! An operator's command: no shell, a time limit, and what it says is kept.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ecluse_holding::PayloadSource;
use ecluse_stage::Failure;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::settings::Command;
use crate::{BackupTask, Made, ServiceCopy};

/// So much of what a command says is kept, from the end.
const TAIL_BYTES: usize = 4 << 10;
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
    let mut child = start(&arguments)?;
    let program = &arguments[0];
    let stdout = tail_of(child.stdout.take());
    let stderr = tail_of(child.stderr.take());
    let status = wait(&mut child, command.timeout, task);
    let said = last_line(&stdout.recv_timeout(LAST_WORDS).unwrap_or_default());
    let complained = last_lines(&stderr.recv_timeout(LAST_WORDS).unwrap_or_default());
    let status = status.map_err(|failure| with_words(failure, &complained))?;
    if !status.success() {
        let failure = Failure::defer(format!("{program} failed: {status}"));
        return Err(with_words(failure, &complained));
    }
    Ok(Made {
        place: if said.is_empty() {
            program.clone()
        } else {
            said
        },
        how: "taken by the command, after the stored copy was read",
    })
}

fn start(arguments: &[String]) -> Result<Child, Failure> {
    let (program, rest) = arguments
        .split_first()
        .ok_or_else(|| Failure::config("the command is empty"))?;
    Program::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that all of it can be ended.
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::defer(format!("cannot run {program}: {error}")))
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
    let mut child = start(&arguments)?;
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
            end(&mut self.child);
        }
    }
}

fn fill(word: &str, path: &str, task: &BackupTask<'_>) -> String {
    // Names and digests hold no braces, and a path that does is put in last.
    word.replace("{sha256}", &task.wanted.sha256)
        .replace("{name}", task.name)
        .replace("{path}", path)
}

fn wait(
    child: &mut Child,
    timeout: Duration,
    task: &BackupTask<'_>,
) -> Result<ExitStatus, Failure> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if !(task.going)() {
            end(child);
            return Err(Failure::give_back());
        }
        if began.elapsed() >= timeout {
            end(child);
            return Err(Failure::defer(format!(
                "the command did not end within {timeout:?}"
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends the command and all it started.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Gathers the end of what comes through a pipe, without bound on the whole.
fn tail_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut tail = VecDeque::new();
        let mut buffer = [0; TAIL_BYTES];
        if let Some(mut pipe) = pipe {
            while let Ok(read) = pipe.read(&mut buffer)
                && read > 0
            {
                tail.extend(&buffer[..read]);
                let over = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..over);
            }
        }
        let _ = sender.send(tail.into());
    });
    receiver
}

fn last_line(bytes: &[u8]) -> String {
    let lines = bytes.split(|byte| *byte == b'\n').rev();
    let line = lines.map(shown).find(|line| !line.is_empty());
    line.unwrap_or_default()
}

/// The last three lines, in one.
fn last_lines(bytes: &[u8]) -> String {
    let lines = bytes.split(|byte| *byte == b'\n').map(shown);
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

/// Text of one line that can be shown anywhere.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let plain = text.trim().chars().take(1000);
    plain
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn with_words(mut failure: Failure, words: &str) -> Failure {
    if !words.is_empty() {
        failure.reason = format!("{}: {words}", failure.reason);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_plain() {
        assert_eq!(last_line(b"one\ntape 7 \n\n"), "tape 7");
        assert_eq!(last_line(b""), "");
        assert_eq!(last_line(b"a\x1b[2Jb\r\n"), "a\u{fffd}[2Jb");
        assert_eq!(last_lines(b"a\nb\n\nc\nd\n"), "b / c / d");
    }

    #[test]
    fn only_the_end_of_much_is_kept() {
        let many = std::io::Cursor::new(b"x\n".repeat(1 << 20));
        let tail = tail_of(Some(many)).recv().unwrap();
        assert_eq!(tail.len(), TAIL_BYTES);
    }
}
