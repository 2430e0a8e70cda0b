//! What must hold between settings that are each well-formed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;
use std::time::Duration;

use crate::decode::Step;
use crate::node::Value;
use crate::owners::Owned;
use crate::pipeline::{Pipeline, StageTable, base_of, shipped_stages};
use crate::problem::{Level, Problem, join, nearest, shown};
use crate::settings::{AlertLimits, EngineKind, Location, ShellSettings};
use crate::units::Free;

/// A stage's name is a directory, a unit and a metric label.
const LONGEST_NAME: usize = 48;

/// The shortest time after which a message goes to another worker.
const MIN_ACK_WAIT: Duration = Duration::from_secs(1);
/// Whoever gives a parcel shows it within half of this, whatever else is set.
const MIN_COLLECT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// More workers than this on one machine is a typing mistake.
const MOST_WORKERS: u32 = 1_024;

impl Pipeline {
    /// Returns a problem with the value at a path such as `stage.backup.targets[0].path`, at its line or at that of the
    /// nearest thing around it in the file.
    pub fn problem(&self, level: Level, path: &str, message: &str) -> Problem {
        let steps = path.split(['.', '[']).map(|step| {
            let index = step.strip_suffix(']').and_then(|index| index.parse().ok());
            index.map_or_else(|| Step::Key(step.to_owned()), Step::Index)
        });
        let line = self.tree.line_at(&steps.collect::<Vec<Step>>());
        Problem {
            level,
            file: self.file.clone(),
            line,
            key: path.to_owned(),
            message: format!("'{}': {}", shown(path), shown(message)),
        }
    }

    /// Returns what does not fit together, errors and warnings.
    ///
    /// A parsed pipeline has no errors left; one that was put together in Rust may.
    pub fn check(&self) -> Vec<Problem> {
        let mut findings = Findings {
            pipeline: self,
            problems: Vec::new(),
        };
        check_archive(self, &mut findings);
        check_engine(self, &mut findings);
        check_access(self, &mut findings);
        check_names(self, &mut findings);
        check_shells(self, &mut findings);
        check_links(self, &mut findings);
        check_loops(self, &mut findings);
        check_backups(self, &mut findings);
        check_batches(self, &mut findings);
        check_alerts(self, &mut findings);
        check_metrics(self, &mut findings);
        check_hosts(self, &mut findings);
        findings.problems
    }
}

struct Findings<'a> {
    pipeline: &'a Pipeline,
    problems: Vec<Problem>,
}

impl Findings<'_> {
    fn error(&mut self, keys: &[&str], message: String) {
        self.add(Level::Error, keys, message);
    }

    fn warning(&mut self, keys: &[&str], message: String) {
        self.add(Level::Warning, keys, message);
    }

    fn add(&mut self, level: Level, keys: &[&str], message: String) {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        // What is not set in the file has no line; its table may have one.
        let line = (1..=keys.len())
            .rev()
            .find_map(|length| self.pipeline.tree.find(&keys[..length])?.line);
        let key = keys
            .iter()
            .fold(String::new(), |path, key| join(&path, key));
        self.problems.push(Problem {
            level,
            file: self.pipeline.file.clone(),
            line,
            key,
            message,
        });
    }
}

fn check_archive(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let archive = &pipeline.archive;
    let harvested = archive.harvested.iter().map(|path| ("harvested", path));
    let index = [
        ("index", &archive.index),
        ("manifest", &archive.manifest),
        ("register", &archive.register),
        ("changes", &archive.changes),
        ("links", &archive.links),
    ];
    let stored = archive.repository.iter();
    let stored = stored.map(|location| ("repository", &location.path));
    let mut seen = BTreeSet::new();
    for (key, path) in harvested.chain(index).chain(stored) {
        let path_shown = shown(&path.display().to_string());
        let leaves_root = |step| matches!(step, Component::ParentDir);
        let message = if path.as_os_str().is_empty() || path.components().any(leaves_root) {
            format!("'archive.{key}': '{path_shown}': write a path without '..'")
        } else if !seen.insert(path) {
            format!("'archive.{key}': '{path_shown}' has two uses")
        } else {
            continue;
        };
        findings.error(&["archive", key], message);
    }
    let mut names = BTreeSet::new();
    for Location { name, .. } in &archive.repository {
        let message = if name.is_empty() || name.chars().any(char::is_control) {
            "is no name for a location"
        } else if !names.insert(name) {
            "names two locations"
        } else {
            continue;
        };
        let message = format!("'archive.repository': '{}' {message}", shown(name));
        findings.error(&["archive", "repository"], message);
    }
    for (key, is_empty) in [
        ("harvested", archive.harvested.is_empty()),
        ("repository", archive.repository.is_empty()),
    ] {
        if is_empty {
            let message = format!("'archive.{key}': at least one must be named");
            findings.error(&["archive", key], message);
        }
    }
}

