//! The check of one parcel: rounds over its names, then where they lead, then the list.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::time::{Duration, Instant};

use ecluse_names::{CheckedLine, DnsClass, RedirectKind};
use ecluse_register::Register;
use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId};

use crate::asker::Asker;
use crate::check::{CheckEnd, NameChecker, NameToCheck, is_settled};
use crate::hints::HintLists;
use crate::list::{ListedName, NAMES, read_names};
use crate::progress::Progress;
use crate::redirects::{NameToFollow, RedirectError, RedirectSettings, follow};
use crate::report::write_report;
use crate::settings::Settings;
use crate::tally::{CheckTally, grouped};

/// What is made.
pub(crate) const CHECKED: &str = "checked.tsv";
/// How often what is known is written down, and told.
const NOTE_EVERY: Duration = Duration::from_millis(500);
/// How often the log hears of it.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// What the check of a parcel needs.
pub(crate) struct ParcelCheck<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) home: &'a Home,
    pub(crate) hints: &'a HintLists,
}

impl ParcelCheck<'_> {
    pub(crate) fn run(&self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let names = read_names(parcel)?;
        let list = parcel.manifest().file(NAMES);
        let of = format!(
            "{} {}",
            list.map_or("", |file| &file.sha256),
            self.settings.mark()
        );
        let today = jiff::Timestamp::now().strftime("%Y%m%d").to_string();
        let mut progress = Progress::open(self.home, parcel.id(), &of, &today)?;
        self.rounds(&names, &mut progress, outbox)?;
        if self.settings.redirects {
            self.follow(&names, &mut progress, outbox)?;
        }
        self.write(parcel, &names, progress, outbox)
    }

    /// Asks of every name that is not settled, once more than it was.
    fn rounds(
        &self,
        names: &[ListedName],
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let is_open = |progress: &Progress, number: &u64| {
            let known = progress.lines.get(number);
            known.is_none_or(|line| !is_settled(line))
        };
        let numbers = 0..names.len() as u64;
        let todo: Vec<u64> = numbers.filter(|number| is_open(progress, number)).collect();
        let is_new = todo
            .iter()
            .any(|number| !progress.lines.contains_key(number));
        if todo.is_empty() || (progress.rounds > self.settings.later && !is_new) {
            return Ok(());
        }
        let left = self.round(names, todo, progress, outbox)?;
        if left > 0 && progress.rounds <= self.settings.later {
            return Err(Failure::defer(format!(
                "{} of {} names have no answer yet: they are asked again ({} of {} times)",
                grouped(left),
                grouped(names.len() as u64),
                progress.rounds,
                self.settings.later
            )));
        }
        Ok(())
    }

    /// Asks of names; returns how many are not settled.
    fn round(
        &self,
        names: &[ListedName],
        todo: Vec<u64>,
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<u64, Failure> {
        let resolvers = self.settings.resolvers().map_err(Failure::config)?;
        let mut asker = Asker::open(&resolvers, self.settings.ask_limits())?;
        let settings = self.settings.check_settings();
        let watch = RefCell::new(Watch::new(self.home, outbox, names.len(), todo.len()));
        let before: BTreeMap<u64, CheckedLine> = todo
            .iter()
            .filter_map(|number| Some((*number, progress.lines.get(number)?.clone())))
            .collect();
        let mut todo = todo.into_iter();
        let mut next = || {
            let Some(number) = todo.next() else {
                return Ok(None);
            };
            let name = usize::try_from(number).ok().and_then(|at| names.get(at));
            Ok(name.map(|listed| NameToCheck {
                number,
                name: listed.name.clone(),
                before: before.get(&number).cloned(),
            }))
        };
        let mut unsettled = Vec::new();
        let mut sink = |number: u64, line: CheckedLine| -> Result<(), Failure> {
            watch.borrow_mut().tally.count();
            match is_settled(&line) {
                true => progress.note(number, line)?,
                // Kept until the round is over: what failed because the network did is asked again.
                false => unsettled.push((number, line)),
            }
            if watch.borrow_mut().is_note_due() {
                progress.flush()?;
            }
            Ok(())
        };
        let mut checker = NameChecker::new(&mut asker, &settings, self.hints);
        let end = checker.run(&mut next, &mut sink, &mut || {
            watch.borrow_mut().is_stopped("names")
        });
        let end = end.inspect_err(|failure| {
            tracing::debug!(%failure, "the check of names ended early");
        });
        drop(checker);
        tell_resolvers(&asker, outbox);
        progress.flush()?;
        match end? {
            CheckEnd::Done => {}
            CheckEnd::Stopped => return Err(Failure::give_back()),
            CheckEnd::NoResolver(why) => return Err(Failure::defer(why)),
        }
        let left = unsettled.len() as u64;
        for (number, line) in unsettled {
            progress.note(number, line)?;
        }
        progress.end_round()?;
        Ok(left)
    }

    /// Asks web servers where names lead.
    fn follow(
        &self,
        names: &[ListedName],
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let mut todo = Vec::new();
        for (number, listed) in (0..).zip(names) {
            if listed.is_from_redirects || progress.redirects.contains_key(&number) {
                continue;
            }
            let hosts = progress.lines.get(&number).map(hosts_of);
            let hosts = hosts.unwrap_or_default();
            if !hosts.is_empty() {
                todo.push(NameToFollow { number, hosts });
            }
        }
        if todo.is_empty() {
            return Ok(());
        }
        let paces = self.home.path(&self.settings.paces).join(host_name());
        let temporary = self.home.temporary();
        let settings = RedirectSettings {
            connections: self.settings.connections.max(1) as usize,
            ports: self.settings.ports,
            allow_private: self.settings.allow_private,
            resolvers: self.settings.resolvers().map_err(Failure::config)?,
            contact: &self.home.site.contact,
            paces: &paces,
            temporary: &temporary,
        };
        let total = todo.len() + progress.redirects.len();
        let watch = RefCell::new(Watch::new(self.home, outbox, total, todo.len()));
        let followed = follow(
            &settings,
            todo,
            &mut |number, found| {
                watch.borrow_mut().tally.count();
                progress.note_redirect(number, found)?;
                if watch.borrow_mut().is_note_due() {
                    progress.flush()?;
                }
                Ok(())
            },
            &mut || watch.borrow_mut().is_stopped("names followed"),
        );
        progress.flush()?;
        match followed {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::give_back()),
            Err(RedirectError::Settings(fault)) => Err(Failure::config(fault)),
            Err(RedirectError::Machine(error)) => Err(error.into()),
        }
    }

    fn write(
        &self,
        parcel: &Parcel,
        names: &[ListedName],
        mut progress: Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let mut figures = Figures::default();
        let mut sites: BTreeSet<String> = BTreeSet::new();
        let mut text = Vec::with_capacity(names.len() * 128);
        for (number, listed) in (0..).zip(names) {
            let mut line = progress.lines.remove(&number).ok_or_else(|| {
                let name = &listed.name;
                Failure::halt(format!("nothing is known of {name}, which was asked"))
            })?;
            let found = progress.redirects.remove(&number).flatten();
            if let Some(found) = found
                .as_ref()
                .filter(|found| found.kind == RedirectKind::Other)
            {
                sites.insert(found.domain.clone());
            }
            line.evidence.redirect = found;
            figures.count(&line);
            line.write(&mut text)?;
        }
        if self.home.next.is_empty() {
            let directory = self.home.path(&self.settings.reports);
            let name = format!("{}.tsv", parcel.id());
            write_report(&directory, &name, &text)?;
            outbox.fact("report", name);
        } else {
            let mut file = outbox.create(CHECKED)?;
            file.write_all(&text)?;
            outbox.attach(file)?;
        }
        if self.settings.redirects {
            let new = self.new_sites(names, sites)?;
            self.send_back(parcel, &new, outbox)?;
            outbox.fact("new-sites", new.len());
        }
        outbox.fact("checked", progress.begun.as_str());
        figures.tell(names.len(), outbox);
        Ok(())
    }

    /// Leaves out what the parcel or the register has.
    fn new_sites(
        &self,
        names: &[ListedName],
        sites: BTreeSet<String>,
    ) -> Result<Vec<String>, Failure> {
        let own: HashSet<&str> = names.iter().map(|listed| listed.site.as_str()).collect();
        let register = Register::at(&self.home.register()).map_err(Failure::halt)?;
        let mut new = Vec::new();
        for site in sites {
            let is_known = own.contains(site.as_str())
                || register.lookup(&site).map_err(Failure::halt)?.is_some();
            if !is_known {
                new.push(site);
            }
        }
        Ok(new)
    }

    fn send_back(
        &self,
        parcel: &Parcel,
        sites: &[String],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        if sites.is_empty() {
            return Ok(());
        }
        for stage in &self.home.back {
            let id = ParcelId::new(&format!("redirects-{}", parcel.id()))
                .map_err(|error| Failure::hold(error.to_string()))?;
            let mut list = outbox.parcel(id, "source")?;
            let text: String = sites.iter().map(|site| format!("{site}\n")).collect();
            list.write("redirects.txt", text.as_bytes())?;
            list.write(
                "source.toml",
                b"name = \"redirects\"\nkind = \"redirects\"\n",
            )?;
            outbox.emit_to(list, stage);
        }
        Ok(())
    }
}

