"""SMS and WhatsApp over HTTP with real processes: the service, and fakes of Twilio, Meta and a generic provider."""

import hmac
import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.carriers.fakes import (
    ACCOUNT,
    NUMBER,
    SECRET,
    CloudApiFake,
    HttpFake,
    RunningFake,
    TwilioFake,
    run_fake,
)
from tests.journeys.phones import assert_charged, carrier, credit, ends, price, request, send, texting
from tests.service import Service, until

# A carrier's behaviour, its country, a number there; the message's result, and whether it is charged.
CASES = {
    "twilio: delivered": ("twilio", "accept", "sent,delivered", "GB", "+447700900123", "delivered", True),
    "twilio: undelivered": ("twilio", "accept", "undelivered", "FR", "+33612345678", "failed", True),
    "twilio: refused": ("twilio", "refuse:21211", "", "ES", "+34612345678", "failed", False),
    "twilio: busy": ("twilio", "defer:503,accept", "delivered", "IT", "+393123456789", "delivered", True),
    "twilio: told twice": ("twilio", "accept", "delivered,delivered,sent", "NL", "+31612345678", "delivered", True),
    "twilio: sent and silent": ("twilio", "cut,accept", "delivered", "SE", "+46701234567", "delivered", True),
    "twilio: told before the answer": ("twilio", "early", "delivered", "AT", "+436641234567", "delivered", True),
    "http: delivered": ("http", "accept", "DELIVRD", "PL", "+48512345678", "delivered", True),
    "http: failed": ("http", "accept", "UNDELIV", "BE", "+32470123456", "failed", True),
    "http: refused": ("http", "refuse:422", "", "DK", "+4520123456", "failed", False),
    "http: hung up, asked once more": ("http", "drop,accept", "DELIVRD", "FI", "+358412345678", "delivered", True),
    "cloud_api: read": ("cloud_api", "accept", "sent,delivered,read", "GB", "+447700900123", "read", True),
    "cloud_api: read and never delivered": ("cloud_api", "accept", "sent,read", "FR", "+33612345678", "read", True),
    "cloud_api: failed": ("cloud_api", "accept", "failed", "ES", "+34612345678", "failed", True),
    "cloud_api: refused": ("cloud_api", "refuse:131026", "", "IT", "+393123456789", "failed", False),
    "cloud_api: no marketing": ("cloud_api", "refuse:131050", "", "SE", "+46701234567", "failed", False),
    "cloud_api: busy": ("cloud_api", "refuse:130429,accept", "delivered", "NL", "+31612345678", "delivered", True),
}  # fmt: skip

BODY = '{"to":"{{to}}","from":"{{from}}","text":"{{text}}","id":"{{message_id}}","callback":"{{callback_url}}"}'
OPTIONS: dict[str, dict[str, Any]] = {
    "twilio": {"account_sid": ACCOUNT, "auth_token": SECRET, "from": "+15005550006"},
    "http": {
        "body": BODY,
        "accepted": {"status": [202], "id": "$.message_id"},
        "refused": {"status": [422], "text": "$.error"},
        "callback": {"id": "$.id", "status": "$.status", "delivered": ["DELIVRD"], "failed": ["UNDELIV"]},
        "callback_secret": SECRET,
    },
    "cloud_api": {
        "phone_number_id": NUMBER,
        "access_token": SECRET,
        "app_secret": SECRET,
        "verify_token": "challenge-token",
    },
}
CHANNEL = {"twilio": "sms", "http": "sms", "cloud_api": "whatsapp"}
PLACES = {case: place for place, case in enumerate(CASES)}


def address(kind: str, fake: RunningFake) -> dict[str, str]:
    return {"url": fake.url + HttpFake.path} if kind == "http" else {"base_url": fake.url}


