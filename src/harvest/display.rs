//! The progress of a harvest on a terminal: a few lines that are drawn again in place.
//!
//! A thread of its own draws, so that something moves while the pools drain after a Ctrl-C. It writes to standard error, below
//! the log; what was drawn is wiped before anything else is told.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ecluse_crawl::{Crawl, JobState, JobStatus};
use ecluse_spool::Engine;
use ecluse_stage::{Progress, Stage, StageTally};
use ecluse_telemetry::{FOOTER, printable, printable_text};

use crate::context::DriverContext;
use crate::jobs;
use crate::paint::Paint;
use crate::show;

/// How often the lines are drawn.
const EVERY: Duration = Duration::from_millis(150);
/// How often what waits is counted: with a long queue that is some work.
const COUNT: Duration = Duration::from_millis(500);

/// The stages of this process with what became of their parcels.
type Pools = Arc<Mutex<Vec<(&'static str, Arc<StageTally>)>>>;

/// Draws until it is dropped.
pub(crate) struct Display {
    over: Arc<AtomicBool>,
    pools: Pools,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Begins to draw how a job goes, unless nobody would see it.
    pub(crate) fn begin(
        context: &DriverContext,
        job_dir: &Path,
        stopping: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let pools = Pools::default();
        let mut thread = None;
        if !context.quiet && io::stderr().is_terminal() {
            let artist = Artist {
                job_dir: job_dir.to_owned(),
                begun: Instant::now(),
                over: Arc::clone(&over),
                stopping: Arc::clone(stopping),
                pools: Arc::clone(&pools),
                engine: Arc::clone(&context.engine),
                waiting: HashMap::new(),
                counted: None,
                drawn: Vec::new(),
            };
            let builder = std::thread::Builder::new().name("display".into());
            thread = Some(builder.spawn(move || artist.run())?);
        }
        Ok(Self {
            over,
            pools,
            thread,
        })
    }

    /// Returns what tells it of the pools.
    pub(crate) fn progress(&self) -> Progress {
        let known = Arc::clone(&self.pools);
        Box::new(move |pools| {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() != pools.len() {
                *known = pools
                    .iter()
                    .map(|pool| (pool.name, Arc::clone(&pool.tally)))
                    .collect();
            }
        })
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct Artist {
    job_dir: PathBuf,
    begun: Instant,
    over: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    pools: Pools,
    engine: Arc<dyn Engine>,
    /// What waits in each stage or is in hand, as last counted.
    waiting: HashMap<&'static str, usize>,
    counted: Option<Instant>,
    /// How wide each line is that stands on the screen.
    drawn: Vec<usize>,
}

impl Artist {
    fn run(mut self) {
        let color = std::env::var_os("NO_COLOR").is_none();
        while !self.over.load(Ordering::SeqCst) {
            let scene = self.look();
            let widths = scene.lines(Paint { color: false });
            let widths = widths.iter().map(|line| line.chars().count()).collect();
            self.draw(&scene.lines(Paint { color }), widths);
            std::thread::park_timeout(EVERY);
        }
        self.draw(&[], Vec::new());
    }

    fn look(&mut self) -> Scene {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if self.counted.is_none_or(|at| at.elapsed() >= COUNT) {
            self.counted = Some(Instant::now());
            for (name, _) in &*pools {
                if let Ok(depths) = self.engine.depths(name) {
                    self.waiting.insert(name, depths.ready + depths.working);
                }
            }
        }
        let stages = pools.iter().map(|(name, tally)| StageLine {
            name,
            done: tally.done.load(Ordering::Relaxed),
            waiting: self.waiting.get(name).map_or(0, |count| *count as u64),
            blocked: tally.blocked(),
        });
        Scene {
            status: JobStatus::read(&self.job_dir).ok().flatten(),
            stages: stages.collect(),
            elapsed: self.begun.elapsed(),
            stopping: self.stopping.load(Ordering::SeqCst),
            width: show::columns(io::stderr()),
        }
    }

    /// Draws lines over those that stand there.
    fn draw(&mut self, lines: &[String], widths: Vec<usize>) {
        let columns = show::columns(io::stderr());
        let home = home(&self.drawn, columns);
        let text: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
        let back = self::home(&widths, columns);
        self.drawn = widths;
        let _ = FOOTER.draw(&mut io::stderr(), &home, text, back);
    }
}

/// What is to be seen at one moment.
struct Scene {
    status: Option<JobStatus>,
    stages: Vec<StageLine>,
    elapsed: Duration,
    stopping: bool,
    width: usize,
}

struct StageLine {
    name: &'static str,
    done: u64,
    waiting: u64,
    blocked: Option<String>,
}

impl Scene {
    /// Returns the lines, none wider than the terminal: a line that wraps cannot be drawn over.
    fn lines(&self, paint: Paint) -> Vec<String> {
        let width = self.width.saturating_sub(1);
        let mut lines = vec![paint.bold(&show::cut(&self.crawl(), width))];
        let going = self.status.as_ref();
        if let Some(status) = going.filter(|status| status.state != JobState::Finished) {
            if let Some(why) = &status.why {
                let line = format!("          {}", printable_text(why));
                lines.push(paint.yellow(&show::cut(&line, width)));
            } else if let Some(slowest) = jobs::slowest(status) {
                lines.push(paint.dim(&show::cut(&format!("          {slowest}"), width)));
            }
            if !status.last_url.is_empty() && status.state == JobState::Running {
                let line = format!("          {}", printable(status.last_url.as_bytes()));
                lines.push(paint.dim(&show::cut(&line, width)));
            }
        }
        lines.extend(self.chain(width));
        for stage in &self.stages {
            if let Some(why) = &stage.blocked {
                let line = format!("          {} waits: {why}", stage.name);
                lines.push(paint.yellow(&show::cut(&printable_text(&line), width)));
            }
        }
        if self.stopping {
            let line =
                "stopping: what is in hand is finished or given back (Ctrl-C again: at once)";
            lines.push(paint.yellow(&show::cut(line, width)));
        }
        lines
    }

    fn crawl(&self) -> String {
        let elapsed = show::age(self.elapsed.as_secs());
        let Some(status) = &self.status else {
            return format!("crawl     starting, {elapsed}");
        };
        let mut line = format!(
            "crawl     {:<9} {} done, {} queued, {} in flight, {:.1} URL/s, {}",
            jobs::word(status.state),
            status.done,
            status.queued,
            status.in_flight,
            status.urls_per_second,
            show::bytes(status.bytes),
        );
        if status.failed > 0 {
            line.push_str(&format!(", {} given up", status.failed));
        }
        line.push_str(&format!(", {elapsed}"));
        line
    }

    /// Returns each stage after the crawl: what is done, and of how much where something waits. No stage is left out: what does
    /// not fit goes on in the next line.
    fn chain(&self, width: usize) -> Vec<String> {
        const MARGIN: &str = "          ";
        let mut lines = Vec::new();
        let mut line = "chain     ".to_owned();
        for stage in self.stages.iter().filter(|stage| stage.name != Crawl::NAME) {
            let part = match (stage.done, stage.waiting) {
                (0, 0) => format!("{} -", stage.name),
                (done, 0) => format!("{} {done}", stage.name),
                (done, waiting) => format!("{} {done}/{}", stage.name, done + waiting),
            };
            if line.len() > MARGIN.len() && line.len() + part.len() > width {
                lines.push(std::mem::replace(&mut line, MARGIN.to_owned()));
            }
            line.push_str(&format!("{part}  "));
        }
        lines.push(line);
        let cut = |line: &String| show::cut(line.trim_end(), width);
        lines.iter().map(cut).collect()
    }
}

/// Returns what leads from below drawn lines to their beginning.
fn home(drawn: &[usize], width: usize) -> String {
    match rows(drawn, width) {
        0 => "\r".to_owned(),
        rows => format!("\x1b[{rows}A\r"),
    }
}

/// Returns how many rows lines take on a terminal that has become so wide since: one that was made narrower wraps them.
fn rows(drawn: &[usize], width: usize) -> usize {
    drawn.iter().map(|line| line.div_ceil(width).max(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            status: Some(JobStatus {
                state: JobState::Running,
                done: 12,
                queued: 30,
                in_flight: 2,
                failed: 1,
                bytes: 1_500_000,
                urls_per_second: 4.25,
                last_url: "http://a.example/\x1b[2J".into(),
                ..JobStatus::default()
            }),
            stages: vec![
                StageLine {
                    name: "crawl",
                    done: 0,
                    waiting: 1,
                    blocked: None,
                },
                StageLine {
                    name: "ingest",
                    done: 1,
                    waiting: 2,
                    blocked: Some("less than 1 GiB free".into()),
                },
            ],
            elapsed: Duration::from_secs(41),
            stopping: false,
            width: 100,
        }
    }

    #[test]
    fn the_lines_say_how_far_every_stage_is() {
        let lines = scene().lines(Paint { color: false });
        assert_eq!(
            lines,
            [
                "crawl     running   12 done, 30 queued, 2 in flight, 4.2 URL/s, 1.5 MB, 1 given up, 41s",
                r"          http://a.example/\u{1b}[2J",
                "chain     ingest 1/3",
                "          ingest waits: less than 1 GiB free",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut scene = scene();
        scene.width = 30;
        scene.stopping = true;
        let lines = scene.lines(Paint { color: false });
        assert!(lines.iter().all(|line| line.chars().count() < 30));
        assert!(lines.last().unwrap().starts_with("stopping"));
    }

    #[test]
    fn no_stage_is_left_out_on_a_narrow_terminal() {
        let mut scene = scene();
        let names = [
            "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge",
        ];
        let stage = |name| StageLine {
            name,
            done: 12,
            waiting: 0,
            blocked: None,
        };
        scene.stages = names.map(stage).into();
        for width in [40, 60, 80, 200] {
            scene.width = width;
            let lines = scene.lines(Paint { color: false });
            assert!(lines.iter().all(|line| line.chars().count() < width));
            let text = lines.join(" ");
            assert!(
                names
                    .iter()
                    .all(|name| text.contains(&format!("{name} 12"))),
                "{text}"
            );
        }
    }

    #[test]
    fn lines_that_the_terminal_wrapped_are_wiped_whole() {
        assert_eq!(rows(&[], 80), 0);
        assert_eq!(rows(&[79, 0, 40], 80), 3);
        assert_eq!(rows(&[79, 0, 40], 60), 4);
        assert_eq!(rows(&[79, 0, 40], 20), 7);
    }

    #[test]
    fn before_the_job_says_anything_it_starts() {
        let mut scene = scene();
        scene.status = None;
        assert_eq!(
            scene.lines(Paint { color: false })[0],
            "crawl     starting, 41s"
        );
    }
}
