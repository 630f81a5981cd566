"""Delivers a claimed message and records its outcome. The delivery code is best read from here."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec
import structlog
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import NO_HOOKS, OutboundMessage, SendCancelled, SendHooks, seconds_until
from heliograph.deliver.suppression_recheck import SuppressionRecheck
from heliograph.domain.delivery import magic_recipients, routing
from heliograph.domain.delivery.circuit import FIRST_WAIT_MS, WAIT_MAX_MS
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierAttempt,
    Deferred,
    Outcome,
    Refused,
    local_failure,
    outcome_label,
)
from heliograph.domain.delivery.retry import absent_confirmation_wait, hold_until, next_attempt
from heliograph.domain.events import BOUNCE_SUPPRESSED, EXPIRED, NEXT_AT, mark_simulated
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import HEARTBEAT_MS, LEASE_MS, SECOND_MS
from heliograph.domain.mail.delay import delay_data
from heliograph.domain.phones.opt_out import blocks_message
from heliograph.domain.setup.records import CarrierRecord, Team, UpstreamTemplate
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.setup.source_options import DEFAULT_POOL
from heliograph.inbound.report_service import store_inbound_texts
from heliograph.runtime import metrics, tracing
from heliograph.runtime.clock import Clock
from heliograph.storage.expiry import EXPIRED_TEXT
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.templates.policy.meta_status import category_of, find_unavailable

DATABASE_RETRY_S = 0.5
# for this long after a heartbeat, no other worker can have claimed our messages
LEASE_CERTAIN_S = (LEASE_MS - HEARTBEAT_MS) / SECOND_MS
UNREACHABLE_SPREAD_MS = 1000  # retries after an unreachable carrier are spread over this time
# Retries of messages that were not attempted because the circuit was open are spread over this time. One message
# probes the carrier; if the carrier responds, the other messages are released at once.
UNATTEMPTED_SPREAD_MS = 30_000
NO_CARRIER_TEXT = "no carrier serves this destination now"
OUT_OF_REACH_TEXT = "no carrier for this destination is reachable now"
SUSPENDED_TEXT = "the team was suspended before the message was sent"
SUPPRESSED_TEXT = "the address was suppressed before the message was sent"
UNSUBSCRIBED_TEXT = "the recipient had unsubscribed from the category before the message was sent"
OPTED_OUT_TEXT = "the recipient had opted out before the message was sent"
BODY_UNAVAILABLE = Deferred(
    detail=local_failure("not_ready", "the body cannot be read from the object store now"),
    held=True,
    retry_after_ms=WAIT_MAX_MS,
)
NO_RESPONSE_TWICE_TEXT = "the carrier did not respond twice: the message may have been sent, so it is not sent again"

log = structlog.get_logger()


class LeaseLost(SendCancelled):
    """Raised when another worker has claimed the message, or its outcome is already recorded."""

    def __init__(self) -> None:
        super().__init__(Refused())


class Dispatch:
    """Delivers claims: final checks, sending through the carriers, and recording the outcome."""

    def __init__(
        self,
        store: Store,
        failover: CarrierFailover,
        clock: Clock,
        on_queued: Callable[[str, float], None] = lambda queue, seconds: None,
    ) -> None:
        """`on_queued`: called with a queue and the seconds that a send waited for a connection."""
        self._store = store
        self._failover = failover
        self._clock = clock
        self.on_queued = on_queued
        self.suppression_recheck = SuppressionRecheck(store)
        self.unrecorded_keys: set[int] = set()  # outbox keys of messages whose outcome could not be stored yet
        self.renewed_at = math.inf  # event-loop time at which the last successful heartbeat began
        self.lost_keys: set[int] = set()  # outbox keys of claims that the last heartbeat did not renew

    async def deliver(self, claim: Claim) -> bool:
        """Deliver a claimed message; return True if the outcome was recorded, False if the claim was lost."""
        bind_contextvars(message=claim.message_id)
        if claim.reports:
            self.on_queued(claim.queue, 0.0)
            await self._store_simulated_reply(claim)
            target, now = (claim.token, claim.message, claim.position), self._clock.team_now(claim.team)
            return await self._record(
                claim, RecipientUpdate.from_reports(*target, claim.reports, LANE_BY_CHANNEL[claim.channel], now)
            )
        if claim.channel == "email":
            self.suppression_recheck.add(claim)
        try:
            update = await self._send(claim)
        except LeaseLost:
            log.warning("not sent: the lease of the message was lost", message=claim.message_id)
            return False
        except SendCancelled as cancelled:
            update = to_update(claim, None, cancelled.refusal, self._clock.team_now(claim.team), self._jitter)
        finally:
            if claim.channel == "email":
                self.suppression_recheck.remove(claim)
        return await self._record(claim, update)

    async def _store_simulated_reply(self, claim: Claim) -> None:
        """Store the simulated phone's reply, if the due report has one, before the report is recorded."""
        text = claim.reports[0].report.text
        while text and claim.channel != "email":
            carrier = routing.builtin_simulator(claim.channel).id
            try:
                await store_inbound_texts(self._store, carrier, claim.channel, [text], team=claim.team)
                return
            except StoreUnavailable:
                await asyncio.sleep(DATABASE_RETRY_S)

    async def _send(self, claim: Claim) -> RecipientUpdate:
        hooks, team = _ClaimHooks(self, claim), self._store.setup.current.teams_by_ref.get(claim.team)
        pool = team.record.pool if team else DEFAULT_POOL
        try:
            content = await self._store.contents.load_bytes(claim.content)
        except StoreUnavailable as error:
            log.warning("cannot read the body", message=claim.message_id, error=str(error))
            return to_update(claim, None, BODY_UNAVAILABLE, self._clock.team_now(claim.team), self._jitter)
        hooks.cancel_if_needed(claim.suppressed or (claim.scheduled and await self._is_suppressed_now(claim)))
        attributes: dict[str, str | int] = {
            "heliograph_message__id": claim.message_id,
            "heliograph_attempt": claim.attempt + 1,
        }
        with tracing.begin_span(f"send {claim.channel}", claim.trace, "PRODUCER", **attributes) as span:
            attempts = await self._failover.send_with_failover(
                lambda tried: choose_carrier(
                    claim, self._store.setup.current, {*self._failover.open_circuits(), *tried}
                ),
                lambda carrier: to_outbound_message(
                    claim, content, carrier, self._clock.team_now(claim.team), hooks, pool
                ),
            )
            carrier, outcome = self._deciding_attempt(claim, attempts)
            span.set_attributes(
                heliograph_carrier=carrier.id if carrier else "none", heliograph_outcome=outcome_label(outcome)
            )
        hooks.record_no_wait()
        now = self._clock.team_now(claim.team)
        if isinstance(outcome, Accepted):
            latency_ms = now - (claim.first_at if claim.attempt else claim.held_at or claim.due_at)
            metrics.time_to_handover_s[claim.channel, LANE_BY_CHANNEL[claim.channel], claim.priority].observe(
                latency_ms / SECOND_MS
            )
        return to_update(claim, carrier, outcome, now, self._jitter, attempts)

    async def renew_lease(self, claim: Claim) -> None:
        """Renew the lease of one claim; raises LeaseLost."""
        while True:
            try:
                if await self._store.outbox.renew([claim]):
                    return
                raise LeaseLost
            except StoreUnavailable:
                await asyncio.sleep(DATABASE_RETRY_S)

    def cancel_reason(self, claim: Claim, suppressed: bool) -> Refused | None:
        """Return why the message must not be sent any more (contract 16); None if it may be sent."""
        if claim.expires_at is not None and self._clock.team_now(claim.team) >= claim.expires_at:
            return Refused(detail=local_failure("expired", EXPIRED_TEXT))
        team = self._store.setup.current.teams_by_ref.get(claim.team)
        if team and team.record.suspended:
            return Refused(detail=local_failure("suspended", SUSPENDED_TEXT))
        if claim.scheduled and (template := self._unavailable_template(claim, team)):
            reason = f": {template.reason}" if template.reason else ""
            return Refused(
                detail=local_failure("template_unavailable", f"Meta had {template.status} the template{reason}")
            )
        if not suppressed:
            return Refused(detail=local_failure("unsubscribed", UNSUBSCRIBED_TEXT)) if claim.unsubscribed else None
        return Refused(
            detail=local_failure("suppressed", SUPPRESSED_TEXT)
            if claim.channel == "email"
            else local_failure("opted_out", OPTED_OUT_TEXT)
        )

    async def _is_suppressed_now(self, claim: Claim) -> bool:
        """Return whether an email recipient is suppressed (also if erased), or a phone recipient has opted out."""
        store = self._store
        while True:
            try:
                if claim.channel == "email":
                    return await store.suppressions.get(claim.team, claim.address) is not None
                opt_outs = await store.opt_outs.find(claim.team, claim.address)
                category = self._template_category(claim) if opt_outs else None
                return any(
                    opt_out.channel == claim.channel and blocks_message(opt_out.reason, category)
                    for opt_out in opt_outs
                )
            except StoreUnavailable:
                await asyncio.sleep(DATABASE_RETRY_S)

    def _unavailable_template(self, claim: Claim, team: Team | None) -> UpstreamTemplate | None:
        """Return Meta's status of a scheduled message's template if it cannot be sent now; None if it can."""
        if not (claim.channel == "whatsapp" and team and team.upstream):
            return None
        return find_unavailable(team, *_template_key(claim))

    def _template_category(self, claim: Claim) -> str | None:
        team = self._store.setup.current.teams_by_ref.get(claim.team)
        return category_of(team, *_template_key(claim)) if team and claim.channel == "whatsapp" else None

    def _deciding_attempt(
        self, claim: Claim, attempts: Sequence[CarrierAttempt]
    ) -> tuple[CarrierRecord | None, Outcome]:
        """Return the carrier and outcome of the last attempt; None as carrier if no carrier was reachable.

        The outcome's detail lists the earlier attempts as `missed`.
        """
        if not attempts:
            return None, _no_carrier_outcome(
                self._open_circuits(claim), self._clock.now(), self._clock.randbelow(UNATTEMPTED_SPREAD_MS)
            )
        *earlier, last = attempts
        outcome = last.outcome
        if earlier:
            earlier_details = [{"carrier": attempt.carrier.id, **attempt.outcome.detail} for attempt in earlier]
            outcome = replace(outcome, detail={**outcome.detail, "missed": earlier_details})
        if isinstance(outcome, Deferred) and outcome.unreachable:
            now = self._clock.now()
            retry_times = {attempt.carrier.id: now + FIRST_WAIT_MS for attempt in attempts} | self._open_circuits(claim)
            return None, replace(
                outcome, retry_after_ms=_ms_until_retry(retry_times, now) + self._clock.randbelow(UNREACHABLE_SPREAD_MS)
            )
        return last.carrier, outcome

    def _open_circuits(self, claim: Claim) -> dict[str, int]:
        """Return id → time of the next attempt, for the carriers of this route that must not be used now."""
        carriers = self._store.setup.current.routes[claim.channel, claim.country]
        open_circuits = self._failover.open_circuits()
        return {carrier.id: open_circuits[carrier.id] for carrier in carriers if carrier.id in open_circuits}

    async def _record(self, claim: Claim, update: RecipientUpdate) -> bool:
        """Record the outcome; retry until it is stored or the claim is lost, so that the message is not sent again."""
        try:
            while True:
                try:
                    recorded = await self._store.outbox.record(update)
                    if update.accepted and not recorded:
                        log.warning("sent after its lease was lost: it may be sent twice", message=claim.message_id)
                    return recorded
                except StoreUnavailable:
                    self.unrecorded_keys.add(claim.key)
                    await asyncio.sleep(DATABASE_RETRY_S)
        except Exception as error:
            # The lease expires, and the next claim counts this one as failed: repeated failures quarantine the message.
            log.error("outcome not recorded", message=claim.message_id, error=type(error).__name__)
            return False
        finally:
            self.unrecorded_keys.discard(claim.key)

    def _jitter(self) -> float:
        return self._clock.randbelow(2001) / 1000 - 1


