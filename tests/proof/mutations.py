"""Odd requests, each made from a good one by a few changes: far quicker than drawing every one from the schema."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from tests.service import SETUP, TOKENS

CHANGES = (0, 1, 1, 1, 1, 2, 2, 3)  # in one request
DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]
WORDS = (
    *("", " ", "\0", "\x1b", "\x7f", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "\u2028", "é", "ß", "😀", "İ", "ﬁ"),
    *("a" * 300, "é" * 5_000, "a" * 70_000, "a@" * 50, "null", "NaN", "-1", "1e400", "0x10", "١", "00", "9" * 40),
    *("a@b.c", "ada@example.com", "delivered@simulator.test", "Ada <a@acme.test>", "a@b\r\nBcc: c@d.e", '"a b"@c.d'),
    *("a@xn--a", "a@" + "b." * 130 + "c", "+14155550123", "+15005550006", "+1", "+" + "1" * 40, "+١٢٣٤٥٦٧٨"),
    *("2026-11-15T09:30:00.000Z", "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "2026-02-30T00:00:00+99:99"),
    *("http://127.0.0.1:9/", "http://[::1", "https://a.test:99999/", "https://é.test/%zz", "javascript:1", "//a"),
    *("{{customer.name}}", "{{", "=?utf-8?b?AA?=", "../..", "%00", "' OR 1=1--", "*", "email.*", "name:value", ":"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 2**31, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308, float("nan"), float("-inf")),
    *(
        [],
        [[]],
        [None],
        {},
        {"": {}},
        {"a": {"b": None}},
        DEEP,
        [1] * 600,
        ["a@b.c"] * 60,
        {str(n): n for n in range(99)},
    ),
    *WORDS,
)
HEADERS = (
    *(("Content-Type", kind) for kind in ("", "text/plain", "application/json; charset=utf-16", "a/b;;=", "é")),
    *(("Idempotency-Key", key) for key in ("", "a", "b", "é", "\t", "a" * 256, "a" * 9_000)),
    *(("Accept", kind) for kind in ("application/problem+json", "*/*;q=x", ",", "text/html")),
    *(("Authorization", f"Bearer {TOKENS[name]}") for name in ("SANDBOX", "OTHER", "SUSPENDED", "ACME_SEND", "BROKE")),
    *(("Authorization", text) for text in ("", "Bearer", "Bearer é", "Basic YTpi", "Bearer " + "a" * 9_000)),
    *(("Content-Encoding", "gzip"), ("X-Forwarded-For", "1, ::g"), ("traceparent", "00-zz"), ("Range", "bytes=9-1")),
    *(
        ("If-None-Match", '"'),
        ("X-Request-Id", "\xff"),
        ("Cookie", "a=;;=b"),
        ("Accept-Language", "é;q=9"),
        ("Host", ""),
    ),
)
QUERIES = ("%", "%zz=%ff", "a", "&&=&", "limit=1&limit=2", "dry_run=TRUE", "dry_run=true", "after=%00", "a[]=1")
SET_UP_IDS = re.findall(r'\bid = "(\w+)"', SETUP.read_text("utf-8"))  # of all teams


def kind(id_: str) -> str:
    return id_[:4] if id_[3:4] == "_" else ""


class Good(msgspec.Struct, frozen=True):
    """What is changed."""

    method: str
    path: str  # with {names}
    names: dict[str, Any] = {}
    query: dict[str, Any] = {}
    body: Any = None  # None: without
    key: str = "ACME"


class Draft:
    """One request on its way from good to odd; `ids` are of records that exist, by how they begin."""

    def __init__(self, good: Good, rng: Random, ids: Mapping[str, Sequence[str]]) -> None:
        self.rng, self.ids = rng, ids
        self.method, self.path = good.method, good.path
        self.names = {name: value if rng.random() < 0.3 else self._id(str(value)) for name, value in good.names.items()}
        self.query = [(name, value) for name, value in good.query.items() if name != "wait"]  # nobody waits
        self.loose = ""
        self.headers = [("Authorization", f"Bearer {TOKENS[good.key]}")]
        self.body, self.raw = good.body, b""
        if self.body is not None:
            self.headers.append(("Content-Type", "application/json"))
        kinds = [self._odd_query, self._odd_header, *[self._odd_name] * 2 * bool(self.names)]
        if self.body is not None:
            kinds += [self._odd_body] * 8 + [self._odd_text]
        for _ in range(rng.choice(CHANGES)):
            rng.choice(kinds)()

    def __bytes__(self) -> bytes:
        sent = self.raw or (b"" if self.body is None else self._text())
        names = {name: self._quoted(value) for name, value in self.names.items()}
        query = "&".join([f"{self._quoted(name)}={self._quoted(value)}" for name, value in self.query] + [self.loose])
        target = self.path.format(**names) + f"?{query}" * (query != "")
        lines = [f"{self.method} {target} HTTP/1.1", "Host: a", f"Content-Length: {len(sent)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + sent

    def _id(self, like: str = "") -> str:
        return str(self.rng.choice(self.ids.get(kind(like)) or self.rng.choice(list(self.ids.values()))))

    def _value(self) -> Any:
        return self._id() if self.rng.random() < 0.2 else self.rng.choice(VALUES)

    def _quoted(self, value: Any) -> str:
        return quote(str(value), safe=self.rng.choice(("", "/.%@:~+")), errors="surrogatepass")

    def _text(self) -> bytes:
        return json.dumps(self.body, ensure_ascii=self.rng.random() < 0.5, default=str).encode("utf-8", "surrogatepass")

    def _odd_name(self) -> None:
        self.names[self.rng.choice(list(self.names))] = self.rng.choice(WORDS[:25])

    def _odd_query(self) -> None:
        if self.query and self.rng.random() < 0.8:
            at = self.rng.randrange(len(self.query))
            self.query[at] = (self.query[at][0], self._value())
        else:
            self.loose = self.rng.choice(QUERIES)

    def _odd_header(self) -> None:
        header = self.rng.choice(HEADERS)
        if self.rng.random() < 0.9:  # else it is there twice
            self.headers = [one for one in self.headers if one[0] != header[0]]
        self.headers.append(header)

    def _odd_body(self) -> None:
        self.body = self._changed(self.body)

    def _changed(self, value: Any) -> Any:
        """One part of it is another, is missing, or is new."""
        rng = self.rng
        if not isinstance(value, dict | list) or not value or rng.random() < 0.05:
            return self._value()
        if isinstance(value, list):
            at = rng.randrange(len(value))
            return [*value[:at], *[self._changed(value[at])] * rng.randrange(3), *value[at + 1 :]]
        name, dice = rng.choice(list(value)), rng.random()
        if dice < 0.15:
            return {each: value[each] for each in value if each != name}
        if dice < 0.25:
            return {**value, rng.choice((*WORDS[:20], name.upper(), f"{name} ")): self._value()}
        return {**value, name: self._changed(value[name])}

    def _odd_text(self) -> None:
        text, rng = self._text(), self.rng
        a, b = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        made: tuple[Callable[[], bytes], ...] = (
            lambda: text[:a],
            lambda: text[:a] + text[b:],
            lambda: text[:b] + text[a:],
            lambda: text[:a] + rng.randbytes(rng.randrange(1, 4)) + text[a:],
            lambda: (
                text[:a] + rng.choice((b"\xff", b"\0", b"\\u0000", b"\\ud800", b"[" * 99, b"/**/", b"1e999")) + text[a:]
            ),
            lambda: text[:-1] + b"," + text[1:],  # every key twice
            lambda: text.decode("utf-8", "replace").encode("utf-16"),
            lambda: b"\xef\xbb\xbf" + text,
        )
        self.raw = rng.choice(made)()
