//! The job order: all that a crawl is told, in one file.
//!
//! `order.toml` is read over the defaults below, which are the manners of Heritrix. Whatever is wrong in it is found at
//! once, with its line. [`Order::amend`] reads a text over a running order in the same way, and says what changed.

mod agent;
mod check;

use std::collections::BTreeMap;

use ecluse_config::{Bytes, ConfigError, Document, Problem, Span};
use serde::{Deserialize, Serialize};

use crate::canon::CanonOrder;
use crate::change::{Change, changes};
use crate::limit::Limit;
use crate::queue::{GroupBy, Grouping, Members, QueueBy};
use crate::robots::{Freshness, RobotsLimits, RobotsPolicy};
use crate::scope::ScopeOrder;
use crate::seed::{Bare, SeedList};
use crate::surts::Reach;

pub use self::agent::AgentError;

/// A job order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Order {
    /// The job: letters, digits, `_` and `.`, since it is part of file names.
    pub job: String,
    /// The harvest it is part of; likewise.
    pub harvest: String,
    /// What it is for, in words, for the warcinfo record.
    pub description: String,
    /// Which job goes first.
    pub priority: Priority,
    /// Where the crawl begins.
    pub seeds: Vec<SeedsOrder>,
    /// What a host name without a scheme means.
    pub bare_hosts: Bare,
    /// What belongs to the job.
    pub scope: ScopeOrder,
    /// What is taken for the same URL.
    pub same_url: CanonOrder,
    /// When the job has enough.
    pub budget: BudgetOrder,
    /// How servers are treated.
    pub manners: MannersOrder,
    /// What is fetched first.
    pub frontier: FrontierOrder,
    /// Whether robots.txt is heeded.
    pub robots: RobotsOrder,
    /// As whom the crawler speaks.
    pub agent: AgentOrder,
    /// Where one fetch ends.
    pub limits: LimitsOrder,
    /// Secure connections.
    pub tls: TlsOrder,
    /// Names and addresses.
    pub network: NetworkOrder,
    /// Links out of documents.
    pub extract: ExtractOrder,
    /// Captures that are stored as references to earlier ones.
    pub dedup: DedupOrder,
    /// The files that are written.
    pub warc: WarcOrder,
}

/// Which job goes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// After all others: a broad crawl.
    Low,
    /// In turn.
    #[default]
    Normal,
    /// Before all others: a selective crawl.
    High,
}

/// Seeds of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SeedsOrder {
    /// The source tag of logs and reports; without one, each seed is its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// How far they reach, when it is not as far as the scope says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// URLs or host names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// A file beside the order with one seed a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// When the job, or a queue, has enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BudgetOrder {
    /// URLs fetched.
    pub urls: Limit<u64>,
    /// Bytes received.
    pub bytes: Limit<Bytes>,
    /// Time since the job began.
    pub time: Limit<Span>,
    /// How long it waits for hosts that fail or ask for patience, once nothing else is left to do.
    pub wait: Limit<Span>,
    /// For each queue.
    pub queue: QueueBudget,
    /// For queues of certain hosts; the first that names a host holds.
    pub exceptions: Vec<BudgetException>,
}

/// When a queue has enough; then it is retired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct QueueBudget {
    /// URLs fetched.
    pub urls: Limit<u64>,
    /// Bytes received.
    pub bytes: Limit<Bytes>,
    /// Time since its first fetch.
    pub time: Limit<Span>,
    /// Whether these are the domains' own limits and not the harvest's: results tell which were reached.
    pub own: bool,
    /// What a URL that fails costs, in URLs.
    pub error_penalty: u32,
    /// URLs that a queue may fetch before another has its turn.
    pub balance: u32,
    /// How often a URL is tried.
    pub tries: u32,
    /// Until it is tried again.
    pub retry_delay: Span,
}

