"""POST /v1/sms: one template message to one phone (spec 4.2)."""

import re
from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import (
    PhoneDraft,
    PhoneRequest,
    PhoneSends,
    check_destination,
    phone_acceptance,
    phone_price,
)
from heliograph.domain.delivery import routing
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.field_docs import (
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
from heliograph.domain.limits import SMS_BODY_MAX
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.refusals import BodyTooLong, InvalidRequest
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, IdempotencyKey
from heliograph.domain.setup.records import Caller


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


# Matches a visible character: neither white space nor a character that phones do not display.
_SEEN = re.compile(
    r"[^\s\x00-\x1f\xad\u034f\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0]"
)


def sms_acceptance(
    context: Context, caller: Caller, draft: PhoneDraft, retry_key: IdempotencyKey | None
) -> tuple[Acceptance, SmsContent]:
    setup, team = context.store.setup.current, caller.team
    if not _SEEN.search(draft.body):
        raise InvalidRequest("The rendered SMS is empty. Give values that make a text.", param="variables")
    if len(draft.body) > SMS_BODY_MAX:
        raise BodyTooLong(
            f"The rendered SMS has {len(draft.body)} characters, {SMS_BODY_MAX} is the most. {BodyTooLong.fix}"
        )
    check = check_destination(context, caller, "sms", draft)
    sender, validity_s = routing.sender_id(team, draft.country), draft.template.validity_minutes * 60
    content = sms_content(team, setup.platform, sender, draft.body, validity_s=validity_s)
    price = phone_price(team, draft.to, pricing.sms_price(draft.template, draft.country, content.segments))
    if not draft.template.id:
        content = replace(content, sender_id=draft.added.sender_id)
    added = replace(draft.added, sender_id=content.sender_id)
    item = phone_acceptance(
        context, caller, "sms", draft, content=content, added=added, price=price, retry_key=retry_key, check=check
    )
    return item, content


SMS = PhoneSends("sms", sms_acceptance)
send_sms, prepare_sms = SMS.send, SMS.prepare


async def preview_sms(context: Context, caller: Caller, request: PhoneRequest) -> SmsPreview:
    content, shared = await SMS.rehearse(context, caller, request)
    return SmsPreview(sender_id=content.sender_id, encoding=content.encoding, segments=content.segments, **shared)
