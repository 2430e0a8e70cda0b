//! A source: one list of the library's, what it is called, and how its lines are read.

use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

/// The sidecar of a list in a parcel.
pub(crate) const SIDECAR: &str = "source.toml";
/// What the sidecar of a list in a directory ends in.
pub(crate) const SIDECAR_END: &str = ".source.toml";
/// The longest name of a source.
const NAME_BYTES: usize = 40;
/// No sidecar is longer.
pub(crate) const SIDECAR_BYTES: u64 = 64 << 10;

/// Where a list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceKind {
    /// Librarians chose each.
    Selection,
    /// The list of a registry.
    Registry,
    /// The list of a registrar.
    Registrar,
    /// Another workflow of the library.
    Workflow,
    /// An earlier register.
    Register,
    /// Names that others redirect to.
    Redirects,
    /// Anything else.
    Other,
}

impl SourceKind {
    const ALL: [Self; 7] = [
        Self::Selection,
        Self::Registry,
        Self::Registrar,
        Self::Workflow,
        Self::Register,
        Self::Redirects,
        Self::Other,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Selection => "selection",
            Self::Registry => "registry",
            Self::Registrar => "registrar",
            Self::Workflow => "workflow",
            Self::Register => "register",
            Self::Redirects => "redirects",
            Self::Other => "other",
        }
    }

    fn of_directory(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|kind| kind.word() == name);
        found.unwrap_or(Self::Other)
    }

    /// Tells whether its URLs are worth keeping, where nobody says otherwise.
    fn has_seeds(self) -> bool {
        matches!(self, Self::Selection | Self::Workflow)
    }
}

/// What a source is, and how its list is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceList {
    /// What the source is called.
    pub(crate) name: String,
    /// Its sidecar says so.
    #[serde(default)]
    pub(crate) is_named: bool,
    pub(crate) kind: SourceKind,
    /// The heading of the column to take, in CSV.
    pub(crate) column: Option<String>,
    /// What is between columns; none where the heading tells.
    pub(crate) separator: Option<char>,
    /// It is CSV.
    pub(crate) is_csv: bool,
    /// URLs with a path are kept.
    pub(crate) urls: bool,
    /// The sidecar says whether the list is all that the source has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<bool>,
}

/// What a sidecar may say.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Sidecar {
    name: Option<String>,
    kind: Option<SourceKind>,
    column: Option<String>,
    separator: Option<char>,
    urls: Option<bool>,
    whole: Option<bool>,
}

impl SourceList {
    /// Returns what a list is by its name, the directory it lies in, and its sidecar.
    pub(crate) fn of(file: &str, directory: &str, sidecar: Option<&str>) -> Result<Self, String> {
        let said: Sidecar = match sidecar {
            Some(text) => toml::from_str(text)
                .map_err(|error| format!("the sidecar of {file}: {}", error.message()))?,
            None => Sidecar::default(),
        };
        let is_named = said.name.is_some();
        let name = match said.name {
            Some(name) if is_name(&name) => name,
            Some(name) => {
                return Err(format!(
                    "the sidecar of {file}: {name:?} cannot name a source: a-z 0-9 and -, at most {NAME_BYTES}"
                ));
            }
            None => name_of(file),
        };
        if said
            .separator
            .is_some_and(|c| !c.is_ascii() || matches!(c, '"' | '\n' | '\r'))
        {
            return Err(format!(
                "the sidecar of {file}: the separator is one ASCII character"
            ));
        }
        let kind = said
            .kind
            .unwrap_or_else(|| SourceKind::of_directory(directory));
        Ok(Self {
            name,
            is_named,
            kind,
            is_csv: said.column.is_some() || said.separator.is_some() || has_csv_name(file),
            column: said.column,
            separator: said.separator,
            urls: said.urls.unwrap_or(kind.has_seeds()),
            whole: said.whole,
        })
    }

    /// Tells whether the list, with the others of its name, is all that the source has. What the sidecar says counts; else one
    /// that stands in the sources' directory is, unless each list of its kind is a piece.
    pub(crate) fn is_whole(&self, is_standing: bool) -> bool {
        let by_place = is_standing && self.kind != SourceKind::Redirects;
        self.whole.unwrap_or(by_place)
    }
}

fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_fit)
}

/// Returns the name of a source by that of its file: all up to the first dot.
pub(crate) fn name_of(file: &str) -> String {
    let stem = file
        .split('.')
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = stem.chars().take(NAME_BYTES).map(fit).collect();
    if name.is_empty() {
        "source".to_owned()
    } else {
        name
    }
}

fn has_csv_name(file: &str) -> bool {
    let file = file.to_ascii_lowercase();
    let file = file
        .strip_suffix(".gz")
        .or(file.strip_suffix(".zst"))
        .unwrap_or(&file);
    [".csv", ".tsv"].iter().any(|end| file.ends_with(end))
}

/// Opens a list: gzip, zstd or plain, by its first bytes.
///
/// # Errors
/// When it cannot be read, or is UTF-16, which would be rejected line by line.
pub(crate) fn unpacked(mut source: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut head = [0; 4];
    let mut known = 0;
    while known < head.len() {
        match source.read(&mut head[known..]) {
            Ok(0) => break,
            Ok(read) => known += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let whole = io::Cursor::new(head[..known].to_vec()).chain(source);
    match &head[..known] {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            256 << 10,
            whole,
        )))),
        [0x28, 0xb5, 0x2f, 0xfd] => Ok(Box::new(zstd::Decoder::new(whole)?)),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
        )),
        _ => Ok(Box::new(whole)),
    }
}

/// Returns the last two parts of a path as text: the directory and the file.
pub(crate) fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let directory = path.parent().and_then(Path::file_name);
    (text(directory), text(path.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_by_its_file_its_directory_and_its_sidecar() {
        let plain = SourceList::of("Afnic.2026.txt.gz", "registry", None).unwrap();
        assert_eq!(
            (plain.name.as_str(), plain.kind, plain.is_csv, plain.urls),
            ("afnic", SourceKind::Registry, false, false)
        );
        let table = SourceList::of("bcweb.csv", "selection", None).unwrap();
        assert!(table.is_csv && table.urls && table.column.is_none());
        let said = "name = \"librarians\"\nkind = \"selection\"\ncolumn = \"URL\"\nseparator = \";\"\nurls = false";
        let said = SourceList::of("x", "anywhere", Some(said)).unwrap();
        assert_eq!(
            (said.name.as_str(), said.kind, said.separator, said.urls),
            ("librarians", SourceKind::Selection, Some(';'), false)
        );
        assert!(plain.is_whole(true) && !plain.is_whole(false));
        let whole = SourceList::of("x", "", Some("whole = true")).unwrap();
        let piece = SourceList::of("x", "redirects", None).unwrap();
        assert!(whole.is_whole(false) && !piece.is_whole(true));
        assert_eq!(SourceList::of("été", "", None).unwrap().name, "-t-");
        assert_eq!(SourceList::of("...", "", None).unwrap().name, "source");
        for bad in [
            "name = \"A b\"",
            "kind = \"sort\"",
            "colum = \"x\"",
            "separator = \"\\n\"",
            "name =",
        ] {
            assert!(SourceList::of("x", "", Some(bad)).is_err(), "{bad}");
        }
    }
}
