"""Amounts, prices, the quota and the ledger accounts."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heliograph.domain.refusals import InsufficientCredit
from heliograph.domain.sending.pricing import (
    ACCOUNTS_BY_ENTRY_KIND,
    Account,
    capture,
    credit_change,
    format_money,
    hold,
    month_of,
    parse_money,
    parse_signed_money,
    price_for,
    price_groups,
    release,
    sms_price,
    use_quota,
    verify_price,
)
from heliograph.domain.setup.records import Platform, Template

TEMPLATE = Template(
    id="tpl_1", team="team_1", channel="sms", name="t", body="x", price=40_000, prices={"GB": 10_000, "IN": 0}
)


def account(available: int = 0, held: int = 0, month: str = "2026-11", used: int = 0) -> Account:
    return Account(team=1, available=available, held=held, month=month, used=used)


@pytest.mark.parametrize(
    ("text", "micros", "shown"),
    [
        ("0.0450", 45_000, "0.0450"),
        ("25", 25_000_000, "25.0000"),
        ("25.00", 25_000_000, "25.0000"),
        ("0", 0, "0.0000"),
        ("0.000001", 1, "0.000001"),
        ("0.12345", 123_450, "0.12345"),
        ("999999999999.999999", 999_999_999_999_999_999, "999999999999.999999"),
    ],
)
def test_money_parses_and_formats(text: str, micros: int, shown: str) -> None:
    assert parse_money(text) == micros
    assert format_money(micros) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "+1", "1e3", "1.", ".5", "0.0000001", "1,5", " 1", "1 ", "1\n", "٣", "1_000", "NaN"),
        "1000000000000",
    ],
)
def test_money_invalid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        parse_money(text)


@pytest.mark.parametrize(("micros", "shown"), [(-45_000, "-0.0450"), (-1, "-0.000001"), (-2_000_000, "-2.0000")])
def test_negative_money_keeps_its_sign(micros: int, shown: str) -> None:
    assert format_money(micros) == shown


@settings(max_examples=50)
@given(st.integers(0, 10**18 - 1))
def test_money_round_trips(micros: int) -> None:
    assert parse_money(format_money(micros)) == micros


@pytest.mark.parametrize(("country", "price"), [("GB", 10_000), ("IN", 0), ("US", 40_000), (None, 40_000)])
def test_template_price_depends_on_the_country(country: str | None, price: int) -> None:
    assert price_for(TEMPLATE, country) == price
    assert sms_price(TEMPLATE, country, 3) == 3 * price


def test_verify_price_depends_on_the_currency() -> None:
    platform = Platform(verify_price={"EUR": 45_000})
    assert verify_price(platform, "EUR") == 45_000
    assert verify_price(platform, "USD") == 0


@pytest.mark.parametrize(
    ("ms", "month"),
    [
        (0, "1970-01"),
        (1_793_491_199_999, "2026-10"),
        (1_793_491_200_000, "2026-11"),
        (1_796_083_199_999, "2026-11"),
        (1_796_083_200_000, "2026-12"),
        (1_709_164_800_000, "2024-02"),  # the 29th
    ],
)
def test_month_of_timestamp_is_utc(ms: int, month: str) -> None:
    assert month_of(ms) == month


@pytest.mark.parametrize(
    ("used", "before", "month", "free", "after"),
    [
        (0, "2026-11", "2026-11", True, 3),
        (9, "2026-11", "2026-11", True, 12),  # begins within the quota: all recipients count, the send is free
        (10, "2026-11", "2026-11", False, 13),
        (13, "2026-11", "2026-11", False, 16),
        (99, "2026-10", "2026-11", True, 3),  # a new month
        (10, "2026-11", "2026-10", False, 13),  # a late request does not reset the month
    ],
)
def test_free_quota_is_used_and_reset_monthly(used: int, before: str, month: str, free: bool, after: int) -> None:
    team = account(month=before, used=used)
    assert use_quota(team, 3, 10, month) is free
    assert (team.used, team.month) == (after, "2026-11")


def test_free_quota_of_zero_is_never_free() -> None:
    assert use_quota(account(), 1, 0, "2026-11") is False


def test_credit_hold_capture_and_release_balance() -> None:
    team = account(available=100)
    hold(team, 60)
    hold(team, 40)
    assert (team.available, team.held) == (0, 100)
    capture(team, 60)
    release(team, 40)
    assert (team.available, team.held) == (40, 0)


def test_a_free_send_needs_no_credit() -> None:
    team = account()
    hold(team, 0)
    assert (team.available, team.held) == (0, 0)


def test_insufficient_credit_names_price_and_credit() -> None:
    team = account(available=44_999)
    with pytest.raises(InsufficientCredit) as refused:
        hold(team, 45_000)
    assert "0.0450" in refused.value.message
    assert "0.044999" in refused.value.message
    assert (team.available, team.held) == (44_999, 0)


@pytest.mark.parametrize("take", [capture, release])
def test_credit_capture_above_the_hold_is_refused(take: Callable[[Account, int], None]) -> None:
    team = account(available=10, held=5)
    with pytest.raises(ValueError, match="holds 5"):
        take(team, 6)
    assert (team.available, team.held) == (10, 5)


@pytest.mark.parametrize("change", [hold, capture, release])
def test_credit_negative_amount_is_refused(change: Callable[[Account, int], None]) -> None:
    with pytest.raises(ValueError, match="-1"):
        change(account(available=10, held=10), -1)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["hold", "capture", "release"]), st.integers(0, 50)), max_size=30))
def test_the_ledger_agrees_with_the_account(steps: list[tuple[str, int]]) -> None:
    team = account(available=100)
    ledger = {"funding": -100, "credit": 100, "held": 0, "revenue": 0}
    for kind, amount in steps:
        try:
            {"hold": hold, "capture": capture, "release": release}[kind](team, amount)
        except (InsufficientCredit, ValueError):
            continue
        source, target = ACCOUNTS_BY_ENTRY_KIND[kind]
        ledger[source] -= amount
        ledger[target] += amount
    assert (team.available, team.held) == (ledger["credit"], ledger["held"])
    assert sum(ledger.values()) == 0
    assert min(team.available, team.held) >= 0


@pytest.mark.parametrize(
    ("text", "amount"), [("25.00", 25_000_000), ("+0.5", 500_000), ("-5", -5_000_000), ("0", 0), ("-0.000001", -1)]
)
def test_signed_amount_is_parsed(text: str, amount: int) -> None:
    assert parse_signed_money(text) == amount


@pytest.mark.parametrize("text", ["", "-", "--5", "+-5", "5-", "much", "1e3"])
def test_signed_amount_invalid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        parse_signed_money(text)


@pytest.mark.parametrize(
    ("kind", "moved"), [("topup", 7), ("adjustment", 7), ("hold", -7), ("release", 7), ("capture", 0)]
)
def test_ledger_entry_changes_the_credit_by_its_amount(kind: str, moved: int) -> None:
    assert credit_change(kind, 7) == moved


def test_countries_with_the_same_price_are_grouped() -> None:
    several = replace(TEMPLATE, prices={"GB": 10, "IN": 0, "DE": 10})
    assert price_groups(several) == [(["IN"], 0), (["DE", "GB"], 10), ([], 40_000)]