fn check_access(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let access = &pipeline.access;
    if !access.listen.ip().is_loopback() {
        let message = format!(
            "'access.listen': {} can be reached from other machines",
            access.listen
        );
        findings.warning(&["access", "listen"], message);
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if access.main.is_empty() || access.main.len() > 100 || !access.main.chars().all(is_plain) {
        let message = format!(
            "'access.main': '{}': write a name of a-z 0-9 and -",
            shown(&access.main)
        );
        findings.error(&["access", "main"], message);
    }
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| access.public.strip_prefix(scheme));
    let is_host = |host: &str| {
        let host = host.trim_end_matches('/');
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(fits)
    };
    if !access.public.is_empty() && !host.is_some_and(is_host) {
        let message = format!(
            "'access.public': '{}': write scheme and host, such as \"https://archive.example.org\"",
            shown(&access.public)
        );
        findings.error(&["access", "public"], message);
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !access.user_header.bytes().all(is_token) {
        let message = format!(
            "'access.user-header': '{}' is no name of a field",
            shown(&access.user_header)
        );
        findings.error(&["access", "user-header"], message);
    }
    if !access.user_header.is_empty() && access.proxies.is_empty() {
        let message = "'access.user-header': nobody is believed: name your proxy in 'access.proxies', such as \"127.0.0.1\"";
        findings.error(&["access", "user-header"], message.to_owned());
    }
    if let Some(proxy) = access.proxy.filter(|proxy| !proxy.ip().is_loopback()) {
        let message = format!("'access.proxy': {proxy} can be reached from other machines");
        findings.warning(&["access", "proxy"], message);
    }
    let date = &access.proxy_date;
    let is_date = (4..=14).contains(&date.len()) && date.bytes().all(|byte| byte.is_ascii_digit());
    if !date.is_empty() && !is_date {
        let message = format!(
            "'access.proxy-date': '{}' is no date; write such as \"20190131\"",
            shown(date)
        );
        findings.error(&["access", "proxy-date"], message);
    }
    if access.wanted.is_some() && access.proxy.is_none() {
        let message = "'access.wanted': nothing is met without 'access.proxy'";
        findings.warning(&["access", "wanted"], message.to_owned());
    }
    for (key, value) in [
        ("readers", u64::from(access.readers)),
        ("connections", u64::from(access.connections)),
        ("scan-lines", access.scan_lines),
        ("page-lines", access.page_lines),
    ] {
        if value == 0 {
            let message = format!("'access.{key}': at least 1");
            findings.error(&["access", key], message);
        }
    }
}

fn check_names(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for stage in &pipeline.chain.stages {
        let times = seen.entry(stage).or_insert(0);
        *times += 1;
        if *times == 2 {
            let message = format!("stage '{}' stands in the chain twice", shown(stage));
            findings.error(&["chain", "stages"], message);
        }
        if !is_stage_name(stage) || stage.contains('@') {
            findings.error(&["chain", "stages"], bad_name(stage));
        }
    }
    for stage in pipeline.stages.keys() {
        if !is_stage_name(stage) || stage.contains('@') {
            findings.error(&["stage", stage], bad_name(stage));
        } else if !seen.contains_key(stage.as_str()) {
            let message = format!("stage '{stage}' has a table, but is not in the chain");
            let mut links = pipeline.stages.values().flat_map(StageTable::links);
            let is_linked = links.any(|name| base_of(name) == stage);
            if is_linked || shipped_stages().any(|shipped| shipped == stage) {
                findings.warning(&["stage", stage], message);
                continue;
            }
            // No program of that name, and nobody sends anything there: a slip.
            let mut known: Vec<&str> = seen.keys().copied().collect();
            shipped_stages().for_each(|shipped| known.push(shipped));
            let advice = nearest(stage, &known)
                .map(|near| format!("; did you mean '{near}'?"))
                .unwrap_or_default();
            findings.error(&["stage", stage], format!("{message}{advice}"));
        }
    }
}

/// Tells whether a stage may have this name: `index`, or `index@alpha` for one machine's copy.
pub fn is_stage_name(name: &str) -> bool {
    let (stage, machine) = name.split_once('@').unwrap_or((name, "one"));
    name.len() <= LONGEST_NAME && is_plain(stage) && is_plain(machine)
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn bad_name(name: &str) -> String {
    format!(
        "'{}' cannot name a stage: names are a-z, then a-z, 0-9 and '-', at most {LONGEST_NAME} letters",
        shown(name)
    )
}

fn check_shells(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let in_defaults = broken_rules(&pipeline.defaults);
    for (key, message) in &in_defaults {
        let keys: Vec<&str> = std::iter::once("defaults").chain(key.split('.')).collect();
        findings.error(&keys, format!("'defaults.{key}': {message}"));
    }
    for (stage, table) in &pipeline.stages {
        for (key, message) in broken_rules(&table.shell) {
            // What a stage merely inherits is said once.
            if in_defaults.contains(&(key, message.clone())) {
                continue;
            }
            let keys: Vec<&str> = ["stage", stage].into_iter().chain(key.split('.')).collect();
            let path = join("stage", stage);
            findings.error(&keys, format!("'{}.{key}': {message}", shown(&path)));
        }
    }
}

/// The rules that one stage's settings break, each with the key to change.
fn broken_rules(shell: &ShellSettings) -> Vec<(&'static str, String)> {
    let mut broken = Vec::new();
    let mut rule = |holds: bool, key: &'static str, message: String| {
        if !holds {
            broken.push((key, message));
        }
    };
    for (key, count) in [
        ("workers", u64::from(shell.workers)),
        ("attempts", u64::from(shell.attempts)),
        ("group.parcels", u64::from(shell.group.parcels)),
        ("batch.parcels", u64::from(shell.batch.parcels)),
    ] {
        rule(count > 0, key, "must be at least 1".to_owned());
    }
    rule(
        shell.workers <= MOST_WORKERS,
        "workers",
        format!("{} is more than {MOST_WORKERS}", shell.workers),
    );
    for (key, span) in [
        ("heartbeat", shell.heartbeat),
        ("scan", shell.scan),
        ("retry.first", shell.retry.first),
    ] {
        rule(!span.get().is_zero(), key, "must not be zero".to_owned());
    }
    rule(
        shell.low_mark < shell.high_mark,
        "low-mark",
        format!(
            "{} must be below high-mark, {}",
            shell.low_mark, shell.high_mark
        ),
    );
    let three_heartbeats = shell.heartbeat.get().checked_mul(3);
    rule(
        three_heartbeats.is_some_and(|three| three <= shell.lease.get()),
        "lease",
        format!(
            "{} must be at least three times heartbeat, {}",
            shell.lease, shell.heartbeat
        ),
    );
    rule(
        shell.keep_receipts > shell.lease,
        "keep-receipts",
        format!(
            "{} must be longer than lease, {}: a dead worker is settled by its receipts",
            shell.keep_receipts, shell.lease
        ),
    );
    let retry = &shell.retry;
    rule(
        retry.factor.is_finite() && (1.0..=1_000.0).contains(&retry.factor),
        "retry.factor",
        format!("{} must be from 1.0 to 1000.0", retry.factor),
    );
    rule(
        retry.first <= retry.max,
        "retry.max",
        format!(
            "{} must not be shorter than retry.first, {}",
            retry.max, retry.first
        ),
    );
    rule(
        retry.max <= retry.limit,
        "retry.limit",
        format!(
            "{} must not be shorter than retry.max, {}",
            retry.limit, retry.max
        ),
    );
    broken
}

fn check_links(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let known = pipeline.stage_names();
    for (stage, table) in &pipeline.stages {
        let next = table.next.iter().flatten().map(|name| ("next", name));
        let back = table.back.iter().map(|name| ("back", name));
        for (key, name) in next.chain(back) {
            if known.contains(&base_of(name)) && is_stage_name(name) {
                continue;
            }
            let advice = match nearest(name, &known) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "add it to chain.stages or give it a table".to_owned(),
            };
            let path = join(&join("stage", stage), key);
            let name = shown(name);
            let message = format!("'{}': there is no stage '{name}'; {advice}", shown(&path));
            findings.error(&["stage", stage, key], message);
        }
        for (key, names) in [
            ("next", table.next.as_deref().unwrap_or_default()),
            ("back", &table.back),
        ] {
            for (index, name) in names.iter().enumerate() {
                if names[..index].contains(name) {
                    let path = join(&join("stage", stage), key);
                    let message = format!("'{}' names '{}' twice", shown(&path), shown(name));
                    findings.error(&["stage", stage, key], message);
                }
            }
        }
    }
}

