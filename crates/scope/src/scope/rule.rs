//! The rules, compiled and asked one by one.

use std::collections::BTreeSet;
use std::io;

use ecluse_config::Key;
use regex::bytes::Regex;

use super::evidence::Evidence;
use super::pattern::{Patterns, RegexReach, compile_one, reached};
use super::{
    CandidateUrl, OwnRule, SEQUENCE, Scope, ScopeError, ScopeFault, ScopeOrder, ScopeVerdict, path,
    query, traps,
};
use crate::hops::{self, Trail};
use crate::limit::Limit;
use crate::surts::SurtSet;

/// A rule. What it needs from the order it takes from there; here is what had to be compiled.
#[derive(Debug)]
pub(super) enum Rule {
    Nothing,
    Seeds,
    Accept { surts: SurtSet, patterns: Patterns },
    Hops,
    Depth,
    Transclusion,
    Repetition,
    Segments,
    Calendar,
    Arguments,
    Traps(Patterns),
    Extensions(Vec<String>),
    Size,
    Seed,
    Prerequisites,
    Reject { surts: SurtSet, patterns: Patterns },
    Own(Box<Own>),
    Length,
    Schemes,
}

/// A rule of the order's own.
#[derive(Debug)]
pub(super) struct Own {
    verdict: ScopeVerdict,
    regex: Option<(String, Regex)>,
    surts: Option<SurtSet>,
    extensions: Option<Vec<String>>,
    hops: Option<Regex>,
    via: Option<Regex>,
    tag: Option<String>,
}

/// A URL cut up once for all rules.
pub(super) struct Parts<'a> {
    scheme: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    /// Path and query.
    target: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(url: &'a str) -> Parts<'a> {
        let url = url.split('#').next().unwrap_or_default();
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        let target = match rest.strip_prefix("//") {
            Some(rest) => &rest[rest.find(['/', '?']).unwrap_or(rest.len())..],
            None => rest,
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        Parts {
            scheme,
            path,
            query,
            target,
        }
    }
}

impl Rule {
    /// What the rule says of a URL, if it has something to say. Only what belongs to seeds may lie in a file.
    pub(super) fn ask<'a>(
        &'a self,
        scope: &'a Scope,
        candidate: &CandidateUrl<'a>,
        parts: &Parts<'a>,
    ) -> io::Result<Option<(ScopeVerdict, Evidence<'a>)>> {
        if let Rule::Seeds = self {
            let found = scope.seeds.find(candidate.surt)?;
            return Ok(found.map(|found| (ScopeVerdict::Accept, Evidence::Surt(found))));
        }
        Ok(self.ask_in_memory(scope, candidate, parts))
    }

    fn ask_in_memory<'a>(
        &'a self,
        scope: &'a Scope,
        candidate: &CandidateUrl<'a>,
        parts: &Parts<'a>,
    ) -> Option<(ScopeVerdict, Evidence<'a>)> {
        let order = &scope.order;
        let accept = |why| Some((ScopeVerdict::Accept, why));
        let reject = |why| Some((ScopeVerdict::Reject, why));
        match self {
            Rule::Nothing => reject(Evidence::Always),
            Rule::Seeds => None,
            Rule::Accept { surts, patterns } => accept(listed(surts, patterns, candidate)?),
            Rule::Reject { surts, patterns } => reject(listed(surts, patterns, candidate)?),
            Rule::Hops => reject(too_many("hops", candidate.hops.len(), order.hops)?),
            Rule::Depth => reject(too_many(
                "pages on the way",
                hops::depth(candidate.hops),
                order.depth,
            )?),
            Rule::Transclusion => accept(transclusion(order, candidate, parts.path)?),
            Rule::Repetition => reject(repetition(order, parts.path)?),
            Rule::Segments => reject(too_many(
                "segments",
                path::segments(parts.path),
                order.segments,
            )?),
            Rule::Calendar => {
                let date = order.calendar.stray_date(parts.target, scope.year)?;
                reject(Evidence::Date {
                    year: date.year,
                    first: date.first,
                    last: date.last,
                })
            }
            Rule::Arguments => reject(arguments(order, parts.query?)?),
            Rule::Traps(patterns) => reject(Evidence::Trap(patterns.find(candidate.url)?)),
            Rule::Extensions(extensions) => {
                reject(Evidence::Extension(extension_of(parts.path, extensions)?))
            }
            Rule::Size => {
                let limit = order.size.get()?.get();
                let found = candidate.size.filter(|found| *found > limit)?;
                reject(Evidence::Size { found, limit })
            }
            Rule::Seed if candidate.hops.is_empty() => accept(Evidence::Seed),
            Rule::Seed => None,
            Rule::Prerequisites if hops::is_prerequisite(candidate.hops) => {
                accept(Evidence::Prerequisite)
            }
            Rule::Prerequisites => None,
            Rule::Own(own) => Some((own.verdict, own.ask(candidate, parts)?)),
            Rule::Length => reject(too_many(
                "bytes",
                candidate.url.len(),
                Limit::At(order.url_length),
            )?),
            Rule::Schemes => {
                let is_known = order.schemes.iter().any(|scheme| scheme == parts.scheme);
                if is_known {
                    None
                } else {
                    reject(Evidence::Scheme(parts.scheme))
                }
            }
        }
    }
}

