//! The reports of a small job, byte for byte, and what they make of hostile names.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io;
use std::path::Path;

use ecluse_report::{
    Fetched, HostTally, JobFacts, JobTally, Kept, Moment, ReportSource, SeedTally, write_reports,
};
use serde_json::{Value, json};

struct Crawl {
    tally: JobTally,
    hosts: Vec<HostTally>,
    seeds: Vec<SeedTally>,
}

impl ReportSource for Crawl {
    fn hosts(&mut self, each: &mut dyn FnMut(HostTally)) -> io::Result<()> {
        self.hosts.iter().cloned().for_each(each);
        Ok(())
    }

    fn seeds(&mut self, each: &mut dyn FnMut(SeedTally)) -> io::Result<()> {
        self.seeds.iter().cloned().for_each(each);
        Ok(())
    }

    fn frontier_summary(&mut self) -> io::Result<(String, Value)> {
        Ok((
            "Frontier report\n Queued: 7\n".to_owned(),
            json!({"queued": 7}),
        ))
    }
}

impl Crawl {
    fn count(&mut self, fetched: &Fetched<'_>) {
        self.tally.count(fetched);
        let place = self.hosts.iter().position(|host| host.host == fetched.host);
        let place = place.unwrap_or_else(|| {
            self.hosts.push(HostTally::new(fetched.host));
            self.hosts.len() - 1
        });
        self.hosts[place].count(fetched);
    }
}

fn fetched<'a>(host: &'a str, status: i32, mime: &'a str, bytes: u64, kind: Kept) -> Fetched<'a> {
    Fetched {
        logged: Moment(1_794_790_801_000),
        status,
        size: Some(bytes),
        url: "http://www.example.org/",
        hops: "L",
        via: "-",
        mime,
        thread: 1,
        begun: Some(Moment(1_794_790_800_500)),
        took_ms: Some(20),
        digest: None,
        source: "tag",
        annotations: &[],
        extra: None,
        host,
        wire_bytes: bytes + 100,
        kind,
    }
}

fn seed(url: &str, status: i32, redirect: Option<&str>) -> SeedTally {
    SeedTally {
        url: url.to_owned(),
        tag: "tag".to_owned(),
        status,
        redirect: redirect.map(str::to_owned),
    }
}

fn crawl() -> Crawl {
    let mut crawl = Crawl {
        tally: JobTally::default(),
        hosts: Vec::new(),
        seeds: vec![
            seed("http://www.example.org/", 200, None),
            seed("http://gone.example/", -1, None),
            seed("http://example.org/", 301, Some("http://www.example.org/")),
            seed("http://never.example/", 0, None),
        ],
    };
    for (host, status, mime, bytes, kind) in [
        ("dns:", 1, "text/dns", 52, Kept::Stored),
        ("www.example.org", 200, "text/html", 7_405, Kept::Stored),
        ("www.example.org", 200, "image/png", 145_994, Kept::Revisit),
        ("www.example.org", 304, "image/png", 0, Kept::NotModified),
        ("www.example.org", -9998, "", 0, Kept::Nothing),
        ("gone.example", -1, "", 0, Kept::Nothing),
    ] {
        crawl.count(&fetched(host, status, mime, bytes, kind));
    }
    crawl.hosts[1].remaining = 7;
    crawl
}

fn facts() -> JobFacts {
    JobFacts {
        job: "17".to_owned(),
        harvest: "4".to_owned(),
        description: "Élections\n2027".to_owned(),
        begun: Moment(1_794_790_800_000),
        ended: Moment(1_794_790_841_968),
        busy_ms: 41_968,
        how: "finished".to_owned(),
        software: "Ecluse/0.1.0".to_owned(),
        seeds: 4,
        known: 13,
        queued: 7,
        retired_queues: vec!["org,example,".to_owned()],
        ..JobFacts::default()
    }
}

