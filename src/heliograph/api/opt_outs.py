"""Endpoints for opt-outs of phone numbers (contract 17)."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import CreatedAt, Deleted, ObjectName, Records, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.phones.opt_out import OPT_OUT_REASONS, PHONE_CHANNELS
from heliograph.inbound.store.opt_outs import OptOut
from heliograph.manage import opt_outs
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

AFTER = QueryParam("after", "The last id of the previous page.", {"type": "string"})
CHANNEL = QueryParam("channel", "Only this channel. Default: both.", {"type": "string", "enum": list(PHONE_CHANNELS)})

PhoneNumber = Annotated[str, describe("The phone number, in E.164.", example="+4915112345678")]
OptOutChannel = Annotated[str, describe("The channel that the number opted out of.", enum=list(PHONE_CHANNELS))]


class OptOutRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    phone: PhoneNumber
    channel: OptOutChannel


class OptOutRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "opt_out"
    id: Annotated[str, describe("Channel and phone number; the cursor for `after`.", example="sms:+4915112345678")]
    phone: PhoneNumber
    channel: OptOutChannel
    reason: Annotated[
        str,
        describe(
            "How the number opted out: by a text message, reported by a carrier, or manually.",
            example="manual",
            enum=list(OPT_OUT_REASONS),
        ),
    ]
    created_at: CreatedAt


class DeletedOptOut(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "opt_out"
    phone: PhoneNumber
    channel: Annotated[
        str | None, describe("The channel given in the request; null for both.", enum=list(PHONE_CHANNELS))
    ]
    deleted: Deleted = True


class OptOutList(ListPage, frozen=True, kw_only=True):
    data: Records[OptOutRecord]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit = read_limit(query)
    rows = await opt_outs.list_page(call.context.store, call.caller.team.record, query.get("after"), limit)
    return page_response([to_record(row) for row in rows], limit)


async def create(call: Call) -> Response:
    request = to_request(call.json, OptOutRequest)
    store, team = call.context.store, call.caller.team.record
    await opt_outs.add(store, call.actor, team, request.phone, request.channel)
    (created,) = await opt_outs.find(store, team, request.phone, request.channel)
    return json_response(to_record(created), 201)


async def read(call: Call) -> Response:
    """Return the phone's opt-out from the given channel; without a channel, the list of its opt-outs."""
    phone, channel = call.params["phone"], call.query().get("channel")
    rows = await opt_outs.find(call.context.store, call.caller.team.record, phone, channel)
    records = [to_record(row) for row in rows]
    return json_response(records[0]) if channel else page_response(records, len(records))


async def delete(call: Call) -> Response:
    phone, channel = call.params["phone"], call.query().get("channel")
    await opt_outs.remove(call.context.store, call.actor, call.caller.team.record, phone, channel)
    return json_response(DeletedOptOut(phone=phone, channel=channel))


def to_record(row: OptOut) -> OptOutRecord:
    return OptOutRecord(
        id=f"{row.channel}:{row.phone}",
        phone=row.phone,
        channel=row.channel,
        reason=row.reason,
        created_at=timestamp(row.created_at),
    )
