//! What the numbers of NEEDS YOU mean: to one person, at one terminal, as they were last shown there.
//!
//! They lie under the root, where `sudo -u ecluse` finds what was shown to the person before; one who may only look has them
//! in a directory of their own. Nobody's numbers change because somebody else looked.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit;
use crate::context::{DriverContext, Trouble};
use crate::needs::Need;

/// Where they lie, under the root.
const DIR: &str = ".needs-you";

/// What was shown.
#[derive(Debug, Serialize, Deserialize)]
struct Shown {
    /// The session of the terminal, where it is known: another one may get the same terminal later.
    session: Option<i32>,
    needs: Vec<Need>,
}

impl DriverContext {
    /// Keeps what the numbers mean that are being shown, so that `why 1` is about the line that was shown as 1.
    pub(crate) fn remember(&self, needs: &[Need]) {
        let shown = Shown {
            session: session(),
            needs: needs.to_vec(),
        };
        let Ok(text) = serde_json::to_vec(&shown) else {
            return;
        };
        let name = name_of(&audit::who(), &terminal());
        // Best effort: on a full or read-only disk the screen is still right.
        for dir in self.number_dirs() {
            let path = dir.join(&name);
            if std::fs::read(&path).is_ok_and(|old| old == text) || put(&path, &text).is_ok() {
                return;
            }
        }
    }

    /// Returns the line that was last shown under a number to this person at this terminal.
    pub(crate) fn numbered(&self, number: usize) -> Result<Need, Trouble> {
        let name = name_of(&audit::who(), &terminal());
        let shown = self
            .number_dirs()
            .iter()
            .find_map(|dir| std::fs::read(dir.join(&name)).ok());
        let shown: Option<Shown> = shown.and_then(|text| serde_json::from_slice(&text).ok());
        let shown = shown.filter(|shown| match (shown.session, session()) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        });
        let needs = shown.map(|shown| shown.needs).unwrap_or_default();
        let need = number.checked_sub(1).and_then(|at| needs.get(at));
        need.cloned().ok_or_else(|| {
            Trouble::usage(format!(
                "no number {number} was shown to {} at this terminal: `{}` shows the numbers",
                audit::who(),
                self.command("status")
            ))
        })
    }

    /// Returns where numbers may lie, the better place first.
    fn number_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.root.join(DIR)];
        let own = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let own = own.or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".local/state"))
        });
        if let (Some(own), Ok(root)) = (own, self.root.canonicalize()) {
            let root = ecluse_spool::safe_file_name(root.as_os_str());
            dirs.push(own.join("ecluse").join(root));
        }
        dirs
    }
}

fn put(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, text)
}

fn name_of(who: &str, terminal: &str) -> String {
    let name = format!("{who}@{terminal}.json");
    ecluse_spool::safe_file_name(std::ffi::OsStr::new(&name))
}

/// Returns which terminal this is: behind sudo the one that it was called from. Without any, the session.
fn terminal() -> String {
    if let Ok(name) = std::env::var("SUDO_TTY") {
        return name;
    }
    let name = |fd: &dyn AsFd| rustix::termios::ttyname(fd.as_fd(), Vec::new()).ok();
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let fds: [&dyn AsFd; 3] = [&stdin, &stdout, &stderr];
    match fds.into_iter().find_map(name) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("session {}", session().unwrap_or(0)),
    }
}

/// Returns the session; sudo may have begun one of its own.
fn session() -> Option<i32> {
    if std::env::var_os("SUDO_USER").is_some() {
        return None;
    }
    session_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Returns the session that a line of `/proc/PID/stat` names. In a container it may have begun outside: then it is 0,
/// and nothing is known of it.
fn session_in(stat: &str) -> Option<i32> {
    // The second field is a program's name, which may hold spaces and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let session = rest.split_whitespace().nth(3)?.parse().ok()?;
    (session > 0).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_directory() {
        let name = name_of("an/ne", "/dev/pts/3");
        assert!(!name.contains('/') && name.contains("pts"), "{name}");
        assert_ne!(name, name_of("anne", "/dev/pts/4"));
    }
    #[test]
    fn a_session_that_began_outside_this_container_is_not_known() {
        assert_eq!(session_in("7 (a (b) c) R 1 7 5 0 -1"), Some(5));
        assert_eq!(session_in("7 (ecluse) R 1 7 0 0 -1"), None);
        assert_eq!(session_in("7 (ecluse"), None);
    }
}
