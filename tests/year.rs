//! The year in one test: lists become names, DNS is asked, harvests become jobs by their schedules on a clock of its own, jobs tell
//! what they brought, and the second year expects what the first one had.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use ecluse_names::Registered;
use ecluse_register::{Register, RegisterRecord};
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::web::{Web, html};
use jiff::{Timestamp, ToSpan};

/// Sites of the lists; `ECLUSE_YEAR_NAMES` asks for more.
const NAMES: usize = 60;

/// Enough words to tell what language they are.
const FRENCH: &str = "<p>Les écluses permettent aux bateaux de franchir les dénivellations des canaux et des rivières; \
                      l'éclusier ouvre les portes quand le niveau de l'eau est le même des deux côtés.</p>";

struct Year {
    root: tempfile::TempDir,
    begin: Timestamp,
}

impl Year {
    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn ecluse(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ecluse"));
        settle_environment(&mut command);
        command.env("ECLUSE_CLOCK_FILE", self.root.path().join("clock"));
        let output = command
            .arg("--root")
            .arg(self.root.path())
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Lets the chain do all there is to do on a day of the year.
    fn day(&self, day: i64) {
        let now = self.begin + (24 * day + 2).hours();
        self.write("clock", &format!("{now}\n"));
        // What plan asks DNS again comes back to it before it orders.
        for _ in 0..3 {
            self.ecluse(&["run", "--once", "preload", "dns-filter", "plan"]);
        }
        self.ecluse(&["run", "--once", "crawl", "ingest", "index"]);
        self.ecluse(&["run", "--once", "plan"]);
    }

    fn record(&self, domain: &str) -> RegisterRecord {
        let register = Register::at(&self.root.path().join("register")).unwrap();
        register
            .lookup(domain)
            .unwrap()
            .unwrap_or_else(|| panic!("{domain}"))
    }

    fn run(&self, harvest: &str, day: i64) -> serde_json::Value {
        let due = self.begin + (24 * day + 1).hours();
        let name = format!("runs/{harvest}/{}.json", due.strftime("%Y%m%d%H%M%S"));
        serde_json::from_str(&fs::read_to_string(self.root.path().join(name)).unwrap()).unwrap()
    }
}

/// What the hosts report of a job says of each site: URLs and bytes.
fn hosts_report(job: &Path) -> BTreeMap<String, (u64, u64)> {
    let text = fs::read_to_string(job.join("reports/hosts-report.txt")).unwrap();
    let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (urls, bytes, host) = (columns[0], columns[1], columns[2]);
        let site = sites
            .entry(Registered::of(host).site.to_owned())
            .or_default();
        site.0 += urls.parse::<u64>().unwrap();
        site.1 += bytes.parse::<u64>().unwrap();
    }
    sites
}

