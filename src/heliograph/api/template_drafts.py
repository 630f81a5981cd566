"""Request and response formats of templates; their endpoints are in drafts.py."""

from typing import Annotated, Any, get_args

import msgspec

from heliograph.api.drafts import DraftEndpoints, Problems, RefusedReason, SubmittedAt, VersionCreatedAt, VersionNumber
from heliograph.domain.field_docs import MONEY, ChannelName, Id, Records, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.records import Template, UpstreamState
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates import service as templates
from heliograph.templates.policy.lint import find_problems
from heliograph.templates.policy.meta_status import get_status
from heliograph.templates.policy.render import estimate_octets
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.policy.variable_types import declarations_of
from heliograph.templates.service import REMOVABLE_FIELDS, ProposedChange
from heliograph.web.paging import ListPage

VARIABLES_DOC = describe('Variable names, or objects `{"name", "list", "max", "max_length"}`, in order.')
LOCALES_DOC = describe("Parts in other languages, by BCP 47 tag.")
VariableList = list[str | dict[str, Any]]
LocaleParts = dict[str, dict[str, str]]


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str | None, describe("Name: one line of up to 200 characters.")] = None
    subject: Annotated[str | None, describe("Email subject.")] = None
    html: Annotated[str | None, describe("Email HTML body.")] = None
    text: Annotated[str | None, describe("Email plain-text body.")] = None
    body: Annotated[str | None, describe("Text of an SMS or WhatsApp message.")] = None
    category: Annotated[
        str | None, describe("Category of a WhatsApp template.", enum=["AUTHENTICATION", "UTILITY", "MARKETING"])
    ] = None
    language: Annotated[str | None, describe("Language of a WhatsApp template, as Meta's language code.")] = None
    upstream_name: Annotated[str | None, describe("Name of a WhatsApp template at Meta. Default: `name`.")] = None
    variables: Annotated[VariableList | None, VARIABLES_DOC] = None
    optional: Annotated[list[str] | None, describe("Variables that can be omitted.")] = None
    locale: Annotated[str | None, describe("Language of the main parts. Default: `en`.")] = None
    locales: Annotated[LocaleParts | None, LOCALES_DOC] = None
    timezone: Annotated[
        str | None, describe("Time zone used to format dates and times, such as `Europe/Vienna`. Default: `UTC`.")
    ] = None
    layout: Annotated[str | None, describe("Id of the layout around html and text.")] = None
    examples: Annotated[dict[str, str] | None, describe("Example values for previews.")] = None


class TemplateRequest(TemplateChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    channel: Annotated[str, describe("The channel.", enum=["email", "sms", "whatsapp"])]


class TemplateContent(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, describe("Name of the template.")]
    subject: Annotated[str | None, describe("Email subject.", example="Hello")]
    html: Annotated[str | None, describe("Email HTML body.")]
    text: Annotated[str | None, describe("Email plain-text body.", example="It works.")]
    body: Annotated[
        str | None, describe("Text of an SMS or WhatsApp message.", example="Demo: your parcel 4711 is on its way.")
    ]
    category: Annotated[str | None, describe("Category of a WhatsApp template.")]
    language: Annotated[str | None, describe("Language of a WhatsApp template.", example="en")]
    upstream_name: Annotated[str | None, describe("Name of a WhatsApp template at Meta; null if it equals `name`.")]
    variables: Annotated[VariableList, VARIABLES_DOC]
    optional: Annotated[list[str], describe("Variables that can be omitted.")]
    locale: Annotated[str, describe("Language of the main parts.")]
    locales: Annotated[LocaleParts, LOCALES_DOC]
    timezone: Annotated[str, describe("Time zone used to format dates and times.")]
    layout: Annotated[str | None, describe("Id of the layout around html and text.")]


class TemplateSummary(TemplateContent, frozen=True, kw_only=True):
    id: Id
    channel: ChannelName
    status: Annotated[str, describe("Only approved templates can be sent.", enum=["approved", "draft", "archived"])]
    version: VersionNumber
    price: Annotated[str, describe("Price of one message, or of one SMS segment.", example="0.0000", **MONEY)]
    prices: Annotated[dict[str, str], describe("Prices by ISO country code.")]
    upstream_status: Annotated[
        str | None,
        describe(
            "Approval status last reported by Meta for a WhatsApp template; null if none was reported.",
            enum=[*get_args(UpstreamState), None],
        ),
    ]
    upstream_reason: Annotated[str | None, describe("Reason given by Meta.")]
    upstream_quality: Annotated[str | None, describe("Quality rating given by Meta, such as `green` or `red`.")]
    draft: Annotated[TemplateContent | None, describe("Content that is not approved yet; null without a draft.")]
    submitted_at: SubmittedAt
    refused_reason: RefusedReason


class TemplateView(TemplateSummary, frozen=True, kw_only=True):
    problems: Problems


class TemplateList(ListPage, frozen=True, kw_only=True):
    data: Records[TemplateSummary]


class VersionView(TemplateContent, frozen=True, kw_only=True):
    version: Annotated[int, describe("Version number, starting at 1.")]
    created_at: VersionCreatedAt


class VersionList(ListPage, frozen=True, kw_only=True):
    data: Records[VersionView]


def _content_fields(template: Template) -> dict[str, Any]:
    names = ("name", "subject", "html", "text", "body", "category", "language", "upstream_name")
    return {
        **{name: getattr(template, name) for name in (*names, "locale", "timezone", "layout")},
        "variables": declarations_of(template),
        "optional": list(template.optional),
        "locales": msgspec.to_builtins(template.locales),
    }


def _to_summary(setup: Setup, template: Template) -> TemplateSummary:
    draft = find_draft(setup, template.id)
    proposed = draft.template if draft else None
    upstream = get_status(setup.teams[template.team], template)
    return TemplateSummary(
        **_content_fields(template),
        id=template.id,
        channel=template.channel,
        status=template.status,
        version=template.version,
        price=format_money(template.price),
        prices={country: format_money(price) for country, price in template.prices.items()},
        upstream_status=upstream.status if upstream else None,
        upstream_reason=(upstream.reason or None) if upstream else None,
        upstream_quality=(upstream.quality or None) if upstream else None,
        draft=TemplateContent(**_content_fields(proposed)) if proposed else None,
        submitted_at=timestamp(proposed.submitted_at) if proposed and proposed.submitted_at else None,
        refused_reason=proposed.refused_reason or None if proposed else None,
    )


TEMPLATE_ENDPOINTS = DraftEndpoints[Template](
    kind="template",
    use_cases=templates,
    create_request=TemplateRequest,
    change_request=TemplateChange,
    view=TemplateView,
    version_view=VersionView,
    removable=REMOVABLE_FIELDS,
    records_of=lambda team: team.templates,
    make_base=lambda id_, team, name: Template(id=id_, team=team, channel="email", name=name, status="draft"),
    save=lambda call, base, fields, is_new: templates.save_proposed(
        call.context.store, call.actor, ProposedChange(template=base, is_new=is_new, fields=fields)
    ),
    find_version=lambda versions, id_, number: versions.find_template(id_, number),
    size_of=lambda template: estimate_octets(template, ()),
    content_fields=_content_fields,
    to_summary=_to_summary,
    find_problems=lambda setup, template: find_problems(
        template, setup.teams[template.team].layouts.get(template.layout or "")
    ),
)
