"""Erasure of an address of a team: removes the address from all rows and suppresses its keyed hash instead.

First, one transaction checks that no message to the address is in progress and suppresses the address. Then every table
is scanned in batches with read transactions; only rows that contain the address are written. An interrupted erasure can
be run again.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.message_states import is_final
from heliograph.domain.operations.erasure import Forms, stand_in
from heliograph.storage import audit, batches, contents, tags
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.queues import EVERY
from heliograph.storage.search import index

PORTION = 1000  # rows scanned in one transaction
SUBJECT = "[erased]"

Tell = Callable[[str, int], None]  # progress callback: table, number of scanned rows


class StillMoving(Exception):
    """Raised with the reason if the address cannot be erased yet, or not completely."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    ref: int
    team: str
    forms: Forms
    name: str  # keyed hash of the address, as stored in the suppression list
    webhooks: tuple[str, ...]
    keys: tuple[str, ...]  # public parts of the team's API keys
    templates: tuple[str, ...] = ()  # ids of the team's templates and layouts
    whole: bool = False  # also scan the instance's audit log, because no other team has an account with this address

    @property
    def address(self) -> str:
        return self.forms.address


# -- scanning tables -------------------------------------------------------------------------------------------------


class TextTable(msgspec.Struct, frozen=True):
    """A table to scan for the address: the query `look_NAME` returns a row key, `texts`, and `shown` for exports."""

    name: str
    whose: dict[str, Any]
    texts: tuple[str, ...]
    shown: tuple[str, ...]
    start: Any = ""


def events_of(wanted: Wanted) -> TextTable:
    return TextTable("events", {"team": wanted.ref}, ("subject", "recipient", "detail"), ("type", "created_at", "key"))


async def places_of(database: Database, wanted: Wanted) -> list[TextTable]:
    """Return all tables in which the address can only occur within texts, for erasure and export."""
    team = {"team": wanted.ref}
    imports = [row[0] for row in await database.read(partial(look, query="look_imports", after="", given=team))]
    return [
        TextTable("received", team, ("record", "body"), ("size", "created_at")),
        TextTable("suppressions", team, ("detail",), ("reason", "created_at")),
        *(TextTable("idempotency", {"key_id": key}, ("response",), ("status", "expires_at")) for key in wanted.keys),
        TextTable("audit", {"team_id": wanted.team}, ("subject", "detail"), ("action", "at"), 0),
        *([TextTable("instance_audit", {}, ("subject", "detail"), ("action", "at"), 0)] if wanted.whole else []),
        *(TextTable("versions", {"template": id_}, ("body",), ("template", "at"), -1) for id_ in wanted.templates),
        TextTable("refused", team, ("message",), ("route", "status", "code", "at")),
        TextTable("imports", team, ("first_left",), ("created_at",)),
        *(TextTable("portions", {"import_id": id_}, ("lines",), (), -1) for id_ in imports),
        TextTable("early", {}, ("report",), ("created_at",), 0),
        TextTable("returns", {}, ("report",), ("created_at",), 0),
    ]


async def look_through(database: Database, wanted: Wanted, place: TextTable, tell: Tell) -> AsyncIterator[list[Any]]:
    """Yield batches of rows that contain the address, ordered by row key."""
    given = place.whose | {"needles": wanted.forms.needles()}
    after, done = place.start, 0
    while rows := await database.read(partial(look, query=f"look_{place.name}", after=after, given=given)):
        after, done = rows[-1][0], done + PORTION
        texts = slice(1, 1 + len(place.texts))
        if hits := [row for row in rows if any(map(wanted.forms.are_in, row[texts]))]:
            yield hits
        tell(place.name, done)


async def look_through_messages(database: Database, wanted: Wanted, tell: Tell) -> AsyncIterator[list[tuple[str]]]:
    """Yield batches of ids of messages that may contain the address."""
    given: dict[str, Any] = {"team": wanted.ref, "address": wanted.address, "needles": wanted.forms.needles()}
    after, done = "", 0
    while rows := await database.read(partial(look, query="look_messages", after=after, given=given)):
        after, done = rows[-1][0], done + PORTION
        if ids := [(row[0],) for row in rows if row[1]]:
            yield ids
        tell("messages", done)


async def look(tx: Tx, query: str, after: Any, given: dict[str, Any]) -> list[Any]:
    return await tx.run(query, after=after, limit=PORTION, **given)


# -- erasing ---------------------------------------------------------------------------------------------------------


