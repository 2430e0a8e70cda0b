//! The crawler traps that are shipped: pages made for each visitor, each click or each pair of versions.
//!
//! A trap is a regular expression on the whole URL, in any case. Each stands here with URLs that fall into it and
//! neighbours that do not; the tests hold the expression to both. A job can leave traps out by name and add its own.

/// A shipped trap.
pub(super) struct Trap {
    /// By which an order leaves it out.
    pub(super) name: &'static str,
    pub(super) pattern: &'static str,
    #[cfg(test)]
    caught: &'static [&'static str],
    #[cfg(test)]
    free: &'static [&'static str],
}

macro_rules! traps {
    ($($name:literal: $pattern:literal, caught $caught:expr, free $free:expr;)*) => {
        &[$(Trap {
            name: $name,
            pattern: $pattern,
            #[cfg(test)]
            caught: &$caught,
            #[cfg(test)]
            free: &$free,
        }),*]
    };
}

pub(super) const SHIPPED: &[Trap] = traps! {
    "calendar-export": r"[?&](outlook-)?ical=1\b|[?&](tribe_event_display|eventDisplay)=(past|day|week|month|photo|map)\b.*[?&]tribe",
        caught ["http://a.example/events/?ical=1", "http://a.example/e?outlook-ical=1&x", "http://a.example/?eventDisplay=past&tribe_paged=9"],
        free ["http://a.example/events/", "http://a.example/?medical=1", "http://a.example/?eventDisplay=past"];
    "calendar-view": r"/(day|week|month|year)\.php\?.*(getdate|cal)=|/calendar/view\.php\?.*\bview=(day|month|upcoming)\b.*\btime=|[?&]viewcal=|[?&]task=(day|week|month|year)\.listevents",
        caught ["http://a.example/cal/month.php?cal=all&getdate=20260101", "http://a.example/calendar/view.php?view=day&time=17", "http://a.example/?option=com&task=month.listevents&x"],
        free ["http://a.example/day.php", "http://a.example/calendar/view.php", "http://a.example/calendar/"];
    "wiki-actions": r"[?&]action=(edit|submit|history|info|delete|protect|unprotect|watch|unwatch|purge|credits|markpatrolled|formedit)\b|[?&](diff|undo)=(prev|next|cur|\d)|[?&]do=(edit|diff|revisions|backlink|recent|index|login|media)\b",
        caught ["http://a.example/index.php?title=A&action=edit&section=2", "http://a.example/w?oldid=1&diff=prev", "http://a.example/w?diff=12", "http://a.example/doku.php?id=a&do=diff"],
        free ["http://a.example/index.php?title=A", "http://a.example/w?oldid=12", "http://a.example/?action=view", "http://a.example/?diffusion=1"];
    "wiki-special": r"[:/=](Special|Sp%C3%A9cial|Spezial|Especial|Speciale)(:|%3A)(RecentChangesLinked|WhatLinksHere|Log|UserLogin|Connexion|CreateAccount|Export|Book|CiteThisPage|DownloadAsPdf|ElectronPdf|MobileDiff)",
        caught ["http://a.example/wiki/Special:WhatLinksHere/A", "http://a.example/w/index.php?title=Special:UserLogin&returnto=A", "http://a.example/wiki/Sp%C3%A9cial:Log"],
        free ["http://a.example/wiki/Special:AllPages", "http://a.example/special/log", "http://a.example/wiki/Log"];
    "reply-links": r"[?&](replytocom|replyto|reply_to|quote_id)=\d|/comment/reply/\d|/(newreply|sendmessage|newthread)\.php\?|/posting\.php\?.*\bmode=(reply|quote|post|edit)",
        caught ["http://a.example/post/?replytocom=7", "http://a.example/comment/reply/12/34", "http://a.example/newreply.php?do=x", "http://a.example/posting.php?mode=quote&f=1"],
        free ["http://a.example/post/", "http://a.example/comment/12", "http://a.example/viewtopic.php?t=1"];
    "forum-steps": r"[?&]goto=(newpost|nextnewest|nextoldest|lastpost)\b|/viewtopic\.php\?.*\bview=(previous|next|unread|print)\b|/(member|memberlist|private|subscription|report|misc|ucp)\.php\?.*\b(do|mode)=",
        caught ["http://a.example/showthread.php?t=1&goto=nextnewest", "http://a.example/viewtopic.php?t=1&view=next", "http://a.example/ucp.php?mode=login"],
        free ["http://a.example/showthread.php?t=1&page=2", "http://a.example/viewtopic.php?t=1&start=20", "http://a.example/member.php?u=1"];
    "cart": r"[?&](add-to-cart|add_to_cart|add_to_wishlist|add-to-compare|add_to_compare|remove_item|wishlist_add|_wcsnonce)=|/(checkout/cart|cart|basket|panier)/(add|delete|remove|update)\b|/(wishlist/index|catalog/product_compare)/(add|remove)/|/sendfriend/product/",
        caught ["http://a.example/shop/?add-to-cart=12", "http://a.example/checkout/cart/add/uenc/aHR0/", "http://a.example/catalog/product_compare/add/product/3/"],
        free ["http://a.example/cart/", "http://a.example/shop/?product=12", "http://a.example/carte/add"];
    "listing-order": r"[?&;]C=[NMSD][;&]O=[AD]\b",
        caught ["http://a.example/pub/?C=M;O=A", "http://a.example/pub/?C=N&O=D"],
        free ["http://a.example/pub/?C=M", "http://a.example/pub/", "http://a.example/?ABC=N&XO=D"];
    "share-links": r"[?&]share=(twitter|facebook|linkedin|pinterest|reddit|tumblr|telegram|whatsapp|jetpack-whatsapp|pocket|email|google-plus-1|skype|x|mastodon|print|bluesky|threads)\b|/(sharer|share)\.php\?|/intent/tweet\?|/shareArticle\?",
        caught ["http://a.example/p/?share=twitter&nb=1", "http://a.example/sharer/sharer.php?u=http://b/", "http://a.example/intent/tweet?text=a"],
        free ["http://a.example/share/", "http://a.example/?share=all", "http://a.example/?shares=twitter"];
    "login-return": r"/(log-?in|sign-?in|signup|register|logout|connexion|wp-login\.php|user/login|user/register)[^?]*\?.*\b(redirect_to|redirect|returnto|return_to|return|destination|next|return_?url|continue|came_from|referer|back_url)=",
        caught ["http://a.example/wp-login.php?redirect_to=http%3A%2F%2Fa%2F", "http://a.example/user/login?destination=node/7", "http://a.example/signin?next=/a"],
        free ["http://a.example/login", "http://a.example/wp-login.php", "http://a.example/blog?next=/a"];
    "session-twice": r"(jsessionid|phpsessid)=.*(jsessionid|phpsessid)=",
        caught ["http://a.example/a;jsessionid=1?PHPSESSID=2", "http://a.example/a;jsessionid=1/b;jsessionid=2"],
        free ["http://a.example/a;jsessionid=1"];
    "url-in-path": r"^[^?]*/https?(:|%3A)/[^?]*/https?(:|%3A)/",
        caught ["http://a.example/x/http://b.example/http://c.example/", "http://a.example/https%3A/b/http:/c"],
        free ["http://a.example/web/2020/http://b.example/", "http://a.example/?u=http://b/http://c/http://d/", "http://a.example/"];
    "script-leftovers": r"/(undefined|NaN|null|%5Bobject%20Object%5D|\[object%20Object\])(/|$)|(\{\{|%7B%7B|\$\{|\$%7B|<%=|%3C%25=|%7B%25)",
        caught ["http://a.example/undefined", "http://a.example/a/[object%20Object]/b", "http://a.example/%7B%7Bitem.url%7D%7D", "http://a.example/a/$%7Bid%7D"],
        free ["http://a.example/nullity", "http://a.example/a?x=null", "http://a.example/undefined-behaviour", "http://a.example/%7Bguid%7D"];
    "scheme-in-path": r"^https?://[^/]+/(.*/)?(mailto|javascript|tel|sms|whatsapp|callto)(:|%3A)|^https?://[^/]+/(.*/)?data(:|%3A)(image|text|application)/",
        caught ["http://a.example/b/mailto:x@b.example", "http://a.example/javascript:void(0)", "http://a.example/tel:+33", "http://a.example/data:image/png;base64,x"],
        free ["http://a.example/mailto/", "http://a.example/hotel:1", "http://a.example/data:7"];
    "endless-pages": r"[?&/](page|paged|pg)[=/]\d{5,}\b|[?&](offset|start|from)=\d{7,}\b",
        caught ["http://a.example/?page=10000", "http://a.example/page/123456/", "http://a.example/?q=a&offset=1000000"],
        free ["http://a.example/?page=9999", "http://a.example/webpage/123456", "http://a.example/?offset=999990", "http://a.example/?mypage=99999"];
    "version-pairs": r"[?&;](r1|rev1|old|from_rev)=.*[?&;](r2|rev2|new|to_rev)=|/-/(blame|compare|commits)/|/compare/[^/?]+\.\.\.?[^/?]|[?&;]a=(blobdiff|commitdiff|snapshot|search|history|blob_plain)\b",
        caught ["http://a.example/viewvc/a.c?r1=1.2&r2=1.3", "http://a.example/g/p/-/blame/main/a.rs", "http://a.example/p/compare/v1...v2", "http://a.example/gitweb/?p=a;a=commitdiff;h=7"],
        free ["http://a.example/viewvc/a.c?r1=1.2", "http://a.example/compare/phones", "http://a.example/gitweb/?p=a;a=summary"];
    "parking": r"[?&](fp|prvtof|poru|pid)=[^&]+&.*(prvtof|poru)=|/search/tsc\.php\?|/__media__/js/trademark\.php|/sk-(logabpstatus|jspark_init|privacy)\.php|[?&](ses|sedoparking|dn)=.*&(token|toolbar|afdToken)=",
        caught ["http://a.example/?fp=Ab%2F&prvtof=x&poru=y", "http://a.example/search/tsc.php?200=1", "http://a.example/__media__/js/trademark.php?d=a"],
        free ["http://a.example/?fp=1", "http://a.example/search/", "http://a.example/?pid=7&page=2"];
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scope::pattern::compile_one;

    #[test]
    fn each_trap_catches_its_own_and_lets_neighbours_go() {
        for trap in SHIPPED {
            let pattern = compile_one(trap.pattern, true).unwrap();
            assert!(
                !trap.caught.is_empty() && !trap.free.is_empty(),
                "{}",
                trap.name
            );
            for url in trap.caught {
                assert!(pattern.is_match(url.as_bytes()), "{}: {url}", trap.name);
            }
            for url in trap.free {
                assert!(!pattern.is_match(url.as_bytes()), "{}: {url}", trap.name);
            }
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: BTreeSet<&str> = SHIPPED.iter().map(|trap| trap.name).collect();
        assert_eq!(names.len(), SHIPPED.len());
    }

    /// What a library would miss first.
    #[test]
    fn ordinary_pages_are_no_traps() {
        for url in [
            "https://lock.example/",
            "https://lock.example/2026/11/16/a-title-of-a-page/",
            "https://lock.example/index.php?id=42&lang=fr",
            "https://lock.example/ark:/12148/bpt6k9604118j.texteImage",
            "https://lock.example/wiki/Canal_lock",
            "https://lock.example/static/js/main.3f2a.js?v=1.2.3",
            "https://lock.example/img/photo%20(1).jpg",
            "https://lock.example/search?q=lock&page=2&sort=date",
            "https://lock.example/node/123/edit-profile",
            "https://lock.example/?p=123",
            "https://lock.example/products/blue-boat?variant=123456789",
            "https://lock.example/forum/viewtopic.php?f=3&t=77&start=40",
            "https://lock.example/article.php3?id_article=12",
            "https://lock.example/spip.php?page=sommaire",
        ] {
            for trap in SHIPPED {
                let pattern = compile_one(trap.pattern, true).unwrap();
                assert!(
                    !pattern.is_match(url.as_bytes()),
                    "{} catches {url}",
                    trap.name
                );
            }
        }
    }
}
