//! The settings themselves; their values stand in the shipped `pipeline.toml` and nowhere else.
//!
//! The keys of `pipeline.toml` are the fields below, in kebab-case.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::readers::{AccessDownload, AccessPlace, AddressRange, Embargo};
use crate::units::{Bytes, Free, Span};

/// Whose archive this is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Site {
    /// The organization, as a domain name.
    pub organization: String,
    /// Which of the organization's installations, such as production or rehearsal.
    pub platform: String,
    /// Where a person can be reached.
    pub contact: String,
}

/// Where the archive lies, for every stage and every command. Relative paths begin at the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Archive {
    /// Where (W)ARC files come in: the crawl writes to the first.
    pub harvested: Vec<PathBuf>,
    /// Where they are stored.
    pub repository: Vec<Location>,
    /// The directory of the indexes.
    pub index: PathBuf,
    /// The database of every file.
    pub manifest: PathBuf,
    /// The directory of the packages.
    pub packages: PathBuf,
    /// The directory of the register of domains.
    pub register: PathBuf,
    /// The directory of what is known of the changes of pages.
    pub changes: PathBuf,
    /// The directory of links and ranks.
    pub links: PathBuf,
}

impl Archive {
    /// The directory that the crawl writes to.
    pub fn crawled(&self) -> &Path {
        let first = self.harvested.first();
        first.expect("a pipeline without one is refused")
    }
}

/// One place where files are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Location {
    /// What it is called in logs, receipts and the manifest.
    pub name: String,
    /// A directory. A relative path is below the root and is made; any other must be there, so that
    /// a disk that is not mounted is not mistaken for an empty one.
    pub path: PathBuf,
    /// Free space that stays here, instead of what transfer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_free: Option<Free>,
}

/// What carries the parcels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Plain directories, on one machine or on a file system that several share.
    Directories,
    /// NATS JetStream dispatches, an S3 store holds parcels and receipts.
    Jetstream,
}

/// Where parcels live. All keys but the first are for `jetstream`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct EngineSettings {
    /// Which engine.
    pub kind: EngineKind,
    /// The chain is on its way from one engine to the other: `kind` has the stages that `ecluse move` has not moved.
    pub moving: bool,
    /// The NATS servers.
    pub servers: Vec<String>,
    /// A file with the credentials for them, as `nsc` writes it; empty for none. See [`EngineSettings::of_user`].
    pub credentials: PathBuf,
    /// Certificate authorities of the NATS servers, in PEM; empty where they speak without TLS or are known to the machine.
    pub servers_ca: PathBuf,
    /// On how many servers each queue lies.
    pub replicas: u32,
    /// How long a parcel's message may be in one worker's hands without a sign from it.
    pub ack_wait: Span,
    /// The address of the store, with scheme.
    pub endpoint: String,
    /// The bucket, which must be there.
    pub bucket: String,
    /// What the keys of objects and the names of queues begin with.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// A file with the access key of the store.
    pub key_file: PathBuf,
    /// A file with the secret key.
    pub secret_file: PathBuf,
    /// Certificate authorities of the store, in PEM; empty for the machine's.
    pub store_ca: PathBuf,
    /// Where files of parcels in hand lie on this machine.
    pub scratch: PathBuf,
    /// How much may lie there.
    pub scratch_limit: Bytes,
    /// How often what waits in the store is held against the queues.
    pub reconcile: Span,
    /// Age at which files in the store that no parcel has are removed.
    pub collect_after: Span,
}

impl EngineSettings {
    /// Who asks the servers for the `ecluse` command, and for whatever runs several stages.
    pub const OPERATOR: &'static str = "operator";

    /// Returns the settings for one user of the servers: `{stage}` in the names of files with credentials becomes the stage's name, or
    /// [`EngineSettings::OPERATOR`].
    pub fn of_user(&self, user: &str) -> Self {
        let mut own = self.clone();
        for path in [
            &mut own.credentials,
            &mut own.key_file,
            &mut own.secret_file,
        ] {
            if let Some(text) = path.to_str() {
                *path = PathBuf::from(text.replace("{stage}", user));
            }
        }
        own
    }
}

