"""Request and response formats of templates; drafts.py has the endpoints."""

from typing import Annotated, Any, get_args

import msgspec

from heliograph.api.drafts import Drafts, MadeAt, Problems, RefusedReason, SubmittedAt, VersionNumber
from heliograph.domain.field_docs import MONEY, ChannelName, Id, Records, says
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.records import Template, UpstreamState
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates import service as templates
from heliograph.templates.policy.lint import problems_of
from heliograph.templates.policy.meta_status import upstream_of
from heliograph.templates.policy.render import most_octets
from heliograph.templates.policy.template_approvals import find_draft
from heliograph.templates.policy.variable_types import declared
from heliograph.templates.service import REMOVABLE, Proposal
from heliograph.web.paging import Listed

DECLARED = says('Names, or objects `{"name", "list", "max", "max_length"}`, in their order.')
PARTS = says("The parts in other languages, by their BCP 47 tag.")
Declared = list[str | dict[str, Any]]
Parts = dict[str, dict[str, str]]


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str | None, says("One line of at most 200 characters.")] = None
    subject: Annotated[str | None, says("Of an email.")] = None
    html: Annotated[str | None, says("Of an email.")] = None
    text: Annotated[str | None, says("Of an email.")] = None
    body: Annotated[str | None, says("Of an SMS or WhatsApp message.")] = None
    category: Annotated[
        str | None, says("Of a WhatsApp template.", enum=["AUTHENTICATION", "UTILITY", "MARKETING"])
    ] = None
    language: Annotated[str | None, says("Of a WhatsApp template, as Meta names it.")] = None
    upstream_name: Annotated[str | None, says("Of a WhatsApp template: its name at Meta. Default: `name`.")] = None
    variables: Annotated[Declared | None, DECLARED] = None
    optional: Annotated[list[str] | None, says("Variables that may be absent.")] = None
    locale: Annotated[str | None, says("The language of its parts. Default: `en`.")] = None
    locales: Annotated[Parts | None, PARTS] = None
    timezone: Annotated[str | None, says("Of the times that it writes, such as `Europe/Vienna`. Default: `UTC`.")] = (
        None
    )
    layout: Annotated[str | None, says("A layout's id, around its html and text.")] = None
    examples: Annotated[dict[str, str] | None, says("Values to preview it with.")] = None


class TemplateRequest(TemplateChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    channel: Annotated[str, says("The channel.", enum=["email", "sms", "whatsapp"])]


class TemplateWords(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, says("One line.")]
    subject: Annotated[str | None, says("Of an email.", example="Hello")]
    html: Annotated[str | None, says("Of an email.")]
    text: Annotated[str | None, says("Of an email.", example="It works.")]
    body: Annotated[str | None, says("Of an SMS or WhatsApp message.", example="Demo: your parcel 4711 is on its way.")]
    category: Annotated[str | None, says("Of a WhatsApp template.")]
    language: Annotated[str | None, says("Of a WhatsApp template.", example="en")]
    upstream_name: Annotated[str | None, says("Of a WhatsApp template; null: `name`.")]
    variables: Annotated[Declared, DECLARED]
    optional: Annotated[list[str], says("Variables that may be absent.")]
    locale: Annotated[str, says("The language of its parts.")]
    locales: Annotated[Parts, PARTS]
    timezone: Annotated[str, says("Of the times that it writes.")]
    layout: Annotated[str | None, says("The layout around its html and text.")]


class TemplateLine(TemplateWords, frozen=True, kw_only=True):
    id: Id
    channel: ChannelName
    status: Annotated[str, says("Only an approved one is sent.", enum=["approved", "draft", "archived"])]
    version: VersionNumber
    price: Annotated[str, says("Of one message, or of one segment of an SMS.", example="0.0000", **MONEY)]
    prices: Annotated[dict[str, str], says("By ISO country.")]
    upstream_status: Annotated[
        str | None,
        says("What Meta last told of a WhatsApp template; null: nothing.", enum=[*get_args(UpstreamState), None]),
    ]
    upstream_reason: Annotated[str | None, says("Why, in Meta's words.")]
    upstream_quality: Annotated[str | None, says("How its recipients like it, in Meta's words: `green`, `red`.")]
    draft: Annotated[TemplateWords | None, says("The words that are not approved; null: there are none.")]
    submitted_at: SubmittedAt
    refused_reason: RefusedReason


class TemplateView(TemplateLine, frozen=True, kw_only=True):
    problems: Problems


class TemplateList(Listed, frozen=True, kw_only=True):
    data: Records[TemplateLine]


class VersionView(TemplateWords, frozen=True, kw_only=True):
    version: Annotated[int, says("Counts from 1.")]
    created_at: MadeAt


class VersionList(Listed, frozen=True, kw_only=True):
    data: Records[VersionView]


def _words(template: Template) -> dict[str, Any]:
    plain = ("name", "subject", "html", "text", "body", "category", "language", "upstream_name")
    return {
        **{name: getattr(template, name) for name in (*plain, "locale", "timezone", "layout")},
        "variables": declared(template),
        "optional": list(template.optional),
        "locales": msgspec.to_builtins(template.locales),
    }


def _line(setup: Setup, template: Template) -> TemplateLine:
    draft = find_draft(setup, template.id)
    proposed = draft.template if draft else None
    upstream = upstream_of(setup.teams[template.team], template)
    return TemplateLine(
        **_words(template),
        id=template.id,
        channel=template.channel,
        status=template.status,
        version=template.version,
        price=format_money(template.price),
        prices={country: format_money(price) for country, price in template.prices.items()},
        upstream_status=upstream.status if upstream else None,
        upstream_reason=(upstream.reason or None) if upstream else None,
        upstream_quality=(upstream.quality or None) if upstream else None,
        draft=TemplateWords(**_words(proposed)) if proposed else None,
        submitted_at=timestamp(proposed.submitted_at) if proposed and proposed.submitted_at else None,
        refused_reason=proposed.refused_reason or None if proposed else None,
    )


TEMPLATES = Drafts[Template](
    kind="template",
    manage=templates,
    new=TemplateRequest,
    part=TemplateChange,
    view=TemplateView,
    version_view=VersionView,
    removable=REMOVABLE,
    of=lambda team: team.templates,
    base=lambda id_, team, name: Template(id=id_, team=team, channel="email", name=name, status="draft"),
    write=lambda call, base, given, is_new: templates.write(
        call.context.store, call.actor, Proposal(base=base, is_new=is_new, given=given)
    ),
    version=lambda versions, id_, number: versions.find(id_, number),
    octets=lambda template: most_octets(template, ()),
    words=_words,
    line=_line,
    problems=lambda setup, one: problems_of(one, setup.teams[one.team].layouts.get(one.layout or "")),
)
