"""Money (spec 8, contract 7): quota, prices by country and segment, hold, capture, release."""

from decimal import Decimal
from typing import Any

import pytest

from tests.api.sends import SMS, WHATSAPP, Body, assert_refused, idle_me, send, settled
from tests.service import Service

US, GB, DE = "+14155550123", "+447400123456", "+4915112345678"


def credit(service: Service, key: str = "ACME") -> Decimal:
    return Decimal(idle_me(service, key)["credit"])


def spent(service: Service, path: str, body: Body, key: str = "ACME") -> Decimal:
    before = credit(service, key)
    send(service, path, body, key)
    return before - credit(service, key)


def test_emails_above_the_quota_are_charged(service: Service) -> None:
    """On both databases. The quota is 3, the credit 0.30; the template costs 0.25."""

    def used(to: list[str], **more: Any) -> tuple[int, int, str]:
        body = {"to": to, "from": "a@quota.test", **(more or {"template_id": "tpl_quota"})}
        status = service.post("/v1/emails", body, key="QUOTA").status
        me = idle_me(service, "QUOTA")
        return status, me["email_quota"]["used"], me["credit"]

    single, three = ["a@example.com"], ["a@example.com", "b@example.com", "a@example.com"]
    assert used(single) == (202, 1, "0.3000")
    assert used(single) == (202, 2, "0.3000")
    assert used(three) == (202, 5, "0.3000")  # begins within the quota, so all three are free, and all count
    assert used(single, subject="Direct", text="x") == (202, 6, "0.3000")  # direct sends are free
    assert used(["delivered@simulator.test"]) == (202, 6, "0.3000")  # magic: neither counted nor charged
    assert used(["failed@example.com"]) == (202, 7, "0.3000")  # on hold, then released, because the carrier refused
    assert used(three) == (202, 10, "0.0500")  # charged once per send, not per recipient
    assert used(single) == (400, 10, "0.0500")
    assert used(single, subject="Direct", text="x") == (202, 11, "0.0500")


@pytest.mark.parametrize(
    ("to", "note", "price"),
    [
        (US, "", "0.0450"),
        (GB, "", "0.0350"),
        (DE, "", "0"),
        (US, "x" * 129, "0.0450"),  # 31 characters are before it: 160
        (US, "x" * 130, "0.0900"),
        (US, "x" * 289, "0.0900"),  # 320
        (US, "x" * 290, "0.1350"),
        (GB, "x" * 130, "0.0700"),
        (DE, "x" * 130, "0"),
        (US, "€" * 64, "0.0450"),  # an extension character counts two: 159
        (US, "€" * 65, "0.0900"),
        (US, "ж" * 39, "0.0450"),  # UCS-2: 70
        (US, "ж" * 40, "0.0900"),
        (US, "😀" * 19 + "x", "0.0450"),  # beyond the BMP two units: 70
        (US, "😀" * 20, "0.0900"),
    ],
)
def test_sms_costs_price_times_segments(shared_service: Service, to: str, note: str, price: str) -> None:
    body = SMS | {"to": to, "variables": {"parcel": "A1", "note": note}}
    assert spent(shared_service, "/v1/sms", body) == Decimal(price)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("x" * 160, "0.0450"),
        ("x" * 161, "0.0900"),
        ("x" * 306, "0.0900"),
        ("x" * 307, "0.1350"),  # with the spec's 160 it would be two
        ("ж" * 70, "0.0450"),
        ("ж" * 134, "0.0900"),
        ("ж" * 135, "0.1350"),
    ],
)
def test_segments_of_a_team_billed_by_parts(shared_service: Service, text: str, price: str) -> None:
    body = {"to": US, "template_id": "tpl_udh_sms", "variables": {"text": text}}
    assert spent(shared_service, "/v1/sms", body, "UDH") == Decimal(price)


def test_whatsapp_costs_its_price_once(shared_service: Service) -> None:
    assert spent(shared_service, "/v1/whatsapp", WHATSAPP | {"to": US}) == Decimal("0.0300")


def test_verify_costs_the_flat_rate(shared_service: Service) -> None:
    before = credit(shared_service)
    assert shared_service.post("/v1/verify", {"to": "+14155550177"}).status == 202
    assert before - credit(shared_service) == Decimal("0.0500")


def test_an_unsent_verification_is_free(shared_service: Service) -> None:
    before = credit(shared_service)
    assert shared_service.post("/v1/verify", {"to": "+33612345679"}).json["status"] == "failed"
    assert credit(shared_service) == before


def test_sandbox_is_free(shared_service: Service) -> None:
    before = shared_service.get("/v1/me", key="SANDBOX").json
    sms = {"to": "+447400123456", "template_id": "tpl_sandbox_sms", "variables": {"parcel": "x"}}
    send(shared_service, "/v1/sms", sms, "SANDBOX")
    send(shared_service, "/v1/emails", {"to": "me@example.com", "template_id": "tpl_sandbox_email"}, "SANDBOX")
    assert shared_service.get("/v1/me", key="SANDBOX").json == before


def test_a_hold_is_captured_when_the_carrier_accepts(service: Service) -> None:
    """On both databases: a send is never in credit and held at the same time, and the hold ends."""
    body = {"to": US, "template_id": "tpl_poor_sms"}
    answer = service.post("/v1/sms", body, key="POOR")
    me = service.get("/v1/me", key="POOR").json
    assert (me["credit"], me["held"]) in (("0.4050", "0.0450"), ("0.4050", "0.0000"))
    settled(service, f"/v1/sms/{answer.json['id']}", "POOR")
    assert idle_me(service, "POOR")["credit"] == "0.4050"


def test_credit_for_ten_messages_sends_ten(service: Service) -> None:
    body = {"to": US, "template_id": "tpl_poor_sms"}
    answers = [service.post("/v1/sms", body, key="POOR") for _ in range(11)]
    assert [answer.status for answer in answers] == [202] * 10 + [400]
    assert_refused(answers[-1], 400, "insufficient_credit")
    assert answers[-1].json["error"]["details"] == {"price": "0.0450", "credit": "0.0000"}
    assert idle_me(service, "POOR")["credit"] == "0.0000"
    assert service.post("/v1/verify", {"to": GB}, key="POOR").code == "insufficient_credit"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/emails", {"to": "a@example.com", "from": "a@poor.test", "template_id": "tpl_poor_email"}),
        ("/v1/whatsapp", {"to": US, "template_id": "tpl_poor_whatsapp"}),
    ],
)
def test_insufficient_credit_charges_nothing(shared_service: Service, path: str, body: Body) -> None:
    before = idle_me(shared_service, "POOR")
    assert_refused(shared_service.post(path, body, key="POOR"), 400, "insufficient_credit")
    assert idle_me(shared_service, "POOR") == before


def test_amounts_are_decimal_strings(shared_service: Service) -> None:
    me = shared_service.get("/v1/me").json
    for name in ("credit", "held"):
        assert isinstance(me[name], str) and Decimal(me[name]) >= 0
