//! Checks every list that stands in two places, and prints the longest files.
//!
//! Stages (folders, the driver, `pipeline.toml`, the unit that opens sockets), the headings of a stage's
//! contract, the edges between crates, exit codes, metrics (code, alerts, dashboard), the runbook's
//! headings, fixtures, the test command (README and CI), what CI must do, the words a test may not have, and public types of one
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::flags::Flags;

/// What every stage's `lib.rs` says of itself.
const HEADINGS: [&str; 5] = [
    "**Reads**",
    "**Writes**",
    "**Never**",
    "**Holds**",
    "**Again**",
];
/// A stage's `main.rs` is glue.
const MAIN_LINES: usize = 20;
/// How many of the longest files are shown.
const SHOWN: usize = 10;

pub(crate) fn main(_flags: Flags) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace")?;
    let mut wrong = Vec::new();
    let sources = sources(root)?;
    stages(root, &mut wrong)?;
    edges(root, &mut wrong)?;
    exit_codes(root, &mut wrong)?;
    metrics(root, &mut wrong)?;
    runbook(root, &mut wrong)?;
    fixtures(root, &mut wrong)?;
    commands(root, &mut wrong)?;
    words(&sources, root, &mut wrong)?;
    types(&sources, root, &mut wrong)?;
    for line in &wrong {
        println!("{line}");
    }
    longest(&sources, root)?;
    println!("{} things are not tidy", wrong.len());
    Ok(wrong.is_empty())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn names(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn stages(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let folders = names(&root.join("stages"))?;
    let driver = read(&root.join("src/stages.rs"))?;
    let settings = read(&root.join("pipeline.toml"))?;
    let chain = settings.lines().find(|line| line.starts_with("stages ="));
    let chain = chain.context("pipeline.toml has no [chain] stages")?;
    for name in &folders {
        let library = name.replace('-', "_");
        if !driver.contains(&format!("ecluse_{library}::")) {
            wrong.push(format!("src/stages.rs: no stage {name}"));
        }
        if !settings.contains(&format!("[stage.{name}]")) {
            wrong.push(format!("pipeline.toml: no [stage.{name}]"));
        }
        if !chain.contains(&format!("\"{name}\"")) {
            wrong.push(format!("pipeline.toml: {name} is not in [chain] stages"));
        }
        let folder = root.join("stages").join(name);
        let text = read(&folder.join("src/lib.rs"))?;
        for heading in HEADINGS {
            if !text.contains(heading) {
                wrong.push(format!(
                    "stages/{name}/src/lib.rs: its contract has no {heading}"
                ));
            }
        }
        if read(&folder.join("src/main.rs"))?.lines().count() >= MAIN_LINES {
            wrong.push(format!(
                "stages/{name}/src/main.rs: {MAIN_LINES} lines or more"
            ));
        }
        let tests = read(&folder.join("tests/cli.rs"))?;
        if !tests.contains("Contract {") {
            wrong.push(format!("stages/{name}/tests/cli.rs: no contract test"));
        }
    }
    let count = driver.matches("Entry::of::<").count();
    if count != folders.len() {
        wrong.push(format!(
            "src/stages.rs: {count} stages, {} folders",
            folders.len()
        ));
    }
    Ok(())
}

/// Which crates of ours each crate may know, as ARCHITECTURE.md draws it. A stage may know any crate that no other table
/// keeps for one stage alone, and never a stage.
const KNOWS: [(&str, &[&str]); 30] = [
    (
        "access",
        &[
            "cdx",
            "changes",
            "config",
            "generation",
            "http",
            "refresh",
            "surt",
            "telemetry",
            "warc",
        ],
    ),
    ("bag", &[]),
    ("changes", &["refresh"]),
    ("ocfl", &["bag"]),
    ("engine", &["spool", "config", "failpoint", "store-clock"]),
    ("failpoint", &["spool"]),
    ("peers", &[]),
    ("surt", &[]),
    ("names", &[]),
    ("pace", &[]),
    ("refresh", &[]),
    ("warc", &[]),
    ("extract", &[]),
    ("links", &["cdx", "generation"]),
    ("frontier", &[]),
    ("manifest", &[]),
    ("generation", &["spool"]),
    ("holding", &["stage", "spool", "manifest", "warc"]),
    ("register", &["generation", "names"]),
    ("telemetry", &[]),
    ("config", &[]),
    ("spool", &[]),
    ("store-clock", &["spool"]),
    ("cdx", &["surt"]),
    ("http", &["warc"]),
    ("report", &["warc"]),
    ("scope", &["config", "surt"]),
    ("stage", &["spool", "config", "telemetry", "engine"]),
    (
        "testkit",
        &[
            "failpoint",
            "stage",
            "spool",
            "config",
            "telemetry",
            "ecluse",
        ],
    ),
    ("ecluse", &["*"]),
];
/// The crates that are the crawl's alone, and those that it shares with whoever asks web servers too. `scope` has the order, which
/// plan writes.
const CRAWL: [&str; 2] = ["frontier", "report"];
const READS_PAGES: [&str; 2] = ["crawl", "index"];
const ASKS_SERVERS: [&str; 2] = ["http", "pace"];
const WITH_ORDERS: [&str; 3] = ["crawl", "dns-filter", "plan"];

fn edges(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let stages = names(&root.join("stages"))?;
    for crate_name in names(&root.join("crates"))? {
        let file = format!("crates/{crate_name}/Cargo.toml");
        let Some((_, knows)) = KNOWS.iter().find(|(name, _)| *name == crate_name) else {
            wrong.push(format!(
                "{file}: xtask/src/tidy.rs does not say whom it knows"
            ));
            continue;
        };
        for other in ours(&read(&root.join(&file))?) {
            if !knows.contains(&other.as_str()) {
                wrong.push(format!("{file}: {crate_name} must not know {other}"));
            }
        }
    }
    for stage in &stages {
        let file = format!("stages/{stage}/Cargo.toml");
        for other in ours(&read(&root.join(&file))?) {
            if stages.contains(&other) {
                wrong.push(format!(
                    "{file}: a stage never depends on a stage ({other})"
                ));
            }
            let is_kept = CRAWL.contains(&other.as_str())
                || (stage != "dns-filter" && ASKS_SERVERS.contains(&other.as_str()))
                || (other == "extract" && !READS_PAGES.contains(&stage.as_str()))
                || (other == "scope" && !WITH_ORDERS.contains(&stage.as_str()));
            if stage != "crawl" && is_kept {
                wrong.push(format!("{file}: {other} is the crawl's"));
            }
            if ["testkit", "peers"].contains(&other.as_str()) {
                wrong.push(format!("{file}: {other} is for tests only"));
            }
        }
    }
    Ok(())
}

/// Our own crates among the dependencies of a manifest.
fn ours(manifest: &str) -> BTreeSet<String> {
    let of = |name: String| match name.strip_prefix("ecluse") {
        Some("") => Some(name),
        Some(rest) => rest.strip_prefix('-').map(str::to_owned),
        None => None,
    };
    dependencies(manifest).into_iter().filter_map(of).collect()
}

/// The codes of the shell stand in the driver's help, the runbook and the unit too.
fn exit_codes(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let shell = read(&root.join("crates/stage/src/exit.rs"))?;
    let codes: BTreeSet<&str> = shell
        .lines()
        .filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "))
        .map(|(_, code)| code)
        .filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    if codes.len() < 6 {
        wrong.push("crates/stage/src/exit.rs: no list of codes".to_owned());
    }
    for (file, mark) in [
        ("src/cli.rs", "Exit codes: "),
        ("ops/runbook.md", "Exit codes "),
    ] {
        let text = read(&root.join(file))?;
        let told = text.split(mark).nth(1).unwrap_or_default();
        let told: String = told.chars().take(220).collect();
        for code in &codes {
            let is_told = told
                .split(|c: char| !c.is_ascii_digit())
                .any(|word| word == *code);
            if !is_told {
                wrong.push(format!("{file}: no exit code {code}"));
            }
        }
    }
    let unit = read(&root.join("ops/systemd/ecluse@.service"))?;
    for line in unit.lines() {
        let codes_of = |key: &str| line.strip_prefix(key).map(str::to_owned);
        let listed = codes_of("SuccessExitStatus=").or(codes_of("RestartPreventExitStatus="));
        for code in listed.iter().flat_map(|list| list.split_whitespace()) {
            if code.bytes().all(|byte| byte.is_ascii_digit()) && !codes.contains(code) {
                wrong.push(format!(
                    "ops/systemd/ecluse@.service: no program ends with {code}"
                ));
            }
        }
    }
    Ok(())
}

/// Alerts and panels ask for metrics that exist, and every metric of a stage is looked at.
fn metrics(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    // A test there holds its list to what is rendered.
    let code = read(&root.join("crates/telemetry/tests/exposition.rs"))?;
    let quoted = code.split('"').filter(|part| is_metric(part));
    let known: BTreeSet<String> = quoted.map(str::to_owned).collect();
    let mut asked = BTreeSet::new();
    for file in [
        "ops/prometheus/ecluse.rules.yml",
        "ops/prometheus/ecluse.rules.test.yml",
        "ops/grafana/ecluse.json",
    ] {
        for name in metrics_in(&read(&root.join(file))?) {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|base| known.contains(*base))
                .unwrap_or(&name);
            if !known.contains(base) {
                wrong.push(format!("{file}: no metric {name}"));
            }
            asked.insert(base.to_owned());
        }
    }
    // Captures and bytes of a job are told by its reports; nothing is to be done about them at night.
    let seen_elsewhere = [
        "ecluse_crawl_captures",
        "ecluse_crawl_bytes",
        "ecluse_crawl_queues",
    ];
    for name in known.difference(&asked) {
        if !seen_elsewhere.contains(&name.as_str()) {
            wrong.push(format!("ops: neither an alert nor a panel shows {name}"));
        }
    }
    Ok(())
}

