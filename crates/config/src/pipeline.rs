//! The whole configuration: found, read, asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::decode::decode;
use crate::node::{self, Node, Report, Table, Value};
use crate::problem::{ConfigError, Level, join};
use crate::settings::{
    AccessSettings, AlertSettings, Archive, Chain, EngineSettings, LogSettings, MetricsSettings,
    ShellSettings, Site,
};

/// The shipped `pipeline.toml`, to be written out where there is none.
pub const SHIPPED: &str = include_str!("../../../pipeline.toml");

/// No pipeline.toml is longer; a mistaken path may name an archive file of gigabytes.
const LONGEST_FILE: u64 = 1 << 20;

/// What the built-in settings are called where a file would be named.
const BUILT_IN: &str = "built-in";

/// The configuration of a chain.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Whose archive this is.
    pub site: Site,
    /// Where the archive lies.
    pub archive: Archive,
    /// Where parcels live.
    pub engine: EngineSettings,
    /// How it is shown.
    pub access: AccessSettings,
    /// What holds for every stage unless its own table says otherwise.
    pub defaults: ShellSettings,
    /// The order of the stages.
    pub chain: Chain,
    /// The tables of the stages that have one.
    pub stages: BTreeMap<String, StageTable>,
    /// When to speak up.
    pub alert: AlertSettings,
    /// What is logged.
    pub log: LogSettings,
    /// Where figures are given out.
    pub metrics: MetricsSettings,
    /// Which stages run on which host; empty: nothing is said of it.
    pub hosts: BTreeMap<String, Vec<String>>,
    /// The file, as named in messages.
    pub(crate) file: String,
    /// The merged tree: every value with its line, or without when it is built in.
    pub(crate) tree: Node,
}

/// What every stage's table has; what only one stage knows is read by that stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTable {
    /// The shell's settings, the defaults merged in.
    pub shell: ShellSettings,
    /// Where results go; `None` means to the stage after it in the chain.
    pub next: Option<Vec<String>>,
    /// Earlier stages that results may go back to, on purpose.
    pub back: Vec<String>,
}

impl StageTable {
    /// The stages that it names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        let next = self.next.iter().flatten();
        next.chain(&self.back).map(String::as_str)
    }
}

/// The stages that have a table in the shipped file.
pub(crate) fn shipped_stages() -> impl Iterator<Item = &'static str> {
    let stages = SHIPPED_TREE.find(&["stage".to_owned()]);
    let tables = stages.and_then(Node::as_table).into_iter();
    tables.flat_map(Table::keys).map(String::as_str)
}

/// The keys of a stage's table besides the shell's and the stage's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Links {
    #[serde(default)]
    next: Option<Vec<String>>,
    #[serde(default)]
    back: Vec<String>,
}

const LINK_KEYS: [&str; 2] = ["next", "back"];

/// The file as it stands, without the stages' tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CommonTables {
    version: u32,
    site: Site,
    archive: Archive,
    engine: EngineSettings,
    access: AccessSettings,
    defaults: ShellSettings,
    chain: Chain,
    alert: AlertSettings,
    log: LogSettings,
    metrics: MetricsSettings,
    hosts: BTreeMap<String, Vec<String>>,
}

const VERSION: u32 = 1;

impl Default for Pipeline {
    /// The built-in settings: the shipped file.
    fn default() -> Pipeline {
        let mut report = Report::new(BUILT_IN);
        let pipeline = Pipeline::over_shipped(Table::new(), &mut report);
        assert_eq!(report.problems, [], "the shipped file is tested");
        pipeline.expect("the shipped file is tested")
    }
}

/// The shipped file, without lines.
static SHIPPED_TREE: LazyLock<Node> = LazyLock::new(|| {
    let shipped: toml::Table = SHIPPED.parse().expect("the shipped file is tested");
    Node::from_toml(&toml::Value::Table(shipped))
});

impl PartialEq for Pipeline {
    /// Equal settings, wherever they were read.
    fn eq(&self, other: &Pipeline) -> bool {
        let Pipeline {
            site,
            archive,
            engine,
            access,
            defaults,
            chain,
            stages,
            alert,
            log,
            metrics,
            hosts,
            file: _,
            tree: _,
        } = self;
        let own = |pipeline: &Pipeline| -> Vec<toml::Value> {
            let names = pipeline.stages.keys();
            names.map(|name| pipeline.own(name).to_toml()).collect()
        };
        *site == other.site
            && *archive == other.archive
            && *engine == other.engine
            && *access == other.access
            && *defaults == other.defaults
            && *chain == other.chain
            && *stages == other.stages
            && own(self) == own(other)
            && *alert == other.alert
            && *log == other.log
            && *metrics == other.metrics
            && *hosts == other.hosts
    }
}

