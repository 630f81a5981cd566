"""Sends one-time codes inside the request: chooses channel, carrier and text (contract 8 and 16).

If the code's receipt does not arrive in time, `send_due_codes` sends the code again by the next channel.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import available_carriers
from heliograph.accept.whatsapp import whatsapp_content
from heliograph.carriers.contract import OutboundMessage, seconds_until
from heliograph.domain.delivery import magic_recipients
from heliograph.domain.delivery.outcome import Accepted, CarrierAttempt, Deferred
from heliograph.domain.delivery.routing import builtin_simulator, sender_id
from heliograph.domain.ids import PREFIXES
from heliograph.domain.mail.feedback_id import DIRECT, feedback_id_suffix
from heliograph.domain.mail.sender import default_brand_values, resolve_brand_domain
from heliograph.domain.mail.system_mail import build_content
from heliograph.domain.phones.phone import country_of
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.sending.acceptance import CAPTURED
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import Caller, CarrierRecord, Channel, Platform
from heliograph.domain.verify.verification import RECEIPT_TIMEOUT_MS, channels_still_to_try, code_template, derive_code
from heliograph.domain.verify.verify_text import languages, verify_mail, verify_text
from heliograph.storage.verifications import DueCode, Finish
from heliograph.templates.policy.locales import localize, match_language
from heliograph.templates.policy.render import render_body
from heliograph.templates.policy.values import Values, body_values, required_names

CARRIERS_TIMEOUT_S = 8.0  # timeout for all carriers of a channel together (contract 8)
CARRIERS_MAX = 2  # carriers tried per channel
CODES_PER_ROUND = 20  # maximum codes per call of `send_due_codes`
SENDER_LOCAL_PART = "no-reply"  # local part of the sender address of codes by email
NO_CARRIER_MESSAGE = "No carrier serves this destination now."
MAGIC_DISABLED_MESSAGE = (
    "This is a magic number or address, and this live team does not verify those. Use a real one, or ask the operator "
    "to set verify.magic for the team."
)
UNMATCHABLE_CODE = "no code matches"  # code of magic recipients that reject every code

CarriersByChannel = dict[Channel, list[CarrierRecord]]


class CodeRecipient(msgspec.Struct, frozen=True, kw_only=True):
    """The recipient of a code, and the channels that may be used."""

    original: str
    normalized: str
    channels: list[Channel]
    locale: str | None  # None for the team's default


class DispatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of sending a code."""

    channel: Channel  # the last channel used
    attempts: Sequence[CarrierAttempt]
    error: str | None  # None if sent or possibly sent: in both cases the user may enter the code
    next_channel_at: int | None  # time to use the next channel, unless a receipt arrives first

    def to_finish(self, id_: str, team: int, key_id: str, at: int, owner: str, response: bytes = b"") -> Finish:
        last = self.attempts[-1] if self.attempts else None
        accepted = last.outcome if last and isinstance(last.outcome, Accepted) else Accepted()
        return Finish(
            id=id_,
            team=team,
            key_id=key_id,
            status="failed" if self.error else "pending",
            error_message=self.error,
            response=response,
            at=at,
            owner=owner,
            is_simulated=any(
                isinstance(attempt.outcome, Accepted) and is_simulator(attempt.carrier) for attempt in self.attempts
            ),
            attempts=self.attempts,
            channel=self.channel,
            next_at=self.next_channel_at,
            carrier=last.carrier.id if last else None,
            carrier_id=accepted.carrier_id or next(iter(accepted.parts), None),
        )


