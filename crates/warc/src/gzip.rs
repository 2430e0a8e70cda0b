//! Gzip members: inflated whole where they fit, as a stream where they do not.
//!
//! libdeflate inflates faster than anything else, but wants the whole member at hand and does not say where it ended.
//! So it is given no more than the bytes before the next magic number: if they inflate, and the trailer before that magic
//! number is theirs, the member ends there and nothing that could be a member was passed over. Whatever else stands there
//! (padding, a magic number by chance, damage) is a case for the stream, which says what it has consumed.

use std::fmt;
use std::io;
use std::sync::LazyLock;

use flate2::{Decompress, FlushDecompress, Status};
use memchr::memmem;

use crate::damage::DamageReason;
use crate::format::{self, ArchiveFormat};

/// The first bytes of a member: the magic number, and deflate as its method.
pub(crate) const MAGIC: [u8; 3] = [0x1F, 0x8B, 0x08];

const TRAILER_BYTES: usize = 8;

/// How much is inflated between two looks at how far it came.
const CHUNK_BYTES: usize = 64 << 10;

/// After so many of these chunks it is asked whether to go on.
const ASK_EVERY: u64 = 64;

/// Looks for the next member.
static NEXT_MEMBER: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(&MAGIC));

/// A name or a comment in a member's header that is longer is taken for damage. The standard allows any length; real
/// ones are file names. Without a bound, each of many half headers would be searched to the end of the window.
const TEXT_LIMIT: usize = 4 << 10;

/// What came of inflating a member in one go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// All of it.
    Inflated { consumed: usize, produced: usize },
    /// It does not fit.
    TooLarge,
    /// Nothing in the window can be its end.
    Unfinished,
    /// It is damaged, or something other than a member stands behind it: the stream knows.
    Doubtful,
}

/// Inflates the member at the start of `window` into `out`. `last` says that the file ends with the window.
pub(crate) fn inflate_whole(
    inflater: &mut libdeflater::Decompressor,
    window: &[u8],
    last: bool,
    out: &mut [u8],
) -> Whole {
    let Header::Complete(header) = Header::parse(window) else {
        return Whole::Doubtful;
    };
    let body = &window[header..];
    let end = match NEXT_MEMBER.find(body) {
        Some(next) => next,
        None if last => body.len(),
        None => return Whole::Unfinished,
    };
    let Some((packed, trailer)) = body[..end].split_last_chunk::<TRAILER_BYTES>() else {
        return Whole::Doubtful;
    };
    let produced = match inflater.deflate_decompress(packed, out) {
        Ok(produced) => produced,
        Err(libdeflater::DecompressionError::InsufficientSpace) => return Whole::TooLarge,
        Err(libdeflater::DecompressionError::BadData) => return Whole::Doubtful,
    };
    let (checksum, length) = trailer.split_at(4);
    // The trailer of nothing is eight zeros, which padding has too; of two trailers, the first is the true one.
    let is_sound = produced > 0
        && !packed.ends_with(trailer)
        && checksum == libdeflater::crc32(&out[..produced]).to_le_bytes()
        && length == (produced as u32).to_le_bytes();
    if !is_sound {
        return Whole::Doubtful;
    }
    Whole::Inflated {
        consumed: header + end,
        produced,
    }
}

/// What came of inflating a member as a stream, as far as the window goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// All of it.
    Inflated { consumed: usize, produced: usize },
    /// It does not fit, but is sound as far as was looked.
    TooLarge,
    /// The window ended before the member did.
    Unfinished,
    /// It is damaged, or so much was inflated behind the next good member.
    Bad { overrun: u64 },
}

/// The next good member in a window, and how much may be inflated behind its start to see whether it belongs to this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextMember {
    pub(crate) at: usize,
    pub(crate) allowance: u64,
}

