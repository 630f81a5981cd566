"""Meta's Cloud API: the template message, the meaning of each error, and which webhooks are authentic."""

import hmac
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from heliograph.carriers.contract import Callback, OutboundMessage
from heliograph.carriers.http_client import CarrierHttp
from heliograph.carriers.whatsapp.cloud_api import TEMPLATE_STATE_BY_EVENT, VERDICT_BY_CODE, CloudApi
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, IncomingText, Outcome, Refused
from heliograph.domain.setup.carrier_kinds import CloudApiOptions
from heliograph.templates.policy.meta_status import UpstreamUpdate
from tests.carriers.fakes import NUMBER, SECRET, CallbackRecorder, CloudApiFake

pytestmark = pytest.mark.anyio

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "whatsapp"
TO = "+491511234567"
CALLBACK = "https://chat.example.com/carriers/whatsapp/callback"
VERDICTS = {"refused": Refused, "deferred": Deferred, "unreachable": Deferred}
PARAMETERS = ["Ann", "731946", 'x"\\ü☃']


@pytest.fixture
async def web() -> AsyncIterator[CarrierHttp]:
    web = CarrierHttp()
    yield web
    await web.close()


def outbound_message(uncertain: bool = False, parameters: list[str] = PARAMETERS, button: str = "") -> OutboundMessage:
    content = WhatsappContent(
        template="order_code", language="en_US", parameters=parameters, body="Hi Ann, 731946", button=button
    )
    return OutboundMessage(
        message_id="wam_1", address=TO, content=msgspec.json.encode(content), attempt=0, uncertain=uncertain
    )


def make_cloud_api(url: str = "http://127.0.0.1:1", web: CarrierHttp | None = None, **options: Any) -> CloudApi:
    settings = {"phone_number_id": NUMBER, "access_token": SECRET, "app_secret": SECRET, "verify_token": "let-me-in"}
    return CloudApi(msgspec.convert(settings | {"base_url": url} | options, CloudApiOptions), web or CarrierHttp())


async def send_once(script: str, web: CarrierHttp, **options: Any) -> Outcome:
    async with CloudApiFake(script) as fake:
        return await make_cloud_api(fake.url, web, **options).send_message(outbound_message())


# -- hand-over ---------------------------------------------------------------------------------------------


async def test_omitted_options_are_not_in_the_request(web: CarrierHttp) -> None:
    """Meta rejects empty parameters."""
    async with CloudApiFake() as fake:
        await make_cloud_api(fake.url, web).send_message(outbound_message(parameters=["Ann", ""]))
    (part,) = json.loads(fake.requests[0][2])["template"]["components"]
    assert [item["text"] for item in part["parameters"]] == ["Ann", "\u200b"]


@pytest.mark.parametrize("parameters", [PARAMETERS, []])
async def test_request_is_sent_as_documented_and_accepted(web: CarrierHttp, parameters: list[str]) -> None:
    async with CloudApiFake() as fake:
        outcome = await make_cloud_api(fake.url + "/", web).send_message(outbound_message(parameters=parameters))
    assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.received[0]["id"]
    assert outcome.detail == {"carrier": "cloud_api", "code": "200", "text": "accepted", "sender": NUMBER}
    line, headers, body = fake.requests[0]
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


async def test_request_with_a_copy_code_button_contains_the_code(web: CarrierHttp) -> None:
    async with CloudApiFake() as fake:
        await make_cloud_api(fake.url, web).send_message(outbound_message(parameters=["042042"], button="042042"))
    code = {"type": "text", "text": "042042"}
    assert json.loads(fake.requests[0][2])["template"]["components"] == [
        {"type": "body", "parameters": [code]},
        {"type": "button", "sub_type": "url", "index": "0", "parameters": [code]},
    ]


async def test_error_code_gives_its_outcome_and_text(web: CarrierHttp) -> None:
    async with CloudApiFake(",".join(f"refuse:{code}" for code in VERDICT_BY_CODE if code)) as fake:
        carrier = make_cloud_api(fake.url, web)
        for code, (verdict, text) in VERDICT_BY_CODE.items():
            if code:
                outcome = await carrier.send_message(outbound_message())
                assert isinstance(outcome, VERDICTS[verdict]), code
                assert (outcome.detail["code"], outcome.detail["text"]) == (str(code), text)
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
async def test_other_response_gives_the_expected_outcome(
    web: CarrierHttp, monkeypatch: pytest.MonkeyPatch, status: int, error: Any, outcome: Outcome
) -> None:
    monkeypatch.setattr(CloudApiFake, "refused_response", lambda *_: (status, {"error": error}))
    send_outcome = await send_once("refuse", web)
    assert msgspec.structs.replace(send_outcome, detail={}) == outcome
    assert send_outcome.detail["text"]


