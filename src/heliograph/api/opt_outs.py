"""Opt-outs of phone numbers over HTTP (contract 17)."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import CreatedAt, Deleted, ObjectName, Records, says
from heliograph.domain.ids import timestamp
from heliograph.domain.phones.opt_out import OPT_OUT_REASONS, PHONE_CHANNELS
from heliograph.inbound.store.opt_outs import OptOut
from heliograph.manage import opt_outs
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, page, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query, answer

AFTER = Query("after", "The last id of the previous page.", {"type": "string"})
CHANNEL = Query("channel", "Of this channel only; default: of both.", {"type": "string", "enum": list(PHONE_CHANNELS)})

Number = Annotated[str, says("The phone number, in E.164.", example="+4915112345678")]
OnChannel = Annotated[str, says("The channel that it opted out of.", enum=list(PHONE_CHANNELS))]


class OptOutRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    phone: Number
    channel: OnChannel


class OptOutRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "opt_out"
    id: Annotated[str, says("Channel and phone, for `after`.", example="sms:+4915112345678")]
    phone: Number
    channel: OnChannel
    reason: Annotated[
        str,
        says("How: by a text, learned from a carrier, or by hand.", example="manual", enum=list(OPT_OUT_REASONS)),
    ]
    created_at: CreatedAt


class DeletedOptOut(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "opt_out"
    phone: Number
    channel: Annotated[str | None, says("The channel that was asked for; null: both.", enum=list(PHONE_CHANNELS))]
    deleted: Deleted = True


class OptOutList(Listed, frozen=True, kw_only=True):
    data: Records[OptOutRecord]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit = read_limit(query)
    rows = await opt_outs.page(call.context.store, call.caller.team.record, query.get("after"), limit)
    return page([to_record(row) for row in rows], limit)


async def create(call: Call) -> Response:
    request = to_request(call.json, OptOutRequest)
    store, team = call.context.store, call.caller.team.record
    await opt_outs.add(store, call.actor, team, request.phone, request.channel)
    (made,) = await opt_outs.find(store, team, request.phone, request.channel)
    return answer(to_record(made), 201)


async def read(call: Call) -> Response:
    """Return the opt-out of the given channel, or without a channel the list of the phone's opt-outs."""
    phone, channel = call.params["phone"], call.query().get("channel")
    found = await opt_outs.find(call.context.store, call.caller.team.record, phone, channel)
    records = [to_record(one) for one in found]
    return answer(records[0]) if channel else page(records, len(records))


async def delete(call: Call) -> Response:
    phone, channel = call.params["phone"], call.query().get("channel")
    await opt_outs.remove(call.context.store, call.actor, call.caller.team.record, phone, channel)
    return answer(DeletedOptOut(phone=phone, channel=channel))


def to_record(found: OptOut) -> OptOutRecord:
    return OptOutRecord(
        id=f"{found.channel}:{found.phone}",
        phone=found.phone,
        channel=found.channel,
        reason=found.reason,
        created_at=timestamp(found.created_at),
    )
