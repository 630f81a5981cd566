"""Templates: the list, a template with its draft and preview, its versions, and the test form."""

from typing import Any

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse
from heliograph.dashboard.views import template_preview
from heliograph.dashboard.views.template_form import form_values, template_variables
from heliograph.dashboard.views.template_search import find_last_edit, find_template, parse_number
from heliograph.domain.setup.records import CHANNELS, Template
from heliograph.runtime.threads import READ_POOL
from heliograph.templates.policy import template_approvals as approvals
from heliograph.templates.policy.examples import example_text
from heliograph.templates.policy.meta_status import UNAVAILABLE_STATES, get_status, list_statuses
from heliograph.templates.policy.render import estimate_octets
from heliograph.templates.policy.template_edit import Difference, compare, publishes_at_once, with_suggested_prices
from heliograph.templates.policy.values import BRAND_NAME
from heliograph.templates.service import draft_or_current
from heliograph.templates.store import PAGE_SIZE

TEMPLATES_PER_PAGE = 100


async def index(request: PageRequest) -> PageResponse:
    channel, status, after, search_text = (
        request.query.get(name, "").strip() for name in ("channel", "status", "after", "q")
    )
    all_templates = sorted(request.team.templates.values(), key=_sort_key)
    matching_templates = [
        template
        for template in all_templates
        if channel in ("", template.channel)
        and _has_status(request, template, status)
        and _matches_search(template, search_text)
    ]
    # The page begins after the last template of the previous page, even if that template was deleted.
    name, _, id_ = after.rpartition("/")
    matching_templates = [template for template in matching_templates if _sort_key(template) > (name, id_)]
    shown_templates = matching_templates[:TEMPLATES_PER_PAGE]
    values = {
        "templates": shown_templates,
        "drafts": {template.id: approvals.find_draft(request.setup, template.id) for template in shown_templates},
        "channel": channel,
        "status": status,
        "q": search_text,
        "upstream": {template.id: get_status(request.team, template) for template in shown_templates},
        "unavailable": UNAVAILABLE_STATES,
        "after": "/".join(_sort_key(shown_templates[-1])) if len(matching_templates) > TEMPLATES_PER_PAGE else "",
        "any": bool(all_templates),
        "channels": CHANNELS,
    }
    return Page("templates.html", values)


def _sort_key(template: Template) -> tuple[str, str]:
    return template.name.casefold(), template.id


def _has_status(request: PageRequest, template: Template, status: str) -> bool:
    """Return whether the template has this status. A live template with unpublished changes is a draft as well."""
    is_changing = status == "draft" and ("template_draft", template.id) in request.setup.records
    return is_changing or status in ("", template.status)


def _matches_search(template: Template, search_text: str) -> bool:
    return search_text.casefold() in template.name.casefold() or search_text == template.id


async def show_template(request: PageRequest, errors: dict[str, str] | None = None) -> Page:
    """Show a template. `errors`: why its approval was rejected."""
    template = find_template(request)
    draft = approvals.find_draft(request.setup, template.id)
    values = _shared_values(request, template, draft, errors) | {
        "offer": form_values(
            draft.template if draft.template.price else with_suggested_prices(request.setup, draft.template)
        )
        if draft
        else {},
        "differences": await find_differences(draft.current, draft.template) if draft and draft.current else [],
        "lines": template_variables(draft_or_current(request.setup, template)),
        "last_edit": await find_last_edit(request, template.id),
        "goes_live": bool(draft)
        and publishes_at_once(request.setup, draft_or_current(request.setup, template), by_operator=False),
        "shown": with_suggested_prices(request.setup, template),
        "curl": template_preview.curl_command(request, template, _shown_locale(request, template)),
        "layout": request.team.layouts.get(draft_or_current(request.setup, template).layout or ""),
        "upstream": list_statuses(request.team, template),
        "unavailable": UNAVAILABLE_STATES,
    }
    return Page("template.html", values, 400 if errors else 200, estimate_octets(template, ()))


async def show_test(request: PageRequest, errors: dict[str, str] | None = None) -> Page:
    """Show the form of a test send. `errors`: why it was rejected."""
    template = find_template(request)
    draft = approvals.find_draft(request.setup, template.id)
    template_rows = template_variables(template)
    draft_rows = template_variables(draft.template) if draft else []
    values = _shared_values(request, template, draft, errors) | {
        "asked": [
            variable
            for variable in template_rows
            + [draft_row for draft_row in draft_rows if draft_row.name not in template.variables]
            if variable.name != BRAND_NAME
        ],
        "recipient": template_preview.RECIPIENTS[template.channel],
        "recipients": sorted(
            recipient for recipient in request.team.recipients if ("@" in recipient) == (template.channel == "email")
        ),
        "platform": request.setup.platform,
        "domains": request.team.approved_domains,
        "example_text": lambda name: example_text(draft.template if draft else template, name),
    }
    return Page("template_test.html", values, 400 if errors else 200)


def _shared_values(
    request: PageRequest, template: Template, draft: approvals.TemplateDraftState | None, errors: dict[str, str] | None
) -> dict[str, Any]:
    return {
        "template": template,
        "draft": draft,
        "errors": errors or {},
        "form": request.form,
        "saved": bool(request.query.get("saved")),
        "languages": _list_languages(draft_or_current(request.setup, template)),
        "locale": _shown_locale(request, template),
    }


def _list_languages(template: Template) -> list[tuple[str, str]]:
    """Return (locale, label) of each language, first the default with an empty locale; empty if there is no other."""
    return [("", template.locale), *((tag, tag) for tag in sorted(template.locales))] if template.locales else []


def _shown_locale(request: PageRequest, template: Template) -> str:
    """Return the language that the reader chose for the preview; empty for the default."""
    chosen_locale = request.query.get("locale", "") or request.form.get("locale", "")
    return chosen_locale if chosen_locale in draft_or_current(request.setup, template).locales else ""


async def show_versions(request: PageRequest) -> PageResponse:
    template = find_template(request)
    text = request.query.get("before")
    versions = await request.store.versions.list(template.id, parse_number(text) if text else None)
    draft = approvals.find_draft(request.setup, template.id)
    values = {"versions": versions[:PAGE_SIZE], "more": len(versions) > PAGE_SIZE}
    return Page("template_versions.html", _shared_values(request, template, draft, None) | values)


async def show_version(request: PageRequest) -> PageResponse:
    """Show a version and how it differs from the one before."""
    template = find_template(request)
    version = parse_number(request.params["version"])
    shown_version, previous = [
        await request.store.versions.find_template(template.id, version_number)
        for version_number in (version, version - 1)
    ]
    if shown_version is None:
        raise PageNotFound
    values = {
        "template": template,
        "version": shown_version,
        "before": previous,
        "differences": await find_differences(previous, shown_version),
    }
    return Page("template_version.html", values, size=estimate_octets(shown_version, ()))


async def preview(request: PageRequest) -> PageResponse:
    """Return the preview document of the saved template, its draft or an old version, for the iframe."""
    template = find_template(request)
    if version_text := request.query.get("version"):
        template = await request.store.versions.find_template(template.id, parse_number(version_text)) or template
    elif request.query.get("draft"):
        template = draft_or_current(request.setup, template)
    locale = request.query.get("locale") or None
    return await template_preview.preview_frame(request, with_suggested_prices(request.setup, template), locale=locale)


async def find_differences(old: Template | None, new: Template) -> list[Difference]:
    """Return the differences between two templates. Runs in a thread, because long texts are slow."""
    empty_template = Template(id=new.id, team=new.team, channel=new.channel, name="")
    return await READ_POOL.run(compare, old or empty_template, new)
