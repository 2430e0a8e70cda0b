//! The resolver against a name server that answers as a test tells it to.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use ecluse_http::{AnswerSource, DnsError, Families, Resolver, ResolverSettings, Servers};
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use crate::script::{LOOPBACK, block_on};

/// A name server for the zone `test.`; it counts what it is asked.
struct NameServer {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
}

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let questions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&questions);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
                let question = Message::from_vec(&buffer[..bytes]).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                if let Some(answer) = answer(&question) {
                    socket.send_to(&answer.to_vec().unwrap(), client).unwrap();
                }
            }
        });
        Self { address, questions }
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }

    fn resolver(&self, families: Families) -> Resolver {
        Resolver::new(ResolverSettings {
            servers: Servers::Given(vec![self.address]),
            families,
            timeout: Duration::from_millis(300),
            attempts: 1,
            ..ResolverSettings::default()
        })
        .unwrap()
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn answer(question: &Message) -> Option<Message> {
    let query = question.queries[0].clone();
    let asked = query.name().to_ascii().to_ascii_lowercase();
    let is_v4 = query.query_type() == RecordType::A;
    let mut answer = Message::response(question.metadata.id, OpCode::Query);
    answer.metadata.recursion_desired = true;
    answer.metadata.recursion_available = true;
    answer.add_query(query.clone());
    let mut add = |owner: &Name, ttl, data| {
        answer.add_answer(Record::from_rdata(owner.clone(), ttl, data));
    };
    let v4 = |last| RData::A(A::new(192, 0, 2, last));
    let v6 = RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    match asked.as_str() {
        "both.test." if is_v4 => {
            add(query.name(), 600, v4(1));
            add(query.name(), 600, v4(2));
        }
        "both.test." | "six.test." if !is_v4 => add(query.name(), 300, v6),
        "half.test." if is_v4 => add(query.name(), 600, v4(4)),
        "brief.test." if is_v4 => add(query.name(), 0, v4(5)),
        "alias.test." => {
            let target = name("target.test.");
            add(query.name(), 120, RData::CNAME(CNAME(target.clone())));
            if is_v4 {
                add(&target, 90, v4(3));
            }
        }
        "silent.test." => return None,
        "failing.test." | "half.test." => answer.metadata.response_code = ResponseCode::ServFail,
        "refused.test." => answer.metadata.response_code = ResponseCode::Refused,
        "gone.test." => {
            answer.metadata.response_code = ResponseCode::NXDomain;
            add_authority(&mut answer);
        }
        _ => add_authority(&mut answer),
    }
    Some(answer)
}

fn add_authority(answer: &mut Message) {
    let soa = SOA::new(name("ns.test."), name("root.test."), 1, 2, 3, 4, 200);
    answer.add_authority(Record::from_rdata(name("test."), 200, RData::SOA(soa)));
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

#[test]
fn addresses_and_the_text_of_the_answer() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::Both);
    let (resolved, source) = block_on(resolver.resolve("Both.Test", now())).unwrap();
    assert_eq!(source, AnswerSource::Asked);
    let addresses: Vec<String> = resolved.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    assert_eq!(
        resolved.block(),
        "20231114221320\nboth.test.\t\t600\tIN\tA\t192.0.2.1\nboth.test.\t\t600\tIN\tA\t192.0.2.2\n\
         both.test.\t\t300\tIN\tAAAA\t2001:db8::1\n"
    );
    assert_eq!(resolved.until, now() + Duration::from_secs(300));

    let resolver = server.resolver(Families::V4);
    let (resolved, _) = block_on(resolver.resolve("both.test", now())).unwrap();
    assert_eq!(resolved.addresses.len(), 2);
}

#[test]
fn aliases_are_followed_and_kept() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::Both);
    let (resolved, _) = block_on(resolver.resolve("alias.test", now())).unwrap();
    assert_eq!(resolved.addresses.len(), 1);
    assert_eq!(
        resolved.records,
        "alias.test.\t\t120\tIN\tCNAME\ttarget.test.\ntarget.test.\t\t90\tIN\tA\t192.0.2.3\n"
    );
}

#[test]
fn one_family_is_enough() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::Both);
    let (resolved, _) = block_on(resolver.resolve("six.test", now())).unwrap();
    assert!(resolved.addresses[0].is_ipv6());
    let (resolved, _) = block_on(resolver.resolve("half.test", now())).unwrap();
    assert!(resolved.addresses[0].is_ipv4());
}

#[test]
fn failures_are_told_apart() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::Both);
    let fail = |host: &str| block_on(resolver.resolve(host, now())).unwrap_err();
    assert!(matches!(fail("gone.test"), DnsError::NoSuchName { .. }));
    assert!(matches!(fail("empty.test"), DnsError::NoAddress { .. }));
    assert!(
        matches!(fail("failing.test"), DnsError::ServerFailed { .. }),
        "{}",
        fail("failing.test")
    );
    assert!(
        matches!(fail("refused.test"), DnsError::ServerFailed { .. }),
        "{}",
        fail("refused.test")
    );
    assert!(
        matches!(fail("silent.test"), DnsError::Timeout { .. }),
        "{}",
        fail("silent.test")
    );
    for bad in [
        "",
        ".",
        "a..b",
        &"x".repeat(64),
        &"abc.".repeat(80),
        "sp ace.test\n",
    ] {
        let error = fail(bad);
        assert!(
            matches!(error, DnsError::BadName { .. }),
            "{bad:?}: {error}"
        );
        assert_eq!(error.code(), -7);
    }
    assert_eq!(fail("gone.test").code(), -1);
    assert!(fail("gone.test").is_final() && !fail("silent.test").is_final());
}

#[test]
fn answers_are_remembered_as_long_as_they_say_within_bounds() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::V4);
    let ask = |host: &str, seconds| {
        let outcome = block_on(resolver.resolve(host, now() + Duration::from_secs(seconds)));
        (outcome.map(|(_, source)| source), server.questions())
    };
    assert_eq!(ask("both.test", 0), (Ok(AnswerSource::Asked), 1));
    assert_eq!(ask("BOTH.test.", 599), (Ok(AnswerSource::Remembered), 1));
    assert_eq!(ask("both.test", 600), (Ok(AnswerSource::Asked), 2));
    // No time to live at all is still the shortest time.
    assert_eq!(ask("brief.test", 0), (Ok(AnswerSource::Asked), 3));
    assert_eq!(ask("brief.test", 59), (Ok(AnswerSource::Remembered), 3));
    assert_eq!(ask("brief.test", 60), (Ok(AnswerSource::Asked), 4));
    // That a name does not exist is remembered, that a server failed is not.
    for (seconds, questions) in [(0, 5), (199, 5), (200, 6)] {
        let (outcome, asked) = ask("gone.test", seconds);
        assert!(matches!(outcome, Err(DnsError::NoSuchName { .. })));
        assert_eq!(asked, questions);
    }
    let (_, before) = ask("failing.test", 0);
    let (_, after) = ask("failing.test", 1);
    assert!(after > before);
}

#[test]
fn an_address_is_its_own_answer() {
    let server = NameServer::start();
    let resolver = server.resolver(Families::Both);
    for (host, address) in [("192.0.2.9", "192.0.2.9"), ("[::1]", "::1"), ("::1", "::1")] {
        let (resolved, source) = block_on(resolver.resolve(host, now())).unwrap();
        assert_eq!(source, AnswerSource::Literal);
        assert_eq!(resolved.addresses[0].to_string(), address);
        assert!(resolved.records.is_empty());
    }
    assert_eq!(server.questions(), 0);
}
