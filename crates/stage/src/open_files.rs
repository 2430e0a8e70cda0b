//! How many files a process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// What the chain in one process has open at most, with a small crawl, and some to spare.
pub(crate) const NEEDED: u64 = 256;

/// Returns how many files this process may have open once it asks for all it may have.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Lets this process have as many files open as it may, and fails where these are too few: what is opened then would fail in the
/// middle of some work.
///
/// # Errors
/// The machine is at fault.
pub fn must_have_files() -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Who may not goes on with what it has.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
    too_few(open_files()).map_or(Ok(()), |line| Err(Failure::halt(line)))
}

fn too_few(open_files: u64) -> Option<String> {
    (open_files < NEEDED).then(|| {
        format!(
            "{open_files} files may be open at once, and {NEEDED} are needed: raise `ulimit -n`, or LimitNOFILE in the unit"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_told_with_the_number_needed() {
        assert_eq!(too_few(NEEDED), None);
        let told = too_few(64).unwrap();
        assert!(
            told.starts_with("64 files may be open at once, and 256 are needed"),
            "{told}"
        );
    }
}
