"""Template editor. The typed content is kept after errors, conflicts and an expired session."""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views.template_change import saved_redirect
from heliograph.dashboard.views.template_form import (
    VariableRow,
    add_locale,
    form_values,
    form_variables,
    is_free,
    list_locales,
    template_fields,
    template_variables,
)
from heliograph.dashboard.views.template_preview import preview_document, preview_frame
from heliograph.dashboard.views.template_search import LastEdit, find_last_edit, find_template
from heliograph.dashboard.views.template_trial import TrialReport, try_on_recent_sends
from heliograph.dashboard.views.templates import find_differences
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.setup.records import CHANNELS, Channel, Template
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.policy.examples import guess_value
from heliograph.templates.policy.lint import find_problems
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.template_approvals import find_draft, revision_of
from heliograph.templates.policy.template_edit import (
    Difference,
    EditResult,
    edit_template,
    publishes_at_once,
    with_suggested_prices,
)
from heliograph.templates.service import draft_or_current, get
from heliograph.templates.service import save as save_template
from heliograph.web.read_budget import run_large

WARNINGS_MAX = 10  # maximum warnings shown per field
SESSION_EXPIRED = "This page had expired, so nothing was saved. Your text is still here. Save again."


async def new(request: PageRequest) -> PageResponse:
    """Show the editor with an empty template or a copy; without a channel, ask for the channel."""
    if source := request.query.get("from"):
        template = draft_or_current(request.setup, get(request.setup, request.team.record.id, source))
        form = form_values(template) | {"name": f"Copy of {template.name}"}
        return await _editor(request, _new_template(request, template.channel), form, template_variables(template))
    if not request.query.get("channel"):
        return Page("template_new.html")
    base = _new_template(request)
    return await _editor(request, base, form_values(with_suggested_prices(request.setup, base)), [])


async def create(request: PageRequest) -> PageResponse:
    return await _save(request, _new_template(request), None)


async def edit(request: PageRequest) -> PageResponse:
    base = _find_editable(request)
    form = form_values(base if base.price else with_suggested_prices(request.setup, base))
    return await _editor(request, base, form, template_variables(base))


async def save(request: PageRequest) -> PageResponse:
    try:
        base = _find_editable(request)
    except Refusal as refusal:
        return await _as_new_template(request, refusal)
    return await _save(request, base, request.form.get("mark", ""))


async def expired(request: PageRequest) -> PageResponse:
    """Show a submitted form again, without saving it, because the session had expired."""
    try:
        base = _find_editable(request) if "template" in request.params else _new_template(request)
    except Refusal as refusal:
        return await _as_new_template(request, refusal)
    page = await _editor(request, base, request.form, form_variables(request.form), errors={"form": SESSION_EXPIRED})
    return replace(page, status=403)


async def _as_new_template(request: PageRequest, refusal: Refusal) -> Page:
    """Show the typed content as a new template, because the edited one was archived or removed meanwhile."""
    error = f"{refusal.message} Your text is still here. Save it as a new template."
    return await _editor(
        request, _new_template(request), request.form, form_variables(request.form), errors={"form": error}
    )


async def preview(request: PageRequest) -> PageResponse:
    """Return the preview document of the editor's content, which is not saved, for the iframe."""
    template = request.team.templates.get(request.form.get("id", ""))
    base = draft_or_current(request.setup, template) if template else _new_template(request)
    edited = await _read_template(request, base, request.form)
    args = _preview_args(request, edited, errors_shown="show_errors" in request.query)
    return await preview_frame(request, *args)


async def _save(request: PageRequest, base: Template, base_revision: str | None) -> PageResponse:
    """Save the template. `base_revision`: content hash of the version that the user edited; None for a new template."""
    edited, variables = await _read_template(request, base, request.form), form_variables(request.form)
    if request.form.get("do") == "locale":
        return await _add_locale(request, base, variables)
    if request.form.get("do") == "try" and not edited.errors:
        is_live = base.id in request.team.templates
        trial = await try_on_recent_sends(request, edited.template) if is_live else None
        return await _editor(request, base, request.form, variables, trial=trial)
    errors, is_publishing = edited.errors, request.form.get("do") != "draft"
    # Before publishing, show the new variables, because each send must then contain them. A draft is saved at once.
    if not errors and edited.added_variables and is_publishing:
        variables += [
            replace(variable, example=guess_value(variable.name))
            for variable in template_variables(edited.template)
            if variable.name in edited.added_variables
        ]
        return await _editor(request, base, request.form, variables, added=edited.added_variables)
    if not errors:
        save_options: dict[str, Any] = {
            "by_operator": request.has_role("operator"),
            "free": is_free(request.form),
            "publish": is_publishing,
        }
        try:
            is_changed = await save_template(
                request.store, request.actor, edited.template, revision=base_revision, **save_options
            )
        except Refusal as refusal:
            if refusal.param == "mark":
                return await _conflict_page(request, edited.template, variables)
            errors = {refusal.param or "form": refusal.message}
        else:
            if is_publishing:
                return saved_redirect(request, base.id, is_changed)
            return _draft_redirect(request, base.id, edited.added_variables)
    return await _editor(request, base, request.form, variables, errors=errors)


async def _add_locale(request: PageRequest, base: Template, variables: list[VariableRow]) -> Page:
    """Show the form with another language, without saving it."""
    try:
        return await _editor(request, base, add_locale(request.form, base.channel), variables)
    except InvalidRequest as refusal:
        return await _editor(request, base, request.form, variables, errors={"add_locale": refusal.message})


