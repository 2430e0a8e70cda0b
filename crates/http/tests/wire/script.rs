//! A server that plays a script on each connection, and what tests ask it with.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use ecluse_http::{
    AddressPolicy, Authority, Client, Exchange, FetchLimits, Request, Scheme, Settings,
};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a server does next. The first request has been read before the first act.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Sends a piece again and again until the client goes away.
    Drip {
        piece: Vec<u8>,
        pause: Duration,
    },
    AwaitRequest,
    Wait(Duration),
    /// Says nothing until the client goes away.
    Hang,
    /// Closes, and with TLS says so.
    Close,
    /// Closes without a word of TLS.
    Cut,
    /// Ends the connection with a reset.
    Reset,
}

/// A server on loopback; it ends with the test.
pub(crate) struct Server {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Vec<u8>>,
    connections: usize,
    unanswered: usize,
    most_unanswered: usize,
}

impl Server {
    /// Plays one script on one connection.
    pub(crate) fn once(acts: Vec<Act>) -> Self {
        Self::new(vec![acts])
    }

    /// Plays a script on each connection, in the order they come; then nobody listens any more.
    pub(crate) fn new(scripts: Vec<Vec<Act>>) -> Self {
        Self::start(scripts, Line::Plain)
    }

    /// Plays scripts inside TLS.
    pub(crate) fn with_tls(config: ServerConfig, scripts: Vec<Vec<Act>>) -> Self {
        Self::start(scripts, Line::Tls(Arc::new(config)))
    }

    /// Plays one script without waiting for a request.
    pub(crate) fn raw(acts: Vec<Act>) -> Self {
        Self::start(vec![acts], Line::Raw)
    }

    fn start(scripts: Vec<Vec<Act>>, line: Line) -> Self {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for acts in scripts {
                let Ok((socket, _)) = listener.accept() else {
                    return;
                };
                noted.lock().unwrap().connections += 1;
                let (noted, line) = (Arc::clone(&noted), line.clone());
                // A client that goes away is no fault of the server's.
                thread::spawn(move || match line {
                    Line::Raw => play(&mut { socket }, &acts, &noted),
                    Line::Plain => converse(&mut { socket }, &acts, &noted),
                    Line::Tls(config) => {
                        let session = ServerConnection::new(config).unwrap();
                        converse(&mut StreamOwned::new(session, socket), &acts, &noted)
                    }
                });
            }
        });
        Self { port, seen }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// Returns how many requests were waiting for an answer at once, at most.
    pub(crate) fn most_unanswered(&self) -> usize {
        self.seen.lock().unwrap().most_unanswered
    }
}

#[derive(Clone)]
enum Line {
    Plain,
    Tls(Arc<ServerConfig>),
    Raw,
}

trait Wire: Read + Write {
    fn say_goodbye(&mut self);
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn say_goodbye(&mut self) {}

    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Wire for StreamOwned<ServerConnection, TcpStream> {
    fn say_goodbye(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }

    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

fn converse(wire: &mut impl Wire, acts: &[Act], seen: &Mutex<Seen>) -> io::Result<()> {
    read_request(wire, acts, seen)?;
    play(wire, acts, seen)
}

fn play(wire: &mut impl Wire, acts: &[Act], seen: &Mutex<Seen>) -> io::Result<()> {
    for act in acts {
        match act {
            Act::Send(bytes) => {
                seen.lock().unwrap().unanswered = 0;
                wire.write_all(bytes)?;
            }
            Act::Drip { piece, pause } => loop {
                wire.write_all(piece)?;
                thread::sleep(*pause);
            },
            Act::AwaitRequest => read_request(wire, acts, seen)?,
            Act::Wait(pause) => thread::sleep(*pause),
            Act::Hang => {
                io::copy(wire, &mut io::sink())?;
            }
            Act::Close | Act::Cut => {
                if matches!(act, Act::Close) {
                    wire.say_goodbye();
                }
                wire.socket().shutdown(Shutdown::Write)?;
                io::copy(&mut wire.socket(), &mut io::sink())?;
                return Ok(());
            }
            // A connection closed with a byte unread is reset.
            Act::Reset => return Ok(()),
        }
    }
    Ok(())
}

/// Reads a request, but for its last byte if the connection is to be reset.
fn read_request(wire: &mut impl Wire, acts: &[Act], seen: &Mutex<Seen>) -> io::Result<()> {
    let will_reset = acts.iter().any(|act| matches!(act, Act::Reset));
    let end: &[u8] = if will_reset { b"\r\n\r" } else { b"\r\n\r\n" };
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(end) {
        wire.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let mut seen = seen.lock().unwrap();
    seen.requests.push(request);
    seen.unanswered += 1;
    seen.most_unanswered = seen.most_unanswered.max(seen.unanswered);
    Ok(())
}

pub(crate) fn client() -> Client {
    Client::new(Settings::new(&std::env::temp_dir())).unwrap()
}

/// Limits short enough for tests, and long enough for a busy machine.
pub(crate) fn limits() -> FetchLimits {
    FetchLimits {
        connect: Duration::from_secs(5),
        tls: Duration::from_secs(5),
        first_byte: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        total: Duration::from_secs(20),
        ..FetchLimits::default()
    }
}

pub(crate) fn request(server: &Server, limits: FetchLimits) -> Request {
    let authority = Authority {
        scheme: Scheme::Http,
        host: "host.test".to_owned(),
        port: server.port(),
    };
    Request {
        limits,
        address_policy: AddressPolicy::Any,
        ..Request::get(authority, "/page", &[LOOPBACK], SystemTime::UNIX_EPOCH)
    }
}

pub(crate) fn block_on<Output>(work: impl Future<Output = Output>) -> Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

pub(crate) fn block(exchange: &Exchange) -> Vec<u8> {
    let mut bytes = Vec::new();
    exchange.block.reader().read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn payload(exchange: &Exchange) -> Vec<u8> {
    let mut bytes = Vec::new();
    exchange.payload().read_to_end(&mut bytes).unwrap();
    bytes
}
