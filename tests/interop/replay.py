#!/usr/bin/env python3
"""Shows 60 pages in a browser live, and again out of the archive by `ecluse serve`.

    replay.py --ecluse target/release/ecluse [--keep DIR]

The sites of real.py and one of pages with srcset, pictures for several screens, fonts, video and frames, on loopback in a network of
their own. They are crawled, the servers are ended, and something that only listens takes their place. Then, for each page:

- the picture of the replay is that of the live page but for 1 % of its pixels;
- the archive refuses nothing that it holds;
- nobody asks where the live servers were.

Needs what real.py needs, ffmpeg, and puppeteer-core of npm's registry.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

from PIL import Image, ImageDraw

import real

PUPPETEER = "23.11.1"
FONTS = sorted(Path("/usr/share/fonts").rglob("DejaVu*.ttf"))
DOCS = sorted(Path("/usr/share/developers-reference").glob("*.html"))
WIKI = 24
TOTAL = 60


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--keep", type=Path, help="work here and leave everything behind")
    options = options.parse_args()
    if real.INSIDE in os.environ:
        return judge(options, options.keep)
    with tempfile.TemporaryDirectory(prefix="ecluse-replay-") as place:
        place = options.keep or Path(place)
        place.mkdir(parents=True, exist_ok=True)
        place = place.resolve()
        real.build_app(place / "app")
        make_media(place / "media", TOTAL - len(pages_of(0)))
        (place / "shots").mkdir()
        (place / "shots/package.json").write_text('{"private": true}')
        real.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", f"puppeteer-core@{PUPPETEER}"], cwd=place / "shots")
        command = ["unshare", "-n", "-m", "--propagation", "private", sys.executable, __file__,
                   "--ecluse", options.ecluse.resolve(), "--keep", place]
        return subprocess.run(command, env=os.environ | {real.INSIDE: "1"}).returncode


def pages_of(media):
    """All pages, with so many of the site of media."""
    return ([f"http://docs.localhost/{path.name}" for path in DOCS if path.name != "search.html"]
            + [f"http://wiki.localhost/doku.php?id=lock{number}" for number in range(WIKI)]
            + ["http://app.localhost/"]
            + [f"http://media.localhost/page{number}.html" for number in range(media)])


def judge(options, place):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    pages = pages_of(TOTAL - len(pages_of(0)))
    make_wiki(place / "wiki")
    servers = [real.start_php(place / "wiki"), real.start_nginx(place)]
    root = place / "root"
    root.mkdir()
    try:
        real.wait_for(80, servers)
        real.wait_for(real.PHP, servers)
        for page in pages:
            # Who comes first sees that DokuWiki did not know of the page.
            host, path = page.removeprefix("http://").split("/", 1)
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1/{path}", headers={"Host": host})).read()
        live, _ = photograph(place, "live", {page: page for page in pages})
        when = crawl(options, root, place, pages)
    finally:
        real.end(servers)
    heard = listen(80)
    serve = subprocess.Popen([options.ecluse, "--root", root, "serve", "--listen", "127.0.0.1:0"],
                             stdout=subprocess.PIPE, stderr=open(place / "serve.log", "wb"))
    try:
        base = re.search(r"http://[\d.]+:\d+", serve.stdout.readline().decode())[0]
        shown, answers = photograph(place, "shown", {page: f"{base}/web/{when}/{page}" for page in pages})
        refused = {url for status, url in answers if status >= 400 and holds(base, url)}
        asked = len(answers)
    finally:
        real.end([serve])
    bad = [f"{url} is in the archive and was refused" for url in sorted(refused)]
    bad += [f"the live web was asked: {line}" for line in heard]
    worst = 0.0
    for page in pages:
        differs = real.difference(live[page], shown[page])
        worst = max(worst, differs)
        if differs > real.TOLERANCE:
            bad.append(f"{page} differs in {differs:.2%}: {live[page]} {shown[page]}")
    # Pages that all look the same would say nothing.
    alike = sum(real.difference(live[one], live[other]) <= real.TOLERANCE for one, other in zip(pages, pages[1:]))
    if alike > 2:
        bad.append(f"{alike} pages look like the one before, live")
    print("\n".join(bad))
    print(f"{len(pages)} pages, {asked} answers of the archive, at most {worst:.2%} of the pixels differ, {len(heard)} requests to the live servers")
    return 1 if bad or len(pages) < TOTAL else 0


def holds(base, url):
    """Tells whether the archive has what a refused address stands for."""
    found = re.match(re.escape(base) + r"/web/\d+(?:[a-z]{2}_)?/(.+)", url)
    if not found:
        return False
    answer = urllib.request.urlopen(f"{base}/web/cdx?limit=1&filter=status:200&url={quote(found[1], safe='')}").read()
    return bool(answer)


def listen(port):
    """Listens where the live servers were, and writes down who asks."""
    listener, heard = socket.create_server(("127.0.0.1", port)), []

    def wait():
        while True:
            client, _ = listener.accept()
            client.settimeout(2)
            try:
                heard.append(client.recv(400).decode("latin-1").split("\r\n")[0])
            except OSError as error:
                heard.append(repr(error))
            client.close()

    threading.Thread(target=wait, daemon=True).start()
    return heard


def make_wiki(wiki):
    real.make_wiki(wiki)
    for number in range(WIKI):
        hue = number * 10 % 256
        Image.new("RGB", (120 + number * 10, 80), (hue, 120, 255 - hue)).save(wiki / f"data/media/lock{number}.png")
        text = f"====== Lock {number} ======\n{{{{:lock{number}.png|a gate}}}}\n\n^ gate ^ rise ^\n" + "".join(
            f"| {gate} | {number + gate} m |\n" for gate in range(number % 7 + 1))
        text += f"\n===== Next =====\nFrom here to [[lock{(number + 1) % WIKI}]].\n\n" + f"Lock {number} lets boats through. " * (number * 4 + 10)
        real.write_page(wiki, f"lock{number}", text)


def make_media(media, count):
    """Writes pages that need one another's pictures, fonts, films and frames."""
    media.mkdir()
    real.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=size=320x180:rate=5:duration=2", "-c:v", "libvpx",
              "-b:v", "200k", media / "clip.webm"])
    for number, font in enumerate(FONTS[:4]):
        (media / f"font{number}.ttf").write_bytes(font.read_bytes())
    for number in range(count):
        hue = number * 37 % 256
        for name, width, colour in [("small", 200, (hue, 80, 80)), ("large", 400, (80, hue, 80)), ("tall", 300, (80, 80, hue)), ("wall", 64, (hue, hue, 220))]:
            picture = Image.new("RGB", (width, width // 2), colour)
            ImageDraw.Draw(picture).ellipse((10, 10, width // 2, width // 3), fill=(255, hue, 0))
            picture.save(media / f"{name}{number}.png")
        font = number % max(1, min(4, len(FONTS)))
        (media / f"sheet{number}.css").write_text(
            f"@import url('more{number}.css');\n@font-face {{ font-family: own; src: url(\"/font{font}.ttf\") }}\n"
            f"body {{ font: {18 + number % 5}px own; margin: 20px; background: #fff url(wall{number}.png) repeat-x 0 100% }}\n")
        (media / f"more{number}.css").write_text(f"h1 {{ background: url('/tall{number}.png'); color: white; padding: 30px }}\n")
        (media / f"inner{number}.html").write_text(
            f"<!doctype html><link rel=stylesheet href=sheet{number}.css><p>Frame {number}</p><img src='/small{number}.png'>")
        (media / f"page{number}.html").write_text(f"""<!doctype html><html lang=en><head><meta charset=utf-8><title>Media {number}</title>
<link rel=stylesheet href="/sheet{number}.css"></head><body><h1>Media {number}</h1>
<img srcset="small{number}.png 1x, large{number}.png 2x" src="small{number}.png" alt="by density">
<img srcset="/small{number}.png 200w, /large{number}.png 400w" sizes="400px" src="/small{number}.png" width=400 alt="by width">
<picture><source media="(min-width: 600px)" srcset="tall{number}.png"><img src="small{number}.png" alt="by screen"></picture>
<video src="/clip.webm" width=320 height=180 muted preload=auto></video>
<iframe src="inner{number}.html" width=500 height=200></iframe>
<svg width=120 height=80><image href="small{number}.png" width=120 height=80 /></svg>
<div style="width:300px;height:60px;background-image:image-set(url(small{number}.png) 1x, url(large{number}.png) 2x)"></div>
<p>{"Words of page %d. " % number * (number + 3)}</p></body></html>""")


def crawl(options, root, place, pages):
    """Crawls the pages and what they need, takes the files through the chain, and returns a time after it."""
    order = place / "order.toml"
    order.write_text(f"""
job = "1"
harvest = "1"
agent.contact = "https://archive.example/crawler"
agent.cookies-kept = "page"
network.allow-private = true
scope.depth = 0
manners.delay-factor = 0.0
manners.min-delay = "0s"
manners.group-by = "queue"
budget.queue.tries = 2
budget.queue.retry-delay = "1s"
[[seeds]]
urls = {json.dumps(pages)}
""")
    (root / "pipeline.toml").write_text("[defaults]\nmin-free = \"0 B\"\nsettle = \"100ms\"\n")
    real.run([options.ecluse, "--root", root, "give", "crawl", order])
    real.run([options.ecluse, "--root", root, "run", "--once", "crawl"])
    when = time.strftime("%Y%m%d%H%M%S", time.gmtime())
    old = time.time() - 3600
    for path in (root / "harvested").iterdir():
        os.utime(path, (old, old))
    real.run([options.ecluse, "--root", root, "run", "--once", *real.CHAIN])
    return when


def photograph(place, name, addresses):
    """Lets one browser show all pages; returns the pictures by page, and status and address of every answer."""
    directory = place / name
    directory.mkdir()
    wanted = [{"page": page, "address": address, "picture": str(directory / f"{number}.png")}
              for number, (page, address) in enumerate(addresses.items())]
    (directory / "wanted.json").write_text(json.dumps(wanted))
    script = Path(__file__).with_name("shots.mjs")
    # Packages are looked for where the script lies.
    (place / "shots/shots.mjs").write_text(script.read_text())
    real.run(["node", "shots.mjs", directory / "wanted.json", directory / "answers.json"], cwd=place / "shots")
    answers = json.loads((directory / "answers.json").read_text())
    return {one["page"]: one["picture"] for one in wanted}, [(one["status"], one["url"]) for one in answers]


if __name__ == "__main__":
    sys.exit(main())
