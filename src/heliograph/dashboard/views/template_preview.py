"""Preview of a template with example values: content, price, and a command to send it."""

from typing import Any

from msgspec.structs import replace

from heliograph.dashboard.page_request import Download, PageRequest
from heliograph.dashboard.render import render as to_page
from heliograph.dashboard.views import start
from heliograph.dashboard.views.template_chips import draw_chips, mark_name, split_names
from heliograph.domain.limits import SCAN_COST_FACTOR
from heliograph.domain.mail.sender import default_brand_values
from heliograph.domain.phones.gsm import (
    MULTIPART_UNITS,
    SINGLE_PART_UNITS,
    Segments,
    count_segments,
    non_gsm_characters,
    replace_typography,
    split_by_alphabet,
)
from heliograph.domain.refusals import BodyTooLong
from heliograph.domain.sending.pricing import price_groups
from heliograph.domain.setup.records import Channel, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates.policy.check import placeholder_names
from heliograph.templates.policy.examples import example_text, example_values, guess_value, parse_form_value
from heliograph.templates.policy.lint import find_problems
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.placeholders import BRAND_FIELDS, PLACEHOLDER
from heliograph.templates.policy.render import Rendered, estimate_octets, render
from heliograph.templates.policy.source import PARTS
from heliograph.templates.policy.values import body_values, required_names
from heliograph.web.read_budget import run_large
from heliograph.web.request import Headers

# The iframe allows our own font and icons and a mail's own styles, but no scripts and no remote content; only our pages
# may embed it. The mail is in a nested frame whose policy also forbids our own files.
HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
        b"form-action 'none'; base-uri 'none'; frame-ancestors 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
RECIPIENTS: dict[Channel, str] = {"email": start.EMAIL, "sms": start.PHONE, "whatsapp": start.PHONE}
PROBLEMS_SHOWN_MAX = 30
CHARACTERS_LISTED_MAX = 5  # maximum number of characters listed that are not in the GSM alphabet


async def preview_frame(
    request: PageRequest, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> Download:
    """Return the preview document for the iframe."""
    return Download(
        await preview_document(request, template, errors, locale), "text/html; charset=utf-8", headers=HEADERS
    )


async def preview_document(
    request: PageRequest, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> bytes:
    setup, team, byte_count = request.setup, request.team, estimate_octets(template, template.examples.values())
    await request.reserve_memory(byte_count)
    return await run_large(
        SCAN_COST_FACTOR * byte_count,
        lambda: to_page("template_preview.html", preview_values(setup, team, template, errors, locale)),
    )


def preview_values(
    setup: Setup, team: Team, template: Template, errors: dict[str, str] | None = None, locale: str | None = None
) -> dict[str, Any]:
    brand = default_brand_values(team, setup.platform)
    layout = team.layouts.get(template.layout or "")
    # The preview shows the number of segments, so the warning about more segments is omitted.
    problems = [problem for problem in find_problems(template, layout) if problem.code != "more_segments"]
    template = localize(template, locale)
    example_variables = example_values(template, mark_name) if template.channel == "email" else example_values(template)
    errors = errors or {}
    try:
        rendered = render(template, example_variables, brand, layout)
    except BodyTooLong as refusal:
        rendered = Rendered(subject=template.subject, html=None, text=None, body=None)
        errors = errors | {"examples": refusal.message}
    used_names = placeholder_names(template)
    values: dict[str, Any] = {
        "template": template,
        "team": team.record,
        "brand": brand,
        "shown": replace(rendered, html=draw_chips(rendered.html)) if rendered.html else rendered,
        "pieces_of": split_names,
        "guesses": {name: guess_value(name) for name in used_names if name in required_names(template)},
        "fields": {name: ", ".join(shape.list) for name, shape in template.shapes.items() if shape.list},
        "values": body_values(template, example_variables, brand),
        "errors": errors,
        "is_layout": False,
        "problems": problems[:PROBLEMS_SHOWN_MAX],
        "used": [name for name in used_names if name in required_names(template)],
        "unused": [name for name in template.variables if name not in used_names],
        "unexampled": [name for name in required_names(template) if name not in template.examples],
        "unbranded": _unknown_brand_fields(template),
        "parts_of": None,
    }
    count = 1
    if template.channel == "sms":
        segments = count_segments(rendered.body or "")
        count = segments.billed(team.record.segmenting)
        values |= {
            "parts_of": segments,
            "count": count,
            "room": _segment_capacity(segments, count, team),
        } | _encoding_values(rendered.body or "", team)
    values["unpriced"] = template.channel != "email" and template.status == "draft" and not template.price
    groups = [(countries, price, price * count) for countries, price in price_groups(template)]
    return values | {"costs": groups}


def _encoding_values(text: str, team: Team) -> dict[str, Any]:
    """Return the characters that are not in the GSM alphabet, and the number of segments after replacing them."""
    segments_after = count_segments(replace_typography(text))
    characters = non_gsm_characters(text)
    return {
        "pieces": split_by_alphabet(text),
        "outside": characters[:CHARACTERS_LISTED_MAX],
        "more": len(characters) - CHARACTERS_LISTED_MAX,
        "plainer": segments_after.billed(team.record.segmenting) if segments_after.encoding == "gsm7" else None,
    }


def _segment_capacity(segments: Segments, count: int, team: Team) -> int:
    """Return how much fits in `count` segments, in units of the encoding."""
    units_per_segment = MULTIPART_UNITS if team.record.segmenting == "udh" and count > 1 else SINGLE_PART_UNITS
    return units_per_segment[segments.encoding] * count


def _unknown_brand_fields(template: Template) -> list[str]:
    """Return brand fields in the template that do not exist, and are rendered empty."""
    texts = [text for part in PARTS if (text := getattr(template, part))]
    field_names = {
        placeholder[2] for text in texts for placeholder in PLACEHOLDER.finditer(text) if placeholder[1] == "brand"
    }
    return sorted(field_names - set(BRAND_FIELDS))


def curl_command(request: PageRequest, template: Template, locale: str) -> str:
    """Return the curl command that sends the template. `locale`: chosen language; empty for the default."""
    body: dict[str, Any] = {"to": RECIPIENTS[template.channel], "template_id": template.id}
    if template.locales:
        body["locale"] = locale or template.locale
    domains = request.team.approved_domains
    if template.channel == "email" and domains and not request.team.sandbox:
        body["from"] = f"hello@{domains[0].name}"
    if variable_names := required_names(template):
        body["variables"] = {
            name: parse_form_value(template, name, example_text(template, name)) for name in variable_names
        }
    return start.code_snippet("curl", request.context.base_url + start.PATHS[template.channel], body)
