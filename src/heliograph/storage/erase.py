"""Erases an address from a team's data, and puts its keyed hash on the suppression list instead.

First, one transaction checks that no message to the address is in progress, and suppresses the hash. Then every table
is scanned in batches with read transactions; only rows that contain the address are written. An interrupted erasure can
be run again.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.message_states import is_final
from heliograph.domain.operations.erasure import AddressVariants, placeholder
from heliograph.storage import audit, batches, body_files, contents, tags
from heliograph.storage.body_files import Contents
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.queues import QUEUES_AND_HELD
from heliograph.storage.search import index
from heliograph.storage.search.message_search import read_row

BATCH = 1000  # rows scanned in one transaction
ERASED_SUBJECT = "[erased]"

ProgressCallback = Callable[[str, int], None]  # called with the name of a table and the number of scanned rows


class ErasureBlocked(Exception):
    """Raised if the address cannot be erased yet, or not completely; the exception's text says why."""


class ErasureTarget(msgspec.Struct, frozen=True, kw_only=True):
    ref: int
    team: str
    variants: AddressVariants
    address_hash: str  # keyed hash of the address, as stored in the suppression list
    webhooks: tuple[str, ...]
    keys: tuple[str, ...]  # public ids of the team's API keys
    templates: tuple[str, ...] = ()  # ids of the team's templates and layouts
    instance_audit: bool = False  # also scan the instance's audit log: no other team has an account with this address

    @property
    def address(self) -> str:
        return self.variants.address


# -- scanning tables -------------------------------------------------------------------------------------------------


class TextTable(msgspec.Struct, frozen=True):
    """A table to search for the address.

    The query `scan_NAME` returns the row key, the text columns, and other columns for exports.
    """

    name: str
    filters: dict[str, Any]
    text_columns: tuple[str, ...]
    other_columns: tuple[str, ...]
    start: Any = ""


def events_table(target: ErasureTarget) -> TextTable:
    return TextTable("events", {"team": target.ref}, ("subject", "recipient", "detail"), ("type", "created_at", "key"))


async def text_tables(database: Database, target: ErasureTarget) -> list[TextTable]:
    """Return all tables in which the address can only occur within texts, for erasure and export."""
    team = {"team": target.ref}
    imports = [row[0] for row in await database.read(partial(read_batch, query="scan_imports", after="", params=team))]
    tables = [
        TextTable("received", team, ("record", "body"), ("size", "created_at")),
        TextTable("suppressions", team, ("detail",), ("reason", "created_at")),
        *(TextTable("idempotency", {"key_id": key}, ("response",), ("status", "expires_at")) for key in target.keys),
        TextTable("audit", {"team_id": target.team}, ("subject", "detail"), ("action", "at"), 0),
        *(TextTable("versions", {"template": id_}, ("body",), ("template", "at"), -1) for id_ in target.templates),
        TextTable("refused_requests", team, ("message",), ("route", "status", "code", "at")),
        TextTable("imports", team, ("first_left",), ("created_at",)),
        *(TextTable("import_batches", {"import_id": id_}, ("lines",), (), -1) for id_ in imports),
        TextTable("early_reports", {}, ("report",), ("created_at",), 0),
        TextTable("early_bounces", {}, ("report",), ("created_at",), 0),
    ]
    if target.instance_audit:
        tables.append(TextTable("instance_audit", {}, ("subject", "detail"), ("action", "at"), 0))
    return tables


async def scan_table(
    database: Database, target: ErasureTarget, table: TextTable, on_progress: ProgressCallback
) -> AsyncIterator[list[Any]]:
    """Yield batches of rows that contain the address, ordered by row key."""
    params = table.filters | {"needles": target.variants.search_terms()}
    after, scanned = table.start, 0
    while rows := await database.read_standby(
        partial(read_batch, query=f"scan_{table.name}", after=after, params=params)
    ):
        after, scanned = rows[-1][0], scanned + BATCH
        text_columns = slice(1, 1 + len(table.text_columns))
        if matching_rows := [row for row in rows if any(map(target.variants.occurs_in, row[text_columns]))]:
            yield matching_rows
        on_progress(table.name, scanned)


