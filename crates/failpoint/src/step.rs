//! Which step of the protocol a call is part of, told by its paths.

use std::path::Path;

use super::{Call, OTHER};

/// Names the step: by the path a call changes and, for a rename or a link, the one it comes from.
///
/// `None`: it lies outside the work directories.
pub(super) fn step_of(
    call: Call,
    work: &Path,
    path: &Path,
    from: Option<&Path>,
) -> Option<&'static str> {
    let path = names(work, path)?;
    let from = from.and_then(|from| names(work, from)).unwrap_or_default();
    let to: Vec<&str> = path.iter().map(String::as_str).collect();
    let from: Vec<&str> = from.iter().map(String::as_str).collect();
    Some(match call {
        Call::Make => made(&to),
        Call::Rename => renamed(&from, &to),
        Call::Link => linked(&from, &to),
        Call::Remove => removed(&to),
        Call::Sync => match to.as_slice() {
            [_, "claim", _, "out", ..] => "data-durable",
            [_, "receipts", ..] => "receipts-durable",
            _ => OTHER,
        },
        Call::Lock => match to.as_slice() {
            [_, "tmp", _, ".lease"] => "born-locked",
            _ => return None,
        },
    })
}

fn made(path: &[&str]) -> &'static str {
    match path {
        [_, "claim", _, "out", sheet] if sheet.starts_with(".sheet-") => "sheet-written",
        [_, "claim", _, "out", .., "parcel.json" | ".parcel.json"] => "outputs-sealed",
        [_, "claim", _, "out", _, _, ..] => "output-created",
        [_, "claim", _, "adopt", _, "parcel.json"] => "adopt-described",
        _ => OTHER,
    }
}

fn renamed(from: &[&str], to: &[&str]) -> &'static str {
    match (from, to) {
        ([_, "tmp", _], [_, "claim", _]) => "born",
        ([_, "ready", _], [_, "claim", _, "in", _]) => "claimed",
        ([_, "claim", _, "out", _, ".attached", _], _) => "file-attached",
        ([_, "claim", _, "out", _, ".parcel.json"], _) => "manifest-replaced",
        ([_, "claim", _, "out", sheet], [.., "history", _]) if sheet.starts_with(".sheet-") => {
            "history-linked"
        }
        ([_, "claim", _, "out", new], _) if new.starts_with(".why-") => "why-written",
        ([_, "claim", _, "out", new], _) if new.starts_with(".trouble-") => "trouble-written",
        ([_, "claim", _, "out", _, _], [_, "ready", _]) => "output-handed-over",
        ([one, "claim", _, "in", _], [other, "ready", _]) if one == other => "given-back",
        ([_, "claim", _, "in", _], [_, "ready", _]) => "passed-on",
        ([_, "claim", _, "in", _], [_, "held", _]) => "held",
        ([_, "claim", _, "in", _], [_, "deferred", _]) => "deferred",
        ([_, "claim", ..], [_, "claim", _, "out", gone]) if gone.starts_with(".gone-") => {
            "consumed"
        }
        ([_, "deferred", _], [_, "ready", _]) => "undeferred",
        ([_, "drop", _], [_, "claim", _, "adopt", ..]) => "adopt-taken",
        ([_, "claim", _, "adopt", _], [_, "ready", _]) => "adopted",
        ([_, "claim", ..], [_, "reap", ..]) => "reap-taken",
        ([_, "reap", _], [_, "reap", _]) => "reap-stolen",
        ([_, "reap", _, "adopt", ..], _) => "settle-adoption-returned",
        ([one, "reap", _, "in", _], [other, "ready", _]) if one == other => "settle-requeued",
        ([_, "reap", _, "in" | "out", ..], [_, "ready", _]) => "settle-handed-over",
        ([_, "reap", _, "in", _], [_, "held", _]) => "settle-poisoned",
        ([_, "reap", ..], _) => "settle-receipt",
        _ => OTHER,
    }
}

fn linked(from: &[&str], to: &[&str]) -> &'static str {
    match (from, to) {
        ([_, "receipts", ..], [_, "receipts", ..]) => "member-filed",
        (_, [_, "receipts", ..]) => "committed",
        (_, [_, "reap", .., "history", _]) => "settle-receipt",
        (_, [.., "history", _]) => "history-linked",
        (_, [_, "claim", _, "out", _, _, ..]) => "output-created",
        _ => OTHER,
    }
}

fn removed(path: &[&str]) -> &'static str {
    match path {
        [_, "claim", _, "out", sheet] if sheet.starts_with(".sheet-") => "sheet-removed",
        [_, "claim", _, "out", gone] if gone.starts_with(".gone-") => "consumed-removed",
        [_, "claim", _, "out", _] => "outbox-removed",
        [_, "reap", _] => "settle-removed",
        [_, "reap", ..] => "settle-emptied",
        _ => OTHER,
    }
}

