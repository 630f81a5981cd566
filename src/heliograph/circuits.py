"""Hands parcels to carriers and learns which of them cannot be reached, for this process and all others."""

import asyncio
from collections import Counter

import structlog

from heliograph.channels.carrier import Carriers, NotReady, Parcel
from heliograph.clock import Clock
from heliograph.rules.circuit import MISSES_TO_OPEN, Circuit, opened
from heliograph.rules.outcome import Deferred, Outcome
from heliograph.rules.setup import records
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store, StoreUnavailable

# Carriers have shorter limits of their own; this one only ends what hangs. SMTP's longest wait is 10 minutes.
HAND_OVER_S = 660.0

log = structlog.get_logger()


class Circuits:
    def __init__(self, store: Store, carriers: Carriers, clock: Clock) -> None:
        self.carriers = carriers
        self._store = store
        self._clock = clock
        self._misses: Counter[str] = Counter()  # in a row, by carrier
        self._probing: set[str] = set()
        self._changing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def closed_to(self) -> dict[str, int]:
        """The carriers that nobody may ask now, with the time when one may again."""
        now = self._clock.now()
        return {
            id_: max(circuit.until, now)
            for id_, circuit in self._store.setup.current.circuits.items()
            if circuit.is_open(now) or id_ in self._probing
        }

    async def hand_over(self, record: records.CarrierRecord, parcel: Parcel) -> Outcome:
        """What the carrier says; whatever breaks off is Deferred."""
        circuit = self._store.setup.current.circuits.get(record.id)
        if circuit:
            self._probing.add(record.id)
        try:
            async with asyncio.timeout(HAND_OVER_S):
                outcome = await (await self.carriers.get(record)).hand_over(parcel)
            missed = isinstance(outcome, Deferred) and (outcome.unreachable or outcome.uncertain)
        except NotReady as reason:
            log.warning("not ready to hand over", message=parcel.message_id, error=str(reason))
            return Deferred(detail={"text": str(reason)})
        except asyncio.CancelledError:  # the caller could not wait any longer
            changing = asyncio.create_task(self._miss(record.id, circuit, "no answer in time"))
            self._tasks.add(changing)
            changing.add_done_callback(self._tasks.discard)
            raise
        except Exception as error:
            # Only the class: an exception's text may hold an address or a secret.
            name = type(error).__name__
            log.warning("hand-over broke off", message=parcel.message_id, carrier=record.id, error=name)
            outcome, missed = Deferred(detail={"text": f"the hand-over broke off: {name}"}), True
        finally:
            self._probing.discard(record.id)
        if missed:
            await self._miss(record.id, circuit, str(outcome.detail.get("text", "no answer")))
        else:
            self._misses.pop(record.id, None)
            if circuit:
                await self._change(record.id, circuit, None)
        return outcome

    async def _miss(self, id_: str, circuit: Circuit | None, reason: str) -> None:
        self._misses[id_] += 1
        if circuit or self._misses[id_] >= MISSES_TO_OPEN:
            await self._change(id_, circuit, reason)

    async def _change(self, id_: str, seen: Circuit | None, reason: str | None) -> None:
        """Open the circuit, or close it when there is no reason; only if nobody else changed it since."""
        if id_ in self._changing:
            return

        def decide(current: Setup, _: int) -> SetupChange:
            if current.circuits.get(id_) != seen:
                return SetupChange()
            circuit = opened(seen, id_, reason, self._clock.now()) if reason is not None else None
            return SetupChange(rows=[to_row("circuit", id_, circuit, None)])

        self._changing.add(id_)
        try:
            await self._store.setup.change(decide)
            log.warning("carrier out of reach" if reason is not None else "carrier is back", carrier=id_)
        except StoreUnavailable:
            pass  # the next miss or answer tries again
        finally:
            self._changing.discard(id_)
