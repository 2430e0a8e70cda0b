//! Zstd frames, and the dictionary frame with which a zstd WARC file may begin.
//!
//! The convention is the IIPC's: one frame a record, and before the first one, if a dictionary was used, a skippable
//! frame of type 0x184D2A5D that holds the dictionary, raw or as a zstd frame of its own.

use std::fmt;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

use crate::damage::DamageReason;
use crate::format::ArchiveFormat;
use crate::gzip::Step;

/// The first bytes of a frame.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The first bytes of the skippable frame that holds a dictionary.
pub(crate) const DICTIONARY_MAGIC: [u8; 4] = [0x5D, 0x2A, 0x4D, 0x18];

/// The length of the head of a skippable frame: its magic number and the length of what follows.
pub(crate) const SKIPPABLE_HEAD: usize = 8;

/// Returns the number of bytes behind the head of a skippable frame, if this is one.
pub(crate) fn skippable_bytes(bytes: &[u8]) -> Option<u32> {
    let head = bytes.first_chunk::<SKIPPABLE_HEAD>()?;
    let [kind, 0x2A, 0x4D, 0x18, l0, l1, l2, l3] = *head else {
        return None;
    };
    (kind & 0xF0 == 0x50).then(|| u32::from_le_bytes([l0, l1, l2, l3]))
}

/// Frames inflated piece by piece.
pub(crate) struct ZstdStream {
    decoder: Decoder<'static>,
    window_log: u32,
    inflated: u64,
}

impl fmt::Debug for ZstdStream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ZstdStream")
            .field("inflated", &self.inflated)
            .finish_non_exhaustive()
    }
}

impl ZstdStream {
    pub(crate) fn new(window_log: u32) -> std::io::Result<Self> {
        Ok(Self {
            decoder: bounded(Decoder::new()?, window_log)?,
            window_log,
            inflated: 0,
        })
    }

    /// Takes the dictionary of a dictionary frame for all frames to come.
    pub(crate) fn set_dictionary(
        &mut self,
        content: &[u8],
        limit: usize,
    ) -> Result<(), DamageReason> {
        let fault = |message: String| DamageReason::Dictionary { message };
        let unpacked;
        let dictionary = if content.starts_with(&MAGIC) {
            unpacked = self.unpack(content, limit).map_err(fault)?;
            &unpacked
        } else {
            content
        };
        self.decoder = Decoder::with_dictionary(dictionary)
            .and_then(|decoder| bounded(decoder, self.window_log))
            .map_err(|error| fault(error.to_string()))?;
        Ok(())
    }

    /// Makes ready for another frame.
    pub(crate) fn restart(&mut self) {
        self.inflated = 0;
        // Resetting a session only fails on a null context, which a decoder never has.
        let _ = self.decoder.reinit();
    }

    /// Returns how many bytes of this frame were inflated.
    pub(crate) fn inflated(&self) -> u64 {
        self.inflated
    }

    /// Inflates some of `input` into `out`. No progress means that more input is needed.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DamageReason> {
        let mut source = InBuffer::around(input);
        let mut sink = OutBuffer::around(out);
        let outcome = self.decoder.run(&mut source, &mut sink);
        let (consumed, produced) = (source.pos(), sink.pos());
        self.inflated += produced as u64;
        match outcome {
            Ok(hint) => Ok(Step {
                consumed,
                produced,
                ended: hint == 0,
            }),
            Err(error) => Err(DamageReason::Frame {
                message: error.to_string(),
            }),
        }
    }

    /// Tells how the record is written that the frame at the start of `input` holds, if it looks like one.
    pub(crate) fn probe(&mut self, input: &[u8], out: &mut [u8]) -> Option<ArchiveFormat> {
        self.restart();
        let mut produced = 0;
        let mut at = 0;
        while let Ok(step) = self.step(&input[at..], &mut out[produced..]) {
            at += step.consumed;
            produced += step.produced;
            if step.ended || (step.consumed == 0 && step.produced == 0) || produced == out.len() {
                break;
            }
        }
        self.restart();
        ArchiveFormat::detect(&out[..produced])
    }

    fn unpack(&self, content: &[u8], limit: usize) -> Result<Vec<u8>, String> {
        let mut decoder = Self::new(self.window_log).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let mut at = 0;
        loop {
            let filled = out.len();
            if filled >= limit {
                return Err(format!("it unpacks to more than {limit} bytes"));
            }
            out.resize((filled + (128 << 10)).min(limit), 0);
            let step = decoder
                .step(&content[at..], &mut out[filled..])
                .map_err(|reason| reason.to_string())?;
            out.truncate(filled + step.produced);
            at += step.consumed;
            if step.ended {
                return Ok(out);
            }
            if step.consumed == 0 && step.produced == 0 {
                return Err("its own frame is cut short".to_owned());
            }
        }
    }
}

