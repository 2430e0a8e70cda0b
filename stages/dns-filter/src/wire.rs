//! Messages on the wire: a question becomes bytes, and bytes become what they say of the question.
//!
//! Whatever comes back may be hostile. Only records that belong to the question count: those of the name, and those that its
//! CNAMEs lead to. Everything that is kept of a message is bounded here.

use std::net::{Ipv4Addr, Ipv6Addr};

use ecluse_names::ADDRESSES;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// What fits a datagram everywhere, as the flag day of 2020 has it.
pub(crate) const DATAGRAM_BYTES: u16 = 1232;
/// More CNAMEs than this are a loop.
const CHAIN: usize = 16;
/// Extended errors and name servers that are kept.
const KEPT: usize = 16;
/// The EDNS option of extended errors, RFC 8914.
const EDE: u16 = 15;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RecordKind {
    A,
    Aaaa,
    Ns,
}

impl RecordKind {
    fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Ns => RecordType::NS,
        }
    }
}

/// A question, with letters in random case: an answer that does not repeat them is not to this question.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    name: Name,
    kind: RecordKind,
}

impl Question {
    /// Makes a question; none of what is no name of DNS.
    pub(crate) fn new(name: &str, kind: RecordKind) -> Option<Self> {
        let name = Name::from_ascii(format!("{name}.")).ok()?;
        (!name.is_root()).then_some(Self { name, kind })
    }

    /// Asks for the servers of the root, which everybody knows.
    pub(crate) fn root() -> Self {
        Self {
            name: Name::root(),
            kind: RecordKind::Ns,
        }
    }

    /// Returns the bytes of the question, and changes its letters once more.
    pub(crate) fn bytes(&mut self, id: u16, with_edns: bool) -> Vec<u8> {
        self.name.randomize_label_case();
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(self.name.clone(), self.kind.record_type()));
        if with_edns {
            let mut edns = Edns::new();
            edns.set_max_payload(DATAGRAM_BYTES).set_version(0);
            message.set_edns(edns);
        }
        message
            .to_vec()
            .expect("a question with one name of proper length can be written")
    }

    /// Reads what came back under the question's id.
    pub(crate) fn read(&self, bytes: &[u8]) -> Reading {
        let Ok(message) = Message::from_vec(bytes) else {
            return Reading::Garbage;
        };
        let header = &message.metadata;
        if header.message_type != MessageType::Response || header.op_code != OpCode::Query {
            return Reading::NotOurs;
        }
        match message.queries.as_slice() {
            [query]
                if query.query_type == self.kind.record_type()
                    && query.query_class == DNSClass::IN
                    && query.name == self.name =>
            {
                if !query.name.eq_case(&self.name) {
                    return Reading::OtherCase;
                }
            }
            // Who cannot read a question cannot repeat it.
            [] if is_error(header.response_code) => {}
            _ => return Reading::NotOurs,
        }
        if header.truncation {
            return Reading::Truncated;
        }
        Reading::Said(self.what_is_said(&message))
    }

    fn what_is_said(&self, message: &Message) -> Reply {
        let code = message.metadata.response_code;
        let failure = match code {
            ResponseCode::NoError | ResponseCode::NXDomain => None,
            ResponseCode::ServFail => Some(FailureKind::Servfail),
            ResponseCode::Refused | ResponseCode::NotAuth => Some(FailureKind::Refused),
            ResponseCode::NotImp => Some(FailureKind::Notimp),
            ResponseCode::FormErr => Some(FailureKind::Formerr),
            // Codes that no answer to a question has.
            _ => Some(FailureKind::Servfail),
        };
        if let Some(kind) = failure {
            let ede = extended_errors(message);
            return Reply::Failed { kind, ede };
        }
        let (end, cname) = match self.follow(&message.answers) {
            Ok(found) => found,
            Err(cname) => return Reply::Loop { cname },
        };
        let found = Records::of(&message.answers, end, self.kind);
        if !found.is_empty() {
            return Reply::Found(found, cname);
        }
        let mut authorities = message.authorities.iter();
        let soa = authorities.find_map(|record| match record.data {
            RData::SOA(_) => Some(shown(&record.name)),
            _ => None,
        });
        if code == ResponseCode::NXDomain {
            return Reply::NoName { cname, soa };
        }
        let refers = |record: &Record| matches!(record.data, RData::NS(_));
        let is_referral = message.authorities.iter().any(refers);
        let is_plain = message.metadata.recursion_available && cname.is_empty() && !is_referral;
        if soa.is_some() || is_plain {
            return Reply::NoData { cname, soa };
        }
        let ede = extended_errors(message);
        Reply::Failed {
            kind: FailureKind::Lame,
            ede,
        }
    }

    /// Follows CNAMEs from the name to the last one; the chain alone where there is no last one.
    fn follow<'a>(&'a self, answers: &'a [Record]) -> Result<(&'a Name, Vec<String>), Vec<String>> {
        let mut at = &self.name;
        let mut chain = Vec::new();
        let mut seen = vec![at];
        while let Some(next) = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *at => Some(&target.0),
            _ => None,
        }) {
            if chain.len() == CHAIN {
                return Err(chain);
            }
            chain.push(shown(next));
            if seen.contains(&next) {
                return Err(chain);
            }
            seen.push(next);
            at = next;
        }
        Ok((at, chain))
    }
}

