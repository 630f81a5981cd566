"""Endpoints that read: messages with recipients and timeline, verifications, lists, and the caller's team."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from heliograph.accept.email import EmailRecord
from heliograph.accept.phone import PhoneRecord
from heliograph.accept.verify_start import VerificationRecord, find_verification, to_record
from heliograph.api.call import Call
from heliograph.domain.delivery import message_states
from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.delivery.provider_rates import HoldReason
from heliograph.domain.events import NEXT_AT, is_simulated
from heliograph.domain.field_docs import (
    LANGUAGE_DOC,
    LAYOUT_VERSION_DOC,
    MONEY,
    TIME,
    VERSION_DOC,
    CreatedAt,
    Detail,
    Id,
    Records,
    Sandbox,
    Simulated,
    describe,
    schema_limits,
    with_example,
)
from heliograph.domain.ids import PREFIXES, id_pattern, timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.mailbox_provider import OTHER, provider_of
from heliograph.domain.phones.phone import is_phone
from heliograph.domain.refusals import InvalidRequest, MessageNotFound
from heliograph.domain.sending.approvals import APPROVAL
from heliograph.domain.sending.key_limits import limit_states
from heliograph.domain.sending.pricing import Account, format_money, month_of
from heliograph.domain.sending.send_options import public_record, split_tag
from heliograph.domain.setup import key_restrictions
from heliograph.domain.setup.key_restrictions import RestrictionsRecord
from heliograph.domain.setup.records import Channel, Key, Mode, Scope
from heliograph.domain.text import quoted
from heliograph.domain.verify.verification import VERIFICATION_STATES
from heliograph.storage.search.message_search import (
    RecipientDetails,
    Search,
    SearchPage,
    TimelineEvent,
    VerificationRow,
)
from heliograph.texts.explain import FAILURE_STATUSES, ExplanationRecord, deciding_detail, explain, explanation_record
from heliograph.web.paging import LIMIT, ListPage, after_param, read_after, read_id, read_limit, read_time
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

UNFINISHED_STATES = ("queued", "sending")
HOLD_REASONS = (*get_args(HoldReason), APPROVAL)
TEMPLATE = QueryParam(
    "template_id", "Only messages sent with this template.", {"type": "string", "pattern": id_pattern("template")}
)
TAG = QueryParam("tag", "Only records with this tag, as `name:value`.")


def list_params(kind: Channel | Literal["verification"]) -> tuple[QueryParam, ...]:
    states = VERIFICATION_STATES if kind == "verification" else message_states.STATES_BY_CHANNEL[kind]
    time_schema = {"type": "string", "format": "date-time"}
    return (
        LIMIT,
        after_param(kind),
        QueryParam("status", "Only records in this state.", {"type": "string", "enum": list(states)}),
        QueryParam("to", "Only records for this address or phone."),
        QueryParam("created_after", "Only records created after this time.", time_schema),
        QueryParam("created_before", "Only records created before this time.", time_schema),
        TAG,
        *(() if kind == "verification" else (TEMPLATE,)),
    )


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    reason: Annotated[
        str,
        describe(
            "`provider_rate`: a provider's rate limit is reached; `warmup`: the day's limit of a new source address; "
            "`approval`: a person must release the message.",
            enum=list(HOLD_REASONS),
        ),
    ]
    until: Annotated[
        str,
        describe(
            "When the message is retried, or fails if it is not approved.", example="2026-11-15T09:31:00.000Z", **TIME
        ),
    ]


class RecipientView(msgspec.Struct, frozen=True, kw_only=True):
    address: Annotated[str, describe("Email address or phone.", example="delivered@simulator.test")]
    kind: Annotated[str, describe("Header in which the recipient was addressed.", enum=["to", "cc", "bcc"])]
    status: Annotated[str, describe("The state of this recipient.", example="delivered")]
    updated_at: Annotated[str, describe("When the state last changed.", example="2026-11-15T09:30:00.000Z", **TIME)]
    detail: Detail
    explanation: Annotated[
        ExplanationRecord | None, describe("Why the message was not delivered, or is delayed; null otherwise.")
    ]
    simulated: Simulated
    provider: Annotated[
        str | None,
        describe("Mailbox provider of an email address, or `other`; null for a phone.", example="google"),
    ]
    held: Annotated[HeldView | None, describe("Why and until when the recipient waits for its turn; null otherwise.")]


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline entry; `sequence` is null if the entry was not published as an event."""

    id: Annotated[Id, with_example("evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[str, describe("What happened, for example `email.delivered`.", example="email.delivered")]
    recipient: Annotated[str | None, describe("The recipient whose state changed.", example="delivered@simulator.test")]
    status: Annotated[str | None, describe("The recipient's new state.", example="delivered")]
    previous_status: Annotated[str | None, describe("The recipient's previous state.", example="sent")]
    message_status: Annotated[str | None, describe("The state of the message after this event.", example="delivered")]
    sequence: Annotated[
        int | None,
        describe("Number of the event within its message, starting at 1; null if it was not published.", example=2),
    ]
    detail: Detail
    created_at: CreatedAt
    simulated: Simulated


TagsView = Annotated[dict[str, str], describe("The caller's tags.", maybe=True)]
MetadataView = Annotated[dict[str, Any], describe("The caller's metadata.", maybe=True)]
ReplyToView = Annotated[list[str], describe("All Reply-To addresses.", maybe=True)]
HeadersView = Annotated[dict[str, str], describe("Custom header fields of the request.", maybe=True)]
ScheduledView = Annotated[
    str | None, describe("When the message is scheduled to be sent; null: at once.", maybe=True, **TIME)
]
ExpiresView = Annotated[str | None, describe("When an unsent message expires; null: never.", maybe=True, **TIME)]
PriorityView = Annotated[
    str,
    describe(
        "Order in the queue: due messages with higher priority are sent first.", maybe=True, enum=list(PRIORITIES)
    ),
]
LocaleView = Annotated[str | None, describe("The language requested for the text, if any.", maybe=True)]
MessageHeldView = Annotated[
    HeldView | None, describe("Set while all unfinished recipients are held: the first one that ends.")
]
RecipientViews = Annotated[list[RecipientView], describe("Each distinct recipient with its own state.")]
EventViews = Annotated[list[EventView], describe("The timeline.")]


class EmailSummary(EmailRecord, frozen=True, kw_only=True):
    """An item of the list of emails, including the optional fields of the request."""

    reply_to_addresses: ReplyToView = msgspec.field(default_factory=list)
    headers: HeadersView = msgspec.field(default_factory=dict)
    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    scheduled_at: ScheduledView = None
    expires_at: ExpiresView = None
    priority: PriorityView = "normal"


class PhoneSummary(PhoneRecord, frozen=True, kw_only=True):
    """An item of the list of SMS or WhatsApp messages, including the optional fields of the request."""

    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    scheduled_at: ScheduledView = None
    expires_at: ExpiresView = None
    priority: PriorityView = "normal"


class EmailView(EmailSummary, frozen=True, kw_only=True):
    template_version: Annotated[int | None, VERSION_DOC, with_example(1)]
    layout_version: Annotated[int | None, LAYOUT_VERSION_DOC]
    locale: Annotated[str | None, LANGUAGE_DOC]
    simulated: Simulated
    recipients: RecipientViews
    events: EventViews
    held: MessageHeldView


class PhoneView(PhoneSummary, frozen=True, kw_only=True):
    template_version: Annotated[int | None, VERSION_DOC, with_example(1)]
    locale: Annotated[str | None, LANGUAGE_DOC]
    simulated: Simulated
    recipients: RecipientViews
    events: EventViews
    held: MessageHeldView


class EmailList(ListPage, frozen=True, kw_only=True):
    data: Records[EmailSummary]


class PhoneList(ListPage, frozen=True, kw_only=True):
    data: Records[PhoneSummary]


class VerificationView(VerificationRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A verification with the optional fields of the request."""

    tags: TagsView = msgspec.field(default_factory=dict)
    metadata: MetadataView = msgspec.field(default_factory=dict)
    locale: LocaleView = None


class VerificationList(ListPage, frozen=True, kw_only=True):
    data: Records[VerificationView]


class TeamView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, with_example("team_demo")]
    name: Annotated[str, describe("Name of the team.", example="Demo")]


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, describe("Emails included in the plan.", example=10000)]
    used: Annotated[int, describe("Emails used.", example=412)]


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, describe("Recipients permitted in the window.", example=100)]
    left: Annotated[int, describe("Recipients left now.", example=88)]
    resets_at: Annotated[
        str | None,
        describe(
            "When the oldest use leaves the window; null: nothing is used.",
            example="2026-11-15T09:30:00.000Z",
            **TIME,
        ),
    ]


class SpendLimitView(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[str, describe("Amount permitted in the window.", example="5.0000", **MONEY)]
    left: Annotated[str, describe("Amount left now.", example="4.8650", **MONEY)]
    resets_at: Annotated[
        str | None,
        describe(
            "When the oldest charge leaves the window; null: nothing is spent.",
            example="2026-11-15T09:30:00.000Z",
            **TIME,
        ),
    ]


class LimitsView(msgspec.Struct, frozen=True, kw_only=True):
    per_hour: Annotated[LimitView | None, describe("Recipients in any 60 minutes; null: not limited.")]
    per_day: Annotated[LimitView | None, describe("Recipients in any 24 hours; null: not limited.")]
    spend_per_day: Annotated[SpendLimitView | None, describe("Spend in any 24 hours; null: not limited.")]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    team: Annotated[TeamView, describe("The key's team.")]
    mode: Annotated[str, describe("The team's mode.", example="live", enum=list(get_args(Mode)))]
    sandbox: Sandbox
    scopes: Annotated[
        tuple[Annotated[str, schema_limits(enum=list(get_args(Scope)))], ...],
        describe("What the key may do.", example=["send"]),
    ]
    email_quota: Annotated[QuotaView, describe("Recipients of this UTC month.")]
    currency: Annotated[str, describe("ISO code of the billing currency.", example="USD")]
    credit: Annotated[str, describe("Available credit, without amounts on hold.", example="99.8650", **MONEY)]
    held: Annotated[str, describe("Credit on hold for messages being sent.", example="0.0000", **MONEY)]
    restrictions: Annotated[RestrictionsRecord | None, describe("What this key may send; null: no restrictions.")]
    limits: Annotated[LimitsView | None, describe("What is left of this key's limits; null: no restrictions.")]


class PlatformMe(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `GET /v1/me` to a platform key."""

    team: Annotated[None, describe("A platform key belongs to no team.")] = None
    scopes: Annotated[
        tuple[Annotated[str, schema_limits(enum=["operate"])], ...],
        describe("What the key may do.", example=["operate"]),
    ]


# optional fields of a send that stored records omit → their defaults
_COMMON_DEFAULTS: dict[str, Any] = {
    "tags": {},
    "metadata": {},
    "scheduled_at": None,
    "expires_at": None,
    "priority": "normal",
    "template_version": None,
    "locale": None,
}
DEFAULTS_BY_CHANNEL: dict[Channel, dict[str, Any]] = {
    "email": {**_COMMON_DEFAULTS, "headers": {}, "layout_version": None},
    "sms": _COMMON_DEFAULTS,
    "whatsapp": _COMMON_DEFAULTS,
}


def read_message(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        id_ = call.params["id"]
        message = await call.context.store.messages.get(call.team, id_) if id_.startswith(PREFIXES[channel]) else None
        if message is None:
            raise MessageNotFound(f"No {channel} message {id_[:80]!r}. {MessageNotFound.fix}", param="id")
        events, simulated, last_events = list[EventView](), set[str | None](), dict[str | None, TimelineEvent]()
        for event in message.events:
            events.append(view := _event_view(event))
            if view.simulated:
                simulated.add(event.recipient)
            if event.type != "ignored":
                last_events[event.recipient] = event
        recipients = [
            _recipient_view(channel, recipient, last_events.get(recipient.given), simulated)
            for recipient in message.recipients
        ]
        record = public_record(message.record, message.status, with_render_fields=True)
        for name, value in DEFAULTS_BY_CHANNEL[channel].items():
            record.setdefault(name, value)
        if channel == "email":
            record.setdefault("reply_to_addresses", [record["reply_to"]] if record["reply_to"] else [])
        record["simulated"] = bool(simulated) and all(
            recipient.simulated for recipient in recipients if recipient.status not in UNFINISHED_STATES
        )
        record |= {"recipients": recipients, "events": events, "held": _message_held(recipients)}
        return Response(200, msgspec.json.encode(record), record_id=id_)

    return endpoint


def list_messages(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        search = _parse_search(call, channel, message_states.STATES_BY_CHANNEL[channel])
        result = await call.context.store.messages.search(call.team, search)
        octets = sum(len(row.record) for row in result.rows)
        await call.reserve_memory(octets)
        return await run_large(
            octets, lambda: _list_response(result, [public_record(row.record, row.status) for row in result.rows])
        )

    return endpoint


async def read_verification(call: Call) -> Response:
    return json_response(_verification_view(await find_verification(call.context, call.caller, call.params["id"])))


async def list_verifications(call: Call) -> Response:
    result = await call.context.store.verifications.search(call.team, _parse_search(call, None, VERIFICATION_STATES))
    return _list_response(result, [_verification_view(row) for row in result.rows])


async def read_me(call: Call) -> Response:
    if "operate" in call.caller.key.scopes:
        return json_response(PlatformMe(scopes=call.caller.key.scopes))
    record, account = call.caller.team.record, await call.context.store.ledger.get_account(call.team)
    used_count = account.used if account.month == month_of(call.context.clock.team_now(call.team)) else 0
    return json_response(
        Me(
            team=TeamView(id=record.id, name=record.name),
            mode=record.mode,
            sandbox=call.caller.team.sandbox,
            scopes=call.caller.key.scopes,
            email_quota=QuotaView(limit=record.email_quota, used=used_count),
            currency=record.currency,
            credit=format_money(account.available),
            held=format_money(account.held),
            restrictions=key_restrictions.to_record(call.caller.key.restrictions),
            limits=_limits_view(account, call.caller.key, call.context.clock.team_now(call.team)),
        )
    )


def _limits_view(account: Account, key: Key, now: int) -> LimitsView | None:
    if key.restrictions is None:
        return None
    states = limit_states(account, key, now)
    per_hour, per_day = (
        LimitView(limit=state.limit, left=state.left, resets_at=_time_or_none(state.frees_at)) if state else None
        for state in (states.get("per_hour"), states.get("per_day"))
    )
    spend = states.get("spend_per_day")
    return LimitsView(
        per_hour=per_hour,
        per_day=per_day,
        spend_per_day=SpendLimitView(
            limit=format_money(spend.limit), left=format_money(spend.left), resets_at=_time_or_none(spend.frees_at)
        )
        if spend
        else None,
    )


def _time_or_none(at: int | None) -> str | None:
    return None if at is None else timestamp(at)


def _list_response(result: SearchPage[Any], records: list[Any]) -> Response:
    return json_response({"object": "list", "has_more": result.after is not None, "data": records})


def parse_to(query: dict[str, str], channel: Channel | None) -> str | None:
    """Return the normalized query parameter `to`; None if absent. `channel`: None allows addresses and phones."""
    if "to" not in query:
        return None
    # A plus that was not percent-encoded arrives as a space, which no address or phone number contains.
    to = query["to"].replace(" ", "+")
    address = parse_address(to) if channel in ("email", None) else None
    if address is None and (channel == "email" or not is_phone(to)):
        expected = {"email": "an email address", None: "an email address or a phone"}.get(channel, "a phone number")
        raise InvalidRequest(f"to must be {expected}, not {quoted(query['to'])}.", param="to")
    return address.normal if address else to


def _parse_search(call: Call, channel: Channel | None, states: tuple[str, ...]) -> Search:
    """Parse the query of a list of messages, or of verifications if `channel` is None."""
    query = call.query()
    status = query.get("status")
    if status is not None and status not in states:
        raise InvalidRequest(f"status must be one of {', '.join(states)}.", param="status")
    address = parse_to(query, channel)
    times: dict[str, Any] = {
        name: read_time(name, query[name]) for name in ("created_after", "created_before") if name in query
    }
    tag = split_tag(query["tag"]) if "tag" in query else None
    if "tag" in query and tag is None:
        raise InvalidRequest("tag must be a name and a value, such as kind:receipt.", param="tag")
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


def _verification_view(row: VerificationRow) -> VerificationView:
    return VerificationView(**msgspec.structs.asdict(to_record(row)), **msgspec.json.decode(row.added))


def _recipient_view(
    channel: Channel, row: RecipientDetails, last_event: TimelineEvent | None, simulated: Collection[str | None]
) -> RecipientView:
    return RecipientView(
        address=row.given,
        kind=row.kind,
        status=row.status,
        updated_at=timestamp(row.updated_at),
        provider=_provider(row) if channel == "email" else None,
        held=_held(row.detail) if row.detail and row.status in UNFINISHED_STATES else None,
        detail=msgspec.Raw(row.detail) if row.detail else None,
        explanation=_recipient_explanation(channel, row, last_event)
        if last_event or row.detail or row.status in FAILURE_STATUSES
        else None,
        simulated=row.given in simulated,
    )


def _provider(row: RecipientDetails) -> str:
    domain = row.given.rpartition("@")[2]
    provider = provider_of(domain)
    if provider == OTHER and row.detail:
        return provider_of(msgspec.json.decode(row.detail).get("host"))
    return provider


def _held(detail_json: str) -> HeldView | None:
    detail = msgspec.json.decode(detail_json)
    is_held = detail.get("reason") in HOLD_REASONS and NEXT_AT in detail
    return HeldView(reason=detail["reason"], until=detail[NEXT_AT]) if is_held else None


def _message_held(recipients: Sequence[RecipientView]) -> HeldView | None:
    """Return the hold that ends first, if all unfinished recipients are held; None otherwise."""
    holds = [recipient.held for recipient in recipients if recipient.status in UNFINISHED_STATES]
    if None in holds:
        return None
    return min(filter(None, holds), key=lambda hold: hold.until, default=None)


def _recipient_explanation(
    channel: Channel, row: RecipientDetails, last_event: TimelineEvent | None
) -> ExplanationRecord | None:
    stored_detail = msgspec.json.decode(row.detail) if row.detail else {}
    event_detail = msgspec.json.decode(last_event.detail) if last_event and last_event.detail else {}
    detail, deferred = deciding_detail(stored_detail, last_event.type if last_event else "", event_detail)
    return explanation_record(explain(channel, row.status, detail, deferred=deferred))


def _event_view(event: TimelineEvent) -> EventView:
    fields = msgspec.structs.asdict(event)
    detail = msgspec.Raw(event.detail) if event.detail else None
    converted = {"detail": detail, "created_at": timestamp(event.created_at)}
    return EventView(**fields | converted, simulated=is_simulated(event.detail))
