//! Objects that we write are valid to others too; broken ones are judged as ocfl-py judges them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::semicolon_if_nothing_returned,
    reason = "a test stops where it fails, and makes its own mess; a table of edits reads better in one line each"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ecluse_bag::{DigestAlgorithm, ValidateOptions};
use ecluse_ocfl::{
    NewVersion, ObjectFile, OcflReport, StorageRoot, VersionNote, add_files, validate_object,
    validate_root, write_object,
};
use serde_json::{Value, json};

const OPTIONS: ValidateOptions = ValidateOptions {
    is_strict: false,
    threads: 2,
};

const ID: &str = "ark:/99999/fk4jb1234v";

fn check(object: &Path) -> OcflReport {
    validate_object(object, OPTIONS, &|_| true).unwrap()
}

fn note(message: &str) -> VersionNote {
    VersionNote {
        created: "2026-11-16T01:02:03Z".into(),
        message: message.into(),
        name: "ecluse".into(),
        address: "mailto:archive@example.org".into(),
    }
}

/// A storage root with one object of two versions; returns where the object is.
fn object_in(top: &Path) -> PathBuf {
    let root = StorageRoot::open(top).unwrap();
    let building = top.join(".building");
    let content = building.join("v1/content");
    fs::create_dir_all(content.join("data/deep")).unwrap();
    fs::write(content.join("bagit.txt"), "a bag").unwrap();
    fs::write(content.join("data/a.warc.gz"), "one").unwrap();
    fs::write(content.join("data/deep/b.warc.gz"), "two").unwrap();
    fs::write(content.join("data/deep/same"), "two").unwrap();
    let one = DigestAlgorithm::Sha512.digest(b"one");
    let known = BTreeMap::from([("data/a.warc.gz".to_owned(), one)]);
    write_object(&building, ID, &known, &note("sealed")).unwrap();
    let place = root.place_of(ID).unwrap();
    fs::rename(&building, &place).unwrap();
    let receipts = receipts("first");
    let made = add_files(&place, &receipts, &note("receipts")).unwrap();
    assert_eq!(made, NewVersion::Made(2));
    place
}

fn receipts(text: &str) -> Vec<ObjectFile> {
    let path = "receipts/receipts.jsonl".to_owned();
    let bytes = text.as_bytes().to_vec();
    vec![ObjectFile { path, bytes }]
}

/// What ocfl-py says of each directory: whether it is valid, and the codes.
fn peer(objects: &[PathBuf]) -> Vec<(bool, BTreeSet<String>)> {
    let script = r#"
import json, sys
from ocfl.validator import Validator
for path in sys.argv[1:]:
    validator = Validator(log_warnings=True)
    try:
        valid = validator.validate_object(path)
        codes = [code[:4] for code in validator.log.codes]
    except Exception as error:
        valid, codes = False, ["raised " + repr(error)]
    print(json.dumps([valid, codes]))
"#;
    let output = Command::new(ecluse_peers::python())
        .args(["-c", script])
        .args(objects)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let said = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    said.collect()
}

