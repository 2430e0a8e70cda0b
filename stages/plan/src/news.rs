//! What is new of one domain, gathered from everything that came, and what its record becomes by it.
//!
//! The same news in any order and in any batches give the same record: the newest day wins, and where days are equal, what
//! compares as larger. Nothing grows without bound.

use std::collections::{BTreeMap, BTreeSet};

use ecluse_names::{ForcedDomain, ForcedRules, ForcedVerdict, key_of};
use ecluse_register::{
    DnsAnswer, DomainState, HarvestResult, RegisterChange, RegisterDay, RegisterRecord,
};
use serde_json::{Value, json};

/// Names below a domain that are kept, and URLs.
const HOSTS: usize = 100;
const SEEDS: usize = 1000;
/// Sites that link to it, as far as they are told one by one; more are not counted.
pub(crate) const LINKING: usize = 50;
/// Addresses that are kept.
const ADDRESSES: usize = 4;
/// Since when DNS denies it a second time.
const AGAIN: &str = "absent-again";
/// The source of domains that no list has, only results.
pub(crate) const FROM_RESULTS: &str = "harvests";

/// What DNS says of a name of the domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DnsNews {
    pub(crate) day: RegisterDay,
    /// It is the name of the domain itself.
    pub(crate) is_site: bool,
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) is_absent: bool,
    pub(crate) is_present: bool,
    pub(crate) forms: Vec<String>,
    pub(crate) addresses: Vec<String>,
    pub(crate) hints: Vec<String>,
}

/// What is new of a domain.
#[derive(Debug, Default)]
pub(crate) struct DomainNews {
    pub(crate) site: String,
    /// The sources that had it, and when they last did.
    pub(crate) sources: BTreeMap<String, RegisterDay>,
    /// The first day one of them had it.
    pub(crate) seen: Option<RegisterDay>,
    pub(crate) dns: Option<DnsNews>,
    /// The days on which DNS denied it, and the last on which a name of it was there.
    pub(crate) absent: BTreeSet<RegisterDay>,
    pub(crate) present: Option<RegisterDay>,
    /// Names below it that answer, and those that no longer do.
    pub(crate) hosts: BTreeMap<String, bool>,
    pub(crate) seeds: BTreeSet<String>,
    pub(crate) results: Vec<HarvestResult>,
    /// What was learned: when, and what.
    pub(crate) evidence: BTreeMap<String, (RegisterDay, String)>,
    /// Sites that link to it, and when that was seen.
    pub(crate) linked: BTreeMap<String, RegisterDay>,
}

impl DomainNews {
    pub(crate) fn add_dns(&mut self, news: DnsNews) {
        if !news.is_site && news.name.strip_prefix("www.") != Some(self.site.as_str()) {
            let answers = !news.is_present || !news.forms.is_empty();
            let host = match news.forms.first().map(String::as_str) {
                Some("www") if !news.name.starts_with("www.") => format!("www.{}", news.name),
                _ => news.name.clone(),
            };
            self.add_host(host, answers && !news.is_absent);
        }
        if news.is_absent {
            self.absent.insert(news.day);
        }
        if news.is_present {
            self.present = self.present.max(Some(news.day));
        }
        if self.dns.as_ref().is_none_or(|known| *known < news) {
            self.dns = Some(news);
        }
    }

    pub(crate) fn add_host(&mut self, host: String, answers: bool) {
        self.hosts.insert(host, answers);
        if self.hosts.len() > 4 * HOSTS {
            self.hosts.pop_last();
        }
    }

    pub(crate) fn add_seed(&mut self, url: String) {
        self.seeds.insert(url);
        if self.seeds.len() > SEEDS {
            self.seeds.pop_last();
        }
    }

    pub(crate) fn add_linked(&mut self, site: &str, day: RegisterDay) {
        let known = self.linked.entry(site.to_owned()).or_insert(day);
        *known = day.max(*known);
        if self.linked.len() > LINKING {
            self.linked.pop_last();
        }
    }

    /// Tells whether it is of use where nothing is known of the domain yet: a page that mentions it does not make it one of ours.
    fn makes_known(&self) -> bool {
        // Nor does what was only asked again.
        !self.sources.is_empty() || !self.seeds.is_empty() || !self.results.is_empty()
    }

    pub(crate) fn add_evidence(&mut self, what: &str, value: &str, day: RegisterDay) {
        let news = (day, value.to_owned());
        let known = self
            .evidence
            .entry(what.to_owned())
            .or_insert_with(|| news.clone());
        if *known < news {
            *known = news;
        }
    }
}

