//! Any text is settings or a list of mistakes; what is wrong is said in lines that a terminal can show.

use ecluse_config::Pipeline;

/// Holds what the head of this file says of these bytes.
pub fn run(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else {
        return;
    };
    match Pipeline::parse(text, "pipeline.toml") {
        Ok(pipeline) => {
            for stage in pipeline.stage_names() {
                let _ = (pipeline.shell(stage), pipeline.next_of(stage));
            }
        }
        Err(error) => assert!(!error.to_string().contains('\u{1b}')),
    }
}

/// Settings.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        include_str!("../../pipeline.toml"),
        "[chain]\nstages = [\"index\"]\n[defaults]\nretry = { first = \"1s\" }\n[stage.index]\nnext = []\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
