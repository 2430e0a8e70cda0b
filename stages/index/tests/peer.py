"""Prints the lines of cdxj-indexer for each file named on standard input, as one JSON object a file."""

import contextlib
import io
import json
import sys

from cdxj_indexer.main import CDXJIndexer

for path in json.load(sys.stdin):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            CDXJIndexer(out, [path], sort=True).process_all()
        failure = None
    except BaseException as error:
        failure = repr(error)
    print(json.dumps({"failure": failure, "lines": out.getvalue()}))
