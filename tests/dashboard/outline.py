"""What is wrong with the outline of a page, without a browser: names, labels, ids, headings, lists."""

from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
LABELLED = {"input", "select", "textarea"}
NAMED = {"a", "button", "summary", "h1", "h2", "h3", "h4", "th", "label", "legend", "option", "title"}
SILENT = {"hidden", "submit", "button"}  # inputs without a label
REFERENCES = ("for", "aria-labelledby", "aria-describedby", "aria-controls")


class Element:
    def __init__(self, tag: str, attributes: dict[str, str], parent: "Element | None") -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.text = ""

    def __str__(self) -> str:
        return f"<{self.tag} {self.attributes}>"

    def is_inside(self, tag: str) -> bool:
        return self.parent is not None and (self.parent.tag == tag or self.parent.is_inside(tag))

    def say(self, text: str) -> None:
        self.text += text
        if self.parent:
            self.parent.say(text)


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: Element | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self.elements.append(found)
        if self._open and found.attributes.get("alt", found.attributes.get("aria-label")):
            self._open.say(found.attributes.get("alt") or found.attributes["aria-label"])
        if tag not in VOID:
            self._open = found

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        opened = self._open
        self.handle_starttag(tag, attrs)
        self._open = opened

    def handle_endtag(self, tag: str) -> None:
        closed = self._open
        while closed and closed.tag != tag:
            closed = closed.parent
        self._open = closed.parent if closed else self._open

    def set_cdata_mode(self, *_: object, **__: object) -> None:
        """What stands in a style may leave it."""

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open.say(data.strip())


def outline(html: str) -> list[Element]:
    read = Outline()
    read.feed(html)
    return read.elements


def faults(html: str) -> list[str]:
    elements = outline(html)
    ids = Counter(one.attributes["id"] for one in elements if "id" in one.attributes)
    labelled = {one.attributes.get("for") for one in elements if one.tag == "label"}
    levels = [int(one.tag[1]) for one in elements if one.tag in {"h1", "h2", "h3", "h4", "h5", "h6"}]

    def is_labelled(one: Element) -> bool:
        return (
            bool(one.attributes.get("type") in SILENT or _is_named(one) or one.is_inside("label"))
            or one.attributes.get("id") in labelled
        )

    return [
        *(f"{id_} stands twice" for id_, count in ids.items() if count > 1),
        *(f"{one} refers to nothing" for one in elements for id_ in _references(one) if id_ not in ids),
        *(f"{one} has no label" for one in elements if one.tag in LABELLED and not is_labelled(one)),
        *(f"{one} has no name" for one in elements if one.tag in NAMED and not (one.text or _is_named(one))),
        *(f"{one} has no alt" for one in elements if one.tag == "img" and "alt" not in one.attributes),
        *(f"{one} has no title" for one in elements if one.tag == "iframe" and not one.attributes.get("title")),
        *(f"{one} is in no list" for one in elements if one.tag == "li" and _holder(one) not in {"ul", "ol", "menu"}),
        *(f"h{level} after h{last}" for last, level in pairwise(levels) if level > last + 1),
        *(["not one h1"] if levels.count(1) != 1 else []),
        *(["no language"] if not any(one.tag == "html" and one.attributes.get("lang") for one in elements) else []),
    ]


def _references(one: Element) -> list[str]:
    return [id_ for name in REFERENCES for id_ in one.attributes.get(name, "").split()]


def _is_named(one: Element) -> bool:
    return any(one.attributes.get(name) for name in ("aria-label", "aria-labelledby", "title"))


def _holder(one: Element) -> str:
    return one.parent.tag if one.parent else ""
