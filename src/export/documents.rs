//! The captures of a selection as documents: what each is, and the words of those that are texts or pages.

use std::fs::File;
use std::io::{Read, Write};

use ecluse_access::{body_of, decoded, head_of};
use ecluse_extract::{PlainText, plain_text};
use ecluse_package::escape_xml;
use ecluse_stage::Exit;
use ecluse_warc::{Record, RecordKind, WarcReader};

use super::one_warc::iso_of;
use super::{SelectedFile, Selection};
use crate::context::Trouble;

/// Of a larger document the words of so much are taken.
const WORDS: u64 = 16 << 20;

/// A capture.
pub(crate) struct Document {
    pub(crate) url: String,
    /// RFC 3339.
    pub(crate) date: String,
    /// None for what is no HTTP.
    pub(crate) status: Option<String>,
    /// With its parameters.
    pub(crate) content_type: String,
    pub(crate) is_revisit: bool,
    /// The words, of a text or a page that was sent.
    pub(crate) words: Option<PlainText>,
}

impl Document {
    /// Tells whether somebody would open it in a browser.
    pub(crate) fn is_page(&self) -> bool {
        let kind = self.content_type.to_ascii_lowercase();
        let is_html = kind.starts_with("text/html") || kind.starts_with("application/xhtml");
        is_html && self.status.as_deref().is_none_or(|status| status == "200")
    }
}

/// Calls `see` with each capture of a file that is meant, in its order.
pub(crate) fn each_document(
    selection: &Selection,
    file: &SelectedFile,
    see: &mut dyn FnMut(Document) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let unread = |error: &dyn std::fmt::Display| {
        Trouble::new(Exit::Machine, format!("{}: {error}", file.name))
    };
    let limits = selection.settings.limits();
    let mut reader = WarcReader::seekable(File::open(&file.path)?, limits);
    while let Some(mut record) = reader.next().map_err(|error| unread(&error))? {
        let kinds = [
            RecordKind::Response,
            RecordKind::Resource,
            RecordKind::Revisit,
        ];
        let Some(url) = record.target_uri().map(|uri| uri.into_owned()) else {
            continue;
        };
        let is_meant = kinds.contains(&record.kind()) && selection.has(&url);
        if !is_meant || url.starts_with("dns:") {
            continue;
        }
        if let Ok(time) = record.capture_time() {
            let date = iso_of(time.as_str());
            see(document(&mut record, url, date)?)?;
        }
    }
    Ok(())
}

fn document(record: &mut Record<'_, File>, url: String, date: String) -> Result<Document, Trouble> {
    let head = head_of(record);
    let status = record.http().and_then(|head| head.status());
    let status = status.map(|status| status.into_owned());
    let content_type = head.text("Content-Type").unwrap_or_default();
    let is_revisit = record.kind() == RecordKind::Revisit;
    let is_good = status
        .as_deref()
        .is_none_or(|status| status.starts_with('2'));
    let mut words = None;
    // What is no text by its type is not read.
    if !is_revisit && is_good && plain_text(b"", &content_type).is_some() {
        let mut bytes = Vec::new();
        let body = body_of(record, &head)?;
        decoded(body, &head.codings(), WORDS).read_to_end(&mut bytes)?;
        words = plain_text(&bytes, &content_type);
    }
    Ok(Document {
        url,
        date,
        status,
        content_type,
        is_revisit,
        words,
    })
}

/// Writes texts and pages, each behind a heading that says how many lines it has.
pub(super) fn write_text(selection: &Selection, out: &mut dyn Write) -> Result<(), Trouble> {
    for file in &selection.files {
        each_document(selection, file, &mut |document| {
            let Some(words) = &document.words else {
                return Ok(());
            };
            let one_line = |text: &str| text.replace(char::is_control, " ");
            writeln!(out, "URL: {}", one_line(&document.url))?;
            writeln!(out, "Date: {}", document.date)?;
            writeln!(out, "Type: {}", one_line(&document.content_type))?;
            writeln!(out, "Charset: {}", words.charset)?;
            writeln!(out, "Title: {}", words.title)?;
            writeln!(out, "Lines: {}", words.text.lines().count())?;
            writeln!(out, "\n{}\n", words.text)?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Writes every capture as an element.
pub(super) fn write_xml(selection: &Selection, out: &mut dyn Write) -> Result<(), Trouble> {
    let title = escape_xml(&selection.title);
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<captures xmlns=\"urn:ecluse:captures:1\" of=\"{title}\">"
    )?;
    for file in &selection.files {
        let name = escape_xml(&file.name);
        each_document(selection, file, &mut |document| {
            let (url, kind) = (
                escape_xml(&document.url),
                escape_xml(&document.content_type),
            );
            write!(
                out,
                "<capture url=\"{url}\" date=\"{}\" type=\"{kind}\" file=\"{name}\"",
                document.date
            )?;
            if let Some(status) = &document.status {
                write!(out, " status=\"{}\"", escape_xml(status))?;
            }
            if document.is_revisit {
                write!(out, " unchanged=\"true\"")?;
            }
            let Some(words) = &document.words else {
                return Ok(writeln!(out, "/>")?);
            };
            write!(out, " charset=\"{}\">", words.charset)?;
            write!(out, "<title>{}</title><text>", escape_xml(&words.title))?;
            for line in words.text.lines() {
                writeln!(out, "{}", escape_xml(line))?;
            }
            Ok(writeln!(out, "</text></capture>")?)
        })?;
    }
    Ok(writeln!(out, "</captures>")?)
}
