//! `ecluse demo`: a harvest of a small web that the program itself serves on this machine.
//!
//! The web answers the same whenever it is asked, but for what a server with a memory would change: so a demo that was killed goes
//! on, and one that is done again finds that little has changed.

mod calendar;
mod canal;
mod files;
mod museum;
mod page;
mod server;
mod slow;
mod web;

use std::process::ExitCode;

use ecluse_stage::Exit;
use ecluse_telemetry::printable;

use crate::cli::{DemoOptions, PORT, Unfinished};
use crate::context::{DriverContext, Trouble};
use crate::harvest::{Draft, carry_out, seeds_of};

use self::server::Server;
use self::web::Web;

/// The job's name.
const JOB: &str = "demo";

pub(crate) fn demo(context: &DriverContext, options: &DemoOptions) -> Result<ExitCode, Trouble> {
    let server = Server::start(Web::new(options.port), options.port).map_err(|error| {
        let line = format!(
            "cannot serve the small web on 127.0.0.1:{0}: {error}; `--port N` takes another port",
            options.port
        );
        Trouble::usage(line)
    })?;
    let draft = draft_of(options.port);
    draft.check(context)?;
    let carried_out = carry_out(context, &draft);
    drop(server);
    let (exit, whole) = carried_out?;
    if whole && exit == Exit::Done && !context.json && !context.quiet {
        context.print(&hint(context, options.port))?;
    }
    Ok(exit.into())
}

/// Returns the order: nobody else is asked, so the pauses are short.
fn draft_of(port: u16) -> Draft {
    let seeds: Vec<String> = web::HOSTS
        .iter()
        .map(|host| format!("http://{host}:{port}/"))
        .collect();
    let rest = format!(
        "description = \"the small web of `ecluse demo`\"\n\n{}\
         [scope]\nreach = \"host\"\ndepth = {}\n\n\
         [budget.queue]\ntries       = 3\nretry-delay = \"1s\"\n\n\
         [manners]\ngroup-by     = \"queue\"\ndelay-factor = 1.0\nmin-delay    = \"20ms\"\nmax-delay    = \"100ms\"\n\n\
         [manners.back-off]\nfirst = \"1s\"\nmax   = \"5s\"\n\n\
         [robots]\nretry = \"1s\"\n\n\
         [agent]\ncontact = \"http://canal.localhost/\"\n\n\
         [network]\nallow-private = true\n",
        seeds_of(&seeds),
        web::DEPTH,
    );
    Draft {
        job: JOB.to_owned(),
        rest,
        seeds: None,
        unfinished: Some(Unfinished::Drop),
        first: seeds[0].clone(),
    }
}

fn hint(context: &DriverContext, port: u16) -> String {
    let web = format!("http://canal.localhost:{port}");
    let port = match port {
        PORT => String::new(),
        port => format!(" --port {port}"),
    };
    let lines = [
        context.command(&format!("lookup {web}/ --match host")),
        context.command(&format!("why {web}/staff/ --job {JOB}")),
        context.command("status"),
        format!(
            "{}          once more: what has not changed is not stored again",
            context.command(&format!("demo{port}"))
        ),
    ];
    let lines = lines.map(|line| format!("  {}\n", printable(line.as_bytes())));
    format!("\nTry next:\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecluse_scope::Order;

    #[test]
    fn the_order_is_a_good_one() {
        let text = draft_of(8470).text("20260101000000");
        let order = Order::parse(&text, "order.toml", "")
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .order;
        assert_eq!(order.seeds[0].urls.len(), web::HOSTS.len());
        assert!(order.network.allow_private);
    }
}
