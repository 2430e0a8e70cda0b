//! The systemd units for the stages of a pipeline.
//!
//! The text of the units is the shipped one, `ops/systemd`: with the shipped root and programs
//! [`render`] gives those files byte for byte. Another root or program directory is put in their
//! place; what one stage needs beyond the others goes into a drop-in of its own. Nothing is written
//! here: the caller has the file names and the contents.
//!
//! A path or a name that a unit file could misread never gets here: [`UnitPath`] and [`UnitStage`]
//! refuse it.

use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The root in the shipped units.
pub const ROOT: &str = "/srv/ecluse";
/// Where the shipped units find the programs.
pub const PROGRAMS: &str = "/usr/bin";

const SERVICE: &str = include_str!("../ops/systemd/ecluse@.service");
const PATH: &str = include_str!("../ops/systemd/ecluse@.path");
const SERVE: &str = include_str!("../ops/systemd/ecluse-serve.service");
const TARGET: &str = include_str!("../ops/systemd/ecluse.target");
const NETWORK: &str = include_str!("../ops/systemd/drop-in/network.conf");
const LOOPBACK: &str = include_str!("../ops/systemd/drop-in/loopback.conf");
const ENGINE: &str = include_str!("../ops/systemd/drop-in/engine.conf");
const SERVE_WORLD: &str = include_str!("../ops/systemd/drop-in/serve-world.conf");
const SYSUSERS: &str = include_str!("../ops/sysusers.d/ecluse.conf");
const TMPFILES: &str = include_str!("../ops/tmpfiles.d/ecluse.conf");

/// The settings in the shipped units.
const SETTINGS: &str = "/srv/ecluse/pipeline.toml";

/// What the shipped `TimeoutStopSec=` leaves a stage after its grace.
const STOP_MARGIN: Duration = Duration::from_secs(5 * 60);
/// The grace the shipped `TimeoutStopSec=` is made for.
const GRACE: Duration = Duration::from_secs(5 * 60);

/// An absolute path that every setting of a unit file takes as it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitPath(String);

impl UnitPath {
    /// Takes a path, or says why a unit could not use it.
    pub fn new(path: &Path) -> Result<UnitPath, UnitPathError> {
        let refuse = |reason| {
            Err(UnitPathError {
                path: path.to_owned(),
                reason,
            })
        };
        if !path.is_absolute() {
            return refuse("it is not absolute");
        }
        let Some(text) = path.to_str() else {
            return refuse("it is not UTF-8");
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@,=~".contains(c);
        if !text.chars().all(is_plain) {
            return refuse("only letters, digits and /._-+@,=~ are the same in every setting");
        }
        if text.split('/').any(|part| part == "." || part == "..") {
            return refuse("systemd refuses . and .. in a path");
        }
        // Collecting the components drops a slash at the end and doubled ones.
        let path: PathBuf = path.components().collect();
        let hidden = ["/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run"];
        if path == Path::new("/") {
            return refuse("a stage may not write everywhere");
        }
        if hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return refuse("a unit sees a private one in its place, or it is gone after a boot");
        }
        Ok(UnitPath(
            path.to_str().expect("it was UTF-8 above").to_owned(),
        ))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the shipped `ProtectHome=yes` would hide it.
    fn is_in_a_home(&self) -> bool {
        let path = Path::new(&self.0);
        path.starts_with("/home") || path.starts_with("/root")
    }
}

impl fmt::Display for UnitPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path that no unit can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPathError {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for UnitPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use {:?} in a systemd unit: {}",
            self.path, self.reason
        )
    }
}

impl std::error::Error for UnitPathError {}

/// What a stage may reach over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// Nothing; it has no network at all.
    #[default]
    Nothing,
    /// This machine, to give out its figures.
    Loopback,
    /// The world.
    World,
}

/// Which servers carry the parcels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineAddresses {
    /// Some are known by name: the addresses may be any.
    Named,
    /// All are known by address.
    At(Vec<IpAddr>),
}

