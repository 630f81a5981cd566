"""Webhooks: endpoints with their state, secrets (shown once), deliveries with their responses, and replays."""

import shlex
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.live import Subscription
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views.events import event_subject, message_url
from heliograph.dashboard.views.live import make_subscription, open_stream, stream_url
from heliograph.domain.events import TYPES_BY_GROUP
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.network.ssrf import is_denied
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.texts.explain import with_explanation
from heliograph.texts.webhook_advice import advice_for
from heliograph.webhooks.policy.bin import is_bin
from heliograph.webhooks.policy.formats.format import JSON
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.request import HEADERS
from heliograph.webhooks.policy.retry import FAILING_DAYS
from heliograph.webhooks.policy.signature import SignatureInput
from heliograph.webhooks.policy.webhook_url import parse_target, split_login
from heliograph.webhooks.service import WebhookChange, WebhookRequest, Webhooks
from heliograph.webhooks.store import REPLAY_MAX, ReplaySelection, StoredDelivery

PAGE_SIZE = 25
# suffixes of header names; the values of these headers are hidden
HIDDEN_HEADER_SUFFIXES = ("signature", "signature-256", "signature-kid", "authorization")
FIELDS = ("url", "events", "description", "format")
GROUP_NAMES = {
    "email": "Email",
    "sms": "SMS",
    "whatsapp": "WhatsApp",
    "verification": "Verify",
    "suppression": "Suppressions",
    "domain": "Domains",
    "credit": "Billing",
    "batch": "Batches",
    "webhook": "Webhooks",
}
FORMAT_NAMES = [(name, name.capitalize()) for name in FORMATS]
EXAMPLE_URL = "http://localhost:3000/hook"


class WebhookRow(msgspec.Struct, frozen=True, kw_only=True):
    record: Webhook
    failing_since: int | None

    @property
    def health(self) -> str:
        if not self.record.enabled:
            return "disabled"
        return "failing" if self.failing_since is not None else "active"

    @property
    def disables_at(self) -> int | None:
        """Return when the webhook is turned off if no delivery succeeds."""
        return None if self.failing_since is None else self.failing_since + FAILING_DAYS * DAY_MS


# -- endpoints ------------------------------------------------------------------------------------------------


async def show_new(request: PageRequest) -> PageResponse:
    return _form(request, None, {"all": "yes"})


async def create(request: PageRequest) -> PageResponse:
    new_webhook = WebhookRequest(**_form_fields(request))
    try:
        created = await _webhook_service(request).create(request.actor, request.team.record.id, new_webhook)
    except InvalidRequest as refusal:
        return _form(request, None, request.form, _form_errors(refusal))
    return await _webhook_page(request, created.webhook, secret=created.secret, notice="Webhook added.")


async def create_bin(request: PageRequest) -> PageResponse:
    """Create a webhook bin and send it a test event, whose arrival the page shows."""
    try:
        created = await _webhook_service(request).create_bin(
            request.actor, request.team.record.id, request.context.base_url
        )
    except InvalidRequest as refusal:
        return Redirect(f"{request.team_path}/webhooks", refusal.message)
    event = await _webhook_service(request).test(request.actor, request.team.record.id, created.webhook.id)
    return Redirect(f"{_webhook_url(request, created.webhook)}?test={event}")


async def show_webhook(request: PageRequest) -> PageResponse:
    return await _webhook_page(request, _find_webhook(request))


async def live(request: PageRequest) -> PageResponse:
    return open_stream(request, _webhook_subscription(request, _find_webhook(request)))


async def edit(request: PageRequest) -> PageResponse:
    webhook = _find_webhook(request)
    selected_events = {"all" if name == "*" else name: "yes" for name in webhook.events}
    return _form(
        request,
        webhook,
        {"url": webhook.url, "description": webhook.description, "format": webhook.format} | selected_events,
    )


async def change(request: PageRequest) -> PageResponse:
    webhook, webhook_change = _find_webhook(request), WebhookChange(**_form_fields(request))
    try:
        await _webhook_service(request).change(request.actor, webhook.team, webhook.id, webhook_change)
    except InvalidRequest as refusal:
        return _form(request, webhook, request.form, _form_errors(refusal))
    return Redirect(_webhook_url(request, webhook), "Saved.")


async def set_enabled(request: PageRequest) -> PageResponse:
    webhook, is_enabled = _find_webhook(request), request.form.get("enabled") == "yes"
    await _webhook_service(request).change(request.actor, webhook.team, webhook.id, WebhookChange(enabled=is_enabled))
    state_text = "on. Waiting events are being sent." if is_enabled else "off. Waiting events are kept for 30 days."
    return Redirect(_webhook_url(request, webhook), f"Webhook turned {state_text}")


async def rotate(request: PageRequest) -> PageResponse:
    created = await _webhook_service(request).rotate(request.actor, request.team.record.id, _find_webhook(request).id)
    return await _webhook_page(request, created.webhook, secret=created.secret, notice="Secret rotated.")