fn is_metric(text: &str) -> bool {
    let rest = text.strip_prefix("ecluse_");
    rest.is_some_and(|rest| {
        rest.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    })
}

/// The names of metrics in a text; a recorded one, `stage:ecluse_…:sum`, is none of ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c == ':'));
    words
        .filter(|word| is_metric(word))
        .map(str::to_owned)
        .collect()
}

/// An alert names a heading of the runbook.
fn runbook(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let text = read(&root.join("ops/runbook.md"))?;
    let headings: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(anchor)
        .collect();
    let rules = read(&root.join("ops/prometheus/ecluse.rules.yml"))?;
    for part in rules.split("runbook.md#").skip(1) {
        let name: String = part
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        if !headings.contains(&name) {
            wrong.push(format!(
                "ops/runbook.md: no heading #{name}, which an alert names"
            ));
        }
    }
    for alert in text.split('`').filter(|word| word.starts_with("Ecluse")) {
        if !rules.contains(&format!("alert: {alert}\n")) {
            wrong.push(format!("ops/runbook.md: no alert {alert}"));
        }
    }
    Ok(())
}

/// The anchor that a heading has where Markdown is shown.
fn anchor(heading: &str) -> String {
    let fit = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.chars().filter_map(fit).collect()
}

/// Every file that a test reads is named in a README beside it, with its origin.
fn fixtures(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let mut stack = vec![root.join("crates"), root.join("stages"), root.join("tests")];
    while let Some(dir) = stack.pop() {
        for name in names(&dir)? {
            let path = dir.join(&name);
            if !path.is_dir() {
                continue;
            }
            if name != "fixtures" {
                stack.push(path);
                continue;
            }
            let shown = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .display()
                .to_string();
            let Ok(readme) = fs::read_to_string(path.join("README.md")) else {
                wrong.push(format!("{shown}: no README.md"));
                continue;
            };
            for fixture in names(&path)?.iter().filter(|name| *name != "README.md") {
                if !readme.contains(fixture.as_str()) {
                    wrong.push(format!("{shown}/README.md: nothing about {fixture}"));
                }
            }
        }
    }
    Ok(())
}

