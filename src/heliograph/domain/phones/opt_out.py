"""Opt-out from a team's phone messages: keywords and replies (contract 17)."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from heliograph.domain.setup.records import OptOutTexts

PhoneChannel = Literal["sms", "whatsapp"]
PHONE_CHANNELS: tuple[PhoneChannel, ...] = get_args(PhoneChannel)
# `marketing`: a carrier reports that the recipient wants no marketing messages; all others are sent.
OptOutReason = Literal["text", "carrier", "manual", "marketing"]
OPT_OUT_REASONS: tuple[OptOutReason, ...] = get_args(OptOutReason)

Word = Literal["stop", "start", "help"]

WORD_TEXT_MAX = 200  # characters; a longer text is not a keyword
HELP_WORDS = frozenset({"help", "info"})


def read_word(text: str, texts: OptOutTexts) -> Word | None:
    """Return the meaning of a text that consists of one keyword; None otherwise.

    Only letters are compared, and digits too if the keyword contains digits.
    """
    if len(text) > WORD_TEXT_MAX:
        return None
    said = {kinds: _keep(text, kinds) for kinds in ("L", "LN")}
    words: dict[Word, Iterable[str]] = {"stop": texts.words, "start": texts.start_words, "help": HELP_WORDS}
    return next((meaning for meaning, given in words.items() if any(_is_word(said, word) for word in given)), None)


def bars(reason: OptOutReason | None, category: str | None) -> bool:
    """Return whether an opt-out for this reason blocks messages with templates of this category."""
    return reason is not None and (reason != "marketing" or category == "MARKETING")


def answer_to(word: Word, texts: OptOutTexts) -> str:
    return {"stop": texts.stop_text, "start": texts.start_text, "help": texts.help_text}[word]


def _is_word(said: Mapping[str, str], word: str) -> bool:
    kinds = "LN" if any(char.isdigit() for char in word) else "L"
    return said[kinds] != "" and said[kinds] == _keep(word, kinds)


def _keep(text: str, kinds: str) -> str:
    """Return the characters of these Unicode categories, without case and accents."""
    characters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in characters if unicodedata.category(char)[0] in kinds)
