"""API keys of a team: creation, permissions and last use, rotation with an overlap, revocation."""

from typing import Any

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeySummary, NewKey, end_of_day
from heliograph.templates.policy.values import passthrough_error

SCOPES: tuple[Scope, ...] = ("send", "manage")
KIND_OPTIONS = [("", "A program (authenticates with a token)"), ("hook", "Supabase auth hooks (signed with a secret)")]


async def create(request: PageRequest) -> PageResponse:
    form = request.form
    new_key = NewKey(
        team=request.team.record.id,
        name=form.get("name", ""),
        scopes=tuple(scope for scope in SCOPES if form.get(scope)),
        domain=form.get("domain") or None,
        expires_at=end_of_day(form["expires"]) if form.get("expires") else None,
        networks=tuple(form.get("networks", "").replace(",", " ").split()),
        passthrough=form.get("passthrough", ""),
        hook=form.get("kind") == "hook",
    )
    try:
        created = await keys.create(request.store, request.actor, new_key, request.tools.encrypt)
    except InvalidRequest as refusal:
        return _new_page(request, form, field_errors(refusal))
    return await show(request, token=created.token, new_key=created.key)


async def rotate(request: PageRequest) -> PageResponse:
    """Create a new key with the same permissions; the old key stays valid for a day."""
    id_ = request.params["key"]
    try:
        created = await keys.rotate(request.store, request.actor, id_, request.team.record.id, request.tools.encrypt)
    except InvalidRequest as refusal:
        return Redirect(f"{request.team_path}/keys/{id_}", refusal.message)
    return await show(request, token=created.token, new_key=created.key, old_key=created.old)


async def revoke(request: PageRequest) -> PageResponse:
    key = await keys.revoke(request.store, request.actor, request.params["key"], request.team.record.id)
    return Redirect(f"{request.team_path}/keys", f"Key {key.name} revoked.")


# -- pages ----------------------------------------------------------------------------------------------------


async def _list_keys(request: PageRequest) -> list[KeySummary]:
    return await keys.list_keys(request.store, request.team.record.id, request.context.state.last_used)


async def show(request: PageRequest, **values: Any) -> Page:
    rows = await _list_keys(request)
    return Page("keys.html", {"token": "", "new_key": None, "old_key": None, "keys": rows} | values)


async def show_new(request: PageRequest) -> Page:
    return _new_page(request, {"send": "yes"})


def _new_page(request: PageRequest, form: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    domains = [("", "Any of the team's domains"), *((name, name) for name in request.team.domains)]
    usable_templates = [
        (template.id, template.name) for template in request.team.templates.values() if not passthrough_error(template)
    ]
    values = {
        "domains": domains,
        "passthroughs": [("", "None"), *usable_templates],
        "kinds": KIND_OPTIONS,
        "form": form,
    }
    return Page("key_new.html", values | {"errors": errors or {}}, 400 if errors else 200)


async def show_key(request: PageRequest) -> Page:
    for row in await _list_keys(request):
        if row.record.id == request.params["key"]:
            return Page("key.html", {"key": row})
    raise PageNotFound