fn text(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn the_reports_are_those_of_heritrix() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut crawl = crawl();
    let tally = crawl.tally.clone();
    let paths = write_reports(dir, &facts(), &tally, &mut crawl).unwrap();
    assert_eq!(
        text(dir, "crawl-report.txt"),
        "crawl name: 17\ncrawl status: finished\nduration: 41s968ms\n\n\
         seeds crawled: 2\nseeds uncrawled: 2\n\nhosts visited: 2\n\n\
         URIs processed: 6\nURI successes: 4\nURI failures: 1\nURI disregards: 1\n\n\
         novel URIs: 2\nduplicate-by-hash URIs: 1\nnot-modified URIs: 1\n\n\
         total crawled bytes: 153451 (150 KiB) \nnovel crawled bytes: 7457 (7.3 KiB)\n\
         duplicate-by-hash crawled bytes: 145994 (143 KiB) \nnot-modified crawled bytes: 0 (0 B) \n\n\
         URIs/sec: 0.1\nKB/sec: 3\n\n\
         harvest: 4\ndescription: Élections%0A2027\nbegun: 2026-11-16T01:00:00.000Z\n\
         ended: 2026-11-16T01:00:41.968Z\nfirst fetch: 2026-11-16T01:00:00.500Z\n\
         last fetch: 2026-11-16T01:00:00.500Z\nsoftware: Ecluse/0.1.0\n\n\
         robots-forbidden URIs: 1\nwire bytes: 154051\nURIs known: 13\nURIs queued: 7\n\
         retired queues: 1\n org,example,\n"
    );
    assert_eq!(
        text(dir, "hosts-report.txt"),
        "[#urls] [#bytes] [host] [#robots] [#remaining] [#novel-urls] [#novel-bytes] [#dup-by-hash-urls] \
         [#dup-by-hash-bytes] [#not-modified-urls] [#not-modified-bytes]\n\
         3 153399 www.example.org 1 7 1 7405 1 145994 1 0 \n\
         1 52 dns: 0 0 1 52 0 0 0 0 \n\
         0 0 gone.example 0 0 0 0 0 0 0 0 \n"
    );
    assert_eq!(
        text(dir, "seeds-report.txt"),
        "[code] [status] [seed] [redirect]\n0 NOTCRAWLED http://never.example/\n\
         -1 NOTCRAWLED http://gone.example/\n301 CRAWLED http://example.org/ http://www.example.org/\n\
         200 CRAWLED http://www.example.org/\n"
    );
    assert_eq!(
        text(dir, "mimetype-report.txt"),
        "[#urls] [#bytes] [mime-types]\n2 145994 image/png\n1 52 text/dns\n1 7405 text/html\n"
    );
    assert_eq!(
        text(dir, "responsecode-report.txt"),
        "[#urls] [rescode]\n2 200\n1 -9998\n1 -1\n1 1\n1 304\n"
    );
    assert_eq!(
        text(dir, "source-report.txt"),
        "[source] [host] [#urls]\ntag www.example.org 3\ntag dns: 1\n"
    );
    assert_eq!(
        text(dir, "host-status-report.tsv"),
        "host\tstatus\turls\nwww.example.org\t-9998\t1\nwww.example.org\t200\t2\nwww.example.org\t304\t1\n\
         dns:\t1\t1\ngone.example\t-1\t1\n"
    );
    assert_eq!(
        text(dir, "frontier-summary-report.txt"),
        "Frontier report\n Queued: 7\n"
    );
    assert_eq!(paths.len(), 16);
    assert!(paths.is_sorted() && paths.iter().all(|path| path.is_file()));
}

