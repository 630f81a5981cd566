"""Meta's Cloud API: the template message, what each error means, and whose webhooks are believed."""

import hmac
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from heliograph.carriers.contract import Callback, Parcel
from heliograph.carriers.http_client import Web
from heliograph.carriers.whatsapp.cloud_api import CODES, TEMPLATE_EVENTS, CloudApi
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, IncomingText, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import CloudApiOptions
from heliograph.templates.policy.meta_status import UpstreamNews
from tests.carriers.fakes import NUMBER, SECRET, CloudApiFake, Inbox

pytestmark = pytest.mark.anyio

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "whatsapp"
TO = "+491511234567"
CALLBACK = "https://chat.example.com/carriers/whatsapp/callback"
VERDICTS = {"refused": Refused, "deferred": Deferred, "unreachable": Deferred}
PARAMETERS = ["Ann", "731946", 'x"\\ü☃']


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    yield web
    await web.close()


def parcel(uncertain: bool = False, parameters: list[str] = PARAMETERS, button: str = "") -> Parcel:
    content = WhatsappContent(
        template="order_code", language="en_US", parameters=parameters, body="Hi Ann, 731946", button=button
    )
    return Parcel(message_id="wam_1", address=TO, content=msgspec.json.encode(content), attempt=0, uncertain=uncertain)


def cloud(url: str = "http://127.0.0.1:1", web: Web | None = None, **options: Any) -> CloudApi:
    given = {"phone_number_id": NUMBER, "access_token": SECRET, "app_secret": SECRET, "verify_token": "let-me-in"}
    return CloudApi(msgspec.convert(given | {"base_url": url} | options, CloudApiOptions), web or Web())


async def handed(script: str, web: Web, **options: Any) -> Outcome:
    async with CloudApiFake(script) as fake:
        return await cloud(fake.url, web, **options).hand_over(parcel())


# -- hand-over ---------------------------------------------------------------------------------------------


async def test_what_is_left_out_shows_nothing(web: Web) -> None:
    """Meta takes no empty parameter."""
    async with CloudApiFake() as fake:
        await cloud(fake.url, web).hand_over(parcel(parameters=["Ann", ""]))
    (part,) = json.loads(fake.asked[0][2])["template"]["components"]
    assert [one["text"] for one in part["parameters"]] == ["Ann", "\u200b"]


@pytest.mark.parametrize("parameters", [PARAMETERS, []])
async def test_the_request_and_its_acceptance(web: Web, parameters: list[str]) -> None:
    async with CloudApiFake() as fake:
        outcome = await cloud(fake.url + "/", web).hand_over(parcel(parameters=parameters))
    assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.taken[0]["id"]
    assert outcome.detail == {"carrier": "cloud_api", "code": "200", "text": "accepted", "sender": NUMBER}
    line, headers, body = fake.asked[0]
    assert line == f"POST /{NUMBER}/messages"
    assert headers["authorization"] == f"Bearer {SECRET}"
    texts = [{"type": "text", "text": value} for value in parameters]
    components = {"components": [{"type": "body", "parameters": texts}]} if parameters else {}
    assert json.loads(body) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": TO,
        "type": "template",
        "template": {"name": "order_code", "language": {"code": "en_US"}, **components},
        "biz_opaque_callback_data": "wam_1",
    }


async def test_the_button_that_copies_a_code_is_told_it(web: Web) -> None:
    async with CloudApiFake() as fake:
        await cloud(fake.url, web).hand_over(parcel(parameters=["042042"], button="042042"))
    code = {"type": "text", "text": "042042"}
    assert json.loads(fake.asked[0][2])["template"]["components"] == [
        {"type": "body", "parameters": [code]},
        {"type": "button", "sub_type": "url", "index": "0", "parameters": [code]},
    ]


