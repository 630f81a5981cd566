"""One message: live timeline, content, and resending."""

import msgspec
from msgspec.structs import replace

from heliograph.accept.resend import UNREACHED_STATUSES, Undelivered, can_resend, resend
from heliograph.dashboard.live import PageVersion, Subscription
from heliograph.dashboard.page_request import Download, Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.recipient_view import (
    BlockedBy,
    build_recipient_views,
    normalized_addresses,
    resend_advice,
    summarize,
)
from heliograph.dashboard.render import CHANNEL_NAMES, url_host
from heliograph.dashboard.views.live import open_stream
from heliograph.dashboard.views.messages import may_be_id, template_name
from heliograph.dashboard.views.previews import html_download
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.delivery.routing import blocking_carrier
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.approvals import APPROVAL, approval_id
from heliograph.domain.sending.send_options import ExtraFields, decode_record
from heliograph.domain.setup.records import Key
from heliograph.storage.search.message_search import MessageDetails, MessageRow
from heliograph.storage.stats import QUEUE_COUNT_MAX
from heliograph.texts.explain import CARRIER_NAMES, SIMULATED_TEXT, retry_window_text
from heliograph.web.read_budget import run_large
from heliograph.webhooks.policy.bin import is_bin

LIVE_S = 1.0  # interval at which a message is checked for changes
CONTENT_TYPES = {"email": EmailContent, "sms": SmsContent, "whatsapp": WhatsappContent}
KINDS_BY_SEVERITY = ("bad", "wait", "info", "good")


async def show(request: PageRequest) -> PageResponse:
    return await _page(request, await _find_message(request))


def _message_id(request: PageRequest) -> str:
    if not may_be_id(request.params["id"]):
        raise PageNotFound
    return request.params["id"]


async def _find_message(request: PageRequest) -> MessageDetails:
    webhook_ids = [hook.id for hook in request.team.webhooks]
    message = await request.store.messages.get_details(
        request.team.record.ref, _message_id(request), webhook_ids, request.reserve_memory
    )
    if message is None:
        raise PageNotFound
    return message


async def _page(request: PageRequest, message: MessageDetails, error: str = "") -> Page:
    row = message.row
    record = decode_record(row.record)
    content = None
    if row.content:
        content = await run_large(row.size, msgspec.json.decode, row.content, type=CONTENT_TYPES[row.channel])
    key = request.setup.records.get(("key", row.key_id))
    is_live = row.ended_at is None and request.http.method == "GET"
    suppressions = await request.store.suppressions.find_statuses(
        request.team.record.ref, normalized_addresses(message)
    )
    views = build_recipient_views(
        message,
        suppressions,
        paused=request.setup.platform.paused,
        blocked_by=await _find_blocking_carrier(request, row),
    )
    values = {
        "facts": row,
        "is_flash_neutral": True,  # the state already says whether the message arrived
        "record": record,
        "content": content,
        "name": CHANNEL_NAMES[row.channel],
        "title": record.subject or f"{CHANNEL_NAMES[row.channel]} to {record.to}",
        "template": template_name(request, row.template_id),
        "key": key.name if isinstance(key, Key) else row.key_id,
        "key_page": f"{request.team_path}/keys/{key.id}"
        if isinstance(key, Key) and request.has_role("developer")
        else "",
        "recipients": views,
        "hooks": {
            hook.id: "Webhook bin" if is_bin(request.context.base_url, hook.url) else url_host(hook.url)
            for hook in request.team.webhooks
        },
        "kind": min((view.explanation.style for view in views), key=KINDS_BY_SEVERITY.index),
        "summary": summarize(views),
        "tried_for": retry_window_text(row.channel),
        "count_max": QUEUE_COUNT_MAX,
        "resend_advice": resend_advice(views),
        "approval": approval_id(row.id) if any(view.explanation.cause == APPROVAL for view in views) else "",
        "magic_recipients": {view.recipient.given for view in views if is_magic(view.recipient.given)},
        "simulated_text": SIMULATED_TEXT,
        "live": f"{request.team_path}/messages/{row.id}/live?seen={message.version}" if is_live else "",
        "simulated": any(view.simulated for view in views),
        "images": "images" in request.query,
        "can_resend": row.content is not None
        and can_resend(_unreached_recipients(message))
        and request.has_role("developer"),
        "wrong": error,
    }
    return Page("message.html", values, 400 if error else 200, row.size)


