//! One table for all who ask servers from this machine: who asks a server now, and when it may be asked again.
//!
//! Two orders for one host would ask it twice as often as its manners allow. So each job, in whatever process and of whatever
//! stage, takes its turn here before it connects, and says afterwards how long the server rests. The table is a file of small slots that
//! are changed under a lock. A name has the slot that its hash chooses; two that share one by chance wait for each other.
//! Jobs that want the same server take turns: who has to wait leaves a mark, and who asks the server begins nothing more
//! until the other one had its turn. A job that dies is known by the lock it held: what it asked for is free then.
//! Times are those since the machine started, which nobody can set.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest, Sha256};

/// The file is sparse: what nobody asked for takes no room.
const SLOTS: u64 = 1 << 20;
const SLOT_BYTES: usize = 32;
/// Until a server is looked at again that another job is asking.
const BUSY_WAIT: Duration = Duration::from_millis(100);
/// So long a turn is kept for a job that waits: it looks every so often, unless it wants the server no more.
const TURN_KEPT: Duration = Duration::from_secs(1);

/// The table, and who we are in it.
pub struct PaceTable {
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
pub enum Turn {
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
    /// Who has the next turn.
    waiter: u64,
    /// Until when that holds.
    kept_until: u64,
}

impl PaceTable {
    /// Opens the table in a directory, making it if there is none.
    ///
    /// # Errors
    /// When the disk does not let us.
    pub fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let name = format!("table-2-{}", boot_id());
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
    ///
    /// # Errors
    /// When the table cannot be read or written.
    pub fn ask(&self, names: [&str; 2], least: Duration) -> io::Result<Turn> {
        let slots = slots_of(names);
        self.locked(|| {
            let now = uptime();
            let mut found = [None; 2];
            let (mut wait, mut is_taken) = (Duration::ZERO, false);
            for (number, found) in each_once(&slots).iter().zip(&mut found) {
                let slot = self.read(*number)?;
                let own = self.wait_for(slot, now)?;
                let others = self.is_kept(slot, now)?;
                wait = wait.max(own);
                if others {
                    wait = wait.max(BUSY_WAIT);
                }
                is_taken |= !own.is_zero();
                *found = Some((*number, slot, others));
            }
            for (number, mut slot, others) in found.into_iter().flatten() {
                if wait.is_zero() {
                    slot = Slot {
                        until: after(now, least),
                        owner: self.me,
                        ..Slot::default()
                    };
                    *self.asking.borrow_mut().entry(number).or_default() += 1;
                } else if is_taken && !others {
                    slot.waiter = self.me;
                    slot.kept_until = after(now.max(slot.until), TURN_KEPT);
                } else {
                    continue;
                }
                self.write(number, slot)?;
            }
            Ok(match wait.is_zero() {
                true => Turn::Granted,
                false => Turn::Later(wait),
            })
        })
    }

    /// Says how long each of these names has to wait, for itself.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn waits(&self, names: [&str; 2]) -> io::Result<[Duration; 2]> {
        let [one, other] = slots_of(names);
        let wait = |slot| self.wait_for(self.read(slot)?, uptime());
        self.locked(|| Ok([wait(one)?, wait(other)?]))
    }

    /// Ends our turn; each name rests for so long.
    ///
    /// # Errors
    /// When the table cannot be written.
    pub fn leave(&self, rests: [(&str, Duration); 2]) -> io::Result<()> {
        let slots = slots_of(rests.map(|(name, _)| name));
        let [rest, other_rest] = rests.map(|(_, rest)| rest);
        let rests = match each_once(&slots).len() {
            1 => [rest.max(other_rest), Duration::ZERO],
            _ => [rest, other_rest],
        };
        self.locked(|| {
            let now = uptime();
            for (&slot, rest) in each_once(&slots).iter().zip(rests) {
                let mut asking = self.asking.borrow_mut();
                let left = asking.remove(&slot).map_or(0, |count| count - 1);
                let mut owner = 0;
                if left > 0 {
                    asking.insert(slot, left);
                    owner = self.me;
                }
                let mut left = self.read(slot)?;
                (left.until, left.owner) = (after(now, rest), owner);
                self.write(slot, left)?;
            }
            Ok(())
        })
    }

    /// Tells whether another job has the next turn. One that could take it and does not come loses it.
    fn is_kept(&self, slot: Slot, now: u64) -> io::Result<bool> {
        let is_others = slot.waiter != 0 && slot.waiter != self.me;
        Ok(is_others && now < slot.kept_until && self.lives(slot.waiter)?)
    }

    /// How long it is asked by another job, or rests.
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
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        Ok(Slot {
            until: number(0),
            owner: number(1),
            waiter: number(2),
            kept_until: number(3),
        })
    }

    fn write(&self, slot: u64, content: Slot) -> io::Result<()> {
        let Slot {
            until,
            owner,
            waiter,
            kept_until,
        } = content;
        let bytes = [until, owner, waiter, kept_until].map(u64::to_le_bytes);
        let at = slot * SLOT_BYTES as u64;
        self.table.write_all_at(bytes.as_flattened(), at)
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

/// The slots of two names, which are often the same.
fn slots_of([one, other]: [&str; 2]) -> [u64; 2] {
    let slot = slot_of(one);
    match one == other {
        true => [slot; 2],
        false => [slot, slot_of(other)],
    }
}

/// Two slots, or the one that both are.
fn each_once(slots: &[u64; 2]) -> &[u64] {
    match slots[0] == slots[1] {
        true => &slots[..1],
        false => slots,
    }
}

fn slot_of(name: &str) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&Sha256::digest(name.as_bytes())[..8]);
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
        let [name, group] = other.waits(names).unwrap();
        assert!(name > LONG / 2 && group.is_zero());
        assert_eq!(other.ask(neighbour, LONG).unwrap(), Turn::Granted);
    }

    /// A job with several connections is never through with a server: it would keep all others from it.
    #[test]
    fn jobs_take_turns_however_many_connections_each_has() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PaceTable::open(dir.path()).unwrap();
        let (busy, patient) = (open(), open());
        let names = ["a.example", "ip:192.0.2.1"];
        let over = names.map(|name| (name, Duration::ZERO));
        let granted = |job: &PaceTable| job.ask(names, LONG).unwrap() == Turn::Granted;
        for (one, other) in [(&busy, &patient), (&patient, &busy), (&busy, &patient)] {
            assert!(granted(one) && granted(one));
            assert!(!granted(other));
            one.leave(over).unwrap();
            // It has one in flight still, and begins no other one.
            assert!(!granted(one) && !granted(other));
            one.leave(over).unwrap();
            assert!(!granted(one));
            assert!(granted(other));
            other.leave(over).unwrap();
        }
        // Who waited and is gone keeps nobody waiting.
        assert!(granted(&busy));
        assert!(!granted(&patient));
        drop(patient);
        assert!(granted(&busy));
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
