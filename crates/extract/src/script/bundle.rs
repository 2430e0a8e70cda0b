//! The tables of bundlers in a script: their names are gathered while it is read, and offered at its end, which says where the
//! files lie.

use super::{Script, Word};
use crate::chunks::{ChunkSum, Progress};
use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};

/// Names of files from tables that wait for the end of the script, which says where they lie.
const CHUNKS: usize = 20_000;
/// Bytes of all of them.
const CHUNK_BYTES: usize = 4 << 20;

/// The files that a bundler's tables name, and what is known of where they lie.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    names: Vec<String>,
    bytes: usize,
    /// What webpack calls the public path: `n.p = "/docs/"`.
    pub(super) public_path: Option<String>,
    /// In a statement with VitePress's table of pages, or after one.
    pub(super) vitepress: bool,
    /// In the list of files that Vite loads beside a module.
    pub(super) vite: bool,
}

impl Chunks {
    pub(super) fn take(&mut self, names: Vec<String>) {
        for name in names {
            self.bytes += name.len();
            if self.names.len() >= CHUNKS || self.bytes > CHUNK_BYTES {
                return;
            }
            self.names.push(name);
        }
    }
}

impl Script {
    /// Decides on all that waits for the end of the script.
    pub(super) fn settle_all(&mut self, collector: &mut Collector<'_>) {
        self.settle(collector);
        self.end_sum();
        let Chunks {
            names, public_path, ..
        } = std::mem::take(&mut self.chunks);
        let place = LinkPlace::SCRIPT;
        collector.relative_to_bundle(|collector| {
            for name in names {
                match &public_path {
                    Some(path) => {
                        let url = format!("{path}{name}");
                        collector.offer_spare(&url, Hop::Embed, place);
                    }
                    None => collector.offer_spare(&name, Hop::Embed, place),
                }
            }
        });
    }

    pub(super) fn end_sum(&mut self) {
        if let Some(sum) = self.sum.take() {
            let names = sum.names();
            self.chunks.take(names);
        }
    }

    /// Gives a token to the sum that is being read, if there is one.
    #[inline]
    pub(super) fn add_up(&mut self, token: impl FnOnce(&mut ChunkSum) -> Progress) {
        if let Some(sum) = &mut self.sum
            && token(sum) == Progress::Ended
        {
            self.end_sum();
        }
    }

    /// Begins a sum with a table that a function returns: minifiers leave out an empty string before it.
    pub(super) fn begin_sum_of_table(&mut self) {
        let open = match (self.before_last, self.last) {
            (_, b'a') if self.word == Word::Operator => 0,
            (b'>' | b'a', b'(') => 1,
            (b'(', b'(') => 2,
            _ => return,
        };
        self.sum = Some(ChunkSum::of_table(open));
    }

    /// Begins a sum with the string that waits, if that may be the directory of a bundler's files.
    #[inline]
    pub(super) fn begin_sum(&mut self) {
        if let Some(literal) = &self.waiting
            && literal.plus
            && self.sum.is_none()
            && ChunkSum::may_begin(&literal.text)
        {
            self.sum = Some(ChunkSum::new(&literal.text));
        }
    }
}
