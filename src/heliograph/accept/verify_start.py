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
    CodeRecipient,
    DispatchResult,
    candidate_carriers,
    code_mail_platform,
    code_text,
    get_code,
    send_code,
    stored_locale,
    supported_locale,
)
from heliograph.domain.delivery import magic_recipients, routing
from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
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
    describe,
    with_example,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import VERIFICATION_MS
from heliograph.domain.mail.recipients import check_allowed, parse_recipients, remove_suppressed
from heliograph.domain.phones.phone import country_of, parse_phone, velocity_prefix
from heliograph.domain.refusals import FeatureNotOnPlan, VerificationNotFound
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAPTURED, IdempotencyKey, SendResult
from heliograph.domain.sending.send_options import ExtraFields, Metadata, Tags, check_metadata, check_tags
from heliograph.domain.setup.key_restrictions import check_channel, check_code_recipient
from heliograph.domain.setup.records import Caller
from heliograph.domain.verify.conversion import check_conversion
from heliograph.domain.verify.verification import (
    channels_still_to_try,
    check_velocity,
    code_digest,
    code_template,
    parse_channels,
)
from heliograph.storage.inbox import CodeRow
from heliograph.storage.search.message_search import VerificationRow
from heliograph.storage.verifications import Resend, Start, VelocityWindow
from heliograph.templates.policy.locales import read_locale

CodeChannel = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(STATES_BY_CHANNEL)})]
CHANNEL_DOC = describe(
    "`sms`, the default; `whatsapp` or `email` where the team's `verify.channels` names it. A list: if a channel "
    "refuses the code or reports no receipt within 20 seconds, the same code is sent by the next channel."
)


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[
        str | None,
        describe("Phone in E.164 form, for example `+14155550123`; by `email`, an email address.", needed=True),
    ] = None  # optional here: a missing `to` is rejected with `invalid_phone` in the documented order
    channel: Annotated[CodeChannel | list[CodeChannel] | None, CHANNEL_DOC] = None
    tags: Tags = None
    metadata: Metadata = None
    locale: Locale = None


class VerificationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verification as the API returns it (spec 2.5)."""

    id: Id
    channel: Annotated[ChannelName, with_example("sms")]  # the last channel used
    to: To
    status: VerificationStatus
    sandbox: Sandbox
    expires_at: Annotated[
        str,
        describe(
            "When the code stops working: ten minutes after the start.", example="2026-11-15T09:40:00.000Z", **TIME
        ),
    ]
    error_message: Annotated[str | None, describe("The carrier's words when the status is `failed`, else null.")]


class VerifyPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Response of a dry run."""

    dry_run: DryRun = True
    to: To
    channel: Annotated[ChannelName, with_example("sms")]
    country: Country
    locale: Annotated[str, describe("The language of its text, as a tag such as `de-AT`.")]
    price: Annotated[Price, with_example("0.0500")]
    sandbox: Sandbox


async def start_verification(
    context: Context, caller: Caller, request: VerifyRequest, idempotency_key: IdempotencyKey | None
) -> SendResult[VerificationRecord]:
    to, id_ = await _check_request(context, caller, request), context.clock.new_id("vrf_")
    carriers = candidate_carriers(context, caller, to)
    added = ExtraFields(tags=request.tags or {}, metadata=request.metadata or {}, locale=to.locale)
    start = replace(_build_start(context, caller, to, id_, carriers, idempotency_key), added=added)
    replay = await context.store.verifications.start(start)
    if replay is not None:
        return replay
    sent = await send_code(context, caller, id_, to, carriers, start.expires_at)
    record = VerificationRecord(
        id=id_,
        channel=sent.channel,
        to=to.original,
        status="failed" if sent.error else "pending",
        sandbox=caller.team.sandbox,
        expires_at=timestamp(start.expires_at),
        error_message=sent.error,
    )
    return await _save_result(context, start, sent, record)


