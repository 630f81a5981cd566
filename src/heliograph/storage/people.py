"""Stores dashboard users: accounts, roles, invitations and links.

Every change is written with its audit entry in one transaction. `domain/accounts/people.py` decides role changes, based
on the rows that the transaction has locked.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import msgspec

from heliograph.domain.accounts.people import CurrentRoles, Link, Person, RoleChange, is_link_allowed, role_columns
from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized

# Purpose of a link → how long the link is valid; a `ticket` is used between password and TOTP code.
VALIDITY_MS_BY_PURPOSE = {
    "first": 7 * DAY_MS,
    "invite": 7 * DAY_MS,
    "reset": HOUR_MS,
    "demo": DAY_MS,
    "ticket": 10 * MINUTE_MS,
}
# Queries that remove a user, the account last; the audit log keeps the id.
DELETE_USER_QUERIES = (
    *("delete_memberships", "delete_invitations", "delete_recovery", "delete_identities", "delete_passkeys"),
    *("delete_familiar", "delete_notice_choices", "delete_decisions", "delete_person"),
)


class PersonRow(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    operator: int
    has_password: int
    has_totp: int
    created_at: int
    teams: int
    seen_at: int | None
    observer: int
    issuer: str | None  # identity provider linked to the account
    offered_role: str | None  # instance role in a pending invitation


class Member(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    role: str
    has_password: int
    has_totp: int
    invited: int  # 1 if the invitation is pending, so that the role is not in effect yet
    issuer: str | None  # identity provider linked to the account


# Why a provider sign-in is rejected: the address is not verified, no account has the address and none may be created,
# or the account is linked to another identity of this provider.
SignInRejection = Literal["unverified", "unknown", "taken"]
RolePolicy = Callable[[CurrentRoles], RoleChange | None]  # returns None if nothing is to be changed


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A user authenticated by an identity provider."""

    issuer: str
    subject: str  # the provider's permanent id of the user
    email: str  # normalised and verified by the provider; empty if not verified
    name: str


class IdentityRow(msgspec.Struct, frozen=True):
    issuer: str
    subject: str
    created_at: int


class Invitation(msgspec.Struct, frozen=True):
    person: Person
    token: str  # token of the invitation link; empty if there is nothing to accept


