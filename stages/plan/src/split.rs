//! Domains into jobs: the largest first, each into the first job that has room for it.
//!
//! NetarchiveSuite looks at ten thousand domains at a time and has one job open: each window leaves a job behind that is nearly
//! empty. Here all jobs of one group of settings stay open until they are full, or until what is left is too small for them.

use serde::Deserialize;

/// What `[stage.plan.jobs]` may say.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct JobLimits {
    /// Domains of a job.
    pub domains: u64,
    /// Expected objects of a job.
    pub objects: u64,
    /// The largest domain is at most so many times as large as the smallest.
    pub ratio: u64,
    /// Unless they differ by no more than this.
    pub difference: u64,
}

/// A job as it is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDraft {
    /// Which settings it has.
    pub group: u32,
    /// Its domains.
    pub domains: u64,
    /// Objects they are expected to have.
    pub objects: u64,
    /// Bytes they are expected to have.
    pub bytes: u64,
    /// What is expected of the largest one.
    pub largest: u64,
}

impl JobDraft {
    /// Returns how full it is, by whichever limit is nearer.
    #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
    pub fn fill(&self, limits: &JobLimits) -> f64 {
        let objects = self.objects as f64 / limits.objects.max(1) as f64;
        let domains = self.domains as f64 / limits.domains.max(1) as f64;
        objects.max(domains).min(1.0)
    }
}

/// Deals domains out to jobs. They come by group, and in each group the largest first.
pub(crate) struct JobSplitter {
    limits: JobLimits,
    jobs: Vec<JobDraft>,
    /// The first job of the group that may still take something.
    first: usize,
    /// Where the jobs of the group begin.
    begin: usize,
    /// Room in objects: a tree over the jobs of the group, each node the most of the two below it.
    room: Vec<u64>,
    /// Leaves of the tree.
    leaves: usize,
    last: Option<(u32, u64)>,
}

impl JobSplitter {
    /// Returns one without jobs.
    pub(crate) fn new(limits: JobLimits) -> Self {
        Self {
            limits,
            jobs: Vec::new(),
            first: 0,
            begin: 0,
            room: vec![0; 2],
            leaves: 1,
            last: None,
        }
    }

    /// Gives a domain to a job; returns its number.
    ///
    /// # Panics
    /// When they do not come in order.
    pub(crate) fn add(&mut self, group: u32, objects: u64, bytes: u64) -> usize {
        let objects = objects.max(1);
        if self.last.is_none_or(|(before, _)| before != group) {
            assert!(
                self.last.is_none_or(|(before, _)| before < group),
                "by group"
            );
            self.begin = self.jobs.len();
            self.first = self.begin;
            (self.room, self.leaves) = (vec![0; 2], 1);
        } else {
            assert!(
                self.last.is_some_and(|(_, before)| objects <= before),
                "the largest first"
            );
        }
        self.last = Some((group, objects));
        // The first jobs have the largest domains: those too large to stand beside this one come first.
        while self.first < self.jobs.len() && !self.may_stand_beside(self.first, objects) {
            self.set_room(self.first, 0);
            self.first += 1;
        }
        let job = self.first_with(objects).unwrap_or_else(|| {
            self.jobs.push(JobDraft {
                group,
                domains: 0,
                objects: 0,
                bytes: 0,
                largest: objects,
            });
            self.jobs.len() - 1
        });
        let draft = &mut self.jobs[job];
        draft.domains += 1;
        draft.objects += objects;
        draft.bytes = draft.bytes.saturating_add(bytes);
        let room = match draft.domains >= self.limits.domains {
            true => 0,
            false => self.limits.objects.saturating_sub(draft.objects),
        };
        self.set_room(job, room);
        job
    }

    /// Returns the jobs.
    pub(crate) fn finish(self) -> Vec<JobDraft> {
        self.jobs
    }

    fn may_stand_beside(&self, job: usize, objects: u64) -> bool {
        let largest = self.jobs[job].largest;
        largest - objects <= self.limits.difference
            || largest <= objects.saturating_mul(self.limits.ratio)
    }

    /// Returns the first job of the group with so much room.
    fn first_with(&self, objects: u64) -> Option<usize> {
        if self.room[1] < objects {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.room[node] < objects {
                node += 1;
            }
        }
        Some(self.begin + node - self.leaves)
    }

