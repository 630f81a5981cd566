"""Template linter: warnings that do not prevent saving, each with its part and line (contract 18)."""

import re
from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import chain, islice

import msgspec

from heliograph.domain.phones.gsm import outside, segment
from heliograph.domain.setup.records import Layout, Template
from heliograph.templates.policy.check import (
    TemplateProblem,
    check_layout,
    check_template,
    sources_of,
    unknown_brand_variables,
)
from heliograph.templates.policy.examples import example_values
from heliograph.templates.policy.formats import is_timezone
from heliograph.templates.policy.locales import in_locale
from heliograph.templates.policy.mail_clients import GMAIL_CLIPS, first_findings
from heliograph.templates.policy.markup import MASK, Tag, tags
from heliograph.templates.policy.placeholders import TOKEN
from heliograph.templates.policy.render import octets, render_body
from heliograph.templates.policy.source import MAILBOX, read_mailbox

WARNINGS_MAX = 40  # maximum warnings of one kind per part
TAGS_MAX = 20_000  # maximum tags examined per part
SEARCHED = 100  # open tags searched for the start of an end tag
FOREIGN_MAX = 3  # warn up to this many characters outside the GSM alphabet; more indicate another script
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_ADDRESSES = frozenset({"href", "src", "action", "background", "poster"})
_INSECURE = re.compile(r"[\x00-\x20]*(?:http|ftp|ws):", re.IGNORECASE)
_LEFT_OUT = re.compile(rf"{MAILBOX}(?<!{MASK}){MASK}++(?![A-Za-z0-9.-])", re.IGNORECASE | re.DOTALL)
_INSECURE_LINK = re.compile(r"(?<![a-z])(?:http|ftp)://[^\s<>\"']{0,60}", re.IGNORECASE)

Found = Iterator[tuple[str, int, str]]  # (code, offset in the source, message)


class _Html(msgspec.Struct, frozen=True):
    source: str
    masked: str  # source with placeholders blanked
    tags: list[Tag]


def problems_of(template: Template, layout: Layout | None = None) -> list[TemplateProblem]:
    """Return errors, which prevent saving, followed by warnings, which do not."""
    errors = check_template(template)
    return errors if any(one.code in ("too_long", "too_many") for one in errors) else errors + lint(template, layout)


def problems_of_layout(layout: Layout) -> list[TemplateProblem]:
    errors = check_layout(layout)
    if any(one.code == "too_long" for one in errors):
        return errors
    warnings = [one for part, source in sources_of(layout).items() for one in _part(part, source, None)]
    return errors + [one for one in warnings if one.code != "unknown_variable"]  # in a layout it is already an error


def lint(template: Template, layout: Layout | None = None) -> list[TemplateProblem]:
    """Return the warnings for the parts of every language; the template's own language first."""
    problems = []
    for tag in (None, *template.locales):
        sources = sources_of(template if tag is None else template.locales[tag])
        if template.channel == "email" and sources.get("html") and not sources.get("text"):
            told = "there is no text part: some people read mail as text, and some filters distrust mail without one"
            problems.append(TemplateProblem(level="warning", code="no_text_part", part="text", locale=tag, text=told))
        for part, source in sources.items():
            problems += _part(part, source, tag, octets(layout.html) if layout else 0)
        if template.channel == "sms" and sources.get("body") and is_timezone(template.timezone):
            problems += _segments(template, tag)
    return problems


def _part(part: str, source: str, locale: str | None, more: int = 0) -> Iterator[TemplateProblem]:
    line = _lines(source)
    found = _found_in_html(source) if part == "html" else islice(_insecure_texts(source), WARNINGS_MAX)
    for code, at, text in chain(islice(unknown_brand_variables(source), WARNINGS_MAX), found):
        yield TemplateProblem(level="warning", code=code, part=part, locale=locale, line=line(at), text=text)
    if part == "html" and (size := octets(source) + more) > GMAIL_CLIPS:
        told = f"it has {size:,} bytes: Gmail shows the first {GMAIL_CLIPS:,} and a link to the rest"
        yield TemplateProblem(level="warning", code="html_too_long", part=part, locale=locale, text=told)


def _lines(source: str) -> Callable[[int], int]:
    starts = [found.end() for found in re.finditer("\n", source)]
    return lambda at: bisect(starts, at) + 1


def _found_in_html(source: str) -> Found:
    masked = TOKEN.sub(lambda token: MASK * len(token[0]), source)
    html = _Html(source, masked, list(islice(tags(masked, len(masked)), TAGS_MAX + 1)))
    is_whole = len(html.tags) <= TAGS_MAX
    if not is_whole:
        told = f"it has more than {TAGS_MAX:,} tags: those after them are not checked"
        yield "html_too_long", html.tags.pop().start, told
    # Unclosed tags are reported only if all tags were read.
    for find in (*[_unclosed_tags] * is_whole, _images, _insecure_links, _features):
        yield from islice(find(html), WARNINGS_MAX)


