"""Twilio: what each answer means, what is looked up, and whose callbacks are believed."""

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

from heliograph.carriers.contract import Callback, Parcel
from heliograph.carriers.http_client import Web
from heliograph.carriers.sms.twilio import CODES, STATES, Twilio
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, IncomingText, Outcome, Refused
from heliograph.domain.ids import ulid
from heliograph.domain.setup.carrier_kinds import TwilioOptions
from tests.carriers.fakes import ACCOUNT, SECRET, Inbox, TwilioFake, running

pytestmark = pytest.mark.anyio

TO = "+491511234567"
BODY = "Acme: your code is 731946. Ünïcode & more=5%"
CALLBACK = "https://sms.example.com/carriers/twilio/callback"
VERDICTS = {"refused": Refused, "deferred": Deferred, "unreachable": Deferred}


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    yield web
    await web.close()


def parcel(uncertain: bool = False, later_s: int = 0, **content: Any) -> Parcel:
    given: dict[str, Any] = {"body": BODY, "sender_id": "ACME", "encoding": "ucs2", "segments": 1, "parts": 1} | content
    return Parcel(
        message_id="sms_" + ulid(int(time.time() + later_s) * 1000, 7),
        address=TO,
        content=msgspec.json.encode(SmsContent(**given)),
        attempt=0,
        country="DE",
        uncertain=uncertain,
    )


def twilio(url: str, web: Web, **options: Any) -> Twilio:
    given = {"base_url": url, "account_sid": ACCOUNT, "auth_token": SECRET} | options
    return Twilio(msgspec.convert(given, TwilioOptions), web, CALLBACK)


async def handed(script: str, web: Web, given: Parcel | None = None, **options: Any) -> Outcome:
    async with TwilioFake(script) as fake:
        return await twilio(fake.url, web, **options).hand_over(given or parcel())


async def test_the_request_and_its_acceptance(web: Web) -> None:
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url + "/", web).hand_over(parcel())
    assert isinstance(outcome, Accepted)
    assert outcome.carrier_id == fake.taken[0]["id"]
    assert (outcome.detail, outcome.reports) == (
        {"carrier": "twilio", "code": "201", "text": "queued", "sender": "ACME"},
        [],
    )
    (line, headers, body) = fake.asked[0]
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
async def test_the_sender(web: Web, own: str, content: dict[str, Any], field: str, sender: str) -> None:
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url, web, **{"from": own}).hand_over(parcel(**content))
    assert dict(parse_qsl(fake.asked[0][2].decode()))[field] == sender
    assert outcome.detail["sender"] == sender


# -- what an answer means ----------------------------------------------------------------------------------


async def test_every_code_has_its_outcome_and_its_words(web: Web) -> None:
    async with TwilioFake(",".join(f"refuse:{code}" for code in CODES)) as fake:
        carrier = twilio(fake.url, web)
        for code, (verdict, words) in CODES.items():
            outcome = await carrier.hand_over(parcel())
            assert isinstance(outcome, VERDICTS[verdict]), code
            assert outcome.detail == {"carrier": "twilio", "code": str(code), "text": words}
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
async def test_what_the_table_does_not_know(web: Web, script: str, outcome: Outcome) -> None:
    given = await handed(script, web)
    assert (type(given), given.detail) == (type(outcome), outcome.detail)
    if isinstance(given, Deferred):
        assert given.unreachable == (script in ("defer:401", "defer:403"))
        assert given.uncertain == (script == "defer:504")
        assert given.retry_after_ms == (1000 if script in ("defer:429", "defer:503") else None)


async def test_a_wrong_token_lets_another_carrier_try(web: Web) -> None:
    outcome = await handed("accept", web, auth_token="wrong")
    assert isinstance(outcome, Deferred) and outcome.unreachable and outcome.detail["code"] == "20003"


@pytest.mark.parametrize("step", ["drop", "cut", "defer:200", "defer:201"])
async def test_no_whole_answer_is_uncertain(web: Web, step: str) -> None:
    outcome = await handed(step, web)
    assert isinstance(outcome, Deferred) and outcome.uncertain and not outcome.unreachable


