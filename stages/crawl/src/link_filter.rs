//! What becomes of a link: whether it belongs to the job, by which rule, and where it waits.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use ecluse_extract::{Hop, Link};
use ecluse_frontier::{Candidate, Frontier, Item, ItemId, Precedence};
use ecluse_scope::{Order, Scope, ScopeVerdict, Seed, queue_of};
use ecluse_stage::Failure;
use url::Url;

use crate::engine::blame;
use crate::forced::{BLOCKED, FORCED_OUT, ForcedFile};
use crate::guesses::Guesses;
use crate::in_force::InForce;
use crate::job::Job;
use crate::notes;
use crate::online::{OnlineCash, WaitingPlace};
use crate::readiness::Dropped;

/// URLs that were queued lately and need no second look.
const RECENT: usize = 50_000;
/// Bytes of these at most.
const LONGEST_RECENT: usize = 200;
/// Heritrix's status for what was in the scope once.
const OUT_OF_SCOPE: i32 = -5000;

/// Decides about links.
pub(crate) struct LinkFilter {
    pub(crate) scope: Scope,
    key: Vec<u8>,
    surt: Vec<u8>,
    hops: String,
    recent: HashSet<Box<str>>,
    older: HashSet<Box<str>>,
    /// Links that were not followed, by the rule that decided.
    pub(crate) rejected: BTreeMap<String, u64>,
    /// What became of guesses.
    pub(crate) guesses: Guesses,
    /// On-line importance, where it is asked for.
    pub(crate) online: OnlineCash,
    /// What librarians force out, whatever the scope says.
    pub(crate) forced: ForcedFile,
}

/// A page that links were found on.
#[derive(Clone, Copy)]
pub(crate) struct LinkingPage<'a> {
    pub(crate) item: &'a Item,
    /// Which of its links it asks not to follow, where that is heeded.
    pub(crate) unfollowed: Unfollowed,
    /// Whether it came with a cookie that is kept.
    pub(crate) sets_cookie: bool,
    /// What each of its links gets of its cash; none where importance is not asked for.
    pub(crate) part: Option<f64>,
}

/// Which links of a page are not followed by its own wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfollowed {
    None,
    /// Those it says so of.
    Marked,
    All,
}

impl LinkFilter {
    /// Compiles the rules of an order. What belongs to many seeds is kept in nameless files of `spool`.
    ///
    /// # Errors
    /// With every rule that makes no sense; when a seed file cannot be read.
    pub(crate) fn new(
        order: &Order,
        job: &Job,
        frontier: &Frontier,
        year: u32,
        spool: &Path,
    ) -> Result<Self, Failure> {
        let mut rules = order.scope.clone();
        // A seed file may widen the scope, as Heritrix's does.
        rules
            .accept_surts
            .extend_from_slice(&job.seeds.accept_surts);
        let mut scope = Scope::compile(&rules, &[], year).map_err(Failure::hold)?;
        scope.keep_seeds_in(spool);
        let mut added = Ok(());
        let mut add = |seed: &Seed| {
            if added.is_ok() {
                added = scope.add_seed(seed);
            }
            true
        };
        job.each_seed(&mut |seed| add(&seed))?;
        // Where seeds were seen to lead to.
        let walked = frontier.notes(notes::SEED_TARGET, |_, value| {
            notes::decode_target(value).is_none_or(|seed| add(&seed))
        });
        walked.map_err(blame)?;
        added?;
        scope.gather_seeds()?;
        Ok(Self {
            scope,
            key: Vec::new(),
            surt: Vec::new(),
            hops: String::new(),
            recent: HashSet::new(),
            older: HashSet::new(),
            rejected: BTreeMap::new(),
            guesses: Guesses::default(),
            online: OnlineCash::default(),
            forced: ForcedFile::default(),
        })
    }

