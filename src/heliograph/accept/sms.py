"""POST /v1/sms: one template message to one phone (spec 4.2)."""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import (
    FreeText,
    PhoneDraft,
    PhoneRecord,
    PhoneRequest,
    check_destination,
    draft_message,
    phone_acceptance,
    phone_price,
    sms_content,
)
from heliograph.rules import pricing
from heliograph.rules.acceptance import Acceptance, IdempotencyKey, Sent
from heliograph.rules.delivery.content import SmsContent
from heliograph.rules.field_docs import (
    BODY,
    ENCODING,
    LANGUAGE,
    SEGMENTS,
    VERSION,
    Country,
    DryRun,
    Price,
    Sandbox,
    To,
    says,
    such_as,
)
from heliograph.rules.limits import SMS_BODY_MAX
from heliograph.rules.refusals import BodyTooLong, InvalidRequest
from heliograph.rules.setup.records import Caller


class SmsPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run answers."""

    dry_run: DryRun = True
    to: To
    country: Country
    sender_id: Annotated[str, says("The sender that the phone shows.", example="Demo")]
    body: Annotated[str, BODY, such_as("Demo: your parcel 4711 is on its way.")]
    encoding: Annotated[str, ENCODING]
    segments: Annotated[int, SEGMENTS, such_as(1)]
    template_version: Annotated[int, VERSION, such_as(1)]
    locale: Annotated[str | None, LANGUAGE]
    price: Annotated[Price, such_as("0.0450")]
    sandbox: Sandbox


async def send_sms(
    context: Context,
    caller: Caller,
    request: PhoneRequest,
    retry_key: IdempotencyKey | None,
    callback: str | None = None,
    free: FreeText | None = None,
    origin: dict[str, str] | None = None,
) -> Sent[PhoneRecord]:
    """`callback`: where its own events are told. `free`: in place of a template, where it is caught."""
    item = await prepare_sms(context, caller, request, retry_key, free, origin)
    return await context.store.messages.accept(replace(item, callback=callback) if callback else item)


async def prepare_sms(
    context: Context,
    caller: Caller,
    request: PhoneRequest,
    retry_key: IdempotencyKey | None = None,
    free: FreeText | None = None,
    origin: dict[str, str] | None = None,
) -> Acceptance:
    draft = draft_message(context, caller, "sms", request, free, origin)
    return sms_acceptance(context, caller, draft, retry_key)[0]


async def preview_sms(context: Context, caller: Caller, request: PhoneRequest) -> SmsPreview:
    draft = draft_message(context, caller, "sms", request)
    item, content = sms_acceptance(context, caller, draft, None)
    accepted = await context.store.messages.rehearse(item)
    return SmsPreview(
        to=draft.to,
        country=draft.country,
        sender_id=content.sender_id,
        body=content.body,
        encoding=content.encoding,
        segments=content.segments,
        template_version=draft.template.version,
        locale=draft.template.locale,
        price=pricing.format_money(accepted.price),
        sandbox=caller.team.sandbox,
    )


def sms_acceptance(
    context: Context, caller: Caller, draft: PhoneDraft, retry_key: IdempotencyKey | None
) -> tuple[Acceptance, SmsContent]:
    setup, team = context.store.setup.current, caller.team
    if not draft.body.strip():
        raise InvalidRequest("The rendered SMS is empty. Give values that make a text.", param="variables")
    if len(draft.body) > SMS_BODY_MAX:
        raise BodyTooLong(
            f"The rendered SMS has {len(draft.body)} characters, {SMS_BODY_MAX} is the most. {BodyTooLong.fix}"
        )
    check = check_destination(context, caller, "sms", draft)
    content = sms_content(team, setup.platform, draft.country, draft.body, draft.template.validity_minutes * 60)
    price = phone_price(team, draft.to, pricing.sms_price(draft.template, draft.country, content.segments))
    if draft.template.id:
        draft = replace(draft, added=replace(draft.added, sender_id=content.sender_id))
    else:
        content = replace(content, sender_id=draft.added.sender_id)
    item = phone_acceptance(
        context, caller, "sms", draft, content=content, price=price, retry_key=retry_key, check=check
    )
    return item, content
