//! Archived documents with their links led into the archive.
//!
//! Rewriting is for comfort, not for safety: what it misses is blocked by the document's policy, and caught by the script that is
//! put first into each page where that can be done. See `docs/access.md`.

pub(crate) mod charset;
mod css;
mod html;
mod script;
mod xml;

use std::io::Read;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};

use crate::loader::{LoadedBody, LoadedCapture, read_stored};
use crate::record::decoded;
use crate::replay::{put_archived_fields, shown_status};
use crate::replay_address::ReplayAddress;
use crate::reply::{Asked, Reply, ReplyBody};
use crate::site::{AccessSite, Refusal};

pub(crate) use self::html::HtmlPage;

/// What a document is, as far as its links are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DocumentKind {
    Html,
    Svg,
    Css,
    Script,
    Xml,
    /// Nothing in it is a link that a browser follows by itself.
    Other,
}

impl DocumentKind {
    /// Tells by what is asked for, then by what the server said; without a word of the server, by the first bytes.
    fn of(address: &ReplayAddress<'_>, asked: &Asked, media_type: &str, start: &[u8]) -> Self {
        let wanted = asked.header("sec-fetch-dest").unwrap_or_default();
        match (address.modifier, wanted) {
            ("im_", _) | (_, "image" | "font" | "audio" | "video") => return Self::Other,
            ("cs_", _) | (_, "style") => return Self::Css,
            ("js_", _) | (_, "script" | "worker") if !media_type.contains("json") => {
                return Self::Script;
            }
            _ => {}
        }
        match media_type {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "image/svg+xml" => Self::Svg,
            "text/css" => Self::Css,
            "" => {
                let start = String::from_utf8_lossy(&start[..start.len().min(512)]);
                let start = start.trim_start().to_ascii_lowercase();
                let is_html = ["<!doctype html", "<html", "<head", "<body"]
                    .iter()
                    .any(|tag| start.starts_with(tag));
                if is_html { Self::Html } else { Self::Other }
            }
            // What a script fetches it reads by itself; what it then asks for is led here.
            known if is_xml(known) && wanted != "empty" => Self::Xml,
            known if known.contains("javascript") || known.contains("ecmascript") => Self::Script,
            _ => Self::Other,
        }
    }
}

fn is_xml(media_type: &str) -> bool {
    matches!(media_type, "text/xml" | "application/xml") || media_type.ends_with("+xml")
}

impl AccessSite {
    /// Answers with a capture whose links are addresses here.
    pub(crate) fn rewritten_reply(
        &self,
        asked: &Asked,
        address: &ReplayAddress<'_>,
        loaded: LoadedCapture,
    ) -> Result<Reply, Refusal> {
        let media_type = loaded.head.media_type();
        let packed = match &loaded.body {
            LoadedBody::Whole(bytes) if loaded.body_head.codings().is_empty() => bytes.as_slice(),
            LoadedBody::Whole(_) | LoadedBody::Stored(_) => &[],
        };
        let kind = DocumentKind::of(address, asked, &media_type, packed);
        let status = shown_status(&loaded);
        let is_whole = status != StatusCode::PARTIAL_CONTENT;
        if kind == DocumentKind::Other || !is_whole || asked.method == Method::HEAD {
            return self.raw_reply(asked, address, loaded);
        }
        let Some(plain) = self.plain_body(&loaded)? else {
            return self.raw_reply(asked, address, loaded);
        };
        let mut headers = HeaderMap::new();
        put_archived_fields(&mut headers, &loaded, address);
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::ACCEPT_RANGES);
        self.put_common_fields(&mut headers, asked, &loaded);
        let content_type = loaded.head.text("Content-Type").unwrap_or_default();
        let body = match kind {
            DocumentKind::Html | DocumentKind::Svg => {
                let page = HtmlPage {
                    address,
                    is_svg: kind == DocumentKind::Svg,
                    is_frame: address.modifier == "fr_",
                };
                let (body, encoding) = page.rewrite(&plain, &content_type);
                if kind == DocumentKind::Html {
                    let media_type = if media_type.is_empty() {
                        "text/html"
                    } else {
                        &media_type
                    };
                    let told = format!("{media_type}; charset={}", encoding.name());
                    if let Ok(told) = HeaderValue::from_str(&told) {
                        headers.insert(header::CONTENT_TYPE, told);
                    }
                }
                body
            }
            DocumentKind::Css => css::rewrite(&plain, address),
            DocumentKind::Script => script::rewrite(&plain, address),
            DocumentKind::Xml => xml::rewrite(&plain, address),
            DocumentKind::Other => plain,
        };
        let mut reply = Response::new(ReplyBody::Whole(
            Some(Bytes::from(body)).filter(|body| !body.is_empty()),
        ));
        *reply.headers_mut() = headers;
        *reply.status_mut() = status;
        Ok(reply)
    }

    /// Returns the body with its codings undone; none where it is larger than what is rewritten.
    pub(crate) fn plain_body(&self, loaded: &LoadedCapture) -> Result<Option<Vec<u8>>, Refusal> {
        let limit = self.settings.rewrite.get();
        let codings = loaded.body_head.codings();
        let mut plain = Vec::new();
        let mut take = |body: &mut dyn Read| {
            let body: Box<dyn Read + '_> = Box::new(body);
            decoded(body, &codings, limit.saturating_add(1)).read_to_end(&mut plain)
        };
        match &loaded.body {
            LoadedBody::Whole(bytes) => {
                take(&mut bytes.as_slice()).map_err(Refusal::unreadable)?;
            }
            LoadedBody::Stored(_) => {
                let (stored, head) = (&loaded.stored, &loaded.body_head);
                read_stored(
                    &self.locations,
                    &self.root,
                    &loaded.generation,
                    stored,
                    head,
                    &mut |body| take(body).map(drop),
                )
                .map_err(Refusal::unreadable)?;
            }
        }
        Ok((plain.len() as u64 <= limit).then_some(plain))
    }
}
