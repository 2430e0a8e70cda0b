//! As a filter: lists of names in, checked lines out, in the order of the input.
//!
//! However long the lists are, only so many names are in memory. What has no answer is asked again when there is nothing else to
//! ask, and holds up what comes after it until then.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ecluse_names::{
    CheckedEvidence, CheckedLine, DnsClass, NameLine, Normaliser, RejectReason, Rejection,
};
use ecluse_stage::{Exit, Failure};

use crate::asker::Asker;
use crate::check::{CheckEnd, NameChecker, NameToCheck, is_settled};
use crate::settings::Settings;
use crate::tally::{CheckTally, grouped};

/// Names that are read before the first of them is written.
const WINDOW: usize = 100_000;
/// A longer line is no name.
const LINE_BYTES: usize = 64 << 10;
/// What is shown of a line that is no name.
const SHOWN_BYTES: usize = 200;

/// Checks the names in files.
pub(crate) fn filter(
    settings: &Settings,
    files: &[PathBuf],
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let resolvers = settings.resolvers().map_err(Failure::config)?;
    let hints = settings.hint_lists(Path::new(""))?;
    let check_settings = settings.check_settings();
    let mut asker = Asker::open(&resolvers, settings.ask_limits())?;
    let state = RefCell::new(FilterState {
        input: Input::open(files)?,
        window: VecDeque::new(),
        first: 0,
        again: VecDeque::new(),
        later: settings.later,
        normaliser: Normaliser::new(),
        tally: CheckTally::new(None, 0),
        unsettled: 0,
        is_closed: false,
    });
    let mut sink = |number: u64, line: CheckedLine| -> Result<(), Failure> {
        state.borrow_mut().take(number, line);
        state.borrow_mut().write(out)
    };
    let is_terminal = io::stderr().is_terminal();
    let mut checker = NameChecker::new(&mut asker, &check_settings, &hints);
    let end = checker.run(&mut || state.borrow_mut().next(), &mut sink, &mut || {
        let mut state = state.borrow_mut();
        if is_terminal && state.tally.is_due(Duration::from_secs(1)) {
            eprint!("\r\x1b[K{}", state.tally.text("names", state.input.part()));
        }
        state.is_closed
    });
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    let state = &mut *state.borrow_mut();
    match end? {
        CheckEnd::Done | CheckEnd::Stopped => {}
        CheckEnd::NoResolver(why) => return Err(Failure::defer(why)),
    }
    state.write(out)?;
    for (address, counts) in asker.counts() {
        if counts.wrongly_denied > 0 {
            eprintln!(
                "{address} denies {} names that others know: is it a good one?",
                counts.wrongly_denied
            );
        }
    }
    let questions: u64 = asker.counts().map(|(_, counts)| counts.asked).sum();
    eprintln!(
        "{}; {} questions; {} names without an answer",
        state.tally.text("names", None),
        grouped(questions),
        grouped(state.unsettled)
    );
    Ok(Exit::Done)
}

struct FilterState {
    input: Input,
    /// What is read and not written, from the name `first` on.
    window: VecDeque<WindowSlot>,
    first: u64,
    /// What is asked again.
    again: VecDeque<NameToCheck>,
    later: u32,
    normaliser: Normaliser,
    tally: CheckTally,
    unsettled: u64,
    /// Nobody reads what is written.
    is_closed: bool,
}

#[derive(Default)]
struct WindowSlot {
    line: Option<CheckedLine>,
    /// How often it was asked again.
    again: u32,
}

impl FilterState {
    fn next(&mut self) -> Result<Option<NameToCheck>, Failure> {
        while self.window.len() < WINDOW {
            let Some(line) = self.input.line()? else {
                break;
            };
            let number = self.first + self.window.len() as u64;
            match self.name_in(&line) {
                Found::Nothing => {}
                Found::Name(name) => {
                    self.window.push_back(WindowSlot::default());
                    return Ok(Some(NameToCheck {
                        number,
                        name,
                        before: None,
                    }));
                }
                Found::Bad(line) => {
                    self.window.push_back(WindowSlot {
                        line: Some(*line),
                        again: 0,
                    });
                    self.tally.count();
                }
            }
        }
        Ok(self.again.pop_front())
    }

