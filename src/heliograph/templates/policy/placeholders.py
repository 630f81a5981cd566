"""Placeholders of templates: grammar, short forms such as `{{name}}`, advice for invalid ones (contract 18)."""

import re
from collections.abc import Collection, Iterable, Iterator

_NAME_SEGMENT = r"[a-z][a-z0-9_]{0,62}"
NAME = re.compile(rf"{_NAME_SEGMENT}(?:\.{_NAME_SEGMENT})*")
# Groups of a placeholder: scope, name, format and its argument; of a block: its keyword and variable.
PLACEHOLDER = re.compile(
    rf"\{{\{{\s*(customer|brand|item)\.({NAME.pattern})\s*(?:\|\s*([a-z]+)(?::([A-Za-z]+))?\s*)?\}}\}}"
)
BLOCK = re.compile(rf"\{{\{{\s*(?:#(each|if)\s+(customer|item)\.({NAME.pattern})|(else)|/(each|if))\s*\}}\}}")
TOKEN = re.compile(rf"{PLACEHOLDER.pattern}|{BLOCK.pattern}|\{{\{{\s*(content)\s*\}}\}}")
NAME_MAX = 200  # characters of a variable's name
BRAND_FIELDS = ("name", "domain")  # fields of a brand

# Matches the text between the braces. Groups: (1) all before the name, (2) in it the keyword `each` or `if`, (3) the
# name, (4) the rest, which is a format.
_NAMED = re.compile(rf"(\s*+(?:#(each|if)\s++)?)({NAME.pattern})(\s*+(?:\|.*)?)", re.DOTALL)
_CLOSING = re.compile(r"\s*+/(?:each|if)\s*+")
_BRACES = re.compile(r"(?<!\{)\{\{([^{}]{1,400})\}\}(?!\})")
_ANY_PLACEHOLDER = re.compile(r"\{\{\{?([^{}]{0,400})\}\}")
_BLOCK_SYNTAX = re.compile(r"[#^/>!&(=?]|else\b")
_SHOWN_CHARS = 40  # characters shown of an unclosed placeholder


ItemFields = tuple[tuple[str, tuple[str, ...]], ...]  # each list variable with its declared fields


class _Scopes:
    """Tracks the open blocks of a source, to tell the fields of a list item from customer variables."""

    def __init__(self) -> None:
        self._lists: list[str | None] = []  # for each open block, the list whose items are in scope; None for others
        self._is_each: list[bool] = []

    def current_list(self) -> str | None:
        return next((name for name in self._lists if name is not None), None)

    def read(self, inside: str) -> re.Match[str] | None:
        """Return the match of a placeholder or opening block with a name, else None. A closing tag ends its block."""
        if _CLOSING.fullmatch(inside):
            if self._lists:
                self._lists.pop()
                self._is_each.pop()
            return None
        match = _NAMED.fullmatch(inside)
        if not match:
            return None
        if match[3] == "else" and not match[2]:
            if self._lists and self._is_each[-1]:
                self._lists[-1] = None
            return None
        return match

    def open(self, keyword: str, name: str) -> None:
        self._lists.append(name.removeprefix("customer.") if keyword == "each" else None)
        self._is_each.append(keyword == "each")


def expand_short_forms(source: str, item_fields: ItemFields = ()) -> str:
    """Return the source with `customer.` or `item.` before each name that has no scope. Line breaks are unchanged.

    Inside `{{#each}}`, a name in `item_fields` is a field of the list's item.
    """
    fields_by_list, scopes = dict(item_fields), _Scopes()

    def expand(braces: re.Match[str]) -> str:
        match = scopes.read(braces[1])
        if not match:
            return braces[0]
        before, keyword, name, after = match.groups()
        fields = fields_by_list.get(scopes.current_list() or "", ())
        if keyword:
            scopes.open(keyword, name)
        if not _is_short(name) or (name == "content" and not keyword):
            return braces[0]
        return f"{{{{{before}{'item' if keyword != 'each' and name in fields else 'customer'}.{name}{after}}}}}"

    return _BRACES.sub(expand, source)


def guess_item_fields(parts: Collection[str], declared: Collection[str]) -> ItemFields:
    """Return the fields that undeclared lists seem to have: short names used only inside their `{{#each}}` blocks."""
    inside: dict[str, dict[str, None]] = {}
    outside = set(declared)
    for part in parts:
        scopes = _Scopes()
        for braces in _BRACES.finditer(part):
            if not (match := scopes.read(braces[1])):
                continue
            keyword, name, list_name = match[2], match[3], scopes.current_list()
            if keyword:
                scopes.open(keyword, name)
            if keyword == "each" or not _is_short(name) or list_name is None:
                outside.add(name.removeprefix("customer."))
            elif list_name not in declared:
                inside.setdefault(list_name, {})[name] = None
    return tuple((name, tuple(field for field in fields if field not in outside)) for name, fields in inside.items())


def used_names(parts: Iterable[str], item_fields: ItemFields = ()) -> dict[str, list[str]]:
    """Map each customer variable used in the parts, in order, to the item fields that it has if it is a list."""
    used: dict[str, dict[str, None]] = {}
    for part in parts:
        list_name = ""
        for token in TOKEN.finditer(expand_short_forms(part, item_fields)):
            scope, name = token[1] or token[6], token[2] or token[7]
            if scope == "customer":
                used.setdefault(name, {})
            elif scope == "item" and list_name and token[5] != "each":
                used[list_name][name] = None
            if "each" in (token[5], token[9]):
                list_name = name if scope == "customer" else ""
    return {name: list(fields) for name, fields in used.items()}


def invalid_placeholders(source: str, masked: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each `{{` that is no valid placeholder; in `masked`, the valid ones are blanked."""
    for braces in re.finditer(r"\{\{", masked):
        match = _ANY_PLACEHOLDER.match(masked, braces.start())
        yield braces.start(), source[braces.start() : match.end() if match else braces.start() + _SHOWN_CHARS]


def placeholder_advice(invalid: str) -> str:
    """Return advice on what to write instead of an invalid placeholder."""
    match = _ANY_PLACEHOLDER.match(invalid)
    if not match:
        return "close it with }}, as in {{name}}"
    content = match[1].strip()
    if content.isdecimal():
        return "numbered placeholders aren't supported, use the variable's name, as in {{order.id}}"
    if content in ("customer", "brand"):
        return f"say which, as in {{{{{content}.name}}}}"
    if "|" in content:
        return "a format is number, percent, money:EUR, date, time or datetime, as in {{total|number}}"
    if _BLOCK_SYNTAX.search(content):
        return "write {{#each items}}, {{#if name}}, {{else}}, {{/each}} or {{/if}}"
    name = content if NAME.fullmatch(content) else _to_snake_case(content)
    if not NAME.fullmatch(name):
        return "names use a-z, 0-9 and _ and start with a letter, as in {{name}}"
    if len(name) > NAME_MAX:
        return f"names have at most {NAME_MAX} characters"
    return f"write {{{{{name}}}}}"


def _is_short(name: str) -> bool:
    return len(name) <= NAME_MAX and name != "else" and name.partition(".")[0] not in ("customer", "brand", "item")


def _to_snake_case(inside: str) -> str:
    """Convert `firstName`, `First name` and `first-name` to `first_name`."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", inside)
    return re.sub(r"[\s-]+", "_", separated).lower()
