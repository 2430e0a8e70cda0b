//! What a bench prints, kept in its place in `docs/benchmarks.md` as well.
//!
//! The place is between `<!-- bench NAME -->` and `<!-- end NAME -->`. What stands there was printed by one run, with its
//! command, the day and the machine; words about the figures stand outside.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The lines of one run.
pub(crate) struct Page {
    name: &'static str,
    text: String,
}

impl Page {
    /// Begins the page of a bench: what ran, when and where.
    pub(crate) fn begin(name: &'static str) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let options: Vec<&str> = words
            .into_iter()
            .filter(|word| *word != "--bench")
            .collect();
        let separator = if options.is_empty() { "" } else { " -- " };
        let mut page = Self {
            name,
            text: String::new(),
        };
        page.say(format!(
            "`cargo bench -p {} --bench {name}{separator}{}`, {}, {}:\n",
            env!("CARGO_PKG_NAME"),
            options.join(" "),
            said_by("date", &["-u", "+%F"]),
            machine()
        ));
        page
    }

    /// Prints a line and keeps it.
    pub(crate) fn say(&mut self, line: impl Display) {
        println!("{line}");
        self.text.push_str(&format!("{line}\n"));
    }

    /// Puts the page into its place, if the run was whole: a table without its peers says little.
    pub(crate) fn end(self, whole: bool) {
        if !whole {
            return println!("\ndocs/benchmarks.md is left as it is: not everything ran");
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut paths = here.ancestors().map(|dir| dir.join("docs/benchmarks.md"));
        let Some(path) = paths.find(|path| path.exists()) else {
            return println!("\nthere is no docs/benchmarks.md to write to");
        };
        let (begin, end) = (
            format!("<!-- bench {} -->\n", self.name),
            format!("<!-- end {} -->\n", self.name),
        );
        let text = fs::read_to_string(&path).expect("it was there a moment ago");
        let place = text.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some((before, after))
        });
        let Some((before, after)) = place else {
            return println!("\n{} has no place for {}", path.display(), self.name);
        };
        let page = format!("{before}{begin}{}{end}{after}", self.text);
        fs::write(&path, page).expect("the page can be written");
        println!("\nkept in docs/benchmarks.md");
    }
}

/// Says what runs here, and how busy it was before.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| {
        model.trim_start_matches([' ', '\t', ':'])
    });
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{cores} cores ({model}), {}, load {} before",
        said_by("uname", &["-sr"]),
        load.split(' ').next().unwrap_or("unknown")
    )
}

fn said_by(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
