//! `ecluse serve`: the archive in a browser, and its APIs, until told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_access::{AccessServer, AccessSite};
use ecluse_config::AccessSettings;
use ecluse_stage::{Exit, start_log};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::ServeOptions;
use crate::context::{DriverContext, Trouble};
use crate::pywb_config;

pub(crate) fn serve(context: &DriverContext, options: &ServeOptions) -> Result<ExitCode, Trouble> {
    if let Some(directory) = &options.pywb {
        return pywb_config::write(context, directory);
    }
    context.must_be_archive()?;
    let log = context.log.clone();
    let _log = start_log(&context.pipeline, log.as_ref(), "ecluse-serve")?;
    // Before anything is served: who stops it at once is heard too.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let listen = options.listen.unwrap_or(context.pipeline.access.listen);
    let server = start(context, context.pipeline.access.clone(), listen)?;
    let address = server.address();
    context.say(&format!("serving http://{address}/"))?;
    if let Some(proxy) = server.proxy_address() {
        let line = format!(
            "proxy mode on {proxy} (name it in the browser, then open http://ecluse.proxy/)"
        );
        context.say(&line)?;
    }
    // Without a service manager that waits for it, nobody listens.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    signals.forever().next();
    drop(server);
    Ok(Exit::Done.into())
}

/// Serves the archive at this address and at no other: there is no proxy mode.
pub(crate) fn start_on(
    context: &DriverContext,
    listen: SocketAddr,
) -> Result<AccessServer, Trouble> {
    let settings = AccessSettings {
        proxy: None,
        public: String::new(),
        ..context.pipeline.access.clone()
    };
    start(context, settings, listen)
}

fn start(
    context: &DriverContext,
    mut settings: AccessSettings,
    listen: SocketAddr,
) -> Result<AccessServer, Trouble> {
    settings.listen = listen;
    if settings.proxy.is_some() && settings.proxy_ca.is_none() {
        settings.proxy_ca = Some(state_directory()?.join("proxy-ca"));
    }
    let root = std::path::absolute(&context.root)?;
    let index: &Path = &context.pipeline.archive.index;
    let site = AccessSite::new(root, index, settings)
        .map_err(|error| Trouble::new(Exit::Config, error))?
        .with_changes(&context.pipeline.archive.changes);
    AccessServer::start(site).map_err(|error| {
        let line = format!("cannot listen on {listen}: {error}; --listen names another address");
        Trouble::new(Exit::Machine, line)
    })
}

/// Returns where this user's programs keep what they must not lose: the service manager's directory, else that of the user.
fn state_directory() -> Result<PathBuf, Trouble> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = variable("STATE_DIRECTORY").map(PathBuf::from);
    let users = || Some(PathBuf::from(variable("XDG_STATE_HOME")?).join("ecluse"));
    let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state/ecluse"));
    own.or_else(users).or_else(home).ok_or_else(|| {
        let line = "no directory for the CA of proxy mode: name one in access.proxy-ca";
        Trouble::new(Exit::Config, line)
    })
}
