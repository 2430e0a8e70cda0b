//! The sites that names belong to, held against the register as the names pass.
//!
//! Names come in order of their keys, so all names of a site come together, but for one thing: below a site there may be
//! others, where the Public Suffix List has a private suffix there. So what is open is a stack, each entry below the one before,
//! and an entry is closed when a name comes that is not below it. The register comes in the same order.

use ecluse_register::{RegisterError, RegisterReader};

use crate::run::RunError;
use crate::statistics::Statistics;

/// What is open.
pub(crate) struct OpenSites {
    register: Option<RegisterReader>,
    /// The line of the register that comes next, and the sources of this run that it names.
    next: Option<(Vec<u8>, u64)>,
    stack: Vec<OpenSite>,
    /// One that was closed, for its memory: nearly every name has a site of its own.
    spare: Option<OpenSite>,
    /// The sources of this run by name.
    sources: Vec<String>,
}

#[derive(Debug, Default)]
struct OpenSite {
    key: Vec<u8>,
    /// The sources of this run that the register has it from; none where the register has it not.
    registered: Option<u64>,
    /// The sources that have a name of it; none where no name came.
    seen: Option<u64>,
    /// Where it is counted.
    tld: String,
}

impl OpenSites {
    pub(crate) fn new(register: Option<RegisterReader>, figures: &Statistics) -> Self {
        Self {
            register,
            next: None,
            stack: Vec::new(),
            spare: None,
            sources: figures
                .sources
                .iter()
                .map(|source| source.name.clone())
                .collect(),
        }
    }

    /// Takes a name whose site is the first `site_bytes` of its key; tells whether the register has the site.
    pub(crate) fn see(
        &mut self,
        key: &[u8],
        site_bytes: usize,
        tld: &str,
        sources: u64,
        figures: &mut Statistics,
    ) -> Result<bool, RunError> {
        self.advance(Some(key), figures)?;
        self.close(key, figures);
        let site = &key[..site_bytes];
        let depth = self
            .stack
            .iter()
            .position(|open| open.key.len() >= site_bytes)
            .unwrap_or(self.stack.len());
        if self.stack.get(depth).is_none_or(|open| open.key != site) {
            let mut open = self.spare.take().unwrap_or_default();
            open.key.clear();
            open.key.extend_from_slice(site);
            (open.registered, open.seen) = (None, None);
            self.stack.insert(depth, open);
        }
        let open = &mut self.stack[depth];
        match &mut open.seen {
            Some(seen) => *seen |= sources,
            None => {
                open.seen = Some(sources);
                tld.clone_into(&mut open.tld);
            }
        }
        Ok(open.registered.is_some())
    }

    /// Closes everything, and goes through the rest of the register.
    pub(crate) fn finish(mut self, figures: &mut Statistics) -> Result<(), RunError> {
        self.advance(None, figures)?;
        while let Some(open) = self.stack.pop() {
            open.count(figures);
        }
        Ok(())
    }

    /// Opens every site of the register up to a name.
    fn advance(&mut self, key: Option<&[u8]>, figures: &mut Statistics) -> Result<(), RunError> {
        loop {
            if self.next.is_none() && !self.read_next()? {
                return Ok(());
            }
            if let (Some((next, _)), Some(key)) = (&self.next, key)
                && next.as_slice() > key
            {
                return Ok(());
            }
            if let Some((next, sources)) = self.next.take() {
                self.close(&next, figures);
                // A site that a name opened is there already when the register's line is the name itself.
                match self.stack.last_mut() {
                    Some(open) if open.key == next => open.registered = Some(sources),
                    _ => self.stack.push(OpenSite {
                        key: next,
                        registered: Some(sources),
                        ..OpenSite::default()
                    }),
                }
            }
        }
    }

    fn read_next(&mut self) -> Result<bool, RunError> {
        let Some(register) = &mut self.register else {
            return Ok(false);
        };
        let line = register
            .next_line()
            .map_err(|error: RegisterError| RunError::Register(error))?;
        let Some(line) = line else {
            self.register = None;
            return Ok(false);
        };
        let place = |name: &str| self.sources.iter().position(|source| source == name);
        let sources = line
            .sources()
            .filter_map(place)
            .fold(0, |mask, place| mask | 1 << place);
        self.next = Some((line.key.as_bytes().to_vec(), sources));
        Ok(true)
    }

    /// Closes every site that a key is not below.
    fn close(&mut self, key: &[u8], figures: &mut Statistics) {
        while let Some(open) = self.stack.pop_if(|open| !is_below(key, &open.key)) {
            open.count(figures);
            self.spare = Some(open);
        }
    }
}

impl OpenSite {
    fn count(&self, figures: &mut Statistics) {
        let seen = self.seen.unwrap_or(0);
        if let Some(registered) = self.registered {
            for place in 0..64 {
                let is_gone = registered & !seen & 1 << place != 0;
                if is_gone
                    && let Some(source) = figures.sources.get_mut(place)
                    && source.is_whole
                {
                    source.vanished += 1;
                }
            }
        }
        if let Some(seen) = self.seen {
            figures.domain(&self.tld, seen, self.registered.is_none());
        }
    }
}

/// Tells whether a key is a site or below it.
fn is_below(key: &[u8], site: &[u8]) -> bool {
    key.strip_prefix(site)
        .is_some_and(|rest| matches!(rest, [] | [b',', ..]))
}
