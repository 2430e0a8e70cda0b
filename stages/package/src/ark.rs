//! ARK identifiers, and the check character of NOID.

use std::fmt;

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The letters and digits of an ARK's name: none that can be taken for another, none that makes a word.
const ALPHABET: &[u8; 29] = b"0123456789bcdfghjkmnpqrstvwxz";
/// How many of them a minted name has: two of a million are the same once in 400 archives.
const MINTED: usize = 10;

/// What the check character is computed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum CheckZone {
    /// The NAAN and the name, as NOID does.
    #[serde(rename = "naan/name")]
    NaanAndName,
    /// The name alone, as the BnF does.
    #[serde(rename = "name")]
    Name,
}

/// Who gives identifiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Minter {
    pub(crate) naan: String,
    pub(crate) shoulder: String,
    pub(crate) zone: CheckZone,
}

/// An identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ark {
    /// The authority.
    pub naan: String,
    /// The name, without hyphens.
    pub name: String,
}

impl Minter {
    /// Mints the identifier of a thing: the same for the same thing, whenever it is asked for.
    pub(crate) fn mint(&self, kind: &str, thing: &str) -> Ark {
        let mut hash = Sha256::new();
        hash.update(kind.as_bytes());
        hash.update([0]);
        hash.update(thing.as_bytes());
        let digest = hash.finalize();
        // 128 bits for ten characters of 29: every character is as likely as any other, nearly.
        let mut number = digest[..16]
            .iter()
            .fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
        let mut name = self.shoulder.clone();
        for _ in 0..MINTED {
            name.push(char::from(ALPHABET[(number % 29) as usize]));
            number /= 29;
        }
        name.push(check_character(&zone_text(self.zone, &self.naan, &name)));
        Ark {
            naan: self.naan.clone(),
            name,
        }
    }
}

impl Ark {
    /// Reads `ark:/NAAN/NAME` or `ark:NAAN/NAME`; hyphens mean nothing. `None` when it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text
            .get(..4)
            .filter(|label| label.eq_ignore_ascii_case("ark:"));
        let rest = rest.and_then(|_| text.get(4..))?;
        let (naan, name) = rest.strip_prefix('/').unwrap_or(rest).split_once('/')?;
        let name: String = name.chars().filter(|c| *c != '-').collect();
        let is_naan = naan.len() >= 5 && naan.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
        (is_naan && is_name).then(|| Self {
            naan: naan.to_owned(),
            name,
        })
    }

    /// Tells whether the last character is the check character of the others. One of a stranger need not be.
    #[must_use]
    pub fn has_check(&self, zone: CheckZone) -> bool {
        let Some((at, last)) = self.name.char_indices().next_back() else {
            return false;
        };
        check_character(&zone_text(zone, &self.naan, &self.name[..at])) == last
    }
}

impl fmt::Display for Ark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ark:/{}/{}", self.naan, self.name)
    }
}

fn zone_text(zone: CheckZone, naan: &str, name: &str) -> String {
    match zone {
        CheckZone::NaanAndName => format!("{naan}/{name}"),
        CheckZone::Name => name.to_owned(),
    }
}

/// Sums position times ordinal; a character outside the alphabet counts nothing and takes its place.
fn check_character(text: &str) -> char {
    let ordinal = |character: char| {
        let mut letters = ALPHABET.iter();
        letters.position(|letter| char::from(*letter) == character)
    };
    let terms = text.chars().enumerate();
    let sum: usize = terms
        .map(|(at, character)| (at + 1) * ordinal(character).unwrap_or(0))
        .sum();
    char::from(ALPHABET[sum % ALPHABET.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_identifiers_have_their_check_character() {
        // The example of the NOID manual, and four of the BnF, which leaves the NAAN out.
        let noid = Ark::parse("ark:/13030/xf93gt2q").unwrap();
        assert!(noid.has_check(CheckZone::NaanAndName));
        for name in [
            "bpt6k206840w",
            "cb316013536",
            "btv1b8449691v",
            "bpt6k5738219s",
        ] {
            let ark = Ark::parse(&format!("ark:12148/{name}")).unwrap();
            assert!(ark.has_check(CheckZone::Name), "{ark}");
            assert!(!ark.has_check(CheckZone::NaanAndName), "{ark}");
        }
    }

    /// Good and bad ones for both zones, as a list of others has them.
    #[test]
    fn the_vectors_of_others_are_judged_as_they_say() {
        let Some(list) = ecluse_peers::preserve("ark-noid/ncda_vectors.tsv") else {
            return;
        };
        let text = std::fs::read_to_string(list).unwrap();
        let mut count = 0;
        for line in text.lines().skip(1) {
            let mut fields = line.split('\t');
            let mut field = || fields.next().unwrap();
            let (ark, zone, expected) = (field(), field(), field());
            let zone = match zone {
                "name" => CheckZone::Name,
                "naan/name" => CheckZone::NaanAndName,
                other => panic!("{other}"),
            };
            let ark = Ark::parse(&format!("ark:/{ark}")).unwrap();
            assert_eq!(ark.has_check(zone), expected == "valid", "{line}");
            count += 1;
        }
        assert_eq!(count, 609);
    }

    #[test]
    fn both_forms_are_read_and_others_are_not() {
        let ark = Ark::parse("ark:/99999/fk4-ab-c").unwrap();
        assert_eq!(ark, Ark::parse("ARK:99999/fk4abc").unwrap());
        assert_eq!(ark.to_string(), "ark:/99999/fk4abc");
        for bad in [
            "",
            "ark:",
            "ark:/99999",
            "ark:/99999/",
            "ark:/9/x",
            "urn:99999/x",
            "ark:/99999/a b",
        ] {
            assert_eq!(Ark::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_minted_one_is_the_same_again_and_any_slip_is_noticed() {
        for zone in [CheckZone::NaanAndName, CheckZone::Name] {
            let minter = Minter {
                naan: "99999".into(),
                shoulder: "fk4".into(),
                zone,
            };
            let ark = minter.mint("job", "17-4");
            assert_eq!(ark, minter.mint("job", "17-4"));
            assert_ne!(ark, minter.mint("file", "17-4"));
            assert!(ark.has_check(zone));
            let bytes = ark.name.as_bytes();
            for at in 0..bytes.len() {
                for letter in ALPHABET {
                    let mut slip = bytes.to_vec();
                    slip[at] = *letter;
                    let name = String::from_utf8(slip).unwrap();
                    let is_same = name == ark.name;
                    let slip = Ark {
                        name,
                        ..ark.clone()
                    };
                    assert_eq!(slip.has_check(zone), is_same, "{slip}");
                }
                if at > 0 && bytes[at] != bytes[at - 1] {
                    let mut slip = bytes.to_vec();
                    slip.swap(at, at - 1);
                    let name = String::from_utf8(slip).unwrap();
                    assert!(
                        !Ark {
                            name,
                            ..ark.clone()
                        }
                        .has_check(zone)
                    );
                }
            }
        }
    }
}
