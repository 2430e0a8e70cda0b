//! `ecluse check`: configuration and machine, told as a monitoring plugin does.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use ecluse_config::{Free, Level, Problem};
use ecluse_crawl::Crawl;
use ecluse_deposit::Deposit;
use ecluse_spool::{Depths, Fs, RealFs, Room, WorkerId};
use ecluse_stage::{Exit, Intake, Stage, engine_problems};
use ecluse_telemetry::printable_text;

use crate::context::{DriverContext, Trouble};
use crate::packages::BadPackage;
use crate::show;
use crate::survey::{Condition, StageView, Survey};

/// How bad it is, in the order and with the codes a monitor expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Ok = 0,
    Warning = 1,
    Critical = 2,
    /// It could not be seen how bad it is.
    Unknown = 3,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Grade::Ok => "OK",
            Grade::Warning => "WARNING",
            Grade::Critical => "CRITICAL",
            Grade::Unknown => "UNKNOWN",
        }
    }
}

struct Report {
    grade: Grade,
    lines: Vec<String>,
}

impl Report {
    fn add(&mut self, grade: Grade, line: impl Into<String>) {
        self.grade = self.grade.max(grade);
        self.lines
            .push(format!("{}: {}", grade.word().to_lowercase(), line.into()));
    }

    fn add_lines(&mut self, grade: Grade, lines: &str) {
        for line in lines.lines() {
            self.add(grade, line);
        }
    }

    fn limits<Quantity: PartialOrd>(
        &mut self,
        value: &Quantity,
        warn: &Quantity,
        crit: &Quantity,
        what: &str,
    ) {
        if value >= crit {
            self.add(Grade::Critical, what);
        } else if value >= warn {
            self.add(Grade::Warning, what);
        }
    }
}

/// A monitor shows some lines; `status` has them all.
const NEEDS_TOLD: usize = 20;

/// Looks and tells. A monitor knows no other codes than its four: whatever goes wrong on the way is one of them.
pub(crate) fn check(
    context: Result<DriverContext, Trouble>,
    offline: bool,
    json: bool,
) -> Result<ExitCode, Trouble> {
    let mut report = Report {
        grade: Grade::Ok,
        lines: Vec::new(),
    };
    let told = match &context {
        Ok(context) => look(context, offline, &mut report),
        Err(trouble) => {
            // Without settings no stage starts.
            report.add_lines(Grade::Critical, &trouble.line);
            let is_engine = trouble.line.contains("'engine.");
            let what = match trouble.exit {
                Exit::Config if is_engine => "the engine cannot work with these settings",
                _ if is_engine => "the servers of the engine cannot be reached",
                _ => "the settings cannot be read",
            };
            (what.to_owned(), String::new())
        }
    };
    let (summary, figures) = told;
    if json {
        let value = serde_json::json!({
            "schema": 1, "grade": report.grade.word(), "summary": summary, "findings": report.lines,
        });
        let text = serde_json::to_string_pretty(&value).map_err(std::io::Error::from)?;
        return tell(&format!("{text}\n"), report.grade);
    }
    let mut text = format!("ECLUSE {} - {summary}{figures}\n", report.grade.word());
    for line in &report.lines {
        text.push_str(&format!("{}\n", printable_text(line)));
    }
    tell(&text, report.grade)
}

fn tell(text: &str, grade: Grade) -> Result<ExitCode, Trouble> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(grade as u8))
}

/// Returns a summary and the figures.
fn look(context: &DriverContext, offline: bool, report: &mut Report) -> (String, String) {
    configuration(context, offline, report);
    if offline {
        let sound = match report.grade {
            Grade::Ok => "the configuration is sound",
            _ => "the configuration has faults",
        };
        return (sound.to_owned(), String::new());
    }
    let survey = context
        .must_be_archive()
        .and_then(|()| context.survey(None));
    match survey {
        Ok(survey) => {
            servers(&survey, report);
            machine(context, &survey, report);
            holdings(&survey, report);
            needs(&survey, report);
            if survey.hides_stages() {
                let summary = "what is in the stages cannot be seen".to_owned();
                return (summary, String::new());
            }
            let summary = crate::status::brief(&survey).replace("ecluse: ", "");
            (summary, figures(context, &survey))
        }
        Err(trouble) => {
            report.add_lines(Grade::Unknown, &trouble.line);
            ("the chain cannot be seen".to_owned(), String::new())
        }
    }
}

