//! Turns a tree into a Rust value, and an unknown key into an error whatever the type says.
//!
//! The tree has a deserializer of its own because serde's complaints reach its error type as values: the unknown field
//! *and* the known ones, before they are prose. `serde_path_to_error` tells where; the tree knows the line.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Segment;

use crate::node::{Node, Report, Table, Value};
use crate::problem::{join, shown, unknown};

/// A file with more faults than this has another problem than its values.
const MOST_FAULTS: usize = 200;

/// Reads a tree as a value, below the key `root`.
///
/// Whatever is wrong is reported, then made as it is in `good` or left out, so that the next fault is found too. `more`
/// are keys known here that the type knows nothing of.
pub(crate) fn decode<Settings: DeserializeOwned>(
    tree: &mut Node,
    good: &Node,
    root: &str,
    more: &[&str],
    report: &mut Report,
) -> Option<Settings> {
    let mut faulty: Vec<String> = Vec::new();
    for _ in 0..MOST_FAULTS {
        let error = match serde_path_to_error::deserialize(NodeDeserializer(tree)) {
            Ok(settings) => return Some(settings),
            Err(error) => error,
        };
        let way = way_of(tree, &error);
        let fault = error.into_inner();
        let path = fault.path(root, &way);
        // What is wrong around a value that was taken out is wrong because of that.
        if !faulty.iter().any(|below| below.starts_with(&path)) {
            let line = tree.line_at(&way);
            let more = if way.len() == 1 { more } else { &[] };
            report.error(line, &path, fault.message(&path, more));
        }
        faulty.push(path);
        mend(tree, good, &way)?;
    }
    None
}

/// One step from a table or an array to what is in it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// What is wrong with a value.
#[derive(Debug)]
enum Fault {
    UnknownKey { key: String, known: Vec<String> },
    UnknownValue { value: String, known: Vec<String> },
    Missing { key: &'static str },
    Wrong { message: String },
}

impl Fault {
    /// The path of the faulty key, below `root`.
    fn path(&self, root: &str, way: &[Step]) -> String {
        let path = way.iter().fold(root.to_owned(), |path, step| match step {
            Step::Key(key) => join(&path, key),
            Step::Index(index) => format!("{path}[{index}]"),
        });
        match self {
            Fault::Missing { key } => join(&path, key),
            Fault::UnknownKey { .. } | Fault::UnknownValue { .. } | Fault::Wrong { .. } => path,
        }
    }

