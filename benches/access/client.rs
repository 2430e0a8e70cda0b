//! A client that asks over kept connections and reads every byte of the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at once.
const CONNECTIONS: usize = 4;

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    is_last: bool,
}

/// Asks for these paths in turn for so long, and returns how many answers came. Every one must be a 200.
pub(crate) fn ask(port: u16, paths: &[String], time: Duration) -> u64 {
    let (next, answers) = (AtomicUsize::new(0), AtomicU64::new(0));
    let end = Instant::now() + time;
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut connection = connect(port).unwrap();
                while Instant::now() < end {
                    let path = &paths[next.fetch_add(1, Ordering::Relaxed) % paths.len()];
                    let answer = exchange(&mut connection, path).unwrap();
                    assert_eq!(answer.status, 200, "{path}");
                    answers.fetch_add(1, Ordering::Relaxed);
                    if answer.is_last {
                        connection = connect(port).unwrap();
                    }
                }
            });
        }
    });
    answers.into_inner()
}

/// Asks once.
pub(crate) fn ask_for(port: u16, path: &str) -> io::Result<Answer> {
    exchange(&mut connect(port)?, path)
}

fn connect(port: u16) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

fn exchange(connection: &mut BufReader<TcpStream>, path: &str) -> io::Result<Answer> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n");
    connection.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status in {line:?}")))?;
    let (mut length, mut is_chunked, mut is_last) = (None, false, false);
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let field = line.trim_end().to_ascii_lowercase();
        if field.is_empty() {
            break;
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        is_chunked |= field.starts_with("transfer-encoding:") && field.contains("chunked");
        is_last |= field.starts_with("connection:") && field.contains("close");
    }
    let mut body = Vec::new();
    if is_chunked {
        read_chunks(connection, &mut body)?;
    } else if let Some(length) = length {
        connection.take(length).read_to_end(&mut body)?;
    } else {
        connection.read_to_end(&mut body)?;
        is_last = true;
    }
    Ok(Answer {
        status,
        body,
        is_last,
    })
}

fn read_chunks(connection: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        connection.take(length).read_to_end(body)?;
        line.clear();
        connection.read_line(&mut line)?;
        if length == 0 {
            return Ok(());
        }
    }
}
