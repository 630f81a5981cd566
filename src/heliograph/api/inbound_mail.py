"""Inbound mail of the team: list, single mail, and raw content."""

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import Records
from heliograph.domain.refusals import ReceivedNotFound
from heliograph.inbound.policy.inbound_mail import ReceivedRecord, attachment_in
from heliograph.inbound.store.inbound_mail import LAST, ReceivedLine
from heliograph.web.paging import Listed, read_after, read_limit
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer_file, answer_of


class ReceivedList(Listed, frozen=True, kw_only=True):
    data: Records[ReceivedRecord]


async def list_all(call: Call) -> Response:
    """List inbound mail, newest first, in the format of its events."""
    query, store = call.query(), call.context.store
    after = read_after(query, "received") or LAST
    page = await store.received.page(call.team, after, read_limit(query), call.hold)
    data = [msgspec.Raw(record.encode()) for record in page.records]
    return await answer_of(page.octets, lambda: {"object": "list", "has_more": page.has_more, "data": data})


async def read(call: Call) -> Response:
    found = await _find(call)
    whole = await call.context.store.received.whole(call.team, found, call.hold)
    if whole is None:
        raise _missing(call.params["id"])
    return await answer_of(found.octets, lambda: whole)


async def read_raw(call: Call) -> Response:
    return answer_file(await _raw(call, await _find(call)))


async def read_attachment(call: Call) -> Response:
    found, id_ = await _find(call), call.params["attachment"]
    content = await work(found.size, attachment_in, await _raw(call, found), id_)
    if content is None:
        raise ReceivedNotFound(f"{found.id} has no attachment {id_[:80]!r}.", param="attachment")
    return answer_file(content)


async def _find(call: Call) -> ReceivedLine:
    found = await call.context.store.received.find(call.team, call.params["id"])
    if found is None:
        raise _missing(call.params["id"])
    return found


async def _raw(call: Call, found: ReceivedLine) -> bytes:
    raw = await call.context.store.received.raw(found, call.hold)
    if raw is None:
        raise ReceivedNotFound(f"The mail {found.id} as it came is no longer kept.", param="id")
    return raw


def _missing(id_: str) -> ReceivedNotFound:
    return ReceivedNotFound(f"No mail {id_[:80]!r} was received. {ReceivedNotFound.fix}", param="id")
