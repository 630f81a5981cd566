"""Undoes operators' decisions: the decided item becomes pending again.

An approved change of a brand, a sender id or a team name cannot be undone, because the previous value is not stored;
nor can an approved template or layout, whose version may have been sent. Submit a new change instead.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.sender_approvals import (
    ChangeableRecord,
    SubmittedRecord,
    change_request_text,
    change_rows,
    request_text,
    state_of,
    team_of,
)
from heliograph.domain.setup.snapshot import RecordId, Row, Setup
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.template_approvals import TemplateDraftState, draft_rows, find_draft


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's decision as recorded in the audit log."""

    team: str
    kind: str  # record kind
    text: str  # text of the decided request
    approved: bool


def list_reversible(setup: Setup) -> dict[RecordedDecision, RecordId]:
    """Return the decisions in effect that can be undone, each with its record.

    A decision is omitted if several records match it.
    """
    decisions = [
        (RecordedDecision(team=team, kind=record_id[0], text=text, approved=approved), record_id)
        for record_id, record in setup.records.items()
        for team, text, approved in _decisions(setup, record_id, record)
    ]
    occurrences = Counter(decision for decision, _ in decisions)
    return {decision: record_id for decision, record_id in decisions if occurrences[decision] == 1}


def _decisions(setup: Setup, record_id: RecordId, record: Any) -> list[tuple[str, str, bool]]:
    kind, id_ = record_id
    if kind in ("template", "layout"):
        return [(record.team, id_, False)] if _refused_draft(setup, record_id) else []
    decisions = []
    if isinstance(record, SubmittedRecord) and (state := state_of(record)) != "waiting":
        decisions = [(record.team, request_text(setup, record_id), state == "approved")]
    if isinstance(record, ChangeableRecord) and record.wanted_refused:
        decisions.append((team_of(record), change_request_text(setup, record_id), False))
    return decisions


def _refused_draft(setup: Setup, record_id: RecordId) -> TemplateDraftState | Layout | None:
    kind, id_ = record_id
    if kind == "layout":
        layout = layout_drafts.find_draft(setup, id_)
        return layout if layout and layout.refused_reason else None
    draft = find_draft(setup, id_) if kind == "template" else None
    return draft if draft and draft.template.refused_reason else None


def undo_rows(setup: Setup, decided: RecordedDecision, now: int) -> list[Row]:
    """Return the rows that make the decided item pending again; empty if the decision cannot be undone any more."""
    record_id = list_reversible(setup).get(decided)
    if record_id is None:
        return []
    draft = _refused_draft(setup, record_id)
    if isinstance(draft, Layout):
        return layout_drafts.submit_rows(setup, draft, draft.asked_by, now)
    if draft:
        new = replace(draft.template, refused_reason="", submitted_at=now)
        return draft_rows(setup, new, draft.author or "", draft.saved_at or 0)
    is_change = getattr(setup.records[record_id], "wanted_refused", "") and not decided.approved
    return change_rows(
        setup, record_id, **({"wanted_refused": ""} if is_change else {"approved": False, "refused_reason": ""})
    )


def requester_of(setup: Setup, decided: RecordedDecision) -> str:
    """Return the id (usr_…) of the person who made the request; empty if unknown."""
    record_id = list_reversible(setup).get(decided)
    if record_id is None:
        return ""
    draft = _refused_draft(setup, record_id)
    if isinstance(draft, TemplateDraftState):
        return draft.author or ""
    return getattr(draft or setup.records[record_id], "asked_by", "")
