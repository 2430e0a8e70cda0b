//! Any bytes are a robots.txt with no more rules than it has bytes, and any URL gets a verdict, the same twice.

use ecluse_scope::{Robots, RobotsLimits};

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    let robots = Robots::parse(bytes, &RobotsLimits::default());
    assert!(robots.sitemaps().len() <= bytes.len());
    let own = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(40)..]).into_owned();
    for tokens in [&["ecluse"][..], &["other", "ecluse"], &[]] {
        let rules = robots.rules_for(tokens);
        assert!(rules.len() <= bytes.len(), "{} rules", rules.len());
        let _ = (rules.crawl_delay(), rules.group());
        for url in ["http://a.example/", "http://a.example/a/b.html?c=*$", &own] {
            let verdict = format!("{:?}", rules.judge(url));
            assert_eq!(verdict, format!("{:?}", rules.judge(url)));
        }
    }
}

/// Files as sites have them.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "User-agent: *\nDisallow: /private\nAllow: /private/open$\nCrawl-delay: 2.5\n\nSitemap: http://a.example/s.xml\n",
        "\u{feff}user-agent : ecluse\r\nuser-agent: other\rdisallow:/*.php?*x=1$\nDisallow:\nUseragent: x\n# end",
        "Disallow: /no-agent\nUser-agent: *\nDisallow: /%E2%82%AC\nAllow: /\u{20ac}\nDisallow: *****a*****b\n",
        "<html><body>not found</body></html>",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
