//! `bag-info.txt`: free metadata, a label and a value a line, long values indented on the next lines.

use crate::declaration::{BagVersion, lines_of};
use crate::fault::BagFault;

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoField {
    /// Its label, such as `External-Identifier`.
    pub label: String,
    /// Its value.
    pub value: String,
}

impl InfoField {
    /// Returns a field.
    #[must_use]
    pub fn new(label: &str, value: impl Into<String>) -> Self {
        Self {
            label: label.to_owned(),
            value: value.into(),
        }
    }
}

/// Reads the fields; a line that is none is a fault.
pub(crate) fn parse(
    text: &str,
    name: &str,
    version: BagVersion,
    faults: &mut Vec<BagFault>,
) -> Vec<InfoField> {
    let mut fields: Vec<InfoField> = Vec::new();
    for (number, line) in lines_of(text).enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        if line.starts_with([' ', '\t'])
            && let Some(last) = fields.last_mut()
        {
            last.value.push(' ');
            last.value.push_str(line.trim());
            continue;
        }
        match field_of(line, version) {
            Ok(field) => fields.push(field),
            Err(what) => faults.push(BagFault::Line {
                file: name.to_owned(),
                line: number + 1,
                what: what.to_owned(),
            }),
        }
    }
    fields
}

fn field_of(line: &str, version: BagVersion) -> Result<InfoField, &'static str> {
    let (label, value) = line.split_once(':').ok_or("there is no colon")?;
    let is_loose = version < BagVersion::V1_0;
    if !is_loose && label.trim() != label {
        return Err("there is a space before the colon, or the label begins with one");
    }
    if !is_loose && !value.is_empty() && !value.starts_with([' ', '\t']) {
        return Err("there is no space after the colon");
    }
    let label = label.trim();
    if label.is_empty() {
        return Err("there is no label");
    }
    Ok(InfoField::new(label, value.trim()))
}

/// Returns the text of the fields; a value with a line end becomes an indented one, which reads as a space.
pub(crate) fn to_text(fields: &[InfoField]) -> String {
    let mut text = String::new();
    for field in fields {
        // What would end the label or the line early is left out: nothing from outside adds a field.
        let label: String = field.label.chars().filter(|c| is_of_label(*c)).collect();
        let value: Vec<&str> = field.value.split(char::is_control).collect();
        let value = value.join(" ");
        text.push_str(&format!("{label}: {}\n", value.trim()));
    }
    text
}

fn is_of_label(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drafts_have_loose_colons() {
        let mut faults = Vec::new();
        let text = "A: 1\nB :2\n   more\r\nC   :  3\n";
        let draft = BagVersion {
            major: 0,
            minor: 97,
        };
        let fields = parse(text, "bag-info.txt", draft, &mut faults);
        assert_eq!(faults, []);
        assert_eq!(fields[1], InfoField::new("B", "2 more"));
        assert_eq!(fields.len(), 3);
        parse(text, "bag-info.txt", BagVersion::V1_0, &mut faults);
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn no_value_makes_a_second_field() {
        let hostile = InfoField::new("Crawl-Job", "a\nPayload-Oxum: 0.0\r\nB: c\u{85}D: e");
        let text = to_text(&[hostile]);
        assert_eq!(text.lines().count(), 1);
        let mut faults = Vec::new();
        let read = parse(&text, "bag-info.txt", BagVersion::V1_0, &mut faults);
        assert_eq!((read.len(), faults), (1, Vec::new()));
    }
}
