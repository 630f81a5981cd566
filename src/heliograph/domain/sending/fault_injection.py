"""Fault injection with `X-Heliograph-Simulate`, for requests of sandbox teams."""

import re

import msgspec
from msgspec.structs import replace

from heliograph.domain.limits import SECOND_MS
from heliograph.domain.refusals import (
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    Refusal,
    ServiceUnavailable,
)

HEADER = "X-Heliograph-Simulate"
LATENCY_MAX_MS = 30 * SECOND_MS
RETRY_AFTER_S = 1
TOLD = f"Simulated, as {HEADER} asks for."
STATUSES: dict[str, type[Refusal]] = {"429": RateLimitExceeded, "500": InternalError, "503": ServiceUnavailable}
UNITS = {"ms": 1, "s": SECOND_MS}
_LATENCY = re.compile(r"([0-9]{1,6})(ms|s)")


class Trouble(msgspec.Struct, frozen=True):
    latency_ms: int = 0  # delay before the request is processed
    refusal: type[Refusal] | None = None  # returned instead of processing the request
    silent: bool = False  # the request is processed, but no response is sent


def read_trouble(text: str) -> Trouble:
    """Parse one or more of `latency=2s`, `status=503`, `rate_limit` and `timeout`, separated by commas."""
    trouble = Trouble()
    for part in (part.strip() for part in text.split(",")):
        name, _, value = part.partition("=")
        found = _LATENCY.fullmatch(value)
        ms = int(found[1]) * UNITS[found[2]] if found else LATENCY_MAX_MS + 1
        if name == "latency" and ms <= LATENCY_MAX_MS:
            trouble = replace(trouble, latency_ms=ms)
        elif name == "status" and value in STATUSES:
            trouble = replace(trouble, refusal=STATUSES[value])
        elif part == "rate_limit":
            trouble = replace(trouble, refusal=RateLimitExceeded)
        elif part == "timeout":
            trouble = replace(trouble, silent=True)
        else:
            raise InvalidRequest(
                f"{HEADER}: {part[:80]!r} is none of latency=2s (up to 30s, or in ms), status=503 "
                f"({', '.join(STATUSES)}), rate_limit and timeout.",
                param=HEADER,
            )
    return trouble


def refused(kind: type[Refusal]) -> Refusal:
    return kind(TOLD, retry_after=RETRY_AFTER_S)
