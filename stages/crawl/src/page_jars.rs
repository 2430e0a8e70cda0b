//! A jar for each page load, so that no page shows where the crawler has been before.
//!
//! A page that is led to by a link begins with an empty jar. What it redirects to, and what it needs to be shown, have its jar,
//! however long the chain is. The number of jars is bounded; what follows a page whose jar is forgotten begins anew.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use ecluse_frontier::Item;
use ecluse_http::{Jar, JarLimits};

/// Jars of URLs that are remembered, in each of two generations.
const JARS: usize = 5_000;
/// What one page load may set.
const LIMITS: JarLimits = JarLimits {
    per_domain: 50,
    cookies: 200,
};

/// The jars of the URLs that were fetched last.
#[derive(Debug, Default)]
pub(crate) struct PageJars {
    young: HashMap<String, Rc<RefCell<Jar>>>,
    old: HashMap<String, Rc<RefCell<Jar>>>,
}

impl PageJars {
    /// Returns the jar with which a URL is asked for.
    pub(crate) fn begin(&mut self, item: &Item) -> Rc<RefCell<Jar>> {
        let belongs = matches!(item.hops.bytes().last(), Some(b'E' | b'I' | b'R' | b'X'));
        let jar = belongs.then(|| self.find(&item.via)).flatten();
        let jar = jar.unwrap_or_else(|| Rc::new(RefCell::new(Jar::new(LIMITS))));
        if self.young.len() >= JARS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(item.url.clone(), Rc::clone(&jar));
        jar
    }

    /// Returns the jar with which a URL was asked for last.
    pub(crate) fn find(&self, url: &str) -> Option<Rc<RefCell<Jar>>> {
        let jar = self.young.get(url).or_else(|| self.old.get(url));
        jar.map(Rc::clone)
    }
}
