"""Resends a failed message: a new message with the original content, to the recipients that were not reached.

All checks of a send run again with the current setup: sender, template, allowed and suppressed recipients, credit.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.accept import phone
from heliograph.accept.context import Context
from heliograph.accept.email import EmailDraft, HeaderOverrides, email_acceptance
from heliograph.accept.sms import sms_acceptance
from heliograph.accept.whatsapp import whatsapp_acceptance
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.ids import PREFIXES
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.recipients import check_allowed, parse_recipients
from heliograph.domain.mail.reputation import check_direct_sends
from heliograph.domain.mail.sender import Sender, resolve_sender
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.acceptance import Acceptance, SendResult
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import Caller, Channel, Template
from heliograph.runtime.threads import ACCEPT_POOL
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.meta_status import check_available
from heliograph.templates.policy.render import Rendered

UNREACHED_STATUSES = ("failed", "bounced")


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a sent message, and the recipients that were not reached."""

    channel: Channel
    content: bytes
    template_id: str | None
    template_version: int | None
    country: str | None
    unreached: list[tuple[str, str]]  # (address as given, kind)
    extra_fields: ExtraFields = ExtraFields()


def can_resend(unreached: list[tuple[str, str]]) -> bool:
    """Return whether a resend is possible: an unreached recipient must be in To, because Bcc recipients stay in Bcc."""
    return any(kind == "to" for _, kind in unreached)


async def resend(context: Context, caller: Caller, undelivered: Undelivered) -> SendResult[Any]:
    """Accept a copy of the message as a new message; raises the same refusals as a send."""
    template = None
    if undelivered.template_id is not None:
        template = localize(
            find_template(caller.team, undelivered.template_id, undelivered.channel), undelivered.extra_fields.locale
        )
        check_available(caller.team, template)
    build = _email_copy if undelivered.channel == "email" else _phone_copy
    # The original message's schedule and expiry do not apply
    undelivered = replace(
        undelivered, extra_fields=replace(undelivered.extra_fields, scheduled_at=None, expires_at=None)
    )
    id_ = context.clock.new_id(PREFIXES[undelivered.channel])
    acceptance = await ACCEPT_POOL.run_large(
        len(undelivered.content), build, context, caller, undelivered, template, id_
    )
    return await context.store.messages.accept(acceptance)


def _email_copy(
    context: Context, caller: Caller, undelivered: Undelivered, template: Template | None, id_: str
) -> Acceptance:
    content = msgspec.json.decode(undelivered.content, type=EmailContent)
    addresses_by_kind = {
        kind: [address_text for address_text, address_kind in undelivered.unreached if address_kind == kind]
        for kind in ("to", "cc", "bcc")
    }
    recipients = parse_recipients(
        addresses_by_kind["to"], addresses_by_kind["cc"], addresses_by_kind["bcc"], content.reply_to
    )
    address = parse_address(content.from_address)
    if address is None:
        raise InvalidRequest("The sender of the message is not an email address.")
    if template is None:
        check_direct_sends(context.store.reputations.current.get(caller.team.record.id))
    from_header = Sender(address=address, name=content.from_name, domain=None).header
    sender = resolve_sender(caller, context.store.setup.current.platform, from_header, None)
    check_allowed(recipients, caller.team)
    draft = EmailDraft(
        recipients=recipients,
        sender=sender,
        template=replace(template, version=undelivered.template_version) if template else None,
        content=Rendered(subject=content.subject, html=content.html, text=content.text, body=None),
        attachments=(),
        unsubscribe_url=content.unsubscribe_url,
        extra_fields=undelivered.extra_fields,
    )
    header_overrides = HeaderOverrides(to=content.to, cc=content.cc)  # Bcc recipients of the original stay hidden
    return email_acceptance(context, caller, draft, content.attachments, None, header_overrides, id_)


def _phone_copy(
    context: Context, caller: Caller, undelivered: Undelivered, template: Template | None, _: str
) -> Acceptance:
    if template is None or template.version != undelivered.template_version:
        raise InvalidRequest("The template has changed since. Send a new message with its new text.")
    ((to, _),) = undelivered.unreached
    draft = phone.PhoneDraft(
        to=to,
        country=undelivered.country,
        template=template,
        variables={},
        body="",
        extra_fields=undelivered.extra_fields,
    )
    if undelivered.channel == "sms":
        text = msgspec.json.decode(undelivered.content, type=SmsContent).body
        return sms_acceptance(context, caller, replace(draft, body=text), None)[0]
    content = msgspec.json.decode(undelivered.content, type=WhatsappContent)
    variables = dict(zip(template.variables, content.parameters, strict=True))
    return whatsapp_acceptance(context, caller, replace(draft, body=content.body, variables=variables), None)[0]
