//! A TOML document as a tree in which every value knows its line.
//!
//! The built-in settings are such a tree too, without lines. Laying the file's tree over the
//! built-in one gives the effective settings, finds the unknown keys on the way (whatever the
//! built-in tree does not have), and tells afterwards where each value came from.

use std::collections::BTreeMap;

use serde::ser::Serialize;
use toml::de::{DeTable, DeValue};

use crate::decode::Step;
use crate::problem::{Level, Problem, join, shown, unknown};

/// A value and the line it stands on; built-in values have none.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: Option<u32>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
    /// An item of an array that was found faulty and is passed over; the others keep their number.
    Dropped,
}

pub(crate) type Table = BTreeMap<String, Node>;

impl Node {
    /// The tree of a value that stands in no file.
    ///
    /// # Panics
    ///
    /// When the value cannot be written as TOML; the settings of this crate can.
    pub(crate) fn built_in(value: &impl Serialize) -> Node {
        let value = toml::Value::try_from(value).expect("built-in settings are plain TOML");
        Node::from_toml(&value)
    }

    /// A table without keys.
    pub(crate) fn empty() -> Node {
        Node {
            line: None,
            value: Value::Table(Table::new()),
        }
    }

    pub(crate) fn from_toml(value: &toml::Value) -> Node {
        let value = match value {
            toml::Value::String(text) => Value::String(text.clone()),
            toml::Value::Integer(number) => Value::Integer(*number),
            toml::Value::Float(number) => Value::Float(*number),
            toml::Value::Boolean(truth) => Value::Boolean(*truth),
            toml::Value::Datetime(time) => Value::String(time.to_string()),
            toml::Value::Array(items) => Value::Array(items.iter().map(Node::from_toml).collect()),
            toml::Value::Table(table) => Value::Table(
                table
                    .iter()
                    .map(|(key, value)| (key.clone(), Node::from_toml(value)))
                    .collect(),
            ),
        };
        Node { line: None, value }
    }

    /// The same value without its line, for rendering and comparing.
    pub(crate) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::String(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Boolean(truth) => toml::Value::Boolean(*truth),
            Value::Array(items) => toml::Value::Array(items.iter().map(Node::to_toml).collect()),
            Value::Dropped => toml::Value::Array(Vec::new()),
            Value::Table(table) => toml::Value::Table(
                table
                    .iter()
                    .map(|(key, node)| (key.clone(), node.to_toml()))
                    .collect(),
            ),
        }
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// One item of an array.
    pub(crate) fn item(&self, index: usize) -> Option<&Node> {
        match &self.value {
            Value::Array(items) => items.get(index),
            _ => None,
        }
    }

    /// Follows a path of keys.
    pub(crate) fn find<'a>(&'a self, path: &[String]) -> Option<&'a Node> {
        path.iter()
            .try_fold(self, |node, key| node.as_table()?.get(key))
    }

    /// What one step leads to.
    pub(crate) fn below(&self, step: &Step) -> Option<&Node> {
        match step {
            Step::Key(name) => self.as_table()?.get(name),
            Step::Index(index) => self.item(*index),
        }
    }

    /// The line of what lies at the end of a way, else that of the nearest thing around it that has one.
    pub(crate) fn line_at(&self, way: &[Step]) -> Option<u32> {
        let mut node = self;
        let mut line = node.line;
        for step in way {
            let Some(next) = node.below(step) else {
                break;
            };
            node = next;
            line = node.line.or(line);
        }
        line
    }

    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self.value, Value::Dropped)
    }

    /// The place in an array of the item that is counted so, without those that were dropped.
    pub(crate) fn kept(&self, number: usize) -> Option<usize> {
        let Value::Array(items) = &self.value else {
            return None;
        };
        let kept = items.iter().enumerate();
        let mut kept = kept.filter(|(_, node)| !node.is_dropped());
        kept.nth(number).map(|(index, _)| index)
    }
}

