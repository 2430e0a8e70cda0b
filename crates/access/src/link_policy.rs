//! Which capture a link leads to, as the reader chose it: a word behind the name of the collection, `web~before`.
//!
//! It stands in the address, so every link of a page carries it on, and no cookie has to reach an archived page.

use ecluse_config::AccessPolicy;

/// What separates the word from the name; no collection has one in its name.
const SEPARATOR: char = '~';

/// Which capture a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPolicy {
    /// The one that is nearest in time, of its own harvest if there is one, on the side that is chosen.
    Time(AccessPolicy),
    /// One of the harvest of the page, or none.
    SameHarvest,
}

impl LinkPolicy {
    /// All of them, with the words of addresses and pages.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Time(AccessPolicy::Closest), "closest"),
        (Self::Time(AccessPolicy::Before), "before"),
        (Self::Time(AccessPolicy::After), "after"),
        (Self::SameHarvest, "harvest"),
    ];

    /// Returns how times are chosen.
    pub(crate) fn by_time(self) -> AccessPolicy {
        match self {
            Self::Time(policy) => policy,
            Self::SameHarvest => AccessPolicy::Closest,
        }
    }
}

/// Takes a part of an address into the name of a collection and what the reader chose.
pub(crate) fn split_policy(part: &str) -> (&str, Option<LinkPolicy>) {
    let chosen = part.split_once(SEPARATOR).and_then(|(name, word)| {
        let known = LinkPolicy::ALL
            .into_iter()
            .find(|(_, known)| *known == word);
        known.map(|(policy, _)| (name, Some(policy)))
    });
    chosen.unwrap_or((part, None))
}

/// Returns the part of an address for a collection and a choice.
pub(crate) fn with_policy(collection: &str, word: &str) -> String {
    format!("{collection}{SEPARATOR}{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_and_written() {
        for (policy, word) in LinkPolicy::ALL {
            let part = with_policy("web", word);
            assert_eq!(split_policy(&part), ("web", Some(policy)));
        }
        for none in ["web", "web~", "web~never", ""] {
            assert_eq!(split_policy(none), (none, None));
        }
    }
}
