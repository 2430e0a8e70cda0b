//! What each source brought: the figures of a run, and the three forms they are told in.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ecluse_names::RejectReason;
use serde_json::{Value, json};

use crate::gather::SOURCES;
use crate::source::SourceKind;

/// How many sets of sources are told one by one; others are counted together.
const SETS: usize = 1_000;

/// The figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) sources: Vec<SourceFigures>,
    /// Names that a rule gave and no source.
    pub(crate) only_forced: u64,
    pub(crate) names: u64,
    /// Names of lists that are new or have changed, and of rules: these are given on.
    pub(crate) given: u64,
    pub(crate) domains: u64,
    pub(crate) new_domains: u64,
    /// Lists that stand there and could not be counted.
    left_out: Vec<LeftOut>,
    /// The generation of the register they were compared with.
    pub(crate) register: Option<u64>,
    /// Domains that two sources share, by the places of both: 64 rows of 64.
    shared: Vec<u64>,
    /// Domains by exactly which sources have them.
    sets: BTreeMap<u64, u64>,
    other_sets: u64,
    tlds: BTreeMap<String, TldFigures>,
    /// The last label that is being counted: names come in its order.
    open_tld: (String, TldFigures),
}

/// A list that stands there and is not counted.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    /// The source it would be of.
    pub(crate) source: String,
    pub(crate) file: String,
    pub(crate) reason: String,
}

/// The figures of a source.
#[derive(Debug)]
pub(crate) struct SourceFigures {
    pub(crate) name: String,
    pub(crate) kind: SourceKind,
    /// Its lists are all that it has; else nobody can say what has vanished from it.
    pub(crate) is_whole: bool,
    pub(crate) lines: u64,
    /// Lines that were the first of their name.
    pub(crate) accepted: u64,
    /// Lines whose name this source had before.
    pub(crate) own_duplicates: u64,
    /// Lines whose name a source before this one has.
    pub(crate) other_duplicates: u64,
    pub(crate) rejected: [u64; RejectReason::ALL.len()],
    pub(crate) names: u64,
    pub(crate) domains: u64,
    /// Domains that no other source has.
    pub(crate) exclusive: u64,
    pub(crate) new_domains: u64,
    pub(crate) vanished: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct TldFigures {
    names: u64,
    domains: u64,
    new_domains: u64,
}

impl SourceFigures {
    pub(crate) fn new(name: &str, kind: SourceKind, is_whole: bool) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            is_whole,
            lines: 0,
            accepted: 0,
            own_duplicates: 0,
            other_duplicates: 0,
            rejected: [0; RejectReason::ALL.len()],
            names: 0,
            domains: 0,
            exclusive: 0,
            new_domains: 0,
            vanished: 0,
        }
    }

    /// Returns how many lines were rejected.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// Returns how many domains have vanished from it, where all of it is there.
    fn vanished(&self) -> Option<u64> {
        self.is_whole.then_some(self.vanished)
    }

    /// Tells whether every line is accounted for.
    fn adds_up(&self) -> bool {
        self.lines == self.accepted + self.own_duplicates + self.other_duplicates + self.rejected()
    }
}

impl Statistics {
    /// Returns the figures of a run of these sources that has read nothing yet.
    pub(crate) fn of(sources: Vec<SourceFigures>) -> Self {
        Self {
            sources,
            shared: vec![0; SOURCES * SOURCES],
            ..Self::default()
        }
    }

    /// Notes the lists that are not counted: their sources are not whole without them.
    pub(crate) fn leave_out(&mut self, left_out: &[LeftOut]) {
        self.left_out = left_out.to_vec();
        for source in &mut self.sources {
            source.is_whole &= left_out.iter().all(|list| list.source != source.name);
        }
    }

    /// Counts a name; its origins come in order of the source.
    pub(crate) fn name(&mut self, tld: &str, origins: &[(u8, u32)], is_given: bool) {
        self.names += 1;
        self.given += u64::from(is_given);
        self.only_forced += u64::from(origins.is_empty());
        for (at, (source, lines)) in origins.iter().enumerate() {
            let source = &mut self.sources[usize::from(*source)];
            source.names += 1;
            if at == 0 {
                source.accepted += 1;
                source.own_duplicates += u64::from(*lines) - 1;
            } else {
                source.other_duplicates += u64::from(*lines);
            }
        }
        self.tld(tld).names += 1;
    }

