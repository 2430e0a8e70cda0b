//! The stages of a pipeline as containers: a job for Nomad, manifests for Kubernetes.
//!
//! Both say the same: each stage is a process of its own without privileges on a file system that it cannot write, with the volumes of
//! its host, the files with credentials that it needs and no others, and the network that it needs. Every value goes through
//! `serde_json`, and paths and names are those that a unit takes: nothing can be misread. YAML is written as JSON, which it contains.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::units::{NetworkAccess, UnitPath, UnitStage};

/// The user and group of the processes.
const USER: u32 = 10_001;
/// Where the settings lie in a container.
const SETTINGS: &str = "/etc/ecluse/pipeline.toml";
/// What a process may still do after its grace, as the units have it.
const STOP_MARGIN: Duration = Duration::from_secs(5 * 60);
/// No pipeline.toml has these: nothing in it is a template.
const DELIMITERS: [&str; 2] = ["<<<ecluse-template", "ecluse-template>>>"];

/// A file with a credential or a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretFile {
    /// What it is called where it is kept: its key in the settings.
    pub(crate) key: String,
    /// Where the settings look for it.
    pub(crate) path: UnitPath,
}

/// One stage on one host.
#[derive(Clone, Debug)]
pub(crate) struct ContainerStage {
    pub(crate) unit: UnitStage,
    /// A name of its own among all.
    pub(crate) name: String,
    pub(crate) host: Option<String>,
    /// It keeps nothing: its root is a directory that goes with it.
    pub(crate) keeps_nothing: bool,
    pub(crate) secrets: Vec<SecretFile>,
    /// Volumes outside the root: their names, and whether it writes there.
    pub(crate) volumes: Vec<(String, UnitPath, bool)>,
}

/// What the containers of one pipeline have in common.
#[derive(Clone, Debug)]
pub(crate) struct ContainerOptions {
    pub(crate) image: String,
    pub(crate) root: UnitPath,
    pub(crate) programs: UnitPath,
    /// The whole text of pipeline.toml.
    pub(crate) settings: String,
    /// Parcels lie in the root.
    pub(crate) has_work: bool,
    pub(crate) scratch: Option<UnitPath>,
    /// Servers of the engine, with their ports.
    pub(crate) doors: Vec<(String, u16)>,
    /// The port of `/healthz`, where others can reach it.
    pub(crate) metrics_port: Option<u16>,
}

impl ContainerStage {
    fn base(&self) -> &str {
        let name = self.unit.name();
        name.split_once('@').map_or(name, |(base, _)| base)
    }

    fn arguments(&self, options: &ContainerOptions) -> Vec<String> {
        let mut arguments: Vec<String> = ["--root", options.root.as_str(), "--config", SETTINGS]
            .map(str::to_owned)
            .into();
        if let Some((_, machine)) = self.unit.name().split_once('@') {
            arguments.extend(["--instance".to_owned(), machine.to_owned()]);
        }
        arguments
    }

    fn program(&self, options: &ContainerOptions) -> String {
        format!("{}/ecluse-{}", options.programs, self.base())
    }

    /// The volume with the root of its host.
    pub(crate) fn root_volume(&self) -> String {
        match &self.host {
            Some(host) => format!("ecluse-{}", host.replace('.', "-")),
            None => "ecluse".to_owned(),
        }
    }

    /// The Secret with its files: one for each stage, on whatever host.
    pub(crate) fn secret(&self) -> String {
        format!("ecluse-{}-files", self.unit.name().replace(['@', '.'], "-"))
    }

    /// The host volume of Nomad with a directory below the root: Nomad mounts volumes whole.
    pub(crate) fn overlay_volume(&self, below: &str) -> String {
        format!("{}-{}", self.root_volume(), overlay_name(below))
    }

    /// Whether it writes the root itself, as where the manifest lies there.
    fn writes_root(&self, options: &ContainerOptions) -> bool {
        self.unit.writable.contains(&options.root)
    }

    /// The directories below the root that are laid over it, and whether it writes there. Who may not write the root has its
    /// own directories; who may has those of others for reading only. Parcels move between stages by renames, which do not
    /// cross mounts: all work directories are one.
    pub(crate) fn overlays(&self, options: &ContainerOptions) -> Vec<(String, bool)> {
        if self.keeps_nothing {
            return Vec::new();
        }
        let is_secret = |path: &UnitPath| self.secrets.iter().any(|secret| &secret.path == path);
        let below = |path: &UnitPath| {
            let below = Path::new(path.as_str()).strip_prefix(options.root.as_str());
            let below = below.ok()?.to_str()?;
            let is_wanted = !below.is_empty() && Some(path) != options.scratch.as_ref();
            (is_wanted && !is_secret(path)).then(|| below.to_owned())
        };
        let writes_root = self.writes_root(options);
        let mut overlays: Vec<(String, bool)> = match writes_root {
            true => self
                .unit
                .read_only
                .iter()
                .filter_map(below)
                .map(|path| (path, false))
                .collect(),
            false => {
                let written = self.unit.writable.iter().chain(&self.unit.figures);
                let written = written.filter_map(below).map(|path| (path, true));
                written.collect()
            }
        };
        if options.has_work && !writes_root {
            overlays.push(("work".to_owned(), true));
        }
        overlays.sort();
        overlays.dedup();
        overlays
    }

