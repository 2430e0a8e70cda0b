//! The records of the frontier: queues, groups, waiting URLs, known URLs, and the totals.
//!
//! Each is written by `encode` and read by `decode`, which gives nothing for bytes that are no record.

use std::time::Duration;

use crate::codec::{Reader, put_bytes, put_number, put_option, put_signed};
use crate::item::{Candidate, Item, ItemId, Millis, Precedence, whole_millis};
use crate::key::{self, Id, Position, SHORT_ID_BYTES, UrlHash};
use crate::manners::{Pace, RestReason};
use crate::settings::{Budget, Overrides};
use crate::starts::Starts;
use crate::store::Key;

/// A record that is kept under the hash of its name.
pub(crate) trait Record: Sized {
    /// The key of the record of this identifier.
    fn key(id: &Id) -> Key;
    /// Appends the record.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a record.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Where a queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueuePlace {
    /// It has nothing to do now.
    Nowhere,
    /// It has work, and takes its turn or is active.
    Rotation(Position),
    /// It has work, but waits behind others of its group.
    Parked(Position),
    /// It waits for a time.
    Sleeping { due: u64, number: u64 },
    /// It is retired.
    Retired(Retired),
}

/// Why a queue is retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retired {
    /// Its URLs cost what they may.
    Urls = 0,
    /// Its bytes are what they may.
    Bytes = 1,
    /// Its time is over.
    Time = 3,
}

/// What is known of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct QueueRecord {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) place: QueuePlace,
    /// URLs in it, those in flight and those that sleep included.
    pub(crate) queued: u64,
    /// URLs of these that sleep until their retry.
    pub(crate) sleeping: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) spent: u64,
    pub(crate) last_status: i32,
    /// When its first fetch began.
    pub(crate) first_fetch: Option<Millis>,
    pub(crate) budget: Option<Budget>,
    /// No waiting URL is before this.
    pub(crate) head: Position,
    /// How it is paced beside its group.
    pub(crate) pace: Pace,
    /// The opening of the frontier in which the pace was last looked at.
    pub(crate) epoch: u64,
}

/// The head of a queue without URLs.
pub(crate) const NO_HEAD: Position = (u8::MAX, u64::MAX);
/// What stands where a queue once had a priority.
const NO_PRIORITY: u8 = 128;

impl QueueRecord {
    pub(crate) fn new(name: &str, group: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: group.to_owned(),
            place: QueuePlace::Nowhere,
            queued: 0,
            sleeping: 0,
            done: 0,
            failed: 0,
            bytes: 0,
            spent: 0,
            last_status: 0,
            first_fetch: None,
            budget: None,
            head: NO_HEAD,
            pace: Pace::default(),
            epoch: 0,
        }
    }

    /// Which part of the budget is used up now, with `more` to be spent.
    pub(crate) fn exhausted(&self, usual: &Budget, more: u64, now: Millis) -> Option<Retired> {
        let budget = self.budget.unwrap_or(*usual);
        let reached = |spent: u64, limit: Option<u64>| limit.is_some_and(|limit| spent >= limit);
        if reached(self.spent.saturating_add(more), budget.urls) {
            return Some(Retired::Urls);
        }
        if reached(self.bytes, budget.bytes) {
            return Some(Retired::Bytes);
        }
        let (first, limit) = self.first_fetch.zip(budget.time)?;
        (now.since(first) >= limit).then_some(Retired::Time)
    }
}

