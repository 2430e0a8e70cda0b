//! All stages of a process in one exposition, and the list of all metrics.
//!
//! OpenMetrics is what Prometheus asks for over HTTP. The older text format is what node_exporter's
//! textfile collector reads.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry;

use crate::metrics::{Count, CrawlFigures, Metrics, Seconds};

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Plain,
}

impl Exposition {
    /// The media type of the text.
    pub const fn media_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The figures of every stage in this process; a clone is the same registry.
#[derive(Clone, Debug)]
pub struct Registry {
    all: Arc<registry::Registry>,
    families: Families,
    stages: Stages,
}

impl Registry {
    /// A registry without stages, of a program of this version.
    pub fn new(version: &str) -> Registry {
        let mut all = registry::Registry::default();
        let build = Info::new(vec![("version", version.to_owned())]);
        all.register("ecluse_build", "The version that runs", build);
        let families = Families::registered(&mut all);
        let stages = Stages::default();
        all.register_collector(Box::new(stages.clone()));
        Registry {
            all: Arc::new(all),
            families,
            stages,
        }
    }

    /// Returns a stage's figures; the same ones each time.
    pub fn stage(&self, stage: &str) -> Metrics {
        let mut stages = self.stages.list();
        if let Some(known) = stages.iter().find(|known| known.stage() == stage) {
            return known.clone();
        }
        let metrics = Metrics::among(&self.families, stage);
        stages.push(metrics.clone());
        metrics
    }

