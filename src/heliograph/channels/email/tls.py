"""Which certificate of a mail server to accept: any, one from a trusted root, or one pinned by DNS (DANE)."""

import hashlib
import ssl
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# verified: STARTTLS with a certificate for the host's name, or no mail; implicit: the same from the first byte.
Tls = Literal["none", "opportunistic", "verified", "implicit", "dane"]

TRUST: dict[Tls, str] = {"verified": " verified", "implicit": " verified", "dane": " dane"}  # for the timeline

_DIGESTS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda octets: hashlib.sha256(octets).digest(),
    2: lambda octets: hashlib.sha512(octets).digest(),
}


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A TLSA record of usage 3: this certificate or key, whoever signed it."""

    selector: int  # 0 the certificate, 1 its public key
    matching: int  # 0 as it is, 1 SHA-256, 2 SHA-512
    value: bytes

    @property
    def usable(self) -> bool:
        return self.selector in (0, 1) and self.matching in _DIGESTS


def context_for(tls: Tls, roots: ssl.SSLContext | None) -> ssl.SSLContext:
    return (roots or system_roots()) if tls in ("verified", "implicit") else _any_certificate()


@lru_cache(maxsize=1)
def system_roots() -> ssl.SSLContext:
    return ssl.create_default_context()


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    """For opportunistic TLS, which accepts any certificate, and for DANE, which checks the certificate itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_pinned(certificate: bytes, pins: Iterable[Pin]) -> bool:
    key = x509.load_der_x509_certificate(certificate).public_key()
    selected = (certificate, key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return any(pin.usable and _DIGESTS[pin.matching](selected[pin.selector]) == pin.value for pin in pins)
