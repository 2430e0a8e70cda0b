//! Takes chunked bodies apart beside the raw bytes, which are kept as they are.
//!
//! RFC 9112 section 7.1, and what servers really send: sizes in any case, padded with zeros or blanks, line ends
//! without CR, extensions, trailers. Where the framing is damaged, decoding ends: what was decoded until there is the
//! payload. Nothing is buffered.

/// What one line of framing may have, the extension included.
const LINE_BYTES: u32 = 8 * 1024;
/// What all trailers together may have.
const TRAILER_BYTES: u32 = 64 * 1024;

/// Decodes one chunked body, piece by piece.
#[derive(Debug, Clone)]
pub(crate) struct ChunkedDecoder {
    state: ChunkState,
    /// Bytes of the body taken so far, framing included.
    taken: u64,
    /// Bytes of the line, or of the trailers.
    line: u32,
    last_chunk_seen: bool,
    chunk_seen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: bool },
    AfterSize { value: u64 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerStartLf,
    Done,
    Damaged(ChunkDamage),
}

/// How a chunked body is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkDamage {
    /// Where in the body, framing included.
    pub offset: u64,
    /// What is wrong there.
    pub fault: ChunkFault,
}

/// What is wrong with a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// The first size is none: the body is not chunked at all. It is taken for its own payload.
    #[error("the body is not chunked")]
    NotChunked,
    /// A later size is none.
    #[error("no chunk size")]
    Size,
    /// A size does not fit 64 bits.
    #[error("chunk size too large")]
    TooLarge,
    /// A line of framing is longer than any honest one.
    #[error("chunk line too long")]
    LineTooLong,
    /// No line end behind a chunk.
    #[error("no line end behind the chunk")]
    NoLineEnd,
    /// The trailers are longer than any honest ones.
    #[error("trailers too long")]
    TrailersTooLong,
}

impl ChunkedDecoder {
    pub(crate) fn new() -> Self {
        Self {
            state: ChunkState::Size {
                value: 0,
                digits: false,
            },
            taken: 0,
            line: 0,
            last_chunk_seen: false,
            chunk_seen: false,
        }
    }

    /// Takes a piece of the body, gives pieces of the payload, and returns how many bytes belong to the message: all,
    /// unless the body ends in this piece. After damage everything is taken and nothing given.
    pub(crate) fn push(&mut self, input: &[u8], mut payload: impl FnMut(&[u8])) -> usize {
        let mut at = 0;
        while at < input.len() {
            match self.state {
                ChunkState::Done => break,
                ChunkState::Damaged(_) => {
                    self.taken += (input.len() - at) as u64;
                    return input.len();
                }
                ChunkState::Data { left } => {
                    let rest = (input.len() - at) as u64;
                    let count = usize::try_from(left.min(rest)).expect("no more than the rest");
                    payload(&input[at..at + count]);
                    at += count;
                    self.taken += count as u64;
                    self.state = match left - count as u64 {
                        0 => ChunkState::DataCr,
                        left => ChunkState::Data { left },
                    };
                }
                ChunkState::Size { .. }
                | ChunkState::AfterSize { .. }
                | ChunkState::Extension { .. }
                | ChunkState::SizeLf { .. }
                | ChunkState::DataCr
                | ChunkState::DataLf
                | ChunkState::TrailerStart
                | ChunkState::Trailer
                | ChunkState::TrailerStartLf => {
                    self.state = self.frame(input[at]);
                    if !matches!(self.state, ChunkState::Damaged(_)) {
                        at += 1;
                        self.taken += 1;
                    }
                }
            }
        }
        at
    }

    /// Tells whether the message is over.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Tells whether the chunk of size 0 came: the payload is whole, even if the message is not.
    pub(crate) fn last_chunk_seen(&self) -> bool {
        self.last_chunk_seen
    }

    /// Tells whether the first size has been read: the body is chunked indeed.
    pub(crate) fn has_begun(&self) -> bool {
        self.chunk_seen || self.last_chunk_seen
    }

