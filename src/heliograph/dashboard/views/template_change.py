"""Changes of a template's state: publish, restore, archive, approve, refuse."""

from typing import Any

from heliograph.dashboard.page_request import PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.views.template_form import is_free, price_fields
from heliograph.dashboard.views.template_search import parse_number
from heliograph.dashboard.views.templates import show_template
from heliograph.domain.refusals import InvalidRequest
from heliograph.templates import service as templates
from heliograph.templates.policy.template_approvals import find_draft


async def publish(request: PageRequest) -> PageResponse:
    """Publish the draft, if it is still the one that the user saw."""
    revision, terms = request.form.get("mark", ""), _publish_terms(request)
    is_changed = await templates.publish(request.store, request.actor, *_template_args(request), revision, **terms)
    return saved_redirect(request, request.params["template"], is_changed)


async def restore(request: PageRequest) -> PageResponse:
    """Publish the content of an old version as a new version."""
    version, terms = parse_number(request.form.get("version", "")), _publish_terms(request)
    is_changed = await templates.restore(request.store, request.actor, *_template_args(request), version, **terms)
    return saved_redirect(request, request.params["template"], is_changed)


async def archive(request: PageRequest) -> PageResponse:
    await templates.archive(request.store, request.actor, *_template_args(request))
    return Redirect(f"{request.team_path}/templates", "Template archived. Messages that use it are now refused.")


async def unarchive(request: PageRequest) -> PageResponse:
    is_changed = await templates.unarchive(
        request.store, request.actor, *_template_args(request), **_publish_terms(request)
    )
    return saved_redirect(request, request.params["template"], is_changed)


async def discard(request: PageRequest) -> PageResponse:
    await templates.discard(request.store, request.actor, *_template_args(request))
    id_ = request.params["template"]
    still_exists = id_ in request.setup.teams[request.team.record.id].templates
    return Redirect(f"{request.team_path}/templates/{id_ if still_exists else ''}".rstrip("/"), "Draft discarded.")


async def approve(request: PageRequest) -> PageResponse:
    """Approve the template. For SMS and WhatsApp, the form contains its prices; an email template needs none."""
    form = request.form
    revision, prices, is_free_template = form.get("mark", ""), price_fields(form), is_free(form)
    try:
        is_changed = await templates.approve(
            request.store, request.actor, *_template_args(request), revision, prices, free=is_free_template
        )
    except InvalidRequest as refusal:
        if refusal.param is None:
            raise
        return await show_template(request, field_errors(refusal))
    return saved_redirect(request, request.params["template"], is_changed)


async def refuse(request: PageRequest) -> PageResponse:
    revision, reason = request.form.get("mark", ""), request.form.get("reason", "")
    await templates.refuse(request.store, request.actor, *_template_args(request), revision, reason)
    return Redirect(
        f"{request.team_path}/templates/{request.params['template']}", "Refused. The team can see your reason."
    )


def saved_redirect(request: PageRequest, id_: str, is_changed: bool) -> Redirect:
    """Redirect to the template. A notice says whether the change is published or waits for approval."""
    notice = f"Published. Version {request.setup.teams[request.team.record.id].templates[id_].version} is in use."
    if find_draft(request.setup, id_):
        notice = "Submitted. It takes effect once an operator approves it."
    return Redirect(f"{request.team_path}/templates/{id_}?saved=yes", notice if is_changed else "No changes.")


def _template_args(request: PageRequest) -> tuple[str, str]:
    return request.team.record.id, request.params["template"]


def _publish_terms(request: PageRequest) -> dict[str, Any]:
    return {"by_operator": request.has_role("operator"), "free": is_free(request.form)}
