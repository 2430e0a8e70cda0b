//! A connection to a server, with or without TLS, and those kept open between fetches.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::request::{AddressPolicy, Authority, Request};
use crate::tls::{CertificatePolicy, TlsFacts};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) peer: SocketAddr,
    pub(crate) tls: Option<Arc<TlsFacts>>,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Tells whether the server has closed it, or spoken without being asked. Right most of the time: a fetch still
    /// has to cope with a connection that closes under it.
    fn is_stale(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        let (socket, has_tls) = match &mut self.stream {
            Stream::Plain(socket) => (&*socket, false),
            Stream::Tls(stream) => (stream.get_ref().0, true),
        };
        match socket.poll_peek(&mut context, &mut buffer) {
            Poll::Pending => false,
            // With TLS it may be a session ticket, which is no answer.
            Poll::Ready(Ok(count)) => count == 0 || !has_tls,
            Poll::Ready(Err(_)) => true,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// What a kept connection must have in common with the request that takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolKey {
    authority: Authority,
    address_policy: AddressPolicy,
    certificate_policy: CertificatePolicy,
}

impl PoolKey {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            authority: request.authority.clone(),
            address_policy: request.address_policy,
            certificate_policy: request.certificate_policy,
        }
    }
}

/// What bounds the connections kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    pub(crate) connections: usize,
    pub(crate) per_authority: usize,
    pub(crate) keep_for: Duration,
}

/// The connections kept open between fetches, the longest unused first.
#[derive(Debug)]
pub(crate) struct Pool {
    limits: PoolLimits,
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    key: PoolKey,
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            kept: Mutex::new(VecDeque::new()),
        }
    }

    /// Takes the connection last used for `key`, if its peer is still an address of the request.
    pub(crate) fn take(
        &self,
        key: &PoolKey,
        request: &Request,
        now: Instant,
    ) -> Option<Connection> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.drop_expired(&mut kept, now);
        loop {
            let at = kept.iter().rposition(|entry| {
                entry.key == *key && request.addresses.contains(&entry.connection.peer.ip())
            })?;
            let mut connection = kept.remove(at)?.connection;
            if !connection.is_stale() {
                return Some(connection);
            }
        }
    }

    pub(crate) fn put(&self, key: PoolKey, connection: Connection, now: Instant) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.drop_expired(&mut kept, now);
        let same = kept.iter().filter(|entry| entry.key == key).count();
        if same >= self.limits.per_authority {
            return;
        }
        kept.push_back(Kept {
            key,
            connection,
            since: now,
        });
        while kept.len() > self.limits.connections {
            kept.pop_front();
        }
    }

    pub(crate) fn drop_all(&self) {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    fn drop_expired(&self, kept: &mut VecDeque<Kept>, now: Instant) {
        while kept.front().is_some_and(|oldest| {
            now.saturating_duration_since(oldest.since) >= self.limits.keep_for
        }) {
            kept.pop_front();
        }
    }
}
