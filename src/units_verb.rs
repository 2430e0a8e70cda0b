//! `ecluse units`: writes the systemd units for the stages of this pipeline.toml.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_config::{EngineKind, EngineSettings, Level, Pipeline};
use ecluse_stage::{Exit, StageEntry};

use crate::cli::{UnitsFormat, UnitsOptions};
use crate::containers_verb;
use crate::context::{DriverContext, Trouble};
use crate::rights;
use crate::units::{self, EngineAddresses, NetworkAccess, Start, UnitOptions, UnitPath, UnitStage};

pub(crate) fn units(context: &DriverContext, asked: &UnitsOptions) -> Result<ExitCode, Trouble> {
    let pipeline = &context.pipeline;
    let root = std::path::absolute(&context.root)?;
    let scratch = match pipeline.engine.kind {
        EngineKind::Directories if !pipeline.engine.moving => None,
        EngineKind::Directories | EngineKind::Jetstream => {
            Some(unit_path(&root.join(&pipeline.engine.scratch))?)
        }
    };
    if scratch.is_some() && asked.path_units {
        let message = "no directory here says that a parcel waits: leave --path-units away";
        let problem = pipeline.problem(Level::Error, "engine.kind", message);
        return Err(Trouble::new(Exit::Config, problem));
    }
    let options = UnitOptions {
        root: unit_path(&root)?,
        programs: unit_path(&asked.programs)?,
        config: match asked.format {
            UnitsFormat::Systemd => context.config.as_deref().map(unit_path).transpose()?,
            // Containers have the text of the settings at a place of their own.
            UnitsFormat::Nomad | UnitsFormat::Kubernetes => None,
        },
        start: if asked.path_units {
            Start::OnWork
        } else {
            Start::Resident
        },
        one_host: asked.host.is_some(),
        scratch,
    };
    let mut stages = stages_of(pipeline, context.entries, &root)?;
    if let Some(host) = &asked.host {
        let here = stages_on(pipeline, host)?;
        stages.retain(|stage| here.contains(&stage.name()));
    }
    if stages.is_empty() {
        return Err(Trouble::new(
            Exit::Config,
            format!(
                "{}: no stage to write units for: name some in [chain] stages",
                pipeline.file()
            ),
        ));
    }
    if asked.rights {
        write_rights(context, asked)?;
    }
    match asked.format {
        UnitsFormat::Systemd => systemd(context, asked, &stages, &options),
        UnitsFormat::Nomad | UnitsFormat::Kubernetes => {
            containers_verb::write_containers(context, asked, stages, &options)
        }
    }
}

/// Writes what each stage may do with the servers: of all stages, on whatever host, for the servers are the same.
fn write_rights(context: &DriverContext, asked: &UnitsOptions) -> Result<(), Trouble> {
    let pipeline = &context.pipeline;
    let refuse = |key: &str, message: &str| {
        let problem = pipeline.problem(Level::Error, key, message);
        Err(Trouble::new(Exit::Config, problem))
    };
    if pipeline.engine.moving {
        let message = "while stages move between the engines, each needs what the operator has: leave --rights away until they are there";
        return refuse("engine.moving", message);
    }
    if pipeline.engine.kind == EngineKind::Directories {
        let message =
            "directories know no rights of stages beyond those of their units: leave --rights away";
        return refuse("engine.kind", message);
    }
    let known = |name: &&str| {
        let base = ecluse_config::base_of(name);
        context.entries.iter().any(|entry| entry.name == base)
    };
    let names: Vec<&str> = pipeline.stage_names().into_iter().filter(known).collect();
    let users = rights::rights_of(pipeline, &names);
    let dir = asked.out.join("rights");
    for user in &users {
        let text = format!("{:#}\n", user.policy(&pipeline.engine));
        write(
            context,
            &dir.join(format!("store/{}.json", user.user)),
            &text,
            "",
        )?;
    }
    let identities = rights::seaweed_identities(&users, &pipeline.engine);
    for (name, text) in [
        ("store-seaweedfs.json", format!("{identities:#}\n")),
        ("nats-users.conf", rights::nats_users(&users)),
        ("nats-nsc.sh", rights::nsc_script(&users)),
        ("why.txt", rights::reasons(&users)),
    ] {
        write(context, &dir.join(name), &text, "")?;
    }
    Ok(())
}

