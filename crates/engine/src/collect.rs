//! What nobody will ever ask for again, found and removed: files of tries that did not count, files that a killed program left
//! without an owner, uploads without an end, sheets of lost commits, marks that mean nothing.
//!
//! Nothing is removed because nobody seems to need it. Something that never changes again has to say so: a receipt that counts. Lists of many
//! objects are not of one moment, and what is read first and last may be hours apart; a receipt that was read stays true.
//! `docs/formats/object-store.md` has the argument. What is younger than the age that was asked for is left alone, and so is
//! what this does not understand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ecluse_spool::{
    CollectExtent, Collected, Fate, Filed, ParcelId, Result, SpoolError, digest, time_text,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::cluster::Inner;
use crate::commit::SentSheet;
use crate::operator::{OUTSIDE, mark_of};
use crate::store::{Listed, Put};
use crate::ticket::{StageKeys, TicketState, mark_of_born, parcel_of, parse_deferred};

/// How many questions are asked of the store at a time.
const READS: usize = 16;
/// So many tickets are kept in mind at a time; of more, the parcels are looked through in several rounds.
const TICKETS: usize = 2_000_000;
/// So many objects are removed at a time.
const REMOVALS: usize = 1000;
/// Who collected last, and when.
const NOTE: &str = "collected.json";
/// How often that happens without being asked for.
const EVERY: Duration = Duration::from_secs(24 * 3600);

/// One run through the store.
struct CollectRun<'a> {
    inner: &'a Inner,
    stages: Vec<String>,
    /// What was written before this is old, by the store's clock in milliseconds.
    before_ms: i64,
    /// Nothing is removed, only counted.
    is_dry: bool,
    /// Owners named on sheets that may still be handed over.
    on_sheets: HashSet<u64>,
    /// Stages with a sheet that makes no sense: it may name any file of theirs.
    opaque: HashSet<String>,
    /// Names of tickets that are there, by shard.
    living: Vec<HashSet<u64>>,
    doomed: Vec<String>,
    /// Files that lost sheets name, where these are only counted: they are not counted twice.
    named: HashSet<u64>,
    collected: Collected,
}

/// Old files of one owner and maker.
struct OldFiles {
    id: ParcelId,
    owner: String,
    maker: String,
    keys: Vec<String>,
    bytes: u64,
}

/// How a sheet stands.
enum SheetStanding {
    /// It may yet be handed over.
    Needed,
    /// All of it was handed over.
    Spent,
    /// Its try can never be committed: this receipt counts instead.
    Lost(Box<Filed>),
}

impl Inner {
    /// Collects as far as asked. `None`: it was done lately, or another does it.
    pub(crate) fn collect(self: &Arc<Self>, extent: CollectExtent) -> Result<Option<Collected>> {
        let now = self.now_ms();
        let age = i64::try_from(self.collect_after.as_millis()).unwrap_or(i64::MAX);
        let before_ms = now.saturating_sub(age);
        match extent {
            CollectExtent::Count => self.wait(self.collect_before(before_ms, true)).map(Some),
            CollectExtent::All => self.wait(self.collect_before(before_ms, false)).map(Some),
            CollectExtent::IfDue => {
                let is_ours = match self.wait(self.take_turn(now)) {
                    // Who may do no more than a stage's work leaves it to the operator.
                    Err(error) if is_forbidden(&error) => false,
                    turn => turn?,
                };
                if !is_ours {
                    return Ok(None);
                }
                // Nobody waits for it: a stage has other work.
                let inner = Arc::clone(self);
                self.runtime.spawn(async move {
                    match inner.collect_before(before_ms, false).await {
                        Ok(collected) => tracing::info!(?collected, "collected"),
                        Err(error) => tracing::warn!(%error, "collecting goes on another day"),
                    }
                });
                Ok(None)
            }
        }
    }

