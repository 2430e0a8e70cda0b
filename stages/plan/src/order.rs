//! Job orders: the template of a harvest with what the definition says laid over it.
//!
//! Every job of a run is made here and nowhere else, so that what is true of one is true of all. (NetarchiveSuite's default
//! generator switched deduplication in the last job of a window only.)

use ecluse_names::key_of;
use ecluse_scope::{Limit, Priority, Reach};
use toml::{Table, Value};

use crate::definition::{DomainBudget, Harvest, HarvestKind};
use crate::traps::TrapFile;

/// The file of seeds beside an order.
pub(crate) const SEEDS: &str = "seeds.txt";

/// What an order is made of.
pub(crate) struct JobOrder<'a> {
    pub(crate) harvest: &'a Harvest,
    /// Its settings.
    pub(crate) group: usize,
    /// Its name.
    pub(crate) job: &'a str,
    pub(crate) traps: &'a TrapFile,
    /// Domains of the job that have traps of their own.
    pub(crate) domain_traps: &'a [String],
    /// Its seeds; none to try the rest.
    pub(crate) seed_file: Option<&'a str>,
}

/// Writes the order of a job.
///
/// # Errors
/// When the template is no TOML, or says what only the job may say.
pub(crate) fn order_text(job: &JobOrder<'_>) -> Result<String, String> {
    let harvest = job.harvest;
    let definition = &harvest.definition;
    let settings = &harvest.groups[job.group];
    let mut order: Table = harvest
        .template
        .parse()
        .map_err(|error| format!("{error}"))?;
    for key in ["job", "harvest", "seeds"] {
        if order.contains_key(key) {
            return Err(format!(
                "the template says '{key}', which only the job can say"
            ));
        }
    }
    set(&mut order, &["job"], job.job.into());
    set(&mut order, &["harvest"], harvest.name.as_str().into());
    if !definition.description.is_empty() {
        set(
            &mut order,
            &["description"],
            definition.description.as_str().into(),
        );
    }
    let usual = match definition.kind {
        HarvestKind::Broad => Priority::Low,
        HarvestKind::Selective | HarvestKind::Unsaid => Priority::Normal,
    };
    let said = order.contains_key("priority").then_some(());
    if let Some(priority) = definition
        .priority
        .or_else(|| said.is_none().then_some(usual))
    {
        set(&mut order, &["priority"], text_of(&priority)?);
    }
    let mut seeds = Table::new();
    match job.seed_file {
        Some(file) => seeds.insert("file".into(), file.into()),
        None => seeds.insert(
            "urls".into(),
            Value::Array(vec!["http://trial.example/".into()]),
        ),
    };
    set(
        &mut order,
        &["seeds"],
        Value::Array(vec![Value::Table(seeds)]),
    );
    set_budget(&mut order, &settings.budget, settings.is_own)?;
    // A visit is that of one page, with what it needs to be shown: the run says which.
    let reach = match definition.refresh {
        Some(_) => Some(Reach::Page),
        None => settings.reach,
    };
    if let Some(reach) = reach {
        set(&mut order, &["scope", "reach"], text_of(&reach)?);
    }
    if let Some(depth) = settings.depth {
        set(&mut order, &["scope", "depth"], text_of(&depth)?);
    }
    let traps = [&job.traps.everywhere, &definition.traps, &settings.traps];
    push(
        &mut order,
        &["scope", "traps", "also"],
        traps.into_iter().flatten().map(|trap| trap.as_str().into()),
    )?;
    push(&mut order, &["scope", "rules"], rules_of(job))?;
    if !definition.collection.is_empty() {
        set(
            &mut order,
            &["warc", "prefix"],
            definition.collection.as_str().into(),
        );
    }
    toml::to_string(&order).map_err(|error| error.to_string())
}

/// A budget is that of a domain: the queues must be domains then. The domains of a job are all of one group of settings, so that
/// it is the own budget of all or of none.
fn set_budget(order: &mut Table, budget: &DomainBudget, is_own: bool) -> Result<(), String> {
    let is_said = [
        budget.urls.get().is_some(),
        budget.bytes.get().is_some(),
        budget.time.get().is_some(),
    ];
    if !is_said.contains(&true) {
        return Ok(());
    }
    set(order, &["manners", "queue-by"], "domain".into());
    if is_own {
        set(order, &["budget", "queue", "own"], true.into());
    }
    let mut limit = |key, value: Result<Value, String>, is_said: bool| -> Result<(), String> {
        if is_said {
            set(order, &["budget", "queue", key], value?);
        }
        Ok(())
    };
    limit("urls", text_of(&budget.urls), budget.urls != Limit::None)?;
    limit("bytes", text_of(&budget.bytes), budget.bytes != Limit::None)?;
    limit("time", text_of(&budget.time), budget.time != Limit::None)
}

/// Rules of the domains that have traps of their own.
fn rules_of<'a>(job: &JobOrder<'a>) -> impl Iterator<Item = Value> + use<'a> {
    let traps = job.traps;
    let domains = job.domain_traps.iter();
    domains.enumerate().flat_map(move |(at, domain)| {
        let of_domain = traps.domains.get(domain).into_iter().flatten();
        of_domain.enumerate().map(move |(number, trap)| {
            let mut rule = Table::new();
            // A rule's name has neither dots nor underscores.
            let plain = domain.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let name = format!("trap-{at}-{number}-{plain}");
            rule.insert("name".into(), name.into());
            rule.insert("verdict".into(), "reject".into());
            rule.insert("regex".into(), trap.as_str().into());
            let surt = format!("{},", key_of(domain));
            rule.insert("surts".into(), Value::Array(vec![surt.into()]));
            Value::Table(rule)
        })
    })
}

fn text_of(value: &impl serde::Serialize) -> Result<Value, String> {
    Value::try_from(value).map_err(|error| error.to_string())
}

/// Sets a value at the end of a path, and makes the tables on the way.
fn set(table: &mut Table, path: &[&str], value: Value) {
    match path {
        [] => {}
        [key] => {
            table.insert((*key).to_owned(), value);
        }
        [key, rest @ ..] => {
            let below = table
                .entry((*key).to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(below) = below {
                set(below, rest, value);
            }
        }
    }
}

/// Adds values to the list at the end of a path.
fn push(
    table: &mut Table,
    path: &[&str],
    values: impl Iterator<Item = Value>,
) -> Result<(), String> {
    let mut values: Vec<Value> = values.collect();
    if values.is_empty() {
        return Ok(());
    }
    let mut known = Some(&*table).map(|table| table.get(path[0]));
    for key in &path[1..] {
        known = Some(known.flatten().and_then(|value| value.get(key)));
    }
    if let Some(known) = known.flatten() {
        let listed = known
            .as_array()
            .ok_or_else(|| format!("the template's {} is no list", path.join(".")))?;
        values.splice(0..0, listed.iter().cloned());
    }
    set(table, path, Value::Array(values));
    Ok(())
}
