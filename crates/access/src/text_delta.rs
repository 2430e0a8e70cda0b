//! What changed between two texts, line by line, and within a line word by word.
//!
//! The work is bounded in time: texts that have nothing in common are told apart coarsely, never slowly.

use std::time::{Duration, Instant};

use serde::Serialize;
use similar::{Algorithm, ChangeTag, DiffOp, TextDiff, TextDiffConfig};

/// How long the comparison may take.
const TIME: Duration = Duration::from_millis(500);
/// Lines that are shown around a change.
const AROUND: usize = 2;

/// A line of the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeltaLine {
    pub(crate) kind: DeltaKind,
    /// The words of the line, or how many lines are left out.
    pub(crate) parts: Vec<DeltaPart>,
    pub(crate) skipped: usize,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeltaKind {
    Same,
    Gone,
    New,
    /// Lines that did not change are not shown.
    Skipped,
}

/// Words of a line; marked where they are what changed in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeltaPart {
    pub(crate) text: String,
    pub(crate) is_marked: bool,
}

/// What changed between two texts.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TextDelta {
    pub(crate) lines: Vec<DeltaLine>,
    pub(crate) gone: usize,
    pub(crate) new: usize,
    /// More changed than is shown.
    pub(crate) is_cut: bool,
}

/// Compares two texts; at most `most_lines` lines come out.
pub(crate) fn text_delta(old: &[String], new: &[String], most_lines: usize) -> TextDelta {
    let end = Instant::now() + TIME;
    let [old, new] = [old, new].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut config: TextDiffConfig = TextDiff::configure();
    config.algorithm(Algorithm::Patience).deadline(end);
    let diff = config.diff_slices(&old, &new);
    let mut delta = TextDelta::default();
    let mut shown_to = 0;
    for op in diff.ops() {
        let (_, before, after) = op.as_tag_tuple();
        if !matches!(op, DiffOp::Equal { .. }) {
            delta.gone += before.len();
            delta.new += after.len();
        }
    }
    'groups: for group in diff.grouped_ops(AROUND) {
        let first = group.first().map_or(0, |op| op.new_range().start);
        push_skipped(&mut delta, first.saturating_sub(shown_to));
        for op in &group {
            for change in diff.iter_inline_changes_deadline(op, Some(end)) {
                if delta.lines.len() >= most_lines {
                    delta.is_cut = true;
                    break 'groups;
                }
                let kind = match change.tag() {
                    ChangeTag::Equal => DeltaKind::Same,
                    ChangeTag::Delete => DeltaKind::Gone,
                    ChangeTag::Insert => DeltaKind::New,
                };
                let parts = change.values().iter().map(|(is_marked, text)| DeltaPart {
                    text: (*text).to_owned(),
                    is_marked: *is_marked,
                });
                delta.lines.push(DeltaLine {
                    kind,
                    parts: parts.collect(),
                    skipped: 0,
                });
            }
        }
        shown_to = group.last().map_or(shown_to, |op| op.new_range().end);
    }
    if !delta.is_cut && !delta.lines.is_empty() {
        push_skipped(&mut delta, new.len().saturating_sub(shown_to));
    }
    delta
}

fn push_skipped(delta: &mut TextDelta, skipped: usize) {
    if skipped > 0 {
        delta.lines.push(DeltaLine {
            kind: DeltaKind::Skipped,
            parts: Vec::new(),
            skipped,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a comparison as text: `-` gone, `+` new, `[ ]` marked.
    fn told(old: &str, new: &str) -> Vec<String> {
        let delta = text_delta(&lines(old), &lines(new), 100);
        let line = |line: &DeltaLine| {
            let sign = match line.kind {
                DeltaKind::Same => " ",
                DeltaKind::Gone => "-",
                DeltaKind::New => "+",
                DeltaKind::Skipped => return format!("({})", line.skipped),
            };
            let part = |part: &DeltaPart| match part.is_marked {
                true => format!("[{}]", part.text),
                false => part.text.clone(),
            };
            format!("{sign}{}", line.parts.iter().map(part).collect::<String>())
        };
        delta.lines.iter().map(line).collect()
    }

    #[test]
    fn lines_and_words_that_changed_are_shown_with_what_is_around_them() {
        let old = "1\n2\n3\n4\nwe open at nine o'clock\n6\n7\n8\n9";
        let new = "1\n2\n3\n4\nwe open at ten o'clock\n6\n7\n8\n9\n10";
        assert_eq!(
            told(old, new),
            [
                "(2)",
                " 3",
                " 4",
                "-we open at [nine] o'clock",
                "+we open at [ten] o'clock",
                " 6",
                " 7",
                " 8",
                " 9",
                "+10",
            ]
        );
        assert!(told(old, old).is_empty());
    }

    #[test]
    fn a_comparison_has_an_end() {
        let old: Vec<String> = (0..20_000)
            .map(|n| format!("old {}", n * 7 % 65_537))
            .collect();
        let new: Vec<String> = (0..20_000)
            .map(|n| format!("new {}", n * 11 % 65_537))
            .collect();
        let delta = text_delta(&old, &new, 50);
        assert!(delta.is_cut && delta.lines.len() == 50);
        assert_eq!((delta.gone, delta.new), (20_000, 20_000));
    }
}
