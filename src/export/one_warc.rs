//! One WARC file of a selection.
//!
//! A record that has a gzip member to itself is copied as it stands, byte by byte. Others (uncompressed files, ARC, zstd, several
//! records in a member) are written anew with all their fields; an ARC record becomes a response.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use ecluse_stage::Exit;
use ecluse_warc::{
    ArchiveFormat, Extent, NewRecord, Payload, Record, RecordKind, WarcReader, WarcWriter,
};

use super::{SelectedFile, Selection};
use crate::context::Trouble;

/// As the crawl packs.
const LEVEL: u8 = 6;

/// What the writer says itself.
const WRITTEN: [&str; 8] = [
    "WARC-Type",
    "WARC-Record-ID",
    "WARC-Date",
    "WARC-Target-URI",
    "Content-Type",
    "Content-Length",
    "WARC-Block-Digest",
    "WARC-Payload-Digest",
];

/// Writes the records of a selection; returns how many.
pub(crate) fn write_one(selection: &Selection, out: &mut dyn Write) -> Result<u64, Trouble> {
    let mut one = OneWarc {
        selection,
        out,
        count: 0,
        undated: 0,
        is_begun: false,
    };
    for file in &selection.files {
        one.take(file)?;
    }
    if one.undated > 0 {
        let records = crate::show::count(one.undated, "record", "records");
        eprintln!("ecluse: left out {records} without a date that can be read");
    }
    Ok(one.count)
}

struct OneWarc<'a> {
    selection: &'a Selection,
    out: &'a mut dyn Write,
    count: u64,
    /// Records that no date makes a capture: the index has no line of them either.
    undated: u64,
    is_begun: bool,
}

impl OneWarc<'_> {
    fn take(&mut self, file: &SelectedFile) -> Result<(), Trouble> {
        let mut magic = Vec::new();
        File::open(&file.path)?.take(2).read_to_end(&mut magic)?;
        if magic != b"\x1f\x8b" {
            return self.rewrite(file, None);
        }
        match self.copy_members(file)? {
            shared if shared.is_empty() => Ok(()),
            shared => self.rewrite(file, Some(&shared)),
        }
    }

    fn is_meant(&mut self, record: &Record<'_, File>) -> bool {
        let uri = record.target_uri();
        let is_meant = uri.is_some_and(|uri| self.selection.has(&uri));
        let is_dated = record.capture_time().is_ok();
        self.undated += u64::from(is_meant && !is_dated);
        is_meant && is_dated
    }

    fn open(&self, file: &SelectedFile) -> Result<WarcReader<File>, Trouble> {
        let limits = self.selection.settings.limits();
        Ok(WarcReader::seekable(File::open(&file.path)?, limits))
    }

    /// Copies the records that have a member to themselves; returns the numbers of the others.
    fn copy_members(&mut self, file: &SelectedFile) -> Result<BTreeSet<u64>, Trouble> {
        let mut raw = File::open(&file.path)?;
        let mut reader = self.open(file)?;
        let mut shared = BTreeSet::new();
        // That of a file that gives nothing stays away.
        let mut heading: Option<(u64, u64)> = None;
        while let Some(record) = reader.next().map_err(|error| unread(file, &error))? {
            let number = record.number();
            let is_heading = record.kind() == RecordKind::Warcinfo;
            if !is_heading && !self.is_meant(&record) {
                continue;
            }
            let is_warc = record.format() == ArchiveFormat::Warc;
            if !is_heading && is_warc {
                self.begin(&record)?;
            }
            match record.finish().map_err(|error| unread(file, &error))? {
                Extent::Own { offset, length } if is_warc && is_heading => {
                    heading = Some((offset, length));
                }
                Extent::Own { offset, length } if is_warc => {
                    if let Some(place) = heading.take() {
                        copy(&mut raw, place, self.out)?;
                    }
                    copy(&mut raw, (offset, length), self.out)?;
                    self.count += 1;
                }
                _ if is_heading => {}
                _ => drop(shared.insert(number)),
            }
        }
        Ok(shared)
    }

    /// Writes records anew: those of these numbers, or all.
    fn rewrite(
        &mut self,
        file: &SelectedFile,
        numbers: Option<&BTreeSet<u64>>,
    ) -> Result<(), Trouble> {
        let mut reader = self.open(file)?;
        while let Some(mut record) = reader.next().map_err(|error| unread(file, &error))? {
            let is_chosen = numbers.is_none_or(|numbers| numbers.contains(&record.number()));
            let is_heading = record.kind() == RecordKind::Warcinfo;
            if !is_chosen || is_heading || !self.is_meant(&record) {
                continue;
            }
            self.begin(&record)?;
            let header = Rewritten::of(&record, file);
            let mut block = tempfile::tempfile()?;
            io::copy(&mut record, &mut block)?;
            header.write(&mut block, self.out)?;
            self.count += 1;
        }
        Ok(())
    }

    /// Says what this file is, with the date of the first record in it.
    fn begin(&mut self, first: &Record<'_, File>) -> Result<(), Trouble> {
        if self.is_begun {
            return Ok(());
        }
        self.is_begun = true;
        let date = date_of(first);
        let name = &self.selection.name;
        let block = format!(
            "software: ecluse {}\r\nformat: WARC File Format 1.1\r\ndescription: export of {}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.selection.title
        );
        let id = id_of(&format!("export {name} {date}"));
        let record = NewRecord {
            kind: RecordKind::Warcinfo,
            id: &id,
            date: &date,
            target_uri: None,
            content_type: Some("application/warc-fields"),
            fields: &[],
            payload: Payload::None,
        };
        let mut writer = WarcWriter::new(&mut *self.out, LEVEL);
        let written = writer.write(&record, block.as_bytes());
        written
            .map(drop)
            .map_err(|error| Trouble::new(Exit::Machine, error))
    }
}

