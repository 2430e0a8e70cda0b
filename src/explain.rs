//! `ecluse why URL --job J`: why a URL was fetched or not, as the job itself tells it.

use std::process::ExitCode;
use std::time::Duration;

use ecluse_crawl::Explanation;
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::{printable, printable_text};

use crate::context::{DriverContext, Trouble};

/// How long a running job may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn explain(context: &DriverContext, url: &str, job: &str) -> Result<ExitCode, Trouble> {
    let dir = context.job_dir(job)?;
    let contact = &context.pipeline.site.contact;
    let settings: ecluse_crawl::Settings = context
        .pipeline
        .stage_settings(ecluse_crawl::Crawl::NAME)
        .map_err(|error| Trouble::new(Exit::Config, error.to_string()))?;
    let forced = context.root.join(&settings.forced);
    let explanation = ecluse_crawl::explain(&dir, url, contact, &forced, PATIENCE);
    let explanation = explanation.map_err(Trouble::usage)?;
    if context.json {
        let value = serde_json::to_value(&explanation).map_err(std::io::Error::from)?;
        context.print_json(value)?;
    } else {
        context.print(&in_words(&explanation))?;
    }
    Ok(Exit::Done.into())
}

/// Returns an explanation for a person. Everything in it may come from the web.
fn in_words(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", printable(explanation.url.as_bytes()));
    line(&mut text, &explanation.found);
    part(&mut text, "scope", &explanation.scope);
    line(&mut text, &format!("verdict: {}", explanation.verdict));
    part(
        &mut text,
        "robots",
        std::slice::from_ref(&explanation.robots),
    );
    part(&mut text, "frontier", &explanation.frontier);
    part(&mut text, "what happened", &explanation.log);
    text
}

fn part(text: &mut String, title: &str, lines: &[String]) {
    text.push_str(&format!("\n  {title}\n"));
    if lines.iter().all(String::is_empty) {
        text.push_str("    nothing is known\n");
    }
    for one in lines.iter().filter(|one| !one.is_empty()) {
        text.push_str(&format!("    {}\n", printable_text(one)));
    }
}

fn line(text: &mut String, line: &str) {
    if !line.is_empty() {
        text.push_str(&format!("  {}\n", printable_text(line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_told_part_by_part_and_never_raw() {
        let text = in_words(&Explanation {
            url: "http://a.example/\u{202e}x".into(),
            found: "LL from the seed, known".into(),
            scope: vec!["seeds: accept: below a.example".into()],
            verdict: "accept".into(),
            robots: "allowed".into(),
            frontier: vec!["done".into()],
            log: vec!["200 \x1b[31m \"a\\tb\"".into()],
        });
        assert!(!text.contains('\x1b') && !text.contains('\u{202e}'));
        assert!(text.contains(r#""a\tb""#), "escaped once: {text}");
        let parts = [
            "a.example",
            "LL from",
            "seeds: accept",
            "verdict: accept",
            "allowed",
            "done",
            "200",
        ];
        let places: Vec<_> = parts.iter().map(|part| text.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let text = in_words(&Explanation::default());
        assert_eq!(text.matches("nothing is known").count(), 4, "{text}");
    }
}
