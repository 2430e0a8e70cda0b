//! The check of one parcel: rounds over its names, then where they lead, then the list.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ecluse_names::{CheckedLine, DnsClass, ForcedRules, RedirectKind};
use ecluse_register::Register;
use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId};

use crate::asker::Asker;
use crate::check::{CheckEnd, NameChecker, NameToCheck, is_settled};
use crate::hints::HintLists;
use crate::list::{ListedName, NAMES, NameList};
use crate::progress::Progress;
use crate::redirects::{NameToFollow, RedirectError, RedirectSettings, follow};
use crate::report::Report;
use crate::settings::Settings;
use crate::tally::{CheckTally, grouped};
use crate::unsettled::Unsettled;

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
        let list = NameList::open(parcel)?;
        let file = parcel.manifest().file(NAMES);
        let of = format!(
            "{} {}",
            file.map_or("", |file| &file.sha256),
            self.settings.mark()
        );
        let today = now().strftime("%Y%m%d").to_string();
        let mut progress = Progress::open(self.home, parcel.id(), list.names, &of, &today)?;
        self.rounds(&list, &mut progress, outbox)?;
        if self.settings.redirects {
            self.follow(&list, &mut progress, outbox)?;
        }
        self.write(parcel, &list, progress, outbox)
    }

    /// Asks of every name that is not settled, once more than it was.
    fn rounds(
        &self,
        list: &NameList<'_>,
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let numbers = 0..list.names;
        let todo = numbers
            .clone()
            .filter(|number| !progress.is_settled(*number));
        let todo = todo.count();
        let is_new = numbers.into_iter().any(|number| !progress.is_known(number));
        if todo == 0 || (progress.rounds > self.settings.later && !is_new) {
            return Ok(());
        }
        let left = self.round(list, todo, progress, outbox)?;
        if left > 0 && progress.rounds <= self.settings.later {
            return Err(Failure::defer(format!(
                "{} of {} names have no answer yet: they are asked again ({} of {} times)",
                grouped(left),
                grouped(list.names as u64),
                progress.rounds,
                self.settings.later
            )));
        }
        Ok(())
    }

    /// Asks of the names that are not settled; returns how many are not settled then.
    fn round(
        &self,
        list: &NameList<'_>,
        todo: usize,
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<u64, Failure> {
        let resolvers = self.settings.resolvers().map_err(Failure::config)?;
        let mut asker = Asker::open(&resolvers, self.settings.ask_limits())?;
        let settings = self.settings.check_settings();
        let watch = RefCell::new(Watch::new(self.home, outbox, list.names, todo));
        let progress = RefCell::new(progress);
        let mut names = list.reader()?;
        let mut next = || -> Result<Option<NameToCheck>, Failure> {
            while let Some((number, listed)) = names.next()? {
                let mut progress = progress.borrow_mut();
                if !progress.is_settled(number) {
                    return Ok(Some(NameToCheck {
                        number: number as u64,
                        name: listed.name,
                        before: progress.line(number)?,
                    }));
                }
            }
            Ok(None)
        };
        // Kept until the round is over: what failed because the network did is asked again.
        let mut unsettled = Unsettled::new(&self.home.temporary());
        let mut sink = |number: u64, line: CheckedLine| -> Result<(), Failure> {
            watch.borrow_mut().tally.count();
            match is_settled(&line) {
                true => progress.borrow_mut().note(number, &line)?,
                false => unsettled.push(number, &line)?,
            }
            if watch.borrow_mut().is_note_due() {
                progress.borrow_mut().flush()?;
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
        let progress = progress.into_inner();
        progress.flush()?;
        match end? {
            CheckEnd::Done => {}
            CheckEnd::Stopped => return Err(Failure::give_back()),
            CheckEnd::NoResolver(why) => return Err(Failure::defer(why)),
        }
        let left = unsettled.names;
        unsettled.read(&mut |number, line| progress.note(number, line))?;
        progress.end_round()?;
        Ok(left)
    }

    /// Asks web servers where names lead.
    fn follow(
        &self,
        list: &NameList<'_>,
        progress: &mut Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let is_to_follow = |progress: &Progress, number: usize, listed: &ListedName| {
            progress.has_address(number)
                && !progress.has_redirect(number)
                && !listed.is_not_followed
        };
        let (mut todo, mut names) = (0, list.reader()?);
        while let Some((number, listed)) = names.next()? {
            todo += usize::from(is_to_follow(progress, number, &listed));
        }
        if todo == 0 {
            return Ok(());
        }
        let paces = self.home.path(&self.settings.paces).join(host_name());
        let temporary = self.home.temporary();
        let forced = ForcedRules::read(&self.home.path(&self.settings.forced));
        let settings = RedirectSettings {
            connections: self.settings.connections.max(1) as usize,
            ports: self.settings.ports,
            allow_private: self.settings.allow_private,
            resolvers: self.settings.resolvers().map_err(Failure::config)?,
            contact: &self.home.site.contact,
            paces: &paces,
            temporary: &temporary,
            forced: Rc::new(forced.map_err(Failure::config)?),
        };
        let followed = (0..list.names).filter(|number| progress.has_redirect(*number));
        let total = todo + followed.count();
        let watch = RefCell::new(Watch::new(self.home, outbox, total, todo));
        let progress = RefCell::new(progress);
        let mut names = list.reader()?;
        let followed = follow(
            &settings,
            &mut || {
                while let Some((number, listed)) = names.next().map_err(io::Error::other)? {
                    let mut progress = progress.borrow_mut();
                    if !is_to_follow(&progress, number, &listed) {
                        continue;
                    }
                    let hosts = progress.line(number)?.as_ref().map(hosts_of);
                    return Ok(Some(NameToFollow {
                        number: number as u64,
                        hosts: hosts.unwrap_or_default(),
                    }));
                }
                Ok(None)
            },
            &mut |number, found| {
                watch.borrow_mut().tally.count();
                progress.borrow_mut().note_redirect(number, found)?;
                if watch.borrow_mut().is_note_due() {
                    progress.borrow_mut().flush()?;
                }
                Ok(())
            },
            &mut || watch.borrow_mut().is_stopped("names followed"),
        );
        progress.into_inner().flush()?;
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
        list: &NameList<'_>,
        mut progress: Progress,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let mut results = Results::new(self.hints);
        if self.home.next.is_empty() {
            let directory = self.home.path(&self.settings.reports);
            let name = format!("{}.tsv", parcel.id());
            let mut report = Report::begin(&directory, &name)?;
            results.write(list, &mut progress, &mut report.file)?;
            report.show()?;
            outbox.fact("report", name);
        } else {
            let mut file = BufWriter::new(outbox.create(CHECKED)?);
            results.write(list, &mut progress, &mut file)?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            outbox.attach(file)?;
        }
        if self.settings.redirects {
            let new = self.new_sites(list, results.sites)?;
            self.send_back(parcel, &new, outbox)?;
            outbox.fact("new-sites", new.len());
        }
        outbox.fact("checked", progress.begun.as_str());
        results.figures.tell(list.names, outbox);
        Ok(())
    }

    /// Leaves out what the parcel or the register has.
    fn new_sites(
        &self,
        list: &NameList<'_>,
        mut sites: BTreeSet<String>,
    ) -> Result<Vec<String>, Failure> {
        let mut names = list.reader()?;
        while let Some((_, listed)) = names.next()? {
            sites.remove(&listed.site);
        }
        let register = Register::at(&self.home.register()).map_err(Failure::halt)?;
        let mut new = Vec::new();
        for site in sites {
            if register.lookup(&site).map_err(Failure::halt)?.is_none() {
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

/// What is found out while the list is written.
struct Results<'a> {
    hints: &'a HintLists,
    figures: Figures,
    /// Where names lead.
    sites: BTreeSet<String>,
}

impl<'a> Results<'a> {
    fn new(hints: &'a HintLists) -> Self {
        Self {
            hints,
            figures: Figures::default(),
            sites: BTreeSet::new(),
        }
    }

    /// Writes what is known of every name, in the order of the list.
    fn write(
        &mut self,
        list: &NameList<'_>,
        progress: &mut Progress,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let (mut names, mut text) = (list.reader()?, Vec::new());
        while let Some((number, listed)) = names.next()? {
            let mut line = progress.line(number)?.ok_or_else(|| {
                let name = &listed.name;
                Failure::halt(format!("nothing is known of {name}, which was asked"))
            })?;
            let found = progress.redirect(number)?.flatten();
            if let Some(found) = &found
                && found.kind == RedirectKind::Other
            {
                self.sites.insert(found.domain.clone());
            }
            line.hints
                .extend(found.iter().flat_map(|found| self.hints.of_redirect(found)));
            line.evidence.redirect = found;
            self.figures.count(&line);
            text.clear();
            line.write(&mut text)?;
            out.write_all(&text)?;
        }
        Ok(())
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

/// The time; in a trial, what a file says that plan takes it from.
fn now() -> jiff::Timestamp {
    let file = std::env::var_os("ECLUSE_CLOCK_FILE");
    let text = file.and_then(|path| std::fs::read_to_string(path).ok());
    let time = text.and_then(|text| text.trim().parse().ok());
    time.unwrap_or_else(jiff::Timestamp::now)
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