class People:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # -- accounts -------------------------------------------------------------------------------------------

    async def count(self) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.run("count_people"))
        return int(count)

    async def find(self, email: str) -> Person | None:
        rows = await self._database.read(lambda tx: tx.run("find_person_by_email", email=email))
        return Person(*rows[0]) if rows else None

    async def get(self, id_: str) -> Person | None:
        rows = await self._database.read(lambda tx: tx.run("find_person", id=id_))
        return Person(*rows[0]) if rows else None

    async def list_rows(self, search: str = "", after: str = "", limit: int = 50) -> list[PersonRow]:
        """Return users ordered by email address: up to `limit`, and one more if another page follows."""
        escaped_search = "".join(f"!{character}" if character in "!%_" else character for character in search.lower())
        rows = await self._database.read(
            lambda tx: tx.run("list_people", pattern=f"%{escaped_search}%", after=after, limit=limit + 1)
        )
        return [PersonRow(*row) for row in rows]

    async def change_by_email(self, email: str, name: str, teams: Collection[str], policy: RolePolicy) -> Invitation:
        """Change the roles of the user with this address in `teams` to those that `policy` returns.

        Creates the account if it does not exist; `policy` is then called with `person=None`.
        """

        async def change_in_transaction(tx: Tx) -> Invitation:
            is_new = not await tx.run("find_person_by_email", email=email)
            person = await self._ensure_person(tx, email, name)
            current_roles = await _lock_roles(tx, person.id, teams)
            change = policy(msgspec.structs.replace(current_roles, person=None) if is_new else current_roles)
            return Invitation(person, await self._apply_role_change(tx, person.id, change) if change else "")

        return await write_serialized(self._database, change_in_transaction, next(iter(teams), None))

    async def change_roles(self, person: str, teams: Collection[str] | None, policy: RolePolicy) -> bool:
        """Change a user's roles in `teams` (None: all of the user's) as `policy` decides; return False if unchanged."""

        async def change_in_transaction(tx: Tx) -> bool:
            current_roles = await _lock_roles(tx, person, teams)
            change = policy(current_roles) if current_roles.person else None
            if change:
                await self._apply_role_change(tx, person, change)
            return change is not None

        return await write_serialized(self._database, change_in_transaction, next(iter(teams or ()), None))

    async def _apply_role_change(self, tx: Tx, person: str, role_change: RoleChange) -> str:
        """Write a role change; return the token of the new link, or an empty string if there is no link."""
        for team, role in role_change.roles.items():
            if not team:
                await tx.run("set_operator", id=person, **role_columns(role))
            elif role:
                await tx.run("set_member", person=person, team=team, role=role)
            else:
                await tx.run("delete_member", person=person, team=team)
        for team, role in role_change.invited.items():
            if role:
                await tx.run("set_invitation", person=person, team=team, role=role)
            else:
                await tx.run("delete_invitation", person=person, team=team)
        if role_change.invalidates_links:
            await tx.run("delete_links", person=person)
        if role_change.invalidates_created_links:
            await tx.run("delete_links_by", person=person)
        for team in role_change.invalidates_invites:
            await tx.run("delete_links_for", person=person, team=team, purpose="invite")
        if role_change.deletes_person:
            await tx.run("delete_sessions", person=person, kept="")
            for query in DELETE_USER_QUERIES:
                await tx.run(query, person=person)
        token = ""
        if role_change.link:
            token = await self._insert_link(tx, msgspec.structs.replace(role_change.link, person=person))
        await audit.write(tx, *role_change.entries)
        return token

    async def _ensure_person(self, tx: Tx, email: str, name: str) -> Person:
        await tx.run("insert_person", id=self._clock.new_id("usr_"), email=email, name=name, now=self._clock.now())
        (row,) = await tx.run("find_person_by_email", email=email)
        return Person(*row)

    async def create_first_operator(
        self, token: str, email: str, name: str, password_hash: str, role_change: RoleChange
    ) -> Person | None:
        """Create the first operator from the setup link. None if the link is invalid or an account exists."""
        now = self._clock.now()

        async def create_operator(tx: Tx) -> Person | None:
            link_rows = await tx.run("use_link", hash=hash_token(token), now=now)
            ((count,),) = await tx.run("count_people")
            if not link_rows or link_rows[0][1] != "first" or count:
                return None
            await tx.run("delete_links", person="")
            person = await self._ensure_person(tx, email, name)
            await tx.run("set_proven", id=person.id, proven=1)
            await _set_password(tx, person.id, password_hash)
            entries = [msgspec.structs.replace(entry, actor=person.id) for entry in role_change.entries]
            await self._apply_role_change(tx, person.id, msgspec.structs.replace(role_change, entries=tuple(entries)))
            return await lock_person(tx, person.id)

        return await write_serialized(self._database, create_operator, None)

    async def set_password(self, id_: str, password_hash: str, entry: AuditEntry, kept_session: str = "") -> None:
        """Set a user's password; earlier sessions and links become invalid."""

        async def save_password(tx: Tx) -> None:
            await lock_person(tx, id_)
            await _set_password(tx, id_, password_hash, kept_session)
            await audit.write(tx, entry)

        await write_serialized(self._database, save_password, entry.actor)

    async def set_name(self, id_: str, name: str, entry: AuditEntry) -> None:
        async def save_name(tx: Tx) -> None:
            if await tx.run("set_name", id=id_, name=name):
                await audit.write(tx, entry)

        await write_serialized(self._database, save_name, entry.actor)

    # -- an identity provider -------------------------------------------------------------------------------

    async def sign_in_with_identity(
        self, identity: Identity, entry: AuditEntry, *, may_create: bool
    ) -> Person | SignInRejection:
        """Return the account of a provider identity, or why the sign-in is rejected.

        The account is found by the provider's subject, else by the verified address. If there is no account and
        `may_create` is set, an account is created. If an existing account's address was not verified, its password,
        TOTP, sessions and passkeys are removed, because another person may have chosen that password.
        """

        async def match_account(tx: Tx) -> Person | SignInRejection:
            rows = await tx.run("find_identity", issuer=identity.issuer, subject=identity.subject)
            person_rows = rows or (await tx.run("find_person_by_email", email=identity.email) if identity.email else [])
            if not rows and not identity.email:
                return "unverified"
            if not person_rows and not may_create:
                return "unknown"
            new_person = None if person_rows else await self._ensure_person(tx, identity.email, identity.name)
            person = await lock_person(tx, new_person.id if new_person else person_rows[0][0])
            if person is None:
                return "unknown"
            subjects = {issuer: subject for issuer, subject, _ in await tx.run("identities_of", person=person.id)}
            if subjects.get(identity.issuer, identity.subject) != identity.subject:
                return "taken"
            if person_rows and not person.proven:
                await _remove_credentials(tx, person.id)
            await tx.run("set_proven", id=person.id, proven=1)
            if identity.issuer not in subjects:
                params = {"issuer": identity.issuer, "subject": identity.subject, "person": person.id}
                await tx.run("insert_identity", **params, now=self._clock.now())
                action = "account.provider" if person_rows else "person.add"
                await audit.write(tx, msgspec.structs.replace(entry, actor=person.id, action=action))
            return await lock_person(tx, person.id) or "unknown"

        return await write_serialized(self._database, match_account, entry.actor)

    async def list_identities(self, person: str) -> list[IdentityRow]:
        rows = await self._database.read(lambda tx: tx.run("identities_of", person=person))
        return [IdentityRow(*row) for row in rows]

    async def unlink_identities(self, person: str, entry: AuditEntry) -> None:
        """Unlink all provider identities of a user and end all sessions; the next sign-in matches by email address."""

        async def unlink(tx: Tx) -> None:
            await lock_person(tx, person)
            if await tx.run("delete_identities", person=person):
                await tx.run("delete_sessions", person=person, kept="")
                await audit.write(tx, entry)

        await write_serialized(self._database, unlink, entry.actor)

    # -- the second factor ----------------------------------------------------------------------------------

    async def set_totp(self, id_: str, encrypted: str, codes: Sequence[str], used_step: int, entry: AuditEntry) -> None:
        """Turn on TOTP with these recovery codes; mark the code of the time step `used_step` as used."""

        async def save_totp(tx: Tx) -> None:
            await _set_totp(tx, id_, encrypted, codes)
            await tx.run("use_totp_step", id=id_, step=used_step)
            await audit.write(tx, entry)

        await write_serialized(self._database, save_totp, entry.actor)

    async def remove_totp(self, id_: str, entry: AuditEntry) -> None:
        async def remove(tx: Tx) -> None:
            person = await lock_person(tx, id_)
            if person and person.totp:
                await _set_totp(tx, id_, None, ())
                await audit.write(tx, entry)

        await write_serialized(self._database, remove, entry.actor)

    async def use_totp_step(self, id_: str, step: int) -> bool:
        """Mark a TOTP step as used. Returns False if this step or a later one was used before."""
        return bool(await self._database.write(lambda tx: tx.run("use_totp_step", id=id_, step=step)))

    async def use_recovery_code(self, id_: str, code: str) -> bool:
        return bool(await self._database.write(lambda tx: tx.run("use_recovery", person=id_, hash=hash_token(code))))

    async def count_recovery_codes(self, id_: str) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.run("count_recovery", person=id_))
        return int(count)

    # -- roles ----------------------------------------------------------------------------------------------

    async def get_roles(self, person: str) -> dict[str, str]:
        """Return team → the person's role."""
        return dict(await self._database.read(lambda tx: tx.run("memberships", person=person)))

    async def list_members(self, team: str) -> list[Member]:
        """Return the members of a team and the users invited to it."""
        return [Member(*row) for row in await self._database.read(lambda tx: tx.run("members_of", team=team))]

    # -- invitations ----------------------------------------------------------------------------------------

    async def list_invitations(self, person: str) -> dict[str, str]:
        """Return team → role offered in the user's invitation; an empty team means the instance."""
        return dict(await self._database.read(lambda tx: tx.run("invitations", person=person)))

    # -- links ----------------------------------------------------------------------------------------------

    async def create_link(self, link: Link, entry: AuditEntry, *, remove_totp: bool = False) -> str:
        """Create a single-use link and return its token; an earlier link for the same purpose is revoked.

        `remove_totp`: also switch TOTP off now, for a user who lost the phone.
        """

        async def insert_link(tx: Tx) -> str:
            if remove_totp:
                await _set_totp(tx, link.person, None, ())
            await audit.write(tx, entry)
            return await self._insert_link(tx, link)

        return await write_serialized(self._database, insert_link, entry.actor)

    async def create_ticket(self, link: Link) -> str:
        """Create a ticket for the step between password and TOTP code; return its token."""
        return await self._database.write(lambda tx: self._insert_link(tx, link))

    async def _insert_link(self, tx: Tx, link: Link) -> str:
        token = self._clock.random_bytes(24).hex()
        expires_at = link.expires_at or self._clock.now() + VALIDITY_MS_BY_PURPOSE[link.purpose]
        if link.person:
            await tx.run("delete_links_for", person=link.person, team=link.team, purpose=link.purpose)
        params = msgspec.structs.asdict(msgspec.structs.replace(link, expires_at=expires_at))
        await tx.run("insert_link", hash=hash_token(token), **params)
        return token

    async def find_link(self, token: str) -> Link | None:
        """Return the link of a token. None if the token is not valid."""
        now = self._clock.now()
        return await self._database.read(lambda tx: _find_link(tx, "find_link", token, now))

    async def use_link(self, token: str, purpose: str) -> Link | None:
        """Consume a link and return it; None if the link is invalid or for another purpose."""
        now = self._clock.now()
        link = await self._database.write(lambda tx: _find_link(tx, "use_link", token, now))
        return link if link and link.purpose == purpose else None

    async def accept_link(
        self,
        token: str,
        policy: Callable[[Link, CurrentRoles], RoleChange | None],
        password_hash: str | None,
        kept_session: str,
    ) -> Person | None:
        """Set a password through a link and accept its invitation, in one transaction.

        Returns None if the link is invalid or the policy rejects its use; the link then stays unused.
        """
        now = self._clock.now()

        async def use_and_apply(tx: Tx) -> Person | None:
            for row in await tx.run("find_link", hash=hash_token(token), now=now):
                await lock_person(tx, row[0])  # lock first, so that the roles cannot change before the policy decides
            link = await _find_link(tx, "find_link", token, now)
            role_change = policy(link, await _read_roles(tx, link.person)) if link else None
            if not link or not role_change or not await tx.run("use_link", hash=hash_token(token), now=now):
                return None
            if password_hash is not None:
                await _set_password(tx, link.person, password_hash, kept_session)
                await tx.run("delete_familiar", person=link.person)
                await tx.run("delete_passkeys", person=link.person)
                await tx.run("set_proven", id=link.person, proven=link.proven)
            await self._apply_role_change(tx, link.person, role_change)
            return await lock_person(tx, link.person)

        return await write_serialized(self._database, use_and_apply, None)


