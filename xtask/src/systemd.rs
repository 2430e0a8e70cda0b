//! `cargo xtask systemd`: the units under a real systemd.
//!
//! Installs the shipped units and the sample stages in a machine of namespaces (see `machine`),
//! lets `systemd-analyze` judge the units, then sees what they do: start, work, watchdog, stop,
//! reload, path unit, wrong settings, a machine that fails. Needs root. The host keeps no trace but
//! a directory for the log beside the binaries.

mod machine;
// By path: the units are judged without building the driver they are a module of.
#[path = "../../src/units.rs"]
#[expect(unreachable_pub, reason = "a module of another package's library")]
#[allow(dead_code, reason = "the driver uses more of it")]
mod units;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::machine::Machine;
use self::units::{EngineAddresses, NetworkAccess, Start, UnitOptions, UnitPath, UnitStage};

const STAGES: [&str; 3] = ["relay", "split", "tally"];
const WORK: &str = "/srv/ecluse/work";
/// Where the tree has units that are judged but not run.
const ELSEWHERE: &str = "/usr/share/ecluse-elsewhere";
/// Dropped files are taken at once, and small parcels need no company. Nobody works at the shelf.
const PIPELINE: &str = r#"
version = 1

[defaults]
settle = "1s"
scan = "2s"
min-free = "1 MiB"
batch = { parcels = 1000, wait = "1s" }

[chain]
stages = ["relay", "split", "tally", "shelf"]

[stage.relay]
wedge-until = "/srv/ecluse/unwedge"
"#;
/// A quicker watchdog, but slower than the 5 s in which an idle worker looks around; and no core on
/// the host: 1 is the limit that a program on the other end of `core_pattern` is not started for.
const QUICK: &str = "[Service]\nWatchdogSec=24s\nRestartSec=3s\nTimeoutStopSec=60s\nLimitCORE=1\n";

const HELP: &str = "\
cargo xtask systemd

Runs the units under a systemd of their own, in namespaces. Needs root, a cgroup2 file system, and
the packages systemd and util-linux.";

/// Runs the command.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => {}
        [help] if help == "--help" || help == "-h" => {
            println!("{HELP}");
            return Ok(());
        }
        _ => bail!("unknown argument {:?}\n\n{HELP}", args[0]),
    }
    must_be_able()?;
    let programs = build()?;
    let scratch = programs.join("xtask-systemd");
    let tree = scratch.join(format!("tree-{}", std::process::id()));
    plant(&tree, &programs)?;
    let result = see_all(&scratch, &tree);
    #[expect(
        clippy::disallowed_methods,
        reason = "a tree this function has made, and no archive"
    )]
    fs::remove_dir_all(&tree)?;
    result
}

/// Says what is missing on this machine.
fn must_be_able() -> Result<()> {
    ensure!(
        fs::metadata("/proc/self")?.uid() == 0,
        "needs root, for namespaces and mounts; nothing was run"
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|d| d.join(program).exists());
    for (package, programs) in [
        (
            "systemd",
            &["systemctl", "systemd-analyze", "systemd-sysusers"][..],
        ),
        ("util-linux", &["mount", "nsenter", "setpriv", "unshare"]),
    ] {
        let missing: Vec<&str> = programs
            .iter()
            .copied()
            .filter(|program| !is_there(program))
            .collect();
        ensure!(
            missing.is_empty(),
            "cannot find {}: install the package {package}; nothing was run",
            missing.join(", ")
        );
    }
    let allowed = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "true"])
        .output()
        .context("cannot run unshare")?;
    ensure!(
        allowed.status.success(),
        "this machine allows no new namespaces, a container perhaps: {}; nothing was run",
        String::from_utf8_lossy(&allowed.stderr).trim()
    );
    Ok(())
}

/// Builds the sample stages; returns the directory they are in, which is this program's own.
fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let own = std::env::current_exe()?;
    let programs = own.parent().context("this program is in no directory")?;
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "ecluse-testkit", "--bins"])
        .current_dir(workspace());
    if programs.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cannot build the sample stages");
    Ok(programs.to_owned())
}

fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// Lays out what is installed: the programs, the shipped units with the wants of the target, the
/// user, the directories, the settings; and units for another root and other reaches, to be judged.
fn plant(tree: &Path, programs: &Path) -> Result<()> {
    let stages = stages(|_| NetworkAccess::Nothing)?;
    let options = UnitOptions::default();
    let units = UnitOptions {
        start: Start::OnWork,
        ..options.clone()
    };
    let mut files = vec![
        ("srv/ecluse/pipeline.toml".to_owned(), PIPELINE.to_owned()),
        (
            "usr/lib/sysusers.d/ecluse.conf".to_owned(),
            units::render_sysusers(&options),
        ),
        (
            "usr/lib/tmpfiles.d/ecluse.conf".to_owned(),
            units::render_tmpfiles(&stages, &options),
        ),
        (
            "etc/systemd/system/ecluse@.service.d/90-quick.conf".to_owned(),
            QUICK.to_owned(),
        ),
    ];
    // The path unit is there, and the target wants the services all the same.
    for set in [
        units::render(&stages, &units),
        units::render(&stages, &options),
    ] {
        let place = |(name, text)| (format!("etc/systemd/system/{name}"), text);
        files.extend(set.into_iter().map(place));
    }
    let path = |path: &str| UnitPath::new(Path::new(path));
    let elsewhere = UnitOptions {
        root: path("/srv/other/root")?,
        programs: path("/opt/ecluse/bin")?,
        config: Some(path("/etc/ecluse/pipeline.toml")?),
        start: Start::OnWork,
        ..UnitOptions::default()
    };
    let mut others = self::stages(|name| match name {
        "split" => NetworkAccess::World,
        "tally" => NetworkAccess::Loopback,
        _ => NetworkAccess::Nothing,
    })?;
    others[0].writable.push(path("/net/storage")?);
    others[0].engine = Some(EngineAddresses::At(vec![
        "192.0.2.1".parse()?,
        "2001:db8::2".parse()?,
    ]));
    others[0].grace = Duration::from_secs(3_600);
    for (name, text) in units::render(&others, &elsewhere) {
        files.push((format!(".{ELSEWHERE}/{name}"), text));
    }
    for (name, text) in files {
        put(&tree.join(name), text.as_bytes())?;
    }
    for stage in STAGES {
        let name = format!("ecluse-{stage}");
        let program = programs.join(&name);
        for directory in ["usr/bin", "opt/ecluse/bin"] {
            let place = tree.join(directory);
            fs::create_dir_all(&place)?;
            fs::copy(&program, place.join(&name))
                .with_context(|| format!("cannot copy {}", program.display()))?;
        }
    }
    Ok(())
}

fn stages(network: impl Fn(&str) -> NetworkAccess) -> Result<Vec<UnitStage>> {
    let stage = |name: &&str| {
        let mut stage = UnitStage::new(name).with_context(|| format!("{name} names no unit"))?;
        stage.network = network(name);
        Ok(stage)
    };
    STAGES.iter().map(stage).collect()
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

type Check = fn(&Machine) -> Result<String>;

/// The checks, in an order that matters: each leaves the machine as the next expects it.
const CHECKS: [(&str, Check); 12] = [
    ("verify", verify),
    ("security", security),
    ("start", start),
    ("confined", confined),
    ("work", work),
    ("watchdog", watchdog),
    ("journal", journal),
    ("reload", reload),
    ("stop", stop),
    ("path unit", path_unit),
    ("failed machine", failed_machine),
    ("wrong settings", wrong_settings),
];

fn see_all(scratch: &Path, tree: &Path) -> Result<()> {
    let machine = Machine::boot(scratch, tree, "ecluse.target")?;
    let version = machine.must(&["systemctl", "--version"])?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    for (name, check) in CHECKS {
        let began = Instant::now();
        match check(&machine) {
            Ok(seen) => println!(
                "ok  {name}: {seen} ({:.1} s)",
                began.elapsed().as_secs_f64()
            ),
            Err(error) => {
                let report = scratch.join("failure.log");
                fs::write(&report, circumstances(&machine))?;
                return Err(error.context(format!(
                    "{name} failed; the journal is in {}",
                    report.display()
                )));
            }
        }
    }
    println!("{} checks passed under {version}", CHECKS.len());
    Ok(())
}

fn circumstances(machine: &Machine) -> Vec<u8> {
    let mut text = Vec::new();
    for command in [
        &["systemctl", "status", "--no-pager", "--full", "ecluse*"][..],
        &["find", "/srv/ecluse", "-ls"],
        &["journalctl", "--no-pager", "--boot"],
    ] {
        text.extend_from_slice(format!("$ {}\n", command.join(" ")).as_bytes());
        match machine.run(command) {
            Ok(output) => text.extend([output.stdout, output.stderr].concat()),
            Err(error) => text.extend_from_slice(format!("{error}\n").as_bytes()),
        }
    }
    text
}

/// Nothing to complain about: neither in what is installed nor with another root and another reach.
fn verify(machine: &Machine) -> Result<String> {
    let mut names = vec!["ecluse.target".to_owned()];
    for stage in STAGES {
        names.push(format!("ecluse@{stage}.service"));
        names.push(format!("ecluse@{stage}.path"));
    }
    for directory in ["/etc/systemd/system", ELSEWHERE] {
        let path = format!("SYSTEMD_UNIT_PATH={directory}:");
        let mut command = vec!["env", &path, "systemd-analyze", "verify"];
        command.extend(names.iter().map(String::as_str));
        let output = machine.run(&command)?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && complaints.trim().is_empty(),
            "units of {directory}: {complaints}"
        );
    }
    Ok(format!("{} units, twice, not a word", names.len()))
}

