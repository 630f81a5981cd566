"""Content shared by mails of a sandbox team is stored once, read as if each had it, and deleted with the last."""

import hashlib
from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.content import EmailContent, split_email_content
from heliograph.domain.limits import DAY_MS, KIB
from heliograph.domain.sending.acceptance import SharedText
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.fake_budget import room
from tests.setup_helpers import SET_UP
from tests.storage.conftest import Sql
from tests.storage.samples import message
from tests.storage.test_batches import batch
from tests.storage.test_purge import end, put_away

pytestmark = pytest.mark.anyio

HTML = '<p title="é">' + "x" * 890 * KIB + "</p>"


def mail(clock: TestClock, to: str, html: str = HTML) -> Any:
    own, body = split_email_content(
        EmailContent(from_name="Acme", from_address="hi@acme.test", to=[to], subject="Hi", html=html)
    )
    shared = SharedText(hashlib.blake2b(body).digest(), body)
    return message(clock, to, content=own, shared=shared)


def decoded(content: str | bytes | None) -> EmailContent:
    return msgspec.json.decode(content or "", type=EmailContent)


async def texts(sql: Sql) -> int:
    return int((await sql("SELECT count(*) FROM shared_text"))[0][0])


async def test_batch_stores_a_shared_text_once_and_each_mail_has_it(store: Store, clock: TestClock, sql: Sql) -> None:
    people = [f"a{n}@example.com" for n in range(100)]
    sends = batch(clock, *(mail(clock, to) for to in people), mail(clock, "b@example.com", html="<p>other</p>"))
    await store.messages.accept(sends)
    ((stored,),) = await sql(
        "SELECT sum(octet_length(body)) FROM (SELECT body FROM content UNION ALL SELECT body FROM shared_text) AS kept"
    )
    assert (await texts(sql), stored < 1024 * KIB) == (2, True)
    claims = await store.outbox.claim("email", 200)
    assert {decoded(item.content).to[0]: decoded(item.content).html for item in claims} == {
        **dict.fromkeys(people, HTML),
        "b@example.com": "<p>other</p>",
    }
    result = await store.messages.get_details(1, claims[0].message_id, (), room)
    assert result and decoded(result.row.content) == decoded(claims[0].content)
    assert result.row.size == len(claims[0].content)


async def test_shared_text_is_deleted_with_its_last_message(store: Store, clock: TestClock, sql: Sql) -> None:
    first, second, third = (mail(clock, to) for to in ("a@example.com", "b@example.com", "c@example.com"))
    await store.messages.accept(batch(clock, first, second))
    await store.messages.accept(third)  # another transaction has its own
    await end(store, clock)
    for item, left in ((first, 2), (third, 1), (second, 0)):
        assert await store.messages.purge_early(1, item.id, SET_UP, whole_message=False)
        assert await texts(sql) == left


async def test_retention_deletes_shared_texts(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.messages.accept(batch(clock, mail(clock, "a@example.com"), mail(clock, "b@example.com")))
    await end(store, clock)
    clock.forward(8 * DAY_MS)
    await put_away(store)
    assert (await texts(sql), await sql("SELECT count(*) FROM content")) == (0, [(0,)])
