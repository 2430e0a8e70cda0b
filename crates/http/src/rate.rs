//! How fast bytes may come: a bucket that fills with time and is emptied by bytes.
//!
//! Bytes are taken after they were read, so the bucket may be in debt; the reader then waits until it is paid, and the
//! window of TCP makes the server wait too.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket that holds at most one second's worth.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    bytes_per_second: u64,
    /// May be negative.
    level: f64,
    at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self {
            bytes_per_second,
            level: bytes_per_second as f64,
            at: now,
        }
    }

    /// Takes some bytes and returns how long to wait before the next.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let rate = self.bytes_per_second as f64;
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + elapsed * rate).min(rate) - bytes as f64;
        self.at = self.at.max(now);
        if self.level >= 0.0 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(-self.level / rate).unwrap_or(Duration::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_free_then_the_rate_holds() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1000, start);
        assert_eq!(bucket.take(1000, start), Duration::ZERO);
        assert_eq!(bucket.take(500, start), Duration::from_millis(500));
        let later = start + Duration::from_millis(500);
        assert_eq!(bucket.take(0, later), Duration::ZERO);
        assert_eq!(bucket.take(250, later), Duration::from_millis(250));
        // A long rest is worth one second, not more.
        let much_later = start + Duration::from_secs(100);
        assert_eq!(bucket.take(1500, much_later), Duration::from_millis(500));
    }

    #[test]
    fn a_rate_of_nothing_is_not_forever() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(0, start);
        assert!(bucket.take(3, start) <= Duration::from_secs(2));
    }
}