/// What the shell around every stage needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ShellSettings {
    /// Threads that claim parcels.
    pub workers: u32,
    /// Attempts after which a parcel that kills its worker is held.
    pub attempts: u32,
    /// How a deferred parcel waits.
    pub retry: RetrySettings,
    /// How often a worker says that it lives.
    pub heartbeat: Span,
    /// How long another host's worker may be silent before it is taken for dead.
    pub lease: Span,
    /// How often the work directory is read, whatever the bell says.
    pub scan: Span,
    /// How long a dropped file must be at rest before it is adopted.
    pub settle: Span,
    /// Parcels waiting at the destination at which a stage stops claiming.
    pub high_mark: u64,
    /// Parcels waiting at the destination at which it goes on.
    pub low_mark: u64,
    /// Free space under which a stage claims nothing.
    pub min_free: Free,
    /// Parcels that share an fsync.
    pub group: ParcelGroup,
    /// Parcels that a gathering stage takes together.
    pub batch: ParcelGroup,
    /// Age at which receipts are folded into the ledger.
    pub keep_receipts: Span,
    /// How long work in hand may go on after SIGTERM before it is given back.
    pub grace: Span,
}

/// Back-off of a deferred parcel: `first`, then `factor` times as long each time, up to `max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RetrySettings {
    /// The first wait.
    pub first: Span,
    /// By how much the wait grows.
    pub factor: f64,
    /// The longest wait.
    pub max: Span,
    /// Time since the first deferral after which the parcel is held.
    pub limit: Span,
}

/// So many parcels, or as many as came within the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ParcelGroup {
    /// At most so many.
    pub parcels: u32,
    /// Counted from the first.
    pub wait: Span,
}

/// The order of the stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Chain {
    /// The stages, first to last.
    pub stages: Vec<String>,
}

/// When `ecluse check` and the alert rules speak up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertSettings {
    /// Age of the oldest waiting parcel of a stage.
    pub oldest: AlertLimits<Span>,
    /// Parcels held.
    pub held: AlertLimits<u64>,
    /// Free space.
    pub free: AlertLimits<Free>,
    /// Time since a stage last finished something.
    pub silent: AlertLimits<Span>,
}

/// Two limits: a warning, and a page in the night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertLimits<Quantity> {
    /// From here on, a warning.
    pub warn: Quantity,
    /// From here on, critical.
    pub crit: Quantity,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LogSettings {
    /// The form.
    pub format: LogFormat,
    /// The least important level that is logged.
    pub level: LogLevel,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Journald when stderr is the journal, text when it is a terminal, else JSON.
    Auto,
    /// Fields in the journal.
    Journald,
    /// One JSON object a line.
    Json,
    /// Lines for people.
    Text,
}

/// The least important level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Archived data at risk, or a person must act.
    Error,
    /// Odd, nothing lost.
    Warn,
    /// A parcel changed state.
    Info,
    /// Per file.
    Debug,
    /// Per record.
    Trace,
}

impl LogLevel {
    /// The level as log filters write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// Where figures are given out; nowhere unless the file says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MetricsSettings {
    /// The address to listen on; written as an empty string when there is none.
    #[serde(serialize_with = "or_empty", deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// The file to write; written as an empty string when there is none. May contain `{stage}`.
    #[serde(serialize_with = "path_or_empty", deserialize_with = "path")]
    pub textfile: Option<PathBuf>,
}

impl MetricsSettings {
    /// The file for one process: `{stage}` in the name becomes the stage's name.
    ///
    /// Stages that run as processes of their own would overwrite each other's file without it.
    pub fn textfile_of(&self, stage: &str) -> Option<PathBuf> {
        let path = self.textfile.as_ref()?.to_str()?;
        Some(PathBuf::from(path.replace("{stage}", stage)))
    }
}

