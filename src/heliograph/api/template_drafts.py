"""Templates over HTTP, for keys with `manage`: written as drafts, submitted, archived, and their versions."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.manage import templates
from heliograph.manage.templates import REMOVABLE, Proposal
from heliograph.rules.field_docs import MONEY, TIME, ChannelName, Id, Records, says
from heliograph.rules.ids import PREFIXES, timestamp
from heliograph.rules.limits import MIB
from heliograph.rules.pricing import format_money
from heliograph.rules.setup.records import Template
from heliograph.rules.setup.template_approvals import find_draft
from heliograph.rules.templates.check import TemplateProblem
from heliograph.rules.templates.lint import problems_of
from heliograph.rules.templates.render import most_octets
from heliograph.rules.templates.shapes import declared
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query, answer_of

PAGE_OCTETS = 4 * MIB  # of words, after which a page ends
BEFORE = Query("after", "The last version of the previous page.", {"type": "integer", "minimum": 1})

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


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[str, says("An error refuses a save, a warning does not.", enum=["error", "warning"])]
    code: Annotated[str, says("What is wrong, for programs.")]
    part: Annotated[str, says("The field it is in.")]
    locale: Annotated[str | None, says("Of another language's part; null: the template's own.")]
    line: Annotated[int | None, says("Of the part, from 1; null where it is about the whole.")]
    text: Annotated[str, says("What is wrong, for people.")]


class TemplateWords(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, says("One line.")]
    subject: Annotated[str | None, says("Of an email.")]
    html: Annotated[str | None, says("Of an email.")]
    text: Annotated[str | None, says("Of an email.")]
    body: Annotated[str | None, says("Of an SMS or WhatsApp message.")]
    category: Annotated[str | None, says("Of a WhatsApp template.")]
    language: Annotated[str | None, says("Of a WhatsApp template.")]
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
    version: Annotated[int, says("Counts from 1, and on with each approved change.")]
    price: Annotated[str, says("Of one message, or of one segment of an SMS.", **MONEY)]
    prices: Annotated[dict[str, str], says("By ISO country.")]
    draft: Annotated[TemplateWords | None, says("The words that are not approved; null: there are none.")]
    submitted_at: Annotated[str | None, says("Since when the draft waits for approval; null: it does not.", **TIME)]
    refused_reason: Annotated[str | None, says("Why an operator did not approve the draft.")]


class TemplateView(TemplateLine, frozen=True, kw_only=True):
    problems: Annotated[list[ProblemView], says("What should be looked at in its newest words.")]


class TemplateList(Listed, frozen=True, kw_only=True):
    data: Records[TemplateLine]


class VersionView(TemplateWords, frozen=True, kw_only=True):
    version: Annotated[int, says("Counts from 1.")]
    created_at: Annotated[str | None, says("When it was made; null before that was kept.", **TIME)]


class VersionList(Listed, frozen=True, kw_only=True):
    data: Records[VersionView]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), read_after(query, PREFIXES["template"]) or ""
    own = sorted(call.caller.team.templates.values(), key=lambda one: one.id)
    found: list[Template] = []
    octets, more = 0, False
    for template in (one for one in own if one.id > after):
        if more := len(found) == limit or octets > PAGE_OCTETS:
            break
        octets += _octets(call, template)
        found.append(template)
    await call.hold(octets)
    return await answer_of(
        octets, lambda: {"object": "list", "has_more": more, "data": [_line(call, one) for one in found]}
    )


async def read(call: Call) -> Response:
    return await _answer(call, _own(call))


async def create(call: Call) -> Response:
    request = to_request(call.json, TemplateRequest)
    id_ = call.context.clock.new_id(PREFIXES["template"])
    base = Template(id=id_, team=_team(call), channel="email", name=request.name or id_, status="draft")
    await templates.write(call.context.store, call.actor, Proposal(base=base, is_new=True, given=_given(call)))
    return await _answer(call, _own(call, id_), 201)


async def change(call: Call) -> Response:
    to_request(call.json, TemplateChange)
    base = templates.proposed(call.context.store.setup.current, _own(call))
    await templates.write(call.context.store, call.actor, Proposal(base=base, is_new=False, given=_given(call)))
    return await _answer(call, _own(call))


async def submit(call: Call) -> Response:
    await templates.submit(call.context.store, call.actor, _team(call), call.params["id"])
    return await _answer(call, _own(call))


async def archive(call: Call) -> Response:
    """One that was never approved is gone; the answer is the last that is seen of it."""
    template = _own(call)
    await templates.archive(call.context.store, call.actor, template.team, template.id)
    return await _answer(call, msgspec.structs.replace(template, status="archived"))


async def list_versions(call: Call) -> Response:
    query, template = call.query(), _own(call)
    limit, versions = read_limit(query), call.context.store.versions
    before = int(query["after"]) if query.get("after", "").isdecimal() and len(query["after"]) < 10 else None
    lines = (await versions.of(template.id, before))[: limit + 1]
    found, octets = [], 0
    for line in lines[:limit]:
        words = await versions.find(template.id, line.version)
        if words is None or octets > PAGE_OCTETS:
            break
        octets += most_octets(words, ())
        made_at = None if line.at is None else timestamp(line.at)
        found.append(VersionView(**_words(words), version=line.version, created_at=made_at))
    await call.hold(octets)
    return await answer_of(octets, lambda: {"object": "list", "has_more": len(lines) > len(found), "data": found})


def _given(call: Call) -> dict[str, Any]:
    """What was sent; null takes a part away."""
    assert isinstance(call.json, dict)
    return {name: value for name, value in call.json.items() if value is not None or name in REMOVABLE}


def _team(call: Call) -> str:
    return call.caller.team.record.id


def _own(call: Call, id_: str | None = None) -> Template:
    return templates.find(call.context.store.setup.current, _team(call), id_ or call.params["id"])


def _octets(call: Call, template: Template) -> int:
    draft = find_draft(call.context.store.setup.current, template.id)
    return most_octets(template, ()) + (most_octets(draft.template, ()) if draft else 0)


async def _answer(call: Call, template: Template, status: int = 200) -> Response:
    octets = _octets(call, template)
    await call.hold(octets)
    return await answer_of(octets, lambda: _view(call, template), status)


def _view(call: Call, template: Template) -> TemplateView:
    shown = templates.proposed(call.context.store.setup.current, template)
    layout = call.context.store.setup.current.teams[template.team].layouts.get(shown.layout or "")
    problems = [_problem(one) for one in problems_of(shown, layout)]
    return TemplateView(**msgspec.structs.asdict(_line(call, template)), problems=problems)


def _problem(one: TemplateProblem) -> ProblemView:
    return ProblemView(**msgspec.structs.asdict(one))


def _line(call: Call, template: Template) -> TemplateLine:
    draft = find_draft(call.context.store.setup.current, template.id)
    proposed = draft.template if draft else None
    return TemplateLine(
        **_words(template),
        id=template.id,
        channel=template.channel,
        status=template.status,
        version=template.version,
        price=format_money(template.price),
        prices={country: format_money(price) for country, price in template.prices.items()},
        draft=TemplateWords(**_words(proposed)) if proposed else None,
        submitted_at=timestamp(proposed.submitted_at) if proposed and proposed.submitted_at else None,
        refused_reason=proposed.refused_reason or None if proposed else None,
    )


def _words(template: Template) -> dict[str, Any]:
    plain = ("name", "subject", "html", "text", "body", "category", "language", "upstream_name")
    return {
        **{name: getattr(template, name) for name in (*plain, "locale", "timezone", "layout")},
        "variables": declared(template),
        "optional": list(template.optional),
        "locales": msgspec.to_builtins(template.locales),
    }
