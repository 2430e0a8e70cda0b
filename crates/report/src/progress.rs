//! A line of `progress-statistics.log`: where the crawl stands, every so often.

use std::fmt::Write;

use crate::escape::phrase;
use crate::figures::{decimal, per_second};
use crate::moment::Moment;

/// The first line of the log, in Heritrix's columns.
pub const PROGRESS_LEGEND: &str = "           timestamp  discovered      queued   downloaded       doc/s(avg)  KB/s(avg)   \
     dl-failures   busy-thread   mem-use-KB  heap-size-KB   congestion   max-depth   avg-depth";

/// Where the crawl stands at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProgressLine {
    /// When.
    pub at: Moment,
    /// How long it has been crawled, breaks not counted.
    pub busy_ms: u64,
    /// Different URLs that were ever queued.
    pub discovered: u64,
    /// URLs that wait.
    pub queued: u64,
    /// URLs that were fetched.
    pub downloaded: u64,
    /// Bytes that were fetched.
    pub bytes: u64,
    /// URLs that were given up.
    pub failures: u64,
    /// Fetches under way.
    pub busy: u64,
    /// Memory in use, in KiB.
    pub memory_kb: u64,
    /// Memory that may be used, in KiB.
    pub memory_limit_kb: u64,
    /// Queues that could be worked on for each that is.
    pub congestion: f64,
    /// URLs in the longest queue.
    pub deepest: u64,
    /// URLs in a queue on average.
    pub average_depth: u64,
}

impl ProgressLine {
    /// Returns its line, without the end of line. Rates are since `previous`, and in brackets of the whole crawl.
    #[must_use]
    pub fn line(&self, previous: Option<&ProgressLine>) -> String {
        let (mut urls, mut kib) = (0.0, 0.0);
        if let Some(previous) = previous {
            let interval = self.at.0.saturating_sub(previous.at.0);
            let downloaded = self.downloaded.saturating_sub(previous.downloaded);
            let bytes = self.bytes.saturating_sub(previous.bytes);
            urls = per_second(downloaded as f64, interval);
            kib = per_second((bytes / 1024) as f64, interval);
        }
        let all_urls = per_second(self.downloaded as f64, self.busy_ms);
        let all_kib = per_second(self.bytes as f64 / 1024.0, self.busy_ms);
        let mut line = self.at.iso_seconds();
        for (column, figure) in [
            (32, self.discovered.to_string()),
            (44, self.queued.to_string()),
            (57, self.downloaded.to_string()),
            (74, format!("{}({})", decimal(urls), decimal(all_urls))),
            (85, format!("{}({})", kib as u64, all_kib as u64)),
            (99, self.failures.to_string()),
            (113, self.busy.to_string()),
            (126, self.memory_kb.to_string()),
            (140, self.memory_limit_kb.to_string()),
            (153, decimal(self.congestion)),
            (165, self.deepest.to_string()),
            (177, self.average_depth.to_string()),
        ] {
            put_column(&mut line, column, &figure);
        }
        line
    }
}

/// Returns a line for what happened between two lines of figures: a pause, a checkpoint, the end.
#[must_use]
pub fn progress_note(at: Moment, note: &str) -> String {
    format!("{} {}", at.iso_seconds(), phrase(note))
}

/// Puts a figure so that it ends at `column`; one that is too wide moves the rest, but never touches its neighbour.
fn put_column(line: &mut String, column: usize, figure: &str) {
    let room = column.saturating_sub(line.len() + 1);
    write!(line, " {figure:>room$}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_under_their_names() {
        let before = ProgressLine {
            at: Moment(1_794_790_780_123),
            downloaded: 10,
            bytes: 1_000_000,
            ..ProgressLine::default()
        };
        let now = ProgressLine {
            at: Moment(1_794_790_800_123),
            busy_ms: 40_000,
            discovered: 1_234,
            queued: 1_000,
            downloaded: 234,
            bytes: 9_000_000,
            failures: 3,
            busy: 25,
            memory_kb: 104_857,
            memory_limit_kb: 262_144,
            congestion: 1.5,
            deepest: 600,
            average_depth: 40,
        };
        let line = now.line(Some(&before));
        assert_eq!(
            line,
            "2026-11-16T01:00:00Z        1234        1000          234       11.2(5.85)   390(219)             3            \
             25       104857        262144          1.5         600          40"
        );
        for (name, figure) in [
            ("discovered", "1234"),
            ("avg-depth", "40"),
            ("congestion", "1.5"),
        ] {
            let end = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
            assert_eq!(
                end(PROGRESS_LEGEND, name),
                end(&line, &format!(" {figure}")),
                "{name}"
            );
        }
        assert_eq!(PROGRESS_LEGEND.len(), line.len());
    }

    #[test]
    fn figures_never_touch() {
        let most = ProgressLine {
            at: Moment(u64::MAX),
            discovered: u64::MAX,
            queued: u64::MAX,
            bytes: u64::MAX,
            congestion: f64::INFINITY,
            ..ProgressLine::default()
        };
        let line = most.line(None);
        assert_eq!(line.split_whitespace().count(), 13, "{line}");
        assert_eq!(PROGRESS_LEGEND.split_whitespace().count(), 13);
    }

    #[test]
    fn notes_are_one_line() {
        assert_eq!(
            progress_note(Moment(1_794_790_800_123), "CRAWL ENDED - finished\n"),
            "2026-11-16T01:00:00Z CRAWL ENDED - finished"
        );
    }
}
