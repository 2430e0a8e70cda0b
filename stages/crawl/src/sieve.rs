//! What becomes of a link: whether it belongs to the job, by which rule, and where it waits.

use std::collections::{BTreeMap, HashSet};

use ecluse_extract::{Hop, Link};
use ecluse_frontier::{Added, Candidate, Frontier, Item, Precedence};
use ecluse_scope::{Grouping, Order, Scope, ScopeErrors, Seed, SeedList, Verdict, queue_of};
use url::Url;

/// URLs that were queued lately and need no second look.
const RECENT: usize = 50_000;
/// Bytes of these at most.
const LONGEST_RECENT: usize = 200;

/// Decides about links.
pub(crate) struct Sieve {
    pub(crate) scope: Scope,
    grouping: Grouping,
    key: Vec<u8>,
    surt: Vec<u8>,
    hops: String,
    recent: HashSet<Box<str>>,
    older: HashSet<Box<str>>,
    /// Links that were not followed, by the rule that decided.
    pub(crate) rejected: BTreeMap<String, u64>,
}

impl Sieve {
    /// Compiles the rules of an order.
    ///
    /// # Errors
    /// With every rule that makes no sense.
    pub(crate) fn new(
        order: &Order,
        seeds: &SeedList,
        led_to: &[Seed],
        year: u32,
    ) -> Result<Self, ScopeErrors> {
        let mut rules = order.scope.clone();
        // A seed file may widen the scope, as Heritrix's does.
        rules.accept_surts.extend_from_slice(&seeds.accept_surts);
        let mut scope = Scope::compile(&rules, &seeds.seeds, year)?;
        for seed in led_to {
            scope.add_seed(seed);
        }
        Ok(Self {
            scope,
            grouping: order.grouping(),
            key: Vec::new(),
            surt: Vec::new(),
            hops: String::new(),
            recent: HashSet::new(),
            older: HashSet::new(),
            rejected: BTreeMap::new(),
        })
    }

    /// Queues a link of a page if it belongs to the job and is not known.
    ///
    /// # Errors
    /// When the frontier fails.
    pub(crate) fn offer(
        &mut self,
        order: &Order,
        frontier: &mut Frontier,
        page: &Item,
        link: &Link,
    ) -> ecluse_frontier::Result<bool> {
        if self.is_recent(&link.url) {
            return Ok(false);
        }
        let Ok(url) = Url::parse(&link.url) else {
            return Ok(false);
        };
        self.hops.clear();
        self.hops.push_str(&page.hops);
        self.hops.push(link.hop.letter());
        self.surt.clear();
        ecluse_surt::surt_or_url(url.as_str().as_bytes(), &mut self.surt);
        let candidate = ecluse_scope::Candidate {
            url: url.as_str(),
            surt: &self.surt,
            hops: &self.hops,
            via: Some(&page.url),
            tag: Some(&page.source),
            size: None,
        };
        let decision = self.scope.decide(&candidate);
        if decision.verdict == Verdict::Reject {
            match self.rejected.get_mut(decision.rule) {
                Some(count) => *count += 1,
                None => {
                    self.rejected.insert(decision.rule.to_owned(), 1);
                }
            }
            return Ok(false);
        }
        let precedence = match link.hop {
            Hop::Redirect => Precedence::PREREQUISITE,
            _ if link.requisite => Precedence::REQUISITE,
            Hop::Embed | Hop::Inferred => Precedence::REQUISITE,
            Hop::Navigation | Hop::Speculative | Hop::Manifest => Precedence::NORMAL,
        };
        let hops = std::mem::take(&mut self.hops);
        let found = FoundBy {
            via: &page.url,
            hops: &hops,
            source: &page.source,
            precedence,
            force: link.hop == Hop::Redirect && leads_to_its_like(order, page, &url),
        };
        let added = self.queue(order, frontier, &url, &found);
        self.hops = hops;
        self.note_recent(&link.url);
        Ok(added? == Added::New)
    }

    /// Says why a URL that waits does not belong to the job, now that the rules have changed. Seeds and prerequisites do.
    pub(crate) fn rejects(&mut self, item: &Item) -> Option<String> {
        if item.hops.is_empty() || item.hops.ends_with('P') {
            return None;
        }
        self.surt.clear();
        ecluse_surt::surt_or_url(item.url.as_bytes(), &mut self.surt);
        let decision = self.scope.decide(&ecluse_scope::Candidate {
            url: &item.url,
            surt: &self.surt,
            hops: &item.hops,
            via: Some(&item.via),
            tag: Some(&item.source),
            size: None,
        });
        (decision.verdict == Verdict::Reject).then(|| format!("scope:{}", decision.rule))
    }

    /// Queues a URL without asking the scope: a seed, a prerequisite, or what the scope has let through.
    ///
    /// # Errors
    /// When the frontier fails.
    pub(crate) fn queue(
        &mut self,
        order: &Order,
        frontier: &mut Frontier,
        url: &Url,
        found: &FoundBy<'_>,
    ) -> ecluse_frontier::Result<Added> {
        self.key.clear();
        order.same_url.append_key(url, &mut self.key);
        let queue = queue_of(order.manners.queue_by, url);
        let host = url.host_str().unwrap_or_default();
        let group = self.grouping.group_of(&queue, host, None);
        let added = frontier.add(&Candidate {
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
            Err(ecluse_frontier::FrontierError::TooLong { .. }) => Ok(Added::Seen),
            other => other,
        }
    }

    /// Forgets what was decided under other rules.
    pub(crate) fn changed(
        &mut self,
        order: &Order,
        seeds: &SeedList,
        led_to: &[Seed],
        year: u32,
    ) -> Result<(), ScopeErrors> {
        let mut changed = Self::new(order, seeds, led_to, year)?;
        changed.rejected = std::mem::take(&mut self.rejected);
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

/// How a URL came to be known.
pub(crate) struct FoundBy<'a> {
    pub(crate) via: &'a str,
    pub(crate) hops: &'a str,
    pub(crate) source: &'a str,
    pub(crate) precedence: Precedence,
    pub(crate) force: bool,
}
