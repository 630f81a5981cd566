"""Inbound texts: which team receives them, keywords, automatic replies, and duplicates (contract 17)."""

import asyncio
import json
import random
from typing import Any
from unittest.mock import Mock

import pytest

from heliograph.domain.delivery.outcome import IncomingText, TextPart
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.setup.records import SenderId, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.store.inbound_texts import TextSource
from heliograph.runtime import metrics
from heliograph.storage import retention
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store, make_store
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import Sql
from tests.storage.samples import PHONE, message
from tests.storage.test_money import ACCOUNTS, LEDGER, outcome

pytestmark = pytest.mark.anyio

OWN = "+12025550123"  # the sender ID of team 1


@pytest.fixture
async def texting(store: Store) -> Store:
    """Set up two teams; the sender ID requested by the second is not approved."""
    teams = [TeamRecord(ref=ref, id=f"team_{ref}", name="T") for ref in (1, 2)]
    senders = [
        SenderId(team="team_1", country="US", value=OWN, approved=True),
        SenderId(team="team_2", country="US", value="+12025550199"),
        SenderId(team="team_2", country="GB", value="ACME", approved=True),
    ]
    rows = [to_row("team", item.id, item, item.id) for item in teams]
    rows += [to_row("sender_id", f"{item.team}/{item.country}", item, item.team) for item in senders]
    await set_up(store, rows=rows)
    return store


async def write(store: Store, text: str = "Hi", *, to: str = OWN, channel: PhoneChannel = "sms", **more: Any) -> None:
    values: dict[str, Any] = {"id": f"id-{text}-{to}", "sender": PHONE, "to": to, "text": text}
    await store.inbound_texts.store(TextSource(carrier="c", channel=channel), [IncomingText(**values | more)])


async def told(store: Store, clock: TestClock, team: int = 1) -> list[tuple[str, str]]:
    clock.forward(1000)
    events = await store.events.feed(team, "", 1000)
    return [(item.type, json.loads(item.detail or "{}").get("text", "")) for item in events if item.type != "sms.sent"]


async def answers(store: Store) -> list[str]:
    claims = await store.outbox.claim("phone", 100)
    return [json.loads(claim.content)["body"] for claim in claims]


@pytest.mark.parametrize(
    ("to", "team"),
    [
        (OWN, 1),
        (OWN.removeprefix("+"), 1),
        ("acme", 2),
        ("+12025550199", None),  # not approved
        ("+19995550000", None),
        ("", None),
    ],
)
async def test_inbound_text_goes_to_the_team_with_the_number(
    texting: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, to: str, team: int | None
) -> None:
    unclaimed = Mock()
    monkeypatch.setitem(metrics.unclaimed_texts, ("sms", "c"), unclaimed)
    await write(texting, to=to)
    for ref in (1, 2):
        assert await told(texting, clock, ref) == ([("sms.received", "Hi")] if ref == team else [])
    assert unclaimed.inc.call_count == (0 if team else 1)


async def test_inbound_text_to_a_shared_number_goes_to_the_last_sender_within_thirty_days(
    texting: Store, clock: TestClock
) -> None:
    for ref in (1, 2):
        await texting.messages.accept(message(clock, PHONE, team=ref, channel="sms", opt_out_phone=PHONE))
        (claim,) = await texting.outbox.claim("phone", 1)
        place: dict[str, Any] = {"message": claim.message, "position": claim.position, "claim": claim.token}
        await texting.outbox.record(
            RecipientUpdate(at=clock.now(), target_status="sent", accepted=True, carrier="c", **place)
        )
        clock.forward(1000)
    await write(texting, to="shared")
    await write(texting, "by chat", to="shared", channel="whatsapp")
    await write(texting, "to ours", to=OWN)  # the owner of the number takes precedence
    assert await told(texting, clock, 2) == [("sms.received", "Hi")]
    assert await told(texting, clock, 1) == [("sms.received", "to ours")]
    clock.forward(30 * DAY_MS)
    await write(texting, "late", to="shared")
    assert ("sms.received", "late") not in await told(texting, clock, 2)


@pytest.mark.parametrize(
    ("unnamed", "after_ms", "times"),
    [(False, 0, 1), (False, DAY_MS, 1), (True, 0, 1), (True, 9 * MINUTE_MS, 1), (True, 11 * MINUTE_MS, 2)],
)
async def test_repeated_inbound_text_is_published_once(
    texting: Store, clock: TestClock, unnamed: bool, after_ms: int, times: int
) -> None:
    """By the carrier's id; without an id, the same text counts as new after a while."""
    await write(texting, is_unnamed=unnamed)
    clock.forward(after_ms)
    await write(texting, is_unnamed=unnamed)
    assert len(await told(texting, clock)) == times


async def test_inbound_text_with_same_id_of_another_carrier_is_separate(texting: Store, clock: TestClock) -> None:
    text = IncomingText(id="1", sender=PHONE, to=OWN, text="Hi")
    for carrier in ("c", "d"):
        await texting.inbound_texts.store(TextSource(carrier=carrier, channel="sms"), [text, text])
    assert len(await told(texting, clock)) == 2


