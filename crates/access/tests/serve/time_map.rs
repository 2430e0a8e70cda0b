//! TimeMaps, read by a parser of our own: the grammar of RFC 6690, and what RFC 7089 asks of the links.

use std::collections::BTreeMap;

use crate::made::{Made, Served};

/// One link of a list.
#[derive(Debug, PartialEq)]
struct Link {
    target: String,
    attributes: BTreeMap<String, String>,
}

impl Link {
    fn rels(&self) -> Vec<&str> {
        self.attributes["rel"].split(' ').collect()
    }

    fn is(&self, rel: &str) -> bool {
        self.rels().contains(&rel)
    }
}

/// Reads a list of links to its end; the text says where it is none.
fn parse(text: &str) -> Result<Vec<Link>, String> {
    let mut rest = text.trim();
    let mut links = Vec::new();
    loop {
        let failed = |what: &str| format!("{what} at {:?}", &rest[..rest.len().min(60)]);
        let target = rest.strip_prefix('<').ok_or_else(|| failed("no <"))?;
        let (target, after) = target.split_once('>').ok_or_else(|| failed("no >"))?;
        let is_uri = |byte: u8| byte.is_ascii_graphic() && !b"<>\"\\`{}|^".contains(&byte);
        if target.is_empty() || !target.bytes().all(is_uri) {
            return Err(failed("no URI"));
        }
        rest = after;
        let mut attributes = BTreeMap::new();
        while let Some(after) = rest.trim_start().strip_prefix(';') {
            let after = after.trim_start();
            let failed = |what: &str| format!("{what} at {:?}", &after[..after.len().min(60)]);
            let (name, after) = after.split_once("=\"").ok_or_else(|| failed("no value"))?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
                return Err(failed("no name"));
            }
            let (value, after) = after.split_once('"').ok_or_else(|| failed("no end"))?;
            if attributes
                .insert(name.to_owned(), value.to_owned())
                .is_some()
            {
                return Err(failed("twice"));
            }
            rest = after;
        }
        links.push(Link {
            target: target.to_owned(),
            attributes,
        });
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(links);
        }
        let after = rest.strip_prefix(',');
        rest = after
            .ok_or_else(|| format!("no comma at {rest:?}"))?
            .trim_start();
    }
}

#[test]
fn the_parser_refuses_what_is_no_list() {
    assert_eq!(parse("<http://a/>; rel=\"x\"").unwrap().len(), 1);
    for bad in [
        "",
        "http://a/",
        "<http://a/>; rel=\"x\",",
        "<http://a/>; rel=x",
        "<http://a b/>; rel=\"x\"",
        "<http://a/>; rel=\"x\" <http://b/>",
        "<http://a/>; rel=\"x\"; rel=\"y\"",
        "<http://a/",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

fn archive(url: &str, captures: u64) -> (Made, Served) {
    let mut made = Made::new();
    for number in 0..captures {
        // Two in the same second are one memento.
        let (day, second) = (1 + number / 2 % 28, number / 56);
        let time = format!("202601{day:02}0000{second:02}");
        made.html(url, &time, "x");
    }
    made.publish(1);
    let served = made.serve();
    (made, served)
}

#[test]
fn a_time_map_is_a_list_of_links_that_lead_where_they_say() {
    for (url, captures) in [
        ("http://a.example/", 1),
        ("http://a.example/?x=<1>&y=\"2\",3;z", 2),
        ("http://a.example/é", 200),
    ] {
        let (_made, served) = archive(url, captures);
        let asked = url.replace('<', "%3C").replace('>', "%3E");
        let asked = asked.replace('"', "%22").replace('é', "%C3%A9");
        let map = served.get(&format!("/web/timemap/link/{asked}"));
        assert_eq!(map.field("content-type"), Some("application/link-format"));
        let links = parse(&map.text()).unwrap();
        let one = |rel: &str| {
            let found: Vec<&Link> = links.iter().filter(|link| link.is(rel)).collect();
            assert_eq!(found.len(), 1, "{rel} in {links:#?}");
            found[0]
        };
        assert_eq!(one("original").target, asked);
        assert_eq!(
            one("self").target,
            format!("{}/web/timemap/link/{asked}", served.base())
        );
        assert_eq!(one("self").attributes["type"], "application/link-format");
        let gate = one("timegate");
        let mementos: Vec<&Link> = links.iter().filter(|link| link.is("memento")).collect();
        assert_eq!(mementos.len() as u64, captures.div_ceil(2));
        assert!(mementos[0].is("first") && mementos[mementos.len() - 1].is("last"));
        let (from, until) = ("from", "until");
        assert_eq!(
            one("self").attributes[from],
            mementos[0].attributes["datetime"]
        );
        assert_eq!(
            one("self").attributes[until],
            one("last").attributes["datetime"]
        );
        // Each memento says the same of itself, and the gate finds it by its time.
        for memento in mementos.iter().step_by(7).chain(mementos.last()) {
            let path = memento.target.strip_prefix(&served.base()).unwrap();
            let answer = served.get(path);
            assert_eq!(answer.status, 200, "{path}");
            let date = &memento.attributes["datetime"];
            assert_eq!(answer.field("memento-datetime"), Some(date.as_str()));
            let own = parse(answer.field("link").unwrap()).unwrap();
            assert!(
                own.iter()
                    .any(|link| link.is("original") && link.target == asked)
            );
            assert!(
                own.iter()
                    .any(|link| link.is("timegate") && link.target == gate.target)
            );
            let gate = gate.target.strip_prefix(&served.base()).unwrap();
            let led = served.ask("GET", gate, &format!("Accept-Datetime: {date}\r\n"));
            assert_eq!(led.status, 302);
            assert!(led.field("vary").unwrap().contains("accept-datetime"));
            let time = path.split('/').nth(2).unwrap();
            assert!(led.field("location").unwrap().contains(time));
        }
        // Without a date it leads to the last.
        for field in ["", "Accept-Datetime:\r\n"] {
            let gate = gate.target.strip_prefix(&served.base()).unwrap();
            let led = served.ask("GET", gate, field);
            let last = one("last").target.split('/').nth(4).unwrap().to_owned();
            assert!(led.field("location").unwrap().contains(&last), "{led:?}");
        }
        // The index as links is such a list too.
        let encoded = asked
            .replace('%', "%25")
            .replace('&', "%26")
            .replace('?', "%3F");
        let listed = served.get(&format!("/web/cdx?url={encoded}&output=link"));
        assert_eq!(parse(&listed.text()).unwrap().len() as u64, captures);
    }
}
