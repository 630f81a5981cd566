"""Money: parsing and formatting amounts, the price of a send, quotas, and movements of ledger accounts.

Amounts are integers of 10^-6 currency units (contract 7).
"""

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import NamedTuple

import msgspec

from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import InsufficientCredit, InvalidRequest, SandboxLimitReached, StorageLimitReached
from heliograph.domain.setup.records import Platform, Template

MICROS_PER_UNIT = 1_000_000
CREDIT_MAX = 10**12 * MICROS_PER_UNIT

# Kind of ledger entry → (from, to): accounts between which the entry moves its amount, so that all sum to zero
ACCOUNTS_BY_ENTRY_KIND: dict[str, tuple[str, str]] = {
    "topup": ("funding", "credit"),
    "hold": ("credit", "held"),
    "capture": ("held", "revenue"),
    "release": ("held", "credit"),
    "adjustment": ("funding", "credit"),  # the only kind whose amount may be negative
}

# 12 whole digits keep every amount within the databases' 64-bit integers.
_MONEY = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?")
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


def parse_money(text: str) -> int:
    """Parse an amount such as '0.0450', which gives 45000."""
    match = _MONEY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an amount such as '0.0450' (digits, at most 6 decimals)")
    return int(match[1]) * MICROS_PER_UNIT + int((match[2] or "").ljust(6, "0"))


def parse_signed_money(text: str) -> int:
    """Parse an amount with an optional sign, such as '25.00' or '-5.00'."""
    return -parse_money(text[1:]) if text.startswith("-") else parse_money(text.removeprefix("+"))


def format_money(micros: int) -> str:
    """Format an amount such as 45000 as '0.0450': with four decimals, or up to six if needed."""
    units, fraction = divmod(abs(micros), MICROS_PER_UNIT)
    decimals = f"{fraction:06d}".rstrip("0").ljust(4, "0")
    return f"{'-' if micros < 0 else ''}{units}.{decimals}"


def format_amount(micros: int) -> str:
    """Format 45000 as '0.045' and 125000000 as '125.00': all decimals, at least two, for people and forms."""
    units, _, decimals = format_money(micros).partition(".")
    return f"{units}.{decimals.rstrip('0'):0<2}"


def price_for(template: Template, country: str | None) -> int:
    """Return the template's price for one send; the price of the country takes precedence, even if it is 0."""
    return template.price if country is None else template.prices.get(country, template.price)


def price_groups(template: Template) -> list[tuple[list[str], int]]:
    """Return (countries, price) groups of the template, cheapest first; last, without countries, the default price."""
    groups: dict[int, list[str]] = {}
    for country, price in sorted(template.prices.items()):
        groups.setdefault(price, []).append(country)
    return [*((groups[price], price) for price in sorted(groups)), ([], template.price)]


def sms_price(template: Template, country: str | None, segments: int) -> int:
    return price_for(template, country) * segments


def verify_price(platform: Platform, currency: str) -> int:
    return platform.verify_price.get(currency, 0)


class Account(msgspec.Struct, kw_only=True):
    """A team's totals, updated in memory while a batch is decided."""

    team: int
    available: int  # spendable credit
    held: int
    month: str  # "2026-11", the month that `used` counts
    used: int  # email recipients counted toward the quota of that month
    erased: int = 0  # 1: the team's suppression list has hashes of erased addresses
    sandbox_day: int = 0  # the day that `sandbox_used` counts, as days since 1970
    sandbox_used: int = 0  # messages and codes of a sandbox team over real carriers
    octets_day: int = 0  # the day that `octets_used` counts, as days since 1970
    octets_used: int = 0  # bytes of contents and attachments
    opted_out: int = 0  # 1: phones have opted out of the team's messages
    key_uses: str = ""  # uses of the team's restricted keys (`key_limits.py`), as JSON