class _ClaimHooks(SendHooks):
    """Hooks of a claim: records the time in the queue, and checks again before sending whether to send."""

    def __init__(self, dispatch: Dispatch, claim: Claim) -> None:
        self._dispatch = dispatch
        self._claim = claim
        self._is_wait_recorded = False

    def on_queued(self, seconds: float) -> None:
        self._is_wait_recorded = True
        self._dispatch.on_queued(self._claim.queue, seconds)

    def record_no_wait(self) -> None:
        if not self._is_wait_recorded:
            self.on_queued(0.0)

    async def before_send(self) -> None:
        claim, dispatch = self._claim, self._dispatch
        lease_is_uncertain = asyncio.get_running_loop().time() - dispatch.renewed_at > LEASE_CERTAIN_S
        # Another worker may have sent the message
        if claim.was_claimed_before or lease_is_uncertain or claim.key in dispatch.lost_keys:
            await dispatch.renew_lease(claim)
        self.cancel_if_needed(claim.channel == "email" and await dispatch.suppression_recheck.is_suppressed(claim))

    def cancel_if_needed(self, suppressed: bool) -> None:
        if refusal := self._dispatch.cancel_reason(self._claim, suppressed):
            raise SendCancelled(refusal)


def _template_key(claim: Claim) -> tuple[str, str]:
    content = msgspec.json.decode(claim.content, type=WhatsappContent)
    return content.template, content.language


