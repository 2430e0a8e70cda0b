//! On-line importance (OPIC): which pages matter, found while they are crawled and without a graph.
//!
//! Every seed brings cash. A page that is fetched gives what it has away: most of it to the pages it links to, in equal parts, and the rest to a virtual page
//! that gives to all known pages alike. So pages that much leads to come to have much, and are fetched first. What a page has is a note of the
//! frontier, made durable with it; what the virtual page has is in the checkpoint. Links to what does not belong to the job give their part to the virtual page.

use ecluse_frontier::{Frontier, FrontierError, ItemId, Precedence};
use serde::{Deserialize, Serialize};

use crate::notes;

/// The share of its cash that a page gives to those it links to.
const DAMPING: f64 = 0.85;
/// So many steps of a factor of two are told apart, so many of them above what a seed brings.
const LEVELS: u8 = 64;
const ABOVE: u8 = 8;

/// What is not the cash of any page.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct OnlineCash {
    /// What the virtual page has given to each page so far.
    given: f64,
    /// Pages that have, or had, cash.
    pages: u64,
}

/// What a page has: its own, and how much of what the virtual page gave it has taken; and where it waits.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PageCash {
    cash: f64,
    taken: f64,
    place: Option<WaitingPlace>,
}

/// Where a page waits in its queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WaitingPlace {
    pub(crate) precedence: Precedence,
    pub(crate) item: ItemId,
}

impl PageCash {
    fn encode(self) -> Vec<u8> {
        let mut value = [self.cash.to_be_bytes(), self.taken.to_be_bytes()].concat();
        if let Some(WaitingPlace { precedence, item }) = self.place {
            value.push(precedence.0);
            value.extend_from_slice(&item.0.to_be_bytes());
        }
        value
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8]| Some(f64::from_be_bytes(bytes.try_into().ok()?));
        let place = |(precedence, item): (&u8, &[u8])| {
            Some(WaitingPlace {
                precedence: Precedence(*precedence),
                item: ItemId(u64::from_be_bytes(item.try_into().ok()?)),
            })
        };
        Some(Self {
            cash: number(value.get(..8)?)?,
            taken: number(value.get(8..16)?)?,
            place: value[16..].split_first().and_then(place),
        })
    }
}

impl OnlineCash {
    /// A seed brings one unit.
    pub(crate) fn sow(
        &mut self,
        frontier: &mut Frontier,
        key: &[u8; 16],
        queue: &str,
    ) -> Result<(), FrontierError> {
        self.receive(frontier, key, queue, 1.0).map(|_| ())
    }

    /// A page is given cash; returns how soon it should be fetched among the links of its queue. One that waits already goes forward.
    pub(crate) fn receive(
        &mut self,
        frontier: &mut Frontier,
        key: &[u8; 16],
        queue: &str,
        part: f64,
    ) -> Result<Precedence, FrontierError> {
        let known = frontier.noted(notes::CASH, key)?;
        let known = known.as_deref().and_then(PageCash::decode);
        self.pages += u64::from(known.is_none());
        let had = known.map_or(0.0, |known| self.cash_of(known));
        let precedence = Precedence(Precedence::NORMAL.0 + Self::level(had + part));
        let mut place = known.and_then(|known| known.place);
        if let Some(waiting) = place
            && precedence.0 < waiting.precedence.0
        {
            let item = waiting.item;
            let is_there = frontier.raise(queue, item, waiting.precedence, precedence)?;
            // In flight, it is not asked for again.
            place = is_there.then_some(WaitingPlace { precedence, item });
        }
        self.put(frontier, key, had + part, place)?;
        self.change_queue(frontier, queue, part)?;
        Ok(precedence)
    }

    /// A page that was given cash waits there now.
    pub(crate) fn waits_at(
        &self,
        frontier: &mut Frontier,
        key: &[u8; 16],
        place: WaitingPlace,
    ) -> Result<(), FrontierError> {
        let known = frontier.noted(notes::CASH, key)?;
        let Some(known) = known.as_deref().and_then(PageCash::decode) else {
            return Ok(());
        };
        let place = Some(place);
        frontier.note(notes::CASH, key, &PageCash { place, ..known }.encode())
    }

    /// A page is fetched: returns what each of so many links gets. What is not given to them goes to all.
    pub(crate) fn visit(
        &mut self,
        frontier: &mut Frontier,
        key: &[u8; 16],
        queue: &str,
        links: usize,
    ) -> Result<f64, FrontierError> {
        let known = frontier.noted(notes::CASH, key)?;
        let Some(known) = known.as_deref().and_then(PageCash::decode) else {
            return Ok(0.0);
        };
        let cash = self.cash_of(known);
        self.put(frontier, key, 0.0, None)?;
        self.change_queue(frontier, queue, -known.cash)?;
        match links {
            0 => {
                self.give_all(cash);
                Ok(0.0)
            }
            links => {
                self.give_all((1.0 - DAMPING) * cash);
                Ok(DAMPING * cash / links as f64)
            }
        }
    }