/// Looks after everything that is not the check itself.
struct Watch<'a> {
    home: &'a Home,
    outbox: &'a Outbox,
    tally: CheckTally,
    noted: Instant,
    looked: Instant,
    is_stopped: bool,
    log: CheckTally,
}

impl<'a> Watch<'a> {
    fn new(home: &'a Home, outbox: &'a Outbox, total: usize, todo: usize) -> Self {
        let before = (total - todo.min(total)) as u64;
        Self {
            home,
            outbox,
            tally: CheckTally::new(Some(total as u64), before),
            noted: Instant::now(),
            looked: Instant::now(),
            is_stopped: false,
            log: CheckTally::new(None, 0),
        }
    }

    fn is_note_due(&mut self) -> bool {
        let is_due = self.noted.elapsed() >= NOTE_EVERY;
        if is_due {
            self.noted = Instant::now();
        }
        is_due
    }

    fn is_stopped(&mut self, what: &str) -> bool {
        self.outbox.tick();
        if self.outbox.stop_asked() {
            self.is_stopped = true;
        }
        if self.looked.elapsed() >= NOTE_EVERY {
            self.looked = Instant::now();
            self.outbox.say(&self.tally.text(what, None));
            // Whoever pauses the stage wants quiet now; the parcel goes back, and on from here later.
            let paused = self.home.engine.paused(&self.home.stage);
            self.is_stopped |= matches!(paused, Ok(Some(_)));
        }
        if self.log.is_due(LOG_EVERY) {
            tracing::info!(progress = self.tally.text(what, None), "checking");
        }
        self.is_stopped
    }
}

