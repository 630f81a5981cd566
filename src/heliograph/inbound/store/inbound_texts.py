"""Store of inbound texts: publishes them to the team, applies keywords such as STOP, and sends automatic replies."""

from collections.abc import Sequence

import msgspec

from heliograph.domain.delivery.outcome import IncomingText, TextPart
from heliograph.domain.event_data import encode_data
from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import DAY_MS
from heliograph.domain.operations.erasure import EntryName
from heliograph.domain.phones.opt_out import Keyword, PhoneChannel, parse_keyword, reply_text
from heliograph.domain.phones.text_parts import (
    DUPLICATE_MS,
    PARTS_WAIT_MS,
    SplitText,
    StoredPart,
    add_part,
    join_parts,
    split_text_id,
)
from heliograph.domain.setup.records import Team
from heliograph.inbound.policy.inbound_texts import build_auto_reply, find_owner, inbound_text_data
from heliograph.inbound.store.opt_outs import add_opt_outs, remove_opt_outs
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.storage.accept import lock_accounts, write_accepted
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Event
from heliograph.storage.setup import SetupStore

# How long repeats of a text are detected, and how long a phone's texts belong to the team that last messaged it
RETENTION_MS = 30 * DAY_MS
INCOMPLETE_MAX = 100  # maximum incomplete texts published per transaction


_PARTS_DECODER = msgspec.json.Decoder(dict[int, StoredPart])


