"""Use cases of templates: save, publish, restore, archive, unarchive; discard, approve or refuse drafts."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import Ruling, decided
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.limits import PARSED
from heliograph.domain.refusals import InvalidRequest, InvalidTemplate, TemplateNotFound
from heliograph.domain.setup.plan import CONTENT
from heliograph.domain.setup.records import Template
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.runtime.threads import LOOKING
from heliograph.storage.store import Store
from heliograph.templates.policy import template_approvals as approvals
from heliograph.templates.policy.check import TemplateProblem, layout_problems, length_of
from heliograph.templates.policy.lint import problems_of
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.template_edit import (
    goes_live,
    read_template,
    save_rows,
    submitted_rows,
    unfinished_rows,
    with_fields,
)
from heliograph.templates.policy.template_quota import check_room

REASON_MAX = 500
TOLD_MAX = 3  # problems listed in an error message
# Fields that can be removed from a template.
REMOVABLE = ("subject", "html", "text", "body", "category", "language", "upstream_name", "layout")


def find(setup: Setup, team: str | None, id_: str) -> Template:
    """Return a template of the team, or of any team if `team` is None."""
    found = setup.records.get(("template", id_))
    if not isinstance(found, Template) or team not in (None, found.team):
        raise TemplateNotFound(f"There is no template {id_}. {TemplateNotFound.fix}", param="id")
    return found


def proposed(setup: Setup, template: Template) -> Template:
    """Return the template's draft if it has one, else the template."""
    draft = approvals.find_draft(setup, template.id)
    return draft.template if draft else template


async def save(
    store: Store,
    actor: Actor,
    new: Template,
    *,
    mark: str | None,
    by_operator: bool,
    free: bool = False,
    publish: bool = True,
) -> bool:
    """Save a template, or with `publish=False` a draft that is not submitted for approval.

    `mark`: revision of the content that the editor loaded, to detect concurrent changes; None if the template is new.
    """

    def rows(setup: Setup) -> list[Row]:
        old = setup.teams[new.team].templates.get(new.id)
        if mark is not None and (old is None or approvals.mark_of(proposed(setup, old)) != mark):
            raise InvalidRequest("Somebody changed this template while you wrote.", param="mark")
        if not publish:
            at = store.clock.now() + setup.ahead(new.team)
            kept = unfinished_rows(setup, new, operator=by_operator, by=actor.name, at=at)
            return with_room(actor, setup, new.team, kept)
        return _saved(store, actor, setup, new, by_operator, free)

    def action(setup: Setup) -> str:
        return _published(setup, new, by_operator) if publish else "template.save"

    return await change_rows(store, actor, new.team, action, new.id, rows)


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a template's fields requested through the API, in setup-file format."""

    base: Template  # the template that the fields change
    is_new: bool
    given: Mapping[str, Any]


async def write(store: Store, actor: Actor, proposal: Proposal) -> bool:
    """Save an unsubmitted draft; the template in use does not change. Errors reject the draft, warnings do not."""
    base, team = proposal.base, store.setup.current.teams[proposal.base.team]
    new, wrong = await LOOKING.run_large(reading_cost(proposal.given), with_fields, base, proposal.given)
    check_fields(wrong)
    layout = team.layouts.get(new.layout or "")
    problems = await LOOKING.run_large(PARSED * length_of(new), problems_of, new, layout)
    check_problems([*problems, *layout_problems(new, team.layouts, {base.layout})])
    mark = None if proposal.is_new else approvals.mark_of(base)
    return await save(store, actor, new, mark=mark, by_operator=False, publish=False)


def check_problems(problems: Sequence[TemplateProblem]) -> None:
    errors = [one for one in problems if one.level == "error"]
    if errors:
        told = " ".join(f"{one}." for one in errors[:TOLD_MAX])
        raise InvalidTemplate(
            f"{told} {InvalidTemplate.fix}",
            param=errors[0].part.partition(",")[0],
            details={"problems": msgspec.to_builtins(problems)},
        )


async def submit(store: Store, actor: Actor, team: str, id_: str) -> bool:
    """Submit the draft for approval by an operator, even if a team member could publish it directly."""
    find(store.setup.current, team, id_)

    def rows(setup: Setup) -> list[Row]:
        draft = approvals.find_draft(setup, id_)
        now = store.clock.now() + setup.ahead(team)
        return submitted_rows(setup, draft.template, actor.name, now) if draft else []

    return await change_rows(store, actor, team, "template.submit", id_, rows)


async def publish(
    store: Store, actor: Actor, team: str | None, id_: str, mark: str, *, by_operator: bool, free: bool = False
) -> bool:
    """Publish the draft with revision `mark`: in use at once, or submitted for approval if an operator must decide."""
    own = find(store.setup.current, team, id_).team

    def rows(setup: Setup) -> list[Row]:
        draft = approvals.seen(setup, id_, mark)
        return _saved(store, actor, setup, draft.template, by_operator, free)

    def action(setup: Setup) -> str:
        return _published(setup, approvals.seen(setup, id_, mark).template, by_operator)

    return await change_rows(store, actor, own, action, id_, rows)


