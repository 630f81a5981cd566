"""The docs as HTML pages that need no script and nothing from elsewhere, and the error list as Markdown.

`python -m heliograph.api.pages > docs/errors.md` writes the Markdown.
"""

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from heliograph.api.errors import error_list
from heliograph.api.openapi import operation_id, refusals_of, tag
from heliograph.api.route import Route
from heliograph.rules.field_docs import Schema

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --paper: #fff; --soft: #f3f4f6; --line: #d5d8de;
  --link: #0b57d0; --dim: #565c66 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --paper: #16181c; --soft: #22252b; --line: #3a3e47; --link: #8ab4f8;
    --dim: #a5abb6 }
}
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--paper); font: 1rem/1.55 system-ui, sans-serif }
a { color: var(--link) }
a:focus-visible, pre:focus-visible { outline: 3px solid var(--link); outline-offset: 2px }
.skip { position: absolute; left: -99rem }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .5rem }
header, main, footer, nav { padding: 0 1.5rem }
main { max-width: 60rem }
nav ul { list-style: none; padding: 0 }
nav ul ul { padding-left: 1rem }
code, pre { font: .9em/1.5 ui-monospace, monospace }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; border-radius: .3rem }
code { overflow-wrap: anywhere }
section { border-top: 1px solid var(--line); margin-top: 2rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0 }
tbody tr { border-top: 1px solid var(--line) }
thead th { color: var(--dim); font-weight: 500 }
dt { color: var(--dim) }
dd { margin: 0 0 .5rem }
@media (min-width: 70rem) {
  body { display: grid; grid-template-columns: 18rem 1fr }
  header, footer { grid-column: 1 / -1 }
  nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; font-size: .9rem }
}
"""


def docs_page(routes: list[Route], document: dict[str, Any]) -> str:
    """Every route, with its fields and codes as the OpenAPI document has them."""
    groups: dict[str, list[Route]] = {}
    for route in routes:
        groups.setdefault(tag(route), []).append(route)
    contents = "".join(
        f"<li>{escape(name)}<ul>{''.join(_contents_entry(route) for route in found)}</ul></li>"
        for name, found in groups.items()
    )
    sections = "".join(
        f"<h2>{escape(name)}</h2>{''.join(_endpoint(route, document) for route in found)}"
        for name, found in groups.items()
    )
    introduction = _introduction(document["servers"][0]["url"])
    return _page("Heliograph API", f"<ul>{contents}</ul>", introduction + sections)


def errors_page() -> str:
    errors = error_list()
    contents = "".join(f'<li><a href="#{_id(error)}">{_id(error)}</a></li>' for error in errors)
    sections = "".join(
        f'<section id="{_id(error)}" aria-labelledby="{_id(error)}-title">'
        f'<h2 id="{_id(error)}-title"><code>{_id(error)}</code></h2>'
        f"<p>{_prose(error['meaning'])}</p><dl><dt>Status</dt><dd>{error['status']}</dd>"
        f"<dt>Type</dt><dd><code>{escape(error['type'])}</code></dd>"
        f"<dt>What to do</dt><dd>{_prose(error['fix'])}</dd></dl></section>"
        for error in errors
    )
    words = '<p>Every error code of the <a href="/docs">Heliograph API</a>, its meaning and its fix.</p>'
    return _page("Heliograph error codes", f"<ul>{contents}</ul>", words + sections)


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


def _page(title: str, contents: str, main: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><header><a class="skip" href="#main">Skip to the content</a><h1>{escape(title)}</h1></header>'
        f'<nav aria-label="Contents">{contents}</nav><main id="main">{main}</main>'
        '<footer><p><a href="/docs">API</a> · <a href="/docs/errors">Error codes</a> · '
        '<a href="/openapi.json">OpenAPI document</a></p></footer></body></html>\n'
    )


def _introduction(base_url: str) -> str:
    url = escape(base_url)
    return (
        "<h2>What it is</h2><p>Heliograph sends transactional email, SMS and WhatsApp messages and one-time "
        f"codes. Requests and answers are JSON in UTF-8; the API is at <code>{url}</code>. A send is "
        "answered with 202 once it is stored durably; read its later states with GET. Add "
        "<code>?dry_run=true</code> to a send to see what would happen.</p>"
        "<h2>Authentication</h2><p>Send your API key with every request as "
        "<code>Authorization: Bearer hk_…</code>. A key has the scope <code>send</code>, <code>manage</code> "
        "or both; each endpoint says which it needs. The examples below expect the key in the shell's "
        "variable <code>HELIOGRAPH_KEY</code>.</p>"
        "<h2>Errors</h2><p>An error has a status and a code, and says what to do about it: "
        '<a href="/docs/errors">all codes</a>. Every answer carries <code>X-Request-Id</code>. With '
        "<code>Accept: application/problem+json</code> errors are answered as RFC 9457.</p>"
    )


def _contents_entry(route: Route) -> str:
    return f'<li><a href="#{operation_id(route)}">{escape(route.summary)}</a></li>'


def _endpoint(route: Route, document: dict[str, Any]) -> str:
    id_ = operation_id(route)
    operation = document["paths"][route.path][route.method.lower()]
    schemas = document["components"]["schemas"]
    return (
        f'<section id="{id_}" aria-labelledby="{id_}-title"><h3 id="{id_}-title">{escape(route.summary)}</h3>'
        f"<p><code>{route.method} {escape(route.path)}</code></p>"
        f"<p>{_needs(route)}</p>"
        f"{_parameter_table(operation['parameters'])}"
        f"{_field_table('Request fields', route.body, schemas, required=True)}"
        f"{_field_table(f'Answer fields ({route.status})', route.answer, schemas)}"
        f"{_field_table('Answer fields of a dry run (200)', route.preview, schemas)}"
        f"{_error_table(route)}"
        f'<pre tabindex="0" role="region" aria-label="Example: {escape(route.summary)}"><code>'
        f"{escape(_curl(route, document['servers'][0]['url'], operation))}</code></pre></section>"
    )


def _needs(route: Route) -> str:
    if route.scopes is None:
        return "Needs no key."
    return f"Needs a key with the scope {' or '.join(f'<code>{scope}</code>' for scope in route.scopes)}."


def _parameter_table(parameters: list[Schema]) -> str:
    rows = [(_code(one["name"]), one["in"], _prose(one["description"] + _choices(one["schema"]))) for one in parameters]
    return _table("Parameters", ("Name", "Where", "Meaning"), rows)


def _field_table(caption: str, kind: Any, schemas: dict[str, Schema], *, required: bool = False) -> str:
    if kind is None:
        return ""
    rows = []
    for name, schema, needed in _fields(schemas[kind.__name__], schemas, ""):
        words = schema.get("description", "") + _choices(schema)
        rows.append((_code(name), escape(_type(schema)), *([_yes(needed)] if required else []), _prose(words)))
    heads = ("Field", "Type", "Required", "Meaning") if required else ("Field", "Type", "Meaning")
    return _table(caption, heads, rows)


def _fields(schema: Schema, schemas: dict[str, Schema], prefix: str) -> list[tuple[str, Schema, bool]]:
    """The fields of all its forms, each followed by those of the object, or list of objects, in it."""
    found = []
    forms = schema.get("oneOf", [schema])
    for name, inner in {name: inner for form in forms for name, inner in form["properties"].items()}.items():
        found.append((prefix + name, inner, all(name in form["required"] for form in forms)))
        for branch in inner.get("anyOf", [inner]):
            item = branch.get("items", branch)
            held = schemas.get(item.get("$ref", "").rpartition("/")[2], {})
            if "properties" in held:
                found += _fields(held, schemas, f"{prefix}{name}{'[]' if 'items' in branch else ''}.")
    return found


def _error_table(route: Route) -> str:
    rows = [
        (f'<a href="/docs/errors#{refusal.code}">{refusal.code}</a>', str(status), _prose(refusal.meaning()))
        for status, refusals in refusals_of(route).items()
        for refusal in refusals
    ]
    return _table("Errors", ("Code", "Status", "Meaning"), rows)


def _table(caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """`rows` are HTML already; the first cell of each names it."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    )
    top = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
    return f"<table>{top}<tbody>{body}</tbody></table>"