fn configuration(context: &DriverContext, offline: bool, report: &mut Report) {
    receipts(context, report);
    let mut problems = context.pipeline.check();
    if !offline {
        problems.extend(engine_problems(&context.pipeline, &context.root));
    }
    let names = context.pipeline.stage_names();
    for entry in context.entries {
        // The built-in settings of a stage that this chain does not have are nobody's concern.
        if names.contains(&entry.name) {
            problems.extend((entry.check)(&context.pipeline, &context.root));
            if !offline {
                problems.extend((entry.try_out)(&context.pipeline, &context.root));
            }
        }
    }
    // Several stages ask for the same directory.
    problems.sort_by(|one, other| {
        let order = |one: &Problem| (one.line, one.key.clone(), one.message.clone());
        order(one).cmp(&order(other))
    });
    problems.dedup();
    for problem in problems {
        let grade = match problem.level {
            Level::Error => Grade::Critical,
            Level::Warning => Grade::Warning,
        };
        report.add(grade, problem.to_string());
    }
    let chain = &context.pipeline.chain.stages;
    if chain.is_empty() {
        report.add(
            Grade::Warning,
            format!("{}: the chain has no stages", context.pipeline.file()),
        );
    } else if let Err(trouble) = crate::run::chosen(context, &[]) {
        report.add_lines(Grade::Critical, &trouble.line);
    }
}

fn machine(context: &DriverContext, survey: &Survey, report: &mut Report) {
    let alert = &context.pipeline.alert;
    match &survey.room {
        Some(room) => {
            let floor = |free: &Free| free.bytes_of(room.total);
            let what = format!("{} free", show::bytes(room.free));
            if room.free <= floor(&alert.free.crit) {
                report.add(Grade::Critical, what);
            } else if room.free <= floor(&alert.free.warn) {
                report.add(Grade::Warning, what);
            }
            inodes(room, report);
        }
        None => report.add(
            Grade::Warning,
            "there are no work directories yet: ecluse init",
        ),
    }
    let stages: Vec<String> = survey.stages.iter().map(|view| view.name.clone()).collect();
    if let Some(what) = context.clock_trouble(&stages) {
        report.add(Grade::Warning, what);
    }
    let held: u64 = survey
        .stages
        .iter()
        .map(|stage| stage.depths.held as u64)
        .sum();
    report.limits(
        &held,
        &alert.held.warn,
        &alert.held.crit,
        &format!("{held} held"),
    );
    for stage in live(survey) {
        // What gathers for a day has parcels that are a day old.
        let gathers = gathers(context, &stage.name);
        if let Some(oldest) = stage.depths.oldest_ready {
            let what = format!(
                "{}: the oldest has waited {}",
                stage.name,
                show::age(oldest)
            );
            report.limits(
                &oldest,
                &(alert.oldest.warn.0 + gathers).as_secs(),
                &(alert.oldest.crit.0 + gathers).as_secs(),
                &what,
            );
        }
        if let Some(last) = stage
            .last_hour
            .last
            .filter(|_| should_finish(&stage.name, &stage.depths))
        {
            let what = format!("{}: finished nothing for {}", stage.name, show::age(last));
            report.limits(
                &last,
                &(alert.silent.warn.0 + gathers).as_secs(),
                &(alert.silent.crit.0 + gathers).as_secs(),
                &what,
            );
        }
        match stage.state {
            Condition::Halted => report.add(
                Grade::Critical,
                format!("{}: halted: {}", stage.name, stage.why),
            ),
            Condition::Silent => {
                report.add(Grade::Critical, format!("{}: {}", stage.name, stage.why));
            }
            Condition::Blocked | Condition::Paused => {
                report.add(Grade::Warning, format!("{}: {}", stage.name, stage.why));
            }
            Condition::Stopped if stage.depths.ready > 0 => {
                report.add(
                    Grade::Warning,
                    format!("{}: parcels wait and no worker runs", stage.name),
                );
            }
            Condition::Stopped | Condition::Ok => {}
        }
    }
    if let Err(failure) = ecluse_stage::must_have_files() {
        report.add(Grade::Critical, failure.reason);
    }
    file_system(context, report);
    sharing(context, report);
}

