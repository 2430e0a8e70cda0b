//! What `[stage.dns-filter]` may say of its own, and what it means on this machine.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ecluse_config::Span;
use ecluse_stage::Failure;
use serde::Deserialize;

use crate::asker::AskLimits;
use crate::check::CheckSettings;
use crate::hints::HintLists;

/// More resolvers than this are not asked.
const RESOLVERS: usize = 32;
/// Where the system keeps its own.
const SYSTEM: &str = "/etc/resolv.conf";

/// What `[stage.dns-filter]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Whom to ask; those of the system where there is none.
    pub resolvers: Vec<String>,
    /// Questions a second to each; 0 for as many as there are.
    pub rate: u32,
    /// Questions on their way at once.
    pub in_flight: u32,
    /// How long an answer is waited for.
    pub timeout: Span,
    /// How often a question is asked, of one resolver after another.
    pub tries: u8,
    /// How often names that nobody could say anything of are asked again later.
    pub later: u32,
    /// Private addresses count as any other.
    pub allow_private: bool,
    /// Note wildcards.
    pub wildcards: bool,
    /// Ask for name servers.
    pub name_servers: bool,
    /// A list of parking services and sinkholes beside the shipped one.
    pub hints: PathBuf,
    /// Follow redirects.
    pub redirects: bool,
    /// What librarians force out: nobody there is asked where it leads.
    pub forced: PathBuf,
    /// Names whose redirects are followed at once.
    pub connections: u32,
    /// Ports of https and http.
    pub ports: [u16; 2],
    /// The table of turns that the crawl has.
    pub paces: PathBuf,
    /// Where results lie that no stage takes.
    pub reports: PathBuf,
}

impl Settings {
    /// Returns the resolvers.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub(crate) fn resolvers(&self) -> Result<Vec<SocketAddr>, String> {
        let mut addresses = match self.resolvers.is_empty() {
            true => system_resolvers(Path::new(SYSTEM))?,
            false => {
                let parsed: Result<Vec<_>, String> = self
                    .resolvers
                    .iter()
                    .map(|text| parse_resolver(text))
                    .collect();
                parsed?
            }
        };
        for (at, address) in addresses.iter().enumerate() {
            if addresses[..at].contains(address) {
                return Err(format!(
                    "{address} is there twice: it would confirm its own word"
                ));
            }
        }
        if self.resolvers.is_empty() {
            addresses.truncate(RESOLVERS);
        }
        if addresses.len() > RESOLVERS {
            return Err(format!("no more than {RESOLVERS} resolvers are asked"));
        }
        Ok(addresses)
    }

    pub(crate) fn ask_limits(&self) -> AskLimits {
        AskLimits {
            in_flight: self.in_flight.max(1) as usize,
            rate: Some(self.rate).filter(|rate| *rate > 0),
            timeout: self.timeout.get().max(Duration::from_millis(1)),
            tries: self.tries.max(1),
        }
    }

    pub(crate) fn check_settings(&self) -> CheckSettings {
        CheckSettings {
            allow_private: self.allow_private,
            wildcards: self.wildcards,
            name_servers: self.name_servers,
        }
    }

    /// Reads the lists of parking services and sinkholes.
    pub(crate) fn hint_lists(&self, root: &Path) -> Result<HintLists, Failure> {
        let path = root.join(&self.hints);
        HintLists::read(Some(&path)).map_err(Failure::config)
    }

    /// Returns what the lines of a check depend on, beside the answers.
    pub(crate) fn mark(&self) -> String {
        format!(
            "private={} wildcards={} ns={}",
            u8::from(self.allow_private),
            u8::from(self.wildcards),
            u8::from(self.name_servers)
        )
    }
}

/// Reads an address with or without a port.
pub(crate) fn parse_resolver(text: &str) -> Result<SocketAddr, String> {
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
    let with_port = text.parse::<SocketAddr>();
    let address = with_port.or(bare.map(|address| SocketAddr::new(address, 53)));
    let address = address.map_err(|_| {
        format!(
            "{text:?} is no address; write one such as \"192.0.2.53\" or \"[2001:db8::53]:5353\""
        )
    })?;
    match address.ip().is_unspecified() || address.ip().is_multicast() || address.port() == 0 {
        true => Err(format!("{text:?} is nobody's address")),
        false => Ok(address),
    }
}

/// Reads the resolvers of the system; those with a zone index are left out.
fn system_resolvers(path: &Path) -> Result<Vec<SocketAddr>, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut found: Vec<SocketAddr> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let address = words.next().and_then(|word| parse_resolver(word).ok());
        if let Some(address) = address.filter(|address| !found.contains(address)) {
            found.push(address);
        }
    }
    match found.is_empty() {
        true => Err(format!(
            "{} names no resolver: name some in stage.dns-filter.resolvers",
            path.display()
        )),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_addresses_with_or_without_a_port() {
        for (text, address) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
        ] {
            assert_eq!(parse_resolver(text).unwrap().to_string(), address);
        }
        for text in [
            "",
            "dns.example",
            "192.0.2",
            "0.0.0.0",
            "192.0.2.1:0",
            "224.0.0.1",
        ] {
            assert!(parse_resolver(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_system_says_whom_it_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        assert!(system_resolvers(&path).is_err());
        std::fs::write(&path, "# nothing\noptions ndots:2\n").unwrap();
        assert!(
            system_resolvers(&path)
                .unwrap_err()
                .contains("names no resolver")
        );
        std::fs::write(
            &path,
            "search x.fr\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n",
        )
        .unwrap();
        let found = system_resolvers(&path).unwrap();
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }
}