def choose_carrier(claim: Claim, setup: Setup, excluded: Collection[str] = ()) -> CarrierRecord | None:
    team = setup.teams_by_ref.get(claim.team)
    if claim.captured or magic_recipients.is_magic(claim.address) or (team and team.simulated):
        return routing.builtin_simulator(claim.channel)
    route = setup.routes[claim.channel, claim.country]
    if claim.uncertain_carrier:  # another carrier might send a duplicate
        route = [carrier for carrier in route if carrier.id == claim.uncertain_carrier] or route
    return routing.choose_carrier(route, claim.deferrals, excluded)


def _no_carrier_outcome(open_circuits: Mapping[str, int], now: int, spread_ms: int) -> Outcome:
    """Return a deferral until the earliest time at which a carrier may be tried again."""
    if not open_circuits:
        return Deferred(detail=local_failure("no_carrier", NO_CARRIER_TEXT), held=True, retry_after_ms=WAIT_MAX_MS)
    wait_ms = _ms_until_retry(open_circuits, now) + spread_ms
    return Deferred(detail=local_failure("out_of_reach", OUT_OF_REACH_TEXT), held=True, retry_after_ms=wait_ms)


def _ms_until_retry(open_circuits: Mapping[str, int], now: int) -> int:
    """Return the ms until the earliest time at which a carrier may be tried again; FIRST_WAIT_MS if unknown."""
    return min((retry_at - now for retry_at in open_circuits.values() if retry_at > now), default=FIRST_WAIT_MS)


