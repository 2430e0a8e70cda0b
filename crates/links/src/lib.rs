//! Links between pages, and what follows from them.
//!
//! [`PageLinks`] is what one capture links to; [`RankReader`] and [`SiteReader`] read what `rank` made of all of them, [`LinksDirectory`] finds
//! it. [`OnlineImportance`] is importance without a graph, for a crawl at work. `docs/formats/links.md` has the bytes; how ranks are
//! computed is for `rank` to say.

mod directory;
mod error;
mod find;
mod line;
mod list;
mod online;
mod rank;
mod site;
mod slice;
mod urls;

pub use directory::{LINKS_FILE, LINKS_INDEX, LinksDirectory, RANKS_FILE, SITES_FILE, URLS_FILE};
pub use error::{BadLinkLine, LinksError};
pub use find::{FoundPage, LinkFinder};
pub use line::{LINKS_HEADER, LinkKind, PageLinks, PageTarget, TARGETS, origin_of};
pub use list::{LineReader, LineWriter};
pub use online::OnlineImportance;
pub use rank::{RANKS_HEADER, RankReader, RankRecord, RankWriter};
pub use site::{SITES_HEADER, SiteReader, SiteRecord, SiteWriter};
pub use slice::{
    FAR, HEAD_WORDS, OFFSET_MASK, SLICE_PAGES, SliceHead, SlicePart, SliceWriter, read_slice,
};
pub use urls::{Urls, UrlsCursor, UrlsWriter, url_code, url_of_code};
