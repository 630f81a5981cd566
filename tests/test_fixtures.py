"""A conftest's fixture that takes the place of one above it gives the same: tests around it were written for that."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent


def fixtures(source: str) -> dict[str, str]:
    """Name → what it gives."""
    return {
        node.name: re.sub(r"(?:Async)?Iterator\[(.+)]", r"\1", ast.unparse(node.returns or ast.Constant(None)))
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(decorator).startswith("pytest.fixture") for decorator in node.decorator_list)
    }


def replaced_by_others(above: str, below: str) -> list[str]:
    known = fixtures(above)
    return [name for name, kind in fixtures(below).items() if known.get(name, kind) != kind]


def test_fixture_that_overrides_another_has_the_same_type() -> None:
    top = (HERE / "conftest.py").read_text("utf-8")
    for path in HERE.glob("*/conftest.py"):
        assert replaced_by_others(top, path.read_text("utf-8")) == [], path
    assert replaced_by_others(top, "@pytest.fixture\ndef settings(port: int) -> dict[str, Any]: ...") == ["settings"]


def test_no_test_names_a_phone_that_others_are_lent() -> None:
    """Tests of one process share a service: a code that one file sent to such a phone was met by another file."""
    lent = re.compile(r"\+1500555(?!1000)10[0-2]\d")
    assert [path.name for path in HERE.rglob("*.py") if lent.search(path.read_text("utf-8"))] == []
    assert lent.search("+1500555" + "1003")
