//! Members: the file's bytes unpacked, one gzip member, zstd frame or plain file at a time.
//!
//! Of the current member a window of inflated bytes is at hand. A member that fits is inflated whole, and then its end
//! is known before its first byte is looked at. Otherwise the window slides. Whatever the file says, no more than the
//! limits allow is held.
//!
//! A member that cannot be inflated to its end gives what came out before the fault. The next one is then looked for
//! from its first byte on, not from the fault: a wrong bit may have led the codec far into good members.

use std::fmt;
use std::io::{self, Read};

use memchr::memmem;

use crate::damage::{Damage, DamageLog, Reason, Snippet};
use crate::format::{Compression, Format};
use crate::frame::{self, ZstdStream};
use crate::gzip::{self, GzipStream, Step, Whole};
use crate::input::{Input, enlarge};
use crate::limits::Limits;

/// How much input is at hand before a member is inflated, so that few members have to be inflated twice.
const LOW_WATER: usize = 2 << 20;

/// How much is unpacked at once when the window slides.
const CHUNK_BYTES: usize = 128 << 10;

/// How much of a possible member is inflated to see whether it holds a record.
const PROBE_BYTES: usize = 8 << 10;

/// A source unpacked.
#[derive(Debug)]
pub(crate) struct Unpacked<Source> {
    input: Input<Source>,
    limits: Limits,
    compression: Compression,
    codecs: Codecs,
    /// Inflated bytes; those before `position` are done with, those from `end` on are not there yet.
    data: Vec<u8>,
    position: usize,
    end: usize,
    member: Member,
    damages: DamageLog,
    bomb: Option<Damage>,
    /// The number of the record that damage is laid to.
    record: u64,
}

/// The current member.
#[derive(Debug, Default)]
struct Member {
    /// How many members came before.
    index: u64,
    offset: u64,
    /// How many of its inflated bytes were consumed.
    consumed: u64,
    /// The file offset behind the member, known when all of it was inflated.
    end: Option<u64>,
    /// Where a damaged member must end, because a good one starts there.
    fence: Option<u64>,
    failed: bool,
}

struct Codecs {
    whole: Option<Box<libdeflater::Decompressor>>,
    gzip: Option<GzipStream>,
    zstd: Option<ZstdStream>,
}

impl<Source: Read> Unpacked<Source> {
    pub(crate) fn new(source: Source, limits: Limits) -> Self {
        Self {
            input: Input::new(source, limits.member_bytes),
            limits,
            compression: Compression::None,
            codecs: Codecs {
                whole: None,
                gzip: None,
                zstd: None,
            },
            data: Vec::new(),
            position: 0,
            end: 0,
            member: Member {
                end: Some(0),
                ..Member::default()
            },
            damages: DamageLog::new(limits.damages),
            bomb: None,
            record: 1,
        }
    }

    /// Looks at the first bytes of the source.
    pub(crate) fn detect(&mut self) -> io::Result<()> {
        self.input.fill(LOW_WATER)?;
        let start = self.input.available();
        self.compression = Compression::detect(start);
        if self.compression == Compression::None && Format::detect(start).is_none() {
            // Garbage first. Members may follow it, and plain records would have been as near.
            for compression in [Compression::Gzip, Compression::Zstd] {
                self.compression = compression;
                if self.find_member(false)?.is_some() {
                    return Ok(());
                }
            }
            self.compression = Compression::None;
        }
        Ok(())
    }

    pub(crate) fn source(&self) -> &Source {
        self.input.source()
    }

    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the inflated bytes at hand.
    pub(crate) fn available(&self) -> &[u8] {
        &self.data[self.position..self.end]
    }

    /// Tells whether the bytes at hand are the last ones of the member.
    pub(crate) fn is_complete(&self) -> bool {
        self.member.end.is_some()
    }

    /// Tells whether the member could not be inflated to its end.
    pub(crate) fn has_failed(&self) -> bool {
        self.member.failed
    }

    /// Returns the file offset of the current member.
    pub(crate) fn member_offset(&self) -> u64 {
        self.member.offset
    }

    /// Returns the file offset behind the current member, if it is known already.
    pub(crate) fn member_end(&self) -> Option<u64> {
        self.member.end
    }

    /// Returns how many members came before this one.
    pub(crate) fn member_index(&self) -> u64 {
        self.member.index
    }

