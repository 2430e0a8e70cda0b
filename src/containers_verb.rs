//! `ecluse units --format nomad` and `--format kubernetes`: one file each, and what must be there before it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ecluse_config::{EngineKind, EngineSettings, Level, Pipeline, base_of};
use ecluse_stage::Exit;
use serde_json::Value;

use crate::cli::{UnitsFormat, UnitsOptions};
use crate::containers::{self, ContainerOptions, ContainerStage, SecretFile};
use crate::context::{DriverContext, Trouble};
use crate::units::{UnitOptions, UnitPath, UnitStage};
use crate::units_verb::{engine_of, unit_path, write};

/// Keys of stages that name files with credentials and certificates.
const SECRET_KEYS: [&str; 4] = ["key-file", "secret-file", "token-file", "ca-file"];
/// The longest name of an object, and of a label.
const LONGEST_NAME: usize = 63;

pub(crate) fn write_containers(
    context: &DriverContext,
    asked: &UnitsOptions,
    stages: Vec<UnitStage>,
    units: &UnitOptions,
) -> Result<ExitCode, Trouble> {
    if asked.path_units {
        return Err(Trouble::usage("--path-units is for systemd"));
    }
    let pipeline = &context.pipeline;
    let root = Path::new(units.root.as_str());
    let user = pipeline.engine.of_user(EngineSettings::OPERATOR);
    let engine = engine_of(&user, root)?;
    let listen = pipeline.metrics.listen;
    let options = ContainerOptions {
        image: image(asked)?,
        root: units.root.clone(),
        programs: units.programs.clone(),
        settings: settings_text(pipeline)?,
        has_work: pipeline.engine.kind == EngineKind::Directories || pipeline.engine.moving,
        scratch: units.scratch.clone(),
        doors: engine.map(|engine| engine.doors).unwrap_or_default(),
        metrics_port: listen
            .filter(|listen| !listen.ip().is_loopback())
            .map(|listen| listen.port()),
    };
    let stages = placed(context, asked, &stages, &options)?;
    let (name, content) = match asked.format {
        UnitsFormat::Kubernetes => ("ecluse.yaml", containers::kubernetes(&stages, &options)),
        UnitsFormat::Nomad | UnitsFormat::Systemd => {
            let job = containers::nomad(&stages, &options).ok_or_else(|| {
                Trouble::new(
                    Exit::Config,
                    format!(
                        "{}: cannot be put into a template of Nomad",
                        pipeline.file()
                    ),
                )
            })?;
            ("ecluse.nomad.json", job)
        }
    };
    write(context, &asked.out.join(name), &content, "")?;
    tell(context, asked.format, &stages, &options)?;
    Ok(Exit::Done.into())
}

fn image(asked: &UnitsOptions) -> Result<String, Trouble> {
    let Some(image) = &asked.image else {
        return Err(Trouble::usage(
            "say with --image which container image has the programs, such as --image example.org/ecluse:1",
        ));
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./:@_-".contains(c);
    let is_image = image.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !is_image || !image.chars().all(is_plain) {
        return Err(Trouble::usage(format!(
            "{image:?} is no name of a container image"
        )));
    }
    Ok(image.clone())
}

/// The text that the stages were read from.
fn settings_text(pipeline: &Pipeline) -> Result<String, Trouble> {
    let file = pipeline.file();
    if file == Pipeline::default().file() {
        return Ok(ecluse_config::SHIPPED.to_owned());
    }
    fs::read_to_string(file)
        .map_err(|error| Trouble::new(Exit::Config, format!("cannot read {file}: {error}")))
}

/// The stages, each on each of its hosts.
fn placed(
    context: &DriverContext,
    asked: &UnitsOptions,
    stages: &[UnitStage],
    options: &ContainerOptions,
) -> Result<Vec<ContainerStage>, Trouble> {
    let pipeline = &context.pipeline;
    let hosts: Vec<Option<&str>> = match &asked.host {
        Some(host) => vec![Some(host)],
        None if pipeline.hosts.is_empty() => vec![None],
        None => pipeline
            .hosts
            .keys()
            .map(|host| Some(host.as_str()))
            .collect(),
    };
    let mut placed = Vec::new();
    let mut names = BTreeSet::new();
    for host in hosts {
        let here = host.and_then(|host| pipeline.stages_on(host));
        let is_here = |stage: &&UnitStage| {
            let here = here.as_ref();
            here.is_none_or(|here| here.contains(&stage.name()))
        };
        let stages: Vec<&UnitStage> = stages.iter().filter(is_here).collect();
        let volumes = volumes(&stages, options);
        for unit in stages {
            let name = container_name(unit.name(), host);
            let is_fit = name.len() <= LONGEST_NAME && !name.ends_with('-');
            if !is_fit || !names.insert(name.clone()) {
                let message = format!("{name:?} can name no container, or names two");
                let problem = pipeline.problem(Level::Error, "hosts", &message);
                return Err(Trouble::new(Exit::Config, problem));
            }
            let own = volumes
                .iter()
                .map(|(name, path)| (name.clone(), path.clone(), unit.writable.contains(path)));
            let is_scratch = |path: &UnitPath| Some(path) == options.scratch.as_ref();
            placed.push(ContainerStage {
                name,
                host: host.map(str::to_owned),
                keeps_nothing: pipeline.engine.kind == EngineKind::Jetstream
                    && !pipeline.engine.moving
                    && unit.writable.iter().all(is_scratch),
                secrets: secrets(pipeline, unit.name(), options)?,
                volumes: own.collect(),
                unit: unit.clone(),
            });
        }
    }
    // What keeps nothing has no volume of its host either.
    for stage in placed.iter_mut().filter(|stage| stage.keeps_nothing) {
        stage.volumes.clear();
    }
    Ok(placed)
}

fn container_name(stage: &str, host: Option<&str>) -> String {
    let stage = stage.replace('@', "-");
    match host {
        Some(host) => format!("ecluse-{stage}-{}", host.replace('.', "-")),
        None => format!("ecluse-{stage}"),
    }
}

/// The directories outside the root that stages of one host write, each with the name of its volume.
fn volumes(stages: &[&UnitStage], options: &ContainerOptions) -> Vec<(String, UnitPath)> {
    let written = stages.iter().flat_map(|stage| &stage.writable);
    let is_volume = |path: &&UnitPath| {
        let is_below_root = Path::new(path.as_str()).starts_with(options.root.as_str());
        !is_below_root && Some(*path) != options.scratch.as_ref()
    };
    let paths: BTreeSet<&UnitPath> = written.filter(is_volume).collect();
    let mut names = BTreeSet::new();
    let name = |path: &UnitPath| {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let plain: String = path.as_str().chars().map(plain).collect();
        let plain = plain.trim_matches('-').to_ascii_lowercase();
        let plain: String = plain.chars().take(40).collect();
        let plain = format!("at-{}", plain.trim_end_matches('-'));
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let mut free = std::iter::once(plain.clone()).chain(numbered);
        let free = free.find(|name| names.insert(name.clone()));
        free.expect("numbers do not end")
    };
    let mut name = name;
    paths
        .into_iter()
        .map(|path| (name(path), path.clone()))
        .collect()
}

/// The files with credentials that one stage reads: those of the engine, and its own.
fn secrets(
    pipeline: &Pipeline,
    stage: &str,
    options: &ContainerOptions,
) -> Result<Vec<SecretFile>, Trouble> {
    let root = Path::new(options.root.as_str());
    let engine = engine_of(&pipeline.engine.of_user(stage), root)?;
    let engine = engine.into_iter().flat_map(|engine| engine.files);
    let mut files: Vec<SecretFile> = engine
        .map(|(key, path)| SecretFile {
            key: format!("engine.{key}"),
            path,
        })
        .collect();
    let base = base_of(stage);
    let own: Value = pipeline
        .stage_settings(base)
        .map_err(|error| Trouble::new(Exit::Config, error))?;
    let mut found = Vec::new();
    find_secrets(&own, &format!("stage.{base}"), &mut found);
    for (key, path) in found {
        let path = unit_path(&root.join(path))?;
        // One file may have two uses; it is mounted once.
        if !files.iter().any(|file| file.path == path) {
            files.push(SecretFile { key, path });
        }
    }
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(file.path.clone()));
    Ok(files)
}