@pytest.mark.parametrize("status", [400, 404, 500, 502, 503])
async def test_response_that_is_not_from_meta_is_deferred(web: CarrierHttp, status: int) -> None:
    outcome = await send_once(f"defer:{status}", web)
    assert isinstance(outcome, Deferred) and not outcome.uncertain
    assert outcome.retry_after_ms == (1000 if status == 503 else None)
    assert outcome.unreachable == (status == 404)


@pytest.mark.parametrize("step", ["drop", "cut"])
async def test_incomplete_response_is_uncertain(web: CarrierHttp, step: str) -> None:
    outcome = await send_once(step, web)
    assert isinstance(outcome, Deferred) and outcome.uncertain


async def test_wrong_token_or_unreachable_carrier_allows_failover(web: CarrierHttp) -> None:
    for outcome in (
        await send_once("accept", web, access_token="wrong"),
        await make_cloud_api(web=web).send_message(outbound_message()),
    ):
        assert isinstance(outcome, Deferred) and outcome.unreachable and not outcome.uncertain


async def test_uncertain_message_is_resent_or_stopped_by_setting(web: CarrierHttp) -> None:
    async with CloudApiFake() as fake:
        assert isinstance(await make_cloud_api(fake.url, web).send_message(outbound_message(True)), Accepted)
        stopped = await make_cloud_api(fake.url, web, uncertain="stop").send_message(outbound_message(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert len(fake.requests) == 1


async def test_no_secret_and_no_parameter_in_details_or_logs(
    web: CarrierHttp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"code": 100, "message": f"{SECRET} Hi Ann, 731946", "error_data": {"details": "is 731946?"}}}
    monkeypatch.setattr(CloudApiFake, "refused_response", lambda *_: (400, echo))
    async with CloudApiFake("refuse,accept,drop,cut,defer:500") as fake:
        details = [(await make_cloud_api(fake.url, web).send_message(outbound_message())).detail for _ in range(5)]
    assert details[0]["said"] == "is …?"
    for hidden in (SECRET, "731946"):
        assert hidden not in repr(details) + caplog.text


# -- webhooks ----------------------------------------------------------------------------------------------


def webhook(body: Any, secret: str = SECRET) -> Callback:
    """Return a webhook request in Meta's format with Meta's signature."""
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    signature = "sha256=" + hmac.new(secret.encode(), octets, "sha256").hexdigest()
    headers = {"x-hub-signature-256": signature}
    return Callback(method="POST", url=CALLBACK, query={}, headers=headers, body=octets, now=0)


def status_webhook(*statuses: Any) -> dict[str, Any]:
    return {"entry": [{"changes": [{"field": "messages", "value": {"statuses": list(statuses)}}]}]}


def reports(body: Any) -> list[tuple[str, str]]:
    result = make_cloud_api().parse_callback(webhook(body))
    assert result and result.status == 200
    return [(id_, report.status) for id_, report in result.reports]


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
def test_captured_statuses_give_their_reports(name: str, state: list[str]) -> None:
    body = sample("message_status.json")[name]
    id_ = body["entry"][0]["changes"][0]["value"]["statuses"][0]["id"]
    assert reports(body) == [(id_, item) for item in state]


def test_captured_statuses_give_their_text_and_pricing() -> None:
    bodies = sample("message_status.json")
    details = {}
    for name in ("delivered", "failed"):
        result = make_cloud_api().parse_callback(webhook(bodies[name]))
        assert result
        details[name] = result.reports[0][1].detail
    pricing = {"billable": True, "pricing_model": "CBP", "category": "service"}
    delivered = {"carrier": "cloud_api", "code": "delivered", "text": "delivered", "pricing": pricing}
    assert details["delivered"] == delivered
    assert details["failed"] == {"carrier": "cloud_api", "code": "130472", "text": VERDICT_BY_CODE[130472][1]}


def message_webhook(*messages: Any, number: Any = "15550783881") -> dict[str, Any]:
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
def test_inbound_texts_are_parsed(message: dict[str, Any], text: str) -> None:
    result = make_cloud_api().parse_callback(
        webhook(message_webhook({"from": "16505551234", "id": "wamid.1", **message}))
    )
    assert result and not result.reports
    assert result.incoming_texts == [IncomingText(id="wamid.1", sender="+16505551234", to="+15550783881", text=text)]


@pytest.mark.parametrize(
    ("timestamp", "sent_at"),
    [("1751247548", 1751247548000), (None, None), (1751247548, 1751247548000), ("soon", None), ("9" * 30, None)],
)
def test_inbound_text_with_a_timestamp_has_its_sent_time(timestamp: Any, sent_at: int | None) -> None:
    message = {"from": "16505551234", "id": "wamid.1", "timestamp": timestamp, "text": {"body": "STOP"}}
    result = make_cloud_api().parse_callback(webhook(message_webhook(message)))
    assert result and [item.sent_at for item in result.incoming_texts] == [sent_at]


@pytest.mark.parametrize(
    "body",
    [
        message_webhook(1),
        message_webhook({"id": "wamid.1"}),
        message_webhook({"from": "16505551234"}),
        message_webhook({"from": 1, "id": "wamid.1"}),
        {"entry": [{"changes": [{"value": {"messages": {"from": "1", "id": "2"}}}]}]},
    ],
)
def test_inbound_message_without_text_is_ignored(body: Any) -> None:
    result = make_cloud_api().parse_callback(webhook(body))
    assert result and (result.status, list(result.incoming_texts)) == (200, [])


def test_inbound_text_without_a_number_or_forged_is_rejected() -> None:
    message = {"from": "16505551234", "id": "wamid.1", "text": {"body": "Hi"}}
    result = make_cloud_api().parse_callback(webhook(message_webhook(message, number=None)))
    assert result and [item.to for item in result.incoming_texts] == [""]
    forged = make_cloud_api().parse_callback(webhook(message_webhook(message), secret="another"))
    assert forged and forged.status == 403 and not forged.incoming_texts


def template_updates(body: Any, now: int = 10**13) -> list[UpstreamUpdate]:
    result = make_cloud_api().parse_callback(msgspec.structs.replace(webhook(body), now=now))
    assert result and result.status == 200 and not result.reports
    return list(result.template_updates)


def template_event(field: str, time: Any = 1751247548, **value: Any) -> dict[str, Any]:
    name_fields = {"message_template_name": "parcel", "message_template_language": "en"}
    return {"entry": [{"time": time, "changes": [{"field": field, "value": name_fields | value}]}]}


STATUS, QUALITY = "message_template_status_update", "message_template_quality_update"


@pytest.mark.parametrize(
    ("name", "template", "status", "reason"),
    [
        ("approved", ("order_confirmation", "en_US"), "approved", ""),
        ("rejected", ("abandoned_cart", "en"), "rejected", "INVALID_FORMAT: Your template has parameters placed next"),
    ],
)
def test_captured_template_updates_are_parsed(name: str, template: tuple[str, str], status: str, reason: str) -> None:
    (item,) = template_updates(sample("template_status_update.json")[name])
    assert ((item.name, item.language), item.status, item.at) == (template, status, 1751247548_000)
    assert item.reason.startswith(reason) and bool(item.reason) == bool(reason)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        *((event, state) for event, state in TEMPLATE_STATE_BY_EVENT.items()),
        *((event, None) for event in ("LOCKED", "SOMETHING_NEW", "", 5, None)),
    ],
)
def test_template_status_gives_the_expected_update(event: Any, status: str | None) -> None:
    assert [item.status for item in template_updates(template_event(STATUS, event=event))] == (
        [status] if status else []
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"reason": "NONE"}, ""),
        ({"reason": "SCAM"}, "SCAM"),
        ({"other_info": {"title": "FIRST_PAUSE", "description": "Low quality."}}, "FIRST_PAUSE: Low quality."),
        ({"reason": ["x"], "other_info": "x"}, ""),
    ],
)
def test_template_rejection_reason_is_the_text_of_meta(value: dict[str, Any], reason: str) -> None:
    (item,) = template_updates(template_event(STATUS, event="PAUSED", **value))
    assert item.reason == reason


