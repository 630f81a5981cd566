"""One claimed message to one recorded outcome: the page to read first."""

import asyncio
from collections.abc import Mapping

import structlog
from msgspec.structs import replace

from heliograph.channels.carrier import Carriers, Parcel
from heliograph.clock import Clock
from heliograph.rules import magic, routing
from heliograph.rules.lanes import LANE
from heliograph.rules.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.rules.retry import next_attempt
from heliograph.rules.setup import Setup
from heliograph.rules.team import Carrier
from heliograph.storage.store import Change, Claim, Store, StoreUnavailable

# Carriers have shorter limits of their own; this one only ends what hangs. SMTP's longest wait is 10 minutes.
HAND_OVER_S = 660.0
RECORD_AGAIN_S = 0.5
NO_CARRIER = Deferred(detail={"text": "no carrier serves this destination now"})

log = structlog.get_logger()


class Dispatch:
    def __init__(self, store: Store, carriers: Carriers, clock: Clock) -> None:
        self._store = store
        self._carriers = carriers
        self._clock = clock
        self.unrecorded: set[int] = set()  # outcomes that the store could not take yet, by outbox key

    async def deliver(self, claim: Claim) -> bool:
        """True when the outcome is recorded; False when the claim was no longer ours."""
        if claim.promises:
            return await self._record(claim, keep_promise(claim, self._clock.now()))
        carrier = choose_carrier(claim, self._store.setup)
        outcome = await self._hand_over(claim, carrier) if carrier else NO_CARRIER
        return await self._record(claim, to_change(claim, carrier, outcome, self._clock.now(), self._jitter()))

    async def _hand_over(self, claim: Claim, carrier: Carrier) -> Outcome:
        parcel = Parcel(
            message_id=claim.message_id,
            position=claim.position,
            address=claim.address,
            given=claim.given,
            content=claim.content,
            attempt=claim.attempt,
            country=claim.country,
        )
        try:
            async with asyncio.timeout(HAND_OVER_S):
                return await (await self._carriers.get(carrier)).hand_over(parcel)
        except Exception as error:
            # Only the class: an exception's text may hold an address or a secret.
            name = type(error).__name__
            log.warning("hand-over broke off", message=claim.message_id, carrier=carrier.id, error=name)
            return Deferred(detail={"text": f"the hand-over broke off: {name}"})

    async def _record(self, claim: Claim, change: Change) -> bool:
        """Until the store takes it or says that the claim is lost: what was sent must not be sent again."""
        try:
            while True:
                try:
                    return await self._store.record(change)
                except StoreUnavailable:
                    self.unrecorded.add(claim.key)
                    await asyncio.sleep(RECORD_AGAIN_S)
        except Exception as error:
            # The lease runs out and the claim stays counted, so this ends in quarantine rather than in a loop.
            log.error("outcome not recorded", message=claim.message_id, error=type(error).__name__)
            return False
        finally:
            self.unrecorded.discard(claim.key)

    def _jitter(self) -> float:
        return self._clock.below(2001) / 1000 - 1


def choose_carrier(claim: Claim, setup: Setup) -> Carrier | None:
    if magic.is_magic(claim.address):
        return routing.builtin_simulator(claim.channel)
    asked = routing.candidates(claim.channel, claim.country, setup.carriers)
    return routing.choose(asked, claim.deferrals, open_circuits=())


def keep_promise(claim: Claim, now: int) -> Change:
    """A simulator's report has become due; those after it wait for their own time."""
    (_, report), *rest = claim.promises
    return Change(
        at=now,
        message=claim.message,
        position=claim.position,
        claim=(claim.key, claim.epoch),
        wanted=report.status,
        detail=report.detail,
        suppress=report.suppress,
        promises=rest,
        lane=LANE[claim.channel],
    )


def to_change(claim: Claim, carrier: Carrier | None, outcome: Outcome, now: int, jitter: float) -> Change:
    """What a carrier's answer means for the recipient, the money and the outbox."""
    change = Change(
        at=now,
        message=claim.message,
        position=claim.position,
        claim=(claim.key, claim.epoch),
        wanted=None,
        detail=outcome.detail,
        carrier=carrier.id if carrier else None,
    )
    match outcome:
        case Accepted(delivered=delivered, carrier_id=carrier_id, reports=reports):
            state, lane = "delivered" if delivered else "sent", LANE[claim.channel]
            return replace(change, wanted=state, accepted=True, carrier_id=carrier_id, promises=reports, lane=lane)
        case Refused(bounced=True):
            return replace(change, wanted="bounced", suppress="bounce")
        case Refused():
            return replace(change, wanted="failed")
        case Deferred(retry_after_ms=wish):
            attempt, first_at = claim.attempt + 1, claim.first_at if claim.attempt else now
            due_at = next_attempt(claim.channel, attempt, first_at, now, jitter, wish)
            if due_at is None:
                return replace(change, wanted="failed")
            return replace(change, again=(due_at, attempt, _count(claim.deferrals, carrier)))


def _count(deferrals: Mapping[str, int], carrier: Carrier | None) -> dict[str, int]:
    if carrier is None:
        return dict(deferrals)
    return {**deferrals, carrier.id: deferrals.get(carrier.id, 0) + 1}
