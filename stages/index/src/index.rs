//! Reads one file and tells its captures, in the order of the file.

use std::io::Read;

use ecluse_cdx::{Capture, LineFault};
use ecluse_manifest::Damage;
use ecluse_stage::Failure;
use ecluse_warc::{Compression, Record, RecordKind, WarcReadError, WarcReader};

use crate::draft::{Draft, Unfit, own};
use crate::evidence::EvidenceGatherer;
use crate::found::FormatFinder;
use crate::seen::{DamageReport, Facts, Seen, Tally, told};
use crate::settings::Settings;

/// What becomes of a capture: a line, or the reason why there can be none.
pub type Taken = Result<(), LineFault>;

/// Reads a (W)ARC file with a reader that has read nothing yet, hands the line of each capture to `sink`, and returns what was seen.
///
/// Damage is no failure: it is in what is returned, and reading goes on behind it. So is a capture that `sink` cannot make
/// a line of.
///
/// # Errors
/// When the file cannot be read, and what `sink` says.
pub fn index(
    reader: WarcReader<impl Read>,
    filename: &str,
    settings: &Settings,
    sink: &mut dyn FnMut(&Capture<'_>) -> Result<Taken, Failure>,
) -> Result<Seen, Failure> {
    index_and_look(reader, filename, settings, sink, Looks::default())
}

/// What is looked for beside lines. It costs, and whoever only wants lines has no use for it.
#[derive(Default)]
pub(crate) struct Looks<'a> {
    /// What payloads really are.
    pub(crate) formats: Option<FormatFinder>,
    /// What captures tell of their sites.
    pub(crate) evidence: Option<&'a mut EvidenceGatherer>,
}

/// The same, with a look at what payloads are and what captures tell of their sites.
pub(crate) fn index_and_look(
    mut reader: WarcReader<impl Read>,
    filename: &str,
    settings: &Settings,
    sink: &mut dyn FnMut(&Capture<'_>) -> Result<Taken, Failure>,
    mut looks: Looks<'_>,
) -> Result<Seen, Failure> {
    let mut draft = Draft::new();
    let mut tally = Tally::default();
    let mut unfit = Unfits::new(settings.damages);
    let unread = |error: WarcReadError| unread(filename, &error);
    while let Some(mut record) = reader.next().map_err(unread)? {
        tally.record(record.kind(), record.declared_bytes());
        if is_list(&record) {
            tally.packing_list =
                Some(ecluse_holding::read_packing_list(&mut record).map_err(unread)?);
        }
        if !has_line(&record, settings) {
            continue;
        }
        let (number, offset) = (record.number(), record.offset());
        let has_payload = matches!(record.kind(), RecordKind::Response | RecordKind::Resource);
        let finder = looks.formats.as_mut().filter(|_| has_payload);
        let found = finder.map(|finder| finder.find(&record));
        if record.kind() == RecordKind::Response
            && let Some(evidence) = &mut looks.evidence
        {
            evidence.look(&record);
        }
        if let Err(why) = draft.take(&mut record).map_err(unread)? {
            unfit.add(number, offset, &why);
            continue;
        }
        let extent = own(record.finish().map_err(unread)?);
        // Whoever would replay a bomb would have to inflate it.
        if reader.bomb().is_some_and(|bomb| bomb.record == number) {
            continue;
        }
        // A record that shares its member cannot be reached by an offset: it is damage, and has no line.
        if let Some(extent) = extent {
            let capture = draft.capture(extent, filename);
            match sink(&capture)? {
                Ok(()) => tally.capture(&capture, draft.host(), found),
                Err(fault) => unfit.add(number, offset, &Unfit::BadLine(fault)),
            }
        }
    }
    let bomb = reader.bomb().map(told);
    let facts = Facts {
        bomb,
        bytes: reader.bytes_read(),
        packing: packing_name(reader.compression()),
        records: reader.record_count(),
        damage: unfit.report(reader.damages(), reader.damage_count()),
    };
    Ok(tally.finish(filename, facts))
}

/// Tells whether a record is a capture that the settings want lines of.
fn has_line<Source: Read>(record: &Record<'_, Source>, settings: &Settings) -> bool {
    let kind = record.kind();
    let wanted = match kind {
        RecordKind::Response => true,
        RecordKind::Revisit => {
            settings.revisits && (settings.not_modified || !is_not_modified(record))
        }
        RecordKind::Resource => settings.warc_fields || !is_warc_fields(record),
        RecordKind::Metadata => {
            settings.metadata && (settings.warc_fields || !is_warc_fields(record))
        }
        _ => false,
    };
    wanted && (settings.dns || !is_dns(record))
}

/// Tells whether a revisit holds a server's 304. Replay answers with the head that it finds, and a 304 has no body: whoever
/// is led to it instead of to the capture that it refers to sees nothing.
fn is_not_modified<Source: Read>(record: &Record<'_, Source>) -> bool {
    let status = record.http().and_then(|head| head.status());
    status.is_some_and(|status| status == "304")
}

fn is_warc_fields<Source: Read>(record: &Record<'_, Source>) -> bool {
    record
        .content_type()
        .is_some_and(|content_type| content_type == "application/warc-fields")
}

fn is_dns<Source: Read>(record: &Record<'_, Source>) -> bool {
    record
        .target_uri()
        .is_some_and(|uri| uri.starts_with("dns:"))
}

fn is_list<Source: Read>(record: &Record<'_, Source>) -> bool {
    // In an ARC file everything is a response.
    let may_be = matches!(record.kind(), RecordKind::Resource | RecordKind::Response);
    may_be && names_metadata(record) && {
        let uri = record.target_uri();
        uri.is_some_and(|uri| ecluse_holding::is_packing_list(&uri))
    }
}

/// Tells whether the target URI can be a `metadata:` one; nearly none is, and the others are not decoded for this.
fn names_metadata<Source: Read>(record: &Record<'_, Source>) -> bool {
    match record.field("WARC-Target-URI") {
        Some(uri) => uri.value().starts_with(b"metadata:"),
        None => record.header().starts_with(b"metadata:"),
    }
}

fn packing_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::None => "none",
    }
}

fn unread(filename: &str, error: &WarcReadError) -> Failure {
    let cause = std::error::Error::source(error);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::halt(format!("{filename}: {error}{cause}"))
}

/// Records that should have had a line.
struct Unfits {
    limit: usize,
    count: u64,
    list: Vec<Damage>,
}

impl Unfits {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            count: 0,
            list: Vec::new(),
        }
    }

    fn add(&mut self, record: u64, offset: u64, why: &Unfit) {
        self.count += 1;
        if self.list.len() < self.limit {
            let reason = why.reason();
            self.list.push(Damage {
                record,
                offset,
                reason,
            });
        }
    }

    /// Returns all damages of the file, in its order.
    fn report(mut self, found: &[ecluse_warc::RecordDamage], count: u64) -> DamageReport {
        self.list.extend(found.iter().map(told));
        self.list
            .sort_by_key(|damage| (damage.offset, damage.record));
        self.list.truncate(self.limit);
        DamageReport {
            count: self.count + count,
            list: self.list,
        }
    }
}
