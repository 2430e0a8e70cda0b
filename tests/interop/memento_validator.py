#!/usr/bin/env python3
"""LANL's memento-validator, asked about `ecluse serve`.

    memento_validator.py --ecluse target/debug/ecluse --validator DIR

DIR is a checkout of the validator (github.com/lanl/memento-validator): no package index has it, so CI does not run this. It judges
a memento, raw and in a page, and the TimeGate; its verdict about TimeMaps is empty (a plain file passes), and the tests of the crate
`access` have a parser of their own. Needs warcio, dateutil and urllib3.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

URL = "http://lock.example/"
TIMES = ["20090101000000", "20091010120000", "20150615083000"]
# What a memento and a TimeGate must show.
DATE = "Sat, 10 Oct 2009 12:00:00 GMT"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--validator", required=True, type=Path)
    options = options.parse_args()
    sys.path.insert(0, str(options.validator.resolve()))
    from mementoweb.validator.pipelines import TimeGate
    from mementoweb.validator.pipelines.memento import Memento

    with tempfile.TemporaryDirectory(prefix="ecluse-memento-") as root:
        root = Path(root)
        make_archive(root)
        server = subprocess.Popen([options.ecluse, "--root", root, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
        try:
            base = re.search(r"http://[\d.]+:\d+", server.stdout.readline().decode())[0]
            asked = [("memento, raw", Memento(), f"{base}/web/{TIMES[1]}id_/{URL}"),
                     ("memento, page", Memento(), f"{base}/web/{TIMES[1]}mp_/{URL}"),
                     ("TimeGate", TimeGate(), f"{base}/web/{URL}")]
            failed = sum(judged(name, validator.validate(address, DATE)) for name, validator, address in asked)
        finally:
            server.terminate()
            server.wait()
    return 1 if failed else 0


def judged(name, result):
    """Prints what was found and returns how much of it is wrong."""
    tests = [test for report in result.reports for test in report.tests]
    # That a TimeGate is not itself a memento is a warning: it leads to one.
    other = [test for test in tests if test.result() != "Pass"]
    print(f"{name}: {len(tests) - len(other)} of {len(tests)} pass")
    for test in other:
        print(f"  {test.result()}: {test.name()}")
    return sum(test.result() != "Warn" for test in other) + (len(tests) < 5)


def make_archive(root):
    generation = root / "index/generations/1"
    generation.mkdir(parents=True)
    (root / "index/current").symlink_to("generations/1")
    (root / "pipeline.toml").write_text("")
    lines, path = [], root / "lock.warc.gz"
    with open(path, "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for time in TIMES:
            start = out.tell()
            body = f"<p>as of {time}</p>".encode()
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            date = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:{time[12:]}Z"
            writer.write_record(writer.create_warc_record(
                URL, "response", payload=BytesIO(body), http_headers=head, warc_headers_dict={"WARC-Date": date}))
            lines.append(f'example,lock)/ {time} {{"url": "{URL}", "mime": "text/html", "status": "200", "digest": "sha1:{time}", '
                         f'"length": "{out.tell() - start}", "offset": "{start}", "filename": "{path.name}"}}\n')
    (generation / "index.cdxj").write_text("".join(lines))
    (generation / "path-index.txt").write_text(f"{path.name}\t{path}\n")


if __name__ == "__main__":
    sys.exit(main())
