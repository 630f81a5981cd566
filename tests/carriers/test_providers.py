"""Mail providers behind a relay: tracking headers, authentication of callbacks, and the meaning of each event."""

import base64
import hmac
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from heliograph.carriers import http_client as channels_web
from heliograph.carriers.contract import Callback, CallbackResult, CallbackTooLarge, Carrier, OutboundMessage
from heliograph.carriers.email.connection_pool import PreparedMail
from heliograph.carriers.email.provider_reports import to_reports
from heliograph.carriers.email.providers.event import ProviderEvent
from heliograph.carriers.email.relay import Relay, provider_message_id
from heliograph.carriers.email.smtp import SmtpOptions
from heliograph.carriers.http_client import CarrierHttp, HttpResponse, Unreachable
from heliograph.carriers.sms.http import HttpCarrier
from heliograph.carriers.sms.twilio import Twilio
from heliograph.carriers.whatsapp.cloud_api import CloudApi
from heliograph.domain.delivery.outcome import Accepted, ProviderReport, Report
from heliograph.domain.limits import CALLBACK_EVENTS_MAX, CALLBACK_ID_RETENTION_MS, CALLBACK_INLINE_MAX, HOUR_MS
from heliograph.domain.setup.carrier_kinds import CloudApiOptions, HttpOptions, RelayOptions, TwilioOptions
from tests.carriers.providers import CERT, GOLDEN, OPTIONS, OWN, TO, gzipped, payload, signed
from tests.carriers.smtp_peer import OFFERS, Authority, Peer
from tests.carriers.test_http_carrier import COMMON, documented

pytestmark = pytest.mark.anyio

NOW = 1_789_000_000_000
BOUNCED, COMPLAINED = ("bounced", "bounce", None), ("complained", "complaint", None)
DELIVERED, FAILED, DEFERRED = ("delivered", None, None), ("failed", None, None), ("deferred", None, None)
UNSUBSCRIBED, SUPPRESSED = ("unsubscribed", None, None), ("failed", None, "provider_suppressed")
# (status, whether the address is suppressed, reason); None: the event is ignored.
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
    "postmark/hard_bounce_of_content": FAILED,  # text takes precedence over codes
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


async def prepared(message: OutboundMessage) -> PreparedMail:
    mail = b"Subject: hello\r\n\r\nhello\r\n"
    return PreparedMail(envelope_from="bounce@example.org", chunks=lambda: iter([mail]), size=len(mail))


def relay(provider: str | None, web: CarrierHttp | None = None, **options: Any) -> Relay:
    settings = {"host": "127.0.0.1", "tls": "none", "provider": provider} | options
    return Relay(msgspec.convert(settings, RelayOptions), prepared, http=web)


async def parse_callback(provider: str, headers: dict[str, str], body: bytes, **options: Any) -> CallbackResult | None:
    carrier = relay(provider, **(OPTIONS[provider] | options))
    return await carrier.parse_callback_async(callback(headers, body))


def callback(headers: dict[str, str], body: bytes) -> Callback:
    return Callback(method="POST", url="https://h.example/", query={}, headers=headers, body=body, now=NOW)


async def reports(provider: str, name: str) -> list[ProviderReport]:
    answer = await parse_callback(provider, *signed(provider, payload(provider, name), NOW))
    assert answer
    assert answer.status == 200
    return list(answer.provider_reports)


def test_every_golden_payload_is_in_the_table() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in GOLDEN.rglob("*.json")}
    assert files - EVENTS.keys() == {"sendgrid/batch", "ses/subscription_confirmation"}


@pytest.mark.parametrize("event", EVENTS)
async def test_provider_event_gives_the_expected_report(event: str) -> None:
    provider, _, name = event.partition("/")
    parsed_reports, expected = await reports(provider, name), EVENTS[event]
    results = [
        (report.report.status, report.report.suppress, report.report.detail.get("reason")) for report in parsed_reports
    ]
    assert results == ([expected] if expected else [])
    for report in parsed_reports:
        assert report.address == TO
        assert report.tracking_id == OWN
        assert report.report.detail["carrier"] == provider


async def test_callback_batch_gives_all_reports() -> None:
    assert [item.report.status for item in await reports("sendgrid", "batch")] == ["deferred", "delivered"]


