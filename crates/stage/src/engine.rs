//! The engine that the settings name.

use std::path::Path;
use std::sync::Arc;

use ecluse_config::{EngineKind, EngineSettings, Level, Pipeline, Problem};
use ecluse_spool::{Engine, WorkTree};

use crate::failure::Failure;

/// Opens the engine of a root for a stage, or for the operator. `host`: the name this host goes by, when it is not its own.
///
/// # Errors
/// The settings are at fault, or a server that cannot be reached.
pub fn open_engine(
    pipeline: &Pipeline,
    root: &Path,
    user: &str,
    host: Option<&str>,
) -> Result<Arc<dyn Engine>, Failure> {
    let tree = || {
        let mut tree = WorkTree::open(&root.join("work"));
        if let Some(host) = host {
            host.clone_into(&mut tree.host.name);
        }
        tree
    };
    match pipeline.engine.kind {
        _ if pipeline.engine.moving => mixed(pipeline, root, user, host, tree()),
        EngineKind::Directories => Ok(Arc::new(tree())),
        EngineKind::Jetstream => jetstream(pipeline, root, user, host),
    }
}

/// Opens the engine of a root for somebody who only looks and leaves no trace.
pub(crate) fn looking_engine(
    pipeline: &Pipeline,
    root: &Path,
    user: &str,
) -> Result<Arc<dyn Engine>, Failure> {
    let tree = || WorkTree::open(&root.join("work")).only_looking();
    match pipeline.engine.kind {
        _ if pipeline.engine.moving => mixed(pipeline, root, user, None, tree()),
        EngineKind::Directories => Ok(Arc::new(tree())),
        EngineKind::Jetstream => jetstream(pipeline, root, user, None),
    }
}

#[cfg(feature = "jetstream")]
fn mixed(
    pipeline: &Pipeline,
    root: &Path,
    user: &str,
    host: Option<&str>,
    tree: WorkTree,
) -> Result<Arc<dyn Engine>, Failure> {
    let opened = ecluse_engine::MixedEngine::open(&pipeline.engine.of_user(user), root, host, tree);
    let engine = opened.map_err(|error| not_opened(pipeline, &error))?;
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "jetstream"))]
fn mixed(
    pipeline: &Pipeline,
    root: &Path,
    user: &str,
    host: Option<&str>,
    _tree: WorkTree,
) -> Result<Arc<dyn Engine>, Failure> {
    jetstream(pipeline, root, user, host)
}

#[cfg(feature = "jetstream")]
fn jetstream(
    pipeline: &Pipeline,
    root: &Path,
    user: &str,
    host: Option<&str>,
) -> Result<Arc<dyn Engine>, Failure> {
    let opened = ecluse_engine::JetstreamEngine::open(&pipeline.engine.of_user(user), root, host);
    let engine = opened.map_err(|error| not_opened(pipeline, &error))?;
    Ok(Arc::new(engine))
}

#[cfg(feature = "jetstream")]
fn not_opened(pipeline: &Pipeline, error: &ecluse_engine::OpenError) -> Failure {
    let key = format!("engine.{}", error.key);
    let problem = pipeline.problem(Level::Error, &key, &error.reason);
    match error.is_away {
        // Whoever is started while a server is away is started again: after a fault of the settings no unit would be.
        true => Failure::defer(problem),
        false => Failure::config(problem),
    }
}

#[cfg(not(feature = "jetstream"))]
fn jetstream(
    pipeline: &Pipeline,
    _root: &Path,
    _user: &str,
    _host: Option<&str>,
) -> Result<Arc<dyn Engine>, Failure> {
    let reason = "this program was built without it";
    let problem = pipeline.problem(Level::Error, "engine.kind", reason);
    Err(Failure::config(problem))
}

/// Tries the servers that the settings name, and says what is wrong with them.
#[cfg(feature = "jetstream")]
pub fn engine_problems(pipeline: &Pipeline, root: &Path) -> Vec<Problem> {
    match pipeline.engine.kind {
        EngineKind::Directories if !pipeline.engine.moving => Vec::new(),
        EngineKind::Directories | EngineKind::Jetstream => {
            let settings = pipeline.engine.of_user(EngineSettings::OPERATOR);
            let faults = ecluse_engine::JetstreamEngine::faults(&settings, root);
            let problem = |fault: ecluse_engine::EngineFault| {
                let key = format!("engine.{}", fault.key);
                pipeline.problem(Level::Error, &key, &fault.reason)
            };
            faults.into_iter().map(problem).collect()
        }
    }
}

/// Tries the servers that the settings name, and says what is wrong with them.
#[cfg(not(feature = "jetstream"))]
pub fn engine_problems(pipeline: &Pipeline, root: &Path) -> Vec<Problem> {
    match jetstream_wanted(pipeline) {
        true => jetstream(pipeline, root, EngineSettings::OPERATOR, None)
            .err()
            .map(|failure| pipeline.problem(Level::Error, "engine.kind", &failure.reason))
            .into_iter()
            .collect(),
        false => Vec::new(),
    }
}

#[cfg(not(feature = "jetstream"))]
fn jetstream_wanted(pipeline: &Pipeline) -> bool {
    pipeline.engine.kind == EngineKind::Jetstream || pipeline.engine.moving
}