def callback_path(case: str) -> str:
    return f"/carriers/{CASES[case][0].replace('_', '-')}-{PLACES[case]}/callback"


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return the service with a carrier for each case."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        carriers = []
        for case, (kind, script, receipts, country, *_) in CASES.items():
            callback = f"http://127.0.0.1:{port}{callback_path(case)}"
            fake = stack.enter_context(run_fake(kind, script=script, receipts=receipts, callback=callback))
            options = OPTIONS[kind] | address(kind, fake)
            carriers.append(carrier(PLACES[case], CHANNEL[kind], kind, country, **options))
        yield stack.enter_context(texting(tmp_path_factory.mktemp("everywhere"), *carriers, port=port))


@pytest.mark.parametrize("case", CASES)
def test_carrier_response_and_callback_decide_the_message_status(everywhere: Service, case: str) -> None:
    kind, _, _, _, phone, status, charged = CASES[case]
    before = credit(everywhere)
    message = ends(everywhere, send(everywhere, phone, CHANNEL[kind]), status)
    assert_charged(everywhere, before, price(CHANNEL[kind], CASES[case][3]) if charged else "0")
    states = [event["status"] for event in message["events"] if event["sequence"]]
    assert len(states) == len(set(states)), "no state twice"
    assert SECRET not in str(message)


@pytest.mark.parametrize("kind", ["twilio", "http", "cloud_api"])
def test_forged_callbacks_change_nothing(everywhere: Service, kind: str) -> None:
    """A valid callback with one byte changed, with another carrier's secret, and without a signature."""
    case = next(case for case in CASES if case.startswith(f"{kind}: ") and CASES[case][5] != "failed")
    id_ = send(everywhere, CASES[case][4], CHANNEL[kind])
    sent = ends(everywhere, id_, CASES[case][5])
    carrier_id = f"{kind}-forged"
    path = callback_path(case)
    fakes = {"twilio": TwilioFake, "http": HttpFake, "cloud_api": CloudApiFake}
    base = f"http://127.0.0.1:{everywhere.ports[-1]}{path}"
    known = {"id": carrier_id, "to": CASES[case][4], "callback": base, "message_id": id_}
    state = {"twilio": "failed", "http": "UNDELIV", "cloud_api": "failed"}[kind]
    chance = random.Random(7)
    for number in range(334):  # 1,002 of all three kinds
        fake = fakes[kind](secret=SECRET if number % 3 == 0 else "another secret", callback=base)
        _, headers, body = fake.receipt(known, state)
        if number % 3 == 0:
            place = chance.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        elif number % 3 == 1:
            headers = {"Content-Type": headers["Content-Type"]}
        assert everywhere.post(path, body, key=None, headers=headers).status in (400, 403)
    assert everywhere.get(f"/v1/{CHANNEL[kind]}/{id_}").json == sent


def test_callback_with_a_message_id_of_another_carrier_changes_nothing(everywhere: Service) -> None:
    """The callback is correctly signed, by a carrier that never got the message."""
    one, other = "http: delivered", "http: failed"
    id_ = send(everywhere, CASES[one][4])
    sent = ends(everywhere, id_, "delivered")
    path = callback_path(other)
    for number in range(1, 5):
        known = {"id": f"HttpFake-{number}", "callback": f"http://127.0.0.1:{everywhere.ports[-1]}{path}"}
        _, headers, body = HttpFake().receipt(known, "UNDELIV")
        assert everywhere.post(path, body, key=None, headers=headers).status == 200
    assert everywhere.get(f"/v1/sms/{id_}").json == sent


def test_meta_webhook_challenge_is_answered(everywhere: Service) -> None:
    path = callback_path("cloud_api: read")
    asked = f"{path}?hub.mode=subscribe&hub.verify_token=challenge-token&hub.challenge=4711"
    answer = everywhere.get(asked, key=None)
    assert (answer.status, answer.raw) == (200, b"4711")
    forged = everywhere.get(asked.replace("challenge-token", "other"), key=None)
    assert (forged.status, forged.code) == (403, "callback_not_verified")
    assert forged.headers["heliograph-should-retry"] == "false"