/// The fixed and optional parts before the deflate data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Its length.
    Complete(usize),
    /// More bytes are needed to tell.
    Incomplete,
    /// This is no member.
    Absent,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Self::Absent;
        }
        let Some(&flags) = bytes.get(3) else {
            return Self::Incomplete;
        };
        if flags & 0b1110_0000 != 0 {
            return Self::Absent;
        }
        match Self::length(bytes, flags) {
            // As zlib has it: what is taken here must be readable by others.
            Some(length) if length <= bytes.len() && !Self::is_sound(&bytes[..length], flags) => {
                Self::Absent
            }
            Some(length) if length <= bytes.len() => Self::Complete(length),
            Some(_) => Self::Incomplete,
            None if Self::is_endless(bytes, flags) => Self::Absent,
            None => Self::Incomplete,
        }
    }

    /// Tells whether a text in the header goes on beyond what is allowed; the header is known to be unfinished.
    fn is_endless(bytes: &[u8], flags: u8) -> bool {
        Self::behind_extra(bytes, flags).is_some_and(|at| bytes.len() > at + 2 * TEXT_LIMIT)
    }

    /// Tells whether the header has the checksum that it states, if it states one.
    fn is_sound(header: &[u8], flags: u8) -> bool {
        if flags & 0b0000_0010 == 0 {
            return true;
        }
        let Some((before, stated)) = header.split_last_chunk::<2>() else {
            return false;
        };
        libdeflater::crc32(before).to_le_bytes()[..2] == stated[..]
    }

    /// Returns where the texts of the header start.
    fn behind_extra(bytes: &[u8], flags: u8) -> Option<usize> {
        const FIXED: usize = 10;
        if flags & 0b0000_0100 == 0 {
            return Some(FIXED);
        }
        let extra = bytes.get(FIXED..FIXED + 2)?;
        Some(FIXED + 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]])))
    }

    fn length(bytes: &[u8], flags: u8) -> Option<usize> {
        let mut at = Self::behind_extra(bytes, flags)?;
        for text in [0b0000_1000, 0b0001_0000] {
            if flags & text != 0 {
                let rest = bytes.get(at..)?;
                at += memchr::memchr(0, &rest[..rest.len().min(TEXT_LIMIT)])? + 1;
            }
        }
        if flags & 0b0000_0010 != 0 {
            at += 2;
        }
        Some(at)
    }
}

/// How far a codec came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) consumed: usize,
    pub(crate) produced: usize,
    /// The member ended with the last byte consumed.
    pub(crate) ended: bool,
}

/// A member inflated piece by piece.
pub(crate) struct GzipStream {
    inflate: Decompress,
    checksum: libdeflater::Crc,
    inflated: u64,
    part: Part,
    /// How many bytes were consumed and produced since this was made, for tests that ask what a file costs.
    #[cfg(test)]
    pub(crate) work: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Header,
    Body,
    Trailer,
}

impl fmt::Debug for GzipStream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GzipStream")
            .field("inflated", &self.inflated)
            .finish_non_exhaustive()
    }
}

impl GzipStream {
    pub(crate) fn new() -> Self {
        Self {
            inflate: Decompress::new(false),
            checksum: libdeflater::Crc::new(),
            inflated: 0,
            part: Part::Header,
            #[cfg(test)]
            work: 0,
        }
    }

    /// Makes ready for another member.
    pub(crate) fn restart(&mut self) {
        #[cfg(test)]
        {
            self.work += self.inflate.total_in() + self.inflate.total_out();
        }
        self.inflate.reset(false);
        self.checksum = libdeflater::Crc::new();
        self.inflated = 0;
        self.part = Part::Header;
    }

    /// Returns how many bytes of this member were inflated.
    pub(crate) fn inflated(&self) -> u64 {
        self.inflated
    }

