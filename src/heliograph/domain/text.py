"""What other people's text may hold: the characters that never pass, and how a value is quoted."""

import re

# C0 and C1 controls, line and paragraph separators, bidi controls, lone surrogates.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What Unicode calls white space, tabs and line ends included.
_WHITE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_ADDRESS = re.compile(r"[@/\\:]|\w[.\u3002\uff0e\uff61]\w|[0-9]{3}")
QUOTED_MAX = 80  # characters of a bad value in a message
LINE_MAX = 200  # characters of a name


def single_spaced(text: str) -> str:
    """Write every run of white space as one space, and none at the ends."""
    return _WHITE.sub(" ", text).strip(" ")


def without_addresses(text: str) -> str:
    """Leave out the words that a mail program would make a link of, or that look like a number to call."""
    return " ".join(word for word in text.split() if not _ADDRESS.search(word))


def quoted(value: str) -> str:
    """Return the value as a refusal's message shows it: escaped, and clipped."""
    return repr(value if len(value) <= QUOTED_MAX else value[: QUOTED_MAX - 1] + "…")


def whole_number(text: str, digits: int) -> int | None:
    """Read a number of at most so many digits; None: it is something else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def line(given: str) -> str:
    """Check a name that people see: it is one line, with nothing invisible."""
    if not given.strip() or len(given) > LINE_MAX or CONTROLS.search(given):
        raise ValueError(
            f"expected one line of 1 to {LINE_MAX} characters without control or bidi characters, got {quoted(given)}"
        )
    return given
