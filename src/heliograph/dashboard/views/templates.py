"""Templates: the list, and one of them with its draft, its versions and its preview."""

import asyncio

from heliograph.dashboard.views import template_preview
from heliograph.dashboard.views.template_find import current, number
from heliograph.dashboard.views.template_form import lines_for, to_form
from heliograph.dashboard.visit import Answer, Gone, Page, Visit
from heliograph.manage.templates import proposed
from heliograph.rules.setup import template_approvals as approvals
from heliograph.rules.setup.file import CHANNELS
from heliograph.rules.setup.records import Template
from heliograph.rules.setup.template_edit import differences, offered
from heliograph.rules.template import BRAND_NAME
from heliograph.storage.versions import PAGE, VersionLine

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


async def show_template(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    """With what is wrong with a test send, when one was refused."""
    template = current(visit)
    draft = approvals.find_draft(visit.setup, template.id)
    versions = await _versions(visit, template.id)
    own = lines_for(template)
    new = lines_for(draft.template) if draft else []
    values = {
        "template": template,
        "draft": draft,
        "offer": to_form(offered(visit.setup, draft.template)) if draft else {},
        "differences": await _compared(draft.current, draft.template) if draft and draft.current else [],
        "lines": own,
        "asked": [  # by a test send
            line for line in own + [one for one in new if one.name not in template.variables] if line.name != BRAND_NAME
        ],
        "versions": versions[:PAGE],
        "more": len(versions) > PAGE,
        "curl": template_preview.curl(visit, template),
        "recipient": template_preview.RECIPIENTS[template.channel],
        "recipients": sorted(to for to in visit.team.recipients if ("@" in to) == (template.channel == "email")),
        "platform": visit.setup.platform,
        "domains": visit.team.approved_domains(),
        "errors": errors or {},
        "form": visit.form,
    }
    return Page("template.html", values, 400 if errors else 200)


async def show_version(visit: Visit) -> Answer:
    """A version beside the one before it."""
    template = current(visit)
    version = number(visit.params["version"])
    found, before = [await visit.store.versions.find(template.id, one) for one in (version, version - 1)]
    if found is None:
        raise Gone
    values = {"template": template, "version": found, "before": before}
    return Page("template_version.html", values | {"differences": await _compared(before, found)})


async def preview(visit: Visit) -> Answer:
    """The document of the preview's frame: a template as it is kept, or its draft or an old version."""
    template = current(visit)
    if wanted := visit.query.get("version"):
        template = await visit.store.versions.find(template.id, number(wanted)) or template
    elif visit.query.get("draft"):
        template = proposed(visit.setup, template)
    return template_preview.frame(visit, offered(visit.setup, template), {})


async def _versions(visit: Visit, id_: str) -> list[VersionLine]:
    text = visit.query.get("before")
    before = number(text) if text else None
    return await visit.store.versions.of(id_, before)


async def _compared(old: Template | None, new: Template) -> list[object]:
    """In a thread: long texts take their time."""
    nothing = Template(id=new.id, team=new.team, channel=new.channel, name="")
    return list(await asyncio.to_thread(differences, old or nothing, new))
