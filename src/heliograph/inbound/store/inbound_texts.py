"""Store of inbound texts: publishes them to the team, applies keywords such as STOP, and sends automatic replies."""

from collections.abc import Sequence

import msgspec

from heliograph.domain.delivery.outcome import IncomingText, TextPart
from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import DAY_MS
from heliograph.domain.operations.erasure import NameOf
from heliograph.domain.phones.opt_out import PhoneChannel, Word, answer_to, read_word
from heliograph.domain.phones.text_parts import (
    REPEAT_MS,
    WAIT_MS,
    SplitText,
    StoredPart,
    add_part,
    joined,
    split_text_id,
)
from heliograph.domain.setup.records import Team
from heliograph.inbound.policy.inbound_texts import answer_message, owner_of, received_record
from heliograph.inbound.store.opt_outs import list_phones, unlist
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.storage.accept import lock_accounts, write_accepted
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Event
from heliograph.storage.setup import SetupStore

KEPT_MS = 30 * DAY_MS  # how long repeats are detected, and a phone's replies go to the team that last messaged it
INCOMPLETE_MAX = 100  # incomplete texts reported per transaction


_PARTS = msgspec.json.Decoder(dict[int, StoredPart])


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Carrier and channel through which texts arrived."""

    carrier: str
    channel: PhoneChannel
    team: int | None = None  # set by the simulator, which knows the team


class ReceivedTexts:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore, name_of: NameOf) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup
        self._name_of = name_of

    async def take(self, way: Way, texts: Sequence[IncomingText | TextPart]) -> None:
        """Store all texts or none; the carrier repeats texts that were not stored.

        Parts of a long text wait for the others.
        """
        await self._database.write(lambda tx: self._take(tx, way, texts))

    async def report_incomplete(self) -> None:
        """Publish long texts whose missing parts did not arrive in time as incomplete."""
        before, count = self._clock.now() - WAIT_MS, INCOMPLETE_MAX
        if await self._database.read(lambda tx: tx.run("any_incomplete_text", before=before)):
            while count == INCOMPLETE_MAX:
                count = await self._database.write(lambda tx: self._finish_incomplete(tx, before))

    async def _finish_incomplete(self, tx: Tx, before: int) -> int:
        rows = await tx.run("finish_incomplete_texts", now=self._clock.now(), before=before, limit=INCOMPLETE_MAX)
        for carrier, sender, to, reference, total, parts, started_at in rows:
            text = SplitText(
                sender=sender,
                to=to,
                reference=reference,
                total=total,
                started_at=started_at,
                parts=_PARTS.decode(parts),
            )
            await self._take(tx, Way(carrier=carrier, channel="sms"), [joined(text)])
        return len(rows)

    async def _join(self, tx: Tx, carrier: str, parts: Sequence[TextPart], now: int) -> list[IncomingText]:
        """Store parts of long texts; return the texts that are now complete."""
        groups: dict[str, list[TextPart]] = {}
        for part in parts:
            groups.setdefault(split_text_id(carrier, part), []).append(part)
        rows = [
            (id_, carrier, group[0].sender, group[0].to, group[0].reference, group[0].total, now)
            for id_, group in sorted(groups.items())  # every process locks rows in the same order
        ]
        reports: list[IncomingText] = []
        updates = []
        for id_, stored, started_at, finished_at in await tx.run("lock_split_texts", texts=rows):
            first = groups[id_][0]
            text = SplitText(
                sender=first.sender,
                to=first.to,
                reference=first.reference,
                total=first.total,
                started_at=started_at,
                finished_at=finished_at,
                parts=_PARTS.decode(stored),
            )
            for part in groups[id_]:
                reports += add_part(text, part, now)
            updates.append((id_, msgspec.json.encode(text.parts).decode(), text.started_at, text.finished_at))
        await tx.run("update_split_texts", texts=updates)
        return reports

    async def _take(self, tx: Tx, way: Way, given: Sequence[IncomingText | TextPart]) -> None:
        now = self._clock.now()
        texts = [text for text in given if isinstance(text, IncomingText)]
        if parts := [part for part in given if isinstance(part, TextPart)]:
            texts += await self._join(tx, way.carrier, parts, now)
        if not texts:
            return
        distinct = {text.id: text for text in texts}
        again = REPEAT_MS if any(text.is_unnamed for text in texts) else KEPT_MS
        rows = [(way.carrier, id_, now) for id_ in distinct]
        new = {row[0] for row in await tx.run("insert_received_texts", texts=rows, again=again)}
        teams = await self._last_writers(tx, way, list(distinct.values()), now)
        for id_, text in distinct.items():
            if id_ not in new and not text.is_unnamed:
                continue
            team = owner_of(text.to, self._setup.current) if way.team is None else None
            team = team or teams.get(text.sender)
            if team is None:
                if id_ in new:
                    tx.afterwards.append(metrics.unclaimed_texts[way.channel, way.carrier].inc)
                continue
            at, word = self._clock.of(team.record.ref), read_word(text.text, team.record.opt_out)
            if id_ in new:
                await self._tell(tx, way, team, text, at)
            if word:  # also for apparent repeats: a person may send STOP, START and STOP again
                await self._obey(tx, way, team, text, word, at)
            if word and id_ in new:
                await self._answer(tx, way, team, text, word, at)

    async def _last_writers(self, tx: Tx, way: Way, texts: Sequence[IncomingText], now: int) -> dict[str, Team]:
        if way.team is not None:
            refs = {text.sender: way.team for text in texts}
        else:
            phones = list({(text.sender, way.channel) for text in texts})
            refs = dict(await tx.run("last_writers", phones=phones, since=now - KEPT_MS))
        known = self._setup.current.teams_by_ref
        return {phone: known[ref] for phone, ref in refs.items() if ref in known}

    async def _tell(self, tx: Tx, way: Way, team: Team, text: IncomingText, now: int) -> None:
        publisher = self._setup.publisher
        id_ = publisher.new_id(PREFIXES["received"])
        data = received_record(id_, text, way.carrier)
        event = Event(
            id=publisher.new_id("evt_"),
            team=team.record.ref,
            subject=id_,
            recipient=text.sender,
            type=f"{way.channel}.received",
            detail=msgspec.json.encode(data).decode(),
            created_at=now,
        )
        await publisher.publish(tx, [event])

    async def _obey(self, tx: Tx, way: Way, team: Team, text: IncomingText, word: Word, now: int) -> None:
        ref, phone, publisher = team.record.ref, text.sender, self._setup.publisher
        if word == "stop":
            await list_phones(tx, [(ref, phone, way.channel, "text", now)], publisher)
        elif word == "start":
            await unlist(tx, ref, [phone, self._name_of(ref, phone)], [way.channel], now, publisher)

    async def _answer(self, tx: Tx, way: Way, team: Team, text: IncomingText, word: Word, now: int) -> None:
        ref, phone, publisher = team.record.ref, text.sender, self._setup.publisher
        body = answer_to(word, team.record.opt_out)
        place = {"team": ref, "phone": phone, "channel": way.channel, "word": word}
        if body and await tx.run("note_answer", at=now, since=now - DAY_MS, **place):
            id_ = publisher.new_id(PREFIXES[way.channel])
            platform = self._setup.current.platform
            age_ms = 0 if text.sent_at is None else max(0, self._clock.now() - text.sent_at)
            answer = answer_message(id_, team, platform, way.channel, text, body, now, age_ms)
            keys = await tx.run("next_message_keys", count=1)
            await write_accepted(tx, [answer], await lock_accounts(tx, [ref]), keys)