/// Exposure in systemd's own scale, 0 to 10.
fn security(machine: &Machine) -> Result<String> {
    let mut seen = Vec::new();
    for (directory, stage, limit) in [
        ("/etc/systemd/system", "relay", 1.0),
        // It reaches the servers of an engine.
        (ELSEWHERE, "relay", 2.0),
        (ELSEWHERE, "split", 2.0),
        (ELSEWHERE, "tally", 2.0),
    ] {
        let path = format!("SYSTEMD_UNIT_PATH={directory}:");
        let unit = format!("ecluse@{stage}.service");
        let command = ["env", &path, "systemd-analyze", "security"];
        let options = ["--offline=true", "--no-pager", &unit];
        let text = machine.must(&[&command[..], &options[..]].concat())?;
        let level = text
            .lines()
            .find_map(|line| line.split_once("exposure level for ")?.1.split_once(": "))
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok())
            .with_context(|| format!("no level in {text}"))?;
        ensure!(level < limit, "{unit} of {directory} has {level}: {text}");
        seen.push(level.to_string());
    }
    Ok(format!(
        "{} as shipped, {} with an engine's servers, {} with network, {} with loopback",
        seen[0], seen[1], seen[2], seen[3]
    ))
}

fn start(machine: &Machine) -> Result<String> {
    for stage in STAGES {
        let unit = service(stage);
        wait_for(60, &format!("{unit} is active"), || {
            is_active(machine, &unit)
        })?;
        wait_for(20, &format!("{unit} says how it stands"), || {
            Ok(machine.show(&unit, "StatusText")?.starts_with("waiting 0 "))
        })?;
        ensure!(machine.show(&unit, "NRestarts")? == "0", "{unit} restarted");
    }
    Ok("three stages are ready by their own word".to_owned())
}

/// The sandbox is in force, not only written down.
fn confined(machine: &Machine) -> Result<String> {
    let pid = machine.show(&service("relay"), "MainPID")?;
    let status = fs::read_to_string(machine.path(&format!("/proc/{pid}/status")))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim())
            .unwrap_or_default()
    };
    let user = machine.must(&["id", "--user", "ecluse"])?;
    ensure!(field("Uid").split('\t').all(|uid| uid == user), "{status}");
    ensure!(user != "0", "the user ecluse is root");
    for (name, value) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapBnd", "0000000000000000"),
        ("CapEff", "0000000000000000"),
    ] {
        ensure!(field(name) == value, "{name} is {}", field(name));
    }
    let mounts = fs::read_to_string(machine.path(&format!("/proc/{pid}/mountinfo")))?;
    let writable: Vec<&str> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[5].split(',').any(|option| option == "rw"))
        .map(|fields| fields[4])
        .filter(|place| !is_private(place))
        .collect();
    ensure!(
        writable == ["/srv/ecluse"],
        "it can write to {writable:?}:\n{mounts}"
    );
    let own = machine.must(&["readlink", &format!("/proc/{pid}/ns/net")])?;
    let common = machine.must(&["readlink", "/proc/1/ns/net"])?;
    ensure!(own != common, "it is on the network");
    Ok(format!(
        "user {user}, no capabilities, no network, writes to its root alone"
    ))
}

