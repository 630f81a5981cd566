"""Commands print text and JSON from the same records."""

import ast
import json
from pathlib import Path

import pytest

import heliograph.cli
from heliograph.cli.printing import print_list, print_result
from tests.cli.conftest import Run

# files that choose between text and JSON on their own, and why
EXCEPTIONS = {
    "apply.py": "its text is four lists on two streams",
    "findings.py": "each finding is told when it is found",
    "printing.py": "the one place",
    "template.py": "lint counts the problems on the other stream",
}


def decides(path: Path) -> bool:
    conditions = [
        node.test for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.If | ast.IfExp)
    ]
    return any(isinstance(name, ast.Name) and name.id == "as_json" for test in conditions for name in ast.walk(test))


def test_list_commands_use_print_list() -> None:
    files = Path(heliograph.cli.__file__).parent.rglob("*.py")
    assert {path.name for path in files if decides(path)} == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("records", "as_json", "printed"),
    [
        ([1, 2], False, "<1>\n<2>\n"),
        ([1, 2], True, '{"object":"list","data":[1,2]}\n'),
        ([], False, "There are none.\n"),
        ([], True, '{"object":"list","data":[]}\n'),
    ],
)
def test_list_is_printed_as_text_or_json(
    capsys: pytest.CaptureFixture[str], records: list[int], as_json: bool, printed: str
) -> None:
    print_list(as_json, records, lambda record: f"<{record}>", empty_text="There are none.")
    assert capsys.readouterr().out == printed


def test_json_list_uses_its_own_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(True, [1], str, fields=lambda record: {"n": record}, indented=True)
    out = capsys.readouterr().out
    assert json.loads(out)["data"] == [{"n": 1}] and out.count("\n") > 1
    print_list(False, [], str)
    assert capsys.readouterr().out == ""


def test_single_result_is_printed_as_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(False, {"id": "x"}, "x is made")
    print_result(True, {"id": "x"}, "x is made")
    assert capsys.readouterr().out == 'x is made\n{"id":"x"}\n'


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(False, None, "\x1b[31mred\x9b2J\r\n\ttabs\u00a0and €")
    assert capsys.readouterr().out == "\\x1b[31mred\\x9b2J\\r\n\ttabs\u00a0and €\n"


LISTS = [
    *(("approval", "list"), ("carriers",), ("config",), ("deadletter", "list"), ("domain", "list"), ("key", "list")),
    *(("reputation",), ("user", "list")),
]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_every_list_has_the_same_json_format(run: Run, example: str, command: tuple[str, ...]) -> None:
    assert run("apply", example).code == 0
    ended = run(*command, "--json")
    assert ended.code == 0, ended.err
    answer = json.loads(ended.out)
    assert (list(answer), answer["object"], isinstance(answer["data"], list)) == (["object", "data"], "list", True)
