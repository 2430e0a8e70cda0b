//! What a person has to look at: one entry for each cause, with a command that can help.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use ecluse_spool::{ParcelPlace, ParcelState, Why, WorkerId};
use serde::{Deserialize, Serialize};

use crate::context::{DriverContext, Trouble};
use crate::show;

/// More held parcels of a stage than this are counted, and their reasons are not read.
const READ: usize = 2_000;

/// Something a person has to look at, with the command that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Need {
    pub(crate) stage: String,
    /// The parcel, or the first of several with one cause.
    pub(crate) parcel: Option<String>,
    /// How many parcels it is about.
    #[serde(default)]
    pub(crate) count: usize,
    pub(crate) what: String,
    pub(crate) command: String,
    /// The words that choose all of its parcels, where it is about several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) choice: Option<String>,
    /// The parcels are at fault themselves: tried again, they would be held again.
    #[serde(default)]
    pub(crate) is_at_fault: bool,
}

impl Need {
    /// Something about a stage, not about parcels.
    pub(crate) fn of_stage(stage: &str, what: String, command: String) -> Self {
        Self {
            stage: stage.to_owned(),
            parcel: None,
            count: 0,
            what,
            command,
            choice: None,
            is_at_fault: false,
        }
    }

    /// Returns the command with a number in the place of the parcel's name.
    pub(crate) fn command_for(&self, number: usize) -> String {
        match &self.parcel {
            Some(parcel) => self
                .command
                .replace(&show::word(parcel), &number.to_string()),
            None => self.command.clone(),
        }
    }
}

/// Held parcels of a stage with one cause.
struct Alike {
    first: ParcelPlace,
    why: Option<Why>,
    count: usize,
}

impl DriverContext {
    /// Adds what the parcels of a stage need; what goes on by itself goes to `waiting`.
    pub(crate) fn needs_of_parcels(
        &self,
        stage: &str,
        needs: &mut Vec<Need>,
        waiting: &mut Vec<Need>,
    ) -> Result<(), Trouble> {
        let mut held: Vec<ParcelPlace> = Vec::new();
        let mut deferred: (usize, Option<ParcelPlace>) = (0, None);
        self.engine
            .each_place(stage, &mut |place| match place.state {
                ParcelState::Held => held.push(place),
                ParcelState::Deferred => {
                    deferred.0 += 1;
                    // The one that comes next tells what all wait for.
                    if deferred.1.as_ref().is_none_or(|next| place.due < next.due) {
                        deferred.1 = Some(place);
                    }
                }
                _ => {}
            })?;
        if let (count, Some(next)) = deferred {
            let reason = self.engine.trouble(&next).unwrap_or_default().reason;
            waiting.push(Need::of_stage(
                stage,
                format!("{count} deferred, tried again by themselves: {reason}"),
                self.command(&format!("retry --stage {stage} --all")),
            ));
        }
        held.sort_by(|a, b| a.parcel.cmp(&b.parcel));
        let unread = held.len().saturating_sub(READ);
        held.truncate(READ);
        let mut alike: BTreeMap<String, Alike> = BTreeMap::new();
        for first in held {
            let why = self.engine.why(&first)?;
            let key = why.as_ref().map_or_else(String::new, key_of);
            let one = alike.entry(key).or_insert(Alike {
                first,
                why,
                count: 0,
            });
            one.count += 1;
        }
        let mut alike: Vec<(String, Alike)> = alike.into_iter().collect();
        alike.sort_by(|a, b| a.1.first.parcel.cmp(&b.1.first.parcel));
        for (key, alike) in &alike {
            needs.push(self.need_of_held(stage, key, alike));
        }
        if unread > 0 {
            needs.push(Need::of_stage(
                stage,
                format!("{unread} more are held"),
                match self.engine.directories() {
                    Some(tree) => format!("ls {}", tree.stage(stage).held().display()),
                    None => self.command("status --json"),
                },
            ));
        }
        Ok(())
    }

