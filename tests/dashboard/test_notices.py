"""Notices: a user's choices, the chat webhook of a team, and that its URL is never shown."""

import pytest

from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage import audit
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

ACCOUNT, TEAM, INSTANCE = "/dashboard/account/notices", "/dashboard/teams/team_a/notices", "/dashboard/operator/notices"
URL = "https://1.1.1.1/services/SECRET"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    await write_records(store, ("team", "team_a", TeamRecord(ref=1, id="team_a", name=f"A {EVIL}"), "team_a"))
    return Pages(make_context(store, clock))


def is_checked(html: str, name: str) -> bool:
    return f'name="{name}" value="yes" checked' in html


async def test_viewer_gets_no_notices_by_default(pages: Pages) -> None:
    owner, page = await pages.get(ACCOUNT, "owner"), await pages.get(ACCOUNT, "viewer")
    assert (
        is_checked(owner.html, "team_a/domain")
        and "Viewers get none" not in owner.text
        and "Viewers get none" in page.text
    )
    assert not is_checked(page.html, "team_a/domain") and EVIL not in page.html
    assert (await pages.post(ACCOUNT, {"team_a/domain": "yes", "team_b/domain": "yes"}, "viewer")).notice == "Saved."
    page = await pages.get(ACCOUNT, "viewer")
    assert is_checked(page.html, "team_a/domain") and not is_checked(page.html, "team_a/credit")
    assert (await pages.post(ACCOUNT, {"team_a/domain": "yes"}, "viewer")).notice == "No changes."
    assert "dead_letters" not in page.html


async def test_operator_chooses_instance_notices(pages: Pages) -> None:
    assert is_checked((await pages.get(ACCOUNT, OPERATOR)).html, "/dead_letters")
    await pages.post(ACCOUNT, {"/platform": "yes"}, OPERATOR)
    page = await pages.get(ACCOUNT, OPERATOR)
    assert is_checked(page.html, "/platform") and not is_checked(page.html, "/dead_letters")


@pytest.mark.parametrize(("place", "who"), [(TEAM, "owner"), (INSTANCE, OPERATOR)])
@pytest.mark.both_databases
async def test_chat_webhook_is_set_tested_removed_and_never_shown(
    pages: Pages, store: Store, place: str, who: str
) -> None:
    assert (await pages.post(f"{place}/test", {}, who)).status == 400
    assert (await pages.post(place, {"url": URL}, who)).status == 303
    page = await pages.get(place, who)
    assert "Notices are posted to 1.1.1.1" in page.text and "SECRET" not in page.html
    assert (await pages.post(f"{place}/test", {}, who)).status == 303
    hook = await store.notices.get_chat_webhook("team_a" if place == TEAM else "")
    assert hook and "SECRET" not in hook.encrypted_url
    await pages.post(f"{place}/remove", {}, who)
    assert "Notices are posted" not in (await pages.get(place, who)).text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://1.1.1.1/x", "starting with https://"),
        ("", "starting with https://"),
        ("https://10.0.0.1/x", "private or reserved"),
        ("https://localhost/x", "private or reserved"),
        ("https://user:secret@1.1.1.1/x", "user name or password"),
    ],
)
async def test_chat_webhook_to_blocked_address_is_refused(pages: Pages, url: str, said: str) -> None:
    page = await pages.post(TEAM, {"url": url})
    assert (page.status, said in page.text) == (400, True)


async def test_chat_webhook_change_by_others_returns_403(pages: Pages) -> None:
    for who in ("viewer", "developer"):
        assert (await pages.post(TEAM, {"url": URL}, who)).status == 403
        assert (await pages.get(TEAM, who)).status == 200
    assert (await pages.post(INSTANCE, {"url": URL}, "owner")).status == 403


async def test_sent_notices_are_listed(pages: Pages, store: Store, clock: TestClock) -> None:
    await pages.post(TEAM, {"url": URL})
    entry = SERVICE.audit_entry(clock.now(), "domain.failed", EVIL, team="team_a")
    await store.database.write(lambda tx: audit.write(tx, entry))
    await store.notices.fan_out(store.setup.current, by_mail=False)
    assert len(await store.notices.take_due()) == 1
    page = await pages.get(TEAM)
    assert "can no longer send" in page.text and EVIL not in page.html
