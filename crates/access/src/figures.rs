//! What was asked and how it was answered, in numbers.

use hyper::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What kind of question it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A page of our own.
    Page,
    Replay,
    Cdx,
    TimeMap,
    TimeGate,
    /// Where a file is.
    Path,
    /// In proxy mode.
    Proxy,
    /// None of these.
    Other,
}

impl RequestKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Replay => "replay",
            Self::Cdx => "cdx",
            Self::TimeMap => "timemap",
            Self::TimeGate => "timegate",
            Self::Path => "path",
            Self::Proxy => "proxy",
            Self::Other => "other",
        }
    }
}

type Labels = [(&'static str, &'static str); 2];

/// The figures of one server.
#[derive(Debug, Default)]
pub(crate) struct AccessFigures {
    requests: Family<Labels, Counter>,
}

impl AccessFigures {
    pub(crate) fn count(&self, kind: RequestKind, status: StatusCode) {
        let class = match status.as_u16() {
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        let labels = [("kind", kind.as_str()), ("status", class)];
        self.requests.get_or_create(&labels).inc();
    }

    /// Writes them as OpenMetrics; a generation that cannot be read is 0.
    pub(crate) fn render(&self, generation: Option<u64>) -> String {
        let mut registry = Registry::default();
        registry.register(
            "ecluse_access_requests",
            "Questions answered, by kind and by the first digit of the status",
            self.requests.clone(),
        );
        let number: Gauge = Gauge::default();
        number.set(generation.and_then(|n| n.try_into().ok()).unwrap_or(0));
        registry.register(
            "ecluse_access_index_generation",
            "The generation of the main index that is served; 0 when there is none",
            number,
        );
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a string takes what is written");
        out
    }
}