/// The names in `[dependencies]`; those of tests are free.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let table = table.split("\n[").next().unwrap_or_default();
    let name = |line: &str| line.split(['.', ' ', '=']).next().map(str::to_owned);
    table.lines().filter_map(name).collect()
}

/// CI runs exactly the test command of the README.
fn commands(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let readme = read(&root.join("README.md"))?;
    let ci = read(&root.join(".ci/run"))?;
    let command = readme.lines().find(|line| line.starts_with("cargo test"));
    match command {
        Some(command) if ci.lines().any(|line| line == command) => {}
        Some(command) => wrong.push(format!(".ci/run does not run {command:?}")),
        None => wrong.push("README.md has no test command".to_owned()),
    }
    for wanted in [
        "export ECLUSE_MUST=1",
        "cargo fmt --all --check",
        "cargo clippy --workspace --all-targets -- -D warnings",
        "cargo xtask tidy",
        "cargo xtask deny",
    ] {
        if !ci.lines().any(|line| line == wanted) {
            wrong.push(format!(".ci/run has no line {wanted:?}"));
        }
    }
    Ok(())
}

fn words(sources: &[PathBuf], root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    // Put together here, so that this file is no finding itself.
    let banned = [
        ["#[ign", "ore"].concat(),
        ["#[should_", "panic"].concat(),
        ["todo", "!("].concat(),
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
    ];
    for source in sources {
        let text = read(source)?;
        for word in &banned {
            if let Some(line) = text.lines().position(|line| line.contains(word)) {
                let path = source.strip_prefix(root).unwrap_or(source);
                wrong.push(format!("{}:{}: {word}", path.display(), line + 1));
            }
        }
        if !text.starts_with("//!") && !text.starts_with("#!") {
            let path = source.strip_prefix(root).unwrap_or(source);
            wrong.push(format!("{}: does not open with //!", path.display()));
        }
    }
    Ok(())
}

