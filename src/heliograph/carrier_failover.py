"""Tries carriers in order with a circuit breaker that all processes share. Every send goes through this module."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from heliograph.carriers.contract import Barred, Carriers, NotReady, Parcel
from heliograph.domain.delivery.circuit import MISSES_TO_OPEN, MOST_MS, Circuit, opened
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.lanes import LANE
from heliograph.domain.delivery.outcome import Asked, Deferred, Outcome, own, word_of
from heliograph.domain.delivery.routing import builtin_simulator
from heliograph.domain.setup.records import CarrierRecord, Channel
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.runtime.deadline import within
from heliograph.storage.store import Store, StoreUnavailable

# Carriers have shorter timeouts; this one only ends sends that hang. The longest SMTP timeout is 10 minutes.
HAND_OVER_S = 660.0
FIRST_SHARE = 0.6  # share of the remaining time for a carrier that is not the last

Choose = Callable[[Collection[str]], CarrierRecord | None]  # (ids of carriers already tried) → next carrier

log = structlog.get_logger()


def first_of(carriers: Sequence[CarrierRecord]) -> Choose:
    return lambda asked: next((carrier for carrier in carriers if carrier.id not in asked), None)


class Handover:
    """Sends messages through carriers, in order, skipping carriers whose circuit is open."""

    def __init__(self, store: Store, carriers: Carriers, clock: Clock) -> None:
        self.carriers = carriers
        self._store = store
        self._clock = clock
        self._misses: Counter[str] = Counter()  # carrier → consecutive failures to reach it
        self._probing: set[str] = set()
        self._changing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def closed_to(self) -> dict[str, int]:
        """Return the carriers that must not be tried now, with the time at which each may be tried again."""
        circuits = self._store.circuits.current
        if not circuits:
            return {}
        now = self._clock.now()
        return {
            id_: max(circuit.until, now)
            for id_, circuit in circuits.items()
            if circuit.is_open(now) or id_ in self._probing
        }

    def reachable(self, channel: Channel, country: str | None) -> list[CarrierRecord]:
        """Return the carriers that can be tried now, in order of preference."""
        closed, asked = self.closed_to(), self._store.setup.current.routes[channel, country]
        return [carrier for carrier in asked if carrier.id not in closed] if closed else asked

    def first_of_current(self, carriers: Sequence[CarrierRecord]) -> Choose:
        """Choose the first untried carrier, with its settings from the current setup.

        With outdated settings, a carrier that was changed meanwhile would be created again.
        """

        def choose(asked: Collection[str]) -> CarrierRecord | None:
            current = {carrier.id: carrier for carrier in self._store.setup.current.carriers if carrier.enabled}
            left = (carrier for carrier in carriers if carrier.id not in asked)
            known = (one if one is builtin_simulator(one.channel) else current.get(one.id) for one in left)
            return next(filter(None, known), None)

        return choose

    async def in_turn(
        self,
        choose: Choose,
        parcel_for: Callable[[CarrierRecord], Parcel],
        *,
        may_wait: bool = True,
        within_s: float | None = None,
    ) -> list[Asked]:
        """Try carriers in order; return every attempt. The last one decides; empty if none was eligible.

        With `may_wait`, the next carrier is tried only if this one is unreachable, so that nothing is sent twice.
        Without it, the next carrier is tried unless this one accepted or refused the message.
        """
        time = asyncio.get_running_loop().time
        ends_at = None if within_s is None else time() + within_s
        asked: list[Asked] = []
        tried: set[str] = set()
        while carrier := choose(tried):
            tried.add(carrier.id)
            began, asking = time(), self.ask(carrier, parcel_for(carrier))
            if ends_at is None:
                outcome = await asking
            else:
                outcome = await _in_time(asking, (ends_at - began) * (FIRST_SHARE if choose(tried) else 1))
            took = time() - began
            asked.append(Asked(carrier=carrier, outcome=outcome, took_ms=int(took * 1000)))
            labels = (carrier.channel, carrier.id, word_of(outcome))
            metrics.handed_over[labels].inc()
            metrics.handover_s[labels].observe(took)
            if not (isinstance(outcome, Deferred) and (outcome.unreachable or not may_wait)):
                break
        return asked

    async def mail(self, content: EmailContent, id_: str = "") -> list[Asked]:
        """Send a mail of the platform itself, without storing it; return every attempt.

        The last attempt decides; empty if no carrier is reachable.
        """
        (address,) = content.to
        message_id = id_ or self._clock.new_id("eml_")
        parcel = Parcel(message_id=message_id, address=address, content=msgspec.json.encode(content), attempt=0)
        return await self.in_turn(self.first_of_current(self.reachable("email", None)), lambda _: parcel)

    async def ask(self, record: CarrierRecord, parcel: Parcel) -> Outcome:
        """Send by one carrier and return the outcome; any exception except Barred and cancellation becomes Deferred."""
        circuit = self._store.circuits.current.get(record.id)
        if circuit:
            self._probing.add(record.id)
        try:
            with within(HAND_OVER_S):
                outcome = await (await self.carriers.get(record)).hand_over(parcel)
            missed = isinstance(outcome, Deferred) and (outcome.unreachable or outcome.uncertain)
        except NotReady as reason:
            log.warning("not ready to hand over", message=parcel.message_id, error=str(reason))
            return Deferred(detail=own("not_ready", str(reason)), held=True, retry_after_ms=MOST_MS)
        except Barred:
            raise
        except asyncio.CancelledError:  # the caller's timeout expired
            self._begin(self._miss(record.id, circuit, "no answer in time"))
            raise
        except Exception as error:
            # Log only the class: the text of an exception may contain an address or a secret.
            name = type(error).__name__
            log.warning("hand-over broke off", message=parcel.message_id, carrier=record.id, error=name)
            outcome, missed = Deferred(detail=own("broke_off", f"the hand-over broke off: {name}")), True
        finally:
            self._probing.discard(record.id)
        if missed:
            await self._miss(record.id, circuit, str(outcome.detail.get("text", "no answer")))
        else:
            self._misses.pop(record.id, None)
            if circuit and await self._change(record.id, circuit, None):
                self._begin(self._wake(LANE[record.channel]))
        return outcome

    def forget(self, id_: str) -> None:
        """Reset the failure count of a carrier that was only tested and not saved."""
        self._misses.pop(id_, None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, lane: str) -> None:
        with suppress(StoreUnavailable):  # deferred messages become due a little later anyway
            await self._store.outbox.wake(lane)

    async def _miss(self, id_: str, circuit: Circuit | None, reason: str) -> None:
        self._misses[id_] += 1
        if circuit or self._misses[id_] >= MISSES_TO_OPEN:
            await self._change(id_, circuit, reason)

    async def _change(self, id_: str, seen: Circuit | None, reason: str | None) -> bool:
        """Open the circuit, or close it if `reason` is None; return False if another task or process changed it."""
        if id_ in self._changing:
            return False
        wanted = None if reason is None else opened(seen, id_, reason, self._clock.now())
        self._changing.add(id_)
        try:
            changed = await self._store.circuits.change(id_, seen, wanted)
        except StoreUnavailable:
            return False  # the next failure or answer tries again
        finally:
            self._changing.discard(id_)
        if changed:
            log.warning("carrier out of reach" if wanted else "carrier is back", carrier=id_)
        return changed


async def _in_time(asking: Awaitable[Outcome], seconds: float) -> Outcome:
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except TimeoutError:
        return Deferred(detail=own("no_answer", f"no answer in {seconds:.0f} seconds"), uncertain=True)
