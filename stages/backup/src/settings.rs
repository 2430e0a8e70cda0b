//! What `[stage.backup]` may say.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};
use std::time::Duration;

use ecluse_config::{Bytes, Free, Span};
use serde::Deserialize;

/// The smallest part an object store takes, other than the last.
const LEAST_PART: u64 = 5 << 20;
/// A part is held in memory.
const MOST_PART: u64 = 1 << 30;

/// What `[stage.backup]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Where copies are made: in all of them.
    pub targets: Targets,
}

/// The targets: at least one, each with a name of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Target>")]
pub struct Targets(Vec<Target>);

impl Targets {
    /// Returns them as configured.
    pub fn as_slice(&self) -> &[Target] {
        &self.0
    }

    /// Returns them as configured.
    pub fn into_vec(self) -> Vec<Target> {
        self.0
    }
}

impl TryFrom<Vec<Target>> for Targets {
    type Error = String;

    fn try_from(targets: Vec<Target>) -> Result<Self, String> {
        if targets.is_empty() {
            return Err("at least one target must be named".to_owned());
        }
        let mut names = BTreeSet::new();
        for target in &targets {
            if !names.insert(&target.name) {
                return Err(format!("target {} is named twice", target.name));
            }
        }
        Ok(Self(targets))
    }
}

/// One backup.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Words")]
pub struct Target {
    /// What it is called in proofs, logs and the manifest.
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
}

/// What a backup is.
#[derive(Debug, Clone)]
pub enum TargetKind {
    /// A directory.
    Directory(Directory),
    /// An object store that speaks S3.
    S3(S3),
    /// An operator's command.
    Command(Command),
}

/// A directory.
#[derive(Debug, Clone)]
pub struct Directory {
    /// Relative to the root and made, or absolute and there.
    pub path: PathBuf,
    /// Free space that stays in it.
    pub leave_free: Free,
}

/// An object store.
#[derive(Debug, Clone)]
pub struct S3 {
    /// Its address, with scheme.
    pub endpoint: String,
    /// The bucket, which must be there.
    pub bucket: String,
    /// What the keys of objects begin with.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// A file with the access key.
    pub key_file: PathBuf,
    /// A file with the secret key.
    pub secret_file: PathBuf,
    /// The bucket is in the path, not in the host name.
    pub path_style: bool,
    /// So much is sent, and held in memory, at a time.
    pub part: Bytes,
    /// How long a part may take to be sent, and a piece that is read to come.
    pub timeout: Duration,
    /// Certificate authorities to trust instead of the machine's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// An operator's command.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program and its arguments, with `{path}`, `{sha256}` and `{name}`.
    pub command: Vec<String>,
    /// The program that brings a file back on its standard output, with `{place}`, `{sha256}` and `{name}`; empty for none.
    pub fetch: Vec<String>,
    /// How long each may take.
    pub timeout: Duration,
}

/// A target as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Words {
    name: String,
    kind: KindWord,
    path: Option<PathBuf>,
    leave_free: Option<Free>,
    endpoint: Option<String>,
    bucket: Option<String>,
    prefix: Option<String>,
    region: Option<String>,
    key_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    path_style: Option<bool>,
    part: Option<Bytes>,
    ca_file: Option<PathBuf>,
    command: Option<Vec<String>>,
    fetch: Option<Vec<String>>,
    timeout: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindWord {
    Directory,
    S3,
    Command,
}

impl TryFrom<Words> for Target {
    type Error = String;

    fn try_from(mut words: Words) -> Result<Self, String> {
        let name = std::mem::take(&mut words.name);
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{name:?} is no name for a target"));
        }
        words.must_fit(&name)?;
        let kind = match words.kind {
            KindWord::Directory => words.directory().map(TargetKind::Directory),
            KindWord::S3 => words.s3().map(TargetKind::S3),
            KindWord::Command => words.command().map(TargetKind::Command),
        };
        let kind = kind.map_err(|fault| format!("target {name}: {fault}"))?;
        Ok(Self { name, kind })
    }
}

impl Words {
    /// Refuses keys that mean nothing for this kind: somebody expects something of them.
    fn must_fit(&self, name: &str) -> Result<(), String> {
        use KindWord::{Command, Directory, S3};
        let keys = [
            ("path", self.path.is_some(), &[Directory][..]),
            ("leave-free", self.leave_free.is_some(), &[Directory]),
            ("endpoint", self.endpoint.is_some(), &[S3]),
            ("bucket", self.bucket.is_some(), &[S3]),
            ("prefix", self.prefix.is_some(), &[S3]),
            ("region", self.region.is_some(), &[S3]),
            ("key-file", self.key_file.is_some(), &[S3]),
            ("secret-file", self.secret_file.is_some(), &[S3]),
            ("path-style", self.path_style.is_some(), &[S3]),
            ("part", self.part.is_some(), &[S3]),
            ("ca-file", self.ca_file.is_some(), &[S3]),
            ("command", self.command.is_some(), &[Command]),
            ("fetch", self.fetch.is_some(), &[Command]),
            ("timeout", self.timeout.is_some(), &[S3, Command]),
        ];
        for (key, is_set, kinds) in keys {
            if is_set && !kinds.contains(&self.kind) {
                return Err(format!(
                    "target {name}: {key} means nothing for a target of this kind"
                ));
            }
        }
        Ok(())
    }

