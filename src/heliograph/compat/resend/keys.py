"""Resend's API keys."""

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.resend.codec import ResendDeleted, cut, listed
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeyLine, WantedKey
from heliograph.web.request import Response
from heliograph.web.route import answer

SCOPES: dict[str, tuple[Scope, ...]] = {"full_access": ("send", "manage"), "sending_access": ("send",)}


class ResendKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    permission: str = "full_access"
    domain_id: str | None = None


async def create(call: Call) -> Response:
    given, team = given_as(ResendKey, call.json), call.caller.team.record.id
    if given.permission not in SCOPES:
        raise InvalidRequest(f"permission is one of {', '.join(SCOPES)}.", param="permission")
    domain = call.management.domains.own(team, given.domain_id).name if given.domain_id is not None else None
    wanted = WantedKey(team=team, name=given.name, scopes=SCOPES[given.permission], domain=domain)
    made = await keys.create(call.context.store, call.actor, wanted)
    return answer({"id": made.key.id, "token": made.token})


async def list_all(call: Call) -> Response:
    found = await keys.lines(call.context.store, call.caller.team.record.id, call.context.state.used)
    shown, more = cut(call, [line for line in found if not line.record.revoked], lambda line: line.record.id)
    return answer(listed([_line(line) for line in shown], has_more=more))


async def delete(call: Call) -> Response:
    await keys.revoke(call.context.store, call.actor, call.params["id"], call.caller.team.record.id)
    return answer(ResendDeleted(object="api_key", id=call.params["id"]))


async def rename(call: Call) -> Response:
    raise InvalidRequest("A key keeps its name here. Make another one, and delete this one.", param="name")


def _line(line: KeyLine) -> dict[str, str | None]:
    used = timestamp(line.used_at) if line.used_at is not None else None
    made = timestamp(line.record.created_at) if line.record.created_at else None
    return {"id": line.record.id, "name": line.record.name, "created_at": made, "last_used_at": used}
