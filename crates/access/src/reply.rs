//! What goes back to a client: whole in memory, or in pieces as they are read.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use tokio::sync::mpsc;

use crate::moment::Moment;
use crate::reader::Reader;

/// An answer.
pub(crate) type Reply = Response<ReplyBody>;

/// What is asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// The path as it was sent, from its first slash to its question mark.
    pub(crate) path: String,
    /// What follows the question mark, as it was sent.
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    /// Scheme and host under which the client knows us, without a slash at the end.
    pub(crate) base: String,
    /// Who is at the other end of the connection.
    pub(crate) peer: IpAddr,
    /// Who asks, once that is known.
    pub(crate) reader: Reader,
    /// In proxy mode, the date that is seen.
    pub(crate) proxied_at: Option<Moment>,
}

impl Asked {
    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// All of it.
    Whole(Option<Bytes>),
    /// Pieces as they come, and how many bytes are left where that is known.
    Pieces {
        pieces: mpsc::Receiver<io::Result<Bytes>>,
        left: Option<u64>,
    },
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            ReplyBody::Whole(bytes) => Poll::Ready(bytes.take().map(|all| Ok(Frame::data(all)))),
            ReplyBody::Pieces { pieces, left } => pieces.poll_recv(context).map(|piece| {
                let piece = piece?;
                if let (Ok(bytes), Some(left)) = (&piece, left.as_mut()) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(piece.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ReplyBody::Whole(bytes) => bytes.is_none(),
            ReplyBody::Pieces { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |all| all.len() as u64))
            }
            ReplyBody::Pieces { left, .. } => {
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

/// Makes an answer of text of some type.
pub(crate) fn whole(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let body: Bytes = body.into();
    let body = (!body.is_empty()).then_some(body);
    let mut reply = Response::new(ReplyBody::Whole(body));
    *reply.status_mut() = status;
    put(&mut reply, header::CONTENT_TYPE, media_type);
    put(&mut reply, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    reply
}

/// Sends a client to another address on this server.
pub(crate) fn redirect(status: StatusCode, to: &str) -> Reply {
    let mut reply = whole(status, "text/plain; charset=utf-8", "");
    put(&mut reply, header::LOCATION, &crate::url_text::safe_url(to));
    reply
}

/// Sets a field, unless its value could not stand in a header.
pub(crate) fn put(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}
