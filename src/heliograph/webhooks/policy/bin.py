"""Webhook bin: a URL of this service that receives a team's events, and responds with a report on each request.

The report says whether the signature is valid. The bin stores nothing: as the response of a delivery attempt, the
report is already stored, shown and deleted.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.webhooks.policy.signature import is_signed

PATH = "/bin/{team}/{token}"
TOKEN_BYTES = 16
SHOWN_MAX = 250  # maximum characters of a header in the report, because only 1 KB of a response is stored
_TEAM_AND_TOKEN = re.compile(r"[0-9A-Za-z_-]{1,64}/[0-9a-f]{32}")


def bin_url(base_url: str, team: str, token: str) -> str:
    return base_url + PATH.format(team=team, token=token)


def is_bin(base_url: str, url: str) -> bool:
    """Return whether `url` is the URL of a webhook bin of the service at `base_url`, without a query."""
    prefix = base_url + PATH.partition("{")[0]
    return url.startswith(prefix) and _TEAM_AND_TOKEN.fullmatch(url.removeprefix(prefix)) is not None


def receipt_report(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: int) -> dict[str, Any]:
    """Return the bin's response to a request: what was received, and whether its signature is valid."""
    signature = headers.get("webhook-signature", "")
    verdict = "valid" if is_signed(secrets, headers, body, now_s) else "not valid"
    return {
        "received": headers.get("webhook-id", "")[:SHOWN_MAX],
        "bytes": len(body),
        "signature": verdict if signature else "missing or in another format",
        "webhook-timestamp": headers.get("webhook-timestamp", "")[:SHOWN_MAX],
        "webhook-signature": signature[:SHOWN_MAX],
    }
