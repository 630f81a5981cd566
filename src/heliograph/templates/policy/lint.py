"""Template linter: warnings that do not prevent saving, each with its part and line (contract 18)."""

import re
from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import chain, islice

import msgspec

from heliograph.domain.phones.gsm import count_segments, non_gsm_characters
from heliograph.domain.setup.records import Channel, Layout, Template
from heliograph.templates.policy.check import (
    TemplateProblem,
    check_layout,
    check_template,
    sources_by_part,
    unknown_brand_variables,
)
from heliograph.templates.policy.examples import example_values
from heliograph.templates.policy.formats import is_timezone
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.mail_clients import GMAIL_CLIP_OCTETS, first_unsupported_features
from heliograph.templates.policy.markup import MASK, Tag, parse_tags
from heliograph.templates.policy.placeholders import TOKEN, expand_short_forms
from heliograph.templates.policy.render import octets, render_body
from heliograph.templates.policy.source import MAILTO_WITH_HOST, decode_separators
from heliograph.templates.policy.variable_types import item_fields_of

PARTS_BY_CHANNEL: dict[Channel, tuple[str, ...]] = {
    "email": ("subject", "html", "text"),
    "sms": ("body",),
    "whatsapp": ("body",),
}
WARNINGS_MAX = 40  # maximum warnings of one kind per part
TAGS_MAX = 20_000  # maximum tags examined per part
SEARCHED_TAGS_MAX = 100  # open tags searched for the start of an end tag
NON_GSM_MAX = 3  # characters outside the GSM alphabet that are reported; more than that indicate another script
_VOID_TAGS = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_URL_ATTRIBUTES = frozenset({"href", "src", "action", "background", "poster"})
_INSECURE_SCHEME = re.compile(r"[\x00-\x20]*(?:http|ftp|ws):", re.IGNORECASE)
_VALUE_AFTER_MAILTO_HOST = re.compile(
    rf"{MAILTO_WITH_HOST}(?<!{MASK}){MASK}++(?![A-Za-z0-9.-])", re.IGNORECASE | re.DOTALL
)
_INSECURE_LINK = re.compile(r"(?<![a-z])(?:http|ftp)://[^\s<>\"']{0,60}", re.IGNORECASE)

Warnings = Iterator[tuple[str, int, str]]  # (code, offset in the source, message)


class _ParsedHtml(msgspec.Struct, frozen=True):
    source: str
    masked: str  # source with placeholders blanked
    tags: list[Tag]


def find_problems(template: Template, layout: Layout | None = None) -> list[TemplateProblem]:
    """Return errors, which prevent saving, followed by warnings, which do not."""
    errors = check_template(template)
    is_too_large = any(error.code in ("too_long", "too_many") for error in errors)
    return errors if is_too_large else errors + lint(template, layout)


def find_layout_problems(layout: Layout) -> list[TemplateProblem]:
    errors = check_layout(layout)
    if any(problem.code == "too_long" for problem in errors):
        return errors
    warnings = [
        problem for part, source in sources_by_part(layout).items() for problem in _lint_part(part, source, None)
    ]
    # An unknown variable in a layout is already an error
    return errors + [problem for problem in warnings if problem.code != "unknown_variable"]


def lint(template: Template, layout: Layout | None = None) -> list[TemplateProblem]:
    """Return the warnings for the parts of every language, those in the template's own language first."""
    problems = []
    for tag in (None, *template.locales):
        sources = sources_by_part(template if tag is None else template.locales[tag])
        if template.channel == "email" and sources.get("html") and not sources.get("text"):
            message = "no plain text: some people read email as text, and some spam filters distrust email without it"
            problems.append(
                TemplateProblem(level="warning", code="no_text_part", part="text", locale=tag, text=message)
            )
        for part in sorted(sources.keys() - PARTS_BY_CHANNEL[template.channel]):
            names = ", ".join(PARTS_BY_CHANNEL[template.channel])
            message = f"it is never sent: a template for {template.channel} has only {names}"
            problems.append(TemplateProblem(level="warning", code="unused_part", part=part, locale=tag, text=message))
        for part, written in sources.items():
            source = expand_short_forms(written, item_fields_of(template))
            problems += _lint_part(part, source, tag, octets(layout.html) if layout else 0)
        if template.channel == "sms" and sources.get("body") and is_timezone(template.timezone):
            problems += _sms_warnings(template, tag)
    return problems


def _lint_part(part: str, source: str, locale: str | None, layout_octets: int = 0) -> Iterator[TemplateProblem]:
    line_at = _line_finder(source)
    warnings = _lint_html(source) if part == "html" else islice(_insecure_text_links(source), WARNINGS_MAX)
    for code, at, text in chain(islice(unknown_brand_variables(source), WARNINGS_MAX), warnings):
        yield TemplateProblem(level="warning", code=code, part=part, locale=locale, line=line_at(at), text=text)
    if part == "html" and (size := octets(source) + layout_octets) > GMAIL_CLIP_OCTETS:
        message = f"it has {size:,} bytes: Gmail cuts it off after {GMAIL_CLIP_OCTETS:,}"
        yield TemplateProblem(level="warning", code="html_too_long", part=part, locale=locale, text=message)


