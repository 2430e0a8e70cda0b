//! `ecluse show`: one capture as it was archived, its head and its body.
//!
//! Chunks and content encodings are undone unless the bytes themselves are asked for; a revisit is shown with the body that it
//! refers to. Nothing from the web reaches a terminal raw.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use ecluse_access::{
    IndexedCapture, RecordError, RecordFile, ResponseHead, body_of, decoded, head_of, open_whole,
    read_record,
};
use ecluse_cdx::{KeyRange, cdxj};
use ecluse_http::DecodedEnd;
use ecluse_manifest::{CopyKind, Manifest};
use ecluse_stage::Exit;
use ecluse_telemetry::printable;
use ecluse_warc::{HttpHead, Record, RecordKind};
use serde_json::json;

use crate::cli::ShowOptions;
use crate::context::{DriverContext, Trouble};
use crate::lookup::{self, key_of};
use crate::show;

/// More of a body is not shown on a terminal.
const ON_TERMINAL: u64 = 1 << 20;

pub(crate) fn show(context: &DriverContext, options: &ShowOptions) -> Result<ExitCode, Trouble> {
    let collection = options.collection.as_deref();
    let spots = spots(context, &options.url, collection)?;
    let at = options.at.as_deref().map(until).transpose()?;
    let Some(spot) = chosen(&spots, at.as_deref()) else {
        lookup::tell_none(context, &options.url, collection)?;
        return Ok(lookup::NONE_FOUND.into());
    };
    let mut file = open(context, spot)?;
    let mut record = read_record(&mut file, spot)?;
    let referred = match record.kind() == RecordKind::Revisit && !options.raw {
        true => referred(context, &record, &spots, spot, collection)?,
        false => None,
    };
    if context.json {
        return describe(context, &record, spot, referred.as_ref());
    }
    let mut whole = match &referred {
        Some(spot) => Some((open(context, spot)?, spot)),
        None => None,
    };
    let mut out = Out::of(options)?;
    if options.raw {
        io::copy(&mut record, &mut out)?;
        return out.finish(context);
    }
    let head = head_of(&record);
    if !head.is_made && options.output.is_none() {
        let bytes = record.block_start();
        out.write_all(bytes.get(..head.head_bytes).unwrap_or_default())?;
    }
    match &mut whole {
        Some((file, spot)) => {
            let mut record = read_record(file, spot)?;
            let head = head_of(&record);
            out.body(&mut record, &head)?;
        }
        None if record.kind() == RecordKind::Revisit => {
            return Err(Trouble::new(
                Exit::Held,
                "a capture that was unchanged, and what it refers to is not in the index",
            ));
        }
        None => out.body(&mut record, &head)?,
    }
    out.finish(context)
}

/// Returns the captures of a URL, oldest first.
fn spots(
    context: &DriverContext,
    url: &str,
    collection: Option<&str>,
) -> Result<Vec<IndexedCapture>, Trouble> {
    let range = KeyRange::exact(key_of(url)?.as_bytes());
    let mut spots = Vec::new();
    lookup::each_line(context, collection, range, &mut |line| {
        if let Ok(capture) = cdxj::parse(line) {
            spots.extend(IndexedCapture::of(&capture));
        }
        true
    })?;
    Ok(spots)
}

/// Reads a date, or its beginning, as the last moment that it may mean: `2026-01` is the end of that January.
fn until(date: &str) -> Result<String, Trouble> {
    let digits: String = date.chars().filter(char::is_ascii_digit).collect();
    let fits = (4..=17).contains(&digits.len())
        && date
            .chars()
            .all(|c| c.is_ascii_digit() || "-:.TZ ".contains(c));
    match fits {
        true => Ok(format!("{digits:9<17}")),
        false => Err(Trouble::usage(format!(
            "{date:?} is no date: 2026, 2026-01-31 or 20260131120000"
        ))),
    }
}

