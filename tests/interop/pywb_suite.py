#!/usr/bin/env python3
"""pywb's own tests, asked of `ecluse serve`.

    pywb_suite.py --ecluse target/release/ecluse [--keep DIR] [--only PATTERN]

Gets pywb's source distribution from the Python package index, as pip is told to find it, makes an archive of each collection that
its tests configure, serves it, and puts the tests' requests to it over real connections. Nothing of pywb is kept here. What of its
behaviour is not adopted stands in `pywb_suite.json` with the reason, by test; docs/access-pywb.md says the same for people. A test
fails here if it fails and is not listed, or passes and is.

Needs pip, its index, and a Python with pywb 2.10.
"""

import argparse
import fnmatch
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import quote, urljoin

PYWB = "2.10.0"
# What the tests need and pywb itself does not.
NEEDED = ["WebTest==3.0.7", "pytest==9.0.2", "mock==5.2.0"]
# The others test pywb's recorder, its manager and command line, live rewriting, and proxy mode, which has tests of its own.
FILES = """test_integration test_memento test_redirects test_redirect_classic test_redirect_revisits test_range test_acl
    test_cdx_server_app test_zipnum_auto_dir test_prefer_header test_force_https""".split()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ecluse", required=True, type=Path)
    options.add_argument("--keep", type=Path, help="work here and leave everything behind")
    options.add_argument("--only", help="only tests whose name has this in it")
    options = options.parse_args()
    options.ecluse = options.ecluse.resolve()
    with tempfile.TemporaryDirectory(prefix="ecluse-pywb-suite-") as place:
        place = (options.keep or Path(place)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        suite, packages = place / "suite", place / "packages"
        if not suite.exists():
            unpack(source_distribution(), suite)
        if not packages.exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", packages]
            subprocess.run([*pip, *NEEDED], check=True)
        # Beside this file lies another pywb.py.
        sys.path[:1] = [str(suite), str(packages)]
        os.chdir(suite)
        return run(options, place)


# The suite ----------------------------------------------------------------------------------------------------------


def source_distribution():
    """Reads the source distribution from the index that pip uses. pip itself would first run what is in it."""
    from pip._internal.models.index import PyPI

    told = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().strip()
    index = os.environ.get("PIP_INDEX_URL") or told or PyPI.simple_url
    page = index.rstrip("/") + "/pywb/"
    text = urllib.request.urlopen(page).read().decode()
    name = f"pywb-{PYWB}.tar.gz"
    for link in re.findall(r'href="([^"]+)"', text):
        address, _, digest = link.partition("#sha256=")
        if address.split("?")[0].endswith(name):
            data = urllib.request.urlopen(urljoin(page, address)).read()
            if digest and hashlib.sha256(data).hexdigest() != digest:
                sys.exit(f"{name} is not what the index says")
            return data
    sys.exit(f"the index has no {name}")


def unpack(data, suite):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive, tempfile.TemporaryDirectory(dir=suite.parent) as place:
        for member in archive.getmembers():
            parts = Path(member.name).parts
            # pywb itself is installed; only what is tested, and with what, is taken.
            if len(parts) > 1 and parts[1] in ("tests", "sample_archive") and ".." not in parts and member.isfile():
                path = Path(place, *parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
        shutil.copytree(place, suite)


def run(options, place):
    import pytest
    import pywb
    from webtest import lint
    from pywb.apps import frontendapp
    from pywb.warcserver import warcserver

    shutil.rmtree(place / "archives", ignore_errors=True)
    launcher = Launcher(options.ecluse, place / "archives")
    # A rule of WSGI, not of HTTP: an archived answer may have had no type.
    lint.check_content_type = lambda *_: None
    frontendapp.FrontEndApp = warcserver.WarcServer = launcher.app
    # Where pywb's own code looks for its samples.
    samples = Path("sample_archive").resolve()
    pywb.get_test_dir = lambda: str(samples)
    listed = json.loads(Path(__file__).with_suffix(".json").read_text())
    listed = {pattern: reason for reason, patterns in listed.items() for pattern in patterns}
    outcomes = Outcomes()
    files = [f"tests/{name}.py" for name in FILES]
    arguments = ["-q", "--no-header", "--tb=short" if options.only else "--tb=no", "-p", "no:cacheprovider", "--show-capture=no",
                 "--disable-warnings", "-r", "N", *files]
    try:
        pytest.main(arguments + (["-k", options.only] if options.only else []), plugins=[outcomes])
    finally:
        launcher.end()
    wrong, left_out, used = [], 0, set()
    for test, outcome in sorted(outcomes.of.items()):
        patterns = [pattern for pattern in listed if fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))]
        used.update(patterns)
        if outcome == "passed" and patterns:
            wrong.append(f"{test} passes, and is listed as not adopted: {listed[patterns[0]]}")
        elif outcome != "passed" and not patterns:
            wrong.append(f"{test}: {outcome}")
        left_out += bool(patterns)
    if not options.only:
        wrong += [f"no test is called {pattern}" for pattern in sorted(set(listed) - used)]
    passed = sum(outcome == "passed" for outcome in outcomes.of.values())
    for why in wrong:
        print(why)
    print(f"{len(outcomes.of)} tests of pywb {PYWB}: {passed} pass, {left_out} are not adopted, {len(wrong)} wrong")
    return 1 if wrong or passed < (1 if options.only else 60) else 0


