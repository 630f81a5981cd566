"""Certificate checks for mail servers: none, by trusted roots, or by TLSA records in DNS (DANE)."""

import hashlib
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from heliograph.runtime.tls_roots import system_roots

# verified: require STARTTLS with a valid certificate for the host name; implicit: the same, with TLS from the first
# byte; encrypted: require STARTTLS with any certificate.
Tls = Literal["none", "opportunistic", "encrypted", "verified", "implicit", "dane"]

TRUST: dict[Tls, str] = {"verified": " verified", "implicit": " verified", "dane": " dane"}  # suffix in the timeline

# TLSA usages for SMTP (RFC 7672, 3.1): a certificate authority, or the server's own certificate.
DANE_TA, DANE_EE = 2, 3

_DIGESTS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda octets: hashlib.sha256(octets).digest(),
    2: lambda octets: hashlib.sha512(octets).digest(),
}
_LENGTHS = {1: 32, 2: 64}  # bytes of a digest, by matching type
_DER = 2  # `ENCODING_DER` of CPython's module `_ssl`


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A TLSA record (RFC 6698)."""

    usage: int
    selector: int  # 0: the certificate, 1: its public key
    matching: int  # 0: unhashed, 1: SHA-256, 2: SHA-512
    value: bytes

    @property
    def usable(self) -> bool:
        """Return whether the record can match a certificate; a digest of the wrong length cannot (RFC 7671, 10.1)."""
        is_known = self.usage in (DANE_TA, DANE_EE) and self.selector in (0, 1) and self.matching in _DIGESTS
        return is_known and len(self.value) == _LENGTHS.get(self.matching, len(self.value))

    def fits(self, certificate: x509.Certificate) -> bool:
        """Return whether the record matches the certificate."""
        if self.selector == 0:
            selected = certificate.public_bytes(Encoding.DER)
        else:
            selected = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _DIGESTS[self.matching](selected) == self.value


def context_for(tls: Tls, roots: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the TLS context for a mode: one that verifies certificates with `roots`, or one that accepts any."""
    return (roots or system_roots()) if tls in ("verified", "implicit") else _any_certificate()


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    """Return a context that accepts any certificate, for opportunistic TLS, and for DANE with its separate check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def presented(tls: Any) -> list[bytes]:
    """Return the certificate chain (DER) that the server presented, its own certificate first."""
    if hasattr(tls, "get_unverified_chain"):  # Python 3.13
        return list(tls.get_unverified_chain())
    return [one.public_bytes(_DER) for one in tls._sslobj.get_unverified_chain()]


def is_pinned(chain: Sequence[bytes], pins: Iterable[Pin], names: Iterable[str]) -> bool:
    """Return whether a TLSA record matches the server's certificate, or an authority that issued it for a name."""
    own, *others = (x509.load_der_x509_certificate(der) for der in chain)
    return any(
        pin.fits(own) if pin.usage == DANE_EE else _is_issued(own, others, pin, names) for pin in pins if pin.usable
    )


def _is_issued(own: x509.Certificate, others: Sequence[x509.Certificate], pin: Pin, names: Iterable[str]) -> bool:
    """Return whether an authority that matches `pin` issued the certificate `own` for one of the names."""
    anchors = [one for one in (*others, *_whole(pin)) if pin.fits(one)]
    return any(_leads_to(own, others, anchor, name) for anchor in anchors for name in names)


def _whole(pin: Pin) -> list[x509.Certificate]:
    """Return the authority's certificate if the record contains it in full; the server may then omit it."""
    try:
        return [x509.load_der_x509_certificate(pin.value)] if (pin.selector, pin.matching) == (0, 0) else []
    except ValueError:
        return []


def _leads_to(own: x509.Certificate, others: Sequence[x509.Certificate], anchor: x509.Certificate, name: str) -> bool:
    """Return whether the chain from `own` to `anchor` is valid by signatures, dates and name."""
    policy = PolicyBuilder().store(Store([anchor])).extension_policies(ca_policy=_AUTHORITY, ee_policy=_SERVER)
    try:
        policy.build_server_verifier(x509.DNSName(name)).verify(own, list(others))
    except (VerificationError, ValueError):  # ValueError: the name is not a valid DNS name
        return False
    return True


def _must_issue(_: Policy, __: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("not an authority")


# Mail servers often use private authorities, whose certificates lack extensions that the web PKI requires.
_AUTHORITY = ExtensionPolicy.permit_all().require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _must_issue)
_SERVER = ExtensionPolicy.permit_all().require_present(x509.SubjectAlternativeName, Criticality.AGNOSTIC, None)