/// Returns the last capture until then, else the first after it; the last of all without a date.
fn chosen<'s>(spots: &'s [IndexedCapture], until: Option<&str>) -> Option<&'s IndexedCapture> {
    let Some(until) = until else {
        return spots.last();
    };
    let before = spots.iter().rev().find(|spot| spot.time.as_str() <= until);
    before.or_else(|| spots.first())
}

/// Opens the file of a capture at its record: a stored copy, a backup on this machine, or the file as it was harvested. The
/// first is taken in which the record is whole and the one that the index means.
fn open(context: &DriverContext, spot: &IndexedCapture) -> Result<RecordFile, Trouble> {
    let mut places = Vec::new();
    let manifest = crate::verify::manifest_path(context);
    if manifest.exists() {
        let manifest = Manifest::open_to_read(&manifest, &context.root)?;
        let mut copies = manifest.copies(&spot.filename)?;
        copies.sort_by_key(|copy| copy.kind != CopyKind::Stored);
        places.extend(copies.into_iter().map(|copy| context.root.join(copy.place)));
    }
    let harvested = context.root.join(context.pipeline.archive.crawled());
    places.push(harvested.join(&spot.filename));
    Ok(open_whole(&places, spot)?)
}

impl From<RecordError> for Trouble {
    fn from(error: RecordError) -> Self {
        let exit = match &error {
            RecordError::NoCopy(_) => Exit::Machine,
            RecordError::Read { source, .. } if source.raw_os_error().is_some() => Exit::Machine,
            // The disk is well: what lies there is no record.
            _ => Exit::Held,
        };
        Self::new(exit, error)
    }
}

/// Finds what a revisit refers to: by what it says, else the first capture of the URL with the same payload.
fn referred<Source: Read>(
    context: &DriverContext,
    record: &Record<'_, Source>,
    own: &[IndexedCapture],
    spot: &IndexedCapture,
    collection: Option<&str>,
) -> Result<Option<IndexedCapture>, Trouble> {
    let is_whole =
        |other: &IndexedCapture| other.mime != "warc/revisit" && other.digest == spot.digest;
    let uri = record.text("WARC-Refers-To-Target-URI");
    let uri = uri
        .as_deref()
        .map(|uri| uri.trim_matches(['<', '>']).to_owned());
    let date = record.text("WARC-Refers-To-Date");
    let digits = date.map(|date| {
        date.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    });
    let mut others = match &uri {
        Some(uri) => spots(context, uri, collection)?,
        None => Vec::new(),
    };
    let by_date = others.iter().position(|other| {
        let date = digits.as_deref().unwrap_or_default();
        is_whole(other) && date.get(..14) == other.time.get(..14)
    });
    if let Some(at) = by_date.or_else(|| others.iter().position(is_whole)) {
        return Ok(Some(others.swap_remove(at)));
    }
    let first = own.iter().find(|other| is_whole(other));
    Ok(first.cloned())
}

fn describe<Source: Read>(
    context: &DriverContext,
    record: &Record<'_, Source>,
    spot: &IndexedCapture,
    referred: Option<&IndexedCapture>,
) -> Result<ExitCode, Trouble> {
    let http = record.http();
    let headers: Vec<_> = http
        .iter()
        .flat_map(HttpHead::fields)
        .map(|field| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            [text(field.name), text(&field.value())]
        })
        .collect();
    context.print_json(json!({
        "url": record.target_uri(),
        "timestamp": spot.time,
        "status": http.as_ref().and_then(HttpHead::status),
        "headers": headers,
        "digest": spot.digest,
        "file": spot.filename,
        "offset": spot.offset,
        "refers_to": referred.map(|spot| json!({
            "timestamp": spot.time, "file": spot.filename, "offset": spot.offset,
        })),
    }))?;
    Ok(Exit::Done.into())
}

/// Where a capture goes: a file, a pipe, or a terminal.
struct Out {
    file: Option<(PathBuf, File)>,
    on_terminal: bool,
    bytes: u64,
    trouble: Option<String>,
}

