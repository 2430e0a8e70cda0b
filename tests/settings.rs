//! Every setting turned away from its shipped value, and files taken through the whole chain with it.
//!
//! A key of pipeline.toml that no run below turns is a failure, so that a new one comes with its run. What a setting does is
//! looked for in its run; where it shows only at another level (memory, times, faults), [`SEEN_BELOW`] names the test that
//! sees it, and that test must be there.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ecluse_manifest::Manifest;
use ecluse_register::{HarvestResult, Register, RegisterDay, RegisterRecord, StopReason};
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::{Program, settle_environment, until_so};
use ecluse_testkit::web::{Web, html};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

/// Everything elsewhere and in small pieces; names, collections and proofs of another kind.
const ELSEWHERE: &str = r#"
[archive]
harvested = ["in/one", "in/two"]
repository = [{ name = "a", path = "shelf/a" }, { name = "b", path = "shelf/b" }]
index = "big"
manifest = "files.sqlite"
packages = "boxes"
[defaults]
workers = 2
attempts = 7
heartbeat = "1s"
lease = "5s"
scan = "200ms"
settle = "100ms"
high-mark = 500
low-mark = 100
min-free = "0 B"
keep-receipts = "1d"
grace = "10s"
retry = { first = "100ms", factor = 1.5, max = "500ms", limit = "1d" }
group = { parcels = 2, wait = "1m" }
batch = { parcels = 50, wait = "300ms" }
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package", "deposit"]
[stage.ingest]
ignore = [".draft.warc.gz"]
names = ['^(?<job>\d+)_(?<harvest>\d+)\.warc\.gz$']
metadata-names = ['^(?<job>\d+)_(?<harvest>\d+)_meta\.warc\.gz$']
other-names = "hold"
collections = [{ name = "elections", harvests = "9" }]
[stage.index]
format = "cdx11"
revisits = false
not-modified = true
dns = false
metadata = false
warc-fields = true
member = "1 MiB"
bomb = "1 GiB"
header = "64 KiB"
header-lines = 100
sort-memory = "1 B"
damages = 1
back = []
evidence-pages = 0
links = false
[stage.transfer]
choose = "round-robin"
leave-free = "0 B"
layout = "{harvest}/{job}"
[stage.backup]
targets = [
  { name = "one", kind = "directory", path = "copies/one", leave-free = "0 B" },
  { name = "two", kind = "directory", path = "copies/two", leave-free = "0 B" },
]
[stage.delete]
backups = 2
[stage.merge]
batch = { parcels = 50, wait = "300ms" }
back = []
memory = "2 MiB"
open-files = 2
[stage.bigmerge]
batch = { parcels = 50, wait = "300ms" }
keep = 1
spare = "0 B"
memory = "2 MiB"
recheck = true
zipnum = true
zipnum-lines = 2
zipnum-shard = "1 B"
[stage.clean]
batch = { parcels = 50, wait = "300ms" }
next = ["package"]
remove = true
backups = 2
every = "0s"
[stage.package]
when = "backed-up"
profile = "profile"
part-bytes = "1 B"
part-files = 1
fresh = "0s"
channel = "elsewhere"
naan = "12148"
shoulder = "bc6p0"
check-zone = "name"
ocfl = "objects"
[stage.deposit]
to = { kind = "directory", path = "taken", leave-free = "0 B" }
files-an-hour = 1000
ask-again = "1s"
receipts = "kept"
[alert]
oldest = { warn = "1h", crit = "2h" }
held = { warn = 0, crit = 1 }
free = { warn = "1 B", crit = "0 B" }
silent = { warn = "1h", crit = "2h" }
[log]
format = "json"
level = "debug"
[metrics]
listen = "127.0.0.1:0"
textfile = "/ROOT/figures/{stage}.prom"
"#;

/// A package with one document.
const PROFILE: &str = r#"
archive = "files"
[[file]]
path = "note.txt"
template = "note.txt"
media-type = "text/plain"
"#;

/// One machine's copy of index, and working copies that stay.
const KEPT: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.ingest]
next = ["index@alpha"]
[stage.index]
format = "cdx9"
[stage.transfer]
choose = "most-free"
leave-free = "1%"
layout = "{collection}"
[stage.delete]
working-copy = false
[stage.bigmerge]
spare = "0 B"
[stage.clean]
remove = true
"#;

/// Nothing is removed before the preservation repository has given receipts.
const RECEIPTED: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
[stage.delete]
requires-deposit = true
retry = { first = "1s", max = "1s" }
[stage.bigmerge]
spare = "0 B"
[stage.clean]
remove = true
requires-deposit = true
[stage.package]
when = "backed-up"
next = ["deposit"]
[stage.deposit]
next = ["clean"]
retry = { limit = "2d" }
to = { kind = "directory", path = "taken", leave-free = "0 B" }
"#;

/// The crawl.
const CRAWLED: &str = r#"
[site]
organization = "lock.example"
platform = "rehearsal"
contact = "keeper@lock.example"
[archive]
harvested = ["fresh"]
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.crawl]
next = ["ingest"]
back = []
workers = 1
attempts = 10
jobs = "orders"
digests = "seen.sqlite"
forced = "rules.toml"
pack-threads = 1
commit = "500ms"
active-queues = 10
frontier-memory = "8 MiB"
[stage.transfer]
leave-free = "0 B"
[stage.bigmerge]
spare = "0 B"
"#;

/// Lists of names, elsewhere and in small pieces.
const LISTED: &str = r#"
[archive]
register = "domains"
[defaults]
settle = "100ms"
min-free = "0 B"
[chain]
stages = ["preload", "checked"]
[stage.preload]
next = ["checked"]
batch = { parcels = 9, wait = "300ms" }
sources = "lists"
forced = "rules.toml"
reports = "told"
list = 2
line = "32 B"
memory = "1 MiB"
"#;

/// The archive served, bounded more narrowly.
const SERVED: &str = r#"
[access]
listen = "127.0.0.1:0"
public = "https://archive.lock.example"
title = "The lock keeper's web"
main = "lock"
policy = "before"
calendar = "changed"
rules = ["rules.aclj"]
default-rule = "block"
embargo = "before 20260101000001"
user-header = "X-Reader"
proxies = ["127.0.0.1"]
places = ["guest 127.0.0.1"]
tokens = "tokens"
staff = ["chief"]
download = "staff"
proxy = "127.0.0.1:0"
proxy-ca = "terminals"
proxy-date = "20260101000001"
wanted = "sources/selection/met.txt"
wanted-lines = 1
wabac = "worker"
readers = 1
connections = 1
patience = "2s"
scan-lines = 3
page-lines = 1
answer = "10 KiB"
rewrite = "1 KiB"
[defaults]
settle = "100ms"
min-free = "0 B"
[chain]
stages = ["preload", "checked"]
[stage.preload]
next = ["checked"]
batch = { parcels = 9, wait = "300ms" }
"#;

/// Waiting work, little room and nothing finished: each is more than these settings bear.
const ALERTED: &str = r#"
[defaults]
min-free = "0 B"
[chain]
stages = ["index", "transfer", "backup", "delete", "merge", "bigmerge", "clean"]
[alert]
oldest = { warn = "0s", crit = "0s" }
free = { warn = "100%", crit = "100%" }
silent = { warn = "0s", crit = "0s" }
"#;

/// Names that are asked of others, and followed.
const NAMED: &str = r#"
[site]
contact = "https://example.org/names"
[defaults]
settle = "100ms"
min-free = "0 B"
[chain]
stages = ["dns-filter", "taken"]
[stage.dns-filter]
next = ["taken"]
back = []
attempts = 3
retry = { first = "2s", factor = 1.0, max = "3s", limit = "1h" }
resolvers = ["192.0.2.1", "192.0.2.2"]
rate = 100
in-flight = 7
timeout = "400ms"
tries = 2
later = 0
allow-private = true
wildcards = false
name-servers = true
hints = "ours.txt"
redirects = true
forced = "rules.toml"
connections = 2
ports = [65001, 65002]
paces = "turns"
reports = "answers"
"#;

