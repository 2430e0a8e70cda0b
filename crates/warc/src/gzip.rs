//! Gzip members: inflated whole where they fit, as a stream where they do not.
//!
//! libdeflate inflates faster than anything else, but wants the whole member at hand and does not say where it ended.
//! The end is found by the trailer: the checksum and the length of the inflated bytes, eight bytes that must follow the
//! deflate data. Eight wrong bytes of the same value, with a gzip magic number behind them, would have to stand inside
//! the same member for this to err; where anything else stands behind them, the member is inflated once more to be sure.

use std::fmt;
use std::sync::LazyLock;

use flate2::{Decompress, FlushDecompress, Status};
use memchr::memmem;

use crate::damage::Reason;

/// The first bytes of a member: the magic number, and deflate as its method.
pub(crate) const MAGIC: [u8; 3] = [0x1F, 0x8B, 0x08];

const TRAILER_BYTES: usize = 8;

/// So many magic numbers are looked at for the one behind the trailer; in deflate data one stands by chance every 16 MB.
const MAGICS: usize = 4;

/// Looks for the next member.
static NEXT_MEMBER: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(&MAGIC));

/// A member header beyond this length is taken for damage. The standard allows any length; real ones have ten bytes.
const HEADER_LIMIT: usize = 128 << 10;

/// What came of inflating a member in one go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// All of it.
    Inflated { consumed: usize, produced: usize },
    /// It does not fit.
    TooLarge,
    /// It is damaged, or does not end in the window.
    Bad,
}

/// Inflates the member at the start of `window` into `out`. `last` says that the file ends with the window.
pub(crate) fn inflate_whole(
    inflater: &mut libdeflater::Decompressor,
    window: &[u8],
    last: bool,
    out: &mut [u8],
) -> Whole {
    let Header::Complete(header) = Header::parse(window) else {
        return Whole::Bad;
    };
    let body = &window[header..];
    let produced = match inflater.deflate_decompress(body, out) {
        Ok(produced) => produced,
        Err(libdeflater::DecompressionError::InsufficientSpace) => return Whole::TooLarge,
        Err(libdeflater::DecompressionError::BadData) => return Whole::Bad,
    };
    if produced == 0 {
        // The trailer of nothing is eight zeros, which the deflate data may run into.
        return inflate_empty(window);
    }
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..4].copy_from_slice(&libdeflater::crc32(&out[..produced]).to_le_bytes());
    trailer[4..].copy_from_slice(&(produced as u32).to_le_bytes());
    let consumed = match find_trailer(body, &trailer, last) {
        Trailer::At(at) => Some(header + at + TRAILER_BYTES),
        Trailer::Doubtful => end_of_member(window),
        Trailer::Missing => None,
    };
    match consumed {
        Some(consumed) => Whole::Inflated { consumed, produced },
        None => Whole::Bad,
    }
}

fn inflate_empty(window: &[u8]) -> Whole {
    match end_of_member(window) {
        Some(consumed) => Whole::Inflated {
            consumed,
            produced: 0,
        },
        None => Whole::Bad,
    }
}

/// Returns where the member at the start of `window` ends, by inflating it once more.
fn end_of_member(window: &[u8]) -> Option<usize> {
    let (mut stream, mut consumed) = (GzipStream::new(), 0);
    let mut passed_over = vec![0; 32 << 10];
    loop {
        let step = stream.step(&window[consumed..], &mut passed_over).ok()?;
        consumed += step.consumed;
        if step.ended {
            return Some(consumed);
        }
        if step.consumed == 0 && step.produced == 0 {
            return None;
        }
    }
}

/// Where the trailer of a member is.
enum Trailer {
    /// There, with a member or the end of the file behind it.
    At(usize),
    /// The same bytes stand there with something else behind them.
    Doubtful,
    /// Not in the window.
    Missing,
}

