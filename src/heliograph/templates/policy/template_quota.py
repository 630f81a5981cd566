"""Storage quota of a team's templates and layouts, because every process keeps all of them in memory."""

from collections.abc import Iterable

import msgspec

from heliograph.domain.limits import MIB
from heliograph.domain.refusals import InvalidTemplate
from heliograph.domain.setup.records import Mode
from heliograph.domain.setup.snapshot import DRAFTS, RecordId, Row, Setup
from heliograph.templates.policy.check import TemplateProblem

LENGTH_MAX: dict[Mode, int] = {"live": 8 * MIB, "sandbox": 4 * MIB}  # characters, including drafts and archived ones
TEXTS_MAX = 500  # maximum number of templates and layouts
FIX = "Discard drafts that are not needed, shorten what is long, or ask the operator, whose setup file may hold more."


def check_room(setup: Setup, team: str, rows: Iterable[Row]) -> None:
    """Reject rows that exceed the team's quota; a change that reduces the usage is always accepted."""
    before = _lengths(setup, team)
    after = before | {(row.kind, row.id): len(row.body or "") for row in rows}
    most, length, texts = LENGTH_MAX[setup.teams[team].record.mode], sum(after.values()), _count(after)
    if texts > TEXTS_MAX and texts > _count(before):
        raise _refusal("too_many", f"The team has {_count(before)} templates and layouts, {TEXTS_MAX} is the most.")
    if length > most and length > sum(before.values()):
        told = f"The team's templates and layouts would have {length:,} characters with drafts, {most:,} is the most."
        raise _refusal("too_large", told)


def _lengths(setup: Setup, team: str) -> dict[RecordId, int]:
    own = setup.teams[team]
    ids = [("template", id_) for id_ in own.templates] + [("layout", id_) for id_ in own.layouts]
    ids += [(DRAFTS[kind], id_) for kind, id_ in ids]
    return {one: setup.lengths[one] for one in ids if one in setup.lengths}


def _count(lengths: dict[RecordId, int]) -> int:
    return sum(length > 0 for (kind, _), length in lengths.items() if kind in DRAFTS)


def _refusal(code: str, told: str) -> InvalidTemplate:
    problem = TemplateProblem(code=code, part="form", text=told)
    return InvalidTemplate(f"{told} {FIX}", details={"problems": [msgspec.to_builtins(problem)]})
