//! Takes what the parsers find, and gives what are links to the sink: resolved, within the limits, once each.

use std::borrow::Cow;
use std::collections::HashSet;

use encoding_rs::Encoding;
use twox_hash::XxHash3_128;
use url::Url;

use crate::context::ExtractLimits;
use crate::link::{Hop, Link, LinkPlace};
use crate::quick;
use crate::report::LinkCounts;

/// What an element says of the links in it.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) nofollow: bool,
    pub(crate) charset: Option<&'static Encoding>,
}

pub(crate) struct Collector<'c> {
    document: &'c Url,
    base: Url,
    based: bool,
    /// Whether the base is that of another document.
    via: bool,
    /// The directories of the script that is being read.
    directories: Vec<String>,
    /// What the element that is being read says of its links.
    pub(crate) declared: Declared,
    limits: &'c ExtractLimits,
    links: usize,
    sink: &'c mut dyn FnMut(Link),
    seen: HashSet<u128>,
    query_encoding: Option<&'static Encoding>,
    speculating: bool,
    fragments: u32,
    pub(crate) counts: LinkCounts,
    pub(crate) passed_over: u32,
    pub(crate) nofollow: bool,
}

impl<'c> Collector<'c> {
    pub(crate) fn new(
        document: &'c Url,
        limits: &'c ExtractLimits,
        links: usize,
        sink: &'c mut dyn FnMut(Link),
    ) -> Self {
        Self {
            document,
            base: document.clone(),
            based: false,
            via: false,
            directories: Vec::new(),
            declared: Declared::default(),
            limits,
            links,
            sink,
            seen: HashSet::new(),
            query_encoding: None,
            speculating: false,
            fragments: 0,
            counts: LinkCounts::default(),
            passed_over: 0,
            nofollow: false,
        }
    }

    /// Lets queries be written in the document's character set, as browsers do for links in HTML.
    pub(crate) fn encode_queries(&mut self, encoding: &'static Encoding) {
        let encoding = encoding.output_encoding();
        self.query_encoding = (encoding != encoding_rs::UTF_8).then_some(encoding);
    }

