"""Shared by SMS and WhatsApp sends: render a template for one phone and hold its price (spec 4.2, 4.3)."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context, first_status
from heliograph.domain.delivery import lanes, magic_recipients, routing
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.field_docs import (
    CreatedAt,
    DomainId,
    Id,
    Phone,
    Sandbox,
    TemplateId,
    To,
    Variables,
    says,
)
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.mail.sender import brand_domain, brand_of
from heliograph.domain.phones.opt_out import bars
from heliograph.domain.phones.phone import country_of, read_phone
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
    Decision,
    Found,
    IdempotencyKey,
    Sent,
)
from heliograph.domain.sending.send_options import Added, Options, Timing, added_of, read_options
from heliograph.domain.setup.records import Caller, CarrierRecord, Channel, Team, Template
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.locales import in_locale, read_locale
from heliograph.templates.policy.meta_status import check_available
from heliograph.templates.policy.render import render_body
from heliograph.templates.policy.values import (
    check_size_of_variables,
    check_variables,
    read_variables,
    with_brand,
)

C = TypeVar("C", bound=SmsContent | WhatsappContent)
LastCheck = Callable[[Found, int], None]  # (state from the store, now); raises a Refusal


TEMPLATE = says("`tpl_` id of an approved template of this channel.", needed=True)
BRAND = says("`dom_` id of the verified domain whose brand the template shows.")


class PhoneRequest(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Phone = None  # optional here: a missing `to` is rejected with `invalid_phone` in the documented order
    template_id: Annotated[TemplateId | None, TEMPLATE] = None
    variables: Variables = None
    brand_domain_id: Annotated[DomainId | None, BRAND] = None


class FreeText(msgspec.Struct, frozen=True, kw_only=True):
    """Text without a template, for captured (sandbox) messages only."""

    body: str
    sender_id: str = ""


class PhoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The SMS and WhatsApp message of spec 2.3 and 2.4."""

    id: Id
    to: To
    status: Annotated[
        str,
        says("The state of the message; only WhatsApp has `read`.", example="delivered", enum=list(STATES["whatsapp"])),
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
    added: Added = Added()
    timing: Timing = Timing()


def draft_message(
    context: Context,
    caller: Caller,
    channel: Channel,
    request: PhoneRequest,
    free: FreeText | None = None,
    origin: dict[str, str] | None = None,
) -> PhoneDraft:
    """Run the checks of contract 2 up to the rendered body.

    `origin`: fields of the foreign API that only its own responses show.
    """
    if free and caller.caught:
        return _draft_free(context, caller, channel, request, free, origin)
    variables = read_variables(request.variables)
    locale = read_locale(request.locale) if request.locale is not None else None
    to = read_phone(request.to)
    timing = read_options(request, context.clock.of(caller.team.record.ref))
    if not request.template_id:
        raise TemplateIdRequired(param="template_id")
    template = find_template(caller.team, request.template_id, channel)
    if locale is not None:
        template = in_locale(template, locale)
    if caller.team.upstream:
        check_available(caller.team, template)
    check_variables(template, variables)
    domain = brand_domain(caller.team, caller.key, request.brand_domain_id)
    brand = brand_of(domain, context.store.setup.current.platform)
    check_size_of_variables(request.variables)
    values = with_brand(template, variables, brand)
    return PhoneDraft(
        to=to,
        country=country_of(to),
        template=template,
        variables=values,
        body=render_body(template, variables, brand),
        added=added_of(request, timing, template, sender_id=brand["name"], origin=origin),
        timing=timing,
    )


def _draft_free(
    context: Context,
    caller: Caller,
    channel: Channel,
    request: PhoneRequest,
    free: FreeText,
    origin: dict[str, str] | None,
) -> PhoneDraft:
    to, timing = read_phone(request.to), read_options(request, context.clock.of(caller.team.record.ref))
    sender_id = free.sender_id or context.store.setup.current.platform.brand
    return PhoneDraft(
        to=to,
        country=country_of(to),
        template=Template(id="", team=caller.team.record.id, channel=channel, name=""),
        variables={},
        body=free.body,
        added=added_of(request, timing, None, sender_id=sender_id, origin=origin),
        timing=timing,
    )


def check_phone_allowed(caller: Caller, phone: str) -> None:
    team = caller.team
    if (
        team.sandbox
        and not caller.caught
        and phone not in team.recipients
        and not magic_recipients.is_magic_phone(phone)
    ):
        raise RecipientNotAllowed(
            f"{phone} is not verified on this sandbox team. {RecipientNotAllowed.fix}", param="to"
        )


def carriers_for(
    context: Context, caller: Caller, channel: Channel, phone: str, country: str | None
) -> list[CarrierRecord]:
    """Return the available carriers in order of preference.

    Magic numbers and captured or simulated messages always use the built-in simulator.
    """
    if magic_recipients.is_magic_phone(phone):
        no_carrier = magic_recipients.phone_behaviour(phone) == "no_carrier"
        return [] if no_carrier else [routing.builtin_simulator(channel)]
    if caller.caught or caller.team.simulated:
        return [routing.builtin_simulator(channel)]
    return context.handover.reachable(channel, country)


def check_destination(context: Context, caller: Caller, channel: Channel, draft: PhoneDraft) -> LastCheck:
    """Check that the phone may be sent to, and return the checks that the transaction must run.

    Those are, in order: opt-outs, the sandbox's daily quota, and whether a carrier is available.
    """
    check_phone_allowed(caller, draft.to)
    unserved = None
    if not carriers_for(context, caller, channel, draft.to, draft.country):
        unserved = NoCarrierAvailable(
            f"No enabled {channel} carrier serves {draft.country or 'this destination'} now. {NoCarrierAvailable.fix}",
            param="to",
            retry_after=30,
        )
    setup = context.store.setup.current
    is_counted = caller.team.sandbox and not (
        caller.caught or caller.team.simulated or magic_recipients.is_magic_phone(draft.to)
    )
    if is_counted:
        is_counted = routing.leaves(setup.routes[channel, draft.country])

    def check(found: Found, now: int) -> None:
        if found.opted_out and bars(found.opted_out, draft.template.category):
            raise RecipientOptedOut(
                f"{draft.to} has opted out of this team's {channel} messages. {RecipientOptedOut.fix}", param="to"
            )
        if is_counted:
            pricing.take_sandbox(found.account, setup.platform.sandbox_per_day, now)
        if unserved:
            raise unserved

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
    retry_key: IdempotencyKey | None,
    added: Added,
    marketing_to: str | None = None,
    check: LastCheck,
) -> Acceptance:
    """Build the acceptance of a message; `check` runs the channel's last checks before the price is held."""
    team, id_ = caller.team, context.clock.new_id(PREFIXES[channel])
    now = context.clock.of(team.record.ref)
    status = first_status(context, draft.timing, now)
    record = PhoneRecord(id=id_, to=draft.to, status=status, sandbox=team.sandbox, created_at=timestamp(now))

    def decide(found: Found) -> Decision:
        check(found, now)
        pricing.hold(found.account, price)
        to = AcceptedRecipient(draft.to, draft.to, "to")
        return Decision(msgspec.json.encode(record), [to], record=record, price=price)

    return Acceptance(
        id=id_,
        team=team.record.ref,
        channel=channel,
        lane=lanes.LANE[channel],
        status=status,
        sandbox=team.sandbox,
        caught=caller.caught or team.simulated,
        octets_most=team.record.octets_most,
        key_id=caller.key.id,
        created_at=now,
        content=msgspec.json.encode(content),
        decide=decide,
        template_id=draft.template.id or None,
        template_version=draft.template.version if draft.template.id else None,
        country=draft.country,
        credit_low=team.record.credit_low,
        marketing_to=marketing_to,
        phone=draft.to,
        retry_key=retry_key,
        audit=caller.entry(id_) if caller.entry else None,
        timing=draft.timing,
        added=added,
    )


