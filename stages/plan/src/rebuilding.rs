//! The register made again, from everything that ever came into it.

use std::path::Path;

use ecluse_names::ForcedRules;
use ecluse_register::{Register, RegisterDay, RegisterUpdate};
use ecluse_stage::Failure;

use crate::changes::ChangeGatherer;
use crate::news_log::{NewsLog, each_line};
use crate::{Settings, blame};

/// What a register was made again from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuiltRegister {
    /// The new generation; none where it was only tried.
    pub update: Option<RegisterUpdate>,
    /// Files of news.
    pub files: usize,
    /// Lines in them.
    pub lines: u64,
}

/// Makes the register again from the news and the librarians' rules; what was there before is put aside. With no name for that, the news are only read.
///
/// # Errors
/// When news are missing or not as they were written, or another is at work on the register. Nothing is put aside before all news were read.
pub fn rebuild_register(
    root: &Path,
    settings: &Settings,
    register: &Register,
    temporary: &Path,
    aside: Option<&str>,
) -> Result<RebuiltRegister, Failure> {
    let rules = ForcedRules::read(&root.join(&settings.forced)).map_err(Failure::config)?;
    let memory = usize::try_from(settings.memory.get()).unwrap_or(usize::MAX);
    // Every line says when: this day stands nowhere.
    let today = RegisterDay::parse("19700101").ok_or_else(|| Failure::halt("no day"))?;
    let mut gatherer = ChangeGatherer::new(memory, temporary, today);
    let files = NewsLog::at(root.join(&settings.news)).files()?;
    for path in &files {
        each_line(path, &mut |line| gatherer.take_kept(line))?;
    }
    let lines = gatherer.lines;
    if lines == 0 {
        return Err(Failure::hold(format!(
            "nothing ever came into the register: {} has no news",
            root.join(&settings.news).display()
        )));
    }
    let mut rebuilt = RebuiltRegister {
        update: None,
        files: files.len(),
        lines,
    };
    if let Some(aside) = aside {
        let changes = gatherer.finish(&rules, settings.history.get(), &mut |_| Ok(()))?;
        rebuilt.update = Some(register.make_anew(changes, aside).map_err(blame)?);
    }
    Ok(rebuilt)
}
