"""Storage quota of a team's templates and layouts, because every process keeps all of them in memory."""

from collections.abc import Iterable

import msgspec

from heliograph.domain.limits import MIB
from heliograph.domain.refusals import InvalidTemplate
from heliograph.domain.setup.records import Mode
from heliograph.domain.setup.snapshot import DRAFT_KIND_BY_KIND, RecordId, Row, Setup
from heliograph.templates.policy.check import TemplateProblem

# Maximum characters of all templates and layouts of a team, including drafts and archived ones
LENGTH_MAX_BY_MODE: dict[Mode, int] = {"live": 8 * MIB, "sandbox": 4 * MIB}
TEMPLATES_MAX = 500  # maximum number of templates and layouts
QUOTA_ADVICE = "Discard unused drafts, shorten long texts, or ask the operator, whose setup file can contain more."


def check_quota(setup: Setup, team: str, rows: Iterable[Row]) -> None:
    """Reject rows that exceed the team's template quota; a change that reduces the usage is always accepted."""
    before = _length_by_record(setup, team)
    after = before | {(row.kind, row.id): len(row.body or "") for row in rows}
    limit, length = LENGTH_MAX_BY_MODE[setup.teams[team].record.mode], sum(after.values())
    if _count(after) > max(TEMPLATES_MAX, _count(before)):
        message = f"The team has {_count(before)} templates and layouts, the maximum is {TEMPLATES_MAX}."
        raise _refusal("too_many", message)
    if length > max(limit, sum(before.values())):
        message = (
            f"The team's templates and layouts would have {length:,} characters with drafts, the maximum is {limit:,}."
        )
        raise _refusal("too_large", message)


def _length_by_record(setup: Setup, team: str) -> dict[RecordId, int]:
    """Return how many characters each of the team's templates, layouts and drafts has."""
    team_setup = setup.teams[team]
    ids = [("template", id_) for id_ in team_setup.templates] + [("layout", id_) for id_ in team_setup.layouts]
    ids += [(DRAFT_KIND_BY_KIND[kind], id_) for kind, id_ in ids]
    return {record_id: setup.lengths[record_id] for record_id in ids if record_id in setup.lengths}


def _count(lengths: dict[RecordId, int]) -> int:
    return sum(length > 0 for (kind, _), length in lengths.items() if kind in DRAFT_KIND_BY_KIND)


def _refusal(code: str, message: str) -> InvalidTemplate:
    problem = TemplateProblem(code=code, part="form", text=message)
    return InvalidTemplate(f"{message} {QUOTA_ADVICE}", details={"problems": [msgspec.to_builtins(problem)]})
