"""Endpoints for a team's API keys; they require a key with the scope `manage`."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import SCHEMA_REF_PREFIX, TIME, Records, describe
from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.key_restrictions import parse_restrictions
from heliograph.domain.setup.keys import PUBLIC_ID
from heliograph.domain.setup.records import Key, Scope
from heliograph.manage import keys
from heliograph.manage.keys import CreatedKey, KeyRecord, KeySummary, NewKey, state_of, to_record
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_limit, read_time
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

AFTER = QueryParam(
    "after", "The last id of the previous page.", {"type": "string", "pattern": f"^{PUBLIC_ID.pattern}$"}
)


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, describe("What the key is for: one line of up to 200 characters, unique in the team.")]
    scopes: Annotated[list[Scope] | None, describe("What the key can do. Default: `send`.", minItems=1)] = None
    domain: Annotated[str | None, describe("Restricts the key to one of the team's domains.")] = None
    expires_at: Annotated[str | None, describe("When the key expires. Default: never.", **TIME)] = None
    hook: Annotated[bool | None, describe("Create a key that signs hooks, such as Supabase's. Default: false.")] = None
    networks: Annotated[list[str] | None, describe("IP addresses or ranges that can use the key. Default: any.")] = None
    passthrough: Annotated[
        str | None,
        describe("Id (`tpl_…`) of a template with one variable, which receives the free text sent by Twilio clients."),
    ] = None
    restrictions: Annotated[
        dict[str, Any] | None,
        describe(
            "What the key may send. Default: no restrictions.", **{"$ref": f"{SCHEMA_REF_PREFIX}RestrictionsRecord"}
        ),
    ] = None


class NewKeyRecord(KeyRecord, frozen=True, kw_only=True):
    token: Annotated[
        str,
        describe(
            "The key, `hk_…`, or a hook's secret, `v1,whsec_…`. Shown only in this response.", example="hk_4fTzQ8kW1b_…"
        ),
    ]


class KeyList(ListPage, frozen=True, kw_only=True):
    data: Records[KeyRecord]


async def list_all(call: Call) -> Response:
    return await list_of_team(call, call.team_id)


async def list_of_team(call: Call, team: str) -> Response:
    query = call.query()
    limit, after = read_limit(query), query.get("after")
    if after is not None and not PUBLIC_ID.fullmatch(after):
        raise InvalidRequest("after must be a key id: 10 letters and digits.", param="after")
    rows = await keys.list_keys(call.context.store, team, call.context.state.last_used)
    rows.sort(key=lambda row: row.record.id)
    return page_response([to_record(row) for row in rows if row.record.id > (after or "")], limit)


async def create(call: Call) -> Response:
    return await create_in_team(call, call.team_id)


async def create_in_team(call: Call, team: str) -> Response:
    request = to_request(call.json, KeyRequest)
    new_key = NewKey(
        team=team,
        name=request.name,
        scopes=("send",) if request.scopes is None else tuple(dict.fromkeys(request.scopes)),
        domain=request.domain if request.domain is None else normalize_domain(request.domain) or request.domain,
        expires_at=None if request.expires_at is None else read_time("expires_at", request.expires_at),
        networks=tuple(request.networks or ()),
        passthrough=request.passthrough or "",
        restrictions=None if request.restrictions is None else parse_restrictions(request.restrictions),
        hook=bool(request.hook),
    )
    created = await keys.create(call.context.store, call.actor, new_key, call.management.encrypt)
    return json_response(_to_new_record(call, created), 201)


async def rotate(call: Call) -> Response:
    team = call.team_id
    created = await keys.rotate(call.context.store, call.actor, call.params["id"], team, call.management.encrypt)
    return json_response(_to_new_record(call, created))


async def revoke(call: Call) -> Response:
    return await revoke_in_team(call, call.params["id"], call.team_id)


async def revoke_in_team(call: Call, id_: str, team: str) -> Response:
    key = await keys.revoke(call.context.store, call.actor, id_, team)
    return json_response(_to_key_record(call, msgspec.structs.replace(key, revoked=True)))


def _to_key_record(call: Call, key: Key) -> KeyRecord:
    last_used_at = call.context.state.last_used.get(key.id)
    return to_record(KeySummary(record=key, state=state_of(key, call.context.clock.now()), used_at=last_used_at))


def _to_new_record(call: Call, created: CreatedKey) -> NewKeyRecord:
    return NewKeyRecord(**msgspec.structs.asdict(_to_key_record(call, created.key)), token=created.token)