async def send_code(
    context: Context, caller: Caller, id_: str, to: CodeRecipient, carriers: CarriersByChannel, expires_at: int
) -> DispatchResult:
    """Send the code by the first channel on which a carrier does not refuse the message."""
    code, remaining = get_code(context, id_, to.normalized), list(carriers)
    attempts, error = list[CarrierAttempt](), None
    while remaining:
        channel = remaining.pop(0)
        # A new id for each mail: bounces refer to the id, and carriers drop a mail whose id they know as a duplicate.
        message_id = context.clock.new_id(PREFIXES["email"]) if channel == "email" else id_
        build_message = partial(_build_message, context, caller, message_id, to, channel, code, expires_at)
        choose_carrier = context.failover.choose_in_order_from_setup(carriers[channel][:CARRIERS_MAX])
        channel_attempts = await context.failover.send_with_failover(
            choose_carrier, build_message, stop_unless_unreachable=False, timeout_s=CARRIERS_TIMEOUT_S
        )
        attempts += channel_attempts
        error = _dispatch_error(
            channel_attempts,
            MAGIC_DISABLED_MESSAGE if is_magic_forbidden(caller, to.normalized) else NO_CARRIER_MESSAGE,
        )
        if error is None:
            break
    error = error and error.replace(code, "…")  # the carrier's error text may quote the message, and so the code
    next_channel_at = (
        _next_channel_time(context.clock.team_now(caller.team.record.ref), attempts[-1]) if remaining else None
    )
    return DispatchResult(channel=channel, attempts=attempts, error=error, next_channel_at=next_channel_at)


async def send_due_codes(context: Context) -> None:
    """Send codes by their next channel if the last one failed, or its receipt did not arrive in time."""
    store, clock = context.store, context.clock

    async def send_next(due: DueCode) -> None:
        caller = store.setup.current.callers.get(due.key_id)
        sent = DispatchResult(channel=due.channel, attempts=(), error=None, next_channel_at=None)
        if caller and due.sandbox == CAPTURED:
            caller = replace(caller, captured=True)
        # If the key was deleted or the code has expired, nothing is sent and the status stays unchanged.
        if caller and clock.team_now(due.team) < due.expires_at:
            channels = channels_still_to_try(due.channels, due.channel)[1:]
            to = CodeRecipient(
                original=due.to, normalized=due.phone, channels=channels, locale=stored_locale(due.added)
            )
            carriers = candidate_carriers(context, caller, to)
            sent = await send_code(context, caller, due.id, to, carriers, due.expires_at)
        await store.verifications.finish(
            sent.to_finish(due.id, due.team, due.key_id, clock.team_now(due.team), store.owner)
        )

    await asyncio.gather(*map(send_next, await store.verifications.claim_codes(store.owner, CODES_PER_ROUND)))


def is_magic_forbidden(caller: Caller, normalized: str) -> bool:
    """Return whether this magic recipient may not be verified.

    The codes of magic recipients are public, so a live team can verify them only if an operator enabled this.
    """
    return magic_recipients.is_magic(normalized) and not caller.team.sandbox and not caller.team.record.verify.magic


def candidate_carriers(context: Context, caller: Caller, to: CodeRecipient) -> CarriersByChannel:
    """Return the candidate carriers of each channel.

    A sandbox team never mixes simulators and real carriers: the kind of the first candidate decides.
    """
    reachable = {channel: _carriers_of_channel(context, caller, to.normalized, channel) for channel in to.channels}
    first = next((carrier for carriers in reachable.values() for carrier in carriers), None)
    if not caller.team.sandbox or first is None:
        return reachable
    return {
        channel: [carrier for carrier in carriers if is_simulator(carrier) == is_simulator(first)]
        for channel, carriers in reachable.items()
    }


def _carriers_of_channel(context: Context, caller: Caller, normalized: str, channel: Channel) -> list[CarrierRecord]:
    if is_magic_forbidden(caller, normalized) or (channel == "whatsapp" and code_template(caller.team) is None):
        return []
    if channel != "email":
        return available_carriers(context, caller, channel, normalized, country_of(normalized))
    simulated = caller.captured or caller.team.simulated or magic_recipients.is_magic_email(normalized)
    return [builtin_simulator("email")] if simulated else context.failover.eligible_carriers("email", None)


def is_simulator(carrier: CarrierRecord) -> bool:
    return carrier.kind == "simulator"


def get_code(context: Context, id_: str, normalized: str) -> str:
    """Return a verification's code, derived from its id, because a resend needs the code and only a hash is stored."""
    if magic_recipients.rejects_every_code(normalized):
        return UNMATCHABLE_CODE
    return magic_recipients.magic_code(normalized) or derive_code(context.code_key, id_)


