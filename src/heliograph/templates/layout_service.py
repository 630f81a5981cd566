"""Use cases of layouts: save drafts, publish, submit, approve, refuse and archive layouts."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from heliograph.changes.decisions import ApprovalResult, notify_requester, requester_id
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.refusals import InvalidRequest, LayoutNotFound
from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.runtime.threads import READ_POOL
from heliograph.storage.store import Store
from heliograph.templates.policy import layout_drafts as drafts
from heliograph.templates.policy.check import total_length
from heliograph.templates.policy.lint import find_layout_problems
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.template_approvals import revision_of
from heliograph.templates.service import REASON_MAX, check_problems, check_row_quota


def get(setup: Setup, team: str | None, id_: str) -> Layout:
    """Return a layout of the team, or of any team if `team` is None."""
    layout = setup.records.get(("layout", id_))
    if not isinstance(layout, Layout) or team not in (None, layout.team):
        raise LayoutNotFound(f"There is no layout {id_}. {LayoutNotFound.fix}", param="id")
    return layout


def draft_or_current(setup: Setup, layout: Layout) -> Layout:
    """Return the layout's draft if it has one, else the layout."""
    return drafts.find_draft(setup, layout.id) or layout


def publishes_at_once(setup: Setup, *, by_operator: bool) -> bool:
    """Return whether publishing takes effect at once; otherwise an operator must approve the layout."""
    return by_operator or not setup.platform.templates_need_approval


async def save(
    store: Store,
    actor: Actor,
    loaded: Layout,
    fields: Mapping[str, Any],
    *,
    publish: bool = False,
    by_operator: bool = False,
) -> bool:
    """Save a layout as an unsubmitted draft, or publish it. Errors prevent saving, warnings do not.

    `loaded`: the layout as the editor loaded it. The save is rejected if the layout has changed since.
    """
    new, errors = await READ_POOL.run_large(parsing_cost(fields), drafts.apply_fields, loaded, fields)
    check_fields(errors)
    check_problems(await READ_POOL.run_large(SCAN_COST_FACTOR * total_length(new), find_layout_problems, new))

    def make_setup_rows(setup: Setup) -> list[Row]:
        current = setup.records.get(("layout", loaded.id))
        if isinstance(current, Layout) and draft_or_current(setup, current) != loaded:
            raise InvalidRequest("Someone changed this layout while you were editing. Review it, then save again.")
        if not publish:
            unsubmitted_draft = new if new == loaded else replace(new, submitted_at=0)
            return check_row_quota(actor, setup, new.team, drafts.draft_rows(setup, unsubmitted_draft))
        return check_row_quota(actor, setup, new.team, _publish_rows(store, actor, setup, new, by_operator))

    def choose_action(setup: Setup) -> str:
        return _publish_action(setup, by_operator) if publish else "layout.save"

    return await change_rows(store, actor, new.team, choose_action, new.id, make_setup_rows)


async def publish(
    store: Store, actor: Actor, team: str, id_: str, *, by_operator: bool, revision: str | None = None
) -> bool:
    """Publish a layout's draft, or submit it for approval. `revision`: expected revision; None skips the check."""
    get(store.setup.current, team, id_)

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = drafts.find_draft(setup, id_)
        if revision is not None and (draft is None or revision_of(draft) != revision):
            raise InvalidRequest("This draft was changed in the meantime. Review it again, then publish.")
        return _publish_rows(store, actor, setup, draft, by_operator) if draft else []

    return await change_rows(
        store, actor, team, lambda setup: _publish_action(setup, by_operator), id_, make_setup_rows
    )


def _publish_rows(store: Store, actor: Actor, setup: Setup, new: Layout, by_operator: bool) -> list[Row]:
    if publishes_at_once(setup, by_operator=by_operator):
        return drafts.approve_rows(setup, new)
    return _submit_rows(store, actor, setup, new)


def _submit_rows(store: Store, actor: Actor, setup: Setup, new: Layout) -> list[Row]:
    submitted_at = store.clock.now() + setup.clock_offset(new.team)
    return [] if new.submitted_at else drafts.submit_rows(setup, new, requester_id(actor), submitted_at)


def _publish_action(setup: Setup, by_operator: bool) -> str:
    return "layout.publish" if publishes_at_once(setup, by_operator=by_operator) else "layout.submit"


async def submit(store: Store, actor: Actor, team: str, id_: str) -> bool:
    """Submit a layout's draft for approval by an operator."""
    get(store.setup.current, team, id_)

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = drafts.find_draft(setup, id_)
        return _submit_rows(store, actor, setup, draft) if draft else []

    return await change_rows(store, actor, team, "layout.submit", id_, make_setup_rows)


async def approve(store: Store, actor: Actor, id_: str, revision: str | None = None) -> bool:
    """Approve the submitted draft and put it into use. `revision`: the one reviewed; None skips the check."""

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = drafts.find_submitted(setup, id_, revision)
        return drafts.approve_rows(setup, draft) if draft else []

    return await _save_decision(store, actor, "layout.approve", id_, make_setup_rows)


async def refuse(store: Store, actor: Actor, id_: str, revision: str | None, reason: str) -> bool:
    """Refuse a submitted draft and return it to its team with the reason. `revision` as in `approve`."""
    reason = reason.strip()[:REASON_MAX]
    if not reason:
        raise InvalidRequest("Enter a reason, so that the team can fix it.")

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = drafts.find_submitted(setup, id_, revision)
        return drafts.draft_rows(setup, replace(draft, submitted_at=0, refused_reason=reason)) if draft else []

    return await _save_decision(store, actor, "layout.refuse", id_, make_setup_rows, reason)


async def _save_decision(
    store: Store, actor: Actor, action: str, id_: str, rows: Callable[[Setup], list[Row]], reason: str = ""
) -> bool:
    """Save an operator's decision about a layout and notify the person who submitted it."""
    layout = draft_or_current(store.setup.current, get(store.setup.current, None, id_))
    changed = await change_rows(store, actor, layout.team, action, id_, rows, reason)
    if changed:
        text = f"The layout {layout.name}"
        result = ApprovalResult(
            team=layout.team,
            kind="layout",
            text=text,
            approved=not reason,
            reason=reason,
            requester=layout.asked_by,
            id=id_,
        )
        await notify_requester(store, actor, result)
    return changed


async def archive(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Archive a layout: templates can no longer select it, but templates that already use it keep using it."""
    team_id = get(store.setup.current, team, id_).team
    return await change_rows(
        store, actor, team_id, "layout.archive", id_, lambda setup: drafts.archive_rows(setup, get(setup, team, id_))
    )
