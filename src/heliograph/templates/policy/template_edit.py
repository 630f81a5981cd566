"""Editing of templates: changed fields, whether an operator must approve, suggested message prices, comparison."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.mail.unsubscribe import VARIABLE
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup.plan import VERSIONED_TEMPLATE_FIELDS
from heliograph.domain.setup.records import Team, Template
from heliograph.domain.setup.setup_file import read_template_fields
from heliograph.domain.setup.snapshot import Row, Setup
from heliograph.templates.policy.check import category_problems, check_template, layout_problems
from heliograph.templates.policy.placeholders import ItemFields, guess_item_fields, used_names
from heliograph.templates.policy.source import PARTS
from heliograph.templates.policy.template_approvals import (
    TemplateDraftState,
    check_price,
    draft_rows,
    find_draft,
    publish_rows,
)
from heliograph.templates.policy.variable_types import Declaration, declaration_of, declared_name, to_record_fields

DRAFT_VERSION = 0  # version recorded for a message sent from a draft
COMPARED_FIELDS = ("name", *VERSIONED_TEMPLATE_FIELDS, "priority", "price", "prices")  # fields shown in a comparison
CONTEXT_LINES = 3  # lines shown around a change
LINES_MAX = 1000  # maximum lines shown per field


def apply_fields(base: Template, changes: Mapping[str, Any]) -> tuple[Template, dict[str, str]]:
    """Return `base` with the fields in `changes` (None removes a field), and an error text for each invalid field."""
    removed_fields = {name: None for name, value in changes.items() if value is None}
    fields, invalid = read_template_fields({name: value for name, value in changes.items() if value is not None})
    new = msgspec.convert(msgspec.to_builtins(base) | to_record_fields(fields) | removed_fields, Template)
    return new, {name: _sentence(message) for name, message in invalid.items()}


def apply_and_check(base: Template, changes: Mapping[str, Any]) -> tuple[Template, dict[str, str]]:
    """Apply the fields in `changes`; the returned errors include the problems of the resulting template."""
    new, errors = apply_fields(base, changes)
    messages_by_field: dict[str, list[str]] = {}
    for problem in check_template(new):
        # `prices.GB` → `prices`, `html, text` → `html`
        first_field = problem.field.replace(",", ".").partition(".")[0]
        field = problem.field if problem.locale else first_field
        message = _sentence(problem.text.replace("one of them", f"one of {problem.part}"))
        messages_by_field.setdefault(field, []).append(f"Line {problem.line}: {message}" if problem.line else message)
    return new, {field: "\n".join(dict.fromkeys(messages)) for field, messages in messages_by_field.items()} | errors


class EditResult(msgspec.Struct, frozen=True):
    template: Template
    errors: dict[str, str]  # by field, one line per error
    added_variables: list[str]  # used variables that were not declared before


def edit_template(base: Template, changes: Mapping[str, Any]) -> EditResult:
    """Apply a person's edit like `apply_and_check`, and declare the variables that the texts use.

    An item of `changes["variables"]` that is only a name keeps the type of the existing declaration.
    """
    declarations = [
        declaration_of(base, declaration) if isinstance(declaration, str) else declaration
        for declaration in changes["variables"]
    ]
    declared = [declared_name(declaration) for declaration in declarations]
    known_names = {*declared, *([VARIABLE] if base.channel == "email" else ())}
    translations = changes.get("locales", {}).values()
    texts = [text for version in (changes, *translations) for part in PARTS if (text := version.get(part))]
    item_fields = (*_declared_fields(declarations), *guess_item_fields(texts, declared))
    added_fields = {name: fields for name, fields in used_names(texts, item_fields).items() if name not in known_names}
    declarations += [{"name": name, "list": fields} if fields else name for name, fields in added_fields.items()]
    new, errors = apply_and_check(base, {**changes, "variables": declarations})
    return EditResult(new, errors, list(added_fields))


def _declared_fields(declarations: list[Declaration]) -> ItemFields:
    tables = [declaration for declaration in declarations if isinstance(declaration, dict)]
    return tuple((table["name"], tuple(table.get("list") or ())) for table in tables)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def save_rows(
    setup: Setup, new: Template, *, by_operator: bool, author: str, saved_at: int, free: bool = False
) -> list[Row]:
    """Return the rows that publish a template, or that submit it if an operator must approve its content or price.

    `free`: the operator confirms a price of 0; not needed if the prices are unchanged.
    """
    _check_layout(setup, new)
    if by_operator:
        old = setup.teams[new.team].templates.get(new.id)
        is_same_price = old is not None and old.status != "draft" and (old.price, old.prices) == (new.price, new.prices)
        check_price(new, free=free or is_same_price)
        return publish_rows(setup, new)
    priced_template = replace(
        with_prices(setup.teams[new.team], new)[0], refused_reason="", unfinished=False, submitted_at=0
    )
    if setup.records.get(("template", new.id)) == priced_template:
        return []
    if publishes_at_once(setup, new, by_operator=False):
        return publish_rows(setup, priced_template)
    return submit_rows(setup, priced_template, author, saved_at)


def submit_rows(setup: Setup, new: Template, author: str, submitted_at: int) -> list[Row]:
    """Return the rows that submit a template for approval; empty if the same draft is already submitted."""
    priced_template = replace(
        with_prices(setup.teams[new.team], new)[0], refused_reason="", unfinished=False, submitted_at=submitted_at
    )
    existing, draft = find_draft(setup, new.id), replace(priced_template, status="draft")
    if existing and replace(existing.template, submitted_at=submitted_at, version=priced_template.version) == draft:
        return []
    return draft_rows(setup, priced_template, author, submitted_at)


def _check_layout(setup: Setup, new: Template) -> None:
    team, draft = setup.teams[new.team], find_draft(setup, new.id)
    previous_layouts = {version.layout for version in (team.templates.get(new.id), draft and draft.template) if version}
    for problem in (
        *layout_problems(new, team.layouts, previous_layouts),
        *category_problems(new, team.record.categories),
    ):
        raise InvalidRequest(_sentence(str(problem)), param=problem.part)


def publishes_at_once(setup: Setup, new: Template, *, by_operator: bool) -> bool:
    """Return whether publishing takes effect at once; otherwise an operator must approve the template."""
    if by_operator:
        return True
    return with_prices(setup.teams[new.team], new)[1] and not setup.platform.templates_need_approval


def unsubmitted_rows(setup: Setup, new: Template, *, by_operator: bool, author: str, saved_at: int) -> list[Row]:
    """Return the rows that save a draft without submitting it; the template in use does not change."""
    _check_layout(setup, new)
    priced_template = new if by_operator else with_prices(setup.teams[new.team], new)[0]
    unsubmitted_draft = replace(priced_template, unfinished=True, status="draft", submitted_at=0)
    draft, live = find_draft(setup, new.id), setup.records.get(("template", new.id))
    newest_template = draft.template if draft else live
    if (
        isinstance(newest_template, Template)
        and replace(unsubmitted_draft, **_approval_fields(newest_template)) == newest_template
    ):
        return []
    return draft_rows(setup, unsubmitted_draft, author, saved_at)


def _approval_fields(template: Template) -> dict[str, Any]:
    """Return the template fields about its approval, as opposed to its content."""
    fields = ("unfinished", "status", "submitted_at", "version", "refused_reason")
    return {field: getattr(template, field) for field in fields}


def with_prices(team: Team, new: Template) -> tuple[Template, bool]:
    """Return the template with prices, and whether prices were found.

    The prices are the template's current ones, else those of the team's most expensive approved template of the same
    kind. The price 0 of an SMS or WhatsApp template is not copied, because it was confirmed for that template only.
    Email without a price is free, within the quota and above it.
    """
    old = team.templates.get(new.id)
    kind = _price_kind(new)
    if old and old.status != "draft" and _price_kind(old) == kind:
        return replace(new, price=old.price, prices=old.prices), True
    same_kind_templates = [
        template
        for template in team.templates.values()
        if _price_kind(template) == kind and template.status == "approved"
    ]
    if new.channel != "email":
        same_kind_templates = [template for template in same_kind_templates if template.price]
    most_expensive = max(same_kind_templates, key=lambda template: template.price, default=None)
    if most_expensive is None:
        return replace(new, price=old.price if old else 0, prices=old.prices if old else {}), new.channel == "email"
    return replace(new, price=most_expensive.price, prices=most_expensive.prices), True


def _price_kind(template: Template) -> tuple[str, str | None]:
    return template.channel, template.category if template.channel == "whatsapp" else None


def with_suggested_prices(setup: Setup, new: Template) -> Template:
    """Return the template with prices: its own, else those of the same kind, else those of the price list."""
    team = setup.teams[new.team]
    priced, is_known = with_prices(team, new)
    list_prices = setup.platform.prices.get(new.channel, {}).get(team.record.currency, {})
    if is_known or priced.price or not list_prices:
        return priced
    prices = {country: price for country, price in list_prices.items() if country != "*"}
    return replace(new, price=list_prices.get("*", 0), prices=prices)


def sandbox_with_draft(draft: TemplateDraftState) -> Team:
    """Return a copy of the team in sandbox mode that can send the draft, free and only to confirmed recipients.

    The subject of an email is marked as a test. A text message is unchanged, so that its number of segments is real.
    """
    new, team = draft.template, draft.team
    subject = f"[Test] {new.subject}" if new.subject else None
    sendable = replace(new, status="approved", version=DRAFT_VERSION, subject=subject)
    return replace(team, record=replace(team.record, mode="sandbox"), templates=team.templates | {new.id: sendable})


class Difference(msgspec.Struct, frozen=True):
    field: str
    lines: list[tuple[str, str]]  # ("+", "-" or " ", line)


def compare(old: msgspec.Struct, new: msgspec.Struct, fields: Sequence[str] = COMPARED_FIELDS) -> list[Difference]:
    """Return a line-by-line comparison of each field that differs."""
    result = []
    for field in fields:
        before, after = _to_lines(getattr(old, field)), _to_lines(getattr(new, field))
        if before != after:
            lines = _near_changes(list(_compare_lines(before, after)))
            hidden_count = len(lines) - LINES_MAX
            note = [(" ", f"… {hidden_count:,} more lines")] if hidden_count > 0 else []
            result.append(Difference(field, lines[:LINES_MAX] + note))
    return result


def _compare_lines(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of both texts in order, each with a sign: in both, removed or added.

    Patience diff, O(n log n): lines that occur exactly once in both texts are anchors.
    """
    old_at, new_at = 0, 0
    for end, new_end in [*_anchors(before, after), (len(before), len(after))]:
        while old_at < end and new_at < new_end and before[old_at] == after[new_at]:
            yield " ", before[old_at]
            old_at, new_at = old_at + 1, new_at + 1
        equal_lines = 0
        while (
            old_at < end - equal_lines
            and new_at < new_end - equal_lines
            and before[end - equal_lines - 1] == after[new_end - equal_lines - 1]
        ):
            equal_lines += 1
        yield from (("-", line) for line in before[old_at : end - equal_lines])
        yield from (("+", line) for line in after[new_at : new_end - equal_lines])
        yield from ((" ", line) for line in before[end - equal_lines : end])
        old_at, new_at = end, new_end


