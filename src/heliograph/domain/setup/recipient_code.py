"""Code with which a recipient agrees to receive a sandbox team's messages.

The code is derived from the master secret on demand, so nothing is stored. Its 40 bits resist guessing, and it is
valid for half an hour to an hour.
"""

import base64
import hashlib
import hmac

from heliograph.domain.limits import MINUTE_MS

VALID_MS = 30 * MINUTE_MS


def recipient_code(key: bytes, team: str, address: str, now: int) -> str:
    """Return a code of eight characters (40 bits), such as K7QF-2M3D."""
    payload = f"recipient/{team}/{now // VALID_MS}/{address}".encode()
    text = base64.b32encode(hmac.new(key, payload, hashlib.sha256).digest()).decode()
    return f"{text[:4]}-{text[4:8]}"


def is_valid_code(key: bytes, team: str, address: str, entered: str, now: int) -> bool:
    typed = _normalize_code(entered)
    valid_codes = [recipient_code(key, team, address, at) for at in (now, now - VALID_MS)]
    return any(hmac.compare_digest(typed, _normalize_code(code)) for code in valid_codes)


def _normalize_code(code: str) -> bytes:
    return "".join(code.split()).replace("-", "").upper().encode()
