"""The generic HTTP carrier: request templates, response rules, callbacks, and the providers in docs/carriers.md."""

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

from heliograph.carriers.contract import Callback, OutboundMessage
from heliograph.carriers.http_client import CarrierHttp, HttpResponse
from heliograph.carriers.sms.http import CLOCK_SKEW_MAX_MS, HttpCarrier
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import (
    CloudApiOptions,
    HttpOptions,
    RelayOptions,
    SmppOptions,
    TwilioOptions,
)
from tests.carriers.fakes import SECRET, CallbackRecorder, HttpFake

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
async def web() -> AsyncIterator[CarrierHttp]:
    web = CarrierHttp()
    yield web
    await web.close()


def outbound_message(uncertain: bool = False, **content: Any) -> OutboundMessage:
    fields: dict[str, Any] = {
        "body": NASTY,
        "sender_id": "ACME",
        "encoding": "ucs2",
        "segments": 1,
        "parts": 1,
    } | content
    return OutboundMessage(
        message_id="sms_1",
        address=TO,
        content=msgspec.json.encode(SmsContent(**fields)),
        attempt=0,
        country="DE",
        uncertain=uncertain,
    )


def carrier(web: CarrierHttp | None = None, url: str = "http://127.0.0.1:1/send", **options: Any) -> HttpCarrier:
    return HttpCarrier(msgspec.convert(OPTIONS | {"url": url} | options, HttpOptions), web or CarrierHttp(), CALLBACK)


# -- the request -------------------------------------------------------------------------------------------


async def test_json_body_escapes_any_text(web: CarrierHttp) -> None:
    async with HttpFake() as fake:
        outcome = await carrier(web, fake.url + "/send").send_message(outbound_message())
    assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.received[0]["id"]
    assert outcome.detail == {"carrier": "http", "code": "202", "text": "accepted", "sender": "ACME"}
    sent = {"to": TO, "from": "ACME", "text": NASTY, "id": "sms_1", "callback": CALLBACK}
    assert json.loads(fake.requests[0][2]) == sent
    assert fake.requests[0][1]["content-type"] == "application/json"
    assert fake.requests[0][1]["authorization"] == "Bearer key-in-a-header"


@pytest.mark.parametrize(
    ("type_", "template", "written"),
    [
        ("application/json; charset=utf-8", '{"t":"{{text}}"}', msgspec.json.encode({"t": NASTY})),
        ("Application/X-WWW-Form-Urlencoded", "t={{text}}&c={{country}}", urlencode({"t": NASTY, "c": "DE"}).encode()),
        ("text/xml", "<t>{{text}}</t>", f"<t>{html.escape(NASTY)}</t>".encode()),
        ("text/plain", "{{to_digits}} {{text}}", f"491511234567 {NASTY}".encode()),
    ],
)
async def test_body_is_escaped_by_its_content_type(web: CarrierHttp, type_: str, template: str, written: bytes) -> None:
    async with HttpFake("defer:500") as fake:
        await carrier(web, fake.url + "/send", headers={"content-type": type_}, body=template).send_message(
            outbound_message()
        )
    assert fake.requests[0][2] == written


async def test_url_and_headers_accept_placeholders(web: CarrierHttp) -> None:
    async with HttpFake() as fake:
        url = fake.url + "/send?to={{to}}&text={{text}}&from={{from}}"
        settings = {"method": "GET", "body": "", "headers": {"X-Text": "{{text}}", "X-Ref": "{{message_id}}"}}
        outcome = await carrier(web, url, **settings).send_message(outbound_message())
    assert isinstance(outcome, Accepted)
    line, headers, body = fake.requests[0]
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
async def test_sender_is_chosen_by_the_message_and_settings(
    web: CarrierHttp, own: str, content: dict[str, Any], sender: str
) -> None:
    async with HttpFake() as fake:
        outcome = await carrier(web, fake.url + "/send", **{"from": own}).send_message(outbound_message(**content))
    assert fake.received[0]["sender"] == outcome.detail["sender"] == sender