/// Harvests with small jobs, sizes by the other formula, and a perimeter.
const PLANNED: &str = r#"
[defaults]
min-free = "0 B"
[chain]
stages = ["plan", "orders"]
[stage.plan]
back = []
batch = { parcels = 9, wait = "300ms" }
harvests = "definitions"
forced = "rules.toml"
traps = "left-out.toml"
runs = "past"
news = "told"
keep = 1
history = 1
memory = "1 MiB"
check-ahead = "1d"
check-list = 2
[stage.plan.sizes]
method = "netarchivesuite"
quantile = 0.5
unknown = 70
object-bytes = 1000
complete-factor = 2
cut-factor = 4
[stage.plan.jobs]
domains = 2
objects = 400
ratio = 3
difference = 5
[stage.plan.perimeter]
threshold = 60
tlds = ["fr"]
tld = 10
countries = ["FR"]
country-file = "countries.mmdb"
address = 20
languages = ["fr"]
language = 20
links = 3
linked = 10
lists = ["librarians"]
list = 20
media-types = ["text/*"]
media = 10
"#;

/// Changes told elsewhere and summed up otherwise.
const CHANGED: &str = r#"
[archive]
changes = "known"
[defaults]
min-free = "0 B"
[chain]
stages = ["change"]
[stage.bigmerge]
back = []
[stage.change]
next = ["told"]
batch = { parcels = 9, wait = "300ms" }
keep = 1
document = "1 MiB"
norm = "example"
prior = "6h"
periods = 12
pattern-gap = "2d"
pattern-changes = 1
memory = "1 MiB"
advertisements = ["/spots/"]
words = "words.tsv"
[stage.told]
"#;

/// Ranks of another kind.
const RANKED: &str = r#"
[archive]
links = "ties"
[defaults]
settle = "100ms"
min-free = "0 B"
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "rank", "package"]
[stage.merge]
batch = { parcels = 50, wait = "300ms" }
[stage.rank]
next = ["package"]
attempts = 50
batch = { parcels = 50, wait = "300ms" }
keep = 1
kinds = ["embed"]
slice = 2
threads = 1
memory = "1 MiB"
damping = 0.5
dangling = "scale"
interest = "mean"
tolerance = 1e-3
sweeps = 7
inner = 1
[stage.rank.perimeter]
seeds = "chosen.txt"
seed = 2.0
tlds = ["example"]
tld = 0.5
foreign = -0.5
languages = ["fr"]
language = 1.0
countries = ["FR"]
address = 1.0
country-file = "countries.mmdb"
direction = "in"
decay = 0.25
"#;

/// Keys that have one value only.
const FIXED: [&str; 1] = ["version"];

/// Turned where there are servers: by the settings of `ecluse_testkit::servers`, in `tests/engine.rs`.
const WITH_SERVERS: [&str; 18] = [
    "engine.kind",
    "engine.moving",
    "engine.servers",
    "engine.replicas",
    "engine.ack-wait",
    "engine.endpoint",
    "engine.bucket",
    "engine.prefix",
    "engine.key-file",
    "engine.secret-file",
    "engine.collect-after",
    "engine.credentials",
    "engine.servers-ca",
    "engine.region",
    "engine.store-ca",
    "engine.scratch",
    "engine.scratch-limit",
    "engine.reconcile",
];

/// Turned where units are written, in `tests/units.rs`.
const FOR_UNITS: [&str; 1] = ["hosts"];

/// Turned where an index is built in ranges, in `tests/ranges.rs` and `stages/range`, whose contract has a stage after it.
const IN_RANGES: [&str; 4] = [
    "stage.bigmerge.ranges",
    "stage.bigmerge.ranges-from",
    "stage.range.memory",
    "stage.range.next",
];

