"""Webhooks: one audit entry per change, encrypted secrets, and what is refused."""

import asyncio
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.app import make_webhooks, webhook_secrets
from heliograph.bootstrap import make_secrets
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.mail.dkim import public_record
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.domain.setup.snapshot import to_row
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.webhooks import store as deliveries
from heliograph.webhooks.policy.webhook import WEBHOOKS_MAX, to_record
from heliograph.webhooks.service import WebhookChange, WebhookRequest, Webhooks
from heliograph.webhooks.store import ReplaySelection
from tests.clocks import TestClock
from tests.manage.test_keys import ADA
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "http://127.0.0.1:9/"
WANTED = WebhookRequest(url=URL, events=["*"], secret=SECRET)


@pytest.fixture
async def webhooks(settings: Settings, store: Store, clock: TestClock, teams: None) -> Webhooks:
    allowed = replace(settings, webhook_allow_private=("127.0.0.0/8",))
    return make_webhooks(allowed, make_secrets(settings), store, clock)


async def audited(store: Store) -> list[tuple[str, str, str, str]]:
    """Return the audit entries, oldest first."""
    lines = await store.audit.list_rows("team_1")
    return [(line.actor, line.action, line.subject, line.detail) for line in reversed(lines)]


async def test_webhook_change_writes_one_audit_entry(webhooks: Webhooks, store: Store) -> None:
    id_ = (await webhooks.create(ADA, "team_1", WANTED)).webhook.id
    await webhooks.change(ADA, "team_1", id_, WebhookChange(url=f"{URL}2", enabled=False))
    await webhooks.change(COMMAND_LINE, None, id_, WebhookChange(enabled=True))
    await webhooks.change(ADA, "team_1", id_, WebhookChange(enabled=True, url=f"{URL}2"))  # changes nothing
    await webhooks.change(ADA, "team_1", id_, WebhookChange(enabled=False))
    await webhooks.change(ADA, "team_1", id_, WebhookChange(enabled=True))
    await webhooks.rotate(ADA, "team_1", id_)
    event = await webhooks.test(ADA, "team_1", id_)
    for parameters in (
        ReplaySelection(event_ids=[event]),
        ReplaySelection(created_after=0),
        ReplaySelection(created_before=0),
    ):
        await webhooks.replay(ADA, "team_1", id_, parameters)  # the last one finds nothing
    await webhooks.remove(ADA, "team_1", id_)
    assert await audited(store) == [
        ("usr_ada", "webhook.create", URL, id_),
        ("usr_ada", "webhook.change", f"{URL}2", id_),
        ("command line", "webhook.enable", f"{URL}2", id_),
        ("usr_ada", "webhook.disable", f"{URL}2", id_),
        ("usr_ada", "webhook.enable", f"{URL}2", id_),
        ("usr_ada", "webhook.rotate", f"{URL}2", id_),
        ("usr_ada", "webhook.test", f"{URL}2", id_),
        ("usr_ada", "webhook.replay", f"{URL}2", event),
        ("usr_ada", "webhook.replay", f"{URL}2", "events after 1970-01-01T00:00:00.000Z"),
        ("usr_ada", "webhook.remove", f"{URL}2", id_),
    ]


async def test_webhook_login_is_encrypted_and_deleted_when_the_url_changes(
    webhooks: Webhooks, store: Store, settings: Settings
) -> None:
    vault, own = make_secrets(settings).cipher, URL.replace("//", "//me:s3cr3t@")

    def opened(hook: Webhook) -> bytes | None:
        return vault.decrypt(hook.login, f"webhook/{hook.id}/login") if hook.login else None

    async def moved(url: str) -> tuple[str, bytes | None]:
        hook = await webhooks.change(ADA, "team_1", created.id, WebhookChange(url=url))
        return hook.url, opened(hook)

    created = (await webhooks.create(ADA, "team_1", WebhookRequest(url=own, events=["*"]))).webhook
    assert (created.url, opened(created)) == (URL, b"me:s3cr3t")
    assert await moved(URL) == (URL, b"me:s3cr3t")  # as a form submits an unchanged URL
    assert await moved(URL.replace("//", "//@")) == (URL, None)
    assert await moved(own) == (URL, b"me:s3cr3t")
    assert await moved(f"{URL}2") == (f"{URL}2", None)
    assert "s3cr3t" not in repr(store.setup.current.records) + repr(await audited(store))
    with pytest.raises(InvalidRequest, match="as %XX") as error:
        await moved("http://me:ü@127.0.0.1/")
    assert error.value.param == "url"


