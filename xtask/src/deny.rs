//! Holds what `deny.toml` says of licences, bans and sources, without cargo-deny, which would have to be built first. Where
//! it is installed it is asked as well, for it knows the advisories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::flags::Flags;

/// `deny.toml`, as far as it is held here: a key that is not known is an error, for nobody would hold it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Rules {
    graph: GraphRules,
    #[expect(dead_code, reason = "cargo-deny's alone")]
    advisories: toml::Table,
    licenses: LicenceRules,
    bans: BanRules,
    sources: SourceRules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphRules {
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LicenceRules {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<LicenceException>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LicenceException {
    #[serde(rename = "crate")]
    package: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct BanRules {
    #[expect(dead_code, reason = "cargo-deny's alone")]
    multiple_versions: String,
    wildcards: Level,
    allow_wildcard_paths: bool,
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    package: String,
    /// Who may depend on it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SourceRules {
    unknown_registry: Level,
    unknown_git: Level,
    allow_registry: Vec<String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Allow,
    Deny,
}

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None for our own.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
}

pub(crate) fn main(_flags: Flags) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace")?;
    let rules = fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let rules: Rules = toml::from_str(&rules).context("deny.toml")?;
    let (mut wrong, mut packages) = (Vec::new(), 0);
    for target in &rules.graph.targets {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--locked", "--format-version", "1"]);
        cargo.args(["--filter-platform", target]).current_dir(root);
        let output = cargo.output().context("cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        packages += metadata.resolve.nodes.len();
        wrong.extend(faults(&rules, &metadata));
    }
    for fault in &wrong {
        println!("{fault}");
    }
    ensure!(packages > 0, "no packages were looked at");
    println!("{packages} packages, {} against deny.toml", wrong.len());
    Ok(wrong.is_empty() && ask_cargo_deny(root)?)
}

/// Asks cargo-deny where it is installed.
fn ask_cargo_deny(root: &Path) -> Result<bool> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root);
    let version = cargo.args(["deny", "--version"]).output()?;
    if !version.status.success() {
        println!("cargo-deny is not installed: advisories were not looked at");
        return Ok(true);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["deny", "check"]);
    Ok(cargo.status()?.success())
}

/// Returns what goes against the rules, a line each.
fn faults(rules: &Rules, metadata: &Metadata) -> Vec<String> {
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let mut wrong = Vec::new();
    for node in &metadata.resolve.nodes {
        let Some(package) = packages.get(node.id.as_str()) else {
            wrong.push(format!("{}: resolved, but no package", node.id));
            continue;
        };
        match &package.source {
            Some(source) => {
                licence(&rules.licenses, package, &mut wrong);
                source_of(&rules.sources, package, source, &mut wrong);
            }
            None => wildcards(&rules.bans, package, &mut wrong),
        }
        for edge in &node.deps {
            let ban = packages.get(edge.pkg.as_str()).and_then(|needed| {
                let bans = &rules.bans.deny;
                bans.iter().find(|ban| ban.package == needed.name)
            });
            if let Some(ban) = ban
                && !ban.wrappers.contains(&package.name)
            {
                wrong.push(format!(
                    "{} may not depend on {}: {}",
                    package.name, ban.package, ban.reason
                ));
            }
        }
    }
    wrong
}

fn licence(rules: &LicenceRules, package: &Package, wrong: &mut Vec<String>) {
    let name = format!("{} {}", package.name, package.version);
    let text = package.license.as_deref().unwrap_or_default();
    let own = rules
        .exceptions
        .iter()
        .filter(|exception| exception.package == package.name)
        .flat_map(|exception| &exception.allow);
    let allowed: Vec<&String> = rules.allow.iter().chain(own).collect();
    match Expression::parse_mode(text, ParseMode::LAX) {
        Ok(terms) => {
            if !terms.evaluate(|term| allowed.iter().any(|one| **one == term.to_string())) {
                wrong.push(format!("{name}: the licence {text} is not allowed"));
            }
        }
        Err(_) => wrong.push(format!("{name}: cannot read the licence {text:?}")),
    }
}

fn source_of(rules: &SourceRules, package: &Package, source: &str, wrong: &mut Vec<String>) {
    let name = format!("{} {}", package.name, package.version);
    let is_known = match source.split_once('+') {
        Some(("registry" | "sparse", address)) => {
            rules.unknown_registry == Level::Allow
                || rules.allow_registry.iter().any(|known| known == address)
        }
        Some(("git", _)) => rules.unknown_git == Level::Allow,
        _ => false,
    };
    if !is_known {
        wrong.push(format!("{name}: comes from {source}"));
    }
}