    /// The message for people.
    fn message(&self, path: &str, more: &[&str]) -> String {
        match self {
            Fault::UnknownKey { key, known } => {
                let known = known.iter().map(String::as_str);
                let known: Vec<&str> = known.chain(more.iter().copied()).collect();
                unknown("key", path, key, &known)
            }
            Fault::UnknownValue { value, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let message = unknown("value", value, value, &known);
                format!("'{}': {message}", shown(path))
            }
            Fault::Missing { .. } => format!("'{}' is not set, and has no default", shown(path)),
            Fault::Wrong { message } => format!("'{}': {}", shown(path), shown(message)),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("", &[]))
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<Message: fmt::Display>(message: Message) -> Self {
        Fault::Wrong {
            message: message.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Fault::Wrong {
            message: format!("expected {}, found {found}", plain(&expected.to_string())),
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault::UnknownKey {
            key: field.to_owned(),
            known: owned(expected),
        }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Fault::UnknownValue {
            value: variant.to_owned(),
            known: owned(expected),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::Missing { key: field }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Says in an operator's words what a Rust type expects.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "a table",
        _ if expected.starts_with("a nonzero u") => "a whole number of at least 1",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("tuple ") => "an array",
        other => other,
    }
}

/// The way down to a fault, as far as the tree goes.
fn way_of(tree: &Node, error: &serde_path_to_error::Error<Fault>) -> Vec<Step> {
    let mut way = Vec::new();
    let mut node = Some(tree);
    for segment in error.path() {
        let step = match segment {
            // Items that were taken out are not counted there.
            Segment::Seq { index } => match node.and_then(|node| node.kept(*index)) {
                Some(index) => Step::Index(index),
                None => break,
            },
            Segment::Map { key } | Segment::Enum { variant: key } => Step::Key(key.clone()),
            Segment::Unknown => break,
        };
        node = node.and_then(|node| node.below(&step));
        // The name of a variant that stands alone is the value, not a key.
        if node.is_some() || matches!(segment, Segment::Map { .. }) {
            way.push(step);
        }
    }
    way
}

/// Takes the faulty value out; `None` when there is nothing to take.
fn mend(tree: &mut Node, good: &Node, way: &[Step]) -> Option<()> {
    let (last, above) = way.split_last()?;
    let mut parent = tree;
    let mut was = Some(good);
    for step in above {
        was = was.and_then(|was| was.below(step));
        parent = match (step, &mut parent.value) {
            (Step::Key(name), Value::Table(table)) => table.get_mut(name)?,
            (Step::Index(index), Value::Array(items)) => {
                was = None;
                items.get_mut(*index)?
            }
            _ => return None,
        };
    }
    match (last, &mut parent.value) {
        (Step::Key(name), Value::Table(table)) => {
            match was.and_then(|was| was.below(last)) {
                Some(was) => table.insert(name.clone(), was.clone()),
                None => table.remove(name),
            };
            Some(())
        }
        (Step::Index(index), Value::Array(items)) => {
            items.get_mut(*index)?.value = Value::Dropped;
            Some(())
        }
        _ => None,
    }
}

/// A tree as serde reads it.
#[derive(Clone, Copy)]
struct NodeDeserializer<'a>(&'a Node);

impl<'de, 'a> IntoDeserializer<'de, Fault> for &'a Node {
    type Deserializer = NodeDeserializer<'a>;

    fn into_deserializer(self) -> NodeDeserializer<'a> {
        NodeDeserializer(self)
    }
}

/// The entries of a table.
fn entries<'de>(table: &Table) -> MapDeserializer<'de, impl Iterator<Item = (&str, &Node)>, Fault> {
    MapDeserializer::new(table.iter().map(|(key, node)| (key.as_str(), node)))
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(
                items.iter().filter(|node| !node.is_dropped()),
            )),
            Value::Table(table) => visitor.visit_map(entries(table)),
            Value::Dropped => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(entries(table)))
            }
            _ => Err(de::Error::custom("expected a name or a table with one key")),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // A stage without settings of its own says `type Settings = ();`.
        match self.0.as_table().map(Table::is_empty) {
            Some(true) => visitor.visit_unit(),
            Some(false) => Err(de::Error::custom("no key is known here")),
            None => Err(de::Error::custom("this name stands alone, without a value")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    /// A type without `deny_unknown_fields` would pass over a key that it does not know.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Fault> {
        Err(de::Error::custom("this key is not known here"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq
        tuple tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::node::parse;
    use crate::units::{Bytes, Span};

    /// Reads a text; the first problem is the error.
    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let mut report = Report::new("test.toml");
        let mut node = Node {
            line: None,
            value: Value::Table(parse(text, &mut report).unwrap()),
        };
        let good = node.clone();
        let read = decode(&mut node, &good, "", &[], &mut report);
        match report.problems.first() {
            Some(problem) => Err(format!("{:?} {}", problem.line, problem.message)),
            None => Ok(read.unwrap()),
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    enum Order {
        FirstFit,
        MostFree { than: Bytes },
        Fixed(Vec<u8>),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    struct Place {
        path: String,
        min_free: Bytes,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    struct Sample {
        order: Order,
        #[serde(default)]
        wait: Option<Span>,
        #[serde(default)]
        place: Vec<Place>,
        #[serde(default)]
        ratio: f64,
        #[serde(default)]
        small: u8,
        #[serde(default)]
        port: Option<std::num::NonZeroU32>,
    }

    #[test]
    fn values_of_every_kind_are_read() {
        let text = r#"
            order = { most-free = { than = "1 GiB" } }
            wait = "20ms"
            ratio = 2
            port = 7
            [[place]]
            path = "/a"
            min-free = "5 MB"
        "#;
        let expected = Sample {
            order: Order::MostFree {
                than: Bytes(1 << 30),
            },
            wait: Some(Span::millis(20)),
            place: vec![Place {
                path: "/a".to_owned(),
                min_free: Bytes(5_000_000),
            }],
            ratio: 2.0,
            small: 0,
            port: std::num::NonZeroU32::new(7),
        };
        assert_eq!(read(text), Ok(expected));
        let fixed: Sample = read("order = { fixed = [1, 2] }").unwrap();
        assert_eq!(fixed.order, Order::Fixed(vec![1, 2]));
    }

    #[test]
    fn every_fault_names_its_line_and_path() {
        for (text, message) in [
            (
                "\nordre = 1",
                "Some(2) unknown key 'ordre'; did you mean 'order'?",
            ),
            ("", "None 'order' is not set, and has no default"),
            (
                "order = 'fist-fit'",
                "Some(1) 'order': unknown value 'fist-fit'; did you mean 'first-fit'?",
            ),
            (
                "order = 'x'",
                "Some(1) 'order': unknown value 'x'; known here: first-fit, most-free, fixed",
            ),
            (
                "order = { most-free = { then = '1 B' } }",
                "Some(1) unknown key 'order.most-free.then'; did you mean 'than'?",
            ),
            (
                "order = { first-fit = 1 }",
                "Some(1) 'order.first-fit': this name stands alone, without a value",
            ),
            (
                "order = 'first-fit'\nwait = 5",
                "Some(2) 'wait': the bare number 5 has no unit; write \"5s\", \"5m\" or \"5h\"",
            ),
            (
                "order = 'first-fit'\nsmall = 300",
                "Some(2) 'small': expected a whole number from 0 to 255, found integer `300`",
            ),
            (
                "order = 'first-fit'\nport = 0",
                "Some(2) 'port': expected a whole number of at least 1, found integer `0`",
            ),
            (
                "order = 'first-fit'\n[[place]]\npath = 'a'\nmin-free = '1 B'\n[[place]]\npath = 'b'\nmin_free = '1 B'",
                "Some(7) unknown key 'place[1].min_free'; did you mean 'min-free'?",
            ),
            (
                "order = 'first-fit'\n[[place]]\npath = 'a'",
                "Some(2) 'place[0].min-free' is not set, and has no default",
            ),
            (
                "order = 'first-fit'\nratio = \"a\\u001b[2J\"",
                "Some(2) 'ratio': expected a number, found string \"a\\u{1b}[2J\"",
            ),
        ] {
            assert_eq!(read::<Sample>(text).unwrap_err(), message, "{text}");
        }
    }

    #[test]
    fn a_type_that_denies_nothing_ignores_nothing() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Lax {
            a: u8,
        }
        assert_eq!(read("a = 1"), Ok(Lax { a: 1 }));
        assert_eq!(
            read::<Lax>("a = 1\nb = 2").unwrap_err(),
            "Some(2) 'b': this key is not known here"
        );
    }

    #[test]
    fn a_stage_without_settings_takes_no_key() {
        assert_eq!(read::<()>(""), Ok(()));
        assert_eq!(
            read::<()>("a = 1").unwrap_err(),
            "None '': no key is known here"
        );
    }
}
