//! Makes the importance of pages and sites from their links.
//!
//! * **Reads** a batch of parcels of kind `links`, each with sorted `.links.zst` lists, and the current generation of `links/`; of `changes/` what texts weigh, and of the
//!   register, where the perimeter asks for it, languages and addresses.
//! * **Writes** the next generation: the links of every page, as its latest capture has them; numbers of URLs; slices of links; ranks,
//!   interests and relevances of every URL, and of sites. The members are consumed.
//! * **Never** needs the graph in memory, changes a generation that is there, or leaves readers with half of one.
//! * **Defers** while another has the directory. **Holds** a parcel without links, or with a line that makes no sense or is out of order.
//! * **Again**: the same links, with the same known of changes and sites, give the same bytes. Killed at any slice of any sweep, the same batch goes on from there. A parcel that a
//!   kept generation holds is not merged again.

mod criteria;
mod error;
mod evidence;
mod graph;
mod lines;
mod making;
mod number;
#[cfg(test)]
mod oracles;
mod outcome;
mod pairs;
mod settings;
mod state;
mod sweep;
mod texts;
mod vector;
mod workspace;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ecluse_cdx::{MergeError, ReadError};
use ecluse_generation::{
    BuilderLock, IndexDirectory, IndexGeneration, IndexMember, LastGeneration, SCHEMA, entry_of,
};
use ecluse_holding::pieces_of;
use ecluse_links::{
    LINKS_FILE, LINKS_HEADER, LineReader, LinksDirectory, LinksError, PageLinks, RANKS_FILE,
};
use ecluse_stage::{Failure, Home, Intake, Outbox, Parcel, ParcelId, SettingsCheck, Stage};

use crate::criteria::Criteria;
use crate::making::{Made, Making};
use crate::workspace::Workspace;

pub use crate::error::RankError;
pub use crate::evidence::RankSources;
pub use crate::graph::{GraphFiles, GraphWriter};
pub use crate::number::LinkPiece;
pub use crate::pairs::PairSorter;
pub use crate::settings::{
    InterestForm, KindName, RelevanceDirection, RelevanceSettings, Settings,
};
pub use crate::state::{StateLog, boot};
pub use crate::sweep::{DanglingRule, SweepRule, Sweeps, Swept};
pub use crate::vector::{NumberWriter, Vector};

/// The end of the names of lists of links.
const LINKS: &str = ".links.zst";

/// The stage.
pub struct Rank {
    settings: Settings,
    links: PathBuf,
    sources: RankSources,
}

