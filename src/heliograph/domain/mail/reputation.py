"""The reputation guard: what counts for and against a team's email, when it is warned, when its direct sends pause."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import DirectSendsPaused
from heliograph.domain.setup.records import Team

ReputationState = Literal["ok", "warn", "paused"]

MIN_SENDS = 200  # fewer say nothing
WINDOW_SENDS = 1_000  # the rates are those of the newest hours that hold so many …
WINDOW_MS = 7 * DAY_MS  # … and of none before

# The state from so many bounces or complaints in 1,000 sends; the first row that is reached counts.
LIMITS: tuple[tuple[ReputationState, int, int], ...] = (("paused", 100, 5), ("warn", 50, 1))
_PLACE = {"bounces": 0, "complaints": 1}  # in a row, after its state

# What the audit log calls each decision.
ACTIONS: dict[ReputationState, str] = {
    "ok": "reputation.clear",
    "warn": "reputation.warn",
    "paused": "reputation.pause",
}


class Reputation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the guard last decided about a team's email, and the counts that it saw then.

    Every process learns of it within a second. A team never judged has none.
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
    """Count one recipient's way from the state before; a refusal at the door was a send too.

    Only a hard bounce counts as one: refusals for other reasons than the address say nothing about the team's lists.
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
    """Judge one of the two rates by itself; None: too few were sent to say."""
    if sends < MIN_SENDS:
        return None
    return next((state for state, *limits in LIMITS if 1000 * count >= limits[_PLACE[of]] * sends), "ok")


def warned_from(of: Literal["bounces", "complaints"]) -> float:
    """Return the rate in percent from which a team is warned."""
    return next(limits[_PLACE[of]] / 10 for state, *limits in LIMITS if state == "warn")


def changed(
    teams: Iterable[Team], known: Mapping[str, Reputation], counts: Mapping[int, Counts], now: int
) -> list[Reputation]:
    """Return the teams, by their newest counts, that are to be warned, to be paused, or well again; a pause stays."""
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