/// What came back under an id.
#[derive(Debug, PartialEq)]
pub(crate) enum Reading {
    /// An answer to the question.
    Said(Reply),
    /// The start of one.
    Truncated,
    /// An answer, but for the case of its letters: from somebody else, or from a server that does not keep it.
    OtherCase,
    /// An answer to another question, or a question.
    NotOurs,
    /// No message.
    Garbage,
}

/// What an answer says of the question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    /// There are records; and the chain that leads to them.
    Found(Records, Vec<String>),
    /// The name exists and has none of them.
    NoData {
        cname: Vec<String>,
        soa: Option<String>,
    },
    /// The name, or the one its CNAMEs lead to, does not exist.
    NoName {
        cname: Vec<String>,
        soa: Option<String>,
    },
    /// Its CNAMEs go round.
    Loop { cname: Vec<String> },
    /// The server did not answer the question.
    Failed { kind: FailureKind, ede: Vec<u16> },
}

/// How a question was not answered; the first ones tell more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureKind {
    Servfail,
    Truncated,
    Lame,
    Refused,
    Notimp,
    Formerr,
    Timeout,
}

/// The records of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) a: Vec<Ipv4Addr>,
    pub(crate) aaaa: Vec<Ipv6Addr>,
    pub(crate) ns: Vec<String>,
}

impl Records {
    fn of(answers: &[Record], name: &Name, kind: RecordKind) -> Self {
        let mut records = Self::default();
        for record in answers.iter().filter(|record| record.name == *name) {
            match (kind, &record.data) {
                (RecordKind::A, RData::A(address)) => records.a.push(address.0),
                (RecordKind::Aaaa, RData::AAAA(address)) => records.aaaa.push(address.0),
                (RecordKind::Ns, RData::NS(server)) if records.ns.len() < KEPT => {
                    records.ns.push(shown(&server.0));
                }
                _ => {}
            }
        }
        records.a.sort_unstable();
        records.a.dedup();
        records.a.truncate(ADDRESSES);
        records.aaaa.sort_unstable();
        records.aaaa.dedup();
        records.aaaa.truncate(ADDRESSES);
        records.ns.sort_unstable();
        records.ns.dedup();
        records
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.a.is_empty() && self.aaaa.is_empty() && self.ns.is_empty()
    }
}

fn is_error(code: ResponseCode) -> bool {
    !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain)
}

fn extended_errors(message: &Message) -> Vec<u16> {
    let Some(edns) = &message.edns else {
        return Vec::new();
    };
    let options = edns.options().get_all(EdnsCode::Unknown(EDE));
    let mut codes: Vec<u16> = options
        .into_iter()
        .filter_map(|option| match option {
            EdnsOption::Unknown(EDE, data) => {
                data.first_chunk().map(|code| u16::from_be_bytes(*code))
            }
            _ => None,
        })
        .collect();
    codes.sort_unstable();
    codes.dedup();
    codes.truncate(KEPT);
    codes
}

