//! How much a change weighs: what was inserted, deleted and updated in each block of a document.
//!
//! `docs/planning.md` has the formula and where it departs from the paper.

use std::collections::HashMap;

use crate::blocks::{BlockDocument, BlockElement, DocumentBlock};
use crate::simhash::{Simhash, simhash_distance};
use crate::version_change::ElementCounts;

/// By what the changes of a block are divided: the paper has three readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightNorm {
    /// By operations and kinds of elements, as its formula says: never above 1.
    Formula,
    /// By nothing, as its worked example does; cut at 1.
    Example,
    /// By operations, as its Algorithm 2 does; cut at 1.
    Algorithm2,
}

/// Operations: insert, delete, update.
const OPERATIONS: usize = 3;
/// Kinds of elements: text, link, image.
const KINDS: usize = 3;
/// What a link or an image counts when it is an advertisement.
const ADVERTISEMENT: f64 = 0.1;
/// Blocks whose fingerprints differ in no more bits are versions of one.
const SIMILAR_BITS: u32 = 20;
/// Blocks beyond this are not looked for in the other document.
const SOUGHT: usize = 2000;

impl WeightNorm {
    /// Returns by what the changes of a block are divided, of so many operations and kinds.
    fn divisor(self, operations: usize, kinds: usize) -> f64 {
        match self {
            Self::Formula => (operations * kinds) as f64,
            Self::Example => 1.0,
            Self::Algorithm2 => operations as f64,
        }
    }

    /// Returns what a text weighs that was written anew from its first word to its last. It stands for changes that cannot
    /// be weighed.
    pub fn rewritten(self) -> f64 {
        1.0 / self.divisor(OPERATIONS, KINDS)
    }
}

/// What happened to the elements of one kind in a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementChange {
    /// How much the change counts, from 0 to 1.
    pub importance: f64,
    /// The share of the elements that were changed.
    pub share: f64,
}

/// Returns the weight of a change: of each block its importance, and what happened in it.
pub fn change_weight<'c>(
    blocks: impl IntoIterator<Item = (f64, &'c [ElementChange])>,
    norm: WeightNorm,
    operations: usize,
    kinds: usize,
) -> f64 {
    let of_block = |(importance, changes): (f64, &[ElementChange])| {
        let changes = changes
            .iter()
            .map(|it| it.importance * it.share.clamp(0.0, 1.0));
        importance * changes.sum::<f64>() / norm.divisor(operations, kinds)
    };
    let sum: f64 = blocks.into_iter().map(of_block).sum();
    sum.clamp(0.0, 1.0)
}

/// What two versions of a document differ in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DocumentChange {
    /// From 0 to 1.
    pub weight: f64,
    /// What was inserted, deleted and updated.
    pub counts: ElementCounts,
}

/// Compares two versions of a document.
pub fn compare(old: &BlockDocument, new: &BlockDocument, norm: WeightNorm) -> DocumentChange {
    let pairs = matched(old, new);
    let (old_size, new_size) = (size(old), size(new));
    // Of each document its share; a block of one document only counts half of it.
    let sides = f64::from(u8::from(old_size > 0) + u8::from(new_size > 0)).max(1.0);
    let share = |block: Option<&DocumentBlock>, whole: u64| {
        block.map_or(0.0, |block| block.size as f64 / whole.max(1) as f64)
    };
    let mut counts = ElementCounts::default();
    let mut changes = Vec::new();
    for (before, after) in pairs {
        let (before, after) = (
            before.map(|at| &old.blocks[at]),
            after.map(|at| &new.blocks[at]),
        );
        let found = block_changes((old, before), (new, after), &mut counts);
        if found.iter().any(|change| change.share > 0.0) {
            let importance = (share(before, old_size) + share(after, new_size)) / sides;
            changes.push((importance, found));
        }
    }
    let blocks = changes
        .iter()
        .map(|(importance, found)| (*importance, found.as_slice()));
    DocumentChange {
        weight: change_weight(blocks, norm, OPERATIONS, KINDS),
        counts,
    }
}

fn size(document: &BlockDocument) -> u64 {
    document.blocks.iter().map(|block| block.size).sum()
}