/// A public type's name is clear without its module, so no two have the same. What a trait or a habit names is excepted.
fn types(sources: &[PathBuf], root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources {
        let place = path.strip_prefix(root).unwrap_or(path);
        if !place.iter().any(|part| part == "src") || place.starts_with("xtask") {
            continue;
        }
        for line in read(path)?.lines() {
            let mut words = line.split_whitespace();
            let is_type = words.next() == Some("pub")
                && matches!(words.next(), Some("struct" | "enum" | "trait" | "type"));
            let name = words.next().filter(|_| is_type).unwrap_or_default();
            let name = name.split(|letter: char| !letter.is_alphanumeric()).next();
            if let Some(name) = name.filter(|name| !["", "Settings", "Result"].contains(name)) {
                let place = place.display().to_string();
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    for (name, places) in places.iter().filter(|(_, places)| places.len() > 1) {
        wrong.push(format!("{name} is the name of {}", places.join(" and of ")));
    }
    Ok(())
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut stack: Vec<PathBuf> = [
        "src", "crates", "stages", "xtask", "tests", "benches", "fuzz",
    ]
    .iter()
    .map(|dir| root.join(dir))
    .filter(|dir| dir.is_dir())
    .collect();
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                stack.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn longest(sources: &[PathBuf], root: &Path) -> Result<()> {
    let mut lengths = Vec::new();
    for source in sources {
        let path = source.strip_prefix(root).unwrap_or(source);
        lengths.push((read(source)?.lines().count(), path.display().to_string()));
    }
    lengths.sort();
    println!("the longest files:");
    for (lines, path) in lengths.iter().rev().take(SHOWN) {
        println!("{lines:6} {path}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metrics_are_found_and_recorded_ones_are_not() {
        let text = r#"{"expr": "sum by (stage) (rate(ecluse_stage_done_total{stage=\"a\"}[5m]))"}
            record: stage:ecluse_stage_done:rate5m"#;
        let found: Vec<String> = metrics_in(text).into_iter().collect();
        assert_eq!(found, ["ecluse_stage_done_total"]);
    }

    #[test]
    fn a_heading_has_the_anchor_that_alerts_name() {
        assert_eq!(anchor("1. Parcels are held"), "1-parcels-are-held");
        assert_eq!(anchor("The disk's full"), "the-disks-full");
    }

    #[test]
    fn our_own_dependencies_are_known_from_others_and_from_those_of_tests() {
        let manifest = "[dependencies]\nclap.workspace = true\necluse-spool.workspace = true\necluse = { path = \"..\" }\n\n[dev-dependencies]\necluse-testkit.workspace = true\n";
        let ours: Vec<String> = ours(manifest).into_iter().collect();
        assert_eq!(ours, ["ecluse", "spool"]);
    }
}
