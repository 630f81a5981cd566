"""What was approved is what is used: every field of an approved record that its team can ask to change."""

from typing import Any

import pytest

from heliograph.domain.delivery import routing
from heliograph.domain.mail.system_mail import OwnMail, to_text
from heliograph.domain.setup.records import CarrierRecord, DisplayName, Domain, SenderId, TeamRecord
from heliograph.domain.setup.sender_approvals import pending
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme"
APPROVALS = f"/dashboard/operator/approvals/{TEAM}"
DOMAIN = Domain(id="dom_acme", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True)
SENDER = SenderId(team=TEAM, country="GB", value="ACME", approved=True)
pytestmark = pytest.mark.anyio

# The form that asks for the change, and what the record's field is until it is approved.
CHANGES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "domain": (f"{HERE}/senders/domains/dom_acme/brand", {"brand": "PayPal"}, "Acme", "PayPal"),
    "sender_id": (f"{HERE}/senders/sender-ids", {"country": "GB", "value": "PAYPAL"}, "ACME", "PAYPAL"),
    "team": (f"{HERE}/settings", {"name": "PayPal", "credit_low": "5"}, "Acme", "PayPal"),
}


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id=TEAM, name="Acme")
    name = DisplayName(id="dn_1", team=TEAM, domain=DOMAIN.id, name="Acme Support", approved=True)
    await set_up(
        store,
        ("team", TEAM, record, TEAM),
        ("domain", DOMAIN.id, DOMAIN, TEAM),
        ("display_name", name.id, name, TEAM),
        ("sender_id", f"{TEAM}/GB", SENDER, TEAM),
    )
    return Pages(make_context(store, clock))


def used(pages: Pages, kind: str) -> str | None:
    """As sends see it."""
    team = pages.setup.teams[TEAM]
    if kind == "domain":
        return team.approved_domains[0].brand
    return routing.sender_id(team, "GB") if kind == "sender_id" else team.record.name


async def decide(pages: Pages, **given: str) -> Any:
    (item,) = pending(pages.setup)
    return await pages.post(APPROVALS, {"kind": item.kind, "id": item.id, "text": item.text} | given, OPERATOR)


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_change_waits_while_the_old_one_is_used(pages: Pages, kind: str) -> None:
    path, form, old, new = CHANGES[kind]
    assert "waits for the operator's approval" in (await pages.post(path, form)).notice
    assert used(pages, kind) == old
    assert f"{new}" in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    await decide(pages, approve="yes")
    assert (used(pages, kind), pending(pages.setup)) == (new, [])


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_refused_change_leaves_what_was_approved(pages: Pages, kind: str) -> None:
    path, form, old, _ = CHANGES[kind]
    await pages.post(path, form)
    assert (await decide(pages, approve="no")).status == 400  # without a reason
    await decide(pages, approve="no", reason="Not yours.")
    assert (used(pages, kind), pending(pages.setup)) == (old, [])
    page = path.removesuffix("/brand").removesuffix("/sender-ids")
    assert "was refused: Not yours." in (await pages.get(page)).text
    await pages.post(path, form)
    assert len(pending(pages.setup)) == 1  # asked again


@pytest.mark.parametrize("kind", CHANGES)
async def test_what_was_seen_is_what_is_approved(pages: Pages, kind: str) -> None:
    path, form, old, _ = CHANGES[kind]
    await pages.post(path, form)
    (seen,) = pending(pages.setup)
    field = next(name for name in ("brand", "value", "name") if name in form)
    await pages.post(path, form | {field: "OTHER"})
    await pages.post(APPROVALS, {"kind": seen.kind, "id": seen.id, "text": seen.text, "approve": "yes"}, OPERATOR)
    assert used(pages, kind) == old
    await pages.post(path, form | {field: old})  # taken back
    assert pending(pages.setup) == []


@pytest.mark.parametrize("kind", ["domain", "team"])
async def test_an_operator_changes_it_at_once(pages: Pages, kind: str) -> None:
    path, form, _, new = CHANGES[kind]
    await pages.post(path, form, OPERATOR)
    assert (used(pages, kind), pending(pages.setup)) == (new, [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Acme", 'They call themselves "Acme".'),
        ('Acme "Best" Ltd. 24', "They call themselves \"Acme 'Best' Ltd. 24\"."),
        ("Your bank: evil.test https://evil.test a@b.test now", 'They call themselves "Your now".'),
        ("evil.test", ""),
        ("Call +1 415 555 0100", 'They call themselves "Call +1".'),
    ],
)
async def test_the_mail_to_a_recipient_has_fixed_words(
    store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    sent: list[tuple[str, OwnMail]] = []

    async def send(store: Store, handover: Any, whose: str, address: str, mail: OwnMail) -> None:
        sent.append((address, mail))

    monkeypatch.setattr("heliograph.manage.platform_mail.send", send)
    await set_up(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name=name), TEAM),
        ("carrier", "mx", CarrierRecord(id="mx", channel="email", kind="mx"), None),
    )
    await Pages(make_context(store, clock)).post(f"{HERE}/senders/recipients", {"address": "ada@example.com"})
    ((to, mail),) = sent
    assert (to, mail.subject) == ("ada@example.com", "Heliograph: confirm that you want test messages")
    first = f"A team that uses Heliograph would like to send test messages to ada@example.com. {said}".strip()
    assert to_text(mail).splitlines()[0] == f"{first} If you want them, give the team this code:"
