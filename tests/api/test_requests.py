"""Valid and invalid requests (contract 1 and 4): strict JSON, media types, sizes, fields.

Invalid ones change nothing.
"""

import http.client
import json
import socket
from typing import Any

import pytest

from tests.api.sends import EMAIL, SENDS, SMS, VERIFY, Body, assert_refused, idle_me
from tests.service import PATIENCE_S, TOKENS, Answer, Service

BASE = json.dumps(SMS).encode()
KIB, MIB = 1024, 1024 * 1024


def nested(depth: int, lists: bool = False) -> bytes:
    """Return a send with `depth` nested objects or lists: the body, `variables`, and the rest below."""
    opened, closed = (b"[", b"]") if lists else (b'{"a":', b"}")
    inner = depth - 2
    core = opened * inner + b"1" + closed * inner
    return b'{"to":"+15005550006","template_id":"tpl_sms","variables":{"parcel":%s}}' % core


# -- strict JSON -------------------------------------------------------------------------------------------

NOT_JSON = {
    "empty": b"",
    "white space": b"  \n",
    "cut off": BASE[:-1],
    "two values": BASE + BASE,
    "trailing comma": BASE[:-1] + b",}",
    "single quotes": b"{'to': '+15005550006'}",
    "a comment": BASE + b"// yes",
    "NaN": b'{"to": NaN}',
    "Infinity": b'{"to": Infinity}',
    "-Infinity": b'{"to": -Infinity}',
    "an infinite number": b'{"to": 1e400}',
    "a negative infinite number": b'{"to": -1e400}',
    "a repeated key": b'{"to": "+15005550006", "to": "+15005550006"}',
    "a repeated key inside": b'{"to": "+15005550006", "variables": {"a": 1, "a": 1}}',
    "a key repeated by escape": b'{"to": "+15005550006", "\\u0074o": "+15005550006"}',
    "a lone high surrogate": b'{"to": "\\ud83d"}',
    "a lone low surrogate": b'{"to": "\\ude00x"}',
    "a surrogate in a key": b'{"\\ud800": 1}',
    "swapped surrogates": b'{"to": "\\ude00\\ud83d"}',
    "raw surrogate bytes": b'{"to": "\xed\xa0\x80"}',
    "Latin-1": b'{"to": "\xe9"}',
    "UTF-16": BASE.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + BASE,
    "a raw line break in a string": b'{"to": "a\nb"}',
    "a raw null": b'{"to": "a\0b"}',
    "a bad escape": b'{"to": "\\x41"}',
    "a leading zero": b'{"to": 01}',
    "a number too long to read": b'{"to": ' + b"9" * 5000 + b"}",
    "level 33 of objects": nested(33),
    "level 33 of lists": nested(33, lists=True),
    "a bomb of lists": b"[" * 60_000,
    "a closed bomb": b"[" * 30_000 + b"]" * 30_000,
    "a bomb of objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
}


@pytest.mark.parametrize("kind", NOT_JSON)
def test_invalid_json_is_refused(shared_service: Service, kind: str) -> None:
    assert_refused(shared_service.post("/v1/sms", NOT_JSON[kind]), 400, "invalid_json")


def test_the_number_of_json_values_is_limited(shared_service: Service) -> None:
    too_many = b'{"to":[' + b'"",' * 200_000 + b'""]}'
    assert_refused(shared_service.post("/v1/emails", too_many), 400, "invalid_json")
    text = EMAIL | {"text": ',[{"\\' * 100_000}
    assert shared_service.post("/v1/emails?dry_run=true", text).status == 200


@pytest.mark.parametrize("lists", [False, True])
def test_body_nested_32_levels_deep_is_refused_for_its_content(shared_service: Service, lists: bool) -> None:
    assert shared_service.post("/v1/sms", nested(32, lists)).code == "invalid_request"
    beside = nested(32, lists)[:-1] + b',"surprise":[[],[],{}]}'  # more brackets, but not deeper
    assert shared_service.post("/v1/sms", beside).code == "invalid_request"