def _anchors(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Return the positions of the longest common sequence of lines that occur once in each text."""
    counts, new_counts = Counter(before), Counter(after)
    position_by_line = {line: at for at, line in enumerate(after) if counts[line] == new_counts[line] == 1}
    end_positions: list[int] = []  # smallest end position of a sequence of each length
    runs: list[list[Any] | None] = []  # that sequence as a linked list: [last pair of positions, the list before it]
    for at, line in enumerate(before):
        position = position_by_line.get(line)
        if position is not None:
            length = bisect(end_positions, position)
            run = [(at, position), runs[length - 1] if length else None]
            end_positions[length : length + 1], runs[length : length + 1] = [position], [run]
    pairs, node = [], runs[-1] if runs else None
    while node:
        pairs.append(node[0])
        node = node[1]
    return pairs[::-1]


def _near_changes(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the changed lines with CONTEXT_LINES lines around each."""
    shown_lines = {
        at + step
        for at, (sign, _) in enumerate(lines)
        if sign != " "
        for step in range(-CONTEXT_LINES, CONTEXT_LINES + 1)
    }
    return [line for at, line in enumerate(lines) if at in shown_lines]


def _to_lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [line for name, item in sorted(value.items()) for line in _entry_lines(name, item)]
    if isinstance(value, int):
        return [format_amount(value)]
    if isinstance(value, tuple):
        return list(value)
    return [] if value is None else str(value).splitlines()


def _entry_lines(name: str, item: Any) -> list[str]:
    """Return the lines that show one entry of a field: a price by country, a variable's type or a translation."""
    if not isinstance(item, msgspec.Struct):
        return [f"{name} {format_amount(item)}"]
    fields = msgspec.to_builtins(item)
    return [
        f"{name} {field}: {line}"
        for field, value in fields.items()
        for line in ([", ".join(value)] if isinstance(value, tuple | list) else str(value).splitlines())
    ]
