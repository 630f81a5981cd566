"""Twilio: the meaning of each response, lookups of earlier sends, and which callbacks are authentic."""

import base64
import hmac
import logging
import time
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest

from heliograph.carriers.contract import Callback, OutboundMessage
from heliograph.carriers.http_client import CarrierHttp
from heliograph.carriers.sms.twilio import STATE_BY_STATUS, VERDICT_BY_CODE, Twilio
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, IncomingText, Outcome, Refused
from heliograph.domain.ids import ulid
from heliograph.domain.setup.carrier_kinds import TwilioOptions
from tests.carriers.fakes import ACCOUNT, SECRET, CallbackRecorder, TwilioFake, run_fake

pytestmark = pytest.mark.anyio

TO = "+491511234567"
BODY = "Acme: your code is 731946. Ünïcode & more=5%"
CALLBACK = "https://sms.example.com/carriers/twilio/callback"
VERDICTS = {"refused": Refused, "deferred": Deferred, "unreachable": Deferred}


@pytest.fixture
async def web() -> AsyncIterator[CarrierHttp]:
    web = CarrierHttp()
    yield web
    await web.close()


def outbound_message(uncertain: bool = False, later_s: int = 0, **content: Any) -> OutboundMessage:
    fields: dict[str, Any] = {
        "body": BODY,
        "sender_id": "ACME",
        "encoding": "ucs2",
        "segments": 1,
        "parts": 1,
    } | content
    return OutboundMessage(
        message_id="sms_" + ulid(int(time.time() + later_s) * 1000, 7),
        address=TO,
        content=msgspec.json.encode(SmsContent(**fields)),
        attempt=0,
        country="DE",
        uncertain=uncertain,
    )


def twilio(url: str, web: CarrierHttp, **options: Any) -> Twilio:
    settings = {"base_url": url, "account_sid": ACCOUNT, "auth_token": SECRET} | options
    return Twilio(msgspec.convert(settings, TwilioOptions), web, CALLBACK)


async def send_once(script: str, web: CarrierHttp, message: OutboundMessage | None = None, **options: Any) -> Outcome:
    async with TwilioFake(script) as fake:
        return await twilio(fake.url, web, **options).send_message(message or outbound_message())


async def test_request_is_sent_as_documented_and_accepted(web: CarrierHttp) -> None:
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url + "/", web).send_message(outbound_message())
    assert isinstance(outcome, Accepted)
    assert outcome.carrier_id == fake.received[0]["id"]
    assert (outcome.detail, outcome.reports) == (
        {"carrier": "twilio", "code": "201", "text": "queued", "sender": "ACME"},
        [],
    )
    (line, headers, body) = fake.requests[0]
    assert line == f"POST /2010-04-01/Accounts/{ACCOUNT}/Messages.json"
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl(body.decode())) == {"To": TO, "From": "ACME", "Body": BODY, "StatusCallback": CALLBACK}


@pytest.mark.parametrize(
    ("own", "content", "field", "sender"),
    [
        ("", {}, "From", "ACME"),
        ("+15005550010", {}, "From", "ACME"),
        ("+15005550010", {"platform_sender": True}, "From", "+15005550010"),
        ("+15005550010", {"sender_id": ""}, "From", "+15005550010"),
        ("MG1234", {"platform_sender": True}, "MessagingServiceSid", "MG1234"),
        ("MG1234", {"sender_id": "MGMT"}, "From", "MGMT"),
        ("", {"platform_sender": True}, "From", "ACME"),
    ],
)
async def test_sender_is_chosen_by_the_message_and_settings(
    web: CarrierHttp, own: str, content: dict[str, Any], field: str, sender: str
) -> None:
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url, web, **{"from": own}).send_message(outbound_message(**content))
    assert dict(parse_qsl(fake.requests[0][2].decode()))[field] == sender
    assert outcome.detail["sender"] == sender


# -- what an answer means ----------------------------------------------------------------------------------


