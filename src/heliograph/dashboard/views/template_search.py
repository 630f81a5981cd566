"""Lookup of the template in the path, its versions and its last author."""

import msgspec

from heliograph.dashboard.page_request import Gone, Visit
from heliograph.domain.setup.records import Template
from heliograph.domain.text import whole_number
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.service import find


class Written(msgspec.Struct, frozen=True):
    """Last author and save time of a template or its draft, and the time of the live version; None if unknown."""

    by: str
    at: int | None
    since: int | None  # when the newest version was published


def current(visit: Visit) -> Template:
    """Return the template named in the path."""
    return find(visit.setup, visit.team.record.id, visit.params["template"])


async def written(visit: Visit, id_: str) -> Written:
    lines = await visit.store.versions.of(id_)
    newest = lines[0] if lines else None
    draft = find_draft(visit.setup, id_)
    if draft and draft.by:
        person = await visit.store.people.get(draft.by)
        return Written(person.email if person else draft.by, draft.at, newest.at if newest else None)
    return Written(newest.person, newest.at, newest.at) if newest else Written("", None, None)


def number(text: str) -> int:
    found = whole_number(text, 9)
    if found is None:
        raise Gone
    return found