/// The news of a domain with what is needed to apply them.
pub(crate) struct DomainChange<'a> {
    pub(crate) news: DomainNews,
    pub(crate) rules: &'a ForcedRules,
    pub(crate) today: RegisterDay,
    /// How many results stay.
    pub(crate) history: usize,
}

impl RegisterChange for DomainChange<'_> {
    fn key(&self) -> String {
        key_of(&self.news.site)
    }

    fn apply(self, before: Option<RegisterRecord>) -> Option<RegisterRecord> {
        if before.is_none() && !self.news.makes_known() {
            return None;
        }
        let Self {
            news,
            rules,
            today,
            history,
        } = self;
        let key = key_of(&news.site);
        let harvested = news.results.iter().map(|result| result.day);
        let (first, last) = (harvested.clone().min(), harvested.max());
        let listed = news.sources.values().min().copied();
        let listed = news.seen.into_iter().chain(listed).min();
        let seen = listed.or(first).unwrap_or(today);
        let mut record = before.unwrap_or_else(|| RegisterRecord::new(&news.site, seen));
        // What only results tell of is seen when they say so, until a list has it: then the lists count, as if they had come first.
        if !news.sources.is_empty() && record.sources.remove(FROM_RESULTS).is_some() {
            (record.first, record.last) = (seen, seen);
        }
        record.first = listed.map_or(record.first, |day| day.min(record.first));
        for (source, day) in news.sources {
            record.last = record.last.max(day);
            let seen = record.sources.entry(source).or_insert(day);
            *seen = day.max(*seen);
        }
        if let Some(dns) = news.dns {
            let present = last_present(&record).max(news.present);
            set_dns(&mut record, dns);
            set_absence(&mut record, news.absent, present);
        }
        set_hosts(&mut record, news.hosts);
        set_seeds(&mut record, news.seeds);
        for result in news.results {
            record.add_harvest(result, history);
        }
        if record.sources.keys().all(|source| source == FROM_RESULTS) {
            let seen = record.sources.entry(FROM_RESULTS.to_owned());
            let seen = seen.or_insert(last.unwrap_or(today));
            *seen = last.map_or(*seen, |last| last.max(*seen));
            record.last = *seen;
            record.first = first.map_or(record.first, |first| first.min(record.first));
        }
        for (what, news) in news.evidence {
            set_evidence(&mut record, &what, news);
        }
        set_linked(&mut record, news.linked);
        force(
            &mut record,
            rules.of_name(key.as_bytes()).map(|(rule, _)| rule),
        );
        Some(record)
    }
}

fn set_dns(record: &mut RegisterRecord, dns: DnsNews) {
    let known_name = record.more.get("checked-name").and_then(Value::as_str);
    if let Some(known) = &record.dns {
        let known_rank = (known.day, known_name.is_none(), known_name.unwrap_or(""));
        let name = if dns.is_site { "" } else { dns.name.as_str() };
        if (dns.day, dns.is_site, name) < known_rank {
            return;
        }
    }
    match dns.is_site {
        true => record.more.remove("checked-name"),
        false => record.more.insert("checked-name".into(), dns.name.into()),
    };
    record.dns = Some(DnsAnswer {
        class: dns.class,
        day: dns.day,
    });
    record.forms = dns.forms;
    let mut addresses = dns.addresses;
    addresses.truncate(ADDRESSES);
    set_list(record, "addresses", addresses);
    set_list(record, "hints", dns.hints);
}

/// Returns the day of the last check that found a form that answers.
fn answered(record: &RegisterRecord) -> Option<RegisterDay> {
    let dns = record.dns.as_ref().filter(|_| !record.forms.is_empty());
    dns.map(|dns| dns.day)
}

/// Returns the last day on which a name of it was there.
fn last_present(record: &RegisterRecord) -> Option<RegisterDay> {
    day_in(record, "present").max(answered(record))
}

/// Puts down since when DNS denies it, and whether it did so again on a later day. A check that found nothing out denies nothing.
fn set_absence(
    record: &mut RegisterRecord,
    mut absent: BTreeSet<RegisterDay>,
    present: Option<RegisterDay>,
) {
    absent.extend(day_in(record, "absent"));
    absent.extend(day_in(record, AGAIN));
    absent.retain(|day| Some(*day) > present);
    let first = absent.first().copied();
    set_day(record, "absent", first);
    set_day(
        record,
        AGAIN,
        absent.pop_last().filter(|last| Some(*last) > first),
    );
    // An answer says it already.
    let present = present.filter(|day| Some(*day) > answered(record));
    set_day(record, "present", present);
}

