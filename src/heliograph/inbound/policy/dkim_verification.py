"""Verification of DKIM signatures of inbound mail (RFC 6376, RFC 8463) with the signers' keys in DNS."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from heliograph.domain.mail.address import normal_domain
from heliograph.domain.mail.dkim import SIGNATURES_MAX, hash_relaxed, relaxed
from heliograph.domain.mail.mime_text import PIECE
from heliograph.domain.mail.mime_tree import HEADER_MAX
from heliograph.domain.text import whole_number
from heliograph.inbound.policy.inbound_mail import Verdict

RSA_BITS_MIN = 1024
ALGORITHMS = {"rsa-sha256": "rsa", "ed25519-sha256": "ed25519"}
NEEDED = ("v", "a", "b", "bh", "d", "h", "s")

BodyOf = Callable[[str], bytes]  # canonicalisation → body hash

_FIELDS = re.compile(rb"\r\n(?![ \t])")
_B = re.compile(rb"((?:^|;)[ \t\r\n]*b[ \t\r\n]*=)[^;]*")
_WHITE = re.compile(r"[ \t\r\n]+")


class ForeignSignature(msgspec.Struct, frozen=True):
    """A DKIM-Signature header field."""

    field: bytes  # raw field without its line end
    tags: dict[str, str]

    @property
    def key_name(self) -> str:
        """Return the DNS name of the signature's key; empty if the signature is invalid."""
        domain = normal_domain(self.tags.get("d", ""))
        whole = all(self.tags.get(name) for name in NEEDED) and self.tags["v"] == "1"
        usable = whole and domain and self.tags["a"] in ALGORITHMS
        return f"{self.tags['s']}._domainkey.{domain}".lower() if usable else ""


def signatures_in(head: bytes) -> list[ForeignSignature]:
    """Return the DKIM signatures of a mail with this header."""
    fields = [field for field in _fields(head) if field[:15].lower().startswith(b"dkim-signature:")]
    return [ForeignSignature(field, _tags(field.partition(b":")[2].decode("ascii", "replace"))) for field in fields][
        :SIGNATURES_MAX
    ]


def verify(raw: bytes, keys: Mapping[str, list[str] | None], now_s: int) -> dict[str, Verdict]:
    """Return the verdict of each signature, by domain.

    `keys`: keys by DNS name, None if DNS did not respond. Call it in a thread.
    """
    head, body_at = _split(raw)
    found: dict[str, Verdict] = {}
    body_of: BodyOf = cache(partial(_hash_body, raw, body_at))
    for signature in signatures_in(head):
        name = signature.key_name
        texts = keys.get(name, []) if name else []
        domain = normal_domain(signature.tags.get("d", "")) or ""
        verdict: Verdict = "temperror" if texts is None else _judge(signature, head, texts, body_of, now_s)
        if found.get(domain) != "pass":
            found[domain] = verdict
    return found


def _judge(signature: ForeignSignature, head: bytes, texts: list[str], body_of: BodyOf, now_s: int) -> Verdict:
    tags = signature.tags
    if not signature.key_name or "from" not in _names(tags) or "l" in tags:  # a length tag would allow appended text
        return "permerror"
    expires_s = whole_number(tags.get("x", ""), 12)
    if expires_s is not None and expires_s < now_s:
        return "fail"
    header_form, _, body_form = (tags.get("c") or "simple/simple").partition("/")
    if base64.b64encode(body_of(body_form or "simple")).decode() != _bare(tags["bh"]):
        return "fail"
    key = next((key for text in texts if (key := _key(text, tags["a"]))), None)
    if key is None:
        return "permerror"
    try:
        given = base64.b64decode(_bare(tags["b"]), validate=True)
        _check(key, given, _signed(signature, head, header_form))
    except (InvalidSignature, ValueError):
        return "fail"
    return "pass"


def _check(key: rsa.RSAPublicKey | Ed25519PublicKey, given: bytes, text: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(given, text, padding.PKCS1v15(), hashes.SHA256())
    else:
        key.verify(given, hashlib.sha256(text).digest())


def _key(text: str, algorithm: str) -> rsa.RSAPublicKey | Ed25519PublicKey | None:
    tags = _tags(text)
    if tags.get("v", "DKIM1") != "DKIM1" or tags.get("k", "rsa") != ALGORITHMS[algorithm]:
        return None
    try:
        public = base64.b64decode(_bare(tags.get("p", "")), validate=True)
        if algorithm == "ed25519-sha256":
            return Ed25519PublicKey.from_public_bytes(public)
        key = load_der_public_key(public)
    except ValueError:
        return None
    return key if isinstance(key, rsa.RSAPublicKey) and key.key_size >= RSA_BITS_MIN else None


def _signed(signature: ForeignSignature, head: bytes, form: str) -> bytes:
    """Return the signed header fields, each name from the bottom up, and the signature field without its `b=` value."""
    left: dict[str, list[bytes]] = {}
    for field in _fields(head):
        left.setdefault(field.partition(b":")[0].strip().lower().decode("ascii", "replace"), []).append(field)
    fields = [left[name].pop() for name in _names(signature.tags) if left.get(name)]
    name, _, value = signature.field.partition(b":")
    own = name + b":" + _B.sub(rb"\1", value, count=1)
    if form == "relaxed":
        return b"".join(_relaxed(field) for field in fields) + _relaxed(own).removesuffix(b"\r\n")
    return b"".join(field + b"\r\n" for field in fields) + own


def _relaxed(field: bytes) -> bytes:
    name, _, value = field.partition(b":")
    return relaxed(name.strip(), value)


def _split(raw: bytes) -> tuple[bytes, int]:
    end = raw.find(b"\r\n\r\n")
    return raw[: min(end if end >= 0 else len(raw), HEADER_MAX)], end + 4 if end >= 0 else len(raw)


def _hash_body(raw: bytes, at: int, form: str) -> bytes:
    if form == "relaxed":
        return hash_relaxed(_pieces(raw, at, len(raw)))
    end = len(raw)
    while end - 2 >= at and raw[end - 2 : end] == b"\r\n":
        end -= 2
    digest = hashlib.sha256()
    for piece in _pieces(raw, at, end):
        digest.update(piece)
    digest.update(b"\r\n")
    return digest.digest()


def _pieces(raw: bytes, at: int, end: int) -> Iterator[bytes]:
    for start in range(at, end, PIECE):
        yield raw[start : min(start + PIECE, end)]


def _fields(head: bytes) -> list[bytes]:
    return [field for field in _FIELDS.split(head[:HEADER_MAX]) if b":" in field]


def _tags(text: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in text.split(";"))
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}


def _names(tags: Mapping[str, str]) -> list[str]:
    return [name.strip().lower() for name in tags.get("h", "").split(":")]


def _bare(text: str) -> str:
    return _WHITE.sub("", text)
