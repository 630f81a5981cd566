"""Reschedules or cancels scheduled messages (contract 16)."""

from typing import Annotated, Any

import msgspec

from heliograph.accept.context import Context
from heliograph.domain.field_docs import TIME, describe
from heliograph.domain.ids import PREFIXES
from heliograph.domain.refusals import AlreadySending, InvalidSchedule, MessageNotFound
from heliograph.domain.sending.send_options import parse_timing, public_record
from heliograph.domain.setup.records import Caller, Channel
from heliograph.storage.outbox import WaitingMessage


class RescheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scheduled_at: Annotated[str, describe("The new time, up to 60 days ahead; a past one means now.", **TIME)]


async def reschedule(
    context: Context, caller: Caller, channel: Channel, id_: str, request: RescheduleRequest
) -> dict[str, Any]:
    now = context.clock.team_now(caller.team.record.ref)
    due_at = parse_timing(request.scheduled_at, None, now).start_time(now)

    def check(scheduled: WaitingMessage) -> None:
        if scheduled.expires_at is not None and due_at >= scheduled.expires_at:
            raise InvalidSchedule(f"It expires before that. {InvalidSchedule.fix}", param="scheduled_at")

    rescheduled = await context.store.outbox.reschedule(_message_ref(caller, channel, id_), channel, due_at, check)
    return _to_response(rescheduled, channel, id_)


async def cancel(context: Context, caller: Caller, channel: Channel, id_: str) -> dict[str, Any]:
    return _to_response(await context.store.outbox.cancel(_message_ref(caller, channel, id_), channel), channel, id_)


def _message_ref(caller: Caller, channel: Channel, id_: str) -> tuple[int, str]:
    if not id_.startswith(PREFIXES[channel]):
        raise _not_found(channel, id_)
    return caller.team.record.ref, id_


def _not_found(channel: Channel, id_: str) -> MessageNotFound:
    return MessageNotFound(f"No {channel} message {id_[:80]!r}. {MessageNotFound.fix}", param="id")


def _to_response(scheduled: WaitingMessage | None, channel: Channel, id_: str) -> dict[str, Any]:
    if scheduled is None:
        raise _not_found(channel, id_)
    if not scheduled.done:
        raise AlreadySending
    return public_record(scheduled.record, scheduled.status)
