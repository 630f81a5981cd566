"""Code with which a recipient agrees to receive a sandbox team's messages.

The code is derived from the master secret on demand, so nothing is stored. Its 40 bits resist guessing, and it is
valid for half an hour to an hour.
"""

import base64
import hashlib
import hmac

from heliograph.domain.limits import MINUTE_MS

GOOD_MS = 30 * MINUTE_MS


def recipient_code(key: bytes, team: str, address: str, now: int) -> str:
    """Return a code of eight characters (40 bits), such as K7QF-2M3D."""
    said = f"recipient/{team}/{now // GOOD_MS}/{address}".encode()
    text = base64.b32encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
    return f"{text[:4]}-{text[4:8]}"


def is_right_code(key: bytes, team: str, address: str, given: str, now: int) -> bool:
    typed = _bare(given)
    good = [recipient_code(key, team, address, at) for at in (now, now - GOOD_MS)]
    return any(hmac.compare_digest(typed, _bare(code)) for code in good)


def _bare(code: str) -> bytes:
    return "".join(code.split()).replace("-", "").upper().encode()
