//! Formats of one link a line: `robots.txt`, sitemaps in plain text, media playlists.

use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};

/// What the lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Robots,
    UrlList,
    Playlist,
}

/// A document of lines being read.
#[derive(Debug)]
pub(crate) struct Lines {
    format: Format,
    held: String,
    /// In a line too long to be looked at.
    skipping: bool,
}

impl Lines {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            held: String::new(),
            skipping: false,
        }
    }

    /// Reads a piece of the document.
    pub(crate) fn push(&mut self, text: &str, collector: &mut Collector<'_>) {
        let mut rest = text;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest.as_bytes()) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if std::mem::take(&mut self.skipping) {
                self.held.clear();
            } else if self.held.is_empty() {
                self.line(line, collector);
            } else {
                let mut held = std::mem::take(&mut self.held);
                held.push_str(line);
                self.line(&held, collector);
            }
        }
        if self.skipping {
            return;
        }
        self.held.push_str(rest);
        if self.held.len() > collector.limits().url_bytes.saturating_mul(3) {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.held.clear();
            self.skipping = true;
        }
    }

    /// Reads the last line.
    pub(crate) fn finish(&mut self, collector: &mut Collector<'_>) {
        let held = std::mem::take(&mut self.held);
        self.line(&held, collector);
    }

    fn line(&self, line: &str, collector: &mut Collector<'_>) {
        let line = line.trim();
        match self.format {
            Format::Robots => {
                // A URL may hold a `#`, but Sitemap lines end in comments more often than in fragments.
                let line = line.split('#').next().unwrap_or_default();
                if let Some((name, value)) = line.split_once(':')
                    && name.trim().eq_ignore_ascii_case("sitemap")
                {
                    collector.offer(value, Hop::Manifest, LinkPlace::MANIFEST);
                }
            }
            Format::UrlList => {
                if crate::speculative::after_scheme(line).is_some() {
                    collector.offer(line, Hop::Manifest, LinkPlace::MANIFEST);
                }
            }
            Format::Playlist => playlist(line, collector),
        }
    }
}

fn playlist(line: &str, collector: &mut Collector<'_>) {
    let place = LinkPlace::Named("=PLAYLIST_MISC");
    if !line.starts_with('#') {
        collector.offer(line, Hop::Embed, place);
    } else if let Some((_, value)) = line.split_once("URI=\"")
        && let Some((value, _)) = value.split_once('"')
    {
        collector.offer(value, Hop::Embed, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{collected, split_everywhere};

    fn urls(format: Format, document: &str) -> Vec<String> {
        split_everywhere(document, |pieces| {
            collected(|collector| {
                let mut lines = Lines::new(format);
                for piece in pieces {
                    lines.push(piece, collector);
                }
                lines.finish(collector);
            })
        })
    }

    #[test]
    fn robots_names_sitemaps() {
        let robots = "User-agent: *\nDisallow: /x\r\nSITEMAP : /a.xml # one\n# Sitemap: /b.xml\nSitemap:https://gate.example/c.xml.gz\rAllow: Sitemap: x\nsitemap:\nSitemap: d.xml";
        assert_eq!(
            urls(Format::Robots, robots),
            ["a.xml", "https://gate.example/c.xml.gz", "d.xml"]
        );
    }

    #[test]
    fn lists_and_playlists_name_one_a_line() {
        assert_eq!(
            urls(
                Format::UrlList,
                "http://gate.example/a\n\nnot/a/url\r\nhttps://gate.example/b"
            ),
            ["http://gate.example/a", "https://gate.example/b"]
        );
        let playlist =
            "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"key.bin\"\n#EXTINF:9,\nsegment0.ts\n# note\n";
        assert_eq!(urls(Format::Playlist, playlist), ["key.bin", "segment0.ts"]);
    }

    #[test]
    fn a_line_over_the_limit_is_passed_over() {
        let found = collected(|collector| {
            let mut lines = Lines::new(Format::Robots);
            lines.push("Sitemap: /", collector);
            for _ in 0..100 {
                lines.push(&"x".repeat(1000), collector);
                assert!(lines.held.len() <= 13_000);
            }
            lines.push("\nSitemap: /a.xml\n", collector);
            lines.finish(collector);
            assert_eq!(collector.passed_over, 1);
        });
        assert_eq!(found, ["a.xml"]);
    }
}