def _draft_redirect(request: PageRequest, id_: str, added_names: list[str]) -> Redirect:
    notice = "Draft saved."
    if added_names:
        noun = "variables" if added_names[1:] else "a variable"
        notice += f" Added {noun}: {', '.join(added_names)}. Add an example."
    return Redirect(f"{request.team_path}/templates/{id_}/edit?saved=yes", notice)


async def _conflict_page(request: PageRequest, template: Template, variables: list[VariableRow]) -> Page:
    """Show the other user's version and how it differs. The next save overwrites it."""
    base = _find_editable(request)
    other_edit = await find_last_edit(request, base.id)
    differences = await find_differences(base, template)
    page = await _editor(request, base, request.form, variables, other_edit=other_edit, differences=differences)
    return replace(page, values=page.values | {"base_revision": revision_of(base)}, status=409)


async def _editor(
    request: PageRequest,
    base: Template,
    form: dict[str, str],
    variables: list[VariableRow],
    *,
    errors: dict[str, str] | None = None,
    added: list[str] | None = None,
    other_edit: LastEdit | None = None,
    differences: list[Difference] | None = None,
    trial: TrialReport | None = None,
) -> Page:
    """Show the editor with the values of `form` and `variables`. `other_edit` and `differences`: of a save conflict."""
    live_template = request.team.templates.get(base.id)
    draft = find_draft(request.setup, base.id)
    is_submitted = bool(request.form)
    preview_html, edited_template = b"", base
    if is_submitted or live_template is None:  # without a document, the iframe shows the saved template
        edited = await _read_template(request, base, form)
        edited_template = edited.template
        preview_html = await preview_document(request, *_preview_args(request, edited, errors_shown=True))
    layouts = request.team.layouts
    problems = await run_large(
        SCAN_COST_FACTOR * _form_size(form), find_problems, edited_template, layouts.get(edited_template.layout or "")
    )
    values = {
        "base": base,
        "exists": live_template is not None,
        "live": live_template if live_template and live_template.status == "approved" else None,
        "draft": draft,
        "last_edit": await find_last_edit(request, base.id) if live_template else None,
        "goes_live": publishes_at_once(request.setup, base, by_operator=request.has_role("operator")),
        "base_revision": form.get("mark", "") if is_submitted else revision_of(base),
        "form": form,
        "lines": variables,
        "errors": errors or {},
        "tags": ["", *list_locales(form)],
        "tab": _select_tab(form, errors or {}),
        "warnings": _warnings_by_field(problems),
        "categories": [(category, category) for category in request.team.record.categories],
        "layouts": [
            (layout.id, layout.name)
            for layout in layouts.values()
            if layout.status == "approved" or layout.id == base.layout
        ],
        "added": added or [],
        "other_edit": other_edit,
        "differences": differences or [],
        "trial": trial,
        "typed": is_submitted or "from" in request.query,  # the content differs from the saved template
        "preview_html": preview_html.decode(),
    }
    return Page("template_edit.html", values, 400 if errors else 200, _form_size(form) + len(preview_html))


def _select_tab(form: dict[str, str], errors: dict[str, str]) -> str:
    """Return the language tab to show: the first one with an error, otherwise the previous one."""
    tags_with_errors = [
        tag for tag in list_locales(form) if any(field.startswith(f"locales.{tag}") for field in errors)
    ]
    return tags_with_errors[0] if tags_with_errors else form.get("shown", "")


def _warnings_by_field(problems: list[TemplateProblem]) -> dict[str, list[TemplateProblem]]:
    """Return field → warnings. Errors are only shown when they prevent saving."""
    warnings_by_field: dict[str, list[TemplateProblem]] = {}
    for problem in problems:
        field_warnings = warnings_by_field.setdefault(problem.field, [])
        if problem.level == "warning" and len(field_warnings) < WARNINGS_MAX:
            field_warnings.append(problem)
    return warnings_by_field


async def _read_template(request: PageRequest, base: Template, form: dict[str, str]) -> EditResult:
    fields = template_fields(form, base.channel, with_prices=request.has_role("operator"))
    return await run_large(parsing_cost(fields), edit_template, base, fields)


def _form_size(form: dict[str, str]) -> int:
    return sum(map(len, form.values()))


def _preview_args(
    request: PageRequest, edited: EditResult, *, errors_shown: bool
) -> tuple[Template, dict[str, str], str | None]:
    """Return template, errors and language of a preview. `errors_shown`: the page already shows the errors.

    New variables have the same example values that editor.js inserts, so the preview is the same without JavaScript.
    """
    template = (
        edited.template if request.has_role("operator") else with_suggested_prices(request.setup, edited.template)
    )
    guesses = {name: guess_value(name) for name in edited.added_variables}
    template = replace(template, examples=guesses | template.examples)
    # While the user types, an empty field is not an error yet.
    errors = {field: text for field, text in edited.errors.items() if request.form.get(field, field).strip()}
    return template, {} if errors_shown else errors, request.form.get("shown") or None


def _new_template(request: PageRequest, channel: Channel | None = None) -> Template:
    channel_name = channel or request.form.get("channel") or request.query.get("channel", "email")
    if channel_name not in CHANNELS:
        raise PageNotFound
    template_channel = msgspec.convert(channel_name, Channel)
    id_ = request.context.clock.new_id("tpl_")
    return Template(id=id_, team=request.team.record.id, channel=template_channel, name="", status="draft")


def _find_editable(request: PageRequest) -> Template:
    template = find_template(request)
    if template.status == "archived":
        raise InvalidRequest("This template is archived. Restore it first.")
    return draft_or_current(request.setup, template)
