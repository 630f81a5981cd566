"""Signed addresses that identify a message: envelope sender, complaint address, Reply-To and unsubscribe address.

The envelope sender identifies the recipient and message of a bounce, for 30 days; the complaint address (RFC 9477)
identifies the message of a complaint, and Reply-To that of a reply. The local parts contain only letters and digits, in
one case: some hosts change the case of a local part, but never its digits.
"""

import base64
import hmac
import re
from functools import lru_cache

from heliograph.domain.ids import PREFIXES

DAYS_VALID = 30
POSITION_MAX = 999
ANY_RECIPIENT = POSITION_MAX  # this position in a signed address stands for all recipients of a message

_DAY_MS = 86_400_000
_TAG_BYTES = 15  # 120 bits of the HMAC
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_BOUNCE_ADDRESS = re.compile(r"b([0-9a-z]{26})([0-9]{3})([0-9]{5})([a-z2-7]{24})@([a-z0-9.-]+)")

_UNSUBSCRIBE_ADDRESS = re.compile(r"u([0-9a-z]{26})([a-z2-7]{24})@([a-z0-9.-]+)")
_REPLY_ADDRESS = re.compile(r"r([0-9a-z]{26})([a-z2-7]{24})@([a-z0-9.-]+)")


def bounce_domain(domain: str) -> str:
    """Return the bounce domain of a sending domain: a subdomain, so that SPF aligns."""
    return f"bounce.{domain}"


def sign_return_path(key: bytes, message_id: str, position: int, domain: str, at_ms: int) -> str:
    """Return the envelope sender for one recipient; the local part has 59 bytes."""
    prefix = PREFIXES["email"]
    body = message_id.removeprefix(prefix)
    if body == message_id or not _ULID.fullmatch(body) or not 0 <= position <= POSITION_MAX:
        raise ValueError(f"no email and recipient: {message_id!r}, {position}")
    payload = f"{body.lower()}{position:03d}{at_ms // _DAY_MS:05d}"
    domain = domain.lower()
    return f"b{payload}{_tag(key, payload, domain)}@{domain}"


def parse_return_path(key: bytes, address: str, now_ms: int) -> tuple[str, int] | None:
    """Return (message id, recipient position) of an envelope sender; None if its signature is invalid or expired."""
    # ASCII check first: some letters of other scripts become ASCII in lower case.
    match = _BOUNCE_ADDRESS.fullmatch(address.lower()) if address.isascii() else None
    if match is None:
        return None
    body, position, day, tag, domain = match.groups()
    if not hmac.compare_digest(tag, _tag(key, body + position + day, domain)):
        return None
    if now_ms // _DAY_MS - int(day) > DAYS_VALID:
        return None
    return PREFIXES["email"] + body.upper(), int(position)


def sign_reply_address(key: bytes, message_id: str, team: str, domain: str) -> str:
    """Return the signed Reply-To of one message of a team; it cannot be forged or derived from another message's."""
    body = message_id.removeprefix(PREFIXES["email"]).lower()
    return f"r{body}{_reply_tag(key, body, team, domain)}@{domain}"


def parse_reply_address(key: bytes, address: str, team: str) -> str | None:
    """Return the id of the team's message to which a mail to this address replies; None if the signature is invalid."""
    match = _REPLY_ADDRESS.fullmatch(address.lower()) if address.isascii() else None
    if match is None or not hmac.compare_digest(match[2], _reply_tag(key, match[1], team, match[3])):
        return None
    return PREFIXES["email"] + match[1].upper()


def sign_unsubscribe_address(key: bytes, message_id: str, domain: str) -> str:
    """Return the address to which the recipient of a message can write to unsubscribe; it never expires."""
    body, domain = message_id.removeprefix(PREFIXES["email"]).lower(), domain.lower()
    return f"u{body}{_unsubscribe_tag(key, body, domain)}@{domain}"


def parse_unsubscribe_address(key: bytes, address: str) -> str | None:
    """Return the id of the message whose unsubscribe address this is; None if the signature is invalid."""
    match = _UNSUBSCRIBE_ADDRESS.fullmatch(address.lower()) if address.isascii() else None
    if match is None or not hmac.compare_digest(match[2], _unsubscribe_tag(key, match[1], match[3])):
        return None
    return PREFIXES["email"] + match[1].upper()


def _unsubscribe_tag(key: bytes, body: str, domain: str) -> str:
    digest = hmac.digest(key, f"unsubscribe\0{body}@{domain}".encode(), "sha256")
    return base64.b32encode(digest[:_TAG_BYTES]).decode().lower()


def _reply_tag(key: bytes, body: str, team: str, domain: str) -> str:
    digest = hmac.digest(key, f"reply to\0{team}\0{body}@{domain}".encode(), "sha256")
    return base64.b32encode(digest[:_TAG_BYTES]).decode().lower()


def _tag(key: bytes, payload: str, domain: str) -> str:
    digest = _hmac_of_key(key).copy()  # unlike hmac.digest, this never waits for the GIL
    digest.update(f"envelope sender\0{payload}@{domain}".encode())
    return base64.b32encode(digest.digest()[:_TAG_BYTES]).decode().lower()


@lru_cache(maxsize=4)
def _hmac_of_key(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")
