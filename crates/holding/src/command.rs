//! An operator's command: no shell, a time limit, and what it says is kept.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ecluse_stage::Failure;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::digest::Going;

/// So much of what a command says is kept, from the end.
const TAIL_BYTES: usize = 4 << 10;
/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long output may come after the end: a grandchild may hold the pipe for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct CommandEnd {
    /// How it ended.
    pub status: ExitStatus,
    /// The last line of its standard output, as text that can be shown anywhere.
    pub said: String,
    /// The last lines of its standard error, in one.
    pub complained: String,
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started, or does not end in time, the failure is the world's. Gives back when `going` says to stop.
pub fn run_command(
    arguments: &[String],
    timeout: Duration,
    going: Going<'_>,
) -> Result<CommandEnd, Failure> {
    let mut child = start_command(arguments)?;
    let stdout = tail_of(child.stdout.take());
    let stderr = tail_of(child.stderr.take());
    let status = wait(&mut child, timeout, going);
    let said = last_line(&stdout.recv_timeout(LAST_WORDS).unwrap_or_default());
    let complained = last_lines(&stderr.recv_timeout(LAST_WORDS).unwrap_or_default());
    Ok(CommandEnd {
        status: status.map_err(|failure| with_words(failure, &complained))?,
        said,
        complained,
    })
}

/// Starts a command with pipes for what it says.
///
/// # Errors
/// When it cannot be started.
pub fn start_command(arguments: &[String]) -> Result<Child, Failure> {
    let (program, rest) = arguments
        .split_first()
        .ok_or_else(|| Failure::config("the command is empty"))?;
    Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that all of it can be ended.
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::defer(format!("cannot run {program}: {error}")))
}

fn wait(child: &mut Child, timeout: Duration, going: Going<'_>) -> Result<ExitStatus, Failure> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if !going() {
            end_command(child);
            return Err(Failure::give_back());
        }
        if began.elapsed() >= timeout {
            end_command(child);
            return Err(Failure::defer(format!(
                "the command did not end within {timeout:?}"
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends a command and all it started.
pub fn end_command(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Gathers the end of what comes through a pipe, without bound on the whole.
pub fn tail_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
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

/// Returns the last three lines, in one.
pub fn last_lines(bytes: &[u8]) -> String {
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

/// Adds what a command said to a failure.
#[must_use]
pub fn with_words(mut failure: Failure, words: &str) -> Failure {
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