async def test_out_of_reach(web: Web) -> None:
    outcome = await twilio("http://127.0.0.1:1", web).hand_over(parcel())
    assert isinstance(outcome, Deferred) and outcome.unreachable and not outcome.uncertain


# -- a hand-over that may have gone through ----------------------------------------------------------------


@pytest.mark.parametrize("own", ["", "MG1234"])
@pytest.mark.parametrize("receipts", ["", "delivered", "undelivered"])
async def test_what_was_swallowed_is_found_and_not_sent_again(web: Web, own: str, receipts: str) -> None:
    content = {"platform_sender": bool(own)}
    async with TwilioFake("cut,accept") as fake:
        carrier = twilio(fake.url, web, **{"from": own})
        first = await carrier.hand_over(parcel(**content))
        assert isinstance(first, Deferred) and first.uncertain
        fake.receipts = [receipts] if receipts else []
        found = await carrier.hand_over(parcel(uncertain=True, **content))
        assert isinstance(found, Accepted)
        assert (found.carrier_id, len(fake.taken)) == (fake.taken[0]["id"], 1)
        assert found.detail["carrier_price"] == "0.00750" and found.detail["carrier_currency"] == "USD"
        assert [report.status for _, report in found.reports] == ([STATES[receipts]] if receipts else [])


@pytest.mark.parametrize(
    "other",
    [
        {"body": "something else"},
        {"sender_id": "OTHER"},
        {"later_s": 60},  # the one that Twilio has is older than the message
    ],
)
async def test_only_the_same_message_is_found(web: Web, other: dict[str, Any]) -> None:
    async with TwilioFake() as fake:
        carrier = twilio(fake.url, web)
        await carrier.hand_over(parcel())
        outcome = await carrier.hand_over(parcel(uncertain=True, **other))
        assert isinstance(outcome, Accepted) and outcome.carrier_id == fake.taken[1]["id"]


async def test_a_look_up_without_an_answer_sends_nothing_and_stays_open(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwilioFake, "listed", lambda *_: (500, "oops"))
    async with TwilioFake() as fake:
        outcome = await twilio(fake.url, web).hand_over(parcel(uncertain=True))
    assert isinstance(outcome, Deferred) and not outcome.uncertain and not outcome.unreachable
    assert fake.taken == []


async def test_resend_and_stop(web: Web) -> None:
    async with TwilioFake() as fake:
        assert isinstance(await twilio(fake.url, web, uncertain="resend").hand_over(parcel(True)), Accepted)
        stopped = await twilio(fake.url, web, uncertain="stop").hand_over(parcel(True))
        assert isinstance(stopped, Refused) and "may have been sent" in stopped.detail["text"]
        assert [line.split()[0] for line, _, _ in fake.asked] == ["POST"]


# -- callbacks ---------------------------------------------------------------------------------------------


def callback(form: dict[str, str], url: str = CALLBACK, secret: str = SECRET) -> Callback:
    """As Twilio would write and sign it."""
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


CARRIER = twilio("https://api.twilio.com", Web())
DELIVERED = callback({"MessageStatus": "delivered"})


def altered(given: Callback, **fields: Any) -> Callback:
    return msgspec.structs.replace(given, **fields)


@pytest.mark.parametrize(("status", "state"), STATES.items())
def test_every_status(status: str, state: str) -> None:
    form = {"MessageStatus": status} | ({"ErrorCode": "30003"} if status in ("failed", "undelivered") else {})
    told = CARRIER.read_callback(callback(form))
    ((id_, report),) = told.reports
    assert (told.status, id_, report.status) == (200, "SM1", state)
    assert report.detail["text"] == (CODES[30003][1] if "ErrorCode" in form else status)