#[test]
fn what_we_write_is_valid_to_us_and_to_ocfl_py() {
    let top = tempfile::tempdir().unwrap();
    let object = object_in(top.path());
    let report = check(&object);
    assert_eq!((report.faults, report.warnings), (vec![], vec![]));
    assert_eq!(
        (report.versions, report.files, report.id.as_str()),
        (2, 5, ID)
    );
    let [(valid, codes)] = peer(std::slice::from_ref(&object)).try_into().unwrap();
    assert!(valid && codes.is_empty(), "{codes:?}");

    // The same once more is nothing new; another text is version 3.
    let again = add_files(&object, &receipts("first"), &note("again"));
    assert_eq!(again.unwrap(), NewVersion::Known(2));
    let third = add_files(&object, &receipts("second"), &note("more"));
    assert_eq!(third.unwrap(), NewVersion::Made(3));
    let [(valid, codes)] = peer(&[object]).try_into().unwrap();
    assert!(valid && codes.is_empty(), "{codes:?}");

    let root = validate_root(top.path(), OPTIONS, &|_| true).unwrap();
    assert!(root.is_valid(), "{root:?}");
    assert_eq!(root.objects.len(), 1);
    let script = "import sys, ocfl\nroot = ocfl.StorageRoot(root=sys.argv[1])\n\
                  assert root.validate() and root.num_objects == root.good_objects == 1, root.log.status_str()";
    let mut python = Command::new(ecluse_peers::python());
    let output = python
        .args(["-c", script])
        .arg(top.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_root_is_made_of_an_empty_directory_only() {
    let top = tempfile::tempdir().unwrap();
    StorageRoot::open(top.path()).unwrap();
    StorageRoot::open(top.path()).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("a.warc.gz"), "").unwrap();
    assert!(StorageRoot::open(other.path()).is_err());
    fs::write(
        top.path().join("ocfl_layout.json"),
        r#"{"extension": "flat"}"#,
    )
    .unwrap();
    assert!(StorageRoot::open(top.path()).is_err());
}

/// A writer that died between its steps: the next call finishes its work, and the object is valid.
#[test]
fn a_version_that_was_begun_is_finished() {
    let states: [fn(&Path); 4] = [
        // Nothing but content.
        |object| {
            fs::create_dir_all(object.join("v3/content/receipts")).unwrap();
            fs::write(object.join("v3/content/receipts/receipts.jsonl"), "half").unwrap();
        },
        // Version 3 is whole, the object does not know of it.
        |object| {
            let old = ["inventory.json", "inventory.json.sha512"]
                .map(|name| (name, fs::read(object.join(name)).unwrap()));
            add_files(object, &receipts("second"), &note("more")).unwrap();
            old.into_iter()
                .for_each(|(name, bytes)| fs::write(object.join(name), bytes).unwrap());
        },
        // The object knows of it, and its sidecar not yet.
        |object| {
            let old = fs::read(object.join("inventory.json.sha512")).unwrap();
            add_files(object, &receipts("second"), &note("more")).unwrap();
            fs::write(object.join("inventory.json.sha512"), old).unwrap();
        },
        // The inventory of version 3 is half written.
        |object| {
            fs::create_dir_all(object.join("v3/content/receipts")).unwrap();
            fs::write(object.join("v3/content/receipts/receipts.jsonl"), "second").unwrap();
            fs::write(object.join("v3/inventory.json"), "{\"id\"").unwrap();
        },
    ];
    for (number, break_off) in states.into_iter().enumerate() {
        let top = tempfile::tempdir().unwrap();
        let object = object_in(top.path());
        break_off(&object);
        add_files(&object, &receipts("second"), &note("more")).unwrap();
        let report = check(&object);
        assert_eq!(report.faults, [], "{number}");
        assert_eq!(report.versions, 3, "{number}");
        let text = fs::read_to_string(object.join("v3/content/receipts/receipts.jsonl"));
        assert_eq!(text.unwrap(), "second");
    }
}

/// Edits an inventory, and writes its sidecar anew.
fn edit(object: &Path, below: &str, change: impl Fn(&mut Value)) {
    let path = object.join(below).join("inventory.json");
    let mut inventory: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut inventory);
    sign(object, below, &serde_json::to_vec(&inventory).unwrap());
}

fn sign(object: &Path, below: &str, text: &[u8]) {
    let path = object.join(below).join("inventory.json");
    fs::write(&path, text).unwrap();
    let digest = DigestAlgorithm::Sha512.digest(text);
    fs::write(
        path.with_extension("json.sha512"),
        format!("{digest} inventory.json\n"),
    )
    .unwrap();
}

/// The same in the object's inventory and in that of its last version.
fn edit_head(object: &Path, change: impl Fn(&mut Value)) {
    edit(object, "", &change);
    let text = fs::read(object.join("inventory.json")).unwrap();
    sign(object, "v2", &text);
}

