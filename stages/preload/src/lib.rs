//! Makes one list of names of every list the library has, and says what each list brought.
//!
//! * **Reads** a batch of parcels, each with one source list and perhaps its sidecar, or what stands for a list in the sources'
//!   directory; every other list in that directory, to count it; the register; and the librarians' rules.
//! * **Writes** parcels of kind `names`, each with at most 100,000 names of the batch, sorted, with their origins; and a directory
//!   of reports for the run: statistics of all lists as they stand, and every rejected line with its number. The batch is consumed. Named files become one list on
//!   standard output instead.
//! * **Never** drops a line without counting it, changes or removes a list, or holds the names in memory.
//! * **Defers** a list that changed while it was read. **Holds** a list that cannot be unpacked, has not the column it should, or
//!   has a sidecar that says something else; and a list that is gone. A list that is read to be counted only holds nothing up.
//! * **Again**: the same lists, rules and register give the same bytes.

mod gather;
mod lines;
mod rejects;
mod report;
mod run;
mod sites;
mod source;
mod source_file;
mod statistics;
mod watch;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ecluse_config::Bytes;
use ecluse_names::{ForcedRules, MOST_NAMES, NameLine};
use ecluse_register::Register;
use ecluse_stage::{
    Blame, Exit, Failure, Home, Inbox, Intake, NewParcel, OutFile, Outbox, Parcel, ParcelId,
    SettingsCheck, Stage,
};
use serde::Deserialize;

use crate::gather::SOURCES;
use crate::report::RunReport;
use crate::run::{ListRole, NameSink, Run, RunError, RunSettings};
use crate::source::{SIDECAR, SIDECAR_BYTES, SIDECAR_END, SourceList, name_of, parts};
use crate::source_file::{KIND, SOURCE_FILE, SourceFile};
use crate::statistics::{LeftOut, Statistics};
use crate::watch::SourceDirectory;

/// The stage.
pub struct Preload {
    settings: Settings,
    home: Home,
    directory: SourceDirectory,
}

/// What `[stage.preload]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Where the library puts its lists: a directory for each kind.
    pub sources: PathBuf,
    /// What librarians force in and out.
    pub forced: PathBuf,
    /// Where the reports of each run go.
    pub reports: PathBuf,
    /// How many names a parcel has at most.
    pub list: NonZeroU32,
    /// A longer line is rejected.
    pub line: Bytes,
    /// How much memory a run takes; more names are sorted on disk.
    pub memory: Bytes,
}

impl Settings {
    fn of_run(&self, temporary: PathBuf) -> RunSettings {
        let size = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        RunSettings {
            memory_bytes: size(self.memory),
            line_bytes: size(self.line).max(1),
            temporary,
        }
    }
}

/// A list to be read.
struct RunList<'a> {
    list: SourceList,
    /// The parcel it has, or would have.
    id: ParcelId,
    /// The parcel it came in; none where it is read to be counted only.
    parcel: Option<&'a Parcel>,
    place: ListPlace,
}

/// What became of a run.
enum RunEnd {
    /// It is done.
    Done,
    /// A list that is read to be counted only cannot be read, by its place: the run must be done without it.
    Without(usize, String),
}

/// Where a list is.
enum ListPlace {
    /// In its parcel.
    Parcel(String),
    /// In the sources' directory.
    Directory(Box<SourceFile>),
}