async def test_stop_start_and_help_take_effect_and_are_answered_once_a_day(texting: Store, clock: TestClock) -> None:
    texts = TeamRecord(ref=1, id="team_1", name="T").opt_out
    await write(texting, " stop ", id="1")
    await write(texting, "Arrêt", id="2")
    assert [item.reason for item in await texting.opt_outs.find(1, PHONE)] == ["text"]
    assert await answers(texting) == [texts.stop_text]
    await write(texting, "START", id="3")
    await write(texting, "info", id="4")
    assert await texting.opt_outs.find(1, PHONE) == []
    assert await answers(texting) == [texts.start_text, texts.help_text]
    types = [type_ for type_, _ in await told(texting, clock)]
    assert sorted(types) == ["opt_out.created", "opt_out.deleted", *["sms.received"] * 4]
    clock.forward(DAY_MS)
    await write(texting, "STOP", id="5")
    assert await answers(texting) == [texts.stop_text]


async def test_keywords_without_carrier_ids_take_effect_in_arrival_order(texting: Store, clock: TestClock) -> None:
    """The third text looks like a duplicate of the first; after the last STOP the number is listed."""
    for text, listed in (("STOP", True), ("START", False), ("STOP", True), ("START", False)):
        await write(texting, text, is_unnamed=True)
        assert bool(await texting.opt_outs.find(1, PHONE)) == listed, text
    received = [item for item in await told(texting, clock) if item[0] == "sms.received"]
    assert received == [("sms.received", "STOP"), ("sms.received", "START")]
    assert len(await answers(texting)) == 2


@pytest.mark.parametrize("channel", ["sms", "whatsapp"])
async def test_keyword_reply_is_not_charged(texting: Store, clock: TestClock, sql: Sql, channel: PhoneChannel) -> None:
    before = await sql(LEDGER), await sql(f"{ACCOUNTS} ORDER BY team")
    for word in ("STOP", "START", "HELP"):
        await write(texting, word, channel=channel)
    claims = await texting.outbox.claim("phone", 100)
    assert len(claims) == 3
    for claim in claims:
        assert await texting.outbox.record(outcome(claim, clock.now(), "sent"))
    assert (await sql(LEDGER), await sql(f"{ACCOUNTS} ORDER BY team")) == before
    assert await sql("SELECT DISTINCT price FROM message") == [(0,)]


# -- long texts in parts ------------------------------------------------------------------------------------------


def part(number: int, words: str, *, total: int = 3, reference: str = "0:7", sender: str = PHONE) -> TextPart:
    return TextPart(
        sender=sender,
        to=OWN,
        reference=reference,
        total=total,
        number=number,
        coding=0,
        octets=words.encode(),
    )


async def take(store: Store, *parts: TextPart, carrier: str = "c") -> None:
    await store.inbound_texts.store(TextSource(carrier=carrier, channel="sms"), parts)


async def test_text_parts_received_by_two_processes_are_joined_once(texting: Store, clock: TestClock) -> None:
    processes = texting, make_store(texting.database, texting.local_files, clock, "seat/1")
    await processes[1].setup.refresh()
    for number in range(20):
        parts = [part(n, f"{number} {n} ", reference=f"8:{number}") for n in (1, 2, 3)]
        values = [*parts, *parts]
        random.Random(number).shuffle(values)
        await asyncio.gather(*(take(processes[at % 2], item) for at, item in enumerate(values)))
    expected = [("sms.received", "".join(f"{number} {n} " for n in (1, 2, 3))) for number in range(20)]
    assert sorted(await told(texting, clock)) == sorted(expected)


async def test_text_parts_of_different_texts_are_not_mixed(texting: Store, clock: TestClock) -> None:
    others = [
        part(1, "a", total=2),
        part(1, "b", total=2, reference="8:7"),
        part(1, "c", total=2, sender="+447700900999"),
        part(1, "d", total=4),
    ]
    await take(texting, *others)
    await take(texting, part(1, "e", total=2), part(2, "f", total=2), carrier="other")
    assert await told(texting, clock) == [("sms.received", "ef")]


async def test_incomplete_text_is_reported_after_ten_minutes_once(texting: Store, clock: TestClock, sql: Sql) -> None:
    await take(texting, part(3, "three"), part(1, "one "))
    clock.forward(10 * MINUTE_MS - 5_000)
    await texting.inbound_texts.report_incomplete()
    assert await told(texting, clock) == []
    clock.forward(5_000)
    other = make_store(texting.database, texting.local_files, clock, "seat/1")
    await other.setup.refresh()
    await asyncio.gather(*(store.inbound_texts.report_incomplete() for store in (texting, other, texting, other)))
    assert await told(texting, clock) == [("sms.received", "one three")]
    (event,) = await texting.events.feed(1, "", 10)
    assert json.loads(event.detail or "")["incomplete"] is True
    await take(texting, part(1, "one "))  # a duplicate
    assert len(await told(texting, clock)) == 1
    await take(texting, part(2, "two "))  # late, but not lost
    assert (await told(texting, clock))[1:] == [("sms.received", "two ")]


async def test_joined_text_is_purged_and_an_open_one_is_not(texting: Store, clock: TestClock, sql: Sql) -> None:
    await take(texting, *(part(n, "x") for n in (1, 2, 3)))
    clock.forward(11 * MINUTE_MS)
    await take(texting, part(1, "y", reference="8:1"))
    await retention.purge(texting.database, clock.now())
    assert await sql("SELECT reference FROM split_text") == [("8:1",)]


async def test_stop_received_in_parts_opts_out(texting: Store, clock: TestClock) -> None:
    await take(texting, part(2, "OP", total=2), part(1, "ST", total=2))
    assert ("opt_out.created", "") in [(kind, "") for kind, _ in await told(texting, clock)]