/// A name for messages and the problems found so far.
pub(crate) struct Report {
    pub(crate) file: String,
    pub(crate) problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn new(file: &str) -> Report {
        Report {
            file: file.to_owned(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn error(&mut self, line: Option<u32>, key: &str, message: String) {
        self.problems.push(Problem {
            level: Level::Error,
            file: self.file.clone(),
            line,
            key: key.to_owned(),
            message,
        });
    }
}

/// Reads a document; a mistake in its TOML is reported and gives `None`.
pub(crate) fn parse(text: &str, report: &mut Report) -> Option<Table> {
    let lines = Lines::of(text);
    match DeTable::parse(text) {
        Ok(document) => Some(table_of(document.get_ref(), "", &lines, report)),
        Err(error) => {
            let line = error.span().map(|span| lines.number(span.start));
            let message = error.message().split_whitespace().collect::<Vec<_>>();
            report.error(line, "", format!("not TOML: {}", shown(&message.join(" "))));
            None
        }
    }
}

fn table_of(table: &DeTable<'_>, path: &str, lines: &Lines, report: &mut Report) -> Table {
    table
        .iter()
        .map(|(key, value)| {
            let line = lines.number(key.span().start);
            let path = join(path, key.get_ref());
            let node = node_of(value.get_ref(), line, &path, lines, report);
            (key.get_ref().clone().into_owned(), node)
        })
        .collect()
}

fn node_of(value: &DeValue<'_>, line: u32, path: &str, lines: &Lines, report: &mut Report) -> Node {
    let value = match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Value::Integer(parsed.unwrap_or_else(|_| {
                let message = format!("'{}': the number is too large", shown(path));
                report.error(Some(line), path, message);
                0
            }))
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| {
                    let line = lines.number(item.span().start);
                    node_of(item.get_ref(), line, path, lines, report)
                })
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(table_of(table, path, lines, report)),
    };
    Node {
        line: Some(line),
        value,
    }
}

/// Lays `file` over `base`, in which every key is known; an unknown key is reported and dropped.
pub(crate) fn overlay(base: &mut Table, file: Table, path: &str, report: &mut Report) {
    let known: Vec<String> = base.keys().cloned().collect();
    for (key, node) in file {
        let path = join(path, &key);
        let Some(slot) = base.get_mut(&key) else {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            report.error(node.line, &path, unknown("key", &path, &key, &known));
            continue;
        };
        match (&mut slot.value, node.value) {
            (Value::Table(base), Value::Table(file)) => {
                slot.line = node.line;
                overlay(base, file, &path, report);
            }
            (Value::Table(base), _) => {
                let keys: Vec<&str> = base.keys().map(String::as_str).collect();
                let keys = keys.join(", ");
                let message = format!("'{path}' is a table with the keys {keys}");
                report.error(node.line, &path, message);
            }
            (_, Value::Table(_)) => {
                let message = format!("'{path}' is a value, not a table");
                report.error(node.line, &path, message);
            }
            (_, value) => {
                *slot = Node {
                    line: node.line,
                    value,
                };
            }
        }
    }
}

/// Lays `file` over `base`, whose keys are not all of them known.
pub(crate) fn merge(base: &mut Table, file: Table) {
    for (key, node) in file {
        match (base.get_mut(&key), node) {
            (
                Some(Node {
                    line,
                    value: Value::Table(base),
                }),
                Node {
                    line: new_line,
                    value: Value::Table(file),
                },
            ) => {
                *line = new_line;
                merge(base, file);
            }
            (_, node) => {
                base.insert(key, node);
            }
        }
    }
}

/// The offsets at which lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Lines(std::iter::once(0).chain(after_newlines).collect())
    }

    /// The line of an offset, counted from one.
    fn number(&self, offset: usize) -> u32 {
        let line = self.0.partition_point(|begin| *begin <= offset);
        u32::try_from(line).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<(String, Option<u32>)> {
        fn walk(table: &Table, path: &str, found: &mut Vec<(String, Option<u32>)>) {
            for (key, node) in table {
                let path = join(path, key);
                found.push((path.clone(), node.line));
                if let Some(table) = node.as_table() {
                    walk(table, &path, found);
                }
            }
        }
        let mut report = Report::new("test.toml");
        let table = parse(text, &mut report).unwrap();
        assert_eq!(report.problems, []);
        let mut found = Vec::new();
        walk(&table, "", &mut found);
        found
    }

    #[test]
    fn every_value_knows_its_line() {
        let text = "a = 1\n\n[b]\r\nc = '''\nlong\n'''\nd.e = { f = 1 }\n";
        let expected = [
            ("a", 1),
            ("b", 3),
            ("b.c", 4),
            ("b.d", 7),
            ("b.d.e", 7),
            ("b.d.e.f", 7),
        ];
        let expected = expected.map(|(path, line)| (path.to_owned(), Some(line)));
        assert_eq!(lines_of(text), expected);
    }

    #[test]
    fn bad_toml_is_one_problem_with_its_line() {
        let mut report = Report::new("test.toml");
        assert!(parse("a = 1\nb = = 2\n", &mut report).is_none());
        assert_eq!(report.problems.len(), 1);
        assert_eq!(report.problems[0].line, Some(2));
        assert!(!report.problems[0].to_string().contains('\n'));
    }

    #[test]
    fn a_number_too_large_for_toml_is_reported() {
        let mut report = Report::new("test.toml");
        parse("[a]\nb = 0xffff_ffff_ffff_ffff\n", &mut report);
        assert_eq!(
            report.problems[0].to_string(),
            "test.toml:2: 'a.b': the number is too large"
        );
    }

    #[test]
    fn depth_is_bounded_however_it_is_written() {
        let dotted = format!("{} = 1", vec!["a"; 100_000].join("."));
        let arrays = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [dotted, arrays] {
            let mut report = Report::new("test.toml");
            assert!(parse(&text, &mut report).is_none());
        }
    }
}
