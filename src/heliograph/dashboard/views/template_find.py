"""Finding templates: the one of the path, its draft, its versions."""

from heliograph.dashboard.visit import Gone, Visit
from heliograph.rules.setup import template_approvals as approvals
from heliograph.rules.setup.records import Template
from heliograph.rules.setup.snapshot import Setup
from heliograph.storage.versions import find_version


def find_in(setup: Setup, visit: Visit) -> Template:
    """The template of the path, as this setup has it."""
    template = setup.teams[visit.team.record.id].templates.get(visit.params["template"])
    if template is None:
        raise Gone
    return template


def current(visit: Visit) -> Template:
    return find_in(visit.setup, visit)


def proposed(setup: Setup, template: Template) -> Template:
    """Its draft, when it has one."""
    draft = approvals.find_draft(setup, template.id)
    return draft.template if draft else template


def number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Gone
    return int(text)


async def version_of(visit: Visit, id_: str, version: int) -> Template | None:
    return await visit.context.store.database.read(lambda tx: find_version(tx, id_, version))
