"""Platform keys, for operators: creation, list with last use, revocation.

A platform key manages teams, but belongs to none.
"""

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Key
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.keys import NewKey, end_of_day
from heliograph.texts.dashboard_links import operator_page


async def show(request: PageRequest, token: str = "", new_key: Key | None = None) -> Page:
    rows = await keys.list_keys(request.store, PLATFORM_TEAM, request.context.state.last_used)
    return Page("platform_keys.html", {"keys": rows, "token": token, "new_key": new_key})


async def show_new(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    return Page.form("platform_key_new.html", {"form": request.form if errors else {}}, errors)


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
        return await show_new(request, field_errors(refusal))
    return await show(request, token=created.token, new_key=created.key)


async def revoke(request: PageRequest) -> PageResponse:
    key = await keys.revoke(request.store, request.actor, request.params["key"], PLATFORM_TEAM)
    return Redirect(operator_page("key"), f"Key {key.name} revoked.")