async def test_error_code_gives_its_outcome_and_text(web: CarrierHttp) -> None:
    async with TwilioFake(",".join(f"refuse:{code}" for code in VERDICT_BY_CODE)) as fake:
        carrier = twilio(fake.url, web)
        for code, (verdict, text) in VERDICT_BY_CODE.items():
            outcome = await carrier.send_message(outbound_message())
            assert isinstance(outcome, VERDICTS[verdict]), code
            assert outcome.detail == {"carrier": "twilio", "code": str(code), "text": text}
            if isinstance(outcome, Deferred):
                assert (outcome.unreachable, outcome.uncertain) == (verdict == "unreachable", False)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("refuse:29999", Refused(detail={"carrier": "twilio", "code": "29999", "text": "Refused by the fake"})),
        ("defer:400", Refused(detail={"carrier": "twilio", "code": "400", "text": "Twilio answered 400"})),
        ("defer:401", Deferred(detail={"carrier": "twilio", "code": "401", "text": "Twilio answered 401"})),
        ("defer:403", Deferred(detail={"carrier": "twilio", "code": "403", "text": "Twilio answered 403"})),
        ("defer:429", Deferred(detail={"carrier": "twilio", "code": "429", "text": "Twilio answered 429"})),
        ("defer:500", Deferred(detail={"carrier": "twilio", "code": "500", "text": "Twilio answered 500"})),
        ("defer:503", Deferred(detail={"carrier": "twilio", "code": "503", "text": "Twilio answered 503"})),
        ("defer:504", Deferred(detail={"carrier": "twilio", "code": "504", "text": "Twilio answered 504"})),
        ("defer:302", Deferred(detail={"carrier": "twilio", "code": "302", "text": "Twilio answered 302"})),
    ],
)
async def test_unknown_error_code_gives_a_general_outcome(web: CarrierHttp, script: str, outcome: Outcome) -> None:
    send_outcome = await send_once(script, web)
    assert (type(send_outcome), send_outcome.detail) == (type(outcome), outcome.detail)
    if isinstance(send_outcome, Deferred):
        assert send_outcome.unreachable == (script in ("defer:401", "defer:403"))
        assert send_outcome.uncertain == (script == "defer:504")
        assert send_outcome.retry_after_ms == (1000 if script in ("defer:429", "defer:503") else None)


async def test_wrong_token_allows_failover(web: CarrierHttp) -> None:
    outcome = await send_once("accept", web, auth_token="wrong")
    assert isinstance(outcome, Deferred) and outcome.unreachable and outcome.detail["code"] == "20003"


@pytest.mark.parametrize("step", ["drop", "cut", "defer:200", "defer:201"])
async def test_incomplete_response_is_uncertain(web: CarrierHttp, step: str) -> None:
    outcome = await send_once(step, web)
    assert isinstance(outcome, Deferred) and outcome.uncertain and not outcome.unreachable


async def test_unreachable_carrier_allows_failover(web: CarrierHttp) -> None:
    outcome = await twilio("http://127.0.0.1:1", web).send_message(outbound_message())
    assert isinstance(outcome, Deferred) and outcome.unreachable and not outcome.uncertain


# -- a hand-over that may have gone through ----------------------------------------------------------------


@pytest.mark.parametrize("own", ["", "MG1234"])
@pytest.mark.parametrize("receipts", ["", "delivered", "undelivered"])
async def test_accepted_message_with_a_lost_response_is_found_and_not_resent(
    web: CarrierHttp, own: str, receipts: str
) -> None:
    content = {"platform_sender": bool(own)}
    async with TwilioFake("cut,accept") as fake:
        carrier = twilio(fake.url, web, **{"from": own})
        first = await carrier.send_message(outbound_message(**content))
        assert isinstance(first, Deferred) and first.uncertain
        fake.receipts = [receipts] if receipts else []
        outcome = await carrier.send_message(outbound_message(uncertain=True, **content))
        assert isinstance(outcome, Accepted)
        assert (outcome.carrier_id, len(fake.received)) == (fake.received[0]["id"], 1)
        assert outcome.detail["carrier_price"] == "0.00750" and outcome.detail["carrier_currency"] == "USD"
        assert [report.status for _, report in outcome.reports] == ([STATE_BY_STATUS[receipts]] if receipts else [])