async def scan_messages(
    database: Database, target: ErasureTarget, on_progress: ProgressCallback
) -> AsyncIterator[list[tuple[str]]]:
    """Yield the ids of messages that may contain the address, in batches."""
    needles = [
        *target.variants.search_terms(),
        (body_files.BODY_FILE_START,),
    ]  # includes contents with a body file
    params: dict[str, Any] = {"team": target.ref, "address": target.address, "needles": needles}
    after, scanned = "", 0
    while rows := await database.read_standby(partial(read_batch, query="scan_messages", after=after, params=params)):
        after, scanned = rows[-1][0], scanned + BATCH
        if ids := [(row[0],) for row in rows if row[1]]:
            yield ids
        on_progress("messages", scanned)


async def read_batch(tx: Tx, query: str, after: Any, params: dict[str, Any]) -> list[Any]:
    return await tx.run(query, after=after, limit=BATCH, **params)


# -- erasing ---------------------------------------------------------------------------------------------------------


class Erasures:
    def __init__(self, database: Database, publisher: Publisher, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._publisher = publisher

    async def begin(self, target: ErasureTarget, entry: AuditEntry) -> None:
        """Suppress the hash of the address; raises ErasureBlocked if messages to the address are in progress.

        Transactions that accept messages wait meanwhile, because the team's account is locked.
        """
        await write_serialized(self._database, lambda tx: _begin_erasure(tx, target, entry), entry.team)

    async def erase(self, target: ErasureTarget, now: int, on_progress: ProgressCallback) -> int:
        """Erase the address after `begin` and return the number of messages that contained the address.

        Raises ErasureBlocked if unsent messages to other recipients contain the address in their text.
        """
        messages, unsent = await self._erase_all_messages(target, now, on_progress)
        await _erase_table(self._database, target, events_table(target), _erase_events, on_progress)
        await _erase_verifications(self._database, target, now)
        for table in await text_tables(self._database, target):
            await _erase_texts(self._database, target, table, now, on_progress)
        await self._database.write(
            lambda tx: tx.run("delete_recipient_tombstone", id=f"{target.team}/{target.address}")
        )
        if unsent:
            raise ErasureBlocked(
                f"Everything else was erased, but messages to others that contain it are still in progress ({unsent})."
            )
        return messages

    async def _erase_all_messages(
        self, target: ErasureTarget, now: int, on_progress: ProgressCallback
    ) -> tuple[int, int]:
        """Erase the address from messages; return the numbers of erased messages and of unsent, unchanged messages."""
        erased, skipped = 0, 0
        async for ids in scan_messages(self._database, target, on_progress):
            contents_with_address = await self._find_contents_with_address(target, ids)
            erase = partial(_erase_messages, target=target, ids=ids, contents_with_address=contents_with_address)
            erased_now, skipped_now = await self._database.write(partial(erase, now=now, publisher=self._publisher))
            erased, skipped = erased + erased_now, skipped + skipped_now
        return erased, skipped

    async def _find_contents_with_address(self, target: ErasureTarget, ids: Sequence[tuple[str]]) -> frozenset[str]:
        """Return the stored contents of messages whose body is in a file and contains the address."""
        contents_with_address = set[str]()
        for (id_,) in ids:
            row = await self._database.read(partial(read_row, team=target.ref, id_=id_))
            content = row.content if row else None
            if content and body_files.has_body_file(content):
                full_content = await self._contents.load_body(content)
                contents_with_address |= {content} if target.variants.occurs_in(full_content) else set()
        return frozenset(contents_with_address)


async def _begin_erasure(tx: Tx, target: ErasureTarget, entry: AuditEntry) -> None:
    filters: dict[str, Any] = {"team": target.ref, "address": target.address}
    await tx.run("mark_erased", team=target.ref)
    ((messages,),) = await tx.run("count_queued_messages", lanes=QUEUES_AND_HELD, **filters)
    ((codes,),) = await tx.run("count_pending_verifications", now=entry.at, **filters)
    ((imports,),) = await tx.run("count_running_imports", team=target.ref)
    if messages or codes:
        raise ErasureBlocked(f"Sends to it are still in progress (messages: {messages}, verifications: {codes}).")
    if imports:
        raise ErasureBlocked("An import of suppressions is running in this team.")
    await _suppress_hash(tx, target, entry.at)
    await tx.run("erase_marketing", **filters)
    await tx.run("erase_opt_outs", name=target.address_hash, **filters)
    await tx.run("erase_unsubscribes", name=target.address_hash, **filters)
    # Also delete entries that erase_unsubscribes leaves: those of categories with an entry for the hash already.
    await tx.run("delete_unsubscribes", category="", **filters)
    await tx.run("erase_last_sender", **filters)
    await tx.run("erase_auto_replies", **filters)
    await audit.write(tx, entry)


async def _suppress_hash(tx: Tx, target: ErasureTarget, now: int) -> None:
    """Put the hash of the address on the suppression list, in place of the address itself.

    A phone number's hash is put there only if the number was, because sends to phones do not check the list.
    """
    rows = await tx.run("find_suppression", team=target.ref, address=target.address)
    reason, source, created_at = (rows[0][1], rows[0][2], rows[0][4]) if rows else ("manual", None, now)
    if not rows and "@" not in target.address:
        return
    await tx.run("delete_suppression", team=target.ref, address=target.address)
    row = (target.ref, target.address_hash, target.address_hash, reason, source, None, created_at)
    await tx.run("insert_suppressions", suppressions=[row])


# -- messages ------------------------------------------------------------------------------------------------------


class _MatchingMessage(msgspec.Struct, frozen=True):
    """A message that contains the address."""

    key: int
    record: str
    recipients: list[Any]  # columns: message, position, address, given, status, …, detail
    variants: AddressVariants
    placeholders: dict[str, str]  # address as given → its placeholder; empty if the address is not a recipient

    @property
    def other_recipients_are_final(self) -> bool:
        """Return whether all recipients other than the erased one have a final status."""
        return all(is_final(recipient[4]) for recipient in self.recipients if recipient[3] not in self.placeholders)


async def _erase_messages(
    tx: Tx,
    target: ErasureTarget,
    ids: list[tuple[str]],
    contents_with_address: frozenset[str],
    now: int,
    publisher: Publisher,
) -> tuple[int, int]:
    await index.invalidate_builds(tx)
    rows = await tx.run("lock_erased", team=target.ref, ids=ids)
    keys = [(row[0],) for row in rows]
    in_progress = {
        row[0] for row in await tx.run("find_queued_messages", team=target.ref, lanes=QUEUES_AND_HELD, messages=keys)
    }
    recipients: dict[int, list[Any]] = {key: [] for (key,) in keys}
    for recipient in await tx.run("recipients_of", messages=keys):
        recipients[recipient[0]].append(recipient)
    matches: list[_MatchingMessage] = []
    for key, record, body in rows:
        placeholders = {row[3]: placeholder(row[2], row[1]) for row in recipients[key] if row[2] == target.address}
        variants = target.variants.with_spellings(placeholders)
        if placeholders or variants.occurs_in(record) or variants.occurs_in(body) or body in contents_with_address:
            matches.append(_MatchingMessage(key, record, recipients[key], variants, placeholders))
    idle = [match for match in matches if match.key not in in_progress]
    if idle:
        await _write_messages(tx, target, idle, now, publisher)
    return len(idle), len(matches) - len(idle)


async def _write_messages(
    tx: Tx, target: ErasureTarget, matches: list[_MatchingMessage], now: int, publisher: Publisher
) -> None:
    keys = [(match.key,) for match in matches]
    await contents.delete_contents(tx, keys)  # the text may contain personal data
    for query in ("purge_blobs", "mark_content_deleted"):
        await tx.run(query, messages=keys)
    await tx.run("erase_recipient_index", team=target.ref, address=target.address, messages=keys)
    records = [(match.key, match.record, _erase_record(match.variants, match.record)) for match in matches]
    await tags.delete_for_messages(tx, keys)
    await tx.run("erase_records", records=[(key, new_record) for key, _, new_record in records])
    await tx.run("insert_tags", tags=tags.tag_rows_of_records(await tx.run("records_of", messages=keys)))
    await index.remove_terms(tx, records)
    ended_rows = await tx.run(
        "finish_erased", messages=[(match.key,) for match in matches if match.other_recipients_are_final], now=now
    )
    await publisher.publish(
        tx, await batches.finish_batches(tx, {batch for (batch,) in ended_rows if batch}, publisher, now)
    )
    recipients: list[tuple[Any, ...]] = []
    for match in matches:
        for key, position, address, given_address, *_, detail in match.recipients:
            placeholder = match.placeholders.get(given_address)
            recipients.append(
                (key, position, placeholder, placeholder, None)
                if placeholder
                else (key, position, address, given_address, match.variants.redact_text(detail))
            )
    await tx.run("erase_recipients", recipients=recipients)
    match_by_key, events = {match.key: match for match in matches}, []
    for key, id_, subject, recipient, detail, message in await tx.run("events_of", messages=keys):
        match = match_by_key[message]
        placeholder = match.placeholders.get(recipient)
        events.append(
            (id_, key, subject, placeholder, None)
            if placeholder
            else (id_, key, subject, recipient, match.variants.redact_text(detail))
        )
    await _write_events(tx, target, events)


def _erase_record(variants: AddressVariants, text: str) -> str:
    """Return the stored API response of the message without the address and the subject."""
    record: dict[str, Any] = msgspec.json.decode(variants.redact_text(text) or "{}")
    return msgspec.json.encode(record | ({"subject": ERASED_SUBJECT} if record.get("subject") else {})).decode()


# -- texts -----------------------------------------------------------------------------------------------------------


async def _erase_events(target: ErasureTarget, rows: Sequence[Any], tx: Tx) -> None:
    await _write_events(tx, target, [(row[0], row[-1], *map(target.variants.redact_text, row[1:4])) for row in rows])


async def _write_events(tx: Tx, target: ErasureTarget, events: Sequence[Any]) -> None:
    """Write erased events (id, key, subject, recipient, detail), and erase the responses of webhooks to them."""
    if not events:
        return
    await tx.run("erase_events", events=events)
    subjects = {id_: subject for id_, _, subject, *_ in events}
    pairs = [(webhook, id_) for webhook in target.webhooks for id_ in subjects]
    deliveries = [(row[0], subjects[row[1]]) for row in await tx.run("deliveries_of_events", pairs=pairs)]
    if deliveries:
        await tx.run("erase_deliveries", deliveries=deliveries)
        await tx.run("clear_delivery_responses", deliveries=deliveries)


async def _erase_table(
    database: Database,
    target: ErasureTarget,
    table: TextTable,
    erase_rows: Callable[[ErasureTarget, Sequence[Any], Tx], Coroutine[Any, Any, None]],
    on_progress: ProgressCallback,
) -> None:
    async for matching_rows in scan_table(database, target, table, on_progress):
        await write_serialized(database, partial(erase_rows, target, matching_rows), target.team)


async def _erase_texts(
    database: Database, target: ErasureTarget, table: TextTable, now: int, on_progress: ProgressCallback
) -> None:
    """Remove the address from the texts of a table.

    The query `erase_NAME` receives rows of the columns in `TextTable.filters`, the row key and the new texts.
    """

    async def erase_rows(target: ErasureTarget, rows: Sequence[Any], tx: Tx) -> None:
        text_columns = slice(1, 1 + len(table.text_columns))
        erased_rows = [
            (*table.filters.values(), row[0], *map(target.variants.redact_text, row[text_columns])) for row in rows
        ]
        if table.name in ("audit", "instance_audit"):
            entries = [(key, subject or "", detail or "") for *_, key, subject, detail in erased_rows]
            await audit.rewrite_entries(tx, entries, now)
            return
        if table.name in ("early_reports", "early_bounces"):  # their query also needs the old text
            erased_rows = [(row[0], row[1], new_text) for row, (*_, new_text) in zip(rows, erased_rows, strict=True)]
        await tx.run(f"erase_{table.name}", rows=erased_rows)

    await _erase_table(database, target, table, erase_rows, on_progress)


async def _erase_verifications(database: Database, target: ErasureTarget, now: int) -> None:
    async def erase_batch(tx: Tx) -> int:
        filters: dict[str, Any] = {"team": target.ref, "address": target.address}
        await tags.delete_for_records(tx, await tx.run("options_of_address", **filters))
        params = filters | {"stand_in": placeholder(target.address), "limit": BATCH, "now": now}
        return len(await tx.run("erase_verifications", **params))

    while await database.write(erase_batch):
        continue
