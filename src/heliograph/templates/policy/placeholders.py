"""Short placeholders such as `{{order.id}}`: completion to full names, and advice for invalid ones (contract 5).

Only the editor completes placeholders, before saving; stored templates have full names.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

_SEGMENT = r"[a-z][a-z0-9_]{0,62}"
NAME = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*")
# Groups of a placeholder: scope, name, format and its argument; of a block: its keyword and variable.
PLACEHOLDER = re.compile(
    rf"\{{\{{\s*(customer|brand|item)\.({NAME.pattern})\s*(?:\|\s*([a-z]+)(?::([A-Za-z]+))?\s*)?\}}\}}"
)
BLOCK = re.compile(rf"\{{\{{\s*(?:#(each|if)\s+(customer|item)\.({NAME.pattern})|(else)|/(each|if))\s*\}}\}}")
TOKEN = re.compile(rf"{PLACEHOLDER.pattern}|{BLOCK.pattern}|\{{\{{\s*(content)\s*\}}\}}")
NAME_MAX = 200  # characters of a variable's name
BRAND = ("name", "domain")  # fields of a brand

_SHORT = re.compile(rf"(?<!\{{)\{{\{{\s*({NAME.pattern})\s*\}}\}}(?!\}})")
_WRITTEN = re.compile(r"\{\{\{?([^{}]{0,400})\}\}")
_LOGIC = re.compile(r"[#^/>!&(=?]|else\b")
MEANT_MAX = 10  # maximum suggestions for a short name
_SHOWN = 40  # characters shown of an unclosed placeholder


class Known(msgspec.Struct, frozen=True):
    """The variables of a template, without `customer.`, and an index by the end of their names."""

    names: frozenset[str]
    longer: dict[str, list[str]]  # full names by their last part

    def meant(self, name: str) -> list[str]:
        """Return the full names that a short name may mean. A variable that the template already has wins."""
        found = [name] if name in self.names else [name, *self.longer.get(name, [])[:MEANT_MAX]]
        brand = [f"brand.{name}"] if name in BRAND and name not in self.names else []
        return [*(f"customer.{one}" for one in found), *brand]


def known_of(parts: Collection[str], declared: Collection[str]) -> Known:
    full = {slot[2] for part in parts for slot in PLACEHOLDER.finditer(part) if slot[1] == "customer"}
    short = {slot[1] for part in parts for slot in _SHORT.finditer(part) if _is_short(slot[1])}
    longer: dict[str, list[str]] = {}
    for name in sorted({*declared, *full, *short}):
        if len(name) <= NAME_MAX:
            for end in (name[dot.end() :] for dot in re.finditer(r"\.", name)):
                if end in short:
                    longer.setdefault(end, []).append(name)
    return Known(frozenset({*declared, *full}), longer)


def complete(parts: Mapping[str, str], declared: Collection[str]) -> dict[str, str]:
    """Return the parts with every unambiguous short placeholder completed; other text is unchanged."""
    known = known_of(parts.values(), declared)

    def whole(slot: re.Match[str]) -> str:
        meant = known.meant(slot[1]) if _is_short(slot[1]) else []
        return f"{{{{{meant[0]}}}}}" if len(meant) == 1 else slot[0]

    return {name: _SHORT.sub(whole, part) for name, part in parts.items()}


def used_names(parts: Iterable[str]) -> dict[str, list[str]]:
    """Return the customer variables used in the parts, in order, with the fields of those that are lists."""
    used: dict[str, dict[str, None]] = {}
    for part in parts:
        among = ""
        for token in TOKEN.finditer(part):
            scope, name = token[1] or token[6], token[2] or token[7]
            if scope == "customer":
                used.setdefault(name, {})
            elif scope == "item" and among and token[5] != "each":
                used[among][name] = None
            if "each" in (token[5], token[9]):
                among = name if scope == "customer" else ""
    return {name: list(fields) for name, fields in used.items()}


def strays(source: str, masked: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each `{{` that is not a valid placeholder. `masked`: source with valid ones blanked."""
    for at in re.finditer(r"\{\{", masked):
        written = _WRITTEN.match(masked, at.start())
        yield at.start(), source[at.start() : written.end() if written else at.start() + _SHOWN]


def cure(stray: str, known: Known) -> str:
    """Return advice on what to write instead of an invalid placeholder."""
    written = _WRITTEN.match(stray)
    if not written:
        return "close it with }}, as in {{customer.name}}"
    inside = written[1].strip()
    if inside.isdecimal():
        return "a position has no meaning here, write the variable's name, as in {{customer.order.id}}"
    if inside in ("customer", "brand"):
        return f"say which, as in {{{{{inside}.name}}}}"
    if "|" in inside:
        return "a format is number, percent, money:EUR, date, time or datetime, as in {{customer.total|number}}"
    if _LOGIC.search(inside):
        return "write {{#each customer.items}}, {{#if customer.name}}, {{else}}, {{/each}} or {{/if}}"
    name = inside if NAME.fullmatch(inside) else _likely(inside)
    if not NAME.fullmatch(name):
        return "a name is of a-z, 0-9 and _, and begins with a letter, as in {{customer.name}}"
    if len(name) > NAME_MAX:
        return f"a name has at most {NAME_MAX} characters"
    meant = known.meant(name)[:MEANT_MAX] if _is_short(name) else [name]
    return "write " + " or ".join(f"{{{{{one}}}}}" for one in meant)


def _is_short(name: str) -> bool:
    return len(name) <= NAME_MAX and name != "else" and name.partition(".")[0] not in ("customer", "brand", "item")


def _likely(inside: str) -> str:
    """Convert `firstName`, `First name` and `first-name` to `first_name`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", inside)
    return re.sub(r"[\s-]+", "_", words).lower()
