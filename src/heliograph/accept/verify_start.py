"""POST /v1/verify: make a code, ask a carrier inside the request, answer what it said (spec 4.4, contract 8).

The code exists in this request's memory only; what is stored is its keyed digest. A sandbox team reads the text that
a simulator delivered in its inbox: such a code is derived from its verification, so that it can be said again.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from heliograph.accept.context import Context
from heliograph.accept.phone import carriers_for, check_phone_allowed, phone_price, sms_content
from heliograph.channels.carrier import Parcel
from heliograph.handover import first_of
from heliograph.rules import magic, pricing, routing
from heliograph.rules.acceptance import Answer, IdempotencyKey
from heliograph.rules.conversion import check_conversion
from heliograph.rules.field_docs import (
    TIME,
    ChannelName,
    Country,
    DryRun,
    Id,
    Phone,
    Price,
    Sandbox,
    To,
    VerificationStatus,
    says,
)
from heliograph.rules.ids import timestamp
from heliograph.rules.limits import CODE_DIGITS, SECOND_MS, VERIFICATION_MS
from heliograph.rules.outcome import Accepted, Asked, Deferred
from heliograph.rules.phone import country_of, prefix_of, read_phone
from heliograph.rules.refusals import FeatureNotOnPlan
from heliograph.rules.setup.records import Caller, CarrierRecord, Platform
from heliograph.rules.verification import check_velocity, code_digest, derived_code, make_code, read_channel
from heliograph.rules.verify_text import verify_text
from heliograph.storage.verifications import Finish, Recent, Start

CARRIERS_S = 8.0  # for all carriers together (contract 8)
CARRIERS_MAX = 2
NO_CARRIER = "No carrier serves this destination now."
MAGIC_OFF = (
    "This is a magic number, and this live team does not verify those. Use a real number, or ask the operator to set "
    "verify.magic for the team."
)


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Phone = None  # missing: `invalid_phone`, at its place in the order
    channel: Annotated[str | None, says("`sms`, which is also the default.", enum=["sms"])] = None


class VerificationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The verification of spec 2.5."""

    id: Id
    channel: ChannelName
    to: To
    status: VerificationStatus
    sandbox: Sandbox
    expires_at: Annotated[str, says("When the code stops working: ten minutes after the start.", **TIME)]
    error_message: Annotated[str | None, says("The carrier's words when the status is `failed`.")]


class VerifyPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run answers."""

    dry_run: DryRun = True
    to: To
    channel: ChannelName
    country: Country
    price: Price
    sandbox: Sandbox


async def start_verification(
    context: Context, caller: Caller, request: VerifyRequest, retry_key: IdempotencyKey | None
) -> Answer:
    setup, team = context.store.setup.current, caller.team
    phone, country = _check(caller, request)
    id_, carriers = context.clock.new_id("vrf_"), _carriers(context, caller, phone, country)
    code = _code(context, caller, phone, id_, carriers)
    start = _start(context, caller, phone, id_, code, retry_key, carriers)
    replay = await context.store.verifications.start(start)
    if replay is not None:
        return replay
    text = _text(caller, setup.platform, code)
    content = sms_content(team, setup.platform, country, text, VERIFICATION_MS // SECOND_MS)
    parcel = Parcel(
        message_id=start.id, address=phone, content=msgspec.json.encode(content), attempt=0, country=country
    )
    asked = await context.handover.in_turn(
        first_of(carriers[:CARRIERS_MAX]), lambda _: parcel, may_wait=False, within_s=CARRIERS_S
    )
    error = _error(asked, MAGIC_OFF if _is_shut(caller, phone) else NO_CARRIER)
    if error:
        error = error.replace(code, "…")  # some repeat what they refuse
    record = VerificationRecord(
        id=start.id,
        channel="sms",
        to=phone,
        status="failed" if error else "pending",
        sandbox=team.sandbox,
        expires_at=timestamp(start.expires_at),
        error_message=error,
    )
    response = msgspec.json.encode(record)
    await context.store.verifications.finish(
        Finish(
            id=start.id,
            team=start.team,
            key_id=start.key_id,
            status=record.status,
            error_message=error,
            response=response,
            at=context.clock.now(),
            owner=start.owner,
            retry_key=retry_key,
            simulated=any(isinstance(one.outcome, Accepted) and _is_simulator(one.carrier) for one in asked),
            asked=asked,
        )
    )
    return Answer(202, response)


def inbox_text(context: Context, caller: Caller, verification: str) -> str:
    """What a simulator delivered to a number of a sandbox team."""
    return _text(caller, context.store.setup.current.platform, derived_code(context.code_key, verification))


async def preview_verification(context: Context, caller: Caller, request: VerifyRequest) -> VerifyPreview:
    phone, country = _check(caller, request)
    start = _start(context, caller, phone, "", "", None, _carriers(context, caller, phone, country))
    await context.store.verifications.rehearse(start)
    return VerifyPreview(
        to=phone,
        channel="sms",
        country=country,
        price=pricing.format_money(start.price),
        sandbox=caller.team.sandbox,
    )


def _check(caller: Caller, request: VerifyRequest) -> tuple[str, str | None]:
    read_channel(request.channel)
    phone = read_phone(request.to)
    if "verify" not in caller.team.record.features:
        raise FeatureNotOnPlan()
    check_phone_allowed(caller.team, phone)
    return phone, country_of(phone)


def _is_shut(caller: Caller, phone: str) -> bool:
    """Everybody knows the code of a magic number: in a live team it verifies only where an operator wants that."""
    return magic.is_magic_phone(phone) and not caller.team.sandbox and not caller.team.record.verify.magic


def _carriers(context: Context, caller: Caller, phone: str, country: str | None) -> list[CarrierRecord]:
    """Who is asked. A sandbox team's code goes to simulators or to real carriers, never from one to the other."""
    if _is_shut(caller, phone):
        return []
    found = carriers_for(context, "sms", phone, country)
    if not caller.team.sandbox:
        return found
    return [carrier for carrier in found if _is_simulator(carrier) == _is_simulator(found[0])]


