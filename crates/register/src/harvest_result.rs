//! What became of a domain in one job: it stands in its record, and is next year's expected size.

use serde_json::{Map, Value, json};

use crate::record::{RegisterDay, RegisterRecord};

/// The key of a record that has the results.
const HARVESTS: &str = "harvests";

/// What became of a domain in one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarvestResult {
    /// The job.
    pub job: String,
    /// The harvest it was part of.
    pub harvest: String,
    /// The day the job ended.
    pub day: RegisterDay,
    /// URLs that were answered.
    pub objects: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Why it stopped.
    pub stop: StopReason,
}

/// Why a domain's harvest stopped; the words are NetarchiveSuite's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// Nothing was left to fetch.
    DownloadComplete,
    /// The harvest's limit of objects.
    ObjectLimit,
    /// The harvest's limit of bytes.
    SizeLimit,
    /// The domain's own limit of bytes.
    ConfigSizeLimit,
    /// The job ended before.
    DownloadUnfinished,
    /// The domain's own limit of objects.
    ConfigObjectLimit,
    /// A limit of time.
    TimeLimit,
}

impl StopReason {
    const ALL: [Self; 7] = [
        Self::DownloadComplete,
        Self::ObjectLimit,
        Self::SizeLimit,
        Self::ConfigSizeLimit,
        Self::DownloadUnfinished,
        Self::ConfigObjectLimit,
        Self::TimeLimit,
    ];

    /// Returns NetarchiveSuite's word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::DownloadComplete => "DOWNLOAD_COMPLETE",
            Self::ObjectLimit => "OBJECT_LIMIT",
            Self::SizeLimit => "SIZE_LIMIT",
            Self::ConfigSizeLimit => "CONFIG_SIZE_LIMIT",
            Self::DownloadUnfinished => "DOWNLOAD_UNFINISHED",
            Self::ConfigObjectLimit => "CONFIG_OBJECT_LIMIT",
            Self::TimeLimit => "TIME_LIMIT",
        }
    }

    /// Reads such a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

impl HarvestResult {
    fn to_json(&self) -> Value {
        json!({
            "bytes": self.bytes, "harvest": self.harvest, "job": self.job, "objects": self.objects,
            "stop": self.stop.word(), "when": self.day.to_string(),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        Some(Self {
            job: text("job")?.to_owned(),
            harvest: text("harvest")?.to_owned(),
            day: RegisterDay::parse(text("when")?)?,
            objects: number("objects")?,
            bytes: number("bytes")?,
            stop: StopReason::parse(text("stop")?)?,
        })
    }

    fn rank(&self) -> (RegisterDay, &str, &str) {
        (self.day, &self.harvest, &self.job)
    }
}

impl RegisterRecord {
    /// Returns the results of its harvests, newest first. What is no result is left out.
    pub fn harvests(&self) -> Vec<HarvestResult> {
        let listed = self.more.get(HARVESTS).and_then(Value::as_array);
        let listed = listed.into_iter().flatten();
        listed.filter_map(HarvestResult::from_json).collect()
    }

    /// Adds a result, in place of one of the same job and harvest; the newest `keep` stay.
    pub fn add_harvest(&mut self, result: HarvestResult, keep: usize) {
        let mut results = self.harvests();
        results.retain(|known| (&known.job, &known.harvest) != (&result.job, &result.harvest));
        results.push(result);
        results.sort_by(|left, right| right.rank().cmp(&left.rank()));
        results.truncate(keep);
        let listed = results.iter().map(HarvestResult::to_json).collect();
        insert(&mut self.more, HARVESTS, listed);
    }
}

fn insert(more: &mut Map<String, Value>, key: &str, listed: Vec<Value>) {
    match listed.is_empty() {
        true => more.remove(key),
        false => more.insert(key.to_owned(), Value::Array(listed)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(job: &str, day: u8, objects: u64) -> HarvestResult {
        HarvestResult {
            job: job.to_owned(),
            harvest: "broad".to_owned(),
            day: RegisterDay::new(2026, 1, day).unwrap(),
            objects,
            bytes: 10 * objects,
            stop: StopReason::ObjectLimit,
        }
    }

    /// Whatever the order in which they come, and however often.
    #[test]
    fn results_are_kept_once_newest_first() {
        let results = [
            result("a", 1, 1),
            result("b", 3, 2),
            result("c", 2, 3),
            result("d", 2, 4),
        ];
        let expected = ["b", "d", "c"];
        for first in 0..4 {
            let mut record = RegisterRecord::new("a.fr", RegisterDay::new(2026, 1, 1).unwrap());
            for at in [0, 1, 2, 3, 1] {
                record.add_harvest(results[(first + at) % 4].clone(), 3);
            }
            let kept = record.harvests();
            let jobs: Vec<&str> = kept.iter().map(|result| result.job.as_str()).collect();
            assert_eq!(jobs, expected);
            assert_eq!(kept[0], results[1]);
        }
    }

    #[test]
    fn the_words_are_those_of_netarchivesuite() {
        for reason in StopReason::ALL {
            assert_eq!(StopReason::parse(reason.word()), Some(reason));
        }
        assert_eq!(StopReason::parse("DONE"), None);
    }
}
