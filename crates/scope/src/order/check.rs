//! What must hold between values that are each well-formed, and what no value may be.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ecluse_config::{AddressRange, Document, Key, Span};

use super::agent::{AgentError, is_sendable};
use super::{MannersOrder, Order, SeedsOrder};
use crate::limit::Limit;
use crate::queue::{HostPattern, PatternError};
use crate::scope::Scope;
use crate::seed::seed_urls;

/// The parts of file names have no `-`: it stands between them.
const LONGEST_NAME: usize = 64;

/// More would be no crawl but an attack.
const MOST_CONNECTIONS: u32 = 10_000;

type Path<'a> = &'a [Key<'a>];

pub(super) fn check(document: &mut Document<Order>, site_contact: &str) {
    let order = document.settings.clone();
    let mut found = Findings { document };
    check_names(&order, &mut found);
    check_seeds(&order, &mut found);
    check_scope(&order, &mut found);
    check_budget(&order, &mut found);
    check_manners(&order.manners, &mut found);
    check_groups(&order.manners, &mut found);
    check_robots(&order, &mut found);
    check_agent(&order, site_contact, &mut found);
    check_fetch(&order, &mut found);
    check_warc(&order, &mut found);
}

/// Finds what cannot change while a job runs: the frontier and the files already go by it.
pub(super) fn check_fixed(running: &Order, document: &mut Document<Order>) {
    let new = document.settings.clone();
    let mut fixed = |is_same: bool, key: &str| {
        if !is_same {
            document.error(&[Key::Name(key)], "cannot change while the job runs");
        }
    };
    fixed(new.job == running.job, "job");
    fixed(new.harvest == running.harvest, "harvest");
    fixed(new.seeds == running.seeds, "seeds");
    fixed(new.bare_hosts == running.bare_hosts, "bare-hosts");
    fixed(new.same_url == running.same_url, "same-url");
    fixed(new.priority == running.priority, "priority");
    for (is_same, key) in [
        (
            new.manners.queue_by == running.manners.queue_by,
            ["manners", "queue-by"],
        ),
        (new.warc.prefix == running.warc.prefix, ["warc", "prefix"]),
        (
            new.warc.compression == running.warc.compression,
            ["warc", "compression"],
        ),
    ] {
        if !is_same {
            document.error(&key.map(Key::Name), "cannot change while the job runs");
        }
    }
}

struct Findings<'a> {
    document: &'a mut Document<Order>,
}

impl Findings<'_> {
    fn error(&mut self, path: Path<'_>, message: &str) {
        self.document.error(path, message);
    }

    fn rule(&mut self, holds: bool, path: Path<'_>, message: &str) {
        if !holds {
            self.error(path, message);
        }
    }

    fn at_least_one(&mut self, count: u32, path: Path<'_>) {
        self.rule(count > 0, path, "must be at least 1");
    }

    fn not_zero(&mut self, span: Span, path: Path<'_>) {
        self.rule(!span.get().is_zero(), path, "must not be zero");
    }
}