async def test_every_code_has_its_outcome_and_its_words(web: Web) -> None:
    async with CloudApiFake(",".join(f"refuse:{code}" for code in CODES if code)) as fake:
        carrier = cloud(fake.url, web)
        for code, (verdict, words) in CODES.items():
            if code:
                outcome = await carrier.hand_over(parcel())
                assert isinstance(outcome, VERDICTS[verdict]), code
                assert (outcome.detail["code"], outcome.detail["text"]) == (str(code), words)
                assert outcome.detail["said"] == "Refused by the fake"
                if isinstance(outcome, Deferred):
                    assert (outcome.unreachable, outcome.uncertain) == (verdict == "unreachable", False)


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (400, {"code": 0}, Deferred(unreachable=True)),
        (403, {"code": 299}, Deferred(unreachable=True)),  # 200 to 299 are permissions
        (400, {"code": 139999, "message": "new"}, Refused()),
        (400, {"code": 139999, "is_transient": True}, Deferred()),
        (400, {"code": 100, "is_transient": True}, Deferred()),
        (401, {"code": 139999}, Deferred(unreachable=True)),
        (500, {"code": 139999}, Deferred()),
        (429, {"code": 139999}, Deferred(retry_after_ms=1000)),
        (503, {"code": 131016}, Deferred(retry_after_ms=1000)),
        (504, {"code": 2}, Deferred(uncertain=True)),
        (400, {"code": "131026"}, Deferred()),
        (400, None, Deferred()),
        (200, None, Deferred(uncertain=True)),
    ],
)
async def test_other_answers(
    web: Web, monkeypatch: pytest.MonkeyPatch, status: int, error: Any, outcome: Outcome
) -> None:
    monkeypatch.setattr(CloudApiFake, "refused", lambda *_: (status, {"error": error}))
    given = await handed("refuse", web)
    assert msgspec.structs.replace(given, detail={}) == outcome
    assert given.detail["text"]


@pytest.mark.parametrize("status", [400, 404, 500, 502, 503])
async def test_a_page_that_is_not_metas_is_tried_again(web: Web, status: int) -> None:
    outcome = await handed(f"defer:{status}", web)
    assert isinstance(outcome, Deferred) and not outcome.uncertain
    assert outcome.retry_after_ms == (1000 if status == 503 else None)
    assert outcome.unreachable == (status == 404)


@pytest.mark.parametrize("step", ["drop", "cut"])
async def test_no_whole_answer_is_uncertain(web: Web, step: str) -> None:
    outcome = await handed(step, web)
    assert isinstance(outcome, Deferred) and outcome.uncertain


async def test_a_wrong_token_and_no_carrier_let_another_try(web: Web) -> None:
    for outcome in (await handed("accept", web, access_token="wrong"), await cloud(web=web).hand_over(parcel())):
        assert isinstance(outcome, Deferred) and outcome.unreachable and not outcome.uncertain


