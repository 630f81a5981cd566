"""Endpoints with which platform keys list, approve and reject messages that need a person's approval."""

from typing import Annotated, get_args

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import TIME, ChannelName, CreatedAt, Id, Records, describe, with_example
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.approvals import ApprovalStatus
from heliograph.domain.text import LINE_MAX
from heliograph.manage import approvals
from heliograph.storage.approvals import NEWEST, Approval
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import json_response


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, with_example("apr_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    message_id: Annotated[str, describe("The message.", example="eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    team_id: Annotated[str, describe("The team of the message.", example="team_acme")]
    channel: ChannelName
    created_at: CreatedAt
    expires_at: Annotated[
        str, describe("When the message fails if nobody decides.", example="2026-11-16T09:30:00.000Z", **TIME)
    ]
    status: Annotated[
        str,
        describe(
            "`pending` until it is decided; `expired` if nobody decided in time; `canceled` with the message.",
            example="pending",
            enum=list(get_args(ApprovalStatus)),
        ),
    ]


class ApprovalList(ListPage, frozen=True, kw_only=True):
    data: Records[ApprovalRecord]


class ApprovalDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[
        str,
        describe("Who decided: named in the audit log.", example="ada@example.com", minLength=1, maxLength=LINE_MAX),
    ]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, before = read_limit(query), read_after(query, "approval") or NEWEST
    rows = await call.context.store.approvals.list_page(before, limit)
    return page_response([_to_record(call, row) for row in rows], limit)


async def approve(call: Call) -> Response:
    by, approval = _read_decider(call), await approvals.find(call.context.store, call.params["id"])
    return json_response(_to_record(call, await approvals.release(call.context.store, call.actor, approval, by)))


async def reject(call: Call) -> Response:
    by, approval = _read_decider(call), await approvals.find(call.context.store, call.params["id"])
    return json_response(_to_record(call, await approvals.reject(call.context.store, call.actor, approval, by)))


def _read_decider(call: Call) -> str:
    by = to_request(call.json, ApprovalDecision).by
    if not by:
        raise InvalidRequest("by is empty. Name who decided.", param="by")
    return by


def _to_record(call: Call, approval: Approval) -> ApprovalRecord:
    return ApprovalRecord(
        id=approval.id,
        message_id=approval.message_id,
        team_id=call.context.store.setup.current.teams_by_ref[approval.team].record.id,
        channel=approval.channel,
        created_at=timestamp(approval.created_at),
        expires_at=timestamp(approval.expires_at),
        status=approval.status,
    )
