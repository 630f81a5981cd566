"""The page of a team's messages that wait for approval, and the decisions on it."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.limits import DAY_MS
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.samples import send_email
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
HERE = "/dashboard/teams/team_acme"


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    records: list[tuple[str, str, TeamRecord, str | None]] = [
        ("team", id_, TeamRecord(ref=ref, id=id_, name=id_), id_) for ref, id_ in ((1, "team_acme"), (2, "team_other"))
    ]
    await write_records(store, *records)
    return Pages(make_context(store, clock))


async def hold(store: Store, clock: Any, subject: str, *to: str) -> str:
    """Send an email that is held; return its id without the prefix."""
    content = EmailContent(
        from_name="Acme", from_address="hi@acme.test", to=["ada@example.com"], cc=[], subject=subject, text="Hello"
    )
    more = {"status": "queued", "approval_expires_at": clock.now() + DAY_MS, "content": msgspec.json.encode(content)}
    id_ = await send_email(store, clock, subject, "ada@example.com", *to, **more)
    return id_.partition("_")[2]


async def test_owner_sees_and_decides_held_messages(store: Store, clock: TestClock, pages: Pages) -> None:
    assert "Nothing to approve" in (await pages.get(f"{HERE}/approvals")).text
    released, rejected = await hold(store, clock, "Welcome"), await hold(store, clock, "Advert")
    listed = (await pages.get(f"{HERE}/approvals")).html
    for subject, id_ in (("Welcome", released), ("Advert", rejected)):
        assert subject in listed and f"{HERE}/messages/eml_{id_}" in listed
    message = await pages.get(f"{HERE}/messages/eml_{released}")
    assert "Waiting for approval" in message.text and f"/approvals/apr_{released}/release" in message.html
    assert "we retry" not in message.text
    assert (await pages.post(f"{HERE}/approvals/apr_{released}/release")).notice == "Message released."
    assert (await pages.post(f"{HERE}/approvals/apr_{rejected}/reject")).status == 303
    assert [claim.message_id for claim in await store.outbox.claim("email", 10)] == [f"eml_{released}"]
    assert "rejected the message" in (await pages.get(f"{HERE}/messages/eml_{rejected}")).text
    again = await pages.post(f"{HERE}/approvals/apr_{rejected}/release")
    assert "already released or rejected" in again.notice
    assert "/release" not in (await pages.get(f"{HERE}/messages/eml_{rejected}")).html
    actions = [row.action for row in await store.audit.list_rows("team_acme", 1 << 62, 10)]
    assert actions[:2] == ["message.reject", "message.release"]


async def test_list_counts_the_recipients_it_does_not_name(store: Store, clock: TestClock, pages: Pages) -> None:
    await hold(store, clock, "Welcome")
    assert "ada@example.com and" not in (await pages.get(f"{HERE}/approvals")).text
    await hold(store, clock, "Advert", "bob@example.com", "eve@example.com")
    assert "ada@example.com and 2 more" in (await pages.get(f"{HERE}/approvals")).text


async def test_approval_of_another_team_is_not_found(store: Store, clock: TestClock, pages: Pages) -> None:
    id_ = await hold(store, clock, "Welcome")
    path = f"/dashboard/teams/team_other/approvals/apr_{id_}"
    assert ((await pages.post(f"{path}/release")).status, (await pages.post(f"{path}/reject")).status) == (404, 404)
    assert len(await store.approvals.list_pending(1, 10)) == 1


async def test_developer_decides_nothing(store: Store, clock: TestClock, pages: Pages) -> None:
    id_ = await hold(store, clock, "Welcome")
    assert (await pages.get(f"{HERE}/approvals", "developer")).status != 200
    assert (await pages.post(f"{HERE}/approvals/apr_{id_}/release", who="developer")).status != 303
    assert len(await store.approvals.list_pending(1, 10)) == 1


async def test_menu_counts_pending_messages_for_owners_and_operators(
    store: Store, clock: TestClock, pages: Pages
) -> None:
    assert "waiting" not in (await pages.get(f"{HERE}/messages")).text
    ids = [await hold(store, clock, subject) for subject in ("Welcome", "Advert", "News")]
    for who in ("owner", "operator"):
        assert "Message approvals 3 waiting" in (await pages.get(f"{HERE}/messages", who)).text
    for path, who in ((f"{HERE}/events", "developer"), ("/dashboard/teams/team_other/messages", "owner")):
        assert "waiting</span>" not in (await pages.get(path, who)).html
    await pages.post(f"{HERE}/approvals/apr_{ids[0]}/release")
    assert "Message approvals 2 waiting" in (await pages.get(f"{HERE}/approvals")).text


@pytest.mark.parametrize(
    ("hours", "error"),
    [("0", "from 1 to 168"), ("169", "from 1 to 168"), ("a day", "whole number"), ("", "whole number")],
)
async def test_hours_to_approve_are_changed_by_owners(pages: Pages, hours: str, error: str) -> None:
    form = {"name": "team_acme", "credit_low": "0"}
    refused = await pages.post(f"{HERE}/settings", form | {"approval_hours": hours})
    assert refused.status == 400 and error in refused.text and f'value="{hours}"' in refused.html
    assert (await pages.post(f"{HERE}/settings", form | {"approval_hours": "48"}, who="developer")).status == 403
    assert pages.setup.teams["team_acme"].record.approval_hours == 24
    assert (await pages.post(f"{HERE}/settings", form | {"approval_hours": "48"})).notice == "Team saved."
    assert pages.setup.teams["team_acme"].record.approval_hours == 48
    assert "48 hours" in (await pages.get(f"{HERE}/settings", "developer")).text