async def restore(
    store: Store, actor: Actor, team: str | None, id_: str, version: int, *, by_operator: bool, free: bool = False
) -> bool:
    """Save the content of an old version as the newest version."""
    template, old = find(store.setup.current, team, id_), await store.versions.find(id_, version)
    if old is None:
        raise TemplateNotFound(f"There is no version {version} of {id_}.")
    content = {part: getattr(old, part) for part in (*CONTENT, "examples")}

    def rows(setup: Setup) -> list[Row]:
        return _saved(store, actor, setup, replace(find(setup, team, id_), **content), by_operator, free)

    return await change_rows(store, actor, template.team, "template.restore", id_, rows)


async def archive(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Archive a template and discard its draft."""
    own = find(store.setup.current, team, id_).team

    def rows(setup: Setup) -> list[Row]:
        template, discarded = find(setup, team, id_), approvals.discard(setup, id_)
        if template.status != "approved":
            return discarded
        return [*discarded, to_row("template", id_, replace(template, status="archived"), own)]

    return await change_rows(store, actor, own, "template.archive", id_, rows)


async def unarchive(
    store: Store, actor: Actor, team: str | None, id_: str, *, by_operator: bool, free: bool = False
) -> bool:
    own = find(store.setup.current, team, id_).team

    def rows(setup: Setup) -> list[Row]:
        back = replace(find(setup, team, id_), status="approved")
        return _saved(store, actor, setup, back, by_operator, free)

    return await change_rows(store, actor, own, "template.unarchive", id_, rows)


async def discard(store: Store, actor: Actor, team: str | None, id_: str) -> bool:
    """Discard the draft; a template that was never approved is deleted."""
    own = find(store.setup.current, team, id_).team
    return await change_rows(store, actor, own, "template.discard", id_, lambda setup: approvals.discard(setup, id_))


async def approve(
    store: Store,
    actor: Actor,
    team: str | None,
    id_: str,
    mark: str | None,
    prices: Mapping[str, Any] | None = None,
    *,
    free: bool = False,
) -> bool:
    """Approve the draft with revision `mark`, or the current draft if None.

    `prices` (in setup-file format) are set on an SMS or WhatsApp template and ignored for email.
    """
    template, terms = find(store.setup.current, team, id_), dict[str, Any]()
    if template.channel != "email" and prices is not None:
        priced, errors = await LOOKING.run_large(PARSED * length_of(template), read_template, template, prices)
        check_fields(errors)
        terms = {"price": priced.price, "prices": priced.prices}

    def rows(setup: Setup) -> list[Row]:
        return approvals.approve(setup, id_, _mark(setup, id_, mark), free=free, **terms)

    draft = approvals.find_draft(store.setup.current, id_)
    done = await change_rows(store, actor, template.team, "template.approve", id_, rows)
    if done and draft:
        await decided(store, actor, await _decision(store, draft, True))
    return done


async def refuse(store: Store, actor: Actor, team: str | None, id_: str, mark: str | None, reason: str) -> bool:
    own, reason = find(store.setup.current, team, id_).team, reason.strip()
    if not reason:
        raise InvalidRequest("Say why, so that the team can mend it.")

    def rows(setup: Setup) -> list[Row]:
        return approvals.refuse(setup, id_, _mark(setup, id_, mark), reason[:REASON_MAX])

    draft = approvals.find_draft(store.setup.current, id_)
    done = await change_rows(store, actor, own, "template.refuse", id_, rows, reason)
    if done and draft:
        await decided(store, actor, await _decision(store, draft, False, reason[:REASON_MAX]))
    return done


async def _decision(store: Store, draft: approvals.PendingTemplate, approved: bool, reason: str = "") -> Ruling:
    new = draft.template
    written = [] if draft.by else await store.versions.of(new.id)
    return Ruling(
        team=new.team,
        kind="template",
        text=f"The template {new.name}",
        approved=approved,
        reason=reason,
        asked_by=draft.by or (written[0].person if written else ""),
        id=new.id,
    )


def _mark(setup: Setup, id_: str, seen: str | None) -> str:
    if seen is not None:
        return seen
    draft = approvals.find_draft(setup, id_)
    if draft is None or draft.template.unfinished:
        raise InvalidRequest(f"{id_} has no draft that waits.")
    return draft.mark


def _published(setup: Setup, new: Template, by_operator: bool) -> str:
    return "template.publish" if goes_live(setup, new, operator=by_operator) else "template.submit"


def _saved(store: Store, actor: Actor, setup: Setup, new: Template, by_operator: bool, free: bool) -> list[Row]:
    at = store.clock.now() + setup.ahead(new.team)
    rows = save_rows(setup, new, operator=by_operator, by=actor.name, at=at, free=free)
    return with_room(actor, setup, new.team, rows)


def with_room(actor: Actor, setup: Setup, team: str, rows: list[Row]) -> list[Row]:
    """Return the rows if they fit in the team's template quota. The command line is exempt from the quota."""
    if rows and actor != COMMAND_LINE:
        check_room(setup, team, rows)
    return rows