fn check_names(order: &Order, found: &mut Findings<'_>) {
    for (key, name) in [("job", &order.job), ("harvest", &order.harvest)] {
        let path = [Key::Name(key)];
        if name.is_empty() {
            found.error(&path, "is not set, and has no default");
        } else if !is_name(name) {
            let message = format!(
                "{name:?} cannot be part of a file name; use up to {LONGEST_NAME} letters, digits, '_' and '.'"
            );
            found.error(&path, &message);
        }
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
}

fn check_seeds(order: &Order, found: &mut Findings<'_>) {
    if order.seeds.is_empty() {
        found.error(
            &[Key::Name("seeds")],
            "there is no seed; add [[seeds]] with urls or a file",
        );
    }
    for (index, source) in order.seeds.iter().enumerate() {
        let path = [Key::Name("seeds"), Key::Index(index)];
        check_source(source, &path, order, found);
    }
}

fn check_source(source: &SeedsOrder, path: Path<'_>, order: &Order, found: &mut Findings<'_>) {
    let below = |key| -> Vec<Key<'_>> { path.iter().copied().chain([key]).collect() };
    if source.urls.is_empty() && source.file.is_none() {
        found.error(path, "has neither urls nor a file");
    }
    if source
        .tag
        .contains(|c: char| c.is_whitespace() || c.is_control())
        || source.tag.len() > 128
    {
        let message = "a tag is one word of at most 128 bytes: it is a field of the log";
        found.error(&below(Key::Name("tag")), message);
    }
    for (index, text) in source.urls.iter().enumerate() {
        if let Err(error) = seed_urls(text, order.bare_hosts) {
            let path: Vec<Key<'_>> = below(Key::Name("urls"))
                .into_iter()
                .chain([Key::Index(index)])
                .collect();
            found.error(&path, &format!("{text:?}: {error}"));
        }
    }
    if let Some(file) = &source.file {
        let is_plain =
            !file.is_empty() && !file.contains(['/', '\\', '\0']) && !file.starts_with('.');
        let message = format!("{file:?} must be the name of a file beside the order");
        found.rule(is_plain, &below(Key::Name("file")), &message);
    }
}

fn check_scope(order: &Order, found: &mut Findings<'_>) {
    // Faults do not depend on the seeds, nor on the year.
    if let Err(errors) = Scope::compile(&order.scope, &[], 2000) {
        for error in errors.0 {
            let path: Vec<Key<'_>> = [Key::Name("scope")]
                .into_iter()
                .chain(error.key.iter().copied())
                .collect();
            found.error(&path, &error.to_string());
        }
    }
    for (index, scheme) in order.scope.schemes.iter().enumerate() {
        if !matches!(scheme.as_str(), "http" | "https") {
            let path = [Key::Name("scope"), Key::Name("schemes"), Key::Index(index)];
            found.error(
                &path,
                &format!("{scheme:?} cannot be fetched; schemes are http, https"),
            );
        }
    }
}

fn check_budget(order: &Order, found: &mut Findings<'_>) {
    let budget = &order.budget;
    for (key, is_zero) in [
        ("urls", budget.urls == Limit::At(0)),
        (
            "bytes",
            budget.bytes.get().is_some_and(|bytes| bytes.get() == 0),
        ),
        (
            "time",
            budget.time.get().is_some_and(|time| time.get().is_zero()),
        ),
    ] {
        let path = [Key::Name("budget"), Key::Name(key)];
        found.rule(
            !is_zero,
            &path,
            r#"must not be zero; write "none" for no limit"#,
        );
    }
    let queue = |key| [Key::Name("budget"), Key::Name("queue"), Key::Name(key)];
    found.at_least_one(budget.queue.balance, &queue("balance"));
    found.at_least_one(budget.queue.tries, &queue("tries"));
    found.not_zero(budget.queue.retry_delay, &queue("retry-delay"));
    for (index, exception) in budget.exceptions.iter().enumerate() {
        let path = [
            Key::Name("budget"),
            Key::Name("exceptions"),
            Key::Index(index),
        ];
        if exception.hosts.is_empty() {
            found.error(&path, "names no host");
        }
        check_hosts(&exception.hosts, &path, found);
    }
}

fn check_manners(manners: &MannersOrder, found: &mut Findings<'_>) {
    let path = |key| [Key::Name("manners"), Key::Name(key)];
    check_factor(manners.delay_factor, &path("delay-factor"), found);
    check_delays(
        manners.min_delay,
        manners.max_delay,
        &path("max-delay"),
        found,
    );
    found.at_least_one(manners.group_connections, &path("group-connections"));
    found.at_least_one(manners.connections, &path("connections"));
    for (key, count) in [
        ("connections", manners.connections),
        ("group-connections", manners.group_connections),
    ] {
        let message = format!("{count} is more than {MOST_CONNECTIONS}");
        found.rule(count <= MOST_CONNECTIONS, &path(key), &message);
    }
    for (key, limit) in [
        ("bandwidth", manners.bandwidth),
        ("group-bandwidth", manners.group_bandwidth),
    ] {
        let is_zero = limit.get().is_some_and(|bytes| bytes.get() == 0);
        found.rule(
            !is_zero,
            &path(key),
            r#"must not be zero; write "none" for no limit"#,
        );
    }
    if manners.min_delay.get().is_zero() && manners.delay_factor == 0.0 {
        let message =
            "with delay-factor 0 there is no pause at all between two requests to a server";
        found.document.warning(&path("min-delay"), message);
    }
    let back_off = |key| [Key::Name("manners"), Key::Name("back-off"), Key::Name(key)];
    let order = &manners.back_off;
    found.rule(
        order.factor.is_finite() && (1.0..=1_000.0).contains(&order.factor),
        &back_off("factor"),
        &format!("{} must be from 1.0 to 1000.0", order.factor),
    );
    found.not_zero(order.first, &back_off("first"));
    let message = format!(
        "{} must not be shorter than first, {}",
        order.max, order.first
    );
    found.rule(order.first <= order.max, &back_off("max"), &message);
    found.at_least_one(order.failures, &back_off("failures"));
    for (index, status) in order.statuses.iter().enumerate() {
        let path: Vec<Key<'_>> = back_off("statuses")
            .into_iter()
            .chain([Key::Index(index)])
            .collect();
        let message = format!("{status} is no HTTP status from 400 to 599");
        found.rule((400..=599).contains(status), &path, &message);
    }
}

fn check_factor(factor: f64, path: Path<'_>, found: &mut Findings<'_>) {
    let message = format!("{factor} must be from 0.0 to 1000.0");
    found.rule(
        factor.is_finite() && (0.0..=1_000.0).contains(&factor),
        path,
        &message,
    );
}

fn check_delays(min: Span, max: Span, path: Path<'_>, found: &mut Findings<'_>) {
    let message = format!("{max} must not be shorter than min-delay, {min}");
    found.rule(min <= max, path, &message);
}

fn check_groups(manners: &MannersOrder, found: &mut Findings<'_>) {
    let mut names = BTreeSet::new();
    for (index, group) in manners.groups.iter().enumerate() {
        let path = [Key::Name("manners"), Key::Name("groups"), Key::Index(index)];
        let below = |key| -> Vec<Key<'_>> { path.into_iter().chain([Key::Name(key)]).collect() };
        let name = group.name.as_str();
        let is_good = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= LONGEST_NAME
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name.is_empty() {
            found.error(&path, "has no name");
        } else if !is_good {
            let message =
                format!("{name:?} cannot name a group: names are a-z, then a-z, 0-9 and '-'");
            found.error(&below("name"), &message);
        } else if !names.insert(name) {
            found.error(&below("name"), &format!("there are two groups {name:?}"));
        }
        if group.hosts.is_empty() && group.addresses.is_empty() {
            found.error(&path, "has neither hosts nor addresses");
        }
        check_hosts(&group.hosts, &path, found);
        for (index, text) in group.addresses.iter().enumerate() {
            let parsed: Result<AddressRange, String> = text.parse();
            if let Err(error) = parsed {
                let path: Vec<Key<'_>> = below("addresses")
                    .into_iter()
                    .chain([Key::Index(index)])
                    .collect();
                found.error(&path, &error);
            }
        }
        if let Some(connections) = group.connections {
            found.at_least_one(connections, &below("connections"));
        }
        if let Some(factor) = group.delay_factor {
            check_factor(factor, &below("delay-factor"), found);
        }
        let min = group.min_delay.unwrap_or(manners.min_delay);
        let max = group.max_delay.unwrap_or(manners.max_delay);
        if group.min_delay.is_some() || group.max_delay.is_some() {
            let key = if group.max_delay.is_some() {
                "max-delay"
            } else {
                "min-delay"
            };
            check_delays(min, max, &below(key), found);
        }
    }
}

fn check_hosts(hosts: &[String], path: Path<'_>, found: &mut Findings<'_>) {
    for (index, text) in hosts.iter().enumerate() {
        let parsed: Result<HostPattern, PatternError> = text.parse();
        if let Err(error) = parsed {
            let below = [Key::Name("hosts"), Key::Index(index)];
            let path: Vec<Key<'_>> = path.iter().copied().chain(below).collect();
            found.error(&path, &error.to_string());
        }
    }
}

fn check_robots(order: &Order, found: &mut Findings<'_>) {
    let robots = &order.robots;
    let path = |key| [Key::Name("robots"), Key::Name(key)];
    if robots.agents.is_empty() {
        found.error(&path("agents"), "must name the crawler at least once");
    }
    for (index, agent) in robots.agents.iter().enumerate() {
        let is_token = !agent.is_empty()
            && agent
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let path: Vec<Key<'_>> = path("agents")
            .into_iter()
            .chain([Key::Index(index)])
            .collect();
        let message =
            format!("{agent:?} is no product token: use letters, digits, '-', '_' and '.'");
        found.rule(is_token, &path, &message);
    }
    for name in robots.domains.keys() {
        let parsed: Result<HostPattern, PatternError> = name.parse();
        if let Err(error) = parsed {
            found.error(
                &[Key::Name("robots"), Key::Name("domains"), Key::Name(name)],
                &error.to_string(),
            );
        }
    }
    found.not_zero(robots.retry, &path("retry"));
    found.not_zero(robots.keep, &path("keep"));
    if robots.size.get() < 500 * 1024 {
        let message = format!("{}: RFC 9309 asks for at least 500 KiB", robots.size);
        found.document.warning(&path("size"), &message);
    }
    if robots.keep > Span::secs(86_400) {
        let message = format!("{}: RFC 9309 asks for at most 24 hours", robots.keep);
        found.document.warning(&path("keep"), &message);
    }
}

fn check_agent(order: &Order, site_contact: &str, found: &mut Findings<'_>) {
    let path = |key| [Key::Name("agent"), Key::Name(key)];
    if let Err(error) = order.user_agent(site_contact) {
        let key = match &error {
            AgentError::BadContact { .. } | AgentError::NoContact { .. } => "contact",
            AgentError::Unsendable { .. } => "user-agent",
        };
        found.error(&path(key), &error.to_string());
    }
    for (key, text) in [
        ("from", &order.agent.from),
        ("accept-language", &order.agent.accept_language),
        ("accept-encoding", &order.agent.accept_encoding),
    ] {
        let message = format!("{text:?} cannot be sent in a header");
        found.rule(is_sendable(text), &path(key), &message);
    }
}

fn check_fetch(order: &Order, found: &mut Findings<'_>) {
    let limits = &order.limits;
    let path = |key| [Key::Name("limits"), Key::Name(key)];
    for (key, span) in [
        ("time", limits.time),
        ("connect", limits.connect),
        ("idle", limits.idle),
    ] {
        found.not_zero(span, &path(key));
    }
    found.rule(
        limits.head.get() >= 1_024,
        &path("head"),
        "must be at least 1 KiB",
    );
    for (key, limit) in [
        ("size", limits.size),
        ("rate", limits.rate),
        ("min-rate", limits.min_rate),
    ] {
        let is_zero = limit.get().is_some_and(|bytes| bytes.get() == 0);
        found.rule(
            !is_zero,
            &path(key),
            r#"must not be zero; write "none" for no limit"#,
        );
    }
    if let (Some(most), Some(least)) = (limits.rate.get(), limits.min_rate.get()) {
        let message = format!("{least} must be below rate, {most}");
        found.rule(least < most, &path("min-rate"), &message);
    }
    found.at_least_one(
        order.extract.links,
        &[Key::Name("extract"), Key::Name("links")],
    );
    for (index, text) in order.network.resolvers.iter().enumerate() {
        let path = [
            Key::Name("network"),
            Key::Name("resolvers"),
            Key::Index(index),
        ];
        let message = format!(r#"{text:?} is no address with a port such as "192.0.2.53:53""#);
        found.rule(text.parse::<SocketAddr>().is_ok(), &path, &message);
    }
}

fn check_warc(order: &Order, found: &mut Findings<'_>) {
    let warc = &order.warc;
    let path = |key| [Key::Name("warc"), Key::Name(key)];
    if !warc.prefix.is_empty() && !is_name(&warc.prefix) {
        let message = format!(
            "{:?} cannot be part of a file name; use up to {LONGEST_NAME} letters, digits, '_' and '.'",
            warc.prefix
        );
        found.error(&path("prefix"), &message);
    }
    let message = format!("{} must be at least 1 MB", warc.size);
    found.rule(warc.size.get() >= 1_000_000, &path("size"), &message);
    let message = format!("{} must be from 1 to 9", warc.gzip_level);
    found.rule(
        (1..=9).contains(&warc.gzip_level),
        &path("gzip-level"),
        &message,
    );
    found.rule(warc.sync.get() > 0, &path("sync"), "must not be zero");
    if let Some(age) = warc.age.get() {
        found.not_zero(age, &path("age"));
    }
}
