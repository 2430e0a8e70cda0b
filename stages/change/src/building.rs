//! Building one generation: the last one, and what became of the pages that were captured.
//!
//! First pass: the pages that came in are followed; versions and patterns are written among those of the last generation, pages into
//! a draft. Then the signals, sorted, are merged with the last ones; sites are summed up; and pages are written with what signals
//! and sites tell of them. Each is one pass over sorted files, whatever their size.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek};
use std::path::Path;

use ecluse_cdx::{Duplicates, LookupError, MergeError, SortOptions, Sorter};
use ecluse_changes::{
    Announcement, ChangeRecord, ChangesError, PageChanges, PagePattern, PatternOf, PatternSums,
    RecordReader, RecordWriter, SitePattern, VersionChange, site_of,
};
use ecluse_generation::{IndexFile, entry_of};

use crate::captures::CaptureJoin;
use crate::documents::is_plain;
use crate::following::{ChangeCounts, Following};

/// Why a generation could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file of changes.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// The index.
    #[error(transparent)]
    Index(#[from] LookupError),
    /// Sorting.
    #[error(transparent)]
    Sort(#[from] MergeError),
    /// The directory of the generations.
    #[error(transparent)]
    Generation(#[from] ecluse_generation::IndexError),
    /// The disk.
    #[error("cannot {step}: {source}")]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The one who asked for it no longer wants it.
    #[error("asked to stop")]
    Stopped,
}

fn io(step: &'static str) -> impl FnOnce(std::io::Error) -> BuildError {
    move |source| BuildError::Io { step, source }
}

/// Where a generation is built, and of what.
pub(crate) struct Building<'a> {
    /// The directory of the last generation.
    pub(crate) last: Option<&'a Path>,
    /// The directory it is built in.
    pub(crate) directory: &'a Path,
    /// Where temporary files may be made.
    pub(crate) temporary: &'a Path,
    pub(crate) sort_bytes: usize,
    pub(crate) periods: usize,
    /// Says that work goes forward.
    pub(crate) tick: &'a dyn Fn(),
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

/// What was built.
pub(crate) struct BuiltChanges {
    pub(crate) files: Vec<IndexFile>,
    pub(crate) pages: u64,
    pub(crate) counts: ChangeCounts,
}

/// The lines of the last generation that were not taken yet.
struct LastLines<Record> {
    reader: Option<RecordReader<Record>>,
}

impl<Record: ChangeRecord> LastLines<Record> {
    fn open(last: Option<&Path>) -> Result<Self, ChangesError> {
        Ok(Self {
            reader: last.map(RecordReader::open).transpose()?,
        })
    }

    /// Copies every line below a key, all without one.
    fn copy_below(
        &mut self,
        key: Option<&str>,
        out: &mut RecordWriter<Record>,
        pass: &dyn Fn() -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        loop {
            match reader.peek_key()? {
                None => return Ok(()),
                Some(next) if key.is_some_and(|key| next >= key) => return Ok(()),
                Some(_) => {}
            }
            pass()?;
            if let Some((key, line)) = reader.next_line()? {
                out.write_line(key, line)?;
            }
        }
    }

    /// Takes the records of a key, which is the next.
    fn take(&mut self, key: &str) -> Result<Vec<Record>, ChangesError> {
        let mut records = Vec::new();
        if let Some(reader) = &mut self.reader {
            while reader.peek_key()? == Some(key) {
                records.extend(reader.next_record()?);
            }
        }
        Ok(records)
    }
}

impl Building<'_> {
    fn pass(&self) -> Result<(), BuildError> {
        (self.tick)();
        match (self.is_stopped)() {
            true => Err(BuildError::Stopped),
            false => Ok(()),
        }
    }

    /// Writes and syncs every file of the generation but `generation.json`.
    pub(crate) fn build(
        &self,
        mut join: CaptureJoin<'_>,
        mut following: Following<'_>,
    ) -> Result<BuiltChanges, BuildError> {
        let draft = tempfile::tempdir_in(self.temporary).map_err(io("make a draft"))?;
        let sorted = self.follow(&mut join, &mut following, draft.path())?;
        self.write_signals(sorted)?;
        self.write_sites(draft.path())?;
        let pages = self.write_pages(draft.path())?;
        let mut files = Vec::new();
        for name in [
            PageChanges::FILE,
            VersionChange::FILE,
            PagePattern::FILE,
            SitePattern::FILE,
            Announcement::FILE,
        ] {
            self.pass()?;
            let entry = entry_of(&self.directory.join(name), name);
            files.push(entry.map_err(io("read what was written"))?);
        }
        // Pages are never fewer; the others follow from the settings too.
        files[0].lines = Some(pages);
        Ok(BuiltChanges {
            files,
            pages,
            counts: following.counts,
        })
    }

    /// Follows every page that came in; returns what was announced, sorted.
    fn follow(
        &self,
        join: &mut CaptureJoin<'_>,
        following: &mut Following<'_>,
        draft: &Path,
    ) -> Result<File, BuildError> {
        let mut announced = Sorter::new(SortOptions {
            duplicates: Duplicates::Remove,
            memory_bytes: self.sort_bytes,
            temporary: self.temporary.to_owned(),
        });
        let mut old_pages = LastLines::<PageChanges>::open(self.last)?;
        let mut old_versions = LastLines::<VersionChange>::open(self.last)?;
        let mut old_patterns = LastLines::<PagePattern>::open(self.last)?;
        let mut pages = RecordWriter::<PageChanges>::create(draft)?;
        let mut versions = RecordWriter::<VersionChange>::create(self.directory)?;
        let mut patterns = RecordWriter::<PagePattern>::create(self.directory)?;
        let pass = || self.pass();
        let mut line = String::new();
        while let Some(key) = join.next_key()? {
            self.pass()?;
            following.counts.keys += 1;
            let Some(key) = String::from_utf8(key).ok().filter(|key| is_plain(key)) else {
                *following
                    .counts
                    .passed_over
                    .entry("a key that is no text")
                    .or_default() += 1;
                continue;
            };
            old_versions.copy_below(Some(&key), &mut versions, &pass)?;
            let known = old_versions.take(&key)?;
            let mut sort_error = None;
            let mut tell = |told: &Announcement| {
                line.clear();
                told.write(&mut line);
                if let Err(error) = announced.push(line.as_bytes()) {
                    sort_error.get_or_insert(error);
                }
                Ok(())
            };
            let followed = following.follow(&key, join, known, &mut tell, self.tick)?;
            if let Some(error) = sort_error {
                return Err(error.into());
            }
            let Some(followed) = followed else {
                continue;
            };
            following.counts.pages += 1;
            for version in &followed.versions {
                versions.write(version)?;
            }
            old_pages.copy_below(Some(&key), &mut pages, &pass)?;
            old_pages.take(&key)?;
            pages.write(&followed.page)?;
            old_patterns.copy_below(Some(&key), &mut patterns, &pass)?;
            old_patterns.take(&key)?;
            if let Some(pattern) = &followed.pattern {
                patterns.write(pattern)?;
            }
        }
        old_pages.copy_below(None, &mut pages, &pass)?;
        old_versions.copy_below(None, &mut versions, &pass)?;
        old_patterns.copy_below(None, &mut patterns, &pass)?;
        pages.finish()?;
        versions.finish()?;
        patterns.finish()?;
        let file = tempfile::tempfile_in(self.temporary).map_err(io("make a temporary file"))?;
        let mut out = BufWriter::new(file);
        announced.finish(&mut out)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let mut file = file.map_err(io("write what was announced"))?;
        file.rewind().map_err(io("read what was announced"))?;
        Ok(file)
    }

    /// Merges what was announced with what was known; of each URL the latest stays.
    fn write_signals(&self, sorted: File) -> Result<(), BuildError> {
        let mut old = LastLines::<Announcement>::open(self.last)?;
        let mut out = RecordWriter::<Announcement>::create(self.directory)?;
        let pass = || self.pass();
        let mut lines = BufReader::new(sorted).lines();
        let mut next = || -> Result<Option<Announcement>, BuildError> {
            let Some(line) = lines.next() else {
                return Ok(None);
            };
            let line = line.map_err(io("read what was announced"))?;
            let told = Announcement::parse(&line).map_err(|fault| BuildError::Io {
                step: "read what was announced",
                source: std::io::Error::other(fault),
            })?;
            Ok(Some(told))
        };
        let mut told = next()?;
        while let Some(mut latest) = told {
            loop {
                told = next()?;
                match told.take_if(|told| told.surt == latest.surt) {
                    Some(other) => latest.merge(other),
                    None => break,
                }
            }
            old.copy_below(Some(&latest.surt), &mut out, &pass)?;
            for known in old.take(&latest.surt)? {
                latest.merge(known);
            }
            out.write(&latest)?;
        }
        old.copy_below(None, &mut out, &pass)?;
        out.finish()?;
        Ok(())
    }

    /// Sums up the pages of each site.
    fn write_sites(&self, draft: &Path) -> Result<(), BuildError> {
        let mut pages = RecordReader::<PageChanges>::open(draft)?;
        let mut patterns = RecordReader::<PagePattern>::open(self.directory)?;
        let mut out = RecordWriter::<SitePattern>::create(self.directory)?;
        let mut site: Option<SitePattern> = None;
        while let Some(page) = pages.next_record()? {
            self.pass()?;
            let name = site_of(&page.surt);
            if let Some(done) = site.take_if(|site| site.site != name) {
                out.write(&with_mean_rate(done))?;
            }
            let site = site.get_or_insert_with(|| SitePattern {
                site: name.to_owned(),
                pages: 0,
                changes: 0,
                rate: 0.0,
                sums: PatternSums::new(self.periods),
            });
            site.pages += 1;
            site.changes += page.changes;
            site.rate += page.rate;
            patterns.skip_below(&page.surt)?;
            if patterns.peek_key()? == Some(page.surt.as_str())
                && let Some(pattern) = patterns.next_record()?
            {
                site.sums.add(&pattern.sums);
            }
        }
        if let Some(done) = site {
            out.write(&with_mean_rate(done))?;
        }
        out.finish()?;
        Ok(())
    }

    /// Writes the pages, with what signals and sites tell of them.
    fn write_pages(&self, draft: &Path) -> Result<u64, BuildError> {
        let mut pages = RecordReader::<PageChanges>::open(draft)?;
        let mut signals = RecordReader::<Announcement>::open(self.directory)?;
        let mut sites = RecordReader::<SitePattern>::open(self.directory)?;
        let mut site: Option<SitePattern> = None;
        let mut out = RecordWriter::<PageChanges>::create(self.directory)?;
        while let Some(mut page) = pages.next_record()? {
            self.pass()?;
            signals.skip_below(&page.surt)?;
            page.signal = match signals.peek_key()? == Some(page.surt.as_str()) {
                true => signals.next_record()?.map(|told| (told.kind, told.time)),
                false => None,
            };
            let name = site_of(&page.surt);
            while site.as_ref().is_none_or(|site| site.site.as_str() < name) {
                match sites.next_record()? {
                    Some(next) => site = Some(next),
                    None => break,
                }
            }
            if page.pattern != Some(PatternOf::Page) {
                let of_site = site.as_ref().filter(|site| site.site == name);
                let has_pattern = of_site.is_some_and(|site| !site.sums.is_empty());
                page.pattern = has_pattern.then_some(PatternOf::Site);
            }
            out.write(&page)?;
        }
        Ok(out.finish()?)
    }
}

fn with_mean_rate(mut site: SitePattern) -> SitePattern {
    site.rate /= site.pages.max(1) as f64;
    site
}
