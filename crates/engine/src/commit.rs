//! From work done to committed: the sheet of new parcels, then their files, then the receipt. Then
//! [`hand_over`](crate::hand_over) begins.
//!
//! The sheet comes before the files, so that whatever becomes of the work, the files that it put can be found.
//!
//! A receipt is put where none is: the first wins. A batch is committed by the receipt under its own name; before that it is
//! filed under the name of each member, in their order, so that no parcel is in two batches. A worker may die in between, and
//! nobody can tell a dead one from a slow one for certain. So whoever meets such a filing and has the parcel in hand gives the
//! batch up, by putting something else where its receipt would be: from then on it cannot be committed any more, and what
//! was filed for it may be written over. The decision is one object, which has one winner.

use std::path::PathBuf;

use ecluse_spool::{Filed, Finish, ParcelId, Receipt, Result, Signs};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::cluster::{FiledObject, GivenUpBatch, Inner};
use crate::failpoint::{hit, is_mutant};
use crate::owner::Fence;
use crate::store::Put;
use crate::ticket::{StageKeys, Ticket};

/// How many files of one work are sent at a time.
const UPLOADS: usize = 4;

/// A file that must be in the store before the receipt is.
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// A parcel on its way to a stage.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sent {
    pub(crate) to: String,
    pub(crate) ticket: Ticket,
    /// On a sheet, with the first: see [`SentSheet`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
}

impl Sent {
    pub(crate) fn new(to: &str, ticket: Ticket) -> Self {
        Self {
            to: to.to_owned(),
            ticket,
            inputs: Vec::new(),
        }
    }
}

/// The new parcels of a try, kept in the store until they are handed over, or known never to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentSheet {
    /// The tickets of what went in. They stand with the first of the new parcels.
    pub(crate) inputs: Vec<String>,
    pub(crate) sent: Vec<Sent>,
}

impl SentSheet {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut sent: Vec<Sent> = serde_json::from_slice(bytes).ok()?;
        let inputs = sent
            .first_mut()
            .map(|first| std::mem::take(&mut first.inputs));
        Some(Self {
            inputs: inputs.unwrap_or_default(),
            sent,
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut sent = self.sent.clone();
        if let Some(first) = sent.first_mut() {
            first.inputs.clone_from(&self.inputs);
        }
        serde_json::to_vec(&sent).expect("tickets hold only strings and numbers")
    }
}

/// Finished work, ready to be committed.
pub(crate) struct Deed {
    pub(crate) receipt: Receipt,
    pub(crate) uploads: Vec<Upload>,
    /// The new parcels.
    pub(crate) sheet: SentSheet,
    pub(crate) worker: String,
    /// Under which its host owns what the stage works on.
    pub(crate) fence: Option<Fence>,
}

/// What stands where a receipt was to be put.
enum Filing {
    Ours,
    /// Another work's counts.
    Theirs,
}

impl Inner {
    /// Commits one piece of work. Hands nothing over.
    pub(crate) async fn commit(&self, stage: &str, deed: &Deed, signs: &Signs) -> Result<Finish> {
        let line = deed.receipt.to_line();
        let is_hasty = is_mutant("receipt-before-data");
        if !is_hasty {
            self.send_files(stage, deed, &line, signs).await?;
        }
        // After all that the stage wrote, and as late as can be: what was written was the owner's.
        if let Some(fence) = &deed.fence {
            self.must_own(fence, &deed.worker).await?;
        }
        let finish = self.file(stage, deed, &line).await?;
        if is_hasty {
            self.send_files(stage, deed, &line, signs).await?;
        }
        hit("committed");
        Ok(finish)
    }

    pub(crate) async fn send_files(
        &self,
        stage: &str,
        deed: &Deed,
        line: &[u8],
        signs: &Signs,
    ) -> Result<()> {
        if !deed.sheet.sent.is_empty() {
            let key = StageKeys(stage).sheet(&deed.receipt.work, line);
            self.store.put(&key, &deed.sheet.to_bytes()).await?;
            hit("sheet-put");
        }
        stream::iter(&deed.uploads)
            .map(|upload| {
                self.store
                    .upload(&upload.key, &upload.path, upload.bytes, signs)
            })
            .buffer_unordered(UPLOADS)
            .try_collect::<Vec<()>>()
            .await?;
        if !deed.uploads.is_empty() {
            hit("uploaded");
        }
        Ok(())
    }

