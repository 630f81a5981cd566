"""Common parts of SMS and WhatsApp sends: checks, rendering of the template, and the price (spec 4.2, 4.3)."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context, approval_deadline, initial_status
from heliograph.domain.delivery import lanes, magic_recipients, routing
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.field_docs import (
    CreatedAt,
    DomainId,
    Id,
    Phone,
    Sandbox,
    TemplateId,
    To,
    Variables,
    describe,
)
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.mail.sender import brand_values, resolve_brand_domain
from heliograph.domain.phones.opt_out import blocks_message
from heliograph.domain.phones.phone import country_of, parse_phone
from heliograph.domain.refusals import (
    NoCarrierAvailable,
    RecipientNotAllowed,
    RecipientOptedOut,
    TemplateIdRequired,
)
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import (
    Acceptance,
    AcceptedRecipient,
    AcceptState,
    Decision,
    IdempotencyKey,
    SendResult,
)
from heliograph.domain.sending.key_limits import count_use
from heliograph.domain.sending.send_options import ExtraFields, SendOptions, Timing, build_extra_fields, parse_options
from heliograph.domain.setup.key_restrictions import check_channel, check_phone, check_template_use
from heliograph.domain.setup.records import Caller, CarrierRecord, Channel, Team, Template
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.locales import localize, read_locale
from heliograph.templates.policy.meta_status import check_available
from heliograph.templates.policy.render import render_body
from heliograph.templates.policy.values import (
    body_values,
    check_variables,
    check_variables_size,
    read_variables,
)

C = TypeVar("C", bound=SmsContent | WhatsappContent)
StoreCheck = Callable[[AcceptState, int], None]  # (state from the store, now) → None; raises a Refusal


TEMPLATE_DOC = describe("`tpl_` id of an approved template of this channel.", needed=True)
BRAND_DOC = describe("`dom_` id of the verified domain whose brand the template shows.")


class PhoneRequest(SendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Phone = None  # optional here: a missing `to` is rejected with `invalid_phone` in the documented order
    template_id: Annotated[TemplateId | None, TEMPLATE_DOC] = None
    variables: Variables = None
    brand_domain_id: Annotated[DomainId | None, BRAND_DOC] = None


class FreeText(msgspec.Struct, frozen=True, kw_only=True):
    """Text without a template, for captured (sandbox) messages only."""

    body: str
    sender_id: str = ""


class PhoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An SMS or WhatsApp message as the API returns it (spec 2.3 and 2.4)."""

    id: Id
    to: To
    status: Annotated[
        str,
        describe(
            "The state of the message; only WhatsApp has `read`.",
            example="delivered",
            enum=list(STATES_BY_CHANNEL["whatsapp"]),
        ),
    ]
    sandbox: Sandbox
    created_at: CreatedAt


class PhoneDraft(msgspec.Struct, frozen=True, kw_only=True):
    """An SMS or WhatsApp message after all checks that need no database query."""

    to: str
    country: str | None
    template: Template
    variables: dict[str, str]
    body: str
    sent_variables: dict[str, Any] | None = None  # as in the request, before defaults and formatting
    extra_fields: ExtraFields = ExtraFields()
    timing: Timing = Timing()


def draft_phone_message(
    context: Context,
    caller: Caller,
    channel: Channel,
    request: PhoneRequest,
    free_text: FreeText | None = None,
    origin: dict[str, str] | None = None,
) -> PhoneDraft:
    """Check the request in the order of contract 2, and render the body.

    `origin`: fields of a compatibility API's request, stored because only this API returns them.
    """
    restricted_key = caller.key if caller.key.restrictions is not None else None
    if restricted_key is not None:
        check_channel(restricted_key, channel)
    if free_text and caller.captured:
        return _draft_free_text(context, caller, channel, request, free_text, origin)
    variables = read_variables(request.variables)
    locale = read_locale(request.locale) if request.locale is not None else None
    to = parse_phone(request.to)
    timing = parse_options(request, context.clock.team_now(caller.team.record.ref))
    if not request.template_id:
        raise TemplateIdRequired(param="template_id")
    template = find_template(caller.team, request.template_id, channel, restricted_key)
    if locale is not None:
        template = localize(template, locale)
    if caller.team.upstream:
        check_available(caller.team, template)
    check_variables(template, variables)
    domain = resolve_brand_domain(caller.team, caller.key, request.brand_domain_id)
    brand = brand_values(domain, context.store.setup.current.platform)
    check_variables_size(request.variables)
    values = body_values(template, variables, brand)
    return PhoneDraft(
        to=to,
        country=country_of(to),
        template=template,
        variables=values,
        body=render_body(template, variables, brand),
        sent_variables=request.variables,
        extra_fields=build_extra_fields(request, timing, template, sender_id=brand["name"], origin=origin),
        timing=timing,
    )


