//! Paths in manifests: read, written, and kept inside the bag.

use crate::declaration::{BagVersion, shown};

/// What stands before every path of the payload.
pub(crate) const PAYLOAD: &str = "data/";

/// Returns a path as it stands in a manifest: one line, whatever the name.
pub(crate) fn encode(path: &str) -> String {
    path.replace('%', "%25")
        .replace('\n', "%0A")
        .replace('\r', "%0D")
}

/// Reads a path of a manifest. Only these three are encoded: any other percent sign stands for itself.
pub(crate) fn decode(text: &str, version: BagVersion) -> String {
    let mut path = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        path.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).map(str::to_ascii_uppercase);
        let character = match code.as_deref() {
            Some("0A") => Some('\n'),
            Some("0D") => Some('\r'),
            // The drafts let a percent sign stand for itself.
            Some("25") if version >= BagVersion::V1_0 => Some('%'),
            _ => None,
        };
        path.push(character.unwrap_or('%'));
        rest = &rest[at + if character.is_some() { 3 } else { 1 }..];
    }
    path.push_str(rest);
    path
}

/// Says why a path leads out of the bag, or nowhere in it; nothing when it does neither.
pub(crate) fn problem_of(path: &str) -> Option<String> {
    let what = if path.is_empty() {
        "it names nothing"
    } else if path.starts_with('/') {
        "it is absolute"
    } else if path.starts_with('~') {
        "it begins with a tilde"
    } else if path.contains('\0') {
        "it has a zero byte"
    } else if path.split('/').any(|step| step == "..") {
        "it leads out of the bag"
    } else if path.split('/').any(|step| step.is_empty() || step == ".") {
        "it has an empty step"
    } else {
        return None;
    };
    Some(format!("\"{}\": {what}", shown(path)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRAFT: BagVersion = BagVersion {
        major: 0,
        minor: 97,
    };

    #[test]
    fn percent_signs_of_the_drafts_stand_for_themselves() {
        assert_eq!(decode("data/%7Ea%25%0a", DRAFT), "data/%7Ea%25\n");
        assert_eq!(
            decode("data/%7Ea%25%0a%", BagVersion::V1_0),
            "data/%7Ea%\n%"
        );
        assert_eq!(decode("%é0", BagVersion::V1_0), "%é0");
    }

    #[test]
    fn paths_stay_inside() {
        for bad in [
            "",
            "/a",
            "~/a",
            "~root/a",
            "../a",
            "data/../../a",
            "data//a",
            "data/./a",
            "a\0",
        ] {
            assert!(problem_of(bad).is_some(), "{bad:?}");
        }
        for good in [
            "data/a",
            "data/..a/b..",
            "bagit.txt",
            "data/~a",
            r"data/\..\a",
        ] {
            assert_eq!(problem_of(good), None, "{good:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(path in "\\PC*[%\r\n]?\\PC*") {
            let line = encode(&path);
            prop_assert!(!line.contains(['\r', '\n']));
            prop_assert_eq!(decode(&line, BagVersion::V1_0), path);
        }
    }
}