/// Finds loops of `next`; `back` is how a loop is declared.
fn check_loops(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let names = pipeline.stage_names();
    let place: BTreeMap<&str, usize> = names.iter().copied().zip(0..).collect();
    // "The stage after it" means nothing for a stage that stands twice; that was said already.
    if place.len() < names.len() {
        return;
    }
    let mut finished = BTreeSet::new();
    for name in names {
        if finished.contains(name) {
            continue;
        }
        // An explicit stack: the depth is the file's to choose.
        let mut path: Vec<(&str, Vec<&str>)> = vec![(name, pipeline.next_of(name))];
        while let Some((stage, to_visit)) = path.last_mut() {
            let Some(next) = to_visit.pop() else {
                finished.insert(*stage);
                path.pop();
                continue;
            };
            if let Some(begin) = path.iter().position(|(on_path, _)| *on_path == next) {
                let mut around: Vec<&str> = path[begin..].iter().map(|(name, _)| *name).collect();
                around.push(next);
                report_loop(&around, &place, findings);
            } else if !finished.contains(next) {
                path.push((next, pipeline.next_of(next)));
            }
        }
    }
}

/// Reports a loop at the link in it that goes against the order of the chain.
fn report_loop(around: &[&str], place: &BTreeMap<&str, usize>, findings: &mut Findings<'_>) {
    let against = around
        .windows(2)
        .find(|link| place.get(link[1]) <= place.get(link[0]));
    let Some(&[from, to]) = against else {
        return;
    };
    let message = format!(
        "stages form a loop: {}; if that is meant, name '{}' in '{}' instead of 'next'",
        shown(&around.join(" -> ")),
        shown(to),
        shown(&join(&join("stage", from), "back"))
    );
    findings.error(&["stage", from, "next"], message);
}

