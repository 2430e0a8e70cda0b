//! A harvest definition: a file in `harvests/` that says what is harvested, when, how much of it and in what manner.
//!
//! Reading one finds everything that is wrong with it, with its line. What is refused: what would lose a year without anybody
//! noticing (a start in the past, every day for ever), and what cannot be done (the whole of a large site every day).

use std::collections::BTreeMap;
use std::path::{Component, Path};

use ecluse_config::{Bytes, Document, Key, Problem, Span};
use ecluse_names::{NameFlags, Normaliser, Registered};
use ecluse_scope::{Limit, Order, Priority, Reach};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::calendar::CalendarExpression;
use crate::order::{JobOrder, order_text};
use crate::refresh::RefreshDefinition;
use crate::schedule::{HarvestSchedule, ScheduleTimes};
use crate::traps::TrapFile;
use crate::zone::zone_named;

/// A harvest definition as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct HarvestDefinition {
    /// Of the whole register, or of some domains.
    pub kind: HarvestKind,
    /// What it is for, in words.
    pub description: String,
    /// When it begins.
    pub from: String,
    /// When it ends.
    pub until: String,
    /// A calendar expression.
    pub schedule: String,
    /// Or an interval.
    pub every: Option<Span>,
    /// Where its times and days are counted.
    pub zone: String,
    /// Days without a run: `2026-12-25`, or `2026-12-24..2027-01-02`.
    pub except: Vec<String>,
    /// An order that its jobs are made of, beside this file.
    pub template: String,
    /// Which jobs go first.
    pub priority: Option<Priority>,
    /// How much of each domain.
    pub budget: DomainBudget,
    /// How much around each seed.
    pub reach: Option<Reach>,
    /// Pages from the seed.
    pub depth: Option<Limit<u32>>,
    /// Regular expressions for URLs that are left out.
    pub traps: Vec<String>,
    /// The collection in front of file names.
    pub collection: String,
    /// The index its captures go to; the main one where it says nothing.
    pub index: String,
    /// Which domains of the register, for a broad harvest.
    pub select: Selection,
    /// Which domains and URLs, for a selective one.
    pub domains: Vec<DomainEntry>,
    /// That pages the archive knows are visited again, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshDefinition>,
}

/// Of the whole register, or of some domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HarvestKind {
    /// It was not said.
    #[default]
    Unsaid,
    /// From the register, by criteria.
    Broad,
    /// Domains and URLs that it names.
    Selective,
}

/// How much of one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DomainBudget {
    /// URLs fetched.
    pub urls: Limit<u64>,
    /// Bytes received.
    pub bytes: Limit<Bytes>,
    /// Time since its first fetch.
    pub time: Limit<Span>,
}

/// Which domains of the register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Selection {
    /// Only these last labels.
    pub tlds: Vec<String>,
    /// Only domains of these sources.
    pub sources: Vec<String>,
    /// No domain that is of these sources alone.
    pub except_sources: Vec<String>,
    /// Only what is inside the perimeter.
    pub perimeter: bool,
    /// Only what a source had so recently.
    pub seen_within: Limit<Span>,
    /// DNS must have been asked so recently.
    pub dns_within: Limit<Span>,
    /// What happens while it was not.
    pub unchecked: Unchecked,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            tlds: Vec::new(),
            sources: Vec::new(),
            except_sources: Vec::new(),
            perimeter: true,
            seen_within: Limit::None,
            dns_within: Limit::At(Span::secs(60 * 86_400)),
            unchecked: Unchecked::Wait,
        }
    }
}

/// What happens while DNS was not asked about all domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unchecked {
    /// The harvest waits.
    #[default]
    Wait,
    /// They are taken as they are.
    Take,
    /// They are left out, and counted.
    LeaveOut,
}

/// Some domains and URLs with settings of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DomainEntry {
    /// Domains, whole.
    pub names: Vec<String>,
    /// URLs to begin at.
    pub urls: Vec<String>,
    /// Instead of the harvest's.
    pub budget: Option<DomainBudget>,
    /// Instead of the harvest's.
    pub reach: Option<Reach>,
    /// Instead of the harvest's.
    pub depth: Option<Limit<u32>>,
    /// Beside the harvest's.
    pub traps: Vec<String>,
}