async def remove(request: PageRequest) -> PageResponse:
    webhook = _find_webhook(request)
    await _webhook_service(request).remove(request.actor, webhook.team, webhook.id)
    return Redirect(f"{request.team_path}/webhooks", "Webhook deleted.")


# -- deliveries -----------------------------------------------------------------------------------------------


async def test(request: PageRequest) -> PageResponse:
    webhook = _find_webhook(request)
    event = await _webhook_service(request).test(request.actor, webhook.team, webhook.id)
    return Redirect(f"{_webhook_url(request, webhook)}?test={event}")


async def replay(request: PageRequest) -> PageResponse:
    """Replay one event, all failed events, or the events of a time range."""
    webhook, form = _find_webhook(request), request.form
    event_filter = ReplaySelection(failed_only=bool(form.get("failed_only")))
    if event := form.get("event"):
        event_filter = ReplaySelection(event_ids=[event])
    elif not form.get("all"):
        time_range = {
            name: parse_timestamp(_to_utc_timestamp(form.get(name, ""))) for name in ("created_after", "created_before")
        }
        errors = {name: "Enter a date and time." for name, time_ms in time_range.items() if time_ms is None}
        if not errors and (time_range["created_after"] or 0) >= (time_range["created_before"] or 0):
            errors = {"created_before": "The end must be after the start."}
        if errors:
            return await _webhook_page(request, webhook, status=400, errors=errors, form=form)
        event_filter = replace(event_filter, **time_range)
    count = await _webhook_service(request).replay(request.actor, webhook.team, webhook.id, event_filter)
    return_url = f"{_webhook_url(request, webhook)}/deliveries/{event}" if event else _webhook_url(request, webhook)
    return Redirect(return_url, replay_notice(count))


def replay_notice(count: int) -> str:
    limit_text = " This is the maximum at once. Replay again for the rest." if count >= REPLAY_MAX else ""
    return f"{count:,} {'event is' if count == 1 else 'events are'} being sent again.{limit_text}"


async def show_delivery(request: PageRequest) -> PageResponse:
    webhook, event_id = _find_webhook(request), request.params["event"]
    live_url = await _live_url(request, webhook)
    delivery = await _find_delivery(request, webhook, event_id)
    stored_event = await request.store.events.find(request.team.record.ref, event_id)
    if delivery is None or stored_event is None:
        raise PageNotFound
    payload_format = FORMATS[webhook.format]
    body = payload_format.body(with_explanation(stored_event), request.team)
    values = {
        "live": live_url,
        "hook": webhook,
        "delivery": delivery,
        "advice": advice_for,
        "about": event_subject(stored_event),
        "object_page": message_url(request, stored_event),
        "body": (msgspec.json.format(body, indent=2) if payload_format.content_type == JSON else body).decode(),
        "headers": _headers(webhook, delivery, body),
    }
    return Page("webhook_delivery.html", values)


async def _find_delivery(request: PageRequest, webhook: Webhook, event_id: str) -> StoredDelivery | None:
    """Return the delivery of this event to the webhook; None if not found."""
    # The list contains events with smaller ids than this, newest first, so it begins with the event.
    deliveries = await request.store.deliveries.list_page(webhook.id, event_id + "!", 1)
    return deliveries[0] if deliveries and deliveries[0].event == event_id else None


def _headers(webhook: Webhook, delivery: StoredDelivery, body: bytes) -> dict[str, str]:
    """Return the headers of the last attempt; signatures are hidden, because they are not stored."""
    time_ms = delivery.attempts[-1].at if delivery.attempts else delivery.created_at
    signing = SignatureInput(
        secrets=[""], url=webhook.url, event_id=delivery.event, timestamp_s=time_ms // SECOND_MS, body=body
    )
    sent_headers = FORMATS[webhook.format].headers(signing) | {"Content-Length": str(len(body))}
    return HEADERS | {
        name: "…" if name.lower().endswith(HIDDEN_HEADER_SUFFIXES) else value for name, value in sent_headers.items()
    }


# -- pages ----------------------------------------------------------------------------------------------------


def _webhook_service(request: PageRequest) -> Webhooks:
    return request.tools.management.webhooks


def _form_fields(request: PageRequest) -> dict[str, Any]:
    url, description = (request.form.get(name, "").strip() for name in ("url", "description"))
    payload_format = request.form.get("format") or None
    return {"url": url, "events": _selected_events(request.form), "description": description, "format": payload_format}


def _selected_events(form: Mapping[str, str]) -> list[str]:
    """Return the selected event types: `*`, whole groups, and single types of other groups."""
    if form.get("all"):
        return ["*"]
    chosen_types = list[str]()
    for group, types in TYPES_BY_GROUP.items():
        chosen_types += [f"{group}.*"] if form.get(f"{group}.*") else [name for name in types if form.get(name)]
    return chosen_types


