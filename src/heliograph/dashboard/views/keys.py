"""API keys of a team: creation, permissions and last use, restrictions, rotation with an overlap, revocation."""

from typing import Any, get_args

import msgspec
from msgspec.structs import asdict, replace

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.render import channel_name
from heliograph.dashboard.restriction_texts import describe_restrictions, entry_labels
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.key_limits import LimitName, limit_states
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup import key_restrictions
from heliograph.domain.setup.key_restrictions import parse_restrictions, restrictions_revision
from heliograph.domain.setup.records import Key, KeyChannel, KeyRestrictions, Scope
from heliograph.manage import keys
from heliograph.manage.keys import KeySummary, NewKey, end_of_day
from heliograph.templates.policy.values import passthrough_error

SCOPES: tuple[Scope, ...] = ("send", "manage")
KIND_OPTIONS = [("", "A program (authenticates with a token)"), ("hook", "Supabase auth hooks (signed with a secret)")]
NOTHING = "none"  # value of a list field that means an empty list, which permits nothing

# (field, label, hint) of the restrictions in the form
LIST_FIELDS = (
    ("channels", "Channels", ""),
    ("templates", "Templates", "With some selected, emails without a template are refused."),
    ("senders", "Email senders", "Does not limit SMS and WhatsApp."),
    ("recipients", "Recipients", ""),
)
LIMIT_FIELDS: tuple[tuple[LimitName, str, str], ...] = (
    ("per_hour", "Recipients per hour", "In any 60 minutes"),
    ("per_day", "Recipients per day", "In any 24 hours"),
    ("spend_per_day", "Spend per day", "In any 24 hours"),
)
# (value, label) of how a list restricts; chosen in the form field `mode_` + name of the list
MODES = (("all", "Any"), ("some", "Only selected"), (NOTHING, "None"))
# label, placeholder and hint of the text field of a list
TEXT_FIELDS = {
    "senders": ("Other senders", "orders@example.com, *@example.com", "Addresses, or *@domain. Separate with commas."),
    "recipients": (
        "Allowed recipients",
        "*@example.com\n+49*",
        "One per line: an address, *@domain, a phone number, or a prefix such as +49*.",
    ),
}


async def create(request: PageRequest) -> PageResponse:
    form = request.form
    try:
        restrictions = _read_restrictions(form)
    except InvalidRequest as refusal:
        return _new_page(request, form, _restriction_errors(refusal))
    new_key = NewKey(
        team=request.team.record.id,
        name=form.get("name", ""),
        scopes=tuple(scope for scope in SCOPES if form.get(scope)),
        domain=form.get("domain") or None,
        expires_at=end_of_day(form["expires"]) if form.get("expires") else None,
        networks=tuple(form.get("networks", "").replace(",", " ").split()),
        passthrough=form.get("passthrough", ""),
        restrictions=restrictions,
        hook=form.get("kind") == "hook",
    )
    try:
        created = await keys.create(request.store, request.actor, new_key, request.tools.encrypt)
    except InvalidRequest as refusal:
        return _new_page(request, form, field_errors(refusal))
    return await show(request, token=created.token, new_key=created.key)


def _read_restrictions(form: dict[str, str]) -> KeyRestrictions | None:
    """Return the restrictions in the form. An empty field restricts nothing."""
    fields: dict[str, Any] = {}
    for name, *_ in LIST_FIELDS:
        entries = _list_entries(form, name)
        match _list_mode(form, name, entries):
            case "all":
                pass
            case "some" if not entries:
                raise InvalidRequest(f"{name}: Select at least one, or choose None.", param=f"restrictions.{name}")
            case "some":
                fields[name] = entries
            case _:
                fields[name] = []
    if form.get("approval"):
        fields["approval"] = "required"
    for name, *_ in LIMIT_FIELDS:
        if text := form.get(name, "").strip():
            fields[name] = text if name == "spend_per_day" or not text.isdecimal() else int(text[:20])
    return parse_restrictions(fields)


def _list_entries(form: dict[str, str], name: str) -> list[str]:
    """Return the entries of a list field: those of its text, and one for each ticked box `name.entry`."""
    ticked = [field.removeprefix(f"{name}.") for field in form if field.startswith(f"{name}.")]
    return [*form.get(name, "").replace(",", " ").split(), *ticked]


def _list_mode(form: dict[str, str], name: str, entries: list[str]) -> str:
    """Return the mode of a list field (see MODES). Without a mode in the form, derive it from the entries."""
    derived = "all" if not entries else NOTHING if entries == [NOTHING] else "some"
    return form.get(f"mode_{name}") or derived


class ListField(msgspec.Struct, frozen=True, kw_only=True):
    """A restriction whose value is a list, such as the permitted channels, as the form shows it."""

    name: str
    label: str
    hint: str
    mode: str  # value of MODES
    boxes: list[tuple[str, str, bool]]  # (entry, label, is ticked)
    text: str | None = None  # entries without a box; None if the form has no text field for the list


