"""Quick start: a sample request for each channel in three languages, with the team's own ids."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.dashboard.page_request import Answer, Download, Page, Visit
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.views.requests import live_address, newest_requests
from heliograph.domain.delivery.magic_recipients import DOMAIN
from heliograph.domain.setup.records import Channel, Template
from heliograph.manage.keys import keys_of
from heliograph.templates.policy.values import asked_names
from heliograph.web import snippets
from heliograph.web.snippets import LANGUAGES

EMAIL, PHONE = f"delivered@{DOMAIN}", "+15005550006"  # handled by the simulator, even for live teams
PATHS: dict[Channel, str] = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}
KEYS_SHOWN = 3
SEEN = 5  # number of recent requests shown live


class Example(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # id used in the URL
    title: str
    hint: str = ""
    path: str
    body: dict[str, Any]


async def show(visit: Visit) -> Answer:
    language = visit.query.get("language", "curl")
    language = language if language in LANGUAGES else "curl"
    base, found = visit.context.base_url, examples(visit)
    chosen = next((one for one in found if one.id == visit.query.get("send")), found[0] if found else None)
    missing = [CHANNEL_NAMES[channel] for channel in PATHS if template_of(visit, channel) is None]
    live = await live_address(visit)
    newest = await newest_requests(visit, SEEN)
    return Page(
        "start.html",
        {
            "chosen": chosen,
            "snippet": snippet(language, base + chosen.path, chosen.body) if chosen else "",
            "languages": [
                (text, f"?language={one}&send={chosen.id if chosen else ''}") for one, text in LANGUAGES.items()
            ],
            "examples": [(one.title, f"?language={language}&send={one.id}") for one in found],
            "here": f"?language={language}&send={chosen.id if chosen else ''}",
            "missing": missing,
            "sender": sender_of(visit),
            "smtp_host": urlsplit(base).hostname,
            "requests": newest,
            "live": live,
        },
    )


async def own(visit: Visit) -> Answer:
    """Return the values that the script of /docs inserts into examples: the team's sender and key names."""
    keys = [f"{key.name} (hk_{key.id}_…)" for key in keys_of(visit.setup, visit.team.record.id) if not key.revoked]
    told = {
        "team": visit.team.record.name,
        "sender": sender_of(visit),
        "keys": sorted(keys)[:KEYS_SHOWN] if visit.may("developer") else [],
        "place": visit.base,
    }
    return Download(msgspec.json.encode(told), "application/json")


def examples(visit: Visit) -> list[Example]:
    """Return sample requests that this team can send now."""
    sender = sender_of(visit)
    found = []
    if sender:
        found.append(
            Example(
                id="email",
                title="Email",
                hint=f"{EMAIL} is answered by the simulator: nothing leaves this service.",
                path=PATHS["email"],
                body={"to": EMAIL, "from": sender, "subject": "Hello", "text": "It works."},
            )
        )
    titles: dict[Channel, str] = {
        "email": "Email from a template",
        "sms": "SMS",
        "whatsapp": "WhatsApp",
    }
    for channel, title in titles.items():
        template = template_of(visit, channel)
        if template is None or not sender:
            continue
        own = {"to": EMAIL, "from": sender} if channel == "email" else {"to": PHONE}
        values = {name: "…" if name in template.optional else f"your {name}" for name in asked_names(template)}
        body = own | {"template_id": template.id} | ({"variables": values} if values else {})
        id_ = "template" if channel == "email" else channel
        hint = f"With the template {template.name}."
        found.append(Example(id=id_, title=title, hint=hint, path=PATHS[channel], body=body))
    if "verify" in visit.team.record.features:
        hint, to = f"{PHONE} is a magic number: its code is always 000000.", PHONE
        if not visit.team.sandbox and not visit.team.record.verify.magic:
            hint, to = "Write your own number: a live team verifies no magic ones.", "+4915112345678"
        hint += " Check it with POST /v1/verify/<id>/check."
        found.append(Example(id="code", title="One-time code", hint=hint, path="/v1/verify", body={"to": to}))
    return found


def sender_of(visit: Visit) -> str | None:
    """Return the sender of the team's emails: the platform's in the sandbox, otherwise at the first approved domain."""
    if visit.team.sandbox:
        return visit.setup.platform.sender
    usable = visit.team.approved_domains
    return f"hello@{usable[0].name}" if usable else None


def template_of(visit: Visit, channel: str) -> Template | None:
    """Return an approved template, preferably not marketing (limited per day) and with variables; None if not found."""
    found = [one for one in visit.team.templates.values() if (one.channel, one.status) == (channel, "approved")]
    return min(found, key=lambda one: (one.category == "MARKETING", not one.variables), default=None)


def snippet(language: str, url: str, body: dict[str, Any]) -> str:
    return snippets.snippet(language, "POST", url, body)
