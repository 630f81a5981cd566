"""The trace that a request belongs to, as its caller says it (W3C Trace Context, `traceparent`)."""

import re

# version, trace, parent, flags; what a later version adds behind them is not ours to read.
_PARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_PARENT = "0" * 32, "0" * 16


def read_traceparent(given: str) -> str | None:
    """Read it into the form of version 00; None: it is none, and a caller's mistake here refuses no request."""
    found = _PARENT.fullmatch(given)
    if found is None:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or trace == _NO_TRACE or parent == _NO_PARENT:
        return None
    return f"00-{trace}-{parent}-{flags}"
