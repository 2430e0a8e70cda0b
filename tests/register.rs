//! `ecluse register`: one domain, the figures, and all of it as CSV.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;
use std::process::Command;

use ecluse_register::{DnsAnswer, DomainState, Register, RegisterDay, RegisterRecord};
use ecluse_testkit::root::settle_environment;
use serde_json::{Value, json};

fn ecluse(root: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecluse"));
    settle_environment(&mut command);
    command.arg("--root").arg(root).args(words);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_domain_the_figures_and_all_of_it() {
    let root = tempfile::tempdir().unwrap();
    let (code, _, said) = ecluse(root.path(), &["register", "exemple.fr"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("no register yet"), "{said}");

    let day = RegisterDay::new(2026, 10, 4).unwrap();
    let mut gone = RegisterRecord::new("parti.fr", day);
    gone.state = DomainState::Inactive;
    let mut known = RegisterRecord::new("exemple.fr", day);
    known.sources.insert("afnic".into(), day);
    known.dns = Some(DnsAnswer {
        class: "OK_BOTH".into(),
        day,
    });
    known.forms = vec!["apex".into(), "www".into()];
    known
        .more
        .insert("seeds".into(), json!(["https://exemple.fr/\u{1b}[31m"]));
    let register = Register::at(&root.path().join("register")).unwrap();
    let records = [Ok(known), Ok(gone)].into_iter();
    register.update(Vec::new(), records, 3, &|| false).unwrap();

    // Any name of the site will do.
    let (code, told, said) = ecluse(root.path(), &["register", "https://www.exemple.fr/a"]);
    assert_eq!(code, 0, "{said}");
    assert!(told.starts_with("domain       exemple.fr\n"), "{told}");
    assert!(told.contains("\nDNS          OK_BOTH on 20261004\n") && !told.contains('\u{1b}'));
    let rule = |verdict: &str, what: &str| {
        format!(
            "[[rule]]\nverdict = '{verdict}'\n{what}\nwho = 'M. Duval'\nwhen = '2026-10-02'\nwhy = 'order 117'\n"
        )
    };
    let rules = rule("out", "prefix = 'http://exemple.fr/prive/'")
        + &rule("in", "domain = 'blog.exemple.fr'")
        + &rule("out", "prefix = 'http://autre.fr/x'");
    std::fs::write(root.path().join("forced.toml"), rules).unwrap();
    let (_, told, _) = ecluse(root.path(), &["register", "exemple.fr"]);
    let below = "forced below in blog.exemple.fr: M. Duval on 2026-10-02, order 117\n\
                 forced below out http://exemple.fr/prive/: M. Duval on 2026-10-02, order 117\n";
    assert!(told.contains(below) && !told.contains("autre"), "{told}");
    let (_, told, _) = ecluse(root.path(), &["register", "exemple.fr", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["sources"], json!({"afnic": "20261004"}));
    assert_eq!(told["forced-below"][1]["why"], "order 117");
    let (code, _, said) = ecluse(root.path(), &["register", "inconnu.fr"]);
    assert_eq!(
        (code, said.as_str()),
        (1, "inconnu.fr is not in the register\n")
    );
    assert_eq!(ecluse(root.path(), &["register", "127.0.0.1"]).0, 64);
    assert_eq!(ecluse(root.path(), &["register"]).0, 64);

    let (code, told, _) = ecluse(root.path(), &["register", "--stats", "--json"]);
    assert_eq!(code, 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["domains"], 2);
    assert_eq!(told["state"], json!({"active": 1, "inactive": 1}));
    assert_eq!(told["dns"]["not asked yet"], 1);
    let (_, told, _) = ecluse(root.path(), &["register", "--export", "csv"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[1],
        "exemple.fr,1,20261004,20261004,afnic=20261004,OK_BOTH,20261004,apex www,\"{\"\"seeds\"\":[\"\"https://exemple.fr/\\u001b[31m\"\"]}\""
    );
    assert_eq!(lines[2], "parti.fr,0,20261004,20261004,,,,,{}");
}

#[test]
fn an_export_read_back_as_a_source_has_the_same_domains() {
    let root = tempfile::tempdir().unwrap();
    let day = RegisterDay::new(2026, 10, 4).unwrap();
    // A public suffix of the private section, an international one, quotes and commas in what is known, and one that is gone.
    let domains = ["blogspot.com", "exemple.fr", "parti.fr", "xn--cluse-9ra.fr"];
    let mut records = domains.map(|domain| RegisterRecord::new(domain, day));
    records[1].sources.insert("afnic".into(), day);
    records[1].forms = vec!["apex".into(), "www".into()];
    let seeds = json!(["https://exemple.fr/?a=\"b\",c;d"]);
    records[1].more.insert("seeds".into(), seeds);
    records[2].state = DomainState::Inactive;
    records.sort_by_key(RegisterRecord::key);
    let register = Register::at(&root.path().join("register")).unwrap();
    let lines = records.into_iter().map(Ok);
    register.update(Vec::new(), lines, 3, &|| false).unwrap();
    let (code, export, said) = ecluse(root.path(), &["register", "--export", "csv"]);
    assert_eq!(code, 0, "{said}");

    let list = root.path().join("old.csv");
    std::fs::write(&list, export).unwrap();
    let sidecar = root.path().join("old.csv.source.toml");
    std::fs::write(sidecar, "column = \"domain\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecluse"));
    settle_environment(&mut command);
    command
        .args(["stage", "preload", "--root"])
        .arg(root.path());
    let output = command.arg(&list).output().unwrap();
    let [names, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{said}");
    let mut found: Vec<&str> = names
        .lines()
        .map(|line| line.split('\t').nth(3).unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, domains);
    assert!(said.contains("4 lines gave 4 names of 4 domains"), "{said}");
}