impl Stage for Preload {
    const NAME: &'static str = "preload";
    const ABOUT: &'static str =
        "Makes one list of names of every list the library has, and says what each list brought";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;
    const FILTER: Option<&'static str> = Some(
        "Source lists, plain, gzip or zstd: they become one list of names on standard output; the figures go to standard error",
    );

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("stage.preload.sources", &settings.sources);
        check.directory("stage.preload.reports", &settings.reports);
        if settings.list.get() > MOST_NAMES {
            check.error(
                "stage.preload.list",
                format!("a list has at most {MOST_NAMES} names: dns-filter takes no longer one"),
            );
        }
        if let Err(fault) = ForcedRules::read(&home.path(&settings.forced)) {
            check.error("stage.preload.forced", fault);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            directory: SourceDirectory::new(home.path(&settings.sources), home.shell.settle.0),
            home: home.clone(),
            settings,
        })
    }

    fn watched(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.path(&settings.sources)]
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.path(&settings.reports)]
    }

    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        inbox.take_news();
        let look = self.directory.look()?;
        for file in &look.found {
            let (id, bytes) = file.parcel();
            inbox.put(&id, KIND, (SOURCE_FILE, &bytes))?;
        }
        Ok(look.settling.len())
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let mut lists = Vec::new();
        for parcel in batch {
            let list = list_of(parcel).map_err(|failure| failure.of_member(parcel.id()))?;
            lists.extend(list);
        }
        must_be_clear(&mut lists)?;
        must_be_few(&lists)?;
        let is_stopped = || {
            outbox.tick();
            outbox.stop_asked()
        };
        let mut left_out = self.stand_beside(&mut lists, &is_stopped)?;
        let rules =
            ForcedRules::read(&self.home.path(&self.settings.forced)).map_err(Failure::config)?;
        outbox.consume();
        loop {
            let run = id_of_run(batch, &lists, &left_out);
            match self.run(&lists, &left_out, &run, &rules, outbox)? {
                RunEnd::Done => return Ok(()),
                RunEnd::Without(place, reason) => {
                    left_out.push(lists.remove(place).left_out(reason));
                }
            }
        }
    }

    const FILTER_REPORTS: Option<&'static str> = Some(
        "With FILE: makes this directory, with statistics.txt, .csv and .json and every rejected line in rejects.tsv.zst",
    );

    fn filter(settings: Settings, files: &[PathBuf], out: &mut dyn Write) -> Result<Exit, Failure> {
        if let Some(figures) = filter(&settings, files, out, &mut io::sink())? {
            eprint!("{}", figures.text());
        }
        Ok(Exit::Done)
    }

    fn filter_with_reports(
        settings: Settings,
        files: &[PathBuf],
        out: &mut dyn Write,
        reports: &Path,
    ) -> Result<Exit, Failure> {
        let shown = reports.display();
        let Some(name) = reports.file_name().and_then(OsStr::to_str) else {
            return Err(Failure::config(format!("{shown} cannot name a directory")));
        };
        if reports.symlink_metadata().is_ok() {
            return Err(Failure::config(format!(
                "{shown} is there already: --reports makes a new directory"
            )));
        }
        let beside = match reports.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut report = RunReport::begin(beside, name)?;
        if let Some(figures) = filter(&settings, files, out, report.rejects())? {
            report.publish(&figures)?;
            eprint!("{}", figures.text());
        }
        Ok(Exit::Done)
    }
}

