//! Waiting while another host owns what a stage works on.
//!
//! Nothing of the stage is open then: a manifest that is open is one that another host may not write. The worker shows that
//! it lives and what it waits for, puts back what dead workers of its host had in hand, and takes nothing.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ecluse_config::{Owned, OwnedThing, ShellSettings};
use ecluse_spool::{OtherOwner, Spool, SpoolError, WorkerNote, WorkerTerms};

use super::{beat, forget, limits_for};
use crate::failure::Failure;
use crate::home::Home;
use crate::pool::{Birth, PoolWorker, VERSION, WorkerContext, home, nexts};
use crate::stage::Stage;
use crate::thread::Thread;

/// What a worker that waits for an owner says of itself.
pub const STANDING_BY: &str = "standing-by";

/// How often the owner is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// How long a worker rests when the owner cannot be asked for.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How a stage asks for what one host owns.
pub(super) struct Owning<'a> {
    context: &'a WorkerContext,
    lease: Duration,
    place: Option<PathBuf>,
}

impl<'a> Owning<'a> {
    pub(super) fn of(context: &'a WorkerContext, settings: &ShellSettings) -> Self {
        let pipeline = context.stage.control.pipeline();
        let owned = Owned::by_stage(context.stage.name);
        let place = owned.map(|owned| place_of(owned.thing, &home(&context.stage, &pipeline)));
        Self {
            context,
            lease: settings.lease.0,
            place,
        }
    }

    /// Makes this host the owner, or says who is.
    pub(super) fn ask(&self) -> Result<Option<OtherOwner>, SpoolError> {
        match &self.place {
            Some(place) => {
                let stage = self.context.stage.name;
                self.context.engine.own(stage, self.lease, place)
            }
            None => Ok(None),
        }
    }
}

/// Returns the directory in which what one host owns lies.
fn place_of(thing: OwnedThing, home: &Home) -> PathBuf {
    match thing {
        OwnedThing::Manifest => home.manifest_directory(),
        OwnedThing::Register => home.register(),
        // Its places are the crawl's own settings; they begin at the root.
        OwnedThing::Jobs => home.root.clone(),
        OwnedThing::Links => home.links(),
        OwnedThing::Changes => home.changes(),
    }
}

/// Waits until this host owns what the stage works on. `None`: the worker is to end.
pub(super) fn stand_by<Kind: Stage>(
    context: WorkerContext,
    born: &mut Option<Birth>,
) -> Option<WorkerContext> {
    let mut standing: Option<Standing> = None;
    let is_on = loop {
        let settings = context.stage.control.pipeline().shell(context.stage.name);
        let asked = Owning::of(&context, &settings).ask();
        let wait = match asked {
            Ok(None) => break true,
            Ok(Some(other)) => {
                let stands = match standing.take() {
                    Some(standing) => Ok(standing),
                    None => Standing::begin::<Kind>(&context, &settings),
                };
                match stands.and_then(|mut stands| stands.say(&context, &other).map(|()| stands)) {
                    Ok(stands) => {
                        standing = Some(stands);
                        if let Some(born) = born.take() {
                            let _ = born.send(Ok(()));
                        }
                        EVERY
                    }
                    Err(error) => fail(&context, &error),
                }
            }
            Err(error) => {
                if let Some(born) = born.take() {
                    let _ = born.send(Err(Failure::halt(error)));
                    return None;
                }
                fail(&context, &error)
            }
        };
        let is_too_many = context.number >= context.stage.size(&settings);
        if context.stage.control.stopping() || is_too_many {
            break false;
        }
        let heard = context.bell.rings();
        let longest = context.stage.control.longest_wait();
        context.bell.wait(heard, wait.min(longest));
    };
    if let Some(standing) = standing {
        standing.end(&context);
    }
    if is_on {
        // When it ends, why it did nothing stays to be told.
        context.tally.set_blocked(None);
    }
    is_on.then_some(context)
}

fn fail(context: &WorkerContext, error: &SpoolError) -> Duration {
    tracing::error!(%error, "cannot tell who owns what this stage works on");
    let reason = error.to_string();
    context.tally.set_halted(context.number, Some(&reason));
    AFTER_FAILURE
}

/// A worker that stands by.
struct Standing {
    worker: Box<dyn Spool>,
    /// Ends the heartbeat when it is dropped.
    heartbeat: Sender<()>,
    said: String,
}

impl Standing {
    fn begin<Kind: Stage>(
        context: &WorkerContext,
        settings: &ShellSettings,
    ) -> Result<Self, SpoolError> {
        let pipeline = context.stage.control.pipeline();
        let mut worker = context.engine.open_worker(&WorkerTerms {
            stage: context.stage.name,
            next: &nexts(&pipeline, context.stage.name),
            limits: &limits_for::<Kind>(settings),
            version: VERSION,
        })?;
        let (name, every) = (worker.name().clone(), settings.heartbeat.0);
        let heartbeat = beat(worker.pulse(), every, name.as_str());
        let members = context.members.lock();
        members
            .unwrap_or_else(PoisonError::into_inner)
            .push(PoolWorker {
                number: context.number,
                id: name,
                signs: worker.signs().clone(),
                thread: Thread::current(),
            });
        // What this host had in hand when it was the owner is the next owner's.
        worker.recover()?;
        Ok(Self {
            worker,
            heartbeat,
            said: String::new(),
        })
    }

    /// Says what it waits for.
    fn say(&mut self, context: &WorkerContext, other: &OtherOwner) -> Result<(), SpoolError> {
        self.worker.signs().tick();
        self.worker.check_fence()?;
        let why = other.to_string();
        context.tally.set_blocked(Some(why.clone()));
        context.tally.set_halted(context.number, None);
        if why != self.said {
            tracing::warn!(reason = %why, "claiming nothing");
            self.worker.note(&WorkerNote {
                state: STANDING_BY.to_owned(),
                since: context.engine.now_seconds(context.stage.name),
                why: why.clone(),
                ..WorkerNote::default()
            });
            self.said = why;
        }
        Ok(())
    }

    fn end(self, context: &WorkerContext) {
        drop(self.heartbeat);
        let name = self.worker.name().to_string();
        if let Err(error) = self.worker.close() {
            tracing::warn!(%error, "left things behind: the next worker settles them");
        }
        forget(context, &name);
    }
}