/// How `ecluse serve` shows the archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AccessSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Scheme and host that readers type, where a proxy stands before the server; empty: as they ask.
    pub public: String,
    /// What the archive is called on its pages.
    pub title: String,
    /// What the main index is called in addresses; collections have their own names.
    pub main: String,
    /// Which capture is meant by a moment at which there is none.
    pub policy: AccessPolicy,
    /// Which captures the calendar of a page shows.
    pub calendar: AccessCalendar,
    /// Files of rules, as pywb has them.
    pub rules: Vec<PathBuf>,
    /// What holds where no rule does.
    pub default_rule: AccessRule,
    /// Which captures are kept back.
    pub embargo: Embargo,
    /// The field of a request in which a proxy names the reader's user; empty: nobody has one.
    pub user_header: String,
    /// The proxies that are believed when they name a user, or the address of a reader.
    pub proxies: Vec<AddressRange>,
    /// Which user a reader is by where he sits.
    pub places: Vec<AccessPlace>,
    /// A file of users and the digests of their tokens; none where nobody has one.
    #[serde(serialize_with = "path_or_empty", deserialize_with = "path")]
    pub tokens: Option<PathBuf>,
    /// The users who are told which rule keeps something from them.
    pub staff: Vec<String>,
    /// Who may have captures as they were archived.
    pub download: AccessDownload,
    /// The address on which browsers find us as their proxy; none where there is no proxy mode.
    #[serde(serialize_with = "or_empty", deserialize_with = "address")]
    pub proxy: Option<SocketAddr>,
    /// The directory of the CA of proxy mode; none: a state directory of the user.
    #[serde(serialize_with = "path_or_empty", deserialize_with = "path")]
    pub proxy_ca: Option<PathBuf>,
    /// The date that is seen in proxy mode until a reader chooses one, in digits; empty: the last captures.
    pub proxy_date: String,
    /// The file of URLs that were met in proxy mode and are not in the archive; none where they are not collected.
    #[serde(serialize_with = "path_or_empty", deserialize_with = "path")]
    pub wanted: Option<PathBuf>,
    /// How many of them.
    pub wanted_lines: u64,
    /// The directory of wabac.js, where it is installed; none: pages are rewritten here.
    #[serde(serialize_with = "path_or_empty", deserialize_with = "path")]
    pub wabac: Option<PathBuf>,
    /// Threads that read index and files.
    pub readers: u32,
    /// Clients that are connected at once.
    pub connections: u32,
    /// How long a client may take nothing and give nothing.
    pub patience: Span,
    /// Lines of the index that are read for one question.
    pub scan_lines: u64,
    /// Lines of the index on one page of the CDX API.
    pub page_lines: u64,
    /// Bytes of index lines in one answer.
    pub answer: Bytes,
    /// A document that is larger when it is unpacked is shown as it is, its links unchanged.
    pub rewrite: Bytes,
}

/// Which capture is meant by a moment at which there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessPolicy {
    /// The nearest.
    Closest,
    /// The last until then.
    Before,
    /// The first from then on.
    After,
}

/// Which captures the calendar of a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessCalendar {
    /// All.
    All,
    /// Those at which enough has changed since the last one shown.
    Changed,
}

/// What a reader may do with a capture: the words of pywb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessRule {
    /// See it.
    #[serde(rename = "allow", alias = "allow_ignore_embargo")]
    Allow,
    /// Know of it, but not see it.
    #[serde(rename = "block")]
    Block,
    /// Not even know of it.
    #[serde(rename = "exclude")]
    Exclude,
}

fn or_empty<S: Serializer>(address: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

fn path_or_empty<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => path.serialize(serializer),
        None => serializer.serialize_str(""),
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let advice = r#"write an address with a port such as "127.0.0.1:9464", or """#;
        de::Error::custom(format_args!("{text:?} is no address; {advice}"))
    })
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.contains('\0') {
        return Err(de::Error::custom("a path has no NUL in it"));
    }
    Ok(Some(text)
        .filter(|text| !text.is_empty())
        .map(PathBuf::from))
}
