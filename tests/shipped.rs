//! The shipped `pipeline.toml` says what is built in, for every stage.

use ecluse::stages::ALL;
use ecluse_config::{Pipeline, SHIPPED};

#[test]
fn every_stage_has_its_built_in_settings_in_the_shipped_file() {
    let shipped = Pipeline::parse(SHIPPED, "pipeline.toml").expect("it is valid");
    for entry in ALL {
        let says = (entry.describe)(&shipped).expect("its settings are valid");
        assert_eq!(says, (entry.built_in)(), "[stage.{}]", entry.name);
    }
}

#[test]
fn the_chain_is_the_stages_in_order() {
    let shipped = Pipeline::parse(SHIPPED, "pipeline.toml").expect("it is valid");
    let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
    assert_eq!(shipped.chain.stages, names);
}

#[test]
fn every_key_of_a_stage_is_in_the_shipped_file() {
    let table: toml::Table = SHIPPED.parse().expect("it is TOML");
    for entry in ALL {
        let keys = table["stage"][entry.name].as_table().expect("a table");
        for field in fields(&(entry.built_in)()) {
            let key = field.replace('_', "-");
            assert!(
                keys.contains_key(&key),
                "[stage.{}] lacks {key}",
                entry.name
            );
        }
    }
}

/// The names of the outermost fields in the debug form of a struct.
fn fields(debug: &str) -> Vec<String> {
    let mut depth = 0;
    let mut fields = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut escaped = false;
    for c in debug.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => quoted = true,
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ':' if depth == 1 => fields.push(std::mem::take(&mut word)),
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            _ => word.clear(),
        }
    }
    fields
}
