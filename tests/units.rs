//! `ecluse units` for several hosts, for Nomad and for Kubernetes, judged by those who read what it writes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const JETSTREAM: &str = r#"
[engine]
kind = "jetstream"
servers = ["nats://192.0.2.1:4222", "tls://nats2.example.org:4222"]
endpoint = "https://192.0.2.9:9000"
bucket = "archive"
credentials = "/etc/ecluse/{stage}/nats.creds"
key-file = "/etc/ecluse/{stage}/store.key"
secret-file = "/etc/ecluse/{stage}/store.secret"
scratch = "/fast/scratch"
[metrics]
listen = "0.0.0.0:9464"
[site]
organization = "it's \"quoted\": {{ {stage} }} \\ # ---"
[archive]
repository = [{ name = "a", path = "/disk/a" }]
[stage.transfer]
grace = "1h"
[[stage.backup.targets]]
name = "shop"
kind = "s3"
endpoint = "https://s3.example.org"
bucket = "b"
key-file = "/etc/ecluse/backup.key"
secret-file = "/etc/ecluse/backup.secret"
[hosts]
alpha = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "crawl"]
"beta.example.org" = ["index", "dns-filter"]
"#;

/// A chain in small, on directories.
const CHAIN: &str = r#"
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean"]
[defaults]
scan = "200ms"
settle = "100ms"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
back = []
[stage.merge]
back = []
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
"#;

const WARC: &str = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n\
    WARC-Date: 2026-03-12T10:15:00Z\r\nWARC-Target-URI: http://example.org/\r\n\
    Content-Type: application/http; msgtype=response\r\nContent-Length: 19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\r\n\r\n";

struct Settings {
    dir: tempfile::TempDir,
}

impl Settings {
    fn new(text: &str) -> Self {
        // Not below /tmp: a unit sees a private one.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(dir.path().join("pipeline.toml"), text).unwrap();
        Self { dir }
    }

    fn units(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.args(["--root", "/srv/ecluse", "--config"]);
        command.arg(self.dir.path().join("pipeline.toml"));
        command.arg("units").args(words).arg("--out");
        command.arg(self.dir.path().join("out")).output().unwrap()
    }