@pytest.mark.parametrize(
    "other",
    [
        {"body": "something else"},
        {"sender_id": "OTHER"},
        {"later_s": 60},  # the message at Twilio is older than ours
    ],
)
async def test_lookup_finds_only_the_same_message(web: CarrierHttp, other: dict[str, Any]) -> None:
    async with TwilioFake() as fake:
        carrier = twilio(fake.url, web)
        await carrier.send_message(outbound_message())
        outcome = await carrier.send_message(outbound_message(uncertain=True, **other))
        assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.received[1]["id"]


async def test_lookup_without_an_answer_sends_nothing_and_stays_uncertain(
    web: CarrierHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwilioFake, "list_response", lambda *_: (500, "oops"))
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url, web).send_message(outbound_message(uncertain=True))
    assert isinstance(outcome, Deferred) and not outcome.uncertain and not outcome.unreachable
    assert fake.received == []


async def test_uncertain_message_is_resent_or_stopped_by_setting(web: CarrierHttp) -> None:
    async with TwilioFake() as fake:
        assert isinstance(
            await twilio(fake.url, web, uncertain="resend").send_message(outbound_message(True)), Accepted
        )
        stopped = await twilio(fake.url, web, uncertain="stop").send_message(outbound_message(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert [line.split()[0] for line, _, _ in fake.requests] == ["POST"]


# -- callbacks ---------------------------------------------------------------------------------------------


def callback(form: dict[str, str], url: str = CALLBACK, secret: str = SECRET) -> Callback:
    """Return a callback in Twilio's format with its signature."""
    _, headers, _ = TwilioFake(secret=secret).receipt({"callback": url, "id": "SM1", "to": TO}, form["MessageStatus"])
    fake = {"MessageSid": "SM1", "To": TO, "AccountSid": ACCOUNT} | form
    return Callback(
        method="POST",
        url=url,
        query={},
        headers={name.lower(): value for name, value in headers.items()},
        body=urlencode(fake).encode(),
        now=0,
    )


CARRIER = twilio("https://api.twilio.com", CarrierHttp())
DELIVERED = callback({"MessageStatus": "delivered"})


def altered(callback: Callback, **fields: Any) -> Callback:
    return msgspec.structs.replace(callback, **fields)


@pytest.mark.parametrize(("status", "state"), STATE_BY_STATUS.items())
def test_callback_status_gives_its_report(status: str, state: str) -> None:
    form = {"MessageStatus": status} | ({"ErrorCode": "30003"} if status in ("failed", "undelivered") else {})
    result = CARRIER.parse_callback(callback(form))
    ((id_, report),) = result.reports
    assert (result.status, id_, report.status) == (200, "SM1", state)
    assert report.detail["text"] == (VERDICT_BY_CODE[30003][1] if "ErrorCode" in form else status)


INCOMING = {"MessageSid": "SMin", "From": TO, "To": "+15005550006", "Body": "STOP & go"}  # as documented


def incoming(**more: str) -> Callback:
    """Return a request of Twilio's "A message comes in", signed over its own fields."""
    form = INCOMING | more
    signed = CALLBACK + "".join(name + form[name] for name in sorted(form))
    signature = base64.b64encode(hmac.digest(SECRET.encode(), signed.encode(), "sha1")).decode()
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return Callback(method="POST", url=CALLBACK, query={}, headers=headers, body=urlencode(form).encode(), now=0)


@pytest.mark.parametrize("more", [{}, {"SmsStatus": "received"}])
def test_inbound_text_is_parsed(more: dict[str, str]) -> None:
    result = CARRIER.parse_callback(incoming(**more))
    assert result.incoming_texts == [IncomingText(id="SMin", sender=TO, to="+15005550006", text="STOP & go")]
    # Twilio would send our response to the phone, so it is empty.
    assert (result.status, result.reports, result.body) == (200, (), b"<Response></Response>")
    assert result.content_type.startswith(b"text/xml")


@pytest.mark.parametrize("more", [{"SmsStatus": "receiving"}, {"MessageSid": ""}])
def test_inbound_message_without_text_is_ignored(more: dict[str, str]) -> None:
    assert not CARRIER.parse_callback(incoming(**more)).incoming_texts


def test_forged_inbound_text_is_refused() -> None:
    result = CARRIER.parse_callback(altered(incoming(), body=incoming().body.replace(b"STOP", b"STAY")))
    assert (result.status, result.incoming_texts) == (403, ())


@pytest.mark.parametrize("status", ["read", "receiving", "received", "", "nonsense"])
def test_other_statuses_are_accepted_and_ignored(status: str) -> None:
    result = CARRIER.parse_callback(callback({"MessageStatus": status}))
    assert (result.status, result.reports) == (200, ())


@pytest.mark.parametrize(
    ("form", "signature"),
    [
        # Examples published by Twilio.
        (
            {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234"}
            | {"From": "+14158675309", "To": "+18005551212"},
            "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
        ),
        ({"Sid": "CA123", "SidAccount": "AC123", "Digits": ["5678", "1234", "1234"]}, "IK+Dwps556ElfBT0I3Rgjkr1wJU="),
    ],
)
@pytest.mark.parametrize("host", ["mycompany.com", "mycompany.com:443"])
def test_published_signature_examples_verify(form: dict[str, Any], signature: str, host: str) -> None:
    carrier = twilio("https://api.twilio.com", CarrierHttp(), auth_token="12345")
    result = carrier.parse_callback(
        altered(
            DELIVERED,
            url=f"https://{host}/myapp.php?foo=1&bar=2",
            headers={"x-twilio-signature": signature},
            body=urlencode(form, doseq=True).encode(),
        )
    )
    assert result.status == 200


@pytest.mark.parametrize("digest", ["sha1", "sha256"])
@pytest.mark.parametrize(("key", "status"), [(SECRET, 200), ("shared-key", 200), ("another-key", 403)])
def test_callbacks_are_signed_by_either_digest_and_key(digest: str, key: str, status: int) -> None:
    carrier = twilio("https://api.twilio.com", CarrierHttp(), signing_key="shared-key")
    text = CALLBACK + "".join(name + value for name, value in sorted(parse_qsl(DELIVERED.body.decode())))
    signature = base64.b64encode(hmac.digest(key.encode(), text.encode(), digest)).decode()
    result = carrier.parse_callback(altered(DELIVERED, headers={"x-twilio-signature": signature}))
    assert (result.status, len(result.reports)) == (status, int(status == 200))


@pytest.mark.parametrize(("validity_s", "told"), [(0, None), (600, "600"), (172_800, "36000")])
async def test_request_contains_the_validity_period(web: CarrierHttp, validity_s: int, told: str | None) -> None:
    async with TwilioFake() as fake:
        await twilio(fake.url, web).send_message(outbound_message(validity_s=validity_s))
    assert dict(parse_qsl(fake.requests[0][2].decode())).get("ValidityPeriod") == told


def test_price_in_a_callback_is_reported() -> None:
    form = [*parse_qsl(DELIVERED.body.decode()), ("Price", "-0.0079"), ("PriceUnit", "usd")]
    carrier = twilio("https://api.twilio.com", CarrierHttp())
    signature = next(carrier._signatures(CALLBACK, form))
    body = urlencode(form).encode()
    ((_, report),) = carrier.parse_callback(
        altered(DELIVERED, body=body, headers={"x-twilio-signature": signature})
    ).reports
    assert (report.detail["carrier_price"], report.detail["carrier_currency"]) == ("0.0079", "USD")


@pytest.mark.parametrize("step", ["accept", "early"])
async def test_statuses_in_any_order_give_the_final_state(web: CarrierHttp, step: str) -> None:
    async with CallbackRecorder() as inbox, TwilioFake(step, receipts="delivered,sent,delivered,undelivered") as fake:
        options = TwilioOptions(base_url=fake.url, account_sid=ACCOUNT, auth_token=SECRET)
        carrier = Twilio(options, web, inbox.url)
        outcome = await carrier.send_message(outbound_message())
        await fake.wait_for_callbacks()
    result = [carrier.parse_callback(Callback(method="POST", query={}, now=0, **fields)) for fields in inbox.callbacks]
    assert isinstance(outcome, Accepted) and fake.callback_statuses == [200] * 4
    assert [(id_, report.status) for item in result for id_, report in item.reports] == [
        *((outcome.carrier_id, state) for state in ("delivered", "sent", "delivered", "failed")),
    ]


def forgeries(random: Random) -> Iterator[Callback]:
    form = dict(parse_qsl(DELIVERED.body.decode()))
    signature = DELIVERED.headers["x-twilio-signature"]
    while True:
        body = bytearray(DELIVERED.body)
        body[random.randrange(len(body))] ^= 1 << random.randrange(7)
        if parse_qsl(body.decode(), keep_blank_values=True) != list(form.items()):
            yield altered(DELIVERED, body=bytes(body))
        position = random.randrange(len(signature))
        letter = random.choice([c for c in "ABCxyz019+/" if c != signature[position]])
        yield altered(
            DELIVERED, headers={"x-twilio-signature": signature[:position] + letter + signature[position + 1 :]}
        )
        yield callback({"MessageStatus": "delivered"}, secret=random.randbytes(16).hex())
        item, other = random.sample(list(form), 2)
        yield altered(DELIVERED, body=urlencode(form | {item: form[other], other: form[item]}).encode())
        yield altered(DELIVERED, body=urlencode(form | {"MessageSid": f"SM{random.randrange(2, 10**6)}"}).encode())
        yield altered(DELIVERED, body=urlencode({n: v for n, v in form.items() if n != item}).encode())
        yield altered(DELIVERED, url=CALLBACK.replace("twilio", random.choice(["other", "twili0", "twilio/"])))
        yield altered(DELIVERED, headers={})
        yield altered(DELIVERED, headers={"x-twilio-signature": "é" * random.randrange(40)})


def test_thousand_forged_callbacks_change_nothing() -> None:
    assert CARRIER.parse_callback(DELIVERED).reports
    forged = forgeries(Random(4))
    for _ in range(1000):
        result = CARRIER.parse_callback(next(forged))
        assert (result.status, result.reports) == (403, ())


# -- secrets -----------------------------------------------------------------------------------------------


class Echo(TwilioFake):
    """Repeats the secret and the whole request in its error."""

    def refused_response(self, code: str) -> tuple[int, Any]:
        text = f"{SECRET} {BODY} 731946 {dict(parse_qsl(self.requests[-1][2].decode()))}"
        return 400, {"code": int(code), "message": text}


async def test_no_secret_and_no_text_in_details_or_logs(
    web: CarrierHttp, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Echo("refuse:29999,refuse:21211,accept,drop,cut,defer:500") as fake:
        carrier = twilio(fake.url, web)
        details = [(await carrier.send_message(outbound_message())).detail for _ in range(6)]
        details.append((await twilio("http://127.0.0.1:1", web).send_message(outbound_message())).detail)
    observed = repr(details) + caplog.text + "".join(capsys.readouterr())
    assert "…" in details[0]["text"]
    for hidden in (SECRET, BODY, "731946"):
        assert hidden not in observed


# -- as a process of its own -------------------------------------------------------------------------------


async def test_fake_runs_as_a_process(web: CarrierHttp) -> None:
    with run_fake("twilio", script="refuse:21610,accept") as fake:
        carrier = twilio(fake.url, web)
        assert isinstance(await carrier.send_message(outbound_message()), Refused)
        outcome = await carrier.send_message(outbound_message())
        assert isinstance(outcome, Accepted)
        assert [sent["id"] for sent in fake.received()] == [outcome.carrier_id]
        fake.script("defer:503")
        assert isinstance(await carrier.send_message(outbound_message()), Deferred)
