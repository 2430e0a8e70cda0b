//! Any document has links that are URLs, within the limits, or none.
//!
//! The first byte chooses what the header says of it.

use ecluse_extract::{Context, ExtractLimits, Url, extract};

const TYPES: [Option<&str>; 10] = [
    None,
    Some("text/html"),
    Some("text/html; charset=shift_jis"),
    Some("application/xhtml+xml"),
    Some("text/css"),
    Some("text/javascript"),
    Some("application/json"),
    Some("application/rss+xml"),
    Some("application/xml"),
    Some("text/plain"),
];

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    let Some((&choice, mut document)) = bytes.split_first() else {
        return;
    };
    let url = Url::parse("http://lock.example/a/b?c").expect("it is one");
    let mut context = Context::new(&url, TYPES[usize::from(choice) % TYPES.len()]);
    context.limits = ExtractLimits {
        links: 1000,
        sitemap_links: 1000,
        ..context.limits
    };
    let (mut links, longest) = (0, context.limits.url_bytes);
    let report = extract(&mut document, &context, &mut |link| {
        assert!(link.url.len() <= longest, "{} bytes", link.url.len());
        Url::parse(&link.url).expect("a link is a URL");
        links += 1;
    });
    report.expect("a slice does not fail");
    assert!(links <= 1000, "{links} links");
}

/// Documents of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "\x01<!doctype html><base href='/x/'><a href=a.html>a</a><img srcset='b.png 1x, c.png 2x'><script>var u='/d.js'</script><style>@import 'e.css'</style>",
        "\x01<meta http-equiv=refresh content='0;url=f.html'><!-- <a href=g> --><iframe srcdoc='&lt;img src=h>'></iframe><a onclick=\"location='/i'\">",
        "\x03<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><a href='j'/></html>",
        "\x04@import url(k.css);a{background:url('l.png')}/* url(m) */@font-face{src:url(\"n.woff\")}",
        "\x05import('./o.js');fetch(\"/api/p?q=1\");const t=`/r/${s}`;x=/\\/t\\.png/;y={\"u\":\"https:\\/\\/v.example\\/w\"}",
        "\x06{\"url\":\"/x.json\",\"html\":\"<img src=y.png>\",\"deep\":[[[{\"z\":\"http://a.example/\"}]]]}",
        "\x07<rss><channel><item><link>http://a.example/1</link><enclosure url='2.mp3'/></item></channel></rss>",
        "\x08<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>http://a.example/3</loc></url></urlset>",
        "\x09http://a.example/4\nhttp://a.example/5\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
