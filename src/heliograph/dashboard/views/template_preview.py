"""What a template becomes with example values: shown, priced, as a curl line, and sent as a test."""

import shlex
from typing import Any

import msgspec

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.accept.whatsapp import send_whatsapp
from heliograph.api.request import Headers
from heliograph.dashboard.visit import Visit
from heliograph.rules.gsm import segment
from heliograph.rules.pricing import price_for
from heliograph.rules.refusals import TeamSuspended
from heliograph.rules.setup import Setup
from heliograph.rules.team import Channel, Team, Template
from heliograph.rules.template import placeholder_names, render

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
PATHS: dict[Channel, str] = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}
RECIPIENTS: dict[Channel, str] = {
    "email": "delivered@simulator.test",
    "sms": "+15005550006",
    "whatsapp": "+15005550006",
}


def preview(setup: Setup, team: Team, template: Template, errors: dict[str, str]) -> dict[str, Any]:
    values = {name: template.examples.get(name, name) for name in template.variables}
    shown = render(template, values, _brand(setup, team))
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
    if template.variables:
        body["variables"] = {name: template.examples.get(name, name) for name in template.variables}
    address = visit.desk.base_url.rstrip("/") + PATHS[template.channel]
    return (
        f'curl -sS {address} \\\n  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(msgspec.json.encode(body).decode())}"
    )


async def test_send(visit: Visit, template: Template) -> str:
    """Send it as the API would; answers the message's id."""
    if visit.team.record.suspended:
        raise TeamSuspended
    given = {name: visit.form.get(f"value.{name}", "") for name in template.variables}
    variables = {name: value for name, value in given.items() if value or name not in template.optional}
    to = visit.form.get("to", "").strip()
    caller, desk = visit.caller, visit.desk
    if template.channel == "email":
        mail = EmailRequest(to=to, from_=visit.form.get("from") or None, template_id=template.id, variables=variables)
        done = await send_email(desk, caller, mail, None)
    else:
        phone = PhoneRequest(to=to, template_id=template.id, variables=variables)
        done = await (send_sms if template.channel == "sms" else send_whatsapp)(desk, caller, phone, None)
    desk.accepted()
    return str(msgspec.json.decode(done.body)["id"])
