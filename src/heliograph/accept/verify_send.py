"""Sends one-time codes inside the request: chooses channel, sender and text (contract 8 and 16).

A code that was accepted and has a further channel waits for a receipt; `send_due` uses the next channel if none came.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from heliograph.accept.context import Context
from heliograph.accept.phone import carriers_for
from heliograph.accept.whatsapp import whatsapp_content
from heliograph.carriers.contract import Parcel, left_s
from heliograph.domain.delivery import magic_recipients
from heliograph.domain.delivery.outcome import Accepted, Asked, Deferred
from heliograph.domain.delivery.routing import builtin_simulator, sender_id
from heliograph.domain.ids import PREFIXES
from heliograph.domain.mail.sender import brand_domain, usual_brand
from heliograph.domain.mail.system_mail import to_content
from heliograph.domain.phones.phone import country_of
from heliograph.domain.phones.sms import sms_content
from heliograph.domain.sending.acceptance import CAUGHT
from heliograph.domain.sending.send_options import Added
from heliograph.domain.setup.records import Caller, CarrierRecord, Channel, Platform
from heliograph.domain.verify.verification import RECEIPT_MS, channels_from, code_template, derived_code
from heliograph.domain.verify.verify_text import languages, verify_mail, verify_text
from heliograph.storage.verifications import Claimed, Finish
from heliograph.templates.policy.locales import in_locale, language_used
from heliograph.templates.policy.render import render_body
from heliograph.templates.policy.values import Values, asked_names, with_brand

CARRIERS_S = 8.0  # timeout for all carriers of a channel together (contract 8)
CARRIERS_MAX = 2
AT_ONCE = 20  # codes sent per round by `send_due`
SENDER = "no-reply"  # local part of the sender address of codes by email
NO_CARRIER = "No carrier serves this destination now."
MAGIC_OFF = (
    "This is a magic number or address, and this live team does not verify those. Use a real one, or ask the operator "
    "to set verify.magic for the team."
)
NO_CODE = "no code matches"  # longer than any code that a user can submit

CarriersByChannel = dict[Channel, list[CarrierRecord]]


class CodeTo(msgspec.Struct, frozen=True, kw_only=True):
    """The recipient of a code, and the channels that may be used."""

    given: str
    normal: str
    channels: list[Channel]
    locale: str | None  # None for the team's default


class Dispatched(msgspec.Struct, frozen=True, kw_only=True):
    """Result of sending a code."""

    channel: Channel  # the last channel used
    asked: Sequence[Asked]
    error: str | None  # None if sent or possibly sent; the code must then be valid
    next_at: int | None  # time to use the next channel, unless a receipt arrives first

    def finish(self, id_: str, team: int, key_id: str, at: int, owner: str, response: bytes = b"") -> Finish:
        last = self.asked[-1] if self.asked else None
        taken = last.outcome if last and isinstance(last.outcome, Accepted) else Accepted()
        return Finish(
            id=id_,
            team=team,
            key_id=key_id,
            status="failed" if self.error else "pending",
            error_message=self.error,
            response=response,
            at=at,
            owner=owner,
            simulated=any(isinstance(one.outcome, Accepted) and is_simulator(one.carrier) for one in self.asked),
            asked=self.asked,
            channel=self.channel,
            next_at=self.next_at,
            carrier=last.carrier.id if last else None,
            carrier_id=taken.carrier_id or next(iter(taken.parts), None),
        )


async def send_code(
    context: Context, caller: Caller, id_: str, to: CodeTo, carriers: CarriersByChannel, expires_at: int
) -> Dispatched:
    """Send the code by the first channel whose carriers do not refuse the message."""
    code, left, asked, error = code_of(context, id_, to.normal), list(carriers), list[Asked](), None
    while left:
        channel = left.pop(0)
        # Each mail needs a new id: bounces refer to it, and a mail with a known id is dropped as a duplicate.
        named = context.clock.new_id(PREFIXES["email"]) if channel == "email" else id_
        build = partial(_parcel, context, caller, named, to, channel, code, expires_at)
        choose = context.handover.first_of_current(carriers[channel][:CARRIERS_MAX])
        said = await context.handover.in_turn(choose, build, may_wait=False, within_s=CARRIERS_S)
        asked += said
        error = _error(said, MAGIC_OFF if is_shut(caller, to.normal) else NO_CARRIER)
        if error is None:
            break
    error = error and error.replace(code, "…")  # some carriers quote the refused message
    next_at = _next_at(context.clock.of(caller.team.record.ref), asked[-1]) if left else None
    return Dispatched(channel=channel, asked=asked, error=error, next_at=next_at)


async def send_due(context: Context) -> None:
    """Send codes by their next channel if the last one reported a failure or no receipt in time."""
    store, clock = context.store, context.clock

    async def send(due: Claimed) -> None:
        caller = store.setup.current.callers.get(due.key_id)
        sent = Dispatched(channel=due.channel, asked=(), error=None, next_at=None)
        if caller and due.sandbox == CAUGHT:
            caller = replace(caller, caught=True)
        # Otherwise the key was deleted or the code expired: leave the status unchanged
        if caller and clock.of(due.team) < due.expires_at:
            channels = channels_from(due.channels, due.channel)[1:]
            to = CodeTo(given=due.to, normal=due.phone, channels=channels, locale=locale_in(due.added))
            carriers = carriers_by_channel(context, caller, to)
            sent = await send_code(context, caller, due.id, to, carriers, due.expires_at)
        await store.verifications.finish(sent.finish(due.id, due.team, due.key_id, clock.of(due.team), store.owner))

    await asyncio.gather(*map(send, await store.verifications.claim_codes(store.owner, AT_ONCE)))


def is_shut(caller: Caller, normal: str) -> bool:
    """Return whether verifying this magic recipient is forbidden.

    The codes of magic recipients are public, so a live team verifies them only if an operator enabled that.
    """
    return magic_recipients.is_magic(normal) and not caller.team.sandbox and not caller.team.record.verify.magic


def carriers_by_channel(context: Context, caller: Caller, to: CodeTo) -> CarriersByChannel:
    """Return the candidate carriers of each channel.

    The code of a sandbox team uses only simulators or only real carriers, as the first candidate decides.
    """
    reachable = {channel: _carriers(context, caller, to.normal, channel) for channel in to.channels}
    first = next((carrier for carriers in reachable.values() for carrier in carriers), None)
    if not caller.team.sandbox or first is None:
        return reachable
    return {
        channel: [carrier for carrier in carriers if is_simulator(carrier) == is_simulator(first)]
        for channel, carriers in reachable.items()
    }


def _carriers(context: Context, caller: Caller, normal: str, channel: Channel) -> list[CarrierRecord]:
    if is_shut(caller, normal) or (channel == "whatsapp" and code_template(caller.team) is None):
        return []
    if channel != "email":
        return carriers_for(context, caller, channel, normal, country_of(normal))
    simulated = caller.caught or caller.team.simulated or magic_recipients.is_magic_email(normal)
    return [builtin_simulator("email")] if simulated else context.handover.reachable("email", None)


def is_simulator(carrier: CarrierRecord) -> bool:
    return carrier.kind == "simulator"


def code_of(context: Context, id_: str, normal: str) -> str:
    """Return the code. A code is derived from the id, because a resend repeats it and only its hash is stored."""
    if magic_recipients.no_code_matches(normal):
        return NO_CODE
    return magic_recipients.magic_code(normal) or derived_code(context.code_key, id_)


def code_text(caller: Caller, platform: Platform, code: str, locale: str | None) -> str:
    """Return the text of the SMS; the test inbox shows the same text."""
    chosen, brand = caller.team.record.verify, usual_brand(caller.team, platform)["name"]
    return verify_text(platform.verify_text, locale or chosen.language, brand, code, chosen.webotp)


def locale_in(added: str) -> str | None:
    """Return the locale requested when the verification was started."""
    return msgspec.json.decode(added, type=Added).locale


def locale_used(context: Context, caller: Caller, channels: Sequence[Channel], locale: str | None) -> str | None:
    """Return the best supported locale for these channels; None if none was requested (the team's default applies)."""
    if locale is None:
        return None
    template = code_template(caller.team) if "whatsapp" in channels else None
    if template and len(channels) == 1:
        return in_locale(template, locale).locale
    known = languages(context.store.setup.current.platform.verify_text) | {*(template.locales if template else ())}
    return language_used(known, locale, caller.team.record.verify.language)


def _parcel(
    context: Context,
    caller: Caller,
    id_: str,
    to: CodeTo,
    channel: Channel,
    code: str,
    expires_at: int,
    _: CarrierRecord,
) -> Parcel:
    team, platform = caller.team, context.store.setup.current.platform
    country, content = country_of(to.normal), msgspec.Struct()
    if channel == "sms":
        text = code_text(caller, platform, code, to.locale)
        content = sms_content(team, platform, sender_id(team, country), text)
    elif channel == "email":
        language, brand = to.locale or team.record.verify.language, usual_brand(caller.team, platform)
        mail = verify_mail(platform.verify_text, language, brand["name"], code)
        content = to_content(mail, mail_sender(caller, platform), to.given)
    elif template := code_template(team):
        template, brand = in_locale(template, to.locale), usual_brand(caller.team, platform)
        values = Values(dict.fromkeys(asked_names(template), code))
        content = whatsapp_content(template, with_brand(template, values, brand), render_body(template, values, brand))
    return Parcel(
        message_id=id_,
        address=to.normal,
        given=to.given,
        content=msgspec.json.encode(content),
        attempt=0,
        country=country,
        left_s=left_s(expires_at, context.clock.of(team.record.ref)),
        priority="critical",
    )


def mail_sender(caller: Caller, platform: Platform) -> Platform:
    """Return the sender of code mails: the team's own domain, or the platform for sandbox teams."""
    domain = None if caller.team.sandbox else brand_domain(caller.team, caller.key, None)
    if domain is None:
        return platform
    return msgspec.structs.replace(platform, brand=domain.brand, sender=f"{SENDER}@{domain.name}")


def _error(asked: Sequence[Asked], nobody: str) -> str | None:
    """Return why the code was not sent; None if sent or possibly sent, as the code must then be valid."""
    if not asked:
        return nobody
    said = asked[-1].outcome
    if isinstance(said, Accepted) or any(isinstance(o := one.outcome, Deferred) and o.uncertain for one in asked):
        return None
    return str(said.detail.get("text") or "The carrier refused the message.")


def _next_at(now: int, last: Asked) -> int | None:
    """Return when the next channel is due.

    A carrier that already reports a later failure (a simulator) sets that time; None if delivery is certain.
    """
    taken = last.outcome if isinstance(last.outcome, Accepted) else Accepted()
    for after_ms, report in taken.reports:
        if report.status == "failed":
            return now + after_ms
    return None if taken.delivered or taken.reports else now + RECEIPT_MS