/// The settings that the domains of one job share.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainSettings {
    /// How much of each domain.
    pub budget: DomainBudget,
    /// The budget is that of an entry, not of the harvest.
    pub is_own: bool,
    /// How much around each seed.
    pub reach: Option<Reach>,
    /// Pages from the seed.
    pub depth: Option<Limit<u32>>,
    /// Regular expressions for URLs that are left out.
    pub traps: Vec<String>,
}

/// A harvest that makes sense.
#[derive(Clone, Debug)]
pub struct Harvest {
    /// Its name: that of the file without `.toml`.
    pub name: String,
    /// As it is written.
    pub definition: HarvestDefinition,
    /// When it is due.
    pub schedule: HarvestSchedule,
    /// The text of its template.
    pub template: String,
    /// The order of its jobs, without seeds.
    pub order: Box<Order>,
    /// Groups of settings; the first is the harvest's own.
    pub groups: Vec<DomainSettings>,
    /// For a selective one: the domains with their group and what to begin at.
    pub chosen: BTreeMap<String, ChosenDomain>,
}

/// A domain of a selective harvest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenDomain {
    /// Its settings.
    pub group: usize,
    /// All of it: its names are taken from the register.
    pub is_whole: bool,
    /// URLs.
    pub urls: Vec<String>,
}

/// What is asked when a definition is read.
pub struct DefinitionContext<'a> {
    /// The directory of the definitions.
    pub directory: &'a Path,
    /// The contact of the site, for orders without one.
    pub contact: &'a str,
    /// Traps for all harvests, and for domains.
    pub traps: &'a TrapFile,
}

/// No name of a harvest is longer: job names are made of it.
const NAME_BYTES: usize = 40;
/// A definition and a template are no longer.
pub(crate) const FILE_BYTES: u64 = 16 << 20;

/// Reads a definition; what is wrong with it comes back instead.
///
/// # Errors
/// Every problem, with its line.
pub fn read_harvest(
    name: &str,
    text: &str,
    context: &DefinitionContext<'_>,
) -> Result<Harvest, Vec<Problem>> {
    let file = format!("{name}.toml");
    let mut document = Document::parse_over(&HarvestDefinition::default(), text, &file);
    // Of what cannot be read it would be wrong to say that this or that is not set.
    if !document.is_toml {
        return Err(document.problems);
    }
    let mut reading = Reading {
        document: &mut document,
    };
    let harvest = reading.harvest(name, context);
    match harvest {
        Some(harvest) if document.problems.is_empty() => Ok(harvest),
        _ => {
            document.problems.sort_by_key(|problem| problem.line);
            Err(document.problems)
        }
    }
}

struct Reading<'a> {
    document: &'a mut Document<HarvestDefinition>,
}

