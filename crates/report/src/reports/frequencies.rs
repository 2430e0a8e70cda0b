//! mimetype-report and responsecode-report: the tables of a tally, most first.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::hosts::BY_URLS;
use crate::escape::word;
use crate::report_file::{JsonList, ReportFile};
use crate::tally::{JobTally, OTHER, Share};

pub(crate) fn write(dir: &Path, tally: &JobTally, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    write_types(dir, tally, paths)?;
    write_codes(dir, tally, paths)
}

/// An item of mimetype-report.json.
#[derive(Serialize)]
struct TypeRow<'a> {
    #[serde(rename = "mime-type")]
    mime: &'a str,
    urls: u64,
    bytes: u64,
}

fn write_types(dir: &Path, tally: &JobTally, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut rows: Vec<(&str, Share)> = tally
        .types
        .iter()
        .map(|(mime, share)| (&**mime, *share))
        .collect();
    rows.sort_by_key(|(mime, share)| (Reverse(share.urls), *mime));
    if tally.other_types.urls > 0 {
        rows.push((OTHER, tally.other_types));
    }
    let mut text = ReportFile::create(dir, "mimetype-report.txt")?;
    let mut json = JsonList::create(dir, "mimetype-report.json", "mime-types")?;
    text.write_all(b"[#urls] [#bytes] [mime-types]\n")?;
    for (mime, Share { urls, bytes }) in rows {
        writeln!(text, "{urls} {bytes} {}", word(mime))?;
        json.item(&TypeRow { mime, urls, bytes })?;
    }
    paths.push(text.finish()?);
    paths.push(json.finish(BY_URLS)?);
    Ok(())
}

/// An item of responsecode-report.json.
#[derive(Serialize)]
struct CodeRow<'a> {
    code: &'a str,
    urls: u64,
}

fn write_codes(dir: &Path, tally: &JobTally, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut rows: Vec<(i32, u64)> = tally
        .codes
        .iter()
        .map(|(code, urls)| (*code, *urls))
        .collect();
    rows.sort_by_key(|(code, urls)| (Reverse(*urls), *code));
    let mut rows: Vec<(String, u64)> = rows
        .into_iter()
        .map(|(code, urls)| (code.to_string(), urls))
        .collect();
    if tally.other_codes > 0 {
        rows.push((OTHER.to_owned(), tally.other_codes));
    }
    let mut text = ReportFile::create(dir, "responsecode-report.txt")?;
    let mut json = JsonList::create(dir, "responsecode-report.json", "codes")?;
    text.write_all(b"[#urls] [rescode]\n")?;
    for (code, urls) in &rows {
        writeln!(text, "{urls} {code}")?;
        json.item(&CodeRow { code, urls: *urls })?;
    }
    paths.push(text.finish()?);
    paths.push(json.finish(BY_URLS)?);
    Ok(())
}
