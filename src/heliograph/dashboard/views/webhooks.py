"""Webhooks: endpoints and their health, secrets (shown once), deliveries with their responses, and replays."""

import shlex
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.live import Watch
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.views.live import stream, stream_address, watch
from heliograph.domain.events import GROUPS
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.network.ssrf import is_denied
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.texts.explain import explained
from heliograph.texts.webhook_advice import advice
from heliograph.webhooks.policy.bin import is_bin
from heliograph.webhooks.policy.formats.format import JSON
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.request import HEADERS
from heliograph.webhooks.policy.signature import Signing
from heliograph.webhooks.policy.webhook_url import parse_target, split_login
from heliograph.webhooks.service import WebhookChange, WebhookRequest, Webhooks
from heliograph.webhooks.store import REPLAY_MAX, StoredDelivery, WantedEvents

PAGE = 25  # deliveries per page
# suffixes of the names of headers whose values are hidden
SECRET = ("signature", "signature-256", "signature-kid", "authorization")
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
EXAMPLE = "http://localhost:3000/hook"


class HookLine(msgspec.Struct, frozen=True, kw_only=True):
    record: Webhook
    failing_since: int | None

    @property
    def health(self) -> str:
        if not self.record.enabled:
            return "disabled"
        return "failing" if self.failing_since is not None else "active"


# -- endpoints ------------------------------------------------------------------------------------------------


async def new(visit: Visit) -> Answer:
    return _form(visit, None, {"all": "yes"})


async def create(visit: Visit) -> Answer:
    wanted = WebhookRequest(**_typed(visit))
    try:
        made = await _webhooks(visit).create(visit.actor, visit.team.record.id, wanted)
    except InvalidRequest as refusal:
        return _form(visit, None, visit.form, _errors(refusal))
    return await _one(visit, made.webhook, secret=made.secret, notice="The webhook is added.")


async def create_bin(visit: Visit) -> Answer:
    """Create a webhook bin and send a test event to it, whose arrival the page shows."""
    try:
        made = await _webhooks(visit).create_bin(visit.actor, visit.team.record.id, visit.context.base_url)
    except InvalidRequest as refusal:
        return Redirect(f"{visit.base}/webhooks", refusal.message)
    event = await _webhooks(visit).test(visit.actor, visit.team.record.id, made.webhook.id)
    return Redirect(f"{_path(visit, made.webhook)}?test={event}")


async def show_one(visit: Visit) -> Answer:
    return await _one(visit, _own(visit))


async def live(visit: Visit) -> Answer:
    return stream(visit, _watch(visit, _own(visit)))


async def edit(visit: Visit) -> Answer:
    hook = _own(visit)
    chosen = {"all" if name == "*" else name: "yes" for name in hook.events}
    return _form(visit, hook, {"url": hook.url, "description": hook.description, "format": hook.format} | chosen)


async def change(visit: Visit) -> Answer:
    hook, wanted = _own(visit), WebhookChange(**_typed(visit))
    try:
        await _webhooks(visit).change(visit.actor, hook.team, hook.id, wanted)
    except InvalidRequest as refusal:
        return _form(visit, hook, visit.form, _errors(refusal))
    return Redirect(_path(visit, hook), "Saved.")


async def switch(visit: Visit) -> Answer:
    hook, enabled = _own(visit), visit.form.get("enabled") == "yes"
    await _webhooks(visit).change(visit.actor, hook.team, hook.id, WebhookChange(enabled=enabled))
    told = "on. What waited is sent now." if enabled else "off. What waits for it is kept for 30 days."
    return Redirect(_path(visit, hook), f"The webhook is turned {told}")


async def rotate(visit: Visit) -> Answer:
    made = await _webhooks(visit).rotate(visit.actor, visit.team.record.id, _own(visit).id)
    return await _one(visit, made.webhook, secret=made.secret, notice="The webhook has a new secret.")


async def remove(visit: Visit) -> Answer:
    hook = _own(visit)
    await _webhooks(visit).remove(visit.actor, hook.team, hook.id)
    return Redirect(f"{visit.base}/webhooks", "The webhook is deleted.")


