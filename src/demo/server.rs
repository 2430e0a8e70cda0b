//! Serves the small web on loopback: HTTP/1.1 as far as a crawl needs it, one thread a connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::page::{MOMENT, Manner, Page};
use super::web::{Request, Web};

/// A longer request is none.
const LONGEST_HEAD: u64 = 32 << 10;
/// A silent client is left.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a port that is taken is waited for.
const HELD: Duration = Duration::from_secs(2);
/// Pieces of a body that drips.
const DROPS: usize = 8;

/// Serves until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Server {
    /// Listens on a port of 127.0.0.1.
    pub(crate) fn start(web: Web, port: u16) -> io::Result<Self> {
        let listener = bind(port)?;
        let server = Self {
            address: listener.local_addr()?,
            over: Arc::default(),
        };
        let over = Arc::clone(&server.over);
        let web = Arc::new(web);
        let builder = std::thread::Builder::new().name("demo".into());
        builder.spawn(move || listen(&listener, &web, &over))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // The listener looks up when somebody comes.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// Takes a port; one that was just killed may hold it for a moment yet.
fn bind(port: u16) -> io::Result<TcpListener> {
    let deadline = Instant::now() + HELD;
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

fn listen(listener: &TcpListener, web: &Arc<Web>, over: &AtomicBool) {
    while let Ok((stream, _)) = listener.accept() {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let web = Arc::clone(web);
        // Without a thread the client finds its connection closed, as with any overloaded server.
        let _ = std::thread::Builder::new().spawn(move || {
            // A client that left is no fault of ours.
            let _ = converse(&stream, &web);
        });
    }
}

/// Answers the requests of one connection.
fn converse(stream: &TcpStream, web: &Web) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((method, request, close)) = read_request(&mut reader)? {
        let page = web.answer(&request);
        send(stream, &page, method == "HEAD")?;
        if close {
            break;
        }
    }
    Ok(())
}

/// Reads the head of a request; none when the client has left.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(String, Request, bool)>> {
    let mut head = reader.take(LONGEST_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let mut request = Request {
        path: words.next().unwrap_or("/").to_owned(),
        ..Request::default()
    };
    let mut close = words.next() != Some("HTTP/1.1");
    loop {
        line.clear();
        head.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" => request.host = value.to_ascii_lowercase(),
            "cookie" => request.cookie = value.to_owned(),
            "if-none-match" => request.none_match = value.to_owned(),
            "if-modified-since" => request.modified_since = value.to_owned(),
            "connection" => close |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    Ok(Some((method, request, close)))
}

fn send(mut stream: &TcpStream, page: &Page, head_only: bool) -> io::Result<()> {
    stream.write_all(head_of(page).as_bytes())?;
    if head_only || page.status == 304 {
        return Ok(());
    }
    match page.manner {
        Manner::Plain => stream.write_all(&page.body),
        Manner::Chunked => {
            for piece in page.body.chunks(1000) {
                stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                stream.write_all(piece)?;
                stream.write_all(b"\r\n")?;
            }
            stream.write_all(b"0\r\n\r\n")
        }
        Manner::Dripping(pause) => {
            for piece in page.body.chunks(page.body.len().div_ceil(DROPS).max(1)) {
                stream.write_all(piece)?;
                std::thread::sleep(pause);
            }
            Ok(())
        }
    }
}

fn head_of(page: &Page) -> String {
    let reason = match page.status {
        200 => "OK",
        304 => "Not Modified",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Found",
    };
    let mut head = format!(
        "HTTP/1.1 {} {reason}\r\nDate: {MOMENT}\r\nServer: ecluse-demo\r\nContent-Type: {}\r\n",
        page.status, page.kind
    );
    if page.validates {
        head.push_str(&format!("Last-Modified: {MOMENT}\r\n"));
        if page.status != 304 {
            head.push_str(&format!("ETag: {}\r\n", page.tag()));
        }
    }
    for (name, value) in &page.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if page.status != 304 {
        match page.manner {
            Manner::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            Manner::Plain | Manner::Dripping(_) => {
                head.push_str(&format!("Content-Length: {}\r\n", page.body.len()));
            }
        }
    }
    head.push_str("\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, text: &str) -> String {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn two_requests_share_a_connection() {
        let server = Server::start(Web::new(1), 0).unwrap();
        let answer = ask(
            &server,
            "GET /rooms/1 HTTP/1.1\r\nHost: museum.localhost\r\n\r\n\
             GET /log.html HTTP/1.1\r\nhost: CANAL.localhost:1\r\nConnection: close\r\n\r\n",
        );
        assert!(answer.contains("Room 1"), "{answer}");
        assert!(answer.contains("Transfer-Encoding: chunked"));
        assert!(answer.ends_with("0\r\n\r\n"));
    }

    #[test]
    fn what_has_not_changed_is_not_sent() {
        let server = Server::start(Web::new(1), 0).unwrap();
        let answer = ask(
            &server,
            &format!(
                "GET / HTTP/1.0\r\nHost: files.localhost\r\nIf-Modified-Since: {MOMENT}\r\n\r\n"
            ),
        );
        assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains("Content-Length"));
    }

    #[test]
    fn a_head_has_no_body_and_half_a_request_no_answer() {
        let server = Server::start(Web::new(1), 0).unwrap();
        let answer = ask(&server, "HEAD / HTTP/1.0\r\nHost: slow.localhost\r\n\r\n");
        assert!(answer.contains("Content-Length: ") && answer.ends_with("\r\n\r\n"));
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.is_empty());
    }
}
