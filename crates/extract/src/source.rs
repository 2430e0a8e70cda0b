//! Reads a document in pieces and gives them as text, whatever its character set.
//!
//! As long as nobody has said what the character set is and all bytes are ASCII, they pass as they are; the first byte that is
//! not decides, with what follows it.

use std::borrow::Cow;
use std::io::{self, Read};

use encoding_rs::{Decoder, Encoding, UTF_8};

use crate::charset::{self, CharsetSource};
use crate::context::Context;
use crate::kind::{DocumentKind, kind_of};

/// Bytes read at a time, and looked at before anything is decided.
const WINDOW: usize = 32 << 10;

pub(crate) struct DocumentWindow<'r> {
    reader: &'r mut dyn Read,
    window: Vec<u8>,
    /// What of the window has not been given yet.
    pending: bool,
    decoder: Option<Decoder>,
    text: String,
    host: Option<String>,
    limit: u64,
    pub(crate) bytes: u64,
    pub(crate) cut: bool,
    end: bool,
    pub(crate) kind: DocumentKind,
    pub(crate) encoding: &'static Encoding,
    pub(crate) charset_source: CharsetSource,
}

impl<'r> DocumentWindow<'r> {
    /// Returns the source before its first byte is read.
    pub(crate) fn new(reader: &'r mut dyn Read, context: &Context<'_>) -> Self {
        Self {
            reader,
            window: Vec::with_capacity(WINDOW),
            pending: false,
            decoder: None,
            text: String::new(),
            host: context.url.host_str().map(str::to_owned),
            limit: context.limits.document_bytes,
            bytes: 0,
            cut: false,
            end: false,
            kind: DocumentKind::Other,
            encoding: UTF_8,
            charset_source: CharsetSource::Assumed,
        }
    }

    /// Reads the first window and decides what the document is and, if anyone says so, its character set.
    pub(crate) fn open(&mut self, context: &Context<'_>) -> io::Result<()> {
        self.fill()?;
        self.pending = true;
        let header = context.content_type.and_then(charset::parameter);
        let marked = charset::mark(&self.window);
        let (start, told) = match marked {
            Some((encoding, length)) => {
                let start = encoding
                    .decode_without_bom_handling(&self.window[length..])
                    .0;
                (
                    Cow::Owned(start.into_owned().into_bytes()),
                    Some((encoding, CharsetSource::Mark)),
                )
            }
            None => (Cow::Borrowed(&self.window[..]), None),
        };
        self.kind = kind_of(context.url, context.content_type, &start);
        let hint = context
            .charset
            .and_then(|label| Encoding::for_label(label.as_bytes()));
        let told = told.or_else(|| charset::told(self.kind, header, hint, &start));
        if let Some((encoding, source)) = told {
            self.decide(encoding, source);
        }
        Ok(())
    }

    /// Reads the next piece; returns whether there is one.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        self.text.clear();
        // A piece may decode to nothing: a byte order mark, or half a character.
        while self.text.is_empty() {
            if !self.pending {
                if self.end {
                    return Ok(false);
                }
                self.fill()?;
            }
            self.pending = false;
            self.decode();
        }
        Ok(true)
    }

    /// Returns the piece that was read last.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn fill(&mut self) -> io::Result<()> {
        self.window.clear();
        let room = self.limit.saturating_sub(self.bytes);
        let wanted = usize::try_from(room).unwrap_or(usize::MAX).min(WINDOW);
        self.window.resize(wanted, 0);
        let mut filled = 0;
        while filled < wanted {
            match self.reader.read(&mut self.window[filled..]) {
                Ok(0) => {
                    self.end = true;
                    break;
                }
                Ok(read) => filled += read.min(wanted - filled),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.bytes += filled as u64;
                    return Err(error);
                }
            }
        }
        self.window.truncate(filled);
        self.bytes += filled as u64;
        if self.bytes >= self.limit && !self.end {
            self.end = true;
            // Only a byte beyond the limit tells a document that was cut from one that just fits.
            let mut beyond = [0];
            self.cut = loop {
                match self.reader.read(&mut beyond) {
                    Ok(read) => break read > 0,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            };
        }
        Ok(())
    }

    fn decide(&mut self, encoding: &'static Encoding, source: CharsetSource) {
        self.encoding = encoding;
        self.charset_source = source;
        self.decoder = Some(encoding.new_decoder_with_bom_removal());
    }

    fn decode(&mut self) {
        if self.decoder.is_none() {
            // The escapes of ISO-2022-JP are ASCII.
            let plain = Encoding::ascii_valid_up_to(&self.window);
            let plain = memchr::memchr(0x1B, &self.window[..plain]).unwrap_or(plain);
            if plain < self.window.len() {
                let bytes = &self.window[plain..];
                let guess = charset::guess(bytes, self.end, self.host.as_deref());
                self.decide(guess, CharsetSource::Detected);
            }
        }
        match &mut self.decoder {
            None => self
                .text
                .push_str(str::from_utf8(&self.window).expect("all bytes were found to be ASCII")),
            Some(decoder) => {
                let room = decoder
                    .max_utf8_buffer_length(self.window.len())
                    .expect("a window is small");
                self.text.reserve(room);
                let _ = decoder.decode_to_string(&self.window, &mut self.text, self.end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    /// Gives its bytes in pieces of one length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn text(bytes: &[u8], content_type: &str) -> (String, &'static str, CharsetSource) {
        let url = Url::parse("http://lock.example/").unwrap();
        let context = Context::new(&url, Some(content_type));
        let mut reader = Pieces(bytes, 7);
        let mut source = DocumentWindow::new(&mut reader, &context);
        source.open(&context).unwrap();
        let mut text = String::new();
        while source.advance().unwrap() {
            text.push_str(source.text());
        }
        (text, source.encoding.name(), source.charset_source)
    }

    #[test]
    fn ascii_passes_until_a_byte_decides() {
        let mut page = vec![b' '; 100_000];
        assert_eq!(text(&page, "text/html").2, CharsetSource::Assumed);
        page.extend_from_slice("écluse à sas".as_bytes());
        let (found, name, source) = text(&page, "text/html");
        assert_eq!((name, source), ("UTF-8", CharsetSource::Detected));
        assert!(found.ends_with("écluse à sas"));
        page.truncate(100_000);
        page.extend_from_slice(b"l'\xE9cluse \xE0 sas est ferm\xE9e");
        let (found, name, _) = text(&page, "text/html");
        assert_eq!(name, "windows-1252");
        assert!(found.ends_with("l'écluse à sas est fermée"));
    }

    #[test]
    fn a_mark_outranks_the_header_and_is_not_text() {
        let (found, name, source) = text(b"\xFF\xFE<\0a\0>\0", "text/html; charset=utf-8");
        assert_eq!(
            (found.as_str(), name, source),
            ("<a>", "UTF-16LE", CharsetSource::Mark)
        );
    }

    #[test]
    fn the_limit_cuts_and_says_so() {
        let url = Url::parse("http://lock.example/").unwrap();
        for (limit, cut, length) in [(9, true, 9), (10, false, 10), (11, false, 10), (0, true, 0)] {
            let mut context = Context::new(&url, Some("text/html"));
            context.limits.document_bytes = limit;
            let mut reader: &[u8] = b"0123456789";
            let mut source = DocumentWindow::new(&mut reader, &context);
            source.open(&context).unwrap();
            let mut text = String::new();
            while source.advance().unwrap() {
                text.push_str(source.text());
            }
            assert_eq!((source.cut, text.len()), (cut, length), "{limit}");
        }
    }
}
