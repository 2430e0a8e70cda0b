//! The reader: finds records in members, and goes on behind damage.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use memchr::memchr;

use crate::arc::UrlLine;
use crate::damage::{DamageReason, RecordDamage, Snippet};
use crate::digest::{Digester, Sha1Digest};
use crate::format::{self, ArchiveFormat, Compression, WarcVersion};
use crate::header::{self, FieldSpan, Unread};
use crate::input::SeekTo;
use crate::limits::ReaderLimits;
use crate::record::{Extent, Record, RecordKind};
use crate::text;
use crate::unpack::Unpacked;

/// How much of a block that is not in memory is searched at once.
const SEARCH_BYTES: usize = 1 << 20;

/// Reads the records of a WARC or ARC file, one at a time.
///
/// See the crate's documentation for how to use it.
#[derive(Debug)]
pub struct WarcReader<Source> {
    unpacked: Unpacked<Source>,
    limits: ReaderLimits,
    spans: Vec<FieldSpan>,
    /// The header and the start of the block of a record that is too large for memory.
    kept: Vec<u8>,
    current: Current,
    started: bool,
    records: u64,
    records_in_member: u64,
    seen: Option<ArchiveFormat>,
}

/// Why reading cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarcReadError {
    /// The source failed.
    #[error("cannot read record {record}")]
    Io {
        /// The number of the record that was being read.
        record: u64,
        /// What the source said.
        source: io::Error,
    },
    /// The block was read before its digest was asked for, and is not in memory.
    #[error("block of record {record} was read already")]
    BlockTaken {
        /// The number of the record.
        record: u64,
    },
}

/// What is known of the current record.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) number: u64,
    pub(crate) format: ArchiveFormat,
    pub(crate) version: Option<WarcVersion>,
    pub(crate) kind: RecordKind,
    pub(crate) offset: u64,
    /// The offset of the record in the inflated member.
    inside: u64,
    header_bytes: usize,
    arc: Option<UrlLine>,
    pub(crate) declared: Option<u64>,
    block: Block,
    /// How much of the block was read.
    taken: u64,
    damaged: bool,
    extent: Option<Extent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// At hand, behind the header.
    Memory(usize),
    /// Behind the header, which was consumed; this much is left to come.
    Stream(u64),
}

/// A record header, read but not yet taken for true.
struct Head {
    format: ArchiveFormat,
    version: Option<WarcVersion>,
    kind: RecordKind,
    header_bytes: usize,
    arc: Option<UrlLine>,
    length: Result<Option<u64>, Snippet>,
}

impl<Source: Read> WarcReader<Source> {
    /// Reads from `source`, which should not be buffered: the reader has its own buffer.
    pub fn new(source: Source, limits: ReaderLimits) -> Self {
        Self::of(Unpacked::new(source, limits.workable(), None), limits)
    }

    /// Reads from a file that it may go back in: the length of a record too large for memory is then checked before it is
    /// believed.
    pub fn seekable(source: Source, limits: ReaderLimits) -> Self
    where
        Source: Seek,
    {
        let seek: SeekTo<Source> =
            |source, offset| source.seek(SeekFrom::Start(offset)).map(|_| ());
        Self::of(Unpacked::new(source, limits.workable(), Some(seek)), limits)
    }

    /// Asks the source now and then whether to go on, also where nothing is read for long: in a damaged file. An error ends
    /// the reading.
    #[must_use]
    pub fn asking(mut self, ask: fn(&mut Source) -> io::Result<()>) -> Self {
        self.unpacked.set_ask(ask);
        self
    }

    fn of(unpacked: Unpacked<Source>, limits: ReaderLimits) -> Self {
        let limits = limits.workable();
        Self {
            unpacked,
            limits,
            spans: Vec::new(),
            kept: Vec::new(),
            current: Current::none(),
            started: false,
            records: 0,
            records_in_member: 0,
            seen: None,
        }
    }

