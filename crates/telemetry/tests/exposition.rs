//! The figures as scrapers read them, judged by a strict reader of OpenMetrics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use ecluse_telemetry::{
    ArchiveFigures, Cause, CrawlFigures, Depth, DepthGauges, DepthKind, Exposition, Registry,
    ResultKind, textfile,
};

/// Every metric, in the order they are written; `cargo xtask tidy` looks here for what alerts and panels ask for.
const METRICS: [&str; 19] = [
    "ecluse_build_info",
    "ecluse_stage_parcels",
    "ecluse_stage_oldest_seconds",
    "ecluse_stage_done_total",
    "ecluse_stage_done_bytes_total",
    "ecluse_stage_duration_seconds",
    "ecluse_stage_paused",
    "ecluse_stage_halted",
    "ecluse_stage_blocked",
    "ecluse_stage_reaped_total",
    "ecluse_stage_batch_wait_seconds",
    "ecluse_stage_last_success_timestamp_seconds",
    "ecluse_archive_frozen",
    "ecluse_archive_failing_copies",
    "ecluse_crawl_urls",
    "ecluse_crawl_captures",
    "ecluse_crawl_bytes",
    "ecluse_crawl_queues",
    "ecluse_crawl_slowest_wait_seconds",
];

/// The samples of an exposition by name and labels, in canonical order.
type Samples = BTreeMap<String, f64>;

/// Reads an OpenMetrics text and refuses whatever the standard does not allow.
fn read_open_metrics(text: &str) -> Result<Samples, String> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("does not end in # EOF and a newline")?;
    let mut samples = Samples::new();
    let mut seen_families = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    let mut help: Option<&str> = None;
    for line in body.split_terminator('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
            else {
                return Err(format!("short comment: {line}"));
            };
            match word {
                "HELP" if help.is_none() => help = Some(name),
                "TYPE" => {
                    if !["gauge", "counter", "histogram", "info"].contains(&rest) {
                        return Err(format!("unknown type: {line}"));
                    }
                    if !seen_families.insert(name.to_owned()) {
                        return Err(format!("family twice: {line}"));
                    }
                    if help.take().is_some_and(|told| told != name) {
                        return Err(format!("help of another family: {line}"));
                    }
                    family = Some((name.to_owned(), rest.to_owned()));
                }
                _ => return Err(format!("unknown comment: {line}")),
            }
            continue;
        }
        let (name, labels, value) = read_sample(line)?;
        if help.is_some() {
            return Err(format!("help without a type: {line}"));
        }
        let (family, kind) = family.as_ref().ok_or("sample without a family")?;
        let suffix = name
            .strip_prefix(family.as_str())
            .ok_or_else(|| format!("sample outside its family: {line}"))?;
        let allowed: &[&str] = match kind.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "info" => &["_info"],
            _ => &["_bucket", "_count", "_sum"],
        };
        if !allowed.contains(&suffix) {
            return Err(format!("wrong suffix for a {kind}: {line}"));
        }
        if kind != "gauge" && (value.is_nan() || value < 0.0) {
            return Err(format!("a {kind} is not negative: {line}"));
        }
        if kind == "info" && value != 1.0 {
            return Err(format!("an info is 1: {line}"));
        }
        if (suffix == "_bucket") != labels.contains_key("le") {
            return Err(format!("le belongs to buckets: {line}"));
        }
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        let key = format!("{name}{{{}}}", labels.join(","));
        if samples.insert(key, value).is_some() {
            return Err(format!("sample twice: {line}"));
        }
    }
    check_histograms(body)?;
    Ok(samples)
}