async def test_resend_and_stop(web: Web) -> None:
    async with CloudApiFake() as fake:
        assert isinstance(await cloud(fake.url, web).hand_over(parcel(True)), Accepted)
        stopped = await cloud(fake.url, web, uncertain="stop").hand_over(parcel(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert len(fake.asked) == 1


async def test_no_secret_and_no_parameter_in_details_or_logs(
    web: Web, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"code": 100, "message": f"{SECRET} Hi Ann, 731946", "error_data": {"details": "is 731946?"}}}
    monkeypatch.setattr(CloudApiFake, "refused", lambda *_: (400, echo))
    async with CloudApiFake("refuse,accept,drop,cut,defer:500") as fake:
        details = [(await cloud(fake.url, web).hand_over(parcel())).detail for _ in range(5)]
    assert details[0]["said"] == "is …?"
    for hidden in (SECRET, "731946"):
        assert hidden not in repr(details) + caplog.text


# -- webhooks ----------------------------------------------------------------------------------------------


def webhook(body: Any, secret: str = SECRET) -> Callback:
    """As Meta would write and sign it."""
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    signature = "sha256=" + hmac.new(secret.encode(), octets, "sha256").hexdigest()
    headers = {"x-hub-signature-256": signature}
    return Callback(method="POST", url=CALLBACK, query={}, headers=headers, body=octets, now=0)


def of(*statuses: Any) -> dict[str, Any]:
    return {"entry": [{"changes": [{"field": "messages", "value": {"statuses": list(statuses)}}]}]}


def reports(body: Any) -> list[tuple[str, str]]:
    told = cloud().read_callback(webhook(body))
    assert told and told.status == 200
    return [(id_, report.status) for id_, report in told.reports]


def sample(name: str) -> Any:
    if not SAMPLES.is_dir():
        pytest.skip("the WhatsApp samples are not tested: ../shared/data/whatsapp is not there")
    return json.loads((SAMPLES / name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "state"),
    [
        *((name, [name]) for name in ("sent", "delivered", "read", "failed")),
        ("played", []),
        ("with_tracker", ["sent"]),
        ("group", ["read"]),
    ],
)
def test_captured_statuses(name: str, state: list[str]) -> None:
    body = sample("message_status.json")[name]
    id_ = body["entry"][0]["changes"][0]["value"]["statuses"][0]["id"]
    assert reports(body) == [(id_, one) for one in state]


def test_the_words_and_the_pricing_of_captured_statuses() -> None:
    bodies = sample("message_status.json")
    details = {}
    for name in ("delivered", "failed"):
        told = cloud().read_callback(webhook(bodies[name]))
        assert told
        details[name] = told.reports[0][1].detail
    pricing = {"billable": True, "pricing_model": "CBP", "category": "service"}
    delivered = {"carrier": "cloud_api", "code": "delivered", "text": "delivered", "pricing": pricing}
    assert details["delivered"] == delivered
    assert details["failed"] == {"carrier": "cloud_api", "code": "130472", "text": CODES[130472][1]}


def wrote(*messages: Any, number: Any = "15550783881") -> dict[str, Any]:
    value = {"metadata": {"display_phone_number": number, "phone_number_id": "1"}, "messages": list(messages)}
    return {"entry": [{"changes": [{"field": "messages", "value": value}]}]}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"type": "text", "text": {"body": "STOP"}}, "STOP"),
        ({"type": "button", "button": {"text": "Stop promotions", "payload": "x"}}, "Stop promotions"),
        ({"type": "interactive", "interactive": {"button_reply": {"id": "1", "title": "Yes"}}}, "Yes"),
        ({"type": "interactive", "interactive": {"list_reply": {"id": "1", "title": "Two"}}}, "Two"),
        ({"type": "image", "image": {"id": "1"}}, ""),
        ({"text": {"body": 5}}, ""),
    ],
)
def test_texts_that_came_in(message: dict[str, Any], text: str) -> None:
    told = cloud().read_callback(webhook(wrote({"from": "16505551234", "id": "wamid.1", **message})))
    assert told and not told.reports
    assert told.texts == [IncomingText(id="wamid.1", sender="+16505551234", to="+15550783881", text=text)]


@pytest.mark.parametrize(
    ("timestamp", "sent_at"),
    [("1751247548", 1751247548000), (None, None), (1751247548, 1751247548000), ("soon", None), ("9" * 30, None)],
)
def test_a_text_with_a_timestamp_is_read_with_the_time_it_was_sent(timestamp: Any, sent_at: int | None) -> None:
    message = {"from": "16505551234", "id": "wamid.1", "timestamp": timestamp, "text": {"body": "STOP"}}
    told = cloud().read_callback(webhook(wrote(message)))
    assert told and [one.sent_at for one in told.texts] == [sent_at]


@pytest.mark.parametrize(
    "body",
    [
        wrote(1),
        wrote({"id": "wamid.1"}),
        wrote({"from": "16505551234"}),
        wrote({"from": 1, "id": "wamid.1"}),
        {"entry": [{"changes": [{"value": {"messages": {"from": "1", "id": "2"}}}]}]},
    ],
)
def test_what_is_no_text(body: Any) -> None:
    told = cloud().read_callback(webhook(body))
    assert told and (told.status, list(told.texts)) == (200, [])


