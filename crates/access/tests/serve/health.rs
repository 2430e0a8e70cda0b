//! A damaged index is told, and a file that holds its reader holds nobody else.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::made::{Made, Served};

fn reason(served: &Served) -> Result<String, String> {
    let answer = served.get("/healthz");
    let text = answer.text();
    match answer.status {
        200 => Ok(text),
        503 => Err(text),
        other => panic!("{other}: {text}"),
    }
}

#[test]
fn health_tells_what_is_wrong_with_the_index() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "a");
    made.publish(1);
    let served = made.serve();
    assert!(reason(&served).unwrap().contains("\"generation\":1"));
    let generation = made.path().join("index/generations/1");
    for name in ["index.cdxj", "path-index.txt"] {
        let path = generation.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let told = reason(&served).unwrap_err();
        let length = format!("has {} of {} bytes", whole.len() - 1, whole.len());
        assert!(told.contains(name) && told.contains(&length), "{told}");
        fs::remove_file(&path).unwrap();
        let told = reason(&served).unwrap_err();
        assert!(told.contains(name) && told.contains("is missing"), "{told}");
        fs::create_dir(&path).unwrap();
        let told = reason(&served).unwrap_err();
        assert!(told.contains(name) && told.contains("is no file"), "{told}");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &whole).unwrap();
        assert!(reason(&served).is_ok(), "it came back");
        // And is read: not the one that was cut.
        assert_eq!(served.get("/web/2026id_/http://a.example/").text(), "a");
    }
    // A newer one that cannot be opened: readers have the old one, and somebody must look.
    let link = made.path().join("index/current.new");
    fs::create_dir(made.path().join("index/generations/2")).unwrap();
    symlink("generations/2", &link).unwrap();
    fs::rename(&link, made.path().join("index/current")).unwrap();
    let told = reason(&served).unwrap_err();
    assert!(
        told.contains("generation 2 cannot be opened, 1 is served"),
        "{told}"
    );
    assert_eq!(served.get("/web/2026id_/http://a.example/").text(), "a");
    // None at all.
    fs::rename(made.path().join("index"), made.path().join("away")).unwrap();
    let told = reason(&served).unwrap_err();
    assert!(told.contains("no index in"), "{told}");
}

#[test]
fn a_pipe_in_the_place_of_a_file_holds_no_reader() {
    let mut made = Made::new();
    made.html("http://pipe.example/", "20260101000000", "p");
    made.next_file("2-1-20260101000000000-00000-test.warc.gz");
    made.html("http://file.example/", "20260101000000", "f");
    made.publish(1);
    let pipe = made.stored("1-1-20260101000000000-00000-test.warc.gz");
    fs::remove_file(&pipe).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let served = made.serve_with(|settings| settings.readers = 1);
    // More often than there are threads, and one after the other: each must come back.
    for _ in 0..4 {
        for modifier in ["id_", "mp_", ""] {
            let path = format!("/web/20260101000000{modifier}/http://pipe.example/");
            let answer = served.get(&path);
            assert_eq!(answer.status, 503, "{path}");
            assert!(answer.field("retry-after").is_some());
        }
    }
    assert_eq!(served.get("/web/2026id_/http://file.example/").text(), "f");
    // The same for an index: it is as if there were none.
    let list = made.path().join("index/generations/2");
    fs::create_dir(&list).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(list.join("index.cdxj"))
            .status()
            .unwrap()
            .success()
    );
    let link = made.path().join("index/current.new");
    symlink("generations/2", &link).unwrap();
    fs::rename(&link, made.path().join("index/current")).unwrap();
    assert_eq!(served.get("/web/2026id_/http://file.example/").text(), "f");
    assert_eq!(served.get("/healthz").status, 503);
}

#[test]
fn another_copy_is_read_where_the_first_is_none() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "a");
    made.publish(1);
    let name = "1-1-20260101000000000-00000-test.warc.gz";
    let copy = made.path().join("copy.warc.gz");
    fs::rename(made.stored(name), &copy).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(made.stored(name))
            .status()
            .unwrap()
            .success()
    );
    let list = made.path().join("index/generations/1/path-index.txt");
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, format!("{text}{name}\t{}\n", copy.display())).unwrap();
    let served = made.serve();
    assert_eq!(served.get("/web/2026id_/http://a.example/").text(), "a");
}
