"""Templates: the list, one of them with its versions, the editor with its preview, and a test send."""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.render import render
from heliograph.dashboard.views import template_preview
from heliograph.dashboard.views.template_form import Line, lines_for, lines_of, to_form, to_given
from heliograph.dashboard.visit import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.rules import approvals
from heliograph.rules.refusals import InvalidRequest, Refusal
from heliograph.rules.setup import Row, Setup, to_row
from heliograph.rules.setup_file import CHANNELS
from heliograph.rules.setup_plan import CONTENT
from heliograph.rules.team import Channel, Template
from heliograph.rules.template import placeholder_names
from heliograph.rules.template_edit import differences, read_template, save_rows
from heliograph.storage.store import SetupChange
from heliograph.storage.versions import PAGE, VersionLine, find_version, versions_of

SHOWN = 100  # templates on a page of the list
STATUSES = ("approved", "draft", "archived")


async def index(visit: Visit) -> Answer:
    channel, status, after = (visit.query.get(name, "") for name in ("channel", "status", "after"))
    everything = sorted(visit.team.templates.values(), key=_place)
    found = [t for t in everything if channel in ("", t.channel) and status in ("", t.status)]
    if before := visit.team.templates.get(after):
        found = [t for t in found if _place(t) > _place(before)]
    changing = {t.id for t in found[:SHOWN] if ("template_draft", t.id) in visit.setup.records}
    values: dict[str, object] = {"found": found[:SHOWN], "changing": changing, "channel": channel, "status": status}
    values |= {"more": len(found) > SHOWN, "any": bool(everything), "channels": CHANNELS}
    values["choices"] = [[("", "All"), *((word, word) for word in words)] for words in (CHANNELS, STATUSES)]
    return Page("templates.html", values)


def _place(template: Template) -> tuple[str, str]:
    return template.name.casefold(), template.id


# -- one template ------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Answer:
    return await show_template(visit)


