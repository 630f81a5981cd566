"""Resend's templates: a team edits drafts; publishing activates a draft or submits it for an operator's approval."""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.resend.codec import ResendDeleted, cut, listed, made_at
from heliograph.domain.exports.records import with_kept
from heliograph.domain.exports.resend import find_template, kept_fields
from heliograph.domain.limits import PARSED
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.templates import service as templates
from heliograph.templates.policy.import_placeholders import foreign_placeholders, key_of, own_placeholders
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.render import most_octets
from heliograph.templates.policy.template_approvals import find_draft, mark_of
from heliograph.templates.policy.template_edit import edit_template
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of


class ResendVariable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    type: str = "string"
    fallback_value: str | float | None = None


class ResendTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | None = None  # resend-python repeats the id of the path
    name: str | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    variables: list[ResendVariable] | None = None
    alias: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    reply_to: str | list[str] | None = None


async def create(call: Call) -> Response:
    given = given_as(ResendTemplate, call.json)
    if not given.name:
        raise InvalidRequest("name is missing. Name the template.", param="name")
    id_ = call.context.clock.new_id("tpl_")
    await _save(call, Template(id=id_, team=_team(call), channel="email", name=given.name), given, mark=None)
    return answer({"object": "template", "id": id_})


async def list_all(call: Call) -> Response:
    own = [one for one in call.caller.team.templates.values() if one.channel == "email" and one.status != "archived"]
    found, more = cut(call, own, lambda template: template.id)
    return answer(listed([_line(template) for template in found], has_more=more))


async def read(call: Call) -> Response:
    template = _own(call)
    shown = templates.proposed(call.context.store.setup.current, template)
    octets = most_octets(shown, ())
    await call.hold(octets)
    return await answer_of(PARSED * octets, lambda: {"object": "template", **_line(template), **_words(shown)})


async def change(call: Call) -> Response:
    template, given = _own(call), given_as(ResendTemplate, call.json)
    now = templates.proposed(call.context.store.setup.current, template)
    await _save(call, now, given, mark=mark_of(now))
    return answer({"object": "template", "id": template.id})


async def publish(call: Call) -> Response:
    template = _own(call)
    if draft := find_draft(call.context.store.setup.current, template.id):
        store, team = call.context.store, _team(call)
        await templates.publish(store, call.actor, team, template.id, draft.mark, by_operator=False)
    return answer({"object": "template", "id": template.id})


async def duplicate(call: Call) -> Response:
    now = templates.proposed(call.context.store.setup.current, _own(call))
    id_ = call.context.clock.new_id("tpl_")
    copy = replace(now, id=id_, name=f"{now.name} (copy)"[:200], alias="", status="draft", version=1, refused_reason="")
    await templates.save(call.context.store, call.actor, copy, mark=None, by_operator=False, publish=False)
    return answer({"object": "template", "id": id_})


async def delete(call: Call) -> Response:
    template, store = _own(call), call.context.store
    end = templates.discard if template.status == "draft" else templates.archive
    await end(store, call.actor, _team(call), template.id)
    return answer(ResendDeleted(object="template", id=template.id))


async def _save(call: Call, base: Template, given: ResendTemplate, mark: str | None) -> None:
    same = find_template(call.caller.team.templates, given.alias) if given.alias else None
    if same and same.id != base.id:
        raise InvalidRequest(f"alias: {same.id} has it already. Choose another.", param="alias")
    new = await work(reading_cost(call.json), _edited, base, given)
    await templates.save(call.context.store, call.actor, new, mark=mark, by_operator=False, publish=False)


def _edited(base: Template, given: ResendTemplate) -> Template:
    words = {"subject": given.subject, "html": given.html, "text": given.text}
    fields = {name: own_placeholders(text) for name, text in words.items() if text is not None}
    declared = [one.key.lower() for one in given.variables or []]
    edited = edit_template(base, {"name": given.name or base.name, **fields, "variables": declared or base.variables})
    kept = kept_fields(msgspec.to_builtins(given))
    if "written" in kept:
        kept["written"] = base.written | kept["written"]
    made = with_kept(edited, kept)
    for name, why in made.errors.items():
        field = "from" if name == "sender" else name
        raise InvalidRequest(f"{field}: {why}", param=field)
    return made.template


def _team(call: Call) -> str:
    return call.caller.team.record.id


def _own(call: Call) -> Template:
    found = find_template(call.caller.team.templates, call.params["id"])
    return templates.find(call.context.store.setup.current, _team(call), found.id if found else call.params["id"])


def _words(shown: Template) -> dict[str, Any]:
    texts = {"subject": shown.subject, "html": shown.html, "text": shown.text}
    return {
        **{name: text and foreign_placeholders(text, shown.written) for name, text in texts.items()},
        "variables": [_variable(shown, name) for name in shown.variables],
        "from": shown.sender or None,
        "reply_to": list(shown.reply_to) or None,
    }


def _variable(template: Template, name: str) -> dict[str, Any]:
    value = template.fallback.get(name)
    kind = "number" if name in template.numbers or isinstance(value, int | float) else "string"
    return {"key": key_of(name, template.written), "type": kind, "fallback_value": value}


def _line(template: Template) -> dict[str, Any]:
    at = made_at(template.id)
    return {
        "id": template.id,
        "name": template.name,
        "alias": template.alias or None,
        "status": "published" if template.status == "approved" else "draft",
        "created_at": at,
        "updated_at": at,
        "published_at": at if template.status == "approved" else None,
    }
