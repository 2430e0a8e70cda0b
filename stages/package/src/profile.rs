//! Profiles: which documents a package has, as templates in files.
//!
//! A profile is a directory with `profile.toml` and templates; those named `eark` and `spar` are built in. What the templates may
//! say stands in `docs/formats/package.md`. Whatever a value holds, what is rendered stays well-formed: every value is
//! escaped as it is written, and characters that XML does not know become U+FFFD.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Output, State, UndefinedBehavior, Value};
use serde::Deserialize;

/// The files of a profile, by name.
type Texts = &'static [(&'static str, &'static str)];

/// The built-in profiles.
const BUILT_IN: [(&str, Texts); 2] = [("eark", EARK), ("spar", SPAR)];

const SPAR: Texts = &[
    (
        "profile.toml",
        include_str!("../profiles/spar/profile.toml"),
    ),
    ("mets.xml", include_str!("../profiles/spar/mets.xml")),
];

const EARK: Texts = &[
    (
        "profile.toml",
        include_str!("../profiles/eark/profile.toml"),
    ),
    ("README.txt", include_str!("../profiles/eark/README.txt")),
    (
        "statistics.txt",
        include_str!("../profiles/eark/statistics.txt"),
    ),
    ("dc.xml", include_str!("../profiles/eark/dc.xml")),
    (
        "harvestDefinition.xml",
        include_str!("../profiles/eark/harvestDefinition.xml"),
    ),
    (
        "harvestDefinition.xsd",
        include_str!("../profiles/eark/harvestDefinition.xsd"),
    ),
    (
        "entities.xml",
        include_str!("../profiles/eark/entities.xml"),
    ),
    ("premis.xml", include_str!("../profiles/eark/premis.xml")),
    (
        "representation.xml",
        include_str!("../profiles/eark/representation.xml"),
    ),
    ("mets.xml", include_str!("../profiles/eark/mets.xml")),
];

/// What `profile.toml` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ProfileFile {
    archive: String,
    file: Vec<DocumentFile>,
}

/// A document of the package, in the order in which they are written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DocumentFile {
    path: String,
    template: String,
    media_type: String,
    /// It is written as it stands.
    #[serde(default)]
    verbatim: bool,
    /// One for each archive file; `{name}` in its path is that file's name.
    #[serde(default)]
    each: bool,
}

/// A document that is to be written.
pub(crate) struct Document<'a> {
    /// Its path below `data/`.
    pub(crate) path: String,
    pub(crate) media_type: &'a str,
    file: &'a DocumentFile,
    /// Which archive file it is of, by its place in the list.
    of: Option<usize>,
}

/// A profile, ready to be used.
pub(crate) struct Profile {
    environment: Environment<'static>,
    /// Where the archive files go, below `data/`.
    pub(crate) archive: String,
    documents: Vec<DocumentFile>,
    texts: BTreeMap<String, String>,
}

impl Profile {
    /// Reads a profile: the built-in one by its name, any other from its directory.
    pub(crate) fn load(name: &str, root: &Path) -> Result<Self, String> {
        if let Some((_, texts)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            let texts = texts.iter();
            return Self::of(
                texts
                    .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                    .collect(),
            );
        }
        let directory = root.join(name);
        let at =
            |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", directory.display());
        let mut texts = BTreeMap::new();
        for entry in fs::read_dir(&directory).map_err(|error| at(&error))? {
            let path = entry.map_err(|error| at(&error))?.path();
            if !path.is_file() {
                continue;
            }
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            texts.insert(name.into_owned(), text);
        }
        Self::of(texts)
    }

    fn of(texts: BTreeMap<String, String>) -> Result<Self, String> {
        let text = texts.get("profile.toml").ok_or("it has no profile.toml")?;
        let profile: ProfileFile =
            toml::from_str(text).map_err(|error| format!("profile.toml: {}", error.message()))?;
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|name| match name.rsplit_once('.') {
            Some((_, "txt")) => AutoEscape::None,
            _ => AutoEscape::Html,
        });
        environment.set_formatter(write_escaped);
        let mut is_first = std::collections::BTreeSet::new();
        for document in &profile.file {
            must_be_inside(&document.path)?;
            if !is_first.insert(&document.path) {
                return Err(format!(
                    "profile.toml: two documents at {:?}",
                    document.path
                ));
            }
            if document.each != document.path.contains("{name}") {
                let path = &document.path;
                return Err(format!(
                    "profile.toml: {path:?}: `each` and {{name}} go together"
                ));
            }
            let template = texts.get(&document.template);
            let template = template.ok_or_else(|| format!("it has no {}", document.template))?;
            if !document.verbatim {
                environment
                    .add_template_owned(document.template.clone(), template.clone())
                    .map_err(|error| format!("{}: {error:#}", document.template))?;
            }
        }
        must_be_inside(&profile.archive)?;
        Ok(Self {
            environment,
            archive: profile.archive,
            documents: profile.file,
            texts,
        })
    }

    /// Returns the documents of a package with these archive files, in the order in which they are written.
    pub(crate) fn documents<'a>(&'a self, names: &[&str]) -> Vec<Document<'a>> {
        let mut documents = Vec::new();
        for file in &self.documents {
            let one = |path: String, of: Option<usize>| Document {
                path,
                media_type: &file.media_type,
                file,
                of,
            };
            if file.each {
                let names = names.iter().enumerate();
                documents.extend(
                    names.map(|(at, name)| one(file.path.replace("{name}", name), Some(at))),
                );
            } else {
                documents.push(one(file.path.clone(), None));
            }
        }
        documents
    }

    /// Renders a document from what is known of the package; `file` is the archive file it is of, if it is of one.
    pub(crate) fn render(
        &self,
        document: &Document<'_>,
        facts: &Value,
        made: &Value,
    ) -> Result<String, String> {
        let name = &document.file.template;
        if document.file.verbatim {
            return Ok(self.texts[name].clone());
        }
        let at = |error: minijinja::Error| format!("{name}: {error:#}");
        let file = match document.of {
            Some(number) => facts
                .get_attr("files")
                .and_then(|files| files.get_item(&Value::from(number)))
                .map_err(at)?,
            None => Value::from(()),
        };
        let template = self.environment.get_template(name).map_err(at)?;
        let context = minijinja::context! { made => made, file => file, ..facts.clone() };
        template.render(context).map_err(at)
    }
}

