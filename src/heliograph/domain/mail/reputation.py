"""Reputation guard: bounce and complaint rates of a team's email, with warnings and pauses of direct sends."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import DirectSendsPaused
from heliograph.domain.setup.records import Team

ReputationState = Literal["ok", "warn", "paused"]

MIN_SENDS = 200  # fewer sends are not judged
WINDOW_SENDS = 1_000  # the rates cover the newest hours with at least this many sends …
WINDOW_MS = 7 * DAY_MS  # … but nothing older than this

# (state, bounces, complaints) per 1,000 sends; the first row with a reached limit applies.
LIMITS: tuple[tuple[ReputationState, int, int], ...] = (("paused", 100, 5), ("warn", 50, 1))
_PLACE = {"bounces": 0, "complaints": 1}  # index in a row, after the state

# Audit log action of each decision.
ACTIONS: dict[ReputationState, str] = {
    "ok": "reputation.clear",
    "warn": "reputation.warn",
    "paused": "reputation.pause",
}


class Reputation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The guard's last decision about a team's email, and the counts at that time.

    Every process learns of a decision within a second. A team that was never judged has no record.
    """

    team: str
    state: ReputationState
    since: int  # ms
    sends: int = 0
    bounces: int = 0
    complaints: int = 0
    resumed_at: int | None = None  # when an operator last ended a pause


class Counts(NamedTuple):
    sends: int = 0
    bounces: int = 0
    complaints: int = 0

    def plus(self, more: "Counts") -> "Counts":
        return Counts(self.sends + more.sends, self.bounces + more.bounces, self.complaints + more.complaints)


@cache
def tally(before: str, path: tuple[str, ...], is_hard: bool = True) -> Counts:
    """Return the counts of one recipient's state transitions; an immediate rejection also counts as a send.

    Only hard bounces count: rejections for other reasons than the address say nothing about the team's lists.
    """
    bounced = "bounced" in path and is_hard
    sent = "sent" in path or (bounced and before in ("queued", "sending"))
    return Counts(int(sent), int(bounced), int("complained" in path))


def judge(sends: int, bounces: int, complaints: int) -> ReputationState:
    if sends >= MIN_SENDS:
        for state, bounced, complained in LIMITS:
            if 1000 * bounces >= bounced * sends or 1000 * complaints >= complained * sends:
                return state
    return "ok"


def judge_share(of: Literal["bounces", "complaints"], count: int, sends: int) -> ReputationState | None:
    """Return the state by one of the two rates alone; None if too few emails were sent."""
    if sends < MIN_SENDS:
        return None
    return next((state for state, *limits in LIMITS if 1000 * count >= limits[_PLACE[of]] * sends), "ok")


def warned_from(of: Literal["bounces", "complaints"]) -> float:
    """Return the rate in percent at which a team is warned."""
    return next(limits[_PLACE[of]] / 10 for state, *limits in LIMITS if state == "warn")


def changed(
    teams: Iterable[Team], known: Mapping[str, Reputation], counts: Mapping[int, Counts], now: int
) -> list[Reputation]:
    """Return new decisions for the teams whose state changes by the newest counts; a pause is never lifted here."""
    records = []
    for team in teams:
        seen = counts.get(team.record.ref, Counts())
        before, state = known.get(team.record.id), judge(*seen)
        if state != (before.state if before else "ok") and not is_paused(before):
            resumed_at = before.resumed_at if before else None
            records.append(
                Reputation(team=team.record.id, state=state, since=now, resumed_at=resumed_at, **seen._asdict())
            )
    return records


def is_paused(known: Reputation | None) -> bool:
    return known is not None and known.state == "paused"


def check_direct(known: Reputation | None) -> None:
    if known and is_paused(known):
        raise DirectSendsPaused(f"Direct sends of this team are paused: {rates(known)}. {DirectSendsPaused.fix}")


def rates(seen: Counts | Reputation) -> str:
    if not seen.sends:
        return "no email was sent"
    bounced, complained = (100 * count / max(seen.sends, 1) for count in (seen.bounces, seen.complaints))
    return f"of {seen.sends} emails {bounced:.1f} % bounced and {complained:.2f} % were complained about"
