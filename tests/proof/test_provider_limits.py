"""Limits per mailbox provider against providers whose limits are not known: volume, refused attempts, critical mail.

Simulated providers, days of mail in simulated time. The decisions are those of the product: the carrier's
`ProviderLimiter` with its pool, tokens, connection gates and warm-up, the state shared by all processes, the
classification of replies, and the retry schedule. SMTP, the queue and the database are simulated, because the volume of
30 days takes hours through them; `tests/carriers/test_provider_limits.py` has the limits over SMTP. Refusals are 450
replies: the pause of a host after a 421 is part of the connection pool, which is simulated.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email import connection_gate
from heliograph.carriers.email.provider_limiter import Held, ProviderLimiter, SendPermit
from heliograph.domain.delivery.outcome import Deferred
from heliograph.domain.delivery.provider_rates import (
    Exchange,
    ExchangeResult,
    ProviderKey,
    ProviderState,
    apply_exchange,
)
from heliograph.domain.delivery.retry import next_attempt
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.setup.carrier_kinds import MxOptions
from tests.proof.simulated_providers import DAY_S, SimulatedProvider, count_with_oracle
from tests.proof.simulated_time import run_simulated
from tests.proof.size import report

SEED = 46
BEGIN_MS = 20_800 * DAY_MS  # 2026-12-13, the first day of the warm-up
KNOWN, NEW = "192.0.2.1", "192.0.2.2"
SENDER_DOMAINS = 8
WARMUP_DAYS = 18
PATIENCE_S = 90 * 60  # a message that waited longer expires
SPREAD_S = 600  # time in which a campaign arrives
CRITICAL_SHARE = 0.3  # of single messages
CRITICAL_MAX_S = 5


class Sender:
    """Sends the mail of a carrier to the simulated providers."""

    def __init__(self, seed: int, days: int, providers: int = 12) -> None:
        self.random = Random(seed)
        self.days = days
        self.providers = [SimulatedProvider(f"provider{number}", self.random) for number in range(providers)]
        for provider in self.providers:
            provider.new_addresses = frozenset((NEW,))
        self.states: dict[ProviderKey, ProviderState] = {}
        self.counts: Counter[str] = Counter()  # accepted, refused and greylisted after the first day
        self.delivered: Counter[str] = Counter()  # provider → messages
        self.refused: Counter[str] = Counter()
        self.critical_waits: list[float] = []
        self.arrivals = {provider.name: list(self.draw_arrivals(provider)) for provider in self.providers}
        options = msgspec.convert(self.configuration(), MxOptions)
        self.limiter = ProviderLimiter(options, "direct", self.exchange, self.now, self.random.shuffle)

    def configuration(self) -> dict[str, Any]:
        """Return the carrier's options: guesses, up to twice what a provider permits."""
        providers = {
            provider.name: {
                "per_minute": round(provider.per_minute * self.random.uniform(1, 2)),
                "connections": round(provider.connections * self.random.uniform(0.7, 1.3)),
            }
            for provider in self.providers
        }
        warmup = {"from": "2026-12-13", "days": WARMUP_DAYS, "start": 200}
        return {"source_ips": [KNOWN, {"address": NEW, "warmup": warmup}], "providers": providers}

    def draw_arrivals(self, provider: SimulatedProvider) -> Iterator[tuple[float, bool]]:
        """Yield the time of each message, and whether it is critical.

        Single messages arrive around the clock, and the messages of a campaign on most days.
        """
        arrivals, hour = list[tuple[float, bool]](), 60 * provider.per_minute
        for day in range(self.days):
            single = round(hour * 24 * self.random.uniform(0.01, 0.03))
            arrivals += [
                (self.random.uniform(day, day + 1) * DAY_S, self.random.random() < CRITICAL_SHARE)
                for _ in range(single)
            ]
            if self.random.random() < 0.4:
                begin = (day + self.random.uniform(0.2, 0.6)) * DAY_S
                addresses = 1 + min(1, day / WARMUP_DAYS)
                messages = round(hour * addresses * self.random.uniform(0.2, 2.2))
                arrivals += [(begin + self.random.uniform(0, SPREAD_S), False) for _ in range(messages)]
        yield from sorted(arrivals)

    def count_with_oracle(self, provider: SimulatedProvider) -> int:
        arrivals = (arrival for arrival, _ in self.arrivals[provider.name])
        return count_with_oracle(provider, (KNOWN, NEW), arrivals, PATIENCE_S, self.days * DAY_S)

    def now(self) -> int:
        return BEGIN_MS + int(asyncio.get_running_loop().time() * SECOND_MS)

    async def exchange(self, exchange: Exchange) -> ExchangeResult:
        state = self.states.get(exchange.key, ProviderState())
        self.states[exchange.key], result = apply_exchange(state, exchange, "process", self.now())
        return result

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for provider in self.providers:
                group.create_task(self.send_arrivals(provider))
        await self.limiter.close()

    async def send_arrivals(self, provider: SimulatedProvider) -> None:
        time = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group:
            for number, (arrival, is_critical) in enumerate(self.arrivals[provider.name]):
                await asyncio.sleep(arrival - time())
                message = OutboundMessage(
                    message_id=f"eml_{number}",
                    address="ann@example.com",
                    content=b"{}",
                    attempt=0,
                    priority="critical" if is_critical else "normal",
                )
                group.create_task(self.deliver(provider, message, arrival))

    async def deliver(self, provider: SimulatedProvider, message: OutboundMessage, arrival: float) -> None:
        """Send a message until it is accepted or expires, as the dispatcher does."""
        time, domain, attempt = asyncio.get_running_loop().time, self.random.randrange(SENDER_DOMAINS), 0
        end = min(arrival + PATIENCE_S, self.days * DAY_S)
        while time() <= end:
            outcome = await self.attempt(provider, message, domain)
            if outcome is None:
                self.delivered[provider.name] += 1
                if message.priority == "critical":
                    self.critical_waits.append(time() - arrival)
                return
            now = self.now()
            if outcome.held:
                message = msgspec.structs.replace(message, was_held=True)
                assert outcome.retry_after_ms
                await asyncio.sleep(outcome.retry_after_ms / SECOND_MS)
            else:
                attempt += 1
                jitter = self.random.uniform(-1, 1)
                retry_at = next_attempt("email", attempt, BEGIN_MS + int(arrival * SECOND_MS), now, jitter)
                assert retry_at
                await asyncio.sleep((retry_at - now) / SECOND_MS)
        if message.priority == "critical":
            self.critical_waits.append(PATIENCE_S)

    async def attempt(self, provider: SimulatedProvider, message: OutboundMessage, domain: int) -> Deferred | None:
        permit = await self.limiter.admit(provider.name, "198.51.100.1", message)
        if isinstance(permit, Deferred):
            return permit
        gate, source = permit.gate, permit.source
        assert gate
        assert source
        message = self.limiter.with_recheck(message, permit)
        while not await gate.acquire(message, 30):
            pass
        gate.count_opened()
        try:
            await message.hooks.before_send()
            return await self.connect(provider, source, domain, permit)
        except Held as held:
            return held.outcome
        finally:
            gate.count_closed()
            gate.release()

    async def connect(
        self, provider: SimulatedProvider, source: str, domain: int, permit: SendPermit
    ) -> Deferred | None:
        reply = provider.connect(source, domain, asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(provider.latency_s)
        finally:
            provider.disconnect(source)
        is_first_day = self.now() < BEGIN_MS + DAY_MS
        if reply is None:
            self.counts["accepted"] += not is_first_day
            return None
        detail = {"code": int(reply[:3]), "enhanced": reply.split()[1], "text": reply}
        is_about_rate = self.limiter.report(permit, detail)
        assert is_about_rate == ("Grey" not in reply)
        self.counts["refused"] += not is_first_day
        self.refused[f"{provider.name} {reply[:30]}"] += not is_first_day
        return Deferred(detail=detail)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.mark.parametrize(
    ("days", "providers", "volume_min", "refused_max"),
    [
        (3, 5, 0.8, 0.01),  # much of this time the limits are learned
        pytest.param(30, 12, 0.95, 0.001, marks=pytest.mark.in_full),
    ],
)
def test_sends_nearly_what_an_oracle_sends(
    days: int, providers: int, volume_min: float, refused_max: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_gate, "RENEW_INTERVAL_S", 30.0)  # one process: nobody else needs its share
    sender = Sender(SEED, days, providers)
    run_simulated(sender.run())
    possible = {provider.name: sender.count_with_oracle(provider) for provider in sender.providers}
    volume = sender.delivered.total() / sum(possible.values())
    refused = sender.counts["refused"] / sender.counts.total()
    critical_s = percentile(sender.critical_waits, 0.99)
    report(
        "limits",
        f"{days} days, {providers} providers: {sender.delivered.total()} of {sum(possible.values())} messages that the "
        f"oracle sends ({volume:.1%}), {refused:.3%} refused attempts after the first day, "
        f"critical p99 {critical_s:.1f} s",
    )
    assert volume >= volume_min
    assert refused <= refused_max
    assert critical_s <= CRITICAL_MAX_S
