"""Adds and removes passkeys, and signs users in with a passkey.

A script fetches the WebAuthn options and submits the browser's response with the form. Until then the challenge is
kept in an encrypted cookie, bound to this session; it can be used once.
"""

import msgspec
import structlog

from heliograph.changes.fields import is_line
from heliograph.dashboard.page_request import Answer, Download, Gone, Redirect, Visit
from heliograph.dashboard.passkeys import (
    ARE_HERE,
    WAIT_MS,
    NotSigned,
    Party,
    party_of,
    read_id,
    read_new,
    read_signed,
    to_create,
    to_sign,
)
from heliograph.dashboard.views import account
from heliograph.dashboard.views.reauth import why_unproven
from heliograph.dashboard.views.sign_in import NETWORK_TRIES_MAX, TOO_MANY, let_in, page
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.network.client_address import network_of
from heliograph.encryption import CannotOpen
from heliograph.manage import people
from heliograph.storage.passkeys import Passkey
from heliograph.texts.dashboard_links import ACCOUNT

COOKIE = "heliograph_passkey"
CHALLENGE_BYTES = 32
WRONG = "This passkey did not work here. Try again, or sign in another way."
NOT_ADDED = "No passkey was added. Try again."

log = structlog.get_logger()


class Challenge(msgspec.Struct, frozen=True):
    octets: bytes
    until: int


async def ask_to_sign(visit: Visit) -> Answer:
    challenge = visit.context.clock.entropy(CHALLENGE_BYTES)
    return _question(visit, challenge, to_sign(_party(visit), challenge))


async def sign_in(visit: Visit) -> Answer:
    party, challenge = _party(visit), _challenge(visit)
    network = f"network {network_of(visit.address)}"
    if await visit.store.tries.begin({network: NETWORK_TRIES_MAX}, visit.context.clock.now()):
        return page(visit, problem=TOO_MANY, status=429)
    try:
        if challenge is None:
            raise NotSigned("there is no question, or it is old")
        answer = visit.form.get("credential", "")
        passkey = await visit.store.passkeys.find(read_id(answer))
        person = await visit.store.people.get(passkey.person) if passkey else None
        if passkey is None or person is None:
            raise NotSigned("nobody has it")
        count = read_signed(party, challenge, answer, passkey)
        if not await visit.store.passkeys.use(passkey.id, count):
            raise NotSigned("its counter went back")
    except NotSigned as error:
        log.warning("sign-in with a passkey refused", request_id=visit.request.id, error=str(error))
        return page(visit, problem=WRONG, status=403)
    await visit.store.tries.forgive([network])
    how, spends = f"with the passkey {passkey.name}", f"passkey {challenge.hex()}"
    return await let_in(visit, person, visit.query.get("next", ""), how=how, spends=spends)


async def ask_to_create(visit: Visit) -> Answer:
    who, challenge = visit.person, visit.context.clock.entropy(CHALLENGE_BYTES)
    held = await visit.store.passkeys.of(who.person)
    return _question(visit, challenge, to_create(_party(visit), who.person, who.email, who.name, challenge, held))


async def add(visit: Visit) -> Answer:
    party, challenge, name = _party(visit), _challenge(visit), visit.form.get("passkey", "").strip()
    if not name or not is_line(name):
        return await account.show(visit, {"passkey": "A name is one line of at most 200 characters."})
    person = await account.themselves(visit)
    if why := await why_unproven(visit, person, visit.form.get("check", "")):
        return await account.show(visit, {"check": why})
    try:
        if challenge is None:
            raise NotSigned("there is no question, or it is old")
        made = read_new(party, challenge, visit.form.get("credential", ""))
    except NotSigned as error:
        log.warning("new passkey refused", request_id=visit.request.id, error=str(error))
        return await account.show(visit, {"passkey": NOT_ADDED})
    passkey = Passkey(made.id, person.id, name, made.public_key, made.sign_count, visit.context.clock.now())
    if not await people.add_passkey(visit.store, visit.actor, person, passkey):
        return await account.show(visit, {"passkey": NOT_ADDED})
    return Redirect(ACCOUNT, f"The passkey {name} is added.")


async def remove(visit: Visit) -> Answer:
    held = {one.id: one for one in await visit.store.passkeys.of(visit.person.person)}
    passkey = held.get(visit.form.get("id", ""))
    if passkey is None:
        raise Gone
    await people.remove_passkey(visit.store, visit.actor, visit.person.email, passkey)
    return Redirect(ACCOUNT, f"The passkey {passkey.name} is removed.")


def _party(visit: Visit) -> Party:
    party = party_of(visit.context.base_url) if visit.tools.passwords and ARE_HERE else None
    if party is None:
        raise Gone
    return party


def _place(visit: Visit) -> str:
    """Return the encryption context of a challenge: the session that it is bound to."""
    return f"passkey/{visit.who.session if visit.who else ''}"


def _question(visit: Visit, challenge: bytes, options: str) -> Download:
    until = visit.context.clock.now() + WAIT_MS
    sealed = visit.tools.seal(msgspec.json.encode(Challenge(challenge, until)), _place(visit))
    return Download(
        options.encode(), "application/json", cookies=(f"{COOKIE}={sealed}; Max-Age={WAIT_MS // SECOND_MS}",)
    )


def _challenge(visit: Visit) -> bytes | None:
    try:
        opened = visit.tools.unseal(visit.cookies.get(COOKIE, ""), _place(visit))
    except CannotOpen:
        return None
    challenge = msgspec.json.decode(opened, type=Challenge)
    return challenge.octets if challenge.until > visit.context.clock.now() else None
