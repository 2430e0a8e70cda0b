//! A web on loopback: hosts by name, answers byte by byte, and a log of who was asked when.
//!
//! A host is a closure that gets the request and the wire, so that it can send any bytes at any pace. All hosts of a web
//! share one port on each of its addresses. The log is the server's own: it is what manners are measured by. Threads end
//! with the program.

mod answer;
pub(crate) mod line;
mod request;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustls::ServerConfig;

pub use answer::{Answer, chunked, gzip, html};
pub use request::WebRequest;
pub use wire::{After, Wire};

/// What a host does with a request.
pub type Handler = dyn Fn(&WebRequest, &mut Wire) -> io::Result<After> + Send + Sync;

/// A web on loopback.
pub struct Web {
    scheme: &'static str,
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    hosts: Mutex<BTreeMap<String, Arc<Handler>>>,
    log: Mutex<Vec<SeenRequest>>,
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// When its first byte came.
    pub start: Instant,
    /// When the last bytes of the answer were about to go out, or it was given up; none as long as it is being sent. Noted
    /// before, not after: the client may have them long before this machine lets the server go on.
    pub end: Option<Instant>,
    /// The host that was asked for, without its port; lower case.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Who asked.
    pub peer: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
}

impl Web {
    /// Starts a web on 127.0.0.1.
    pub fn start() -> Self {
        Self::on(&[Ipv4Addr::LOCALHOST])
    }

    /// Starts a web on these addresses of 127.0.0.0/8, on one port that is free on all of them.
    pub fn on(addresses: &[Ipv4Addr]) -> Self {
        Self::listen("http", addresses, None)
    }

    /// Starts a web on 127.0.0.1 that speaks TLS, with a certificate for every name below `test` that nobody signed.
    pub fn secure() -> Self {
        Self::listen("https", &[Ipv4Addr::LOCALHOST], Some(line::self_signed()))
    }

    fn listen(
        scheme: &'static str,
        addresses: &[Ipv4Addr],
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listeners = listen(addresses);
        let port = listeners[0].local_addr().expect("it listens").port();
        let shared = Arc::new(Shared::default());
        for listener in listeners {
            let (shared, tls) = (Arc::clone(&shared), tls.clone());
            thread::spawn(move || {
                for socket in listener.incoming().flatten() {
                    let (shared, tls) = (Arc::clone(&shared), tls.clone());
                    // A client that goes away is no fault of the server's.
                    thread::spawn(move || shared.converse(socket, tls.as_ref()));
                }
            });
        }
        Self {
            scheme,
            port,
            shared,
        }
    }

    /// Returns the port of all its addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a path on a host.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.port)
    }

    /// Adds a host, or changes what it does.
    pub fn host(
        &self,
        name: &str,
        handler: impl Fn(&WebRequest, &mut Wire) -> io::Result<After> + Send + Sync + 'static,
    ) {
        let handler: Arc<Handler> = Arc::new(handler);
        lock(&self.shared.hosts).insert(name.to_ascii_lowercase(), handler);
    }

    /// Adds a host with fixed answers by path and query; all else is 404.
    pub fn pages(&self, name: &str, pages: impl IntoIterator<Item = (String, Answer)>) {
        let pages: BTreeMap<String, Answer> = pages.into_iter().collect();
        self.host(name, move |request, wire| {
            match pages.get(&request.target) {
                Some(answer) => wire.answer(answer),
                None => wire.answer(&Answer::missing()),
            }
        });
    }

    /// Returns what was asked so far, in the order of their first bytes.
    pub fn log(&self) -> Vec<SeenRequest> {
        let mut log = lock(&self.shared.log).clone();
        log.sort_by_key(|seen| seen.start);
        log
    }

    /// Returns what these hosts were asked so far.
    pub fn log_of(&self, hosts: &[&str]) -> Vec<SeenRequest> {
        let mut log = self.log();
        log.retain(|seen| hosts.contains(&seen.host.as_str()));
        log
    }
}

