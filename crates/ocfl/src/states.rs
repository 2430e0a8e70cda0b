//! An inventory of an earlier version held against that of the object's root: history is never rewritten.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::OcflReport;
use crate::inventory::Inventory;

/// The content paths of each digest.
type PathsOfDigests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn paths_of(inventory: &Inventory) -> PathsOfDigests<'_> {
    let mut paths = PathsOfDigests::new();
    for (path, digest) in &inventory.manifest {
        paths.entry(digest).or_default().insert(path);
    }
    paths
}

/// Tells whether a version is made of the same files in both, whatever digests name them.
fn is_same(
    number: usize,
    (earlier, then): (&Inventory, &PathsOfDigests<'_>),
    (root, now): (&Inventory, &PathsOfDigests<'_>),
) -> bool {
    let (Some(one), Some(other)) = (earlier.states.get(number), root.states.get(number)) else {
        return false;
    };
    let is_subset =
        |one: &String, other: &String| match (then.get(one.as_str()), now.get(other.as_str())) {
            (Some(then), Some(now)) => then.is_subset(now),
            _ => false,
        };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((path, one), (same, other))| path == same && is_subset(one, other))
}

/// Says where an inventory of an earlier version differs from the root's.
pub(crate) fn compare(at: &str, earlier: &Inventory, root: &Inventory, report: &mut OcflReport) {
    if let (Some(one), Some(other)) = (&earlier.id, &root.id)
        && one != other
    {
        report.fault(
            "E037",
            format!("{at}: its id is {one:?}, that of the object {other:?}"),
        );
    }
    if earlier.content_directory != root.content_directory {
        let code = if earlier.says_content_directory == root.says_content_directory {
            "E020"
        } else {
            "E019"
        };
        report.fault(
            code,
            format!("{at}: another contentDirectory than the object's"),
        );
    }
    if earlier.versions.len() >= root.versions.len()
        || !root.versions.starts_with(&earlier.versions)
    {
        return report.fault(
            "E066",
            format!("{at}: its versions are not those of the object before it"),
        );
    }
    let (then, now) = (paths_of(earlier), paths_of(root));
    for (number, name) in earlier.versions.iter().enumerate() {
        if !is_same(number, (earlier, &then), (root, &now)) {
            report.fault(
                "E066",
                format!("{at}: the state of {name} is another than in the object's inventory"),
            );
        }
        if earlier.notes.get(number) != root.notes.get(number) {
            report.warn("W011", format!("{at}: time, message or user of {name} are others than in the object's inventory"));
        }
    }
}