/// Says which blocks are versions of one: those that are the same, then those of one name, then those with similar words.
fn matched(old: &BlockDocument, new: &BlockDocument) -> Vec<(Option<usize>, Option<usize>)> {
    let mut pairs = Vec::new();
    let mut left_old: Vec<usize> = (0..old.blocks.len()).collect();
    let mut left_new: Vec<usize> = (0..new.blocks.len()).collect();
    for key in [content_of, |block: &DocumentBlock| {
        (block.name > 1).then_some(block.name)
    }] {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for at in left_old.iter().rev() {
            if let Some(key) = key(&old.blocks[*at]) {
                places.entry(key).or_default().push(*at);
            }
        }
        let mut taken = vec![false; old.blocks.len()];
        left_new.retain(|at| {
            let place = key(&new.blocks[*at]).and_then(|key| places.get_mut(&key)?.pop());
            if let Some(before) = place {
                taken[before] = true;
                pairs.push((Some(before), Some(*at)));
            }
            place.is_none()
        });
        left_old.retain(|at| !taken[*at]);
    }
    let print = |document: &BlockDocument, at: &usize| (*at, fingerprint(document, *at));
    let old_prints: Vec<_> = left_old
        .iter()
        .take(SOUGHT)
        .map(|at| print(old, at))
        .collect();
    let mut taken = vec![false; old.blocks.len()];
    left_new.retain(|at| {
        // What begins a document and has no name of its own is the same place in both.
        let is_plain = new.blocks[*at].name == 1;
        let nearest = if pairs.len() < SOUGHT {
            let own = fingerprint(new, *at);
            let free = old_prints.iter().filter(|(before, _)| !taken[*before]);
            free.map(|(before, print)| {
                let is_same_place = is_plain && old.blocks[*before].name == 1;
                let distance = simhash_distance(own, *print);
                (if is_same_place { 0 } else { distance }, *before)
            })
            .min()
            .filter(|(distance, _)| *distance <= SIMILAR_BITS)
        } else {
            None
        };
        if let Some((_, before)) = nearest {
            taken[before] = true;
            pairs.push((Some(before), Some(*at)));
        }
        nearest.is_none()
    });
    left_old.retain(|at| !taken[*at]);
    pairs.extend(left_old.into_iter().map(|at| (Some(at), None)));
    pairs.extend(left_new.into_iter().map(|at| (None, Some(at))));
    pairs
}

/// Returns the hash of all that is in a block.
fn content_of(block: &DocumentBlock) -> Option<u64> {
    let elements = block
        .elements
        .iter()
        .zip(1u64..)
        .flat_map(|(elements, kind)| elements.iter().map(move |element| element.hash ^ kind));
    let hash = elements.fold(3, |hash, element| crate::simhash::mixed(hash ^ element));
    Some(hash)
}

fn fingerprint(document: &BlockDocument, at: usize) -> u64 {
    let mut simhash = Simhash::new();
    for text in &document.blocks[at].elements[0] {
        for word in document.words_of(text) {
            simhash.add(*word);
        }
    }
    simhash.finish()
}

/// Returns what happened in a block, by kind and operation, and counts it.
fn block_changes(
    (old, before): (&BlockDocument, Option<&DocumentBlock>),
    (new, after): (&BlockDocument, Option<&DocumentBlock>),
    counts: &mut ElementCounts,
) -> [ElementChange; OPERATIONS * KINDS] {
    const NOTHING: ElementChange = ElementChange {
        importance: 0.0,
        share: 0.0,
    };
    const NONE: &[BlockElement] = &[];
    let mut changes = [NOTHING; OPERATIONS * KINDS];
    for kind in 0..KINDS {
        let before = before.map_or(NONE, |block| &block.elements[kind]);
        let after = after.map_or(NONE, |block| &block.elements[kind]);
        let difference = Difference::of(before, after, kind);
        let [inserted, deleted, updated] = [
            difference.inserted.len(),
            difference.deleted.len(),
            difference.updated.len(),
        ];
        for (operation, count) in [inserted, deleted, updated].into_iter().enumerate() {
            counts.counts[kind][operation] += u32::try_from(count).unwrap_or(u32::MAX);
        }
        let mut put = |operation: usize, count: usize, whole: usize, importance: f64| {
            if count > 0 && whole > 0 {
                changes[kind * OPERATIONS + operation] = ElementChange {
                    importance,
                    share: (count as f64 / whole as f64).min(1.0),
                };
            }
        };
        if kind == 0 {
            // What is inserted is compared with nothing, and so is what is deleted.
            put(0, inserted, after.len(), 1.0);
            put(1, deleted, before.len(), 1.0);
            let words = |document: &BlockDocument,
                         texts: &mut dyn Iterator<Item = BlockElement>| {
                let mut words: Vec<u64> = Vec::new();
                for text in texts {
                    words.extend(document.words_of(&text));
                }
                words
            };
            let one = words(old, &mut difference.updated.iter().map(|(one, _)| *one));
            let other = words(new, &mut difference.updated.iter().map(|(_, other)| *other));
            put(2, updated, before.len(), unlike(one, other));
        } else {
            let mean = |elements: &mut dyn Iterator<Item = &BlockElement>| {
                let (mut sum, mut count) = (0.0, 0.0);
                for element in elements {
                    sum += if element.is_advertisement {
                        ADVERTISEMENT
                    } else {
                        1.0
                    };
                    count += 1.0;
                }
                if count > 0.0 { sum / count } else { 0.0 }
            };
            put(
                0,
                inserted,
                after.len(),
                mean(&mut difference.inserted.iter()),
            );
            put(
                1,
                deleted,
                before.len(),
                mean(&mut difference.deleted.iter()),
            );
            let newer = &mut difference.updated.iter().map(|(_, other)| other);
            put(2, updated, before.len(), mean(newer));
        }
    }
    changes
}

