"""The editor of a template, with a preview of what stands in it."""

import msgspec

from heliograph.dashboard.views.template_change import saved
from heliograph.dashboard.views.template_find import current
from heliograph.dashboard.views.template_form import FormLine, is_free, lines_for, lines_of, to_form, to_given
from heliograph.dashboard.views.template_preview import frame
from heliograph.dashboard.visit import Answer, Gone, Page, Visit
from heliograph.manage.templates import proposed
from heliograph.manage.templates import save as save_template
from heliograph.rules.refusals import InvalidRequest, Refusal
from heliograph.rules.setup.file import CHANNELS
from heliograph.rules.setup.records import Channel, Template
from heliograph.rules.setup.template_approvals import mark_of
from heliograph.rules.setup.template_edit import offered, read_template
from heliograph.rules.template import placeholder_names


async def new(visit: Visit) -> Answer:
    return _editor(visit, _blank(visit))


async def create(visit: Visit) -> Answer:
    return await _save(visit, _blank(visit), None)


async def edit(visit: Visit) -> Answer:
    return _editor(visit, _editable(visit))


async def save(visit: Visit) -> Answer:
    return await _save(visit, _editable(visit), visit.form.get("mark", ""))


async def preview(visit: Visit) -> Answer:
    """The document of the preview's frame, of what stands in the editor now."""
    template = visit.team.templates.get(visit.form.get("id", ""))
    base = proposed(visit.setup, template) if template else _blank(visit)
    typed, errors = _read(visit, base)
    return frame(visit, typed if visit.may("operator") else offered(visit.setup, typed), errors)


async def _save(visit: Visit, base: Template, mark: str | None) -> Answer:
    """`mark` names what the person began with; None: nothing."""
    template, errors = _read(visit, base)
    if visit.form.get("do") == "declare":
        missing = [name for name in placeholder_names(template) if name not in template.variables]
        return _editor(visit, base, {}, [*lines_of(visit.form), *map(FormLine, missing)])
    if not errors:
        operator, free = visit.may("operator"), is_free(visit.form)
        try:
            done = await save_template(visit.store, visit.actor, template, mark=mark, by_operator=operator, free=free)
            return saved(visit, template.id, done)
        except Refusal as refusal:
            errors = {refusal.param or "form": refusal.message}
    return _editor(visit, base, errors, lines_of(visit.form))


def _editor(
    visit: Visit, base: Template, errors: dict[str, str] | None = None, lines: list[FormLine] | None = None
) -> Page:
    values = {
        "base": base,
        "known": base.id in visit.team.templates,
        "mark": mark_of(base) if lines is None else visit.form.get("mark", ""),
        "form": to_form(offered(visit.setup, base)) if lines is None else visit.form,
        "lines": lines_for(base) if lines is None else lines,
        "errors": errors or {},
    }
    return Page("template_edit.html", values, 400 if errors else 200)


def _read(visit: Visit, base: Template) -> tuple[Template, dict[str, str]]:
    return read_template(base, to_given(visit.form, base.channel, with_prices=visit.may("operator")))


def _blank(visit: Visit) -> Template:
    given = visit.form.get("channel") or visit.query.get("channel", "email")
    if given not in CHANNELS:
        raise Gone
    channel = msgspec.convert(given, Channel)
    return Template(id=visit.context.clock.new_id("tpl_"), team=visit.team.record.id, channel=channel, name="")


def _editable(visit: Visit) -> Template:
    template = current(visit)
    if template.status == "archived":
        raise InvalidRequest("This template is archived. Bring it back first.")
    return proposed(visit.setup, template)
