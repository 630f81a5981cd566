"""What the request log takes from a request and its answer, beside the status: how long it took, and an id."""

import re

import msgspec

from heliograph.rules.ids import ulid_ms

MADE_MAX = 4096  # bytes of an answer that is looked through for an id

_ID = re.compile("[a-z]{2,4}_[0-9A-HJKMNP-TV-Z]{26}")


class _Made(msgspec.Struct):
    id: str = ""


def took_ms(id_: str, now: int) -> int:
    """How long a request has taken: its id holds when it came."""
    return max(0, now - ulid_ms(id_[4:]))


def subject_of(body: bytes, asked: str) -> str:
    """The id of what an answer says was made, or of what was asked for; nothing else that a caller wrote."""
    if len(body) <= MADE_MAX:
        asked = id_of(body) or asked
    return asked if _ID.fullmatch(asked) else ""


def id_of(body: bytes) -> str:
    """The id that an answer has, if it has one."""
    try:
        return msgspec.json.decode(body, type=_Made).id
    except msgspec.DecodeError:  # also a list
        return ""
