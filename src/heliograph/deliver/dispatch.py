"""Delivers one claimed message and records its outcome. Start reading the delivery code here."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec
import structlog
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from heliograph.carrier_failover import Handover
from heliograph.carriers.contract import FREE, Barred, Parcel, Passage, left_s
from heliograph.deliver.suppression_recheck import Suppressed
from heliograph.domain.delivery import magic_recipients, routing
from heliograph.domain.delivery.circuit import FIRST_MS, MOST_MS
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.lanes import LANE
from heliograph.domain.delivery.outcome import Accepted, Asked, Deferred, Outcome, Refused, own, word_of
from heliograph.domain.delivery.retry import absent_wait, hold_until, next_attempt
from heliograph.domain.events import BOUNCE_SUPPRESSED, EXPIRED, NEXT_AT, marked
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import HEARTBEAT_MS, LEASE_MS, SECOND_MS
from heliograph.domain.mail.delay import told_delay
from heliograph.domain.phones.opt_out import bars
from heliograph.domain.setup.records import CarrierRecord, Team, UpstreamTemplate
from heliograph.domain.setup.snapshot import Setup
from heliograph.inbound.report_service import take_texts
from heliograph.runtime import metrics, tracing
from heliograph.runtime.clock import Clock
from heliograph.storage.expiry import TOO_LATE
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change, Later
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.templates.policy.meta_status import category_of, unavailable

RECORD_AGAIN_S = 0.5
# Our claims cannot have been taken by another worker for this long after a heartbeat
SURE_S = (LEASE_MS - HEARTBEAT_MS) / SECOND_MS
SPREAD_MS = 1000  # retries after an unreachable carrier are spread over this time
REST_MS = 30_000  # the same for messages deferred without an attempt; a probe needs one, and recovery releases all
NO_CARRIER = "no carrier serves this destination now"
OUT_OF_REACH = "no carrier for this destination can be reached now"
SUSPENDED = "the team was suspended before the message was handed over"
SUPPRESSED = "the address was suppressed before the message was handed over"
OPTED_OUT = "the recipient had opted out before the message was handed over"
TWICE_SILENT = "the carrier fell silent twice: it is not known whether the message was sent, and it is not sent again"

log = structlog.get_logger()


class LeaseLost(Barred):
    """Raised when another worker has claimed the message or its outcome is already recorded."""

    def __init__(self) -> None:
        super().__init__(Refused())


class Dispatch:
    """Delivers claims: final checks, sending through the carriers, and recording the outcome."""

    def __init__(
        self,
        store: Store,
        handover: Handover,
        clock: Clock,
        waited: Callable[[str, float], None] = lambda queue, seconds: None,
    ) -> None:
        """`waited`: called with a queue and the seconds that a send waited for a connection."""
        self._store = store
        self._handover = handover
        self._clock = clock
        self.waited = waited
        self.suppressed = Suppressed(store)
        self.unrecorded: set[int] = set()  # outbox keys of outcomes that the database could not record yet
        self.renewed_at = math.inf  # event-loop time at which the last successful heartbeat began
        self.lost: set[int] = set()  # outbox keys of claims that the last heartbeat did not renew

    async def deliver(self, claim: Claim) -> bool:
        """Deliver a claim in the current task; return True if the outcome was recorded, False if the claim was lost."""
        bind_contextvars(message=claim.message_id)
        if claim.reports:
            self.waited(claim.queue, 0.0)
            await self._hear(claim)
            where, at = (claim.held, claim.message, claim.position), self._clock.of(claim.team)
            return await self._record(claim, Change.reported(*where, claim.reports, LANE[claim.channel], at))
        if claim.channel == "email":
            self.suppressed.enter(claim)
        try:
            change = await self._hand_over(claim)
        except LeaseLost:
            log.warning("not sent: the lease of the message was lost", message=claim.message_id)
            return False
        except Barred as barred:
            change = to_change(claim, None, barred.refusal, self._clock.of(claim.team), self._jitter)
        finally:
            if claim.channel == "email":
                self.suppressed.leave(claim)
        return await self._record(claim, change)

    async def _hear(self, claim: Claim) -> None:
        """Store the reply of a simulated phone before its report is recorded; a repeated reply is recognised."""
        text = claim.reports[0].report.text
        while text and claim.channel != "email":
            carrier = routing.builtin_simulator(claim.channel).id
            try:
                await take_texts(self._store, carrier, claim.channel, [text], team=claim.team)
                return
            except StoreUnavailable:
                await asyncio.sleep(RECORD_AGAIN_S)

    async def _hand_over(self, claim: Claim) -> Change:
        passage = _Passage(self, claim)
        passage.judge(claim.suppressed or (claim.scheduled and await self._was_suppressed(claim)))
        about: dict[str, str | int] = {
            "heliograph_message__id": claim.message_id,
            "heliograph_attempt": claim.attempt + 1,
        }
        with tracing.span(f"hand over {claim.channel}", claim.trace, "PRODUCER", **about) as span:
            asked = await self._handover.in_turn(
                lambda tried: choose_carrier(claim, self._store.setup.current, {*self._handover.closed_to(), *tried}),
                lambda carrier: to_parcel(claim, carrier, self._clock.of(claim.team), passage),
            )
            carrier, outcome = self._said(claim, asked)
            span.note(heliograph_carrier=carrier.id if carrier else "none", heliograph_outcome=word_of(outcome))
        passage.end()
        now = self._clock.of(claim.team)
        if isinstance(outcome, Accepted):
            waited = now - (claim.first_at if claim.attempt else claim.held_at or claim.due_at)
            metrics.to_handover[claim.channel, LANE[claim.channel], claim.priority].observe(waited / SECOND_MS)
        return to_change(claim, carrier, outcome, now, self._jitter, asked)

    async def renew(self, claim: Claim) -> None:
        """Renew the lease of one claim; raises LeaseLost."""
        while True:
            try:
                if await self._store.outbox.heartbeat([claim]):
                    return
                raise LeaseLost
            except StoreUnavailable:
                await asyncio.sleep(RECORD_AGAIN_S)

    def bar(self, claim: Claim, suppressed: bool) -> Refused | None:
        """Return why the message must not be sent any more, or None if it may be sent (contract 16)."""
        if claim.expires_at is not None and self._clock.of(claim.team) >= claim.expires_at:
            return Refused(detail=own("expired", TOO_LATE))
        team = self._store.setup.current.teams_by_ref.get(claim.team)
        if team and team.record.suspended:
            return Refused(detail=own("suspended", SUSPENDED))
        if claim.scheduled and (found := self._unavailable(claim, team)):
            why = f": {found.reason}" if found.reason else ""
            return Refused(detail=own("template_unavailable", f"Meta had {found.status} the template{why}"))
        if not suppressed:
            return None
        return Refused(
            detail=own("suppressed", SUPPRESSED) if claim.channel == "email" else own("opted_out", OPTED_OUT)
        )

    async def _was_suppressed(self, claim: Claim) -> bool:
        """Return whether the recipient is suppressed (also as an erased address) or, for a phone, opted out."""
        store = self._store
        while True:
            try:
                if claim.channel == "email":
                    return await store.suppressions.get(claim.team, claim.address) is not None
                found = await store.opt_outs.find(claim.team, claim.address)
                category = self._category(claim) if found else None
                return any(one.channel == claim.channel and bars(one.reason, category) for one in found)
            except StoreUnavailable:
                await asyncio.sleep(RECORD_AGAIN_S)

    def _unavailable(self, claim: Claim, team: Team | None) -> UpstreamTemplate | None:
        """Return Meta's status of a scheduled message's template if Meta rejects the template now, else None."""
        if not (claim.channel == "whatsapp" and team and team.upstream):
            return None
        return unavailable(team, *_upstream_name(claim))

    def _category(self, claim: Claim) -> str | None:
        team = self._store.setup.current.teams_by_ref.get(claim.team)
        return category_of(team, *_upstream_name(claim)) if team and claim.channel == "whatsapp" else None

    def _said(self, claim: Claim, asked: Sequence[Asked]) -> tuple[CarrierRecord | None, Outcome]:
        """Return the deciding carrier, if any, and its outcome, with the answers of earlier carriers as `missed`."""
        if not asked:
            return None, _nobody(self._closed_to(claim), self._clock.now(), self._clock.below(REST_MS))
        *missed, last = asked
        outcome = last.outcome
        if missed:
            said = [{"carrier": one.carrier.id, **one.outcome.detail} for one in missed]
            outcome = replace(outcome, detail={**outcome.detail, "missed": said})
        if isinstance(outcome, Deferred) and outcome.unreachable:
            now = self._clock.now()
            closed = {one.carrier.id: now + FIRST_MS for one in asked} | self._closed_to(claim)
            return None, replace(outcome, retry_after_ms=_until_open(closed, now) + self._clock.below(SPREAD_MS))
        return last.carrier, outcome

    def _closed_to(self, claim: Claim) -> dict[str, int]:
        """Return the carriers of this route that must not be tried now, with the time when each may be retried."""
        carriers = self._store.setup.current.routes[claim.channel, claim.country]
        closed = self._handover.closed_to()
        return {carrier.id: closed[carrier.id] for carrier in carriers if carrier.id in closed}

    async def _record(self, claim: Claim, change: Change) -> bool:
        """Record the outcome, retrying until stored or the claim is lost: a sent message must not be sent again."""
        try:
            while True:
                try:
                    done = await self._store.outbox.record(change)
                    if change.accepted and not done:
                        log.warning("sent after its lease was lost: it may be sent twice", message=claim.message_id)
                    return done
                except StoreUnavailable:
                    self.unrecorded.add(claim.key)
                    await asyncio.sleep(RECORD_AGAIN_S)
        except Exception as error:
            # The lease expires and the claim stays counted, so the message is quarantined instead of looping.
            log.error("outcome not recorded", message=claim.message_id, error=type(error).__name__)
            return False
        finally:
            self.unrecorded.discard(claim.key)

    def _jitter(self) -> float:
        return self._clock.below(2001) / 1000 - 1


class _Passage(Passage):
    """Hooks of one claim: queue time, and a last check whether to send once the connection is open."""

    def __init__(self, dispatch: Dispatch, claim: Claim) -> None:
        self._dispatch = dispatch
        self._claim = claim
        self._noted = False

    def waited(self, seconds: float) -> None:
        self._noted = True
        self._dispatch.waited(self._claim.queue, seconds)

    def end(self) -> None:
        if not self._noted:
            self.waited(0.0)

    async def admit(self) -> None:
        claim, dispatch = self._claim, self._dispatch
        in_doubt = asyncio.get_running_loop().time() - dispatch.renewed_at > SURE_S
        if claim.reclaimed or in_doubt or claim.key in dispatch.lost:  # another worker may have sent the message
            await dispatch.renew(claim)
        self.judge(self._claim.channel == "email" and await self._dispatch.suppressed.has(self._claim))

    def judge(self, suppressed: bool) -> None:
        if bar := self._dispatch.bar(self._claim, suppressed):
            raise Barred(bar)


def _upstream_name(claim: Claim) -> tuple[str, str]:
    content = msgspec.json.decode(claim.content, type=WhatsappContent)
    return content.template, content.language


def choose_carrier(claim: Claim, setup: Setup, closed: Collection[str] = ()) -> CarrierRecord | None:
    team = setup.teams_by_ref.get(claim.team)
    if claim.caught or magic_recipients.is_magic(claim.address) or (team and team.simulated):
        return routing.builtin_simulator(claim.channel)
    asked = setup.routes[claim.channel, claim.country]
    if claim.uncertain:  # another carrier might send a duplicate
        asked = [carrier for carrier in asked if carrier.id == claim.uncertain] or asked
    return routing.choose(asked, claim.deferrals, closed)


def _nobody(closed: Mapping[str, int], now: int, spread_ms: int) -> Outcome:
    """Defer a message that no carrier can take now, until the first circuit may be tried."""
    if not closed:
        return Deferred(detail=own("no_carrier", NO_CARRIER), held=True, retry_after_ms=MOST_MS)
    wait_ms = _until_open(closed, now) + spread_ms
    return Deferred(detail=own("out_of_reach", OUT_OF_REACH), held=True, retry_after_ms=wait_ms)


def _until_open(closed: Mapping[str, int], now: int) -> int:
    """Return the ms until a carrier may be tried; FIRST_MS while one is probed or its circuit is not yet open."""
    return min((until - now for until in closed.values() if until > now), default=FIRST_MS)


def to_parcel(claim: Claim, carrier: CarrierRecord, now: int, passage: Passage = FREE) -> Parcel:
    return Parcel(
        message_id=claim.message_id,
        position=claim.position,
        address=claim.address,
        given=claim.given,
        content=claim.content,
        attempt=claim.attempt,
        country=claim.country,
        uncertain=claim.uncertain == carrier.id,
        left_s=None if claim.expires_at is None else left_s(claim.expires_at, now),
        priority=claim.priority,
        passage=passage,
    )


def to_change(
    claim: Claim,
    carrier: CarrierRecord | None,
    outcome: Outcome,
    now: int,
    jitter: Callable[[], float],
    asked: Sequence[Asked] = (),
) -> Change:
    """Return the effect of a carrier's answer on the recipient, the account and the outbox."""
    if isinstance(outcome, Refused) and outcome.absent and (wait := absent_wait(claim.absent_at, now)):
        # A missing domain may be a DNS error
        outcome = Deferred(detail=outcome.detail, retry_after_ms=wait, absent=True)
    if carrier and carrier.kind == "simulator":
        outcome = replace(outcome, detail=marked(outcome.detail))
    change = partial(
        Change,
        at=now,
        message=claim.message,
        position=claim.position,
        claim=claim.held,
        wanted=None,
        detail=outcome.detail,
        carrier=carrier.id if carrier else None,
        asked=asked,
    )
    match outcome:
        case Accepted(delivered=delivered, carrier_id=carrier_id, parts=parts, reports=reports):
            return change(
                wanted="delivered" if delivered else "sent",
                accepted=True,
                carrier_id=carrier_id,
                parts=parts,
                reports=reports,
                lane=LANE[claim.channel],
            )
        case Refused(bounced=True):
            return change(wanted="bounced", suppress="bounce")
        case Refused(by_inbox=True):
            return change(wanted="bounced", detail=outcome.detail | {BOUNCE_SUPPRESSED: False})
        case Refused():
            return change(wanted="failed")
        case Deferred(uncertain=True) if claim.uncertain:
            return change(wanted="failed", detail=outcome.detail | own("uncertain", TWICE_SILENT))
        case Deferred(unreachable=True) | Deferred(held=True):
            return _hold(claim, change, outcome, now)
        case Deferred():
            return _try_again(claim, carrier, change, outcome, now, jitter())


