"""Opt-out from a team's phone messages: keywords and replies (contract 17)."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from heliograph.domain.setup.records import OptOutTexts
from heliograph.domain.text import quoted

PhoneChannel = Literal["sms", "whatsapp"]
PHONE_CHANNELS: tuple[PhoneChannel, ...] = get_args(PhoneChannel)
# `marketing`: a carrier reports that the recipient wants no marketing messages; other messages are still sent.
OptOutReason = Literal["text", "carrier", "manual", "marketing"]
OPT_OUT_REASONS: tuple[OptOutReason, ...] = get_args(OptOutReason)

Keyword = Literal["stop", "start", "help"]

KEYWORD_TEXT_MAX = 200  # characters; a longer text is not a keyword
HELP_WORDS = frozenset({"help", "info"})


def parse_keyword(text: str, texts: OptOutTexts) -> Keyword | None:
    """Return the keyword that a text consists of; None for any other text.

    Only letters are compared, and digits too if the keyword contains digits.
    """
    if len(text) > KEYWORD_TEXT_MAX:
        return None
    folded_text = {kinds: _fold_characters(text, kinds) for kinds in ("L", "LN")}
    words: dict[Keyword, Iterable[str]] = {"stop": texts.words, "start": texts.start_words, "help": HELP_WORDS}
    return next(
        (meaning for meaning, keywords in words.items() if any(_is_keyword(folded_text, word) for word in keywords)),
        None,
    )


def keyword_error(texts: OptOutTexts) -> str:
    """Return an error text if one of `start_words` opts a number out; empty if none does."""
    for word in texts.start_words:
        if parse_keyword(word, texts) == "stop":
            return f"a text with {quoted(word)} would opt out: remove it from one of the lists"
    return ""


def blocks_message(reason: OptOutReason | None, category: str | None) -> bool:
    """Return whether an opt-out for this reason blocks messages with templates of this category."""
    return reason is not None and (reason != "marketing" or category == "MARKETING")


def reply_text(word: Keyword, texts: OptOutTexts) -> str:
    return {"stop": texts.stop_text, "start": texts.start_text, "help": texts.help_text}[word]


def _is_keyword(folded_text: Mapping[str, str], word: str) -> bool:
    kinds = "LN" if any(char.isdigit() for char in word) else "L"
    return folded_text[kinds] != "" and folded_text[kinds] == _fold_characters(word, kinds)


def _fold_characters(text: str, kinds: str) -> str:
    """Return the text's characters of these Unicode categories, without case and accents."""
    characters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in characters if unicodedata.category(char)[0] in kinds)
