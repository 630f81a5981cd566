"""Fast and strict parsing of JSON agree: the same value with the same types, or the same refusal."""

import base64
import json
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.sending import idempotency
from heliograph.web import bodies, incremental_json
from tests.api.sends import EMAIL, SENDS
from tests.api.test_requests import NOT_JSON, nested
from tests.proof.size import drawn

CASES = 20_000
FILE = {"filename": "a.txt", "content": base64.b64encode(b"\xff" * 30).decode(), "content_type": "text/plain"}
VARIABLES = {"parcel": "A1", "é": '\\ " \n 😀', '":': [1, -0.0, 1e300, {"a": None, "b": [True, {}]}], "url": "x:y"}


def written(body: object) -> list[bytes]:
    """Return the body as Python encodes it, as most others do, and with as much white space as possible."""
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"ensure_ascii": False, "separators": (",", ":")},
        {"indent": 1, "separators": (" ,", "\t: ")},
    )
    return [json.dumps(body, **way).encode() for way in ways]


ORDINARY = [raw for body in (*SENDS.values(), EMAIL | {"attachments": [FILE, FILE]}) for raw in written(body)]
BODIES = ORDINARY + written(EMAIL | {"variables": VARIABLES})

# inserted by mutations: tokens, escapes, numbers, half a surrogate pair, invalid UTF-8
PIECES = [
    *(
        b'"',
        b'":',
        b'" :',
        b":",
        b",",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\\",
        b"/",
        b" ",
        b"\n",
        b"\0",
        b"\x0b",
        b"\x1f",
        b"\x7f",
    ),
    *(b"\\u0000", b"\\u0022", b"\\ud83d", b"\\ude00", b"\\ud83d\\ude00", b"\\u00e9", b"\\u", b"\\n", b'\\"', b"\\x"),
    *(b"\xef\xbb\xbf", b"\xc3\xa9", b"\xed\xa0\x80", b"\xff", b"\xf0\x9f\x98\x80", b"\xc0\x80"),
    *(b"0", b"-0", b"-", b"1e5", b"1E400", b"-1e-400", b"1.50", b"0.1e1", b"9" * 20, b"-" + b"9" * 30, b"01", b"1."),
    *(
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b'"to":1,',
        b'"a":{"a":{}},',
        b"[[",
        b"]]",
        b'{"a":1,"a":2}',
    ),
]


def outcome(read: Callable[[bytes], object], raw: bytes, *, words: bool = True) -> str:
    """Return the result as text; `repr` distinguishes 1 from 1.0 and -0.0 from 0, and shows the order of keys."""
    try:
        value = read(raw)
    except Refusal as refusal:
        return repr((refusal.code, refusal.param, refusal.message)) if words else "refused"
    return repr(value) + known(value)


def known(value: object) -> str:
    """Return the value's fingerprint, which must be the same if computed in steps."""
    whole = idempotency.fingerprint("/", value)
    assert idempotency.fingerprint_in_steps("/", value) == whole
    return whole


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Return the text with one to three parts inserted, removed, repeated or replaced."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        end = min(len(raw), at + rng.choice((0, 0, 1, 2, 8)))
        raw = raw[:at] + rng.choice((rng.choice(PIECES), rng.randbytes(1), raw[at:end] * 2, b"")) + raw[end:]
    return raw


def mutations(seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    return (mutated(rng, rng.choice(BODIES)) for _ in range(CASES))


def test_mutated_body_has_the_same_outcome_in_both_parsers() -> None:
    quick = 0
    for raw in mutations(seed=13):
        assert outcome(bodies.parse_fast, raw) == outcome(bodies.parse_strict, raw), raw
        quick += "invalid_json" not in outcome(bodies.parse_fast, raw)
    assert CASES / 10 < quick < CASES  # both kinds occur


@pytest.mark.parametrize("step", [9, 10, 11, 12, 64])
def test_body_parsed_in_steps_equals_body_parsed_at_once(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a large body is split. A body with two errors may get either refusal."""
    monkeypatch.setattr(incremental_json, "STEP_BYTES", step)
    monkeypatch.setattr(idempotency, "STRING_CHUNK", step)

    def read(raw: bytes) -> object:
        return incremental_json.parse_in_steps(raw, bodies.parse_strict)

    edges = [*NOT_JSON.values(), nested(32), nested(32, lists=True), *ORDINARY]
    for raw in (*edges, *islice(mutations(seed=step), CASES // 5)):
        assert outcome(read, raw, words=False) == outcome(bodies.parse_strict, raw, words=False), raw


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"text": "a\0"}, "text"),
        ({"text": "x" * bodies.LARGE_BODY + "\0"}, "text"),
        ({"a\0": 1}, None),
        (["\0"], "[0]"),
        ({"to": "a@x.io", "variables": {"customer": {"to": "\0"}}}, "variables.customer.to"),
        ({"metadata": {"subject": "\0"}}, "metadata.subject"),
        ({"tags": {"\0": "x"}}, "tags"),
        ({"subjects": "\0"}, "subjects"),
        ({"attachments": [{}, {"content": "\0"}]}, "attachments[1].content"),
        ({"messages": [{"subject": "\0", "html": "\0"}]}, "messages[0].html"),
        ({"message": {"subject": "\0"}}, "message.subject"),
        ([{"subject": "\0", "html": "\0"}], "[0].html"),
        ({"k" * 2000: ["\0"]}, "k" * 1000),
    ],
)
def test_null_character_in_a_body_is_refused(body: object, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bodies.parse_json(json.dumps(body).encode())
    assert refused.value.param == param


@pytest.mark.parametrize(
    "send",
    [
        {"subject": "a\0", "from": "\0", "to": ["a\0@x.io"], "cc": "\0", "bcc": ["\0"], "reply_to": "\0"},
        {"headers": {"X-A": "\0", "X-\0": ""}},
        {"attachments": [{"filename": "\0.txt"}]},
    ],
)
def test_null_characters_in_fields_with_their_own_check_are_parsed(send: object) -> None:
    for body in (send, {"messages": [{}, send]}, [send]):
        assert bodies.parse_json(json.dumps(body).encode()) == body


def test_null_characters_in_a_part_of_a_request() -> None:
    with pytest.raises(InvalidRequest) as refused:
        bodies.parse_json(b'{"to":"\\u0000"}', "metadata")
    assert refused.value.param == "metadata.to"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=drawn(100))
@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
def test_any_json_value_has_the_same_outcome_in_both_parsers(value: object, ascii_: bool, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_, indent=indent).encode("utf-8", "surrogatepass")
    assert outcome(bodies.parse_fast, raw) == outcome(bodies.parse_strict, raw)


@pytest.mark.parametrize("raw", [*NOT_JSON.values(), nested(32), nested(32, lists=True)])
def test_json_edge_case_has_the_same_outcome_in_both_parsers(raw: bytes) -> None:
    assert outcome(bodies.parse_json, raw) == outcome(bodies.parse_strict, raw)


@pytest.mark.parametrize("raw", ORDINARY)
def test_ordinary_bodies_are_parsed_without_the_strict_parser(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(bodies, "parse_strict")
    assert bodies.parse_json(raw) == json.loads(raw)
