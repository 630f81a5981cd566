"""Untrusted text: forbidden characters, whitespace, and quoting of invalid values."""

import re

# C0 and C1 controls, line and paragraph separators, bidi controls, lone surrogates.
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Unicode whitespace, including tabs and line breaks.
_WHITESPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_LINKABLE_WORD = re.compile(r"[@/\\:]|\w[.\u3002\uff0e\uff61]\w|[0-9]{3}")
QUOTED_MAX = 80  # maximum quoted characters of an invalid value in an error message
LINE_MAX = 200  # maximum characters of a name


def collapse_spaces(text: str) -> str:
    """Collapse every run of whitespace to one space and strip the ends."""
    return _WHITESPACE.sub(" ", text).strip(" ")


def remove_linkable_words(text: str) -> str:
    """Remove words that a mail client would turn into a link or a phone number."""
    return " ".join(word for word in text.split() if not _LINKABLE_WORD.search(word))


def quoted(value: str) -> str:
    """Return the value as shown in error messages: escaped and truncated."""
    return repr(value if len(value) <= QUOTED_MAX else value[: QUOTED_MAX - 1] + "…")


def parse_int(text: str, digits: int) -> int | None:
    """Parse an integer of at most `digits` digits; None if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def check_line(text: str) -> str:
    """Validate a name that people see: one line without invisible characters."""
    if not text.strip() or len(text) > LINE_MAX or CONTROL_CHARACTER.search(text):
        raise ValueError(
            f"expected one line of 1 to {LINE_MAX} characters without control or bidi characters, got {quoted(text)}"
        )
    return text
