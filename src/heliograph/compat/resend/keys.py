"""Compatibility API for Resend, API keys."""

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.resend.codec import ResendDeleted, list_response, slice_page
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeySummary, NewKey
from heliograph.web.request import Response
from heliograph.web.route import json_response

SCOPES_BY_PERMISSION: dict[str, tuple[Scope, ...]] = {"full_access": ("send", "manage"), "sending_access": ("send",)}


class ResendKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    permission: str = "full_access"
    domain_id: str | None = None


async def create(call: Call) -> Response:
    request, team = parse_request(ResendKey, call.json), call.team_id
    if request.permission not in SCOPES_BY_PERMISSION:
        raise InvalidRequest(f"permission must be one of {', '.join(SCOPES_BY_PERMISSION)}.", param="permission")
    domain = (
        call.management.domains.get_of_team(team, request.domain_id).name if request.domain_id is not None else None
    )
    new_key = NewKey(team=team, name=request.name, scopes=SCOPES_BY_PERMISSION[request.permission], domain=domain)
    created = await keys.create(call.context.store, call.actor, new_key)
    return json_response({"id": created.key.id, "token": created.token})


async def list_all(call: Call) -> Response:
    rows = await keys.list_keys(call.context.store, call.team_id, call.context.state.last_used)
    page, has_more = slice_page(call, [row for row in rows if not row.record.revoked], lambda row: row.record.id)
    return json_response(list_response([_key_json(row) for row in page], has_more=has_more))


async def delete(call: Call) -> Response:
    await keys.revoke(call.context.store, call.actor, call.params["id"], call.team_id)
    return json_response(ResendDeleted(object="api_key", id=call.params["id"]))


async def rename(call: Call) -> Response:
    raise InvalidRequest("Keys cannot be renamed. Create a new key and delete this one.", param="name")


def _key_json(row: KeySummary) -> dict[str, str | None]:
    last_used_at = timestamp(row.used_at) if row.used_at is not None else None
    created_at = timestamp(row.record.created_at) if row.record.created_at else None
    return {"id": row.record.id, "name": row.record.name, "created_at": created_at, "last_used_at": last_used_at}
