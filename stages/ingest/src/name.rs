//! What a file's name tells: job, harvest, and whether it is a job's metadata.

use ecluse_stage::{HarvestCollection, ParcelManifest};
use regex::Regex;
use serde::Deserialize;

use crate::Settings;

/// The name of a file is one word in an index line and in a PATH line.
const LONGEST: usize = 200;

/// What becomes of a file whose name no pattern knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherNames {
    /// It is taken in without job and harvest.
    Accept,
    /// It is held.
    Hold,
}

/// The patterns.
pub(crate) struct Names {
    files: Vec<Regex>,
    metadata: Vec<Regex>,
    other: OtherNames,
    collections: Vec<(String, Regex)>,
}

impl Names {
    /// Reads the patterns; what is wrong with them is told with its key, all of it.
    pub(crate) fn read(settings: &Settings) -> Result<Self, Vec<(String, String)>> {
        let mut faults = Vec::new();
        let mut read = |key: String, pattern: &str| match Regex::new(pattern) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                // The last line says what is wrong, those before it where.
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default();
                faults.push((key, format!("bad pattern {pattern:?}: {why}")));
                None
            }
        };
        let mut all = |key: &str, patterns: &[String]| -> Vec<Regex> {
            let patterns = patterns.iter().enumerate();
            patterns
                .filter_map(|(n, pattern)| read(format!("stage.ingest.{key}[{n}]"), pattern))
                .collect()
        };
        let files = all("names", &settings.names);
        let metadata = all("metadata-names", &settings.metadata_names);
        let mut collections = Vec::new();
        for (n, collection) in settings.collections.iter().enumerate() {
            let key = format!("stage.ingest.collections[{n}].harvests");
            let whole = format!("^(?:{})$", collection.harvests);
            if let Some(pattern) = read(key, &whole) {
                collections.push((collection.name.clone(), pattern));
            }
        }
        for (n, HarvestCollection { name, .. }) in settings.collections.iter().enumerate() {
            if !ecluse_config::is_stage_name(name)
                || ["current", "generations"].contains(&name.as_str())
            {
                let key = format!("stage.ingest.collections[{n}].name");
                faults.push((key, format!("{name:?} cannot name an index")));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            files,
            metadata,
            other: settings.other_names,
            collections,
        })
    }

    /// Writes into the manifest of a parcel what the name of its file tells: kind, job, harvest and collection.
    pub(crate) fn tell(&self, name: &str, manifest: &mut ParcelManifest) -> Result<(), String> {
        for (kind, patterns) in [("metadata", &self.metadata), ("warc", &self.files)] {
            let mut found = patterns.iter().filter_map(|pattern| pattern.captures(name));
            if let Some(found) = found.next() {
                let group = |group: &str| found.name(group).map(|text| text.as_str().to_owned());
                kind.clone_into(&mut manifest.kind);
                manifest.job = group("job");
                manifest.harvest = group("harvest");
                let harvest = manifest.harvest.as_deref();
                manifest.collection = harvest.and_then(|id| self.collection(id));
                return Ok(());
            }
        }
        match self.other {
            OtherNames::Accept => Ok(()),
            OtherNames::Hold => Err(format!(
                "{name}: no pattern of stage.ingest.names knows this name"
            )),
        }
    }

    fn collection(&self, harvest: &str) -> Option<String> {
        let mut collections = self.collections.iter();
        let (name, _) = collections.find(|(_, pattern)| pattern.is_match(harvest))?;
        Some(name.clone())
    }
}