# -- deliveries -----------------------------------------------------------------------------------------------


async def test(visit: Visit) -> Answer:
    hook = _own(visit)
    event = await _webhooks(visit).test(visit.actor, hook.team, hook.id)
    return Redirect(f"{_path(visit, hook)}?test={event}")


async def replay(visit: Visit) -> Answer:
    """Replay one event, all failed events, or the events of a time range."""
    hook, given = _own(visit), visit.form
    wanted = WantedEvents(failed_only=bool(given.get("failed_only")))
    if event := given.get("event"):
        wanted = WantedEvents(event_ids=[event])
    elif not given.get("all"):
        span = {name: parse_timestamp(_utc(given.get(name, ""))) for name in ("created_after", "created_before")}
        errors = {name: "Give a day and a time." for name, at in span.items() if at is None}
        if not errors and (span["created_after"] or 0) >= (span["created_before"] or 0):
            errors = {"created_before": "This is not later than the beginning."}
        if errors:
            return await _one(visit, hook, status=400, errors=errors, form=given)
        wanted = replace(wanted, **span)
    count = await _webhooks(visit).replay(visit.actor, hook.team, hook.id, wanted)
    back = f"{_path(visit, hook)}/deliveries/{event}" if event else _path(visit, hook)
    return Redirect(back, told_again(count))


def told_again(count: int) -> str:
    rest = " That is the most at once: replay again for the rest." if count >= REPLAY_MAX else ""
    return f"{count:,} {'event is' if count == 1 else 'events are'} sent again.{rest}"


async def show_delivery(visit: Visit) -> Answer:
    hook, event = _own(visit), visit.params["event"]
    followed = await stream_address(visit, f"{_path(visit, hook)}/live", _watch(visit, hook))
    found = await _delivery(visit, hook, event)
    told = await visit.store.events.find(visit.team.record.ref, event)
    if found is None or told is None:
        raise Gone
    form = FORMATS[hook.format]
    body = form.body(explained(told), visit.team)
    values = {
        "live": followed,
        "hook": hook,
        "delivery": found,
        "advice": advice,
        "body": (msgspec.json.format(body, indent=2) if form.content_type == JSON else body).decode(),
        "headers": _headers(hook, found, body),
    }
    return Page("webhook_delivery.html", values)


async def _delivery(visit: Visit, hook: Webhook, event: str) -> StoredDelivery | None:
    """Return the delivery of this event to the webhook; None if not found."""
    found = await visit.store.deliveries.page(hook.id, event + "!", 1)
    return found[0] if found and found[0].event == event else None


