"""The docs as HTML pages, and the error list as Markdown. Pages need no scripts and no external resources.

`python -m heliograph.api.pages > docs/errors.md` writes the Markdown.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape

from heliograph.api.examples import answer_example, request_examples
from heliograph.api.guides import GUIDES, NAMES, read_guide, soft
from heliograph.api.openapi import EVERY, KEYED, operation_id, refusals_of, tag
from heliograph.domain.field_docs import Schema
from heliograph.web.errors import error_list
from heliograph.web.html import environment
from heliograph.web.route import Route
from heliograph.web.snippets import LANGUAGES

FOUND_MAX = 50  # maximum results of a search
# Body fields listed directly after the required ones, in this order; all others are listed as optional.
FIRST = ("from", "subject", "html", "text", "body", "template_id", "variables")
ASKED = ("Body", "Optional", "Query parameters", "Headers")  # titles of tables that describe requests
RANKS = {"API": 0, "Field": 1}  # order of search results by kind; other kinds follow
NULL: Schema = {"type": "null"}


class FieldRow(msgspec.Struct, frozen=True, kw_only=True):
    """A table row that describes a field or parameter."""

    name: str
    type: str
    needed: bool = False
    meaning: str  # first sentence of the description
    more: str = ""  # remaining sentences

    @property
    def root(self) -> str:
        """The top-level body field that is, or contains, this field."""
        return re.split(r"[.\[]", self.name)[0]


class DocsHit(msgspec.Struct, frozen=True):
    """A search result."""

    kind: str
    title: str
    about: str
    url: str


class Docs:
    """All pages of /docs for one base URL. An entry of the side list is (text, URL, prefix)."""

    def __init__(self, routes: list[Route], document: dict[str, Any]) -> None:
        self._routes = {operation_id(route): route for route in routes}
        self._document = document
        self._schemas: dict[str, Schema] = document["components"]["schemas"]
        self._base_url: str = document["servers"][0]["url"]
        self._errors = {error["code"]: error for error in error_list()}

    def page(self, path: str) -> str | None:
        """Return the HTML of a page; None if not found."""
        match path.strip("/").split("/"):
            case ["docs"]:
                return self.home()
            case ["docs", "errors"]:
                return self.errors()
            case ["docs", "errors", code]:
                return self.error(code)
            case ["docs", "api", id_]:
                return self.endpoint(id_)
            case ["docs", "guides", name]:
                return self.guide(name)
        return None

    def home(self) -> str:
        first = next(iter(self._routes.values()))
        return self._page("home.html", "Docs", "/docs", example=self._examples(first), groups=self._groups())

    def found(self, words: str) -> str:
        return self._page("search.html", f"Search: {words}", "", q=words, found=self.search(words))

    def endpoint(self, id_: str) -> str | None:
        route = self._routes.get(id_)
        if route is None:
            return None
        operation = self._operation(route)
        return self._page(
            "endpoint.html",
            route.summary,
            f"/docs/api/{id_}",
            route=route,
            group=tag(route),
            tables=[(title, rows) for title, rows in self._tables(route, operation) if rows],
            errors=[*_errors_of(route, shared=False)],
            shared=[*_errors_of(route, shared=True)],
            example=self._examples(route),
            answers=self._answers(route),
            asked=ASKED,
        )

    def errors(self, words: str = "") -> str:
        wanted = words.lower().split()
        found = [one for one in self._errors.values() if _has(wanted, one["code"], one["meaning"], one["fix"])]
        return self._page("errors.html", "Error codes", "/docs/errors", errors=found, q=words)

    def error(self, code: str) -> str | None:
        error = self._errors.get(code)
        if error is None:
            return None
        body = {
            "type": error["type"],
            "code": code,
            "message": f"{error['meaning']} {error['fix']}",
            "param": None,
            "details": None,
            "request_id": "req_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
            "doc_url": f"{self._base_url}/docs/errors#{code}",
        }
        by = [(id_, route) for id_, route in self._routes.items() if code in _codes(route)]
        shared = code in {refusal.code for refusal in (*KEYED, *EVERY)}
        answer = _pretty({"error": body})
        return self._page(
            "error.html", code, f"/docs/errors/{code}", error=error, answer=answer, by=[] if shared else by
        )

    def guide(self, name: str) -> str | None:
        if name not in NAMES:
            return None
        guide = read_guide(name)
        return self._page("guide.html", guide.title, f"/docs/guides/{name}", guide=guide)

    def missing(self) -> str:
        return self._page("missing.html", "Page not found", "")

    def search(self, words: str) -> list[DocsHit]:
        """Return the pages and fields that contain all words.

        Order: exact title first, then words in title or description, then in the text; within each, endpoints,
        fields, then guides and errors.
        """
        wanted, name = words.lower().split(), words.lower().strip()

        def rank(hit: DocsHit) -> tuple[bool, bool, int]:
            return hit.title.lower() != name, not _has(wanted, hit.title, hit.about), RANKS.get(hit.kind, 2)

        found = [
            hit
            for hit, more in self._findable()
            if _has(wanted, hit.title, *([] if hit.kind == "Field" else (hit.about, more)))
        ]
        return sorted(found, key=rank)[:FOUND_MAX]

    # -- parts of pages --------------------------------------------------------------------------------------

    def _page(self, template: str, title: str, path: str, **values: Any) -> str:
        shared = {
            "title": title,
            "path": path,
            "side": self._side(),
            "base_url": self._base_url,
            "languages": LANGUAGES,
            "q": "",
            "guides": GUIDES,
            "guide_of": read_guide,
        }
        return _environment().get_template(template).render(shared | values)

    def _side(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        guides = [
            (group, [(read_guide(name).title, f"/docs/guides/{name}", "") for name in names])
            for group, names in GUIDES.items()
        ]
        endpoints = [
            (name, [(route.summary, f"/docs/api/{operation_id(route)}", route.method) for route in routes])
            for name, routes in self._groups().items()
        ]
        start, *others = guides
        first = [("Introduction", "/docs", ""), ("Error codes", "/docs/errors", "")]
        return [(start[0], first + start[1]), *others, *endpoints]

    def _groups(self) -> dict[str, list[Route]]:
        groups: dict[str, list[Route]] = {}
        for route in self._routes.values():
            groups.setdefault(tag(route), []).append(route)
        return groups

    def _operation(self, route: Route) -> Schema:
        found: Schema = self._document["paths"][route.path][route.method.lower()]
        return found

    def _examples(self, route: Route) -> dict[str, str]:
        return request_examples(route, self._base_url, self._operation(route))

    def _answers(self, route: Route) -> list[tuple[str, str]]:
        kinds = [(f"{route.status}", route.answer), ("200, dry run", route.preview)]
        return [(name, _pretty(answer_example(route, kind, self._schemas))) for name, kind in kinds if kind is not None]

    def _tables(self, route: Route, operation: Schema) -> Iterator[tuple[str, list[FieldRow]]]:
        first, others = _by_need(self._rows(route.body, asked=True))
        yield "Body", first or others
        yield "Optional", others if first else []
        named = {"path": "Path", "query": "Query parameters", "header": "Headers"}
        for place, title in named.items():
            yield title, [_parameter(one) for one in operation["parameters"] if one["in"] == place]
        yield f"Response ({route.status})", self._rows(route.answer)
        yield "Response of a dry run (200)", self._rows(route.preview)

    def _rows(self, kind: Any, *, asked: bool = False) -> list[FieldRow]:
        if kind is None:
            return []
        return [
            FieldRow(
                name=name,
                type=_type(schema, null=not asked),
                needed=asked and needed,
                **_said(schema.get("description", ""), *_limits(schema)),
            )
            for name, schema, needed in self._fields(self._schemas[kind.__name__], "")
        ]

    def _fields(self, schema: Schema, prefix: str) -> list[tuple[str, Schema, bool]]:
        """Return (name, schema, required) of the fields of all alternatives, each followed by its nested fields."""
        found = []
        forms = schema.get("oneOf", [schema])
        for name, inner in {name: inner for form in forms for name, inner in form["properties"].items()}.items():
            found.append((prefix + name, inner, all(name in form["required"] for form in forms)))
            for branch in inner.get("anyOf", [inner]):
                item = branch.get("items", branch)
                held = self._schemas.get(item.get("$ref", "").rpartition("/")[2], {})
                if "properties" in held:
                    found += self._fields(held, f"{prefix}{name}{'[]' if 'items' in branch else ''}.")
        return found

    def _findable(self) -> Iterator[tuple[DocsHit, str]]:
        """Yield every possible search result with additional text to search."""
        for id_, route in self._routes.items():
            fields = [row.name for kind in (route.body, route.answer) for row in self._rows(kind)]
            yield DocsHit("API", route.summary, route.name, f"/docs/api/{id_}"), " ".join(fields)
        seen = set[str]()
        for id_, route in self._routes.items():
            for title, rows in self._tables(route, self._operation(route)):
                for row in rows:
                    if title in ASKED and row.name not in seen:
                        seen.add(row.name)
                        about = f"{route.name}: {row.meaning}"
                        yield DocsHit("Field", row.name, about, f"/docs/api/{id_}#field-{row.name}"), ""
        for name in NAMES:
            guide = read_guide(name)
            yield DocsHit("Guide", guide.title, guide.about, f"/docs/guides/{name}"), guide.text
        for code, error in self._errors.items():
            hit = DocsHit("Error", code, error["meaning"], f"/docs/errors/{code}")
            yield hit, f"{error['status']} {error['fix']}"


def errors_markdown() -> str:
    lines = [
        "# Error codes",
        "",
        "Generated from the code. To update it: `python -m heliograph.api.pages > docs/errors.md`.",
        "",
        "| status | code | type | meaning | fix |",
        "|---|---|---|---|---|",
    ]
    for error in error_list():
        cells = (error["status"], f"`{error['code']}`", error["type"], error["meaning"], error["fix"])
        lines.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


@cache
def _environment() -> Environment:
    made = environment("heliograph.api")
    made.filters |= {"prose": prose, "soft": soft, "operation_id": operation_id}
    return made


def prose(text: str) -> Markup:
    """Return a text as HTML, with backticks converted to <code>."""
    return Markup(re.sub(r"`([^`]+)`", lambda found: f"<code>{soft(Markup(found[1]))}</code>", str(escape(text))))


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _has(wanted: list[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in wanted)


def _codes(route: Route) -> set[str]:
    return {refusal.code for refusals in refusals_of(route).values() for refusal in refusals}


def _errors_of(route: Route, *, shared: bool) -> Iterator[tuple[int, str, str]]:
    """Yield status, code and meaning of the route's errors: those common to all routes (`shared`), or the others."""
    for status, refusals in refusals_of(route).items():
        for refusal in refusals:
            if (refusal in (*KEYED, *EVERY)) == shared:
                yield status, refusal.code, refusal.meaning()


