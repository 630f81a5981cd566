"""Stores mail providers' delivery events. The recipient is found by the ids in the event, otherwise by the address."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from heliograph.domain.delivery import message_states
from heliograph.domain.delivery.outcome import CarrierReport, ProviderReport
from heliograph.domain.mail.address import parse_address
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import RecipientRow, RecipientUpdate

# taken: recorded, or stored until the delivery attempt is recorded. known: a duplicate. nobody: no message matches yet.
# later: cannot be stored yet, so the provider must send it again.
ReportResult = Literal["taken", "known", "nobody", "later"]


async def store_provider_reports(
    tx: Tx, carrier: str, reports: Sequence[ProviderReport], *, replay_id: str, at: int, publisher: Publisher
) -> list[ReportResult]:
    """Store a provider's reports; return the result of each. `replay_id`: equal for all repetitions of a callback."""
    callback_key = {"carrier": carrier, "id": replay_id}
    if replay_id and not await tx.run("insert_callback_seen", **callback_key, created_at=at):
        return ["known"] * len(reports)
    recipients = await _find_recipients(tx, carrier, reports)
    results: list[ReportResult] = []
    updates: dict[tuple[Any, ...], RecipientUpdate] = {}
    known_events = await _lock_and_read_events(tx, {recipient.message for recipient in recipients if recipient})
    for report, recipient in zip(reports, recipients, strict=True):
        if recipient is None:
            results.append(await _store_unassigned_report(tx, carrier, report, at))
        elif recipient.carrier_id is None:
            results.append(await _store_early_report(tx, recipient, report, at))
        elif recipient.carrier != carrier:
            results.append("nobody")
        else:
            update = outcomes.update_from_report(recipient.message, recipient.position, report.report, at)
            detail = outcomes.encode_detail(update.detail)
            event_key = (recipient.message, recipient.given_address, update.target_status, detail)
            is_late_deferral = update.timeline_note == "deferred" and message_states.is_final(recipient.status)
            if event_key in known_events or event_key in updates or is_late_deferral:
                results.append("known")
            else:
                updates[event_key] = update
                results.append("taken")
    if updates:
        await outcomes.record_updates(tx, list(updates.values()), owner=None, publisher=publisher)
    if replay_id and "later" in results:
        await tx.run("delete_callback_seen", **callback_key)
    return results


async def _find_recipients(tx: Tx, carrier: str, reports: Sequence[ProviderReport]) -> list[RecipientRow | None]:
    ids = [(id_,) for id_ in {id_ for report in reports for id_ in (report.tracking_id, report.message_id) if id_}]
    by_id: dict[str, int] = dict(await tx.run("messages_by_id", ids=ids)) if ids else {}
    carrier_ids = [(id_,) for id_ in {id_ for report in reports for id_ in report.carrier_ids}]
    rows = await tx.run("recipients_by_carrier_id", carrier=carrier, ids=carrier_ids) if carrier_ids else []
    by_carrier_id: dict[str, tuple[int, int]] = {id_: (key, position) for id_, key, position in rows}
    keys = {*by_id.values(), *(key for key, _ in by_carrier_id.values())}
    recipients: dict[int, list[RecipientRow]] = {}
    for row in await tx.run("recipients_of", messages=[(key,) for key in keys]) if keys else []:
        recipients.setdefault(row[0], []).append(RecipientRow(*row))

    def find_recipient(report: ProviderReport) -> RecipientRow | None:
        carrier_match = next((by_carrier_id[id_] for id_ in report.carrier_ids if id_ in by_carrier_id), None)
        key = by_id.get(report.tracking_id or "")
        if key is None:
            key = carrier_match[0] if carrier_match else by_id.get(report.message_id or "")
        return None if key is None else _choose_recipient(recipients.get(key, []), report.address, carrier_match)

    return [find_recipient(report) for report in reports]


def _choose_recipient(
    recipients: Sequence[RecipientRow], address: str | None, carrier_match: tuple[int, int] | None
) -> RecipientRow | None:
    """Return an event's recipient: by address, else by the carrier's message id, else the message's only recipient."""
    if address:
        parsed = parse_address(address.strip())
        normalized = (parsed.normal if parsed else address.strip()).lower()
        return next((recipient for recipient in recipients if recipient.address.lower() == normalized), None)
    if carrier_match:
        return next(
            (recipient for recipient in recipients if (recipient.message, recipient.position) == carrier_match), None
        )
    return recipients[0] if len(recipients) == 1 else None


async def _lock_and_read_events(tx: Tx, keys: set[int]) -> set[tuple[Any, ...]]:
    """Lock the messages, and return the events of their timelines."""
    if not keys:
        return set()
    messages = [(key,) for key in sorted(keys)]
    await outcomes.lock_messages(tx, messages)
    return {tuple(row) for row in await tx.run("recipient_event_details", messages=messages)}


async def _store_early_report(
    tx: Tx, recipient: RecipientRow, provider_report: ProviderReport, at: int
) -> ReportResult:
    """Store a report until its delivery attempt is recorded.

    Only one report per recipient is stored. A second, different report is refused with `later`, so that the provider
    repeats it.
    """
    report = msgspec.json.encode(provider_report.report).decode()
    recipient_key: dict[str, Any] = {"message": recipient.message, "position": recipient.position}
    if rows := await tx.run("early_return_at", **recipient_key):
        return "taken" if rows[0][0] == report else "later"
    await tx.run("insert_early_return", **recipient_key, report=report, created_at=at)
    return "taken"


async def _store_unassigned_report(tx: Tx, carrier: str, report: ProviderReport, at: int) -> ReportResult:
    """Handle a report that matches no message: record the report if it is about a verification code sent by mail.

    Otherwise, a report that names its message only by the carrier's id is stored for a minute, because the message's
    delivery attempt may not be recorded yet.
    """
    reports = [CarrierReport(id_, report.report) for id_ in report.carrier_ids]
    if reports and await outcomes.record_code_receipts(tx, carrier, reports, at):
        return "taken"
    if reports and not report.tracking_id and not report.message_id:
        report_json = msgspec.json.encode(report.report).decode()
        await tx.run("insert_early_reports", reports=[(carrier, id_, report_json, at) for id_, _ in reports])
    return "nobody"