    pub(crate) fn damage(&self) -> Option<ChunkDamage> {
        match self.state {
            ChunkState::Damaged(damage) => Some(damage),
            _ => None,
        }
    }

    /// Takes one byte of framing.
    fn frame(&mut self, byte: u8) -> ChunkState {
        self.line += 1;
        if self.line > LINE_BYTES && !self.last_chunk_seen {
            return self.damaged(ChunkFault::LineTooLong);
        }
        match self.state {
            ChunkState::Size { value, digits } => match byte {
                b'\n' if digits => self.begin_chunk(value),
                b'\r' if digits => ChunkState::SizeLf { value },
                b';' if digits => ChunkState::Extension { value },
                b' ' | b'\t' if digits => ChunkState::AfterSize { value },
                b' ' | b'\t' => self.state,
                _ => match char::from(byte).to_digit(16) {
                    None => self.damaged(ChunkFault::Size),
                    Some(_) if value >> 60 != 0 => self.damaged(ChunkFault::TooLarge),
                    Some(digit) => ChunkState::Size {
                        value: value << 4 | u64::from(digit),
                        digits: true,
                    },
                },
            },
            ChunkState::AfterSize { value } => match byte {
                b'\n' => self.begin_chunk(value),
                b'\r' => ChunkState::SizeLf { value },
                b';' => ChunkState::Extension { value },
                b' ' | b'\t' => self.state,
                _ => self.damaged(ChunkFault::Size),
            },
            // A CR inside an extension that no LF follows is part of the extension.
            ChunkState::Extension { value } => match byte {
                b'\n' => self.begin_chunk(value),
                _ => self.state,
            },
            ChunkState::SizeLf { value } => match byte {
                b'\n' => self.begin_chunk(value),
                _ => self.damaged(ChunkFault::Size),
            },
            ChunkState::DataCr => match byte {
                b'\r' => ChunkState::DataLf,
                b'\n' => self.begin_line(),
                _ => self.damaged(ChunkFault::NoLineEnd),
            },
            ChunkState::DataLf => match byte {
                b'\n' => self.begin_line(),
                _ => self.damaged(ChunkFault::NoLineEnd),
            },
            ChunkState::TrailerStart | ChunkState::Trailer | ChunkState::TrailerStartLf
                if self.line > TRAILER_BYTES =>
            {
                self.damaged(ChunkFault::TrailersTooLong)
            }
            ChunkState::TrailerStart => match byte {
                b'\n' => ChunkState::Done,
                b'\r' => ChunkState::TrailerStartLf,
                _ => ChunkState::Trailer,
            },
            ChunkState::TrailerStartLf => match byte {
                b'\n' => ChunkState::Done,
                _ => ChunkState::Trailer,
            },
            ChunkState::Trailer => match byte {
                b'\n' => ChunkState::TrailerStart,
                _ => ChunkState::Trailer,
            },
            ChunkState::Data { .. } | ChunkState::Done | ChunkState::Damaged(_) => self.state,
        }
    }

    fn begin_line(&mut self) -> ChunkState {
        self.line = 0;
        ChunkState::Size {
            value: 0,
            digits: false,
        }
    }

    fn begin_chunk(&mut self, size: u64) -> ChunkState {
        self.line = 0;
        if size == 0 {
            self.last_chunk_seen = true;
            ChunkState::TrailerStart
        } else {
            self.chunk_seen = true;
            ChunkState::Data { left: size }
        }
    }

