"""Groups of an identity provider → roles."""

import pytest

from heliograph.domain.accounts.idp_groups import (
    GroupRole,
    format_group_roles,
    parse_group_roles,
    roles_for_groups,
)

TABLE = parse_group_roles("ops=operator, shop=team_shop:viewer,shop-devs=team_shop:developer, /a=b = team_b:owner")


def test_group_roles_round_trip() -> None:
    assert (
        GroupRole("ops", "", "operator"),
        GroupRole("shop", "team_shop", "viewer"),
        GroupRole("shop-devs", "team_shop", "developer"),
        GroupRole("/a=b", "team_b", "owner"),
    ) == TABLE
    assert parse_group_roles(format_group_roles(TABLE)) == TABLE
    assert parse_group_roles("") == ()


def test_a_name_with_commas_has_a_line_of_its_own() -> None:
    text = "CN=Ops,OU=Groups,DC=example=operator\nshop=team_shop:owner\n"
    table = parse_group_roles(text)
    assert [row.group for row in table] == ["CN=Ops,OU=Groups,DC=example", "shop"]
    assert parse_group_roles(format_group_roles(table)) == table


@pytest.mark.parametrize(
    "text", ["ops", "ops=", "=operator", "ops=owner", "ops=team_a:operator", "ops=team_a:", "a=:owner"]
)
def test_group_roles_invalid_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected group=team:role"):
        parse_group_roles(text)


@pytest.mark.parametrize(
    ("groups", "roles"),
    [
        ([], {"": None, "team_shop": None, "team_b": None}),
        (["unknown", "OPS", "shop "], {"": None, "team_shop": None, "team_b": None}),
        (["shop-devs", "shop"], {"": None, "team_shop": "developer", "team_b": None}),
        (["/a=b", "ops"], {"": "operator", "team_shop": None, "team_b": "owner"}),
    ],
)
def test_group_roles_with_several_matches_give_the_highest(groups: list[str], roles: dict[str, str | None]) -> None:
    assert roles_for_groups(groups, TABLE) == roles


def test_group_can_give_the_read_only_role() -> None:
    table = parse_group_roles("ops=operator,auditors=read-only operator")
    assert roles_for_groups(["auditors"], table) == {"": "read-only operator"}
    assert roles_for_groups(["auditors", "ops"], table) == {"": "operator"}
    assert parse_group_roles(format_group_roles(table)) == table