/// Makes one list of files; returns the figures, or none when nobody reads the list to its end.
fn filter(
    settings: &Settings,
    files: &[PathBuf],
    out: &mut dyn Write,
    rejects: &mut dyn Write,
) -> Result<Option<Statistics>, Failure> {
    let mut lists = Vec::new();
    for file in files {
        lists.push((list_of_file(file).map_err(Failure::hold)?, file));
    }
    lists.sort_by(|left, right| (&left.0.name, left.1).cmp(&(&right.0.name, right.1)));
    for pair in lists.windows(2) {
        let confused = confused((&pair[0].0, pair[0].1), (&pair[1].0, pair[1].1));
        confused.map_or(Ok(()), |reason| Err(Failure::hold(reason)))?;
    }
    let names: Vec<(&SourceList, bool)> = lists
        .iter()
        .map(|(list, _)| (list, list.is_whole(true)))
        .collect();
    let rules = ForcedRules::read(&settings.forced).map_err(Failure::config)?;
    let of_run = settings.of_run(std::env::temp_dir());
    let mut run = Run::new(&names, &of_run, &rules).map_err(|error| blame(error, None))?;
    let never = || false;
    for (list, file) in &lists {
        let shown = file.display().to_string();
        let source = open_file(file)
            .map_err(|error| Failure::hold(format!("cannot open {shown}: {error}")))?;
        let list = (list, ListRole::Given);
        let taken = run.take(list, &shown, source, rejects, &never);
        taken.map_err(|error| blame(error, None))?;
    }
    run.force().map_err(|error| blame(error, None))?;
    let mut sink = ListSink(BufWriter::with_capacity(256 << 10, out));
    let finished = run.finish(None, &mut sink, &never).and_then(|figures| {
        sink.0.flush().map_err(RunError::Output)?;
        Ok(figures)
    });
    match finished {
        Ok(figures) => Ok(Some(figures)),
        Err(RunError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(blame(error, None)),
    }
}

impl Preload {
    /// Adds the other lists in the sources' directory, to be counted with those of the batch; returns those that cannot be.
    fn stand_beside(
        &mut self,
        lists: &mut Vec<RunList<'_>>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Vec<LeftOut>, Failure> {
        let look = self.directory.look_at_rest(is_stopped)?;
        let mut left_out = Vec::new();
        for path in look.settling {
            left_out.push(left_out_of(&path, "it is still being written".to_owned()));
        }
        for (path, reason) in look.unread {
            left_out.push(left_out_of(&path, reason));
        }
        for found in look.found {
            let is_same = |list: &RunList<'_>| matches!(&list.place, ListPlace::Directory(known) if known.path == found.path);
            if lists.iter().any(is_same) {
                continue;
            }
            match found.list() {
                Ok(list) => lists.push(RunList {
                    list: list.clone(),
                    id: found.parcel().0,
                    parcel: None,
                    place: ListPlace::Directory(Box::new(found)),
                }),
                Err(problem) => left_out.push(left_out_of(Path::new(&found.path), problem)),
            }
        }
        sort(lists);
        let mut sources: BTreeSet<String> = lists
            .iter()
            .filter(|list| list.parcel.is_some())
            .map(|list| list.list.name.clone())
            .collect();
        let mut kept: Vec<RunList<'_>> = Vec::new();
        for list in lists.drain(..) {
            let name = &list.list.name;
            let before = kept.iter().rev().find(|kept| kept.is_directory());
            let reason = match before.and_then(|before| before.confused_with(&list)) {
                Some(reason) if list.parcel.is_some() => {
                    return Err(Failure::hold(reason).of_member(&list.id));
                }
                None if sources.contains(name) => None,
                None if sources.len() < SOURCES => {
                    sources.insert(name.clone());
                    None
                }
                None => Some(format!("a run has {SOURCES} sources at most")),
                told => told,
            };
            match reason {
                Some(reason) => left_out.push(list.left_out(reason)),
                None => kept.push(list),
            }
        }
        *lists = kept;
        Ok(left_out)
    }

    fn run(
        &self,
        lists: &[RunList<'_>],
        left_out: &[LeftOut],
        run_id: &ParcelId,
        rules: &ForcedRules,
        outbox: &mut Outbox,
    ) -> Result<RunEnd, Failure> {
        let register = Register::at(&self.home.register()).map_err(Failure::halt)?;
        let generation = register.current().map_err(Failure::halt)?;
        let reader = generation
            .map(|number| register.read(number))
            .transpose()
            .map_err(Failure::halt)?;
        let reports = self.home.path(&self.settings.reports);
        let mut report = RunReport::begin(&reports, run_id.as_str())?;
        let of_run = self.settings.of_run(self.home.temporary());
        let names: Vec<(&SourceList, bool)> = lists
            .iter()
            .map(|list| (&list.list, list.list.is_whole(list.is_directory())))
            .collect();
        let mut run = Run::new(&names, &of_run, rules).map_err(|error| blame(error, None))?;
        run.figures.leave_out(left_out);
        for (place, list) in lists.iter().enumerate() {
            let is_stopped = || {
                outbox.tick();
                outbox.stop_asked()
            };
            match list.read(&mut run, report.rejects(), &is_stopped) {
                Ok(()) => {}
                Err(failure) if list.parcel.is_none() && is_of_list(&failure) => {
                    return Ok(RunEnd::Without(place, failure.reason));
                }
                Err(failure) => return Err(failure),
            }
        }
        run.force().map_err(|error| blame(error, None))?;
        let has_next = !self.home.next.is_empty();
        let is_stopped = || false;
        let mut figures = if has_next {
            let mut sink = ParcelSink::new(outbox, run_id, self.settings.list.get());
            let figures = run.finish(reader, &mut sink, &is_stopped);
            let figures = figures
                .map_err(|error| sink.failure.take().unwrap_or_else(|| blame(error, None)))?;
            sink.close()?;
            figures
        } else {
            let mut sink = report.names()?;
            let figures = run
                .finish(reader, &mut sink, &is_stopped)
                .map_err(|error| blame(error, None))?;
            sink.finish()?;
            figures
        };
        figures.register = generation;
        report.publish(&figures)?;
        outbox.fact("report", run_id.as_str());
        outbox.fact("names", figures.given);
        outbox.fact("domains", figures.domains);
        outbox.fact("new-domains", figures.new_domains);
        for source in &figures.sources {
            let told = serde_json::json!({
                "lines": source.lines, "accepted": source.accepted, "rejected": source.rejected(),
                "duplicates": source.own_duplicates + source.other_duplicates,
                "domains": source.domains, "exclusive-domains": source.exclusive,
            });
            outbox.fact(&format!("source {}", source.name), told);
        }
        if let Some(number) = generation {
            outbox.fact("register", number);
        }
        if let Some(text) = rules.text() {
            outbox.fact("forced", ecluse_stage::digest(text.as_bytes()));
        }
        tracing::info!(
            run = run_id.as_str(),
            names = figures.names,
            domains = figures.domains,
            "lists became names"
        );
        for list in left_out {
            let (file, reason) = (list.file.as_str(), list.reason.as_str());
            tracing::warn!(file, reason, "a list is not counted");
        }
        Ok(RunEnd::Done)
    }
}

/// Puts lists in the order in which they are read.
fn sort(lists: &mut [RunList<'_>]) {
    lists.sort_by(|left, right| {
        (&left.list.name, left.path(), &left.id).cmp(&(&right.list.name, right.path(), &right.id))
    });
}

/// Puts the lists of a batch in order, and holds one that would be taken for a list of another source.
fn must_be_clear(lists: &mut [RunList<'_>]) -> Result<(), Failure> {
    sort(lists);
    for pair in lists.windows(2) {
        if let Some(reason) = pair[0].confused_with(&pair[1]) {
            return Err(Failure::hold(reason).of_member(&pair[1].id));
        }
    }
    Ok(())
}

/// Returns the name of a run: another for other lists, and for others that are left out.
fn id_of_run(batch: &[Parcel], lists: &[RunList<'_>], left_out: &[LeftOut]) -> ParcelId {
    let mut ids: Vec<ParcelId> = batch.iter().map(|parcel| parcel.id().clone()).collect();
    let standing = lists.iter().filter(|list| list.parcel.is_none());
    ids.extend(standing.map(|list| list.id.clone()));
    for list in left_out {
        let why = ecluse_stage::digest(list.reason.as_bytes());
        ids.push(ParcelId::for_file(list.file.as_ref(), &why));
    }
    ParcelId::of_batch("names", &ids)
}

/// Tells whether a list is at fault, or whoever changes it; not the machine, and not a wish to stop.
fn is_of_list(failure: &Failure) -> bool {
    matches!(failure.blame, Blame::Parcel | Blame::World)
}

fn left_out_of(path: &Path, reason: String) -> LeftOut {
    LeftOut {
        source: name_of(&parts(path).1),
        file: path.as_os_str().as_bytes().escape_ascii().to_string(),
        reason,
    }
}

/// Returns the list of a parcel; none where the file has become another, which has a parcel of its own.
fn list_of(parcel: &Parcel) -> Result<Option<RunList<'_>>, Failure> {
    let files = &parcel.manifest().files;
    if let [file] = files.as_slice()
        && file.name == SOURCE_FILE
    {
        let found = SourceFile::parse(&read_small(parcel, SOURCE_FILE)?).map_err(Failure::hold)?;
        let list = match found.list() {
            Ok(list) => list.clone(),
            Err(problem) => return Err(Failure::hold(problem)),
        };
        if !found.is_current()? {
            tracing::info!(
                file = found.shown,
                "changed since it was seen: left to its next parcel"
            );
            return Ok(None);
        }
        let place = ListPlace::Directory(Box::new(found));
        return Ok(Some(RunList {
            list,
            id: parcel.id().clone(),
            parcel: Some(parcel),
            place,
        }));
    }
    let mut lists = files.iter().filter(|file| file.name != SIDECAR);
    let (Some(file), None) = (lists.next(), lists.next()) else {
        return Err(Failure::hold(format!(
            "{} has not one list but {} files",
            parcel.id(),
            files.len()
        )));
    };
    let sidecar = match parcel.manifest().file(SIDECAR) {
        Some(_) => Some(read_small(parcel, SIDECAR)?),
        None => None,
    };
    let called = parcel.manifest().original.as_deref().unwrap_or(&file.name);
    let list = SourceList::of(called, "", sidecar.as_deref()).map_err(Failure::hold)?;
    let place = ListPlace::Parcel(file.name.clone());
    Ok(Some(RunList {
        list,
        id: parcel.id().clone(),
        parcel: Some(parcel),
        place,
    }))
}

/// Says that two lists of two directories have one name by chance: they would be taken for one source.
fn confused(one: (&SourceList, &Path), other: (&SourceList, &Path)) -> Option<String> {
    let is_same = one.0.name == other.0.name && one.1.parent() != other.1.parent();
    let is_meant = one.0.is_named && other.0.is_named;
    (is_same && !is_meant).then(|| {
        format!(
            "{} and {} would both be the source {}: say `name = \"…\"` in {}{SIDECAR_END}, or the same name in the sidecars of both",
            one.1.display(),
            other.1.display(),
            one.0.name,
            other.1.display()
        )
    })
}

/// Lets the lists of a source more than a run can have wait for the next run.
fn must_be_few(lists: &[RunList<'_>]) -> Result<(), Failure> {
    let mut sources = 0;
    for (at, list) in lists.iter().enumerate() {
        sources += usize::from(at == 0 || lists[at - 1].list.name != list.list.name);
        if sources > SOURCES {
            let reason = format!("a run has {SOURCES} sources at most: it waits for the next one");
            return Err(Failure::defer(reason).of_member(&list.id));
        }
    }
    Ok(())
}

fn read_small(parcel: &Parcel, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = parcel
        .open(name)?
        .take(SIDECAR_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| Failure::hold(format!("{name} of {}: {error}", parcel.id())))?;
    Ok(text)
}

impl RunList<'_> {
    fn is_directory(&self) -> bool {
        matches!(self.place, ListPlace::Directory(_))
    }

    /// Returns where it lies, as people read it; nothing for a list in its parcel.
    fn path(&self) -> &str {
        match &self.place {
            ListPlace::Parcel(_) => "",
            ListPlace::Directory(found) => &found.shown,
        }
    }

    /// Says that another list in the directory has its source's name by chance.
    fn confused_with(&self, other: &Self) -> Option<String> {
        let (ListPlace::Directory(one), ListPlace::Directory(two)) = (&self.place, &other.place)
        else {
            return None;
        };
        confused(
            (&self.list, Path::new(&one.path)),
            (&other.list, Path::new(&two.path)),
        )
    }

    fn left_out(self, reason: String) -> LeftOut {
        LeftOut {
            file: self.path().to_owned(),
            source: self.list.name,
            reason,
        }
    }

    /// Reads the list into a run.
    fn read(
        &self,
        run: &mut Run<'_>,
        rejects: &mut dyn Write,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let of_list = |failure: Failure| match self.parcel {
            Some(parcel) => failure.of_member(parcel.id()),
            None => failure,
        };
        let role = match self.parcel {
            Some(_) => ListRole::Given,
            None => ListRole::Standing,
        };
        let (source, file) = self.open().map_err(of_list)?;
        let taken = run.take((&self.list, role), &file, source, rejects, is_stopped);
        taken.map_err(|error| blame(error, self.parcel.map(Parcel::id)))?;
        self.must_be_as_found().map_err(of_list)
    }

    /// Opens the list; returns what it is called, too.
    fn open(&self) -> Result<(Box<dyn Read>, String), Failure> {
        match &self.place {
            ListPlace::Parcel(name) => {
                let parcel = self.parcel.expect("a list in a parcel has one");
                Ok((Box::new(parcel.open(name)?), name.clone()))
            }
            ListPlace::Directory(found) => {
                let file = open_file(Path::new(&found.path));
                let file = file.map_err(|error| {
                    Failure::defer(format!("cannot read {}: {error}", found.shown))
                })?;
                Ok((file, found.name()))
            }
        }
    }

    /// Defers when the list has changed while it was read.
    fn must_be_as_found(&self) -> Result<(), Failure> {
        match &self.place {
            ListPlace::Directory(found) if !found.is_current()? => Err(Failure::defer(format!(
                "{} changed while it was read",
                found.shown
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the list of a file that was named on the command line.
fn list_of_file(file: &Path) -> Result<SourceList, String> {
    if file == Path::new("-") {
        return SourceList::of("standard-input", "", None);
    }
    let (directory, name) = parts(file);
    SourceList::of(&name, &directory, sidecar_of(file)?.as_deref())
}

/// Returns the sidecar beside a list, where there is one.
fn sidecar_of(file: &Path) -> Result<Option<String>, String> {
    let mut path = file.as_os_str().to_owned();
    path.push(SIDECAR_END);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!(
            "cannot read {}: {error}",
            Path::new(&path).display()
        )),
    }
}

fn open_file(file: &Path) -> io::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(std::fs::File::open(file)?))
}

/// Says who is at fault.
fn blame(error: RunError, member: Option<&ParcelId>) -> Failure {
    match (error, member) {
        (RunError::Stopped, _) => Failure::give_back(),
        (error @ RunError::Source { .. }, Some(member)) => Failure::hold(error).of_member(member),
        (error @ (RunError::Source { .. } | RunError::TooMany(_)), _) => Failure::hold(error),
        (error, _) => Failure::halt(error),
    }
}

/// One list, written whole.
struct ListSink<Out: Write>(Out);

impl<Out: Write> NameSink for ListSink<Out> {
    fn name(&mut self, line: &NameLine<'_>) -> io::Result<()> {
        line.write(&mut self.0)
    }

    fn seed(&mut self, _name: &str, _source: &str, _url: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Parcels of names for the next stage.
struct ParcelSink<'a> {
    outbox: &'a mut Outbox,
    run: &'a ParcelId,
    most: u32,
    parcels: u32,
    open: Option<OpenParcel>,
    /// What stopped it, with its blame.
    failure: Option<Failure>,
}

struct OpenParcel {
    parcel: NewParcel,
    /// In larger pieces than a column: each goes through the digest and the clock.
    names: BufWriter<OutFile>,
    seeds: Option<OutFile>,
    count: u32,
}

impl<'a> ParcelSink<'a> {
    fn new(outbox: &'a mut Outbox, run: &'a ParcelId, most: u32) -> Self {
        Self {
            outbox,
            run,
            most,
            parcels: 0,
            open: None,
            failure: None,
        }
    }

    fn close(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let mut parcel = open.parcel;
        let names = open.names.into_inner();
        parcel.add(names.map_err(io::IntoInnerError::into_error)?)?;
        if let Some(seeds) = open.seeds {
            parcel.add(seeds)?;
        }
        Ok(self.outbox.emit(parcel)?)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.close()?;
        if self.outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        self.parcels += 1;
        let id = ParcelId::new(&format!("{}-{:05}", self.run, self.parcels));
        let mut parcel = self.outbox.parcel(id.map_err(Failure::halt)?, "names")?;
        let names = BufWriter::with_capacity(64 << 10, parcel.create("names.tsv")?);
        self.open = Some(OpenParcel {
            parcel,
            names,
            seeds: None,
            count: 0,
        });
        Ok(())
    }

    fn at_fault(&mut self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.reason.clone());
        self.failure = Some(failure);
        error
    }
}

impl NameSink for ParcelSink<'_> {
    fn name(&mut self, line: &NameLine<'_>) -> io::Result<()> {
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.count >= self.most)
        {
            self.begin().map_err(|failure| self.at_fault(failure))?;
        }
        let open = self.open.as_mut().expect("one was begun");
        open.count += 1;
        line.write(&mut open.names)
    }

    fn seed(&mut self, name: &str, source: &str, url: &str) -> io::Result<()> {
        let open = self.open.as_mut().expect("a seed comes after its name");
        if open.seeds.is_none() {
            match open.parcel.create("seeds.tsv") {
                Ok(file) => open.seeds = Some(file),
                Err(error) => {
                    let failure = Failure::from(error);
                    return Err(self.at_fault(failure));
                }
            }
        }
        let seeds = open.seeds.as_mut().expect("it was made just now");
        writeln!(seeds, "{name}\t{source}\t{url}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_run() {
        let text = "[stage.preload]\nmemory = \"3 MiB\"\nline = \"5 B\"\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("preload").unwrap();
        let run = settings.of_run(PathBuf::new());
        assert_eq!((run.memory_bytes, run.line_bytes), (3 << 20, 5));
    }

    #[test]
    fn lists_of_two_directories_are_two_sources() {
        let list = |sidecar| SourceList::of("afnic.txt", "registry", sidecar).unwrap();
        let (plain, named) = (list(None), list(Some("name = \"afnic\"")));
        let paths = ["a/afnic.txt", "b/afnic.txt", "a/afnic.csv"].map(Path::new);
        let told = confused((&plain, paths[0]), (&plain, paths[1])).unwrap();
        assert!(told.contains("b/afnic.txt.source.toml"), "{told}");
        assert!(confused((&plain, paths[0]), (&named, paths[1])).is_some());
        assert!(confused((&named, paths[0]), (&named, paths[1])).is_none());
        assert!(confused((&plain, paths[0]), (&plain, paths[2])).is_none());
    }
}
