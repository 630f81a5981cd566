"""The reputation guard: what is counted, the exact limits, and when a team is warned, paused or normal again."""

from typing import Literal

import pytest

from heliograph.domain.delivery.message_states import transition_path
from heliograph.domain.mail.reputation import (
    Counts,
    Reputation,
    ReputationState,
    changed_reputations,
    check_direct_sends,
    count_transitions,
    judge_rate,
    judge_reputation,
    warning_threshold,
)
from heliograph.domain.refusals import DirectSendsPaused
from heliograph.domain.setup.records import Team, TeamRecord

NOW = 5_000
TEAM = Team(record=TeamRecord(ref=7, id="team_a", name="A"))


def in_state(state: ReputationState, resumed_at: int | None = None) -> Reputation:
    return Reputation(team="team_a", state=state, since=1, resumed_at=resumed_at, sends=1000, bounces=123, complaints=4)


@pytest.mark.parametrize(
    ("sends", "bounces", "complaints", "expected"),
    [
        (0, 0, 0, "ok"),
        (0, 5, 5, "ok"),
        (199, 199, 199, "ok"),
        (200, 0, 0, "ok"),
        (200, 9, 0, "ok"),
        (200, 10, 0, "warn"),  # 5 %
        (200, 19, 0, "warn"),
        (200, 20, 0, "paused"),  # 10 %
        (200, 0, 1, "paused"),  # 0.5 %
        (201, 0, 1, "warn"),
        (1000, 49, 0, "ok"),
        (1000, 50, 0, "warn"),
        (1000, 99, 0, "warn"),
        (1000, 100, 0, "paused"),
        (1001, 0, 1, "ok"),
        (1000, 0, 1, "warn"),  # 0.1 %
        (1000, 0, 4, "warn"),
        (1000, 0, 5, "paused"),  # 0.5 %
        (1000, 49, 1, "warn"),
        (1000, 50, 5, "paused"),
        (1000, 2000, 0, "paused"),  # late bounces of older sends
        (2001, 100, 2, "ok"),
        (1_000_003, 50_000, 1_000, "ok"),
        (1_000_003, 50_001, 0, "warn"),
        (1_000_003, 0, 1_001, "warn"),
    ],
)
def test_reputation_is_judged_by_the_documented_limits(
    sends: int, bounces: int, complaints: int, expected: str
) -> None:
    assert judge_reputation(sends, bounces, complaints) == expected


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        ("queued", "sent", (1, 0, 0)),
        ("sending", "sent", (1, 0, 0)),
        ("sending", "delivered", (1, 0, 0)),
        ("sending", "failed", (0, 0, 0)),
        ("sending", "sending", (0, 0, 0)),
        ("sending", "bounced", (1, 1, 0)),  # rejected immediately
        ("queued", "bounced", (1, 1, 0)),
        ("sent", "bounced", (0, 1, 0)),
        ("sent", "delivered", (0, 0, 0)),
        ("sent", "failed", (0, 0, 0)),
        ("delivered", "bounced", (0, 1, 0)),
        ("delivered", "complained", (0, 0, 1)),
        ("sent", "complained", (0, 0, 1)),
        ("sending", "complained", (1, 0, 1)),
        ("bounced", "bounced", (0, 0, 0)),
        ("complained", "complained", (0, 0, 0)),
    ],
)
def test_reputation_counts_transitions(before: str, wanted: str, expected: tuple[int, int, int]) -> None:
    assert count_transitions(before, transition_path("email", before, wanted)) == expected


GOOD, MIDDLING, BAD = Counts(1000, 0, 0), Counts(1000, 50, 0), Counts(1000, 100, 0)


@pytest.mark.parametrize(
    ("found", "counts", "state"),
    [
        (None, GOOD, None),
        (None, MIDDLING, "warn"),
        (None, BAD, "paused"),
        (in_state("warn"), MIDDLING, None),
        (in_state("warn"), GOOD, "ok"),
        (in_state("warn"), Counts(), "ok"),  # it sent nothing for a week
        (in_state("warn"), BAD, "paused"),
        (in_state("ok"), GOOD, None),
        (in_state("ok"), BAD, "paused"),
        (in_state("paused"), GOOD, None),  # only an operator ends a pause
        (in_state("paused"), MIDDLING, None),
        (in_state("paused"), BAD, None),
    ],
)
def test_reputation_of_changed_teams_is_updated(found: Reputation | None, counts: Counts, state: str | None) -> None:
    records = changed_reputations([TEAM], {TEAM.record.id: found} if found else {}, {7: counts, 8: BAD}, NOW)
    assert [record.state for record in records] == ([state] if state else [])


def test_changed_reputation_keeps_its_counts_and_resume_time() -> None:
    (record,) = changed_reputations(
        [TEAM], {TEAM.record.id: in_state("ok", resumed_at=3)}, {7: Counts(1000, 100, 2)}, NOW
    )
    assert record == Reputation(
        team="team_a", state="paused", since=NOW, sends=1000, bounces=100, complaints=2, resumed_at=3
    )


def test_only_a_paused_reputation_refuses_direct_sends() -> None:
    for fine in (None, in_state("ok"), in_state("warn")):
        check_direct_sends(fine)
    with pytest.raises(DirectSendsPaused) as refused:
        check_direct_sends(in_state("paused"))
    for words in ("of 1000 emails 12.3% bounced and 0.40% got complaints", "operator", "template_id"):
        assert words in refused.value.message


@pytest.mark.parametrize(
    ("of", "count", "sends", "state"),
    [
        ("bounces", 100, 199, None),  # too few sends to evaluate
        ("bounces", 49, 1000, "ok"),
        ("bounces", 50, 1000, "warn"),
        ("bounces", 100, 1000, "paused"),
        ("complaints", 0, 1000, "ok"),
        ("complaints", 1, 1000, "warn"),
        ("complaints", 5, 1000, "paused"),
    ],
)
def test_reputation_of_one_rate_is_judged(
    of: Literal["bounces", "complaints"], count: int, sends: int, state: str | None
) -> None:
    assert judge_rate(of, count, sends) == state
    assert (warning_threshold("bounces"), warning_threshold("complaints")) == (5.0, 0.1)