impl Record for QueueRecord {
    fn key(id: &Id) -> Key {
        key::queue(id)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        // Most queues are their own group.
        let group = if self.group == self.name {
            ""
        } else {
            &self.group
        };
        put_bytes(out, group.as_bytes());
        out.push(NO_PRIORITY);
        self.place.encode(out);
        let numbers = [
            self.queued,
            self.sleeping,
            self.done,
            self.failed,
            self.bytes,
            self.spent,
        ];
        numbers.iter().for_each(|number| put_number(out, *number));
        put_signed(out, self.last_status.into());
        match self.budget {
            None => out.push(0),
            Some(budget) => {
                out.push(1);
                put_option(out, budget.urls);
                put_option(out, budget.bytes);
                put_option(out, budget.time.map(whole_millis));
            }
        }
        put_option(out, self.first_fetch.map(|first| first.0));
        put_position(out, self.head);
        // Most queues are alone in their group, which has the pace then.
        if self.pace.delay > 0 || self.pace.next_allowed.0 > 0 {
            put_pace(out, &self.pace);
            put_number(out, self.epoch);
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let name = reader.string()?;
        let group = reader.string()?;
        reader.byte()?;
        let mut queue = Self {
            group: if group.is_empty() {
                name.clone()
            } else {
                group
            },
            name,
            place: QueuePlace::decode(&mut reader)?,
            queued: reader.number()?,
            sleeping: reader.number()?,
            done: reader.number()?,
            failed: reader.number()?,
            bytes: reader.number()?,
            spent: reader.number()?,
            last_status: reader.signed()?.try_into().ok()?,
            budget: match reader.byte()? {
                0 => None,
                _ => Some(Budget {
                    urls: reader.option()?,
                    bytes: reader.option()?,
                    time: reader.option()?.map(Duration::from_millis),
                }),
            },
            first_fetch: reader.option()?.map(Millis),
            head: position(&mut reader)?,
            pace: Pace::default(),
            epoch: 0,
        };
        if let Some(pace) = pace(&mut reader) {
            queue.pace = pace;
            queue.epoch = reader.number()?;
        }
        Some(queue)
    }
}

impl QueuePlace {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Nowhere => out.push(0),
            Self::Rotation(position) => {
                out.push(1);
                put_position(out, position);
            }
            Self::Parked(position) => {
                out.push(2);
                put_position(out, position);
            }
            Self::Sleeping { due, number } => {
                out.push(3);
                put_number(out, due);
                put_number(out, number);
            }
            Self::Retired(why) => out.extend_from_slice(&[4, why as u8]),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.byte()? {
            0 => Self::Nowhere,
            1 => Self::Rotation(position(reader)?),
            2 => Self::Parked(position(reader)?),
            3 => Self::Sleeping {
                due: reader.number()?,
                number: reader.number()?,
            },
            4 => Self::Retired(match reader.byte()? {
                0 => Retired::Urls,
                1 => Retired::Bytes,
                3 => Retired::Time,
                _ => return None,
            }),
            _ => return None,
        })
    }
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    out.push(position.0);
    put_number(out, position.1);
}

fn position(reader: &mut Reader<'_>) -> Option<Position> {
    Some((reader.byte()?, reader.number()?))
}

fn put_pace(out: &mut Vec<u8>, pace: &Pace) {
    put_number(out, pace.next_allowed.0);
    put_number(out, pace.stamp.0);
    put_number(out, pace.last_start.0);
    put_number(out, pace.delay);
    out.extend_from_slice(&[pace.reason as u8, pace.level]);
    put_number(out, pace.strikes.into());
}

fn pace(reader: &mut Reader<'_>) -> Option<Pace> {
    let next_allowed = Millis(reader.number()?);
    let stamp = Millis(reader.number()?);
    let last_start = Millis(reader.number()?);
    Some(Pace {
        next_allowed,
        stamp,
        last_start,
        delay: reader.number()?,
        reason: RestReason::from_byte(reader.byte()?)?,
        level: reader.byte()?,
        strikes: reader.small()?,
        paid_until: Millis(0),
        starts: Starts::quiet(last_start, next_allowed),
    })
}

/// What is known of a group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct GroupRecord {
    pub(crate) name: String,
    pub(crate) overrides: Overrides,
    pub(crate) pace: Pace,
    /// The opening of the frontier in which the pace was last looked at.
    pub(crate) epoch: u64,
    /// Queues that take part.
    pub(crate) taking_part: u64,
    /// Queues that wait behind them.
    pub(crate) parked: u64,
    /// None of these is before this.
    pub(crate) parked_head: Position,
    pub(crate) last_status: i32,
}

/// What the name of a group begins with whose queues are those of one address.
const BY_ADDRESS: &str = "ip:";

