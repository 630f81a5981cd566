"""POST /v1/templates/:id/render: renders a template with given variables and returns its price."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import (
    BODY_DOC,
    ENCODING_DOC,
    SEGMENTS_DOC,
    ChannelName,
    Html,
    Locale,
    Price,
    Text,
    Variables,
    describe,
    with_example,
)
from heliograph.domain.mail.sender import default_brand_values, possible_brand_values
from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.phones.phone import country_of, parse_phone
from heliograph.domain.refusals import TemplateNotFound
from heliograph.domain.sending.pricing import format_money, price_for
from heliograph.domain.setup.records import Layout, Platform, Team, Template
from heliograph.templates.policy.bounds import bounds_of
from heliograph.templates.policy.locales import localize, read_locale
from heliograph.templates.policy.render import estimate_octets, render
from heliograph.templates.policy.values import (
    Values,
    check_bounds,
    check_types,
    check_variables_size,
    iterate_texts,
    missing_and_unknown,
    read_variables,
)
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import large_json_response


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    variables: Variables = None
    locale: Locale = None
    to: Annotated[
        str | None, describe("Phone number whose country determines the price. SMS and WhatsApp templates only.")
    ] = None


class BoundsView(msgspec.Struct, frozen=True, kw_only=True):
    octets_max: Annotated[int, describe("Maximum bytes of all parts together.")]
    segments_max: Annotated[int | None, describe("Maximum SMS segments; null on other channels.")]
    price_max: Annotated[
        str, describe("Maximum price of one message, in the most expensive country.", example="0.1350")
    ]


class RenderView(msgspec.Struct, frozen=True, kw_only=True):
    channel: ChannelName
    subject: Annotated[str | None, describe("Subject as delivered.", example="Welcome, Ada")]
    html: Annotated[Html, with_example("<p>Hi Ada, Demo here.</p>")]
    text: Annotated[Text, with_example("Hi Ada, Demo here.")]
    body: Annotated[str | None, BODY_DOC]
    segments: Annotated[int | None, SEGMENTS_DOC]
    encoding: Annotated[str | None, ENCODING_DOC]
    price: Annotated[Price, with_example("0.0000")]
    missing: Annotated[list[str], describe("Required variables that were not given.")]
    unknown: Annotated[list[str], describe("Given variables that the template does not declare.")]
    bounds: Annotated[
        BoundsView | None,
        describe("Upper limits for any allowed values; null unless every variable declares a `max_length`."),
    ]


async def render_template(call: Call) -> Response:
    request = to_request(call.json, RenderRequest)
    values = read_variables(request.variables)
    team = call.caller.team
    template = team.templates.get(call.params["id"])
    if template is None or template.status != "approved":
        raise TemplateNotFound(f"The team has no approved template with this id. {TemplateNotFound.fix}", param="id")
    template = localize(template, read_locale(request.locale))
    layout = team.layouts.get(template.layout) if template.layout else None
    check_types(template, values)
    check_bounds(template, values)
    country = None
    if request.to is not None and template.channel != "email":
        country = country_of(parse_phone(request.to))
    check_variables_size(request.variables)
    octets = estimate_octets(template, iterate_texts(request.variables), layout)
    await call.reserve_memory(octets)
    platform, base_url = call.context.store.setup.current.platform, call.context.base_url
    return await large_json_response(octets, lambda: _view(template, layout, values, team, country, platform, base_url))


def _view(
    template: Template,
    layout: Layout | None,
    values: Values,
    team: Team,
    country: str | None,
    platform: Platform,
    base_url: str,
) -> RenderView:
    rendered = render(template, values, default_brand_values(team, platform), layout)
    missing, unknown = missing_and_unknown(template, values)
    segments = count_segments(rendered.body or "") if template.channel == "sms" else None
    count = segments.billed(team.record.segmenting) if segments else 1
    return RenderView(
        channel=template.channel,
        subject=rendered.subject,
        html=rendered.html,
        text=rendered.text,
        body=rendered.body,
        segments=count if segments else None,
        encoding=segments.encoding if segments else None,
        price=format_money(price_for(template, country) * count),
        missing=missing,
        unknown=unknown,
        # `template` has only the rendered language; the bounds are the maximum of all languages
        bounds=_bounds(team.templates[template.id], team, platform, base_url),
    )


def _bounds(template: Template, team: Team, platform: Platform, base_url: str) -> BoundsView | None:
    brands, layout = possible_brand_values(team, platform), team.layouts.get(template.layout or "")
    bounds = bounds_of(template, brands, layout, team.record.segmenting, base_url=base_url)
    if bounds is None:
        return None
    return BoundsView(octets_max=bounds.octets, segments_max=bounds.segments, price_max=format_money(bounds.price))