    /// Counts a domain that these sources have, as bits of a mask.
    pub(crate) fn domain(&mut self, tld: &str, sources: u64, is_new: bool) {
        self.domains += 1;
        self.new_domains += u64::from(is_new);
        let mut left = sources;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            left &= left - 1;
            let source = &mut self.sources[place];
            source.domains += 1;
            source.exclusive += u64::from(sources.is_power_of_two());
            source.new_domains += u64::from(is_new);
            let mut others = left;
            while others != 0 {
                self.shared[place * SOURCES + others.trailing_zeros() as usize] += 1;
                others &= others - 1;
            }
        }
        if let Some(domains) = self.sets.get_mut(&sources) {
            *domains += 1;
        } else if self.sets.len() < SETS {
            self.sets.insert(sources, 1);
        } else {
            self.other_sets += 1;
        }
        let tld = self.tld(tld);
        tld.domains += 1;
        tld.new_domains += u64::from(is_new);
    }

    fn tld(&mut self, tld: &str) -> &mut TldFigures {
        if self.open_tld.0 != tld {
            self.settle();
            tld.clone_into(&mut self.open_tld.0);
        }
        &mut self.open_tld.1
    }

    /// Adds what is being counted to what was.
    pub(crate) fn settle(&mut self) {
        let figures = std::mem::take(&mut self.open_tld.1);
        if figures.names + figures.domains > 0 {
            let total = self.tlds.entry(self.open_tld.0.clone()).or_default();
            total.names += figures.names;
            total.domains += figures.domains;
            total.new_domains += figures.new_domains;
        }
    }

    /// The pairs of sources that share domains, with how many.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let counts = self.shared.iter().enumerate();
        let counts = counts.filter(|(_, count)| **count > 0);
        counts.map(|(at, count)| {
            let [left, right] =
                [at / SOURCES, at % SOURCES].map(|at| self.sources[at].name.as_str());
            (left, right, *count)
        })
    }

    /// Says which sum is wrong, if one is: then the program is, and nothing may be shown.
    pub(crate) fn fault(&self) -> Option<String> {
        if let Some(source) = self.sources.iter().find(|source| !source.adds_up()) {
            return Some(format!("the lines of {} do not add up", source.name));
        }
        let accepted: u64 = self.sources.iter().map(|source| source.accepted).sum();
        if accepted + self.only_forced != self.names {
            return Some("the names do not add up".to_owned());
        }
        if self.given > self.names {
            return Some("more names were given on than there are".to_owned());
        }
        let mut last_labels = TldFigures::default();
        for figures in self.tlds.values() {
            last_labels.names += figures.names;
            last_labels.domains += figures.domains;
            last_labels.new_domains += figures.new_domains;
        }
        let all = TldFigures {
            names: self.names,
            domains: self.domains,
            new_domains: self.new_domains,
        };
        if last_labels != all {
            return Some("the last labels do not add up".to_owned());
        }
        if self.sets.values().sum::<u64>() + self.other_sets != self.domains {
            return Some("the sets of sources do not add up to the domains".to_owned());
        }
        self.fault_of_sets()
    }

    /// Says which figure of a source, or of two, is another than its sets give. Where there were too many sets to tell each, no
    /// figure can be smaller than its sets, or larger by more than the others.
    fn fault_of_sets(&self) -> Option<String> {
        let of_sets = |wanted: u64| {
            let sets = self.sets.iter().filter(|(set, _)| *set & wanted == wanted);
            sets.map(|(_, domains)| domains).sum::<u64>()
        };
        let is_off = |told: u64, sets: u64| told < sets || told - sets > self.other_sets;
        for (place, source) in self.sources.iter().enumerate() {
            let alone = self.sets.get(&(1 << place)).copied().unwrap_or(0);
            if is_off(source.domains, of_sets(1 << place)) || is_off(source.exclusive, alone) {
                return Some(format!("the domains of {} do not add up", source.name));
            }
            for (other, and) in self.sources.iter().enumerate().skip(place + 1) {
                let told = self.shared[place * SOURCES + other];
                if is_off(told, of_sets(1 << place | 1 << other)) {
                    let (name, and) = (&source.name, &and.name);
                    return Some(format!("the domains of {name} and {and} do not add up"));
                }
            }
        }
        None
    }

    /// The sources as a curator wants them: the librarians' first, then by kind and name.
    fn in_order(&self) -> Vec<&SourceFigures> {
        let mut sources: Vec<&SourceFigures> = self.sources.iter().collect();
        sources.sort_by_key(|source| (source.kind, source.name.clone()));
        sources
    }

    fn names_of(&self, set: u64) -> Vec<&str> {
        let sources = self.sources.iter().enumerate();
        sources
            .filter(|(place, _)| set & 1 << place != 0)
            .map(|(_, source)| source.name.as_str())
            .collect()
    }

    /// Tells the figures to people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut say = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        for source in self.in_order() {
            let part = if source.is_whole { "" } else { ", in part" };
            say(format!(
                "{} ({}{part}): {} domains, {} found nowhere else",
                source.name,
                source.kind.word(),
                grouped(source.domains),
                grouped(source.exclusive)
            ));
        }
        let lines: u64 = self.sources.iter().map(|source| source.lines).sum();
        say(format!(
            "\n{} lines gave {} names of {} domains",
            grouped(lines),
            grouped(self.names),
            grouped(self.domains)
        ));
        if self.given < self.names {
            say(format!(
                "{} names are given on: those of lists that are new or have changed",
                grouped(self.given)
            ));
        }
        for list in &self.left_out {
            say(format!("not counted: {}: {}", list.file, list.reason));
        }
        say(match self.register {
            Some(number) => format!(
                "{} domains are new against generation {number} of the register",
                grouped(self.new_domains)
            ),
            None => "there is no register yet: every domain is new".to_owned(),
        });
        if self.only_forced > 0 {
            say(format!(
                "{} names are there by a rule only",
                grouped(self.only_forced)
            ));
        }
        say(format!(
            "\n{:<24}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}",
            "source",
            "lines",
            "accepted",
            "own dupl.",
            "other dupl.",
            "rejected",
            "new domains",
            "vanished"
        ));
        for source in self.in_order() {
            let figures = [
                source.lines,
                source.accepted,
                source.own_duplicates,
                source.other_duplicates,
                source.rejected(),
                source.new_domains,
            ];
            let figures: String = figures
                .iter()
                .map(|figure| format!("{:>14}", grouped(*figure)))
                .collect();
            let vanished = source.vanished().map_or("-".to_owned(), grouped);
            say(format!("{:<24}{figures}{vanished:>14}", source.name));
        }
        say("\nrejected".to_owned());
        for source in self.in_order() {
            for (reason, count) in RejectReason::ALL
                .iter()
                .zip(source.rejected)
                .filter(|(_, count)| *count > 0)
            {
                say(format!(
                    "{:<24}{:<16}{:>14}",
                    source.name,
                    reason.word(),
                    grouped(count)
                ));
            }
        }
        say("\ndomains in both".to_owned());
        for (left, right, count) in self.pairs() {
            say(format!(
                "{:<48}{:>14}",
                format!("{left} and {right}"),
                grouped(count)
            ));
        }
        say("\nlast label, with names, domains and new domains".to_owned());
        for (tld, figures) in self.tlds_by_size() {
            let figures = [figures.names, figures.domains, figures.new_domains]
                .map(|figure| format!("{:>14}", grouped(figure)))
                .concat();
            say(format!("{tld:<24}{figures}"));
        }
        text
    }

    fn tlds_by_size(&self) -> Vec<(&String, &TldFigures)> {
        let mut tlds: Vec<(&String, &TldFigures)> = self.tlds.iter().collect();
        tlds.sort_by_key(|(tld, figures)| (std::cmp::Reverse(figures.domains), *tld));
        tlds
    }

    /// Tells the figures to a spreadsheet: one figure a line.
    pub(crate) fn csv(&self) -> String {
        let mut text = "what,of,and,figure\n".to_owned();
        let mut say = |what: &str, of: &str, and: &str, figure: u64| {
            let _ = writeln!(text, "{what},{},{},{figure}", quoted(of), quoted(and));
        };
        say("names", "", "", self.names);
        say("given-names", "", "", self.given);
        say("names-by-rule-only", "", "", self.only_forced);
        say("domains", "", "", self.domains);
        say("new-domains", "", "", self.new_domains);
        for source in self.in_order() {
            let name = &source.name;
            for (what, figure) in figures_of(source) {
                say(what, name, source.kind.word(), figure);
            }
            if let Some(vanished) = source.vanished() {
                say("vanished-domains", name, source.kind.word(), vanished);
            }
            for (reason, count) in RejectReason::ALL.iter().zip(source.rejected) {
                say("rejected", name, reason.word(), count);
            }
        }
        for (left, right, count) in self.pairs() {
            say("shared-domains", left, right, count);
        }
        for (set, count) in &self.sets {
            say(
                "domains-of-exactly",
                &self.names_of(*set).join(" "),
                "",
                *count,
            );
        }
        if self.other_sets > 0 {
            say("domains-of-other-sets", "", "", self.other_sets);
        }
        for (tld, figures) in &self.tlds {
            say("names-by-last-label", tld, "", figures.names);
            say("domains-by-last-label", tld, "", figures.domains);
            say("new-domains-by-last-label", tld, "", figures.new_domains);
        }
        for list in &self.left_out {
            say("list-not-counted", &list.source, &list.file, 1);
        }
        text
    }

    /// Tells the figures to programs.
    pub(crate) fn json(&self) -> Value {
        let sources: Vec<Value> = self
            .in_order()
            .into_iter()
            .map(|source| {
                let mut told = serde_json::Map::new();
                told.insert("name".into(), source.name.as_str().into());
                told.insert("kind".into(), source.kind.word().into());
                told.insert("whole".into(), source.is_whole.into());
                for (what, figure) in figures_of(source) {
                    told.insert(what.into(), figure.into());
                }
                told.insert("vanished-domains".into(), source.vanished().into());
                let reasons = RejectReason::ALL
                    .iter()
                    .zip(source.rejected)
                    .filter(|(_, count)| *count > 0);
                let reasons: serde_json::Map<String, Value> = reasons
                    .map(|(reason, count)| (reason.word().into(), count.into()))
                    .collect();
                told.insert("rejected".into(), reasons.into());
                told.into()
            })
            .collect();
        let shared: Vec<Value> = self
            .pairs()
            .map(|(left, right, count)| json!({"sources": [left, right], "domains": count}))
            .collect();
        let sets: Vec<Value> = self
            .sets
            .iter()
            .map(|(set, count)| json!({"sources": self.names_of(*set), "domains": count}))
            .collect();
        let tlds: serde_json::Map<String, Value> = self.tlds.iter().map(|(tld, figures)| {
            (tld.clone(), json!({"names": figures.names, "domains": figures.domains, "new-domains": figures.new_domains}))
        }).collect();
        let left_out: Vec<Value> = self
            .left_out
            .iter()
            .map(|list| json!({"source": list.source, "list": list.file, "reason": list.reason}))
            .collect();
        json!({
            "names": self.names, "given-names": self.given, "not-counted": left_out, "names-by-rule-only": self.only_forced, "domains": self.domains,
            "new-domains": self.new_domains, "register": self.register, "sources": sources,
            "shared": shared, "exactly": sets, "domains-of-other-sets": self.other_sets, "last-labels": tlds,
        })
    }
}

