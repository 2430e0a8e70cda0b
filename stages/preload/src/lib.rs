//! Makes one list of names of every list the library has, and says what each list brought.
//!
//! * **Reads** a batch of parcels, each with one source list and perhaps its sidecar, or what stands for a list in the sources'
//!   directory; the register; and the librarians' rules.
//! * **Writes** parcels of kind `names`, each with at most 100,000 names, sorted, with their origins; and a directory of reports for
//!   the run: statistics, and every rejected line with its number. The batch is consumed. Named files become one list on
//!   standard output instead.
//! * **Never** drops a line without counting it, changes or removes a list, or holds the names in memory.
//! * **Defers** a list that changed while it was read. **Holds** a list that cannot be unpacked, has not the column it should, or
//!   has a sidecar that says something else; and a list that is gone.
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

use std::io::{self, BufWriter, Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ecluse_config::Bytes;
use ecluse_names::{ForcedRules, MOST_NAMES, NameLine};
use ecluse_register::{Register, RegisterReader};
use ecluse_stage::{
    Exit, Failure, Home, Inbox, Intake, NewParcel, OutFile, Outbox, Parcel, ParcelId,
    SettingsCheck, Stage,
};
use serde::Deserialize;

use crate::gather::SOURCES;
use crate::report::RunReport;
use crate::run::{NameSink, Run, RunError, RunSettings};
use crate::source::{SIDECAR, SIDECAR_BYTES, SIDECAR_END, SourceList, parts};
use crate::source_file::{KIND, SOURCE_FILE, SourceFile};
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

/// A list to be read, with the parcel it came in.
struct RunList<'a> {
    list: SourceList,
    parcel: &'a Parcel,
    place: ListPlace,
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
        Ok(look.settling)
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
        lists.sort_by(|left, right| {
            (&left.list.name, left.parcel.id()).cmp(&(&right.list.name, right.parcel.id()))
        });
        for pair in lists.windows(2) {
            if let [ListPlace::Directory(one), ListPlace::Directory(other)] =
                [&pair[0].place, &pair[1].place]
                && let Some(reason) = confused(
                    (&pair[0].list, Path::new(&one.path)),
                    (&pair[1].list, Path::new(&other.path)),
                )
            {
                return Err(Failure::hold(reason).of_member(pair[1].parcel.id()));
            }
        }
        must_be_few(&lists)?;
        let ids: Vec<ParcelId> = batch.iter().map(|parcel| parcel.id().clone()).collect();
        let run = ParcelId::of_batch("names", &ids);
        let rules =
            ForcedRules::read(&self.home.path(&self.settings.forced)).map_err(Failure::config)?;
        let register = Register::at(&self.home.register()).map_err(Failure::halt)?;
        let generation = register.current().map_err(Failure::halt)?;
        let reader = generation
            .map(|number| register.read(number))
            .transpose()
            .map_err(Failure::halt)?;
        let report = RunReport::begin(&self.home.path(&self.settings.reports), run.as_str())?;
        self.run(&lists, &run, &rules, generation.zip(reader), report, outbox)
    }

    fn filter(settings: Settings, files: &[PathBuf], out: &mut dyn Write) -> Result<Exit, Failure> {
        let mut lists = Vec::new();
        for file in files {
            lists.push((list_of_file(file).map_err(Failure::hold)?, file));
        }
        lists.sort_by(|left, right| (&left.0.name, left.1).cmp(&(&right.0.name, right.1)));
        for pair in lists.windows(2) {
            let confused = confused((&pair[0].0, pair[0].1), (&pair[1].0, pair[1].1));
            confused.map_or(Ok(()), |reason| Err(Failure::hold(reason)))?;
        }
        let names: Vec<&SourceList> = lists.iter().map(|(list, _)| list).collect();
        let rules = ForcedRules::read(&settings.forced).map_err(Failure::config)?;
        let of_run = settings.of_run(std::env::temp_dir());
        let mut run = Run::new(&names, &of_run, &rules).map_err(|error| blame(error, None))?;
        let never = || false;
        for (list, file) in &lists {
            let shown = file.display().to_string();
            let source = open_file(file)
                .map_err(|error| Failure::hold(format!("cannot open {shown}: {error}")))?;
            let taken = run.take(list, &shown, source, &mut io::sink(), &never);
            taken.map_err(|error| blame(error, None))?;
        }
        run.force().map_err(|error| blame(error, None))?;
        let mut sink = ListSink(BufWriter::with_capacity(256 << 10, out));
        let figures = match run.finish(None, &mut sink, &never).and_then(|figures| {
            sink.0.flush().map_err(RunError::Output)?;
            Ok(figures)
        }) {
            Ok(figures) => figures,
            // Whoever read along has seen enough.
            Err(RunError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Exit::Done);
            }
            Err(error) => return Err(blame(error, None)),
        };
        eprint!("{}", figures.text());
        Ok(Exit::Done)
    }
}

impl Preload {
    fn run(
        &self,
        lists: &[RunList<'_>],
        run_id: &ParcelId,
        rules: &ForcedRules,
        register: Option<(u64, RegisterReader)>,
        mut report: RunReport,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        outbox.consume();
        let of_run = self.settings.of_run(self.home.temporary());
        let names: Vec<&SourceList> = lists.iter().map(|list| &list.list).collect();
        let mut run = Run::new(&names, &of_run, rules).map_err(|error| blame(error, None))?;
        for list in lists {
            let id = list.parcel.id();
            let (source, file) = list.open().map_err(|failure| failure.of_member(id))?;
            let is_stopped = || {
                outbox.tick();
                outbox.stop_asked()
            };
            let taken = run.take(&list.list, &file, source, report.rejects(), &is_stopped);
            taken.map_err(|error| blame(error, Some(id)))?;
            list.must_be_as_found()
                .map_err(|failure| failure.of_member(id))?;
        }
        run.force().map_err(|error| blame(error, None))?;
        let (generation, reader) = register.unzip();
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
        outbox.fact("names", figures.names);
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
        Ok(())
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
            parcel,
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
        parcel,
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
            return Err(Failure::defer(reason).of_member(list.parcel.id()));
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
    /// Opens the list; returns what it is called, too.
    fn open(&self) -> Result<(Box<dyn Read>, String), Failure> {
        match &self.place {
            ListPlace::Parcel(name) => Ok((Box::new(self.parcel.open(name)?), name.clone())),
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
