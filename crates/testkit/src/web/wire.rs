//! One connection of a client: requests come in, bytes go out at any pace, and it ends as a test wants it to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustls::ServerConfig;

use super::answer::Answer;
use super::line::Line;
use super::request::WebRequest;

/// What becomes of a connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It takes another request.
    Keep,
    /// It ends in good order.
    Close,
    /// It ends with a reset.
    Reset,
}

/// One connection of a client.
pub struct Wire {
    line: BufReader<Line>,
    peer: SocketAddr,
    local: SocketAddr,
    /// The client said that this request is its last.
    last: bool,
    /// When the last bytes of the answer were about to go out.
    sent: Option<Instant>,
}

impl Wire {
    pub(crate) fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        // Pieces go out as they are sent, not when there are enough of them.
        socket.set_nodelay(true)?;
        Ok(Self {
            peer: socket.peer_addr()?,
            local: socket.local_addr()?,
            line: BufReader::new(Line::new(socket, tls)?),
            last: false,
            sent: None,
        })
    }

    /// Returns who asks.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns where it came in.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Reads a request; none when the client has gone. Also when its first byte came.
    pub(crate) fn request(&mut self) -> io::Result<Option<(WebRequest, Instant)>> {
        if self.line.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let start = Instant::now();
        self.sent = None;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if self.line.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
        }
        let request = WebRequest::new(bytes);
        let connection = request.field("Connection").unwrap_or_default();
        self.last = connection.eq_ignore_ascii_case("close");
        Ok(Some((request, start)))
    }

    /// Returns when the last bytes of the answer were about to go out, if any did.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.sent
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = Some(Instant::now());
        let line = self.line.get_mut();
        line.write_all(bytes)?;
        line.flush()
    }

    /// Sends a piece so many times, with a pause after each.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn drip(&mut self, piece: &[u8], times: usize, pause: Duration) -> io::Result<()> {
        for _ in 0..times {
            self.send(piece)?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Sends an answer and keeps the connection, if the answer and the client allow it.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn answer(&mut self, answer: &Answer) -> io::Result<After> {
        self.send(answer.bytes())?;
        let keep = answer.keeps() && !self.last;
        Ok(if keep { After::Keep } else { After::Close })
    }

    /// Says nothing until the client goes away.
    ///
    /// # Errors
    /// When the client goes away with a reset.
    pub fn hang(&mut self) -> io::Result<After> {
        io::copy(&mut self.line, &mut io::sink())?;
        Ok(After::Close)
    }

    /// Ends the connection; what was sent arrives.
    pub(crate) fn close(mut self) {
        self.line.get_mut().say_goodbye();
        let socket = self.line.get_ref().socket();
        if socket.shutdown(Shutdown::Write).is_ok() {
            // Closed with bytes unread it would be reset, and what was sent could be lost.
            let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = socket.take(1 << 20).read_to_end(&mut Vec::new());
        }
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        let _ = set_socket_linger(self.line.get_ref().socket(), Some(Duration::ZERO));
    }
}
