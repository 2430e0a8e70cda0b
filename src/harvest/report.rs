//! The end of a harvest: what came of it, where it is, and how to look at it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ecluse_crawl::{JobState, JobStatus};
use ecluse_generation::{FLAT, IndexDirectory};
use ecluse_manifest::{CopyKind, JobName, Manifest, Term};
use ecluse_stage::{Exit, RunEnd};
use ecluse_telemetry::{printable, printable_text};
use serde::Serialize;

use super::outcome::{Answers, Failed, FailedSeed, LOG, Outcomes};
use super::run::HarvestRun;
use crate::context::{DriverContext, Trouble};
use crate::needs::Need;
use crate::paint::Paint;
use crate::show;

/// Reasons that are named; the rest is in `--json`.
const REASONS: usize = 6;
/// Seeds that are named.
const SEEDS: usize = 5;

/// What a job says that ended because nothing was left.
const WHOLE: &str = "finished";

/// What came of a harvest.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Report {
    pub(crate) job: String,
    pub(crate) harvest: String,
    /// Whether an earlier command began it.
    pub(crate) went_on: bool,
    /// Whether it was told to stop.
    pub(crate) stopped: bool,
    /// Whether the crawl has fetched all it will.
    pub(crate) crawled: bool,
    /// Why the crawl ended before everything was fetched.
    pub(crate) ended_early: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) urls: u64,
    pub(crate) captures: u64,
    pub(crate) revisits: u64,
    pub(crate) bytes: u64,
    /// What answered, by what it is.
    pub(crate) answers: Answers,
    pub(crate) failed: Vec<Failed>,
    pub(crate) failed_seeds: Vec<FailedSeed>,
    /// Where the job's logs and reports are.
    pub(crate) dir: String,
    /// Hosts of seeds that did not answer.
    pub(crate) silent: BTreeSet<String>,
    /// No seed could be reached at all.
    pub(crate) no_network: bool,
    /// Hosts of seeds that were not asked: their addresses are not public.
    pub(crate) private: BTreeSet<String>,
    /// No seed was reached, because of these.
    pub(crate) refused: bool,
    pub(crate) files: Vec<Stored>,
    pub(crate) index: Option<Index>,
    /// Where its package is; several where it has parts.
    pub(crate) packages: Vec<String>,
    pub(crate) held: Vec<Need>,
    pub(crate) deferred: u64,
    /// What the first of them waits for.
    pub(crate) deferred_for: Option<String>,
    pub(crate) trouble: Option<String>,
    /// A command that shows captures.
    pub(crate) look: String,
}

/// A (W)ARC file and where it is.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) stored: Vec<String>,
    pub(crate) backups: Vec<String>,
}

/// The index that readers see.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Index {
    pub(crate) path: String,
    pub(crate) lines: u64,
}

/// How the run of the chain ended.
pub(crate) struct ChainRun<'a> {
    pub(crate) ended: &'a RunEnd,
    pub(crate) stopped: bool,
    pub(crate) took: Duration,
    /// The first seed.
    pub(crate) first: &'a str,
}

impl Report {
    /// Gathers what came of a harvest from the job's directory, the manifest and the index.
    pub(crate) fn gather(
        context: &DriverContext,
        run: &HarvestRun,
        chain: &ChainRun<'_>,
    ) -> Result<Self, Trouble> {
        let dir = run.dir(context)?;
        let status = JobStatus::read(&dir)?.unwrap_or_default();
        let outcomes = Outcomes::read(&dir)?;
        let needs = context.survey(None)?.needs_you;
        let trouble = chain.ended.halted.as_ref().or(chain.ended.blocked.as_ref());
        Ok(Self {
            job: run.job.clone(),
            harvest: run.harvest.clone(),
            went_on: run.goes_on,
            stopped: chain.stopped,
            crawled: status.state == JobState::Finished,
            ended_early: status.why.filter(|why| why != WHOLE),
            seconds: chain.took.as_secs_f64(),
            urls: status.done,
            captures: status.captures,
            revisits: status.revisits,
            bytes: status.bytes,
            failed: outcomes.reasons(),
            answers: outcomes.answers.clone(),
            failed_seeds: outcomes.seeds.clone(),
            dir: dir.display().to_string(),
            no_network: outcomes.no_network() && status.captures + status.revisits == 0,
            refused: outcomes.refused() && status.captures + status.revisits == 0,
            silent: outcomes.silent,
            private: outcomes.private,
            files: files_of(context, run)?,
            index: index_of(context)?,
            packages: packages_of(context, run)?,
            held: needs
                .into_iter()
                .filter(|need| need.parcel.is_some())
                .collect(),
            deferred: chain.ended.deferred,
            deferred_for: chain.ended.deferred_for.clone(),
            trouble: trouble.cloned(),
            look: context.command(&format!("lookup {}", show::word(chain.first))),
        })
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self, ended: &RunEnd) -> Exit {
        match ended.exit() {
            Exit::Done if self.stopped || self.no_network => Exit::Deferred,
            // To wait does not help: the command must say something else.
            Exit::Done if self.refused => Exit::Usage,
            exit => exit,
        }
    }

