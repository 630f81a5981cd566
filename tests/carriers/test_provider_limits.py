"""Limits per mailbox provider, pools and warm-up of the carrier mx, with shared state as in the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email.mx import Mx
from heliograph.carriers.email.smtp import SmtpOptions
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome
from heliograph.domain.delivery.provider_pause import Pause
from heliograph.domain.delivery.provider_rates import (
    QUIET_MS,
    Exchange,
    ExchangeResult,
    ProviderKey,
    ProviderState,
    apply_exchange,
    current_rate,
)
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.setup.carrier_kinds import MxOptions
from tests.carriers.dns_peer import DnsPeer, Zone
from tests.carriers.smtp_peer import Peer, Script
from tests.carriers.test_mx import PATIENT, no_policy, prepare
from tests.clocks import StandingClock

pytestmark = pytest.mark.anyio

GOOGLE: Zone = {
    ("x.test", "MX"): ["10 mx.google.com."],
    ("z.test", "MX"): ["10 mx2.google.com."],
    ("other.test", "MX"): ["10 a.test."],
    ("mx.google.com", "A"): ["127.0.0.2"],
    ("mx2.google.com", "A"): ["127.0.0.3"],
    ("a.test", "A"): ["127.0.0.2"],
}
FIRST, SECOND = "127.0.0.77", "127.0.0.78"
TOO_FAST = "421 4.7.28 Our system has detected an unusual rate of mail from your IP address"


class Network:
    """Mail servers on loopback, and carriers in several processes that share the states of the providers."""

    def __init__(self, peers: dict[str, Peer], clock: StandingClock) -> None:
        self.peers = peers
        self.clock = clock
        self.states: dict[ProviderKey, ProviderState] = {}
        self.exchanges = 0
        self.is_away = False  # whether the database cannot be reached
        self.processes: list[Mx] = []

    async def exchange(self, process: str, exchange: Exchange) -> ExchangeResult:
        self.exchanges += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise OSError
        state = self.states.get(exchange.key, ProviderState())
        self.states[exchange.key], result = apply_exchange(state, exchange, process, self.clock.now())
        return result

    async def send(self, to: str = "to@x.test", process: int = 0, **fields: Any) -> Outcome:
        message = OutboundMessage(message_id="eml_1", address=to, content=b"{}", attempt=0, **fields)
        return await self.processes[process].send_message(message)

    async def send_all(self, count: int, process: int = 0, **fields: Any) -> list[Outcome]:
        return await asyncio.gather(*(self.send(process=process, **fields) for _ in range(count)))

    def rate(self, source: str = "") -> float:
        return current_rate(self.states[ProviderKey("mx", "google", source)], 60, self.clock.now())

    def received(self) -> int:
        return sum(len(peer.received) for peer in self.peers.values())

    def sources(self) -> set[str]:
        return {line.removeprefix("EHLO ") for peer in self.peers.values() for line in peer.lines if line[0] == "E"}


@asynccontextmanager
async def network(
    script: Script | None = None, *, processes: int = 1, final_delay: float = 0, **options: Any
) -> AsyncIterator[Network]:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(DnsPeer(GOOGLE))
        peers: dict[str, Peer] = {}
        port = 0
        for number in ("2", "3"):
            peer = Peer(script, host=f"127.0.0.{number}", port=port, final_delay=final_delay)
            peers[number] = await stack.enter_async_context(peer)
            port = peer.port
        settings: dict[str, Any] = {"resolver": dns.address, "port": port, "allow_private": ("127.0.0.0/8",)}
        clock = StandingClock()
        net = Network(peers, clock)
        for process in range(processes):
            mx = Mx(
                msgspec.convert(settings | options, MxOptions),
                prepare,
                smtp_options=SmtpOptions(timeouts=PATIENT),
                fetch=no_policy,
                random=Random(7),
                exchange=partial(net.exchange, f"process {process}"),
                now=clock.now,
            )
            stack.push_async_callback(mx.close)
            net.processes.append(mx)
        yield net


def held(outcomes: list[Outcome], reason: str = "provider_rate") -> int:
    return sum(
        isinstance(outcome, Deferred) and outcome.held and outcome.detail.get("reason") == reason
        for outcome in outcomes
    )


# -- per_minute --------------------------------------------------------------------------------------------


async def test_messages_above_the_rate_limit_are_held() -> None:
    async with network(providers={"google": {"per_minute": 5}}) as net:
        outcomes = await net.send_all(8)
        assert (net.received(), held(outcomes)) == (5, 3)
        waits = sorted(outcome.retry_after_ms or 0 for outcome in outcomes if isinstance(outcome, Deferred))
        assert waits[0] >= MINUTE_MS
        assert isinstance(await net.send("to@other.test"), Accepted)
        net.clock.forward(waits[0])
        assert isinstance(await net.send(was_held=True), Accepted)


async def test_limits_of_star_apply_to_each_other_provider_separately() -> None:
    async with network(providers={"*": {"per_minute": 2}, "other": {"per_minute": 1}}) as net:
        google, other = await net.send_all(3), [await net.send("to@other.test") for _ in range(2)]
        assert (held(google), held(other)) == (1, 1)


async def test_processes_share_one_rate() -> None:
    async with network(processes=3, providers={"google": {"per_minute": 12}}) as net:
        outcomes = await asyncio.gather(*(net.send_all(10, process) for process in range(3)))
        assert net.received() == 12
        assert sum(map(held, outcomes)) == 18


async def test_many_messages_cost_few_exchanges() -> None:
    async with network(providers={"google": {"per_minute": 6000}}) as net:
        await net.send_all(150)
        assert net.received() == 150
        assert net.exchanges <= 3


async def test_critical_messages_exceed_the_rate_and_count() -> None:
    async with network(providers={"google": {"per_minute": 5}}) as net:
        outcomes = await net.send_all(8, priority="critical")
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        await asyncio.sleep(0.7)
        assert held(await net.send_all(1)) == 1


async def test_without_limits_no_state_is_read() -> None:
    async with network(providers={"google": {"connections": 5}}) as net:
        await net.send("to@other.test")
        assert net.exchanges == 0


# -- refusals ----------------------------------------------------------------------------------------------


async def test_refusal_about_rate_halves_the_rate_and_it_recovers() -> None:
    script: Script = {"mail": [TOO_FAST, "250 ok"]}
    async with network(script, providers={"google": {"per_minute": 60}}) as net:
        refused = await net.send()
        assert isinstance(refused, Deferred)
        assert not refused.held
        await asyncio.sleep(0.05)
        assert net.rate() == 30
        state = net.states[ProviderKey("mx", "google", "")]
        assert (state.deferrals, state.last_reply) == (1, TOO_FAST)
        net.clock.forward(QUIET_MS)
        assert net.rate() == 36
        net.clock.forward(10 * QUIET_MS)
        assert net.rate() == 60


async def test_refusal_is_reported_once_the_database_can_be_reached() -> None:
    async with network({"mail": [TOO_FAST, "250 ok"]}, providers={"google": {"per_minute": 60}}) as net:
        net.is_away = True
        await net.send(priority="critical")
        await asyncio.sleep(0.05)
        net.is_away = False
        await asyncio.sleep(1.2)
        assert net.rate() == 30


async def test_messages_that_wait_for_a_connection_are_held_after_a_refusal() -> None:
    script: Script = {"mail": TOO_FAST.replace("421", "450")}  # 421 pauses the host
    async with network(script, providers={"google": {"per_minute": 60, "connections": 1}}) as net:
        assert held(await net.send_all(50)) >= 45


async def test_critical_messages_prefer_the_address_that_was_not_refused() -> None:
    async with network(source_ips=[FIRST, warming(StandingClock(), 4)], helo="") as net:
        assert all(isinstance(outcome, Accepted) for outcome in await net.send_all(20, priority="critical"))
        assert net.sources() == {f"[{FIRST}]"}


async def test_after_a_refusal_one_message_is_sent_first() -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", "450"), "250 ok"]}
    async with network(script, providers={"google": {"per_minute": 60}}) as net:
        await net.send()
        assert held(await net.send_all(3, priority="critical")) == 3
        net.clock.forward(1000)
        assert held(await net.send_all(3, priority="critical")) == 2


async def test_after_a_refusal_one_message_more_is_sent_at_once_after_each_group_was_accepted() -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", "450"), "250 ok"]}
    async with network(script, final_delay=0.02, providers={"google": {"per_minute": 60}}) as net:
        await net.send()
        net.clock.forward(1000)
        assert [10 - held(await net.send_all(10, priority="critical")) for _ in range(9)] == [
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            10,
        ]


async def test_a_message_under_way_at_the_refusal_does_not_count_as_accepted_after_it() -> None:
    script: Script = {"final": [TOO_FAST.replace("421", "450"), "250 ok"]}
    async with network(script, final_delay=0.1, providers={"google": {"per_minute": 60}}) as net:
        await net.send_all(4, priority="critical")
        assert net.received() == 4
        net.clock.forward(1000)
        assert [10 - held(await net.send_all(10, priority="critical")) for _ in range(2)] == [1, 2]


async def test_a_refusal_pauses_the_messages_of_all_processes() -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", "450"), "250 ok"]}
    async with network(script, processes=2, final_delay=0.02, providers={"google": {"per_minute": 60}}) as net:
        await net.send(process=0)
        await asyncio.sleep(0.05)
        assert held([await net.send(process=1)]) == 1
        assert held([await net.send(process=1, priority="critical")]) == 1
        net.clock.forward(1000)
        outcomes = await asyncio.gather(*(net.send_all(3, process, priority="critical") for process in range(2)))
        assert (net.received(), sum(map(held, outcomes))) == (1, 5)  # one process sends one message first
        await asyncio.sleep(0.05)
        net.clock.forward(1000)
        assert held([await net.send(process=process, priority="critical") for process in range(2)]) == 0


async def test_another_address_is_used_while_another_process_sends_first_after_a_pause() -> None:
    options: dict[str, Any] = {"source_ips": [FIRST, SECOND], "helo": "", "providers": {"google": {"per_minute": 60}}}
    async with network(**options) as net:
        now = net.clock.now()
        pause = Pause(refused_at=now - 1000, refusals=1, until=now, probe_by="another", probe_until=now + 10_000)
        net.states[ProviderKey("mx", "google", FIRST)] = ProviderState(pause=pause)
        assert held(await net.send_all(10)) == 0
        assert net.sources() == {f"[{SECOND}]"}


async def test_a_pause_that_ended_before_this_process_knew_of_it_holds_nothing() -> None:
    async with network(providers={"google": {"per_minute": 60}}) as net:
        pause = Pause(refused_at=net.clock.now() - 1000, refusals=3)
        net.states[ProviderKey("mx", "google", "")] = ProviderState(pause=pause)
        assert held(await net.send_all(10)) == 0


async def test_without_the_database_each_process_sends_one_message_after_a_pause() -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", "450"), "250 ok"]}
    async with network(script, providers={"google": {"connections": 2}}) as net:
        await net.send()
        await asyncio.sleep(0.05)
        net.clock.forward(1000)
        net.is_away = True
        assert held(await net.send_all(3)) == 2


async def test_each_further_refusal_lengthens_the_pause_of_critical_messages_less() -> None:
    script: Script = {"mail": TOO_FAST.replace("421", "450")}
    async with network(script, providers={"google": {"connections": 2}}) as net:
        waits, critical_waits = [1, 60, 120, 240, 480, 600, 600], [1, 4, 16, 64, 256, 600, 600]
        for wait_s, critical_s in zip(waits, critical_waits, strict=True):
            outcomes = [await net.send(), await net.send(), await net.send(priority="critical")]
            refused, after, critical = (outcome for outcome in outcomes if isinstance(outcome, Deferred))
            assert (refused.held, after.held, after.retry_after_ms) == (False, True, wait_s * 1000)
            assert (critical.held, critical.retry_after_ms) == (True, critical_s * 1000)
            net.clock.forward(wait_s * 1000)


async def test_few_critical_messages_are_refused_while_the_provider_refuses_all() -> None:
    script: Script = {"mail": TOO_FAST.replace("421", "450")}
    async with network(script, providers={"google": {"connections": 2}}) as net:
        for _ in range(300):  # a critical message every two seconds for ten minutes
            await net.send(priority="critical")
            net.clock.forward(2000)
        commands = [line for peer in net.peers.values() for line in peer.lines]
        assert sum(line.startswith("MAIL") for line in commands) == 6


async def test_critical_messages_leave_from_the_address_without_a_refusal_after_the_pause() -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", "450"), "250 ok"]}
    sources = [FIRST, warming(StandingClock(), 4)]
    async with network(script, source_ips=sources, helo="", providers={"google": {"per_minute": 60}}) as net:
        await net.send(priority="critical")
        net.clock.forward(1000)
        net.peers["2"].lines.clear()
        assert held(await net.send_all(3, priority="critical")) == 0
        assert net.sources() <= {f"[{SECOND}]"}


@pytest.mark.parametrize("code", ["421", "450"])
async def test_a_refused_critical_message_is_sent_from_another_address_at_once(code: str) -> None:
    script: Script = {"mail": [TOO_FAST.replace("421", code), "250 ok"]}
    options: dict[str, Any] = {"source_ips": [FIRST, SECOND], "helo": "", "providers": {"google": {"per_minute": 60}}}
    async with network(script, **options) as net:
        assert isinstance(await net.send(priority="critical"), Accepted)
        assert net.sources() == {f"[{FIRST}]", f"[{SECOND}]"}


async def test_mail_refused_because_of_the_rate_is_not_sent_to_another_host() -> None:
    zone_hosts = ["10 mx.google.com.", "20 mx2.google.com."]
    GOOGLE["two.test", "MX"] = zone_hosts
    async with network({"mail": TOO_FAST}, providers={"google": {"per_minute": 60}}) as net:
        await net.send("to@two.test")
        assert sum(len(peer.talks) for peer in net.peers.values()) == 1


@pytest.mark.parametrize("reply", ["451 4.7.1 greylisted, try again later", "452 4.2.2 mailbox full", "250 ok"])
async def test_other_temporary_replies_do_not_reduce_the_rate(reply: str) -> None:
    async with network({"rcpt": reply}, providers={"google": {"per_minute": 60}}) as net:
        await net.send()
        await asyncio.sleep(0.05)
        assert net.rate() == 60


# -- connections -------------------------------------------------------------------------------------------


async def test_connections_of_all_hosts_of_a_provider_are_limited() -> None:
    async with network(final_delay=0.02, providers={"google": {"connections": 3}}) as net:
        outcomes = await asyncio.gather(*(net.send(f"to@{'xz'[number % 2]}.test") for number in range(20)))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        most = [peer.most_connections for peer in net.peers.values()]
        assert 2 <= sum(most) <= 6
        assert max(most) <= 3


async def test_critical_messages_do_not_exceed_the_connections() -> None:
    async with network(final_delay=0.02, providers={"google": {"connections": 2}}) as net:
        outcomes = await net.send_all(10, priority="critical")
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        assert net.peers["2"].most_connections == 2


async def test_connections_above_those_that_the_provider_accepts_are_not_opened_again() -> None:
    script: Script = {"connect": ["220 ok", "220 ok", "450 4.7.0 Too many connections from your IP address", "220 ok"]}
    async with network(script, final_delay=0.02, providers={"google": {"connections": 3}}) as net:
        await net.send_all(3)
        peer = net.peers["2"]
        assert len(peer.talks) == 3
        net.clock.forward(1000)
        while held(await net.send_all(30)):
            net.clock.forward(10_000)
        assert len(peer.talks) == 3
        assert net.states[ProviderKey("mx", "google", "")].connection_limit == 2


async def test_connection_ends_after_the_configured_messages() -> None:
    async with network(providers={"google": {"connections": 1, "messages_per_connection": 3}}) as net:
        for _ in range(7):
            assert isinstance(await net.send(), Accepted)
        assert [talk.count("data") + talk.count("DATA") for talk in net.peers["2"].talks] == [3, 3, 1]


# -- pools and warm-up -------------------------------------------------------------------------------------


def day_of(clock: StandingClock, days: int = 0) -> str:
    return datetime.fromtimestamp(clock.now() / 1000 + 86400 * days, UTC).date().isoformat()


def warming(clock: StandingClock, start: int, days_ago: int = 0) -> dict[str, Any]:
    warmup = {"from": day_of(clock, -days_ago), "days": 30, "start": start}
    return {"address": SECOND, "warmup": warmup}


async def test_pool_of_the_team_decides_the_source_address() -> None:
    pools = {"bulk": {"source_ips": [SECOND]}, "default": {"source_ips": [FIRST]}}
    async with network(source_ips=[FIRST, SECOND], pools=pools, helo="") as net:
        await net.send_all(3)
        assert net.sources() == {f"[{FIRST}]"}
        await net.send_all(3, pool="bulk")
        assert net.sources() == {f"[{FIRST}]", f"[{SECOND}]"}
        await net.send(pool="unknown")
        assert net.received() == 7


async def test_message_above_the_limit_of_one_address_is_sent_from_another() -> None:
    async with network(source_ips=[FIRST, SECOND], providers={"google": {"per_minute": 5}}, helo="") as net:
        outcomes = await net.send_all(14)
        assert (net.received(), held(outcomes)) == (10, 4)
        assert len(net.sources()) == 2


async def test_above_the_daily_limit_other_addresses_of_the_pool_are_used() -> None:
    async with network(source_ips=[FIRST, warming(StandingClock(), 4)], helo="") as net:
        outcomes = await net.send_all(20)
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        assert net.states[ProviderKey("mx", "google", SECOND)].sent == 4


async def test_above_the_daily_limit_messages_wait_for_the_next_utc_day() -> None:
    async with network(source_ips=[warming(StandingClock(), 4)]) as net:
        outcomes = await net.send_all(6)
        assert (net.received(), held(outcomes, "warmup")) == (4, 2)
        wait_ms = min(outcome.retry_after_ms or 0 for outcome in outcomes if isinstance(outcome, Deferred))
        assert (net.clock.now() + wait_ms) % DAY_MS < MINUTE_MS
        net.clock.forward(wait_ms)
        assert isinstance(await net.send(was_held=True), Accepted)


async def test_address_is_not_used_before_its_warm_up() -> None:
    async with network(source_ips=[FIRST, warming(StandingClock(), 4, days_ago=-1)], helo="") as net:
        await net.send_all(10)
        assert net.sources() == {f"[{FIRST}]"}
    async with network(source_ips=[warming(StandingClock(), 4, days_ago=-1)]) as net:
        assert held(await net.send_all(2, priority="critical"), "warmup") == 2


async def test_address_has_no_daily_limit_after_its_warm_up() -> None:
    async with network(source_ips=[warming(StandingClock(), 4, days_ago=30)]) as net:
        assert held(await net.send_all(20), "warmup") == 0
        assert net.exchanges == 0


async def test_overflow_is_named_unless_the_message_may_have_been_sent() -> None:
    pools = {"default": {"source_ips": [FIRST], "overflow": "relay"}}
    async with network(source_ips=[FIRST], pools=pools, providers={"google": {"per_minute": 1}}) as net:
        await net.send()
        for uncertain, overflow in ((False, "relay"), (True, "")):
            outcome = await net.send(uncertain=uncertain)
            assert isinstance(outcome, Deferred)
            assert outcome.overflow == overflow
