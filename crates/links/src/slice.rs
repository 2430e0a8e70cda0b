//! The links that count, by target, in files of 32-bit words: one pair of files a slice of targets.
//!
//! A word has an offset in the slice (20 bits) and how far the other end is from that of the word before (12 bits). Reading them is
//! one shift, one mask and one addition a link; that is what a sweep over all links costs.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;

use crate::error::LinksError;

/// The most URLs that a slice may have.
pub const SLICE_PAGES: u32 = 1 << 20;
/// The bits of a word that are an offset in the slice.
pub const OFFSET_MASK: u32 = SLICE_PAGES - 1;
/// The distance that means: the next word is the distance.
pub const FAR: u32 = 0xfff;
/// Words before the first link.
pub const HEAD_WORDS: usize = 8;

const MAGIC: u32 = 0x4c53_4345;
const VERSION: u32 = 1;

/// Which of the two files of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlicePart {
    /// Links from outside of the slice, by source.
    External,
    /// Links inside of the slice, by target.
    Internal,
}

impl SlicePart {
    /// Returns the name of a slice's file.
    pub fn file_name(self, graph: &str, slice: u32) -> String {
        match self {
            Self::External => format!("{graph}.{slice:04}.ext"),
            Self::Internal => format!("{graph}.{slice:04}.int"),
        }
    }
}

/// What the head of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceHead {
    /// Which slice.
    pub slice: u32,
    /// How many URLs a slice owns.
    pub pages: u32,
    /// How many URLs there are in all.
    pub urls: u32,
    /// How many links are in the file.
    pub links: u64,
    /// Which part.
    pub part: SlicePart,
}

impl SliceHead {
    fn words(&self) -> [u32; HEAD_WORDS] {
        [
            MAGIC,
            VERSION,
            self.slice,
            self.pages,
            self.urls,
            self.links as u32,
            (self.links >> 32) as u32,
            u32::from(self.part == SlicePart::Internal),
        ]
    }

    /// Reads the head of a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(source: &mut impl Read, path: &Path) -> Result<Self, LinksError> {
        let mut bytes = [0; 4 * HEAD_WORDS];
        source
            .read_exact(&mut bytes)
            .map_err(LinksError::io("read", path))?;
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let part = match word(7) {
            0 => SlicePart::External,
            _ => SlicePart::Internal,
        };
        let head = Self {
            slice: word(2),
            pages: word(3),
            urls: word(4),
            links: u64::from(word(5)) | u64::from(word(6)) << 32,
            part,
        };
        if head.words()[..2] != [word(0), word(1)] || !(1..=SLICE_PAGES).contains(&head.pages) {
            return Err(LinksError::Broken {
                path: path.to_owned(),
                what: "no slice of links",
            });
        }
        Ok(head)
    }
}

/// Writes one file of a slice.
pub struct SliceWriter {
    out: BufWriter<File>,
    path: PathBuf,
    crc: Crc,
    /// The end by which links are sorted, of the link before.
    last: u32,
    links: u64,
    head: SliceHead,
}

impl SliceWriter {
    /// Begins a file; how many links it will have is said at its end.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, head: SliceHead) -> Result<Self, LinksError> {
        let failed = |error| LinksError::io("make", path)(error);
        let file = File::create(path).map_err(failed)?;
        let mut out = BufWriter::with_capacity(128 << 10, file);
        out.write_all(&[0; 4 * HEAD_WORDS]).map_err(failed)?;
        Ok(Self {
            out,
            path: path.to_owned(),
            crc: Crc::new(),
            last: match head.part {
                SlicePart::External => 0,
                SlicePart::Internal => head.slice * head.pages,
            },
            links: 0,
            head,
        })
    }

    /// Adds a link; they come by source in the external part and by target in the internal one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn push(&mut self, source: u32, target: u32) -> Result<(), LinksError> {
        let base = self.head.slice * self.head.pages;
        let (sorted, offset) = match self.head.part {
            SlicePart::External => (source, target - base),
            SlicePart::Internal => (target, source - base),
        };
        debug_assert!(offset < self.head.pages && sorted >= self.last);
        let distance = sorted - self.last;
        self.last = sorted;
        self.links += 1;
        if distance < FAR {
            return self.word(distance << 20 | offset);
        }
        self.word(FAR << 20 | offset)?;
        self.word(distance)
    }

    /// Ends the file with its head and its checksum; returns how many links it has. Syncing it is left to whoever shows it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<u64, LinksError> {
        use std::os::unix::fs::FileExt;
        self.head.links = self.links;
        let mut head = Vec::with_capacity(4 * HEAD_WORDS);
        for word in self.head.words() {
            head.extend_from_slice(&word.to_le_bytes());
        }
        // The head comes last and is summed last.
        self.crc.update(&head);
        let sum = self.crc.sum();
        let failed = |error| LinksError::io("write", &self.path)(error);
        self.out.write_all(&sum.to_le_bytes()).map_err(failed)?;
        let file = self.out.into_inner();
        let file = file.map_err(|error| failed(error.into_error()))?;
        file.write_all_at(&head, 0).map_err(failed)?;
        Ok(self.links)
    }

    fn word(&mut self, word: u32) -> Result<(), LinksError> {
        let bytes = word.to_le_bytes();
        self.crc.update(&bytes);
        self.out
            .write_all(&bytes)
            .map_err(LinksError::io("write", &self.path))
    }
}