def _line_finder(source: str) -> Callable[[int], int]:
    starts = [newline.end() for newline in re.finditer("\n", source)]
    return lambda at: bisect(starts, at) + 1


def _lint_html(source: str) -> Warnings:
    masked = TOKEN.sub(lambda token: MASK * len(token[0]), source)
    html = _ParsedHtml(source, masked, list(islice(parse_tags(masked, len(masked)), TAGS_MAX + 1)))
    is_complete = len(html.tags) <= TAGS_MAX
    if not is_complete:
        message = f"it has more than {TAGS_MAX:,} tags: the rest is not checked"
        yield "html_too_long", html.tags.pop().start, message
    # Unclosed tags are reported only if all tags were read.
    for check in (*[_unclosed_tags] * is_complete, _images_without_alt, _insecure_links, _unsupported_features):
        yield from islice(check(html), WARNINGS_MAX)


def _unclosed_tags(html: _ParsedHtml) -> Warnings:
    """Yield a warning for each unclosed tag. After `{{else}}`, the same tags count as open as at its `{{#if}}`."""
    stack: _TagStack = None
    blocks: list[_TagStack] = []
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
        attributes_end = tag.attributes[-1].end() if tag.attributes else tag.name_end
        if not html.masked[attributes_end : tag.end].endswith(">"):
            yield "unclosed_tag", tag.start, f"<{_display_name(tag)} has no >"
        elif not tag.is_opening(html.masked):
            stack, unclosed = _close_tag(stack, tag.name)
            yield from map(_unclosed_tag_warning, unclosed)
        elif tag.name not in _VOID_TAGS and html.masked[tag.end - 2] != "/":
            stack = (tag, stack)
    yield from map(_unclosed_tag_warning, reversed([tag for tag, _ in _iterate_stack(stack)]))


_TagStack = tuple[Tag, "_TagStack"] | None


def _iterate_stack(stack: _TagStack) -> Iterator[tuple[Tag, _TagStack]]:
    while stack:
        yield stack
        stack = stack[1]


def _close_tag(stack: _TagStack, name: str) -> tuple[_TagStack, list[Tag]]:
    """Return the stack of open tags after the end tag `name`, and the tags that it closes implicitly."""
    unclosed: list[Tag] = []
    for tag, below in islice(_iterate_stack(stack), SEARCHED_TAGS_MAX):
        if tag.name == name:
            return below, unclosed[::-1]
        unclosed.append(tag)
    return stack, []


def _unclosed_tag_warning(tag: Tag) -> tuple[str, int, str]:
    return "unclosed_tag", tag.start, f"<{_display_name(tag)}> is not closed: add </{_display_name(tag)}>"


def _display_name(tag: Tag) -> str:
    return tag.name[:40].replace(MASK, "…")


def _images_without_alt(html: _ParsedHtml) -> Warnings:
    for tag in html.tags:
        if tag.name == "img" and not any(attribute[1].lower() == "alt" for attribute in tag.attributes):
            yield "image_without_alt", tag.start, 'an image has no alt text: describe it, or use alt=""'


def _insecure_links(html: _ParsedHtml) -> Warnings:
    for tag in html.tags:
        for attribute in tag.attributes:
            value = (attribute[2] or "").lstrip("\"'")
            if attribute[1].lower() in _URL_ATTRIBUTES and _INSECURE_SCHEME.match(value):
                address = html.source[slice(*attribute.span(2))].strip("\"'")
                yield "insecure_link", attribute.start(1), _insecure_message(address)
            elif _VALUE_AFTER_MAILTO_HOST.match(decode_separators(value)):
                yield "insecure_link", attribute.start(1), "a value after the host of a mailto link is ignored"


def _insecure_text_links(source: str) -> Warnings:
    for match in _INSECURE_LINK.finditer(source):
        yield "insecure_link", match.start(), _insecure_message(match[0])


def _insecure_message(address: str) -> str:
    return f"{address[:60]} is not https: its traffic can be read and changed in transit"


def _unsupported_features(html: _ParsedHtml) -> Warnings:
    for feature, at in first_unsupported_features(html.source):
        yield "unsupported_feature", at, f"fails in {', '.join(feature.clients)}: {feature.name}. {feature.advice}"


def _sms_warnings(template: Template, locale: str | None) -> Iterator[TemplateProblem]:
    """Yield the warnings of an SMS rendered with its example values."""
    localized = localize(template, locale)
    body = localized.body or ""
    literal = TOKEN.sub(lambda token: "\n" * token[0].count("\n"), body)
    non_gsm = non_gsm_characters(literal)
    for char, name in non_gsm if len(non_gsm) <= NON_GSM_MAX else ():
        line = body.count("\n", 0, body.index(char)) + 1
        message = f"{char} ({name}) is not in the GSM alphabet: segments have 70 characters instead of 160"
        yield TemplateProblem(
            level="warning", code="unicode_segment", part="body", locale=locale, line=line, text=message
        )
    rendered = render_body(localized, example_values(localized), {})
    if (count := count_segments(rendered).spec) > 1:
        message = f"it takes {count} segments with the example values, and each is charged"
        yield TemplateProblem(level="warning", code="more_segments", part="body", locale=locale, text=message)
