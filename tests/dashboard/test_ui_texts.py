"""Dashboard pages contain none of the phrases that docs/internals/glossary.md lists as wrong."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import read, section, table

SOURCE = Path(__file__).parents[2] / "src" / "heliograph"
TEMPLATES = sorted((SOURCE / "dashboard" / "templates").glob("*.html"))
VIEWS = sorted((SOURCE / "dashboard").rglob("*.py"))
SAID = ("alt", "aria-label", "data-ask", "placeholder", "title")  # attributes that browsers show or read aloud

# internal names that no page may show
INTERNAL = ("display_name.approve", "undefined", "NoneType")


def read_wrong_phrases() -> list[str]:
    """Return the phrases in the last column of the glossary's tables."""
    page = "docs/internals/glossary.md"
    cells = [row[2] for heading in ("Things", "Actions") for row in table(section(page, heading))]
    return sorted({word for cell in cells for word in re.findall(r'"([^"]+)"', cell)} | set(INTERNAL))


def visible_text(template: str) -> str:
    """Return the visible text of a template: text, readable attributes, and strings in its code."""
    text = re.sub(r"\{#.*?#\}", " ", template, flags=re.S)
    code = " ¦ ".join(
        " ¦ ".join(re.findall(r'"([^"]*)"', part)) for part in re.findall(r"\{[{%](.*?)[%}]\}", text, re.S)
    )
    text = re.sub(r"\{[{%].*?[%}]\}", "…", text, flags=re.S)
    attribute_texts = " ¦ ".join(re.findall(rf'(?:{"|".join(SAID)})="([^"]*)"', text))
    return " ¦ ".join([re.sub(r"<[^>]*>", " ¦ ", text), attribute_texts, code])


def label_strings(source: str) -> Iterator[str]:
    """Yield the strings of a view that are sentences or start like a label."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"[A-Z]\w* ?", node.value):
            yield node.value


def contains_phrase(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def find_wrong_phrases(text: str) -> list[str]:
    return [word for word in read_wrong_phrases() if contains_phrase(text, word)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_template_uses_preferred_terms(path: Path) -> None:
    assert find_wrong_phrases(visible_text(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", VIEWS, ids=lambda path: path.name)
def test_view_texts_use_preferred_terms(path: Path) -> None:
    docstrings = [ast.get_docstring(node, clean=False) for node in ast.walk(ast.parse(path.read_text("utf-8")))
                  if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]  # fmt: skip
    texts = [text for text in label_strings(path.read_text("utf-8")) if text not in docstrings]
    assert find_wrong_phrases(" ¦ ".join(texts)) == []


def test_channel_names_are_spelled_officially() -> None:
    for path in TEMPLATES:
        text = re.sub(r"<code>.*?</code>", "", path.read_text("utf-8"), flags=re.S)
        assert not re.search(r"\b(Whatsapp|Sms)\b", visible_text(text)), path.name


def test_checker_finds_wrong_phrases_in_visible_text() -> None:
    page = '{# Money #}<h1 title="Drop">{{ parts.action(request, to, "Go on") }}</h1><p>Refused requests</p>'
    text = visible_text(page)
    assert [contains_phrase(text, word) for word in ("Money", "Drop", "Go on", "Refused requests")] == [
        False,
        True,
        True,
        True,
    ]
    assert [*label_strings('x = "Take out"\ny = "team"')] == ["Take out"]
    assert len(read_wrong_phrases()) > 20 and "Money" in read_wrong_phrases()
    assert read("docs/internals/glossary.md")
