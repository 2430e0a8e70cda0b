//! Memory does not grow with the document. Alone in its file, because it measures the whole process.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{self, Read};

use ecluse_extract::{Context, Url, extract};

macro_rules! words {
    () => {
        " the lock keeper opened the upper gate at noon and three barges loaded with gravel came down to the basin "
    };
}

/// A document that repeats itself and is nowhere in memory.
struct Endless {
    scrap: &'static [u8],
    at: usize,
    left: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.left);
        for byte in &mut buffer[..length] {
            *byte = self.scrap[self.at % self.scrap.len()];
            self.at += 1;
        }
        self.left -= length;
        Ok(length)
    }
}

/// Returns the most memory this process has had, in bytes, where the system tells.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[test]
fn memory_is_bounded_by_the_limits() {
    let url = Url::parse("http://lock.example/").unwrap();
    let Some(before) = peak() else {
        println!("this system does not tell how much memory a process had; nothing is checked");
        return;
    };
    // Text between the tags, because an unoptimised parser is slow on tags and the amount of text is what is asked about.
    for (content_type, scrap) in [
        (
            "text/html",
            concat!("<p><a href=/same>link</a>", words!()).as_bytes(),
        ),
        ("text/html", concat!("<div><b>", words!()).as_bytes()),
        ("text/html", concat!("<a x='", words!()).as_bytes()),
        ("text/html", concat!("<noscript> x=", words!()).as_bytes()),
        ("text/css", concat!("a{b:url(x)} ", words!()).as_bytes()),
        ("text/css", concat!("'\\'", words!()).as_bytes()),
        (
            "application/javascript",
            concat!("x='y';z=`${", words!()).as_bytes(),
        ),
        ("application/json", concat!("\"a\\\"", words!()).as_bytes()),
        ("application/xml", concat!("<a><b c='", words!()).as_bytes()),
        (
            "application/rss+xml",
            concat!("<rss><description>x", words!()).as_bytes(),
        ),
    ] {
        let mut document = Endless {
            scrap,
            at: 0,
            left: 8 << 20,
        };
        let mut context = Context::new(&url, Some(content_type));
        context.limits.token_bytes = 64 << 10;
        let report = extract(&mut document, &context, &mut |_| {}).unwrap();
        assert_eq!(report.bytes, 8 << 20, "{content_type}");
    }
    let grown = peak().unwrap() - before;
    assert!(grown < 4 << 20, "{grown} bytes for documents of 8 MiB");
}
