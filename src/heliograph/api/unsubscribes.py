"""Endpoints for recipients who unsubscribed from a category of emails (contract 21)."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import CreatedAt, Deleted, ObjectName, Records, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.unsubscribe import UNSUBSCRIBE_REASONS
from heliograph.manage import unsubscribes
from heliograph.storage.unsubscribes import Unsubscribe
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

AFTER = QueryParam("after", "The last id of the previous page.", {"type": "string"})
CATEGORY = QueryParam("category", "Only this category. Default: all.", {"type": "string"})

Address = Annotated[str, describe("The recipient's email address.", example="ada@example.com")]
Category = Annotated[str, describe("One of the team's categories.", example="newsletter")]


class UnsubscribeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    address: Address
    category: Category


class UnsubscribeRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "unsubscribe"
    id: Annotated[str, describe("Category and address; the cursor for `after`.", example="newsletter:ada@example.com")]
    address: Address
    category: Category
    reason: Annotated[
        str,
        describe(
            "How the recipient unsubscribed: by the link, by mail to the unsubscribe address, or by hand.",
            example="link",
            enum=list(UNSUBSCRIBE_REASONS),
        ),
    ]
    created_at: CreatedAt


class DeletedUnsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "unsubscribe"
    address: Address
    category: Annotated[str | None, describe("The category given in the request; null for all.")]
    deleted: Deleted = True


class UnsubscribeList(ListPage, frozen=True, kw_only=True):
    data: Records[UnsubscribeRecord]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit = read_limit(query)
    rows = await unsubscribes.list_page(call.context.store, call.caller.team.record, query.get("after"), limit)
    return page_response([to_record(row) for row in rows], limit)


async def create(call: Call) -> Response:
    request = to_request(call.json, UnsubscribeRequest)
    store, team = call.context.store, call.caller.team.record
    await unsubscribes.add(store, call.actor, team, request.address, request.category)
    (created,) = await unsubscribes.find(store, team, request.address, request.category)
    return json_response(to_record(created), 201)


async def read(call: Call) -> Response:
    """Return the address's unsubscribe from the given category; without a category, the list of all."""
    address, category = call.params["address"], call.query().get("category")
    rows = await unsubscribes.find(call.context.store, call.caller.team.record, address, category)
    records = [to_record(row) for row in rows]
    return json_response(records[0]) if category is not None else page_response(records, len(records))


async def delete(call: Call) -> Response:
    address, category = call.params["address"], call.query().get("category")
    await unsubscribes.remove(call.context.store, call.actor, call.caller.team.record, address, category)
    return json_response(DeletedUnsubscribe(address=address, category=category))


def to_record(row: Unsubscribe) -> UnsubscribeRecord:
    return UnsubscribeRecord(
        id=f"{row.category}:{row.address}",
        address=row.address,
        category=row.category,
        reason=row.reason,
        created_at=timestamp(row.created_at),
    )