class TextSource(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier and channel by which texts arrived."""

    carrier: str
    channel: PhoneChannel
    team: int | None = None  # the recipient team, if a simulator sent the texts


class InboundTextStore:
    """Store of inbound SMS and WhatsApp texts."""

    def __init__(self, database: Database, clock: Clock, setup: SetupStore, erased_name_of: EntryName) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup
        self._erased_name_of = erased_name_of

    async def store(self, source: TextSource, texts: Sequence[IncomingText | TextPart]) -> None:
        """Store all texts in one transaction; if it fails, the carrier sends them again.

        Parts of a long text are stored until all have arrived.
        """
        await self._database.write(lambda tx: self._store(tx, source, texts))

    async def report_incomplete(self) -> None:
        """Publish long texts whose parts have not all arrived in time, marked as incomplete."""
        before, count = self._clock.now() - PARTS_WAIT_MS, INCOMPLETE_MAX
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
                parts=_PARTS_DECODER.decode(parts),
            )
            await self._store(tx, TextSource(carrier=carrier, channel="sms"), [join_parts(text)])
        return len(rows)

    async def _join_parts(self, tx: Tx, carrier: str, parts: Sequence[TextPart], now: int) -> list[IncomingText]:
        """Store parts of long texts; return the texts that are complete now."""
        groups: dict[str, list[TextPart]] = {}
        for part in parts:
            groups.setdefault(split_text_id(carrier, part), []).append(part)
        rows = [
            (id_, carrier, group[0].sender, group[0].to, group[0].reference, group[0].total, now)
            for id_, group in sorted(groups.items())  # sorted: every process must lock rows in the same order
        ]
        reports: list[IncomingText] = []
        updates = []
        for id_, stored, started_at, finished_at in await tx.run("lock_split_texts", texts=rows):
            first_part = groups[id_][0]
            text = SplitText(
                sender=first_part.sender,
                to=first_part.to,
                reference=first_part.reference,
                total=first_part.total,
                started_at=started_at,
                finished_at=finished_at,
                parts=_PARTS_DECODER.decode(stored),
            )
            for part in groups[id_]:
                reports += add_part(text, part, now)
            updates.append((id_, msgspec.json.encode(text.parts).decode(), text.started_at, text.finished_at))
        await tx.run("update_split_texts", texts=updates)
        return reports

    async def _store(self, tx: Tx, source: TextSource, items: Sequence[IncomingText | TextPart]) -> None:
        now = self._clock.now()
        texts = [text for text in items if isinstance(text, IncomingText)]
        if parts := [part for part in items if isinstance(part, TextPart)]:
            texts += await self._join_parts(tx, source.carrier, parts, now)
        if not texts:
            return
        text_by_id = {text.id: text for text in texts}
        repeat_window_ms = DUPLICATE_MS if any(text.is_unnamed for text in texts) else RETENTION_MS
        rows = [(source.carrier, id_, now) for id_ in text_by_id]
        new_ids = {row[0] for row in await tx.run("insert_received_texts", texts=rows, again=repeat_window_ms)}
        teams = await self._find_last_writers(tx, source, list(text_by_id.values()), now)
        for id_, text in text_by_id.items():
            if id_ not in new_ids and not text.is_unnamed:
                continue
            team = find_owner(text.to, self._setup.current) if source.team is None else None
            team = team or teams.get(text.sender)
            if team is None:
                if id_ in new_ids:
                    tx.after_commit.append(metrics.unclaimed_texts[source.channel, source.carrier].inc)
                continue
            team_now, keyword = self._clock.team_now(team.record.ref), parse_keyword(text.text, team.record.opt_out)
            if id_ in new_ids:
                await self._publish(tx, source, team, text, team_now)
            if keyword:  # even if the text seems to be a repeat, because a person may send STOP, START and STOP again
                await self._apply_keyword(tx, source, team, text, keyword, team_now)
            if keyword and id_ in new_ids:
                await self._send_auto_reply(tx, source, team, text, keyword, team_now)

    async def _find_last_writers(
        self, tx: Tx, source: TextSource, texts: Sequence[IncomingText], now: int
    ) -> dict[str, Team]:
        if source.team is not None:
            refs = {text.sender: source.team for text in texts}
        else:
            phones = list({(text.sender, source.channel) for text in texts})
            refs = dict(await tx.run("last_senders", phones=phones, since=now - RETENTION_MS))
        teams = self._setup.current.teams_by_ref
        return {phone: teams[ref] for phone, ref in refs.items() if ref in teams}

    async def _publish(self, tx: Tx, source: TextSource, team: Team, text: IncomingText, now: int) -> None:
        publisher = self._setup.publisher
        id_ = publisher.new_id(PREFIXES["received"])
        data = inbound_text_data(id_, text, source.carrier)
        event = Event(
            id=publisher.new_id("evt_"),
            team=team.record.ref,
            subject=id_,
            recipient=text.sender,
            type=f"{source.channel}.received",
            detail=encode_data(data),
            created_at=now,
        )
        await publisher.publish(tx, [event])

    async def _apply_keyword(
        self, tx: Tx, source: TextSource, team: Team, text: IncomingText, keyword: Keyword, now: int
    ) -> None:
        ref, phone, publisher = team.record.ref, text.sender, self._setup.publisher
        if keyword == "stop":
            await add_opt_outs(tx, [(ref, phone, source.channel, "text", now)], publisher)
        elif keyword == "start":
            await remove_opt_outs(tx, ref, [phone, self._erased_name_of(ref, phone)], [source.channel], now, publisher)

    async def _send_auto_reply(
        self, tx: Tx, source: TextSource, team: Team, text: IncomingText, keyword: Keyword, now: int
    ) -> None:
        ref, phone, publisher = team.record.ref, text.sender, self._setup.publisher
        body = reply_text(keyword, team.record.opt_out)
        answer_key = {"team": ref, "phone": phone, "channel": source.channel, "word": keyword}
        if body and await tx.run("record_auto_reply", at=now, since=now - DAY_MS, **answer_key):
            id_ = publisher.new_id(PREFIXES[source.channel])
            platform = self._setup.current.platform
            age_ms = 0 if text.sent_at is None else max(0, self._clock.now() - text.sent_at)
            answer = build_auto_reply(id_, team, platform, source.channel, text, body, now, age_ms)
            keys = await tx.run("next_message_keys", count=1)
            await write_accepted(tx, [answer], await lock_accounts(tx, [ref]), keys)