/// Reads a file of a slice whole and returns its links as (source, target), after its checksum was checked. For looking something up; a sweep
/// reads words itself.
///
/// # Errors
/// When it cannot be read, or is not what was written.
pub fn read_slice(path: &Path, mut each: impl FnMut(u32, u32)) -> Result<SliceHead, LinksError> {
    let file = File::open(path).map_err(LinksError::io("open", path))?;
    let mut source = io::BufReader::with_capacity(256 << 10, file);
    let head = SliceHead::read(&mut source, path)?;
    let mut crc = Crc::new();
    let mut next = |source: &mut io::BufReader<File>, is_sum: bool| {
        let mut bytes = [0; 4];
        source
            .read_exact(&mut bytes)
            .map_err(LinksError::io("read", path))?;
        if !is_sum {
            crc.update(&bytes);
        }
        Ok::<_, LinksError>(u32::from_le_bytes(bytes))
    };
    let base = head.slice * head.pages;
    let mut sorted = match head.part {
        SlicePart::External => 0,
        SlicePart::Internal => base,
    };
    for _ in 0..head.links {
        let word = next(&mut source, false)?;
        let distance = match word >> 20 {
            FAR => next(&mut source, false)?,
            distance => distance,
        };
        sorted = sorted.wrapping_add(distance);
        let offset = base + (word & OFFSET_MASK);
        match head.part {
            SlicePart::External => each(sorted, offset),
            SlicePart::Internal => each(offset, sorted),
        }
    }
    let sum = next(&mut source, true)?;
    let mut words = Vec::new();
    for word in head.words() {
        words.extend_from_slice(&word.to_le_bytes());
    }
    crc.update(&words);
    if crc.sum() != sum {
        return Err(LinksError::Broken {
            path: path.to_owned(),
            what: "its checksum is another",
        });
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn links_are_read_as_written(links in proptest::collection::btree_set((0u32..20_000, 0u32..100), 0..400)) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("x");
            let head = SliceHead { slice: 7, pages: 100, urls: 20_000, links: 0, part: SlicePart::External };
            let mut writer = SliceWriter::create(&path, head).unwrap();
            let links: Vec<(u32, u32)> = links.into_iter().map(|(source, offset)| (source, 700 + offset)).collect();
            for (source, target) in &links {
                writer.push(*source, *target).unwrap();
            }
            prop_assert_eq!(writer.finish().unwrap(), links.len() as u64);
            let mut found = Vec::new();
            read_slice(&path, |source, target| found.push((source, target))).unwrap();
            prop_assert_eq!(found, links.clone());

            let head = SliceHead { slice: 1, pages: 20_000, urls: 40_000, links: 0, part: SlicePart::Internal };
            let mut writer = SliceWriter::create(&path, head).unwrap();
            let links: Vec<(u32, u32)> = links.iter().map(|(target, source)| (20_000 + source, 20_000 + target)).collect();
            for (source, target) in &links {
                writer.push(*source, *target).unwrap();
            }
            writer.finish().unwrap();
            let mut found = Vec::new();
            read_slice(&path, |source, target| found.push((source, target))).unwrap();
            prop_assert_eq!(found, links);
        }
    }

    #[test]
    fn a_changed_word_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let head = SliceHead {
            slice: 0,
            pages: 10,
            urls: 10_000,
            links: 0,
            part: SlicePart::External,
        };
        let mut writer = SliceWriter::create(&path, head).unwrap();
        writer.push(3, 4).unwrap();
        writer.push(9_000, 4).unwrap();
        writer.finish().unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in [8, 33, 41, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read_slice(&path, |_, _| {}).is_err(), "{at}");
        }
    }
}
