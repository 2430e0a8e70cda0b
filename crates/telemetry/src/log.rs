//! Logs: one line or one journal entry for each event, with the fields of the spans around it.
//!
//! The three forms hold the same fields. In the journal they are `ECLUSE_STAGE`, `ECLUSE_PARCEL`,
//! `ECLUSE_REASON` and so on, and the message repeats them for those who only read along. Values
//! come from file names and the web: whatever a terminal would obey is escaped in every form.

mod entry;
mod journal;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use self::entry::{Entry, Fields};
use self::journal::Journal;
use crate::footer::FOOTER;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogOutput {
    /// The journal when stderr leads there, text when it is a terminal, else JSON.
    #[default]
    Auto,
    /// Entries with fields, in the journal.
    Journald,
    /// One JSON object a line, on stderr.
    Json,
    /// Lines for people, on stderr.
    Text,
}

/// How to log. The environment is the caller's to read.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The form.
    pub format: LogOutput,
    /// A level, or a list such as `info,ecluse_spool=debug`; empty means `info`.
    pub filter: String,
    /// The program's name in the journal.
    pub identifier: String,
    /// The value of `JOURNAL_STREAM`, by which systemd says that stderr leads to the journal.
    pub journal_stream: Option<String>,
    /// Whether text on a terminal may have colours.
    pub color: bool,
}

/// Why there is no log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The filter cannot be read.
    #[error(
        "cannot read {directive:?} in the log filter; write error, warn, info, debug, trace or off, \
         or a list such as \"info,ecluse_spool=debug\""
    )]
    Filter {
        /// The part of the filter that cannot be read.
        directive: String,
    },
    /// The journal was asked for by name and does not answer.
    #[error("cannot reach the journal: {0}")]
    Journal(io::Error),
    /// Something in this process logs already.
    #[error("the log was set up twice")]
    Twice,
    /// The log that the handle belongs to is gone.
    #[error("the log is gone")]
    Gone,
}

/// Changes the filter of a running log.
#[derive(Clone, Debug)]
pub struct Handle {
    set: reload::Handle<Targets, tracing_subscriber::Registry>,
}

impl Handle {
    /// Sets another filter; a faulty one changes nothing.
    pub fn set_filter(&self, filter: &str) -> Result<(), LogError> {
        let filter = parse_filter(filter)?;
        self.set.reload(filter).map_err(|_| LogError::Gone)
    }
}

/// Sends this process's events to the log from here on.
pub fn init(options: &LogOptions) -> Result<Handle, LogError> {
    let sink = open_sink(options)?;
    let (subscriber, handle) = subscriber(&options.filter, sink)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(handle)
}

fn subscriber(
    filter: &str,
    sink: Sink,
) -> Result<(impl Subscriber + Send + Sync + use<>, Handle), LogError> {
    let (filter, set) = reload::Layer::new(parse_filter(filter)?);
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(Scribe { sink });
    Ok((subscriber, Handle { set }))
}

