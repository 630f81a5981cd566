"""POST /v1/whatsapp: sends one approved template to one phone (spec 4.3)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from heliograph.accept.context import Context
from heliograph.accept.phone import (
    PhoneChannel,
    PhoneDraft,
    PhoneRequest,
    check_destination,
    phone_acceptance,
    phone_price,
)
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.magic_recipients import is_magic_phone
from heliograph.domain.field_docs import (
    BODY_DOC,
    LANGUAGE_DOC,
    VERSION_DOC,
    Country,
    DryRun,
    Price,
    Sandbox,
    To,
    describe,
    with_example,
)
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import MarketingLimitReached
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, AcceptState, IdempotencyKey
from heliograph.domain.setup.records import Caller, Template
from heliograph.templates.policy.values import check_meta_parameters, required_names


class WhatsappPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Response of a dry run."""

    dry_run: DryRun = True
    to: To
    country: Country
    template: Annotated[str, describe("The template's name upstream.", example="parcel_on_its_way")]
    language: Annotated[str, describe("The template's language.", example="en")]
    parameters: Annotated[list[str], describe("The values in the order of the template's manifest.", example=["4711"])]
    body: Annotated[str, BODY_DOC, with_example("Demo: your parcel 4711 is on its way.")]
    template_version: Annotated[int, VERSION_DOC, with_example(1)]
    locale: Annotated[str | None, LANGUAGE_DOC]
    price: Annotated[Price, with_example("0.0300")]
    sandbox: Sandbox


def whatsapp_content(template: Template, values: Mapping[str, str], body: str | None) -> WhatsappContent:
    """Return the parameters of Meta's template message.

    AUTHENTICATION templates have a copy-code button, which needs the code a second time.
    """
    codes = [values.get(name, "") for name in required_names(template)] if template.category == "AUTHENTICATION" else []
    return WhatsappContent(
        template=template.upstream_name or template.name,
        language=template.language or "en",
        parameters=[values.get(name, "") for name in template.variables],
        body=body or "",
        button=codes[0] if len(codes) == 1 else "",
    )


def whatsapp_acceptance(
    context: Context, caller: Caller, draft: PhoneDraft, idempotency_key: IdempotencyKey | None
) -> tuple[Acceptance, WhatsappContent]:
    team = caller.team
    check_meta_parameters(draft.template, draft.variables)
    check_destination_state = check_destination(context, caller, "whatsapp", draft)
    template = draft.template
    content = whatsapp_content(template, draft.variables, draft.body)
    daily_limit = team.record.marketing_per_day
    is_limited = template.category == "MARKETING" and daily_limit > 0 and not is_magic_phone(draft.to)

    def check_state(state: AcceptState, now: int) -> None:
        check_destination_state(state, now)
        if is_limited and len(state.marketing_times) >= daily_limit:
            free_at = state.marketing_times[-daily_limit] + DAY_MS
            raise MarketingLimitReached(
                f"This recipient has had {daily_limit} MARKETING messages in 24 hours. {MarketingLimitReached.fix}",
                param="to",
                retry_after=max(1, -(-(free_at - now) // SECOND_MS)),
            )

    item = phone_acceptance(
        context,
        caller,
        "whatsapp",
        draft,
        content=content,
        extra_fields=draft.extra_fields,
        price=phone_price(team, draft.to, pricing.price_for(template, draft.country)),
        idempotency_key=idempotency_key,
        marketing_recipient=draft.to if is_limited else None,
        check=check_state,
    )
    return item, content


WHATSAPP = PhoneChannel("whatsapp", whatsapp_acceptance)
send_whatsapp, prepare_whatsapp = WHATSAPP.send, WHATSAPP.prepare


async def preview_whatsapp(context: Context, caller: Caller, request: PhoneRequest) -> WhatsappPreview:
    content, shared_fields = await WHATSAPP.dry_run(context, caller, request)
    return WhatsappPreview(
        template=content.template, language=content.language, parameters=content.parameters, **shared_fields
    )