    fn must(&self, words: &[&str]) -> String {
        let output = self.units(words);
        let said = said(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }

    fn text(&self, name: &str) -> String {
        let path = self.dir.path().join("out").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The documents of a file of YAML, read and judged by others.
fn judged(path: &Path) -> Vec<Value> {
    const JUDGE: &str = "import json, sys, yaml, kubernetes_validate\n\
                         documents = list(yaml.safe_load_all(open(sys.argv[1], encoding='utf-8')))\n\
                         for document in documents: kubernetes_validate.validate(document, '1.31', strict=True)\n\
                         print(json.dumps(documents))";
    let mut python = Command::new(ecluse_peers::manifest_python());
    let output = python.args(["-c", JUDGE]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn deployment<'a>(documents: &'a [Value], name: &str) -> &'a Value {
    let mut found = documents
        .iter()
        .filter(|document| document["kind"] == "Deployment");
    let found = found.find(|document| document["metadata"]["name"] == name);
    &found.unwrap_or_else(|| panic!("no {name}"))["spec"]["template"]["spec"]
}

#[test]
fn a_host_has_the_units_of_its_stages_and_no_others() {
    let settings = Settings::new(JETSTREAM);
    settings.must(&["--host", "beta.example.org"]);
    let wants = settings.text("ecluse.target.d/50-ecluse.conf");
    let wants: Vec<&str> = wants
        .lines()
        .filter(|line| line.starts_with("Wants"))
        .collect();
    assert_eq!(
        wants,
        [
            "Wants=ecluse@dns-filter.service",
            "Wants=ecluse@index.service"
        ]
    );
    let index = settings.text("ecluse@index.service.d/50-ecluse.conf");
    let hidden = index
        .lines()
        .find(|line| line.starts_with("InaccessiblePaths="));
    let hidden = hidden.unwrap();
    assert!(
        hidden.contains(" -/etc/ecluse/operator ") && hidden.contains(" -/etc/ecluse/transfer")
    );
    assert!(!hidden.contains("/etc/ecluse/index"), "{hidden}");
    assert!(
        index.contains("\nReadWritePaths=/fast/scratch\n"),
        "{index}"
    );
    let directories = settings.text("tmpfiles.d/ecluse.conf");
    assert!(directories.contains("/work/index/drop") && !directories.contains("/work/ingest"));

    let refused = settings.units(&["--host", "gamma"]);
    assert_eq!(refused.status.code(), Some(78));
    let line = said(&refused);
    assert!(
        line.trim_end()
            .ends_with("'hosts': there is no host 'gamma'; known are alpha, beta.example.org"),
        "{line}"
    );
    assert!(
        line.contains("pipeline.toml:") && line.lines().count() == 1,
        "{line}"
    );
    let refused = said(&settings.units(&["--path-units"]));
    assert!(refused.contains("leave --path-units away"), "{refused}");
    for text in [
        "",
        &JETSTREAM.replace("scratch =", "moving = true\nscratch ="),
    ] {
        let refused = Settings::new(text).units(&["--rights"]);
        assert_eq!(refused.status.code(), Some(78));
        assert!(
            said(&refused).contains("leave --rights away"),
            "{}",
            said(&refused)
        );
    }
    let refused = said(&Settings::new("").units(&["--host", "alpha"]));
    assert!(refused.contains("say which stages run there"), "{refused}");
}

#[test]
fn systemd_takes_the_units_of_stages_with_servers() {
    let literal = JETSTREAM.replace("tls://nats2.example.org", "tls://[2001:db8::2]");
    for text in [JETSTREAM, &literal] {
        let settings = Settings::new(text);
        // Programs that are there: systemd looks.
        settings.must(&[]);
        let out = settings.dir.path().join("out");
        let template = out.join("ecluse@.service");
        let unit = fs::read_to_string(&template).unwrap();
        let mut drawn = String::new();
        for line in unit.lines() {
            match line.split_once("=/usr/bin/ecluse-%i ") {
                Some((key, _)) => drawn.push_str(&format!("{key}=/bin/true\n")),
                None => drawn.push_str(&format!("{line}\n")),
            }
        }
        fs::write(&template, drawn).unwrap();
        let mut command = Command::new("systemd-analyze");
        command.env("SYSTEMD_UNIT_PATH", format!("{}:", out.display()));
        command.args([
            "verify",
            "--man=no",
            "ecluse@index.service",
            "ecluse@crawl.service",
            "ecluse.target",
        ]);
        let output = command.output().unwrap();
        let complaints = said(&output);
        let about_us: Vec<&str> = complaints
            .lines()
            .filter(|line| line.contains("ecluse"))
            .collect();
        assert_eq!(about_us, [""; 0], "{complaints}");
    }
}

#[test]
fn kubernetes_takes_the_manifests_and_a_stage_has_what_it_needs() {
    let settings = Settings::new(JETSTREAM);
    let told = settings.must(&["--format", "kubernetes", "--image", "example.org/ecluse:1"]);
    assert!(
        told.contains("claims that must be there: ecluse-alpha, ecluse-alpha-at-disk-a"),
        "{told}"
    );
    let secret = "create secret generic ecluse-index-files --from-file=engine.credentials=/etc/ecluse/index/nats.creds \
                  --from-file=engine.key-file=/etc/ecluse/index/store.key --from-file=engine.secret-file=/etc/ecluse/index/store.secret\n";
    assert!(told.contains(secret), "{told}");
    assert_eq!(told.matches("ecluse-index-files").count(), 1, "{told}");
    let documents = judged(&settings.dir.path().join("out/ecluse.yaml"));
    let map = documents
        .iter()
        .find(|document| document["kind"] == "ConfigMap");
    assert_eq!(map.unwrap()["data"]["pipeline.toml"], JETSTREAM);
    let index = deployment(&documents, "ecluse-index-beta-example-org");
    assert_eq!(index["nodeSelector"]["ecluse/host"], "beta.example.org");
    assert_eq!(index["automountServiceAccountToken"], false);
    assert_eq!(index["terminationGracePeriodSeconds"], 600);
    assert!(
        !index.to_string().contains("persistentVolumeClaim"),
        "{index}"
    );
    assert!(!index.to_string().contains("backup"), "{index}");
    let transfer = deployment(&documents, "ecluse-transfer-alpha");
    assert_eq!(transfer["terminationGracePeriodSeconds"], 3_900);
    let disk = |pod: &Value| {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let disk = mounts.iter().find(|mount| mount["mountPath"] == "/disk/a");
        disk.unwrap()["readOnly"].clone()
    };
    assert_eq!(disk(transfer), false);
    let backup = deployment(&documents, "ecluse-backup-alpha");
    assert_eq!(disk(backup), true);
    assert!(
        backup
            .to_string()
            .contains("stage.backup.targets.0.secret-file")
    );
    for document in documents
        .iter()
        .filter(|document| document["kind"] == "Deployment")
    {
        let pod = &document["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"][0],
            "ALL"
        );
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    }
    let policies: Vec<&Value> = documents
        .iter()
        .filter(|document| document["kind"] == "NetworkPolicy")
        .collect();
    let world = &policies[1]["spec"]["podSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*world, serde_json::json!(["backup", "crawl", "dns-filter"]));
    let egress = policies[0]["spec"]["egress"].to_string();
    assert!(
        egress.contains("192.0.2.9/32") && egress.contains("53"),
        "{egress}"
    );

    // As shipped, too: one claim, no server, no way out but for those that need one.
    let shipped = Settings::new("");
    shipped.must(&["--format", "kubernetes", "--image", "ecluse"]);
    let documents = judged(&shipped.dir.path().join("out/ecluse.yaml"));
    assert!(
        deployment(&documents, "ecluse-index")
            .to_string()
            .contains("persistentVolumeClaim")
    );
    for (words, expected) in [
        (&["--format", "kubernetes"][..], "--image"),
        (&["--format", "nomad"], "--image"),
        (
            &["--format", "kubernetes", "--image", "a\nb"],
            "is no name of a container image",
        ),
        (&["--image", "a"], "--image is for"),
    ] {
        let refused = shipped.units(words);
        assert_eq!(refused.status.code(), Some(64), "{words:?}");
        assert!(said(&refused).contains(expected), "{}", said(&refused));
    }
    let odd = JETSTREAM.replace("/etc/ecluse/{stage}/store.key", "/etc/ecluse/a\\nb");
    let refused = Settings::new(&odd).units(&["--format", "nomad", "--image", "a"]);
    assert_eq!(refused.status.code(), Some(78));
}

/// Where the manifests let a stage write, it does its work; where others keep theirs, it may not.
#[test]
fn a_chain_runs_on_the_mounts_of_its_pods() {
    let settings = Settings::new(CHAIN);
    let root = settings.dir.path().join("root");
    let out = settings.dir.path().join("out");
    let ecluse = |words: &[&str]| {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        let command = command
            .current_dir(settings.dir.path())
            .arg("--root")
            .arg(&root);
        command
            .arg("--config")
            .arg(settings.dir.path().join("pipeline.toml"));
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    };
    fs::create_dir(&root).unwrap();
    let out_text = out.display().to_string();
    ecluse(&[
        "units",
        "--format",
        "kubernetes",
        "--image",
        "ecluse",
        "--out",
        &out_text,
    ]);
    let documents = judged(&out.join("ecluse.yaml"));
    fs::create_dir(root.join("harvested")).unwrap();
    let name = "1-1-20260312101500000-00000-h.warc";
    fs::write(root.join("harvested").join(name), WARC).unwrap();
    for stage in [
        "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean",
    ] {
        let pod = deployment(&documents, &format!("ecluse-{stage}"));
        let mut script = "set -eu\n".to_owned();
        let mut closed = Vec::new();
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            if mount["name"] != "root" {
                continue;
            }
            let path = mount["mountPath"].as_str().unwrap();
            // The kubelet makes a directory that is not there.
            script.push_str(&format!("mkdir -p {path}; mount --bind {path} {path}\n"));
            if mount["readOnly"] == true {
                closed.push(path.to_owned());
            }
        }
        for path in &closed {
            script.push_str(&format!("mount -o remount,bind,ro {path}\n"));
            script.push_str(&format!(
                "! touch {path}/x 2> {out_text}/said\ngrep -q 'Read-only' {out_text}/said\n"
            ));
        }
        assert!(!closed.is_empty(), "{stage} may write everything");
        let config = settings.dir.path().join("pipeline.toml");
        script.push_str(&format!(
            "cd /; exec {ECLUSE} stage {stage} --once --root {} --config {}\n",
            root.display(),
            config.display()
        ));
        let mut command = Command::new("unshare");
        settle_environment(&mut command);
        let output = command
            .args(["--mount", "sh", "-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{stage}: {}", said(&output));
    }
    let index = fs::read_to_string(root.join("index/current/index.cdxj")).unwrap();
    assert_eq!(index.lines().count(), 1, "{index}");
}

#[test]
fn a_job_for_nomad_has_a_group_for_each_stage_with_what_it_needs() {
    let settings = Settings::new(JETSTREAM);
    let told = settings.must(&["--format", "nomad", "--image", "example.org/ecluse:1"]);
    let variables = "nomad var put nomad/jobs/ecluse/ecluse-index-alpha engine_credentials=@/etc/ecluse/index/nats.creds";
    assert!(told.contains(variables), "{told}");
    let job: Value = serde_json::from_str(&settings.text("ecluse.nomad.json")).unwrap();
    let groups = job["Job"]["TaskGroups"].as_array().unwrap();
    assert_eq!(groups.len(), 11);
    for group in groups {
        let task = &group["Tasks"][0];
        let config = &task["Config"];
        assert_eq!(config["readonly_rootfs"], true);
        assert_eq!(config["cap_drop"][0], "all");
        assert_eq!(task["User"], "10001:10001");
        assert_eq!(task["Templates"][0]["EmbeddedTmpl"], JETSTREAM);
        // Each file that is mounted is one that is written, each volume one that the group has.
        let written = task["Templates"].as_array().unwrap();
        let mut bound = config["mount"].as_array().unwrap().iter();
        assert!(bound.all(|mount| {
            mount["type"] != "bind"
                || written
                    .iter()
                    .any(|template| template["DestPath"] == mount["source"])
        }));
        for mount in task["VolumeMounts"].as_array().unwrap() {
            let name = mount["Volume"].as_str().unwrap();
            assert_eq!(group["Volumes"][name]["Name"], name);
        }
        // Of the credentials, its own, which no other group may read.
        let own = format!("nomad/jobs/ecluse/{}\\\"", group["Name"].as_str().unwrap());
        let secrets = &written[1..];
        assert!(secrets.len() >= 3);
        for secret in secrets {
            assert!(
                secret["EmbeddedTmpl"].to_string().contains(&own),
                "{secret}"
            );
        }
        let has_backup_keys = written
            .iter()
            .any(|template| template["DestPath"].to_string().contains("stage.backup"));
        assert_eq!(has_backup_keys, group["Name"] == "ecluse-backup-alpha");
    }
    let transfer = groups
        .iter()
        .find(|group| group["Name"] == "ecluse-transfer-alpha")
        .unwrap();
    assert_eq!(transfer["Tasks"][0]["KillTimeout"], 3_900_000_000_000_u64);
    assert_eq!(transfer["Constraints"][0]["RTarget"], "alpha");
}