async def _find_blocking_carrier(request: PageRequest, row: MessageRow) -> BlockedBy | None:
    circuits = request.store.circuits.current
    if row.ended_at is not None or request.team.simulated or not circuits:
        return None
    carrier = blocking_carrier(request.setup.routes[row.channel, row.country], circuits)
    if carrier is None:
        return None
    return BlockedBy(
        id=carrier.id,
        name=CARRIER_NAMES.get(carrier.kind, "carrier"),
        since=circuits[carrier.id].since,
        waiting_count=await request.store.stats.count_held(request.team.record.ref, row.channel),
    )


async def live(request: PageRequest) -> PageResponse:
    team, id_ = request.team.record.ref, _message_id(request)

    async def read_version() -> PageVersion | None:
        version = await request.store.page_versions.message(team, id_)
        return PageVersion({"events": version.version}, is_final=version.has_ended) if version else None

    if await read_version() is None:
        raise PageNotFound
    return open_stream(
        request,
        Subscription(key=("message", str(team), id_), read_version=read_version, parts=("events",), interval_s=LIVE_S),
    )


# -- content -----------------------------------------------------------------------------------------------------


async def preview(request: PageRequest) -> PageResponse:
    _, content = await _find_email(request)

    def render_frame() -> Download:
        html = msgspec.json.decode(content, type=EmailContent).html
        if html is None:
            raise PageNotFound
        return html_download(html, allow_remote_images="images" in request.query)

    return await run_large(len(content), render_frame)


async def source(request: PageRequest) -> PageResponse:
    """Return the mail's MIME source, without the DKIM signature that is added when it is sent."""
    id_, content = await _find_email(request)
    mail = await request.tools.render_eml(id_, content, request.reserve_memory)
    if "download" in request.query:
        return Download(mail, "message/rfc822", f"{id_}.eml")
    return Download(mail, "text/plain; charset=utf-8")


async def _find_email(request: PageRequest) -> tuple[str, str]:
    """Return id and content of the email in the path."""
    message = await request.store.messages.get_row(
        request.team.record.ref, _message_id(request), request.reserve_memory
    )
    if message is None or message.content is None or message.channel != "email":
        raise PageNotFound
    return message.id, message.content


# -- resending ---------------------------------------------------------------------------------------------------


async def resend_message(request: PageRequest) -> PageResponse:
    message = await _find_message(request)
    row, unreached = message.row, _unreached_recipients(message)
    if row.content is None or not can_resend(unreached):
        return await _page(
            request, message, "There are no recipients to resend this to, or the content is no longer stored."
        )
    undelivered = Undelivered(
        extra_fields=msgspec.json.decode(row.record, type=ExtraFields),
        channel=row.channel,
        content=row.content.encode(),
        template_id=row.template_id,
        template_version=row.template_version,
        country=row.country,
        unreached=unreached,
    )
    caller = replace(request.caller, entry=lambda id_: request.audit_entry("message.resend", row.id, id_))
    try:
        new_message = await resend(request.context, caller, undelivered)
    except Refusal as refusal:
        return await _page(request, message, str(refusal))
    return Redirect(
        f"{request.team_path}/messages/{new_message.id}", f"Sent again as this new message. The original is {row.id}."
    )


def _unreached_recipients(message: MessageDetails) -> list[tuple[str, str]]:
    return [
        (recipient.given, recipient.kind) for recipient in message.recipients if recipient.status in UNREACHED_STATUSES
    ]
