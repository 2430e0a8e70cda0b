//! hosts-report, source-report and host-status-report: all that is told of hosts, in one pass.
//!
//! Up to [`SORTED_HOSTS`] hosts are sorted by their URLs, most first. They wait as bytes, which are few. Beyond that, all
//! are written in the order they come in, and the JSON says so.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ReportSource;
use crate::escape::word;
use crate::host_tally::HostTally;
use crate::report_file::{JsonList, ReportFile};
use crate::tally::OTHER;

/// The most hosts, and the most pairs of source and host, that are sorted.
pub const SORTED_HOSTS: usize = 200_000;

/// The order of a list that was sorted.
pub(crate) const BY_URLS: &str = "urls";

/// The order of a list that was too long for it.
pub(crate) const AS_KEPT: &str = "as-kept";

/// What the other reports want to know of the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostsSummary {
    /// Hosts of which something is finished.
    pub(crate) visited: u64,
    /// Whether they were few enough to be sorted.
    pub(crate) is_sorted: bool,
}

pub(crate) fn write(
    dir: &Path,
    source: &mut dyn ReportSource,
    paths: &mut Vec<PathBuf>,
) -> io::Result<HostsSummary> {
    write_sorting(dir, source, SORTED_HOSTS, paths)
}

fn write_sorting(
    dir: &Path,
    source: &mut dyn ReportSource,
    room: usize,
    paths: &mut Vec<PathBuf>,
) -> io::Result<HostsSummary> {
    let mut out = Reports::create(dir, room)?;
    let mut waiting = Some(Vec::new());
    let mut failed = None;
    source.hosts(&mut |host| {
        if failed.is_none() {
            failed = take(&mut out, &mut waiting, room, host).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let is_sorted = waiting.is_some();
    if let Some(mut hosts) = waiting {
        hosts.sort();
        release(&mut out, hosts)?;
    }
    let visited = out.visited;
    out.finish(is_sorted, paths)?;
    Ok(HostsSummary { visited, is_sorted })
}

/// A host that waits to be sorted: its URLs, its name, and itself as bytes.
type Waiting = (Reverse<u64>, String, Vec<u8>);

fn take(
    out: &mut Reports,
    waiting: &mut Option<Vec<Waiting>>,
    room: usize,
    host: HostTally,
) -> io::Result<()> {
    match waiting {
        None => return out.host(&host),
        Some(hosts) => hosts.push((Reverse(host.urls), host.host.clone(), host.encode())),
    }
    if waiting.as_ref().is_some_and(|hosts| hosts.len() > room)
        && let Some(hosts) = waiting.take()
    {
        release(out, hosts)?;
    }
    Ok(())
}

fn release(out: &mut Reports, hosts: Vec<Waiting>) -> io::Result<()> {
    for (_, _, bytes) in hosts {
        out.host(&HostTally::decode(&bytes).map_err(io::Error::other)?)?;
    }
    Ok(())
}

/// The six files of the three reports.
struct Reports {
    hosts: ReportFile,
    hosts_json: JsonList,
    status: ReportFile,
    status_json: ReportFile,
    sources: Sources,
    visited: u64,
}

impl Reports {
    fn create(dir: &Path, room: usize) -> io::Result<Self> {
        let mut hosts = ReportFile::create(dir, "hosts-report.txt")?;
        hosts.write_all(
            b"[#urls] [#bytes] [host] [#robots] [#remaining] [#novel-urls] [#novel-bytes] [#dup-by-hash-urls] \
              [#dup-by-hash-bytes] [#not-modified-urls] [#not-modified-bytes]\n",
        )?;
        let mut status = ReportFile::create(dir, "host-status-report.tsv")?;
        status.write_all(b"host\tstatus\turls\n")?;
        Ok(Self {
            hosts,
            hosts_json: JsonList::create(dir, "hosts-report.json", "hosts")?,
            status,
            status_json: ReportFile::create(dir, "host-status-report.jsonl")?,
            sources: Sources::create(dir, room)?,
            visited: 0,
        })
    }

    fn host(&mut self, host: &HostTally) -> io::Result<()> {
        // Heritrix counts the DNS as a host; it is none that was visited.
        self.visited += u64::from(host.finished() > 0 && host.host != "dns:");
        let name = word(&host.host);
        self.host_line(host, &name)?;
        self.hosts_json.item(host)?;
        self.status_lines(host, &name)?;
        for (source, urls) in &host.sources {
            self.sources.row(source, &host.host, *urls)?;
        }
        if host.other_sources > 0 {
            self.sources.row(OTHER, &host.host, host.other_sources)?;
        }
        Ok(())
    }

    // The blank at the end is Heritrix's.
    fn host_line(&mut self, host: &HostTally, name: &str) -> io::Result<()> {
        writeln!(
            self.hosts,
            "{} {} {name} {} {} {} {} {} {} {} {} ",
            host.urls,
            host.bytes,
            host.robots_denied,
            host.remaining,
            host.novel.urls,
            host.novel.bytes,
            host.duplicate.urls,
            host.duplicate.bytes,
            host.not_modified.urls,
            host.not_modified.bytes
        )
    }

    fn status_lines(&mut self, host: &HostTally, name: &str) -> io::Result<()> {
        for (code, urls) in &host.codes {
            writeln!(self.status, "{name}\t{code}\t{urls}")?;
        }
        if host.other_codes > 0 {
            writeln!(self.status, "{name}\t{OTHER}\t{}", host.other_codes)?;
        }
        let row = StatusRow {
            host: &host.host,
            urls: host.finished(),
            codes: &host.codes,
            other: host.other_codes,
        };
        serde_json::to_writer(&mut self.status_json, &row)?;
        self.status_json.write_all(b"\n")
    }

    fn finish(self, is_sorted: bool, paths: &mut Vec<PathBuf>) -> io::Result<()> {
        let order = if is_sorted { BY_URLS } else { AS_KEPT };
        paths.push(self.hosts.finish()?);
        paths.push(self.hosts_json.finish(order)?);
        paths.push(self.status.finish()?);
        paths.push(self.status_json.finish()?);
        self.sources.finish(paths)
    }
}

/// A line of host-status-report.jsonl.
#[derive(Serialize)]
struct StatusRow<'a> {
    host: &'a str,
    urls: u64,
    codes: &'a std::collections::BTreeMap<i32, u64>,
    other: u64,
}

/// source-report: by source, and the hosts of each by their URLs, if there is room to sort them.
struct Sources {
    text: ReportFile,
    json: JsonList,
    waiting: Option<Vec<(String, Reverse<u64>, String)>>,
    room: usize,
}

/// An item of source-report.json.
#[derive(Serialize)]
struct SourceRow<'a> {
    source: &'a str,
    host: &'a str,
    urls: u64,
}

impl Sources {
    fn create(dir: &Path, room: usize) -> io::Result<Self> {
        let mut text = ReportFile::create(dir, "source-report.txt")?;
        text.write_all(b"[source] [host] [#urls]\n")?;
        Ok(Self {
            text,
            json: JsonList::create(dir, "source-report.json", "sources")?,
            waiting: Some(Vec::new()),
            room,
        })
    }

    fn row(&mut self, source: &str, host: &str, urls: u64) -> io::Result<()> {
        match &mut self.waiting {
            None => return self.put(source, host, urls),
            Some(rows) => rows.push((source.to_owned(), Reverse(urls), host.to_owned())),
        }
        if self
            .waiting
            .as_ref()
            .is_some_and(|rows| rows.len() > self.room)
        {
            self.release()?;
        }
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        for (source, Reverse(urls), host) in self.waiting.take().unwrap_or_default() {
            self.put(&source, &host, urls)?;
        }
        Ok(())
    }

    fn put(&mut self, source: &str, host: &str, urls: u64) -> io::Result<()> {
        writeln!(self.text, "{} {} {urls}", word(source), word(host))?;
        self.json.item(&SourceRow { source, host, urls })
    }

    fn finish(mut self, paths: &mut Vec<PathBuf>) -> io::Result<()> {
        let order = match &mut self.waiting {
            Some(rows) => {
                rows.sort();
                BY_URLS
            }
            None => AS_KEPT,
        };
        self.release()?;
        paths.push(self.text.finish()?);
        paths.push(self.json.finish(order)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use crate::seed_tally::SeedTally;

    struct Hosts(Vec<HostTally>);

    impl ReportSource for Hosts {
        fn hosts(&mut self, each: &mut dyn FnMut(HostTally)) -> io::Result<()> {
            self.0.iter().cloned().for_each(each);
            Ok(())
        }

        fn seeds(&mut self, _each: &mut dyn FnMut(SeedTally)) -> io::Result<()> {
            Ok(())
        }

        fn frontier_summary(&mut self) -> io::Result<(String, Value)> {
            Ok((String::new(), Value::Null))
        }
    }

    fn host(name: &str, urls: u64, sources: &[(&str, u64)]) -> HostTally {
        let sources = sources.iter().map(|(tag, urls)| ((*tag).to_owned(), *urls));
        HostTally {
            urls,
            sources: sources.collect(),
            codes: [(200, urls)].into(),
            ..HostTally::new(name)
        }
    }

    fn hosts() -> Hosts {
        Hosts(vec![
            host("b.example", 5, &[("x", 3), ("y", 2)]),
            host("dns:", 1, &[("x", 1)]),
            host("a.example", 5, &[("x", 5)]),
            host("z.example", 9, &[("y", 9)]),
        ])
    }

    fn words(text: &str, word: usize) -> Vec<&str> {
        let lines = text.lines().skip(1);
        lines.filter_map(|line| line.split(' ').nth(word)).collect()
    }

    #[test]
    fn hosts_are_sorted_while_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let summary = write_sorting(dir.path(), &mut hosts(), 10, &mut Vec::new()).unwrap();
        assert_eq!((summary.visited, summary.is_sorted), (3, true));
        let text = fs::read_to_string(dir.path().join("hosts-report.txt")).unwrap();
        assert_eq!(
            words(&text, 2),
            ["z.example", "a.example", "b.example", "dns:"]
        );
        let text = fs::read_to_string(dir.path().join("source-report.txt")).unwrap();
        assert_eq!(
            text,
            "[source] [host] [#urls]\nx a.example 5\nx b.example 3\nx dns: 1\ny z.example 9\ny b.example 2\n"
        );
    }

    #[test]
    fn beyond_that_their_order_is_kept_and_told() {
        let dir = tempfile::tempdir().unwrap();
        for room in [0, 2, 3] {
            let summary = write_sorting(dir.path(), &mut hosts(), room, &mut Vec::new()).unwrap();
            assert_eq!((summary.visited, summary.is_sorted), (3, false));
            let text = fs::read_to_string(dir.path().join("hosts-report.txt")).unwrap();
            assert_eq!(
                words(&text, 2),
                ["b.example", "dns:", "a.example", "z.example"]
            );
            for name in ["hosts-report.json", "source-report.json"] {
                let text = fs::read_to_string(dir.path().join(name)).unwrap();
                let json: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(json["order"], "as-kept", "{name}");
            }
            let text = fs::read_to_string(dir.path().join("source-report.txt")).unwrap();
            assert_eq!(text.lines().count(), 6);
        }
    }
}
