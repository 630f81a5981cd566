"""Time-based one-time passwords (RFC 6238: HMAC-SHA-1, 30 seconds, six digits) and recovery codes."""

import base64
import hmac
from urllib.parse import quote

import segno

SECRET_BYTES = 20
TIME_STEP_MS = 30_000
DRIFT_STEPS = 1  # time steps by which the phone's clock may differ
RECOVERY_CODE_COUNT = 10
RECOVERY_CODE_BYTES = 10


def code_at(secret: bytes, step: int) -> str:
    mac = hmac.digest(secret, step.to_bytes(8, "big"), "sha1")
    offset = mac[-1] & 15
    number = int.from_bytes(mac[offset : offset + 4], "big") & 0x7FFFFFFF
    return f"{number % 1_000_000:06}"


def find_time_step(secret: bytes, code: str, now: int) -> int | None:
    """Return the time step of this code; None if the code is wrong."""
    typed, current = code.encode(), now // TIME_STEP_MS
    steps = range(current - DRIFT_STEPS, current + DRIFT_STEPS + 1)
    return next((step for step in steps if hmac.compare_digest(code_at(secret, step).encode(), typed)), None)


def base32(secret: bytes) -> str:
    return base64.b32encode(secret).decode()


def setup_uri(secret: bytes, email: str) -> str:
    """Return the URI that adds the account to an authenticator app."""
    return f"otpauth://totp/Heliograph:{quote(email)}?secret={base32(secret)}&issuer=Heliograph"


def qr_code(secret: bytes, email: str) -> str:
    """Return the QR code for an authenticator app, as a data URI."""
    return segno.make(setup_uri(secret, email), error="m").svg_data_uri(scale=4, border=4, light="#fff", dark="#000")


def recovery_codes(entropy: bytes) -> list[str]:
    """Return recovery codes of 80 bits each, in groups of four characters."""
    texts = (
        base32(entropy[offset : offset + RECOVERY_CODE_BYTES]).lower()
        for offset in range(0, len(entropy), RECOVERY_CODE_BYTES)
    )
    return ["-".join(text[offset : offset + 4] for offset in range(0, 16, 4)) for text in texts]


def normalize_code(code: str) -> str:
    """Return a typed or pasted code without whitespace, in lower case."""
    return "".join(code.split()).lower()
