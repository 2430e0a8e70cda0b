//! Any text is settings or a list of mistakes; what is wrong is said in lines that a terminal can show.

#![no_main]

use ecluse_config::Pipeline;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Pipeline::parse(text, "pipeline.toml") {
        Ok(pipeline) => {
            for stage in pipeline.stage_names() {
                let _ = (pipeline.shell(stage), pipeline.next_of(stage));
            }
        }
        Err(error) => assert!(!error.to_string().contains('\u{1b}')),
    }
});