/// One stage, as far as its unit is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStage {
    name: String,
    /// What it may reach.
    pub network: NetworkAccess,
    /// The servers that carry its parcels, when servers do.
    pub engine: Option<EngineAddresses>,
    /// What it writes outside the work directories.
    pub writable: Vec<UnitPath>,
    /// What other stages write and this one does not.
    pub read_only: Vec<UnitPath>,
    /// Credentials of others for the servers, which it may not even read.
    pub hidden: Vec<UnitPath>,
    /// The directory of the figures' file. Where it is not there, the stage does its work without.
    pub figures: Option<UnitPath>,
    /// How long it may finish its work after SIGTERM.
    pub grace: Duration,
}

impl UnitStage {
    /// A stage that needs nothing beyond the template, or one machine's copy of it; `None` when a unit cannot have
    /// that name.
    pub fn new(name: &str) -> Option<UnitStage> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        // The name of a machine may have dots and capitals; systemd takes those as they stand.
        let is_of_machine = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let (base, machine) = match name.split_once('@') {
            Some((base, machine)) => (base, machine),
            None => (name, "plain"),
        };
        // A unit's name has 255 letters at most, and ours has some of its own.
        let is_name = base.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= 200
            && base.chars().all(is_plain)
            && machine.starts_with(|c: char| c.is_ascii_alphanumeric())
            && machine.chars().all(is_of_machine);
        is_name.then(|| UnitStage {
            name: name.to_owned(),
            network: NetworkAccess::Nothing,
            engine: None,
            writable: Vec::new(),
            read_only: Vec::new(),
            hidden: Vec::new(),
            figures: None,
            grace: GRACE,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stage and the machine, when it is one machine's copy.
    fn copy(&self) -> Option<(&str, &str)> {
        self.name.split_once('@')
    }
}

/// When the stages are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the target, to stay.
    #[default]
    Resident,
    /// By a path unit, when there is work.
    OnWork,
}

/// What the units of one pipeline have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOptions {
    /// The root of the work directories.
    pub root: UnitPath,
    /// The directory of the programs.
    pub programs: UnitPath,
    /// The settings, when they are not `pipeline.toml` in the root.
    pub config: Option<UnitPath>,
    /// When the stages are started.
    pub start: Start,
    /// Whether the units are for one host, which starts its own copies with all the others.
    pub one_host: bool,
    /// Where files of parcels in hand lie, when servers carry them.
    pub scratch: Option<UnitPath>,
}

impl Default for UnitOptions {
    fn default() -> UnitOptions {
        UnitOptions {
            root: UnitPath(ROOT.to_owned()),
            programs: UnitPath(PROGRAMS.to_owned()),
            config: None,
            start: Start::Resident,
            one_host: false,
            scratch: None,
        }
    }
}

/// Writes the units: file names below a unit directory such as `/etc/systemd/system`, and contents.
pub fn render(stages: &[UnitStage], options: &UnitOptions) -> Vec<(String, String)> {
    let mut files = vec![
        ("ecluse.target".to_owned(), TARGET.to_owned()),
        (
            "ecluse.target.d/50-ecluse.conf".to_owned(),
            wants(stages, options),
        ),
        ("ecluse@.service".to_owned(), fill(SERVICE, options)),
    ];
    if options.start == Start::OnWork {
        files.push(("ecluse@.path".to_owned(), fill(PATH, options)));
    }
    for stage in stages {
        if let Some(text) = drop_in(stage, options) {
            let name = format!("ecluse@{}.service.d/50-ecluse.conf", stage.name);
            files.push((name, text));
        }
    }
    files
}

/// Writes the unit of `ecluse serve`, which no stage waits for, and what it needs when it listens to other machines.
pub fn render_serve(
    listens_to_world: bool,
    wanted: Option<&UnitPath>,
    options: &UnitOptions,
) -> Vec<(String, String)> {
    let mut files = vec![("ecluse-serve.service".to_owned(), fill(SERVE, options))];
    if listens_to_world {
        let name = "ecluse-serve.service.d/50-ecluse.conf".to_owned();
        files.push((name, SERVE_WORLD.to_owned()));
    }
    if let Some(wanted) = wanted {
        let name = "ecluse-serve.service.d/60-wanted.conf".to_owned();
        let why = "# The list of access.wanted lies here.";
        let text = format!("{why}\n\n[Service]\nReadWritePaths={wanted}\n");
        files.push((name, text));
    }
    files
}