fn first_digest(inventory: &Value) -> String {
    inventory["manifest"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone()
}

type Break = (&'static str, fn(&Path));

/// What each does to a good object, under the code it must be judged by.
const BREAKS: &[Break] = &[
    ("E001", |o| fs::write(o.join("extra"), "").unwrap()),
    ("E001", |o| fs::create_dir(o.join("extra")).unwrap()),
    ("E003", |o| {
        fs::remove_file(o.join("0=ocfl_object_1.1")).unwrap()
    }),
    ("E007", |o| {
        fs::write(o.join("0=ocfl_object_1.1"), "ocfl_object_1.0\n").unwrap()
    }),
    ("E063", |o| {
        fs::remove_file(o.join("inventory.json")).unwrap()
    }),
    ("E033", |o| sign(o, "", b"{no json")),
    ("E036", |o| {
        edit_head(o, |i| drop(i.as_object_mut().unwrap().remove("id")))
    }),
    ("E036", |o| {
        edit_head(o, |i| drop(i.as_object_mut().unwrap().remove("type")))
    }),
    ("E036", |o| {
        edit_head(o, |i| drop(i.as_object_mut().unwrap().remove("head")))
    }),
    ("E037", |o| edit_head(o, |i| i["id"] = json!(""))),
    ("E038", |o| {
        edit_head(o, |i| {
            i["type"] = json!("https://ocfl.io/9.9/spec/#inventory")
        })
    }),
    ("E025", |o| {
        edit_head(o, |i| i["digestAlgorithm"] = json!("md5"))
    }),
    ("E017", |o| {
        edit_head(o, |i| i["contentDirectory"] = json!("a/b"))
    }),
    ("E018", |o| {
        edit_head(o, |i| i["contentDirectory"] = json!(".."))
    }),
    ("E041", |o| {
        edit_head(o, |i| drop(i.as_object_mut().unwrap().remove("versions")))
    }),
    ("E044", |o| edit_head(o, |i| i["versions"] = json!([]))),
    ("E008", |o| edit_head(o, |i| i["versions"] = json!({}))),
    ("E010", |o| {
        edit_head(o, |i| i["versions"]["v4"] = i["versions"]["v2"].clone())
    }),
    ("E040", |o| edit_head(o, |i| i["head"] = json!("v1"))),
    ("E046", |o| {
        fs::create_dir_all(o.join("v3/content")).unwrap()
    }),
    ("E048", |o| {
        edit_head(o, |i| {
            drop(
                i["versions"]["v2"]
                    .as_object_mut()
                    .unwrap()
                    .remove("created"),
            )
        })
    }),
    ("E049", |o| {
        edit_head(o, |i| {
            i["versions"]["v2"]["created"] = json!("2026-11-16T01:02:03")
        })
    }),
    ("E049", |o| {
        edit_head(o, |i| {
            i["versions"]["v2"]["created"] = json!("2026-11-16T01:02Z")
        })
    }),
    ("E049", |o| {
        edit_head(o, |i| i["versions"]["v2"]["created"] = json!(7))
    }),
    ("E094", |o| {
        edit_head(o, |i| i["versions"]["v2"]["message"] = json!(7))
    }),
    ("E054", |o| {
        edit_head(o, |i| {
            i["versions"]["v2"]["user"] = json!({"address": "mailto:a@b"})
        })
    }),
    ("E050", |o| {
        edit_head(o, |i| i["versions"]["v2"]["state"] = json!([]))
    }),
    ("E050", |o| {
        edit_head(o, |i| i["versions"]["v2"]["state"]["ab"] = json!(["x"]))
    }),
    ("E050", |o| {
        edit_head(o, |i| {
            let digest = DigestAlgorithm::Sha512.digest(b"nobody's");
            i["versions"]["v2"]["state"][digest] = json!(["x"]);
        })
    }),
    ("E052", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["versions"]["v2"]["state"][digest] = json!(["../x"]);
        })
    }),
    ("E053", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["versions"]["v2"]["state"][digest] = json!(["/x"]);
        })
    }),
    ("E095", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["versions"]["v2"]["state"][digest] = json!(["x", "x"]);
        })
    }),
    ("E095", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["versions"]["v2"]["state"][digest] = json!(["x", "x/y"]);
        })
    }),
    ("E096", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            let paths = i["manifest"][&digest].clone();
            i["manifest"][digest.to_uppercase()] = paths;
        })
    }),
    ("E099", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["manifest"][digest] = json!(["v1/content/../x"]);
        })
    }),
    ("E100", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["manifest"][digest] = json!(["/v1/content/x"]);
        })
    }),
    ("E042", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            i["manifest"][digest] = json!(["v9/content/x"]);
        })
    }),
    ("E101", |o| {
        edit_head(o, |i| {
            let digest = first_digest(i);
            let path = i["manifest"][&digest][0].clone();
            i["manifest"][digest].as_array_mut().unwrap().push(path);
        })
    }),
    ("E107", |o| {
        edit_head(o, |i| {
            let digest = DigestAlgorithm::Sha512.digest(b"unused");
            i["manifest"][digest] = json!(["v2/content/unused"]);
        })
    }),
    ("E111", |o| edit_head(o, |i| i["fixity"] = json!([]))),
    ("E057", |o| {
        edit_head(o, |i| i["fixity"] = json!({"md5": []}))
    }),
    ("E097", |o| {
        edit_head(o, |i| {
            let path = i["manifest"][first_digest(i)][0].clone();
            let md5 = "0123456789abcdef0123456789abcdef";
            i["fixity"] = json!({"md5": {md5: [path], md5.to_uppercase(): [path]}});
        })
    }),
    ("E093", |o| {
        edit_head(o, |i| {
            let path = i["manifest"][first_digest(i)][0].clone();
            i["fixity"] = json!({"md5": {"0123456789abcdef0123456789abcdef": [path]}});
        })
    }),
    ("E015", |o| fs::write(o.join("v1/extra"), "").unwrap()),
    ("E023", |o| {
        fs::write(o.join("v1/content/extra"), "").unwrap()
    }),
    ("E024", |o| {
        fs::create_dir(o.join("v1/content/empty")).unwrap()
    }),
    ("E058", |o| {
        fs::remove_file(o.join("inventory.json.sha512")).unwrap()
    }),
    ("E060", |o| {
        fs::write(
            o.join("inventory.json.sha512"),
            format!("{} inventory.json\n", "0".repeat(128)),
        )
        .unwrap()
    }),
    ("E060", |o| {
        fs::write(
            o.join("v1/inventory.json.sha512"),
            format!("{} inventory.json\n", "0".repeat(128)),
        )
        .unwrap()
    }),
    ("E061", |o| {
        fs::write(o.join("inventory.json.sha512"), "digest\n").unwrap()
    }),
    ("E064", |o| {
        edit(o, "", |i| i["versions"]["v2"]["message"] = json!("another"))
    }),
    ("E037", |o| {
        edit(o, "v1", |i| i["id"] = json!("ark:/99999/other"))
    }),
    ("E066", |o| {
        edit(o, "v1", |i| {
            let digest = first_digest(i);
            i["versions"]["v1"]["state"][digest] = json!(["renamed"]);
        })
    }),
    ("E067", |o| {
        fs::create_dir(o.join("extensions")).unwrap();
        fs::write(o.join("extensions/file"), "").unwrap();
    }),
    ("E092", |o| {
        fs::write(o.join("v1/content/bagit.txt"), "b bag").unwrap()
    }),
    ("E092", |o| {
        fs::remove_file(o.join("v2/content/receipts/receipts.jsonl")).unwrap()
    }),
    ("W002", |o| fs::create_dir(o.join("v1/other")).unwrap()),
    ("W005", |o| {
        edit_head(o, |i| i["id"] = json!("no uri"));
        edit(o, "v1", |i| i["id"] = json!("no uri"));
    }),
    ("W007", |o| {
        edit_head(o, |i| {
            drop(
                i["versions"]["v2"]
                    .as_object_mut()
                    .unwrap()
                    .remove("message"),
            )
        })
    }),
    ("W008", |o| {
        edit_head(o, |i| i["versions"]["v2"]["user"] = json!({"name": "a"}))
    }),
    ("W009", |o| {
        edit_head(o, |i| {
            i["versions"]["v2"]["user"]["address"] = json!("nowhere")
        })
    }),
    ("W010", |o| {
        fs::remove_file(o.join("v1/inventory.json")).unwrap();
        fs::remove_file(o.join("v1/inventory.json.sha512")).unwrap();
    }),
    ("W011", |o| {
        edit(o, "v1", |i| {
            i["versions"]["v1"]["message"] = json!("another")
        })
    }),
    ("W013", |o| {
        fs::create_dir_all(o.join("extensions/unknown")).unwrap()
    }),
];

