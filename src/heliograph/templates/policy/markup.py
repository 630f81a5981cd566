"""Finds the HTML context of placeholders in one pass, without rendering."""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

SKIPPED_CHARACTERS = "".join(map(chr, range(0x21)))  # characters that browsers skip before an address
SAFE_SCHEME = re.compile(r"[\x00-\x20]*(?:https?|mailto|tel):", re.IGNORECASE)

_URL_ATTRIBUTES = frozenset(
    "href src action formaction poster background xlink:href cite data longdesc lowsrc dynsrc manifest "
    "icon ping profile codebase classid archive usemap".split()
)
# A value here would be parsed as CSS, as HTML, or as a list of addresses.
_REFUSED_ATTRIBUTES = frozenset({"style", "srcdoc", "srcset", "imagesrcset"})
_REFUSED_TAGS = frozenset({"meta", "animate", "set"})  # their attributes can contain addresses
_RAW_TAGS = frozenset({"script", "style", "iframe", "noscript", "noembed", "noframes", "xmp", "plaintext"})
_TEXT_TAGS = frozenset({"title", "textarea"})
_UNPARSED_TAGS = _RAW_TAGS | _TEXT_TAGS  # content is not parsed for tags

MASK = "\ufdd0"  # replaces each character of a placeholder while tags are parsed
_WHITE_SPACE = r"[\t\n\f\r ]"
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?![a-zA-Z]))[^>]*>?", re.DOTALL)
_TAG_OR_COMMENT_START = re.compile(rf"<[!?/a-zA-Z{MASK}]")
_TAG_START = re.compile(rf"</?([a-zA-Z{MASK}][^\t\n\f\r />]*)")
_ATTRIBUTE = re.compile(
    rf"""(?:{_WHITE_SPACE}|/)*([^\t\n\f\r />][^\t\n\f\r />=]*)"""
    rf"""(?:{_WHITE_SPACE}*={_WHITE_SPACE}*("[^"]*"?|'[^']*'?|[^\t\n\f\r >]*))?"""
)
_TAG_END = re.compile(rf"(?:{_WHITE_SPACE}|/)*(?:>|\Z)")


class HtmlRange(msgspec.Struct, frozen=True):
    """A range of HTML, such as an attribute value, in which a placeholder is not plain text."""

    start: int
    end: int
    context: Literal["attribute", "address", "refused"]
    description: str


class Tag(msgspec.Struct, frozen=True):
    """An HTML tag; also a comment, which has an empty name."""

    name: str
    start: int
    name_end: int
    end: int  # offset after the tag
    attributes: list[re.Match[str]]  # match of each attribute: name and quoted value
    content_end: int  # offset after the element's raw content, which is not markup

    def is_opening(self, source: str) -> bool:
        return source[self.start + 1] != "/"


def parse_tags(source: str, limit: int) -> Iterator[Tag]:
    """Yield the tags and comments that start before `limit`, in order. `source`: HTML with masked placeholders."""
    match = _TAG_OR_COMMENT_START.search(source, 0, limit)
    while match:
        position = match.start()
        if comment := _COMMENT.match(source, position):
            tag = Tag("", position, position, comment.end(), [], comment.end())
        else:
            tag = _parse_tag(source, position)
        yield tag
        match = _TAG_OR_COMMENT_START.search(source, tag.content_end, limit)


def _parse_tag(source: str, start: int) -> Tag:
    tag_start = _TAG_START.match(source, start)
    assert tag_start  # whatever starts here and is not a comment is a tag
    name, position, attributes = tag_start[1].lower(), tag_start.end(), []
    while not (end := _TAG_END.match(source, position)):
        attribute = _ATTRIBUTE.match(source, position)
        assert attribute  # whatever does not end the tag is an attribute
        attributes.append(attribute)
        position = attribute.end()
    content_end = end.end()
    if name in _UNPARSED_TAGS and source[start + 1] != "/":
        closing_tag = re.compile(rf"</{name}(?=[\t\n\f\r />])|\Z", re.IGNORECASE).search(source, content_end)
        assert closing_tag
        content_end = closing_tag.start()
    return Tag(name, start, tag_start.end(), end.end(), attributes, content_end)


def html_ranges(source: str) -> Iterator[HtmlRange]:
    """Yield the ranges of HTML source outside of text: attributes, URLs, and ranges where placeholders are refused.

    Ranges are in order and end at the last placeholder. `source`: with each placeholder replaced by MASK characters.
    """
    for tag in parse_tags(source, source.rfind(MASK) + 1):
        if not tag.name:
            yield HtmlRange(tag.start, tag.end, "refused", "a comment")
            continue
        if MASK in tag.name:
            yield HtmlRange(tag.start, tag.name_end, "refused", "a tag name")
        for attribute in tag.attributes:
            if MASK in attribute[0]:
                yield from _attribute_ranges(tag.name, attribute)
        if tag.name in _UNPARSED_TAGS and tag.is_opening(source):
            is_refused = tag.name in _RAW_TAGS or "<" in source[tag.end : tag.content_end]
            yield HtmlRange(tag.end, tag.content_end, "refused" if is_refused else "attribute", f"<{tag.name}>")


def _attribute_ranges(tag: str, attribute: re.Match[str]) -> Iterator[HtmlRange]:
    name = attribute[1].lower()
    yield HtmlRange(*attribute.span(1), "refused", "an attribute name")
    if attribute[2]:
        start, end = attribute.span(2)
        if attribute[2][0] not in "\"'":
            yield HtmlRange(start, end, "refused", f"the unquoted attribute {name}")
        elif name.startswith("on") or name in _REFUSED_ATTRIBUTES or tag in _REFUSED_TAGS:
            yield HtmlRange(start, end, "refused", f"the attribute {name} of <{tag}>")
        elif name in _URL_ATTRIBUTES:
            has_end_quote = len(attribute[2]) > 1 and attribute[2][-1] == attribute[2][0]
            yield HtmlRange(start + 1, end - has_end_quote, "address", f"the attribute {name} of <{tag}>")
        else:
            yield HtmlRange(start, end, "attribute", f"the attribute {name} of <{tag}>")
