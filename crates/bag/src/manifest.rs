//! Manifests: a digest and a path a line.

use std::collections::BTreeMap;

use crate::algorithm::DigestAlgorithm;
use crate::declaration::{BagVersion, lines_of, shown};
use crate::fault::{BagFault, BagWarning};
use crate::path::{PAYLOAD, decode, problem_of};

/// Whose digests a manifest lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    Payload,
    Tags,
}

/// The name of a manifest, taken apart.
pub(crate) fn kind_of(name: &str) -> Option<(Listed, &str)> {
    let stem = name.strip_suffix(".txt")?;
    if let Some(algorithm) = stem.strip_prefix("manifest-") {
        return Some((Listed::Payload, algorithm));
    }
    let algorithm = stem.strip_prefix("tagmanifest-")?;
    Some((Listed::Tags, algorithm))
}

/// A manifest that was read.
#[derive(Debug)]
pub(crate) struct DigestList {
    pub(crate) name: String,
    pub(crate) listed: Listed,
    pub(crate) algorithm: DigestAlgorithm,
    /// The digests in lower case, by path.
    pub(crate) digests: BTreeMap<String, String>,
}

/// What was found while reading.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) faults: Vec<BagFault>,
    pub(crate) warnings: Vec<BagWarning>,
}

/// Reads a manifest; what cannot be read of it is a fault, and the rest goes on.
pub(crate) fn parse(
    text: &str,
    name: &str,
    listed: Listed,
    algorithm: DigestAlgorithm,
    version: BagVersion,
    findings: &mut Findings,
) -> DigestList {
    let mut digests = BTreeMap::new();
    for (number, line) in lines_of(text).enumerate() {
        let entry = match entry_of(line, listed, algorithm, version) {
            Ok(entry) => entry,
            Err(what) => {
                findings.faults.push(BagFault::Line {
                    file: name.to_owned(),
                    line: number + 1,
                    what,
                });
                continue;
            }
        };
        entry.warn(name, findings);
        let lower = entry.digest.to_ascii_lowercase();
        let (path, manifest) = (shown(&entry.path), name.to_owned());
        match digests.insert(entry.path, lower.clone()) {
            None => {}
            Some(before) if before == lower && version < BagVersion::V1_0 => {
                let twice = BagWarning::TwiceTheSame { path, manifest };
                findings.warnings.push(twice);
            }
            Some(_) => findings.faults.push(BagFault::Twice { path, manifest }),
        }
    }
    DigestList {
        name: name.to_owned(),
        listed,
        algorithm,
        digests,
    }
}

/// One line.
struct Entry<'a> {
    digest: &'a str,
    path: String,
    has_asterisk: bool,
    has_dot_slash: bool,
}

impl Entry<'_> {
    fn warn(&self, manifest: &str, findings: &mut Findings) {
        let (path, manifest) = (shown(&self.path), manifest.to_owned());
        let has = |is: fn(&u8) -> bool| self.digest.as_bytes().iter().any(is);
        let warning = if self.has_asterisk {
            BagWarning::Asterisk { path, manifest }
        } else if self.has_dot_slash {
            BagWarning::DotSlash { path, manifest }
        } else if has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) {
            BagWarning::MixedCase { path, manifest }
        } else {
            return;
        };
        findings.warnings.push(warning);
    }
}

fn entry_of(
    line: &str,
    listed: Listed,
    algorithm: DigestAlgorithm,
    version: BagVersion,
) -> Result<Entry<'_>, String> {
    let (digest, rest) = line
        .split_once([' ', '\t'])
        .ok_or("there is no space between digest and path")?;
    let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || digest.len() != algorithm.digits() {
        let shown = shown(digest);
        return Err(format!("\"{shown}\" is no {} digest", algorithm.name()));
    }
    let mut path = rest.trim_start_matches([' ', '\t']);
    let has_asterisk = path.starts_with('*');
    path = path.strip_prefix('*').unwrap_or(path);
    let has_dot_slash = path.starts_with("./");
    path = path.strip_prefix("./").unwrap_or(path);
    let path = decode(path, version);
    if let Some(problem) = problem_of(&path) {
        return Err(problem);
    }
    match (listed, path.starts_with(PAYLOAD)) {
        (Listed::Payload, true) | (Listed::Tags, false) => {}
        (Listed::Payload, false) => return Err(format!("\"{}\" is not in data/", shown(&path))),
        (Listed::Tags, true) => return Err(format!("\"{}\" is in data/", shown(&path))),
    }
    if listed == Listed::Tags && matches!(kind_of(&path), Some((Listed::Tags, _))) {
        return Err(format!("\"{}\" is a tag manifest itself", shown(&path)));
    }
    Ok(Entry {
        digest,
        path,
        has_asterisk,
        has_dot_slash,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, version: BagVersion) -> (DigestList, Findings) {
        let mut findings = Findings::default();
        let md5 = DigestAlgorithm::Md5;
        let list = parse(
            line,
            "manifest-md5.txt",
            Listed::Payload,
            md5,
            version,
            &mut findings,
        );
        (list, findings)
    }

    const NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

    #[test]
    fn lines_of_every_tool_are_read() {
        for (line, warnings) in [
            (format!("{NOTHING} data/a b\n"), 0),
            (format!("{NOTHING}  data/a b\r\n"), 0),
            (format!("{}\tdata/a b", NOTHING.to_uppercase()), 0),
            (format!("{NOTHING} *data/a b\n"), 1),
            (format!("{NOTHING} ./data/a b\n"), 1),
            (format!("{}  data/a b\n", NOTHING.replace('d', "D")), 1),
        ] {
            let (list, findings) = read(&line, BagVersion::V1_0);
            assert_eq!(findings.faults, [], "{line}");
            assert_eq!(findings.warnings.len(), warnings, "{line}");
            assert_eq!(list.digests["data/a b"], NOTHING, "{line}");
        }
    }

    #[test]
    fn other_lines_are_faults() {
        for line in [
            String::new() + "\n",
            format!("{NOTHING}\n"),
            format!("{NOTHING}0  data/a\n"),
            format!("{}  data/a\n", &NOTHING[1..]),
            format!("{NOTHING}  bagit.txt\n"),
            format!("{NOTHING}  data/../../a\n"),
            format!("{NOTHING}  /data/a\n"),
            format!("{NOTHING}  data/a\n{NOTHING}  data/a\n"),
        ] {
            let (_, findings) = read(&line, BagVersion::V1_0);
            assert_eq!(findings.faults.len(), 1, "{line:?}");
        }
    }
}
