"""A requested change takes effect only after approval, for every field that a team can ask to change."""

from typing import Any

import pytest

from heliograph.domain.delivery import routing
from heliograph.domain.mail.system_mail import SystemMail, render_text
from heliograph.domain.setup.records import CarrierRecord, DisplayName, Domain, SenderId, TeamRecord
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme"
APPROVALS = f"/dashboard/operator/approvals/{TEAM}"
DOMAIN = Domain(id="dom_acme", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True)
SENDER = SenderId(team=TEAM, country="GB", value="ACME", approved=True)
pytestmark = pytest.mark.anyio

# (kind, form that requests the change, value of the field until the approval)
CHANGES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "domain": (f"{HERE}/senders/domains/dom_acme/brand", {"brand": "PayPal"}, "Acme", "PayPal"),
    "sender_id": (f"{HERE}/senders/sender-ids", {"country": "GB", "value": "PAYPAL"}, "ACME", "PAYPAL"),
    "team": (f"{HERE}/settings", {"name": "PayPal", "credit_low": "5", "approval_hours": "24"}, "Acme", "PayPal"),
}


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id=TEAM, name="Acme")
    name = DisplayName(id="dn_1", team=TEAM, domain=DOMAIN.id, name="Acme Support", approved=True)
    await write_records(
        store,
        ("team", TEAM, record, TEAM),
        ("domain", DOMAIN.id, DOMAIN, TEAM),
        ("display_name", name.id, name, TEAM),
        ("sender_id", f"{TEAM}/GB", SENDER, TEAM),
    )
    return Pages(make_context(store, clock))


def live_value(pages: Pages, kind: str) -> str | None:
    """Return the field's value as sends use it."""
    team = pages.setup.teams[TEAM]
    if kind == "domain":
        return team.approved_domains[0].brand
    return routing.sender_id(team, "GB") if kind == "sender_id" else team.record.name


async def decide_pending(pages: Pages, **fields: str) -> Any:
    (item,) = pending_senders(pages.setup)
    return await pages.post(APPROVALS, {"kind": item.kind, "id": item.id, "text": item.text} | fields, OPERATOR)


@pytest.mark.parametrize("kind", CHANGES)
async def test_pending_change_keeps_approved_value_in_use(pages: Pages, kind: str) -> None:
    path, form, old, new = CHANGES[kind]
    assert "is waiting for approval" in (await pages.post(path, form)).notice
    assert live_value(pages, kind) == old
    assert f"{new}" in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    await decide_pending(pages, approve="yes")
    assert (live_value(pages, kind), pending_senders(pages.setup)) == (new, [])


@pytest.mark.parametrize("kind", CHANGES)
async def test_refused_change_keeps_approved_value(pages: Pages, kind: str) -> None:
    path, form, old, _ = CHANGES[kind]
    await pages.post(path, form)
    assert (await decide_pending(pages, approve="no")).status == 400  # without a reason
    await decide_pending(pages, approve="no", reason="Not yours.")
    assert (live_value(pages, kind), pending_senders(pages.setup)) == (old, [])
    page = path.removesuffix("/brand").removesuffix("/sender-ids")
    assert "was refused: Not yours." in (await pages.get(page)).text
    await pages.post(path, form)
    assert len(pending_senders(pages.setup)) == 1  # requested again


@pytest.mark.parametrize("kind", CHANGES)
async def test_change_after_review_is_not_approved(pages: Pages, kind: str) -> None:
    path, form, old, _ = CHANGES[kind]
    await pages.post(path, form)
    (pending_item,) = pending_senders(pages.setup)
    field = next(name for name in ("brand", "value", "name") if name in form)
    await pages.post(path, form | {field: "OTHER"})
    await pages.post(
        APPROVALS,
        {"kind": pending_item.kind, "id": pending_item.id, "text": pending_item.text, "approve": "yes"},
        OPERATOR,
    )
    assert live_value(pages, kind) == old
    await pages.post(path, form | {field: old})  # withdrawn
    assert pending_senders(pages.setup) == []


@pytest.mark.parametrize("kind", ["domain", "team"])
async def test_operator_change_applies_without_approval(pages: Pages, kind: str) -> None:
    path, form, _, new = CHANGES[kind]
    await pages.post(path, form, OPERATOR)
    assert (live_value(pages, kind), pending_senders(pages.setup)) == (new, [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Acme", 'The team is called "Acme".'),
        ('Acme "Best" Ltd. 24', "The team is called \"Acme 'Best' Ltd. 24\"."),
        ("Your bank: evil.test https://evil.test a@b.test now", 'The team is called "Your now".'),
        ("evil.test", ""),
        ("Call +1 415 555 0100", 'The team is called "Call +1".'),
    ],
)
async def test_verification_mail_to_recipient_has_fixed_wording(
    store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    sent: list[tuple[str, SystemMail]] = []

    async def send(store: Store, failover: Any, whose: str, address: str, mail: SystemMail) -> None:
        sent.append((address, mail))

    monkeypatch.setattr("heliograph.manage.platform_mail.send_system_mail", send)
    await write_records(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name=name), TEAM),
        ("carrier", "mx", CarrierRecord(id="mx", channel="email", kind="mx"), None),
    )
    await Pages(make_context(store, clock)).post(f"{HERE}/senders/recipients", {"address": "ada@example.com"})
    ((to, mail),) = sent
    assert (to, mail.subject) == ("ada@example.com", "Heliograph: confirm test messages")
    first = f"A team that uses Heliograph wants to send test messages to ada@example.com. {said}".strip()
    assert render_text(mail).splitlines()[0] == f"{first} If you agree, give the team this code:"
