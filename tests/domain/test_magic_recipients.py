import pytest

from heliograph.domain.delivery.magic_recipients import (
    BEHAVIOUR_BY_PHONE,
    BEHAVIOURS,
    behaviour_of,
    is_magic,
    is_magic_email,
    is_magic_phone,
    magic_code,
    phone_behaviour,
    rejects_every_code,
)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("label", ["", "+1", "+a+b"])
def test_every_behaviour_has_an_address(behaviour: str, label: str) -> None:
    address = f"{behaviour}{label}@simulator.test"
    assert behaviour_of(address) == behaviour
    assert is_magic_email(address) and is_magic(address)


@pytest.mark.parametrize(
    ("address", "behaviour"),
    [
        ("bounced@example.com", "bounced"),
        ("softbounce+x@example.com", "softbounce"),
        ("complained", "complained"),
        ("ada@example.com", "delivered"),
        ("ada@simulator.test", "delivered"),
        ("bounced.x@simulator.test", "delivered"),
    ],
)
def test_simulator_behaviour_depends_on_the_local_part_only(address: str, behaviour: str) -> None:
    assert behaviour_of(address) == behaviour
    assert not is_magic_email(address) and not is_magic(address)


@pytest.mark.parametrize("address", ["bounced@x.simulator.test", "bounced@notsimulator.test", "@simulator.test"])
def test_ordinary_address_is_not_magic(address: str) -> None:
    assert not is_magic(address)


@pytest.mark.parametrize(
    ("phone", "behaviour", "code", "no_code"),
    [
        ("+15005550001", "failed", None, False),
        ("+15005550004", "sent_then_failed", None, False),
        ("+15005550005", "delivered_unread", None, True),
        ("+15005550006", "delivered", "000000", False),
        ("+15005550007", "no_carrier", None, False),
        ("+15005550009", "read_undelivered", None, False),
        ("+15005551000", "delivered", "551000", False),
        ("+15005551042", "delivered", "551042", False),
        ("+15005551099", "delivered", "551099", False),
    ],
)
def test_magic_phone_has_its_behaviour_and_code(phone: str, behaviour: str, code: str | None, no_code: bool) -> None:
    assert phone_behaviour(phone) == behaviour
    assert magic_code(phone) == code
    assert rejects_every_code(phone) is no_code
    assert is_magic_phone(phone) and is_magic(phone)


@pytest.mark.parametrize("phone", ["+14155550123", "+15005550000", "+15005550002", "+15005550999", "+15005551100"])
def test_ordinary_phone_is_delivered_and_has_no_code(phone: str) -> None:
    assert phone_behaviour(phone) == "delivered"
    assert magic_code(phone) is None
    assert not (rejects_every_code(phone) or is_magic_phone(phone) or is_magic(phone))


def test_documented_magic_phones_are_complete() -> None:
    assert len(BEHAVIOUR_BY_PHONE) == 108
