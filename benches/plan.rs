//! What does it cost to keep a register of millions of domains, and to make jobs of them?
//!
//! In CPU-seconds, user and system together, each step in a process of its own:
//!
//! * the next generation of a register of 10 M domains of which 1 % have changed, beside `cp` of its file: worrying below half as fast;
//! * `ecluse-plan --once` with a broad harvest that is due, from a register of 5.8 M domains with results of a year before:
//!   worrying above 20 CPU-seconds or 512 MiB.
//!
//! `cargo build --release -p ecluse-plan`, then
//! `cargo bench -p ecluse-register --bench plan -- [--dir DIR] [--register N] [--domains N]`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_register::{
    DnsAnswer, HarvestResult, Register, RegisterDay, RegisterRecord, StopReason,
};
use page::Page;

/// Runs of a step of which the best counts.
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [_, "task", what, directory, count] = words[..] {
        return task(what, Path::new(directory), count.parse().unwrap());
    }
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default: u64| option(name).map_or(default, |text| text.parse().unwrap());
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    fs::create_dir_all(&directory).unwrap();
    let (records, domains) = (
        number("--register", 10_000_000),
        number("--domains", 5_800_000),
    );
    let mut page = Page::begin("plan");
    merge(&mut page, &directory, records);
    orders(&mut page, &directory, domains);
    page.end(true);
}

fn merge(page: &mut Page, directory: &Path, records: u64) {
    let root = directory.join("register");
    let _ = fs::remove_dir_all(&root);
    measured(&own("fill", &root, records));
    let file = root.join("current/register.tsv");
    let bytes = fs::metadata(&file).unwrap().len();
    let copy = directory.join("register.copy");
    let (mut cp, mut ours) = ((f64::MAX, 0), (f64::MAX, 0));
    for _ in 0..ROUNDS {
        let command = format!("cp '{}' '{}'", file.display(), copy.display());
        cp = better(cp, measured(&command));
        fs::remove_file(&copy).unwrap();
        ours = better(ours, measured(&own("change", &root, records)));
    }
    page.say(format!(
        "| {records} domains, {} MiB; best of {ROUNDS}, by turns | CPU s | peak MiB | ratio | at least |\n|---|--:|--:|--:|--:|",
        bytes >> 20
    ));
    page.say(format!("| `cp` | {:.2} | {} | 1.00 × | |", cp.0, cp.1));
    page.say(format!(
        "| the next generation, 1 % changed | {:.2} | {} | {:.2} × | 0.5 × |",
        ours.0,
        ours.1,
        cp.0 / ours.0
    ));
    fs::remove_dir_all(&root).unwrap();
}

fn orders(page: &mut Page, directory: &Path, domains: u64) {
    let root = directory.join("plan-root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("harvests")).unwrap();
    measured(&own("fill", &root.join("register"), domains));
    fs::write(
        root.join("pipeline.toml"),
        "[site]\ncontact = 'https://archive.example/'\n[chain]\nstages = ['plan', 'orders']\n[stage.plan]\nnext = ['orders']\n\
         batch = { parcels = 1000, wait = '50ms' }\n",
    )
    .unwrap();
    fs::write(root.join("clock"), "2026-11-20T03:00:10Z\n").unwrap();
    fs::write(
        root.join("harvests/broad.toml"),
        "kind = 'broad'\nfrom = '2026-11-20T03:00:00Z'\nevery = '365d'\nbudget = { urls = 2200, bytes = '100 MB' }\nselect = { unchecked = 'take' }\n",
    )
    .unwrap();
    let itself = std::env::current_exe().unwrap();
    let program = itself.ancestors().nth(2).unwrap().join("ecluse-plan");
    assert!(program.exists(), "cargo build --release -p ecluse-plan");
    let command = format!(
        "ECLUSE_CLOCK_FILE='{0}/clock' '{1}' --root '{0}' --once --log error",
        root.display(),
        program.display()
    );
    let (cpu, peak) = measured(&command);
    let run = fs::read_to_string(root.join("runs/broad/20261120030000.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["domains"], domains, "{run}");
    page.say(format!(
        "\n| {domains} domains into jobs | CPU s | at most | peak MiB | at most |\n|---|--:|--:|--:|--:|"
    ));
    page.say(format!(
        "| `ecluse-plan --once`: {} jobs, {:.0} % full, orders and seeds written | {cpu:.2} | 20 | {peak} | 512 |",
        run["jobs"],
        100.0 * run["fill"].as_f64().unwrap()
    ));
    fs::remove_dir_all(&root).unwrap();
}

fn task(what: &str, root: &Path, count: u64) {
    fs::create_dir_all(root).unwrap();
    let register = Register::at(root).unwrap();
    let (step, day) = match what {
        "fill" => (1, 1),
        _ => (100, 2),
    };
    let records = (0..count)
        .step_by(step)
        .map(|number| io::Result::Ok(domain(number, day)));
    register.update(Vec::new(), records, 1, &|| false).unwrap();
}

/// A domain as a year leaves it; its name is of a length that names have.
fn domain(number: u64, day: u8) -> RegisterRecord {
    let day = RegisterDay::new(2026, 10, day).unwrap();
    let mut record = RegisterRecord::new(&format!("site-{number:08}.fr"), day);
    record.sources.insert("afnic".into(), day);
    if number.is_multiple_of(3) {
        record.sources.insert("ovh".into(), day);
    }
    record.dns = Some(DnsAnswer {
        class: "OK_A".into(),
        day,
    });
    record.forms = vec!["apex".into(), "www".into()];
    // Most are small, some are large: a power law, and the limit.
    let dice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let objects = (1u64 << 24).checked_div(dice + 1).unwrap_or(0).min(2200);
    let stop = match objects {
        2200 => StopReason::ObjectLimit,
        _ => StopReason::DownloadComplete,
    };
    record.add_harvest(
        HarvestResult {
            job: format!("broad.202510180300.{:04}", number / 10_000),
            harvest: "broad".into(),
            day,
            objects,
            bytes: objects * 38_000,
            stop,
        },
        20,
    );
    record
}

fn own(what: &str, directory: &Path, count: u64) -> String {
    let itself = std::env::current_exe().unwrap();
    format!(
        "'{}' task {what} '{}' {count}",
        itself.display(),
        directory.display()
    )
}

fn better(one: (f64, u64), other: (f64, u64)) -> (f64, u64) {
    if other.0 < one.0 { other } else { one }
}

/// Runs a command; returns the CPU seconds of its processes, and the most memory one of them had in MiB.
fn measured(command: &str) -> (f64, u64) {
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%U %S %M", "sh", "-c", command])
        .env_remove("ECLUSE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} failed: {said}");
    let last = said.lines().last().unwrap();
    let figures: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    (figures[0] + figures[1], figures[2] as u64 / 1024)
}
