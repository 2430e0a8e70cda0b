//! The words of a language and how often the web has them: how much of a page is in them, and how rare they are.
//!
//! French Web's I_w(p) = Σ_w f(p,w)/f(web,w) over the words of a dictionary, and I_pt = bytes in words of the language / bytes of the document. Counts are
//! added up, so the measure of a site is the sum of those of its pages. Words are compared as blocks have them: as their bytes stand, ASCII letters without
//! case. Nothing is stemmed: the list has the forms that occur, as lists of frequencies do.

use std::collections::HashMap;

use crate::error::BadLine;
use crate::simhash::word_hash;

/// More words than this are not kept.
const WORDS: usize = 4_000_000;

/// How often the web has each word of a language.
#[derive(Debug, Clone, Default)]
pub struct WordList {
    /// By the hash of a word: what one of it counts, and its bytes.
    words: HashMap<u64, (f32, u32)>,
}

/// What the words of a document, or of a site, say of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WordMeasures {
    /// The sum, over the words of the list in it, of how often it has them by how often the web has them.
    pub infrequency: f64,
    /// The share of its bytes that is words of the list.
    pub share: f64,
}

impl WordList {
    /// Reads lines of a word, a tab, and how often the web has it; lines that begin with `#` are passed over. Of a word that stands twice the
    /// counts are added up.
    ///
    /// # Errors
    /// The first line that is not so, counted from 1, and which column of it.
    pub fn parse(text: &str) -> Result<Self, (usize, BadLine)> {
        let mut counts: HashMap<u64, (f64, u32)> = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |column| (at + 1, BadLine { column });
            let (word, count) = line.split_once('\t').ok_or(bad("count"))?;
            let count: f64 = count.trim().parse().map_err(|_| bad("count"))?;
            if word.is_empty() {
                return Err(bad("word"));
            }
            if !count.is_finite() || count < 0.0 {
                return Err(bad("count"));
            }
            // Of a word that the web does not have nothing can be said.
            if count > 0.0 && counts.len() < WORDS {
                let bytes = u32::try_from(word.len()).unwrap_or(u32::MAX);
                let known = counts.entry(word_hash(word.as_bytes()));
                known.or_insert((0.0, bytes)).0 += count;
            }
        }
        let words = counts.into_iter();
        let words = words.map(|(hash, (count, bytes))| (hash, ((1.0 / count) as f32, bytes)));
        Ok(Self {
            words: words.collect(),
        })
    }

    /// Tells whether it has no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Measures the words of a document of so many bytes.
    pub(crate) fn measure(&self, words: &[u64], document_bytes: usize) -> WordMeasures {
        let (mut infrequency, mut bytes) = (0.0, 0u64);
        for word in words {
            if let Some((rarity, length)) = self.words.get(word) {
                infrequency += f64::from(*rarity);
                bytes += u64::from(*length);
            }
        }
        let share = match document_bytes {
            0 => 0.0,
            all => (bytes as f64 / all as f64).min(1.0),
        };
        WordMeasures { infrequency, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDocument, DocumentForm};

    fn measured(list: &WordList, page: &str) -> WordMeasures {
        let blocks = BlockDocument::read(page.as_bytes(), DocumentForm::Page, &[]);
        blocks.measure_words(list, page.len())
    }

    #[test]
    fn rare_words_count_more_and_those_of_no_list_nothing() {
        let list = WordList::parse("# of the web\nl\u{e9}gume\t4\nle\t1000\nLe\t1000\njamais\t0\n");
        let list = list.unwrap();
        let page = "<p>Le l\u{e9}gume, le navet, jamais</p>";
        let found = measured(&list, page);
        assert!((found.infrequency - (0.25 + 2.0 / 2000.0)).abs() < 1e-6);
        assert!((found.share - (2.0 + 7.0 + 2.0) / page.len() as f64).abs() < 1e-12);
        // That of a site is the sum of its pages'.
        let twice = measured(&list, &format!("{page}{page}"));
        assert!((twice.infrequency - 2.0 * found.infrequency).abs() < 1e-12);
        assert_eq!(measured(&list, ""), WordMeasures::default());
        assert_eq!(measured(&list, "<p>navet</p>"), WordMeasures::default());
    }

    #[test]
    fn what_is_no_list_is_told_with_its_line() {
        for (text, line, column) in [
            ("a\t1\nb", 2, "count"),
            ("a\t-1", 1, "count"),
            ("a\tx", 1, "count"),
            ("a\tinf", 1, "count"),
            ("\t1", 1, "word"),
        ] {
            let (at, bad) = WordList::parse(text).unwrap_err();
            assert_eq!((at, bad.column), (line, column), "{text:?}");
        }
        assert!(WordList::parse("").unwrap().is_empty());
    }
}