    /// Tells whether it is time to collect and this one is the first to notice.
    async fn take_turn(&self, now: i64) -> Result<bool> {
        let note = format!("{} {}\n", self.host.name, time_text(now.unsigned_abs()));
        let put = match self.store.get(NOTE).await? {
            None => self.store.put_new(NOTE, note.as_bytes()).await?,
            Some(last) if now - last.written_ms < EVERY.as_millis() as i64 => return Ok(false),
            Some(last) => {
                self.store
                    .put_over(NOTE, note.as_bytes(), &last.etag)
                    .await?
            }
        };
        Ok(matches!(put, Put::There(_)))
    }

    async fn collect_before(&self, before_ms: i64, is_dry: bool) -> Result<Collected> {
        let mut collector = CollectRun {
            inner: self,
            stages: self.store.directories("stages/").await?,
            before_ms,
            is_dry,
            on_sheets: HashSet::new(),
            opaque: HashSet::new(),
            living: Vec::new(),
            doomed: Vec::new(),
            named: HashSet::new(),
            collected: Collected::default(),
        };
        collector.marks().await?;
        // Before the tickets: what is handed over meanwhile was on a sheet or has a ticket.
        collector.sheets().await?;
        collector.files().await?;
        collector.uploads().await?;
        collector.probes().await?;
        collector.flush().await?;
        Ok(collector.collected)
    }
}

/// Tells whether the store knows who asks, and forbids it.
fn is_forbidden(error: &SpoolError) -> bool {
    use std::error::Error;
    let cause = error.source().map(ToString::to_string);
    cause.is_some_and(|cause| {
        let words = ["AccessDenied", "lacked the necessary privileges"];
        words.iter().any(|word| cause.contains(word))
    })
}

