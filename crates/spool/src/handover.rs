//! From a durable receipt to where its results belong: files changed, history added, parcels passed on.
//!
//! Everything here can be repeated from the receipt by anybody: what is no longer here has arrived. So nothing waits for
//! the disk, but for what is copied to another file system.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::commit::{Finish, Work};
use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, gone, is_taken};
use crate::ledger;
use crate::name::{Entry, ParcelId};
use crate::outbox::{ATTACHED, NEW_MANIFEST, Outbox, Ticking};
use crate::parcel::{HISTORY, MANIFEST, TROUBLE};
use crate::receipt::{Fate, Receipt};
use crate::worker::{Seen, Signs, Worker, is_page_of, read_manifest};

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
        match listed {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => match self.fs.mkdir(&history) {
                Ok(()) => {}
                // The parcel itself is gone: it was handed over before.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e).at("make", &history),
            },
            Err(e) => return Err(e).at("list", &history),
        }
        if there {
            return Ok(());
        }
        let page = self.page(parcel, pages);
        match self.fs.link(filed, &page) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // Folded into the ledger since, out of links, or on another file system: copy its line.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::TooManyLinks
                        | io::ErrorKind::CrossesDevices
                        | io::ErrorKind::NotFound
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
        match self.fs.rename(&path, &bin) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e).at("remove", &path),
        }
        self.fs.remove_tree(&bin).at("remove", &bin)?;
        Ok(())
    }

    /// Moves a parcel into the `ready/` of another stage. Not there any more: it was moved before.
    pub(crate) fn deliver(&mut self, path: &Path, id: &ParcelId, to: &str) -> Result<()> {
        let dest = self.yard.stage(to);
        let entry = Entry {
            id: id.clone(),
            attempts: 0,
        };
        let slot = self.yard.ready_slot(&dest, &entry);
        let mut result = self.fs.rename(path, &slot);
        if matches!(&result, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            if !self.fs.is_there(path).at("look at", path)? {
                return self.check_fence();
            }
            // The next stage has never run here, or somebody took its directories away.
            self.yard.init(to)?;
            result = self.fs.rename(path, &slot);
        }
        match result {
            Ok(()) => {
                if let Some(dir) = slot.parent()
                    && !self.touched.contains(dir)
                {
                    self.touched.insert(dir.to_owned());
                }
                Ok(())
            }
            Err(e) if is_taken(&*self.fs, &e, &slot) => {
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
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                self.deliver_across(path, &dest, &entry)
            }
            Err(e) => Err(e).at("hand over", &slot),
        }
    }

    /// A parcel of this name waits there already: tells whether it is the same. If so the second is
    /// to be dropped, if not it is to be held there.
    fn is_copy(&self, path: &Path, slot: &Path, entry: &Entry, to: &str) -> Result<bool> {
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

    /// The next stage lies on another file system: the parcel is copied, made durable, then marked
    /// here as sent, and only then shown there. The mark is what a restart goes by.
    fn deliver_across(&mut self, path: &Path, dest: &crate::StageDir, entry: &Entry) -> Result<()> {
        // The same name when the same worker tries again; a full parcel id would leave no room.
        let number = entry.id.order(self.id.seed());
        let draft = dest.tmp().join(format!("copy-{number:016x}"));
        self.fs.remove_tree(&draft).at("remove", &draft)?;
        if let Err(error) = copy_tree(&*self.fs, path, &draft, &self.signs) {
            // Half a copy must not keep the other disk full.
            let _ = self.fs.remove_tree(&draft);
            return Err(error);
        }
        // Under this name it is not swept, however long it takes until somebody shows it.
        let copy = dest.tmp().join(format!("{SENT}{number:016x}"));
        self.fs.remove_tree(&copy).at("remove", &copy)?;
        self.fs.rename(&draft, &copy).at("copy", &copy)?;
        let tmp = dest.tmp();
        self.fs.sync_dir(&tmp).at("sync", &tmp)?;
        let out = self.home.join("out");
        let mark = out.join(format!(".sent-{}", entry.file_name()));
        // Names, not paths: the next worker may see the same directories from elsewhere.
        let note = SentNote {
            to: dest.name.clone(),
            copy: number,
            parcel: entry.id.clone(),
        };
        let note = serde_json::to_vec(&note).expect("a note holds only strings and a number");
        let note_path = path.join(SENT_NOTE);
        gone(self.fs.unlink(&note_path)).at("remove", &note_path)?;
        self.fs
            .write_new(&note_path, &note)
            .at("write", &note_path)?;
        self.fs.sync_file(&note_path).at("sync", &note_path)?;
        self.fs.sync_dir(path).at("sync", path)?;
        self.fs.rename(path, &mark).at("mark as sent", &mark)?;
        self.show_sent(&mark)
    }

    /// Shows a parcel that was copied to another file system, and forgets it here.
    pub(crate) fn show_sent(&mut self, mark: &Path) -> Result<()> {
        let path = mark.join(SENT_NOTE);
        let bytes = match self.fs.read(&path, 1 << 16) {
            Ok(bytes) => bytes,
            // The note is durable before the mark is made: this is what is left of a removal.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return self.fs.remove_tree(mark).at("remove", mark);
            }
            Err(e) => return Err(e).at("read", &path),
        };
        // Two file systems, two journals: were the mark not durable here, a power cut would bring
        // the parcel back after it was shown there. Whoever comes to show it sees to that again.
        if let Some(out) = mark.parent() {
            self.fs.sync_dir(out).at("sync", out)?;
        }
        let note: SentNote = serde_json::from_slice(&bytes)
            .map_err(|e| SpoolError::Refused(format!("{}: {e}", path.display())))?;
        let dest = self.yard.stage(&note.to);
        let copy = dest.tmp().join(format!("{SENT}{:016x}", note.copy));
        let entry = Entry {
            id: note.parcel,
            attempts: 0,
        };
        let slot = self.yard.ready_slot(&dest, &entry);
        // Not there any more: it was shown before.
        if self.fs.is_there(&copy).at("look at", &copy)? {
            self.show_copy(&copy, &slot, &dest, &entry)?;
        }
        self.fs.remove_tree(mark).at("remove", mark)
    }

    fn show_copy(
        &mut self,
        copy: &Path,
        slot: &Path,
        dest: &crate::StageDir,
        entry: &Entry,
    ) -> Result<()> {
        let mut result = self.fs.rename(copy, slot);
        if matches!(&result, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            self.yard.init(&dest.name)?;
            result = self.fs.rename(copy, slot);
        }
        match result {
            Err(e) if is_taken(&*self.fs, &e, slot) => {
                if self.is_copy(copy, slot, entry, &dest.name)? {
                    return self.fs.remove_tree(copy).at("remove", copy);
                }
                self.put_back(copy, &dest.held().join(entry.file_name()))?;
                self.sync_touched()
            }
            other => {
                other.at("hand over", slot)?;
                let dir = slot.parent().expect("a slot lies in ready/");
                self.fs.sync_dir(dir).at("sync", dir)
            }
        }
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

fn copy_tree(fs: &dyn Fs, from: &Path, to: &Path, signs: &Signs) -> Result<()> {
    fs.mkdir(to).at("make", to)?;
    for (name, kind) in fs.list(from).at("list", from)? {
        let (source, copy) = (from.join(&name), to.join(&name));
        if name == SENT_NOTE {
            continue;
        }
        match kind {
            crate::fs::Kind::Dir => copy_tree(fs, &source, &copy, signs)?,
            crate::fs::Kind::File => {
                let source_file = fs.open(&source).at("open", &source)?;
                let mut reader = Ticking::new(source_file, signs);
                let mut writer = fs.create(&copy).at("create", &copy)?;
                io::copy(&mut reader, &mut writer).at("copy to", &copy)?;
                writer.flush().at("write", &copy)?;
                drop(writer);
                fs.sync_file(&copy).at("sync", &copy)?;
            }
            // No manifest names it, or the parcel would have been held.
            crate::fs::Kind::Symlink | crate::fs::Kind::Other => {
                tracing::warn!(entry = ?source, "left behind: neither a file nor a directory");
            }
        }
    }
    fs.sync_dir(to).at("sync", to)
}

/// How the name of a parcel sent to another file system begins, in `tmp/` there.
pub(crate) const SENT: &str = "sent-";

/// The note of a parcel that was copied to another file system, inside what is left of it here.
const SENT_NOTE: &str = ".sent.json";

#[derive(serde::Serialize, serde::Deserialize)]
struct SentNote {
    to: String,
    copy: u64,
    parcel: ParcelId,
}
