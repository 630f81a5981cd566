"""Undo of operator decisions: the decided item becomes pending again.

An approved change of a brand, a sender id or a team name cannot be undone, because the previous value is not stored;
nor can an approved template or layout, whose version may have been sent. Submit a new change instead.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.sender_approvals import (
    Changing,
    Submitted,
    changed,
    state_of,
    team_of,
    text_of,
    text_of_change,
)
from heliograph.domain.setup.snapshot import RecordId, Row, Setup
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import PendingTemplate, draft_rows, find_draft


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as recorded in the audit log."""

    team: str
    kind: str  # record kind
    said: str  # text of the decided request
    approved: bool


def list_reversible(setup: Setup) -> dict[Decided, RecordId]:
    """Return the decisions in effect that can be undone, except those that match more than one record."""
    found = [
        (Decided(team=team, kind=record_id[0], said=said, approved=approved), record_id)
        for record_id, record in setup.records.items()
        for team, said, approved in _decisions(setup, record_id, record)
    ]
    shared = Counter(one for one, _ in found)
    return {one: record_id for one, record_id in found if shared[one] == 1}


def _decisions(setup: Setup, record_id: RecordId, record: Any) -> list[tuple[str, str, bool]]:
    kind, id_ = record_id
    if kind in ("template", "layout"):
        return [(record.team, id_, False)] if _refused_draft(setup, record_id) else []
    found = []
    if isinstance(record, Submitted) and (state := state_of(record)) != "waiting":
        found = [(record.team, text_of(setup, record_id), state == "approved")]
    if isinstance(record, Changing) and record.wanted_refused:
        found.append((team_of(record), text_of_change(setup, record_id), False))
    return found


def _refused_draft(setup: Setup, record_id: RecordId) -> PendingTemplate | Layout | None:
    kind, id_ = record_id
    if kind == "layout":
        layout = layout_drafts.find_draft(setup, id_)
        return layout if layout and layout.refused_reason else None
    draft = find_draft(setup, id_)
    return draft if draft and draft.template.refused_reason else None


def reopened(setup: Setup, decided: Decided, now: int) -> list[Row]:
    """Return the rows that make the item pending again; empty if the decision is no longer in effect or cannot be
    undone.
    """
    record_id = list_reversible(setup).get(decided)
    if record_id is None:
        return []
    draft = _refused_draft(setup, record_id) if decided.kind in ("template", "layout") else None
    if isinstance(draft, Layout):
        return layout_drafts.submitted_rows(setup, draft, draft.asked_by, now)
    if draft:
        new = replace(draft.template, refused_reason="", submitted_at=now)
        return draft_rows(setup, new, draft.by or "", draft.at or 0)
    is_change = getattr(setup.records[record_id], "wanted_refused", "") and not decided.approved
    return changed(
        setup, record_id, **({"wanted_refused": ""} if is_change else {"approved": False, "refused_reason": ""})
    )


def asker_of(setup: Setup, decided: Decided) -> str:
    """Return the requester, usr_…; empty if unknown."""
    record_id = list_reversible(setup).get(decided)
    if record_id is None:
        return ""
    draft = _refused_draft(setup, record_id) if decided.kind in ("template", "layout") else None
    if isinstance(draft, PendingTemplate):
        return draft.by or ""
    return getattr(draft or setup.records[record_id], "asked_by", "")
