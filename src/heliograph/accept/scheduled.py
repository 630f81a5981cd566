"""Reschedules or cancels scheduled messages (contract 16)."""

from typing import Annotated, Any

import msgspec

from heliograph.accept.context import Context
from heliograph.domain.field_docs import TIME, says
from heliograph.domain.ids import PREFIXES
from heliograph.domain.refusals import AlreadySending, InvalidSchedule, MessageNotFound
from heliograph.domain.sending.send_options import read_timing, shown
from heliograph.domain.setup.records import Caller, Channel
from heliograph.storage.outbox import Waiting


class RescheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scheduled_at: Annotated[str, says("The new time, up to 60 days ahead; a past one means now.", **TIME)]


async def reschedule(
    context: Context, caller: Caller, channel: Channel, id_: str, request: RescheduleRequest
) -> dict[str, Any]:
    now = context.clock.of(caller.team.record.ref)
    due_at = read_timing(request.scheduled_at, None, now).starts(now)

    def check(found: Waiting) -> None:
        if found.expires_at is not None and due_at >= found.expires_at:
            raise InvalidSchedule(f"It expires before that. {InvalidSchedule.fix}", param="scheduled_at")

    moved = await context.store.outbox.reschedule(_known(caller, channel, id_), channel, due_at, check)
    return _record(moved, channel, id_)


async def cancel(context: Context, caller: Caller, channel: Channel, id_: str) -> dict[str, Any]:
    return _record(await context.store.outbox.cancel(_known(caller, channel, id_), channel), channel, id_)


def _known(caller: Caller, channel: Channel, id_: str) -> tuple[int, str]:
    if not id_.startswith(PREFIXES[channel]):
        raise _nothing(channel, id_)
    return caller.team.record.ref, id_


def _nothing(channel: Channel, id_: str) -> MessageNotFound:
    return MessageNotFound(f"No {channel} message {id_[:80]!r}. {MessageNotFound.fix}", param="id")


def _record(found: Waiting | None, channel: Channel, id_: str) -> dict[str, Any]:
    if found is None:
        raise _nothing(channel, id_)
    if not found.done:
        raise AlreadySending
    return shown(found.record, found.status)