/// Another budget for some hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BudgetException {
    /// Hosts, or `.domains` with all below them.
    pub hosts: Vec<String>,
    /// URLs fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<Limit<u64>>,
    /// Bytes received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Limit<Bytes>>,
    /// Time since its first fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Limit<Span>>,
}

/// How servers are treated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MannersOrder {
    /// What a queue is made of.
    pub queue_by: QueueBy,
    /// What shares one delay.
    pub group_by: GroupBy,
    /// The pause is so many times as long as the last fetch took.
    pub delay_factor: f64,
    /// But at least.
    pub min_delay: Span,
    /// And at most.
    pub max_delay: Span,
    /// The pause of an address between two of its hosts.
    pub address_delay: Span,
    /// A Crawl-delay is obeyed up to this.
    pub crawl_delay_limit: Span,
    /// Connections to one group at a time.
    pub group_connections: u32,
    /// Connections at a time.
    pub connections: u32,
    /// Bytes a second, all together.
    pub bandwidth: Limit<Bytes>,
    /// Bytes a second from one group.
    pub group_bandwidth: Limit<Bytes>,
    /// What is done when a server is overloaded.
    pub back_off: BackOffOrder,
    /// Groups by name: several hosts behind one server, or a network that bears more.
    pub groups: Vec<GroupOrder>,
}

/// What is fetched first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FrontierOrder {
    /// By which importance queues, and links in a queue, have their turns.
    pub importance: ImportanceOrder,
}

/// By which importance queues, and links in a queue, have their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceOrder {
    /// By none: in the order in which they were found.
    #[default]
    None,
    /// By what links to them, found while they are crawled.
    Opic,
}

/// What is done when a server says it is overloaded, or fails repeatedly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BackOffOrder {
    /// The statuses that mean it.
    pub statuses: Vec<u16>,
    /// Failures in a row that mean it.
    pub failures: u32,
    /// The first pause, unless Retry-After says another.
    pub first: Span,
    /// By how much it grows.
    pub factor: f64,
    /// The longest pause.
    pub max: Span,
    /// A Retry-After is obeyed up to this.
    pub retry_after_limit: Span,
}

/// A group by name. What is not set is as for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct GroupOrder {
    /// By which logs name it.
    pub name: String,
    /// Hosts, or `.domains` with all below them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Addresses, or ranges of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Connections at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// As in the manners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_factor: Option<f64>,
    /// As in the manners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_delay: Option<Span>,
    /// As in the manners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Span>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Limit<Bytes>>,
}

/// Whether robots.txt is heeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RobotsOrder {
    /// For the job.
    pub policy: RobotsPolicy,
    /// Which wishes that links are not followed are heeded, where robots.txt is.
    pub nofollow: NofollowPolicy,
    /// The names by which robots.txt calls us.
    pub agents: Vec<String>,
    /// How much of a file is read.
    pub size: Bytes,
    /// How long it holds.
    pub keep: Span,
    /// Until it is asked for again, while it is unreachable.
    pub retry: Span,
    /// Unreachable for so long, it counts as absent.
    pub give_up: Span,
    /// For a host, or for a `.domain` with all below it; the longest name holds.
    pub domains: BTreeMap<String, RobotsPolicy>,
}

/// Which wishes that links are not followed are heeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NofollowPolicy {
    /// None.
    Ignore,
    /// Those of a page for all its links: `<meta name=robots content=nofollow>`, `X-Robots-Tag`.
    #[default]
    Pages,
    /// Those of a page for one link too: `rel=nofollow`.
    Links,
}

/// As whom the crawler speaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AgentOrder {
    /// The User-Agent header. `{contact}` and `{version}` are filled in.
    pub user_agent: String,
    /// Where a person can be reached, a URL or a mail address; without one, that of the site.
    pub contact: String,
    /// The From header; without one, none is sent.
    pub from: String,
    /// Whether the page that led to a URL is sent as Referer.
    pub referer: bool,
    /// What is sent as Accept-Language; without it, none is sent.
    pub accept_language: String,
    /// The encodings that are asked for.
    pub accept_encoding: String,
    /// Whether cookies are taken and sent.
    pub cookies: bool,
    /// For how long.
    pub cookies_kept: CookiesKept,
}