async def test_gzipped_callback_is_verified_as_received() -> None:
    headers, body = gzipped(payload("sendgrid", "batch"), NOW)
    answer = await parse_callback("sendgrid", headers, body)
    assert answer
    assert [item.report.status for item in answer.provider_reports] == ["deferred", "delivered"]


@pytest.mark.parametrize("provider", OPTIONS)
async def test_provider_response_id_is_recorded(provider: str) -> None:
    (report,) = await reports(provider, ANY[provider])
    assert report.carrier_ids
    if provider not in ("postmark", "resend"):
        assert report.message_id == OWN


# -- who is believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", OPTIONS)
async def test_callback_without_its_settings_is_not_found(provider: str) -> None:
    carrier = relay(provider)
    assert carrier.parse_callback(callback({}, b"")) is None
    assert await carrier.parse_callback_async(callback({}, b"{}")) is None
    assert relay(None).parse_callback(callback({}, b"")) is None


@pytest.mark.parametrize("provider", OPTIONS)
@pytest.mark.parametrize("fault", ["nothing", "another body", "garbage", "another secret"])
async def test_unsigned_callback_is_refused(provider: str, fault: str) -> None:
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
        return  # Basic authentication does not cover the body
    else:
        body = body.replace(TOKEN[provider], b"zzz")
    answer = await parse_callback(provider, headers, body)
    assert answer
    assert (answer.status, answer.provider_reports) == (401, ())


TOKEN = {"ses": b"Amazon SES Email", "mailgun": b"a8ce0edb", "sendgrid": b"gsmtp", "resend": b"receipt"}


@pytest.mark.parametrize(
    ("provider", "age_ms", "status"),
    [
        ("resend", 299_000, 200),
        ("resend", 301_000, 401),  # each retry has its own timestamp
        *((provider, 8 * HOUR_MS, 200) for provider in ("mailgun", "sendgrid")),  # a retry with the original timestamp
        *((provider, CALLBACK_ID_RETENTION_MS, 401) for provider in ("mailgun", "sendgrid")),  # id may be deleted
        *((provider, -301_000, 401) for provider in ("mailgun", "sendgrid", "resend")),
    ],
)
async def test_callback_signed_earlier_is_accepted_while_its_id_is_stored(
    provider: str, age_ms: int, status: int
) -> None:
    answer = await parse_callback(provider, *signed(provider, payload(provider, ANY[provider]), NOW - age_ms))
    assert answer
    assert answer.status == status
    assert answer.replay_id or status != 200


async def test_mailgun_callback_with_digits_moved_between_time_and_token_is_refused() -> None:
    """The signature covers time and token without a separator, so characters must not move between the two."""
    for token in ("12345", "0abc"):
        event = msgspec.json.decode(signed("mailgun", payload("mailgun", "delivered"), NOW, token)[1])
        for moved in (-1, 1):
            joined, cut = event["signature"]["timestamp"] + token, len(event["signature"]["timestamp"]) + moved
            other = event["signature"] | {"timestamp": joined[:cut], "token": joined[cut:]}
            answer = await parse_callback("mailgun", {}, msgspec.json.encode(event | {"signature": other}))
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
def test_unreadable_callback_key_is_reported(provider: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="callback_"):
        relay(provider, **options)


def test_pinned_certificate_file_is_used(tmp_path: Any) -> None:
    (tmp_path / "sns.pem").write_text(CERT)
    relay("ses", callback_topic="arn:aws:sns:eu-central-1:1:t", callback_cert=str(tmp_path / "sns.pem"))


# -- SNS: what is fetched, and from where ------------------------------------------------------------------------


class Sns(CarrierHttp):
    """Responds as SNS does, and records requests."""

    def __init__(self, answer: bytes | None) -> None:
        super().__init__()
        self.requests: list[str] = []
        self._answer = answer

    async def request(self, method: str, url: str, **_: Any) -> HttpResponse:
        self.requests.append(url)
        if self._answer is None:
            raise Unreachable("no")
        return HttpResponse(status=200, body=self._answer)


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
async def test_sns_certificate_is_fetched_from_amazon_hosts_only(url: str, status: int, fetched: bool) -> None:
    web = Sns(CERT.encode())
    body = sns(payload("ses", "bounce"), SigningCertURL=url)
    carrier = relay("ses", web, **TOPIC_ONLY)
    for _ in range(2):
        answer = await carrier.parse_callback_async(callback({}, body))
        assert answer
        assert answer.status == status
    assert web.requests == ([url] if fetched else [])  # fetched once, then cached


