//! A small HTTP server for `/metrics`, `/healthz` and `/readyz`.
//!
//! It serves a scraper and a load balancer, and must not harm the work whatever connects: requests
//! are bounded in size, in time and in number, and nothing a client sends is kept or shown.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::family::Exposition;
use crate::registry::Registry;

/// A request's line and headers; Prometheus sends about 400 bytes.
const LONGEST_REQUEST: usize = 8 * 1_024;
/// From the first byte to the last, in each direction.
const REQUEST_TIME: Duration = Duration::from_secs(5);
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
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve on an address; port 0 chooses one.
    pub fn start(address: SocketAddr, registry: Registry, health: Health) -> io::Result<Server> {
        Server::start_with(address, registry, health, REQUEST_TIME)
    }

    fn start_with(
        address: SocketAddr,
        registry: Registry,
        health: Health,
        request_time: Duration,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let office = Office {
            registry,
            health,
            request_time,
            clients: AtomicUsize::new(0),
        };
        let is_stopping = Arc::clone(&stopping);
        let thread = thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || accept(&listener, &Arc::new(office), &is_stopping))?;
        Ok(Server {
            address,
            stopping,
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
        self.stopping.store(true, Ordering::SeqCst);
        // A connection wakes the thread from `accept`.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            // Its panic, if any, was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// What every client is served from.
struct Office {
    registry: Registry,
    health: Health,
    request_time: Duration,
    clients: AtomicUsize,
}

/// One of the places for clients; free again when dropped, whatever became of the client.
struct ClientSlot(Arc<Office>);

impl ClientSlot {
    fn take(office: &Arc<Office>) -> Option<ClientSlot> {
        let place = ClientSlot(Arc::clone(office));
        let before = office.clients.fetch_add(1, Ordering::SeqCst);
        Some(place).filter(|_| before < MOST_CLIENTS)
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

fn accept(listener: &TcpListener, office: &Arc<Office>, stopping: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: trying again at once would only burn time.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = ClientSlot::take(office) else {
            // Dropped unread: an answer might have to wait for the client.
            continue;
        };
        // Without a thread for it, client and place are dropped with the closure.
        let _ = thread::Builder::new()
            .name("metrics-client".to_owned())
            .spawn(move || {
                // A client that goes away is no concern of ours.
                let _ = serve(stream, &place.0);
            });
    }
}

fn serve(mut stream: TcpStream, office: &Office) -> io::Result<()> {
    stream.set_write_timeout(Some(office.request_time))?;
    let answer = match read_head(&mut stream, office.request_time)? {
        Head::Whole(head) => answer(&head, office),
        Head::TooLong => Answer::refusal("431 Request Header Fields Too Large"),
        Head::TooSlow => Answer::refusal("408 Request Timeout"),
        Head::Gone => return Ok(()),
    };
    answer.write(&mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    // Closing with unread bytes would reset the connection and take the answer with it.
    let mut rest = [0; 1_024];
    let deadline = Instant::now() + Duration::from_millis(500);
    for _ in 0..64 {
        let Some(left) = time_until(deadline) else {
            break;
        };
        stream.set_read_timeout(Some(left))?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

enum Head {
    Whole(Vec<u8>),
    TooLong,
    TooSlow,
    Gone,
}

/// Reads to the empty line that ends a request's headers.
fn read_head(stream: &mut TcpStream, request_time: Duration) -> io::Result<Head> {
    let deadline = Instant::now() + request_time;
    let mut head = Vec::new();
    let mut buffer = [0; 1_024];
    loop {
        // A timeout per read would let a client that drips bytes stay for hours.
        let Some(left) = time_until(deadline) else {
            return Ok(Head::TooSlow);
        };
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(Head::Gone),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                return Ok(Head::TooSlow);
            }
            Err(error) => return Err(error),
        };
        head.extend_from_slice(&buffer[..count]);
        if head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
            || head.windows(2).any(|bytes| bytes == b"\n\n")
        {
            return Ok(Head::Whole(head));
        }
        if head.len() > LONGEST_REQUEST {
            return Ok(Head::TooLong);
        }
    }
}

/// The time left, or `None` when there is none; a socket takes no zero timeout.
fn time_until(deadline: Instant) -> Option<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
}

struct Answer {
    status: &'static str,
    media_type: &'static str,
    body: String,
    is_head: bool,
}

impl Answer {
    fn refusal(status: &'static str) -> Answer {
        Answer {
            status,
            media_type: "text/plain; charset=utf-8",
            body: format!("{status}\n"),
            is_head: false,
        }
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let Answer {
            status,
            media_type,
            body,
            is_head,
        } = self;
        let allow = if status.starts_with("405") {
            "Allow: GET, HEAD\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        if !is_head {
            stream.write_all(body.as_bytes())?;
        }
        stream.flush()
    }
}

fn answer(head: &[u8], office: &Office) -> Answer {
    let Ok(head) = std::str::from_utf8(head) else {
        return Answer::refusal("400 Bad Request");
    };
    let mut lines = head.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Answer::refusal("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::refusal("505 HTTP Version Not Supported");
    }
    if method != "GET" && method != "HEAD" {
        return Answer::refusal("405 Method Not Allowed");
    }
    let path = target.split('?').next().unwrap_or_default();
    let (status, media_type, body) = match path {
        "/metrics" => {
            let exposition = asked_for(lines);
            let text = office.registry.render(exposition);
            ("200 OK", exposition.media_type(), text)
        }
        "/healthz" => {
            let body = r#"{"schema":1,"status":"ok"}"#.to_owned();
            ("200 OK", "application/json", body)
        }
        "/readyz" => {
            let reasons = office.health.reasons();
            let (code, status) = if reasons.is_empty() {
                ("200 OK", "ready")
            } else {
                ("503 Service Unavailable", "not ready")
            };
            let body = serde_json::json!({ "schema": 1, "status": status, "reasons": reasons });
            (code, "application/json", body.to_string())
        }
        _ => return Answer::refusal("404 Not Found"),
    };
    Answer {
        status,
        media_type,
        body,
        is_head: method == "HEAD",
    }
}

/// OpenMetrics for those who ask for it, else what everything reads.
fn asked_for<'a>(headers: impl Iterator<Item = &'a str>) -> Exposition {
    let accepts = headers
        .filter_map(|header| header.split_once(':'))
        .any(|(name, value)| {
            name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
        });
    if accepts {
        Exposition::OpenMetrics
    } else {
        Exposition::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> (Server, Registry, Health) {
        server_with(Duration::from_secs(60))
    }

    fn server_with(time: Duration) -> (Server, Registry, Health) {
        let registry = Registry::new("1.2.3");
        let health = Health::starting();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let server = Server::start_with(address, registry.clone(), health.clone(), time).unwrap();
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
        assert!(plain.contains("Content-Type: text/plain; version=0.0.4"));
        assert_eq!(body(&plain), registry.render(Exposition::Plain));
        let length = format!("Content-Length: {}\r\n", body(&plain).len());
        assert!(plain.contains(&length));

        let open = ask(
            &server,
            b"GET /metrics?x=1 HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
        );
        assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
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
            (b"GET /metrics SPDY/3\r\n\r\n", "505"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
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
    fn half_a_request_is_waited_for_and_then_refused() {
        let (server, _, _) = server_with(Duration::from_millis(50));
        for half in [&b""[..], b"GET /metrics HTTP/1.1\r\nHalf: a hea"] {
            let answer = ask(&server, half);
            assert!(answer.starts_with("HTTP/1.1 408 "), "{half:?}: {answer}");
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
            let answer = read_all(stream);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "));
        }
        // On a busy machine even a prompt request may come too late; not a hundred times.
        let is_served = (0..100)
            .any(|_| ask(&server, b"GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        assert!(is_served);
    }

    #[test]
    fn a_dropped_server_frees_its_address() {
        let (server, registry, health) = server();
        let address = server.address();
        drop(server);
        Server::start(address, registry, health).unwrap();
    }
}
