//! Which of several next stages gets a result: the copy with the least to do.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::home::Home;

/// How often the queues are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The queues of a stage's nexts, as they were counted last, with what was given since.
#[derive(Debug, Default)]
pub struct ShortestQueue {
    queues: Vec<(usize, String)>,
    counted: Option<Instant>,
}

impl ShortestQueue {
    /// Returns the next stage that has the fewest parcels, waiting or in hand: the stage itself, or one machine's copy of it.
    /// One that a person paused gets nothing while another works. `None` without a next stage.
    ///
    /// # Errors
    /// When the queues cannot be counted.
    pub fn of(&mut self, home: &Home) -> Result<Option<String>, Failure> {
        if let [] | [_] = home.next.as_slice() {
            return Ok(home.next.first().cloned());
        }
        if self.counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            self.counted = Some(Instant::now());
            self.queues.clear();
            let (mut at_work, mut paused) = (Vec::new(), Vec::new());
            for next in &home.next {
                let depths = home.engine.depths(next)?;
                let queue = (depths.ready + depths.working, next.clone());
                match home.engine.paused(next)? {
                    None => at_work.push(queue),
                    Some(_) => paused.push(queue),
                }
            }
            self.queues = if at_work.is_empty() { paused } else { at_work };
        }
        let Some(shortest) = self.queues.iter_mut().min_by_key(|(waiting, _)| *waiting) else {
            return Ok(None);
        };
        // What this worker gives is not seen there before the group is committed.
        shortest.0 += 1;
        Ok(Some(shortest.1.clone()))
    }
}
