//! Which queue a URL waits in, and which queues share their manners.
//!
//! A queue is a name; a group is the server, or the provider, that is asked: one delay and one count of connections for
//! all queues in it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ecluse_config::AddressRange;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::{Host, Url};

use crate::canon::host_name;

/// What a queue is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueBy {
    /// Host and port; http and https together.
    #[default]
    Authority,
    /// The host, whatever the port.
    Host,
    /// The registered domain.
    Domain,
}

/// What a group is made of, where no group of the order takes a queue in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// Each queue is its own.
    Queue,
    /// The registered domain.
    Domain,
    /// The address of the server, as far as it is known; until then the registered domain.
    #[default]
    Address,
}

/// Returns the name of the queue for a URL; one without a host waits in the queue of its scheme.
pub fn queue_of(by: QueueBy, url: &Url) -> String {
    let Some(host) = url.host_str() else {
        // `dns:lock.example` belongs where its name will be asked.
        return match url.scheme() {
            "dns" => url.path().trim_matches('/').to_ascii_lowercase(),
            scheme => format!("{scheme}:"),
        };
    };
    let host = host_name(host);
    match (by, url.port()) {
        (QueueBy::Authority, Some(port)) => format!("{host}:{port}"),
        (QueueBy::Authority, None) | (QueueBy::Host, _) => host.to_owned(),
        (QueueBy::Domain, _) => registered_domain(host).to_owned(),
    }
}

/// Returns the registered domain of a host by the public suffix list, its private part included.
///
/// An address, a public suffix and a name without a dot are their own.
pub fn registered_domain(host: &str) -> &str {
    let host = host_name(host);
    if host.starts_with('[') || matches!(Host::parse(host), Ok(Host::Ipv4(_) | Host::Ipv6(_))) {
        return host;
    }
    psl::domain_str(host).unwrap_or(host)
}

/// A group that the order names: hosts and addresses of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The group's name.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Its addresses.
    pub addresses: Vec<AddressRange>,
}

/// How queues are put in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// For what no group takes in.
    pub by: GroupBy,
    /// The groups of the order; the first that takes a queue in has it.
    pub groups: Vec<Members>,
}

/// A group and, when it is one of the order's, its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned<'a> {
    /// The name of the group.
    pub name: Cow<'a, str>,
    /// Which group of the order it is.
    pub number: Option<usize>,
}

impl Grouping {
    /// Returns the group of a queue that holds URLs of `host`; the address is given once it is known.
    pub fn group_of<'a>(
        &'a self,
        queue: &'a str,
        host: &'a str,
        address: Option<IpAddr>,
    ) -> Assigned<'a> {
        let host = host_name(host);
        let number = self.groups.iter().position(|group| {
            group.hosts.iter().any(|pattern| pattern.matches(host))
                || address.is_some_and(|address| {
                    group.addresses.iter().any(|range| range.contains(address))
                })
        });
        if let Some(number) = number {
            return Assigned {
                name: Cow::Borrowed(&self.groups[number].name),
                number: Some(number),
            };
        }
        let name = match (self.by, address) {
            (GroupBy::Queue, _) => Cow::Borrowed(queue),
            (GroupBy::Address, Some(address)) => Cow::Owned(address_group(address)),
            (GroupBy::Domain, _) | (GroupBy::Address, None) => {
                Cow::Borrowed(registered_domain(host))
            }
        };
        Assigned { name, number: None }
    }
}

/// Returns the group of an address. An IPv6 network of 64 bits is the least that one customer has: its addresses are one
/// machine's as likely as not.
fn address_group(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("ip:{address}"),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64));
            format!("ip:{network}/64")
        }
    }
}

/// A host, or with a dot in front a domain and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    name: String,
    is_domain: bool,
}

impl HostPattern {
    /// Tells whether a host, in lower case and ASCII, is meant.
    pub fn matches(&self, host: &str) -> bool {
        let host = host_name(host);
        match host.strip_suffix(self.name.as_str()) {
            Some("") => true,
            Some(front) => self.is_domain && front.ends_with('.'),
            None => false,
        }
    }
}