    pub(crate) fn limits(&self) -> &'c ExtractLimits {
        self.limits
    }

    pub(crate) fn is_full(&self) -> bool {
        self.counts.links >= self.links
    }

    /// Sets the base of the links that follow; only the first base of a document counts.
    pub(crate) fn set_base(&mut self, value: &str) {
        if self.based || value.len() > self.limits.url_bytes {
            return;
        }
        if let Ok(base) = self.document.join(value)
            && !base.cannot_be_a_base()
        {
            self.base = base;
            self.based = true;
        }
    }

    /// Offers a string that stands where a link stands.
    pub(crate) fn offer(&mut self, value: &str, hop: Hop, place: LinkPlace<'_>) {
        self.offer_link(value, hop, place, hop == Hop::Embed);
    }

    /// Offers a string that stands where a link to something a page shows stands, but can be shown without.
    pub(crate) fn offer_spare(&mut self, value: &str, hop: Hop, place: LinkPlace<'_>) {
        self.offer_link(value, hop, place, false);
    }

    /// Offers a string that stands where a link stands, relative to another base than the document's.
    pub(crate) fn offer_based(&mut self, base: &str, value: &str, hop: Hop, place: LinkPlace<'_>) {
        let usual = self.base.clone();
        if base.len() <= self.limits.url_bytes
            && let Ok(base) = usual.join(base)
            && !base.cannot_be_a_base()
        {
            self.base = base;
            self.offer(value, hop, place);
            self.base = usual;
        } else {
            self.offer(value, hop, place);
        }
    }

    /// Runs `work`; what it offers is relative to the document itself, as modules are, and not to the page it is part of.
    pub(crate) fn relative_to_document(&mut self, work: impl FnOnce(&mut Self)) {
        if self.via {
            let usual = std::mem::replace(&mut self.base, self.document.clone());
            let directories = std::mem::take(&mut self.directories);
            work(self);
            self.base = usual;
            self.directories = directories;
        } else {
            work(self);
        }
    }

    /// Runs `work`; what it offers are the files of a bundle, relative to the script if nothing else is known.
    pub(crate) fn relative_to_bundle(&mut self, work: impl FnOnce(&mut Self)) {
        let usual = self
            .via
            .then(|| std::mem::replace(&mut self.base, self.document.clone()));
        work(self);
        if let Some(usual) = usual {
            self.base = usual;
        }
    }

    /// Takes the document for a script: its links are relative to the page that led to it, if there was one.
    pub(crate) fn resolve_as_script(&mut self, via: Option<&Url>) {
        let mut directories: Vec<String> = self
            .document
            .path_segments()
            .map(|segments| segments.map(str::to_owned).collect())
            .unwrap_or_default();
        directories.pop();
        self.directories = directories;
        if let Some(via) = via
            && !via.cannot_be_a_base()
        {
            self.base = via.clone();
            self.via = true;
        }
    }

    /// Bundlers name files from the root of what they built: `assets/b.js` in `/docs/assets/a.js` is beside it.
    fn beside_script(&self, value: &str) -> Option<String> {
        if self.directories.is_empty() {
            return None;
        }
        let (first, _) = value.split_once('/')?;
        if first.is_empty() || first.starts_with('.') || first.contains([':', '?', '#']) {
            return None;
        }
        let depth = self.directories.iter().rposition(|name| name == first)?;
        let mut path = String::from("/");
        for directory in &self.directories[..depth] {
            path.push_str(directory);
            path.push('/');
        }
        path.push_str(value);
        self.document.join(&path).ok().map(|mut url| {
            url.set_fragment(None);
            url.into()
        })
    }

    /// Runs `work` on an embedded document, unless there were too many or it is nested too deep.
    pub(crate) fn fragment(&mut self, depth: u8, work: impl FnOnce(&mut Self)) {
        if depth > self.limits.nesting || self.fragments >= self.limits.fragments {
            self.passed_over = self.passed_over.saturating_add(1);
            return;
        }
        self.fragments += 1;
        work(self);
    }

    /// Runs `work`; whatever it finds is speculative.
    pub(crate) fn speculate(&mut self, work: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.speculating, true);
        work(self);
        self.speculating = before;
    }

    fn offer_link(&mut self, value: &str, hop: Hop, place: LinkPlace<'_>, requisite: bool) {
        if self.is_full() {
            return;
        }
        // A link is one wherever it stands; what would be shown or followed by itself may never be.
        let hop = match hop {
            Hop::Navigation => Hop::Navigation,
            _ if self.speculating => Hop::Speculative,
            hop => hop,
        };
        let value = value.trim_matches(|c: char| c <= ' ');
        if value.is_empty() || value.starts_with('#') {
            self.counts.own += 1;
        } else if !may_be_fetched(value) {
            self.counts.refused += 1;
        } else if has_hole(value) {
            self.counts.holes += 1;
        } else if value.len() > self.limits.url_bytes.saturating_mul(3) {
            self.counts.too_long += 1;
        } else {
            self.resolve(value, hop, place, requisite && !self.speculating);
        }
    }

    fn resolve(&mut self, value: &str, hop: Hop, place: LinkPlace<'_>, requisite: bool) {
        let url = quick::resolve(&self.base, value)
            .or_else(|| self.beside_script(value))
            .or_else(|| self.parse(value));
        let Some(url) = url else {
            self.counts.refused += 1;
            return;
        };
        if url.len() > self.limits.url_bytes {
            self.counts.too_long += 1;
        } else if hop != Hop::Redirect && is_same_document(&url, self.document) {
            self.counts.own += 1;
        } else if !self.seen.insert(XxHash3_128::oneshot_with_seed(
            u64::from(u32::from(hop.letter())),
            url.as_bytes(),
        )) {
            self.counts.repeated += 1;
        } else {
            self.counts.links += 1;
            (self.sink)(Link {
                url,
                hop,
                context: place.to_string(),
                requisite,
                framed: hop == Hop::Embed && place.is_frame(),
                nofollow: self.declared.nofollow,
                charset: self.declared.charset.map(Encoding::name),
            });
        }
    }

    fn parse(&self, value: &str) -> Option<String> {
        let encoder;
        let mut options = Url::options().base_url(Some(&self.base));
        if let Some(encoding) = self.query_encoding {
            encoder = query_encoder(move |query| encoding.encode(query).0);
            options = options.encoding_override(Some(&encoder));
        }
        let mut url = options.parse(value).ok()?;
        if !matches!(url.scheme(), "http" | "https" | "ftp") {
            return None;
        }
        url.set_fragment(None);
        Some(url.into())
    }
}

/// Compares without the fragment the document's URL may have.
fn is_same_document(url: &str, document: &Url) -> bool {
    let document = document.as_str();
    url == document.split('#').next().unwrap_or(document)
}

/// Helps the compiler see that the encoder works for a query of any lifetime.
fn query_encoder<Encoder: Fn(&str) -> Cow<'_, [u8]>>(encoder: Encoder) -> Encoder {
    encoder
}

/// Tells the schemes that pages are full of and nobody fetches, without parsing a megabyte of `data:`.
fn may_be_fetched(value: &str) -> bool {
    const NEVER: [&str; 10] = [
        "data:",
        "javascript:",
        "mailto:",
        "tel:",
        "about:",
        "blob:",
        "sms:",
        "file:",
        "android-app:",
        "ios-app:",
    ];
    !NEVER.iter().any(|scheme| {
        value
            .as_bytes()
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    })
}