/// Returns how unlike two sets of words are: 1 without a word in common, 0 for the same and for none at all.
fn unlike(mut one: Vec<u64>, mut other: Vec<u64>) -> f64 {
    for words in [&mut one, &mut other] {
        words.sort_unstable();
        words.dedup();
    }
    let (mut common, mut at) = (0usize, 0);
    for word in &one {
        while other.get(at).is_some_and(|other| other < word) {
            at += 1;
        }
        common += usize::from(other.get(at) == Some(word));
    }
    match one.len() + other.len() - common {
        0 => 0.0,
        all => 1.0 - common as f64 / all as f64,
    }
}

/// What differs between the elements of one kind in two versions of a block.
struct Difference {
    inserted: Vec<BlockElement>,
    deleted: Vec<BlockElement>,
    updated: Vec<(BlockElement, BlockElement)>,
}

impl Difference {
    fn of(before: &[BlockElement], after: &[BlockElement], kind: usize) -> Self {
        let mut same: HashMap<u64, usize> = HashMap::with_capacity(before.len());
        for element in before {
            *same.entry(element.hash).or_default() += 1;
        }
        let mut take = |element: &BlockElement| match same.get_mut(&element.hash) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        let added: Vec<BlockElement> = after.iter().copied().filter(|it| !take(it)).collect();
        // What is left of the counts was not found again; the last of equal ones.
        let mut gone: Vec<BlockElement> = Vec::new();
        for element in before.iter().rev() {
            if take(element) {
                gone.push(*element);
            }
        }
        gone.reverse();
        let mut difference = Self {
            inserted: Vec::new(),
            deleted: Vec::new(),
            updated: Vec::new(),
        };
        if kind == 0 {
            // Texts in the place of others are those others, rewritten.
            let pairs = gone.len().min(added.len());
            difference.deleted = gone.split_off(pairs);
            difference.inserted = added[pairs..].to_vec();
            difference.updated = gone.into_iter().zip(added).collect();
            return difference;
        }
        // A link or an image with the text that another had is the other, with a new address.
        let mut labels: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, element) in gone.iter().enumerate().rev() {
            if element.label != 0 {
                labels.entry(element.label).or_default().push(at);
            }
        }
        let mut is_updated = vec![false; gone.len()];
        for element in added {
            match labels.get_mut(&element.label).and_then(Vec::pop) {
                Some(at) => {
                    is_updated[at] = true;
                    difference.updated.push((gone[at], element));
                }
                None => difference.inserted.push(element),
            }
        }
        let gone = gone.into_iter().zip(is_updated);
        difference.deleted = gone
            .filter_map(|(it, updated)| (!updated).then_some(it))
            .collect();
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::DocumentForm;

    fn page(text: &str) -> BlockDocument {
        BlockDocument::read(text.as_bytes(), DocumentForm::Page, &["/ads/".to_owned()])
    }

    fn change(old: &str, new: &str) -> DocumentChange {
        compare(&page(old), &page(new), WeightNorm::Formula)
    }