fn figures_of(source: &SourceFigures) -> [(&'static str, u64); 8] {
    [
        ("lines", source.lines),
        ("accepted", source.accepted),
        ("own-duplicates", source.own_duplicates),
        ("other-duplicates", source.other_duplicates),
        ("names", source.names),
        ("domains", source.domains),
        ("exclusive-domains", source.exclusive),
        ("new-domains", source.new_domains),
    ]
}

/// Returns a field of CSV.
fn quoted(field: &str) -> std::borrow::Cow<'_, str> {
    if field.contains([',', '"']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}

/// Writes a number as people read it: `13,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (13_000, "13,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_librarians_stand_on_top_and_every_line_is_accounted_for() {
        let mut figures = Statistics::of(vec![
            SourceFigures::new("afnic", SourceKind::Registry, true),
            SourceFigures::new("bcweb", SourceKind::Selection, true),
        ]);
        (figures.sources[0].lines, figures.sources[1].lines) = (3, 2);
        figures.sources[0].rejected[0] = 1;
        figures.name("fr", &[(0, 2), (1, 1)], true);
        figures.name("fr", &[(1, 1)], true);
        figures.domain("fr", 0b11, true);
        figures.domain("fr", 0b10, false);
        figures.settle();
        assert_eq!(figures.fault(), None);
        assert!(figures.text().starts_with("bcweb (selection): 2 domains, 1 found nowhere else\nafnic (registry): 1 domains, 0 found nowhere else\n"));
        assert_eq!(
            figures.json()["shared"],
            json!([{"sources": ["afnic", "bcweb"], "domains": 1}])
        );
        assert!(
            figures
                .csv()
                .contains("\nexclusive-domains,bcweb,selection,1\n")
        );
        figures.sources[0].lines += 1;
        assert_eq!(
            figures.fault().as_deref(),
            Some("the lines of afnic do not add up")
        );
    }

    /// A figure that is made wrong, and what is said of it.
    type WrongFigure = (fn(&mut Statistics), &'static str);

    #[test]
    fn every_sum_that_is_wrong_is_told() {
        let wrong: [WrongFigure; 9] = [
            (|figures| figures.names += 1, "the names do not add up"),
            (|figures| figures.given += 9, "more names were given on"),
            (|figures| figures.domains += 1, "the last labels do not"),
            (|figures| figures.new_domains += 1, "the last labels do not"),
            (
                |figures| figures.other_sets += 1,
                "the sets of sources do not",
            ),
            (
                |figures| figures.sources[0].domains += 1,
                "domains of afnic",
            ),
            (
                |figures| figures.sources[1].exclusive -= 1,
                "domains of bcweb",
            ),
            (
                |figures| figures.shared[1] += 1,
                "of afnic and bcweb do not",
            ),
            (
                |figures| {
                    figures.sets.insert(0b10, 0);
                    figures.sets.insert(0b01, 1);
                },
                "domains of afnic do not",
            ),
        ];
        for (change, told) in wrong {
            let mut figures = Statistics::of(vec![
                SourceFigures::new("afnic", SourceKind::Registry, true),
                SourceFigures::new("bcweb", SourceKind::Selection, true),
            ]);
            figures.sources[0].lines = 1;
            figures.sources[1].lines = 2;
            figures.name("fr", &[(0, 1), (1, 1)], true);
            figures.name("fr", &[(1, 1)], true);
            figures.domain("fr", 0b11, true);
            figures.domain("fr", 0b10, false);
            figures.settle();
            assert_eq!(figures.fault(), None);
            change(&mut figures);
            let fault = figures.fault().unwrap_or_default();
            assert!(fault.contains(told), "{fault:?} is not: {told}");
        }
    }

    #[test]
    fn too_many_sets_are_counted_together_and_still_add_up() {
        let sources = (0..11)
            .map(|place| SourceFigures::new(&format!("s-{place:02}"), SourceKind::Other, true));
        let mut figures = Statistics::of(sources.collect());
        for set in 1..1 << 11 {
            figures.domain("fr", set, true);
        }
        figures.settle();
        assert_eq!((figures.sets.len(), figures.other_sets), (SETS, 1_047));
        assert_eq!(figures.fault(), None);
        figures.sources[0].domains += 2_000;
        assert!(figures.fault().is_some());
    }

    #[test]
    fn what_is_left_out_is_told_and_its_source_is_in_part() {
        let mut figures = Statistics::of(vec![
            SourceFigures::new("afnic", SourceKind::Registry, true),
            SourceFigures::new("bcweb", SourceKind::Selection, true),
        ]);
        figures.leave_out(&[LeftOut {
            source: "afnic".into(),
            file: "registry/\"a\",b.txt".into(),
            reason: "it is UTF-16".into(),
        }]);
        assert!(figures.text().contains("afnic (registry, in part): 0"));
        assert!(figures.text().contains("bcweb (selection): 0"));
        let line = "\nlist-not-counted,afnic,\"registry/\"\"a\"\",b.txt\",1\n";
        assert!(figures.csv().contains(line), "{}", figures.csv());
    }
}
