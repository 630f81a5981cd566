"""Layouts: the list, a layout with its draft and versions, and the editor."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.page_request import Download, Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.render import render as to_page
from heliograph.dashboard.views.template_preview import HEADERS, preview_values
from heliograph.dashboard.views.template_search import parse_number
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Layout, Template
from heliograph.runtime.threads import READ_POOL
from heliograph.templates import layout_service as layouts
from heliograph.templates.layout_service import draft_or_current, get, publishes_at_once
from heliograph.templates.policy.check import total_length
from heliograph.templates.policy.layout_drafts import apply_fields, find_draft
from heliograph.templates.policy.lint import find_layout_problems
from heliograph.templates.policy.mjml import parsing_cost
from heliograph.templates.policy.template_approvals import revision_of
from heliograph.templates.policy.template_edit import compare
from heliograph.templates.store import PAGE_SIZE
from heliograph.web.read_budget import run_large

PARTS = ("html", "text")
SESSION_EXPIRED = "This page had expired, so nothing was saved. Your text is still here. Save again."
# sample content for previews of a layout
SAMPLE_CONTENT = Template(
    id="tpl_content", team="", channel="email", name="", subject="Sample email",
    html="<h1>Sample email</h1><p>The content of the email appears here.</p>",
    text="Sample email\n\nThe content of the email appears here.",
)  # fmt: skip


async def index(request: PageRequest) -> PageResponse:
    layouts_by_name = sorted(request.team.layouts.values(), key=lambda item: (item.name.casefold(), item.id))
    use_count = Counter(item.layout for item in request.team.templates.values() if item.status != "archived")
    values = {
        "layouts": layouts_by_name,
        "drafts": {item.id: find_draft(request.setup, item.id) for item in layouts_by_name},
        "used": use_count,
    }
    return Page("layouts.html", values)


async def show(request: PageRequest) -> PageResponse:
    layout = _find_layout(request)
    draft = find_draft(request.setup, layout.id)
    live_layout = layout if draft and layout.status != "draft" else None
    versions = await request.store.versions.list(layout.id)
    values = {
        "layout": layout,
        "draft": draft,
        "seen": revision_of(draft) if draft else "",
        "differences": await READ_POOL.run(compare, live_layout, draft, ("name", *PARTS))
        if live_layout and draft
        else [],
        "used": [
            template
            for template in request.team.templates.values()
            if template.layout == layout.id and template.status != "archived"
        ],
        "versions": versions[:PAGE_SIZE],
        "goes_live": publishes_at_once(request.setup, by_operator=request.has_role("operator")),
    }
    return Page("layout.html", values)


async def show_version(request: PageRequest) -> PageResponse:
    """Show a version and how it differs from the one before."""
    layout, version = _find_layout(request), parse_number(request.params["version"])
    shown_version, previous = [
        await request.store.versions.find_layout(layout.id, version_number) for version_number in (version, version - 1)
    ]
    if shown_version is None:
        raise PageNotFound
    base = previous or replace(shown_version, html=None, text=None)
    changes = await READ_POOL.run(compare, base, shown_version, PARTS)
    values = {"layout": layout, "version": shown_version, "before": previous, "differences": changes}
    return Page("layout_version.html", values)


async def new(request: PageRequest) -> PageResponse:
    return await _editor(request, _new_layout(request), {"html": "{{content}}", "text": "{{content}}"})


async def edit(request: PageRequest) -> PageResponse:
    base = draft_or_current(request.setup, _find_layout(request))
    return await _editor(request, base, {name: getattr(base, name) or "" for name in ("name", *PARTS)})


async def create(request: PageRequest) -> PageResponse:
    return await _save(request, _new_layout(request), None)


async def save(request: PageRequest) -> PageResponse:
    return await _save(request, draft_or_current(request.setup, _find_layout(request)), request.form.get("mark", ""))


async def expired(request: PageRequest) -> PageResponse:
    """Show a submitted form again, without saving it, because the session had expired."""
    base = (
        draft_or_current(request.setup, _find_layout(request)) if "layout" in request.params else _new_layout(request)
    )
    page = await _editor(request, base, request.form, {"form": SESSION_EXPIRED})
    return replace(page, status=403)


async def publish(request: PageRequest) -> PageResponse:
    """Publish the draft, if it is still the one that the user saw."""
    layout = _find_layout(request)
    is_changed = await layouts.publish(
        *_team_args(request), layout.id, by_operator=request.has_role("operator"), revision=request.form.get("mark")
    )
    return _saved_redirect(request, layout.id, is_changed)


async def archive(request: PageRequest) -> PageResponse:
    await layouts.archive(*_team_args(request), _find_layout(request).id)
    return Redirect(f"{request.team_path}/layouts", "Layout archived. Templates that use it keep it.")


async def preview(request: PageRequest) -> PageResponse:
    """Return the preview document of the saved layout, its draft or an old version, for the iframe."""
    layout = _find_layout(request)
    if version_text := request.query.get("version"):
        layout = await request.store.versions.find_layout(layout.id, parse_number(version_text)) or layout
    elif request.query.get("draft"):
        layout = draft_or_current(request.setup, layout)
    return await _preview_frame(request, layout)


async def preview_typed(request: PageRequest) -> PageResponse:
    """Return the preview document of the editor's content, which is not saved, for the iframe."""
    existing_layout = request.team.layouts.get(request.form.get("id", ""))
    layout, _ = await _read_layout(
        draft_or_current(request.setup, existing_layout) if existing_layout else _new_layout(request), request.form
    )
    return await _preview_frame(request, layout)


