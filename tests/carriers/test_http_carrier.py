"""The carrier for any HTTP API: templates, rules, callbacks; and the providers that docs/carriers.md describes."""

import hmac
import html
import json
import logging
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest

from heliograph.carriers.contract import Callback, Parcel
from heliograph.carriers.http_client import Web, WebAnswer
from heliograph.carriers.sms.http import WINDOW_MS, Http
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import (
    CloudApiOptions,
    HttpOptions,
    RelayOptions,
    SmppOptions,
    TwilioOptions,
)
from tests.carriers.fakes import SECRET, HttpFake, Inbox

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "carriers.md"
TO = "+491511234567"
NASTY = 'Your code is 731946: "a"\\b\n{{to}} &to=+1 <x>/%41 é☃'
CALLBACK = "https://sms.example.com/carriers/any/callback"
NOW = 1_700_000_000_000
OPTIONS: dict[str, Any] = {
    "headers": {"Authorization": "Bearer key-in-a-header"},
    "body": """
        {"to": "{{to}}", "from": "{{from}}", "text": "{{text}}", "id": "{{message_id}}", "callback": "{{callback_url}}"}
        """,
    "accepted": {"status": [200, 202], "id": "$.message_id"},
    "refused": {"status": [400, 422], "text": "$.error"},
    "callback": {"id": "$.id", "status": "$.status", "delivered": ["DELIVRD", "1"], "failed": ["UNDELIV"]},
    "callback_secret": SECRET,
}


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    yield web
    await web.close()


def parcel(uncertain: bool = False, **content: Any) -> Parcel:
    given: dict[str, Any] = {
        "body": NASTY,
        "sender_id": "ACME",
        "encoding": "ucs2",
        "segments": 1,
        "parts": 1,
    } | content
    return Parcel(
        message_id="sms_1",
        address=TO,
        content=msgspec.json.encode(SmsContent(**given)),
        attempt=0,
        country="DE",
        uncertain=uncertain,
    )


def carrier(web: Web | None = None, url: str = "http://127.0.0.1:1/send", **options: Any) -> Http:
    return Http(msgspec.convert(OPTIONS | {"url": url} | options, HttpOptions), web or Web(), CALLBACK)


# -- the request -------------------------------------------------------------------------------------------


async def test_a_json_body_holds_any_text(web: Web) -> None:
    async with HttpFake() as fake:
        outcome = await carrier(web, fake.url + "/send").hand_over(parcel())
    assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.taken[0]["id"]
    assert outcome.detail == {"carrier": "http", "code": "202", "text": "accepted", "sender": "ACME"}
    sent = {"to": TO, "from": "ACME", "text": NASTY, "id": "sms_1", "callback": CALLBACK}
    assert json.loads(fake.asked[0][2]) == sent
    assert fake.asked[0][1]["content-type"] == "application/json"
    assert fake.asked[0][1]["authorization"] == "Bearer key-in-a-header"


@pytest.mark.parametrize(
    ("type_", "template", "written"),
    [
        ("application/json; charset=utf-8", '{"t":"{{text}}"}', msgspec.json.encode({"t": NASTY})),
        ("Application/X-WWW-Form-Urlencoded", "t={{text}}&c={{country}}", urlencode({"t": NASTY, "c": "DE"}).encode()),
        ("text/xml", "<t>{{text}}</t>", f"<t>{html.escape(NASTY)}</t>".encode()),
        ("text/plain", "{{to_digits}} {{text}}", f"491511234567 {NASTY}".encode()),
    ],
)
async def test_a_body_is_escaped_by_its_type(web: Web, type_: str, template: str, written: bytes) -> None:
    async with HttpFake("defer:500") as fake:
        await carrier(web, fake.url + "/send", headers={"content-type": type_}, body=template).hand_over(parcel())
    assert fake.asked[0][2] == written


async def test_address_and_headers_take_values_too(web: Web) -> None:
    async with HttpFake() as fake:
        url = fake.url + "/send?to={{to}}&text={{text}}&from={{from}}"
        given = {"method": "GET", "body": "", "headers": {"X-Text": "{{text}}", "X-Ref": "{{message_id}}"}}
        outcome = await carrier(web, url, **given).hand_over(parcel())
    assert isinstance(outcome, Accepted)
    line, headers, body = fake.asked[0]
    assert dict(parse_qsl(line.partition("?")[2])) == {"to": TO, "text": NASTY, "from": "ACME"}
    assert "/send?to=%2B49" in line and "%2F%2541" in line
    assert (headers["x-ref"], body) == ("sms_1", b"")
    assert "\n" not in headers["x-text"] and "content-type" not in headers