fn day_in(record: &RegisterRecord, key: &str) -> Option<RegisterDay> {
    RegisterDay::parse(record.more.get(key)?.as_str()?)
}

fn set_day(record: &mut RegisterRecord, key: &str, day: Option<RegisterDay>) {
    match day {
        Some(day) => record.more.insert(key.to_owned(), json!(day.to_string())),
        None => record.more.remove(key),
    };
}

fn set_hosts(record: &mut RegisterRecord, news: BTreeMap<String, bool>) {
    if news.is_empty() {
        return;
    }
    let mut hosts: BTreeSet<String> = list_of(record, "hosts").into_iter().collect();
    for (host, answers) in news {
        match answers {
            true => hosts.insert(host),
            false => hosts.remove(&host),
        };
    }
    set_list(record, "hosts", hosts.into_iter().take(HOSTS));
}

fn set_seeds(record: &mut RegisterRecord, news: BTreeSet<String>) {
    if news.is_empty() {
        return;
    }
    let mut seeds: BTreeSet<String> = list_of(record, "seeds").into_iter().collect();
    seeds.extend(news);
    set_list(record, "seeds", seeds.into_iter().take(SEEDS));
}

fn set_evidence(record: &mut RegisterRecord, what: &str, (day, value): (RegisterDay, String)) {
    let evidence = record.more.entry("evidence").or_insert_with(|| json!({}));
    // Sites that are known by name count before a number that somebody gave.
    if evidence[what].get("from").is_some() {
        return;
    }
    let text = |key: &str| evidence[what].get(key).and_then(Value::as_str);
    let known = text("day").and_then(RegisterDay::parse).zip(text("value"));
    if known.is_none_or(|(known_day, known)| (known_day, known) <= (day, value.as_str())) {
        evidence[what] = json!({"day": day.to_string(), "value": value});
    }
}

/// Puts down who links to it: the first by name, so that it does not matter who came first.
fn set_linked(record: &mut RegisterRecord, news: BTreeMap<String, RegisterDay>) {
    let Some(mut day) = news.values().max().copied() else {
        return;
    };
    let evidence = record.more.entry("evidence").or_insert_with(|| json!({}));
    let known = &evidence["links"];
    let mut sites: BTreeSet<String> = known["from"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|site| site.as_str().map(str::to_owned))
        .collect();
    if !sites.is_empty() {
        let known = known["day"].as_str().and_then(RegisterDay::parse);
        day = known.map_or(day, |known| known.max(day));
    }
    sites.extend(news.into_keys());
    while sites.len() > LINKING {
        sites.pop_last();
    }
    evidence["links"] = json!({
        "day": day.to_string(), "from": sites, "value": sites.len().to_string(),
    });
}

/// Puts down what librarians said, and whether the domain is harvested.
fn force(record: &mut RegisterRecord, rule: Option<&ForcedDomain>) {
    match rule {
        Some(rule) => record.more.insert("forced".into(), forced_of(rule)),
        None => record.more.remove("forced"),
    };
    // Gone is what two checks on different days denied, and of which no other name is known.
    let is_gone = record.more.contains_key(AGAIN) && !record.more.contains_key("hosts");
    record.state = match rule.map(|rule| rule.verdict) {
        Some(ForcedVerdict::In) => DomainState::Active,
        Some(ForcedVerdict::Out) => DomainState::Inactive,
        None if is_gone => DomainState::Inactive,
        None => DomainState::Active,
    };
}

/// What a record says of a rule.
pub(crate) fn forced_of(rule: &ForcedDomain) -> Value {
    json!({"verdict": rule.verdict.word(), "who": rule.who, "when": rule.when, "why": rule.why})
}

fn list_of(record: &RegisterRecord, key: &str) -> Vec<String> {
    let listed = record.more.get(key).and_then(Value::as_array);
    let listed = listed.into_iter().flatten().filter_map(Value::as_str);
    listed.map(str::to_owned).collect()
}