async def _preview_frame(request: PageRequest, layout: Layout) -> Download:
    return Download(await _preview_document(request, layout), "text/html; charset=utf-8", headers=HEADERS)


async def _preview_document(request: PageRequest, layout: Layout) -> bytes:
    byte_count = SCAN_COST_FACTOR * total_length(layout)
    await request.reserve_memory(byte_count)
    team = replace(request.team, layouts={layout.id: layout})
    content = replace(SAMPLE_CONTENT, team=layout.team, name=layout.name, layout=layout.id)

    def render_document() -> bytes:
        values = preview_values(request.setup, team, content) | {
            "problems": find_layout_problems(layout),
            "is_layout": True,
        }
        return to_page("template_preview.html", values)

    return await run_large(byte_count, render_document)


async def _save(request: PageRequest, base: Layout, base_revision: str | None) -> PageResponse:
    """Save the layout. `base_revision`: content hash of the version that the user edited; None for a new layout."""
    _, errors = await _read_layout(base, request.form)
    if base_revision is not None and base_revision != revision_of(base):
        errors["form"] = "Someone changed this layout while you were editing. Save again to overwrite their changes."
    if errors:
        return await _editor(request, base, request.form, errors)
    try:
        fields, publishes = _form_fields(request.form), request.form.get("do") != "draft"
        terms = {"publish": publishes, "by_operator": request.has_role("operator")}
        is_changed = await layouts.save(request.store, request.actor, base, fields, **terms)
        if not publishes:
            return Redirect(f"{request.team_path}/layouts/{base.id}/edit?saved=yes", "Draft saved.")
    except Refusal as refusal:
        return await _editor(request, base, request.form, {refusal.param or "form": refusal.message})
    return _saved_redirect(request, base.id, is_changed)


def _saved_redirect(request: PageRequest, id_: str, is_changed: bool) -> Redirect:
    layout = request.setup.teams[request.team.record.id].layouts[id_]
    notice = f"Published. Version {layout.version} is in use."
    if find_draft(request.setup, id_):
        notice = "Submitted. It takes effect once an operator approves it."
    return Redirect(f"{request.team_path}/layouts/{id_}?saved=yes", notice if is_changed else "No changes.")


async def _editor(
    request: PageRequest, base: Layout, form: dict[str, str], errors: dict[str, str] | None = None
) -> Page:
    (layout, _), existing = await _read_layout(base, form), request.team.layouts.get(base.id)
    problems = await run_large(SCAN_COST_FACTOR * total_length(layout), find_layout_problems, layout)
    # Without a document, the iframe shows the saved layout.
    document = await _preview_document(request, layout) if request.form or not existing else b""
    values: dict[str, Any] = {
        "base": base,
        "exists": existing is not None,
        "live": existing if existing and existing.status == "approved" else None,
        "draft": find_draft(request.setup, base.id),
        "goes_live": publishes_at_once(request.setup, by_operator=request.has_role("operator")),
        "base_revision": revision_of(base),
        "form": form,
        "errors": errors or {},
        "problems": problems,
        "typed": bool(request.form),
        "preview_html": document.decode(),
    }
    return Page("layout_edit.html", values, 400 if errors else 200, len(document))


async def _read_layout(base: Layout, form: dict[str, str]) -> tuple[Layout, dict[str, str]]:
    fields = _form_fields(form)
    return await run_large(parsing_cost(fields), apply_fields, base, fields)


def _form_fields(form: dict[str, str]) -> dict[str, Any]:
    parts = {part: form.get(part, "").replace("\r\n", "\n") or None for part in PARTS}
    return {"name": form.get("name", "").strip(), **parts}


def _new_layout(request: PageRequest) -> Layout:
    return Layout(id=request.context.clock.new_id("lay_"), team=request.team.record.id, name="", status="draft")


def _find_layout(request: PageRequest) -> Layout:
    return get(request.setup, request.team.record.id, request.params["layout"])


def _team_args(request: PageRequest) -> tuple[Any, Any, str]:
    return request.store, request.actor, request.team.record.id
