//! Files of settings other than `pipeline.toml`, read with the same care.
//!
//! A document is laid over a value that is known to be good. Whatever is wrong in it is a [`Problem`] with its line,
//! and is left as it was in that value, so that one reading finds everything there is to find.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::{Step, decode};
use crate::node::{self, Node, Report, Value};
use crate::problem::{Level, Problem, join, shown};

/// A text of settings that was read over others.
#[derive(Clone, Debug)]
pub struct Document<Settings> {
    /// The settings; where the text is wrong or silent, what they were before.
    pub settings: Settings,
    /// What is wrong; the settings are good for nothing but further checks while there is an error.
    pub problems: Vec<Problem>,
    /// The text is TOML: where it is not, nothing more can be said of what it says.
    pub is_toml: bool,
    file: String,
    tree: Node,
}

/// One step from a document down to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// Into a table.
    Name(&'a str),
    /// Into an array, counted from zero.
    Index(usize),
}

impl<Settings: Clone + Serialize + DeserializeOwned> Document<Settings> {
    /// Reads a text over `base`; `name` is what messages call it.
    ///
    /// Tables are laid over tables, key by key; anything else, arrays too, replaces what was there.
    pub fn parse_over(base: &Settings, text: &str, name: &str) -> Document<Settings> {
        let mut report = Report::new(name);
        let good = Node::built_in(base);
        let mut tree = good.clone();
        let parsed = node::parse(text, &mut report);
        let is_toml = parsed.is_some();
        if let (Some(file), Value::Table(table)) = (parsed, &mut tree.value) {
            node::merge(table, file);
        }
        let mut to_read = tree.clone();
        let settings = decode(&mut to_read, &good, "", &[], &mut report);
        Document {
            settings: settings.unwrap_or_else(|| base.clone()),
            problems: report.problems,
            is_toml,
            file: report.file,
            tree,
        }
    }
}

impl<Settings> Document<Settings> {
    /// Adds an error about the value at the end of `path`.
    pub fn error(&mut self, path: &[Key<'_>], message: &str) {
        self.add(Level::Error, path, message);
    }

    /// Adds a warning about the value at the end of `path`.
    pub fn warning(&mut self, path: &[Key<'_>], message: &str) {
        self.add(Level::Warning, path, message);
    }

    /// Tells whether anything found so far is an error.
    pub fn is_refused(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.level == Level::Error)
    }

    /// Tells whether the text itself has something at `path`.
    pub fn says(&self, path: &[Key<'_>]) -> bool {
        let steps = steps(path);
        let node = steps
            .iter()
            .try_fold(&self.tree, |node, step| node.below(step));
        node.is_some_and(|node| node.line.is_some())
    }

    fn add(&mut self, level: Level, path: &[Key<'_>], message: &str) {
        let key = path.iter().fold(String::new(), |path, key| match key {
            Key::Name(name) => join(&path, name),
            Key::Index(index) => format!("{path}[{index}]"),
        });
        let message = if key.is_empty() {
            shown(message)
        } else {
            format!("'{}': {}", shown(&key), shown(message))
        };
        self.problems.push(Problem {
            level,
            file: self.file.clone(),
            line: self.tree.line_at(&steps(path)),
            key,
            message,
        });
    }
}

fn steps(path: &[Key<'_>]) -> Vec<Step> {
    let step = |key: &Key<'_>| match key {
        Key::Name(name) => Step::Key((*name).to_owned()),
        Key::Index(index) => Step::Index(*index),
    };
    path.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::units::Span;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct Order {
        job: String,
        wait: Span,
        numbers: Vec<u8>,
        inner: Inner,
        rules: Vec<Rule>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct Inner {
        depth: u32,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    struct Rule {
        name: String,
        #[serde(default)]
        limit: u32,
    }

    impl Default for Order {
        fn default() -> Order {
            Order {
                job: "seven".to_owned(),
                wait: Span::secs(3),
                numbers: vec![1],
                inner: Inner { depth: 5 },
                rules: Vec::new(),
            }
        }
    }

    fn lines(document: &Document<Order>) -> Vec<String> {
        document.problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn what_the_text_does_not_say_stays() {
        let document = Document::parse_over(&Order::default(), "[inner]\ndepth = 9\n", "a.toml");
        assert_eq!(lines(&document), [""; 0]);
        let inner = Inner { depth: 9 };
        assert_eq!(
            document.settings,
            Order {
                inner,
                ..Order::default()
            }
        );
        assert!(document.says(&[Key::Name("inner"), Key::Name("depth")]));
        assert!(!document.says(&[Key::Name("job")]));
    }

    #[test]
    fn every_fault_is_found_with_its_line() {
        let text = "\
wiat = '5s'
wait = 5
numbers = [
    1,
    999,
    2,
    'x',
]

[inner]
depht = 3

[[rules]]
name = 'a'
limit = -1

[[rules]]
limit = 3

[[rules]]
name = 'c'
limits = 3

[[rules]]
name = 7
";
        let mut document = Document::parse_over(&Order::default(), text, "a.toml");
        document.error(
            &[Key::Name("rules"), Key::Index(2), Key::Name("name")],
            "is \u{1b} taken",
        );
        document.warning(&[Key::Name("job")], "is not set");
        let mut found = lines(&document);
        found.sort();
        let mut expected = [
            "a.toml:1: unknown key 'wiat'; did you mean 'wait'?",
            r#"a.toml:2: 'wait': the bare number 5 has no unit; write "5s", "5m" or "5h""#,
            "a.toml:5: 'numbers[1]': expected a whole number from 0 to 255, found integer `999`",
            "a.toml:7: 'numbers[3]': expected a whole number from 0 to 255, found string \"x\"",
            "a.toml:11: unknown key 'inner.depht'; did you mean 'depth'?",
            "a.toml:15: 'rules[0].limit': expected a whole number from 0 to 4294967295, found integer `-1`",
            "a.toml:17: 'rules[1].name' is not set, and has no default",
            "a.toml:22: unknown key 'rules[2].limits'; did you mean 'limit'?",
            "a.toml:21: 'rules[2].name': is \\u{1b} taken",
            "a.toml:25: 'rules[3].name': expected a string, found integer `7`",
            "a.toml: warning: 'job': is not set",
        ];
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert!(document.is_refused());
        assert_eq!(document.settings.numbers, [1, 2]);
        assert_eq!(document.settings.inner.depth, 5);
    }

    #[test]
    fn what_is_no_toml_is_one_problem() {
        let document = Document::parse_over(&Order::default(), "a = = 1", "a.toml");
        assert_eq!(document.problems.len(), 1);
        assert_eq!(document.settings, Order::default());
        let kinds =
            Document::parse_over(&Order::default(), "inner = 3\nrules = 'x'\njob = []", "a");
        assert_eq!(kinds.problems.len(), 3);
        assert_eq!(kinds.settings, Order::default());
    }
}