impl Own {
    fn ask<'a>(&'a self, candidate: &CandidateUrl<'a>, parts: &Parts<'a>) -> Option<Evidence<'a>> {
        let mut conditions = 0;
        let mut why = None;
        let mut holds = |evidence: Option<Evidence<'a>>| {
            conditions += 1;
            why = why.or(evidence);
        };
        if let Some((text, regex)) = &self.regex {
            if !regex.is_match(candidate.url.as_bytes()) {
                return None;
            }
            holds(Some(Evidence::Regex(text)));
        }
        if let Some(surts) = &self.surts {
            holds(Some(Evidence::Surt(
                surts.find(candidate.surt, candidate.url)?,
            )));
        }
        if let Some(extensions) = &self.extensions {
            holds(Some(Evidence::Extension(extension_of(
                parts.path, extensions,
            )?)));
        }
        if let Some(hops) = &self.hops {
            if !hops.is_match(candidate.hops.as_bytes()) {
                return None;
            }
            holds(None);
        }
        if let Some(via) = &self.via {
            if !via.is_match(candidate.via?.as_bytes()) {
                return None;
            }
            holds(None);
        }
        if let Some(tag) = &self.tag {
            if candidate.tag != Some(tag) {
                return None;
            }
            holds(None);
        }
        match (conditions, why) {
            (1, Some(why)) => Some(why),
            (conditions, _) => Some(Evidence::Conditions(conditions)),
        }
    }
}

fn listed<'a>(
    surts: &'a SurtSet,
    patterns: &'a Patterns,
    candidate: &CandidateUrl<'a>,
) -> Option<Evidence<'a>> {
    let surt = surts
        .find(candidate.surt, candidate.url)
        .map(Evidence::Surt);
    surt.or_else(|| patterns.find(candidate.url).map(Evidence::Regex))
}

fn too_many(what: &'static str, found: usize, limit: Limit<u32>) -> Option<Evidence<'static>> {
    let found = u64::try_from(found).unwrap_or(u64::MAX);
    let limit = u64::from(limit.get()?);
    (found > limit).then_some(Evidence::TooMany { what, found, limit })
}

/// Something that was not navigated to belongs to the page before it, if it is near enough.
///
/// Heritrix counts hops. Here documents count: only a document shows another, so the way to one is through documents
/// alone; files (modules, style sheets, fonts) belong to the page however long their chain is, up to a limit that only
/// a trap reaches. A guess may be anything, and counts as a file if its name says so. Redirects do not count as
/// distance; so that a chain of them ends, they have a limit of their own.
fn transclusion(
    order: &ScopeOrder,
    candidate: &CandidateUrl<'_>,
    path: &str,
) -> Option<Evidence<'static>> {
    let trail = Trail::of(candidate.hops);
    let distance = trail.all - trail.redirects;
    let within = |count: usize, limit: u32| {
        u64::try_from(count).is_ok_and(|count| count <= u64::from(limit))
    };
    let is_file = !candidate.framed && (hops::is_requisite(candidate.hops) || is_file(path));
    let limit = if is_file {
        order.requisite_hops.max(order.transclusion_hops)
    } else {
        order.transclusion_hops
    };
    let belongs = trail.all > 0
        && within(distance, limit)
        && within(trail.speculative, order.speculative_hops)
        && within(trail.redirects, order.redirect_hops);
    belongs.then_some(Evidence::Transclusion { hops: distance })
}

/// Tells a path that ends in the name of a file and not of a page.
fn is_file(path: &str) -> bool {
    const PAGES: [&str; 10] = [
        "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cfm", "do",
    ];
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && (2..=5).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
            && !PAGES
                .iter()
                .any(|page| page.eq_ignore_ascii_case(extension))
    })
}

