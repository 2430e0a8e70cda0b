//! Why a URL was fetched or not: what the rules, robots.txt and the frontier say of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use ecluse_frontier::{Frontier, FrontierError, QueueState, Retired, UrlState};
use ecluse_report::{LogLine, parse_line};
use ecluse_scope::{Order, RobotsAnswer, RobotsPolicy, Scope, ScopeVerdict};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::checkpoint::Checkpoint;
use crate::engine::{why_slow, year};
use crate::forced::{FORCED_OUT, ForcedFile};
use crate::job::Job;
use crate::link_filter::LinkFilter;
use crate::logs::CRAWL;
use crate::notes;
use crate::place::{JobDir, write_quick};
use crate::robots::{KeptAnswer, Robots, authority_of};

/// Lines of the log that are told.
const LINES: usize = 20;
/// Bytes of it that are read.
const LOG_BYTES: u64 = 512 << 20;

/// What is known of a URL in a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Explanation {
    /// The URL as the crawl writes it.
    pub url: String,
    /// The way from the seed by which it was judged, and whether that is known or assumed.
    pub found: String,
    /// Every rule of the scope that spoke, in order: `rule: verdict: why`. The last decided.
    pub scope: Vec<String>,
    /// `accept` or `reject`.
    pub verdict: String,
    /// What robots.txt says, as far as it is known.
    pub robots: String,
    /// Where it is in the frontier: never queued, waiting, in flight, done, given up; its queue and group.
    pub frontier: Vec<String>,
    /// The lines of crawl.log about it.
    pub log: Vec<String>,
}

/// Explains a URL of the job in `job_dir`, be it running or not. `site_contact` is that of `[site]`, `forced` the file of what
/// librarians force out.
///
/// A running job is asked by a file in its control directory and answers within a second or two.
///
/// # Errors
/// When there is no such job, the URL is none, or a running job does not answer in time; in words for a person.
pub fn explain(
    job_dir: &Path,
    url: &str,
    site_contact: &str,
    forced: &Path,
    patience: Duration,
) -> Result<Explanation, String> {
    let dir = JobDir::at(job_dir);
    if !dir.given_order().is_file() {
        return Err(format!("no job was ever begun in {}", job_dir.display()));
    }
    let job = Job::at(job_dir, site_contact, "").map_err(|failure| failure.reason)?;
    let settings = ecluse_frontier::Settings::default();
    match Frontier::open_to_read(&dir.frontier(), settings) {
        Ok(mut frontier) => {
            let year = year(began(&frontier));
            // Nothing is written to the job, not even a nameless file.
            let spool = std::env::temp_dir();
            let link_filter = LinkFilter::new(&job.order, &job, &frontier, year, &spool);
            let link_filter = link_filter.map_err(|failure| failure.reason)?;
            let forced = ForcedFile::read(forced).map_err(|failure| failure.reason)?;
            let known = Known {
                order: &job.order,
                scope: &link_filter.scope,
                forced: &forced,
                robots: &Robots::default(),
                logs: &dir.logs(),
                now: Duration::from_millis(crate::fetch_task::now().0),
            };
            known.explain(&mut frontier, url)
        }
        Err(FrontierError::Locked { .. }) => ask(&dir, url, patience),
        Err(error) => Err(error.to_string()),
    }
}

/// When a job was begun, in milliseconds since 1970.
fn began(frontier: &Frontier) -> u64 {
    let checkpoint = frontier.checkpoint();
    let checkpoint = checkpoint.and_then(|bytes| serde_json::from_slice::<Checkpoint>(bytes).ok());
    checkpoint.map_or_else(|| crate::fetch_task::now().0, |checkpoint| checkpoint.begun)
}

/// Asks the process that has the job.
fn ask(dir: &JobDir, url: &str, patience: Duration) -> Result<Explanation, String> {
    #[derive(Deserialize)]
    struct Told {
        explanation: Option<Explanation>,
        problem: Option<String>,
    }
    let name = format!("{}-{}", std::process::id(), crate::fetch_task::now().0);
    let question = dir.control().join("ask").join(&name);
    write_quick(&question, url.as_bytes())
        .map_err(|error| format!("cannot ask: {}: {error}", question.display()))?;
    let answer = dir.control().join("answers").join(&name);
    let begun = Instant::now();
    while begun.elapsed() < patience {
        if let Ok(bytes) = std::fs::read(&answer) {
            let told: Told = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            return match (told.explanation, told.problem) {
                (Some(explanation), _) => Ok(explanation),
                (None, Some(problem)) => Err(problem),
                (None, None) => Err("the answer makes no sense".to_owned()),
            };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "the running job did not answer within {patience:?}"
    ))
}

