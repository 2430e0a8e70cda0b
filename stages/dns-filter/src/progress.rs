//! How far the check of a parcel is: a file that is only appended to, so that a check that is killed goes on where it was.
//!
//! It lies in the stage's work directory, beside the parcels, until the parcel has a receipt. A line that was cut short is none:
//! the name is asked again. What is known stays in the file; in memory is only where in it, 16 bytes for each name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_names::{CheckedLine, DnsClass, RedirectEvidence};
use ecluse_stage::{Home, ParcelId};
use twox_hash::XxHash3_128;

use crate::check::is_settled;

/// The directory of these files, in the work directory of the stage.
const DIRECTORY: &str = "progress";
/// So much is written at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most records are shorter.
const RECORD_BYTES: usize = 1 << 10;

/// What is known of the names of a parcel.
pub(crate) struct Progress {
    path: PathBuf,
    file: File,
    /// Records that are not in the file yet. They go there whole, so that those of another writer lie between them, never in them.
    unwritten: Vec<u8>,
    /// Where the next record goes, unless somebody else writes too.
    end: u64,
    /// The day on which the check began, `YYYYMMDD`.
    pub(crate) begun: String,
    /// Rounds over all names that are over.
    pub(crate) rounds: u32,
    /// What is known of each name, by its number: settled, or as the last round left it.
    lines: Vec<RecordPlace>,
    /// Where names lead, of those that were asked.
    redirects: Vec<RecordPlace>,
}

/// Where the last record of a name is, and what of it is needed often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RecordPlace(u64);

impl RecordPlace {
    const KNOWN: u64 = 1;
    const SETTLED: u64 = 2;
    const HAS_ADDRESS: u64 = 4;

    fn of_line(offset: u64, line: &CheckedLine) -> Self {
        let has_address = line.class.has_address() || line.www.is_some_and(DnsClass::has_address);
        let settled = Self::SETTLED * u64::from(is_settled(line));
        let has_address = Self::HAS_ADDRESS * u64::from(has_address);
        Self(offset << 3 | has_address | settled | Self::KNOWN)
    }

    fn of_redirect(offset: u64) -> Self {
        Self(offset << 3 | Self::KNOWN)
    }

    fn has(self, what: u64) -> bool {
        self.0 & what != 0
    }

    fn offset(self) -> Option<u64> {
        self.has(Self::KNOWN).then_some(self.0 >> 3)
    }
}

impl Progress {
    /// Opens the file of a parcel with so many names, or begins it. What was noted of another list, or with other settings, does not
    /// count.
    pub(crate) fn open(
        home: &Home,
        parcel: &ParcelId,
        names: usize,
        of: &str,
        today: &str,
    ) -> io::Result<Self> {
        let directory = directory(home);
        fs::create_dir_all(&directory)?;
        let path = directory.join(parcel.as_str());
        match Self::read(&path, names, of)? {
            Some(progress) => Ok(progress),
            None => Self::begin(path, names, of, today),
        }
    }

    fn begin(path: PathBuf, names: usize, of: &str, today: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .create(true)
            .append(true)
            .open(&path)?;
        file.set_len(0)?;
        let mut progress = Self::empty(path, file, names, today);
        progress.put(&format!("begun\t{of}\t{today}"))?;
        progress.flush()?;
        Ok(progress)
    }

    fn empty(path: PathBuf, file: File, names: usize, begun: &str) -> Self {
        Self {
            path,
            file,
            unwritten: Vec::new(),
            end: 0,
            begun: begun.to_owned(),
            rounds: 0,
            lines: vec![RecordPlace::default(); names],
            redirects: vec![RecordPlace::default(); names],
        }
    }

