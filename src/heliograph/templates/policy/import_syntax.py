"""Converts templates from Handlebars (SendGrid) and Mustachio (Postmark).

Lists, conditions, sections and names are converted. Syntax without a counterpart is left unchanged, reported with its
line, and prevents saving.
"""

import re

import msgspec

from heliograph.templates.policy.placeholders import NAME

TOLD_MAX = 50  # maximum entries of `left` and of `changed` per part
_TAG = re.compile(r"\{\{\{\s*([^{}]{0,400}?)\s*\}\}\}|\{\{\s*([^{}]{0,400}?)\s*\}\}")
_PATH = re.compile(r"(?:(?:\.\./)+|@root\.|this\.|\./)?[A-Za-z_][A-Za-z0-9_.]*|\.|this")
_INSERT = re.compile(rf"insert\s+({_PATH.pattern})(?:\s+[\"'](?:default=)?([^\"']*)[\"'])?")
_ROOT = re.compile(r"(?:\.\./)+|@root\.")
_HERE = re.compile(r"this\.|\./")


class Carried(msgspec.Struct, frozen=True):
    text: str
    left: list[str]  # syntax without a counterpart, with its line
    changed: list[str]  # syntax that changes its meaning, with its line
    optional: set[str]  # variables used in a condition or list: callers may omit them
    fallback: dict[str, str]  # values used if a caller omits a variable


class _Section(msgspec.Struct, frozen=True):
    closed_by: str
    end: str  # closing tag in our syntax
    kind: str  # each, if, unless, scope or left
    path: str = ""  # variable of the section


def carry(source: str) -> Carried:
    return _Carrying(source).carried()


class _Carrying:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[_Section] = []
        self._at = 0  # offset of the current tag
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
        """Convert `{{#person}}`: a condition, or a scope for nested names if it contains other names."""
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
        """Return the full variable name of a path; None if it cannot be converted."""
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
