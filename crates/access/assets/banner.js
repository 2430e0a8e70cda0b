// The banner follows the page in its frame. What the frame says is not trusted: it is text, and an address only if it has the form
// of one of ours.
"use strict";
(function () {
  var banner = document.querySelector(".banner");
  var frame = document.getElementById("page");
  var collection = banner.dataset.collection;
  addEventListener("message", function (event) {
    var said = event.data;
    if (event.source !== frame.contentWindow || !said) return;
    // wabac.js tells the same in words of its own.
    var isTold = said.ecluse === "page" || said.wb_type === "load" || said.wb_type === "replace-url";
    if (!isTold) return;
    var time = String(said.time || said.ts), url = String(said.url).slice(0, 8192);
    if (!/^\d{14}$/.test(time) || !/^https?:\/\//.test(url)) return;
    var address = "/" + collection + "/" + time + "/" + url;
    if (address === location.pathname + location.search) return;
    // The server knows the neighbours of this capture; the frame stays as it is.
    fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" }).then(function (answer) {
      return answer.ok ? answer.text() : "";
    }).then(function (text) {
      if (!text) return;
      var page = new DOMParser().parseFromString(text, "text/html");
      var newer = page.querySelector(".banner");
      if (!newer) return;
      banner.replaceChildren.apply(banner, Array.from(newer.childNodes).map(function (node) { return document.importNode(node, true); }));
      document.title = page.title;
      frame.title = page.getElementById("page").title;
      history.replaceState(null, "", address);
    });
  });
})();
