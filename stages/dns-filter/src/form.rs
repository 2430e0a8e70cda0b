//! One form of a name, apex or `www.`, from the first question to its class.
//!
//! No socket and no clock: it is told what came back and says what to ask next. What says no is asked of a second resolver, and
//! whoever knows more counts.

use ecluse_names::{DnsClass, FormEvidence};

use crate::wire::{FailureKind, RecordKind, Reply};

/// A question for the resolvers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormQuestion {
    pub(crate) kind: RecordKind,
    /// Not this one: it has said what it knows.
    pub(crate) except: Option<usize>,
    /// Rather this one, which answered before.
    pub(crate) rather: Option<usize>,
}

/// A form that is being found out about.
#[derive(Debug, Clone)]
pub(crate) struct FormCheck {
    step: Step,
    evidence: FormEvidence,
    /// Who said that it does not exist.
    denied_by: Option<usize>,
    /// Its IPv6 addresses were asked for once more.
    has_asked_twice: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Its IPv4 addresses are asked for.
    A,
    /// Its IPv6 addresses are, of whoever knows of others or of none; `failed` where nobody could say.
    Aaaa {
        by: usize,
        failed: Option<FailureKind>,
    },
    /// A second resolver is asked, after one said no.
    SecondA { no: No },
    /// The same for its IPv6 addresses.
    SecondAaaa,
    /// Nothing is left to ask.
    Done(DnsClass),
}

/// How the first one said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum No {
    Name,
    Data,
}

/// What comes of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormNext {
    Ask(FormQuestion),
    Done,
}

impl FormCheck {
    /// Begins; the question comes first.
    pub(crate) fn begin() -> (Self, FormQuestion) {
        let form = Self {
            step: Step::A,
            evidence: FormEvidence::default(),
            denied_by: None,
            has_asked_twice: false,
        };
        (form, ask(RecordKind::A, None, None))
    }

    /// A form of which all is known.
    pub(crate) fn known(class: DnsClass, evidence: FormEvidence) -> Self {
        Self {
            step: Step::Done(class),
            evidence,
            denied_by: None,
            has_asked_twice: false,
        }
    }

    /// Takes in what a resolver said.
    pub(crate) fn take(&mut self, reply: Reply, by: usize) -> FormNext {
        let aaaa = |by| FormNext::Ask(ask(RecordKind::Aaaa, None, Some(by)));
        let second = FormNext::Ask(ask(RecordKind::A, Some(by), None));
        self.note(&reply);
        let class = match (self.step.clone(), reply) {
            (Step::A | Step::SecondA { .. }, Reply::Found(..)) => {
                self.step = Step::Aaaa { by, failed: None };
                return aaaa(by);
            }
            (Step::A, Reply::NoData { .. }) => {
                self.step = Step::Aaaa { by, failed: None };
                return aaaa(by);
            }
            (Step::A, Reply::NoName { .. }) => {
                self.denied_by = Some(by);
                self.step = Step::SecondA { no: No::Name };
                return second;
            }
            // Whoever did not answer this will not answer that.
            (
                Step::A,
                Reply::Failed {
                    kind: FailureKind::Timeout,
                    ..
                },
            ) => DnsClass::Timeout,
            (Step::A, Reply::Failed { kind, .. }) => {
                let failed = Some(kind);
                self.step = Step::Aaaa { by, failed };
                return aaaa(by);
            }
            (Step::A, Reply::Loop { .. }) => DnsClass::CnameLoop,
            (_, Reply::Loop { .. }) if !self.has_address() => DnsClass::CnameLoop,
            (
                Step::Aaaa { .. },
                Reply::Failed {
                    kind: FailureKind::Timeout,
                    ..
                },
            ) if self.has_address() && !self.has_asked_twice => {
                // The name is there: that it has no other address should not rest on lost packets.
                self.has_asked_twice = true;
                return FormNext::Ask(ask(RecordKind::Aaaa, None, None));
            }
            (Step::Aaaa { .. }, _) if self.has_address() => self.with_addresses(),
            (Step::Aaaa { failed, .. }, reply) => match (failed, reply) {
                (Some(kind), _) => class_of(kind),
                (None, Reply::Failed { kind, .. }) => class_of(kind),
                (None, _) => {
                    self.step = Step::SecondA { no: No::Data };
                    return second;
                }
            },
            (Step::SecondA { no: No::Name }, Reply::NoName { .. }) => self.no_name(),
            (Step::SecondA { no: No::Name }, Reply::Failed { .. }) => self.no_name_once(),
            (Step::SecondA { no: No::Data }, Reply::NoName { .. } | Reply::Failed { .. }) => {
                DnsClass::Nodata
            }
            (Step::SecondA { .. }, _) => {
                self.step = Step::SecondAaaa;
                return aaaa(by);
            }
            (Step::SecondAaaa, _) if self.has_address() => self.with_addresses(),
            (Step::SecondAaaa, _) => DnsClass::Nodata,
            (Step::Done(class), _) => class,
        };
        self.finish(class);
        FormNext::Done
    }

