// Put first into every archived page: leads into the archive what rewriting on the server cannot see, and gives the page what an
// origin of its own lacks. Nothing here keeps the page from anything: that is done by the policy it came with.
"use strict";
(function () {
  var script = document.currentScript;
  if (!script || window.__ecluse) return;
  var told = JSON.parse(script.dataset.ecluse);
  script.remove();
  var here = new URL(script.src).origin;
  var ours = new RegExp("^" + told.collection + "/\\d{4,17}(?:[a-z]{2}_)?/");
  var other = /^(?:data|javascript|mailto|about|blob|tel|sms|file|chrome|urn|view-source):/i;

  function define(object, name, value) {
    try { Object.defineProperty(object, name, { value: value, configurable: true, writable: true }); } catch (error) { /* stays as it is */ }
  }
  function getter(object, name, get, set) {
    try { Object.defineProperty(object, name, { get: get, set: set || function () {}, configurable: true }); } catch (error) { /* stays as it is */ }
  }
  // The URL that the page had: of its own address, or of its <base>.
  function original(address) {
    try {
      var url = new URL(address);
      if (url.origin === here && ours.test(url.pathname)) return url.href.slice(here.length).replace(ours, "");
    } catch (error) { /* no address of ours */ }
    return "";
  }
  function base() { return original(document.baseURI) || told.url; }

  function lead(link, modifier) {
    var text = String(link === undefined || link === null ? "" : link).trim();
    if (!text || text[0] === "#" || other.test(text)) return link;
    if (ours.test(text)) return here + text;
    var url;
    try { url = new URL(text, base()); } catch (error) { return link; }
    if (url.origin === here || (url.hostname === location.hostname && url.port === location.port)) {
      var path = url.pathname + url.search + url.hash;
      if (ours.test(url.pathname) || url.pathname.indexOf("/static/") === 0) return here + path;
      // Made of location.origin: meant is the page's own server.
      url = new URL(path, told.url);
    }
    if (url.protocol === "ws:" || url.protocol === "wss:") url.protocol = url.protocol === "ws:" ? "http:" : "https:";
    if (url.protocol !== "http:" && url.protocol !== "https:") return link;
    return here + told.prefix + (modifier || "mp_") + "/" + url.href;
  }
  function leadSet(set) {
    return String(set).split(/,\s+|,(?=https?:|\/)/).map(function (one) {
      var parts = one.trim().split(/\s+/);
      parts[0] = lead(parts[0], "im_");
      return parts.join(" ");
    }).join(", ");
  }

  // Requests.
  var fetched = window.fetch;
  if (fetched) define(window, "fetch", function (input, options) {
    if (input instanceof Request) {
      var to = lead(input.url);
      if (to !== input.url) input = new Request(to, { method: input.method, headers: input.headers });
    } else input = lead(input);
    var plain = Object.assign({}, options, { credentials: "omit", mode: "cors" });
    delete plain.integrity;
    if (plain.method && !/^(get|head)$/i.test(plain.method)) { plain.method = "GET"; delete plain.body; }
    return fetched.call(window, input, plain);
  });
  var opened = XMLHttpRequest.prototype.open;
  define(XMLHttpRequest.prototype, "open", function (method, url, isAsync, user, password) {
    method = /^head$/i.test(method) ? "HEAD" : "GET";
    return opened.call(this, method, lead(url), isAsync === undefined ? true : isAsync);
  });
  try { Object.defineProperty(XMLHttpRequest.prototype, "withCredentials", { get: function () { return false; }, set: function () {} }); } catch (error) { /* stays */ }
  var answeredBy = Object.getOwnPropertyDescriptor(XMLHttpRequest.prototype, "responseURL");
  if (answeredBy) getter(XMLHttpRequest.prototype, "responseURL", function () { var url = answeredBy.get.call(this); return original(url) || url; });
  define(navigator, "sendBeacon", function () { return true; });
  if (window.EventSource) { var Source = window.EventSource; define(window, "EventSource", function (url) { return new Source(lead(url)); }); }
  ["Worker", "SharedWorker"].forEach(function (name) {
    var Kind = window[name];
    if (!Kind) return;
    define(window, name, function (url, options) {
      var to = String(lead(url, "js_"));
      if (to.indexOf("blob:") !== 0 && to.indexOf("data:") !== 0) {
        var isModule = options && options.type === "module";
        var text = isModule ? "import " + JSON.stringify(to) : "importScripts(" + JSON.stringify(to) + ")";
        to = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      }
      return new Kind(to, options);
    });
  });
  ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"].forEach(function (name) { define(window, name, undefined); });

  // Attributes of elements that a script makes or changes.
  var links = {
    HTMLImageElement: { src: "im_", srcset: "set" }, HTMLSourceElement: { src: "oe_", srcset: "set" }, HTMLScriptElement: { src: "js_" },
    HTMLLinkElement: { href: "cs_" }, HTMLAnchorElement: { href: "mp_" }, HTMLAreaElement: { href: "mp_" }, HTMLIFrameElement: { src: "fr_" },
    HTMLFrameElement: { src: "fr_" }, HTMLMediaElement: { src: "oe_" }, HTMLVideoElement: { poster: "im_" }, HTMLEmbedElement: { src: "oe_" },
    HTMLObjectElement: { data: "oe_" }, HTMLFormElement: { action: "mp_" }, HTMLTrackElement: { src: "oe_" }, HTMLInputElement: { src: "im_", formAction: "mp_" },
    HTMLButtonElement: { formAction: "mp_" },
  };
  var kinds = { IMG: links.HTMLImageElement, SOURCE: links.HTMLSourceElement, SCRIPT: links.HTMLScriptElement, LINK: links.HTMLLinkElement,
    A: links.HTMLAnchorElement, AREA: links.HTMLAreaElement, IFRAME: links.HTMLIFrameElement, FRAME: links.HTMLFrameElement, AUDIO: links.HTMLMediaElement,
    VIDEO: { src: "oe_", poster: "im_" }, EMBED: links.HTMLEmbedElement, OBJECT: links.HTMLObjectElement, FORM: links.HTMLFormElement,
    TRACK: links.HTMLTrackElement, INPUT: { src: "im_" } };
  function changed(element, name, value) {
    var kind = kinds[element.tagName] && kinds[element.tagName][name];
    if (!kind) return value;
    if (element.tagName === "LINK" && /icon|canonical|alternate|manifest/i.test(element.rel)) kind = "mp_";
    return kind === "set" ? leadSet(value) : lead(value, kind);
  }
  Object.keys(links).forEach(function (name) {
    var prototype = window[name] && window[name].prototype;
    Object.keys(links[name]).forEach(function (property) {
      var known = prototype && Object.getOwnPropertyDescriptor(prototype, property);
      if (!known || !known.set) return;
      Object.defineProperty(prototype, property, {
        configurable: true, enumerable: known.enumerable,
        get: function () { var value = known.get.call(this); return typeof value === "string" && property !== "srcset" ? original(value) || value : value; },
        set: function (value) {
          var kind = links[name][property];
          if (this.hasAttribute && this.hasAttribute("integrity")) this.removeAttribute("integrity");
          known.set.call(this, kind === "set" ? leadSet(value) : changed(this, property.toLowerCase(), value));
        },
      });
    });
  });
  ["integrity"].forEach(function (property) {
    [window.HTMLScriptElement, window.HTMLLinkElement].forEach(function (kind) { if (kind) getter(kind.prototype, property, function () { return ""; }); });
  });
  var set = Element.prototype.setAttribute;
  define(Element.prototype, "setAttribute", function (name, value) {
    var lower = String(name).toLowerCase();
    if (lower === "integrity") return undefined;
    return set.call(this, name, changed(this, lower, value));
  });
  // No policy keeps a browser from connecting ahead: such links are taken out of markup before it is parsed.
  var ahead = /\b(?:preconnect|dns-prefetch|prerender|prefetch)\b/i, reference = /&#(?:x([0-9a-f]+)|([0-9]+));?/gi;
  function still(markup) {
    return String(markup).replace(/<(?:link|script)\b(?:"[^"]*"|'[^']*'|[^"'>])*>?/gi, function (tag) {
      var plain = tag.replace(reference, function (all, hex, digits) {
        try { return String.fromCodePoint(hex ? parseInt(hex, 16) : parseInt(digits, 10)); } catch (error) { return all; }
      });
      if (/^<link/i.test(tag)) return ahead.test(plain) ? "" : tag;
      return /speculationrules/i.test(plain) ? "<script type=text/plain>" : tag;
    });
  }
  ["innerHTML", "outerHTML"].forEach(function (property) {
    [window.Element, window.ShadowRoot].forEach(function (kind) {
      var known = kind && Object.getOwnPropertyDescriptor(kind.prototype, property);
      if (known && known.set) Object.defineProperty(kind.prototype, property, {
        configurable: true, enumerable: known.enumerable, get: known.get, set: function (value) { known.set.call(this, value === null ? "" : still(value)); },
      });
    });
  });
  [[window.Element, "insertAdjacentHTML", 1], [window.Element, "setHTMLUnsafe", 0], [window.Range, "createContextualFragment", 0], [window.DOMParser, "parseFromString", 0],
    [window.Document, "write", 0], [window.Document, "writeln", 0]].forEach(function (one) {
    var known = one[0] && one[0].prototype[one[1]];
    if (known) define(one[0].prototype, one[1], function () {
      var words = Array.prototype.slice.call(arguments);
      if (one[0] === window.Document) words = [still(words.join(""))];
      else if (words.length > one[2]) words[one[2]] = still(words[one[2]]);
      return known.apply(this, words);
    });
  });
  // What came by innerHTML and the like is mended when it is there; meanwhile the policy has kept it from loading.
  function mend(element) {
    var names = kinds[element.tagName];
    if (!names) return;
    Object.keys(names).forEach(function (name) {
      var value = element.getAttribute(name);
      if (!value) return;
      var to = changed(element, name, value);
      if (to !== value && here + value !== to) set.call(element, name, to);
    });
  }
  new MutationObserver(function (changes) {
    changes.forEach(function (change) {
      change.addedNodes.forEach(function (node) {
        if (node.nodeType !== 1) return;
        mend(node);
        if (node.firstElementChild) node.querySelectorAll("[src],[href],[srcset],[poster],[data],[action]").forEach(mend);
      });
    });
  }).observe(document, { childList: true, subtree: true });

  // Where the page is and where it goes.
  ["pushState", "replaceState"].forEach(function (name) {
    var known = history[name];
    define(history, name, function (state, title, url) {
      var to = url === undefined || url === null ? url : lead(url);
      var result = known.call(history, state, title, to);
      tell();
      return result;
    });
  });
  define(window, "open", function (url) { if (url) location.href = lead(url); return window; });
  if (window.navigation) navigation.addEventListener("navigate", function (event) {
    var to = event.destination.url;
    var led = lead(to);
    if (led !== to && event.cancelable && !event.formData) { event.preventDefault(); location.href = led; }
  });
  // A link may aim at another frame of the page. Frames of an origin of their own may not move each other: those above can.
  function move(message) {
    for (var at = 0; at < window.frames.length; at++) {
      var frame = document.querySelectorAll("iframe,frame")[at];
      if (frame && frame.name === message.frame) { frame.src = message.to; return true; }
    }
    if (message.frame === "_top" && window.parent === window.top) { location.href = message.to; return true; }
    return false;
  }
  addEventListener("message", function (event) {
    var message = event.data;
    if (!message || message.ecluse !== "move") return;
    event.stopImmediatePropagation();
    var isOurs = typeof message.to === "string" && original(message.to);
    if (isOurs && !move(message) && window.parent !== window.top) window.parent.postMessage(message, "*");
  }, true);
  addEventListener("click", function (event) {
    var link = event.target && event.target.closest && event.target.closest("a[href],area[href]");
    if (!link || event.defaultPrevented) return;
    mend(link);
    var target = link.target || (document.querySelector("base[target]") || {}).target || "";
    if (!target || target === "_self" || target === window.name) return;
    if (window.parent === window.top && (target[0] === "_" || !document.querySelector("iframe,frame"))) { link.target = "_self"; return; }
    event.preventDefault();
    var to = String(lead(link.getAttribute("href")));
    var message = { ecluse: "move", frame: target === "_blank" || target === "_parent" ? "_top" : target, to: to };
    if (!move(message)) window.parent.postMessage(message, "*");
  });
  function tell() {
    if (window.parent !== window && window.parent === window.top) {
      window.parent.postMessage({ ecluse: "page", time: told.time, url: original(location.href) || told.url }, "*");
    }
  }
  addEventListener("DOMContentLoaded", tell);

  // What an origin of its own lacks: kept for as long as the page is shown.
  function storage() {
    var kept = new Map();
    return new Proxy({
      getItem: function (key) { return kept.has(String(key)) ? kept.get(String(key)) : null; },
      setItem: function (key, value) { kept.set(String(key), String(value)); },
      removeItem: function (key) { kept.delete(String(key)); },
      clear: function () { kept.clear(); },
      key: function (at) { return Array.from(kept.keys())[at] || null; },
    }, {
      get: function (methods, key) { return key === "length" ? kept.size : key in methods ? methods[key] : kept.get(key); },
      set: function (methods, key, value) { kept.set(String(key), String(value)); return true; },
      deleteProperty: function (methods, key) { kept.delete(String(key)); return true; },
      has: function (methods, key) { return key in methods || kept.has(key); },
      ownKeys: function () { return Array.from(kept.keys()); },
      getOwnPropertyDescriptor: function (methods, key) { return kept.has(key) ? { value: kept.get(key), enumerable: true, configurable: true, writable: true } : undefined; },
    });
  }
  var local = storage(), session = storage();
  getter(window, "localStorage", function () { return local; });
  getter(window, "sessionStorage", function () { return session; });
  var cookies = new Map();
  getter(document, "cookie", function () {
    return Array.from(cookies).map(function (one) { return one[0] + "=" + one[1]; }).join("; ");
  }, function (text) {
    var pair = String(text).split(";")[0], at = pair.indexOf("=");
    if (/;\s*(max-age=(0|-)|expires=[^;]*(19[0-9]{2}|20[01][0-9]))/i.test(text)) cookies.delete(pair.slice(0, at).trim());
    else if (at > 0) cookies.set(pair.slice(0, at).trim(), pair.slice(at + 1).trim());
  });
  try { getter(navigator, "serviceWorker", function () { return undefined; }); } catch (error) { /* stays */ }
  getter(document, "domain", function () { try { return new URL(told.url).hostname; } catch (error) { return ""; } });
  getter(document, "URL", function () { return original(location.href) || told.url; });
  getter(document, "documentURI", function () { return original(location.href) || told.url; });
  var referrer = Object.getOwnPropertyDescriptor(Document.prototype, "referrer");
  if (referrer) getter(document, "referrer", function () { return original(referrer.get.call(document)); });
  define(window, "__ecluse", { lead: lead, original: original });
})();
