//! The URLs that a run may visit: what is known of changes and of ranks, joined by key, with the seeds of the harvest among them.
//!
//! Both lists are in the order of their keys and are read once from end to end; nothing is kept but the records at hand. Read again, the same lists give
//! the same candidates in the same order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ecluse_changes::{
    ArchiveTime, ChangeRecord, ChangesError, PageChanges, PagePattern, PatternOf, PatternSums,
    RecordReader, SitePattern, site_of,
};
use ecluse_links::{RANKS_FILE, RankReader};
use ecluse_names::{Registered, key_of, name_of};
use ecluse_register::RegisterReader;
use ecluse_scope::Reach;
use ecluse_stage::Failure;
use regex::RegexSet;

use crate::definition::HarvestKind;
use crate::hours::{HoursKnown, PageHours, SiteShape};
use crate::planning::Planning;
use crate::record_view::{RecordView, line_of};
use crate::traps::TrapFile;
use crate::visits::VisitReason;

/// The rate of a page of which nothing is known: that of one change and one time without of half a day.
pub(crate) const UNKNOWN_RATE: f64 = 1.386_294;
const DAY: f64 = 86_400.0;

/// Where candidates come from.
#[derive(Debug, Clone)]
pub(crate) struct CandidateLists {
    /// The directory of a generation of ranks.
    pub(crate) links: Option<PathBuf>,
    /// The directory of a generation of changes.
    pub(crate) changes: Option<PathBuf>,
    /// Patterns of the day are wanted.
    pub(crate) with_hours: bool,
}

/// A URL that may be visited.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) surt: String,
    pub(crate) url: String,
    /// The registered domain.
    pub(crate) domain: Rc<str>,
    /// Its settings.
    pub(crate) group: usize,
    pub(crate) reason: VisitReason,
    /// The first of its site.
    pub(crate) begins_site: bool,
    /// The server said that it is gone.
    pub(crate) is_gone: bool,
    /// PageRank; 0 where it is not known.
    pub(crate) rank: f32,
    /// Relevance to the perimeter; 0 where it is not known.
    pub(crate) relevance: f32,
    /// Changes a day.
    pub(crate) rate: f64,
    /// When it was last captured.
    pub(crate) last: Option<ArchiveTime>,
    /// What is known of its changes.
    pub(crate) page: Option<PageChanges>,
    /// What it brings by the hour, where that is wanted.
    pub(crate) hours: Option<HoursKnown>,
}

impl Candidate {
    /// Returns how many days ago it was last captured; 0 where it never was.
    pub(crate) fn age_days(&self, now: i64) -> f64 {
        self.last
            .map_or(0.0, |last| (now - last.seconds()) as f64 / DAY)
    }

    /// Tells whether a change was announced since it was last captured.
    pub(crate) fn is_announced(&self) -> bool {
        let page = self.page.as_ref();
        page.is_some_and(|page| page.signal.is_some_and(|(_, time)| time > page.last))
    }
}

/// A line of the ranks, kept.
struct RankedUrl {
    surt: String,
    url: String,
    rank: f32,
    relevance: f32,
    fetched: Option<ArchiveTime>,
}

/// A seed of the harvest.
struct HarvestSeed {
    surt: String,
    url: String,
    domain: Rc<str>,
    group: usize,
}

/// Reads candidates one by one.
pub(crate) struct CandidateReader<'a> {
    planning: &'a Planning<'a>,
    lists: &'a CandidateLists,
    gate: DomainGate<'a>,
    pages: Option<RecordReader<PageChanges>>,
    page: Option<PageChanges>,
    ranks: Option<RankReader>,
    ranked: Option<RankedUrl>,
    patterns: Option<RecordReader<PagePattern>>,
    sites: Option<RecordReader<SitePattern>>,
    /// The site whose shape was asked for last, and its shape.
    site: (String, Option<Rc<SiteShape>>),
    seeds: SeedStream,
    seed: Option<HarvestSeed>,
    last_site: String,
    /// What was left out, by reason.
    pub(crate) left_out: BTreeMap<&'static str, u64>,
    count: u64,
}

enum SeedStream {
    /// Those that a definition names, from last to first.
    Named(Vec<HarvestSeed>),
    /// Those of the register.
    Register(Box<Option<RegisterReader>>),
}