    /// Returns the class once it is known.
    pub(crate) fn class(&self) -> Option<DnsClass> {
        match self.step {
            Step::Done(class) => Some(class),
            _ => None,
        }
    }

    /// Returns who said that it does not exist, where another knew better.
    pub(crate) fn wrongly_denied_by(&self) -> Option<usize> {
        let class = self.class()?;
        let is_there = class.has_address() || class == DnsClass::Nodata;
        self.denied_by.filter(|_| is_there)
    }

    /// Returns what it rests on.
    pub(crate) fn evidence(&self) -> &FormEvidence {
        &self.evidence
    }

    /// Gives it up: what it rests on.
    pub(crate) fn into_evidence(self) -> FormEvidence {
        self.evidence
    }

    fn has_address(&self) -> bool {
        !self.evidence.a.is_empty() || !self.evidence.aaaa.is_empty()
    }

    fn with_addresses(&self) -> DnsClass {
        match (self.evidence.a.is_empty(), self.evidence.aaaa.is_empty()) {
            (false, false) => DnsClass::OkBoth,
            (true, false) => DnsClass::OkAaaa,
            _ => DnsClass::OkA,
        }
    }

    fn no_name(&self) -> DnsClass {
        match self.evidence.cname.is_empty() {
            true => DnsClass::Nxdomain,
            false => DnsClass::CnameDangling,
        }
    }

    fn no_name_once(&self) -> DnsClass {
        match self.evidence.cname.is_empty() {
            true => DnsClass::NxdomainOnce,
            false => DnsClass::CnameDangling,
        }
    }

    /// Keeps what an answer rests on.
    fn note(&mut self, reply: &Reply) {
        let evidence = &mut self.evidence;
        match reply {
            Reply::Found(records, cname) => {
                evidence.a.extend(&records.a);
                evidence.aaaa.extend(&records.aaaa);
                evidence.cname.clone_from(cname);
            }
            Reply::NoData { cname, soa } | Reply::NoName { cname, soa } => {
                if evidence.cname.is_empty() {
                    evidence.cname.clone_from(cname);
                }
                if evidence.soa.is_none() {
                    evidence.soa.clone_from(soa);
                }
            }
            Reply::Loop { cname } => evidence.cname.clone_from(cname),
            Reply::Failed { ede, .. } => {
                evidence.ede.extend(ede);
                evidence.ede.sort_unstable();
                evidence.ede.dedup();
            }
        }
    }

    fn finish(&mut self, class: DnsClass) {
        if class.has_address() {
            // Who says no, and why somebody failed, is of no interest then.
            self.evidence.soa = None;
            self.evidence.ede.clear();
        }
        self.step = Step::Done(class);
    }
}

fn ask(kind: RecordKind, except: Option<usize>, rather: Option<usize>) -> FormQuestion {
    FormQuestion {
        kind,
        except,
        rather,
    }
}

