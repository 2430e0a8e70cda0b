//! A job as it is taken up: its order, its seeds, its directory.

use std::fs;
use std::io::{self, BufReader, Read};
use std::path::Path;

use ecluse_scope::{Order, Priority, Seed, SeedList};
use ecluse_stage::{Failure, Home, Parcel};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::forced_seeds::{ForcedSeeds, SeedShare};
use crate::place::{JobDir, copy_whole, write_whole};

/// Starts in a row that may bring nothing: a job that kills its worker is held after these.
const BARREN_STARTS: u32 = 50;
/// An order larger than this is none.
const ORDER_BYTES: u64 = 16 << 20;

/// A job.
pub(crate) struct Job {
    pub(crate) dir: JobDir,
    pub(crate) order: Order,
    /// What became of the lines of its seeds, and no seed: there may be millions.
    pub(crate) seeds: SeedList,
    /// That of the site, where the order has none.
    pub(crate) contact: String,
    pub(crate) organization: String,
    /// The files that stand for the order in the metadata.
    pub(crate) seed_files: Vec<String>,
}

impl Job {
    /// Takes up the job of a parcel: begins it, or finds it as it was left. There is none where librarians have forced out all
    /// of its seeds; how many they have is told when it begins.
    ///
    /// # Errors
    /// Holds an order that makes no sense or contradicts the job of its name.
    pub(crate) fn open(
        parcel: &Parcel,
        settings: &Settings,
        home: &Home,
    ) -> Result<(Option<Self>, u64), Failure> {
        let name = order_file(parcel)?;
        let text = read_text(parcel, &name)?;
        let contact = home.site.contact.clone();
        let given = Order::parse(&text, &name, &contact).map_err(Failure::hold)?;
        for warning in &given.warnings {
            tracing::warn!(%warning, "order");
        }
        let order = given.order;
        let dir = JobDir::of(&home.path(&settings.jobs), &order.job, &order.harvest);
        let forced = ForcedSeeds::of(parcel, settings, home)?;
        let share = new_seeds(parcel, &dir, &order, &forced)?;
        let has_urls = order.seeds.iter().any(|seeds| !seeds.urls.is_empty());
        if share.out > 0 && share.left == 0 && !has_urls {
            return Ok((None, share.out));
        }
        dir.make()?;
        keep_given(&dir, &text)?;
        let seed_files = keep_seed_files(parcel, &dir, &order, &forced)?;
        let job = Self::read(dir, order, &contact, &home.site.organization, seed_files)?;
        Ok((Some(job), share.out))
    }

    /// Reads the job in a directory.
    pub(crate) fn at(dir: &Path, contact: &str, organization: &str) -> Result<Self, Failure> {
        let dir = JobDir::at(dir);
        let text = fs::read_to_string(dir.given_order())?;
        let given = Order::parse(&text, "order-given.toml", contact).map_err(Failure::hold)?;
        let files = given
            .order
            .seeds
            .iter()
            .filter_map(|seeds| seeds.file.clone());
        let files = files.collect();
        Self::read(dir, given.order, contact, organization, files)
    }

    fn read(
        dir: JobDir,
        given: Order,
        contact: &str,
        organization: &str,
        seed_files: Vec<String>,
    ) -> Result<Self, Failure> {
        let order = match fs::read_to_string(dir.order()) {
            Ok(text) => {
                let changed = Order::parse(&text, "order.toml", contact);
                changed.map_err(Failure::hold)?.order
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => given,
            Err(error) => return Err(error.into()),
        };
        let seeds = each_seed(&dir, &order, &mut |_| true)?;
        if seeds.count.kept == 0 {
            let first = seeds.faults.first().map(ToString::to_string);
            let why = first.unwrap_or_else(|| "the list is empty".to_owned());
            return Err(Failure::hold(format!(
                "job {}: no seed can be crawled: {why}",
                order.job
            )));
        }
        Ok(Self {
            dir,
            order,
            seeds,
            contact: contact.to_owned(),
            organization: organization.to_owned(),
            seed_files,
        })
    }

    /// Gives every seed to `each`, which says whether it is new, in the order in which they are written.
    ///
    /// # Errors
    /// When a seed file cannot be read.
    pub(crate) fn each_seed(&self, each: &mut dyn FnMut(Seed) -> bool) -> io::Result<()> {
        each_seed(&self.dir, &self.order, each).map(|_| ())
    }

    /// Whom a webmaster can write to: as the order says, or else the site.
    pub(crate) fn contact_of<'a>(&'a self, order: &'a Order) -> &'a str {
        match order.agent.contact.as_str() {
            "" => &self.contact,
            contact => contact,
        }
    }

    /// Counts a start, and holds the job if too many in a row brought nothing.
    ///
    /// # Errors
    /// When there were too many; when the file cannot be written.
    pub(crate) fn count_start(&self, progress: u64) -> Result<(), Failure> {
        let path = self.dir.starts();
        let before: Starts = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => Starts::default(),
        };
        let barren = match before.progress == Some(progress) {
            true => before.barren + 1,
            false => 1,
        };
        if barren > BARREN_STARTS {
            // Released by a person, it gets as many again.
            self.forget_starts()?;
            return Err(Failure::hold(format!(
                "job {}: {BARREN_STARTS} starts in a row brought nothing; its worker dies of it",
                self.order.job
            )));
        }
        let starts = Starts {
            progress: Some(progress),
            barren,
        };
        write_whole(&path, &serde_json::to_vec(&starts).unwrap_or_default())?;
        Ok(())
    }

