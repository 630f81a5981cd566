"""Read endpoints: messages with recipients and timeline, verifications, lists, and the caller's own team."""

from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any, Literal, get_args

import msgspec

from heliograph.accept.email import EmailRecord
from heliograph.accept.phone import PhoneRecord
from heliograph.accept.verify_start import VerificationRecord, find_verification, to_record
from heliograph.api.call import Call
from heliograph.domain.delivery import message_states
from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.events import is_simulated
from heliograph.domain.field_docs import (
    LANGUAGE,
    LAYOUT_VERSION,
    MONEY,
    TIME,
    VERSION,
    CreatedAt,
    Detail,
    Id,
    Records,
    Sandbox,
    Simulated,
    limited,
    says,
    such_as,
)
from heliograph.domain.ids import PREFIXES, id_pattern, timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.phones.phone import is_phone
from heliograph.domain.refusals import InvalidRequest, MessageNotFound
from heliograph.domain.sending.pricing import format_money, month_of
from heliograph.domain.sending.send_options import shown, split_tag
from heliograph.domain.setup.records import Channel, Mode, Scope
from heliograph.domain.text import quoted
from heliograph.domain.verify.verification import VERIFICATION_STATES
from heliograph.storage.search.message_search import (
    RecipientLine,
    Search,
    SearchPage,
    TimelineEvent,
    VerificationLine,
)
from heliograph.texts.explain import BAD_NEWS, ExplanationRecord, explain, explanation_record, last_words
from heliograph.web.paging import LIMIT, Listed, after, read_after, read_id, read_limit, read_time
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import Query, answer

TEMPLATE = Query(
    "template_id", "Only messages made from this template.", {"type": "string", "pattern": id_pattern("template")}
)
TAG = Query("tag", "Only records with this tag, as `name:value`.")


def filters(kind: Channel | Literal["verification"]) -> tuple[Query, ...]:
    states = VERIFICATION_STATES if kind == "verification" else message_states.STATES[kind]
    time = {"type": "string", "format": "date-time"}
    return (
        LIMIT,
        after(kind),
        Query("status", "Only records in this state.", {"type": "string", "enum": list(states)}),
        Query("to", "Only records for this address or phone."),
        Query("created_after", "Only records made after this time.", time),
        Query("created_before", "Only records made before this time.", time),
        TAG,
        *(() if kind == "verification" else (TEMPLATE,)),
    )


