"""Converts templates from Handlebars (SendGrid) and Mustachio (Postmark).

Lists, conditions, sections and names are converted. Syntax without a counterpart is left unchanged, reported with its
line, and prevents saving.
"""

import re

import msgspec

from heliograph.templates.policy.placeholders import NAME

NOTES_MAX = 50  # maximum entries of `unsupported` and of `changed` per part
_TEMPLATE_TAG = re.compile(r"\{\{\{\s*([^{}]{0,400}?)\s*\}\}\}|\{\{\s*([^{}]{0,400}?)\s*\}\}")
_VARIABLE_PATH = re.compile(r"(?:(?:\.\./)+|@root\.|this\.|\./)?[A-Za-z_][A-Za-z0-9_.]*|\.|this")
_INSERT_HELPER = re.compile(rf"insert\s+({_VARIABLE_PATH.pattern})(?:\s+[\"'](?:default=)?([^\"']*)[\"'])?")
_ROOT_PREFIX = re.compile(r"(?:\.\./)+|@root\.")
_THIS_PREFIX = re.compile(r"this\.|\./")


class ConvertedTemplate(msgspec.Struct, frozen=True):
    text: str
    unsupported: list[str]  # syntax without a counterpart, with its line
    changed: list[str]  # syntax that changes its meaning, with its line
    optional: set[str]  # variables used in a condition or list: callers may omit them
    fallback: dict[str, str]  # values used if a caller omits a variable


class _OpenSection(msgspec.Struct, frozen=True):
    closed_by: str
    end: str  # closing tag in our syntax
    kind: str  # each, if, unless, scope, or left (unsupported, left unchanged)
    path: str = ""  # variable of the section


def convert_template(source: str) -> ConvertedTemplate:
    return _Converter(source).convert()


class _Converter:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[_OpenSection] = []
        self._offset = 0  # offset of the current tag
        self._result = ConvertedTemplate("", [], [], set(), {})

    def convert(self) -> ConvertedTemplate:
        text = _TEMPLATE_TAG.sub(self._convert_tag, self._source)
        return msgspec.structs.replace(self._result, text=text)

    def _convert_tag(self, tag: re.Match[str]) -> str:
        self._offset = tag.start()
        tag_content = tag[1] if tag[1] is not None else tag[2]
        if tag_content.startswith("!"):
            return ""
        if tag_content == "@content":
            return "{{content}}"
        if tag_content[:1] in ("#", "^", "/") or tag_content == "else":
            return self._convert_block_tag(tag_content, tag)
        if insert := _INSERT_HELPER.fullmatch(tag_content):
            tag_content, default = insert[1], insert[2]
            if default and (name := self._variable_name(tag_content)):
                self._result.fallback[name.partition(".")[2]] = default
        name = self._variable_name(tag_content) if _VARIABLE_PATH.fullmatch(tag_content) else None
        if name is None:
            return self._keep_unsupported(tag[0])
        if tag[1] is not None:
            self._note_change(f"{tag[0]} wrote HTML unescaped: here its value is escaped")
        return f"{{{{{name}}}}}"

    def _convert_block_tag(self, inside: str, tag: re.Match[str]) -> str:
        top = self._open[-1] if self._open else None
        if inside in ("else", "^"):
            return "{{else}}" if top and top.kind in ("each", "if") else self._keep_unsupported(tag[0])
        if inside[0] == "/":
            if top and inside[1:].strip() == top.closed_by:
                self._open.pop()
                return tag[0] if top.kind == "left" else top.end
            return self._keep_unsupported(tag[0])
        word, _, path = inside[1:].strip().partition(" ")
        if inside[0] == "^":
            word, path = "unless", word
            return self._open_condition(path, path, tag[0], is_negated=True)
        if word in ("if", "unless"):
            return self._open_condition(word, path.strip(), tag[0], is_negated=word == "unless")
        if word == "each":
            return self._open_each(path.strip(), tag[0])
        return self._open_section(word, tag) if not path else self._keep_unsupported(tag[0], closed_by=word)

    def _open_condition(self, closed_by: str, path: str, original: str, *, is_negated: bool) -> str:
        name = self._variable_name(path) if _VARIABLE_PATH.fullmatch(path) else None
        if name is None:
            return self._keep_unsupported(original, closed_by=closed_by)
        if name.startswith("item."):
            self._note_change(f"{original} asks for a field of an item: each item has to give it, if only empty")
        else:
            self._result.optional.add(name.removeprefix("customer."))
        self._open.append(_OpenSection(closed_by, "{{/if}}", "unless" if is_negated else "if", name))
        return f"{{{{#if {name}}}}}" + ("{{else}}" if is_negated else "")

    def _open_each(self, path: str, original: str) -> str:
        name = self._variable_name(path) if _VARIABLE_PATH.fullmatch(path) else None
        if name is None or not name.startswith("customer.") or any(section.kind == "each" for section in self._open):
            return self._keep_unsupported(original, closed_by="each")
        self._result.optional.add(name.removeprefix("customer."))
        self._open.append(_OpenSection("each", "{{/each}}", "each", name))
        return f"{{{{#each {name}}}}}"

    def _open_section(self, word: str, tag: re.Match[str]) -> str:
        """Convert `{{#person}}` to a condition, or to a scope of nested names if the section contains other names."""
        end = re.compile(rf"\{{\{{\s*/\s*{re.escape(word)}\s*\}}\}}").search(self._source, tag.end())
        inner_source = self._source[tag.end() : end.start() if end else tag.end()]
        names = {(nested[1] or nested[2] or "").strip() for nested in _TEMPLATE_TAG.finditer(inner_source)}
        if not names - {word, ".", "this", "else", "^"}:
            return self._open_condition(word, word, tag[0], is_negated=False)
        name = self._variable_name(word) if _VARIABLE_PATH.fullmatch(word) else None
        if name is None or name.startswith("item."):
            return self._keep_unsupported(tag[0], closed_by=word)
        self._note_change(
            f"{tag[0]} is shown whether it is there or not: put {{{{#if …}}}} around it where that matters"
        )
        self._open.append(_OpenSection(word, "", "scope", name))
        return ""

    def _variable_name(self, path: str) -> str | None:
        """Return the full variable name of a path such as `person.name`; None if it cannot be converted."""
        if path in (".", "this"):
            top = self._open[-1] if self._open else None
            return top.path if top and top.kind == "if" else None
        if path.startswith(("customer.", "brand.")):
            return path
        inner_section = next((section for section in reversed(self._open) if section.kind in ("each", "scope")), None)
        root_prefix = _ROOT_PREFIX.match(path)
        relative = path[root_prefix.end() :] if root_prefix else _THIS_PREFIX.sub("", path, count=1)
        name = relative.lower()
        if not NAME.fullmatch(name):
            return None
        if root_prefix or inner_section is None:
            return f"customer.{name}"
        return f"item.{name}" if inner_section.kind == "each" else f"{inner_section.path}.{name}"

    def _keep_unsupported(self, original: str, closed_by: str = "") -> str:
        if len(self._result.unsupported) < NOTES_MAX:
            self._result.unsupported.append(f"line {self._line_number()}: {original} has no counterpart here")
        if closed_by:
            self._open.append(_OpenSection(closed_by, "", "left"))
        return original

    def _note_change(self, note: str) -> None:
        if len(self._result.changed) < NOTES_MAX:
            self._result.changed.append(f"line {self._line_number()}: {note}")

    def _line_number(self) -> int:
        return self._source.count("\n", 0, self._offset) + 1
