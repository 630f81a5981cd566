"""Template editor: typed content is kept on every error, conflict or expired session."""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.views.template_change import saved
from heliograph.dashboard.views.template_form import (
    FormLine,
    is_free,
    lines_for,
    lines_of,
    locales_of,
    to_form,
    to_given,
    with_locale,
)
from heliograph.dashboard.views.template_preview import document, frame
from heliograph.dashboard.views.template_search import Written, current, written
from heliograph.dashboard.views.templates import compared
from heliograph.domain.limits import PARSED
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.setup.records import CHANNELS, Channel, Template
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.policy.examples import guess
from heliograph.templates.policy.lint import problems_of
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.template_approvals import find_draft, mark_of
from heliograph.templates.policy.template_edit import Difference, Edited, edit_template, goes_live, offered
from heliograph.templates.service import find, proposed
from heliograph.templates.service import save as save_template
from heliograph.web.read_budget import work

WARNINGS_MAX = 10  # maximum number of warnings shown per field
EXPIRED = "This page had expired, so nothing was saved. Your text is still here: save it again."


async def new(visit: Visit) -> Answer:
    """Show the editor with an empty template or a copy; without a channel, show the choice of channels."""
    if source := visit.query.get("from"):
        template = proposed(visit.setup, find(visit.setup, visit.team.record.id, source))
        copied = to_form(template) | {"name": f"Copy of {template.name}"}
        return await _editor(visit, _blank(visit, template.channel), copied, lines_for(template))
    if not visit.query.get("channel"):
        return Page("template_new.html")
    base = _blank(visit)
    return await _editor(visit, base, to_form(offered(visit.setup, base)), [])


async def create(visit: Visit) -> Answer:
    return await _save(visit, _blank(visit), None)


async def edit(visit: Visit) -> Answer:
    base = _editable(visit)
    form = to_form(base if base.price else offered(visit.setup, base))
    return await _editor(visit, base, form, lines_for(base))


async def save(visit: Visit) -> Answer:
    try:
        base = _editable(visit)
    except Refusal as refusal:
        return await _without(visit, refusal)
    return await _save(visit, base, visit.form.get("mark", ""))


async def expired(visit: Visit) -> Answer:
    """Show a form sent with an expired session again, without saving it."""
    try:
        base = _editable(visit) if "template" in visit.params else _blank(visit)
    except Refusal as refusal:
        return await _without(visit, refusal)
    page = await _editor(visit, base, visit.form, lines_of(visit.form), errors={"form": EXPIRED})
    return replace(page, status=403)


async def _without(visit: Visit, refusal: Refusal) -> Page:
    """Show the typed content as a new template if the edited template was archived or removed meanwhile."""
    told = f"{refusal.message} Your text is still here: save it as a new template."
    return await _editor(visit, _blank(visit), visit.form, lines_of(visit.form), errors={"form": told})


async def preview(visit: Visit) -> Answer:
    """Return the preview document of the unsaved template in the editor, for the iframe."""
    template = visit.team.templates.get(visit.form.get("id", ""))
    base = proposed(visit.setup, template) if template else _blank(visit)
    return await frame(visit, *_shown(visit, await _typed(visit, base, visit.form), is_told="told" in visit.query))


async def _save(visit: Visit, base: Template, mark: str | None) -> Answer:
    """Save the template. `mark` is the content hash of the version that the user edited; None for a new template."""
    done, lines = await _typed(visit, base, visit.form), lines_of(visit.form)
    if visit.form.get("do") == "locale":
        return await _with_locale(visit, base, lines)
    errors, publish = done.errors, visit.form.get("do") != "draft"
    # before publishing, show new variables, which every send must then supply; a draft is saved with them
    if not errors and done.added and publish:
        lines += [
            replace(line, example=guess(line.name)) for line in lines_for(done.template) if line.name in done.added
        ]
        return await _editor(visit, base, visit.form, lines, added=done.added)
    if not errors:
        terms: dict[str, Any] = {"by_operator": visit.may("operator"), "free": is_free(visit.form), "publish": publish}
        try:
            is_changed = await save_template(visit.store, visit.actor, done.template, mark=mark, **terms)
        except Refusal as refusal:
            if refusal.param == "mark":
                return await _told_of_another(visit, done.template, lines)
            errors = {refusal.param or "form": refusal.message}
        else:
            return saved(visit, base.id, is_changed) if publish else _kept(visit, base.id, done.added)
    return await _editor(visit, base, visit.form, lines, errors=errors)


async def _with_locale(visit: Visit, base: Template, lines: list[FormLine]) -> Page:
    """Show the form with an added language; nothing is saved."""
    try:
        return await _editor(visit, base, with_locale(visit.form, base.channel), lines)
    except InvalidRequest as refusal:
        return await _editor(visit, base, visit.form, lines, errors={"add_locale": refusal.message})


