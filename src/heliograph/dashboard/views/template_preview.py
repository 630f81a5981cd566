"""Preview of a template with example values: content, price, and a curl command."""

from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.page_request import Download, Visit
from heliograph.dashboard.render import render as to_page
from heliograph.dashboard.views import start
from heliograph.dashboard.views.template_chips import chip, drawn, pieces
from heliograph.domain.limits import PARSED
from heliograph.domain.mail.sender import usual_brand
from heliograph.domain.phones.gsm import PART, SINGLE, Segments, marked, outside, plain, segment
from heliograph.domain.refusals import BodyTooLong
from heliograph.domain.sending.pricing import price_groups
from heliograph.domain.setup.records import Channel, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates.policy.check import placeholder_names
from heliograph.templates.policy.examples import example_text, example_values, given_value, guess
from heliograph.templates.policy.lint import problems_of
from heliograph.templates.policy.locales import in_locale
from heliograph.templates.policy.placeholders import BRAND, PLACEHOLDER
from heliograph.templates.policy.render import Rendered, most_octets, render
from heliograph.templates.policy.source import PARTS
from heliograph.templates.policy.values import asked_names, with_brand
from heliograph.web.read_budget import work
from heliograph.web.request import Headers

# The iframe allows a mail's own styles, but no scripts and no remote content; only our pages may embed it.
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
PROBLEMS_MAX = 30
NAMED_MAX = 5  # maximum number of characters outside the GSM alphabet that are listed


async def frame(
    visit: Visit, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> Download:
    """Return the preview document for the iframe."""
    return Download(await document(visit, template, errors, locale), "text/html; charset=utf-8", headers=HEADERS)


async def document(
    visit: Visit, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> bytes:
    setup, team, octets = visit.setup, visit.team, most_octets(template, template.examples.values())
    await visit.hold(octets)
    return await work(
        PARSED * octets, lambda: to_page("template_preview.html", preview_of(setup, team, template, errors, locale))
    )


def preview_of(
    setup: Setup, team: Team, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> dict[str, Any]:
    brand = usual_brand(team, setup.platform)
    layout = team.layouts.get(template.layout or "")
    # segments are counted below
    problems = [one for one in problems_of(template, layout) if one.code != "more_segments"]
    template = in_locale(template, locale)
    given = example_values(template, chip) if template.channel == "email" else example_values(template)
    errors = errors or {}
    try:
        shown = render(template, given, brand, layout)
    except BodyTooLong as refusal:
        shown = Rendered(subject=template.subject, html=None, text=None, body=None)
        errors = errors | {"examples": refusal.message}
    used = placeholder_names(template)
    found: dict[str, Any] = {
        "template": template,
        "team": team.record,
        "brand": brand,
        "shown": replace(shown, html=drawn(shown.html)) if shown.html else shown,
        "pieces_of": pieces,
        "guesses": {name: guess(name) for name in used if name in asked_names(template)},
        "fields": {name: ", ".join(shape.list) for name, shape in template.shapes.items() if shape.list},
        "values": with_brand(template, given, brand),
        "errors": errors,
        "is_layout": False,
        "problems": problems[:PROBLEMS_MAX],
        "used": [name for name in used if name in asked_names(template)],
        "unused": [name for name in template.variables if name not in used],
        "unexampled": [name for name in asked_names(template) if name not in template.examples],
        "unbranded": _unbranded(template),
        "parts_of": None,
    }
    count = 1
    if template.channel == "sms":
        parts = segment(shown.body or "")
        count = parts.billed(team.record.segmenting)
        found |= {"parts_of": parts, "count": count, "room": _room(parts, count, team)} | _encoding(
            shown.body or "", team
        )
    found["unpriced"] = template.channel != "email" and template.status == "draft" and not template.price
    groups = [(countries, price, price * count) for countries, price in price_groups(template)]
    return found | {"costs": groups}


def _encoding(text: str, team: Team) -> dict[str, Any]:
    """Return the characters outside the GSM alphabet, and the number of segments after replacing them."""
    plainer = segment(plain(text))
    names = outside(text)
    return {
        "pieces": marked(text),
        "outside": names[:NAMED_MAX],
        "more": len(names) - NAMED_MAX,
        "plainer": plainer.billed(team.record.segmenting) if plainer.encoding == "gsm7" else None,
    }


def _room(parts: Segments, count: int, team: Team) -> int:
    """Return the capacity of `count` segments, in units of the encoding."""
    size = PART if team.record.segmenting == "udh" and count > 1 else SINGLE
    return size[parts.encoding] * count


def _unbranded(template: Template) -> list[str]:
    """Return the brand fields that the template uses but that do not exist; they are rendered empty."""
    texts = [text for part in PARTS if (text := getattr(template, part))]
    slots = {slot[2] for text in texts for slot in PLACEHOLDER.finditer(text) if slot[1] == "brand"}
    return sorted(slots - set(BRAND))


def curl(visit: Visit, template: Template) -> str:
    body: dict[str, Any] = {"to": RECIPIENTS[template.channel], "template_id": template.id}
    domains = visit.team.approved_domains
    if template.channel == "email" and domains and not visit.team.sandbox:
        body["from"] = f"hello@{domains[0].name}"
    if asked := asked_names(template):
        body["variables"] = {name: given_value(template, name, example_text(template, name)) for name in asked}
    return start.snippet("curl", visit.context.base_url + start.PATHS[template.channel], body)