/// Where one fetch ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsOrder {
    /// Bytes of a response; what is longer is cut, and says so.
    pub size: Limit<Bytes>,
    /// Bytes of its head.
    pub head: Bytes,
    /// Time for all of it.
    pub time: Span,
    /// Time until a connection stands.
    pub connect: Span,
    /// Time without a byte.
    pub idle: Span,
    /// Bytes a second, at most.
    pub rate: Limit<Bytes>,
    /// Bytes a second, at least, after the first minute.
    pub min_rate: Limit<Bytes>,
    /// Bytes of a response that are kept in memory before they go to a file.
    pub memory: Bytes,
}

/// Secure connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TlsOrder {
    /// What is done with a certificate that is not valid.
    pub invalid_certificates: InvalidCertificates,
}

/// For how long cookies are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CookiesKept {
    /// As long as the job lasts: sites that let nobody in without a session are crawled.
    #[default]
    Job,
    /// While a page and what it needs are fetched: pages are as somebody sees them who comes for the first time.
    Page,
}

/// What is done with a certificate that is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidCertificates {
    /// The page is archived and the fault recorded.
    #[default]
    Record,
    /// The page is not fetched.
    Refuse,
}

/// Names and addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetworkOrder {
    /// Whether servers in private networks and on this machine are asked.
    pub allow_private: bool,
    /// Name servers with their port; without one, those of the system.
    pub resolvers: Vec<String>,
}

/// Links out of documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ExtractOrder {
    /// Links taken from one document.
    pub links: u32,
    /// Bytes of a document that are looked through, decoded.
    pub size: Bytes,
    /// Whether strings in scripts that look like URLs are taken for links.
    pub speculative: bool,
    /// Whether sitemaps are followed.
    pub sitemaps: bool,
    /// Whether `/favicon.ico` is asked for at each page's site.
    pub favicons: bool,
    /// Guesses of one pattern from one source that may end in 404 before the rest of them are given up.
    pub guess_misses: Limit<u32>,
}

/// Captures that are stored as references to earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DedupOrder {
    /// Identical payloads within the job.
    pub within_job: bool,
    /// Identical payloads of earlier jobs.
    pub across_jobs: bool,
    /// Whether a server is asked only for what has changed since the last capture.
    pub conditional: bool,
    /// Payloads smaller than this are always stored.
    pub min_size: Bytes,
}

/// The files that are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct WarcOrder {
    /// The collection, in front of the file names.
    pub prefix: String,
    /// From this size on a file is closed.
    pub size: Bytes,
    /// From this age on a file is closed.
    pub age: Limit<Span>,
    /// How records are compressed.
    pub compression: CompressionOrder,
    /// How hard gzip tries.
    pub gzip_level: u8,
    /// How often what is written is made durable.
    pub sync: Bytes,
    /// What `WARC-Payload-Digest` is of.
    pub payload_digest: PayloadDigestOf,
}

/// What `WARC-Payload-Digest` is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadDigestOf {
    /// The payload, without the sizes of its chunks: what WARC asks for.
    #[default]
    Payload,
    /// The body as it came, with the sizes of its chunks: what some validators compute.
    Body,
}

/// How records are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompressionOrder {
    /// One gzip member a record.
    #[default]
    Gzip,
    /// Not at all.
    None,
}

impl Default for BudgetOrder {
    fn default() -> BudgetOrder {
        BudgetOrder {
            urls: Limit::None,
            bytes: Limit::None,
            time: Limit::None,
            wait: Limit::At(Span::secs(1_800)),
            queue: QueueBudget::default(),
            exceptions: Vec::new(),
        }
    }
}

