//! Where stored files lie, and how many readers may wait for one such place at once.
//!
//! A disk that hangs holds whoever reads from it, for good. So each place has fewer readers than there are, and one that has held a reader for
//! too long is not waited for again until it lets go: other places, and the index, are answered for all the while.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A reader that has been held for longer is not waited for.
const HELD: Duration = Duration::from_secs(5);
/// How long the list of mounts counts.
const MOUNTS: Duration = Duration::from_secs(10);

/// The places, and who is there.
pub(crate) struct Locations {
    /// Readers that may be in one place at once.
    most: usize,
    state: Mutex<LocationState>,
    left: Condvar,
}

#[derive(Default)]
struct LocationState {
    readers: HashMap<PathBuf, Vec<(u64, Instant)>>,
    next: u64,
    mounts: Vec<PathBuf>,
    mounts_read: Option<Instant>,
}

/// A place that does not answer.
#[derive(Debug)]
pub(crate) struct HungLocation;

/// A reader's stay in a place.
pub(crate) struct LocationStay<'a> {
    locations: &'a Locations,
    place: PathBuf,
    number: u64,
}

impl Locations {
    /// Of so many readers a quarter, and one at least, is kept for other places.
    pub(crate) fn new(readers: usize) -> Self {
        Self {
            most: readers.saturating_sub(1.max(readers / 4)).max(1),
            state: Mutex::default(),
            left: Condvar::new(),
        }
    }

    /// Returns how many threads it takes, so that one is always left.
    pub(crate) fn threads(&self, readers: usize) -> usize {
        readers.max(self.most + 1)
    }

    fn state(&self) -> MutexGuard<'_, LocationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes to the place of a file; waits a moment where it is crowded.
    pub(crate) fn enter(&self, file: &Path) -> Result<LocationStay<'_>, HungLocation> {
        self.enter_within(file, HELD)
    }

    fn enter_within(&self, file: &Path, held: Duration) -> Result<LocationStay<'_>, HungLocation> {
        let begun = Instant::now();
        let mut state = self.state();
        let place = state.place_of(file);
        loop {
            let inside = state.readers.entry(place.clone()).or_default();
            let now = Instant::now();
            if inside
                .iter()
                .any(|(_, since)| now.duration_since(*since) >= held)
            {
                return Err(HungLocation);
            }
            if inside.len() < self.most {
                break;
            }
            let left = held.saturating_sub(now.duration_since(begun));
            if left.is_zero() {
                return Err(HungLocation);
            }
            let waited = self.left.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = state.next;
        state.next += 1;
        let inside = state.readers.entry(place.clone()).or_default();
        inside.push((number, Instant::now()));
        Ok(LocationStay {
            locations: self,
            place,
            number,
        })
    }
}

impl Drop for LocationStay<'_> {
    fn drop(&mut self) {
        let mut state = self.locations.state();
        if let Some(inside) = state.readers.get_mut(&self.place) {
            inside.retain(|(number, _)| *number != self.number);
            if inside.is_empty() {
                state.readers.remove(&self.place);
            }
        }
        drop(state);
        self.locations.left.notify_all();
    }
}

impl LocationState {
    /// Returns the mount that a file is on by its name; of one on the root's own, its directory. Asking the file itself could hang.
    fn place_of(&mut self, file: &Path) -> PathBuf {
        if self.mounts_read.is_none_or(|read| read.elapsed() > MOUNTS) {
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            self.mounts = mounts_of(&table);
            self.mounts_read = Some(Instant::now());
        }
        let on = self.mounts.iter().filter(|mount| file.starts_with(mount));
        let on = on.max_by_key(|mount| mount.as_os_str().len());
        let directory = || file.parent().unwrap_or(file).to_owned();
        on.map_or_else(directory, Clone::clone)
    }
}

/// Reads where file systems are mounted; the root's is left out.
fn mounts_of(table: &str) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let plain = points.map(|point| {
        let spaced = point.replace("\\040", " ").replace("\\011", "\t");
        PathBuf::from(spaced.replace("\\012", "\n").replace("\\134", "\\"))
    });
    plain.filter(|point| point != Path::new("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_place_that_hangs_is_not_waited_for_and_others_are() {
        let locations = Locations::new(4);
        assert_eq!((locations.most, locations.threads(4)), (3, 4));
        let hung = Path::new("/nowhere/a/x.warc.gz");
        let held: Vec<_> = (0..3)
            .map(|_| locations.enter_within(hung, NEVER).unwrap())
            .collect();
        // Crowded, and nobody leaves in time.
        let short = Duration::from_millis(1);
        assert!(locations.enter_within(hung, short).is_err());
        // From now on nobody is waited for.
        assert!(locations.enter_within(hung, Duration::ZERO).is_err());
        let other = Path::new("/nowhere/b/x.warc.gz");
        let elsewhere = locations.enter_within(other, NEVER);
        assert!(elsewhere.is_ok());
        drop(elsewhere);
        // It has let go.
        drop(held);
        assert!(locations.enter_within(hung, short).is_ok());
        assert!(locations.state().readers.is_empty());
    }

    #[test]
    fn a_crowded_place_is_waited_for() {
        let locations = Locations::new(1);
        assert_eq!((locations.most, locations.threads(1)), (1, 2));
        let file = Path::new("/nowhere/a/x.warc.gz");
        let stay = locations.enter_within(file, NEVER).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| locations.enter_within(file, NEVER).is_ok());
            drop(stay);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn mounts_are_read_as_the_system_writes_them() {
        let table = "22 1 8:1 / / rw - ext4 /dev/a rw\n30 22 0:5 / /srv/big\\040disk rw,relatime shared:1 - nfs4 host:/x rw\n";
        assert_eq!(mounts_of(table), [PathBuf::from("/srv/big disk")]);
        let mut state = LocationState {
            mounts: mounts_of(table),
            mounts_read: Some(Instant::now()),
            ..LocationState::default()
        };
        let mut place = |file: &str| state.place_of(Path::new(file));
        assert_eq!(place("/srv/big disk/03/a.warc"), Path::new("/srv/big disk"));
        assert_eq!(place("/srv/other/a.warc"), Path::new("/srv/other"));
    }
}