def _curl(route: Route, base_url: str, operation: Schema) -> str:
    path = route.path
    for one in operation["parameters"]:
        path = path.replace(f"{{{one['name']}}}", one.get("example", ""))
    parts = [f"curl {'' if route.method == 'GET' else f'-X {route.method} '}{base_url}{path}"]
    if route.scopes is not None:
        parts.append('-H "Authorization: Bearer $HELIOGRAPH_KEY"')
    if route.idempotent:
        parts.append("-H 'Idempotency-Key: order-1234'")
    if route.body is not None:
        example = operation["requestBody"]["content"]["application/json"].get("example", {})
        parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return " \\\n  ".join(parts)


def _type(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type, schema["anyOf"]))) or "any"
    kind = schema.get("type", "object" if "$ref" in schema else "string" if "enum" in schema else "")
    items = schema.get("items", {})
    return f"array of {_type(items)}s" if kind == "array" and items else str(kind)


def _choices(schema: Schema) -> str:
    values = [value for branch in schema.get("anyOf", [schema]) for value in branch.get("enum", [])]
    return f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""


def _id(error: dict[str, Any]) -> str:
    return escape(error["code"])


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _yes(needed: bool) -> str:
    return "yes" if needed else "no"


def _prose(text: str) -> str:
    """Escaped, with `code` in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


if __name__ == "__main__":
    print(errors_markdown(), end="")
