"""Adds and removes passkeys, and signs users in with a passkey.

A script requests the WebAuthn options, and submits the browser's response with the form. Until then, an encrypted
cookie holds the challenge, which is bound to this session and can be used once.
"""

import msgspec
import structlog

from heliograph.changes.fields import is_single_line
from heliograph.dashboard.page_request import Download, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.passkeys import (
    CHALLENGE_LIFETIME_MS,
    PASSKEYS_AVAILABLE,
    InvalidAssertion,
    RelyingParty,
    parse_credential_id,
    registration_options,
    relying_party,
    sign_in_options,
    verify_registration,
    verify_sign_in,
)
from heliograph.dashboard.views import account
from heliograph.dashboard.views.reauth import reauthentication_error
from heliograph.dashboard.views.sign_in import NETWORK_ATTEMPTS_MAX, TOO_MANY_ATTEMPTS, sign_in_page, start_session
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.network.client_address import client_network
from heliograph.encryption import DecryptionError
from heliograph.manage import people
from heliograph.storage.passkeys import Passkey
from heliograph.texts.dashboard_links import ACCOUNT

CHALLENGE_COOKIE = "heliograph_passkey"
CHALLENGE_BYTES = 32
PASSKEY_REJECTED = "This passkey didn't work. Try again or sign in another way."
NOT_ADDED = "No passkey was added. Try again."

log = structlog.get_logger()


class Challenge(msgspec.Struct, frozen=True):
    """WebAuthn challenge in the encrypted cookie, with its expiry time."""

    octets: bytes
    until: int


async def sign_in_challenge(request: PageRequest) -> PageResponse:
    challenge = request.context.clock.random_bytes(CHALLENGE_BYTES)
    return _challenge_response(request, challenge, sign_in_options(_relying_party(request), challenge))


async def sign_in(request: PageRequest) -> PageResponse:
    party, challenge = _relying_party(request), _read_challenge(request)
    network = f"network {client_network(request.client_ip)}"
    if await request.store.attempt_limiter.record_attempt({network: NETWORK_ATTEMPTS_MAX}, request.context.clock.now()):
        return sign_in_page(request, problem=TOO_MANY_ATTEMPTS, status=429)
    try:
        if challenge is None:
            raise InvalidAssertion("challenge missing or expired")
        credential = request.form.get("credential", "")
        passkey = await request.store.passkeys.find(parse_credential_id(credential))
        person = await request.store.people.get(passkey.person) if passkey else None
        if passkey is None or person is None:
            raise InvalidAssertion("unknown passkey")
        count = verify_sign_in(party, challenge, credential, passkey)
        if not await request.store.passkeys.use(passkey.id, count):
            raise InvalidAssertion("signature counter decreased")
    except InvalidAssertion as error:
        log.warning("passkey sign-in rejected", request_id=request.http.id, error=str(error))
        return sign_in_page(request, problem=PASSKEY_REJECTED, status=403)
    await request.store.attempt_limiter.remove_last_attempt([network])
    how, consumed_token = f"with the passkey {passkey.name}", f"passkey {challenge.hex()}"
    return await start_session(
        request, person, request.query.get("next", ""), audit_detail=how, consumed_token=consumed_token
    )


async def registration_challenge(request: PageRequest) -> PageResponse:
    user, challenge = request.user, request.context.clock.random_bytes(CHALLENGE_BYTES)
    existing_passkeys = await request.store.passkeys.list_all(user.person)
    return _challenge_response(
        request,
        challenge,
        registration_options(_relying_party(request), user.person, user.email, user.name, challenge, existing_passkeys),
    )


async def add(request: PageRequest) -> PageResponse:
    party, challenge, name = _relying_party(request), _read_challenge(request), request.form.get("passkey", "").strip()
    if not name or not is_single_line(name):
        return await account.show(request, {"passkey": "Enter a name of up to 200 characters."})
    person = await account.load_user(request)
    if problem := await reauthentication_error(request, person, request.form.get("check", "")):
        return await account.show(request, {"check": problem})
    try:
        if challenge is None:
            raise InvalidAssertion("challenge missing or expired")
        credential = verify_registration(party, challenge, request.form.get("credential", ""))
    except InvalidAssertion as error:
        log.warning("new passkey rejected", request_id=request.http.id, error=str(error))
        return await account.show(request, {"passkey": NOT_ADDED})
    passkey = Passkey(
        credential.id, person.id, name, credential.public_key, credential.sign_count, request.context.clock.now()
    )
    if not await people.add_passkey(request.store, request.actor, person, passkey):
        return await account.show(request, {"passkey": NOT_ADDED})
    return Redirect(ACCOUNT, f"Passkey {name} added.")


async def remove(request: PageRequest) -> PageResponse:
    passkey_by_id = {item.id: item for item in await request.store.passkeys.list_all(request.user.person)}
    passkey = passkey_by_id.get(request.form.get("id", ""))
    if passkey is None:
        raise PageNotFound
    await people.remove_passkey(request.store, request.actor, request.user.email, passkey)
    return Redirect(ACCOUNT, f"Passkey {passkey.name} removed.")


def _relying_party(request: PageRequest) -> RelyingParty:
    party = relying_party(request.context.base_url) if request.tools.password_sign_in and PASSKEYS_AVAILABLE else None
    if party is None:
        raise PageNotFound
    return party


def _encryption_context(request: PageRequest) -> str:
    """Return the context for encrypting a challenge: the session to which it is bound."""
    return f"passkey/{request.signed_in.session if request.signed_in else ''}"


def _challenge_response(request: PageRequest, challenge: bytes, options: str) -> Download:
    expires_at = request.context.clock.now() + CHALLENGE_LIFETIME_MS
    encrypted = request.tools.encrypt(
        msgspec.json.encode(Challenge(challenge, expires_at)), _encryption_context(request)
    )
    return Download(
        options.encode(),
        "application/json",
        cookies=(f"{CHALLENGE_COOKIE}={encrypted}; Max-Age={CHALLENGE_LIFETIME_MS // SECOND_MS}",),
    )


def _read_challenge(request: PageRequest) -> bytes | None:
    try:
        decrypted = request.tools.decrypt(request.cookies.get(CHALLENGE_COOKIE, ""), _encryption_context(request))
    except DecryptionError:
        return None
    challenge = msgspec.json.decode(decrypted, type=Challenge)
    return challenge.octets if challenge.until > request.context.clock.now() else None
