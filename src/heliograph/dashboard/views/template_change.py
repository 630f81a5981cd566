"""State changes of a template: publish, restore, archive, approve, refuse."""

from typing import Any

from heliograph.dashboard.page_request import Answer, Redirect, Visit, errors_of
from heliograph.dashboard.views.template_form import is_free, prices_given
from heliograph.dashboard.views.template_search import number
from heliograph.dashboard.views.templates import show_template
from heliograph.domain.refusals import InvalidRequest
from heliograph.templates import service as templates
from heliograph.templates.policy.template_approvals import find_draft


async def publish(visit: Visit) -> Answer:
    """Publish the draft that the user saw."""
    mark, terms = visit.form.get("mark", ""), _terms(visit)
    done = await templates.publish(visit.store, visit.actor, *_named(visit), mark, **terms)
    return saved(visit, visit.params["template"], done)


async def restore(visit: Visit) -> Answer:
    """Publish the content of an old version as the newest version."""
    version, terms = number(visit.form.get("version", "")), _terms(visit)
    done = await templates.restore(visit.store, visit.actor, *_named(visit), version, **terms)
    return saved(visit, visit.params["template"], done)


async def archive(visit: Visit) -> Answer:
    await templates.archive(visit.store, visit.actor, *_named(visit))
    return Redirect(f"{visit.base}/templates", "Archived. Sends that name it are refused from now on.")


async def unarchive(visit: Visit) -> Answer:
    done = await templates.unarchive(visit.store, visit.actor, *_named(visit), **_terms(visit))
    return saved(visit, visit.params["template"], done)


async def discard(visit: Visit) -> Answer:
    await templates.discard(visit.store, visit.actor, *_named(visit))
    id_ = visit.params["template"]
    still = id_ in visit.setup.teams[visit.team.record.id].templates
    return Redirect(f"{visit.base}/templates/{id_ if still else ''}".rstrip("/"), "Draft discarded.")


async def approve(visit: Visit) -> Answer:
    """Approve an SMS or WhatsApp template at the form's prices; email templates need no price."""
    form = visit.form
    mark, prices, free = form.get("mark", ""), prices_given(form), is_free(form)
    try:
        done = await templates.approve(visit.store, visit.actor, *_named(visit), mark, prices, free=free)
    except InvalidRequest as refusal:
        if refusal.param is None:
            raise
        return await show_template(visit, errors_of(refusal))
    return saved(visit, visit.params["template"], done)


async def refuse(visit: Visit) -> Answer:
    mark, reason = visit.form.get("mark", ""), visit.form.get("reason", "")
    await templates.refuse(visit.store, visit.actor, *_named(visit), mark, reason)
    return Redirect(f"{visit.base}/templates/{visit.params['template']}", "Refused. The team sees your reason.")


def saved(visit: Visit, id_: str, done: bool) -> Redirect:
    """Redirect to the template with a notice whether the change is published or submitted for approval."""
    told = f"Published. Version {visit.setup.teams[visit.team.record.id].templates[id_].version} is in use."
    if find_draft(visit.setup, id_):
        told = "Submitted. It is used when an operator approves it."
    return Redirect(f"{visit.base}/templates/{id_}?saved=yes", told if done else "Nothing was changed.")


def _named(visit: Visit) -> tuple[str, str]:
    return visit.team.record.id, visit.params["template"]


def _terms(visit: Visit) -> dict[str, Any]:
    return {"by_operator": visit.may("operator"), "free": is_free(visit.form)}
