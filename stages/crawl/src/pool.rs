//! The threads that look for links and pack records, so that the one that fetches never waits for either.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ecluse_extract::{
    Context, ExtractLimits, Hop, Link, Url, asks_not_to_follow, extract, extract_headers,
    extract_inferred,
};
use ecluse_http::{Decoded, Exchange, Shape};
use ecluse_warc::{Packer, Packing};

use crate::records::{Capture, Found, NOFOLLOW, pack};
use crate::writer::Part;

/// What holds for all captures.
#[derive(Debug, Clone)]
pub(crate) struct PoolOrder {
    pub(crate) packing: Packing,
    pub(crate) limits: ExtractLimits,
    pub(crate) speculative: bool,
    pub(crate) sitemaps: bool,
    pub(crate) favicons: bool,
    /// Bytes of a robots.txt that are read.
    pub(crate) robots_bytes: u64,
    /// Where large records lie until they are written.
    pub(crate) spool: PathBuf,
}

/// A capture to be looked through and packed.
pub(crate) struct Work {
    pub(crate) capture: Capture,
    pub(crate) order: Arc<PoolOrder>,
    /// Its content is to be told, decoded: it is a robots.txt.
    pub(crate) wants_body: bool,
}

/// A capture with its links and records.
pub(crate) struct Processed {
    pub(crate) capture: Capture,
    pub(crate) links: Vec<Link>,
    /// The page asks robots not to follow them.
    pub(crate) nofollow: bool,
    /// What was wrong with the content, for the log.
    pub(crate) annotations: Vec<String>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) parts: Result<Vec<Part>, String>,
}

impl Processed {
    /// Tells whether a record of it is too large for memory.
    pub(crate) fn is_large(&self) -> bool {
        let mut parts = self.parts.iter().flatten();
        parts.any(|part| matches!(part, Part::File(..)))
    }
}

/// What is larger is packed by a thread of its own: no number of large ones keeps all others waiting.
const LARGE: u64 = 4 << 20;

/// The threads.
pub(crate) struct Pool {
    work: Option<Sender<Work>>,
    large: Option<Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    is_left: Arc<AtomicBool>,
}

impl Pool {
    /// Starts the threads; each capture comes back through `done`.
    pub(crate) fn start(
        threads: usize,
        done: impl Fn(Processed) + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let (work, queue) = channel();
        let (large, large_queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut queues = vec![queue; threads.max(1)];
        queues.push(Arc::new(Mutex::new(large_queue)));
        let is_left = Arc::new(AtomicBool::new(false));
        let threads = queues.into_iter().enumerate().map(|(number, queue)| {
            let (is_left, done) = (Arc::clone(&is_left), done.clone());
            std::thread::Builder::new()
                .name(format!("pack-{number}"))
                .spawn(move || toil(&queue, &is_left, &done))
        });
        Ok(Self {
            work: Some(work),
            large: Some(large),
            threads: threads.collect::<Result<_, _>>()?,
            is_left,
        })
    }

    /// Gives the threads something to do.
    pub(crate) fn give(&self, work: Work) {
        let sender = match work.capture.exchange.block.bytes() > LARGE {
            true => &self.large,
            false => &self.work,
        };
        if let Some(sender) = sender {
            // The threads live as long as the pool.
            let _ = sender.send(work);
        }
    }
}

impl Drop for Pool {
    /// Waits for the threads, which leave what they are at.
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Relaxed);
        self.work = None;
        self.large = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn toil(queue: &Mutex<Receiver<Work>>, is_left: &AtomicBool, done: &dyn Fn(Processed)) {
    let mut packer: Option<(Packing, Packer)> = None;
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        if is_left.load(Ordering::Relaxed) {
            return;
        }
        let packing = work.order.packing;
        if packer
            .as_ref()
            .is_none_or(|(made_for, _)| *made_for != packing)
        {
            packer = Some((packing, Packer::new(packing)));
        }
        if let Some((_, packer)) = &mut packer {
            done(process(packer, work, is_left));
        }
    }
}

fn process(packer: &mut Packer, work: Work, is_left: &AtomicBool) -> Processed {
    let Work {
        mut capture,
        order,
        wants_body,
    } = work;
    let mut annotations = Vec::new();
    // Whatever a document does to the code that reads it, the document itself is kept.
    let found = catch_unwind(AssertUnwindSafe(|| {
        look(&capture, &order, is_left, &mut annotations)
    }));
    let found = found.unwrap_or_else(|_| {
        tracing::error!(url = capture.item.url, "extraction failed");
        Found {
            links: Vec::new(),
            charset: None,
            nofollow: false,
        }
    });
    if found.nofollow {
        annotations.push(NOFOLLOW.to_owned());
    }
    let body = wants_body.then(|| read_body(&capture, order.robots_bytes, is_left));
    let parts = if capture.keep {
        let going = || !is_left.load(Ordering::Relaxed);
        pack(packer, &order.spool, &capture, &found, &going).map_err(|error| causes(&error))
    } else {
        Ok(Vec::new())
    };
    // Its records have all that is wanted of it; to remove a large file takes a while, and the engine never waits.
    capture.exchange.block.let_go();
    Processed {
        capture,
        links: found.links,
        nofollow: found.nofollow,
        annotations,
        body,
        parts,
    }
}