#[test]
fn json_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut crawl = crawl();
    let tally = crawl.tally.clone();
    write_reports(dir, &facts(), &tally, &mut crawl).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&text(dir, name)).unwrap();
    let report = json("crawl-report.json");
    assert_eq!(report["seeds-crawled"], 2);
    assert_eq!(
        report["totals"]["duplicate"],
        json!({"urls": 1, "bytes": 145_994})
    );
    assert_eq!(report["job"]["description"], "Élections\n2027");
    assert_eq!(report["ended"], "2026-11-16T01:00:41.968Z");
    let hosts = json("hosts-report.json");
    assert_eq!(hosts["order"], "urls");
    assert_eq!(
        hosts["hosts"][0]["codes"],
        json!({"-9998": 1, "200": 2, "304": 1})
    );
    assert_eq!(hosts["hosts"][0]["remaining"], 7);
    let seeds = json("seeds-report.json");
    assert_eq!(
        seeds["seeds"][2],
        json!({"status": "CRAWLED", "code": 301, "seed": "http://example.org/",
               "redirect": "http://www.example.org/", "tag": "tag"})
    );
    assert_eq!(json("mimetype-report.json")["mime-types"][1]["bytes"], 52);
    assert_eq!(
        json("responsecode-report.json")["codes"][1],
        json!({"code": "-9998", "urls": 1})
    );
    assert_eq!(json("source-report.json")["sources"][0]["urls"], 3);
    assert_eq!(json("frontier-summary-report.json"), json!({"queued": 7}));
    let lines = text(dir, "host-status-report.jsonl");
    assert_eq!(lines.lines().count(), 3);
    for line in lines.lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap()["urls"].is_u64());
    }
}

#[test]
fn written_again_they_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut crawl = crawl();
    let tally = crawl.tally.clone();
    let paths = write_reports(dir.path(), &facts(), &tally, &mut crawl).unwrap();
    let before: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    fs::write(dir.path().join("crawl-report.txt"), "half a rep").unwrap();
    fs::write(dir.path().join("hosts-report.txt"), "x".repeat(100_000)).unwrap();
    let again = write_reports(dir.path(), &facts(), &tally, &mut crawl).unwrap();
    let after: Vec<Vec<u8>> = again.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn hostile_names_stay_in_their_fields() {
    let dir = tempfile::tempdir().unwrap();
    let mut crawl = Crawl {
        tally: JobTally::default(),
        hosts: Vec::new(),
        seeds: vec![seed("http://a/\n200 CRAWLED http://b/", -7, Some("x y"))],
    };
    crawl.count(&Fetched {
        source: "two words\n",
        ..fetched("a b\n\t", 200, "text/ html\r\n", 1, Kept::Stored)
    });
    let tally = crawl.tally.clone();
    let facts = JobFacts {
        how: "stopped\ncrawl status: finished".to_owned(),
        ..facts()
    };
    write_reports(dir.path(), &facts, &tally, &mut crawl).unwrap();
    for (name, lines, fields) in [
        ("hosts-report.txt", 2, 11),
        ("seeds-report.txt", 2, 4),
        ("mimetype-report.txt", 2, 3),
        ("source-report.txt", 2, 3),
        ("host-status-report.tsv", 2, 3),
    ] {
        let text = text(dir.path(), name);
        assert_eq!(text.lines().count(), lines, "{text}");
        let last = text.lines().last().unwrap();
        assert_eq!(last.split_whitespace().count(), fields, "{text}");
    }
    let report = text(dir.path(), "crawl-report.txt");
    assert!(report.contains("crawl status: stopped%0Acrawl status: finished\n"));
}

#[test]
fn a_job_without_anything_has_reports_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut crawl = Crawl {
        tally: JobTally::default(),
        hosts: Vec::new(),
        seeds: Vec::new(),
    };
    write_reports(
        dir.path(),
        &JobFacts::default(),
        &JobTally::default(),
        &mut crawl,
    )
    .unwrap();
    let report = text(dir.path(), "crawl-report.txt");
    assert!(report.contains("URIs/sec: 0\nKB/sec: 0\n"), "{report}");
    let hosts: Value = serde_json::from_str(&text(dir.path(), "hosts-report.json")).unwrap();
    assert_eq!(hosts["hosts"], json!([]));
}