def to_outbound_message(
    claim: Claim,
    content: bytes,
    carrier: CarrierRecord,
    now: int,
    hooks: SendHooks = NO_HOOKS,
    pool: str = DEFAULT_POOL,
) -> OutboundMessage:
    return OutboundMessage(
        message_id=claim.message_id,
        position=claim.position,
        address=claim.address,
        original_address=claim.given_address,
        content=content,
        attempt=claim.attempt,
        country=claim.country,
        uncertain=claim.uncertain_carrier == carrier.id,
        seconds_left=None if claim.expires_at is None else seconds_until(claim.expires_at, now),
        priority=claim.priority,
        pool=pool,
        was_held=claim.held_at is not None,
        hooks=hooks,
    )


def to_update(
    claim: Claim,
    carrier: CarrierRecord | None,
    outcome: Outcome,
    now: int,
    jitter: Callable[[], float],
    attempts: Sequence[CarrierAttempt] = (),
) -> RecipientUpdate:
    """Return the update of recipient, account and outbox that follows from a carrier's outcome."""
    if isinstance(outcome, Refused) and outcome.absent and (wait_ms := absent_confirmation_wait(claim.absent_at, now)):
        # the domain may only seem to be missing because of a DNS error
        outcome = Deferred(detail=outcome.detail, retry_after_ms=wait_ms, absent=True)
    if carrier and carrier.kind == "simulator":
        outcome = replace(outcome, detail=mark_simulated(outcome.detail))
    make_update = partial(
        RecipientUpdate,
        at=now,
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status=None,
        detail=outcome.detail,
        carrier=carrier.id if carrier else None,
        attempts=attempts,
    )
    match outcome:
        case Accepted(delivered=delivered, carrier_id=carrier_id, parts=parts, reports=reports):
            return make_update(
                target_status="delivered" if delivered else "sent",
                accepted=True,
                carrier_id=carrier_id,
                parts=parts,
                reports=reports,
                lane=LANE_BY_CHANNEL[claim.channel],
            )
        case Refused(bounced=True):
            return make_update(target_status="bounced", suppress="bounce")
        case Refused(by_inbox=True):
            return make_update(target_status="bounced", detail=outcome.detail | {BOUNCE_SUPPRESSED: False})
        case Refused():
            return make_update(target_status="failed")
        case Deferred(uncertain=True) if claim.uncertain_carrier:
            return make_update(
                target_status="failed", detail=outcome.detail | local_failure("uncertain", NO_RESPONSE_TWICE_TEXT)
            )
        case Deferred(unreachable=True) | Deferred(held=True):
            return _hold_update(claim, make_update, outcome, now)
        case Deferred():
            return _retry_update(claim, carrier, make_update, outcome, now, jitter())


