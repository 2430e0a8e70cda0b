//! Finding what one page links to, and what links to it, without reading all links.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ecluse_cdx::CaptureTime;

use crate::directory::{LINKS_FILE, LINKS_INDEX, URLS_FILE};
use crate::error::{BadLinkLine, LinksError};
use crate::line::{LINKS_HEADER, LinkKind, PageLinks};
use crate::slice::{SliceHead, SlicePart, read_slice};
use crate::urls::Urls;

/// What a page links to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPage {
    /// Its key.
    pub surt: String,
    /// Its URL.
    pub url: String,
    /// When it was captured last.
    pub time: CaptureTime,
    /// The digest of what it had then, or `-`.
    pub digest: String,
    /// How and whereto it links.
    pub targets: Vec<(LinkKind, String)>,
}

/// A generation of links, open to be asked.
pub struct LinkFinder {
    directory: PathBuf,
    urls: Urls,
}

impl LinkFinder {
    /// Opens the directory of a generation.
    ///
    /// # Errors
    /// When it has no URLs, or they cannot be read.
    pub fn open(generation: &Path) -> Result<Self, LinksError> {
        Ok(Self {
            urls: Urls::open(&generation.join(URLS_FILE))?,
            directory: generation.to_owned(),
        })
    }

    /// Returns the URLs of the generation.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// Returns what a page links to; none when it was never captured.
    ///
    /// # Errors
    /// When the lists cannot be read.
    pub fn page(&self, surt: &str) -> Result<Option<FoundPage>, LinksError> {
        let Some(offset) = self.frame_of(surt)? else {
            return Ok(None);
        };
        let path = self.directory.join(LINKS_FILE);
        let failed = |error| LinksError::io("read", &path)(error);
        let mut file = File::open(&path).map_err(failed)?;
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let frame = zstd::Decoder::new(file).map_err(failed)?.single_frame();
        for line in BufReader::new(frame).lines() {
            let line = line.map_err(failed)?;
            if line == LINKS_HEADER {
                continue;
            }
            let page = PageLinks::parse(&line).map_err(LinksError::damaged(&path, 0))?;
            if page.surt > surt {
                break;
            }
            if page.surt == surt {
                let targets = page.targets();
                return Ok(Some(FoundPage {
                    surt: page.surt.to_owned(),
                    url: page.url.to_owned(),
                    time: page.time,
                    digest: page.digest.to_owned(),
                    targets: targets
                        .map(|target| (target.kind, target.url.into_owned()))
                        .collect(),
                }));
            }
        }
        Ok(None)
    }

    /// Returns the numbers of the pages that link to a URL by a kind that counts, ascending; none when the URL is not known.
    ///
    /// # Errors
    /// When the slices cannot be read.
    pub fn sources(&self, surt: &str) -> Result<Option<Vec<u64>>, LinksError> {
        let Some(number) = self.urls.find(surt)? else {
            return Ok(None);
        };
        let first = self.slice(0, SlicePart::External);
        let mut file = File::open(&first).map_err(LinksError::io("open", &first))?;
        let pages = SliceHead::read(&mut file, &first)?.pages;
        let slice = u32::try_from(number / u64::from(pages)).unwrap_or(u32::MAX);
        let mut sources = Vec::new();
        for part in [SlicePart::External, SlicePart::Internal] {
            read_slice(&self.slice(slice, part), |source, target| {
                if u64::from(target) == number {
                    sources.push(u64::from(source));
                }
            })?;
        }
        sources.sort_unstable();
        Ok(Some(sources))
    }

    fn slice(&self, slice: u32, part: SlicePart) -> PathBuf {
        self.directory.join(part.file_name("slice", slice))
    }

    /// Returns where the frame is that has a key, if any has.
    fn frame_of(&self, surt: &str) -> Result<Option<u64>, LinksError> {
        let path = self.directory.join(LINKS_INDEX);
        let failed = |error| LinksError::io("read", &path)(error);
        let file = File::open(&path).map_err(failed)?;
        let mut found = None;
        for (number, line) in (1..).zip(BufReader::new(file).lines()) {
            let line = line.map_err(failed)?;
            let entry = line.split_once('\t');
            let entry = entry.and_then(|(key, offset)| Some((key, offset.parse().ok()?)));
            let (key, offset) = entry
                .ok_or(BadLinkLine("no key and offset"))
                .map_err(LinksError::damaged(&path, number))?;
            if key > surt {
                break;
            }
            found = Some(offset);
        }
        Ok(found)
    }
}