/// Reads a list of levels, one for all and some by target; without one for all, it is `info`.
fn parse_filter(filter: &str) -> Result<Targets, LogError> {
    let mut targets = Targets::new().with_default(LevelFilter::INFO);
    for directive in filter.split(',').map(str::trim) {
        if directive.is_empty() {
            continue;
        }
        let (target, level) = match directive.rsplit_once('=') {
            Some((target, level)) => (Some(target), level),
            // `Targets` would take a word that is no level for a target, and silence all others.
            None => (None, directive),
        };
        let level: LevelFilter = level.parse().map_err(|_| LogError::Filter {
            directive: directive.to_owned(),
        })?;
        targets = match target {
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    Ok(targets)
}

fn open_sink(options: &LogOptions) -> Result<Sink, LogError> {
    let is_terminal = io::stderr().is_terminal();
    let stderr = rustix::fs::fstat(io::stderr())
        .ok()
        .map(|stat| (stat.st_dev, stat.st_ino));
    let format = match options.format {
        LogOutput::Auto => choose(options.journal_stream.as_deref(), stderr, is_terminal),
        format => format,
    };
    let lines = |form| Sink::Lines {
        out: Mutex::new(Box::new(io::stderr())),
        form,
    };
    let text = Form::Text {
        color: options.color && is_terminal,
    };
    match format {
        LogOutput::Json => Ok(lines(Form::Json)),
        LogOutput::Text => Ok(lines(text)),
        LogOutput::Auto | LogOutput::Journald => {
            match Journal::open(Path::new(journal::SOCKET), &options.identifier) {
                Ok(journal) => Ok(Sink::Journal(journal)),
                // Stderr leads to the journal anyway, without the fields.
                Err(_) if options.format == LogOutput::Auto => Ok(lines(Form::Json)),
                Err(error) => Err(LogError::Journal(error)),
            }
        }
    }
}

/// Chooses a form by where stderr leads: `stderr` is its device and inode.
fn choose(
    journal_stream: Option<&str>,
    stderr: Option<(u64, u64)>,
    is_terminal: bool,
) -> LogOutput {
    // The variable is inherited by children whose stderr was sent elsewhere, hence the numbers.
    let stream = journal_stream
        .and_then(|stream| stream.split_once(':'))
        .and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    if stream.is_some() && stream == stderr {
        LogOutput::Journald
    } else if is_terminal {
        LogOutput::Text
    } else {
        LogOutput::Json
    }
}

enum Sink {
    Lines {
        out: Mutex<Box<dyn Write + Send>>,
        form: Form,
    },
    Journal(Journal),
}

#[derive(Clone, Copy)]
enum Form {
    Json,
    Text { color: bool },
}

/// Collects an event's fields and writes it.
struct Scribe {
    sink: Sink,
}

impl<S> Layer<S> for Scribe
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        let spans = context.event_scope(event);
        for span in spans.into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.merge(outer);
            }
        }
        event.record(&mut fields);
        let entry = Entry::new(event.metadata(), fields);
        // A log that cannot be written has nowhere to say so, and must not stop the work.
        let _ = match &self.sink {
            Sink::Lines { out, form } => {
                let line = match form {
                    Form::Json => entry.to_json(),
                    Form::Text { color } => entry.to_text(*color),
                };
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                // One write a line: lines of several processes do not mix in a pipe.
                FOOTER.write_above(&mut *out, &line)
            }
            Sink::Journal(journal) => journal
                .send(&entry)
                .or_else(|_| io::stderr().write_all(entry.to_json().as_bytes())),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn on_page(form: Form, filter: &str, log: impl FnOnce(&Handle)) -> String {
        let page = Page::default();
        let sink = Sink::Lines {
            out: Mutex::new(Box::new(page.clone())),
            form,
        };
        let (subscriber, handle) = subscriber(filter, sink).unwrap();
        tracing::subscriber::with_default(subscriber, || log(&handle));
        page.text()
    }

    fn hold_one() {
        let stage = tracing::info_span!("stage", stage = "index");
        let _in_stage = stage.enter();
        let parcel = tracing::info_span!("parcel", parcel = "a b\u{202e}", attempt = 1);
        let _in_parcel = parcel.enter();
        parcel.record("attempt", 2);
        tracing::warn!(
            reason = "trunc\x1b[31m\nated",
            offset = 73_400_320_u64,
            ratio = 0.5,
            whole = false,
            path = ?Path::new("/x\t"),
            "parcel held"
        );
    }

    #[test]
    fn json_has_the_fields_of_the_spans_at_the_top() {
        let text = on_page(Form::Json, "info", |_| hold_one());
        assert_eq!(text.matches('\n').count(), 1);
        assert!(!text.contains('\u{202e}') && !text.contains('\x1b'));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["message"], "parcel held");
        assert_eq!(line["target"], "ecluse_telemetry::log::tests");
        assert_eq!(line["stage"], "index");
        assert_eq!(line["parcel"], "a b\u{202e}");
        assert_eq!(line["attempt"], 2);
        assert_eq!(line["reason"], "trunc\x1b[31m\nated");
        assert_eq!(line["offset"], 73_400_320);
        assert_eq!(line["ratio"], 0.5);
        assert_eq!(line["whole"], false);
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }

    #[test]
    fn text_is_one_line_that_cannot_repaint_the_terminal() {
        let text = on_page(Form::Text { color: false }, "info", |_| hold_one());
        let (_, line) = text.split_once(' ').unwrap();
        assert_eq!(
            line,
            "WARN  index: parcel held parcel=\"a b\\u{202e}\" attempt=2 \
             reason=trunc\\u{1b}[31m\\nated offset=73400320 ratio=0.5 whole=false path=\"\\\"/x\\\\t\\\"\"\n"
        );
        let colored = on_page(Form::Text { color: true }, "info", |_| hold_one());
        assert_eq!(colored.matches('\x1b').count(), 2);
    }

    #[test]
    fn a_field_named_as_ours_is_kept_beside_it() {
        let text = on_page(Form::Json, "info", |_| {
            tracing::info!(level = 7, time = "noon", "odd");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "info");
        assert_eq!(line["field-level"], 7);
        assert_eq!(line["field-time"], "noon");
    }

    #[test]
    fn a_value_of_a_megabyte_is_cut() {
        let text = on_page(Form::Json, "info", |_| {
            tracing::info!(reason = "é".repeat(1 << 20), "long");
        });
        assert!(text.len() < 20_000, "{}", text.len());
        assert!(text.contains("[cut]"));
    }

    #[test]
    fn the_filter_can_be_changed_while_running() {
        let text = on_page(Form::Json, "warn", |handle| {
            tracing::info!("one");
            handle.set_filter("info,ecluse_telemetry=debug").unwrap();
            tracing::debug!("two");
            assert!(handle.set_filter("ecluse=loud").is_err());
            tracing::debug!("three");
            handle.set_filter("off").unwrap();
            tracing::error!("four");
        });
        let seen: Vec<bool> = ["one", "two", "three", "four"]
            .iter()
            .map(|word| text.contains(word))
            .collect();
        assert_eq!(seen, [false, true, true, false]);
    }

    #[test]
    fn the_journal_gets_fields_it_can_be_searched_by() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::open(&path, "ecluse-index").unwrap();
        let (subscriber, _) = subscriber("info", Sink::Journal(journal)).unwrap();
        tracing::subscriber::with_default(subscriber, hold_one);

        let mut buffer = vec![0; 65_536];
        // The first, empty datagram only asked whether anybody listens.
        assert_eq!(journald.recv(&mut buffer).unwrap(), 0);
        let count = journald.recv(&mut buffer).unwrap();
        let fields = journal::tests::parse(&buffer[..count]);
        let field = |name: &str| {
            let mut found = fields.iter().filter(|(known, _)| known == name);
            let value = found.next().map(|(_, value)| value.as_str());
            assert!(found.next().is_none(), "{name} is there twice");
            value
        };
        assert_eq!(field("PRIORITY"), Some("4"));
        assert_eq!(field("SYSLOG_IDENTIFIER"), Some("ecluse-index"));
        assert_eq!(field("ECLUSE_STAGE"), Some("index"));
        assert_eq!(field("ECLUSE_PARCEL"), Some("a b\\u{202e}"));
        assert_eq!(field("ECLUSE_ATTEMPT"), Some("2"));
        assert_eq!(field("ECLUSE_REASON"), Some("trunc\\u{1b}[31m\\nated"));
        assert!(field("CODE_FILE").unwrap().ends_with("log.rs"));
        let message = field("MESSAGE").unwrap();
        assert!(
            message.starts_with("index: parcel held parcel=\"a b"),
            "{message}"
        );
    }

    #[test]
    fn the_form_follows_stderr() {
        let stderr = Some((12, 345));
        assert_eq!(choose(Some("12:345"), stderr, false), LogOutput::Journald);
        assert_eq!(choose(Some("12:345"), stderr, true), LogOutput::Journald);
        // Inherited, but stderr was sent elsewhere.
        assert_eq!(choose(Some("12:999"), stderr, false), LogOutput::Json);
        assert_eq!(choose(Some("12:345"), None, false), LogOutput::Json);
        for odd in ["", ":", "12", "x:345", "12:345:6", "-1:2"] {
            assert_eq!(choose(Some(odd), None, true), LogOutput::Text, "{odd}");
            assert_eq!(choose(Some(odd), stderr, false), LogOutput::Json, "{odd}");
        }
        assert_eq!(choose(None, stderr, true), LogOutput::Text);
        assert_eq!(choose(None, None, false), LogOutput::Json);
    }

    #[test]
    fn a_filter_for_one_target_does_not_silence_the_others() {
        let log = |_: &Handle| {
            tracing::debug!("inside");
            tracing::debug!(target: "elsewhere", "outside");
            tracing::info!(target: "elsewhere", "news");
        };
        let seen = |filter: &str| {
            let text = on_page(Form::Text { color: false }, filter, log);
            ["inside", "outside", "news"].map(|word| text.contains(word))
        };
        assert_eq!(seen(""), [false, false, true]);
        assert_eq!(seen("ecluse_telemetry=debug"), [true, false, true]);
        assert_eq!(seen(" warn , elsewhere=trace"), [false, true, true]);
    }

    #[test]
    fn a_faulty_filter_is_named() {
        let options = LogOptions {
            filter: "loud".to_owned(),
            format: LogOutput::Json,
            ..LogOptions::default()
        };
        let error = init(&options).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read \"loud\" in the log filter; write error,"),
            "{error}"
        );
    }
}
