//! The order of a harvest, but for the harvest's own number.
//!
//! Two commands that ask for the same give the same text: that is how one that was stopped is found again.

use ecluse_config::Span;
use ecluse_scope::{Bare, Order, SeedList};

use crate::audit;
use crate::cli::{Around, HarvestOptions, Heed, Unfinished};
use crate::context::{DriverContext, Trouble};

/// The seed file's name beside the order.
pub(crate) const SEEDS: &str = "seeds.txt";
/// The order's name in its parcel.
pub(crate) const ORDER: &str = "order.toml";
/// The longest pause between two requests, unless a longer shortest one is asked for.
const LONGEST_DELAY: Span = Span::secs(5);
/// No seed file is longer.
const SEED_BYTES: u64 = 1 << 30;
/// So many lines that are no seeds are shown.
const FAULTS: usize = 5;
/// A job's name is no longer.
const LONGEST_JOB: usize = 40;

/// An order without its harvest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    /// The job: named after the host of the first seed.
    pub(crate) job: String,
    /// The order after `job` and `harvest`.
    pub(crate) rest: String,
    /// The seed file beside it.
    pub(crate) seeds: Option<Vec<u8>>,
    /// The first seed.
    pub(crate) first: String,
    /// What becomes of an earlier harvest that is not finished, where the command says it.
    pub(crate) unfinished: Option<Unfinished>,
}

impl Draft {
    /// Writes the order that a command asks for.
    pub(crate) fn of(context: &DriverContext, options: &HarvestOptions) -> Result<Self, Trouble> {
        let seeds = match &options.seeds {
            Some(path) => Some(read_seeds(path)?),
            None => None,
        };
        let mut list = SeedList::new(&Order::default().same_url, Bare::Http);
        for url in &options.urls {
            list.add(url, "", None)
                .map_err(|error| Trouble::usage(format!("{url:?} is no seed: {error}")))?;
        }
        list.add_lines(seeds.as_deref().unwrap_or_default(), "", None);
        let Some(first) = list.seeds.first() else {
            let fault = list.faults.first().map(ToString::to_string);
            return Err(Trouble::usage(format!(
                "no seed in the file; {}",
                fault.unwrap_or_else(|| "it is empty".into())
            )));
        };
        for fault in list.faults.iter().take(FAULTS) {
            eprintln!("ecluse: no seed: {fault}");
        }
        if list.faults.len() > FAULTS {
            eprintln!(
                "ecluse: and {} more lines that are no seeds",
                list.faults.len() - FAULTS
            );
        }
        let draft = Self {
            job: job_of(first.url.host_str().unwrap_or_default()),
            rest: rest_of(options, contact_of(context, options).as_deref()),
            first: first.url.to_string(),
            seeds,
            unfinished: options.unfinished,
        };
        draft.check(context)?;
        Ok(draft)
    }

    /// Returns the whole order.
    pub(crate) fn text(&self, harvest: &str) -> String {
        let job = quoted(&self.job);
        let harvest = quoted(harvest);
        format!("job     = {job}\nharvest = {harvest}\n\n{}", self.rest)
    }

    /// Returns what it asks for besides its seeds.
    pub(crate) fn without_seeds(&self) -> &str {
        const FIRST: &str = "[scope]\n";
        let at = match self.rest.starts_with(FIRST) {
            true => Some(0),
            false => self.rest.find(&format!("\n{FIRST}")),
        };
        at.map_or("", |at| &self.rest[at..])
    }

    /// Finds what is wrong with it, before anything is written.
    pub(crate) fn check(&self, context: &DriverContext) -> Result<(), Trouble> {
        let contact = &context.pipeline.site.contact;
        Order::parse(&self.text("20260101000000"), "the order", contact)
            .map(drop)
            .map_err(Trouble::usage)
    }
}

fn read_seeds(path: &std::path::Path) -> Result<Vec<u8>, Trouble> {
    let cannot =
        |error: std::io::Error| Trouble::usage(format!("cannot read {}: {error}", path.display()));
    let length = std::fs::metadata(path).map_err(cannot)?.len();
    if length > SEED_BYTES {
        let line = format!("{} is longer than any list of seeds", path.display());
        return Err(Trouble::usage(line));
    }
    std::fs::read(path).map_err(cannot)
}

