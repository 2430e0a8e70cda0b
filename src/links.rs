//! `ecluse links`: what a page links to, and what links to it.
//!
//! Ends with 0 when there was something to show, and with 1 when the URL is not known.

use std::process::ExitCode;

use ecluse_links::{FoundPage, LinkFinder, LinksDirectory, LinksError};
use ecluse_stage::Exit;
use ecluse_telemetry::printable;
use serde_json::{Value, json};

use crate::cli::LinksOptions;
use crate::context::{DriverContext, Trouble};
use crate::lookup::NONE_FOUND;

/// A link, from the end that is not asked for.
struct ShownLink {
    kinds: Vec<&'static str>,
    url: String,
    /// When the page that has it was captured.
    time: Option<String>,
}

pub(crate) fn links(context: &DriverContext, options: &LinksOptions) -> Result<ExitCode, Trouble> {
    let path = context.root.join(&context.pipeline.archive.links);
    let directory = LinksDirectory::at(&path).map_err(unreadable)?;
    let Some(generation) = directory.current().map_err(unreadable)? else {
        eprintln!("there are no links yet in {}", path.display());
        return Ok(NONE_FOUND.into());
    };
    let finder = LinkFinder::open(&generation).map_err(unreadable)?;
    let surt = surt_of(&options.url)?;
    let page = finder.page(&surt).map_err(unreadable)?;
    let number = finder.urls().find(&surt).map_err(unreadable)?;
    if page.is_none() && number.is_none() {
        eprintln!(
            "{} is not known: neither captured nor linked to",
            options.url
        );
        return Ok(NONE_FOUND.into());
    }
    let out = (!options.incoming).then(|| outgoing(page.as_ref(), options.limit));
    let incoming = match options.out {
        true => None,
        false => Some(incoming(&finder, &surt, options.limit).map_err(unreadable)?),
    };
    let url = match (&page, number) {
        (Some(page), _) => page.url.clone(),
        (None, Some(number)) => {
            let found = finder.urls().get(number).map_err(unreadable)?;
            found.map_or_else(|| options.url.clone(), |(_, url)| url)
        }
        (None, None) => options.url.clone(),
    };
    if context.json {
        let mut told = json!({ "url": url, "surt": surt });
        if let Some(page) = &page {
            told["captured"] = json!(page.time.as_str());
        }
        if let Some(out) = &out {
            told["out"] = as_json(out);
        }
        if let Some(incoming) = &incoming {
            told["in"] = as_json(incoming);
        }
        println!("{told}");
        return Ok(Exit::Done.into());
    }
    let captured = match &page {
        Some(page) => format!("captured {}", page.time),
        None => "never captured".to_owned(),
    };
    println!("{}  {captured}", printable(url.as_bytes()));
    for (title, links) in [("links to", &out), ("is linked from", &incoming)] {
        if let Some(links) = links {
            println!("{title} {}", links.len());
            for link in links {
                let time = link.time.as_deref().unwrap_or_default();
                let kinds = link.kinds.join(",");
                let line = format!("  {kinds:<9} {time:<14} {}", printable(link.url.as_bytes()));
                println!("{}", line.trim_end());
            }
        }
    }
    Ok(Exit::Done.into())
}

fn outgoing(page: Option<&FoundPage>, limit: Option<usize>) -> Vec<ShownLink> {
    let targets = page.map_or(&[][..], |page| &page.targets);
    let shown = targets.iter().map(|(kind, url)| ShownLink {
        kinds: vec![kind.name()],
        url: url.clone(),
        time: None,
    });
    shown.take(limit.unwrap_or(usize::MAX)).collect()
}

fn incoming(
    finder: &LinkFinder,
    surt: &str,
    limit: Option<usize>,
) -> Result<Vec<ShownLink>, LinksError> {
    let sources = finder.sources(surt)?.unwrap_or_default();
    let mut shown = Vec::new();
    for source in sources.into_iter().take(limit.unwrap_or(usize::MAX)) {
        let Some((key, url)) = finder.urls().get(source)? else {
            continue;
        };
        let page = finder.page(&key)?;
        let mut kinds = Vec::new();
        for (kind, target) in page.iter().flat_map(|page| &page.targets) {
            let is_it = ecluse_surt::Surt::of(target.as_bytes())
                .is_ok_and(|found| found.as_bytes() == surt.as_bytes());
            if is_it && !kinds.contains(&kind.name()) {
                kinds.push(kind.name());
            }
        }
        let time = page.map(|page| page.time.to_string());
        shown.push(ShownLink { kinds, url, time });
    }
    Ok(shown)
}

fn as_json(links: &[ShownLink]) -> Value {
    let one = |link: &ShownLink| {
        let mut told = json!({ "url": link.url, "kinds": link.kinds });
        if let Some(time) = &link.time {
            told["captured"] = json!(time);
        }
        told
    };
    links.iter().map(one).collect()
}

fn surt_of(url: &str) -> Result<String, Trouble> {
    let with_scheme = match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    };
    let surt = ecluse_surt::Surt::of(with_scheme.as_bytes());
    let surt = surt.map_err(|error| Trouble::usage(format!("{url}: {error}")))?;
    String::from_utf8(surt.into_bytes()).map_err(|_| Trouble::usage(format!("{url} is no URL")))
}

fn unreadable(error: LinksError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}
