"""Platform keys may read the audit log and `GET /v1/me`; team routes of every API refuse them."""

import json
from base64 import b64encode
from typing import Any

import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateDecision, RateLimits
from heliograph.api.app import Api
from heliograph.api.routes import ROUTES
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InsufficientScope, InvalidApiKey, InvalidRequest, RateLimitExceeded
from heliograph.domain.setup.key_restrictions import Action
from heliograph.domain.setup.keys import parse_token
from heliograph.domain.setup.records import Caller, TeamRecord
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.keys import CreatedKey, NewKey
from heliograph.storage.store import Store
from heliograph.submission.intake import MailIntake
from heliograph.web.budget import ByteBudget
from heliograph.web.route import Route
from tests.api.sends import assert_refused
from tests.api.test_every_route import path_of
from tests.clocks import StandingClock, TestClock
from tests.dashboard.inside import write_records
from tests.make_request import make_request
from tests.service import Service, until
from tests.storage.test_idempotency import make_context, make_management

KEYED = [route for routes in (ROUTES, *(s.routes for s in ADAPTERS)) for route in routes if route.scopes is not None]
OPEN_TO_PLATFORM_KEYS = {route.name for route in ROUTES if "operate" in (route.scopes or ())}
FIELDS = {"object", "id", "at", "by", "email", "team", "action", "subject", "detail", "address"}


async def make_platform_key(store: Store, **fields: Any) -> CreatedKey:
    return await keys.create(store, COMMAND_LINE, NewKey(team=PLATFORM_TEAM, scopes=("operate",), **fields))


def headers_of(token: str, route: Route) -> dict[str, str]:
    """Return the headers with the token, as the route's API expects it."""
    basic = "Basic " + b64encode(f"AC1:{token}".encode()).decode()
    bearer = basic if route.path.startswith("/compat/twilio") else f"Bearer {token}"
    shared = {"content-type": "application/json", "x-postmark-server-token": token, "x-server-api-key": token}
    return shared | {"authorization": bearer}


class Door(Admission):
    """Admission that counts the requests refused by scope."""

    refused = 0

    def admit(self, caller: Caller, scopes: tuple[str, ...], address: str, action: Action = "") -> RateDecision:
        try:
            return super().admit(caller, scopes, address, action)
        except InsufficientScope:
            self.refused += 1
            raise


