//! Undoes content encodings for those who look for links. What is archived stays encoded.
//!
//! Nothing is refused: a body that is not what its header says is given as it is, a damaged one as far as it can be
//! read, a bomb up to the limit. How it ended can be asked afterwards.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// How many encodings may lie on top of each other.
const LAYERS: usize = 4;
/// What a decoder of zstd may need: RFC 9659 has 8 MiB for the web.
const ZSTD_WINDOW_LOG: u32 = 23;
const BUFFER_BYTES: usize = 16 * 1024;

/// Reads a payload with its content encodings undone. It never fails; [`Decoded::end`] tells how it ended.
pub struct Decoded<'p> {
    reader: Box<dyn BufRead + 'p>,
    left: u64,
    end: Option<DecodedEnd>,
}

/// How a decoded payload ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedEnd {
    /// There was no more.
    Whole,
    /// There was more than the limit.
    HttpLimit,
    /// It could not be read any further.
    Damaged(String),
}

impl fmt::Debug for Decoded<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Decoded")
            .field("left", &self.left)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl<'p> Decoded<'p> {
    /// Undoes `codings`, the last one first, and gives at most `limit_bytes`.
    #[must_use]
    pub fn new(payload: Box<dyn Read + 'p>, codings: &[String], limit_bytes: u64) -> Self {
        let mut reader: Box<dyn BufRead + 'p> = Box::new(buffered(payload));
        let mut end = None;
        for coding in codings.iter().rev().take(LAYERS) {
            match undo(coding, reader) {
                Ok(undone) => reader = Box::new(Bounded::new(undone, limit_bytes)),
                Err(error) => {
                    reader = Box::new(io::empty());
                    end = Some(DecodedEnd::Damaged(error.to_string()));
                }
            }
        }
        Self {
            reader,
            left: limit_bytes,
            end,
        }
    }

    /// Returns how it ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<&DecodedEnd> {
        self.end.as_ref()
    }
}

impl Read for Decoded<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.end.is_some() || out.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            // Only a further byte tells a bomb from a payload that has exactly the limit.
            self.end = Some(match self.reader.fill_buf() {
                Ok([]) => DecodedEnd::Whole,
                Ok(_) => DecodedEnd::HttpLimit,
                Err(error) => DecodedEnd::Damaged(error.to_string()),
            });
            return Ok(0);
        }
        let room = usize::try_from(self.left).map_or(out.len(), |left| left.min(out.len()));
        loop {
            match self.reader.read(&mut out[..room]) {
                Ok(0) => {
                    self.end = Some(DecodedEnd::Whole);
                    return Ok(0);
                }
                Ok(count) => {
                    self.left -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end = Some(DecodedEnd::Damaged(error.to_string()));
                    return Ok(0);
                }
            }
        }
    }
}

/// What comes out of one layer, up to a limit: a layer that inflates to nothing but more layers would go on for ever.
struct Bounded<Inner> {
    inner: Inner,
    left: u64,
}

impl<Inner: BufRead> Bounded<Inner> {
    /// One byte more than the limit is let through, so that who reads the last layer can tell that there is more.
    fn new(inner: Inner, limit_bytes: u64) -> Self {
        let left = limit_bytes.saturating_add(1);
        Self { inner, left }
    }
}

impl<Inner: BufRead> BufRead for Bounded<Inner> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.inner.fill_buf()?;
        if self.left == 0 && !bytes.is_empty() {
            return Err(io::Error::other("it inflates beyond the limit"));
        }
        let room = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        Ok(&bytes[..room])
    }

    fn consume(&mut self, count: usize) {
        self.left -= count as u64;
        self.inner.consume(count);
    }
}

impl<Inner: BufRead> Read for Bounded<Inner> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Undoes one encoding, if it is known and the bytes look like it.
fn undo<'p>(coding: &str, mut reader: Box<dyn BufRead + 'p>) -> io::Result<Box<dyn BufRead + 'p>> {
    let start = reader.fill_buf()?;
    Ok(match coding {
        "gzip" | "x-gzip" if start.starts_with(&[0x1f, 0x8b]) => {
            Box::new(buffered(flate2::bufread::MultiGzDecoder::new(reader)))
        }
        // The standard means zlib, some servers meant bare deflate, and browsers take both.
        "deflate" if is_zlib(start) => {
            Box::new(buffered(flate2::bufread::ZlibDecoder::new(reader)))
        }
        "deflate" => Box::new(buffered(flate2::bufread::DeflateDecoder::new(reader))),
        "br" => Box::new(buffered(brotli_decompressor::Decompressor::new(
            reader,
            BUFFER_BYTES,
        ))),
        "zstd" if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable(start) => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(buffered(decoder))
        }
        _ => reader,
    })
}

fn buffered<Source: Read>(source: Source) -> BufReader<Source> {
    BufReader::with_capacity(BUFFER_BYTES, source)
}

fn is_zlib(start: &[u8]) -> bool {
    match start {
        [first, second, ..] => {
            first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0
        }
        _ => false,
    }
}

