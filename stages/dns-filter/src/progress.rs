//! How far the check of a parcel is: a file that is only appended to, so that a check that is killed goes on where it was.
//!
//! It lies in the stage's work directory, beside the parcels, until the parcel has a receipt. A line that was cut short, or that
//! two writers mixed up, is none: the name is asked again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use ecluse_names::{CheckedLine, RedirectEvidence};
use ecluse_stage::{Home, ParcelId};
use twox_hash::XxHash3_128;

/// The directory of these files, in the work directory of the stage.
const DIRECTORY: &str = "progress";

/// What is known of the names of a parcel.
pub(crate) struct Progress {
    file: BufWriter<File>,
    /// The day on which the check began, `YYYYMMDD`.
    pub(crate) begun: String,
    /// Rounds over all names that are over.
    pub(crate) rounds: u32,
    /// What is known of each name, by its number: settled, or as the last round left it.
    pub(crate) lines: HashMap<u64, CheckedLine>,
    /// Where names lead, of those that were asked.
    pub(crate) redirects: HashMap<u64, Option<RedirectEvidence>>,
}

impl Progress {
    /// Opens the file of a parcel, or begins it. What was noted of another list, or with other settings, does not count.
    pub(crate) fn open(home: &Home, parcel: &ParcelId, of: &str, today: &str) -> io::Result<Self> {
        let directory = directory(home);
        fs::create_dir_all(&directory)?;
        let path = directory.join(parcel.as_str());
        if let Some(progress) = Self::read(&path, of)? {
            return Ok(progress);
        }
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.set_len(0)?;
        let mut file = BufWriter::new(file);
        write_record(&mut file, &format!("begun\t{of}\t{today}"))?;
        file.flush()?;
        Ok(Self {
            file,
            begun: today.to_owned(),
            rounds: 0,
            lines: HashMap::new(),
            redirects: HashMap::new(),
        })
    }

    fn read(path: &Path, of: &str) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut reader = BufReader::new(file.try_clone()?);
        let mut progress: Option<Self> = None;
        let mut is_whole = true;
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            is_whole = line.ends_with(b"\n");
            let Some(record) = read_record(&line) else {
                continue;
            };
            match &mut progress {
                Some(progress) => progress.take(record),
                None => {
                    let mut words = record.split('\t');
                    let is_ours = words.next() == Some("begun") && words.next() == Some(of);
                    let (true, Some(begun)) = (is_ours, words.next()) else {
                        return Ok(None);
                    };
                    progress = Some(Self {
                        file: BufWriter::new(file.try_clone()?),
                        begun: begun.to_owned(),
                        rounds: 0,
                        lines: HashMap::new(),
                        redirects: HashMap::new(),
                    });
                }
            }
        }
        if let Some(progress) = &mut progress
            && !is_whole
        {
            // The next record begins a line of its own.
            progress.file.write_all(b"\n")?;
        }
        Ok(progress)
    }

    fn take(&mut self, record: &str) {
        let Some((kind, rest)) = record.split_once('\t') else {
            return;
        };
        match kind {
            "round" => self.rounds = self.rounds.max(rest.parse().unwrap_or(0)),
            "name" => {
                if let Some((number, line)) = rest.split_once('\t')
                    && let (Ok(number), Ok(line)) = (number.parse(), CheckedLine::parse(line))
                {
                    self.lines.insert(number, line);
                }
            }
            "redirect" => {
                if let Some((number, found)) = rest.split_once('\t')
                    && let (Ok(number), Ok(found)) = (number.parse(), serde_json::from_str(found))
                {
                    self.redirects.insert(number, found);
                }
            }
            _ => {}
        }
    }

    /// Notes what is known of a name.
    pub(crate) fn note(&mut self, number: u64, line: CheckedLine) -> io::Result<()> {
        let mut record = format!("name\t{number}\t").into_bytes();
        line.write(&mut record)?;
        record.pop();
        let record = String::from_utf8_lossy(&record);
        write_record(&mut self.file, &record)?;
        self.lines.insert(number, line);
        Ok(())
    }

    /// Notes where a name leads.
    pub(crate) fn note_redirect(
        &mut self,
        number: u64,
        found: Option<RedirectEvidence>,
    ) -> io::Result<()> {
        let told = serde_json::to_string(&found)?;
        write_record(&mut self.file, &format!("redirect\t{number}\t{told}"))?;
        self.redirects.insert(number, found);
        Ok(())
    }

    /// Notes that a round over all names is over.
    pub(crate) fn end_round(&mut self) -> io::Result<()> {
        self.rounds += 1;
        write_record(&mut self.file, &format!("round\t{}", self.rounds))?;
        self.flush()
    }

    /// Lets whoever comes after us find what was noted.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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

    fn empty(path: &Path) -> Progress {
        let mut file = BufWriter::new(File::create(path).unwrap());
        write_record(&mut file, "begun\tlist\t20261117").unwrap();
        file.flush().unwrap();
        Progress::read(path, "list").unwrap().unwrap()
    }

    #[test]
    fn what_was_noted_is_found_again_and_the_last_word_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut progress = empty(&path);
        progress.note(3, line("a.fr", "TIMEOUT")).unwrap();
        progress.note(1, line("b.fr", "NXDOMAIN")).unwrap();
        progress.end_round().unwrap();
        progress.note(3, line("a.fr", "NXDOMAIN")).unwrap();
        progress.note_redirect(1, None).unwrap();
        progress.flush().unwrap();
        let found = Progress::read(&path, "list").unwrap().unwrap();
        assert_eq!((found.rounds, found.begun.as_str()), (1, "20261117"));
        assert_eq!(found.lines, progress.lines);
        assert_eq!(found.redirects, progress.redirects);
        assert!(Progress::read(&path, "another").unwrap().is_none());
    }

    #[test]
    fn a_line_cut_anywhere_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut progress = empty(&path);
        progress.note(1, line("b.fr", "NXDOMAIN")).unwrap();
        progress.flush().unwrap();
        let whole = fs::read(&path).unwrap();
        progress.note(2, line("c.fr", "NXDOMAIN")).unwrap();
        progress.flush().unwrap();
        let more = fs::read(&path).unwrap();
        for end in whole.len()..more.len() - 1 {
            fs::write(&path, &more[..end]).unwrap();
            let mut found = Progress::read(&path, "list").unwrap().unwrap();
            assert_eq!(found.lines.len(), 1, "cut at {end}");
            found.note(5, line("d.fr", "NXDOMAIN")).unwrap();
            found.flush().unwrap();
            let again = Progress::read(&path, "list").unwrap().unwrap();
            assert_eq!(again.lines.len(), 2, "cut at {end}");
        }
    }
}