    fn read(path: &Path, names: usize, of: &str) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut reader = BufReader::with_capacity(PIECE_BYTES, file.try_clone()?);
        let mut first = Vec::new();
        reader.read_until(b'\n', &mut first)?;
        let mut words = read_record(&first).unwrap_or_default().split('\t');
        let is_ours = words.next() == Some("begun") && words.next() == Some(of);
        let (true, Some(begun)) = (is_ours, words.next()) else {
            return Ok(None);
        };
        let mut progress = Self::empty(path.to_owned(), file, names, begun);
        progress.end = first.len() as u64;
        progress.take_all(reader)?;
        Ok(Some(progress))
    }

    /// Takes in every record from `end` on.
    fn take_all(&mut self, mut reader: impl BufRead) -> io::Result<()> {
        let mut is_whole = true;
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            is_whole = line.ends_with(b"\n");
            if let Some(record) = read_record(&line) {
                self.take(record);
            }
            self.end += line.len() as u64;
        }
        if !is_whole {
            // The next record begins a line of its own.
            self.unwritten.push(b'\n');
        }
        Ok(())
    }

    /// Takes in a record that begins at `end`.
    fn take(&mut self, record: &str) {
        let Some((kind, rest)) = record.split_once('\t') else {
            return;
        };
        match kind {
            "round" => self.rounds = self.rounds.max(rest.parse().unwrap_or(0)),
            "name" => {
                if let Some((number, line)) = split_number(rest)
                    && let Some(place) = self.lines.get_mut(number)
                    && let Ok(line) = CheckedLine::parse(line)
                {
                    *place = RecordPlace::of_line(self.end, &line);
                }
            }
            "redirect" => {
                if let Some((number, found)) = split_number(rest)
                    && let Some(place) = self.redirects.get_mut(number)
                    && serde_json::from_str::<Option<RedirectEvidence>>(found).is_ok()
                {
                    *place = RecordPlace::of_redirect(self.end);
                }
            }
            _ => {}
        }
    }

    /// Tells whether anything is known of a name.
    pub(crate) fn is_known(&self, number: usize) -> bool {
        self.lines[number].has(RecordPlace::KNOWN)
    }

    /// Tells whether all is known of a name.
    pub(crate) fn is_settled(&self, number: usize) -> bool {
        self.lines[number].has(RecordPlace::SETTLED)
    }

    /// Tells whether a form of a name has an address.
    pub(crate) fn has_address(&self, number: usize) -> bool {
        self.lines[number].has(RecordPlace::HAS_ADDRESS)
    }

    /// Tells whether it was asked where a name leads.
    pub(crate) fn has_redirect(&self, number: usize) -> bool {
        self.redirects[number].has(RecordPlace::KNOWN)
    }

    /// Returns what is known of a name.
    pub(crate) fn line(&mut self, number: usize) -> io::Result<Option<CheckedLine>> {
        self.look_up(
            "name",
            number,
            |progress| progress.lines[number],
            |text| CheckedLine::parse(text).ok(),
        )
    }

    /// Returns where a name leads, if that was asked.
    pub(crate) fn redirect(
        &mut self,
        number: usize,
    ) -> io::Result<Option<Option<RedirectEvidence>>> {
        let place = |progress: &Self| progress.redirects[number];
        self.look_up("redirect", number, place, |text| {
            serde_json::from_str(text).ok()
        })
    }

    /// Reads what a record says. Where it is not where it should be, somebody else has written too, and all is read anew.
    fn look_up<Value>(
        &mut self,
        kind: &str,
        number: usize,
        place: impl Fn(&Self) -> RecordPlace,
        parse: impl Fn(&str) -> Option<Value>,
    ) -> io::Result<Option<Value>> {
        self.flush()?;
        let expected = format!("{kind}\t{number}\t");
        for is_second in [false, true] {
            let Some(offset) = place(self).offset() else {
                return Ok(None);
            };
            let line = self.line_at(offset)?;
            let text = read_record(&line).and_then(|record| record.strip_prefix(&expected));
            if let Some(value) = text.and_then(&parse) {
                return Ok(Some(value));
            }
            if !is_second {
                self.read_again()?;
            }
        }
        Ok(None)
    }

    fn read_again(&mut self) -> io::Result<()> {
        self.lines.fill(RecordPlace::default());
        self.redirects.fill(RecordPlace::default());
        self.end = 0;
        let reader = BufReader::with_capacity(PIECE_BYTES, File::open(&self.path)?);
        self.take_all(reader)
    }

    fn line_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        let mut line = vec![0; RECORD_BYTES];
        let mut filled = 0;
        loop {
            let read = self
                .file
                .read_at(&mut line[filled..], offset + filled as u64)?;
            let end = line[filled..filled + read]
                .iter()
                .position(|byte| *byte == b'\n');
            if let Some(end) = end {
                line.truncate(filled + end + 1);
                return Ok(line);
            }
            filled += read;
            if read == 0 {
                line.truncate(filled);
                return Ok(line);
            }
            if filled == line.len() {
                line.resize(filled * 2, 0);
            }
        }
    }

    /// Notes what is known of a name.
    pub(crate) fn note(&mut self, number: u64, line: &CheckedLine) -> io::Result<()> {
        let mut record = format!("name\t{number}\t").into_bytes();
        line.write(&mut record)?;
        record.pop();
        let offset = self.put(&String::from_utf8_lossy(&record))?;
        if let Some(place) = place_of(&mut self.lines, number) {
            *place = RecordPlace::of_line(offset, line);
        }
        Ok(())
    }

    /// Notes where a name leads.
    pub(crate) fn note_redirect(
        &mut self,
        number: u64,
        found: Option<RedirectEvidence>,
    ) -> io::Result<()> {
        let told = serde_json::to_string(&found)?;
        let offset = self.put(&format!("redirect\t{number}\t{told}"))?;
        if let Some(place) = place_of(&mut self.redirects, number) {
            *place = RecordPlace::of_redirect(offset);
        }
        Ok(())
    }

    /// Notes that a round over all names is over.
    pub(crate) fn end_round(&mut self) -> io::Result<()> {
        self.rounds += 1;
        self.put(&format!("round\t{}", self.rounds))?;
        self.flush()
    }

    /// Takes a record to be written; returns where it will be.
    fn put(&mut self, record: &str) -> io::Result<u64> {
        let offset = self.end + self.unwritten.len() as u64;
        write_record(&mut self.unwritten, record)?;
        if self.unwritten.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Lets whoever comes after us find what was noted.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.unwritten)?;
        self.end += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }
}

