"""The docs as HTML pages, and the error list as Markdown. Pages need no scripts and nothing from other hosts.

`python -m heliograph.api.pages > docs/errors.md` writes the Markdown.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from operator import itemgetter
from typing import Any

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape
from msgspec.structs import replace

from heliograph.api.examples import request_examples, response_example
from heliograph.api.guides import GUIDE_NAMES, GUIDES, anchor, read_guide, soft_wrap
from heliograph.api.openapi import COMMON_ERRORS, KEY_ERRORS, operation_id, refusals_of, tag
from heliograph.domain.field_docs import Schema
from heliograph.web.errors import error_list
from heliograph.web.html import create_environment
from heliograph.web.route import Route
from heliograph.web.snippets import DOCS_LANGUAGES

RESULTS_MAX = 50  # maximum results of a search
TEXT_RESULTS_MAX = 5  # maximum guides that contain the words only in their text
EXCERPT_CHARS = 160
# body fields that are listed after the required ones, in this order; all others are listed as optional
IMPORTANT_FIELDS = ("from", "subject", "html", "text", "body", "template_id", "variables")
REQUEST_TABLES = ("Body", "Optional", "Query parameters", "Headers")  # titles of the tables about requests
RANK_BY_KIND = {"API": 0, "Field": 1}  # search results of these kinds come first, in this order
KIND_TITLES = {"API": "Endpoints", "Field": "Fields", "Guide": "Guides", "Error": "Errors"}
NULL: Schema = {"type": "null"}


class FieldRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row about a field or parameter in a table."""

    name: str
    type: str
    needed: bool = False
    meaning: str  # first sentence of the description
    more: str = ""  # all further sentences of the description

    @property
    def root(self) -> str:
        """Return the top-level body field that is, or contains, this field."""
        return re.split(r"[.\[]", self.name)[0]


class DocsHit(msgspec.Struct, frozen=True):
    kind: str
    title: str
    about: str
    url: str
    excerpt: str = ""  # text of a guide around the words that were searched


