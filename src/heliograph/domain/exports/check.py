"""Compatibility check: finds what would stop working for a client that moves from another service to this one.

The check reads records exported from the other service: calls, webhooks, messages and templates.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.domain.exports.readers import CONVERTER_BY_SERVICE
from heliograph.domain.exports.records import ExportedTemplate, Row, SkippedRow, as_list, edit_exported
from heliograph.domain.mail.attachments import check_type, configured_extra_types, guess_type
from heliograph.domain.mail.sender import resolve_sender
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Caller, Key, Platform, Team
from heliograph.webhooks.policy.formats import postmark, resend

ServedRoutes = Sequence[tuple[str, str]]  # (method, path) of served routes; a segment in braces matches any segment

PUBLISHED_EVENTS = {  # service → its names for the events that we publish
    "postmark": {*postmark.RECORD_TYPE_BY_TYPE.values()},
    "resend": {*resend.RESEND_TYPE_BY_TYPE.values(), *resend.RESEND_TYPE_BY_REASON.values()},
    "sendgrid": {"processed", "delivered", "deferred", "bounce", "dropped", "spam_report"},
    "twilio": set[str](),
}
NOT_SERVED = "is not supported; docs/compat.md lists the supported calls"
NEVER_PUBLISHED = "is never published, so do not wait for it"
NEEDS_PASSTHROUGH = "is free text, which needs a template with one variable, set as passthrough of the team or the key"
NO_WEBHOOK_FORMAT = "needs SendGrid's webhook format, which is not available; use another webhook format"
NO_MEDIA = "has media, which is not supported"
_TEMPLATE_FIELDS = ("html", "htmlbody", "textbody", "templateid", "types", "published_at", "generation", "versions")
_ANY_KEY = Key(id="", team="", name="", hash="")


class Incompatibility(msgspec.Struct, frozen=True):
    kind: str
    text: str
    why: str


class ImportTarget(msgspec.Struct, frozen=True):
    """Target of a client that moves here from another service: its team, the platform, and the served API routes."""

    team: Team
    platform: Platform
    routes: ServedRoutes


def find_problems(service: str, row: Row, target: ImportTarget) -> Iterator[Incompatibility]:
    """Yield the incompatibilities of an exported call, webhook, message or template; for other records, nothing."""
    endpoint = row.get("endpoint") or row.get("path") or row.get("url") or ""
    if row.get("method"):
        yield from _check_call(str(row["method"]).upper(), str(endpoint), target.routes)
    elif service == "sendgrid" and "delivered" in row:
        yield Incompatibility("webhook", str(endpoint), NO_WEBHOOK_FORMAT)
        yield from _check_webhook(
            service, {name: value for name, value in row.items() if value is True and name != "enabled"}
        )
    elif "triggers" in row or "events" in row:
        yield from _check_webhook(service, row.get("triggers") or row.get("events"))
    elif "to" in row and service == "twilio":
        yield from _check_text(row, target.team)
    elif "to" in row:
        yield from _check_email(row, target)
    elif row.get("from_email"):
        name, address = row.get("from_name"), row["from_email"]
        yield from _check_email({"from": f"{name} <{address}>" if name else address}, target)
    elif any(name in row for name in _TEMPLATE_FIELDS):
        yield from _check_template(service, row)


def _check_call(method: str, endpoint: str, routes: ServedRoutes) -> Iterator[Incompatibility]:
    try:
        path = urlsplit(endpoint).path.rstrip("/")
    except ValueError:  # not a valid URL
        path = endpoint
    if not any(
        method == served_method and _matches_pattern(path.split("/"), pattern.rstrip("/").split("/"))
        for served_method, pattern in routes
    ):
        yield Incompatibility("call", f"{method} {path}", NOT_SERVED)


def _matches_pattern(parts: list[str], pattern: list[str]) -> bool:
    return len(parts) == len(pattern) and all(
        part == expected or ("{" in expected and part.endswith(expected.rpartition("}")[2]))
        for part, expected in zip(parts, pattern, strict=True)
    )


def _check_webhook(service: str, subscriptions: Any) -> Iterator[Incompatibility]:
    names = subscriptions.split(",") if isinstance(subscriptions, str) else as_list(subscriptions)
    for name, setting in (
        subscriptions.items() if isinstance(subscriptions, dict) else ((str(name).strip(), True) for name in names)
    ):
        is_subscribed = setting.get("Enabled") if isinstance(setting, dict) else setting
        if is_subscribed and name not in PUBLISHED_EVENTS[service]:
            yield Incompatibility("event", name, NEVER_PUBLISHED)


def _check_text(row: Row, team: Team) -> Iterator[Incompatibility]:
    name = str(row.get("sid") or row["to"])
    if str(row.get("num_media") or "0") != "0":
        yield Incompatibility("media", name, NO_MEDIA)
    if row.get("body") and not row.get("content_sid") and not team.record.passthrough:
        yield Incompatibility(
            "text", str(row.get("messaging_service_sid") or row.get("from") or name), NEEDS_PASSTHROUGH
        )


def _check_email(row: Row, target: ImportTarget) -> Iterator[Incompatibility]:
    sender, extra_types = str(row.get("from") or ""), configured_extra_types(target.platform, target.team)
    try:
        resolve_sender(Caller(team=target.team, key=_ANY_KEY), target.platform, sender, None)
    except Refusal as refusal:
        yield Incompatibility("sender", sender, refusal.message)
    for attachment in as_list(row.get("attachments")):
        file = (
            {name.lower(): value for name, value in attachment.items()}
            if isinstance(attachment, dict)
            else {"name": attachment}
        )
        name = str(file.get("filename") or file.get("name") or "")
        try:
            check_type(name, str(file.get("content_type") or guess_type(name, extra_types)), "The type", extra_types)
        except Refusal as refusal:
            yield Incompatibility("file", f".{name.rpartition('.')[2]}", refusal.message)


def _check_template(service: str, row: Row) -> Iterator[Incompatibility]:
    exported = CONVERTER_BY_SERVICE[service](row)
    if isinstance(exported, SkippedRow):
        yield Incompatibility("template", exported.text, exported.reason)
    elif isinstance(exported, ExportedTemplate) and (errors := edit_exported(exported, "", "").errors):
        yield Incompatibility(
            "template", exported.name, "; ".join(f"{field}: {error}" for field, error in errors.items())
        )