impl Stage for Rank {
    const NAME: &'static str = "rank";
    const ABOUT: &'static str = "Makes the importance of pages and sites from their links";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("archive.links", &home.archive.links);
        for (key, message) in settings.faults() {
            check.error(key, message);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        if let Some((key, message)) = settings.faults().into_iter().next() {
            return Err(Failure::config(format!("'{key}': {message}")));
        }
        let (changes, register) = (home.changes(), home.register());
        Ok(Self {
            links: home.links(),
            sources: RankSources::of(&settings.perimeter, &home.root, &changes, &register),
            settings,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.links()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        for parcel in batch {
            look_at(parcel, outbox).map_err(|failure| failure.of_member(parcel.id()))?;
        }
        let directory = LinksDirectory::at(&self.links).map_err(Failure::halt)?;
        let generations = directory.generations();
        let made = self.grow(generations, batch, outbox).map_err(blame)?;
        if let Some((number, made)) = made {
            outbox.fact("generation", number);
            outbox.fact("urls", made.size.urls);
            outbox.fact("pages", made.size.pages);
            outbox.fact("links", made.size.links);
            outbox.fact("sites", made.sites);
            outbox.fact("rank-sweeps", made.rank_sweeps);
            outbox.fact("interest-sweeps", made.interest_sweeps);
            if made.rank_bound > self.settings.tolerance {
                // It is shown all the same; the next generation begins with it.
                outbox.fact("rank-bound", made.rank_bound);
            }
        }
        outbox.consume();
        Ok(())
    }
}

/// Makes a generation of links alone, as the stage does of the last one and them; what was there before is put aside as `generations.<aside>`.
/// Returns its number and how many URLs it has.
///
/// # Errors
/// When another is at work, or something cannot be read or written. What was there before stays aside then.
pub fn rebuild(
    settings: &Settings,
    links: &Path,
    sources: &RankSources,
    pieces: &[LinkPiece<'_>],
    aside: &str,
) -> Result<(u64, u32), RankError> {
    let directory = LinksDirectory::at(links)?;
    let generations = directory.generations();
    generations.prepare()?;
    let lock = generations.try_lock()?.ok_or(RankError::Busy)?;
    let number = generations.numbers()?.pop().unwrap_or(0) + 1;
    let workspace = Workspace::open(links, &format!("rebuild-{number}-{aside}"))?;
    let criteria = criteria_of(settings, sources, links)?;
    let making = Making {
        settings,
        criteria: &criteria,
        sources,
        workspace: &workspace,
        pieces,
        last_ranks: None,
        is_stopped: &|| false,
        say: &|_| {},
    };
    let mut state = StateLog::open(&workspace.file("state"), &boot())?;
    let made = making.make(&mut state)?;
    put_aside(generations, aside)?;
    show(generations, &lock, None, number, &[], &workspace, &made)?;
    workspace.clear()?;
    Ok((number, made.size.urls))
}

fn criteria_of(
    settings: &Settings,
    sources: &RankSources,
    links: &Path,
) -> Result<Criteria, RankError> {
    let seeds = sources.seeds.as_deref();
    let criteria = Criteria::read(&settings.perimeter, seeds);
    criteria.map_err(RankError::io("read", seeds.unwrap_or(links)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "what was there before is put aside here, whole, and never removed"
)]
fn put_aside(generations: &IndexDirectory, aside: &str) -> Result<(), RankError> {
    let before = generations.root().join("generations");
    let path = generations.root().join(format!("generations.{aside}"));
    std::fs::rename(&before, &path).map_err(RankError::io("put aside", &before))?;
    Ok(generations.prepare()?)
}

impl Rank {
    /// Makes a generation that holds all members; none where the last one holds them already.
    fn grow(
        &self,
        generations: &IndexDirectory,
        batch: &[Parcel],
        outbox: &Outbox,
    ) -> Result<Option<(u64, Made)>, RankError> {
        generations.prepare()?;
        let lock = generations.try_lock()?.ok_or(RankError::Busy)?;
        let last = generations.settle(&lock)?;
        let fresh = unknown(generations, batch)?;
        if fresh.is_empty() {
            return Ok(None);
        }
        let number = last.as_ref().map_or(0, |last| last.number) + 1;
        let ids: Vec<ParcelId> = fresh.iter().map(|parcel| parcel.id().clone()).collect();
        // Work on the same parcels after the same generation goes on; any other begins anew.
        let work = format!("{number}-{}", ParcelId::of_batch("links", &ids));
        let workspace = Workspace::open(&self.links, &work)?;
        let criteria = criteria_of(&self.settings, &self.sources, &self.links)?;
        let last_directory = last
            .as_ref()
            .map(|last| generations.generation(last.number));
        let mut pieces = pieces_to_merge(&fresh);
        if let Some(last) = &last_directory {
            let path = last.join(LINKS_FILE);
            pieces.push(LinkPiece {
                name: path.display().to_string(),
                open: Box::new(move || {
                    let file = std::fs::File::open(&path).map_err(RankError::io("open", &path))?;
                    Ok(Box::new(file))
                }),
            });
        }
        let making = Making {
            settings: &self.settings,
            criteria: &criteria,
            sources: &self.sources,
            workspace: &workspace,
            pieces: &pieces,
            last_ranks: last_directory.map(|last| last.join(RANKS_FILE)),
            is_stopped: &|| {
                outbox.tick();
                outbox.stop_asked()
            },
            say: &|how_far| outbox.say(how_far),
        };
        let mut state = StateLog::open(&workspace.file("state"), &boot())?;
        let made = making.make(&mut state)?;
        show(
            generations,
            &lock,
            last.as_ref(),
            number,
            &fresh,
            &workspace,
            &made,
        )?;
        let keep = self.settings.keep.get() as usize;
        generations.prune(&lock, keep)?;
        workspace.clear()?;
        tracing::info!(
            generation = number,
            urls = made.size.urls,
            links = made.size.links,
            sweeps = made.rank_sweeps,
            "ranks made current"
        );
        Ok(Some((number, made)))
    }
}

/// Brings the files into a generation of these parcels and shows it, unless their worker was taken for dead.
fn show(
    generations: &IndexDirectory,
    lock: &BuilderLock,
    last: Option<&LastGeneration>,
    number: u64,
    parcels: &[&Parcel],
    workspace: &Workspace,
    made: &Made,
) -> Result<(), RankError> {
    let building = generations.begin(lock, number)?;
    let shown = (|| {
        let mut files = Vec::with_capacity(made.files.len());
        for name in &made.files {
            workspace.bring(name, &building)?;
            let path = building.join(name);
            let mut entry = entry_of(&path, name).map_err(RankError::io("read", &path))?;
            if name == LINKS_FILE {
                // Pages never get fewer; URLs that are only known from links may.
                entry.lines = Some(made.size.pages);
            }
            files.push(entry);
        }
        let generation = IndexGeneration {
            schema: SCHEMA,
            number,
            previous: last.map(|last| last.number),
            lines: made.size.pages,
            duplicates: 0,
            files,
            members: parcels.iter().map(|parcel| member_of(parcel)).collect(),
        };
        let written = generation.write(&building);
        written.map_err(RankError::io("write", &building))?;
        must_not_be_fenced(parcels).map_err(|failure| RankError::Parcel(Box::new(failure)))?;
        Ok(generations.publish(lock, &building, &generation, last)?)
    })();
    if shown.is_err() {
        // The next builder sweeps what cannot be removed now.
        let _ = generations.abandon(&building);
    }
    shown
}

/// Fails when this worker was taken for dead: its parcels are no longer where it claimed them.
fn must_not_be_fenced(parcels: &[&Parcel]) -> Result<(), Failure> {
    for parcel in parcels {
        parcel.must_be_in_hand()?;
    }
    Ok(())
}

/// Reads the links of a parcel once: what is wrong with them is found while it is known whose they are.
fn look_at(parcel: &Parcel, outbox: &Outbox) -> Result<(), Failure> {
    let pieces = pieces_of(&[parcel], LINKS);
    if pieces.is_empty() {
        let id = parcel.id();
        return Err(Failure::hold(format!("{id} has no {LINKS} file")));
    }
    for piece in pieces {
        let name = PathBuf::from(piece.label());
        let bad = |error: LinksError| match error {
            LinksError::Io { source, .. } if source.raw_os_error().is_some() => {
                Failure::halt(format!("cannot read {}: {source}", name.display()))
            }
            error => Failure::hold(error),
        };
        let mut lines = LineReader::new(piece.open()?, &name, LINKS_HEADER).map_err(bad)?;
        let mut count = 0u64;
        while let Some(line) = lines.next_line().map_err(bad)? {
            let fault = PageLinks::parse(line).err();
            if let Some(fault) = fault {
                return Err(bad(lines.damaged(fault)));
            }
            count += 1;
            if count.is_multiple_of(4096) {
                outbox.tick();
                if outbox.stop_asked() {
                    return Err(Failure::give_back());
                }
            }
        }
    }
    Ok(())
}

fn pieces_to_merge<'a>(members: &[&'a Parcel]) -> Vec<LinkPiece<'a>> {
    let pieces = pieces_of(members, LINKS).into_iter();
    let piece = pieces.map(|piece| LinkPiece {
        name: piece.label(),
        open: Box::new(move || match piece.open() {
            Ok(source) => Ok(Box::new(source) as Box<_>),
            Err(failure) => Err(RankError::Parcel(Box::new(failure))),
        }),
    });
    piece.collect()
}

/// Returns the parcels that no kept generation holds.
fn unknown<'a>(
    generations: &IndexDirectory,
    batch: &'a [Parcel],
) -> Result<Vec<&'a Parcel>, RankError> {
    let mut known = HashSet::new();
    for number in generations.numbers()? {
        let generation = generations.describe(number)?;
        let members = generation.into_iter().flat_map(|found| found.members);
        known.extend(members.map(|member| (member.parcel, member.content)));
    }
    let is_fresh = |parcel: &&Parcel| {
        let IndexMember { parcel, content } = member_of(parcel);
        !known.contains(&(parcel, content))
    };
    Ok(batch.iter().filter(is_fresh).collect())
}

fn member_of(parcel: &Parcel) -> IndexMember {
    IndexMember {
        parcel: parcel.id().clone(),
        content: parcel.manifest().content(),
    }
}

/// Says who is at fault.
fn blame(error: RankError) -> Failure {
    match error {
        RankError::Stopped => Failure::give_back(),
        RankError::Parcel(failure) => *failure,
        RankError::Busy => Failure::defer("another is at work on the ranks"),
        RankError::Merge(MergeError::Read(
            error @ (ReadError::Unsorted { .. }
            | ReadError::Malformed { .. }
            | ReadError::TooLong { .. }
            | ReadError::Unterminated { .. }),
        )) => Failure::hold(&error).of_piece(error.file()),
        error => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            Failure::halt(format!("{error}{cause}"))
        }
    }
}