/// Finds the trailer. Where it is doubtful, looking on for a better one would read the rest of the window for each
/// member of a file with padding between them.
fn find_trailer(body: &[u8], trailer: &[u8; TRAILER_BYTES], last: bool) -> Trailer {
    // Nearly always the next member follows at once. Its magic number is looked for by the same searcher each time; one
    // for the trailer has to be made anew.
    let before = |at: &usize| body[..*at].ends_with(trailer);
    let mut magics = NEXT_MEMBER.find_iter(body).take(MAGICS);
    if let Some(next) = magics.find(before) {
        return Trailer::At(next - TRAILER_BYTES);
    }
    let Some(at) = memmem::find(body, trailer) else {
        return Trailer::Missing;
    };
    let behind = &body[at + TRAILER_BYTES..];
    let known = behind.len().min(MAGIC.len());
    if behind[..known] == MAGIC[..known] && (known > 0 || last) {
        return Trailer::At(at);
    }
    Trailer::Doubtful
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
            _ if bytes.len() >= HEADER_LIMIT => Self::Absent,
            _ => Self::Incomplete,
        }
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

    fn length(bytes: &[u8], flags: u8) -> Option<usize> {
        let mut at = 10;
        if flags & 0b0000_0100 != 0 {
            let extra = bytes.get(at..at + 2)?;
            at += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
        }
        for text in [0b0000_1000, 0b0001_0000] {
            if flags & text != 0 {
                at += memchr::memchr(0, bytes.get(at..)?)? + 1;
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
        }
    }

    /// Makes ready for another member.
    pub(crate) fn restart(&mut self) {
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
    pub(crate) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, Reason> {
        match self.part {
            Part::Header => self.header(input),
            Part::Body => self.body(input, out),
            Part::Trailer => self.trailer(input),
        }
    }

    fn header(&mut self, input: &[u8]) -> Result<Step, Reason> {
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
            Header::Absent => Err(Reason::Inflate { inflated: 0 }),
        }
    }

    fn body(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, Reason> {
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
                return Err(Reason::Inflate {
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

    fn trailer(&mut self, input: &[u8]) -> Result<Step, Reason> {
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
            return Err(Reason::Checksum { stated, computed });
        }
        let (stated, computed) = (
            u32::from_le_bytes([*l0, *l1, *l2, *l3]),
            self.inflated as u32,
        );
        if stated != computed {
            return Err(Reason::MemberLength { stated, computed });
        }
        Ok(Step {
            consumed: TRAILER_BYTES,
            produced: 0,
            ended: true,
        })
    }

    /// Tells whether the member at the start of `input` is damaged; that it goes on behind `input` is no damage.
    pub(crate) fn fails(&mut self, mut input: &[u8]) -> bool {
        let mut out = vec![0; 64 << 10];
        self.restart();
        let fails = loop {
            match self.step(input, &mut out) {
                Err(_) => break true,
                Ok(step) if step.ended || (step.consumed == 0 && step.produced == 0) => {
                    break false;
                }
                Ok(step) => input = &input[step.consumed..],
            }
        };
        self.restart();
        fails
    }

    /// Returns the first bytes of what may be a member, as many as come out of `input` and fit in `out`.
    pub(crate) fn probe<'out>(&mut self, input: &[u8], out: &'out mut [u8]) -> &'out [u8] {
        let Header::Complete(header) = Header::parse(input) else {
            return &[];
        };
        self.restart();
        // A fault is no matter here: what came out before it decides.
        let _ = self
            .inflate
            .decompress(&input[header..], out, FlushDecompress::None);
        let produced =
            usize::try_from(self.inflate.total_out()).map_or(0, |produced| produced.min(out.len()));
        self.restart();
        &out[..produced]
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

    fn inflate(window: &[u8], room: usize) -> (Whole, Vec<u8>) {
        let mut out = vec![0; room];
        let whole = inflate_whole(
            &mut libdeflater::Decompressor::new(),
            window,
            true,
            &mut out,
        );
        (whole, out)
    }

    #[test]
    fn whole_members_end_where_they_end() {
        let one = member(b"one");
        let mut window = one.clone();
        window.extend(member(b"two"));
        let (whole, out) = inflate(&window, 100);
        assert_eq!(
            whole,
            Whole::Inflated {
                consumed: one.len(),
                produced: 3
            }
        );
        assert_eq!(&out[..3], b"one");
        assert_eq!(inflate(&window, 2).0, Whole::TooLarge);
        assert_eq!(inflate(&window[..one.len() - 1], 100).0, Whole::Bad);
        window.truncate(one.len());
        window.extend([0; 100]);
        assert_eq!(
            inflate(&window, 100).0,
            Whole::Inflated {
                consumed: one.len(),
                produced: 3
            }
        );
    }

    #[test]
    fn an_empty_member_is_inflated_to_nothing() {
        let empty = member(b"");
        assert_eq!(
            inflate(&empty, 100).0,
            Whole::Inflated {
                consumed: empty.len(),
                produced: 0
            }
        );
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
        let (whole, _) = inflate(&bytes[..end], 100);
        assert_eq!(
            whole,
            Whole::Inflated {
                consumed: end,
                produced: 7
            }
        );
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
        // Stored data with its own checksum and length in it, which anybody on the web can make.
        let (checksum, length) = (0x1234_5678_u32, 40_u32);
        let mut payload = vec![b'x'; 16];
        payload.extend(checksum.to_le_bytes());
        payload.extend(length.to_le_bytes());
        payload.resize(36, b'y');
        payload.extend(forge(&payload, checksum));
        assert_eq!(libdeflater::crc32(&payload), checksum);
        let mut stored = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        stored.write_all(&payload).unwrap();
        let mut window = stored.finish().unwrap();
        let end = Whole::Inflated {
            consumed: window.len(),
            produced: 40,
        };
        assert_eq!(inflate(&window, 100).0, end);
        window.extend(b"padding");
        assert_eq!(inflate(&window, 100).0, end);
        window.extend(member(b"next"));
        assert_eq!(inflate(&window, 100).0, end);
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
        assert_eq!(
            inflate(&full, 100).0,
            Whole::Inflated {
                consumed: full.len(),
                produced: 7
            }
        );
        assert_eq!(Header::parse(&full[..14]), Header::Incomplete);
        assert_eq!(Header::parse(&[0x1F, 0x8B, 0x08, 0xE0]), Header::Absent);
        // Half members before a whole one look like a header of every field, with a wrong sum.
        let padded = [&MAGIC, &MAGIC, &plain[..]].concat();
        assert_eq!(Header::parse(&padded), Header::Absent);
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
        assert!(matches!(fault, Reason::Checksum { .. }));
    }
}
