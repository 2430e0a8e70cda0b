//! What the archive's files are like, as the manifest knows it: what `status` and `check` tell of them.

use ecluse_generation::IndexDirectory;
use ecluse_index::Index;
use ecluse_manifest::{
    ArchiveHealth, AwaitedReceipts, CopyKind, CopyRow, Finding, HarvestedFile, Manifest,
    ManifestError,
};
use ecluse_stage::Stage;
use serde::Serialize;

use crate::context::DriverContext;
use crate::needs::Need;
use crate::packages::BadPackage;

/// The archive's files at one moment.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Holdings {
    /// What the manifest counts.
    #[serde(flatten)]
    pub(crate) health: ArchiveHealth,
    /// Files that are not in the index yet and on no stage.
    pub(crate) on_no_stage: usize,
    /// Files in the harvested directories that no row of the manifest accounts for, when clean last looked.
    pub(crate) unaccounted: u64,
    /// The first of them.
    #[serde(skip)]
    first_unaccounted: Option<HarvestedFile>,
    /// What is lost of the archive's own lists: its manifest, an index.
    pub(crate) lost: Vec<String>,
    /// A place of before the archive was moved or copied, which a list still names.
    pub(crate) moved: Option<String>,
    /// What was sent to the preservation repository and has no receipt.
    pub(crate) awaited: AwaitedReceipts,
    /// Packages that are lost, or were not good when they were last read.
    pub(crate) packages: Vec<BadPackage>,
    /// The first copies that were not found good.
    #[serde(skip)]
    failing: Vec<CopyRow>,
}

/// So many failing copies are looked at for one that is told.
const LOOKED_AT: usize = 1000;

impl DriverContext {
    /// Asks the manifest. One that cannot be read shows elsewhere: its stages are halted.
    pub(crate) fn holdings(&self) -> Holdings {
        let path = crate::verify::manifest_path(self);
        let mut lost: Vec<String> = Manifest::lost(&path)
            .map(|lost| lost.to_string())
            .into_iter()
            .collect();
        lost.extend(self.lost_index(None));
        if !path.exists() {
            return Holdings {
                lost,
                ..Holdings::default()
            };
        }
        let ask = || -> Result<Holdings, ManifestError> {
            let manifest = Manifest::open_to_read(&path, &self.root)?;
            let failing = manifest.failing(LOOKED_AT)?;
            // What these two cannot see, because of a setting or a directory, must not hide a bad copy.
            Ok(Holdings {
                lost: lost.clone(),
                moved: self.moved_copy(&manifest, &failing).unwrap_or_default(),
                health: manifest.health()?,
                unaccounted: manifest.harvested_count(Finding::Unaccounted)?.files,
                first_unaccounted: manifest.first_harvested(Finding::Unaccounted)?,
                packages: self.bad_packages(&manifest),
                // A manifest that no stage of this version has opened has no such table.
                awaited: manifest.awaited_receipts().unwrap_or_default(),
                on_no_stage: self.stray_files(&manifest).unwrap_or_default().len(),
                failing,
            })
        };
        ask().unwrap_or_default()
    }

    /// Says what to do when the `manifest` or an `index` is lost.
    pub(crate) fn help_for_lost(&self, what: &str) -> String {
        let rebuild = self.command(&format!("rebuild {what}"));
        format!("stop the stages and put it back, or make it anew:   {rebuild}")
    }

    /// Says what is wrong with the current generation of an index, by a look at its files.
    pub(crate) fn lost_index(&self, collection: Option<&str>) -> Option<String> {
        let index = self.root.join(&self.pipeline.archive.index);
        let look = || {
            let directory = IndexDirectory::of(&index, collection)?;
            let Some(number) = directory.current_number()? else {
                return Ok(Some(directory));
            };
            directory.whole(number).map(|_| None)
        };
        let none = match look() {
            Ok(none) => none?,
            Err(error) => return Some(error.to_string()),
        };
        let manifest =
            Manifest::open_to_read(&crate::verify::manifest_path(self), &self.root).ok()?;
        let had_files = manifest.has_published(collection).unwrap_or_default();
        had_files.then(|| {
            let root = none.root().display();
            format!("there is no index in {root}, and the manifest has files that are in it")
        })
    }
}

