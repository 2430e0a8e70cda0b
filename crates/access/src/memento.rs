//! Memento, RFC 7089: the headers of a capture, TimeMaps, and what a TimeGate chooses.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::capture_list::{CapturesAround, IndexedCapture};
use crate::moment::Moment;
use crate::url_text::safe_url;

/// The addresses of one URL in one collection.
pub(crate) struct MementoAddresses<'a> {
    /// Scheme, host and collection: `http://127.0.0.1:8080/web`.
    pub(crate) prefix: &'a str,
    pub(crate) url: &'a str,
}

impl MementoAddresses<'_> {
    pub(crate) fn timegate(&self) -> String {
        format!("{}/{}", self.prefix, safe_url(self.url))
    }

    pub(crate) fn timemap(&self, kind: &str) -> String {
        format!("{}/timemap/{kind}/{}", self.prefix, safe_url(self.url))
    }

    pub(crate) fn memento(&self, moment: Moment, modifier: &str) -> String {
        let (prefix, time) = (self.prefix, moment.as_str());
        format!("{prefix}/{time}{modifier}/{}", safe_url(self.url))
    }

    /// Returns the links that every answer about the URL has.
    pub(crate) fn common_links(&self) -> String {
        format!(
            "<{}>; rel=\"original\", <{}>; rel=\"timegate\", <{}>; rel=\"timemap\"; type=\"application/link-format\"",
            safe_url(self.url),
            self.timegate(),
            self.timemap("link")
        )
    }

    /// Returns the links of a capture: itself, the first, the last, and its neighbours.
    pub(crate) fn links_of(
        &self,
        moment: Moment,
        around: &CapturesAround,
        modifier: &str,
    ) -> String {
        let (before, after) = around.neighbours(moment);
        let mut named: BTreeMap<Moment, Vec<&str>> = BTreeMap::from([(moment, Vec::new())]);
        for (other, name) in [
            (around.first, "first"),
            (around.last, "last"),
            (before, "prev"),
            (after, "next"),
        ] {
            if let Some(other) = other {
                named.entry(other).or_default().push(name);
            }
        }
        let mut links = self.common_links();
        for (other, mut names) in named {
            names.push("memento");
            let (address, date) = (self.memento(other, modifier), other.http_date());
            let rel = names.join(" ");
            write!(links, ", <{address}>; rel=\"{rel}\"; datetime=\"{date}\"")
                .expect("a string takes what is written");
        }
        links
    }
}

/// How a TimeMap is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeMapKind {
    Link,
    Json,
    Cdxj,
}

impl TimeMapKind {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "link" => Self::Link,
            "json" => Self::Json,
            "cdxj" => Self::Cdxj,
            _ => return None,
        })
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Link => "application/link-format",
            Self::Json => "application/json",
            Self::Cdxj => "application/cdxj+ors",
        }
    }
}

/// Writes the TimeMap of a URL. Captures within one second are one.
pub(crate) fn time_map(
    kind: TimeMapKind,
    addresses: &MementoAddresses<'_>,
    captures: &[IndexedCapture],
) -> String {
    let mut moments: Vec<Moment> = captures.iter().map(IndexedCapture::moment).collect();
    moments.dedup();
    match kind {
        TimeMapKind::Link => link_map(addresses, &moments),
        TimeMapKind::Json => json_map(addresses, &moments),
        TimeMapKind::Cdxj => cdxj_map(addresses, &moments),
    }
}

fn link_map(addresses: &MementoAddresses<'_>, moments: &[Moment]) -> String {
    let mut text = format!(
        "<{}>; rel=\"original\",\n<{}>; rel=\"self\"; type=\"application/link-format\"",
        safe_url(addresses.url),
        addresses.timemap("link")
    );
    if let (Some(first), Some(last)) = (moments.first(), moments.last()) {
        let (from, until) = (first.http_date(), last.http_date());
        write!(text, "; from=\"{from}\"; until=\"{until}\"")
            .expect("a string takes what is written");
    }
    write!(text, ",\n<{}>; rel=\"timegate\"", addresses.timegate())
        .expect("a string takes what is written");
    for (at, moment) in moments.iter().enumerate() {
        let rel = match (at == 0, at + 1 == moments.len()) {
            (true, true) => "first last memento",
            (true, false) => "first memento",
            (false, true) => "last memento",
            (false, false) => "memento",
        };
        let (address, date) = (addresses.memento(*moment, ""), moment.http_date());
        write!(text, ",\n<{address}>; rel=\"{rel}\"; datetime=\"{date}\"")
            .expect("a string takes what is written");
    }
    text.push('\n');
    text
}

fn json_map(addresses: &MementoAddresses<'_>, moments: &[Moment]) -> String {
    let memento = |moment: &Moment| {
        serde_json::json!({
            "datetime": moment.rfc3339(),
            "uri": addresses.memento(*moment, ""),
        })
    };
    let mut mementos = serde_json::json!({
        "list": moments.iter().map(memento).collect::<Vec<_>>(),
    });
    if let (Some(first), Some(last)) = (moments.first(), moments.last()) {
        mementos["first"] = memento(first);
        mementos["last"] = memento(last);
    }
    let map = serde_json::json!({
        "original_uri": addresses.url,
        "self": addresses.timemap("json"),
        "timegate_uri": addresses.timegate(),
        "timemap_uri": {
            "link_format": addresses.timemap("link"),
            "json_format": addresses.timemap("json"),
            "cdxj_format": addresses.timemap("cdxj"),
        },
        "mementos": mementos,
    });
    format!("{map:#}\n")
}

fn cdxj_map(addresses: &MementoAddresses<'_>, moments: &[Moment]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "!context [\"http://tools.ietf.org/html/rfc7089\"]\n!id {{\"uri\": {}}}\n!keys [\"memento_datetime_YYYYMMDDhhmmss\"]\n\
         !meta {{\"original_uri\": {}, \"timegate_uri\": {}, \"timemap_uri\": {{\"link_format\": {}, \"json_format\": {}, \"cdxj_format\": {}}}}}\n",
        quoted(&addresses.timemap("cdxj")),
        quoted(addresses.url),
        quoted(&addresses.timegate()),
        quoted(&addresses.timemap("link")),
        quoted(&addresses.timemap("json")),
        quoted(&addresses.timemap("cdxj")),
    );
    for (at, moment) in moments.iter().enumerate() {
        let rel = match (at == 0, at + 1 == moments.len()) {
            (true, true) => "first last memento",
            (true, false) => "first memento",
            (false, true) => "last memento",
            (false, false) => "memento",
        };
        let uri = quoted(&addresses.memento(*moment, ""));
        let date = quoted(&moment.http_date());
        writeln!(
            text,
            "{} {{\"uri\": {uri}, \"rel\": \"{rel}\", \"datetime\": {date}}}",
            moment.as_str()
        )
        .expect("a string takes what is written");
    }
    text
}