/// No file would ever pass a stage that asks for more proofs than there are backups.
fn check_backups(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let Some(Value::Array(targets)) = pipeline
        .own_key("backup", "targets")
        .map(|node| &node.value)
    else {
        return;
    };
    for stage in ["delete", "clean"] {
        if let Some(Value::Integer(asked)) =
            pipeline.own_key(stage, "backups").map(|node| &node.value)
            && usize::try_from(*asked).is_ok_and(|asked| asked > targets.len())
        {
            let message = format!(
                "'stage.{stage}.backups': {asked} backups are asked for, 'stage.backup.targets' has {}",
                targets.len()
            );
            findings.error(&["stage", stage, "backups"], message);
        }
    }
}

/// A stage that stops before the batch of the next one is full lets it wait for its time.
fn check_batches(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    for stage in pipeline.stage_names() {
        let high = pipeline.shell(stage).high_mark;
        for next in pipeline.next_of(stage) {
            let keys = ["stage", base_of(next), "batch"].map(str::to_owned);
            let parcels = u64::from(pipeline.shell(next).batch.parcels);
            if pipeline.tree.find(&keys).is_some() && parcels >= high {
                let message = format!(
                    "'{}.batch.parcels': {parcels} must be below the high-mark of {stage}, {high}: it stops before a batch is full",
                    keys[..2].join("."),
                );
                findings.warning(&["stage", base_of(next), "batch", "parcels"], message);
            }
        }
    }
}

fn check_alerts(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    fn rising<Quantity: PartialOrd>(limits: &AlertLimits<Quantity>) -> bool {
        limits.warn <= limits.crit
    }
    let alert = &pipeline.alert;
    for (key, holds) in [
        ("oldest", rising(&alert.oldest)),
        ("held", rising(&alert.held)),
        ("silent", rising(&alert.silent)),
    ] {
        if !holds {
            let message = format!("'alert.{key}': crit must not come before warn");
            findings.error(&["alert", key, "crit"], message);
        }
    }
    let holds = match (alert.free.warn, alert.free.crit) {
        (Free::Bytes(warn), Free::Bytes(crit)) => warn >= crit,
        (Free::Percent(warn), Free::Percent(crit)) => warn >= crit,
        // Which is more depends on the file system.
        (Free::Bytes(_), Free::Percent(_)) | (Free::Percent(_), Free::Bytes(_)) => true,
    };
    if !holds {
        let message = "'alert.free': crit must not be more than warn".to_owned();
        findings.error(&["alert", "free", "crit"], message);
    }
}

