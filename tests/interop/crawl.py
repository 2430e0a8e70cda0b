#!/usr/bin/env python3
"""Crawls a web whose every URL is known, and asks other tools what they think of the result.

    crawl.py --ecluse target/release/ecluse [--hosts 200] [--pages 10] [--kills 0] [--sample 300] [--keep DIR]

A real nginx and a real nsd serve HOSTS hosts on loopback addresses, in a network of their own. The crawl is given an
order, and killed KILLS times while it runs. Then:

- the captures with status 200 are the URLs that exist, are in scope and allowed by robots.txt: none missing, none extra,
  none twice;
- `warcio check` finds no error in any file, and every digest is right;
- cdxj-indexer and `ecluse stage index` write the same lines;
- the rest of the chain runs, and pywb gives back a sample byte for byte.

Needs root, nginx, nsd, ip and unshare, and a Python with warcio, cdxj-indexer and pywb.
"""

import argparse
import base64
import gzip
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import ChunkedDataReader

INSIDE = "ECLUSE_INTEROP_INSIDE"
RESOLVER = "127.0.0.153"
ADDRESSES = 32
CHAIN = "ingest index transfer backup delete merge bigmerge".split()
WORDS = "canal écluse péniche water river bridge town archive lock gate".split()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--hosts", type=int, default=200)
    options.add_argument("--pages", type=int, default=10)
    options.add_argument("--kills", type=int, default=0)
    options.add_argument("--sample", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, help="work here and leave everything behind")
    options = options.parse_args()
    if INSIDE not in os.environ:
        command = ["unshare", "-n", "-m", "--propagation", "private", sys.executable, *sys.argv]
        return subprocess.run(command, env=os.environ | {INSIDE: "1"}).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        return judge(options, options.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="ecluse-crawl-") as place:
        return judge(options, Path(place))


def judge(options, place):
    """Runs everything and prints the table; returns the exit code."""
    expected, forbidden = make_web(place / "web", options)
    servers = [start_nsd(place, options), start_nginx(place)]
    root = place / "root"
    try:
        wait_for_servers(servers)
        began = time.monotonic()
        kills = crawl(options, root, place, len(expected))
        took = time.monotonic() - began
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    files = sorted((root / "harvested").glob("*.warc.gz"))
    left = sorted(str(path.name) for path in (root / "harvested").glob("*.open"))
    captures, twice, wrong = read(files)
    seen = set(captures)
    rows = [
        ("URLs that exist, in scope, allowed", len(expected), None),
        ("captures with status 200", len(seen), None),
        ("missing", len(expected - seen), sorted(expected - seen)),
        ("extra", len(seen - expected), sorted(seen - expected)),
        ("captured twice", len(twice), twice),
        ("forbidden by robots.txt and asked for", len(seen & forbidden), sorted(seen & forbidden)),
        ("files left open", len(left), left),
        ("logged other than once", *log_faults(root, expected, forbidden)),
        ("errors of warcio check", *warcio_check(files)),
        ("digests that are wrong", len(wrong), wrong),
        ("lines that differ from cdxj-indexer", *compare_indexes(options, files)),
        ("not given back by pywb", *replay(options, root)),
    ]
    print(f"\n{options.hosts} hosts, {options.pages} pages each, {len(files)} files, "
          f"{kills} kills, {took:.0f} s of crawling\n")
    print("| what | number |\n|---|--:|")
    for what, number, _ in rows:
        print(f"| {what} | {number} |")
    bad = [(what, which) for what, number, which in rows if which is not None and number]
    for what, which in bad:
        print(f"\n{what}:")
        for line in which[:20]:
            print(f"  {line}")
    return 1 if bad or kills < options.kills else 0


# The web ------------------------------------------------------------------------------------------------------------


def host_name(number):
    return f"h{number:04}.test"


