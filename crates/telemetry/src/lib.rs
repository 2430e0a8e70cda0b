//! Logs and metrics of a stage.