/// The stages of a host, or one line that says that there is no such host.
fn stages_on<'a>(pipeline: &'a Pipeline, host: &str) -> Result<Vec<&'a str>, Trouble> {
    pipeline.stages_on(host).ok_or_else(|| {
        let known: Vec<&str> = pipeline.hosts.keys().map(String::as_str).collect();
        let message = match known.as_slice() {
            [] => format!("there is no host '{host}': say which stages run there, such as {host} = [\"index\"]"),
            known => format!("there is no host '{host}'; known are {}", known.join(", ")),
        };
        Trouble::new(
            Exit::Config,
            pipeline.problem(Level::Error, "hosts", &message),
        )
    })
}

fn systemd(
    context: &DriverContext,
    asked: &UnitsOptions,
    stages: &[UnitStage],
    options: &UnitOptions,
) -> Result<ExitCode, Trouble> {
    if asked.image.is_some() {
        return Err(Trouble::usage(
            "--image is for --format nomad and kubernetes",
        ));
    }
    let access = &context.pipeline.access;
    let doors = [Some(access.listen), access.proxy];
    let mut doors = doors.into_iter().flatten();
    let listens_to_world = doors.any(|door| !door.ip().is_loopback());
    let wanted = access.wanted.as_ref();
    let wanted = wanted.map(|path| Path::new(options.root.as_str()).join(path));
    let wanted = wanted.as_deref().and_then(Path::parent);
    let wanted = wanted.map(unit_path).transpose()?;
    let serve = units::render_serve(listens_to_world, wanted.as_ref(), options);
    for (name, content) in units::render(stages, options).into_iter().chain(serve) {
        write(context, &asked.out.join(&name), &content, "")?;
    }
    for (kind, content) in [
        ("sysusers.d", units::render_sysusers(options)),
        ("tmpfiles.d", units::render_tmpfiles(stages, options)),
    ] {
        let to = asked.out.join(kind).join("ecluse.conf");
        write(
            context,
            &to,
            &content,
            &format!("; it belongs into /etc/{kind}"),
        )?;
    }
    context.say("for readers: systemctl enable --now ecluse-serve")?;
    for name in stages.iter().map(UnitStage::name) {
        if name.contains('@') && !options.one_host {
            context.say(&format!(
                "on its machine alone: systemctl enable --now ecluse@{name}"
            ))?;
        }
    }
    Ok(Exit::Done.into())
}

pub(crate) fn write(
    context: &DriverContext,
    to: &Path,
    content: &str,
    note: &str,
) -> Result<(), Trouble> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(to, content))
        .map_err(|e| Trouble::new(Exit::Machine, format!("cannot write {}: {e}", to.display())))?;
    context.say(&format!("wrote {}{note}", to.display()))
}

pub(crate) fn unit_path(path: &Path) -> Result<UnitPath, Trouble> {
    let absolute = std::path::absolute(path)?;
    UnitPath::new(&absolute).map_err(|e| Trouble::new(Exit::Config, e))
}

/// Returns the stages of a pipeline with what the settings ask of their units.
fn stages_of(
    pipeline: &Pipeline,
    entries: &[StageEntry],
    root: &Path,
) -> Result<Vec<UnitStage>, Trouble> {
    let mut stages = Vec::new();
    let engine = engine_of(&pipeline.engine.of_user(EngineSettings::OPERATOR), root)?;
    for name in pipeline.stage_names() {
        // A place where results are taken from is no program.
        let base = ecluse_config::base_of(name);
        let Some(entry) = entries.iter().find(|entry| entry.name == base) else {
            continue;
        };
        let mut stage = UnitStage::new(name).ok_or_else(|| {
            Trouble::new(
                Exit::Config,
                format!("{name:?} cannot be the name of a unit"),
            )
        })?;
        stage.grace = pipeline.shell(name).grace.0;
        for written in (entry.writes)(pipeline, root) {
            stage.writable.push(unit_path(&written)?);
        }
        if (entry.needs_network)(pipeline) {
            stage.network = NetworkAccess::World;
        }
        if pipeline.metrics.listen.is_some() && stage.network == NetworkAccess::Nothing {
            stage.network = NetworkAccess::Loopback;
        }
        if let Some(engine) = &engine {
            stage.engine = Some(engine.servers.clone());
            stage.writable.push(engine.scratch.clone());
        }
        if let Some(file) = pipeline.metrics.textfile_of(name)
            && let Some(dir) = file.parent()
        {
            stage.figures = Some(unit_path(&root.join(dir))?);
        }
        stages.push(stage);
    }
    let mut all: Vec<UnitPath> = stages.iter().flat_map(|s| s.writable.clone()).collect();
    all.sort();
    all.dedup();
    for stage in &mut stages {
        let others = all.iter().filter(|path| !stage.writable.contains(path));
        stage.read_only = others.cloned().collect();
        if let Some(engine) = engine_of(&pipeline.engine.of_user(stage.name()), root)? {
            let files = engine.files.into_iter().map(|(_, path)| path);
            stage.read_only.extend(files);
        }
    }
    let names: Vec<String> = stages.iter().map(|stage| stage.name().to_owned()).collect();
    for stage in &mut stages {
        stage.hidden = hidden_from(&pipeline.engine, stage.name(), &names, root)?;
    }
    Ok(stages)
}