impl Reading<'_> {
    fn error(&mut self, key: &str, message: impl AsRef<str>) {
        self.document.error(&[Key::Name(key)], message.as_ref());
    }

    fn harvest(&mut self, name: &str, context: &DefinitionContext<'_>) -> Option<Harvest> {
        let definition = self.document.settings.clone();
        if !is_harvest_name(name) {
            self.document.error(
                &[],
                &format!("{name:?} cannot name a harvest: use up to {NAME_BYTES} letters, digits, '_' and '.'"),
            );
        }
        let schedule = self.schedule(&definition);
        let (groups, chosen) = self.domains(&definition);
        match definition.kind {
            HarvestKind::Unsaid => self.error("kind", "is not set: broad or selective"),
            HarvestKind::Broad if !definition.domains.is_empty() => {
                self.error(
                    "domains",
                    "a broad harvest takes its domains from the register: use [select]",
                );
            }
            HarvestKind::Selective if chosen.is_empty() => {
                self.error(
                    "domains",
                    "there is none: add [[domains]] with names or urls",
                );
            }
            HarvestKind::Selective if self.document.says(&[Key::Name("select")]) => {
                self.error(
                    "select",
                    "a selective harvest names its domains: use [[domains]]",
                );
            }
            HarvestKind::Broad | HarvestKind::Selective => {}
        }
        let refresh = definition.refresh.iter();
        for (key, message) in refresh.flat_map(RefreshDefinition::faults) {
            self.document
                .error(&[Key::Name("refresh"), Key::Name(key)], &message);
        }
        let template = self.template(&definition, context);
        let (schedule, template) = (schedule?, template?);
        let mut harvest = Harvest {
            name: name.to_owned(),
            definition,
            schedule,
            template,
            order: Box::default(),
            groups,
            chosen,
        };
        self.order(&mut harvest, context);
        // Visits are counted by the run, not by the domain.
        if harvest.definition.refresh.is_none() {
            self.must_be_possible(&harvest);
        }
        Some(harvest)
    }

    fn schedule(&mut self, definition: &HarvestDefinition) -> Option<HarvestSchedule> {
        let zone = match definition.zone.as_str() {
            "" => TimeZone::UTC,
            zone => match zone_named(zone) {
                Some(zone) => zone,
                None => {
                    self.error(
                        "zone",
                        format!("{zone:?} is no time zone such as Europe/Paris"),
                    );
                    TimeZone::UTC
                }
            },
        };
        let from = self.moment("from", &definition.from, &zone);
        if definition.from.is_empty() {
            self.error("from", "is not set: when does it begin?");
        }
        let until = match definition.until.as_str() {
            "" => None,
            until => Some(self.moment("until", until, &zone)?),
        };
        let from = from?;
        if until.is_some_and(|until| until <= from) {
            self.error("until", "is not after 'from'");
        }
        let times = match (definition.schedule.as_str(), definition.every) {
            ("", None) => ScheduleTimes::Once,
            ("", Some(every)) if every.get().as_secs() < 60 => {
                self.error("every", "is less than a minute");
                return None;
            }
            ("", Some(every)) => ScheduleTimes::Every(every.get()),
            (text, None) => match CalendarExpression::parse(text) {
                Ok(calendar) => ScheduleTimes::Calendar(Box::new(calendar)),
                Err(fault) => {
                    self.error("schedule", fault);
                    return None;
                }
            },
            (_, Some(_)) => {
                self.error("every", "stands beside 'schedule': use one of them");
                return None;
            }
        };
        let except = self.exceptions(definition);
        let schedule = HarvestSchedule {
            times,
            from,
            until,
            except,
            zone,
        };
        let before = from.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        let key = if definition.schedule.is_empty() {
            "from"
        } else {
            "schedule"
        };
        if schedule.next_after(before).is_none() {
            self.error(key, "there is no run at all from 'from' to 'until'");
        }
        // A harvest that nobody ends is forgotten, and goes on.
        let interval = schedule.shortest_interval(before);
        let is_often =
            interval.is_some_and(|between| between < jiff::SignedDuration::from_hours(7 * 24));
        if is_often && until.is_none() {
            let key = if definition.schedule.is_empty() {
                "every"
            } else {
                "schedule"
            };
            self.error(
                key,
                "it runs more often than once a week and has no end: set 'until'",
            );
        }
        Some(schedule)
    }

    fn exceptions(&mut self, definition: &HarvestDefinition) -> Vec<(Date, Date)> {
        let mut found = Vec::new();
        for (at, text) in definition.except.iter().enumerate() {
            let (first, last) = text.split_once("..").unwrap_or((text, text));
            match (first.trim().parse::<Date>(), last.trim().parse::<Date>()) {
                (Ok(first), Ok(last)) if first <= last => found.push((first, last)),
                _ => {
                    let message = format!(
                        "{text:?} is no day such as 2026-12-25, nor days such as 2026-12-24..2027-01-02"
                    );
                    self.document
                        .error(&[Key::Name("except"), Key::Index(at)], &message);
                }
            }
        }
        found
    }

    /// Reads a time: with a zone of its own, or a day with or without the time of the clock.
    fn moment(&mut self, key: &str, text: &str, zone: &TimeZone) -> Option<Timestamp> {
        if text.is_empty() {
            return None;
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Some(time);
        }
        let civil = text.parse::<jiff::civil::DateTime>();
        let time = civil.ok().and_then(|time| time.to_zoned(zone.clone()).ok());
        if time.is_none() {
            self.error(
                key,
                format!("{text:?} is no time such as 2026-11-20 or 2026-11-20T06:00:00Z"),
            );
        }
        time.map(|time| time.timestamp())
    }

    fn domains(
        &mut self,
        definition: &HarvestDefinition,
    ) -> (Vec<DomainSettings>, BTreeMap<String, ChosenDomain>) {
        let mut groups = vec![DomainSettings {
            budget: definition.budget,
            is_own: false,
            reach: definition.reach,
            depth: definition.depth,
            traps: Vec::new(),
        }];
        let mut chosen: BTreeMap<String, ChosenDomain> = BTreeMap::new();
        let mut normaliser = Normaliser::new();
        for (at, entry) in definition.domains.iter().enumerate() {
            let settings = DomainSettings {
                budget: entry.budget.unwrap_or(definition.budget),
                is_own: entry.budget.is_some(),
                reach: entry.reach.or(definition.reach),
                depth: entry.depth.or(definition.depth),
                traps: entry.traps.clone(),
            };
            let group = groups.iter().position(|known| *known == settings);
            let group = group.unwrap_or_else(|| {
                groups.push(settings);
                groups.len() - 1
            });
            let here = |key, number| {
                [
                    Key::Name("domains"),
                    Key::Index(at),
                    Key::Name(key),
                    Key::Index(number),
                ]
            };
            if entry.names.is_empty() && entry.urls.is_empty() {
                self.document.error(
                    &[Key::Name("domains"), Key::Index(at)],
                    "has neither names nor urls",
                );
            }
            for (number, name) in entry.names.iter().enumerate() {
                let fault = match normaliser.read(name.as_bytes()) {
                    Err(rejection) => {
                        Some(format!("{name:?} names no domain: {}", rejection.reason))
                    }
                    Ok(found)
                        if found.flags.has(NameFlags::PATH) || found.flags.has(NameFlags::PORT) =>
                    {
                        Some(format!("{name:?} is a URL: put it into urls"))
                    }
                    Ok(found) => {
                        let site = Registered::of(found.name).site;
                        match site == found.name {
                            false => Some(format!(
                                "{name:?} is a part of {site}: put http://{}/ into urls",
                                found.name
                            )),
                            true => put(&mut chosen, site, group, None).err(),
                        }
                    }
                };
                if let Some(fault) = fault {
                    self.document.error(&here("names", number), &fault);
                }
            }
            for (number, url) in entry.urls.iter().enumerate() {
                if let Err(fault) = put_url(&mut chosen, url, group) {
                    self.document.error(&here("urls", number), &fault);
                }
            }
        }
        (groups, chosen)
    }

    fn template(
        &mut self,
        definition: &HarvestDefinition,
        context: &DefinitionContext<'_>,
    ) -> Option<String> {
        if definition.template.is_empty() {
            return Some(String::new());
        }
        let relative = Path::new(&definition.template);
        let is_below = relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            self.error(
                "template",
                "is no path below the directory of the definitions",
            );
            return None;
        }
        let path = context.directory.join(relative);
        match read_small(&path) {
            Ok(text) => Some(text),
            Err(error) => {
                self.error(
                    "template",
                    format!("cannot read {}: {error}", path.display()),
                );
                None
            }
        }
    }

    /// Makes an order as its jobs will have it, and finds what is wrong with that.
    fn order(&mut self, harvest: &mut Harvest, context: &DefinitionContext<'_>) {
        for group in 0..harvest.groups.len() {
            let job = JobOrder {
                harvest,
                group,
                job: "trial",
                traps: context.traps,
                domain_traps: &[],
                seed_file: None,
            };
            let text = match order_text(&job) {
                Ok(text) => text,
                Err(fault) => {
                    self.error("template", fault);
                    return;
                }
            };
            match Order::parse(&text, "the order of its jobs", context.contact) {
                Ok(read) if group == 0 => *harvest.order = read.order,
                Ok(_) => {}
                Err(error) => {
                    for line in error.to_string().lines().take(10) {
                        self.document.error(&[], line);
                    }
                    return;
                }
            }
        }
    }

    /// Refuses what takes longer than the time until the next run.
    fn must_be_possible(&mut self, harvest: &Harvest) {
        let before = harvest
            .schedule
            .from
            .checked_sub(jiff::SignedDuration::from_secs(1));
        let Some(interval) = before
            .ok()
            .and_then(|before| harvest.schedule.shortest_interval(before))
        else {
            return;
        };
        let delay = crate::forecast::delay_of(&harvest.order.manners);
        for (group, settings) in harvest.groups.iter().enumerate() {
            let is_used = harvest.definition.kind == HarvestKind::Broad
                || harvest.chosen.values().any(|chosen| chosen.group == group);
            if !is_used || settings.budget.time.get().is_some() {
                continue;
            }
            let is_shallow = settings
                .depth
                .is_some_and(|depth| depth.get().is_some_and(|depth| depth <= 3))
                || matches!(settings.reach, Some(Reach::Page));
            let message = match settings.budget.urls.get() {
                Some(urls) => {
                    let needed = delay.saturating_mul(u32::try_from(urls).unwrap_or(u32::MAX));
                    let interval = interval.unsigned_abs();
                    (needed > interval && !is_shallow).then(|| {
                        format!(
                            "{urls} URLs of one domain take {} at {} between two requests, and the next run comes after {}",
                            Span(rounded(needed)),
                            Span(delay),
                            Span(rounded(interval))
                        )
                    })
                }
                None => {
                    let is_often = interval < jiff::SignedDuration::from_hours(28 * 24);
                    (is_often && !is_shallow).then(|| {
                        format!(
                            "whole domains without a limit of URLs or time cannot be done every {}: set budget.urls, budget.time, or a depth of at most 3",
                            Span(rounded(interval.unsigned_abs()))
                        )
                    })
                }
            };
            if let Some(message) = message {
                self.error("budget", message);
                return;
            }
        }
    }
}

