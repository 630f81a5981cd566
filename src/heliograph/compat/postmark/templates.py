"""Postmark's templates: saved and activated at once, or submitted to an operator if approval is required."""

from typing import Any, TypeVar

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.postmark.codec import asked, cut
from heliograph.domain.exports.postmark import find_template, template_id, template_number
from heliograph.domain.exports.records import with_kept
from heliograph.domain.mail.sender import usual_brand
from heliograph.domain.refusals import InvalidRequest, TemplateNotFound
from heliograph.domain.setup.records import Template
from heliograph.templates import service as templates
from heliograph.templates.policy.import_placeholders import own_placeholders, short_placeholders
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.render import most_octets, render
from heliograph.templates.policy.template_approvals import mark_of
from heliograph.templates.policy.template_edit import Edited, edit_template
from heliograph.templates.policy.values import check_types, leaf_texts, only_declared, read_variables
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of

PARTS = {"subject": "Subject", "html": "HtmlBody", "text": "TextBody"}  # our name → Postmark's


class PostmarkWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    name: str | None = None
    alias: str | None = None
    subject: str | None = None
    html_body: str | None = None
    text_body: str | None = None
    template_type: str | None = None
    layout_template: str | None = None

    def parts(self) -> dict[str, str]:
        words = {"subject": self.subject, "html": self.html_body, "text": self.text_body}
        return {name: own_placeholders(text) for name, text in words.items() if text is not None}


class PostmarkTrial(PostmarkWords, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    test_render_model: dict[str, Any] | None = None
    inline_css_for_html_test_render: bool | None = None  # accepted and ignored


T = TypeVar("T", bound=PostmarkWords)


async def list_all(call: Call) -> Response:
    own = [one for one in call.caller.team.templates.values() if one.channel == "email" and one.status != "archived"]
    found = cut(asked(call), sorted(own, key=lambda one: one.id))
    return answer({"TotalCount": len(own), "Templates": [_line(one) for one in found]})


async def read(call: Call) -> Response:
    template = _own(call)
    shown = templates.proposed(call.context.store.setup.current, template)
    octets = most_octets(shown, ())
    await call.hold(octets)
    return await answer_of(octets, lambda: _line(template) | _words(shown) | {"AssociatedServerId": call.team})


async def create(call: Call) -> Response:
    given = _read(call, PostmarkWords)
    if not given.name:
        raise InvalidRequest("Name is missing. Name the template.", param="Name")
    wanted = template_id(given.alias) if given.alias else ""
    is_free = wanted and ("template", wanted) not in call.context.store.setup.current.records
    id_ = wanted if is_free else call.context.clock.new_id("tpl_")
    base = Template(id=id_, team=call.caller.team.record.id, channel="email", name=given.name)
    return await _save(call, base, given, None)


async def change(call: Call) -> Response:
    given = _read(call, PostmarkWords)
    now = templates.proposed(call.context.store.setup.current, _own(call))
    return await _save(call, now, given, mark_of(now))


async def delete(call: Call) -> Response:
    template = _own(call)
    end = templates.discard if template.status == "draft" else templates.archive
    await end(call.context.store, call.actor, template.team, template.id)
    return answer({"ErrorCode": 0, "Message": f"Template {template_number(template.id)} removed."})


async def validate(call: Call) -> Response:
    """Return the errors of each template part, its rendering with the given values, and the missing variables."""
    given = _read(call, PostmarkTrial)
    base = Template(id="tpl_trial", team=call.caller.team.record.id, channel="email", name="Trial")
    edited = await work(reading_cost(call.json), _edited, base, given)
    told: dict[str, Any] = {theirs: _part(edited, own) for own, theirs in PARTS.items() if own in given.parts()}
    suggested = {name: f"{name}_Value" for name in edited.template.variables}
    if not edited.errors:
        model = suggested | (only_declared(edited.template, given.test_render_model) or {})
        values = read_variables(model)
        check_types(edited.template, values)
        await call.hold(most_octets(edited.template, leaf_texts(model)))
        brand = usual_brand(call.caller.team, call.context.store.setup.current.platform)
        rendered = render(edited.template, values, brand)
        for own, theirs in PARTS.items():
            if theirs in told:
                told[theirs]["RenderedContent"] = getattr(rendered, own)
    absent = dict.fromkeys(PARTS.values())
    return answer(
        {"AllContentIsValid": not edited.errors, **absent, **told, "SuggestedTemplateModel": suggested},
    )


def _read(call: Call, kind: type[T]) -> T:
    given = given_as(kind, call.json)
    if given.template_type not in (None, "Standard") or given.layout_template:
        raise InvalidRequest("Layouts are written at /v1/layouts. Leave out LayoutTemplate.", param="LayoutTemplate")
    return given


def _edited(base: Template, given: PostmarkWords) -> Edited:
    return edit_template(base, {"name": given.name or base.name, "variables": base.variables, **given.parts()})


async def _save(call: Call, base: Template, given: PostmarkWords, mark: str | None) -> Response:
    same = find_template(call.caller.team.templates, given.alias) if given.alias else None
    if same and same.id != base.id:
        raise InvalidRequest(f"Alias: {same.id} has it already. Choose another.", param="Alias")
    read = await work(reading_cost(call.json), _edited, base, given)
    edited = with_kept(read, {"alias": given.alias or base.alias})
    for name, why in edited.errors.items():
        field = {**PARTS, "alias": "Alias"}.get(name, name)
        raise InvalidRequest(f"{field}: {why}", param=field)
    await templates.save(call.context.store, call.actor, edited.template, mark=mark, by_operator=False)
    return answer(_line(templates.find(call.context.store.setup.current, base.team, base.id)))


def _own(call: Call) -> Template:
    found = find_template(call.caller.team.templates, call.params["id"])
    if found is None or found.channel != "email" or found.status == "archived":
        raise TemplateNotFound(f"There is no template {call.params['id'][:80]!r}.")
    return found


def _part(edited: Edited, name: str) -> dict[str, Any]:
    whys = edited.errors.get(name, "").splitlines()
    errors = [{"Message": why, "Line": None, "CharacterPosition": None} for why in whys]
    return {"ContentIsValid": not errors, "ValidationErrors": errors, "RenderedContent": None}


def _line(template: Template) -> dict[str, Any]:
    return {
        "TemplateId": template_number(template.id),
        "Name": template.name,
        "Alias": template.alias or template.id.removeprefix("tpl_"),
        "Active": template.status == "approved",
        "TemplateType": "Standard",
        "LayoutTemplate": None,
    }


def _words(shown: Template) -> dict[str, str | None]:
    texts = {"Subject": shown.subject, "HtmlBody": shown.html, "TextBody": shown.text}
    return {name: text and short_placeholders(text) for name, text in texts.items()}