def _headers(hook: Webhook, delivery: StoredDelivery, body: bytes) -> dict[str, str]:
    """Return the headers of the last attempt; signatures are hidden because they are not stored."""
    at = delivery.attempts[-1].at if delivery.attempts else delivery.created_at
    signing = Signing(secrets=[""], url=hook.url, event=delivery.event, t=at // SECOND_MS, body=body)
    told = FORMATS[hook.format].headers(signing) | {"Content-Length": str(len(body))}
    return HEADERS | {name: "…" if name.lower().endswith(SECRET) else value for name, value in told.items()}


# -- pages ----------------------------------------------------------------------------------------------------


def _webhooks(visit: Visit) -> Webhooks:
    return visit.tools.management.webhooks


def _typed(visit: Visit) -> dict[str, Any]:
    url, description = (visit.form.get(name, "").strip() for name in ("url", "description"))
    shape = visit.form.get("format") or None
    return {"url": url, "events": _chosen(visit.form), "description": description, "format": shape}


def _chosen(form: Mapping[str, str]) -> list[str]:
    """Return the selected event types: all, whole groups, or single types of the other groups."""
    if form.get("all"):
        return ["*"]
    chosen = list[str]()
    for group, types in GROUPS.items():
        chosen += [f"{group}.*"] if form.get(f"{group}.*") else [name for name in types if form.get(name)]
    return chosen


def _own(visit: Visit) -> Webhook:
    try:
        return _webhooks(visit).find(visit.team.record.id, visit.params["webhook"])
    except WebhookNotFound:
        raise Gone from None


def _watch(visit: Visit, hook: Webhook) -> Watch:
    return watch(visit, "webhook", hook.id, lambda: visit.store.pulses.webhook(hook.id), ("deliveries", "setup"))


def _path(visit: Visit, hook: Webhook) -> str:
    return f"{visit.base}/webhooks/{hook.id}"


def _errors(refusal: InvalidRequest) -> dict[str, str]:
    param = refusal.param if refusal.param in FIELDS else "url"
    if param == "events":
        return {param: "Choose one event or more."}
    message = refusal.message.removeprefix(f"{param}: ")
    return {param: message[:1].upper() + message[1:]}


def _form(visit: Visit, hook: Webhook | None, form: Mapping[str, str], errors: Mapping[str, str] = {}) -> Page:
    """Show the form of a webhook; without `hook`, of a new one."""
    url = form.get("url", "")
    values = {
        "hook": hook,
        "form": form,
        "errors": errors,
        "groups": {
            group: (GROUP_NAMES.get(group, group), types)
            for group, types in GROUPS.items()
            # test events are always delivered
            if group != "webhook" or any(name.startswith("webhook.") for name in form)
        },
        "formats": FORMAT_NAMES,
        "is_local": "url" in errors and is_local(url),
        "command": _listen(visit, url if is_local(url) else EXAMPLE),
    }
    return Page("webhook_form.html", values, 400 if errors else 200)


def is_local(url: str) -> bool:
    """Return whether the URL leads to the user's own machine or a private network."""
    try:
        target = parse_target(split_login(url)[0])
        return target.host.endswith("localhost") or (target.ip is not None and is_denied(ip_address(target.ip)))
    except ValueError:
        return False


def _listen(visit: Visit, url: str) -> str:
    words = ("--forward", url, "--key", "@key.txt", "--url", visit.context.base_url)
    return f"heliograph listen {' '.join(map(shlex.quote, words))}"


def _utc(text: str) -> str:
    """Convert the value of a datetime-local field to a UTC timestamp: 2026-11-15T09:30, with or without seconds."""
    return f"{text}:00Z" if text.count(":") == 1 else f"{text}Z"


async def _lines(visit: Visit, hooks: Sequence[Webhook]) -> list[HookLine]:
    since = await visit.store.deliveries.failing_since([hook.id for hook in hooks])
    return [HookLine(record=hook, failing_since=since.get(hook.id)) for hook in hooks]


async def show(visit: Visit) -> Answer:
    hooks = sorted(visit.setup.teams[visit.team.record.id].webhooks, key=lambda hook: hook.id, reverse=True)
    bins = [hook for hook in hooks if is_bin(visit.context.base_url, hook.url)]
    values = {"hooks": await _lines(visit, hooks), "command": _listen(visit, EXAMPLE), "bin": bins[0] if bins else None}
    return Page("webhooks.html", values)


async def _one(visit: Visit, hook: Webhook, status: int = 200, **values: Any) -> Page:
    before = visit.query.get("before")
    followed = "" if before else await stream_address(visit, f"{_path(visit, hook)}/live", _watch(visit, hook))
    (line,) = await _lines(visit, [hook])
    failed = bool(visit.query.get("failed"))
    found = await visit.store.deliveries.page(hook.id, before, PAGE, failed_only=failed)
    tested = visit.query.get("test", "")
    shown: dict[str, Any] = {
        "live": followed,
        "hook": line,
        "tested": await _delivery(visit, hook, tested) if tested else None,
        "is_bin": is_bin(visit.context.base_url, hook.url),
        "advice": advice,
        "deliveries": found[:PAGE],
        "more": found[PAGE - 1].event if len(found) > PAGE else None,
        "before": before,
        "failed": failed,
        "rotating": hook.old_until > visit.context.clock.of(visit.team.record.ref),
        "secret": "",
        "errors": {},
        "form": {},
    }
    return Page("webhook.html", shown | values, status)