impl GroupRecord {
    /// Tells whether its queues have only their address in common.
    pub(crate) fn is_by_address(&self) -> bool {
        self.name.starts_with(BY_ADDRESS)
    }

    /// Tells whether several queues have work in it.
    pub(crate) fn is_shared(&self) -> bool {
        self.taking_part + self.parked > 1
    }

    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            overrides: Overrides::default(),
            pace: Pace::default(),
            epoch: 0,
            taking_part: 0,
            parked: 0,
            parked_head: NO_HEAD,
            last_status: 0,
        }
    }
}

impl Record for GroupRecord {
    fn key(id: &Id) -> Key {
        key::group(id)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        let Overrides {
            delay_factor,
            min_delay,
            max_delay,
            connections,
            bytes_per_second,
        } = self.overrides;
        put_option(out, delay_factor.map(f64::to_bits));
        put_option(out, min_delay.map(whole_millis));
        put_option(out, max_delay.map(whole_millis));
        put_option(out, connections.map(u64::from));
        put_option(out, bytes_per_second);
        put_pace(out, &self.pace);
        put_number(out, self.epoch);
        put_number(out, self.taking_part);
        put_number(out, self.parked);
        put_position(out, self.parked_head);
        put_signed(out, self.last_status.into());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let name = reader.string()?;
        let delay_factor = reader.option()?.map(f64::from_bits);
        let min_delay = reader.option()?.map(Duration::from_millis);
        let max_delay = reader.option()?.map(Duration::from_millis);
        let connections = reader.option()?.and_then(|number| number.try_into().ok());
        let bytes_per_second = reader.option()?;
        let pace = pace(&mut reader)?;
        Some(Self {
            name,
            overrides: Overrides {
                delay_factor,
                min_delay,
                max_delay,
                connections,
                bytes_per_second,
            },
            pace,
            epoch: reader.number()?,
            taking_part: reader.number()?,
            parked: reader.number()?,
            parked_head: position(&mut reader)?,
            last_status: reader.signed()?.try_into().ok()?,
        })
    }
}

/// A URL that waits, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredItem {
    pub(crate) hash: UrlHash,
    pub(crate) attempts: u32,
    pub(crate) cost: u32,
    pub(crate) force: bool,
    pub(crate) url: String,
    pub(crate) via: String,
    pub(crate) hops: String,
    pub(crate) source: String,
}

impl StoredItem {
    pub(crate) fn encode_candidate(hash: &UrlHash, candidate: &Candidate<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(hash);
        put_number(out, 0);
        put_number(out, candidate.cost.into());
        out.push(candidate.force.into());
        encode_strings(
            [
                candidate.url,
                candidate.via,
                candidate.hops,
                candidate.source,
            ],
            out,
        );
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash);
        put_number(out, self.attempts.into());
        put_number(out, self.cost.into());
        out.push(self.force.into());
        encode_strings([&self.url, &self.via, &self.hops, &self.source], out);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let hash = reader.array()?;
        let attempts = reader.small()?;
        let cost = reader.small()?;
        let force = reader.byte()? != 0;
        let url = reader.string()?;
        let shared: usize = reader.number()?.try_into().ok()?;
        let mut via = url.get(..shared)?.to_owned();
        via.push_str(&reader.string()?);
        Some(Self {
            hash,
            attempts,
            cost,
            force,
            url,
            via,
            hops: reader.string()?,
            source: reader.string()?,
        })
    }

    /// The URL as it is handed out, from this position of a queue in a group.
    pub(crate) fn item(self, position: Position, queue: String, group: String) -> Item {
        Item {
            id: ItemId(position.1),
            url: self.url,
            via: self.via,
            hops: self.hops,
            source: self.source,
            queue,
            group,
            precedence: Precedence(position.0),
            cost: self.cost,
            attempts: self.attempts,
            force: self.force,
        }
    }
}

