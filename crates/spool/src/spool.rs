//! The trait behind which a stage's parcels live; the directory engine is its first implementor.
//!
//! The shell of a stage speaks only to this trait, and to [`Engine`](crate::Engine) for what is no worker's. An engine on a broker and an object store can
//! take the place of the directories without a change in any stage: the store is the truth, a
//! message is a hint, and a receipt is written with "only if it is not there", as `link` does.

use std::ffi::OsString;
use std::time::Duration;

use crate::adopt::Adopted;
use crate::commit::{Finish, Work};
use crate::depths::{Depths, WorkerNote};
use crate::error::Result;
use crate::name::ParcelId;
use crate::outbox::{Outbox, Parcel};
use crate::reap::Recovered;
use crate::scan::{Scan, Urgency};
use crate::setback::{Setback, Verdict};
use crate::worker::{Pulse, Signs, Waiting, Worker, WorkerLimits};

/// One worker's view of a stage's parcels.
pub trait Spool: Send {
    /// Counts what can be claimed and names some of it.
    fn scan(&mut self) -> Result<Scan>;
    /// Counts what can be claimed and names the most urgent of all of it.
    fn scan_urgent(&mut self, urgency: &mut Urgency<'_>) -> Result<Scan>;
    /// Returns the oldest of these and its age.
    fn oldest(&self, waiting: &[Waiting]) -> Result<Option<(ParcelId, Duration)>>;
    /// Makes parcels of files that were handed in bare; `closed` are known to be complete.
    fn adopt(&mut self, closed: &[OsString]) -> Result<Adopted>;
    /// Lets deferred parcels that are due be claimed; says when the next one is.
    fn undefer(&mut self) -> Result<Option<u64>>;
    /// Claims a parcel. `None`: another was quicker, or it needs no more work.
    fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>>;
    /// Gives back what was claimed with others and that nobody has asked for: nothing more is claimed for a while.
    fn give_back_unasked(&mut self) -> Result<()> {
        Ok(())
    }
    /// Returns an empty outbox for one parcel, or for a batch.
    fn outbox(&self, parcels: &[Parcel]) -> Outbox;
    /// Commits finished work, all of it together, and hands it over.
    fn finish(&mut self, works: &mut Vec<Work>) -> Result<Vec<Finish>>;
    /// Sets a parcel aside, for the world or for a person.
    fn fail(&mut self, parcel: Parcel, verdict: &Verdict) -> Result<Setback>;
    /// Gives a parcel back untouched; the attempt does not count.
    fn give_back(&mut self, parcel: Parcel) -> Result<()>;
    /// Gives a parcel back after its work crashed; the attempt counts.
    fn give_back_crashed(&mut self, parcel: Parcel, reason: &str) -> Result<Option<Setback>>;
    /// Returns the parcels held without a verdict of the stage since this was last asked, and why.
    fn take_held(&mut self) -> Vec<(ParcelId, String)>;
    /// Settles what dead workers held.
    fn recover(&mut self) -> Result<Recovered>;
    /// Puts everything this worker holds where it belongs.
    fn reset(&mut self) -> Result<usize>;
    /// Fails when this worker was taken for dead.
    fn check_fence(&self) -> Result<()>;
    /// Returns what another thread beats while this one works.
    fn pulse(&self) -> Pulse;
    /// Returns the signs that pass between this worker and those who watch over it.
    fn signs(&self) -> &Signs;
    /// Returns this worker's name.
    fn name(&self) -> &crate::WorkerId;
    /// Says what this worker is doing.
    fn note(&self, note: &WorkerNote);
    /// Changes how patient the worker is.
    fn set_limits(&mut self, limits: WorkerLimits);
    /// Changes where results go.
    fn set_next(&mut self, next: &[String]);
    /// Counts what the stage holds.
    fn depths(&self) -> Result<Depths>;
    /// Ends in good order: everything claimed goes back.
    fn close(self: Box<Self>) -> Result<()>;
}

impl Spool for Worker {
    fn scan(&mut self) -> Result<Scan> {
        Worker::scan(self)
    }

    fn scan_urgent(&mut self, urgency: &mut Urgency<'_>) -> Result<Scan> {
        Worker::scan_urgent(self, urgency)
    }

    fn oldest(&self, waiting: &[Waiting]) -> Result<Option<(ParcelId, Duration)>> {
        Worker::oldest(self, waiting)
    }

    fn adopt(&mut self, closed: &[OsString]) -> Result<Adopted> {
        Worker::adopt(self, closed)
    }

    fn undefer(&mut self) -> Result<Option<u64>> {
        Worker::undefer(self)
    }

    fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>> {
        Worker::claim(self, waiting)
    }

    fn outbox(&self, parcels: &[Parcel]) -> Outbox {
        Worker::outbox(self, parcels)
    }

    fn finish(&mut self, works: &mut Vec<Work>) -> Result<Vec<Finish>> {
        Worker::finish(self, works)
    }

    fn fail(&mut self, parcel: Parcel, verdict: &Verdict) -> Result<Setback> {
        Worker::fail(self, parcel, verdict)
    }

    fn give_back(&mut self, parcel: Parcel) -> Result<()> {
        Worker::give_back(self, parcel)
    }

    fn give_back_crashed(&mut self, parcel: Parcel, reason: &str) -> Result<Option<Setback>> {
        Worker::give_back_crashed(self, parcel, reason)
    }

    fn take_held(&mut self) -> Vec<(ParcelId, String)> {
        Worker::take_held(self)
    }

    fn recover(&mut self) -> Result<Recovered> {
        Worker::recover(self)
    }

    fn reset(&mut self) -> Result<usize> {
        Worker::reset(self)
    }

    fn check_fence(&self) -> Result<()> {
        Worker::check_fence(self)
    }

    fn pulse(&self) -> Pulse {
        Worker::pulse(self)
    }

    fn signs(&self) -> &Signs {
        Worker::signs(self)
    }

    fn name(&self) -> &crate::WorkerId {
        Worker::id(self)
    }

    fn note(&self, note: &WorkerNote) {
        Worker::note(self, note);
    }

    fn set_limits(&mut self, limits: WorkerLimits) {
        Worker::set_limits(self, limits);
    }

    fn set_next(&mut self, next: &[String]) {
        Worker::set_next(self, next);
    }

    fn depths(&self) -> Result<Depths> {
        self.tree.depths(&self.stage.name)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Worker::close(*self)
    }
}