    fn set_room(&mut self, job: usize, room: u64) {
        let place = job - self.begin;
        if place >= self.leaves {
            let before = self.room[self.leaves..].to_vec();
            self.leaves *= 2;
            self.room = vec![0; 2 * self.leaves];
            self.room[self.leaves..][..before.len()].copy_from_slice(&before);
            for node in (1..self.leaves).rev() {
                self.room[node] = self.room[2 * node].max(self.room[2 * node + 1]);
            }
        }
        let mut node = self.leaves + place;
        self.room[node] = room;
        while node > 1 {
            node /= 2;
            self.room[node] = self.room[2 * node].max(self.room[2 * node + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: JobLimits = JobLimits {
        domains: 10_000,
        objects: 8_000_000,
        ratio: 100,
        difference: 2_000,
    };

    fn split(limits: JobLimits, sizes: &[u64]) -> (Vec<usize>, Vec<JobDraft>) {
        let mut splitter = JobSplitter::new(limits);
        let numbers = sizes.iter().map(|size| splitter.add(0, *size, 0)).collect();
        (numbers, splitter.finish())
    }

    /// The same, slowly: every open job is asked in turn.
    fn by_hand(limits: JobLimits, sizes: &[u64]) -> Vec<usize> {
        let mut jobs: Vec<Vec<u64>> = Vec::new();
        sizes
            .iter()
            .map(|size| {
                let fits = |job: &Vec<u64>| {
                    (job.len() as u64) < limits.domains
                        && job.iter().sum::<u64>() + size <= limits.objects
                        && (job[0] - size <= limits.difference || job[0] <= size * limits.ratio)
                };
                match jobs.iter().position(fits) {
                    Some(at) => {
                        jobs[at].push(*size);
                        at
                    }
                    None => {
                        jobs.push(vec![*size]);
                        jobs.len() - 1
                    }
                }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_first_job_with_room_takes_it(
            mut sizes in prop::collection::vec(1u64..20_000, 1..200),
            domains in 1u64..40, objects in 20_000u64..100_000, ratio in 1u64..50, difference in 0u64..3000,
        ) {
            sizes.sort_unstable_by(|left, right| right.cmp(left));
            let limits = JobLimits { domains, objects, ratio, difference };
            let (numbers, jobs) = split(limits, &sizes);
            prop_assert_eq!(&numbers, &by_hand(limits, &sizes));
            prop_assert_eq!(jobs.iter().map(|job| job.objects).sum::<u64>(), sizes.iter().sum::<u64>());
            for job in &jobs {
                prop_assert!(job.domains <= domains && job.objects <= objects);
            }
        }
    }

    /// NetarchiveSuite's next-fit closes a job when the next domain does not fit, and leaves one nearly empty behind each
    /// window of 10,000 domains. Of 35,000 domains with 2,000 objects each and a few large ones no more than one job is not full.
    #[test]
    fn no_job_is_left_nearly_empty() {
        let mut sizes = vec![150_000; 200];
        sizes.extend(vec![2_000; 35_000]);
        let (_, jobs) = split(LIMITS, &sizes);
        let least = sizes.iter().sum::<u64>().div_ceil(LIMITS.objects);
        assert_eq!(jobs.len() as u64, least);
        let poor = jobs.iter().filter(|job| job.fill(&LIMITS) < 0.95).count();
        assert!(poor <= 1, "{jobs:?}");
    }

    #[test]
    fn settings_and_sizes_keep_domains_apart() {
        let mut splitter = JobSplitter::new(LIMITS);
        assert_eq!(splitter.add(0, 1_000_000, 1), 0);
        // Not beside one that is a hundred times as large.
        assert_eq!(splitter.add(0, 9_999, 1), 1);
        assert_eq!(splitter.add(0, 9, 1), 2);
        assert_eq!(splitter.add(0, 0, 1), 2);
        assert_eq!(splitter.add(7, 50, 1), 3);
        // Larger than any job may be: it is alone.
        let mut splitter = JobSplitter::new(LIMITS);
        assert_eq!(splitter.add(0, 9_000_000, 1), 0);
        assert_eq!(splitter.add(0, 200_000, 1), 1);
    }

    #[test]
    fn many_jobs_that_are_not_quite_full_cost_nothing() {
        let (_, jobs) = split(LIMITS, &vec![23_157; 300_000]);
        assert_eq!(jobs.len(), 300_000usize.div_ceil(345));
    }
}
