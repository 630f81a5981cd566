"""What a request has wrong, all of it at once, field by field."""

from collections.abc import Mapping

from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.text import line

ONE_LINE = "Write one line of up to 200 characters."


def check_fields(errors: Mapping[str, str]) -> None:
    """Raises InvalidRequest when there are any; a form shows each beside its field."""
    if errors:
        fields = {"fields": dict(errors)} if len(errors) > 1 else None
        raise InvalidRequest(" ".join(errors.values()), param=next(iter(errors)), details=fields)


def is_line(text: str) -> bool:
    try:
        line(text)
    except ValueError:
        return False
    return True