/// Writes the `sysusers.d` file: the user and group of the stages.
pub fn render_sysusers(options: &UnitOptions) -> String {
    fill(SYSUSERS, options)
}

/// Writes the `tmpfiles.d` file: the root, and for each stage a `drop/` that the group may write to.
pub fn render_tmpfiles(stages: &[UnitStage], options: &UnitOptions) -> String {
    let mut text = fill(TMPFILES, options);
    for UnitStage { name, .. } in stages {
        let work = format!("{}/work/{name}", options.root);
        writeln!(text, "d {work} 0750 ecluse ecluse -").expect("a string takes what is written");
        writeln!(text, "d {work}/drop 2770 ecluse ecluse -")
            .expect("a string takes what is written");
    }
    if let Some(scratch) = &options.scratch {
        writeln!(text, "d {scratch} 0750 ecluse ecluse -").expect("a string takes what is written");
    }
    text
}

/// Puts the root, the programs and the settings in the place of the shipped ones.
fn fill(shipped: &str, options: &UnitOptions) -> String {
    let mut root_option = format!("--root {}", options.root);
    if let Some(config) = &options.config {
        write!(root_option, " --config {config}").expect("a string takes what is written");
    }
    // Line by line and each line once: what was put in is never searched again.
    let mut text = String::with_capacity(shipped.len());
    for line in shipped.split_inclusive('\n') {
        let of_program = |program: &'static str| {
            let (key, rest) = line.split_once(&format!("={PROGRAMS}/{program} --root {ROOT}"))?;
            Some((key, program, rest))
        };
        match of_program("ecluse-%i").or_else(|| of_program("ecluse")) {
            Some((key, program, rest)) => {
                let programs = &options.programs;
                write!(text, "{key}={programs}/{program} {root_option}{rest}")
                    .expect("a string takes what is written");
            }
            // The comments speak of the shipped file.
            None if line.starts_with('#') => text.push_str(line),
            None if line.contains(SETTINGS) => {
                let own = options.config.as_ref().map(UnitPath::to_string);
                let own = own.unwrap_or_else(|| format!("{}/pipeline.toml", options.root));
                text.push_str(&line.replace(SETTINGS, &own));
            }
            None => text.push_str(&line.replace(ROOT, options.root.as_str())),
        }
    }
    text
}

fn wants(stages: &[UnitStage], options: &UnitOptions) -> String {
    let kind = match options.start {
        Start::Resident => "service",
        Start::OnWork => "path",
    };
    let mut text = "# The stages of this pipeline.\n\n[Unit]\n".to_owned();
    // One machine's copy is started on that machine: by its own unit, enabled there.
    let is_wanted = |stage: &&UnitStage| options.one_host || stage.copy().is_none();
    for stage in stages.iter().filter(is_wanted) {
        writeln!(text, "Wants=ecluse@{}.{kind}", stage.name)
            .expect("a string takes what is written");
    }
    text
}

