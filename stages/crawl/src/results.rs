//! What a finished job tells plan: for each domain it had seeds of, how much came and why it stopped.

use std::collections::BTreeMap;

use ecluse_frontier::{Frontier, QueueState, Retired};
use ecluse_names::key_of;
use ecluse_register::StopReason;
use ecluse_report::{HostTally, JobFacts, SeedTally};
use ecluse_scope::{BudgetException, HostPattern, Order, registered_domain};
use ecluse_stage::{Failure, Outbox, ParcelId};
use url::Url;

use crate::checkpoint::EndReason;
use crate::engine::{blame, host_of_queue};
use crate::notes;

/// The kind of a parcel with results.
const KIND: &str = "results";

/// What became of each domain of a job, by its key.
pub(crate) type SiteResults = BTreeMap<String, SiteResult>;

/// What became of one domain.
#[derive(Debug, Default)]
pub(crate) struct SiteResult {
    site: String,
    seeds: u64,
    objects: u64,
    bytes: u64,
    /// Something of it was left.
    is_unfinished: bool,
    /// The limit at which a queue of it was retired.
    limit: Option<StopReason>,
}

/// Returns what became of the domains of a job that has ended. Only those with a seed count: of others the job has what
/// pages needed to be shown, which says nothing of their size.
pub(crate) fn results(
    frontier: &mut Frontier,
    order: &Order,
    ended: EndReason,
) -> Result<SiteResults, Failure> {
    let mut results = SiteResults::new();
    let walked = frontier.notes(notes::SEED, |_, value| {
        if let Ok(seed) = SeedTally::decode(value)
            && let Ok(url) = Url::parse(&seed.url)
            && let Some(host) = url.host_str()
        {
            let site = registered_domain(host);
            let result = results.entry(key_of(site)).or_default();
            result.site.clear();
            result.site.push_str(site);
            result.seeds += 1;
        }
        true
    });
    walked.map_err(blame)?;
    let walked = frontier.notes(notes::HOST, |_, value| {
        if let Ok(host) = HostTally::decode(value)
            && let Some(result) = results.get_mut(&key_of(registered_domain(&host.host)))
        {
            result.objects += host.urls;
            result.bytes += host.bytes;
        }
        true
    });
    walked.map_err(blame)?;
    let own = OwnBudgets::of(order);
    let walked = frontier.queues(|queue| {
        let host = host_of_queue(&queue.name);
        if let Some(result) = results.get_mut(&key_of(registered_domain(host))) {
            result.is_unfinished |= queue.queued > 0;
            if let QueueState::Retired(why) = queue.state {
                result.limit = result.limit.max(limit_of(why, own.has(host, why)));
            }
        }
        true
    });
    walked.map_err(blame)?;
    for result in results.values_mut() {
        if result.is_unfinished && result.limit.is_none() {
            result.limit = Some(match ended {
                EndReason::Time => StopReason::TimeLimit,
                EndReason::Drained | EndReason::Urls | EndReason::Bytes | EndReason::ByHand => {
                    StopReason::DownloadUnfinished
                }
            });
        }
    }
    Ok(results)
}

/// Sends the results of a job to a stage.
pub(crate) fn send(
    results: &SiteResults,
    facts: &JobFacts,
    stage: &str,
    outbox: &mut Outbox,
) -> Result<(), Failure> {
    let id = ParcelId::new(&format!("results-{}-{}", facts.job, facts.harvest));
    let mut parcel = outbox.parcel(id.map_err(Failure::halt)?, KIND)?;
    parcel.manifest().job = Some(facts.job.clone());
    parcel.manifest().harvest = Some(facts.harvest.clone());
    let ended = jiff::Timestamp::from_millisecond(i64::try_from(facts.ended.0).unwrap_or(0));
    let ended = ended.map_err(Failure::halt)?;
    let about = serde_json::json!({
        "job": facts.job, "harvest": facts.harvest, "how": facts.how,
        "ended": ended.strftime("%Y%m%d").to_string(),
    });
    parcel.write("job.json", format!("{about}\n").as_bytes())?;
    let mut lines = String::new();
    for (key, result) in results {
        let SiteResult {
            site,
            seeds,
            objects,
            bytes,
            limit,
            ..
        } = result;
        let stop = limit.unwrap_or(StopReason::DownloadComplete).word();
        lines += &format!("{key}\t{site}\t{seeds}\t{objects}\t{bytes}\t{stop}\n");
    }
    parcel.write("results.tsv", lines.as_bytes())?;
    outbox.emit_to(parcel, stage);
    Ok(())
}

/// The budgets that are a domain's own, and not the harvest's.
struct OwnBudgets<'a> {
    /// All of them are.
    all: bool,
    exceptions: Vec<(HostPattern, &'a BudgetException)>,
}

impl<'a> OwnBudgets<'a> {
    fn of(order: &'a Order) -> Self {
        let exceptions = order.budget.exceptions.iter().flat_map(|own| {
            let hosts = own.hosts.iter();
            hosts.filter_map(move |host| Some((host.parse().ok()?, own)))
        });
        Self {
            all: order.budget.queue.own,
            exceptions: exceptions.collect(),
        }
    }

    /// Tells whether the limit at which a host's queue was retired is its own. The first exception that names a host holds.
    fn has(&self, host: &str, why: Retired) -> bool {
        let mut exceptions = self.exceptions.iter();
        let exception = exceptions.find(|(pattern, _)| pattern.matches(host));
        let is_said = exception.is_some_and(|(_, own)| match why {
            Retired::Urls => own.urls.is_some(),
            Retired::Bytes => own.bytes.is_some(),
            Retired::Time => own.time.is_some(),
        });
        is_said || self.all
    }
}

fn limit_of(why: Retired, is_own: bool) -> Option<StopReason> {
    Some(match (why, is_own) {
        (Retired::Urls, false) => StopReason::ObjectLimit,
        (Retired::Urls, true) => StopReason::ConfigObjectLimit,
        (Retired::Bytes, false) => StopReason::SizeLimit,
        (Retired::Bytes, true) => StopReason::ConfigSizeLimit,
        (Retired::Time, _) => StopReason::TimeLimit,
    })
}
