"""The guides of /docs: renders the Markdown pages of docs/ as HTML."""

import re
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup, escape

from heliograph.web.html import colour_values

PACKAGED_FOLDER = Path(__file__).parent / "guides"  # where the wheel has a copy of docs/ (pyproject.toml)
FOLDER = PACKAGED_FOLDER if PACKAGED_FOLDER.exists() else Path(__file__).parents[3] / "docs"

# Group → guide (file name without .md) → description in lists.
GUIDES: dict[str, dict[str, str]] = {
    "Start": {
        "start": "From the first message on each channel to the first real email.",
        "accounts": "Who may do what, how people sign in, and what waits for approval.",
        "comparison": "What other services do that this one does not, and the other way round.",
    },
    "Send": {
        "templates": "Variables, lists, conditions, formats, languages and layouts.",
        "verify": "One-time codes: texts, senders and fraud protection.",
        "smtp": "Send from software that only supports SMTP.",
        "domains": "DNS records of sending domains and how they are checked.",
        "unsubscribe": "Categories of emails, one-click unsubscribe links and the list.",
        "idempotency": "Retry requests without sending twice.",
        "rate-limits": "Request limits per key, and what to do when you reach one.",
        "pagination": "Read long lists page by page.",
        "restricted-keys": "Keys for agents, no-code tools and contractors: restrictions, limits and approval.",
        "mcp": "Let an agent send and look up messages within the limits of its key.",
    },
    "Receive": {
        "webhooks": "Receive events, verify signatures, replay missed events.",
    },
    "Test": {
        "testing": "Sandbox, test inbox, magic recipients, simulated failures and a clock that you can advance.",
    },
    "Clients": {
        "clients": "The packages for Python and TypeScript.",
    },
    "Operate": {
        "deploy": "Install on one machine, in containers or on Kubernetes.",
        "carriers": "Connect SMS and WhatsApp carriers, and mail providers.",
        "providers": "Limits per mailbox provider, source addresses and warm-up for direct delivery.",
        "operations": "Start, back up, erase, and what to do when something happens.",
        "high-availability": "Several machines, and a database that fails over.",
        "scale": "From one process to several databases: what each step gives and costs.",
        "platforms": "Create and manage your customers' teams, and show them some of the dashboard.",
        "upgrading": "What is promised, how to upgrade, and notes for each version.",
        "threats": "Threat model: what the service protects against and what is up to you.",
        "known-issues": "Known limitations and bugs.",
    },
    "Move": {
        "moving": "A checklist for moving from another service.",
    },
    "Reference": {
        "configuration": "Settings and the setup file.",
        "states": "What each message status means, and how statuses change.",
        "compat": "What works of the APIs of Resend, Twilio, Postmark and Postal: calls, errors and webhooks.",
        "monitoring": "Metrics, log lines, traces and alerts.",
        "cli": "The API from a shell, JSON output and shell completion.",
    },
}
GUIDE_NAMES = [name for group in GUIDES.values() for name in group]
# Guides of earlier versions → the guide that has their content now.
MOVED_GUIDES = {"dashboard": "accounts", "glossary": "start", "test-recipients": "testing", "test-clock": "testing"}
PICTURES = ("template-editor.png",)  # the pictures in guides, from docs/screens
LONG_LINE_CHARS = 80  # longer JSON is indented
# Language of a code block in the Markdown → its label above the code
CODE_LABELS = {
    "sh": "Shell",
    "json": "JSON",
    "python": "Python",
    "js": "JavaScript",
    "go": "Go",
    "php": "PHP",
    "sql": "SQL",
    "toml": "TOML",
    "vector": "Test vector",
}
COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
URL_BY_LINK = {
    "internals/contract.md#contract-13": "/docs/guides/testing#magic-recipients",
    "errors.md": "/docs/errors",
}


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
    text: str  # text in which Docs.search searches


@cache
def read_guide(name: str) -> Guide:
    source = (FOLDER / f"{name}.md").read_text("utf-8")
    title, _, rest = source.removeprefix("# ").partition("\n")
    about = next(group[name] for group in GUIDES.values() if name in group)
    html, headings = to_html(rest)
    return Guide(name=name, title=title, about=about, html=html, headings=headings, text=COMMENT.sub("", rest))


