//! Lists of what parking services and sinkholes are known by. What is on them is noted, and never acted on.
//!
//! A line: `parked` or `sinkhole`, then `address` with a network, or `cname` or `ns` with a name, which stands for all names
//! below it too.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use ecluse_names::{DnsHint, FormEvidence, RedirectEvidence};
use url::Url;

/// What is known as shipped.
const KNOWN: &str = include_str!("../hints.txt");
/// A longer list is none that anybody wrote.
const LIST_BYTES: u64 = 16 << 20;

/// The lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct HintLists {
    networks: Vec<(DnsHint, Network)>,
    cnames: Vec<(DnsHint, String)>,
    servers: Vec<(DnsHint, String)>,
}

/// Addresses that begin alike. IPv4 ones are held as IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: u128,
    bits: u32,
}

impl HintLists {
    /// Reads the lists as shipped, and those of a file where there is one.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, String> {
        let mut lists = Self::default();
        lists.add(KNOWN, "the list as shipped")?;
        let Some(path) = path else {
            return Ok(lists);
        };
        let shown = path.display();
        let about = match std::fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(lists),
            Err(error) => return Err(format!("cannot read {shown}: {error}")),
        };
        if about.len() > LIST_BYTES {
            return Err(format!("{shown} has {} bytes: too many", about.len()));
        }
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("cannot read {shown}: {error}"))?;
        lists.add(&text, &shown.to_string())?;
        Ok(lists)
    }

    fn add(&mut self, text: &str, file: &str) -> Result<(), String> {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            self.add_line(line)
                .map_err(|fault| format!("{file}:{number}: {fault}"))?;
        }
        Ok(())
    }

    fn add_line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [hint, kind, what] = words.as_slice() else {
            return Err("a line has three words: parked cname exemple.fr".to_owned());
        };
        let hint = match *hint {
            "parked" => DnsHint::Parked,
            "sinkhole" => DnsHint::Sinkhole,
            other => return Err(format!("{other:?} is neither parked nor sinkhole")),
        };
        let name = || what.trim_matches('.').to_ascii_lowercase();
        match *kind {
            "cname" => self.cnames.push((hint, name())),
            "ns" => self.servers.push((hint, name())),
            "address" => {
                let network = Network::parse(what).ok_or(format!("{what:?} is no network"))?;
                self.networks.push((hint, network));
            }
            other => return Err(format!("{other:?} is neither address nor cname nor ns")),
        }
        Ok(())
    }

    /// Returns what is noted of where a name leads: to a host of somebody who is on the list.
    pub(crate) fn of_redirect(&self, redirect: &RedirectEvidence) -> Vec<DnsHint> {
        let host = Url::parse(&redirect.to).ok();
        let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
        let listed = self.cnames.iter().chain(&self.servers);
        let fitting = listed.filter(|(_, name)| is_at_or_below(host, name));
        fitting.map(|(hint, _)| *hint).collect()
    }

    /// Returns what is noted of a form.
    pub(crate) fn of(&self, form: &FormEvidence) -> impl Iterator<Item = DnsHint> {
        let a = form.a.iter().map(|address| IpAddr::V4(*address));
        let aaaa = form.aaaa.iter().map(|address| IpAddr::V6(*address));
        let addresses: Vec<u128> = a.chain(aaaa).map(number).collect();
        let networks = self.networks.iter();
        let by_address = networks
            .filter(move |(_, network)| addresses.iter().any(|address| network.has(*address)));
        let by_name = |list: &[(DnsHint, String)], names: &[String]| -> Vec<DnsHint> {
            let on_list = |(_, listed): &&(DnsHint, String)| {
                names.iter().any(|name| is_at_or_below(name, listed))
            };
            list.iter().filter(on_list).map(|(hint, _)| *hint).collect()
        };
        let cnames = by_name(&self.cnames, &form.cname);
        let servers = by_name(&self.servers, &form.ns);
        by_address
            .map(|(hint, _)| *hint)
            .chain(cnames)
            .chain(servers)
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse::<u32>().ok().filter(|bits| *bits <= whole)?,
            None => whole,
        };
        Some(Self {
            address: number(address),
            bits: bits + 128 - whole,
        })
    }

    fn has(self, address: u128) -> bool {
        let differs = self.address ^ address;
        self.bits == 0 || differs >> (128 - self.bits) == 0
    }
}

fn number(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    u128::from(address)
}

fn is_at_or_below(name: &str, above: &str) -> bool {
    let below = name.strip_suffix(above);
    below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(lists: &HintLists, form: &FormEvidence) -> Vec<DnsHint> {
        lists.of(form).collect()
    }

    #[test]
    fn what_is_on_a_list_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hints.txt");
        let text = "# ours\nparked cname Parking.Example.\nparked ns ns.example\nsinkhole address 203.0.113.0/24\nsinkhole address 2001:db8::7\n";
        std::fs::write(&path, text).unwrap();
        let lists = HintLists::read(Some(&path)).unwrap();
        let form = |a: &str, cname: &str, ns: &str| FormEvidence {
            a: vec![a.parse().unwrap()],
            cname: vec![cname.to_owned()],
            ns: vec![ns.to_owned()],
            ..FormEvidence::default()
        };
        let nothing = form("203.0.114.1", "notparking.example", "xns.example");
        assert_eq!(hints(&lists, &nothing), []);
        let all = form("203.0.113.9", "a.parking.example", "ns.example");
        assert_eq!(
            hints(&lists, &all),
            [DnsHint::Sinkhole, DnsHint::Parked, DnsHint::Parked]
        );
        let v6 = FormEvidence {
            aaaa: vec!["2001:db8::7".parse().unwrap()],
            ..FormEvidence::default()
        };
        assert_eq!(hints(&lists, &v6), [DnsHint::Sinkhole]);
    }

    #[test]
    fn a_bad_list_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hints.txt");
        assert!(HintLists::read(Some(&path)).is_ok(), "it may be missing");
        for (text, fault) in [
            ("parked", ":1: a line has three words"),
            ("\nlost cname a.fr", ":2: \"lost\" is neither"),
            ("parked mx a.fr", ":1: \"mx\" is neither"),
            (
                "parked address 192.0.2.0/33",
                ":1: \"192.0.2.0/33\" is no network",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let said = HintLists::read(Some(&path)).unwrap_err();
            assert!(said.contains(fault), "{said}");
        }
    }
}