/// What a stage needs beyond the template, if anything.
fn drop_in(stage: &UnitStage, options: &UnitOptions) -> Option<String> {
    let mut text = match (stage.network, &stage.engine) {
        (NetworkAccess::World, _) | (_, Some(EngineAddresses::Named)) => NETWORK.to_owned(),
        (_, Some(EngineAddresses::At(_))) => ENGINE.to_owned(),
        (NetworkAccess::Nothing, None) => String::new(),
        (NetworkAccess::Loopback, None) => LOOPBACK.to_owned(),
    };
    let mut mounts = String::new();
    let mut settings = commands_of_copy(stage, options);
    if let (
        NetworkAccess::Nothing | NetworkAccess::Loopback,
        Some(EngineAddresses::At(addresses)),
    ) = (stage.network, &stage.engine)
    {
        if stage.network == NetworkAccess::Loopback {
            settings.push_str("IPAddressAllow=localhost\n");
        }
        for address in addresses {
            writeln!(settings, "IPAddressAllow={address}").expect("a string takes what is written");
        }
    }
    let is_below =
        |path: &UnitPath, above: &UnitPath| Path::new(path.as_str()).starts_with(above.as_str());
    let is_outside = |path: &&UnitPath| !is_below(path, &options.root);
    for path in &stage.writable {
        // Below the root it is writable already.
        if !is_outside(&path) {
            continue;
        }
        writeln!(mounts, "RequiresMountsFor={path}").expect("a string takes what is written");
        writeln!(settings, "ReadWritePaths={path}").expect("a string takes what is written");
    }
    for path in &stage.read_only {
        // What it writes above or below must stay writable, and in one piece with it.
        let is_near = |own: &UnitPath| is_below(own, path) || is_below(path, own);
        let is_root = is_below(&options.root, path);
        let own = stage.writable.iter();
        let mut own = own.filter(|own| *own != &options.root);
        if is_below(path, &options.root) && !is_root && !own.any(is_near) {
            writeln!(settings, "ReadOnlyPaths=-{path}").expect("a string takes what is written");
        }
    }
    if let Some(path) = stage.figures.as_ref().filter(is_outside) {
        writeln!(settings, "ReadWritePaths=-{path}").expect("a string takes what is written");
    }
    let read = [&options.root, &options.programs];
    let mut seen = read.into_iter().chain(&options.config);
    let mut places = stage.writable.iter().chain(&stage.read_only);
    if seen.any(UnitPath::is_in_a_home) || places.any(UnitPath::is_in_a_home) {
        settings.push_str("ProtectHome=read-only\n");
    }
    if !stage.hidden.is_empty() {
        let hidden = stage.hidden.iter().map(|path| format!("-{path}"));
        let hidden = hidden.collect::<Vec<String>>().join(" ");
        writeln!(settings, "InaccessiblePaths={hidden}").expect("a string takes what is written");
    }
    if stage.grace > GRACE {
        let stop = stage.grace.saturating_add(STOP_MARGIN).as_secs();
        writeln!(settings, "TimeoutStopSec={stop}s").expect("a string takes what is written");
    }
    for (section, lines) in [("Unit", mounts), ("Service", settings)] {
        if !lines.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            write!(text, "{gap}[{section}]\n{lines}").expect("a string takes what is written");
        }
    }
    (!text.is_empty()).then_some(text)
}

