"""MJML support: compiles MJML to HTML when a template or layout is read; needs the extra heliograph[mjml]."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.domain.limits import HTML_MAX, PARSE_IN_THREAD_MIN, SCAN_COST_FACTOR
from heliograph.templates.policy.source import compile_source

MJML_TAGS_MAX = 500  # limits nesting: the compiler is recursive, and a stack overflow would end the process
# Maximum of size of mj-attributes × number of tags, because the compiler repeats the attributes at every tag
EXPANDED_ATTRIBUTES_MAX = 4 * HTML_MAX
_MJML_START = re.compile(r"\s*<mjml[\s>]", re.IGNORECASE)
_OPENING_TAG = re.compile(r"<[^/!\s]")
_SHARED_ATTRIBUTES = re.compile(r"(?is)<mj-(?:html-)?attributes\b.*?(?:</mj-(?:html-)?attributes|\Z)")
_ERROR_POSITION = re.compile(r"position (\d+)")


def parsing_cost(fields: Any) -> int:
    """Return the size to pass to `run_large`: for MJML, whose compilation is slow, always large enough for a thread."""
    texts = list(_iterate_texts(fields))
    if any(_MJML_START.match(text) for text in texts):
        return PARSE_IN_THREAD_MIN + 1
    return SCAN_COST_FACTOR * sum(map(len, texts))


def _iterate_texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _iterate_texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _iterate_texts(value)


def compile_mjml(source: str) -> str:
    """Compile MJML to HTML, with placeholders and blocks unchanged; return a source that is not MJML unchanged."""
    if not _MJML_START.match(source):
        return source
    try:
        from mjml import mjml2html
    except ImportError:
        raise ValueError("it is MJML, which needs an extra: pip install 'heliograph[mjml]'") from None
    if len(source) > HTML_MAX:
        raise ValueError(f"it is MJML of {len(source):,} characters, the maximum is {HTML_MAX:,}")
    tags = len(_OPENING_TAG.findall(source))
    if tags > MJML_TAGS_MAX:
        raise ValueError(f"it is MJML of more than {MJML_TAGS_MAX} tags: shorten it, or compile it yourself")
    if tags * sum(map(len, _SHARED_ATTRIBUTES.findall(source))) > EXPANDED_ATTRIBUTES_MAX:
        raise ValueError("its mj-attributes are too long for the number of tags: shorten them")
    if faults := compile_source.__wrapped__(source, False).faults:  # bypass the cache: MJML is never rendered
        line = source.count("\n", 0, faults[0].offset) + 1
        raise ValueError(f"line {line}: {faults[0].text}")
    try:
        html: str = mjml2html(source, fonts={})  # no third-party fonts that readers would download
    except ValueError as error:
        position = _ERROR_POSITION.search(str(error))
        line = source.encode().count(b"\n", 0, int(position[1])) + 1 if position else 0
        where = f"line {line}: " if line else ""
        raise ValueError(f"{where}it cannot be compiled as MJML: {error}") from None
    if len(html) > HTML_MAX:
        raise ValueError(f"it is MJML that becomes {len(html):,} characters of HTML, the maximum is {HTML_MAX:,}")
    return html
