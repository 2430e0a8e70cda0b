//! What change knew of the text of each URL when URLs were numbered, kept beside their other numbers: a run that goes on after a kill takes the same.

use ecluse_changes::WordMeasures;

use crate::error::RankError;
use crate::evidence::{PageText, PageTexts, RankSources};
use crate::vector::{NumberReader, NumberWriter};
use crate::workspace::Workspace;

/// Text weights, infrequencies of words, shares of words.
const FILES: [&str; 3] = ["text.f32", "infrequency.f32", "word-share.f32"];

/// Writes what is known of the text of URLs, in their order.
pub(crate) struct MeasuredTexts {
    pages: PageTexts,
    out: Option<[NumberWriter; 3]>,
}

impl MeasuredTexts {
    pub(crate) fn open(sources: &RankSources, workspace: &Workspace) -> Result<Self, RankError> {
        let pages = PageTexts::open(sources.changes.as_deref())?;
        let mut out = None;
        if pages.are_known() {
            let [text, infrequency, share] =
                FILES.map(|name| NumberWriter::create(&workspace.file(name)));
            out = Some([text?, infrequency?, share?]);
        }
        Ok(Self { pages, out })
    }

    /// Writes and returns what is known of the next URL.
    pub(crate) fn take(&mut self, surt: &str) -> Result<PageText, RankError> {
        let text = self.pages.of(surt)?;
        if let Some([weight, infrequency, share]) = &mut self.out {
            let words = text.words;
            weight.float(number(text.weight))?;
            infrequency.float(number(words.map(|words| words.infrequency)))?;
            share.float(number(words.map(|words| words.share)))?;
        }
        Ok(text)
    }

    pub(crate) fn finish(self) -> Result<(), RankError> {
        let mut files = self.out.into_iter().flatten();
        files.try_for_each(NumberWriter::finish)
    }
}

/// What is not known is no number.
fn number(known: Option<f64>) -> f32 {
    known.map_or(f32::NAN, |known| known as f32)
}

/// Reads what was written.
pub(crate) struct TextReader {
    numbers: Option<[NumberReader; 3]>,
}

impl TextReader {
    pub(crate) fn open(workspace: &Workspace) -> Result<Self, RankError> {
        let mut numbers = None;
        if FILES.iter().all(|name| workspace.file(name).exists()) {
            let [text, infrequency, share] =
                FILES.map(|name| NumberReader::open(&workspace.file(name)));
            numbers = Some([text?, infrequency?, share?]);
        }
        Ok(Self { numbers })
    }

    pub(crate) fn next(&mut self) -> Result<PageText, RankError> {
        let Some([weight, infrequency, share]) = &mut self.numbers else {
            return Ok(PageText::default());
        };
        let known = |reader: &mut NumberReader| {
            let number = f64::from(reader.float()?);
            Ok::<_, RankError>((!number.is_nan()).then_some(number))
        };
        let weight = known(weight)?;
        let words = known(infrequency)?.zip(known(share)?);
        let words = words.map(|(infrequency, share)| WordMeasures { infrequency, share });
        Ok(PageText { weight, words })
    }
}