/// The via is mostly a page of the same site: only what differs from the URL is written.
fn encode_strings([url, via, hops, source]: [&str; 4], out: &mut Vec<u8>) {
    put_bytes(out, url.as_bytes());
    let same = url.bytes().zip(via.bytes()).take_while(|(a, b)| a == b);
    let mut shared = same.count();
    while !url.is_char_boundary(shared) || !via.is_char_boundary(shared) {
        shared -= 1;
    }
    put_number(out, shared as u64);
    put_bytes(out, &via.as_bytes()[shared..]);
    put_bytes(out, hops.as_bytes());
    put_bytes(out, source.as_bytes());
}

/// What is stored beside a URL's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) state: SeenState,
    pub(crate) attempts: u8,
    pub(crate) status: i16,
    pub(crate) queue: [u8; SHORT_ID_BYTES],
}

/// How far a known URL is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeenState {
    Queued = 0,
    Done = 1,
    Failed = 2,
}

impl Seen {
    pub(crate) fn encode(self) -> [u8; 4 + SHORT_ID_BYTES] {
        let mut out = [0; 4 + SHORT_ID_BYTES];
        out[0] = self.state as u8;
        out[1] = self.attempts;
        out[2..4].copy_from_slice(&self.status.to_le_bytes());
        out[4..].copy_from_slice(&self.queue);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Some(Self {
            state: match reader.byte()? {
                0 => SeenState::Queued,
                1 => SeenState::Done,
                2 => SeenState::Failed,
                _ => return None,
            },
            attempts: reader.byte()?,
            status: i16::from_le_bytes(reader.array()?),
            queue: reader.array()?,
        })
    }
}

/// What sleeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// A URL that is to be tried again.
    Item {
        queue: Id,
        precedence: u8,
        item: Vec<u8>,
    },
    /// A queue whose group must wait long.
    Queue(Id),
}

impl Sleeper {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Item {
                queue,
                precedence,
                item,
            } => {
                out.push(0);
                out.extend_from_slice(queue);
                out.push(*precedence);
                out.extend_from_slice(item);
            }
            Self::Queue(queue) => {
                out.push(1);
                out.extend_from_slice(queue);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        match reader.byte()? {
            0 => Some(Self::Item {
                queue: reader.array()?,
                precedence: reader.byte()?,
                item: reader.rest().to_vec(),
            }),
            1 => Some(Self::Queue(reader.array()?)),
            _ => None,
        }
    }
}

/// What is counted over all, and committed with the caller's checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// How often the frontier was opened.
    pub(crate) epoch: u64,
    /// Whether it was closed after this commit.
    pub(crate) clean: bool,
    /// The last number given to an item, a turn or a sleeper.
    pub(crate) sequence: u64,
    pub(crate) known: u64,
    pub(crate) queued: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) queues: u64,
    pub(crate) groups: u64,
    /// Queues in the rotation, the active ones included.
    pub(crate) rotating: u64,
    pub(crate) parked: u64,
    pub(crate) sleeping_queues: u64,
    pub(crate) sleeping_items: u64,
    pub(crate) retired_queues: u64,
    /// URLs in retired queues.
    pub(crate) retired_items: u64,
}

/// The version of all records.
pub(crate) const META_VERSION: u8 = 2;

