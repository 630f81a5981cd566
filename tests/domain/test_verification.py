"""One-time codes: life cycle, format and digest, and the limits of starts."""

import hashlib
import hmac
from typing import Any

import pytest

from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidCodeFormat, UnsupportedChannel, VerifyRateLimited
from heliograph.domain.setup.records import Channel, Team, TeamRecord, Template, VerifyLimits
from heliograph.domain.verify.verification import (
    CheckResult,
    attempts_left,
    channels_still_to_try,
    check_code,
    check_velocity,
    code_digest,
    code_template,
    current_status,
    make_code,
    parse_channels,
    parse_code,
)

START = 1_793_491_200_000  # midnight UTC
EXPIRES = START + 600_000
STATUSES = ["pending", "verified", "expired", "exhausted", "failed"]


@pytest.mark.parametrize(
    ("status", "wrong", "at", "matches", "expected"),
    [
        ("pending", 0, 0, True, ("verified", 0, True)),
        ("pending", 4, 599_999, True, ("verified", 4, True)),
        ("pending", 0, 0, False, ("pending", 1, False)),
        ("pending", 3, 0, False, ("pending", 4, False)),
        ("pending", 4, 0, False, ("exhausted", 5, False)),
        ("pending", 0, 600_000, True, ("expired", 0, False)),
        ("pending", 4, 600_000, False, ("expired", 4, False)),
        ("verified", 1, 0, True, ("verified", 1, False)),
        ("verified", 1, 600_000, False, ("verified", 1, False)),
        ("expired", 2, 0, True, ("expired", 2, False)),
        ("exhausted", 5, 0, True, ("exhausted", 5, False)),
        ("failed", 0, 0, True, ("failed", 0, False)),
        ("failed", 0, 600_000, False, ("failed", 0, False)),
    ],
)
def test_code_check_returns_status_and_counted_attempts(
    status: str, wrong: int, at: int, matches: bool, expected: tuple[str, int, bool]
) -> None:
    after, counted, verified = expected
    assert check_code(status, wrong, START + at, EXPIRES, matches) == CheckResult(
        status=after, wrong_codes=counted, verified=verified
    )


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_pending_verification_expires(status: str) -> None:
    assert current_status(status, EXPIRES - 1, EXPIRES) == status
    assert current_status(status, EXPIRES, EXPIRES) == ("expired" if status == "pending" else status)


@pytest.mark.parametrize(("wrong", "left"), [(0, 5), (4, 1), (5, 0), (6, 0)])
def test_attempts_left_decreases_with_wrong_codes(wrong: int, left: int) -> None:
    assert attempts_left(wrong) == left


@pytest.mark.parametrize("code", ["1234", "123456", "1234567890", "ab c", "\uff11\uff12\uff13\uff14"])
def test_a_code_is_read_as_typed(code: str) -> None:
    assert parse_code(code) == code


@pytest.mark.parametrize("value", [None, 123456, True, ["1234"], "", "123", "12345678901"])
def test_malformed_code_is_refused_without_quoting_it(value: object) -> None:
    with pytest.raises(InvalidCodeFormat) as refused:
        parse_code(value)
    assert refused.value.param == "code"
    assert "123" not in refused.value.message


def team_with(*channels: Channel, **templates: Template) -> Team:
    record = TeamRecord(ref=1, id="team_a", name="A", verify=VerifyLimits(channels=channels, language="pt-BR"))
    return Team(record=record, templates=templates)


def template(language: str = "en", **extra: Any) -> Template:
    fields = {"channel": "whatsapp", "category": "AUTHENTICATION", "variables": ("code",), "body": "{{customer.code}}"}
    return Template(id=f"tpl_{language}", team="team_a", name="code", language=language, **fields | extra)


ALL: tuple[Channel, ...] = ("sms", "whatsapp", "email")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ["sms"]),
        ("sms", ["sms"]),
        (["sms"], ["sms"]),
        ("email", ["email"]),
        (["whatsapp", "sms"], ["whatsapp", "sms"]),
        (["sms", "whatsapp"], ["sms", "whatsapp"]),
    ],
)
def test_verification_channels_are_parsed_in_order(given: str | list[str] | None, expected: list[str]) -> None:
    assert parse_channels(given, team_with(*ALL, tpl_en=template())) == expected


def test_sms_verification_is_enabled_for_every_team() -> None:
    assert parse_channels(None, team_with()) == ["sms"]


@pytest.mark.parametrize("value", ["", "SMS", "call", "whatsapp", "email", [], ["sms", "email"], ["sms", "sms"]])
def test_verification_unsupported_channel_is_refused(value: str | list[str]) -> None:
    with pytest.raises(UnsupportedChannel) as refused:
        parse_channels(value, team_with("sms", tpl_en=template()))
    assert refused.value.param == "channel"


@pytest.mark.parametrize(
    "other",
    [
        {"category": "UTILITY"},
        {"status": "draft"},
        {"channel": "sms"},
        {"variables": ()},
        {"variables": ("code", "name")},
    ],
)
def test_whatsapp_needs_an_approved_template_for_the_code_alone(other: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedChannel, match="AUTHENTICATION"):
        parse_channels("whatsapp", team_with(*ALL, tpl_en=template(**other)))