/// A zstd stream may begin with a frame to be passed over.
fn is_skippable(start: &[u8]) -> bool {
    matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use proptest::prelude::*;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(codings: &[&str], bytes: &[u8], limit: u64) -> (Vec<u8>, DecodedEnd) {
        let codings: Vec<String> = codings.iter().map(|coding| (*coding).to_owned()).collect();
        let mut decoded = Decoded::new(Box::new(bytes), &codings, limit);
        let mut out = Vec::new();
        decoded.read_to_end(&mut out).unwrap();
        (out, decoded.end().unwrap().clone())
    }

    const TEXT: &[u8] = b"hello archive, hello archive, hello archive";
    /// [`TEXT`], as brotli 1.2 packs it.
    const BROTLI_TEXT: [u8; 19] = [
        0x1b, 0x2a, 0x00, 0xf8, 0xa5, 0xcb, 0xd0, 0xd8, 0xde, 0x54, 0x2b, 0xc4, 0x94, 0x00, 0x3d,
        0x91, 0x3a, 0x3f, 0x34,
    ];
    /// 30 MiB of zeros, likewise.
    const BROTLI_BOMB: [u8; 53] = [
        0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x8f, 0xff,
        0xff, 0x7f, 0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x11, 0x80, 0xee, 0xfd, 0x1f, 0xff, 0xff, 0xff,
        0xe0, 0x9f, 0x00, 0x88, 0xc3, 0x02, 0x00, 0xdd, 0xfb, 0xbf, 0xfc, 0xff, 0xff, 0xc2, 0x3f,
        0x01, 0x10, 0x87, 0x05, 0x00, 0xba, 0xf7, 0x5f,
    ];

    #[test]
    fn every_encoding() {
        let zstd = zstd::encode_all(TEXT, 3).unwrap();
        let cases: &[(&[&str], Vec<u8>)] = &[
            (&[], TEXT.to_vec()),
            (&["identity"], TEXT.to_vec()),
            (&["utf-8"], TEXT.to_vec()),
            (&["gzip"], gzip(TEXT)),
            (&["x-gzip"], gzip(TEXT)),
            (&["deflate"], zlib(TEXT)),
            (&["deflate"], deflate(TEXT)),
            (&["br"], BROTLI_TEXT.to_vec()),
            (&["zstd"], zstd),
            (&["deflate", "gzip"], gzip(&zlib(TEXT))),
        ];
        for (codings, bytes) in cases {
            assert_eq!(
                decode(codings, bytes, 1000),
                (TEXT.to_vec(), DecodedEnd::Whole),
                "{codings:?}"
            );
        }
    }

    #[test]
    fn layers_that_inflate_to_layers_end_at_the_limit() {
        // A hundred thousand empty members, packed three times: one byte of it becomes millions, of which nothing comes.
        let mut bytes = gzip(b"").repeat(100_000);
        for _ in 0..2 {
            bytes = gzip(&bytes);
        }
        bytes = gzip(&bytes.repeat(50));
        let (out, end) = decode(&["gzip"; 4], &bytes, 100_000);
        assert_eq!(out, b"");
        assert!(matches!(end, DecodedEnd::Damaged(_)), "{end:?}");
    }

    #[test]
    fn members_follow_each_other() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(
            decode(&["gzip"], &two, 100),
            (b"one two".to_vec(), DecodedEnd::Whole)
        );
    }

    #[test]
    fn what_is_not_encoded_is_given_as_it_is() {
        for coding in ["gzip", "zstd"] {
            assert_eq!(
                decode(&[coding], TEXT, 1000),
                (TEXT.to_vec(), DecodedEnd::Whole)
            );
        }
        for coding in ["gzip", "deflate", "zstd", "br"] {
            let (out, _) = decode(&[coding], b"", 1000);
            assert!(out.is_empty());
        }
    }

    #[test]
    fn damage_ends_it_after_what_could_be_read() {
        let noise: Vec<u8> = (0..60_000u32)
            .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for (coding, bytes) in [
            ("gzip", gzip(&noise)),
            ("deflate", zlib(&noise)),
            ("zstd", zstd::encode_all(&noise[..], 3).unwrap()),
        ] {
            let (out, end) = decode(&[coding], &bytes[..bytes.len() / 2], 1 << 20);
            assert!(noise.starts_with(&out), "{coding}");
            assert!(matches!(end, DecodedEnd::Damaged(_)), "{coding}: {end:?}");
        }
        let (out, end) = decode(&["gzip"], &[gzip(TEXT), b"garbage".to_vec()].concat(), 1000);
        assert_eq!(out, TEXT);
        assert!(matches!(end, DecodedEnd::Damaged(_)));
    }

    #[test]
    fn bombs_end_at_the_limit() {
        let zeros = vec![0; 1 << 20];
        let once = gzip(&zeros);
        for (codings, bytes) in [
            (&["gzip"][..], once.clone()),
            (&["gzip", "gzip"], gzip(&once)),
            (&["deflate"], zlib(&zeros)),
            (&["zstd"], zstd::encode_all(&zeros[..], 3).unwrap()),
            (&["br"], BROTLI_BOMB.to_vec()),
        ] {
            let (out, end) = decode(codings, &bytes, 100_000);
            assert_eq!(out.len(), 100_000, "{codings:?}");
            assert_eq!(end, DecodedEnd::HttpLimit, "{codings:?}");
        }
    }

    #[test]
    fn exactly_the_limit_is_whole() {
        let (out, end) = decode(&["gzip"], &gzip(TEXT), TEXT.len() as u64);
        assert_eq!((out.as_slice(), end), (TEXT, DecodedEnd::Whole));
    }

    #[test]
    fn a_window_too_large_for_the_web_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&vec![7; 1 << 20]).unwrap();
        let (_, end) = decode(&["zstd"], &encoder.finish().unwrap(), 1 << 30);
        assert!(matches!(end, DecodedEnd::Damaged(_)), "{end:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>, which in 0usize..4) {
            let coding = ["gzip", "deflate", "br", "zstd"][which];
            let (out, _) = decode(&[coding, coding], &bytes, 10_000);
            prop_assert!(out.len() <= 10_000);
        }
    }
}
