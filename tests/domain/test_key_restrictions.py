"""Restrictions of API keys: valid values, what they permit, and that unreadable ones permit nothing."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.refusals import ChannelNotPermitted, InvalidRequest
from heliograph.domain.setup.key_restrictions import (
    check_channel,
    parse_restrictions,
    permits_address,
    permits_phone,
    to_record,
)
from heliograph.domain.setup.records import PERMITS_NOTHING, Key, KeyRestrictions, TeamRecord
from heliograph.domain.setup.snapshot import Row, Setup, apply_rows, to_row

WHOLE = {
    "channels": ["email", "sms"],
    "senders": ["Ada@Acme.test", "*@News.Acme.test"],
    "recipients": ["*@example.com", "+4915112345678", "+49*"],
    "templates": ["tpl_welcome"],
    "per_hour": 10,
    "per_day": 0,
    "spend_per_day": "5.25",
    "approval": "required",
}


def test_restrictions_are_normalised_and_accepted_as_shown() -> None:
    restrictions = parse_restrictions(WHOLE)
    assert restrictions == KeyRestrictions(
        channels=("email", "sms"),
        senders=("ada@acme.test", "*@news.acme.test"),
        recipients=("*@example.com", "+4915112345678", "+49*"),
        templates=("tpl_welcome",),
        per_hour=10,
        per_day=0,
        spend_per_day=5_250_000,
        approval="required",
    )
    shown = msgspec.to_builtins(to_record(restrictions))
    assert shown["spend_per_day"] == "5.2500"
    assert parse_restrictions(shown) == restrictions


def test_absent_and_null_fields_do_not_restrict() -> None:
    assert parse_restrictions({}) is parse_restrictions({"channels": None, "per_day": None}) is None
    assert to_record(None) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"channels": ["fax"]}, "restrictions.channels[0]"),
        ({"channels": "email"}, "restrictions.channels"),
        ({"senders": ["acme.test"]}, "restrictions.senders[0]"),
        ({"senders": ["+49*"]}, "restrictions.senders[0]"),
        ({"recipients": ["*@example.com", "49*"]}, "restrictions.recipients[1]"),
        ({"recipients": ["+*"]}, "restrictions.recipients[0]"),
        ({"recipients": ["+0*"]}, "restrictions.recipients[0]"),
        ({"recipients": ["+49*"] * 1001}, "restrictions.recipients"),
        ({"recipients": ["*@*"]}, "restrictions.recipients[0]"),
        ({"templates": ["welcome"]}, "restrictions.templates[0]"),
        ({"per_hour": -1}, "restrictions.per_hour"),
        ({"per_hour": True}, "restrictions.per_hour"),
        ({"per_day": "5"}, "restrictions.per_day"),
        ({"spend_per_day": 5}, "restrictions.spend_per_day"),
        ({"spend_per_day": "-1"}, "restrictions.spend_per_day"),
        ({"approval": "optional"}, "restrictions.approval"),
        ({"per_week": 1}, "restrictions.per_week"),
        ([], "restrictions"),
    ],
)
def test_invalid_restrictions_are_refused_by_name(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_restrictions(fields)
    assert raised.value.param == param


@pytest.mark.parametrize(
    ("patterns", "permitted", "refused"),
    [
        (["ada@example.com"], ["ada@example.com"], ["bob@example.com", "ada@example.org"]),
        (["*@example.com"], ["ada@example.com"], ["ada@sub.example.com", "ada@notexample.com", "x@example.com.test"]),
        (["*"], ["ada@example.com"], []),
        ([], [], ["ada@example.com"]),
        (["+49*"], [], ["ada@example.com", "+49@example.com"]),
    ],
)
def test_addresses_match_whole_or_by_domain(patterns: list[str], permitted: list[str], refused: list[str]) -> None:
    assert all(permits_address(patterns, address) for address in permitted)
    assert not any(permits_address(patterns, address) for address in refused)


@pytest.mark.parametrize(
    ("patterns", "permitted", "refused"),
    [
        (["+4915112345678"], ["+4915112345678"], ["+4915112345679", "+49151123456789"]),
        (["+49*"], ["+4915112345678"], ["+4315112345678"]),
        (["*"], ["+4915112345678"], []),
        ([], [], ["+4915112345678"]),
        (["*@example.com"], [], ["+4915112345678"]),
    ],
)
def test_phones_match_whole_or_by_prefix(patterns: list[str], permitted: list[str], refused: list[str]) -> None:
    assert all(permits_phone(patterns, phone) for phone in permitted)
    assert not any(permits_phone(patterns, phone) for phone in refused)


def test_codes_are_refused_to_keys_that_need_approval() -> None:
    key = Key(id="k", team="team_a", name="k", hash="", restrictions=KeyRestrictions(approval="required"))
    check_channel(key, "email")
    with pytest.raises(ChannelNotPermitted, match="approval"):
        check_channel(key, "verify")


KEY = Key(id="k", team="team_a", name="agent", hash="00", scopes=("send", "manage"))


@pytest.mark.parametrize(
    "damage",
    [
        {"restrictions": {"recipients": ["*"], "per_minute": 1}},
        {"restrictions": {"recipients": "*"}},
        {"restrictions": {"per_day": "many"}},
        {"restrictions": {"channels": ["fax"]}},
        {"restrictions": {"approval": "maybe"}},
        {"restrictions": True},
        {"only_on": "sundays"},
        {"networks": 5},
    ],
    ids=str,
)
def test_key_that_cannot_be_read_permits_nothing(damage: dict[str, Any]) -> None:
    body = msgspec.json.encode(msgspec.to_builtins(KEY) | damage).decode()
    team = to_row("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a")
    key = apply_rows(Setup(), [team, Row("key", "k", "team_a", body)], 1).callers["k"].key
    assert (key.id, key.team, key.name, key.hash) == ("k", "team_a", "agent", "00")
    assert (key.scopes, key.restrictions) == ((), PERMITS_NOTHING)


def test_revoked_key_that_cannot_be_read_stays_revoked() -> None:
    body = msgspec.json.encode(msgspec.to_builtins(KEY) | {"revoked": True, "new": 1}).decode()
    team = to_row("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a")
    assert apply_rows(Setup(), [team, Row("key", "k", "team_a", body)], 1).callers["k"].key.revoked


def test_key_without_a_readable_identity_is_unknown() -> None:
    team = to_row("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a")
    setup = apply_rows(Setup(), [team, to_row("key", "k", KEY, "team_a")], 1)
    for damaged in ("{", "[]", '{"id": "k"}'):
        assert "k" not in apply_rows(setup, [Row("key", "k", "team_a", damaged)], 2).callers