    fn name_in(&mut self, line: &Line) -> Found {
        if let Ok(text) = std::str::from_utf8(&line.bytes)
            && let Ok(listed) = NameLine::parse(text)
        {
            return Found::Name(listed.name.to_owned());
        }
        let rejection: Rejection = match line.is_cut {
            true => RejectReason::TooLong.into(),
            false => match self.normaliser.read(&line.bytes) {
                Ok(found) => return Found::Name(found.name.to_owned()),
                Err(rejection) => rejection,
            },
        };
        if matches!(
            rejection.reason,
            RejectReason::Blank | RejectReason::Comment
        ) {
            return Found::Nothing;
        }
        Found::Bad(Box::new(CheckedLine {
            key: "-".to_owned(),
            name: shown(&line.bytes),
            class: DnsClass::BadName,
            www: None,
            hints: Default::default(),
            evidence: CheckedEvidence {
                reason: Some(rejection.reason.to_string()),
                ..CheckedEvidence::default()
            },
        }))
    }

    fn take(&mut self, number: u64, line: CheckedLine) {
        let at = number.checked_sub(self.first).map(usize::try_from);
        let slot = at.and_then(|at| self.window.get_mut(at.ok()?));
        let Some(slot) = slot else { return };
        if !is_settled(&line) && slot.again < self.later {
            slot.again += 1;
            self.again.push_back(NameToCheck {
                number,
                name: line.name.clone(),
                before: Some(line),
            });
            return;
        }
        self.unsettled += u64::from(!is_settled(&line));
        self.tally.count();
        slot.line = Some(line);
    }

    /// Writes what is done up to the first that is not.
    fn write(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut text = Vec::new();
        while let Some(line) = self.window.front().and_then(|slot| slot.line.as_ref()) {
            line.write(&mut text)?;
            self.window.pop_front();
            self.first += 1;
        }
        match out.write_all(&text) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // Whoever read along has seen enough.
                self.is_closed = true;
                Ok(())
            }
            written => Ok(written?),
        }
    }
}

/// The files, one after the other.
struct Input {
    files: VecDeque<PathBuf>,
    reader: Option<Box<dyn BufRead>>,
    /// What was read, and what there is, unless a file has no size.
    read: u64,
    total: Option<u64>,
}

/// A line without its end.
struct Line {
    bytes: Vec<u8>,
    /// It was longer.
    is_cut: bool,
}

enum Found {
    Name(String),
    Bad(Box<CheckedLine>),
    Nothing,
}

impl Input {
    fn open(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut total = Some(0);
        for file in files {
            let bytes = match file.as_os_str() == "-" {
                true => None,
                false => {
                    let about =
                        std::fs::metadata(file).map_err(|error| cannot_open(file, &error))?;
                    about.is_file().then_some(about.len())
                }
            };
            total = total.zip(bytes).map(|(total, bytes)| total + bytes);
        }
        Ok(Self {
            files: files.iter().cloned().collect(),
            reader: None,
            read: 0,
            total,
        })
    }

    /// How much of it was read.
    fn part(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some(self.read as f64 / total as f64)
    }

    /// Returns the next line; however long it is, no more than its beginning is kept.
    fn line(&mut self) -> Result<Option<Line>, Failure> {
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(file) = self.files.pop_front() else {
                    return Ok(None);
                };
                self.reader = Some(match file.as_os_str() == "-" {
                    true => Box::new(BufReader::new(io::stdin())),
                    false => {
                        let open = File::open(&file).map_err(|error| cannot_open(&file, &error));
                        Box::new(BufReader::with_capacity(256 << 10, open?))
                    }
                });
                continue;
            };
            let line = read_line(reader, &mut self.read).map_err(Failure::hold)?;
            match line {
                Some(line) => return Ok(Some(line)),
                None => self.reader = None,
            }
        }
    }
}

fn read_line(reader: &mut dyn BufRead, read: &mut u64) -> io::Result<Option<Line>> {
    let mut line = Line {
        bytes: Vec::new(),
        is_cut: false,
    };
    let mut is_begun = false;
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(is_begun.then_some(line));
        }
        is_begun = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let room = LINE_BYTES - line.bytes.len();
        line.is_cut |= piece.len() > room;
        line.bytes.extend(&piece[..piece.len().min(room)]);
        let used = end.map_or(bytes.len(), |end| end + 1);
        *read += used as u64;
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

fn cannot_open(file: &Path, error: &io::Error) -> Failure {
    Failure::hold(format!("cannot open {}: {error}", file.display()))
}

/// Returns the beginning of a line as printable ASCII.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN_BYTES) {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