    /// Renders everything. OpenMetrics ends in `# EOF`, so that a cut is seen.
    pub fn render(&self, exposition: Exposition) -> String {
        let mut open = String::new();
        text::encode(&mut open, &self.all).expect("a string takes what is written");
        match exposition {
            Exposition::OpenMetrics => open,
            Exposition::Plain => plain(&open),
        }
    }
}

/// Turns OpenMetrics into the older format: it has no `info` and no end, and calls a counter by the name of its sample.
fn plain(open: &str) -> String {
    let mut plain = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        if let Some((_, told)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help = told;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            let (end, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let head = format!("# HELP {name}{end} {help}\n# TYPE {name}{end} {kind}\n");
            plain.push_str(&head);
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

type Labels = Vec<(&'static str, String)>;

/// The metrics that are always there; [`Stages`] writes the others.
#[derive(Clone, Debug)]
pub(crate) struct Families {
    pub(crate) parcels: Family<Labels, Count>,
    pub(crate) oldest: Family<Labels, Seconds>,
    pub(crate) done: Family<Labels, Counter>,
    pub(crate) done_bytes: Family<Labels, Counter>,
    pub(crate) duration: Family<Labels, Histogram>,
    pub(crate) paused: Family<Labels, Count>,
    pub(crate) halted: Family<Labels, Count>,
    pub(crate) blocked: Family<Labels, Count>,
    pub(crate) reaped: Family<Labels, Counter>,
    pub(crate) batch_wait: Family<Labels, Seconds>,
}

/// Upper bounds of the histogram in seconds. A small file takes milliseconds, a large one minutes, a crawl hours.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0,
];

impl Families {
    /// Makes all of them known to a registry, which writes `_total` behind the name of a counter.
    fn registered(all: &mut registry::Registry) -> Families {
        let families = Families {
            parcels: Family::default(),
            oldest: Family::default(),
            done: Family::default(),
            done_bytes: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            paused: Family::default(),
            halted: Family::default(),
            blocked: Family::default(),
            reaped: Family::default(),
            batch_wait: Family::default(),
        };
        let shown = families.clone();
        let help = "Parcels in the work directory by state";
        all.register("ecluse_stage_parcels", help, shown.parcels);
        let help = "Age of the oldest parcel by state, 0 when there is none";
        all.register("ecluse_stage_oldest_seconds", help, shown.oldest);
        let help = "Parcels that left a worker by result";
        all.register("ecluse_stage_done", help, shown.done);
        let help = "Bytes of the parcels done";
        all.register("ecluse_stage_done_bytes", help, shown.done_bytes);
        let help = "Time from claim to commit of a parcel done";
        all.register("ecluse_stage_duration_seconds", help, shown.duration);
        let help = "1 while an operator has paused the stage";
        all.register("ecluse_stage_paused", help, shown.paused);
        let help = "1 while the machine's fault keeps the stage stopped";
        all.register("ecluse_stage_halted", help, shown.halted);
        let help = "1 while this cause keeps the stage from claiming";
        all.register("ecluse_stage_blocked", help, shown.blocked);
        let help = "Dead workers whose parcels were settled";
        all.register("ecluse_stage_reaped", help, shown.reaped);
        let help = "How long the stage gathers parcels at most, 0 for one that does not gather";
        all.register("ecluse_stage_batch_wait_seconds", help, shown.batch_wait);
        families
    }
}

/// The stages of a registry. Writes the figures that come and go.
#[derive(Clone, Debug, Default)]
struct Stages(Arc<Mutex<Vec<Metrics>>>);

impl Stages {
    fn list(&self) -> MutexGuard<'_, Vec<Metrics>> {
        // A list of handles is never half changed; a panic elsewhere must not end the figures.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Stages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stages = self.list().clone();
        for (name, help, samples) in PASSING {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for stage in &stages {
                for (labels, value) in samples(stage) {
                    let labels = [vec![("stage", stage.stage().to_owned())], labels].concat();
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

type Samples = Vec<(Labels, f64)>;

/// A metric that comes and goes: its name, its help, and the samples of a stage.
type PassingMetric = (&'static str, &'static str, fn(&Metrics) -> Samples);

const PASSING: [PassingMetric; 8] = [
    (
        "ecluse_stage_last_success_timestamp_seconds",
        "When a parcel was last done, absent before the first.",
        |stage| match stage.passing().last_success {
            Some(at) => vec![(vec![], at.as_secs_f64())],
            None => vec![],
        },
    ),
    (
        "ecluse_archive_frozen",
        "1 while nothing is removed because a copy was found bad.",
        |stage| match stage.archive_figures() {
            Some(archive) => vec![(vec![], f64::from(u8::from(archive.frozen)))],
            None => vec![],
        },
    ),
    (
        "ecluse_archive_failing_copies",
        "Copies that were not good when they were last read again.",
        |stage| match stage.archive_figures() {
            Some(archive) => by("found", [("bad", archive.bad), ("unread", archive.unread)]),
            None => vec![],
        },
    ),
    (
        "ecluse_crawl_urls",
        "URLs of a running crawl job by state.",
        |stage| {
            of_crawls(stage, |job| {
                let states = [
                    ("known", job.known),
                    ("queued", job.queued),
                    ("in-flight", job.in_flight),
                    ("done", job.done),
                    ("failed", job.failed),
                    ("forbidden", job.forbidden),
                ];
                by("state", states)
            })
        },
    ),
    (
        "ecluse_crawl_captures",
        "Captures of a running crawl job by kind.",
        |stage| {
            of_crawls(stage, |job| {
                by(
                    "kind",
                    [("stored", job.captures), ("revisit", job.revisits)],
                )
            })
        },
    ),
    (
        "ecluse_crawl_bytes",
        "Bytes that a running crawl job received.",
        |stage| of_crawls(stage, |job| vec![(vec![], job.bytes as f64)]),
    ),
    (
        "ecluse_crawl_queues",
        "Queues of a running crawl job by state.",
        |stage| {
            of_crawls(stage, |job| {
                let states = [
                    ("active", job.active_queues),
                    ("waiting", job.waiting_queues),
                    ("retired", job.retired_queues),
                ];
                by("state", states)
            })
        },
    ),
    (
        "ecluse_crawl_slowest_wait_seconds",
        "Time until the slowest group of a running crawl job may be asked.",
        |stage| of_crawls(stage, |job| vec![(vec![], job.slowest_wait.as_secs_f64())]),
    ),
];

fn by<const N: usize>(label: &'static str, counts: [(&str, u64); N]) -> Samples {
    let sample = |(value, count): (&str, u64)| (vec![(label, value.to_owned())], count as f64);
    counts.map(sample).into()
}

fn of_crawls(stage: &Metrics, samples: fn(&CrawlFigures) -> Samples) -> Samples {
    let of_job = |(job, figures): (&String, &CrawlFigures)| {
        // Not `job`: Prometheus gives that label to what it scrapes, and would call ours `exported_job`.
        let name = ("crawl_job", job.clone());
        let named = |(labels, value): (Labels, f64)| ([vec![name.clone()], labels].concat(), value);
        samples(figures).into_iter().map(named).collect::<Samples>()
    };
    stage.passing().crawls.iter().flat_map(of_job).collect()
}
