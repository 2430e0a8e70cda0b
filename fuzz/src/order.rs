//! Any text is an order or a list of mistakes that a terminal can show; an order read over itself changes nothing.

use ecluse_scope::Order;

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let contact = "https://lock.example/";
    match Order::parse(text, "order.toml", contact) {
        Ok(read) => {
            let _ = (read.order.user_agent(contact), read.order.grouping());
            let _ = read.order.queue_budget("lock.example");
            let again = read.order.amend(text, "order.toml", contact);
            let again = again.expect("an order can be read twice");
            assert!(again.changes.is_empty(), "it changes itself");
        }
        Err(error) => assert!(!error.to_string().contains('\u{1b}')),
    }
}

const SMALL: &str =
    "job = '1'\nharvest = '2'\n[[seeds]]\nurls = ['lock.example', 'http://a.example/ # x']\n";

/// A small order, and the examples of the documentation, which have every key.
pub fn seeds() -> Vec<Vec<u8>> {
    let page = include_str!("../../docs/formats/order.md");
    let examples = page.split("```toml\n").skip(1);
    let examples = examples.map(|block| block.split("```").next().unwrap_or_default());
    let seeds: Vec<&str> = std::iter::once(SMALL).chain(examples).collect();
    let is_good = |text: &&&str| Order::parse(text, "order.toml", "https://lock.example/").is_ok();
    assert!(
        seeds.iter().filter(is_good).count() >= 2,
        "the seeds are no orders"
    );
    seeds
        .into_iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
}
