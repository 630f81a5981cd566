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

SIMULATOR_DOMAIN = "simulator.test"
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)
_BEHAVIOUR_BY_NAME: dict[str, Behaviour] = {behaviour: behaviour for behaviour in BEHAVIOURS}

# The code is the last six digits of the number
_PHONES_WITH_DIGIT_CODE = frozenset(f"+1500555{suffix}" for suffix in range(1000, 1100))
_PHONE_WITH_FIXED_CODE = "+15005550006"
_PHONE_WITHOUT_VALID_CODE = "+15005550005"
# Replies of simulated phones after a message is delivered.
REPLY_BY_PHONE = {"+15005550010": "STOP", "+15005550011": "Thanks, I got it."}
BEHAVIOUR_BY_PHONE: dict[str, PhoneBehaviour] = {
    "+15005550001": "failed",
    "+15005550004": "sent_then_failed",
    _PHONE_WITHOUT_VALID_CODE: "delivered_unread",
    _PHONE_WITH_FIXED_CODE: "delivered",
    "+15005550007": "no_carrier",
    "+15005550009": "read_undelivered",
    **dict.fromkeys(REPLY_BY_PHONE, "answers"),
    **dict.fromkeys(_PHONES_WITH_DIGIT_CODE, "delivered"),
}


def behaviour_of(address: str) -> Behaviour:
    """Return the simulator's behaviour for an address (normal form or local part), whatever its domain."""
    return _BEHAVIOUR_BY_NAME.get(_base_local_part(address), "delivered")


def is_resend_suppressed(address: str) -> bool:
    """Return whether the magic address simulates one on Resend's own suppression list."""
    return address.endswith("@resend.dev") and _base_local_part(address) == "suppressed"


def is_magic_email(address: str) -> bool:
    return address.endswith("@" + SIMULATOR_DOMAIN) and _base_local_part(address) in _BEHAVIOUR_BY_NAME


def _base_local_part(address: str) -> str:
    return address.partition("@")[0].partition("+")[0]


def phone_behaviour(phone: str) -> PhoneBehaviour:
    return BEHAVIOUR_BY_PHONE.get(phone, "delivered")


def is_magic_phone(phone: str) -> bool:
    return phone in BEHAVIOUR_BY_PHONE


def is_magic(address_or_phone: str) -> bool:
    return address_or_phone in BEHAVIOUR_BY_PHONE or ("@" in address_or_phone and is_magic_email(address_or_phone))


def magic_code(phone: str) -> str | None:
    """Return the fixed verification code of a magic number or email address; None if the code is random."""
    if phone == _PHONE_WITH_FIXED_CODE or is_magic_email(phone):
        return "000000"
    return phone[-6:] if phone in _PHONES_WITH_DIGIT_CODE else None


def rejects_every_code(phone: str) -> bool:
    """Return whether the magic number rejects every verification code."""
    return phone == _PHONE_WITHOUT_VALID_CODE