fn class_of(kind: FailureKind) -> DnsClass {
    match kind {
        FailureKind::Servfail => DnsClass::Servfail,
        FailureKind::Truncated => DnsClass::Truncated,
        FailureKind::Lame => DnsClass::Lame,
        FailureKind::Refused => DnsClass::Refused,
        FailureKind::Notimp => DnsClass::Notimp,
        FailureKind::Formerr => DnsClass::Formerr,
        FailureKind::Timeout => DnsClass::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::Records;

    fn v4() -> Reply {
        let a = vec![Ipv4Addr::new(9, 9, 9, 9)];
        Reply::Found(
            Records {
                a,
                ..Records::default()
            },
            Vec::new(),
        )
    }

    fn v6() -> Reply {
        let aaaa = vec![Ipv6Addr::LOCALHOST];
        Reply::Found(
            Records {
                aaaa,
                ..Records::default()
            },
            Vec::new(),
        )
    }

    fn no_name() -> Reply {
        Reply::NoName {
            cname: Vec::new(),
            soa: Some("fr".to_owned()),
        }
    }

    fn dangling() -> Reply {
        Reply::NoName {
            cname: vec!["gone.fr".to_owned()],
            soa: None,
        }
    }

    fn no_data() -> Reply {
        Reply::NoData {
            cname: Vec::new(),
            soa: None,
        }
    }

    fn failed(kind: FailureKind) -> Reply {
        Reply::Failed {
            kind,
            ede: vec![22],
        }
    }

    /// Plays replies to a form, the resolver of each beside it; returns the class and who was not to be asked each time.
    fn play(replies: &[(Reply, usize)]) -> (DnsClass, Vec<(RecordKind, Option<usize>)>) {
        let (mut form, question) = FormCheck::begin();
        let mut asked = vec![(question.kind, question.except)];
        for (at, (reply, by)) in replies.iter().enumerate() {
            match form.take(reply.clone(), *by) {
                FormNext::Ask(question) => asked.push((question.kind, question.except)),
                FormNext::Done => assert_eq!(at + 1, replies.len(), "it needed no more"),
            }
        }
        (form.class().expect("nothing is left to ask"), asked)
    }

    #[test]
    fn every_way_to_a_class() {
        use FailureKind::{Lame, Servfail, Timeout};
        let looped = || Reply::Loop {
            cname: vec!["a.fr".to_owned()],
        };
        for (replies, class) in [
            (vec![v4(), v6()], DnsClass::OkBoth),
            (vec![v4(), no_data()], DnsClass::OkA),
            (vec![v4(), failed(Servfail)], DnsClass::OkA),
            (vec![v4(), failed(Timeout), v6()], DnsClass::OkBoth),
            (vec![v4(), failed(Timeout), failed(Timeout)], DnsClass::OkA),
            (vec![no_data(), v6()], DnsClass::OkAaaa),
            (vec![failed(Servfail), v6()], DnsClass::OkAaaa),
            (
                vec![no_data(), no_data(), no_data(), no_data()],
                DnsClass::Nodata,
            ),
            (
                vec![no_data(), no_data(), no_data(), v6()],
                DnsClass::OkAaaa,
            ),
            (vec![no_data(), no_data(), no_name()], DnsClass::Nodata),
            (
                vec![no_data(), no_data(), failed(Timeout)],
                DnsClass::Nodata,
            ),
            (vec![no_data(), failed(Servfail)], DnsClass::Servfail),
            (vec![no_name(), no_name()], DnsClass::Nxdomain),
            (vec![no_name(), failed(Timeout)], DnsClass::NxdomainOnce),
            (vec![no_name(), failed(Servfail)], DnsClass::NxdomainOnce),
            (vec![no_name(), v4(), v6()], DnsClass::OkBoth),
            (vec![no_name(), no_data(), v6()], DnsClass::OkAaaa),
            (vec![no_name(), no_data(), no_data()], DnsClass::Nodata),
            (vec![dangling(), dangling()], DnsClass::CnameDangling),
            (vec![no_name(), dangling()], DnsClass::CnameDangling),
            (vec![dangling(), failed(Timeout)], DnsClass::CnameDangling),
            (vec![looped()], DnsClass::CnameLoop),
            (vec![no_name(), looped()], DnsClass::CnameLoop),
            (vec![failed(Timeout)], DnsClass::Timeout),
            (vec![failed(Servfail), failed(Timeout)], DnsClass::Servfail),
            (vec![failed(Lame), no_data()], DnsClass::Lame),
        ] {
            let replies: Vec<(Reply, usize)> = replies.into_iter().zip(0..).collect();
            assert_eq!(play(&replies).0, class, "{replies:?}");
        }
    }

    #[test]
    fn a_second_resolver_is_asked_whenever_one_says_no() {
        let (_, asked) = play(&[(no_name(), 2), (no_name(), 0)]);
        assert_eq!(asked, [(RecordKind::A, None), (RecordKind::A, Some(2))]);
        let (_, asked) = play(&[(no_data(), 1), (no_data(), 1), (no_data(), 0), (v6(), 0)]);
        assert_eq!(
            asked,
            [
                (RecordKind::A, None),
                (RecordKind::Aaaa, None),
                (RecordKind::A, Some(1)),
                (RecordKind::Aaaa, None)
            ]
        );
    }
}