/// Settings whose effect a run cannot see from outside, with the file and the test that sees it; `*` stands for the rest of a key.
const SEEN_BELOW: &[(&str, &str, &str)] = &[
    (
        "engine.kind",
        "tests/engine.rs",
        "the_same_files_give_the_same_archive_on_both_engines",
    ),
    (
        "engine.moving",
        "crates/testkit/tests/moving.rs",
        "killed_again_and_again_while_stages_move_nothing_is_lost_and_nothing_twice",
    ),
    (
        "hosts",
        "tests/units.rs",
        "a_host_has_the_units_of_its_stages_and_no_others",
    ),
    (
        "engine.replicas",
        "crates/engine/tests/contract.rs",
        "servers_that_cannot_carry_an_archive_are_refused",
    ),
    (
        "engine.replicas",
        "crates/engine/src/queue/tests.rs",
        "a_changed_setting_reaches_queues_that_are_there",
    ),
    (
        "engine.scratch-limit",
        "crates/engine/tests/contract.rs",
        "a_file_that_finds_no_room_in_the_scratch_directory_waits",
    ),
    (
        "engine.region",
        "crates/engine/tests/contract.rs",
        "requests_are_signed_for_the_region_of_the_settings",
    ),
    (
        "engine.credentials",
        "tests/engine.rs",
        "a_guarded_engine_carries_the_chain_and_what_is_wrong_is_refused_by_its_line",
    ),
    (
        "engine.servers-ca",
        "tests/engine.rs",
        "a_guarded_engine_carries_the_chain_and_what_is_wrong_is_refused_by_its_line",
    ),
    (
        "engine.store-ca",
        "tests/engine.rs",
        "a_guarded_engine_carries_the_chain_and_what_is_wrong_is_refused_by_its_line",
    ),
    (
        "engine.scratch",
        "tests/engine.rs",
        "a_guarded_engine_carries_the_chain_and_what_is_wrong_is_refused_by_its_line",
    ),
    (
        "engine.reconcile",
        "tests/engine.rs",
        "what_nobody_was_told_of_is_found_when_it_is_time_to_reconcile",
    ),
    (
        "engine.ack-wait",
        "crates/engine/tests/contract.rs",
        "of_a_zombie_and_its_heir_one_commits",
    ),
    (
        "engine.collect-after",
        "crates/engine/src/collect/tests.rs",
        "what_a_try_left_that_did_not_count_is_collected",
    ),
    (
        "defaults.scan",
        "crates/testkit/tests/faults.rs",
        "without_a_bell_the_directory_is_read_more_often",
    ),
    (
        "defaults.settle",
        "stages/ingest/tests/cli.rs",
        "a_file_that_came_before_is_taken_after_the_settle_time",
    ),
    (
        "defaults.high-mark",
        "stages/ingest/tests/cli.rs",
        "a_machine_over_its_limit_gets_nothing_while_another_has_room",
    ),
    (
        "defaults.low-mark",
        "crates/config/tests/pipeline.rs",
        "settings_that_contradict_each_other_are_refused",
    ),
    (
        "defaults.min-free",
        "crates/testkit/tests/faults.rs",
        "too_little_room_blocks_until_there_is_more",
    ),
    (
        "defaults.grace",
        "crates/testkit/tests/signals.rs",
        "work_that_outlasts_the_grace_is_given_back_untouched",
    ),
    (
        "defaults.retry.*",
        "crates/testkit/tests/contract.rs",
        "a_deferred_parcel_waits_longer_each_time_and_its_attempts_do_not_count",
    ),
    (
        "defaults.retry.limit",
        "crates/testkit/tests/contract.rs",
        "a_parcel_deferred_past_the_limit_is_held",
    ),
    (
        "defaults.batch.*",
        "stages/merge/tests/cli.rs",
        "as_many_as_make_a_batch_are_taken_though_none_has_waited",
    ),
    (
        "stage.crawl.attempts",
        "stages/crawl/tests/resume.rs",
        "killed_twenty_times_it_captures_the_same",
    ),
    (
        "stage.crawl.forced",
        "stages/crawl/tests/cli.rs",
        "what_was_forced_out_after_the_order_was_made_is_not_crawled",
    ),
    (
        "stage.crawl.commit",
        "stages/crawl/tests/resume.rs",
        "killed_twenty_times_it_captures_the_same",
    ),
    (
        "stage.crawl.active-queues",
        "crates/frontier/tests/frontier.rs",
        "queues_take_turns_and_sessions_give_everyone_a_place",
    ),
    (
        "stage.crawl.frontier-memory",
        "crates/frontier/src/store.rs",
        "filters_share_little_memory_and_small_runs_keep_theirs",
    ),
    (
        "stage.dns-filter.attempts",
        "stages/dns-filter/tests/kill.rs",
        "killed_two_hundred_times_it_gives_the_same_bytes",
    ),
    (
        "stage.dns-filter.retry.*",
        "stages/dns-filter/tests/cli.rs",
        "names_without_an_answer_are_asked_again_later_and_kept_in_the_end",
    ),
    (
        "stage.dns-filter.later",
        "stages/dns-filter/tests/cli.rs",
        "names_without_an_answer_are_asked_again_later_and_kept_in_the_end",
    ),
    (
        "stage.dns-filter.rate",
        "stages/dns-filter/src/resolver.rs",
        "no_more_is_asked_than_the_rate_allows",
    ),
    (
        "stage.dns-filter.back",
        "stages/dns-filter/tests/cli.rs",
        "where_names_lead_is_found_out_and_new_sites_go_back_to_preload",
    ),
    (
        "stage.dns-filter.reports",
        "stages/dns-filter/tests/cli.rs",
        "without_a_stage_after_it_the_results_lie_with_the_reports",
    ),
    (
        "stage.index.back",
        "stages/index/tests/cli.rs",
        "what_pages_tell_of_their_sites_goes_back",
    ),
    (
        "stage.index.links",
        "stages/index/tests/cli.rs",
        "what_captures_link_to_is_written_beside_their_lines",
    ),
    (
        "stage.merge.back",
        "stages/merge/tests/cli.rs",
        "the_links_of_the_day_go_to_those_who_ask_for_them",
    ),
    (
        "stage.rank.attempts",
        "stages/rank/tests/cli.rs",
        "killed_at_any_moment_it_goes_on_to_the_same_bytes",
    ),
    (
        "stage.rank.memory",
        "stages/rank/tests/cli.rs",
        "killed_at_any_moment_it_goes_on_to_the_same_bytes",
    ),
    (
        "stage.rank.slice",
        "stages/rank/tests/cli.rs",
        "ranks_are_those_of_the_sheet_and_sites_the_sum_of_their_pages",
    ),
    (
        "stage.rank.threads",
        "stages/rank/src/oracles.rs",
        "ranks_are_those_of_the_definition",
    ),
    (
        "stage.rank.inner",
        "stages/rank/src/oracles.rs",
        "ranks_are_those_of_the_definition",
    ),
    (
        "stage.rank.interest",
        "stages/rank/src/oracles.rs",
        "interests_are_those_of_the_sheet",
    ),
    (
        "stage.rank.perimeter.language*",
        "stages/rank/tests/cli.rs",
        "texts_languages_and_addresses_count_for_pages_and_sites",
    ),
    (
        "stage.rank.perimeter.countr*",
        "stages/rank/tests/cli.rs",
        "texts_languages_and_addresses_count_for_pages_and_sites",
    ),
    (
        "stage.rank.perimeter.address",
        "stages/rank/tests/cli.rs",
        "texts_languages_and_addresses_count_for_pages_and_sites",
    ),
    (
        "stage.change.words",
        "stages/change/tests/cli.rs",
        "words_of_a_list_are_counted",
    ),
    (
        "stage.index.evidence-pages",
        "stages/index/tests/cli.rs",
        "what_pages_tell_of_their_sites_goes_back",
    ),
    (
        "stage.bigmerge.back",
        "stages/bigmerge/tests/cli.rs",
        "what_came_in_is_told_to_the_stages_in_back",
    ),
    (
        "access.calendar",
        "crates/access/tests/serve/history.rs",
        "the_calendar_shows_captures_at_which_enough_has_changed",
    ),
    (
        "stage.change.keep",
        "stages/change/tests/cli.rs",
        "a_collection_has_changes_of_its_own",
    ),
    (
        "stage.change.document",
        "stages/change/tests/cli.rs",
        "settings_say_how_changes_are_read",
    ),
    (
        "stage.change.prior",
        "stages/change/tests/cli.rs",
        "settings_say_how_changes_are_read",
    ),
    (
        "stage.change.memory",
        "stages/change/src/lib.rs",
        "settings_are_the_arithmetics",
    ),
    (
        "stage.change.advertisements",
        "stages/change/tests/cli.rs",
        "settings_say_how_changes_are_read",
    ),
    (
        "stage.plan.check-ahead",
        "stages/plan/tests/recheck.rs",
        "long_before_a_broad_harvest_nothing_is_asked",
    ),
    (
        "stage.plan.check-list",
        "stages/plan/tests/recheck.rs",
        "names_not_asked_lately_and_names_denied_once_are_asked_again_and_the_run_waits_for_them",
    ),
    (
        "stage.plan.news",
        "stages/plan/tests/cli.rs",
        "what_comes_into_the_register_is_kept",
    ),
    (
        "stage.index.member",
        "stages/index/src/settings.rs",
        "every_limit_is_the_readers_or_the_sorters",
    ),
    (
        "stage.index.header",
        "stages/index/src/settings.rs",
        "every_limit_is_the_readers_or_the_sorters",
    ),
    (
        "stage.index.header-lines",
        "stages/index/tests/cli.rs",
        "ten_thousand_header_lines_are_damage",
    ),
    (
        "stage.index.damages",
        "stages/index/src/settings.rs",
        "every_limit_is_the_readers_or_the_sorters",
    ),
    (
        "stage.index.bomb",
        "stages/index/tests/cli.rs",
        "a_well_formed_bomb_is_held_with_its_place",
    ),
    (
        "stage.index.sort-memory",
        "stages/index/src/settings.rs",
        "every_limit_is_the_readers_or_the_sorters",
    ),
    (
        "stage.transfer.leave-free",
        "stages/transfer/tests/cli.rs",
        "a_full_location_waits_and_says_so",
    ),
    (
        "stage.delete.backups",
        "stages/delete/tests/cli.rs",
        "a_proof_that_differs_or_is_missing_is_held",
    ),
    (
        "stage.merge.memory",
        "stages/merge/src/lib.rs",
        "the_limits_are_those_of_the_merge",
    ),
    (
        "stage.merge.open-files",
        "stages/merge/tests/cli.rs",
        "a_day_is_the_sorted_sum_of_its_pieces_whatever_their_number",
    ),
    (
        "stage.bigmerge.memory",
        "stages/bigmerge/src/lib.rs",
        "the_limits_are_those_of_the_merge",
    ),
    (
        "stage.bigmerge.ranges",
        "tests/ranges.rs",
        "any_number_of_workers_makes_the_bytes_that_one_makes",
    ),
    (
        "stage.bigmerge.ranges-from",
        "tests/ranges.rs",
        "any_number_of_workers_makes_the_bytes_that_one_makes",
    ),
    (
        "stage.range.memory",
        "stages/range/src/lib.rs",
        "the_limit_is_that_of_the_merge",
    ),
    (
        "stage.bigmerge.spare",
        "stages/bigmerge/tests/cli.rs",
        "without_room_it_waits_and_says_both_figures",
    ),
    (
        "stage.bigmerge.recheck",
        "stages/bigmerge/tests/cli.rs",
        "many_days_are_merged_in_rounds_and_rechecked",
    ),
    (
        "stage.clean.backups",
        "stages/clean/tests/cli.rs",
        "no_setting_lets_a_file_go_without_a_backup",
    ),
    (
        "stage.clean.every",
        "stages/clean/tests/cli.rs",
        "a_file_that_no_row_accounts_for_is_counted_at_the_second_sight",
    ),
    (
        "stage.package.part-*",
        "stages/package/tests/cli.rs",
        "a_large_job_has_parts",
    ),
    (
        "stage.package.fresh",
        "stages/package/tests/cli.rs",
        "only_what_is_safe_is_packed",
    ),
    (
        "stage.preload.memory",
        "stages/preload/src/lib.rs",
        "the_limits_are_those_of_the_run",
    ),
    (
        "stage.backup.targets (s3)",
        "stages/backup/tests/s3.rs",
        "files_of_every_size_are_put_and_read_back",
    ),
    (
        "stage.backup.targets (command)",
        "stages/backup/tests/cli.rs",
        "every_target_gets_a_copy_and_gives_a_proof",
    ),
];

