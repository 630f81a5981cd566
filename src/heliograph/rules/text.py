"""What other people's text may hold: the characters that never pass, and how a value is quoted."""

import re

# C0 and C1 controls, line and paragraph separators, bidi controls, lone surrogates.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
QUOTED_MAX = 80  # characters of a bad value in a message


def quoted(value: str) -> str:
    """The value as a refusal's message shows it: escaped, and clipped."""
    return repr(value if len(value) <= QUOTED_MAX else value[: QUOTED_MAX - 1] + "…")
