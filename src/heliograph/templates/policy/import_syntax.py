"""The words of a template as Handlebars (SendGrid) and Mustachio (Postmark) have them, in ours.

Lists, conditions, sections and names are carried over; what has no counterpart stays as it is, which no save takes, and
is named with its line.
"""

import re

import msgspec

from heliograph.templates.policy.placeholders import NAME

TOLD_MAX = 50  # of what is left, and of what is changed, in one part
_TAG = re.compile(r"\{\{\{\s*([^{}]{0,400}?)\s*\}\}\}|\{\{\s*([^{}]{0,400}?)\s*\}\}")
_PATH = re.compile(r"(?:(?:\.\./)+|@root\.|this\.|\./)?[A-Za-z_][A-Za-z0-9_.]*|\.|this")
_INSERT = re.compile(rf"insert\s+({_PATH.pattern})(?:\s+[\"'](?:default=)?([^\"']*)[\"'])?")
_ROOT = re.compile(r"(?:\.\./)+|@root\.")
_HERE = re.compile(r"this\.|\./")


class Carried(msgspec.Struct, frozen=True):
    text: str
    left: list[str]  # what has no counterpart, with its line
    changed: list[str]  # what means something else here, with its line
    optional: set[str]  # names that a condition or a list asks for: a caller may leave them out
    fallback: dict[str, str]  # what a name is where a caller leaves it out


class _Section(msgspec.Struct, frozen=True):
    closed_by: str
    end: str  # what closes it here
    kind: str  # each, if, unless, scope or left
    path: str = ""  # what it is about


def carry(source: str) -> Carried:
    return _Carrying(source).carried()


class _Carrying:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[_Section] = []
        self._at = 0  # the tag that is looked at
        self._found = Carried("", [], [], set(), {})

    def carried(self) -> Carried:
        text = _TAG.sub(self._tag, self._source)
        return msgspec.structs.replace(self._found, text=text)

    def _tag(self, tag: re.Match[str]) -> str:
        self._at = tag.start()
        inside = tag[1] if tag[1] is not None else tag[2]
        if inside.startswith("!"):
            return ""
        if inside == "@content":
            return "{{content}}"
        if inside[:1] in ("#", "^", "/") or inside == "else":
            return self._block(inside, tag)
        if insert := _INSERT.fullmatch(inside):
            inside, default = insert[1], insert[2]
            if default and (name := self._name(inside)):
                self._found.fallback[name.partition(".")[2]] = default
        name = self._name(inside) if _PATH.fullmatch(inside) else None
        if name is None:
            return self._leave(tag[0])
        if tag[1] is not None:
            self._change(f"{tag[0]} wrote HTML as it came: here its value is escaped")
        return f"{{{{{name}}}}}"

    def _block(self, inside: str, tag: re.Match[str]) -> str:
        top = self._open[-1] if self._open else None
        if inside in ("else", "^"):
            return "{{else}}" if top and top.kind in ("each", "if") else self._leave(tag[0])
        if inside[0] == "/":
            if top and inside[1:].strip() == top.closed_by:
                self._open.pop()
                return tag[0] if top.kind == "left" else top.end
            return self._leave(tag[0])
        word, _, path = inside[1:].strip().partition(" ")
        if inside[0] == "^":
            word, path = "unless", word
            return self._condition(path, path, tag[0], is_not=True)
        if word in ("if", "unless"):
            return self._condition(word, path.strip(), tag[0], is_not=word == "unless")
        if word == "each":
            return self._each(path.strip(), tag[0])
        return self._section(word, tag) if not path else self._leave(tag[0], closed_by=word)

    def _condition(self, closed_by: str, path: str, whole: str, *, is_not: bool) -> str:
        name = self._name(path) if _PATH.fullmatch(path) else None
        if name is None:
            return self._leave(whole, closed_by=closed_by)
        if name.startswith("item."):
            self._change(f"{whole} asks for a field of an item: each item has to give it, if only empty")
        else:
            self._found.optional.add(name.removeprefix("customer."))
        self._open.append(_Section(closed_by, "{{/if}}", "unless" if is_not else "if", name))
        return f"{{{{#if {name}}}}}" + ("{{else}}" if is_not else "")

    def _each(self, path: str, whole: str) -> str:
        name = self._name(path) if _PATH.fullmatch(path) else None
        if name is None or not name.startswith("customer.") or self._within("each"):
            return self._leave(whole, closed_by="each")
        self._found.optional.add(name.removeprefix("customer."))
        self._open.append(_Section("each", "{{/each}}", "each", name))
        return f"{{{{#each {name}}}}}"

    def _section(self, word: str, tag: re.Match[str]) -> str:
        """Read `{{#person}}`: a condition, or where it has names of its own, a place for them."""
        end = re.compile(rf"\{{\{{\s*/\s*{re.escape(word)}\s*\}}\}}").search(self._source, tag.end())
        inner = self._source[tag.end() : end.start() if end else tag.end()]
        names = {(one[1] or one[2] or "").strip() for one in _TAG.finditer(inner)}
        if not names - {word, ".", "this", "else", "^"}:
            return self._condition(word, word, tag[0], is_not=False)
        name = self._name(word) if _PATH.fullmatch(word) else None
        if name is None or name.startswith("item."):
            return self._leave(tag[0], closed_by=word)
        self._change(f"{tag[0]} is shown whether it is there or not: put {{{{#if …}}}} around it where that matters")
        self._open.append(_Section(word, "", "scope", name))
        return ""

    def _within(self, kind: str) -> _Section | None:
        return next((one for one in reversed(self._open) if one.kind == kind), None)

    def _name(self, path: str) -> str | None:
        """Return the full name that it has here."""
        if path in (".", "this"):
            top = self._open[-1] if self._open else None
            return top.path if top and top.kind == "if" else None
        if path.startswith(("customer.", "brand.")):
            return path
        inner = next((one for one in reversed(self._open) if one.kind in ("each", "scope")), None)
        at = _ROOT.match(path)
        own = path[at.end() :] if at else _HERE.sub("", path, count=1)
        name = own.lower()
        if not NAME.fullmatch(name):
            return None
        if at or inner is None:
            return f"customer.{name}"
        return f"item.{name}" if inner.kind == "each" else f"{inner.path}.{name}"

    def _leave(self, whole: str, closed_by: str = "") -> str:
        if len(self._found.left) < TOLD_MAX:
            self._found.left.append(f"line {self._line()}: {whole} has no counterpart here")
        if closed_by:
            self._open.append(_Section(closed_by, "", "left"))
        return whole

    def _change(self, told: str) -> None:
        if len(self._found.changed) < TOLD_MAX:
            self._found.changed.append(f"line {self._line()}: {told}")

    def _line(self) -> int:
        return self._source.count("\n", 0, self._at) + 1
