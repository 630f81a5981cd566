"""Mapping of identity-provider groups to roles."""

from collections.abc import Collection, Sequence

import msgspec

OWNER = "owner"
ROLES: tuple[str, ...] = ("viewer", "developer", OWNER)  # each role includes the rights of the previous one
# Roles in the instance; a read-only operator sees everything and changes nothing.
OPERATOR, READ_ONLY = "operator", "read-only operator"
FORMAT_ERROR = (
    "expected group=team:role or group=operator (or read-only operator), such as ops=operator,shop=team_shop:developer"
)


class GroupRole(msgspec.Struct, frozen=True):
    group: str
    team: str  # team_…; empty for a role in the instance
    role: str


def parse_group_roles(text: str) -> tuple[GroupRole, ...]:
    """Parse entries separated by newlines or commas. If the text has newlines, group names may contain commas."""
    parts = (part.strip() for part in text.split("\n" if "\n" in text.strip() else ","))
    return tuple(_parse_entry(part) for part in parts if part)


def _parse_entry(part: str) -> GroupRole:
    group, _, target = part.rpartition("=")
    team, _, role = target.strip().rpartition(":")
    if not group.strip() or (role not in ROLES if team else role not in (OPERATOR, READ_ONLY)):
        raise ValueError(f"{FORMAT_ERROR}; not {part!r}")
    return GroupRole(group.strip(), team, role)


def format_group_roles(table: Sequence[GroupRole]) -> str:
    lines = [f"{row.group}={row.team}:{row.role}" if row.team else f"{row.group}={row.role}" for row in table]
    return ("\n" if any("," in row.group for row in table) else ",").join(lines)


def roles_for_groups(groups: Collection[str], table: Sequence[GroupRole]) -> dict[str, str | None]:
    """Return team → highest role that these groups give, for every team in `table`; None if they give no role."""
    roles: dict[str, str | None] = dict.fromkeys(row.team for row in table)
    ranks = (*ROLES, READ_ONLY, OPERATOR)
    for row in sorted(table, key=lambda row: ranks.index(row.role)):
        if row.group in groups:
            roles[row.team] = row.role
    return roles
