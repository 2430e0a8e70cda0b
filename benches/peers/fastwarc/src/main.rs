//! Indexes (W)ARC files with the `fastwarc` and `surt-rs` crates, as a peer for the benchmark: sorted CDXJ lines.
//!
//! It does what these crates offer and no more: digests are those of the header, damage ends the file, and keys are
//! `surt-rs`'s. Quirks mode is on, without which files with LF-only HTTP headers cannot be read.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};

use fastwarc::warc::iter::{ArchiveIterator, ArchiveIteratorOptions};
use fastwarc::warc::record::{SharedWarcRecord, WarcRecord, WarcRecordType};

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = Vec::new();
    for path in std::env::args().skip(1) {
        index(&path, &mut lines)?;
    }
    lines.sort_unstable();
    lines.dedup();
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    for line in &lines {
        out.write_all(line.as_bytes())?;
    }
    Ok(out.flush()?)
}

fn index(path: &str, lines: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = std::fs::metadata(path)?.len();
    let options = ArchiveIteratorOptions {
        quirks_mode: true,
        ..ArchiveIteratorOptions::default()
    };
    // The length of a record is known when the next one starts.
    let mut open: Option<(u64, String)> = None;
    for record in ArchiveIterator::from_path_with_options(path, options)? {
        let record = record?;
        let (offset, line) = record.with_mut(|record| (record.stream_pos(), begin(record)));
        close(open.take(), offset, name, lines);
        open = line.map(|line| (offset, line));
    }
    close(open, end, name, lines);
    Ok(())
}

/// Returns the line up to the digest, of a record that has one.
fn begin(record: &mut WarcRecord) -> Option<String> {
    let kind = record.record_type();
    let headers = record.headers();
    let content_type = headers.get("Content-Type");
    let mime = match kind {
        WarcRecordType::Response => record.http_content_type(),
        WarcRecordType::Revisit => Some("warc/revisit".to_owned()),
        WarcRecordType::Resource | WarcRecordType::Metadata => {
            if content_type.as_deref() == Some("application/warc-fields") {
                return None;
            }
            content_type.map(|value| value.split(';').next().unwrap_or_default().to_owned())
        }
        _ => return None,
    };
    let url = headers.get("WARC-Target-URI")?;
    let url = url.trim_start_matches('<').trim_end_matches('>');
    let date = headers.get("WARC-Date")?;
    let time: String = date.chars().filter(char::is_ascii_digit).take(14).collect();
    let key = surt_rs::generate_surt(url).unwrap_or_else(|_| url.to_owned());
    let mut line = String::with_capacity(key.len() + url.len() + 200);
    let _ = write!(line, "{key} {time} {{\"url\": {url:?}");
    if let Some(mime) = mime {
        let _ = write!(line, ", \"mime\": {mime:?}");
    }
    if let Some(status) = record.http_headers().and_then(|head| head.status_code()) {
        let _ = write!(line, ", \"status\": \"{status}\"");
    }
    if let Some(digest) = headers.get("WARC-Payload-Digest") {
        let _ = write!(line, ", \"digest\": {digest:?}");
    }
    Some(line)
}

fn close(open: Option<(u64, String)>, end: u64, name: &str, lines: &mut Vec<String>) {
    if let Some((offset, mut line)) = open {
        let length = end - offset;
        let _ = writeln!(
            line,
            ", \"length\": \"{length}\", \"offset\": \"{offset}\", \"filename\": {name:?}}}"
        );
        lines.push(line);
    }
}