/// ocfl-py stumbles over this one.
#[test]
fn an_object_without_a_manifest_is_not_valid() {
    let top = tempfile::tempdir().unwrap();
    let object = object_in(top.path());
    edit_head(&object, |i| {
        drop(i.as_object_mut().unwrap().remove("manifest"))
    });
    let report = check(&object);
    assert_eq!(report.faults[0].code, "E041", "{report:?}");
}

#[test]
fn broken_objects_are_judged_as_ocfl_py_judges_them() {
    let mut roots = Vec::new();
    let mut objects = Vec::new();
    for (_, break_it) in BREAKS {
        let top = tempfile::tempdir().unwrap();
        let object = object_in(top.path());
        break_it(&object);
        objects.push(object);
        roots.push(top);
    }
    let theirs = peer(&objects);
    let mut wrong = Vec::new();
    for (((code, _), object), (valid, codes)) in BREAKS.iter().zip(&objects).zip(theirs) {
        let report = check(object);
        let found = report.faults.iter().chain(&report.warnings);
        let found: BTreeSet<&str> = found.map(|fault| fault.code).collect();
        if !found.contains(code) || report.is_valid() != valid || !codes.contains(*code) {
            wrong.push(format!("{code}: ours {found:?}, theirs {codes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Any single bit of any file of the object.
#[test]
fn every_flipped_bit_is_found() {
    let top = tempfile::tempdir().unwrap();
    let object = object_in(top.path());
    let mut files = Vec::new();
    let mut stack = vec![object.clone()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => stack.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    assert_eq!(files.len(), 5 + 1 + 6);
    for path in files {
        let good = fs::read(&path).unwrap();
        // Every bit of the small ones, a sample of the larger.
        let step = (good.len() * 8 / 200).max(1);
        for bit in (0..good.len() * 8).step_by(step) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let is_case = |bytes: &[u8]| bytes.to_ascii_lowercase();
            let is_sidecar = path.to_string_lossy().ends_with(".sha512");
            // A digest may be written in capitals, and blanks are blanks.
            let same = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(&is_case(bytes)).into_owned();
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            if is_sidecar && same(&bad) == same(&good) {
                continue;
            }
            fs::write(&path, &bad).unwrap();
            let report = check(&object);
            assert!(!report.is_valid(), "bit {bit} of {}", path.display());
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(check(&object).is_valid());
}

#[test]
fn a_root_with_strange_things_is_not_valid() {
    let breaks: [Break; 6] = [
        ("E069", |root| {
            fs::remove_file(root.join("0=ocfl_1.1")).unwrap()
        }),
        ("E080", |root| {
            fs::write(root.join("0=ocfl_1.1"), "x").unwrap()
        }),
        ("E070", |root| {
            fs::write(root.join("ocfl_layout.json"), "{}").unwrap()
        }),
        ("E072", |root| {
            fs::create_dir(root.join("x")).unwrap();
            fs::write(root.join("x/y"), "").unwrap();
        }),
        ("E073", |root| fs::create_dir(root.join("x")).unwrap()),
        ("E112", |root| {
            fs::write(root.join("extensions/x"), "").unwrap()
        }),
    ];
    for (code, break_it) in breaks {
        let top = tempfile::tempdir().unwrap();
        object_in(top.path());
        break_it(top.path());
        let report = validate_root(top.path(), OPTIONS, &|_| true).unwrap();
        let codes: Vec<&str> = report.faults.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, [code]);
    }
}