def _retry_update(
    claim: Claim,
    carrier: CarrierRecord | None,
    make_update: Callable[..., RecipientUpdate],
    outcome: Deferred,
    now: int,
    jitter: float,
) -> RecipientUpdate:
    attempt, first_at = claim.attempt + 1, claim.first_at if claim.attempt else now
    due_at = next_attempt(claim.channel, attempt, first_at, now, jitter, outcome.retry_after_ms)
    if due_at is None:
        return make_update(target_status="failed", detail=outcome.detail | {EXPIRED: True})
    due_at = min(due_at, claim.expires_at or due_at)
    deferrals = dict(claim.deferrals)
    if carrier:
        deferrals[carrier.id] = deferrals.get(carrier.id, 0) + 1
    retry_plan = RetryPlan(
        due_at=due_at,
        attempt=attempt,
        deferrals=deferrals,
        uncertain_carrier=carrier.id if carrier and outcome.uncertain else claim.uncertain_carrier,
        absent_at=(claim.absent_at or now) if outcome.absent else None,
        first_at=first_at,
    )
    delay = delay_data(first_at, due_at, first_at, claim.expires_at) if outcome.delayed else None
    return make_update(retry=retry_plan, delay=delay, detail=outcome.detail | {NEXT_AT: timestamp(due_at)})


def _hold_update(
    claim: Claim, make_update: Callable[..., RecipientUpdate], outcome: Deferred, now: int
) -> RecipientUpdate:
    """Defer the message for a problem on our side, without counting an attempt; it is sent before newer messages."""
    is_held = claim.held_at is not None
    first_at = claim.first_at if claim.attempt or is_held else now
    # without a retry time the message keeps its position in the queue
    retry_at = now + outcome.retry_after_ms if outcome.retry_after_ms else claim.due_at
    due_at = hold_until(claim.channel, first_at, now, retry_at)
    if due_at is None:
        default_reason = {"reason": "out_of_reach"} if outcome.unreachable else {}
        detail = default_reason | outcome.detail | {EXPIRED: True}
        return make_update(carrier=None, target_status="failed", detail=detail)
    due_at = min(due_at, claim.expires_at or due_at)
    retry_plan = RetryPlan(
        due_at=due_at,
        attempt=claim.attempt,
        deferrals=claim.deferrals,
        uncertain_carrier=claim.uncertain_carrier,
        absent_at=claim.absent_at,
        first_at=first_at,
        held_at=claim.held_at if is_held else claim.due_at,
    )
    detail = outcome.detail | {NEXT_AT: timestamp(max(due_at, now))}
    return make_update(carrier=None, retry=retry_plan, detail=detail, is_repeat=is_held)
