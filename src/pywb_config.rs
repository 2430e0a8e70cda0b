//! `ecluse serve --pywb DIR`: the configuration with which pywb serves the same archive.
//!
//! The main index and those of collections become pywb's collections, with PATH, rules and embargo. Paths go through `current`, so a new
//! generation is found by pywb too, when it is started again.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use ecluse_access::ReadingArchive;
use ecluse_config::{AccessRule, CalendarAge, Embargo};
use ecluse_generation::{FLAT, PATHS, SUMMARY};
use ecluse_stage::Exit;

use crate::context::{DriverContext, Trouble};

/// Writes `config.yaml` into a directory; one that is there already is not overwritten.
pub(crate) fn write(context: &DriverContext, directory: &Path) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let text = config_of(context)?;
    let path = directory.join("config.yaml");
    let failed = |error: io::Error| {
        let line = format!("cannot write {}: {error}", path.display());
        Trouble::new(Exit::Machine, line)
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let mut file = fs::File::create_new(&path).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    context.say(&format!("wrote {}", path.display()))?;
    let line = format!(
        "start it with: cd {} && wayback --bind 127.0.0.1",
        directory.display()
    );
    context.say(&line)?;
    Ok(Exit::Done.into())
}

fn config_of(context: &DriverContext) -> Result<String, Trouble> {
    let root = std::path::absolute(&context.root)?;
    let access = &context.pipeline.access;
    let index = root.join(&context.pipeline.archive.index);
    let archive = ReadingArchive::new(&index, &access.main);
    let mut text = String::from(
        "# Written by ecluse serve --pywb: the same archive for pywb. It reads the list of files when it starts.\ncollections:\n",
    );
    let mut line = |indent: usize, words: &str| {
        writeln!(text, "{:indent$}{words}", "").expect("a string takes what is written");
    };
    for name in archive.collections() {
        let own = match name == access.main {
            true => index.clone(),
            false => index.join(&name),
        };
        let current = own.join("current");
        let Some(list) = [FLAT, SUMMARY]
            .map(|list| current.join(list))
            .into_iter()
            .find(|list| list.exists())
        else {
            let line = format!("no index in {}", own.display());
            return Err(Trouble::new(Exit::Deferred, line));
        };
        line(2, &format!("{}:", quoted(&name)));
        line(4, &format!("index_paths: {}", quoted_path(&list)));
        line(
            4,
            &format!("archive_paths: {}", quoted_path(&current.join(PATHS))),
        );
        if !access.rules.is_empty() {
            line(4, "acl_paths:");
            for rules in &access.rules {
                line(6, &format!("- {}", quoted_path(&root.join(rules))));
            }
        }
        let rule = match access.default_rule {
            AccessRule::Allow => "allow",
            AccessRule::Block => "block",
            AccessRule::Exclude => "exclude",
        };
        line(4, &format!("default_access: {rule}"));
        put_embargo(&access.embargo, &mut line);
    }
    line(0, "enable_memento: true");
    Ok(text)
}

fn put_embargo(embargo: &Embargo, line: &mut dyn FnMut(usize, &str)) {
    let (kind, age) = match embargo {
        Embargo::None => return,
        Embargo::Before(digits) | Embargo::After(digits) => {
            let kind = if matches!(embargo, Embargo::Before(_)) {
                "before"
            } else {
                "after"
            };
            line(4, "embargo:");
            // pywb wants all fourteen digits.
            let whole = format!("{digits}{}", &"00000101000000"[digits.len()..]);
            return line(6, &format!("{kind}: {}", quoted(&whole)));
        }
        Embargo::Older(age) => ("older", *age),
        Embargo::Newer(age) => ("newer", *age),
    };
    line(4, "embargo:");
    line(6, &format!("{kind}:"));
    let CalendarAge {
        years,
        months,
        weeks,
        days,
    } = age;
    for (unit, count) in [
        ("years", years),
        ("months", months),
        ("weeks", weeks),
        ("days", days),
    ] {
        if count > 0 {
            line(8, &format!("{unit}: {count}"));
        }
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Returns a text as YAML takes it, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