    /// Tells whether it was done and brought nothing, which is told even to who wants to hear nothing.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.no_network || self.refused
    }

    /// Tells whether nothing is left to do.
    pub(crate) fn is_whole(&self, ended: &RunEnd) -> bool {
        let moves_no_more =
            ended.halted.is_none() && ended.blocked.is_none() && ended.deferred == 0;
        self.crawled && !self.stopped && moves_no_more
    }

    /// Returns the report for a person. Names in it come from the web.
    pub(crate) fn in_words(&self, paint: Paint) -> String {
        let mut text = format!(
            "{}\n",
            paint.bold(&format!(
                "{}-{}: {}",
                self.job,
                self.harvest,
                self.headline()
            ))
        );
        let mut row = |what: &str, value: String| {
            text.push_str(&format!("  {what:<9} {}\n", printable_text(&value)));
        };
        if let Some(why) = self.ended_early.as_ref().filter(|_| self.crawled) {
            row("ended", why.clone());
        }
        if !self.is_in_vain() {
            row("fetched", self.fetched());
            row("of these", self.kinds());
            for seed in self.failed_seeds.iter().take(SEEDS) {
                row("SEED", format!("{} failed: {}", seed.url, seed.reason));
            }
            if !self.failed.is_empty() {
                row("failed", self.failures());
                let log = show::word(&format!("{}/{LOG}", self.dir));
                row("", format!("awk '$2 < 0 || $2 >= 400' {log} lists them"));
            }
            row("reports", format!("{}/reports/", self.dir));
            if !self.files.is_empty() {
                row("stored", self.stored());
            }
            if let Some(index) = &self.index {
                row(
                    "index",
                    format!(
                        "{} with {}",
                        index.path,
                        show::count(index.lines, "line", "lines")
                    ),
                );
            }
            if !self.packages.is_empty() {
                row("package", self.packages.join(", "));
            }
        }
        if self.deferred > 0 {
            let why = self.deferred_for.as_deref().unwrap_or("no reason is known");
            let what = format!("{} for later: {why}", self.deferred);
            row("deferred", what);
            row("", "the same command goes on with it".to_owned());
        }
        for need in self.held.iter().take(5) {
            let parcel = need.parcel.as_deref().unwrap_or_default();
            row("HELD", format!("{} {parcel}: {}", need.stage, need.what));
        }
        if let Some(trouble) = &self.trouble {
            row("STOPPED", trouble.clone());
        }
        if self.captures + self.revisits > 0 && !self.stopped {
            row("look", self.look.clone());
        }
        text
    }

    fn headline(&self) -> String {
        if self.stopped {
            return "stopped; run the same command to go on".into();
        }
        if self.no_network {
            return format!(
                "no network, or these hosts do not answer: {}",
                some(&self.silent)
            );
        }
        if self.refused {
            let silent = match self.silent.is_empty() {
                true => String::new(),
                false => format!("; no answer from {}", some(&self.silent)),
            };
            return format!(
                "nothing was fetched, the address is not public: {}{silent}; add --allow-private to ask there too",
                some(&self.private)
            );
        }
        let went_on = if self.went_on {
            ", went on with what was begun"
        } else {
            ""
        };
        let time = show::span(self.seconds);
        match self.crawled {
            true => format!("done in {time}{went_on}"),
            false => {
                format!("not finished after {time}{went_on}; the same command goes on from here")
            }
        }
    }

    fn fetched(&self) -> String {
        format!(
            "{}: {} new, {} unchanged; {} over the wire",
            show::count(self.captures + self.revisits, "capture", "captures"),
            self.captures,
            self.revisits,
            show::bytes(self.bytes)
        )
    }

    fn kinds(&self) -> String {
        let answers = &self.answers;
        let mut parts = vec![
            show::count(answers.pages, "page", "pages"),
            show::count(answers.files, "file", "files"),
        ];
        if answers.redirects > 0 {
            parts.push(show::count(answers.redirects, "redirect", "redirects"));
        }
        if answers.robots > 0 {
            parts.push(format!("{} robots.txt", answers.robots));
        }
        if answers.wrong_guesses > 0 {
            let guesses = answers.wrong_guesses;
            parts.push(show::count(guesses, "wrong guess", "wrong guesses"));
        }
        parts.join(", ")
    }

    fn failures(&self) -> String {
        let all: u64 = self.failed.iter().map(|one| one.urls).sum();
        let some = self.failed.iter().take(REASONS);
        let mut parts: Vec<String> = some
            .map(|one| format!("{} {}", one.urls, one.reason))
            .collect();
        if self.failed.len() > REASONS {
            parts.push("…".into());
        }
        format!("{all}: {}", parts.join(", "))
    }

    fn stored(&self) -> String {
        let are_stored = self.files.iter().filter(|file| !file.stored.is_empty());
        let bytes: u64 = are_stored.clone().map(|file| file.bytes).sum();
        let dirs = |places: &dyn Fn(&Stored) -> &Vec<String>| {
            let all = self.files.iter().flat_map(places);
            let parents = all.map(|place| parent_of(place));
            let dirs: BTreeSet<String> = parents.collect();
            dirs.into_iter().collect::<Vec<_>>().join(", ")
        };
        let stored = dirs(&|file| &file.stored);
        let backups = dirs(&|file| &file.backups);
        let count = are_stored.count();
        let files = show::count(count, "WARC file", "WARC files");
        let mut line = format!("{files}, {}", show::bytes(bytes));
        if count < self.files.len() {
            line = format!("{count} of {}, {}", self.files.len(), show::bytes(bytes));
        }
        if !stored.is_empty() {
            line.push_str(&format!(", in {stored}"));
        }
        if !backups.is_empty() {
            let copied = self.files.iter().filter(|file| !file.backups.is_empty());
            let copied = match copied.count() {
                all if all == count => String::new(),
                some => format!("{some} "),
            };
            line.push_str(&format!(", {copied}copied to {backups}"));
        }
        line
    }
}

