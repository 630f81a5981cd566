"""The audit log over HTTP, for platform keys."""

from heliograph.api.call import Call
from heliograph.domain.field_docs import Records
from heliograph.domain.refusals import InvalidRequest, TeamNotFound
from heliograph.domain.text import quoted, whole_number
from heliograph.manage.audit import AuditRecord, to_record
from heliograph.storage.audit import NEWEST
from heliograph.web.paging import Listed, page, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query

DIGITS = 18  # maximum length of an entry id
AFTER = Query("after", "The last id of the previous page.", {"type": "integer", "minimum": 1})
TEAM = Query("team", "Entries of this team alone. Default: of all teams and of the instance.")


class AuditList(Listed, frozen=True, kw_only=True):
    data: Records[AuditRecord]


async def list_all(call: Call) -> Response:
    query, store = call.query(), call.context.store
    limit, team, before = read_limit(query), query.get("team"), NEWEST
    if team is not None and team not in store.setup.current.teams:
        raise TeamNotFound(f"There is no team {quoted(team)}. {TeamNotFound.fix}", param="team")
    if "after" in query:
        before = whole_number(query["after"], DIGITS) or 0
        if not await store.audit.has(before):
            raise InvalidRequest(f"after is the id of an entry, not {quoted(query['after'])}.", param="after")
    return page([to_record(line) for line in await store.audit.lines(team, before, limit)], limit)
