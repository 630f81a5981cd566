"""What a request has wrong, all of it at once, field by field."""

from collections.abc import Mapping

from heliograph.rules.refusals import InvalidRequest


def check_fields(errors: Mapping[str, str]) -> None:
    """Raises InvalidRequest when there are any; a form shows each beside its field."""
    if errors:
        raise InvalidRequest(" ".join(errors.values()), param=next(iter(errors)), details={"fields": dict(errors)})