impl<'a> CandidateReader<'a> {
    pub(crate) fn open(
        planning: &'a Planning<'a>,
        traps: &'a TrapFile,
        lists: &'a CandidateLists,
    ) -> Result<Self, Failure> {
        let is_broad = planning.harvest.definition.kind == HarvestKind::Broad;
        let seeds = match is_broad {
            true => {
                let number = planning.register.current().map_err(Failure::halt)?;
                let open = |number| planning.register.read(number).map_err(Failure::halt);
                SeedStream::Register(Box::new(number.map(open).transpose()?))
            }
            false => SeedStream::Named(named_seeds(planning)?),
        };
        let mut reader = Self {
            planning,
            lists,
            gate: DomainGate::new(planning, traps)?,
            pages: open_list(lists.changes.as_deref())?,
            page: None,
            ranks: match &lists.links {
                Some(path) => {
                    Some(RankReader::open(&path.join(RANKS_FILE)).map_err(Failure::halt)?)
                }
                None => None,
            },
            ranked: None,
            patterns: match lists.with_hours {
                true => open_list(lists.changes.as_deref())?,
                false => None,
            },
            sites: match lists.with_hours {
                true => open_list(lists.changes.as_deref())?,
                false => None,
            },
            site: (String::new(), None),
            seeds,
            seed: None,
            last_site: String::new(),
            left_out: BTreeMap::new(),
            count: 0,
        };
        reader.next_page()?;
        reader.next_ranked()?;
        reader.next_seed()?;
        Ok(reader)
    }

