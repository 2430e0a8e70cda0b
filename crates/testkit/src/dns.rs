//! A name server on loopback that answers as a test tells it to, over UDP.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What is said of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Its IPv4 addresses; it has no others.
    V4(Vec<Ipv4Addr>),
    /// Its IPv6 addresses; it has no others.
    V6(Vec<Ipv6Addr>),
    /// Another name, which is looked up here.
    Alias(String),
    /// NXDOMAIN.
    NoSuchName,
    /// NODATA: it is there and has no address.
    NoAddress,
    /// SERVFAIL.
    Fails,
    /// REFUSED.
    Refused,
    /// No answer at all.
    Silent,
}

/// A name server on loopback; it ends with the program.
pub struct Names {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    names: Mutex<BTreeMap<String, Named>>,
    ttl: u32,
    questions: Mutex<Vec<String>>,
}

const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;
/// More aliases than this are a loop.
const ALIASES: usize = 16;

impl Names {
    /// Starts a name server that knows no name; answers hold for so many seconds.
    pub fn start(ttl: u32) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), ttl)
    }

    /// Starts a name server at an address of its own, where programs look for one that cannot be told.
    pub fn start_at(address: SocketAddr, ttl: u32) -> Self {
        let socket = UdpSocket::bind(address).expect("the address is free");
        let address = socket.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            names: Mutex::default(),
            ttl,
            questions: Mutex::default(),
        });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
                if let Some(answer) = server.answer(&buffer[..bytes]) {
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Self { address, shared }
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says what a name is; `*.x.test` is every name below `x.test` of which nothing else is said.
    pub fn set(&self, name: &str, named: Named) {
        lock(&self.shared.names).insert(name.to_ascii_lowercase(), named);
    }

    /// Returns the names that were asked for, in order; a name asked for both kinds of addresses is there twice.
    pub fn questions(&self) -> Vec<String> {
        lock(&self.shared.questions).clone()
    }
}

impl Shared {
    fn find(&self, name: &str) -> Named {
        let names = lock(&self.names);
        let above = name.split_once('.').map(|(_, above)| format!("*.{above}"));
        let known = names.get(name);
        let known = known.or_else(|| names.get(&above?));
        known.cloned().unwrap_or(Named::NoSuchName)
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let (name, end) = read_name(question)?;
        let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
        lock(&self.questions).push(name.clone());
        let mut reply = Reply {
            records: Vec::new(),
            answers: 0,
            ttl: self.ttl,
        };
        let code = self.look(&name, kind, &mut reply)?;
        let is_empty = reply.answers == 0;
        let mut message = question.get(..2)?.to_vec();
        // A response by an authority; recursion as it was asked for, and to be had.
        message.extend([0x84 | (question[2] & 1), 0x80 | code]);
        message.extend([0, 1]);
        message.extend(reply.answers.to_be_bytes());
        message.extend([0, u8::from(is_empty), 0, 0]);
        message.extend(question.get(12..end + 4)?);
        message.extend(reply.records);
        if is_empty {
            message.extend(self.authority());
        }
        Some(message)
    }

    /// Gathers the records for a name, aliases first; returns the code, or none for no answer.
    fn look(&self, name: &str, kind: u16, reply: &mut Reply) -> Option<u8> {
        let mut name = name.to_owned();
        for _ in 0..ALIASES {
            match self.find(&name) {
                Named::V4(addresses) if kind == A => {
                    for address in addresses {
                        reply.add(&name, A, &address.octets());
                    }
                }
                Named::V6(addresses) if kind == AAAA => {
                    for address in addresses {
                        reply.add(&name, AAAA, &address.octets());
                    }
                }
                Named::V4(_) | Named::V6(_) | Named::NoAddress => {}
                Named::Alias(other) => {
                    reply.add(&name, CNAME, &labels(&other));
                    name = other;
                    continue;
                }
                Named::NoSuchName => return Some(3),
                Named::Fails => return Some(2),
                Named::Refused => return Some(5),
                Named::Silent => return None,
            }
            return Some(0);
        }
        Some(2)
    }

    /// The record that says for how long there is nothing.
    fn authority(&self) -> Vec<u8> {
        let mut data = labels("ns.test");
        data.extend(labels("keeper.test"));
        for number in [1, 3600, 600, 86_400, self.ttl] {
            data.extend(u32::to_be_bytes(number));
        }
        record("test", SOA, self.ttl, &data)
    }
}

/// The records of an answer.
struct Reply {
    records: Vec<u8>,
    answers: u16,
    ttl: u32,
}

impl Reply {
    fn add(&mut self, name: &str, kind: u16, data: &[u8]) {
        self.records.extend(record(name, kind, self.ttl, data));
        self.answers += 1;
    }
}

fn record(name: &str, kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = labels(name);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(1_u16.to_be_bytes());
    bytes.extend(ttl.to_be_bytes());
    let length = u16::try_from(data.len()).expect("a test's records are short");
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A name as messages have it.
fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("a label is short"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

/// Reads the name of the question, in lower case; also where it ends.
fn read_name(message: &[u8]) -> Option<(String, usize)> {
    let mut at = 12;
    let mut parts = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((parts.join("."), at));
        }
        let label = message.get(at..at + length)?;
        parts.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Asks, and returns the answer but for its first two bytes; none if there is none in time.
    fn ask(names: &Names, name: &str, kind: u16) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let wait = Some(Duration::from_millis(200));
        socket.set_read_timeout(wait).expect("a socket can wait");
        let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        question.extend(labels(name));
        question.extend([0, u8::try_from(kind).expect("a small number"), 0, 1]);
        socket
            .send_to(&question, names.address())
            .expect("it listens");
        let mut buffer = [0; 512];
        let bytes = socket.recv(&mut buffer).ok()?;
        Some(buffer[2..bytes].to_vec())
    }

    #[test]
    fn each_kind_of_answer_is_what_it_says() {
        let names = Names::start(300);
        let address = Ipv4Addr::new(127, 1, 2, 3);
        names.set("a.test", Named::V4(vec![address, Ipv4Addr::LOCALHOST]));
        names.set("b.test", Named::Alias("a.test".to_owned()));
        names.set("*.c.test", Named::V4(vec![address]));
        names.set("fails.test", Named::Fails);
        names.set("silent.test", Named::Silent);
        let answer = ask(&names, "A.test", A).expect("there is an answer");
        assert_eq!(answer[..8], [0x85, 0x80, 0, 1, 0, 2, 0, 0]);
        assert!(answer.windows(4).any(|four| four == address.octets()));
        let answer = ask(&names, "b.test", A).expect("there is an answer");
        assert_eq!(answer[5], 3, "an alias and two addresses");
        let answer = ask(&names, "x.c.test", AAAA).expect("there is an answer");
        assert_eq!(
            answer[1..8],
            [0x80, 0, 1, 0, 0, 0, 1],
            "nothing, and an authority"
        );
        let code = |name| ask(&names, name, A).expect("there is an answer")[1] & 0xf;
        assert_eq!((code("fails.test"), code("none.test")), (2, 3));
        assert_eq!(ask(&names, "silent.test", A), None);
        assert_eq!(names.questions().len(), 6);
    }
}
