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
TlsMode = Literal["none", "opportunistic", "encrypted", "verified", "implicit", "dane"]

# Suffix of the TLS version in the timeline
TLS_SUFFIX_BY_MODE: dict[TlsMode, str] = {"verified": " verified", "implicit": " verified", "dane": " dane"}

# TLSA usages for SMTP (RFC 7672, 3.1): a certificate authority, or the server's own certificate.
DANE_TA, DANE_EE = 2, 3

_DIGEST_BY_MATCHING: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda octets: hashlib.sha256(octets).digest(),
    2: lambda octets: hashlib.sha512(octets).digest(),
}
_LENGTH_BY_MATCHING = {1: 32, 2: 64}  # bytes of a digest, by matching type
_DER = 2  # `ENCODING_DER` of CPython's module `_ssl`


class TlsaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A TLSA record (RFC 6698)."""

    usage: int
    selector: int  # 0: the certificate, 1: its public key
    matching: int  # 0: unhashed, 1: SHA-256, 2: SHA-512
    value: bytes

    @property
    def is_usable(self) -> bool:
        """Return whether the record can match a certificate; a digest of the wrong length cannot (RFC 7671, 10.1)."""
        is_known = self.usage in (DANE_TA, DANE_EE) and self.selector in (0, 1) and self.matching in _DIGEST_BY_MATCHING
        return is_known and len(self.value) == _LENGTH_BY_MATCHING.get(self.matching, len(self.value))

    def matches(self, certificate: x509.Certificate) -> bool:
        """Return whether the TLSA record matches the certificate."""
        if self.selector == 0:
            data = certificate.public_bytes(Encoding.DER)
        else:
            data = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _DIGEST_BY_MATCHING[self.matching](data) == self.value


def context_for(mode: TlsMode, roots: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the TLS context for a mode: one that verifies certificates with `roots`, or one that accepts any."""
    return (roots or system_roots()) if mode in ("verified", "implicit") else _unverified_context()


@lru_cache(maxsize=1)
def _unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate: for opportunistic TLS, and for DANE, which is checked later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def presented_chain(ssl_object: Any) -> list[bytes]:
    """Return the certificate chain (DER) that the server presented, its own certificate first."""
    if hasattr(ssl_object, "get_unverified_chain"):  # since Python 3.13
        return list(ssl_object.get_unverified_chain())
    return [certificate.public_bytes(_DER) for certificate in ssl_object._sslobj.get_unverified_chain()]


def matches_tlsa(chain: Sequence[bytes], tlsa_records: Iterable[TlsaRecord], names: Iterable[str]) -> bool:
    """Return whether a TLSA record matches the server's certificate, or an authority that issued it for a name."""
    leaf, *intermediates = (x509.load_der_x509_certificate(der) for der in chain)
    return any(
        tlsa_record.matches(leaf)
        if tlsa_record.usage == DANE_EE
        else _is_issued_by_anchor(leaf, intermediates, tlsa_record, names)
        for tlsa_record in tlsa_records
        if tlsa_record.is_usable
    )


def _is_issued_by_anchor(
    leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], tlsa_record: TlsaRecord, names: Iterable[str]
) -> bool:
    """Return whether `leaf` is valid for one of `names` and was issued by an authority that matches `tlsa_record`."""
    anchors = [
        certificate
        for certificate in (*intermediates, *_full_certificate(tlsa_record))
        if tlsa_record.matches(certificate)
    ]
    return any(_is_valid_chain(leaf, intermediates, anchor, name) for anchor in anchors for name in names)


def _full_certificate(tlsa_record: TlsaRecord) -> list[x509.Certificate]:
    """Return the authority's certificate if the TLSA record contains it, because the server may omit it; else empty."""
    if (tlsa_record.selector, tlsa_record.matching) != (0, 0):
        return []
    try:
        return [x509.load_der_x509_certificate(tlsa_record.value)]
    except ValueError:
        return []


def _is_valid_chain(
    leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], anchor: x509.Certificate, name: str
) -> bool:
    """Return whether the chain from `leaf` to `anchor` is valid by signatures, dates and name."""
    policy = PolicyBuilder().store(Store([anchor])).extension_policies(ca_policy=_CA_POLICY, ee_policy=_SERVER_POLICY)
    try:
        policy.build_server_verifier(x509.DNSName(name)).verify(leaf, list(intermediates))
    except (VerificationError, ValueError):  # ValueError: the name is not a valid DNS name
        return False
    return True


def _require_ca(_: Policy, __: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("not an authority")


# Mail servers often use private authorities, whose certificates lack extensions that the web PKI requires.
_CA_POLICY = ExtensionPolicy.permit_all().require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _require_ca)
_SERVER_POLICY = ExtensionPolicy.permit_all().require_present(x509.SubjectAlternativeName, Criticality.AGNOSTIC, None)
