"""Entry point of all asynchronous reports: delivery receipts, statuses, bounces and complaints.

A report names its message by the carrier's id, or by message and position. A report that arrives before its delivery
attempt is recorded is kept until then. Reports about the parts of a long message are combined into one state.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace

from heliograph.carriers.contract import Callback, CallbackAnswer, CallbackTooLarge, Carrier, Carriers
from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, Report, TextPart
from heliograph.domain.phones.opt_out import PhoneChannel
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.inbound.store.inbound_texts import Way
from heliograph.runtime import metrics
from heliograph.storage.setup import SetupChange, SetupEvent
from heliograph.storage.store import Store
from heliograph.templates.policy.meta_status import UpstreamNews, after, changed_data, named_by

PORTION = 100  # events per transaction
LATER = CallbackAnswer(status=503)

Item = TypeVar("Item")

log = structlog.get_logger()


async def take_by_carrier(
    store: Store, carrier: str, reports: Sequence[CarrierReport], *, skip_known: bool = False
) -> None:
    """Store a carrier's reports. `skip_known`: ignore reports that are already stored verbatim."""
    if reports:
        await store.reports.by_carrier(carrier, reports, skip_known=skip_known)


async def take_texts(
    store: Store,
    carrier: str,
    channel: PhoneChannel,
    texts: Sequence[IncomingText | TextPart],
    *,
    team: int | None = None,
) -> None:
    """Store texts that people sent through this carrier. `team`: the recipient team, if known."""
    if texts:
        await store.texts.take(Way(carrier=carrier, channel=channel, team=team), texts)


async def take_by_recipient(store: Store, message_id: str, position: int, report: Report) -> None:
    """Store a report for a recipient, whichever carrier sent the message.

    Used for bounces to the signed envelope sender (VERP) of this recipient.
    """
    await store.reports.by_recipient(message_id, position, report)


async def address_of(store: Store, message_id: str, position: int) -> str | None:
    """Return the recipient address of a returned mail; None if the message was deleted."""
    return await store.reports.address_of(message_id, position)


async def take_callback(
    store: Store, carriers: Carriers, carrier: str, callback: Callback, body: Callable[[], Awaitable[bytes]]
) -> CallbackAnswer | None:
    """Store the reports of a carrier's callback and return the response.

    None, with the body unread, if the carrier does not exist or accepts no callbacks.
    """
    record = next((record for record in store.setup.current.carriers if record.id == carrier), None)
    heard = await carriers.get(record) if record else None
    if heard is None or heard.read_callback(callback) is None:
        return None
    callback = replace(callback, body=await body())
    answer = await _hear(carriers, carrier, heard, callback)
    if answer is None:
        return None
    if answer.status >= 400:
        log.warning("callback refused", carrier=carrier, status=answer.status)
    elif callback.method == "POST":
        await store.carrier_use.heard(carrier, callback.now)
    for reports in _batches(answer.reports):
        await take_by_carrier(store, carrier, reports, skip_known=True)
    if record and record.channel != "email":
        for texts in _batches(answer.texts):
            await take_texts(store, carrier, record.channel, texts)
    for news in answer.templates:
        await take_template_news(store, carrier, news, callback.now)
    return await take_from_provider(store, carrier, answer) if answer.told else answer


async def _hear(carriers: Carriers, id_: str, carrier: Carrier, callback: Callback) -> CallbackAnswer | None:
    """Verify and parse a callback; respond 503 if too many large callbacks are in progress, 413 if it is too large."""
    try:
        if not callback.is_large:
            return await carrier.hear(callback)
        with carriers.admit_large(id_, callback.client) as is_admitted:
            return await carrier.hear(callback) if is_admitted else LATER
    except CallbackTooLarge:
        return CallbackAnswer(status=413)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + PORTION] for start in range(0, len(items), PORTION))


async def take_template_news(store: Store, carrier: str, news: UpstreamNews, now: int) -> None:
    """Store Meta's update of a template for each team that uses the template; known updates change nothing."""
    found = [team for team in store.setup.current.teams.values() if named_by(team, news)]
    if not found:
        metrics.unclaimed_templates[carrier].inc()
    for team in found:
        if after(news, team):
            id_ = team.record.id
            await store.setup.change(partial(_heard, team_id=id_, news=news, now=now), id_)


def _heard(setup: Setup, _: int, *, team_id: str, news: UpstreamNews, now: int) -> SetupChange:
    team = setup.teams.get(team_id)
    new, named = (after(news, team), named_by(team, news)) if team else (None, [])
    if team is None or new is None or not named:
        return SetupChange()
    old = team.upstream.get((news.name, news.language))
    type_, action = "template.status_changed", f"template.upstream_{news.status or 'quality'}"
    return SetupChange(
        rows=[to_row("upstream_template", new.id, new, team_id)],
        events=[
            SetupEvent(team=team_id, subject=one.id, type=type_, data=changed_data(one, old, new)) for one in named
        ],
        audit=SERVICE.did(now, action, named[0].id, new.reason if news.status else new.quality, team=team_id),
    )


async def take_from_provider(store: Store, carrier: str, answer: CallbackAnswer) -> CallbackAnswer:
    """Store a mail provider's events; return its response, or 503 (retry) if an event cannot be stored yet."""
    for number, batch in enumerate(_batches(answer.told)):
        replay_id = f"{answer.replay_id}/{number}" if answer.replay_id and number else answer.replay_id
        taken = await store.reports.by_provider(carrier, batch, replay_id=replay_id)
        for result in taken:
            metrics.provider_event[carrier, result].inc()
        if "later" in taken:
            return LATER
    return answer


async def apply_early(store: Store) -> None:
    """Apply reports that arrived early and whose delivery attempt is now recorded."""
    await store.reports.apply_early()
