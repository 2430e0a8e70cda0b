//! What time it is, for schedules: the machine's clock, or in trials what a file says.

use std::path::PathBuf;

use ecluse_stage::Failure;
use jiff::Timestamp;

/// Names the file that has the time in a trial.
const CLOCK_FILE: &str = "ECLUSE_CLOCK_FILE";

/// Where the time comes from.
#[derive(Debug, Clone)]
pub enum PlanClock {
    /// The machine.
    Machine,
    /// A file with one line such as `2027-01-01T03:00:00Z`: a year can be tried in a minute.
    File(PathBuf),
}

impl PlanClock {
    /// Returns the machine's clock, unless the environment names a file.
    pub fn of_environment() -> Self {
        std::env::var_os(CLOCK_FILE).map_or(Self::Machine, |path| Self::File(path.into()))
    }

    /// Returns the time.
    ///
    /// # Errors
    /// When the file has none.
    pub fn now(&self) -> Result<Timestamp, Failure> {
        match self {
            Self::Machine => Ok(Timestamp::now()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path);
                let time = text.ok().and_then(|text| text.trim().parse().ok());
                time.ok_or_else(|| {
                    Failure::config(format!("{CLOCK_FILE}: no time in {}", path.display()))
                })
            }
        }
    }
}
