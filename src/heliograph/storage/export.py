"""Export of a team's data about an address: scans the same tables as an erasure and removes other addresses."""

from functools import partial
from typing import Any

import msgspec

from heliograph.domain.ids import timestamp
from heliograph.domain.operations.erasure import Forms
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.erase import (
    Tell,
    TextTable,
    Wanted,
    events_of,
    look,
    look_through,
    look_through_messages,
    places_of,
)
from heliograph.storage.search import message_search

Shown = dict[str, Any]

SECTIONS = {
    "received": "received",
    "suppressions": "suppressions",
    "idempotency": "kept_answers",
    "audit": "audit_log",
    "instance_audit": "audit_log",
    "versions": "templates",
    "refused": "refused_requests",
    "imports": "imports",
    "portions": "imports",
    "early": "early_reports",
    "returns": "early_reports",
}
VERIFICATION = (
    "id",
    "status",
    "to",
    "channels",
    "resent",
    "wrong",
    "error_message",
    "added",
    "created_at",
    "expires_at",
)
SUPPRESSION = ("email", "reason", "source_message_id", "detail", "created_at")
OPT_OUT = ("phone", "channel", "reason", "created_at")


class Exports:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all_of(self, wanted: Wanted, now: int, tell: Tell) -> dict[str, list[Shown]]:
        """Return the stored data about the address by section; sections without data are empty lists."""
        own = ("messages", "events", "verifications", "marketing", "opt_outs")
        held: dict[str, list[Shown]] = {section: [] for section in (*own, *SECTIONS.values())}
        async for ids in look_through_messages(self._database, wanted, tell):
            for (id_,) in ids:
                if found := await self._database.read(partial(_message, wanted=wanted, id_=id_)):
                    held["messages"].append(found)
        told = {event["id"] for message in held["messages"] for event in message["timeline"]}
        async for rows in look_through(self._database, wanted, events_of(wanted), tell):
            held["events"] += [_row(wanted, events_of(wanted), row) for row in rows if row[0] not in told]
        whose: Shown = {"team": wanted.ref, "address": wanted.address}
        for row in await self._own("look_verifications", whose | {"now": now}):
            held["verifications"].append(_shown(wanted.forms, dict(zip(VERIFICATION, row, strict=True))))
        for row in await self._own("look_marketing", whose):
            held["marketing"].append(_shown(wanted.forms, {"created_at": row[0]}))
        for row in await self._database.read(lambda tx: tx.run("find_suppression", **whose)):
            held["suppressions"].append(_shown(wanted.forms, dict(zip(SUPPRESSION, row, strict=True))))
        for row in await self._database.read(lambda tx: tx.run("find_opt_outs", team=wanted.ref, phone=wanted.address)):
            held["opt_outs"].append(_shown(wanted.forms, dict(zip(OPT_OUT, row, strict=True))))
        for place in await places_of(self._database, wanted):
            async for rows in look_through(self._database, wanted, place, tell):
                held[SECTIONS[place.name]] += [_row(wanted, place, row) for row in rows]
        return held

    async def _own(self, query: str, given: Shown) -> list[Any]:
        """Return all rows of the paginated query, without their keys."""
        found: list[Any] = []
        after = 0
        while rows := await self._database.read(partial(look, query=query, after=after, given=given)):
            after = rows[-1][0]
            found += [row[1:] for row in rows]
        return found


async def _message(tx: Tx, wanted: Wanted, id_: str) -> Shown | None:
    """Return the message with this address as the only recipient.

    None if the message was deleted, or matched only because it contains a longer address.
    """
    whole = await message_search.whole(tx, wanted.ref, id_, wanted.webhooks)
    if whole is None:
        return None
    facts = whole.facts
    people = await tx.run("recipients_of", messages=[(facts.key,)])
    own = {given for _, _, address, given, *_ in people if address == wanted.address}
    forms = wanted.forms.also(own)
    if not own and not forms.are_in(facts.record) and not forms.are_in(facts.content):
        return None
    timeline = [event for event in whole.events if event.recipient in own]
    content = msgspec.json.decode(facts.content) if facts.content else None
    for file in (content or {}).get("attachments", []):
        file.pop("base64", None)  # files cannot be searched for addresses of other people
    return {
        "id": facts.id,
        "channel": facts.channel,
        "status": facts.status,
        "created_at": timestamp(facts.created_at),
        "record": _shown(forms, msgspec.json.decode(facts.record)),
        "content": forms.alone(content),
        "recipients": [_shown(forms, msgspec.structs.asdict(one)) for one in whole.recipients if one.given in own],
        "timeline": [_shown(forms, msgspec.structs.asdict(event)) for event in timeline],
        "webhook_deliveries": [
            {
                "event": event.id,
                "webhook": delivery.webhook,
                "state": delivery.state,
                "answers": [forms.alone(attempt.answer) for attempt in delivery.attempts],
            }
            for event in timeline
            for delivery in whole.deliveries.get(event.id, [])
        ],
    }


def _row(wanted: Wanted, place: TextTable, row: Any) -> Shown:
    shown = dict(zip((*place.texts, *place.shown), row[1:], strict=True))
    return _shown(wanted.forms, {name: value for name, value in shown.items() if name != "key"})


def _shown(forms: Forms, fields: Shown) -> Shown:
    """Return the fields for the export: JSON texts are decoded and times are formatted as timestamps."""
    return {name: _value(forms, name, value) for name, value in fields.items()}


def _value(forms: Forms, name: str, value: Any) -> Any:
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        return timestamp(value)
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            pass
    if name in ("lines", "first_left"):  # lines of an import file
        return forms.alone([line for line in value if forms.are_in(msgspec.json.encode(line).decode())])
    return forms.alone(value)
