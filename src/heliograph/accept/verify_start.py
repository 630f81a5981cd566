"""POST /v1/verify: creates a code, sends it inside the request, returns the result (spec 4.4, contract 8 and 16).

Also resends the same code and cancels a verification.
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import check_phone_allowed, phone_price
from heliograph.accept.verify_send import (
    CarriersByChannel,
    CodeTo,
    Dispatched,
    carriers_by_channel,
    code_of,
    code_text,
    locale_in,
    locale_used,
    mail_sender,
    send_code,
)
from heliograph.domain.delivery import magic_recipients, routing
from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.field_docs import (
    TIME,
    ChannelName,
    Country,
    DryRun,
    Id,
    Locale,
    Price,
    Sandbox,
    To,
    VerificationStatus,
    says,
    such_as,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import VERIFICATION_MS
from heliograph.domain.mail.recipients import check_allowed, read_recipients, split_suppressed
from heliograph.domain.phones.phone import country_of, prefix_of, read_phone
from heliograph.domain.refusals import FeatureNotOnPlan, VerificationNotFound
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAUGHT, IdempotencyKey, Sent
from heliograph.domain.sending.send_options import Added, Metadata, Tags, check_metadata, check_tags
from heliograph.domain.setup.records import Caller
from heliograph.domain.verify.conversion import check_conversion
from heliograph.domain.verify.verification import (
    channels_from,
    check_velocity,
    code_digest,
    code_template,
    derived_code,
    read_channels,
)
from heliograph.storage.search.message_search import VerificationLine
from heliograph.storage.verifications import Recent, Resend, Start
from heliograph.templates.policy.locales import read_locale

CodeChannel = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(STATES)})]
CHANNEL = says(
    "`sms`, the default; `whatsapp` or `email` where the team's `verify.channels` names it. A list: the same code goes "
    "by the next one when the one before refuses it, or tells no receipt within 20 seconds."
)


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[
        str | None,
        says("Phone in E.164 form, for example `+14155550123`; by `email`, an email address.", needed=True),
    ] = None  # optional here: a missing `to` is rejected with `invalid_phone` in the documented order
    channel: Annotated[CodeChannel | list[CodeChannel] | None, CHANNEL] = None
    tags: Tags = None
    metadata: Metadata = None
    locale: Locale = None


class VerificationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The verification of spec 2.5."""

    id: Id
    channel: Annotated[ChannelName, such_as("sms")]  # the last channel used
    to: To
    status: VerificationStatus
    sandbox: Sandbox
    expires_at: Annotated[
        str,
        says("When the code stops working: ten minutes after the start.", example="2026-11-15T09:40:00.000Z", **TIME),
    ]
    error_message: Annotated[str | None, says("The carrier's words when the status is `failed`, else null.")]


class VerifyPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run answers."""

    dry_run: DryRun = True
    to: To
    channel: Annotated[ChannelName, such_as("sms")]
    country: Country
    locale: Annotated[str, says("The language of its text, as a tag such as `de-AT`.")]
    price: Annotated[Price, such_as("0.0500")]
    sandbox: Sandbox


async def start_verification(
    context: Context, caller: Caller, request: VerifyRequest, retry_key: IdempotencyKey | None
) -> Sent[VerificationRecord]:
    to, id_ = await _check(context, caller, request), context.clock.new_id("vrf_")
    carriers = carriers_by_channel(context, caller, to)
    added = Added(tags=request.tags or {}, metadata=request.metadata or {}, locale=to.locale)
    start = replace(_start(context, caller, to, id_, carriers, retry_key), added=added)
    replay = await context.store.verifications.start(start)
    if replay is not None:
        return replay
    sent = await send_code(context, caller, id_, to, carriers, start.expires_at)
    status = "failed" if sent.error else "pending"
    record = VerificationRecord(
        id=id_,
        channel=sent.channel,
        to=to.given,
        status=status,
        sandbox=caller.team.sandbox,
        expires_at=timestamp(start.expires_at),
        error_message=sent.error,
    )
    response = msgspec.json.encode(record)
    await _finish(context, start, sent, response)
    return Sent(id_, record, response)


async def resend_verification(
    context: Context, caller: Caller, id_: str, retry_key: IdempotencyKey | None
) -> Sent[VerificationRecord]:
    """Send the same code with the same expiry, by the last used channel and those after it, without a new charge."""
    found = await find_verification(context, caller, id_)
    if found.sandbox == CAUGHT:
        caller = replace(caller, caught=True)  # a captured verification stays captured, whichever key resends it
    channels = channels_from(found.channels, found.channel)
    to = CodeTo(given=found.to, normal=found.phone, channels=channels, locale=locale_in(found.added))
    await _check_recipient(context, caller, to)
    carriers = carriers_by_channel(context, caller, to)
    start = replace(_start(context, caller, to, id_, carriers, retry_key), price=0)

    def digest(salt: str) -> str:
        return code_digest(context.code_key, bytes.fromhex(salt), code_of(context, id_, to.normal)).hex()

    replay = await context.store.verifications.again(Resend(start=start, digest=digest))
    if replay is not None:
        return replay
    sent = await send_code(context, caller, id_, to, carriers, found.expires_at)
    record = replace(to_record(found), channel=sent.channel)
    response = msgspec.json.encode(record)
    await _finish(context, start, sent, response)
    return Sent(id_, record, response)


async def cancel_verification(context: Context, caller: Caller, id_: str) -> VerificationRecord:
    """Cancel a verification, so that its code is no longer valid. A final status does not change."""
    await context.store.verifications.cancel(caller.team.record.ref, id_)
    return to_record(await find_verification(context, caller, id_))


async def find_verification(context: Context, caller: Caller, id_: str) -> VerificationLine:
    found = await context.store.verifications.get(caller.team.record.ref, id_)
    if found is None:
        raise VerificationNotFound(f"No verification {id_[:80]!r}. {VerificationNotFound.fix}", param="id")
    return found


def to_record(found: VerificationLine) -> VerificationRecord:
    return VerificationRecord(
        id=found.id,
        channel=found.channel,
        to=found.to,
        status=found.status,
        sandbox=bool(found.sandbox),
        expires_at=timestamp(found.expires_at),
        error_message=found.error_message if found.status == "failed" else None,
    )


def inbox_text(context: Context, caller: Caller, verification: str, added: str) -> str:
    """Return the text that a simulator delivered to a recipient of a sandbox team."""
    code = derived_code(context.code_key, verification)
    return code_text(caller, context.store.setup.current.platform, code, locale_in(added))


async def preview_verification(context: Context, caller: Caller, request: VerifyRequest) -> VerifyPreview:
    to = await _check(context, caller, request)
    start = _start(context, caller, to, "", carriers_by_channel(context, caller, to), None)
    await context.store.verifications.rehearse(start)
    return VerifyPreview(
        to=to.given,
        channel=to.channels[0],
        country=country_of(to.normal),
        locale=to.locale or caller.team.record.verify.language,
        price=pricing.format_money(start.price),
        sandbox=caller.team.sandbox,
    )


async def _check(context: Context, caller: Caller, request: VerifyRequest) -> CodeTo:
    locale = read_locale(request.locale)
    channels = read_channels(request.channel, caller.team)
    given = normal = request.to or ""
    for channel in channels:
        if channel == "email":
            normal = read_recipients(request.to, None, None, None).to[0].normal
        else:
            read_phone(request.to)
    check_tags(request.tags)
    check_metadata(request.metadata)
    locale = locale_used(context, caller, channels, locale)
    to = CodeTo(given=given, normal=normal, channels=channels, locale=locale)
    await _check_recipient(context, caller, to)
    return to


async def _check_recipient(context: Context, caller: Caller, to: CodeTo) -> None:
    if "verify" not in caller.team.record.features:
        raise FeatureNotOnPlan()
    if "email" not in to.channels:
        check_phone_allowed(caller, to.normal)
        return
    mail_sender(caller, context.store.setup.current.platform)
    recipients = read_recipients(to.given, None, None, None)
    if not caller.caught:
        check_allowed(recipients, caller.team)
    suppressed = await context.store.suppressions.get(caller.team.record.ref, to.normal)
    split_suppressed(recipients, {to.normal} if suppressed else ())


async def _finish(context: Context, start: Start, sent: Dispatched, response: bytes) -> None:
    item = sent.finish(start.id, start.team, start.key_id, context.clock.of(start.team), start.owner, response)
    await context.store.verifications.finish(replace(item, retry_key=start.retry_key, counted_at=start.created_at))


def _start(
    context: Context,
    caller: Caller,
    to: CodeTo,
    id_: str,
    carriers: CarriersByChannel,
    retry_key: IdempotencyKey | None,
) -> Start:
    record, platform = caller.team.record, context.store.setup.current.platform
    now, salt = context.clock.of(record.ref), context.clock.entropy(16)
    asked = [carrier for found in carriers.values() for carrier in found]
    # Starts that no carrier serves do not use up the daily quota
    is_counted = caller.team.sandbox and bool(asked) and routing.leaves(asked)
    is_mail = "email" in to.channels
    limits = replace(record.verify, countries=("*",)) if is_mail else record.verify

    def check(recent: Recent) -> None:
        check_velocity(
            limits,
            country=country_of(to.normal),
            phone_starts=recent.phone_starts,
            prefix_starts=recent.prefix_starts,
            wrong_today=recent.wrong_today,
            now=now,
        )
        check_conversion(limits, to.normal, recent.tallies, known=recent.known)

    return Start(
        id=id_,
        team=record.ref,
        key_id=caller.key.id,
        phone=to.normal,
        given=to.given if is_mail else None,
        prefix=to.normal if is_mail else prefix_of(to.normal),
        channels=to.channels,
        magic=magic_recipients.is_magic(to.normal),
        sandbox=caller.team.sandbox,
        caught=caller.caught or caller.team.simulated,
        salt=salt.hex(),
        digest=code_digest(context.code_key, salt, code_of(context, id_, to.normal)).hex(),
        price=0
        if magic_recipients.is_magic(to.normal)
        else phone_price(caller.team, to.normal, _price(context, caller, to)),
        created_at=now,
        expires_at=now + VERIFICATION_MS,
        credit_low=record.credit_low,
        sandbox_most=platform.sandbox_per_day if is_counted else None,
        owner=context.store.owner,
        check=check,
        retry_key=retry_key,
    )


def _price(context: Context, caller: Caller, to: CodeTo) -> int:
    """Return the platform's price of a verification, or that of the WhatsApp template if higher."""
    prices = [pricing.verify_price(context.store.setup.current.platform, caller.team.record.currency)]
    if "whatsapp" in to.channels and (template := code_template(caller.team)):
        prices.append(pricing.price_for(template, country_of(to.normal)))
    return max(prices)