class Docs:
    """All pages of /docs for a base URL."""

    def __init__(self, routes: list[Route], document: dict[str, Any], *, is_static: bool = False) -> None:
        """Prepare the pages. `is_static`: they become files on any host, so they do not link to a dashboard."""
        self._is_static = is_static
        self._routes = {operation_id(route): route for route in routes}
        self._document = document
        self._schemas: dict[str, Schema] = document["components"]["schemas"]
        self._base_url: str = document["servers"][0]["url"]
        self._errors = {error["code"]: error for error in error_list()}

    def paths(self) -> list[str]:
        """Return the paths of all pages."""
        return [
            *("/docs", "/docs/errors"),
            *(f"/docs/api/{id_}" for id_ in self._routes),
            *(f"/docs/guides/{name}" for name in GUIDE_NAMES),
            *(f"/docs/errors/{code}" for code in self._errors),
        ]

    def page(self, path: str) -> str | None:
        """Return the HTML of a page; None if not found."""
        match path.strip("/").split("/"):
            case ["docs"]:
                return self.home()
            case ["docs", "search"]:
                return self.search_page("")
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

    def search_page(self, query: str) -> str:
        title = f"Search: {query}" if query else "Search"
        return self._page("search.html", title, "", q=query, results=_by_kind(self.search(query)) if query else {})

    def static_search_page(self) -> str:
        """Return the search page for static hosts; the browser searches (`api/static/search.js`)."""
        return self._page("site_search.html", "Search", "")

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
            answers=self._response_examples(route),
            request_tables=REQUEST_TABLES,
        )

    def errors(self, query: str = "") -> str:
        terms = query.lower().split()
        by_status: dict[HTTPStatus, list[Schema]] = {}
        for entry in sorted(self._errors.values(), key=itemgetter("status")):
            if _contains_all(terms, entry["code"], entry["meaning"], entry["fix"]):
                by_status.setdefault(HTTPStatus(entry["status"]), []).append(entry)
        return self._page("errors.html", "Error codes", "/docs/errors", errors=by_status, q=query)

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
        routes = [(id_, route) for id_, route in self._routes.items() if code in _error_codes(route)]
        shared = code in {refusal.code for refusal in (*KEY_ERRORS, *COMMON_ERRORS)}
        example = _format_json({"error": body})
        return self._page(
            "error.html", code, f"/docs/errors/{code}", error=error, answer=example, by=[] if shared else routes
        )

    def guide(self, name: str) -> str | None:
        if name not in GUIDE_NAMES:
            return None
        guide, index = read_guide(name), GUIDE_NAMES.index(name)
        following = GUIDE_NAMES[index + 1] if index + 1 < len(GUIDE_NAMES) else ""
        others = {"Previous": GUIDE_NAMES[index - 1] if index else "", "Next": following}
        neighbours = [(label, read_guide(other)) for label, other in others.items() if other]
        return self._page("guide.html", guide.title, f"/docs/guides/{name}", guide=guide, neighbours=neighbours)

    def llms_txt(self) -> str:
        """Return the index of the docs for language models, as defined by llmstxt.org."""
        base = f"{self._base_url}/docs"
        lines = ["# Heliograph", "", "> Transactional email, SMS, WhatsApp and one-time codes that a team runs itself."]
        for group, names in GUIDES.items():
            lines += ["", f"## {group}", ""]
            lines += [f"- [{read_guide(name).title}]({base}/guides/{name}): {names[name]}" for name in names]
        lines += ["", "## API", ""]
        lines += [f"- [OpenAPI document]({self._base_url}/openapi.json): every endpoint, for programs"]
        lines += [f"- [Error codes]({base}/errors): every code, its meaning and what to do"]
        lines += [f"- [{route.name}]({base}/api/{id_}): {route.summary}" for id_, route in self._routes.items()]
        return "\n".join(lines) + "\n"

    def not_found(self) -> str:
        return self._page("missing.html", "Page not found", "")

    def search(self, query: str) -> list[DocsHit]:
        """Return the pages and fields that contain all words, best matches first.

        Order: exact title, all words in title or description, others; within each group endpoints, fields, guides and
        errors. Of the guides with the words only in their text, those that contain them most often are returned.
        """
        terms, exact = query.lower().split(), query.lower().strip()
        ranked_hits = list[tuple[tuple[bool, bool, int, int], DocsHit]]()
        for hit, extra_text in self.searchable_hits():
            if not _contains_all(terms, hit.title, *([] if hit.kind == "Field" else (hit.about, extra_text))):
                continue
            is_in_text_only = not _contains_all(terms, hit.title, hit.about)
            count = sum(extra_text.lower().count(term) for term in terms) if is_in_text_only else 0
            rank = (hit.title.lower() != exact, is_in_text_only, RANK_BY_KIND.get(hit.kind, 2), -count)
            ranked_hits.append(
                (rank, _with_section(hit, extra_text, terms) if hit.kind == "Guide" and is_in_text_only else hit)
            )
        ranked_hits.sort(key=lambda item: item[0])
        by_text = [hit for rank, hit in ranked_hits if rank[1] and hit.kind == "Guide"]
        return [hit for _, hit in ranked_hits if hit not in by_text[TEXT_RESULTS_MAX:]][:RESULTS_MAX]

    # -- parts of pages --------------------------------------------------------------------------------------

    def _page(self, template: str, title: str, path: str, **values: Any) -> str:
        common_values = {
            "title": title,
            "path": path,
            "side": self._navigation(),
            "base_url": self._base_url,
            "languages": DOCS_LANGUAGES,
            "q": "",
            "guides": GUIDES,
            "guide_of": read_guide,
            "is_static": self._is_static,
        }
        return _environment().get_template(template).render(common_values | values)

    def _navigation(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """Return the groups of the navigation with their entries: (text, URL, HTTP method or empty)."""
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
        operation: Schema = self._document["paths"][route.path][route.method.lower()]
        return operation

    def _examples(self, route: Route) -> dict[str, str]:
        return request_examples(route, self._base_url, self._operation(route))

    def _response_examples(self, route: Route) -> list[tuple[str, str]]:
        structs = [(f"{route.status}", route.answer), ("200, dry run", route.preview)]
        return [
            (name, _format_json(response_example(route, struct, self._schemas)))
            for name, struct in structs
            if struct is not None
        ]

    def _tables(self, route: Route, operation: Schema) -> Iterator[tuple[str, list[FieldRow]]]:
        important, optional = _split_by_importance(self._rows(route.body, is_request=True))
        yield "Body", important or optional
        yield "Optional", optional if important else []
        titles = {"path": "Path", "query": "Query parameters", "header": "Headers"}
        parameters = operation["parameters"]
        for location, title in titles.items():
            yield title, [_parameter_row(parameter) for parameter in parameters if parameter["in"] == location]
        yield f"Response ({route.status})", self._rows(route.answer)
        yield "Response of a dry run (200)", self._rows(route.preview)

    def _rows(self, struct: Any, *, is_request: bool = False) -> list[FieldRow]:
        if struct is None:
            return []
        return [
            FieldRow(
                name=name,
                type=_type_text(schema, null=not is_request),
                needed=is_request and needed,
                **_split_description(schema.get("description", ""), *_limit_sentences(schema)),
            )
            for name, schema, needed in self._fields(self._schemas[struct.__name__], "")
        ]

    def _fields(self, schema: Schema, prefix: str) -> list[tuple[str, Schema, bool]]:
        """Return (name, schema, required) for the fields of all alternatives, each followed by its nested fields."""
        fields = []
        alternatives = schema.get("oneOf", [schema])
        for name, inner in {
            name: inner for alternative in alternatives for name, inner in alternative["properties"].items()
        }.items():
            fields.append((prefix + name, inner, all(name in alternative["required"] for alternative in alternatives)))
            for branch in inner.get("anyOf", [inner]):
                item = branch.get("items", branch)
                nested = self._schemas.get(item.get("$ref", "").rpartition("/")[2], {})
                if "properties" in nested:
                    fields += self._fields(nested, f"{prefix}{name}{'[]' if 'items' in branch else ''}.")
        return fields

    def searchable_hits(self) -> Iterator[tuple[DocsHit, str]]:
        """Yield each possible search result, with further text in which to search."""
        for id_, route in self._routes.items():
            fields = [row.name for struct in (route.body, route.answer) for row in self._rows(struct)]
            yield DocsHit("API", route.summary, route.name, f"/docs/api/{id_}"), " ".join(fields)
        listed = set[str]()
        for id_, route in self._routes.items():
            for title, rows in self._tables(route, self._operation(route)):
                for row in rows:
                    if title in REQUEST_TABLES and row.name not in listed:
                        listed.add(row.name)
                        about = f"{route.name}: {row.meaning}"
                        yield DocsHit("Field", row.name, about, f"/docs/api/{id_}#field-{row.name}"), ""
        for name in GUIDE_NAMES:
            guide = read_guide(name)
            yield DocsHit("Guide", guide.title, guide.about, f"/docs/guides/{name}"), guide.text
        for code, error in self._errors.items():
            hit = DocsHit("Error", code, error["meaning"], f"/docs/errors/{code}")
            yield hit, f"{error['status']} {error['fix']}"


def errors_markdown() -> str:
    lines = [
        "# Error codes",
        "",
        "For developers: every error code. Generated: `python -m heliograph.api.pages > docs/errors.md`.",
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
    env = create_environment("heliograph.api")
    env.filters |= {
        "prose": code_marks_to_html,
        "soft": soft_wrap,
        "operation_id": operation_id,
        "marked": highlight_words,
    }
    return env


def code_marks_to_html(text: str) -> Markup:
    """Return a text as HTML, with what is in backticks or single quotes converted to <code>."""
    parts = re.split(r"`([^`]+)`|(?<!\w)'([^']+)'(?!\w)", text)
    codes = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return escape(parts[0]) + Markup("").join(
        Markup("<code>{}</code>{}").format(soft_wrap(backticked or quoted), after)
        for backticked, quoted, after in codes
    )


def highlight_words(html: Markup, query: str) -> Markup:
    """Mark the words of a query in the text of HTML."""
    words = re.compile("|".join(map(re.escape, query.split())) or r"(?!)", re.I)
    parts = re.split(r"(<[^>]*>|&[#\w]+;)", html)
    parts[::2] = [words.sub(lambda match: f"<mark>{match[0]}</mark>", part) for part in parts[::2]]
    return Markup("".join(parts))


def _by_kind(hits: list[DocsHit]) -> dict[str, list[DocsHit]]:
    groups: dict[str, list[DocsHit]] = {}
    for hit in hits:
        groups.setdefault(KIND_TITLES[hit.kind], []).append(hit)
    return groups


def _with_section(hit: DocsHit, text: str, terms: list[str]) -> DocsHit:
    """Return a hit that leads to the guide's first section with all words, with an excerpt; code is ignored."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for section in re.split(r"^(?=##+ )", text, flags=re.M):
        if _contains_all(terms, section):
            heading, _, body = section.partition("\n") if section.startswith("##") else ("", "", section)
            fragment = f"#{anchor(re.sub(r'[`*]', '', heading.lstrip('# ')))}" if heading else ""
            body = re.sub(r"^\|.*\|\n\|[-| :]+\|\n", "", body, flags=re.M)  # headers of tables
            body = re.sub(r"^\| *(.*?) *\|$", _table_row_as_text, body, flags=re.M)
            prose_text = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`|]|-{3,}", r"\1", body).split())
            earliest_start = max(0, prose_text.lower().find(terms[0]) - EXCERPT_CHARS // 3)
            start = prose_text.find(" ", earliest_start) + 1 if earliest_start else 0
            excerpt = textwrap.shorten(prose_text[start : start + 2 * EXCERPT_CHARS], EXCERPT_CHARS, placeholder=" …")
            return replace(hit, url=hit.url + fragment, excerpt=f"{'… ' if start else ''}{excerpt}")
    return hit


def _table_row_as_text(row: re.Match[str]) -> str:
    first, *others = re.split(r" *(?<!\\)\| *", row[1])
    text = f"{first}: {', '.join(filter(None, others))}"
    return text if text.endswith((".", ":", "!")) else f"{text}."


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _contains_all(terms: list[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in terms)


def _error_codes(route: Route) -> set[str]:
    return {refusal.code for refusals in refusals_of(route).values() for refusal in refusals}


def _errors_of(route: Route, *, shared: bool) -> Iterator[tuple[int, str, str]]:
    """Yield (status, code, meaning) for the route's errors: those of all routes (`shared`), or the others."""
    for status, refusals in refusals_of(route).items():
        for refusal in refusals:
            if (refusal in (*KEY_ERRORS, *COMMON_ERRORS)) == shared:
                yield status, refusal.code, refusal.meaning()


def _parameter_row(parameter: Schema) -> FieldRow:
    schema = parameter["schema"]
    return FieldRow(
        name=parameter["name"],
        type=_type_text(schema),
        needed=parameter.get("required", False),
        **_split_description(parameter["description"], *_limit_sentences(schema)),
    )


def _type_text(schema: Schema, *, null: bool = True) -> str:
    if "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if null or branch != NULL]
        return " or ".join(filter(None, (_type_text(branch) for branch in branches))) or "any"
    kind = schema.get("type", "object" if "$ref" in schema else "string" if "enum" in schema else "")
    if isinstance(kind, list):
        return " or ".join(variant for variant in kind if null or variant != "null")
    items = schema.get("items", {})
    if kind == "array":
        return f"list of {_type_text(items)}s" if items else "list"
    return str(kind or "any")


def _limit_sentences(schema: Schema) -> Iterator[str]:
    """Yield a sentence about each limit of a field."""
    for variant in schema.get("anyOf", [schema]):
        items = variant.get("items", {})
        if "maxLength" in variant:
            minimum = variant.get("minLength")
            yield f"{f'{minimum} to' if minimum else 'At most'} {variant['maxLength']} characters."
        if "maxItems" in variant:
            yield f"At most {variant['maxItems']}."
        if "minimum" in variant and "maximum" in variant:
            yield f"{variant['minimum']} to {variant['maximum']}."
        if "default" in variant:
            yield f"Default: `{variant['default']}`."
        if variant.get("format") == "date-time":
            yield "ISO 8601."
        if values := variant.get("enum", items.get("enum", [])):
            yield f"One of {', '.join(f'`{value}`' for value in values)}."


def _split_by_importance(rows: list[FieldRow]) -> tuple[list[FieldRow], list[FieldRow]]:
    """Return required and important rows in display order, and the optional rows."""
    order = [*(row.name for row in rows if row.needed and row.name == row.root), *IMPORTANT_FIELDS]
    important = sorted((row for row in rows if row.root in order), key=lambda row: order.index(row.root))
    return important, [row for row in rows if row.root not in order]


def _split_description(*parts: str) -> dict[str, str]:
    """Join sentences, omitting limits that are already mentioned; return the first sentence and the rest."""
    description = ""
    for part in parts:
        number = re.search(r"\d+(?=\W|$)", part.removeprefix("ISO 8601"))
        if part not in description and not (description and number and number[0] in description):
            description = f"{description} {part}".strip()
    meaning, more = re.fullmatch(r"(.*?[.](?=\s|$)|.*)\s*(.*)", description, re.S).groups()  # type: ignore[union-attr]
    return {"meaning": meaning, "more": more}


if __name__ == "__main__":
    print(errors_markdown(), end="")
