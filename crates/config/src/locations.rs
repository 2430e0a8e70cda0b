//! Whether the directories of an archive keep out of each other's way.
//!
//! A file that lies in two of them is taken in again when it is stored, or removed when only one copy of it was meant. So none
//! may be another or lie in another, whatever links lead there.

use std::path::{Path, PathBuf};

use crate::node::{Node, Value};
use crate::pipeline::Pipeline;
use crate::problem::{Level, Problem};

/// The work directories, below the root: no setting moves them.
const WORK: &str = "work";

/// What a stage keeps for itself.
const STAGES_OWN: [(&str, &str); 9] = [
    ("deposit", "receipts"),
    ("crawl", "jobs"),
    ("dns-filter", "reports"),
    ("preload", "sources"),
    ("preload", "reports"),
    ("preload", "forced"),
    ("plan", "harvests"),
    ("plan", "traps"),
    ("plan", "runs"),
];

/// A directory that a setting names.
struct NamedDirectory {
    key: String,
    written: PathBuf,
    /// Where it is, without links.
    real: PathBuf,
}

impl Pipeline {
    /// Returns the directories that are another one, or lie in another one, under this root.
    pub fn check_locations(&self, root: &Path) -> Vec<Problem> {
        let work = real(&root.join(WORK));
        let named: Vec<NamedDirectory> = self
            .locations()
            .into_iter()
            .map(|(key, written)| NamedDirectory {
                real: real(&root.join(&written)),
                key,
                written,
            })
            .collect();
        let mut problems = Vec::new();
        // Of one that is in the way of the work directories nothing else is told.
        let (bad, named): (Vec<_>, Vec<_>) = named
            .into_iter()
            .partition(|one| relation(&one.real, &work).is_some());
        for one in &bad {
            if let Some(how) = relation(&one.real, &work) {
                problems.push(self.overlap(one, how, "the work directories"));
            }
        }
        for (at, one) in named.iter().enumerate() {
            for other in &named[..at] {
                let Some(how) = relation(&one.real, &other.real) else {
                    continue;
                };
                let this = self.overlap(one, how, &other.told());
                let that = self.overlap(other, how.turned(), &one.told());
                // What nobody wrote has the line of its table, which stands before what somebody did write, or none.
                problems.push(if this.line >= that.line { this } else { that });
            }
        }
        problems
    }

    fn overlap(&self, one: &NamedDirectory, how: Relation, other: &str) -> Problem {
        let how = match how {
            Relation::Same => "is the same directory as",
            Relation::Inside => "lies in",
            Relation::Around => "is around",
        };
        let message = format!("'{}' {how} {other}", one.written.display());
        self.problem(Level::Error, &one.key, &message)
    }

    /// Returns every directory that the settings name, with its key. The manifest is a file, and is kept apart as they are.
    fn locations(&self) -> Vec<(String, PathBuf)> {
        let archive = &self.archive;
        let harvested = archive.harvested.iter().enumerate();
        let mut found: Vec<(String, PathBuf)> = harvested
            .map(|(at, path)| (format!("archive.harvested[{at}]"), path.clone()))
            .collect();
        let repository = archive.repository.iter().enumerate();
        found.extend(repository.map(|(at, location)| {
            let key = format!("archive.repository[{at}].path");
            (key, location.path.clone())
        }));
        found.push(("archive.index".to_owned(), archive.index.clone()));
        found.push(("archive.manifest".to_owned(), archive.manifest.clone()));
        found.push(("archive.packages".to_owned(), archive.packages.clone()));
        found.push(("archive.register".to_owned(), archive.register.clone()));
        found.push(("archive.links".to_owned(), archive.links.clone()));
        found.push(("archive.changes".to_owned(), archive.changes.clone()));
        for (stage, key) in STAGES_OWN {
            if let Some(path) = self.own_key(stage, key).and_then(text) {
                found.push((format!("stage.{stage}.{key}"), path.into()));
            }
        }
        let targets = match self.own_key("backup", "targets").map(|node| &node.value) {
            Some(Value::Array(targets)) => targets.as_slice(),
            _ => &[],
        };
        for (at, target) in targets.iter().enumerate() {
            if let Some(path) = target.as_table().and_then(|table| text(table.get("path")?)) {
                found.push((format!("stage.backup.targets[{at}].path"), path.into()));
            }
        }
        let receiver = self.own_key("deposit", "to");
        if let Some(path) = receiver.and_then(|to| text(to.as_table()?.get("path")?)) {
            found.push(("stage.deposit.to.path".to_owned(), path.into()));
        }
        found
    }