class Erasures:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database = database
        self._publisher = publisher

    async def begin(self, wanted: Wanted, entry: AuditEntry) -> None:
        """Suppress the hash instead of the address; raises StillMoving if the address is in use.

        Locks the account row, so that concurrent accept transactions wait.
        """
        await write_serialized(self._database, lambda tx: _begin(tx, wanted, entry), entry.team)

    async def sweep(self, wanted: Wanted, now: int, tell: Tell) -> int:
        """Erase the address after `begin` and return the number of messages that contained the address.

        Raises StillMoving if unsent messages to other recipients contain the address in their text.
        """
        messages, waiting = await _messages(self._database, wanted, now, self._publisher, tell)
        await _walk(self._database, wanted, events_of(wanted), _events, tell)
        await _verifications(self._database, wanted, now)
        for place in await places_of(self._database, wanted):
            await _texts(self._database, wanted, place, now, tell)
        await self._database.write(lambda tx: tx.run("forget_recipient", id=f"{wanted.team}/{wanted.address}"))
        if waiting:
            raise StillMoving(
                f"All else was erased, but messages to others that name it have not ended yet ({waiting})."
            )
        return messages


async def _begin(tx: Tx, wanted: Wanted, entry: AuditEntry) -> None:
    whose: dict[str, Any] = {"team": wanted.ref, "address": wanted.address}
    await tx.run("mark_erased", team=wanted.ref)
    ((messages,),) = await tx.run("moving_messages", lanes=EVERY, **whose)
    ((codes,),) = await tx.run("moving_verifications", now=entry.at, **whose)
    ((imports,),) = await tx.run("moving_imports", team=wanted.ref)
    if messages or codes:
        raise StillMoving(f"What was sent to it has not ended yet (messages: {messages}, verifications: {codes}).")
    if imports:
        raise StillMoving("An import of suppressions is running in this team.")
    await _suppress(tx, wanted, entry.at)
    await tx.run("erase_marketing", **whose)
    await tx.run("erase_opt_outs", name=wanted.name, **whose)
    await tx.run("erase_writer", **whose)
    await tx.run("erase_answers_to", **whose)
    await audit.write(tx, entry)


async def _suppress(tx: Tx, wanted: Wanted, now: int) -> None:
    """Suppress the hash of the address.

    A phone number is replaced only if it was suppressed, because sends to phones do not check the suppression list.
    """
    found = await tx.run("find_suppression", team=wanted.ref, address=wanted.address)
    reason, source, created_at = (found[0][1], found[0][2], found[0][4]) if found else ("manual", None, now)
    if not found and "@" not in wanted.address:
        return
    await tx.run("delete_suppression", team=wanted.ref, address=wanted.address)
    row = (wanted.ref, wanted.name, wanted.name, reason, source, None, created_at)
    await tx.run("insert_suppressions", suppressions=[row])


# -- messages ------------------------------------------------------------------------------------------------------


async def _messages(database: Database, wanted: Wanted, now: int, publisher: Publisher, tell: Tell) -> tuple[int, int]:
    """Erase the address from messages; return the number of erased messages and of unsent, unchanged messages."""
    erased, waiting = 0, 0
    async for ids in look_through_messages(database, wanted, tell):
        changed, kept = await database.write(
            partial(_erase_messages, wanted=wanted, ids=ids, now=now, publisher=publisher)
        )
        erased, waiting = erased + changed, waiting + kept
    return erased, waiting


class _Hit(msgspec.Struct, frozen=True):
    """A message that contains the address."""

    key: int
    record: str
    people: list[Any]  # message, position, address, given, status, …, detail
    forms: Forms
    stand_ins: dict[str, str]  # address as given → its placeholder; empty if the address is not a recipient

    @property
    def is_over(self) -> bool:
        """Return whether all other recipients are final; later outcomes of an erased recipient are ignored."""
        return all(is_final(person[4]) for person in self.people if person[3] not in self.stand_ins)


async def _erase_messages(
    tx: Tx, wanted: Wanted, ids: list[tuple[str]], now: int, publisher: Publisher
) -> tuple[int, int]:
    await index.begin_to_erase(tx)
    rows = await tx.run("lock_erased", team=wanted.ref, ids=ids)
    keys = [(row[0],) for row in rows]
    working = {row[0] for row in await tx.run("working_messages", team=wanted.ref, lanes=EVERY, messages=keys)}
    people: dict[int, list[Any]] = {key: [] for (key,) in keys}
    for person in await tx.run("recipients_of", messages=keys):
        people[person[0]].append(person)
    hits: list[_Hit] = []
    for key, record, body in rows:
        stand_ins = {p[3]: stand_in(p[2], p[1]) for p in people[key] if p[2] == wanted.address}
        forms = wanted.forms.also(stand_ins)
        if stand_ins or forms.are_in(record) or forms.are_in(body):
            hits.append(_Hit(key, record, people[key], forms, stand_ins))
    idle = [hit for hit in hits if hit.key not in working]
    if idle:
        await _write_messages(tx, wanted, idle, now, publisher)
    return len(idle), len(hits) - len(idle)


