//! What became of the URLs of a job, counted from its `crawl.log`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

/// Where the log lies in a job's directory.
pub(crate) const LOG: &str = "logs/crawl.log";
/// A longer line is none of the log.
const LONGEST_LINE: u64 = 1 << 20;

/// Seeds that failed are named up to so many.
const SEEDS_NAMED: usize = 20;

/// The status of a URL whose address is not public.
const NOT_PUBLIC: i32 = -5001;

/// Counted outcomes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// URLs without a good answer, by status; no guesses among them.
    pub(crate) failed: BTreeMap<i32, u64>,
    /// What answered well.
    pub(crate) answers: Answers,
    /// Seeds that failed, with the reason.
    pub(crate) seeds: Vec<FailedSeed>,
    /// Hosts of seeds that could not be reached at all.
    pub(crate) silent: BTreeSet<String>,
    /// Hosts of seeds that were not asked: their addresses are not public.
    pub(crate) private: BTreeSet<String>,
    /// Whether one seed was reached.
    pub(crate) reached: bool,
}

/// What answered, by what it is.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Answers {
    pub(crate) pages: u64,
    pub(crate) files: u64,
    pub(crate) redirects: u64,
    /// Requests for robots.txt, whatever was the answer.
    pub(crate) robots: u64,
    /// URLs guessed from scripts and data, or from habit, that are not there.
    pub(crate) wrong_guesses: u64,
}

/// A seed that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FailedSeed {
    pub(crate) url: String,
    pub(crate) reason: String,
}

/// Some URLs that failed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Failed {
    pub(crate) status: i32,
    pub(crate) reason: String,
    pub(crate) urls: u64,
}