    /// Returns what a stage of this chain has at one of its own keys.
    pub(crate) fn own_key(&self, stage: &str, key: &str) -> Option<&Node> {
        let is_there = self.stages.contains_key(stage);
        let keys = ["stage", stage, key].map(str::to_owned);
        is_there.then(|| self.tree.find(&keys)).flatten()
    }
}

impl NamedDirectory {
    fn told(&self) -> String {
        format!("'{}' of '{}'", self.written.display(), self.key)
    }
}

/// How one directory lies to another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Same,
    Inside,
    Around,
}

impl Relation {
    fn turned(self) -> Relation {
        match self {
            Relation::Same => Relation::Same,
            Relation::Inside => Relation::Around,
            Relation::Around => Relation::Inside,
        }
    }
}

fn relation(one: &Path, other: &Path) -> Option<Relation> {
    match (one.starts_with(other), other.starts_with(one)) {
        (true, true) => Some(Relation::Same),
        (true, false) => Some(Relation::Inside),
        (false, true) => Some(Relation::Around),
        (false, false) => None,
    }
}

/// Returns where a path leads, as far as it is there.
fn real(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is refused of a file, in an archive in which some directories are there.
    fn refused(root: &Path, text: &str) -> Vec<String> {
        let pipeline = Pipeline::parse(text, "p.toml").unwrap();
        let problems = pipeline.check_locations(root);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn no_directory_is_another_or_lies_in_another() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(refused(root, ""), [""; 0]);
        let real_root = root.canonicalize().unwrap();
        for (text, told) in [
            (
                "[archive]\nharvested = ['.']\n".to_owned(),
                "p.toml:2: 'archive.harvested[0]': '.' is around the work directories",
            ),
            (
                "[archive]\nindex = 'work'\n".to_owned(),
                "p.toml:2: 'archive.index': 'work' is the same directory as the work directories",
            ),
            (
                "[archive]\nrepository = [{ name = 'r', path = 'harvested/r' }]\n".to_owned(),
                "p.toml:2: 'archive.repository[0].path': 'harvested/r' lies in 'harvested' of 'archive.harvested[0]'",
            ),
            (
                "[archive]\nharvested = ['repository/in']\n".to_owned(),
                "p.toml:2: 'archive.harvested[0]': 'repository/in' lies in 'repository' of 'archive.repository[0].path'",
            ),
            (
                "[archive]\nmanifest = 'index/m.sqlite'\n".to_owned(),
                "p.toml:2: 'archive.manifest': 'index/m.sqlite' lies in 'index' of 'archive.index'",
            ),
            (
                "[stage.preload]\nreports = 'sources/reports'\n".to_owned(),
                "p.toml:2: 'stage.preload.reports': 'sources/reports' lies in 'sources' of 'stage.preload.sources'",
            ),
            (
                "[stage.crawl]\njobs = 'harvested'\n".to_owned(),
                "p.toml:2: 'stage.crawl.jobs': 'harvested' is the same directory as 'harvested' of 'archive.harvested[0]'",
            ),
            (
                format!(
                    "[archive]\nharvested = ['{}/backup/x']\n",
                    real_root.display()
                ),
                "/backup/x' lies in 'backup' of 'stage.backup.targets[0].path'",
            ),
        ] {
            let refused = refused(root, &text);
            assert!(
                refused.len() == 1 && refused[0].contains(told),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_link_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("repository/inside")).unwrap();
        std::os::unix::fs::symlink("repository/inside", root.join("backup")).unwrap();
        let backup = "[[stage.backup.targets]]\nname = 'b'\nkind = 'directory'\npath = 'backup'\n";
        assert_eq!(
            refused(root, backup),
            [
                "p.toml:4: 'stage.backup.targets[0].path': 'backup' lies in 'repository' of 'archive.repository[0].path'"
            ]
        );
    }
}
