"""Checks before a change: all invalid fields are reported together, and each kind of record has a maximum number."""

from collections.abc import Mapping

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import check_line

RECORDS_MAX = 500  # default limit per kind and team; every process holds all records in memory
ONE_LINE_ERROR = "Enter one line of up to 200 characters."


def check_quota(
    actor: Actor, param: str, count: int, noun: str, limit: int = 0, fix: str = "Remove one you don't need"
) -> None:
    """Raise InvalidRequest if `count` existing records reach the limit (RECORDS_MAX by default).

    The command line is exempt. `noun` (the records, in the plural) and `fix` (what to do) are parts of the message.
    """
    limit = limit or RECORDS_MAX
    if count >= limit and actor != COMMAND_LINE:
        message = f"A team has at most {limit} {noun}. {fix}, or ask the operator."
        raise InvalidRequest(message, param=param)


def check_fields(errors: Mapping[str, str]) -> None:
    """Raise InvalidRequest if there are any errors; a form shows each error beside its field."""
    if errors:
        fields = {"fields": dict(errors)} if len(errors) > 1 else None
        raise InvalidRequest(" ".join(errors.values()), param=next(iter(errors)), details=fields)


def is_single_line(text: str) -> bool:
    try:
        check_line(text)
    except ValueError:
        return False
    return True