def incoming(**more: str) -> Callback:
    """As Twilio's "A message comes in" has it: signed over its own fields."""
    form = {"SmsStatus": "received", "MessageSid": "SMin", "From": TO, "To": "+15005550006", "Body": "STOP & go"} | more
    signed = CALLBACK + "".join(name + form[name] for name in sorted(form))
    signature = base64.b64encode(hmac.digest(SECRET.encode(), signed.encode(), "sha1")).decode()
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return Callback(method="POST", url=CALLBACK, query={}, headers=headers, body=urlencode(form).encode(), now=0)


def test_a_text_that_came_in() -> None:
    told = CARRIER.read_callback(incoming())
    assert told.texts == [IncomingText(id="SMin", sender=TO, to="+15005550006", text="STOP & go")]
    # Twilio sends what it is answered to the phone: nothing.
    assert (told.status, told.reports, told.body) == (200, (), b"<Response></Response>")
    assert told.content_type.startswith(b"text/xml")


@pytest.mark.parametrize("more", [{"SmsStatus": "receiving"}, {"MessageSid": ""}])
def test_what_is_no_text(more: dict[str, str]) -> None:
    assert not CARRIER.read_callback(incoming(**more)).texts


def test_a_forged_text_is_refused() -> None:
    told = CARRIER.read_callback(altered(incoming(), body=incoming().body.replace(b"STOP", b"STAY")))
    assert (told.status, told.texts) == (403, ())


@pytest.mark.parametrize("status", ["read", "receiving", "received", "", "nonsense"])
def test_other_statuses_are_taken_and_mean_nothing(status: str) -> None:
    told = CARRIER.read_callback(callback({"MessageStatus": status}))
    assert (told.status, told.reports) == (200, ())


