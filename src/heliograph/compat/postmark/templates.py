"""Compatibility API for Postmark, templates.

A change is active at once, or submitted to an operator if approval is required.
"""

from typing import Any, TypeVar

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.postmark.codec import read_query, slice_page
from heliograph.domain.exports.postmark import find_template, template_id, template_number
from heliograph.domain.exports.records import with_extra_fields
from heliograph.domain.mail.sender import default_brand_values
from heliograph.domain.refusals import InvalidRequest, TemplateNotFound
from heliograph.domain.setup.records import Template
from heliograph.templates import service as templates
from heliograph.templates.policy.import_placeholders import from_foreign_placeholders, to_short_placeholders
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.render import estimate_octets, render
from heliograph.templates.policy.template_approvals import revision_of
from heliograph.templates.policy.template_edit import EditResult, edit_template
from heliograph.templates.policy.values import check_types, iterate_texts, keep_declared, read_variables
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response

FIELD_BY_PART = {"subject": "Subject", "html": "HtmlBody", "text": "TextBody"}  # our field name → Postmark's


class PostmarkTemplateFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    name: str | None = None
    alias: str | None = None
    subject: str | None = None
    html_body: str | None = None
    text_body: str | None = None
    template_type: str | None = None
    layout_template: str | None = None

    def parts(self) -> dict[str, str]:
        texts = {"subject": self.subject, "html": self.html_body, "text": self.text_body}
        return {name: from_foreign_placeholders(text) for name, text in texts.items() if text is not None}


class PostmarkValidation(
    PostmarkTemplateFields, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"
):
    test_render_model: dict[str, Any] | None = None
    inline_css_for_html_test_render: bool | None = None  # accepted and ignored


T = TypeVar("T", bound=PostmarkTemplateFields)


async def list_all(call: Call) -> Response:
    active = [
        template
        for template in call.caller.team.templates.values()
        if template.channel == "email" and template.status != "archived"
    ]
    selected = slice_page(read_query(call), sorted(active, key=lambda template: template.id))
    return json_response({"TotalCount": len(active), "Templates": [_summary(template) for template in selected]})


async def read(call: Call) -> Response:
    template = _get_template(call)
    newest = templates.draft_or_current(call.context.store.setup.current, template)
    octets = estimate_octets(newest, ())
    await call.reserve_memory(octets)
    return await large_json_response(
        octets, lambda: _summary(template) | _content(newest) | {"AssociatedServerId": call.team}
    )


async def create(call: Call) -> Response:
    request = _parse_body(call, PostmarkTemplateFields)
    if not request.name:
        raise InvalidRequest("Name is missing.", param="Name")
    id_ = template_id(request.alias) if request.alias else ""
    if not id_ or ("template", id_) in call.context.store.setup.current.records:
        id_ = call.context.clock.new_id("tpl_")
    base = Template(id=id_, team=call.team_id, channel="email", name=request.name)
    return await _save(call, base, request, None)


async def change(call: Call) -> Response:
    request = _parse_body(call, PostmarkTemplateFields)
    current = templates.draft_or_current(call.context.store.setup.current, _get_template(call))
    return await _save(call, current, request, revision_of(current))


async def delete(call: Call) -> Response:
    template = _get_template(call)
    remove = templates.discard if template.status == "draft" else templates.archive
    await remove(call.context.store, call.actor, template.team, template.id)
    return json_response({"ErrorCode": 0, "Message": f"Template {template_number(template.id)} removed."})


async def validate(call: Call) -> Response:
    """Return the errors of each template part, its rendering with the given values, and suggested values."""
    request = _parse_body(call, PostmarkValidation)
    base = Template(id="tpl_trial", team=call.team_id, channel="email", name="Trial")
    edited = await run_large(parsing_cost(call.json), _apply_edit, base, request)
    results: dict[str, Any] = {
        field: _validation_json(edited, part) for part, field in FIELD_BY_PART.items() if part in request.parts()
    }
    suggested_model = {name: f"{name}_Value" for name in edited.template.variables}
    if not edited.errors:
        model = suggested_model | (keep_declared(edited.template, request.test_render_model) or {})
        values = read_variables(model)
        check_types(edited.template, values)
        await call.reserve_memory(estimate_octets(edited.template, iterate_texts(model)))
        brand = default_brand_values(call.caller.team, call.context.store.setup.current.platform)
        rendered = render(edited.template, values, brand)
        for part, field in FIELD_BY_PART.items():
            if field in results:
                results[field]["RenderedContent"] = getattr(rendered, part)
    defaults = dict.fromkeys(FIELD_BY_PART.values())
    return json_response(
        {"AllContentIsValid": not edited.errors, **defaults, **results, "SuggestedTemplateModel": suggested_model},
    )


def _parse_body(call: Call, request_type: type[T]) -> T:
    request = parse_request(request_type, call.json)
    if request.template_type not in (None, "Standard") or request.layout_template:
        raise InvalidRequest(
            "Layouts are not supported here. Remove LayoutTemplate and use /v1/layouts.", param="LayoutTemplate"
        )
    return request


def _apply_edit(base: Template, request: PostmarkTemplateFields) -> EditResult:
    return edit_template(base, {"name": request.name or base.name, "variables": base.variables, **request.parts()})


async def _save(call: Call, base: Template, request: PostmarkTemplateFields, revision: str | None) -> Response:
    existing_template = find_template(call.caller.team.templates, request.alias) if request.alias else None
    if existing_template and existing_template.id != base.id:
        raise InvalidRequest(
            f"Alias: {existing_template.id} already has this alias. Choose another alias.", param="Alias"
        )
    parsed = await run_large(parsing_cost(call.json), _apply_edit, base, request)
    edited = with_extra_fields(parsed, {"alias": request.alias or base.alias})
    for name, reason in edited.errors.items():
        field = {**FIELD_BY_PART, "alias": "Alias"}.get(name, name)
        raise InvalidRequest(f"{field}: {reason}", param=field)
    await templates.save(call.context.store, call.actor, edited.template, revision=revision, by_operator=False)
    return json_response(_summary(templates.get(call.context.store.setup.current, base.team, base.id)))


def _get_template(call: Call) -> Template:
    template = find_template(call.caller.team.templates, call.params["id"])
    if template is None or template.channel != "email" or template.status == "archived":
        raise TemplateNotFound(f"There is no template {call.params['id'][:80]!r}.")
    return template


def _validation_json(edited: EditResult, part: str) -> dict[str, Any]:
    reasons = edited.errors.get(part, "").splitlines()
    errors = [{"Message": reason, "Line": None, "CharacterPosition": None} for reason in reasons]
    return {"ContentIsValid": not errors, "ValidationErrors": errors, "RenderedContent": None}


def _summary(template: Template) -> dict[str, Any]:
    return {
        "TemplateId": template_number(template.id),
        "Name": template.name,
        "Alias": template.alias or template.id.removeprefix("tpl_"),
        "Active": template.status == "approved",
        "TemplateType": "Standard",
        "LayoutTemplate": None,
    }


def _content(template: Template) -> dict[str, str | None]:
    texts = {"Subject": template.subject, "HtmlBody": template.html, "TextBody": template.text}
    return {name: text and to_short_placeholders(text) for name, text in texts.items()}