    fn need_of_held(&self, stage: &str, key: &str, alike: &Alike) -> Need {
        let place = &alike.first;
        let reason = match &alike.why {
            Some(why) => why.reason.trim_end().replace('\n', "; "),
            None => "held by hand".to_owned(),
        };
        let since = alike.why.as_ref().map_or_else(String::new, |why| {
            let tries = if place.attempts == 1 { "try" } else { "tries" };
            let since = show::local(&why.when);
            format!("; since {since}, {} {tries}", place.attempts)
        });
        let what = match alike.count {
            1 => format!("{reason}{since}"),
            count => format!("{count} parcels: {reason}{since}"),
        };
        let help = Help::of(stage, alike.why.as_ref());
        let parcel = show::word(place.parcel.as_str());
        let verb = help.verb();
        let choice = match (alike.count, fragment(key)) {
            (1, _) | (_, None) => None,
            (_, Some(part)) => Some(format!("--stage {stage} --reason {}", show::word(part))),
        };
        let words = format!("{verb} {}", choice.as_ref().unwrap_or(&parcel));
        Need {
            stage: stage.to_owned(),
            parcel: Some(place.parcel.to_string()),
            count: alike.count,
            what,
            command: format!(
                "{}   {}{words}{}",
                self.command(&format!("why {parcel}")),
                help.before(),
                help.reason()
            ),
            choice,
            is_at_fault: help == Help::Discard,
        }
    }
}

/// What can help a held parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Help {
    /// A person held it: it may go on.
    Release,
    /// The cause was outside of it: once more, when that is mended.
    Retry,
    /// A copy in the archive is not what it should be.
    PutBack,
    /// It is at fault itself, and would be held again.
    Discard,
}

impl Help {
    pub(crate) fn of(stage: &str, why: Option<&Why>) -> Self {
        let Some(why) = why else {
            return Help::Release;
        };
        if WorkerId::parse(OsStr::new(&why.by)).is_none() {
            return Help::Release;
        }
        let reason = &why.reason;
        let outside = reason.starts_with("deferred ")
            || reason.starts_with("its work crashed ")
            || reason.ends_with(" times")
            || reason.contains("starts in a row");
        match ecluse_config::base_of(stage) {
            _ if outside => Help::Retry,
            "delete" => Help::PutBack,
            _ => Help::Discard,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Help::Release => "release",
            Help::Retry | Help::PutBack => "retry",
            Help::Discard => "discard",
        }
    }

    fn before(self) -> &'static str {
        match self {
            Help::Release | Help::Discard => "or  ",
            Help::Retry => "mend the cause, then  ",
            Help::PutBack => "put the good copy back (ecluse repair), then  ",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Help::Discard => " --why \"…\"",
            Help::Release | Help::Retry | Help::PutBack => "",
        }
    }
}

/// Stands where reasons of one cause differ.
const DIFFERS: &str = "…";

/// Returns what two reasons of one cause have in common: words with a figure, a path or a file's name, and
/// what is quoted, differ from parcel to parcel.
fn key_of(why: &Why) -> String {
    let is_its_own = |word: &str| {
        word.bytes()
            .any(|byte| byte.is_ascii_digit() || byte == b'/')
            || word.trim_matches('.').trim_end_matches(':').contains('.')
            || word.trim_end_matches([':', ',', ';']) == why.parcel
    };
    let mut words: Vec<&str> = Vec::new();
    let mut is_quoted = false;
    for word in why.reason.split_whitespace() {
        let quotes = word.matches('"').count();
        let is_own = is_quoted || quotes > 0 || is_its_own(word);
        is_quoted ^= quotes % 2 == 1;
        if !is_own {
            words.push(word);
        } else if words.last() != Some(&DIFFERS) {
            words.push(DIFFERS);
        }
    }
    let by = match WorkerId::parse(OsStr::new(&why.by)) {
        Some(_) => "",
        None => why.by.as_str(),
    };
    format!("{}\n{by}", words.join(" "))
}

