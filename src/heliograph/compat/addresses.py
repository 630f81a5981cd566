"""Recipients as other services write them: with names, several in one text."""

import re
from collections.abc import Iterable

from heliograph.rules.address import parse_name_addr
from heliograph.rules.refusals import InvalidEmail
from heliograph.rules.text import quoted

_ONE = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^",])+')  # a comma in a quoted name parts nothing


def split_addresses(text: str | None, field: str) -> list[str]:
    """The bare addresses of a list with commas; the mail's headers have no names of recipients."""
    text = (text or "").strip(", \t\r\n")
    parts = _ONE.findall(text)
    return bare_addresses(parts if ",".join(parts) == text else [text], field)


def bare_addresses(texts: Iterable[str], field: str) -> list[str]:
    return [_bare(text, field) for text in texts]


def _bare(text: str, field: str) -> str:
    found = parse_name_addr(text)
    if found is None:
        which = "A bcc entry" if field == "bcc" else f"{field} {quoted(text)}"
        told = f"{which} is not a valid email address. {InvalidEmail.fix}"
        raise InvalidEmail(told, param=field, details={"address": text.strip()})
    return found[1].given
