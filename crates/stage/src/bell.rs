//! The doorbell: `notify` rings, the scan decides.
//!
//! Events may be lost, doubled or never come (network file systems, a full queue, no inotify at
//! all): a bell that does not ring costs delay, never a parcel.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ecluse_spool::StageDir;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{Config, Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::control::Bell;
use crate::inbox::News;

/// Keeps the bell wired; dropping it unwires it.
pub(crate) struct Wire {
    _watcher: RecommendedWatcher,
}

/// Wires the bell of a stage to its directories. `None`: this machine has no bell to give.
pub(crate) fn wire(dir: Option<&StageDir>, outside: &[PathBuf], bell: &Arc<Bell>) -> Option<Wire> {
    let ringer = Ringer {
        outside: outside.to_vec(),
        bell: Arc::clone(bell),
        inside: dir.map(|dir| Inside {
            root: dir.root().to_owned(),
            drop: dir.drop(),
            ready: dir.ready(),
        }),
    };
    let watcher = RecommendedWatcher::new(
        move |event: notify::Result<Event>| ringer.hear(event),
        Config::default(),
    );
    let mut watcher = match watcher {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(%error, "no bell on this machine: scanning more often instead");
            return None;
        }
    };
    let paths = dir.map(|dir| [dir.ready(), dir.drop(), dir.root().to_owned()]);
    let inside = paths
        .iter()
        .flatten()
        .map(|path| (path.as_path(), RecursiveMode::NonRecursive));
    let missing: Vec<&PathBuf> = outside.iter().filter(|path| !path.is_dir()).collect();
    for (path, mode) in inside.chain(outside.iter().map(|path| nearest(path))) {
        if let Err(error) = watcher.watch(path, mode) {
            tracing::warn!(%error, path = %path.display(), "no bell on this directory: scanning more often instead");
            return None;
        }
    }
    // One that came between the look and the watch rang nothing.
    if missing.iter().any(|path| path.is_dir()) {
        bell.wires_changed();
    }
    Some(Wire { _watcher: watcher })
}

/// Returns what is watched for a directory outside: all below it, or the nearest one above that is there, until it comes.
fn nearest(path: &Path) -> (&Path, RecursiveMode) {
    if path.is_dir() {
        return (path, RecursiveMode::Recursive);
    }
    let above = path.ancestors().skip(1).find(|above| above.is_dir());
    (above.unwrap_or(Path::new("/")), RecursiveMode::NonRecursive)
}

struct Ringer {
    bell: Arc<Bell>,
    outside: Vec<PathBuf>,
    /// The work directory, where there is one.
    inside: Option<Inside>,
}

struct Inside {
    root: PathBuf,
    drop: PathBuf,
    ready: PathBuf,
}

impl Ringer {
    fn hear(&self, event: notify::Result<Event>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, "the bell is out of order");
                return self.bell.ring();
            }
        };
        if event.need_rescan() {
            return self.bell.ring();
        }
        // A watched directory was made or taken away: the wires no longer fit.
        if self.wires_changed(&event) {
            self.bell.wires_changed();
        }
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => self.came(&event.paths),
            EventKind::Create(_) => self.begun(&event.paths),
            _ => {}
        }
    }

    fn came(&self, paths: &[PathBuf]) {
        let is_drop = |path: &Path| self.inside.as_ref().is_some_and(|dir| dir.drop == path);
        let is_inside = |path: &Path| {
            let inside = self.inside.as_ref();
            inside.is_some_and(|dir| path.starts_with(&dir.root))
        };
        for path in paths {
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) if is_drop(parent) => {
                    self.bell.ring_closed(name.to_owned());
                }
                _ if self.is_outside(path) => self.bell.ring_outside(News {
                    path: path.clone(),
                    whole: true,
                }),
                _ if is_inside(path) => self.bell.ring(),
                // Something else, beside a directory that is waited for.
                _ => {}
            }
        }
    }

    fn wires_changed(&self, event: &Event) -> bool {
        let is_watched = |path: &PathBuf| {
            let leads_outside = |dir: &PathBuf| dir.starts_with(path);
            let inside = self.inside.as_ref();
            let is_inside = inside.is_some_and(|dir| *path == dir.ready || *path == dir.drop);
            is_inside || self.outside.iter().any(leads_outside)
        };
        match event.kind {
            EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_)) => event.paths.iter().any(is_watched),
            _ => false,
        }
    }

    /// A parcel, or something outside: a hard link is a whole file, and only created.
    fn begun(&self, paths: &[PathBuf]) {
        for path in paths {
            let inside = self.inside.as_ref();
            if inside.is_some_and(|dir| path.starts_with(&dir.ready)) {
                self.bell.ring();
            } else if self.is_outside(path) {
                self.bell.ring_outside(News {
                    path: path.clone(),
                    whole: false,
                });
            }
        }
    }

    fn is_outside(&self, path: &Path) -> bool {
        self.outside.iter().any(|dir| path.starts_with(dir))
    }
}