/// What came of the names of a parcel.
#[derive(Default)]
struct Figures {
    verdicts: BTreeMap<&'static str, u64>,
    classes: BTreeMap<&'static str, u64>,
    www: BTreeMap<&'static str, u64>,
    hints: BTreeMap<&'static str, u64>,
}

impl Figures {
    fn count(&mut self, line: &CheckedLine) {
        *self.verdicts.entry(line.verdict().as_str()).or_default() += 1;
        *self.classes.entry(line.class.as_str()).or_default() += 1;
        if let Some(class) = line.www {
            *self.www.entry(class.as_str()).or_default() += 1;
        }
        for hint in &line.hints {
            *self.hints.entry(hint.as_str()).or_default() += 1;
        }
    }

    fn tell(self, names: usize, outbox: &mut Outbox) {
        let of = |verdict| self.verdicts.get(verdict).copied().unwrap_or(0);
        tracing::info!(
            names,
            present = of("present"),
            absent = of("absent"),
            unknown = of("unknown"),
            "names were checked"
        );
        outbox.fact("names", names);
        for (key, counts) in [
            ("verdicts", self.verdicts),
            ("classes", self.classes),
            ("www-classes", self.www),
            ("hints", self.hints),
        ] {
            outbox.fact(key, serde_json::json!(counts));
        }
    }
}

/// Says what came of each resolver, and who was wrong.
fn tell_resolvers(asker: &Asker, outbox: &mut Outbox) {
    let mut told = serde_json::Map::new();
    for (address, counts) in asker.counts() {
        if counts.wrongly_denied > 0 {
            tracing::warn!(
                resolver = %address,
                names = counts.wrongly_denied,
                "resolver denies names that others know: is it a good one?"
            );
        }
        told.insert(address.to_string(), serde_json::json!(counts));
    }
    outbox.fact("resolvers", told);
}

/// The names whose web servers may be asked.
fn hosts_of(line: &CheckedLine) -> Vec<String> {
    let name = &line.name;
    let own = line.class.has_address().then(|| name.clone());
    let has_www = line.www.is_some_and(DnsClass::has_address);
    own.into_iter()
        .chain(has_www.then(|| format!("www.{name}")))
        .collect()
}

/// The name of this machine, as the crawl's table of turns has it.
fn host_name() -> String {
    let name = std::env::var("ECLUSE_HOST").unwrap_or_else(|_| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    });
    let safe = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => letter,
        _ => '_',
    };
    name.chars().map(safe).take(60).collect()
}
