"""Mail providers behind a relay: what we send along, whose callbacks are believed, and what each event means."""

import base64
import hmac
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from heliograph.carriers import http_client as channels_web
from heliograph.carriers.contract import Callback, CallbackAnswer, CallbackTooLarge, Carrier, Parcel
from heliograph.carriers.email.connection_pool import Prepared
from heliograph.carriers.email.provider_reports import to_reports
from heliograph.carriers.email.providers.event import ProviderEvent
from heliograph.carriers.email.relay import Relay, id_in
from heliograph.carriers.email.smtp import SmtpOptions
from heliograph.carriers.http_client import Unreachable, Web, WebAnswer
from heliograph.carriers.sms.http import Http
from heliograph.carriers.sms.twilio import Twilio
from heliograph.carriers.whatsapp.cloud_api import CloudApi
from heliograph.domain.delivery.outcome import Accepted, ProviderReport, Report
from heliograph.domain.limits import CALLBACK_EVENTS_MAX, CALLBACK_ID_KEPT_MS, CALLBACK_USUAL, HOUR_MS
from heliograph.domain.setup.carrier_kinds import CloudApiOptions, HttpOptions, RelayOptions, TwilioOptions
from tests.carriers.providers import CERT, GOLDEN, OPTIONS, OWN, TO, gzipped, payload, signed
from tests.carriers.smtp_peer import OFFERS, Authority, Peer
from tests.carriers.test_http_carrier import COMMON, documented

pytestmark = pytest.mark.anyio

NOW = 1_789_000_000_000
BOUNCED, COMPLAINED = ("bounced", "bounce", None), ("complained", "complaint", None)
DELIVERED, FAILED, DEFERRED = ("delivered", None, None), ("failed", None, None), ("deferred", None, None)
UNSUBSCRIBED, SUPPRESSED = ("unsubscribed", None, None), ("failed", None, "provider_suppressed")
# Status, whether it suppresses, and the reason; None: nothing of it concerns us.
EVENTS: dict[str, tuple[str, str | None, str | None] | None] = {
    "ses/delivery": DELIVERED,
    "ses/bounce": BOUNCED,
    "ses/bounce_transient": FAILED,
    "ses/bounce_suppressed": SUPPRESSED,
    "ses/bounce_forwarded": ("failed", None, "forwarding_failed"),
    "ses/complaint": COMPLAINED,
    "ses/delay": DEFERRED,
    "ses/reject": ("failed", None, "carrier_policy"),
    "ses/subscription": UNSUBSCRIBED,
    "ses/open": None,
    "postmark/delivery": DELIVERED,
    "postmark/hard_bounce": BOUNCED,
    "postmark/hard_bounce_of_content": FAILED,  # words beat codes
    "postmark/soft_bounce": FAILED,
    "postmark/transient": DEFERRED,
    "postmark/deactivated": SUPPRESSED,
    "postmark/complaint": COMPLAINED,
    "postmark/unsubscribe": UNSUBSCRIBED,
    "postmark/open": None,
    "mailgun/delivered": DELIVERED,
    "mailgun/failed_permanent": BOUNCED,
    "mailgun/failed_suppressed": SUPPRESSED,
    "mailgun/failed_old": FAILED,
    "mailgun/failed_temporary": DEFERRED,
    "mailgun/complained": COMPLAINED,
    "mailgun/unsubscribed": UNSUBSCRIBED,
    "mailgun/opened": None,
    "sendgrid/processed": None,
    "sendgrid/delivered": DELIVERED,
    "sendgrid/deferred": DEFERRED,
    "sendgrid/bounce": BOUNCED,
    "sendgrid/blocked": FAILED,
    "sendgrid/dropped": SUPPRESSED,
    "sendgrid/spamreport": COMPLAINED,
    "sendgrid/unsubscribe": UNSUBSCRIBED,
    "resend/delivered": DELIVERED,
    "resend/bounced": BOUNCED,
    "resend/bounced_transient": FAILED,
    "resend/suppressed": SUPPRESSED,
    "resend/complained": COMPLAINED,
    "resend/delivery_delayed": DEFERRED,
    "resend/failed": ("failed", None, "carrier_limit"),
    "resend/opened": None,
    "brevo/delivered": DELIVERED,
    "brevo/hard_bounce": BOUNCED,
    "brevo/soft_bounce": FAILED,
    "brevo/deferred": DEFERRED,
    "brevo/blocked": SUPPRESSED,
    "brevo/spam": COMPLAINED,
    "brevo/unsubscribed": UNSUBSCRIBED,
    "brevo/request": None,
}
ANY = {name.partition("/")[0]: name.partition("/")[2] for name, means in reversed(EVENTS.items()) if means == DELIVERED}