impl Totals {
    pub(crate) fn encode(&self, checkpoint: Option<&[u8]>) -> Vec<u8> {
        let mut out = vec![META_VERSION, self.clean.into()];
        let numbers = [
            self.epoch,
            self.sequence,
            self.known,
            self.queued,
            self.done,
            self.failed,
            self.bytes,
            self.queues,
            self.groups,
            self.rotating,
            self.parked,
            self.sleeping_queues,
            self.sleeping_items,
            self.retired_queues,
            self.retired_items,
        ];
        numbers
            .iter()
            .for_each(|number| put_number(&mut out, *number));
        if let Some(checkpoint) = checkpoint {
            out.push(1);
            out.extend_from_slice(checkpoint);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, Option<Vec<u8>>)> {
        let mut reader = Reader::new(bytes);
        (reader.byte()? == META_VERSION).then_some(())?;
        let clean = reader.byte()? != 0;
        let totals = Self {
            clean,
            epoch: reader.number()?,
            sequence: reader.number()?,
            known: reader.number()?,
            queued: reader.number()?,
            done: reader.number()?,
            failed: reader.number()?,
            bytes: reader.number()?,
            queues: reader.number()?,
            groups: reader.number()?,
            rotating: reader.number()?,
            parked: reader.number()?,
            sleeping_queues: reader.number()?,
            sleeping_items: reader.number()?,
            retired_queues: reader.number()?,
            retired_items: reader.number()?,
        };
        let checkpoint = reader.byte().map(|_| reader.rest().to_vec());
        Some((totals, checkpoint))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = QueuePlace> {
        prop_oneof![
            Just(QueuePlace::Nowhere),
            any::<Position>().prop_map(QueuePlace::Rotation),
            any::<Position>().prop_map(QueuePlace::Parked),
            any::<(u64, u64)>().prop_map(|(due, number)| QueuePlace::Sleeping { due, number }),
            Just(QueuePlace::Retired(Retired::Time)),
        ]
    }

    proptest! {
        #[test]
        fn items_are_read_back(hash: [u8; 20], attempts: u32, cost: u32, force: bool, url: String, via: String) {
            let item = StoredItem {
                hash, attempts, cost, force,
                via: format!("{url}{via}"),
                url: url + "é",
                hops: "LLE".to_owned(),
                source: via,
            };
            let mut out = Vec::new();
            item.encode(&mut out);
            prop_assert_eq!(StoredItem::decode(&out), Some(item));
        }

        #[test]
        fn queues_are_read_back(name: String, group: String, place in place(), numbers: [u64; 6], head: Position, status: i32, time: Option<u64>) {
            let [queued, sleeping, done, failed, bytes, spent] = numbers;
            let group = if group.is_empty() { name.clone() } else { group };
            let record = QueueRecord {
                name, group, place, queued, sleeping, done, failed, bytes, spent, head,
                last_status: status,
                first_fetch: time.map(Millis),
                budget: Some(Budget { urls: Some(queued), bytes: None, time: time.map(Duration::from_millis) }),
                pace: time.map_or_else(Pace::default, |until| Pace {
                    next_allowed: Millis(until),
                    delay: 1,
                    starts: Starts::quiet(Millis(0), Millis(until)),
                    ..Pace::default()
                }),
                epoch: time.unwrap_or(0),
            };
            let mut out = Vec::new();
            record.encode(&mut out);
            prop_assert_eq!(QueueRecord::decode(&out), Some(record));
        }

        #[test]
        fn groups_are_read_back(name: String, numbers: [u64; 4], counts: [u64; 4], strikes: u32, level: u8, rate: Option<u64>) {
            let [next_allowed, stamp, last_start, delay] = numbers;
            let [epoch, taking_part, parked, number] = counts;
            let record = GroupRecord {
                overrides: Overrides {
                    delay_factor: Some(1.5),
                    min_delay: rate.map(Duration::from_millis),
                    connections: Some(strikes),
                    bytes_per_second: rate,
                    ..Overrides::default()
                },
                pace: Pace {
                    next_allowed: Millis(next_allowed),
                    stamp: Millis(stamp),
                    last_start: Millis(last_start),
                    delay,
                    reason: RestReason::Bandwidth,
                    level,
                    strikes,
                    paid_until: Millis(0),
                    starts: Starts::quiet(Millis(last_start), Millis(next_allowed)),
                },
                epoch, taking_part, parked,
                parked_head: (level, number),
                last_status: -4,
                ..GroupRecord::new(&name)
            };
            let mut out = Vec::new();
            record.encode(&mut out);
            prop_assert_eq!(GroupRecord::decode(&out), Some(record));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes: Vec<u8>) {
            let _ = QueueRecord::decode(&bytes);
            let _ = GroupRecord::decode(&bytes);
            let _ = StoredItem::decode(&bytes);
            let _ = Seen::decode(&bytes);
            let _ = Sleeper::decode(&bytes);
            prop_assert!(Totals::decode(&[&[9], &bytes[..]].concat()).is_none());
        }
    }
}
