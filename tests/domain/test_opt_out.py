from typing import Any

import pytest

from heliograph.domain.phones.opt_out import blocks_message, parse_keyword, reply_text
from heliograph.domain.setup.records import OptOutTexts

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
        ("Stop.", "stop"),
        ("Stop!", "stop"),
        ("*STOP*", "stop"),
        ("STOP 🛑", "stop"),
        ("«Stop»", "stop"),
        ("s t o p", "stop"),
        ("st\u200bop", "stop"),
        ("STOP ALL", "stop"),
        ("stop-all", "stop"),
        ("OPT OUT", "stop"),
        ("Opt-out.", "stop"),
        ("un subscribe", "stop"),
        ("Arrêt !", "stop"),
        ("Стоп", "stop"),
        ("СТОП!", "stop"),
        ("停止", "stop"),
        ("停止。", "stop"),
        ("退订", "stop"),
        ("退訂", "stop"),
        ("配信停止", "stop"),
        ("수신거부", "stop"),
        ("توقف", "stop"),
        ("הסר", "stop"),
        ("หยุด", "stop"),
        ("İptal", "stop"),
        ("sair", "stop"),
        ("Start!", "start"),
        ("un-stop", "start"),
        ("HELP?", "help"),
        ("help!!!", "help"),
        ("Info.", "help"),
        ("please don't stop", None),
        ("Stop it, please", None),
        ("I cannot stop", None),
        ("when does it end", None),
        ("the end", None),
        ("quitting", None),
        ("help me", None),
        ("don't start", None),
        ("停", None),
        ("不要停止", None),
        ("не стоп", None),
        ("!!!", None),
        ("123", None),
        ("👍", None),
    ],
)
def test_inbound_text_keyword_is_recognized(text: str, word: str | None) -> None:
    assert parse_keyword(text, TEXTS) == word


def test_team_keywords_are_recognized() -> None:
    texts = OptOutTexts(words=("Détruire",), start_words=("encore",), stop_text="", help_text="Call us")
    assert [parse_keyword(text, texts) for text in ("detruire", "ENCORE", "STOP")] == ["stop", "start", None]
    assert (reply_text("stop", texts), reply_text("help", texts)) == ("", "Call us")


def test_word_with_digits_is_compared_with_its_digits() -> None:
    texts = OptOutTexts(words=("STOP 2", "0", "!"), start_words=("1",))
    requested = ("Stop2!", "stop", "STOP 3", "0", "0.", "00", "1", "", "?", "!")
    assert [parse_keyword(text, texts) for text in requested] == [
        *("stop", None, None, "stop", "stop", None, "start"),
        *(None, None, None),
    ]


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
def test_suppression_reason_blocks_the_expected_categories(reason: Any, category: str | None, barred: bool) -> None:
    assert blocks_message(reason, category) is barred