fn repetition<'a>(order: &ScopeOrder, path: &'a str) -> Option<Evidence<'a>> {
    let count = |limit: Limit<u32>| limit.get().and_then(|limit| usize::try_from(limit).ok());
    let block = count(order.repetitions).and_then(|limit| path::repeated_block(path, limit));
    let segment = || count(order.occurrences).and_then(|limit| path::frequent_segment(path, limit));
    block
        .map(Evidence::Repetition)
        .or_else(|| segment().map(Evidence::Occurrence))
}

fn arguments<'a>(order: &ScopeOrder, query: &'a str) -> Option<Evidence<'a>> {
    let counts = query::count(query);
    let same = || {
        let (name, found) = counts.same?;
        let limit = u64::from(order.same_argument.get()?);
        let found = u64::try_from(found).ok().filter(|found| *found > limit)?;
        Some(Evidence::Argument { name, found, limit })
    };
    too_many("arguments", counts.arguments, order.arguments)
        .or_else(same)
        .or_else(|| too_many("facets", counts.facets, order.facets))
        .or_else(|| too_many("layers of escapes", counts.nesting, order.nesting))
}

/// The longest of `extensions` in which the path ends.
fn extension_of<'a>(path: &str, extensions: &'a [String]) -> Option<&'a str> {
    let fits = |extension: &&String| {
        let begin = path.len().checked_sub(extension.len());
        begin.is_some_and(|begin| {
            let (front, end) = path.as_bytes().split_at(begin);
            end.eq_ignore_ascii_case(extension.as_bytes()) && front.ends_with(b".")
        })
    };
    extensions
        .iter()
        .filter(fits)
        .max_by_key(|extension| extension.len())
        .map(String::as_str)
}

/// Compiles the rules of an order in their sequence; all faults are found.
pub(super) fn compile(order: &ScopeOrder) -> Result<Vec<(String, Rule)>, Vec<ScopeError>> {
    let mut compiler = Compiler {
        order,
        errors: Vec::new(),
    };
    compiler.check_numbers();
    let mut rules = Vec::new();
    let mut own: Vec<(&str, Option<Own>)> = compiler.own_rules();
    let mut named = BTreeSet::new();
    let in_sequence: BTreeSet<&str> = order.sequence.iter().map(String::as_str).collect();
    for (index, name) in order.sequence.iter().enumerate() {
        let key = vec![Key::Name("sequence"), Key::Index(index)];
        if !named.insert(name.as_str()) {
            compiler.error(name, key, ScopeFault::Twice);
            continue;
        }
        if name == "own" {
            for (name, rule) in &mut own {
                if let Some(rule) = rule.take_if(|_| !in_sequence.contains(name)) {
                    rules.push(((*name).to_owned(), Rule::Own(Box::new(rule))));
                }
            }
            continue;
        }
        if let Some((_, rule)) = own.iter_mut().find(|(own, _)| own == name) {
            if let Some(rule) = rule.take() {
                rules.push((name.clone(), Rule::Own(Box::new(rule))));
            }
            continue;
        }
        match compiler.built_in(name) {
            Some(rule) => rules.push((name.clone(), rule)),
            None => {
                let own = order.rules.iter().map(|rule| rule.name.as_str());
                let known: Vec<&str> = SEQUENCE.into_iter().chain(own).collect();
                let known = known.join(", ");
                compiler.error(name, key, ScopeFault::Unknown { known });
            }
        }
    }
    compiler.check_unasked(&named);
    for (name, rule) in own {
        if rule.is_some() {
            // Without `own` in the sequence it would be silently left out.
            let known = order.sequence.join(", ");
            compiler.error(
                name,
                vec![Key::Name("sequence")],
                ScopeFault::Unknown { known },
            );
        }
    }
    if compiler.errors.is_empty() {
        Ok(rules)
    } else {
        Err(compiler.errors)
    }
}

struct Compiler<'a> {
    order: &'a ScopeOrder,
    errors: Vec<ScopeError>,
}

impl<'a> Compiler<'a> {
    fn error(&mut self, rule: &str, key: Vec<Key<'static>>, fault: ScopeFault) {
        self.errors.push(ScopeError {
            rule: rule.to_owned(),
            key,
            fault,
        });
    }