impl Pipeline {
    /// Returns the file to load: the one that was asked for, else the root's, else none.
    ///
    /// A file that is there and cannot be read is returned too: loading it says why, which is
    /// better than running on settings nobody wrote.
    pub fn locate(asked: Option<&Path>, root: &Path) -> Option<PathBuf> {
        if let Some(asked) = asked {
            return Some(asked.to_owned());
        }
        let path = root.join("pipeline.toml");
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Ok(_) | Err(_) => Some(path),
        }
    }

    /// Reads a file; without one, the built-in settings.
    pub fn load(path: Option<&Path>) -> Result<Pipeline, ConfigError> {
        let Some(path) = path else {
            return Ok(Pipeline::default());
        };
        let text = read(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Pipeline::parse(&text, &path.display().to_string())
    }

    /// Reads a text; `name` is what messages call it.
    ///
    /// What the text does not say is as built in. All problems are found, not only the first.
    pub fn parse(text: &str, name: &str) -> Result<Pipeline, ConfigError> {
        let mut report = Report::new(name);
        let pipeline = Pipeline::read(text, &mut report);
        let mut problems = report.problems;
        let pipeline = match pipeline {
            Some(pipeline) if problems.is_empty() => pipeline,
            _ => {
                problems.sort_by_key(|problem| problem.line);
                return Err(ConfigError::Invalid(problems));
            }
        };
        problems = pipeline.check();
        problems.retain(|problem| problem.level == Level::Error);
        if problems.is_empty() {
            Ok(pipeline)
        } else {
            Err(ConfigError::Invalid(problems))
        }
    }

    fn read(text: &str, report: &mut Report) -> Option<Pipeline> {
        let file = node::parse(text, report)?;
        Pipeline::over_shipped(file, report)
    }

    /// Lays a file over the shipped one and reads the whole.
    fn over_shipped(mut file: Table, report: &mut Report) -> Option<Pipeline> {
        let mut tree = SHIPPED_TREE.clone();
        let Value::Table(table) = &mut tree.value else {
            unreachable!("a file is a table");
        };
        let stages = file.remove("stage");
        // The names of hosts are the file's to choose.
        if let (Some(Value::Table(hosts)), Some(slot)) = (
            file.get("hosts").map(|node| node.value.clone()),
            table.get_mut("hosts"),
        ) {
            let line = file.remove("hosts").and_then(|node| node.line);
            *slot = Node {
                line,
                value: Value::Table(hosts),
            };
        }
        let asked = match stages.as_ref().map(|node| &node.value) {
            Some(Value::Table(tables)) => tables.keys().cloned().collect(),
            _ => BTreeSet::new(),
        };
        node::overlay(table, file, "", report);
        merge_stages(table, stages, report);

        let mut common = tree.clone();
        if let Value::Table(table) = &mut common.value {
            table.remove("stage");
        }
        let document: CommonTables = decode(&mut common, &SHIPPED_TREE, "", &[], report)?;
        if document.version != VERSION {
            let line = tree.find(&["version".to_owned()])?.line;
            let message = format!(
                "'version' is {}; this program reads version {VERSION}",
                document.version
            );
            report.error(line, "version", message);
        }
        let mut stages = read_stages(&tree, &common, report);
        // A built-in table says nothing of a chain that does not have its stage.
        let chain = &document.chain.stages;
        stages.retain(|name, _| chain.contains(name) || asked.contains(name));
        let known: BTreeSet<String> = stages.keys().chain(chain).cloned().collect();
        for (name, table) in &mut stages {
            let is_built_in = |key: &str| {
                let path = ["stage".to_owned(), name.clone(), key.to_owned()];
                tree.find(&path).is_some_and(|node| node.line.is_none())
            };
            if is_built_in("back") {
                table.back.retain(|stage| known.contains(stage));
            }
            let leads_nowhere =
                |next: &Vec<String>| !next.iter().all(|stage| known.contains(stage));
            if is_built_in("next") && table.next.as_ref().is_some_and(leads_nowhere) {
                table.next = None;
            }
        }
        Some(Pipeline {
            site: document.site,
            archive: document.archive,
            engine: document.engine,
            access: document.access,
            defaults: document.defaults,
            chain: document.chain,
            stages,
            alert: document.alert,
            log: document.log,
            metrics: document.metrics,
            hosts: document.hosts,
            file: report.file.clone(),
            tree,
        })
    }

    /// The name of the file, as messages give it; `built-in` when there was none.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The shell's settings of a stage, the defaults merged in.
    pub fn shell(&self, stage: &str) -> ShellSettings {
        let table = self.stages.get(base_of(stage));
        table.map_or_else(|| self.defaults.clone(), |table| table.shell.clone())
    }

    /// Where a stage's results go: its `next`, else the stage after it in the chain. A copy of ingest sends the files of its host
    /// to ingest itself.
    pub fn next_of(&self, stage: &str) -> Vec<&str> {
        if stage.starts_with("ingest@") {
            return vec!["ingest"];
        }
        let stage = base_of(stage);
        if let Some(next) = self.stages.get(stage).and_then(|table| table.next.as_ref()) {
            return next.iter().map(String::as_str).collect();
        }
        let mut after = self.chain.stages.iter().skip_while(|name| *name != stage);
        after.nth(1).map(String::as_str).into_iter().collect()
    }

    /// The earlier stages that results of a stage may go back to.
    pub fn back_of(&self, stage: &str) -> &[String] {
        let table = self.stages.get(base_of(stage));
        table.map_or(&[], |table| table.back.as_slice())
    }

    /// Every stage there is: those of the chain in its order, then those with a table only; after each its copies, which a `next`
    /// or `[hosts]` names.
    pub fn stage_names(&self) -> Vec<&str> {
        let in_chain: BTreeSet<&str> = self.chain.stages.iter().map(String::as_str).collect();
        let tables = self.stages.keys().map(String::as_str);
        let mut names: Vec<&str> = self.chain.stages.iter().map(String::as_str).collect();
        names.extend(tables.filter(|name| !in_chain.contains(name)));
        let placed = self.hosts.values().flatten().map(String::as_str);
        let placed: Vec<&str> = placed
            .filter(|name| names.contains(&base_of(name)))
            .collect();
        let copies: BTreeSet<&str> = self
            .stages
            .values()
            .flat_map(|table| table.next.iter().flatten())
            .map(String::as_str)
            .chain(placed)
            .filter(|name| name.contains('@'))
            .collect();
        for copy in copies.into_iter().rev() {
            let after = names.iter().position(|name| *name == base_of(copy));
            names.insert(after.map_or(names.len(), |at| at + 1), copy);
        }
        names
    }

    /// The stages that run on a host, in the order of the chain: those that `[hosts]` names, and the host's own copies, such as
    /// `index@alpha` on alpha, unless they are named elsewhere. None when there is no such host.
    pub fn stages_on(&self, host: &str) -> Option<Vec<&str>> {
        let named = self.hosts.get(host)?;
        let is_named = |stage: &str| {
            let mut all = self.hosts.values().flatten();
            all.any(|name| name == stage)
        };
        let runs_here = |stage: &&str| {
            let is_own = stage
                .split_once('@')
                .is_some_and(|(_, machine)| machine == host);
            named.iter().any(|name| name == stage) || (is_own && !is_named(stage))
        };
        Some(self.stage_names().into_iter().filter(runs_here).collect())
    }

    /// Reads a stage's own settings from its table; the keys every stage has are left out.
    ///
    /// Unknown keys are errors whether or not the type denies them; `()` takes no keys. A stage that
    /// this chain does not have has its built-in settings.
    pub fn stage_settings<T: DeserializeOwned>(&self, stage: &str) -> Result<T, ConfigError> {
        let mut own = self.own(stage);
        let good = SHIPPED_TREE.find(&["stage".to_owned(), stage.to_owned()]);
        let good = good.cloned().unwrap_or_else(Node::empty);
        let common: Vec<&str> = self.common_keys().collect();
        let mut report = Report::new(&self.file);
        let settings = decode(&mut own, &good, &join("stage", stage), &common, &mut report);
        match settings {
            Some(settings) if report.problems.is_empty() => Ok(settings),
            _ => {
                report.problems.sort_by_key(|problem| problem.line);
                Err(ConfigError::Invalid(report.problems))
            }
        }
    }

    /// The keys that every stage's table may have.
    pub(crate) fn common_keys(&self) -> impl Iterator<Item = &str> {
        let defaults = self.tree.find(&["defaults".to_owned()]);
        let shell = defaults.and_then(Node::as_table).into_iter();
        let shell = shell.flat_map(Table::keys).map(String::as_str);
        shell.chain(LINK_KEYS)
    }

    /// The keys of a stage's table that only the stage knows.
    pub(crate) fn own(&self, stage: &str) -> Node {
        let table = self.tree.find(&["stage".to_owned(), stage.to_owned()]);
        let mut own = table.cloned().unwrap_or_else(Node::empty);
        if let Value::Table(table) = &mut own.value {
            for key in self.common_keys() {
                table.remove(key);
            }
        }
        own
    }
}

