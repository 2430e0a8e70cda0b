//! Turns a tree into a Rust value, and an unknown key into an error whatever the type says.
//!
//! A deserializer of our own, because serde's complaints reach it as values: the unknown field
//! *and* the known ones, before they are prose. The path and the line are added on the way up.

use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::node::{Node, Table, Value};
use crate::problem::{join, shown, unknown};

/// What is wrong with a value, and where it stands below the decoded one.
#[derive(Debug)]
pub(crate) struct DecodeError {
    pub(crate) fault: Fault,
    pub(crate) line: Option<u32>,
    /// From the innermost step outwards.
    steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) enum Fault {
    UnknownKey { key: String, known: Vec<String> },
    UnknownValue { value: String, known: Vec<String> },
    Missing { key: &'static str },
    Wrong { message: String },
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl DecodeError {
    fn new(fault: Fault) -> DecodeError {
        DecodeError {
            fault,
            line: None,
            steps: Vec::new(),
        }
    }

    fn at(mut self, step: Step, line: Option<u32>) -> DecodeError {
        self.line = self.line.or(line);
        self.steps.push(step);
        self
    }

    /// The keys down to the fault, or to the array it is in.
    pub(crate) fn keys(&self) -> Vec<String> {
        let steps = self.steps.iter().rev();
        steps
            .map_while(|step| match step {
                Step::Key(key) => Some(key.clone()),
                Step::Index(_) => None,
            })
            .collect()
    }

    /// The way down to the fault.
    pub(crate) fn way(&self) -> Vec<Step> {
        self.steps.iter().rev().cloned().collect()
    }

    /// The path of the faulty key, below `root`.
    pub(crate) fn path(&self, root: &str) -> String {
        let mut path = root.to_owned();
        for step in self.steps.iter().rev() {
            match step {
                Step::Key(key) => path = join(&path, key),
                Step::Index(index) => path = format!("{path}[{index}]"),
            }
        }
        match &self.fault {
            Fault::Missing { key } => join(&path, key),
            Fault::UnknownKey { .. } | Fault::UnknownValue { .. } | Fault::Wrong { .. } => path,
        }
    }

    /// The message for people; `more` are keys known here that the decoded type knows nothing of.
    pub(crate) fn message(&self, root: &str, more: &[&str]) -> String {
        let path = self.path(root);
        match &self.fault {
            Fault::UnknownKey { key, known } => {
                let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
                if self.steps.len() == 1 {
                    known.extend(more);
                }
                unknown("key", &path, key, &known)
            }
            Fault::UnknownValue { value, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                format!(
                    "'{}': {}",
                    shown(&path),
                    unknown("value", value, value, &known)
                )
            }
            Fault::Missing { .. } => {
                format!("'{}' is not set, and has no default", shown(&path))
            }
            Fault::Wrong { message } => format!("'{}': {}", shown(&path), shown(message)),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("", &[]))
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<Message: fmt::Display>(message: Message) -> Self {
        DecodeError::new(Fault::Wrong {
            message: message.to_string(),
        })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        DecodeError::new(Fault::Wrong {
            message: format!("expected {}, found {found}", plain(&expected.to_string())),
        })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        // The step with the field's line is added by the map it was found in.
        DecodeError::new(Fault::UnknownKey {
            key: field.to_owned(),
            known: owned(expected),
        })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        DecodeError::new(Fault::UnknownValue {
            value: variant.to_owned(),
            known: owned(expected),
        })
    }

    fn missing_field(field: &'static str) -> Self {
        DecodeError::new(Fault::Missing { key: field })
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Says in an operator's words what a Rust type expects.
fn plain(expected: &str) -> String {
    let words = match expected {
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
    };
    words.to_owned()
}

/// A tree as serde reads it.
#[derive(Clone, Copy)]
pub(crate) struct NodeDeserializer<'a>(pub(crate) &'a Node);

impl<'a> NodeDeserializer<'a> {
    fn read<'de, V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let read = match &self.0.value {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Array(items) => visitor.visit_seq(Items {
                items: items.iter().enumerate(),
            }),
            Value::Table(table) => return read_table(table, fields, visitor),
            Value::Dropped => visitor.visit_unit(),
        };
        read.map_err(|error: DecodeError| DecodeError {
            line: error.line.or(self.0.line),
            ..error
        })
    }
}

