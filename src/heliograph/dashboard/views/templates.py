"""Templates: the list, a template with its draft and preview, its versions, and the test form."""

from typing import Any

from heliograph.dashboard.page_request import Answer, Gone, Page, Visit
from heliograph.dashboard.views import template_preview
from heliograph.dashboard.views.template_form import lines_for, to_form
from heliograph.dashboard.views.template_search import current, number, written
from heliograph.domain.setup.records import CHANNELS, Template
from heliograph.runtime.threads import LOOKING
from heliograph.templates.policy import template_approvals as approvals
from heliograph.templates.policy.examples import example_text
from heliograph.templates.policy.meta_status import UNAVAILABLE, known_of, upstream_of
from heliograph.templates.policy.render import most_octets
from heliograph.templates.policy.template_edit import Difference, differences, goes_live, offered
from heliograph.templates.policy.values import BRAND_NAME
from heliograph.templates.service import proposed
from heliograph.templates.store import PAGE

SHOWN = 100  # templates per page of the list


async def index(visit: Visit) -> Answer:
    channel, status, after, q = (visit.query.get(name, "").strip() for name in ("channel", "status", "after", "q"))
    everything = sorted(visit.team.templates.values(), key=_place)
    found = [t for t in everything if channel in ("", t.channel) and _is_in(visit, t, status) and _has(t, q)]
    # position after the last template of the previous page, which may no longer exist
    name, _, id_ = after.rpartition("/")
    found = [t for t in found if _place(t) > (name, id_)]
    drafts = {t.id: approvals.find_draft(visit.setup, t.id) for t in found[:SHOWN]}
    values: dict[str, object] = {"found": found[:SHOWN], "drafts": drafts, "channel": channel, "status": status, "q": q}
    values |= {"upstream": {t.id: upstream_of(visit.team, t) for t in found[:SHOWN]}, "unavailable": UNAVAILABLE}
    values |= {"after": "/".join(_place(found[SHOWN - 1])) if len(found) > SHOWN else ""}
    return Page("templates.html", values | {"any": bool(everything), "channels": CHANNELS})


def _place(template: Template) -> tuple[str, str]:
    return template.name.casefold(), template.id


def _is_in(visit: Visit, template: Template, status: str) -> bool:
    """Return whether the template has this status; a live template with unpublished changes also counts as a draft."""
    is_changing = status == "draft" and ("template_draft", template.id) in visit.setup.records
    return is_changing or status in ("", template.status)


def _has(template: Template, q: str) -> bool:
    return q.casefold() in template.name.casefold() or q == template.id


async def show_template(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    """Show a template; `errors` are those of a rejected approval."""
    template = current(visit)
    draft = approvals.find_draft(visit.setup, template.id)
    values = _shared(visit, template, draft, errors) | {
        "offer": to_form(draft.template if draft.template.price else offered(visit.setup, draft.template))
        if draft
        else {},
        "differences": await compared(draft.current, draft.template) if draft and draft.current else [],
        "lines": lines_for(proposed(visit.setup, template)),
        "written": await written(visit, template.id),
        "goes_live": bool(draft) and goes_live(visit.setup, proposed(visit.setup, template), operator=False),
        "shown": offered(visit.setup, template),
        "curl": template_preview.curl(visit, template),
        "upstream": known_of(visit.team, template),
        "unavailable": UNAVAILABLE,
    }
    return Page("template.html", values, 400 if errors else 200, most_octets(template, ()))


async def show_test(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    """Show the form of a test send; `errors` are those of a rejected one."""
    template = current(visit)
    draft = approvals.find_draft(visit.setup, template.id)
    own = lines_for(template)
    new = lines_for(draft.template) if draft else []
    values = _shared(visit, template, draft, errors) | {
        "asked": [
            line for line in own + [one for one in new if one.name not in template.variables] if line.name != BRAND_NAME
        ],
        "recipient": template_preview.RECIPIENTS[template.channel],
        "recipients": sorted(to for to in visit.team.recipients if ("@" in to) == (template.channel == "email")),
        "platform": visit.setup.platform,
        "domains": visit.team.approved_domains,
        "example_text": lambda name: example_text(draft.template if draft else template, name),
    }
    return Page("template_test.html", values, 400 if errors else 200)


def _shared(
    visit: Visit, template: Template, draft: approvals.PendingTemplate | None, errors: dict[str, str] | None
) -> dict[str, Any]:
    return {
        "template": template,
        "draft": draft,
        "errors": errors or {},
        "form": visit.form,
        "saved": bool(visit.query.get("saved")),
    }


async def show_versions(visit: Visit) -> Answer:
    template = current(visit)
    text = visit.query.get("before")
    versions = await visit.store.versions.of(template.id, number(text) if text else None)
    draft = approvals.find_draft(visit.setup, template.id)
    values = {"versions": versions[:PAGE], "more": len(versions) > PAGE}
    return Page("template_versions.html", _shared(visit, template, draft, None) | values)


async def show_version(visit: Visit) -> Answer:
    """Show a version and its differences from the previous one."""
    template = current(visit)
    version = number(visit.params["version"])
    found, before = [await visit.store.versions.find(template.id, one) for one in (version, version - 1)]
    if found is None:
        raise Gone
    values = {"template": template, "version": found, "before": before, "differences": await compared(before, found)}
    return Page("template_version.html", values, size=most_octets(found, ()))


async def preview(visit: Visit) -> Answer:
    """Return the preview document of the saved template, its draft or an old version, for the iframe."""
    template = current(visit)
    if wanted := visit.query.get("version"):
        template = await visit.store.versions.find(template.id, number(wanted)) or template
    elif visit.query.get("draft"):
        template = proposed(visit.setup, template)
    return await template_preview.frame(visit, offered(visit.setup, template))


async def compared(old: Template | None, new: Template) -> list[Difference]:
    """Return the differences between two templates, computed in a thread because long texts are slow."""
    nothing = Template(id=new.id, team=new.team, channel=new.channel, name="")
    return await LOOKING.run(differences, old or nothing, new)