async def lock_person(tx: Tx, id_: str) -> Person | None:
    rows = await tx.run("lock_person", id=id_)
    return Person(*rows[0]) if rows else None


async def _remove_credentials(tx: Tx, person: str) -> None:
    """Remove the credentials of an account, because the address may belong to another person (ADR 0020)."""
    await tx.run("set_password", id=person, password=None)
    await _set_totp(tx, person, None, ())
    await tx.run("delete_sessions", person=person, kept="")
    await tx.run("delete_familiar", person=person)
    await tx.run("delete_passkeys", person=person)


async def _set_totp(tx: Tx, person: str, encrypted: str | None, codes: Sequence[str]) -> None:
    await tx.run("set_totp", id=person, totp=encrypted)
    await tx.run("delete_links", person=person)
    await tx.run("delete_recovery", person=person)
    await tx.run("insert_recovery", codes=[(person, hash_token(code)) for code in codes])


async def _lock_roles(tx: Tx, person: str, teams: Collection[str] | None) -> CurrentRoles:
    """Lock and return a user's roles, with the roles that other users have in `teams`."""
    if teams is None:
        teams = ["", *sorted((await _read_roles(tx, person)).roles.keys() - {""})]
    roles_of_others = {team: await _lock_roles_of_others(tx, team, person) for team in teams}
    return msgspec.structs.replace(await _read_roles(tx, person, "lock_person"), others=roles_of_others)


