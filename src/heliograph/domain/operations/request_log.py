"""Fields of the request log that are derived from a request: path, client, duration and subject id."""

import re

from heliograph.domain.ids import ulid_ms

_PUBLIC_ID = re.compile("[a-z]{2,4}_[0-9A-HJKMNP-TV-Z]{26}")

_EMAIL_ADDRESS = re.compile(r"[^\s<>()]+@[^\s<>()]+")
_WORD = re.compile(r"[A-Za-z]{1,24}|[a-z][a-z_-]{0,23}|v[0-9]{1,2}|[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SEGMENTS_MAX = 8  # segments of a path that are logged
CLIENT_MAX = 120  # characters of a User-Agent that are logged


def unknown_path(path: str) -> str:
    """Return the path of an unsupported call with only its words, without ids, addresses and other values."""
    segments = path.split("/")[1 : _SEGMENTS_MAX + 1]
    return "".join(f"/{segment}" if _WORD.fullmatch(segment.removesuffix(".json")) else "/{id}" for segment in segments)


def client_name(user_agent: bytes) -> str:
    """Return the printable characters of a User-Agent, without email addresses."""
    return _EMAIL_ADDRESS.sub("…", "".join(filter(str.isprintable, user_agent[:CLIENT_MAX].decode("latin-1"))))


def duration_ms(id_: str, now: int) -> int:
    """Return the duration of a request in ms, computed from the time in its id."""
    return max(0, now - ulid_ms(id_[4:]))


def subject_id(id_: str) -> str:
    """Return `id_` if it has the form of a public id, else an empty string, so that no other input is logged."""
    return id_ if _PUBLIC_ID.fullmatch(id_) else ""