    fn stop(&self) -> Duration {
        self.unit.grace.saturating_add(STOP_MARGIN)
    }
}

/// What the volume of a directory below the root is called in its group.
fn overlay_name(below: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let plain: String = below.chars().map(plain).collect();
    format!("in-{plain}")
}

/// The manifests, one document after another.
pub(crate) fn kubernetes(stages: &[ContainerStage], options: &ContainerOptions) -> String {
    let labels = json!({ "app.kubernetes.io/name": "ecluse" });
    let mut documents = vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": "ecluse", "labels": labels },
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "ecluse", "labels": labels },
            "data": { "pipeline.toml": options.settings },
        }),
    ];
    documents.extend(policies(stages, options));
    documents.extend(stages.iter().map(|stage| deployment(stage, options)));
    let texts = documents.iter().map(yaml);
    texts.collect::<Vec<String>>().join("---\n")
}

/// A document of YAML, as JSON. What YAML does not take as it stands is escaped.
fn yaml(document: &Value) -> String {
    let mut text = String::new();
    for c in format!("{document:#}\n").chars() {
        match c {
            '\n' => text.push(c),
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if c.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text
}

fn policies(stages: &[ContainerStage], options: &ContainerOptions) -> Vec<Value> {
    let policy = |name: &str, selector: Value, spec: Value| {
        let mut spec = spec;
        spec["podSelector"] = selector;
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "ecluse" } },
            "spec": spec,
        })
    };
    let all = json!({ "matchLabels": { "app.kubernetes.io/name": "ecluse" } });
    let mut egress: Vec<Value> = Vec::new();
    let mut names_ports = Vec::new();
    for (host, port) in &options.doors {
        let ports = json!([{ "protocol": "TCP", "port": port }]);
        match host.parse::<IpAddr>() {
            Ok(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                let block = json!({ "ipBlock": { "cidr": format!("{address}/{bits}") } });
                egress.push(json!({ "to": [block], "ports": ports }));
            }
            // A policy knows no names: the port alone is opened.
            Err(_) if !names_ports.contains(port) => {
                names_ports.push(*port);
                egress.push(json!({ "ports": ports }));
            }
            Err(_) => {}
        }
    }
    if !names_ports.is_empty() {
        let ports = ["UDP", "TCP"].map(|protocol| json!({ "protocol": protocol, "port": 53 }));
        egress.push(json!({ "ports": ports }));
    }
    let ingress: Vec<Value> = options
        .metrics_port
        .map(|port| json!({ "ports": [{ "protocol": "TCP", "port": port }] }))
        .into_iter()
        .collect();
    let own = json!({ "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress });
    let mut policies = vec![policy("ecluse", all, own)];
    let reaches_out = |stage: &&ContainerStage| stage.unit.network == NetworkAccess::World;
    let mut names: Vec<&str> = stages
        .iter()
        .filter(reaches_out)
        .map(ContainerStage::base)
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let expression = json!({ "key": "ecluse/stage", "operator": "In", "values": names });
        let selector = json!({
            "matchLabels": { "app.kubernetes.io/name": "ecluse" },
            "matchExpressions": [expression],
        });
        let world = json!({ "policyTypes": ["Egress"], "egress": [{}] });
        policies.push(policy("ecluse-world", selector, world));
    }
    policies
}