/// Names the first few hosts, which came from outside.
fn some(hosts: &BTreeSet<String>) -> String {
    let first: Vec<&str> = hosts.iter().take(5).map(String::as_str).collect();
    let more = if hosts.len() > 5 { " …" } else { "" };
    format!("{}{more}", printable(first.join(", ").as_bytes()))
}

fn parent_of(place: &str) -> String {
    match place.rsplit_once('/') {
        Some((dir, _)) => format!("{dir}/"),
        None => place.to_owned(),
    }
}

/// Finds the files of a harvest by their names, whatever ingest could read from these.
fn files_of(context: &DriverContext, run: &HarvestRun) -> Result<Vec<Stored>, Trouble> {
    let path = crate::verify::manifest_path(context);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let manifest = Manifest::open(&path, &context.root)?;
    let mut files = Vec::new();
    let name = format!("{}-", run.name());
    manifest.find(&[Term::Name(&name)], |row| {
        let copies = manifest.copies(&row.name)?;
        let places = |kind: CopyKind| {
            let some = copies.iter().filter(move |copy| copy.kind == kind);
            some.map(|copy| below(&context.root, &copy.place)).collect()
        };
        files.push(Stored {
            bytes: row.bytes.unwrap_or(0),
            stored: places(CopyKind::Stored),
            backups: places(CopyKind::Backup),
            name: row.name,
        });
        Ok::<(), Trouble>(())
    })?;
    Ok(files)
}

/// Shortens a path below the root to what was typed.
fn below(root: &Path, place: &str) -> String {
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    match Path::new(place).strip_prefix(&absolute) {
        Ok(rest) => root.join(rest).display().to_string(),
        Err(_) => place.to_owned(),
    }
}

fn packages_of(context: &DriverContext, run: &HarvestRun) -> Result<Vec<String>, Trouble> {
    let path = crate::verify::manifest_path(context);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let job = JobName {
        job: run.job.clone(),
        harvest: Some(run.harvest.clone()),
    };
    let packages = Manifest::open(&path, &context.root)?.packages_of_job(&job)?;
    let paths = packages
        .iter()
        .map(|row| context.packages().join(&row.package));
    Ok(paths.map(|path| path.display().to_string()).collect())
}

