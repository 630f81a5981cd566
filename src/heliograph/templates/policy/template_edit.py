"""Editing of templates: parsing of fields, who decides on prices, and comparison of versions."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.plan import CONTENT
from heliograph.domain.setup.records import Team, Template
from heliograph.domain.setup.setup_file import read_template_fields
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.templates.policy.check import check_template, layout_problems
from heliograph.templates.policy.placeholders import complete, used_names
from heliograph.templates.policy.source import PARTS
from heliograph.templates.policy.template_approvals import (
    PendingTemplate,
    approved_rows,
    check_price,
    draft_rows,
    find_draft,
)
from heliograph.templates.policy.variable_types import as_declared, name_of, with_shapes

DRAFT = 0  # version recorded for a message sent from a draft
SHOWN = ("name", *CONTENT, "priority", "price", "prices")  # fields shown in a comparison
CONTEXT = 3  # lines shown around a change
LINES_MAX = 1000  # maximum lines shown per field


def with_fields(base: Template, given: Mapping[str, Any]) -> tuple[Template, dict[str, str]]:
    """Return `base` with these fields (None removes a field), and an error message for each invalid field."""
    removed = {name: None for name, value in given.items() if value is None}
    fields, wrong = read_template_fields({name: value for name, value in given.items() if value is not None})
    new = msgspec.convert(msgspec.to_builtins(base) | with_shapes(fields) | removed, Template)
    return new, {name: _sentence(why) for name, why in wrong.items()}


def read_template(base: Template, given: Mapping[str, Any]) -> tuple[Template, dict[str, str]]:
    """Apply fields like `with_fields`; the errors include the problems of the resulting template."""
    new, errors = with_fields(base, given)
    told: dict[str, list[str]] = {}
    for problem in check_template(new):
        first = problem.field.replace(",", ".").partition(".")[0]  # of prices.GB, or of several fields: the first name
        place = problem.field if problem.locale else first
        why = _sentence(problem.text.replace("one of them", f"one of {problem.part}"))
        told.setdefault(place, []).append(f"Line {problem.line}: {why}" if problem.line else why)
    return new, {place: "\n".join(dict.fromkeys(whys)) for place, whys in told.items()} | errors


class Edited(msgspec.Struct, frozen=True):
    template: Template
    errors: dict[str, str]  # by field, one line per error
    added: list[str]  # used variables that were not declared before


def edit_template(base: Template, given: Mapping[str, Any]) -> Edited:
    """Apply a person's edit: complete short placeholders, declare new variables, then proceed as `read_template`.

    A variable given only by name keeps its declared type.
    """
    tables = [as_declared(base, one) if isinstance(one, str) else one for one in given["variables"]]
    declared = [name_of(one) for one in tables]
    parts = _whole(given, declared)
    known = [*declared, *used_names(parts.values())]
    locales = {tag: {**own, **_whole(own, known)} for tag, own in given.get("locales", {}).items()}
    texts = [*parts.values(), *(text for own in locales.values() for text in own.values())]
    added = {name: fields for name, fields in used_names(texts).items() if name not in declared}
    tables += [{"name": name, "list": fields} if fields else name for name, fields in added.items()]
    translated = {"locales": locales} if "locales" in given else {}
    new, errors = read_template(base, {**given, **parts, **translated, "variables": tables})
    return Edited(new, errors, list(added))


def _whole(given: Mapping[str, Any], declared: list[str]) -> dict[str, str]:
    return complete({part: given[part] for part in PARTS if given.get(part)}, declared)


def _sentence(why: str) -> str:
    return f"{why[:1].upper()}{why[1:]}."


def save_rows(setup: Setup, new: Template, *, operator: bool, by: str, at: int, free: bool = False) -> list[Row]:
    """Return the rows that publish a template, or that submit it if an operator must approve its content or price.

    `free`: the operator confirms a price of 0; not needed if the prices are unchanged.
    """
    _check_layout(setup, new)
    if operator:
        old = setup.teams[new.team].templates.get(new.id)
        is_same = old is not None and old.status != "draft" and (old.price, old.prices) == (new.price, new.prices)
        check_price(new, free=free or is_same)
        return approved_rows(setup, new)
    priced = replace(with_prices(setup.teams[new.team], new)[0], refused_reason="", unfinished=False, submitted_at=0)
    if setup.records.get(("template", new.id)) == priced:
        return []
    if goes_live(setup, new, operator=False):
        return approved_rows(setup, priced)
    return submitted_rows(setup, priced, by, at)


def submitted_rows(setup: Setup, new: Template, by: str, at: int) -> list[Row]:
    """Return the rows that submit a template for approval; empty if the same draft is already submitted."""
    priced = replace(with_prices(setup.teams[new.team], new)[0], refused_reason="", unfinished=False, submitted_at=at)
    now = find_draft(setup, new.id)
    if now and replace(now.template, submitted_at=at, version=priced.version) == replace(priced, status="draft"):
        return []
    return draft_rows(setup, priced, by, at)


def _check_layout(setup: Setup, new: Template) -> None:
    team, draft = setup.teams[new.team], find_draft(setup, new.id)
    had = {one.layout for one in (team.templates.get(new.id), draft and draft.template) if one}
    for problem in layout_problems(new, team.layouts, had):
        raise InvalidRequest(_sentence(str(problem)), param=problem.part)


def goes_live(setup: Setup, new: Template, *, operator: bool) -> bool:
    """Return whether publishing takes effect at once; otherwise an operator must approve the template."""
    if operator:
        return True
    return with_prices(setup.teams[new.team], new)[1] and not setup.platform.templates_need_approval


def unfinished_rows(setup: Setup, new: Template, *, operator: bool, by: str, at: int) -> list[Row]:
    """Return the rows that save an unsubmitted draft beside the template in use."""
    _check_layout(setup, new)
    own = new if operator else with_prices(setup.teams[new.team], new)[0]
    kept = replace(own, unfinished=True, status="draft", submitted_at=0)
    draft, live = find_draft(setup, new.id), setup.records.get(("template", new.id))
    now = draft.template if draft else live
    if isinstance(now, Template) and replace(kept, **_judged(now)) == now:
        return []
    return draft_rows(setup, kept, by, at)


def _judged(now: Template) -> dict[str, Any]:
    """Return the fields of a template's approval state, as opposed to its content."""
    fields = ("unfinished", "status", "submitted_at", "version", "refused_reason")
    return {field: getattr(now, field) for field in fields}


