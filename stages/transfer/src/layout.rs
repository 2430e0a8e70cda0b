//! The folder of a file in its location: `""`, `"{job}"`, `"{harvest}/{job}"`.

use ecluse_stage::Failure;
use serde::Deserialize;

/// What stands for a value a parcel does not have.
const UNKNOWN: &str = "unknown";

/// A pattern of folders; empty for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FolderLayout(String);

/// What the pattern's words stand for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Words<'a> {
    /// `{job}`.
    pub job: Option<&'a str>,
    /// `{harvest}`.
    pub harvest: Option<&'a str>,
    /// `{collection}`.
    pub collection: Option<&'a str>,
}

impl FolderLayout {
    /// Returns the folder of a file.
    ///
    /// # Errors
    /// Holds a parcel whose job or harvest cannot name a folder.
    pub fn folder(&self, words: Words<'_>) -> Result<String, Failure> {
        let mut folder = self.0.clone();
        for (word, value) in [
            ("{job}", words.job),
            ("{harvest}", words.harvest),
            ("{collection}", words.collection),
        ] {
            let value = value.unwrap_or(UNKNOWN);
            if folder.contains(word) && !is_folder_name(value) {
                return Err(Failure::hold(format!("{value:?} cannot name a folder")));
            }
            folder = folder.replace(word, value);
        }
        Ok(folder)
    }
}

impl TryFrom<String> for FolderLayout {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut plain = text.clone();
        for word in ["{job}", "{harvest}", "{collection}"] {
            plain = plain.replace(word, "x");
        }
        if plain.is_empty() || plain.split('/').all(is_folder_name) {
            return Ok(Self(text));
        }
        Err(format!(
            "{text:?} is no layout; write folders of letters, digits, {{job}}, {{harvest}} and \
             {{collection}}, such as \"{{harvest}}/{{job}}\""
        ))
    }
}

fn is_folder_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_of_what_is_known() {
        let layout = FolderLayout::try_from("{harvest}/job-{job}".to_owned()).unwrap();
        let words = Words {
            job: Some("42"),
            ..Words::default()
        };
        assert_eq!(layout.folder(words).unwrap(), "unknown/job-42");
        assert_eq!(FolderLayout::default().folder(words).unwrap(), "");
    }

    #[test]
    fn nothing_leads_out() {
        for text in [
            "/abs", "..", "a/../b", "{job}/", "{jobs}", "a b", ".hidden", "a//b",
        ] {
            assert!(FolderLayout::try_from(text.to_owned()).is_err(), "{text}");
        }
        let layout = FolderLayout::try_from("{job}".to_owned()).unwrap();
        for job in ["..", "", "a/b", ".x", "a\nb", "\u{1b}[2J"] {
            let job = Some(job);
            let words = Words {
                job,
                ..Words::default()
            };
            assert!(layout.folder(words).is_err(), "{job:?}");
        }
    }
}