impl Out {
    fn of(options: &ShowOptions) -> Result<Self, Trouble> {
        let file = match &options.output {
            Some(path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(path);
                let file = file.map_err(|error| {
                    Trouble::usage(format!("cannot write {}: {error}", path.display()))
                })?;
                Some((path.clone(), file))
            }
            None => None,
        };
        Ok(Self {
            on_terminal: file.is_none() && io::stdout().is_terminal(),
            file,
            bytes: 0,
            trouble: None,
        })
    }

    fn body<Source: Read>(
        &mut self,
        record: &mut Record<'_, Source>,
        head: &ResponseHead,
    ) -> Result<(), Trouble> {
        if head.is_made {
            return Ok(io::copy(record, self).map(drop)?);
        }
        let mime = head.text("Content-Type").unwrap_or_default();
        if self.on_terminal && !is_text(&mime) {
            let mime = printable(mime.as_bytes());
            self.trouble = Some(format!("the body is {mime}: -o FILE saves it"));
            return Ok(());
        }
        let mut body = decoded(body_of(record, head)?, &head.codings(), u64::MAX);
        match self.on_terminal {
            true => {
                let shown = io::copy(&mut body.by_ref().take(ON_TERMINAL), self)?;
                if shown == ON_TERMINAL {
                    self.trouble = Some("there is more of it: -o FILE saves it".to_owned());
                }
            }
            false => {
                io::copy(&mut body, self)?;
            }
        }
        if let Some(end) = body.end()
            && !matches!(end, DecodedEnd::Whole)
        {
            self.trouble = Some(format!(
                "its encoding cannot be undone to the end ({end:?}): --raw gives the bytes as they were archived"
            ));
        }
        Ok(())
    }

    fn finish(mut self, context: &DriverContext) -> Result<ExitCode, Trouble> {
        self.flush()?;
        if let Some(trouble) = &self.trouble {
            eprintln!("ecluse: {trouble}");
        }
        if let Some((path, file)) = &self.file {
            file.sync_all()?;
            context.say(&format!(
                "{} in {}",
                show::bytes(self.bytes),
                path.display()
            ))?;
        }
        Ok(Exit::Done.into())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        match &mut self.file {
            Some((_, file)) => file.write_all(bytes)?,
            None if self.on_terminal => {
                let mut stdout = io::stdout().lock();
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    let text = line.strip_suffix(b"\n");
                    let text = text.map(|text| text.strip_suffix(b"\r").unwrap_or(text));
                    stdout.write_all(printable(text.unwrap_or(line)).as_bytes())?;
                    stdout.write_all(if text.is_some() { b"\n" } else { b"" })?;
                }
            }
            None => io::stdout().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

fn is_text(mime: &str) -> bool {
    let mime = mime.to_ascii_lowercase();
    mime.is_empty()
        || mime.starts_with("text/")
        || ["json", "xml", "javascript", "urlencoded"]
            .iter()
            .any(|kind| mime.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_means_its_end() {
        let spot = |time: &str| {
            let line =
                format!("org,example)/ {time} {{\"offset\": \"0\", \"filename\": \"a.warc.gz\"}}");
            IndexedCapture::of(&cdxj::parse(line.as_bytes()).unwrap()).unwrap()
        };
        let spots = ["20250601000000", "20260101000000", "20260301000000"].map(spot);
        let at = |date: &str| {
            let until = until(date).unwrap();
            chosen(&spots, Some(&until)).unwrap().time.clone()
        };
        assert_eq!(at("2026-01"), "20260101000000");
        assert_eq!(at("2025"), "20250601000000");
        assert_eq!(at("2020-01-01"), "20250601000000", "the first there is");
        assert_eq!(at("20990101000000"), "20260301000000");
        assert_eq!(chosen(&spots, None).unwrap().time, "20260301000000");
        assert!(until("yesterday").is_err() && until("20").is_err());
    }
}
