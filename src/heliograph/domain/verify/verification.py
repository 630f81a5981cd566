"""One-time codes: life cycle, checks, and limits of starts (spec 3.2, contract 8)."""

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from heliograph.domain.limits import (
    CODE_DIGITS,
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    VERIFICATION_CODE_MAX,
    VERIFICATION_CODE_MIN,
    WRONG_CODES_MAX,
)
from heliograph.domain.refusals import InvalidCodeFormat, UnsupportedChannel, VerifyRateLimited
from heliograph.domain.setup.records import CHANNELS, Channel, Team, Template, VerifyLimits
from heliograph.domain.text import quoted
from heliograph.domain.verify.verify_text import text_for_language
from heliograph.templates.policy.meta_status import is_available
from heliograph.templates.policy.values import required_names

TEN_MINUTES_MS = 10 * MINUTE_MS
RECEIPT_TIMEOUT_MS = 20 * SECOND_MS  # without a receipt for this long, the code is sent by the next channel
CANCELED = "Canceled by the caller."  # error_message of a canceled verification
VERIFICATION_STATES = ("pending", "verified", "expired", "exhausted", "failed")


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    verified: bool
    status: str
    wrong_codes: int


def parse_channels(requested: str | list[str] | None, team: Team) -> list[Channel]:
    """Return the requested channels in the order in which they are tried; raise UnsupportedChannel if one is invalid.

    Every team may use SMS, and other channels if an operator enabled them.
    """
    channels: list[Channel] = []
    for name in requested if isinstance(requested, list) else ["sms" if requested is None else requested]:
        channel = next((allowed for allowed in ("sms", *team.record.verify.channels) if allowed == name), None)
        if channel is None:
            raise UnsupportedChannel(f"Verify cannot use {quoted(name)}. {UnsupportedChannel.fix}", param="channel")
        if channel in channels:
            raise UnsupportedChannel(f"The channel {name} is listed twice. List each channel once.", param="channel")
        channels.append(channel)
    if not channels:
        raise UnsupportedChannel(param="channel")
    if "whatsapp" in channels and code_template(team) is None:
        raise UnsupportedChannel(
            "Verify by WhatsApp needs an approved AUTHENTICATION template with one variable, the code.", param="channel"
        )
    return channels


def channels_still_to_try(stored: str, used: Channel) -> list[Channel]:
    """Return the channels of a resend: the channel used last, then the channels that follow in the stored order."""
    names = stored.split()
    return sorted(set(CHANNELS) & set(names[names.index(used) :]), key=names.index)


def code_template(team: Team) -> Template | None:
    """Return the team's approved template for WhatsApp codes.

    Prefers a template in the team's language, then in English, then any. A template that is unavailable at Meta is the
    last choice: the send is then refused with the reason.
    """
    usable = [
        template
        for template in sorted(team.templates.values(), key=lambda candidate: candidate.id, reverse=True)
        if template.channel == "whatsapp"
        and (template.status, template.category) == ("approved", "AUTHENTICATION")
        and len(required_names(template)) == 1
    ]
    usable = [template for template in usable if is_available(team, template)] or usable
    by_language = {(template.language or "en").replace("_", "-"): template for template in usable}
    return text_for_language(by_language, team.record.verify.language) or (usable[-1] if usable else None)


def parse_code(value: object) -> str:
    if not isinstance(value, str) or not VERIFICATION_CODE_MIN <= len(value) <= VERIFICATION_CODE_MAX:
        raise InvalidCodeFormat(param="code")
    return value


def make_code(random: int) -> str:
    """Return the six-digit code for a random number below 10^6."""
    if not 0 <= random < 10**CODE_DIGITS:
        raise ValueError(f"a code needs a number below 10^{CODE_DIGITS}")
    return f"{random:0{CODE_DIGITS}d}"


def derive_code(key: bytes, verification: str) -> str:
    """Derive the code of a verification from the key, so that it can be reproduced and need not be stored."""
    digest = hmac.digest(key, f"code/{verification}".encode(), hashlib.sha256)
    return make_code(int.from_bytes(digest) % 10**CODE_DIGITS)


def code_digest(key: bytes, salt: bytes, code: str) -> bytes:
    return hmac.digest(key, salt + code.encode(), hashlib.sha256)


def current_status(status: str, now: int, expires_at: int) -> str:
    return "expired" if status == "pending" and now >= expires_at else status


def attempts_left(wrong_codes: int) -> int:
    return max(0, WRONG_CODES_MAX - wrong_codes)


def check_code(status: str, wrong_codes: int, now: int, expires_at: int, matches: bool) -> CheckResult:
    """Return the result of checking a code against a verification.

    `matches`: whether the code is right. Only a pending verification consumes attempts.
    """
    current = current_status(status, now, expires_at)
    if current != "pending":
        return CheckResult(verified=False, status=current, wrong_codes=wrong_codes)
    if matches:
        return CheckResult(verified=True, status="verified", wrong_codes=wrong_codes)
    wrong_codes += 1
    return CheckResult(
        verified=False, status="pending" if attempts_left(wrong_codes) else "exhausted", wrong_codes=wrong_codes
    )


def check_velocity(
    limits: VerifyLimits,
    *,
    country: str | None,
    phone_starts: Sequence[int],
    prefix_starts: Sequence[int],
    wrong_today: int,
    now: int,
) -> None:
    """Reject a start that exceeds the team's limits; the error contains the wait until all limits allow a start.

    `phone_starts`: times of starts in the last 24 hours, `prefix_starts`: in the last 10 minutes, in any order.
    `wrong_today`: number of wrong codes for the phone on this UTC day. A limit of 0 is disabled.
    """
    if "*" not in limits.countries and country not in limits.countries:
        raise VerifyRateLimited(
            f"This team cannot start verifications in {country or 'an unknown country'}. "
            "Ask the operator to add the country to the team's verify.countries.",
            param="to",
            details={"country": country},
            retry_after=DAY_MS // SECOND_MS,
        )
    interval = limits.min_interval_s * SECOND_MS
    allowed_at = {
        f"one in {limits.min_interval_s} s for a phone number": max(phone_starts, default=now - interval) + interval,
        f"{limits.per_phone_10m} in 10 minutes for a phone number": _free_at(
            phone_starts, limits.per_phone_10m, TEN_MINUTES_MS, now
        ),
        f"{limits.per_phone_day} in a day for a phone number": _free_at(
            phone_starts, limits.per_phone_day, DAY_MS, now
        ),
        f"{limits.per_prefix_10m} in 10 minutes for numbers with the same prefix": _free_at(
            prefix_starts, limits.per_prefix_10m, TEN_MINUTES_MS, now
        ),
        f"{limits.wrong_per_phone_day} wrong codes in a day for a phone number": (
            now - now % DAY_MS + DAY_MS if 0 < limits.wrong_per_phone_day <= wrong_today else now
        ),
    }
    limit, at = max(allowed_at.items(), key=lambda item: item[1])
    if at > now:
        raise VerifyRateLimited(
            f"Too many verifications: the limit is {limit}. {VerifyRateLimited.fix}",
            param="to",
            retry_after=-(-(at - now) // SECOND_MS),
        )


def _free_at(starts: Sequence[int], limit: int, window: int, now: int) -> int:
    """Return when a sliding window allows another start; `now` if a start is allowed already."""
    recent = sorted(at for at in starts if at > now - window)
    if limit == 0 or len(recent) < limit:
        return now
    return recent[-limit] + window
