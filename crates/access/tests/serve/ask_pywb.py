"""Answers questions to an index with pywb's own code: one query string a line in, the lines of the answer and an empty line out."""
import sys
from urllib.parse import parse_qsl

from pywb.warcserver.index.cdxobject import CDXObject
from pywb.warcserver.index.cdxops import process_cdx
from pywb.warcserver.index.indexsource import FileIndexSource
from pywb.warcserver.index.query import CDXQuery

source = FileIndexSource(sys.argv[1])
for line in sys.stdin:
    params = {}
    for name, value in parse_qsl(line.strip()):
        if name == "filter":
            params.setdefault(name, []).append(value)
        else:
            params[name] = value
    query = CDXQuery(params)
    found = process_cdx((CDXObject(cdx) if isinstance(cdx, bytes) else cdx for cdx in source.load_index(query.params)), query)
    for cdx in found:
        print(cdx["urlkey"], cdx["timestamp"], cdx["offset"])
    print()