/// A server that is away is a warning: the others have all it had. What stops everybody is more.
fn servers(survey: &Survey, report: &mut Report) {
    for trouble in survey.cluster.iter().flat_map(|cluster| &cluster.troubles) {
        let grade = match trouble.hides_stages {
            true => Grade::Critical,
            false => Grade::Warning,
        };
        report.add(grade, format!("servers: {}", trouble.what));
    }
}

/// A stage that waits for receipts must get some.
fn receipts(context: &DriverContext, report: &mut Report) {
    let settings = &context.pipeline;
    let (Ok(delete), Ok(clean), Ok(package), Ok(deposit)) = (
        settings.stage_settings::<ecluse_delete::Settings>("delete"),
        settings.stage_settings::<ecluse_clean::Settings>("clean"),
        settings.stage_settings::<ecluse_package::Settings>("package"),
        settings.stage_settings::<ecluse_deposit::Settings>(Deposit::NAME),
    ) else {
        return;
    };
    if delete.requires_deposit && package.when == ecluse_package::PackWhen::Published {
        let line = "stage.delete.requires-deposit: delete would wait for ever, as a package is made after it: set stage.package.when = \"backed-up\"";
        report.add(Grade::Critical, line);
    }
    let is_nobody = matches!(deposit.to, ecluse_deposit::ReceiverSettings::Nobody);
    if is_nobody && (delete.requires_deposit || clean.requires_deposit) {
        let line = "requires-deposit: nobody gives receipts, as stage.deposit.to is none";
        report.add(Grade::Critical, line);
    }
}

/// One host writes the manifest, wherever several machines may have it.
fn sharing(context: &DriverContext, report: &mut Report) {
    let manifest = crate::verify::manifest_path(context);
    let directory = manifest.parent().unwrap_or(&context.root);
    if RealFs.is_one_machines(directory) {
        return;
    }
    let mut hosts = BTreeSet::new();
    for stage in context.stages().unwrap_or_default() {
        let base = ecluse_config::base_of(&stage);
        let entry = context.entries.iter().find(|entry| entry.name == base);
        let writes = entry.map(|entry| (entry.writes)(&context.pipeline, &context.root));
        if writes.is_some_and(|writes| writes.iter().any(|path| path == directory)) {
            hosts.extend(hosts_in(context, &stage));
        }
    }
    let (grade, line) = judge_sharing(&manifest.display().to_string(), &hosts);
    let problem = (context.pipeline).problem(Level::Warning, "archive.manifest", &line);
    report.add(grade, problem.to_string());
}

/// Returns the hosts that have living workers in a stage.
fn hosts_in(context: &DriverContext, stage: &str) -> Vec<String> {
    let lease = context.pipeline.shell(stage).lease.0;
    // A stage that cannot be looked at shows elsewhere.
    let workers = context.engine.workers(stage, lease).unwrap_or_default();
    let living = workers.into_iter().filter(|worker| worker.alive);
    let ids = living.filter_map(|worker| WorkerId::parse(OsStr::new(&worker.id)));
    ids.map(|id| id.host().to_owned()).collect()
}

/// Judges who writes a manifest that several machines may have.
fn judge_sharing(manifest: &str, hosts: &BTreeSet<String>) -> (Grade, String) {
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let rule = "one host may write it: run ingest, and transfer and all stages after it, on one; see docs/file-systems.md";
    match hosts.as_slice() {
        [] | [_] => (
            Grade::Ok,
            format!("{manifest} lies on a network file system, and {rule}"),
        ),
        several => (
            Grade::Critical,
            format!("{manifest} is written by {}: {rule}", several.join(", ")),
        ),
    }
}

/// What is wrong with archived bytes cannot wait.
fn holdings(survey: &Survey, report: &mut Report) {
    for lost in &survey.holdings.lost {
        report.add(Grade::Critical, lost.clone());
    }
    let health = &survey.holdings.health;
    if let Some(frozen) = &health.frozen {
        let line = format!("nothing is removed since {}: {}", frozen.since, frozen.why);
        report.add(Grade::Critical, line);
    }
    if health.bad > 0 {
        let line = match health.bad {
            1 => "1 copy of an archived file is bad".to_owned(),
            bad => format!("{bad} copies of archived files are bad"),
        };
        report.add(Grade::Critical, line);
    }
    for BadPackage { package, what } in survey.holdings.packages.iter().take(NEEDS_TOLD) {
        report.add(Grade::Critical, format!("package {package}: {what}"));
    }
}

