"""Operator pages: platform keys, and teams that are to be deleted."""

import re
from typing import Any

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.keys import has_hash, parse_token
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.teams import DELETION_DELAY_MS
from heliograph.storage.audit import NEWEST, AuditFilter
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

KEYS = "/dashboard/operator/keys"
TEAM = "/dashboard/operator/teams/team_acme"


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    await write_records(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


async def newest_entry(store: Store) -> tuple[str, str, str, str | None]:
    row = (await store.audit.list_page(None, AuditFilter(), NEWEST, 1)).rows[0]
    return row.action, row.actor_name, row.subject, row.team


async def test_platform_key_is_created_shown_once_and_revoked(pages: Pages, store: Store) -> None:
    form = {"name": "crm", "expires": "2090-01-31", "networks": "192.0.2.0/24, 2001:db8::7"}
    created = await pages.post(KEYS, form, OPERATOR)
    (token,) = re.findall(r"hk_\w{10}_\w{49}", created.html)
    (key,) = keys.keys_of(store.setup.current, PLATFORM_TEAM)
    assert has_hash(token, key.hash) and key.id == parse_token(token)
    assert (key.name, key.scopes, key.networks) == ("crm", ("operate",), ("192.0.2.0/24", "2001:db8::7"))
    assert key.expires_at and key.restrictions is None
    assert await newest_entry(store) == ("key.create", "usr_operator", "crm", None)
    listed = await pages.get(KEYS, OPERATOR)
    assert "crm" in listed.text and token not in listed.html
    assert (await pages.post(f"{KEYS}/{key.id}/revoke", {}, OPERATOR)).notice == "Key crm revoked."
    assert store.setup.current.callers[key.id].key.revoked
    assert await newest_entry(store) == ("key.revoke", "usr_operator", "crm", None)
    assert f"{KEYS}/{key.id}/revoke" not in (await pages.get(KEYS, OPERATOR)).html


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"name": ""}, "Enter a name"),
        ({"name": "crm", "expires": "2020-01-01"}, "future date"),
        ({"name": "crm", "networks": "here"}, "addresses or ranges"),
    ],
)
async def test_invalid_platform_key_is_not_created(pages: Pages, form: dict[str, str], why: str) -> None:
    response = await pages.post(KEYS, form, OPERATOR)
    assert response.status == 400 and why in response.text
    assert keys.keys_of(pages.setup, PLATFORM_TEAM) == []


async def test_only_operators_manage_platform_keys(pages: Pages, store: Store) -> None:
    assert (await pages.get(KEYS, "owner")).status == 403
    assert (await pages.post(KEYS, {"name": "crm"}, "owner")).status == 403
    assert (await pages.post(KEYS, {"name": "crm"}, OBSERVER)).status == 403
    shown = await pages.get(KEYS, OBSERVER)
    assert shown.status == 200 and "New platform key" not in shown.text
    assert (await pages.get(f"{KEYS}/new", OBSERVER)).status == 403
    assert "Create platform key" in (await pages.get(f"{KEYS}/new", OPERATOR)).text
    key = await keys.create(store, COMMAND_LINE, keys.NewKey(team="team_acme", name="server"))
    assert (await pages.post(f"{KEYS}/{key.key.id}/revoke", {}, OPERATOR)).status == 404


async def test_team_is_deleted_after_confirmation_and_restored(pages: Pages, store: Store, clock: TestClock) -> None:
    asked = await pages.post(f"{TEAM}/delete", {"ask": "Delete this team?", "label": "Delete team"}, OPERATOR)
    assert asked.status == 200 and not pages.setup.teams["team_acme"].record.deletes_at
    assert "suspended" in (await pages.post(f"{TEAM}/delete", {}, OPERATOR)).notice
    record = pages.setup.teams["team_acme"].record
    assert record.suspended and abs(record.deletes_at - clock.now() - DELETION_DELAY_MS) < 60_000
    assert await newest_entry(store) == ("team.delete", "usr_operator", "team_acme", "team_acme")
    page = await pages.get(TEAM, OPERATOR)
    assert "This team will be deleted" in page.text and "Restore team" in page.text
    assert "Resume team" not in page.text and "Delete team" not in page.text
    assert (await pages.post(f"{TEAM}/restore", {}, OPERATOR)).notice == "Team restored. It can send again."
    assert not pages.setup.teams["team_acme"].record.suspended
    assert await newest_entry(store) == ("team.restore", "usr_operator", "team_acme", "team_acme")


async def test_only_operators_delete_and_restore_teams(pages: Pages) -> None:
    for action in ("delete", "restore"):
        for person in ("owner", OBSERVER):
            assert (await pages.post(f"{TEAM}/{action}", {}, person)).status in (403, 404)
    assert not pages.setup.teams["team_acme"].record.suspended
    assert "Delete team" not in (await pages.get(TEAM, OBSERVER)).text
