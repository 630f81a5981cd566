"""POST /v1/sms: one template message to one phone (spec 4.2)."""

import re
from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import (
    PhoneChannel,
    PhoneDraft,
    PhoneRequest,
    check_destination,
    phone_acceptance,
    phone_price,
)
from heliograph.domain.delivery import routing
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.field_docs import (
    BODY_DOC,
    ENCODING_DOC,
    LANGUAGE_DOC,
    SEGMENTS_DOC,
    VERSION_DOC,
    Country,
    DryRun,
    Price,
    Sandbox,
    To,
    describe,
    with_example,
)
from heliograph.domain.limits import SMS_BODY_MAX
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.refusals import BodyTooLong, InvalidRequest
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, IdempotencyKey
from heliograph.domain.setup.records import Caller


class SmsPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Response of a dry run."""

    dry_run: DryRun = True
    to: To
    country: Country
    sender_id: Annotated[str, describe("The sender that the phone shows.", example="Demo")]
    body: Annotated[str, BODY_DOC, with_example("Demo: your parcel 4711 is on its way.")]
    encoding: Annotated[str, ENCODING_DOC]
    segments: Annotated[int, SEGMENTS_DOC, with_example(1)]
    template_version: Annotated[int, VERSION_DOC, with_example(1)]
    locale: Annotated[str | None, LANGUAGE_DOC]
    price: Annotated[Price, with_example("0.0450")]
    sandbox: Sandbox


# Matches a visible character: neither white space nor a character that phones do not display.
_VISIBLE_CHARACTER = re.compile(
    r"[^\s\x00-\x1f\xad\u034f\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0]"
)


def sms_acceptance(
    context: Context, caller: Caller, draft: PhoneDraft, idempotency_key: IdempotencyKey | None
) -> tuple[Acceptance, SmsContent]:
    setup, team = context.store.setup.current, caller.team
    if not _VISIBLE_CHARACTER.search(draft.body):
        raise InvalidRequest("The rendered SMS is empty. Give values that make a text.", param="variables")
    if len(draft.body) > SMS_BODY_MAX:
        raise BodyTooLong(
            f"The rendered SMS has {len(draft.body)} characters, the maximum is {SMS_BODY_MAX}. {BodyTooLong.fix}"
        )
    check = check_destination(context, caller, "sms", draft)
    sender, validity_s = routing.sender_id(team, draft.country), draft.template.validity_minutes * 60
    content = sms_content(team, setup.platform, sender, draft.body, validity_s=validity_s)
    price = phone_price(team, draft.to, pricing.sms_price(draft.template, draft.country, content.segments))
    if draft.sent_variables:
        content = replace(content, variables=draft.sent_variables)
    if not draft.template.id:
        content = replace(content, sender_id=draft.extra_fields.sender_id)
    extra_fields = replace(draft.extra_fields, sender_id=content.sender_id)
    item = phone_acceptance(
        context,
        caller,
        "sms",
        draft,
        content=content,
        extra_fields=extra_fields,
        price=price,
        idempotency_key=idempotency_key,
        check=check,
    )
    return item, content


SMS = PhoneChannel("sms", sms_acceptance)
send_sms, prepare_sms = SMS.send, SMS.prepare


async def preview_sms(context: Context, caller: Caller, request: PhoneRequest) -> SmsPreview:
    content, shared_fields = await SMS.dry_run(context, caller, request)
    return SmsPreview(
        sender_id=content.sender_id, encoding=content.encoding, segments=content.segments, **shared_fields
    )