@pytest.mark.parametrize(
    ("form", "signature"),
    [
        # Twilio's own published examples.
        (
            {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234"}
            | {"From": "+14158675309", "To": "+18005551212"},
            "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
        ),
        ({"Sid": "CA123", "SidAccount": "AC123", "Digits": ["5678", "1234", "1234"]}, "IK+Dwps556ElfBT0I3Rgjkr1wJU="),
    ],
)
@pytest.mark.parametrize("host", ["mycompany.com", "mycompany.com:443"])
def test_the_published_signatures(form: dict[str, Any], signature: str, host: str) -> None:
    carrier = twilio("https://api.twilio.com", Web(), auth_token="12345")
    told = carrier.read_callback(
        altered(
            DELIVERED,
            url=f"https://{host}/myapp.php?foo=1&bar=2",
            headers={"x-twilio-signature": signature},
            body=urlencode(form, doseq=True).encode(),
        )
    )
    assert told.status == 200


@pytest.mark.parametrize("digest", ["sha1", "sha256"])
@pytest.mark.parametrize(("key", "status"), [(SECRET, 200), ("shared-key", 200), ("another-key", 403)])
def test_callbacks_are_signed_by_either_digest_and_key(digest: str, key: str, status: int) -> None:
    carrier = twilio("https://api.twilio.com", Web(), signing_key="shared-key")
    text = CALLBACK + "".join(name + value for name, value in sorted(parse_qsl(DELIVERED.body.decode())))
    signature = base64.b64encode(hmac.digest(key.encode(), text.encode(), digest)).decode()
    told = carrier.read_callback(altered(DELIVERED, headers={"x-twilio-signature": signature}))
    assert (told.status, len(told.reports)) == (status, int(status == 200))


@pytest.mark.parametrize(("validity_s", "told"), [(0, None), (600, "600"), (172_800, "36000")])
async def test_how_long_twilio_may_try(web: Web, validity_s: int, told: str | None) -> None:
    async with TwilioFake() as fake:
        await twilio(fake.url, web).hand_over(parcel(validity_s=validity_s))
    assert dict(parse_qsl(fake.asked[0][2].decode())).get("ValidityPeriod") == told


def test_the_price_when_it_is_told() -> None:
    form = [*parse_qsl(DELIVERED.body.decode()), ("Price", "-0.0079"), ("PriceUnit", "usd")]
    carrier = twilio("https://api.twilio.com", Web())
    signature = next(carrier._signatures(CALLBACK, form))
    body = urlencode(form).encode()
    ((_, report),) = carrier.read_callback(
        altered(DELIVERED, body=body, headers={"x-twilio-signature": signature})
    ).reports
    assert (report.detail["carrier_price"], report.detail["carrier_currency"]) == ("0.0079", "USD")


@pytest.mark.parametrize("step", ["accept", "early"])
async def test_receipts_in_any_order_are_believed(web: Web, step: str) -> None:
    async with Inbox() as inbox, TwilioFake(step, receipts="delivered,sent,delivered,undelivered") as fake:
        options = TwilioOptions(base_url=fake.url, account_sid=ACCOUNT, auth_token=SECRET)
        carrier = Twilio(options, web, inbox.url)
        outcome = await carrier.hand_over(parcel())
        await fake.reported()
    told = [carrier.read_callback(Callback(method="POST", query={}, now=0, **got)) for got in inbox.got]
    assert isinstance(outcome, Accepted) and fake.told == [200] * 4
    assert [(id_, report.status) for one in told for id_, report in one.reports] == [
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
        place = random.randrange(len(signature))
        letter = random.choice([c for c in "ABCxyz019+/" if c != signature[place]])
        yield altered(DELIVERED, headers={"x-twilio-signature": signature[:place] + letter + signature[place + 1 :]})
        yield callback({"MessageStatus": "delivered"}, secret=random.randbytes(16).hex())
        one, other = random.sample(list(form), 2)
        yield altered(DELIVERED, body=urlencode(form | {one: form[other], other: form[one]}).encode())
        yield altered(DELIVERED, body=urlencode(form | {"MessageSid": f"SM{random.randrange(2, 10**6)}"}).encode())
        yield altered(DELIVERED, body=urlencode({n: v for n, v in form.items() if n != one}).encode())
        yield altered(DELIVERED, url=CALLBACK.replace("twilio", random.choice(["other", "twili0", "twilio/"])))
        yield altered(DELIVERED, headers={})
        yield altered(DELIVERED, headers={"x-twilio-signature": "é" * random.randrange(40)})


def test_a_thousand_forgeries_change_nothing() -> None:
    assert CARRIER.read_callback(DELIVERED).reports
    forged = forgeries(Random(4))
    for _ in range(1000):
        told = CARRIER.read_callback(next(forged))
        assert (told.status, told.reports) == (403, ())


# -- secrets -----------------------------------------------------------------------------------------------


class Echo(TwilioFake):
    """Repeats all that it was told."""

    def refused(self, code: str) -> tuple[int, Any]:
        words = f"{SECRET} {BODY} 731946 {dict(parse_qsl(self.asked[-1][2].decode()))}"
        return 400, {"code": int(code), "message": words}


async def test_no_secret_and_no_text_in_details_or_logs(
    web: Web, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Echo("refuse:29999,refuse:21211,accept,drop,cut,defer:500") as fake:
        carrier = twilio(fake.url, web)
        details = [(await carrier.hand_over(parcel())).detail for _ in range(6)]
        details.append((await twilio("http://127.0.0.1:1", web).hand_over(parcel())).detail)
    seen = repr(details) + caplog.text + "".join(capsys.readouterr())
    assert "…" in details[0]["text"]
    for hidden in (SECRET, BODY, "731946"):
        assert hidden not in seen


# -- as a process of its own -------------------------------------------------------------------------------


async def test_the_fake_as_a_process(web: Web) -> None:
    with running("twilio", script="refuse:21610,accept") as fake:
        carrier = twilio(fake.url, web)
        assert isinstance(await carrier.hand_over(parcel()), Refused)
        outcome = await carrier.hand_over(parcel())
        assert isinstance(outcome, Accepted)
        assert [sent["id"] for sent in fake.taken()] == [outcome.carrier_id]
        fake.script("defer:503")
        assert isinstance(await carrier.hand_over(parcel()), Deferred)