fn place_of(places: &mut [RecordPlace], number: u64) -> Option<&mut RecordPlace> {
    places.get_mut(usize::try_from(number).ok()?)
}

fn split_number(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.split_once('\t')?;
    Some((number.parse().ok()?, rest))
}

/// Removes the files of parcels that have a receipt.
pub(crate) fn sweep(home: &Home) -> Result<(), ecluse_stage::Failure> {
    let entries = match fs::read_dir(directory(home)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(parcel) = name.to_str().and_then(|name| ParcelId::new(name).ok()) else {
            continue;
        };
        if home.engine.receipt(&home.stage, &parcel)?.is_some() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn directory(home: &Home) -> PathBuf {
    home.engine.stage_directory(&home.stage).join(DIRECTORY)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stage's own notes on a parcel that has its receipt"
)]
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn checksum(record: &str) -> u32 {
    XxHash3_128::oneshot(record.as_bytes()) as u32
}

fn write_record(out: &mut impl Write, record: &str) -> io::Result<()> {
    let line = format!("{:08x}\t{record}\n", checksum(record));
    out.write_all(line.as_bytes())
}

fn read_record(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, record) = line.split_once('\t')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == checksum(record)).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, class: &str) -> CheckedLine {
        let key = ecluse_names::key_of(name);
        let verdict = match class {
            "NXDOMAIN" => "absent",
            _ => "unknown",
        };
        let text = format!("{key}\t{name}\t{class}\t-\t{verdict}\t-\t-\t-\t{{}}");
        CheckedLine::parse(&text).unwrap()
    }

    fn begun(path: &Path) -> Progress {
        Progress::begin(path.to_owned(), 10, "list", "20261117").unwrap()
    }

    fn read(path: &Path) -> Progress {
        Progress::read(path, 10, "list").unwrap().unwrap()
    }

    fn redirect() -> RedirectEvidence {
        RedirectEvidence {
            to: "https://b.fr/".to_owned(),
            domain: "b.fr".to_owned(),
            kind: ecluse_names::RedirectKind::Other,
            status: 200,
            from: "https://a.fr/".to_owned(),
        }
    }

    #[test]
    fn what_was_noted_is_found_again_and_the_last_word_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut progress = begun(&path);
        progress.note(3, &line("a.fr", "TIMEOUT")).unwrap();
        progress.note(1, &line("b.fr", "NXDOMAIN")).unwrap();
        assert!(progress.is_known(3) && !progress.is_settled(3));
        progress.end_round().unwrap();
        progress.note(3, &line("a.fr", "NXDOMAIN")).unwrap();
        progress.note_redirect(1, None).unwrap();
        progress.note_redirect(3, Some(redirect())).unwrap();
        progress.flush().unwrap();
        let mut found = read(&path);
        assert_eq!((found.rounds, found.begun.as_str()), (1, "20261117"));
        assert_eq!(found.lines, progress.lines);
        assert_eq!(found.redirects, progress.redirects);
        for progress in [&mut progress, &mut found] {
            let known = progress.line(3).unwrap();
            assert_eq!(known, Some(line("a.fr", "NXDOMAIN")));
            assert!(progress.is_settled(3) && !progress.has_address(3));
            assert_eq!(progress.line(2).unwrap(), None);
            assert_eq!(progress.redirect(1).unwrap(), Some(None));
            assert_eq!(progress.redirect(3).unwrap(), Some(Some(redirect())));
            assert_eq!(progress.redirect(4).unwrap(), None);
        }
        assert!(Progress::read(&path, 10, "another").unwrap().is_none());
    }

    #[test]
    fn a_line_cut_anywhere_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut progress = begun(&path);
        progress.note(1, &line("b.fr", "NXDOMAIN")).unwrap();
        progress.flush().unwrap();
        let whole = fs::read(&path).unwrap();
        progress.note(2, &line("c.fr", "NXDOMAIN")).unwrap();
        progress.flush().unwrap();
        let more = fs::read(&path).unwrap();
        for end in whole.len()..more.len() - 1 {
            fs::write(&path, &more[..end]).unwrap();
            let mut found = read(&path);
            assert!(found.is_known(1) && !found.is_known(2), "cut at {end}");
            found.note(5, &line("d.fr", "NXDOMAIN")).unwrap();
            let of_five = found.line(5).unwrap();
            assert_eq!(of_five, Some(line("d.fr", "NXDOMAIN")), "cut at {end}");
            let again = read(&path);
            let known: Vec<usize> = (0..10).filter(|number| again.is_known(*number)).collect();
            assert_eq!(known, [1, 5], "cut at {end}");
        }
    }

    #[test]
    fn what_another_writer_puts_between_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut one = begun(&path);
        let mut other = read(&path);
        for (number, name) in (0..).zip(["a.fr", "b.fr", "c.fr", "d.fr"]) {
            let writer = if number % 2 == 0 {
                &mut one
            } else {
                &mut other
            };
            writer.note(number, &line(name, "NXDOMAIN")).unwrap();
            writer.flush().unwrap();
        }
        for (number, name) in (0..).zip(["a.fr", "b.fr", "c.fr", "d.fr"]) {
            let expected = Some(line(name, "NXDOMAIN"));
            assert_eq!(read(&path).line(number).unwrap(), expected);
            if number % 2 == 0 {
                assert_eq!(one.line(number).unwrap(), expected);
            }
        }
    }
}
