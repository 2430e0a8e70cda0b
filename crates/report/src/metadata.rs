//! The metadata WARC of a job: its setup, reports and logs as resource records.
//!
//! Names, URIs and order are NetarchiveSuite's. Identifiers and dates follow from the job, the entry and the job's end,
//! so that the file written twice has the same bytes. Files are streamed, never held in memory.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ecluse_warc::{NewRecord, Payload, RecordKind, Sha1Digest, WarcWriteError, WarcWriter};

use crate::job::JobFacts;

/// The name space of our identifiers: that of URLs in RFC 9562.
const NAME_SPACE: [u8; 16] = [
    0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8,
];

/// The part of the metadata an entry belongs to. They are written in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// What the job was to do.
    Setup,
    /// What it did.
    Reports,
    /// Every step.
    Logs,
}

impl Part {
    /// Returns its name in a URI.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Reports => "reports",
            Self::Logs => "logs",
        }
    }
}

/// What becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataEntry {
    /// Where it belongs.
    pub part: Part,
    /// Its name, the last step of its URI.
    pub name: String,
    /// Its type.
    pub media_type: String,
    /// What is in it.
    pub body: Body,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Those of a file.
    File(PathBuf),
}

impl MetadataEntry {
    /// Returns an entry of some bytes; its type follows from its name.
    #[must_use]
    pub fn of_bytes(part: Part, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            part,
            name: name.to_owned(),
            media_type: media_type(name).to_owned(),
            body: Body::Bytes(bytes.into()),
        }
    }

    /// Returns an entry of a file, under the file's name; its type follows from it.
    #[must_use]
    pub fn of_file(part: Part, path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            part,
            media_type: media_type(&name).to_owned(),
            name: name.into_owned(),
            body: Body::File(path.to_owned()),
        }
    }
}

/// Why the metadata could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Two entries would have the same URI.
    #[error("two entries named {part}/{name}")]
    Twice {
        /// The part of both.
        part: &'static str,
        /// The name of both.
        name: String,
    },
    /// A file could not be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record could not be written.
    #[error("cannot write the record of {name}")]
    Record {
        /// The entry, or the file's own name for its first record.
        name: String,
        /// What the writer said.
        source: WarcWriteError,
    },
}

/// Returns the name of a job's metadata file, `[prefix-]job-harvest-metadata-1.warc.gz`.
#[must_use]
pub fn metadata_name(facts: &JobFacts) -> String {
    let mut name = String::new();
    for part in [&facts.prefix, &facts.job, &facts.harvest] {
        if !part.is_empty() {
            let safe = |character: char| match character {
                '-' | '.' | '_' | '~' => character,
                _ if character.is_ascii_alphanumeric() => character,
                _ => '_',
            };
            name.extend(part.chars().map(safe));
            name.push('-');
        }
    }
    name + "metadata-1.warc.gz"
}

/// Returns the media type of a file of the job, told by its name.
#[must_use]
pub fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("json") => "application/json",
        Some("jsonl") => "application/x-ndjson",
        Some("xml" | "cxml") => "text/xml",
        Some("toml") => "application/toml",
        Some("tsv") => "text/tab-separated-values",
        Some("gz") => "application/gzip",
        Some("zst") => "application/zstd",
        _ => "text/plain",
    }
}

/// Writes the metadata of a job, under the name of an organisation: a warcinfo record, then the entries, by part.
///
/// The sink has still to be flushed and synced.
pub fn write_metadata<Sink: Write>(
    out: &mut WarcWriter<Sink>,
    org: &str,
    facts: &JobFacts,
    entries: &[MetadataEntry],
) -> Result<(), MetadataError> {
    let mut names = BTreeSet::new();
    for entry in entries {
        if !names.insert((entry.part, entry.name.as_str())) {
            return Err(MetadataError::Twice {
                part: entry.part.name(),
                name: entry.name.clone(),
            });
        }
    }
    let date = facts.ended.iso();
    let info = format!("<{}>", write_warcinfo(out, org, facts, &date)?);
    let mut fields = vec![("WARC-Warcinfo-ID", info.as_str())];
    fields.extend(
        facts
            .address
            .as_deref()
            .map(|address| ("WARC-IP-Address", address)),
    );
    let mut sorted: Vec<&MetadataEntry> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.part);
    for entry in sorted {
        let uri = entry_uri(org, facts, entry);
        let id = record_id(facts, &uri);
        let record = NewRecord {
            kind: RecordKind::Resource,
            id: &id,
            date: &date,
            target_uri: Some(&uri),
            content_type: Some(&entry.media_type),
            fields: &fields,
            payload: Payload::Block,
        };
        write_entry(out, &record, entry)?;
    }
    Ok(())
}

