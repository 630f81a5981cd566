"""Draws a seeded sample of the project's language for a cold reading: docstrings, comments, names and docs sentences.

A reader who has never seen the code marks each line as clear at first reading, clear at the second, or opaque. The same
seed draws the same lines from the same tree, so that a reading can be repeated. A docs sentence is printed after its
context, the section's heading and the sentence before it, which is not part of the sample.
"""

import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).parents[1]
SIZES = {"docstring": 120, "comment": 60, "name": 60, "docs": 40}
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*])")
NO_PROSE = re.compile(r"\s*(```|[|#<>!]|- \[|\d+\. \[|$)")  # fences, tables, headings, HTML, link lists
LIST_ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
DIRECTIVE = re.compile(r"#\s*(type:|noqa|fmt:|!|-\*-|pragma)")
DOCUMENTABLE = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Line(NamedTuple):
    """A line of the sample."""

    place: str
    text: str
    context: str = ""  # what a reader of the page has just read


@click.command()
@click.option("--seed", type=int, required=True, help="Number that selects the sample.")
@click.option("--only", type=click.Choice(list(SIZES)), help="Draw one kind of line only.")
def main(seed: int, only: str | None) -> None:
    """Print a numbered sample of docstrings, comments, names and docs sentences."""
    population = collect()
    for kind, size in SIZES.items():
        if only in (None, kind):
            lines = population[kind]
            chosen = random.Random(f"{seed} {kind}").sample(lines, min(size, len(lines)))
            click.echo(f"\n## {kind}: {len(chosen)} of {len(lines)}\n")
            for number, line in enumerate(chosen, 1):
                if line.context:
                    click.echo(f"[context, not part of the sample: {line.context}]")
                click.echo(f"{number}. {line.place}: {line.text}")


def collect() -> dict[str, list[Line]]:
    """Return every line of each kind, in a fixed order."""
    lines: dict[str, list[Line]] = {kind: [] for kind in SIZES}
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text()
        nodes = list(ast.walk(ast.parse(source)))
        lines["docstring"] += _docstrings(path, nodes)
        lines["comment"] += _comments(path, source)
        lines["name"] += _names(path, nodes)
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))):
        lines["docs"] += _sentences(path)
    return lines


def _docstrings(path: Path, nodes: list[ast.AST]) -> Iterator[Line]:
    for node in nodes:
        if isinstance(node, DOCUMENTABLE) and (text := ast.get_docstring(node)):
            yield Line(f"{_place(path, node)} `{getattr(node, 'name', 'module')}`", " ".join(text.split()))


def _comments(path: Path, source: str) -> Iterator[Line]:
    """Yield each comment with the code on its line, and consecutive comment lines as one."""
    block: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            code = token.line[: token.start[1]].strip()
            text = token.string.lstrip("# ")
            if code:
                yield Line(f"{_relative(path)}:{token.start[0]} `{code}`", text)
            else:
                block.append(text)
        elif token.type != tokenize.NL and block:
            yield Line(f"{_relative(path)}:{token.start[0]} before `{token.line.strip()}`", " ".join(block))
            block = []


def _names(path: Path, nodes: list[ast.AST]) -> Iterator[Line]:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield Line(_place(path, node), f"class {node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Line(_place(path, node), f"def {node.name}({', '.join(arg.arg for arg in node.args.args)})")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield Line(_place(path, node), f"variable {target.id}")


def _sentences(path: Path) -> Iterator[Line]:
    context = [""]
    for number, heading, paragraph in _paragraphs(path.read_text()):
        if heading != context[0]:
            context = [heading]
        for sentence in SENTENCE.split(paragraph):
            if len(sentence.split()) > 4:
                yield Line(f"{_relative(path)}:{number}", sentence, " … ".join(context))
            context = [heading, sentence]


def _paragraphs(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the first line's number, the heading above, and the joined lines of each paragraph and list item."""
    is_code, heading, first, lines = False, "", 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if lines and (is_code or is_fence or NO_PROSE.match(line) or LIST_ITEM.match(line)):
            yield first, heading, " ".join(lines)
            lines = []
        if not is_code and line.startswith("#"):
            heading = line
        if not is_code and not NO_PROSE.match(line):
            first = first if lines else number
            lines.append(LIST_ITEM.sub("", line).strip())


def _place(path: Path, node: ast.AST) -> str:
    return f"{_relative(path)}:{getattr(node, 'lineno', 1)}"


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
