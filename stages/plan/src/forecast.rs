//! How long a plan would take, at the manners of its order.

use std::time::Duration;

use ecluse_scope::MannersOrder;

use crate::split::JobDraft;

/// How long a fetch takes, where nothing else is known.
const FETCH: Duration = Duration::from_millis(500);

/// Returns the time between two requests to one server.
pub(crate) fn delay_of(manners: &MannersOrder) -> Duration {
    let pause = FETCH.mul_f64(manners.delay_factor.clamp(0.0, 1000.0));
    FETCH
        + pause.clamp(
            manners.min_delay.get(),
            manners.max_delay.get().max(manners.min_delay.get()),
        )
}

/// Returns how long jobs take, so many at a time: the last one ends then.
pub(crate) fn duration_of(jobs: &[JobDraft], manners: &MannersOrder, at_a_time: usize) -> Duration {
    let delay = delay_of(manners);
    let mut longest = Duration::ZERO;
    let mut sum = Duration::ZERO;
    for job in jobs {
        // Its largest domain alone, or all of them over as many connections as it has.
        let connections = u64::from(manners.connections).min(job.domains).max(1);
        let urls = job.largest.max(job.objects / connections);
        let time = delay.saturating_mul(u32::try_from(urls).unwrap_or(u32::MAX));
        longest = longest.max(time);
        sum = sum.saturating_add(time);
    }
    let workers = u32::try_from(at_a_time.max(1)).unwrap_or(u32::MAX);
    longest.max(sum / workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_domain_sets_the_pace() {
        let manners = ecluse_scope::Order::default().manners;
        // Five times as long as the fetch, and never under three seconds.
        assert_eq!(delay_of(&manners), Duration::from_millis(3500));
        let job = |domains, objects, largest| JobDraft {
            group: 0,
            domains,
            objects,
            bytes: 0,
            largest,
        };
        let hours =
            |jobs: &[JobDraft], workers| duration_of(jobs, &manners, workers).as_secs() / 3600;
        // 10,000 URLs of one site: 35,000 seconds, however small the others are.
        assert_eq!(hours(&[job(100, 12_000, 10_000)], 1), 9);
        // 200 connections for a job of many small ones.
        assert_eq!(hours(&[job(10_000, 8_000_000, 1_000)], 1), 38);
        let jobs = vec![job(10_000, 8_000_000, 1_000); 10];
        assert_eq!(hours(&jobs, 2), 194);
        assert_eq!(hours(&jobs, 100), 38);
    }
}