    /// Returns the next record; `None` at the end of the file. What was not read of the last one is passed over.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows the reader, which an iterator's item cannot"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_, Source>>, WarcReadError> {
        let found = self.advance().map_err(|source| WarcReadError::Io {
            record: self.records + 1,
            source,
        })?;
        Ok(found.then_some(Record { reader: self }))
    }

    /// Returns the damages found so far, up to the limit.
    #[must_use]
    pub fn damages(&self) -> &[RecordDamage] {
        self.unpacked.damages().kept()
    }

    /// Returns how many damages were found so far, those beyond the limit included.
    #[must_use]
    pub fn damage_count(&self) -> u64 {
        self.unpacked.damages().total()
    }

    /// Returns the last member that was given up because it inflates beyond all measure, however many damages came
    /// before it.
    #[must_use]
    pub fn bomb(&self) -> Option<&RecordDamage> {
        self.unpacked.bomb()
    }

    /// Returns how many records were found so far.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// Returns how the file is packed; before the first record was asked for, it counts as not packed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.unpacked.compression()
    }

    /// Returns how many bytes of the file were read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.unpacked.bytes_read()
    }

    fn advance(&mut self) -> io::Result<bool> {
        if !self.started {
            self.started = true;
            self.unpacked.detect()?;
        }
        self.settle_current()?;
        self.current = Current::none();
        loop {
            self.unpacked.set_record(self.records + 1);
            if !self.skip_blank_lines()? {
                if !self.unpacked.next_member()? {
                    return Ok(false);
                }
                self.records_in_member = 0;
                continue;
            }
            match self.read_head()? {
                Ok(head) => {
                    self.open(head)?;
                    return Ok(true);
                }
                Err(reason) => self.recover(reason)?,
            }
        }
    }

    /// Passes over line ends and tells whether anything follows in the member.
    fn skip_blank_lines(&mut self) -> io::Result<bool> {
        loop {
            let bytes = self.unpacked.available();
            match bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) {
                Some(blanks) => {
                    self.unpacked.consume(blanks);
                    return Ok(true);
                }
                None => {
                    self.unpacked.consume(bytes.len());
                    self.unpacked.fill(1)?;
                    if self.unpacked.available().is_empty() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn read_head(&mut self) -> io::Result<Result<Head, DamageReason>> {
        self.unpacked.fill(4 << 10)?;
        loop {
            let at_hand = self.unpacked.available().len();
            let parsed = match format::warc_version(self.unpacked.available()) {
                Some(version) => self.parse_warc_head(version),
                None => self.parse_arc_head(),
            };
            match parsed {
                Some(Ok(head)) if head.header_bytes > self.limits.header_bytes => {
                    return Ok(Err(DamageReason::HeaderBytes {
                        limit: self.limits.header_bytes,
                    }));
                }
                Some(outcome) => return Ok(outcome),
                None if self.unpacked.is_complete() => {
                    return Ok(Err(DamageReason::TruncatedHeader));
                }
                None if at_hand > self.limits.header_bytes => {
                    return Ok(Err(DamageReason::HeaderBytes {
                        limit: self.limits.header_bytes,
                    }));
                }
                None => self.unpacked.fill(2 * at_hand)?,
            }
        }
    }

    /// Reads a WARC header; `None` if more bytes are needed.
    fn parse_warc_head(&mut self, version: WarcVersion) -> Option<Result<Head, DamageReason>> {
        let bytes = self.unpacked.available();
        let first_line = memchr(b'\n', bytes)? + 1;
        let header_bytes =
            match header::parse(bytes, first_line, self.limits.header_lines, &mut self.spans) {
                Ok(header_bytes) => header_bytes,
                Err(Unread::Unfinished) => return None,
                Err(Unread::BrokenOff) => return Some(Err(DamageReason::BrokenHeader)),
                Err(Unread::TooManyLines) => {
                    return Some(Err(DamageReason::HeaderLines {
                        limit: self.limits.header_lines,
                    }));
                }
            };
        let field = |name: &str| {
            self.spans
                .iter()
                .filter(|span| span.name_length() == name.len())
                .map(|span| span.field(bytes))
                .find(|field| field.is(name))
        };
        let length = match field("Content-Length") {
            None => Ok(None),
            Some(field) => parse_length(&field.value()).map(Some),
        };
        let kind = field("WARC-Type").map_or(RecordKind::Missing, |field| {
            RecordKind::parse(text::trim_start(&field.value()))
        });
        Some(Ok(Head {
            format: ArchiveFormat::Warc,
            version: Some(version),
            kind,
            header_bytes,
            arc: None,
            length,
        }))
    }

    /// Reads an ARC URL-record line; `None` if more bytes are needed.
    fn parse_arc_head(&mut self) -> Option<Result<Head, DamageReason>> {
        self.spans.clear();
        let bytes = self.unpacked.available();
        let not_a_record = || DamageReason::NotARecord {
            start: Snippet::of(bytes),
        };
        // A file that does not begin as ARC is not searched far for the end of a line, and a line in it must look right in
        // each field.
        let after_warc = self.seen == Some(ArchiveFormat::Warc);
        if !bytes.first().is_some_and(u8::is_ascii_graphic) {
            return Some(Err(not_a_record()));
        }
        let Some(newline) = memchr(b'\n', bytes) else {
            let judged = after_warc || self.unpacked.is_complete();
            return judged.then(|| Err(not_a_record()));
        };
        let line = text::trim_end(&bytes[..newline]);
        let arc = if after_warc {
            UrlLine::parse_strictly(line)
        } else {
            UrlLine::parse(line)
        };
        let Some(arc) = arc else {
            return Some(Err(not_a_record()));
        };
        let kind = if line.starts_with(b"filedesc:") {
            RecordKind::Warcinfo
        } else {
            RecordKind::Response
        };
        let length = parse_length(&line[arc.length.clone()]).map(Some);
        Some(Ok(Head {
            format: ArchiveFormat::Arc,
            version: None,
            kind,
            header_bytes: newline + 1,
            arc: Some(arc),
            length,
        }))
    }

    fn open(&mut self, head: Head) -> io::Result<()> {
        self.records += 1;
        self.records_in_member += 1;
        self.seen = Some(head.format);
        let offset = match self.unpacked.compression() {
            Compression::None => self.unpacked.plain_offset(),
            Compression::Gzip | Compression::Zstd => self.unpacked.member_offset(),
        };
        let mut damaged = self.unpacked.has_failed();
        let declared = match head.length {
            Ok(length) => length,
            Err(found) => {
                self.unpacked
                    .report(offset, DamageReason::BadContentLength { found });
                damaged = true;
                None
            }
        };
        let missing = head.length == Ok(None);
        if missing {
            self.unpacked.report(offset, DamageReason::NoContentLength);
            damaged = true;
        }
        // Without a length, the member is the block; an uncompressed file has no such bound, and is searched instead.
        let endless = missing && self.unpacked.compression() != Compression::None;
        self.current = Current {
            number: self.records,
            format: head.format,
            version: head.version,
            kind: head.kind,
            offset,
            inside: self.unpacked.consumed(),
            header_bytes: head.header_bytes,
            arc: head.arc,
            declared,
            block: Block::Memory(0),
            taken: 0,
            damaged,
            extent: None,
        };
        self.open_block(if endless {
            u64::MAX
        } else {
            declared.unwrap_or(0)
        })
    }

    /// Has the block in memory, or the start of it.
    fn open_block(&mut self, length: u64) -> io::Result<()> {
        let header_bytes = self.current.header_bytes;
        let in_memory = usize::try_from(length)
            .ok()
            .and_then(|length| header_bytes.checked_add(length));
        let in_memory = in_memory.filter(|&bytes| bytes <= self.unpacked.capacity());
        let wanted = in_memory.unwrap_or(header_bytes + self.limits.prefix_bytes);
        // A little more shows whether a record follows.
        self.unpacked.fill(wanted.saturating_add(1 << 10))?;
        let at_hand = self.unpacked.available().len();
        let complete = self.unpacked.is_complete();
        if let Some(bytes) = in_memory.filter(|&bytes| bytes <= at_hand) {
            self.current.block = Block::Memory(bytes - header_bytes);
            self.check_length();
        } else if complete {
            let found = at_hand - header_bytes;
            self.current.block = Block::Memory(found);
            if length != u64::MAX {
                self.report_short_block(length, found as u64);
                self.check_length();
            }
        } else {
            let length = self.length_on_disk(length)?;
            self.kept.clear();
            let kept = at_hand.min(header_bytes + self.limits.prefix_bytes);
            self.kept
                .extend_from_slice(&self.unpacked.available()[..kept]);
            self.unpacked.consume(header_bytes);
            self.current.block = Block::Stream(length);
        }
        Ok(())
    }

    /// Shortens a block in memory that has swallowed the next record.
    ///
    /// In a file with one record a member, a record cannot swallow another.
    fn check_length(&mut self) {
        if !self.may_share_member() {
            return;
        }
        let Block::Memory(block_bytes) = self.current.block else {
            return;
        };
        let bytes = &self.unpacked.available()[self.current.header_bytes..];
        let (block, rest) = bytes.split_at(block_bytes);
        let at_line_start = block.last().is_none_or(|&last| last == b'\n');
        if self.is_boundary(rest, at_line_start) && !self.current.damaged {
            return;
        }
        // The first line of the next record may begin in the block and end behind it.
        let line_end = memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
        let Search::Found(at) = find_start(&bytes[..block_bytes + line_end], true, self.seen)
        else {
            return;
        };
        if at >= block_bytes {
            return;
        }
        let found = at - line_ends_before(&block[..at]);
        self.current.block = Block::Memory(found);
        if !self.current.damaged {
            self.report_short_block(block_bytes as u64, found as u64);
        }
    }

    /// Returns the length of a block that is too large for memory: what the header says or, where no record follows there,
    /// what there is before the next one. Only a source that can go back can be looked at so.
    fn length_on_disk(&mut self, length: u64) -> io::Result<u64> {
        if length == u64::MAX || self.unpacked.compression() != Compression::None {
            return Ok(length);
        }
        let start = self.unpacked.plain_offset() + self.current.header_bytes as u64;
        let last = start.saturating_add(length - 1);
        let mut around = vec![0; 1 + (4 << 10)];
        let Some(bytes) = self.unpacked.look(last, &mut around)? else {
            return Ok(length);
        };
        if let [last, rest @ ..] = &around[..bytes]
            && self.is_boundary(rest, *last == b'\n')
        {
            return Ok(length);
        }
        let Some(found) = self.find_on_disk(start, length)? else {
            return Ok(length);
        };
        self.report_short_block(length, found);
        Ok(found)
    }

    /// Looks for the start of a record in a block that is not in memory; returns how much of the block lies before it.
    fn find_on_disk(&mut self, start: u64, length: u64) -> io::Result<Option<u64>> {
        let mut window = vec![0; SEARCH_BYTES];
        let mut at = 0;
        while at < length {
            let Some(bytes) = self.unpacked.look(start + at, &mut window)? else {
                return Ok(None);
            };
            if bytes == 0 {
                return Ok(None);
            }
            let complete = bytes < window.len();
            let next = match find_start(&window[..bytes], complete, self.seen) {
                Search::Found(found) if at + (found as u64) < length => {
                    let ends = line_ends_before(&window[..found]) as u64;
                    return Ok(Some(at + found as u64 - ends));
                }
                Search::Found(_) | Search::Nothing => return Ok(None),
                // A line that fills the window starts no record.
                Search::Unsure(0) => bytes,
                Search::Unsure(line) => line,
            };
            at += next as u64;
        }
        Ok(None)
    }

    /// Tells whether what follows a block may do so: line ends, then a record or the end of the member. `at_line_start`:
    /// the block ended with a line end.
    fn is_boundary(&self, rest: &[u8], at_line_start: bool) -> bool {
        let Some(blanks) = rest.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else {
            return true;
        };
        let rest = &rest[blanks..];
        if format::warc_version(rest).is_some() {
            return true;
        }
        let undecided = !self.unpacked.is_complete();
        let newline = memchr(b'\n', rest);
        // An ARC line says nothing of where it starts: without its first letter it would still be one.
        let line = newline
            .filter(|_| blanks > 0 || at_line_start)
            .map(|newline| text::trim_end(&rest[..newline]));
        match self.current.format {
            ArchiveFormat::Warc => {
                line.is_some_and(|line| UrlLine::parse_strictly(line).is_some())
                    || (rest.len() < 8 && undecided)
            }
            ArchiveFormat::Arc => {
                line.is_some_and(|line| UrlLine::parse(line).is_some())
                    || (newline.is_none() && undecided)
            }
        }
    }

    /// Tells whether records may follow each other in this member: not once members were seen to hold one each.
    fn may_share_member(&self) -> bool {
        self.unpacked.compression() == Compression::None
            || self.unpacked.member_index() <= 1
            || self.records_in_member > 1
    }

    fn report_short_block(&mut self, declared: u64, found: u64) {
        // What a damaged member lacks was reported with the member.
        if !self.unpacked.has_failed() {
            self.unpacked.report(
                self.current.offset,
                DamageReason::ShortBlock { declared, found },
            );
        }
        self.current.damaged = true;
    }

    /// Goes on behind a place that should hold a record and does not.
    fn recover(&mut self, reason: DamageReason) -> io::Result<()> {
        if self.unpacked.has_failed() {
            self.unpacked.skip_member()?;
            return Ok(());
        }
        if self.unpacked.turn_to_members()? {
            return Ok(());
        }
        let offset = match self.unpacked.compression() {
            Compression::None => self.unpacked.plain_offset(),
            Compression::Gzip | Compression::Zstd => self.unpacked.member_offset(),
        };
        let skipped = if self.unpacked.compression() == Compression::None
            || self.unpacked.member_index() <= 1
            || reason == DamageReason::BrokenHeader
        {
            self.find_record()?
        } else {
            self.unpacked.skip_member()?
        };
        let reason = match reason {
            DamageReason::NotARecord { start } => DamageReason::Garbage {
                bytes: skipped,
                start,
            },
            other => other,
        };
        self.unpacked.report(offset, reason);
        Ok(())
    }

    /// Goes to the next line that starts a record, or to the end of the member; returns how many bytes that was.
    fn find_record(&mut self) -> io::Result<u64> {
        let start = self.unpacked.consumed();
        self.unpacked.fill(1)?;
        // The line at hand is known not to start a record that can be read.
        let mut in_line = true;
        loop {
            let bytes = self.unpacked.available();
            let complete = self.unpacked.is_complete();
            if in_line {
                let line = memchr(b'\n', bytes).map(|newline| newline + 1);
                self.unpacked.consume(line.unwrap_or(bytes.len()));
                in_line = line.is_none();
            } else {
                match find_start(bytes, complete, self.seen) {
                    Search::Found(at) => {
                        self.unpacked.consume(at);
                        break;
                    }
                    Search::Unsure(at) if bytes.len() - at <= self.limits.header_bytes => {
                        self.unpacked.consume(at);
                        let wanted = 2 * self.unpacked.available().len().max(4 << 10);
                        self.unpacked.fill(wanted)?;
                        continue;
                    }
                    Search::Unsure(_) | Search::Nothing => {
                        self.unpacked.consume(bytes.len());
                        in_line = true;
                    }
                }
            }
            self.unpacked.fill(1)?;
            if self.unpacked.available().is_empty() {
                break;
            }
        }
        Ok(self.unpacked.consumed() - start)
    }

    /// Reads to the end of the current record.
    pub(crate) fn settle(&mut self) -> Result<Extent, WarcReadError> {
        let settled = self.settle_current().map_err(|source| WarcReadError::Io {
            record: self.records,
            source,
        })?;
        Ok(settled.expect("a record was opened, as it asks for this"))
    }

    fn settle_current(&mut self) -> io::Result<Option<Extent>> {
        if self.current.number == 0 || self.current.extent.is_some() {
            return Ok(self.current.extent);
        }
        let block_bytes = match self.current.block {
            Block::Memory(bytes) => {
                self.unpacked.consume(self.current.header_bytes + bytes);
                self.current.block = Block::Stream(0);
                bytes as u64
            }
            Block::Stream(_) => {
                while self.next_piece(|_| ())? {}
                self.current.taken
            }
        };
        let offset = self.current.offset;
        let extent = if self.unpacked.compression() == Compression::None {
            Extent::Own {
                offset,
                length: self.current.header_bytes as u64 + block_bytes,
            }
        } else {
            self.settle_member()?
        };
        self.current.extent = Some(extent);
        Ok(Some(extent))
    }

    /// Finds out whether the record has its member to itself.
    fn settle_member(&mut self) -> io::Result<Extent> {
        let offset = self.current.offset;
        let mut follows = self.skip_blank_lines()?;
        if follows {
            self.unpacked.fill(4 << 10)?;
            if !self.is_boundary(self.unpacked.available(), true) {
                let start = Snippet::of(self.unpacked.available());
                let bytes = if self.may_share_member() {
                    self.find_record()?
                } else {
                    self.unpacked.skip_member()?
                };
                if !self.unpacked.has_failed() {
                    self.unpacked
                        .report(offset, DamageReason::TrailingBytes { bytes, start });
                }
                follows = !self.unpacked.available().is_empty();
            }
        }
        if follows && self.records_in_member == 1 {
            self.unpacked.report(offset, DamageReason::SharedMember);
        }
        match self.unpacked.member_end() {
            Some(end) if !follows && self.records_in_member == 1 => Ok(Extent::Own {
                offset,
                length: end - offset,
            }),
            _ => Ok(Extent::Shared {
                member: offset,
                inside: self.current.inside,
            }),
        }
    }

    /// Hands the next bytes of a block that is not in memory to `use_piece`; tells whether there were any.
    fn next_piece(&mut self, use_piece: impl FnOnce(&[u8])) -> io::Result<bool> {
        let Block::Stream(left) = self.current.block else {
            return Ok(false);
        };
        if left == 0 {
            return Ok(false);
        }
        self.unpacked.fill(1)?;
        let bytes = self.unpacked.available();
        let piece = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if piece == 0 {
            self.current.block = Block::Stream(0);
            if let Some(declared) = self.current.declared {
                self.report_short_block(declared, self.current.taken);
            }
            return Ok(false);
        }
        use_piece(&bytes[..piece]);
        self.unpacked.consume(piece);
        self.current.taken += piece as u64;
        self.current.block = Block::Stream(left - piece as u64);
        Ok(true)
    }

    pub(crate) fn read_block(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(block) = self.block() {
            let taken = usize::try_from(self.current.taken)
                .unwrap_or(usize::MAX)
                .min(block.len());
            let bytes = (block.len() - taken).min(out.len());
            out[..bytes].copy_from_slice(&block[taken..taken + bytes]);
            self.current.taken += bytes as u64;
            return Ok(bytes);
        }
        let Block::Stream(left) = self.current.block else {
            return Ok(0);
        };
        let room = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        if room == 0 {
            return Ok(0);
        }
        self.unpacked.fill(1)?;
        let bytes = self.unpacked.available();
        let piece = bytes.len().min(room);
        if piece == 0 {
            self.next_piece(|_| ())?;
            return Ok(0);
        }
        out[..piece].copy_from_slice(&bytes[..piece]);
        self.unpacked.consume(piece);
        self.current.taken += piece as u64;
        self.current.block = Block::Stream(left - piece as u64);
        Ok(piece)
    }

    /// Takes the digest of the block behind its HTTP head: `Some(None)` says that the head does not end at hand.
    pub(crate) fn digest_payload(
        &mut self,
        head: Option<Option<usize>>,
    ) -> Result<Sha1Digest, WarcReadError> {
        if let Some(block) = self.block() {
            let start = head.map_or(0, |end| end.unwrap_or(block.len()));
            return Ok(Sha1Digest::of(&block[start..]));
        }
        if self.current.taken > 0 {
            return Err(WarcReadError::BlockTaken {
                record: self.records,
            });
        }
        let mut digester = Digester::default();
        let mut end_of_head = EndOfHead::new(head.is_some());
        let record = self.records;
        while self
            .next_piece(|piece| digester.update(end_of_head.behind(piece)))
            .map_err(|source| WarcReadError::Io { record, source })?
        {}
        Ok(digester.finish())
    }

    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    pub(crate) fn spans(&self) -> &[FieldSpan] {
        &self.spans
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.current.damaged || self.unpacked.has_failed()
    }

    pub(crate) fn header(&self) -> &[u8] {
        match self.current.block {
            Block::Memory(_) => &self.unpacked.available()[..self.current.header_bytes],
            Block::Stream(_) => &self.kept[..self.current.header_bytes],
        }
    }

    pub(crate) fn arc_field(&self, field: impl FnOnce(&UrlLine) -> &Range<usize>) -> Option<&[u8]> {
        let line = self.current.arc.as_ref()?;
        Some(&self.header()[field(line).clone()])
    }

    pub(crate) fn block(&self) -> Option<&[u8]> {
        match self.current.block {
            Block::Memory(bytes) => {
                Some(&self.unpacked.available()[self.current.header_bytes..][..bytes])
            }
            Block::Stream(_) => None,
        }
    }

    pub(crate) fn block_start(&self) -> &[u8] {
        self.block()
            .unwrap_or_else(|| &self.kept[self.current.header_bytes..])
    }
}

impl Current {
    fn none() -> Self {
        Self {
            number: 0,
            format: ArchiveFormat::Warc,
            version: None,
            kind: RecordKind::Missing,
            offset: 0,
            inside: 0,
            header_bytes: 0,
            arc: None,
            declared: None,
            block: Block::Stream(0),
            taken: 0,
            damaged: false,
            extent: None,
        }
    }
}

/// Reads a length as Python's `int` does: blanks around it and a plus sign are allowed, a minus sign is not a length.
fn parse_length(value: &[u8]) -> Result<u64, Snippet> {
    let digits = text::trim_end(text::trim_start(value));
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|digits| digits.parse().ok())
        .filter(|&length| length < u64::MAX)
        .ok_or_else(|| Snippet::of(value))
}

/// Returns how many bytes of line ends, four at most, stand at the end of these bytes.
fn line_ends_before(bytes: &[u8]) -> usize {
    let ends = bytes.iter().rev().take(4);
    ends.take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count()
}

/// What a search for the start of a record came to.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    Found(usize),
    /// More bytes are needed to judge the line that starts here.
    Unsure(usize),
    /// Nothing, and the last line is not even half of a start.
    Nothing,
}