/// Looks for links in the headers and, when it is a page, in the content.
fn look(
    capture: &Capture,
    order: &PoolOrder,
    is_left: &AtomicBool,
    annotations: &mut Vec<String>,
) -> Found {
    let exchange = &capture.exchange;
    let mut links = Vec::new();
    let mut charset = None;
    let mut nofollow = false;
    if exchange.shape != Shape::Http {
        return Found {
            links,
            charset,
            nofollow,
        };
    }
    let mut sink = |link: Link| {
        let wanted = match link.hop {
            Hop::Speculative => order.speculative,
            Hop::Manifest => order.sitemaps,
            Hop::Navigation | Hop::Embed | Hop::Redirect | Hop::Inferred => true,
        };
        if wanted {
            links.push(link);
        }
    };
    let status = exchange.head.status().unwrap_or(0);
    let fields: Vec<(String, Vec<u8>)> = exchange
        .head
        .fields()
        .map(|field| {
            let name = String::from_utf8_lossy(field.name).into_owned();
            (name, field.value().into_owned())
        })
        .collect();
    let fields = fields
        .iter()
        .filter(|(name, _)| (300..400).contains(&status) || !name.eq_ignore_ascii_case("location"))
        .map(|(name, value)| (name.as_str(), value.as_slice()));
    extract_headers(&capture.url, fields, &order.limits, &mut sink);
    let robots = exchange.head.text("X-Robots-Tag");
    nofollow |= robots.is_some_and(|value| asks_not_to_follow(&value));
    if (200..300).contains(&status) && exchange.payload_bytes > 0 {
        let mut codings = exchange.head.tokens("Content-Encoding");
        let mut content_type = exchange.head.text("Content-Type");
        if may_be_packed_list(capture) {
            // What is not packed after all is given as it is.
            codings.insert(0, "gzip".to_owned());
            content_type = content_type.filter(|value| !is_packed_type(value));
        }
        let via = Url::parse(&capture.item.via).ok();
        let context = Context {
            url: &capture.url,
            content_type: content_type.as_deref(),
            charset: capture.charset.as_deref(),
            via: via.as_ref(),
            limits: order.limits.clone(),
        };
        let mut document = decoded(exchange, &codings, order.limits.document_bytes, is_left);
        match extract(&mut document, &context, &mut sink) {
            Ok(report) => {
                charset = (report.counts.links > 0).then_some(report.charset);
                nofollow |= report.nofollow;
                if report.ended == ecluse_extract::Ended::Links {
                    annotations.push("outlinksCut".to_owned());
                }
            }
            Err(_) => annotations.push("contentDamaged".to_owned()),
        }
        let mime = capture.mime().to_ascii_lowercase();
        if order.favicons && matches!(&*mime, "text/html" | "application/xhtml+xml") {
            let is_icon = |link: &Link| link.url.ends_with("/favicon.ico");
            extract_inferred(&capture.url, &order.limits, &mut |link| {
                if is_icon(&link) {
                    sink(link);
                }
            });
        }
    }
    Found {
        links,
        charset,
        nofollow,
    }
}

/// Tells a sitemap that may be a gzip file, by how it was found or by its name. A site's other archives are not opened.
fn may_be_packed_list(capture: &Capture) -> bool {
    let path = capture.url.path();
    let is_listed = capture.item.hops.trim_end_matches('R').ends_with('M');
    is_listed || path.ends_with(".xml.gz") || path.ends_with(".txt.gz") && path.contains("sitemap")
}

/// Tells a type that says no more than that something is packed.
fn is_packed_type(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    content_type.contains("gzip") || content_type.starts_with("application/octet-stream")
}

fn read_body(capture: &Capture, limit: u64, is_left: &AtomicBool) -> Vec<u8> {
    let mut body = Vec::new();
    // One byte more than counts: whoever reads it sees that it goes on, and that its last line may be half of one.
    let limit = limit.saturating_add(1);
    // What can be read counts; damage in the middle ends it.
    let codings = capture.exchange.head.tokens("Content-Encoding");
    let _ = decoded(&capture.exchange, &codings, limit, is_left)
        .take(limit)
        .read_to_end(&mut body);
    body
}

/// Reads a payload with its encodings undone; it ends when nobody waits for it any more.
fn decoded<'e>(
    exchange: &'e Exchange,
    codings: &[String],
    limit: u64,
    is_left: &'e AtomicBool,
) -> impl Read + use<'e> {
    let going = || !is_left.load(Ordering::Relaxed);
    let payload = While {
        source: exchange.payload(),
        going,
    };
    While {
        source: Decoded::new(Box::new(payload), codings, limit),
        going,
    }
}

/// Reads as long as somebody waits for it.
pub(crate) struct While<Source, Going> {
    pub(crate) source: Source,
    pub(crate) going: Going,
}

impl<Source: Read, Going: Fn() -> bool> Read for While<Source, Going> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match (self.going)() {
            true => self.source.read(out),
            false => Err(io::Error::other("the job was left")),
        }
    }
}

/// An error with what caused it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
