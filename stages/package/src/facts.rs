//! What the templates of a profile are told of a package; `docs/formats/package.md` lists the names.

use std::collections::BTreeMap;
use std::fmt::Write;

use ecluse_config::Site;
use serde::{Deserialize, Serialize};

use crate::ark::Minter;
use crate::events::{Agent, Event};
use crate::finished_job::JobClosing;
use crate::gather::{GatheredFile, GatheredJob};
use crate::history::FileHistory;

/// Everything that is known of one part of a package.
#[derive(Debug, Serialize)]
pub(crate) struct PackageFacts {
    pub(crate) package: PartFacts,
    pub(crate) site: Site,
    pub(crate) job: JobFacts,
    pub(crate) harvest: HarvestFacts,
    pub(crate) files: Vec<FileFacts>,
    pub(crate) totals: Totals,
    pub(crate) events: Vec<Event>,
    pub(crate) agents: Vec<Agent>,
}

/// The part.
#[derive(Debug, Serialize)]
pub(crate) struct PartFacts {
    /// The job's identifier, with the number of the part where there are several.
    pub(crate) id: String,
    pub(crate) part: usize,
    pub(crate) parts: usize,
    /// Which supplement to the package of the job it is, from 1; 0 for the package itself.
    pub(crate) supplement: u64,
    /// When the last file of the job was ready: the same when the work is done again.
    pub(crate) created: String,
    pub(crate) version: String,
}

/// The job.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JobFacts {
    pub(crate) name: String,
    pub(crate) ark: String,
    pub(crate) channel: String,
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    pub(crate) closed: Option<JobClosing>,
}

/// The harvest it belongs to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HarvestFacts {
    pub(crate) name: String,
    pub(crate) ark: String,
}

/// An archive file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileFacts {
    /// An XML id.
    pub(crate) id: String,
    /// Its place in the order of the hand-over, from 1; the same in every part.
    pub(crate) order: usize,
    pub(crate) name: String,
    /// Its path below `data/`, and as a URI.
    pub(crate) path: String,
    pub(crate) href: String,
    pub(crate) role: &'static str,
    pub(crate) ark: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) sha512: String,
    pub(crate) media_type: &'static str,
    pub(crate) compression: Option<Format>,
    pub(crate) format: Format,
    pub(crate) captures: Option<u64>,
    pub(crate) damages: u64,
    pub(crate) seen: SeenFacts,
}

/// A file format.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    pub(crate) puid: Option<&'static str>,
}

/// What the index pass counted, as its receipt tells it; nothing where that is an older one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SeenFacts {
    pub(crate) records: u64,
    #[serde(alias = "block-bytes")]
    pub(crate) block_bytes: u64,
    pub(crate) hosts: u64,
    pub(crate) types: BTreeMap<String, u64>,
    pub(crate) mime: BTreeMap<String, u64>,
    pub(crate) formats: Vec<FoundFormat>,
    /// Of these, the media types as found.
    #[serde(skip_deserializing)]
    pub(crate) found: BTreeMap<String, u64>,
    pub(crate) status: BTreeMap<String, u64>,
    /// In the receipt 14 digits, for the templates as XML has it.
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
}

impl SeenFacts {
    /// Returns it as the templates are told of it.
    fn told(&self) -> Self {
        let mut found = BTreeMap::new();
        for format in self.formats.iter().filter(|format| format.found != "-") {
            *found.entry(format.found.clone()).or_default() += format.count;
        }
        Self {
            first: self.first.as_deref().and_then(iso),
            last: self.last.as_deref().and_then(iso),
            found,
            ..self.clone()
        }
    }
}

/// Payloads of one declared and one found format.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FoundFormat {
    pub(crate) declared: String,
    pub(crate) found: String,
    pub(crate) puid: Option<String>,
    pub(crate) count: u64,
    /// Which part they are of all that are declared so, in per cent with one decimal; in the totals only.
    #[serde(skip_deserializing, skip_serializing_if = "String::is_empty")]
    pub(crate) share: String,
}

