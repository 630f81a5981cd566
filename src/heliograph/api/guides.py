"""The guides of /docs: renders the Markdown pages of docs/ as HTML."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup, escape

from heliograph.web.html import coloured

PACKED = Path(__file__).parent / "guides"  # location of docs/ in the wheel (pyproject.toml)
FOLDER = PACKED if PACKED.exists() else Path(__file__).parents[3] / "docs"

# Group → guide (file name without .md) → description in lists.
GUIDES: dict[str, dict[str, str]] = {
    "Start": {
        "dashboard": "People, roles, pages.",
        "test-recipients": "Addresses and numbers that deliver, bounce or fail on purpose.",
        "test-clock": "Move a sandbox team's own time: days of retries, schedules and expiries pass in seconds.",
        "glossary": "The terms used in the product and the docs.",
    },
    "Send": {
        "templates": "Lists, conditions, formats, languages and layouts; what is refused.",
        "verify": "One-time codes: the text, who sends it, the guard against fraud.",
        "webhooks": "Receive events, check their signature, replay what you missed.",
        "states": "What each status of a message means, and which follows which.",
        "idempotency": "Retry a send without sending twice.",
        "pagination": "Read long lists page by page.",
        "rate-limits": "How many requests a key may make, and what to do at the limit.",
        "compat": "Programs written for Resend, Twilio, Postmark or Postal work unchanged: calls, refusals, webhooks.",
        "smtp": "Send from programs that speak only SMTP.",
        "domains": "DNS records of a sending domain, and how they are checked.",
    },
    "Operate": {
        "deploy": "Install it: one machine, containers, Kubernetes.",
        "configuration": "Settings and the setup file.",
        "carriers": "Connect SMS and WhatsApp carriers.",
        "operations": "Start, back up, watch, upgrade.",
        "threats": "Whom the service defends against, where, and what it leaves to you.",
        "known-issues": "What does not work, or not yet as you may expect.",
    },
    "Extend": {
        "adding-a-carrier": "One file and one line: a carrier of your own.",
    },
}
NAMES = [name for group in GUIDES.values() for name in group]
ELSEWHERE = {"contract.md#contract-13": "/docs/guides/test-recipients", "errors.md": "/docs/errors"}


class Heading(msgspec.Struct, frozen=True):
    level: int
    id: str
    text: str


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    about: str
    html: Markup
    headings: list[Heading]
    text: str  # searched by Docs.search


@cache
def read_guide(name: str) -> Guide:
    source = (FOLDER / f"{name}.md").read_text("utf-8")
    title, _, rest = source.removeprefix("# ").partition("\n")
    about = next(group[name] for group in GUIDES.values() if name in group)
    html, headings = to_html(rest)
    return Guide(name=name, title=title, about=about, html=html, headings=headings, text=rest)


def to_html(markdown: str) -> tuple[Markup, list[Heading]]:
    """Render CommonMark with tables; return HTML and headings. HTML in the source is escaped."""
    from markdown_it import MarkdownIt  # imported here because it is slow to load and only docs pages need it

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer: Any = parser.renderer
    rules = renderer.rules
    rules["fence"] = lambda tokens, at, *_: _block(tokens[at].content)
    rules["table_open"] = lambda *_: '<div class="scroll" tabindex="0"><table>'
    rules["table_close"] = lambda *_: "</table></div>"
    rules["code_inline"] = lambda tokens, at, *_: f"<code>{soft(tokens[at].content)}</code>"
    tokens = parser.parse(markdown)
    headings = []
    for before, inline in pairwise(tokens):
        if before.type == "heading_open":
            text = re.sub(r"[`*]", "", inline.content)
            headings.append(Heading(int(before.tag[1]), anchor(text), text))
            before.attrs["id"] = headings[-1].id
        before.children = _with_links(before.children) if before.children else before.children
    return Markup(renderer.render(tokens, parser.options, {})), headings


def anchor(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading, so that links work here and on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(target: str) -> str | None:
    """Map a link target of docs/ to its URL in this service; None if the page is not served."""
    if target in ELSEWHERE:
        return ELSEWHERE[target]
    file, hash_, part = target.partition("#")
    if not file or "://" in file:
        return target
    name = file.removesuffix(".md")
    return f"/docs/guides/{name}{hash_}{part}" if name in NAMES else ELSEWHERE.get(file)


def _with_links(tokens: list[Any]) -> list[Any]:
    """Rewrite links to /docs URLs; replace links to pages that are not served by their text."""
    kept, lost = [], False
    for token in tokens:
        if token.type == "link_open":
            target = link(str(token.attrs["href"]))
            token.attrs["href"] = target
            lost = target is None
        if not (lost and token.type.startswith("link_")):
            kept.append(token)
        if token.type == "link_close":
            lost = False
    return kept


def soft(text: str) -> Markup:
    """Escape code and allow line breaks only after separators, so that words are not split."""
    return Markup(re.sub(r"([_./]|\[\])(?=\w)", r"\1<wbr>", str(escape(text))))


def _block(code: str) -> str:
    return f'<div class="copyable block"><pre tabindex="0"><code>{coloured(code.rstrip())}</code></pre></div>\n'