@pytest.mark.parametrize("template", ["{{telephone}}", "{{ to }}", "{{}}"])
@pytest.mark.parametrize("field", ["url", "body", "headers"])
def test_unknown_placeholder_is_refused_at_setup(field: str, template: str) -> None:
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
async def test_response_rules_give_the_expected_outcome(
    web: CarrierHttp, monkeypatch: pytest.MonkeyPatch, status: int, body: Any, outcome: Outcome
) -> None:
    monkeypatch.setattr(HttpFake, "refused_response", lambda *_: (status, body))
    async with HttpFake("refuse") as fake:
        send_outcome = await carrier(web, fake.url + "/send").send_message(outbound_message())
    assert send_outcome.detail["code"] == str(status)
    assert msgspec.structs.replace(send_outcome, detail={}) == outcome
    if isinstance(send_outcome, Refused):
        assert send_outcome.detail["text"] == ("bad number" if status == 400 else "the carrier answered 422")


@pytest.mark.parametrize(
    ("body", "outcome"), [({"id": "m1"}, Accepted), ({"error": "no credit"}, Refused), ({}, Refused)]
)
async def test_error_in_a_200_response_is_refused_by_rules(
    web: CarrierHttp, monkeypatch: pytest.MonkeyPatch, body: Any, outcome: type[Outcome]
) -> None:
    monkeypatch.setattr(HttpFake, "refused_response", lambda *_: (200, body))
    rules = {"accepted": {"status": [200], "id": "$.id"}, "refused": {"status": [200], "text": "$.error"}}
    async with HttpFake("refuse") as fake:
        assert isinstance(await carrier(web, fake.url + "/send", **rules).send_message(outbound_message()), outcome)


@pytest.mark.parametrize(("step", "uncertain"), [("drop", True), ("cut", True), (None, False)])
async def test_missing_response_is_uncertain(web: CarrierHttp, step: str | None, uncertain: bool) -> None:
    async with HttpFake(step or "accept") as fake:
        url = fake.url if step else "http://127.0.0.1:1"
        outcome = await carrier(web, url + "/send").send_message(outbound_message())
    assert isinstance(outcome, Deferred)
    assert (outcome.uncertain, outcome.unreachable) == (uncertain, not uncertain)


