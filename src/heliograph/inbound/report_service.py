"""Processes all reports that arrive after sending: delivery receipts, statuses, bounces and complaints.

A report identifies its message by the carrier's message id, or by our message id and the recipient's position. If a
report arrives before its delivery attempt is recorded, it is stored and applied later. Reports about the parts of a
long SMS are combined into one status.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace

from heliograph.carriers.contract import Callback, CallbackResult, CallbackTooLarge, Carrier, Carriers
from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, Report, TextPart
from heliograph.domain.event_data import TemplateStatusData
from heliograph.domain.mail.feedback_id import FeedbackSource, hash_team
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.setup.records import Template, UpstreamTemplate
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.inbound.store.inbound_texts import TextSource
from heliograph.runtime import metrics
from heliograph.storage.setup import SetupChange, SetupEvent
from heliograph.storage.store import Store
from heliograph.templates.policy.meta_status import UpstreamUpdate, apply_update, templates_of_update

BATCH_SIZE = 100  # events per transaction
RETRY_LATER = CallbackResult(status=503)

Item = TypeVar("Item")

log = structlog.get_logger()


async def store_carrier_reports(
    store: Store, carrier: str, reports: Sequence[CarrierReport], *, skip_known: bool = False
) -> None:
    """Store a carrier's delivery reports. `skip_known`: ignore a report if an identical one is already stored."""
    if reports:
        await store.reports.store_by_carrier(carrier, reports, skip_known=skip_known)


async def store_inbound_texts(
    store: Store,
    carrier: str,
    channel: PhoneChannel,
    texts: Sequence[IncomingText | TextPart],
    *,
    team: int | None = None,
) -> None:
    """Store inbound SMS or WhatsApp messages received through this carrier. `team`: the recipient team, if known."""
    if texts:
        await store.inbound_texts.store(TextSource(carrier=carrier, channel=channel, team=team), texts)


async def store_recipient_report(store: Store, message_id: str, position: int, report: Report) -> None:
    """Store a delivery report for one recipient, identified by message and position.

    Used for bounces to the recipient's signed envelope sender (VERP).
    """
    await store.reports.store_by_recipient(message_id, position, report)


async def count_complaint(store: Store, feedback_key: bytes, source: FeedbackSource) -> None:
    """Count a complaint that names a team (by the mail's Feedback-ID), but no message; ignore deleted teams."""
    for id_, team in store.setup.current.teams.items():
        if hash_team(feedback_key, id_) == source.team:
            await store.complaint_rates.count_unattributed(team.record.ref, source.name)


async def recipient_address(store: Store, message_id: str, position: int) -> str | None:
    """Return the address of a message's recipient; None if the message was deleted."""
    return await store.reports.recipient_address(message_id, position)


async def handle_callback(
    store: Store, carriers: Carriers, carrier_id: str, callback: Callback, body: Callable[[], Awaitable[bytes]]
) -> CallbackResult | None:
    """Store the reports in a carrier's callback and return the response.

    Returns None, without reading the body, if the carrier does not exist or accepts no callbacks.
    """
    record = next((record for record in store.setup.current.carriers if record.id == carrier_id), None)
    handler = await carriers.get(record) if record else None
    if handler is None or handler.parse_callback(callback) is None:
        return None
    callback = replace(callback, body=await body())
    result = await _parse_callback(carriers, carrier_id, handler, callback)
    if result is None:
        return None
    if result.status >= 400:
        log.warning("callback refused", carrier=carrier_id, status=result.status)
    elif callback.method == "POST":
        await store.carrier_stats.record_callback(carrier_id, callback.now)
    for reports in _batches(result.reports):
        await store_carrier_reports(store, carrier_id, reports, skip_known=True)
    if record and record.channel != "email":
        for texts in _batches(result.incoming_texts):
            await store_inbound_texts(store, carrier_id, record.channel, texts)
    for update in result.template_updates:
        await store_template_update(store, carrier_id, update, callback.now)
    return await store_provider_events(store, carrier_id, result) if result.provider_reports else result


async def _parse_callback(
    carriers: Carriers, carrier_id: str, carrier: Carrier, callback: Callback
) -> CallbackResult | None:
    """Verify and parse a callback; respond 503 while too many large callbacks are processed, 413 if it is too large."""
    try:
        if not callback.is_large:
            return await carrier.parse_callback_async(callback)
        with carriers.reserve_large_callback(carrier_id, callback.client) as is_admitted:
            return await carrier.parse_callback_async(callback) if is_admitted else RETRY_LATER
    except CallbackTooLarge:
        return CallbackResult(status=413)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + BATCH_SIZE] for start in range(0, len(items), BATCH_SIZE))


async def store_template_update(store: Store, carrier: str, update: UpstreamUpdate, now: int) -> None:
    """Store Meta's update of a template in each team that uses the template; a repeated update changes nothing."""
    teams = [team for team in store.setup.current.teams.values() if templates_of_update(team, update)]
    if not teams:
        metrics.unclaimed_templates[carrier].inc()
    for team in teams:
        if apply_update(update, team):
            id_ = team.record.id
            await store.setup.change(partial(_template_change, team_id=id_, update=update, now=now), id_)


def _template_change(setup: Setup, _: int, *, team_id: str, update: UpstreamUpdate, now: int) -> SetupChange:
    team = setup.teams.get(team_id)
    updated, templates = (apply_update(update, team), templates_of_update(team, update)) if team else (None, [])
    if team is None or updated is None or not templates:
        return SetupChange()
    previous = team.upstream.get((update.name, update.language))
    type_, action = "template.status_changed", f"template.upstream_{update.status or 'quality'}"
    return SetupChange(
        rows=[to_row("upstream_template", updated.id, updated, team_id)],
        events=[
            SetupEvent(team=team_id, subject=template.id, type=type_, data=_status_data(template, previous, updated))
            for template in templates
        ],
        audit=SERVICE.audit_entry(
            now, action, templates[0].id, updated.reason if update.status else updated.quality, team=team_id
        ),
    )


def _status_data(template: Template, old: UpstreamTemplate | None, new: UpstreamTemplate) -> TemplateStatusData:
    """Return the data of the event `template.status_changed`."""
    return TemplateStatusData(
        id=template.id,
        name=template.name,
        channel=template.channel,
        upstream_name=new.name,
        language=new.language,
        upstream_status=new.status,
        upstream_reason=new.reason or None,
        upstream_quality=new.quality or None,
        previous_upstream_status=old.status if old else None,
    )


async def store_provider_events(store: Store, carrier: str, callback_result: CallbackResult) -> CallbackResult:
    """Store a mail provider's events and return its response; 503 (send again) if an event cannot be stored yet."""
    for index, batch in enumerate(_batches(callback_result.provider_reports)):
        replay_id = callback_result.replay_id
        if replay_id and index:
            replay_id += f"/{index}"
        results = await store.reports.store_by_provider(carrier, batch, replay_id=replay_id)
        for result in results:
            metrics.provider_events[carrier, result].inc()
        if "later" in results:
            return RETRY_LATER
    return callback_result


async def apply_early_reports(store: Store) -> None:
    """Apply reports that arrived before their delivery attempt was recorded, if it is recorded now."""
    await store.reports.apply_early_reports()