async def resend_verification(
    context: Context, caller: Caller, id_: str, idempotency_key: IdempotencyKey | None
) -> SendResult[VerificationRecord]:
    """Send the same code again by the last channel, else by the next in the list; free and with the same expiry."""
    if caller.key.restrictions is not None:
        check_channel(caller.key, "verify")
    verification = await find_verification(context, caller, id_)
    if verification.sandbox == CAPTURED:
        caller = replace(caller, captured=True)  # a code sent only to simulators stays so, whichever key resends it
    channels = channels_still_to_try(verification.channels, verification.channel)
    to = CodeRecipient(
        original=verification.to,
        normalized=verification.phone,
        channels=channels,
        locale=stored_locale(verification.added),
    )
    await _check_recipient(context, caller, to)
    carriers = candidate_carriers(context, caller, to)
    start = replace(_build_start(context, caller, to, id_, carriers, idempotency_key), price=0)

    def digest(salt: str) -> str:
        return code_digest(context.code_key, bytes.fromhex(salt), get_code(context, id_, to.normalized)).hex()

    replay = await context.store.verifications.resend(Resend(start=start, digest=digest))
    if replay is not None:
        return replay
    sent = await send_code(context, caller, id_, to, carriers, verification.expires_at)
    return await _save_result(context, start, sent, replace(to_record(verification), channel=sent.channel))


async def cancel_verification(context: Context, caller: Caller, id_: str) -> VerificationRecord:
    """Cancel a verification, so that its code is no longer valid. A final status does not change."""
    await context.store.verifications.cancel(caller.team.record.ref, id_)
    return to_record(await find_verification(context, caller, id_))


async def find_verification(context: Context, caller: Caller, id_: str) -> VerificationRow:
    verification = await context.store.verifications.get(caller.team.record.ref, id_)
    if verification is None:
        raise VerificationNotFound(f"No verification {id_[:80]!r}. {VerificationNotFound.fix}", param="id")
    return verification


def to_record(verification: VerificationRow) -> VerificationRecord:
    return VerificationRecord(
        id=verification.id,
        channel=verification.channel,
        to=verification.to,
        status=verification.status,
        sandbox=bool(verification.sandbox),
        expires_at=timestamp(verification.expires_at),
        error_message=verification.error_message if verification.status == "failed" else None,
    )


def code_message_text(context: Context, caller: Caller, row: CodeRow) -> str | None:
    """Return the text in which a simulator delivered the code to a recipient of a sandbox team.

    None for a magic number that rejects every code.
    """
    if magic_recipients.rejects_every_code(row.phone):
        return None
    code = get_code(context, row.id, row.phone)
    return code_text(caller, context.store.setup.current.platform, code, stored_locale(row.added))


async def preview_verification(context: Context, caller: Caller, request: VerifyRequest) -> VerifyPreview:
    to = await _check_request(context, caller, request)
    start = _build_start(context, caller, to, "", candidate_carriers(context, caller, to), None)
    await context.store.verifications.dry_run(start)
    return VerifyPreview(
        to=to.original,
        channel=to.channels[0],
        country=country_of(to.normalized),
        locale=to.locale or caller.team.record.verify.language,
        price=pricing.format_money(start.price),
        sandbox=caller.team.sandbox,
    )


async def _check_request(context: Context, caller: Caller, request: VerifyRequest) -> CodeRecipient:
    if caller.key.restrictions is not None:
        check_channel(caller.key, "verify")
    locale = read_locale(request.locale)
    channels = parse_channels(request.channel, caller.team)
    raw = normalized = request.to or ""
    for channel in channels:
        if channel == "email":
            normalized = parse_recipients(request.to, None, None, None).to[0].normal
        else:
            parse_phone(request.to)
    check_tags(request.tags)
    check_metadata(request.metadata)
    locale = supported_locale(context, caller, channels, locale)
    to = CodeRecipient(original=raw, normalized=normalized, channels=channels, locale=locale)
    await _check_recipient(context, caller, to)
    return to