    /// Returns how many bytes the window can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.limits.member_bytes
    }

    /// Returns the file offset of the next byte of an uncompressed file.
    pub(crate) fn plain_offset(&self) -> u64 {
        self.input.offset() - (self.end - self.position) as u64
    }

    /// Returns how many inflated bytes of this member were consumed.
    pub(crate) fn consumed(&self) -> u64 {
        self.member.consumed
    }

    /// Lays the damage found from now on to this record.
    pub(crate) fn set_record(&mut self, record: u64) {
        self.record = record;
    }

    pub(crate) fn damages(&self) -> &DamageLog {
        &self.damages
    }

    pub(crate) fn bomb(&self) -> Option<&Damage> {
        self.bomb.as_ref()
    }

    pub(crate) fn report(&mut self, offset: u64, reason: Reason) {
        self.damages.add(self.record, offset, reason);
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(
            bytes <= self.end - self.position,
            "only bytes at hand can be consumed"
        );
        self.position += bytes;
        self.member.consumed += bytes as u64;
    }

    /// Tries to have `bytes` at hand; fewer are there only at the end of the member, or if the window cannot hold more.
    pub(crate) fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = bytes.min(self.limits.member_bytes);
        while self.end - self.position < wanted && self.member.end.is_none() {
            self.make_room(wanted);
            let missing = wanted - (self.end - self.position);
            let goal = self.data.len().min(self.end + missing.max(CHUNK_BYTES));
            self.unpack(goal)?;
        }
        Ok(())
    }

    /// Drops what is left of the member, without a look at it.
    pub(crate) fn skip_member(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let bytes = self.end - self.position;
            skipped += bytes as u64;
            self.consume(bytes);
            self.fill(1)?;
            if self.position == self.end {
                return Ok(skipped);
            }
        }
    }

    /// Goes to the next member and tells whether there is one. What was left of this one is lost.
    pub(crate) fn next_member(&mut self) -> io::Result<bool> {
        self.skip_member()?;
        self.position = 0;
        self.end = 0;
        self.member.index += 1;
        self.member.failed = false;
        self.member.consumed = 0;
        match self.compression {
            Compression::None => self.open_plain(),
            Compression::Gzip => self.open_gzip(),
            Compression::Zstd => self.open_zstd(),
        }
    }

    fn open_plain(&mut self) -> io::Result<bool> {
        self.input.fill(1)?;
        let more = !self.input.available().is_empty();
        self.member.offset = self.input.offset();
        self.member.end = (!more).then_some(self.member.offset);
        Ok(more)
    }

    fn open_gzip(&mut self) -> io::Result<bool> {
        loop {
            self.input.fill(LOW_WATER)?;
            let window = self.input.available();
            if window.is_empty() {
                return Ok(false);
            }
            if !window.starts_with(&gzip::MAGIC) {
                self.pass_garbage()?;
                continue;
            }
            self.member.offset = self.input.offset();
            if self.data.is_empty() {
                self.data = vec![0; self.limits.member_bytes];
            }
            let whole = self
                .codecs
                .whole
                .get_or_insert_with(|| Box::new(libdeflater::Decompressor::new()));
            match gzip::inflate_whole(whole, window, self.input.is_exhausted(), &mut self.data) {
                Whole::Inflated {
                    consumed,
                    produced: 0,
                } => self.input.advance(consumed),
                Whole::Inflated { consumed, produced } => {
                    self.input.advance(consumed);
                    self.end = produced;
                    self.member.end = Some(self.input.offset());
                    return Ok(true);
                }
                Whole::TooLarge => {
                    self.start_stream();
                    return Ok(true);
                }
                Whole::Bad if self.input.grow()? => {}
                Whole::Bad => {
                    self.start_stream();
                    self.set_fence();
                    return Ok(true);
                }
            }
        }
    }

    fn open_zstd(&mut self) -> io::Result<bool> {
        loop {
            self.input.fill(LOW_WATER)?;
            let window = self.input.available();
            if window.is_empty() {
                return Ok(false);
            }
            if window.starts_with(&frame::MAGIC) {
                self.member.offset = self.input.offset();
                self.start_stream();
                self.fill(1)?;
                // A frame may be empty; a damaged one counts, so that the damage has its place.
                if self.end > 0 || self.member.failed {
                    return Ok(true);
                }
            } else if let Some(bytes) = frame::skippable_bytes(window) {
                self.pass_skippable(u64::from(bytes))?;
            } else {
                self.pass_garbage()?;
            }
        }
    }

    fn start_stream(&mut self) {
        self.member.end = None;
        self.member.fence = None;
        self.input.set_mark();
        match self.compression {
            Compression::None => {}
            Compression::Gzip => self.codecs.gzip().restart(),
            Compression::Zstd => {
                if let Some(zstd) = &mut self.codecs.zstd {
                    zstd.restart();
                }
            }
        }
    }

    /// Finds the next good member behind a bad one, so that the codec does not run into it.
    ///
    /// A member that merely goes on behind the window is not bad, and may well hold what looks like a member.
    fn set_fence(&mut self) {
        let window = self.input.available();
        if !self.input.is_exhausted() && !self.codecs.gzip().fails(window) {
            return;
        }
        let mut probe = vec![0; PROBE_BYTES];
        self.member.fence = memmem::find_iter(&window[1..], &gzip::MAGIC)
            .map(|at| at + 1)
            .find(|&at| {
                Format::detect(self.codecs.gzip().probe(&window[at..], &mut probe)).is_some()
            })
            .map(|at| self.input.offset() + at as u64);
    }

    fn make_room(&mut self, wanted: usize) {
        if self.position > 0 {
            self.data.copy_within(self.position..self.end, 0);
            self.end -= self.position;
            self.position = 0;
        }
        // Some more than is wanted, always: each step must bring something that was worth the move.
        let size = (wanted + CHUNK_BYTES).next_multiple_of(CHUNK_BYTES);
        if self.data.len() < size {
            enlarge(&mut self.data, size, self.end);
        }
    }

    /// Unpacks something into the window, up to `goal`, or ends the member.
    fn unpack(&mut self, goal: usize) -> io::Result<()> {
        if self.compression == Compression::None {
            let bytes = self.input.take(&mut self.data[self.end..goal])?;
            self.end += bytes;
            if bytes == 0 {
                self.member.end = Some(self.input.offset());
            }
            return Ok(());
        }
        let window = self.input.available();
        let room = self.member.fence.map_or(window.len(), |fence| {
            usize::try_from(fence - self.input.offset())
                .map_or(window.len(), |room| room.min(window.len()))
        });
        let step = match self.compression {
            Compression::Zstd => self
                .codecs
                .zstd(&self.limits)?
                .step(&window[..room], &mut self.data[self.end..goal]),
            _ => self
                .codecs
                .gzip()
                .step(&window[..room], &mut self.data[self.end..goal]),
        };
        match step {
            Ok(Step {
                consumed,
                produced,
                ended,
            }) => {
                self.input.advance(consumed);
                self.end += produced;
                if ended {
                    self.member.end = Some(self.input.offset());
                    self.input.clear_mark();
                } else if consumed == 0
                    && produced == 0
                    && (self.member.fence.is_some() || !self.input.grow()?)
                {
                    let inflated = self.inflated();
                    self.fail(Reason::TruncatedMember { inflated })?;
                } else if self.inflated() > self.limits.bomb_bytes {
                    self.give_up_bomb()?;
                }
                Ok(())
            }
            Err(reason) => self.fail(reason),
        }
    }

    fn inflated(&mut self) -> u64 {
        match self.compression {
            Compression::Zstd => self.codecs.zstd.as_ref().map_or(0, ZstdStream::inflated),
            _ => self.codecs.gzip().inflated(),
        }
    }

    /// Ends the member here if it is a bomb, and finds the next one.
    ///
    /// Nothing is wrong with its bytes, so the search goes on from here: members that overlap would be a bomb each.
    fn give_up_bomb(&mut self) -> io::Result<()> {
        let packed = self.input.offset() - self.member.offset;
        if self.inflated() / Limits::BOMB_RATIO <= packed {
            return Ok(());
        }
        let reason = Reason::Bomb {
            packed,
            limit: self.limits.bomb_bytes,
        };
        self.bomb = Some(Damage {
            record: self.record,
            offset: self.member.offset,
            reason: reason.clone(),
        });
        self.input.clear_mark();
        self.fail(reason)
    }

    /// Ends the member at the fault, and finds the next one.
    fn fail(&mut self, reason: Reason) -> io::Result<()> {
        self.report(self.member.offset, reason);
        self.member.failed = true;
        if let Some(fence) = self.member.fence {
            let left =
                usize::try_from(fence - self.input.offset()).expect("the fence is in the window");
            self.input.advance(left);
            self.input.clear_mark();
        } else {
            self.input.rewind();
            self.find_member(true)?;
        }
        self.member.end = Some(self.input.offset());
        Ok(())
    }

    /// Passes over bytes that belong to no member.
    fn pass_garbage(&mut self) -> io::Result<()> {
        let offset = self.input.offset();
        let start = Snippet::of(self.input.available());
        self.find_member(true)?;
        self.report(
            offset,
            Reason::Garbage {
                bytes: self.input.offset() - offset,
                start,
            },
        );
        Ok(())
    }

    /// Goes to the next member behind this byte that inflates to a record, or to the end. Without `far`, only what is at
    /// hand is searched, and the input stays where it is if nothing is found.
    fn find_member(&mut self, far: bool) -> io::Result<Option<u64>> {
        let magic: &[u8] = match self.compression {
            Compression::Zstd => &frame::MAGIC,
            _ => &gzip::MAGIC,
        };
        let finder = memmem::Finder::new(magic);
        let mut probe = vec![0; PROBE_BYTES];
        let mut from = 1;
        loop {
            // Enough of a candidate must be at hand for the probe to judge it.
            self.input.fill(LOW_WATER)?;
            let window = self.input.available();
            let last = self.input.is_exhausted();
            let judged = if last || !far {
                window.len()
            } else {
                window.len().saturating_sub(PROBE_BYTES)
            };
            let codecs = &mut self.codecs;
            let mut found = None;
            for at in finder
                .find_iter(window.get(from..).unwrap_or_default())
                .map(|at| at + from)
            {
                if at >= judged {
                    break;
                }
                let start = match self.compression {
                    Compression::Zstd => {
                        codecs.zstd(&self.limits)?.probe(&window[at..], &mut probe)
                    }
                    _ => codecs.gzip().probe(&window[at..], &mut probe),
                };
                if Format::detect(start).is_some() {
                    found = Some(at);
                    break;
                }
            }
            if let Some(at) = found {
                if far {
                    self.input.advance(at);
                }
                return Ok(Some(self.input.offset()));
            }
            if !far {
                return Ok(None);
            }
            if last {
                let rest = self.input.available().len();
                self.input.advance(rest);
                return Ok(None);
            }
            self.input.advance(judged);
            from = 0;
        }
    }

    fn pass_skippable(&mut self, bytes: u64) -> io::Result<()> {
        let offset = self.input.offset();
        let is_dictionary = self.input.available().starts_with(&frame::DICTIONARY_MAGIC);
        self.input.advance(frame::SKIPPABLE_HEAD);
        if is_dictionary {
            match usize::try_from(bytes)
                .ok()
                .filter(|&bytes| bytes <= self.limits.zstd_dictionary_bytes)
            {
                Some(bytes) => {
                    self.input.fill(bytes)?;
                    let content = self.input.available();
                    let content = &content[..bytes.min(content.len())];
                    let limit = self.limits.zstd_dictionary_bytes;
                    if let Err(reason) = self
                        .codecs
                        .zstd(&self.limits)?
                        .set_dictionary(content, limit)
                    {
                        self.report(offset, reason);
                    }
                }
                None => {
                    let message = format!("it has {bytes} bytes");
                    self.report(offset, Reason::Dictionary { message });
                }
            }
        }
        let mut left = bytes;
        while left > 0 {
            self.input.fill(1)?;
            let at_hand = self.input.available().len();
            if at_hand == 0 {
                self.report(offset, Reason::TruncatedMember { inflated: 0 });
                break;
            }
            let step = usize::try_from(left).map_or(at_hand, |left| left.min(at_hand));
            self.input.advance(step);
            left -= step as u64;
        }
        Ok(())
    }
}

impl fmt::Debug for Codecs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Codecs")
            .field("gzip", &self.gzip)
            .field("zstd", &self.zstd)
            .finish_non_exhaustive()
    }
}

impl Codecs {
    fn gzip(&mut self) -> &mut GzipStream {
        self.gzip.get_or_insert_with(GzipStream::new)
    }

    fn zstd(&mut self, limits: &Limits) -> io::Result<&mut ZstdStream> {
        match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            none => Ok(none.insert(ZstdStream::new(limits.zstd_window_log)?)),
        }
    }
}