class RecipientView(msgspec.Struct, frozen=True, kw_only=True):
    address: Annotated[str, says("Email address or phone.", example="delivered@simulator.test")]
    kind: Annotated[str, says("How it was addressed.", enum=["to", "cc", "bcc"])]
    status: Annotated[str, says("The state of this recipient.", example="delivered")]
    updated_at: Annotated[str, says("When the state last changed.", example="2026-11-15T09:30:00.000Z", **TIME)]
    detail: Detail
    explanation: Annotated[ExplanationRecord | None, says("Why it did not arrive, or not yet; null: no such news.")]
    simulated: Simulated


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the timeline; `sequence` is null for what was noted and not published."""

    id: Annotated[Id, such_as("evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[str, says("What happened, for example `email.delivered`.", example="email.delivered")]
    recipient: Annotated[str | None, says("Whose state changed.", example="delivered@simulator.test")]
    status: Annotated[str | None, says("The state since then.", example="delivered")]
    previous_status: Annotated[str | None, says("The state before.", example="sent")]
    message_status: Annotated[str | None, says("The state of the whole message then.", example="delivered")]
    sequence: Annotated[
        int | None, says("Counts the message's events from 1; null for what was not published.", example=2)
    ]
    detail: Detail
    created_at: CreatedAt
    simulated: Simulated


TagsView = Annotated[dict[str, str], says("The caller's tags.", maybe=True)]
MetadataView = Annotated[dict[str, Any], says("The caller's metadata.", maybe=True)]
ReplyToView = Annotated[list[str], says("All Reply-To addresses.", maybe=True)]
HeadersView = Annotated[dict[str, str], says("The caller's own header fields.", maybe=True)]
ScheduledView = Annotated[str | None, says("When it is to be sent; null: at once.", maybe=True, **TIME)]
ExpiresView = Annotated[str | None, says("When it is too late to be sent; null: never.", maybe=True, **TIME)]
PriorityView = Annotated[str, says("What goes first of what is due.", maybe=True, enum=list(PRIORITIES))]
LocaleView = Annotated[str | None, says("The language of its text, where one was asked for.", maybe=True)]
RecipientViews = Annotated[list[RecipientView], says("Each distinct recipient with its own state.")]
EventViews = Annotated[list[EventView], says("The timeline.")]


class EmailLine(EmailRecord, frozen=True, kw_only=True):
    """Of a list: with what the caller added, where there is some."""

    reply_to_addresses: ReplyToView = msgspec.field(default_factory=list)
    headers: HeadersView = msgspec.field(default_factory=dict)
    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    scheduled_at: ScheduledView = None
    expires_at: ExpiresView = None
    priority: PriorityView = "normal"


class PhoneLine(PhoneRecord, frozen=True, kw_only=True):
    """Of a list: with what the caller added, where there is some."""

    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    scheduled_at: ScheduledView = None
    expires_at: ExpiresView = None
    priority: PriorityView = "normal"


class EmailView(EmailLine, frozen=True, kw_only=True):
    template_version: Annotated[int | None, VERSION, such_as(1)]
    layout_version: Annotated[int | None, LAYOUT_VERSION]
    locale: Annotated[str | None, LANGUAGE]
    simulated: Simulated
    recipients: RecipientViews
    events: EventViews


class PhoneView(PhoneLine, frozen=True, kw_only=True):
    template_version: Annotated[int | None, VERSION, such_as(1)]
    locale: Annotated[str | None, LANGUAGE]
    simulated: Simulated
    recipients: RecipientViews
    events: EventViews


class EmailList(Listed, frozen=True, kw_only=True):
    data: Records[EmailLine]


class PhoneList(Listed, frozen=True, kw_only=True):
    data: Records[PhoneLine]


class VerificationView(VerificationRecord, frozen=True, kw_only=True, omit_defaults=True):
    """With what the caller added, where there is some."""

    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    locale: LocaleView = None


class VerificationList(Listed, frozen=True, kw_only=True):
    data: Records[VerificationView]


class TeamView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, such_as("team_demo")]
    name: Annotated[str, says("Its name.", example="Demo")]


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, says("How many the plan includes.", example=10000)]
    used: Annotated[int, says("How many were used.", example=412)]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    team: Annotated[TeamView, says("The key's team.")]
    mode: Annotated[str, says("The team's mode.", example="live", enum=list(get_args(Mode)))]
    sandbox: Sandbox
    scopes: Annotated[
        tuple[Annotated[str, limited(enum=list(get_args(Scope)))], ...], says("What the key may do.", example=["send"])
    ]
    email_quota: Annotated[QuotaView, says("Recipients of this UTC month.")]
    currency: Annotated[str, says("ISO code of the billing currency.", example="USD")]
    credit: Annotated[str, says("What can be spent now; holds are already taken off.", example="99.8650", **MONEY)]
    held: Annotated[str, says("What messages under way hold.", example="0.0000", **MONEY)]


class PlatformMe(msgspec.Struct, frozen=True, kw_only=True):
    """What `GET /v1/me` answers to a platform key."""

    team: Annotated[None, says("A platform key belongs to no team.")] = None
    scopes: Annotated[
        tuple[Annotated[str, limited(enum=["operate"])], ...], says("What the key may do.", example=["operate"])
    ]


# Defaults of optional send fields that stored records omit.
_ADDED: dict[str, Any] = {
    "tags": {},
    "metadata": {},
    "scheduled_at": None,
    "expires_at": None,
    "priority": "normal",
    "template_version": None,
    "locale": None,
}
ADDED: dict[Channel, dict[str, Any]] = {
    "email": {**_ADDED, "headers": {}, "layout_version": None},
    "sms": _ADDED,
    "whatsapp": _ADDED,
}


def read_message(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        id_ = call.params["id"]
        found = await call.context.store.messages.get(call.team, id_) if id_.startswith(PREFIXES[channel]) else None
        if found is None:
            raise MessageNotFound(f"No {channel} message {id_[:80]!r}. {MessageNotFound.fix}", param="id")
        events, simulated, said = list[EventView](), set[str | None](), dict[str | None, TimelineEvent]()
        for event in found.events:
            events.append(view := _event(event))
            if view.simulated:
                simulated.add(event.recipient)
            if event.type != "ignored":
                said[event.recipient] = event  # the last event wins
        recipients = [_recipient(channel, one, said.get(one.given), simulated) for one in found.recipients]
        record = shown(found.record, found.status, whole=True)
        for name, value in ADDED[channel].items():
            record.setdefault(name, value)
        if channel == "email":
            record.setdefault("reply_to_addresses", [record["reply_to"]] if record["reply_to"] else [])
        record["simulated"] = bool(simulated) and all(
            one.simulated for one in recipients if one.status not in ("queued", "sending")
        )
        record |= {"recipients": recipients, "events": events}
        return Response(200, msgspec.json.encode(record), made=id_)

    return endpoint


def list_messages(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        wanted = _search(call, channel, message_states.STATES[channel])
        found = await call.context.store.messages.search(call.team, wanted)
        octets = sum(len(line.record) for line in found.lines)
        await call.hold(octets)
        return await work(octets, lambda: _found(found, [shown(line.record, line.status) for line in found.lines]))

    return endpoint


async def read_verification(call: Call) -> Response:
    return answer(_verification(await find_verification(call.context, call.caller, call.params["id"])))


async def list_verifications(call: Call) -> Response:
    found = await call.context.store.verifications.search(call.team, _search(call, None, VERIFICATION_STATES))
    return _found(found, [_verification(line) for line in found.lines])


async def read_me(call: Call) -> Response:
    if "operate" in call.caller.key.scopes:
        return answer(PlatformMe(scopes=call.caller.key.scopes))
    record, account = call.caller.team.record, await call.context.store.ledger.account(call.team)
    used = account.used if account.month == month_of(call.context.clock.of(call.team)) else 0
    return answer(
        Me(
            team=TeamView(id=record.id, name=record.name),
            mode=record.mode,
            sandbox=call.caller.team.sandbox,
            scopes=call.caller.key.scopes,
            email_quota=QuotaView(limit=record.email_quota, used=used),
            currency=record.currency,
            credit=format_money(account.available),
            held=format_money(account.held),
        )
    )


def _found(found: SearchPage[Any], records: list[Any]) -> Response:
    return answer({"object": "list", "has_more": found.after is not None, "data": records})


def read_to(query: dict[str, str], channel: Channel | None) -> str | None:
    """Return query parameter `to`, normalized; None if absent. `channel` None allows an address or a phone number."""
    if "to" not in query:
        return None
    to = query["to"].replace(" ", "+")  # an unencoded plus; addresses and phone numbers have no spaces
    address = parse_address(to) if channel in ("email", None) else None
    if address is None and (channel == "email" or not is_phone(to)):
        wanted = {"email": "an email address", None: "an email address or a phone"}.get(channel, "a phone number")
        raise InvalidRequest(f"to is {wanted}, not {quoted(query['to'])}.", param="to")
    return address.normal if address else to


def _search(call: Call, channel: Channel | None, states: tuple[str, ...]) -> Search:
    """Parse the query parameters of a message list, or of a verification list if `channel` is None."""
    query = call.query()
    status = query.get("status")
    if status is not None and status not in states:
        raise InvalidRequest(f"status is one of {', '.join(states)}.", param="status")
    address = read_to(query, channel)
    times: dict[str, Any] = {
        name: read_time(name, query[name]) for name in ("created_after", "created_before") if name in query
    }
    tag = split_tag(query["tag"]) if "tag" in query else None
    if "tag" in query and tag is None:
        raise InvalidRequest("tag is a name and a value, such as kind:receipt.", param="tag")
    return Search(
        tag=tag,
        limit=read_limit(query),
        channel=channel,
        status=status,
        address=address,
        template_id=read_id(query, "template_id", "template"),
        before=read_after(query, channel or "verification"),
        **times,
    )


def _verification(found: VerificationLine) -> VerificationView:
    return VerificationView(**msgspec.structs.asdict(to_record(found)), **msgspec.json.decode(found.added))


def _recipient(
    channel: Channel, found: RecipientLine, last: TimelineEvent | None, simulated: Collection[str | None]
) -> RecipientView:
    return RecipientView(
        address=found.given,
        kind=found.kind,
        status=found.status,
        updated_at=timestamp(found.updated_at),
        detail=msgspec.Raw(found.detail) if found.detail else None,
        explanation=_explanation(channel, found, last) if last or found.detail or found.status in BAD_NEWS else None,
        simulated=found.given in simulated,
    )


def _explanation(channel: Channel, found: RecipientLine, last: TimelineEvent | None) -> ExplanationRecord | None:
    own = msgspec.json.decode(found.detail) if found.detail else {}
    said = msgspec.json.decode(last.detail) if last and last.detail else {}
    detail, deferred = last_words(own, last.type if last else "", said)
    return explanation_record(explain(channel, found.status, detail, deferred=deferred))


def _event(found: TimelineEvent) -> EventView:
    own = msgspec.structs.asdict(found)
    detail = msgspec.Raw(found.detail) if found.detail else None
    read = {"detail": detail, "created_at": timestamp(found.created_at)}
    return EventView(**own | read, simulated=is_simulated(found.detail))
