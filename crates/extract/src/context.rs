//! What the caller knows of a document, and how far extraction may go.

use url::Url;

/// What is known of a document before it is read.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// Its URL, against which relative links are resolved.
    pub url: &'a Url,
    /// The value of the `Content-Type` header, if there was one.
    pub content_type: Option<&'a str>,
    /// The character set the document is likely to have if it does not say: that of the page that led to it.
    pub charset: Option<&'a str>,
    /// The page that led to it, if any: what a script asks for is relative to the page it runs in.
    pub via: Option<&'a Url>,
    /// How far to go.
    pub limits: ExtractLimits,
}

impl<'a> Context<'a> {
    /// Returns a context with the limits as shipped and nothing known but the URL and the header.
    pub fn new(url: &'a Url, content_type: Option<&'a str>) -> Self {
        Self {
            url,
            content_type,
            charset: None,
            via: None,
            limits: ExtractLimits::default(),
        }
    }
}

/// How far extraction goes; memory depends on these and not on the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractLimits {
    /// Bytes read of a document.
    pub document_bytes: u64,
    /// Links out of a document.
    pub links: usize,
    /// Links out of a sitemap, which exists to name many.
    pub sitemap_links: usize,
    /// Bytes of the longest URL that is a link.
    pub url_bytes: usize,
    /// Bytes of the longest tag, string or embedded document that is looked into.
    pub token_bytes: usize,
    /// Documents in documents: JSON in a string in a script in a `noscript`.
    pub nesting: u8,
    /// Embedded documents looked into, all in all.
    pub fragments: u32,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            document_bytes: 64 << 20,
            links: 6_000,
            sitemap_links: 50_000,
            url_bytes: 4_000,
            token_bytes: 1 << 20,
            nesting: 4,
            fragments: 2_000,
        }
    }
}