/// The sums over the archive files.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) captures: u64,
    pub(crate) records: u64,
    pub(crate) types: BTreeMap<String, u64>,
    pub(crate) mime: BTreeMap<String, u64>,
    /// The most frequent of each declared type first.
    pub(crate) formats: Vec<FoundFormat>,
    pub(crate) status: BTreeMap<String, u64>,
}

impl Totals {
    pub(crate) fn of(files: &[FileFacts]) -> Self {
        let mut totals = Self::default();
        for file in files {
            totals.files += 1;
            totals.bytes += file.bytes;
            totals.captures += file.captures.unwrap_or(0);
            totals.records += file.seen.records;
            for (into, from) in [
                (&mut totals.types, &file.seen.types),
                (&mut totals.mime, &file.seen.mime),
                (&mut totals.status, &file.seen.status),
            ] {
                for (name, count) in from {
                    *into.entry(name.clone()).or_default() += count;
                }
            }
        }
        totals.formats = formats_in(files);
        totals
    }
}

fn formats_in(files: &[FileFacts]) -> Vec<FoundFormat> {
    let mut counts: BTreeMap<(&str, &str, Option<&str>), u64> = BTreeMap::new();
    let mut declared: BTreeMap<&str, u64> = BTreeMap::new();
    for format in files.iter().flat_map(|file| &file.seen.formats) {
        let key = (
            format.declared.as_str(),
            format.found.as_str(),
            format.puid.as_deref(),
        );
        *counts.entry(key).or_default() += format.count;
        *declared.entry(&format.declared).or_default() += format.count;
    }
    let counts = counts
        .into_iter()
        .map(|((name, found, puid), count)| FoundFormat {
            declared: name.to_owned(),
            found: found.to_owned(),
            puid: puid.map(str::to_owned),
            count,
            share: format!("{:.1}", count as f64 * 100.0 / declared[name].max(1) as f64),
        });
    let mut formats: Vec<FoundFormat> = counts.collect();
    formats.sort_by(|one, other| {
        let by_count = other.count.cmp(&one.count);
        one.declared.cmp(&other.declared).then(by_count)
    });
    formats
}

impl JobFacts {
    pub(crate) fn of(
        job: &GatheredJob,
        files: &[FileFacts],
        minter: &Minter,
        channel: &str,
    ) -> Self {
        let times = || files.iter().filter(|file| file.role == DATA);
        let first = times().filter_map(|file| file.seen.first.as_deref()).min();
        let last = times().filter_map(|file| file.seen.last.as_deref()).max();
        Self {
            name: job.name.job.clone(),
            ark: minter.mint("job", &name_of(job)).to_string(),
            channel: channel.to_owned(),
            first: first.map(str::to_owned),
            last: last.map(str::to_owned),
            closed: job.closed.clone(),
        }
    }
}

impl HarvestFacts {
    pub(crate) fn of(job: &GatheredJob, minter: &Minter) -> Self {
        let name = job.name.harvest.clone().unwrap_or_default();
        Self {
            ark: minter.mint("harvest", &name).to_string(),
            name,
        }
    }
}

/// What the job is called among all jobs.
pub(crate) fn name_of(job: &GatheredJob) -> String {
    let harvest = job.name.harvest.as_deref().unwrap_or_default();
    format!("{}\0{harvest}", job.name.job)
}

const DATA: &str = "data";
const METADATA: &str = "job metadata";

impl FileFacts {
    pub(crate) fn of(
        file: &GatheredFile,
        number: usize,
        sha512: String,
        archive: &str,
        history: &FileHistory,
        minter: &Minter,
    ) -> Self {
        let name = file.file.row.name.clone();
        let path = format!("{archive}/{name}");
        let (format, compression) = formats_of(&name);
        Self {
            id: format!("f{number}"),
            order: number + 1,
            href: uri_of(&path),
            path,
            role: if file.is_metadata { METADATA } else { DATA },
            // The name of an archive file is its own in the archive, its bytes are its own everywhere.
            ark: minter
                .mint("file", &format!("{name}\0{}", file.sha256))
                .to_string(),
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            sha512,
            media_type: compression
                .as_ref()
                .map_or(format.name, |format| format.name),
            compression,
            format,
            captures: file.file.row.captures,
            damages: file.file.row.damages.unwrap_or(0),
            seen: history.seen.told(),
            name,
        }
    }
}

