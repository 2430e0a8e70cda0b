#!/usr/bin/env python3
"""Crawls real software again and again, and shows each harvest in a browser beside what the browser saw live.

    real.py --ecluse target/release/ecluse [--harvests 3] [--keep DIR]

Three sites on loopback, in a network of their own: DokuWiki and a documentation package of the distribution, and a site that
Vite builds from npm's packages. Each harvest is crawled, taken through the chain, and replayed by pywb as a proxy, at its own
time, after the servers are gone. Before the last harvest something is changed. Then:

- every screenshot of the replay is that of the live site but for 1 % of its pixels;
- the harvests after the first have what had not changed as revisits and as 304, which is what this is about.

Needs root, chromium, dokuwiki, developers-reference, nginx, php, npm and its registry, ip and unshare, and a Python with pywb and Pillow.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from PIL import Image, ImageChops
from warcio.archiveiterator import ArchiveIterator

INSIDE = "ECLUSE_INTEROP_INSIDE"
CHAIN = "ingest index transfer backup delete merge bigmerge".split()
PHP = 8081
PAGES = [
    "http://wiki.localhost/doku.php?id=start",
    "http://wiki.localhost/doku.php?id=canal",
    "http://docs.localhost/index.html",
    "http://docs.localhost/best-pkging-practices.html",
    "http://app.localhost/",
]
CHANGED = PAGES[1]
# The share of pixels that may differ.
TOLERANCE = 0.01
CHROMIUM = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1 --window-size=1000,1200
    --virtual-time-budget=8000""".split()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--harvests", type=int, default=3)
    options.add_argument("--keep", type=Path, help="work here and leave everything behind")
    options = options.parse_args()
    if INSIDE in os.environ:
        return judge(options, options.keep)
    with tempfile.TemporaryDirectory(prefix="ecluse-real-") as place:
        place = options.keep or Path(place)
        place.mkdir(parents=True, exist_ok=True)
        place = place.resolve()
        build_app(place / "app")
        command = ["unshare", "-n", "-m", "--propagation", "private", sys.executable, __file__,
                   "--ecluse", options.ecluse.resolve(), "--harvests", str(options.harvests), "--keep", place]
        return subprocess.run(command, env=os.environ | {INSIDE: "1"}).returncode


