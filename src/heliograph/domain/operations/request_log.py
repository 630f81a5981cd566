"""What the request log takes from a request and its answer, beside the status: how long it took, and an id."""

import re

from heliograph.domain.ids import ulid_ms

_ID = re.compile("[a-z]{2,4}_[0-9A-HJKMNP-TV-Z]{26}")


def took_ms(id_: str, now: int) -> int:
    """Return how long a request has taken: its id holds when it came."""
    return max(0, now - ulid_ms(id_[4:]))


def subject_of(id_: str) -> str:
    """Return what a request made or asked for, when it is an id; nothing else that a caller wrote."""
    return id_ if _ID.fullmatch(id_) else ""