/// What is at hand to explain with.
pub(crate) struct Known<'a> {
    pub(crate) order: &'a Order,
    pub(crate) scope: &'a Scope,
    pub(crate) forced: &'a ForcedFile,
    pub(crate) robots: &'a Robots,
    pub(crate) logs: &'a Path,
    pub(crate) now: Duration,
}

impl Known<'_> {
    pub(crate) fn explain(
        &self,
        frontier: &mut Frontier,
        url: &str,
    ) -> Result<Explanation, String> {
        let text = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let url = Url::parse(&text).map_err(|error| format!("{text:?} is no URL: {error}"))?;
        let canonical = self.order.same_url.key(&url);
        let known = frontier
            .lookup(&canonical)
            .map_err(|error| error.to_string())?;
        let lines = log_lines(&self.logs.join(CRAWL), url.as_str());
        let trail = known.as_ref().and_then(|known| known.origin.clone());
        let (hops, via, tag, found) = match (trail, lines.last().and_then(|line| parse_line(line)))
        {
            (Some(found), _) => {
                let told = told_way(&found.hops, &found.via);
                (found.hops, found.via, found.source, told)
            }
            (
                None,
                Some(LogLine {
                    hops, via, source, ..
                }),
            ) => {
                let told = told_way(&hops, &via);
                (hops, via, source, told)
            }
            (None, None) => (
                "L".to_owned(),
                String::new(),
                String::new(),
                "not known; judged as a link on a seed".to_owned(),
            ),
        };
        let mut surt = Vec::new();
        ecluse_surt::surt_or_url(url.as_str().as_bytes(), &mut surt);
        let judgement = self.scope.judge(&ecluse_scope::CandidateUrl {
            url: url.as_str(),
            surt: &surt,
            hops: &hops,
            via: Some(&via).filter(|via| !via.is_empty()).map(String::as_str),
            tag: Some(&tag).filter(|tag| !tag.is_empty()).map(String::as_str),
            size: None,
            framed: false,
        });
        let judgement = judgement.map_err(|error| format!("cannot read the seeds: {error}"))?;
        let mut scope: Vec<String> = judgement.spoke.iter().map(ToString::to_string).collect();
        let mut verdict = judgement.verdict;
        if let Some(out) = self.forced.out(&url) {
            let (what, rule) = (out.what, out.rule);
            verdict = ScopeVerdict::Reject;
            scope.push(format!(
                "{FORCED_OUT}: {verdict}: {what}, by {} on {}: {}",
                rule.who, rule.when, rule.why
            ));
        }
        Ok(Explanation {
            found,
            scope,
            verdict: verdict.to_string(),
            robots: self.robots_text(frontier, &url, &hops)?,
            frontier: self.frontier_lines(frontier, known.as_ref()),
            log: lines,
            url: url.to_string(),
        })
    }

    fn robots_text(
        &self,
        frontier: &mut Frontier,
        url: &Url,
        hops: &str,
    ) -> Result<String, String> {
        let policy = self
            .order
            .robots
            .policy_of(url.host_str().unwrap_or_default());
        if policy == RobotsPolicy::Ignore {
            return Ok("allowed: robots.txt is ignored by order".to_owned());
        }
        let authority = authority_of(url);
        let mut book = Robots::default();
        let standing = match self.robots.standing(&authority, self.now) {
            Some(standing) => Some(standing),
            None => {
                let key = notes::key_of(authority.as_bytes());
                let kept = frontier
                    .noted(notes::ROBOTS, &key)
                    .map_err(|error| error.to_string())?;
                if let Some(kept) = kept.as_deref().and_then(KeptAnswer::decode) {
                    let answer = RobotsAnswer::Response {
                        status: kept.status,
                        body: &kept.body,
                    };
                    book.learn(
                        self.order,
                        &authority,
                        answer,
                        Duration::from_millis(kept.at),
                    );
                    book.standing(&authority, Duration::from_millis(kept.at))
                } else {
                    None
                }
            }
        };
        let Some(standing) = standing else {
            return Ok("robots.txt has not been fetched yet".to_owned());
        };
        let verdict = standing.judge(url.as_str()).under(policy, hops);
        let verb = if verdict.allowed {
            "allowed"
        } else {
            "forbidden"
        };
        Ok(format!("{verb}: {}", verdict.why))
    }

    fn frontier_lines(
        &self,
        frontier: &mut Frontier,
        known: Option<&ecluse_frontier::Known>,
    ) -> Vec<String> {
        let Some(known) = known else {
            return vec!["never queued".to_owned()];
        };
        let state = match known.state {
            UrlState::Queued { status: 0 } => "waiting".to_owned(),
            UrlState::Queued { status } => format!(
                "waiting to be tried again, after {} tries; the last gave {status}",
                known.attempts
            ),
            UrlState::InFlight { .. } => "being fetched".to_owned(),
            UrlState::Done { status } => format!("done, status {status}"),
            UrlState::Failed { status } => {
                format!(
                    "given up after {} tries, status {status}",
                    known.attempts + 1
                )
            }
        };
        let mut lines = vec![state];
        if let Some(queue) = &known.queue {
            lines.push(format!(
                "queue {}: {}, {} URLs wait, {} done, {} given up",
                queue.name,
                queue_text(queue.state, self.now),
                queue.queued,
                queue.done,
                queue.failed
            ));
            if let Ok(Some(group)) = frontier.group(&queue.group) {
                lines.push(format!(
                    "group {}: {:.1} s between requests, {} queues",
                    group.name,
                    group.delay.as_secs_f64(),
                    group.queues + group.parked_queues
                ));
            }
        }
        lines
    }
}

