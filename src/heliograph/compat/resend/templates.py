"""Compatibility API for Resend, templates: a team edits drafts.

Publishing makes a draft active, or submits it for approval by an operator.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.resend.codec import ResendDeleted, creation_time, list_response, slice_page
from heliograph.domain.exports.records import with_extra_fields
from heliograph.domain.exports.resend import extra_template_fields, find_template
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.templates import service as templates
from heliograph.templates.policy.import_placeholders import (
    foreign_name,
    from_foreign_placeholders,
    to_foreign_placeholders,
)
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.render import estimate_octets
from heliograph.templates.policy.template_approvals import find_draft, revision_of
from heliograph.templates.policy.template_edit import edit_template
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response


class ResendVariable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    type: str = "string"
    fallback_value: str | float | None = None


class ResendTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | None = None  # resend-python repeats the path's id here
    name: str | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    variables: list[ResendVariable] | None = None
    alias: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    reply_to: str | list[str] | None = None


async def create(call: Call) -> Response:
    request = parse_request(ResendTemplate, call.json)
    if not request.name:
        raise InvalidRequest("name is missing.", param="name")
    id_ = call.context.clock.new_id("tpl_")
    await _save(call, Template(id=id_, team=call.team_id, channel="email", name=request.name), request, revision=None)
    return json_response({"object": "template", "id": id_})


async def list_all(call: Call) -> Response:
    active = [
        template
        for template in call.caller.team.templates.values()
        if template.channel == "email" and template.status != "archived"
    ]
    page, has_more = slice_page(call, active, lambda template: template.id)
    return json_response(list_response([_summary(template) for template in page], has_more=has_more))


async def read(call: Call) -> Response:
    template = _get_template(call)
    newest = templates.draft_or_current(call.context.store.setup.current, template)
    octets = estimate_octets(newest, ())
    await call.reserve_memory(octets)
    return await large_json_response(
        SCAN_COST_FACTOR * octets, lambda: {"object": "template", **_summary(template), **_content(newest)}
    )


async def change(call: Call) -> Response:
    template, request = _get_template(call), parse_request(ResendTemplate, call.json)
    current = templates.draft_or_current(call.context.store.setup.current, template)
    await _save(call, current, request, revision=revision_of(current))
    return json_response({"object": "template", "id": template.id})


async def publish(call: Call) -> Response:
    template = _get_template(call)
    if draft := find_draft(call.context.store.setup.current, template.id):
        store, team = call.context.store, call.team_id
        await templates.publish(store, call.actor, team, template.id, draft.revision, by_operator=False)
    return json_response({"object": "template", "id": template.id})


async def duplicate(call: Call) -> Response:
    original = templates.draft_or_current(call.context.store.setup.current, _get_template(call))
    id_ = call.context.clock.new_id("tpl_")
    copy = replace(
        original, id=id_, name=f"{original.name} (copy)"[:200], alias="", status="draft", version=1, refused_reason=""
    )
    await templates.save(call.context.store, call.actor, copy, revision=None, by_operator=False, publish=False)
    return json_response({"object": "template", "id": id_})


async def delete(call: Call) -> Response:
    template, store = _get_template(call), call.context.store
    remove = templates.discard if template.status == "draft" else templates.archive
    await remove(store, call.actor, call.team_id, template.id)
    return json_response(ResendDeleted(object="template", id=template.id))


async def _save(call: Call, base: Template, request: ResendTemplate, revision: str | None) -> None:
    existing_template = find_template(call.caller.team.templates, request.alias) if request.alias else None
    if existing_template and existing_template.id != base.id:
        raise InvalidRequest(
            f"alias: {existing_template.id} already has this alias. Choose another alias.", param="alias"
        )
    new = await run_large(parsing_cost(call.json), _apply_edit, base, request)
    await templates.save(call.context.store, call.actor, new, revision=revision, by_operator=False, publish=False)


def _apply_edit(base: Template, request: ResendTemplate) -> Template:
    texts = {"subject": request.subject, "html": request.html, "text": request.text}
    fields = {name: from_foreign_placeholders(text) for name, text in texts.items() if text is not None}
    declared = [variable.key.lower() for variable in request.variables or []]
    edited = edit_template(base, {"name": request.name or base.name, **fields, "variables": declared or base.variables})
    stored_fields = extra_template_fields(msgspec.to_builtins(request))
    if "written" in stored_fields:
        stored_fields["written"] = base.written | stored_fields["written"]
    result = with_extra_fields(edited, stored_fields)
    for name, reason in result.errors.items():
        field = "from" if name == "sender" else name
        raise InvalidRequest(f"{field}: {reason}", param=field)
    return result.template


def _get_template(call: Call) -> Template:
    template = find_template(call.caller.team.templates, call.params["id"])
    return templates.get(call.context.store.setup.current, call.team_id, template.id if template else call.params["id"])


def _content(template: Template) -> dict[str, Any]:
    texts = {"subject": template.subject, "html": template.html, "text": template.text}
    return {
        **{name: text and to_foreign_placeholders(text, template.written) for name, text in texts.items()},
        "variables": [_variable_json(template, name) for name in template.variables],
        "from": template.sender or None,
        "reply_to": list(template.reply_to) or None,
    }


def _variable_json(template: Template, name: str) -> dict[str, Any]:
    value = template.fallback.get(name)
    kind = "number" if name in template.numbers or isinstance(value, int | float) else "string"
    return {"key": foreign_name(name, template.written), "type": kind, "fallback_value": value}


def _summary(template: Template) -> dict[str, Any]:
    created_at = creation_time(template.id)
    return {
        "id": template.id,
        "name": template.name,
        "alias": template.alias or None,
        "status": "published" if template.status == "approved" else "draft",
        "created_at": created_at,
        "updated_at": created_at,
        "published_at": created_at if template.status == "approved" else None,
    }
