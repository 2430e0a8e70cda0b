//! pipeline.toml: the chain, its limits and every stage's settings.