def _kept(visit: Visit, id_: str, added: list[str]) -> Redirect:
    """Redirect to the editor after a draft was saved."""
    told = "Draft saved."
    if added:
        told += f" Added {'these variables' if added[1:] else 'the variable'}: {', '.join(added)}. Give an example."
    return Redirect(f"{visit.base}/templates/{id_}/edit?saved=yes", told)


async def _told_of_another(visit: Visit, typed: Template, lines: list[FormLine]) -> Page:
    """Show a save conflict: the other user's version and the differences. The next save overwrites that version."""
    base = _editable(visit)
    other = await written(visit, base.id)
    differences = await compared(base, typed)
    page = await _editor(visit, base, visit.form, lines, other=other, differences=differences)
    return replace(page, values=page.values | {"begun": mark_of(base)}, status=409)


async def _editor(
    visit: Visit,
    base: Template,
    form: dict[str, str],
    lines: list[FormLine],
    *,
    errors: dict[str, str] | None = None,
    added: list[str] | None = None,
    other: Written | None = None,
    differences: list[Difference] | None = None,
) -> Page:
    """Show the editor with the contents of `form` and `lines`. `other` and `differences` describe a save conflict."""
    live = visit.team.templates.get(base.id)
    draft = find_draft(visit.setup, base.id)
    is_typed = bool(visit.form)
    shown, written_now = b"", base
    if is_typed or live is None:  # otherwise the iframe requests the saved template
        done = await _typed(visit, base, form)
        written_now = done.template
        shown = await document(visit, *_shown(visit, done, is_told=True))
    layouts = visit.team.layouts
    problems = await work(PARSED * _size(form), problems_of, written_now, layouts.get(written_now.layout or ""))
    values = {
        "base": base,
        "known": live is not None,
        "live": live if live and live.status == "approved" else None,
        "draft": draft,
        "written": await written(visit, base.id) if live else None,
        "goes_live": goes_live(visit.setup, base, operator=visit.may("operator")),
        "begun": form.get("mark", "") if is_typed else mark_of(base),
        "form": form,
        "lines": lines,
        "errors": errors or {},
        "tags": ["", *locales_of(form)],
        "tab": _tab(form, errors or {}),
        "warnings": _by_field(problems),
        "layouts": [(o.id, o.name) for o in layouts.values() if o.status == "approved" or o.id == base.layout],
        "added": added or [],
        "other": other,
        "differences": differences or [],
        "typed": is_typed or "from" in visit.query,  # the content is not saved yet
        "shown": shown.decode(),
    }
    return Page("template_edit.html", values, 400 if errors else 200, _size(form) + len(shown))


def _tab(form: dict[str, str], errors: dict[str, str]) -> str:
    """Return the language tab to show: the first with an error, otherwise the previously shown tab."""
    wrong = [tag for tag in locales_of(form) if any(field.startswith(f"locales.{tag}") for field in errors)]
    return wrong[0] if wrong else form.get("shown", "")


def _by_field(problems: list[TemplateProblem]) -> dict[str, list[TemplateProblem]]:
    """Return the warnings by field; errors are shown when they prevent saving."""
    found: dict[str, list[TemplateProblem]] = {}
    for problem in problems:
        own = found.setdefault(problem.field, [])
        if problem.level == "warning" and len(own) < WARNINGS_MAX:
            own.append(problem)
    return found


async def _typed(visit: Visit, base: Template, form: dict[str, str]) -> Edited:
    given = to_given(form, base.channel, with_prices=visit.may("operator"))
    return await work(reading_cost(given), edit_template, base, given)


def _size(form: dict[str, str]) -> int:
    return sum(map(len, form.values()))


def _shown(visit: Visit, done: Edited, *, is_told: bool) -> tuple[Template, dict[str, str], str | None]:
    """Return template, errors and language for a preview. `is_told`: the page already shows the errors."""
    template = done.template if visit.may("operator") else offered(visit.setup, done.template)
    return template, {} if is_told else done.errors, visit.form.get("shown") or None


def _blank(visit: Visit, channel: Channel | None = None) -> Template:
    given = channel or visit.form.get("channel") or visit.query.get("channel", "email")
    if given not in CHANNELS:
        raise Gone
    kind = msgspec.convert(given, Channel)
    id_ = visit.context.clock.new_id("tpl_")
    return Template(id=id_, team=visit.team.record.id, channel=kind, name="", status="draft")


def _editable(visit: Visit) -> Template:
    template = current(visit)
    if template.status == "archived":
        raise InvalidRequest("This template is archived. Restore it first.")
    return proposed(visit.setup, template)
