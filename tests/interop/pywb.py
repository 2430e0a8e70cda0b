#!/usr/bin/env python3
"""pywb serves what the chain made: every 200 capture comes back byte for byte.

    pywb.py --ecluse target/release/ecluse [--corpus DIR]

Takes WARC files (its own, and the good ones below DIR) through `ecluse run --once`, starts a real
pywb on the finished index and PATH file, asks it for every capture with status 200 in its original
form, and compares with the payload read straight from the archive file. Needs pywb and warcio.
"""

import argparse
import base64
import gzip
import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import ChunkedDataReader
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

UNCHANGED, LATER, BODY = "http://example.org/style.css", "2026-02-02T03:04:05Z", b"body { color: teal }"
CHAIN = "ingest index transfer backup delete merge bigmerge".split()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--corpus", type=Path)
    options = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ecluse-pywb-") as root:
        root = Path(root)
        harvested = root / "harvested"
        harvested.mkdir()
        files = own_files(harvested)
        if options.corpus and options.corpus.is_dir():
            files += good_files(options, harvested)
        run(options, root)
        captures = list(captures_of(root))
        server, port = start_pywb(root)
        try:
            wrong = [why for why in (check(root, port, c) for c in captures) if why]
            wrong += [why for why in [check_unchanged(port)] if why]
        finally:
            server.terminate()
            server.wait()
    for why in wrong:
        print(why)
    print(f"{files} files, {len(captures)} captures with status 200, {len(wrong)} not given back byte for byte")
    return 1 if wrong or len(captures) < 20 else 0