def code_text(caller: Caller, platform: Platform, code: str, locale: str | None) -> str:
    """Return the text of the SMS, also shown in the test inbox."""
    verify_settings, brand = caller.team.record.verify, default_brand_values(caller.team, platform)["name"]
    return verify_text(platform.verify_text, locale or verify_settings.language, brand, code, verify_settings.webotp)


def stored_locale(added: str) -> str | None:
    """Return the locale requested when the verification was started."""
    return msgspec.json.decode(added, type=ExtraFields).locale


def supported_locale(context: Context, caller: Caller, channels: Sequence[Channel], locale: str | None) -> str | None:
    """Return the best supported locale for these channels; None (the team's default) if no locale was requested."""
    if locale is None:
        return None
    template = code_template(caller.team) if "whatsapp" in channels else None
    if template and len(channels) == 1:
        return localize(template, locale).locale
    languages_known = languages(context.store.setup.current.platform.verify_text) | {
        *(template.locales if template else ())
    }
    return match_language(languages_known, locale, caller.team.record.verify.language)


def _build_message(
    context: Context,
    caller: Caller,
    id_: str,
    to: CodeRecipient,
    channel: Channel,
    code: str,
    expires_at: int,
    _: CarrierRecord,
) -> OutboundMessage:
    team, platform = caller.team, context.store.setup.current.platform
    country, content = country_of(to.normalized), msgspec.Struct()
    if channel == "sms":
        text = code_text(caller, platform, code, to.locale)
        content = sms_content(team, platform, sender_id(team, country), text)
    elif channel == "email":
        language, brand = to.locale or team.record.verify.language, default_brand_values(caller.team, platform)
        mail = verify_mail(platform.verify_text, language, brand["name"], code)
        suffix = feedback_id_suffix(context.reply_key, team.record.id, from_template=False)
        content = replace(
            build_content(mail, code_mail_platform(caller, platform), to.original), feedback_id=f"{DIRECT}:{suffix}"
        )
    elif template := code_template(team):
        template, brand = localize(template, to.locale), default_brand_values(caller.team, platform)
        values = Values(dict.fromkeys(required_names(template), code))
        content = whatsapp_content(template, body_values(template, values, brand), render_body(template, values, brand))
    return OutboundMessage(
        message_id=id_,
        address=to.normalized,
        original_address=to.original,
        content=msgspec.json.encode(content),
        attempt=0,
        country=country,
        seconds_left=seconds_until(expires_at, context.clock.team_now(team.record.ref)),
        priority="critical",
    )


def code_mail_platform(caller: Caller, platform: Platform) -> Platform:
    """Return the platform settings for mails with codes: with the brand and a sender address of the team's domain.

    For sandbox teams and teams without a domain, the settings are unchanged.
    """
    domain = None if caller.team.sandbox else resolve_brand_domain(caller.team, caller.key, None)
    if domain is None:
        return platform
    return replace(platform, brand=domain.brand, sender=f"{SENDER_LOCAL_PART}@{domain.name}")


def _dispatch_error(attempts: Sequence[CarrierAttempt], no_attempt_error: str) -> str | None:
    """Return why the code was not sent; None if it was sent or possibly sent."""
    if not attempts:
        return no_attempt_error
    outcome = attempts[-1].outcome
    if isinstance(outcome, Accepted) or any(
        isinstance(deferred := attempt.outcome, Deferred) and deferred.uncertain for attempt in attempts
    ):
        return None
    return str(outcome.detail.get("text") or "The carrier refused the message.")


def _next_channel_time(now: int, attempt: CarrierAttempt) -> int | None:
    """Return when to send the code by the next channel; None if the carrier has confirmed delivery or will do so.

    If a simulator has announced that it will report a failure, return the time of that report.
    """
    accepted = attempt.outcome if isinstance(attempt.outcome, Accepted) else Accepted()
    for after_ms, report in accepted.reports:
        if report.status == "failed":
            return now + after_ms
    return None if accepted.delivered or accepted.reports else now + RECEIPT_TIMEOUT_MS