impl Shared {
    fn converse(&self, socket: TcpStream, tls: Option<&Arc<ServerConfig>>) {
        let Ok(mut wire) = Wire::new(socket, tls) else {
            return;
        };
        while let Ok(Some((request, start))) = wire.request() {
            let number = self.begin(&request, start, &wire);
            let handler = lock(&self.hosts).get(&request.host).cloned();
            let after = match handler {
                Some(handler) => handler(&request, &mut wire),
                None => wire.answer(&Answer::missing()),
            };
            lock(&self.log)[number].end = Some(wire.sent().unwrap_or_else(Instant::now));
            match after {
                Ok(After::Keep) => {}
                Ok(After::Close) => return wire.close(),
                Ok(After::Reset) => return wire.reset(),
                Err(_) => return,
            }
        }
    }

    fn begin(&self, request: &WebRequest, start: Instant, wire: &Wire) -> usize {
        let mut log = lock(&self.log);
        log.push(SeenRequest {
            start,
            end: None,
            host: request.host.clone(),
            target: request.target.clone(),
            bytes: request.bytes.clone(),
            peer: wire.peer(),
            local: wire.local(),
        });
        log.len() - 1
    }
}

/// Starts a server on a free port of 127.0.0.1 that gives each connection to a closure as it comes: for what is not
/// HTTP. Returns the port.
pub fn raw(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    let port = listener.local_addr().expect("it listens").port();
    let handler = Arc::new(handler);
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let handler = Arc::clone(&handler);
            thread::spawn(move || handler(socket));
        }
    });
    port
}

/// Listens on one port of all addresses.
fn listen(addresses: &[Ipv4Addr]) -> Vec<TcpListener> {
    let listen_on = |address: &Ipv4Addr, port| TcpListener::bind((IpAddr::V4(*address), port));
    for _ in 0..100 {
        let first = listen_on(&addresses[0], 0).expect("loopback has a free port");
        let port = first.local_addr().expect("it listens").port();
        let others: io::Result<Vec<TcpListener>> = addresses[1..]
            .iter()
            .map(|address| listen_on(address, port))
            .collect();
        if let Ok(others) = others {
            return std::iter::once(first).chain(others).collect();
        }
    }
    panic!("no port is free on all of {addresses:?}");
}

fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    fn ask(address: Ipv4Addr, port: u16, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect((address, port)).expect("it listens");
        socket.write_all(bytes).expect("it reads");
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn hosts_are_told_apart_and_every_request_is_logged() {
        let second = Ipv4Addr::new(127, 0, 0, 2);
        let web = Web::on(&[Ipv4Addr::LOCALHOST, second]);
        web.pages("a.test", [("/x".to_owned(), html("<p>a</p>"))]);
        web.host("b.test", |request, wire| {
            wire.send(b"HTTP/1.1 299 Mine\r\n\r\n")?;
            wire.drip(request.target.as_bytes(), 2, Duration::from_millis(1))?;
            Ok(After::Close)
        });
        let answer = ask(
            second,
            web.port(),
            b"GET /x HTTP/1.1\r\nHost: A.test:1\r\n\r\nGET /y?z HTTP/1.1\r\nhost: b.test\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("<p>a</p>HTTP/1.1 299 Mine"), "{answer}");
        assert!(answer.ends_with("/y?z/y?z"), "{answer}");
        let nobody = b"GET / HTTP/1.1\r\nHost: c.test\r\nConnection: close\r\n\r\n";
        let answer = ask(Ipv4Addr::LOCALHOST, web.port(), nobody);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let log = web.log();
        let asked: Vec<(&str, &str)> = log
            .iter()
            .map(|seen| (seen.host.as_str(), seen.target.as_str()))
            .collect();
        assert_eq!(
            asked,
            [("a.test", "/x"), ("b.test", "/y?z"), ("c.test", "/")]
        );
        assert_eq!(log[0].local.ip(), IpAddr::V4(second));
        assert_eq!(log[2].bytes, nobody);
        assert!(log.iter().all(|seen| seen.end >= Some(seen.start)));
        assert_eq!(web.log_of(&["b.test"]).len(), 1);
    }

    #[test]
    fn a_reset_is_a_reset() {
        let web = Web::start();
        web.host("a.test", |_, _| Ok(After::Reset));
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, web.port())).expect("it listens");
        socket
            .write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .expect("it reads");
        let error = socket.read(&mut [0]).expect_err("the connection is reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