fn queue_text(state: QueueState, now: Duration) -> String {
    match state {
        QueueState::Exhausted => "empty".to_owned(),
        QueueState::Ready => "may be asked now".to_owned(),
        QueueState::InProcess { .. } => "being asked".to_owned(),
        QueueState::Snoozed { until, why } => {
            let wait = Duration::from_millis(until.0).saturating_sub(now);
            format!("rests for {:.1} s: {}", wait.as_secs_f64(), why_slow(why))
        }
        QueueState::GroupBusy => "its group has as many requests as it may".to_owned(),
        QueueState::Retrying => "all of it waits to be tried again".to_owned(),
        QueueState::Missing => "waits for an address or a robots.txt".to_owned(),
        QueueState::Inactive => "waits for its turn".to_owned(),
        QueueState::Parked => "waits behind other queues of its group".to_owned(),
        QueueState::Retired(Retired::Urls) => "retired: its budget of URLs is spent".to_owned(),
        QueueState::Retired(Retired::Bytes) => "retired: its budget of bytes is spent".to_owned(),
        QueueState::Retired(Retired::Time) => "retired: its time is over".to_owned(),
    }
}

fn told_way(hops: &str, via: &str) -> String {
    match hops {
        "" => "a seed".to_owned(),
        hops => format!("by {hops} from {via}"),
    }
}

/// The last lines of a log about a URL. A running job does nothing else meanwhile, so only the end of a long log is read.
fn log_lines(path: &Path, url: &str) -> Vec<String> {
    let mut found = VecDeque::new();
    let Ok(mut log) = log_end(path, LOG_BYTES) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    while let Ok(1..) = log.read_until(b'\n', &mut bytes) {
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches('\n');
        if line.contains(url) && parse_line(line).is_some_and(|line| line.url == url) {
            found.push_back(line.to_owned());
            if found.len() > LINES {
                found.pop_front();
            }
        }
        bytes.clear();
    }
    found.into()
}

/// The whole lines among the last bytes of a log.
fn log_end(path: &Path, bytes: u64) -> io::Result<BufReader<File>> {
    let mut file = File::open(path)?;
    let begin = file.metadata()?.len().saturating_sub(bytes);
    file.seek(SeekFrom::Start(begin))?;
    let mut log = BufReader::with_capacity(1 << 20, file);
    if begin > 0 {
        log.read_until(b'\n', &mut Vec::new())?;
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crawl.log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        for (bytes, expected) in [(99, "one\ntwo\nthree\n"), (8, "three\n"), (0, "")] {
            let mut text = String::new();
            let mut log = log_end(&path, bytes).unwrap();
            log.read_to_string(&mut text).unwrap();
            assert_eq!(text, expected, "{bytes}");
        }
    }
}
