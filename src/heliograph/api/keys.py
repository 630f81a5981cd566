"""API keys over HTTP, for keys with `manage`."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import TIME, Records, says
from heliograph.domain.mail.address import normal_domain
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.keys import PUBLIC_ID
from heliograph.domain.setup.records import Key, Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeyLine, KeyRecord, MadeKey, WantedKey, state_of, to_record
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, page, read_limit, read_time
from heliograph.web.request import Response
from heliograph.web.route import Query, answer

AFTER = Query("after", "The last id of the previous page.", {"type": "string", "pattern": f"^{PUBLIC_ID.pattern}$"})


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, says("What the key is for: one line of at most 200 characters, once in the team.")]
    scopes: Annotated[list[Scope] | None, says("What it may do. Default: `send`.", minItems=1)] = None
    domain: Annotated[str | None, says("Pins it to one of the team's domains.")] = None
    expires_at: Annotated[str | None, says("Until when it works. Default: until it is revoked.", **TIME)] = None
    hook: Annotated[bool | None, says("Make a key that signs hooks, such as Supabase's. Default: false.")] = None
    networks: Annotated[list[str] | None, says("Addresses or ranges that it may be used from. Default: any.")] = None
    passthrough: Annotated[str | None, says("`tpl_…` of one variable for the free text of Twilio's programs.")] = None


class NewKeyRecord(KeyRecord, frozen=True, kw_only=True):
    token: Annotated[
        str,
        says("The key itself, `hk_…`, or a hook's secret, `v1,whsec_…`. Shown this once.", example="hk_4fTzQ8kW1b_…"),
    ]


class KeyList(Listed, frozen=True, kw_only=True):
    data: Records[KeyRecord]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), query.get("after")
    if after is not None and not PUBLIC_ID.fullmatch(after):
        raise InvalidRequest("after is the id of a key: 10 letters and digits.", param="after")
    found = await keys.lines(call.context.store, call.caller.team.record.id, call.context.state.used)
    found.sort(key=lambda line: line.record.id)
    return page([to_record(line) for line in found if line.record.id > (after or "")], limit)


async def create(call: Call) -> Response:
    request = to_request(call.json, KeyRequest)
    wanted = WantedKey(
        team=call.caller.team.record.id,
        name=request.name,
        scopes=("send",) if request.scopes is None else tuple(dict.fromkeys(request.scopes)),
        domain=request.domain if request.domain is None else normal_domain(request.domain) or request.domain,
        expires_at=None if request.expires_at is None else read_time("expires_at", request.expires_at),
        networks=tuple(request.networks or ()),
        passthrough=request.passthrough or "",
        hook=bool(request.hook),
    )
    made = await keys.create(call.context.store, call.actor, wanted, call.management.seal)
    return answer(_new(call, made), 201)


async def rotate(call: Call) -> Response:
    team = call.caller.team.record.id
    made = await keys.rotate(call.context.store, call.actor, call.params["id"], team, call.management.seal)
    return answer(_new(call, made))


async def revoke(call: Call) -> Response:
    key = await keys.revoke(call.context.store, call.actor, call.params["id"], call.caller.team.record.id)
    return answer(_record(call, msgspec.structs.replace(key, revoked=True)))


def _record(call: Call, key: Key) -> KeyRecord:
    used = call.context.state.used.get(key.id)
    return to_record(KeyLine(record=key, state=state_of(key, call.context.clock.now()), used_at=used))


def _new(call: Call, made: MadeKey) -> NewKeyRecord:
    return NewKeyRecord(**msgspec.structs.asdict(_record(call, made.key)), token=made.token)