    /// Inflates some of `input` into `out`. No progress means that more input is needed.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DamageReason> {
        match self.part {
            Part::Header => self.header(input),
            Part::Body => self.body(input, out),
            Part::Trailer => self.trailer(input),
        }
    }

    fn header(&mut self, input: &[u8]) -> Result<Step, DamageReason> {
        match Header::parse(input) {
            Header::Complete(consumed) => {
                self.part = Part::Body;
                Ok(Step {
                    consumed,
                    produced: 0,
                    ended: false,
                })
            }
            Header::Incomplete => Ok(Step {
                consumed: 0,
                produced: 0,
                ended: false,
            }),
            Header::Absent => Err(DamageReason::Inflate { inflated: 0 }),
        }
    }

    fn body(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DamageReason> {
        let (taken, given) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, out, FlushDecompress::None);
        let consumed = usize::try_from(self.inflate.total_in() - taken)
            .expect("no more than the input was taken");
        let produced = usize::try_from(self.inflate.total_out() - given)
            .expect("no more than the room was filled");
        self.checksum.update(&out[..produced]);
        self.inflated += produced as u64;
        match status {
            Ok(Status::StreamEnd) => self.part = Part::Trailer,
            Ok(Status::Ok | Status::BufError) => {}
            // What came out before the fault is still worth having; the fault is met again at the next step.
            Err(_) if produced > 0 => {}
            Err(_) => {
                return Err(DamageReason::Inflate {
                    inflated: self.inflated,
                });
            }
        }
        Ok(Step {
            consumed,
            produced,
            ended: false,
        })
    }

    fn trailer(&mut self, input: &[u8]) -> Result<Step, DamageReason> {
        let Some(([c0, c1, c2, c3], [l0, l1, l2, l3])) = input
            .first_chunk::<4>()
            .zip(input.get(4..).and_then(|rest| rest.first_chunk::<4>()))
        else {
            return Ok(Step {
                consumed: 0,
                produced: 0,
                ended: false,
            });
        };
        let (stated, computed) = (
            u32::from_le_bytes([*c0, *c1, *c2, *c3]),
            self.checksum.sum(),
        );
        if stated != computed {
            return Err(DamageReason::Checksum { stated, computed });
        }
        let (stated, computed) = (
            u32::from_le_bytes([*l0, *l1, *l2, *l3]),
            self.inflated as u32,
        );
        if stated != computed {
            return Err(DamageReason::MemberLength { stated, computed });
        }
        Ok(Step {
            consumed: TRAILER_BYTES,
            produced: 0,
            ended: true,
        })
    }

    /// Inflates the member at the start of `window` into `out`; where it ends is known for certain. What does not fit is
    /// inflated all the same, if another member may start in it. That may be a thousand times the window, so `ask` is
    /// asked meanwhile whether to go on; an error of it is the only one.
    pub(crate) fn inflate(
        &mut self,
        window: &[u8],
        next: Option<NextMember>,
        out: &mut [u8],
        ask: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Streamed> {
        let (mut consumed, mut produced, mut overrun) = (0, 0, 0);
        let (mut passed_over, mut chunks) = (Vec::new(), 0_u64);
        self.restart();
        let outcome = loop {
            let fits = produced < out.len();
            if !fits && next.is_none() && self.part == Part::Body {
                break Streamed::TooLarge;
            }
            if !fits {
                passed_over.resize(CHUNK_BYTES, 0);
                chunks += 1;
                if chunks % ASK_EVERY == 0 {
                    ask()?;
                }
            }
            let room = if fits {
                &mut out[produced..]
            } else {
                &mut passed_over[..]
            };
            // In pieces, so that what lies behind the next member is counted.
            let piece = &window[consumed..window.len().min(consumed + CHUNK_BYTES)];
            let Ok(step) = self.step(piece, room) else {
                break Streamed::Bad { overrun };
            };
            consumed += step.consumed;
            produced += step.produced;
            if next.is_some_and(|next| consumed > next.at) {
                overrun += (step.consumed + step.produced) as u64;
            }
            if step.ended && produced > out.len() {
                break Streamed::TooLarge;
            }
            if step.ended {
                break Streamed::Inflated { consumed, produced };
            }
            if step.consumed == 0 && step.produced == 0 {
                break Streamed::Unfinished;
            }
            if next.is_some_and(|next| overrun > next.allowance) {
                break Streamed::Bad { overrun };
            }
        };
        self.restart();
        Ok(outcome)
    }

    /// Tells how the record is written that the member at the start of `input` holds, if it looks like one.
    pub(crate) fn probe(&mut self, input: &[u8], out: &mut [u8]) -> Option<ArchiveFormat> {
        let Header::Complete(header) = Header::parse(input) else {
            return None;
        };
        self.restart();
        let mut produced = 0;
        // Most of what is no record shows that in its first bytes.
        for room in [out.len().min(64), out.len()] {
            let taken = usize::try_from(self.inflate.total_in()).unwrap_or(usize::MAX);
            let input = input.get(header + taken..).unwrap_or_default();
            // A fault is no matter here: what came out before it decides.
            let _ = self
                .inflate
                .decompress(input, &mut out[produced..room], FlushDecompress::None);
            produced = usize::try_from(self.inflate.total_out()).map_or(0, |bytes| bytes.min(room));
            if produced < room || !format::may_start(&out[..produced]) {
                break;
            }
        }
        self.restart();
        ArchiveFormat::detect(&out[..produced])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    pub(crate) fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// What the reader does: in one go if that is beyond doubt, else as a stream.
    fn inflate(window: &[u8], room: usize) -> (Streamed, Vec<u8>) {
        let mut out = vec![0; room];
        let inflater = &mut libdeflater::Decompressor::new();
        let streamed = match inflate_whole(inflater, window, true, &mut out) {
            Whole::Inflated { consumed, produced } => Streamed::Inflated { consumed, produced },
            Whole::TooLarge => Streamed::TooLarge,
            Whole::Unfinished | Whole::Doubtful => GzipStream::new()
                .inflate(window, None, &mut out, &mut || Ok(()))
                .unwrap(),
        };
        (streamed, out)
    }

    fn whole(consumed: usize, produced: usize) -> Streamed {
        Streamed::Inflated { consumed, produced }
    }

    #[test]
    fn whole_members_end_where_they_end() {
        let one = member(b"one");
        let mut window = one.clone();
        window.extend(member(b"two"));
        let (streamed, out) = inflate(&window, 100);
        assert_eq!(streamed, whole(one.len(), 3));
        assert_eq!(&out[..3], b"one");
        assert_eq!(inflate(&window, 2).0, Streamed::TooLarge);
        let cut = inflate(&window[..one.len() - 1], 100).0;
        assert_eq!(cut, Streamed::Unfinished);
        window.truncate(one.len());
        window.extend([0; 100]);
        assert_eq!(inflate(&window, 100).0, whole(one.len(), 3));
    }

    #[test]
    fn a_trailer_that_stands_again_later_does_not_pass_over_members() {
        let (one, two) = (member(b"one"), member(b"two"));
        let mut window = [&one[..], &two, &one].concat();
        window[one.len() - 6] ^= 1;
        let bad = inflate(&window, 100).0;
        assert!(matches!(bad, Streamed::Bad { .. }), "{bad:?}");
    }

    #[test]
    fn an_empty_member_is_inflated_to_nothing() {
        let empty = member(b"");
        assert_eq!(inflate(&empty, 100).0, whole(empty.len(), 0));
    }

    #[test]
    fn a_payload_that_repeats_the_trailer_does_not_end_the_member() {
        // Stored data that holds the trailer of the member itself, with no magic number behind it.
        let mut stored = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        stored.write_all(b"payload").unwrap();
        let mut bytes = stored.finish().unwrap();
        let trailer: Vec<u8> = bytes[bytes.len() - 8..].to_vec();
        let end = bytes.len();
        bytes.extend(&trailer);
        bytes.extend(member(b"next"));
        // The first of two equal trailers is the true one here; the second has the magic number behind it.
        assert_eq!(inflate(&bytes[..end], 100).0, whole(end, 7));
        assert_eq!(inflate(&bytes, 100).0, whole(end, 7));
    }

    /// Returns four bytes that give `start` this checksum.
    fn forge(start: &[u8], wanted: u32) -> [u8; 4] {
        let mut table = [0_u32; 256];
        for (byte, entry) in (0_u32..).zip(&mut table) {
            *entry = (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)));
        }
        let (mut steps, mut crc) = ([0; 4], !wanted);
        for step in steps.iter_mut().rev() {
            *step = table.iter().position(|t| t >> 24 == crc >> 24).unwrap();
            crc = (crc ^ table[*step]) << 8;
        }
        let mut crc = !libdeflater::crc32(start);
        steps.map(|step| {
            let byte = crc.to_le_bytes()[0] ^ u8::try_from(step).unwrap();
            crc = (crc >> 8) ^ table[step];
            byte
        })
    }

    #[test]
    fn a_payload_made_to_look_like_the_end_is_not_the_end() {
        // Stored data with its own checksum and length in it, and a member behind them, which anybody on the web can make.
        let (checksum, length) = (0x1234_5678_u32, 40_u32);
        let mut payload = vec![b'x'; 8];
        payload.extend(checksum.to_le_bytes());
        payload.extend(length.to_le_bytes());
        payload.extend(MAGIC);
        payload.resize(36, b'y');
        payload.extend(forge(&payload, checksum));
        assert_eq!(libdeflater::crc32(&payload), checksum);
        let mut stored = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        stored.write_all(&payload).unwrap();
        let mut window = stored.finish().unwrap();
        let end = window.len();
        assert_eq!(inflate(&window, 100).0, whole(end, 40));
        window.extend(b"padding");
        assert_eq!(inflate(&window, 100).0, whole(end, 40));
        window.extend(member(b"next"));
        assert_eq!(inflate(&window, 100).0, whole(end, 40));
    }

    #[test]
    fn optional_header_fields_are_passed_over() {
        let plain = member(b"payload");
        let mut full = vec![0x1F, 0x8B, 0x08, 0b0001_1110, 0, 0, 0, 0, 0, 3];
        full.extend([4, 0]);
        full.extend(b"LX\0\0name\0comment\0");
        let sum = libdeflater::crc32(&full).to_le_bytes();
        full.extend(&sum[..2]);
        full.extend(&plain[10..]);
        assert_eq!(inflate(&full, 100).0, whole(full.len(), 7));
        assert_eq!(Header::parse(&full[..14]), Header::Incomplete);
        assert_eq!(Header::parse(&[0x1F, 0x8B, 0x08, 0xE0]), Header::Absent);
        // Half members before a whole one look like a header of every field, with a wrong sum.
        let padded = [&MAGIC, &MAGIC, &plain[..]].concat();
        assert_eq!(Header::parse(&padded), Header::Absent);
    }

    #[test]
    fn half_headers_are_not_searched_to_the_end_of_the_window() {
        let mut half = vec![0x1F, 0x8B, 0x08, 0b0001_1000, 0, 0, 0, 0, 0, 3];
        half.resize(10 + TEXT_LIMIT, b'x');
        assert_eq!(Header::parse(&half), Header::Incomplete);
        half.resize(11 + 2 * TEXT_LIMIT, b'x');
        assert_eq!(Header::parse(&half), Header::Absent);
        // A text that is too long is not made good by what comes later.
        half.push(0);
        assert_eq!(Header::parse(&half), Header::Absent);
    }

    #[test]
    fn a_stream_gives_the_same_bytes_in_small_steps() {
        let payload: Vec<u8> = (0..100_000u32)
            .flat_map(|number| number.wrapping_mul(number).to_le_bytes())
            .collect();
        let bytes = member(&payload);
        let (mut stream, mut at, mut seen, mut out) =
            (GzipStream::new(), 0, Vec::new(), vec![0; 1000]);
        loop {
            let step = stream
                .step(&bytes[at..(at + 333).min(bytes.len())], &mut out)
                .unwrap();
            at += step.consumed;
            seen.extend_from_slice(&out[..step.produced]);
            if step.ended {
                break;
            }
        }
        assert_eq!(at, bytes.len());
        assert!(seen == payload);
    }

    #[test]
    fn a_stream_names_the_fault() {
        let mut bytes = member(b"some payload");
        let end = bytes.len();
        bytes[end - 6] ^= 1;
        let (mut stream, mut at, mut out) = (GzipStream::new(), 0, vec![0; 100]);
        let fault = loop {
            match stream.step(&bytes[at..], &mut out) {
                Ok(step) => at += step.consumed,
                Err(fault) => break fault,
            }
        };
        assert!(matches!(fault, DamageReason::Checksum { .. }));
    }
}