@pytest.mark.anyio
async def test_platform_key_on_every_route_is_refused_by_scope(store: Store, clock: TestClock) -> None:
    await write_records(store, ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"))
    created = await make_platform_key(store)
    context = make_context(store, clock)
    door = Door(context, RateLimits())
    api = Api(context, make_management(context), door, ByteBudget(), ADAPTERS)
    opened = set()
    for route in KEYED:
        before, body = door.refused, b"" if route.method == "GET" else b"{}"
        answer = await api(make_request(route.method, path_of(route), headers_of(created.token, route), body))
        if route.path.startswith("/hooks/"):  # identified by a signature, which this key cannot create
            assert answer.status == 401
        elif door.refused == before:
            assert answer.status in (200, 201, 400, 404), (route.name, answer.body)
            opened.add(route.name)
    assert opened == OPEN_TO_PLATFORM_KEYS
    assert not context.state.request_log.buffer  # not in the request log of a team


@pytest.mark.anyio
async def test_platform_key_above_its_rate_is_refused(store: Store) -> None:
    created = await make_platform_key(store)
    # The clock stands still, so no tokens are added
    door = Admission(make_context(store, StandingClock()), RateLimits())
    for _ in range(200):
        await door.authenticate_and_admit(created.token.encode(), ("operate",), "127.0.0.1")
    with pytest.raises(RateLimitExceeded):
        await door.authenticate_and_admit(created.token.encode(), ("operate",), "127.0.0.1")


@pytest.mark.anyio
async def test_platform_key_by_smtp_and_as_hook_is_refused(store: Store, clock: TestClock) -> None:
    created = await make_platform_key(store)
    context = make_context(store, clock)
    door = Admission(context, RateLimits())
    with pytest.raises(InsufficientScope):
        await MailIntake(context, door).authorize(created.token.encode(), "127.0.0.1")
    signed = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    with pytest.raises(InvalidApiKey):
        await door.authenticate_hook(PLATFORM_TEAM, signed, b"{}")
    assert not context.state.request_log.buffer


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("team", "scopes", "param"),
    [("team_a", ("operate",), "scopes"), ("team_a", ("send", "operate"), "scopes"), (PLATFORM_TEAM, ("send",), "team"),
     (PLATFORM_TEAM, ("operate", "send"), "team")],
)  # fmt: skip
async def test_operate_with_a_team_or_another_scope_is_refused(
    store: Store, team: str, scopes: tuple[Any, ...], param: str
) -> None:
    await write_records(store, ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"))
    with pytest.raises(InvalidRequest) as refused:
        await keys.create(store, COMMAND_LINE, NewKey(team=team, scopes=scopes))
    assert refused.value.param == param


@pytest.mark.anyio
async def test_platform_key_in_another_process_is_known_and_revoked(store: Store, other: Store) -> None:
    created = await make_platform_key(store, name="siem")
    await other.setup.refresh()
    assert other.setup.current.callers[created.key.id].key == created.key
    rotated = await keys.rotate(other, COMMAND_LINE, created.key.id)
    assert (rotated.key.team, rotated.key.scopes, rotated.key.name) == (PLATFORM_TEAM, ("operate",), "siem 2")
    await keys.revoke(other, COMMAND_LINE, created.key.id)
    await store.setup.refresh()
    assert store.setup.current.callers[created.key.id].key.revoked
    assert not store.setup.current.callers[rotated.key.id].key.revoked
    entries = await store.audit.list_rows(None)
    assert [(entry.action, entry.subject, entry.team) for entry in entries] == [
        ("key.revoke", "siem", None),
        ("key.rotate", "siem 2", None),
        ("key.create", "siem", None),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_message_of_a_new_team_is_decided_by_a_process_that_has_not_seen_the_team(
    store: Store, other: Store, clock: TestClock, decision: str
) -> None:
    created = await make_platform_key(store)
    await other.setup.refresh()
    first, second = (make_api(of, clock) for of in (store, other))

    async def post(api: Api, path: str, body: Any, token: str = created.token) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        answer = await api(make_request("POST", path, headers, json.dumps(body).encode()))
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    await post(first, "/v1/teams", {"id": "team_new", "name": "New"})
    key = {"name": "agent", "restrictions": {"approval": "required"}}
    token = (await post(first, "/v1/teams/team_new/keys", key))["token"]
    mail = {"to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
    held = await post(first, "/v1/emails", mail, token)
    approval = await post(second, f"/v1/approvals/apr_{held['id'][4:]}/{decision}", {"by": "Ada"})
    assert approval["team_id"] == "team_new"


def make_api(store: Store, clock: TestClock) -> Api:
    context = make_context(store, clock)
    return Api(context, make_management(context), Admission(context, RateLimits()), ByteBudget())


def platform_token(service: Service, *more: str) -> str:
    output = service.run("key", "create", "--platform", "--json", *more)
    assert output.returncode == 0, output.stderr
    record = json.loads(output.stdout)
    assert record["team"] is None
    token: str = record["token"]
    return token


def test_audit_log_with_a_platform_key_is_read_by_pages(service: Service) -> None:
    token = platform_token(service, "--name", "siem")
    assert service.post("/v1/keys", {"name": "made"}).status == 201
    assert service.get("/v1/me", key=token).json == {"team": None, "scopes": ["operate"]}
    exported = [json.loads(line) for line in service.run("audit", "export").stdout.splitlines()]
    listing = service.get("/v1/audit?limit=100", key=token).json
    assert (listing["object"], listing["has_more"], listing["data"]) == ("list", False, exported)
    assert listing["data"][0].keys() == FIELDS
    assert [(entry["action"], entry["team"]) for entry in exported[:2]] == [
        ("key.create", "team_acme"),
        ("key.create", None),
    ]
    pages, after = list[Any](), ""
    while True:
        page = service.get(f"/v1/audit?limit=1{after}", key=token).json
        pages += page["data"]
        if not page["has_more"]:
            break
        after = f"&after={pages[-1]['id']}"
    assert pages == exported
    team_entries = service.get("/v1/audit?team=team_acme", key=token).json["data"]
    assert team_entries == [entry for entry in exported if entry["team"] == "team_acme"][:20]
    assert service.get("/v1/audit?team=team_poor", key=token).status == 200
    for query, status, code, param in [
        ("after=999999", 400, "invalid_request", "after"),
        ("after=aud_1", 400, "invalid_request", "after"),
        ("after=0", 400, "invalid_request", "after"),
        ("limit=0", 400, "invalid_request", "limit"),
        ("limit=101", 400, "invalid_request", "limit"),
        ("team=team_none", 404, "team_not_found", "team"),
        ("team=", 404, "team_not_found", "team"),
    ]:
        assert_refused(service.get(f"/v1/audit?{query}", key=token), status, code, param)
    for key in ("ACME", "ACME_SEND", "ACME_MANAGE", "SANDBOX"):
        assert_refused(service.get("/v1/audit", key=key), 403, "insufficient_scope")


def test_platform_key_when_revoked_is_refused_by_every_process(service: Service) -> None:
    service.start()
    token = platform_token(service)
    ports = service.ports

    def answers(status: int) -> bool:
        return all(service.ask("GET", "/v1/audit", key=token, port=port).status == status for port in ports)

    assert len(ports) == 2 and answers(200)
    assert_refused(service.post("/v1/emails", {}, key=token), 403, "insufficient_scope")
    revoked = service.run("key", "revoke", token)
    assert revoked.returncode == 0, revoked.stderr
    assert until(lambda: answers(401))
    assert_refused(service.ask("DELETE", f"/v1/keys/{parse_token(token)}"), 404, "not_found")
