//! The key of a name: its labels from last to first.
//!
//! `www.exemple.fr` has the key `fr,exemple,www`, the host part of its SURT. A comma is below every byte that a name may hold, so
//! in byte order a domain comes just before the names under it, and nothing comes between them.

use memchr::memrchr;

/// Appends the key of a name.
pub fn write_key(name: &[u8], key: &mut Vec<u8>) {
    key.reserve(name.len());
    let mut rest = name;
    while let Some(dot) = memrchr(b'.', rest) {
        key.extend_from_slice(&rest[dot + 1..]);
        key.push(b',');
        rest = &rest[..dot];
    }
    key.extend_from_slice(rest);
}

/// Returns the key of a name.
pub fn key_of(name: &str) -> String {
    let mut labels: Vec<&str> = name.split('.').collect();
    labels.reverse();
    labels.join(",")
}

/// Appends the name of a key.
pub fn name_of(key: &[u8], name: &mut Vec<u8>) {
    name.reserve(key.len());
    let mut rest = key;
    while let Some(comma) = memrchr(b',', rest) {
        name.extend_from_slice(&rest[comma + 1..]);
        name.push(b'.');
        rest = &rest[..comma];
    }
    name.extend_from_slice(rest);
}

/// Writes the name of a key over `name`.
pub fn name_text_of(key: &str, name: &mut String) {
    name.clear();
    let mut rest = key;
    while let Some(comma) = memrchr(b',', rest.as_bytes()) {
        name.push_str(&rest[comma + 1..]);
        name.push('.');
        rest = &rest[..comma];
    }
    name.push_str(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_and_its_key_tell_the_same(name in "[a-z0-9_-]{1,5}(\\.[a-z0-9_-]{1,5}){0,4}") {
            let (mut key, mut back) = (Vec::new(), Vec::new());
            write_key(name.as_bytes(), &mut key);
            prop_assert_eq!(String::from_utf8(key.clone()).unwrap(), key_of(&name));
            name_of(&key, &mut back);
            prop_assert_eq!(back, name.as_bytes());
            let mut text = "before".to_owned();
            name_text_of(&key_of(&name), &mut text);
            prop_assert_eq!(text, name);
        }

        #[test]
        fn nothing_comes_between_a_domain_and_its_names(
            domain in "[a-z0-9_-]{1,3}(\\.[a-z0-9_-]{1,3}){0,2}",
            label in "[a-z0-9_-]{1,3}",
            other in "[a-z0-9_-]{1,3}(\\.[a-z0-9_-]{1,3}){0,3}",
        ) {
            let below = format!("{label}.{domain}");
            let (top, low, other_key) = (key_of(&domain), key_of(&below), key_of(&other));
            let is_inside = other == domain || other.ends_with(&format!(".{domain}"));
            prop_assert!(is_inside || !(top < other_key && other_key < low), "{} {} {}", top, other_key, low);
        }
    }
}
