"""Exports a team's data about one address: reads the tables that an erasure scans, and leaves out other addresses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from heliograph.domain.ids import timestamp
from heliograph.domain.operations.erasure import AddressVariants
from heliograph.storage.body_files import Contents
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.erase import (
    ErasureTarget,
    ProgressCallback,
    TextTable,
    events_table,
    read_batch,
    scan_messages,
    scan_table,
    text_tables,
)
from heliograph.storage.search import message_search
from heliograph.storage.search.message_search import MessageDetails

JsonObject = dict[str, Any]

SECTION_BY_TABLE = {
    "received": "received",
    "suppressions": "suppressions",
    "idempotency": "kept_answers",
    "audit": "audit_log",
    "instance_audit": "audit_log",
    "versions": "templates",
    "refused_requests": "refused_requests",
    "imports": "imports",
    "import_batches": "imports",
    "early_reports": "early_reports",
    "early_bounces": "early_reports",
}
VERIFICATION_FIELDS = (
    *("id", "status", "to", "channels", "resent", "wrong", "error_message", "added", "created_at", "expires_at"),
)
SUPPRESSION_FIELDS = ("email", "reason", "source_message_id", "detail", "created_at")
OPT_OUT_FIELDS = ("phone", "channel", "reason", "created_at")
UNSUBSCRIBE_FIELDS = ("address", "category", "reason", "created_at")


class Exports:
    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents

    async def export(
        self, target: ErasureTarget, now: int, on_progress: ProgressCallback
    ) -> dict[str, list[JsonObject]]:
        """Return the stored data about the address by section; a section without data is an empty list."""
        direct_sections = ("messages", "events", "verifications", "marketing", "opt_outs", "unsubscribes")
        sections: dict[str, list[JsonObject]] = {
            section: [] for section in (*direct_sections, *SECTION_BY_TABLE.values())
        }

        def add_rows(section: str, fields: Sequence[str], rows: list[Any]) -> None:
            records = [dict(zip(fields, row, strict=True)) for row in rows]
            sections[section] += [_export_fields(target.variants, record) for record in records]

        async for ids in scan_messages(self._database, target, on_progress):
            for (id_,) in ids:
                if message := await self._export_message(target, id_):
                    sections["messages"].append(message)
        exported_events = {event["id"] for message in sections["messages"] for event in message["timeline"]}
        async for rows in scan_table(self._database, target, events_table(target), on_progress):
            sections["events"] += [
                _export_row(target, events_table(target), row) for row in rows if row[0] not in exported_events
            ]
        filters: JsonObject = {"team": target.ref, "address": target.address}
        add_rows("verifications", VERIFICATION_FIELDS, await self._read_all("scan_verifications", **filters, now=now))
        add_rows("marketing", ("created_at",), await self._read_all("scan_marketing", **filters))
        add_rows("suppressions", SUPPRESSION_FIELDS, await self._read("find_suppression", **filters))
        opt_outs = await self._read("find_opt_outs", team=target.ref, phone=target.address)
        add_rows("opt_outs", OPT_OUT_FIELDS, opt_outs)
        add_rows("unsubscribes", UNSUBSCRIBE_FIELDS, await self._read("find_unsubscribes", **filters))
        for table in await text_tables(self._database, target):
            async for rows in scan_table(self._database, target, table, on_progress):
                sections[SECTION_BY_TABLE[table.name]] += [_export_row(target, table, row) for row in rows]
        return sections

    async def _export_message(self, target: ErasureTarget, id_: str) -> JsonObject | None:
        """Return the message, reduced to the exported address as its only recipient.

        None if the message was deleted, or matched only because a longer address contains the exported one.
        """
        result = await self._database.read_standby(partial(_read_message, target=target, id_=id_))
        if result is None:
            return None
        details, recipients = result
        content = details.row.content and await self._contents.load_body(details.row.content)
        return _to_export(target, details, recipients, content)

    async def _read(self, query: str, **params: Any) -> list[Any]:
        return await self._database.read_standby(lambda tx: tx.run(query, **params))

    async def _read_all(self, query: str, **params: Any) -> list[Any]:
        """Return all rows of the paginated query, without their keys."""
        rows: list[Any] = []
        after = 0
        while batch := await self._database.read_standby(partial(read_batch, query=query, after=after, params=params)):
            after = batch[-1][0]
            rows += [row[1:] for row in batch]
        return rows


async def _read_message(tx: Tx, target: ErasureTarget, id_: str) -> tuple[MessageDetails, list[Any]] | None:
    details = await message_search.read_details(tx, target.ref, id_, target.webhooks)
    if details is None:
        return None
    return details, await tx.run("recipients_of", messages=[(details.row.key,)])


def _to_export(
    target: ErasureTarget, details: MessageDetails, recipients: Sequence[Any], text: str | None
) -> JsonObject | None:
    """Return the export of a message whose content is `text`; None if the message does not contain the address."""
    message = details.row
    given_addresses = {given_address for _, _, address, given_address, *_ in recipients if address == target.address}
    variants = target.variants.with_spellings(given_addresses)
    if not given_addresses and not variants.occurs_in(message.record) and not variants.occurs_in(text):
        return None
    timeline = [event for event in details.events if event.recipient in given_addresses]
    content = msgspec.json.decode(text) if text else None
    for file in (content or {}).get("attachments", []):
        file.pop("base64", None)  # a file may contain other people's addresses, which cannot be found and removed
    return {
        "id": message.id,
        "channel": message.channel,
        "status": message.status,
        "created_at": timestamp(message.created_at),
        "record": _export_fields(variants, msgspec.json.decode(message.record)),
        "content": variants.only_own_data(content),
        "recipients": [
            _export_fields(variants, msgspec.structs.asdict(recipient))
            for recipient in details.recipients
            if recipient.given in given_addresses
        ],
        "timeline": [_export_fields(variants, msgspec.structs.asdict(event)) for event in timeline],
        "webhook_deliveries": [
            {
                "event": event.id,
                "webhook": delivery.webhook,
                "state": delivery.state,
                "answers": [variants.only_own_data(attempt.answer) for attempt in delivery.attempts],
            }
            for event in timeline
            for delivery in details.deliveries.get(event.id, [])
        ],
    }


def _export_row(target: ErasureTarget, table: TextTable, row: Any) -> JsonObject:
    fields = dict(zip((*table.text_columns, *table.other_columns), row[1:], strict=True))
    return _export_fields(target.variants, {name: value for name, value in fields.items() if name != "key"})


def _export_fields(variants: AddressVariants, fields: JsonObject) -> JsonObject:
    """Return the fields for the export: JSON texts are decoded and times are formatted as timestamps."""
    return {name: _export_value(variants, name, value) for name, value in fields.items()}


def _export_value(variants: AddressVariants, name: str, value: Any) -> Any:
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        return timestamp(value)
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            pass
    if name in ("lines", "first_left"):  # lists of lines of an import file
        return variants.only_own_data(
            [line for line in value if variants.occurs_in(msgspec.json.encode(line).decode())]
        )
    return variants.only_own_data(value)