def test_a_text_to_no_number_and_a_forged_one() -> None:
    message = {"from": "16505551234", "id": "wamid.1", "text": {"body": "Hi"}}
    told = cloud().read_callback(webhook(wrote(message, number=None)))
    assert told and [one.to for one in told.texts] == [""]
    forged = cloud().read_callback(webhook(wrote(message), secret="another"))
    assert forged and forged.status == 403 and not forged.texts


def template_news(body: Any, now: int = 10**13) -> list[UpstreamNews]:
    told = cloud().read_callback(msgspec.structs.replace(webhook(body), now=now))
    assert told and told.status == 200 and not told.reports
    return list(told.templates)


def news_of(field: str, time: Any = 1751247548, **value: Any) -> dict[str, Any]:
    named = {"message_template_name": "parcel", "message_template_language": "en"}
    return {"entry": [{"time": time, "changes": [{"field": field, "value": named | value}]}]}


STATUS, QUALITY = "message_template_status_update", "message_template_quality_update"


@pytest.mark.parametrize(
    ("name", "template", "status", "reason"),
    [
        ("approved", ("order_confirmation", "en_US"), "approved", ""),
        ("rejected", ("abandoned_cart", "en"), "rejected", "INVALID_FORMAT: Your template has parameters placed next"),
    ],
)
def test_captured_news_about_templates(name: str, template: tuple[str, str], status: str, reason: str) -> None:
    (one,) = template_news(sample("template_status_update.json")[name])
    assert ((one.name, one.language), one.status, one.at) == (template, status, 1751247548_000)
    assert one.reason.startswith(reason) and bool(one.reason) == bool(reason)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        *((event, state) for event, state in TEMPLATE_EVENTS.items()),
        *((event, None) for event in ("LOCKED", "SOMETHING_NEW", "", 5, None)),
    ],
)
def test_every_word_about_a_template(event: Any, status: str | None) -> None:
    assert [one.status for one in template_news(news_of(STATUS, event=event))] == ([status] if status else [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"reason": "NONE"}, ""),
        ({"reason": "SCAM"}, "SCAM"),
        ({"other_info": {"title": "FIRST_PAUSE", "description": "Low quality."}}, "FIRST_PAUSE: Low quality."),
        ({"reason": ["x"], "other_info": "x"}, ""),
    ],
)
def test_the_reason_is_metas(value: dict[str, Any], reason: str) -> None:
    (one,) = template_news(news_of(STATUS, event="PAUSED", **value))
    assert one.reason == reason


def test_quality() -> None:
    scores = {"previous_quality_score": "GREEN", "new_quality_score": "YELLOW"}
    assert [(one.status, one.quality) for one in template_news(news_of(QUALITY, **scores))] == [(None, "yellow")]
    assert template_news(news_of(QUALITY, new_quality_score=5)) == []


@pytest.mark.parametrize(("time", "at"), [(5, 5000), (None, 7000), ("5", 7000), (-1, 7000), (99, 7000), (True, 1000)])
def test_when_it_came_about(time: Any, at: int) -> None:
    """By Meta's clock, and never after now: nothing could change that."""
    assert [one.at for one in template_news(news_of(STATUS, time=time, event="PAUSED"), now=7000)] == [at]


def test_many_in_one_body_keep_their_order() -> None:
    one = of({"id": "a", "status": "read"}, {"id": "b", "status": "delivered"}, {"id": "a", "status": "read"})
    two = {"field": "messages", "value": {"messages": [{"id": "in"}], "statuses": [{"id": "c", "status": "sent"}]}}
    body = {"entry": [*one["entry"], {"changes": [two, {"field": "account_update", "value": {}}]}]}
    assert reports(body) == [("a", "read"), ("b", "delivered"), ("a", "read"), ("c", "sent")]