def _draft_free_text(
    context: Context,
    caller: Caller,
    channel: Channel,
    request: PhoneRequest,
    free_text: FreeText,
    origin: dict[str, str] | None,
) -> PhoneDraft:
    to, timing = parse_phone(request.to), parse_options(request, context.clock.team_now(caller.team.record.ref))
    if caller.key.restrictions is not None:
        check_template_use(caller.key, None)
    sender_id = free_text.sender_id or context.store.setup.current.platform.brand
    return PhoneDraft(
        to=to,
        country=country_of(to),
        template=Template(id="", team=caller.team.record.id, channel=channel, name=""),
        variables={},
        body=free_text.body,
        extra_fields=build_extra_fields(request, timing, None, sender_id=sender_id, origin=origin),
        timing=timing,
    )


def check_phone_allowed(caller: Caller, phone: str) -> None:
    team = caller.team
    if (
        team.sandbox
        and not caller.captured
        and phone not in team.recipients
        and not magic_recipients.is_magic_phone(phone)
    ):
        raise RecipientNotAllowed(
            f"{phone} is not verified on this sandbox team. {RecipientNotAllowed.fix}", param="to"
        )


def available_carriers(
    context: Context, caller: Caller, channel: Channel, phone: str, country: str | None
) -> list[CarrierRecord]:
    """Return the available carriers in order of preference.

    Magic numbers and captured or simulated messages always use the built-in simulator.
    """
    if magic_recipients.is_magic_phone(phone):
        no_carrier = magic_recipients.phone_behaviour(phone) == "no_carrier"
        return [] if no_carrier else [routing.builtin_simulator(channel)]
    if caller.captured or caller.team.simulated:
        return [routing.builtin_simulator(channel)]
    return context.failover.eligible_carriers(channel, country)


def check_destination(context: Context, caller: Caller, channel: Channel, draft: PhoneDraft) -> StoreCheck:
    """Check that the team may send to the phone; return the check to run in the accept transaction.

    That check refuses, in this order: opted-out recipients, sandbox sends above the daily quota, sends without a
    carrier.
    """
    if caller.key.restrictions is not None:
        check_phone(caller.key, draft.to)
    check_phone_allowed(caller, draft.to)
    no_carrier = None
    if not available_carriers(context, caller, channel, draft.to, draft.country):
        no_carrier = NoCarrierAvailable(
            f"No enabled {channel} carrier serves {draft.country or 'this destination'} now. {NoCarrierAvailable.fix}",
            param="to",
            retry_after=30,
        )
    setup = context.store.setup.current
    is_counted = caller.team.sandbox and not (
        caller.captured or caller.team.simulated or magic_recipients.is_magic_phone(draft.to)
    )
    if is_counted:
        is_counted = routing.leaves_platform(setup.routes[channel, draft.country])

    def check(state: AcceptState, now: int) -> None:
        if state.opted_out and blocks_message(state.opted_out, draft.template.category):
            raise RecipientOptedOut(
                f"{draft.to} has opted out of this team's {channel} messages. {RecipientOptedOut.fix}", param="to"
            )
        if is_counted:
            pricing.count_sandbox_send(state.account, setup.platform.sandbox_per_day, now)
        if no_carrier:
            raise no_carrier

    return check


def phone_price(team: Team, phone: str, price: int) -> int:
    return 0 if team.sandbox or magic_recipients.is_magic_phone(phone) else price


