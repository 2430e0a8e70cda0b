//! Answers that do not fit a datagram, by TCP: one connection to each resolver, with many questions on it (RFC 7766).

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

/// Questions on their way by TCP to one resolver; more wait.
const QUESTIONS: usize = 1000;
/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// The connection to a resolver.
pub(crate) struct TcpLane {
    stream: TcpStream,
    out: Vec<u8>,
    /// What of `out` is sent.
    sent: usize,
    input: Vec<u8>,
    questions: HashMap<u16, u32>,
}

/// Why a connection is of no more use.
pub(crate) struct TcpEnd {
    /// The questions that were on their way on it.
    pub(crate) questions: Vec<u32>,
}

impl TcpLane {
    /// Begins to connect.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            stream: TcpStream::from(socket),
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            questions: HashMap::new(),
        })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn has_room(&self) -> bool {
        self.questions.len() < QUESTIONS
    }

    /// Gives a question an id that nobody has here.
    pub(crate) fn take_id(&mut self, question: u32, mut random: impl FnMut() -> u16) -> u16 {
        loop {
            let id = random();
            if let std::collections::hash_map::Entry::Vacant(free) = self.questions.entry(id) {
                free.insert(question);
                return id;
            }
        }
    }

    /// Returns whose id this is.
    pub(crate) fn question(&self, id: u16) -> Option<u32> {
        self.questions.get(&id).copied()
    }

    /// Gives an id back.
    pub(crate) fn release(&mut self, id: u16) {
        self.questions.remove(&id);
    }

    /// Returns all questions on their way.
    pub(crate) fn questions(&self) -> Vec<u32> {
        self.questions.values().copied().collect()
    }

    /// Queues a message.
    pub(crate) fn queue(&mut self, message: &[u8]) {
        let bytes = u16::try_from(message.len()).expect("a question is short");
        self.out.extend(bytes.to_be_bytes());
        self.out.extend(message);
    }

    /// Sends and receives what can be now; `take` is given each message that came.
    pub(crate) fn go_on(&mut self, take: &mut dyn FnMut(&mut Self, &[u8])) -> Result<(), TcpEnd> {
        match self.exchange(take) {
            Ok(()) => Ok(()),
            Err(_) => Err(TcpEnd {
                questions: self.questions(),
            }),
        }
    }

    fn exchange(&mut self, take: &mut dyn FnMut(&mut Self, &[u8])) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.input.extend(&buffer[..bytes]);
                    self.take_messages(take);
                }
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn take_messages(&mut self, take: &mut dyn FnMut(&mut Self, &[u8])) {
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((length, more)) = rest.split_first_chunk() {
            let bytes = usize::from(u16::from_be_bytes(*length));
            let Some(message) = more.get(..bytes) else {
                break;
            };
            take(self, message);
            rest = &more[bytes..];
        }
        self.input = rest.to_vec();
    }
}

/// Not connected yet, or nothing to be had now.
fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}