def _find_webhook(request: PageRequest) -> Webhook:
    try:
        return _webhook_service(request).find(request.team.record.id, request.params["webhook"])
    except WebhookNotFound:
        raise PageNotFound from None


def _webhook_subscription(request: PageRequest, webhook: Webhook) -> Subscription:
    return make_subscription(
        request,
        "webhook",
        webhook.id,
        lambda: request.store.page_versions.webhook_page(webhook.id),
        ("deliveries", "setup"),
    )


def _webhook_url(request: PageRequest, webhook: Webhook) -> str:
    return f"{request.team_path}/webhooks/{webhook.id}"


async def _live_url(request: PageRequest, webhook: Webhook) -> str:
    subscription = _webhook_subscription(request, webhook)
    return await stream_url(request, f"{_webhook_url(request, webhook)}/live", subscription)


def _form_errors(refusal: InvalidRequest) -> dict[str, str]:
    param = refusal.param if refusal.param in FIELDS else "url"
    if param == "events":
        return {param: "Choose at least one event."}
    message = refusal.message.removeprefix(f"{param}: ")
    return {param: message[:1].upper() + message[1:]}


def _form(
    request: PageRequest, webhook: Webhook | None, form: Mapping[str, str], errors: Mapping[str, str] = {}
) -> Page:
    """Show the form for a webhook, or for a new webhook if `webhook` is None."""
    url = form.get("url", "")
    values = {
        "hook": webhook,
        "form": form,
        "errors": errors,
        "groups": {
            group: (GROUP_NAMES.get(group, group), types)
            for group, types in TYPES_BY_GROUP.items()
            # Events about the webhook are always delivered, so they are offered only if already selected.
            if group != "webhook" or any(name.startswith("webhook.") for name in form)
        },
        "formats": FORMAT_NAMES,
        "is_local": "url" in errors and is_local(url),
        "command": _listen_command(request, url if is_local(url) else EXAMPLE_URL),
    }
    return Page("webhook_form.html", values, 400 if errors else 200)


def is_local(url: str) -> bool:
    """Return whether the URL is on the user's own machine or in a private network."""
    try:
        target = parse_target(split_login(url)[0])
        return target.host.endswith("localhost") or (target.ip is not None and is_denied(ip_address(target.ip)))
    except ValueError:
        return False


def _listen_command(request: PageRequest, url: str) -> str:
    arguments = ("--forward", url, "--key", "@key.txt", "--url", request.context.base_url)
    return f"heliograph listen {' '.join(map(shlex.quote, arguments))}"


def _to_utc_timestamp(text: str) -> str:
    """Return the UTC timestamp for a datetime-local value: 2026-11-15T09:30, with or without seconds."""
    return f"{text}:00Z" if text.count(":") == 1 else f"{text}Z"


async def _webhook_rows(request: PageRequest, webhooks: Sequence[Webhook]) -> list[WebhookRow]:
    since = await request.store.deliveries.failing_since([webhook.id for webhook in webhooks])
    return [WebhookRow(record=webhook, failing_since=since.get(webhook.id)) for webhook in webhooks]


async def show(request: PageRequest) -> PageResponse:
    webhooks = sorted(
        request.setup.teams[request.team.record.id].webhooks, key=lambda webhook: webhook.id, reverse=True
    )
    bin_webhooks = [webhook for webhook in webhooks if is_bin(request.context.base_url, webhook.url)]
    values = {
        "hooks": await _webhook_rows(request, webhooks),
        "command": _listen_command(request, EXAMPLE_URL),
        "bin": bin_webhooks[0] if bin_webhooks else None,
    }
    return Page("webhooks.html", values)


async def _webhook_page(request: PageRequest, webhook: Webhook, status: int = 200, **values: Any) -> Page:
    before = request.query.get("before")
    live_url = "" if before else await _live_url(request, webhook)
    (row,) = await _webhook_rows(request, [webhook])
    failed_only = bool(request.query.get("failed"))
    deliveries = await request.store.deliveries.list_page(webhook.id, before, PAGE_SIZE, failed_only=failed_only)
    test_event = request.query.get("test", "")
    page_values: dict[str, Any] = {
        "live": live_url,
        "hook": row,
        "tested": await _find_delivery(request, webhook, test_event) if test_event else None,
        "is_bin": is_bin(request.context.base_url, webhook.url),
        "advice": advice_for,
        "deliveries": deliveries[:PAGE_SIZE],
        "more": deliveries[PAGE_SIZE - 1].event if len(deliveries) > PAGE_SIZE else None,
        "before": before,
        "failed": failed_only,
        "rotating": webhook.old_until > request.context.clock.team_now(request.team.record.ref),
        "secret": "",
        "errors": {},
        "form": {},
    }
    return Page("webhook.html", page_values | values, status)