fn deployment(stage: &ContainerStage, options: &ContainerOptions) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "ecluse",
        "app.kubernetes.io/instance": stage.name,
        "ecluse/stage": stage.base(),
    });
    let selector = json!({
        "app.kubernetes.io/name": "ecluse",
        "app.kubernetes.io/instance": stage.name,
    });
    let mut pod = json!({
        "serviceAccountName": "ecluse",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": stage.stop().as_secs(),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(stage, options)],
        "volumes": pod_volumes(stage, options),
    });
    if let Some(host) = &stage.host {
        pod["nodeSelector"] = json!({ "ecluse/host": host });
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": stage.name, "labels": labels },
        "spec": {
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": selector },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

fn container(stage: &ContainerStage, options: &ContainerOptions) -> Value {
    let mut mounts = vec![
        json!({ "name": "tmp", "mountPath": "/tmp" }),
        json!({
            "name": "root",
            "mountPath": options.root.as_str(),
            "readOnly": !stage.keeps_nothing && !stage.writes_root(options),
        }),
        json!({ "name": "settings", "mountPath": SETTINGS, "subPath": "pipeline.toml", "readOnly": true }),
    ];
    for (below, is_written) in stage.overlays(options) {
        let path = format!("{}/{below}", options.root);
        mounts.push(
            json!({ "name": "root", "mountPath": path, "subPath": below, "readOnly": !is_written }),
        );
    }
    if let Some(scratch) = &options.scratch {
        mounts.push(json!({ "name": "scratch", "mountPath": scratch.as_str() }));
    }
    for (name, path, is_written) in &stage.volumes {
        mounts.push(json!({ "name": name, "mountPath": path.as_str(), "readOnly": !is_written }));
    }
    for SecretFile { key, path } in &stage.secrets {
        mounts.push(json!({ "name": "files", "mountPath": path.as_str(), "subPath": key, "readOnly": true }));
    }
    let mut container = json!({
        "name": stage.base(),
        "image": options.image,
        "command": [stage.program(options)],
        "args": stage.arguments(options),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "privileged": false,
            "capabilities": { "drop": ["ALL"] },
        },
        "resources": { "requests": { "memory": "128Mi" }, "limits": { "memory": "6G" } },
        "volumeMounts": mounts,
    });
    if let Some(port) = options.metrics_port {
        container["ports"] = json!([{ "name": "metrics", "containerPort": port }]);
        let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "metrics" }, "periodSeconds": 20 });
        container["livenessProbe"] = probe("/healthz");
        container["livenessProbe"]["failureThreshold"] = json!(3);
        container["readinessProbe"] = probe("/readyz");
        // What dead workers left is settled first.
        container["startupProbe"] = probe("/healthz");
        container["startupProbe"]["failureThreshold"] = json!(15);
    }
    container
}

fn pod_volumes(stage: &ContainerStage, options: &ContainerOptions) -> Vec<Value> {
    let claim = |name: &str, claim: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } });
    let mut volumes = vec![
        json!({ "name": "tmp", "emptyDir": {} }),
        json!({ "name": "settings", "configMap": { "name": "ecluse" } }),
    ];
    volumes.push(if stage.keeps_nothing {
        json!({ "name": "root", "emptyDir": {} })
    } else {
        claim("root", &stage.root_volume())
    });
    if options.scratch.is_some() {
        volumes.push(json!({ "name": "scratch", "emptyDir": {} }));
    }
    for (name, _, _) in &stage.volumes {
        volumes.push(claim(name, &format!("{}-{name}", stage.root_volume())));
    }
    if !stage.secrets.is_empty() {
        let items = stage.secrets.iter();
        let items: Vec<Value> = items
            .map(|file| json!({ "key": file.key, "path": file.key }))
            .collect();
        // 0440: the pod's group, fsGroup, reads it and nobody else.
        let secret = json!({ "secretName": stage.secret(), "defaultMode": 0o440, "items": items });
        volumes.push(json!({ "name": "files", "secret": secret }));
    }
    volumes
}

/// The job for Nomad, as its API takes it; `None` when the settings have our delimiters of templates.
pub(crate) fn nomad(stages: &[ContainerStage], options: &ContainerOptions) -> Option<String> {
    let is_taken = |delimiter: &&str| options.settings.contains(*delimiter);
    if DELIMITERS.iter().any(is_taken) {
        return None;
    }
    let groups: Vec<Value> = stages.iter().map(|stage| group(stage, options)).collect();
    let job = json!({ "Job": {
        "ID": "ecluse",
        "Name": "ecluse",
        "Type": "service",
        "Datacenters": ["*"],
        "TaskGroups": groups,
    }});
    Some(format!("{job:#}\n"))
}

/// The name of a file among the variables of the job: letters, digits and `_`.
pub(crate) fn variable(key: &str) -> String {
    key.replace(['.', '-'], "_")
}

