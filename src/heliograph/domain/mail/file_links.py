"""Signed links to files of a mail, valid for an hour without an API key.

Compatibility APIs return such links, because their clients download files without a key.
"""

import base64
import hmac
from urllib.parse import urlencode

from heliograph.domain.text import parse_int

RAW = "raw"  # value of `file` for the original mail; any other value is an attachment id
VALID_S = 3600


def sign_link(key: bytes, team: int, id_: str, file: str, until_s: int) -> str:
    """Return the signed query string of a link to a file."""
    return urlencode({"team": team, "until": until_s, "signature": _signature(key, team, id_, file, until_s)})


def verify_link(key: bytes, query: dict[str, str], id_: str, file: str, now_s: int) -> int | None:
    """Return the team that owns the file; None if the signature is invalid or the link has expired."""
    team, until_s = (parse_int(query.get(name, ""), 12) for name in ("team", "until"))
    if team is None or until_s is None or until_s < now_s:
        return None
    expected = _signature(key, team, id_, file, until_s)
    return team if hmac.compare_digest(query.get("signature", "").encode(), expected.encode()) else None


def _signature(key: bytes, team: int, id_: str, file: str, until_s: int) -> str:
    text = f"file of a mail\0{team}\0{id_}\0{file}\0{until_s}"
    return base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")).decode().rstrip("=")
