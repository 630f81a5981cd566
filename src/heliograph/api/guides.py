"""The guides of /docs: pages of docs/ as HTML, so that there is one source for the repository and the service."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup, escape

from heliograph.web.html import coloured

PACKED = Path(__file__).parent / "guides"  # where the wheel has them (pyproject.toml)
FOLDER = PACKED if PACKED.exists() else Path(__file__).parents[3] / "docs"

# Group → name of a guide (its file without .md) → what the lists say about it.
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
    text: str  # for the search


@cache
def read_guide(name: str) -> Guide:
    source = (FOLDER / f"{name}.md").read_text("utf-8")
    title, _, rest = source.removeprefix("# ").partition("\n")
    about = next(group[name] for group in GUIDES.values() if name in group)
    html, headings = to_html(rest)
    return Guide(name=name, title=title, about=about, html=html, headings=headings, text=rest)


def to_html(markdown: str) -> tuple[Markup, list[Heading]]:
    """Render CommonMark with tables. HTML in the source is shown, not obeyed."""
    from markdown_it import MarkdownIt  # takes a while to load, and only readers of the docs need it

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
    """Make an anchor as GitHub does, so that links work in both places."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(target: str) -> str | None:
    """Return where a link of docs/ leads here; None for what is not shown here."""
    if target in ELSEWHERE:
        return ELSEWHERE[target]
    file, hash_, part = target.partition("#")
    if not file or "://" in file:
        return target
    name = file.removesuffix(".md")
    return f"/docs/guides/{name}{hash_}{part}" if name in NAMES else ELSEWHERE.get(file)


def _with_links(tokens: list[Any]) -> list[Any]:
    """Links lead to pages of /docs; of those that lead nowhere here the words stay."""
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
    """Mark where code may break, after a separator, so that words stay whole."""
    return Markup(re.sub(r"([_./]|\[\])(?=\w)", r"\1<wbr>", str(escape(text))))


def _block(code: str) -> str:
    return f'<div class="copyable block"><pre tabindex="0"><code>{coloured(code.rstrip())}</code></pre></div>\n'
