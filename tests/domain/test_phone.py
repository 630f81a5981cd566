import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.phones.countries import country_code, country_name, country_names
from heliograph.domain.phones.phone import country_of, parse_phone, velocity_prefix
from heliograph.domain.refusals import InvalidPhone


@pytest.mark.parametrize("text", ["+1234567", "+14155550123", "+123456789012345", "+999123456"])
def test_phone_valid_is_parsed(text: str) -> None:
    assert parse_phone(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "4155550123",
        "0014155550123",
        "+04155550123",
        "+123456",
        "+1234567890123456",
        "+1 415 555 0123",
        "+1-415-555-0123",
        "+1(415)5550123",
        " +14155550123",
        "+14155550123\n",
        "+1415555012a",
        "+١٤١٥٥٥٥٠١٢٣",
        "+１４１５５５５０１２３",
        "＋14155550123",
        "tel:+14155550123",
    ],
)
def test_phone_invalid_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(InvalidPhone) as refused:
        parse_phone(text, "to")
    assert refused.value.param == "to"
    assert repr(text) in refused.value.message


def test_a_long_value_is_clipped_in_the_message() -> None:
    with pytest.raises(InvalidPhone) as refused:
        parse_phone("9" * 5000, "phone")
    assert refused.value.param == "phone"
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("phone", "country"),
    [
        ("+14155550123", "US"),
        ("+15005550006", "US"),
        ("+15005551099", "US"),
        ("+18005550123", "US"),
        ("+14161234567", "CA"),
        ("+16005550123", "CA"),
        ("+18765550123", "JM"),
        ("+16585550123", "JM"),
        ("+17875550123", "PR"),
        ("+19395550123", "PR"),
        ("+18095550123", "DO"),
        ("+12425550123", "BS"),
        ("+79161234567", "RU"),
        ("+77011234567", "KZ"),
        ("+76001234567", "KZ"),
        ("+447700900123", "GB"),
        ("+442079460000", "GB"),
        ("+441481123456", "GG"),
        ("+447781123456", "GG"),
        ("+441534123456", "JE"),
        ("+447797123456", "JE"),
        ("+441624123456", "IM"),
        ("+447924123456", "IM"),
        ("+390612345678", "IT"),
        ("+390669812345", "VA"),
        ("+358401234567", "FI"),
        ("+358181234567", "AX"),
        ("+4721234567", "NO"),
        ("+4779123456", "SJ"),
        ("+262692123456", "RE"),
        ("+262269123456", "YT"),
        ("+262639123456", "YT"),
        ("+59991234567", "CW"),
        ("+5997123456", "BQ"),
        ("+590590201234", "GP"),
        ("+590590271234", "BL"),
        ("+590590771234", "MF"),
        ("+61412345678", "AU"),
        ("+61891621234", "CC"),
        ("+61891641234", "CX"),
        ("+29022158", "SH"),
        ("+2908123", "TA"),
        ("+212612345678", "MA"),
        ("+4915112345678", "DE"),
        ("+8613800138000", "CN"),
        ("+38344123456", "XK"),
        ("+80012345678", None),  # international freephone
        ("+88312345678", None),
        ("+99912345678", None),
        ("+2101234567", None),
    ],
)
def test_phone_country_is_known(phone: str, country: str | None) -> None:
    assert country_of(phone) == country


def _examples() -> list[tuple[str, set[str]]]:
    """Yield an example number of every region and every North American area code, with its possible countries.

    Where plans overlap (+44 7924), the lookup of phonenumbers and its examples disagree: either country is right.
    """
    kinds = (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE)
    numbers = [
        (phonenumbers.example_number_for_type(region, kind), region)
        for region in sorted(phonenumbers.SUPPORTED_REGIONS)
        for kind in kinds
    ]
    numbers += [(phonenumbers.PhoneNumber(1, area * 10_000_000 + 2_345_678), "") for area in range(200, 1000)]
    return [
        (phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164), {result, region})
        for number, region in numbers
        if number is not None and (result := phonenumbers.region_code_for_number(number))
    ]


def test_country_prefixes_agree_with_the_numbering_plans() -> None:
    examples = _examples()
    assert len(examples) > 700
    assert [(phone, regions) for phone, regions in examples if country_of(phone) not in regions] == []


@settings(max_examples=50, database=None)
@given(st.text(max_size=20))
def test_phone_country_never_raises(text: str) -> None:
    assert country_of(text) is None or len(country_of(text) or "") == 2


def test_phone_velocity_prefix_has_seven_digits() -> None:
    assert velocity_prefix("+14155550123") == "+1415555"


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("gb", "GB"),
        ("United Kingdom", "GB"),
        ("germany", "DE"),
        ("Germany (DE)", "DE"),
        ("Atlantis", "Atlantis"),
        ("", ""),
    ],
)
def test_country_name_or_code_is_accepted(typed: str, code: str) -> None:
    assert country_code(typed) == code
    assert code not in country_names() or country_code(country_name(code)) == code
