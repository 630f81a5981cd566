"""API keys of a team: creation, permissions and last use, rotation with an overlap, revocation."""

from typing import Any

from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeyLine, WantedKey, end_of
from heliograph.templates.policy.values import wrong_passthrough

SCOPES: tuple[Scope, ...] = ("send", "manage")
KINDS = [("", "A program, which sends the token"), ("hook", "Supabase's auth hooks, which sign with a secret")]


async def create(visit: Visit) -> Answer:
    form = visit.form
    wanted = WantedKey(
        team=visit.team.record.id,
        name=form.get("name", ""),
        scopes=tuple(scope for scope in SCOPES if form.get(scope)),
        domain=form.get("domain") or None,
        expires_at=end_of(form["expires"]) if form.get("expires") else None,
        networks=tuple(form.get("networks", "").replace(",", " ").split()),
        passthrough=form.get("passthrough", ""),
        hook=form.get("kind") == "hook",
    )
    try:
        made = await keys.create(visit.store, visit.actor, wanted, visit.tools.seal)
    except InvalidRequest as refusal:
        return _new(visit, form, errors_of(refusal))
    return await show(visit, token=made.token, made=made.key)


async def rotate(visit: Visit) -> Answer:
    """Create a new key with the same permissions; the old key stays valid for a day."""
    id_ = visit.params["key"]
    try:
        made = await keys.rotate(visit.store, visit.actor, id_, visit.team.record.id, visit.tools.seal)
    except InvalidRequest as refusal:
        return Redirect(f"{visit.base}/keys/{id_}", refusal.message)
    return await show(visit, token=made.token, made=made.key, old=made.old)


async def revoke(visit: Visit) -> Answer:
    key = await keys.revoke(visit.store, visit.actor, visit.params["key"], visit.team.record.id)
    return Redirect(f"{visit.base}/keys", f"The key {key.name} is revoked.")


# -- pages ----------------------------------------------------------------------------------------------------


async def _lines(visit: Visit) -> list[KeyLine]:
    return await keys.lines(visit.store, visit.team.record.id, visit.context.state.used)


async def show(visit: Visit, **values: Any) -> Page:
    lines = await _lines(visit)
    return Page("keys.html", {"token": "", "made": None, "old": None, "keys": lines} | values)


async def show_new(visit: Visit) -> Page:
    return _new(visit, {"send": "yes"})


def _new(visit: Visit, form: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    domains = [("", "Any domain of the team"), *((name, name) for name in visit.team.domains)]
    fitting = [(one.id, one.name) for one in visit.team.templates.values() if not wrong_passthrough(one)]
    shown = {"domains": domains, "passthroughs": [("", "None"), *fitting], "kinds": KINDS, "form": form}
    return Page("key_new.html", shown | {"errors": errors or {}}, 400 if errors else 200)


async def show_one(visit: Visit) -> Page:
    for line in await _lines(visit):
        if line.record.id == visit.params["key"]:
            return Page("key.html", {"key": line})
    raise Gone
