"""Verifies DKIM signatures of inbound mail (RFC 6376, RFC 8463) with the keys in the signers' DNS."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache, partial

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.mail.dkim import SIGNATURES_MAX, canonicalize_field, hash_body
from heliograph.domain.mail.mime_text import CHUNK_SIZE
from heliograph.domain.mail.mime_tree import HEADER_MAX
from heliograph.domain.text import parse_int
from heliograph.inbound.policy.inbound_mail import Verdict

RSA_BITS_MIN = 1024
ALGORITHMS = {"rsa-sha256": "rsa", "ed25519-sha256": "ed25519"}
REQUIRED_TAGS = ("v", "a", "b", "bh", "d", "h", "s")

BodyHasher = Callable[[str], bytes]  # body canonicalization → body hash

_FIELD_END = re.compile(rb"\r\n(?![ \t])")
_B_TAG_VALUE = re.compile(rb"((?:^|;)[ \t\r\n]*b[ \t\r\n]*=)[^;]*")
_WHITESPACE = re.compile(r"[ \t\r\n]+")


class DkimSignature(msgspec.Struct, frozen=True):
    """A DKIM-Signature header field."""

    field: bytes  # unchanged, without the line end
    tags: dict[str, str]

    @property
    def key_name(self) -> str:
        """Return the DNS name of the key; empty if the signature is invalid."""
        domain = normalize_domain(self.tags.get("d", ""))
        has_required_tags = all(self.tags.get(name) for name in REQUIRED_TAGS) and self.tags["v"] == "1"
        is_usable = has_required_tags and domain and self.tags["a"] in ALGORITHMS
        return f"{self.tags['s']}._domainkey.{domain}".lower() if is_usable else ""


def parse_signatures(head: bytes) -> list[DkimSignature]:
    """Return the DKIM-Signature fields of a mail's header, at most SIGNATURES_MAX."""
    fields = [field for field in _split_fields(head) if field[:15].lower() == b"dkim-signature:"][:SIGNATURES_MAX]
    return [DkimSignature(field, parse_tags(field.partition(b":")[2].decode("ascii", "replace"))) for field in fields]


def verify_signatures(raw: bytes, keys: Mapping[str, list[str] | None], now_s: int) -> dict[str, Verdict]:
    """Return signing domain → verdict. Slow for large mails: call it in a thread.

    `keys`: DNS name → DKIM key records, or None if DNS did not respond.
    """
    head, body_start = _split_head(raw)
    verdicts: dict[str, Verdict] = {}
    body_hash: BodyHasher = cache(partial(_hash_body, raw, body_start))
    for signature in parse_signatures(head):
        name = signature.key_name
        key_records = keys.get(name, []) if name else []
        domain = normalize_domain(signature.tags.get("d", "")) or ""
        verdict: Verdict = (
            "temperror" if key_records is None else _verify_signature(signature, head, key_records, body_hash, now_s)
        )
        if verdicts.get(domain) != "pass":
            verdicts[domain] = verdict
    return verdicts


def _verify_signature(
    signature: DkimSignature, head: bytes, key_records: list[str], body_hash: BodyHasher, now_s: int
) -> Verdict:
    tags = signature.tags
    # with an l= tag, an attacker could append text to the mail
    if not signature.key_name or "from" not in _signed_names(tags) or "l" in tags:
        return "permerror"
    expires_s = parse_int(tags.get("x", ""), 12)
    if expires_s is not None and expires_s < now_s:
        return "fail"
    header_canonicalization, _, body_canonicalization = (tags.get("c") or "simple/simple").partition("/")
    if base64.b64encode(body_hash(body_canonicalization or "simple")).decode() != _strip_whitespace(tags["bh"]):
        return "fail"
    key = next((key for record in key_records if (key := _parse_key(record, tags["a"]))), None)
    if key is None:
        return "permerror"
    try:
        signature_bytes = base64.b64decode(_strip_whitespace(tags["b"]), validate=True)
        _check_signature(key, signature_bytes, _signed_data(signature, head, header_canonicalization))
    except (InvalidSignature, ValueError):
        return "fail"
    return "pass"


def _check_signature(key: rsa.RSAPublicKey | Ed25519PublicKey, signature_bytes: bytes, signed_data: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature_bytes, signed_data, padding.PKCS1v15(), hashes.SHA256())
    else:
        key.verify(signature_bytes, hashlib.sha256(signed_data).digest())


def _parse_key(record: str, algorithm: str) -> rsa.RSAPublicKey | Ed25519PublicKey | None:
    tags = parse_tags(record)
    if tags.get("v", "DKIM1") != "DKIM1" or tags.get("k", "rsa") != ALGORITHMS[algorithm]:
        return None
    try:
        public = base64.b64decode(_strip_whitespace(tags.get("p", "")), validate=True)
        if algorithm == "ed25519-sha256":
            return Ed25519PublicKey.from_public_bytes(public)
        key = load_der_public_key(public)
    except ValueError:
        return None
    return key if isinstance(key, rsa.RSAPublicKey) and key.key_size >= RSA_BITS_MIN else None


def _signed_data(signature: DkimSignature, head: bytes, canonicalization: str) -> bytes:
    """Return the signed bytes: the listed header fields, and the signature field without the value of its `b=` tag.

    Repeated header fields are used from the last to the first.
    """
    unused_fields: dict[str, list[bytes]] = {}
    for field in _split_fields(head):
        unused_fields.setdefault(field.partition(b":")[0].strip().lower().decode("ascii", "replace"), []).append(field)
    fields = [unused_fields[name].pop() for name in _signed_names(signature.tags) if unused_fields.get(name)]
    name, _, value = signature.field.partition(b":")
    signature_field = name + b":" + _B_TAG_VALUE.sub(rb"\1", value, count=1)
    if canonicalization == "relaxed":
        return b"".join(_relax_field(field) for field in fields) + _relax_field(signature_field).removesuffix(b"\r\n")
    return b"".join(field + b"\r\n" for field in fields) + signature_field


def _relax_field(field: bytes) -> bytes:
    name, _, value = field.partition(b":")
    return canonicalize_field(name.strip(), value)


def _split_head(raw: bytes) -> tuple[bytes, int]:
    end = raw.find(b"\r\n\r\n")
    return raw[: min(end if end >= 0 else len(raw), HEADER_MAX)], end + 4 if end >= 0 else len(raw)


def _hash_body(raw: bytes, body_start: int, canonicalization: str) -> bytes:
    if canonicalization == "relaxed":
        return hash_body(raw[start : start + CHUNK_SIZE] for start in range(body_start, len(raw), CHUNK_SIZE))
    end = len(raw)
    while end - 2 >= body_start and raw[end - 2 : end] == b"\r\n":
        end -= 2
    digest = hashlib.sha256(memoryview(raw)[body_start:end])
    digest.update(b"\r\n")
    return digest.digest()


def _split_fields(head: bytes) -> list[bytes]:
    return [field for field in _FIELD_END.split(head[:HEADER_MAX]) if b":" in field]


def parse_tags(text: str) -> dict[str, str]:
    """Parse a list of tags, such as `v=DKIM1; k=rsa`, as used by DKIM and DMARC."""
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {name.strip(): value.strip() for name, equals_sign, value in pairs if equals_sign}


def _signed_names(tags: Mapping[str, str]) -> list[str]:
    return [name.strip().lower() for name in tags.get("h", "").split(":")]


def _strip_whitespace(text: str) -> str:
    return _WHITESPACE.sub("", text)
