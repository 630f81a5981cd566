"""Magic recipients of the simulator (contract 13): the behaviour of each address and phone number."""

from typing import Literal, get_args

Behaviour = Literal[
    "delivered",
    "bounced",
    "asyncbounce",
    "complained",
    "suppressed",
    "failed",
    "softbounce",
    "delayed",
    "deferred",
    "reply",
]
PhoneBehaviour = Literal[
    "delivered", "failed", "sent_then_failed", "delivered_unread", "no_carrier", "read_undelivered", "answers"
]

DOMAIN = "simulator.test"
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)
_BY_NAME: dict[str, Behaviour] = {behaviour: behaviour for behaviour in BEHAVIOURS}

_OWN_CODE = frozenset(f"+1500555{line}" for line in range(1000, 1100))  # the code is the last six digits of the number
_FIXED_CODE = "+15005550006"
_NO_CODE = "+15005550005"
# Replies of simulated phones after a message is delivered.
ANSWERS = {"+15005550010": "STOP", "+15005550011": "Thanks, I got it."}
PHONES: dict[str, PhoneBehaviour] = {
    "+15005550001": "failed",
    "+15005550004": "sent_then_failed",
    _NO_CODE: "delivered_unread",
    _FIXED_CODE: "delivered",
    "+15005550007": "no_carrier",
    "+15005550009": "read_undelivered",
    **dict.fromkeys(ANSWERS, "answers"),
    **dict.fromkeys(_OWN_CODE, "delivered"),
}


def behaviour_of(address: str) -> Behaviour:
    """Return the simulator's behaviour for an address (normal form or local part); the domain is ignored."""
    return _BY_NAME.get(_name(address), "delivered")


def is_held_back(address: str) -> bool:
    """Return whether the address simulates an entry on Resend's own suppression list."""
    return address.endswith("@resend.dev") and _name(address) == "suppressed"


def is_magic_email(address: str) -> bool:
    return address.endswith("@" + DOMAIN) and _name(address) in _BY_NAME


def _name(address: str) -> str:
    return address.partition("@")[0].partition("+")[0]


def phone_behaviour(phone: str) -> PhoneBehaviour:
    return PHONES.get(phone, "delivered")


def is_magic_phone(phone: str) -> bool:
    return phone in PHONES


def is_magic(address_or_phone: str) -> bool:
    return address_or_phone in PHONES or ("@" in address_or_phone and is_magic_email(address_or_phone))


def magic_code(phone: str) -> str | None:
    """Return the fixed verification code of a magic number or email address; None if the code is random."""
    if phone == _FIXED_CODE or is_magic_email(phone):
        return "000000"
    return phone[-6:] if phone in _OWN_CODE else None


def no_code_matches(phone: str) -> bool:
    """Return whether the number rejects every code."""
    return phone == _NO_CODE