/// Whether a mount is one that systemd makes for a service by itself.
fn is_private(place: &str) -> bool {
    ["/tmp", "/var/tmp", "/dev", "/proc"]
        .iter()
        .any(|own| Path::new(place).starts_with(own))
}

/// A dropped file passes all three stages.
fn work(machine: &Machine) -> Result<String> {
    drop_file(machine, "relay", "first.txt", "the first")?;
    for stage in STAGES {
        wait_for(30, &format!("{stage} has a receipt"), || {
            Ok(receipts(machine, stage)? > 0)
        })?;
    }
    let owner = fs::metadata(machine.path(&format!("{WORK}/tally/receipts")))?.uid();
    let user = machine.must(&["id", "--user", "ecluse"])?;
    ensure!(owner.to_string() == user, "receipts belong to {owner}");
    Ok("a dropped file went through the chain".to_owned())
}

/// A stage that stands still is killed and started again, and its parcel is done after all.
fn watchdog(machine: &Machine) -> Result<String> {
    let unit = service("relay");
    let done = receipts(machine, "relay")?;
    drop_file(machine, "relay", "wedge.txt", "wedge")?;
    wait_for(90, "the watchdog has bitten", || {
        Ok(machine.show(&unit, "Result")? == "watchdog")
    })?;
    // Within RestartSec=: the next process must not stand still too.
    fs::write(machine.path("/srv/ecluse/unwedge"), "")?;
    wait_for(30, "it was started again", || {
        Ok(machine.show(&unit, "NRestarts")? == "1" && is_active(machine, &unit)?)
    })?;
    wait_for(30, "the parcel is done", || {
        Ok(receipts(machine, "relay")? == done + 1)
    })?;
    // Long enough for a second bite, if the watchdog were not fed.
    std::thread::sleep(Duration::from_secs(30));
    ensure!(
        machine.show(&unit, "NRestarts")? == "1",
        "it was restarted more than once"
    );
    for stage in ["split", "tally"] {
        let restarts = machine.show(&service(stage), "NRestarts")?;
        ensure!(restarts == "0", "{stage} was idle, and restarted");
    }
    Ok("NRestarts=1, the parcel is done, idle stages are let alone".to_owned())
}

/// What `ops/journal.md` says stands in the journal.
fn journal(machine: &Machine) -> Result<String> {
    drop_file(machine, "relay", "bad.txt", "hold this")?;
    wait_for(30, "a parcel is held", || {
        Ok(count(machine, "relay", "held")? > 0)
    })?;
    let entry = |matches: &[&str]| {
        let command = ["journalctl", "--no-pager", "--output", "json", "--lines=1"];
        machine.must(&[&command[..], matches].concat())
    };
    wait_for(10, "the hold is in the journal", || {
        let held = entry(&["ECLUSE_STAGE=relay", "PRIORITY=4"])?;
        Ok(held.contains("asks to be held"))
    })?;
    let held = entry(&["ECLUSE_STAGE=relay", "PRIORITY=4"])?;
    for field in [
        "\"ECLUSE_PARCEL\"",
        "\"ECLUSE_REASON\"",
        "\"ECLUSE_TARGET\"",
        "\"SYSLOG_IDENTIFIER\":\"ecluse-relay\"",
        "\"_SYSTEMD_UNIT\":\"ecluse@relay.service\"",
    ] {
        ensure!(held.contains(field), "no {field} in {held}");
    }
    let dead = machine.must(&["journalctl", "--no-pager", "--field", "ECLUSE_DEAD"])?;
    ensure!(dead.lines().count() == 1, "settled workers: {dead:?}");
    Ok("a held parcel and a dead worker are there with their fields".to_owned())
}