impl CollectRun<'_> {
    fn is_old(&self, listed: &Listed) -> bool {
        listed.written_ms < self.before_ms
    }

    async fn doom(&mut self, keys: impl IntoIterator<Item = String>) -> Result<()> {
        self.doomed.extend(keys);
        if self.doomed.len() >= REMOVALS {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let doomed = std::mem::take(&mut self.doomed);
        if self.is_dry || doomed.is_empty() {
            return Ok(());
        }
        self.inner.store.remove_all(&doomed).await?;
        Ok(())
    }

    async fn sheets(&mut self) -> Result<()> {
        for stage in self.stages.clone() {
            let directory = StageKeys(&stage).sheets();
            let inner = self.inner;
            let mut listed = inner.store.list(&directory, "");
            while let Some(listed) = listed.next().await {
                let listed = listed?;
                let key = format!("{directory}{}", listed.name);
                // Not there any more: handed over before the tickets are listed.
                let Some(read) = inner.store.get(&key).await? else {
                    continue;
                };
                let name = listed.name.rsplit_once('=');
                let name =
                    name.and_then(|(work, digest)| Some((ParcelId::new(work).ok()?, digest)));
                let sheet = SentSheet::parse(&read.bytes);
                let (Some((work, digest)), Some(sheet)) = (name, sheet) else {
                    tracing::warn!(
                        key,
                        "a sheet makes no sense: it stays, and all files of its stage"
                    );
                    self.collected.unclear += 1;
                    self.opaque.insert(stage.clone());
                    continue;
                };
                let standing = inner.sheet_standing(&stage, &work, digest, &sheet).await?;
                self.settle_sheet(&stage, key, &sheet, standing, self.is_old(&listed))
                    .await?;
            }
        }
        Ok(())
    }

    async fn settle_sheet(
        &mut self,
        stage: &str,
        key: String,
        sheet: &SentSheet,
        standing: SheetStanding,
        is_old: bool,
    ) -> Result<()> {
        let winner = match standing {
            SheetStanding::Spent if is_old => None,
            SheetStanding::Lost(winner) if is_old => Some(winner),
            SheetStanding::Spent | SheetStanding::Lost(_) | SheetStanding::Needed => {
                let owners = sheet.sent.iter().map(|sent| sent.ticket.name());
                self.on_sheets.extend(owners.map(|owner| hash(&owner)));
                return Ok(());
            }
        };
        for sent in &sheet.sent {
            // One that the other try made too lives as that says.
            let id = &sent.ticket.manifest.id;
            let Some(winner) = &winner else { break };
            if winner
                .receipt
                .outputs
                .iter()
                .any(|other| &other.parcel == id)
            {
                continue;
            }
            let files = &sent.ticket.manifest.files;
            let own = files.iter().filter(|file| {
                let maker = sent.ticket.makers.get(&file.name);
                maker.is_some_and(|maker| maker == stage)
            });
            for file in own {
                self.collected.files += 1;
                self.collected.bytes += file.bytes;
                let key = sent.ticket.payload_key(file);
                if self.is_dry {
                    self.named.insert(hash(&key));
                }
                self.doom([key]).await?;
            }
        }
        // The files first: the sheet says which they are.
        self.flush().await?;
        self.collected.sheets += 1;
        self.doom([key]).await
    }

    /// Goes through the files of all parcels, in as many rounds as their tickets need.
    async fn files(&mut self) -> Result<()> {
        let makers = self.inner.store.directories("payloads/").await?;
        let mut from = 0;
        while from < 256 {
            let to = self.read_tickets(from).await?;
            for maker in &makers {
                self.files_of(maker, from, to).await?;
            }
            from = to;
        }
        Ok(())
    }

    /// Reads which parcels have a ticket, from one shard on to the one that is returned, which is not among them.
    async fn read_tickets(&mut self, from: usize) -> Result<usize> {
        let mut to = 256;
        let mut count = 0;
        self.living = vec![HashSet::new(); 256];
        for stage in &self.stages {
            let directory = StageKeys(stage).tickets();
            let mut listed = self.inner.store.list(&directory, "");
            while let Some(listed) = listed.next().await {
                let name = listed?.name;
                let Some(shard) = shard_of(&name).filter(|shard| (from..to).contains(shard)) else {
                    continue;
                };
                count += usize::from(self.living[shard].insert(hash(&name)));
                while count > TICKETS && to - from > 1 {
                    to = from + (to - from) / 2;
                    for set in &mut self.living[to..] {
                        count -= std::mem::take(set).len();
                    }
                }
            }
        }
        Ok(to)
    }

    async fn files_of(&mut self, maker: &str, from: usize, to: usize) -> Result<()> {
        if self.opaque.contains(maker) {
            return Ok(());
        }
        let inner = self.inner;
        let directory = format!("payloads/{maker}/");
        let mut listed = inner.store.list(&directory, "");
        let mut some: Vec<OldFiles> = Vec::new();
        while let Some(listed) = listed.next().await {
            let listed = listed?;
            if !self.is_old(&listed) {
                continue;
            }
            let Some((shard, owner, id)) = parse_file(&listed.name) else {
                self.collected.unclear += u64::from(from == 0);
                continue;
            };
            let is_here = (from..to).contains(&shard);
            let name = hash(owner);
            if !is_here || self.living[shard].contains(&name) || self.on_sheets.contains(&name) {
                continue;
            }
            let key = format!("{directory}{}", listed.name);
            if self.named.contains(&hash(&key)) {
                continue;
            }
            if some.last().is_none_or(|last| last.owner != owner) {
                if some.len() >= REMOVALS {
                    self.settle_files(&mut some).await?;
                }
                some.push(OldFiles {
                    id,
                    owner: owner.to_owned(),
                    maker: maker.to_owned(),
                    keys: Vec::new(),
                    bytes: 0,
                });
            }
            if let Some(last) = some.last_mut() {
                last.keys.push(key);
                last.bytes += listed.bytes;
            }
        }
        self.settle_files(&mut some).await
    }

    /// Removes the files of parcels whose life is over.
    async fn settle_files(&mut self, some: &mut Vec<OldFiles>) -> Result<()> {
        let (inner, stages) = (self.inner, self.stages.as_slice());
        let settled: Vec<(OldFiles, bool)> = stream::iter(some.drain(..))
            .map(|files| async move {
                let is_over = inner.is_over(stages, &files).await?;
                Ok::<_, SpoolError>((files, is_over))
            })
            .buffer_unordered(READS)
            .try_collect()
            .await?;
        for (files, is_over) in settled {
            let count = files.keys.len() as u64;
            if !is_over {
                self.collected.unclear += count;
                continue;
            }
            self.collected.files += count;
            self.collected.bytes += files.bytes;
            self.doom(files.keys).await?;
        }
        Ok(())
    }

    /// Removes marks whose tickets say otherwise.
    async fn marks(&mut self) -> Result<()> {
        let inner = self.inner;
        for stage in self.stages.clone() {
            let keys = StageKeys(&stage);
            let directories = [
                keys.held(),
                keys.discarded(),
                keys.deferred(),
                keys.moving(),
                keys.gone(),
            ];
            for directory in directories {
                let mut listed = inner.store.list(&directory, "");
                while let Some(mark) = listed.next().await {
                    let mark = mark?;
                    let name = match directory == keys.deferred() {
                        true => parse_deferred(&mark.name).map(|(_, name)| name),
                        false => Some(mark.name.as_str()),
                    };
                    let Some((name, id)) = name.and_then(|name| Some((name, parcel_of(name)?)))
                    else {
                        self.collected.unclear += 1;
                        continue;
                    };
                    if !self.is_old(&mark) {
                        continue;
                    }
                    let key = format!("{directory}{}", mark.name);
                    let is_empty_word = match directory == keys.gone() {
                        true => inner.has_served(&stage, &id, name).await?,
                        false => inner.says_nothing(&stage, name, &key).await?,
                    };
                    if !is_empty_word {
                        continue;
                    }
                    self.collected.marks += 1;
                    if self.is_dry {
                        continue;
                    }
                    inner.store.remove(&key).await?;
                    // It may have been meant since it was looked at.
                    if let Some(read) = inner.ticket(&stage, name).await? {
                        inner.mark_again(&stage, &read.ticket).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends uploads that a killed program began. Whoever still sends parts so late begins anew.
    async fn uploads(&mut self) -> Result<()> {
        let store = &self.inner.store;
        let Some(uploads) = store.unfinished_uploads(self.before_ms).await? else {
            return Ok(());
        };
        for upload in uploads {
            self.collected.uploads += 1;
            if !self.is_dry {
                store.abort(&upload).await?;
            }
        }
        Ok(())
    }

    async fn probes(&mut self) -> Result<()> {
        let inner = self.inner;
        let mut listed = inner.store.list("probes/", "");
        while let Some(listed) = listed.next().await {
            let listed = listed?;
            if self.is_old(&listed) {
                self.collected.marks += 1;
                self.doom([format!("probes/{}", listed.name)]).await?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Tells how a sheet stands, by receipts alone.
    async fn sheet_standing(
        &self,
        stage: &str,
        work: &ParcelId,
        name: &str,
        sheet: &SentSheet,
    ) -> Result<SheetStanding> {
        if let Some(filed) = self.receipt(stage, work).await? {
            if !filed.digest.starts_with(name) || &filed.receipt.work != work {
                return Ok(SheetStanding::Lost(Box::new(filed)));
            }
            for input in &filed.receipt.inputs {
                let ticket = format!("{}={}", input.parcel, mark_of_born(&input.born));
                if self.has_ticket(stage, &ticket).await? {
                    return Ok(SheetStanding::Needed);
                }
            }
            return Ok(SheetStanding::Spent);
        }
        // A batch is lost for ever when one of its members was done otherwise.
        for input in &sheet.inputs {
            let Some(id) = parcel_of(input) else { continue };
            let filed = self.receipt(stage, &id).await?;
            if let Some(filed) = filed.filter(|filed| &filed.receipt.work != work) {
                return Ok(SheetStanding::Lost(Box::new(filed)));
            }
        }
        Ok(SheetStanding::Needed)
    }

    async fn has_ticket(&self, stage: &str, name: &str) -> Result<bool> {
        let key = StageKeys(stage).ticket(name);
        Ok(self.store.get(&key).await?.is_some())
    }

    /// Tells whether nobody can come to need the files of a parcel that had no ticket when tickets were listed.
    async fn is_over(&self, stages: &[String], files: &OldFiles) -> Result<bool> {
        let (_, mark) = files.owner.rsplit_once('=').unwrap_or_default();
        let fate_in = |stage: String| async move {
            let filed = self.receipt(&stage, &files.id).await?;
            let fate = filed.and_then(|filed| {
                let input = filed.receipt.input(&files.id)?;
                (mark_of_born(&input.born) == mark).then_some(filed.receipt.fate)
            });
            Ok::<_, SpoolError>(fate.map(|fate| (stage, fate)))
        };
        let passed: HashMap<String, Fate> = stream::iter(stages.to_vec())
            .map(fate_in)
            .buffer_unordered(READS)
            .try_filter_map(|passed| std::future::ready(Ok(passed)))
            .try_collect()
            .await?;
        if passed.values().any(|fate| *fate == Fate::Consume) {
            return Ok(true);
        }
        if passed.is_empty() {
            // Whoever gives a parcel shows it soon or never, and no other has its birth mark.
            return Ok(files.maker == OUTSIDE);
        }
        // The last stage that it has left, and where it went.
        let last = passed.iter().find_map(|(stage, fate)| match fate {
            Fate::PassOn { to, .. } if !passed.contains_key(to) => Some((stage, to)),
            Fate::PassOn { .. } | Fate::Consume => None,
        });
        let Some((stage, to)) = last else {
            return Ok(false);
        };
        // In this order: it comes there before it goes here, and its receipt there before it goes on.
        if self.has_ticket(stage, &files.owner).await? || self.has_ticket(to, &files.owner).await? {
            return Ok(false);
        }
        let filed = self.receipt(to, &files.id).await?;
        let other = filed.and_then(|filed| {
            let input = filed.receipt.input(&files.id)?;
            Some(mark_of_born(&input.born) != mark)
        });
        // Dropped there as a late copy of one that was done.
        Ok(other == Some(true))
    }

    /// Tells whether the ticket of a mark says something else, and no worker has it who may be about to say so.
    async fn says_nothing(&self, stage: &str, name: &str, key: &str) -> Result<bool> {
        let Some(read) = self.ticket(stage, name).await? else {
            return Ok(!self.has_ticket(stage, name).await?);
        };
        if let TicketState::Working { .. } = read.ticket.state {
            return Ok(false);
        }
        Ok(mark_of(stage, &read.ticket).as_deref() != Some(key))
    }

    /// Tells whether a parcel that was carried into the directories has its receipt here: that says more than the mark.
    async fn has_served(&self, stage: &str, id: &ParcelId, name: &str) -> Result<bool> {
        let filed = self.receipt(stage, id).await?;
        Ok(filed.is_some_and(|filed| {
            let input = filed.receipt.input(id);
            input.is_some_and(|input| name.ends_with(&format!("={}", mark_of_born(&input.born))))
        }))
    }
}

/// Reads shard, owner and parcel from what follows the maker in the key of a file.
fn parse_file(name: &str) -> Option<(usize, &str, ParcelId)> {
    let mut parts = name.split('/');
    let (shard, owner, file) = (parts.next()?, parts.next()?, parts.next()?);
    let (sha256, rest) = file.split_once('-')?;
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_file = parts.next().is_none() && is_hex(sha256, 64) && is_hex(rest, 8);
    let id = parcel_of(owner).filter(|id| is_file && id.shard() == shard)?;
    Some((usize::from_str_radix(shard, 16).ok()?, owner, id))
}

fn shard_of(name: &str) -> Option<usize> {
    usize::from_str_radix(&parcel_of(name)?.shard(), 16).ok()
}

/// Two that have the same one keep each other from being collected, and that is all.
fn hash(name: &str) -> u64 {
    let digest = digest(name.as_bytes());
    u64::from_str_radix(&digest[..16], 16).unwrap_or(0)
}

#[cfg(test)]
mod tests;
