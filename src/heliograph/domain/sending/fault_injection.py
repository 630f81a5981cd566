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
MESSAGE = f"Simulated error, requested with {HEADER}."
REFUSAL_BY_STATUS: dict[str, type[Refusal]] = {
    "429": RateLimitExceeded,
    "500": InternalError,
    "503": ServiceUnavailable,
}
MS_BY_UNIT = {"ms": 1, "s": SECOND_MS}
_LATENCY_PATTERN = re.compile(r"([0-9]{1,6})(ms|s)")


class InjectedFault(msgspec.Struct, frozen=True):
    latency_ms: int = 0  # delay before the request is processed
    refusal: type[Refusal] | None = None  # returned instead of processing the request
    drops_response: bool = False  # the request is processed, but no response is sent


def parse_fault(text: str) -> InjectedFault:
    """Parse one or more of `latency=2s`, `status=503`, `rate_limit` and `timeout`, separated by commas."""
    fault = InjectedFault()
    for part in (part.strip() for part in text.split(",")):
        name, _, value = part.partition("=")
        match = _LATENCY_PATTERN.fullmatch(value)
        latency_ms = int(match[1]) * MS_BY_UNIT[match[2]] if match else LATENCY_MAX_MS + 1
        if name == "latency" and latency_ms <= LATENCY_MAX_MS:
            fault = replace(fault, latency_ms=latency_ms)
        elif name == "status" and value in REFUSAL_BY_STATUS:
            fault = replace(fault, refusal=REFUSAL_BY_STATUS[value])
        elif part == "rate_limit":
            fault = replace(fault, refusal=RateLimitExceeded)
        elif part == "timeout":
            fault = replace(fault, drops_response=True)
        else:
            raise InvalidRequest(
                f"{HEADER}: {part[:80]!r} is not valid. Use latency=2s (up to 30s, or in ms), status=503 "
                f"({', '.join(REFUSAL_BY_STATUS)}), rate_limit or timeout.",
                param=HEADER,
            )
    return fault


def simulated_refusal(refusal_type: type[Refusal]) -> Refusal:
    return refusal_type(MESSAGE, retry_after=RETRY_AFTER_S)