async def _write_messages(tx: Tx, wanted: Wanted, hits: list[_Hit], now: int, publisher: Publisher) -> None:
    keys = [(hit.key,) for hit in hits]
    await contents.drop(tx, keys)  # the text may contain personal data
    for query in ("purge_blobs", "mark_bodiless"):
        await tx.run(query, messages=keys)
    await tx.run("erase_seen", team=wanted.ref, address=wanted.address, messages=keys)
    records = [(hit.key, hit.record, _record(hit.forms, hit.record)) for hit in hits]
    await tags.forget(tx, keys)
    await tx.run("erase_records", records=[(key, after) for key, _, after in records])
    await tx.run("insert_tags", tags=tags.rows_of(await tx.run("records_of", messages=keys)))
    await index.forget(tx, records)
    ended = await tx.run("end_erased", messages=[(hit.key,) for hit in hits if hit.is_over], now=now)
    await publisher.publish(tx, await batches.finish(tx, {batch for (batch,) in ended if batch}, publisher, now))
    recipients: list[tuple[Any, ...]] = []
    for hit in hits:
        for key, position, address, given, *_, detail in hit.people:
            instead = hit.stand_ins.get(given)
            recipients.append(
                (key, position, instead, instead, None)
                if instead
                else (key, position, address, given, hit.forms.scrub(detail))
            )
    await tx.run("erase_recipients", recipients=recipients)
    by_key, events = {hit.key: hit for hit in hits}, []
    for key, id_, subject, recipient, detail, message in await tx.run("events_of", messages=keys):
        hit = by_key[message]
        instead = hit.stand_ins.get(recipient)
        events.append(
            (id_, key, subject, instead, None) if instead else (id_, key, subject, recipient, hit.forms.scrub(detail))
        )
    await _write_events(tx, wanted, events)


def _record(forms: Forms, text: str) -> str:
    """Return the stored API response of the message without the address and the subject."""
    record: dict[str, Any] = msgspec.json.decode(forms.scrub(text) or "{}")
    return msgspec.json.encode(record | ({"subject": SUBJECT} if record.get("subject") else {})).decode()


# -- texts -----------------------------------------------------------------------------------------------------------


async def _events(wanted: Wanted, rows: Sequence[Any], tx: Tx) -> None:
    await _write_events(tx, wanted, [(row[0], row[-1], *map(wanted.forms.scrub, row[1:4])) for row in rows])


async def _write_events(tx: Tx, wanted: Wanted, events: Sequence[Any]) -> None:
    """Write events (id, key, subject, recipient, detail), and erase the webhooks' responses to these events."""
    if not events:
        return
    await tx.run("erase_events", events=events)
    subjects = {id_: subject for id_, _, subject, *_ in events}
    pairs = [(webhook, id_) for webhook in wanted.webhooks for id_ in subjects]
    sent = [(row[0], subjects[row[1]]) for row in await tx.run("deliveries_of_events", pairs=pairs)]
    if sent:
        await tx.run("erase_deliveries", deliveries=sent)
        await tx.run("erase_answers", deliveries=sent)


async def _walk(
    database: Database,
    wanted: Wanted,
    place: TextTable,
    change: Callable[[Wanted, Sequence[Any], Tx], Coroutine[Any, Any, None]],
    tell: Tell,
) -> None:
    async for hits in look_through(database, wanted, place, tell):
        await write_serialized(database, partial(change, wanted, hits), wanted.team)


async def _texts(database: Database, wanted: Wanted, place: TextTable, now: int, tell: Tell) -> None:
    """Remove the address from the texts of a table. Written rows: owner columns, row key, texts."""

    async def change(wanted: Wanted, rows: Sequence[Any], tx: Tx) -> None:
        texts = slice(1, 1 + len(place.texts))
        scrubbed = [(*place.whose.values(), row[0], *map(wanted.forms.scrub, row[texts])) for row in rows]
        if place.name in ("audit", "instance_audit"):
            entries = [(key, subject or "", detail or "") for *_, key, subject, detail in scrubbed]
            await audit.rewrite(tx, entries, now)
        elif place.name in ("early", "returns"):
            seen = [(row[0], row[1], new) for row, (*_, new) in zip(rows, scrubbed, strict=True)]
            await tx.run(f"erase_{place.name}", rows=seen)
        else:
            await tx.run(f"erase_{place.name}", rows=scrubbed)

    await _walk(database, wanted, place, change, tell)


async def _verifications(database: Database, wanted: Wanted, now: int) -> None:
    async def portion(tx: Tx) -> int:
        whose: dict[str, Any] = {"team": wanted.ref, "address": wanted.address}
        name = stand_in(wanted.address)
        await tags.delete(tx, await tx.run("added_to_verifications", **whose))
        return len(await tx.run("erase_verifications", stand_in=name, limit=PORTION, now=now, **whose))

    while await database.write(portion):
        continue
