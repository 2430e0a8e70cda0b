#!/usr/bin/env python3
"""The archive's own pages, judged by axe-core in Chromium, on a small screen and on a wide one, in both languages.

    pages.py --ecluse target/release/ecluse [--keep DIR]

No page may have a fault that axe-core knows, nor be wider than the screen. With --keep the pictures are there to be looked at.
Needs chromium, npm and its registry, and a Python with warcio.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

PACKAGES = ["puppeteer-core@23.11.1", "axe-core@4.10.3"]
URL = "http://lock.example/a-rather-long-address-of-a-page-that-does-not-fit-on-a-small-screen.html"
OTHER = "http://lock.example/other"
FIRST, LAST = "20240301120000", "20260115083000"
PATHS = {
    "home": "/",
    "captures": f"/web/*/{URL}",
    "frame": f"/web/{LAST}/{URL}",
    "page-delta": f"/web/diff/{FIRST}/{LAST}/{URL}",
    "site-delta": "/web/site/2025/2026/http://lock.example/",
    "absent": "/web/*/http://lock.example/nothing",
    "nowhere": "/nowhere",
    "unreadable": f"/web/{LAST}/{OTHER}?lost",
}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--keep", type=Path, help="work here and leave everything behind")
    options = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ecluse-pages-") as place:
        place = (options.keep or Path(place)).resolve()
        make_archive(place / "root")
        install(place)
        server = subprocess.Popen([options.ecluse, "--root", place / "root", "serve", "--listen", "127.0.0.1:0"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            base = re.search(r"http://[\d.]+:\d+", server.stdout.readline().decode())[0]
            judged = subprocess.run(["node", "axe.mjs", base, json.dumps(PATHS), place], cwd=place / "browser", stdout=subprocess.PIPE)
        finally:
            server.terminate()
            server.wait()
    if judged.returncode != 0:
        return 1
    found = json.loads(judged.stdout)
    for one in found:
        for fault in one["faults"]:
            print(f"{one['name']}: {fault}")
    print(f"{len(found)} pages, {sum(len(one['faults']) for one in found)} faults")
    return 1 if any(one["faults"] for one in found) or len(found) != len(PATHS) * 4 else 0


def install(place):
    browser = place / "browser"
    browser.mkdir(exist_ok=True)
    (browser / "package.json").write_text('{"private": true}')
    (browser / "axe.mjs").write_text(Path(__file__).with_name("axe.mjs").read_text())
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES], cwd=browser, check=True, stdout=subprocess.DEVNULL)


def make_archive(root):
    """An archive whose pages have something to show: captures of three years, a change, a page that is gone, a file that is lost."""
    generation = root / "index/generations/1"
    generation.mkdir(parents=True)
    (root / "index/current").symlink_to("generations/1")
    (root / "pipeline.toml").write_text("")
    lines, path = [], root / "lock.warc.gz"
    paragraphs = "".join(f"<p>Boats go up and down in lock {number}.</p>" for number in range(12))
    bodies = [f"<h1>Lock</h1><p>We open at nine o'clock, and close at five.</p>{paragraphs}<p>Bye.</p>",
              f"<h1>Lock and weir</h1><p>We open at ten o'clock, and close at five.</p>{paragraphs}<p>A new gate was built.</p><p>Bye.</p>"]
    captures = [(URL, FIRST, "200 OK", bodies[0])]
    captures += [(URL, f"2025{month:02}{day:02}060000", "200 OK", bodies[0]) for month in range(1, 13, 2) for day in (3, 17)]
    captures += [(URL, LAST, "200 OK", bodies[1]), (OTHER, FIRST, "200 OK", "old"), (OTHER, LAST, "404 Not Found", "gone"),
                 ("http://lock.example/new", LAST, "200 OK", "new"), ("http://lock.example/unseen", FIRST, "200 OK", "unseen"),
                 (f"{OTHER}?lost", LAST, "200 OK", "lost")]
    with open(path, "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for url, time, status, body in captures:
            start = out.tell()
            head = StatusAndHeaders(status, [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
            date = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:{time[12:]}Z"
            writer.write_record(writer.create_warc_record(
                url, "response", payload=BytesIO(body.encode()), http_headers=head, warc_headers_dict={"WARC-Date": date}))
            key = "example,lock)" + url.removeprefix("http://lock.example").lower()
            lines.append(f'{key} {time} {{"url": "{url}", "mime": "text/html", "status": "{status[:3]}", "digest": "sha1:{hash(body) & 0xffffff:X}", '
                         f'"length": "{out.tell() - start}", "offset": "{start}", "filename": "{"lost.warc.gz" if "?lost" in url else path.name}"}}\n')
    (generation / "index.cdxj").write_text("".join(sorted(lines)))
    (generation / "path-index.txt").write_text(f"{path.name}\t{path}\n")


if __name__ == "__main__":
    sys.exit(main())