async def test_uncertain_message_is_resent_or_stopped_by_setting(web: CarrierHttp) -> None:
    async with HttpFake() as fake:
        assert isinstance(await carrier(web, fake.url + "/send").send_message(outbound_message(True)), Accepted)
        stopped = await carrier(web, fake.url + "/send", uncertain="stop").send_message(outbound_message(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert len(fake.requests) == 1


# -- callbacks ---------------------------------------------------------------------------------------------


DELIVERED = {"id": "m1", "status": "DELIVRD"}


def callback(told: Any, secret: str = SECRET, type_: str = "application/json", **fields: Any) -> Callback:
    """Return a callback in the provider's format with its signature."""
    body = json.dumps(told).encode() if type_ == "application/json" else urlencode(told).encode()
    headers = {"x-signature": hmac.new(secret.encode(), body, "sha256").hexdigest(), "content-type": type_}
    values: dict[str, Any] = {
        "method": "POST",
        "url": CALLBACK,
        "query": {},
        "headers": headers,
        "body": body,
        "now": NOW,
    }
    return Callback(**values | fields)


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
def test_callback_statuses_give_their_reports(told: Any, reports: list[tuple[str, str]]) -> None:
    result = carrier().parse_callback(callback(told))
    assert result and result.status == 200
    assert [(id_, report.status) for id_, report in result.reports] == reports


def test_callback_as_form_or_list_is_parsed() -> None:
    form = carrier().parse_callback(callback(DELIVERED, type_="application/x-www-form-urlencoded; charset=utf-8"))
    assert form and [(id_, report.status) for id_, report in form.reports] == [("m1", "delivered")]
    where = {"each": "$.results", "id": "$.id", "status": "$.state.name", "delivered": ["ok"], "failed": ["no"]}
    document = {"results": [{"id": n, "state": {"name": name}} for n, name in enumerate(("ok", "no", "eh", "ok"), 1)]}
    several = carrier(callback=where).parse_callback(callback(document))
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
def test_inbound_texts_are_parsed(told: Any, texts: list[tuple[str, str, str, str]]) -> None:
    result = carrier(incoming=PLACES).parse_callback(callback(told))
    assert result and result.status == 200
    assert [(item.id, item.sender, item.to, item.text) for item in result.incoming_texts] == texts
    assert bool(result.reports) == (told == {"id": "m1", "status": "DELIVRD"})


def test_inbound_text_without_an_id_is_identified_by_its_content() -> None:
    http_carrier = carrier(incoming={name: path for name, path in PLACES.items() if name != "id"})
    results = [http_carrier.parse_callback(callback(document)) for document in (TEXT, TEXT, TEXT | {"text": "Stop"})]
    first, repeated, other = (text for answer in results if answer for text in answer.incoming_texts)
    assert first.is_unnamed and first.id == repeated.id != other.id


def test_inbound_text_form_is_parsed_and_a_forged_one_rejected() -> None:
    form = {"msisdn": "447700900123", "to": "12025550123", "text": "STOP & go", "id": "7"}
    result = carrier(incoming=PLACES).parse_callback(callback(form, type_="application/x-www-form-urlencoded"))
    assert result and [item.text for item in result.incoming_texts] == ["STOP & go"]
    forged = carrier(incoming=PLACES).parse_callback(callback(TEXT, secret="another"))
    assert forged and forged.status == 403 and not forged.incoming_texts


@pytest.mark.parametrize("options", [{"callback_secret": ""}, {"callback": None}])
def test_callback_without_a_secret_or_mapping_is_not_found(options: dict[str, Any]) -> None:
    assert carrier(**options).parse_callback(callback(DELIVERED)) is None


@pytest.mark.parametrize(
    ("time", "status"),
    [
        (NOW, 200),
        (NOW // 1000, 200),
        (str(NOW // 1000), 200),
        (NOW / 1000, 200),
        ("2023-11-14T22:13:20Z", 200),
        ("2023-11-14T23:13:20.000+01:00", 200),
        (NOW - CLOCK_SKEW_MAX_MS, 200),
        (NOW + CLOCK_SKEW_MAX_MS, 200),
        (NOW - CLOCK_SKEW_MAX_MS - 1, 403),
        (NOW + CLOCK_SKEW_MAX_MS + 1, 403),
        (NOW // 1000 - 301, 403),
        ("yesterday", 403),
        (None, 403),
        (True, 403),
        ("9" * 5000, 403),
    ],
)
def test_old_callback_with_a_time_is_refused(time: Any, status: int) -> None:
    result = carrier(callback_timestamp="$.at").parse_callback(callback(DELIVERED | {"at": time}))
    assert result and (result.status, len(result.reports)) == (status, 1 if status == 200 else 0)


async def test_callback_secret_in_the_url_is_verified(web: CarrierHttp) -> None:
    async with HttpFake() as fake:
        secret = "a secret/with&signs"
        by_token = carrier(web, fake.url + "/send", callback_secret=secret, callback_check="token")
        await by_token.send_message(outbound_message())
    url, _, query = fake.received[0]["callback"].partition("?")
    assert (url, dict(parse_qsl(query))) == (CALLBACK, {"token": secret})
    for token, status in ((secret, 200), (secret + "x", 403), ("", 403)):
        result = by_token.parse_callback(callback(DELIVERED, query={"token": token}))
        assert result and (result.status, len(result.reports)) == (status, 1 if status == 200 else 0)
    signed = by_token.parse_callback(callback(DELIVERED, secret=secret))
    assert signed and signed.status == 403


async def test_receipts_in_any_order_give_the_final_state(web: CarrierHttp) -> None:
    async with (
        CallbackRecorder() as inbox,
        HttpFake(receipts="UNDELIV,DELIVRD,ENROUTE,DELIVRD", callback=inbox.url) as fake,
    ):
        target = HttpCarrier(msgspec.convert(OPTIONS | {"url": fake.url + "/send"}, HttpOptions), web, inbox.url)
        outcome = await target.send_message(outbound_message())
        await fake.wait_for_callbacks()
    result = [target.parse_callback(Callback(method="POST", query={}, now=NOW, **fields)) for fields in inbox.callbacks]
    assert isinstance(outcome, Accepted) and fake.callback_statuses == [200] * 4
    assert [(id_, report.status) for item in result if item for id_, report in item.reports] == [
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
        index = random.randrange(64)
        letter = random.choice([c for c in "0123456789abcdef" if c != signature[index]])
        yield altered(x_signature=signature[:index] + letter + signature[index + 1 :])
        yield callback(DELIVERED | {"n": random.random()}, secret=random.randbytes(16).hex())
        yield altered(
            json.dumps({"id": random.randbytes(4).hex(), "status": "DELIVRD"}).encode(), x_signature=signature
        )
        yield altered(json.dumps({"id": "DELIVRD", "status": "m1"}).encode(), x_signature=signature)
        yield altered(x_signature=signature[: random.randrange(64)])
        yield altered(x_signature="é" * random.randrange(64))
        yield altered()


def test_thousand_forged_callbacks_change_nothing() -> None:
    target = carrier()
    true = target.parse_callback(callback(DELIVERED))
    assert true and true.reports
    forged = forgeries(Random(4))
    for _ in range(1000):
        result = target.parse_callback(next(forged))
        assert result and (result.status, result.reports) == (403, ())


# -- secrets -----------------------------------------------------------------------------------------------


async def test_no_secret_and_no_text_in_details_or_logs(
    web: CarrierHttp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": f"{NASTY} / 731946 / key-in-a-header / {SECRET}"}
    monkeypatch.setattr(HttpFake, "refused_response", lambda *_: (400, echo))
    async with HttpFake("refuse,accept,drop,cut,defer:500") as fake:
        http_carrier = carrier(web, fake.url + "/send?key=key-in-the-address")
        details = [(await http_carrier.send_message(outbound_message())).detail for _ in range(5)]
        away = carrier(web, "http://127.0.0.1:1/send?key=key-in-the-address")
        details.append((await away.send_message(outbound_message())).detail)
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
def test_options_in_the_docs_are_valid(id_: str, record: dict[str, Any]) -> None:
    options = {name: value for name, value in record.items() if name not in COMMON}
    assert msgspec.convert(options, OPTION_TYPES[record["kind"]])


class Canned(CarrierHttp):
    """Returns the provider's documented response, and records requests."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__()
        self.answer = HttpResponse(status=status, body=body.encode())
        self.body = b""

    async def request(self, method: str, url: str, *, body: bytes = b"", **_: Any) -> HttpResponse:
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
async def test_providers_in_the_docs_work_as_configured(
    id_: str, ok: int, taken: str, bad: int, refusal: str, words: str, report: dict[str, Any]
) -> None:
    record = documented()[id_]
    options = msgspec.convert({n: v for n, v in record.items() if n not in COMMON}, HttpOptions)
    form = "form" in options.headers["Content-Type"]

    web = Canned(ok, taken)
    provider = HttpCarrier(options, web, CALLBACK)
    outcome = await provider.send_message(outbound_message())
    assert isinstance(outcome, Accepted) and outcome.carrier_id
    values = dict(parse_qsl(web.body.decode())).values() if form else repr(json.loads(web.body))
    assert (NASTY if form else repr(NASTY)) in values
    assert f"{CALLBACK}?token={SECRET}" in values

    refused = await HttpCarrier(options, Canned(bad, refusal), CALLBACK).send_message(outbound_message())
    assert isinstance(refused, Refused) and refused.detail["text"] == words

    type_ = "application/x-www-form-urlencoded" if id_ in ("plivo", "elks") else "application/json"
    result = provider.parse_callback(callback(report, type_=type_, query={"token": SECRET}))
    assert result and [(name, parsed_report.status) for name, parsed_report in result.reports] == [
        (outcome.carrier_id, "delivered")
    ]
