"""Maps a failed mail to one of four categories for counters; bounce_classifier.py makes the actual decision."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from heliograph.domain.events import is_hard

Category = Literal["recipient", "policy", "infrastructure", "content"]

WORDS_MAX = 500  # examined characters of the carrier's text
# Subject of an enhanced code (RFC 3463) → category; 7 is security and policy.
_SUBJECTS: dict[str, Category] = {
    "1": "recipient",
    "2": "recipient",
    "3": "infrastructure",
    "4": "infrastructure",
    "5": "infrastructure",
    "6": "content",
    "7": "policy",
}
_CODES: dict[str, Category] = {"1.7": "policy", "1.8": "policy", "3.4": "content", "2.3": "content"}
_WORDS: tuple[tuple[re.Pattern[str], Category], ...] = (
    (re.compile(r"\bspam|virus|malware|phish|content|attachment|too (?:large|big)|size\b"), "content"),
    (
        re.compile(
            r"polic|block|black ?list|reputation|\bspf\b|dkim|dmarc|authenti|\brate\b|too many|denied|listed|relay"
        ),
        "policy",
    ),
    (re.compile(r"mailbox|user|recipient|account|quota"), "recipient"),
)


def category_of(status: str, detail: Mapping[str, Any]) -> Category:
    """Return the category of a failure. `status`: bounced, failed or complained; `detail`: the carrier's reply."""
    if status == "complained" or is_hard(status, detail):
        return "recipient"  # the address is bad, or its owner does not want the mail
    text = str(detail.get("text") or "")[:WORDS_MAX].lower()
    _, _, code = str(detail.get("enhanced") or "").partition(".")
    by_code = _CODES.get(code) or _SUBJECTS.get(code.partition(".")[0])
    if by_code and by_code != "policy":
        return by_code
    words = next((category for pattern, category in _WORDS if pattern.search(text)), None)
    if by_code:  # policy codes are also used by spam filters
        return "content" if words == "content" else by_code
    return words or "infrastructure"