async def prepared(parcel: Parcel) -> Prepared:
    mail = b"Subject: hello\r\n\r\nhello\r\n"
    return Prepared(envelope_from="bounce@example.org", chunks=lambda: iter([mail]), size=len(mail))


def relay(provider: str | None, web: Web | None = None, **options: Any) -> Relay:
    given = {"host": "127.0.0.1", "tls": "none", "provider": provider} | options
    return Relay(msgspec.convert(given, RelayOptions), prepared, web=web)


async def heard(provider: str, headers: dict[str, str], body: bytes, **options: Any) -> CallbackAnswer | None:
    carrier = relay(provider, **(OPTIONS[provider] | options))
    return await carrier.hear(callback(headers, body))


def callback(headers: dict[str, str], body: bytes) -> Callback:
    return Callback(method="POST", url="https://h.example/", query={}, headers=headers, body=body, now=NOW)


async def reports(provider: str, name: str) -> list[ProviderReport]:
    answer = await heard(provider, *signed(provider, payload(provider, name), NOW))
    assert answer
    assert answer.status == 200
    return list(answer.told)


def test_every_golden_payload_is_in_the_table() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in GOLDEN.rglob("*.json")}
    assert files - EVENTS.keys() == {"sendgrid/batch", "ses/subscription_confirmation"}


@pytest.mark.parametrize("event", EVENTS)
async def test_what_an_event_means(event: str) -> None:
    provider, _, name = event.partition("/")
    told, expected = await reports(provider, name), EVENTS[event]
    found = [(one.report.status, one.report.suppress, one.report.detail.get("reason")) for one in told]
    assert found == ([expected] if expected else [])
    for one in told:
        assert one.address == TO
        assert one.along == OWN
        assert one.report.detail["carrier"] == provider


async def test_a_batch() -> None:
    assert [one.report.status for one in await reports("sendgrid", "batch")] == ["deferred", "delivered"]


async def test_a_gzipped_batch_is_signed_as_it_came() -> None:
    headers, body = gzipped(payload("sendgrid", "batch"), NOW)
    answer = await heard("sendgrid", headers, body)
    assert answer
    assert [one.report.status for one in answer.told] == ["deferred", "delivered"]


@pytest.mark.parametrize("provider", OPTIONS)
async def test_ids_that_a_provider_gives_back(provider: str) -> None:
    (told,) = await reports(provider, ANY[provider])
    assert told.carrier_ids
    if provider not in ("postmark", "resend"):
        assert told.message_id == OWN


# -- who is believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", OPTIONS)
async def test_without_what_it_needs_there_is_no_callback(provider: str) -> None:
    carrier = relay(provider)
    assert carrier.read_callback(callback({}, b"")) is None
    assert await carrier.hear(callback({}, b"{}")) is None
    assert relay(None).read_callback(callback({}, b"")) is None


@pytest.mark.parametrize("provider", OPTIONS)
@pytest.mark.parametrize("fault", ["nothing", "another body", "garbage", "another secret"])
async def test_what_is_not_signed_is_refused(provider: str, fault: str) -> None:
    headers, body = signed(provider, payload(provider, ANY[provider]), NOW)
    if fault == "nothing":
        headers, body = {}, payload(provider, ANY[provider])
    elif fault == "garbage":
        headers, body = dict.fromkeys(headers, "v1,ÿ"), b"\x00\xff[{"
    elif fault == "another secret":
        headers, body = (
            {name: value[:-6] + "AAAAA=" for name, value in headers.items()},
            body.replace(b'ature":"', b'ature":"AA'),
        )
    elif provider in ("postmark", "brevo"):
        return  # a login covers no body
    else:
        body = body.replace(TOKEN[provider], b"zzz")
    answer = await heard(provider, headers, body)
    assert answer
    assert (answer.status, answer.told) == (401, ())


TOKEN = {"ses": b"Amazon SES Email", "mailgun": b"a8ce0edb", "sendgrid": b"gsmtp", "resend": b"receipt"}


