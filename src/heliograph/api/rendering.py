"""POST /v1/templates/:id/render: renders a template with given variables and returns its price."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.field_docs import (
    BODY,
    ENCODING,
    SEGMENTS,
    ChannelName,
    Html,
    Locale,
    Price,
    Text,
    Variables,
    says,
    such_as,
)
from heliograph.domain.mail.sender import brands_of, usual_brand
from heliograph.domain.phones.gsm import segment
from heliograph.domain.phones.phone import country_of, read_phone
from heliograph.domain.refusals import TemplateNotFound
from heliograph.domain.sending.pricing import format_money, price_for
from heliograph.domain.setup.records import Layout, Team, Template
from heliograph.templates.policy.bounds import bounds_of
from heliograph.templates.policy.locales import in_locale, read_locale
from heliograph.templates.policy.render import most_octets, render
from heliograph.templates.policy.values import (
    Values,
    check_bounds,
    check_size_of_variables,
    check_types,
    leaf_texts,
    missing_and_unknown,
    read_variables,
)
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import answer_of


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    variables: Variables = None
    locale: Locale = None
    to: Annotated[str | None, says("A phone, for the price in its country. SMS and WhatsApp templates only.")] = None


class BoundsView(msgspec.Struct, frozen=True, kw_only=True):
    octets_max: Annotated[int, says("Octets of all its parts together.")]
    segments_max: Annotated[int | None, says("SMS segments; null on other channels.")]
    price_max: Annotated[str, says("Price of one send, in the dearest country.", example="0.1350")]


class RenderView(msgspec.Struct, frozen=True, kw_only=True):
    channel: ChannelName
    subject: Annotated[str | None, says("Subject as delivered.", example="Welcome, Ada")]
    html: Annotated[Html, such_as("<p>Hi Ada, Demo here.</p>")]
    text: Annotated[Text, such_as("Hi Ada, Demo here.")]
    body: Annotated[str | None, BODY]
    segments: Annotated[int | None, SEGMENTS]
    encoding: Annotated[str | None, ENCODING]
    price: Annotated[Price, such_as("0.0000")]
    missing: Annotated[list[str], says("Required variables that were not given.")]
    unknown: Annotated[list[str], says("Given variables that the template does not declare.")]
    bounds: Annotated[
        BoundsView | None,
        says("What no values that are allowed exceed; null unless each variable declares its `max_length`."),
    ]


async def render_template(call: Call) -> Response:
    request = to_request(call.json, RenderRequest)
    values = read_variables(request.variables)
    team = call.caller.team
    template = team.templates.get(call.params["id"])
    if template is None or template.status != "approved":
        raise TemplateNotFound(f"The team has no approved template with this id. {TemplateNotFound.fix}", param="id")
    template = in_locale(template, read_locale(request.locale))
    layout = team.layouts.get(template.layout) if template.layout else None
    check_types(template, values)
    check_bounds(template, values)
    country = None
    if request.to is not None and template.channel != "email":
        country = country_of(read_phone(request.to))
    check_size_of_variables(request.variables)
    octets = most_octets(template, leaf_texts(request.variables), layout)
    await call.hold(octets)
    brand = usual_brand(team, call.context.store.setup.current.platform)
    brands = brands_of(team, call.context.store.setup.current.platform)
    return await answer_of(octets, lambda: _view(template, layout, values, brand, team, country, brands))


def _view(
    template: Template,
    layout: Layout | None,
    values: Values,
    brand: dict[str, str],
    team: Team,
    country: str | None,
    brands: list[dict[str, str]],
) -> RenderView:
    rendered = render(template, values, brand, layout)
    missing, unknown = missing_and_unknown(template, values)
    segments = segment(rendered.body or "") if template.channel == "sms" else None
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
        bounds=_bounds(team.templates[template.id], team, brands),  # over all languages
    )


def _bounds(template: Template, team: Team, brands: list[dict[str, str]]) -> BoundsView | None:
    found = bounds_of(template, brands, team.layouts.get(template.layout or ""), team.record.segmenting)
    if found is None:
        return None
    return BoundsView(octets_max=found.octets, segments_max=found.segments, price_max=format_money(found.price))