/// Names a job after a host, with what file names may hold.
pub(crate) fn job_of(host: &str) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    let name: String = host.chars().map(fit).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    match name.get(..LONGEST_JOB.min(name.len())) {
        Some("") | None => "harvest".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Returns whom to write to, unless the site's settings say it.
///
/// Nobody else's page stands in for somebody who said nothing: the mail would go to a stranger. User and host are the truth.
pub(crate) fn contact_of(context: &DriverContext, options: &HarvestOptions) -> Option<String> {
    if let Some(contact) = &options.contact {
        return Some(contact.clone());
    }
    let known = !context.pipeline.site.contact.trim().is_empty();
    (!known).then(|| person(&audit::who(), &context.engine.host().name))
}

/// Returns a person on a machine as a mail address. A machine without a domain is known in its own network by `.local`.
fn person(who: &str, host: &str) -> String {
    let fit = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let who: String = who
        .chars()
        .map(|c| if fit(c) || c == '_' { c } else { '-' })
        .collect();
    let host: String = host.chars().filter(|c| fit(*c)).collect();
    let host = host.trim_matches('.');
    match host {
        "" => format!("{who}@localhost.local"),
        host if host.contains('.') => format!("{who}@{host}"),
        host => format!("{who}@{host}.local"),
    }
}

fn rest_of(options: &HarvestOptions, contact: Option<&str>) -> String {
    let mut text = String::new();
    if !options.urls.is_empty() {
        text.push_str(&seeds_of(&options.urls));
    }
    if options.seeds.is_some() {
        text.push_str(&format!("[[seeds]]\nfile = {}\n\n", quoted(SEEDS)));
    }
    let reach = match options.scope {
        Around::Domain => "domain",
        Around::Host => "host",
        Around::Path => "path",
        Around::Page => "page",
    };
    text.push_str(&format!("[scope]\nreach = \"{reach}\"\n"));
    if let Some(depth) = options.depth {
        text.push_str(&format!("depth = {depth}\n"));
        // Each link may lead over a redirect, and to what the page needs: the limit of all hops must not end it sooner.
        let hops = depth.saturating_mul(2).saturating_add(5);
        let limit = Order::default().scope.hops.get();
        if limit.is_some_and(|limit| hops > limit) {
            text.push_str(&format!("hops = {hops}\n"));
        }
    }
    text.push_str("\n[budget]\nwait = \"1m\"\n");
    if let Some(limit) = options.limit {
        text.push_str(&format!("urls = {limit}\n"));
    }
    let policy = match options.robots {
        Heed::Obey => "obey",
        Heed::Ignore => "ignore",
        Heed::Requisites => "requisites",
    };
    // Somebody waits for the end: a host that does not answer must not keep the command for hours.
    text.push_str(&format!(
        "\n[budget.queue]\ntries       = {tries}\nretry-delay = \"10s\"\n\n\
         [manners]\nmin-delay = \"{shortest}\"\nmax-delay = \"{longest}\"\n\n\
         [manners.back-off]\nfirst             = \"10s\"\nmax               = \"2m\"\nretry-after-limit = \"10m\"\n\n\
         [robots]\npolicy = \"{policy}\"\nretry  = \"10s\"\n",
        tries = options.tries,
        shortest = options.delay,
        longest = options.delay.max(LONGEST_DELAY),
    ));
    if let Some(contact) = contact {
        text.push_str(&format!("\n[agent]\ncontact = {}\n", quoted(contact)));
    }
    if options.allow_private {
        text.push_str("\n[network]\nallow-private = true\n");
    }
    text
}

/// Returns the table of seeds that stand in the order itself.
pub(crate) fn seeds_of(urls: &[String]) -> String {
    let urls: Vec<String> = urls.iter().map(|url| quoted(url)).collect();
    format!("[[seeds]]\nurls = [{}]\n\n", urls.join(", "))
}

/// Returns a text as a string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn options(words: &[&str]) -> HarvestOptions {
        let words = ["ecluse", "harvest"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Harvest(options) => options,
            _ => unreachable!("the verb is harvest"),
        }
    }

    fn order(words: &[&str], contact: Option<&str>) -> Order {
        let draft = Draft {
            job: "a.example".into(),
            rest: rest_of(&options(words), contact),
            seeds: None,
            first: String::new(),
            unfinished: None,
        };
        assert!(draft.without_seeds().trim_start().starts_with("[scope]"));
        let text = draft.text("20260101000000");
        Order::parse(&text, "order.toml", "keeper@lock.example")
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .order
    }

    #[test]
    fn a_job_is_named_after_its_host() {
        assert_eq!(job_of("www.lock-keeper.example"), "www.lock_keeper.example");
        assert_eq!(job_of("[::1]"), "1");
        assert_eq!(job_of(""), "harvest");
        assert_eq!(job_of(&"a".repeat(100)).len(), LONGEST_JOB);
    }

    #[test]
    fn every_option_stands_in_the_order() {
        let order = order(
            &[
                "https://a.example/x?\"y\"",
                "b.example",
                "--seeds=list",
                "--depth=3",
                "--limit=50",
                "--scope=path",
                "--robots=requisites",
                "--delay=7s",
                "--tries=4",
                "--allow-private",
            ],
            Some("me@b.example"),
        );
        assert_eq!(order.seeds[0].urls[0], "https://a.example/x?\"y\"");
        assert_eq!(order.seeds[1].file.as_deref(), Some(SEEDS));
        assert_eq!(order.scope.reach.name(), "path");
        assert_eq!(order.scope.depth.get(), Some(3));
        assert_eq!(order.budget.urls.get(), Some(50));
        assert_eq!(order.budget.queue.tries, 4);
        assert_eq!(order.manners.min_delay, Span::secs(7));
        assert_eq!(order.manners.max_delay, Span::secs(7));
        assert_eq!(order.robots.policy, ecluse_scope::RobotsPolicy::Requisites);
        assert_eq!(order.agent.contact, "me@b.example");
        assert!(order.network.allow_private);
    }

    #[test]
    fn a_great_depth_is_reached() {
        let hops = |depth: &str| order(&["a.example", "--depth", depth], None).scope.hops;
        assert_eq!(hops("3"), Order::default().scope.hops);
        assert_eq!(hops("50").get(), Some(105));
        assert!(hops("4000000000").get() >= Some(4_000_000_000));
    }

    #[test]
    fn a_command_without_options_is_kind_and_short() {
        let order = order(&["a.example"], None);
        assert_eq!(order.manners.min_delay, Span::secs(1));
        assert_eq!(order.manners.max_delay, Span::secs(5));
        assert_eq!(order.budget.queue.tries, 2);
        assert_eq!(order.scope.depth.get(), None);
        assert!(!order.network.allow_private);
    }

    #[test]
    fn whoever_sits_there_is_a_contact() {
        for (who, host) in [
            ("anna", "laptop"),
            ("uid 1000", "x"),
            ("o'neill", "machine.example.org."),
            ("anna", ""),
        ] {
            let contact = person(who, host);
            let order = order(&["a.example"], Some(&contact));
            assert!(order.user_agent("").unwrap().contains(&contact));
        }
        assert_eq!(person("anna", "laptop"), "anna@laptop.local");
    }
}
