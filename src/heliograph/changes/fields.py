"""Validation errors of a request, reported together by field, and limits on the number of records."""

from collections.abc import Mapping

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import line

RECORDS_MAX = 500  # default limit per kind that a team can create; every process has all of them in memory
ONE_LINE = "Write one line of up to 200 characters."


def check_room(
    actor: Actor, param: str, many: int, what: str, most: int = 0, cure: str = "Remove one that is not needed"
) -> None:
    """Raise InvalidRequest if the team has reached its limit for a kind; the command line is exempt."""
    most = most or RECORDS_MAX
    if many >= most and actor != COMMAND_LINE:
        why = f"A team has at most {most} {what}. {cure}, or ask the operator."
        raise InvalidRequest(why, param=param)


def check_fields(errors: Mapping[str, str]) -> None:
    """Raise InvalidRequest if there are any errors; a form shows each error beside its field."""
    if errors:
        fields = {"fields": dict(errors)} if len(errors) > 1 else None
        raise InvalidRequest(" ".join(errors.values()), param=next(iter(errors)), details=fields)


def is_line(text: str) -> bool:
    try:
        line(text)
    except ValueError:
        return False
    return True