def test_marketing_opt_out_blocks_only_marketing_templates(everywhere: Service) -> None:
    """Meta's 131050 applies only to MARKETING templates (contract 17)."""
    phone = CASES["cloud_api: no marketing"][4]
    ends(everywhere, send(everywhere, phone, "whatsapp"), "failed")
    (listed,) = until(lambda: everywhere.get(f"/v1/opt-outs/{phone}").json.get("data"))
    assert (listed["channel"], listed["reason"]) == ("whatsapp", "marketing")
    offer = everywhere.post("/v1/whatsapp", {"to": phone, "template_id": "tpl_offer"})
    assert (offer.status, offer.code) == (403, "recipient_opted_out")
    assert everywhere.post("/v1/whatsapp", request(phone, "whatsapp")).status == 202


def tell_of_template(service: Service, event: str, **more: Any) -> None:
    value = {"event": event, "message_template_name": "parcel", "message_template_language": "en", **more}
    change = {"field": "message_template_status_update", "value": value}
    body = json.dumps({"entry": [{"id": "1", "time": int(time.time()), "changes": [change]}]}).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    headers = {"X-Hub-Signature-256": signature, "Content-Type": "application/json"}
    assert service.post(callback_path("cloud_api: read"), body, key=None, headers=headers).status == 200


def template_events(service: Service) -> list[Any]:
    feed = service.get("/v1/events?limit=100").json["data"]
    return [one["data"]["upstream_status"] for one in feed if one["type"] == "template.status_changed"]


def test_template_refused_by_meta_fails_the_message(everywhere: Service) -> None:
    """Sends are refused in every API with Meta's reason, until Meta approves the template again (contract 17)."""
    body = request("+447700900123", "whatsapp")
    tell_of_template(everywhere, "PAUSED", reason="NONE", other_info={"title": "FIRST_PAUSE"})
    for path, given in (
        ("/v1/whatsapp", body | {"variables": {}}),
        ("/v1/whatsapp?dry_run=true", body),
        ("/v1/whatsapp/batch", {"messages": [body]}),
    ):
        answer = everywhere.post(path, given)
        assert (answer.status, answer.code) == (409, "template_unavailable"), path
        assert "FIRST_PAUSE" in answer.json["error"]["message"]
    wrong = everywhere.post("/v1/sms", body)
    assert (wrong.status, wrong.code) == (409, "wrong_template_channel")
    found = everywhere.get("/v1/templates/tpl_whatsapp").json
    assert (found["upstream_status"], found["upstream_reason"]) == ("paused", "FIRST_PAUSE")
    tell_of_template(everywhere, "APPROVED", reason="NONE")
    (listed,) = (one for one in everywhere.get("/v1/templates").json["data"] if one["id"] == "tpl_whatsapp")
    assert (listed["upstream_status"], listed["upstream_reason"]) == ("approved", None)
    assert everywhere.post("/v1/whatsapp?dry_run=true", body).status == 200
    until(lambda: template_events(everywhere) == ["paused", "approved"])


@pytest.mark.parametrize("path", ["/carriers/nobody/callback", "/carriers/sim-sms/callback"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_callback_without_the_secret_is_not_found(everywhere: Service, path: str, method: str) -> None:
    answer = everywhere.ask(method, path, b"{}" if method == "POST" else None, key=None)
    assert (answer.status, answer.code) == (404, "not_found")


def test_callback_with_no_secret_configured_is_404(
    everywhere: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = tmp_path_factory.mktemp("bare") / "bare.toml"
    whatsapp = carrier(99, "whatsapp", "cloud_api", "JP", phone_number_id="1", access_token="t")
    bare.write_text(whatsapp + carrier(99, "sms", "http", "JP", url="http://127.0.0.1:1/send"))
    everywhere.apply(bare)
    for id_ in ("cloud-api-99", "http-99"):
        until(lambda id_=id_: everywhere.post(f"/carriers/{id_}/callback", b"{}", key=None).status == 404)
        assert everywhere.get(f"/carriers/{id_}/callback", key=None).status == 404
