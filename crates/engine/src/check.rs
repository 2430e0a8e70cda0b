//! Whether servers can carry an archive, tried and not believed.

use std::path::Path;

use ecluse_config::EngineSettings;
use futures_util::future::join_all;

use crate::cluster::dice;
use crate::refusal;
use crate::standing::SKEWED;
use crate::store::Put;
use crate::{JetstreamEngine, OpenError};

/// How many race for one key.
const RACERS: usize = 6;
/// How often they do.
const RACES: usize = 10;

/// What is wrong with the servers of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFault {
    /// The key of `[engine]` to look at.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl From<OpenError> for EngineFault {
    fn from(error: OpenError) -> Self {
        Self {
            key: error.key,
            reason: error.reason,
        }
    }
}

impl JetstreamEngine {
    /// Tries the servers that the settings name: can they be reached with these credentials, is the bucket there, does the
    /// store keep the conditions on which everything rests, can queues have as many copies as they shall.
    pub fn faults(settings: &EngineSettings, root: &Path) -> Vec<EngineFault> {
        let engine = match JetstreamEngine::open(settings, root, None) {
            Ok(engine) => engine,
            Err(error) => return vec![error.into()],
        };
        let mut faults = Vec::new();
        if let Some((key, reason)) = engine.inner.wait(engine.inner.queue.fault()) {
            faults.push(EngineFault { key, reason });
        }
        faults.extend(engine.inner.wait(engine.store_fault()));
        faults
    }

    /// Races several writers for the same keys: of each there must be one winner.
    async fn store_fault(&self) -> Option<EngineFault> {
        let store = &self.inner.store;
        for _ in 0..RACES {
            let key = format!("probes/race-{:016x}", dice());
            let texts: Vec<String> = (0..RACERS).map(|racer| format!("racer {racer}")).collect();
            let raced = join_all(
                texts
                    .iter()
                    .map(|text| store.put_new(&key, text.as_bytes())),
            )
            .await;
            let mut winners = Vec::new();
            for put in raced {
                match put {
                    Ok(Put::There(etag)) => winners.push(etag),
                    Ok(Put::Taken) => {}
                    Err(error) => {
                        return Some(refused(&error.to_string()));
                    }
                }
            }
            let over = match winners.first() {
                Some(etag) => {
                    let puts = texts.iter().map(|text| format!("over by {text}"));
                    let puts: Vec<String> = puts.collect();
                    let raced = join_all(
                        puts.iter()
                            .map(|text| store.put_over(&key, text.as_bytes(), etag)),
                    )
                    .await;
                    raced
                        .into_iter()
                        .filter(|put| matches!(put, Ok(Put::There(_))))
                        .count()
                }
                None => 0,
            };
            let _ = store.remove(&key).await;
            if winners.len() != 1 || over != 1 {
                let address = &store.address;
                return Some(EngineFault {
                    key: "endpoint",
                    reason: format!(
                        "{address} does not keep If-None-Match and If-Match: of {RACERS} writers of one object {} won, and {over} over it; \
                         take a store that does (AWS, Ceph, SeaweedFS 4, MinIO)",
                        winners.len()
                    ),
                });
            }
        }
        None
    }
}

/// Returns what is wrong and what to do, by what the store said.
fn refused(text: &str) -> EngineFault {
    if let Some(refusal) = refusal::of_store(text) {
        return refusal.into();
    }
    let fault = |key: &'static str, remedy: &str| EngineFault {
        key,
        reason: format!("{text}; {remedy}"),
    };
    if text.contains(SKEWED) {
        return fault(
            "endpoint",
            "the store refuses this host because of its clock, and does not say its own: set the clock of this host",
        );
    }
    if ["AccessDenied", "403", "401"]
        .iter()
        .any(|word| text.contains(word))
    {
        return fault(
            "key-file",
            "the store refuses these keys: look into key-file and secret-file, and what they may do",
        );
    }
    if text.contains("NotImplemented") || text.contains("501") {
        return fault(
            "endpoint",
            "the store knows no conditional put: take one that does (AWS, Ceph, SeaweedFS 4, MinIO)",
        );
    }
    fault("endpoint", "start the store, or name another")
}