@pytest.mark.parametrize(
    ("provider", "age_ms", "status"),
    [
        ("resend", 299_000, 200),
        ("resend", 301_000, 401),  # each of its retries has its own time
        *((provider, 8 * HOUR_MS, 200) for provider in ("mailgun", "sendgrid")),  # a retry with the first time
        *((provider, CALLBACK_ID_KEPT_MS, 401) for provider in ("mailgun", "sendgrid")),  # its id may be forgotten
        *((provider, -301_000, 401) for provider in ("mailgun", "sendgrid", "resend")),
    ],
)
async def test_callback_signed_earlier_is_taken_while_its_id_is_remembered(
    provider: str, age_ms: int, status: int
) -> None:
    answer = await heard(provider, *signed(provider, payload(provider, ANY[provider]), NOW - age_ms))
    assert answer
    assert answer.status == status
    assert answer.replay_id or status != 200


async def test_mailgun_callback_with_digits_moved_between_time_and_token_is_refused() -> None:
    """The signature covers time and token without a separator: the token must not become another one."""
    for token in ("12345", "0abc"):
        event = msgspec.json.decode(signed("mailgun", payload("mailgun", "delivered"), NOW, token)[1])
        for moved in (-1, 1):
            joined, cut = event["signature"]["timestamp"] + token, len(event["signature"]["timestamp"]) + moved
            other = event["signature"] | {"timestamp": joined[:cut], "token": joined[cut:]}
            answer = await heard("mailgun", {}, msgspec.json.encode(event | {"signature": other}))
            assert answer and answer.status == 401


@pytest.mark.parametrize(
    ("provider", "options"),
    [
        ("sendgrid", {"callback_key": "no key"}),
        ("sendgrid", {"callback_key": CERT}),
        ("ses", {"callback_topic": "heliograph"}),
        ("ses", {"callback_topic": "arn:aws:sns:eu-central-1:1:t", "callback_cert": "/no/such/file.pem"}),
    ],
)
def test_a_key_that_cannot_be_read_is_said(provider: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="callback_"):
        relay(provider, **options)


def test_a_pinned_certificate_in_a_file(tmp_path: Any) -> None:
    (tmp_path / "sns.pem").write_text(CERT)
    relay("ses", callback_topic="arn:aws:sns:eu-central-1:1:t", callback_cert=str(tmp_path / "sns.pem"))


# -- SNS: what is fetched, and from where ------------------------------------------------------------------------