def phone_acceptance(
    context: Context,
    caller: Caller,
    channel: Channel,
    draft: PhoneDraft,
    *,
    content: msgspec.Struct,
    price: int,
    idempotency_key: IdempotencyKey | None,
    extra_fields: ExtraFields,
    marketing_recipient: str | None = None,
    check: StoreCheck,
) -> Acceptance:
    """Build the acceptance of a message. `check` is run in the accept transaction, before the price is held."""
    team, id_ = caller.team, context.clock.new_id(PREFIXES[channel])
    now = context.clock.team_now(team.record.ref)
    restricted_key, approval_expires_at = caller.key if caller.key.restrictions is not None else None, None
    if restricted_key is not None:
        approval_expires_at = approval_deadline(caller, draft.timing, now)
    status = initial_status(context, draft.timing, now) if approval_expires_at is None else "queued"
    record = PhoneRecord(id=id_, to=draft.to, status=status, sandbox=team.sandbox, created_at=timestamp(now))

    def decide(state: AcceptState) -> Decision:
        check(state, now)
        if restricted_key is not None:
            count_use(state.account, restricted_key, 1, price, now)
        pricing.hold(state.account, price)
        recipient = AcceptedRecipient(draft.to, draft.to, "to")
        return Decision(msgspec.json.encode(record), [recipient], record=record, price=price)

    return Acceptance(
        id=id_,
        team=team.record.ref,
        channel=channel,
        lane=lanes.LANE_BY_CHANNEL[channel],
        status=status,
        sandbox=team.sandbox,
        captured=caller.captured or team.simulated,
        daily_bytes_limit=team.record.daily_bytes_limit,
        key_id=caller.key.id,
        created_at=now,
        content=msgspec.json.encode(content),
        variables_bytes=len(msgspec.json.encode(draft.sent_variables))
        if draft.sent_variables and channel == "sms"
        else 0,
        decide=decide,
        template_id=draft.template.id or None,
        template_version=draft.template.version if draft.template.id else None,
        country=draft.country,
        credit_low=team.record.credit_low,
        marketing_to=marketing_recipient,
        opt_out_phone=draft.to,
        idempotency_key=idempotency_key,
        audit=caller.entry(id_) if caller.entry else None,
        timing=draft.timing,
        approval_expires_at=approval_expires_at,
        extra_fields=extra_fields,
    )


class PhoneChannel(msgspec.Struct, Generic[C], frozen=True):
    """Send, prepare and dry-run operations of SMS or WhatsApp; only `build_acceptance` differs between the channels."""

    channel: Channel
    build_acceptance: Callable[[Context, Caller, PhoneDraft, IdempotencyKey | None], tuple[Acceptance, C]]

    async def send(
        self,
        context: Context,
        caller: Caller,
        request: PhoneRequest,
        idempotency_key: IdempotencyKey | None,
        callback_url: str | None = None,
        free_text: FreeText | None = None,
        origin: dict[str, str] | None = None,
    ) -> SendResult[PhoneRecord]:
        """Accept a message. `callback_url`: receives the message's events.

        `free_text`: text that replaces the template, for captured messages.
        """
        item = await self.prepare(context, caller, request, idempotency_key, free_text, origin)
        return await context.store.messages.accept(replace(item, callback=callback_url) if callback_url else item)

    async def prepare(
        self,
        context: Context,
        caller: Caller,
        request: PhoneRequest,
        idempotency_key: IdempotencyKey | None = None,
        free_text: FreeText | None = None,
        origin: dict[str, str] | None = None,
    ) -> Acceptance:
        draft = draft_phone_message(context, caller, self.channel, request, free_text, origin)
        return self.build_acceptance(context, caller, draft, idempotency_key)[0]

    async def dry_run(self, context: Context, caller: Caller, request: PhoneRequest) -> tuple[C, dict[str, Any]]:
        """Return the rendered content without sending it, and the response fields common to SMS and WhatsApp."""
        draft = draft_phone_message(context, caller, self.channel, request)
        item, content = self.build_acceptance(context, caller, draft, None)
        accepted = await context.store.messages.dry_run(item)
        return content, {
            "to": draft.to,
            "country": draft.country,
            "body": content.body,
            "template_version": draft.template.version,
            "locale": draft.template.locale,
            "price": pricing.format_money(accepted.price),
            "sandbox": caller.team.sandbox,
        }
