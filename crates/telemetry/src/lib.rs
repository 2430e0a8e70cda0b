//! Logs and metrics: what a stage says about itself.
//!
//! * [`log`] sends `tracing` events to the journal, or as JSON or text to stderr.
//! * [`FOOTER`] stays below the log on a terminal: the progress of the work.
//! * [`Registry`] and [`Metrics`] hold every figure there is and render them in one exposition.
//! * [`http`] gives them out on an address, [`textfile`] in a file for node_exporter.
//! * [`printable`] makes a name from outside safe to show.
//!
//! Labels are bounded: stages, states, results and causes, never a parcel, a host or a URL. Nothing
//! here can stop the work: a log line or a scrape that fails is dropped.

mod footer;
pub mod http;
pub mod log;
mod metrics;
mod printable;
mod registry;
pub mod textfile;

pub use crate::footer::{FOOTER, Footer};
pub use crate::http::{Health, Server};
pub use crate::metrics::{
    ArchiveFigures, Cause, CrawlFigures, Depth, DepthGauges, DepthKind, Metrics, ResultKind,
};
pub use crate::printable::{printable, printable_text};
pub use crate::registry::{Exposition, Registry};
