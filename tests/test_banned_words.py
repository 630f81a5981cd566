"""The check of the project's language (`python -m tests.banned_words`)."""

from pathlib import Path

import pytest

from tests import banned_words


def _find(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> list[str]:
    monkeypatch.setattr(banned_words, "ROOT", folder)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(banned_words.find([path]))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "One.\nThe key is made anew.\n", "a.md:2: “anew”: say again, or a verb with re-"),
        ("a.md", "The message is handed\nover later.\n", "a.md:1: “handed over”: say send"),
        ("a.py", "# a retry that is put\n# off for an hour\n", "a.py:1: “put off”: say defer"),
        ("a.py", 'TEXT = (\n    "what became "\n    "of a message"\n)\n', "a.py:2: “what became of”: say the result"),
        ("a.html", "{# Whoever opens it #}\n", "a.html:1: “whoever”: say the caller"),
        ("a.py", "def tell_story() -> None: ...\n", "a.py:1: name tell_story: say transaction"),
        ("a.py", "class PeerTeller: ...\n", "a.py:1: name PeerTeller: say sender"),
        ("a.py", "A_MAX = 1  # as B_MAX\n", "a.py:1: B_MAX is not in this module"),
        (
            "a.py",
            'def f() -> None:\n    """Return 1.\n\n    Reads TEXT.\n    """\n',
            "a.py:4: TEXT is not in this module",
        ),
        (
            "docs/upgrading.md",
            "It is mended, `mend` is gone.\n",
            "docs/upgrading.md:1: “mended”: say fix",
        ),  # mend alone is excepted
    ],
)
def test_banned_word_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, expected: str
) -> None:
    (finding,) = _find(monkeypatch, tmp_path, name, text)
    assert finding.startswith(expected), finding


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "We recommend an amendment: fix it again.\n"),
        ("a.py", "# a story that ends\nhistory, bellows = 1, 2\n"),
        ("a.py", '_A_MAX = 1  # A_MAX, `limits.B_MAX`, HELIOGRAPH_URL\n"""Not HTTP nor P14."""\n'),
        ("src/heliograph/cli/a.py", 'def f(team: str) -> None:\n    """Show TEAM."""\n'),
        ("a.py", "metric = 'heliograph_time_to_handover_seconds'\n"),
        ("src/heliograph/storage/schema/1.sql", "told SMALLINT NOT NULL\n"),
        ("docs/upgrading.md", "The field `mend`.\n"),
    ],
)
def test_other_words_and_exceptions_are_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    assert _find(monkeypatch, tmp_path, name, text) == []


def test_every_exception_is_still_needed() -> None:
    for start, word in banned_words.EXCEPTIONS:
        paths = [banned_words.ROOT / start] if not start.endswith("/") else (banned_words.ROOT / start).iterdir()
        assert any(word in path.read_text().lower() for path in paths), (start, word)


def test_exit_status_is_1_if_a_banned_word_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(banned_words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Keys are made again.\n")
    assert banned_words.main([str(tmp_path)]) == 0 and capsys.readouterr().out == ""
    page.write_text("Keys are made anew.\n")
    assert banned_words.main([str(page)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 banned words"
