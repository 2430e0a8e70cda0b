#!/usr/bin/env python3
"""Prints URLs and the keys that the Python package `surt` gives them.

    python_oracle.py [--count N] [--seed S] [--dns] [--json FILE]... [--lines FILE]...

One line each: the URL in hexadecimal, a tab, and the key in hexadecimal, or `!` where `surt` raises an exception.
URLs are generated from the seed by a grammar that is meant to be nasty; before them come all strings
found in the JSON files, and the lines of the other files.

Names of digits that are no address would be looked up in DNS by `surt`. Without --dns they count as unknown at once.
"""

import argparse
import json
import random
import socket
import sys
import unicodedata
import warnings

warnings.filterwarnings("ignore")

import surt

HEX = "0123456789abcdefABCDEF"
ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PRINTABLE = "".join(map(chr, range(33, 127)))
SCHEMES = (
    ["http://"] * 30
    + ["https://"] * 20
    + [
        "HTTP://", "Https://", "ftp://", "FTP://", "dns:", "dns://", "DNS:", "urn:", "urn:uuid:", "mailto:", "whois://",
        "warcinfo:", "filedesc:", "filedesc://", "metadata://", "screenshot:http://", "data:", "javascript:", "about:",
        "http:", "http:/", "http:///", "http:////////", "https:", "https:////", "//", "/", "", "", "", ":", "://", "x:",
        "x+y-z.1://", "1x://", "http://http://", "https://http://", "http://https://https://", "http://http:/",
        "httpx://", "httpx:", "http", "view-source:http://", "http:\\\\", "h\tt\ntp://", " http://", "file:///",
    ]
)
TLDS = ["com", "org", "fr", "co.uk", "example", "COM", "museum", "gov.au", "xn--p1ai", "рф", "한국", "中国", "il"]
WORDS = [
    "archive", "example", "Index", "a", "b", "www", "www2", "WWW", "images", "foo-bar", "foo_bar", "x", "news", "écluse",
    "straße", "ΒΟΥΛΗ", "bücher", "MÜNCHEN", "日本語", "www12", "ww", "wwww", "www1a", "localhost", "xn--bcher-kva", "12",
]
SESSIONS = [
    ("jsessionid=", ALNUM, 32), ("JSESSIONID=", HEX, 32), ("PHPSESSID=", HEX, 32), ("phpsessid=", ALNUM, 32),
    ("sid=", ALNUM, 32), ("SID=", HEX, 32), ("xsid=", HEX, 32), (";jsessionid=", HEX, 32),
    ("ASPSESSIONIDABCDEFGH=", "ABCDEFGHIJKLMNOPQRSTUVWXYZabc", 24), ("aspsessionidQQQQQQQQ=", "abcdefXYZ", 24),
    ("ASPSESSIONIDABC1EFGH=", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", 24),
]
# Blocks where folding, normalising, refusing or direction have something to do.
BLOCKS = [
    (0x80, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x700, 0x74F), (0x900, 0xDFF), (0xE00, 0xFFF),
    (0x10A0, 0x11FF), (0x1700, 0x18AF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2460, 0x24FF),
    (0x2800, 0x28FF), (0x2C00, 0x2D2F), (0x2FF0, 0x33FF), (0x4E00, 0x4E80), (0xA640, 0xA7BF), (0xAC00, 0xAC80),
    (0xD7A0, 0xD7FB), (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFF), (0x10400, 0x104FF),
    (0x11080, 0x110CF), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1F100, 0x1F2FF), (0x1F600, 0x1F640),
    (0x2F800, 0x2FA1D), (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF),
]


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def some(self, alphabet, low, high):
        return "".join(self.r.choices(alphabet, k=self.r.randint(low, high)))

    def chance(self, percent):
        return self.r.random() * 100 < percent

    def odd_char(self):
        while True:
            low, high = self.r.choice(BLOCKS)
            point = self.r.randint(low, high)
            char = chr(point)
            # Characters younger than the Python at hand differ between Pythons; see docs/formats/surt.md.
            if unicodedata.category(char) == "Cn" and point & 0xFFFE != 0xFFFE and not 0xFDD0 <= point <= 0xFDEF:
                continue
            if 0xD800 <= point < 0xE000:
                continue
            return char

    def number(self):
        kind = self.r.randint(0, 9)
        if kind < 5:
            return str(self.r.randint(0, 300))
        if kind == 5:
            return "0" * self.r.randint(1, 3) + oct(self.r.randint(0, 300))[2:]
        if kind == 6:
            return str(self.r.choice([255, 256, 65535, 65536, 16777215, 16777216, 2**32 - 1, 2**32, 2**64]))
        if kind == 7:
            return str(self.r.randint(0, 2**33))
        if kind == 8:
            return self.r.choice(["08", "09", "00", "0x7f", "1e3", "-1", "", "0" * 20 + "1"])
        return oct(self.r.randint(0, 2**33)).replace("o", "")

    def address(self):
        return ".".join(self.number() for _ in range(self.r.choice([1, 1, 2, 3, 4, 4, 4, 4, 5])))

    def marked(self):
        """Letters under several combining marks, and Hangul in pieces."""
        if self.chance(25):
            return self.some("\u1100\u1112\u1161\u1175\u1176\u11a7\u11a8\u11c2\uac00\uac01a", 1, 6)
        base = "aeoAuǖṩกकוͅΑω가ạ"
        marks = "\u0300\u0301\u0304\u0307\u0308\u0323\u0327\u0328\u0331\u0338\u0342\u0344\u0345\u034f\u0315\u05b0\u05bc\u0e38\u093c\u302a\u3099\U0001d165"
        return "".join(self.r.choice(base) + self.some(marks, 0, 4) for _ in range(self.r.randint(1, 3)))

    def label(self):
        kind = self.r.randint(0, 20)
        if kind == 20:
            return self.marked()
        if kind < 11:
            return self.r.choice(WORDS)
        if kind < 15:
            return self.some(ALNUM + "-_", 1, 12)
        if kind < 17:
            return "".join(self.r.choice(ALNUM) if self.chance(50) else self.odd_char() for _ in range(self.r.randint(1, 8)))
        if kind == 17:
            return self.some("אבגדהوقכab12", 1, 5)
        if kind == 18:
            return self.some(PRINTABLE, 0, 5)
        return self.r.choice(["", "a" * 63, "a" * 64, "é" * 58, "é" * 62, "xn--é", "%", "%zz", "ab%2ecd", "%77%77%77", "a\u0323\u0307"])

    def host(self):
        kind = self.r.randint(0, 19)
        if kind < 3:
            return self.address()
        if kind == 3:
            return self.r.choice(["[::1]", "[2001:DB8::1]", "[::1", "::1]", "x[y]z", "[]", "[fe80::1%25Eth0]", "[1.2.3.4]"])
        labels = [self.label() for _ in range(self.r.randint(0, 3))] + [self.r.choice(TLDS)]
        if self.chance(25):
            labels.insert(0, self.r.choice(["www", "www1", "WWW23", "wWw"]))
        dot = self.r.choice(["."] * 30 + ["..", "...", "....", "%2e", "%2E%2e", "。", "．", "%252e"])
        text = dot.join(labels)
        if self.chance(4):
            text = self.r.choice([".", "..", "...", " "]) + text
        if self.chance(4):
            text += self.r.choice([".", "..", "...", " "])
        return text

    def authority(self):
        text = self.host()
        if self.chance(5):
            text = self.r.choice(["user", "user:pass", "u@v", ":", "", "a:80", "%40"]) + "@" + text
        if self.chance(12):
            text += ":" + self.r.choice(
                ["80", "443", "8080", "21", "0", "", ":", "080", "00443", "65535", "65536", "99999", "1", "-1", "x", "8 0", "80:", "80:81", "٣"]
            )
        return text

    def segment(self):
        kind = self.r.randint(0, 29)
        if kind < 12:
            return self.r.choice(WORDS) if self.chance(50) else self.some(ALNUM, 1, 10)
        if kind < 16:
            return self.some(ALNUM, 1, 6) + self.r.choice([".html", ".ASPX", ".aspx", ".php", ".jpg", ";a=b", "~"])
        if kind < 21:
            return self.r.choice([".", "..", "", "", "...", ".a", "..a", "%2e", "%2E%2E", ".%2e", "%252e%252e", "%2f", "%5c", "\\"])
        if kind < 23:
            return "(" + self.some(ALNUM, 24, 24) + ")"
        if kind == 23:
            return "(" + "".join(self.r.choice(ALNUM) + "(" + self.some(ALNUM, 24, 24) + ")" for _ in range(self.r.randint(0, 3))) + ")"
        if kind < 27:
            return "".join("%" + self.some(HEX, 2, 2) for _ in range(self.r.randint(1, 4)))
        if kind == 27:
            return self.some(PRINTABLE, 0, 8)
        if kind == 28:
            return self.odd_char() + self.some(ALNUM, 0, 4)
        return self.r.choice(["%", "%%", "%2", "%zz", "%25", "%2541", "%%34%31", "%25%32%35", "%u00e9", "http:", "*", "|"])

    def path(self):
        if self.chance(8):
            return ""
        return "/" + "/".join(self.segment() for _ in range(self.r.randint(0, 5)))

    def argument(self):
        kind = self.r.randint(0, 19)
        if kind < 3:
            name, alphabet, length = self.r.choice(SESSIONS)
            return name + self.some(alphabet, length, length + (1 if self.chance(10) else 0))
        if kind == 3:
            return self.r.choice(["cfid=1&cftoken=2", "CFID=%31&CFTOKEN=x-y", "cfid=cfid=1&cftoken=2", "cfid=cfid=&cftoken=2", "cfid=1&cftoken=cfid=3&cftoken=4", "cfid=&cftoken=1", "xcfid=1&cftoken=", "cftoken=1"])
        if kind < 6:
            return self.r.choice(["", "", "=", "a", "A", "a=", "=a", "a==", "a=b=c", "?", "a?b", "/", "%26", "%3D", "a%3db", "%26amp;"])
        name = self.some("abABcd-_.[]%20"[: self.r.randint(2, 14)], 0, 4)
        if self.chance(20):
            return name
        return name + "=" + self.r.choice(
            [self.some(ALNUM, 0, 6), self.segment(), "http://" + self.authority() + self.path(), "1", "+", "a b"]
        )

    def query(self):
        if self.chance(40):
            return ""
        return "?" + "&".join(self.argument() for _ in range(self.r.choice([0, 1, 1, 1, 2, 2, 3, 4, 6, 40])))

    def fragment(self):
        return "#" + self.some(PRINTABLE, 0, 6) if self.chance(8) else ""

    def mutate(self, url):
        kind = self.r.randint(0, 9)
        at = self.r.randint(0, len(url))
        if kind == 0:
            return url[:at] + bytes([self.r.randint(0, 255)]) + url[at:]
        if kind == 1:
            return url[:at] + self.r.choice([b"\t", b"\n", b"\r", b"\r\n", b" ", b"\x0b", b"\x0c", b"\x00", b"\xa0", b"\xc2\xa0"]) + url[at:]
        if kind == 2:
            return url[:at] + url[at + 1 :]
        if kind == 3:
            return b"".join(b"%%%02x" % byte if self.chance(30) else bytes([byte]) for byte in url)
        if kind == 4:
            return b"".join(b"%%25%02X" % byte if self.chance(10) else bytes([byte]) for byte in url)
        if kind == 5:
            return url.swapcase()
        if kind == 6:
            return url[:at]
        if kind == 7:
            return self.r.choice([b" ", b"\n", b"\t ", b"\x0b", b"\x1f"]) + url + self.r.choice([b" ", b"\n", b"\x0c", b"\r\n", b"?", b"/", b"#"])
        if kind == 8:
            return url.decode("utf-8", "replace").encode("latin-1", "replace")
        return url[:at] + url[max(0, at - 7) :]

    def url(self):
        kind = self.r.randint(0, 99)
        if kind == 0:
            return bytes(self.r.randint(0, 255) for _ in range(self.r.randint(0, 30)))
        if kind == 1:
            return self.some(":/?#@[]%.&=()aw1 \t", 0, 20).encode()
        text = self.r.choice(SCHEMES) + self.authority() + self.path() + self.query() + self.fragment()
        url = text.encode("utf-8")
        while self.chance(20):
            url = self.mutate(url)
        return url


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from strings(item)


def without_dns(name):
    if isinstance(name, bytes):
        name = name.decode("ascii")
    found = socket.getaddrinfo(name, None, socket.AF_INET, flags=socket.AI_NUMERICHOST)
    return name, [], [found[0][4][0]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dns", action="store_true")
    parser.add_argument("--json", action="append", default=[])
    parser.add_argument("--lines", action="append", default=[])
    options = parser.parse_args()
    if not options.dns:
        socket.gethostbyname_ex = without_dns

    def urls():
        for name in options.json:
            with open(name, encoding="utf-8") as file:
                values = map(json.loads, file) if name.endswith(".jsonl") else [json.load(file)]
                for text in strings(list(values)):
                    yield text.encode("utf-8", "surrogatepass")
        for name in options.lines:
            with open(name, "rb") as file:
                for line in file:
                    yield line.rstrip(b"\n")
        grammar = Grammar(options.seed)
        for _ in range(options.count):
            yield grammar.url()

    for url in urls():
        try:
            key = surt.surt(url).hex()
        except Exception:
            key = "!"
        sys.stdout.write(url.hex() + "\t" + key + "\n")


main()