def own_files(harvested):
    """Makes what a crawler writes: plain, chunked and compressed bodies, odd URLs, a redirect, a revisit."""
    # Named as a stock Heritrix names its files.
    path = harvested / "WEB-20260102030405000-00000-12~own.example~8443.warc.gz"
    with open(path, "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for number in range(30):
            body = (f"<p>page {number} é</p>" * (number * 7 + 1)).encode()
            headers = [("Content-Type", "text/html; charset=utf-8")]
            wire = body
            if number % 3 == 1:
                wire = gzip.compress(body, mtime=0)
                headers.append(("Content-Encoding", "gzip"))
            if number % 4 == 2:
                headers.append(("Transfer-Encoding", "chunked"))
                wire = b"%x\r\n%s\r\n0\r\n\r\n" % (len(wire), wire)
            else:
                headers.append(("Content-Length", str(len(wire))))
            url = f"http://www{number % 3}.example.org/Päge/{number}?b=2&a={number}"
            put(writer, url, "200 OK", headers, wire, number)
        put(writer, "http://example.org/old", "302 Found", [("Location", "/new")], b"", 40)
        revisit = writer.create_revisit_record(
            "http://example.org/again", digest="sha1:B6QJ6BNJ3R4B23XXMRKZKHLPGJY2VE4O",
            refers_to_uri="http://example.org/first", refers_to_date="2026-01-02T03:04:05Z")
        writer.write_record(revisit)
        put(writer, UNCHANGED, "200 OK", [("Content-Type", "text/css")], BODY, 50)
    # A later harvest was told that nothing has changed.
    with open(harvested / "WEB-20260202030405000-00000-12~own.example~8443.warc.gz", "wb") as out:
        writer = WARCWriter(out, gzip=True)
        digest = "sha1:" + base64.b32encode(hashlib.sha1(BODY).digest()).decode()
        revisit = writer.create_revisit_record(
            UNCHANGED, digest=digest, refers_to_uri=UNCHANGED, refers_to_date="2026-01-02T03:04:50Z",
            http_headers=StatusAndHeaders("304 Not Modified", [("ETag", '"1"')], protocol="HTTP/1.1"),
            warc_headers_dict={"WARC-Date": LATER,
                               "WARC-Profile": "http://netpreserve.org/warc/1.1/revisit/server-not-modified"})
        writer.write_record(revisit)
    return 2


def check_unchanged(port):
    """Returns what is wrong with the second harvest of what had not changed, or None."""
    status, _, body = get(port, f"/archive/{LATER.translate(str.maketrans('', '', '-:TZ'))}id_/{UNCHANGED}")
    return None if (status, body) == (200, BODY) else f"{UNCHANGED} at {LATER}: status {status}, {len(body)} bytes"


def put(writer, url, status, headers, wire, number):
    http_headers = StatusAndHeaders(status, headers, protocol="HTTP/1.1")
    record = writer.create_warc_record(
        url, "response", payload=BytesIO(wire), http_headers=http_headers,
        warc_headers_dict={"WARC-Date": f"2026-01-02T03:04:{number:02}Z"})
    writer.write_record(record)


def good_files(options, harvested):
    """Copies the WARC files of a corpus that index without damage, under names of their own."""
    good = 0
    for path in sorted(options.corpus.rglob("*")):
        if not path.is_file() or not path.name.endswith((".warc", ".warc.gz")):
            continue
        indexed = subprocess.run(
            [options.ecluse, "stage", "index", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if indexed.returncode == 0 and indexed.stdout:
            name = "".join(c if c.isalnum() or c in ".-_" else "_" for c in path.name)
            shutil.copyfile(path, harvested / f"{good:03}-{name}")
            good += 1
    return good


def run(options, root):
    old = time.time() - 3600
    for path in (root / "harvested").iterdir():
        os.utime(path, (old, old))
    done = subprocess.run(
        [options.ecluse, "--root", root, "run", "--once", *CHAIN], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"the chain ended with {done.returncode}:\n{done.stdout.decode()}")


def captures_of(root):
    with open(root / "index/current/index.cdxj", encoding="utf-8") as index:
        for line in index:
            _key, timestamp, fields = line.split(" ", 2)
            fields = json.loads(fields)
            if fields.get("status") == "200" and fields.get("mime") != "warc/revisit":
                yield timestamp, fields


def start_pywb(root):
    (root / "pywb").mkdir()
    current = root / "index/current"
    (root / "pywb/config.yaml").write_text(
        "collections:\n  archive:\n"
        f"    index_paths: {current}/index.cdxj\n"
        f"    archive_paths: {current}/path-index.txt\n"
        "enable_memento: true\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wayback = Path(sys.executable).parent / "wayback"
    server = subprocess.Popen(
        [wayback, "--bind", "127.0.0.1", "--port", str(port), "--threads", "2"],
        cwd=root / "pywb", stdout=subprocess.DEVNULL, stderr=open(root / "pywb/log", "wb"))
    for _ in range(300):
        if server.poll() is not None:
            sys.exit("pywb did not start:\n" + (root / "pywb/log").read_text())
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return server, port
        except OSError:
            time.sleep(0.1)
    sys.exit("pywb does not listen")


def check(root, port, capture):
    """Returns what is wrong with a capture, or None."""
    timestamp, fields = capture
    url = fields["url"]
    expected = payload(root, fields)
    # In its original form, as it came over the wire but for the chunks.
    path = f"/archive/{timestamp}id_/{quote(url, safe=':/?&=%,;+@!$()*~[]|^{}<>' + chr(34) + chr(39))}"
    try:
        status, headers, body = get(port, path)
        if status == 307:
            # pywb sends "http://host" on to "http://host/".
            location = headers["location"]
            status, headers, body = get(port, location[location.index("/archive/"):])
    except OSError as error:
        return f"{fields['filename']} {fields['offset']} {url}: {error!r}"
    if status != 200:
        return f"{fields['filename']} {fields['offset']} {url}: status {status}"
    if body == expected or body in twins(root, timestamp, fields):
        return None
    # A length in the captured header that is too small ends what pywb can send.
    if expected.startswith(body) and headers.get("content-length") == str(len(body)):
        return None
    same = "the beginning of it" if expected.startswith(body) else "others"
    return f"{fields['filename']} {fields['offset']} {url}: {len(body)} bytes ({same}), expected {len(expected)}"


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip, deflate, br, zstd", "Connection": "close"})
        answer = connection.getresponse()
        try:
            body = answer.read()
        except http.client.IncompleteRead as short:
            # The capture claims more bytes than it has.
            body = short.partial
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error
    finally:
        connection.close()


def twins(root, timestamp, fields):
    """The payloads of other captures with the same key and time: pywb may give any of them."""
    key = None
    same = []
    with open(root / "index/current/index.cdxj", encoding="utf-8") as index:
        lines = [line.split(" ", 2) for line in index]
    for line_key, line_time, text in lines:
        if line_time == timestamp and json.loads(text) == fields:
            key = line_key
    for line_key, line_time, text in lines:
        other = json.loads(text)
        if (line_key, line_time) == (key, timestamp):
            same.append(payload(root, other))
    return same


def payload(root, fields):
    with open(root / "repository" / fields["filename"], "rb") as archive:
        archive.seek(int(fields["offset"]))
        record = next(iter(ArchiveIterator(archive, no_record_parse=False)))
        body = record.raw_stream.read()
        if record.http_headers is None:
            return body
        encoding = record.http_headers.get_header("Transfer-Encoding") or ""
        if encoding.lower() == "chunked":
            reader = ChunkedDataReader(BytesIO(body), decomp_type=None)
            return reader.read()
        return body


if __name__ == "__main__":
    sys.exit(main())
