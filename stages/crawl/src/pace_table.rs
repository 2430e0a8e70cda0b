//! One table for all jobs of this machine: who asks a server now, and when it may be asked again.
//!
//! Two orders for one host would ask it twice as often as its manners allow. So each job, in whatever process, takes its
//! turn here before it connects, and says afterwards how long the server rests. The table is a file of small slots that
//! are changed under a lock. A name has the slot that its hash chooses; two that share one by chance wait for each other.
//! A job that dies is known by the lock it held: what it asked for is free then. Times are those since the machine
//! started, which nobody can set.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::notes::key_of;

/// The file is sparse: what nobody asked for takes no room.
const SLOTS: u64 = 1 << 20;
const SLOT_BYTES: usize = 16;
/// Until a server is looked at again that another job is asking.
const BUSY_WAIT: Duration = Duration::from_millis(100);

/// The table, and who we are in it.
pub(crate) struct PaceTable {
    dir: PathBuf,
    table: File,
    /// What stands in the slots of servers that we ask.
    me: u64,
    /// Locked for as long as we live.
    alive: PathBuf,
    _alive: File,
    /// How often we ask each slot now.
    asking: RefCell<HashMap<u64, u32>>,
}

/// Whether a server may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Now; [`PaceTable::leave`] must follow.
    Granted,
    /// Not before this is over.
    Later(Duration),
}

/// A slot of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Slot {
    /// When it may be asked again, in milliseconds since the machine started.
    until: u64,
    /// Who asks it now.
    owner: u64,
}

impl PaceTable {
    /// Opens the table in a directory, making it if there is none.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let name = format!("table-{}", boot_id());
        let table = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(&name))?;
        // Under the lock nobody takes a file for that of a dead job before it is locked.
        table.lock()?;
        table.set_len(SLOTS * SLOT_BYTES as u64)?;
        sweep(dir, &name)?;
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        let me = u64::from_le_bytes(id).max(1);
        let alive = owner_path(dir, me);
        let file = File::create(&alive)?;
        file.lock()?;
        table.unlock()?;
        Ok(Self {
            dir: dir.to_owned(),
            table,
            me,
            alive,
            _alive: file,
            asking: RefCell::default(),
        })
    }

    /// Takes our turn for all of these names, or for none. Should we die meanwhile, they rest for `least`.
    pub(crate) fn ask(&self, names: [&str; 2], least: Duration) -> io::Result<Turn> {
        let slots = slots_of(names);
        self.locked(|| {
            let now = uptime();
            let mut wait = Duration::ZERO;
            for &slot in &slots {
                wait = wait.max(self.wait_for(self.read(slot)?, now)?);
            }
            if !wait.is_zero() {
                return Ok(Turn::Later(wait));
            }
            let taken = Slot {
                until: after(now, least),
                owner: self.me,
            };
            for slot in slots {
                self.write(slot, taken)?;
                *self.asking.borrow_mut().entry(slot).or_default() += 1;
            }
            Ok(Turn::Granted)
        })
    }

    /// Ends our turn; each name rests for so long.
    pub(crate) fn leave(&self, rests: [(&str, Duration); 2]) -> io::Result<()> {
        let slots = slots_of(rests.map(|(name, _)| name));
        self.locked(|| {
            let now = uptime();
            for slot in slots {
                let named = rests.iter().filter(|(name, _)| slot_of(name) == slot);
                let rest = named.map(|(_, rest)| *rest).max().unwrap_or_default();
                let mut asking = self.asking.borrow_mut();
                let left = asking.remove(&slot).map_or(0, |count| count - 1);
                let mut owner = 0;
                if left > 0 {
                    asking.insert(slot, left);
                    owner = self.me;
                }
                let until = after(now, rest);
                self.write(slot, Slot { until, owner })?;
            }
            Ok(())
        })
    }

    fn wait_for(&self, slot: Slot, now: u64) -> io::Result<Duration> {
        if slot.owner == self.me {
            return Ok(Duration::ZERO);
        }
        if slot.owner != 0 && self.lives(slot.owner)? {
            return Ok(BUSY_WAIT);
        }
        Ok(Duration::from_millis(slot.until.saturating_sub(now)))
    }

    fn lives(&self, owner: u64) -> io::Result<bool> {
        match File::open(owner_path(&self.dir, owner)) {
            Ok(file) => is_locked(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn locked<Output>(&self, act: impl FnOnce() -> io::Result<Output>) -> io::Result<Output> {
        self.table.lock()?;
        let done = act();
        self.table.unlock()?;
        done
    }

    fn read(&self, slot: u64) -> io::Result<Slot> {
        let mut bytes = [0; SLOT_BYTES];
        let at = slot * SLOT_BYTES as u64;
        self.table.read_exact_at(&mut bytes, at)?;
        let both = u128::from_le_bytes(bytes);
        Ok(Slot {
            until: both as u64,
            owner: (both >> 64) as u64,
        })
    }

    fn write(&self, slot: u64, content: Slot) -> io::Result<()> {
        let both = u128::from(content.owner) << 64 | u128::from(content.until);
        let at = slot * SLOT_BYTES as u64;
        self.table.write_all_at(&both.to_le_bytes(), at)
    }
}

impl Drop for PaceTable {
    fn drop(&mut self) {
        // One that stays is swept by whoever comes next.
        let _ = remove(&self.alive);
    }
}

/// Removes what dead jobs left, and tables from before the machine was started.
fn sweep(dir: &Path, table: &str) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_old = match name.to_str() {
            Some(name) if name.starts_with("table-") => name != table,
            Some(name) if name.starts_with("owner-") => !is_locked(&File::open(&entry)?)?,
            _ => false,
        };
        if is_old {
            remove(&entry)?;
        }
    }
    Ok(())
}

fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the table's own small files, in a directory that holds no parcel"
)]
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn owner_path(dir: &Path, owner: u64) -> PathBuf {
    dir.join(format!("owner-{owner:016x}"))
}

/// The slots of names, each once.
fn slots_of(names: [&str; 2]) -> Vec<u64> {
    let mut slots = names.map(slot_of).to_vec();
    slots.dedup();
    slots
}

fn slot_of(name: &str) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&key_of(name.as_bytes())[..8]);
    u64::from_le_bytes(low) % SLOTS
}

fn after(now: u64, rest: Duration) -> u64 {
    let rest = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
    now.saturating_add(rest)
}

/// Milliseconds since the machine started, also while it slept.
fn uptime() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Which start of the machine this is.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn one_job_asks_at_a_time_and_all_keep_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PaceTable::open(dir.path()).unwrap();
        let (one, other) = (open(), open());
        let names = ["a.example", "ip:192.0.2.1"];
        let neighbour = ["b.example", "ip:192.0.2.1"];
        assert_eq!(one.ask(names, LONG).unwrap(), Turn::Granted);
        // A group may have several connections: that is for each job to say.
        assert_eq!(one.ask(names, LONG).unwrap(), Turn::Granted);
        assert_eq!(other.ask(names, LONG).unwrap(), Turn::Later(BUSY_WAIT));
        assert_eq!(other.ask(neighbour, LONG).unwrap(), Turn::Later(BUSY_WAIT));
        let elsewhere = ["c.example", "c.example"];
        assert_eq!(other.ask(elsewhere, LONG).unwrap(), Turn::Granted);
        let over = names.map(|name| (name, Duration::ZERO));
        one.leave(over).unwrap();
        assert_eq!(other.ask(names, LONG).unwrap(), Turn::Later(BUSY_WAIT));
        one.leave([(names[0], LONG), (names[1], Duration::ZERO)])
            .unwrap();
        for job in [&one, &other] {
            let Turn::Later(wait) = job.ask(names, LONG).unwrap() else {
                unreachable!("its rest is not over");
            };
            assert!(wait > LONG / 2 && wait <= LONG);
        }
        assert_eq!(other.ask(neighbour, LONG).unwrap(), Turn::Granted);
    }

    #[test]
    fn what_a_dead_job_asked_is_free_after_the_least_rest() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["a.example", "a.example"];
        let dead = PaceTable::open(dir.path()).unwrap();
        assert_eq!(dead.ask(names, Duration::ZERO).unwrap(), Turn::Granted);
        assert_eq!(dead.ask(["b.example"; 2], LONG).unwrap(), Turn::Granted);
        drop(dead);
        let heir = PaceTable::open(dir.path()).unwrap();
        assert_eq!(heir.ask(names, LONG).unwrap(), Turn::Granted);
        assert!(
            matches!(heir.ask(["b.example"; 2], LONG).unwrap(), Turn::Later(wait) if wait > LONG / 2)
        );
    }

    #[test]
    fn what_others_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "table-of-an-earlier-boot",
            "owner-0000000000000007",
            "other",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let table = PaceTable::open(dir.path()).unwrap();
        let count = || fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(count(), 3, "the table, ourselves, and what is none of ours");
        drop(table);
        assert_eq!(count(), 2);
    }
}
