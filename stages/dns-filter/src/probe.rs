//! Tries the resolvers of the settings, for `check`: whether they answer, and whether they tell the truth.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::asker::{AskLimits, Asked, Asker};
use crate::settings::Settings;
use crate::wire::{FailureKind, Question, RecordKind, Reply};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns what is wrong with each resolver.
pub(crate) fn probe(settings: &Settings) -> Vec<String> {
    let Ok(resolvers) = settings.resolvers() else {
        // The settings say so.
        return Vec::new();
    };
    resolvers
        .iter()
        .filter_map(|address| fault_of(*address))
        .collect()
}

/// Returns what is wrong with a resolver, in words.
fn fault_of(address: SocketAddr) -> Option<String> {
    let limits = AskLimits {
        in_flight: 2,
        rate: None,
        timeout: PATIENCE / 3,
        tries: 2,
    };
    let mut asker = match Asker::open(&[address], limits) {
        Ok(asker) => asker,
        Err(error) => return Some(format!("{address} cannot be reached: {error}")),
    };
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    // No name below this one exists, whoever is asked (RFC 6761).
    let nobody = format!("{:016x}.invalid", u64::from_le_bytes(random));
    let questions = [Question::root(), Question::new(&nobody, RecordKind::A)?];
    for (tag, question) in (0..).zip(questions) {
        asker.ask(Asked {
            tag,
            question,
            except: None,
            rather: None,
        });
    }
    let begun = Instant::now();
    let mut replies = Vec::new();
    while replies.len() < 2 && begun.elapsed() < PATIENCE {
        if let Err(error) = asker.go_on(Duration::from_millis(50)) {
            return Some(format!("{address} cannot be asked: {error}"));
        }
        while let Some(answered) = asker.take() {
            replies.push((answered.tag, answered.reply));
        }
    }
    let said = |asked: u64| {
        let mut replies = replies.iter();
        replies
            .find(|(tag, _)| *tag == asked)
            .map(|(_, reply)| reply)
    };
    let is_silent = |reply: Option<&Reply>| match reply {
        None => true,
        Some(Reply::Failed { kind, .. }) => *kind == FailureKind::Timeout,
        Some(_) => false,
    };
    if is_silent(said(0)) && is_silent(said(1)) {
        return Some(format!("{address} does not answer"));
    }
    match (said(0), said(1)) {
        (Some(Reply::NoName { .. }), _) => Some(format!(
            "{address} says that the root of the DNS does not exist: it denies what others know"
        )),
        (_, Some(Reply::Found(..))) => Some(format!(
            "{address} gives an address to a name that cannot exist: names that are gone will look present"
        )),
        (
            _,
            Some(Reply::Failed {
                kind: FailureKind::Refused,
                ..
            }),
        ) => Some(format!("{address} refuses to answer this machine")),
        (
            _,
            Some(Reply::Failed {
                kind: FailureKind::Formerr,
                ..
            }),
        ) => Some(format!("{address} answers with what cannot be read")),
        _ => None,
    }
}