def _restriction_fields(request: PageRequest, form: dict[str, str]) -> dict[str, Any]:
    """Return the page's values for the part of the form that shows the restrictions."""
    templates = sorted(request.team.templates.values(), key=lambda template: template.name)
    boxes = {
        "channels": {channel: channel_name(channel) for channel in get_args(KeyChannel) if channel != "*"},
        "templates": {template.id: template.name for template in templates},
        "senders": {f"*@{name}": f"Any address at {name}" for name in sorted(request.team.domains)},
        "recipients": {},
    }
    lists = []
    for name, label, hint in LIST_FIELDS:
        entries, labels = _list_entries(form, name), boxes[name]
        other_entries = [entry for entry in entries if entry not in labels and entry != NOTHING]
        if name not in TEXT_FIELDS:
            labels = {entry: entry for entry in other_entries} | labels
        lists.append(
            ListField(
                name=name,
                label=label,
                hint=hint,
                mode=_list_mode(form, name, entries),
                boxes=[(entry, text, entry in entries) for entry, text in labels.items()],
                text=("\n" if name == "recipients" else ", ").join(other_entries) if name in TEXT_FIELDS else None,
            )
        )
    has_restrictions = any(field.mode != "all" for field in lists) or any(
        form.get(name) for name in ("approval", *(name for name, *_ in LIMIT_FIELDS))
    )
    return {
        "lists": lists,
        "limit_fields": LIMIT_FIELDS,
        "text_fields": TEXT_FIELDS,
        "modes": MODES,
        "form": form,
        "has_restrictions": has_restrictions,
    }


def _restriction_errors(refusal: InvalidRequest) -> dict[str, str]:
    field = (refusal.param or "").removeprefix("restrictions.").partition("[")[0]
    return {field: refusal.message.partition(": ")[2]}


def _restriction_form(restrictions: KeyRestrictions | None) -> dict[str, str]:
    """Return the form's values for these restrictions."""
    record = key_restrictions.to_record(restrictions)
    values = {} if record is None else {name: value for name, value in asdict(record).items() if value is not None}
    return {
        name: (", ".join(value) or NOTHING) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }


async def set_restrictions(request: PageRequest) -> PageResponse:
    key, form = _find_key(request), request.form
    try:
        restrictions = _read_restrictions(form)
    except InvalidRequest as refusal:
        return _restrictions_page(request, key, form, form.get("mark", ""), _restriction_errors(refusal))
    try:
        await keys.set_restrictions(
            request.store, request.actor, key.id, request.team.record.id, restrictions, form.get("mark", "")
        )
    except InvalidRequest as refusal:
        if refusal.param == "mark":
            return _conflict_page(request, _find_key(request), form, refusal.message)
        return Redirect(f"{request.team_path}/keys/{key.id}", refusal.message)
    notice = "Restrictions saved." if restrictions else "Saved. This key is no longer restricted."
    return Redirect(f"{request.team_path}/keys/{key.id}", notice)


async def rotate(request: PageRequest) -> PageResponse:
    """Create a new key with the same permissions; the old one is valid for another day."""
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
        **_restriction_fields(request, form),
    }
    return Page.form("key_new.html", values, errors)


async def show_restrictions(request: PageRequest) -> Page:
    key = _find_key(request)
    return _restrictions_page(
        request, key, _restriction_form(key.restrictions), restrictions_revision(key.restrictions)
    )


def _restrictions_page(
    request: PageRequest, key: Key, form: dict[str, str], revision: str, errors: dict[str, str] | None = None
) -> Page:
    values = {
        "key": key,
        "revision": revision,
        "sentence": _describe_restrictions(request, key),
        **_restriction_fields(request, form),
    }
    return Page.form("key_restrictions.html", values, errors)


def _conflict_page(request: PageRequest, key: Key, form: dict[str, str], message: str) -> Page:
    """Show the typed and the current restrictions. The next save overwrites the current ones."""
    current, labels = _restriction_form(key.restrictions), [*LIST_FIELDS, *LIMIT_FIELDS, ("approval", "Approval", "")]
    described = "; ".join(f"{label}: {current[name]}" for name, label, _ in labels if name in current) or "none"
    error = f"{message} Now: {described}. Save again to overwrite their changes."
    return replace(
        _restrictions_page(request, key, form, restrictions_revision(key.restrictions), {"form": error}), status=409
    )


def _find_key(request: PageRequest) -> Key:
    caller = request.setup.callers.get(request.params["key"])
    if caller is None or caller.team.record.id != request.team.record.id:
        raise PageNotFound
    return caller.key


def _describe_restrictions(request: PageRequest, key: Key) -> str:
    """Return a sentence about the restrictions of a key; empty if it has none."""
    if key.restrictions is None:
        return ""
    return describe_restrictions(key.restrictions, request.team.templates, request.team.record.currency)


async def _restriction_values(request: PageRequest, key: Key) -> dict[str, Any]:
    """Return the permissions of a restricted key, and how much of its limits is left."""
    if key.restrictions is None:
        return {"lists": [], "limits": [], "sentence": ""}
    account = await request.store.ledger.get_account(request.team.record.ref)
    states = limit_states(account, key, request.context.clock.team_now(request.team.record.ref))

    def format_limit(name: str, value: int) -> str:
        return format_amount(value) if name == "spend_per_day" else str(value)

    return {
        "sentence": _describe_restrictions(request, key),
        "lists": [
            (label, ", ".join(entry_labels(name, entries, request.team.templates)) or "None")
            for name, label, _ in LIST_FIELDS
            if (entries := getattr(key.restrictions, name)) is not None
        ],
        "limits": [
            (label, format_limit(name, states[name].left), format_limit(name, states[name].limit))
            for name, label, _ in LIMIT_FIELDS
            if name in states
        ],
    }


async def show_key(request: PageRequest) -> Page:
    for row in await _list_keys(request):
        if row.record.id == request.params["key"]:
            return Page("key.html", {"key": row, **await _restriction_values(request, row.record)})
    raise PageNotFound