/// Whole hours of what is long, whole seconds of what is short.
fn rounded(time: std::time::Duration) -> std::time::Duration {
    let step = if time.as_secs() >= 7200 { 3600 } else { 1 };
    std::time::Duration::from_secs(time.as_secs() / step * step)
}

fn put(
    chosen: &mut BTreeMap<String, ChosenDomain>,
    site: &str,
    group: usize,
    url: Option<String>,
) -> Result<(), String> {
    let known = chosen
        .entry(site.to_owned())
        .or_insert_with(|| ChosenDomain {
            group,
            ..ChosenDomain::default()
        });
    if known.group != group {
        return Err(format!("{site} stands in an entry with other settings too"));
    }
    match url {
        None if known.is_whole => Err(format!("{site} stands there twice")),
        None => {
            known.is_whole = true;
            Ok(())
        }
        Some(url) if known.urls.contains(&url) => Err(format!("{url} stands there twice")),
        Some(url) => {
            known.urls.push(url);
            Ok(())
        }
    }
}

fn put_url(
    chosen: &mut BTreeMap<String, ChosenDomain>,
    text: &str,
    group: usize,
) -> Result<(), String> {
    let url = url::Url::parse(text).map_err(|error| format!("{text:?} is no URL: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(format!("{text:?} is no URL of the web"));
    }
    let host = url.host_str().unwrap_or_default();
    let mut normaliser = Normaliser::new();
    let found = normaliser.read(host.as_bytes());
    let found =
        found.map_err(|rejection| format!("{text:?} names no domain: {}", rejection.reason))?;
    let site = Registered::of(found.name).site.to_owned();
    put(chosen, &site, group, Some(url.to_string()))
}

/// Tells whether a harvest can be called so: the name is part of file names.
pub(crate) fn is_harvest_name(name: &str) -> bool {
    name.len() <= NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
}

/// Reads a file that a person wrote.
pub(crate) fn read_small(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    // Opening a pipe waits for whoever writes into it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("no regular file"));
    }
    let file = std::fs::File::open(path)?;
    let read = file.take(FILE_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > FILE_BYTES {
        return Err(std::io::Error::other("longer than 16 MiB"));
    }
    Ok(text)
}
