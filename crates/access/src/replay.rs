//! One capture as an answer: its status, its headers made harmless, its body.
//!
//! Whatever an archived server said, it must not act on the reader's browser as if our server had said it. So each header is passed
//! on, rewritten, or kept for the record under `X-Archive-Orig-`; and every answer that could run script has a policy that
//! gives it an origin of its own and lets it load nothing but the archive.

use std::io::{self, Read};

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use tokio::sync::mpsc;

use crate::byte_range::{ByteRange, Ranged};
use crate::loader::{LoadedBody, LoadedCapture, read_stored};
use crate::record::decoded;
use crate::replay_address::ReplayAddress;
use crate::reply::{Asked, Reply, ReplyBody};
use crate::site::{AccessSite, Refusal};
use crate::url_text::safe_url;

/// Pieces of a body that wait for a slow client, and how large each is.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 128 << 10;

/// What becomes of a field of an archived head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldFate {
    /// It goes to the client as it is.
    Kept,
    /// It says something about a connection that is long gone.
    Dropped,
    /// It would act on the reader's browser: kept for the record only.
    Renamed,
    /// It is a URL.
    Location,
}

/// Fields that are harmless and needed.
const KEPT: [&str; 14] = [
    "accept-patch",
    "accept-ranges",
    "age",
    "allow",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "date",
    "expires",
    "last-modified",
    "retry-after",
    "server",
    "warning",
];
/// Fields of a connection, and those that are made anew.
const DROPPED: [&str; 11] = [
    "connection",
    "content-length",
    "keep-alive",
    "memento-datetime",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn fate_of(name: &str) -> FieldFate {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "location" | "content-location" => FieldFate::Location,
        known if KEPT.contains(&known) => FieldFate::Kept,
        known if DROPPED.contains(&known) => FieldFate::Dropped,
        _ => FieldFate::Renamed,
    }
}

