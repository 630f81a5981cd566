"""What roles, invitations and links make of the people of the dashboard: who may have which, and what then ends.

A role is an invitation until the person accepts it, and a password is proven or not (ADR 0020). Roles are kept by
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
    totp: str | None  # sealed
    operator: int
    proven: int  # the password goes back to a link that an operator made, or that was mailed to the address
    observer: int  # a read-only operator

    @property
    def instance_role(self) -> str:
        """Return the role in the instance; empty when there is none."""
        return OPERATOR if self.operator else READ_ONLY if self.observer else ""


class Link(msgspec.Struct, frozen=True):
    person: str  # empty: the first operator, who has no account yet
    purpose: str
    team: str = ""  # whose owner made it, and whose invitation it accepts; empty: an operator made it, for all of them
    maker: str = ""  # empty: the command line
    proven: int = 0  # made by an operator, or mailed to the address
    expires_at: int = 0  # 0: as long as the purpose has

    def only_accepts(self, person: Person) -> bool:
        """Tell whether they are invited and have a way in already: they sign in to accept.

        Who came by an identity provider has no password, and a link that proves nothing chooses none for them.
        """
        has_way_in = person.password is not None or (person.proven and not self.proven)
        return self.purpose == "invite" and bool(has_way_in)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody is before a change."""

    person: Person | None  # None: no account yet
    roles: Mapping[str, str]
    invited: Mapping[str, str]
    others: Mapping[str, frozenset[str]] = {}  # the roles that other people have, where the change asks for them


class RoleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of somebody; a role of None ends."""

    entries: tuple[AuditEntry, ...]
    roles: Mapping[str, str | None] = {}
    invited: Mapping[str, str | None] = {}
    ends_links: bool = False  # theirs
    ends_made: bool = False  # those that they made for others
    ends_invites: tuple[str, ...] = ()  # theirs, to accept the invitations of these teams by
    link: Link | None = None  # that they get
    removes: bool = False  # the person


def flags_of(role: str | None) -> dict[str, int]:
    """Write a role in the instance as a person's columns have it."""
    return {"operator": int(role == OPERATOR), "observer": int(role == READ_ONLY)}


def set_roles(
    standing: Standing, roles: Mapping[str, str | None], entry: AuditEntry, *, asks: bool = True
) -> RoleChange | None:
    """Give these roles: at once to who has one in the team, and to an operator who is to read only.

    All others are invited, unless nobody asks them. None: they are all that already.
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
            ends_invites |= {team, ""} if offered else set()  # its links were made for something else
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
    """Invite somebody, known or new; the link is to choose a password by, or to accept what they are invited to."""
    change = set_roles(standing, roles, entry) or RoleChange(entries=(entry,))
    waits = any((dict(standing.invited) | dict(change.invited)).values())
    has_way_in = standing.person and standing.person.password
    return msgspec.structs.replace(change, link=link if waits or not has_way_in else None)


def accept(standing: Standing, teams: Sequence[str], entry: AuditEntry, more: str = "") -> RoleChange | None:
    """Accept those invitations of these teams that are still there, each with an entry that says so."""
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
    """Refuse to take the role from who alone keeps the team, or the instance, in hand."""
    keeps, refusal = (OWNER, LAST_OWNER) if team else (OPERATOR, LAST_OPERATOR)
    if standing.roles.get(team) == keeps and keeps not in standing.others.get(team, ()):
        raise InvalidRequest(refusal)


def still_holds(link: Link, standing: Standing, maker: Standing) -> bool:
    """Tell whether the rule under which a link was made still holds: an owner makes them for the team, and a new
    password, which is the whole account, for who is in no other.
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
    """Follow a link, with a new password or not; None: it is not good for this.

    Who has a way in already accepts an invitation signed in. Unless the account is proven a new password is chosen:
    what was set through another team's link gives nothing here.
    """
    person = standing.person
    is_here = person is not None and link.only_accepts(person)
    if person is None or (is_here and not signed_in) or (not chooses and not (is_here and person.proven)):
        return None
    teams = ([link.team] if link.team else list(standing.invited)) if link.purpose == "invite" else []
    accepted = accept(standing, teams, entry, ", with a new password" if chooses else "")
    return accepted or RoleChange(entries=(entry,) if chooses else ())