def judge(options, place):
    """Runs everything and prints the table; returns the exit code."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    make_wiki(place / "wiki")
    servers = [start_php(place / "wiki"), start_nginx(place)]
    root = place / "root"
    root.mkdir()
    harvests = []
    try:
        wait_for(80, servers)
        wait_for(PHP, servers)
        for number in range(1, options.harvests + 1):
            if number == options.harvests:
                change(place / "wiki")
            for page in PAGES:
                # Who comes first sees that DokuWiki did not know of the page.
                host, path = page.removeprefix("http://").split("/", 1)
                request = urllib.request.Request(f"http://127.0.0.1/{path}", headers={"Host": host})
                urllib.request.urlopen(request).read()
            live = photograph(place / f"live-{number}", [])
            harvests.append((number, live, *crawl(options, root, place, number)))
    finally:
        end(servers)
    rows, bad = [], []
    for number, live, when, kinds in harvests:
        replayed = replay(root, place, number, when)
        for page in PAGES:
            differs = difference(live[page], replayed[page])
            rows.append(f"| {number} | {page} | {differs:.2%} |")
            if differs > TOLERANCE:
                bad.append(f"harvest {number}: {page} differs in {differs:.2%}: {live[page]} {replayed[page]}")
        rows.append(f"| {number} | responses, revisits, of these 304 | {kinds} |")
        if number > 1 and (kinds[1] == 0 or kinds[2] == 0):
            bad.append(f"harvest {number}: nothing was asked for again, or nothing was unchanged: {kinds}")
    bad += blind(harvests)
    print("\n| harvest | page | pixels that differ |\n|--:|---|--:|")
    print("\n".join(rows))
    for why in bad:
        print(f"\n{why}")
    return 1 if bad else 0


def blind(harvests):
    """What this test could not have seen: pictures that are the same though they must not be."""
    _, first, *_ = harvests[0]
    _, last, *_ = harvests[-1]
    faults = [f"{one} and {other} look the same live" for number, one in enumerate(PAGES) for other in PAGES[:number]
              if difference(first[one], first[other]) <= TOLERANCE]
    if len(harvests) > 1 and difference(first[CHANGED], last[CHANGED]) <= TOLERANCE:
        faults.append(f"{CHANGED} looks as before it was changed")
    return faults


# The sites ----------------------------------------------------------------------------------------------------------


def build_app(app):
    """Builds a site with a lazy chunk, a style sheet with a picture, and data that a script fetches."""
    files = {
        "package.json": json.dumps({
            "private": True, "type": "module",
            "dependencies": {"react": "19.2.0", "react-dom": "19.2.0"}, "devDependencies": {"vite": vite()}}),
        "index.html": "<!doctype html><html lang=en><head><meta charset=utf-8><title>Locks</title>"
                      '<script type="module" src="/src/main.jsx"></script></head><body><div id="root"></div></body></html>',
        "public/levels.json": json.dumps([3, 9, 4, 7, 2, 8]),
        "src/wave.svg": picture("#0a7a8a", "M0 60 Q 50 0 100 60 T 200 60 V 120 H 0 Z"),
        "src/gate.svg": picture("#8a4a0a", "M10 10 H 90 V 110 H 10 Z M 110 10 H 190 V 110 H 110 Z"),
        "src/style.css": "body { font: 20px sans-serif; margin: 0 } h1 { background: url(./wave.svg); color: white; "
                         "padding: 60px; margin: 0 } .bar { background: teal; height: 30px; margin: 8px }",
        "src/Levels.jsx": 'import React from "react";\nimport "./levels.css";\n'
                          "export default function Levels({ levels }) {\n"
                          "  return <section>{levels.map((l, i) => <div key={i} className='bar' "
                          "style={{ width: l * 90 }}>{l} m</div>)}</section>;\n}\n",
        "src/levels.css": "section { background: #eee; padding: 20px }",
        "src/main.jsx": 'import React, { lazy, Suspense, useEffect, useState } from "react";\n'
                        'import { createRoot } from "react-dom/client";\n'
                        'import gate from "./gate.svg?no-inline";\nimport "./style.css";\n'
                        'const Levels = lazy(() => import("./Levels.jsx"));\n'
                        "function App() {\n"
                        "  const [levels, setLevels] = useState(null);\n"
                        '  useEffect(() => { fetch("/levels.json").then(a => a.json()).then(setLevels); }, []);\n'
                        "  return <><h1>Water levels</h1><img src={gate} width='600' alt='a gate' />\n"
                        "    {levels && <Suspense fallback='…'><Levels levels={levels} /></Suspense>}</>;\n}\n"
                        'createRoot(document.getElementById("root")).render(<App />);\n',
    }
    for name, text in files.items():
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    (app / "vite.config.js").write_text("export default { build: { assetsInlineLimit: 0 } };\n")
    run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=app)
    run(["npx", "vite", "build"], cwd=app)


def vite():
    """The newest that runs here: Debian 12 has Node.js 18."""
    version = subprocess.run(["node", "--version"], check=True, stdout=subprocess.PIPE).stdout.decode()
    return "^8.0.0" if int(version.lstrip("v").split(".")[0]) >= 20 else "^6.0.0"


def picture(colour, path):
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="200" height="120" viewBox="0 0 200 120">'
            f'<rect width="200" height="120" fill="#dde"/><path fill="{colour}" d="{path}"/></svg>')


def make_wiki(wiki):
    """Makes the data of a DokuWiki; its program is where the distribution's package has it."""
    for name in "attic cache index locks log media media_attic media_meta meta pages tmp".split():
        (wiki / "data" / name).mkdir(parents=True)
    (wiki / "conf").mkdir()
    # Without a delay: DokuWiki tells robots to follow nothing on a new page.
    (wiki / "conf/local.php").write_text(
        "<?php\n$conf['title'] = 'Locks and canals';\n$conf['useacl'] = 0;\n$conf['license'] = '';\n"
        f"$conf['indexdelay'] = 0;\n$conf['savedir'] = '{wiki}/data';\n")
    (wiki / "prepend.php").write_text(f"<?php define('DOKU_CONF', '{wiki}/conf/');\n")
    Image.linear_gradient("L").resize((240, 160)).save(wiki / "data/media/gate.png")
    write_page(wiki, "start", "====== Locks ======\nA lock raises boats; a [[canal]] has many.\n\n{{:gate.png|a gate}}\n\n"
                              + "  * up\n  * down\n\n" + "Water is let in, and the boat rises. " * 60)
    write_page(wiki, "canal", "====== Canals ======\n^ lock ^ rise ^\n| one | 3 m |\n| two | 9 m |\n\nBack to the [[start]].\n")


