//! One worker of a chain that is on two engines.

use std::ffi::OsString;
use std::time::Duration;

use ecluse_spool::{
    Adopted, Depths, Engine, EngineSide, Finish, Movable, Outbox, Parcel, ParcelId, Pulse,
    Recovered, Result, Scan, Setback, Signs, Spool, SpoolError, Urgency, Verdict, Waiting, Work,
    WorkerId, WorkerLimits, WorkerNote, WorkerTerms,
};

use super::MixedEngine;

/// One worker of a stage, on the engine that has it.
pub(super) struct MixedWorker {
    pub(super) engine: MixedEngine,
    pub(super) side: EngineSide,
    pub(super) stage: String,
    pub(super) next: Vec<String>,
    pub(super) limits: WorkerLimits,
    pub(super) version: String,
    /// `None`: the stage has moved, and this one is as good as dead.
    pub(super) worker: Option<Box<dyn Spool>>,
    pub(super) id: WorkerId,
    pub(super) signs: Signs,
    pub(super) in_hand: usize,
}

impl MixedWorker {
    fn worker(&mut self) -> Result<&mut Box<dyn Spool>> {
        match &mut self.worker {
            Some(worker) => Ok(worker),
            None => Err(SpoolError::Fenced {
                worker: self.id.to_string(),
            }),
        }
    }

    /// Looks for strays, and tells whether this worker may look for work: not when its stage is on the other engine. Then it ends
    /// as soon as nothing is in its hands, and another begins there.
    fn may_look(&mut self) -> Result<bool> {
        let engine = self.engine.clone();
        let stages = std::iter::once(&self.stage).chain(&self.next);
        for stage in stages {
            engine.carry_strays(stage, &self.signs)?;
        }
        if engine.lately(&self.stage)?.home == self.side {
            return Ok(true);
        }
        if self.in_hand == 0
            && let Some(worker) = self.worker.take()
        {
            worker.close()?;
            let stage = &self.stage;
            tracing::info!(stage, "the stage has moved to the other engine");
        }
        self.worker().map(|_| false)
    }

    fn let_go(&mut self, parcels: usize) {
        self.in_hand = self.in_hand.saturating_sub(parcels);
    }
}

impl Spool for MixedWorker {
    fn scan(&mut self) -> Result<Scan> {
        match self.may_look()? {
            true => self.worker()?.scan(),
            false => Ok(Scan::default()),
        }
    }

    fn scan_urgent(&mut self, urgency: &mut Urgency<'_>) -> Result<Scan> {
        match self.may_look()? {
            true => self.worker()?.scan_urgent(urgency),
            false => Ok(Scan::default()),
        }
    }

    fn oldest(&self, waiting: &[Waiting]) -> Result<Option<(ParcelId, Duration)>> {
        match &self.worker {
            Some(worker) => worker.oldest(waiting),
            None => Ok(None),
        }
    }

    fn adopt(&mut self, closed: &[OsString]) -> Result<Adopted> {
        self.worker()?.adopt(closed)
    }

    fn undefer(&mut self) -> Result<Option<u64>> {
        self.worker()?.undefer()
    }

    fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>> {
        let Some(parcel) = self.worker()?.claim(waiting)? else {
            return Ok(None);
        };
        // After the claim: whoever moves the stage has written his note before he looks who has what in hand.
        let standing = self.engine.now(&self.stage)?;
        if standing.is_moving || standing.home != self.side {
            self.worker()?.give_back(parcel)?;
            return Ok(None);
        }
        self.in_hand += 1;
        Ok(Some(parcel))
    }

    fn give_back_unasked(&mut self) -> Result<()> {
        match &mut self.worker {
            Some(worker) => worker.give_back_unasked(),
            None => Ok(()),
        }
    }

    fn outbox(&self, parcels: &[Parcel]) -> Outbox {
        match &self.worker {
            Some(worker) => worker.outbox(parcels),
            // Nobody without a worker has parcels.
            None => Outbox::elsewhere(
                &self.engine.temporary(&self.stage),
                &self.stage,
                parcels,
                &self.next,
                &self.signs,
            ),
        }
    }

    fn finish(&mut self, works: &mut Vec<Work>) -> Result<Vec<Finish>> {
        let parcels = works.iter().map(|work| work.parcels.len()).sum();
        let finished = self.worker()?.finish(works)?;
        self.let_go(parcels);
        Ok(finished)
    }

    fn fail(&mut self, parcel: Parcel, verdict: &Verdict) -> Result<Setback> {
        let setback = self.worker()?.fail(parcel, verdict)?;
        self.let_go(1);
        Ok(setback)
    }

    fn give_back(&mut self, parcel: Parcel) -> Result<()> {
        self.worker()?.give_back(parcel)?;
        self.let_go(1);
        Ok(())
    }

    fn give_back_crashed(&mut self, parcel: Parcel, reason: &str) -> Result<Option<Setback>> {
        let setback = self.worker()?.give_back_crashed(parcel, reason)?;
        self.let_go(1);
        Ok(setback)
    }

    fn take_held(&mut self) -> Vec<(ParcelId, String)> {
        self.worker
            .as_mut()
            .map(|worker| worker.take_held())
            .unwrap_or_default()
    }

    fn recover(&mut self) -> Result<Recovered> {
        let recovered = self.worker()?.recover()?;
        // A move that was begun goes on, whoever began it: no parcel waits for him.
        if self.engine.lately(&self.stage)?.is_moving {
            let terms = WorkerTerms {
                stage: &self.stage,
                next: &self.next,
                limits: &self.limits,
                version: &self.version,
            };
            let round = self.engine.move_on(&terms, &self.signs, &mut |_| Ok(()))?;
            for (parcel, reason) in &round.left {
                tracing::error!(parcel, reason, "a parcel cannot be moved: it stays, held");
            }
        }
        Ok(recovered)
    }

    fn reset(&mut self) -> Result<usize> {
        let reset = self.worker()?.reset()?;
        self.in_hand = 0;
        Ok(reset)
    }

    fn check_fence(&self) -> Result<()> {
        match &self.worker {
            Some(worker) => worker.check_fence(),
            None => Err(SpoolError::Fenced {
                worker: self.id.to_string(),
            }),
        }
    }

    fn pulse(&self) -> Pulse {
        match &self.worker {
            Some(worker) => worker.pulse(),
            None => Pulse::new(|| Ok(())),
        }
    }

    fn signs(&self) -> &Signs {
        &self.signs
    }

    fn name(&self) -> &WorkerId {
        &self.id
    }

    fn note(&self, note: &WorkerNote) {
        if let Some(worker) = &self.worker {
            worker.note(note);
        }
    }

    fn set_limits(&mut self, limits: WorkerLimits) {
        self.limits = limits.clone();
        if let Some(worker) = &mut self.worker {
            worker.set_limits(limits);
        }
    }

    fn set_next(&mut self, next: &[String]) {
        self.next = next.to_vec();
        if let Some(worker) = &mut self.worker {
            worker.set_next(next);
        }
    }

    fn depths(&self) -> Result<Depths> {
        self.engine.depths(&self.stage)
    }

    fn close(self: Box<Self>) -> Result<()> {
        match self.worker {
            Some(worker) => worker.close(),
            None => Ok(()),
        }
    }
}