    /// The virtual page gives to all pages alike, at once and in constant time.
    pub(crate) fn give_all(&mut self, cash: f64) {
        self.given += cash / self.pages.max(1) as f64;
    }

    fn cash_of(&self, page: PageCash) -> f64 {
        page.cash + (self.given - page.taken)
    }

    fn put(
        &self,
        frontier: &mut Frontier,
        key: &[u8; 16],
        cash: f64,
        place: Option<WaitingPlace>,
    ) -> Result<(), FrontierError> {
        let page = PageCash {
            cash,
            taken: self.given,
            place,
        };
        frontier.note(notes::CASH, key, &page.encode())
    }

    /// The cash of a queue is that of its URLs; it goes before queues that have less.
    fn change_queue(
        &self,
        frontier: &mut Frontier,
        queue: &str,
        more: f64,
    ) -> Result<(), FrontierError> {
        let key = notes::key_of(queue.as_bytes());
        let known = frontier.noted(notes::QUEUE_CASH, &key)?;
        let number = |value: Vec<u8>| Some(f64::from_be_bytes(value.as_slice().try_into().ok()?));
        let had = known.and_then(number).unwrap_or(0.0);
        let has = (had + more).max(0.0);
        frontier.note(notes::QUEUE_CASH, &key, &has.to_be_bytes())?;
        frontier.prefer_queue(queue, Self::level(has))
    }

    /// 0 for the most cash, by factors of two. It does not depend on how many pages there are: of two with the same cash the one that was found
    /// later is not more urgent.
    fn level(cash: f64) -> u8 {
        let level = f64::from(ABOVE) - cash.max(1e-300).log2();
        level.round().clamp(0.0, f64::from(LEVELS - 1)) as u8
    }

    /// What a page has had of all that was given, when its visits are summed up: for tests.
    #[cfg(test)]
    fn cash_now(&self, frontier: &mut Frontier, key: &[u8; 16]) -> f64 {
        let known = frontier.noted(notes::CASH, key).unwrap().unwrap();
        self.cash_of(PageCash::decode(&known).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first graph of the oracle: 0→1, 0→2, 1→2, 2→0, 3→0, 4→3.
    const GRAPH: [&[usize]; 5] = [&[1, 2], &[2], &[0], &[0], &[3]];

    /// What pages had after so many visits in turn, in memory. As published, a virtual page has its turn among them and gives to all then; ours gives at once.
    fn published(visits: usize, is_virtual_at_once: bool) -> [f64; 5] {
        let (mut cash, mut history, mut virtual_cash) = ([1.0; 5], [0.0; 5], 0.0);
        let turns = if is_virtual_at_once { 5 } else { 6 };
        for visit in 0..visits {
            let page = visit % turns;
            if let Some(children) = GRAPH.get(page) {
                let has = std::mem::take(&mut cash[page]);
                history[page] += has;
                virtual_cash += 0.15 * has;
                for child in *children {
                    cash[*child] += 0.85 * has / children.len() as f64;
                }
            }
            if is_virtual_at_once || page == 5 {
                cash = cash.map(|has| has + virtual_cash / 5.0);
                virtual_cash = 0.0;
            }
        }
        let all: f64 = history.iter().sum();
        history.map(|had| had / all)
    }

    fn close(found: [f64; 5], expected: [f64; 5], within: f64) {
        for (one, other) in found.into_iter().zip(expected) {
            assert!((one - other).abs() < within, "{found:?}, not {expected:?}");
        }
    }

    #[test]
    fn the_published_form_is_that_of_the_oracle() {
        let oracle = [0.374_896, 0.189_357, 0.350_205, 0.055_524, 0.030_017];
        close(published(20_000, false), oracle, 1e-6);
    }

    /// Visited in turn, history comes to PageRank.
    #[test]
    fn what_pages_had_comes_to_their_importance() {
        let directory = tempfile::tempdir().unwrap();
        let mut frontier = Frontier::open(directory.path(), Default::default()).unwrap();
        let keys: Vec<[u8; 16]> = (0..5u8).map(|page| notes::key_of(&[page])).collect();
        let mut online = OnlineCash::default();
        for key in &keys {
            online.sow(&mut frontier, key, "q").unwrap();
        }
        let mut history = [0.0; 5];
        for visit in 0..20_000 {
            let page = visit % 5;
            history[page] += online.cash_now(&mut frontier, &keys[page]);
            let children = GRAPH[page];
            let part = online
                .visit(&mut frontier, &keys[page], "q", children.len())
                .unwrap();
            for child in children {
                online
                    .receive(&mut frontier, &keys[*child], "q", part)
                    .unwrap();
            }
        }
        let all: f64 = history.iter().sum();
        let history = history.map(|had| had / all);
        close(history, published(20_000, true), 1e-6);
        close(
            history,
            [0.374_901, 0.189_333, 0.350_266, 0.055_5, 0.03],
            5e-5,
        );
        // Nothing is lost: all cash is with pages.
        let kept: f64 = keys
            .iter()
            .map(|key| online.cash_now(&mut frontier, key))
            .sum();
        assert!((kept - 5.0).abs() < 1e-9, "{kept}");
    }
}