    /// Returns the next candidate; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Candidate>, Failure> {
        loop {
            self.count += 1;
            self.planning.look(self.count)?;
            let keys = [
                self.page.as_ref().map(|page| page.surt.as_str()),
                self.ranked.as_ref().map(|ranked| ranked.surt.as_str()),
                self.seed.as_ref().map(|seed| seed.surt.as_str()),
            ];
            let Some(key) = keys.into_iter().flatten().min() else {
                return Ok(None);
            };
            let [has_page, has_rank, has_seed] = keys.map(|other| other == Some(key));
            let seed = match has_seed {
                true => self.take_seed()?,
                false => None,
            };
            let page = match has_page {
                true => self.take_page()?,
                false => None,
            };
            let ranked = match has_rank {
                true => self.take_ranked()?,
                false => None,
            };
            if let Some(candidate) = self.judge(seed, page, ranked)? {
                return Ok(Some(candidate));
            }
        }
    }

    fn judge(
        &mut self,
        seed: Option<HarvestSeed>,
        page: Option<PageChanges>,
        ranked: Option<RankedUrl>,
    ) -> Result<Option<Candidate>, Failure> {
        let (surt, url) = match (&page, &ranked, &seed) {
            (Some(page), _, _) => (&page.surt, &page.url),
            (_, Some(ranked), _) => (&ranked.surt, &ranked.url),
            (_, _, Some(seed)) => (&seed.surt, &seed.url),
            (None, None, None) => return Ok(None),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Ok(None);
        }
        if let Some(seed) = &seed {
            self.gate.current = Some((Rc::clone(&seed.domain), seed.group));
        }
        let Some((domain, group)) = self.gate.admits(surt)? else {
            return Ok(None);
        };
        // Without changes, ranks tell when a URL was fetched; beside them, what has no line there is no document.
        let fetched = ranked.as_ref().and_then(|ranked| ranked.fetched);
        let last = match &page {
            Some(page) => Some(page.last),
            None if self.lists.changes.is_none() => fetched,
            None if fetched.is_some() => return self.leave_out("no documents"),
            None => None,
        };
        let is_seed = seed.is_some();
        let (surt, url) = (surt.clone(), url.clone());
        if !is_seed && self.gate.is_trap(&url, &domain, group)? {
            return self.leave_out("in a trap");
        }
        let reason = match last {
            Some(_) => VisitReason::Refresh,
            None if is_seed => VisitReason::Perimeter,
            None => VisitReason::Discovery,
        };
        let relevance = ranked.as_ref().map_or(0.0, |ranked| ranked.relevance);
        if reason == VisitReason::Discovery && relevance < 0.0 {
            return self.leave_out("irrelevant");
        }
        let status = page.as_ref().and_then(|page| page.status);
        let rate = page.as_ref().map_or(UNKNOWN_RATE, |page| page.rate);
        let hours = match (self.lists.with_hours, &page) {
            (true, Some(page)) => Some(self.hours_of(page)?),
            (_, _) => None,
        };
        let site = site_of(&surt);
        let begins_site = self.last_site != site;
        if begins_site {
            self.last_site.clear();
            self.last_site.push_str(site);
        }
        Ok(Some(Candidate {
            domain,
            group,
            reason,
            begins_site,
            is_gone: status.is_some_and(|status| status >= 400),
            rank: ranked.as_ref().map_or(0.0, |ranked| ranked.rank),
            relevance,
            rate,
            last,
            hours,
            page,
            surt,
            url,
        }))
    }

    fn leave_out(&mut self, reason: &'static str) -> Result<Option<Candidate>, Failure> {
        *self.left_out.entry(reason).or_default() += 1;
        Ok(None)
    }

    /// What a page brings by the hour.
    fn hours_of(&mut self, page: &PageChanges) -> Result<HoursKnown, Failure> {
        let (rate, weight) = (page.rate, page.change_weight);
        let found = match page.pattern {
            Some(PatternOf::Page) => self
                .own_pattern(&page.surt)?
                .as_ref()
                .and_then(PageHours::own)
                .map(HoursKnown::Own),
            Some(PatternOf::Site) => self
                .site_shape(site_of(&page.surt))?
                .map(|shape| HoursKnown::OfSite(shape, rate, weight)),
            None => None,
        };
        Ok(found.unwrap_or(HoursKnown::Even(rate, weight)))
    }

    fn own_pattern(&mut self, surt: &str) -> Result<Option<PatternSums>, Failure> {
        let Some(patterns) = &mut self.patterns else {
            return Ok(None);
        };
        patterns.skip_below(surt).map_err(Failure::halt)?;
        if patterns.peek_key().map_err(Failure::halt)? != Some(surt) {
            return Ok(None);
        }
        let pattern = patterns.next_record().map_err(Failure::halt)?;
        Ok(pattern.map(|pattern| pattern.sums))
    }

    fn site_shape(&mut self, site: &str) -> Result<Option<Rc<SiteShape>>, Failure> {
        let Some(sites) = &mut self.sites else {
            return Ok(None);
        };
        if self.site.0 != site {
            sites.skip_below(site).map_err(Failure::halt)?;
            let pattern = match sites.peek_key().map_err(Failure::halt)? == Some(site) {
                true => sites.next_record().map_err(Failure::halt)?,
                false => None,
            };
            let shape = pattern.and_then(|pattern: SitePattern| SiteShape::of(&pattern.sums));
            self.site = (site.to_owned(), shape.map(Rc::new));
        }
        Ok(self.site.1.clone())
    }

    fn take_page(&mut self) -> Result<Option<PageChanges>, Failure> {
        let taken = self.page.take();
        self.next_page()?;
        Ok(taken)
    }

    fn next_page(&mut self) -> Result<(), Failure> {
        if let Some(pages) = &mut self.pages {
            self.page = pages.next_record().map_err(Failure::halt)?;
        }
        Ok(())
    }

    fn take_ranked(&mut self) -> Result<Option<RankedUrl>, Failure> {
        let taken = self.ranked.take();
        self.next_ranked()?;
        Ok(taken)
    }

    fn next_ranked(&mut self) -> Result<(), Failure> {
        let Some(ranks) = &mut self.ranks else {
            return Ok(());
        };
        let record = ranks.next_record().map_err(Failure::halt)?;
        self.ranked = record.map(|record| RankedUrl {
            surt: record.surt.to_owned(),
            url: record.url.to_owned(),
            rank: record.rank,
            relevance: record.relevance,
            fetched: record
                .fetched
                .and_then(|time| ArchiveTime::parse(time.as_str())),
        });
        Ok(())
    }

    fn take_seed(&mut self) -> Result<Option<HarvestSeed>, Failure> {
        let taken = self.seed.take();
        self.next_seed()?;
        Ok(taken)
    }

    fn next_seed(&mut self) -> Result<(), Failure> {
        self.seed = match &mut self.seeds {
            SeedStream::Named(seeds) => seeds.pop(),
            SeedStream::Register(reader) => loop {
                let Some(reader) = reader.as_mut() else {
                    break None;
                };
                let Some(line) = reader.next_line().map_err(Failure::halt)? else {
                    break None;
                };
                let record = RecordView::read(line.text)
                    .ok_or_else(|| crate::planning::damaged(line.key))?;
                if let Some(reason) = self.planning.reason_now(&record) {
                    *self.left_out.entry(reason).or_default() += 1;
                    continue;
                }
                break Some(HarvestSeed {
                    surt: format!("{})/", line.key),
                    url: format!("http://{}/", record.domain),
                    domain: record.domain.into(),
                    group: 0,
                });
            },
        };
        Ok(())
    }
}

