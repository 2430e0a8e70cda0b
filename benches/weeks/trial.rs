//! A small web that changes by the hours of a simulated clock, and an archive that visits it by a policy: what was caught, by what the web itself saw.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a trial stops where it fails, and makes its own mess"
)]

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use ecluse_refresh::{Completeness, CompletenessOf, PageRecord};
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::web::{Answer, Web, html};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// A Monday: 2026-11-16.
const BEGIN: i64 = 1_794_787_200;

/// When pages of a kind change.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// At an hour, and twelve hours later.
    News(i64),
    /// At an hour on weekdays.
    Daily(i64),
    /// At an hour on one day of the week.
    Weekly(i64, i64),
    /// Every hour.
    Restless,
    /// Never.
    Still,
}

/// A web: which pages it has.
#[allow(dead_code, reason = "the test has one of them, the bench all")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum World {
    /// A newspaper: all that changes by hours does so at 5, or at 17.
    Press,
    /// Each page has an hour of its own.
    Scattered,
    /// Half of it never changes, and a quarter once a week.
    Quiet,
}

impl Kind {
    fn of(world: World, page: usize) -> Self {
        let number = page as i64;
        let hour = match world {
            World::Press => 5,
            World::Scattered | World::Quiet => (number * 7 + 3) % 24,
        };
        let weekly = Self::Weekly((number / 8) % 5, hour);
        match (world, page % 8) {
            (World::Press | World::Scattered, 0 | 1) | (World::Quiet, 0) => Self::News(hour % 12),
            (World::Press | World::Scattered, 2 | 3) | (World::Quiet, 1) => Self::Daily(hour),
            (World::Press | World::Scattered, 4 | 5) | (World::Quiet, 2 | 3) => weekly,
            (World::Press | World::Scattered, 6) => Self::Restless,
            _ => Self::Still,
        }
    }

    /// Tells whether something changes at an hour, counted from the beginning.
    fn changes(self, at: i64) -> bool {
        let (day, now) = ((at / 24) % 7, at % 24);
        match self {
            Self::News(hour) => now % 12 == hour,
            Self::Daily(hour) => now == hour && day < 5,
            Self::Weekly(weekday, hour) => now == hour && day == weekday,
            Self::Restless => true,
            Self::Still => false,
        }
    }

    /// Counts the changes until a time.
    fn version(self, time: i64) -> i64 {
        let hours = (time - BEGIN) / HOUR;
        (0..=hours).filter(|hour| self.changes(*hour)).count() as i64
    }
}

/// How a trial goes.
pub(crate) struct Trial<'a> {
    pub(crate) ecluse: &'a Path,
    pub(crate) policy: &'a str,
    pub(crate) world: World,
    pub(crate) pages: usize,
    pub(crate) days: i64,
    /// A run comes every so many hours, the first of a day at 2.
    pub(crate) every: i64,
    /// Visits of a run.
    pub(crate) budget: usize,
}

/// What came of it.
pub(crate) struct Caught {
    /// Each page by its own changes; pages that never changed do not count.
    pub(crate) complete: f64,
    /// All changes alike.
    pub(crate) in_all: f64,
    /// Fetches of pages.
    pub(crate) visits: usize,
    /// The most fetches of pages in a run.
    pub(crate) most: usize,
    pub(crate) runs: usize,
}