    #[test]
    fn the_example_of_the_paper_has_three_readings() {
        let of = |importance, share| ElementChange { importance, share };
        let changes = [of(0.8, 0.2), of(1.0, 1.0)];
        let weight =
            |norm, operations| change_weight([(0.3, changes.as_slice())], norm, operations, 3);
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        };
        close(weight(WeightNorm::Example, 3), 0.348);
        close(weight(WeightNorm::Formula, 3), 0.038_667);
        close(weight(WeightNorm::Algorithm2, 2), 0.174);
        close(weight(WeightNorm::Algorithm2, 3), 0.116);
        let all = [of(1.0, 5.0); 9];
        let everything = |norm| change_weight([(1.0, all.as_slice())], norm, 3, 3);
        close(everything(WeightNorm::Formula), 1.0);
        close(everything(WeightNorm::Example), 1.0);
        assert_eq!(change_weight([], WeightNorm::Formula, 3, 3), 0.0);
    }

    #[test]
    fn what_is_the_same_weighs_nothing() {
        let text = "<nav><a href=/>Home</a></nav><main><h1>A</h1><p>One two<p>Three</main>";
        let same = change(text, &text.replace("<p>One", "<p class=x>One"));
        assert_eq!((same.weight, same.counts), (0.0, ElementCounts::default()));
        assert_eq!(change("", "").weight, 0.0);
    }

    #[test]
    fn a_text_rewritten_whole_weighs_one_of_nine() {
        let found = change("<p>one two three</p>", "<p>four five six</p>");
        assert!(
            (found.weight - WeightNorm::Formula.rewritten()).abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(found.counts.counts[0], [0, 0, 1]);
        // Half of the words stay.
        let half = change("<p>one two three</p>", "<p>one two four</p>");
        assert!((half.weight - 0.5 / 9.0).abs() < 1e-9, "{half:?}");
    }

    #[test]
    fn links_and_images_count_and_advertisements_hardly_do() {
        let body = "<main><p>some text that stays as it is</p>{}</main>";
        let with = |more: &str| body.replace("{}", more);
        let link = change(&with(""), &with("<a href=/new>x</a>"));
        assert_eq!(link.counts.counts, [[1, 0, 0], [1, 0, 0], [0, 0, 0]]);
        let moved = change(
            &with("<a href=/old>More</a>"),
            &with("<a href=/new>More</a>"),
        );
        assert_eq!(moved.counts.counts, [[0, 0, 0], [0, 0, 1], [0, 0, 0]]);
        assert!((moved.weight - 1.0 / 9.0).abs() < 1e-9, "{moved:?}");
        let image = change(&with("<img src=/a.png>"), &with("<img src=/b.png>"));
        assert_eq!(image.counts.counts[2], [1, 1, 0]);
        let banner = change(&with("<img src=/ads/a.png>"), &with("<img src=/ads/b.png>"));
        assert!((banner.weight - image.weight / 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_change_in_a_small_block_weighs_less() {
        let page = |nav: &str, main: &str| format!("<nav>{nav}</nav><main>{main}</main>");
        let main = "a long text about the gates of the lock and the water between them";
        let small = change(&page("Home news", main), &page("Start news", main));
        let large = change(
            &page("Home news", main),
            &page("Home news", "another story with other words"),
        );
        assert!(
            small.weight > 0.0 && small.weight * 3.0 < large.weight,
            "{small:?} {large:?}"
        );
    }

    #[test]
    fn a_teaser_that_moves_down_a_row_is_the_same() {
        let teaser = |n: u32| {
            let words: String = (0..12).map(|at| format!("w{}x{at} ", n * 31)).collect();
            format!("<li><a href=/{n}>{words}</a></li>")
        };
        let list = |range: std::ops::Range<u32>| {
            let items: String = range.rev().map(teaser).collect();
            format!("<ul>{items}</ul>")
        };
        let found = change(&list(0..6), &list(1..7));
        // One came, one went; five moved.
        assert_eq!(found.counts.counts, [[1, 1, 0], [1, 1, 0], [0, 0, 0]]);
        let expected = 4.0 / 9.0 * (1.0 / 6.0 / 2.0);
        assert!((found.weight - expected).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn everything_new_is_never_above_one() {
        for norm in [
            WeightNorm::Formula,
            WeightNorm::Example,
            WeightNorm::Algorithm2,
        ] {
            let text = "<h1>A b c</h1><a href=/x>d</a><img src=/y><section>e f g</section>";
            let found = compare(&page(""), &page(text), norm);
            assert!(found.weight > 0.0 && found.weight <= 1.0, "{found:?}");
            let back = compare(&page(text), &page(""), norm);
            assert!((found.weight - back.weight).abs() < 1e-9);
        }
    }
}