fn wildcards(rules: &BanRules, package: &Package, wrong: &mut Vec<String>) {
    for dependency in &package.dependencies {
        let is_excused = rules.allow_wildcard_paths && dependency.path.is_some();
        if rules.wildcards == Level::Deny && dependency.req == "*" && !is_excused {
            wrong.push(format!(
                "{}: {} of any version",
                package.name, dependency.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [advisories]
        [licenses]
        allow = ["MIT", "Unicode-3.0"]
        exceptions = [{ crate = "styles", allow = ["MPL-2.0"] }]
        [bans]
        multiple-versions = "allow"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [
            { crate = "openssl-sys", reason = "rustls" },
            { crate = "http", wrappers = ["wrapper"], reason = "one owner" },
        ]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://crates.example/index"]
    "#;

    /// A package of somebody else's; none for a licence that is missing.
    fn package(name: &str, licence: Option<&str>, source: &str) -> Package {
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: licence.map(str::to_owned),
            source: (!source.is_empty()).then(|| source.to_owned()),
            dependencies: Vec::new(),
        }
    }

    fn judged(packages: Vec<Package>, edges: &[(&str, &str)]) -> Vec<String> {
        let nodes = packages.iter().map(|package| Node {
            id: package.id.clone(),
            deps: edges
                .iter()
                .filter(|(from, _)| *from == package.id)
                .map(|(_, to)| Edge {
                    pkg: (*to).to_owned(),
                })
                .collect(),
        });
        let nodes = nodes.collect();
        let resolve = Resolve { nodes };
        let rules = toml::from_str(RULES).unwrap();
        faults(&rules, &Metadata { packages, resolve })
    }

    const KNOWN: &str = "registry+https://crates.example/index";

    #[test]
    fn licences_are_read_as_expressions() {
        let good = [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only/MIT",
            "(Apache-2.0 OR MIT) AND Unicode-3.0",
        ];
        for licence in good {
            assert_eq!(
                judged(vec![package("a", Some(licence), KNOWN)], &[]),
                [""; 0],
                "{licence}"
            );
        }
        for licence in [
            Some("GPL-3.0-only"),
            Some("MIT AND MPL-2.0"),
            Some("mine"),
            None,
        ] {
            let wrong = judged(vec![package("a", licence, KNOWN)], &[]);
            assert_eq!(wrong.len(), 1, "{licence:?}: {wrong:?}");
        }
        let one = package("styles", Some("MPL-2.0"), KNOWN);
        assert_eq!(judged(vec![one], &[]), [""; 0]);
        // Our own have no licence to look at here.
        assert_eq!(judged(vec![package("ours", None, "")], &[]), [""; 0]);
    }

    #[test]
    fn sources_bans_and_wildcards_are_held() {
        for source in [
            "git+https://crates.example/index",
            "registry+https://other.example/index",
            "path+file:///x",
        ] {
            let wrong = judged(vec![package("a", Some("MIT"), source)], &[]);
            assert_eq!(wrong, [format!("a 1.0.0: comes from {source}")]);
        }
        let all = ["wrapper", "a", "http", "openssl-sys"];
        let packages = || all.map(|name| package(name, Some("MIT"), KNOWN)).into();
        assert_eq!(judged(packages(), &[("wrapper", "http")]), [""; 0]);
        assert_eq!(
            judged(packages(), &[("a", "http"), ("wrapper", "openssl-sys")]),
            [
                "wrapper may not depend on openssl-sys: rustls",
                "a may not depend on http: one owner"
            ]
        );
        let mut ours = package("ours", None, "");
        let dependency = |path: Option<&str>| Dependency {
            name: "a".to_owned(),
            req: "*".to_owned(),
            path: path.map(str::to_owned),
        };
        ours.dependencies = vec![dependency(Some("/x")), dependency(None)];
        assert_eq!(judged(vec![ours], &[]), ["ours: a of any version"]);
    }

    #[test]
    fn a_rule_that_nobody_holds_is_refused() {
        let more = RULES.replace("[sources]", "[sources]\nrequired-git-spec = \"rev\"");
        assert!(toml::from_str::<Rules>(&more).is_err());
    }
}
