//! The contract every stage keeps, whatever it does: one test for all of them.
//!
//! A stage's `tests/cli.rs` fills in a [`Contract`] and calls [`Contract::keep`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::root::{Root, contents, snapshot, until_so};

/// What the contract test must know of a stage.
pub struct Contract<'a> {
    /// Its name.
    pub stage: &'a str,
    /// Its program.
    pub binary: &'a Path,
    /// Its table in `pipeline.toml`, without the heading.
    pub settings: &'a str,
    /// The files of a parcel it can work on.
    pub good: &'a [(&'a str, &'a [u8])],
    /// The files of a parcel it must hold; empty when any files are good.
    pub bad: &'a [(&'a str, &'a [u8])],
}

/// The stage that results go to.
const SINK: &str = "sink";

/// Facts of how others did, and not of what the stage made: which of two resolvers is asked first is a matter of moments.
const OF_OTHERS: [&str; 1] = ["resolvers"];

impl Contract<'_> {
    /// Fails unless the stage keeps all of it.
    pub fn keep(&self) {
        self.says_what_it_is();
        self.refuses_bad_usage();
        self.names_the_nearest_key();
        self.checks_without_touching();
        self.tells_without_touching();
        self.takes_an_empty_directory();
        self.holds_the_bad_and_passes_the_good();
        self.gives_the_same_bytes_again();
        self.stops_when_asked();
    }

    fn root(&self) -> Root {
        let root = Root::new();
        self.configure(&root, "");
        root
    }

    fn configure(&self, root: &Root, more: &str) {
        // The settings come last: they may begin another table.
        let table = format!("[stage.{}]\n{more}\n{}", self.stage, self.settings);
        root.settings(&[self.stage, SINK], &table);
    }

    fn says_what_it_is(&self) {
        let root = Root::new();
        for flag in ["--help", "--version"] {
            let (code, _) = root.run(self.binary, &[flag]);
            assert_eq!(code, 0, "{flag}");
        }
        assert_eq!(root.list("", ""), [""; 0], "nothing is made by --help");
    }

    fn refuses_bad_usage(&self) {
        let root = self.root();
        let before = snapshot(root.path());
        for arguments in [&["--frobnicate"][..], &["--workers", "0"], &["--workers"]] {
            let (code, said) = root.run(self.binary, arguments);
            assert_eq!(code, 64, "{arguments:?}: {said}");
            assert!(said.contains(arguments[0]), "names the argument: {said}");
        }
        assert_eq!(snapshot(root.path()), before);
    }

    fn names_the_nearest_key(&self) {
        let root = Root::new();
        self.configure(&root, "attemps = 3\nwrokers = 2");
        root.put_files(self.stage, "waiting", self.good);
        let before = snapshot(root.path());
        for arguments in [&["--check"][..], &["--once"], &["--dry-run"], &[]] {
            let (code, said) = root.run(self.binary, arguments);
            assert_eq!(code, 78, "{arguments:?}: {said}");
            assert_eq!(said.lines().count(), 2, "{said}");
            // One line for each mistake, each naming its place, the key and the nearest one.
            for (wrong, right) in [("attemps", "attempts"), ("wrokers", "workers")] {
                let line = said.lines().find(|line| line.contains(wrong));
                let line = line.unwrap_or_else(|| panic!("{wrong} is not named: {said}"));
                assert!(line.contains(&format!("'{right}'")), "{line}");
                assert!(line.contains("pipeline.toml:"), "{line}");
            }
        }
        assert_eq!(snapshot(root.path()), before, "nothing is touched");
    }

    fn checks_without_touching(&self) {
        let root = self.root();
        root.put_files(self.stage, "waiting", self.good);
        root.drop_file(self.stage, "dropped", b"dropped");
        let before = snapshot(root.path());
        let (code, said) = root.run(self.binary, &["--check"]);
        assert_eq!((code, said.as_str()), (0, ""));
        assert_eq!(snapshot(root.path()), before);
        let empty = Root::new();
        let (code, said) = empty.run(self.binary, &["--check"]);
        assert_eq!(
            (code, said.as_str()),
            (0, ""),
            "the built-in settings are good"
        );
        assert!(contents(empty.path()).is_empty());
    }

    fn tells_without_touching(&self) {
        let root = self.root();
        root.put_files(self.stage, "waiting", self.good);
        let before = snapshot(root.path());
        let mut command = root.program(self.binary);
        let output = command.arg("--dry-run").output().expect("it can be run");
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 waiting") && said.contains(SINK), "{said}");
        assert_eq!(snapshot(root.path()), before);
    }

    fn takes_an_empty_directory(&self) {
        let root = self.root();
        for round in ["makes its directories", "finds them made"] {
            let (code, said) = root.run(self.binary, &["--once"]);
            assert_eq!(code, 0, "{round}: {said}");
        }
        assert_eq!(root.list(self.stage, "claim"), [""; 0]);
        assert_eq!(root.list(self.stage, "receipts"), [""; 0]);
    }

    fn holds_the_bad_and_passes_the_good(&self) {
        let root = self.root();
        let mut held = 1;
        root.put_damaged(self.stage, "damaged");
        for number in 0..5 {
            root.put_files(self.stage, &format!("good-{number}"), self.good);
        }
        if !self.bad.is_empty() {
            root.put_files(self.stage, "bad", self.bad);
            held += 1;
        }
        let (code, said) = root.run(self.binary, &["--once"]);
        assert_eq!(code, 65, "some parcels are held: {said}");
        assert_eq!(self.held(&root).len(), held, "{said}");
        assert!(self.held(&root).contains(&"damaged~1".to_owned()));
        assert_ne!(root.why(self.stage, "damaged"), "");
        assert!(said.contains("damaged"), "the log names it: {said}");
        if !self.bad.is_empty() {
            assert!(self.held(&root).contains(&"bad~1".to_owned()));
            assert_ne!(root.why(self.stage, "bad"), "");
        }
        self.passed(&root, 5);
    }

    fn gives_the_same_bytes_again(&self) {
        let roots = [self.root(), self.root()];
        for root in &roots {
            for number in 0..3 {
                root.put_files(self.stage, &format!("good-{number}"), self.good);
            }
            let (code, said) = root.run(self.binary, &["--once"]);
            assert_eq!(code, 0, "{said}");
        }
        let results = roots.each_ref().map(|root| self.results(root));
        assert_eq!(
            results[0], results[1],
            "doing it again gives the same bytes"
        );
        // A parcel that comes a second time is known and changes nothing.
        let [root, _] = &roots;
        root.put_files(self.stage, "good-0", self.good);
        let (code, said) = root.run(self.binary, &["--once"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(root.list(self.stage, "ready"), [""; 0]);
        assert_eq!(self.results(root), results[0]);
    }

    fn stops_when_asked(&self) {
        let root = self.root();
        for number in 0..20 {
            root.put_files(self.stage, &format!("good-{number:02}"), self.good);
        }
        let mut program = root.start(self.binary, &[]);
        until_so("a worker", || {
            program.must_live();
            !root.list(self.stage, "claim").is_empty()
        });
        program.signal(Signal::TERM);
        assert_eq!(program.wait(), 0, "{}", program.log());
        assert_eq!(
            root.list(self.stage, "claim"),
            [""; 0],
            "nothing is in hand"
        );
        assert_eq!(self.held(&root), [""; 0]);
        for name in root.list(self.stage, "ready") {
            assert!(name.ends_with("~0"), "{name}: stopping is no attempt");
        }
        // Whatever it had not done is done by the next one.
        let (code, said) = root.run(self.binary, &["--once"]);
        assert_eq!(code, 0, "{said}");
        self.passed(&root, 20);
    }

    fn held(&self, root: &Root) -> Vec<String> {
        root.list(self.stage, "held")
    }

    /// Every parcel has its receipt and nothing is left in the stage.
    fn passed(&self, root: &Root, parcels: usize) {
        assert_eq!(root.list(self.stage, "ready"), [""; 0]);
        assert_eq!(root.list(self.stage, "claim"), [""; 0]);
        let mut known = 0;
        let tree = root.tree();
        let see = &mut |filed: ecluse_spool::Filed| known += filed.receipt.inputs.len();
        tree.each_receipt(self.stage, see)
            .expect("receipts can be read");
        assert_eq!(known, parcels, "one receipt for each parcel");
    }

    /// What came out: the files of the next stage, and what the receipts say of them.
    fn results(&self, root: &Root) -> (BTreeMap<PathBuf, Vec<u8>>, Vec<String>) {
        let mut receipts = Vec::new();
        let see = &mut |filed: ecluse_spool::Filed| {
            let mut receipt = filed.receipt;
            receipt
                .facts
                .retain(|name, _| !OF_OTHERS.contains(&name.as_str()));
            receipts.push(format!(
                "{} {:?} {:?} {:?} {:?}",
                receipt.work, receipt.inputs, receipt.outputs, receipt.fate, receipt.facts
            ));
        };
        let tree = root.tree();
        tree.each_receipt(self.stage, see)
            .expect("receipts can be read");
        receipts.sort();
        (contents(&root.part(SINK, "ready")), receipts)
    }
}