    fn check_numbers(&mut self) {
        if self.order.url_length < 16 {
            self.error(
                "length",
                vec![Key::Name("url-length")],
                ScopeFault::TooSmall { least: 16 },
            );
        }
        if self.order.repetitions == Limit::At(0) {
            self.error(
                "repetition",
                vec![Key::Name("repetitions")],
                ScopeFault::TooSmall { least: 1 },
            );
        }
        if self.order.occurrences == Limit::At(0) {
            self.error(
                "repetition",
                vec![Key::Name("occurrences")],
                ScopeFault::TooSmall { least: 1 },
            );
        }
        if self.order.schemes.is_empty() {
            self.error("schemes", vec![Key::Name("schemes")], ScopeFault::Empty);
        }
    }

    /// Finds faults in rules that the sequence leaves out, and lists that nobody would look at.
    fn check_unasked(&mut self, named: &BTreeSet<&str>) {
        let order = self.order;
        for name in SEQUENCE.into_iter().filter(|name| !named.contains(name)) {
            let _ = self.built_in(name);
        }
        for (name, list, key) in [
            (
                "accept",
                &order.accept_surts,
                &[Key::Name("accept-surts")][..],
            ),
            (
                "accept",
                &order.accept_regexes,
                &[Key::Name("accept-regexes")],
            ),
            ("reject", &order.reject_surts, &[Key::Name("reject-surts")]),
            (
                "reject",
                &order.reject_regexes,
                &[Key::Name("reject-regexes")],
            ),
            (
                "extensions",
                &order.reject_extensions,
                &[Key::Name("reject-extensions")],
            ),
            (
                "traps",
                &order.traps.also,
                &[Key::Name("traps"), Key::Name("also")],
            ),
        ] {
            if !list.is_empty() && !named.contains(name) {
                self.error(name, key.to_vec(), ScopeFault::NeverAsked);
            }
        }
    }

    /// Returns a built-in rule; with faults in it, one that never speaks, since the faults are reported.
    fn built_in(&mut self, name: &str) -> Option<Rule> {
        let order = self.order;
        Some(match name {
            "nothing" => Rule::Nothing,
            "seeds" => Rule::Seeds,
            "accept" => Rule::Accept {
                surts: self.surts(name, &order.accept_surts, &[Key::Name("accept-surts")]),
                patterns: self.patterns(name, &order.accept_regexes, "accept-regexes"),
            },
            "hops" => Rule::Hops,
            "depth" => Rule::Depth,
            "transclusion" => Rule::Transclusion,
            "repetition" => Rule::Repetition,
            "segments" => Rule::Segments,
            "calendar" => Rule::Calendar,
            "arguments" => Rule::Arguments,
            "traps" => Rule::Traps(self.traps()),
            "extensions" => {
                let key = [Key::Name("reject-extensions")];
                Rule::Extensions(self.extensions(name, &order.reject_extensions, &key))
            }
            "size" => Rule::Size,
            "seed" => Rule::Seed,
            "prerequisites" => Rule::Prerequisites,
            "reject" => Rule::Reject {
                surts: self.surts(name, &order.reject_surts, &[Key::Name("reject-surts")]),
                patterns: self.patterns(name, &order.reject_regexes, "reject-regexes"),
            },
            "length" => Rule::Length,
            "schemes" => Rule::Schemes,
            _ => return None,
        })
    }

