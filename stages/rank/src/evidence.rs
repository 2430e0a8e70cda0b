//! What others know of pages and sites: change how much of a page is text and words of the language, the register where a site stands and in which
//! language it is written. Both are read along in the order of keys; where they are not there, nothing is known.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ecluse_changes::{PageChanges, RecordReader, WordMeasures};
use ecluse_generation::IndexDirectory;
use ecluse_register::{Countries, Register, RegisterReader, RegisterRecord};

use crate::error::RankError;
use crate::settings::RelevanceSettings;

/// Where what librarians and others know lies; what is not there says nothing.
#[derive(Debug, Clone, Default)]
pub struct RankSources {
    /// Domains and URLs that librarians chose.
    pub seeds: Option<PathBuf>,
    /// The directory of changes.
    pub changes: Option<PathBuf>,
    /// The directory of the register.
    pub register: Option<PathBuf>,
    /// A file that knows in which country an address is.
    pub countries: Option<PathBuf>,
}

impl RankSources {
    /// Returns where they lie in an archive: its root, the directory of changes and that of the register.
    pub fn of(settings: &RelevanceSettings, root: &Path, changes: &Path, register: &Path) -> Self {
        let named = |path: &Path| (!path.as_os_str().is_empty()).then(|| root.join(path));
        Self {
            seeds: named(&settings.seeds),
            changes: Some(root.join(changes)),
            register: Some(root.join(register)),
            countries: named(&settings.country_file),
        }
    }
}

/// What is known of the text of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PageText {
    pub(crate) weight: Option<f64>,
    pub(crate) words: Option<WordMeasures>,
}

/// Reads what change knows of pages.
pub(crate) struct PageTexts {
    pages: Option<RecordReader<PageChanges>>,
}

impl PageTexts {
    pub(crate) fn open(changes: Option<&Path>) -> Result<Self, RankError> {
        let mut pages = None;
        if let Some(changes) = changes {
            let directory = IndexDirectory::of(changes, None)?;
            if let Some(number) = directory.current_number()? {
                pages = Some(RecordReader::open(&directory.generation(number))?);
            }
        }
        Ok(Self { pages })
    }

    /// Tells whether there is anything to be known.
    pub(crate) fn are_known(&self) -> bool {
        self.pages.is_some()
    }

    /// Returns what is known of a page whose key is above all asked for before.
    pub(crate) fn of(&mut self, surt: &str) -> Result<PageText, RankError> {
        let Some(pages) = &mut self.pages else {
            return Ok(PageText::default());
        };
        pages.skip_below(surt)?;
        if pages.peek_key()? != Some(surt) {
            return Ok(PageText::default());
        }
        let page = pages.next_record()?;
        Ok(page.map_or(PageText::default(), |page| PageText {
            weight: page.text_weight,
            words: page.words,
        }))
    }
}

/// Reads what the register knows of sites.
pub(crate) struct SiteEvidence<'a> {
    settings: &'a RelevanceSettings,
    register: Option<Register>,
    reader: Option<RegisterReader>,
    countries: Option<Countries>,
    /// The site that was asked for last, and what was found.
    site: (String, SiteCriteria),
    /// The record that the reader is at.
    at: Option<(String, SiteCriteria)>,
}

/// Which criteria a site meets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SiteCriteria {
    pub(crate) is_in_language: bool,
    pub(crate) is_in_country: bool,
}

impl<'a> SiteEvidence<'a> {
    pub(crate) fn open(
        sources: &RankSources,
        settings: &'a RelevanceSettings,
    ) -> Result<Self, RankError> {
        let is_asked = settings.asks_sites();
        let mut evidence = Self {
            settings,
            register: None,
            reader: None,
            countries: None,
            site: (String::new(), SiteCriteria::default()),
            at: None,
        };
        let Some(path) = sources
            .register
            .as_deref()
            .filter(|path| is_asked && path.is_dir())
        else {
            return Ok(evidence);
        };
        let register = Register::at(path)?;
        if let Some(number) = register.current()? {
            evidence.reader = Some(register.read(number)?);
        }
        evidence.register = Some(register);
        if settings.address != 0.0
            && let Some(path) = &sources.countries
        {
            evidence.countries = Some(Countries::open(path).map_err(RankError::Countries)?);
        }
        evidence.advance()?;
        Ok(evidence)
    }

    /// Returns which criteria a site meets, by its key.
    pub(crate) fn of(&mut self, site: &str) -> Result<SiteCriteria, RankError> {
        if self.site.0 == site || self.register.is_none() {
            return Ok(self.site.1);
        }
        let is_behind = site < self.site.0.as_str();
        let found = match is_behind {
            // Pages on other ports come after those of later sites.
            true => self.look_up(site)?,
            false => {
                while self.at.as_ref().is_some_and(|(key, _)| key.as_str() < site) {
                    self.advance()?;
                }
                let at = self.at.as_ref().filter(|(key, _)| key == site);
                at.map_or(SiteCriteria::default(), |(_, found)| *found)
            }
        };
        if is_behind {
            return Ok(found);
        }
        self.site = (site.to_owned(), found);
        Ok(found)
    }

    fn look_up(&self, site: &str) -> Result<SiteCriteria, RankError> {
        let mut domain = Vec::new();
        ecluse_names::name_of(site.as_bytes(), &mut domain);
        let domain = String::from_utf8_lossy(&domain);
        let register = self.register.as_ref();
        let record = register.map(|register| register.lookup(&domain));
        let record = record.transpose()?.flatten();
        Ok(record.map_or(SiteCriteria::default(), |record| self.met_by(&record)))
    }

    fn advance(&mut self) -> Result<(), RankError> {
        self.at = None;
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let Some(line) = reader.next_line()? else {
            return Ok(());
        };
        let key = line.key.to_owned();
        // What cannot be read is told by plan, whose it is.
        let record = line.record().ok();
        let found = record.map_or(SiteCriteria::default(), |record| self.met_by(&record));
        self.at = Some((key, found));
        Ok(())
    }

    fn met_by(&self, record: &RegisterRecord) -> SiteCriteria {
        let language = record.more.get("evidence").and_then(|found| {
            let language = found.get("language")?.get("value")?;
            language.as_str()
        });
        let addresses = record
            .more
            .get("addresses")
            .and_then(|list| list.as_array());
        let mut addresses = addresses.into_iter().flatten().filter_map(|address| {
            let address: IpAddr = address.as_str()?.parse().ok()?;
            self.countries.as_ref()?.of(address)
        });
        let RelevanceSettings {
            languages,
            countries,
            ..
        } = self.settings;
        SiteCriteria {
            is_in_language: language.is_some_and(|code| languages.iter().any(|l| l == code)),
            is_in_country: addresses.any(|country| countries.contains(&country)),
        }
    }
}
