//! Traps for all harvests, and for single domains: `traps.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use ecluse_names::{Normaliser, Registered};
use serde::Deserialize;

use crate::definition::read_small;

/// What `traps.toml` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TrapFile {
    /// For every job of every harvest.
    pub everywhere: Vec<String>,
    /// By domain.
    pub domains: BTreeMap<String, Vec<String>>,
}

impl TrapFile {
    /// Reads the file; where there is none there are no traps.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = match read_small(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(format!("cannot read {shown}: {error}")),
        };
        Self::parse(&text).map_err(|fault| format!("{shown}: {fault}"))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut normaliser = Normaliser::new();
        for (domain, traps) in &file.domains {
            let found = normaliser.read(domain.as_bytes());
            let found = found
                .map_err(|rejection| format!("{domain:?} names no domain: {}", rejection.reason))?;
            if found.name != domain || Registered::of(found.name).site != domain {
                return Err(format!(
                    "{domain:?} is not written as the register has it: {}",
                    Registered::of(found.name).site
                ));
            }
            must_be_expressions(traps).map_err(|fault| format!("{domain}: {fault}"))?;
        }
        must_be_expressions(&file.everywhere)?;
        Ok(file)
    }
}

fn must_be_expressions(traps: &[String]) -> Result<(), String> {
    for trap in traps {
        if trap.is_empty() {
            return Err("an empty trap would catch every URL".to_owned());
        }
        regex::Regex::new(trap)
            .map_err(|error| format!("{trap:?} is no regular expression: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_that_would_catch_nothing_or_everything_are_refused() {
        let good = "everywhere = ['/calendar/\\d{4}/']\n[domains]\n'exemple.fr' = ['/print/']\n";
        let traps = TrapFile::parse(good).unwrap();
        assert_eq!(traps.domains["exemple.fr"], ["/print/"]);
        for (from, to) in [
            ("/print/", "("),
            ("/print/", ""),
            ("'exemple.fr'", "'www.exemple.fr'"),
            ("'exemple.fr'", "'Exemple.fr'"),
            ("'exemple.fr'", "'127.0.0.1'"),
            ("everywhere", "evrywhere"),
            ("\\d{4}", "\\d{4"),
        ] {
            assert!(
                TrapFile::parse(&good.replacen(from, to, 1)).is_err(),
                "{to}"
            );
        }
    }
}