async def _lock_roles_of_others(tx: Tx, team: str, person: str) -> frozenset[str]:
    if team:
        rows = await tx.run("lock_members", team=team)
    else:
        rows = [(row[0], Person(*row).instance_role) for row in await tx.run("lock_operators")]
    return frozenset(role for id_, role in rows if id_ != person)


async def _read_roles(tx: Tx, id_: str, query: str = "find_person") -> CurrentRoles:
    rows = await tx.run(query, id=id_)
    person = Person(*rows[0]) if rows else None
    instance_roles = {"": person.instance_role} if person and person.instance_role else {}
    return CurrentRoles(
        person=person,
        roles=instance_roles | dict(await tx.run("memberships", person=id_)),
        invited=dict(await tx.run("invitations", person=id_)),
    )


async def _set_password(tx: Tx, person: str, password_hash: str, kept_session: str = "") -> None:
    await tx.run("set_password", id=person, password=password_hash)
    await tx.run("delete_sessions", person=person, kept=kept_session)
    await tx.run("delete_links", person=person)


async def _find_link(tx: Tx, query: str, token: str, now: int) -> Link | None:
    """Return the token's link if it is valid and its creator may still create it; otherwise None."""
    rows = await tx.run(query, hash=hash_token(token), now=now)
    link = Link(*rows[0]) if rows else None
    if link and is_link_allowed(link, await _read_roles(tx, link.person), await _read_roles(tx, link.maker)):
        return link
    return None


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
