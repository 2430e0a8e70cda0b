//! The librarians' word: what they force out is never asked for, by whatever way it is found and whoever gave the order.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and writes as librarians do"
)]

mod web;

use std::fs;
use std::path::Path;
use std::time::Duration;

use ecluse_testkit::dns::Named;
use ecluse_testkit::root::until_so;
use ecluse_testkit::web::{After, Answer, Web, html};

use web::{Gate, Harvest, Job, Order, at, web_on};

fn rule(verdict: &str, what: &str) -> String {
    format!(
        "[[rule]]\nverdict = '{verdict}'\n{what}\nwho = 'M. Duval'\nwhen = '2026-10-02'\nwhy = 'court order 2026-117'\n"
    )
}

fn asked(web: &Web, host: &str) -> Vec<String> {
    let log = web.log();
    let seen = log.iter().filter(|seen| seen.host == host);
    seen.map(|seen| seen.target.clone()).collect()
}

fn why(job: &Job, forced: &Path, url: &str) -> (String, Vec<String>) {
    let told = ecluse_crawl::explain(&job.dir(), url, "", forced, Duration::from_secs(9));
    let told = told.unwrap();
    (told.verdict, told.scope)
}

#[test]
fn what_is_forced_out_is_never_asked_for_although_everything_leads_there() {
    let (web, names) = web_on(1);
    for name in ["*.site.test", "*.blog.site.test"] {
        names.set(name, Named::V4(vec![at(1)]));
    }
    let blog = |path: &str| web.url("blog.site.test", path);
    let here = |path: &str| web.url("site.test", path);
    let links = format!(
        "<a href='/prive/a'></a><a href='/%70rive/b'></a><a href='//www.site.test:{}/prive/c'></a>\
         <img src='/prive/d.png'><iframe src='{}'></iframe><a href='{}'></a><a href='/go'></a>\
         <a href='/into'></a><a href='/prive/ouvert/'></a><a href='{}'></a><a href='/ok'></a>",
        web.port(),
        blog("/frame"),
        blog("/"),
        web.url("bon.blog.site.test", "/"),
    );
    let sitemap = format!(
        "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\
         <url><loc>{}</loc></url><url><loc>{}</loc></url></urlset>",
        here("/prive/map"),
        here("/map"),
    );
    let robots = format!(
        "User-agent: *\nAllow: /\nSitemap: {}\nSitemap: {}\n",
        here("/prive/sitemap.xml"),
        here("/sitemap.xml"),
    );
    web.pages(
        "site.test",
        [
            (
                "/robots.txt".to_owned(),
                Answer::of("text/plain", robots.as_bytes()),
            ),
            (
                "/sitemap.xml".to_owned(),
                Answer::of("text/xml", sitemap.as_bytes()),
            ),
            ("/".to_owned(), html(&links)),
            ("/go".to_owned(), Answer::redirect(&blog("/from-go"))),
            ("/into".to_owned(), Answer::redirect("/prive/into")),
            ("/prive/ouvert/".to_owned(), html("open")),
            ("/ok".to_owned(), html("ok")),
            ("/map".to_owned(), html("map")),
        ],
    );
    for host in ["blog.site.test", "www.site.test"] {
        web.pages(host, [("/".to_owned(), html("never"))]);
    }
    web.pages("bon.blog.site.test", [("/".to_owned(), html("good"))]);
    // Its robots.txt is that of a site that nobody may ask.
    web.pages(
        "other.test",
        [(
            "/robots.txt".to_owned(),
            Answer::redirect(&blog("/robots.txt")),
        )],
    );
    let mut order = Order::new(&names);
    order
        .seed(here("/"))
        .seed(blog("/seed"))
        .seed(web.url("other.test", "/"))
        // Nothing else keeps it from there.
        .set(
            "scope.accept-regexes",
            "['^http://([a-z]+[.])*site[.]test:']",
        );
    let job = Job::give(&order);
    let forced = job.root.path().join("forced.toml");
    let rules = rule("out", &format!("prefix = '{}'", here("/prive/")))
        + &rule("in", &format!("prefix = '{}'", here("/prive/ouvert/")))
        + &rule("out", "domain = 'blog.site.test'")
        + &rule("in", "domain = 'bon.blog.site.test'");
    fs::write(&forced, rules).unwrap();
    job.finish();
    assert_eq!(asked(&web, "blog.site.test"), [""; 0]);
    for host in ["site.test", "www.site.test"] {
        let out = asked(&web, host).into_iter().filter(|target| {
            let target = target.replace("%70", "p");
            target.starts_with("/prive/") && target != "/prive/ouvert/"
        });
        assert_eq!(out.collect::<Vec<_>>(), [""; 0], "{host}");
    }
    let (verdict, scope) = why(&job, &forced, &here("/prive/a"));
    let last = scope.last().unwrap();
    assert_eq!(verdict, "reject", "{scope:?}");
    assert!(
        last.contains("M. Duval on 2026-10-02: court order"),
        "{last}"
    );
    assert_eq!(why(&job, &forced, &here("/prive/ouvert/")).0, "accept");
    let harvest = Harvest::read(job);
    for path in ["/", "/ok", "/map", "/go", "/into", "/prive/ouvert/"] {
        harvest.response(&here(path));
    }
    harvest.response(&web.url("bon.blog.site.test", "/"));
    let seed = harvest.line(&blog("/seed"));
    assert_eq!(seed.status, -5001, "{seed:?}");
    assert!(seed.has("forced-out"), "{seed:?}");
    assert_eq!(harvest.line(&web.url("other.test", "/")).status, -61);
}

#[test]
fn a_rule_written_while_a_job_runs_holds_for_what_waits() {
    let (web, names) = web_on(1);
    let gate = Gate::default();
    let shut = gate.clone();
    web.host("site.test", move |request, wire| {
        match request.target.as_str() {
            "/" => {
                wire.answer(&html(
                    "<a href='/slow'></a><a href='/prive/a'></a><a href='/ok'></a>",
                ))?;
            }
            "/slow" => {
                shut.wait();
                wire.answer(&html("<a href='/prive/b'></a>"))?;
            }
            "/ok" => {
                wire.answer(&html("ok"))?;
            }
            _ => {
                wire.answer(&Answer::missing())?;
            }
        }
        Ok(After::Keep)
    });
    let mut order = Order::new(&names);
    order
        .seed(web.url("site.test", "/"))
        .text("limits.idle", "1m")
        .text("limits.time", "1m");
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("the slow page is asked for", || {
        program.must_live();
        asked(&web, "site.test").contains(&"/slow".to_owned())
    });
    let forced = job.root.path().join("forced.toml");
    fs::write(&forced, "rule = 7\n").unwrap();
    program.await_log("librarians' rules as before");
    let out = rule(
        "out",
        &format!("prefix = '{}'", web.url("site.test", "/prive/")),
    );
    let aside = job.root.path().join("forced.new");
    fs::write(&aside, out).unwrap();
    fs::rename(&aside, &forced).unwrap();
    program.await_log("librarians' rules changed");
    gate.open();
    assert_eq!(program.wait(), 0, "{}", program.log());
    let seen = asked(&web, "site.test");
    assert!(
        seen.iter().all(|target| !target.starts_with("/prive/")),
        "{seen:?}"
    );
    let harvest = Harvest::read(job);
    harvest.response(&web.url("site.test", "/ok"));
    let line = harvest.line(&web.url("site.test", "/prive/a"));
    assert_eq!(line.status, -5001, "{line:?}");
}
