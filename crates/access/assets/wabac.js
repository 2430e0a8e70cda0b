// Starts the worker of wabac.js, which the operator has installed, and shows the capture through it. Where the worker does not start, the page
// that the server rewrote is shown, and that it is so is said: data-worker of the document.
"use strict";
(function () {
  var frame = document.getElementById("page");
  var told = frame.dataset;
  var here = location.origin;
  function say(what) { document.documentElement.dataset.worker = what; }
  function fall() {
    say("failed");
    document.getElementById("no-worker").hidden = false;
    frame.setAttribute("sandbox", "allow-scripts allow-forms allow-modals allow-downloads");
    frame.src = told.plain;
  }
  function active(registration) {
    var worker = registration.active || registration.waiting || registration.installing;
    if (worker.state === "activated") return worker;
    return new Promise(function (done, failed) {
      worker.addEventListener("statechange", function () {
        if (worker.state === "activated") done(worker);
        if (worker.state === "redundant") failed(new Error("redundant"));
      });
    });
  }
  if (!navigator.serviceWorker) { fall(); return; }
  navigator.serviceWorker.register("/wabac/sw.js", { scope: "/wabac/" }).then(active).then(function (worker) {
    navigator.serviceWorker.addEventListener("message", function (event) {
      if (event.data.msg_type !== "collAdded" || document.documentElement.dataset.worker) return;
      say("serves");
      frame.src = "/wabac/w/" + told.collection + "/" + told.time + "mp_/" + told.url;
    });
    navigator.serviceWorker.startMessages();
    worker.postMessage({
      msg_type: "addColl", name: told.collection, type: "live", root: false, skipExisting: true, file: { sourceUrl: "proxy:" },
      extraConfig: { prefix: "", isLive: false, archivePrefix: here + "/" + told.collection + "/", archiveMod: "ir_", noPostToGet: true },
    });
  }).catch(fall);
})();
