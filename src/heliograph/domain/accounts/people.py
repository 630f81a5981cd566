"""Roles, invitations and account links of dashboard users: permitted changes, and the links that a change invalidates.

Account links are, for example, for an invitation or a new password. A role is an invitation until the person accepts
it. A password is verified if it was set through a link that an operator created or that was mailed to the address (ADR
0020). Roles are keyed by team; an empty team is the instance.
"""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.accounts.idp_groups import OPERATOR, OWNER, READ_ONLY
from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.refusals import InvalidRequest

LAST_OWNER = "A team needs an owner. Make another person an owner first."
LAST_OPERATOR = "The instance needs an operator. Make another person an operator first."


class Person(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    password: str | None
    totp: str | None  # encrypted TOTP secret; None without a second factor
    operator: int
    proven: int  # the password was set through a link that an operator created or that was mailed to the address
    observer: int  # a read-only operator

    @property
    def instance_role(self) -> str:
        """Return the person's role in the instance; empty if they have none."""
        return OPERATOR if self.operator else READ_ONLY if self.observer else ""


class Link(msgspec.Struct, frozen=True):
    person: str  # empty for the first operator, who has no account yet
    purpose: str
    # Team whose owner created the link and whose invitation it accepts; empty: created by an operator, for all teams.
    team: str = ""
    maker: str = ""  # id of the person who created the link; empty: the command line
    proven: int = 0  # 1 if an operator created the link, or the link was mailed to the address
    expires_at: int = 0  # 0: default validity of the purpose

    def requires_sign_in(self, person: Person) -> bool:
        """Return whether following the link requires a sign-in: it invites a person who can already sign in.

        A person from an identity provider has no password, and an unverified link must not set one.
        """
        can_sign_in = person.password is not None or (person.proven and not self.proven)
        return self.purpose == "invite" and bool(can_sign_in)


class CurrentRoles(msgspec.Struct, frozen=True, kw_only=True):
    """A person's roles before a change."""

    person: Person | None  # None if there is no account yet
    roles: Mapping[str, str]
    invited: Mapping[str, str]
    others: Mapping[str, frozenset[str]] = {}  # roles held by other people, if the change needs them


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a person's roles, by team; None removes the role."""

    entries: tuple[AuditEntry, ...]
    roles: Mapping[str, str | None] = {}
    invited: Mapping[str, str | None] = {}
    invalidates_links: bool = False  # the person's links become invalid
    invalidates_created_links: bool = False  # the links that the person created for others become invalid
    invalidates_invites: tuple[str, ...] = ()  # teams whose invitation links to the person become invalid
    link: Link | None = None  # new link to create for the person
    deletes_person: bool = False


def role_columns(role: str | None) -> dict[str, int]:
    """Return the values of the database columns `operator` and `observer` for an instance role."""
    return {"operator": int(role == OPERATOR), "observer": int(role == READ_ONLY)}


def set_roles(
    current: CurrentRoles, roles: Mapping[str, str | None], entry: AuditEntry, *, invites: bool = True
) -> RoleChange | None:
    """Return the change that gives a person these roles; None if nothing changes.

    A new role in a team where the person already has one applies at once, as does the change from operator to read-only
    operator. Any other new role becomes an invitation, or with `invites=False` also applies at once.
    """
    new_roles: dict[str, str | None] = {}
    new_invitations: dict[str, str | None] = {}
    invalidates_links, invalidates_invites = False, set[str]()
    for team, role in roles.items():
        old_role, old_invitation = current.roles.get(team), current.invited.get(team)
        applies_now = not invites or role in (None, old_role) or (old_role if team else old_role == OPERATOR)
        new_role, new_invitation = (role, None) if applies_now else (old_role, role)
        if new_role != old_role:
            check_not_last(current, team)
            new_roles[team] = new_role
            invalidates_links |= bool(old_role)
        if new_invitation != old_invitation:
            new_invitations[team] = new_invitation
            # The links of the old invitation offer the old role.
            invalidates_invites |= {team, ""} if old_invitation else set()
    if not new_roles and not new_invitations:
        return None
    return RoleChange(
        entries=(entry,),
        roles=new_roles,
        invited=new_invitations,
        invalidates_links=invalidates_links,
        invalidates_created_links=invalidates_links,
        invalidates_invites=tuple(invalidates_invites),
    )


def invite(current: CurrentRoles, roles: Mapping[str, str], link: Link, entry: AuditEntry) -> RoleChange:
    """Invite an existing or new person; the link is for choosing a password or accepting the invitations."""
    change = set_roles(current, roles, entry) or RoleChange(entries=(entry,))
    has_invitation = any((dict(current.invited) | dict(change.invited)).values())
    has_password = current.person and current.person.password
    return msgspec.structs.replace(change, link=link if has_invitation or not has_password else None)


def accept_invitations(
    current: CurrentRoles, teams: Sequence[str], entry: AuditEntry, detail_suffix: str = ""
) -> RoleChange | None:
    """Return the change that accepts the pending invitations to these teams, with an audit entry for each.

    None if the person has no invitation to these teams.
    """
    accepted = {team: current.invited[team] for team in teams if team in current.invited}
    if not accepted:
        return None
    entries = [
        msgspec.structs.replace(
            entry, team=team or None, action="member.accept" if team else "operator.accept", detail=role + detail_suffix
        )
        for team, role in accepted.items()
    ]
    return RoleChange(entries=tuple(entries), roles=accepted, invited=dict.fromkeys(accepted), invalidates_links=True)


def decline_invitation(current: CurrentRoles, team: str, entry: AuditEntry) -> RoleChange | None:
    if team not in current.invited:
        return None
    return RoleChange(entries=(entry,), invited={team: None}, invalidates_invites=(team,))


def remove_person(current: CurrentRoles, entry: AuditEntry) -> RoleChange:
    for team in current.roles:
        check_not_last(current, team)
    return RoleChange(entries=(entry,), invalidates_links=True, invalidates_created_links=True, deletes_person=True)


def check_not_last(current: CurrentRoles, team: str) -> None:
    """Raise InvalidRequest if the person is the last owner of the team or the last operator of the instance."""
    required_role, refusal = (OWNER, LAST_OWNER) if team else (OPERATOR, LAST_OPERATOR)
    if current.roles.get(team) == required_role and required_role not in current.others.get(team, ()):
        raise InvalidRequest(refusal)


def is_link_allowed(link: Link, current: CurrentRoles, creator: CurrentRoles) -> bool:
    """Return whether the creator of an invitation or password-reset link still has the right to create it.

    An owner has the right to invite people to the team. A new password gives access to the whole account, so an owner
    can reset the password only of a person who is in no other team. Links for other purposes are always allowed.
    """
    if link.purpose not in ("invite", "reset"):
        return True
    is_creator_allowed = not link.maker or creator.roles.get("") == OPERATOR or creator.roles.get(link.team) == OWNER
    if current.person is None or not is_creator_allowed:
        return False
    if link.purpose == "reset":
        return not link.team or current.roles.keys() == {link.team}
    return link.team in current.invited if link.team else bool(current.invited or not current.person.password)


def follow_link(
    link: Link, current: CurrentRoles, entry: AuditEntry, *, sets_password: bool, signed_in: bool
) -> RoleChange | None:
    """Return the change made by following a link, with or without a new password; None if the link does not allow it.

    A person who can already sign in must be signed in to accept an invitation, and then needs no new password if the
    account is verified. In all other cases a new password is required: the old one may have been set through another
    team's link.
    """
    person = current.person
    must_sign_in = person is not None and link.requires_sign_in(person)
    if (
        person is None
        or (must_sign_in and not signed_in)
        or (not sets_password and not (must_sign_in and person.proven))
    ):
        return None
    teams = ([link.team] if link.team else list(current.invited)) if link.purpose == "invite" else []
    accepted = accept_invitations(current, teams, entry, ", with a new password" if sets_password else "")
    return accepted or RoleChange(entries=(entry,) if sets_password else ())
