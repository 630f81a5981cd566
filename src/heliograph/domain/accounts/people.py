"""Roles, invitations and links of dashboard users: who may get which, and what a change invalidates.

A role is an invitation until the person accepts it, and a password is verified or not (ADR 0020). Roles are keyed by
team; an empty team is the instance.
"""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.accounts.idp_groups import OPERATOR, OWNER, READ_ONLY
from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.refusals import InvalidRequest

LAST_OWNER = "A team keeps an owner. Make somebody else one first."
LAST_OPERATOR = "The instance keeps an operator. Make somebody else one first."


class Person(msgspec.Struct, frozen=True):
    id: str
    email: str
    name: str
    password: str | None
    totp: str | None  # encrypted
    operator: int
    proven: int  # the password was set through a link that an operator created or that was mailed to the address
    observer: int  # a read-only operator

    @property
    def instance_role(self) -> str:
        """Return the role in the instance; empty if none."""
        return OPERATOR if self.operator else READ_ONLY if self.observer else ""


class Link(msgspec.Struct, frozen=True):
    person: str  # empty for the first operator, who has no account yet
    purpose: str
    # Team whose owner created the link and whose invitation it accepts; empty: created by an operator, for all teams.
    team: str = ""
    maker: str = ""  # empty: the command line
    proven: int = 0  # created by an operator, or mailed to the address
    expires_at: int = 0  # 0: the default of the purpose

    def only_accepts(self, person: Person) -> bool:
        """Return whether the person is invited and can already sign in, so that they must sign in to accept.

        A person from an identity provider has no password, and an unverified link must not set one.
        """
        has_way_in = person.password is not None or (person.proven and not self.proven)
        return self.purpose == "invite" and bool(has_way_in)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A person's roles before a change."""

    person: Person | None  # None if there is no account yet
    roles: Mapping[str, str]
    invited: Mapping[str, str]
    others: Mapping[str, frozenset[str]] = {}  # roles held by other people, if the change needs them


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a person's roles; None removes a role."""

    entries: tuple[AuditEntry, ...]
    roles: Mapping[str, str | None] = {}
    invited: Mapping[str, str | None] = {}
    ends_links: bool = False  # invalidate the person's links
    ends_made: bool = False  # invalidate links that the person created for others
    ends_invites: tuple[str, ...] = ()  # teams whose invitation links to the person become invalid
    link: Link | None = None  # new link for the person
    removes: bool = False  # delete the person


def flags_of(role: str | None) -> dict[str, int]:
    """Return the columns of a person for a role in the instance."""
    return {"operator": int(role == OPERATOR), "observer": int(role == READ_ONLY)}


def set_roles(
    standing: Standing, roles: Mapping[str, str | None], entry: AuditEntry, *, asks: bool = True
) -> RoleChange | None:
    """Return the change that gives these roles. A role applies at once if the person already has one in the team, or is
    an operator who becomes read-only.

    All others are invited, unless `asks` is False. None if nothing changes.
    """
    given: dict[str, str | None] = {}
    invited: dict[str, str | None] = {}
    ends_links, ends_invites = False, set[str]()
    for team, role in roles.items():
        had, offered = standing.roles.get(team), standing.invited.get(team)
        is_given = not asks or role in (None, had) or (had if team else had == OPERATOR)
        has, is_offered = (role, None) if is_given else (had, role)
        if has != had:
            check_kept(standing, team)
            given[team] = has
            ends_links |= bool(had)
        if is_offered != offered:
            invited[team] = is_offered
            ends_invites |= {team, ""} if offered else set()  # the existing links were created for another role
    if not given and not invited:
        return None
    return RoleChange(
        entries=(entry,),
        roles=given,
        invited=invited,
        ends_links=ends_links,
        ends_made=ends_links,
        ends_invites=tuple(ends_invites),
    )


def offer(standing: Standing, roles: Mapping[str, str], link: Link, entry: AuditEntry) -> RoleChange:
    """Invite an existing or new person; the link is for choosing a password or accepting the invitations."""
    change = set_roles(standing, roles, entry) or RoleChange(entries=(entry,))
    waits = any((dict(standing.invited) | dict(change.invited)).values())
    has_way_in = standing.person and standing.person.password
    return msgspec.structs.replace(change, link=link if waits or not has_way_in else None)


def accept(standing: Standing, teams: Sequence[str], entry: AuditEntry, more: str = "") -> RoleChange | None:
    """Accept the pending invitations of these teams, with one audit entry each; None if there are none."""
    taken = {team: standing.invited[team] for team in teams if team in standing.invited}
    if not taken:
        return None
    entries = [
        msgspec.structs.replace(
            entry, team=team or None, action="member.accept" if team else "operator.accept", detail=role + more
        )
        for team, role in taken.items()
    ]
    return RoleChange(entries=tuple(entries), roles=taken, invited=dict.fromkeys(taken), ends_links=True)


def decline(standing: Standing, team: str, entry: AuditEntry) -> RoleChange | None:
    if team not in standing.invited:
        return None
    return RoleChange(entries=(entry,), invited={team: None}, ends_invites=(team,))


def remove(standing: Standing, entry: AuditEntry) -> RoleChange:
    for team in standing.roles:
        check_kept(standing, team)
    return RoleChange(entries=(entry,), ends_links=True, ends_made=True, removes=True)


def check_kept(standing: Standing, team: str) -> None:
    """Raise if the person is the last owner of the team or the last operator of the instance."""
    keeps, refusal = (OWNER, LAST_OWNER) if team else (OPERATOR, LAST_OPERATOR)
    if standing.roles.get(team) == keeps and keeps not in standing.others.get(team, ()):
        raise InvalidRequest(refusal)


def still_holds(link: Link, standing: Standing, maker: Standing) -> bool:
    """Return whether the creator of a link may still create it: an owner may invite to the team, and may reset the
    password (which gives access to the whole account) only of a person who is in no other team.
    """
    if link.purpose not in ("invite", "reset"):
        return True
    may_make = not link.maker or maker.roles.get("") == OPERATOR or maker.roles.get(link.team) == OWNER
    if standing.person is None or not may_make:
        return False
    if link.purpose == "reset":
        return not link.team or standing.roles.keys() == {link.team}
    return link.team in standing.invited if link.team else bool(standing.invited or not standing.person.password)


def follow(link: Link, standing: Standing, entry: AuditEntry, *, chooses: bool, signed_in: bool) -> RoleChange | None:
    """Return the change made by following a link, with or without a new password; None if the link does not allow it.

    A person who can already sign in must be signed in to accept an invitation. Unless the account is verified, a new
    password must be chosen: a password set through another team's link grants nothing here.
    """
    person = standing.person
    is_here = person is not None and link.only_accepts(person)
    if person is None or (is_here and not signed_in) or (not chooses and not (is_here and person.proven)):
        return None
    teams = ([link.team] if link.team else list(standing.invited)) if link.purpose == "invite" else []
    accepted = accept(standing, teams, entry, ", with a new password" if chooses else "")
    return accepted or RoleChange(entries=(entry,) if chooses else ())
