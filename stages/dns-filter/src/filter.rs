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
/// What is known of them, as text: the same for long lists and short ones, fast networks and slow.
const WINDOW_BYTES: usize = 8 << 20;
/// So much is written at once.
const PIECE_BYTES: usize = 64 << 10;
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
        bytes: 0,
        again: VecDeque::new(),
        later: settings.later,
        normaliser: Normaliser::new(),
        tally: CheckTally::new(None, 0),
        unsettled: 0,
        is_closed: false,
    });
    let is_terminal = io::stderr().is_terminal();
    let mut end = CheckEnd::Done;
    // Lines that are no names may fill the window without a question being asked: then there is more to read.
    while end == CheckEnd::Done && !state.borrow().is_read() {
        let mut sink = |number: u64, line: CheckedLine| -> Result<(), Failure> {
            state.borrow_mut().take(number, &line)?;
            state.borrow_mut().write(out)
        };
        let mut checker = NameChecker::new(&mut asker, &check_settings, &hints);
        let ended = checker.run(&mut || state.borrow_mut().next(), &mut sink, &mut || {
            let mut state = state.borrow_mut();
            if is_terminal && state.tally.is_due(Duration::from_secs(1)) {
                eprint!("\r\x1b[K{}", state.tally.text("names", state.input.part()));
            }
            state.is_closed
        });
        if is_terminal {
            eprint!("\r\x1b[K");
        }
        end = ended?;
        state.borrow_mut().write(out)?;
    }
    if let CheckEnd::NoResolver(why) = end {
        return Err(Failure::defer(why));
    }
    let state = &*state.borrow();
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
    /// The bytes of text in the window, and of what is asked again.
    bytes: usize,
    /// What is asked again: its number, and the line of the time before.
    again: VecDeque<(u64, Box<[u8]>)>,
    later: u32,
    normaliser: Normaliser,
    tally: CheckTally,
    unsettled: u64,
    /// Nobody reads what is written.
    is_closed: bool,
}

#[derive(Default)]
struct WindowSlot {
    /// Its line with its end, once it is done. As text, which takes a fifth of what the line takes.
    text: Option<Box<[u8]>>,
    /// How often it was asked again.
    again: u32,
}

impl FilterState {
    /// Tells whether every line was read and written.
    fn is_read(&self) -> bool {
        self.window.is_empty() && self.input.is_over()
    }

    fn next(&mut self) -> Result<Option<NameToCheck>, Failure> {
        while self.window.len() < WINDOW && self.bytes < WINDOW_BYTES {
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
                    let text = text_of(&line)?;
                    self.bytes += text.len();
                    self.window.push_back(WindowSlot {
                        text: Some(text),
                        again: 0,
                    });
                    self.tally.count();
                }
            }
        }
        let Some((number, text)) = self.again.pop_front() else {
            return Ok(None);
        };
        self.bytes -= text.len();
        let before = std::str::from_utf8(text.trim_ascii_end()).map_err(Failure::halt)?;
        let before = CheckedLine::parse(before).map_err(Failure::halt)?;
        Ok(Some(NameToCheck {
            number,
            name: before.name.clone(),
            before: Some(before),
        }))
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

    fn take(&mut self, number: u64, line: &CheckedLine) -> io::Result<()> {
        let at = number.checked_sub(self.first).map(usize::try_from);
        let slot = at.and_then(|at| self.window.get_mut(at.ok()?));
        let Some(slot) = slot else { return Ok(()) };
        let text = text_of(line)?;
        self.bytes += text.len();
        if !is_settled(line) && slot.again < self.later {
            slot.again += 1;
            self.again.push_back((number, text));
            return Ok(());
        }
        self.unsettled += u64::from(!is_settled(line));
        self.tally.count();
        slot.text = Some(text);
        Ok(())
    }

    /// Writes what is done up to the first that is not.
    fn write(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut piece = Vec::new();
        while let Some(text) = self.window.front_mut().and_then(|slot| slot.text.take()) {
            self.window.pop_front();
            self.first += 1;
            self.bytes -= text.len();
            piece.extend_from_slice(&text);
            if piece.len() >= PIECE_BYTES {
                self.give(out, &piece)?;
                piece.clear();
            }
        }
        self.give(out, &piece)
    }

    fn give(&mut self, out: &mut dyn Write, text: &[u8]) -> Result<(), Failure> {
        match out.write_all(text) {
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

    /// Tells whether nothing is left to read.
    fn is_over(&self) -> bool {
        self.files.is_empty() && self.reader.is_none()
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

/// Returns a line as it is kept, with its end.
fn text_of(line: &CheckedLine) -> io::Result<Box<[u8]>> {
    let mut text = Vec::new();
    line.write(&mut text)?;
    Ok(text.into_boxed_slice())
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
