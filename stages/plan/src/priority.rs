//! The best of very many: a histogram of priorities, and where it is cut.
//!
//! Priorities are 32-bit floating-point numbers. Their bits, turned so that they sort as numbers do, have 65,536 values in their upper half: counted once,
//! they say from which value on candidates are taken. Those that share the upper half with the last one taken are taken in the order in which they come.

/// Counts candidates by the upper half of their priorities.
pub(crate) struct PriorityHistogram {
    counts: Vec<u64>,
    pub(crate) candidates: u64,
}

/// From which priority on candidates are taken, and how many of those at the border.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PriorityCut {
    border: u32,
    /// Places left at the border.
    at_border: u64,
}

impl PriorityHistogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; 1 << 16],
            candidates: 0,
        }
    }

    /// Counts a candidate that takes so many places.
    pub(crate) fn add(&mut self, priority: f32, places: u64) {
        self.counts[upper_half(priority) as usize] += places;
        self.candidates += places;
    }

    /// Finds where to cut so that no more than `most` places are taken.
    pub(crate) fn cut(&self, most: u64) -> PriorityCut {
        let mut left = most;
        for (border, count) in self.counts.iter().enumerate().rev() {
            if *count > left {
                return PriorityCut {
                    border: u32::try_from(border).expect("there are 65,536"),
                    at_border: left,
                };
            }
            left -= count;
        }
        PriorityCut {
            border: 0,
            at_border: left + self.counts[0],
        }
    }
}

impl PriorityCut {
    /// Tells whether a candidate that takes so many places is taken. They come in the same order each time; at the border one that has no room is left
    /// out, and a smaller one may come after it.
    pub(crate) fn takes(&mut self, priority: f32, places: u64) -> bool {
        let half = upper_half(priority);
        if half != self.border {
            return half > self.border;
        }
        let fits = places <= self.at_border;
        if fits {
            self.at_border -= places;
        }
        fits
    }

    /// Returns the least priority that is surely taken.
    pub(crate) fn least(&self) -> f32 {
        let bits = (self.border << 16) ^ (1 << 31);
        // Below zero the bits are turned once more.
        match self.border >> 15 {
            0 => f32::from_bits(!(self.border << 16)),
            _ => f32::from_bits(bits),
        }
    }
}

/// The upper half of the bits of a number, turned so that they sort as numbers do.
fn upper_half(priority: f32) -> u32 {
    // What is no number comes last.
    let priority = if priority.is_nan() {
        f32::NEG_INFINITY
    } else {
        priority
    };
    let bits = priority.to_bits();
    let sorted = if bits >> 31 == 0 {
        bits | (1 << 31)
    } else {
        !bits
    };
    sorted >> 16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(priorities: &[f32], most: u64) -> Vec<f32> {
        let mut histogram = PriorityHistogram::new();
        for priority in priorities {
            histogram.add(*priority, 1);
        }
        let mut cut = histogram.cut(most);
        let taken = priorities
            .iter()
            .filter(|priority| cut.takes(**priority, 1));
        taken.copied().collect()
    }

    proptest! {
        #[test]
        fn as_many_as_there_is_room_for_and_none_below_one_that_is_left(
            priorities in prop::collection::vec(-1e6f32..1e6, 0..300), most in 0u64..400,
        ) {
            let taken = taken(&priorities, most);
            prop_assert_eq!(taken.len() as u64, most.min(priorities.len() as u64));
            let mut left = priorities.clone();
            for one in &taken {
                let at = left.iter().position(|other| other == one).unwrap();
                left.remove(at);
            }
            let least = taken.iter().copied().fold(f32::INFINITY, f32::min);
            let greatest = left.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // Equal but for the lower half of the bits: 7 bits of the mantissa are told apart.
            prop_assert!(taken.is_empty() || greatest <= least + least.abs() / 64.0, "{} {}", least, greatest);
        }
    }

    #[test]
    fn ties_are_taken_as_they_come_and_large_ones_only_where_they_fit() {
        assert_eq!(taken(&[1.0; 5], 3).len(), 3);
        assert_eq!(taken(&[f32::NAN, -1.0, 0.0], 2), [-1.0, 0.0]);
        let mut histogram = PriorityHistogram::new();
        let sites = [(2.0, 4), (2.0, 9), (2.0, 3), (7.0, 2), (1.0, 1)];
        for (priority, places) in sites {
            histogram.add(priority, places);
        }
        let mut cut = histogram.cut(10);
        let found: Vec<bool> = sites.iter().map(|(p, n)| cut.takes(*p, *n)).collect();
        assert_eq!(found, [true, false, true, true, false]);
        assert_eq!(histogram.cut(10).least(), 2.0);
        assert_eq!(PriorityHistogram::new().cut(10).at_border, 10);
    }
}