/// The template's commands for one machine's copy of a stage, whose program has another name than its unit; empty for all others.
fn commands_of_copy(stage: &UnitStage, options: &UnitOptions) -> String {
    let Some((base, machine)) = stage.copy() else {
        return String::new();
    };
    let mut text = String::new();
    let mut reset = Vec::new();
    for line in fill(SERVICE, options).lines() {
        let Some((key, command)) = line
            .split_once('=')
            .filter(|(key, _)| key.starts_with("Exec"))
        else {
            continue;
        };
        if !reset.contains(&key.to_owned()) {
            // An empty one takes the template's away.
            writeln!(text, "{key}=").expect("a string takes what is written");
            reset.push(key.to_owned());
        }
        let own = format!("ecluse-{base} --instance {machine}");
        writeln!(text, "{key}={}", command.replace("ecluse-%i", &own))
            .expect("a string takes what is written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> UnitPath {
        UnitPath::new(Path::new(text)).unwrap()
    }

    fn stage(name: &str) -> UnitStage {
        UnitStage::new(name).unwrap()
    }

    fn elsewhere() -> UnitOptions {
        UnitOptions {
            root: path("/data/srv/ecluse/one"),
            programs: path("/opt/ecluse/bin"),
            config: Some(path("/etc/ecluse/pipeline.toml")),
            start: Start::OnWork,
            ..UnitOptions::default()
        }
    }

    /// The lines systemd reads, joined.
    fn live(text: &str) -> String {
        let is_live = |line: &&str| !line.is_empty() && !line.starts_with('#');
        text.lines().filter(is_live).collect::<Vec<_>>().join("\n")
    }

    fn file<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
        let found = files.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn as_shipped_is_what_is_shipped() {
        let options = UnitOptions {
            start: Start::OnWork,
            ..UnitOptions::default()
        };
        let crawl = UnitStage {
            network: NetworkAccess::World,
            ..stage("crawl")
        };
        let files = render(&[stage("index"), crawl], &options);
        assert_eq!(file(&files, "ecluse@.service"), SERVICE);
        assert_eq!(file(&files, "ecluse@.path"), PATH);
        assert_eq!(file(&files, "ecluse.target"), TARGET);
        assert_eq!(
            file(&files, "ecluse@crawl.service.d/50-ecluse.conf"),
            NETWORK
        );
        let serve = render_serve(true, None, &options);
        assert_eq!(file(&serve, "ecluse-serve.service"), SERVE);
        assert_eq!(render_serve(false, None, &options).len(), 1);
        let wanted = UnitPath::new(Path::new("/srv/ecluse/sources/selection")).unwrap();
        let serve = render_serve(false, Some(&wanted), &options);
        let text = file(&serve, "ecluse-serve.service.d/60-wanted.conf");
        assert!(text.ends_with("ReadWritePaths=/srv/ecluse/sources/selection\n"));
        assert_eq!(render_sysusers(&options), SYSUSERS);
        assert_eq!(render_tmpfiles(&[], &options), TMPFILES);
    }

    #[test]
    fn every_file_of_the_shipped_directory_is_used() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|above| above.join("ops/systemd"))
            .find(|path| path.is_dir())
            .unwrap();
        let names = |path: &Path| {
            let entries = std::fs::read_dir(path).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(
            names(&shipped),
            [
                "drop-in",
                "ecluse-serve.service",
                "ecluse.target",
                "ecluse@.path",
                "ecluse@.service"
            ]
        );
        assert_eq!(
            names(&shipped.join("drop-in")),
            [
                "engine.conf",
                "loopback.conf",
                "network.conf",
                "serve-world.conf"
            ]
        );
    }

    #[test]
    fn another_root_leaves_nothing_of_the_shipped_one() {
        let mut files = render(&[stage("index")], &elsewhere());
        files.extend(render_serve(true, None, &elsewhere()));
        for (name, text) in &files {
            let rest = live(text).replace("/data/srv/ecluse/one", "");
            assert!(!rest.contains(ROOT), "{name}: {rest}");
            assert!(!rest.contains(PROGRAMS), "{name}: {rest}");
        }
        let service = live(file(&files, "ecluse@.service"));
        assert!(service.contains(
            "\nExecStart=/opt/ecluse/bin/ecluse-%i --root /data/srv/ecluse/one \
             --config /etc/ecluse/pipeline.toml\n"
        ));
        assert!(service.contains(
            "\nExecReload=/opt/ecluse/bin/ecluse-%i --root /data/srv/ecluse/one \
             --config /etc/ecluse/pipeline.toml --check\n"
        ));
        assert!(service.contains("\nReadWritePaths=/data/srv/ecluse/one\n"));
        assert!(service.contains("\nReadOnlyPaths=-/etc/ecluse/pipeline.toml\n"));
        assert!(service.contains("\nRequiresMountsFor=/data/srv/ecluse/one\n"));
        let watched = "\nDirectoryNotEmpty=/data/srv/ecluse/one/work/%i/ready\n";
        assert!(live(file(&files, "ecluse@.path")).contains(watched));
        let directories = render_tmpfiles(&[stage("index")], &elsewhere());
        assert_eq!(
            live(&directories).lines().last().unwrap(),
            "d /data/srv/ecluse/one/work/index/drop 2770 ecluse ecluse -"
        );
        assert!(!live(&directories).contains(" /srv/ecluse"));
        assert!(render_sysusers(&elsewhere()).contains(" /data/srv/ecluse/one "));
    }

    #[test]
    fn the_target_wants_every_stage_once() {
        let stages = [stage("dns-filter"), stage("index")];
        let resident = render(&stages, &UnitOptions::default());
        assert_eq!(
            live(file(&resident, "ecluse.target.d/50-ecluse.conf")),
            "[Unit]\nWants=ecluse@dns-filter.service\nWants=ecluse@index.service"
        );
        assert!(resident.iter().all(|(name, _)| name != "ecluse@.path"));
        let on_work = render(&stages, &elsewhere());
        assert_eq!(
            live(file(&on_work, "ecluse.target.d/50-ecluse.conf")),
            "[Unit]\nWants=ecluse@dns-filter.path\nWants=ecluse@index.path"
        );
    }

    #[test]
    fn a_stage_like_the_template_has_no_drop_in() {
        let short = UnitStage {
            grace: Duration::from_secs(10),
            writable: vec![path("/srv/ecluse/repository")],
            ..stage("index")
        };
        let files = render(&[stage("merge"), short], &UnitOptions::default());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ecluse.target",
                "ecluse.target.d/50-ecluse.conf",
                "ecluse@.service"
            ]
        );
    }

    #[test]
    fn a_drop_in_says_only_what_differs() {
        let transfer = UnitStage {
            grace: Duration::from_secs(3_600),
            writable: vec![path("/net/one"), path("/home/archive/two")],
            ..stage("transfer")
        };
        let text = drop_in(&transfer, &UnitOptions::default()).unwrap();
        assert_eq!(
            text,
            "[Unit]\nRequiresMountsFor=/net/one\nRequiresMountsFor=/home/archive/two\n\n\
             [Service]\nReadWritePaths=/net/one\nReadWritePaths=/home/archive/two\n\
             ProtectHome=read-only\nTimeoutStopSec=3900s\n"
        );
        let loud = UnitStage {
            network: NetworkAccess::Loopback,
            grace: GRACE,
            writable: Vec::new(),
            ..transfer
        };
        assert_eq!(drop_in(&loud, &UnitOptions::default()).unwrap(), LOOPBACK);
    }

    #[test]
    fn figures_are_written_where_there_is_a_place_for_them() {
        let mut index = stage("index");
        index.figures = Some(path("/var/lib/prometheus/node-exporter"));
        assert_eq!(
            drop_in(&index, &UnitOptions::default()).unwrap(),
            "[Service]\nReadWritePaths=-/var/lib/prometheus/node-exporter\n"
        );
        index.figures = Some(path("/srv/ecluse/figures"));
        assert_eq!(drop_in(&index, &UnitOptions::default()), None);
    }

    #[test]
    fn one_machine_s_copy_runs_the_stage_s_program_and_is_started_there_alone() {
        let copy = stage("index@alpha");
        let text = drop_in(&copy, &UnitOptions::default()).unwrap();
        assert_eq!(
            text,
            "[Service]\nExecStart=\nExecStart=/usr/bin/ecluse-index --instance alpha --root /srv/ecluse\n\
             ExecReload=\nExecReload=/usr/bin/ecluse-index --instance alpha --root /srv/ecluse --check\n\
             ExecReload=/bin/kill -HUP $MAINPID\n"
        );
        let files = render(&[stage("ingest"), copy], &UnitOptions::default());
        let target = file(&files, "ecluse.target.d/50-ecluse.conf");
        assert!(target.contains("ecluse@ingest.service") && !target.contains("alpha"));
        assert!(
            files
                .iter()
                .any(|(name, _)| name == "ecluse@index@alpha.service.d/50-ecluse.conf")
        );
        for bad in [
            "index@",
            "index@a/b",
            "index@a b",
            "index@%i",
            "@alpha",
            "index@-a",
        ] {
            assert_eq!(UnitStage::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn servers_give_a_stage_the_network_they_need_and_no_more() {
        let mut index = stage("index");
        index.engine = Some(EngineAddresses::At(vec![
            "192.0.2.1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        ]));
        index.writable = vec![path("/fast/scratch")];
        index.read_only = vec![path("/srv/ecluse/key"), path("/etc/ecluse/secret")];
        let text = drop_in(&index, &UnitOptions::default()).unwrap();
        assert_eq!(
            text.strip_prefix(ENGINE).unwrap(),
            "\n[Unit]\nRequiresMountsFor=/fast/scratch\n\n[Service]\nIPAddressAllow=192.0.2.1\nIPAddressAllow=2001:db8::2\n\
             ReadWritePaths=/fast/scratch\nReadOnlyPaths=-/srv/ecluse/key\n"
        );
        let live = live(ENGINE);
        assert!(!live.contains("IPAddressDeny"), "the template's stays");
        index.network = NetworkAccess::Loopback;
        let text = drop_in(&index, &UnitOptions::default()).unwrap();
        assert!(text.contains("IPAddressAllow=localhost\nIPAddressAllow=192.0.2.1\n"));
        index.network = NetworkAccess::World;
        let text = drop_in(&index, &UnitOptions::default()).unwrap();
        assert!(text.starts_with(NETWORK) && !text.contains("IPAddressAllow"));
        index.network = NetworkAccess::Nothing;
        index.engine = Some(EngineAddresses::Named);
        let text = drop_in(&index, &UnitOptions::default()).unwrap();
        assert!(text.starts_with(NETWORK) && !text.contains("IPAddressAllow"));
    }

    #[test]
    fn a_host_starts_its_own_copies_with_the_others() {
        let options = UnitOptions {
            one_host: true,
            scratch: Some(path("/fast/scratch")),
            ..UnitOptions::default()
        };
        let files = render(&[stage("ingest"), stage("index@alpha")], &options);
        let target = file(&files, "ecluse.target.d/50-ecluse.conf");
        assert!(
            target.ends_with("Wants=ecluse@ingest.service\nWants=ecluse@index@alpha.service\n")
        );
        let directories = render_tmpfiles(&[], &options);
        assert!(directories.ends_with("\nd /fast/scratch 0750 ecluse ecluse -\n"));
    }

    #[test]
    fn a_root_in_a_home_is_not_hidden() {
        let options = UnitOptions {
            root: path("/home/anne/ecluse"),
            ..UnitOptions::default()
        };
        let text = drop_in(&stage("index"), &options).unwrap();
        assert_eq!(text, "[Service]\nProtectHome=read-only\n");
    }

    #[test]
    fn a_path_that_a_unit_would_misread_is_refused() {
        for bad in [
            "srv/ecluse",
            "/srv/web archive",
            "/srv/100%",
            "/srv/$HOME",
            "/srv/a\nExecStart=/bin/sh",
            "/srv/\"x\"",
            "/srv/a\\x20b",
            "/srv/../etc",
            "/",
            "//",
            "/tmp/root",
            "/var/tmp",
            "/run/ecluse",
            "/srv/é",
            "/srv/a:b",
            "",
        ] {
            assert!(UnitPath::new(Path::new(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(path("/srv//ecluse/").as_str(), "/srv/ecluse");
        assert_eq!(path("/tmpfs/a_b+c@d").as_str(), "/tmpfs/a_b+c@d");
        let refused = UnitPath::new(Path::new("/srv/a\nb")).unwrap_err();
        assert_eq!(refused.to_string().lines().count(), 1);
    }

    #[test]
    fn a_name_that_a_unit_cannot_have_is_refused() {
        for bad in ["", "-x", "Index", "a/b", "a@b@c", "a.b", "a b", "é", "9a"] {
            assert_eq!(UnitStage::new(bad), None, "{bad:?}");
        }
        assert_eq!(UnitStage::new(&"x".repeat(201)), None);
        assert_eq!(stage("dns-filter").name(), "dns-filter");
    }
}