    /// Files the receipt under the names of a batch's members, then under the work's own.
    async fn file(&self, stage: &str, deed: &Deed, line: &[u8]) -> Result<Finish> {
        let work = &deed.receipt.work;
        let mut members: Vec<&ParcelId> = deed.receipt.members().collect();
        if members.is_empty() {
            let mut alone = BatchTry::default();
            let filing = self.file_under(stage, work, line, deed, &mut alone).await?;
            return Ok(match filing {
                Filing::Ours => Finish::Committed,
                Filing::Theirs => Finish::AlreadyCommitted,
            });
        }
        // Given up once, it may be tried again, as long as nobody gives it up meanwhile.
        let mut batch = match self.filed(stage, work).await? {
            FiledObject::Nothing => BatchTry::default(),
            FiledObject::GivenUp { etag, .. } => BatchTry {
                before: Some(etag),
                ..BatchTry::default()
            },
            FiledObject::Receipt { filed, .. } => return Ok(answer(is_same(&filed, line))),
        };
        members.sort_unstable();
        for member in members {
            match self
                .file_under(stage, member, line, deed, &mut batch)
                .await?
            {
                Filing::Ours => hit("member-filed"),
                Filing::Theirs => {
                    // What was filed for the others must not count, whoever meets it.
                    self.give_up(stage, work, &deed.worker).await?;
                    return Ok(Finish::AlreadyCommitted);
                }
            }
        }
        let key = StageKeys(stage).receipt(work);
        let put = match batch.before {
            None => self.store.put_new(&key, line).await?,
            Some(etag) => self.store.put_over(&key, line, &etag).await?,
        };
        Ok(answer(matches!(put, Put::There(_))))
    }

    /// Files a receipt under one name.
    async fn file_under(
        &self,
        stage: &str,
        id: &ParcelId,
        line: &[u8],
        deed: &Deed,
        batch: &mut BatchTry,
    ) -> Result<Filing> {
        let key = StageKeys(stage).receipt(id);
        let mut put = self.store.put_new(&key, line).await?;
        loop {
            if let Put::There(_) = put {
                return Ok(Filing::Ours);
            }
            put = match self.filed(stage, id).await? {
                FiledObject::Nothing => self.store.put_new(&key, line).await?,
                // A seal: this worker's own, or that of an owner before.
                FiledObject::GivenUp { etag, fence, .. }
                    if fence > 0 && deed.fence.as_ref().is_some_and(|own| own.number >= fence) =>
                {
                    self.store.put_over(&key, line, &etag).await?
                }
                FiledObject::GivenUp { .. } => return Ok(Filing::Theirs),
                FiledObject::Receipt { filed, .. } if is_same(&filed, line) => {
                    return Ok(Filing::Ours);
                }
                FiledObject::Receipt { filed, .. } if &filed.receipt.work == id => {
                    return Ok(Filing::Theirs);
                }
                FiledObject::Receipt { filed, etag } => {
                    let other = &filed.receipt.work;
                    // An earlier try of this very batch is given up once: that it was is what this one is committed over.
                    let is_earlier = other == &deed.receipt.work;
                    if !(is_earlier && batch.gave_up) {
                        match self.give_up(stage, other, &deed.worker).await? {
                            GivingUp::Committed => return Ok(Filing::Theirs),
                            GivingUp::Done { etag } if is_earlier => {
                                *batch = BatchTry {
                                    before: Some(etag),
                                    gave_up: true,
                                };
                            }
                            GivingUp::Done { .. } => {}
                        }
                    }
                    self.store.put_over(&key, line, &etag).await?
                }
            };
        }
    }

    /// Sees to it that a batch is not committed any more, unless it is.
    pub(crate) async fn give_up(
        &self,
        stage: &str,
        batch: &ParcelId,
        by: &str,
    ) -> Result<GivingUp> {
        let key = StageKeys(stage).receipt(batch);
        loop {
            let (etag, times) = match self.filed(stage, batch).await? {
                FiledObject::Receipt { .. } => return Ok(GivingUp::Committed),
                FiledObject::Nothing => (None, 1),
                FiledObject::GivenUp { etag, times, .. } => (Some(etag), times + 1),
            };
            let given_up = GivenUpBatch {
                times,
                by: by.to_owned(),
                fence: 0,
            };
            let bytes = serde_json::to_vec(&given_up).expect("it holds a number and a name");
            let put = match etag {
                None => self.store.put_new(&key, &bytes).await?,
                Some(etag) => self.store.put_over(&key, &bytes, &etag).await?,
            };
            if let Put::There(etag) = put {
                return Ok(GivingUp::Done { etag });
            }
        }
    }
}

/// One try to commit a batch.
#[derive(Default)]
struct BatchTry {
    /// The tag of what lies where its receipt is to be put.
    before: Option<String>,
    /// Whether that is by this try itself, which met an earlier one.
    gave_up: bool,
}

/// What came of giving a batch up.
pub(crate) enum GivingUp {
    /// It was, by the object with this tag.
    Done { etag: String },
    /// It is committed.
    Committed,
}

fn is_same(filed: &Filed, line: &[u8]) -> bool {
    filed.digest == ecluse_spool::digest(line)
}

fn answer(is_ours: bool) -> Finish {
    if is_ours {
        Finish::Committed
    } else {
        Finish::AlreadyCommitted
    }
}