/// A name in lower case, without its last dot; what is no letter, digit, hyphen or underscore as `\DDD`.
fn shown(name: &Name) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(name.len());
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            match byte.to_ascii_lowercase() {
                byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => text.push(byte.into()),
                byte => {
                    let _ = write!(text, "\\{byte:03}");
                }
            }
        }
    }
    match text.is_empty() {
        true => ".".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, CNAME, SOA};
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(format!("{text}.")).unwrap()
    }

    fn cname(from: &str, to: &str) -> Record {
        Record::from_rdata(name(from), 60, RData::CNAME(CNAME(name(to))))
    }

    fn address(of: &str, last: u8) -> Record {
        Record::from_rdata(name(of), 60, RData::A(A::new(192, 0, 2, last)))
    }

    /// What is read of an answer that a server makes of the question.
    fn read(asked: &str, kind: RecordKind, change: impl FnOnce(&mut Message)) -> Reading {
        let mut question = Question::new(asked, kind).unwrap();
        let mut message = Message::from_vec(&question.bytes(7, true)).unwrap();
        message.metadata.message_type = MessageType::Response;
        message.metadata.recursion_available = true;
        change(&mut message);
        question.read(&message.to_vec().unwrap())
    }

    fn said(asked: &str, change: impl FnOnce(&mut Message)) -> Reply {
        match read(asked, RecordKind::A, change) {
            Reading::Said(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_records_of_the_question_count() {
        let reply = said("exemple.fr", |message| {
            message.add_answers([
                cname("exemple.fr", "Www.Exemple.FR"),
                address("www.exemple.fr", 9),
                address("www.exemple.fr", 1),
                address("exemple.fr", 2),
                address("victim.fr", 3),
            ]);
        });
        let records = Records {
            a: vec![Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 9)],
            ..Records::default()
        };
        assert_eq!(
            reply,
            Reply::Found(records, vec!["www.exemple.fr".to_owned()])
        );
        let reply = said("exemple.fr", |message| {
            message.add_answer(address("victim.fr", 3));
        });
        assert!(matches!(reply, Reply::NoData { .. }), "{reply:?}");
    }

    #[test]
    fn cnames_that_go_round_and_those_without_end_are_loops() {
        let reply = said("a.fr", |message| {
            message.add_answers([cname("a.fr", "b.fr"), cname("b.fr", "A.fr")]);
        });
        let chain = ["b.fr", "a.fr"].map(str::to_owned).to_vec();
        assert_eq!(reply, Reply::Loop { cname: chain });
        let reply = said("0.fr", |message| {
            for number in 0..40 {
                message.add_answer(cname(
                    &format!("{number}.fr"),
                    &format!("{}.fr", number + 1),
                ));
            }
        });
        assert!(matches!(reply, Reply::Loop { cname } if cname.len() == CHAIN));
    }

    #[test]
    fn what_says_no_says_who_says_so() {
        let soa = || {
            let data = SOA::new(name("ns.nic.fr"), name("hostmaster.nic.fr"), 1, 2, 3, 4, 5);
            Record::from_rdata(name("FR"), 60, RData::SOA(data))
        };
        let no_name = said("exemple.fr", |message| {
            message.metadata.response_code = ResponseCode::NXDomain;
            message.add_authority(soa());
        });
        let expected = Reply::NoName {
            cname: Vec::new(),
            soa: Some("fr".to_owned()),
        };
        assert_eq!(no_name, expected);
        let no_data = said("exemple.fr", |message| {
            message.add_authority(soa());
        });
        assert!(matches!(no_data, Reply::NoData { soa: Some(zone), .. } if zone == "fr"));
        // Forwarders leave the authority out.
        let plain = said("exemple.fr", |_| {});
        assert!(matches!(plain, Reply::NoData { soa: None, .. }));
        let lame = said("exemple.fr", |message| {
            message.metadata.recursion_available = false;
        });
        let is_lame = |reply: &Reply| {
            matches!(
                reply,
                Reply::Failed {
                    kind: FailureKind::Lame,
                    ..
                }
            )
        };
        assert!(is_lame(&lame), "{lame:?}");
        let referral = said("exemple.fr", |message| {
            let server = hickory_proto::rr::rdata::NS(name("ns.nic.fr"));
            message.add_authority(Record::from_rdata(name("fr"), 60, RData::NS(server)));
        });
        assert!(is_lame(&referral), "{referral:?}");
    }

    #[test]
    fn what_is_not_the_answer_to_the_question_is_left() {
        assert_eq!(
            read("exemple.fr", RecordKind::A, |message| {
                message.queries[0].name = name("autre.fr");
            }),
            Reading::NotOurs
        );
        assert_eq!(
            read("exemple.fr", RecordKind::A, |message| {
                message.queries[0].query_type = RecordType::AAAA;
            }),
            Reading::NotOurs
        );
        assert_eq!(
            read("exemple.fr", RecordKind::A, |message| {
                message.queries.clear();
            }),
            Reading::NotOurs
        );
        assert_eq!(
            read("exemple.fr", RecordKind::A, |message| {
                message.metadata.message_type = MessageType::Query;
            }),
            Reading::NotOurs
        );
        let long = "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz.fr";
        let other = read(long, RecordKind::A, |message| {
            message.queries[0].name = message.queries[0].name.to_lowercase();
        });
        assert_eq!(other, Reading::OtherCase);
        let truncated = read("exemple.fr", RecordKind::A, |message| {
            message.metadata.truncation = true;
        });
        assert_eq!(truncated, Reading::Truncated);
    }

    #[test]
    fn names_from_outside_are_written_with_plain_letters_only() {
        let odd = Name::from_labels([&b"a\t\n\x1b\"."[..], b"\xff_-"]).unwrap();
        assert_eq!(shown(&odd), "a\\009\\010\\027\\034\\046.\\255_-");
        assert_eq!(shown(&Name::root()), ".");
    }

    #[test]
    fn what_is_no_name_is_not_asked() {
        for bad in ["", ".", "a..fr", &"a".repeat(64), &"a.".repeat(200)] {
            assert!(Question::new(bad, RecordKind::A).is_none(), "{bad}");
        }
        assert!(Question::new("_a-.xn--exmple-cua.fr", RecordKind::A).is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut question = Question::new("exemple.fr", RecordKind::A).unwrap();
            let mut good = question.bytes(7, true);
            question.read(&bytes);
            good[2] |= 0x80;
            good.extend(bytes);
            // So many answers are to come.
            good[7] = 200;
            question.read(&good);
        }
    }
}
