//! The visits of a run: `runs/HARVEST/TIME.visits.tsv.zst`, why each URL is in the order it is in.
//!
//! `docs/formats/harvests.md` has the columns. Written whole, sorted by key, and read by `ecluse why URL`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use serde::Serialize;

/// The first line.
const HEADER: &str = "# ecluse visits 1";
/// No line is longer.
const LINE_BYTES: u64 = 1 << 20;

/// Why a URL is visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisitReason {
    /// It may have changed.
    Refresh,
    /// It is known and was never fetched.
    Discovery,
    /// The definition or the register names it, and nothing else is known of it.
    Perimeter,
}

impl VisitReason {
    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refresh => "refresh",
            Self::Discovery => "discovery",
            Self::Perimeter => "perimeter",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Refresh, Self::Discovery, Self::Perimeter]
            .into_iter()
            .find(|reason| reason.word() == word)
    }
}

/// One visit of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedVisit {
    /// The key of the URL.
    pub surt: String,
    /// The URL.
    pub url: String,
    /// The job that visits it.
    pub job: String,
    /// How urgent it is: 0 comes first, 4 last.
    pub level: u8,
    /// Why it is visited.
    pub reason: VisitReason,
    /// What it was chosen by: how often it was due since the last visit, what is expected of it, or its relevance, as the policy has it.
    pub value: f32,
    /// Since when it is due, 14 digits; none where the policy has no such time, or it is not due yet.
    pub due_since: Option<String>,
    /// When it was last captured, 14 digits.
    pub last: Option<String>,
    /// The `ETag` it had then.
    pub etag: Option<String>,
    /// The `Last-Modified` it had then.
    pub last_modified: Option<String>,
}

impl PlannedVisit {
    /// Appends its line, with the line feed.
    pub(crate) fn write(&self, line: &mut String) {
        use std::fmt::Write;
        let Self {
            surt,
            url,
            job,
            level,
            value,
            ..
        } = self;
        let reason = self.reason.word();
        let written = write!(line, "{surt}\t{url}\t{job}\t{level}\t{reason}\t{value}");
        written.expect("a string takes everything");
        for text in [&self.due_since, &self.last, &self.etag, &self.last_modified] {
            line.push('\t');
            match text {
                Some(text) => push_escaped(line, text),
                None => line.push('-'),
            }
        }
        line.push('\n');
    }

    /// Reads a line without its line feed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut columns = line.split('\t');
        let mut next = || columns.next();
        let visit = Self {
            surt: next()?.to_owned(),
            url: next()?.to_owned(),
            job: next()?.to_owned(),
            level: next()?.parse().ok().filter(|level| *level <= 4)?,
            reason: VisitReason::parse(next()?)?,
            value: next()?.parse().ok()?,
            due_since: unescaped(next()?),
            last: unescaped(next()?),
            etag: unescaped(next()?),
            last_modified: unescaped(next()?),
        };
        columns.next().is_none().then_some(visit)
    }
}

/// Appends a text of a server: no blanks or control characters, and never `-` alone.
fn push_escaped(line: &mut String, text: &str) {
    if text.is_empty() || text == "-" {
        return line.push_str(if text.is_empty() { "%" } else { "%2d" });
    }
    for c in text.chars() {
        match c {
            ' ' | '%' => line.push_str(&format!("%{:02x}", u32::from(c))),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    line.push_str(&format!("%{byte:02x}"));
                }
            }
            c => line.push(c),
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    match text {
        "-" => return None,
        "%" => return Some(String::new()),
        _ => {}
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| more.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes the visits of a run, sorted by key.
pub(crate) struct VisitWriter<Sink: Write> {
    out: zstd::Encoder<'static, Sink>,
    line: String,
}

impl<Sink: Write> VisitWriter<Sink> {
    pub(crate) fn new(out: Sink) -> io::Result<Self> {
        let mut out = zstd::Encoder::new(out, 3)?;
        out.include_checksum(true)?;
        writeln!(out, "{HEADER}")?;
        Ok(Self {
            out,
            line: String::new(),
        })
    }

    pub(crate) fn write(&mut self, visit: &PlannedVisit) -> io::Result<()> {
        self.line.clear();
        visit.write(&mut self.line);
        self.out.write_all(self.line.as_bytes())
    }

    pub(crate) fn finish(self) -> io::Result<Sink> {
        self.out.finish()
    }
}

/// Returns the visits of a run to a URL, by its key.
///
/// # Errors
/// When the file cannot be read or is none of visits.
pub fn visits_of(path: &Path, surt: &str) -> io::Result<Vec<PlannedVisit>> {
    let named =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| named(&error))?;
    let mut lines = BufReader::new(zstd::Decoder::new(file)?);
    let mut line = String::new();
    let mut found = Vec::new();
    let mut number = 0u64;
    loop {
        line.clear();
        number += 1;
        let read = (&mut lines).take(LINE_BYTES).read_line(&mut line);
        if read.map_err(|error| named(&error))? == 0 {
            return Ok(found);
        }
        let text = line.strip_suffix('\n').unwrap_or(&line);
        if number == 1 {
            if text != HEADER {
                return Err(named(&"line 1 is not the header of visits"));
            }
            continue;
        }
        let key = text.split('\t').next().unwrap_or_default();
        match key.cmp(surt) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                let visit = PlannedVisit::parse(text);
                found.push(visit.ok_or_else(|| named(&format!("line {number} is no visit")))?);
            }
            std::cmp::Ordering::Greater => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(surt: &str) -> PlannedVisit {
        PlannedVisit {
            surt: surt.to_owned(),
            url: format!("http://{surt}"),
            job: "press.202611180600.0001".to_owned(),
            level: 2,
            reason: VisitReason::Refresh,
            value: 1.5,
            due_since: Some("20261101000000".to_owned()),
            last: None,
            etag: Some("\"a b\t%-\n\"".to_owned()),
            last_modified: Some("-".to_owned()),
        }
    }

    #[test]
    fn what_was_written_is_found_by_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.visits.tsv.zst");
        let mut writer = VisitWriter::new(File::create(&path).unwrap()).unwrap();
        for surt in ["fr,a)/", "fr,b)/", "fr,c)/"] {
            writer.write(&visit(surt)).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(visits_of(&path, "fr,b)/").unwrap(), [visit("fr,b)/")]);
        assert!(visits_of(&path, "fr,bb)/").unwrap().is_empty());
        assert!(visits_of(&path, "fr,d)/").unwrap().is_empty());
        std::fs::write(&path, zstd::encode_all(&b"# other\n"[..], 1).unwrap()).unwrap();
        assert!(
            visits_of(&path, "a")
                .unwrap_err()
                .to_string()
                .contains("line 1")
        );
        assert!(PlannedVisit::parse("fr,a)/\thttp://a/\tj\t5\trefresh\t1\t-\t-\t-\t-").is_none());
        let mut empty = visit("a");
        empty.etag = Some(String::new());
        let mut line = String::new();
        empty.write(&mut line);
        assert_eq!(PlannedVisit::parse(line.trim_end()), Some(empty));
    }
}
