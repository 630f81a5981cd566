"""Who may have which role, what an invitation is, and what ends with a change."""

from collections.abc import Mapping

import pytest

from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.accounts.people import (
    Link,
    Person,
    RoleChange,
    Standing,
    accept,
    decline,
    flags_of,
    follow,
    offer,
    remove,
    set_roles,
    still_holds,
)
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest

ENTRY = COMMAND_LINE.did(0, "x", "x")
LINK = Link("usr_1", "invite")
Roles = Mapping[str, str]


def standing(roles: Roles | None = None, invited: Roles | None = None, others: str = "", **more: object) -> Standing:
    """Somebody, in a team or an instance where others have one more role."""
    given = {"password": None, "totp": None, "operator": 0, "proven": 0, "observer": 0} | more
    person = Person("usr_1", "ada@example.com", "Ada", **given)  # type: ignore[arg-type]
    held = dict.fromkeys(("", "t"), frozenset({others}))
    return Standing(person=person, roles=roles or {}, invited=invited or {}, others=held)


def told(change: RoleChange | None) -> tuple[object, ...] | None:
    if change is None:
        return None
    return (dict(change.roles), dict(change.invited), change.ends_made, set(change.ends_invites))


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
        ({"": READ_ONLY}, {}, "", OPERATOR, ({}, {"": OPERATOR}, False, set())),  # more is asked, less is not
        ({"": READ_ONLY}, {}, "", READ_ONLY, None),
        ({"": OPERATOR}, {}, "", OPERATOR, None),
        ({"": OPERATOR}, {}, "", READ_ONLY, ({"": READ_ONLY}, {}, True, set())),
        ({"": OPERATOR}, {}, "", None, ({"": None}, {}, True, set())),
    ],
)
def test_a_role_is_given_or_offered(
    roles: Roles, invited: Roles, team: str, role: str | None, expected: tuple[object, ...] | None
) -> None:
    others = "owner" if team else OPERATOR
    assert told(set_roles(standing(roles, invited, others), {team: role}, ENTRY)) == expected


def test_nobody_is_asked_by_a_provider() -> None:
    one = standing({}, {"t": "viewer"})
    assert told(set_roles(one, {"t": "viewer"}, ENTRY, asks=False)) == ({"t": "viewer"}, {"t": None}, False, {"t", ""})
    assert told(set_roles(one, {"": OPERATOR}, ENTRY, asks=False)) == ({"": OPERATOR}, {}, False, set())


@pytest.mark.parametrize(("team", "keeps", "less"), [("t", "owner", "viewer"), ("", OPERATOR, READ_ONLY)])
def test_the_last_one_stays(team: str, keeps: str, less: str) -> None:
    for role in (less, None):
        with pytest.raises(InvalidRequest, match="keeps an o"):
            set_roles(standing({team: keeps}, others=less), {team: role}, ENTRY)
        assert set_roles(standing({team: keeps}, others=keeps), {team: role}, ENTRY)


@pytest.mark.parametrize(("team", "keeps"), [("", OPERATOR), ("t", "owner")])
def test_who_is_the_last_is_not_removed(team: str, keeps: str) -> None:
    with pytest.raises(InvalidRequest, match="keeps an o"):
        remove(standing({team: keeps}), ENTRY)
    assert remove(standing({team: keeps}, others=keeps), ENTRY).removes
    assert remove(standing({"t": "viewer"}), ENTRY).removes


@pytest.mark.parametrize(
    ("one", "roles", "linked"),
    [
        (standing(), {}, True),  # to choose a password by
        (standing(password="x"), {}, False),
        (standing(password="x"), {"t": "viewer"}, True),
        (standing({"t": "owner"}, others="owner", password="x"), {"t": "viewer"}, False),
        (standing(invited={"": OPERATOR}, password="x"), {}, True),
    ],
)
def test_a_link_is_made_where_there_is_something_to_do_by_it(one: Standing, roles: Roles, linked: bool) -> None:
    assert offer(one, roles, LINK, ENTRY).link == (LINK if linked else None)


def test_invitations_are_answered_while_they_are_there() -> None:
    one = standing(invited={"t": "viewer", "": OPERATOR})
    taken = accept(one, ["t", "", "gone"], ENTRY)
    assert taken
    assert (taken.roles, taken.invited) == ({"t": "viewer", "": OPERATOR}, {"t": None, "": None})
    assert [(entry.team, entry.action) for entry in taken.entries] == [
        ("t", "member.accept"),
        (None, "operator.accept"),
    ]
    assert told(decline(one, "t", ENTRY)) == ({}, {"t": None}, False, {"t"})
    assert (accept(one, ["gone"], ENTRY), decline(one, "gone", ENTRY)) == (None, None)


@pytest.mark.parametrize(
    ("one", "chooses", "signed_in", "good"),
    [
        (standing(), True, False, True),
        (standing(), False, False, False),  # a first password is chosen
        (standing(password="x"), True, False, False),  # signs in
        (standing(password="x"), True, True, True),
        (standing(password="x"), False, True, False),  # somebody else may have set it
        (standing(password="x", proven=1), False, True, True),
    ],
)
def test_how_an_invitations_link_is_followed(one: Standing, chooses: bool, signed_in: bool, good: bool) -> None:
    assert (follow(LINK, one, ENTRY, chooses=chooses, signed_in=signed_in) is not None) == good


NOBODY = Standing(person=None, roles={}, invited={})
BY_OWNER = Link("usr_1", "reset", "t", "usr_2")


@pytest.mark.parametrize(
    ("link", "one", "maker", "holds"),
    [
        (Link("", "first"), NOBODY, NOBODY, True),
        (Link("usr_1", "reset"), NOBODY, NOBODY, False),
        (Link("usr_1", "reset"), standing({"t": "owner", "": OPERATOR}), NOBODY, True),  # by the command line
        (BY_OWNER, standing({"t": "viewer"}), standing({"t": "owner"}), True),
        (BY_OWNER, standing({"t": "viewer"}), standing({"t": "developer"}), False),
        (BY_OWNER, standing({"t": "viewer", "u": "viewer"}), standing({"t": "owner"}), False),
        (BY_OWNER, standing({"t": "viewer", "": READ_ONLY}), standing({"t": "owner"}), False),
        (Link("usr_1", "invite", "t", "usr_2"), standing(invited={"t": "viewer"}), standing({"": OPERATOR}), True),
        (Link("usr_1", "invite", "t", "usr_2"), standing(invited={"t": "viewer"}), standing({"": READ_ONLY}), False),
        (Link("usr_1", "invite", "t"), standing(invited={"u": "viewer"}), NOBODY, False),
        (Link("usr_1", "invite"), standing(), NOBODY, True),
        (Link("usr_1", "invite"), standing(password="x"), NOBODY, False),
    ],
)  # fmt: skip
def test_a_link_is_good_while_its_rule_holds(link: Link, one: Standing, maker: Standing, holds: bool) -> None:
    assert still_holds(link, one, maker) == holds


def test_a_role_in_the_instance_as_columns() -> None:
    for role in (OPERATOR, READ_ONLY, ""):
        flags = flags_of(role)
        person = standing(operator=flags["operator"], observer=flags["observer"]).person
        assert person
        assert person.instance_role == role
