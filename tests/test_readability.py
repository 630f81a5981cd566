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
    sentences = [f"This is sentence number {number}." for number in range(80)]
    (tmp_path / "README.md").write_text("\n\n".join(["# Sentences", *sentences]))
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
    page = "A sentence that is wrapped\nin two lines. Another sentence stands here.\n\n```sh\n# make run\n```\n"
    assert [text for _, _, text in readability._paragraphs(page)] == [
        "A sentence that is wrapped in two lines. Another sentence stands here."
    ]


def test_sentence_is_not_split_at_a_colon_and_has_its_heading_and_the_sentence_before_as_context(
    tmp_path: Path,
) -> None:
    (tmp_path / "README.md").write_text(
        "# Page\n\nThe first sentence of the page.\n\n## Keys\n\nA key has a scope.\nIt has one more field: `name`.\n\n"
        "- An item after both sentences.\n"
    )
    assert readability.collect()["docs"] == [
        ("README.md:3", "The first sentence of the page.", "# Page"),
        ("README.md:7", "A key has a scope.", "## Keys"),
        ("README.md:7", "It has one more field: `name`.", "## Keys … A key has a scope."),
        ("README.md:10", "An item after both sentences.", "## Keys … It has one more field: `name`."),
    ]


def test_context_is_marked_and_is_no_numbered_line() -> None:
    lines = _sample(7).rpartition("## docs:")[2].splitlines()
    assert len([line for line in lines if line[:1].isdigit()]) == 40
    assert any(line.startswith("[context, not part of the sample: # Sentences … This is sentence") for line in lines)
