//! The server: connections in, answers out, whatever connects.
//!
//! One thread speaks to all clients; a fixed number of others read index and files. Connections, their heads and the time they
//! take are bounded, so that slow clients cost a descriptor each and nothing more.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, Sleep};

use crate::proxy_door;
use crate::reader::Reader;
use crate::reply::{Asked, Reply, whole};
use crate::site::AccessSite;

/// The line and the headers of a request; a URL in it has 8 KiB at most.
const LONGEST_HEAD: usize = 32 << 10;
/// Fields of a request.
const MOST_FIELDS: usize = 100;

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct AccessServer {
    address: SocketAddr,
    proxy: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AccessServer {
    /// Starts to serve on the address of the settings; port 0 chooses one.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub fn start(site: AccessSite) -> io::Result<Self> {
        let (listener, address) = bind(site.settings.listen)?;
        tracing::info!(%address, "serving");
        let proxy = site.settings.proxy.map(bind).transpose()?;
        let readers = usize::try_from(site.settings.readers).unwrap_or(1).max(1);
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(site.locations.threads(readers))
            .thread_name("reader")
            .build()?;
        let _inside = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let site = Arc::new(site);
        let http = http_of(&site);
        let most = usize::try_from(site.settings.connections).unwrap_or(1);
        let places = Arc::new(Semaphore::new(most.max(1)));
        let proxy_address = proxy.as_ref().map(|(_, address)| *address);
        if let (Some((listener, address)), Some(mode)) = (proxy, &site.proxy) {
            tracing::info!(%address, "proxy mode");
            let (mode, places) = (Arc::clone(mode), Arc::clone(&places));
            let listener = TcpListener::from_std(listener)?;
            let site = Arc::clone(&site);
            runtime.spawn(proxy_door::accept(
                listener,
                site,
                mode,
                http.clone(),
                places,
            ));
        }
        drop(_inside);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("access".to_owned());
        let thread = thread.spawn(move || {
            runtime.spawn(accept(listener, site, http, places));
            // Sent or dropped: either way the server is no longer wanted.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self {
            address,
            proxy: proxy_address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of proxy mode.
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        self.proxy
    }
}

fn bind(listen: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Returns how HTTP is spoken here: bounded in all that a client can make long.
fn http_of(site: &AccessSite) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .timer(TokioTimer::new())
        .header_read_timeout(site.settings.patience.get())
        // Older programs look for `Link` and do not find `link`.
        .title_case_headers(true)
        .half_close(false);
    http
}

impl Drop for AccessServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was reported where it happened.
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: TcpListener,
    site: Arc<AccessSite>,
    http: http1::Builder,
    places: Arc<Semaphore>,
) {
    let patience = site.settings.patience.get();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, most likely: trying again at once would only burn time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            // Dropped unread: an answer might have to wait for the client.
            continue;
        };
        // Head and body are one write, and must not wait for an acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let site = Arc::clone(&site);
        let service = service_fn(move |request| answer(Arc::clone(&site), peer.ip(), request));
        let served = http.serve_connection(Patient::new(stream, patience), service);
        tokio::spawn(async move {
            // A client that goes away, or takes too long, is no concern of ours.
            let _ = served.await;
            drop(place);
        });
    }
}

async fn answer(
    site: Arc<AccessSite>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Reply, io::Error> {
    let Some(base) = base_of(&site, &request) else {
        let text = "The request names no host that can be.\n";
        return Ok(whole(
            StatusCode::BAD_REQUEST,
            "text/plain; charset=utf-8",
            text,
        ));
    };
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let asked = Asked {
        method: parts.method,
        path: if path.starts_with('/') { path } else { "/" }.to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers,
        base,
        peer,
        reader: Reader::default(),
        proxied_at: None,
    };
    let answered = tokio::task::spawn_blocking(move || site.answer(asked)).await;
    Ok(answered.unwrap_or_else(|_| {
        let text = "Something went wrong here; it is in the log.\n";
        whole(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            text,
        )
    }))
}

/// Returns scheme and host as the client knows them; none where the host could not be one: it stands in headers.
fn base_of(site: &AccessSite, request: &Request<Incoming>) -> Option<String> {
    if !site.settings.public.is_empty() {
        return Some(site.settings.public.trim_end_matches('/').to_owned());
    }
    let host = match request.headers().get(header::HOST) {
        Some(host) => host.to_str().ok()?,
        None => request.uri().authority()?.as_str(),
    };
    let is_host = !host.is_empty()
        && host.len() <= 260
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    is_host.then(|| format!("http://{host}"))
}

/// A connection that ends when the client neither takes nor gives anything for too long.
pub(crate) struct Patient {
    stream: TokioIo<TcpStream>,
    patience: Duration,
    /// Set while something waits to be written.
    waits: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream: TokioIo::new(stream),
            patience,
            waits: Box::pin(tokio::time::sleep(patience)),
            is_waiting: false,
        }
    }

    /// Holds what a write came to against the client's time.
    fn watched<Done>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<Done>>,
    ) -> Poll<io::Result<Done>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.waits.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.waits.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Read for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl Write for Patient {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watched(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.watched(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        this.watched(context, shut)
    }
}
