//! What a URL needs before it is fetched: the address of its host, the group of that address, and robots.txt.
//!
//! Here it is only looked up. What is missing is named, the engine has it looked for, and the frontier lets the queue wait
//! until it is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ecluse_frontier::{Item, Millis, Prerequisite};
use ecluse_http::{Authority, DnsError, Scheme, is_public};
use ecluse_scope::{Order, RobotsPolicy, RobotsReason};
use url::Url;

use crate::fetch_task::{FetchResult, Shared, now, wall};
use crate::in_force::InForce;
use crate::robots::authority_of;

/// Until an address is asked for again that should have come long ago.
const ADDRESS_WAIT: Duration = Duration::from_secs(60);

/// What can be done with a URL whose turn has come.
pub(crate) enum Readiness {
    /// It can be fetched.
    Ready(Box<Ready>),
    /// Something must be there first.
    Missing(Missing),
    /// Without asking its server it is clear what becomes of it.
    Clear(FetchResult),
    /// It does not belong to the job any more.
    Dropped(Dropped),
    /// Its host is waited for no more.
    GivenUp,
}

/// Why a URL does not belong to the job any more.
pub(crate) struct Dropped {
    /// What the log has for its status.
    pub(crate) status: i32,
    pub(crate) why: String,
}

/// What a fetch goes by.
pub(crate) struct Ready {
    pub(crate) url: Url,
    pub(crate) authority: Authority,
    /// Those of the group that the queue is paced by, and no others.
    pub(crate) addresses: Vec<IpAddr>,
    /// What robots.txt asks for.
    pub(crate) crawl_delay: Option<Duration>,
}

/// What a URL misses.
pub(crate) enum Missing {
    /// The address of this host.
    Address(String),
    /// The group of its queue, which is this one by its address.
    Group(String),
    /// This robots.txt.
    Robots(Url),
}

impl Missing {
    /// What its queue waits for.
    pub(crate) fn prerequisite(&self, order: &Order, item: &Item, at: Millis) -> Prerequisite {
        let (name, patience) = match self {
            Self::Address(host) => (address_of(host), ADDRESS_WAIT),
            Self::Group(_) => (group_of(item), Duration::ZERO),
            Self::Robots(url) => (robots_of(&authority_of(url)), order.robots.retry.get()),
        };
        Prerequisite {
            name,
            until: at.after(patience),
        }
    }
}

/// The name of a prerequisite: the address of a host.
pub(crate) fn address_of(host: &str) -> String {
    format!("address of {host}")
}

/// The name of a prerequisite: the group of a URL's queue.
pub(crate) fn group_of(item: &Item) -> String {
    format!("group of {}", item.queue)
}

/// The name of a prerequisite: the robots.txt of an authority.
pub(crate) fn robots_of(authority: &str) -> String {
    format!("robots.txt of {authority}")
}

/// Says what can be done with a URL.
pub(crate) fn look_at(shared: &Shared, in_force: &InForce, item: &Item) -> Readiness {
    let bad = |status, why| Readiness::Clear(FetchResult::Bad { status, why });
    let Ok(url) = Url::parse(&item.url) else {
        return bad(-7, "not a URL".to_owned());
    };
    let Some(authority) = authority(&url) else {
        return bad(-7, format!("cannot fetch the scheme {:?}", url.scheme()));
    };
    let host = &authority.host;
    let mut addresses = match addresses(shared, in_force, host) {
        Some(Ok(addresses)) => addresses,
        Some(Err(error)) => return Readiness::Clear(FetchResult::Unresolved { error }),
        None => return Readiness::Missing(Missing::Address(host.clone())),
    };
    let allow_private = in_force.order.network.allow_private;
    if !allow_private && !addresses.iter().copied().any(is_public) {
        // Said here, or its robots.txt would seem to be what is wrong.
        return bad(-5001, format!("no address of {host} is public"));
    }
    if let Some(group) = other_group(in_force, item, host, &addresses) {
        return Readiness::Missing(Missing::Group(group));
    }
    let crawl_delay = match ask_robots(shared, &in_force.order, item, &url) {
        Ok(crawl_delay) => crawl_delay,
        Err(readiness) => return readiness,
    };
    addresses.retain(|address| {
        let group = in_force
            .grouping
            .group_of(&item.queue, host, Some(*address));
        group.name == item.group
    });
    Readiness::Ready(Box::new(Ready {
        url,
        authority,
        addresses,
        crawl_delay,
    }))
}

/// Whom to ask for a URL; none for a scheme that is not spoken.
pub(crate) fn authority(url: &Url) -> Option<Authority> {
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    Some(Authority {
        scheme,
        host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default()?,
    })
}

