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

use crate::damage::{DamageLog, DamageReason, RecordDamage, Snippet};
use crate::format::{ArchiveFormat, Compression};
use crate::frame::{self, ZstdStream};
use crate::gzip::{self, GzipStream, NextMember, Step, Streamed, Whole};
use crate::input::{Ask, Input, SeekTo, enlarge};
use crate::limits::ReaderLimits;

/// How much input is at hand before a member is inflated, so that few members have to be inflated twice.
const LOW_WATER: usize = 2 << 20;

/// How much is unpacked at once when the window slides.
const CHUNK_BYTES: usize = 128 << 10;

/// How much of a possible member is inflated to see whether it holds a record.
const PROBE_BYTES: usize = 8 << 10;

/// Damaged members are inflated beyond the next good one, all together, so far, and so far for each byte of the file.
const OVERRUN_BYTES: u64 = 16 << 20;
const OVERRUN_FACTOR: u64 = 8;

/// After so many members, or what might be some, the source is asked whether to go on.
const LOOKS: u32 = 64;

/// A source unpacked.
#[derive(Debug)]
pub(crate) struct Unpacked<Source> {
    input: Input<Source>,
    limits: ReaderLimits,
    compression: Compression,
    codecs: Codecs,
    /// Inflated bytes; those before `position` are done with, those from `end` on are not there yet.
    data: Vec<u8>,
    position: usize,
    end: usize,
    member: Member,
    /// Where members that hold a record were looked for.
    searched: Searched,
    /// How many bytes damaged members were inflated beyond the next good one, to see that they are damaged.
    overrun: u64,
    /// How many members, or what might be some, were looked at since the source was asked.
    looks: u32,
    damages: DamageLog,
    bomb: Option<RecordDamage>,
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

/// What a search for members has come to: none that holds a record starts between the two offsets.
#[derive(Debug, Default)]
struct Searched {
    from: u64,
    to: u64,
    /// One starts where the search ended.
    found: bool,
}

struct Codecs {
    whole: Option<Box<libdeflater::Decompressor>>,
    gzip: Option<GzipStream>,
    zstd: Option<ZstdStream>,
}

impl<Source: Read> Unpacked<Source> {
    pub(crate) fn new(source: Source, limits: ReaderLimits, seek: Option<SeekTo<Source>>) -> Self {
        Self {
            input: Input::new(source, limits.member_bytes, seek),
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
            searched: Searched::default(),
            overrun: 0,
            looks: 0,
            damages: DamageLog::new(limits.damages),
            bomb: None,
            record: 1,
        }
    }

    /// Says how the source is asked whether to go on.
    pub(crate) fn set_ask(&mut self, ask: Ask<Source>) {
        self.input.set_ask(ask);
    }

    /// Looks at the first bytes of the source.
    pub(crate) fn detect(&mut self) -> io::Result<()> {
        self.input.fill(LOW_WATER)?;
        let start = self.input.available();
        self.compression = Compression::detect(start);
        if self.compression == Compression::None && ArchiveFormat::detect(start).is_none() {
            // Garbage first. Members may follow it, and plain records would have been as near.
            for compression in [Compression::Gzip, Compression::Zstd] {
                self.compression = compression;
                self.searched = Searched::default();
                if self.search(1, self.judged())?.is_some() {
                    return Ok(());
                }
            }
            self.compression = Compression::None;
        }
        Ok(())
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.input.bytes_read()
    }

