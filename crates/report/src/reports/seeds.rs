//! seeds-report: what became of each seed.
//!
//! Heritrix's order: never tried, then failures, then answers, each from the largest code to the smallest. Too many to be
//! sorted, they are written as they come.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ReportSource;
use super::hosts::{AS_KEPT, SORTED_HOSTS};
use crate::escape::url;
use crate::report_file::{JsonList, ReportFile};
use crate::seed_tally::SeedTally;

/// What the other reports want to know of the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeedsSummary {
    pub(crate) crawled: u64,
    pub(crate) uncrawled: u64,
}

pub(crate) fn write(
    dir: &Path,
    source: &mut dyn ReportSource,
    paths: &mut Vec<PathBuf>,
) -> io::Result<SeedsSummary> {
    let mut out = Reports::create(dir)?;
    let mut waiting = Some(Vec::new());
    let mut failed = None;
    source.seeds(&mut |seed| {
        if failed.is_none() {
            failed = take(&mut out, &mut waiting, seed).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let is_sorted = waiting.is_some();
    if let Some(mut seeds) = waiting {
        seeds.sort_by_key(|seed| (rank(seed.status), Reverse(seed.status)));
        release(&mut out, seeds)?;
    }
    paths.push(out.text.finish()?);
    let order = if is_sorted { "status" } else { AS_KEPT };
    paths.push(out.json.finish(order)?);
    Ok(out.summary)
}

fn take(
    out: &mut Reports,
    waiting: &mut Option<Vec<SeedTally>>,
    seed: SeedTally,
) -> io::Result<()> {
    match waiting {
        None => return out.seed(&seed),
        Some(seeds) => seeds.push(seed),
    }
    if waiting
        .as_ref()
        .is_some_and(|seeds| seeds.len() > SORTED_HOSTS)
        && let Some(seeds) = waiting.take()
    {
        release(out, seeds)?;
    }
    Ok(())
}

fn release(out: &mut Reports, seeds: Vec<SeedTally>) -> io::Result<()> {
    seeds.iter().try_for_each(|seed| out.seed(seed))
}

fn rank(status: i32) -> u8 {
    match status {
        0 => 0,
        ..0 => 1,
        1.. => 2,
    }
}

struct Reports {
    text: ReportFile,
    json: JsonList,
    summary: SeedsSummary,
}

/// An item of seeds-report.json.
#[derive(Serialize)]
struct SeedRow<'a> {
    status: &'static str,
    code: i32,
    seed: &'a str,
    redirect: Option<&'a str>,
    tag: &'a str,
}

impl Reports {
    fn create(dir: &Path) -> io::Result<Self> {
        let mut text = ReportFile::create(dir, "seeds-report.txt")?;
        text.write_all(b"[code] [status] [seed] [redirect]\n")?;
        Ok(Self {
            text,
            json: JsonList::create(dir, "seeds-report.json", "seeds")?,
            summary: SeedsSummary::default(),
        })
    }

    fn seed(&mut self, seed: &SeedTally) -> io::Result<()> {
        if seed.is_crawled() {
            self.summary.crawled += 1;
        } else {
            self.summary.uncrawled += 1;
        }
        write!(
            self.text,
            "{} {} {}",
            seed.status,
            seed.verdict(),
            url(&seed.url)
        )?;
        if let Some(redirect) = &seed.redirect {
            write!(self.text, " {}", url(redirect))?;
        }
        writeln!(self.text)?;
        self.json.item(&SeedRow {
            status: seed.verdict(),
            code: seed.status,
            seed: &seed.url,
            redirect: seed.redirect.as_deref(),
            tag: &seed.tag,
        })
    }
}