class Sns(Web):
    """Answers as SNS does, and notes what was asked."""

    def __init__(self, answer: bytes | None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._answer = answer

    async def ask(self, method: str, url: str, **_: Any) -> WebAnswer:
        self.asked.append(url)
        if self._answer is None:
            raise Unreachable("no")
        return WebAnswer(status=200, body=self._answer)


def sns(body: bytes, **fields: str) -> bytes:
    return signed("ses", msgspec.json.encode(msgspec.json.decode(body) | fields), NOW)[1]


HOST = "https://sns.eu-central-1.amazonaws.com"
PEM = "SimpleNotificationService-1.pem"
CONFIRM = f"{HOST}/?Action=ConfirmSubscription&TopicArn={OPTIONS['ses']['callback_topic']}"
TOPIC_ONLY = {"callback_topic": OPTIONS["ses"]["callback_topic"]}


@pytest.mark.parametrize(
    ("url", "status", "fetched"),
    [
        (f"{HOST}/{PEM}", 200, True),
        (f"{HOST}/SimpleNotificationService-9c6465fa7f48f5cacd23014631ec1136.pem", 200, True),
        (f"{HOST}:443/{PEM}", 401, False),
        (f"{HOST}:8443/{PEM}", 401, False),
        (f"{HOST}/x.pem", 401, False),
        (f"{HOST}/{PEM}?x=1", 401, False),
        (f"{HOST}/{PEM}?", 401, False),
        (f"{HOST}/{PEM}#x", 401, False),
        (f"{HOST}/{PEM};x", 401, False),
        (f"{HOST}/{PEM}\n", 401, False),
        (f"{HOST}/{PEM}/../x.pem", 401, False),
        (f"{HOST}/x/{PEM}", 401, False),
        (f"{HOST}//{PEM}", 401, False),
        (f"{HOST}/?Action=Publish&x={PEM}", 401, False),
        (f"{HOST}/SimpleNotificationService-.pem", 401, False),
        (f"{HOST}/SimpleNotificationService-xyz.pem", 401, False),
        (f"{HOST}/SimpleNotificationService-1.pem.txt", 401, False),
        (f"{HOST}/SimpleNotificationService-1%2e.pem", 401, False),
        (f"{HOST.upper()}/{PEM}", 401, False),
        (f"{HOST}.cn/{PEM}", 401, False),
        (f"{HOST}./{PEM}", 401, False),
        (f"{HOST}\\@evil.example/{PEM}", 401, False),
        (f" {HOST}/{PEM}", 401, False),
        (f"http://sns.eu-central-1.amazonaws.com/{PEM}", 401, False),
        (f"https://sns.us-east-1.amazonaws.com/{PEM}", 401, False),
        (f"https://sns.eu-central-1.amazonaws.com.evil.example/{PEM}", 401, False),
        (f"https://sns.eu-central-1xamazonaws.com/{PEM}", 401, False),
        (f"https://a@sns.eu-central-1.amazonaws.com/{PEM}", 401, False),
        (f"https://a:b@sns.eu-central-1.amazonaws.com/{PEM}", 401, False),
        (f"https://evil.example/sns.eu-central-1.amazonaws.com/{PEM}", 401, False),
        (f"https://127.0.0.1/{PEM}", 401, False),
        ("https://[::1", 401, False),
        ("", 401, False),
    ],
)
async def test_where_a_certificate_may_come_from(url: str, status: int, fetched: bool) -> None:
    web = Sns(CERT.encode())
    body = sns(payload("ses", "bounce"), SigningCertURL=url)
    carrier = relay("ses", web, **TOPIC_ONLY)
    for _ in range(2):
        answer = await carrier.hear(callback({}, body))
        assert answer
        assert answer.status == status
    assert web.asked == ([url] if fetched else [])  # once: it is kept


@pytest.mark.parametrize("answer", [None, b"no certificate"])
async def test_a_certificate_that_does_not_come(answer: bytes | None) -> None:
    heard = await relay("ses", Sns(answer), **TOPIC_ONLY).hear(callback({}, sns(payload("ses", "bounce"))))
    assert heard
    assert heard.status == 401


async def test_another_topic_is_refused_before_anything_is_fetched() -> None:
    web = Sns(CERT.encode())
    body = sns(payload("ses", "bounce"), TopicArn="arn:aws:sns:eu-central-1:999999999999:heliograph")
    answer = await relay("ses", web, **TOPIC_ONLY).hear(callback({}, body))
    assert answer
    assert (answer.status, web.asked) == (401, [])


@pytest.mark.parametrize(
    ("url", "reply", "status"),
    [
        (f"{CONFIRM}&Token=2336", b"<ok/>", 200),
        (f"{CONFIRM.replace(':sns', '%3Asns')}&Token=2336", b"<ok/>", 200),
        (f"{CONFIRM}&Token=2336", None, 503),  # SNS asks again
        (f"{HOST}/?Action=ConfirmSubscription&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM}&Token=", b"<ok/>", 503),
        (f"{CONFIRM}&Token=2336&Token=2337", b"<ok/>", 503),
        (f"{CONFIRM}&Token=2336&Endpoint=x", b"<ok/>", 503),
        (f"{CONFIRM}x&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM.replace('Confirm', 'Un')}&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM.replace('.com/', '.com:443/')}&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM.replace('.com/', '.com/x')}&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM.replace('https://', 'https://a@')}&Token=2336", b"<ok/>", 503),
        (f"{CONFIRM.replace('https:', 'http:')}&Token=2336", b"<ok/>", 503),
        ("https://evil.example/?Action=ConfirmSubscription", b"<ok/>", 503),
    ],
)
async def test_a_subscription_is_confirmed_there_alone(url: str, reply: bytes | None, status: int) -> None:
    web = Sns(reply)
    body = sns(payload("ses", "subscription_confirmation"), SubscribeURL=url)
    answer = await relay("ses", web, **OPTIONS["ses"]).hear(callback({}, body))
    assert answer
    assert (answer.status, answer.told) == (status, ())
    assert web.asked == ([url] if status == 200 or reply is None else [])


# -- the hand-over -----------------------------------------------------------------------------------------------

ALONG = {
    "ses": f"X-SES-MESSAGE-TAGS: X-Heliograph-Id={OWN}",
    "postmark": f"X-PM-Metadata-X-Heliograph-Id: {OWN}",
    "mailgun": f'X-Mailgun-Variables: {{"X-Heliograph-Id": "{OWN}"}}',
    "sendgrid": f'X-SMTPAPI: {{"unique_args": {{"X-Heliograph-Id": "{OWN}"}}}}',
    "resend": f"X-Heliograph-Id: {OWN}",
    "brevo": f"X-Mailin-custom: X-Heliograph-Id:{OWN}",
}
TAKEN = {
    "ses": ("250 Ok 0102017c44f053b-61b59c11-000000", "0102017c44f053b-61b59c11-000000"),
    "postmark": ("250 2.0.0 Ok: queued as 883953f4-6105-42a2", "883953f4-6105-42a2"),
    "mailgun": ("250 Great success", f"{OWN}/0"),
    "sendgrid": ("250 Ok: queued as 14c5d75ce93.dfd.64b469", "14c5d75ce93.dfd.64b469"),
    "resend": ("250 OK: id=56761188-7520-42d8", "56761188-7520-42d8"),
    "brevo": ("250 2.0.0 OK: queued as <2026.1234@smtp-relay.mailin.fr>", "2026.1234@smtp-relay.mailin.fr"),
}


@pytest.mark.parametrize("provider", [*OPTIONS, None])
async def test_what_is_sent_along_and_which_id_comes_back(provider: str | None) -> None:
    reply, id_ = TAKEN[provider] if provider else ("250 2.0.0 queued as 12345678", f"{OWN}/0")
    async with Peer({"final": reply}) as peer:
        carrier = relay(provider, port=peer.port)
        outcome = await carrier.hand_over(Parcel(message_id=OWN, address=TO, content=b"", attempt=0))
        await carrier.close()
    assert isinstance(outcome, Accepted)
    assert outcome.carrier_id == id_
    head = peer.received[0].mail.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    expected = [f"X-Heliograph-Id: {OWN}", ALONG[provider]] if provider else []
    assert head == [*dict.fromkeys(expected), "Subject: hello"]


@pytest.mark.parametrize("provider", OPTIONS)
async def test_the_recipe_of_the_docs_reaches_a_relay_that_speaks_as_the_provider(provider: str) -> None:
    """On this machine: with its kind of encryption, its login and its words."""
    options = {name: value for name, value in documented()[provider].items() if name not in COMMON}
    assert options["provider"] == provider and options["port"] not in (25, 587)
    tls, authority = options.get("tls", "starttls"), Authority()
    server, _ = authority.server("127.0.0.1")
    reply, id_ = TAKEN[provider]
    asked = Peer({"final": reply}, tls=server, implicit=tls == "tls", offers=(*OFFERS, "AUTH PLAIN LOGIN"))
    async with asked as peer:
        given = options | {"host": "127.0.0.1", "port": peer.port} | OPTIONS[provider]
        manner = SmtpOptions(helo="us.test", roots=authority.trusted())
        carrier = Relay(msgspec.convert(given, RelayOptions), prepared, smtp_options=manner)
        outcome = await carrier.hand_over(Parcel(message_id=OWN, address=TO, content=b"", attempt=0))
        await carrier.close()
    assert isinstance(outcome, Accepted)
    assert (outcome.carrier_id, outcome.detail["tls"]) == (id_, "TLSv1.3 verified")
    login = base64.b64encode(f"\0{options['username']}\0{options['password']}".encode()).decode()
    assert f"AUTH PLAIN {login}" in peer.lines


@pytest.mark.parametrize("reply", ["250 2.0.0 queued", "250 Ok 2.0.0", "250", "250 Great success", "250 ok 12"])
def test_a_reply_without_an_id(reply: str) -> None:
    assert id_in(reply) is None


def test_a_silent_hard_bounce_is_the_providers_own_word() -> None:
    (told,) = to_reports("brevo", [ProviderEvent(what="bounced", word="hard_bounce", address=TO)])
    assert told.report == Report(
        status="bounced",
        suppress="bounce",
        detail={"reason": "address_rejected", "carrier": "brevo", "event": "hard_bounce"},
    )


async def test_certificate_of_the_china_partition_comes_from_its_own_host() -> None:
    topic = "arn:aws-cn:sns:cn-north-1:123456789012:heliograph"
    web = Sns(CERT.encode())
    url = f"https://sns.cn-north-1.amazonaws.com.cn/{PEM}"
    body = sns(payload("ses", "bounce"), SigningCertURL=url, TopicArn=topic)
    answer = await relay("ses", web, callback_topic=topic).hear(callback({}, body))
    assert answer and answer.status == 200
    assert web.asked == [url]


# -- large callbacks ---------------------------------------------------------------------------------------------


@pytest.fixture
def decoding_threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each JSON document and form was decoded in the main thread."""
    threads: list[bool] = []

    def note(decode: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return decode(*args, **kwargs)

        return noted

    monkeypatch.setattr(msgspec.json, "decode", note(msgspec.json.decode))
    monkeypatch.setattr(channels_web, "parse_qsl", note(parse_qsl))
    return threads


@pytest.mark.parametrize("provider", OPTIONS)
@pytest.mark.parametrize("is_genuine", [True, False])
@pytest.mark.parametrize("is_large", [True, False])
async def test_callback_larger_than_usual_is_decoded_in_a_thread(
    provider: str, is_genuine: bool, is_large: bool, decoding_threads: list[bool]
) -> None:
    headers, body = signed(provider, payload(provider, ANY[provider]), NOW)
    if is_large:
        padded = payload(provider, ANY[provider]) + b" " * CALLBACK_USUAL
        headers, body = signed(provider, padded, NOW)
        body = body if len(body) > CALLBACK_USUAL else body + b" " * CALLBACK_USUAL
    if not is_genuine:
        headers, body = {}, body.replace(b'ature":"', b'ature":"AA')
    carrier = relay(provider, None, **OPTIONS[provider])
    decoding_threads.clear()
    answer = await carrier.hear(callback(headers, body))
    assert answer and answer.status == (200 if is_genuine else 401)
    assert set(decoding_threads) <= {not is_large}
    assert decoding_threads or not is_genuine


@pytest.mark.parametrize(
    ("name", "body", "headers"),
    [
        ("twilio", b"MessageSid=" + b"%41" * CALLBACK_USUAL, {}),
        ("http", b"[" * CALLBACK_USUAL * 2, {}),
        ("cloud_api", b'{"entry": []}' + b" " * CALLBACK_USUAL, {}),
    ],
)
async def test_phone_carriers_callback_larger_than_usual_is_decoded_in_a_thread(
    name: str, body: bytes, headers: dict[str, str], decoding_threads: list[bool]
) -> None:
    signature = hmac.new(b"s", body, "sha256").hexdigest()
    headers = {"x-signature": signature, "x-hub-signature-256": f"sha256={signature}"}
    carriers: dict[str, Carrier] = {
        "twilio": Twilio(TwilioOptions(account_sid="AC", auth_token="s"), Web(), "https://h"),
        "http": Http(
            msgspec.convert(
                {"url": "http://h/", "callback_secret": "s", "callback": {"id": "$.i", "status": "$.s"}},
                HttpOptions,
            ),
            Web(),
            "https://h",
        ),
        "cloud_api": CloudApi(CloudApiOptions(phone_number_id="1", access_token="t", app_secret="s"), Web()),
    }
    answer = await carriers[name].hear(callback(headers, body))
    assert answer
    assert decoding_threads == [False]


@pytest.mark.parametrize("provider", ["sendgrid", "brevo"])
async def test_callback_with_more_events_than_a_provider_sends_is_refused(provider: str) -> None:
    event = {"event": "delivered", "email": TO}
    whole = msgspec.json.encode([event] * CALLBACK_EVENTS_MAX)
    if provider == "sendgrid":
        answer = await heard(provider, *gzipped(whole, NOW))
        assert answer and len(answer.told) == CALLBACK_EVENTS_MAX
    for count in (CALLBACK_EVENTS_MAX + 1, 340_000):
        body = msgspec.json.encode([event] * count)
        headers, body = gzipped(body, NOW) if provider == "sendgrid" else signed(provider, body, NOW)
        with pytest.raises(CallbackTooLarge):
            await heard(provider, headers, body)


@pytest.mark.parametrize("provider", ["mailgun", "ses"])
async def test_callback_with_too_many_values_is_not_decoded(provider: str, decoding_threads: list[bool]) -> None:
    with pytest.raises(CallbackTooLarge):
        await heard(provider, {}, b"[" + b"[]," * 300_000 + b"[]]")
    assert decoding_threads == []
