//! The whole configuration as TOML, with where each value came from.
//!
//! The text is a `pipeline.toml` again: parsing it gives the same settings.

use std::fmt::Write;

use serde::Serialize;

use crate::node::{Node, Table};
use crate::pipeline::{Pipeline, StageTable};
use crate::problem::{join, shown, shown_key};

impl Pipeline {
    /// Renders every setting in force, each with its origin in a comment.
    ///
    /// A stage's own keys are those of its table: what the stage itself assumes beyond them is
    /// known to the stage alone.
    pub fn effective(&self) -> String {
        let mut page = Page::default();
        page.line("version = 1", &self.origin(&["version"]));
        self.section(&mut page, "site", &self.site);
        self.section(&mut page, "archive", &self.archive);
        self.section(&mut page, "engine", &self.engine);
        self.section(&mut page, "access", &self.access);
        self.section(&mut page, "defaults", &self.defaults);
        self.section(&mut page, "chain", &self.chain);
        for (stage, table) in &self.stages {
            self.stage(&mut page, stage, table);
        }
        self.section(&mut page, "alert", &self.alert);
        self.section(&mut page, "log", &self.log);
        self.section(&mut page, "metrics", &self.metrics);
        self.section(&mut page, "hosts", &self.hosts);
        page.text
    }

    fn section(&self, page: &mut Page, name: &str, settings: &impl Serialize) {
        page.head(name);
        for (keys, value) in leaves(&Node::built_in(settings)) {
            let path: Vec<&str> = std::iter::once(name)
                .chain(keys.iter().map(String::as_str))
                .collect();
            page.setting(&keys, &value, &self.origin(&path));
        }
    }

    fn stage(&self, page: &mut Page, stage: &str, table: &StageTable) {
        page.head(&join("stage", stage));
        let origin = |keys: &[String]| {
            let in_stage: Vec<&str> = ["stage", stage]
                .into_iter()
                .chain(keys.iter().map(String::as_str))
                .collect();
            if self.find(&in_stage).is_some() {
                return self.origin(&in_stage);
            }
            let in_defaults: Vec<&str> = std::iter::once("defaults")
                .chain(keys.iter().map(String::as_str))
                .collect();
            format!("[defaults], {}", self.origin(&in_defaults))
        };
        let names = |names: &[String]| toml::Value::from(names.to_vec()).to_string();
        match &table.next {
            Some(next) => {
                let keys = ["next".to_owned()];
                page.setting(&keys, &names(next), &origin(&keys));
            }
            None => {
                let next = self.next_of(stage);
                let next: Vec<String> = next.into_iter().map(str::to_owned).collect();
                let comment = format!("# next = {}", shown(&names(&next)));
                page.line(&comment, "the order of the chain");
            }
        }
        if !table.back.is_empty() {
            let keys = ["back".to_owned()];
            page.setting(&keys, &names(&table.back), &origin(&keys));
        }
        for (keys, value) in leaves(&Node::built_in(&table.shell)) {
            page.setting(&keys, &value, &origin(&keys));
        }
        for (keys, value) in leaves(&self.own(stage)) {
            page.setting(&keys, &value, &origin(&keys));
        }
    }

    fn find(&self, path: &[&str]) -> Option<&Node> {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.tree.find(&path)
    }

    fn origin(&self, path: &[&str]) -> String {
        match self.find(path).and_then(|node| node.line) {
            Some(line) => format!("{}:{line}", shown(&self.file)),
            None => "built-in".to_owned(),
        }
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str) {
        writeln!(self.text, "\n[{name}]").expect("a string takes what is written");
    }

    fn setting(&mut self, keys: &[String], value: &str, origin: &str) {
        let keys: Vec<String> = keys.iter().map(|key| shown_key(key)).collect();
        self.line(&format!("{} = {value}", keys.join(".")), origin);
    }

    fn line(&mut self, text: &str, origin: &str) {
        writeln!(self.text, "{text:<40} # {origin}").expect("a string takes what is written");
    }
}

/// The values below a node with their paths; an empty table counts as a value.
fn leaves(node: &Node) -> Vec<(Vec<String>, String)> {
    leaves_of(node.as_table().unwrap_or(&Table::new()))
}

fn leaves_of(table: &Table) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    for (key, node) in table {
        match node.as_table() {
            Some(table) if !table.is_empty() => {
                for (mut keys, value) in leaves_of(table) {
                    keys.insert(0, key.clone());
                    found.push((keys, value));
                }
            }
            _ => found.push((vec![key.clone()], node.to_toml().to_string())),
        }
    }
    found
}
