from typing import Any

import pytest

from heliograph.rules.phones.opt_out import answer_to, bars, read_word
from heliograph.rules.setup.records import OptOutTexts

TEXTS = OptOutTexts()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("STOP", "stop"),
        (" stop\n", "stop"),
        ("Arrêt", "stop"),
        ("ARRET", "stop"),
        ("stoppen", "stop"),
        ("stop it", None),
        ("Don't stop", None),
        ("start", "start"),
        ("UnStop", "start"),
        ("help", "help"),
        ("Info ", "help"),
        ("", None),
        ("ＳＴＯＰ", "stop"),
    ],
)
def test_what_a_text_asks_for(text: str, word: str | None) -> None:
    assert read_word(text, TEXTS) == word


def test_a_team_has_words_of_its_own() -> None:
    texts = OptOutTexts(words=("Détruire",), start_words=("encore",), stop_text="", help_text="Call us")
    assert [read_word(text, texts) for text in ("detruire", "ENCORE", "STOP")] == ["stop", "start", None]
    assert (answer_to("stop", texts), answer_to("help", texts)) == ("", "Call us")


@pytest.mark.parametrize(
    ("reason", "category", "barred"),
    [
        (None, "MARKETING", False),
        ("text", "UTILITY", True),
        ("carrier", None, True),
        ("marketing", "MARKETING", True),
        ("marketing", "UTILITY", False),
        ("marketing", None, False),
    ],
)
def test_whom_a_listing_keeps_a_message_from(reason: Any, category: str | None, barred: bool) -> None:
    assert bars(reason, category) is barred