fn read_sample(line: &str) -> Result<(String, BTreeMap<String, String>, f64), String> {
    let bad = |what: &str| format!("{what}: {line}");
    let name_end = line.find(['{', ' ']).ok_or_else(|| bad("no value"))?;
    let (name, mut rest) = line.split_at(name_end);
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !is_name(name) {
        return Err(bad("bad name"));
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| bad("bad label"))?;
            if !is_name(label) {
                return Err(bad("bad label name"));
            }
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().ok_or_else(|| bad("open label"))? {
                    (index, '"') => break index,
                    (_, '\\') => match chars.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, c @ ('\\' | '"'))) => value.push(c),
                        _ => return Err(bad("bad escape")),
                    },
                    (_, c) => value.push(c),
                }
            };
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(bad("label twice"));
            }
            rest = &after[end + 1..];
            if let Some(after) = rest.strip_prefix(',') {
                rest = after;
            } else {
                rest = rest.strip_prefix('}').ok_or_else(|| bad("open labels"))?;
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or_else(|| bad("no space"))?;
    let is_number = value
        .chars()
        .all(|c| c.is_ascii_digit() || ['.', '-', '+', 'e'].contains(&c));
    if !is_number {
        return Err(bad("bad number"));
    }
    let value = value.parse().map_err(|_| bad("bad number"))?;
    Ok((name.to_owned(), labels, value))
}

/// Buckets rise, in order, to +Inf, which is the count that was told before them.
fn check_histograms(body: &str) -> Result<(), String> {
    let mut count = None;
    let mut last = (f64::NEG_INFINITY, 0.0);
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels, value) = read_sample(line)?;
        if name.ends_with("_seconds_count") {
            count = Some(value);
            last = (f64::NEG_INFINITY, 0.0);
        } else if name.ends_with("_bucket") {
            let bound = match labels["le"].as_str() {
                "+Inf" => f64::INFINITY,
                bound if bound.contains('.') => bound.parse().map_err(|_| line.to_owned())?,
                _ => return Err(format!("a bound is written as a float: {line}")),
            };
            if bound <= last.0 || value < last.1 {
                return Err(format!("buckets out of order: {line}"));
            }
            last = (bound, value);
            if bound == f64::INFINITY && count.take() != Some(value) {
                return Err(format!("the count is not the last bucket: {line}"));
            }
        } else if count.is_some() {
            return Err(format!("a count without its buckets: {line}"));
        }
    }
    Ok(())
}

fn busy_registry() -> Registry {
    let registry = Registry::new("1.2.3");
    let index = registry.stage("index");
    index.done_at(
        1_000,
        Duration::from_millis(20),
        UNIX_EPOCH + Duration::from_millis(1_700_000_000_500),
    );
    index.done_at(
        500,
        Duration::from_secs(200_000),
        UNIX_EPOCH + Duration::from_secs(1_600_000_000),
    );
    index.result(ResultKind::Held);
    index.result(ResultKind::GivenBack);
    index.depths(&DepthGauges {
        waiting: Depth {
            parcels: 12,
            oldest: Some(Duration::from_millis(61_500)),
        },
        held: Depth {
            parcels: 1,
            oldest: None,
        },
        ..DepthGauges::default()
    });
    index.blocked(Cause::Paused, true);
    index.blocked(Cause::Space, true);
    index.blocked(Cause::Space, false);
    index.reaped();
    let transfer = registry.stage("transfer");
    transfer.blocked(Cause::Halted, true);
    transfer.archive(|| {
        Some(ArchiveFigures {
            frozen: true,
            bad: 2,
            unread: 3,
        })
    });
    index.archive(|| None);
    transfer.batch_wait(Duration::from_secs(90));
    let job = CrawlFigures {
        failed: 4,
        revisits: 5,
        bytes: 6,
        retired_queues: 7,
        slowest_wait: Duration::from_millis(8_250),
        ..CrawlFigures::default()
    };
    index.crawl("weekly", Some(job));
    index.crawl("over", Some(job));
    index.crawl("over", None);
    registry
}