fn read_table<'de, V: Visitor<'de>>(
    table: &Table,
    fields: &'static [&'static str],
    visitor: V,
) -> Result<V::Value, DecodeError> {
    let mut entries = Entries {
        entries: table.iter(),
        fields,
        current: None,
    };
    let read = visitor.visit_map(&mut entries);
    read.map_err(|error| match (&error.fault, entries.current) {
        // Raised for a key, before any value below it was asked for.
        (Fault::UnknownKey { key, .. }, Some((current, node)))
            if error.steps.is_empty() && key == current =>
        {
            error.at(Step::Key(current.clone()), node.line)
        }
        _ => error,
    })
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.read(&[], visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.read(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Node { line, value } = self.0;
        let read = match value {
            Value::String(name) => {
                let variant: StrDeserializer<'_, DecodeError> = name.as_str().into_deserializer();
                visitor.visit_enum(variant)
            }
            Value::Table(table) => match table.first_key_value() {
                Some((name, content)) if table.len() == 1 => {
                    visitor.visit_enum(Variant { name, content })
                }
                _ => Err(de::Error::custom("expected a table with one key")),
            },
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Array(_)
            | Value::Dropped => Err(de::Error::custom("expected a name or a table with one key")),
        };
        read.map_err(|error| DecodeError {
            line: error.line.or(*line),
            ..error
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        // A stage without settings of its own says `type Settings = ();`.
        match self.0.as_table().map(Table::first_key_value) {
            Some(None) => visitor.visit_unit(),
            Some(Some((key, node))) => {
                let error = DecodeError::new(Fault::UnknownKey {
                    key: key.clone(),
                    known: Vec::new(),
                });
                Err(error.at(Step::Key(key.clone()), node.line))
            }
            None => Err(de::Error::custom("expected an empty table")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_unit(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq
        tuple tuple_struct map identifier ignored_any
    }
}

/// The entries of a table.
struct Entries<'a> {
    entries: std::collections::btree_map::Iter<'a, String, Node>,
    fields: &'static [&'static str],
    current: Option<(&'a String, &'a Node)>,
}

impl<'de> MapAccess<'de> for &mut Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        self.current = self.entries.next();
        let Some((key, _)) = self.current else {
            return Ok(None);
        };
        let key: StringDeserializer<DecodeError> = key.clone().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let (key, node) = self
            .current
            .expect("serde asks for a value after its key only");
        let content = Content {
            key,
            fields: self.fields,
            node,
        };
        seed.deserialize(content)
            .map_err(|error| error.at(Step::Key(key.clone()), node.line))
    }
}

/// A value in a table: as [`NodeDeserializer`], but being ignored makes its key an unknown one.
struct Content<'a> {
    key: &'a str,
    fields: &'static [&'static str],
    node: &'a Node,
}

impl<'de> Deserializer<'de> for Content<'_> {
    type Error = DecodeError;

    fn deserialize_ignored_any<V: Visitor<'de>>(
        self,
        _visitor: V,
    ) -> Result<V::Value, DecodeError> {
        Err(DecodeError::new(Fault::UnknownKey {
            key: self.key.to_owned(),
            known: owned(self.fields),
        }))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_enum(name, variants, visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_unit(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.node).deserialize_unit_struct(name, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf seq
        tuple tuple_struct map identifier
    }
}

/// The items of an array.
struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let mut kept = self
            .items
            .by_ref()
            .filter(|(_, node)| !matches!(node.value, Value::Dropped));
        let Some((index, node)) = kept.next() else {
            return Ok(None);
        };
        seed.deserialize(NodeDeserializer(node))
            .map(Some)
            .map_err(|error| error.at(Step::Index(index), node.line))
    }
}

/// An enum's variant with content, `{ name = content }`.
struct Variant<'a> {
    name: &'a str,
    content: &'a Node,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), DecodeError> {
        let name: StrDeserializer<'_, DecodeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl Variant<'_> {
    fn below(&self, error: DecodeError) -> DecodeError {
        error.at(Step::Key(self.name.to_owned()), self.content.line)
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Err(self.below(de::Error::custom("this name stands alone, without a value")))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        seed.deserialize(NodeDeserializer(self.content))
            .map_err(|error| self.below(error))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.content)
            .deserialize_any(visitor)
            .map_err(|error| self.below(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        NodeDeserializer(self.content)
            .read(fields, visitor)
            .map_err(|error| self.below(error))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::node::{Report, parse};
    use crate::units::{Bytes, Span};

    fn decode<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let mut report = Report::new("test.toml");
        let table = parse(text, &mut report).unwrap();
        let node = Node {
            line: None,
            value: Value::Table(table),
        };
        T::deserialize(NodeDeserializer(&node))
            .map_err(|error| format!("{:?} {}", error.line, error.message("", &[])))
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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

    // Deliberately without `deny_unknown_fields`.
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
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
        assert_eq!(decode(text), Ok(expected));
        let fixed: Sample = decode("order = { fixed = [1, 2] }").unwrap();
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
            assert_eq!(decode::<Sample>(text).unwrap_err(), message, "{text}");
        }
    }

    #[test]
    fn a_stage_without_settings_takes_no_key() {
        assert_eq!(decode::<()>(""), Ok(()));
        assert_eq!(
            decode::<()>("a = 1").unwrap_err(),
            "Some(1) unknown key 'a'; no key is known here"
        );
    }
}