def write_page(wiki, name, text):
    path = wiki / f"data/pages/{name}.txt"
    path.write_text(text)
    # Of a time that stays as it is: the page names it.
    os.utime(path, (1_700_000_000, 1_700_000_000))


def change(wiki):
    text = (wiki / "data/pages/canal.txt").read_text()
    write_page(wiki, "canal", text + "\n===== New =====\n" + "Another canal was dug this year, with forty locks. " * 40)
    shutil.rmtree(wiki / "data/cache")
    (wiki / "data/cache").mkdir()


def start_php(wiki):
    command = ["php", "-d", f"auto_prepend_file={wiki}/prepend.php", "-S", f"127.0.0.1:{PHP}", "-t", "/usr/share/dokuwiki"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(wiki / "php.log", "wb"))


def start_nginx(place):
    conf = place / "nginx"
    conf.mkdir()
    places = "".join(f"{name}_temp_path {conf}/{name};\n" for name in "client_body proxy fastcgi uwsgi scgi".split())
    (conf / "nginx.conf").write_text(f"""
user root;
daemon off;
master_process off;
pid {conf}/pid;
error_log {conf}/error.log error;
events {{ }}
http {{
    access_log {conf}/access.log;
    {places}
    include /etc/nginx/mime.types;
    gzip on;
    gzip_types text/css application/javascript application/json image/svg+xml;
    server {{ listen 127.0.0.1:80; server_name docs.localhost; root /usr/share/developers-reference; }}
    server {{ listen 127.0.0.1:80; server_name app.localhost; root {place}/app/dist; }}
    server {{ listen 127.0.0.1:80; server_name media.localhost; root {place}/media; }}
    server {{ listen 127.0.0.1:80; server_name wiki.localhost;
        location / {{ proxy_pass http://127.0.0.1:{PHP}; proxy_set_header Host $host; }} }}
}}
""")
    return subprocess.Popen(["nginx", "-c", conf / "nginx.conf"], stderr=subprocess.DEVNULL)


def wait_for(port, servers):
    for _ in range(300):
        for server in servers:
            if server.poll() is not None:
                sys.exit(f"{server.args[0]} ended with {server.returncode}")
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nobody listens at {port}")


def end(servers):
    for server in servers:
        server.terminate()
        server.wait()


# The harvests -------------------------------------------------------------------------------------------------------