/// Says what keeps a name out of an index, if anything.
pub(crate) fn problem_of(name: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Some("its name is not UTF-8 and cannot stand in an index".into());
    };
    if text.len() > LONGEST {
        return Some(format!("its name is longer than {LONGEST} bytes"));
    }
    // What a parcel takes for the name of a file; a file keeps its own.
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-~@=,%:".contains(c);
    if let Some(odd) = text.chars().find(|c| !plain(*c)) {
        return Some(format!(
            "its name holds {odd:?}: only letters, digits and . _ + - ~ @ = , % : of ASCII can stand in an index and in a command"
        ));
    }
    if text.starts_with(['-', '~']) {
        return Some(
            "its name begins with a character that commands take for something else".into(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use ecluse_stage::ParcelId;

    use super::*;

    fn shipped() -> Settings {
        let pipeline = ecluse_config::Pipeline::default();
        pipeline.stage_settings("ingest").unwrap()
    }

    fn names() -> Names {
        let settings = Settings {
            collections: vec![HarvestCollection {
                name: "elections".into(),
                harvests: "9[0-9]".into(),
            }],
            ..shipped()
        };
        Names::read(&settings).unwrap()
    }

    fn parcel() -> ParcelManifest {
        ParcelManifest::new(ParcelId::new("a").unwrap(), "warc", String::new())
    }

    fn told(name: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        let mut manifest = parcel();
        names().tell(name, &mut manifest).unwrap();
        let ParcelManifest {
            kind,
            job,
            harvest,
            collection,
            ..
        } = manifest;
        (kind, job, harvest, collection)
    }

    #[test]
    fn names_tell_job_and_harvest() {
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            (
                "12-3-20261116120000123-00007-host.example.warc.gz",
                ("warc", some("12"), some("3"), None),
            ),
            (
                "BnF-12-91-20261116120000123-00007-h.warc",
                ("warc", some("12"), some("91"), some("elections")),
            ),
            (
                "12-3-20261116120000-00007-h.arc.gz",
                ("warc", some("12"), some("3"), None),
            ),
            (
                "12-metadata-1.warc.gz",
                ("metadata", some("12"), None, None),
            ),
            (
                "12-3-metadata-1.warc",
                ("metadata", some("12"), some("3"), None),
            ),
            (
                "lock.example-2026_a-20261116120000123-00007-my-host.warc.gz",
                ("warc", some("lock.example"), some("2026_a"), None),
            ),
            (
                "BnF-lock.example-91-20261116120000123-00007-h.warc.gz",
                ("warc", some("lock.example"), some("91"), some("elections")),
            ),
            (
                "BnF-lock.example-2026-metadata-1.warc.gz",
                ("metadata", some("lock.example"), some("2026"), None),
            ),
            (
                "lock.example-2026-metadata-1.warc.gz",
                ("metadata", some("lock.example"), some("2026"), None),
            ),
            (
                "demo-20261117074142-metadata-1.warc.gz",
                ("metadata", some("demo"), some("20261117074142"), None),
            ),
            (
                "BnF-127.0.0.1-20261117074142-metadata-1.warc.gz",
                ("metadata", some("127.0.0.1"), some("20261117074142"), None),
            ),
            (
                "BnF-12-metadata-1.warc.gz",
                ("metadata", some("12"), None, None),
            ),
            ("site.warc.gz", ("warc", None, None, None)),
        ];
        for (name, expected) in cases {
            let expected = (expected.0.to_owned(), expected.1, expected.2, expected.3);
            assert_eq!(told(name), expected, "{name}");
        }
    }

    #[test]
    fn what_no_pattern_knows_is_held_when_asked() {
        let settings = Settings {
            other_names: OtherNames::Hold,
            ..shipped()
        };
        let names = Names::read(&settings).unwrap();
        assert!(
            names
                .tell("site.warc.gz", &mut parcel())
                .unwrap_err()
                .contains("site.warc.gz")
        );
    }

    #[test]
    fn a_bad_pattern_or_index_name_is_named() {
        let bad = Settings {
            names: vec!["(".into()],
            ..shipped()
        };
        let faults = Names::read(&bad).err().unwrap();
        assert_eq!(faults[0].0, "stage.ingest.names[0]");
        assert!(faults[0].1.starts_with("bad pattern"), "{faults:?}");
        for name in ["current", "../x", "A b"] {
            let bad = Settings {
                collections: vec![HarvestCollection {
                    name: name.into(),
                    harvests: "1".into(),
                }],
                ..shipped()
            };
            let faults = Names::read(&bad).err().unwrap();
            assert_eq!(faults[0].0, "stage.ingest.collections[0].name");
            assert!(faults[0].1.contains(name), "{name}: {faults:?}");
        }
    }

    #[test]
    fn names_that_break_a_line_are_refused() {
        for name in [
            &b"a\nb.warc.gz"[..],
            b"\x1b[2J.warc",
            b"\xff.warc",
            b"a b.warc",
            b"{path}.warc",
            b"-x.warc",
            b"~x.warc",
            "\u{e9}t\u{e9}.warc".as_bytes(),
            &[b'x'; 201],
        ] {
            assert!(problem_of(name).is_some(), "{name:?}");
        }
        let heritrix = b"WEB-20260102030405123-00001-1234~crawler01.example.org~8443.warc.gz";
        assert_eq!(problem_of(heritrix), None);
    }
}