def _unclosed_tags(html: _Html) -> Found:
    """Yield a warning for each unclosed tag. At `{{else}}` the open tags are those at its `{{#if}}`."""
    stack: _Stack = None
    blocks: list[_Stack] = []
    tokens = (token for token in TOKEN.finditer(html.source) if token[5] or token[8] or token[9])
    token = next(tokens, None)
    for tag in html.tags:
        while token and token.start() < tag.start:
            if token[5]:
                blocks.append(stack)
            elif blocks:
                stack = blocks[-1] if token[8] else stack
                blocks[-1:] = [] if token[9] else blocks[-1:]
            token = next(tokens, None)
        if not tag.name:
            continue
        inside = tag.attributes[-1].end() if tag.attributes else tag.name_end
        if not html.masked[inside : tag.end].endswith(">"):
            yield "unclosed_tag", tag.start, f"<{_shown(tag)} has no >"
        elif not tag.opens(html.masked):
            stack, unclosed = _closed(stack, tag.name)
            yield from map(_unclosed, unclosed)
        elif tag.name not in _VOID and html.masked[tag.end - 2] != "/":
            stack = (tag, stack)
    yield from map(_unclosed, reversed([tag for tag, _ in _walk(stack)]))


_Stack = tuple[Tag, "_Stack"] | None


def _walk(stack: _Stack) -> Iterator[tuple[Tag, _Stack]]:
    while stack:
        yield stack
        stack = stack[1]


def _closed(stack: _Stack, name: str) -> tuple[_Stack, list[Tag]]:
    """Return the tags still open after an end tag, and the tags inside that it leaves unclosed."""
    unclosed: list[Tag] = []
    for tag, below in islice(_walk(stack), SEARCHED):
        if tag.name == name:
            return below, unclosed[::-1]
        unclosed.append(tag)
    return stack, []


def _unclosed(tag: Tag) -> tuple[str, int, str]:
    return "unclosed_tag", tag.start, f"<{_shown(tag)}> is not closed: add </{_shown(tag)}>"


def _shown(tag: Tag) -> str:
    return tag.name[:40].replace(MASK, "…")


def _images(html: _Html) -> Found:
    for tag in html.tags:
        if tag.name == "img" and not any(attribute[1].lower() == "alt" for attribute in tag.attributes):
            yield "image_without_alt", tag.start, 'a picture has no alt text: say what it shows, or write alt=""'


def _insecure_links(html: _Html) -> Found:
    for tag in html.tags:
        for attribute in tag.attributes:
            if attribute[1].lower() in _ADDRESSES and attribute[2] and _INSECURE.match(attribute[2].lstrip("\"'")):
                yield (
                    "insecure_link",
                    attribute.start(1),
                    _insecure(html.source[slice(*attribute.span(2))].strip("\"'")),
                )
            elif attribute[2] and _LEFT_OUT.match(read_mailbox(attribute[2].lstrip("\"'"))):
                yield "insecure_link", attribute.start(1), "a value behind the host of a mailto is left out"


def _insecure_texts(source: str) -> Found:
    for found in _INSECURE_LINK.finditer(source):
        yield "insecure_link", found.start(), _insecure(found[0])


def _insecure(address: str) -> str:
    return f"{address[:60]} is not https: what is sent over it can be read and changed on its way"


def _features(html: _Html) -> Found:
    for feature, at in first_findings(html.source):
        yield "unsupported_feature", at, f"fails in {', '.join(feature.clients)}: {feature.name}. {feature.advice}"


def _segments(template: Template, locale: str | None) -> Iterator[TemplateProblem]:
    """Yield the warnings of an SMS rendered with its example values."""
    own = in_locale(template, locale)
    body = own.body or ""
    literal = TOKEN.sub(lambda token: "\n" * token[0].count("\n"), body)
    foreign = outside(literal)
    for char, name in foreign if len(foreign) <= FOREIGN_MAX else ():
        line = body.count("\n", 0, body.index(char)) + 1
        told = f"{char} ({name}) is not of the GSM alphabet: because of it a segment has 70 characters, not 160"
        yield TemplateProblem(level="warning", code="unicode_segment", part="body", locale=locale, line=line, text=told)
    shown = render_body(own, example_values(own), {})
    if (count := segment(shown).spec) > 1:
        told = f"it takes {count} segments with its example values, and each is paid"
        yield TemplateProblem(level="warning", code="more_segments", part="body", locale=locale, text=told)