    /// Reads from any offset of the file, and leaves everything as it is; `None` if the source cannot go back.
    pub(crate) fn look(&mut self, offset: u64, out: &mut [u8]) -> io::Result<Option<usize>> {
        self.input.look(offset, out)
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

    pub(crate) fn bomb(&self) -> Option<&RecordDamage> {
        self.bomb.as_ref()
    }

    pub(crate) fn report(&mut self, offset: u64, reason: DamageReason) {
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

    /// Asks the source now and then whether to go on. A window of small or false members takes seconds, and nothing is read
    /// meanwhile: whoever reads a file behind a source of its own could neither be seen at work nor be stopped.
    fn look_up(&mut self) -> io::Result<()> {
        self.looks += 1;
        if self.looks < LOOKS {
            return Ok(());
        }
        self.looks = 0;
        self.input.ask()
    }

    fn open_gzip(&mut self) -> io::Result<bool> {
        loop {
            self.look_up()?;
            self.input.fill(LOW_WATER)?;
            let window = self.input.available();
            if window.is_empty() {
                return Ok(false);
            }
            if !window.starts_with(&gzip::MAGIC) {
                if ArchiveFormat::detect(window).is_some() {
                    self.compression = Compression::None;
                    return self.open_plain();
                }
                self.pass_garbage()?;
                continue;
            }
            self.member.offset = self.input.offset();
            if self.data.len() < self.limits.member_bytes {
                self.data = vec![0; self.limits.member_bytes];
            }
            let whole = self
                .codecs
                .whole
                .get_or_insert_with(|| Box::new(libdeflater::Decompressor::new()));
            match gzip::inflate_whole(whole, window, self.input.is_exhausted(), &mut self.data) {
                Whole::Inflated { consumed, produced } => {
                    self.take_whole(consumed, produced);
                    return Ok(true);
                }
                Whole::Unfinished if self.input.grow()? => {}
                Whole::TooLarge | Whole::Unfinished => {
                    self.start_stream();
                    return Ok(true);
                }
                Whole::Doubtful => {
                    if self.open_doubtful()? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn take_whole(&mut self, consumed: usize, produced: usize) {
        self.input.advance(consumed);
        self.end = produced;
        self.member.end = Some(self.input.offset());
    }

    /// Opens a member by inflating it as a stream; `false`: it is empty, or more input is needed.
    ///
    /// A damaged member ends where the next good one starts, so that the codec does not run into it. One that merely goes
    /// on behind the window is not damaged, and may well hold what looks like a member: that is why it is inflated beyond
    /// the next good one. In a file of many damaged members that is done only so often.
    fn open_doubtful(&mut self) -> io::Result<bool> {
        let offset = self.input.offset();
        let next = self.search(1, self.judged())?;
        let allowance = (OVERRUN_BYTES + OVERRUN_FACTOR * offset).saturating_sub(self.overrun);
        let next_member = next.map(|at| NextMember { at, allowance });
        let streamed = {
            let (window, mut ask) = self.input.window_and_ask();
            let gzip = self.codecs.gzip();
            gzip.inflate(window, next_member, &mut self.data, &mut ask)?
        };
        let goes_on = match streamed {
            Streamed::Inflated { consumed, produced } => {
                self.take_whole(consumed, produced);
                return Ok(produced > 0);
            }
            Streamed::TooLarge => true,
            Streamed::Unfinished => {
                if self.input.grow()? {
                    return Ok(false);
                }
                !self.input.is_exhausted()
            }
            Streamed::Bad { overrun } => {
                self.overrun += overrun;
                false
            }
        };
        self.start_stream();
        if !goes_on {
            self.member.fence = next.map(|next| offset + next as u64);
        }
        Ok(true)
    }

    fn open_zstd(&mut self) -> io::Result<bool> {
        loop {
            self.look_up()?;
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
        self.look_up()?;
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
                    self.fail(DamageReason::TruncatedMember { inflated })?;
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
        if self.inflated() / ReaderLimits::BOMB_RATIO <= packed {
            return Ok(());
        }
        let reason = DamageReason::Bomb {
            packed,
            limit: self.limits.bomb_bytes,
        };
        self.bomb = Some(RecordDamage {
            record: self.record,
            offset: self.member.offset,
            reason: reason.clone(),
        });
        self.input.clear_mark();
        self.fail(reason)
    }

    /// Ends the member at the fault, and finds the next one.
    fn fail(&mut self, reason: DamageReason) -> io::Result<()> {
        self.report(self.member.offset, reason);
        self.member.failed = true;
        if let Some(fence) = self.member.fence {
            let left =
                usize::try_from(fence - self.input.offset()).expect("the fence is in the window");
            self.input.advance(left);
            self.input.clear_mark();
        } else {
            self.input.rewind();
            self.find_member()?;
        }
        self.member.end = Some(self.input.offset());
        Ok(())
    }

    /// Passes over bytes that belong to no member.
    fn pass_garbage(&mut self) -> io::Result<()> {
        let offset = self.input.offset();
        let start = Snippet::of(self.input.available());
        self.find_member()?;
        self.report(
            offset,
            DamageReason::Garbage {
                bytes: self.input.offset() - offset,
                start,
            },
        );
        Ok(())
    }

    /// Goes to the next member behind this byte that inflates to a record, or to the end.
    fn find_member(&mut self) -> io::Result<()> {
        let mut from = 1;
        loop {
            self.input.fill(LOW_WATER)?;
            let judged = self.judged();
            if let Some(at) = self.search(from, judged)? {
                self.input.advance(at);
                return Ok(());
            }
            self.input.advance(judged);
            if self.input.is_exhausted() {
                return Ok(());
            }
            from = 0;
        }
    }

    /// Returns how far the window can be searched: enough of a member must be at hand to judge it.
    fn judged(&self) -> usize {
        let window = self.input.available().len();
        if self.input.is_exhausted() {
            window
        } else {
            window.saturating_sub(PROBE_BYTES)
        }
    }

    /// Returns where in the window, from `from` on and before `judged`, the next member starts that inflates to a record.
    /// What was looked at once is not looked at again: a file of damaged members is searched once, not once for each.
    fn search(&mut self, from: usize, judged: usize) -> io::Result<Option<usize>> {
        let base = self.input.offset();
        let (start, end) = (base + from as u64, base + judged as u64);
        if !(self.searched.from..=self.searched.to).contains(&start) {
            self.searched = Searched {
                from: start,
                to: start,
                found: false,
            };
        }
        if !self.searched.found && self.searched.to < end {
            let from = usize::try_from(self.searched.to - base).unwrap_or(judged);
            let found = self.probe_from(from, judged)?;
            self.searched.found = found.is_some();
            self.searched.to = base + found.unwrap_or(judged) as u64;
        }
        // What was found in a larger window may lie behind this one.
        let found = self.searched.found && self.searched.to < end;
        Ok(found.then(|| usize::try_from(self.searched.to - base).unwrap_or(judged)))
    }

    fn probe_from(&mut self, from: usize, judged: usize) -> io::Result<Option<usize>> {
        let magic: &[u8] = match self.compression {
            Compression::Zstd => &frame::MAGIC,
            _ => &gzip::MAGIC,
        };
        let magic = memmem::Finder::new(magic);
        let mut room = vec![0; PROBE_BYTES];
        let mut from = from;
        loop {
            self.look_up()?;
            let window = self.input.available();
            let next = magic.find(window.get(from..).unwrap_or_default());
            let Some(at) = next.map(|next| from + next).filter(|at| *at < judged) else {
                return Ok(None);
            };
            let format = match self.compression {
                Compression::Zstd => self
                    .codecs
                    .zstd(&self.limits)?
                    .probe(&window[at..], &mut room),
                _ => self.codecs.gzip().probe(&window[at..], &mut room),
            };
            if format.is_some() {
                return Ok(Some(at));
            }
            from = at + 1;
        }
    }

    /// Turns from plain records to members, if one that holds a record starts here.
    pub(crate) fn turn_to_members(&mut self) -> io::Result<bool> {
        if self.compression != Compression::None {
            return Ok(false);
        }
        self.fill(PROBE_BYTES)?;
        let start = &self.data[self.position..self.end];
        let compression = Compression::detect(start);
        let mut room = vec![0; PROBE_BYTES];
        let format = match compression {
            Compression::None => None,
            Compression::Gzip => self.codecs.gzip().probe(start, &mut room),
            Compression::Zstd => self.codecs.zstd(&self.limits)?.probe(start, &mut room),
        };
        if format.is_none() {
            return Ok(false);
        }
        self.input.put_back(start);
        self.position = self.end;
        self.compression = compression;
        self.searched = Searched::default();
        self.member.end = Some(self.input.offset());
        Ok(true)
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
                    self.report(offset, DamageReason::Dictionary { message });
                }
            }
        }
        let mut left = bytes;
        while left > 0 {
            self.input.fill(1)?;
            let at_hand = self.input.available().len();
            if at_hand == 0 {
                self.report(offset, DamageReason::TruncatedMember { inflated: 0 });
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

    fn zstd(&mut self, limits: &ReaderLimits) -> io::Result<&mut ZstdStream> {
        match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            none => Ok(none.insert(ZstdStream::new(limits.zstd_window_log)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::tests::member;

    /// Returns how many bytes go in and come out of the codec while a file is read.
    fn work(file: &[u8]) -> u64 {
        let mut unpacked = Unpacked::new(file, ReaderLimits::default().workable(), None);
        unpacked.detect().unwrap();
        while unpacked.next_member().unwrap() {}
        let gzip = unpacked.codecs.gzip();
        gzip.restart();
        gzip.work
    }

    /// Gives all its bytes, and then wants no more to do with it.
    struct Impatient<'b>(&'b [u8]);

    impl Impatient<'_> {
        fn ask(&mut self) -> io::Result<()> {
            match self.0.is_empty() {
                true => Err(io::Error::other("asked to stop")),
                false => Ok(()),
            }
        }
    }

    impl Read for Impatient<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }

    /// What is looked for in these lies in one window: nothing is read any more when the search begins.
    #[test]
    fn a_search_within_a_window_can_be_stopped() {
        let zeros = member(&[b"WARC/1.0\r\n\r\n", &[0; 40_000][..]].concat());
        let endless = member(&vec![0; 10 << 20]);
        let long = member(&vec![0; 6 << 20]);
        // A magic number in a stored block, and then zeros until long behind what the whole member may take.
        let mut doubtful = member(b"")[..10].to_vec();
        doubtful.extend([0, 3, 0, !3, !0, 0x1F, 0x8B, 0x08]);
        doubtful.extend(&long[10..long.len() - 8]);
        let kinds = [
            ("magic numbers", gzip::MAGIC.repeat(100_000)),
            (
                "garbage first",
                [b"x", &gzip::MAGIC.repeat(100_000)[..]].concat(),
            ),
            ("members cut short", zeros[..zeros.len() - 9].repeat(5_000)),
            ("empty members", member(b"").repeat(5_000)),
            ("a member of zeros", endless),
            ("zeros before the next member", [doubtful, zeros].concat()),
            ("zstd's magic numbers", frame::MAGIC.repeat(100_000)),
        ];
        for (kind, file) in kinds {
            let limits = ReaderLimits {
                member_bytes: 1 << 20,
                header_bytes: 1 << 10,
                prefix_bytes: 1 << 10,
                ..ReaderLimits::default()
            };
            let mut unpacked = Unpacked::new(Impatient(&file), limits.workable(), None);
            unpacked.set_ask(Impatient::ask);
            let mut read = || {
                unpacked.detect()?;
                while unpacked.next_member()? {}
                Ok::<(), io::Error>(())
            };
            let error = read().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("asked to stop"), "{kind}");
        }
    }

    #[test]
    fn what_a_crafted_file_costs_follows_its_size() {
        let record = |bytes: usize| [b"WARC/1.0\r\n\r\n", &vec![0; bytes][..]].concat();
        let zeros = member(&record(40_000));
        let cut = &zeros[..zeros.len() - 9];
        let mut wrong_sum = member(&record(100));
        let end = wrong_sum.len();
        wrong_sum[end - 6] ^= 1;
        let empty = member(b"");
        for (kind, piece) in [
            ("magic numbers", &gzip::MAGIC[..]),
            ("members cut short", cut),
            ("wrong checksums", &wrong_sum),
            ("empty members", &empty),
            ("half of empty members", &empty[..11]),
        ] {
            let file = |bytes: usize| piece.repeat(bytes / piece.len());
            let (small, large) = (work(&file(20_000)), work(&file(80_000)));
            // What is inflated behind the next member to be sure is bounded for all of a file.
            let extra = OVERRUN_BYTES + OVERRUN_FACTOR * 80_000;
            assert!(
                large <= 5 * small.max(1_000) + extra,
                "{kind}: {small} {large}"
            );
            let most = 80_000 * 3_000 + 2 * extra;
            assert!(large <= most, "{kind}: {large}");
        }
    }
}
