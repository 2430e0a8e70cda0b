//! The packing list of a job: which (W)ARC files it wrote.
//!
//! NetarchiveSuite's `archivefiles-report.txt`. The index reads it back, and proves by it that nothing is missing.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::escape::put_word;
use crate::moment::Moment;

/// The name of the list among the reports.
pub const PACKING_LIST: &str = "archivefiles-report.txt";

/// A file that the job wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Packed {
    /// Its name.
    pub name: String,
    /// When it was opened.
    pub opened: Moment,
    /// When it was closed.
    pub closed: Moment,
    /// Its size.
    pub bytes: u64,
}

/// Returns the packing list of these files, in their order.
#[must_use]
pub fn archivefiles_report(files: &[Packed]) -> String {
    let mut text = String::from("[ARCHIVEFILE] [Opened] [Closed] [Size]\n");
    for file in files {
        put_word(&mut text, &file.name);
        writeln!(text, " {} {} {}", file.opened, file.closed, file.bytes)
            .expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_name_two_times_and_size() {
        let file = |name: &str| Packed {
            name: name.to_owned(),
            opened: Moment(1_794_790_800_123),
            closed: Moment(1_794_794_400_000),
            bytes: 999_999_999,
        };
        assert_eq!(
            archivefiles_report(&[
                file("17-4-20261116010000123-00000-crawler.warc.gz"),
                file("a b\n")
            ]),
            "[ARCHIVEFILE] [Opened] [Closed] [Size]\n\
             17-4-20261116010000123-00000-crawler.warc.gz 2026-11-16T01:00:00.123Z 2026-11-16T02:00:00.000Z 999999999\n\
             a%20b%0A 2026-11-16T01:00:00.123Z 2026-11-16T02:00:00.000Z 999999999\n"
        );
        assert_eq!(archivefiles_report(&[]).lines().count(), 1);
    }
}