def crawl(options, root, place, number):
    """Crawls the sites and takes the files through the chain; returns when it was over, and what was captured as what."""
    order = place / f"order-{number}.toml"
    order.write_text(f"""
job = "1"
harvest = "{number}"
agent.contact = "https://archive.example/crawler"
# DokuWiki shows everybody his own trail.
agent.cookies-kept = "page"
network.allow-private = true
scope.depth = 1
manners.delay-factor = 0.0
manners.min-delay = "0s"
manners.group-by = "queue"
budget.queue.tries = 2
budget.queue.retry-delay = "1s"
[[seeds]]
urls = {json.dumps(PAGES)}
""")
    (root / "pipeline.toml").write_text("[defaults]\nmin-free = \"0 B\"\nsettle = \"100ms\"\n")
    run([options.ecluse, "--root", root, "give", "crawl", order])
    run([options.ecluse, "--root", root, "run", "--once", "crawl"])
    when = time.strftime("%Y%m%d%H%M%S", time.gmtime())
    old = time.time() - 3600
    for path in (root / "harvested").iterdir():
        os.utime(path, (old, old))
    run([options.ecluse, "--root", root, "run", "--once", *CHAIN])
    # Harvests are told apart by the second.
    time.sleep(1.1)
    return when, kinds_of(root, number)


def kinds_of(root, number):
    """How many responses, revisits, and 304 of these, a harvest has."""
    responses, revisits, unchanged = 0, 0, 0
    for path in (root / "repository").glob(f"1-{number}-*.warc.gz"):
        if "-metadata-" in path.name:
            continue
        with open(path, "rb") as archive:
            for record in ArchiveIterator(archive):
                responses += record.rec_type == "response"
                revisits += record.rec_type == "revisit"
                unchanged += record.rec_type == "revisit" and record.http_headers.get_statuscode() == "304"
    return responses, revisits, unchanged


def run(command, cwd=None):
    ended = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stdout.decode()[-20000:]}")


# The pictures -------------------------------------------------------------------------------------------------------


def replay(root, place, number, when):
    """Photographs all pages as pywb shows them at that time."""
    home = place / f"pywb-{number}"
    home.mkdir()
    current = root / "index/current"
    (home / "config.yaml").write_text(
        f"collections:\n  archive:\n    index_paths: {current}/index.cdxj\n    archive_paths: {current}/path-index.txt\n"
        f"proxy:\n  coll: archive\n  default_timestamp: '{when}'\n  enable_banner: false\n  enable_content_rewrite: false\n")
    port = 8090 + number
    wayback = Path(sys.executable).parent / "wayback"
    server = subprocess.Popen(
        [wayback, "--bind", "127.0.0.1", "--port", str(port), "--threads", "4"],
        cwd=home, stdout=subprocess.DEVNULL, stderr=open(home / "log", "wb"))
    try:
        wait_for(port, [server])
        return photograph(place / f"replay-{number}", [f"--proxy-server=http://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>"])
    finally:
        end([server])


def photograph(directory, flags):
    """Lets the browser show every page; returns the pictures by their URLs."""
    directory.mkdir()
    pictures = {}
    for number, page in enumerate(PAGES):
        path = directory / f"{number}.png"
        with tempfile.TemporaryDirectory(prefix="ecluse-browser-") as profile:
            command = ["chromium", *CHROMIUM, f"--user-data-dir={profile}", *flags, f"--screenshot={path}", page]
            browser = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=open(directory / f"{number}.log", "wb"), start_new_session=True)
            try:
                browser.wait(timeout=120)
            finally:
                # Its helpers may outlive it for a moment and still write to the profile.
                try:
                    os.killpg(browser.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                browser.wait()
            shutil.rmtree(profile, ignore_errors=True)
            Path(profile).mkdir(exist_ok=True)
        if not path.exists():
            sys.exit(f"chromium made no picture of {page}:\n{(directory / f'{number}.log').read_text()[-4000:]}")
        pictures[page] = path
    return pictures


def difference(one, other):
    """The share of pixels in which two pictures differ."""
    one, other = Image.open(one).convert("RGB"), Image.open(other).convert("RGB")
    if one.size != other.size:
        return 1.0
    red, green, blue = ImageChops.difference(one, other).split()
    same = ImageChops.lighter(ImageChops.lighter(red, green), blue).histogram()[0]
    return 1 - same / (one.width * one.height)


if __name__ == "__main__":
    sys.exit(main())
