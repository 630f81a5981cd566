"""Use cases of templates: save, publish, restore and archive templates; discard, approve or refuse drafts."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import ApprovalResult, notify_requester
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.refusals import InvalidRequest, InvalidTemplate, TemplateNotFound
from heliograph.domain.setup.plan import VERSIONED_TEMPLATE_FIELDS
from heliograph.domain.setup.records import Template
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.runtime.threads import READ_POOL
from heliograph.storage.store import Store
from heliograph.templates.policy import template_approvals as approvals
from heliograph.templates.policy.check import TemplateProblem, category_problems, layout_problems, total_length
from heliograph.templates.policy.lint import find_problems
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.template_edit import (
    apply_and_check,
    apply_fields,
    publishes_at_once,
    save_rows,
    submit_rows,
    unsubmitted_rows,
)
from heliograph.templates.policy.template_quota import check_quota

REASON_MAX = 500
LISTED_PROBLEMS_MAX = 3  # problems listed in an error message
# Fields that can be removed from a template.
REMOVABLE_FIELDS = ("subject", "html", "text", "body", "category", "language", "upstream_name", "layout")


def get(setup: Setup, team: str | None, id_: str) -> Template:
    """Return a template of the team, or of any team if `team` is None."""
    template = setup.records.get(("template", id_))
    if not isinstance(template, Template) or team not in (None, template.team):
        raise TemplateNotFound(f"There is no template {id_}. {TemplateNotFound.fix}", param="id")
    return template


def draft_or_current(setup: Setup, template: Template) -> Template:
    """Return the template's draft if it has one, else the template."""
    draft = approvals.find_draft(setup, template.id)
    return draft.template if draft else template


async def save(
    store: Store,
    actor: Actor,
    new: Template,
    *,
    revision: str | None,
    by_operator: bool,
    free: bool = False,
    publish: bool = True,
) -> bool:
    """Publish a template or submit it for approval; with `publish=False`, save it as an unsubmitted draft.

    `revision`: revision of the content that the editor loaded, to detect concurrent changes; None if the template is
    new. `free`: the operator confirms a price of 0.
    """

    def make_setup_rows(setup: Setup) -> list[Row]:
        old = setup.teams[new.team].templates.get(new.id)
        if revision is not None and (old is None or approvals.revision_of(draft_or_current(setup, old)) != revision):
            raise InvalidRequest("Someone changed this template while you were editing.", param="mark")
        if not publish:
            saved_at = store.clock.now() + setup.clock_offset(new.team)
            draft_rows = unsubmitted_rows(setup, new, by_operator=by_operator, author=actor.name, saved_at=saved_at)
            return check_row_quota(actor, setup, new.team, draft_rows)
        return _save_rows(store, actor, setup, new, by_operator, free)

    def choose_action(setup: Setup) -> str:
        return _publish_action(setup, new, by_operator) if publish else "template.save"

    return await change_rows(store, actor, new.team, choose_action, new.id, make_setup_rows)


class ProposedChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a template's fields requested through the API, in setup-file format."""

    template: Template  # the template that the fields change
    is_new: bool
    fields: Mapping[str, Any]


async def save_proposed(store: Store, actor: Actor, proposal: ProposedChange) -> bool:
    """Save an unsubmitted draft; the template in use does not change. Errors reject the draft, warnings do not."""
    template, team = proposal.template, store.setup.current.teams[proposal.template.team]
    new, errors = await READ_POOL.run_large(parsing_cost(proposal.fields), apply_fields, template, proposal.fields)
    check_fields(errors)
    layout = team.layouts.get(new.layout or "")
    problems = await READ_POOL.run_large(SCAN_COST_FACTOR * total_length(new), find_problems, new, layout)
    check_problems(
        [
            *problems,
            *layout_problems(new, team.layouts, {template.layout}),
            *category_problems(new, team.record.categories),
        ]
    )
    revision = None if proposal.is_new else approvals.revision_of(template)
    return await save(store, actor, new, revision=revision, by_operator=False, publish=False)


def check_problems(problems: Sequence[TemplateProblem]) -> None:
    errors = [problem for problem in problems if problem.level == "error"]
    if errors:
        listed = " ".join(f"{problem}." for problem in errors[:LISTED_PROBLEMS_MAX])
        raise InvalidTemplate(
            f"{listed} {InvalidTemplate.fix}",
            param=errors[0].part.partition(",")[0],
            details={"problems": msgspec.to_builtins(problems)},
        )


async def submit(store: Store, actor: Actor, team: str, id_: str) -> bool:
    """Submit a template's draft for approval by an operator, even if a team member could publish it directly."""
    get(store.setup.current, team, id_)

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = approvals.find_draft(setup, id_)
        now = store.clock.now() + setup.clock_offset(team)
        return submit_rows(setup, draft.template, actor.name, now) if draft else []

    return await change_rows(store, actor, team, "template.submit", id_, make_setup_rows)


async def publish(
    store: Store, actor: Actor, team: str | None, id_: str, revision: str, *, by_operator: bool, free: bool = False
) -> bool:
    """Publish the draft with this revision, or submit it for approval if an operator must decide."""
    team_id = get(store.setup.current, team, id_).team

    def make_setup_rows(setup: Setup) -> list[Row]:
        draft = approvals.find_draft_revision(setup, id_, revision)
        return _save_rows(store, actor, setup, draft.template, by_operator, free)

    def choose_action(setup: Setup) -> str:
        return _publish_action(setup, approvals.find_draft_revision(setup, id_, revision).template, by_operator)

    return await change_rows(store, actor, team_id, choose_action, id_, make_setup_rows)


