"""Finds structural errors of a page without a browser: names, labels, ids, headings, lists."""

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

    def add_text(self, text: str) -> None:
        self.text += text
        if self.parent:
            self.parent.add_text(text)


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: Element | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self.elements.append(element)
        if self._open and element.attributes.get("alt", element.attributes.get("aria-label")):
            self._open.add_text(element.attributes.get("alt") or element.attributes["aria-label"])
        if tag not in VOID:
            self._open = element

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
        """Do nothing, so that the content of a style element is parsed too."""

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open.add_text(data.strip())


def parse_elements(html: str) -> list[Element]:
    parser = Outline()
    parser.feed(html)
    return parser.elements


def find_faults(html: str) -> list[str]:
    elements = parse_elements(html)
    ids = Counter(element.attributes["id"] for element in elements if "id" in element.attributes)
    labelled = {element.attributes.get("for") for element in elements if element.tag == "label"}
    levels = [int(element.tag[1]) for element in elements if element.tag in {"h1", "h2", "h3", "h4", "h5", "h6"}]

    def is_labelled(element: Element) -> bool:
        return (
            bool(element.attributes.get("type") in SILENT or _has_name(element) or element.is_inside("label"))
            or element.attributes.get("id") in labelled
        )

    return [
        *(f"{id_} stands twice" for id_, count in ids.items() if count > 1),
        *(f"{element} refers to nothing" for element in elements for id_ in _referenced_ids(element) if id_ not in ids),
        *(f"{element} has no label" for element in elements if element.tag in LABELLED and not is_labelled(element)),
        *(
            f"{element} has no name"
            for element in elements
            if element.tag in NAMED and not (element.text or _has_name(element))
        ),
        *(f"{element} has no alt" for element in elements if element.tag == "img" and "alt" not in element.attributes),
        *(
            f"{element} has no title"
            for element in elements
            if element.tag == "iframe" and not element.attributes.get("title")
        ),
        *(
            f"{element} is in no list"
            for element in elements
            if element.tag == "li" and _parent_tag(element) not in {"ul", "ol", "menu"}
        ),
        *(f"h{level} after h{last}" for last, level in pairwise(levels) if level > last + 1),
        *(["not one h1"] if levels.count(1) != 1 else []),
        *(
            ["no language"]
            if not any(element.tag == "html" and element.attributes.get("lang") for element in elements)
            else []
        ),
    ]


def _referenced_ids(element: Element) -> list[str]:
    return [id_ for name in REFERENCES for id_ in element.attributes.get(name, "").split()]


def _has_name(element: Element) -> bool:
    return any(element.attributes.get(name) for name in ("aria-label", "aria-labelledby", "title"))


def _parent_tag(element: Element) -> str:
    return element.parent.tag if element.parent else ""