def make_web(web, options):
    """Writes the files of every host; returns the URLs that must be captured, and those that robots.txt forbids."""
    chance = random.Random(options.seed)
    expected, forbidden = set(), set()
    for number in range(options.hosts):
        host = host_name(number)
        pages = site(host, options, chance)
        for path, body in pages.items():
            file = web / host / (path or "index.html")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
            if file.suffix == ".html" and len(path) % 2:
                # nginx sends this one instead, to those who accept it.
                Path(f"{file}.gz").write_bytes(gzip.compress(body, mtime=0))
            url = f"http://{host}/{path}"
            if path.startswith("private/"):
                forbidden.add(url)
            elif not path.startswith("orphan"):
                expected.add(url)
    outside = web / "outside.test"
    outside.mkdir(parents=True)
    (outside / "index.html").write_text("not in scope")
    return expected, forbidden


def site(host, options, chance):
    """The files of one host, by path."""
    def text(words):
        return " ".join(chance.choice(WORDS) for _ in range(words))

    pages = {
        "robots.txt": f"User-agent: *\nDisallow: /private/\nSitemap: http://{host}/sitemap.xml\n",
        "sitemap.xml": '<?xml version="1.0" encoding="UTF-8"?>\n'
                       '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
                       f"<url><loc>http://{host}/from-sitemap.html</loc></url></urlset>\n",
        "from-sitemap.html": f"<p>{host} {text(30)}</p>",
        "style.css": f"@import '/more.css'; body {{ background: url(back.png) }} /* {text(50)} */",
        "more.css": f"p {{ margin: 0 }} /* {host} {text(20)} */",
        "script.js": f"var next = '/from-script.html'; // {text(40)}",
        "from-script.html": f"<p>{host} by script {text(20)}</p>",
        "moved-here.html": f"<p>{host} was moved {text(20)}</p>",
        "private/secret.html": f"<p>{host} is private</p>",
        "orphan.html": "<p>nobody leads here</p>",
        "same.html": "<p>the same on every host</p>",
    }
    for name in ["back.png", "small.jpg", "large.jpg"]:
        pages[name] = chance.randbytes(chance.randrange(200, 30_000))
    for page in range(options.pages):
        path = f"page/{page}.html" if page else ""
        ahead = "".join(f'<li><a href="/page/{other}.html">{text(2)}</a>'
                        for other in range(page + 1, min(page + 4, options.pages)))
        pages[path] = (
            f"<!DOCTYPE html><html><head><meta charset=utf-8><title>{host} {page}</title>"
            '<link rel="stylesheet" href="/style.css"><script src="/script.js"></script></head><body>'
            f"<ul>{ahead}<li><a href='/same.html'>same</a><li><a href='/private/secret.html'>secret</a>"
            f"<li><a href='/gone-{page}.html'>gone</a><li><a href='/old/{page}'>old</a>"
            "<li><a href='http://outside.test/'>outside</a></ul>"
            '<img src="/small.jpg" srcset="/large.jpg 2x" alt="">'
            f"<p>{text(chance.randrange(20, 2000))}</p></body></html>\n")
    return {path: body if isinstance(body, bytes) else body.encode() for path, body in pages.items()}


def start_nsd(place, options):
    conf = place / "names"
    conf.mkdir(exist_ok=True)
    zone = ["$ORIGIN test.", "$TTL 3600", "@ IN SOA ns keeper 1 3600 600 86400 300", "@ IN NS ns",
            f"ns IN A {RESOLVER}", "outside IN A 127.1.0.1"]
    for number in range(options.hosts):
        zone.append(f"{host_name(number).split('.')[0]} IN A 127.1.0.{number % ADDRESSES + 1}")
    (conf / "test.zone").write_text("\n".join(zone) + "\n")
    (conf / "nsd.conf").write_text(f"""
server:
    ip-address: {RESOLVER}
    username: ""
    chroot: ""
    zonesdir: "{conf}"
    pidfile: "{conf}/nsd.pid"
    xfrdfile: "{conf}/xfrd.state"
    zonelistfile: "{conf}/zone.list"
    logfile: "{conf}/nsd.log"
    rrl-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: test.
    zonefile: test.zone
""")
    return subprocess.Popen(["nsd", "-d", "-c", conf / "nsd.conf"], stderr=subprocess.DEVNULL)