    /// Queues a link of a page if it belongs to the job and is not known.
    ///
    /// # Errors
    /// When the frontier or the scope fails.
    pub(crate) fn offer(
        &mut self,
        in_force: &InForce,
        frontier: &mut Frontier,
        linking: LinkingPage<'_>,
        link: &Link,
    ) -> Result<bool, Failure> {
        // Where a page redirects to may be where it was found, or itself.
        if link.hop != Hop::Redirect && linking.part.is_none() && self.is_recent(&link.url) {
            return Ok(false);
        }
        let unfollowed = match linking.unfollowed {
            Unfollowed::None => false,
            Unfollowed::Marked => link.nofollow,
            Unfollowed::All => true,
        };
        if unfollowed && link.hop == Hop::Navigation {
            count(&mut self.rejected, "nofollow");
            return Ok(false);
        }
        let page = linking.item;
        let Ok(url) = Url::parse(&link.url) else {
            return Ok(false);
        };
        if self.forced.out(&url).is_some() {
            count(&mut self.rejected, FORCED_OUT);
            return Ok(false);
        }
        self.hops.clear();
        self.hops.push_str(&page.hops);
        self.hops.push(link.hop.letter());
        self.surt.clear();
        ecluse_surt::surt_or_url(url.as_str().as_bytes(), &mut self.surt);
        let candidate = ecluse_scope::CandidateUrl {
            url: url.as_str(),
            surt: &self.surt,
            hops: &self.hops,
            via: Some(&page.url),
            tag: Some(&page.source),
            size: None,
            framed: link.framed,
        };
        let decision = self.scope.decide(&candidate)?;
        if decision.verdict == ScopeVerdict::Reject {
            count(&mut self.rejected, decision.rule);
            return Ok(false);
        }
        let precedence = match link.hop {
            Hop::Redirect => Precedence::REDIRECT,
            _ if link.requisite => Precedence::REQUISITE,
            Hop::Embed | Hop::Inferred => Precedence::REQUISITE,
            Hop::Navigation | Hop::Speculative | Hop::Manifest => Precedence::NORMAL,
        };
        let mut paid = None;
        let precedence = match linking.part {
            Some(part) if precedence == Precedence::NORMAL => {
                let key = notes::key_of(&in_force.order.same_url.key(&url));
                let queue = queue_of(in_force.order.manners.queue_by, &url);
                let received = self.online.receive(frontier, &key, &queue, part);
                paid = Some(key);
                received.map_err(blame)?
            }
            _ => precedence,
        };
        let hops = std::mem::take(&mut self.hops);
        let found = FoundBy {
            via: &page.url,
            hops: &hops,
            source: &page.source,
            precedence,
            force: link.hop == Hop::Redirect
                && (leads_to_its_like(&in_force.order, page, &url)
                    || linking.sets_cookie && leads_back(page, &url)),
        };
        let added = self.queue(in_force, frontier, &url, &found);
        self.hops = hops;
        self.note_recent(&link.url);
        let added = added.map_err(blame)?;
        if let (Some(key), Some(item)) = (paid, added) {
            let place = WaitingPlace { precedence, item };
            let noted = self.online.waits_at(frontier, &key, place);
            noted.map_err(blame)?;
        }
        Ok(added.is_some())
    }

    /// Says why a URL that waits is dropped: librarians force it out, it is a guess of a kind that has led nowhere since, or it was queued under other
    /// rules and does not belong to the job by those in force. Seeds and prerequisites always
    /// do.
    ///
    /// # Errors
    /// When the scope cannot be asked.
    pub(crate) fn drops(
        &mut self,
        order: &Order,
        item: &Item,
        is_changed: bool,
    ) -> Result<Option<Dropped>, Failure> {
        let with = |status, why| Ok(Some(Dropped { status, why }));
        if self.forced.is_out(&item.url) {
            return with(BLOCKED, FORCED_OUT.to_owned());
        }
        if self
            .guesses
            .are_vain(item.into(), order.extract.guess_misses)
        {
            return with(OUT_OF_SCOPE, "guessGivenUp".to_owned());
        }
        if !is_changed || item.hops.is_empty() || item.hops.ends_with('P') {
            return Ok(None);
        }
        self.surt.clear();
        ecluse_surt::surt_or_url(item.url.as_bytes(), &mut self.surt);
        let decision = self.scope.decide(&ecluse_scope::CandidateUrl {
            url: &item.url,
            surt: &self.surt,
            hops: &item.hops,
            via: Some(&item.via),
            tag: Some(&item.source),
            size: None,
            framed: false,
        })?;
        match decision.verdict {
            ScopeVerdict::Reject => with(OUT_OF_SCOPE, format!("scope:{}", decision.rule)),
            ScopeVerdict::Accept => Ok(None),
        }
    }