fn bounded(mut decoder: Decoder<'static>, window_log: u32) -> std::io::Result<Decoder<'static>> {
    decoder.set_parameter(DParameter::WindowLogMax(window_log))?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflate(stream: &mut ZstdStream, bytes: &[u8]) -> Result<(usize, Vec<u8>), DamageReason> {
        let (mut at, mut seen, mut out) = (0, Vec::new(), vec![0; 100]);
        loop {
            let step = stream.step(&bytes[at..(at + 7).min(bytes.len())], &mut out)?;
            at += step.consumed;
            seen.extend_from_slice(&out[..step.produced]);
            if step.ended {
                return Ok((at, seen));
            }
        }
    }

    #[test]
    fn frames_end_where_they_end() {
        let one = zstd::bulk::compress(b"one", 3).unwrap();
        let mut both = one.clone();
        both.extend(zstd::bulk::compress(b"two", 3).unwrap());
        let mut stream = ZstdStream::new(23).unwrap();
        assert_eq!(
            inflate(&mut stream, &both).unwrap(),
            (one.len(), b"one".to_vec())
        );
        stream.restart();
        assert_eq!(inflate(&mut stream, &both[one.len()..]).unwrap().1, b"two");
    }

    #[test]
    fn dictionaries_raw_and_packed() {
        let dictionary =
            b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n".repeat(20);
        let mut compressor = zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap();
        let frame = compressor
            .compress(b"WARC/1.1\r\nWARC-Type: response\r\n")
            .unwrap();
        for content in [
            dictionary.clone(),
            zstd::bulk::compress(&dictionary, 3).unwrap(),
        ] {
            let mut stream = ZstdStream::new(23).unwrap();
            stream.set_dictionary(&content, 1 << 20).unwrap();
            assert_eq!(
                inflate(&mut stream, &frame).unwrap().1,
                b"WARC/1.1\r\nWARC-Type: response\r\n"
            );
            stream.restart();
            assert_eq!(
                inflate(&mut stream, &frame).unwrap().1,
                b"WARC/1.1\r\nWARC-Type: response\r\n"
            );
        }
    }

    #[test]
    fn a_dictionary_bomb_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 10 << 20], 3).unwrap();
        let fault = ZstdStream::new(23)
            .unwrap()
            .set_dictionary(&bomb, 1 << 20)
            .unwrap_err();
        assert!(fault.to_string().contains("more than 1048576"), "{fault}");
    }

    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        let mut compressor = zstd::bulk::Compressor::new(3).unwrap();
        compressor
            .set_parameter(zstd::zstd_safe::CParameter::WindowLog(25))
            .unwrap();
        compressor.include_contentsize(false).unwrap();
        let frame = compressor.compress(&vec![7; 40 << 20]).unwrap();
        let fault = inflate(&mut ZstdStream::new(23).unwrap(), &frame).unwrap_err();
        assert!(matches!(fault, DamageReason::Frame { .. }));
    }

    #[test]
    fn skippable_frames_are_recognised() {
        assert_eq!(
            skippable_bytes(&[0x5D, 0x2A, 0x4D, 0x18, 1, 2, 0, 0]),
            Some(513)
        );
        assert_eq!(skippable_bytes(&[0x60, 0x2A, 0x4D, 0x18, 1, 2, 0, 0]), None);
        assert_eq!(skippable_bytes(&[0x5D, 0x2A, 0x4D, 0x18, 1]), None);
    }
}