def with_prices(team: Team, new: Template) -> tuple[Template, bool]:
    """Set the prices of a team's template: its current ones, else those of the most expensive of the same kind.

    Return the template and whether prices were found. Free SMS or WhatsApp templates are not copied, because their
    price was set individually. Email without a price is free, within the quota and above it.
    """
    old = team.templates.get(new.id)
    kind = (new.channel, new.category)
    if old and old.status != "draft" and (old.channel, old.category) == kind:
        return replace(new, price=old.price, prices=old.prices), True
    alike = [t for t in team.templates.values() if (t.channel, t.category) == kind and t.status == "approved"]
    if new.channel != "email":
        alike = [t for t in alike if t.price]
    dearest = max(alike, key=lambda template: template.price, default=None)
    if dearest is None:
        return replace(new, price=old.price if old else 0, prices=old.prices if old else {}), new.channel == "email"
    return replace(new, price=dearest.price, prices=dearest.prices), True


def offered(setup: Setup, new: Template) -> Template:
    """Return the template with its suggested prices: its own, those of its kind, or those of the price list."""
    team = setup.teams[new.team]
    priced, is_known = with_prices(team, new)
    listed = setup.platform.prices.get(new.channel, {}).get(team.record.currency, {})
    if is_known or priced.price or not listed:
        return priced
    prices = {country: price for country, price in listed.items() if country != "*"}
    return replace(new, price=listed.get("*", 0), prices=prices)


