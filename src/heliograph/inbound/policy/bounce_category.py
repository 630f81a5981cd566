"""Sorts failures into four categories for statistics; bounce_classifier.py decides which addresses are suppressed."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from heliograph.domain.events import is_hard_bounce

Category = Literal["recipient", "policy", "infrastructure", "content"]

TEXT_MAX = 500  # maximum characters of the carrier's text that are examined
# subject (second number) of an enhanced status code (RFC 3463) → category; 7 is security and policy
_CATEGORY_BY_SUBJECT: dict[str, Category] = {
    "1": "recipient",
    "2": "recipient",
    "3": "infrastructure",
    "4": "infrastructure",
    "5": "infrastructure",
    "6": "content",
    "7": "policy",
}
_CATEGORY_BY_CODE: dict[str, Category] = {"1.7": "policy", "1.8": "policy", "3.4": "content", "2.3": "content"}
_CATEGORY_BY_PHRASE: tuple[tuple[re.Pattern[str], Category], ...] = (
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
    if status == "complained" or is_hard_bounce(status, detail):
        return "recipient"  # the address is invalid, or its owner does not want the mail
    text = str(detail.get("text") or "")[:TEXT_MAX].lower()
    _, _, code = str(detail.get("enhanced") or "").partition(".")
    category_by_code = _CATEGORY_BY_CODE.get(code) or _CATEGORY_BY_SUBJECT.get(code.partition(".")[0])
    if category_by_code and category_by_code != "policy":
        return category_by_code
    category_by_text = next((category for pattern, category in _CATEGORY_BY_PHRASE if pattern.search(text)), None)
    if category_by_code:  # a policy code; spam filters also use it for bad content
        return "content" if category_by_text == "content" else category_by_code
    return category_by_text or "infrastructure"