impl Default for QueueBudget {
    fn default() -> QueueBudget {
        QueueBudget {
            urls: Limit::None,
            bytes: Limit::None,
            time: Limit::None,
            own: false,
            error_penalty: 100,
            balance: 3_000,
            tries: 30,
            retry_delay: Span::secs(900),
        }
    }
}

impl Default for MannersOrder {
    fn default() -> MannersOrder {
        MannersOrder {
            queue_by: QueueBy::Authority,
            group_by: GroupBy::Address,
            delay_factor: 5.0,
            min_delay: Span::secs(3),
            max_delay: Span::secs(30),
            address_delay: Span::secs(1),
            crawl_delay_limit: Span::secs(300),
            group_connections: 1,
            connections: 200,
            bandwidth: Limit::None,
            group_bandwidth: Limit::None,
            back_off: BackOffOrder::default(),
            groups: Vec::new(),
        }
    }
}

impl Default for BackOffOrder {
    fn default() -> BackOffOrder {
        BackOffOrder {
            statuses: vec![429, 503],
            failures: 5,
            first: Span::secs(30),
            factor: 2.0,
            max: Span::secs(3_600),
            retry_after_limit: Span::secs(86_400),
        }
    }
}

impl Default for RobotsOrder {
    fn default() -> RobotsOrder {
        RobotsOrder {
            policy: RobotsPolicy::Obey,
            nofollow: NofollowPolicy::Pages,
            agents: vec!["ecluse".to_owned()],
            size: Bytes(500 * 1024),
            keep: Span::secs(86_400),
            retry: Span::secs(900),
            give_up: Span::secs(30 * 86_400),
            domains: BTreeMap::new(),
        }
    }
}

impl Default for AgentOrder {
    fn default() -> AgentOrder {
        AgentOrder {
            user_agent: "Mozilla/5.0 (compatible; ecluse/{version}; +{contact})".to_owned(),
            contact: String::new(),
            from: String::new(),
            referer: true,
            accept_language: String::new(),
            accept_encoding: "gzip".to_owned(),
            cookies: true,
            cookies_kept: CookiesKept::Job,
        }
    }
}

impl Default for LimitsOrder {
    fn default() -> LimitsOrder {
        LimitsOrder {
            size: Limit::At(Bytes(10_000_000_000)),
            head: Bytes(256 << 10),
            time: Span::secs(1_200),
            connect: Span::secs(20),
            idle: Span::secs(20),
            rate: Limit::None,
            min_rate: Limit::At(Bytes(64)),
            memory: Bytes(256 << 10),
        }
    }
}

impl Default for ExtractOrder {
    fn default() -> ExtractOrder {
        ExtractOrder {
            links: 6_000,
            size: Bytes(64 << 20),
            speculative: true,
            sitemaps: true,
            favicons: false,
            guess_misses: Limit::At(5),
        }
    }
}

impl Default for DedupOrder {
    fn default() -> DedupOrder {
        DedupOrder {
            within_job: true,
            across_jobs: true,
            conditional: true,
            min_size: Bytes(0),
        }
    }
}

impl Default for WarcOrder {
    fn default() -> WarcOrder {
        WarcOrder {
            prefix: String::new(),
            size: Bytes(1_000_000_000),
            age: Limit::At(Span::secs(3_600)),
            compression: CompressionOrder::Gzip,
            gzip_level: 4,
            sync: Bytes(64 << 20),
            payload_digest: PayloadDigestOf::Payload,
        }
    }
}

/// A good order, and what someone should look at.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadOrder {
    /// The order.
    pub order: Order,
    /// What is odd in it.
    pub warnings: Vec<Problem>,
}

/// A running order that was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Amended {
    /// The new order.
    pub order: Order,
    /// What is different.
    pub changes: Vec<Change>,
    /// What is odd in it.
    pub warnings: Vec<Problem>,
}

