"""A webhook bin: an address of this service that takes a team's events, checks who signed them, and says what it saw.

It keeps nothing: what it says is the response of an attempt, which is kept, shown and deleted as every webhook's is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.webhooks.policy.signature import is_signed

PATH = "/bin/{team}/{token}"
TOKEN_BYTES = 16
SHOWN_MAX = 250  # characters of a header: a response is kept up to 1 KB
_REST = re.compile(r"[0-9A-Za-z_-]{1,64}/[0-9a-f]{32}")


def address(base_url: str, team: str, token: str) -> str:
    return base_url + PATH.format(team=team, token=token)


def is_bin(base_url: str, url: str) -> bool:
    """Tell whether it is exactly such an address of the service at `base_url`: no other path, no query."""
    begin = base_url + PATH.partition("{")[0]
    return url.startswith(begin) and _REST.fullmatch(url.removeprefix(begin)) is not None


def seen(secrets: Sequence[str], given: Mapping[str, str], body: bytes, now_s: int) -> dict[str, Any]:
    """Say what arrived, with names of headers in lower case."""
    signature = given.get("webhook-signature", "")
    verdict = "valid" if is_signed(secrets, given, body, now_s) else "not valid"
    return {
        "received": given.get("webhook-id", "")[:SHOWN_MAX],
        "bytes": len(body),
        "signature": verdict if signature else "none that a bin knows",
        "webhook-timestamp": given.get("webhook-timestamp", "")[:SHOWN_MAX],
        "webhook-signature": signature[:SHOWN_MAX],
    }
