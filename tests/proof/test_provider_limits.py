"""Limits per mailbox provider against providers whose limits are not known: volume, refused attempts, critical mail.

Simulated providers, days of mail in simulated time. The product's carrier `mx` sends: its limiter with pool, tokens,
connection gates and warm-up, the state shared by all processes, the connections and pauses of the pool, the
classification of replies, and the retry schedule. SMTP, DNS, the queue and the database are simulated, because the
volume of 30 days takes hours through them; `tests/carriers/test_provider_limits.py` has the limits over SMTP.

The traffic is transactional: it follows the hours of the day, stays below what a provider accepts in a day, and has
peaks above what it accepts in a minute. The configured limits are guesses, some above and some below the real ones.
"""

import asyncio
import math
import os
from array import array
from collections.abc import Collection, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email import connection_gate, connection_pool, mx
from heliograph.carriers.email.connection_pool import PreparedMail
from heliograph.carriers.email.mx import Mx
from heliograph.domain.delivery.outcome import Accepted, Deferred
from heliograph.domain.delivery.provider_rates import (
    Exchange,
    ExchangeResult,
    ProviderKey,
    ProviderState,
    apply_exchange,
)
from heliograph.domain.delivery.retry import SCHEDULE_BY_CHANNEL, hold_until, next_attempt
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.mail.mailbox_provider import DOMAINS_BY_PROVIDER
from heliograph.domain.setup.carrier_kinds import MxOptions
from tests.proof.simulated_providers import (
    DAY_S,
    SimulatedInternet,
    SimulatedProvider,
    sent_by_oracle,
    simulated_mail,
)
from tests.proof.simulated_time import run_simulated
from tests.proof.size import report

SEED = int(os.environ.get("LIMITS_SEED", "46"))
BEGIN_MS = 20_800 * DAY_MS  # 2026-12-13, the first day of the warm-up
KNOWN, NEW = "192.0.2.1", "192.0.2.2"
SENDER_DOMAINS = 8
WARMUP_DAYS = 18
PATIENCE_S = SCHEDULE_BY_CHANNEL["email"].window / SECOND_MS  # a message that waited longer fails
EXCHANGE_S = 0.003  # time of an access to the database
LONG_WAIT_S = 3600

# Traffic, as shares of what a provider accepts from one address.
BASE_SHARE = 0.03  # of a day's messages: mail around the clock
PEAKS_PER_DAY = 0.5
PEAK_SHARE = (1.2, 3.0)  # of a minute's messages, times the addresses that are in use
PEAK_MINUTES = (10, 30)
CRITICAL_SHARE, CRITICAL_SHARE_IN_PEAKS = 0.3, 0.05
WEEKEND_SHARE = 0.6  # of a workday's mail
CRITICAL_MAX_S = 5


