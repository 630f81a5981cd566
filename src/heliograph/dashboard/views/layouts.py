"""Layouts: the list, a layout with its draft and versions, and the editor."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.dashboard.render import render as to_page
from heliograph.dashboard.views.template_preview import HEADERS, preview_of
from heliograph.dashboard.views.template_search import number
from heliograph.domain.limits import PARSED
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Layout, Template
from heliograph.runtime.threads import LOOKING
from heliograph.templates import layout_service as layouts
from heliograph.templates.layout_service import find, goes_live, proposed
from heliograph.templates.policy.check import length_of
from heliograph.templates.policy.layout_drafts import find_draft, with_fields
from heliograph.templates.policy.lint import problems_of_layout
from heliograph.templates.policy.mjml import reading_cost
from heliograph.templates.policy.template_approvals import mark_of
from heliograph.templates.policy.template_edit import differences
from heliograph.templates.store import PAGE
from heliograph.web.read_budget import work

PARTS = ("html", "text")
EXPIRED = "This page had expired, so nothing was saved. Your text is still here: save it again."
# Sample content for previews of a layout.
CONTENT = Template(
    id="tpl_content", team="", channel="email", name="", subject="A message in this layout",
    html="<h1>A message</h1><p>Its words stand here, where the layout has its content.</p>",
    text="A message\n\nIts words stand here, where the layout has its content.",
)  # fmt: skip


async def index(visit: Visit) -> Answer:
    own = sorted(visit.team.layouts.values(), key=lambda one: (one.name.casefold(), one.id))
    used = Counter(one.layout for one in visit.team.templates.values() if one.status != "archived")
    values = {"found": own, "drafts": {one.id: find_draft(visit.setup, one.id) for one in own}, "used": used}
    return Page("layouts.html", values)


async def show(visit: Visit) -> Answer:
    layout = _current(visit)
    draft = find_draft(visit.setup, layout.id)
    old = layout if draft and layout.status != "draft" else None
    versions = await visit.store.versions.of(layout.id)
    values = {
        "layout": layout,
        "draft": draft,
        "seen": mark_of(draft) if draft else "",
        "differences": await LOOKING.run(differences, old, draft, ("name", *PARTS)) if old and draft else [],
        "used": [one for one in visit.team.templates.values() if one.layout == layout.id and one.status != "archived"],
        "versions": versions[:PAGE],
        "goes_live": goes_live(visit.setup, by_operator=visit.may("operator")),
    }
    return Page("layout.html", values)


async def show_version(visit: Visit) -> Answer:
    """Show a version and its differences from the previous one."""
    layout, version = _current(visit), number(visit.params["version"])
    found, before = [await visit.store.versions.find_layout(layout.id, one) for one in (version, version - 1)]
    if found is None:
        raise Gone
    old = before or replace(found, html=None, text=None)
    compared = await LOOKING.run(differences, old, found, PARTS)
    values = {"layout": layout, "version": found, "before": before, "differences": compared}
    return Page("layout_version.html", values)


async def new(visit: Visit) -> Answer:
    return await _editor(visit, _blank(visit), {"html": "{{content}}", "text": "{{content}}"})


async def edit(visit: Visit) -> Answer:
    base = proposed(visit.setup, _current(visit))
    return await _editor(visit, base, {name: getattr(base, name) or "" for name in ("name", *PARTS)})


async def create(visit: Visit) -> Answer:
    return await _save(visit, _blank(visit), None)


async def save(visit: Visit) -> Answer:
    return await _save(visit, proposed(visit.setup, _current(visit)), visit.form.get("mark", ""))


async def expired(visit: Visit) -> Answer:
    """Show a form sent with an expired session again, without saving it."""
    base = proposed(visit.setup, _current(visit)) if "layout" in visit.params else _blank(visit)
    page = await _editor(visit, base, visit.form, {"form": EXPIRED})
    return replace(page, status=403)


async def publish(visit: Visit) -> Answer:
    """Publish the draft that the user saw."""
    layout = _current(visit)
    done = await layouts.publish(*_by(visit), layout.id, by_operator=visit.may("operator"), mark=visit.form.get("mark"))
    return _published(visit, layout.id, done)


async def archive(visit: Visit) -> Answer:
    await layouts.archive(*_by(visit), _current(visit).id)
    return Redirect(f"{visit.base}/layouts", "Archived. Templates that have it keep it.")


async def preview(visit: Visit) -> Answer:
    """Return the preview document of the saved layout, its draft or an old version, for the iframe."""
    layout = _current(visit)
    if wanted := visit.query.get("version"):
        layout = await visit.store.versions.find_layout(layout.id, number(wanted)) or layout
    elif visit.query.get("draft"):
        layout = proposed(visit.setup, layout)
    return await _frame(visit, layout)


async def preview_typed(visit: Visit) -> Answer:
    """Return the preview document of the unsaved layout in the editor, for the iframe."""
    known = visit.team.layouts.get(visit.form.get("id", ""))
    typed, _ = await _typed(proposed(visit.setup, known) if known else _blank(visit), visit.form)
    return await _frame(visit, typed)


async def _frame(visit: Visit, layout: Layout) -> Download:
    return Download(await _document(visit, layout), "text/html; charset=utf-8", headers=HEADERS)


async def _document(visit: Visit, layout: Layout) -> bytes:
    octets = PARSED * length_of(layout)
    await visit.hold(octets)
    team = replace(visit.team, layouts={layout.id: layout})
    content = replace(CONTENT, team=layout.team, name=layout.name, layout=layout.id)

    def made() -> bytes:
        shown = preview_of(visit.setup, team, content) | {"problems": problems_of_layout(layout), "is_layout": True}
        return to_page("template_preview.html", shown)

    return await work(octets, made)


async def _save(visit: Visit, base: Layout, mark: str | None) -> Answer:
    """Save the layout. `mark` is the content hash of the version that the user edited; None for a new layout."""
    _, wrong = await _typed(base, visit.form)
    if mark is not None and mark != mark_of(base):
        wrong["form"] = "Somebody changed this layout while you wrote. Save again to replace theirs with yours."
    if wrong:
        return await _editor(visit, base, visit.form, wrong)
    try:
        given, publishes = _given(visit.form), visit.form.get("do") != "draft"
        terms = {"publish": publishes, "by_operator": visit.may("operator")}
        done = await layouts.write(visit.store, visit.actor, base, given, **terms)
        if not publishes:
            return Redirect(f"{visit.base}/layouts/{base.id}/edit?saved=yes", "Draft saved.")
    except Refusal as refusal:
        return await _editor(visit, base, visit.form, {refusal.param or "form": refusal.message})
    return _published(visit, base.id, done)


def _published(visit: Visit, id_: str, done: bool) -> Redirect:
    layout = visit.setup.teams[visit.team.record.id].layouts[id_]
    told = f"Published. Version {layout.version} is in use."
    if find_draft(visit.setup, id_):
        told = "Submitted. It is used when an operator approves it."
    return Redirect(f"{visit.base}/layouts/{id_}?saved=yes", told if done else "Nothing was changed.")


async def _editor(visit: Visit, base: Layout, form: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    (typed, _), known = await _typed(base, form), visit.team.layouts.get(base.id)
    problems = await work(PARSED * length_of(typed), problems_of_layout, typed)
    # otherwise the iframe requests the saved layout
    shown = await _document(visit, typed) if visit.form or not known else b""
    values: dict[str, Any] = {
        "base": base,
        "known": known is not None,
        "live": known if known and known.status == "approved" else None,
        "draft": find_draft(visit.setup, base.id),
        "goes_live": goes_live(visit.setup, by_operator=visit.may("operator")),
        "begun": mark_of(base),
        "form": form,
        "errors": errors or {},
        "problems": problems,
        "typed": bool(visit.form),
        "shown": shown.decode(),
    }
    return Page("layout_edit.html", values, 400 if errors else 200, len(shown))


async def _typed(base: Layout, form: dict[str, str]) -> tuple[Layout, dict[str, str]]:
    given = _given(form)
    return await work(reading_cost(given), with_fields, base, given)


def _given(form: dict[str, str]) -> dict[str, Any]:
    parts = {part: form.get(part, "").replace("\r\n", "\n") or None for part in PARTS}
    return {"name": form.get("name", "").strip(), **parts}


def _blank(visit: Visit) -> Layout:
    return Layout(id=visit.context.clock.new_id("lay_"), team=visit.team.record.id, name="", status="draft")


def _current(visit: Visit) -> Layout:
    return find(visit.setup, visit.team.record.id, visit.params["layout"])


def _by(visit: Visit) -> tuple[Any, Any, str]:
    return visit.store, visit.actor, visit.team.record.id