def to_html(markdown: str) -> tuple[Markup, list[Heading]]:
    """Render CommonMark with tables; return the HTML and its headings. Escapes HTML, and removes comments."""
    from markdown_it import MarkdownIt  # imported here because it is slow to load and only docs pages need it

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown = COMMENT.sub("", markdown)
    renderer: Any = parser.renderer
    rules = renderer.rules
    rules["fence"] = lambda tokens, index, *_: _code_block(tokens[index], is_response=_is_response(tokens, index))
    rules["table_open"] = lambda *_: '<div class="scroll" tabindex="0"><table>'
    rules["table_close"] = lambda *_: "</table></div>"
    rules["code_inline"] = lambda tokens, index, *_: f"<code>{soft_wrap(tokens[index].content)}</code>"
    tokens = parser.parse(markdown)
    _label_cells(tokens)
    headings = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = re.sub(r"[`*]", "", inline.content)
            headings.append(Heading(int(opening.tag[1]), anchor(text), text))
            opening.attrs["id"] = headings[-1].id
        opening.children = _rewrite_links(opening.children) if opening.children else opening.children
    return Markup(renderer.render(tokens, parser.options, {})), headings


def anchor(heading: str) -> str:
    """Return a heading's anchor, the same as on GitHub, so that links work in both places."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def guide_url(target: str) -> str | None:
    """Return this service's URL for a link in docs/; None if the page is not served."""
    if target in URL_BY_LINK:
        return URL_BY_LINK[target]
    if target.removeprefix("screens/") in PICTURES:
        return f"/docs/{target}"
    file, hash_, fragment = target.partition("#")
    if not file or "://" in file:
        return target
    name = file.removesuffix(".md")
    return f"/docs/guides/{name}{hash_}{fragment}" if name in GUIDE_NAMES else URL_BY_LINK.get(file)


def _label_cells(tokens: list[Any]) -> None:
    """Add the header of its column to each cell of a table: on phones, a row is shown as a list of labelled cells."""
    titles, column = list[str](), 0
    for opening, inline in pairwise(tokens):
        if opening.type == "table_open":
            titles = []
        elif opening.type == "tr_open":
            column = 0
        elif opening.type == "th_open":
            titles.append(re.sub(r"[`*\[]|\]\(.*?\)", "", inline.content))
        elif opening.type == "td_open":
            if column and titles[column]:
                opening.attrs["data-label"] = titles[column]
            column += 1


def _rewrite_links(tokens: list[Any]) -> list[Any]:
    """Rewrite a guide's links: give links to served pages and pictures their URL, and replace others by their text."""
    result, is_unserved = [], False
    for token in tokens:
        if token.type == "link_open":
            target = guide_url(str(token.attrs["href"]))
            token.attrs["href"] = target
            is_unserved = target is None
        elif token.type == "image":
            token.attrs["src"] = guide_url(str(token.attrs["src"]))
        if not (is_unserved and token.type.startswith("link_")):
            result.append(token)
        if token.type == "link_close":
            is_unserved = False
    return result


def soft_wrap(text: str) -> Markup:
    """HTML-escape `text`, which is code, and allow line breaks only after separators, so that words are not split."""
    return Markup(re.sub(r"([_./]|\[\])(?=\w)", r"\1<wbr>", str(escape(text))))


def _is_response(tokens: list[Any], index: int) -> bool:
    """Return whether a code block is JSON that directly follows a request."""
    return index > 0 and tokens[index].info == "json" and tokens[index - 1].info == "sh"


def _code_block(token: Any, *, is_response: bool) -> str:
    """Render a code block. JSON with long lines is indented; code that readers enter gets a Copy button."""
    code = token.content.rstrip()
    if token.info == "json" and max(map(len, code.splitlines())) > LONG_LINE_CHARS:
        with suppress(msgspec.DecodeError):
            code = msgspec.json.format(code, indent=2)
    label = "Response" if is_response else CODE_LABELS.get(token.info, "")
    title = f'<p class="label">{label}</p>' if label else ""
    block = f'{title}<pre tabindex="0"><code>{colour_values(code)}</code></pre>'
    return f'<div class="code-block{"" if is_response else " copyable block"}">{block}</div>\n'