/// Whatever needs a person is at least a warning, told once.
fn needs(survey: &Survey, report: &mut Report) {
    for need in survey.needs_you.iter().take(NEEDS_TOLD) {
        if !report.lines.iter().any(|line| line.contains(&need.what)) {
            report.add(Grade::Warning, format!("{}: {}", need.stage, need.what));
        }
    }
}

/// Returns the stages that somebody should be working in.
fn live(survey: &Survey) -> impl Iterator<Item = &StageView> {
    let stages = survey.stages.iter();
    stages.filter(|stage| !stage.is_end && !stage.is_optional)
}

/// Tells whether a stage ought to finish something soon: work waits, and it is no crawl with a job in hand, which may take weeks.
fn should_finish(stage: &str, depths: &Depths) -> bool {
    let is_crawling = ecluse_config::base_of(stage) == Crawl::NAME && depths.working > 0;
    depths.ready > 0 && !is_crawling
}

/// Returns how long a stage lets parcels wait on purpose; nothing for one that gathers none.
fn gathers(context: &DriverContext, stage: &str) -> Duration {
    let base = ecluse_config::base_of(stage);
    let entry = context.entries.iter().find(|entry| entry.name == base);
    match entry.map(|entry| entry.intake) {
        Some(Intake::Batch) => context.pipeline.shell(stage).batch.wait.0,
        Some(Intake::One) | None => Duration::ZERO,
    }
}

fn inodes(room: &Room, report: &mut Report) {
    if room.free_inodes.is_some_and(|free| free < 10_000) {
        report.add(Grade::Warning, "fewer than 10,000 free inodes");
    }
}

/// Looks at how the work directories' file system is mounted, and tries what they need of it.
fn file_system(context: &DriverContext, report: &mut Report) {
    let Some(tree) = context.engine.directories() else {
        return;
    };
    let Ok(work) = tree.work().canonicalize() else {
        return;
    };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts
        .lines()
        .filter_map(Mount::parse)
        .filter(|mount| work.starts_with(mount.point))
        .max_by_key(|mount| mount.point.len());
    if let Some(mount) = mount {
        let has_journal = |device: &str| {
            let device = std::path::Path::new(device).canonicalize().ok()?;
            let dir = std::path::Path::new("/sys/fs/ext4").join(device.file_name()?);
            // The file is there in any case, and names the thread of the journal.
            let task = std::fs::read_to_string(dir.join("journal_task")).ok()?;
            Some(task.trim() != "<none>")
        };
        mount.judge(report, has_journal);
    }
    let stages = tree.stages().unwrap_or_default();
    // Who may only look cannot try, and a full disk shows elsewhere.
    let faults = stages.first().and_then(|stage| {
        tree.fitness_for_two(stage, crate::init::second_process)
            .ok()
    });
    for fault in faults.into_iter().flatten() {
        let line = format!("{}: {fault}; see docs/file-systems.md", work.display());
        report.add(Grade::Critical, line);
    }
}

/// A line of `/proc/self/mounts`.
struct Mount<'a> {
    device: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Those that keep the order of changes over a power cut, or whose server does.
    const ORDERED: [&'static str; 8] = [
        "ext4", "xfs", "tmpfs", "nfs", "nfs4", "ceph", "overlay", "f2fs",
    ];

    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(' ');
        Some(Self {
            device: fields.next()?,
            point: fields.next()?,
            kind: fields.next()?,
            options: fields.next()?,
        })
    }

    /// Says what is known of its kind, and of how it is mounted.
    fn judge(&self, report: &mut Report, has_journal: impl Fn(&str) -> Option<bool>) {
        let Self {
            device,
            point,
            kind,
            options,
        } = *self;
        let has = |option: &str| options.split(',').any(|o| o == option);
        let mut add = |grade, words: &str| {
            let line = format!("{point} is {kind}{words}; see docs/file-systems.md");
            report.add(grade, line);
        };
        match kind {
            "fuse.sshfs" => add(
                Grade::Critical,
                ", which gives the two names of one file different inodes: use NFSv4",
            ),
            "fuse.glusterfs" => add(
                Grade::Warning,
                ": its caches spoil the manifest unless it is mounted with direct-io-mode=enable,attribute-timeout=0,entry-timeout=0",
            ),
            "ext4" if has_journal(device) == Some(false) => add(
                Grade::Critical,
                " without a journal: a power cut loses what was done",
            ),
            "nfs" | "nfs4" if has("nolock") || has("local_lock=all") || has("local_lock=flock") => {
                add(
                    Grade::Critical,
                    " with locks that other machines do not see: mount it without nolock and local_lock",
                );
            }
            _ if !Self::ORDERED.contains(&kind) => add(
                Grade::Warning,
                ", not known to keep the order of changes over a power cut",
            ),
            _ => {}
        }
        if kind == "ext4" && has("discard") {
            report.add(
                Grade::Warning,
                format!("{point} is mounted with discard: every removal waits for the disk; use fstrim.timer"),
            );
        }
        if has("ro") {
            report.add(Grade::Critical, format!("{point} is mounted read-only"));
        }
    }
}

