//! A door in front of an S3 store that can be made slow, read-only, full or out of order. What it lets through it does not
//! change: requests are signed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ailment {
    None,
    /// Every call takes five seconds more.
    Slow,
    /// It answers 503 to everything.
    Unavailable,
    /// It refuses whatever would change it.
    ReadOnly,
    /// It has no room for anything new.
    Full,
}

const SLOW: Duration = Duration::from_secs(5);
/// Who says nothing for so long is let go.
const SILENCE: Duration = Duration::from_secs(60);
/// A head of a request is no longer.
const HEAD_BYTES: u64 = 64 << 10;

/// The door. It stays open as long as the process lives.
#[derive(Clone)]
pub(crate) struct StoreDoor {
    state: Arc<DoorState>,
}

struct DoorState {
    ailment: AtomicU8,
    refused: AtomicU64,
    store: String,
}

impl StoreDoor {
    /// Opens a door at one address to the store at another.
    pub(crate) fn open(at: &str, store: String) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        let state = Arc::new(DoorState {
            ailment: AtomicU8::new(Ailment::None as u8),
            refused: AtomicU64::new(0),
            store,
        });
        let door = Self { state };
        let opened = door.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let door = opened.clone();
                std::thread::spawn(move || {
                    // Whoever hangs up, on either side, has said so to the other.
                    let _ = door.serve(client);
                });
            }
        });
        Ok(door)
    }

    /// Makes the store ail so from now on.
    pub(crate) fn ail(&self, ailment: Ailment) {
        self.state.ailment.store(ailment as u8, Ordering::SeqCst);
    }

    /// Returns how many requests were refused or made to wait.
    pub(crate) fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::SeqCst)
    }

    /// Serves one request; every connection has only one.
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(SILENCE))?;
        let mut reader = BufReader::new(client.try_clone()?);
        let Some(request) = Request::read(&mut reader)? else {
            return Ok(());
        };
        let now = self.state.ailment.load(Ordering::SeqCst);
        let is = |ailment: Ailment| now == ailment as u8;
        let refusal = if is(Ailment::Unavailable) {
            Some("503 Service Unavailable")
        } else if is(Ailment::ReadOnly) && request.changes() {
            Some("403 Forbidden")
        } else if is(Ailment::Full) && request.adds() {
            Some("507 Insufficient Storage")
        } else {
            None
        };
        if is(Ailment::Slow) || refusal.is_some() {
            self.state.refused.fetch_add(1, Ordering::SeqCst);
        }
        let Some(refusal) = refusal else {
            if is(Ailment::Slow) {
                std::thread::sleep(SLOW);
            }
            return self.pass_on(&request, &mut reader, client);
        };
        io::copy(&mut (&mut reader).take(request.body_bytes), &mut io::sink())?;
        let code = match refusal.as_bytes()[2] {
            b'7' => "InsufficientStorage",
            _ if refusal.starts_with("403") => "AccessDenied",
            _ => "ServiceUnavailable",
        };
        let body = format!("<Error><Code>{code}</Code><Message>{refusal}</Message></Error>");
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {refusal}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let mut client = client;
        client.write_all(head.as_bytes())?;
        client.write_all(body.as_bytes())
    }

    fn pass_on(
        &self,
        request: &Request,
        body: &mut impl Read,
        mut client: TcpStream,
    ) -> io::Result<()> {
        let mut store = TcpStream::connect(&self.state.store)?;
        store.set_read_timeout(Some(SILENCE))?;
        store.write_all(request.head.as_bytes())?;
        io::copy(&mut body.take(request.body_bytes), &mut store)?;
        // The answer ends with the connection, on both sides.
        io::copy(&mut store, &mut client)?;
        Ok(())
    }
}

/// The head of a request, with the wish that the connection ends with the answer.
struct Request {
    head: String,
    method: String,
    body_bytes: u64,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = String::new();
        let mut method = String::new();
        let mut body_bytes = 0;
        let mut lines = reader.take(HEAD_BYTES);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if line.trim_end().is_empty() {
                break;
            }
            if method.is_empty() {
                line.split(' ')
                    .next()
                    .unwrap_or("-")
                    .clone_into(&mut method);
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                let bytes = value.trim().parse();
                body_bytes = bytes.map_err(|_| io::Error::other("no length"))?;
            }
            if !name.eq_ignore_ascii_case("connection") {
                head.push_str(&line);
            }
        }
        head.push_str("Connection: close\r\n\r\n");
        Ok(Some(Self {
            head,
            method,
            body_bytes,
        }))
    }

    /// Tells whether it would change what is stored.
    fn changes(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD")
    }

    /// Tells whether it would need room.
    fn adds(&self) -> bool {
        matches!(self.method.as_str(), "PUT" | "POST")
    }
}