def trial(draft: PendingTemplate) -> Team:
    """Return the team as a sandbox that can send the draft, free of charge and only to verified recipients.

    The subject of an email is marked as a test; a text message is sent unchanged, so that its segments are real.
    """
    new, team = draft.template, draft.team
    subject = f"[Test] {new.subject}" if new.subject else None
    sendable = replace(new, status="approved", version=DRAFT, subject=subject)
    return replace(team, record=replace(team.record, mode="sandbox"), templates=team.templates | {new.id: sendable})


class Difference(msgspec.Struct, frozen=True):
    field: str
    lines: list[tuple[str, str]]  # ("+", "-" or " ", line)


def differences(old: msgspec.Struct, new: msgspec.Struct, fields: Sequence[str] = SHOWN) -> list[Difference]:
    """Return a line-by-line comparison of each field that differs."""
    found = []
    for field in fields:
        before, after = _lines(getattr(old, field)), _lines(getattr(new, field))
        if before != after:
            lines = _near_changes(list(_compared(before, after)))
            more = len(lines) - LINES_MAX
            told = [(" ", f"… {more:,} more lines")] if more > 0 else []
            found.append(Difference(field, lines[:LINES_MAX] + told))
    return found


def _compared(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the merged lines of both texts with their sign.

    Lines that occur once in both texts are anchors, so that n lines take O(n log n) steps (patience diff).
    """
    at, new_at = 0, 0
    for end, new_end in [*_anchors(before, after), (len(before), len(after))]:
        while at < end and new_at < new_end and before[at] == after[new_at]:
            yield " ", before[at]
            at, new_at = at + 1, new_at + 1
        same = 0
        while at < end - same and new_at < new_end - same and before[end - same - 1] == after[new_end - same - 1]:
            same += 1
        yield from (("-", line) for line in before[at : end - same])
        yield from (("+", line) for line in after[new_at : new_end - same])
        yield from ((" ", line) for line in before[end - same : end])
        at, new_at = end, new_end


def _anchors(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Return the positions of the longest common sequence of lines that occur once in each text."""
    counts, new_counts = Counter(before), Counter(after)
    places = {line: at for at, line in enumerate(after) if counts[line] == new_counts[line] == 1}
    ends: list[int] = []  # smallest end position of a sequence of each length
    runs: list[list[Any] | None] = []  # that sequence as a linked list: last pair, previous
    for at, line in enumerate(before):
        place = places.get(line)
        if place is not None:
            length = bisect(ends, place)
            run = [(at, place), runs[length - 1] if length else None]
            ends[length : length + 1], runs[length : length + 1] = [place], [run]
    found, last = [], runs[-1] if runs else None
    while last:
        found.append(last[0])
        last = last[1]
    return found[::-1]


def _near_changes(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the changed lines with CONTEXT lines around each."""
    near = {at + step for at, (sign, _) in enumerate(lines) if sign != " " for step in range(-CONTEXT, CONTEXT + 1)}
    return [line for at, line in enumerate(lines) if at in near]


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [line for name, item in sorted(value.items()) for line in _entry(name, item)]
    if isinstance(value, int):
        return [format_money(value)]
    if isinstance(value, tuple):
        return list(value)
    return [] if value is None else str(value).splitlines()


def _entry(name: str, item: Any) -> list[str]:
    """Return the lines of a price by country, a variable's type or a translation."""
    if not isinstance(item, msgspec.Struct):
        return [f"{name} {format_money(item)}"]
    fields = msgspec.to_builtins(item)
    return [
        f"{name} {field}: {line}"
        for field, value in fields.items()
        for line in ([", ".join(value)] if isinstance(value, tuple | list) else str(value).splitlines())
    ]