/// A path of a profile stays below `data/`.
fn must_be_inside(path: &str) -> Result<(), String> {
    let is_plain = |step: &str| !step.is_empty() && step != "." && step != "..";
    match path.split('/').all(is_plain) {
        true => Ok(()),
        false => Err(format!("profile.toml: {path:?} is no path in a package")),
    }
}

/// Writes a value so that nothing in it is taken for markup.
fn write_escaped(
    out: &mut Output<'_>,
    state: &State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    let kind = value.kind();
    if matches!(kind, ValueKind::Undefined | ValueKind::None) {
        return minijinja::escape_formatter(out, state, value);
    }
    if value.is_safe() {
        // The output of a macro of the template, which has been through here.
        return write!(out, "{value}").map_err(minijinja::Error::from);
    }
    let is_xml = state.auto_escape() != AutoEscape::None;
    let text = value.to_string();
    let escaped = match is_xml {
        true => escape(&text),
        false => plain(&text),
    };
    out.write_str(&escaped).map_err(minijinja::Error::from)
}

/// Returns a text as XML may hold it, in an element and in an attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // An attribute keeps these only so.
            '\t' | '\n' | '\r' => escaped.push_str(&format!("&#{};", character as u32)),
            _ if is_xml(character) => escaped.push(character),
            _ => escaped.push(char::REPLACEMENT_CHARACTER),
        }
    }
    escaped
}

/// Returns a text in one line.
fn plain(text: &str) -> String {
    let whole = |character: char| match character.is_control() {
        true => ' ',
        false => character,
    };
    text.chars().map(whole).collect()
}

/// The characters of XML 1.0, section 2.2; those of C1 are allowed and meant by nobody.
fn is_xml(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_built_in_profiles_are_sound() {
        let profile = Profile::load("eark", Path::new("/")).unwrap();
        let paths: Vec<String> = profile
            .documents(&["a"])
            .into_iter()
            .map(|d| d.path)
            .collect();
        assert_eq!(paths.last().map(String::as_str), Some("METS.xml"));
        let profile = Profile::load("spar", Path::new("/")).unwrap();
        let paths = profile.documents(&["a", "b"]).into_iter();
        let paths: Vec<String> = paths.map(|document| document.path).collect();
        assert_eq!(paths, ["a.mets.xml", "b.mets.xml"]);
    }

    #[test]
    fn a_profile_that_leads_out_or_is_broken_is_refused() {
        let of = |toml: &str| {
            let texts = [
                ("profile.toml", toml),
                ("a.xml", "<a>{{ job.name }}</a>"),
                ("b.xml", "{% if %}"),
            ];
            let texts = texts.map(|(name, text)| (name.to_owned(), text.to_owned()));
            Profile::of(BTreeMap::from(texts)).map(drop)
        };
        let file = |path: &str, template: &str| {
            format!(
                "archive = 'x'\n[[file]]\npath = '{path}'\ntemplate = '{template}'\nmedia-type = 'text/xml'\n"
            )
        };
        assert_eq!(of(&file("a/b.xml", "a.xml")), Ok(()));
        for (toml, words) in [
            (file("../b.xml", "a.xml"), "no path in a package"),
            (file("/b.xml", "a.xml"), "no path in a package"),
            (file("b.xml", "none.xml"), "it has no none.xml"),
            (file("b.xml", "b.xml"), "b.xml: "),
            (file("{name}.xml", "a.xml"), "go together"),
            (
                "archive = '..'\nfile = []".to_owned(),
                "no path in a package",
            ),
            (
                "archive = 'x'\nfile = []\nmore = 1".to_owned(),
                "unknown field",
            ),
        ] {
            let error = of(&toml).unwrap_err();
            assert!(error.contains(words), "{toml}: {error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_taken_for_markup(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            prop_assert!(escaped.chars().all(is_xml));
        }
    }
}