@pytest.mark.parametrize("raw", [b"[]", b'"text"', b'"' + b"[" * 99 + b'"', b"1", b"null", b"true"])
def test_the_body_is_an_object(shared_service: Service, raw: bytes) -> None:
    assert_refused(shared_service.post("/v1/sms", raw), 400, "invalid_request")


def test_astral_characters_may_be_escaped(shared_service: Service) -> None:
    raw = BASE.replace(b"A1", b"\\ud83d\\ude00")
    answer = shared_service.post("/v1/sms?dry_run=true", raw)
    assert (answer.status, "😀" in answer.json["body"]) == (200, True)


# -- media type and encoding -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"]
)
def test_json_encodings_are_equivalent(shared_service: Service, given: str) -> None:
    assert shared_service.post("/v1/sms", SMS, headers={"Content-Type": given}).status == 202


@pytest.mark.parametrize(
    "headers",
    [
        *({"Content-Type": given} for given in ("", "text/plain", "text/json", "application/jsonp", "application/xml")),
        *({"Content-Type": given} for given in ("application/x-www-form-urlencoded", "application/problem+json")),
        *({"Content-Encoding": given} for given in ("gzip", "deflate", "br", "gzip, identity")),
    ],
)
@pytest.mark.parametrize("path", [*SENDS, "/v1/suppressions", "/v1/templates/tpl_sms/render"])
def test_other_media_types_are_refused(shared_service: Service, path: str, headers: dict[str, str]) -> None:
    assert_refused(shared_service.post(path, {}, headers=headers), 415, "unsupported_media_type")


def test_a_missing_content_type_is_refused(shared_service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_service.ports[-1])
    connection.request("POST", "/v1/sms", BASE, {"Authorization": f"Bearer {TOKENS['ACME']}"})
    assert connection.getresponse().status == 415
    connection.close()


def test_content_encoding_identity_is_accepted(shared_service: Service) -> None:
    assert shared_service.post("/v1/sms", SMS, headers={"Content-Encoding": "identity"}).status == 202


# -- size --------------------------------------------------------------------------------------------------


def padded(body: Body, size: int) -> bytes:
    raw = json.dumps(body).encode()
    return raw + b" " * (size - len(raw))


def chunked(service: Service, path: str, raw: bytes) -> Answer:
    """Send the body in chunks, so that its length is unknown."""
    connection = http.client.HTTPConnection("127.0.0.1", service.ports[-1], timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {TOKENS['ACME']}", "Content-Type": "application/json"}
    chunks = (raw[at : at + MIB] for at in range(0, len(raw), MIB))
    connection.request("POST", path, chunks, headers, encode_chunked=True)
    response = connection.getresponse()
    answer = Answer(response.status, {}, response.read())
    connection.close()
    return answer


@pytest.mark.parametrize("in_chunks", [False, True], ids=["with length", "chunked"])
@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/emails", 40 * MIB),
        ("/v1/sms", 64 * KIB),
        ("/v1/whatsapp", 64 * KIB),
        ("/v1/verify", 64 * KIB),
        ("/v1/verify/vrf_x/check", 64 * KIB),
        ("/v1/suppressions", 64 * KIB),
    ],
)
def test_the_largest_body_is_accepted(shared_service: Service, path: str, limit: int, in_chunks: bool) -> None:
    body = SENDS.get(path, {"surprise": 1})
    for size in (limit, limit + 1):
        raw = padded(body, size)
        answer = chunked(shared_service, path, raw) if in_chunks else shared_service.post(path, raw)
        if size > limit:
            assert_refused(answer, 413, "payload_too_large")
        else:
            assert answer.status in (202, 400) and answer.code in (None, "invalid_request")


# -- fields ------------------------------------------------------------------------------------------------