@pytest.mark.parametrize(
    ("own", "content", "sender"),
    [
        ("", {}, "ACME"),
        ("4711", {}, "ACME"),
        ("4711", {"platform_sender": True}, "4711"),
        ("4711", {"sender_id": ""}, "4711"),
        ("", {"platform_sender": True}, "ACME"),
    ],
)
async def test_the_sender(web: Web, own: str, content: dict[str, Any], sender: str) -> None:
    async with HttpFake() as fake:
        outcome = await carrier(web, fake.url + "/send", **{"from": own}).hand_over(parcel(**content))
    assert fake.taken[0]["sender"] == outcome.detail["sender"] == sender


@pytest.mark.parametrize("template", ["{{telephone}}", "{{ to }}", "{{}}"])
@pytest.mark.parametrize("field", ["url", "body", "headers"])
def test_an_unknown_placeholder_is_told_at_once(field: str, template: str) -> None:
    value: Any = {"X-Y": template} if field == "headers" else "http://x/" + template
    with pytest.raises(msgspec.ValidationError, match="is not a placeholder"):
        msgspec.convert({"url": "http://x/"} | {field: value}, HttpOptions)


# -- what an answer means ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, {"message_id": "m1"}, Accepted(carrier_id="m1")),
        (202, {"message_id": 17}, Accepted(carrier_id="17")),
        (202, {"message_id": ""}, Deferred(uncertain=True)),
        (202, {}, Deferred(uncertain=True)),
        (202, "no json", Deferred(uncertain=True)),
        (201, {"message_id": "m1"}, Deferred()),  # not in the list
        (400, {"error": "bad number"}, Refused()),
        (422, {}, Refused()),
        (401, {}, Deferred(unreachable=True)),
        (403, {}, Deferred(unreachable=True)),
        (404, {}, Deferred(unreachable=True)),
        (402, {}, Deferred()),
        (409, {}, Deferred()),
        (429, {}, Deferred(retry_after_ms=1000)),
        (500, {}, Deferred()),
        (503, {}, Deferred(retry_after_ms=1000)),
        (504, {}, Deferred(uncertain=True)),
        (301, {}, Deferred()),
    ],
)
async def test_the_rules(web: Web, monkeypatch: pytest.MonkeyPatch, status: int, body: Any, outcome: Outcome) -> None:
    monkeypatch.setattr(HttpFake, "refused", lambda *_: (status, body))
    async with HttpFake("refuse") as fake:
        given = await carrier(web, fake.url + "/send").hand_over(parcel())
    assert given.detail["code"] == str(status)
    assert msgspec.structs.replace(given, detail={}) == outcome
    if isinstance(given, Refused):
        assert given.detail["text"] == ("bad number" if status == 400 else "the carrier answered 422")


@pytest.mark.parametrize(
    ("body", "outcome"), [({"id": "m1"}, Accepted), ({"error": "no credit"}, Refused), ({}, Refused)]
)
async def test_a_provider_that_says_200_to_everything(
    web: Web, monkeypatch: pytest.MonkeyPatch, body: Any, outcome: type[Outcome]
) -> None:
    monkeypatch.setattr(HttpFake, "refused", lambda *_: (200, body))
    rules = {"accepted": {"status": [200], "id": "$.id"}, "refused": {"status": [200], "text": "$.error"}}
    async with HttpFake("refuse") as fake:
        assert isinstance(await carrier(web, fake.url + "/send", **rules).hand_over(parcel()), outcome)


@pytest.mark.parametrize(("step", "uncertain"), [("drop", True), ("cut", True), (None, False)])
async def test_silence(web: Web, step: str | None, uncertain: bool) -> None:
    async with HttpFake(step or "accept") as fake:
        url = fake.url if step else "http://127.0.0.1:1"
        outcome = await carrier(web, url + "/send").hand_over(parcel())
    assert isinstance(outcome, Deferred)
    assert (outcome.uncertain, outcome.unreachable) == (uncertain, not uncertain)


