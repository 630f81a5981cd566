"""Inbound mail of the team: list, single mail, and raw content."""

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import Records
from heliograph.domain.refusals import ReceivedNotFound
from heliograph.inbound.policy.inbound_mail import ReceivedRecord, attachment_content
from heliograph.inbound.store.inbound_mail import AFTER_ANY_ID, InboundMailRow
from heliograph.web.paging import ListPage, read_after, read_limit
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import file_response, large_json_response


class ReceivedList(ListPage, frozen=True, kw_only=True):
    data: Records[ReceivedRecord]


async def list_all(call: Call) -> Response:
    """List inbound mail, newest first, in the format of its events."""
    query, store = call.query(), call.context.store
    after = read_after(query, "received") or AFTER_ANY_ID
    page = await store.inbound_mail.list_page(call.team, after, read_limit(query), call.reserve_memory)
    data = [msgspec.Raw(record.encode()) for record in page.records]
    return await large_json_response(page.octets, lambda: {"object": "list", "has_more": page.has_more, "data": data})


async def read(call: Call) -> Response:
    row = await _find_mail(call)
    detail = await call.context.store.inbound_mail.get_record(call.team, row, call.reserve_memory)
    if detail is None:
        raise _not_found(call.params["id"])
    return await large_json_response(row.octets, lambda: detail)


async def read_raw(call: Call) -> Response:
    return file_response(await _read_raw(call, await _find_mail(call)))


async def read_attachment(call: Call) -> Response:
    row, id_ = await _find_mail(call), call.params["attachment"]
    content = await run_large(row.size, attachment_content, await _read_raw(call, row), id_)
    if content is None:
        raise ReceivedNotFound(f"{row.id} has no attachment {id_[:80]!r}.", param="attachment")
    return file_response(content)


async def _find_mail(call: Call) -> InboundMailRow:
    row = await call.context.store.inbound_mail.find_row(call.team, call.params["id"])
    if row is None:
        raise _not_found(call.params["id"])
    return row


async def _read_raw(call: Call, row: InboundMailRow) -> bytes:
    raw = await call.context.store.inbound_mail.get_raw(row, call.reserve_memory)
    if raw is None:
        raise ReceivedNotFound(f"The raw message of {row.id} is no longer stored.", param="id")
    return raw


def _not_found(id_: str) -> ReceivedNotFound:
    return ReceivedNotFound(f"There is no inbound email {id_[:80]!r}. {ReceivedNotFound.fix}", param="id")