fn open_list<Record: ChangeRecord>(
    directory: Option<&Path>,
) -> Result<Option<RecordReader<Record>>, Failure> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    match RecordReader::open(directory) {
        Ok(reader) => Ok(Some(reader)),
        // A generation made before there was such a list.
        Err(ChangesError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(Failure::halt(error)),
    }
}

/// The seeds that a definition names, from last to first: those of whole domains come from the register.
fn named_seeds(planning: &Planning<'_>) -> Result<Vec<HarvestSeed>, Failure> {
    let mut seeds = Vec::new();
    for (site, chosen) in &planning.harvest.chosen {
        let found = planning.register.lookup(site).map_err(Failure::halt)?;
        let text = found.as_ref().and_then(line_of);
        let record = text.as_deref().and_then(RecordView::read);
        if record.as_ref().and_then(RecordView::forced) == Some(false) {
            continue;
        }
        let domain: Rc<str> = site.as_str().into();
        let mut urls = chosen.urls.clone();
        if chosen.is_whole {
            match &record {
                Some(record) => urls.extend(seed_urls(record)),
                None => urls.push(format!("http://{site}/")),
            }
        }
        for url in urls {
            let mut key = Vec::new();
            ecluse_surt::surt_or_url(url.as_bytes(), &mut key);
            seeds.push(HarvestSeed {
                surt: String::from_utf8_lossy(&key).into_owned(),
                url,
                domain: Rc::clone(&domain),
                group: chosen.group,
            });
        }
    }
    seeds.sort_by(|one, other| (&other.surt, &other.url).cmp(&(&one.surt, &one.url)));
    // With `www.` and without are one key: the first is asked.
    seeds.reverse();
    seeds.dedup_by(|one, other| one.surt == other.surt);
    seeds.reverse();
    Ok(seeds)
}

/// Where a domain of the register begins, as URLs.
fn seed_urls(record: &RecordView<'_>) -> Vec<String> {
    let mut line = String::new();
    crate::planning::push_seeds(&mut line, record);
    line.split(' ')
        .filter(|seed| !seed.is_empty())
        .map(|seed| match seed.contains("://") {
            true => seed.to_owned(),
            false => format!("http://{seed}/"),
        })
        .collect()
}

/// Which domains and URLs a harvest takes.
struct DomainGate<'a> {
    planning: &'a Planning<'a>,
    traps: &'a TrapFile,
    /// Of the harvest: everywhere.
    everywhere: RegexSet,
    /// Of its groups.
    of_groups: Vec<RegexSet>,
    /// Of the domain at hand.
    of_domain: (Rc<str>, RegexSet),
    /// The domain of the seed that came last.
    current: Option<(Rc<str>, usize)>,
    /// The host that was looked at last, and what came of it.
    host: String,
    admitted: Option<AdmittedDomain>,
}

#[derive(Clone)]
struct AdmittedDomain {
    domain: Rc<str>,
    group: usize,
    /// What its keys must be or begin with; all of the domain where there is nothing.
    keys: Rc<[ReachKey]>,
}

enum ReachKey {
    Exactly(String),
    Below(String),
}

impl<'a> DomainGate<'a> {
    fn new(planning: &'a Planning<'a>, traps: &'a TrapFile) -> Result<Self, Failure> {
        let harvest = planning.harvest;
        let all = traps.everywhere.iter().chain(&harvest.definition.traps);
        let of_groups = harvest.groups.iter();
        let of_groups = of_groups.map(|group| regex_set(group.traps.iter()));
        Ok(Self {
            planning,
            traps,
            everywhere: regex_set(all)?,
            of_groups: of_groups.collect::<Result<_, Failure>>()?,
            of_domain: ("".into(), RegexSet::empty()),
            current: None,
            host: String::new(),
            admitted: None,
        })
    }

