"""Finding templates: the one of the path, and its versions."""

from heliograph.dashboard.visit import Gone, Visit
from heliograph.manage.templates import find
from heliograph.rules.setup.records import Template


def current(visit: Visit) -> Template:
    """The template of the path."""
    return find(visit.setup, visit.team.record.id, visit.params["template"])


def number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Gone
    return int(text)