    /// Queues a URL without asking the scope: a seed, a prerequisite, or what the scope has let through. Returns the number of its stay;
    /// none where it is known.
    ///
    /// # Errors
    /// When the frontier fails.
    pub(crate) fn queue(
        &mut self,
        in_force: &InForce,
        frontier: &mut Frontier,
        url: &Url,
        found: &FoundBy<'_>,
    ) -> ecluse_frontier::Result<Option<ItemId>> {
        self.key.clear();
        in_force.order.same_url.append_key(url, &mut self.key);
        let queue = queue_of(in_force.order.manners.queue_by, url);
        let host = url.host_str().unwrap_or_default();
        let group = in_force.grouping.group_of(&queue, host, None);
        let added = frontier.add_numbered(&Candidate {
            url: url.as_str(),
            key: &self.key,
            queue: &queue,
            group: &group.name,
            precedence: found.precedence,
            via: found.via,
            hops: found.hops,
            source: found.source,
            cost: 1,
            force: found.force,
        });
        match added {
            // Whatever the scope's limit is, the frontier takes no longer ones.
            Err(ecluse_frontier::FrontierError::TooLong { .. }) => Ok(None),
            other => other,
        }
    }

    /// Forgets what was decided under other rules.
    pub(crate) fn changed(
        &mut self,
        order: &Order,
        job: &Job,
        frontier: &Frontier,
        year: u32,
    ) -> Result<(), Failure> {
        let mut changed = Self::new(order, job, frontier, year, &job.dir.spool())?;
        changed.rejected = std::mem::take(&mut self.rejected);
        changed.guesses = std::mem::take(&mut self.guesses);
        changed.online = self.online;
        changed.forced = std::mem::take(&mut self.forced);
        *self = changed;
        Ok(())
    }

    fn is_recent(&self, url: &str) -> bool {
        self.recent.contains(url) || self.older.contains(url)
    }

    fn note_recent(&mut self, url: &str) {
        if url.len() > LONGEST_RECENT {
            return;
        }
        if self.recent.len() >= RECENT {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(url.into());
    }
}

/// Tells whether a page redirects to a URL that is the same to the frontier and another one to the server: the page with a
/// session in it, or with `www` before it. It would count as known, and its content never be fetched. Heritrix forces
/// these too; a redirect to the very same URL leads nowhere.
fn leads_to_its_like(order: &Order, page: &Item, target: &Url) -> bool {
    let Ok(from) = Url::parse(&page.url) else {
        return false;
    };
    from != *target && order.same_url.key(&from) == order.same_url.key(target)
}

/// Tells whether a page redirects to itself, or back to the page that led to it by a redirect. With a cookie that is how
/// sites find out whether one is kept: the answer is another one the next time. It is followed once.
fn leads_back(page: &Item, target: &Url) -> bool {
    if page.url == target.as_str() {
        return page.via != page.url;
    }
    let redirects = page.hops.bytes().rev().take_while(|hop| *hop == b'R');
    page.via == target.as_str() && (1..4).contains(&redirects.count())
}

fn count(rejected: &mut BTreeMap<String, u64>, rule: &str) {
    match rejected.get_mut(rule) {
        Some(count) => *count += 1,
        None => {
            rejected.insert(rule.to_owned(), 1);
        }
    }
}

/// How a URL came to be known.
pub(crate) struct FoundBy<'a> {
    pub(crate) via: &'a str,
    pub(crate) hops: &'a str,
    pub(crate) source: &'a str,
    pub(crate) precedence: Precedence,
    pub(crate) force: bool,
}