#[test]
fn the_year() {
    let names: usize =
        std::env::var("ECLUSE_YEAR_NAMES").map_or(NAMES, |count| count.parse().unwrap());
    let web = Web::start();
    let servers = [Names::start(60), Names::start(60)];
    let sites: Vec<String> = (0..names).map(|n| format!("site{n}.fr")).collect();
    let selected = ["presse.fr", "vote.fr"].map(str::to_owned);
    for (n, site) in sites.iter().chain(&selected).enumerate() {
        // From one page to seven.
        let pages = 1 + n % 7;
        let mut links: String = (1..pages)
            .map(|page| format!("<a href=/p{page}>p</a>"))
            .collect();
        links += FRENCH;
        if site == "presse.fr" {
            links += &format!("<a href='{}'>un site</a>", web.url("site1.fr", "/"));
        }
        let mut made = vec![("/".to_owned(), html(&links))];
        made.extend((1..pages).map(|page| (format!("/p{page}"), html("the end"))));
        web.pages(site, made);
        for server in &servers {
            server.set(site, Named::V4(vec![Ipv4Addr::LOCALHOST]));
        }
    }
    let year = Year {
        root: tempfile::tempdir().unwrap(),
        begin: Timestamp::from_second(Timestamp::now().as_second()).unwrap(),
    };
    let [one, other] = [servers[0].address(), servers[1].address()];
    year.write(
        "pipeline.toml",
        &format!(
            "[site]\ncontact = 'https://archive.example/'\n[defaults]\nsettle = '100ms'\nmin-free = '0 B'\nscan = '1s'\n\
             [stage.crawl]\nworkers = 1\n[stage.dns-filter]\nresolvers = ['{one}', '{other}']\nallow-private = true\n\
             rate = 0\nlater = 0\n[stage.plan.jobs]\ndomains = {}\n\
             [stage.plan.perimeter]\nthreshold = 60\ntlds = ['fr']\ntld = 40\nlists = ['librarians']\nlist = 30\n\
             languages = ['fr']\nlanguage = 20\nlinks = 1\nlinked = 20\nmedia-types = ['text/html']\nmedia = 10\n",
            (names / 10).max(40)
        ),
    );
    year.write("clock", &format!("{}\n", year.begin));
    let list: String = sites
        .iter()
        .map(|site| format!("{}\n", web.url(site, "/")))
        .collect();
    year.write(
        "sources/selection/librarians.txt",
        &format!("{list}parti.fr\n"),
    );
    year.write(
        "harvests/templates/t.toml",
        &format!(
            "[network]\nallow-private = true\nresolvers = ['{one}']\n[budget]\nwait = '1s'\n[budget.queue]\ntries = 1\n\
             error-penalty = 0\n[manners]\nmin-delay = '1ms'\nmax-delay = '1ms'\naddress-delay = '0s'\n[extract]\nsitemaps = false\n"
        ),
    );
    let from = year.begin + 1.hour();
    let until = year.begin + (24 * 400).hours();
    year.write(
        "harvests/broad.toml",
        &format!("kind = 'broad'\nfrom = '{from}'\nevery = '365d'\nbudget = {{ urls = 50 }}\nselect = {{ unchecked = 'wait' }}\ntemplate = 'templates/t.toml'\n"),
    );
    for (name, every, domains) in [
        (
            "press",
            "7d",
            format!("urls = ['{}']", web.url("presse.fr", "/")),
        ),
        (
            "monthly",
            "30d",
            format!("urls = ['{}']\ndepth = 0", web.url("site1.fr", "/")),
        ),
    ] {
        year.write(
            &format!("harvests/{name}.toml"),
            &format!("kind = 'selective'\nfrom = '{from}'\nuntil = '{until}'\nevery = '{every}'\npriority = 'high'\nbudget = {{ urls = 100 }}\ntemplate = 'templates/t.toml'\n[[domains]]\n{domains}\n"),
        );
    }

    // Once, on the day on which the broad harvest goes on.
    year.write(
        "harvests/vote.toml",
        &format!(
            "kind = 'selective'\nfrom = '{}'\npriority = 'high'\nbudget = {{ urls = 100 }}\ntemplate = 'templates/t.toml'\n[[domains]]\nurls = ['{}']\n",
            year.begin + 49.hours(),
            web.url("vote.fr", "/")
        ),
    );

    // A name that DNS denied once is asked about once more on another day; the harvest waits for that, and says so.
    year.day(0);
    let first = year.run("broad", 0);
    assert_eq!(
        (&first["state"], &first["checked"], &first["denied"]),
        (
            &"waiting".into(),
            &serde_json::json!([names, names + 1]),
            &1.into()
        ),
        "{first}"
    );
    let of = format!("{names} of {} domains were checked in time", names + 1);
    let denied = "; 1 that DNS denied once is asked again when a day has passed";
    for (words, told) in [
        (&["status"][..], format!("waits for DNS: {of} (")),
        (&["status"], denied.to_owned()),
        (
            &["plan", "broad", "--preview"],
            format!("DNS          {of}: the run waits for the others{denied}\n"),
        ),
        (
            &["plan", "broad", "--preview"],
            format!("jobs for {} domains, ", names + 1),
        ),
    ] {
        let shown = year.ecluse(words);
        // Thousands have commas.
        assert!(names >= 1000 || shown.contains(&told), "{told}: {shown}");
    }
    year.day(2);
    let first = year.run("broad", 0);
    assert_eq!(
        (
            &first["state"],
            &first["domains"],
            &first["left-out"]["inactive"]
        ),
        (&"ordered".into(), &names.into(), &1.into()),
        "{first}"
    );
    // Nothing is known of the others: each may bring what the limit lets come.
    let known = year.record("site1.fr").harvests();
    let known = known.iter().find(|result| result.harvest == "monthly");
    assert_eq!(
        first["objects"],
        50 * (names as u64 - 1) + known.unwrap().objects
    );
    // The selective jobs were not stuck behind the broad ones.
    let log = web.log();
    let asked = |host: &str| {
        log.iter()
            .position(|seen| seen.host.starts_with(host))
            .unwrap()
    };
    assert!(asked("vote.fr") < asked("site2.fr"));
    // The register has what the hosts reports have.
    let mut told = 0;
    for entry in fs::read_dir(year.root.path().join("jobs")).unwrap() {
        let job = entry.unwrap().path();
        let name = job.file_name().unwrap().to_string_lossy().into_owned();
        let Some((job_name, harvest)) = name.split_once('-') else {
            continue;
        };
        for (site, (objects, bytes)) in hosts_report(&job) {
            let results = year.record(&site).harvests();
            let result = results.iter().find(|result| {
                (result.job.as_str(), result.harvest.as_str()) == (job_name, harvest)
            });
            let result = result.unwrap_or_else(|| panic!("{site} in {name}"));
            assert_eq!(
                (result.objects, result.bytes),
                (objects, bytes),
                "{site} in {name}"
            );
            told += 1;
        }
    }
    assert!(told >= names + 2, "{told}");
    // What the pages told of their sites, and of those they link to, is there with each criterion.
    let shown = year.ecluse(&["register", "site1.fr"]);
    let day = Timestamp::now().strftime("%Y").to_string();
    for line in [
        "perimeter    inside: 120 points, 60 needed".to_owned(),
        "tld         40 of  40  .fr".to_owned(),
        format!("language    20 of  20  fr on {day}"),
        format!("linked      20 of  20  from 1 (presse.fr) on {day}"),
        "list        30 of  30  librarians".to_owned(),
        format!("media       10 of  10  text/html on {day}"),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    let shown = year.ecluse(&["register", "site2.fr"]);
    assert!(
        shown.contains("linked       0 of  20  not known"),
        "{shown}"
    );

    // Weeks and months; what was missed is run once.
    for day in [7, 30, 60] {
        year.day(day);
    }
    assert_eq!(year.run("press", 7)["missed"], 0);
    assert_eq!(year.run("press", 28)["missed"], 2);
    assert_eq!(year.run("monthly", 60)["missed"], 0);
    assert_eq!(year.record("presse.fr").harvests().len(), 4);

    // The second year expects what the first one brought. A domain has vanished from its list: only plan asks DNS about it.
    let vanished = format!("{}\n", web.url("site5.fr", "/"));
    year.write(
        "sources/selection/librarians.txt",
        &format!("{}parti.fr\n", list.replace(&vanished, "")),
    );
    let before = year.record("site5.fr");
    year.day(365);
    let after = year.record("site5.fr");
    assert_eq!((after.last, &after.sources), (before.last, &before.sources));
    assert!(after.dns.unwrap().day > before.dns.unwrap().day);
    let second = year.run("broad", 365);
    assert_eq!(
        (&second["state"], &second["domains"]),
        (&"ordered".into(), &names.into()),
        "{second}"
    );
    let results = sites.iter().map(|site| {
        let results = year.record(site).harvests();
        let mut of_broad = results
            .into_iter()
            .filter(|result| result.harvest == "broad");
        of_broad.nth(1).unwrap().objects.max(1)
    });
    let results: Vec<u64> = results.collect();
    let (sum, most) = (results.iter().sum::<u64>(), results.iter().max().unwrap());
    let expected = second["objects"].as_u64().unwrap();
    match names < 100 {
        true => assert_eq!(expected, sum, "{second}"),
        // With so many of a size, what most of them brought is expected of each.
        false => assert!(
            sum <= expected && expected <= most * names as u64,
            "{second}"
        ),
    }
    assert!(second["objects"].as_u64() < first["objects"].as_u64());
    let shown = year.ecluse(&["register", "site1.fr"]);
    assert!(shown.contains("DOWNLOAD_COMPLETE"), "{shown}");
    // The register made again from what came into it is the same, byte for byte, when all of it is lost.
    let register = year.root.path().join("register");
    let before = fs::read(register.join("current/register.tsv")).unwrap();
    fs::remove_dir_all(&register).unwrap();
    year.ecluse(&["rebuild", "register", "--why", "a disk was lost"]);
    let again = fs::read(register.join("current/register.tsv")).unwrap();
    assert!(before == again, "{}", String::from_utf8_lossy(&again));
    // And it goes on from there.
    let known = year.record("presse.fr").harvests().len();
    year.day(372);
    assert_eq!(year.record("presse.fr").harvests().len(), known + 1);
    let listed = year.ecluse(&["harvests"]);
    assert!(
        listed.contains("broad") && listed.contains("% full"),
        "{listed}"
    );
}