fn group(stage: &ContainerStage, options: &ContainerOptions) -> Value {
    let host_volume = |source: &str, is_read_only: bool| json!({ "Type": "host", "Source": source, "ReadOnly": is_read_only });
    let mut volumes = serde_json::Map::new();
    if !stage.keeps_nothing {
        let is_read_only = !stage.writes_root(options);
        let root = host_volume(&stage.root_volume(), is_read_only);
        volumes.insert("root".to_owned(), root);
    }
    for (below, is_written) in stage.overlays(options) {
        let source = stage.overlay_volume(&below);
        volumes.insert(overlay_name(&below), host_volume(&source, !is_written));
    }
    for (name, _, is_written) in &stage.volumes {
        let source = format!("{}-{name}", stage.root_volume());
        volumes.insert(name.clone(), host_volume(&source, !is_written));
    }
    if options.scratch.is_some() {
        let source = format!("{}-scratch", stage.root_volume());
        volumes.insert("scratch".to_owned(), host_volume(&source, false));
    }
    for (name, volume) in &mut volumes {
        volume["Name"] = json!(name);
    }
    let second = 1_000_000_000_u64;
    let mut group = json!({
        "Name": stage.name,
        "Count": 1,
        "Volumes": volumes,
        "RestartPolicy": { "Attempts": 15, "Interval": 300 * second, "Delay": 20 * second, "Mode": "delay" },
        "Tasks": [task(stage, options)],
    });
    if let Some(host) = &stage.host {
        group["Constraints"] =
            json!([{ "LTarget": "${meta.ecluse_host}", "RTarget": host, "Operand": "=" }]);
    }
    if let Some(port) = options.metrics_port {
        group["Networks"] =
            json!([{ "Mode": "bridge", "DynamicPorts": [{ "Label": "metrics", "To": port }] }]);
        group["Services"] = json!([{
            "Name": stage.name,
            "Provider": "nomad",
            "PortLabel": "metrics",
            "Checks": [{
                "Name": "healthz",
                "Type": "http",
                "Path": "/healthz",
                "Interval": 20 * second,
                "Timeout": 5 * second,
                "CheckRestart": { "Limit": 3, "Grace": 300 * second },
            }],
        }]);
    }
    group
}

fn task(stage: &ContainerStage, options: &ContainerOptions) -> Value {
    let bind = |source: &str, target: &str| json!({ "type": "bind", "source": source, "target": target, "readonly": true });
    let tmpfs = |target: &str| {
        let mode = json!({ "mode": 0o1777 });
        json!({ "type": "tmpfs", "target": target, "tmpfs_options": mode })
    };
    let mut mounts = vec![tmpfs("/tmp"), bind("local/pipeline.toml", SETTINGS)];
    let mut templates = vec![json!({
        "DestPath": "local/pipeline.toml",
        "EmbeddedTmpl": options.settings,
        "LeftDelim": DELIMITERS[0],
        "RightDelim": DELIMITERS[1],
        "ChangeMode": "restart",
        "Perms": "0444",
    })];
    for SecretFile { key, path } in &stage.secrets {
        let source = format!("secrets/{key}");
        mounts.push(bind(&source, path.as_str()));
        let variable = variable(key);
        templates.push(json!({
            "DestPath": source,
            "EmbeddedTmpl": format!("{{{{ with nomadVar \"nomad/jobs/ecluse/{}\" }}}}{{{{ index . \"{variable}\" }}}}{{{{ end }}}}", stage.name),
            "ChangeMode": "restart",
            "Perms": "0400",
            "Uid": USER,
            "Gid": USER,
        }));
    }
    let mut volume_mounts = Vec::new();
    let volume = |name: &str, path: &UnitPath, is_read_only: bool| json!({ "Volume": name, "Destination": path.as_str(), "ReadOnly": is_read_only });
    if !stage.keeps_nothing {
        let is_read_only = !stage.writes_root(options);
        volume_mounts.push(volume("root", &options.root, is_read_only));
    }
    for (below, is_written) in stage.overlays(options) {
        volume_mounts.push(json!({
            "Volume": overlay_name(&below),
            "Destination": format!("{}/{below}", options.root),
            "ReadOnly": !is_written,
        }));
    }
    for (name, path, is_written) in &stage.volumes {
        volume_mounts.push(volume(name, path, !is_written));
    }
    if stage.keeps_nothing {
        mounts.push(tmpfs(options.root.as_str()));
    }
    if let Some(scratch) = &options.scratch {
        volume_mounts.push(volume("scratch", scratch, false));
    }
    let mut config = json!({
        "image": options.image,
        "command": stage.program(options),
        "args": stage.arguments(options),
        "readonly_rootfs": true,
        "cap_drop": ["all"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 512,
        "mount": mounts,
    });
    let is_alone = stage.unit.network != NetworkAccess::World && stage.unit.engine.is_none();
    if is_alone && options.metrics_port.is_none() {
        config["network_mode"] = json!("none");
    }
    let stop = u64::try_from(stage.stop().as_nanos()).unwrap_or(u64::MAX / 2);
    json!({
        "Name": stage.base(),
        "Driver": "docker",
        "User": format!("{USER}:{USER}"),
        "Config": config,
        "Templates": templates,
        "VolumeMounts": volume_mounts,
        "Resources": { "CPU": 500, "MemoryMB": 512, "MemoryMaxMB": 6000 },
        "KillSignal": "SIGTERM",
        "KillTimeout": stop,
    })
}