def test_an_error_that_the_table_does_not_know() -> None:
    errors = [{"code": 139999, "title": "Something new"}]
    told = cloud().read_callback(webhook(of({"id": "a", "status": "failed", "errors": errors})))
    assert told and told.reports[0][1].detail["text"] == "Something new"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"not json", b"[]", b"null", b"[" * 100_000),
        *({"entry": 1}, {"entry": [1]}, {"entry": [{"changes": {}}]}, {"entry": [{"changes": [None]}]}),
        *(of(1), of({"id": 5, "status": "sent"}), of({"id": "a"}), of({"id": "a", "status": ["sent"]})),
    ],
)
def test_strange_bodies_that_are_signed_mean_nothing(body: Any) -> None:
    assert reports(body) == []


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ({"hub.mode": "subscribe", "hub.verify_token": "let-me-in", "hub.challenge": "1158"}, 200, b"1158"),
        ({"hub.mode": "subscribe", "hub.verify_token": "let-me-out", "hub.challenge": "1158"}, 403, b""),
        ({"hub.mode": "subscribe", "hub.verify_token": "é", "hub.challenge": "1158"}, 403, b""),
        ({"hub.mode": "unsubscribe", "hub.verify_token": "let-me-in", "hub.challenge": "1158"}, 403, b""),
        ({"hub.verify_token": "let-me-in"}, 403, b""),
        ({}, 403, b""),
    ],
)
def test_the_challenge(query: dict[str, str], status: int, body: bytes) -> None:
    asked = Callback(method="GET", url=CALLBACK, query=query, headers={}, body=b"", now=0)
    told = cloud().read_callback(asked)
    assert told and (told.status, told.body, told.content_type) == (status, body, b"text/plain; charset=utf-8")
    assert cloud(verify_token="").read_callback(asked) is None


def test_without_the_apps_secret_there_is_no_such_address() -> None:
    assert cloud(app_secret="").read_callback(webhook(of())) is None


async def test_receipts_in_any_order_are_believed(web: Web) -> None:
    async with Inbox() as inbox, CloudApiFake(receipts="read,sent,read,failed", callback=inbox.url) as fake:
        carrier = cloud(fake.url, web)
        outcome = await carrier.hand_over(parcel())
        await fake.reported()
    told = [carrier.read_callback(Callback(method="POST", query={}, now=0, **got)) for got in inbox.got]
    assert isinstance(outcome, Accepted) and fake.told == [200] * 4
    assert [(id_, report.status) for one in told if one for id_, report in one.reports] == [
        *((outcome.carrier_id, state) for state in ("read", "sent", "read", "failed")),
    ]


def forgeries(random: Random) -> Iterator[Callback]:
    true = webhook(of({"id": "wamid.1", "status": "delivered"}))
    signature = true.headers["x-hub-signature-256"]

    def altered(body: bytes = true.body, signature: str | None = signature) -> Callback:
        headers = {} if signature is None else {"x-hub-signature-256": signature}
        return msgspec.structs.replace(true, body=body, headers=headers)

    while True:
        body = bytearray(true.body)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        yield altered(bytes(body))
        place = random.randrange(7, 71)
        letter = random.choice([c for c in "0123456789abcdef" if c != signature[place]])
        yield altered(signature=signature[:place] + letter + signature[place + 1 :])
        yield webhook(of({"id": "wamid.1", "status": "delivered"}), secret=random.randbytes(16).hex())
        yield altered(json.dumps(of({"id": random.randbytes(4).hex(), "status": "delivered"})).encode())
        yield altered(json.dumps(of({"id": "delivered", "status": "wamid.1"})).encode())
        yield altered(signature=signature.removeprefix("sha256="))
        yield altered(signature=signature.replace("sha256", random.choice(["sha1", "sha512", "SHA256", ""])))
        yield altered(signature="sha256=" + "é" * random.randrange(70))
        yield altered(signature=None)


def test_a_thousand_forgeries_change_nothing() -> None:
    carrier = cloud()
    forged = forgeries(Random(4))
    for _ in range(1000):
        told = carrier.read_callback(next(forged))
        assert told and (told.status, told.reports) == (403, ())
