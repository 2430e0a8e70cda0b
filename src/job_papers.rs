//! The papers of a crawl job, taken out of its metadata file: order, seeds, reports and logs, and how the job was.
//!
//! The directory of a finished job comes back with what people and `ecluse jobs` read in it; the frontier does not, and nobody
//! needs it any more. A metadata file of another crawler has no order of ours: it makes no job.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ecluse_crawl::{JobState, JobStatus, STATUS_FILE};
use ecluse_holding::{is_packing_list, open_plain, read_packing_list};
use ecluse_manifest::PackageRow;
use ecluse_warc::{ReaderLimits, RecordKind, WarcReader};
use serde_json::Value;

/// The order as it came: the first of the papers.
const GIVEN: &str = "order-given.toml";
/// The order in force, once it was changed.
const ORDER: &str = "order.toml";
/// The report that the status is read from.
const REPORT: &str = "crawl-report.json";
/// How a job ends that has fetched everything.
const FINISHED: &str = "finished";
/// A report is no longer.
const REPORT_BYTES: u64 = 16 << 20;

/// Returns the name of a job's directory.
pub(crate) fn directory_name(row: &PackageRow) -> String {
    format!("{}-{}", row.job, row.harvest)
}

/// Takes the papers of a job out of its metadata file into `jobs/NAME`. A job that is there stays as it is.
///
/// # Errors
/// One line that says what could not be done.
pub(crate) fn restore(metadata: &Path, jobs: &Path, name: &str) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("{name:?} is no name of a job"));
    }
    let directory = jobs.join(name);
    if directory.join(STATUS_FILE).exists() {
        return Ok(());
    }
    let source = open_plain(metadata).map_err(|error| told(&error))?;
    let mut reader = WarcReader::seekable(source, ReaderLimits::default());
    let mut papers = Papers {
        directory,
        is_ours: false,
        made: BTreeSet::new(),
        status: JobStatus::default(),
    };
    while let Some(mut record) = reader.next().map_err(|error| told(&error))? {
        let Some(uri) = record.target_uri().map(|uri| uri.into_owned()) else {
            continue;
        };
        if record.kind() != RecordKind::Resource {
            continue;
        }
        if is_packing_list(&uri) {
            let list = read_packing_list(&mut record).map_err(|error| told(&error))?;
            papers.status.files = list.count;
            papers.status.file_bytes = list.files.iter().filter_map(|file| file.bytes).sum();
            continue;
        }
        let Some((part, paper)) = paper_of(&uri) else {
            continue;
        };
        papers.take(part, &paper, &mut record)?;
    }
    papers.finish()
}

/// Papers on their way back.
struct Papers {
    directory: PathBuf,
    /// An order of ours was met.
    is_ours: bool,
    made: BTreeSet<PathBuf>,
    status: JobStatus,
}

impl Papers {
    fn take(&mut self, part: &str, paper: &str, source: &mut dyn Read) -> Result<(), String> {
        let told = |error: io::Error| format!("cannot write {paper}: {error}");
        self.is_ours |= part == "setup" && paper == GIVEN;
        if !self.is_ours {
            return Ok(());
        }
        let folder = match part {
            "setup" if [GIVEN, ORDER].contains(&paper) => self.directory.clone(),
            "setup" => self.directory.join("seeds"),
            part => self.directory.join(part),
        };
        if self.made.insert(folder.clone()) {
            fs::create_dir_all(&folder).map_err(told)?;
        }
        let mut known = Vec::new();
        let path = folder.join(paper);
        let mut source: Box<dyn Read + '_> = match part == "reports" && paper == REPORT {
            true => {
                let read = source.take(REPORT_BYTES).read_to_end(&mut known);
                read.map_err(told)?;
                self.read_report(&known);
                Box::new(known.as_slice())
            }
            false => Box::new(source),
        };
        match crate::rebuild_from::write_new(&path, &mut source) {
            // From before a kill.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            written => written.map_err(told),
        }
    }

    /// Takes from the report what `status.json` said at the end.
    fn read_report(&mut self, report: &[u8]) {
        let Ok(report) = serde_json::from_slice::<Value>(report) else {
            return;
        };
        let at = |path: &str| report.pointer(path).cloned().unwrap_or_default();
        let text = |path: &str| at(path).as_str().unwrap_or_default().to_owned();
        let number = |path: &str| at(path).as_u64().unwrap_or(0);
        let how = text("/job/how");
        self.status = JobStatus {
            job: text("/job/job"),
            harvest: text("/job/harvest"),
            why: (how != FINISHED && !how.is_empty()).then_some(how),
            begun: text("/begun"),
            updated: text("/ended"),
            seconds: number("/job/busy-ms") as f64 / 1000.0,
            known: number("/job/known"),
            queued: number("/job/queued"),
            done: number("/totals/fetched"),
            failed: number("/totals/failed") + number("/totals/disregarded"),
            forbidden: number("/totals/forbidden"),
            captures: number("/totals/novel/urls"),
            revisits: number("/totals/duplicate/urls") + number("/totals/not-modified/urls"),
            bytes: number("/totals/wire-bytes"),
            ..self.status.clone()
        };
    }

    /// The status comes last: a job without one is no job yet.
    fn finish(mut self) -> Result<(), String> {
        if !self.is_ours {
            return Ok(());
        }
        self.status.state = JobState::Finished;
        let text = serde_json::to_vec_pretty(&self.status).map_err(|error| error.to_string())?;
        let path = self.directory.join(STATUS_FILE);
        crate::rebuild_from::write_new(&path, &mut text.as_slice())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Returns the part and the name of a paper: those of `metadata://ORG/crawl/PART/NAME?…`.
fn paper_of(uri: &str) -> Option<(&'static str, String)> {
    let path = uri.strip_prefix("metadata://")?.split('?').next()?;
    let (_, rest) = path.split_once("/crawl/")?;
    let (part, name) = rest.split_once('/')?;
    let part = ["setup", "reports", "logs"]
        .into_iter()
        .find(|known| *known == part)?;
    let name = unescaped(name)?;
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    is_plain.then_some((part, name))
}

/// Undoes `%XX`; none for what is no UTF-8 then.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let code = [rest.next()?, rest.next()?];
        let code = std::str::from_utf8(&code).ok()?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_have_a_part_and_a_plain_name() {
        let of = |uri: &str| paper_of(uri).map(|(part, name)| format!("{part} {name}"));
        let good = "metadata://a.example/crawl/logs/crawl.log?jobid=1";
        assert_eq!(of(good).as_deref(), Some("logs crawl.log"));
        let odd = "metadata://a/crawl/setup/seeds%20of%C3%A9.txt?x";
        assert_eq!(of(odd).as_deref(), Some("setup seeds ofé.txt"));
        for bad in [
            "http://a/crawl/logs/crawl.log",
            "metadata://a/crawl/other/x",
            "metadata://a/crawl/logs/..%2F..%2Fetc",
            "metadata://a/crawl/logs/.hidden",
            "metadata://a/crawl/logs/",
            "metadata://a/crawl/logs/%zz",
            "metadata://a/crawl/logs/%ff",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
