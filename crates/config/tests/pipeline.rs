//! The file as operators meet it: layers, complaints, rules, rendering.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ecluse_config::{
    Bytes, ConfigError, Free, Level, LogFormat, LogLevel, Percent, Pipeline, SHIPPED, Span,
};
use proptest::prelude::*;
use serde::Deserialize;

fn parse(text: &str) -> Pipeline {
    Pipeline::parse(text, "pipeline.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn complaints(text: &str) -> Vec<String> {
    match Pipeline::parse(text, "pipeline.toml") {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn the_shipped_file_is_the_built_in_settings() {
    assert_eq!(parse(SHIPPED), Pipeline::default());
    assert_eq!(parse(SHIPPED).check(), []);
}

#[test]
fn the_shipped_file_is_complete() {
    let effective = parse(SHIPPED).effective();
    let left_out: Vec<&str> = effective
        .lines()
        .filter(|line| line.contains("# built-in"))
        .collect();
    assert_eq!(left_out, Vec::<&str>::new());
    // The test above would pass on a page without origins.
    let built_in = Pipeline::default().effective();
    assert_eq!(
        built_in.matches("# built-in").count(),
        effective.matches("# pipeline.toml:").count()
    );
    assert!(built_in.matches("# built-in").count() > 30);
}

#[test]
fn a_key_that_moved_is_refused_with_its_new_place() {
    let text = "[stage.delete]\nmanifest = 'other.sqlite'\n[stage.transfer]\nlocations = []\n\
                [stage.clean]\nharvested = ['x']\nindex = 'y'\n";
    assert_eq!(
        complaints(text),
        [
            "pipeline.toml:2: 'stage.delete.manifest' is now 'archive.manifest', for all stages",
            "pipeline.toml:4: 'stage.transfer.locations' is now 'archive.repository', for all stages",
            "pipeline.toml:6: 'stage.clean.harvested' is now 'archive.harvested', for all stages",
            "pipeline.toml:7: 'stage.clean.index' is now 'archive.index', for all stages",
        ]
    );
}

#[test]
fn an_archive_that_cannot_be_is_refused() {
    for (text, expected) in [
        (
            "harvested = []",
            "'archive.harvested': at least one must be named",
        ),
        (
            "repository = []",
            "'archive.repository': at least one must be named",
        ),
        (
            "index = ''",
            "'archive.index': '': write a path without '..'",
        ),
        (
            "manifest = '../m'",
            "'archive.manifest': '../m': write a path without '..'",
        ),
        (
            "index = 'harvested'",
            "'archive.index': 'harvested' has two uses",
        ),
        (
            "repository = [{ name = 'a', path = 'a' }, { name = 'a', path = 'b' }]",
            "'archive.repository': 'a' names two locations",
        ),
        (
            "repository = [{ name = 'a', path = 'a' }, { name = 'b', path = 'a' }]",
            "'archive.repository': 'a' has two uses",
        ),
        (
            "repository = [{ name = '', path = 'a' }]",
            "'archive.repository': '' is no name for a location",
        ),
    ] {
        let text = format!("[archive]\n{text}\n");
        assert_eq!(complaints(&text), [format!("pipeline.toml:2: {expected}")]);
    }
}

#[test]
fn settings_of_several_stages_must_fit_together() {
    assert_eq!(
        complaints("[stage.delete]\nbackups = 2\n[stage.clean]\nbackups = 3\n"),
        [
            "pipeline.toml:2: 'stage.delete.backups': 2 backups are asked for, 'stage.backup.targets' has 1",
            "pipeline.toml:4: 'stage.clean.backups': 3 backups are asked for, 'stage.backup.targets' has 1",
        ]
    );
    parse("[chain]\nstages = ['delete']\n[stage.delete]\nbackups = 2\n");
    assert_eq!(
        complaints("[stage.index]\nkeep-receipts = '5m'\n"),
        [
            "pipeline.toml:2: 'stage.index.keep-receipts': 5m must be longer than lease, 5m: a dead worker is settled by its receipts"
        ]
    );
    let warned = parse("[stage.delete]\nhigh-mark = 5000\nlow-mark = 10\n").check();
    let warned: Vec<String> = warned.iter().map(ToString::to_string).collect();
    assert_eq!(
        warned,
        [
            "pipeline.toml: warning: 'stage.merge.batch.parcels': 5000 must be below the high-mark of delete, 5000: it stops before a batch is full"
        ]
    );
}

#[test]
fn a_file_says_only_what_differs() {
    assert_eq!(parse(""), Pipeline::default());
    let pipeline = parse(
        r#"
        [site]
        organization = "example.org"
        [defaults]
        retry = { first = "1m" }
        min-free = "2.5%"
        [log]
        format = "json"
        level = "debug"
        [metrics]
        listen = "[::1]:9464"
        textfile = "/run/{stage}.prom"
        "#,
    );
    assert_eq!(pipeline.site.organization, "example.org");
    assert_eq!(pipeline.defaults.retry.first, Span::secs(60));
    assert_eq!(pipeline.defaults.retry.max, Span::secs(3_600));
    let Free::Percent(share) = pipeline.defaults.min_free else {
        panic!("a share was asked for");
    };
    assert_eq!(share.share_of(1_000), 25);
    assert_eq!(pipeline.log.format, LogFormat::Json);
    assert_eq!(pipeline.log.level, LogLevel::Debug);
    assert_eq!(pipeline.metrics.listen.unwrap().port(), 9464);
    assert_eq!(
        pipeline.metrics.textfile_of("index").unwrap(),
        Path::new("/run/index.prom")
    );
}

const CHAIN: &str = r#"
[defaults]
workers = 2
retry.max = "2h"

[chain]
stages = ["lists", "name-filter", "sluice", "merge", "package"]

[stage.name-filter]
back = ["lists"]
timeout = "3s"
servers = ["127.0.0.1:53"]

[stage.sluice]
next = ["merge", "package"]
workers = 8
retry.first = "5m"

[stage.merge]
next = []
"#;

#[test]
fn a_stage_has_the_defaults_and_what_its_table_says() {
    let pipeline = parse(CHAIN);
    assert_eq!(pipeline.shell("lists"), pipeline.defaults);
    assert_eq!(pipeline.shell("unheard-of"), pipeline.defaults);
    let sluice = pipeline.shell("sluice");
    assert_eq!(sluice.workers, 8);
    assert_eq!(sluice.retry.first, Span::secs(300));
    assert_eq!(sluice.retry.max, Span::secs(7_200));
    assert_eq!(sluice.retry.factor, 2.0);
    assert_eq!(sluice.attempts, 5);
}

#[test]
fn results_go_to_next_or_to_the_stage_after() {
    let pipeline = parse(CHAIN);
    assert_eq!(pipeline.next_of("lists"), ["name-filter"]);
    assert_eq!(pipeline.next_of("name-filter"), ["sluice"]);
    assert_eq!(pipeline.next_of("sluice"), ["merge", "package"]);
    assert_eq!(pipeline.next_of("merge"), [""; 0]);
    assert_eq!(pipeline.next_of("package"), [""; 0]);
    assert_eq!(pipeline.next_of("unheard-of"), [""; 0]);
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DnsFilter {
    timeout: Span,
    servers: Vec<String>,
    #[serde(default)]
    buffer: Bytes,
}

#[test]
fn a_stage_reads_its_own_keys_only() {
    let pipeline = parse(CHAIN);
    let settings: DnsFilter = pipeline.stage_settings("name-filter").unwrap();
    assert_eq!(settings.timeout.get(), Duration::from_secs(3));
    assert_eq!(settings.servers, ["127.0.0.1:53"]);
    assert_eq!(settings.buffer, Bytes(0));
    pipeline.stage_settings::<()>("sluice").unwrap();
    pipeline.stage_settings::<()>("unheard-of").unwrap();
}

fn stage_complaints<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> Vec<String> {
    let error = parse(text).stage_settings::<T>("x");
    let error = error.expect_err("the table is faulty");
    error.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_stage_complains_about_every_bad_key_with_its_line() {
    let text = r#"
        [chain]
        stages = ["x"]
        [stage.x]
        worker = 3
        timeouts = "3s"
        timeout = 3
        servers = [1]
        buffer = "1 GB"
    "#;
    assert_eq!(
        stage_complaints::<DnsFilter>(text),
        [
            "pipeline.toml:5: unknown key 'stage.x.worker'; did you mean 'workers'?",
            "pipeline.toml:6: unknown key 'stage.x.timeouts'; did you mean 'timeout'?",
            "pipeline.toml:7: 'stage.x.timeout': the bare number 3 has no unit; write \"3s\", \"3m\" or \"3h\"",
            "pipeline.toml:8: 'stage.x.servers[0]': expected a string, found integer `1`",
        ]
    );
}

#[test]
fn what_has_no_default_is_asked_for() {
    assert_eq!(
        stage_complaints::<DnsFilter>("[chain]\nstages = ['x']\n[stage.x]\ntimeout = '1s'\n"),
        ["pipeline.toml:3: 'stage.x.servers' is not set, and has no default"]
    );
    assert_eq!(
        stage_complaints::<DnsFilter>("[chain]\nstages = ['x']\n"),
        ["pipeline.toml: 'stage.x.timeout' is not set, and has no default"]
    );
}

#[test]
fn every_problem_is_found_and_is_one_line() {
    let text = r#"
version = 2
wrokers = 2
[defaults]
high_mark = 10
workers = "two"
lease = 300
min-free = "5 G"
retry = { fist = "1s", max = 60 }
group = 64
scan = { every = "1s" }
[site]
contact = 7
[log]
level = "warning"
format = "syslog"
[metrics]
listen = "9464"
[stage]
x = 1
[stage.y]
attempts = -1
next = "z"
retry.limit = "1 fortnight"
"#;
    assert_eq!(
        complaints(text),
        [
            "pipeline.toml:2: 'version' is 2; this program reads version 1",
            "pipeline.toml:3: unknown key 'wrokers'; known here: access, alert, archive, chain, defaults, engine, hosts, log, metrics, site, stage, version",
            "pipeline.toml:5: unknown key 'defaults.high_mark'; did you mean 'high-mark'?",
            "pipeline.toml:6: 'defaults.workers': expected a whole number from 0 to 4294967295, found string \"two\"",
            "pipeline.toml:7: 'defaults.lease': the bare number 300 has no unit; write \"300s\", \"300m\" or \"300h\"",
            "pipeline.toml:8: 'defaults.min-free': \"5 G\" is not \"5%\" or a size such as \"1 GiB\"",
            "pipeline.toml:9: unknown key 'defaults.retry.fist'; did you mean 'first'?",
            "pipeline.toml:9: 'defaults.retry.max': the bare number 60 has no unit; write \"60s\", \"60m\" or \"60h\"",
            "pipeline.toml:10: 'defaults.group' is a table with the keys parcels, wait",
            "pipeline.toml:11: 'defaults.scan' is a value, not a table",
            "pipeline.toml:13: 'site.contact': expected a string, found integer `7`",
            "pipeline.toml:15: 'log.level': unknown value 'warning'; known here: error, warn, info, debug, trace",
            "pipeline.toml:16: 'log.format': unknown value 'syslog'; known here: auto, journald, json, text",
            "pipeline.toml:18: 'metrics.listen': \"9464\" is no address; write an address with a port such as \"127.0.0.1:9464\", or \"\"",
            "pipeline.toml:20: 'stage.x' is a table of settings",
            "pipeline.toml:22: 'stage.y.attempts': expected a whole number from 0 to 4294967295, found integer `-1`",
            "pipeline.toml:23: 'stage.y.next': expected an array, found string \"z\"",
            "pipeline.toml:24: 'stage.y.retry.limit': \"1 fortnight\" is not a duration such as \"90s\", \"10m\", \"6h\" or \"7d\"",
        ]
    );
}

#[test]
fn what_is_wrong_in_the_defaults_is_said_once() {
    let stages = "[chain]\nstages = ['a', 'b']\n[stage.a]\nattempts = 1\n[stage.b]\nworkers = 2\n";
    assert_eq!(
        complaints(&format!("[defaults]\nlease = 5\n{stages}")).len(),
        1
    );
    assert_eq!(
        complaints(&format!("[defaults]\nlow-mark = 10000\n{stages}")),
        ["pipeline.toml:2: 'defaults.low-mark': 10000 must be below high-mark, 10000"]
    );
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (text, complaint) in [
        (
            "[defaults]\nheartbeat = '2m'",
            "pipeline.toml:1: 'defaults.lease': 5m must be at least three times heartbeat, 2m",
        ),
        (
            "[defaults]\nworkers = 0",
            "pipeline.toml:2: 'defaults.workers': must be at least 1",
        ),
        (
            "[defaults]\nscan = '0s'",
            "pipeline.toml:2: 'defaults.scan': must not be zero",
        ),
        (
            "[defaults]\nretry.factor = 0.5",
            "pipeline.toml:2: 'defaults.retry.factor': 0.5 must be from 1.0 to 1000.0",
        ),
        (
            "[defaults]\nretry.factor = nan",
            "pipeline.toml:2: 'defaults.retry.factor': NaN must be from 1.0 to 1000.0",
        ),
        (
            "[defaults]\nretry.first = '2h'",
            "pipeline.toml:2: 'defaults.retry.max': 1h must not be shorter than retry.first, 2h",
        ),
        (
            "[chain]\nstages = ['a', 'b', 'a']",
            "pipeline.toml:2: stage 'a' stands in the chain twice",
        ),
        (
            "[chain]\nstages = ['Index']",
            "pipeline.toml:2: 'Index' cannot name a stage: names are a-z, then a-z, 0-9 and '-', at most 48 letters",
        ),
        (
            "[chain]\nstages = ['index']\n[stage.index]\nnext = ['trasnfer']",
            "pipeline.toml:4: 'stage.index.next': there is no stage 'trasnfer'; add it to chain.stages or give it a table",
        ),
        (
            "[chain]\nstages = ['index', 'transfer']\n[stage.index]\nnext = ['trasnfer']",
            "pipeline.toml:4: 'stage.index.next': there is no stage 'trasnfer'; did you mean 'transfer'?",
        ),
        (
            "[chain]\nstages = ['a', 'b']\n[stage.a]\nnext = ['b', 'b']",
            "pipeline.toml:4: 'stage.a.next' names 'b' twice",
        ),
        (
            "[chain]\nstages = ['a', 'b', 'c']\n[stage.c]\nnext = ['a']",
            "pipeline.toml:4: stages form a loop: a -> b -> c -> a; if that is meant, name 'a' in 'stage.c.back' instead of 'next'",
        ),
        // The edge to change is the one against the order, wherever the search came in.
        (
            "[chain]\nstages = ['x', 'a', 'b']\n[stage.x]\nnext = ['b']\n[stage.b]\nnext = ['a']",
            "pipeline.toml:6: stages form a loop: b -> a -> b; if that is meant, name 'a' in 'stage.b.back' instead of 'next'",
        ),
        (
            "[chain]\nstages = ['a']\n[stage.a]\nnext = ['a']",
            "pipeline.toml:4: stages form a loop: a -> a; if that is meant, name 'a' in 'stage.a.back' instead of 'next'",
        ),
        (
            "[alert]\nheld = { warn = 60 }",
            "pipeline.toml:2: 'alert.held': crit must not come before warn",
        ),
        (
            "[alert.free]\ncrit = '20%'",
            "pipeline.toml:2: 'alert.free': crit must not be more than warn",
        ),
        (
            "[metrics]\ntextfile = 'ecluse.prom'",
            "pipeline.toml:2: 'metrics.textfile': 'ecluse.prom' must be an absolute file name",
        ),
        (
            "[access]\nmain = 'Our web'",
            "pipeline.toml:2: 'access.main': 'Our web': write a name of a-z 0-9 and -",
        ),
        (
            "[access]\npublic = 'archive.example.org'",
            "pipeline.toml:2: 'access.public': 'archive.example.org': write scheme and host, such as \"https://archive.example.org\"",
        ),
        (
            "[access]\nreaders = 0",
            "pipeline.toml:2: 'access.readers': at least 1",
        ),
        (
            "[stage.indx]\nworkers = 2\n",
            "pipeline.toml:1: stage 'indx' has a table, but is not in the chain; did you mean 'index'?",
        ),
        (
            "[chain]\nstages = ['a', 'b']\n[stage.ca]\n",
            "pipeline.toml:3: stage 'ca' has a table, but is not in the chain; did you mean 'a'?",
        ),
        (
            "[stage.'a\\u001b[2J']",
            "pipeline.toml:1: 'a\\u001b[2J' cannot name a stage: names are a-z, then a-z, 0-9 and '-', at most 48 letters",
        ),
    ] {
        assert_eq!(complaints(text), [complaint], "{text}");
    }
}

#[test]
fn a_declared_loop_is_accepted() {
    let text = "[chain]\nstages = ['a', 'b', 'c']\n[stage.c]\nback = ['a']\n";
    assert_eq!(parse(text).check(), []);
}

#[test]
fn what_is_merely_odd_is_a_warning() {
    let pipeline = parse(
        "[chain]\nstages = ['index']\n[stage.merge]\n[metrics]\nlisten = '0.0.0.0:9464'\ntextfile = '/run/ecluse.txt'\n[access]\nlisten = '[::]:80'\n",
    );
    let warnings = pipeline.check();
    assert!(warnings.iter().all(|found| found.level == Level::Warning));
    let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "pipeline.toml:8: warning: 'access.listen': [::]:80 can be reached from other machines",
            "pipeline.toml:3: warning: stage 'merge' has a table, but is not in the chain",
            "pipeline.toml:5: warning: 'metrics.listen': 0.0.0.0:9464 can be reached from other machines",
            "pipeline.toml:6: warning: 'metrics.textfile': node_exporter reads *.prom only, not '/run/ecluse.txt'",
        ]
    );
}

#[test]
fn a_pipeline_put_together_in_rust_can_be_checked() {
    let mut pipeline = Pipeline::default();
    pipeline.defaults.low_mark = pipeline.defaults.high_mark;
    let found = pipeline.check();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "built-in: 'defaults.low-mark': 10000 must be below high-mark, 10000"
    );
    assert_eq!(found[0].key, "defaults.low-mark");
}

#[test]
fn the_effective_file_says_where_each_value_came_from() {
    let effective = parse(CHAIN).effective();
    let origin = |section: &str, key: &str| -> String {
        let section = effective.split_once(&format!("[{section}]\n")).unwrap().1;
        let line = section
            .lines()
            .find(|line| line.trim_start_matches("# ").starts_with(key))
            .unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        origin("defaults", "workers"),
        "workers = 2 # pipeline.toml:3"
    );
    assert_eq!(
        origin("defaults", "retry.max"),
        "retry.max = \"2h\" # pipeline.toml:4"
    );
    assert_eq!(origin("defaults", "attempts"), "attempts = 5 # built-in");
    assert_eq!(
        origin("stage.sluice", "workers"),
        "workers = 8 # pipeline.toml:16"
    );
    assert_eq!(
        origin("stage.sluice", "retry.max"),
        "retry.max = \"2h\" # [defaults], pipeline.toml:4"
    );
    assert_eq!(
        origin("stage.sluice", "attempts"),
        "attempts = 5 # [defaults], built-in"
    );
    assert_eq!(
        origin("stage.name-filter", "timeout"),
        "timeout = \"3s\" # pipeline.toml:11"
    );
    assert_eq!(
        origin("stage.name-filter", "next"),
        "# next = [\"sluice\"] # the order of the chain"
    );
}

#[test]
fn the_effective_file_is_the_same_configuration() {
    let odd = r#"
        [chain]
        stages = ["x"]
        [site]
        organization = "two\nlines \" and # more \u001b"
        [stage.x]
        "odd key" = { "a.b" = [1, { c = 2.5 }], empty = {} }
        when = 2026-11-16T20:00:00Z
    "#;
    for text in ["", SHIPPED, CHAIN, odd] {
        let pipeline = parse(text);
        let effective = pipeline.effective();
        assert_eq!(parse(&effective), pipeline, "{effective}");
        assert!(!effective.contains('\x1b'));
    }
    assert_eq!(parse(&Pipeline::default().effective()), Pipeline::default());
}

#[test]
fn the_file_asked_for_comes_first_then_the_roots_then_none() {
    let root = tempfile::tempdir().unwrap();
    let asked = Path::new("/somewhere/else.toml");
    assert_eq!(Pipeline::locate(None, root.path()), None);
    assert_eq!(
        Pipeline::locate(Some(asked), root.path()).as_deref(),
        Some(asked)
    );
    let in_root = root.path().join("pipeline.toml");
    fs::write(&in_root, "[defaults]\nworkers = 3\n").unwrap();
    let found = Pipeline::locate(None, root.path());
    assert_eq!(found.as_ref(), Some(&in_root));
    let pipeline = Pipeline::load(found.as_deref()).unwrap();
    assert_eq!(pipeline.defaults.workers, 3);
    assert_eq!(pipeline.file(), in_root.to_str().unwrap());
    assert_eq!(Pipeline::load(None).unwrap(), Pipeline::default());
    assert_eq!(Pipeline::load(None).unwrap().file(), "built-in");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test's own file")]
fn a_file_that_cannot_be_read_is_an_error_and_not_the_default() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("pipeline.toml");
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    let found = Pipeline::locate(None, root.path()).unwrap();
    let error = Pipeline::load(Some(&found)).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
    assert!(error.problems().is_empty());

    fs::remove_file(&path).unwrap();
    fs::write(&path, b"a = 1\nb = \"\xff\"\n").unwrap();
    let error = Pipeline::load(Some(&path)).unwrap_err().to_string();
    assert!(error.ends_with("line 2 is not UTF-8"), "{error}");

    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = Pipeline::load(Some(&path)).unwrap_err().to_string();
    assert!(error.ends_with("longer than 1048576 bytes"), "{error}");

    assert!(Pipeline::load(Some(root.path())).is_err());
}

#[test]
fn quantities_pass_through_json_too() {
    let json = serde_json::to_string(&(
        Bytes(1 << 30),
        Span::secs(90),
        Free::Percent(Percent::of(5)),
    ));
    let json = json.unwrap();
    assert_eq!(json, r#"["1 GiB","90s","5%"]"#);
    let back: (Bytes, Span, Free) = serde_json::from_str(&json).unwrap();
    assert_eq!(
        back,
        (
            Bytes(1 << 30),
            Span::secs(90),
            Free::Percent(Percent::of(5))
        )
    );
    let error = serde_json::from_str::<Span>("90").unwrap_err().to_string();
    assert!(error.contains(r#"write "90s""#), "{error}");
}

/// Whatever the text, there is a pipeline that renders to itself, or there are lines to show.
fn judge(text: &str) -> Result<(), TestCaseError> {
    match Pipeline::parse(text, "fuzz.toml") {
        Ok(pipeline) => {
            let again = Pipeline::parse(&pipeline.effective(), "again.toml");
            prop_assert!(again.is_ok_and(|again| again == pipeline));
            for stage in pipeline.stage_names() {
                let _ = pipeline.stage_settings::<DnsFilter>(stage);
            }
        }
        Err(error) => {
            prop_assert!(!error.problems().is_empty());
            for problem in error.problems() {
                prop_assert!(!problem.to_string().chars().any(char::is_control));
            }
        }
    }
    Ok(())
}

/// A value that is right for some key and wrong for most.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| toml::Value::Float(number).to_string()),
        (0u32..100, "(s|m|h|%| GiB| B||x)")
            .prop_map(|(number, unit)| format!("\"{number}{unit}\"")),
        ".{0,12}".prop_map(|text| toml::Value::String(text).to_string()),
        Just("['a', 'b']".to_owned()),
        Just("{ warn = 1, first = '1s', parcels = 2 }".to_owned()),
        Just("true".to_owned()),
        Just("2026-11-16".to_owned()),
    ]
}

fn document() -> impl Strategy<Value = String> {
    let section = "(site|defaults|chain|stage|stage\\.a|stage\\.b|alert|log|metrics|[a-z]{1,6})";
    let key = "(workers|attempts|retry\\.first|retry|lease|low-mark|min-free|group|stages|next|back|oldest|held|free\\.crit|level|listen|textfile|contact|timeout|servers|[a-z_]{1,8}|\"\\\\u001b\")";
    let line = prop_oneof![
        1 => section.prop_map(|name| format!("[{name}]\n")),
        4 => (key, value()).prop_map(|(key, value)| format!("{key} = {value}\n")),
    ];
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        judge(&text)?;
    }

    #[test]
    fn any_document_is_judged(text in document()) {
        judge(&text)?;
    }

    #[test]
    fn the_shipped_file_with_a_bite_taken_is_judged(at in 0..SHIPPED.len(), length in 0usize..40, with in "\\PC{0,4}") {
        let end = (at + length).min(SHIPPED.len());
        let bitten = format!("{}{with}{}", &SHIPPED[..at], &SHIPPED[end..]);
        judge(&bitten)?;
    }
}

#[test]
fn hosts_have_stages_that_there_are_and_files_of_one_machine_have_one_host() {
    let complaints = |hosts: &str, engine: &str| -> Vec<String> {
        let text = format!("[hosts]\n{hosts}\n{engine}");
        match Pipeline::parse(&text, "pipeline.toml") {
            Ok(_) => Vec::new(),
            Err(error) => error.problems().iter().map(ToString::to_string).collect(),
        }
    };
    let jetstream = "[engine]\nkind = \"jetstream\"\nservers = [\"nats://192.0.2.1\"]\nendpoint = \"http://192.0.2.2\"\n\
                     bucket = \"b\"\nkey-file = \"k\"\nsecret-file = \"s\"\n";
    for (hosts, engine, expected) in [
        (
            "alpha = [\"ingest\", \"index\"]\nbeta = [\"index\"]",
            jetstream,
            "",
        ),
        (
            "alpha = [\"ingest\"]\nbeta = [\"ingest\", \"merge\"]",
            "",
            "",
        ),
        ("alpha = [\"ingest\"]\nbeta = [\"ingest\"]", jetstream, ""),
        (
            "alpha = [\"merge\"]\nbeta = [\"index\", \"transfer\"]",
            jetstream,
            "pipeline.toml:3: 'hosts.beta': merge runs on alpha and not on beta, and both have stages that need the manifest: its \
             owner runs all of them; add merge to 'hosts.beta'",
        ),
        (
            "alpha = [\"merge\", \"plan\"]\nbeta = [\"merge\", \"transfer\"]\ngamma = [\"plan\"]",
            jetstream,
            "pipeline.toml:3: 'hosts.beta': transfer runs on beta and not on alpha, and both have stages that need the manifest: \
             its owner runs all of them; add transfer to 'hosts.alpha'",
        ),
        (
            "alpha = [\"indx\"]",
            "",
            "pipeline.toml:2: 'hosts.alpha': there is no stage 'indx'; did you mean 'index'?",
        ),
        (
            "alpha = [\"index\", \"index\"]",
            "",
            "pipeline.toml:2: 'hosts.alpha': names 'index' twice",
        ),
        (
            "\"A b\" = [\"index\"]",
            "",
            "pipeline.toml:2: 'hosts.\"A b\"': names of hosts are a-z, 0-9, '.' and '-', at most 63 letters",
        ),
    ] {
        let expected: Vec<&str> = Some(expected)
            .into_iter()
            .filter(|e| !e.is_empty())
            .collect();
        assert_eq!(complaints(hosts, engine), expected, "{hosts}");
    }
    assert_eq!(complaints("alpha = \"index\"", "").len(), 1);
    assert_eq!(complaints("alpha = [1]", "").len(), 1);
}

#[test]
fn files_in_a_store_are_not_collected_the_day_they_are_put() {
    let with = |age: &str| {
        let text = format!(
            "[engine]\nkind = \"jetstream\"\nservers = [\"nats://192.0.2.1\"]\nendpoint = \"http://192.0.2.2\"\n\
             bucket = \"b\"\nkey-file = \"k\"\nsecret-file = \"s\"\ncollect-after = \"{age}\"\n"
        );
        Pipeline::parse(&text, "pipeline.toml").map_err(|error| error.problems()[0].to_string())
    };
    assert!(with("1d").is_ok());
    let expected = "pipeline.toml:8: 'engine.collect-after': at least 1d: what is being put is not to be taken for what was left";
    assert_eq!(with("23h").err().as_deref(), Some(expected));
}

#[test]
fn crawlers_are_copies_and_what_cannot_work_is_said() {
    let with = |next: &str, beta: &str, gamma: &str| {
        let text = format!(
            "[stage.plan]\nnext = {next}\n[hosts]\nalpha = [\"plan\", \"ingest\"]\nbeta = {beta}\ngamma = {gamma}\n\
             [engine]\nkind = \"jetstream\"\nservers = [\"nats://n\"]\nendpoint = \"http://s\"\nbucket = \"b\"\n\
             key-file = \"k\"\nsecret-file = \"s\"\n"
        );
        match Pipeline::parse(&text, "p.toml") {
            Ok(pipeline) => {
                let problems = pipeline.check();
                let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
                said.join("\n")
            }
            Err(error) => error.problems()[0].to_string(),
        }
    };
    let both = r#"["crawl@beta", "crawl@gamma"]"#;
    let (beta, gamma) = (
        r#"["crawl@beta", "ingest@beta"]"#,
        r#"["crawl@gamma", "ingest@gamma"]"#,
    );
    let good = with(both, beta, gamma);
    assert!(
        !good.contains("crawl@") && !good.contains("jobs@"),
        "{good}"
    );
    for (said, expected) in [
        (
            with(both, beta, "[]"),
            // It runs on gamma without being named.
            "p.toml:6: warning: 'hosts.gamma': nobody sends the files of crawl@gamma to ingest: add \"ingest@gamma\"",
        ),
        (
            with(r#"["crawl@beta", "crawl@delta"]"#, beta, "[]"),
            "p.toml:2: warning: 'stage.plan.next': crawl@delta runs on no host: what it gets waits for ever; name it in 'hosts'",
        ),
        (
            with(r#"["crawl@beta"]"#, beta, gamma),
            "p.toml:6: warning: 'hosts.gamma': no stage gives anything to crawl@gamma: name it in the 'next' of the stage before crawl",
        ),
        (
            with(
                both,
                beta,
                r#"["crawl@gamma", "crawl@beta", "ingest@gamma"]"#,
            ),
            "p.toml:6: warning: 'hosts.gamma': of beta and gamma one owns the jobs@beta at a time and the other stands by",
        ),
        (
            with(both, r#"["crawl@beta", "ingest", "ingest@beta"]"#, gamma),
            "p.toml:5: 'hosts.beta': ingest takes in the files of this host; take its copy out",
        ),
        (
            with(both, r#"["crawl@beta", "craul@beta"]"#, gamma),
            "p.toml:5: 'hosts.beta': there is no stage 'craul@beta'",
        ),
    ] {
        assert!(said.contains(expected), "{expected}\nnot in\n{said}");
    }
    let pipeline = Pipeline::default();
    assert_eq!(pipeline.next_of("ingest@beta"), ["ingest"]);
    assert_eq!(pipeline.next_of("ingest"), ["index"]);
}

#[test]
fn a_host_has_what_is_named_and_its_own_copies() {
    let text = "[stage.ingest]\nnext = [\"index@beta\", \"index@gamma\"]\n\
                [hosts]\nalpha = [\"transfer\", \"ingest\", \"index@gamma\"]\nbeta = []\n";
    let pipeline = Pipeline::parse(text, "pipeline.toml").unwrap();
    let on = |host: &str| pipeline.stages_on(host);
    assert_eq!(on("alpha").unwrap(), ["ingest", "index@gamma", "transfer"]);
    assert_eq!(on("beta").unwrap(), ["index@beta"]);
    assert_eq!(on("gamma"), None);
    let warnings: Vec<String> = pipeline.check().iter().map(ToString::to_string).collect();
    let lost = "pipeline.toml:3: warning: 'hosts': merge runs on no host".to_owned();
    assert!(warnings.contains(&lost), "{warnings:?}");
    let again = Pipeline::parse(&pipeline.effective(), "effective").unwrap();
    assert_eq!(again, pipeline);
}
