"""Webhooks: endpoints and their health, secrets shown once, what each was told and how it answered, replays."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.dashboard.live import Watch
from heliograph.dashboard.views.live import stream, stream_address, watch
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.manage.webhooks import WebhookChange, WebhookRequest, Webhooks
from heliograph.rules.event import NAMES, event_body
from heliograph.rules.ids import parse_timestamp
from heliograph.rules.limits import SECOND_MS
from heliograph.rules.refusals import InvalidRequest, WebhookNotFound
from heliograph.rules.setup.records import Webhook
from heliograph.rules.webhook_request import HEADERS
from heliograph.storage.deliveries import REPLAY_MAX, StoredDelivery, WantedEvents

PAGE = 25  # deliveries
FIELDS = ("url", "events", "description")


class HookLine(msgspec.Struct, frozen=True, kw_only=True):
    record: Webhook
    failing_since: int | None

    @property
    def health(self) -> str:
        if not self.record.enabled:
            return "disabled"
        return "failing" if self.failing_since is not None else "enabled"


# -- endpoints ------------------------------------------------------------------------------------------------


async def create(visit: Visit) -> Answer:
    wanted = WebhookRequest(**_typed(visit))
    try:
        made = await _webhooks(visit).create(visit.actor, visit.team.record.id, wanted)
    except InvalidRequest as refusal:
        return await show(visit, status=400, errors=_errors(refusal), form=visit.form)
    return await _one(visit, made.webhook, secret=made.secret, notice="The webhook is added.")


async def show_one(visit: Visit) -> Answer:
    return await _one(visit, _own(visit))


async def live(visit: Visit) -> Answer:
    return stream(visit, _watch(visit, _own(visit)))


async def change(visit: Visit) -> Answer:
    hook, wanted = _own(visit), WebhookChange(**_typed(visit))
    try:
        await _webhooks(visit).change(visit.actor, hook.team, hook.id, wanted)
    except InvalidRequest as refusal:
        return await _one(visit, hook, status=400, errors=_errors(refusal), form=visit.form)
    return Redirect(_path(visit, hook), "The webhook is changed.")


async def switch(visit: Visit) -> Answer:
    hook, enabled = _own(visit), visit.form.get("enabled") == "yes"
    await _webhooks(visit).change(visit.actor, hook.team, hook.id, WebhookChange(enabled=enabled))
    told = "is enabled. What waited is told now." if enabled else "is disabled. What waits for it is kept for 30 days."
    return Redirect(_path(visit, hook), f"The webhook {told}")


async def rotate(visit: Visit) -> Answer:
    made = await _webhooks(visit).rotate(visit.actor, visit.team.record.id, _own(visit).id)
    return await _one(visit, made.webhook, secret=made.secret, notice="The webhook has a new secret.")


async def remove(visit: Visit) -> Answer:
    hook = _own(visit)
    await _webhooks(visit).remove(visit.actor, hook.team, hook.id)
    return Redirect(f"{visit.base}/webhooks", "The webhook is removed.")


# -- what it was told -----------------------------------------------------------------------------------------


async def test(visit: Visit) -> Answer:
    hook = _own(visit)
    event = await _webhooks(visit).test(visit.actor, hook.team, hook.id)
    return Redirect(f"{_path(visit, hook)}/deliveries/{event}", "A test event is on its way. Reload to see its answer.")


async def replay(visit: Visit) -> Answer:
    """One event, everything that failed, or a span of time."""
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
    return f"{count:,} {'event is' if count == 1 else 'events are'} told again.{rest}"


async def show_delivery(visit: Visit) -> Answer:
    hook, event = _own(visit), visit.params["event"]
    # The newest delivery that is not newer than this event: itself, when there is one.
    found = await visit.store.deliveries.page(hook.id, event + "!", 1)
    told = await visit.store.events.find(visit.team.record.ref, event)
    if not found or found[0].event != event or told is None:
        raise Gone
    body = event_body(told, visit.team)
    values = {
        "hook": hook,
        "delivery": found[0],
        "body": msgspec.json.format(body, indent=2).decode(),
        "headers": _headers(found[0], len(body)),
    }
    return Page("webhook_delivery.html", values)


def _headers(delivery: StoredDelivery, length: int) -> dict[str, str]:
    """Of the last attempt; its signatures are not kept."""
    seconds = str(delivery.attempts[-1].at // SECOND_MS) if delivery.attempts else "…"
    return HEADERS | {
        "Content-Length": str(length),
        "webhook-id": delivery.event,
        "webhook-timestamp": seconds,
        "webhook-signature": "v1,…",
        "X-Service-Signature": f"t={seconds},v1=…",
    }


# -- showing --------------------------------------------------------------------------------------------------


def _webhooks(visit: Visit) -> Webhooks:
    return visit.tools.management.webhooks


def _typed(visit: Visit) -> dict[str, Any]:
    url, events, description = (visit.form.get(name, "").strip() for name in FIELDS)
    return {"url": url, "events": events.replace(",", " ").split(), "description": description}


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
    return {param: refusal.message.removeprefix(f"{param}: ")}


def _utc(text: str) -> str:
    """What a browser's field for a time holds, read as UTC: 2026-11-15T09:30 with or without seconds."""
    return f"{text}:00Z" if text.count(":") == 1 else f"{text}Z"


async def _lines(visit: Visit, hooks: Sequence[Webhook]) -> list[HookLine]:
    since = await visit.store.deliveries.failing_since([hook.id for hook in hooks])
    return [HookLine(record=hook, failing_since=since.get(hook.id)) for hook in hooks]


async def show(visit: Visit, status: int = 200, **values: Any) -> Page:
    hooks = sorted(visit.setup.teams[visit.team.record.id].webhooks, key=lambda hook: hook.id, reverse=True)
    empty: dict[str, Any] = {"errors": {}, "form": {"events": "*"}, "names": NAMES}
    return Page("webhooks.html", empty | {"hooks": await _lines(visit, hooks)} | values, status)


async def _one(visit: Visit, hook: Webhook, status: int = 200, **values: Any) -> Page:
    before = visit.query.get("before")
    followed = "" if before else await stream_address(visit, f"{_path(visit, hook)}/live", _watch(visit, hook))
    (line,) = await _lines(visit, [hook])
    failed = bool(visit.query.get("failed"))
    found = await visit.store.deliveries.page(hook.id, before, PAGE, failed_only=failed)
    own = {"url": hook.url, "events": " ".join(hook.events), "description": hook.description}
    shown: dict[str, Any] = {
        "live": followed,
        "hook": line,
        "names": NAMES,
        "deliveries": found[:PAGE],
        "more": found[PAGE - 1].event if len(found) > PAGE else None,
        "before": before,
        "failed": failed,
        "rotating": hook.old_until > visit.context.clock.now(),
        "secret": "",
        "errors": {},
        "form": {},
    }
    return Page("webhook.html", shown | values | {"form": own | values.get("form", {})}, status)
