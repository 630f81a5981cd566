"""Finds the template in the path, its versions and its last editor."""

import msgspec

from heliograph.dashboard.page_request import PageNotFound, PageRequest
from heliograph.domain.setup.records import Template
from heliograph.domain.text import parse_int
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.service import get


class LastEdit(msgspec.Struct, frozen=True):
    """Who saved a template or its draft last and when, and when the live version was published; None if unknown."""

    author: str
    saved_at: int | None
    published_at: int | None


def find_template(request: PageRequest) -> Template:
    return get(request.setup, request.team.record.id, request.params["template"])


async def find_last_edit(request: PageRequest, id_: str) -> LastEdit:
    versions = await request.store.versions.list(id_)
    newest_version = versions[0] if versions else None
    draft = find_draft(request.setup, id_)
    if draft and draft.author:
        person = await request.store.people.get(draft.author)
        return LastEdit(
            person.email if person else draft.author, draft.saved_at, newest_version.at if newest_version else None
        )
    return (
        LastEdit(newest_version.person, newest_version.at, newest_version.at)
        if newest_version
        else LastEdit("", None, None)
    )


def parse_number(text: str) -> int:
    value = parse_int(text, 9)
    if value is None:
        raise PageNotFound
    return value
