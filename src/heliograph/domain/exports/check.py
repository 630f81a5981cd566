"""Compatibility check: finds what would break if a client of another service moved here, by that service's lists."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.domain.exports.readers import READERS
from heliograph.domain.exports.records import ExportedTemplate, LeftOut, Row, edit_exported, items_of
from heliograph.domain.mail.attachments import check_type, more_types, type_of
from heliograph.domain.mail.sender import resolve_sender
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Caller, Key, Platform, Team
from heliograph.webhooks.policy.formats import postmark, resend

Calls = Sequence[tuple[str, str]]  # (method, path) of served routes; a segment in braces matches anything

TOLD = {  # events that we publish, by the names of each service
    "postmark": {*postmark.TYPES.values()},
    "resend": {*resend.TYPES.values(), *resend.FAILED.values()},
    "sendgrid": {"processed", "delivered", "deferred", "bounce", "dropped", "spam_report"},
    "twilio": set[str](),
}
NOT_SERVED = "is not served here: docs/compat.md says what is"
NEVER_TOLD = "is never told here: do not wait for it"
FREE_TEXT = "is free text, which needs a template of one variable: name it as passthrough of the team or the key"
NO_SHAPE = "is told in no shape of SendGrid's: let it read another format of webhooks"
NO_MEDIA = "has media, which is not sent here"
_TEMPLATES = ("html", "htmlbody", "textbody", "templateid", "types", "published_at", "generation", "versions")
_ANY_KEY = Key(id="", team="", name="", hash="")


class Breakage(msgspec.Struct, frozen=True):
    kind: str
    text: str
    why: str


class NewPlace(msgspec.Struct, frozen=True):
    """Target of the move."""

    team: Team
    platform: Platform
    calls: Calls


def find_problems(service: str, row: Row, to: NewPlace) -> Iterator[Breakage]:
    """Yield the incompatibilities of one listed record: a call, a webhook, a message or a template. Others yield
    nothing.
    """
    place = row.get("endpoint") or row.get("path") or row.get("url") or ""
    if row.get("method"):
        yield from _of_call(str(row["method"]).upper(), str(place), to.calls)
    elif service == "sendgrid" and "delivered" in row:
        yield Breakage("webhook", str(place), NO_SHAPE)
        yield from _of_webhook(service, {name: one for name, one in row.items() if one is True and name != "enabled"})
    elif "triggers" in row or "events" in row:
        yield from _of_webhook(service, row.get("triggers") or row.get("events"))
    elif "to" in row and service == "twilio":
        yield from _of_text(row, to.team)
    elif "to" in row:
        yield from _of_mail(row, to)
    elif row.get("from_email"):
        name, address = row.get("from_name"), row["from_email"]
        yield from _of_mail({"from": f"{name} <{address}>" if name else address}, to)
    elif any(name in row for name in _TEMPLATES):
        yield from _of_template(service, row)


def _of_call(method: str, place: str, calls: Calls) -> Iterator[Breakage]:
    try:
        path = urlsplit(place).path.rstrip("/")
    except ValueError:  # not a valid URL
        path = place
    if not any(method == known and _fits(path.split("/"), form.rstrip("/").split("/")) for known, form in calls):
        yield Breakage("call", f"{method} {path}", NOT_SERVED)


def _fits(parts: list[str], form: list[str]) -> bool:
    return len(parts) == len(form) and all(
        one == wanted or ("{" in wanted and one.endswith(wanted.rpartition("}")[2]))
        for one, wanted in zip(parts, form, strict=True)
    )


def _of_webhook(service: str, asked: Any) -> Iterator[Breakage]:
    names = asked.split(",") if isinstance(asked, str) else items_of(asked)
    for name, one in asked.items() if isinstance(asked, dict) else ((str(name).strip(), True) for name in names):
        is_wanted = one.get("Enabled") if isinstance(one, dict) else one
        if is_wanted and name not in TOLD[service]:
            yield Breakage("event", name, NEVER_TOLD)


def _of_text(row: Row, team: Team) -> Iterator[Breakage]:
    name = str(row.get("sid") or row["to"])
    if str(row.get("num_media") or "0") != "0":
        yield Breakage("media", name, NO_MEDIA)
    if row.get("body") and not row.get("content_sid") and not team.record.passthrough:
        yield Breakage("text", str(row.get("messaging_service_sid") or row.get("from") or name), FREE_TEXT)


def _of_mail(row: Row, to: NewPlace) -> Iterator[Breakage]:
    sender, more = str(row.get("from") or ""), more_types(to.platform, to.team)
    try:
        resolve_sender(Caller(team=to.team, key=_ANY_KEY), to.platform, sender, None)
    except Refusal as refusal:
        yield Breakage("sender", sender, refusal.message)
    for one in items_of(row.get("attachments")):
        file = {name.lower(): value for name, value in one.items()} if isinstance(one, dict) else {"name": one}
        name = str(file.get("filename") or file.get("name") or "")
        try:
            check_type(name, str(file.get("content_type") or type_of(name, more)), "The type", more)
        except Refusal as refusal:
            yield Breakage("file", f".{name.rpartition('.')[2]}", refusal.message)


def _of_template(service: str, row: Row) -> Iterator[Breakage]:
    found = READERS[service](row)
    if isinstance(found, LeftOut):
        yield Breakage("template", found.text, found.why)
    elif isinstance(found, ExportedTemplate) and (errors := edit_exported(found, "", "").errors):
        yield Breakage("template", found.name, "; ".join(f"{field}: {error}" for field, error in errors.items()))