SHAPES: list[tuple[str, Body, str]] = [
    ("/v1/emails", {"surprise": 1}, "surprise"),
    ("/v1/emails", {"From": "a@acme.test"}, "From"),
    ("/v1/emails", {"from_": "a@acme.test"}, "from_"),
    ("/v1/emails", {"to": 1}, "to"),
    ("/v1/emails", {"to": {"email": "a@b.test"}}, "to"),
    ("/v1/emails", {"to": ["a@b.test", 1]}, "to"),
    ("/v1/emails", {"to": [None]}, "to"),
    ("/v1/emails", {"cc": "a@b.test"}, "cc"),
    ("/v1/emails", {"bcc": "a@b.test"}, "bcc"),
    ("/v1/emails", {"reply_to": [1]}, "reply_to"),
    ("/v1/emails", {"subject": 1}, "subject"),
    ("/v1/emails", {"html": True}, "html"),
    ("/v1/emails", {"text": []}, "text"),
    ("/v1/emails", {"from": {}}, "from"),
    ("/v1/emails", {"from_display_id": 1}, "from_display_id"),
    ("/v1/emails", {"template_id": 1}, "template_id"),
    ("/v1/emails", {"variables": []}, "variables"),
    ("/v1/emails", {"variables": "name=Ada"}, "variables"),
    ("/v1/emails", {"attachments": {}}, "attachments"),
    ("/v1/emails", {"attachments": ["x"]}, "attachments[0]"),
    ("/v1/emails", {"attachments": [{"size": 1}]}, "attachments[0].size"),
    *[
        (path, break_, param)
        for path in ("/v1/sms", "/v1/whatsapp")
        for break_, param in (
            ({"surprise": 1}, "surprise"),
            ({"to": 15005550006}, "to"),
            ({"to": ["+15005550006"]}, "to"),
            ({"template_id": 1}, "template_id"),
            ({"variables": [1]}, "variables"),
            ({"variables": {"parcel": [1]}}, "variables.parcel"),
            ({"brand_domain_id": 1}, "brand_domain_id"),
        )
    ],
    ("/v1/verify", {"surprise": 1}, "surprise"),
    ("/v1/verify", {"to": 15005550006}, "to"),
    ("/v1/verify", {"channel": {"sms": True}}, "channel"),
]


@pytest.mark.parametrize(("path", "break_", "param"), SHAPES)
def test_an_invalid_field_is_named(shared_service: Service, path: str, break_: Body, param: str) -> None:
    answer = shared_service.post(path, SENDS[path] | break_)
    assert_refused(answer, 400, "invalid_request")
    assert answer.json["error"]["param"] == param


@pytest.mark.parametrize("path", SENDS)
def test_an_empty_request_fails_the_first_check(shared_service: Service, path: str) -> None:
    """Missing fields have specific codes (contract 4)."""
    first = ("missing_body", "subject") if path == "/v1/emails" else ("invalid_phone", "to")
    assert_refused(shared_service.post(path, {}), 400, *first)


NULLS = {
    "/v1/emails": ("cc", "bcc", "reply_to", "attachments", "from_display_id", "html", "template_id", "variables"),
    "/v1/sms": ("brand_domain_id",),
    "/v1/whatsapp": ("brand_domain_id",),
    "/v1/verify": ("channel",),
}


@pytest.mark.parametrize("path", SENDS)
def test_null_equals_absent(shared_service: Service, path: str) -> None:
    assert shared_service.post(path, SENDS[path] | dict.fromkeys(NULLS[path])).status == 202


@pytest.mark.parametrize(
    ("path", "break_"),
    [
        ("/v1/emails", {"subject": "a\0b"}),
        ("/v1/emails", {"text": "a\0b"}),
        ("/v1/emails", {"to": "a\0@example.com"}),
        ("/v1/sms", {"variables": {"parcel": "a\0b"}}),
        ("/v1/sms", {"template_id": "tpl_\0"}),
        ("/v1/sms", {"a\0": 1}),
        ("/v1/verify", {"to": "+1500555\0"}),
    ],
)
def test_null_characters_are_refused(shared_service: Service, path: str, break_: Body) -> None:
    assert shared_service.post(path, SENDS[path] | break_).status == 400


@pytest.mark.parametrize(
    "path", ["/v1/emails/%00", "/v1/suppressions/a%00@b.test", "/v1/emails?to=%00", "/v1/emails?to=%FF"]
)
def test_null_characters_in_the_url_are_refused(shared_service: Service, path: str) -> None:
    assert shared_service.get(path).status in (400, 404)