impl Order {
    /// Reads an order; `name` is what messages call it, `site_contact` the contact of the site, maybe empty.
    ///
    /// Every problem is found, not only the first.
    pub fn parse(text: &str, name: &str, site_contact: &str) -> Result<ReadOrder, ConfigError> {
        let mut document = Document::parse_over(&Order::default(), text, name);
        check::check(&mut document, site_contact);
        let (order, warnings) = finished(document)?;
        Ok(ReadOrder { order, warnings })
    }

    /// Reads a text over a running order: what it does not say stays.
    ///
    /// Job, harvest, seeds and what is taken for the same URL cannot change while the job runs.
    pub fn amend(
        &self,
        text: &str,
        name: &str,
        site_contact: &str,
    ) -> Result<Amended, ConfigError> {
        let mut document = Document::parse_over(self, text, name);
        check::check(&mut document, site_contact);
        check::check_fixed(self, &mut document);
        let (order, warnings) = finished(document)?;
        Ok(Amended {
            changes: changes("", self, &order),
            order,
            warnings,
        })
    }

    /// The User-Agent header to send; `site_contact` is used where the order has no contact.
    pub fn user_agent(&self, site_contact: &str) -> Result<String, AgentError> {
        self.agent.user_agent_header(site_contact)
    }

    /// Returns the seeds that stand in the order itself, and where those of each file belong.
    pub fn seed_list(&self) -> SeedList {
        let mut list = SeedList::new(&self.same_url, self.bare_hosts);
        for source in &self.seeds {
            for url in &source.urls {
                // A checked order has good ones only; one put together in Rust has them counted.
                let _ = list.add(url, &source.tag, source.reach);
            }
        }
        list
    }

    /// How queues are put in groups.
    ///
    /// A pattern that cannot be read is left out; a checked order has none.
    pub fn grouping(&self) -> Grouping {
        let groups = self.manners.groups.iter().map(|group| Members {
            name: group.name.clone(),
            hosts: group
                .hosts
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
            addresses: group
                .addresses
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
        });
        Grouping {
            by: self.manners.group_by,
            groups: groups.collect(),
        }
    }

    /// The budget of the queue that holds URLs of `host`.
    pub fn queue_budget(&self, host: &str) -> QueueBudget {
        let mut budget = self.budget.queue.clone();
        let exception = self.budget.exceptions.iter().find(|exception| {
            let patterns = exception.hosts.iter().filter_map(|text| text.parse().ok());
            patterns
                .into_iter()
                .any(|pattern: crate::HostPattern| pattern.matches(host))
        });
        if let Some(exception) = exception {
            budget.urls = exception.urls.unwrap_or(budget.urls);
            budget.bytes = exception.bytes.unwrap_or(budget.bytes);
            budget.time = exception.time.unwrap_or(budget.time);
        }
        budget
    }
}

fn finished(mut document: Document<Order>) -> Result<(Order, Vec<Problem>), ConfigError> {
    document.problems.sort_by_key(|problem| problem.line);
    if document.is_refused() {
        Err(ConfigError::Invalid(document.problems))
    } else {
        Ok((document.settings, document.problems))
    }
}

impl RobotsOrder {
    /// The policy for a host.
    pub fn policy_of(&self, host: &str) -> RobotsPolicy {
        let named = self.domains.iter().filter(|(name, _)| {
            let pattern: Result<crate::HostPattern, _> = name.parse();
            pattern.is_ok_and(|pattern| pattern.matches(host))
        });
        let longest = named.max_by_key(|(name, _)| name.trim_start_matches('.').len());
        longest.map_or(self.policy, |(_, policy)| *policy)
    }

    /// How much of a robots.txt is read.
    pub fn limits(&self) -> RobotsLimits {
        RobotsLimits {
            size: usize::try_from(self.size.get()).unwrap_or(usize::MAX),
            ..RobotsLimits::default()
        }
    }

    /// How long a robots.txt is kept.
    pub fn freshness(&self) -> Freshness {
        Freshness {
            keep: self.keep.get(),
            retry: self.retry.get(),
            give_up: self.give_up.get(),
        }
    }
}