/// Returns a text that stands in every reason of one key: the last that is long enough, for the cause stands at the end.
fn fragment(key: &str) -> Option<&str> {
    let reason = key.split('\n').next().unwrap_or_default();
    let parts: Vec<&str> = reason.split(DIFFERS).map(str::trim).collect();
    let last = parts.iter().rev().find(|part| part.len() >= 8);
    last.or_else(|| parts.iter().max_by_key(|part| part.len()))
        .copied()
        .filter(|part| !part.is_empty())
}

/// Tells once what keeps many stages from working: a full disk is one thing to mend.
pub(crate) fn one_for_all(needs: &mut Vec<Need>) {
    let mut told: Vec<(Need, usize)> = Vec::new();
    for need in needs.drain(..) {
        let same = |(known, _): &&mut (Need, usize)| {
            known.what == need.what && known.command == need.command
        };
        match told.iter_mut().find(same) {
            Some((_, more)) => *more += 1,
            None => told.push((need, 0)),
        }
    }
    needs.extend(told.into_iter().map(|(mut need, more)| {
        if more > 0 {
            need.what = format!("and {more} more: {}", need.what);
        }
        need
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(parcel: &str, reason: &str, by: &str) -> Why {
        Why {
            parcel: parcel.into(),
            stage: "index".into(),
            reason: reason.into(),
            attempts: 1,
            when: String::new(),
            by: by.into(),
            held_for: None,
        }
    }

    const WORKER: &str = "host-00000000-4711-0123456789abcdef";

    #[test]
    fn reasons_of_one_cause_have_one_key_and_a_text_that_finds_them_all() {
        let one = why(
            "a",
            "cannot parse record 812 of job-07.warc.gz at offset 734: no Content-Length",
            WORKER,
        );
        let other = why(
            "b",
            "cannot parse record 1 of b.warc.gz at offset 9: no Content-Length",
            WORKER,
        );
        let key = key_of(&one);
        assert_eq!(key, key_of(&other));
        let part = fragment(&key).unwrap();
        assert_eq!(part, "no Content-Length");
        assert!(one.reason.contains(part) && other.reason.contains(part));
        let quoted = |what: &str| key_of(&why("a", &format!("no record: first {what}"), WORKER));
        assert_eq!(quoted("\"bad\\n\""), quoted("\"no WARC file\""));
        let third = why(
            "c",
            "cannot parse record 1 of c.warc.gz: no version",
            WORKER,
        );
        assert_ne!(key, key_of(&third));
    }

    #[test]
    fn what_is_offered_can_help() {
        let of = |stage: &str, reason: &str| Help::of(stage, Some(&why("a", reason, WORKER)));
        assert!(WorkerId::parse(OsStr::new(WORKER)).is_some());
        assert_eq!(of("index", "no record in a.warc.gz"), Help::Discard);
        assert_eq!(of("backup", "deferred 40 times: 503"), Help::Retry);
        assert_eq!(of("index", "its worker died, 5 times"), Help::Retry);
        assert_eq!(of("delete", "the stored copy differs"), Help::PutBack);
        let by_hand = why("a", "curator looks first", "anne");
        assert_eq!(Help::of("index", Some(&by_hand)), Help::Release);
        assert_eq!(Help::of("index", None), Help::Release);
    }

    #[test]
    fn what_ails_many_stages_is_told_once() {
        let need = |stage: &str, what: &str| Need::of_stage(stage, what.into(), "make room".into());
        let mut needs = vec![
            need("crawl", "1 MB free"),
            need("index", "halted"),
            need("merge", "1 MB free"),
            need("clean", "1 MB free"),
        ];
        one_for_all(&mut needs);
        let told: Vec<_> = needs.iter().map(|n| (&*n.stage, &*n.what)).collect();
        assert_eq!(
            told,
            [("crawl", "and 2 more: 1 MB free"), ("index", "halted")]
        );
    }
}
