//! crawl-report: the job on one page.
//!
//! First what Heritrix writes, line by line; behind it, in the same manner, what else is known.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::hosts::HostsSummary;
use super::seeds::SeedsSummary;
use crate::escape::phrase;
use crate::figures::{decimal, duration, per_second, size};
use crate::job::JobFacts;
use crate::report_file::{write_json, write_text};
use crate::tally::{JobTally, Totals};

/// The content of crawl-report.json.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CrawlReport<'a> {
    job: &'a JobFacts,
    begun: String,
    ended: String,
    first_fetch: Option<String>,
    last_fetch: Option<String>,
    seeds_crawled: u64,
    seeds_uncrawled: u64,
    hosts_visited: u64,
    hosts_sorted: bool,
    totals: &'a Totals,
    bytes: u64,
    urls_per_second: f64,
    kib_per_second: f64,
}

pub(crate) fn write(
    dir: &Path,
    facts: &JobFacts,
    tally: &JobTally,
    hosts: &HostsSummary,
    seeds: &SeedsSummary,
    paths: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let report = CrawlReport {
        job: facts,
        begun: facts.begun.iso(),
        ended: facts.ended.iso(),
        first_fetch: tally.first.map(|moment| moment.iso()),
        last_fetch: tally.last.map(|moment| moment.iso()),
        seeds_crawled: seeds.crawled,
        // A seed that was never tried may be known by the count alone.
        seeds_uncrawled: seeds
            .uncrawled
            .max(facts.seeds.saturating_sub(seeds.crawled)),
        hosts_visited: hosts.visited,
        hosts_sorted: hosts.is_sorted,
        totals: &tally.totals,
        bytes: tally.totals.bytes(),
        urls_per_second: per_second(tally.totals.fetched as f64, facts.busy_ms),
        kib_per_second: per_second(tally.totals.bytes() as f64 / 1024.0, facts.busy_ms),
    };
    let mut text = String::new();
    put_heritrix(&mut text, &report).map_err(io::Error::other)?;
    put_rest(&mut text, &report).map_err(io::Error::other)?;
    paths.push(write_text(dir, "crawl-report.txt", &text)?);
    paths.push(write_json(dir, "crawl-report.json", &report)?);
    Ok(())
}

// Blanks behind brackets are Heritrix's, and so is what is left out when there is none of it.
fn put_heritrix(out: &mut String, report: &CrawlReport<'_>) -> std::fmt::Result {
    let Totals {
        urls,
        fetched,
        failed,
        forbidden,
        disregarded,
        novel,
        duplicate,
        not_modified,
        wire_bytes: _,
    } = *report.totals;
    writeln!(out, "crawl name: {}", phrase(&report.job.job))?;
    writeln!(out, "crawl status: {}", phrase(&report.job.how))?;
    writeln!(out, "duration: {}\n", duration(report.job.busy_ms))?;
    writeln!(out, "seeds crawled: {}", report.seeds_crawled)?;
    writeln!(out, "seeds uncrawled: {}\n", report.seeds_uncrawled)?;
    writeln!(out, "hosts visited: {}\n", report.hosts_visited)?;
    writeln!(out, "URIs processed: {urls}")?;
    writeln!(out, "URI successes: {fetched}")?;
    writeln!(out, "URI failures: {failed}")?;
    writeln!(
        out,
        "URI disregards: {}\n",
        disregarded.saturating_add(forbidden)
    )?;
    writeln!(out, "novel URIs: {}", novel.urls)?;
    if duplicate.urls > 0 {
        writeln!(out, "duplicate-by-hash URIs: {}", duplicate.urls)?;
    }
    if not_modified.urls > 0 {
        writeln!(out, "not-modified URIs: {}", not_modified.urls)?;
    }
    writeln!(
        out,
        "\ntotal crawled bytes: {} ({}) ",
        report.bytes,
        size(report.bytes)
    )?;
    writeln!(
        out,
        "novel crawled bytes: {} ({})",
        novel.bytes,
        size(novel.bytes)
    )?;
    for (name, share) in [
        ("duplicate-by-hash", duplicate),
        ("not-modified", not_modified),
    ] {
        if share.urls > 0 {
            let bytes = share.bytes;
            writeln!(out, "{name} crawled bytes: {bytes} ({}) ", size(bytes))?;
        }
    }
    writeln!(out, "\nURIs/sec: {}", decimal(report.urls_per_second))?;
    writeln!(out, "KB/sec: {}", report.kib_per_second as u64)
}

fn put_rest(out: &mut String, report: &CrawlReport<'_>) -> std::fmt::Result {
    let job = report.job;
    out.push('\n');
    for (name, value) in [
        ("harvest", job.harvest.as_str()),
        ("description", &job.description),
        ("begun", &report.begun),
        ("ended", &report.ended),
        (
            "first fetch",
            report.first_fetch.as_deref().unwrap_or_default(),
        ),
        (
            "last fetch",
            report.last_fetch.as_deref().unwrap_or_default(),
        ),
        ("user agent", &job.user_agent),
        ("contact", &job.contact),
        ("operator", &job.operator),
        ("machine", &job.host),
        ("software", &job.software),
        ("robots", &job.robots),
    ] {
        if !value.trim().is_empty() {
            writeln!(out, "{name}: {}", phrase(value))?;
        }
    }
    writeln!(out, "\nrobots-forbidden URIs: {}", report.totals.forbidden)?;
    writeln!(out, "wire bytes: {}", report.totals.wire_bytes)?;
    writeln!(out, "URIs known: {}", job.known)?;
    writeln!(out, "URIs queued: {}", job.queued)?;
    if !report.hosts_sorted {
        writeln!(out, "hosts are not sorted: too many")?;
    }
    writeln!(out, "retired queues: {}", job.retired_queues.len())?;
    for queue in &job.retired_queues {
        writeln!(out, " {}", phrase(queue))?;
    }
    Ok(())
}