/// The addresses of a host, as far as they are known, or why it has none.
fn addresses(
    shared: &Shared,
    in_force: &InForce,
    host: &str,
) -> Option<Result<Vec<IpAddr>, DnsError>> {
    let bare = host.trim_end_matches('.');
    if bare == "localhost" || bare.ends_with(".localhost") {
        // RFC 6761: these names mean this machine, and no server is asked for them.
        let both = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        return Some(Ok(both.to_vec()));
    }
    match in_force.resolver.known(host, wall()) {
        Some(known) => Some(known.map(|(resolved, _)| resolved.addresses.clone())),
        None => shared.unresolved.borrow_mut().remove(host).map(Err),
    }
}

/// Returns the group to which a queue belongs by its address, if that is another one. A queue keeps the group of an address
/// that is still one of its own: names with many addresses would wander otherwise. A URL that failed there is tried at
/// the next one.
fn other_group(
    in_force: &InForce,
    item: &Item,
    host: &str,
    addresses: &[IpAddr],
) -> Option<String> {
    let allow_private = in_force.order.network.allow_private;
    let group_of = |address| in_force.grouping.group_of(&item.queue, host, address);
    let keeps = |address: &IpAddr| group_of(Some(*address)).name == item.group;
    if item.attempts == 0 && addresses.iter().any(keeps) {
        return None;
    }
    let address = address_for_group(addresses, allow_private, item.attempts);
    let group = group_of(address).name;
    (group != item.group).then(|| group.into_owned())
}

/// The address by which a queue gets its group, and to which it connects. Names with several addresses have them in turn,
/// each time another one first: the lowest is the same for all names that share them, and whenever one is asked for.
fn address_for_group(addresses: &[IpAddr], allow_private: bool, tries: u32) -> Option<IpAddr> {
    let reached = addresses.iter().copied();
    let mut reached: Vec<IpAddr> = reached
        .filter(|address| allow_private || is_public(*address))
        .collect();
    reached.sort_unstable();
    let turn = tries as usize % reached.len().max(1);
    reached.get(turn).copied()
}

/// Asks robots.txt, as far as the policy wants it asked; gives the delay it asks for.
fn ask_robots(
    shared: &Shared,
    order: &Order,
    item: &Item,
    url: &Url,
) -> Result<Option<Duration>, Readiness> {
    let host = url.host_str().unwrap_or_default();
    let policy = order.robots.policy_of(host);
    let robots = shared.robots.borrow();
    if policy == RobotsPolicy::Ignore {
        return Ok(None);
    }
    let at = Duration::from_millis(now().0);
    let authority = authority_of(url);
    let standing = robots.standing(&authority, at);
    if robots.is_awaited(url) {
        return Ok(standing.and_then(|standing| standing.crawl_delay()));
    }
    if robots.is_given_up(order, &authority, at) {
        let tries = order.budget.queue.tries;
        let why = format!("robots.txt could not be had in {tries} tries");
        return Err(Readiness::Clear(FetchResult::Bad { status: -61, why }));
    }
    let Some(standing) = standing else {
        let robots = url.join("/robots.txt").map(Missing::Robots);
        return robots.map_or(Ok(None), |missing| Err(Readiness::Missing(missing)));
    };
    let verdict = standing.judge(url.as_str()).under(policy, &item.hops);
    if verdict.allowed {
        return Ok(standing.crawl_delay());
    }
    let why = verdict.why.to_string();
    Err(Readiness::Clear(match verdict.why {
        RobotsReason::Absent(_) => FetchResult::Unknown {
            why,
            wait: standing.until.saturating_sub(at),
        },
        _ => FetchResult::Forbidden { why },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_share_their_addresses_share_a_group() {
        let address = |texts: &[&str], allow_private| {
            let addresses: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            address_for_group(&addresses, allow_private, 0).map(|address| address.to_string())
        };
        let all = ["9.9.9.9", "10.0.0.1", "2001:4860::1", "8.8.8.8"];
        let turned = ["8.8.8.8", "2001:4860::1", "9.9.9.9", "10.0.0.1"];
        assert_eq!(address(&all, false).as_deref(), Some("8.8.8.8"));
        assert_eq!(address(&turned, false), address(&all, false));
        assert_eq!(
            address(&["10.0.0.1", "2a00::1"], false).as_deref(),
            Some("2a00::1")
        );
        assert_eq!(
            address(&["10.0.0.1", "2a00::1"], true).as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(address(&["127.0.0.1"], false), None);
        let both: Vec<IpAddr> = vec!["9.9.9.9".parse().unwrap(), "8.8.8.8".parse().unwrap()];
        let tried = |tries| address_for_group(&both, false, tries);
        assert_eq!([tried(1), tried(2)], [Some(both[0]), Some(both[1])]);
    }
}
