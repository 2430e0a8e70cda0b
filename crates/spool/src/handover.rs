//! From a durable receipt to where its results belong: files changed, history added, parcels passed on.
//!
//! Everything here can be repeated from the receipt by anybody: what is no longer here has arrived. So nothing waits for
//! the disk.

use std::io;
use std::path::{Path, PathBuf};

use crate::commit::{Finish, Work};
use crate::error::{At, Result, SpoolError};
use crate::fs::{gone, if_there};
use crate::ledger;
use crate::name::{ParcelEntry, ParcelId};
use crate::outbox::{ATTACHED, NEW_MANIFEST, Outbox};
use crate::parcel::{HISTORY, MANIFEST, TROUBLE};
use crate::place::Placed;
use crate::receipt::{Fate, Receipt};
use crate::worker::{Seen, Worker, is_page_of, read_manifest};

impl Worker {
    /// Hands over what was committed, and drops what another worker committed first.
    pub(crate) fn hand_over(
        &mut self,
        works: &[Work],
        receipts: &[Receipt],
        finishes: &[Finish],
        sheet: &Path,
    ) -> Result<()> {
        let home = self.home.clone();
        for ((work, receipt), finish) in works.iter().zip(receipts).zip(finishes) {
            let path_of = |id: &ParcelId| {
                let parcel = work.parcels.iter().find(|p| p.id() == id)?;
                Some(parcel.path.clone())
            };
            let known = Known {
                seen: match work.parcels.as_slice() {
                    [parcel] => Some(&parcel.seen),
                    _ => None,
                },
                has_outbox: work.outbox.made || leaves_changed(&work.outbox),
                sheet: (works.len() == 1).then_some(sheet),
            };
            match finish {
                Finish::Committed => {
                    if self.complete_knowing(&home, receipt, &path_of, &known)? == Sheet::Filed {
                        return Ok(());
                    }
                }
                Finish::AlreadyCommitted => {
                    let out = &work.outbox.dir;
                    self.fs.remove_tree(out).at("remove", out)?;
                    for parcel in &work.parcels {
                        self.settle_claimed(&home, &parcel.path, None)?;
                    }
                }
            }
        }
        gone(self.fs.unlink(sheet)).at("remove", sheet)?;
        Ok(())
    }

    /// Carries out what a durable receipt says, from the worker directory `dir`, ours or a dead
    /// worker's. What is no longer here was carried out before.
    pub(crate) fn complete(
        &mut self,
        dir: &Path,
        receipt: &Receipt,
        path_of: &dyn Fn(&ParcelId) -> Option<PathBuf>,
    ) -> Result<()> {
        let nothing = Known {
            seen: None,
            has_outbox: true,
            sheet: None,
        };
        self.complete_knowing(dir, receipt, path_of, &nothing)?;
        Ok(())
    }

    fn complete_knowing(
        &mut self,
        dir: &Path,
        receipt: &Receipt,
        path_of: &dyn Fn(&ParcelId) -> Option<PathBuf>,
        known: &Known,
    ) -> Result<Sheet> {
        let out = dir.join("out").join(receipt.work.as_str());
        let filed = self.stage.receipt(&receipt.work);
        let mut sheet = Sheet::Left;
        for output in &receipt.outputs {
            let path = out.join(output.parcel.as_str());
            if !self.fs.is_there(&path).at("look at", &path)? {
                continue;
            }
            self.add_history(&path, &filed, &receipt.work)?;
            self.deliver(&path, &output.parcel, &output.to)?;
        }
        match &receipt.fate {
            Fate::PassOn {
                to,
                attached,
                detached,
                ..
            } => {
                for input in &receipt.inputs {
                    let Some(path) = path_of(&input.parcel) else {
                        continue;
                    };
                    self.change_files(&out, &path, attached, detached, known)?;
                    sheet = self.add_page(&path, &filed, &input.parcel, known)?;
                    self.deliver(&path, &input.parcel, to)?;
                }
            }
            Fate::Consume => {
                for input in &receipt.inputs {
                    self.consume(receipt, &filed, &input.parcel, path_of(&input.parcel), dir)?;
                }
            }
        }
        if known.has_outbox && self.fs.is_there(&out).at("look at", &out)? {
            self.fs.remove_tree(&out).at("remove", &out)?;
        }
        Ok(sheet)
    }

    fn change_files(
        &self,
        out: &Path,
        parcel: &Path,
        attached: &[crate::FileEntry],
        detached: &[String],
        known: &Known,
    ) -> Result<()> {
        for file in attached {
            let from = out.join(ATTACHED).join(&file.name);
            let to = parcel.join(&file.name);
            gone(self.fs.rename(&from, &to)).at("attach", &to)?;
        }
        if !attached.is_empty() || !detached.is_empty() {
            let (from, to) = (out.join(NEW_MANIFEST), parcel.join(MANIFEST));
            gone(self.fs.rename(&from, &to)).at("write", &to)?;
        }
        for name in detached {
            let path = parcel.join(name);
            gone(self.fs.unlink(&path)).at("remove", &path)?;
        }
        if known.seen.is_some_and(|seen| !seen.in_trouble) {
            return Ok(());
        }
        let trouble = parcel.join(TROUBLE);
        gone(self.fs.unlink(&trouble)).at("remove", &trouble)
    }

    /// Gives a parcel the receipt as the next page of its history, without a look where its
    /// history is known and with the sheet itself where nobody else needs that.
    fn add_page(&self, parcel: &Path, filed: &Path, id: &ParcelId, known: &Known) -> Result<Sheet> {
        if let Some(Seen {
            pages: Some(pages),
            has_page: false,
            ..
        }) = known.seen
        {
            let page = self.page(parcel, *pages);
            if let Some(sheet) = known.sheet
                && self.fs.rename(sheet, &page).is_ok()
            {
                return Ok(Sheet::Filed);
            }
            if self.fs.link(filed, &page).is_ok() {
                return Ok(Sheet::Left);
            }
        }
        self.add_history(parcel, filed, id)?;
        Ok(Sheet::Left)
    }

