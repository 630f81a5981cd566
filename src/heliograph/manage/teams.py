"""Teams: found."""

from heliograph.rules.refusals import NotFound
from heliograph.rules.setup.records import Team
from heliograph.rules.setup.snapshot import Setup


def find_team(setup: Setup, id_: str) -> Team:
    if id_ not in setup.teams:
        raise NotFound(f"There is no team {id_}.")
    return setup.teams[id_]