fn set_list(record: &mut RegisterRecord, key: &str, items: impl IntoIterator<Item = String>) {
    let items: Vec<Value> = items.into_iter().map(Value::String).collect();
    match items.is_empty() {
        true => record.more.remove(key),
        false => record.more.insert(key.to_owned(), Value::Array(items)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: u8) -> RegisterDay {
        RegisterDay::new(2026, 11, day).unwrap()
    }

    fn dns(name: &str, on: u8, class: &str) -> DnsNews {
        DnsNews {
            day: day(on),
            is_site: name == "exemple.fr",
            name: name.to_owned(),
            class: class.to_owned(),
            is_absent: class == "NXDOMAIN",
            is_present: class.starts_with("OK"),
            forms: if class.starts_with("OK") {
                vec!["apex".into(), "www".into()]
            } else {
                vec![]
            },
            addresses: vec!["192.0.2.1".into()],
            hints: vec![],
        }
    }

    fn apply(
        before: Option<RegisterRecord>,
        rules: &ForcedRules,
        fill: impl FnOnce(&mut DomainNews),
    ) -> RegisterRecord {
        apply_if(before, rules, fill).unwrap()
    }

    fn apply_if(
        before: Option<RegisterRecord>,
        rules: &ForcedRules,
        fill: impl FnOnce(&mut DomainNews),
    ) -> Option<RegisterRecord> {
        let mut news = DomainNews {
            site: "exemple.fr".into(),
            ..DomainNews::default()
        };
        fill(&mut news);
        let change = DomainChange {
            news,
            rules,
            today: day(17),
            history: 3,
        };
        change.apply(before)
    }

    fn source(name: &str, on: u8) -> impl FnOnce(&mut DomainNews) {
        let name = name.to_owned();
        move |news| {
            news.sources.insert(name, day(on));
        }
    }

    #[test]
    fn gone_is_what_two_checks_on_two_days_did_not_find() {
        let rules = ForcedRules::default();
        let check = |before, on, class: &str| {
            Some(apply(before, &rules, |news| {
                news.sources.insert("afnic".into(), day(1));
                news.add_dns(dns("exemple.fr", on, class));
            }))
        };
        let once = check(None, 1, "NXDOMAIN");
        assert_eq!(once.as_ref().unwrap().state, DomainState::Active);
        // The same day does not count.
        let again = check(once, 1, "NXDOMAIN");
        assert_eq!(again.as_ref().unwrap().state, DomainState::Active);
        // Nobody could say on the third: that changes nothing.
        let unsure = check(again, 3, "TIMEOUT");
        assert_eq!(unsure.as_ref().unwrap().state, DomainState::Active);
        let gone = check(unsure, 4, "NXDOMAIN");
        assert_eq!(gone.as_ref().unwrap().state, DomainState::Inactive);
        let back = check(gone, 9, "OK_A").unwrap();
        assert_eq!(back.state, DomainState::Active);
        assert_eq!(back.forms, ["apex", "www"]);
        assert!(!back.more.contains_key("absent") && !back.more.contains_key(AGAIN));
    }

    #[test]
    fn what_has_a_name_that_answers_is_not_gone() {
        let rules = ForcedRules::default();
        let check = |before, name: &'static str, on, class: &str| {
            Some(apply(before, &rules, |news| {
                news.sources.insert("afnic".into(), day(1));
                news.add_dns(dns(name, on, class));
            }))
        };
        let is_active =
            |record: &Option<RegisterRecord>| record.as_ref().unwrap().state == DomainState::Active;
        let blog = check(None, "blog.exemple.fr", 1, "OK_A");
        let first = check(blog, "exemple.fr", 2, "NXDOMAIN");
        let second = check(first, "exemple.fr", 5, "NXDOMAIN");
        assert!(is_active(&second));
        assert!(!is_active(&check(
            second.clone(),
            "blog.exemple.fr",
            5,
            "NXDOMAIN"
        )));
        // It was there on the same day, whoever is heard first.
        let blog = check(None, "www.exemple.fr", 5, "OK_A");
        let both = check(blog, "exemple.fr", 5, "NXDOMAIN");
        let denied = check(None, "exemple.fr", 5, "NXDOMAIN");
        assert_eq!(check(denied, "www.exemple.fr", 5, "OK_A"), both);
        assert!(!both.as_ref().unwrap().more.contains_key("absent"));
        // A check that is heard of late, of before it was there, denies nothing.
        let late = check(both, "exemple.fr", 4, "NXDOMAIN");
        assert!(is_active(&check(late, "exemple.fr", 6, "NXDOMAIN")));
    }

    #[test]
    fn what_was_asked_again_makes_no_record_and_no_source() {
        let rules = ForcedRules::default();
        let asked = |news: &mut DomainNews| news.add_dns(dns("exemple.fr", 9, "OK_A"));
        assert_eq!(apply_if(None, &rules, asked), None);
        let before = apply(None, &rules, source("afnic", 1));
        let record = apply(Some(before.clone()), &rules, asked);
        assert_eq!(
            (&record.sources, record.first, record.last),
            (&before.sources, before.first, before.last)
        );
        assert_eq!(record.dns.unwrap().day, day(9));
    }

    #[test]
    fn the_librarians_word_wins() {
        let text = |verdict| {
            format!(
                "[[rule]]\nverdict = \"{verdict}\"\ndomain = \"exemple.fr\"\nwho = \"M. Duval\"\nwhen = \"2026-10-02\"\nwhy = \"asked\"\n"
            )
        };
        let out = ForcedRules::parse(&text("out")).unwrap();
        let record = apply(None, &out, source("afnic", 1));
        assert_eq!(record.state, DomainState::Inactive);
        assert_eq!(record.more["forced"]["who"], "M. Duval");
        // The rule is taken back.
        let record = apply(Some(record), &ForcedRules::default(), |_| {});
        assert_eq!(record.state, DomainState::Active);
        assert!(!record.more.contains_key("forced"));
        let inside = ForcedRules::parse(&text("in")).unwrap();
        let gone = |news: &mut DomainNews| news.add_dns(dns("exemple.fr", 5, "NXDOMAIN"));
        let record = apply(Some(record), &inside, gone);
        let gone = |news: &mut DomainNews| news.add_dns(dns("exemple.fr", 7, "NXDOMAIN"));
        assert_eq!(
            apply(Some(record), &inside, gone).state,
            DomainState::Active
        );
    }

    /// However they are dealt into batches.
    #[test]
    fn the_order_of_news_does_not_matter() {
        let rules = ForcedRules::default();
        let result = |objects, on| HarvestResult {
            job: format!("job{objects}"),
            harvest: "broad".into(),
            day: day(on),
            objects,
            bytes: 1,
            stop: ecluse_register::StopReason::DownloadComplete,
        };
        let all: [&dyn Fn(&mut DomainNews); 9] = [
            &|news| news.add_dns(dns("exemple.fr", 2, "OK_A")),
            &|news| news.add_dns(dns("blog.exemple.fr", 2, "OK_BOTH")),
            &|news| news.add_dns(dns("www.exemple.fr", 1, "NODATA")),
            &|news| {
                news.sources.insert("ovh".into(), day(1));
                news.add_seed("https://exemple.fr/b".into());
            },
            &|news| {
                news.sources.insert("afnic".into(), day(2));
                news.add_seed("https://exemple.fr/a".into());
            },
            &|news| news.add_evidence("language", "fr", day(3)),
            &|news| news.add_linked("b.fr", day(4)),
            &|news| news.add_linked("a.fr", day(3)),
            &|news| news.results.extend([result(7, 1), result(8, 20)]),
        ];
        let together = apply(None, &rules, |news| all.iter().for_each(|fill| fill(news)));
        assert_eq!(together.dns.as_ref().unwrap().class, "OK_A");
        assert_eq!(together.more["hosts"], json!(["blog.exemple.fr"]));
        assert_eq!(together.last, day(2));
        assert_eq!((together.first, together.last), (day(1), day(2)));
        assert_eq!(
            together.more["evidence"]["links"],
            json!({"day": "20261104", "from": ["a.fr", "b.fr"], "value": "2"})
        );
        for turn in 0..all.len() {
            // What a page tells is of no use before somebody names the domain.
            let mut record = apply_if(None, &rules, all[turn]);
            for at in 1..=all.len() + 2 {
                record = apply_if(record, &rules, all[(turn + at) % all.len()]);
            }
            assert_eq!(record.as_ref(), Some(&together), "{turn}");
        }
    }

    #[test]
    fn what_only_pages_tell_of_makes_no_record() {
        let rules = ForcedRules::default();
        let tells: [&dyn Fn(&mut DomainNews); 2] =
            [&|news| news.add_linked("a.fr", day(3)), &|news| {
                news.add_evidence("media", "text/html", day(3));
            }];
        for told in tells {
            assert_eq!(apply_if(None, &rules, told), None);
        }
        // Sites that are known by name count before a number that somebody gave, whichever came first.
        let number = |news: &mut DomainNews| news.add_evidence("links", "900", day(9));
        let record = apply(None, &rules, source("afnic", 1));
        let named = apply(Some(record.clone()), &rules, tells[0]);
        let named = apply(Some(named), &rules, number);
        let given = apply(Some(record), &rules, number);
        assert_eq!(given.more["evidence"]["links"]["value"], "900");
        assert_eq!(apply(Some(given), &rules, tells[0]), named);
        assert_eq!(named.more["evidence"]["links"]["value"], "1");
        // As many as are kept, and always the same.
        let many = apply(Some(named), &rules, |news| {
            for number in (0..200).rev() {
                news.add_linked(&format!("z{number:03}.fr"), day(5));
            }
        });
        let links = &many.more["evidence"]["links"];
        assert_eq!(
            (&links["value"], &links["from"][49]),
            (&"50".into(), &"z048.fr".into())
        );
    }
}