async def show_template(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    """With what is wrong with a test send, when one was refused."""
    template = _current(visit)
    draft = approvals.find_draft(visit.setup, template.id)
    versions = await _versions(visit, template.id)
    values = {
        "template": template,
        "draft": draft,
        "differences": await _compared(draft.current, draft.template) if draft and draft.current else [],
        "lines": lines_for(template),
        "versions": versions[:PAGE],
        "more": len(versions) > PAGE,
        "curl": template_preview.curl(visit, template),
        "recipient": template_preview.RECIPIENTS[template.channel],
        "domains": visit.team.approved_domains(),
        "errors": errors or {},
        "form": visit.form,
    }
    return Page("template.html", values, 400 if errors else 200)


async def show_version(visit: Visit) -> Answer:
    """A version beside the one before it."""
    template = _current(visit)
    version = _number(visit.params["version"])
    found, before = await _version(visit, template.id, version), await _version(visit, template.id, version - 1)
    if found is None:
        raise Gone
    values = {"template": template, "version": found, "before": before}
    return Page("template_version.html", values | {"differences": await _compared(before, found)})


async def preview(visit: Visit) -> Answer:
    """The document of the preview's frame: a template as it is kept, or its draft or an old version."""
    template = _current(visit)
    if wanted := visit.query.get("version"):
        template = await _version(visit, template.id, _number(wanted)) or template
    elif visit.query.get("draft"):
        template = _proposed(visit.setup, template)
    return _frame(visit, template, {})


async def preview_typed(visit: Visit) -> Answer:
    """The same of what stands in the editor now."""
    template = visit.team.templates.get(visit.form.get("id", ""))
    base = _proposed(visit.setup, template) if template else _blank(visit)
    return _frame(visit, *_read(visit, base))


def _frame(visit: Visit, template: Template, errors: dict[str, str]) -> Download:
    body = render("template_preview.html", template_preview.preview(visit.setup, visit.team, template, errors))
    return Download(body, "text/html; charset=utf-8", headers=template_preview.HEADERS)


# -- the editor --------------------------------------------------------------------------------------------


async def new(visit: Visit) -> Answer:
    return _editor(visit, _blank(visit))


async def create(visit: Visit) -> Answer:
    return await _save(visit, _blank(visit), None)


async def edit(visit: Visit) -> Answer:
    return _editor(visit, _editable(visit))


async def save(visit: Visit) -> Answer:
    return await _save(visit, _editable(visit), visit.form.get("mark", ""))


async def _save(visit: Visit, base: Template, mark: str | None) -> Answer:
    """`mark` names what the person began with; None: nothing."""
    template, errors = _read(visit, base)
    if visit.form.get("do") == "declare":
        missing = [name for name in placeholder_names(template) if name not in template.variables]
        return _editor(visit, base, {}, [*lines_of(visit.form), *map(Line, missing)])

    def rows(current: Setup) -> list[Row]:
        old = current.teams[base.team].templates.get(base.id)
        if mark is not None and (old is None or approvals.mark_of(_proposed(current, old)) != mark):
            raise InvalidRequest("Somebody changed this template while you wrote. Open it again to see how.")
        return _saved(visit, current, template)

    if not errors:
        try:
            return await _changed(visit, "template.save", template.id, rows)
        except Refusal as refusal:
            errors = {"form": refusal.message}
    return _editor(visit, base, errors, lines_of(visit.form))


def _editor(
    visit: Visit, base: Template, errors: dict[str, str] | None = None, lines: list[Line] | None = None
) -> Page:
    known = base.id in visit.team.templates
    values = {
        "base": base,
        "known": known,
        "mark": approvals.mark_of(base) if lines is None else visit.form.get("mark", ""),
        "form": to_form(base) if lines is None else visit.form,
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
    return Template(id=visit.desk.clock.new_id("tpl_"), team=visit.team.record.id, channel=channel, name="")


# -- changes -----------------------------------------------------------------------------------------------


async def restore(visit: Visit) -> Answer:
    """An old version's content becomes the newest version."""
    template = _current(visit)
    old = await _version(visit, template.id, _number(visit.form.get("version", "")))
    if old is None:
        raise Gone
    content = {part: getattr(old, part) for part in (*CONTENT, "examples")}
    return await _changed(
        visit, "template.restore", template.id, lambda now: _saved(visit, now, replace(_of(visit, now), **content))
    )


async def archive(visit: Visit) -> Answer:
    """Out of use; what waits for approval goes with it."""

    def rows(current: Setup) -> list[Row]:
        template = _of(visit, current)
        if template.status == "draft":
            return approvals.discard(current, template.id)
        archived = replace(template, status="archived")
        return [*approvals.discard(current, template.id), to_row("template", template.id, archived, template.team)]

    await visit.change_setup("template.archive", visit.params["template"], lambda now: SetupChange(rows=rows(now)))
    return Redirect(f"{visit.base}/templates", "Archived. Sends that name it are refused from now on.")


async def unarchive(visit: Visit) -> Answer:
    return await _changed(
        visit,
        "template.unarchive",
        visit.params["template"],
        lambda now: _saved(visit, now, replace(_of(visit, now), status="approved")),
    )


async def discard(visit: Visit) -> Answer:
    id_ = visit.params["template"]
    _current(visit)
    await visit.change_setup("template.discard", id_, lambda now: SetupChange(rows=approvals.discard(now, id_)))
    return Redirect(f"{visit.base}/templates", "The draft is discarded.")


async def approve(visit: Visit) -> Answer:
    id_, mark = _current(visit).id, visit.form.get("mark", "")
    return await _changed(visit, "template.approve", id_, lambda now: approvals.approve(now, id_, mark))


async def refuse(visit: Visit) -> Answer:
    id_, mark, reason = _current(visit).id, visit.form.get("mark", ""), visit.form.get("reason", "").strip()
    if not reason:
        raise InvalidRequest("Say why, so that the team can mend it.")
    await visit.change_setup(
        "template.refuse", id_, lambda now: SetupChange(rows=approvals.refuse(now, id_, mark, reason[:500])), reason
    )
    return Redirect(f"{visit.base}/templates/{id_}", "Refused; the team sees your reason.")


async def send(visit: Visit) -> Answer:
    try:
        message = await template_preview.test_send(visit, _current(visit))
    except Refusal as refusal:
        param = (refusal.param or "").partition(".")[0]
        return await show_template(visit, {param if param in ("to", "from") else "send": refusal.message})
    await visit.note("template.test", visit.params["template"], message)
    return Redirect(f"{visit.base}/messages/{message}", "Sent. Watch it here.")


async def _changed(visit: Visit, action: str, id_: str, rows: Callable[[Setup], list[Row]]) -> Answer:
    done = await visit.change_setup(action, id_, lambda now: SetupChange(rows=rows(now)))
    draft = approvals.find_draft(visit.setup, id_)
    told = f"Saved. Version {visit.setup.teams[visit.team.record.id].templates[id_].version} is in use."
    if draft:
        told = "Saved as a draft. An operator approves it before it is sent."
    return Redirect(f"{visit.base}/templates/{id_}", told if done.rows else "Nothing was changed.")


def _saved(visit: Visit, current: Setup, template: Template) -> list[Row]:
    by, at = visit.person.person, visit.desk.clock.now()
    return save_rows(current, template, operator=visit.may("operator"), by=by, at=at)


# -- finding -----------------------------------------------------------------------------------------------


def _of(visit: Visit, setup: Setup) -> Template:
    """The template of the path, as this setup has it."""
    template = setup.teams[visit.team.record.id].templates.get(visit.params["template"])
    if template is None:
        raise Gone
    return template


def _current(visit: Visit) -> Template:
    return _of(visit, visit.setup)


def _proposed(setup: Setup, template: Template) -> Template:
    """Its draft, when it has one."""
    draft = approvals.find_draft(setup, template.id)
    return draft.template if draft else template


def _editable(visit: Visit) -> Template:
    template = _current(visit)
    if template.status == "archived":
        raise InvalidRequest("This template is archived. Bring it back first.")
    return _proposed(visit.setup, template)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Gone
    return int(text)


async def _version(visit: Visit, id_: str, version: int) -> Template | None:
    return await visit.desk.store.database.read(lambda tx: find_version(tx, id_, version))


async def _versions(visit: Visit, id_: str) -> list[VersionLine]:
    before = visit.query.get("before")
    number = _number(before) if before else None
    return await visit.desk.store.database.read(lambda tx: versions_of(tx, id_, number))


async def _compared(old: Template | None, new: Template) -> list[object]:
    """In a thread: long texts take their time."""
    nothing = Template(id=new.id, team=new.team, channel=new.channel, name="")
    return list(await asyncio.to_thread(differences, old or nothing, new))