def _try_again(
    claim: Claim,
    carrier: CarrierRecord | None,
    change: Callable[..., Change],
    outcome: Deferred,
    now: int,
    spread: float,
) -> Change:
    attempt, first_at = claim.attempt + 1, claim.first_at if claim.attempt else now
    due_at = next_attempt(claim.channel, attempt, first_at, now, spread, outcome.retry_after_ms)
    if due_at is None:
        return change(wanted="failed", detail=outcome.detail | {EXPIRED: True})
    due_at = min(due_at, claim.expires_at or due_at)
    again = Later(
        due_at=due_at,
        attempt=attempt,
        deferrals=_count(claim.deferrals, carrier),
        uncertain=carrier.id if carrier and outcome.uncertain else claim.uncertain,
        absent_at=(claim.absent_at or now) if outcome.absent else None,
        first_at=first_at,
    )
    delay = told_delay(first_at, due_at, first_at, claim.expires_at) if outcome.delayed else None
    return change(again=again, delay=delay, detail=outcome.detail | {NEXT_AT: timestamp(due_at)})


def _hold(claim: Claim, change: Callable[..., Change], outcome: Deferred, now: int) -> Change:
    """Defer for a reason on our side: not counted as an attempt, and sent before messages that came later."""
    waits = claim.held_at is not None
    first_at = claim.first_at if claim.attempt or waits else now
    # Without a retry time it keeps its position: it was claimed before the carrier had capacity.
    until = now + outcome.retry_after_ms if outcome.retry_after_ms else claim.due_at
    due_at = hold_until(claim.channel, first_at, now, until)
    if due_at is None:
        own_reason = {"reason": "out_of_reach"} if outcome.unreachable else {}
        return change(carrier=None, wanted="failed", detail=own_reason | outcome.detail | {EXPIRED: True})
    due_at = min(due_at, claim.expires_at or due_at)
    again = Later(
        due_at=due_at,
        attempt=claim.attempt,
        deferrals=claim.deferrals,
        uncertain=claim.uncertain,
        absent_at=claim.absent_at,
        first_at=first_at,
        held_at=claim.held_at if waits else claim.due_at,
    )
    detail = outcome.detail | {NEXT_AT: timestamp(max(due_at, now))}
    return change(carrier=None, again=again, detail=detail, quiet=waits)


def _count(deferrals: Mapping[str, int], carrier: CarrierRecord | None) -> dict[str, int]:
    if carrier is None:
        return dict(deferrals)
    return {**deferrals, carrier.id: deferrals.get(carrier.id, 0) + 1}