def test_template_quality_update_is_parsed() -> None:
    scores = {"previous_quality_score": "GREEN", "new_quality_score": "YELLOW"}
    assert [(item.status, item.quality) for item in template_updates(template_event(QUALITY, **scores))] == [
        (None, "yellow")
    ]
    assert template_updates(template_event(QUALITY, new_quality_score=5)) == []


@pytest.mark.parametrize(("time", "at"), [(5, 5000), (None, 7000), ("5", 7000), (-1, 7000), (99, 7000), (True, 1000)])
def test_template_update_has_its_time(time: Any, at: int) -> None:
    """The time is by Meta's clock, but never in the future: no later update could replace it."""
    assert [item.at for item in template_updates(template_event(STATUS, time=time, event="PAUSED"), now=7000)] == [at]


def test_many_events_in_one_callback_keep_their_order() -> None:
    repeated_body = status_webhook(
        {"id": "a", "status": "read"}, {"id": "b", "status": "delivered"}, {"id": "a", "status": "read"}
    )
    two = {"field": "messages", "value": {"messages": [{"id": "in"}], "statuses": [{"id": "c", "status": "sent"}]}}
    body = {"entry": [*repeated_body["entry"], {"changes": [two, {"field": "account_update", "value": {}}]}]}
    assert reports(body) == [("a", "read"), ("b", "delivered"), ("a", "read"), ("c", "sent")]


