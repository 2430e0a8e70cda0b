//! The list of all metrics, and the two ways to write them.
//!
//! OpenMetrics is what Prometheus asks for over HTTP. The older text format is what node_exporter's
//! textfile collector reads: it knows no `info` type, and calls a counter by the name of its sample.

use std::fmt::Write;

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

/// Every metric there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The version that runs.
    Build,
    /// Parcels by state.
    Parcels,
    /// Age of the oldest parcel by state.
    Oldest,
    /// Parcels that left the worker, by result.
    Done,
    /// Bytes of the parcels done.
    DoneBytes,
    /// Time spent on a parcel.
    Duration,
    /// When a parcel was last done.
    LastSuccess,
    /// Whether an operator paused the stage.
    Paused,
    /// Whether the machine's fault stopped the stage.
    Halted,
    /// Why the stage claims nothing.
    Blocked,
    /// Dead workers settled.
    Reaped,
    /// Whether removals are frozen.
    Frozen,
    /// Copies that were not found good.
    Copies,
    /// How long the stage gathers parcels before it works on them.
    BatchWait,
    /// URLs of a running crawl job by state.
    CrawlUrls,
    /// Captures of a running crawl job by kind.
    CrawlCaptures,
    /// Bytes a running crawl job received.
    CrawlBytes,
    /// Queues of a running crawl job by state.
    CrawlQueues,
    /// How long the slowest group of a running crawl job must still wait.
    CrawlWait,
}

/// What kind of figures a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A count that goes up.
    Counter,
    /// Counts by size.
    Histogram,
    /// A constant whose labels are the message.
    Info,
}

impl Family {
    /// All of them, in the order they are written.
    pub const ALL: [Family; 19] = [
        Family::Build,
        Family::Parcels,
        Family::Oldest,
        Family::Done,
        Family::DoneBytes,
        Family::Duration,
        Family::LastSuccess,
        Family::Paused,
        Family::Halted,
        Family::Blocked,
        Family::Reaped,
        Family::Frozen,
        Family::Copies,
        Family::BatchWait,
        Family::CrawlUrls,
        Family::CrawlCaptures,
        Family::CrawlBytes,
        Family::CrawlQueues,
        Family::CrawlWait,
    ];

    /// The name of its samples; a histogram's have a suffix besides.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Build => "ecluse_build_info",
            Family::Parcels => "ecluse_stage_parcels",
            Family::Oldest => "ecluse_stage_oldest_seconds",
            Family::Done => "ecluse_stage_done_total",
            Family::DoneBytes => "ecluse_stage_done_bytes_total",
            Family::Duration => "ecluse_stage_duration_seconds",
            Family::LastSuccess => "ecluse_stage_last_success_timestamp_seconds",
            Family::Paused => "ecluse_stage_paused",
            Family::Halted => "ecluse_stage_halted",
            Family::Blocked => "ecluse_stage_blocked",
            Family::Reaped => "ecluse_stage_reaped_total",
            Family::Frozen => "ecluse_archive_frozen",
            Family::Copies => "ecluse_archive_failing_copies",
            Family::BatchWait => "ecluse_stage_batch_wait_seconds",
            Family::CrawlUrls => "ecluse_crawl_urls",
            Family::CrawlCaptures => "ecluse_crawl_captures",
            Family::CrawlBytes => "ecluse_crawl_bytes",
            Family::CrawlQueues => "ecluse_crawl_queues",
            Family::CrawlWait => "ecluse_crawl_slowest_wait_seconds",
        }
    }

    /// What kind of figures it has.
    pub const fn kind(self) -> Kind {
        match self {
            Family::Build => Kind::Info,
            Family::Done | Family::DoneBytes | Family::Reaped => Kind::Counter,
            Family::Duration => Kind::Histogram,
            Family::Parcels
            | Family::Oldest
            | Family::LastSuccess
            | Family::Paused
            | Family::Halted
            | Family::Blocked
            | Family::Frozen
            | Family::Copies
            | Family::BatchWait
            | Family::CrawlUrls
            | Family::CrawlCaptures
            | Family::CrawlBytes
            | Family::CrawlQueues
            | Family::CrawlWait => Kind::Gauge,
        }
    }

    /// What it means, for people.
    pub const fn help(self) -> &'static str {
        match self {
            Family::Build => "The version that runs",
            Family::Parcels => "Parcels in the work directory by state",
            Family::Oldest => "Age of the oldest parcel by state, 0 when there is none",
            Family::Done => "Parcels that left a worker by result",
            Family::DoneBytes => "Bytes of the parcels done",
            Family::Duration => "Time from claim to commit of a parcel done",
            Family::LastSuccess => "When a parcel was last done, absent before the first",
            Family::Paused => "1 while an operator has paused the stage",
            Family::Halted => "1 while the machine's fault keeps the stage stopped",
            Family::Blocked => "1 while this cause keeps the stage from claiming",
            Family::Reaped => "Dead workers whose parcels were settled",
            Family::Frozen => "1 while nothing is removed because a copy was found bad",
            Family::Copies => "Copies that were not good when they were last read again",
            Family::BatchWait => {
                "How long the stage gathers parcels at most, 0 for one that does not gather"
            }
            Family::CrawlUrls => "URLs of a running crawl job by state",
            Family::CrawlCaptures => "Captures of a running crawl job by kind",
            Family::CrawlBytes => "Bytes that a running crawl job received",
            Family::CrawlQueues => "Queues of a running crawl job by state",
            Family::CrawlWait => "Time until the slowest group of a running crawl job may be asked",
        }
    }

    const fn unit(self) -> Option<&'static str> {
        match self {
            Family::Oldest
            | Family::Duration
            | Family::LastSuccess
            | Family::BatchWait
            | Family::CrawlWait => Some("seconds"),
            Family::DoneBytes | Family::CrawlBytes => Some("bytes"),
            Family::Build
            | Family::Parcels
            | Family::Done
            | Family::Paused
            | Family::Halted
            | Family::Blocked
            | Family::Reaped
            | Family::Frozen
            | Family::Copies
            | Family::CrawlUrls
            | Family::CrawlCaptures
            | Family::CrawlQueues => None,
        }
    }

    /// Writes what stands above the samples.
    pub(crate) fn write_head(self, exposition: Exposition, text: &mut String) {
        let help = self.help();
        match exposition {
            Exposition::OpenMetrics => {
                let name = self.open_name();
                let kind = self.kind().name();
                writeln!(text, "# TYPE {name} {kind}").expect("a string takes what is written");
                if let Some(unit) = self.unit() {
                    writeln!(text, "# UNIT {name} {unit}").expect("a string takes what is written");
                }
                writeln!(text, "# HELP {name} {help}").expect("a string takes what is written");
            }
            Exposition::Plain => {
                let name = self.name();
                let kind = match self.kind() {
                    Kind::Info => Kind::Gauge,
                    kind => kind,
                };
                writeln!(text, "# HELP {name} {help}").expect("a string takes what is written");
                writeln!(text, "# TYPE {name} {}", kind.name())
                    .expect("a string takes what is written");
            }
        }
    }

    /// The name that OpenMetrics gives the family: without what the type adds to its samples.
    fn open_name(self) -> &'static str {
        let suffix = match self.kind() {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let name = self.name();
        name.strip_suffix(suffix).unwrap_or(name)
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// Writes one sample.
pub(crate) fn write_sample(
    text: &mut String,
    name: &str,
    labels: &[(&str, &str)],
    value: &dyn std::fmt::Display,
) {
    text.push_str(name);
    for (index, (label, value)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    writeln!(text, " {value}").expect("a string takes what is written");
}