def _is_simulator(carrier: CarrierRecord) -> bool:
    return carrier.kind == "simulator"


def _code(context: Context, caller: Caller, phone: str, id_: str, carriers: Sequence[CarrierRecord]) -> str:
    if magic.no_code_matches(phone):
        return context.clock.entropy(16).hex()  # longer than any candidate can be
    if known := magic.magic_code(phone):
        return known
    if caller.team.sandbox and carriers and _is_simulator(carriers[0]):
        return derived_code(context.code_key, id_)  # read in the inbox
    return make_code(context.clock.below(10**CODE_DIGITS))


def _start(
    context: Context,
    caller: Caller,
    phone: str,
    id_: str,
    code: str,
    retry_key: IdempotencyKey | None,
    carriers: Sequence[CarrierRecord],
) -> Start:
    record, platform = caller.team.record, context.store.setup.current.platform
    now, salt = context.clock.now(), context.clock.entropy(16)
    is_counted = caller.team.sandbox and bool(carriers) and routing.leaves(carriers)  # one that no carrier takes is not

    def check(recent: Recent) -> None:
        check_velocity(
            record.verify,
            country=country_of(phone),
            phone_starts=recent.phone_starts,
            prefix_starts=recent.prefix_starts,
            wrong_today=recent.wrong_today,
            now=now,
        )
        check_conversion(record.verify, phone, recent.tallies, known=recent.known)

    return Start(
        id=id_,
        team=record.ref,
        key_id=caller.key.id,
        phone=phone,
        prefix=prefix_of(phone),
        magic=magic.is_magic_phone(phone),
        sandbox=caller.team.sandbox,
        salt=salt.hex(),
        digest=code_digest(context.code_key, salt, code).hex(),
        price=phone_price(caller.team, phone, pricing.verify_price(platform, record.currency)),
        created_at=now,
        expires_at=now + VERIFICATION_MS,
        credit_low=record.credit_low,
        sandbox_most=platform.sandbox_per_day if is_counted else None,
        owner=context.store.owner,
        check=check,
        retry_key=retry_key,
    )


def _text(caller: Caller, platform: Platform, code: str) -> str:
    domains, chosen = caller.team.approved_domains(), caller.team.record.verify
    brand = domains[0].brand if domains else platform.brand
    return verify_text(platform.verify_text, chosen.language, brand, code, chosen.webotp)


def _error(asked: Sequence[Asked], nobody: str) -> str | None:
    """Why the code was not sent; None: it was, or maybe it was, and then it must work."""
    if not asked:
        return nobody
    said = asked[-1].outcome
    if isinstance(said, Accepted) or any(isinstance(o := one.outcome, Deferred) and o.uncertain for one in asked):
        return None
    return str(said.detail.get("text") or "The carrier refused the message.")