async def _check_recipient(context: Context, caller: Caller, to: CodeRecipient) -> None:
    if "verify" not in caller.team.record.features:
        raise FeatureNotOnPlan()
    if caller.key.restrictions is not None:
        check_code_recipient(caller.key, to.normalized, to.original)
    if "email" not in to.channels:
        check_phone_allowed(caller, to.normalized)
        return
    # Raises a Refusal if the team has no domain to send from
    code_mail_platform(caller, context.store.setup.current.platform)
    recipients = parse_recipients(to.original, None, None, None)
    if not caller.captured:
        check_allowed(recipients, caller.team)
    suppressed = await context.store.suppressions.get(caller.team.record.ref, to.normalized)
    remove_suppressed(recipients, {to.normalized} if suppressed else ())


async def _save_result(
    context: Context, start: Start, sent: DispatchResult, record: VerificationRecord
) -> SendResult[VerificationRecord]:
    """Store the result of sending a code, and the response for the Idempotency-Key; return the response."""
    response, now = msgspec.json.encode(record), context.clock.team_now(start.team)
    item = sent.to_finish(start.id, start.team, start.key_id, now, start.owner, response)
    await context.store.verifications.finish(
        replace(item, idempotency_key=start.idempotency_key, counted_at=start.created_at)
    )
    return SendResult(start.id, record, response)


def _build_start(
    context: Context,
    caller: Caller,
    to: CodeRecipient,
    id_: str,
    carriers: CarriersByChannel,
    idempotency_key: IdempotencyKey | None,
) -> Start:
    record, platform = caller.team.record, context.store.setup.current.platform
    now, salt = context.clock.team_now(record.ref), context.clock.random_bytes(16)
    candidates = [carrier for carriers_of_channel in carriers.values() for carrier in carriers_of_channel]
    # a verification that no carrier can send does not count against the daily quota
    is_counted = caller.team.sandbox and bool(candidates) and routing.leaves_platform(candidates)
    is_mail = "email" in to.channels
    limits = replace(record.verify, countries=("*",)) if is_mail else record.verify

    def check(recent: VelocityWindow) -> None:
        check_velocity(
            limits,
            country=country_of(to.normalized),
            phone_starts=recent.phone_starts,
            prefix_starts=recent.prefix_starts,
            wrong_today=recent.wrong_today,
            now=now,
        )
        check_conversion(limits, to.normalized, recent.area_tallies, is_known_phone=recent.is_known_phone)

    return Start(
        id=id_,
        team=record.ref,
        key_id=caller.key.id,
        phone=to.normalized,
        given_address=to.original if is_mail else None,
        prefix=to.normalized if is_mail else velocity_prefix(to.normalized),
        channels=to.channels,
        is_magic=magic_recipients.is_magic(to.normalized),
        sandbox=caller.team.sandbox,
        captured=caller.captured or caller.team.simulated,
        salt=salt.hex(),
        digest=code_digest(context.code_key, salt, get_code(context, id_, to.normalized)).hex(),
        price=0
        if magic_recipients.is_magic(to.normalized)
        else phone_price(caller.team, to.normalized, _price(context, caller, to)),
        created_at=now,
        expires_at=now + VERIFICATION_MS,
        credit_low=record.credit_low,
        sandbox_limit=platform.sandbox_per_day if is_counted else None,
        owner=context.store.owner,
        check=check,
        restricted_key=caller.key if caller.key.restrictions is not None else None,
        idempotency_key=idempotency_key,
    )


def _price(context: Context, caller: Caller, to: CodeRecipient) -> int:
    """Return the platform's price of a verification, or that of the WhatsApp template if higher."""
    prices = [pricing.verify_price(context.store.setup.current.platform, caller.team.record.currency)]
    if "whatsapp" in to.channels and (template := code_template(caller.team)):
        prices.append(pricing.price_for(template, country_of(to.normalized)))
    return max(prices)
