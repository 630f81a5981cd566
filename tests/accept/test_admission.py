"""Each stored secret is accepted only by the entry point that it belongs to (reliability, threats)."""

import base64
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from standardwebhooks import Webhook as Signer

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api.app import Api
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InsufficientScope, InvalidRequest, Refusal
from heliograph.domain.setup.records import TeamRecord
from heliograph.encryption import Cipher
from heliograph.manage import keys
from heliograph.manage.keys import CreatedKey, NewKey
from heliograph.storage.store import Store
from heliograph.submission.intake import MailIntake
from heliograph.web.budget import ByteBudget
from heliograph.web.request import Response
from heliograph.webhooks.service import WebhookRequest
from tests.clocks import TestClock
from tests.dashboard.inside import write_records
from tests.make_request import make_request
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio

SEALER = Cipher(bytes(32))
METRICS = "metrics-token-of-this-test"
HOOK = "/hooks/supabase/team_a?template=tpl_none"
JSON = {"content-type": "application/json"}


def basic(secret: str) -> str:
    return base64.b64encode(f"AC1:{secret}".encode()).decode()


class Protocols:
    def __init__(self, store: Store, clock: TestClock) -> None:
        context = make_context(store, clock)
        self.context = replace(context, decrypt=SEALER.decrypt, metrics_token=METRICS)
        self.management = replace(make_management(self.context), encrypt=SEALER.encrypt)
        self.door = Admission(self.context, RateLimits())
        self._api = Api(self.context, self.management, self.door, ByteBudget(), ADAPTERS)

    async def get(self, path: str, address: str = "127.0.0.1", **headers: str) -> Response:
        return await self._api(make_request("GET", path, headers, address=address))

    async def hook(self, secret: str, team: str = "team_a", id_: str = "msg_1", **more: str) -> Response:
        """Sign a request as Supabase does; with a secret that is not a hook secret, the request is unsigned."""
        at = datetime.fromtimestamp(self.context.clock.now() / 1000, UTC)
        try:
            signature = Signer(secret.removeprefix("v1,")).sign(id_, at, "{}")
        except ValueError:
            signature = "v1,AAAA"
        signed = {"webhook-id": id_, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
        return await self._api(make_request("POST", HOOK.replace("team_a", team), JSON | signed | more, b"{}"))

    async def smtp(self, secret: str) -> bool:
        try:
            await MailIntake(self.context, self.door).authorize(secret.encode(), "127.0.0.1")
        except InsufficientScope:
            return True
        except Refusal:
            return False
        return True


def try_protocols(doors: Protocols) -> dict[str, Callable[[str], Awaitable[bool]]]:
    async def heard(path: str, address: str = "127.0.0.1", **headers: str) -> bool:
        return (await doors.get(path, address, **headers)).status not in (401, 403, 404)

    async def hook(secret: str) -> bool:
        return (await doors.hook(secret)).status != 401

    return {
        "v1": lambda secret: heard("/v1/me", authorization=f"Bearer {secret}"),
        "resend": lambda secret: heard("/compat/resend/emails", authorization=f"Bearer {secret}"),
        "twilio": lambda secret: heard(
            "/compat/twilio/2010-04-01/Accounts/AC1/Messages.json", authorization=f"Basic {basic(secret)}"
        ),
        "hook": hook,
        "smtp": doors.smtp,
        "metrics": lambda secret: heard("/metrics", "192.0.2.1", authorization=f"Bearer {secret}"),
    }


@pytest.fixture
async def doors(store: Store, clock: TestClock) -> Protocols:
    team = TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=2)
    await write_records(store, ("team", "team_a", team, "team_a"))
    return Protocols(store, clock)


async def made(doors: Protocols, **wanted: object) -> CreatedKey:
    item = NewKey(team="team_a", **wanted)  # type: ignore[arg-type]
    return await keys.create(doors.context.store, COMMAND_LINE, item, SEALER.encrypt)


async def test_every_key_kind_is_admitted_to_its_own_routes(doors: Protocols) -> None:
    asked_for = WebhookRequest(url="https://a.test/", events=["*"])
    webhook = await doors.management.webhooks.create(COMMAND_LINE, "team_a", asked_for)
    keyed = {"v1", "resend", "twilio", "smtp"}
    secrets = {
        (await made(doors)).token: keyed,
        (await made(doors, hook=True)).token: {"hook"},
        webhook.secret: set[str](),
        f"v1,{webhook.secret}": set[str](),
        METRICS: {"metrics"},
    }
    ways = try_protocols(doors)
    accepted_by = {secret: {name for name, way in ways.items() if await way(secret)} for secret in secrets}
    assert accepted_by == secrets


async def test_a_hooks_key_passes_the_admission_of_every_key(doors: Protocols) -> None:
    hook = await made(doors, hook=True)
    elsewhere = await made(doors, hook=True, networks=("192.0.2.0/24",))
    message = await doors.hook(elsewhere.token)
    assert (message.status, b'"http_code":403' in message.body) == (200, True)
    statuses = [(await doors.hook(hook.token)).status for _ in range(5)]
    assert statuses == [200, 200, 200, 200, 429]
    await keys.revoke(doors.context.store, COMMAND_LINE, hook.key.id)
    assert (await doors.hook(hook.token)).status == 401
    noted = [(item.key, item.route, item.code) for item in doors.context.state.request_log.buffer]
    assert noted[0] == (elsewhere.key.id, "POST /hooks/supabase/{team}", "insufficient_scope")
    assert (noted[-1][0], noted[-1][2]) == (hook.key.id, "rate_limit_exceeded")


async def test_a_hooks_key_is_rotated_and_sends_alone(doors: Protocols) -> None:
    first = await made(doors, hook=True, name="supabase")
    second = await keys.rotate(doors.context.store, COMMAND_LINE, first.key.id, encrypt=SEALER.encrypt)
    assert second.token.startswith("v1,whsec_") and second.token != first.token
    assert [(await doors.hook(token)).status for token in (first.token, second.token)] == [200, 200]
    with pytest.raises(InvalidRequest):
        await made(doors, hook=True, scopes=("send", "manage"))


async def test_hook_of_a_suspended_team_gets_403(doors: Protocols, store: Store) -> None:
    token = (await made(doors, hook=True)).token
    team = TeamRecord(ref=1, id="team_a", name="A", mode="live", suspended=True)
    await write_records(store, ("team", "team_a", team, "team_a"))
    message = await doors.hook(token)
    assert (message.status, b'"http_code":403' in message.body) == (200, True)
