"""Roles: permitted changes, invitations, and what a change invalidates."""

from collections.abc import Mapping

import pytest

from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.accounts.people import (
    CurrentRoles,
    Link,
    Person,
    RoleChange,
    accept_invitations,
    decline_invitation,
    follow_link,
    invite,
    is_link_allowed,
    remove_person,
    role_columns,
    set_roles,
)
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest

ENTRY = COMMAND_LINE.audit_entry(0, "x", "x")
LINK = Link("usr_1", "invite")
Roles = Mapping[str, str]


def current_roles(
    roles: Roles | None = None, invited: Roles | None = None, others: str = "", **overrides: object
) -> CurrentRoles:
    """Return the roles of a person in a team or instance in which other people have another role too."""
    fields = {"password": None, "totp": None, "operator": 0, "proven": 0, "observer": 0} | overrides
    person = Person("usr_1", "ada@example.com", "Ada", **fields)  # type: ignore[arg-type]
    others_roles = dict.fromkeys(("", "t"), frozenset({others}))
    return CurrentRoles(person=person, roles=roles or {}, invited=invited or {}, others=others_roles)


def summary(change: RoleChange | None) -> tuple[object, ...] | None:
    if change is None:
        return None
    return (dict(change.roles), dict(change.invited), change.invalidates_created_links, set(change.invalidates_invites))


@pytest.mark.parametrize(
    ("roles", "invited", "team", "role", "expected"),
    [
        ({}, {}, "t", "viewer", ({}, {"t": "viewer"}, False, set())),  # is asked
        ({}, {"t": "viewer"}, "t", "viewer", None),
        ({}, {"t": "viewer"}, "t", "owner", ({}, {"t": "owner"}, False, {"t", ""})),
        ({}, {"t": "viewer"}, "t", None, ({}, {"t": None}, False, {"t", ""})),
        ({}, {}, "t", None, None),
        ({"t": "viewer"}, {}, "t", "owner", ({"t": "owner"}, {}, True, set())),  # at once
        ({"t": "viewer"}, {}, "t", "viewer", None),
        ({"t": "viewer"}, {}, "t", None, ({"t": None}, {}, True, set())),
        ({}, {}, "", OPERATOR, ({}, {"": OPERATOR}, False, set())),
        ({"": READ_ONLY}, {}, "", OPERATOR, ({}, {"": OPERATOR}, False, set())),  # an invitation to more
        ({"": READ_ONLY}, {}, "", READ_ONLY, None),
        ({"": OPERATOR}, {}, "", OPERATOR, None),
        ({"": OPERATOR}, {}, "", READ_ONLY, ({"": READ_ONLY}, {}, True, set())),
        ({"": OPERATOR}, {}, "", None, ({"": None}, {}, True, set())),
    ],
)
def test_role_is_assigned_at_once_or_offered_as_invitation(
    roles: Roles, invited: Roles, team: str, role: str | None, expected: tuple[object, ...] | None
) -> None:
    others = "owner" if team else OPERATOR
    assert summary(set_roles(current_roles(roles, invited, others), {team: role}, ENTRY)) == expected


def test_role_given_by_a_provider_sends_no_invitation() -> None:
    item = current_roles({}, {"t": "viewer"})
    assert summary(set_roles(item, {"t": "viewer"}, ENTRY, invites=False)) == (
        {"t": "viewer"},
        {"t": None},
        False,
        {"t", ""},
    )
    assert summary(set_roles(item, {"": OPERATOR}, ENTRY, invites=False)) == ({"": OPERATOR}, {}, False, set())


@pytest.mark.parametrize(("team", "keeps", "less"), [("t", "owner", "viewer"), ("", OPERATOR, READ_ONLY)])
def test_last_owner_or_operator_cannot_be_demoted(team: str, keeps: str, less: str) -> None:
    for role in (less, None):
        with pytest.raises(InvalidRequest, match="needs an o"):
            set_roles(current_roles({team: keeps}, others=less), {team: role}, ENTRY)
        assert set_roles(current_roles({team: keeps}, others=keeps), {team: role}, ENTRY)


@pytest.mark.parametrize(("team", "keeps"), [("", OPERATOR), ("t", "owner")])
def test_last_owner_or_operator_cannot_be_removed(team: str, keeps: str) -> None:
    with pytest.raises(InvalidRequest, match="needs an o"):
        remove_person(current_roles({team: keeps}), ENTRY)
    assert remove_person(current_roles({team: keeps}, others=keeps), ENTRY).deletes_person
    assert remove_person(current_roles({"t": "viewer"}), ENTRY).deletes_person