/// Right settings are taken up, wrong ones refused; the process stays.
fn reload(machine: &Machine) -> Result<String> {
    let unit = service("relay");
    let pid = machine.show(&unit, "MainPID")?;
    machine.must(&["systemctl", "reload", &unit])?;
    let said = ["journalctl", "--no-pager", "--unit", &unit, "--grep"];
    wait_for(10, "the settings were read again", || {
        let said = machine.run(&[&said[..], &["settings read again"]].concat())?;
        Ok(said.status.success())
    })?;
    let settings = machine.path("/srv/ecluse/pipeline.toml");
    fs::write(&settings, PIPELINE.replace("settle", "setle"))?;
    let refused = machine.run(&["systemctl", "reload", &unit])?;
    fs::write(&settings, PIPELINE)?;
    ensure!(!refused.status.success(), "wrong settings were reloaded");
    ensure!(is_active(machine, &unit)?, "the reload has ended it");
    ensure!(machine.show(&unit, "MainPID")? == pid, "another process");
    Ok("taken up when right, refused when wrong, by the same process".to_owned())
}

/// One parcel in hand, one waiting: both are there afterwards, and nobody holds them.
fn stop(machine: &Machine) -> Result<String> {
    let unit = service("relay");
    let state = |property| machine.show(&unit, property);
    let done = receipts(machine, "relay")?;
    drop_file(machine, "relay", "long.txt", "sleep 600000")?;
    wait_for(30, "a parcel is in hand", || Ok(in_hand(machine)? == 1))?;
    drop_file(machine, "relay", "next.txt", "the next")?;
    let began = Instant::now();
    machine.must(&["systemctl", "stop", &unit])?;
    let took = began.elapsed();
    ensure!(state("ActiveState")? == "inactive", "it is still there");
    // It has held a parcel in its life, which is no failure of its end.
    let (code, result) = (state("ExecMainStatus")?, state("Result")?);
    ensure!(code == "0" && result == "success", "{code}, {result}");
    ensure!(took < Duration::from_secs(20), "it took {took:?}");
    ensure!(count(machine, "relay", "claim")? == 0, "a worker is left");
    let waiting = count(machine, "relay", "ready")? + count(machine, "relay", "drop")?;
    let finished = receipts(machine, "relay")? - done;
    ensure!(
        waiting + finished == 2 && waiting >= 1,
        "{waiting} waiting and {finished} done of 2"
    );
    for stage in ["split", "tally"] {
        machine.must(&["systemctl", "stop", &service(stage)])?;
        let code = machine.show(&service(stage), "ExecMainStatus")?;
        ensure!(code == "0", "{stage} ended with {code}");
    }
    Ok(format!(
        "exit {code} after {:.1} s with a parcel in hand, {waiting} of 2 given back",
        took.as_secs_f64()
    ))
}

/// Starts a stage when something is dropped, and because of what waits already.
fn path_unit(machine: &Machine) -> Result<String> {
    let unit = service("split");
    machine.must(&["systemctl", "start", "ecluse@split.path"])?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(!is_active(machine, &unit)?, "started without work");
    let done = receipts(machine, "split")?;
    drop_file(machine, "split", "path.txt", "a parcel")?;
    wait_for(30, "the path unit has started it", || {
        is_active(machine, &unit)
    })?;
    wait_for(30, "the parcel is done", || {
        Ok(receipts(machine, "split")? == done + 1)
    })?;
    // Relay was stopped with work waiting: nothing new comes, and it must start all the same.
    ensure!(!is_active(machine, &service("relay"))?, "relay runs");
    machine.must(&["systemctl", "start", "ecluse@relay.path"])?;
    wait_for(30, "what waits has started it", || {
        is_active(machine, &service("relay"))
    })?;
    for stage in ["split", "relay"] {
        machine.must(&["systemctl", "stop", &format!("ecluse@{stage}.path")])?;
        machine.must(&["systemctl", "stop", &service(stage)])?;
    }
    Ok("started by a new file, and by one that waited".to_owned())
}