def _parameter(one: Schema) -> FieldRow:
    schema = one["schema"]
    return FieldRow(
        name=one["name"],
        type=_type(schema),
        needed=one.get("required", False),
        **_said(one["description"], *_limits(schema)),
    )


def _type(schema: Schema, *, null: bool = True) -> str:
    if "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if null or branch != NULL]
        return " or ".join(filter(None, (_type(branch) for branch in branches))) or "any"
    kind = schema.get("type", "object" if "$ref" in schema else "string" if "enum" in schema else "")
    if isinstance(kind, list):
        return " or ".join(one for one in kind if null or one != "null")
    items = schema.get("items", {})
    if kind == "array":
        return f"list of {_type(items)}s" if items else "list"
    return str(kind or "any")


def _limits(schema: Schema) -> Iterator[str]:
    """Yield the limits of a field as sentences."""
    for one in schema.get("anyOf", [schema]):
        items = one.get("items", {})
        if "maxLength" in one:
            least = one.get("minLength", 0)
            yield f"{least} to {one['maxLength']} characters." if least else f"At most {one['maxLength']} characters."
        if "maxItems" in one:
            yield f"At most {one['maxItems']}."
        if "minimum" in one and "maximum" in one:
            yield f"{one['minimum']} to {one['maximum']}."
        if "default" in one:
            yield f"Default: `{one['default']}`."
        if one.get("format") == "date-time":
            yield "ISO 8601."
        if values := one.get("enum", items.get("enum", [])):
            yield f"One of {', '.join(f'`{value}`' for value in values)}."


def _by_need(rows: list[FieldRow]) -> tuple[list[FieldRow], list[FieldRow]]:
    """Split rows into required and important ones, in display order, and optional ones."""
    first = [*(row.name for row in rows if row.needed and row.name == row.root), *FIRST]
    known = sorted((row for row in rows if row.root in first), key=lambda row: first.index(row.root))
    return known, [row for row in rows if row.root not in first]


def _said(*parts: str) -> dict[str, str]:
    """Join sentences and split the result after the first one; skip sentences whose number already occurs."""
    said = ""
    for part in parts:
        number = re.search(r"\d+(?=\W|$)", part.removeprefix("ISO 8601"))
        if part not in said and not (said and number and number[0] in said):
            said = f"{said} {part}".strip()
    meaning, more = re.fullmatch(r"(.*?[.](?=\s|$)|.*)\s*(.*)", said, re.S).groups()  # type: ignore[union-attr]
    return {"meaning": meaning, "more": more}


if __name__ == "__main__":
    print(errors_markdown(), end="")
