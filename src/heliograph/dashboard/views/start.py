"""Quick start: an example request for each channel in three languages, with the team's own ids."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.dashboard.page_request import Download, Page, PageRequest, PageResponse
from heliograph.dashboard.render import CHANNEL_NAMES
from heliograph.dashboard.views.requests import list_newest_requests, log_stream_url
from heliograph.domain.delivery.magic_recipients import SIMULATOR_DOMAIN
from heliograph.domain.setup.records import Channel, Template
from heliograph.manage.keys import keys_of
from heliograph.storage.requests import LoggedRequest
from heliograph.templates.policy.values import required_names
from heliograph.web import snippets
from heliograph.web.snippets import LANGUAGES

EMAIL, PHONE = f"delivered@{SIMULATOR_DOMAIN}", "+15005550006"  # simulated recipients, for live teams too
PATHS: dict[Channel, str] = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}
VERIFY_PATH = "/v1/verify"
SEND_PATHS = {*PATHS.values(), VERIFY_PATH}
KEYS_SHOWN = 3
REQUESTS_SHOWN = 5  # number of recent sends shown
REQUESTS_SEARCHED = 50
SEND_ID_PREFIXES = ("eml_", "sms_", "wam_", "vrf_")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # id in the URL
    title: str
    hint: str = ""
    path: str
    body: dict[str, Any]


async def show(request: PageRequest) -> PageResponse:
    language = request.query.get("language", "curl")
    language = language if language in LANGUAGES else "curl"
    base, available = request.context.base_url, build_examples(request)
    selected_example = next(
        (item for item in available if item.id == request.query.get("send")), available[0] if available else None
    )
    channels_without_template = [CHANNEL_NAMES[channel] for channel in PATHS if find_template(request, channel) is None]
    live_url = await log_stream_url(request)
    recent_requests = [
        (logged, url) for logged, url in await list_newest_requests(request, REQUESTS_SEARCHED) if _is_send(logged)
    ][:REQUESTS_SHOWN]
    return Page(
        "start.html",
        {
            "chosen": selected_example,
            "snippet": code_snippet(language, base + selected_example.path, selected_example.body)
            if selected_example
            else "",
            "languages": [
                (text, f"?language={item}&send={selected_example.id if selected_example else ''}")
                for item, text in LANGUAGES.items()
            ],
            "examples": [(item.title, f"?language={language}&send={item.id}") for item in available],
            "here": f"?language={language}&send={selected_example.id if selected_example else ''}",
            "missing": channels_without_template,
            "has_keys": any(not key.revoked for key in keys_of(request.setup, request.team.record.id)),
            "sender": sender_address(request),
            "smtp_host": urlsplit(base).hostname,
            "requests": recent_requests,
            "live": live_url,
        },
    )


def _is_send(logged: LoggedRequest) -> bool:
    """Return whether the request sent a message or a code, or tried to."""
    method, _, path = logged.route.partition(" ")
    return method == "POST" and (logged.subject.startswith(SEND_ID_PREFIXES) or path in SEND_PATHS)


async def docs_values(request: PageRequest) -> PageResponse:
    """Return the values that the script of /docs inserts in examples: the team's sender, and the names of its keys."""
    keys = [f"{key.name} (hk_{key.id}_…)" for key in keys_of(request.setup, request.team.record.id) if not key.revoked]
    result = {
        "team": request.team.record.name,
        "sender": sender_address(request),
        "keys": sorted(keys)[:KEYS_SHOWN] if request.has_role("developer") else [],
        "place": request.team_path,
    }
    return Download(msgspec.json.encode(result), "application/json")


def build_examples(request: PageRequest) -> list[Example]:
    """Return example requests that this team can send."""
    sender = sender_address(request)
    result = []
    if sender:
        result.append(
            Example(
                id="email",
                title="Email",
                hint=f"The simulator handles {EMAIL}. Nothing is actually sent.",
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
        template = find_template(request, channel)
        if template is None or not sender:
            continue
        base_body = {"to": EMAIL, "from": sender} if channel == "email" else {"to": PHONE}
        values = {name: "…" if name in template.optional else f"your {name}" for name in required_names(template)}
        body = base_body | {"template_id": template.id} | ({"variables": values} if values else {})
        id_ = "template" if channel == "email" else channel
        hint = f"Uses the template {template.name}."
        result.append(Example(id=id_, title=title, hint=hint, path=PATHS[channel], body=body))
    if "verify" in request.team.record.features:
        hint, to = f"{PHONE} is a test number. Its code is always 000000.", PHONE
        if not request.team.sandbox and not request.team.record.verify.magic:
            hint, to = "Use your own number. Live teams can't verify test numbers.", "+4915112345678"
        hint += " Check the code with POST /v1/verify/<id>/check."
        result.append(Example(id="code", title="One-time code", hint=hint, path=VERIFY_PATH, body={"to": to}))
    return result


def sender_address(request: PageRequest) -> str | None:
    """Return the sender of the team's emails: the platform's in the sandbox, otherwise at the first approved domain."""
    if request.team.sandbox:
        return request.setup.platform.sender
    domains = request.team.approved_domains
    return f"hello@{domains[0].name}" if domains else None


def find_template(request: PageRequest, channel: str) -> Template | None:
    """Return an approved template, preferably with variables and not marketing (limited per day); None if not found."""
    candidates = [
        template
        for template in request.team.templates.values()
        if (template.channel, template.status) == (channel, "approved")
    ]
    return min(
        candidates, key=lambda template: (template.category == "MARKETING", not template.variables), default=None
    )


def code_snippet(language: str, url: str, body: dict[str, Any]) -> str:
    """Return code that runs without installing packages. `language`: a key of LANGUAGES."""
    return snippets.snippet("urllib" if language == "python" else language, "POST", url, body)