/// A root that cannot be written is tried again and again; then the stage goes on by itself.
fn failed_machine(machine: &Machine) -> Result<String> {
    let unit = service("tally");
    let remount = |how: &str| {
        let options = format!("remount,{how}");
        machine.must(&["mount", "-o", &options, "/srv/ecluse"])
    };
    remount("ro")?;
    machine.must(&["systemctl", "start", "--no-block", &unit])?;
    // Between two attempts the code is that of the last one: asked for in one question.
    let mut codes = Vec::new();
    let tried = wait_for(60, "it is tried again", || {
        let both = "--property=SubState,ExecMainStatus";
        let shown = machine.must(&["systemctl", "show", both, &unit])?;
        if shown.contains("SubState=auto-restart") {
            let code = shown
                .lines()
                .find_map(|line| line.strip_prefix("ExecMainStatus="));
            codes.push(code.unwrap_or("none").to_owned());
        }
        Ok(machine.show(&unit, "NRestarts")?.parse::<u32>()? >= 2)
    });
    remount("rw")?;
    tried?;
    codes.dedup();
    ensure!(codes == ["74"], "it ended with {codes:?}");
    wait_for(30, "it is well again", || is_active(machine, &unit))?;
    machine.must(&["systemctl", "stop", &unit])?;
    Ok("74 on a read-only disk, tried again, active when it can write".to_owned())
}

/// Ends with 78, is shown as failed, and is not tried again.
fn wrong_settings(machine: &Machine) -> Result<String> {
    let unit = service("tally");
    let settings = machine.path("/srv/ecluse/pipeline.toml");
    fs::write(&settings, PIPELINE.replace("settle", "setle"))?;
    machine.must(&["systemctl", "reset-failed", "ecluse@*"])?;
    let start = machine.run(&["systemctl", "start", &unit])?;
    ensure!(!start.status.success(), "it starts with wrong settings");
    // Longer than RestartSec=.
    std::thread::sleep(Duration::from_secs(5));
    fs::write(&settings, PIPELINE)?;
    let state = |property| machine.show(&unit, property);
    ensure!(
        state("ActiveState")? == "failed",
        "{}",
        state("ActiveState")?
    );
    ensure!(
        state("ExecMainStatus")? == "78",
        "{}",
        state("ExecMainStatus")?
    );
    ensure!(state("NRestarts")? == "0", "it was tried again");
    machine.must(&["systemctl", "reset-failed", &unit])?;
    machine.must(&["systemctl", "start", "ecluse.target"])?;
    for stage in STAGES {
        wait_for(30, &format!("{stage} is active"), || {
            is_active(machine, &service(stage))
        })?;
    }
    machine.must(&["systemctl", "stop", "ecluse.target"])?;
    for stage in STAGES {
        ensure!(!is_active(machine, &service(stage))?, "{stage} goes on");
    }
    Ok("failed with 78, not restarted; the target starts and stops all".to_owned())
}

fn service(stage: &str) -> String {
    format!("ecluse@{stage}.service")
}

fn is_active(machine: &Machine, unit: &str) -> Result<bool> {
    Ok(machine.show(unit, "ActiveState")? == "active")
}

/// Puts a file into a stage's `drop/`, as another program with umask 002 would; the group is the
/// directory's.
fn drop_file(machine: &Machine, stage: &str, name: &str, text: &str) -> Result<()> {
    let path = format!("{WORK}/{stage}/drop/{name}");
    let script = r#"umask 002; printf %s "$1" >"$2""#;
    machine.must(&["sh", "-c", script, "sh", text, &path])?;
    Ok(())
}

/// Counts the entries of a directory of a stage.
fn count(machine: &Machine, stage: &str, directory: &str) -> Result<usize> {
    let path = machine.path(&format!("{WORK}/{stage}/{directory}"));
    let entries = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_parcel = |name: &str| !name.starts_with('.');
    Ok(entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_parcel))
        .count())
}

/// Counts the parcels that relay's workers have.
fn in_hand(machine: &Machine) -> Result<usize> {
    let claims = machine.path(&format!("{WORK}/relay/claim"));
    let mut parcels = 0;
    for worker in fs::read_dir(claims)?.flatten() {
        parcels += fs::read_dir(worker.path().join("in")).map_or(0, Iterator::count);
    }
    Ok(parcels)
}

fn receipts(machine: &Machine, stage: &str) -> Result<usize> {
    let Ok(shards) = fs::read_dir(machine.path(&format!("{WORK}/{stage}/receipts"))) else {
        return Ok(0);
    };
    let mut receipts = 0;
    for shard in shards.flatten() {
        receipts += fs::read_dir(shard.path()).map_or(0, Iterator::count);
    }
    Ok(receipts)
}

/// Looks again until it is so.
fn wait_for(secs: u64, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(secs);
    loop {
        if is_so()? {
            return Ok(());
        }
        ensure!(Instant::now() < until, "not after {secs} s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