async def test_resend_and_stop(web: Web) -> None:
    async with HttpFake() as fake:
        assert isinstance(await carrier(web, fake.url + "/send").hand_over(parcel(True)), Accepted)
        stopped = await carrier(web, fake.url + "/send", uncertain="stop").hand_over(parcel(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert len(fake.asked) == 1


# -- callbacks ---------------------------------------------------------------------------------------------


DELIVERED = {"id": "m1", "status": "DELIVRD"}


def callback(told: Any, secret: str = SECRET, type_: str = "application/json", **fields: Any) -> Callback:
    """As a provider would write and sign it."""
    body = json.dumps(told).encode() if type_ == "application/json" else urlencode(told).encode()
    headers = {"x-signature": hmac.new(secret.encode(), body, "sha256").hexdigest(), "content-type": type_}
    given: dict[str, Any] = {
        "method": "POST",
        "url": CALLBACK,
        "query": {},
        "headers": headers,
        "body": body,
        "now": NOW,
    }
    return Callback(**given | fields)


@pytest.mark.parametrize(
    ("told", "reports"),
    [
        (DELIVERED, [("m1", "delivered")]),
        ({"id": "m1", "status": "UNDELIV"}, [("m1", "failed")]),
        ({"id": 5, "status": 1}, [("5", "delivered")]),
        ({"id": "m1", "status": "ENROUTE"}, []),
        ({"id": "m1"}, []),
        ({"status": "DELIVRD"}, []),
        ({"id": ["m1"], "status": True}, []),
        ([DELIVERED], []),
        (None, []),
    ],
)
def test_statuses(told: Any, reports: list[tuple[str, str]]) -> None:
    given = carrier().read_callback(callback(told))
    assert given and given.status == 200
    assert [(id_, report.status) for id_, report in given.reports] == reports


def test_a_form_and_a_list_of_reports() -> None:
    form = carrier().read_callback(callback(DELIVERED, type_="application/x-www-form-urlencoded; charset=utf-8"))
    assert form and [(id_, report.status) for id_, report in form.reports] == [("m1", "delivered")]
    where = {"each": "$.results", "id": "$.id", "status": "$.state.name", "delivered": ["ok"], "failed": ["no"]}
    told = {"results": [{"id": n, "state": {"name": name}} for n, name in enumerate(("ok", "no", "eh", "ok"), 1)]}
    several = carrier(callback=where).read_callback(callback(told))
    assert several
    assert [(id_, report.status) for id_, report in several.reports] == [
        *(("1", "delivered"), ("2", "failed"), ("4", "delivered")),
    ]


PLACES = {"from": "$.msisdn", "to": "$.to", "text": "$.text", "id": "$.id"}
TEXT = {"msisdn": "447700900123", "to": "12025550123", "text": "STOP", "id": 7}


@pytest.mark.parametrize(
    ("told", "texts"),
    [
        (TEXT, [("7", "+447700900123", "+12025550123", "STOP")]),
        (TEXT | {"msisdn": 447700900123}, [("7", "+447700900123", "+12025550123", "STOP")]),
        (TEXT | {"to": "ACME", "text": ""}, [("7", "+447700900123", "ACME", "")]),
        ({"msisdn": "447700900123", "text": "x", "id": "a"}, [("a", "+447700900123", "", "x")]),
        (TEXT | {"msisdn": None}, []),
        (TEXT | {"text": ["STOP"]}, []),
        ({"id": "m1", "status": "DELIVRD"}, []),
        (None, []),
    ],
)
def test_texts_that_came_in(told: Any, texts: list[tuple[str, str, str, str]]) -> None:
    given = carrier(incoming=PLACES).read_callback(callback(told))
    assert given and given.status == 200
    assert [(one.id, one.sender, one.to, one.text) for one in given.texts] == texts
    assert bool(given.reports) == (told == {"id": "m1", "status": "DELIVRD"})


def test_a_text_without_an_id_is_known_by_its_octets() -> None:
    taker = carrier(incoming={name: path for name, path in PLACES.items() if name != "id"})
    heard = [taker.read_callback(callback(told)) for told in (TEXT, TEXT, TEXT | {"text": "Stop"})]
    one, again, other = (text for answer in heard if answer for text in answer.texts)
    assert one.is_unnamed and one.id == again.id != other.id


def test_a_form_brings_texts_too_and_a_forgery_none() -> None:
    form = {"msisdn": "447700900123", "to": "12025550123", "text": "STOP & go", "id": "7"}
    given = carrier(incoming=PLACES).read_callback(callback(form, type_="application/x-www-form-urlencoded"))
    assert given and [one.text for one in given.texts] == ["STOP & go"]
    forged = carrier(incoming=PLACES).read_callback(callback(TEXT, secret="another"))
    assert forged and forged.status == 403 and not forged.texts


@pytest.mark.parametrize("options", [{"callback_secret": ""}, {"callback": None}])
def test_without_a_secret_or_a_map_there_is_no_such_address(options: dict[str, Any]) -> None:
    assert carrier(**options).read_callback(callback(DELIVERED)) is None


@pytest.mark.parametrize(
    ("time", "status"),
    [
        (NOW, 200),
        (NOW // 1000, 200),
        (str(NOW // 1000), 200),
        (NOW / 1000, 200),
        ("2023-11-14T22:13:20Z", 200),
        ("2023-11-14T23:13:20.000+01:00", 200),
        (NOW - WINDOW_MS, 200),
        (NOW + WINDOW_MS, 200),
        (NOW - WINDOW_MS - 1, 403),
        (NOW + WINDOW_MS + 1, 403),
        (NOW // 1000 - 301, 403),
        ("yesterday", 403),
        (None, 403),
        (True, 403),
        ("9" * 5000, 403),
    ],
)
def test_an_old_callback_is_refused_where_its_time_is_known(time: Any, status: int) -> None:
    told = carrier(callback_timestamp="$.at").read_callback(callback(DELIVERED | {"at": time}))
    assert told and (told.status, len(told.reports)) == (status, 1 if status == 200 else 0)


async def test_a_secret_in_the_address(web: Web) -> None:
    async with HttpFake() as fake:
        secret = "a secret/with&signs"
        by_token = carrier(web, fake.url + "/send", callback_secret=secret, callback_check="token")
        await by_token.hand_over(parcel())
    url, _, query = fake.taken[0]["callback"].partition("?")
    assert (url, dict(parse_qsl(query))) == (CALLBACK, {"token": secret})
    for token, status in ((secret, 200), (secret + "x", 403), ("", 403)):
        told = by_token.read_callback(callback(DELIVERED, query={"token": token}))
        assert told and (told.status, len(told.reports)) == (status, 1 if status == 200 else 0)
    signed = by_token.read_callback(callback(DELIVERED, secret=secret))
    assert signed and signed.status == 403


async def test_receipts_in_any_order_are_believed(web: Web) -> None:
    async with Inbox() as inbox, HttpFake(receipts="UNDELIV,DELIVRD,ENROUTE,DELIVRD", callback=inbox.url) as fake:
        target = Http(msgspec.convert(OPTIONS | {"url": fake.url + "/send"}, HttpOptions), web, inbox.url)
        outcome = await target.hand_over(parcel())
        await fake.reported()
    told = [target.read_callback(Callback(method="POST", query={}, now=NOW, **got)) for got in inbox.got]
    assert isinstance(outcome, Accepted) and fake.told == [200] * 4
    assert [(id_, report.status) for one in told if one for id_, report in one.reports] == [
        *((outcome.carrier_id, state) for state in ("failed", "delivered", "delivered")),
    ]


def forgeries(random: Random) -> Iterator[Callback]:
    true = callback(DELIVERED)
    signature = true.headers["x-signature"]

    def altered(body: bytes = true.body, **headers: str) -> Callback:
        return msgspec.structs.replace(true, body=body, headers={n.replace("_", "-"): v for n, v in headers.items()})

    while True:
        body = bytearray(true.body)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        yield altered(bytes(body), x_signature=signature)
        place = random.randrange(64)
        letter = random.choice([c for c in "0123456789abcdef" if c != signature[place]])
        yield altered(x_signature=signature[:place] + letter + signature[place + 1 :])
        yield callback(DELIVERED | {"n": random.random()}, secret=random.randbytes(16).hex())
        yield altered(
            json.dumps({"id": random.randbytes(4).hex(), "status": "DELIVRD"}).encode(), x_signature=signature
        )
        yield altered(json.dumps({"id": "DELIVRD", "status": "m1"}).encode(), x_signature=signature)
        yield altered(x_signature=signature[: random.randrange(64)])
        yield altered(x_signature="é" * random.randrange(64))
        yield altered()


def test_a_thousand_forgeries_change_nothing() -> None:
    target = carrier()
    true = target.read_callback(callback(DELIVERED))
    assert true and true.reports
    forged = forgeries(Random(4))
    for _ in range(1000):
        told = target.read_callback(next(forged))
        assert told and (told.status, told.reports) == (403, ())


# -- secrets -----------------------------------------------------------------------------------------------


async def test_no_secret_and_no_text_in_details_or_logs(
    web: Web, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": f"{NASTY} / 731946 / key-in-a-header / {SECRET}"}
    monkeypatch.setattr(HttpFake, "refused", lambda *_: (400, echo))
    async with HttpFake("refuse,accept,drop,cut,defer:500") as fake:
        given = carrier(web, fake.url + "/send?key=key-in-the-address")
        details = [(await given.hand_over(parcel())).detail for _ in range(5)]
        away = carrier(web, "http://127.0.0.1:1/send?key=key-in-the-address")
        details.append((await away.hand_over(parcel())).detail)
    assert "…" in details[0]["text"]
    for hidden in (SECRET, NASTY, "731946", "key-in-a-header", "key-in-the-address"):
        assert hidden not in repr(details) + caplog.text


# -- the providers of the docs -----------------------------------------------------------------------------

COMMON = {"id", "channel", "kind", "countries", "enabled", "priority"}
OPTION_TYPES: dict[str, Any] = {
    "twilio": TwilioOptions,
    "http": HttpOptions,
    "cloud_api": CloudApiOptions,
    "smpp": SmppOptions,
    "smtp": RelayOptions,
}


def told_by_environment(value: Any) -> Any:
    if isinstance(value, dict):
        return SECRET if list(value) == ["env"] else {name: told_by_environment(item) for name, item in value.items()}
    return value


def documented() -> dict[str, dict[str, Any]]:
    blocks = re.findall(r"^```toml\n(.*?)^```$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    records = [told_by_environment(tomllib.loads(block)["carriers"][0]) for block in blocks]
    return {record["id"]: record for record in records}


@pytest.mark.parametrize(("id_", "record"), documented().items())
def test_the_docs_show_options_that_are_taken(id_: str, record: dict[str, Any]) -> None:
    options = {name: value for name, value in record.items() if name not in COMMON}
    assert msgspec.convert(options, OPTION_TYPES[record["kind"]])


class Canned(Web):
    """Gives the provider's documented answer, and keeps what it was asked."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__()
        self.answer = WebAnswer(status=status, body=body.encode())
        self.body = b""

    async def ask(self, method: str, url: str, *, body: bytes = b"", **_: Any) -> WebAnswer:
        self.body = body
        return self.answer


PROVIDERS = [
    (
        *("vonage", 202, '{"message_uuid": "aaaaaaaa-1"}', 422, '{"title": "t", "detail": "Invalid to"}', "Invalid to"),
        {"message_uuid": "aaaaaaaa-1", "status": "delivered", "to": "49", "timestamp": "2023-05-01T14:00:00.000Z"},
    ),
    (
        *("infobip", 200, '{"messages": [{"messageId": "2250-1", "status": {"groupName": "PENDING"}}]}'),
        *(400, '{"errorCode": "E400", "description": "Bad request"}', "Bad request"),
        {"results": [{"messageId": "2250-1", "status": {"groupName": "DELIVERED", "name": "DELIVERED_TO_HANDSET"}}]},
    ),
    (
        *("plivo", 202, '{"message": "message(s) queued", "message_uuid": ["db3c-1"], "api_id": "x"}'),
        *(400, '{"api_id": "x", "error": "dst is invalid"}', "dst is invalid"),
        {"MessageUUID": "db3c-1", "Status": "delivered", "To": "49"},
    ),
    (
        *("elks", 200, '{"id": "s1", "status": "created"}', 400, "Missing key", "the carrier answered 400"),
        {"id": "s1", "status": "delivered"},
    ),
]


@pytest.mark.parametrize(("id_", "ok", "taken", "bad", "refusal", "words", "report"), PROVIDERS)
async def test_the_providers_of_the_docs(
    id_: str, ok: int, taken: str, bad: int, refusal: str, words: str, report: dict[str, Any]
) -> None:
    record = documented()[id_]
    options = msgspec.convert({n: v for n, v in record.items() if n not in COMMON}, HttpOptions)
    form = "form" in options.headers["Content-Type"]

    web = Canned(ok, taken)
    provider = Http(options, web, CALLBACK)
    outcome = await provider.hand_over(parcel())
    assert isinstance(outcome, Accepted) and outcome.carrier_id
    values = dict(parse_qsl(web.body.decode())).values() if form else repr(json.loads(web.body))
    assert (NASTY if form else repr(NASTY)) in values
    assert f"{CALLBACK}?token={SECRET}" in values

    refused = await Http(options, Canned(bad, refusal), CALLBACK).hand_over(parcel())
    assert isinstance(refused, Refused) and refused.detail["text"] == words

    type_ = "application/x-www-form-urlencoded" if id_ in ("plivo", "elks") else "application/json"
    told = provider.read_callback(callback(report, type_=type_, query={"token": SECRET}))
    assert told and [(name, found.status) for name, found in told.reports] == [(outcome.carrier_id, "delivered")]
