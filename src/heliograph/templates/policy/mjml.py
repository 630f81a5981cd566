"""MJML support: compiles MJML to HTML when a template or layout is read; needs the extra heliograph[mjml]."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.domain.limits import HTML_MAX, IN_THREAD, PARSED
from heliograph.templates.policy.source import compiled

TAGS_MAX = 500  # limits nesting: the compiler is recursive, and a stack overflow would end the process
SPREAD_MAX = 4 * HTML_MAX  # maximum size of mj-attributes multiplied by tags, because they are written at every tag
_BEGIN = re.compile(r"\s*<mjml[\s>]", re.IGNORECASE)
_TAG = re.compile(r"<[^/!\s]")
_FOR_ALL = re.compile(r"(?is)<mj-(?:html-)?attributes\b.*?(?:</mj-(?:html-)?attributes|\Z)")
_PLACE = re.compile(r"position (\d+)")


def reading_cost(given: Any) -> int:
    """Return the cost of parsing the fields, in octets for `run_large`; MJML is always large because it is compiled."""
    texts = list(_texts(given))
    if any(_BEGIN.match(text) for text in texts):
        return IN_THREAD + 1
    return PARSED * sum(map(len, texts))


def _texts(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for value in given.values():
            yield from _texts(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _texts(value)


def read_html(given: str) -> str:
    """Compile MJML to HTML; other HTML is returned unchanged.

    Placeholders and blocks are text to the compiler and are kept.
    """
    if not _BEGIN.match(given):
        return given
    try:
        from mjml import mjml2html
    except ImportError:
        raise ValueError("it is MJML, which needs an extra: pip install 'heliograph[mjml]'") from None
    if len(given) > HTML_MAX:
        raise ValueError(f"it is MJML of {len(given):,} characters, {HTML_MAX:,} is the most")
    tags = len(_TAG.findall(given))
    if tags > TAGS_MAX:
        raise ValueError(f"it is MJML of more than {TAGS_MAX} tags: shorten it, or compile it yourself")
    if tags * sum(map(len, _FOR_ALL.findall(given))) > SPREAD_MAX:
        raise ValueError("its mj-attributes are too long for so many tags: shorten them")
    if faults := compiled.__wrapped__(given, False).faults:  # bypass the cache: MJML is never rendered
        raise ValueError(f"line {_line(given[: faults[0].at])}: {faults[0].text}")
    try:
        html: str = mjml2html(given, fonts={})  # no third-party fonts that readers would download
    except ValueError as error:
        octet = _PLACE.search(str(error))
        where = f"line {_line(given.encode()[: int(octet[1])].decode(errors='replace'))}: " if octet else ""
        raise ValueError(f"{where}it cannot be compiled as MJML: {error}") from None
    if len(html) > HTML_MAX:
        raise ValueError(f"it is MJML that becomes {len(html):,} characters of HTML, {HTML_MAX:,} is the most")
    return html


def _line(before: str) -> int:
    return before.count("\n") + 1
