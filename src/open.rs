//! `ecluse harvest … --open`: what was just archived, in a browser.
//!
//! It serves on this machine alone and ends when told to. A browser is `$BROWSER`, else whatever the desktop has for addresses; where
//! there is none, the address that is printed must do.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::{DriverContext, Trouble};
use crate::serve;

/// Serves the archive and opens a URL of it in a browser, until told to stop.
pub(crate) fn open(context: &DriverContext, url: &str) -> Result<(), Trouble> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let server = serve::start_on(context, "127.0.0.1:0".parse().expect("an address"))?;
    let main = &context.pipeline.access.main;
    // The last capture is the nearest to the end of times.
    let address = format!("http://{}/{main}/9999/{url}", server.address());
    context.say(&format!("open {address}  (Ctrl-C ends it)"))?;
    let begun = browser().and_then(|program| {
        let mut command = Command::new(program);
        command.arg(&address).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok()
    });
    signals.forever().next();
    drop(server);
    // What was begun for us is not left unburied; a browser that is still there goes on without us.
    if let Some(mut browser) = begun {
        let _ = browser.try_wait();
    }
    Ok(())
}

/// Returns the program that opens addresses; none where nobody could see it.
fn browser() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable("BROWSER") {
        let named = named.to_string_lossy().into_owned();
        return named.split(':').next().map(PathBuf::from);
    }
    let has_screen = variable("DISPLAY").is_some() || variable("WAYLAND_DISPLAY").is_some();
    has_screen.then(|| PathBuf::from("xdg-open"))
}
