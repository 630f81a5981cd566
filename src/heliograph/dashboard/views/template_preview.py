"""What a template becomes with example values: shown, priced, and as a curl line."""

from typing import Any

from heliograph.dashboard.render import render as to_page
from heliograph.dashboard.views import start
from heliograph.dashboard.visit import Download, Visit
from heliograph.rules.gsm import segment
from heliograph.rules.pricing import price_for
from heliograph.rules.refusals import BodyTooLong
from heliograph.rules.setup.records import Channel, Team, Template
from heliograph.rules.setup.snapshot import Setup
from heliograph.rules.template import Rendered, asked_names, placeholder_names, render, with_brand
from heliograph.web.request import Headers

# The frame shows a mail with its own styles: no script, nothing loaded from elsewhere, and only our pages frame it.
HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self' 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
        b"frame-ancestors 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
RECIPIENTS: dict[Channel, str] = {"email": start.EMAIL, "sms": start.PHONE, "whatsapp": start.PHONE}


def frame(visit: Visit, template: Template, errors: dict[str, str]) -> Download:
    """The document of the preview's frame."""
    body = to_page("template_preview.html", preview(visit.setup, visit.team, template, errors))
    return Download(body, "text/html; charset=utf-8", headers=HEADERS)


def preview(setup: Setup, team: Team, template: Template, errors: dict[str, str]) -> dict[str, Any]:
    brand = _brand(setup, team)
    given = {name: template.examples.get(name, name) for name in template.variables}
    values = with_brand(template, given, brand)
    try:
        shown = render(template, given, brand)
    except BodyTooLong as refusal:
        shown = Rendered(subject=template.subject, html=None, text=None, body=None)
        errors = errors | {"examples": refusal.message}
    used = placeholder_names(template)
    found: dict[str, Any] = {
        "template": template,
        "team": team.record,
        "shown": shown,
        "values": values,
        "errors": errors,
        "unused": [name for name in template.variables if name not in used],
        "parts": None,
    }
    count = 1
    if template.channel == "sms":
        parts = segment(shown.body or "")
        count = parts.billed(team.record.segmenting)
        found |= {"parts": parts, "count": count}
    countries = [None, *sorted(template.prices)]
    found["unpriced"] = template.channel != "email" and template.status == "draft" and not template.price
    return found | {"costs": [(country, price_for(template, country) * count) for country in countries]}


def _brand(setup: Setup, team: Team) -> dict[str, str]:
    for domain in team.approved_domains():
        return {"name": domain.brand, "domain": domain.name}
    return {"name": setup.platform.brand, "domain": setup.platform.sender.rpartition("@")[2]}


def curl(visit: Visit, template: Template) -> str:
    body: dict[str, Any] = {"to": RECIPIENTS[template.channel], "template_id": template.id}
    domains = visit.team.approved_domains()
    if template.channel == "email" and domains and not visit.team.sandbox:
        body["from"] = f"hello@{domains[0].name}"
    if asked := asked_names(template):
        body["variables"] = {name: template.examples.get(name, name) for name in asked}
    return start.snippet("curl", visit.context.base_url + start.PATHS[template.channel], body)
