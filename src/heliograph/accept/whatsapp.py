"""POST /v1/whatsapp: sends one approved template to one phone (spec 4.3)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from heliograph.accept.context import Context
from heliograph.accept.phone import (
    PhoneDraft,
    PhoneRequest,
    PhoneSends,
    check_destination,
    phone_acceptance,
    phone_price,
)
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.magic_recipients import is_magic_phone
from heliograph.domain.field_docs import (
    BODY,
    LANGUAGE,
    VERSION,
    Country,
    DryRun,
    Price,
    Sandbox,
    To,
    says,
    such_as,
)
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import MarketingLimitReached
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, Found, IdempotencyKey
from heliograph.domain.setup.records import Caller, Template
from heliograph.templates.policy.values import asked_names, check_parameters


class WhatsappPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run answers."""

    dry_run: DryRun = True
    to: To
    country: Country
    template: Annotated[str, says("The template's name upstream.", example="parcel_on_its_way")]
    language: Annotated[str, says("The template's language.", example="en")]
    parameters: Annotated[list[str], says("The values in the order of the template's manifest.", example=["4711"])]
    body: Annotated[str, BODY, such_as("Demo: your parcel 4711 is on its way.")]
    template_version: Annotated[int, VERSION, such_as(1)]
    locale: Annotated[str | None, LANGUAGE]
    price: Annotated[Price, such_as("0.0300")]
    sandbox: Sandbox


def whatsapp_content(template: Template, values: Mapping[str, str], body: str | None) -> WhatsappContent:
    """Return the parameters of Meta's template message.

    AUTHENTICATION templates have a copy-code button, which needs the code a second time.
    """
    codes = [values.get(name, "") for name in asked_names(template)] if template.category == "AUTHENTICATION" else []
    return WhatsappContent(
        template=template.upstream_name or template.name,
        language=template.language or "en",
        parameters=[values.get(name, "") for name in template.variables],
        body=body or "",
        button=codes[0] if len(codes) == 1 else "",
    )


def whatsapp_acceptance(
    context: Context, caller: Caller, draft: PhoneDraft, retry_key: IdempotencyKey | None
) -> tuple[Acceptance, WhatsappContent]:
    team = caller.team
    check_parameters(draft.template, draft.variables)
    check_where = check_destination(context, caller, "whatsapp", draft)
    template = draft.template
    content = whatsapp_content(template, draft.variables, draft.body)
    most = team.record.marketing_per_day
    capped = template.category == "MARKETING" and most > 0 and not is_magic_phone(draft.to)

    def check(found: Found, now: int) -> None:
        check_where(found, now)
        if capped and len(found.marketing) >= most:
            free_at = found.marketing[-most] + DAY_MS
            raise MarketingLimitReached(
                f"This recipient has had {most} MARKETING messages in 24 hours. {MarketingLimitReached.fix}",
                param="to",
                retry_after=max(1, -(-(free_at - now) // SECOND_MS)),
            )

    item = phone_acceptance(
        context,
        caller,
        "whatsapp",
        draft,
        content=content,
        added=draft.added,
        price=phone_price(team, draft.to, pricing.price_for(template, draft.country)),
        retry_key=retry_key,
        marketing_to=draft.to if capped else None,
        check=check,
    )
    return item, content


WHATSAPP = PhoneSends("whatsapp", whatsapp_acceptance)
send_whatsapp, prepare_whatsapp = WHATSAPP.send, WHATSAPP.prepare


async def preview_whatsapp(context: Context, caller: Caller, request: PhoneRequest) -> WhatsappPreview:
    content, shared = await WHATSAPP.rehearse(context, caller, request)
    return WhatsappPreview(
        template=content.template, language=content.language, parameters=content.parameters, **shared
    )