    /// Returns the path of the page that follows the first so many.
    fn page(&self, parcel: &Path, pages: usize) -> PathBuf {
        let name = format!("{:02}-{}.json", pages + 1, self.stage.name);
        parcel.join(HISTORY).join(name)
    }

    /// Gives a parcel the receipt as the next page of its history.
    fn add_history(&self, parcel: &Path, filed: &Path, id: &ParcelId) -> Result<()> {
        let history = parcel.join(HISTORY);
        let mut pages = 0;
        let mut there = false;
        let listed = self.fs.visit(&history, &mut |name, _| {
            pages += 1;
            there |= is_page_of(name, &self.stage.name);
            std::ops::ControlFlow::Continue(())
        });
        if if_there(listed).at("list", &history)?.is_none() {
            let made = if_there(self.fs.mkdir(&history)).at("make", &history)?;
            // The parcel itself is gone: it was handed over before.
            if made.is_none() {
                return Ok(());
            }
        }
        if there {
            return Ok(());
        }
        let page = self.page(parcel, pages);
        match self.fs.link(filed, &page) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // Folded into the ledger since, or out of links: copy its line.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::TooManyLinks | io::ErrorKind::NotFound
                ) =>
            {
                if let Some(line) = self.filed(id)? {
                    self.fs
                        .write_new(&page, &line.receipt.to_line())
                        .at("write", &page)?;
                }
            }
            Err(e) => return Err(e).at("link", &page),
        }
        Ok(())
    }

    fn consume(
        &mut self,
        receipt: &Receipt,
        filed: &Path,
        id: &ParcelId,
        path: Option<PathBuf>,
        dir: &Path,
    ) -> Result<()> {
        if id != &receipt.work {
            let to = self.stage.receipt(id);
            let shard = to.parent().expect("a receipt lies in its shard");
            self.fs.ensure_dir(shard).at("make", shard)?;
            match self.fs.link(filed, &to) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                // Out of links, or folded into the ledger since, perhaps with its members.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::TooManyLinks | io::ErrorKind::NotFound
                    ) =>
                {
                    if !ledger::holds(&*self.fs, &self.stage, id)? {
                        let line = receipt.to_line();
                        taken(self.fs.write_new(&to, &line)).at("write", &to)?;
                    }
                }
                Err(e) => return Err(e).at("link", &to),
            }
            self.touched.insert(shard.to_owned());
        }
        let Some(path) = path else {
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bin = dir.join("out").join(format!(".gone-{name}"));
        gone(self.fs.rename(&path, &bin)).at("remove", &path)?;
        self.fs.remove_tree(&bin).at("remove", &bin)
    }

    /// Moves a parcel into the `ready/` of another stage. Not there any more: it was moved before.
    pub(crate) fn deliver(&mut self, path: &Path, id: &ParcelId, to: &str) -> Result<()> {
        let dest = self.tree.stage(to);
        let entry = ParcelEntry::new(id, 0);
        let slot = self.tree.ready_slot(&dest, &entry);
        match self.tree.place(path, &dest, &slot)? {
            Placed::Gone => self.check_fence(),
            Placed::There => {
                if let Some(dir) = slot.parent()
                    && !self.touched.contains(dir)
                {
                    self.touched.insert(dir.to_owned());
                }
                Ok(())
            }
            Placed::Taken => {
                if self.is_copy(path, &slot, &entry, to)? {
                    return self.discard_claimed(path, &entry);
                }
                let reason = format!(
                    "another parcel of this name, with other content, waited when {} sent this one",
                    self.stage.name
                );
                self.give_reason(path, &dest, &entry, &reason)?;
                self.put_back(path, &dest.held().join(entry.file_name()))
            }
        }
    }

    /// A parcel of this name waits there already: tells whether it is the same. If so the second is
    /// to be dropped, if not it is to be held there.
    fn is_copy(&self, path: &Path, slot: &Path, entry: &ParcelEntry, to: &str) -> Result<bool> {
        let (ours, _) = read_manifest(&*self.fs, path, &entry.id)?;
        let same = match read_manifest(&*self.fs, slot, &entry.id) {
            Ok((theirs, _)) => theirs.content() == ours.content(),
            Err(SpoolError::Damaged { .. }) => false,
            Err(e) => return Err(e),
        };
        if same {
            tracing::warn!(parcel = %entry.id, to, "dropping a copy of a parcel that waits there");
        } else {
            tracing::error!(parcel = %entry.id, to, "two parcels of one name: the second is held");
        }
        Ok(same)
    }
}

/// What whoever carries out a receipt need not look for.
struct Known<'work> {
    /// What the only parcel held when it was claimed.
    seen: Option<&'work Seen>,
    /// Whether the work may have left something in its outbox.
    has_outbox: bool,
    /// The sheet, when it speaks of nothing else: it may become a page of the history.
    sheet: Option<&'work Path>,
}

/// What became of a sheet.
#[derive(PartialEq, Eq)]
enum Sheet {
    /// It lies where it was.
    Left,
    /// It is a page of its parcel's history now.
    Filed,
}

/// Takes "is there already" for done.
fn taken(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Tells whether the stage changed the files of what it was given.
pub(crate) fn leaves_changed(outbox: &Outbox) -> bool {
    !outbox.attached.is_empty() || !outbox.detached.is_empty()
}
