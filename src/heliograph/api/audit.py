"""Endpoint that returns the audit log to platform keys."""

from heliograph.api.call import Call
from heliograph.domain.field_docs import Records
from heliograph.domain.refusals import InvalidRequest, TeamNotFound
from heliograph.domain.text import parse_int, quoted
from heliograph.manage.audit import AuditRecord, to_record
from heliograph.storage.audit import NEWEST
from heliograph.web.paging import ListPage, page_response, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam

ID_DIGITS_MAX = 18  # maximum length of an entry id
AFTER = QueryParam("after", "The last id of the previous page.", {"type": "integer", "minimum": 1})
TEAM = QueryParam("team", "Only entries of this team. Default: entries of all teams and of the instance.")


class AuditList(ListPage, frozen=True, kw_only=True):
    data: Records[AuditRecord]


async def list_all(call: Call) -> Response:
    query, store = call.query(), call.context.store
    limit, team, before = read_limit(query), query.get("team"), NEWEST
    if team is not None and team not in store.setup.current.teams:
        raise TeamNotFound(f"There is no team {quoted(team)}. {TeamNotFound.fix}", param="team")
    if "after" in query:
        before = parse_int(query["after"], ID_DIGITS_MAX) or 0
        if not await store.audit.exists(before):
            raise InvalidRequest(
                f"after must be the id of an audit log entry, not {quoted(query['after'])}.", param="after"
            )
    return page_response([to_record(row) for row in await store.audit.list_rows(team, before, limit)], limit)