fn figures(context: &DriverContext, survey: &Survey) -> String {
    let alert = &context.pipeline.alert;
    let waiting: usize = live(survey).map(|stage| stage.depths.ready).sum();
    let held: usize = survey.stages.iter().map(|stage| stage.depths.held).sum();
    let oldest = live(survey)
        .filter(|stage| gathers(context, &stage.name).is_zero())
        .filter_map(|stage| stage.depths.oldest_ready)
        .max()
        .unwrap_or(0);
    format!(
        " | waiting={waiting} held={held};{};{} oldest={oldest}s;{};{}",
        alert.held.warn,
        alert.held.crit,
        alert.oldest.warn.0.as_secs(),
        alert.oldest.crit.0.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_their_names_and_options() {
        let grade = |line: &str, journal: Option<bool>| {
            let mut report = Report {
                grade: Grade::Ok,
                lines: Vec::new(),
            };
            Mount::parse(line).unwrap().judge(&mut report, |_| journal);
            (report.grade, report.lines.join(" "))
        };
        for (line, journal, expected) in [
            ("/dev/vda / ext4 rw,relatime 0 0", Some(true), Grade::Ok),
            ("/dev/vda / ext4 rw,relatime 0 0", None, Grade::Ok),
            (
                "/dev/vda / ext4 rw,relatime 0 0",
                Some(false),
                Grade::Critical,
            ),
            ("/dev/vda / ext4 ro 0 0", Some(true), Grade::Critical),
            ("/dev/vdb /a xfs rw 0 0", None, Grade::Ok),
            ("/dev/vdb /a btrfs rw 0 0", None, Grade::Warning),
            ("h:/x /a nfs4 rw,hard 0 0", None, Grade::Ok),
            (
                "h:/x /a nfs rw,nolock,local_lock=all 0 0",
                None,
                Grade::Critical,
            ),
            ("h:/x /a fuse.glusterfs rw 0 0", None, Grade::Warning),
            ("u@h:/x /a fuse.sshfs rw 0 0", None, Grade::Critical),
        ] {
            let (found, words) = grade(line, journal);
            assert_eq!(found, expected, "{line}: {words}");
        }
    }

    #[test]
    fn a_manifest_on_a_network_has_one_host_that_writes_it() {
        let judge = |names: &[&str]| {
            let hosts = names.iter().map(|name| (*name).to_owned()).collect();
            judge_sharing("/a/manifest.sqlite", &hosts)
        };
        let (grade, line) = judge(&["alpha"]);
        assert_eq!(grade, Grade::Ok);
        assert!(
            line.starts_with("/a/manifest.sqlite lies on a network"),
            "{line}"
        );
        assert!(line.contains("one host may write it"), "{line}");
        let (grade, line) = judge(&["alpha", "beta"]);
        assert_eq!(grade, Grade::Critical);
        assert!(line.contains("is written by alpha, beta"), "{line}");
    }

    #[test]
    fn a_crawl_at_work_need_not_finish() {
        let depths = |ready, working| Depths {
            ready,
            working,
            ..Depths::default()
        };
        assert!(should_finish("index", &depths(1, 1)));
        assert!(!should_finish("index", &depths(0, 1)));
        assert!(!should_finish("crawl", &depths(1, 1)));
        assert!(should_finish("crawl", &depths(1, 0)));
    }
}
