"""DKIM signatures (RFC 6376, RFC 8463) with relaxed/relaxed canonicalization, one per domain key; key generation."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
import pybase64
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from heliograph.domain.mail.address import normalize_domain

Algorithm = Literal["rsa-sha256", "ed25519-sha256"]
PrivateKey = rsa.RSAPrivateKey | Ed25519PrivateKey

RSA_BITS = 2048
_PADDING, _SHA256 = padding.PKCS1v15(), hashes.SHA256()
LINE_MAX = 76  # maximum characters of a header line

# Each name is listed once more than it occurs (oversigning), so that adding a header breaks the signature.
SIGNED_HEADERS = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type")
# Signed if present: unsubscription (RFC 8058) and complaint loops (RFC 9477) require it, and the others define threads.
OPTIONAL_SIGNED_HEADERS = (
    *("In-Reply-To", "References", "List-Id", "List-Unsubscribe", "List-Unsubscribe-Post"),
    *("Feedback-ID", "CFBL-Address"),
)

_SIGNED_NAMES, _OPTIONAL_SIGNED_NAMES = (
    [(name, name.lower().encode()) for name in names] for names in (SIGNED_HEADERS, OPTIONAL_SIGNED_HEADERS)
)
SIGNATURES_MAX = 4  # maximum number of signatures of a mail that are examined
_SIGNATURE_VALUE = re.compile(rb"[;:][ ]?b=([^;\r\n]*)")
_UNFOLDED_FIELD = re.compile(rb"([!-9;-~]+):([^\r\n]*)\r\n")  # (name, value) of a field on one line
_UNFOLDED_FIELDS = re.compile(rb"(?:[!-9;-~]+:[^\r\n]*\r\n)*")
_SELECTOR = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    selector: str
    algorithm: Algorithm
    private: bytes  # PEM


class Signer:
    """Signs mails for one domain. Loading the keys costs more than signing, so reuse the signer."""

    def __init__(self, domain: str, keys: Sequence[SigningKey]) -> None:
        if not keys or normalize_domain(domain) != domain:
            raise ValueError(f"{domain!r} is not a domain in A-labels, or has no key")
        self._domain = domain
        self._keys = [(key, _load_signing_key(key)) for key in keys]

    def sign(self, headers: bytes, body: Iterable[bytes], *, time_ms: int) -> bytes:
        """Return the DKIM-Signature fields to prepend to the header block, which must have CRLF line ends."""
        return sign_all(self.draft(headers, body, time_ms=time_ms))

    def draft(self, headers: bytes, body: Iterable[bytes], *, time_ms: int) -> list["Draft"]:
        """Return one DKIM-Signature field per key, without the signature value."""
        fields = _parse_header(headers)
        headers_to_sign = _SIGNED_NAMES + [pair for pair in _OPTIONAL_SIGNED_NAMES if pair[1] in fields]
        names = ":".join([name for name, lower in headers_to_sign for _ in range(len(fields.get(lower, ())) + 1)])
        # Of several fields with one name, the lowest is signed first (RFC 6376 5.4.2).
        signed = b"".join([field for _, lower in headers_to_sign for field in reversed(fields.get(lower, ()))])
        tags = f" h={_fold(names, ':')};\r\n bh={pybase64.b64encode(hash_body(body)).decode()};\r\n b="
        return [self._draft(key, private, time_ms // 1000, tags, signed) for key, private in self._keys]

    def _draft(self, key: SigningKey, private: PrivateKey, seconds: int, tags: str, signed: bytes) -> "Draft":
        unsigned = (
            f"DKIM-Signature: v=1; a={key.algorithm}; c=relaxed/relaxed;\r\n"
            f" d={self._domain};\r\n"
            f" s={key.selector}; t={seconds};\r\n{tags}"
        )
        name, _, value = unsigned.encode().partition(b":")
        return Draft(private, unsigned, signed + canonicalize_field(name, value).removesuffix(b"\r\n"))


class Draft(msgspec.Struct, frozen=True):
    private_key: PrivateKey
    unsigned: str  # the field without its signature value
    signed_data: bytes  # the data to sign

    def sign(self) -> bytes:
        signature = pybase64.b64encode(_sign(self.private_key, self.signed_data)).decode()
        return f"{self.unsigned}{_fold(signature)}\r\n".encode()


def sign_all(drafts: Iterable[Draft]) -> bytes:
    """Return the signed DKIM-Signature fields. Takes milliseconds without the GIL: call it in a thread."""
    return b"".join([draft.sign() for draft in drafts])


def is_signed_by_us(head: bytes, keys_of: Callable[[str], Sequence[SigningKey]]) -> bool:
    """Return whether one of our keys signed this header block (CRLF line ends). The body may be truncated or missing.

    Signatures are deterministic, so the signature is computed again and compared.
    """
    try:
        fields = _parse_header(head)
    except ValueError:
        return False
    return any(
        _is_our_signature(signature, fields, keys_of)
        for signature in fields.get(b"dkim-signature", [])[:SIGNATURES_MAX]
    )


def _is_our_signature(
    signature: bytes, fields: dict[bytes, list[bytes]], keys_of: Callable[[str], Sequence[SigningKey]]
) -> bool:
    value_match = _SIGNATURE_VALUE.search(signature)
    tags = dict(_parse_tag(tag) for tag in signature.partition(b":")[2].split(b";"))
    keys = [
        key for key in keys_of(tags.get("d", "")) if (key.selector, key.algorithm) == (tags.get("s"), tags.get("a"))
    ]
    if not keys or not value_match:
        return False
    remaining = {name: list(values) for name, values in fields.items()}
    names = [name.strip().lower().encode() for name in tags.get("h", "").split(":")]
    signed = b"".join([remaining[name].pop() for name in names if remaining.get(name)])
    text = signed + signature[: value_match.start(1)] + signature[value_match.end(1) :].removesuffix(b"\r\n")
    signature_value = "".join(tags.get("b", "").split()).encode()
    return any(
        hmac.compare_digest(pybase64.b64encode(_sign(_load_signing_key(key), text)), signature_value) for key in keys
    )


def _parse_tag(text: bytes) -> tuple[str, str]:
    name, _, value = text.decode("ascii", "replace").partition("=")
    return name.strip(), value.strip()


def generate_key(algorithm: Algorithm) -> bytes:
    """Generate a private key; return it as PEM."""
    private_key: PrivateKey
    if algorithm == "rsa-sha256":
        private_key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    else:
        private_key = Ed25519PrivateKey.generate()
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_private_key(pem: str) -> tuple[bytes, Algorithm]:
    """Validate an imported private key; return its PKCS8 PEM and its algorithm; raise ValueError if it is invalid."""
    try:
        key = serialization.load_pem_private_key(pem.strip().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("The private key is not an unencrypted PEM key.") from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < RSA_BITS:
        raise ValueError(f"The RSA key has {key.key_size} bits; at least {RSA_BITS} are needed.")
    if not isinstance(key, rsa.RSAPrivateKey | Ed25519PrivateKey):
        raise ValueError("The private key must be an RSA or an Ed25519 key.")
    algorithm: Algorithm = "rsa-sha256" if isinstance(key, rsa.RSAPrivateKey) else "ed25519-sha256"
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), algorithm


def public_record(private: bytes) -> str:
    """Return the value of the TXT record at `<selector>._domainkey.<domain>`, which for RSA exceeds one DNS string."""
    key = _load_pem(private)
    if isinstance(key, Ed25519PrivateKey):
        kind, public = "ed25519", key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    elif isinstance(key, rsa.RSAPrivateKey):
        kind = "rsa"
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    else:
        raise ValueError("neither an RSA nor an Ed25519 key")
    return f"v=DKIM1; k={kind}; p={pybase64.b64encode(public).decode()}"


def _load_signing_key(key: SigningKey) -> PrivateKey:
    if not _SELECTOR.fullmatch(key.selector):
        raise ValueError(f"{key.selector!r} is not a selector")
    private = _load_pem(key.private)
    expected_type = rsa.RSAPrivateKey if key.algorithm == "rsa-sha256" else Ed25519PrivateKey
    if not isinstance(private, expected_type):
        raise ValueError(f"the key of selector {key.selector} is not for {key.algorithm}")
    return private


def _load_pem(private: bytes) -> object:
    """Load a stored private key without validating it again, which takes 0.2 s for RSA."""
    return serialization.load_pem_private_key(private, None, unsafe_skip_rsa_key_validation=True)


def _sign(private: PrivateKey, text: bytes) -> bytes:
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(text, _PADDING, _SHA256)
    return private.sign(hashlib.sha256(text).digest())  # RFC 8463 3: signs the hash


def _parse_header(headers: bytes) -> dict[bytes, list[bytes]]:
    """Map each lower-case field name to its fields in canonical form, from top to bottom."""
    lines = _collapse_spaces(headers.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" "))
    well_formed = _UNFOLDED_FIELDS.match(lines)
    if well_formed and well_formed.end() < len(lines):
        invalid_line = lines[well_formed.end() :]
        raise ValueError(f"the header block has a line that is not a field: {invalid_line[:80]!r}")
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _UNFOLDED_FIELD.findall(lines):
        fields.setdefault(name.lower(), []).append(name.lower() + b":" + value.strip(b" ") + b"\r\n")
    return fields


def canonicalize_field(name: bytes, value: bytes) -> bytes:
    """Return the field in the canonical form of RFC 6376 3.4.2."""
    return name.lower() + b":" + _collapse_spaces(value.replace(b"\r\n", b"")).strip(b" ") + b"\r\n"


def hash_body(chunks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the body in the canonical form of RFC 6376 3.4.4, in one pass."""
    digest = hashlib.sha256()
    pending: list[bytes] = []  # trailing whitespace, kept or dropped depending on the next chunk
    is_empty = True
    for chunk in chunks:
        stripped = chunk.rstrip(b" \t\r\n")
        if stripped:
            text = b"".join([*pending, stripped])
            digest.update(_collapse_spaces(text).replace(b" \r\n", b"\r\n"))
            pending = []
            is_empty = False
        pending.append(chunk[len(stripped) :])
    if not is_empty:
        digest.update(b"\r\n")
    return digest.digest()


def _collapse_spaces(text: bytes) -> bytes:
    text = text.replace(b"\t", b" ")
    while b"  " in text:  # halves every run: faster than a regular expression
        text = text.replace(b"  ", b" ")
    return text


def _fold(text: str, separator: str = "") -> str:
    """Return the value folded into lines, broken after a `separator`, or anywhere if `separator` is empty."""
    lines: list[str] = []
    while len(text) > LINE_MAX - 4:
        end = text.rfind(separator, 0, LINE_MAX - 4) + 1 if separator else LINE_MAX - 4
        lines.append(text[:end])
        text = text[end:]
    return "\r\n ".join([*lines, text])
