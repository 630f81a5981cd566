"""Finds the HTML context of placeholders in one pass, without rendering."""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

BLANK = "".join(map(chr, range(0x21)))  # characters that browsers skip before an address
SAFE_ADDRESS = re.compile(r"[\x00-\x20]*(?:https?|mailto|tel):", re.IGNORECASE)

_ADDRESS_ATTRIBUTES = frozenset(
    "href src action formaction poster background xlink:href cite data longdesc lowsrc dynsrc manifest "
    "icon ping profile codebase classid archive usemap".split()
)
# A value here would be parsed as CSS, as HTML, or as a list of addresses.
_REFUSED_ATTRIBUTES = frozenset({"style", "srcdoc", "srcset", "imagesrcset"})
_REFUSED_TAGS = frozenset({"meta", "animate", "set"})  # their attributes can contain addresses
_RAW_TAGS = frozenset({"script", "style", "iframe", "noscript", "noembed", "noframes", "xmp", "plaintext"})
_TEXT_TAGS = frozenset({"title", "textarea"})
_WHOLE_TAGS = _RAW_TAGS | _TEXT_TAGS  # content is not parsed for tags

MASK = "\ufdd0"  # replaces each character of a placeholder while tags are parsed
_WS = r"[\t\n\f\r ]"
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?![a-zA-Z]))[^>]*>?", re.DOTALL)
_OPEN = re.compile(rf"<[!?/a-zA-Z{MASK}]")
_TAG = re.compile(rf"</?([a-zA-Z{MASK}][^\t\n\f\r />]*)")
_ATTRIBUTE = re.compile(
    rf"""(?:{_WS}|/)*([^\t\n\f\r />][^\t\n\f\r />=]*)(?:{_WS}*={_WS}*("[^"]*"?|'[^']*'?|[^\t\n\f\r >]*))?"""
)
_TAG_END = re.compile(rf"(?:{_WS}|/)*(?:>|\Z)")


class Stretch(msgspec.Struct, frozen=True):
    """A range of HTML in which a placeholder is not plain text."""

    start: int
    end: int
    place: Literal["attribute", "address", "refused"]
    what: str


class Tag(msgspec.Struct, frozen=True):
    """A tag, or a comment (without a name)."""

    name: str
    start: int
    name_end: int
    end: int  # offset after the tag
    attributes: list[re.Match[str]]  # match of each attribute: name and quoted value
    whole: int  # offset after the element's raw content, which is not markup

    def opens(self, source: str) -> bool:
        return source[self.start + 1] != "/"


def tags(source: str, last: int) -> Iterator[Tag]:
    """Yield the tags and comments of a masked source that start before `last`, in order."""
    found = _OPEN.search(source, 0, last)
    while found:
        at = found.start()
        if comment := _COMMENT.match(source, at):
            tag = Tag("", at, at, comment.end(), [], comment.end())
        else:
            tag = _tag(source, at)
        yield tag
        found = _OPEN.search(source, tag.whole, last)


def _tag(source: str, start: int) -> Tag:
    named = _TAG.match(source, start)
    assert named  # anything that opens and is not a comment is a tag
    name, at, attributes = named[1].lower(), named.end(), []
    while not (end := _TAG_END.match(source, at)):
        attribute = _ATTRIBUTE.match(source, at)
        assert attribute  # anything that does not end the tag is an attribute
        attributes.append(attribute)
        at = attribute.end()
    whole = end.end()
    if name in _WHOLE_TAGS and source[start + 1] != "/":
        close = re.compile(rf"</{name}(?=[\t\n\f\r />])|\Z", re.IGNORECASE).search(source, whole)
        assert close
        whole = close.start()
    return Tag(name, start, named.end(), end.end(), attributes, whole)


def stretches(source: str) -> Iterator[Stretch]:
    """Yield the attributes, addresses and refused ranges of a masked source, in order, up to the last placeholder."""
    for tag in tags(source, source.rfind(MASK) + 1):
        if not tag.name:
            yield Stretch(tag.start, tag.end, "refused", "a comment")
            continue
        if MASK in tag.name:
            yield Stretch(tag.start, tag.name_end, "refused", "a tag name")
        for attribute in tag.attributes:
            if MASK in attribute[0]:
                yield from _attribute_stretches(tag.name, attribute)
        if tag.name in _WHOLE_TAGS and tag.opens(source):
            whole = tag.name in _RAW_TAGS or "<" in source[tag.end : tag.whole]
            yield Stretch(tag.end, tag.whole, "refused" if whole else "attribute", f"<{tag.name}>")


def _attribute_stretches(tag: str, attribute: re.Match[str]) -> Iterator[Stretch]:
    name = attribute[1].lower()
    yield Stretch(*attribute.span(1), "refused", "an attribute name")
    if attribute[2]:
        start, end = attribute.span(2)
        if attribute[2][0] not in "\"'":
            yield Stretch(start, end, "refused", f"the unquoted attribute {name}")
        elif name.startswith("on") or name in _REFUSED_ATTRIBUTES or tag in _REFUSED_TAGS:
            yield Stretch(start, end, "refused", f"the attribute {name} of <{tag}>")
        elif name in _ADDRESS_ATTRIBUTES:
            closed = len(attribute[2]) > 1 and attribute[2][-1] == attribute[2][0]
            yield Stretch(start + 1, end - closed, "address", f"the attribute {name} of <{tag}>")
        else:
            yield Stretch(start, end, "attribute", f"the attribute {name} of <{tag}>")
