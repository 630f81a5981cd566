"""The suppression list over HTTP (contract 12)."""

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
    says,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.suppression_file import DEFAULT, REASONS
from heliograph.manage import suppressions
from heliograph.storage.suppressions import Suppression
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, page, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query, answer

AFTER = Query("after", "The last address of the previous page.", {"type": "string", **EMAIL})


class SuppressionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: Annotated[EmailAddress, says("The address to suppress.")]
    reason: Annotated[str | None, says("Why; default `manual`.", enum=list(REASONS))] = None


class SuppressionRecord(msgspec.Struct, frozen=True, kw_only=True):
    email: Annotated[str, says("The email address.", example="ada@example.com")]
    reason: Annotated[str, says("Why it is suppressed.", example="manual", enum=list(REASONS))]
    source_message_id: Annotated[str | None, says("The message that bounced or was complained about.")]
    detail: Detail
    created_at: CreatedAt


class DeletedSuppression(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "suppression"
    email: Annotated[str, says("The email address.", example="ada@example.com")]
    deleted: Deleted = True


class SuppressionList(Listed, frozen=True, kw_only=True):
    data: Records[SuppressionRecord]


async def delete(call: Call) -> Response:
    email = call.params["email"]
    await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
    return answer(DeletedSuppression(email=email))


async def read(call: Call) -> Response:
    return answer(to_record(await suppressions.find(call.context.store, call.caller.team.record, call.params["email"])))


async def create(call: Call) -> Response:
    request = to_request(call.json, SuppressionRequest)
    store, team = call.context.store, call.caller.team.record
    await suppressions.add(
        store, call.actor, team, request.email, DEFAULT if request.reason is None else request.reason
    )
    return answer(to_record(await suppressions.find(store, team, request.email)), 201)


async def list_all(call: Call) -> Response:
    query = call.query()
    limit = read_limit(query)
    rows = await suppressions.page(call.context.store, call.caller.team.record, query.get("after"), limit)
    return page([to_record(row) for row in rows], limit)


def to_record(found: Suppression) -> SuppressionRecord:
    detail = msgspec.Raw(found.detail.encode()) if found.detail else None
    own = msgspec.structs.asdict(found)
    return SuppressionRecord(**own | {"detail": detail, "created_at": timestamp(found.created_at)})