/// Why a text names no host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is no host name.
    #[error(r#"{text:?} is no host; write "lock.example", or ".lock.example" for all below it"#)]
    Host {
        /// What was written.
        text: String,
    },
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<HostPattern, PatternError> {
        let error = || PatternError::Host {
            text: text.to_owned(),
        };
        let (name, is_domain) = match text.strip_prefix('.').or_else(|| text.strip_prefix("*.")) {
            Some(name) => (name, true),
            None => (text, false),
        };
        let host = Host::parse(host_name(name)).map_err(|_| error())?;
        let name = host.to_string();
        if name.starts_with('.') || name.contains("..") || name.contains('*') {
            return Err(error());
        }
        Ok(HostPattern { name, is_domain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn queues_by_authority_host_or_domain() {
        for (text, authority, host, domain) in [
            (
                "http://www.lock.example/a",
                "www.lock.example",
                "www.lock.example",
                "lock.example",
            ),
            (
                "https://www.lock.example./",
                "www.lock.example",
                "www.lock.example",
                "lock.example",
            ),
            (
                "https://a.b.lock.co.uk:8443/",
                "a.b.lock.co.uk:8443",
                "a.b.lock.co.uk",
                "lock.co.uk",
            ),
            (
                "http://lock.github.io/",
                "lock.github.io",
                "lock.github.io",
                "lock.github.io",
            ),
            (
                "http://127.0.0.1:80/",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
            ),
            (
                "http://[2001:db8::1]:81/",
                "[2001:db8::1]:81",
                "[2001:db8::1]",
                "[2001:db8::1]",
            ),
            ("http://localhost/", "localhost", "localhost", "localhost"),
            ("http://co.uk/", "co.uk", "co.uk", "co.uk"),
            (
                "http://écluse.fr/",
                "xn--cluse-9ra.fr",
                "xn--cluse-9ra.fr",
                "xn--cluse-9ra.fr",
            ),
            (
                "dns:Lock.example",
                "lock.example",
                "lock.example",
                "lock.example",
            ),
            ("urn:x", "urn:", "urn:", "urn:"),
        ] {
            let found = [QueueBy::Authority, QueueBy::Host, QueueBy::Domain]
                .map(|by| queue_of(by, &url(text)));
            assert_eq!(found, [authority, host, domain], "{text}");
        }
    }

    #[test]
    fn the_orders_groups_come_first() {
        let grouping = Grouping {
            by: GroupBy::Address,
            groups: vec![
                Members {
                    name: "blogs".to_owned(),
                    hosts: vec![".blogs.example".parse().unwrap()],
                    addresses: Vec::new(),
                },
                Members {
                    name: "cdn".to_owned(),
                    hosts: vec!["cdn.example".parse().unwrap()],
                    addresses: vec!["192.0.2.0/24".parse().unwrap()],
                },
            ],
        };
        let address = |text: &str| Some(text.parse().unwrap());
        for (host, known, name, number) in [
            ("a.blogs.example", None, "blogs", Some(0)),
            ("blogs.example", address("192.0.2.1"), "blogs", Some(0)),
            ("myblogs.example", None, "myblogs.example", None),
            ("cdn.example", None, "cdn", Some(1)),
            ("x.cdn.example", None, "cdn.example", None),
            ("a.lock.example", address("192.0.2.77"), "cdn", Some(1)),
            (
                "a.lock.example",
                address("::ffff:192.0.2.77"),
                "cdn",
                Some(1),
            ),
            (
                "a.lock.example",
                address("198.51.100.1"),
                "ip:198.51.100.1",
                None,
            ),
            (
                "a.lock.example",
                address("2001:db8:1:2:3:4:5:6"),
                "ip:2001:db8:1:2::/64",
                None,
            ),
            ("a.lock.example", None, "lock.example", None),
        ] {
            let assigned = grouping.group_of(host, host, known);
            assert_eq!(
                (&*assigned.name, assigned.number),
                (name, number),
                "{host} {known:?}"
            );
        }
        let by = |by| Grouping {
            by,
            groups: Vec::new(),
        };
        let known = address("198.51.100.1");
        assert_eq!(
            by(GroupBy::Queue)
                .group_of("q:80", "a.lock.example", known)
                .name,
            "q:80"
        );
        assert_eq!(
            by(GroupBy::Domain)
                .group_of("q", "a.lock.example", known)
                .name,
            "lock.example"
        );
    }

    #[test]
    fn patterns_of_hosts() {
        let pattern = |text: &str| text.parse::<HostPattern>().unwrap();
        assert!(pattern("Écluse.example").matches("xn--cluse-9ra.example"));
        assert!(pattern("*.lock.example").matches("a.lock.example."));
        assert!(!pattern("lock.example").matches("a.lock.example"));
        assert!(!pattern(".lock.example").matches("xlock.example"));
        for text in [
            "",
            ".",
            "a b",
            "a..b",
            "..a",
            "http://a/",
            "*.*.a",
            "a/b",
            "a:80",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
