"""Reputation guard: warns about high bounce and complaint rates, and pauses a team's emails without a template."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import DirectSendsPaused
from heliograph.domain.setup.records import Team

ReputationState = Literal["ok", "warn", "paused"]

MIN_SENDS = 200  # with fewer sends the state is always "ok"
WINDOW_SENDS = 1_000  # rates are computed over the newest hours that together have at least this many sends
WINDOW_MS = 7 * DAY_MS  # sends older than this do not count

# (state, bounces, complaints) per 1,000 sends; the first row with a reached limit applies.
STATE_LIMITS: tuple[tuple[ReputationState, int, int], ...] = (("paused", 100, 5), ("warn", 50, 1))
_LIMIT_INDEX_BY_RATE = {"bounces": 0, "complaints": 1}  # index among the limits of a row of STATE_LIMITS

# Audit log action of each decision.
AUDIT_ACTION_BY_STATE: dict[ReputationState, str] = {
    "ok": "reputation.clear",
    "warn": "reputation.warn",
    "paused": "reputation.pause",
}


class Reputation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last decision of the reputation guard about a team's emails, and the counts at that time.

    Every process learns of a decision within a second. A team about which nothing was decided yet has no record.
    """

    team: str
    state: ReputationState
    since: int  # start of the state, Unix time in ms
    sends: int = 0
    bounces: int = 0
    complaints: int = 0
    resumed_at: int | None = None  # when an operator last ended a pause


class Counts(NamedTuple):
    sends: int = 0
    bounces: int = 0
    complaints: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(self.sends + other.sends, self.bounces + other.bounces, self.complaints + other.complaints)


@cache
def count_transitions(previous: str, path: tuple[str, ...], is_hard: bool = True) -> Counts:
    """Return what one recipient's state transitions add to the counts; an immediate rejection also adds a send.

    Only hard bounces count: rejections for other reasons than the address say nothing about the team's lists.
    """
    bounced = "bounced" in path and is_hard
    sent = "sent" in path or (bounced and previous in ("queued", "sending"))
    return Counts(int(sent), int(bounced), int("complained" in path))


def judge_reputation(sends: int, bounces: int, complaints: int) -> ReputationState:
    if sends >= MIN_SENDS:
        for state, bounced, complained in STATE_LIMITS:
            if 1000 * bounces >= bounced * sends or 1000 * complaints >= complained * sends:
                return state
    return "ok"


def judge_rate(rate: Literal["bounces", "complaints"], count: int, sends: int) -> ReputationState | None:
    """Return the state that one rate alone, bounces or complaints, gives; None if too few emails were sent."""
    if sends < MIN_SENDS:
        return None
    return next(
        (state for state, *limits in STATE_LIMITS if 1000 * count >= limits[_LIMIT_INDEX_BY_RATE[rate]] * sends), "ok"
    )


def warning_threshold(rate: Literal["bounces", "complaints"]) -> float:
    """Return the rate in percent at which a team is warned."""
    return next(limits[_LIMIT_INDEX_BY_RATE[rate]] / 10 for state, *limits in STATE_LIMITS if state == "warn")


def changed_reputations(
    teams: Iterable[Team], current: Mapping[str, Reputation], counts_by_ref: Mapping[int, Counts], now: int
) -> list[Reputation]:
    """Return a new reputation for each team whose state changes according to the newest counts.

    A paused team is left out: only a person may end a pause.
    """
    records = []
    for team in teams:
        counts = counts_by_ref.get(team.record.ref, Counts())
        before, state = current.get(team.record.id), judge_reputation(*counts)
        if state != (before.state if before else "ok") and not is_paused(before):
            resumed_at = before.resumed_at if before else None
            records.append(
                Reputation(team=team.record.id, state=state, since=now, resumed_at=resumed_at, **counts._asdict())
            )
    return records


def is_paused(reputation: Reputation | None) -> bool:
    return reputation is not None and reputation.state == "paused"


def check_direct_sends(reputation: Reputation | None) -> None:
    if reputation and is_paused(reputation):
        raise DirectSendsPaused(
            f"Direct sends of this team are paused: {describe_rates(reputation)}. {DirectSendsPaused.fix}"
        )


def describe_rates(counts: Counts | Reputation) -> str:
    if not counts.sends:
        return "no email was sent"
    bounced, complained = (100 * count / max(counts.sends, 1) for count in (counts.bounces, counts.complaints))
    return f"of {counts.sends} emails {bounced:.1f}% bounced and {complained:.2f}% got complaints"
