"""Assigns mail providers' events to recipients: by the ids that the provider returns, then by address."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from heliograph.domain.delivery import message_states
from heliograph.domain.delivery.outcome import CarrierReport, ProviderReport
from heliograph.domain.mail.address import parse_address
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import Change, RecipientRow

# taken: recorded, or waiting for its delivery attempt to be recorded. known: a repetition. nobody: about no message of
# ours. later: cannot be stored yet, the provider must repeat it.
Taken = Literal["taken", "known", "nobody", "later"]


async def report_by_provider(
    tx: Tx, carrier: str, told: Sequence[ProviderReport], *, replay_id: str, at: int, publisher: Publisher
) -> list[Taken]:
    seen = {"carrier": carrier, "id": replay_id}
    if replay_id and not await tx.run("insert_callback_seen", **seen, created_at=at):
        return ["known"] * len(told)
    places = await _places(tx, carrier, told)
    taken: list[Taken] = []
    changes: dict[tuple[Any, ...], Change] = {}
    known = await _known(tx, {place.message for place in places if place})
    for one, place in zip(told, places, strict=True):
        if place is None:
            taken.append(await _hear_elsewhere(tx, carrier, one, at))
        elif place.carrier_id is None:
            taken.append(await _keep(tx, place, one, at))
        elif place.carrier != carrier:
            taken.append("nobody")
        else:
            change = outcomes.to_change(place.message, place.position, one.report, at)
            words = (place.message, place.given, change.wanted, outcomes.written(change.detail))
            if (
                words in known
                or words in changes
                or (change.note == "deferred" and message_states.is_final(place.status))
            ):
                taken.append("known")
            else:
                changes[words] = change
                taken.append("taken")
    if changes:
        await outcomes.record(tx, list(changes.values()), owner=None, publisher=publisher)
    if replay_id and "later" in taken:
        await tx.run("delete_callback_seen", **seen)
    return taken


async def _places(tx: Tx, carrier: str, told: Sequence[ProviderReport]) -> list[RecipientRow | None]:
    ids = {id_ for one in told for id_ in (one.along, one.message_id) if id_}
    found = await tx.run("messages_by_id", ids=[(id_,) for id_ in ids]) if ids else []
    by_id = {id_: (key, None) for id_, key in found}
    theirs = {id_ for one in told for id_ in one.carrier_ids}
    found = await tx.run("places_by_carrier_id", carrier=carrier, ids=[(id_,) for id_ in theirs]) if theirs else []
    by_carrier_id = {id_: (key, position) for id_, key, position in found}
    keys = {key for key, _ in (*by_id.values(), *by_carrier_id.values())}
    rows = await tx.run("recipients_of", messages=[(key,) for key in keys]) if keys else []
    recipients: dict[int, list[RecipientRow]] = {}
    for row in rows:
        recipients.setdefault(row[0], []).append(RecipientRow(*row))

    def place(one: ProviderReport) -> RecipientRow | None:
        of_carrier = next((by_carrier_id[id_] for id_ in one.carrier_ids if id_ in by_carrier_id), None)
        meant = by_id.get(one.along or "") or of_carrier or by_id.get(one.message_id or "")
        return _meant(recipients.get(meant[0], []), one.address, of_carrier) if meant else None

    return [place(one) for one in told]


def _meant(
    everyone: Sequence[RecipientRow], address: str | None, of_carrier: tuple[int, int] | None
) -> RecipientRow | None:
    """Return the recipient that an event is about: by address, else by the carrier's id, else the only recipient."""
    if address:
        parsed = parse_address(address.strip())
        wanted = (parsed.normal if parsed else address.strip()).lower()
        return next((one for one in everyone if one.address.lower() == wanted), None)
    if of_carrier:
        return next((one for one in everyone if (one.message, one.position) == of_carrier), None)
    return everyone[0] if len(everyone) == 1 else None


async def _known(tx: Tx, keys: set[int]) -> set[tuple[Any, ...]]:
    """Lock the messages and return the events in their timelines."""
    if not keys:
        return set()
    messages = [(key,) for key in sorted(keys)]
    await outcomes.lock_messages(tx, messages)
    return {tuple(row) for row in await tx.run("told_to", messages=messages)}


async def _keep(tx: Tx, place: RecipientRow, one: ProviderReport, at: int) -> Taken:
    """Keep a report until its delivery attempt is recorded.

    A different second report is deferred, so that it is not lost.
    """
    report = msgspec.json.encode(one.report).decode()
    row = {"message": place.message, "position": place.position, "report": report}
    kept = await tx.run("early_return_at", message=place.message, position=place.position)
    if kept:
        return "taken" if kept[0][0] == report else "later"
    await tx.run("insert_early_return", **row, created_at=at)
    return "taken"


async def _hear_elsewhere(tx: Tx, carrier: str, one: ProviderReport, at: int) -> Taken:
    """Assign a report to a verification code sent by mail, or keep it if only the carrier's id identifies it."""
    reports = [CarrierReport(id_, one.report) for id_ in one.carrier_ids]
    if reports and await outcomes.hear_of_codes(tx, carrier, reports, at):
        return "taken"
    if reports and not one.along and not one.message_id:
        written = msgspec.json.encode(one.report).decode()
        await tx.run("insert_early_reports", reports=[(carrier, id_, written, at) for id_, _ in reports])
    return "nobody"