/// The values of a document by their whole keys; an array is one value.
fn leaves(text: &str) -> BTreeMap<String, toml::Value> {
    fn walk(table: &toml::Table, path: &str, found: &mut BTreeMap<String, toml::Value>) {
        for (key, value) in table {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match value {
                // A table without keys is a value: its keys are for the file to choose.
                toml::Value::Table(table) if !table.is_empty() => walk(table, &path, found),
                value => drop(found.insert(path, value.clone())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&text.parse().unwrap(), "", &mut found);
    found
}

#[test]
fn every_documented_setting_is_turned_in_a_run_below() {
    let runs = [
        ELSEWHERE, KEPT, RECEIPTED, CRAWLED, LISTED, SERVED, ALERTED, NAMED, PLANNED, CHANGED,
        RANKED,
    ]
    .map(leaves);
    let is_turned = |key: &String, shipped: &toml::Value| {
        let mut values = runs.iter().filter_map(|run| run.get(key));
        values.any(|value| value != shipped)
    };
    let mut forgotten: Vec<String> = leaves(ecluse_config::SHIPPED)
        .into_iter()
        .filter(|(key, value)| !is_turned(key, value))
        .map(|(key, _)| key)
        .collect();
    let elsewhere = FIXED
        .iter()
        .chain(&WITH_SERVERS)
        .chain(&FOR_UNITS)
        .chain(&IN_RANGES);
    let elsewhere: Vec<&str> = elsewhere.copied().collect();
    forgotten.retain(|key| !elsewhere.contains(&key.as_str()));
    assert_eq!(forgotten, [""; 0], "no run turns these");
}

#[test]
fn what_no_run_can_see_is_seen_by_a_test_that_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = leaves(ecluse_config::SHIPPED);
    for (key, file, test) in SEEN_BELOW {
        let key = key.split(' ').next().unwrap_or(key);
        let is_it = |known: &String| match key.strip_suffix('*') {
            Some(beginning) => known.starts_with(beginning),
            None => known == key,
        };
        assert!(shipped.keys().any(is_it), "{key} is no setting");
        let text = text_of(&root.join(file));
        assert!(
            text.contains(&format!("fn {test}(")),
            "{key}: no {test} in {file}"
        );
    }
}

#[test]
fn changes_are_told_where_and_as_the_settings_say() {
    let archive = Archive::new(CHANGED);
    fs::write(archive.path("words.tsv"), "lock\t5\n").unwrap();
    let line = |time: &str, digest: &str| {
        format!(
            "example,lock)/ {time} {{\"url\": \"http://lock.example/\", \"mime\": \"text/html\", \"status\": \"200\", \
             \"digest\": \"sha1:{digest}\", \"length\": \"9\", \"offset\": \"0\", \"filename\": \"a.warc\"}}\n"
        )
    };
    let lines = line("20260105100000", "A") + &line("20260105110000", "B");
    let file = archive.path("captures.cdxj");
    fs::write(&file, lines).unwrap();
    let output = archive.ecluse(&["give", "change", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    archive.stage("change", 0);
    let known = archive.path("known/current");
    let patterns = ecluse_changes::RecordReader::<ecluse_changes::PagePattern>::open(&known);
    let pattern = patterns.unwrap().next().unwrap().unwrap();
    assert_eq!(pattern.sums.periods(), 12);
    // Nothing could be read: it counts as written anew, which is 1 by this sum.
    let sums = pattern.sums.class(ecluse_changes::DayClass::Weekday)[5];
    assert_eq!((sums.changed, sums.gain), (1_000_000, 1_000_000));
    let pages = ecluse_changes::RecordReader::<ecluse_changes::PageChanges>::open(&known);
    let page = pages.unwrap().next().unwrap().unwrap();
    assert_eq!(page.pattern, Some(ecluse_changes::PatternOf::Page));
}

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        let settings = settings.replace("/ROOT", root);
        fs::write(dir.path().join("pipeline.toml"), settings).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command.output().unwrap()
    }

    /// Runs one stage until nothing is left; returns what was said.
    fn stage(&self, stage: &str, expected: i32) -> String {
        let output = self.ecluse(&["run", "--once", stage]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(expected), "{stage}: {said}");
        said
    }

    fn harvest(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = self.path("draft.tmp");
        fs::write(&draft, bytes).unwrap();
        fs::rename(&draft, path).unwrap();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The files below a directory, by their paths in it, sorted.
fn below(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut stack = vec![top.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            } else {
                let path = entry.path();
                found.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn record(kind: &str, uri: &str, content_type: &str, block: &str) -> String {
    let profile = match kind {
        "revisit" => {
            "WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest\r\n"
        }
        _ => "",
    };
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:{kind}-{}>\r\n{profile}Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        uri.len(),
        block.len()
    )
}

/// The metadata of a job that wrote nothing, as its list says.
fn job_metadata() -> Vec<u8> {
    let http = "application/http; msgtype=response";
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
    let list = "metadata://lock.example/crawl/reports/archivefiles-report.txt?harvestid=9&jobid=8";
    pack(&[
        record("response", "http://job.example/page", http, page),
        record(
            "resource",
            list,
            "text/plain",
            "[ARCHIVEFILE] [Opened] [Closed] [Size]\n",
        ),
    ])
}

/// A file with one record of each kind that a setting is about.
fn warc(host: &str) -> Vec<u8> {
    let http = "application/http; msgtype=response";
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
    pack(&[
        record("response", &format!("http://{host}/page"), http, page),
        record("revisit", &format!("http://{host}/again"), http, page),
        record(
            "response",
            &format!("dns:{host}"),
            "text/dns",
            "20260102030405\n",
        ),
        record(
            "metadata",
            &format!("http://{host}/said"),
            "text/plain",
            "said",
        ),
        record(
            "resource",
            &format!("http://{host}/fields"),
            "application/warc-fields",
            "a: b\r\n",
        ),
    ])
}

fn pack(records: &[String]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut file = Vec::new();
    for record in records {
        let mut packed = vec![0; compressor.gzip_compress_bound(record.len())];
        let bytes = compressor
            .gzip_compress(record.as_bytes(), &mut packed)
            .unwrap();
        file.extend(&packed[..bytes]);
    }
    file
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lists in the layout of CDX that wait for transfer.
fn cdx_lists(archive: &Archive) -> Vec<String> {
    let waiting = archive.path("work/transfer/ready");
    let lists = below(&waiting).into_iter();
    let lists = lists.filter(|name| name.ends_with(".cdx"));
    lists.map(|name| text_of(&waiting.join(name))).collect()
}

#[test]
fn receipts_come_before_removals() {
    let archive = Archive::new(RECEIPTED);
    let name = "8-9-metadata-1.warc.gz";
    archive.harvest(&format!("harvested/{name}"), &job_metadata());
    let first = archive.ecluse(&[
        "run", "--once", "ingest", "index", "transfer", "backup", "delete",
    ]);
    assert_eq!(first.status.code(), Some(75), "{}", said(&first));
    let status = said(&archive.ecluse(&["status"]));
    assert!(status.contains("has given no receipt for 8-9"), "{status}");
    until_so("the file is handed over, then removed", || {
        let run = archive.ecluse(&["run", "--once"]);
        assert!(matches!(run.status.code(), Some(0 | 75)), "{}", said(&run));
        !archive.path("harvested").join(name).exists()
    });
    assert_eq!(
        below(&archive.path("taken")),
        below(&archive.path("packages"))
    );
    let manifest = Manifest::open(&archive.path("manifest.sqlite"), archive.dir.path()).unwrap();
    let mut receipted = None;
    manifest
        .each_deposit(&mut |file| {
            if file.key.file == name {
                receipted = file.receipted;
            }
        })
        .unwrap();
    let record = manifest.record(name).unwrap().unwrap();
    assert!(record.times.deleted >= receipted && receipted.is_some());

    // Where nobody gives receipts, or none can come, that is said.
    let settings = RECEIPTED.replace("when = \"backed-up\"", "");
    fs::write(archive.path("pipeline.toml"), settings).unwrap();
    let check = said(&archive.ecluse(&["check"]));
    assert!(check.contains("delete would wait for ever"), "{check}");
    let settings = RECEIPTED.replace("to = {", "# to = {");
    fs::write(archive.path("pipeline.toml"), settings).unwrap();
    let check = said(&archive.ecluse(&["check"]));
    assert!(check.contains("nobody gives receipts"), "{check}");
}

#[test]
fn everything_elsewhere() {
    let archive = Archive::new(ELSEWHERE);
    fs::create_dir(archive.path("figures")).unwrap();
    fs::create_dir(archive.path("profile")).unwrap();
    fs::write(archive.path("profile/profile.toml"), PROFILE).unwrap();
    let template = "{{ job.name }} by {{ job.channel }}: {{ package.id }}\n";
    fs::write(archive.path("profile/note.txt"), template).unwrap();
    let chain = [
        "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package", "deposit",
    ];
    for number in 0..4 {
        archive.harvest(
            &format!("in/one/{number}_3.warc.gz"),
            &warc(&format!("h{number}.example")),
        );
    }
    archive.harvest("in/two/7_9.warc.gz", &warc("vote.example"));
    archive.harvest("in/two/8_9_meta.warc.gz", &job_metadata());
    archive.harvest("in/two/odd.warc.gz", &warc("odd.example"));
    archive.harvest("in/one/5_3.draft.warc.gz", &warc("draft.example"));

    let log = archive.stage("ingest", 65);
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(
        lines
            .iter()
            .any(|line| line.to_lowercase().contains("\"debug\"")),
        "{log}"
    );
    let held = below(&archive.path("work/ingest/held"));
    assert!(!held.is_empty(), "other-names = hold");
    let check = archive.ecluse(&["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", said(&check));
    assert!(
        said(&check).contains("critical: 1 held"),
        "{}",
        said(&check)
    );

    archive.stage("index", 0);
    let lists = cdx_lists(&archive);
    assert_eq!(lists.len(), 6);
    for list in lists {
        let fields = list.lines().filter(|line| !line.starts_with(" CDX"));
        let fields: Vec<usize> = fields.map(|line| line.split(' ').count()).collect();
        assert_eq!(fields, [11, 11], "{list}");
        assert!(list.lines().is_sorted(), "in pieces of one line: {list}");
    }
    groups(&archive);
    for stage in chain {
        archive.stage(stage, 0);
    }
    assert_eq!(below(&archive.path("taken")), below(&archive.path("boxes")));
    assert!(!below(&archive.path("kept")).is_empty());
    let stored: Vec<Vec<String>> = ["shelf/a", "shelf/b"]
        .iter()
        .map(|place| below(&archive.path(place)))
        .collect();
    assert!(
        stored.iter().all(|files| !files.is_empty()),
        "each in its turn: {stored:?}"
    );
    let mut stored: Vec<String> = stored.concat();
    stored.sort();
    let expected = [
        "3/0/0_3.warc.gz",
        "3/1/1_3.warc.gz",
        "3/2/2_3.warc.gz",
        "3/3/3_3.warc.gz",
        "9/7/7_9.warc.gz",
        "9/8/8_9_meta.warc.gz",
    ];
    assert_eq!(stored, expected, "folders by harvest and job");
    for place in ["copies/one", "copies/two"] {
        assert_eq!(below(&archive.path(place)).len(), 6, "{place}");
    }
    let index = text_of(&archive.path("big/current/index.cdxj"));
    assert_eq!(index.lines().count(), 8, "{index}");
    for (word, expected) in [
        ("/page ", 4),
        ("/fields ", 4),
        ("/again ", 0),
        ("/said ", 0),
        ("dns:", 0),
    ] {
        assert_eq!(index.matches(word).count(), expected, "{word}: {index}");
    }
    assert_eq!(
        text_of(&archive.path("big/elections/current/index.cdxj"))
            .lines()
            .count(),
        4
    );
    let current = below(&archive.path("big/current").canonicalize().unwrap());
    assert!(current.contains(&"index.idx".to_owned()), "{current:?}");
    let summary = text_of(&archive.path("big/current/index.idx"));
    assert!(
        summary.lines().count() >= 4,
        "two lines a member: {summary}"
    );
    let shards = current.iter().filter(|name| name.starts_with("index-"));
    assert!(shards.count() > 1, "zipnum-shard: {current:?}");
    assert!(archive.path("files.sqlite").is_file() && !archive.path("manifest.sqlite").exists());
    assert_eq!(
        below(&archive.path("in")),
        ["one/5_3.draft.warc.gz", "two/odd.warc.gz"],
        "what is safe is removed, and nothing else"
    );
    assert!(
        !below(&archive.path("figures")).is_empty(),
        "figures are written"
    );

    let note = text_of(&archive.path("boxes/8-9/data/note.txt"));
    assert!(
        note.starts_with("8 by elsewhere: ark:/12148/bc6p0"),
        "{note}"
    );
    assert_eq!(
        below(&archive.path("boxes/8-9/data/files")),
        ["8_9_meta.warc.gz"]
    );
    for package in ["boxes/8-9", "objects"] {
        let valid = archive.ecluse(&["validate", archive.path(package).to_str().unwrap()]);
        assert_eq!(valid.status.code(), Some(0), "{}", said(&valid));
    }

    archive.harvest("in/one/4_3.warc.gz", &warc("late.example"));
    for stage in ["ingest", "index"].iter().chain(&chain) {
        archive.stage(stage, 0);
    }
    let generations = fs::read_dir(archive.path("big/generations")).unwrap();
    assert_eq!(generations.count(), 1, "one generation stays");
    let index = text_of(&archive.path("big/current/index.cdxj"));
    assert_eq!(index.lines().count(), 10, "{index}");

    // A name that is taken is refused at the door, and so is a file that was never taken in.
    fs::create_dir(archive.path("given")).unwrap();
    for (name, told) in [
        ("4_3.warc.gz", "is in the archive with other bytes"),
        ("6_3.warc.gz", "new files are taken in by ingest"),
    ] {
        let file = archive.path("given").join(name);
        fs::write(&file, warc("other.example")).unwrap();
        let given = archive.ecluse(&["give", "index", file.to_str().unwrap()]);
        assert_eq!(given.status.code(), Some(64), "{}", said(&given));
        assert!(said(&given).contains(told), "{}", said(&given));
    }
    let waiting = fs::read_dir(archive.path("work/index/ready")).unwrap();
    assert_eq!(waiting.count(), 0);
    heartbeat_and_lease(&archive);
    keep_receipts(&archive, "transfer");
}

#[test]
fn ranks_of_another_kind() {
    let archive = Archive::new(RANKED);
    fs::write(archive.path("chosen.txt"), "http://x.test/\n").unwrap();
    let http = "application/http; msgtype=response";
    let page =
        |links: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{links}</p>");
    let chain = [
        "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "rank",
    ];
    let take = |job: u32, links: &str| {
        let file = pack(&[record("response", "http://a.example/", http, &page(links))]);
        let name = format!("harvested/{job}-3-20261116120000000-00000-h.warc.gz");
        archive.harvest(&name, &file);
        chain.map(|stage| archive.stage(stage, 0))
    };
    take(
        1,
        "<img src=http://x.test/><a href=http://no.example/>no</a>",
    );
    take(
        2,
        "<img src=http://x.test/><img src=/i><a href=http://no.example/>no</a>",
    );
    let generations = fs::read_dir(archive.path("ties/generations")).unwrap();
    assert_eq!(generations.count(), 1, "one generation stays");
    let mut ranks = ecluse_links::LinksDirectory::at(&archive.path("ties"))
        .unwrap()
        .ranks()
        .unwrap()
        .unwrap();
    let mut found = Vec::new();
    while let Some(record) = ranks.next_record().unwrap() {
        let round = |number: f32| (number * 1e3).round() / 1e3;
        found.push((
            record.url.to_owned(),
            round(record.rank),
            round(record.relevance),
        ));
    }
    // a links to i and x, which link to nothing: ranks are r(1-c), and r(1-c) + rc/2 of a's.
    assert_eq!(found.len(), 3, "only what is embedded counts: {found:?}");
    assert_eq!(found[0].0, "http://a.example/");
    assert_eq!(found[1].0, "http://a.example/i");
    assert!(found[1].1 > found[0].1 && found[1].1 == found[2].1);
    let sum: f32 = found.iter().map(|(_, rank, _)| rank).sum();
    assert!((sum - 1.0).abs() < 0.01);
    // 0.5 for its last label, an eighth of a's 0.5 for the link; the seed is as relevant as anything.
    let relevance = found.iter().map(|(_, _, relevance)| *relevance);
    let relevance: Vec<f32> = relevance.collect();
    assert_eq!(relevance[..2], [0.5, 0.563], "{found:?}");
    assert_eq!(
        relevance[2], 1.563,
        "2 for the seed, -0.5 for its last label"
    );
}

#[test]
fn alerts_of_another_kind() {
    let archive = Archive::new(ALERTED);
    fs::create_dir_all(archive.path("given")).unwrap();
    let file = archive.path("given/a.warc.gz");
    fs::write(&file, warc("a.example")).unwrap();
    for name in ["index", "transfer"] {
        fs::create_dir_all(archive.path("work").join(name)).unwrap();
    }
    let tree = ecluse_spool::WorkTree::open(&archive.path("work"));
    tree.init("index").unwrap();
    let gift = ecluse_spool::Gift::default();
    tree.give("index", &file, &gift).unwrap();
    archive.stage("index", 0);
    fs::rename(&file, archive.path("given/b.warc.gz")).unwrap();
    tree.give("index", &archive.path("given/b.warc.gz"), &gift)
        .unwrap();
    let check = archive.ecluse(&["check"]);
    let said = said(&check);
    assert_eq!(check.status.code(), Some(2), "{said}");
    for words in [
        " free\n",
        "index: the oldest has waited",
        "index: finished nothing for",
    ] {
        let told = said
            .lines()
            .any(|line| line.starts_with("critical: ") && format!("{line}\n").contains(words));
        assert!(told, "{words}: {said}");
    }
}

/// Two receipts a commit: those of six parcels of one worker were one commit as shipped.
fn groups(archive: &Archive) {
    let output = archive.ecluse(&["run", "--once", "--workers", "1", "transfer"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let receipts = archive.path("work/transfer/receipts");
    let together = below(&receipts)
        .into_iter()
        .map(|name| text_of(&receipts.join(name)).lines().count());
    let together: Vec<usize> = together.collect();
    assert_eq!(together, [2; 6], "receipts on a sheet");
}

/// Old receipts are found in the ledger after a while: a day, not the 90 as shipped.
fn keep_receipts(archive: &Archive, stage: &str) {
    let work = archive.path("work").join(stage);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 86_400);
    let names = below(&work.join("receipts"));
    for name in &names {
        let file = fs::File::open(work.join("receipts").join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    assert!(!names.is_empty());
    let mut command = Command::new(ECLUSE);
    settle_environment(&mut command);
    command.arg("--root").arg(archive.dir.path());
    command.args(["run", stage]);
    let mut program = Program::start(command);
    until_so("the first receipts are in the ledger", || {
        program.must_live();
        below(&work.join("receipts")).len() < names.len()
    });
    assert_eq!(program.stop(), 0, "{}", program.log());
    let ledger = below(&work.join("ledger"));
    assert!(
        ledger.iter().any(|name| name.ends_with(".index")),
        "{ledger:?}"
    );
}

/// Puts two parcels where a dead worker left them, which was the sixth to die with the first and the seventh with the second.
fn in_hand_of_the_dead(archive: &Archive, worker: &Path) -> [String; 2] {
    ["20", "21"].map(|job| {
        archive.harvest(
            &format!("in/one/{job}_3.warc.gz"),
            &warc(&format!("h{job}.example")),
        );
        archive.stage("ingest", 0);
        archive.stage("index", 0);
        let ready = archive.path("work/transfer/ready");
        let entry = fs::read_dir(&ready).unwrap().next().unwrap().unwrap();
        let name = entry.file_name().into_string().unwrap();
        let stem = name.strip_suffix("~0").unwrap().to_owned();
        let attempts = if job == "20" { 6 } else { 7 };
        let hand = worker.join("in").join(format!("{stem}~{attempts}"));
        fs::rename(entry.path(), hand).unwrap();
        stem
    })
}

/// With the shipped values neither would be seen while a test waits.
fn heartbeat_and_lease(archive: &Archive) {
    let start = |host: &str| {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(archive.dir.path());
        command.args(["run", "transfer"]).env("ECLUSE_HOST", host);
        Program::start(command)
    };
    let workers = || -> Vec<PathBuf> {
        let claim = fs::read_dir(archive.path("work/transfer/claim")).unwrap();
        claim.map(|entry| entry.unwrap().path()).collect()
    };
    let are_from = |workers: &[PathBuf], host: &str| {
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        workers.iter().all(|path| name(path).starts_with(host))
    };
    let far = start("far");
    until_so("two workers", || {
        far.must_live();
        workers().len() == 2
    });
    let lease = workers()[0].join(".lease");
    let beat = || lease.metadata().and_then(|meta| meta.modified()).unwrap();
    let first = beat();
    until_so("a heartbeat", || beat() != first);
    drop(far);
    assert_eq!(workers().len(), 2, "left by the dead");
    let begun = in_hand_of_the_dead(archive, &workers()[0]);
    let mut near = start("near");
    until_so("the lease of another host's workers is over", || {
        near.must_live();
        workers().len() == 2 && are_from(&workers(), "near-")
    });
    // With five, as shipped, both were held.
    let held = || {
        let held = fs::read_dir(archive.path("work/transfer/held")).unwrap();
        held.map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    until_so("one is held and one is stored", || {
        near.must_live();
        held().len() == 1 && below(&archive.path("work/backup/ready")).len() > 1
    });
    assert_eq!(held(), [format!("{}~7", begun[1])], "attempts = 7");
    assert_eq!(near.stop(), 0, "{}", near.log());
}

#[test]
fn an_instance_and_working_copies_that_stay() {
    let archive = Archive::new(KEPT);
    archive.harvest(
        "harvested/12-3-20261116120000000-00000-h.warc.gz",
        &warc("h.example"),
    );
    archive.stage("ingest", 0);
    archive.stage("index@alpha", 0);
    let lists = cdx_lists(&archive);
    let fields = lists[0].lines().filter(|line| !line.starts_with(" CDX"));
    let fields: Vec<usize> = fields.map(|line| line.split(' ').count()).collect();
    assert_eq!(fields, [9; 4], "{lists:?}");
    for stage in ["transfer", "backup", "delete"] {
        archive.stage(stage, 0);
    }
    let waiting = below(&archive.path("work/merge/ready"));
    assert!(
        waiting.iter().any(|name| name.ends_with(".warc.gz")),
        "{waiting:?}"
    );
    for stage in ["merge", "bigmerge", "clean"] {
        archive.stage(stage, 0);
    }
    let stored = below(&archive.path("repository"));
    assert_eq!(stored, ["unknown/12-3-20261116120000000-00000-h.warc.gz"]);
    assert_eq!(
        text_of(&archive.path("index/current/index.cdxj"))
            .lines()
            .count(),
        4
    );
    // Its working copy was not deleted, so that one proof is missing.
    assert_eq!(below(&archive.path("harvested")).len(), 1);
}

#[test]
fn names_asked_of_others() {
    let (one, other) = (Names::start(60), Names::start(60));
    let web = Web::start();
    web.pages("a.fr", [("/".to_owned(), html("a"))]);
    for server in [&one, &other] {
        server.set("a.fr", Named::V4(vec![Ipv4Addr::LOCALHOST]));
    }
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let closed = closed.local_addr().unwrap().port();
    let settings = NAMED
        .replace("192.0.2.1", &one.address().to_string())
        .replace("192.0.2.2", &other.address().to_string())
        .replace("65001", &closed.to_string())
        .replace("65002", &web.port().to_string());
    let archive = Archive::new(&settings);
    fs::write(archive.path("ours.txt"), "sinkhole address 127.0.0.0/8\n").unwrap();
    let list =
        "fr,a\ta.fr\ta.fr\ta.fr\tafnic:1\tnew\t-\t-\nfr,b\tb.fr\tb.fr\tb.fr\tafnic:1\tnew\t-\t-\n";
    archive.harvest("work/dns-filter/drop/names.tsv", list.as_bytes());
    archive.stage("dns-filter", 0);
    let mut lists: Vec<String> = below(&archive.path("work/taken/ready"));
    lists.retain(|path| path.ends_with("checked.tsv"));
    let text = text_of(&archive.path("work/taken/ready").join(&lists[0]));
    let lines: Vec<&str> = text.lines().collect();
    let url = web.url("a.fr", "/");
    assert_eq!(
        lines[0],
        format!(
            "fr,a\ta.fr\tOK_A\tNXDOMAIN\tpresent\tapex\t127.0.0.1\tsinkhole\t{{\"apex\":{{\"a\":[\"127.0.0.1\"]}},\"www\":{{\"soa\":\"test\"}},\
             \"redirect\":{{\"from\":\"{url}\",\"to\":\"{url}\",\"domain\":\"a.fr\",\"kind\":\"same\",\"status\":200}}}}"
        )
    );
    assert!(lines[1].starts_with("fr,b\tb.fr\tNXDOMAIN\tNXDOMAIN\tabsent\t"));
    assert!(archive.path("turns").is_dir());
    let asked: Vec<String> = [one.questions(), other.questions()].concat();
    // Neither wildcards nor anything else but the forms; the name servers are asked for under the name.
    assert!(
        asked
            .iter()
            .all(|name| name.trim_start_matches("www.").len() == 4),
        "{asked:?}"
    );
}

#[test]
fn lists_of_another_kind() {
    let archive = Archive::new(LISTED);
    let day = RegisterDay::new(2026, 1, 1).unwrap();
    let register = Register::at(&archive.path("domains")).unwrap();
    let known = [Ok(RegisterRecord::new("b.fr", day))].into_iter();
    register.update(Vec::new(), known, 3, &|| false).unwrap();
    let rule = "[[rule]]\nverdict = \"out\"\ndomain = \"a.fr\"\nwho = \"x\"\nwhen = \"2026-01-01\"\nwhy = \"y\"\n";
    fs::write(archive.path("rules.toml"), rule).unwrap();
    let list = format!("a.fr\nb.fr\nc.fr\nd.fr\n{}.fr\n", "e".repeat(32));
    archive.harvest("lists/registry/afnic.txt", list.as_bytes());
    archive.stage("preload", 0);
    let mut lists: Vec<String> = below(&archive.path("work/checked/ready"));
    lists.retain(|path| path.ends_with("names.tsv"));
    let lists = lists
        .iter()
        .map(|path| text_of(&archive.path("work/checked/ready").join(path)));
    let lists: Vec<Vec<String>> = lists
        .map(|list| list.lines().map(str::to_owned).collect())
        .collect();
    assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(lists[0][0], "fr,b\tb.fr\tb.fr\tb.fr\tafnic:1\tknown\t-\t-");
    let reports = below(&archive.path("told"));
    let told = reports
        .iter()
        .find(|path| path.ends_with("statistics.json"))
        .unwrap();
    let told: toml::Table =
        serde_json::from_str(&text_of(&archive.path("told").join(told)).replace("null", "0"))
            .unwrap();
    let rejected = &told["sources"].as_array().unwrap()[0]["rejected"];
    assert_eq!(rejected["too-long"].as_integer(), Some(1));
    assert_eq!(rejected["forced-out"].as_integer(), Some(1));
}

#[test]
fn harvests_of_another_kind() {
    let archive = Archive::new(PLANNED);
    fs::write(
        archive.path("countries.mmdb"),
        ecluse_testkit::mmdb::country("FR", [192, 0, 2]),
    )
    .unwrap();
    let rule = "[[rule]]\nverdict = \"out\"\ndomain = \"dehors.fr\"\nwho = \"x\"\nwhen = \"2026-01-01\"\nwhy = \"y\"\n";
    fs::write(archive.path("rules.toml"), rule).unwrap();
    fs::write(archive.path("left-out.toml"), "everywhere = ['/trap/']\n").unwrap();
    let now = jiff::Timestamp::now();
    let broad = format!(
        "kind = \"broad\"\nfrom = \"{now}\"\ntemplate = \"t.toml\"\nbudget = {{ urls = 1000 }}\nselect = {{ unchecked = \"take\" }}\n"
    );
    archive.harvest("definitions/broad.toml", broad.as_bytes());
    archive.harvest(
        "definitions/t.toml",
        b"[agent]\ncontact = 'a@archive.example'\n",
    );
    // Three points of evidence each; the last one has too few.
    let day = RegisterDay::new(2026, 1, 1).unwrap();
    let result = |day, objects, stop| HarvestResult {
        job: format!("job{objects}"),
        harvest: "broad".into(),
        day,
        objects,
        bytes: 1000 * objects,
        stop,
    };
    let mut records: Vec<RegisterRecord> = ["a.fr", "b.fr", "c.fr", "d.fr", "dehors.fr", "e.fr"]
        .map(|domain| RegisterRecord::new(domain, day))
        .into();
    for record in &mut records {
        record.sources.insert("librarians".into(), day);
        record
            .more
            .insert("addresses".into(), serde_json::json!(["192.0.2.7"]));
        let evidence = serde_json::json!({"media": {"day": "20260101", "value": "text/html"}});
        record.more.insert("evidence".into(), evidence);
    }
    records[5].more.remove("addresses");
    // Half of what is left to the limit, and a quarter of it.
    records[0].add_harvest(result(day, 200, StopReason::DownloadComplete), 1);
    records[1].add_harvest(result(day, 200, StopReason::ObjectLimit), 1);
    let register = Register::at(&archive.path("register")).unwrap();
    register
        .update(Vec::new(), records.into_iter().map(Ok), 1, &|| false)
        .unwrap();
    archive.stage("plan", 0);
    archive.stage("plan", 0);
    let runs = below(&archive.path("past/broad"));
    let run = runs.iter().find(|path| path.ends_with(".json")).unwrap();
    let run: serde_json::Value =
        serde_json::from_str(&text_of(&archive.path("past/broad").join(run))).unwrap();
    assert_eq!(run["objects"], 200 + 400 + 200 + 200 + 70 + 70, "{run}");
    assert_eq!(
        run["left-out"],
        serde_json::json!({"forced out": 1, "outside the perimeter": 1})
    );
    // Each of the first two is larger than a job may be; the others go together.
    assert_eq!(
        (&run["jobs"], &run["domains"]),
        (&3.into(), &4.into()),
        "{run}"
    );
    let orders = below(&archive.path("work/orders/ready"));
    let order = orders
        .iter()
        .find(|path| path.ends_with("order.toml"))
        .unwrap();
    assert!(text_of(&archive.path("work/orders/ready").join(order)).contains("/trap/"));
    let told = said(&archive.ecluse(&["register", "a.fr"]));
    assert!(
        told.contains("inside: 60 points, 60 needed") && told.contains("192.0.2.7 in FR"),
        "{told}"
    );
    assert_eq!(
        below(&archive.path("register/generations")).len(),
        2,
        "one generation is kept"
    );
}

/// Serves two pages; `last` hears who asks for the second before it is answered.
fn serve(mut stream: &TcpStream, last: &mut dyn FnMut(&str)) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let mut agent = String::new();
        while let Some(Ok(line)) = lines.next()
            && !line.is_empty()
        {
            if line.to_lowercase().starts_with("user-agent:") {
                agent = line;
            }
        }
        if first.split(' ').nth(1) == Some("/next") {
            last(&agent);
        }
        let (status, body) = match first.split(' ').nth(1) {
            Some("/") => ("200 OK", "<a href=/next>next</a>"),
            Some("/next") => ("200 OK", "<p>the end</p>"),
            _ => ("404 Not Found", ""),
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_crawl_of_another_kind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    let answered = std::sync::Arc::new(std::sync::Mutex::new(answered));
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (ask, answered) = (ask.clone(), std::sync::Arc::clone(&answered));
            std::thread::spawn(move || {
                serve(&stream, &mut |agent| {
                    ask.send(agent.to_owned()).unwrap();
                    answered.lock().unwrap().recv().unwrap();
                });
            });
        }
    });
    let archive = Archive::new(CRAWLED);
    let mut command = Command::new(ECLUSE);
    settle_environment(&mut command);
    command.arg("--root").arg(archive.dir.path());
    command.args(["harvest", &url, "--allow-private", "--delay", "10ms"]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The last page is asked for while the crawl is at work, and answered when its threads were counted.
    let agent = asked.recv().unwrap();
    assert!(
        agent.contains("keeper@lock.example"),
        "site.contact: {agent}"
    );
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let names = tasks.map(|task| text_of(&task.unwrap().path().join("comm")));
    let packing = names.filter(|name| name.starts_with("pack-")).count();
    assert_eq!(packing, 2, "pack-threads: one, and one for large records");
    answer.send(()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = archive.ecluse(&["lookup", &format!("{url}next")]);
    assert_eq!(found.status.code(), Some(0), "{}", said(&found));
    assert!(archive.path("seen.sqlite").is_file(), "digests");
    assert!(!below(&archive.path("orders")).is_empty(), "jobs");
    assert!(!archive.path("jobs").exists() && !archive.path("harvested").exists());
    assert!(!below(&archive.path("fresh")).is_empty(), "harvested");
    let status = said(&archive.ecluse(&["status"]));
    assert!(
        status.contains("lock.example") && status.contains("rehearsal"),
        "{status}"
    );
}

#[test]
fn the_archive_is_served_as_the_settings_say() {
    let archive = Archive::new(SERVED);
    let generation = archive.path("index/generations/1");
    fs::create_dir_all(&generation).unwrap();
    let line = |second: u32| {
        format!(
            "example,lock)/ 2026010100000{second} {{\"url\": \"http://lock.example/\", \"length\": \"9\", \"offset\": \"0\", \"filename\": \"a.warc\"}}\n"
        )
    };
    let lines: String = (0..5).map(line).collect();
    fs::write(generation.join("index.cdxj"), lines).unwrap();
    std::os::unix::fs::symlink("generations/1", archive.path("index/current")).unwrap();
    let serve = || {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(archive.path("")).arg("serve");
        command
    };
    // Without its rules nothing is shown at all.
    assert_eq!(serve().output().unwrap().status.code(), Some(78));
    let rule =
        |user: &str| format!("example,lock)/ - {{\"access\": \"allow\", \"user\": \"{user}\"}}\n");
    fs::write(archive.path("rules.aclj"), rule("keeper") + &rule("chief")).unwrap();
    assert_eq!(
        serve().output().unwrap().status.code(),
        Some(78),
        "no tokens"
    );
    // printf %s open-sesame | sha256sum
    let digest = "d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7";
    fs::write(archive.path("tokens"), format!("keeper {digest}\n")).unwrap();
    assert_eq!(
        serve().output().unwrap().status.code(),
        Some(78),
        "no directory for the list"
    );
    fs::create_dir_all(archive.path("sources/selection")).unwrap();
    let mut command = serve();
    let mut server = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("serving http://").unwrap();
    let address = address.trim_end_matches('/').to_owned();
    said.clear();
    output.read_line(&mut said).unwrap();
    let proxy = said.trim().strip_prefix("proxy mode on ").unwrap();
    let proxy = proxy.split(' ').next().unwrap().to_owned();
    let ask_at = |address: &str, path: &str, more: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    };
    let ask = |path: &str, more: &str| ask_at(&address, path, more);
    let get = |path: &str| ask(path, "X-Reader: chief\r\n");
    assert!(get("/").contains("The lock keeper&#x27;s web"));
    let answer = get("/lock/cdx?url=lock.example");
    // Of the three that are read the embargo keeps one back.
    assert_eq!(answer.matches("example,lock)/ 2026").count(), 2, "{answer}");
    assert!(answer.contains("X-Ecluse-Rule: access.embargo"), "{answer}");
    let answer = ask("/lock/cdx?url=lock.example", "");
    assert!(
        !answer.contains("a.warc") && !answer.contains("X-Ecluse-Rule"),
        "{answer}"
    );
    assert!(
        answer.contains("<https://archive.lock.example/lock/cdx?"),
        "{answer}"
    );
    assert!(get("/lock/cdx?url=lock.example&page=1").ends_with(&line(1)));
    let gate = get("/lock/http://lock.example/");
    assert!(
        gate.contains("https://archive.lock.example/lock/20260101000002mp_/"),
        "{gate}"
    );
    // The file is not there: who may see the capture is told so, the others are not.
    let raw = "/lock/20260101000001id_/http://lock.example/";
    let shown = "/lock/20260101000001mp_/http://lock.example/";
    assert!(get(raw).starts_with("HTTP/1.1 503"));
    assert!(ask(raw, "X-Reader: keeper\r\n").starts_with("HTTP/1.1 403"));
    assert!(ask(shown, "X-Reader: keeper\r\n").starts_with("HTTP/1.1 503"));
    assert!(ask(shown, "Authorization: Bearer open-sesame\r\n").starts_with("HTTP/1.1 503"));
    assert!(ask(shown, "").starts_with("HTTP/1.1 451"));
    // The rules may name who sits there too; a changed file is read again.
    fs::write(archive.path("rules.aclj"), rule("guest")).unwrap();
    assert!(ask(shown, "").starts_with("HTTP/1.1 503"));
    assert!(get("/wabac/sw.js").starts_with("HTTP/1.1 404"));
    fs::create_dir(archive.path("worker")).unwrap();
    fs::write(archive.path("worker/sw.js"), "// theirs").unwrap();
    assert!(get("/wabac/sw.js").ends_with("// theirs"));
    // Proxy mode: a curator collects what is missing, and preload takes the list.
    let through = |url: &str| ask_at(&proxy, url, "X-Reader: chief\r\n");
    assert!(archive.path("terminals/ca.key").is_file());
    let page = through("http://ecluse.proxy/");
    assert!(page.contains("value=\"2026-01-01\""), "{page}");
    let key = page.split("name=\"key\" value=\"").nth(1).unwrap();
    let key = key.split('"').next().unwrap();
    let chosen = through(&format!(
        "http://ecluse.proxy/set?key={key}&date=&collect=on"
    ));
    assert!(chosen.starts_with("HTTP/1.1 303"), "{chosen}");
    for url in ["http://musee.fr/salle/1", "http://musee.fr/salle/2"] {
        assert!(through(url).starts_with("HTTP/1.1 404"), "{url}");
    }
    let list = text_of(&archive.path("sources/selection/met.txt"));
    assert_eq!(list, "http://musee.fr/salle/1\n");
    archive.stage("preload", 0);
    let parcels = archive.path("work/checked/ready");
    let seeds = below(&parcels);
    let seeds = seeds
        .iter()
        .find(|path| path.ends_with("seeds.tsv"))
        .unwrap();
    assert_eq!(
        text_of(&parcels.join(seeds)),
        "musee.fr\tmet\thttp://musee.fr/salle/1\n"
    );
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