#[test]
fn every_figure_is_where_it_belongs() {
    let text = busy_registry().render(Exposition::OpenMetrics);
    let samples = read_open_metrics(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    for (sample, value) in [
        (r#"ecluse_build_info{version="1.2.3"}"#, 1.0),
        (
            r#"ecluse_stage_parcels{stage="index",state="waiting"}"#,
            12.0,
        ),
        (r#"ecluse_stage_parcels{stage="index",state="held"}"#, 1.0),
        (
            r#"ecluse_stage_parcels{stage="transfer",state="working"}"#,
            0.0,
        ),
        (
            r#"ecluse_stage_oldest_seconds{stage="index",state="waiting"}"#,
            61.5,
        ),
        (
            r#"ecluse_stage_oldest_seconds{stage="index",state="held"}"#,
            0.0,
        ),
        (
            r#"ecluse_stage_done_total{result="done",stage="index"}"#,
            2.0,
        ),
        (
            r#"ecluse_stage_done_total{result="held",stage="index"}"#,
            1.0,
        ),
        (
            r#"ecluse_stage_done_total{result="given-back",stage="index"}"#,
            1.0,
        ),
        (
            r#"ecluse_stage_done_total{result="died",stage="index"}"#,
            0.0,
        ),
        (r#"ecluse_stage_done_bytes_total{stage="index"}"#, 1_500.0),
        (
            r#"ecluse_stage_duration_seconds_bucket{le="0.005",stage="index"}"#,
            0.0,
        ),
        (
            r#"ecluse_stage_duration_seconds_bucket{le="0.025",stage="index"}"#,
            1.0,
        ),
        (
            r#"ecluse_stage_duration_seconds_bucket{le="86400.0",stage="index"}"#,
            1.0,
        ),
        (
            r#"ecluse_stage_duration_seconds_bucket{le="+Inf",stage="index"}"#,
            2.0,
        ),
        (r#"ecluse_stage_duration_seconds_count{stage="index"}"#, 2.0),
        (
            r#"ecluse_stage_duration_seconds_sum{stage="index"}"#,
            200_000.02,
        ),
        // An older success does not move the clock back.
        (
            r#"ecluse_stage_last_success_timestamp_seconds{stage="index"}"#,
            1_700_000_000.5,
        ),
        (r#"ecluse_stage_paused{stage="index"}"#, 1.0),
        (r#"ecluse_stage_halted{stage="index"}"#, 0.0),
        (r#"ecluse_stage_halted{stage="transfer"}"#, 1.0),
        (r#"ecluse_stage_blocked{cause="paused",stage="index"}"#, 1.0),
        (r#"ecluse_stage_blocked{cause="space",stage="index"}"#, 0.0),
        (
            r#"ecluse_stage_blocked{cause="high-mark",stage="index"}"#,
            0.0,
        ),
        (r#"ecluse_stage_reaped_total{stage="index"}"#, 1.0),
        (r#"ecluse_archive_frozen{stage="transfer"}"#, 1.0),
        (
            r#"ecluse_archive_failing_copies{found="bad",stage="transfer"}"#,
            2.0,
        ),
        (
            r#"ecluse_archive_failing_copies{found="unread",stage="transfer"}"#,
            3.0,
        ),
        (r#"ecluse_stage_batch_wait_seconds{stage="index"}"#, 0.0),
        (r#"ecluse_stage_batch_wait_seconds{stage="transfer"}"#, 90.0),
        (
            r#"ecluse_crawl_urls{crawl_job="weekly",stage="index",state="failed"}"#,
            4.0,
        ),
        (
            r#"ecluse_crawl_captures{crawl_job="weekly",kind="revisit",stage="index"}"#,
            5.0,
        ),
        (
            r#"ecluse_crawl_bytes{crawl_job="weekly",stage="index"}"#,
            6.0,
        ),
        (
            r#"ecluse_crawl_queues{crawl_job="weekly",stage="index",state="retired"}"#,
            7.0,
        ),
        (
            r#"ecluse_crawl_slowest_wait_seconds{crawl_job="weekly",stage="index"}"#,
            8.25,
        ),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample}\n{text}");
    }
    // Nothing was ever done there, and a time of zero would say "in 1970".
    let never = r#"ecluse_stage_last_success_timestamp_seconds{stage="transfer"}"#;
    assert_eq!(samples.get(never), None);
    assert!(!text.contains("over"), "{text}");
}

#[test]
fn all_families_are_rendered_and_no_other() {
    let text = busy_registry().render(Exposition::Plain);
    let rendered: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert_eq!(rendered, METRICS);
}

#[test]
fn the_plain_form_has_the_same_samples_and_nothing_the_old_reader_refuses() {
    let registry = busy_registry();
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let plain = registry.render(Exposition::Plain);
    assert_eq!(
        samples(&plain),
        samples(&registry.render(Exposition::OpenMetrics))
    );
    for line in plain.lines().filter(|line| line.starts_with('#')) {
        assert!(
            line.starts_with("# HELP ") || line.starts_with("# TYPE "),
            "{line}"
        );
        assert!(!line.ends_with(" info"), "{line}");
    }
}

#[test]
fn a_registry_without_stages_and_an_odd_name_are_valid_too() {
    let registry = Registry::new("0\"\\\n");
    let empty = read_open_metrics(&registry.render(Exposition::OpenMetrics)).unwrap();
    assert_eq!(empty.len(), 1);
    registry.stage("a\"b\\c\nd,e}").reaped();
    read_open_metrics(&registry.render(Exposition::OpenMetrics)).unwrap();
}

#[test]
fn a_stage_is_registered_once() {
    let registry = Registry::new("1");
    registry.stage("index").reaped();
    registry.clone().stage("index").reaped();
    let text = registry.render(Exposition::OpenMetrics);
    assert!(text.contains("ecluse_stage_reaped_total{stage=\"index\"} 2\n"));
    read_open_metrics(&text).unwrap();
}

#[test]
fn every_scrape_is_valid_while_others_count() {
    let registry = Registry::new("1");
    let metrics = registry.stage("index");
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let metrics = metrics.clone();
            scope.spawn(move || {
                for parcel in 0..5_000_u64 {
                    metrics.done(1, Duration::from_millis(parcel * (worker + 1)));
                }
            });
        }
        for _ in 0..50 {
            let text = registry.render(Exposition::OpenMetrics);
            read_open_metrics(&text).unwrap_or_else(|fault| panic!("{fault}"));
        }
    });
    let samples = read_open_metrics(&registry.render(Exposition::OpenMetrics)).unwrap();
    let count = r#"ecluse_stage_duration_seconds_count{stage="index"}"#;
    assert_eq!(samples[count], 10_000.0);
    assert_eq!(
        samples[r#"ecluse_stage_done_bytes_total{stage="index"}"#],
        10_000.0
    );
}

#[test]
fn the_strict_reader_is_strict() {
    for (text, fault) in [
        ("", "# EOF"),
        ("# EOF", "# EOF"),
        ("# EOF\n\n", "# EOF"),
        ("a 1\n# EOF\n", "without a family"),
        ("# TYPE a gauge\na 1\na 1\n# EOF\n", "sample twice"),
        ("# TYPE a gauge\n# TYPE a gauge\n# EOF\n", "family twice"),
        ("# TYPE a counter\na 1\n# EOF\n", "wrong suffix"),
        ("# TYPE a counter\na_total -1\n# EOF\n", "not negative"),
        (
            "# TYPE a gauge\n# UNIT a seconds\n# EOF\n",
            "unknown comment",
        ),
        ("# HELP b x\n# TYPE a gauge\n# EOF\n", "another family"),
        ("# TYPE a gauge\n# HELP a x\na 1\n# EOF\n", "without a type"),
        ("# TYPE a gauge\nb 1\n# EOF\n", "outside"),
        ("# TYPE a gauge\na{x=\"1} 1\n# EOF\n", "open label"),
        (
            "# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n# EOF\n",
            "label twice",
        ),
        ("# TYPE a gauge\na one\n# EOF\n", "bad number"),
        ("# TYPE a gauge\na  1\n# EOF\n", "bad number"),
        ("# TYPE a gauge\n\na 1\n# EOF\n", "no value"),
        (
            "# TYPE a_seconds histogram\na_seconds_count 1\na_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n",
            "not the last bucket",
        ),
        (
            "# TYPE a_seconds histogram\na_seconds_bucket{le=\"1.0\"} 2\na_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n",
            "out of order",
        ),
    ] {
        let error = read_open_metrics(text).expect_err(text);
        assert!(error.contains(fault), "{text:?}: {error}");
    }
}

#[test]
fn labels_are_a_bounded_set() {
    assert_eq!(
        DepthKind::ALL.map(DepthKind::as_str),
        ["waiting", "working", "deferred", "held"]
    );
    assert_eq!(
        ResultKind::ALL.map(ResultKind::as_str),
        [
            "done",
            "duplicate",
            "deferred",
            "held",
            "given-back",
            "died"
        ]
    );
    assert_eq!(
        Cause::ALL.map(Cause::as_str),
        ["paused", "high-mark", "space", "halted"]
    );
}

#[test]
fn the_textfile_holds_the_plain_form() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ecluse.prom");
    let text = busy_registry().render(Exposition::Plain);
    textfile::write(&path, &text).unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
