"""Drafts of new and changed layouts: saving, submitting, and approval by an operator."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.plan import next_version
from heliograph.domain.setup.records import Layout, LayoutDraft
from heliograph.domain.setup.setup_file import read_layout_fields
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.templates.policy.template_approvals import revision_of


def apply_fields(base: Layout, changes: Mapping[str, Any]) -> tuple[Layout, dict[str, str]]:
    """Return `base` with the fields in `changes` (None removes a field), and an error text for each invalid field."""
    removed_fields = {name: None for name, value in changes.items() if value is None}
    fields, errors = read_layout_fields({name: value for name, value in changes.items() if value is not None})
    return msgspec.convert(msgspec.to_builtins(base) | fields | removed_fields, Layout), errors


def find_draft(setup: Setup, id_: str) -> Layout | None:
    """Return the draft of a layout; None if it has no draft."""
    current, draft = setup.records.get(("layout", id_)), setup.records.get(("layout_draft", id_))
    if isinstance(draft, LayoutDraft):
        return draft.layout
    return current if isinstance(current, Layout) and current.status == "draft" else None


def list_pending(setup: Setup) -> list[Layout]:
    """Return all drafts of the instance that wait for an operator."""
    drafts = (find_draft(setup, id_) for kind, id_ in setup.records if kind in ("layout", "layout_draft"))
    pending_drafts = {draft.id: draft for draft in drafts if draft and draft.submitted_at and draft.team in setup.teams}
    return sorted(pending_drafts.values(), key=lambda draft: (setup.teams[draft.team].record.name, draft.name))


def find_submitted(setup: Setup, id_: str, revision: str | None) -> Layout | None:
    """Return a layout's submitted draft; None if it has no draft. Check the revision unless `revision` is None."""
    draft = find_draft(setup, id_)
    if draft and not draft.submitted_at:
        raise InvalidRequest(f"{id_} has no pending draft.")
    if revision is not None and (draft is None or revision_of(draft) != revision):
        raise InvalidRequest("This draft was changed in the meantime. Review it again, then decide.")
    return draft


def draft_rows(setup: Setup, new: Layout) -> list[Row]:
    """Return the rows that save a layout as a draft; the layout in use does not change."""
    old = setup.records.get(("layout", new.id))
    if not isinstance(old, Layout) or old.status == "draft":
        draft = replace(new, status="draft", version=1)
        return [] if old == draft else [to_row("layout", new.id, draft, new.team)]
    draft = replace(new, status="draft", version=next_version(old, new))
    if find_draft(setup, new.id) == draft:
        return []
    return [to_row("layout_draft", new.id, LayoutDraft(team=new.team, layout=draft), new.team)]


def submit_rows(setup: Setup, new: Layout, requester: str, submitted_at: int) -> list[Row]:
    """Return the rows that submit a layout for approval."""
    return draft_rows(setup, replace(new, submitted_at=submitted_at, refused_reason="", asked_by=requester))


def approve_rows(setup: Setup, new: Layout) -> list[Row]:
    """Return the rows that put a layout into use and delete its draft."""
    old = setup.records.get(("layout", new.id))
    version = next_version(old, new) if isinstance(old, Layout) and old.status != "draft" else 1
    approved = replace(new, status="approved", version=version, submitted_at=0, refused_reason="", asked_by="")
    rows = [] if approved == old else [to_row("layout", new.id, approved, new.team)]
    return [*rows, *_delete_draft_rows(setup, new.id, new.team)]


def archive_rows(setup: Setup, layout: Layout) -> list[Row]:
    """Return the rows that archive a layout and delete its draft; a layout that was never approved is deleted."""
    deleted = _delete_draft_rows(setup, layout.id, layout.team)
    if layout.status == "archived":
        return deleted
    archived = replace(layout, status="archived") if layout.status == "approved" else None
    return [*deleted, to_row("layout", layout.id, archived, layout.team)]


def _delete_draft_rows(setup: Setup, id_: str, team: str) -> list[Row]:
    return [to_row("layout_draft", id_, None, team)] if ("layout_draft", id_) in setup.records else []
