//! Reads WARC and ARC files as the web archives hold them, and writes WARC 1.1.

mod arc;
mod damage;
mod digest;
mod format;
mod frame;
mod gzip;
mod header;
mod http;
mod input;
mod limits;
mod reader;
mod record;
mod text;
mod time;
mod unpack;

pub use damage::{Damage, Reason, Snippet};
pub use digest::Sha1Digest;
pub use format::{Compression, Format, Version};
pub use header::{Field, Fields};
pub use http::HttpHead;
pub use limits::Limits;
pub use reader::{ReadError, WarcReader};
pub use record::{Extent, Record, RecordKind};
pub use text::decode;
pub use time::{CaptureTime, DateError};