class PhoneSends(msgspec.Struct, Generic[C], frozen=True):
    """Send, prepare and dry-run operations of a phone channel, built on the channel's `accept` function."""

    channel: Channel
    accept: Callable[[Context, Caller, PhoneDraft, IdempotencyKey | None], tuple[Acceptance, C]]

    async def send(
        self,
        context: Context,
        caller: Caller,
        request: PhoneRequest,
        retry_key: IdempotencyKey | None,
        callback: str | None = None,
        free: FreeText | None = None,
        origin: dict[str, str] | None = None,
    ) -> Sent[PhoneRecord]:
        """Accept a message.

        `callback`: URL that receives the events of this message. `free`: text used instead of a template if the message
        is captured.
        """
        item = await self.prepare(context, caller, request, retry_key, free, origin)
        return await context.store.messages.accept(replace(item, callback=callback) if callback else item)

    async def prepare(
        self,
        context: Context,
        caller: Caller,
        request: PhoneRequest,
        retry_key: IdempotencyKey | None = None,
        free: FreeText | None = None,
        origin: dict[str, str] | None = None,
    ) -> Acceptance:
        draft = draft_message(context, caller, self.channel, request, free, origin)
        return self.accept(context, caller, draft, retry_key)[0]

    async def rehearse(self, context: Context, caller: Caller, request: PhoneRequest) -> tuple[C, dict[str, Any]]:
        """Return the content of a dry run, and the fields common to all previews."""
        draft = draft_message(context, caller, self.channel, request)
        item, content = self.accept(context, caller, draft, None)
        accepted = await context.store.messages.rehearse(item)
        return content, {
            "to": draft.to,
            "country": draft.country,
            "body": content.body,
            "template_version": draft.template.version,
            "locale": draft.template.locale,
            "price": pricing.format_money(accepted.price),
            "sandbox": caller.team.sandbox,
        }
