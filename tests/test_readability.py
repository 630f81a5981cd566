"""The sample for cold readings (`python -m tests.readability`)."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import readability

MODULE = """
def add_{0}(left, right):
    \"\"\"Return the sum of two numbers, number {0}.\"\"\"
    # Comment {0}
    result = left + right
    return result
"""


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small project."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text("".join(MODULE.format(number) for number in range(200)))
    (tmp_path / "README.md").write_text("\n\n".join(f"This is sentence number {number}." for number in range(80)))
    monkeypatch.setattr(readability, "ROOT", tmp_path)


def _sample(seed: int) -> str:
    return CliRunner().invoke(readability.main, ["--seed", str(seed)], catch_exceptions=False).output


def test_sample_with_the_same_seed_is_the_same_and_another_seed_differs() -> None:
    assert _sample(7) == _sample(7)
    assert _sample(7) != _sample(8)


def test_sample_has_the_stated_number_of_lines_of_each_kind() -> None:
    output = _sample(7)
    for kind, size in readability.SIZES.items():
        assert f"## {kind}: {size} of" in output


def test_sentences_of_a_wrapped_paragraph_are_joined_and_code_is_left_out() -> None:
    page = (
        "A sentence that is wrapped\nin two lines. Another sentence stands here.\n\n```sh\nmake run is no prose\n```\n"
    )
    assert [text for _, text in readability._paragraphs(page)] == [
        "A sentence that is wrapped in two lines. Another sentence stands here."
    ]