@pytest.mark.parametrize(
    ("one", "roles", "linked"),
    [
        (current_roles(), {}, True),  # link for choosing a password
        (current_roles(password="x"), {}, False),
        (current_roles(password="x"), {"t": "viewer"}, True),
        (current_roles({"t": "owner"}, others="owner", password="x"), {"t": "viewer"}, False),
        (current_roles(invited={"": OPERATOR}, password="x"), {}, True),
    ],
)
def test_invitation_has_a_link_only_if_it_is_needed(one: CurrentRoles, roles: Roles, linked: bool) -> None:
    assert invite(one, roles, LINK, ENTRY).link == (LINK if linked else None)


def test_only_pending_invitations_can_be_answered() -> None:
    item = current_roles(invited={"t": "viewer", "": OPERATOR})
    selected = accept_invitations(item, ["t", "", "gone"], ENTRY)
    assert selected
    assert (selected.roles, selected.invited) == ({"t": "viewer", "": OPERATOR}, {"t": None, "": None})
    assert [(entry.team, entry.action) for entry in selected.entries] == [
        ("t", "member.accept"),
        (None, "operator.accept"),
    ]
    assert summary(decline_invitation(item, "t", ENTRY)) == ({}, {"t": None}, False, {"t"})
    assert (accept_invitations(item, ["gone"], ENTRY), decline_invitation(item, "gone", ENTRY)) == (None, None)


@pytest.mark.parametrize(
    ("one", "chooses", "signed_in", "good"),
    [
        (current_roles(), True, False, True),
        (current_roles(), False, False, False),  # a first password is chosen
        (current_roles(password="x"), True, False, False),  # signs in
        (current_roles(password="x"), True, True, True),
        (current_roles(password="x"), False, True, False),  # someone else may have set the password
        (current_roles(password="x", proven=1), False, True, True),
    ],
)
def test_invitation_link_is_valid_only_for_its_person(
    one: CurrentRoles, chooses: bool, signed_in: bool, good: bool
) -> None:
    assert (follow_link(LINK, one, ENTRY, sets_password=chooses, signed_in=signed_in) is not None) == good


NOBODY = CurrentRoles(person=None, roles={}, invited={})
BY_OWNER = Link("usr_1", "reset", "t", "usr_2")


@pytest.mark.parametrize(
    ("link", "one", "maker", "holds"),
    [
        (Link("", "first"), NOBODY, NOBODY, True),
        (Link("usr_1", "reset"), NOBODY, NOBODY, False),
        (Link("usr_1", "reset"), current_roles({"t": "owner", "": OPERATOR}), NOBODY, True),  # from the command line
        (BY_OWNER, current_roles({"t": "viewer"}), current_roles({"t": "owner"}), True),
        (BY_OWNER, current_roles({"t": "viewer"}), current_roles({"t": "developer"}), False),
        (BY_OWNER, current_roles({"t": "viewer", "u": "viewer"}), current_roles({"t": "owner"}), False),
        (BY_OWNER, current_roles({"t": "viewer", "": READ_ONLY}), current_roles({"t": "owner"}), False),
        (Link("usr_1", "invite", "t", "usr_2"), current_roles(invited={"t": "viewer"}), current_roles({"": OPERATOR}),
        True),
        (Link("usr_1", "invite", "t", "usr_2"), current_roles(invited={"t": "viewer"}),
        current_roles({"": READ_ONLY}), False),
        (Link("usr_1", "invite", "t"), current_roles(invited={"u": "viewer"}), NOBODY, False),
        (Link("usr_1", "invite"), current_roles(), NOBODY, True),
        (Link("usr_1", "invite"), current_roles(password="x"), NOBODY, False),
    ],
)  # fmt: skip
def test_link_is_valid_while_its_creator_may_create_it(
    link: Link, one: CurrentRoles, maker: CurrentRoles, holds: bool
) -> None:
    assert is_link_allowed(link, one, maker) == holds


def test_instance_role_maps_to_its_columns() -> None:
    for role in (OPERATOR, READ_ONLY, ""):
        flags = role_columns(role)
        person = current_roles(operator=flags["operator"], observer=flags["observer"]).person
        assert person
        assert person.instance_role == role
