"""What becomes of a template: saved, restored, archived, approved, refused."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.views.template_find import current, find_in, number, version_of
from heliograph.dashboard.views.template_form import is_free, prices_given
from heliograph.dashboard.views.templates import show_template
from heliograph.dashboard.visit import Answer, Gone, Redirect, Visit
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup import template_approvals as approvals
from heliograph.rules.setup.plan import CONTENT
from heliograph.rules.setup.records import Template
from heliograph.rules.setup.snapshot import Row, Setup, to_row
from heliograph.rules.setup.template_edit import read_template, save_rows
from heliograph.storage.setup import SetupChange


async def restore(visit: Visit) -> Answer:
    """An old version's content becomes the newest version."""
    template = current(visit)
    old = await version_of(visit, template.id, number(visit.form.get("version", "")))
    if old is None:
        raise Gone
    content = {part: getattr(old, part) for part in (*CONTENT, "examples")}
    return await _saved(visit, "template.restore", lambda template: replace(template, **content))


async def archive(visit: Visit) -> Answer:
    """Out of use; what waits for approval goes with it."""

    def rows(now: Setup) -> list[Row]:
        template = find_in(now, visit)
        if template.status == "draft":
            return approvals.discard(now, template.id)
        archived = replace(template, status="archived")
        return [*approvals.discard(now, template.id), to_row("template", template.id, archived, template.team)]

    await visit.change_setup("template.archive", visit.params["template"], lambda now: SetupChange(rows=rows(now)))
    return Redirect(f"{visit.base}/templates", "Archived. Sends that name it are refused from now on.")


async def unarchive(visit: Visit) -> Answer:
    return await _saved(visit, "template.unarchive", lambda template: replace(template, status="approved"))


async def discard(visit: Visit) -> Answer:
    id_ = current(visit).id
    await visit.change_setup("template.discard", id_, lambda now: SetupChange(rows=approvals.discard(now, id_)))
    return Redirect(f"{visit.base}/templates", "The draft is discarded.")


async def approve(visit: Visit) -> Answer:
    """A phone template at the prices of the form; an email's is not asked for."""
    template, form = current(visit), visit.form
    id_ = template.id
    terms: dict[str, Any] = {}
    errors: dict[str, str] = {}
    if template.channel != "email":
        priced, errors = read_template(template, prices_given(form))
        terms = {"price": priced.price, "prices": priced.prices, "free": is_free(form)}
    if not errors:
        try:
            return await changed(
                visit, "template.approve", id_, lambda now: approvals.approve(now, id_, form.get("mark", ""), **terms)
            )
        except InvalidRequest as refusal:
            if refusal.param is None:
                raise
            errors = {refusal.param: refusal.message}
    return await show_template(visit, errors)


async def refuse(visit: Visit) -> Answer:
    id_, mark, reason = current(visit).id, visit.form.get("mark", ""), visit.form.get("reason", "").strip()
    if not reason:
        raise InvalidRequest("Say why, so that the team can mend it.")
    await visit.change_setup(
        "template.refuse", id_, lambda now: SetupChange(rows=approvals.refuse(now, id_, mark, reason[:500])), reason
    )
    return Redirect(f"{visit.base}/templates/{id_}", "Refused; the team sees your reason.")


async def changed(visit: Visit, action: str, id_: str, rows: Callable[[Setup], list[Row]]) -> Answer:
    """Write the rows, and tell what that means for the template."""
    done = await visit.change_setup(action, id_, lambda now: SetupChange(rows=rows(now)))
    told = f"Saved. Version {visit.setup.teams[visit.team.record.id].templates[id_].version} is in use."
    if approvals.find_draft(visit.setup, id_):
        told = "Saved as a draft. An operator approves it before it is sent."
    return Redirect(f"{visit.base}/templates/{id_}", told if done.rows else "Nothing was changed.")


def saved_rows(visit: Visit, now: Setup, template: Template) -> list[Row]:
    by, at = visit.person.person, visit.context.clock.now()
    return save_rows(now, template, operator=visit.may("operator"), by=by, at=at, free=is_free(visit.form))


async def _saved(visit: Visit, action: str, change: Callable[[Template], Template]) -> Answer:
    """Save the template of the path, changed."""
    return await changed(
        visit,
        action,
        visit.params["template"],
        lambda now: saved_rows(visit, now, change(find_in(now, visit))),
    )