def start_nginx(place):
    conf = place / "nginx"
    conf.mkdir(exist_ok=True)
    listen = "".join(f"listen 127.1.0.{last}:80;\n" for last in range(1, ADDRESSES + 1))
    places = "".join(f"{name}_temp_path {conf}/{name};\n" for name in "client_body proxy fastcgi uwsgi scgi".split())
    (conf / "nginx.conf").write_text(f"""
daemon off;
master_process off;
pid {conf}/pid;
error_log {conf}/error.log error;
events {{ worker_connections 4096; }}
http {{
    access_log {conf}/access.log;
    {places}
    types {{ text/html html; text/css css; text/javascript js; image/jpeg jpg; image/png png; text/plain txt; text/xml xml; }}
    gzip_static on;
    absolute_redirect off;
    server {{
        {listen}
        server_name _;
        root {place}/web/$host;
        index index.html;
        location /old/ {{ return 302 /moved-here.html; }}
    }}
}}
""")
    return subprocess.Popen(["nginx", "-c", conf / "nginx.conf"], stderr=subprocess.DEVNULL)


def wait_for_servers(servers):
    import socket
    for _ in range(200):
        for server in servers:
            if server.poll() is not None:
                sys.exit(f"{server.args[0]} ended with {server.returncode}")
        try:
            for address in [("127.1.0.1", 80), (RESOLVER, 53)]:
                socket.create_connection(address, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the servers do not listen")


# The crawl ----------------------------------------------------------------------------------------------------------


def crawl(options, root, place, expected):
    """Gives the order and lets it be crawled, killing it now and then; returns the number of kills."""
    root.mkdir()
    order = place / "order.toml"
    seeds = [f"http://{host_name(number)}/" for number in range(options.hosts)] + ["http://missing.test/"]
    order.write_text(f"""
job = "1"
harvest = "1"
agent.contact = "https://archive.example/crawler"
network.allow-private = true
network.resolvers = ["{RESOLVER}:53"]
manners.group-by = "queue"
manners.delay-factor = 0.0
manners.min-delay = "10ms"
manners.max-delay = "50ms"
budget.queue.tries = 2
budget.queue.retry-delay = "200ms"
warc.size = "4 MB"
[[seeds]]
urls = {json.dumps(seeds)}
""")
    (root / "pipeline.toml").write_text("[defaults]\nmin-free = \"0 B\"\nsettle = \"100ms\"\n")
    run([options.ecluse, "--root", root, "give", "crawl", order])
    kills = 0
    chance = random.Random(options.seed)
    for number in range(options.kills):
        kills += kill_once(options, root, expected * (number + 1) // (options.kills + 1), chance)
    run([options.ecluse, "--root", root, "run", "--once", "crawl"])
    return kills


def kill_once(options, root, target, chance):
    """Starts the crawl and kills it when so many URLs are done; 1 if it was still at work."""
    log = open(root / "killed.log", "ab")
    child = subprocess.Popen(
        [options.ecluse, "--root", root, "run", "--once", "crawl"], stdout=log, stderr=log)
    log.close()
    limit = time.monotonic() + 60
    while time.monotonic() < limit and child.poll() is None and done(root) < target:
        time.sleep(0.01)
    time.sleep(chance.random() * 0.3)
    child.send_signal(signal.SIGKILL)
    return int(child.wait() == -signal.SIGKILL)


def done(root):
    try:
        return json.loads((root / "jobs/1-1/status.json").read_text())["done"]
    except (OSError, ValueError, KeyError):
        return 0


def run(command):
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stdout.decode()[-20000:]}")
    return ended.stdout


# The result ---------------------------------------------------------------------------------------------------------


def read(files):
    """Returns the URLs captured with status 200, those captured twice, and the records with a wrong digest."""
    captures, twice, wrong = {}, [], []
    for path in files:
        with open(path, "rb") as archive:
            for record in ArchiveIterator(archive, no_record_parse=True):
                headers = record.rec_headers
                block = record.raw_stream.read()
                url = headers.get_header("WARC-Target-URI")
                kind = headers.get_header("WARC-Type")
                if headers.get_header("WARC-Block-Digest") not in (None, digest(block)):
                    wrong.append(f"{path.name}: block of {kind} {url}")
                if kind not in ("response", "revisit") or not url.startswith("http"):
                    continue
                head, _, body = block.partition(b"\r\n\r\n")
                if kind == "response" and headers.get_header("WARC-Payload-Digest") != digest(entity(head, body)):
                    wrong.append(f"{path.name}: payload of {url}")
                if head.split(b" ", 2)[1][:3] == b"200":
                    if url in captures:
                        twice.append(url)
                    captures[url] = path.name
    return captures, twice, wrong


def entity(head, body):
    """The body without its chunks."""
    if b"transfer-encoding: chunked" in head.lower():
        return ChunkedDataReader(BytesIO(body), decomp_type=None).read()
    return body


def digest(data):
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def log_faults(root, expected, forbidden):
    """The URLs that crawl.log does not have exactly once with the status they must have."""
    seen = {}
    for line in (root / "jobs/1-1/logs/crawl.log").read_text().splitlines():
        fields = line.split()
        seen.setdefault(fields[3], []).append(fields[1])
    faults = [f"{url}: {statuses}" for url, statuses in seen.items() if len(statuses) != 1]
    faults += [f"{url}: {seen.get(url)}" for url in expected if seen.get(url, [""])[0] != "200"]
    faults += [f"{url}: {seen.get(url)}" for url in forbidden if seen.get(url, [""])[0] != "-9998"]
    if seen.get("http://missing.test/", ["-1"]) != ["-1"]:
        faults.append(f"http://missing.test/: {seen['http://missing.test/']}")
    return len(faults), faults


def warcio_check(files):
    warcio = Path(sys.executable).parent / "warcio"
    ended = subprocess.run([warcio, "check", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode != 0 and not lines:
        lines = [f"exit code {ended.returncode}"]
    return (len(lines), lines) if ended.returncode != 0 else (0, [])


def compare_indexes(options, files):
    """The lines of which our index and cdxj-indexer's differ."""
    indexer = Path(sys.executable).parent / "cdxj-indexer"
    differ = []
    for path in files:
        ours = set(run([options.ecluse, "stage", "index", path]).decode().splitlines())
        theirs = set(run([indexer, "-s", path]).decode().splitlines())
        differ += [f"{path.name} ours only: {line}" for line in sorted(ours - theirs)]
        differ += [f"{path.name} theirs only: {line}" for line in sorted(theirs - ours)]
    return len(differ), differ


def replay(options, root):
    """Takes the files through the chain and asks pywb for a sample; returns what it does not give back."""
    spec = importlib.util.spec_from_file_location("replay_with_pywb", Path(__file__).parent / "pywb.py")
    pywb = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pywb)
    old = time.time() - 3600
    for path in (root / "harvested").iterdir():
        os.utime(path, (old, old))
    run([options.ecluse, "--root", root, "run", "--once", *CHAIN])
    captures = [(when, fields) for when, fields in pywb.captures_of(root) if fields["url"].startswith("http")]
    if not captures:
        return 1, ["the index has no captures"]
    sample = random.Random(options.seed).sample(captures, min(options.sample, len(captures)))
    shutil.rmtree(root / "pywb", ignore_errors=True)
    server, port = pywb.start_pywb(root)
    try:
        wrong = [why for why in (pywb.check(root, port, capture) for capture in sample) if why]
    finally:
        server.terminate()
        server.wait()
    return len(wrong), wrong


if __name__ == "__main__":
    sys.exit(main())