fn index_of(context: &DriverContext) -> Result<Option<Index>, Trouble> {
    let machine = |error| Trouble::new(Exit::Machine, error);
    let index = IndexDirectory::of(&context.root.join(&context.pipeline.archive.index), None)
        .map_err(machine)?;
    let Some(number) = index.current_number().map_err(machine)? else {
        return Ok(None);
    };
    let generation = index.describe(number).map_err(machine)?;
    Ok(generation.map(|generation| Index {
        path: index
            .root()
            .join("current")
            .join(FLAT)
            .display()
            .to_string(),
        lines: generation.lines,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            job: "a.example".into(),
            harvest: "20260101000000".into(),
            went_on: false,
            stopped: false,
            crawled: true,
            ended_early: None,
            seconds: 41.2,
            urls: 30,
            captures: 20,
            revisits: 5,
            bytes: 1_500_000,
            answers: Answers {
                pages: 14,
                files: 9,
                redirects: 1,
                robots: 1,
                wrong_guesses: 46,
            },
            failed_seeds: vec![FailedSeed {
                url: "http://b.example/".into(),
                reason: "no answer in time".into(),
            }],
            dir: "archive/jobs/a.example-20260101000000".into(),
            failed: vec![Failed {
                status: 404,
                reason: "not found (404)".into(),
                urls: 3,
            }],
            silent: BTreeSet::new(),
            no_network: false,
            private: BTreeSet::new(),
            refused: false,
            files: vec![Stored {
                name: "a.example-20260101000000-x.warc.gz".into(),
                bytes: 900,
                stored: vec!["archive/repository/x.warc.gz".into()],
                backups: vec!["archive/backup/x.warc.gz".into()],
            }],
            packages: vec!["archive/packages/a.example-20260101000000".into()],
            index: Some(Index {
                path: "archive/index/current/index.cdxj".into(),
                lines: 77,
            }),
            held: Vec::new(),
            deferred: 0,
            deferred_for: None,
            trouble: None,
            look: "ecluse --root archive lookup https://a.example/".into(),
        }
    }

    #[test]
    fn the_report_says_what_came_and_where_it_is() {
        assert_eq!(
            report().in_words(Paint { color: false }),
            "a.example-20260101000000: done in 41s
  fetched   25 captures: 20 new, 5 unchanged; 1.5 MB over the wire
  of these  14 pages, 9 files, 1 redirect, 1 robots.txt, 46 wrong guesses
  SEED      http://b.example/ failed: no answer in time
  failed    3: 3 not found (404)
            awk '$2 < 0 || $2 >= 400' archive/jobs/a.example-20260101000000/logs/crawl.log lists them
  reports   archive/jobs/a.example-20260101000000/reports/
  stored    1 WARC file, 900 B, in archive/repository/, copied to archive/backup/
  index     archive/index/current/index.cdxj with 77 lines
  package   archive/packages/a.example-20260101000000
  look      ecluse --root archive lookup https://a.example/
"
        );
    }

    #[test]
    fn without_a_network_one_line_says_so() {
        let report = Report {
            captures: 0,
            revisits: 0,
            no_network: true,
            silent: ["a.example".to_owned()].into(),
            ..report()
        };
        let text = report.in_words(Paint { color: false });
        assert_eq!(
            text,
            "a.example-20260101000000: no network, or these hosts do not answer: a.example\n"
        );
        assert_eq!(report.exit(&RunEnd::default()), Exit::Deferred);
    }

    #[test]
    fn a_harvest_that_may_not_ask_says_how_it_may() {
        let mut report = Report {
            captures: 0,
            revisits: 0,
            refused: true,
            private: ["127.0.0.1:80".to_owned()].into(),
            ..report()
        };
        let text = report.in_words(Paint { color: false });
        assert_eq!(
            text,
            "a.example-20260101000000: nothing was fetched, the address is not public: 127.0.0.1:80; add --allow-private to ask there too\n"
        );
        assert_eq!(report.exit(&RunEnd::default()), Exit::Usage);
        report.silent.insert("b.example".to_owned());
        let text = report.in_words(Paint { color: false });
        assert!(text.contains("; no answer from b.example; "), "{text}");
    }
}
