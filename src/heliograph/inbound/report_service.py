"""The only way in for what the world says later: receipts, statuses, bounces and complaints.

A report names its message by the carrier's own id, or by message and position. One that is faster than the record of
its hand-over is kept until that is there; those of a long message's parts fold into one state.
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

PORTION = 100  # events of a batch in one transaction
LATER = CallbackAnswer(status=503)

Item = TypeVar("Item")

log = structlog.get_logger()


async def take_by_carrier(
    store: Store, carrier: str, reports: Sequence[CarrierReport], *, skip_known: bool = False
) -> None:
    """Store reports; `skip_known`: those that are stored verbatim already change nothing."""
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
    """Take what people wrote to us through this carrier; `team` is whom it is for, if that is known."""
    if texts:
        await store.texts.take(Way(carrier=carrier, channel=channel, team=team), texts)


async def take_by_recipient(store: Store, message_id: str, position: int, report: Report) -> None:
    """Take a report no matter which carrier had the message.

    Such is a mail that came back to the sender that we signed for this recipient.
    """
    await store.reports.by_recipient(message_id, position, report)


async def address_of(store: Store, message_id: str, position: int) -> str | None:
    """Return whom a mail that came back was for; None when the message is gone."""
    return await store.reports.address_of(message_id, position)


async def take_callback(
    store: Store, carriers: Carriers, carrier: str, callback: Callback, body: Callable[[], Awaitable[bytes]]
) -> CallbackAnswer | None:
    """Return the answer, once its reports are stored.

    It is None when there is no such carrier, or it takes no callbacks, and the body stays unread.
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
    """Verify and read a callback; 503 if too many large ones wait, 413 if it is larger than any provider sends."""
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
    """Take what Meta told of a template, for each team that sends it; what is known already changes nothing."""
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
    """Return its answer, once what it told is stored; 503, so that it comes again, for what cannot be kept yet."""
    for number, batch in enumerate(_batches(answer.told)):
        replay_id = f"{answer.replay_id}/{number}" if answer.replay_id and number else answer.replay_id
        taken = await store.reports.by_provider(carrier, batch, replay_id=replay_id)
        for result in taken:
            metrics.provider_event[carrier, result].inc()
        if "later" in taken:
            return LATER
    return answer


async def apply_early(store: Store) -> None:
    """Apply the reports whose hand-over is recorded by now."""
    await store.reports.apply_early()