def test_unknown_error_code_gives_a_general_outcome() -> None:
    errors = [{"code": 139999, "title": "Something new"}]
    result = make_cloud_api().parse_callback(webhook(status_webhook({"id": "a", "status": "failed", "errors": errors})))
    assert result and result.reports[0][1].detail["text"] == "Something new"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"not json", b"[]", b"null", b"[" * 100_000),
        *({"entry": 1}, {"entry": [1]}, {"entry": [{"changes": {}}]}, {"entry": [{"changes": [None]}]}),
        *(
            status_webhook(1),
            status_webhook({"id": 5, "status": "sent"}),
            status_webhook({"id": "a"}),
            status_webhook({"id": "a", "status": ["sent"]}),
        ),
    ],
)
def test_signed_callback_with_an_unknown_body_is_ignored(body: Any) -> None:
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
def test_webhook_challenge_is_answered(query: dict[str, str], status: int, body: bytes) -> None:
    request = Callback(method="GET", url=CALLBACK, query=query, headers={}, body=b"", now=0)
    result = make_cloud_api().parse_callback(request)
    assert result and (result.status, result.body, result.content_type) == (status, body, b"text/plain; charset=utf-8")
    assert make_cloud_api(verify_token="").parse_callback(request) is None


def test_callback_without_an_app_secret_is_not_found() -> None:
    assert make_cloud_api(app_secret="").parse_callback(webhook(status_webhook())) is None


async def test_statuses_in_any_order_give_the_final_state(web: CarrierHttp) -> None:
    async with CallbackRecorder() as inbox, CloudApiFake(receipts="read,sent,read,failed", callback=inbox.url) as fake:
        carrier = make_cloud_api(fake.url, web)
        outcome = await carrier.send_message(outbound_message())
        await fake.wait_for_callbacks()
    result = [carrier.parse_callback(Callback(method="POST", query={}, now=0, **fields)) for fields in inbox.callbacks]
    assert isinstance(outcome, Accepted) and fake.callback_statuses == [200] * 4
    assert [(id_, report.status) for item in result if item for id_, report in item.reports] == [
        *((outcome.carrier_id, state) for state in ("read", "sent", "read", "failed")),
    ]


def forgeries(random: Random) -> Iterator[Callback]:
    true = webhook(status_webhook({"id": "wamid.1", "status": "delivered"}))
    signature = true.headers["x-hub-signature-256"]

    def altered(body: bytes = true.body, signature: str | None = signature) -> Callback:
        headers = {} if signature is None else {"x-hub-signature-256": signature}
        return msgspec.structs.replace(true, body=body, headers=headers)

    while True:
        body = bytearray(true.body)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        yield altered(bytes(body))
        index = random.randrange(7, 71)
        letter = random.choice([c for c in "0123456789abcdef" if c != signature[index]])
        yield altered(signature=signature[:index] + letter + signature[index + 1 :])
        yield webhook(status_webhook({"id": "wamid.1", "status": "delivered"}), secret=random.randbytes(16).hex())
        yield altered(json.dumps(status_webhook({"id": random.randbytes(4).hex(), "status": "delivered"})).encode())
        yield altered(json.dumps(status_webhook({"id": "delivered", "status": "wamid.1"})).encode())
        yield altered(signature=signature.removeprefix("sha256="))
        yield altered(signature=signature.replace("sha256", random.choice(["sha1", "sha512", "SHA256", ""])))
        yield altered(signature="sha256=" + "é" * random.randrange(70))
        yield altered(signature=None)


def test_thousand_forged_callbacks_change_nothing() -> None:
    carrier = make_cloud_api()
    forged = forgeries(Random(4))
    for _ in range(1000):
        result = carrier.parse_callback(next(forged))
        assert result and (result.status, result.reports) == (403, ())