fn write_entry<Sink: Write>(
    out: &mut WarcWriter<Sink>,
    record: &NewRecord<'_>,
    entry: &MetadataEntry,
) -> Result<(), MetadataError> {
    let written = match &entry.body {
        Body::Bytes(bytes) => out.write(record, bytes),
        Body::File(path) => {
            let mut file = File::open(path).map_err(|source| MetadataError::Open {
                path: path.clone(),
                source,
            })?;
            out.write_from(record, &mut file)
        }
    };
    written.map(|_| ()).map_err(|source| MetadataError::Record {
        name: entry.name.clone(),
        source,
    })
}

/// Writes the first record, and returns its identifier.
fn write_warcinfo<Sink: Write>(
    out: &mut WarcWriter<Sink>,
    org: &str,
    facts: &JobFacts,
    date: &str,
) -> Result<String, MetadataError> {
    let file_name = metadata_name(facts);
    let id = record_id(facts, "warcinfo");
    let record = NewRecord {
        kind: RecordKind::Warcinfo,
        id: &id,
        date,
        target_uri: None,
        content_type: Some("application/warc-fields"),
        fields: &[("WARC-Filename", &file_name)],
        payload: Payload::None,
    };
    match out.write(&record, info_block(org, facts).as_bytes()) {
        Ok(_) => Ok(id),
        Err(source) => Err(MetadataError::Record {
            name: file_name,
            source,
        }),
    }
}

fn info_block(org: &str, facts: &JobFacts) -> String {
    let mut block = String::new();
    for (name, value) in [
        ("software", facts.software.as_str()),
        ("ip", facts.address.as_deref().unwrap_or_default()),
        ("hostname", &facts.host),
        ("format", "WARC File Format 1.1"),
        (
            "conformsTo",
            "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        ),
        ("isPartOf", &facts.job),
        ("description", &facts.description),
        ("operator", &facts.operator),
        ("publisher", org),
        ("http-header-user-agent", &facts.user_agent),
        ("http-header-from", &facts.contact),
        ("robots", &facts.robots),
        ("harvestInfo.jobId", &facts.job),
        ("harvestInfo.origHarvestDefinitionID", &facts.harvest),
        ("harvestInfo.harvestFilenamePrefix", &facts.prefix),
    ] {
        if !value.trim().is_empty() {
            write!(block, "{name}: {}\r\n", info_value(value)).expect("a String takes everything");
        }
    }
    if let Some(run) = facts.harvest_run {
        write!(block, "harvestInfo.harvestNum: {run}\r\n").expect("a String takes everything");
    }
    block
}

/// Returns a value that stays on its line; what is said in any language stays as it is said.
fn info_value(value: &str) -> String {
    let words = value.split(|character: char| character.is_whitespace() || character.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn entry_uri(org: &str, facts: &JobFacts, entry: &MetadataEntry) -> String {
    let mut uri = format!(
        "metadata://{}/crawl/{}/{}?",
        uri_part(org),
        entry.part.name(),
        uri_part(&entry.name)
    );
    if !facts.software.is_empty() {
        write!(uri, "software={}&", uri_part(&facts.software)).expect("a String takes everything");
    }
    write!(uri, "harvestid={}", uri_part(&facts.harvest)).expect("a String takes everything");
    if let Some(run) = facts.harvest_run {
        write!(uri, "&harvestnum={run}").expect("a String takes everything");
    }
    write!(uri, "&jobid={}", uri_part(&facts.job)).expect("a String takes everything");
    uri
}

/// Escapes everything but what RFC 3986 leaves unreserved.
fn uri_part(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    out
}

/// Returns an identifier that follows from the job, its end and what is named: a UUID of version 5.
fn record_id(facts: &JobFacts, what: &str) -> String {
    let mut named = NAME_SPACE.to_vec();
    named.extend_from_slice(metadata_name(facts).as_bytes());
    named.extend_from_slice(format!("\n{}\n{what}", facts.ended).as_bytes());
    let digest = Sha1Digest::of(&named);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.bytes()[..16]);
    bytes[6] = 0x50 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    let number = u128::from_be_bytes(bytes);
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        number >> 96,
        number >> 80 & 0xffff,
        number >> 64 & 0xffff,
        number >> 48 & 0xffff,
        number & 0xffff_ffff_ffff
    )
}
