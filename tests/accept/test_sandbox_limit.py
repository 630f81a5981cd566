"""The daily limit of a sandbox team over real carriers (contract 13), counted when a message is accepted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from heliograph.accept.context import Context
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import preview_sms, send_sms
from heliograph.accept.verify_start import VerifyRequest, start_verification
from heliograph.accept.whatsapp import send_whatsapp
from heliograph.bootstrap import open_store
from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carriers, OutboundMessage
from heliograph.domain.delivery.outcome import Accepted
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import NoCarrierAvailable, RecipientNotAllowed, SandboxLimitReached
from heliograph.domain.setup.records import (
    Caller,
    CarrierRecord,
    Channel,
    Key,
    Platform,
    Recipient,
    TeamRecord,
    Template,
    VerifyLimits,
)
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.settings import Settings
from heliograph.storage.store import Store
from tests.dashboard.inside import write_records
from tests.storage.test_idempotency import make_context

DAILY_LIMIT = 3
PHONE, ABROAD, MAGIC = "+447400123456", "+14155550100", "+15005550006"
TEAM, KEY = "team_acme", Key(id="key", team="team_acme", name="server", hash="")
FREE = VerifyLimits(min_interval_s=0, per_phone_10m=0, per_prefix_10m=0, per_phone_day=0, conversion_guard=False)

Send = Callable[[Context, str], Awaitable[Any]]


class FakeCarrier:
    async def send_message(self, message: OutboundMessage) -> Accepted:
        return Accepted(carrier_id=message.message_id)


async def prepare(store: Store, clock: Any, kind: str, mode: Any = "sandbox") -> Context:
    """Set up real carriers (or simulators) that serve only GB."""
    own: list[Any] = [
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme", mode=mode, features=("verify",), verify=FREE), TEAM),
        ("key", KEY.id, KEY, TEAM),
        *(("recipient", f"{TEAM}/{to}", Recipient(team=TEAM, address=to), TEAM) for to in (PHONE, ABROAD)),
    ]
    channels: tuple[Channel, ...] = ("sms", "whatsapp")
    for channel in channels:
        template = Template(id=f"tpl_{channel}", team=TEAM, channel=channel, name="Hi", body="Hi", category="UTILITY")
        own.append(("template", template.id, template, TEAM))
        own.append(("carrier", channel, CarrierRecord(id=channel, channel=channel, kind=kind, countries=("GB",)), None))
    await write_records(store, ("platform", PLATFORM_ID, Platform(sandbox_per_day=DAILY_LIMIT), None), *own)
    failover = CarrierFailover(store, Carriers(lambda record: FakeCarrier()), clock)  # type: ignore[arg-type, return-value]
    return msgspec.structs.replace(make_context(store, clock), failover=failover, code_key=b"k")


def caller(context: Context) -> Caller:
    return context.store.setup.current.callers[KEY.id]


async def sms(context: Context, to: str) -> Any:
    return await send_sms(context, caller(context), PhoneRequest(to=to, template_id="tpl_sms"), None)


async def whatsapp(context: Context, to: str) -> Any:
    return await send_whatsapp(context, caller(context), PhoneRequest(to=to, template_id="tpl_whatsapp"), None)


async def verify(context: Context, to: str) -> Any:
    return await start_verification(context, caller(context), VerifyRequest(to=to), None)


@pytest.mark.anyio
async def test_sms_whatsapp_and_codes_share_one_day(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "test")
    for send in (sms, whatsapp, verify):
        await send(context, PHONE)
    for send in (sms, whatsapp, verify):
        with pytest.raises(SandboxLimitReached) as error:
            await send(context, PHONE)
        remaining = DAY_MS - clock.now() % DAY_MS
        assert error.value.param == "to"
        assert remaining // 1000 <= (error.value.retry_after or 0) <= remaining // 1000 + 2
        await send(context, MAGIC)
    with pytest.raises(SandboxLimitReached):
        await preview_sms(context, caller(context), PhoneRequest(to=PHONE, template_id="tpl_sms"))
    clock.forward(DAY_MS)
    for send in (verify, whatsapp, sms):
        await send(context, PHONE)
    with pytest.raises(SandboxLimitReached):
        await sms(context, PHONE)


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "mode"), [("simulator", "sandbox"), ("test", "live")])
async def test_simulators_and_live_teams_are_not_counted(store: Store, clock: Any, kind: str, mode: str) -> None:
    context = await prepare(store, clock, kind, mode)
    for send in (sms, whatsapp, verify) if mode == "sandbox" else (verify,):
        for _ in range(DAILY_LIMIT + 1):
            await send(context, PHONE)


@pytest.mark.anyio
async def test_sandbox_limit_is_checked_in_the_documented_order(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "test")
    retry_key = msgspec.structs.replace(
        context.store.setup.current.teams[TEAM].record, verify=VerifyLimits(countries=("GB",))
    )
    await write_records(
        store,
        ("platform", PLATFORM_ID, Platform(sandbox_per_day=0), None),
        ("team", TEAM, retry_key, TEAM),
        ("carrier", "sms", CarrierRecord(id="sms", channel="sms", kind="test"), None),
    )
    for send in (sms, whatsapp, verify):
        with pytest.raises(RecipientNotAllowed):
            await send(context, "+447400999999")
        with pytest.raises(SandboxLimitReached):  # neither WhatsApp nor Verify serves this country
            await send(context, ABROAD)


@pytest.mark.anyio
async def test_sandbox_limit_precedes_the_carrier_check_and_ignores_refusals(store: Store, clock: Any) -> None:
    context = await prepare(store, clock, "test")
    for _ in range(DAILY_LIMIT + 1):
        with pytest.raises(NoCarrierAvailable):
            await sms(context, ABROAD)
        assert b'"failed"' in (await verify(context, ABROAD)).body
    for _ in range(DAILY_LIMIT):
        await sms(context, PHONE)
    for send in (sms, whatsapp):
        with pytest.raises(SandboxLimitReached):
            await send(context, ABROAD)


@pytest.mark.anyio
async def test_sandbox_limit_is_shared_by_concurrent_processes(store: Store, settings: Settings, clock: Any) -> None:
    """Each context has its own store on the same database, like two processes."""
    first = await prepare(store, clock, "test")
    async with open_store(settings, clock, "seat/1") as other:
        second = msgspec.structs.replace(first, store=other)
        sends: list[Send] = [sms, whatsapp, verify]
        contexts = (first, second)
        racers = (sends[number % 3](contexts[number % 2], PHONE) for number in range(30))
        result = await asyncio.gather(*racers, return_exceptions=True)
    assert sum(not isinstance(answer, Exception) for answer in result) == DAILY_LIMIT
    assert {type(answer) for answer in result if isinstance(answer, Exception)} == {SandboxLimitReached}