/// The files with credentials of all other users of the servers: `{stage}` in a path, and what follows it below.
fn hidden_from(
    engine: &EngineSettings,
    own: &str,
    names: &[String],
    root: &Path,
) -> Result<Vec<UnitPath>, Trouble> {
    let others = names.iter().map(String::as_str);
    let others = others.chain([EngineSettings::OPERATOR]);
    let mut hidden = Vec::new();
    for other in others.filter(|other| *other != own) {
        for path in [&engine.credentials, &engine.key_file, &engine.secret_file] {
            let parts = path.components().map(|part| part.as_os_str());
            let parts: Vec<_> = parts.collect();
            let named = |part: &std::ffi::OsStr| part.to_string_lossy().contains("{stage}");
            let Some(at) = parts.iter().copied().position(named) else {
                continue;
            };
            let upto: PathBuf = parts[..=at].iter().collect();
            let upto = upto.to_string_lossy().replace("{stage}", other);
            hidden.push(unit_path(&root.join(upto))?);
        }
    }
    hidden.sort();
    hidden.dedup();
    Ok(hidden)
}

/// What the engine asks of every unit.
pub(crate) struct UnitEngine {
    pub(crate) servers: EngineAddresses,
    /// Every server with its port.
    pub(crate) doors: Vec<(String, u16)>,
    pub(crate) scratch: UnitPath,
    /// Files with credentials and certificates, by their keys in the settings.
    pub(crate) files: Vec<(&'static str, UnitPath)>,
}

/// Returns what the engine asks of units; nothing when it is directories.
pub(crate) fn engine_of(
    engine: &EngineSettings,
    root: &Path,
) -> Result<Option<UnitEngine>, Trouble> {
    match engine.kind {
        EngineKind::Directories if !engine.moving => return Ok(None),
        EngineKind::Directories | EngineKind::Jetstream => {}
    }
    let servers = engine.servers.iter().map(|server| door_of(server, 4222));
    let store_port = if engine.endpoint.starts_with("https://") {
        443
    } else {
        80
    };
    let store = door_of(&engine.endpoint, store_port);
    let doors: Vec<(String, u16)> = servers.chain([store]).collect();
    let addresses = doors.iter().map(|(host, _)| host.parse().ok());
    let servers = match addresses.collect::<Option<Vec<IpAddr>>>() {
        Some(mut addresses) => {
            addresses.sort();
            addresses.dedup();
            EngineAddresses::At(addresses)
        }
        None => EngineAddresses::Named,
    };
    let mut files = Vec::new();
    for (key, path) in [
        ("credentials", &engine.credentials),
        ("servers-ca", &engine.servers_ca),
        ("key-file", &engine.key_file),
        ("secret-file", &engine.secret_file),
        ("store-ca", &engine.store_ca),
    ] {
        if !path.as_os_str().is_empty() {
            files.push((key, unit_path(&root.join(path))?));
        }
    }
    Ok(Some(UnitEngine {
        servers,
        doors,
        scratch: unit_path(&root.join(&engine.scratch))?,
        files,
    }))
}

/// The host and the port of an address such as `tls://name@192.0.2.1:4222/path`.
fn door_of(address: &str, usual: u16) -> (String, u16) {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match rest.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = port.and_then(|port| port.parse().ok()).unwrap_or(usual);
    (host.to_owned(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_settings_they_are_written_for() {
        let settings = r#"
            [chain]
            stages = ["ingest", "index", "transfer", "out"]
            [stage.ingest]
            next = ["index@alpha", "index@beta"]
            [metrics]
            listen = "127.0.0.1:9464"
            textfile = "/var/lib/prometheus/node-exporter/ecluse-{stage}.prom"
        "#;
        let pipeline = Pipeline::parse(settings, "pipeline.toml").unwrap();
        let stages = stages_of(&pipeline, crate::stages::ALL, Path::new("/srv/ecluse")).unwrap();
        let names: Vec<&str> = stages.iter().map(UnitStage::name).collect();
        for name in ["ingest", "index@alpha", "index@beta", "transfer"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"out"), "a place is no program");
        for stage in &stages {
            let figures = stage.figures.as_ref().map(UnitPath::as_str);
            assert_eq!(figures, Some("/var/lib/prometheus/node-exporter"));
            assert_eq!(stage.network, NetworkAccess::Loopback, "{}", stage.name());
        }
    }

    /// What the unit of a stage says beyond the template.
    fn drop_in(settings: &str, name: &str) -> Vec<String> {
        let pipeline = Pipeline::parse(settings, "pipeline.toml").unwrap();
        let root = Path::new("/srv/ecluse");
        let stages = stages_of(&pipeline, crate::stages::ALL, root).unwrap();
        let files = units::render(&stages, &UnitOptions::default());
        let wanted = format!("ecluse@{name}.service.d/50-ecluse.conf");
        let found = files.iter().find(|(file, _)| *file == wanted);
        let text = found.map_or("", |(_, text)| text.as_str());
        let lines = text.lines().filter(|line| {
            let keys = ["ReadWritePaths=", "ReadOnlyPaths=", "PrivateNetwork="];
            keys.iter().any(|key| line.starts_with(key))
        });
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn as_shipped_a_unit_writes_what_its_stage_writes() {
        const PLACES: [&str; 14] = [
            "backup",
            "changes",
            "harvested",
            "index",
            "jobs",
            "links",
            "news",
            "packages",
            "receipts",
            "register",
            "reports/dns-filter",
            "reports/preload",
            "repository",
            "runs",
        ];
        for (stage, writes) in [
            ("preload", &["reports/preload"][..]),
            ("dns-filter", &["reports/dns-filter"]),
            ("plan", &["news", "register", "runs"]),
            ("crawl", &["harvested", "jobs"]),
            ("ingest", &["harvested"]),
            ("index", &[]),
            ("transfer", &["repository"]),
            ("backup", &["backup"]),
            ("delete", &[]),
            ("merge", &[]),
            ("bigmerge", &["index"]),
            ("clean", &["harvested"]),
            ("package", &["packages", "repository"]),
            ("deposit", &["receipts"]),
            ("change", &["changes"]),
            ("rank", &["links"]),
            ("range", &["index"]),
        ] {
            let mut expected = Vec::new();
            if ["crawl", "dns-filter"].contains(&stage) {
                expected.push("PrivateNetwork=no".to_owned());
            }
            let closed = PLACES.iter().filter(|place| !writes.contains(place));
            expected.extend(closed.map(|place| format!("ReadOnlyPaths=-/srv/ecluse/{place}")));
            assert_eq!(drop_in("", stage), expected, "{stage}");
        }
    }

    #[test]
    fn a_unit_writes_where_the_settings_say_and_nowhere_else() {
        let settings = r#"
            [archive]
            harvested = ["/in/one", "/in/two"]
            repository = [{ name = "a", path = "/disk/a" }, { name = "b", path = "b" }]
            index = "/big/index"
            manifest = "/db/manifest.sqlite"
            packages = "/boxes"
            register = "/domains"
            changes = "/known"
            links = "/ties"
            [site]
            contact = "https://example.org/"
            [stage.preload]
            reports = "/told"
            [stage.dns-filter]
            reports = "/checked"
            redirects = true
            paces = "/fast/jobs/.paces"
            [stage.plan]
            runs = "/past"
            news = "/news"
            [stage.deposit]
            receipts = "/kept"
            [stage.crawl]
            jobs = "/fast/jobs"
            digests = "/shared/digests.sqlite"
            [[stage.backup.targets]]
            name = "tape"
            kind = "command"
            command = ["/usr/local/bin/to-tape"]
            [[stage.backup.targets]]
            name = "disk"
            kind = "directory"
            path = "/copies"
        "#;
        let writes = |places: &[&str]| -> Vec<String> {
            let places = places.iter();
            places
                .map(|place| format!("ReadWritePaths={place}"))
                .collect()
        };
        let closed = "ReadOnlyPaths=-/srv/ecluse/b".to_owned();
        let network = "PrivateNetwork=no".to_owned();
        for (stage, places, more) in [
            ("preload", &["/told"][..], vec![&closed]),
            (
                "dns-filter",
                &["/checked", "/fast/jobs/.paces"],
                vec![&network, &closed],
            ),
            ("plan", &["/domains", "/news", "/past"], vec![&closed]),
            (
                "crawl",
                &["/fast/jobs", "/in/one", "/shared"],
                vec![&network, &closed],
            ),
            ("ingest", &["/db", "/in/one", "/in/two"], vec![&closed]),
            ("index", &[], vec![&closed]),
            ("transfer", &["/db", "/disk/a"], vec![]),
            ("backup", &["/copies", "/db"], vec![&network, &closed]),
            ("delete", &["/db"], vec![&closed]),
            ("merge", &["/db"], vec![&closed]),
            ("bigmerge", &["/big/index", "/db"], vec![&closed]),
            ("clean", &["/db", "/in/one", "/in/two"], vec![&closed]),
            ("package", &["/boxes", "/db", "/disk/a"], vec![]),
            ("deposit", &["/db", "/kept"], vec![&closed]),
            ("change", &["/known"], vec![&closed]),
            ("rank", &["/ties"], vec![&closed]),
            ("range", &["/big/index"], vec![&closed]),
        ] {
            let expected: Vec<String> = more.into_iter().cloned().chain(writes(places)).collect();
            assert_eq!(drop_in(settings, stage), expected, "{stage}");
        }
    }

    const JETSTREAM: &str = r#"
        [engine]
        kind = "jetstream"
        servers = ["nats://192.0.2.1:4222", "tls://[2001:db8::1]"]
        endpoint = "https://192.0.2.9:9000"
        bucket = "archive"
        credentials = "/etc/ecluse/nats.creds"
        key-file = "keys/store.key"
        secret-file = "/home/archive/store.secret"
        scratch = "/fast/scratch"
    "#;

    #[test]
    fn with_servers_a_unit_reaches_them_and_writes_the_scratch_directory() {
        let lines = drop_in(JETSTREAM, "index");
        for line in [
            "PrivateNetwork=no",
            "ReadWritePaths=/fast/scratch",
            "ReadOnlyPaths=-/srv/ecluse/keys/store.key",
        ] {
            assert!(lines.contains(&line.to_owned()), "{lines:?}");
        }
        let pipeline = Pipeline::parse(JETSTREAM, "pipeline.toml").unwrap();
        let root = Path::new("/srv/ecluse");
        let stages = stages_of(&pipeline, crate::stages::ALL, root).unwrap();
        let files = units::render(&stages, &UnitOptions::default());
        for stage in &stages {
            let wanted = format!("ecluse@{}.service.d/50-ecluse.conf", stage.name());
            let (_, text) = files.iter().find(|(name, _)| *name == wanted).unwrap();
            assert!(text.contains("\nProtectHome=read-only\n"), "{text}");
            let is_limited = text.contains(
                "\nIPAddressAllow=192.0.2.1\nIPAddressAllow=192.0.2.9\nIPAddressAllow=2001:db8::1\n",
            );
            let is_open = text.contains("\nIPAddressDeny=\n");
            let needs_world = ["crawl", "dns-filter"].contains(&stage.name());
            assert_eq!((is_limited, is_open), (!needs_world, needs_world), "{text}");
        }
    }

    #[test]
    fn doors_are_found_in_addresses() {
        for (address, host, port) in [
            ("nats://nats1.example.org", "nats1.example.org", 4222),
            ("tls://me:word@192.0.2.1:4333", "192.0.2.1", 4333),
            ("nats://[2001:db8::1]:4", "2001:db8::1", 4),
            ("https://s3.example.org/path", "s3.example.org", 4222),
        ] {
            assert_eq!(door_of(address, 4222), (host.to_owned(), port));
        }
    }
}
