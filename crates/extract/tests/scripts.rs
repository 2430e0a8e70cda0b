//! How often is a string in a script wrongly taken for a URL, and how often is a URL missed?
//!
//! The corpus is a handful of scripts written to look like what sites serve: a minified bundle, a jQuery plug-in, a tag manager, a
//! map, a player, a single-page application. Every URL that a browser would really ask for is listed; all else that is found is a false
//! positive. One test prints the figures and holds them.
//!
//! Those were written beside the code. The others are somebody else's: the scripts and strings that Heritrix tries its own extractor
//! with (`ExtractorJSTest`, `UriUtilsTest` of heritrix3), with what it expects. Where we differ, the table says how and why.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;

use ecluse_extract::{Context, Url, extract};

struct Case {
    name: &'static str,
    script: &'static str,
    real: &'static [&'static str],
}

const CORPUS: [Case; 8] = [
    Case {
        name: "bundle, minified",
        script: r##"!function(e){var t={};function n(r){if(t[r])return t[r].exports;var i=t[r]={i:r,l:!1,exports:{}};return e[r].call(i.exports,i,i.exports,n),i.l=!0,i.exports}n.p="/assets/",n.u=function(e){return"js/"+({1:"home",2:"shop"}[e]||e)+"."+{1:"a1b2c3",2:"d4e5f6"}[e]+".chunk.js"},n.h="9f3c"}({"./src/index.js":function(e,t,n){"use strict";n.r(t);var r=n("./node_modules/react/index.js"),i=n("./src/App.js");e.exports=n.p+"img/logo.8d3f.svg"},"./locale/fr.js":function(e){e.exports={longDateFormat:{LT:"HH:mm",L:"DD/MM/YYYY",LLLL:"dddd D MMMM YYYY HH:mm"},and:"et/ou",unit:"km/h"}},7:function(e,t){var n="application/json",r="text/html; charset=utf-8",i=/^\/(?:api|v1)\/[^"']+\.json$/i,o=function(e){return/["'`]\/fake\.png/.test(e)?1/2:e.length/3};t.a={get:function(e){return fetch("/api/v2/items/"+e,{headers:{"Content-Type":n}})},list:function(){return fetch("/api/v2/items?limit=20")},logo:"/static/media/logo.svg"}}});"##,
        real: &[
            "http://lock.example/api/v2/items?limit=20",
            "http://lock.example/static/media/logo.svg",
            "http://lock.example/assets/js/home.a1b2c3.chunk.js",
            "http://lock.example/assets/js/shop.d4e5f6.chunk.js",
        ],
    },
    Case {
        name: "jQuery plug-in",
        script: r##"(function($){ // gallery, see "/docs/gallery.html"
  /* defaults: '/img/none.png' */
  $.fn.gallery=function(o){var s=$.extend({spinner:'images/spinner.gif',next:"images/next.png",prev:'images/prev.png',speed:400,selector:'li.item > a.pdf',easing:'swing',template:'<div class="g"><img src="images/frame.png" alt=""><a href="#">x</a></div>'},o);
  return this.each(function(){var $t=$(this);$t.find('a[href$=".jpg"]').on('click.gallery',function(e){e.preventDefault();$t.css('background-image','url('+this.href+')');$.get('/gallery/view.php?id='+$(this).data('id'),function(d){$t.html(d)});});
  if(navigator.userAgent.indexOf('MSIE 6.0')>-1){document.write('<scr'+'ipt src="js/pngfix.js"></scr'+'ipt>');}
  $t.append("<li class='a/b'>1/4</li>").attr('title',"N/A").text('and/or');});};})(jQuery);"##,
        real: &[
            "http://lock.example/a/images/spinner.gif",
            "http://lock.example/a/images/next.png",
            "http://lock.example/a/images/prev.png",
            "http://lock.example/a/images/frame.png",
            "http://lock.example/a/js/pngfix.js",
        ],
    },
    Case {
        name: "tag manager",
        script: r##"(function(w,d,s,l,i){w[l]=w[l]||[];w[l].push({'gtm.start':new Date().getTime(),event:'gtm.js'});var f=d.getElementsByTagName(s)[0],j=d.createElement(s),dl=l!='dataLayer'?'&l='+l:'';j.async=true;j.src='https://www.tags.example/gtm.js?id='+i+dl;f.parentNode.insertBefore(j,f);})(window,document,'script','dataLayer','GTM-ABC123');
var _paq=_paq||[];_paq.push(['trackPageView']);(function(){var u="//stats.lock.example/";_paq.push(['setTrackerUrl',u+'matomo.php']);_paq.push(['setSiteId','3']);var d=document,g=d.createElement('script'),s=d.getElementsByTagName('script')[0];g.type='text/javascript';g.src=u+'matomo.js';s.parentNode.insertBefore(g,s);})();
!function(f,b,e,v,n,t,s){if(f.fbq)return;n=f.fbq=function(){};t=b.createElement(e);t.src=v}(window,document,'script','https://connect.social.example/en_US/fbevents.js');"##,
        real: &["https://connect.social.example/en_US/fbevents.js"],
    },
    Case {
        name: "map",
        script: r##"var map=L.map('map',{center:[48.85,2.35],zoom:13,crs:L.CRS.EPSG3857});L.tileLayer('https://{s}.tile.example/{z}/{x}/{y}.png',{attribution:'&copy; <a href="https://www.osm.example/copyright">contributors</a>',maxZoom:19,subdomains:'abc'}).addTo(map);
var icon=L.icon({iconUrl:'/img/markers/lock.png',shadowUrl:"/img/markers/shadow.png",iconSize:[25,41]});$.getJSON("data/locks.geojson",function(d){L.geoJSON(d,{pointToLayer:function(f,p){return L.marker(p,{icon:icon}).bindPopup(`<a href="/lock/${f.id}">${f.properties.name}</a>`)}}).addTo(map)});
var proj="+proj=lcc +lat_1=49",units='m/s',ratio="16/9",ns="http://www.w3.org/2000/svg",gml='http://www.opengis.net/gml';"##,
        real: &[
            "https://www.osm.example/copyright",
            "http://lock.example/img/markers/lock.png",
            "http://lock.example/img/markers/shadow.png",
            "http://lock.example/a/data/locks.geojson",
        ],
    },
    Case {
        name: "player",
        script: r##"jwplayer("player").setup({file:"https:\/\/media.lock.example\/v\/2026\/lock.mp4",image:"\/img\/poster.jpg",width:"100%",aspectratio:"16:9",tracks:[{file:"\/vtt\/fr.vtt",kind:"captions"}],skin:{url:'/skins/dark.css'},advertising:{client:"vast",tag:"https://ads.example/vast?c="+encodeURIComponent(c)}});
var types={mp4:'video/mp4',webm:"video/webm; codecs=\"vp9\"",hls:'application/vnd.apple.mpegurl'};function fmt(s){return Math.floor(s/60)+':'+('0'+s%60).slice(-2)}var re=/\.(mp4|webm)(\?.*)?$/;player.on('play/pause',function(){});"##,
        real: &[
            "https://media.lock.example/v/2026/lock.mp4",
            "http://lock.example/img/poster.jpg",
            "http://lock.example/vtt/fr.vtt",
            "http://lock.example/skins/dark.css",
        ],
    },
    Case {
        name: "single-page application",
        script: r##"import{createRouter as r}from"./vendor.5f2c.js";import"./app.9a1b.css";const routes=[{path:"/",component:()=>import("./Home.77aa.js")},{path:"/lock/:id(\\d+)",component:()=>import("./Lock.88bb.js")},{path:"/about",name:"about"},{path:"*",redirect:"/404"}];
const api=axios.create({baseURL:"https://api.lock.example/v3/"});export const get=id=>api.get(`/locks/${id}`);const img=new URL("/assets/gate.3c4d.webp",self.location).href;const msg={err:"Error: see https://help.lock.example for details",date:"YYYY-MM-DD",price:"/month",mime:"image/*"};
if(process.env.NODE_ENV!=="production"){console.warn("[router] use ./router.js instead");}
const __vite__mapDeps=["assets/Home.77aa.js","assets/Home.12ab.css"];window.__STATE__=JSON.parse('{"user":null,"menu":[{"label":"A/B","url":"\/menu\/a"},{"label":"x","url":"\/menu\/b"}],"cdn":"https:\/\/cdn.lock.example\/x.png"}');"##,
        real: &[
            "http://lock.example/a/vendor.5f2c.js",
            "http://lock.example/a/app.9a1b.css",
            "http://lock.example/a/Home.77aa.js",
            "http://lock.example/a/Lock.88bb.js",
            "https://api.lock.example/v3/",
            "http://lock.example/assets/gate.3c4d.webp",
            "http://lock.example/a/assets/Home.77aa.js",
            "http://lock.example/a/assets/Home.12ab.css",
            "http://lock.example/menu/a",
            "http://lock.example/menu/b",
            "https://cdn.lock.example/x.png",
        ],
    },
    Case {
        name: "old page",
        script: r##"<!-- hide from old browsers
var imgs=new Array();function preload(){for(i=0;i<preload.arguments.length;i++){imgs[i]=new Image();imgs[i].src=preload.arguments[i]}}preload("menu/home_on.gif","menu/home_off.gif",'menu/contact_on.gif');
function go(){var w=window.open('popup/plan.htm','plan','width=400,height=300,scrollbars=yes');if(w==null){location.href="plan.htm"}}
var d=new Date();document.write(d.getDate()+"/"+(d.getMonth()+1)+"/"+d.getYear());var browser=navigator.appName+"/"+navigator.appVersion;
if(document.all){top.location='/ie/index.htm'}else{top.location="/ns/index.htm"}
var base="http://www.old.example/";var mail="keeper"+"@"+"lock.example";// -->"##,
        real: &[
            "http://lock.example/a/menu/home_on.gif",
            "http://lock.example/a/menu/home_off.gif",
            "http://lock.example/a/menu/contact_on.gif",
            "http://lock.example/a/popup/plan.htm",
            "http://lock.example/a/plan.htm",
            "http://lock.example/ie/index.htm",
            "http://lock.example/ns/index.htm",
            "http://www.old.example/",
        ],
    },
    Case {
        name: "library",
        script: r##"/*! Lock.js v3.4.1 | (c) the keepers | MIT | https://lock.example/license */
!function(e,t){"object"==typeof exports?t(exports):"function"==typeof define&&define.amd?define("lock/core",["exports","lock/util.js"],t):t(e.Lock={})}(this,function(e){"use strict";var t="[data-lock],.lock-item,#lock/main",n=/<(\w+)\s*\/?>(?:<\/\1>|)$/,r={a:"a/b.c",version:"3.4.1",date:"2026-11-17T00:00:00/P1D",tz:"Europe/Paris",enc:"utf-8",rx:"^/path/(.*)\\.html$",glob:"src/**/*.js",b64:"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=",esc:"\u002f",pct:"50%/50%",xp:"//div[@id='x']/a",xp2:"/html/body/table",cls:"w-1/2",sel:"a.pdf, a.doc",event:"click.lock/open",mod:"core-js/modules/es.array.iterator.js",prop:"document.body.innerHTML",ext:".png",star:"*/*",frac:"3/4",jpeg:"/9j/4AAQSkZJRgABAQAAAQABAAD",svg:"M0 0L10 10z",data:"data:image/png;base64,iVBORw0KGgo=",wild:"*.lock.example",email:"keeper@lock.example",ua:"Mozilla/5.0",http:"HTTP/1.1",proto:"http://",wsp:"a b/c.png",brace:"/users/{id}/photo.png",printf:"/img/%s.png",colon:"/users/:id",route:"/^/foo/bar.html$/"};
for(var i in r)if(r.hasOwnProperty(i)&&r[i].split("/a/b.html").length/2>1)e[i]=r[i].replace(/\//g,"/").replace("/x/y.png","");e.lang=navigator.language||"en/fr";return e});"##,
        // The module loader adds nothing to a name that ends in `.js`.
        real: &["http://lock.example/a/lock/util.js"],
    },
];

#[test]
fn few_strings_are_wrongly_taken_for_urls_and_few_are_missed() {
    let (mut hits, mut wrong, mut missed, mut strings) = (0, 0, 0, 0);
    let url = Url::parse("http://lock.example/a/b").unwrap();
    for case in &CORPUS {
        let mut found = BTreeSet::new();
        extract(
            &mut case.script.as_bytes(),
            &Context::new(&url, Some("text/javascript")),
            &mut |link| {
                found.insert(link.url);
            },
        )
        .unwrap();
        let real: BTreeSet<String> = case.real.iter().map(|&url| url.to_owned()).collect();
        for extra in found.difference(&real) {
            println!("{}: false {extra}", case.name);
        }
        for missing in real.difference(&found) {
            println!("{}: missed {missing}", case.name);
        }
        hits += found.intersection(&real).count();
        wrong += found.difference(&real).count();
        missed += real.difference(&found).count();
        strings += case.script.matches(['"', '\'', '`']).count() / 2;
    }
    println!("{strings} strings, {hits} URLs found, {wrong} false, {missed} missed");
    assert!(hits >= 38, "{hits} found");
    // What is left is the root of a statistics server, to which a name is added later.
    assert!(wrong <= 1, "{wrong} false");
    assert_eq!(missed, 0);
}

/// What is found in a script at `http://www.archive.org/foo/dummy.js`.
fn found_in(script: &str) -> Vec<String> {
    let url = Url::parse("http://www.archive.org/foo/dummy.js").unwrap();
    let mut found = BTreeSet::new();
    let context = Context::new(&url, Some("text/javascript"));
    extract(&mut script.as_bytes(), &context, &mut |link| {
        found.insert(link.url);
    })
    .unwrap();
    found.into_iter().collect()
}

/// A script, what Heritrix finds in it, and what we find.
type Vector = (&'static str, &'static [&'static str], Finds);

enum Finds {
    Same,
    /// What we find, and why that is better or borne.
    Other(&'static [&'static str], &'static str),
}

use Finds::{Other, Same};

const HERITRIX_SCRIPTS: &[Vector] = &[
    (
        r#"var foo = "http://www.example.com/outlink";"#,
        &["http://www.example.com/outlink"],
        Same,
    ),
    (
        r#"var foo = "<a href=\"http://www.example.com/outlink\">link in html in string</a>";"#,
        &["http://www.example.com/outlink"],
        Same,
    ),
    (
        r#"var foo = "<a href=\"http:\/\/www.example.com\/outlink\">gratuitous escaping</a>";"#,
        &["http://www.example.com/outlink"],
        Same,
    ),
    (
        r#"'string with spaces','http://example.com/outlink'"#,
        &["http://example.com/outlink"],
        Same,
    ),
    (
        r#"'string_with_\'nested/quoted/relative/url.html\'_inside_of_it'"#,
        &["http://www.archive.org/foo/nested/quoted/relative/url.html"],
        Other(&[], "a quoted string inside a string is not looked into"),
    ),
    (
        r#"scheme-less_\\\'example.org/outlink\\\'_with_extra_escaping on the quotes"#,
        &["http://example.org/outlink"],
        Other(&[], "no string of a script, and no scheme"),
    ),
    (
        r#"var h1=Math.max.apply(null, $('.ro1 div.box').map(function(){return $(this).height()}).get());"#,
        &[],
        Same,
    ),
    (
        r#"if(window.archive_analytics) { window.archive_analytics.values['server_ms'] = 114; window.archive_analytics.values['server_name'] = "www26.us.archive.org"};"#,
        &["http://www26.us.archive.org/"],
        Other(&[], "a bare host name is a name, not an address"),
    ),
    (
        r#""layoutAction" : "https:\/\/example.com\/rest\/dashboards\/1.0\/10000\/layout""#,
        &["https://example.com/rest/dashboards/1.0/10000/layout"],
        Same,
    ),
    (
        r#"ga.src = ('https:' == document.location.protocol ? 'https://ssl' : 'http://www"#,
        &[],
        Same,
    ),
    (
        r#"_gaq.push(['_setDomainName', '.example.com']);"#,
        &[],
        Same,
    ),
    (
        r#"_gaq.push(['_setDomainName', 'example.com']);"#,
        &["http://example.com/"],
        Other(&[], "a bare host name is a name, not an address"),
    ),
    (
        r#"document.write(unescape("%3Cscript src='" + cdJsHost + "j.example.com/cr.js' type='text/javascript'%3E%3C/script%3E"));"#,
        &[],
        Same,
    ),
    (
        r#"scr.src = host + "/j/roundtrip.js";"#,
        &["http://www.archive.org/j/roundtrip.js"],
        Other(
            &[],
            "the part of a sum is not taken for a whole: the host in front is unknown",
        ),
    ),
    (
        r#"c+'" width="'+b+'" border="0" src="'+a+'" />'};return 0==a.x&&a.y==f?'<a href="'+(r(b)+"//services.example.com/sitestats/"+({ar:1,bg:1,cs:1,"#,
        &["http://services.example.com/sitestats/"],
        Other(&[], "the part of a sum is not taken for a whole"),
    ),
    (
        r#"_CN:1,zh_TW:1}[a.language]?a.language+".html":"en_US.html")+"?cid="+i(a.id))+"#,
        &["http://www.archive.org/foo/en_US.html"],
        Same,
    ),
    (
        r#"var blah='/question/mark/but/no/query/string.html?';"#,
        &[],
        Same,
    ),
    (
        r#"var blah='/query/string/without/equals.html?foo';"#,
        &[],
        Other(
            &["http://www.archive.org/query/string/without/equals.html?foo"],
            "a query needs no equals sign",
        ),
    ),
    (
        r#"var blah='/query/string/without/value.html?foo=';"#,
        &["http://www.archive.org/query/string/without/value.html?foo="],
        Other(&[], "ends in '=': a value is added later"),
    ),
    (
        r#"var blah='/query/string/without/double/equals.html?foo==bar';"#,
        &[],
        Other(
            &["http://www.archive.org/query/string/without/double/equals.html?foo==bar"],
            "a value may hold '=', as base64 does",
        ),
    ),
    (
        r#"var blah='/good/query/string.html?foo=bar';"#,
        &["http://www.archive.org/good/query/string.html?foo=bar"],
        Same,
    ),
    (
        r#"var blah='/good/query/string.html?foo=bar#with-good-hash-fragment';"#,
        &["http://www.archive.org/good/query/string.html?foo=bar"],
        Same,
    ),
    (
        r#"var blah='/good/query/string.html?foo=bar#with!bad!hash-fragment';"#,
        &[],
        Other(
            &["http://www.archive.org/good/query/string.html?foo=bar"],
            "the fragment is not sent",
        ),
    ),
    (
        r#"var blah='/bad!/path/segment.html?foo=bar';"#,
        &[],
        Other(
            &["http://www.archive.org/bad!/path/segment.html?foo=bar"],
            "'!' is allowed in a path",
        ),
    ),
    (
        r#"var blah='/good/query/value/with/url-escaping.html?foo=bar%20bar';"#,
        &["http://www.archive.org/good/query/value/with/url-escaping.html?foo=bar%20bar"],
        Same,
    ),
    (
        r#"\u0027project_detail.aspx?guid=unicodesinglequote\u0027"#,
        &["http://www.archive.org/foo/project_detail.aspx?guid=unicodesinglequote"],
        Other(&[], "an escaped quote outside a string is no script"),
    ),
    (
        r#"\u0022project_detail.aspx?guid=unicodedoublequote\u0022"#,
        &["http://www.archive.org/foo/project_detail.aspx?guid=unicodedoublequote"],
        Other(&[], "an escaped quote outside a string is no script"),
    ),
    (
        r#"{url: '/static/0000/2683/good_filename_with.two_dots.jpg',caption:'blah blah' }"#,
        &["http://www.archive.org/static/0000/2683/good_filename_with.two_dots.jpg"],
        Same,
    ),
    (
        r#"{nonUrl: 'non-filename.with_two.dots',etc:'foo foo' }"#,
        &[],
        Same,
    ),
    (
        r#""FileRef": "\u002fsites\u002fprb\u002fPublic Comment Emails PDF\u002fOpen Records Law_1r71vq4i.pdf",""#,
        &[
            "http://www.archive.org/sites/prb/Public%20Comment%20Emails%20PDF/Open%20Records%20Law_1r71vq4i.pdf",
        ],
        Same,
    ),
    (
        r#""FileRef": "\u002fsites\u002fprb\u002fPublic Comment Emails PDF\u002fOpen Records Law_1r71vq4i.bad",""#,
        &[],
        Same,
    ),
    (
        r#""FileRef": "\u002fsites\u002fprb\u002fPublic Comment Emails PDF\u002fOpenRecordsLaw_1r71vq4i",""#,
        &[],
        Same,
    ),
];

#[test]
fn heritrixs_scripts_give_what_heritrix_finds_or_what_we_say() {
    let mut wrong = Vec::new();
    for (script, theirs, ours) in HERITRIX_SCRIPTS {
        let (wanted, why) = match ours {
            Same => (*theirs, "as Heritrix"),
            Other(ours, why) => (*ours, *why),
        };
        let found = found_in(script);
        if found != wanted {
            wrong.push(format!(
                "{script}\n  found {found:?}\n  not   {wanted:?} ({why})"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Strings that Heritrix takes for a URL, with the way in which we differ.
const HERITRIX_URLS: &[(&str, Option<&str>)] = &[
    ("photo.jpg", None),
    ("./photo.jpg", None),
    ("../photo.jpg", None),
    ("images/photo.jpg", None),
    ("../../images/photo.jpg", None),
    ("/photo.jpg", None),
    ("/images/photo.jpg", None),
    ("http://example.com", None),
    ("http://www.example.com/about", None),
    ("http://www.example.com/about/index.html", None),
    ("https://example.com/", None),
    ("https://www.example.com/about/", None),
    (
        "ftp://example.com/public/report.pdf",
        Some("only http and https are crawled"),
    ),
    (
        "http://a.example.com/combiner/c?js=analytics/sOmni.js,analytics/analytics.js,analytics/zf.js",
        None,
    ),
    (
        "http://l.example.com/jn/util/anysize/74*74c-86400,http%3A%2F%2Fl.example.com%2Fa%2F74.upallnight.jpg",
        None,
    ),
    ("default.asp?type=1", None),
    (
        "\\/add\\/page?.crumb=O2.eArRHJUUWRkVHN6L0Y.&frompg=p1",
        None,
    ),
    ("/wiki/Ficheiro:Wikiversity-logo.svg", None),
    (
        "cssp!gelui-1/overlay",
        Some("neither a path nor a name with a known ending"),
    ),
    (
        "/wiki/%E0%B4%B8%E0%B4%B9%E0%B4%BE:To_Read_in_Malayalam",
        None,
    ),
    ("/wiki/Wikiversity:Why_create_an_account%3F", None),
];

/// Strings that Heritrix does not take for a URL, with the way in which we differ.
const HERITRIX_NOT_URLS: &[(&str, Option<&str>)] = &[
    ("0.99", None),
    ("3.14157", None),
    ("foo bar", None),
    ("<script>foo=bar</script>", None),
    ("item\\t$0.99\\tred", None),
    ("),f=document.getElementsByTagName(", None),
    ("window.location.href='/'", None),
    (
        "http://example.com/intent/user?screen_name='+p.user+'",
        None,
    ),
    (").append(", None),
    ("[\\x3cb\\x3e-\\x3c/b\\x3e]", None),
    ("text/javascript", None),
    ("text/css", None),
    ("application/x-shockwave-flash", None),
    ("text/javaScript", None),
    ("text/html", None),
    ("application/x-www-form-urlencoded", None),
    ("text/xml", None),
    ("application/x-mplayer2", None),
    ("application/json", None),
    ("image/jpeg", None),
    ("image/x-icon", None),
    ("audio/mpeg", None),
    ("video/quicktime", None),
    ("audio/x-pn-realaudio-plugin", None),
    ("+resp.result+", None),
    (";overlay.style.width=viewport_dimensions.width+", None),
    ("+_ti;bb.src=", None),
];

#[test]
fn heritrixs_strings_are_urls_or_not_as_heritrix_says_or_as_we_do() {
    let mut wrong = Vec::new();
    for (texts, theirs) in [(HERITRIX_URLS, true), (HERITRIX_NOT_URLS, false)] {
        for (text, differs) in texts {
            let found = found_in(&format!("var x = \"{text}\";"));
            if found.is_empty() != (theirs == differs.is_some()) {
                wrong.push(format!("{text}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
