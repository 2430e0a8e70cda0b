//! `pipeline.toml`: the chain, its limits and every stage's settings.
//!
//! [`Pipeline`] is the whole file, read over the built-in one, so that a site's file says only what
//! differs. An unknown key is an error that names the nearest known one; a size or a duration
//! carries its unit; every complaint is one line with file, line and key. A pipeline that was
//! parsed is also consistent: [`Pipeline::parse`] refuses what [`Pipeline::check`] calls an error.
//!
//! A stage's own settings stand in the same table as the keys every stage has; the stage says
//! what they are, through [`Pipeline::stage_settings`].
//!
//! Other files of settings, such as a job's order, are read with the same care as a [`Document`].
//!
//! This crate reads the one file it is told to. It leaves to its callers the environment, the exit
//! code, and what to do with the old settings when the new ones do not parse.

mod check;
mod decode;
mod document;
mod effective;
mod locations;
mod node;
mod owners;
mod pipeline;
mod problem;
mod readers;
mod settings;
mod units;

pub use crate::check::is_stage_name;
pub use crate::document::{Document, Key};
pub use crate::owners::{Owned, OwnedThing};
pub use crate::pipeline::{Pipeline, SHIPPED, StageTable, base_of};
pub use crate::problem::{ConfigError, Level, Problem};
pub use crate::readers::{AccessDownload, AccessPlace, AddressRange, CalendarAge, Embargo};
pub use crate::settings::{
    AccessCalendar, AccessPolicy, AccessRule, AccessSettings, AlertLimits, AlertSettings, Archive,
    Chain, EngineKind, EngineSettings, Location, LogFormat, LogLevel, LogSettings, MetricsSettings,
    ParcelGroup, RetrySettings, ShellSettings, Site,
};
pub use crate::units::{Bytes, Free, Percent, Span, UnitError};
