//! A small HTTP server for `/metrics`, `/healthz` and `/readyz`.
//!
//! It serves a scraper and a load balancer, and must not harm the work whatever connects: requests
//! are bounded in size, in time and in number, and nothing a client sends is kept or shown.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};

use crate::registry::{Exposition, Registry};

/// A request's line and headers; Prometheus sends about 400 bytes.
const LONGEST_REQUEST: usize = 8 * 1_024;
/// From the first byte to the last of a connection.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Served at once; one more is turned away.
const MOST_CLIENTS: usize = 8;

/// Whether the process is ready, and if not, why. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Health {
    faults: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Health {
    /// Not ready: `start` is missing, until it is [`Health::well`].
    pub fn starting() -> Health {
        let faults = BTreeMap::from([("start", "starting".to_owned())]);
        Health {
            faults: Arc::new(Mutex::new(faults)),
        }
    }

    /// Says that this part of the process is as it should be.
    pub fn well(&self, part: &'static str) {
        self.faults().remove(part);
    }

    /// Says what is wrong with this part.
    pub fn unwell(&self, part: &'static str, why: &str) {
        self.faults().insert(part, why.to_owned());
    }

    /// What is wrong, by part; nothing when the process is ready.
    pub fn reasons(&self) -> BTreeMap<&'static str, String> {
        self.faults().clone()
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve on an address; port 0 chooses one.
    pub fn start(address: SocketAddr, registry: Registry, health: Health) -> io::Result<Server> {
        Server::start_with(address, routes(registry, health), REQUEST_TIME)
    }

    fn start_with(
        address: SocketAddr,
        routes: Router,
        request_time: Duration,
    ) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // One thread, which sleeps in the kernel between scrapes.
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MOST_CLIENTS)
            .thread_name("metrics-client")
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                runtime.spawn(accept(listener, routes, request_time));
                // Sent or dropped: either way the server is no longer wanted.
                let _ = runtime.block_on(stopped);
                // Clients are dropped; a figure that is still being asked for is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Server {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was reported where it happened.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, routes: Router, request_time: Duration) {
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    let mut http = http1::Builder::new();
    http.max_buf_size(LONGEST_REQUEST).keep_alive(false);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: trying again at once would only burn time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            // Dropped unread: an answer might have to wait for the client.
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        let served = http.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A client that goes away, or takes too long, is no concern of ours.
            let _ = tokio::time::timeout(request_time, served).await;
            drop(place);
        });
    }
}