async def test_replay_in_batches_writes_one_audit_entry(
    webhooks: Webhooks, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH_SIZE", 1)
    id_ = (await webhooks.create(ADA, "team_1", WANTED)).webhook.id
    for _ in range(3):
        await webhooks.test(ADA, "team_1", id_)
    assert await webhooks.replay(ADA, "team_1", id_, ReplaySelection()) == 3
    assert [action for _, action, _, _ in await audited(store)].count("webhook.replay") == 1


async def test_refused_webhook_change_writes_no_audit_entry(webhooks: Webhooks, store: Store) -> None:
    id_ = (await webhooks.create(ADA, "team_1", WANTED)).webhook.id
    with pytest.raises(InvalidRequest):
        await webhooks.create(ADA, "team_none", WANTED)
    with pytest.raises(InvalidRequest):
        await webhooks.change(ADA, "team_1", id_, WebhookChange(events=["no.such"]))
    with pytest.raises(InvalidRequest):
        await webhooks.replay(ADA, "team_1", id_, ReplaySelection(event_ids=["evt_none"]))
    assert len(await store.audit.list_rows(None)) == 1


async def test_webhook_secrets_are_encrypted_at_rest(webhooks: Webhooks, store: Store) -> None:
    first = await webhooks.create(ADA, "team_1", WANTED)
    second = await webhooks.rotate(ADA, "team_1", first.webhook.id)
    rows = await store.database.read(lambda tx: tx.run("load_settings", since=0))
    assert first.webhook.id in str(rows)
    for secret in (first.secret, second.secret):
        assert secret not in str(rows)
        assert secret.removeprefix("whsec_") not in str(rows)


async def test_removed_webhook_has_no_pending_events(webhooks: Webhooks, store: Store) -> None:
    hook, other = [(await webhooks.create(ADA, "team_1", WANTED)).webhook for _ in range(2)]
    await webhooks.test(ADA, "team_1", hook.id)
    await webhooks.test(ADA, "team_1", other.id)
    await webhooks.remove(ADA, "team_1", hook.id)
    assert await store.deliveries.list_page(hook.id, None, 10) == []
    assert len(await store.deliveries.list_page(other.id, None, 10)) == 1
    assert store.setup.current.webhooks == {1: (other,)}


async def test_webhook_of_another_team_cannot_be_changed(webhooks: Webhooks, store: Store) -> None:
    hook = (await webhooks.create(ADA, "team_1", WANTED)).webhook
    for attempt in (webhooks.remove, webhooks.rotate, webhooks.test):
        with pytest.raises(WebhookNotFound):
            await attempt(ADA, "team_2", hook.id)
    assert store.setup.current.webhooks == {1: (hook,)}


async def test_webhook_limit_applies_to_concurrent_requests(webhooks: Webhooks, store: Store) -> None:
    hook = (await webhooks.create(ADA, "team_1", WANTED)).webhook
    more = [replace(hook, id=f"{hook.id}{number}") for number in range(WEBHOOKS_MAX - 2)]
    rows = [to_row("webhook", item.id, item, "team_1") for item in more]
    await set_up(store, rows=rows)
    created = await asyncio.gather(*(webhooks.create(ADA, "team_1", WANTED) for _ in range(3)), return_exceptions=True)
    assert [type(item) for item in created].count(InvalidRequest) == 2
    assert len(store.setup.current.teams["team_1"].webhooks) == WEBHOOKS_MAX
    await webhooks.create(ADA, "team_2", WANTED)


async def test_webhook_keys_are_generated_outside_the_write_lock(
    webhooks: Webhooks, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are generated neither on the event loop nor inside the transaction."""
    made_in = list[str]()
    make_pair, in_transaction = webhooks._make_pair, list[bool]()
    write = store.database.write

    async def noted(transaction: Any) -> Any:
        in_transaction.append(True)
        try:
            return await write(transaction)
        finally:
            in_transaction.pop()

    def make() -> Any:
        made_in.append("transaction" if in_transaction else threading.current_thread().name)
        return make_pair()

    monkeypatch.setattr(webhooks, "_make_pair", make)
    monkeypatch.setattr(store.database, "write", noted)
    hook = (await webhooks.create(ADA, "team_1", replace(WANTED, format="postal"))).webhook
    await webhooks.rotate(ADA, "team_1", hook.id)
    other = (await webhooks.create(ADA, "team_1", WANTED)).webhook
    await webhooks.change(ADA, "team_1", other.id, WebhookChange(format="postal"))
    assert len(made_in) == 3 and {"transaction", "MainThread"}.isdisjoint(made_in)


async def test_key_pair_is_created_for_formats_that_need_one_and_replaced_with_the_secret(
    webhooks: Webhooks, settings: Settings
) -> None:
    hook = (await webhooks.create(ADA, "team_1", WANTED)).webhook
    assert to_record(hook, 0).public_key is None
    result = list[str]()
    for parameters in (
        WebhookChange(format="postal"),
        WebhookChange(enabled=False),
        None,
        WebhookChange(format="resend"),
    ):
        if parameters:
            hook = await webhooks.change(ADA, "team_1", hook.id, parameters)
        else:
            hook = (await webhooks.rotate(ADA, "team_1", hook.id)).webhook
        result.append(to_record(hook, 0).public_key or "")
        key = webhook_secrets(make_secrets(settings).cipher, hook, 0).key
        assert hook.public_key in public_record(key.encode())
    assert result[0] and result[0] == result[1] != result[2] and result[3] == ""
    assert key not in str(to_row("webhook", hook.id, hook, "team_1"))
