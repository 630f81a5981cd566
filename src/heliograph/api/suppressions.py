"""Endpoints for the suppression list (contract 12)."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import (
    EMAIL,
    CreatedAt,
    Deleted,
    Detail,
    EmailAddress,
    ObjectName,
    Records,
    describe,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.suppression_file import DEFAULT_REASON, REASONS
from heliograph.manage import suppressions
from heliograph.storage.suppressions import Suppression
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

AFTER = QueryParam("after", "The last address of the previous page.", {"type": "string", **EMAIL})


class SuppressionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: Annotated[EmailAddress, describe("The address to suppress.")]
    reason: Annotated[str | None, describe("Why the address is suppressed. Default: `manual`.", enum=list(REASONS))] = (
        None
    )


class SuppressionRecord(msgspec.Struct, frozen=True, kw_only=True):
    email: Annotated[str, describe("The email address.", example="ada@example.com")]
    reason: Annotated[str, describe("Why it is suppressed.", example="manual", enum=list(REASONS))]
    source_message_id: Annotated[str | None, describe("The message that bounced or caused the complaint.")]
    detail: Detail
    created_at: CreatedAt


class DeletedSuppression(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "suppression"
    email: Annotated[str, describe("The email address.", example="ada@example.com")]
    deleted: Deleted = True


class SuppressionList(ListPage, frozen=True, kw_only=True):
    data: Records[SuppressionRecord]


async def delete(call: Call) -> Response:
    email = call.params["email"]
    await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
    return json_response(DeletedSuppression(email=email))


async def read(call: Call) -> Response:
    return json_response(
        to_record(await suppressions.find(call.context.store, call.caller.team.record, call.params["email"]))
    )


async def create(call: Call) -> Response:
    request = to_request(call.json, SuppressionRequest)
    store, team = call.context.store, call.caller.team.record
    await suppressions.add(
        store, call.actor, team, request.email, DEFAULT_REASON if request.reason is None else request.reason
    )
    return json_response(to_record(await suppressions.find(store, team, request.email)), 201)


async def list_all(call: Call) -> Response:
    query = call.query()
    limit = read_limit(query)
    rows = await suppressions.list_page(call.context.store, call.caller.team.record, query.get("after"), limit)
    return page_response([to_record(row) for row in rows], limit)


def to_record(row: Suppression) -> SuppressionRecord:
    detail = msgspec.Raw(row.detail.encode()) if row.detail else None
    fields = msgspec.structs.asdict(row)
    return SuppressionRecord(**fields | {"detail": detail, "created_at": timestamp(row.created_at)})
