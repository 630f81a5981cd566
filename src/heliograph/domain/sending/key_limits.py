"""Limits of restricted keys: recipients per hour and day, and spend per day, in rolling windows (contract 20).

A team's account stores the uses of its restricted keys in the last day. An accept locks and writes the account anyway,
so counting across processes needs no extra statement.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal

import msgspec

from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.refusals import KeyLimitReached
from heliograph.domain.sending.pricing import Account, format_money
from heliograph.domain.setup.records import Key, KeyRestrictions

LimitName = Literal["per_hour", "per_day", "spend_per_day"]

WINDOW_MS: dict[LimitName, int] = {"per_hour": HOUR_MS, "per_day": DAY_MS, "spend_per_day": DAY_MS}
PERIODS: dict[LimitName, str] = {"per_hour": "60 minutes", "per_day": "24 hours", "spend_per_day": "24 hours"}
# Above this number, uses of a key that are close in time are merged. A merged use counts until its last send leaves the
# window.
USES_MAX = 500
# Maximum time from the first to the last send of a merged use: in the last hour, and before
RECENT_SPAN_MS, OLD_SPAN_MS = 15 * SECOND_MS, 6 * MINUTE_MS


class KeyUse(msgspec.Struct, array_like=True):
    """One send, or several merged sends, which count until the last of them leaves the window."""

    since: int  # time of the first send
    at: int  # time of the last send
    recipients: int
    spend: int  # amount charged or held for these sends


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of a key, and how much of it is used at a moment."""

    limit: int
    left: int
    frees_at: int | None  # when the oldest use leaves the window; None if nothing is used


# id of the key whose limits count → id of the key that was used → its uses, oldest first. The two ids differ after a
# rotation.
_UsesByKey = dict[str, dict[str, list[KeyUse]]]
_decoder = msgspec.json.Decoder(_UsesByKey)


def limits_of(restrictions: KeyRestrictions) -> dict[LimitName, int]:
    limits: dict[LimitName, int | None] = {
        "per_hour": restrictions.per_hour,
        "per_day": restrictions.per_day,
        "spend_per_day": restrictions.spend_per_day,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def count_use(account: Account, key: Key, recipients: int, spend: int, now: int) -> None:
    """Count a send of a restricted key; raise KeyLimitReached, without counting, if the send would exceed a limit."""
    limits = limits_of(key.restrictions) if key.restrictions else {}
    if not limits:
        return
    uses_by_key = _decode(account)
    uses_by_token = uses_by_key.setdefault(key.counts_as or key.id, {})
    uses = _sort_by_time(uses_by_token)
    _check_limits(limits, uses, recipients, spend, now)
    token_uses = uses_by_token.setdefault(key.id, [])
    token_uses.append(KeyUse(now, now, recipients, spend))
    token_uses.sort(key=attrgetter("at"))  # out of order if the clock of another process is ahead
    account.key_uses = _encode(uses_by_key, now)


def refund_spend(account: Account, key_id: str, counted_at: int, amount: int) -> None:
    """Subtract `amount` from the spend counted for the send at `counted_at`, because it is not charged.

    Its recipients still count toward the key's recipient limits. A negative amount adds the spend again.
    """
    uses_by_key = _decode(account)
    for uses_by_token in uses_by_key.values():
        for use in uses_by_token.get(key_id, ()):
            if use.since <= counted_at <= use.at:
                use.spend = max(0, use.spend - amount)
                account.key_uses = msgspec.json.encode(uses_by_key).decode()
                return


def limit_states(account: Account, key: Key, now: int) -> dict[LimitName, LimitState]:
    """Return the state of each of a restricted key's limits."""
    if key.restrictions is None:
        return {}
    uses = _sort_by_time(_decode(account).get(key.counts_as or key.id, {}))
    states: dict[LimitName, LimitState] = {}
    for name, limit in limits_of(key.restrictions).items():
        window = [use for use in uses if use.at > now - WINDOW_MS[name] and _amount(use, name)]
        states[name] = LimitState(
            limit=limit,
            left=max(0, limit - sum(_amount(use, name) for use in window)),
            frees_at=window[0].at + WINDOW_MS[name] if window else None,
        )
    return states


def _check_limits(limits: dict[LimitName, int], uses: Sequence[KeyUse], recipients: int, spend: int, now: int) -> None:
    reached: tuple[int, LimitName, int] | None = None  # wait, limit, used
    for name, limit in limits.items():
        requested = _amount(KeyUse(now, now, recipients, spend), name)
        window = [use for use in uses if use.at > now - WINDOW_MS[name]]
        used = sum(_amount(use, name) for use in window)
        if not limit or (requested and used + requested > limit):  # 0 permits nothing, not even free messages
            wait = _free_at(window, name, used + requested - limit, now) - now
            reached = max(reached or (0, name, used), (wait, name, used))
    if reached:
        wait, name, used = reached
        raise KeyLimitReached(
            f"{_describe(name, limits[name], used, recipients, spend)} {KeyLimitReached.fix}",
            details={"limit": name},
            retry_after=max(1, -(-wait // SECOND_MS)),
        )


def _free_at(window: Sequence[KeyUse], name: LimitName, excess: int, now: int) -> int:
    """Return when enough uses have left the window; one window from now if the send alone exceeds the limit."""
    for use in window:
        excess -= _amount(use, name)
        if excess <= 0:
            return use.at + WINDOW_MS[name]
    return now + WINDOW_MS[name]


def _describe(name: LimitName, limit: int, used: int, recipients: int, spend: int) -> str:
    if name == "spend_per_day":
        return (
            f"This key may spend {format_money(limit)} in {PERIODS[name]}; it has spent {format_money(used)}, and this "
            f"message costs {format_money(spend)}."
        )
    return (
        f"This key may send to {limit} recipients in {PERIODS[name]}; it has sent to {used}, and this message has "
        f"{recipients}."
    )


def _amount(use: KeyUse, name: LimitName) -> int:
    return use.spend if name == "spend_per_day" else use.recipients


def _decode(account: Account) -> _UsesByKey:
    return _decoder.decode(account.key_uses) if account.key_uses else {}


def _sort_by_time(uses_by_token: dict[str, list[KeyUse]]) -> list[KeyUse]:
    if len(uses_by_token) == 1:
        return next(iter(uses_by_token.values()))
    return sorted((use for uses in uses_by_token.values() for use in uses), key=attrgetter("at"))


def _encode(uses_by_key: _UsesByKey, now: int) -> str:
    """Return the uses of the last day as JSON, with the uses of very active keys merged."""
    current_uses: _UsesByKey = {}
    for counted_as, uses_by_token in uses_by_key.items():
        current = {
            key_id: list(_merge(recent, now)) if len(recent) > USES_MAX else recent
            for key_id, uses in uses_by_token.items()
            if (recent := [use for use in uses if use.at > now - DAY_MS])
        }
        if current:
            current_uses[counted_as] = current
    return msgspec.json.encode(current_uses).decode() if current_uses else ""


def _merge(uses: Sequence[KeyUse], now: int) -> Iterator[KeyUse]:
    """Merge uses that are close together in time into one."""
    previous: KeyUse | None = None
    for use in uses:
        span = RECENT_SPAN_MS if use.at > now - HOUR_MS else OLD_SPAN_MS
        if previous and previous.at // span == use.at // span:
            use = KeyUse(previous.since, use.at, previous.recipients + use.recipients, previous.spend + use.spend)
        elif previous:
            yield previous
        previous = use
    if previous:
        yield previous