    fn directory(self) -> Result<Directory, String> {
        let path = self.path.ok_or("a directory needs a path")?;
        let leaves_root = |step| matches!(step, Component::ParentDir);
        if path.as_os_str().is_empty() || path.components().any(leaves_root) {
            return Err(format!("{path:?}: write a path without '..'"));
        }
        Ok(Directory {
            path,
            leave_free: self.leave_free.unwrap_or_else(leave_free),
        })
    }

    fn s3(self) -> Result<S3, String> {
        let endpoint = self.endpoint.ok_or("an object store needs an endpoint")?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let host = endpoint
            .strip_prefix("https://")
            .or_else(|| endpoint.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['/', '?', '#', '@'])) {
            return Err(format!(
                "{endpoint:?} is no endpoint; write \"https://s3.example.org\""
            ));
        }
        let bucket = self.bucket.ok_or("an object store needs a bucket")?;
        let prefix = self.prefix.unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_plain) {
            return Err(format!("{bucket:?} is no name of a bucket"));
        }
        let is_step = |step: &str| step.bytes().all(is_plain) && step != "." && step != "..";
        if prefix.starts_with('/') || prefix.contains("//") || !prefix.split('/').all(is_step) {
            return Err(format!(
                "{prefix:?} is no prefix; write letters, digits and '/', such as \"warc/\""
            ));
        }
        let part = self.part.unwrap_or(Bytes(16 << 20));
        if !(LEAST_PART..=MOST_PART).contains(&part.0) {
            return Err(format!(
                "a part of {part} is not between {} and {}",
                Bytes(LEAST_PART),
                Bytes(MOST_PART)
            ));
        }
        Ok(S3 {
            endpoint,
            bucket,
            prefix,
            region: self.region.unwrap_or_else(|| "us-east-1".to_owned()),
            key_file: self.key_file.ok_or("an object store needs a key-file")?,
            secret_file: self
                .secret_file
                .ok_or("an object store needs a secret-file")?,
            path_style: self.path_style.unwrap_or(true),
            part,
            timeout: self
                .timeout
                .map_or(Duration::from_secs(300), |timeout| timeout.0),
            ca_file: self.ca_file,
        })
    }

    fn command(self) -> Result<Command, String> {
        let command = self.command.unwrap_or_default();
        if command.first().is_none_or(|program| program.is_empty()) {
            return Err(
                "a command needs a command, such as [\"/usr/local/bin/to-tape\", \"{path}\"]"
                    .to_owned(),
            );
        }
        let fetch = self.fetch.unwrap_or_default();
        if fetch.first().is_some_and(String::is_empty) {
            return Err(
                "fetch needs a program, such as [\"/usr/local/bin/from-tape\", \"{place}\"]"
                    .to_owned(),
            );
        }
        Ok(Command {
            command,
            fetch,
            timeout: self
                .timeout
                .map_or(Duration::from_secs(7200), |timeout| timeout.0),
        })
    }
}

fn leave_free() -> Free {
    Free::Bytes(Bytes(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Target, String> {
        let pipeline = format!("[stage.backup]\ntargets = [{text}]\n");
        let pipeline = ecluse_config::Pipeline::parse(&pipeline, "pipeline.toml")
            .map_err(|error| error.to_string())?;
        let settings = pipeline.stage_settings::<Settings>("backup");
        let settings = settings.map_err(|error| error.to_string())?;
        Ok(settings.targets.into_vec().remove(0))
    }

    const S3_WORDS: &str = r#"name = "s", kind = "s3", endpoint = "https://s3.example.org", bucket = "b", key-file = "k", secret-file = "s""#;

    #[test]
    fn every_kind_is_read() {
        assert!(read(&format!("{{ {S3_WORDS} }}")).is_ok());
        let command = r#"{ name = "c", kind = "command", command = ["x"], timeout = "1m" }"#;
        assert!(matches!(
            read(command).unwrap().kind,
            TargetKind::Command(_)
        ));
        let directory = r#"{ name = "d", kind = "directory", path = "/x", leave-free = "5%" }"#;
        assert!(matches!(
            read(directory).unwrap().kind,
            TargetKind::Directory(_)
        ));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (text, said) in [
            (
                r#"{ name = "", kind = "directory", path = "x" }"#,
                "no name",
            ),
            (r#"{ name = "d", kind = "directory" }"#, "needs a path"),
            (
                r#"{ name = "d", kind = "directory", path = "../x" }"#,
                "'..'",
            ),
            (r#"{ name = "d", kind = "tape" }"#, "tape"),
            (
                r#"{ name = "d", kind = "directory", path = "x", bucket = "b" }"#,
                "bucket",
            ),
            (
                r#"{ name = "d", kind = "directory", path = "x", pat = "b" }"#,
                "pat",
            ),
            (
                r#"{ name = "c", kind = "command", command = [] }"#,
                "needs a command",
            ),
            (
                r#"{ name = "c", kind = "command", command = ["x"], fetch = [""] }"#,
                "fetch needs",
            ),
            (&format!("{{ {S3_WORDS}, fetch = [\"x\"] }}"), "fetch"),
            (&format!("{{ {S3_WORDS}, part = \"1 MiB\" }}"), "between"),
            (&format!("{{ {S3_WORDS}, prefix = \"../x\" }}"), "prefix"),
            (&format!("{{ {S3_WORDS}, prefix = \"a//b\" }}"), "prefix"),
            (&format!("{{ {S3_WORDS}, path = \"x\" }}"), "path"),
            (
                &format!("{{ {} }}", S3_WORDS.replace("https", "ftp")),
                "endpoint",
            ),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }
}