/// Returns the format of an archive file and of what it is packed in, by its name, with their PRONOM ids.
fn formats_of(name: &str) -> (Format, Option<Format>) {
    let name = name.to_ascii_lowercase();
    let (stem, compression) = if let Some(stem) = name.strip_suffix(".gz") {
        let name = "application/gzip";
        (
            stem,
            Some(Format {
                name,
                puid: Some("x-fmt/266"),
            }),
        )
    } else if let Some(stem) = name.strip_suffix(".zst") {
        let name = "application/zstd";
        (stem, Some(Format { name, puid: None }))
    } else {
        (name.as_str(), None)
    };
    let format = if stem.ends_with(".arc") {
        Format {
            name: "application/x-ia-arc",
            puid: Some("x-fmt/219"),
        }
    } else {
        Format {
            name: "application/warc",
            puid: Some("fmt/289"),
        }
    };
    (format, compression)
}

/// Returns a path as a relative URI.
pub(crate) fn uri_of(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").expect("a String takes everything");
        }
    }
    uri
}

/// Returns the time of 14 digits as XML has it.
fn iso(digits: &str) -> Option<String> {
    let digits = digits
        .get(..14)
        .filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
    Some(format!(
        "{}-{}-{}T{}:{}:{}Z",
        &digits[..4],
        &digits[4..6],
        &digits[6..8],
        &digits[8..10],
        &digits[10..12],
        &digits[12..14]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FileFacts {
        fn empty() -> Self {
            let (format, compression) = formats_of("a.warc");
            Self {
                id: String::new(),
                order: 1,
                name: String::new(),
                path: String::new(),
                href: String::new(),
                role: DATA,
                ark: String::new(),
                bytes: 0,
                sha256: String::new(),
                sha512: String::new(),
                media_type: "",
                compression,
                format,
                captures: None,
                damages: 0,
                seen: SeenFacts::default(),
            }
        }
    }

    #[test]
    fn names_become_uris_and_formats() {
        assert_eq!(uri_of("data/a%b c@1:2.warc"), "data/a%25b%20c%401%3A2.warc");
        let (format, packed) = formats_of("A.ARC.GZ");
        assert_eq!(format.puid, Some("x-fmt/219"));
        assert_eq!(packed.unwrap().puid, Some("x-fmt/266"));
        assert!(formats_of("a.warc").1.is_none());
    }

    #[test]
    fn formats_are_shares_of_what_was_declared() {
        let of = |formats: &[(&str, &str, u64)]| FileFacts {
            seen: SeenFacts {
                formats: formats
                    .iter()
                    .map(|(declared, found, count)| FoundFormat {
                        declared: (*declared).to_owned(),
                        found: (*found).to_owned(),
                        count: *count,
                        ..FoundFormat::default()
                    })
                    .collect(),
                ..SeenFacts::default()
            },
            ..FileFacts::empty()
        };
        let files = [
            of(&[
                ("text/plain", "image/jpeg", 10),
                ("text/plain", "text/plain", 900),
            ]),
            of(&[
                ("text/plain", "image/jpeg", 8),
                ("text/plain", "text/plain", 82),
                ("image/gif", "image/gif", 3),
            ]),
        ];
        let formats = Totals::of(&files).formats.into_iter();
        let lines: Vec<String> = formats
            .map(|format| {
                format!(
                    "{} % of {} are {}",
                    format.share, format.declared, format.found
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                "100.0 % of image/gif are image/gif",
                "98.2 % of text/plain are text/plain",
                "1.8 % of text/plain are image/jpeg",
            ]
        );
    }

    #[test]
    fn times_are_those_of_xml() {
        assert_eq!(
            iso("20261116010203").as_deref(),
            Some("2026-11-16T01:02:03Z")
        );
        assert_eq!(iso("20261116"), None);
    }
}