impl Trial<'_> {
    pub(crate) fn run(&self) -> Caught {
        let web = Web::start();
        let names = Names::start(60);
        names.set("presse.fr", Named::V4(vec![Ipv4Addr::LOCALHOST]));
        let clock = Arc::new(AtomicI64::new(BEGIN));
        let seen: Arc<Mutex<Vec<(usize, i64)>>> = Arc::default();
        let (world, pages) = (self.world, self.pages);
        {
            let (clock, seen) = (Arc::clone(&clock), Arc::clone(&seen));
            web.host("presse.fr", move |request, wire| {
                let now = clock.load(Ordering::SeqCst);
                let number = request
                    .path()
                    .strip_prefix("/p")
                    .and_then(|n| n.parse().ok());
                let answer = match number {
                    Some(number) if number < pages => {
                        seen.lock().unwrap().push((number, now));
                        let version = Kind::of(world, number).version(now);
                        let words: String = (0..40)
                            .map(|word| {
                                format!("w{} ", (version * 31 + word * 7 + number as i64) % 997)
                            })
                            .collect();
                        html(&format!(
                            "<h1>Page {number}</h1><p>edition {version}: {words}</p>"
                        ))
                    }
                    _ => Answer::missing(),
                };
                wire.answer(&answer)
            });
        }
        let root = tempfile::tempdir().unwrap();
        let seeds: Vec<String> = (0..pages)
            .map(|page| format!("'{}'", web.url("presse.fr", &format!("/p{page}"))))
            .collect();
        self.settle(root.path(), &seeds.join(", "), &names.address().to_string());
        let mut most = 0;
        let mut runs = 0;
        for day in 0..self.days {
            for hour in (2..24).step_by(usize::try_from(self.every).unwrap()) {
                let now = BEGIN + day * DAY + hour * HOUR;
                clock.store(now, Ordering::SeqCst);
                let before = seen.lock().unwrap().len();
                self.once(root.path(), now);
                most = most.max(seen.lock().unwrap().len() - before);
                runs += 1;
            }
        }
        let seen = seen.lock().unwrap();
        let end = BEGIN + self.days * DAY;
        let (complete, in_all) = self.judge(&seen, end);
        Caught {
            complete,
            in_all,
            visits: seen.len(),
            most,
            runs,
        }
    }

    fn settle(&self, root: &Path, seeds: &str, resolver: &str) {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let short = "batch = { parcels = 1000, wait = '1ms' }";
        let gather: String = ["merge", "bigmerge", "rank", "change", "plan"]
            .iter()
            .map(|stage| format!("[stage.{stage}]\n{short}\n"))
            .collect();
        write(
            "pipeline.toml",
            &format!(
                "[site]\ncontact = 'https://archive.example/'\n[defaults]\nsettle = '1ms'\nmin-free = '0 B'\nscan = '100ms'\n\
                 [stage.crawl]\nworkers = 1\n{gather}"
            ),
        );
        write(
            "harvests/templates/t.toml",
            &format!(
                "[network]\nallow-private = true\nresolvers = ['{resolver}']\n[budget]\nwait = '1s'\n[budget.queue]\ntries = 1\n\
                 error-penalty = 0\n[manners]\nmin-delay = '1ms'\nmax-delay = '1ms'\naddress-delay = '0s'\n[extract]\nsitemaps = false\n"
            ),
        );
        let from = time_text(BEGIN + 2 * HOUR);
        let until = time_text(BEGIN + 60 * DAY);
        write(
            "harvests/trial.toml",
            &format!(
                "kind = 'selective'\nfrom = '{from}'\nuntil = '{until}'\nevery = '{}h'\ntemplate = 'templates/t.toml'\n\
                 [[domains]]\nurls = [{seeds}]\nreach = 'page'\n[refresh]\npolicy = '{}'\nbudget = {}\n",
                self.every, self.policy, self.budget
            ),
        );
    }

    /// Lets the chain do all there is to do at a time.
    fn once(&self, root: &Path, now: i64) {
        fs::write(root.join("clock"), format!("{}\n", time_text(now + 60))).unwrap();
        for stages in [
            &["plan", "crawl"][..],
            &["ingest", "index", "transfer", "backup", "delete", "merge"],
            &["bigmerge", "rank", "change", "plan"],
        ] {
            let mut command = Command::new(self.ecluse);
            settle_environment(&mut command);
            command.env("ECLUSE_CLOCK_FILE", root.join("clock"));
            command
                .arg("--root")
                .arg(root)
                .args(["run", "--once"])
                .args(stages);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{stages:?}: {said}");
        }
    }

    /// Measures what was caught against what the web knows: a visit earns the last change before it, once.
    fn judge(&self, seen: &[(usize, i64)], end: i64) -> (f64, f64) {
        let mut completeness = Completeness::default();
        for page in 0..self.pages {
            let kind = Kind::of(self.world, page);
            let total = kind.version(end - 1);
            if total == 0 {
                continue;
            }
            let mut visits: Vec<i64> = seen
                .iter()
                .filter(|(visited, _)| *visited == page)
                .map(|(_, time)| kind.version(*time))
                .filter(|version| *version > 0)
                .collect();
            visits.sort_unstable();
            visits.dedup();
            completeness.add(&PageRecord {
                weight: 1.0,
                earned: visits.len() as f64,
                total: total as f64,
            });
        }
        (
            completeness.of(CompletenessOf::EachPage),
            completeness.of(CompletenessOf::Everything),
        )
    }
}

fn time_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}
