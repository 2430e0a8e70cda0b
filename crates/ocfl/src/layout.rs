//! Where an object lies in a storage root: extension 0003, by the digest of its identifier and then by the identifier.
//!
//! Of the layouts that are registered, this is one that both ocfl-py and rocfl know, and a person reads the identifier in it.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The name of the extension.
pub const LAYOUT: &str = "0003-hash-and-id-n-tuple-storage-layout";

/// Three directories of three digits each.
const TUPLES: usize = 3;
/// A name that is longer is cut, and the digest follows.
const NAME: usize = 100;

/// Returns the path of an object below its storage root.
#[must_use]
pub fn object_path(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut path = String::new();
    for number in 0..TUPLES {
        path.push_str(&digest[number * 3..number * 3 + 3]);
        path.push('/');
    }
    let mut name = String::new();
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").expect("a String takes everything");
        }
    }
    match name.get(..NAME) {
        Some(begin) if name.len() > NAME => format!("{path}{begin}-{digest}"),
        _ => path + &name,
    }
}

/// What the layout is told, in its `config.json`.
pub(crate) fn config() -> serde_json::Value {
    serde_json::json!({
        "extensionName": LAYOUT,
        "digestAlgorithm": "sha256",
        "tupleSize": 3,
        "numberOfTuples": TUPLES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the extension's own page.
    #[test]
    fn objects_lie_where_the_extension_has_them() {
        assert_eq!(object_path("object-01"), "3c0/ff4/240/object-01");
        assert_eq!(
            object_path("..hor/rib:le-$id"),
            "487/326/d8c/%2e%2ehor%2frib%3ale-%24id"
        );
        let long = "abcdefghij".repeat(10) + "a";
        let path = object_path(&long);
        let begin = &long[..100];
        let digest = "5cc73e648fbcff136510e330871180922ddacf193b68fdeff855683a01464220";
        assert_eq!(path, format!("5cc/73e/648/{begin}-{digest}"));
    }
}
