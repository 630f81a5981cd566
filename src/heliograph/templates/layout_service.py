"""Use cases of layouts: save drafts, publish, submit, approve, refuse and archive."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.changes.decisions import Ruling, asker, decided
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import PARSED
from heliograph.domain.refusals import InvalidRequest, LayoutNotFound
from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.runtime.threads import LOOKING
from heliograph.storage.store import Store
from heliograph.templates.policy import layout_drafts as drafts
from heliograph.templates.policy.check import length_of
from heliograph.templates.policy.lint import problems_of_layout
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.template_approvals import mark_of
from heliograph.templates.service import REASON_MAX, check_problems, with_room


def find(setup: Setup, team: str | None, id_: str) -> Layout:
    """Return a layout of the team, or of any team if `team` is None."""
    found = setup.records.get(("layout", id_))
    if not isinstance(found, Layout) or team not in (None, found.team):
        raise LayoutNotFound(f"There is no layout {id_}. {LayoutNotFound.fix}", param="id")
    return found


def proposed(setup: Setup, layout: Layout) -> Layout:
    """Return the layout's draft if it has one, else the layout."""
    return drafts.find_draft(setup, layout.id) or layout


def goes_live(setup: Setup, *, by_operator: bool) -> bool:
    """Return whether publishing takes effect at once; otherwise an operator must approve the layout."""
    return by_operator or not setup.platform.templates_need_approval


async def write(
    store: Store,
    actor: Actor,
    base: Layout,
    given: Mapping[str, Any],
    *,
    publish: bool = False,
    by_operator: bool = False,
) -> bool:
    """Save an unsubmitted draft, or publish it. Errors reject it, warnings do not.

    `base`: the layout as the editor loaded it. The save is rejected if the layout has changed since.
    """
    new, wrong = await LOOKING.run_large(reading_cost(given), drafts.with_fields, base, given)
    check_fields(wrong)
    check_problems(await LOOKING.run_large(PARSED * length_of(new), problems_of_layout, new))

    def rows(setup: Setup) -> list[Row]:
        now = setup.records.get(("layout", base.id))
        if isinstance(now, Layout) and proposed(setup, now) != base:
            raise InvalidRequest("Somebody changed this layout while you wrote. Look at it again, then save.")
        if not publish:
            return with_room(actor, setup, new.team, drafts.draft_rows(setup, _unsubmitted(base, new)))
        return with_room(actor, setup, new.team, _published(store, actor, setup, new, by_operator))

    def action(setup: Setup) -> str:
        return _action(setup, by_operator) if publish else "layout.save"

    return await change_rows(store, actor, new.team, action, new.id, rows)


def _unsubmitted(base: Layout, new: Layout) -> Layout:
    return new if new == base else replace(new, submitted_at=0)


async def publish(
    store: Store, actor: Actor, team: str, id_: str, *, by_operator: bool, mark: str | None = None
) -> bool:
    """Publish the draft: in use at once, or submitted for approval. `mark`: expected revision, not checked if None."""
    find(store.setup.current, team, id_)

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.find_draft(setup, id_)
        if mark is not None and (draft is None or mark_of(draft) != mark):
            raise InvalidRequest("This draft was changed meanwhile. Look at it again, then publish.")
        return _published(store, actor, setup, draft, by_operator) if draft else []

    return await change_rows(store, actor, team, lambda setup: _action(setup, by_operator), id_, rows)


def _published(store: Store, actor: Actor, setup: Setup, new: Layout, by_operator: bool) -> list[Row]:
    if goes_live(setup, by_operator=by_operator):
        return drafts.approved_rows(setup, new)
    return _submitted(store, actor, setup, new)


def _submitted(store: Store, actor: Actor, setup: Setup, new: Layout) -> list[Row]:
    at = store.clock.now() + setup.ahead(new.team)
    return [] if new.submitted_at else drafts.submitted_rows(setup, new, asker(actor), at)


def _action(setup: Setup, by_operator: bool) -> str:
    return "layout.publish" if goes_live(setup, by_operator=by_operator) else "layout.submit"


async def submit(store: Store, actor: Actor, team: str, id_: str) -> bool:
    """Submit the draft for approval by an operator."""
    find(store.setup.current, team, id_)

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.find_draft(setup, id_)
        return _submitted(store, actor, setup, draft) if draft else []

    return await change_rows(store, actor, team, "layout.submit", id_, rows)


async def approve(store: Store, actor: Actor, id_: str, mark: str | None = None) -> bool:
    """Approve the submitted draft and use it at once. `mark`: revision that the operator saw, not checked if None."""

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.seen(setup, id_, mark)
        return drafts.approved_rows(setup, draft) if draft else []

    return await _decided(store, actor, "layout.approve", id_, rows)


async def refuse(store: Store, actor: Actor, id_: str, mark: str | None, reason: str) -> bool:
    """Refuse a submitted draft and return it to its team with the reason."""
    reason = reason.strip()[:REASON_MAX]
    if not reason:
        raise InvalidRequest("Say why, so that the team can mend it.")

    def rows(setup: Setup) -> list[Row]:
        draft = drafts.seen(setup, id_, mark)
        return drafts.draft_rows(setup, replace(draft, submitted_at=0, refused_reason=reason)) if draft else []

    return await _decided(store, actor, "layout.refuse", id_, rows, reason)


async def _decided(
    store: Store, actor: Actor, action: str, id_: str, rows: Callable[[Setup], list[Row]], reason: str = ""
) -> bool:
    """Save an operator's decision and notify the requester."""
    new = proposed(store.setup.current, find(store.setup.current, None, id_))
    done = await change_rows(store, actor, new.team, action, id_, rows, reason)
    if done:
        text = f"The layout {new.name}"
        ruling = Ruling(
            team=new.team, kind="layout", text=text, approved=not reason, reason=reason, asked_by=new.asked_by, id=id_
        )
        await decided(store, actor, ruling)
    return done


async def archive(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Archive a layout: new templates cannot use it; templates that already use it keep it."""
    own = find(store.setup.current, team, id_).team
    return await change_rows(
        store, actor, own, "layout.archive", id_, lambda setup: drafts.archived_rows(setup, find(setup, team, id_))
    )
