//! The archive in a browser, and its APIs: `ecluse serve`.
//!
//! * **Reads** the current generation of each index, its list of files (PATH), and the stored (W)ARC files.
//! * **Never** writes into the archive, and never speaks to the live web: what is not in the archive is not there. Proxy mode
//!   keeps a CA, and a list of URLs that are missing, where the settings say.
//! * **Takes over** a new generation with the first question after it, without a restart and without a failed question.
//! * **Says** what it cannot do with the right status: 404 not in the archive, 503 a disk or an index that is away, 500 a file
//!   that is not what was indexed.
//! * **Again**: the same question to the same generation has the same answer.
//!
//! What came from the web is hostile: [`AccessServer`] gives archived pages an origin of their own, and no header of theirs acts on
//! a reader's browser. `docs/access.md` has the addresses.

mod archive;
mod byte_range;
mod calendar;
mod capture_list;
mod cdx_query;
mod delta_pages;
mod document;
mod figures;
mod link_policy;
mod loader;
mod locations;
mod memento;
mod moment;
mod neighbours;
mod page_text;
mod pages;
mod proxy;
mod proxy_ca;
mod proxy_door;
mod query_string;
mod reader;
mod record;
mod replay;
mod replay_address;
mod reply;
mod rewrite;
mod rules;
mod server;
mod shown_versions;
mod site;
mod site_delta;
mod text_delta;
mod url_text;
mod wabac;
mod wanted;

pub use archive::{ArchiveError, OpenGeneration, ReadingArchive};
pub use capture_list::IndexedCapture;
pub use document::{DocumentError, DocumentReader, StoredDocument};
pub use proxy_ca::CaError;
pub use reader::TokensError;
pub use record::{
    Dechunked, RecordError, RecordFile, ResponseHead, RevisitReference, body_of, decoded, head_of,
    open_file, open_first, open_whole, read_record, reference_of,
};
pub use rules::RulesError;
pub use server::AccessServer;
pub use site::{AccessSite, SiteError};
