"""API keys: making one, what each may do and when it was last used, rotating with an overlap, revoking."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.rules.ids import parse_timestamp
from heliograph.rules.limits import DAY_MS
from heliograph.rules.setup.keys import ENTROPY_BYTES, make_token, parse_token, token_hash
from heliograph.rules.setup.reading import line
from heliograph.rules.setup.records import Key, Scope
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.key_use import key_uses
from heliograph.storage.setup import SetupChange

OVERLAP_MS = DAY_MS  # for so long a rotated key still works
SCOPES: tuple[Scope, ...] = ("send", "manage")
_NUMBERED = re.compile(r"(.*?)(?: ([0-9]{1,4}))?", re.S)


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    record: Key
    state: str  # works, expires, expired, revoked
    used_at: int | None


class Wrong(Exception):
    """What a form has wrong, by field."""

    def __init__(self, **errors: str) -> None:
        super().__init__(*errors)
        self.errors = errors


async def show(visit: Visit) -> Answer:
    return await _list(visit)


async def create(visit: Visit) -> Answer:
    try:
        wanted = _read_form(visit)
        made, token = await _make(visit, "key.create", wanted)
    except Wrong as wrong:
        return await _list(visit, status=400, errors=wrong.errors, form=visit.form)
    return await _list(visit, token=token, made=made)


async def show_one(visit: Visit) -> Answer:
    return await _one(visit)


async def rotate(visit: Visit) -> Answer:
    """A new key that may do the same; the old one goes on for a day."""
    old = _own(visit.setup, visit)
    now = visit.context.clock.now()
    if state_of(old, now) in ("revoked", "expired"):
        return Redirect(_place(visit, old), "This key no longer works: there is nothing to rotate. Make a new one.")
    until = min(now + OVERLAP_MS, old.expires_at or now + OVERLAP_MS)
    name = next_name(old.name, {key.name for key in _keys(visit.setup, visit.team.record.id)})
    # What is made in place of a key that ends by itself lives on: its owner chose to go on.
    made, token = await _make(visit, "key.rotate", replace(old, name=name, expires_at=None), ended=(old.id, until))
    return await _list(visit, token=token, made=made, old=replace(old, expires_at=until))


async def revoke(visit: Visit) -> Answer:
    key = _own(visit.setup, visit)

    def decide(current: Setup) -> SetupChange:
        record = _own(current, visit)
        if record.revoked:
            return SetupChange()
        return SetupChange(rows=[to_row("key", record.id, replace(record, revoked=True), record.team)])

    await visit.change_setup("key.revoke", key.name, decide, key.id)
    return Redirect(f"{visit.base}/keys", f"The key {key.name} is revoked.")


# -- deciding -------------------------------------------------------------------------------------------------


def next_name(name: str, taken: set[str]) -> str:
    """`server` → `server 2` → `server 3`: an `apply` that names the old key does not touch the new one."""
    found = _NUMBERED.fullmatch(name)
    assert found
    base, number = found[1][:190], int(found[2] or 1)
    return next(one for n in range(number + 1, number + len(taken) + 2) if (one := f"{base} {n}") not in taken)


def state_of(key: Key, now: int) -> str:
    if key.revoked:
        return "revoked"
    if key.expires_at is None:
        return "works"
    return "expires" if key.expires_at > now else "expired"


def _read_form(visit: Visit) -> Key:
    form, errors = visit.form, dict[str, str]()
    scopes = tuple(scope for scope in SCOPES if form.get(scope))
    domain, expiry = form.get("domain") or None, form.get("expires", "")
    expires_at = parse_timestamp(f"{expiry}T23:59:59Z") if expiry else None
    try:
        line(form.get("name", ""))
    except ValueError:
        errors["name"] = "Give it a name of one line, up to 200 characters."
    if not scopes:
        errors["scopes"] = "Choose at least one."
    if domain is not None and domain not in visit.team.domains:
        errors["domain"] = "The team has no such domain."
    if expiry and (expires_at is None or expires_at <= visit.context.clock.now()):
        errors["expires"] = "Choose a day that is not over yet, or leave it empty."
    if errors:
        raise Wrong(**errors)
    return Key(
        id="",
        hash="",
        team=visit.team.record.id,
        name=form["name"].strip(),
        scopes=scopes,
        domain=domain,
        expires_at=expires_at,
    )


async def _make(visit: Visit, action: str, wanted: Key, *, ended: tuple[str, int] | None = None) -> tuple[Key, str]:
    """Store a key like this one; answers it and its token, of which only the hash is kept. `ended`: a key, and when."""
    token = make_token(visit.context.clock.entropy(ENTROPY_BYTES))
    made = replace(wanted, id=parse_token(token), hash=token_hash(token))

    def decide(current: Setup) -> SetupChange:
        if any(key.name == made.name for key in _keys(current, made.team)):
            raise Wrong(name="Another key of the team has this name.")
        rows = [to_row("key", made.id, made, made.team)]
        if ended:
            old = current.records["key", ended[0]]
            rows.append(to_row("key", ended[0], replace(old, expires_at=ended[1]), made.team))
        return SetupChange(rows=rows)

    await visit.change_setup(action, made.name, decide, made.id)
    return made, token


def _keys(setup: Setup, team: str) -> list[Key]:
    return [caller.key for caller in setup.callers.values() if caller.team.record.id == team]


def _own(setup: Setup, visit: Visit) -> Key:
    caller = setup.callers.get(visit.params["key"])
    if caller is None or caller.team.record.id != visit.team.record.id:
        raise Gone
    return caller.key


# -- showing --------------------------------------------------------------------------------------------------


def _place(visit: Visit, key: Key) -> str:
    return f"{visit.base}/keys/{key.id}"


async def _lines(visit: Visit, keys: list[Key]) -> list[KeyLine]:
    stored = await key_uses(visit.context.store.database, [key.id for key in keys])
    noted, now = visit.context.state.used, visit.context.clock.now()
    return [
        KeyLine(record=key, state=state_of(key, now), used_at=noted.get(key.id) or stored.get(key.id)) for key in keys
    ]


async def _list(visit: Visit, status: int = 200, **values: Any) -> Page:
    lines = await _lines(visit, _keys(visit.setup, visit.team.record.id))
    lines.sort(key=lambda one: (one.state in ("revoked", "expired"), one.record.name))
    domains = [("", "Any domain of the team"), *((name, name) for name in visit.team.domains)]
    empty: dict[str, Any] = {
        "domains": domains,
        "errors": {},
        "form": {"send": "yes"},
        "token": "",
        "made": None,
        "old": None,
    }
    return Page("keys.html", empty | {"keys": lines} | values, status)


async def _one(visit: Visit) -> Page:
    (key,) = await _lines(visit, [_own(visit.setup, visit)])
    return Page("key.html", {"key": key})