fn find_secrets(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = format!("{path}.{key}");
                match value {
                    Value::String(file) if SECRET_KEYS.contains(&key.as_str()) => {
                        if !file.is_empty() {
                            found.push((path, file.clone()));
                        }
                    }
                    value => find_secrets(value, &path, found),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_secrets(item, &format!("{path}.{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Says what must be there first.
fn tell(
    context: &DriverContext,
    format: UnitsFormat,
    stages: &[ContainerStage],
    options: &ContainerOptions,
) -> Result<(), Trouble> {
    let kept = stages.iter().filter(|stage| !stage.keeps_nothing);
    let mut volumes: BTreeSet<String> = kept
        .flat_map(|stage| {
            let root = stage.root_volume();
            let more = stage.volumes.iter();
            let more: Vec<String> = more.map(|(name, _, _)| format!("{root}-{name}")).collect();
            std::iter::once(root).chain(more)
        })
        .collect();
    if format == UnitsFormat::Nomad {
        let overlays = stages.iter().flat_map(|stage| {
            let below = stage.overlays(options).into_iter();
            below.map(|(below, _)| stage.overlay_volume(&below))
        });
        volumes.extend(overlays);
    }
    if format == UnitsFormat::Nomad && options.scratch.is_some() {
        let roots = stages.iter().map(ContainerStage::root_volume);
        volumes.extend(roots.map(|root| format!("{root}-scratch")));
    }
    let volumes = Vec::from_iter(volumes).join(", ");
    // A command for each stage, whatever its hosts.
    let mut files: BTreeMap<(String, String), Vec<(&str, &str)>> = BTreeMap::new();
    for stage in stages.iter().filter(|stage| !stage.secrets.is_empty()) {
        let secrets = stage.secrets.iter();
        let secrets = secrets.map(|file| (file.key.as_str(), file.path.as_str()));
        files.insert((stage.secret(), stage.name.clone()), secrets.collect());
    }
    match format {
        UnitsFormat::Kubernetes => {
            context.say(&format!("claims that must be there: {volumes}"))?;
            let mut told = BTreeSet::new();
            for ((secret, _), files) in files {
                let files = files.iter();
                let files = files.map(|(key, path)| format!(" --from-file={key}={path}"));
                let files: String = files.collect();
                if told.insert(secret.clone()) {
                    context.say(&format!(
                        "first: kubectl create secret generic {secret}{files}"
                    ))?;
                }
            }
        }
        UnitsFormat::Nomad | UnitsFormat::Systemd => {
            context.say(&format!("host volumes that must be there: {volumes}"))?;
            for ((_, group), files) in files {
                let files = files.iter();
                let files =
                    files.map(|(key, path)| format!(" {}=@{path}", containers::variable(key)));
                let files: String = files.collect();
                context.say(&format!(
                    "first: nomad var put nomad/jobs/ecluse/{group}{files}"
                ))?;
            }
        }
    }
    if options.metrics_port.is_none() {
        context.say(
            "nothing asks whether a stage is alive: metrics.listen = \"0.0.0.0:9464\" would let it",
        )?;
    }
    Ok(())
}