    fn damaged(&self, fault: ChunkFault) -> ChunkState {
        ChunkState::Damaged(ChunkDamage {
            offset: self.taken,
            fault: if self.has_begun() {
                fault
            } else {
                ChunkFault::NotChunked
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes in pieces of `step` bytes: payload, bytes of the message, and the decoder.
    fn decode(body: &[u8], step: usize) -> (Vec<u8>, usize, ChunkedDecoder) {
        let mut decoder = ChunkedDecoder::new();
        let mut payload = Vec::new();
        let mut taken = 0;
        for piece in body.chunks(step) {
            let count = decoder.push(piece, |bytes| payload.extend_from_slice(bytes));
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        (payload, taken, decoder)
    }

    #[test]
    fn what_servers_send() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
            (b"0\r\n\r\n", b""),
            (b"0000A\r\n0123456789\r\n00\r\n\r\n", b"0123456789"),
            (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
            (b"5  \r\nhello\r\n 0\r\n\r\n", b"hello"),
            (b"5;a=b\r\nhello\r\n0;c=\"d\"\r\n\r\n", b"hello"),
            (b"5 ;a\rb\r\nhello\r\n0\r\n\r\n", b"hello"),
            (b"5\nhello\n0\n\n", b"hello"),
            (
                b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n",
                b"hello",
            ),
            (b"5\r\nhello\r\n0\r\n\rodd: 1\r\n\r\n", b"hello"),
        ];
        for (body, expected) in cases {
            for step in 1..=body.len() {
                let (payload, taken, decoder) = decode(body, step);
                assert_eq!(payload, *expected, "{}", body.escape_ascii());
                assert_eq!(taken, body.len(), "{}", body.escape_ascii());
                assert!(decoder.is_done(), "{}", body.escape_ascii());
            }
        }
    }

    #[test]
    fn what_follows_is_not_taken() {
        let (payload, taken, decoder) = decode(b"1\r\nx\r\n0\r\n\r\nHTTP/1.1", 64);
        assert_eq!((payload.as_slice(), taken), (&b"x"[..], 11));
        assert!(decoder.is_done());
    }

    #[test]
    fn damage_is_named_and_ends_decoding() {
        let long_line = [b"1\nx\n1;".as_slice(), &[b'x'; 9000]].concat();
        let long_trailer = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(20_000)].concat();
        let cases: &[(&[u8], &[u8], u64, ChunkFault)] = &[
            (b"<html>", b"", 0, ChunkFault::NotChunked),
            (b"\r\n5\r\nhello", b"", 0, ChunkFault::NotChunked),
            (b"5\r\nhelloX0\r\n\r\n", b"hello", 8, ChunkFault::NoLineEnd),
            (b"5\r\nhello\r\nzz\r\n", b"hello", 10, ChunkFault::Size),
            (b"5\r\nhello\r\n5 5\r\n", b"hello", 12, ChunkFault::Size),
            (b"5\r\nhello\r\n-1\r\n", b"hello", 10, ChunkFault::Size),
            (b"11111111111111111\r\n", b"", 16, ChunkFault::NotChunked),
            (b"1\nx\n11111111111111111\n", b"x", 20, ChunkFault::TooLarge),
            (&long_line, b"x", 8196, ChunkFault::LineTooLong),
            (&long_trailer, b"", 65539, ChunkFault::TrailersTooLong),
        ];
        for (body, expected, offset, fault) in cases {
            for step in [1, 7, body.len()] {
                let (payload, taken, decoder) = decode(body, step);
                let shown = body[..body.len().min(40)].escape_ascii();
                assert_eq!(payload, *expected, "{shown}");
                assert_eq!(taken, body.len(), "{shown}");
                let damage = decoder.damage().unwrap();
                assert_eq!((damage.offset, damage.fault), (*offset, *fault), "{shown}");
            }
        }
    }

    #[test]
    fn a_cut_body_is_neither_done_nor_damaged() {
        let body = b"5\r\nhello\r\n0\r\nT: 1\r\n\r\n";
        for cut in 0..body.len() {
            let (payload, _, decoder) = decode(&body[..cut], 3);
            assert!(b"hello".starts_with(&payload));
            assert!(!decoder.is_done() && decoder.damage().is_none());
            assert_eq!(decoder.last_chunk_seen(), cut >= 13, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_decode_alike(body: Vec<u8>, step in 1usize..40) {
            let whole = decode(&body, body.len().max(1));
            let pieces = decode(&body, step);
            prop_assert_eq!(&whole.0, &pieces.0);
            prop_assert_eq!(whole.1, pieces.1);
            prop_assert_eq!(whole.2.damage(), pieces.2.damage());
        }
    }
}
