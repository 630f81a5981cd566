"""Platform keys, for operators: creation, list with last use, revocation.

A platform key manages teams, but belongs to none.
"""

from typing import Any

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.keys import NewKey, end_of_day
from heliograph.texts.dashboard_links import operator_page


async def show(request: PageRequest, **values: Any) -> Page:
    rows = await keys.list_keys(request.store, PLATFORM_TEAM, request.context.state.last_used)
    page_values = {"keys": rows, "token": "", "new_key": None, "form": {}, "errors": {}} | values
    return Page("platform_keys.html", page_values, 400 if page_values["errors"] else 200)


async def create(request: PageRequest) -> PageResponse:
    form = request.form
    new_key = NewKey(
        team=PLATFORM_TEAM,
        name=form.get("name", ""),
        scopes=("operate",),
        expires_at=end_of_day(form["expires"]) if form.get("expires") else None,
        networks=tuple(form.get("networks", "").replace(",", " ").split()),
    )
    try:
        created = await keys.create(request.store, request.actor, new_key)
    except InvalidRequest as refusal:
        return await show(request, form=form, errors=field_errors(refusal))
    return await show(request, token=created.token, new_key=created.key)


async def revoke(request: PageRequest) -> PageResponse:
    key = await keys.revoke(request.store, request.actor, request.params["key"], PLATFORM_TEAM)
    return Redirect(operator_page("key"), f"Key {key.name} revoked.")