/// What must be said of an engine with servers.
fn check_engine(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let engine = &pipeline.engine;
    match engine.kind {
        EngineKind::Directories if !engine.moving => return,
        EngineKind::Directories | EngineKind::Jetstream => {}
    }
    let mut error = |key: &str, message: &str| {
        findings.error(&["engine", key], format!("'engine.{key}': {message}"));
    };
    let servers = &engine.servers;
    if servers.is_empty() {
        error(
            "servers",
            "name at least one, such as \"nats://nats1.example.org:4222\"",
        );
    }
    let is_address = |server: &String| {
        let schemes = ["nats://", "tls://"];
        schemes.iter().any(|scheme| server.starts_with(scheme))
    };
    if let Some(server) = servers.iter().find(|server| !is_address(server)) {
        let message = format!("{} must begin with nats:// or tls://", shown(server));
        error("servers", &message);
    }
    if !(1..=5).contains(&engine.replicas) {
        error("replicas", "1 to 5; 3 survive the loss of one server");
    }
    if engine.ack_wait.0 < MIN_ACK_WAIT {
        error("ack-wait", "at least 1s");
    }
    if engine.collect_after.0 < MIN_COLLECT_AFTER {
        error(
            "collect-after",
            "at least 1d: what is being put is not to be taken for what was left",
        );
    }
    let endpoint = engine.endpoint.as_str();
    if !(endpoint.starts_with("https://") || endpoint.starts_with("http://")) {
        error(
            "endpoint",
            "the address of the S3 store, with https:// or http://",
        );
    }
    if engine.bucket.is_empty() {
        error("bucket", "name the bucket, which must be there");
    }
    let is_prefix_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if engine.prefix.len() > 32 || !engine.prefix.bytes().all(is_prefix_byte) {
        error("prefix", "at most 32 of A-Z a-z 0-9 - _");
    }
    for (key, path) in [
        ("key-file", &engine.key_file),
        ("secret-file", &engine.secret_file),
        ("scratch", &engine.scratch),
    ] {
        if path.as_os_str().is_empty() {
            error(key, "name a path");
        }
    }
}

fn check_metrics(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let metrics = &pipeline.metrics;
    if let Some(address) = metrics.listen.filter(|address| !address.ip().is_loopback()) {
        let message = format!("'metrics.listen': {address} can be reached from other machines");
        findings.warning(&["metrics", "listen"], message);
    }
    let Some(textfile) = &metrics.textfile else {
        return;
    };
    let shown_path = shown(&textfile.display().to_string());
    if !textfile.is_absolute() || textfile.file_name().is_none() {
        let message = format!("'metrics.textfile': '{shown_path}' must be an absolute file name");
        findings.error(&["metrics", "textfile"], message);
    } else if textfile.extension().is_none_or(|suffix| suffix != "prom") {
        let message =
            format!("'metrics.textfile': node_exporter reads *.prom only, not '{shown_path}'");
        findings.warning(&["metrics", "textfile"], message);
    }
}

fn check_hosts(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let known = pipeline.stage_names();
    for (host, stages) in &pipeline.hosts {
        let path = shown(&join("hosts", host));
        let mut error = |message: String| {
            findings.error(&["hosts", host], format!("'{path}': {message}"));
        };
        if !is_host_name(host) {
            error("names of hosts are a-z, 0-9, '.' and '-', at most 63 letters".to_owned());
        }
        for (index, stage) in stages.iter().enumerate() {
            let is_known = known.contains(&base_of(stage)) && is_stage_name(stage);
            if !is_known {
                let advice = match nearest(stage, &known) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => "add it to chain.stages".to_owned(),
                };
                error(format!("there is no stage '{}'; {advice}", shown(stage)));
            } else if stages[..index].contains(stage) {
                error(format!("names '{stage}' twice"));
            }
        }
    }
    if pipeline.hosts.is_empty() {
        return;
    }
    if pipeline.engine.kind == EngineKind::Jetstream {
        check_owners(pipeline, findings);
    }
    check_copies(pipeline, findings);
    let hosts = pipeline.hosts.keys();
    let placed: Vec<&str> = hosts
        .filter_map(|host| pipeline.stages_on(host))
        .flatten()
        .map(base_of)
        .collect();
    for stage in &pipeline.chain.stages {
        let is_program = shipped_stages().any(|shipped| shipped == stage);
        if is_program && !placed.contains(&stage.as_str()) {
            findings.warning(&["hosts"], format!("'hosts': {stage} runs on no host"));
        }
    }
}