    /// Notes that the job was left in peace.
    pub(crate) fn forget_starts(&self) -> io::Result<()> {
        let starts = serde_json::to_vec(&Starts::default()).unwrap_or_default();
        write_whole(&self.dir.starts(), &starts)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Starts {
    progress: Option<u64>,
    barren: u32,
}

/// Returns which file of the parcel is the order: `order.toml`, or the only TOML file.
fn order_file(parcel: &Parcel) -> Result<String, Failure> {
    let names = parcel
        .manifest()
        .files
        .iter()
        .map(|file| file.name.as_str());
    let orders: Vec<&str> = names.filter(|name| name.ends_with(".toml")).collect();
    match orders.as_slice() {
        [only] => Ok((*only).to_owned()),
        several if several.contains(&"order.toml") => Ok("order.toml".to_owned()),
        [] => Err(Failure::hold(format!(
            "{}: no order.toml in it",
            parcel.id()
        ))),
        _ => Err(Failure::hold(format!(
            "{}: several TOML files, none is order.toml",
            parcel.id()
        ))),
    }
}

fn read_text(parcel: &Parcel, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = parcel
        .open(name)?
        .take(ORDER_BYTES)
        .read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => Failure::hold(format!("{name} is not UTF-8")),
        _ => Failure::halt(format!("cannot read {name}: {error}")),
    })?;
    Ok(text)
}

/// Tells how urgent the order in a text is, without reading all of it.
pub(crate) fn priority_of(text: &str) -> Priority {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Urgency {
        priority: Priority,
    }
    // It stands before the first table: long lists of seeds need not be read.
    let head = text.find("\n[").map_or(text, |end| &text[..end]);
    toml::from_str::<Urgency>(head)
        .or_else(|_| toml::from_str(text))
        .map_or(Priority::default(), |urgency| urgency.priority)
}

fn each_seed(
    dir: &JobDir,
    order: &Order,
    each: &mut dyn FnMut(Seed) -> bool,
) -> io::Result<SeedList> {
    let mut list = SeedList::new(&order.same_url, order.bare_hosts);
    for source in &order.seeds {
        for url in &source.urls {
            // A checked order has good ones only.
            let _ = list.pass(url, &source.tag, source.reach, each);
        }
    }
    for source in &order.seeds {
        if let Some(file) = &source.file {
            let file = BufReader::new(fs::File::open(dir.seeds().join(file))?);
            list.pass_lines(file, &source.tag, source.reach, each)?;
        }
    }
    Ok(list)
}

fn keep_given(dir: &JobDir, text: &str) -> Result<(), Failure> {
    match fs::read(dir.given_order()) {
        Ok(before) if before == text.as_bytes() => Ok(()),
        Ok(_) => Err(Failure::hold(format!(
            "{} was begun with another order; give this one another harvest",
            dir.path().display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(write_whole(&dir.given_order(), text.as_bytes())?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Counts the seeds of files that the job does not have yet.
fn new_seeds(
    parcel: &Parcel,
    dir: &JobDir,
    order: &Order,
    forced: &ForcedSeeds,
) -> Result<SeedShare, Failure> {
    let mut sum = SeedShare::default();
    for file in order.seeds.iter().filter_map(|seeds| seeds.file.as_ref()) {
        if !dir.seeds().join(file).is_file() {
            let share = forced.share(parcel.open(file)?)?;
            sum.left += share.left;
            sum.out += share.out;
        }
    }
    Ok(sum)
}

fn keep_seed_files(
    parcel: &Parcel,
    dir: &JobDir,
    order: &Order,
    forced: &ForcedSeeds,
) -> Result<Vec<String>, Failure> {
    let mut kept = Vec::new();
    for file in order.seeds.iter().filter_map(|seeds| seeds.file.as_ref()) {
        let to = dir.seeds().join(file);
        if !to.is_file() {
            copy_whole(&mut forced.without(parcel.open(file)?), &to)?;
        }
        kept.push(file.clone());
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_is_told_from_a_text() {
        assert_eq!(
            priority_of("job = '1'\npriority = 'high'\n"),
            Priority::High
        );
        assert_eq!(priority_of("job = '1'"), Priority::Normal);
        let list = "x = [\n[1],\n]\npriority = 'low'\n";
        assert_eq!(priority_of(list), Priority::Low);
        let table = "priority = 'high'\n[[seeds]]\nnot toml from here on";
        assert_eq!(priority_of(table), Priority::High);
        assert_eq!(priority_of("not toml ["), Priority::Normal);
    }
}