class Outcomes:
    """What became of each test."""

    def __init__(self):
        self.of = {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.removeprefix("tests/")
        if report.when == "call" or report.outcome != "passed":
            self.of[name] = report.outcome


# The server ---------------------------------------------------------------------------------------------------------


class Launcher:
    """Makes an archive of each collection of a configuration, and serves it. pywb's rules are per collection: so is a server."""

    def __init__(self, ecluse, place):
        self.ecluse, self.place, self.served = ecluse, place, {}

    def app(self, config_file=None, custom_config=None):
        return App(self, config_file, custom_config or {})

    def served_collection(self, name, config):
        """Returns the address of a server of a collection, a new one if what it is made of has changed."""
        indexes, archives = files_of(config, "index_paths", "index"), files_of(config, "archive_paths", "archive")
        state = (name, json.dumps(config, sort_keys=True), tuple((str(path), path.stat().st_mtime_ns) for path in indexes + archives))
        if state not in self.served:
            root = self.place / str(len(self.served))
            make_archive(root, name, config, indexes, archives)
            log = open(root / "log", "wb")
            server = subprocess.Popen([self.ecluse, "--root", root, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log)
            line = server.stdout.readline().decode()
            found = re.search(r"http://([\d.]+:\d+)/", line)
            if not found:
                sys.exit(f"ecluse serve says {line!r}: {(root / 'log').read_text()}")
            self.served[state] = (server, found[1])
        return self.served[state][1]

    def end(self):
        for server, _ in self.served.values():
            server.terminate()
        for server, _ in self.served.values():
            server.wait()


def files_of(config, *names):
    """The files that a setting of a collection names: files, or all in directories. They are relative to the suite; tests go elsewhere."""
    value = next((config[name] for name in names if name in config), [])
    found, suite = [], Path(sys.path[0])
    for path in (suite / one for one in ([value] if isinstance(value, str) else value)):
        found += sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    return [path for path in found if path.is_file()]


def make_archive(root, name, config, indexes, archives):
    from pywb.warcserver.index.cdxobject import CDXObject

    generation = root / "index/generations/1"
    generation.mkdir(parents=True)
    (root / "index/current").symlink_to("generations/1")
    lines = set()
    for path in indexes:
        if path.suffix in (".cdx", ".cdxj"):
            for line in path.read_bytes().splitlines():
                if not line.startswith(b" CDX"):
                    lines.add(CDXObject(line).to_cdxj().rstrip("\n"))
    summaries = [path for path in indexes if path.suffix in (".idx", ".loc")]
    for path in summaries:
        # pywb tries one place after another; of an index of ours there is one.
        if path.suffix == ".loc":
            shards = [line.split("\t") for line in path.read_text().splitlines()]
            text = "".join(f"{shard}\t{path.parent.resolve() / place}\n"
                           for shard, *places in shards for place in places if (path.parent / place).is_file())
            (generation / "index.loc").write_text(text)
        else:
            shutil.copy(path, generation / "index.idx")
    if not any(path.suffix == ".idx" for path in summaries):
        (generation / "index.cdxj").write_bytes(b"".join(line + b"\n" for line in sorted(line.encode() for line in lines)))
    places = sorted(f"{path.name}\t{path.resolve()}\n" for path in archives)
    (generation / "path-index.txt").write_text("".join(places))
    rules = [str(path.resolve()) for path in files_of(config, "acl_paths") if path.suffix == ".aclj"]
    settings = [f"main = {json.dumps(name)}", f"rules = {json.dumps(rules)}", 'user-header = "X-Pywb-ACL-User"', 'proxies = ["127.0.0.1"]',
                f"default-rule = {json.dumps(config.get('default_access', 'allow'))}"]
    (root / "pipeline.toml").write_text("[access]\n" + "\n".join(settings) + "\n")


class App:
    """A WSGI application whose answers are those of `ecluse serve`."""

    recorder = None

    def __init__(self, launcher, config_file, custom_config):
        import yaml

        self.launcher = launcher
        self.config = yaml.safe_load(Path(config_file).read_text()) | custom_config if config_file else custom_config
        self.collections = {name: config if isinstance(config, dict) else {"index": config}
                            for name, config in self.config.get("collections", {}).items()}
        self.first = next(name for name, config in self.collections.items() if files_of(config, "index_paths", "index"))

    def config_of(self, path):
        """The collection that a path names; of others, the first: they are none of any server."""
        name = path.lstrip("/").split("/")[0]
        made = Path(self.config.get("collections_root", "collections"), name).resolve()
        if name and (made / "indexes").is_dir():
            return name, {"index_paths": str(made / "indexes"), "archive_paths": str(made / "archive")}
        name = name if name in self.collections else self.first
        config = self.collections[name]
        return name, {"archive_paths": self.config.get("archive_paths", [])} | config

    def __call__(self, environ, start_response):
        path = quote(environ["PATH_INFO"].encode("latin-1"), safe="/:?=&,;@!$'()*+~%[]|")
        query = environ.get("QUERY_STRING")
        # Behind a referer the path names no collection: the page's does.
        named = path if path.lstrip("/").split("/")[0] in self.collections else re.sub(r"^https?://[^/]+", "", environ.get("HTTP_REFERER", path))
        address = self.launcher.served_collection(*self.config_of(named if named.startswith("/") else path))
        headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        headers["Connection"] = "close"
        length = int(environ.get("CONTENT_LENGTH") or 0)
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request(environ["REQUEST_METHOD"], path + (f"?{query}" if query else ""), environ["wsgi.input"].read(length) or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        hop = ("connection", "transfer-encoding", "keep-alive")
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in hop]
        start_response(f"{answer.status} {answer.reason or '-'}", kept)
        return [body] if body else []


if __name__ == "__main__":
    sys.exit(main())
