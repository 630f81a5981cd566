"""Editing a template: its fields by the setup file's own rules, who decides about its price, and what changed."""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.rules.approvals import Pending, approved_rows, draft_rows
from heliograph.rules.pricing import format_money
from heliograph.rules.reading import Misread, read_at
from heliograph.rules.setup import Row, Setup
from heliograph.rules.setup_file import TEMPLATE
from heliograph.rules.setup_plan import CONTENT
from heliograph.rules.team import Team, Template
from heliograph.rules.template import check_template

DRAFT = 0  # the version that a message made from a draft records
SHOWN = ("name", *CONTENT, "price", "prices")  # what a comparison shows


def read_template(base: Template, given: Mapping[str, Any]) -> tuple[Template, dict[str, str]]:
    """The base with these fields (None: without), and by field what is wrong with it."""
    errors: dict[str, str] = {}
    fields = msgspec.to_builtins(base)
    for name, value in given.items():
        try:
            fields[name] = None if value is None else read_at(name, TEMPLATE[name], value)
        except Misread as error:
            errors[name] = _sentence(error.why)
    new = msgspec.convert(fields, Template)
    for problem in check_template(new):
        places, _, why = problem.partition(": ")
        place = places.replace(",", ".").partition(".")[0]  # of prices.GB, or the first of several
        errors.setdefault(place, _sentence(why.replace("one of them", f"one of {places}")))
    return new, errors


def _sentence(why: str) -> str:
    return f"{why[:1].upper()}{why[1:]}."


def save_rows(setup: Setup, new: Template, *, operator: bool, by: str, at: int) -> list[Row]:
    """In use at once when an operator saves it, or when none has to decide about its words or its price."""
    if operator:
        return approved_rows(setup, new)
    priced, is_known = with_prices(setup.teams[new.team], new)
    priced = replace(priced, refused_reason="")
    if setup.records.get(("template", new.id)) == priced:
        return []
    if is_known and not setup.platform.templates_need_approval:
        return approved_rows(setup, priced)
    return draft_rows(setup, priced, by, at)


def with_prices(team: Team, new: Template) -> tuple[Template, bool]:
    """A team does not set prices: its template keeps them, or takes those of the dearest of its kind.

    False when there is none to take them from; email without a price is free within the quota and past it.
    """
    old = team.templates.get(new.id)
    kind = (new.channel, new.category)
    if old and old.status != "draft" and (old.channel, old.category) == kind:
        return replace(new, price=old.price, prices=old.prices), True
    alike = [t for t in team.templates.values() if (t.channel, t.category) == kind and t.status == "approved"]
    dearest = max(alike, key=lambda template: template.price, default=None)
    if dearest is None:
        return replace(new, price=old.price if old else 0, prices=old.prices if old else {}), new.channel == "email"
    return replace(new, price=dearest.price, prices=dearest.prices), True


def trial(draft: Pending) -> Team:
    """The team as a sandbox in which the draft can be sent: to whom it has verified only, and for nothing.

    A mail says in its subject that it is a test; a phone shows the text as it will be, segments and all.
    """
    new, team = draft.template, draft.team
    subject = f"[Test] {new.subject}" if new.subject else None
    sendable = replace(new, status="approved", version=DRAFT, subject=subject)
    return replace(team, record=replace(team.record, mode="sandbox"), templates=team.templates | {new.id: sendable})


class Difference(msgspec.Struct, frozen=True):
    field: str
    lines: list[tuple[str, str]]  # "+", "-" or " ", and the line


def differences(old: Template, new: Template) -> list[Difference]:
    """Line by line, for the fields that differ."""
    found = []
    for field in SHOWN:
        before, after = _lines(getattr(old, field)), _lines(getattr(new, field))
        if before != after:
            compared = list(difflib.unified_diff(before, after, lineterm=""))[2:]  # without the names of files
            found.append(Difference(field, [(line[0], line[1:]) for line in compared if line[0] != "@"]))
    return found


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} {format_money(item)}" for name, item in sorted(value.items())]
    if isinstance(value, int):
        return [format_money(value)]
    if isinstance(value, tuple):
        return list(value)
    return [] if value is None else str(value).splitlines()
