"""Opting out of a team's messages by phone: the words that do it, and what each is answered (contract 17)."""

import unicodedata
from typing import Literal, get_args

from heliograph.rules.setup.records import OptOutTexts

PhoneChannel = Literal["sms", "whatsapp"]
PHONE_CHANNELS: tuple[PhoneChannel, ...] = get_args(PhoneChannel)
# `marketing`: a carrier says that they want none, and they get all else.
OptOutReason = Literal["text", "carrier", "manual", "marketing"]
OPT_OUT_REASONS: tuple[OptOutReason, ...] = get_args(OptOutReason)

Word = Literal["stop", "start", "help"]

HELP_WORDS = frozenset({"help", "info"})


def read_word(text: str, texts: OptOutTexts) -> Word | None:
    """Return what a text asks for when it is one of the words and nothing else."""
    said = plain(text)
    if said in map(plain, texts.words):
        return "stop"
    if said in map(plain, texts.start_words):
        return "start"
    return "help" if said in HELP_WORDS else None


def bars(reason: OptOutReason | None, category: str | None) -> bool:
    """Tell whether a phone that is listed for this reason gets no message by a template of this category."""
    return reason is not None and (reason != "marketing" or category == "MARKETING")


def answer_to(word: Word, texts: OptOutTexts) -> str:
    return {"stop": texts.stop_text, "start": texts.start_text, "help": texts.help_text}[word]


def plain(text: str) -> str:
    """Trim the text and take case and accents away."""
    letters = unicodedata.normalize("NFKD", text.strip().casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