/// Looks for a line that starts a record; `bytes` starts a line. `complete` says that nothing follows them.
fn find_start(bytes: &[u8], complete: bool, seen: Option<ArchiveFormat>) -> Search {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let newline = memchr(b'\n', rest);
        if newline.is_none() && !complete {
            return Search::Unsure(at);
        }
        let line = text::trim_end(&rest[..newline.unwrap_or(rest.len())]);
        let next = newline.map_or(rest.len(), |newline| newline + 1);
        let is_start = match seen {
            Some(ArchiveFormat::Warc) => format::is_version_line(line),
            Some(ArchiveFormat::Arc) => UrlLine::parse_strictly(line).is_some(),
            None => format::is_version_line(line) || UrlLine::parse_strictly(line).is_some(),
        };
        if is_start {
            return Search::Found(at);
        }
        at += next;
    }
    if complete {
        Search::Nothing
    } else {
        Search::Unsure(bytes.len())
    }
}

/// Finds the end of an HTTP head that is longer than what is at hand.
struct EndOfHead {
    in_head: bool,
    blank_so_far: bool,
}

impl EndOfHead {
    fn new(in_head: bool) -> Self {
        Self {
            in_head,
            blank_so_far: true,
        }
    }

    /// Returns what of `piece` lies behind the head.
    fn behind<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let mut rest = piece;
        while self.in_head && !rest.is_empty() {
            let newline = memchr(b'\n', rest);
            let line = &rest[..newline.unwrap_or(rest.len())];
            self.blank_so_far &= text::trim_end(line).is_empty();
            rest = &rest[newline.map_or(rest.len(), |newline| newline + 1)..];
            if newline.is_some() {
                self.in_head = !self.blank_so_far;
                self.blank_so_far = true;
            }
        }
        rest
    }
}
