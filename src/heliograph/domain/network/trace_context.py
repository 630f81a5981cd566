"""Trace context of a request from its caller (W3C Trace Context, `traceparent`)."""

import re

# version, trace id, parent id and flags; fields that later versions append are ignored.
_TRACEPARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_PARENT = "0" * 32, "0" * 16


def parse_traceparent(header: str) -> str | None:
    """Return a traceparent in the format of version 00; None if it is invalid, which does not reject the request."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace, parent, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or trace == _NO_TRACE or parent == _NO_PARENT:
        return None
    return f"00-{trace}-{parent}-{flags}"