@pytest.mark.parametrize("path", [*SENDS, "/v1/me", "/v1/emails/eml_x", "/v1/suppressions"])
def test_unknown_and_repeated_query_parameters(shared_service: Service, path: str) -> None:
    assert_refused(shared_service.get(f"{path}?surprise=1"), 400, "invalid_request", "surprise")


@pytest.mark.parametrize("query", ["dry_run=1", "dry_run=TRUE", "dry_run=", "dry_run=true&dry_run=true", "dryrun=true"])
@pytest.mark.parametrize("path", SENDS)
def test_an_invalid_dry_run_value_sends_nothing(shared_service: Service, path: str, query: str) -> None:
    assert_refused(shared_service.post(f"{path}?{query}", SENDS[path]), 400, "invalid_request")


# -- what is no HTTP request -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"GET /v1/me HTTP/9.9\r\n\r\n",
        b"POST /v1/sms HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/sms HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/me HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
    ],
    ids=["words", "version", "length", "two lengths", "headers of 70 KB"],
)
def test_a_malformed_request_gets_an_error_body(shared_service: Service, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared_service.ports[-1]), 10) as connection:
        connection.sendall(raw)
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"\r\nx-request-id: req_" in head.lower()
    assert json.loads(body)["error"]["code"] == "invalid_request"


# -- what is answered before the body comes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/v1/emails", "application/json", 401),
        ("/v1/nothing", "application/json", 404),
        ("/carriers/nobody/callback", "application/json", 404),
        ("/carriers/sim-sms/callback", "application/json", 404),
        ("/dashboard/sign-in", "multipart/form-data; boundary=x", 415),
        ("/dashboard/link/x", "multipart/form-data; boundary=x", 415),
        ("/dashboard/teams/team_acme/suppressions/import", "multipart/form-data; boundary=x", 303),
        ("/dashboard/operator/teams", "application/x-www-form-urlencoded", 303),
    ],
)
def test_a_body_is_read_only_after_authentication(shared_service: Service, path: str, kind: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", shared_service.ports[-1]), 10) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 60000\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 %d " % status)


def test_unsent_bodies_do_not_block_other_requests(shared_service: Service) -> None:
    head = f"POST /v1/emails HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['ACME']}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {40 * MIB}\r\n\r\n"
    idle = [socket.create_connection(("127.0.0.1", shared_service.ports[-1]), 10) for _ in range(3)]
    for connection in idle:
        connection.sendall(head.encode() + b" " * 100_000)
    try:
        assert shared_service.post("/v1/emails", padded(EMAIL, 100 * KIB), key="OTHER").code != "service_unavailable"
        assert shared_service.post("/v1/emails", padded(EMAIL, 20 * MIB), key="ACME").status == 202
    finally:
        for connection in idle:
            connection.close()


# -- nothing is written ------------------------------------------------------------------------------------


def counts(service: Service) -> Any:
    newest = [service.get(f"{path}?limit=1").json["data"][:1] for path in SENDS]
    return idle_me(service, "ACME"), [[item["id"] for item in page] for page in newest]


def test_bad_input_changes_nothing(shared_service: Service) -> None:
    """No recipient is magic, so each send would count or cost if it were accepted."""
    email = EMAIL | {"to": "someone@example.com"}
    sms = SMS | {"to": "+14155550123"}
    bad: list[tuple[str, Any]] = [
        ("/v1/emails", email | {"from": "a@example.com"}),
        ("/v1/emails", email | {"cc": ["gone@example.com"]}),
        ("/v1/emails", email | {"surprise": 1}),
        ("/v1/sms", sms | {"variables": {}}),
        ("/v1/sms", json.dumps(sms).encode() + b"x"),
        ("/v1/sms", sms | {"to": "+33612345678"}),
        ("/v1/whatsapp", sms | {"template_id": "tpl_none"}),
        ("/v1/verify", VERIFY | {"to": "+14155550123", "channel": "call"}),
    ]
    before = counts(shared_service)
    for path, body in bad:
        assert shared_service.post(path, body).status >= 400
    assert counts(shared_service) == before
