"""Notices: what somebody chooses, the chat of a team, and that its address is never shown."""

import pytest

from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage import audit
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

ACCOUNT, TEAM, INSTANCE = "/dashboard/account/notices", "/dashboard/teams/team_a/notices", "/dashboard/operator/notices"
URL = "https://1.1.1.1/services/SECRET"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    await set_up(store, ("team", "team_a", TeamRecord(ref=1, id="team_a", name=f"A {EVIL}"), "team_a"))
    return Pages(make_context(store, clock))


def is_checked(html: str, name: str) -> bool:
    return f'name="{name}" value="yes" checked' in html


async def test_a_viewer_is_told_nothing_unless_they_choose(pages: Pages) -> None:
    owner, page = await pages.get(ACCOUNT, "owner"), await pages.get(ACCOUNT, "viewer")
    assert is_checked(owner.html, "team_a/domain") and "As a viewer" not in owner.text and "As a viewer" in page.text
    assert not is_checked(page.html, "team_a/domain") and EVIL not in page.html
    assert (await pages.post(ACCOUNT, {"team_a/domain": "yes", "team_b/domain": "yes"}, "viewer")).notice == "Saved."
    page = await pages.get(ACCOUNT, "viewer")
    assert is_checked(page.html, "team_a/domain") and not is_checked(page.html, "team_a/credit")
    assert (await pages.post(ACCOUNT, {"team_a/domain": "yes"}, "viewer")).notice == "Nothing was changed."
    assert "dead_letters" not in page.html


async def test_an_operator_chooses_for_the_instance(pages: Pages) -> None:
    assert is_checked((await pages.get(ACCOUNT, OPERATOR)).html, "/dead_letters")
    await pages.post(ACCOUNT, {"/platform": "yes"}, OPERATOR)
    page = await pages.get(ACCOUNT, OPERATOR)
    assert is_checked(page.html, "/platform") and not is_checked(page.html, "/dead_letters")


@pytest.mark.parametrize(("place", "who"), [(TEAM, "owner"), (INSTANCE, OPERATOR)])
@pytest.mark.both_databases
async def test_a_chat_is_set_tested_and_removed_and_never_shown(
    pages: Pages, store: Store, place: str, who: str
) -> None:
    assert (await pages.post(f"{place}/test", {}, who)).status == 400
    assert (await pages.post(place, {"url": URL}, who)).status == 303
    page = await pages.get(place, who)
    assert "Notices are posted to 1.1.1.1" in page.text and "SECRET" not in page.html
    assert (await pages.post(f"{place}/test", {}, who)).status == 303
    hook = await store.notices.hook("team_a" if place == TEAM else "")
    assert hook and "SECRET" not in hook.sealed
    await pages.post(f"{place}/remove", {}, who)
    assert "Notices are posted" not in (await pages.get(place, who)).text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://1.1.1.1/x", "begins with https://"),
        ("", "begins with https://"),
        ("https://10.0.0.1/x", "private or reserved"),
        ("https://localhost/x", "private or reserved"),
        ("https://user:secret@1.1.1.1/x", "user name or password"),
    ],
)
async def test_an_address_that_webhooks_may_not_reach_is_refused(pages: Pages, url: str, said: str) -> None:
    page = await pages.post(TEAM, {"url": url})
    assert (page.status, said in page.text) == (400, True)


async def test_only_owners_and_operators_change_a_chat(pages: Pages) -> None:
    for who in ("viewer", "developer"):
        assert (await pages.post(TEAM, {"url": URL}, who)).status == 403
        assert (await pages.get(TEAM, who)).status == 200
    assert (await pages.post(INSTANCE, {"url": URL}, "owner")).status == 403


async def test_what_was_told_is_listed(pages: Pages, store: Store, clock: TestClock) -> None:
    await pages.post(TEAM, {"url": URL})
    entry = SERVICE.did(clock.now(), "domain.failed", EVIL, team="team_a")
    await store.database.write(lambda tx: audit.write(tx, entry))
    await store.notices.spread(store.setup.current, by_mail=False)
    assert len(await store.notices.take()) == 1
    page = await pages.get(TEAM)
    assert "can no longer send" in page.text and EVIL not in page.html