impl Outcomes {
    /// Reads the log of a job; none is an empty one.
    pub(crate) fn read(job_dir: &Path) -> io::Result<Self> {
        match File::open(job_dir.join(LOG)) {
            Ok(file) => Self::of(BufReader::with_capacity(64 << 10, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn of(mut log: impl BufRead) -> io::Result<Self> {
        let mut outcomes = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if log
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)?
                == 0
            {
                return Ok(outcomes);
            }
            outcomes.count(&String::from_utf8_lossy(&line));
        }
    }

    fn count(&mut self, line: &str) {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(7).collect();
        let [_, status, _, url, hops, rest @ ..] = fields.as_slice() else {
            return;
        };
        let Ok(status) = status.parse::<i32>() else {
            return;
        };
        let (url, hops) = (*url, *hops);
        if url.starts_with("dns:") {
            return;
        }
        let mime = rest.get(1).copied().unwrap_or_default();
        let is_page = mime.starts_with("text/html") || mime.starts_with("application/xhtml");
        let good = matches!(status, 1..400) || status > 999;
        let answers = &mut self.answers;
        match hops.as_bytes().last() {
            Some(b'P') if url.ends_with("/robots.txt") && status > 0 => answers.robots += 1,
            Some(b'X' | b'I') if !good => answers.wrong_guesses += 1,
            _ if !good => *self.failed.entry(status).or_default() += 1,
            _ if matches!(status, 300..400) && status != 304 => answers.redirects += 1,
            _ if is_page => answers.pages += 1,
            _ => answers.files += 1,
        }
        if hops == "-" && !good && self.seeds.len() < SEEDS_NAMED {
            self.seeds.push(FailedSeed {
                url: url.to_owned(),
                reason: reason(status),
            });
        }
        if hops == "-" {
            match status {
                NOT_PUBLIC => drop(self.private.insert(host_of(url).to_owned())),
                _ if is_silence(status) => drop(self.silent.insert(host_of(url).to_owned())),
                _ => self.reached = true,
            }
        }
    }

    /// Tells whether no seed was reached, and none because nobody answers.
    pub(crate) fn no_network(&self) -> bool {
        !self.reached && self.private.is_empty() && !self.silent.is_empty()
    }

    /// Tells whether no seed was reached, some because their addresses are not public.
    pub(crate) fn refused(&self) -> bool {
        !self.reached && !self.private.is_empty()
    }

    /// Returns why URLs failed, the most frequent reason first.
    pub(crate) fn reasons(&self) -> Vec<Failed> {
        let failed = self.failed.iter().map(|(&status, &urls)| Failed {
            status,
            reason: reason(status),
            urls,
        });
        let mut failed: Vec<Failed> = failed.collect();
        failed.sort_by_key(|one| std::cmp::Reverse(one.urls));
        failed
    }
}

/// Tells whether a status means that no server answered.
fn is_silence(status: i32) -> bool {
    matches!(status, -1 | -2 | -3 | -4 | -6 | -8 | -61 | -62)
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    authority.rsplit('@').next().unwrap_or(authority)
}

/// Says in a few words what a status of the log means.
pub(crate) fn reason(status: i32) -> String {
    let words = match status {
        -1 | -6 => "no address (DNS)",
        -2 => "no connection",
        -3 => "connection lost",
        -4 => "no answer in time",
        -7 => "no URL that can be fetched",
        -8 => "given up after all tries",
        -61 => "robots.txt could not be had",
        -62 | -63 => "what had to come first failed",
        -404 => "not found",
        -4000 => "a trap",
        -4001 | -4002 => "too far away",
        -5000 => "out of scope",
        NOT_PUBLIC => "at an address that is not public; --allow-private asks it too",
        -5002 => "blocked by a setting",
        -5003 | -5004 => "the budget was spent",
        -6000 => "taken out by hand",
        -9998 => "forbidden by robots.txt",
        400 => "bad request (400)",
        401 => "needs a password (401)",
        403 => "forbidden (403)",
        404 => "not found (404)",
        410 => "gone (410)",
        429 => "too many requests (429)",
        500 => "server error (500)",
        503 => "overloaded (503)",
        100.. => return format!("status {status}"),
        _ => return format!("code {status}"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(lines: &[&str]) -> Outcomes {
        Outcomes::of(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn failures_are_counted_by_reason() {
        let outcomes = outcomes(&[
            "2026-01-01T00:00:00.000Z     1         50 dns:a.example P http://a.example/ text/dns #001 - - - -",
            "2026-01-01T00:00:00.000Z   200       1234 http://a.example/ - - text/html #001 20260101000000000+5 sha1:X a -",
            "2026-01-01T00:00:01.000Z   404         12 http://a.example/no L http://a.example/ text/html #001 - - a -",
            "2026-01-01T00:00:01.000Z   404         12 http://a.example/na L http://a.example/ text/html #001 - - a -",
            "2026-01-01T00:00:01.000Z -9998          - http://a.example/secret L http://a.example/ unknown #001 - - a -",
            "2026-01-01T00:00:01.000Z   404         12 http://a.example/robots.txt P http://a.example/ text/plain #001 - - a -",
            "2026-01-01T00:00:01.000Z   404         12 http://a.example/js/b LX http://a.example/ text/html #001 - - a -",
            "2026-01-01T00:00:01.000Z   500         12 http://b.example/ - - text/html #001 - - b -",
            "2026-01-01T00:00:01.000Z   200         12 http://a.example/a.png E http://a.example/ image/png #001 - - a -",
            "2026-01-01T00:00:01.000Z   301         12 http://a.example/old L http://a.example/ text/html #001 - - a -",
            "2026-01-01T00:00:01.000Z   304          0 http://a.example/same L http://a.example/ text/html #001 - - a -",
            "cut off",
        ]);
        assert!(outcomes.reached && !outcomes.no_network());
        let reasons = outcomes.reasons();
        assert_eq!((reasons[0].status, reasons[0].urls), (404, 2));
        assert!(
            reasons
                .iter()
                .any(|one| one.reason == "forbidden by robots.txt")
        );
        assert_eq!(reasons.len(), 3, "no guess and no robots.txt: {reasons:?}");
        assert_eq!(
            outcomes.answers,
            Answers {
                pages: 2,
                files: 1,
                redirects: 1,
                robots: 1,
                wrong_guesses: 1,
            }
        );
        assert_eq!(outcomes.seeds[0].url, "http://b.example/");
        assert_eq!(outcomes.seeds[0].reason, "server error (500)");
    }

    #[test]
    fn seeds_without_any_answer_mean_no_network() {
        let outcomes = outcomes(&[
            "2026-01-01T00:00:00.000Z    -1          - http://a.example:80/x - - unknown #001 - - a -",
            "2026-01-01T00:00:00.000Z    -2          - https://b.example/ - - unknown #001 - - b -",
        ]);
        assert!(outcomes.no_network());
        let silent: Vec<_> = outcomes.silent.iter().map(String::as_str).collect();
        assert_eq!(silent, ["a.example:80", "b.example"]);
        assert!(!Outcomes::default().no_network(), "no log says nothing");
    }

    #[test]
    fn seeds_at_addresses_that_are_not_public_are_refused_and_not_silent() {
        let private = "2026-01-01T00:00:00.000Z -5001          - http://127.0.0.1:80/x - - unknown #001 - - a -";
        let silent =
            "2026-01-01T00:00:00.000Z    -2          - https://b.example/ - - unknown #001 - - b -";
        let good = "2026-01-01T00:00:00.000Z   200       1234 http://a.example/ - - text/html #001 - - a -";
        for lines in [vec![private], vec![private, silent]] {
            let outcomes = outcomes(&lines);
            assert!(outcomes.refused() && !outcomes.no_network());
            assert!(outcomes.private.contains("127.0.0.1:80"));
        }
        assert!(!outcomes(&[private, good]).refused());
        assert!(!outcomes(&[silent]).refused());
    }
}
