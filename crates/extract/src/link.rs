//! What is found: an absolute URL, how it was reached and where it stood.

use std::fmt;

/// A URL that a document or a header names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Link {
    /// The absolute URL, `http`, `https` or `ftp`, as the WHATWG URL standard serialises it, without a fragment.
    pub url: String,
    /// How a reader would come to it.
    pub hop: Hop,
    /// Where it stood: `a/@href`, `img/@srcset`, `=JS_MISC`, `=CSS`, `Location:` …
    pub context: String,
    /// Whether the page cannot be shown whole without it, so that it should be fetched soon after.
    pub requisite: bool,
    /// Whether it is a document of its own that is shown inside of this one: what an `iframe` holds.
    pub framed: bool,
    /// Whether the page asks robots not to follow this link: `rel=nofollow`.
    pub nofollow: bool,
    /// The character set that the page says the document has, by its WHATWG name.
    pub charset: Option<&'static str>,
}

/// How a link was reached, by Heritrix's letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// `L`: a reader follows it.
    Navigation,
    /// `E`: a browser fetches it to show the document.
    Embed,
    /// `X`: a string that looks like a URL.
    Speculative,
    /// `R`: the server or the page sends the reader on.
    Redirect,
    /// `M`: a list made for crawlers names it.
    Manifest,
    /// `I`: no document names it, its place is known by convention.
    Inferred,
}

impl Hop {
    /// Returns the letter that stands for the hop in a hop path.
    pub fn letter(self) -> char {
        match self {
            Self::Navigation => 'L',
            Self::Embed => 'E',
            Self::Speculative => 'X',
            Self::Redirect => 'R',
            Self::Manifest => 'M',
            Self::Inferred => 'I',
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// The place of a link, put into words only for a link that is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkPlace<'a> {
    /// An attribute of an element.
    Attribute(&'a str, &'a str),
    /// Any other place, by its name.
    Named(&'static str),
}

impl LinkPlace<'_> {
    pub(crate) const CSS: LinkPlace<'static> = LinkPlace::Named("=CSS");
    pub(crate) const SCRIPT: LinkPlace<'static> = LinkPlace::Named("=JS_MISC");
    pub(crate) const JSON: LinkPlace<'static> = LinkPlace::Named("=JSON_MISC");
    pub(crate) const XML: LinkPlace<'static> = LinkPlace::Named("=XML_MISC");
    pub(crate) const MANIFEST: LinkPlace<'static> = LinkPlace::Named("=MANIFEST_MISC");
    /// Tells the elements that show a document inside of another.
    pub(crate) fn is_frame(&self) -> bool {
        matches!(
            self,
            Self::Attribute(
                "iframe" | "frame" | "object" | "embed" | "portal" | "fencedframe",
                _
            )
        )
    }

    pub(crate) const INFERRED: LinkPlace<'static> = LinkPlace::Named("=INFERRED_MISC");
}

impl fmt::Display for LinkPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(element, attribute) => write!(f, "{element}/@{attribute}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
