"""Tries carriers in order with a circuit breaker that all processes share. Every send goes through this module."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from heliograph.carriers.contract import Carriers, NotReady, OutboundMessage, SendCancelled
from heliograph.domain.delivery.circuit import FAILURES_TO_OPEN, WAIT_MAX_MS, Circuit, open_circuit
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL
from heliograph.domain.delivery.outcome import CarrierAttempt, Deferred, Outcome, local_failure, outcome_label
from heliograph.domain.delivery.routing import builtin_simulator
from heliograph.domain.setup.records import CarrierRecord, Channel
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.runtime.deadline import within
from heliograph.storage.store import Store, StoreUnavailable

# Carriers have shorter timeouts; this one only ends sends that hang. The longest SMTP timeout is 10 minutes.
SEND_TIMEOUT_S = 660.0
TIME_SHARE_UNLESS_LAST = 0.6  # share of the remaining time that each carrier except the last one gets

ChooseCarrier = Callable[[Collection[str]], CarrierRecord | None]  # (ids of carriers already tried) → next carrier

log = structlog.get_logger()


def choose_in_order(carriers: Sequence[CarrierRecord]) -> ChooseCarrier:
    return lambda tried: next((carrier for carrier in carriers if carrier.id not in tried), None)


class CarrierFailover:
    """Sends messages through carriers, in order, skipping carriers whose circuit is open."""

    def __init__(self, store: Store, carriers: Carriers, clock: Clock) -> None:
        self.carriers = carriers
        self._store = store
        self._clock = clock
        self._failure_counts: Counter[str] = Counter()  # carrier → consecutive failures to reach it
        self._probing: set[str] = set()  # carriers with an open circuit to which a message is being sent as a probe
        self._updating_circuits: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open_circuits(self) -> dict[str, int]:
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

    def eligible_carriers(self, channel: Channel, country: str | None) -> list[CarrierRecord]:
        """Return the carriers that can be tried now, in order of preference."""
        open_circuits, route = self.open_circuits(), self._store.setup.current.routes[channel, country]
        return [carrier for carrier in route if carrier.id not in open_circuits] if open_circuits else route

    def choose_in_order_from_setup(self, carriers: Sequence[CarrierRecord]) -> ChooseCarrier:
        """Choose the first untried carrier, with its settings from the current setup.

        With outdated settings, a carrier that was changed meanwhile would be built again with its old settings.
        """

        def choose(tried: Collection[str]) -> CarrierRecord | None:
            current = {carrier.id: carrier for carrier in self._store.setup.current.carriers if carrier.enabled}
            untried = (carrier for carrier in carriers if carrier.id not in tried)
            current_records = (
                carrier if carrier is builtin_simulator(carrier.channel) else current.get(carrier.id)
                for carrier in untried
            )
            return next(filter(None, current_records), None)

        return choose

    async def send_with_failover(
        self,
        choose: ChooseCarrier,
        message_for: Callable[[CarrierRecord], OutboundMessage],
        *,
        stop_unless_unreachable: bool = True,
        timeout_s: float | None = None,
    ) -> list[CarrierAttempt]:
        """Try carriers in order; return every attempt, of which the last decides; empty if no carrier was eligible.

        With `stop_unless_unreachable`, the next carrier is tried only if this one is unreachable, so that nothing is
        sent twice. Without it, the next carrier is tried unless this one accepted or refused the message.
        """
        loop_time = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else loop_time() + timeout_s
        attempts: list[CarrierAttempt] = []
        tried: set[str] = set()
        carrier, is_overflow = choose(tried), False
        while carrier:
            tried.add(carrier.id)
            started_at, sending = loop_time(), self.send(carrier, message_for(carrier))
            if deadline is None:
                outcome = await sending
            else:
                outcome = await _with_timeout(
                    sending, (deadline - started_at) * (TIME_SHARE_UNLESS_LAST if choose(tried) else 1)
                )
            duration_s = loop_time() - started_at
            attempts.append(CarrierAttempt(carrier=carrier, outcome=outcome, duration_ms=int(duration_s * 1000)))
            labels = (carrier.channel, carrier.id, outcome_label(outcome))
            metrics.handovers[labels].inc()
            metrics.handover_duration_s[labels].observe(duration_s)
            if not isinstance(outcome, Deferred):
                break
            if outcome.overflow:
                carrier, is_overflow = self._overflow_carrier(outcome.overflow, tried), True
            elif is_overflow:  # the overflow carrier failed too: the message waits for its own carrier
                break
            elif outcome.unreachable or not stop_unless_unreachable:
                carrier = choose(tried)
            else:
                break
        return attempts

    def _overflow_carrier(self, id_: str, tried: Collection[str]) -> CarrierRecord | None:
        """Return the overflow carrier of a pool; None if it cannot be tried now."""
        carrier = self._store.setup.current.records.get(("carrier", id_))
        if not (isinstance(carrier, CarrierRecord) and carrier.enabled and carrier.channel == "email"):
            return None
        return None if id_ in tried or id_ in self.open_circuits() else carrier

    async def send_system_mail(self, content: EmailContent, id_: str = "") -> list[CarrierAttempt]:
        """Send a mail of the platform itself, without storing it; return every attempt.

        The last attempt decides; empty if no carrier is reachable.
        """
        (address,) = content.to
        message = OutboundMessage(
            message_id=id_ or self._clock.new_id("eml_"),
            address=address,
            content=msgspec.json.encode(content),
            attempt=0,
            priority="critical",  # it is not stored, so it cannot wait
        )
        return await self.send_with_failover(
            self.choose_in_order_from_setup(self.eligible_carriers("email", None)), lambda _: message
        )

    async def send(self, record: CarrierRecord, message: OutboundMessage) -> Outcome:
        """Send with one carrier. Exceptions become Deferred outcomes, except SendCancelled and cancellation."""
        circuit = self._store.circuits.current.get(record.id)
        if circuit:
            self._probing.add(record.id)
        try:
            with within(SEND_TIMEOUT_S):
                outcome = await (await self.carriers.get(record)).send_message(message)
            failed = isinstance(outcome, Deferred) and (outcome.unreachable or outcome.uncertain)
        except NotReady as reason:
            log.warning("not ready to send", message=message.message_id, error=str(reason))
            return Deferred(detail=local_failure("not_ready", str(reason)), held=True, retry_after_ms=WAIT_MAX_MS)
        except SendCancelled:
            raise
        except asyncio.CancelledError:  # the caller's timeout expired
            self._start_task(self._record_failure(record.id, circuit, "no answer in time"))
            raise
        except Exception as error:
            # Log only the class: the text of an exception may contain an address or a secret.
            name = type(error).__name__
            log.warning("send failed with an exception", message=message.message_id, carrier=record.id, error=name)
            outcome, failed = Deferred(detail=local_failure("broke_off", f"sending failed: {name}")), True
        finally:
            self._probing.discard(record.id)
        if failed:
            await self._record_failure(record.id, circuit, str(outcome.detail.get("text", "no answer")))
        else:
            self._failure_counts.pop(record.id, None)
            if circuit and await self._update_circuit(record.id, circuit, None):
                self._start_task(self._wake_lane(LANE_BY_CHANNEL[record.channel]))
        return outcome

    def reset_failures(self, carrier_id: str) -> None:
        """Reset the failure count of a carrier that was only tested and not saved."""
        self._failure_counts.pop(carrier_id, None)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake_lane(self, lane: str) -> None:
        with suppress(StoreUnavailable):  # deferred messages become due a little later anyway
            await self._store.outbox.wake_held(lane)

    async def _record_failure(self, carrier_id: str, circuit: Circuit | None, reason: str) -> None:
        self._failure_counts[carrier_id] += 1
        if circuit or self._failure_counts[carrier_id] >= FAILURES_TO_OPEN:
            await self._update_circuit(carrier_id, circuit, reason)

    async def _update_circuit(self, carrier_id: str, expected: Circuit | None, reason: str | None) -> bool:
        """Open the circuit, or close it if `reason` is None; return False if another task or process changed it."""
        if carrier_id in self._updating_circuits:
            return False
        new_circuit = None if reason is None else open_circuit(expected, carrier_id, reason, self._clock.now())
        self._updating_circuits.add(carrier_id)
        try:
            changed = await self._store.circuits.replace(carrier_id, expected, new_circuit)
        except StoreUnavailable:
            return False  # the next failure or response updates the circuit again
        finally:
            self._updating_circuits.discard(carrier_id)
        if changed:
            log.warning("carrier unreachable" if new_circuit else "carrier reachable again", carrier=carrier_id)
        return changed


async def _with_timeout(sending: Awaitable[Outcome], seconds: float) -> Outcome:
    try:
        async with asyncio.timeout(seconds):
            return await sending
    except TimeoutError:
        return Deferred(detail=local_failure("no_answer", f"no answer in {seconds:.0f} seconds"), uncertain=True)