/// Copies that nobody gives anything, that nobody runs, or whose files nobody takes in.
fn check_copies(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let placed: BTreeSet<&str> = pipeline
        .hosts
        .keys()
        .filter_map(|host| pipeline.stages_on(host))
        .flatten()
        .collect();
    let mut given = BTreeSet::new();
    for (stage, table) in &pipeline.stages {
        for copy in table
            .next
            .iter()
            .flatten()
            .filter(|name| name.contains('@'))
        {
            given.insert(copy.as_str());
            if !placed.contains(copy.as_str()) {
                let path = join(&join("stage", stage), "next");
                let message = format!(
                    "'{}': {} runs on no host: what it gets waits for ever; name it in 'hosts'",
                    shown(&path),
                    shown(copy)
                );
                findings.warning(&["stage", stage, "next"], message);
            }
        }
    }
    for host in pipeline.hosts.keys() {
        let stages = pipeline.stages_on(host).unwrap_or_default();
        let path = shown(&join("hosts", host));
        let sends = stages.iter().any(|stage| stage.starts_with("ingest@"));
        let takes_in = stages.contains(&"ingest");
        if sends && takes_in {
            let message = format!(
                "'{path}': ingest takes in the files of this host; take its copy out, which would send them to it once more"
            );
            findings.error(&["hosts", host], message);
        }
        for stage in stages.iter().filter(|stage| stage.contains('@')) {
            let base = base_of(stage);
            if !given.contains(stage) && base != "ingest" {
                let message = format!(
                    "'{path}': no stage gives anything to {}: name it in the 'next' of the stage before {base}",
                    shown(stage)
                );
                findings.warning(&["hosts", host], message);
            }
            let has_servers = pipeline.engine.kind == EngineKind::Jetstream;
            if base == "crawl" && has_servers && !sends && !takes_in {
                let message = format!(
                    "'{path}': nobody sends the files of {} to ingest: add \"ingest@{}\", unless ingest reaches 'archive.harvested' of {host}",
                    shown(stage),
                    shown(host),
                );
                findings.warning(&["hosts", host], message);
            }
        }
    }
}

/// Whoever owns a thing runs all stages that need it: one that another host alone has would wait for ever.
fn check_owners(pipeline: &Pipeline, findings: &mut Findings<'_>) {
    let everywhere = pipeline
        .hosts
        .keys()
        .filter_map(|host| pipeline.stages_on(host));
    let things: BTreeSet<Owned> = everywhere.flatten().filter_map(Owned::by_stage).collect();
    for thing in things {
        let on = |host: &str| -> Vec<&str> {
            let stages = pipeline.stages_on(host).unwrap_or_default().into_iter();
            stages
                .filter(|stage| Owned::by_stage(stage).as_ref() == Some(&thing))
                .collect()
        };
        let hosts: Vec<(&String, Vec<&str>)> = pipeline
            .hosts
            .keys()
            .map(|host| (host, on(host)))
            .filter(|(_, stages)| !stages.is_empty())
            .collect();
        let [(first, stages), others @ ..] = hosts.as_slice() else {
            continue;
        };
        let name = thing.to_string();
        for (host, its) in others {
            let path = shown(&join("hosts", host));
            let missing = stages.iter().find(|stage| !its.contains(stage));
            let extra = its.iter().find(|stage| !stages.contains(stage));
            let (stage, with, without) = match (missing, extra) {
                (Some(stage), _) => (stage, first, host),
                (None, Some(stage)) => (stage, host, first),
                (None, None) => {
                    let message = format!(
                        "'{path}': of {first} and {host} one owns the {name} at a time and the other stands by: both must reach {}, \
                         at the same paths, on a file system that keeps locks between hosts; see docs/layouts.md",
                        thing.thing.places()
                    );
                    findings.warning(&["hosts", host], message);
                    continue;
                }
            };
            let message = format!(
                "'{path}': {} runs on {with} and not on {without}, and both have stages that need the {name}: its owner runs all of \
                 them; add {} to '{}'",
                shown(stage),
                shown(stage),
                shown(&join("hosts", without))
            );
            findings.error(&["hosts", host], message);
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 63
        && name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(is_inner)
}
