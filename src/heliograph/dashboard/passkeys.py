"""WebAuthn passkeys: creates registration and sign-in options, and verifies the browser's responses.

The device verifies its owner (fingerprint, face or PIN), so a passkey counts as both factors.

The library is imported lazily: the import takes 250 ms, and most processes never need it. Without the extra
heliograph[passkeys] there are no passkeys.
"""

import ipaddress
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.domain.limits import MINUTE_MS
from heliograph.storage.passkeys import Passkey

WAIT_MS = 5 * MINUTE_MS  # lifetime of a challenge
PORTS = {"https": 443, "http": 80}


ARE_HERE = find_spec("webauthn") is not None


class NotSigned(Exception):
    """The response is not a valid signature of this passkey for this challenge. The text is for the log."""


class Party(msgspec.Struct, frozen=True):
    """WebAuthn relying party: host name and origin."""

    id: str
    origin: str


class Credential(msgspec.Struct, frozen=True):
    """The fields of a browser's response that identify the passkey and its owner."""

    id: str
    response: dict[str, Any] = {}


class NewCredential(msgspec.Struct, frozen=True):
    id: str
    public_key: str
    sign_count: int


def party_of(url: str) -> Party | None:
    """Return the relying party of the public URL; None if passkeys are unsupported there (no TLS or no host name)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_here = host == "localhost" or host.endswith(".localhost")
    if not host or _is_address(host) or not (parts.scheme == "https" or is_here):
        return None
    port = f":{parts.port}" if parts.port not in (None, PORTS.get(parts.scheme)) else ""
    return Party(host, f"{parts.scheme}://{host}{port}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def to_create(party: Party, person: str, email: str, name: str, challenge: bytes, held: Iterable[Passkey]) -> str:
    """Return the registration options for a new passkey, as JSON."""
    import webauthn
    from webauthn.helpers import base64url_to_bytes, structs

    return webauthn.options_to_json(
        webauthn.generate_registration_options(
            rp_id=party.id,
            rp_name="Heliograph",
            user_id=person.encode(),
            user_name=email,
            user_display_name=name,
            challenge=challenge,
            timeout=WAIT_MS,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[structs.PublicKeyCredentialDescriptor(id=base64url_to_bytes(one.id)) for one in held],
        )
    )


def to_sign(party: Party, challenge: bytes) -> str:
    """Return the sign-in options for any user's passkey, as JSON."""
    import webauthn
    from webauthn.helpers.structs import UserVerificationRequirement

    return webauthn.options_to_json(
        webauthn.generate_authentication_options(
            rp_id=party.id, challenge=challenge, timeout=WAIT_MS, user_verification=UserVerificationRequirement.REQUIRED
        )
    )


def read_new(party: Party, challenge: bytes, answer: str) -> NewCredential:
    import webauthn
    from webauthn.helpers import bytes_to_base64url

    try:
        made = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
        )
    except Exception as error:  # the CBOR, COSE and certificate parsers raise various errors for untrusted input
        raise NotSigned(_why(error)) from None
    id_ = bytes_to_base64url(made.credential_id)
    return NewCredential(id_, bytes_to_base64url(made.credential_public_key), made.sign_count)


def read_id(answer: str) -> str:
    """Return the id of the passkey that the response claims to be from."""
    try:
        said = msgspec.json.decode(answer, type=Credential).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSigned(_why(error)) from None
    if not (said.isascii() and said.isprintable()):  # PostgreSQL rejects NUL, even in a query parameter
        raise NotSigned("its id is none")
    return said


def read_signed(party: Party, challenge: bytes, answer: str, passkey: Passkey) -> int:
    """Verify a sign-in response and return the new signature counter.

    The store compares the counter again, because of concurrent sign-ins.
    """
    import webauthn
    from webauthn.helpers import base64url_to_bytes

    try:
        signed = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=base64url_to_bytes(passkey.public_key),
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
        handle = msgspec.json.decode(answer, type=Credential).response.get("userHandle")
        if handle is not None and base64url_to_bytes(handle) != passkey.person.encode():
            raise NotSigned("it names another person than its owner")
    except NotSigned:
        raise
    except Exception as error:  # see `read_new`
        raise NotSigned(_why(error)) from None
    return signed.new_sign_count


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