    fn admits(&mut self, surt: &str) -> Result<Option<(Rc<str>, usize)>, Failure> {
        let host = site_of(surt);
        if self.host != host {
            self.host.clear();
            self.host.push_str(host);
            self.admitted = self.admitted_domain(host)?;
        }
        let Some(admitted) = &self.admitted else {
            return Ok(None);
        };
        let is_within = |key: &ReachKey| match key {
            ReachKey::Exactly(key) => surt == key,
            ReachKey::Below(key) => surt.starts_with(key.as_str()),
        };
        let fits = admitted.keys.is_empty() || admitted.keys.iter().any(is_within);
        Ok(fits.then(|| (Rc::clone(&admitted.domain), admitted.group)))
    }

    fn admitted_domain(&self, host: &str) -> Result<Option<AdmittedDomain>, Failure> {
        let key = host.split([':', ')']).next().unwrap_or(host);
        let mut name = Vec::new();
        name_of(key.as_bytes(), &mut name);
        let Ok(name) = String::from_utf8(name) else {
            return Ok(None);
        };
        let domain = Registered::of(&name).site;
        let harvest = self.planning.harvest;
        if harvest.definition.kind == HarvestKind::Broad {
            let whole = |domain: Rc<str>, group| AdmittedDomain {
                domain,
                group,
                keys: Rc::new([]),
            };
            if let Some((current, group)) = self
                .current
                .as_ref()
                .filter(|(current, _)| **current == *domain)
            {
                return Ok(Some(whole(Rc::clone(current), *group)));
            }
            // A host with a port does not come just behind its domain.
            if !host.contains(':') {
                return Ok(None);
            }
            let found = self
                .planning
                .register
                .lookup(domain)
                .map_err(Failure::halt)?;
            let text = found.as_ref().and_then(line_of);
            let record = text.as_deref().and_then(RecordView::read);
            let is_taken = record.is_some_and(|record| self.planning.reason_now(&record).is_none());
            return Ok(is_taken.then(|| whole(domain.into(), 0)));
        }
        let Some(chosen) = harvest.chosen.get(domain) else {
            return Ok(None);
        };
        let found = self
            .planning
            .register
            .lookup(domain)
            .map_err(Failure::halt)?;
        let text = found.as_ref().and_then(line_of);
        let record = text.as_deref().and_then(RecordView::read);
        if record.as_ref().and_then(RecordView::forced) == Some(false) {
            return Ok(None);
        }
        let reach = harvest.groups[chosen.group].reach.unwrap_or(Reach::Domain);
        let keys: Vec<ReachKey> = match chosen.is_whole {
            true => Vec::new(),
            false => chosen
                .urls
                .iter()
                .map(|url| reach_key(url, domain, reach))
                .collect(),
        };
        Ok(Some(AdmittedDomain {
            domain: domain.into(),
            group: chosen.group,
            keys: keys.into(),
        }))
    }

    fn is_trap(&mut self, url: &str, domain: &Rc<str>, group: usize) -> Result<bool, Failure> {
        if self.everywhere.is_match(url) || self.of_groups[group].is_match(url) {
            return Ok(true);
        }
        if self.of_domain.0 != *domain {
            let traps = self.traps.domains.get(&**domain).into_iter().flatten();
            self.of_domain = (Rc::clone(domain), regex_set(traps)?);
        }
        Ok(self.of_domain.1.is_match(url))
    }
}

fn regex_set<'t>(expressions: impl Iterator<Item = &'t String>) -> Result<RegexSet, Failure> {
    RegexSet::new(expressions).map_err(Failure::hold)
}

/// What the key of a URL is within so much around a seed.
fn reach_key(url: &str, domain: &str, reach: Reach) -> ReachKey {
    let mut key = Vec::new();
    ecluse_surt::surt_or_url(url.as_bytes(), &mut key);
    let key = String::from_utf8_lossy(&key).into_owned();
    match reach {
        Reach::Page => ReachKey::Exactly(key),
        Reach::Path => {
            let path = key.split('?').next().unwrap_or(&key);
            let end = path.rfind('/').map_or(path.len(), |at| at + 1);
            ReachKey::Below(key[..end].to_owned())
        }
        Reach::Host => ReachKey::Below(site_of(&key).to_owned()),
        Reach::Domain => ReachKey::Below(key_of(domain)),
    }
}