/// Puts the fields of an archived head into those of an answer. No byte of a field can end the header it stands in: what is no
/// name or no value is left out.
pub(crate) fn put_archived_fields(
    headers: &mut HeaderMap,
    loaded: &LoadedCapture,
    address: &ReplayAddress<'_>,
) {
    for (name, value) in &loaded.head.fields {
        let fate = fate_of(name);
        let (name, value) = match fate {
            FieldFate::Dropped => continue,
            FieldFate::Kept => (name.clone(), value.clone()),
            FieldFate::Renamed => (format!("x-archive-orig-{name}"), value.clone()),
            FieldFate::Location => {
                let text = ecluse_surt::header_text(value);
                let target = address.rewritten(&text, address.modifier);
                (name.clone(), safe_url(&target).into_owned().into_bytes())
            }
        };
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
        let value = HeaderValue::from_bytes(&value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
}

/// Returns the policy of an archived document: an origin of its own, and nothing from anywhere but here.
///
/// Scripts of the page run, but in an origin that has no cookies, no storage and no part in ours; no frame, form, fetch or
/// picture reaches another server. A document that cannot run script keeps its origin: browsers show no PDF otherwise.
pub(crate) fn content_policy(base: &str, media_type: &str, may_download: bool) -> String {
    let sandbox = match (can_run_script(media_type), may_download) {
        (true, true) => "sandbox allow-scripts allow-forms allow-modals allow-downloads; ",
        (true, false) => "sandbox allow-scripts allow-forms allow-modals; ",
        (false, _) => "",
    };
    format!(
        "{sandbox}default-src {base} data: blob: 'unsafe-inline' 'unsafe-eval'; form-action {base}; base-uri {base}; object-src {base}"
    )
}

/// Says whether a document of this type could run script.
pub(crate) fn can_run_script(media_type: &str) -> bool {
    let is_picture = ["image/", "audio/", "video/", "font/"]
        .iter()
        .any(|kind| media_type.starts_with(kind));
    !(media_type == "application/pdf" || is_picture && !media_type.contains("xml"))
}

impl AccessSite {
    /// Answers with a capture as it was archived; chunks are undone, content codings are not.
    pub(crate) fn raw_reply(
        &self,
        asked: &Asked,
        address: &ReplayAddress<'_>,
        loaded: LoadedCapture,
    ) -> Result<Reply, Refusal> {
        let mut headers = HeaderMap::new();
        put_archived_fields(&mut headers, &loaded, address);
        self.put_common_fields(&mut headers, asked, &loaded);
        self.plain_reply(asked, loaded, headers, address.modifier == "id_")
    }

    /// Answers with a capture under these fields. Whoever asks for the raw bytes gets them as they are packed, others only if they can
    /// unpack them.
    pub(crate) fn plain_reply(
        &self,
        asked: &Asked,
        loaded: LoadedCapture,
        mut headers: HeaderMap,
        is_raw: bool,
    ) -> Result<Reply, Refusal> {
        let codings = loaded.body_head.codings();
        let is_unpacked =
            !codings.is_empty() && !is_raw && !codings.iter().all(|coding| accepts(asked, coding));
        if is_unpacked || codings.is_empty() {
            headers.remove(header::CONTENT_ENCODING);
        }
        let status = shown_status(&loaded);
        let mut reply = Response::new(ReplyBody::Whole(None));
        *reply.headers_mut() = headers;
        *reply.status_mut() = status;
        let is_empty = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        if is_empty {
            return Ok(reply);
        }
        let is_plain = codings.is_empty();
        let range = (is_plain && status == StatusCode::OK)
            .then(|| ByteRange::asked(asked))
            .flatten();
        if is_plain && status == StatusCode::OK {
            let accepts = HeaderValue::from_static("bytes");
            reply.headers_mut().insert(header::ACCEPT_RANGES, accepts);
        }
        match loaded.body {
            LoadedBody::Whole(ref bytes) if is_unpacked => {
                let limit = self.settings.rewrite.get();
                let mut plain = Vec::new();
                let body: Box<dyn Read> = Box::new(bytes.as_slice());
                decoded(body, &codings, limit)
                    .read_to_end(&mut plain)
                    .map_err(Refusal::unreadable)?;
                *reply.body_mut() = ReplyBody::Whole(Some(plain.into()));
            }
            LoadedBody::Whole(bytes) => ranged_whole(&mut reply, bytes.into(), range),
            LoadedBody::Stored(length) => {
                let wanted = match (range, length) {
                    (Some(range), Some(length)) => match range.within(length) {
                        Ranged::Part {
                            first,
                            length: part,
                        } => {
                            partial(&mut reply, first, part, length);
                            Some((first, part))
                        }
                        Ranged::Unsatisfiable => {
                            unsatisfiable(&mut reply, length);
                            return Ok(reply);
                        }
                    },
                    _ => None,
                };
                let loaded = LoadedCapture {
                    body: LoadedBody::Stored(length),
                    ..loaded
                };
                let is_head = asked.method == Method::HEAD;
                let plan = StreamPlan {
                    first: wanted.map_or(0, |(first, _)| first),
                    length: wanted.map(|(_, length)| length),
                    known: match is_unpacked {
                        true => None,
                        false => wanted.map(|(_, length)| length).or(length),
                    },
                    codings: if is_unpacked { codings } else { Vec::new() },
                };
                *reply.body_mut() = self.stream(loaded, plan, is_head)?;
            }
        }
        Ok(reply)
    }

    /// Puts the fields that every archived answer has.
    pub(crate) fn put_common_fields(
        &self,
        headers: &mut HeaderMap,
        asked: &Asked,
        loaded: &LoadedCapture,
    ) {
        let media_type = loaded.head.media_type();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        put(
            header::CONTENT_SECURITY_POLICY,
            &content_policy(&asked.base, &media_type, asked.reader.may_download),
        );
        if !can_run_script(&media_type) {
            put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        }
        // A page in an origin of its own is a stranger to us, and asks for fonts and modules as one.
        put(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        // Nobody but us ever gets to see it; by it a request that was not rewritten is known.
        put(header::REFERRER_POLICY, "unsafe-url");
        put(HeaderName::from_static("x-dns-prefetch-control"), "off");
        put(header::CACHE_CONTROL, "private, max-age=600");
        let place = format!("{}:{}", loaded.capture.filename, loaded.capture.offset);
        if asked.reader.may_download {
            put(HeaderName::from_static("x-archive-src"), &place);
        } else {
            headers.remove(header::CONTENT_DISPOSITION);
        }
    }

    /// Reads a large body in a thread of its own, as fast as the client takes it and no faster.
    fn stream(
        &self,
        loaded: LoadedCapture,
        plan: StreamPlan,
        is_head: bool,
    ) -> Result<ReplyBody, Refusal> {
        let (sender, pieces) = mpsc::channel::<io::Result<Bytes>>(PIECES);
        let body = ReplyBody::Pieces {
            pieces,
            left: plan.known,
        };
        if is_head {
            return Ok(body);
        }
        let place = std::sync::Arc::clone(&self.streams)
            .try_acquire_owned()
            .map_err(|_| Refusal::busy())?;
        let root = self.root.clone();
        let locations = std::sync::Arc::clone(&self.locations);
        let runtime = tokio::runtime::Handle::current();
        let patience = self.settings.patience.get();
        let read = move || {
            let send = |piece: io::Result<Bytes>| {
                let sending = async { tokio::time::timeout(patience, sender.send(piece)).await };
                matches!(runtime.block_on(sending), Ok(Ok(())))
            };
            let read = read_stored(
                &locations,
                &root,
                &loaded.generation,
                &loaded.stored,
                &loaded.body_head,
                &mut |body| plan.pieces(body, &mut |piece| send(Ok(piece))),
            );
            if let Err(error) = read {
                tracing::warn!(file = loaded.stored.filename, %error, "body cut short");
                // The client must see that it is not whole.
                send(Err(error));
            }
            drop(place);
        };
        std::thread::Builder::new()
            .name("stream".to_owned())
            .spawn(read)
            .map_err(|_| Refusal::busy())?;
        Ok(body)
    }
}

/// Which part of a stored body goes out.
struct StreamPlan {
    first: u64,
    length: Option<u64>,
    /// How many bytes go out, where that is known.
    known: Option<u64>,
    codings: Vec<String>,
}

impl StreamPlan {
    fn pieces(&self, body: &mut dyn Read, send: &mut dyn FnMut(Bytes) -> bool) -> io::Result<()> {
        let mut body: Box<dyn Read + '_> = match self.codings.is_empty() {
            true => Box::new(body),
            false => Box::new(decoded(Box::new(body), &self.codings, u64::MAX)),
        };
        io::copy(&mut body.by_ref().take(self.first), &mut io::sink())?;
        let mut left = self.length.unwrap_or(u64::MAX);
        let mut sent = 0;
        while left > 0 {
            let room = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let mut piece = Vec::with_capacity(room);
            let read = body.by_ref().take(room as u64).read_to_end(&mut piece)?;
            if read == 0 {
                break;
            }
            left -= read as u64;
            sent += read as u64;
            if !send(piece.into()) {
                return Ok(());
            }
        }
        match self.known {
            Some(known) if sent < known => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{sent} of {known} bytes are there"),
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the status that a reader gets. A part that is the whole counts as the whole.
pub(crate) fn shown_status(loaded: &LoadedCapture) -> StatusCode {
    let status = loaded.head.status;
    if status == 206 {
        let range = loaded.head.text("Content-Range").unwrap_or_default();
        let whole = range
            .strip_prefix("bytes 0-")
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(last, all)| Some((last.parse::<u64>().ok()?, all.parse::<u64>().ok()?)));
        if whole.is_some_and(|(last, all)| last + 1 == all) {
            return StatusCode::OK;
        }
    }
    StatusCode::from_u16(status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .unwrap_or(StatusCode::OK)
}

/// Says whether a client takes a content coding.
fn accepts(asked: &Asked, coding: &str) -> bool {
    let accepted = asked.header(header::ACCEPT_ENCODING).unwrap_or_default();
    accepted.split(',').any(|one| {
        let (name, rest) = one.split_once(';').unwrap_or((one, ""));
        let is_refused = rest.replace(' ', "").starts_with("q=0") && !rest.contains("0.");
        let name = name.trim();
        !is_refused && (name.eq_ignore_ascii_case(coding) || name == "*")
    })
}

fn ranged_whole(reply: &mut Reply, bytes: Bytes, range: Option<ByteRange>) {
    let length = bytes.len() as u64;
    match range.map(|range| range.within(length)) {
        None => *reply.body_mut() = ReplyBody::Whole(Some(bytes).filter(|all| !all.is_empty())),
        Some(Ranged::Unsatisfiable) => unsatisfiable(reply, length),
        Some(Ranged::Part {
            first,
            length: part,
        }) => {
            partial(reply, first, part, length);
            let at = |offset: u64| {
                usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len())
            };
            let part = bytes.slice(at(first)..at(first + part));
            *reply.body_mut() = ReplyBody::Whole(Some(part));
        }
    }
}

fn partial(reply: &mut Reply, first: u64, part: u64, length: u64) {
    *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
    let range = format!("bytes {first}-{}/{length}", first + part - 1);
    crate::reply::put(reply, header::CONTENT_RANGE, &range);
}

fn unsatisfiable(reply: &mut Reply, length: u64) {
    *reply.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    crate::reply::put(reply, header::CONTENT_RANGE, &format!("bytes */{length}"));
    *reply.body_mut() = ReplyBody::Whole(None);
}
