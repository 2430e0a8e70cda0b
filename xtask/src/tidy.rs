//! Checks every list that stands in two places, and prints the longest files.
//!
//! Stages (folders, the driver, `pipeline.toml`), the headings of a stage's contract, the edges
//! between crates, the test command (README and CI), and the words a test may not have.

use std::collections::BTreeSet;
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
/// Formats know no mechanism.
const FORMATS: [&str; 5] = ["surt", "warc", "cdx", "extract", "report"];
const MECHANISMS: [&str; 5] = ["spool", "stage", "config", "telemetry", "manifest"];
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
    commands(root, &mut wrong)?;
    words(&sources, root, &mut wrong)?;
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
    for name in &folders {
        let library = name.replace('-', "_");
        if !driver.contains(&format!("ecluse_{library}::")) {
            wrong.push(format!("src/stages.rs: no stage {name}"));
        }
        if !settings.contains(&format!("[stage.{name}]")) {
            wrong.push(format!("pipeline.toml: no [stage.{name}]"));
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

/// A stage never depends on a stage, a format never on a mechanism.
fn edges(root: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let stages = names(&root.join("stages"))?;
    for stage in &stages {
        let file = format!("stages/{stage}/Cargo.toml");
        let dependencies = dependencies(&read(&root.join(&file))?);
        for other in stages.iter().filter(|other| *other != stage) {
            if dependencies.contains(&format!("ecluse-{other}")) {
                wrong.push(format!(
                    "{file}: a stage never depends on a stage ({other})"
                ));
            }
        }
    }
    for format in FORMATS {
        let file = format!("crates/{format}/Cargo.toml");
        let dependencies = dependencies(&read(&root.join(&file))?);
        for mechanism in MECHANISMS {
            if dependencies.contains(&format!("ecluse-{mechanism}")) {
                wrong.push(format!(
                    "{file}: a format never depends on a mechanism ({mechanism})"
                ));
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