@pytest.mark.parametrize(
    ("languages", "chosen"),
    [(["en", "pt_BR", "pt"], "pt_BR"), (["en", "pt"], "pt"), (["de", "en_US", "en"], "en"), (["fr", "de"], "de")],
)
def test_the_template_of_the_teams_language(languages: list[str], chosen: str) -> None:
    result = code_template(team_with(**{f"tpl_{language}": template(language) for language in languages}))
    assert result
    assert result.language == chosen


@pytest.mark.parametrize(("used", "expected"), [("whatsapp", ["whatsapp", "sms"]), ("sms", ["sms"])])
def test_resend_channels_begin_with_the_last_used_one(used: Channel, expected: list[str]) -> None:
    assert channels_still_to_try("whatsapp sms", used) == expected


@pytest.mark.parametrize(("random", "code"), [(0, "000000"), (42, "000042"), (999_999, "999999")])
def test_make_code_formats_six_digits(random: int, code: str) -> None:
    assert make_code(random) == code


@pytest.mark.parametrize("random", [-1, 1_000_000])
def test_make_code_out_of_range_raises(random: int) -> None:
    with pytest.raises(ValueError, match="below"):
        make_code(random)


def test_code_digest_is_a_keyed_hmac() -> None:
    assert code_digest(b"key", b"salt", "123456") == hmac.new(b"key", b"salt123456", hashlib.sha256).digest()


LIMITS = VerifyLimits(per_phone_10m=3, per_phone_day=5, per_prefix_10m=4, min_interval_s=30, wrong_per_phone_day=10)
NOW = START + DAY_MS // 2
MINUTE = 60_000


def seconds_ago(*seconds: float) -> list[int]:
    return [NOW - int(item * 1000) for item in seconds]


def velocity(limits: VerifyLimits = LIMITS, **changed: Any) -> None:
    values: dict[str, Any] = {"country": "GB", "phone_starts": [], "prefix_starts": [], "wrong_today": 0}
    check_velocity(limits, **values | changed, now=NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"country": None},
        {"phone_starts": seconds_ago(30)},
        {"phone_starts": seconds_ago(60, 120)},
        {"phone_starts": seconds_ago(60, 120, 600)},  # the third leaves the window just now
        {"phone_starts": seconds_ago(60, 120, 700, 800)},
        {"prefix_starts": seconds_ago(0, 0, 0)},
        {"wrong_today": 9},
    ],
)
def test_velocity_below_the_limits_passes(changed: dict[str, Any]) -> None:
    velocity(**changed)


@pytest.mark.parametrize(
    ("changed", "retry_after", "said"),
    [
        ({"phone_starts": seconds_ago(0)}, 30, "one in 30 s"),
        ({"phone_starts": seconds_ago(29.999)}, 1, "one in 30 s"),
        ({"phone_starts": seconds_ago(300, 60, 400)}, 200, "3 in 10 minutes"),
        ({"phone_starts": seconds_ago(60, 100, 300, 400)}, 300, "3 in 10 minutes"),
        (
            {"phone_starts": seconds_ago(60, 700, 800, 900, 86_399)},
            1,
            "5 in a day",
        ),
        ({"prefix_starts": seconds_ago(0, 1, 2, 3)}, 597, "same prefix"),
        ({"wrong_today": 10}, 43_200, "10 wrong codes"),  # until the UTC day ends
        ({"phone_starts": seconds_ago(0), "wrong_today": 11}, 43_200, "10 wrong codes"),  # the longest wait
    ],
)
def test_velocity_above_a_limit_is_refused_with_retry_after(
    changed: dict[str, Any], retry_after: int, said: str
) -> None:
    with pytest.raises(VerifyRateLimited, match=said) as refused:
        velocity(**changed)
    assert refused.value.retry_after == retry_after


@pytest.mark.parametrize(("country", "said"), [("US", "US"), (None, "unknown country")])
def test_verification_country_outside_the_list_is_refused(country: str | None, said: str) -> None:
    limits = VerifyLimits(countries=("GB", "DE"))
    velocity(limits, country="DE")
    with pytest.raises(VerifyRateLimited, match=said) as refused:
        velocity(limits, country=country)
    assert refused.value.retry_after == 86_400


def test_velocity_limit_of_zero_is_disabled() -> None:
    off = VerifyLimits(per_phone_10m=0, per_phone_day=0, per_prefix_10m=0, min_interval_s=0, wrong_per_phone_day=0)
    velocity(off, phone_starts=[NOW] * 50, prefix_starts=[NOW] * 50, wrong_today=500)


def test_velocity_passes_again_after_retry_after() -> None:
    starts = seconds_ago(5, 100, 300, 500, 4000)
    with pytest.raises(VerifyRateLimited) as refused:
        velocity(phone_starts=starts)
    later = NOW + (refused.value.retry_after or 0) * 1000
    check_velocity(LIMITS, country="GB", phone_starts=starts, prefix_starts=[], wrong_today=0, now=later)
