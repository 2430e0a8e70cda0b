//! What is different between two orders, for the log of a running job.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use toml::Value;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of the key.
    pub key: String,
    /// What happened to it.
    pub what: Changed,
}

/// What happened to a key. Values are as TOML writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It has another value.
    Replaced {
        /// The old one.
        old: String,
        /// The new one.
        new: String,
    },
    /// It was not set before; or an item of a list that was not in it.
    Added(String),
    /// It is no longer set; or an item of a list that is no longer in it.
    Removed(String),
    /// The items of a list are the same in another order.
    Reordered,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.what {
            Changed::Replaced { old, new } => write!(f, "{key}: {old} is now {new}"),
            Changed::Added(item) => write!(f, "{key}: added {item}"),
            Changed::Removed(item) => write!(f, "{key}: removed {item}"),
            Changed::Reordered => write!(f, "{key}: the same in another order"),
        }
    }
}

/// Returns every difference between two orders, or parts of orders, below `root`.
///
/// # Panics
///
/// When a value cannot be written as TOML; the orders of this crate can.
pub fn changes<Part: Serialize>(root: &str, old: &Part, new: &Part) -> Vec<Change> {
    let tree = |part: &Part| Value::try_from(part).expect("orders are plain TOML");
    let mut found = Vec::new();
    compare(root, Some(&tree(old)), Some(&tree(new)), &mut found);
    found
}

fn compare(key: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Change>) {
    let mut add = |what| {
        found.push(Change {
            key: key.to_owned(),
            what,
        });
    };
    match (old, new) {
        (Some(Value::Table(old)), Some(Value::Table(new))) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in keys {
                let below = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                compare(&below, old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old != new => {
            let before = found.len();
            let mut left: Vec<&Value> = old.iter().collect();
            let mut added = Vec::new();
            for item in new {
                match left.iter().position(|kept| *kept == item) {
                    Some(at) => drop(left.remove(at)),
                    None => added.push(item),
                }
            }
            let changed = |what| Change {
                key: key.to_owned(),
                what,
            };
            found.extend(
                left.iter()
                    .map(|item| changed(Changed::Removed(item.to_string()))),
            );
            found.extend(
                added
                    .iter()
                    .map(|item| changed(Changed::Added(item.to_string()))),
            );
            if found.len() == before {
                found.push(changed(Changed::Reordered));
            }
        }
        (Some(old), Some(new)) if old != new => add(Changed::Replaced {
            old: old.to_string(),
            new: new.to_string(),
        }),
        (None, Some(new)) => add(Changed::Added(new.to_string())),
        (Some(old), None) => add(Changed::Removed(old.to_string())),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told_once() {
        let parse = |text: &str| -> toml::Table { text.parse().unwrap() };
        let old = parse(
            "hops = 20\nsame = 1\nlist = ['a', 'b', 'a']\nsort = [1, 2]\n[in]\ngone = true\nx = 'y'\n",
        );
        let new = parse(
            "hops = 5\nsame = 1\nlist = ['b', 'a', 'c']\nsort = [2, 1]\nnew = 3\n[in]\nx = 'y'\n",
        );
        let found: Vec<String> = changes("scope", &old, &new)
            .iter()
            .map(Change::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "scope.hops: 20 is now 5",
                "scope.in.gone: removed true",
                "scope.list: removed \"a\"",
                "scope.list: added \"c\"",
                "scope.new: added 3",
                "scope.sort: the same in another order",
            ]
        );
        assert_eq!(changes("", &old, &old), []);
    }
}