    fn surts(&mut self, rule: &str, texts: &[String], key: &[Key<'static>]) -> SurtSet {
        let mut set = SurtSet::default();
        for (index, text) in texts.iter().enumerate() {
            if let Err(error) = set.insert_text(text) {
                self.error(rule, below(key, Key::Index(index)), error.into());
            }
        }
        set
    }

    fn patterns(&mut self, rule: &str, texts: &[String], key: &'static str) -> Patterns {
        let named: Vec<(&str, &str)> = texts
            .iter()
            .map(|text| (text.as_str(), text.as_str()))
            .collect();
        self.named_patterns(rule, named, &[Key::Name(key)], 0, self.order.regexes, false)
    }

    /// Compiles what is good of `patterns`; those from `first_own` on stand in the order at `key`.
    fn named_patterns(
        &mut self,
        rule: &str,
        mut patterns: Vec<(&str, &str)>,
        key: &[Key<'static>],
        first_own: usize,
        reach: RegexReach,
        ignores_case: bool,
    ) -> Patterns {
        let mut dropped = 0;
        loop {
            match Patterns::compile(patterns.iter().copied(), reach, ignores_case) {
                Ok(compiled) => return compiled,
                Err((index, fault)) => {
                    let item = (index + dropped).saturating_sub(first_own);
                    self.error(rule, below(key, Key::Index(item)), fault.into());
                    patterns.remove(index);
                    dropped += 1;
                }
            }
        }
    }

    fn traps(&mut self) -> Patterns {
        let order = &self.order.traps;
        let known = || traps::SHIPPED.iter().map(|trap| trap.name);
        for (index, name) in order.except.iter().enumerate() {
            if !known().any(|known| known == name) {
                let key = vec![Key::Name("traps"), Key::Name("except"), Key::Index(index)];
                let known = known().collect::<Vec<_>>().join(", ");
                let name = name.clone();
                self.error("traps", key, ScopeFault::UnknownTrap { name, known });
            }
        }
        let shipped = traps::SHIPPED
            .iter()
            .filter(|trap| order.shipped && !order.except.iter().any(|name| name == trap.name))
            .map(|trap| (trap.name, trap.pattern));
        let mut patterns: Vec<(&str, &str)> = shipped.collect();
        let first_own = patterns.len();
        patterns.extend(order.also.iter().map(|text| (text.as_str(), text.as_str())));
        let key = [Key::Name("traps"), Key::Name("also")];
        self.named_patterns(
            "traps",
            patterns,
            &key,
            first_own,
            RegexReach::Anywhere,
            true,
        )
    }

    fn extensions(&mut self, rule: &str, texts: &[String], key: &[Key<'static>]) -> Vec<String> {
        let mut extensions = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let extension = text.strip_prefix('.').unwrap_or(text);
            let is_good = !extension.is_empty()
                && extension.split('.').all(|part| {
                    !part.is_empty()
                        && part
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_+~".contains(&byte))
                });
            if is_good {
                extensions.push(extension.to_ascii_lowercase());
            } else {
                let text = text.clone();
                self.error(
                    rule,
                    below(key, Key::Index(index)),
                    ScopeFault::BadExtension { text },
                );
            }
        }
        extensions
    }

    fn own_rules(&mut self) -> Vec<(&'a str, Option<Own>)> {
        let mut names = BTreeSet::new();
        let mut rules = Vec::new();
        for (index, rule) in self.order.rules.iter().enumerate() {
            let key = [Key::Name("rules"), Key::Index(index)];
            let is_name = !rule.name.is_empty()
                && rule.name.len() <= 64
                && rule
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !SEQUENCE.contains(&rule.name.as_str());
            if !is_name {
                self.error(
                    &rule.name,
                    below(&key, Key::Name("name")),
                    ScopeFault::BadName,
                );
            } else if !names.insert(rule.name.as_str()) {
                self.error(
                    &rule.name,
                    below(&key, Key::Name("name")),
                    ScopeFault::Twice,
                );
            }
            let own = self.own_rule(rule, &key);
            if is_name {
                rules.push((rule.name.as_str(), Some(own)));
            }
        }
        rules
    }

    fn own_rule(&mut self, rule: &OwnRule, key: &[Key<'static>]) -> Own {
        let name = rule.name.as_str();
        let surts = (!rule.surts.is_empty())
            .then(|| self.surts(name, &rule.surts, &below(key, Key::Name("surts"))));
        let extensions = (!rule.extensions.is_empty())
            .then(|| self.extensions(name, &rule.extensions, &below(key, Key::Name("extensions"))));
        let reach = self.order.regexes;
        let mut regex = |field: &'static str, text: &Option<String>, reach: RegexReach| {
            let text = text.as_ref()?;
            match compile_one(text, false).and_then(|_| compile_one(&reached(text, reach), false)) {
                Ok(regex) => Some(regex),
                Err(fault) => {
                    self.error(name, below(key, Key::Name(field)), fault.into());
                    None
                }
            }
        };
        let own = Own {
            verdict: rule.verdict,
            regex: rule.regex.clone().zip(regex("regex", &rule.regex, reach)),
            surts,
            extensions,
            // A way is short and its end matters: it is matched as a whole, as in Heritrix.
            hops: regex("hops", &rule.hops, RegexReach::Whole),
            via: regex("via", &rule.via, reach),
            tag: rule.tag.clone(),
        };
        let has_condition = rule.regex.is_some()
            || !rule.surts.is_empty()
            || !rule.extensions.is_empty()
            || rule.hops.is_some()
            || rule.via.is_some()
            || rule.tag.is_some();
        if !has_condition {
            self.error(name, key.to_vec(), ScopeFault::NoCondition);
        }
        own
    }
}

fn below(key: &[Key<'static>], step: Key<'static>) -> Vec<Key<'static>> {
    let mut key = key.to_vec();
    key.push(step);
    key
}