/// Tells a template from a URL: what stands between the braces is filled in by a script or should have been by a server.
fn has_hole(value: &str) -> bool {
    let bytes = value.as_bytes();
    memchr::memchr3_iter(b'{', b'<', b'[', bytes).any(|at| match bytes[at] {
        b'{' => {
            bytes.get(at + 1) == Some(&b'{') || (at > 0 && matches!(bytes[at - 1], b'$' | b'#'))
        }
        b'<' => matches!(bytes.get(at + 1), Some(b'%' | b'?')),
        _ => bytes.get(at + 1) == Some(&b'['),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(
        limits: &ExtractLimits,
        work: impl FnOnce(&mut Collector<'_>),
    ) -> (Vec<Link>, LinkCounts) {
        let document = Url::parse("http://lock.example/a/b?c").unwrap();
        let mut links = Vec::new();
        let mut sink = |link| links.push(link);
        let mut collector = Collector::new(&document, limits, limits.links, &mut sink);
        work(&mut collector);
        let counts = collector.counts;
        (links, counts)
    }

    fn offered(values: &[&str]) -> (Vec<String>, LinkCounts) {
        let (links, counts) = collect(&ExtractLimits::default(), |collector| {
            for value in values {
                collector.offer(value, Hop::Navigation, LinkPlace::Attribute("a", "href"));
            }
        });
        (links.into_iter().map(|link| link.url).collect(), counts)
    }

    #[test]
    fn links_are_resolved_without_fragment_and_given_once() {
        let (links, counts) = offered(&[
            "x#1",
            " x#2\n",
            "/y",
            "//gate.example",
            "HTTP://GATE.example:80/",
            "",
        ]);
        assert_eq!(
            links,
            [
                "http://lock.example/a/x",
                "http://lock.example/y",
                "http://gate.example/"
            ]
        );
        assert_eq!((counts.links, counts.repeated, counts.own), (3, 2, 1));
    }

    #[test]
    fn what_is_not_fetched_is_refused_and_counted() {
        let (links, counts) = offered(&[
            "JavaScript:void(0)",
            "mailto:keeper@lock.example",
            "data:text/plain,x",
            "urn:isbn:0",
            "http://[::1",
            "http://a b/",
            "{{url}}",
            "/x/${id}",
            "<%= url %>",
            "#top",
            "b?c#x",
        ]);
        assert_eq!(links, [] as [&str; 0]);
        assert_eq!((counts.refused, counts.holes, counts.own), (6, 3, 2));
    }

    #[test]
    fn the_same_url_by_another_hop_is_another_link() {
        let (links, _) = collect(&ExtractLimits::default(), |collector| {
            collector.offer("x", Hop::Navigation, LinkPlace::Attribute("a", "href"));
            collector.offer("x", Hop::Embed, LinkPlace::Attribute("img", "src"));
        });
        let hops: Vec<_> = links
            .iter()
            .map(|link| (link.hop.letter(), link.requisite, link.context.as_str()))
            .collect();
        assert_eq!(hops, [('L', false, "a/@href"), ('E', true, "img/@src")]);
    }

    #[test]
    fn a_redirect_to_itself_is_kept() {
        let (links, _) = collect(&ExtractLimits::default(), |collector| {
            collector.offer("b?c", Hop::Redirect, LinkPlace::Named("Location:"));
        });
        assert_eq!(links.len(), 1);
    }

    #[test]
    fn limits_hold() {
        let limits = ExtractLimits {
            links: 2,
            url_bytes: 30,
            ..ExtractLimits::default()
        };
        let (links, counts) = collect(&limits, |collector| {
            for value in ["/0123456789abcdef", "/1", &"x".repeat(91), "/2", "/3", "/4"] {
                collector.offer(value, Hop::Navigation, LinkPlace::CSS);
            }
            assert!(collector.is_full());
        });
        assert_eq!(links.len(), 2);
        assert_eq!((counts.links, counts.too_long), (2, 2));
    }

    #[test]
    fn only_the_first_base_counts() {
        let (links, _) = collect(&ExtractLimits::default(), |collector| {
            collector.set_base("data:,x");
            collector.set_base("../base/");
            collector.set_base("http://gate.example/");
            collector.offer("x", Hop::Navigation, LinkPlace::CSS);
            collector.offer_based("java/", "x", Hop::Embed, LinkPlace::CSS);
            collector.offer("y", Hop::Navigation, LinkPlace::CSS);
        });
        let urls: Vec<_> = links.iter().map(|link| link.url.as_str()).collect();
        assert_eq!(
            urls,
            [
                "http://lock.example/base/x",
                "http://lock.example/base/java/x",
                "http://lock.example/base/y"
            ]
        );
    }
}
