"""Layouts: written as drafts, submitted, approved, archived."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.manage.fields import check_fields
from heliograph.manage.setup import change_rows
from heliograph.manage.templates import REASON_MAX, check_problems, with_room
from heliograph.rules.audit import Actor
from heliograph.rules.limits import PARSED
from heliograph.rules.refusals import InvalidRequest, LayoutNotFound
from heliograph.rules.setup import layout_drafts as drafts
from heliograph.rules.setup.records import Layout
from heliograph.rules.setup.snapshot import Row, Setup
from heliograph.rules.templates.check import length_of
from heliograph.rules.templates.lint import problems_of_layout
from heliograph.runtime.threads import LOOKING
from heliograph.storage.store import Store


def find(setup: Setup, team: str | None, id_: str) -> Layout:
    """Find a layout of the team; no team: of any team."""
    found = setup.records.get(("layout", id_))
    if not isinstance(found, Layout) or team not in (None, found.team):
        raise LayoutNotFound(f"There is no layout {id_}. {LayoutNotFound.fix}", param="id")
    return found


def proposed(setup: Setup, layout: Layout) -> Layout:
    """Return its draft, when it has one."""
    return drafts.find_draft(setup, layout.id) or layout


async def write(store: Store, actor: Actor, base: Layout, given: Mapping[str, Any]) -> bool:
    """Write a draft that nobody is asked about; what is in use stays. Errors refuse it, warnings do not."""
    new, wrong = drafts.with_fields(base, given)
    check_fields(wrong)
    check_problems(await LOOKING.run_large(PARSED * length_of(new), problems_of_layout, new))

    def rows(setup: Setup) -> list[Row]:
        return with_room(actor, setup, new.team, drafts.draft_rows(setup, _unsubmitted(base, new)))

    return await change_rows(store, actor, new.team, "layout.save", new.id, rows)


def _unsubmitted(base: Layout, new: Layout) -> Layout:
    return new if new == base else replace(new, submitted_at=0)


async def submit(store: Store, actor: Actor, team: str, id_: str) -> bool:
    """Give its draft to an operator to judge."""
    find(store.setup.current, team, id_)

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.find_draft(setup, id_)
        if draft is None or draft.submitted_at:
            return []
        return drafts.draft_rows(setup, replace(draft, submitted_at=store.clock.now() + setup.ahead(draft.team)))

    return await change_rows(store, actor, team, "layout.submit", id_, rows)


async def approve(store: Store, actor: Actor, id_: str, mark: str | None = None) -> bool:
    """Approve the submitted draft: it is in use at once. `mark` names what the operator saw; None: as it is."""
    own = find(store.setup.current, None, id_).team

    def rows(setup: Setup) -> list[Row]:
        return drafts.approved_rows(setup, id_) if drafts.seen(setup, id_, mark) else []

    return await change_rows(store, actor, own, "layout.approve", id_, rows)


async def refuse(store: Store, actor: Actor, id_: str, mark: str | None, reason: str) -> bool:
    """Refuse a draft: it is its team's again, and the team's log has the reason."""
    own, reason = find(store.setup.current, None, id_).team, reason.strip()[:REASON_MAX]
    if not reason:
        raise InvalidRequest("Say why, so that the team can mend it.")

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.seen(setup, id_, mark)
        return drafts.draft_rows(setup, replace(draft, submitted_at=0)) if draft else []

    return await change_rows(store, actor, own, "layout.refuse", id_, rows, reason)


async def archive(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Archive a layout: no new template takes it; those that have it keep it."""
    own = find(store.setup.current, team, id_).team
    return await change_rows(
        store, actor, own, "layout.archive", id_, lambda setup: drafts.archived_rows(setup, find(setup, team, id_))
    )
