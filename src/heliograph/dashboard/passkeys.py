"""WebAuthn passkeys: creates registration and sign-in options, and verifies the browser's responses.

The device verifies its owner (fingerprint, face or PIN), so a passkey counts as two factors. The library is part of the
extra heliograph[passkeys], and imported only when needed, because the import takes 250 ms.
"""

import ipaddress
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.domain.limits import MINUTE_MS
from heliograph.storage.passkeys import Passkey

CHALLENGE_LIFETIME_MS = 5 * MINUTE_MS  # how long a challenge is valid
DEFAULT_PORTS = {"https": 443, "http": 80}

PASSKEYS_AVAILABLE = find_spec("webauthn") is not None


class InvalidAssertion(Exception):
    """The passkey's signature is not valid for this challenge. The text is for the log only."""


class RelyingParty(msgspec.Struct, frozen=True):
    """The WebAuthn relying party: host name and origin of this service."""

    id: str
    origin: str


class Credential(msgspec.Struct, frozen=True):
    """The fields of a browser's response that identify passkey and owner."""

    id: str
    response: dict[str, Any] = {}


class NewCredential(msgspec.Struct, frozen=True):
    """A registered passkey. Id and public key are encoded as base64url."""

    id: str
    public_key: str
    sign_count: int


def relying_party(url: str) -> RelyingParty | None:
    """Return the relying party of the public URL; None if the URL has no TLS or no host name, which passkeys need."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host == "localhost" or host.endswith(".localhost")
    if not host or _is_ip_address(host) or not (parts.scheme == "https" or is_local):
        return None
    port = f":{parts.port}" if parts.port not in (None, DEFAULT_PORTS.get(parts.scheme)) else ""
    return RelyingParty(host, f"{parts.scheme}://{host}{port}")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def registration_options(
    party: RelyingParty, person: str, email: str, name: str, challenge: bytes, existing: Iterable[Passkey]
) -> str:
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
            timeout=CHALLENGE_LIFETIME_MS,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[
                structs.PublicKeyCredentialDescriptor(id=base64url_to_bytes(passkey.id)) for passkey in existing
            ],
        )
    )


def sign_in_options(party: RelyingParty, challenge: bytes) -> str:
    """Return the options for sign-in with a passkey of any user, as JSON."""
    import webauthn
    from webauthn.helpers.structs import UserVerificationRequirement

    return webauthn.options_to_json(
        webauthn.generate_authentication_options(
            rp_id=party.id,
            challenge=challenge,
            timeout=CHALLENGE_LIFETIME_MS,
            user_verification=UserVerificationRequirement.REQUIRED,
        )
    )


def verify_registration(party: RelyingParty, challenge: bytes, response: str) -> NewCredential:
    """Verify a registration response and return the new passkey."""
    import webauthn
    from webauthn.helpers import bytes_to_base64url

    try:
        verified = webauthn.verify_registration_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
        )
    except Exception as error:  # the library's parsers raise various errors for untrusted input
        raise InvalidAssertion(_error_text(error)) from None
    credential_id = bytes_to_base64url(verified.credential_id)
    return NewCredential(credential_id, bytes_to_base64url(verified.credential_public_key), verified.sign_count)


def parse_credential_id(response: str) -> str:
    """Return the passkey's id as claimed by the response, before it is verified."""
    try:
        credential_id = msgspec.json.decode(response, type=Credential).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidAssertion(_error_text(error)) from None
    # PostgreSQL rejects NUL, even in a query parameter.
    if not (credential_id.isascii() and credential_id.isprintable()):
        raise InvalidAssertion("invalid credential id")
    return credential_id


def verify_sign_in(party: RelyingParty, challenge: bytes, response: str, passkey: Passkey) -> int:
    """Verify a sign-in response and return the new signature counter.

    The store checks again that the counter grew, because sign-ins may be concurrent.
    """
    import webauthn
    from webauthn.helpers import base64url_to_bytes

    try:
        verified = webauthn.verify_authentication_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=base64url_to_bytes(passkey.public_key),
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
        user_handle = msgspec.json.decode(response, type=Credential).response.get("userHandle")
        if user_handle is not None and base64url_to_bytes(user_handle) != passkey.person.encode():
            raise InvalidAssertion("the user handle is not that of the passkey's owner")
    except InvalidAssertion:
        raise
    except Exception as error:  # see `verify_registration`
        raise InvalidAssertion(_error_text(error)) from None
    return verified.new_sign_count


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