fn routes(registry: Registry, health: Health) -> Router {
    let healthy = || async { json(StatusCode::OK, r#"{"schema":1,"status":"ok"}"#.to_owned()) };
    let metrics = move |headers: HeaderMap| metrics(registry.clone(), headers);
    let ready = move || async move { readiness(&health) };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
}

/// OpenMetrics for those who ask for it, else what everything reads.
async fn metrics(registry: Registry, headers: HeaderMap) -> Response {
    let accepts_open = headers.get_all(header::ACCEPT).iter().any(|accepts| {
        accepts
            .to_str()
            .is_ok_and(|accepts| accepts.contains("application/openmetrics-text"))
    });
    let exposition = if accepts_open {
        Exposition::OpenMetrics
    } else {
        Exposition::Plain
    };
    // Some figures are asked of the manifest: on a slow disk the other clients must not wait for them.
    match tokio::task::spawn_blocking(move || registry.render(exposition)).await {
        Ok(text) => answer(StatusCode::OK, exposition.media_type(), text),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn readiness(health: &Health) -> Response {
    let reasons = health.reasons();
    let (code, status) = if reasons.is_empty() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    let body = serde_json::json!({ "schema": 1, "status": status, "reasons": reasons });
    json(code, body.to_string())
}

fn json(status: StatusCode, body: String) -> Response {
    answer(status, "application/json", body)
}

fn answer(status: StatusCode, media_type: &'static str, body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::mpsc;

    use crate::metrics::ArchiveFigures;

    use super::*;

    fn server() -> (Server, Registry, Health) {
        server_with(Duration::from_secs(60))
    }

    fn server_with(time: Duration) -> (Server, Registry, Health) {
        let registry = Registry::new("1.2.3");
        let health = Health::starting();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let server =
            Server::start_with(address, routes(registry.clone(), health.clone()), time).unwrap();
        (server, registry, health)
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        read_all(stream)
    }

    fn read_all(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        // A server that refuses may reset what it did not read.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn body(answer: &str) -> &str {
        answer.split_once("\r\n\r\n").unwrap().1
    }

    #[test]
    fn figures_come_in_the_form_that_is_asked_for() {
        let (server, registry, _) = server();
        registry.stage("index").reaped();
        let plain = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(plain.starts_with("HTTP/1.1 200 OK\r\n"), "{plain}");
        assert!(plain.contains("content-type: text/plain; version=0.0.4"));
        assert_eq!(body(&plain), registry.render(Exposition::Plain));
        let length = format!("content-length: {}\r\n", body(&plain).len());
        assert!(plain.contains(&length));

        let open = ask(
            &server,
            b"GET /metrics?x=1 HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
        );
        assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"));
        assert_eq!(body(&open), registry.render(Exposition::OpenMetrics));
    }

    #[test]
    fn readiness_says_what_is_missing() {
        let (server, _, health) = server();
        let ready = || ask(&server, b"GET /readyz HTTP/1.1\r\n\r\n");
        assert!(ready().starts_with("HTTP/1.1 503 "));
        assert_eq!(
            body(&ready()),
            r#"{"reasons":{"start":"starting"},"schema":1,"status":"not ready"}"#
        );
        health.well("start");
        health.unwell("root", "read-only");
        assert!(body(&ready()).contains(r#"{"root":"read-only"}"#));
        health.well("root");
        assert!(ready().starts_with("HTTP/1.1 200 "));
        assert_eq!(
            body(&ask(&server, b"GET /healthz HTTP/1.0\n\n")),
            r#"{"schema":1,"status":"ok"}"#
        );
    }

    #[test]
    fn what_is_not_a_request_is_refused() {
        let (server, _, _) = server();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics SPDY/3\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\x00\r\n\r\n", "400"),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", "400"),
        ] {
            let answer = ask(&server, request);
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{request:?}: {answer}");
        }
        let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 ") && body(&head).is_empty());
        let long = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'a'; 10_000]].concat();
        assert!(ask(&server, &long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn half_a_request_is_waited_for_and_then_dropped() {
        let (server, _, _) = server_with(Duration::from_millis(50));
        for half in [&b""[..], b"GET /metrics HTTP/1.1\r\nHalf: a hea"] {
            assert_eq!(ask(&server, half), "", "{half:?}");
        }
    }

    #[test]
    fn idle_clients_do_not_keep_others_out_for_long() {
        let (server, _, _) = server_with(Duration::from_millis(50));
        let idle: Vec<TcpStream> = (0..2 * MOST_CLIENTS)
            .map(|_| TcpStream::connect(server.address()).unwrap())
            .collect();
        // Each is told to go, or was turned away at the door.
        for stream in idle {
            assert_eq!(read_all(stream), "");
        }
        // On a busy machine even a prompt request may come too late; not a hundred times.
        let is_served = (0..100)
            .any(|_| ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        assert!(is_served);
    }

    #[test]
    fn a_figure_that_takes_long_keeps_neither_another_client_nor_the_end() {
        let (server, registry, _) = server();
        let (asked, is_asked) = mpsc::channel();
        let (_answer, answered) = mpsc::channel();
        registry.stage("ingest").archive(move || {
            asked.send(()).unwrap();
            answered.recv().ok().map(|()| ArchiveFigures::default())
        });
        let mut slow = TcpStream::connect(server.address()).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        is_asked.recv().unwrap();
        registry.stage("ingest").done(1, Duration::ZERO);
        let healthy = ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n");
        assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
        drop(server);
        assert_eq!(read_all(slow), "");
    }

    #[test]
    fn a_dropped_server_frees_its_address() {
        let (server, registry, health) = server();
        let address = server.address();
        // With a client in the middle of its request.
        let client = TcpStream::connect(address).unwrap();
        drop(server);
        assert_eq!(read_all(client), "");
        Server::start(address, registry, health).unwrap();
    }
}