/// The stage of which `index@alpha` is one machine's copy: its settings are the stage's.
pub fn base_of(stage: &str) -> &str {
    stage.split_once('@').map_or(stage, |(base, _)| base)
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(LONGEST_FILE + 1);
    file.read_to_end(&mut bytes)?;
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(invalid(format!("longer than {LONGEST_FILE} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        invalid(format!("line {line} is not UTF-8"))
    })
}

/// Lays the file's `[stage.X]` tables over the built-in ones.
fn merge_stages(base: &mut Table, stages: Option<Node>, report: &mut Report) {
    let Some(stages) = stages else {
        return;
    };
    let Value::Table(mut tables) = stages.value else {
        let message = "'stage' is a table with a table for each stage".to_owned();
        report.error(stages.line, "stage", message);
        return;
    };
    let Some(Node {
        value: Value::Table(base),
        ..
    }) = base.get_mut("stage")
    else {
        return;
    };
    tables.retain(|name, node| {
        let path = join("stage", name);
        let Value::Table(table) = &mut node.value else {
            let message = format!("'{path}' is a table of settings");
            report.error(node.line, &path, message);
            return false;
        };
        if base.contains_key(name) {
            refuse_moved(table, &path, report);
        }
        true
    });
    node::merge(base, tables);
}

/// Keys that stood in the tables of several stages, and where they stand now.
const MOVED: [(&str, &str); 4] = [
    ("harvested", "archive.harvested"),
    ("index", "archive.index"),
    ("locations", "archive.repository"),
    ("manifest", "archive.manifest"),
];

/// Says where a key of an older file stands now. A stage that looked elsewhere than the others would not see that the
/// archive is frozen.
fn refuse_moved(table: &mut Table, path: &str, report: &mut Report) {
    for (key, now) in MOVED {
        if let Some(node) = table.remove(key) {
            let path = join(path, key);
            let message = format!("'{path}' is now '{now}', for all stages");
            report.error(node.line, &path, message);
        }
    }
}

/// Reads the stages' tables of `tree`, over the defaults of `common`, which are known to be good.
fn read_stages(tree: &Node, common: &Node, report: &mut Report) -> BTreeMap<String, StageTable> {
    let key = |key: &str| vec![key.to_owned()];
    let (Some(defaults), Some(stages)) = (
        common.find(&key("defaults")),
        tree.find(&key("stage")).and_then(Node::as_table),
    ) else {
        return BTreeMap::new();
    };
    let mut read = BTreeMap::new();
    for (name, node) in stages {
        let table = node.as_table().cloned().unwrap_or_default();
        if let Some(stage) = read_stage(&join("stage", name), table, defaults, report) {
            read.insert(name.clone(), stage);
        }
    }
    read
}

fn read_stage(
    path: &str,
    mut table: Table,
    defaults: &Node,
    report: &mut Report,
) -> Option<StageTable> {
    let mut take = |keys: &mut dyn Iterator<Item = &str>| -> Table {
        keys.filter_map(|key| table.remove_entry(key)).collect()
    };
    let links = take(&mut LINK_KEYS.into_iter());
    let shell_keys = defaults.as_table().into_iter().flat_map(Table::keys);
    let overrides = take(&mut shell_keys.map(String::as_str));

    let mut shell = defaults.clone();
    if let Value::Table(shell) = &mut shell.value {
        node::overlay(shell, overrides, path, report);
    }
    let shell: ShellSettings = decode(&mut shell, defaults, path, &[], report)?;
    let mut links = Node {
        line: None,
        value: Value::Table(links),
    };
    let links: Links = decode(&mut links, &Node::empty(), path, &[], report)?;
    Some(StageTable {
        shell,
        next: links.next,
        back: links.back,
    })
}