@pytest.mark.parametrize("answer", [None, b"no certificate"])
async def test_sns_callback_without_a_valid_certificate_is_refused(answer: bytes | None) -> None:
    result = await relay("ses", Sns(answer), **TOPIC_ONLY).parse_callback_async(
        callback({}, sns(payload("ses", "bounce")))
    )
    assert result
    assert result.status == 401


async def test_sns_callback_of_another_topic_is_refused_without_a_fetch() -> None:
    web = Sns(CERT.encode())
    body = sns(payload("ses", "bounce"), TopicArn="arn:aws:sns:eu-central-1:999999999999:heliograph")
    answer = await relay("ses", web, **TOPIC_ONLY).parse_callback_async(callback({}, body))
    assert answer
    assert (answer.status, web.requests) == (401, [])


@pytest.mark.parametrize(
    ("url", "reply", "status"),
    [
        (f"{CONFIRM}&Token=2336", b"<ok/>", 200),
        (f"{CONFIRM.replace(':sns', '%3Asns')}&Token=2336", b"<ok/>", 200),
        (f"{CONFIRM}&Token=2336", None, 503),  # SNS repeats the request
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
async def test_sns_subscription_is_confirmed_at_amazon_only(url: str, reply: bytes | None, status: int) -> None:
    web = Sns(reply)
    body = sns(payload("ses", "subscription_confirmation"), SubscribeURL=url)
    answer = await relay("ses", web, **OPTIONS["ses"]).parse_callback_async(callback({}, body))
    assert answer
    assert (answer.status, answer.provider_reports) == (status, ())
    assert web.requests == ([url] if status == 200 or reply is None else [])


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
async def test_provider_gets_tracking_headers_and_returns_its_id(provider: str | None) -> None:
    reply, id_ = TAKEN[provider] if provider else ("250 2.0.0 queued as 12345678", f"{OWN}/0")
    async with Peer({"final": reply}) as peer:
        carrier = relay(provider, port=peer.port)
        outcome = await carrier.send_message(OutboundMessage(message_id=OWN, address=TO, content=b"", attempt=0))
        await carrier.close()
    assert isinstance(outcome, Accepted)
    assert outcome.carrier_id == id_
    head = peer.received[0].mail.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    expected = [f"X-Heliograph-Id: {OWN}", ALONG[provider]] if provider else []
    assert head == [*dict.fromkeys(expected), "Subject: hello"]


@pytest.mark.parametrize("provider", OPTIONS)
async def test_configuration_in_the_docs_reaches_the_provider_relay(provider: str) -> None:
    """The relay runs on this machine, with the provider's kind of encryption, login and replies."""
    options = {name: value for name, value in documented()[provider].items() if name not in COMMON}
    assert options["provider"] == provider and options["port"] not in (25, 587)
    tls, authority = options.get("tls", "starttls"), Authority()
    server, _ = authority.server("127.0.0.1")
    reply, id_ = TAKEN[provider]
    relay_peer = Peer({"final": reply}, tls=server, implicit=tls == "tls", offers=(*OFFERS, "AUTH PLAIN LOGIN"))
    async with relay_peer as peer:
        settings = options | {"host": "127.0.0.1", "port": peer.port} | OPTIONS[provider]
        manner = SmtpOptions(helo="us.test", roots=authority.trusted())
        carrier = Relay(msgspec.convert(settings, RelayOptions), prepared, smtp_options=manner)
        outcome = await carrier.send_message(OutboundMessage(message_id=OWN, address=TO, content=b"", attempt=0))
        await carrier.close()
    assert isinstance(outcome, Accepted)
    assert (outcome.carrier_id, outcome.detail["tls"]) == (id_, "TLSv1.3 verified")
    login = base64.b64encode(f"\0{options['username']}\0{options['password']}".encode()).decode()
    assert f"AUTH PLAIN {login}" in peer.lines


@pytest.mark.parametrize("reply", ["250 2.0.0 queued", "250 Ok 2.0.0", "250", "250 Great success", "250 ok 12"])
def test_reply_without_an_id_records_none(reply: str) -> None:
    assert provider_message_id(reply) is None


def test_hard_bounce_without_a_reply_is_reported_as_by_the_provider() -> None:
    (report,) = to_reports("brevo", [ProviderEvent(kind="bounced", event_name="hard_bounce", address=TO)])
    assert report.report == Report(
        status="bounced",
        suppress="bounce",
        detail={"reason": "address_rejected", "carrier": "brevo", "event": "hard_bounce"},
    )


async def test_certificate_of_the_china_partition_comes_from_its_own_host() -> None:
    topic = "arn:aws-cn:sns:cn-north-1:123456789012:heliograph"
    web = Sns(CERT.encode())
    url = f"https://sns.cn-north-1.amazonaws.com.cn/{PEM}"
    body = sns(payload("ses", "bounce"), SigningCertURL=url, TopicArn=topic)
    answer = await relay("ses", web, callback_topic=topic).parse_callback_async(callback({}, body))
    assert answer and answer.status == 200
    assert web.requests == [url]


# -- large callbacks ---------------------------------------------------------------------------------------------


@pytest.fixture
def decoding_threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return for each JSON document and form whether it was decoded in the main thread."""
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
        padded = payload(provider, ANY[provider]) + b" " * CALLBACK_INLINE_MAX
        headers, body = signed(provider, padded, NOW)
        body = body if len(body) > CALLBACK_INLINE_MAX else body + b" " * CALLBACK_INLINE_MAX
    if not is_genuine:
        headers, body = {}, body.replace(b'ature":"', b'ature":"AA')
    carrier = relay(provider, None, **OPTIONS[provider])
    decoding_threads.clear()
    answer = await carrier.parse_callback_async(callback(headers, body))
    assert answer and answer.status == (200 if is_genuine else 401)
    assert set(decoding_threads) <= {not is_large}
    assert decoding_threads or not is_genuine


@pytest.mark.parametrize(
    ("name", "body", "headers"),
    [
        ("twilio", b"MessageSid=" + b"%41" * CALLBACK_INLINE_MAX, {}),
        ("http", b"[" * CALLBACK_INLINE_MAX * 2, {}),
        ("cloud_api", b'{"entry": []}' + b" " * CALLBACK_INLINE_MAX, {}),
    ],
)
async def test_phone_carriers_callback_larger_than_usual_is_decoded_in_a_thread(
    name: str, body: bytes, headers: dict[str, str], decoding_threads: list[bool]
) -> None:
    signature = hmac.new(b"s", body, "sha256").hexdigest()
    headers = {"x-signature": signature, "x-hub-signature-256": f"sha256={signature}"}
    carriers: dict[str, Carrier] = {
        "twilio": Twilio(TwilioOptions(account_sid="AC", auth_token="s"), CarrierHttp(), "https://h"),
        "http": HttpCarrier(
            msgspec.convert(
                {"url": "http://h/", "callback_secret": "s", "callback": {"id": "$.i", "status": "$.s"}},
                HttpOptions,
            ),
            CarrierHttp(),
            "https://h",
        ),
        "cloud_api": CloudApi(CloudApiOptions(phone_number_id="1", access_token="t", app_secret="s"), CarrierHttp()),
    }
    answer = await carriers[name].parse_callback_async(callback(headers, body))
    assert answer
    assert decoding_threads == [False]


@pytest.mark.parametrize("provider", ["sendgrid", "brevo"])
async def test_callback_with_more_events_than_a_provider_sends_is_refused(provider: str) -> None:
    event = {"event": "delivered", "email": TO}
    full_mail = msgspec.json.encode([event] * CALLBACK_EVENTS_MAX)
    if provider == "sendgrid":
        answer = await parse_callback(provider, *gzipped(full_mail, NOW))
        assert answer and len(answer.provider_reports) == CALLBACK_EVENTS_MAX
    for count in (CALLBACK_EVENTS_MAX + 1, 340_000):
        body = msgspec.json.encode([event] * count)
        headers, body = gzipped(body, NOW) if provider == "sendgrid" else signed(provider, body, NOW)
        with pytest.raises(CallbackTooLarge):
            await parse_callback(provider, headers, body)


@pytest.mark.parametrize("provider", ["mailgun", "ses"])
async def test_callback_with_too_many_values_is_not_decoded(provider: str, decoding_threads: list[bool]) -> None:
    with pytest.raises(CallbackTooLarge):
        await parse_callback(provider, {}, b"[" + b"[]," * 300_000 + b"[]]")
    assert decoding_threads == []