async def restore(
    store: Store, actor: Actor, team: str | None, id_: str, version: int, *, by_operator: bool, free: bool = False
) -> bool:
    """Save the content of an old version as the newest version."""
    template, old = get(store.setup.current, team, id_), await store.versions.find_template(id_, version)
    if old is None:
        raise TemplateNotFound(f"There is no version {version} of {id_}.")
    content = {part: getattr(old, part) for part in (*VERSIONED_TEMPLATE_FIELDS, "examples")}

    def make_setup_rows(setup: Setup) -> list[Row]:
        return _save_rows(store, actor, setup, replace(get(setup, team, id_), **content), by_operator, free)

    return await change_rows(store, actor, template.team, "template.restore", id_, make_setup_rows)


async def archive(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Archive a template and discard its draft."""
    team_id = get(store.setup.current, team, id_).team

    def make_setup_rows(setup: Setup) -> list[Row]:
        template, discarded = get(setup, team, id_), approvals.discard_rows(setup, id_)
        if template.status != "approved":
            return discarded
        return [*discarded, to_row("template", id_, replace(template, status="archived"), team_id)]

    return await change_rows(store, actor, team_id, "template.archive", id_, make_setup_rows)


async def unarchive(
    store: Store, actor: Actor, team: str | None, id_: str, *, by_operator: bool, free: bool = False
) -> bool:
    team_id = get(store.setup.current, team, id_).team

    def make_setup_rows(setup: Setup) -> list[Row]:
        restored = replace(get(setup, team, id_), status="approved")
        return _save_rows(store, actor, setup, restored, by_operator, free)

    return await change_rows(store, actor, team_id, "template.unarchive", id_, make_setup_rows)


async def discard(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Discard a template's draft; a template that was never approved is deleted."""
    team_id = get(store.setup.current, team, id_).team
    return await change_rows(
        store, actor, team_id, "template.discard", id_, lambda setup: approvals.discard_rows(setup, id_)
    )


async def approve(
    store: Store,
    actor: Actor,
    team: str | None,
    id_: str,
    revision: str | None,
    prices: Mapping[str, Any] | None = None,
    *,
    free: bool = False,
) -> bool:
    """Approve the draft if it has this revision, or the current draft if `revision` is None.

    `prices` (in setup-file format) are set on an SMS or WhatsApp template and ignored for email.
    """
    template, new_prices = get(store.setup.current, team, id_), dict[str, Any]()
    if template.channel != "email" and prices is not None:
        priced, errors = await READ_POOL.run_large(
            SCAN_COST_FACTOR * total_length(template), apply_and_check, template, prices
        )
        check_fields(errors)
        new_prices = {"price": priced.price, "prices": priced.prices}

    def make_setup_rows(setup: Setup) -> list[Row]:
        return approvals.approve_rows(setup, id_, _expected_revision(setup, id_, revision), free=free, **new_prices)

    draft = approvals.find_draft(store.setup.current, id_)
    changed = await change_rows(store, actor, template.team, "template.approve", id_, make_setup_rows)
    if changed and draft:
        await notify_requester(store, actor, await _approval_result(store, draft, True))
    return changed


async def refuse(store: Store, actor: Actor, team: str | None, id_: str, revision: str | None, reason: str) -> bool:
    team_id, reason = get(store.setup.current, team, id_).team, reason.strip()
    if not reason:
        raise InvalidRequest("Enter a reason, so that the team can fix it.")

    def make_setup_rows(setup: Setup) -> list[Row]:
        return approvals.refuse_rows(setup, id_, _expected_revision(setup, id_, revision), reason[:REASON_MAX])

    draft = approvals.find_draft(store.setup.current, id_)
    changed = await change_rows(store, actor, team_id, "template.refuse", id_, make_setup_rows, reason)
    if changed and draft:
        await notify_requester(store, actor, await _approval_result(store, draft, False, reason[:REASON_MAX]))
    return changed


async def _approval_result(
    store: Store, draft: approvals.TemplateDraftState, approved: bool, reason: str = ""
) -> ApprovalResult:
    template = draft.template
    versions = [] if draft.author else await store.versions.list(template.id)
    return ApprovalResult(
        team=template.team,
        kind="template",
        text=f"The template {template.name}",
        approved=approved,
        reason=reason,
        requester=draft.author or (versions[0].person if versions else ""),
        id=template.id,
    )


def _expected_revision(setup: Setup, id_: str, revision: str | None) -> str:
    if revision is not None:
        return revision
    draft = approvals.find_draft(setup, id_)
    if draft is None or draft.template.unfinished:
        raise InvalidRequest(f"{id_} has no pending draft.")
    return draft.revision


def _publish_action(setup: Setup, new: Template, by_operator: bool) -> str:
    return "template.publish" if publishes_at_once(setup, new, by_operator=by_operator) else "template.submit"


def _save_rows(store: Store, actor: Actor, setup: Setup, new: Template, by_operator: bool, free: bool) -> list[Row]:
    saved_at = store.clock.now() + setup.clock_offset(new.team)
    rows = save_rows(setup, new, by_operator=by_operator, author=actor.name, saved_at=saved_at, free=free)
    return check_row_quota(actor, setup, new.team, rows)


def check_row_quota(actor: Actor, setup: Setup, team: str, rows: list[Row]) -> list[Row]:
    """Return the rows if they fit in the team's template quota, else reject them. The command line is exempt."""
    if rows and actor != COMMAND_LINE:
        check_quota(setup, team, rows)
    return rows