class Sender:
    """Sends the mail of a carrier to the simulated providers."""

    def __init__(self, seed: int, days: int, names: Collection[str]) -> None:
        self.random = Random(seed)
        self.days = days
        providers = [
            SimulatedProvider(name, domains.split()[0], self.random) for name, domains in DOMAINS_BY_PROVIDER.items()
        ]
        self.providers = [provider for provider in providers if provider.name in names]
        for provider in self.providers:
            provider.new_addresses = frozenset((NEW,))
        self.states: dict[ProviderKey, ProviderState] = {}
        self.waits = {provider.name: array("d") for provider in self.providers}  # of accepted messages
        self.critical_waits = array("d")
        self.arrivals = {provider.name: self.draw_arrivals(provider) for provider in self.providers}
        self.internet = SimulatedInternet(self.providers, self.random)

    def configuration(self) -> dict[str, Any]:
        """Return the carrier's options, whose limits are guesses of an operator."""
        providers = {
            provider.name: {
                "per_minute": round(provider.per_minute * self.random.uniform(0.6, 1.6)),
                "connections": round(provider.connections * self.random.uniform(0.7, 1.3)),
            }
            for provider in self.providers
        }
        warmup = {"from": "2026-12-13", "days": WARMUP_DAYS, "start": 200}
        source_ips = [KNOWN, {"address": NEW, "warmup": warmup}]
        return {"source_ips": source_ips, "providers": providers, "per_host": 20}

    def draw_arrivals(self, provider: SimulatedProvider) -> list[tuple[float, bool]]:
        """Return the time of each message, in order, and whether it is critical."""
        return sorted(arrival for day in range(self.days) for arrival in self._draw_day(provider, day))

    def _draw_day(self, provider: SimulatedProvider, day: int) -> Iterator[tuple[float, bool]]:
        uniform, addresses = self.random.uniform, 1 + min(1, day / WARMUP_DAYS)
        share = WEEKEND_SHARE if day % 7 in (0, 6) else 1.0
        base = round(24 * 60 * provider.per_minute * BASE_SHARE * share * uniform(0.8, 1.2))
        while base:
            hour = uniform(0, 24)
            if uniform(0, 1.8) < 1 + 0.8 * math.sin((hour - 9) / 24 * 2 * math.pi):  # most at 15:00, least at 03:00
                base -= 1
                yield day * DAY_S + hour * 3600, self.random.random() < CRITICAL_SHARE
        if self.random.random() < PEAKS_PER_DAY:
            begin, minutes = (day + uniform(0.3, 0.8)) * DAY_S, uniform(*PEAK_MINUTES)
            for _ in range(round(provider.per_minute * minutes * uniform(*PEAK_SHARE) * addresses)):
                yield begin + uniform(0, minutes * 60), self.random.random() < CRITICAL_SHARE_IN_PEAKS

    def waits_of_oracle(self, provider: SimulatedProvider) -> list[float]:
        arrivals = (arrival for arrival, _ in self.arrivals[provider.name])
        return sent_by_oracle(provider, (KNOWN, NEW), arrivals, PATIENCE_S, self.days * DAY_S)

    def now(self) -> int:
        return BEGIN_MS + int(asyncio.get_running_loop().time() * SECOND_MS)

    async def exchange(self, exchange: Exchange) -> ExchangeResult:
        await asyncio.sleep(EXCHANGE_S)
        state = self.states.get(exchange.key, ProviderState())
        self.states[exchange.key], result = apply_exchange(state, exchange, "process", self.now())
        return result

    async def prepare(self, message: OutboundMessage) -> PreparedMail:
        return simulated_mail(int(message.message_id[4:]) % SENDER_DOMAINS)

    async def run(self) -> None:
        options = msgspec.convert(self.configuration(), MxOptions)
        carrier = Mx(options, self.prepare, random=self.random, carrier="direct", exchange=self.exchange, now=self.now)
        async with asyncio.TaskGroup() as group:
            for provider in self.providers:
                group.create_task(self.send_arrivals(carrier, provider))
        await carrier.close()

    async def send_arrivals(self, carrier: Mx, provider: SimulatedProvider) -> None:
        time = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group:
            for number, (arrival, is_critical) in enumerate(self.arrivals[provider.name]):
                await asyncio.sleep(arrival - time())
                message = OutboundMessage(
                    message_id=f"eml_{number}",
                    address=f"ann@{provider.domain}",
                    content=b"{}",
                    attempt=0,
                    priority="critical" if is_critical else "normal",
                )
                group.create_task(self.deliver(carrier, provider, message, arrival))

    async def deliver(self, carrier: Mx, provider: SimulatedProvider, message: OutboundMessage, arrival: float) -> None:
        """Send a message until it is accepted or fails, as the dispatcher does."""
        time, first_at, attempt = asyncio.get_running_loop().time, self.now(), 0
        while time() < self.days * DAY_S:
            outcome = await carrier.send_message(message)
            if isinstance(outcome, Accepted):
                self.waits[provider.name].append(time() - arrival)
                if message.priority == "critical":
                    self.critical_waits.append(time() - arrival)
                return
            assert isinstance(outcome, Deferred), outcome
            now = self.now()
            if outcome.held or outcome.unreachable:
                message = msgspec.structs.replace(message, was_held=True)
                retry_at = hold_until("email", first_at, now, now + max(1, outcome.retry_after_ms or 0))
            else:
                attempt += 1
                message = msgspec.structs.replace(message, was_held=False, attempt=attempt)
                retry_at = next_attempt("email", attempt, first_at, now, self.random.uniform(-1, 1))
            if retry_at is None:
                break
            await asyncio.sleep((retry_at - now) / SECOND_MS)
        if message.priority == "critical":
            self.critical_waits.append(PATIENCE_S)


def percentile(values: "list[float] | array[float]", share: float) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.mark.parametrize(
    ("days", "providers"),
    [
        (3, ("microsoft", "yahoo", "mimecast")),  # both codes of refusals, and periods of one and ten minutes
        pytest.param(30, DOMAINS_BY_PROVIDER, marks=pytest.mark.in_full),
    ],
    ids=["short", "full"],
)
def test_limiter_sends_nearly_as_many_messages_as_an_oracle(
    days: int, providers: Collection[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(SEED, days, providers)
    monkeypatch.setattr(connection_gate, "RENEW_INTERVAL_S", 30.0)  # one process: nobody else needs its share
    monkeypatch.setattr(connection_pool, "SmtpSession", sender.internet)
    monkeypatch.setattr(mx, "MxResolver", lambda *_: sender.internet)
    run_simulated(sender.run())
    waits = [wait for by_provider in sender.waits.values() for wait in by_provider]
    oracle_waits = [wait for provider in sender.providers for wait in sender.waits_of_oracle(provider)]
    # provider → attempts after the first day: accepted, refused because of a limit, greylisted
    counts = {
        provider.name: [sum(day[kind] for number, day in provider.attempts.items() if number) for kind in range(3)]
        for provider in sender.providers
    }
    attempts, refused = sum(map(sum, counts.values())), sum(count[1] for count in counts.values())
    volume, refused_share = len(waits) / len(oracle_waits), refused / attempts
    most_refused = max(counts, key=lambda name: counts[name][1])
    within_hour = [
        sum(wait <= LONG_WAIT_S for wait in all_waits) / len(oracle_waits) for all_waits in (waits, oracle_waits)
    ]
    critical_s = percentile(sender.critical_waits, 0.99)
    report(
        "limits",
        f"seed {SEED}, {days} days, {len(providers)} providers: {len(waits)} of {len(oracle_waits)} messages that the "
        f"oracle sends ({volume:.1%}; within an hour {within_hour[0]:.1%} and {within_hour[1]:.1%}), "
        f"{refused_share:.3%} refused attempts after the first day ({refused} of {attempts}; "
        f"{counts[most_refused][1]} of {sum(counts[most_refused])} by {most_refused}), critical p99 {critical_s:.1f} s",
    )
    assert volume >= 0.95
    assert refused_share <= 0.001
    assert critical_s <= CRITICAL_MAX_S
