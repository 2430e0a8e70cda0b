//! One event with all its fields, and how it looks as text and as JSON.

use std::fmt::{self, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::printable::{is_unsafe, printable};

/// A longer value is cut: a log line is for reading, and the journal has a limit.
const LONGEST_VALUE: usize = 8 * 1_024;

/// Fields in the order they were set; a name set again keeps its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn merge(&mut self, other: &Fields) {
        for (name, value) in &other.0 {
            self.set(name, value.clone());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    fn set(&mut self, name: &'static str, value: Value) {
        // `r#type = …` in the code is `type` in the log.
        let name = name.strip_prefix("r#").unwrap_or(name);
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn set_text(&mut self, name: &'static str, mut text: String) {
        if text.len() > LONGEST_VALUE {
            text.truncate(text.floor_char_boundary(LONGEST_VALUE));
            text.push_str(" [cut]");
        }
        self.set(name, Value::String(text));
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(index).1)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field.name(), value.to_owned());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // The causes are where the reason is.
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source.filter(|_| text.len() <= LONGEST_VALUE) {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        self.set_text(field.name(), text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set_text(field.name(), format!("{value:?}"));
    }
}

/// One event.
pub(super) struct Entry<'a> {
    pub(super) metadata: &'a Metadata<'a>,
    time: String,
    message: String,
    fields: Fields,
}

impl<'a> Entry<'a> {
    pub(super) fn new(metadata: &'a Metadata<'a>, mut fields: Fields) -> Entry<'a> {
        let mut time = String::new();
        if SystemTime.format_time(&mut Writer::new(&mut time)).is_err() {
            time.clear();
        }
        let message = match fields.take("message") {
            Some(Value::String(message)) => message,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        Entry {
            metadata,
            time,
            message,
            fields,
        }
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.fields.iter()
    }

    /// A JSON object and a newline.
    pub(super) fn to_json(&self) -> String {
        // By hand, for the order: a person reads the time first.
        let level = self.metadata.level().as_str().to_ascii_lowercase();
        let mut json = String::from("{");
        let mut put = |name: &str, value: &Value| {
            let comma = if json.len() > 1 { "," } else { "" };
            let name = Value::from(name);
            write!(json, "{comma}{name}:{value}").expect("a string takes what is written");
        };
        put("time", &self.time.as_str().into());
        put("level", &level.into());
        put("message", &self.message.as_str().into());
        for (name, value) in self.fields() {
            match name {
                "time" | "level" | "target" => put(&format!("field-{name}"), value),
                name => put(name, value),
            }
        }
        put("target", &self.metadata.target().into());
        json.push('}');
        let mut line = String::with_capacity(json.len() + 1);
        for c in json.chars() {
            if is_unsafe(c) {
                // JSON itself escapes C0 only. These stand in strings: nowhere else is one legal.
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(line, "\\u{unit:04x}").expect("a string takes what is written");
                }
            } else {
                line.push(c);
            }
        }
        line.push('\n');
        line
    }

    /// A line for people, with its newline.
    pub(super) fn to_text(&self, color: bool) -> String {
        let level = self.metadata.level();
        let (on, off) = match (color, *level) {
            (false, _) => ("", ""),
            (true, Level::ERROR) => ("\x1b[1;31m", "\x1b[0m"),
            (true, Level::WARN) => ("\x1b[33m", "\x1b[0m"),
            (true, Level::INFO) => ("\x1b[32m", "\x1b[0m"),
            (true, _) => ("\x1b[2m", "\x1b[0m"),
        };
        format!("{} {on}{level:<5}{off} {}\n", self.time, self.sentence())
    }

    /// The stage, the message and the fields.
    pub(super) fn sentence(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.fields() {
            if name == "stage" {
                text.push_str(&shown(value));
                text.push_str(": ");
            }
        }
        text.push_str(&printable(self.message.as_bytes()));
        for (name, value) in self.fields().filter(|(name, _)| *name != "stage") {
            let value = shown(value);
            let is_plain = !value.is_empty() && !value.contains([' ', '"', '=']);
            if is_plain {
                write!(text, " {name}={value}").expect("a string takes what is written");
            } else {
                let value = value.replace('"', "\\\"");
                write!(text, " {name}=\"{value}\"").expect("a string takes what is written");
            }
        }
        text
    }
}

/// A value on one harmless line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text.as_bytes()),
        other => other.to_string(),
    }
}
