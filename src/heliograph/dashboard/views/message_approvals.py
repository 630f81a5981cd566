"""Messages of a team that wait for approval. Owners and operators release or reject them."""

from collections.abc import Awaitable, Callable

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.domain.refusals import AlreadyDecided, ApprovalNotFound
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.records import Key
from heliograph.manage import approvals
from heliograph.storage.approvals import Approval, PendingMessage

PAGE_SIZE = 50


async def show(request: PageRequest) -> PageResponse:
    rows = await request.store.approvals.list_pending(request.team.record.ref, PAGE_SIZE)
    lines = [_approval_row(request, row) for row in rows[:PAGE_SIZE]]
    return Page("message_approvals.html", {"lines": lines, "has_more": len(rows) > PAGE_SIZE})


async def release(request: PageRequest) -> PageResponse:
    return await _decide(request, approvals.release, "Message released.")


async def reject(request: PageRequest) -> PageResponse:
    return await _decide(request, approvals.reject, "Message rejected. It is not sent, and nothing is charged.")


async def _decide(request: PageRequest, decide: Callable[..., Awaitable[Approval]], notice: str) -> PageResponse:
    try:
        await decide(request.store, request.actor, await _find(request))
    except AlreadyDecided as refusal:
        notice = refusal.meaning()
    return Redirect(f"{request.team_path}/approvals", notice)


async def _find(request: PageRequest) -> Approval:
    try:
        return await approvals.find(request.store, request.params["id"], request.team.record)
    except ApprovalNotFound:
        raise PageNotFound from None


def _approval_row(request: PageRequest, row: PendingMessage) -> dict[str, object]:
    record, key = decode_record(row.record), request.setup.records.get(("key", row.approval.key_id))
    return {
        "approval": row.approval,
        "title": record.subject or f"{CHANNEL_NAMES[row.approval.channel]} to {record.to}",
        "to": record.to,
        "others": record.recipient_count - 1,
        "key": key.name if isinstance(key, Key) else row.approval.key_id,
    }