impl Holdings {
    /// Returns what a person has to look at.
    pub(crate) fn needs(&self, context: &DriverContext) -> Vec<Need> {
        let mut needs = Vec::new();
        for lost in &self.lost {
            let what = match lost.starts_with("the manifest ") {
                true => "manifest",
                false => "index",
            };
            let help = context.help_for_lost(what);
            needs.push(Need::of_stage("bigmerge", lost.clone(), help));
        }
        if let Some(frozen) = &self.health.frozen {
            needs.push(Need::of_stage(
                "delete",
                format!("nothing is removed since {}: {}", frozen.since, frozen.why),
                match self.health.bad + self.health.bad_packages {
                    0 => context.command("verify --release --why \"…\""),
                    _ => "it is lifted when every bad copy and package is mended".into(),
                },
            ));
        }
        needs.extend(self.need(context, self.health.bad, "bad", CopyRow::is_bad));
        needs.extend(self.need_of_packages(context));
        if let Some(place) = &self.moved {
            needs.push(Need::of_stage(
                "transfer",
                format!("the archive was moved or copied, and its lists still name {place}"),
                format!("stop the stages, then {}", context.command("rebuild path")),
            ));
        }
        needs.extend(self.need_of_stray(context));
        needs.extend(self.need_of_unaccounted());
        let unread = |copy: &CopyRow| !copy.is_bad();
        needs.extend(self.need(context, self.health.unread, "missing or unreadable", unread));
        needs
    }

    fn need_of_packages(&self, context: &DriverContext) -> Option<Need> {
        let BadPackage { package, what } = self.packages.first()?;
        let (told, word) = match self.packages.len() {
            1 => (String::new(), crate::show::word(package)),
            count => (
                format!("{count} packages are bad or lost, such as "),
                "--all".to_owned(),
            ),
        };
        let told = format!("{told}package {package}: {what}");
        let command = context.command(&format!("repair {word}"));
        Some(Need::of_stage("package", told, command))
    }

    fn need_of_stray(&self, context: &DriverContext) -> Option<Need> {
        let files = match self.on_no_stage {
            0 => return None,
            1 => "1 file is on no stage and not in the index".to_owned(),
            files => format!("{files} files are on no stage and not in the index"),
        };
        let stages = context.pipeline.stage_names();
        let is_index = |stage: &&&str| ecluse_config::base_of(stage) == Index::NAME;
        let stage = stages.iter().find(is_index)?;
        let command = context.command(&format!("give {stage} --lost"));
        Some(Need::of_stage(stage, files, command))
    }

    fn need_of_unaccounted(&self) -> Option<Need> {
        let HarvestedFile { path, why, .. } = self.first_unaccounted.as_ref()?;
        let what = match self.unaccounted {
            1 => format!("nothing accounts for {path}: {why}"),
            files => format!("nothing accounts for {files} harvested files, such as {path}: {why}"),
        };
        let advice = "see that ingest runs; rename what is to be kept beside the file of its name, move away what does not belong there";
        Some(Need::of_stage("clean", what, advice.to_owned()))
    }

    /// Returns one entry for all copies of a kind, with the first of them.
    fn need(
        &self,
        context: &DriverContext,
        count: u64,
        word: &str,
        is_meant: impl Fn(&CopyRow) -> bool,
    ) -> Option<Need> {
        let first = self.failing.iter().find(|copy| is_meant(copy));
        let (stage, told, file) = match first {
            Some(copy) => (
                match copy.kind {
                    CopyKind::Stored => "transfer",
                    CopyKind::Backup => "backup",
                },
                format!("{}: {}", copy.place, copy.found.as_deref().unwrap_or("")),
                copy.file.as_str(),
            ),
            None => ("transfer", String::new(), "--all"),
        };
        let (what, command) = match count {
            0 => return None,
            1 => (
                format!("a copy is {word}: {told}"),
                format!("repair {}", crate::show::word(file)),
            ),
            _ => (
                format!("{count} copies are {word}, such as {told}"),
                "repair --all".to_owned(),
            ),
        };
        let command = match word {
            "bad" => context.command(&command),
            _ => format!("mount its disk, or {}", context.command(&command)),
        };
        Some(Need::of_stage(stage, what, command))
    }

    /// Returns the line of `status` that tells what waits for a receipt; nothing where nothing does.
    pub(crate) fn awaited_line(&self) -> String {
        match &self.awaited.since {
            Some(since) => {
                let line = crate::deposits::awaited_line(self.awaited.files, since);
                format!("  {line}: ecluse deposits\n\n")
            }
            None => String::new(),
        }
    }

    /// Returns the line of `status` that tells of damaged files; nothing where there are none.
    pub(crate) fn damage_line(&self, context: &DriverContext) -> String {
        let files = match self.health.damaged {
            0 => return String::new(),
            1 => "1 damaged file".to_owned(),
            files => format!("{files} damaged files"),
        };
        format!(
            "  {files}, kept as they came: {}\n\n",
            context.command("find damaged")
        )
    }
}