def month_of(ms: int) -> str:
    """Return the UTC calendar month, such as '2026-11'."""
    return _month_of_day(ms // DAY_MS)


@lru_cache(maxsize=64)
def _month_of_day(day: int) -> str:
    return date.fromordinal(_EPOCH_ORDINAL + day).isoformat()[:7]


def use_quota(account: Account, count: int, quota: int, month: str) -> bool:
    """Count recipients toward the monthly quota; return True if the send started within the quota and is free."""
    if month > account.month:  # a late request of the previous month must not reset the month
        account.month, account.used = month, 0
    is_free = account.used < quota
    account.used += count
    return is_free


def refund_quota(account: Account, count: int, month: str) -> None:
    """Reduce the used quota by `count` email recipients who were counted in `month`, but will not get the email."""
    if account.month == month:
        account.used = max(0, account.used - count)


def count_sandbox_send(account: Account, limit: int, now: int) -> None:
    """Count a sandbox team's message or code over a real carrier: at most `limit` per UTC day (contract 13)."""
    day = now // DAY_MS
    if day > account.sandbox_day:  # a late request of the previous day must not reset the day
        account.sandbox_day, account.sandbox_used = day, 0
    if account.sandbox_used >= limit:
        raise SandboxLimitReached(
            f"A sandbox team can send {limit} messages and codes a day through real carriers. "
            f"{SandboxLimitReached.fix}",
            param="to",
            retry_after=_seconds_to_midnight(account.sandbox_day, now),
        )
    account.sandbox_used += 1


def count_stored_bytes(account: Account, size: int, limit: int, now: int) -> None:
    """Count the stored bytes of a message. At most `limit` are allowed per team and UTC day (contract 1)."""
    day = now // DAY_MS
    if day > account.octets_day:  # a late request of the previous day must not reset the day
        account.octets_day, account.octets_used = day, 0
    if account.octets_used + size > limit:
        raise StorageLimitReached(
            f"The team can store {limit} bytes a day (octets_per_day) and has stored {account.octets_used}; "
            f"this message needs {size}. {StorageLimitReached.fix}",
            retry_after=_seconds_to_midnight(account.octets_day, now),
        )
    account.octets_used += size


def _seconds_to_midnight(day: int, now: int) -> int:
    """Return the seconds until the end of the UTC day `day`."""
    return max(1, -(-((day + 1) * DAY_MS - now) // SECOND_MS))


def hold(account: Account, amount: int) -> None:
    _check_amount(amount)
    if account.available < amount:
        raise InsufficientCredit(
            f"This message costs {format_money(amount)}, and the credit is {format_money(account.available)}. "
            f"{InsufficientCredit.fix}",
            details={"price": format_money(amount), "credit": format_money(account.available)},
        )
    account.available -= amount
    account.held += amount


def capture(account: Account, amount: int) -> None:
    _reduce_held(account, amount)


def release(account: Account, amount: int) -> None:
    _reduce_held(account, amount)
    account.available += amount


def adjust_credit(account: Account, amount: int) -> str:
    """Add a top-up, or a correction if the amount is negative; return the kind of the ledger entry."""
    if not amount:
        raise ValueError("the amount must not be 0")
    if account.available + amount < 0:
        raise ValueError(f"the credit is only {format_money(account.available)}")
    if account.available + account.held + amount > CREDIT_MAX:
        raise ValueError(f"the credit cannot exceed {format_money(CREDIT_MAX)}")
    account.available += amount
    return "topup" if amount > 0 else "adjustment"


def credit_change(kind: str, amount: int) -> int:
    """Return by how much a ledger entry changed the credit that can be spent."""
    return balance_change(kind, amount, "credit")


def balance_change(kind: str, amount: int, account: str) -> int:
    """Return by how much a ledger entry changed the balance named `account`."""
    source, target = ACCOUNTS_BY_ENTRY_KIND[kind]
    return amount * ((target == account) - (source == account))


class Charge(NamedTuple):
    amount: int = 0
    charges: int = 0

    def plus(self, other: "Charge") -> "Charge":
        return Charge(self.amount + other.amount, self.charges + other.charges)


KIND_BY_ID_PREFIX = {PREFIXES[kind]: kind for kind in ("email", "sms", "whatsapp", "verification")}


def sum_charges(ledger_entries: Iterable[tuple[str, int, str | None, int]]) -> dict[tuple[str, str], Charge]:
    """Sum the charges by UTC month and kind of message. `ledger_entries`: (kind, amount, subject, time)."""
    spend: dict[tuple[str, str], Charge] = {}
    for kind, amount, subject, at in ledger_entries:
        if kind == "capture" and (message_kind := KIND_BY_ID_PREFIX.get((subject or "")[:4])):
            month_and_kind = (month_of(at), message_kind)
            spend[month_and_kind] = spend.get(month_and_kind, Charge()).plus(Charge(amount, 1))
    return spend


def _reduce_held(account: Account, amount: int) -> None:
    _check_amount(amount)
    if account.held < amount:
        raise ValueError(f"team {account.team} holds {account.held}, cannot take {amount} from it")
    account.held -= amount


def _check_amount(amount: int) -> None:
    if amount < 0:
        raise ValueError(f"an amount of {amount} cannot be held, captured or released")


def currency_refusal(team: str, booked: str, currency: str) -> InvalidRequest:
    """Return the error for a change of a team's currency after amounts were booked; they are not converted."""
    return InvalidRequest(
        f"{team} has amounts booked in {booked}, so its currency cannot change. Create another team for {currency}.",
        param="currency",
        details={"team": team},
    )
