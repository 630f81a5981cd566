"""Dashboard pages contain none of the phrases that docs/glossary.md lists as wrong."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import read, section, table

SOURCE = Path(__file__).parents[2] / "src" / "heliograph"
TEMPLATES = sorted((SOURCE / "dashboard" / "templates").glob("*.html"))
VIEWS = sorted((SOURCE / "dashboard").rglob("*.py"))
SAID = ("alt", "aria-label", "data-ask", "placeholder", "title")  # attributes that somebody reads or hears

# Words of the program that no reader should meet.
INTERNAL = ("display_name.approve", "undefined", "NoneType")


def wrong_words() -> list[str]:
    """The last column of the tables."""
    cells = [row[2] for heading in ("Things", "Actions") for row in table(section("docs/glossary.md", heading))]
    return sorted({word for cell in cells for word in re.findall(r'"([^"]+)"', cell)} | set(INTERNAL))


def visible(template: str) -> str:
    """What a template shows: its text, what is said in attributes, and the strings in its code."""
    text = re.sub(r"\{#.*?#\}", " ", template, flags=re.S)
    code = " ¦ ".join(
        " ¦ ".join(re.findall(r'"([^"]*)"', part)) for part in re.findall(r"\{[{%](.*?)[%}]\}", text, re.S)
    )
    text = re.sub(r"\{[{%].*?[%}]\}", "…", text, flags=re.S)
    said = " ¦ ".join(re.findall(rf'(?:{"|".join(SAID)})="([^"]*)"', text))
    return " ¦ ".join([re.sub(r"<[^>]*>", " ¦ ", text), said, code])


def sentences(source: str) -> Iterator[str]:
    """The strings of a view that are sentences, or begin like a label."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"[A-Z]\w* ?", node.value):
            yield node.value


def has(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def found(text: str) -> list[str]:
    return [word for word in wrong_words() if has(text, word)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_page_uses_the_right_words(path: Path) -> None:
    assert found(visible(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", VIEWS, ids=lambda path: path.name)
def test_a_view_uses_the_right_words(path: Path) -> None:
    docstrings = [ast.get_docstring(node, clean=False) for node in ast.walk(ast.parse(path.read_text("utf-8")))
                  if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]  # fmt: skip
    said = [text for text in sentences(path.read_text("utf-8")) if text not in docstrings]
    assert found(" ¦ ".join(said)) == []


def test_channels_are_spelt_as_their_owners_do() -> None:
    for path in TEMPLATES:
        text = re.sub(r"<code>.*?</code>", "", path.read_text("utf-8"), flags=re.S)
        assert not re.search(r"\b(Whatsapp|Sms)\b", visible(text)), path.name


def test_what_is_shown_is_seen() -> None:
    page = '{# Money #}<h1 title="Drop">{{ parts.action(visit, to, "Go on") }}</h1><p>Refused requests</p>'
    text = visible(page)
    assert [has(text, word) for word in ("Money", "Drop", "Go on", "Refused requests")] == [False, True, True, True]
    assert [*sentences('x = "Take out"\ny = "team"')] == ["Take out"]
    assert len(wrong_words()) > 20 and "Money" in wrong_words()
    assert read("docs/glossary.md")