/// The header of a record that is written anew.
struct Rewritten {
    kind: RecordKind,
    id: String,
    date: String,
    uri: Option<String>,
    content_type: Option<String>,
    fields: Vec<(String, String)>,
    payload: Payload,
}

impl Rewritten {
    fn of(record: &Record<'_, File>, file: &SelectedFile) -> Self {
        let is_warc = record.format() == ArchiveFormat::Warc;
        let head = record.http().and_then(|head| head.head_bytes());
        let mut fields = Vec::new();
        for field in record.fields().filter(|_| is_warc) {
            let name = String::from_utf8_lossy(field.name).into_owned();
            let is_ours = WRITTEN
                .iter()
                .any(|known| known.eq_ignore_ascii_case(&name));
            let is_digest = name.eq_ignore_ascii_case("WARC-Payload-Digest");
            // A revisit has no payload that its digest could be taken of.
            if !is_ours || (is_digest && record.kind() == RecordKind::Revisit) {
                fields.push((name, field.text().into_owned()));
            }
        }
        let id = record.text("WARC-Record-ID").filter(|_| is_warc);
        let id = id.map(|id| id.trim_matches(['<', '>']).to_owned());
        Self {
            kind: record.kind(),
            id: id.unwrap_or_else(|| id_of(&format!("{} {}", file.name, record.offset()))),
            date: date_of(record),
            uri: record.target_uri().map(|uri| uri.into_owned()),
            content_type: match (is_warc, head) {
                (false, Some(_)) => Some("application/http; msgtype=response".to_owned()),
                _ => record.content_type().map(|kind| kind.into_owned()),
            },
            fields,
            payload: match (record.kind(), head) {
                (RecordKind::Response, Some(head)) => Payload::Behind(head as u64),
                (RecordKind::Response | RecordKind::Resource, None) => Payload::Block,
                _ => Payload::None,
            },
        }
    }

    fn write(&self, block: &mut File, out: &mut dyn Write) -> Result<(), Trouble> {
        block.seek(SeekFrom::Start(0))?;
        let fields: Vec<(&str, &str)> = self
            .fields
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let record = NewRecord {
            kind: self.kind,
            id: &self.id,
            date: &self.date,
            target_uri: self.uri.as_deref(),
            content_type: self.content_type.as_deref(),
            fields: &fields,
            payload: self.payload,
        };
        let mut writer = WarcWriter::new(out, LEVEL);
        let written = writer.write_from(&record, block);
        written
            .map(drop)
            .map_err(|error| Trouble::new(Exit::Machine, error))
    }
}

fn unread(file: &SelectedFile, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(Exit::Machine, format!("{}: {error}", file.name))
}

fn copy(from: &mut File, (offset, length): (u64, u64), out: &mut dyn Write) -> Result<(), Trouble> {
    from.seek(SeekFrom::Start(offset))?;
    let copied = io::copy(&mut from.take(length), out)?;
    match copied == length {
        true => Ok(()),
        false => Err(Trouble::new(
            Exit::Machine,
            "the file became shorter while it was read",
        )),
    }
}

/// Returns the date of a record as WARC has it: as it stands, where that is one.
fn date_of(record: &Record<'_, File>) -> String {
    let time = record.capture_time();
    let digits = time.map_or_else(
        |_| "19700101000000".to_owned(),
        |time| time.as_str().to_owned(),
    );
    match record.text("WARC-Date") {
        Some(date) if date.len() >= 20 && date.ends_with('Z') => date.into_owned(),
        _ => iso_of(&digits),
    }
}

/// Returns the time of 14 digits as RFC 3339 has it.
pub(crate) fn iso_of(digits: &str) -> String {
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("00");
    format!(
        "{}-{}-{}T{}:{}:{}Z",
        digits.get(..4).unwrap_or("1970"),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    )
}

/// Returns a UUID of version 8 (RFC 9562) that follows from some words.
fn id_of(words: &str) -> String {
    let hex = ecluse_spool::digest(words.as_bytes());
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..15],
        &hex[15..18],
        &hex[18..30]
    )
}
