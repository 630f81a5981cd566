"""DKIM signatures (RFC 6376, RFC 8463) with relaxed/relaxed canonicalization, one header per domain key; keys."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
import pybase64
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from heliograph.domain.mail.address import normal_domain

Algorithm = Literal["rsa-sha256", "ed25519-sha256"]
Private = rsa.RSAPrivateKey | Ed25519PrivateKey

RSA_BITS = 2048
_PADDING, _SHA256 = padding.PKCS1v15(), hashes.SHA256()
LINE = 76  # characters

# Each name is listed once more than it occurs (oversigning), so that adding a header breaks the signature.
SIGNED = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type")
# Signed if present: one-click unsubscription requires it (RFC 8058), and the others define threads.
SIGNED_IF_THERE = ("In-Reply-To", "References", "List-Id", "List-Unsubscribe", "List-Unsubscribe-Post")

_SIGNED, _SIGNED_IF_THERE = ([(name, name.lower().encode()) for name in names] for names in (SIGNED, SIGNED_IF_THERE))
SIGNATURES_MAX = 4  # signatures of a mail that are examined
_B_TAG = re.compile(rb"[;:][ ]?b=([^;\r\n]*)")
_FIELD = re.compile(rb"([!-9;-~]+):([^\r\n]*)\r\n")  # unfolded
_FIELDS = re.compile(rb"(?:[!-9;-~]+:[^\r\n]*\r\n)*")
_SELECTOR = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    selector: str
    algorithm: Algorithm
    private: bytes  # PEM


class Signer:
    """Signs for one domain. Loading the keys costs more than signing, so reuse the signer."""

    def __init__(self, domain: str, keys: Sequence[SigningKey]) -> None:
        if not keys or normal_domain(domain) != domain:
            raise ValueError(f"{domain!r} is not a domain in A-labels, or has no key")
        self._domain = domain
        self._keys = [(key, _opened(key)) for key in keys]

    def sign(self, headers: bytes, body: Iterable[bytes], *, time_ms: int) -> bytes:
        """Return the DKIM-Signature fields to prepend to the header block, which must have CRLF line ends."""
        return sign_all(self.draft(headers, body, time_ms=time_ms))

    def draft(self, headers: bytes, body: Iterable[bytes], *, time_ms: int) -> list["Draft"]:
        """Return one field per key, without the signature value."""
        fields = _read(headers)
        wanted = _SIGNED + [pair for pair in _SIGNED_IF_THERE if pair[1] in fields]
        names = ":".join([name for name, lower in wanted for _ in range(len(fields.get(lower, ())) + 1)])
        # Of several fields with one name, the lowest is signed first (RFC 6376 5.4.2).
        signed = b"".join([field for _, lower in wanted for field in reversed(fields.get(lower, ()))])
        tags = f" h={_folded(names, ':')};\r\n bh={pybase64.b64encode(hash_relaxed(body)).decode()};\r\n b="
        return [self._draft(key, private, time_ms // 1000, tags, signed) for key, private in self._keys]

    def _draft(self, key: SigningKey, private: Private, seconds: int, tags: str, signed: bytes) -> "Draft":
        unsigned = (
            f"DKIM-Signature: v=1; a={key.algorithm}; c=relaxed/relaxed;\r\n"
            f" d={self._domain};\r\n"
            f" s={key.selector}; t={seconds};\r\n{tags}"
        )
        name, _, value = unsigned.encode().partition(b":")
        return Draft(private, unsigned, signed + relaxed(name, value).removesuffix(b"\r\n"))


class Draft(msgspec.Struct, frozen=True):
    private: Private
    unsigned: str  # the field without its signature value
    text: bytes  # the data to sign

    def sign(self) -> bytes:
        return f"{self.unsigned}{_folded(pybase64.b64encode(_sign(self.private, self.text)).decode())}\r\n".encode()


def sign_all(drafts: Iterable[Draft]) -> bytes:
    """Return the signed fields. Takes milliseconds without the GIL: call this function in a thread."""
    return b"".join([draft.sign() for draft in drafts])


def is_ours(head: bytes, keys_of: Callable[[str], Sequence[SigningKey]]) -> bool:
    """Return whether one of our keys signed this header block (CRLF line ends). The body may be truncated or missing.

    Signatures are deterministic, so the signature is computed again and compared.
    """
    try:
        fields = _read(head)
    except ValueError:
        return False
    return any(_is_own(one, fields, keys_of) for one in fields.get(b"dkim-signature", [])[:SIGNATURES_MAX])


def _is_own(signature: bytes, fields: dict[bytes, list[bytes]], keys_of: Callable[[str], Sequence[SigningKey]]) -> bool:
    found = _B_TAG.search(signature)
    tags = dict(_tag(one) for one in signature.partition(b":")[2].split(b";"))
    keys = [
        key for key in keys_of(tags.get("d", "")) if (key.selector, key.algorithm) == (tags.get("s"), tags.get("a"))
    ]
    if not keys or not found:
        return False
    left = {name: list(values) for name, values in fields.items()}
    names = [name.strip().lower().encode() for name in tags.get("h", "").split(":")]
    signed = b"".join([left[name].pop() for name in names if left.get(name)])
    text = signed + signature[: found.start(1)] + signature[found.end(1) :].removesuffix(b"\r\n")
    given = "".join(tags.get("b", "").split()).encode()
    return any(hmac.compare_digest(pybase64.b64encode(_sign(_opened(key), text)), given) for key in keys)


def _tag(text: bytes) -> tuple[str, str]:
    name, _, value = text.decode("ascii", "replace").partition("=")
    return name.strip(), value.strip()


def make_key(algorithm: Algorithm) -> bytes:
    """Generate a private key, as PEM."""
    made: Private
    if algorithm == "rsa-sha256":
        made = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    else:
        made = Ed25519PrivateKey.generate()
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_record(private: bytes) -> str:
    """Return the value of the TXT record at `<selector>._domainkey.<domain>`; longer than one DNS string for RSA."""
    key = _loaded(private)
    if isinstance(key, Ed25519PrivateKey):
        kind, public = "ed25519", key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    elif isinstance(key, rsa.RSAPrivateKey):
        kind = "rsa"
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    else:
        raise ValueError("neither an RSA nor an Ed25519 key")
    return f"v=DKIM1; k={kind}; p={pybase64.b64encode(public).decode()}"


def _opened(key: SigningKey) -> Private:
    if not _SELECTOR.fullmatch(key.selector):
        raise ValueError(f"{key.selector!r} is not a selector")
    private = _loaded(key.private)
    wanted = rsa.RSAPrivateKey if key.algorithm == "rsa-sha256" else Ed25519PrivateKey
    if not isinstance(private, wanted):
        raise ValueError(f"the key of selector {key.selector} is not for {key.algorithm}")
    return private


def _loaded(private: bytes) -> object:
    """Load a key without validation, which takes 0.2 s for RSA: `make_key` created it, and authenticated encryption
    protected it.
    """
    return serialization.load_pem_private_key(private, None, unsafe_skip_rsa_key_validation=True)


def _sign(private: Private, text: bytes) -> bytes:
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(text, _PADDING, _SHA256)
    return private.sign(hashlib.sha256(text).digest())  # RFC 8463 3: signs the hash


def _read(headers: bytes) -> dict[bytes, list[bytes]]:
    """Map each lower-case name to its fields in canonical form, from top to bottom."""
    lines = _single_spaced(headers.replace(b"\r\n ", b" ").replace(b"\r\n\t", b" "))
    well_formed = _FIELDS.match(lines)
    if well_formed and well_formed.end() < len(lines):
        wrong = lines[well_formed.end() :]
        raise ValueError(f"the header block has a line that is not a field: {wrong[:80]!r}")
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _FIELD.findall(lines):
        fields.setdefault(name.lower(), []).append(name.lower() + b":" + value.strip(b" ") + b"\r\n")
    return fields


def relaxed(name: bytes, value: bytes) -> bytes:
    """Return the field in the canonical form of RFC 6376 3.4.2."""
    return name.lower() + b":" + _single_spaced(value.replace(b"\r\n", b"")).strip(b" ") + b"\r\n"


def hash_relaxed(chunks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the body in the canonical form of RFC 6376 3.4.4, in one pass."""
    digest = hashlib.sha256()
    waiting: list[bytes] = []  # trailing whitespace, kept or dropped depending on the next chunk
    empty = True
    for chunk in chunks:
        solid = chunk.rstrip(b" \t\r\n")
        if solid:
            text = b"".join([*waiting, solid])
            digest.update(_single_spaced(text).replace(b" \r\n", b"\r\n"))
            waiting = []
            empty = False
        waiting.append(chunk[len(solid) :])
    if not empty:
        digest.update(b"\r\n")
    return digest.digest()


def _single_spaced(text: bytes) -> bytes:
    text = text.replace(b"\t", b" ")
    while b"  " in text:  # halves every run: faster than a regular expression
        text = text.replace(b"  ", b" ")
    return text


def _folded(text: str, after: str = "") -> str:
    """Return the value folded into lines, broken after `after` or, if `after` is empty, anywhere."""
    lines: list[str] = []
    while len(text) > LINE - 4:
        end = text.rfind(after, 0, LINE - 4) + 1 if after else LINE - 4
        lines.append(text[:end])
        text = text[end:]
    return "\r\n ".join([*lines, text])
