"""Fixtures that override others have the same type, and test programs patch only names that exist."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent


def fixtures(source: str) -> dict[str, str]:
    """Return fixture name → its return type."""
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
    """Tests of one process share a service, so a code sent by one file would be seen by another."""
    lent = re.compile(r"\+1500555(?!1000)10[0-2]\d")
    assert [path.name for path in HERE.rglob("*.py") if lent.search(path.read_text("utf-8"))] == []
    assert lent.search("+1500555" + "1003")


def changed_names(program: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each module attribute that a test's program patches."""
    tree = ast.parse(program)
    modules = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heliograph")
        for alias in node.names
    }
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in modules:
                yield modules[target.value.id], target.attr


def test_programs_in_tests_change_existing_names_only() -> None:
    """Otherwise a renamed constant would silently keep its value in a program that is text."""
    changed = set[tuple[str, str]]()
    for path in HERE.rglob("*.py"):
        source = path.read_text("utf-8")
        for node in (
            ast.walk(ast.parse(source))
            if re.search(r"^from heliograph", source, re.M) and re.search(r"^\w+\.[A-Z_]+ .?.?= ", source, re.M)
            else ()
        ):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                program = "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in parts)
                with suppress(SyntaxError):
                    changed |= set(changed_names(program if "from heliograph" in program else ""))
    missing = {f"{module}.{name}" for module, name in changed if not hasattr(pkgutil.resolve_name(module), name)}
    assert len(changed) > 3 and missing == set()