/// Returns the names of a path below the work directories, the stage first.
fn names(work: &Path, path: &Path) -> Option<Vec<String>> {
    let below = path.strip_prefix(work).ok()?;
    let names = below.iter().map(|name| name.to_string_lossy().into_owned());
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_failpoint_is_the_step_of_some_call() {
        let calls = [
            ("born-locked", Call::Lock, "", "a/tmp/w/.lease"),
            ("born", Call::Rename, "a/tmp/w", "a/claim/w"),
            ("claimed", Call::Rename, "a/ready/x~0", "a/claim/w/in/x~1"),
            ("output-created", Call::Make, "", "a/claim/w/out/x/y"),
            (
                "output-created",
                Call::Make,
                "",
                "a/claim/w/out/x/.attached/f",
            ),
            (
                "outputs-sealed",
                Call::Make,
                "",
                "a/claim/w/out/x/y/parcel.json",
            ),
            (
                "outputs-sealed",
                Call::Make,
                "",
                "a/claim/w/out/x/.parcel.json",
            ),
            ("sheet-written", Call::Make, "", "a/claim/w/out/.sheet-1"),
            ("data-durable", Call::Sync, "", "a/claim/w/out/.sheet-1"),
            (
                "committed",
                Call::Link,
                "a/claim/w/out/.sheet-1",
                "a/receipts/07/x.json",
            ),
            (
                "member-filed",
                Call::Link,
                "a/receipts/08/b.json",
                "a/receipts/07/x.json",
            ),
            ("receipts-durable", Call::Sync, "", "a/receipts/07"),
            (
                "output-handed-over",
                Call::Rename,
                "a/claim/w/out/x/y",
                "b/ready/y~0",
            ),
            (
                "file-attached",
                Call::Rename,
                "a/claim/w/out/x/.attached/f",
                "a/claim/w/in/x~1/f",
            ),
            (
                "manifest-replaced",
                Call::Rename,
                "a/claim/w/out/x/.parcel.json",
                "a/claim/w/in/x~1/parcel.json",
            ),
            (
                "history-linked",
                Call::Rename,
                "a/claim/w/out/.sheet-1",
                "a/claim/w/in/x~1/history/01-a.json",
            ),
            (
                "history-linked",
                Call::Link,
                "a/receipts/07/x.json",
                "a/claim/w/out/x/y/history/01-a.json",
            ),
            ("passed-on", Call::Rename, "a/claim/w/in/x~1", "b/ready/x~0"),
            (
                "consumed",
                Call::Rename,
                "a/claim/w/in/x~1",
                "a/claim/w/out/.gone-x~1",
            ),
            (
                "consumed-removed",
                Call::Remove,
                "",
                "a/claim/w/out/.gone-x~1",
            ),
            ("outbox-removed", Call::Remove, "", "a/claim/w/out/x"),
            ("sheet-removed", Call::Remove, "", "a/claim/w/out/.sheet-1"),
            (
                "why-written",
                Call::Rename,
                "a/claim/w/out/.why-x",
                "a/claim/w/in/x~1/trouble.json",
            ),
            ("held", Call::Rename, "a/claim/w/in/x~1", "a/held/x~1"),
            (
                "trouble-written",
                Call::Rename,
                "a/claim/w/out/.trouble-x",
                "a/claim/w/in/x~1/trouble.json",
            ),
            (
                "deferred",
                Call::Rename,
                "a/claim/w/in/x~1",
                "a/deferred/7~x~0",
            ),
            (
                "undeferred",
                Call::Rename,
                "a/deferred/7~x~0",
                "a/ready/x~0",
            ),
            (
                "given-back",
                Call::Rename,
                "a/claim/w/in/x~1",
                "a/ready/x~0",
            ),
            (
                "adopt-taken",
                Call::Rename,
                "a/drop/f",
                "a/claim/w/adopt/k/.taken/f",
            ),
            (
                "adopt-described",
                Call::Make,
                "",
                "a/claim/w/adopt/k/parcel.json",
            ),
            ("adopted", Call::Rename, "a/claim/w/adopt/k", "a/ready/x~0"),
            ("reap-taken", Call::Rename, "a/claim/w", "a/reap/w@r"),
            ("reap-stolen", Call::Rename, "a/reap/w@r", "a/reap/w@s"),
            (
                "settle-receipt",
                Call::Rename,
                "a/reap/w@r/out/x/.attached/f",
                "a/reap/w@r/in/x~1/f",
            ),
            (
                "settle-handed-over",
                Call::Rename,
                "a/reap/w@r/in/x~1",
                "b/ready/x~0",
            ),
            (
                "settle-requeued",
                Call::Rename,
                "a/reap/w@r/in/x~1",
                "a/ready/x~1",
            ),
            (
                "settle-poisoned",
                Call::Rename,
                "a/reap/w@r/in/x~1",
                "a/held/x~1",
            ),
            (
                "settle-adoption-returned",
                Call::Rename,
                "a/reap/w@r/adopt/k/.taken/f",
                "a/drop/f",
            ),
            ("settle-emptied", Call::Remove, "", "a/reap/w@r/in"),
            ("settle-removed", Call::Remove, "", "a/reap/w@r"),
            (OTHER, Call::Make, "", "a/tmp/w"),
        ];
        let work = Path::new("/root/work");
        let mut seen = BTreeSet::new();
        for (name, call, from, path) in calls {
            let from = (!from.is_empty()).then(|| work.join(from));
            let step = step_of(call, work, &work.join(path), from.as_deref());
            assert_eq!(step, Some(name), "{call:?} {from:?} {path}");
            seen.insert(name);
        }
        assert_eq!(seen, super::super::ALL.iter().copied().collect());
        let outside = step_of(Call::Make, work, Path::new("/root/near/x"), None);
        assert_eq!(outside, None);
    }
}
