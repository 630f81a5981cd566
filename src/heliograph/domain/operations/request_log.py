"""Derived fields of the request log: duration and subject id."""

import re

from heliograph.domain.ids import ulid_ms

_PUBLIC_ID = re.compile("[a-z]{2,4}_[0-9A-HJKMNP-TV-Z]{26}")


def duration_ms(id_: str, now: int) -> int:
    """Return the duration of a request in ms, from the time in its id."""
    return max(0, now - ulid_ms(id_[4:]))


def subject_id(id_: str) -> str:
    """Return the id that a request created or asked for.

    Empty if the value is not an id, so that no other input is logged.
    """
    return id_ if _PUBLIC_ID.fullmatch(id_) else ""
