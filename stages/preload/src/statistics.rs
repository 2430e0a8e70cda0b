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
    pub(crate) domains: u64,
    pub(crate) new_domains: u64,
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

/// The figures of a source.
#[derive(Debug)]
pub(crate) struct SourceFigures {
    pub(crate) name: String,
    pub(crate) kind: SourceKind,
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

#[derive(Debug, Default)]
struct TldFigures {
    names: u64,
    domains: u64,
    new_domains: u64,
}

impl SourceFigures {
    pub(crate) fn new(name: &str, kind: SourceKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
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

    /// Counts a name; its origins come in order of the source.
    pub(crate) fn name(&mut self, tld: &str, origins: &[(u8, u32)]) {
        self.names += 1;
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
        (accepted + self.only_forced != self.names).then(|| "the names do not add up".to_owned())
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
            say(format!(
                "{} ({}): {} domains, {} found nowhere else",
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
                source.vanished,
            ];
            let figures: String = figures
                .iter()
                .map(|figure| format!("{:>14}", grouped(*figure)))
                .collect();
            say(format!("{:<24}{figures}", source.name));
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
            let _ = writeln!(text, "{what},{of},{and},{figure}");
        };
        say("names", "", "", self.names);
        say("names-by-rule-only", "", "", self.only_forced);
        say("domains", "", "", self.domains);
        say("new-domains", "", "", self.new_domains);
        for source in self.in_order() {
            let name = &source.name;
            for (what, figure) in figures_of(source) {
                say(what, name, source.kind.word(), figure);
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
                for (what, figure) in figures_of(source) {
                    told.insert(what.into(), figure.into());
                }
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
        json!({
            "names": self.names, "names-by-rule-only": self.only_forced, "domains": self.domains,
            "new-domains": self.new_domains, "register": self.register, "sources": sources,
            "shared": shared, "exactly": sets, "domains-of-other-sets": self.other_sets, "last-labels": tlds,
        })
    }
}

fn figures_of(source: &SourceFigures) -> [(&'static str, u64); 9] {
    [
        ("lines", source.lines),
        ("accepted", source.accepted),
        ("own-duplicates", source.own_duplicates),
        ("other-duplicates", source.other_duplicates),
        ("names", source.names),
        ("domains", source.domains),
        ("exclusive-domains", source.exclusive),
        ("new-domains", source.new_domains),
        ("vanished-domains", source.vanished),
    ]
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
            SourceFigures::new("afnic", SourceKind::Registry),
            SourceFigures::new("bcweb", SourceKind::Selection),
        ]);
        (figures.sources[0].lines, figures.sources[1].lines) = (3, 2);
        figures.sources[0].rejected[0] = 1;
        figures.name("fr", &[(0, 2), (1, 1)]);
        figures.name("fr", &[(1, 1)]);
        figures.domain("fr", 0b11, true);
        figures.domain("fr", 0b10, false);
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
        assert!(figures.fault().is_some());
    }
}
