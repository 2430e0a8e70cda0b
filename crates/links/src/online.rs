//! Importance while the graph is being seen: OPIC, without any graph stored.
//!
//! "Adaptive On-Line Page Importance Computation" (2003). Each page has cash. A page that is visited keeps what it had as history and gives it
//! away: 85 % to its children in equal parts, the rest, or all of it where there are none, to a virtual page, which gives to all pages alike.
//! Whoever has the most cash is worth a visit first; the history is the importance. (A crawler's plug-in of that name in which a page
//! never loses its cash is another thing.)

/// The cash and history of pages that are numbered from 0.
#[derive(Debug, Clone, Default)]
pub struct OnlineImportance {
    pages: Vec<PageCash>,
    /// What the virtual page gave to every page so far; a page takes its part when it is looked at.
    given: f64,
    /// What the virtual page has.
    virtual_cash: f64,
    /// All history of pages together.
    history: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PageCash {
    cash: f64,
    history: f64,
    /// How much of `given` it has taken.
    taken: f64,
}

/// The part of its cash that a page gives to its children.
const DAMPING: f64 = 0.85;

impl OnlineImportance {
    /// Returns so many pages with one unit of cash among them.
    pub fn new(pages: usize) -> Self {
        let cash = if pages == 0 { 0.0 } else { 1.0 / pages as f64 };
        Self {
            pages: vec![
                PageCash {
                    cash,
                    ..PageCash::default()
                };
                pages
            ],
            ..Self::default()
        }
    }

    /// Adds a page that was found now, with so much cash of its own; returns its number.
    pub fn add(&mut self, cash: f64) -> usize {
        self.pages.push(PageCash {
            cash,
            taken: self.given,
            ..PageCash::default()
        });
        self.pages.len() - 1
    }

    /// Returns how many pages there are.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Tells whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the cash of a page: the more, the sooner it should be fetched.
    pub fn cash(&self, page: usize) -> f64 {
        let known = &self.pages[page];
        known.cash + (self.given - known.taken)
    }

    /// Returns the importance of a page: its part of all history, and what it will add to it; 0 where nothing was visited.
    pub fn importance(&self, page: usize) -> f64 {
        match self.history > 0.0 {
            true => self.pages[page].history / self.history,
            false => 0.0,
        }
    }

    /// Notes that a page was fetched and has these children; a child that stands twice has two parts.
    pub fn visit(&mut self, page: usize, children: &[usize]) {
        let cash = self.cash(page);
        let known = &mut self.pages[page];
        known.history += cash;
        (known.cash, known.taken) = (0.0, self.given);
        self.history += cash;
        if children.is_empty() {
            self.virtual_cash += cash;
            return;
        }
        let part = DAMPING * cash / children.len() as f64;
        for child in children {
            self.pages[*child].cash += part;
        }
        self.virtual_cash += (1.0 - DAMPING) * cash;
    }

    /// The virtual page is visited: it gives what it has to all pages alike, in constant time.
    pub fn share(&mut self) {
        if !self.pages.is_empty() {
            self.given += self.virtual_cash / self.pages.len() as f64;
            self.virtual_cash = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3.4 of the facts: the graph of 3.1, pages visited in turn, 20 000 visits.
    #[test]
    fn visits_in_turn_come_to_the_oracle() {
        let graph: [&[usize]; 5] = [&[1, 2], &[2], &[0], &[0], &[3]];
        let mut online = OnlineImportance::new(5);
        // The virtual page is visited in its turn too, and that counts.
        for visit in 0..20_000 {
            match visit % 6 {
                5 => online.share(),
                page => online.visit(page, graph[page]),
            }
        }
        let oracle = [0.374_896, 0.189_357, 0.350_205, 0.055_524, 0.030_017];
        let found: Vec<f64> = (0..5).map(|page| online.importance(page)).collect();
        for (page, oracle) in oracle.iter().enumerate() {
            assert!((found[page] - oracle).abs() < 1e-6, "{found:?}");
        }
        let sum: f64 = found.iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn cash_is_neither_made_nor_lost() {
        let mut online = OnlineImportance::new(3);
        online.visit(0, &[1, 1, 2]);
        online.visit(1, &[]);
        online.share();
        let page = online.add(0.5);
        online.visit(page, &[0]);
        let sum: f64 = (0..4).map(|page| online.cash(page)).sum();
        assert!((sum + online.virtual_cash - 1.5).abs() < 1e-12);
    }
}
