//! What two processes must see of each other: one tries, and tells a second what to do and to say what it sees.
//!
//! Orders and answers are lines. Names are those of the trial itself, so they hold no spaces.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::fs::{Fs, RealFs};

/// The first words of each answer: whoever starts the second process may have something to say before it.
const ANSWER: &str = "sees: ";
/// Nothing in the trial is longer.
const SHORT_BYTES: u64 = 100;

const NO_CACHE: &str = "mount it without caches of its own (direct-io-mode=enable)";
const NO_NAMES: &str =
    "mount it without caching names (entry-timeout=0, attribute-timeout=0, lookupcache=none)";
const LOCKS: &str = "over NFS mount it without nolock and local_lock";

/// The second process of a trial.
pub(super) struct SecondProcess {
    child: Option<Child>,
    orders: Option<Box<dyn Write>>,
    answers: Box<dyn BufRead>,
}

impl SecondProcess {
    /// Starts it: a program that calls [`second_process`] with its standard input and output.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self {
            child: Some(child),
            orders: Some(Box::new(orders)),
            answers: Box::new(BufReader::new(answers)),
        })
    }

    fn ask(&mut self, order: &str) -> io::Result<String> {
        let Some(orders) = &mut self.orders else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        orders.write_all(format!("{order}\n").as_bytes())?;
        orders.flush()?;
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return Ok(answer.trim_end().to_owned());
            }
        }
    }

    /// Ends it in the midst of what it does.
    fn end(&mut self) {
        self.orders = None;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // One that is no child has ended when it says no more.
        let _ = io::copy(&mut self.answers, &mut io::sink());
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// The other of two processes that try a file system: does in `dir` what it is told, until there are no more orders.
///
/// # Errors
/// When orders cannot be read or answers not written.
pub fn second_process(dir: &Path, orders: impl BufRead, answers: impl Write) -> io::Result<()> {
    obey(&RealFs, dir, orders, answers)
}

fn obey(fs: &dyn Fs, dir: &Path, orders: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    let mut lock = None;
    for order in orders.lines() {
        let order = order?;
        let words: Vec<&str> = order.split(' ').collect();
        let done = match *words {
            ["read", name] => fs
                .read(&dir.join(name), SHORT_BYTES)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            ["look", name] => look(fs, &dir.join(name)),
            ["list", name] => listed(fs, &dir.join(name)).map(|names| names.join(" ")),
            ["write", name, text] => fs
                .write_new(&dir.join(name), text.as_bytes())
                .map(|()| "yes".to_owned()),
            ["rename", from, to] => fs
                .rename(&dir.join(from), &dir.join(to))
                .map(|()| "yes".to_owned()),
            ["lock", name] => fs.lock(&dir.join(name)).map(|taken| {
                let word = if taken.is_some() { "yes" } else { "no" };
                lock = taken;
                word.to_owned()
            }),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        let answer = done.unwrap_or_else(|error| format!("error: {error}"));
        writeln!(answers, "{ANSWER}{answer}")?;
        answers.flush()?;
    }
    drop(lock);
    Ok(())
}

/// Returns the inode of a file and how many names it has.
fn look(fs: &dyn Fs, path: &Path) -> io::Result<String> {
    match fs.stat(path) {
        Ok(stat) => {
            let count = fs
                .link_count(path)?
                .map_or("?".to_owned(), |n| n.to_string());
            Ok(format!("{} {count}", stat.inode))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("gone".to_owned()),
        Err(error) => Err(error),
    }
}

fn listed(fs: &dyn Fs, dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    fs.visit(dir, &mut |name, _| {
        names.push(name.to_string_lossy().into_owned());
        ControlFlow::Continue(())
    })?;
    names.sort();
    Ok(names)
}

/// Tries, in an empty directory, what two processes must see of each other, and names what does not hold.
pub(super) fn probe(
    fs: &dyn Fs,
    dir: &Path,
    second: &mut SecondProcess,
) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    contents(fs, dir, second, &mut faults)?;
    links(fs, dir, second, &mut faults)?;
    renames(fs, dir, second, &mut faults)?;
    locks(fs, dir, second, &mut faults)?;
    Ok(faults)
}

/// What one wrote, the other reads; also where it has read something else before.
fn contents(
    fs: &dyn Fs,
    dir: &Path,
    second: &mut SecondProcess,
    faults: &mut Vec<String>,
) -> io::Result<()> {
    let (mine, theirs) = (dir.join("mine"), dir.join("theirs"));
    fs.write_new(&mine, b"early")?;
    let early = second.ask("read mine")?;
    fs.write_new(&dir.join("mine-new"), b"late")?;
    fs.rename(&dir.join("mine-new"), &mine)?;
    let late = second.ask("read mine")?;
    if (early.as_str(), late.as_str()) != ("early", "late") {
        faults.push(format!(
            "another process does not read what was just written: {NO_CACHE}"
        ));
    }
    second.ask("write theirs early")?;
    let early = fs.read(&theirs, SHORT_BYTES).unwrap_or_default();
    second.ask("write theirs-new late")?;
    second.ask("rename theirs-new theirs")?;
    let late = fs.read(&theirs, SHORT_BYTES).unwrap_or_default();
    if (early.as_slice(), late.as_slice()) != (b"early", b"late") {
        faults.push(format!(
            "what another process just wrote is not read: {NO_CACHE}"
        ));
    }
    let here = listed(fs, dir)?;
    let there = second.ask("list .")?;
    if here != ["mine", "theirs"] || there != "mine theirs" {
        faults.push("two processes do not list the same directory alike: mount it without caching directories".into());
    }
    Ok(())
}

/// A file has one inode and one count of names, whoever asks.
fn links(
    fs: &dyn Fs,
    dir: &Path,
    second: &mut SecondProcess,
    faults: &mut Vec<String>,
) -> io::Result<()> {
    let file = dir.join("file");
    fs.write_new(&file, b"x")?;
    // It is looked at before it gets its second name.
    second.ask("look file")?;
    fs.link(&file, &dir.join("second"))?;
    let inode = fs.stat(&file)?.inode;
    for name in ["file", "second"] {
        let answer = second.ask(&format!("look {name}"))?;
        let (theirs, count) = answer.split_once(' ').unwrap_or_default();
        if theirs != inode.to_string() {
            faults.push("to another process the two names of one file have different inodes, as over sshfs: use NFSv4 instead".into());
            break;
        }
        if !["2", "?"].contains(&count) {
            faults.push(format!(
                "to another process a file with two names has {count}: {NO_NAMES}"
            ));
            break;
        }
    }
    match second.ask("rename file second")?.as_str() {
        // Two names of one file: a rename from one to the other does nothing.
        "yes" => {}
        answer => faults.push(format!("another process cannot rename a file: {answer}")),
    }
    Ok(())
}

/// What one has renamed is gone for the other, and only one can take it.
fn renames(
    fs: &dyn Fs,
    dir: &Path,
    second: &mut SecondProcess,
    faults: &mut Vec<String>,
) -> io::Result<()> {
    let (parcel, mine, theirs) = (dir.join("parcel"), dir.join("taken"), dir.join("back"));
    fs.mkdir(&parcel)?;
    fs.write_new(&parcel.join("inside"), b"x")?;
    second.ask("look parcel/inside")?;
    fs.rename(&parcel, &mine)?;
    let old = second.ask("look parcel")?;
    let new = second.ask("look taken/inside")?;
    if old != "gone" || new == "gone" {
        faults.push(format!(
            "another process sees a renamed directory under its old name: {NO_NAMES}"
        ));
    }
    if second.ask("rename parcel back")? == "yes" {
        faults.push("two processes can take one directory by renaming it".into());
        return Ok(());
    }
    second.ask("rename taken back")?;
    if fs.stat(&mine).is_ok() || fs.stat(&theirs.join("inside")).is_err() {
        faults.push(format!(
            "what another process has renamed is seen under its old name: {NO_NAMES}"
        ));
    }
    if fs.rename(&mine, &dir.join("twice")).is_ok() {
        faults.push("two processes can take one directory by renaming it".into());
    }
    Ok(())
}

/// Of two processes one gets a lock; it is free when that one lets go, or dies.
fn locks(
    fs: &dyn Fs,
    dir: &Path,
    second: &mut SecondProcess,
    faults: &mut Vec<String>,
) -> io::Result<()> {
    let lease = dir.join("lease");
    fs.write_new(&lease, b"")?;
    let Ok(Some(mine)) = fs.lock(&lease) else {
        faults.push(format!("a file cannot be locked: {LOCKS}"));
        return Ok(());
    };
    if second.ask("lock lease")? != "no" {
        faults.push(format!("two processes can hold one lock: {LOCKS}"));
        return Ok(());
    }
    drop(mine);
    if second.ask("lock lease")? != "yes" {
        faults.push(format!(
            "a lock that one process let go of stays for another: {LOCKS}"
        ));
        return Ok(());
    }
    if !matches!(fs.lock(&lease), Ok(None)) {
        faults.push(format!("two processes can hold one lock: {LOCKS}"));
    }
    second.end();
    if !matches!(fs.lock(&lease), Ok(Some(_))) {
        faults.push(format!("the lock of a process that died stays: {LOCKS}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::tests::{Lie, LyingFs};
    use super::*;

    /// Tries with a thread in the place of the second process: one of the two is lied to.
    fn faults(mine: Lie, theirs: Lie) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        let path = dir.path().to_owned();
        let thread = std::thread::spawn(move || {
            let orders = BufReader::new(there.try_clone().unwrap());
            obey(&LyingFs::new(theirs), &path, orders, &there).unwrap();
        });
        let mut second = SecondProcess {
            child: None,
            orders: Some(Box::new(WriteHalf(here.try_clone().unwrap()))),
            answers: Box::new(BufReader::new(here)),
        };
        let faults = probe(&LyingFs::new(mine), dir.path(), &mut second).unwrap();
        drop(second);
        thread.join().unwrap();
        faults
    }

    /// Says that there is no more when it is dropped, as a pipe does.
    struct WriteHalf(UnixStream);

    impl Write for WriteHalf {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl Drop for WriteHalf {
        fn drop(&mut self) {
            let _ = self.0.shutdown(std::net::Shutdown::Write);
        }
    }

    #[test]
    fn what_two_see_differently_is_found_out() {
        assert_eq!(faults(Lie::None, Lie::None), [""; 0]);
        for (mine, theirs, words) in [
            (Lie::None, Lie::TwoInodes, "different inodes"),
            (Lie::None, Lie::OneLink, "with two names has 1"),
            (
                Lie::None,
                Lie::LocksForAll,
                "two processes can hold one lock",
            ),
            (Lie::None, Lie::NoLocks, "two processes can hold one lock"),
            (
                Lie::LocksForAll,
                Lie::None,
                "two processes can hold one lock",
            ),
            (Lie::LocksForEver, Lie::None, "of a process that died stays"),
            (Lie::None, Lie::ListsNothing, "do not list"),
            (Lie::ListsNothing, Lie::None, "do not list"),
            (Lie::RenameLeaves, Lie::None, "under its old name"),
            (Lie::None, Lie::RenameLeaves, "under its old name"),
        ] {
            let faults = faults(mine, theirs);
            let told = faults.iter().any(|fault| fault.contains(words));
            assert!(told, "{mine:?}, {theirs:?}: {faults:?}");
        }
    }
}
